//! Which CPU works a queue.
//!
//! To bind a thread gets in the way of the scheduler, so it has to be right (S1): two busy threads
//! on one core lose a third each, and a thread that is bound to a CPU where another one runs
//! displaces it. So `auto` binds a queue to a core of its own that nobody else uses, near the queue
//! that it exchanges packets with; where there are not enough of these, it binds nothing.

#[cfg(test)]
mod tests;

use super::SettingError;
use super::setting::Parts;
use super::topology::{Cpu, CpuId, CpuList, Distance, Topology, TopologyError};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// CPUs up to which the choice is the scheduler's: there is nothing to choose.
pub const FEW_CPUS: usize = 2;

const TAKES: &str = "none, list(cpus) as in list(0,2-3), or auto";

/// Which CPU works a queue: the setting `placement=`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Placement {
    /// The one that the scheduler chooses, each time.
    None,
    /// The first queue on the first of these, and so on, and from the first again.
    List(CpuList),
    /// A free core for each queue where there are enough, else as `None`.
    #[default]
    Auto,
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::List(cpus) => write!(f, "list({cpus})"),
            Self::Auto => f.write_str("auto"),
        }
    }
}

impl FromStr for Placement {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let parts = Parts::of("placement", TAKES, text)?;
        match parts.word {
            "none" => parts.alone(Self::None),
            "auto" => parts.alone(Self::Auto),
            "list" => match parts.arguments()? {
                "" => Err(parts.error("names no CPU")),
                cpus => match cpus.parse() {
                    Ok(list) => Ok(Self::List(list)),
                    Err(error) => Err(parts.error(&error.to_string())),
                },
            },
            _ => Err(parts.unknown()),
        }
    }
}

impl Placement {
    /// Refuses a list with a CPU that may not be used: at start that is a mistake of who wrote it.
    ///
    /// # Errors
    ///
    /// The first such CPU, and which there are.
    pub fn check(&self, topology: &Topology) -> Result<(), SettingError> {
        let Self::List(cpus) = self else {
            return Ok(());
        };
        match cpus.as_slice().iter().find(|&&cpu| !topology.allows(cpu)) {
            None => Ok(()),
            Some(cpu) => {
                let allowed: CpuList = topology.allowed().map(|cpu| cpu.id).collect();
                Err(SettingError::new(format!(
                    "placement '{self}' has CPU {cpu}, which this process may not use, or which \
                     is offline; choose from {allowed}, or widen its cpuset or affinity mask"
                )))
            }
        }
    }
}

/// One queue that wants a CPU. What is worked by one thread is one queue here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// The queue it exchanges packets with, as an index.
    pub peer: Option<usize>,
    /// Where it is bound now. It stays there if it may.
    pub now: Option<CpuId>,
}

/// Who wants CPUs.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The queues.
    pub queues: &'a [Queue],
    /// CPUs on which something else is known to run. The engine knows of the threads that other
    /// sessions of its process bound; whoever else is bound, or takes interrupts, it does not know,
    /// and `placement=list(…)` is for who does.
    pub busy: &'a CpuList,
    /// Threads of the application that need a core too, and are not among `busy`.
    pub application: usize,
}

/// Why queues are where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// Nobody wants them bound.
    Unbound,
    /// They are where the user's list says.
    Listed,
    /// They are where the user's list says, of which nobody could check anything: the system has
    /// the last word.
    ListedUnseen(TopologyError),
    /// Nothing is bound, since nothing is known of the CPUs.
    Unknown(TopologyError),
    /// They are not all where the list says, since this CPU may not be used any more.
    NotAllowed(CpuId),
    /// There are so few CPUs that nothing is bound.
    FewCpus(usize),
    /// There are not enough free cores, so that nothing is bound.
    FewCores {
        /// Cores that may be used and on which nothing runs.
        free: usize,
        /// Queues, and threads of the application.
        wanted: usize,
    },
    /// Each has a core of its own.
    OwnCores,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unbound => f.write_str("placement=none: the scheduler chooses"),
            Self::Listed => f.write_str("as listed"),
            Self::ListedUnseen(error) => write!(f, "as listed, unchecked: {error}"),
            Self::Unknown(error) => write!(f, "the scheduler chooses: {error}"),
            Self::NotAllowed(cpu) => write!(
                f,
                "CPU {cpu} of the list may not be used any more: there the scheduler chooses"
            ),
            Self::FewCpus(cpus) => write!(f, "few CPUs ({cpus}): the scheduler chooses"),
            Self::FewCores { free, wanted } => write!(
                f,
                "{free} free cores for {wanted} threads: the scheduler chooses"
            ),
            Self::OwnCores => f.write_str("a free core for each queue"),
        }
    }
}

/// A CPU for each queue, or none where the scheduler chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// In the order of the queues.
    pub cpus: Vec<Option<CpuId>>,
    /// The reason.
    pub why: Why,
}

/// Chooses. To be asked again when the CPUs that may be used change: with [`Queue::now`] filled
/// in, a queue stays where it is if it still may.
#[must_use]
pub fn place(setting: &Placement, topology: &Topology, wanted: &Wanted<'_>) -> Placed {
    match setting {
        Placement::None => unbound(wanted, Why::Unbound),
        Placement::List(cpus) => listed(cpus, topology, wanted),
        Placement::Auto => automatic(topology, wanted),
    }
}

