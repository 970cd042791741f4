//! The CPUs of a machine, as data: which share a core, a cache, a memory node, and which may be
//! used. Read once from the system's files below a folder, so that a test can give a tree of its
//! own; this is the only file of the policies that reads any.

use super::setting::Quoted;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

#[cfg(test)]
mod tests;

/// CPUs that a machine may have (`NR_CPUS` of x86 is at most 8192).
pub const CPUS_MAX: u16 = 8192;

/// The number of a CPU, as the kernel counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuId(pub u16);

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// CPUs in the order in which they were written, none twice. Written as the kernel does: `0,2-3`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuList(Vec<CpuId>);

/// Why a text is no list of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CpuListError {
    /// Something between commas is neither a number nor two joined by `-`.
    NotANumber,
    /// A range ends before it begins.
    Backwards,
    /// A number is not below [`CPUS_MAX`].
    TooLarge,
    /// A CPU comes twice.
    Twice(CpuId),
}

impl fmt::Display for CpuListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotANumber => f.write_str("has something that is no number of a CPU"),
            Self::Backwards => f.write_str("has a range that ends before it begins"),
            Self::TooLarge => write!(f, "has a CPU above {}", CPUS_MAX - 1),
            Self::Twice(cpu) => write!(f, "has CPU {cpu} twice"),
        }
    }
}

impl std::error::Error for CpuListError {}

impl FromStr for CpuList {
    type Err = CpuListError;

    /// The empty text is the empty list, as in the kernel's files.
    fn from_str(text: &str) -> Result<Self, CpuListError> {
        let mut seen = vec![false; usize::from(CPUS_MAX)];
        let mut cpus = Vec::new();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (cpu_number(first)?, cpu_number(last)?);
            if first > last {
                return Err(CpuListError::Backwards);
            }
            for cpu in first..=last {
                if std::mem::replace(&mut seen[usize::from(cpu)], true) {
                    return Err(CpuListError::Twice(CpuId(cpu)));
                }
                cpus.push(CpuId(cpu));
            }
        }
        Ok(Self(cpus))
    }
}

fn cpu_number(text: &str) -> Result<u16, CpuListError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(CpuListError::NotANumber);
    }
    // All digits: what does not parse is too large.
    let number = text.parse().unwrap_or(u16::MAX);
    if number < CPUS_MAX {
        Ok(number)
    } else {
        Err(CpuListError::TooLarge)
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.0.chunk_by(|a, b| b.0.checked_sub(a.0) == Some(1));
        for (i, run) in runs.enumerate() {
            let comma = if i == 0 { "" } else { "," };
            match run {
                [first, .., last] => write!(f, "{comma}{first}-{last}")?,
                [only] => write!(f, "{comma}{only}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

impl FromIterator<CpuId> for CpuList {
    /// A CPU that comes again is left out.
    fn from_iter<T: IntoIterator<Item = CpuId>>(cpus: T) -> Self {
        let mut seen = std::collections::BTreeSet::new();
        Self(cpus.into_iter().filter(|&cpu| seen.insert(cpu)).collect())
    }
}

impl CpuList {
    /// The CPUs, in order.
    #[must_use]
    pub fn as_slice(&self) -> &[CpuId] {
        &self.0
    }

    /// Whether `cpu` is one of them.
    #[must_use]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.0.contains(&cpu)
    }
}

/// One CPU: a hardware thread. Groups are called by their lowest CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Its number.
    pub id: CpuId,
    /// The core it is a thread of (`topology/thread_siblings_list`).
    pub core: CpuId,
    /// Who shares its second-level cache.
    pub l2: CpuId,
    /// Who shares its last-level cache.
    pub llc: CpuId,
    /// Its memory node.
    pub node: u16,
    /// Its socket (`topology/physical_package_id`).
    pub package: u16,
    /// Whether this process may use it.
    pub allowed: bool,
}

/// How far two CPUs are from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// Threads of one core.
    SameCore,
    /// They share a second-level cache.
    SameL2,
    /// They share the last-level cache.
    SameLlc,
    /// They share a memory node.
    SameNode,
    /// They share a socket.
    SamePackage,
    /// They share nothing of this.
    Far,
}

impl Cpu {
    /// How far it is to `other`.
    #[must_use]
    pub fn distance(&self, other: &Self) -> Distance {
        if self.core == other.core {
            Distance::SameCore
        } else if self.l2 == other.l2 {
            Distance::SameL2
        } else if self.llc == other.llc {
            Distance::SameLlc
        } else if self.node == other.node {
            Distance::SameNode
        } else if self.package == other.package {
            Distance::SamePackage
        } else {
            Distance::Far
        }
    }
}

/// The CPUs of a machine that are online, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    cpus: Vec<Cpu>,
}

