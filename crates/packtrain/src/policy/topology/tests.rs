use super::*;
use proptest::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering};

#[test]
fn lists_are_written_as_they_are_read() {
    for text in ["", "0", "0-3", "0,2-3", "3,1,7-9"] {
        assert_eq!(text.parse::<CpuList>().unwrap().to_string(), text);
    }
    let merged: CpuList = "0,1,2,5".parse().unwrap();
    assert_eq!(merged.to_string(), "0-2,5");
    assert_eq!(merged.as_slice(), [0, 1, 2, 5].map(CpuId));
}

#[test]
fn lists_are_refused_with_a_reason() {
    use CpuListError::{Backwards, NotANumber, TooLarge, Twice};
    for (text, expected) in [
        (",", NotANumber),
        ("0,", NotANumber),
        ("a", NotANumber),
        ("-1", NotANumber),
        ("1-", NotANumber),
        ("+1", NotANumber),
        ("1-2-3", NotANumber),
        (" 1", NotANumber),
        ("3-1", Backwards),
        ("8192", TooLarge),
        ("0-99999999999999999999", TooLarge),
        ("1,1", Twice(CpuId(1))),
        ("0-4,3-5", Twice(CpuId(3))),
    ] {
        assert_eq!(text.parse::<CpuList>(), Err(expected), "{text}");
    }
}

/// A folder with the files of a machine, removed at the end.
struct Tree(PathBuf);

const ONLINE: &str = "sys/devices/system/cpu/online";
const STATUS: &str = "proc/thread-self/status";

impl Tree {
    fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("packtrain-topology-{}-{number}", std::process::id());
        let root = std::env::temp_dir().join(name);
        fs::create_dir_all(&root).unwrap();
        Self(root)
    }

    fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
        self
    }

    fn siblings(&self, cpu: u16, text: &str) -> &Self {
        let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        self.file(&path, text)
    }

    fn mask(&self, list: &str) -> &Self {
        let text = format!("Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t{list}\nMems:\t1");
        self.file(STATUS, &text)
    }

    /// Four cores as Linux numbers them: CPU n and n + 4 are one core.
    fn haswell() -> Self {
        let tree = Self::new();
        tree.file(ONLINE, "0-7").mask("0-7");
        for cpu in 0..8 {
            tree.siblings(cpu, &format!("{},{}", cpu % 4, cpu % 4 + 4));
        }
        tree
    }

    fn read(&self) -> Result<Topology, TopologyError> {
        Topology::read(&self.0)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{} remains: {error}", self.0.display());
        }
    }
}

fn ids(topology: &Topology) -> String {
    let cpus: CpuList = topology.cpus().iter().map(|cpu| cpu.id).collect();
    cpus.to_string()
}

fn cores(topology: &Topology) -> String {
    let cpus: CpuList = topology.cores().into_iter().collect();
    cpus.to_string()
}

#[test]
fn a_whole_machine_is_read() {
    let topology = Tree::haswell().read().unwrap();
    let expected = (0..8).map(|cpu| Cpu {
        id: CpuId(cpu),
        core: CpuId(cpu % 4),
    });
    assert_eq!(topology, Topology::new(expected.collect()));
    assert_eq!(cores(&topology), "0-3");
}

#[test]
fn only_cpus_that_are_online_and_in_the_mask_count() {
    for (online, mask, expected, expected_cores) in [
        ("0-7", "1-3,9", "1-3", "1-3"),
        ("0-2,5", "0-7", "0-2,5", "0-2"),
        // The second threads of the cores 0 and 1, of which the first are not permitted.
        ("0-7", "2-5", "2-5", "2-5"),
        ("0-7", "4-7", "4-7", "4-7"),
        ("0-7", "0,4", "0,4", "0"),
    ] {
        let tree = Tree::haswell();
        tree.file(ONLINE, online).mask(mask);
        let topology = tree.read().unwrap();
        assert_eq!(ids(&topology), expected, "{online} {mask}");
        assert_eq!(cores(&topology), expected_cores, "{online} {mask}");
        assert!(!topology.allows(CpuId(9)));
        assert_eq!(topology.allows(CpuId(0)), expected.starts_with('0'));
    }
    let tree = Tree::haswell();
    tree.file(ONLINE, "0-3").mask("4-7");
    assert_eq!(tree.read(), Err(TopologyError::NoCpu));
}

#[test]
fn a_cpu_without_known_siblings_is_a_core_of_its_own() {
    let tree = Tree::new();
    tree.file(ONLINE, "0-2").mask("0-2").siblings(1, "3-1");
    tree.siblings(2, "");
    assert_eq!(cores(&tree.read().unwrap()), "0-2");
}

#[test]
fn errors_name_the_file_and_the_way_out() {
    let tree = Tree::new();
    let error = tree.read().unwrap_err().to_string();
    let expected = "cpu/online: entity not found; mount /sys and /proc, or use placement=none";
    assert!(error.ends_with(expected), "{error}");
    tree.file(ONLINE, "0-7");
    let error = tree.read().unwrap_err();
    let missing = TopologyError::Unreadable(tree.0.join(STATUS), io::ErrorKind::NotFound);
    assert_eq!(error, missing);
    for (path, text, shown) in [
        (ONLINE, "0-x", "0-x"),
        (STATUS, "Name:\tx", "Name:\tx"),
        (STATUS, "Cpus_allowed_list:\t7-0", "7-0"),
    ] {
        let tree = Tree::haswell();
        tree.file(path, text);
        let error = tree.read().unwrap_err();
        let expected = TopologyError::Malformed(tree.0.join(path), shown.to_owned());
        assert_eq!(error, expected);
        let line = error.to_string();
        assert!(
            line.contains(path) && line.ends_with("; use placement=none") && !line.contains('\t'),
            "{line}"
        );
    }
}

#[test]
fn this_machine_is_read() {
    let topology = match Topology::read(Path::new("/")) {
        Ok(topology) => topology,
        Err(error) => {
            println!("SKIP: {error}");
            return;
        }
    };
    for cpu in topology.cpus() {
        assert!(cpu.core <= cpu.id, "{topology:?}");
    }
    assert!(!topology.cores().is_empty());
}

proptest! {
    #[test]
    fn no_text_breaks_a_list(text in "[0-9,-]{0,24}|.{0,12}") {
        if let Ok(list) = text.parse::<CpuList>() {
            prop_assert_eq!(list.to_string().parse::<CpuList>(), Ok(list));
        }
    }
}

#[test]
fn no_content_of_files_breaks_the_reader() {
    // One tree for all: making and removing folders takes longer than the rest.
    let tree = Tree::new();
    let lists = || "[0-9,-]{0,6}";
    proptest!(|(online in lists(), siblings in lists(), mask in "[0-9,-]{0,6}|.{0,12}")| {
        tree.file(ONLINE, &online).mask(&mask).siblings(0, &siblings);
        if let Ok(topology) = tree.read() {
            prop_assert!(!topology.cores().is_empty());
        }
    });
}
