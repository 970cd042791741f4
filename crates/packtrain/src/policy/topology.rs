//! The CPUs that the process may use, and which of them share a core. They are read once from the
//! system's files below a root, so that a test can make a tree of its own. This is the only file of
//! the policies that reads files.

use super::setting::Quoted;
use crate::name::Name;
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

#[cfg(test)]
mod tests;

/// The most CPUs of a machine (`NR_CPUS` of x86 is at most 8192).
pub const CPUS_MAX: u16 = 8192;

/// The kernel's number of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuId(pub u16);

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// CPUs in a given order, none twice. The text form is the kernel's: `0,2-3`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuList(Vec<CpuId>);

/// Why a text is not a list of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CpuListError {
    /// A part between commas is neither a number nor two numbers joined by `-`.
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

    /// An empty text is an empty list, as in the kernel's files.
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
    // A number that does not parse is too large.
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
    /// Drops a CPU that is in the list already.
    fn from_iter<T: IntoIterator<Item = CpuId>>(cpus: T) -> Self {
        let mut seen = BTreeSet::new();
        Self(cpus.into_iter().filter(|&cpu| seen.insert(cpu)).collect())
    }
}

impl CpuList {
    /// The CPUs, in order.
    #[must_use]
    pub fn as_slice(&self) -> &[CpuId] {
        &self.0
    }

    /// Whether the list has `cpu`.
    #[must_use]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.0.contains(&cpu)
    }
}

/// A CPU, that is a hardware thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Its number.
    pub id: CpuId,
    /// Its core, named by the lowest of its threads (`topology/thread_siblings_list`).
    pub core: CpuId,
}

/// The CPUs that the process may use, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    cpus: Vec<Cpu>,
}

/// Why the CPUs are not known.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopologyError {
    /// A file that every kernel has cannot be read.
    Unreadable(PathBuf, io::ErrorKind),
    /// A file has an unexpected content.
    Malformed(PathBuf, String),
    /// No CPU is both online and in the affinity mask.
    NoCpu,
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, kind) => write!(
                f,
                "the CPUs of this machine are not known: {}: {kind}; mount /sys and /proc, or use \
                 placement=none",
                Name::from(path)
            ),
            Self::Malformed(path, text) => write!(
                f,
                "the CPUs of this machine are not known: {} holds {}; use placement=none",
                Name::from(path),
                Quoted(text)
            ),
            Self::NoCpu => f.write_str(
                "no CPU is both online and allowed by the affinity mask; see Cpus_allowed_list in \
                 /proc/self/status, or use placement=none",
            ),
        }
    }
}

impl std::error::Error for TopologyError {}

impl Topology {
    /// A topology of the given CPUs. If two have one number, the first counts.
    #[must_use]
    pub fn new(mut cpus: Vec<Cpu>) -> Self {
        cpus.sort_by_key(|cpu| cpu.id);
        cpus.dedup_by_key(|cpu| cpu.id);
        Self { cpus }
    }

    /// All CPUs.
    #[must_use]
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// Whether the process may use a CPU.
    #[must_use]
    pub fn allows(&self, id: CpuId) -> bool {
        self.cpus.binary_search_by_key(&id, |cpu| cpu.id).is_ok()
    }

    /// One CPU of each core: the lowest one.
    #[must_use]
    pub fn cores(&self) -> Vec<CpuId> {
        let mut seen = BTreeSet::new();
        let firsts = self.cpus.iter().filter(|cpu| seen.insert(cpu.core));
        firsts.map(|cpu| cpu.id).collect()
    }

    /// Reads `sys/devices/system/cpu` and `proc/thread-self/status` below `root`: `/`, or the tree
    /// of a test. The affinity mask of the calling thread, which its threads inherit, is within the
    /// cpuset of its control group.
    ///
    /// # Errors
    ///
    /// If the online CPUs or the mask cannot be read. A CPU whose siblings cannot be read, as in
    /// some containers, is a core of its own.
    pub fn read(root: &Path) -> Result<Self, TopologyError> {
        let folder = root.join("sys/devices/system/cpu");
        let online = folder.join("online");
        let online = parse(&online, &text(&online)?)?;
        let status = root.join("proc/thread-self/status");
        let fields = text(&status)?;
        let mask = fields
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
            .ok_or_else(|| TopologyError::Malformed(status.clone(), fields.clone()))?;
        let mask: BTreeSet<_> = parse(&status, mask.trim())?.0.into_iter().collect();
        let usable = online.0.into_iter().filter(|id| mask.contains(id));
        let cpus: Vec<_> = usable
            .map(|id| {
                let siblings = folder.join(format!("cpu{id}/topology/thread_siblings_list"));
                let siblings = text(&siblings).and_then(|text| parse(&siblings, &text));
                let lowest = siblings.ok().and_then(|list| list.0.into_iter().min());
                let core = lowest.unwrap_or(id);
                Cpu { id, core }
            })
            .collect();
        if cpus.is_empty() {
            return Err(TopologyError::NoCpu);
        }
        Ok(Self::new(cpus))
    }
}

fn text(path: &Path) -> Result<String, TopologyError> {
    let text = fs::read_to_string(path);
    let text = text.map_err(|error| TopologyError::Unreadable(path.to_owned(), error.kind()))?;
    Ok(text.trim_end().to_owned())
}

fn parse(path: &Path, text: &str) -> Result<CpuList, TopologyError> {
    let list = text.parse();
    list.map_err(|_: CpuListError| TopologyError::Malformed(path.to_owned(), text.to_owned()))
}