fn unbound(wanted: &Wanted<'_>, why: Why) -> Placed {
    Placed {
        cpus: vec![None; wanted.queues.len()],
        why,
    }
}

/// As [`place`], on a machine of which `error` is all that is known: a list is the user's word, and
/// is followed as it is.
#[must_use]
pub fn place_unseen(setting: &Placement, error: &TopologyError, wanted: &Wanted<'_>) -> Placed {
    match setting {
        Placement::None => unbound(wanted, Why::Unbound),
        Placement::List(cpus) => Placed {
            cpus: around(cpus, wanted),
            why: Why::ListedUnseen(error.clone()),
        },
        Placement::Auto => unbound(wanted, Why::Unknown(error.clone())),
    }
}

/// The CPUs of `list` in turn.
fn around(list: &CpuList, wanted: &Wanted<'_>) -> Vec<Option<CpuId>> {
    let around = list.as_slice().iter().cycle();
    let mut cpus: Vec<_> = around
        .take(wanted.queues.len())
        .copied()
        .map(Some)
        .collect();
    // Only a list made by hand is empty; the scheduler has it.
    cpus.resize(wanted.queues.len(), None);
    cpus
}

fn listed(list: &CpuList, topology: &Topology, wanted: &Wanted<'_>) -> Placed {
    let mut why = Why::Listed;
    let mut cpus = around(list, wanted);
    for cpu in &mut cpus {
        if let Some(id) = cpu.filter(|&id| !topology.allows(id)) {
            why = Why::NotAllowed(id);
            *cpu = None;
        }
    }
    Placed { cpus, why }
}

/// A core, by the CPU that a queue would be bound to: the lowest of its threads that may be used.
struct Core<'a> {
    cpu: &'a Cpu,
    /// Whether something runs on one of its threads.
    busy: bool,
    taken: bool,
    /// To the nearest queue that has a place.
    nearest: Distance,
}

fn automatic(topology: &Topology, wanted: &Wanted<'_>) -> Placed {
    let allowed = topology.allowed().count();
    if allowed <= FEW_CPUS {
        return unbound(wanted, Why::FewCpus(allowed));
    }
    let mut cores = cores(topology, wanted.busy);
    let mut cpus: Vec<Option<CpuId>> = vec![None; wanted.queues.len()];
    for (queue, cpu) in wanted.queues.iter().zip(&mut cpus) {
        let now = queue.now.and_then(|now| topology.cpu(now));
        if let Some(now) = now.filter(|now| now.allowed)
            && let Some(at) = cores.iter().position(|core| core.cpu.core == now.core)
            && !cores[at].taken
        {
            *cpu = Some(now.id);
            take(&mut cores, at);
        }
    }
    let free = cores.iter().filter(|core| core.taken || !core.busy).count();
    let threads = wanted.queues.len().saturating_add(wanted.application);
    if free < threads {
        let why = Why::FewCores {
            free,
            wanted: threads,
        };
        return unbound(wanted, why);
    }
    for (at, queue) in wanted.queues.iter().enumerate() {
        if cpus[at].is_some() {
            continue;
        }
        let peer = queue
            .peer
            .and_then(|peer| cpus.get(peer).copied().flatten());
        let peer = peer.and_then(|peer| topology.cpu(peer));
        // There are as many as queues: that was counted.
        if let Some(best) = best_core(&cores, peer) {
            cpus[at] = Some(cores[best].cpu.id);
            take(&mut cores, best);
        }
    }
    Placed {
        cpus,
        why: Why::OwnCores,
    }
}

fn cores<'a>(topology: &'a Topology, busy: &CpuList) -> Vec<Core<'a>> {
    let mut index = BTreeMap::new();
    let mut cores: Vec<Core<'_>> = Vec::new();
    for cpu in topology.allowed() {
        index.entry(cpu.core).or_insert_with(|| {
            cores.push(Core {
                cpu,
                busy: false,
                taken: false,
                nearest: Distance::Far,
            });
            cores.len() - 1
        });
    }
    // A thread that this process may not use makes its core busy as well.
    for cpu in busy.as_slice().iter().filter_map(|&id| topology.cpu(id)) {
        if let Some(&at) = index.get(&cpu.core) {
            cores[at].busy = true;
        }
    }
    cores
}

fn take(cores: &mut [Core<'_>], at: usize) {
    cores[at].taken = true;
    let cpu = cores[at].cpu;
    for core in cores {
        core.nearest = core.nearest.min(core.cpu.distance(cpu));
    }
}

/// The free core nearest to the peer; else nearest to the other queues; else where the most free
/// cores share a cache, so that the queues to come are near too; else the lowest.
fn best_core(cores: &[Core<'_>], peer: Option<&Cpu>) -> Option<usize> {
    let is_free = |core: &Core<'_>| !core.taken && !core.busy;
    let mut room = BTreeMap::<CpuId, usize>::new();
    for core in cores.iter().filter(|core| is_free(core)) {
        *room.entry(core.cpu.llc).or_default() += 1;
    }
    let free = cores.iter().enumerate().filter(|(_, core)| is_free(core));
    let best = free.min_by_key(|(_, core)| {
        let to_peer = peer.map(|peer| core.cpu.distance(peer));
        let beside = room.get(&core.cpu.llc).copied().unwrap_or_default();
        (to_peer, core.nearest, Reverse(beside), core.cpu.id)
    });
    best.map(|(at, _)| at)
}
