//! The CPUs to which the parts of an experiment are bound.

use std::fmt;
use std::str::FromStr;

use packtrain::policy::topology::{CpuId, CpuList};
use serde::{Deserialize, Deserializer, de};

use crate::error::LabError;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The parts in the order in which packets pass them.
const PARTS: [&str; 3] = ["sender", "worker", "receiver"];

/// The CPU of each part of an experiment; `None` leaves it to the scheduler.
///
/// ```
/// # use packtrain_lab::cpus::Cpus;
/// let cpus = Cpus::parse("sender=0,worker=1,receiver=0", &[0, 1])?;
/// assert_eq!((cpus.sender, cpus.worker), (Some(0), Some(1)));
/// assert_eq!(cpus.sharing().as_deref(), Some("sender and receiver share CPU 0"));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpus {
    /// The threads that send ([`Transfer::sender_cpu`](crate::traffic::Transfer::sender_cpu)).
    pub sender: Option<usize>,
    /// packtrain's workers (`Placement::List`), or the C forwarder.
    pub worker: Option<usize>,
    /// The threads that receive
    /// ([`Transfer::receiver_cpu`](crate::traffic::Transfer::receiver_cpu)).
    pub receiver: Option<usize>,
}

impl Cpus {
    /// Parses `PART=CPU,PART=CPU…`, each part at most once. `allowed` are the CPUs that may be used
    /// ([`allowed`]).
    ///
    /// # Errors
    /// One line with what is wrong and what to do, if the text has another form, a part is unknown
    /// or repeated, or a CPU is not allowed.
    pub fn parse(text: &str, allowed: &[usize]) -> Result<Self, String> {
        let cpus = Self::read(text)?;
        cpus.check(allowed)?;
        Ok(cpus)
    }

    /// Parses the text. The CPUs are those of any machine.
    fn read(text: &str) -> Result<Self, String> {
        let mut cpus = Self::default();
        for item in text.split(',') {
            let Some((part, cpu)) = item.split_once('=') else {
                return Err(format!(
                    "'{}' is not PART=CPU: write as in sender=0,worker=1,receiver=2",
                    item.escape_default()
                ));
            };
            let Some(slot) = cpus.slot(part) else {
                return Err(format!(
                    "unknown part '{}': the parts are {}",
                    part.escape_default(),
                    PARTS.join(", ")
                ));
            };
            if slot.is_some() {
                return Err(format!("part '{part}' is given twice; keep one of the two"));
            }
            let digits = !cpu.is_empty() && cpu.bytes().all(|byte| byte.is_ascii_digit());
            let number = digits.then(|| cpu.parse().ok()).flatten();
            let Some(number) = number else {
                return Err(format!(
                    "{part}= cannot be '{}': write the number of a CPU, as in sender=0",
                    cpu.escape_default()
                ));
            };
            *slot = Some(number);
        }
        Ok(cpus)
    }

    /// Checks that the process may use the CPUs.
    ///
    /// # Errors
    /// One line with the first part whose CPU is not among the `allowed` ones.
    pub fn check(&self, allowed: &[usize]) -> Result<(), String> {
        let Some((part, cpu)) = self.parts().find(|(_, cpu)| !allowed.contains(cpu)) else {
            return Ok(());
        };
        let allowed: CpuList = (allowed.iter())
            .filter_map(|cpu| u16::try_from(*cpu).ok().map(CpuId))
            .collect();
        Err(format!(
            "{part}= cannot be '{cpu}': the process may use the CPUs {allowed}; choose one of \
             them, or widen its affinity mask"
        ))
    }

    fn slot(&mut self, part: &str) -> Option<&mut Option<usize>> {
        match part {
            "sender" => Some(&mut self.sender),
            "worker" => Some(&mut self.worker),
            "receiver" => Some(&mut self.receiver),
            _ => None,
        }
    }

    fn parts(&self) -> impl Iterator<Item = (&'static str, usize)> + Clone {
        let cpus = [self.sender, self.worker, self.receiver];
        let parts = PARTS.into_iter().zip(cpus);
        parts.filter_map(|(part, cpu)| Some((part, cpu?)))
    }

    /// Which bound parts share a CPU, in words; `None` if each has its own.
    pub fn sharing(&self) -> Option<String> {
        let parts = self.parts();
        // Of three parts, at most one group shares a CPU.
        let of = |wanted: usize| {
            let on = parts.clone().filter(move |(_, cpu)| *cpu == wanted);
            on.map(|(part, _)| part).collect::<Vec<_>>()
        };
        let groups = parts.clone().map(|(_, cpu)| (of(cpu), cpu));
        let (names, cpu) = groups.max_by_key(|(names, _)| names.len())?;
        let (last, others) = names.split_last()?;
        (!others.is_empty()).then(|| format!("{} and {last} share CPU {cpu}", others.join(", ")))
    }
}

/// For the CPUs that the calling thread may use.
impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let allowed = allowed().map_err(|error| error.to_string())?;
        Self::parse(text, &allowed)
    }
}

/// A file may be for another machine: a testbed checks the CPUs when it starts.
impl<'de> Deserialize<'de> for Cpus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::read(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// The text that parses to the same.
impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (part, cpu)) in self.parts().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{part}={cpu}")?;
        }
        Ok(())
    }
}

/// The CPUs that the calling thread may use, in order. Its threads inherit them.
///
/// # Errors
/// [`LabError::Os`] from `sched_getaffinity`.
pub fn allowed() -> Result<Vec<usize>, LabError> {
    let this_thread = Pid::from_raw(0);
    let set = sched_getaffinity(this_thread).map_err(LabError::from_errno("sched_getaffinity"))?;
    let has = |cpu: &usize| set.is_set(*cpu) == Ok(true);
    Ok((0..CpuSet::count()).filter(has).collect())
}

