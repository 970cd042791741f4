//! The memory that the system can provide, so that an arena that is too large is an error and does
//! not end the process.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Bytes that this process can use: the minimum of the system's available memory (`MemAvailable`)
/// and of the rest of each control group's limit (`memory.max`, or `memory.limit_in_bytes` of
/// version 1). Cached file pages that the kernel can drop count as available. `None` if the system
/// reports neither.
#[must_use]
pub fn memory_available() -> Option<u64> {
    available_below(Path::new("/"))
}

/// As [`memory_available`], with the files of the system below `root`.
fn available_below(root: &Path) -> Option<u64> {
    let read = |path: &str| read_to_string(root.join(path)).unwrap_or_default();
    let system = mem_available(&read("proc/meminfo"));
    let groups = read("proc/self/cgroup");
    let left = groups.lines().filter_map(group_of).flat_map(|group| {
        let mount = root.join("sys/fs/cgroup").join(group.mount);
        let path = mount.join(group.path.trim_start_matches('/'));
        // Each ancestor has a limit of its own. In a container the path may not exist; the mount is
        // then the group of the container.
        let groups: Vec<PathBuf> = path
            .ancestors()
            .take_while(|path| path.starts_with(&mount))
            .map(Path::to_path_buf)
            .collect();
        groups.into_iter().filter_map(move |path| group.left(&path))
    });
    left.chain(system).min()
}

/// `MemAvailable` of `/proc/meminfo`, in bytes.
fn mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

/// The files of a control group with its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group<'a> {
    path: &'a str,
    /// The directory below the mount point of control groups.
    mount: &'static str,
    limit: &'static str,
    usage: &'static str,
    /// The entry of `memory.stat` with file pages that the kernel drops first.
    cached: &'static str,
}

/// The group in a line of `/proc/self/cgroup`: of version 2, or of the memory controller.
fn group_of(line: &str) -> Option<Group<'_>> {
    let (hierarchy, rest) = line.split_once(':')?;
    let (controllers, path) = rest.split_once(':')?;
    if hierarchy == "0" && controllers.is_empty() {
        return Some(Group {
            path,
            mount: "",
            limit: "memory.max",
            usage: "memory.current",
            cached: "inactive_file",
        });
    }
    let is_memory = controllers.split(',').any(|name| name == "memory");
    is_memory.then_some(Group {
        path,
        mount: "memory",
        limit: "memory.limit_in_bytes",
        usage: "memory.usage_in_bytes",
        cached: "total_inactive_file",
    })
}

impl Group<'_> {
    /// The rest of the limit of the group in `directory`, in bytes; `None` without a limit.
    fn left(&self, directory: &Path) -> Option<u64> {
        let read = |name: &str| read_to_string(directory.join(name)).ok();
        let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
        // "max" is no number.
        let limit = number(self.limit)?;
        let stat = read("memory.stat").unwrap_or_default();
        let cached = stat.lines().find_map(|line| {
            let (name, bytes) = line.split_once(' ')?;
            (name == self.cached).then(|| bytes.trim().parse().ok())?
        });
        let used = number(self.usage)?.saturating_sub(cached.unwrap_or(0));
        Some(limit.saturating_sub(used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A directory with the files of a system.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("memory-{name}-{}", std::process::id()));
            for (path, content) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, content).unwrap();
            }
            Self(root)
        }

        fn available(&self) -> Option<u64> {
            available_below(&self.0)
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            if self.0.exists() {
                fs::remove_dir_all(&self.0).unwrap();
            }
        }
    }

    const MEMINFO: (&str, &str) = (
        "proc/meminfo",
        "MemTotal:       16000 kB\nMemFree:  10 kB\nMemAvailable:    9000 kB\n",
    );

    #[test]
    fn without_groups_it_is_the_memory_of_the_system() {
        assert_eq!(Root::new("none", &[]).available(), None);
        assert_eq!(
            Root::new("system", &[MEMINFO]).available(),
            Some(9000 << 10)
        );
        for meminfo in [
            "",
            "MemFree: 10 kB",
            "MemAvailable: x kB",
            "MemAvailable: 10",
        ] {
            assert_eq!(mem_available(meminfo), None, "{meminfo}");
        }
    }

    #[test]
    fn the_smallest_limit_of_all_groups_counts() {
        let files = [
            MEMINFO,
            ("proc/self/cgroup", "1:name=systemd:/x\n0::/a/b\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.current", "100\n"),
            ("sys/fs/cgroup/a/memory.max", "5000\n"),
            ("sys/fs/cgroup/a/memory.current", "4500\n"),
        ];
        assert_eq!(Root::new("two", &files).available(), Some(500));
        let cached = ("sys/fs/cgroup/a/memory.stat", "anon 3\ninactive_file 400\n");
        let files = [&files[..], &[cached]].concat();
        assert_eq!(Root::new("cached", &files).available(), Some(900));
        let over = ("sys/fs/cgroup/a/b/memory.max", "50\n");
        let files = [&files[..], &[over]].concat();
        assert_eq!(Root::new("over", &files).available(), Some(0));
    }

    #[test]
    fn version_1_has_a_controller_of_its_own() {
        let files = [
            MEMINFO,
            ("proc/self/cgroup", "4:cpu:/c\n3:memory,hugetlb:/docker/x\n"),
            // The container sees its own group at the mount.
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "7000000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "6000000\n"),
        ];
        assert_eq!(Root::new("v1", &files).available(), Some(1_000_000));
        let no_limit = (
            "sys/fs/cgroup/memory/memory.limit_in_bytes",
            "9223372036854771712",
        );
        let files = [&files[..], &[no_limit]].concat();
        assert_eq!(Root::new("v1-none", &files).available(), Some(9000 << 10));
    }

    #[test]
    fn this_machine_has_some() {
        assert!(memory_available().is_some_and(|bytes| bytes > 0));
    }
}
