//! What users choose about queues and threads, and what came of it.

use super::sys::{affinity, nice, set_nice};
use super::taken::{Claim, Taken};
use crate::driver::QueueConfig;
use crate::policy::SettingError;
use crate::policy::dispatch::Dispatch;
use crate::policy::idle::{Idle, Room};
use crate::policy::moderation::Moderation;
use crate::policy::placement::{Placed, Placement, Queue, Wanted, Why, place, place_unseen};
use crate::policy::priority::{NICE, Priority};
use crate::policy::topology::{CpuId, CpuList, Topology, TopologyError};
use std::collections::BTreeSet;
use std::path::Path;
use std::{io, thread};

/// How the queues of a run are worked, and how its threads wait and where they run. The defaults
/// adapt themselves. A port's own settings of its queues take precedence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// When the ring in front of a TX queue is drained, and by whom.
    pub dispatch: Dispatch,
    /// When an RX queue wakes its worker.
    pub moderation: Moderation,
    /// What a worker's thread does with nothing to do.
    pub idle: Idle,
    /// Which CPU works which queues.
    pub placement: Placement,
    /// How a worker's thread stands among the others that want its CPU. Not for workers that are
    /// driven from a loop of one's own.
    pub priority: Priority,
    /// Threads of the application that will send by [`TxHandle`](super::TxHandle)s and are as busy
    /// as the workers: `placement=auto` leaves each of them a core, or binds nothing. It is asked
    /// at the start and when the CPUs that may be used change, and not when a handle is made or
    /// dropped: nobody knows of a handle whether its thread will ever be busy, and a thread that
    /// has several is one.
    pub senders: usize,
}

impl Settings {
    /// The settings of the queues of a port with this `config`.
    #[must_use]
    pub fn of_port(&self, config: &QueueConfig) -> (Dispatch, Moderation) {
        (
            config.dispatch.unwrap_or(self.dispatch),
            config.moderation.unwrap_or(self.moderation),
        )
    }

    /// Refuses what this machine cannot do: a list with a CPU that may not be used. What
    /// [`Settings::try_priority`] refuses is not in here.
    ///
    /// # Errors
    ///
    /// Which it is, and what there is instead.
    pub fn check(&self) -> Result<(), SettingError> {
        match machine() {
            Ok(topology) => self.placement.check(&topology),
            // Of a machine that hides its CPUs nothing is known; a list is tried as it is, and the
            // session does not start if the system refuses it.
            Err(_hidden) => Ok(()),
        }
    }