/// Binds the calling thread to one CPU.
fn bind(cpu: usize) -> Result<(), LabError> {
    let mut set = CpuSet::new();
    let bound = set
        .set(cpu)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
    bound.map_err(LabError::from_errno("sched_setaffinity"))
}

/// Runs `act` with the calling thread bound to `cpu`, for good; without one, as it is. The mask is
/// read back before and after.
///
/// # Errors
/// That of `act`; [`LabError::Os`] from `sched_setaffinity`; [`LabError::Answer`] if the thread was
/// not bound all the time.
pub(crate) fn on_cpu<T, E: From<LabError>>(
    cpu: Option<usize>,
    act: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let Some(cpu) = cpu else { return act() };
    bind(cpu)?;
    let check = || match allowed()?.as_slice() {
        [only] if *only == cpu => Ok(()),
        _ => Err(LabError::Answer(
            "a thread is not on the CPU that it was bound to",
        )),
    };
    check()?;
    let done = act()?;
    check()?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::rows;

    #[test]
    fn texts_are_parsed_and_printed() {
        let parse = |text: &str| Cpus::parse(text, &[0, 1, 2, 5]);
        let all = Cpus {
            sender: Some(0),
            worker: Some(1),
            receiver: Some(5),
        };
        assert_eq!(parse("worker=1,receiver=5,sender=0"), Ok(all));
        assert_eq!(all.to_string(), "sender=0,worker=1,receiver=5");
        let worker = Cpus {
            worker: Some(2),
            ..Cpus::default()
        };
        assert_eq!(parse("worker=2"), Ok(worker));
        assert_eq!(worker.to_string(), "worker=2");
        let form = "is not PART=CPU: write as in sender=0,worker=1,receiver=2";
        assert_eq!(parse("").unwrap_err(), format!("'' {form}"));
        assert_eq!(parse("1").unwrap_err(), format!("'1' {form}"));
        let mask = "the process may use the CPUs 0-2,5; choose one of them, or widen its affinity \
                    mask";
        for [text, line] in rows(
            "
            producer=1 | unknown part 'producer': the parts are sender, worker, receiver
            worker=1,worker=1 | part 'worker' is given twice; keep one of the two
            sender=3 | sender= cannot be '3': MASK
            sender= | sender= cannot be '': write the number of a CPU, as in sender=0
            receiver=+1 | receiver= cannot be '+1': write the number of a CPU, as in sender=0
            receiver=1-2 | receiver= cannot be '1-2': write the number of a CPU, as in sender=0
            ",
        ) {
            assert_eq!(parse(text).unwrap_err(), line.replace("MASK", mask));
        }
    }

    #[test]
    fn a_file_may_name_a_cpu_that_this_machine_lacks() {
        let cpus: Cpus = serde_json::from_value("worker=60000".into()).unwrap();
        assert_eq!(cpus.worker, Some(60_000));
        assert!(cpus.check(&[0, 60_000]).is_ok());
        let error = cpus.check(&[0, 1]).unwrap_err().to_string();
        assert!(error.starts_with("worker= cannot be '60000'"), "{error}");
        assert!(serde_json::from_value::<Cpus>("worker".into()).is_err());
    }

    #[test]
    fn the_masks_cpus_are_allowed_and_no_others() {
        let allowed = allowed().unwrap();
        let text = format!("sender={}", allowed[0]);
        assert_eq!(text.parse::<Cpus>().unwrap().sender, Some(allowed[0]));
        assert!("sender=60000".parse::<Cpus>().is_err());
        let here = std::thread::available_parallelism().map_or(1, usize::from);
        assert!(allowed.len() >= here);
    }

    #[test]
    fn parts_that_share_a_cpu_are_named() {
        let sharing = |text: &str| Cpus::parse(text, &[0, 1, 2]).unwrap().sharing();
        assert_eq!(sharing("sender=0"), None);
        assert_eq!(sharing("sender=0,worker=1,receiver=2"), None);
        for [text, words] in rows(
            "
            sender=0,worker=1,receiver=0 | sender and receiver share CPU 0
            worker=1,receiver=1 | worker and receiver share CPU 1
            sender=2,worker=2,receiver=2 | sender, worker and receiver share CPU 2
            ",
        ) {
            assert_eq!(sharing(text).as_deref(), Some(words), "{text}");
        }
        assert_eq!(Cpus::default().sharing(), None);
    }

    #[test]
    fn a_thread_runs_where_it_is_bound() {
        let all = allowed().unwrap();
        let run = |cpu| {
            std::thread::spawn(move || on_cpu(cpu, allowed))
                .join()
                .unwrap()
        };
        assert_eq!(run(None), Ok(all.clone()));
        for cpu in all {
            assert_eq!(run(Some(cpu)), Ok(vec![cpu]));
        }
        let error = run(Some(60_000)).unwrap_err().to_string();
        assert!(error.starts_with("sched_setaffinity: "), "{error}");
        assert!(run(Some(usize::MAX)).is_err());
        // A thread that leaves its CPU meanwhile is noticed.
        let all = allowed().unwrap();
        if let [first, .., last] = all[..] {
            let leave = move || on_cpu(Some(first), || bind(last));
            let error = std::thread::spawn(leave).join().unwrap().unwrap_err();
            assert!(
                error
                    .to_string()
                    .ends_with("not on the CPU that it was bound to")
            );
        }
    }
}
