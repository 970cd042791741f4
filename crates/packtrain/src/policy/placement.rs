//! On which CPU each worker runs, decided once at start.
//!
//! A bound thread stays where it is even if the scheduler would move it. Two busy threads on the
//! hardware threads of one core slow each other down, and a bound thread displaces any other thread
//! that wants its CPU. So `auto` binds each worker to a core of its own, or binds nothing if there
//! are too few cores for the workers and the application's senders.

#[cfg(test)]
mod tests;

use super::SettingError;
use super::setting::Parts;
use super::topology::{CpuId, CpuList, Topology, TopologyError};
use std::fmt;
use std::str::FromStr;

/// With so many CPUs or fewer, `auto` binds nothing: there is no choice.
pub const FEW_CPUS: usize = 2;

const TAKES: &str = "none, list(cpus) as in list(0,2-3), or auto";

/// On which CPU each worker runs: the setting `placement=`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Placement {
    /// The scheduler chooses.
    None,
    /// The first worker is bound to the first of these CPUs, and so on; after the last CPU the list
    /// starts again.
    List(CpuList),
    /// Each worker is bound to a core of its own if there are enough cores; else as `None`.
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
    /// Refuses a list with a CPU that the process may not use.
    ///
    /// # Errors
    ///
    /// Names the first such CPU and the permitted ones.
    pub fn check(&self, topology: &Topology) -> Result<(), SettingError> {
        let Self::List(cpus) = self else {
            return Ok(());
        };
        match cpus.as_slice().iter().find(|&&cpu| !topology.allows(cpu)) {
            None => Ok(()),
            Some(cpu) => {
                let allowed: CpuList = topology.cpus().iter().map(|cpu| cpu.id).collect();
                Err(SettingError::new(format!(
                    "placement '{self}' has CPU {cpu}, which this process may not use, or which \
                     is offline; choose from {allowed}, or widen its cpuset or affinity mask"
                )))
            }
        }
    }
}

/// Why workers are bound, or not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// `placement=none`.
    Unbound,
    /// The workers are bound as the list states.
    Listed,
    /// The workers are bound as the list states, but the list could not be checked.
    ListedUnchecked(TopologyError),
    /// Nothing is bound: the CPUs are not known.
    Unknown(TopologyError),
    /// Nothing is bound: there are at most [`FEW_CPUS`].
    FewCpus(usize),
    /// Nothing is bound: there are more threads than cores.
    FewCores {
        /// Cores that the process may use.
        cores: usize,
        /// Workers and application threads that send.
        wanted: usize,
    },
    /// Each worker has a core of its own.
    OwnCores,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unbound => f.write_str("placement=none: the scheduler chooses"),
            Self::Listed => f.write_str("as listed"),
            Self::ListedUnchecked(error) => write!(f, "as listed, unchecked: {error}"),
            Self::Unknown(error) => write!(f, "the scheduler chooses: {error}"),
            Self::FewCpus(cpus) => write!(f, "few CPUs ({cpus}): the scheduler chooses"),
            Self::FewCores { cores, wanted } => write!(
                f,
                "{cores} cores for {wanted} threads: the scheduler chooses"
            ),
            Self::OwnCores => f.write_str("a core for each worker"),
        }
    }
}

/// The CPU of each worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// In the order of the workers; `None` where the scheduler chooses.
    pub cpus: Vec<Option<CpuId>>,
    /// The reason.
    pub why: Why,
}

/// Chooses a CPU for each of `workers`. `senders` are the application threads that need a core too.
#[must_use]
pub fn place(setting: &Placement, topology: &Topology, workers: usize, senders: usize) -> Placed {
    let unbound = |why| Placed {
        cpus: vec![None; workers],
        why,
    };
    match setting {
        Placement::None => unbound(Why::Unbound),
        Placement::List(list) => listed(list, workers, Why::Listed),
        Placement::Auto => {
            let (cpus, cores) = (topology.cpus().len(), topology.cores());
            let wanted = workers.saturating_add(senders);
            if cpus <= FEW_CPUS {
                return unbound(Why::FewCpus(cpus));
            }
            if cores.len() < wanted {
                let cores = cores.len();
                return unbound(Why::FewCores { cores, wanted });
            }
            Placed {
                cpus: cores.into_iter().take(workers).map(Some).collect(),
                why: Why::OwnCores,
            }
        }
    }
}

/// As [`place`], if the CPUs are not known: the workers are bound to a list unchecked.
#[must_use]
pub fn place_unseen(setting: &Placement, error: &TopologyError, workers: usize) -> Placed {
    let why = match setting {
        Placement::List(list) => {
            return listed(list, workers, Why::ListedUnchecked(error.clone()));
        }
        Placement::None => Why::Unbound,
        Placement::Auto => Why::Unknown(error.clone()),
    };
    Placed {
        cpus: vec![None; workers],
        why,
    }
}

/// Binds the workers to the CPUs of `list`, one after the other.
fn listed(list: &CpuList, workers: usize, why: Why) -> Placed {
    let mut cpus: Vec<_> = list.as_slice().iter().copied().map(Some).collect();
    // An empty list cannot be parsed, but it can be collected.
    if cpus.is_empty() {
        cpus.push(None);
    }
    Placed {
        cpus: cpus.into_iter().cycle().take(workers).collect(),
        why,
    }
}