/// Why the topology is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopologyError {
    /// A file that every kernel has cannot be read.
    Unreadable(PathBuf, io::ErrorKind),
    /// A file holds something else than it should.
    Malformed(PathBuf, String),
    /// No CPU is left that is online and may be used.
    NoCpu,
    /// The system does not say which CPUs the thread may use.
    NoMask(io::ErrorKind),
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, kind) => write!(
                f,
                "the CPUs of this machine are not known: {}: {kind}; mount /sys, or use \
                 placement=none",
                path.display()
            ),
            Self::Malformed(path, text) => write!(
                f,
                "the CPUs of this machine are not known: {} holds {}; use placement=none",
                path.display(),
                Quoted(text)
            ),
            Self::NoMask(kind) => write!(
                f,
                "the CPUs that may be used are not known: sched_getaffinity: {kind}; use \
                 placement=none"
            ),
            Self::NoCpu => f.write_str(
                "no CPU is both online and allowed by the affinity mask and the cpuset; look at \
                 Cpus_allowed_list in /proc/self/status, or use placement=none",
            ),
        }
    }
}

impl std::error::Error for TopologyError {}

impl Topology {
    /// From data. CPUs come in the order of their numbers; of two with one number the first stays.
    #[must_use]
    pub fn new(mut cpus: Vec<Cpu>) -> Self {
        cpus.sort_by_key(|cpu| cpu.id);
        cpus.dedup_by_key(|cpu| cpu.id);
        Self { cpus }
    }

    /// All of them.
    #[must_use]
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// The ones that this process may use.
    pub fn allowed(&self) -> impl Iterator<Item = &Cpu> {
        self.cpus.iter().filter(|cpu| cpu.allowed)
    }

    /// The CPU of a number.
    #[must_use]
    pub fn cpu(&self, id: CpuId) -> Option<&Cpu> {
        let at = self.cpus.binary_search_by_key(&id, |cpu| cpu.id).ok()?;
        self.cpus.get(at)
    }

    /// Whether this process may use a CPU.
    #[must_use]
    pub fn allows(&self, id: CpuId) -> bool {
        self.cpu(id).is_some_and(|cpu| cpu.allowed)
    }

    /// Reads `sys/devices/system/{cpu,node}`, and the cpuset of this process below `sys/fs/cgroup`,
    /// both forms of cgroups, all below `root`: `/`, or a tree made for a test. `affinity` is the
    /// mask of the process (`sched_getaffinity(2)`), where the caller knows it.
    ///
    /// # Errors
    ///
    /// Only `cpu/online` must be there and make sense. Containers hide what they like, and of the
    /// other files none is worth as much as all the others: what cannot be read is not known, and
    /// a CPU of which nothing is known is a core of its own.
    pub fn read(root: &Path, affinity: Option<&CpuList>) -> Result<Self, TopologyError> {
        let system = root.join("sys/devices/system");
        let online = system.join("cpu/online");
        let text = fs::read_to_string(&online)
            .map_err(|error| TopologyError::Unreadable(online.clone(), error.kind()))?;
        let text = text.trim_end();
        let online: CpuList = text
            .parse()
            // Which of the ways to be wrong it is shows in the text.
            .map_err(|_| TopologyError::Malformed(online, text.to_owned()))?;
        let cpuset = cpuset(root);
        let may_use = |cpu| {
            affinity.is_none_or(|list| list.contains(cpu))
                && cpuset.as_ref().is_none_or(|list| list.contains(cpu))
        };
        let mut cpus = Vec::with_capacity(online.0.len());
        for &id in online.as_slice() {
            let folder = system.join(format!("cpu/cpu{id}"));
            let mut cpu = read_cpu(id, &folder);
            cpu.allowed = may_use(id);
            cpus.push(cpu);
        }
        let mut topology = Self::new(cpus);
        topology.read_nodes(&system.join("node"));
        if topology.allowed().next().is_none() {
            return Err(TopologyError::NoCpu);
        }
        Ok(topology)
    }

