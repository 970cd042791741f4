//! What a worker does with nothing to do.
//!
//! To halt costs two context switches and the time until the CPU is awake again; to poll costs a
//! CPU, and the speed of its sibling. The adaptive setting looks at how soon work came after it had
//! ended: it spins for the time in which most of the work comes, if that costs less than halting,
//! and then halts. It does not spin on a CPU that something else wants: it halts, or, where it
//! would be woken at once, lets others run. Where others do its work and it has no CPU but theirs
//! it naps, whatever came how soon.

#[cfg(test)]
mod tests;

use super::SettingError;
use super::placement::FEW_CPUS;
use super::setting::Parts;
use crate::time::Instant;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The longest that the adaptive setting spins before it halts.
pub const SPIN_MAX: Duration = Duration::from_nanos(1 << 20);
/// How long it spins before it has learned anything: what a wakeup takes on a busy virtual machine.
pub const SPIN_START: Duration = Duration::from_nanos(1 << 14);
/// So much time of a CPU that nobody wants is given to save a packet the time of a wakeup.
pub const SPIN_WORTH: u64 = 16;
/// After somebody wanted the CPU, it is spared for at least this long.
pub const PRESSURE_HOLD: Duration = Duration::from_millis(10);

/// What halting costs until it was measured.
const HALT_NS: u64 = 20_000;
/// Fruitless steps that are answered with `Spin` at most, should the clock stand still.
const SPINS_MAX: u32 = 1 << 20;
/// Times that work came after which it is thought about anew.
const LEARN_EVERY: u32 = 32;
/// Times that are remembered; then all count half.
const MEMORY: u32 = 256;
/// Strikes that forbid spinning, and the most that are counted, for a hold each.
const STRIKES_OUT: u8 = 2;
const STRIKES_MAX: u8 = 8;
/// Gaps are counted by their power of two, up to 2³¹ ns: two seconds and all above.
const BUCKETS: usize = 32;
/// The shortest spin that is worth while, as a power of two of nanoseconds.
const SPIN_MIN_LOG: u32 = 9;
const SPIN_MAX_LOG: u32 = 20;

const _: () = assert!(SPIN_MAX.as_nanos() == 1 << SPIN_MAX_LOG);

const TAKES: &str = "halt, poll or adaptive";

/// What a worker does with nothing to do: the setting `idle=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Idle {
    /// It sleeps until the kernel wakes it.
    Halt,
    /// It looks again, without end.
    Poll,
    /// It looks again for a bounded time that it has learned, and then sleeps. Where producers do
    /// its work ([`Relief`]) it lets them run, or naps.
    #[default]
    Adaptive,
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Halt => "halt",
            Self::Poll => "poll",
            Self::Adaptive => "adaptive",
        })
    }
}

impl FromStr for Idle {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let parts = Parts::of("idle", TAKES, text)?;
        match parts.word {
            "halt" => parts.alone(Self::Halt),
            "poll" => parts.alone(Self::Poll),
            "adaptive" => parts.alone(Self::Adaptive),
            _ => Err(parts.unknown()),
        }
    }
}

/// What to do after a step that found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// Look again at once.
    Spin,
    /// Let others run, then look again. Not to be asleep when it is asked for saves who asks the
    /// cost of a wakeup.
    Yield,
    /// Sleep for so long at most, then look again. Devices that it receives from wake it, and
    /// nobody else, nor pays for that.
    Nap(Duration),
    /// Sleep until woken.
    Halt,
}

/// Who shares the machine with a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Room {
    /// Cores that the process may use: who spins on one hardware thread takes from its sibling a
    /// third of what it does (S1).
    pub cores: u32,
    /// Workers that run on them, this one included.
    pub workers: u32,
    /// Threads that make the packets of this worker. `None` where nobody knows how many those are:
    /// no application has a handle, so they come from a device.
    pub producers: Option<u32>,
}

impl Room {
    /// Whether a worker can spin without taking a core from another worker, or from those that make
    /// the packets. Where it is not known how many those are they have as many cores as there are
    /// workers; on few cores that leaves none.
    #[must_use]
    pub const fn for_spinning(self) -> bool {
        let makers = match self.producers {
            Some(producers) if self.workers == 1 => producers,
            _ if self.cores <= FEW_CPUS as u32 => self.cores,
            // Those of the other workers are known to nobody.
            Some(producers) if producers > self.workers => producers,
            _ => self.workers,
        };
        let ours = self.cores.saturating_sub(makers);
        ours > 0 && ours >= self.workers
    }
}

/// Who else wants the CPU. To find out costs system calls: now and then is enough, and
/// [`Pressure::UNKNOWN`] in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Involuntary context switches of the worker since the last time this was filled in.
    pub involuntary: u64,
    /// Threads that could run on the worker's CPU, and do not.
    pub waiting: u32,
    /// What it took to halt and come back when woken, in nanoseconds; 0 when not measured.
    pub halt_ns: u64,
}

impl Pressure {
    /// Nobody has looked.
    pub const UNKNOWN: Self = Self {
        involuntary: 0,
        waiting: 0,
        halt_ns: 0,
    };
}

/// How much of a worker's work others do: producers that drain, when so much has gathered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Relief {
    /// None.
    #[default]
    None,
    /// Most of it; and they ask for the rest so often that a worker would be woken as soon as it
    /// sleeps.
    Most,
    /// The same, and there is no CPU on which it would not be in their way. To look after the rest
    /// each time that this has passed is enough.
    InTheWay(Duration),
}

impl Relief {
    /// Of a worker with two queues: to nap is enough only if it is for both, since nobody wakes it
    /// for one of them.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, Self::None) => Self::None,
            (Self::InTheWay(one), Self::InTheWay(other)) => Self::InTheWay(one.min(other)),
            _ => Self::Most,
        }
    }
}

