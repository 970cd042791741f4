//! CPU quotas of the control groups that the process is in.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long CPU quotas have stopped the threads in the process's control groups and their
/// ancestors, summed over groups and CPUs. `None` if none of them has the CPU controller. `root` is
/// `/`, or the tree of a test.
pub(crate) fn throttled(root: &Path) -> Option<Duration> {
    let times = groups(root).into_iter().filter_map(|group| {
        let stat = fs::read_to_string(group.join("cpu.stat")).ok()?;
        stat.lines().find_map(|line| {
            let (name, count) = line.split_once(' ')?;
            let unit = match name {
                "throttled_usec" => Duration::from_micros,
                // Version 1.
                "throttled_time" => Duration::from_nanos,
                _ => return None,
            };
            count.parse().ok().map(unit)
        })
    });
    times.reduce(|sum, one| sum + one)
}

/// A limit of CPU time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Quota {
    /// In CPUs.
    pub cpus: f64,
    /// The file that sets it.
    pub file: PathBuf,
    /// The value of that file without a quota.
    pub none: &'static str,
}

/// The least CPU quota of these groups.
pub(crate) fn quota(root: &Path) -> Option<Quota> {
    let quotas = groups(root).into_iter().filter_map(|group| {
        let read = |name| fs::read_to_string(group.join(name)).ok();
        let (text, name, none) = match read("cpu.max") {
            Some(text) => (text, "cpu.max", "max"),
            None => {
                let files = [read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?];
                (files.join(" "), "cpu.cfs_quota_us", "-1")
            }
        };
        // "max" and -1 are no quotas.
        let mut times = text
            .split_whitespace()
            .map_while(|time| time.parse::<u32>().ok());
        let cpus = f64::from(times.next()?) / f64::from(times.next()?);
        let file = group.join(name);
        Some(Quota { cpus, file, none })
    });
    quotas.min_by(|a, b| a.cpus.total_cmp(&b.cpus))
}

/// The folders of these control groups, and of their ancestors up to the mount's root: of version
/// 2, and of version 1 with the CPU controller.
fn groups(root: &Path) -> Vec<PathBuf> {
    let read = |path| fs::read_to_string(root.join(path)).unwrap_or_default();
    let (own, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
    let has_cpu = |names: &str| names.split(',').any(|name| name == "cpu");
    let folders = own.lines().filter_map(|line| {
        // cgroups(7): `hierarchy:controllers:path`, without controllers in version 2.
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (below, point) = mounts.lines().find_map(|line| {
            // proc_pid_mountinfo(5): the fields of the file system follow a hyphen.
            let (mount, of) = line.split_once(" - ")?;
            let (mut mount, mut of) = (mount.split(' ').skip(3), of.split(' '));
            let (kind, options) = (of.next()?, of.nth(1)?);
            let is_it = match kind {
                "cgroup2" => controllers.is_empty(),
                "cgroup" => has_cpu(controllers) && has_cpu(options),
                _ => false,
            };
            let below = Path::new(path).strip_prefix(mount.next()?);
            is_it.then_some((below.unwrap_or(Path::new("")), mount.next()?))
        })?;
        let top = root.join(point.trim_start_matches('/'));
        let folders = below.ancestors().map(|below| top.join(below));
        Some(folders.collect::<Vec<_>>())
    });
    folders.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: &str = "25 1 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw";
    const V1: &str = "32 31 0:29 / /cg/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct";

    /// The system's files below a folder, which is removed at the end.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, own: &str, mounts: &str) -> Self {
            let name = format!("packtrain-cgroup-{name}-{}", std::process::id());
            let tree = Self(std::env::temp_dir().join(name));
            let other = "24 1 0:21 / /proc rw - proc proc rw";
            tree.file("proc/self/cgroup", own);
            tree.file("proc/self/mountinfo", &format!("{other}\n{mounts}\n"));
            tree
        }

        fn file(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn throttling_of_a_group_and_of_each_ancestor_counts() {
        let tree = Tree::new("v2", "0::/user/run\n", V2);
        assert_eq!(throttled(&tree.0), None);
        let stat = |group: &str, text: &str| {
            tree.file(&format!("sys/fs/cgroup/{group}cpu.stat"), text);
        };
        // The root has no quota, and a group without the controller counts usage only.
        stat("", "usage_usec 5\n");
        stat("user/run/", "usage_usec 5\n");
        stat("other/", "throttled_usec 1000\n");
        assert_eq!(throttled(&tree.0), None);
        stat("user/", "usage_usec 5\nnr_throttled 2\nthrottled_usec 30\n");
        assert_eq!(throttled(&tree.0), Some(Duration::from_micros(30)));
        stat("user/run/", "nr_throttled 1\nthrottled_usec 4\n");
        assert_eq!(throttled(&tree.0), Some(Duration::from_micros(34)));
    }

    #[test]
    fn a_group_of_version_1_is_that_of_the_cpu_controller() {
        let memory = "33 31 0:30 / /cg/memory rw - cgroup cgroup rw,memory";
        let own = "4:memory:/m\n2:cpu,cpuacct:/docker/a\n0::/\n";
        // In a container the mount's root is a group.
        let mount = V1.replace(" / /cg", " /docker /cg");
        let tree = Tree::new("v1", own, &format!("{memory}\n{mount}"));
        tree.file("cg/memory/m/cpu.stat", "throttled_time 1\n");
        tree.file("cg/cpu/cpu.stat", "nr_throttled 0\nthrottled_time 0\n");
        tree.file("cg/cpu/a/cpu.stat", "nr_throttled 1\nthrottled_time 7000\n");
        assert_eq!(throttled(&tree.0), Some(Duration::from_nanos(7000)));
    }

    #[test]
    fn the_least_quota_counts() {
        let tree = Tree::new("quota", "1:cpu:/a\n0::/b/c\n", &format!("{V1}\n{V2}"));
        tree.file("sys/fs/cgroup/b/cpu.max", "max 100000\n");
        tree.file("cg/cpu/a/cpu.cfs_quota_us", "-1\n");
        tree.file("cg/cpu/a/cpu.cfs_period_us", "100000\n");
        assert_eq!(quota(&tree.0), None);
        let found = |cpus, file, none| {
            let file = tree.0.join(file);
            Some(Quota { cpus, file, none })
        };
        tree.file("cg/cpu/a/cpu.cfs_quota_us", "150000\n");
        let of_v1 = found(1.5, "cg/cpu/a/cpu.cfs_quota_us", "-1");
        assert_eq!(quota(&tree.0), of_v1);
        tree.file("sys/fs/cgroup/b/c/cpu.max", "400000 100000\n");
        assert_eq!(quota(&tree.0), of_v1);
        tree.file("sys/fs/cgroup/b/cpu.max", "50000 100000\n");
        let of_v2 = found(0.5, "sys/fs/cgroup/b/cpu.max", "max");
        assert_eq!(quota(&tree.0), of_v2);
    }
}
