//! How a worker's thread stands among the other threads that want its CPU.
//!
//! A worker is the stage that everybody else waits for: where it gets the same share as each of
//! them, senders fill the devices' queues while it does not run, and receivers wait. iflib's
//! tasks run before any user thread (`PI_SOFT`, `taskqgroup_cpu_create`), and so does what Linux
//! does in a softirq before it leaves the rest to `ksoftirqd`. In user space that would go too far:
//! a flood would leave applications nothing (receive livelock). `auto` goes [`AHEAD`] levels ahead
//! of who started the worker, which is three quarters of a CPU that both want, and a quarter for
//! the other one.

use super::SettingError;
use super::idle::Idle;
use super::setting::Parts;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Nice levels that `auto` goes ahead of the thread that starts a worker. Each is a weight of 1.25
/// times (`sched_prio_to_weight`), so two threads that want one CPU have 75 and 25 % of it. With
/// ten levels the other one would have a tenth.
pub const AHEAD: i8 = 5;
/// What the kernel has (setpriority(2)): the least one is the first to run.
pub const NICE: RangeInclusive<i8> = -20..=19;

const TAKES: &str = "none, nice(n) with n from -20 to 19, or auto";

/// The nice value of workers' threads: the setting `priority=`. The kernel compares it among
/// threads of one control group, and with autogroups (sched(7)) of one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Priority {
    /// That of the thread that starts the worker.
    None,
    /// This one. It is an error if the system does not allow it.
    Nice(i8),
    /// [`AHEAD`] of the thread that starts the worker, or as many levels as the system allows: to
    /// lower a nice value takes `CAP_SYS_NICE` or `RLIMIT_NICE`. As `None` for who polls
    /// (`idle=poll`): what never sleeps is not in a hurry, and would take three quarters of a
    /// CPU for looking.
    ///
    /// Threads and programs that a handler starts inherit the value of its worker, as always.
    #[default]
    Auto,
}

impl Priority {
    /// What a worker's thread should have, which has the nice value `now` from who started it;
    /// `None` to leave it there.
    #[must_use]
    pub fn nice(self, idle: Idle, now: i8) -> Option<i8> {
        let wanted = match self {
            Self::None => return None,
            Self::Nice(nice) => nice,
            Self::Auto if idle == Idle::Poll => return None,
            Self::Auto => now.saturating_sub(AHEAD),
        };
        let wanted = wanted.clamp(*NICE.start(), *NICE.end());
        (wanted != now).then_some(wanted)
    }

    /// What there is to say when the system refuses it: `why`, and what else there is.
    #[must_use]
    pub fn refused(self, why: &dyn fmt::Display) -> SettingError {
        SettingError::new(format!(
            "priority '{self}' is refused by the system: {why}; to lower a nice value takes \
             CAP_SYS_NICE, or a limit of `ulimit -e`; write auto, which goes ahead as far as it \
             may, or a higher number"
        ))
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Nice(nice) => write!(f, "nice({nice})"),
            Self::Auto => f.write_str("auto"),
        }
    }
}

impl FromStr for Priority {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let parts = Parts::of("priority", TAKES, text)?;
        match parts.word {
            "none" => parts.alone(Self::None),
            "auto" => parts.alone(Self::Auto),
            "nice" => parts.signed(parts.arguments()?, "n", NICE).map(Self::Nice),
            _ => Err(parts.unknown()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_setting_is_read_as_it_is_written() {
        for (text, setting) in [
            ("none", Priority::None),
            ("auto", Priority::Auto),
            ("nice(0)", Priority::Nice(0)),
            ("nice(19)", Priority::Nice(19)),
            ("nice(-20)", Priority::Nice(-20)),
        ] {
            assert_eq!(text.parse(), Ok(setting));
            assert_eq!(setting.to_string(), text);
        }
        for (text, why) in [
            ("", "is not known"),
            ("high", "is not known"),
            ("nice", "lacks the arguments of 'nice'"),
            ("auto(1)", "takes none"),
            ("nice()", "has '' for n, which is a number from -20 to 19"),
            ("nice(20)", "has '20' for n"),
            ("nice(-21)", "has '-21' for n"),
            ("nice(+1)", "has '+1' for n"),
            ("nice(--1)", "has '--1' for n"),
            ("nice(-)", "has '-' for n"),
            ("nice(1,2)", "has '1,2' for n"),
            (
                "nice(-9999999999999999999)",
                "has '-9999999999999999999' for n",
            ),
            ("nice(1", "does not end with its parenthesis"),
        ] {
            let error = text.parse::<Priority>().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains(TAKES), "{error}");
        }
    }

    #[test]
    fn auto_goes_ahead_of_who_started_it_and_who_polls_does_not() {
        let (halt, poll, adaptive) = (Idle::Halt, Idle::Poll, Idle::Adaptive);
        for (priority, idle, now, expected) in [
            (Priority::Auto, adaptive, 0, Some(-5)),
            (Priority::Auto, halt, 0, Some(-5)),
            (Priority::Auto, poll, 0, None),
            // Who was started with `nice -n 10` stays behind who was not.
            (Priority::Auto, adaptive, 10, Some(5)),
            (Priority::Auto, adaptive, -17, Some(-20)),
            (Priority::Auto, adaptive, -20, None),
            (Priority::None, adaptive, 7, None),
            (Priority::Nice(3), poll, 0, Some(3)),
            (Priority::Nice(3), adaptive, 3, None),
            (Priority::Nice(-100), adaptive, 3, Some(-20)),
        ] {
            assert_eq!(
                priority.nice(idle, now),
                expected,
                "{priority} {idle} {now}"
            );
        }
    }

    proptest! {
        /// Whatever it is told, what comes out is something the kernel has, and `auto` never puts
        /// a worker behind.
        #[test]
        fn what_is_wanted_is_a_nice_value(asked in any::<i8>(), now in any::<i8>()) {
            for idle in [Idle::Halt, Idle::Poll, Idle::Adaptive] {
                for priority in [Priority::None, Priority::Auto, Priority::Nice(asked)] {
                    let wanted = priority.nice(idle, now);
                    prop_assert!(wanted.is_none_or(|nice| NICE.contains(&nice)));
                    if priority == Priority::Auto && NICE.contains(&now) {
                        prop_assert!(wanted.is_none_or(|nice| nice < now));
                    }
                }
            }
        }
    }
}