/// What decides for one worker.
#[derive(Clone, Debug)]
pub struct Idler {
    setting: Idle,
    room: Room,
    /// Since when there is nothing to do.
    since: Option<u64>,
    /// Whether this time without work was answered with `Halt` already.
    halted: bool,
    spins: u32,
    spin_ns: u64,
    halt_ns: u64,
    gaps: [u32; BUCKETS],
    remembered: u32,
    fresh: u32,
    strikes: u8,
    struck: u64,
}

impl Idler {
    /// A worker with this setting, in this room.
    #[must_use]
    pub const fn new(setting: Idle, room: Room) -> Self {
        Self {
            setting,
            room,
            since: None,
            halted: false,
            spins: 0,
            spin_ns: SPIN_START.as_nanos() as u64,
            halt_ns: HALT_NS,
            gaps: [0; BUCKETS],
            remembered: 0,
            fresh: 0,
            strikes: 0,
            struck: 0,
        }
    }

    /// The cores, the workers or the producers are others now.
    pub const fn set_room(&mut self, room: Room) {
        self.room = room;
    }

    /// How long the worker spins now before it halts: zero where it must not, at most [`SPIN_MAX`].
    /// Under `poll` it is never asked for.
    #[must_use]
    pub const fn spin_bound(&self) -> Duration {
        if !self.room.for_spinning() || self.strikes >= STRIKES_OUT {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.spin_ns >> (2 * self.strikes))
    }

    /// A step found nothing: what now?
    pub fn idle(&mut self, now: Instant, pressure: &Pressure, relief: Relief) -> Wait {
        let now = now.as_nanos();
        self.feel(now, pressure);
        match self.setting {
            Idle::Halt => Wait::Halt,
            Idle::Poll if self.spin_bound().is_zero() => Wait::Yield,
            Idle::Poll => Wait::Spin,
            Idle::Adaptive => match (self.spin_or_halt(now), relief) {
                (_, Relief::InTheWay(nap)) => Wait::Nap(nap),
                (Wait::Halt, Relief::Most) => Wait::Yield,
                (wait, _) => wait,
            },
        }
    }

    fn spin_or_halt(&mut self, now: u64) -> Wait {
        let since = *self.since.get_or_insert(now);
        // A clock that goes back must not prolong the spin.
        let spun = now.checked_sub(since).map(Duration::from_nanos);
        let goes_on = spun.is_some_and(|spun| spun < self.spin_bound());
        if goes_on && !self.halted && self.spins < SPINS_MAX {
            self.spins += 1;
            return Wait::Spin;
        }
        self.halted = true;
        Wait::Halt
    }

    /// A step found work.
    pub fn busy(&mut self, now: Instant) {
        let Some(since) = self.since.take() else {
            return;
        };
        self.halted = false;
        self.spins = 0;
        if let Some(gap) = now.as_nanos().checked_sub(since) {
            let bucket = (gap.max(1).ilog2() as usize).min(BUCKETS - 1);
            self.gaps[bucket] += 1;
            self.remembered += 1;
            self.fresh += 1;
        }
        if self.fresh >= LEARN_EVERY {
            self.fresh = 0;
            self.learn();
        }
    }

    /// Chooses the spin that would have cost least for the gaps that are remembered. A gap shorter
    /// than the spin costs its length; a longer one costs the spin and then the halt.
    fn learn(&mut self) {
        let halt = self.halt_ns.saturating_mul(SPIN_WORTH);
        let cost = |spin: u64| {
            let mut sum = 0_u128;
            for (log, &count) in self.gaps.iter().enumerate() {
                let each = if 1_u64 << log < spin {
                    // The middle of the bucket.
                    3_u128 << log >> 1
                } else {
                    u128::from(spin) + u128::from(halt)
                };
                sum += each * u128::from(count);
            }
            sum
        };
        let spins = (SPIN_MIN_LOG..=SPIN_MAX_LOG).map(|log| 1_u64 << log);
        let best = std::iter::once(0)
            .chain(spins)
            .min_by_key(|&spin| cost(spin));
        // A sixty-fourth is not worth a change: the gaps are a sample.
        if let Some(best) = best
            && cost(best) * 65 < cost(self.spin_ns) * 64
        {
            self.spin_ns = best;
        }
        if self.remembered >= MEMORY {
            self.gaps.iter_mut().for_each(|count| *count /= 2);
            self.remembered = self.gaps.iter().sum();
        }
    }

    /// Somebody who waits for the CPU forbids spinning, and so do two involuntary switches; one
    /// shortens it. Each is forgotten after a hold.
    fn feel(&mut self, now: u64, pressure: &Pressure) {
        if pressure.halt_ns > 0 {
            // An average that follows within a few halts.
            self.halt_ns = self.halt_ns / 4 * 3 + pressure.halt_ns / 4;
        }
        let hold = PRESSURE_HOLD.as_nanos() as u64;
        // A clock that went back must not forbid spinning until it has come as far again.
        self.struck = self.struck.min(now);
        if self.strikes > 0 {
            let held = now.saturating_sub(self.struck) / hold;
            self.strikes -= held.min(u64::from(self.strikes)) as u8;
            self.struck = self.struck.saturating_add(held.saturating_mul(hold));
        }
        let least = if pressure.waiting > 0 { STRIKES_OUT } else { 0 };
        let more = pressure.involuntary.min(u64::from(STRIKES_OUT)) as u8;
        if least > 0 || more > 0 {
            self.strikes = (self.strikes + more.max(1)).max(least).min(STRIKES_MAX);
            self.struck = now;
        }
    }
}