    /// The nice value of a worker's thread that the calling thread would start. It is tried out in
    /// a thread that ends at once.
    ///
    /// # Errors
    ///
    /// The system's: `PermissionDenied` with what to do, when it does not allow the one that was
    /// asked for by number; another one when it gives no thread to find it out with.
    pub fn try_priority(&self) -> io::Result<i8> {
        thread::scope(|scope| {
            let trial = thread::Builder::new()
                .spawn_scoped(scope, || take_priority(self.priority, self.idle))?;
            match trial.join() {
                Ok(nice) => nice,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Where the threads of `workers` workers would run, and why. With `paired`, worker i and
    /// worker i + workers/2 work the two directions of one pair of queues.
    #[must_use]
    pub fn place(&self, workers: usize, paired: bool) -> Placed {
        Follower::new(self, workers, paired).placed
    }
}

/// Where the threads of a run are, and whether that is still right.
#[derive(Debug)]
pub(super) struct Follower {
    placement: Placement,
    senders: usize,
    paired: bool,
    /// The CPUs that could be used at the last look.
    mask: Option<CpuList>,
    pub placed: Placed,
    /// The CPUs of `placed`, which no other session of this process is bound to unless it is told.
    claim: Claim,
    /// How often the CPUs that may be used were found to be others.
    pub changes: u64,
}

impl Follower {
    /// Decides for the first time. With `paired`, worker i and worker i + workers/2 work the two
    /// directions of one pair of queues.
    pub(super) fn new(settings: &Settings, workers: usize, paired: bool) -> Self {
        let mut follower = Self::among(Taken::of_process(), settings, workers, paired);
        follower.placed = follower.decide(machine().as_ref());
        follower
    }

    /// Nowhere yet, among others that have `taken` CPUs.
    fn among(taken: &'static Taken, settings: &Settings, workers: usize, paired: bool) -> Self {
        Self {
            placement: settings.placement.clone(),
            senders: settings.senders,
            paired,
            mask: affinity().ok(),
            placed: Placed {
                cpus: vec![None; workers],
                why: Why::Unbound,
            },
            claim: Claim::of(taken),
            changes: 0,
        }
    }

    /// Who is bound to a CPU that may still be used stays there.
    fn decide(&mut self, machine: Result<&Topology, &TopologyError>) -> Placed {
        let workers = self.placed.cpus.len();
        let half = workers / 2;
        let queues: Vec<_> = (0..workers)
            .map(|index| Queue {
                peer: (self.paired && half > 0).then_some((index + half) % workers),
                now: self.placed.cpus[index],
            })
            .collect();
        let place = |busy: &CpuList| {
            let wanted = Wanted {
                queues: &queues,
                busy,
                application: self.senders,
            };
            match machine {
                Ok(topology) => place(&self.placement, topology, &wanted),
                Err(error) => place_unseen(&self.placement, error, &wanted),
            }
        };
        let cpus = |placed: &Placed| placed.cpus.iter().copied().flatten().collect();
        self.claim.renew(place, cpus)
    }

    /// Whether the calling thread may use other CPUs than at the last look: its mask (a cpuset of
    /// its control group and CPUs that go offline show in it). One system call.
    pub(super) fn has_changed(&mut self) -> bool {
        let Ok(now) = affinity() else {
            // Nothing is known, so nothing is done.
            return false;
        };
        let changed = self.mask.as_ref() != Some(&now);
        self.mask = Some(now);
        self.changes += u64::from(changed);
        changed
    }

    /// Decides anew. Returns the CPUs that each worker's thread is to be bound to: one, or all that
    /// may be used for one that was bound and is not any more, or none where nothing is to be done.
    pub(super) fn decide_again(&mut self) -> Vec<Vec<CpuId>> {
        self.decide_on(machine().as_ref())
    }

    fn decide_on(&mut self, machine: Result<&Topology, &TopologyError>) -> Vec<Vec<CpuId>> {
        let is_list = matches!(self.placement, Placement::List(_));
        if machine.is_err() && !is_list {
            // Hidden since the start: who is bound stays, as far as it may.
            return vec![Vec::new(); self.placed.cpus.len()];
        }
        let placed = self.decide(machine);
        let before = std::mem::replace(&mut self.placed, placed);
        let all = || {
            let cpus = machine.map(|topology| topology.allowed().map(|cpu| cpu.id).collect());
            cpus.unwrap_or_default()
        };
        let pairs = self.placed.cpus.iter().zip(&before.cpus);
        let seats = pairs.map(|(now, before)| match (now, before) {
            // Also one that stays: a mask that was set for all threads has undone it.
            (Some(cpu), _) => vec![*cpu],
            (None, Some(_)) => all(),
            (None, None) => Vec::new(),
        });
        seats.collect()
    }
}

/// Gives the calling thread, which is to be a worker's, its priority. Returns its nice value.
///
/// # Errors
///
/// The system's, when it does not allow a value that was asked for by number.
pub(super) fn take_priority(priority: Priority, idle: Idle) -> io::Result<i8> {
    if let Priority::Nice(asked) = priority {
        let asked = asked.clamp(*NICE.start(), *NICE.end());
        return match set_nice(asked) {
            Ok(()) => Ok(asked),
            Err(error) => Err(io::Error::new(error.kind(), priority.refused(&error))),
        };
    }
    let Ok(now) = nice() else {
        // It takes a filter of system calls to refuse the question: the thread stays as it is.
        return Ok(0);
    };
    let wanted = priority.nice(idle, now).unwrap_or(now);
    // As far as the system allows it.
    let taken = (wanted..now).find(|&nice| set_nice(nice).is_ok());
    Ok(taken.unwrap_or(now))
}

/// The CPUs of this machine, of which this thread may use some.
fn machine() -> Result<Topology, TopologyError> {
    let mask = affinity().map_err(|error| TopologyError::NoMask(error.kind()))?;
    Topology::read(Path::new("/"), Some(&mask))
}

/// CPUs that this process may use, at least one.
pub(super) fn cpus() -> usize {
    affinity().map_or(1, |mask| mask.as_slice().len().max(1))
}

/// CPUs that producers have while `workers` workers have theirs, but for one: that of the queue
/// that they send to.
pub(super) fn for_producers(workers: usize) -> u32 {
    (cpus() + 1).saturating_sub(workers) as u32
}

/// Room for `workers` workers to spin in.
pub(super) fn room(workers: usize) -> Room {
    // Of a machine that hides its CPUs as much is known as the mask says.
    machine().map_or_else(
        |_hidden| room_in(cpus(), workers),
        |topology| room_on(&topology, workers),
    )
}

/// Room on the cores of a machine.
fn room_on(topology: &Topology, workers: usize) -> Room {
    let cores: BTreeSet<_> = topology.allowed().map(|cpu| cpu.core).collect();
    room_in(cores.len(), workers)
}

const fn room_in(cores: usize, workers: usize) -> Room {
    Room {
        cores: cores as u32,
        workers: workers as u32,
        producers: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::topology::Cpu;

    fn placed(placement: &str, senders: usize) -> Settings {
        Settings {
            placement: placement.parse().unwrap(),
            senders,
            ..Settings::default()
        }
    }

    /// So many cores of one thread, of which some may be used.
    fn cores(count: u16, allowed: &str) -> Topology {
        let allowed: CpuList = allowed.parse().unwrap();
        let cpu = |id| Cpu {
            id: CpuId(id),
            core: CpuId(id),
            l2: CpuId(id),
            llc: CpuId(0),
            node: 0,
            package: 0,
            allowed: allowed.contains(CpuId(id)),
        };
        Topology::new((0..count).map(cpu).collect())
    }

    fn ids(seats: &[Vec<CpuId>]) -> Vec<Vec<u16>> {
        let numbers = |seat: &Vec<CpuId>| seat.iter().map(|cpu| cpu.0).collect();
        seats.iter().map(numbers).collect()
    }

    /// Two workers on masks in turn: what each thread is told then, and why.
    #[test]
    fn threads_follow_the_mask_and_stay_where_they_may() {
        type Row = (
            &'static str,
            &'static str,
            [&'static [u16]; 2],
            &'static str,
        );
        let rows: &[&[Row]] = &[
            &[
                ("auto", "0-3", [&[0], &[1]], "a free core for each queue"),
                ("", "0-3", [&[0], &[1]], "a free core for each queue"),
                // Who loses its CPU moves; the other one does not.
                ("", "1-3", [&[2], &[1]], "a free core for each queue"),
                // What it left is free again: nobody hops back.
                ("", "0-3", [&[2], &[1]], "a free core for each queue"),
                (
                    "",
                    "0-1",
                    [&[0, 1], &[0, 1]],
                    "few CPUs (2): the scheduler chooses",
                ),
                ("", "0", [&[], &[]], "few CPUs (1): the scheduler chooses"),
                ("", "0-3", [&[0], &[1]], "a free core for each queue"),
            ],
            &[
                ("list(0,1)", "0-1", [&[0], &[1]], "as listed"),
                (
                    "",
                    "0",
                    [&[0], &[0]],
                    "CPU 1 of the list may not be used any more: there the scheduler chooses",
                ),
                ("", "0-1", [&[0], &[1]], "as listed"),
            ],
            &[
                (
                    "none",
                    "0-3",
                    [&[], &[]],
                    "placement=none: the scheduler chooses",
                ),
                ("", "2", [&[], &[]], "placement=none: the scheduler chooses"),
            ],
        ];
        for rows in rows {
            let taken = Box::leak(Box::new(Taken::new()));
            let mut follower = Follower::among(taken, &placed(rows[0].0, 0), 2, false);
            for (_, allowed, expected, why) in *rows {
                let seats = follower.decide_on(Ok(&cores(4, allowed)));
                assert_eq!(ids(&seats), expected, "{} {allowed}", rows[0].0);
                assert_eq!(follower.placed.why.to_string(), *why);
            }
        }
    }

    /// FreeBSD's case (`iflib`: `cpu_offset`), and where it runs over: what has no core of its own
    /// is the scheduler's here, and not stacked on another one's.
    #[test]
    fn a_second_session_takes_the_cores_that_the_first_left() {
        let machine = cores(8, "0-7");
        let taken = Box::leak(Box::new(Taken::new()));
        let start = |setting: &str| {
            let mut follower = Follower::among(taken, &placed(setting, 0), 3, false);
            let seats = ids(&follower.decide_on(Ok(&machine)));
            (follower, seats)
        };
        let (first, seats) = start("auto");
        assert_eq!(seats, [[0], [1], [2]]);
        let (mut second, seats) = start("auto");
        assert_eq!(seats, [[3], [4], [5]]);
        let (third, seats) = start("auto");
        assert_eq!(seats, [[0_u16; 0]; 3]);
        let why = third.placed.why.to_string();
        assert_eq!(why, "2 free cores for 3 threads: the scheduler chooses");
        // Who looks again is not in its own way.
        assert_eq!(ids(&second.decide_on(Ok(&machine))), [[3], [4], [5]]);
        // A list is the user's word; others keep off it all the same.
        let (listed, seats) = start("list(6,7)");
        assert_eq!(seats, [[6], [7], [6]]);
        drop((first, third));
        let (again, seats) = start("auto");
        assert_eq!(seats, [[0], [1], [2]]);
        drop((second, listed, again));
        assert_eq!(start("auto").1, [[0], [1], [2]]);
    }

    /// To bind a queue where it displaces who sends to it is what S1 warns of.
    #[test]
    fn who_sends_has_a_core_left_or_nothing_is_bound() {
        let machine = cores(4, "0-3");
        for (senders, expected) in [(0, [0, 1]), (2, [0, 1])] {
            let taken = Box::leak(Box::new(Taken::new()));
            let mut follower = Follower::among(taken, &placed("auto", senders), 2, false);
            assert_eq!(
                ids(&follower.decide_on(Ok(&machine))),
                expected.map(|id| [id])
            );
        }
        let taken = Box::leak(Box::new(Taken::new()));
        let mut follower = Follower::among(taken, &placed("auto", 3), 2, false);
        assert_eq!(ids(&follower.decide_on(Ok(&machine))), [[0_u16; 0]; 2]);
        let why = follower.placed.why.to_string();
        assert_eq!(why, "4 free cores for 5 threads: the scheduler chooses");
    }

    /// As in a container that hides `/sys`. A list is the user's word: to leave it unsaid that it
    /// is not followed would be the worst of all.
    #[test]
    fn a_list_is_followed_where_the_machine_is_hidden_and_that_is_said() {
        let root = std::env::temp_dir().join("packtrain-no-such-folder");
        let hidden = Topology::read(&root, None).unwrap_err();
        let start = |setting: &str| {
            let taken = Box::leak(Box::new(Taken::new()));
            let mut follower = Follower::among(taken, &placed(setting, 0), 3, false);
            follower.placed = follower.decide(Err(&hidden));
            let cpus: Vec<_> = follower
                .placed
                .cpus
                .iter()
                .map(|cpu| cpu.map(|cpu| cpu.0))
                .collect();
            (cpus, follower)
        };
        let (cpus, mut listed) = start("list(1,5)");
        assert_eq!(cpus, [Some(1), Some(5), Some(1)]);
        let why = listed.placed.why.to_string();
        assert!(
            why.starts_with("as listed, unchecked: the CPUs of this machine"),
            "{why}"
        );
        assert!(why.contains("cpu/online"), "{why}");
        // The mask was set for all threads, and has undone it.
        assert_eq!(ids(&listed.decide_on(Err(&hidden))), [[1], [5], [1]]);
        // And it is as every list is once the machine shows itself.
        assert_eq!(
            ids(&listed.decide_on(Ok(&cores(8, "0-7")))),
            [[1], [5], [1]]
        );
        assert_eq!(listed.placed.why, Why::Listed);

        let (cpus, mut auto) = start("auto");
        assert_eq!(cpus, [None; 3]);
        let why = auto.placed.why.to_string();
        assert!(why.starts_with("the scheduler chooses: the CPUs"), "{why}");
        // Who is bound when it hides itself stays.
        assert_eq!(ids(&auto.decide_on(Ok(&cores(4, "0-3")))), [[0], [1], [2]]);
        assert_eq!(ids(&auto.decide_on(Err(&hidden))), [[0_u16; 0]; 3]);
        assert_eq!(auto.placed.why, Why::OwnCores);

        let (cpus, none) = start("none");
        assert_eq!((cpus, none.placed.why), (vec![None; 3], Why::Unbound));
    }

    /// S1's machine has four cores of two threads: with four workers no core is left for those who
    /// send to them, and a worker that spins slows its sibling down.
    #[test]
    fn room_to_spin_is_counted_in_cores() {
        let smt = |allowed: &str| {
            let allowed: CpuList = allowed.parse().unwrap();
            let cpu = |id| Cpu {
                id: CpuId(id),
                core: CpuId(id % 4),
                l2: CpuId(id % 4),
                llc: CpuId(0),
                node: 0,
                package: 0,
                allowed: allowed.contains(CpuId(id)),
            };
            Topology::new((0..8).map(cpu).collect())
        };
        for (topology, workers, cores, spins) in [
            (smt("0-7"), 4, 4, false),
            (smt("0-7"), 3, 4, false),
            (smt("0-7"), 2, 4, true),
            (smt("0-7"), 1, 4, true),
            // Three cores, of which one has both its threads.
            (smt("0-2,4"), 1, 3, true),
            (smt("0-2,4"), 2, 3, false),
            // Two cores of four threads are few.
            (smt("0-1,4-5"), 1, 2, false),
            (cores(8, "0-7"), 4, 8, true),
        ] {
            let room = room_on(&topology, workers);
            assert_eq!(
                (room.cores, room.for_spinning()),
                (cores, spins),
                "{workers}"
            );
        }
    }

    #[test]
    fn a_mask_that_stays_is_no_change() {
        let mut follower = Follower::new(&placed("auto", 0), 2, false);
        assert!(!follower.has_changed());
        assert!(!follower.has_changed());
        assert_eq!(follower.changes, 0);
        follower.mask = Some("0-4095".parse().unwrap());
        assert!(follower.has_changed());
        assert!(!follower.has_changed());
        assert_eq!(follower.changes, 1);
    }
}
