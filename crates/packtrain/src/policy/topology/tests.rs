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
fn lists_are_refused_by_what_is_wrong() {
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

/// A folder that looks like the root of a machine, removed at the end.
struct Tree(PathBuf);

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

    fn cpu(&self, cpu: u16, path: &str, text: &str) -> &Self {
        self.file(&format!("sys/devices/system/cpu/cpu{cpu}/{path}"), text)
    }

    /// The Haswell of S1 as Linux counts: 4 cores, CPU n and n + 4 are one core.
    fn haswell() -> Self {
        let tree = Self::new();
        tree.file("sys/devices/system/cpu/online", "0-7");
        tree.file("sys/devices/system/node/online", "0");
        tree.file("sys/devices/system/node/node0/cpulist", "0-7");
        for cpu in 0..8 {
            let pair = format!("{},{}", cpu % 4, cpu % 4 + 4);
            tree.cpu(cpu, "topology/thread_siblings_list", &pair);
            tree.cpu(cpu, "topology/physical_package_id", "0");
            for (index, level, shared) in [(0, 1, &*pair), (1, 1, &pair), (2, 2, &pair)] {
                tree.cpu(
                    cpu,
                    &format!("cache/index{index}/level"),
                    &level.to_string(),
                );
                tree.cpu(cpu, &format!("cache/index{index}/shared_cpu_list"), shared);
            }
            tree.cpu(cpu, "cache/index3/level", "3");
            tree.cpu(cpu, "cache/index3/shared_cpu_list", "0-7");
        }
        tree
    }

    fn read(&self, affinity: Option<&str>) -> Result<Topology, TopologyError> {
        let affinity = affinity.map(|text| text.parse().unwrap());
        Topology::read(&self.0, affinity.as_ref())
    }

    fn allowed(&self, affinity: Option<&str>) -> String {
        let topology = self.read(affinity).unwrap();
        let allowed: CpuList = topology.allowed().map(|cpu| cpu.id).collect();
        allowed.to_string()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{} stays behind: {error}", self.0.display());
        }
    }
}

#[test]
fn a_whole_machine_is_read() {
    let topology = Tree::haswell().read(None).unwrap();
    let expected = (0..8).map(|cpu| Cpu {
        id: CpuId(cpu),
        core: CpuId(cpu % 4),
        l2: CpuId(cpu % 4),
        llc: CpuId(0),
        node: 0,
        package: 0,
        allowed: true,
    });
    assert_eq!(topology, Topology::new(expected.collect()));
}

#[test]
fn memory_nodes_and_sockets_are_read() {
    let tree = Tree::haswell();
    tree.file("sys/devices/system/node/online", "0,2-3");
    tree.file("sys/devices/system/node/node0/cpulist", "0-1,4-5");
    tree.file("sys/devices/system/node/node2/cpulist", "2-3,6-7");
    // One with memory only.
    tree.file("sys/devices/system/node/node3/cpulist", "");
    tree.cpu(7, "topology/physical_package_id", "3");
    let topology = tree.read(None).unwrap();
    let nodes: Vec<_> = topology.cpus().iter().map(|cpu| cpu.node).collect();
    assert_eq!(nodes, [0, 0, 2, 2, 0, 0, 2, 2]);
    assert_eq!(topology.cpu(CpuId(7)).unwrap().package, 3);
    let distance = |a, b| {
        let cpu = |id| topology.cpu(CpuId(id)).unwrap();
        cpu(a).distance(cpu(b))
    };
    assert_eq!(distance(0, 4), Distance::SameCore);
    assert_eq!(distance(0, 2), Distance::SameLlc);
}

#[test]
fn a_cpu_of_which_nothing_is_known_is_a_core_of_its_own() {
    let tree = Tree::new();
    tree.file("sys/devices/system/cpu/online", "0-1");
    tree.cpu(0, "topology/physical_package_id", "-1");
    let topology = tree.read(None).unwrap();
    let cores: Vec<_> = topology
        .cpus()
        .iter()
        .map(|cpu| (cpu.core, cpu.llc))
        .collect();
    assert_eq!(cores, [(CpuId(0), CpuId(0)), (CpuId(1), CpuId(1))]);
}