    fn read_nodes(&mut self, folder: &Path) {
        for node in list(&folder.join("online")).unwrap_or_default().0 {
            // A node may have memory and no CPU.
            let cpus = list(&folder.join(format!("node{node}/cpulist"))).unwrap_or_default();
            for cpu in self.cpus.iter_mut().filter(|cpu| cpus.contains(cpu.id)) {
                cpu.node = node.0;
            }
        }
    }
}

fn read_cpu(id: CpuId, folder: &Path) -> Cpu {
    let topology = folder.join("topology");
    let core = lowest(&topology.join("thread_siblings_list")).unwrap_or(id);
    let package = number(&topology.join("physical_package_id"));
    let mut l2 = core;
    let mut last = (0, core);
    // Machines have three or four levels in up to five entries; the loop ends with the last.
    for index in 0..16 {
        let cache = folder.join(format!("cache/index{index}"));
        if !cache.exists() {
            break;
        }
        let Some(level) = number(&cache.join("level")) else {
            continue;
        };
        // Threads of a core share the first level, which says nothing new.
        let Some(shared) = lowest(&cache.join("shared_cpu_list")) else {
            continue;
        };
        if level == 2 {
            l2 = shared;
        }
        if level >= 2 && level > last.0 {
            last = (level, shared);
        }
    }
    Cpu {
        id,
        core,
        l2,
        llc: last.1,
        node: 0,
        package: package.unwrap_or(0),
        allowed: true,
    }
}

/// The CPUs that the control group of this process leaves it; none where that is not said.
fn cpuset(root: &Path) -> Option<CpuList> {
    let groups = text(&root.join("proc/self/cgroup"))?;
    let mount = root.join("sys/fs/cgroup");
    for line in groups.lines() {
        // `0::/path` is of the unified hierarchy, `N:cpuset:/path` of the other (cgroups(7)).
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (mount, file) = if controllers.is_empty() {
            (mount.clone(), "cpuset.cpus.effective")
        } else if controllers.split(',').any(|name| name == "cpuset") {
            (mount.join("cpuset"), "cpuset.effective_cpus")
        } else {
            continue;
        };
        // A group without the controller has what its nearest ancestor with it has. In a container
        // the path is that of the host and not to be found; there the mount itself is the group.
        let own = Path::new(path.trim_start_matches('/'));
        // Below `..` are groups of others.
        let is_below = own.components().all(|c| matches!(c, Component::Normal(_)));
        for group in own.ancestors().filter(|_| is_below).chain([Path::new("")]) {
            let cpus = list(&mount.join(group).join(file));
            if let Some(cpus) = cpus.filter(|cpus| !cpus.0.is_empty()) {
                return Some(cpus);
            }
        }
    }
    None
}

fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim_end().to_owned())
}

fn list(path: &Path) -> Option<CpuList> {
    text(path)?.parse().ok()
}

fn lowest(path: &Path) -> Option<CpuId> {
    list(path)?.0.into_iter().min()
}

/// None also where firmware says nothing, and so the kernel -1.
fn number(path: &Path) -> Option<u16> {
    text(path)?.parse().ok()
}
