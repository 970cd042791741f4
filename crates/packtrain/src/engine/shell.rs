//! What a worker's thread does after a step: a pure state machine.

use crate::policy::idle::{Idler, Wait};
use crate::time::Instant;
use std::time::Duration;

/// The longest time that packets wait for a device after intake has stopped. After that the worker
/// drops them, counted as `drop.shutdown`.
pub(super) const DRAIN_TIME_MAX: Duration = Duration::from_secs(2);

/// What the driver of a worker does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Call [`Worker::run`](super::Worker::run) again at once: there is more to do.
    Step,
    /// There is nothing to do, and polling again soon costs less than a sleep: pause for a moment
    /// (`spin_loop`), then call again.
    Spin,
    /// Let other threads run, then call again.
    Yield,
    /// Sleep until one of [`Worker::interests`](super::Worker::interests) is ready, or until this
    /// time at the latest. Then call again.
    Sleep {
        /// `None`: no time limit.
        until: Option<Instant>,
    },
    /// The run is over for this worker. Drop it.
    Done,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stepped {
    /// There may be more to do now.
    pub more: bool,
    /// No packet is held or in flight, and none can arrive.
    pub over: bool,
    /// Intake has stopped.
    pub stopped: bool,
    /// The time of the next work for which no device and no thread wakes the worker.
    pub next_at: Option<Instant>,
}

/// Decides what the worker's thread does next.
#[derive(Debug)]
pub(super) struct Shell {
    idler: Idler,
    /// The latest end of the run; set when intake has stopped.
    drain_until: Option<Instant>,
}

impl Shell {
    pub(super) const fn new(idler: Idler) -> Self {
        Self {
            idler,
            drain_until: None,
        }
    }

    /// Decides after a step that began at `now`.
    pub(super) fn next(&mut self, now: Instant, seen: &Stepped) -> Action {
        if seen.stopped {
            let end = *self.drain_until.get_or_insert(now.after(DRAIN_TIME_MAX));
            if seen.over || now >= end {
                return Action::Done;
            }
        }
        if seen.more {
            self.idler.busy(now);
            return Action::Step;
        }
        match self.idler.idle(now) {
            Wait::Spin => Action::Spin,
            Wait::Yield => Action::Yield,
            Wait::Halt => Action::Sleep {
                until: seen.next_at.into_iter().chain(self.drain_until).min(),
            },
        }
    }
}

#[cfg(all(test, not(packtrain_loom)))]
mod tests {
    use super::*;
    use crate::policy::idle::Idle;
    use proptest::prelude::*;

    const NOW: Instant = Instant::from_nanos(1_000_000);

    fn shell(idle: Idle) -> Shell {
        Shell::new(Idler::new(idle))
    }

    fn seen(more: bool, over: bool, stopped: bool, next_at: Option<Instant>) -> Stepped {
        Stepped {
            more,
            over,
            stopped,
            next_at,
        }
    }

    #[test]
    fn each_observation_has_its_action() {
        let later = NOW.after(Duration::from_millis(1));
        let end = NOW.after(DRAIN_TIME_MAX);
        let sleep = |until| Action::Sleep { until };
        for (idle, observation, action) in [
            (Idle::Halt, seen(true, false, false, None), Action::Step),
            (Idle::Halt, seen(true, false, true, None), Action::Step),
            (Idle::Halt, seen(false, false, false, None), sleep(None)),
            (Idle::Halt, seen(false, true, false, None), sleep(None)),
            (
                Idle::Halt,
                seen(false, false, false, Some(later)),
                sleep(Some(later)),
            ),
            (Idle::Poll, seen(false, false, false, None), Action::Spin),
            (Idle::Poll, seen(false, true, true, None), Action::Done),
            (Idle::Halt, seen(true, true, true, None), Action::Done),
            (Idle::Halt, seen(false, false, true, None), sleep(Some(end))),
            (
                Idle::Halt,
                seen(false, false, true, Some(later)),
                sleep(Some(later)),
            ),
        ] {
            let next = shell(idle).next(NOW, &observation);
            assert_eq!(next, action, "{idle:?} {observation:?}");
        }
    }

    #[test]
    fn a_run_that_cannot_drain_ends_two_seconds_after_the_stop() {
        let mut shell = shell(Idle::Halt);
        let stuck = seen(true, false, true, None);
        assert_eq!(shell.next(NOW, &stuck), Action::Step);
        let almost = Instant::from_nanos(NOW.after(DRAIN_TIME_MAX).as_nanos() - 1);
        assert_eq!(shell.next(almost, &stuck), Action::Step);
        assert_eq!(shell.next(NOW.after(DRAIN_TIME_MAX), &stuck), Action::Done);
    }

    proptest! {
        /// For any observations, the shell never sleeps while there is work, nor past the next due
        /// time, nor past the drain limit after a stop.
        #[test]
        fn the_shell_never_sleeps_while_there_is_work(
            steps in prop::collection::vec(
                (
                    0u64..3_000_000_000,
                    any::<bool>(),
                    any::<bool>(),
                    any::<bool>(),
                    prop::option::of(0u64..9_000_000_000),
                ),
                1..50,
            ),
            idle in prop::sample::select(vec![Idle::Halt, Idle::Poll, Idle::Adaptive]),
        ) {
            let mut shell = shell(idle);
            let (mut now, mut stopped) = (NOW, None);
            for (ns, more, over, stop, next_at) in steps {
                now = now.after(Duration::from_nanos(ns));
                if stop || stopped.is_some() {
                    stopped.get_or_insert(now);
                }
                let next_at = next_at.map(Instant::from_nanos);
                let observation = seen(more, over, stopped.is_some(), next_at);
                let end = stopped.map(|at| at.after(DRAIN_TIME_MAX));
                match shell.next(now, &observation) {
                    Action::Step => prop_assert!(more),
                    Action::Spin | Action::Yield => prop_assert!(!more),
                    Action::Sleep { until } => {
                        prop_assert!(!more);
                        prop_assert_eq!(until, next_at.into_iter().chain(end).min());
                    }
                    Action::Done => prop_assert!(end.is_some_and(|end| over || now >= end)),
                }
                if end.is_some_and(|end| over || now >= end) {
                    break;
                }
            }
        }
    }
}