#[test]
fn cpuset_and_affinity_mask_are_obeyed() {
    let tree = Tree::haswell();
    assert_eq!(tree.allowed(None), "0-7");
    assert_eq!(tree.allowed(Some("1-3,9")), "1-3");
    // The unified hierarchy.
    tree.file("proc/self/cgroup", "0::/a/b");
    assert_eq!(tree.allowed(None), "0-7", "no controller there");
    tree.file("sys/fs/cgroup/cpuset.cpus.effective", "0-6");
    assert_eq!(tree.allowed(None), "0-6", "as in a container");
    tree.file("sys/fs/cgroup/a/b/cpuset.cpus.effective", "2-5");
    assert_eq!(tree.allowed(None), "2-5");
    assert_eq!(tree.allowed(Some("0-3")), "2-3");
    assert_eq!(tree.read(Some("0-1")), Err(TopologyError::NoCpu));
    // Of a group without the controller, the nearest one above it that has it.
    tree.file("sys/fs/cgroup/a/cpuset.cpus.effective", "0-1");
    fs::remove_file(tree.0.join("sys/fs/cgroup/a/b/cpuset.cpus.effective")).unwrap();
    assert_eq!(tree.allowed(None), "0-1");
    tree.file("proc/self/cgroup", "0::/a/b/c/d");
    assert_eq!(tree.allowed(None), "0-1");
    tree.file("proc/self/cgroup", "0::/../a");
    assert_eq!(tree.allowed(None), "0-6", "of nobody else's group");
    // The older one, where the unified one beside it has no cpuset.
    let tree = Tree::haswell();
    tree.file(
        "proc/self/cgroup",
        "4:memory:/x\n3:cpu,cpuset:/c:d\n0::/a/b\nnonsense",
    );
    tree.file("sys/fs/cgroup/cpuset/c:d/cpuset.effective_cpus", "6-7");
    assert_eq!(tree.allowed(None), "6-7");
}

#[test]
fn what_is_offline_is_not_there() {
    let tree = Tree::haswell();
    tree.file("sys/devices/system/cpu/online", "0-2,5");
    let topology = tree.read(None).unwrap();
    assert_eq!(topology.cpus().len(), 4);
    assert!(!topology.allows(CpuId(3)) && topology.cpu(CpuId(3)).is_none());
}

#[test]
fn errors_name_the_file_and_the_way_out() {
    let tree = Tree::new();
    let error = tree.read(None).unwrap_err().to_string();
    assert!(
        error.contains("cpu/online: entity not found; mount /sys"),
        "{error}"
    );
    let tree = Tree::haswell();
    let path = "sys/devices/system/cpu/online";
    tree.file(path, "0-x");
    let error = tree.read(None).unwrap_err();
    let expected = TopologyError::Malformed(tree.0.join(path), "0-x".to_owned());
    assert_eq!(error, expected);
    let line = error.to_string();
    assert!(
        line.contains(path) && line.ends_with("; use placement=none"),
        "{line}"
    );
}

#[test]
fn a_file_that_makes_no_sense_costs_what_it_says_and_no_more() {
    let whole = Tree::haswell().read(None).unwrap();
    for (path, text, cpu) in [
        ("cpu/cpu5/topology/thread_siblings_list", "3-1", 5),
        ("cpu/cpu2/cache/index2/level", "two", 2),
        ("cpu/cpu3/cache/index3/shared_cpu_list", "0-", 3),
        ("cpu/cpu3/topology/physical_package_id", "", 3),
        ("node/online", "all", 0),
        ("node/node0/cpulist", "none", 0),
        ("../../../proc/self/cgroup", "\u{0}", 0),
    ] {
        let tree = Tree::haswell();
        tree.file(&format!("sys/devices/system/{path}"), text);
        let topology = tree.read(None).unwrap();
        for (id, expected) in (0..8).zip(whole.cpus()) {
            let got = topology.cpu(CpuId(id)).unwrap();
            assert!(got == expected || id == cpu, "{path}: {got:?}");
        }
        assert_eq!(topology.allowed().count(), 8, "{path}");
    }
    // Nor a folder in the place of a file, or what is no text.
    let tree = Tree::haswell();
    tree.file("sys/fs/cgroup/cpuset.cpus.effective/x", "");
    tree.file("proc/self/cgroup", "0::/");
    fs::write(
        tree.0
            .join("sys/devices/system/cpu/cpu1/topology/physical_package_id"),
        [0xff],
    )
    .unwrap();
    assert_eq!(tree.read(None).unwrap(), whole);
}

#[test]
fn this_machine_is_read() {
    let topology = match Topology::read(Path::new("/"), None) {
        Ok(topology) => topology,
        Err(error) => {
            println!("SKIP: {error}");
            return;
        }
    };
    for cpu in topology.cpus() {
        let core = topology.cpu(cpu.core);
        assert!(
            core.is_none_or(|core| core.core == cpu.core),
            "{topology:?}"
        );
        assert!(cpu.core <= cpu.id && cpu.llc <= cpu.core, "{topology:?}");
    }
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
    // One tree for all: to make and remove folders takes longer than everything else.
    let tree = Tree::new();
    let lists = || "[0-9,-]{0,6}";
    let groups = "[0-9]:[a-z]{0,3}(,cpuset)?:/[a-z./]{0,6}|.{0,12}";
    let texts = (lists(), lists(), "[0-9-]{0,6}", groups);
    proptest!(|((online, siblings, level, groups) in texts)| {
        tree.file("sys/devices/system/cpu/online", &online);
        tree.file("proc/self/cgroup", &groups);
        tree.cpu(0, "topology/thread_siblings_list", &siblings);
        tree.cpu(0, "cache/index0/level", &level);
        tree.cpu(0, "cache/index0/shared_cpu_list", &siblings);
        if let Ok(topology) = tree.read(None) {
            prop_assert!(topology.allowed().next().is_some());
        }
    });
}
