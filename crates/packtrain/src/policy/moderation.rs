//! Interrupt moderation: how long an RX queue may delay the next wake-up of its worker, and how
//! many packets end the delay.
//!
//! `adaptive` is net DIM of Linux (`lib/dim/net_dim.c`, `lib/dim/dim.c`). After each 64 wake-ups it
//! compares bytes, packets and wake-ups per second with those before. It steps from one profile to
//! a neighbour while that is better. There are three departures:
//!
//! - The first sample is the reference. DIM starts with a reference of zero, so each start begins a
//!   search.
//! - A search of ten steps ends. DIM rests for ten decisions and then searches again, so a constant
//!   load makes it alternate between two profiles for ever.
//! - The shortest profile delays nothing. DIM's has one microsecond, less than a sleep takes.

#[cfg(test)]
mod tests;

use super::SettingError;
use super::setting::Parts;
use crate::time::Instant;
use std::fmt;
use std::str::FromStr;

/// The longest delay, in microseconds.
pub const USECS_MAX: u32 = 10_000;
/// The largest number of packets that ends a delay.
pub const FRAMES_MAX: u32 = 4096;

/// The profiles of `adaptive`, from the shortest delay to the longest: `NET_DIM_RX_EQE_PROFILES`,
/// whose delays start at an interrupt, as they do here.
const PROFILES: [Profile; 5] = [
    Profile::IMMEDIATE,
    Profile::new(8, 256),
    Profile::new(64, 256),
    Profile::new(128, 256),
    Profile::new(256, 256),
];
const TOP: usize = PROFILES.len() - 1;
/// Wake-ups of one sample (`DIM_NEVENTS`).
const SAMPLE_EVENTS: u64 = 64;
/// Steps of one search: DIM is tired after two for each profile.
const STEPS_MAX: u8 = 2 * PROFILES.len() as u8;
/// A difference of more than so many percent is significant (`IS_SIGNIFICANT_DIFF`).
const SIGNIFICANT_PERCENT: u128 = 10;

const TAKES: &str = "off, fixed(usecs,frames) with usecs from 0 to 10000 and frames from 1 to \
                     4096, or adaptive";

/// How an RX queue moderates its wake-ups: the setting `moderation=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Moderation {
    /// A packet wakes the worker at once.
    Off,
    /// A packet wakes the worker `usecs` microseconds after the last wake-up, or as soon as
    /// `frames` packets wait. If the device cannot count waiting packets ([`arm_for`]; a TAP), the
    /// worker polls it after `usecs`. A network card that delays its interrupts ([`moderate`]) does
    /// so by `usecs` from one to the next, and counts no packets: more than `frames` may wait, and
    /// what its ring has no room for is lost.
    ///
    /// [`arm_for`]: crate::driver::RxDescriptors::arm_for
    /// [`moderate`]: crate::driver::RxDescriptors::moderate
    Fixed {
        /// Microseconds, 0 to [`USECS_MAX`]; 0 delays nothing.
        usecs: u32,
        /// Packets, 1 to [`FRAMES_MAX`]; 1 delays nothing.
        frames: u32,
    },
    /// The load decides, by net DIM.
    #[default]
    Adaptive,
}

impl fmt::Display for Moderation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Fixed { usecs, frames } => write!(f, "fixed({usecs},{frames})"),
            Self::Adaptive => f.write_str("adaptive"),
        }
    }
}

impl FromStr for Moderation {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let parts = Parts::of("moderation", TAKES, text)?;
        match parts.word {
            "off" => parts.alone(Self::Off),
            "adaptive" => parts.alone(Self::Adaptive),
            "fixed" => {
                let Some((usecs, frames)) = parts.arguments()?.split_once(',') else {
                    return Err(parts.error("lacks one of usecs and frames"));
                };
                Ok(Self::Fixed {
                    usecs: parts.number(usecs, "usecs", 0..=USECS_MAX)?,
                    frames: parts.number(frames, "frames", 1..=FRAMES_MAX)?,
                })
            }
            _ => Err(parts.unknown()),
        }
    }
}

/// How long a wake-up may be delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Profile {
    /// Microseconds from one wake-up to the next. After a longer pause the first packet wakes the
    /// worker without a delay.
    pub usecs: u32,
    /// Packets that end the delay, at least 1, if the device can count waiting packets; with 1
    /// nothing is delayed.
    pub frames: u32,
}

impl Profile {
    /// No delay.
    pub const IMMEDIATE: Self = Self::new(0, 1);

    const fn new(usecs: u32, frames: u32) -> Self {
        Self { usecs, frames }
    }
}

/// What an RX queue did since the last observation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// Packets received.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Wake-ups of the worker for this queue.
    pub events: u64,
}

impl Observation {
    /// No packets and no wake-ups.
    pub const NONE: Self = Self {
        packets: 0,
        bytes: 0,
        events: 0,
    };
}

/// The moderation policy of one RX queue.
#[derive(Clone, Debug)]
pub struct Moderator {
    profile: Profile,
    changes: u64,
    adaptive: Option<Dim>,
}

impl Moderator {
    /// The policy before the first observation: `adaptive` starts without a delay.
    #[must_use]
    pub const fn new(setting: Moderation) -> Self {
        let (profile, adaptive) = match setting {
            Moderation::Off => (Profile::IMMEDIATE, None),
            Moderation::Fixed { usecs, frames } => (Profile::new(usecs, frames), None),
            Moderation::Adaptive => (Profile::IMMEDIATE, Some(Dim::new())),
        };
        Self {
            profile,
            changes: 0,
            adaptive,
        }
    }

    /// The profile in force.
    #[must_use]
    pub const fn profile(&self) -> Profile {
        self.profile
    }

    /// How often the profile has changed.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// Records what the queue did since the last call, and returns the profile in force from now.
    pub fn observe(&mut self, now: Instant, seen: &Observation) -> Profile {
        if let Some(dim) = &mut self.adaptive {
            dim.observe(now, seen);
            let profile = PROFILES[dim.profile];
            self.changes += u64::from(profile != self.profile);
            self.profile = profile;
        }
        self.profile
    }
}

/// The rates of one sample, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rates {
    bytes: u64,
    packets: u64,
    events: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Better,
    Same,
    Worse,
}

impl Rates {
    /// `None` if no time has passed.
    fn of(sample: &Observation, ns: u128) -> Option<Self> {
        const NS: u128 = 1_000_000_000;
        let rate = |count: u64| {
            let rate = (u128::from(count) * NS).div_ceil(ns);
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        (ns > 0).then(|| Self {
            bytes: rate(sample.bytes),
            packets: rate(sample.packets),
            events: rate(sample.events),
        })
    }

    /// `net_dim_stats_compare`: more bytes are better, then more packets, then fewer wake-ups.
    fn compare(&self, before: &Self) -> Comparison {
        let more = |value: u64, than: u64| match value > than {
            true => Comparison::Better,
            false => Comparison::Worse,
        };
        if is_significant(self.bytes, before.bytes) {
            more(self.bytes, before.bytes)
        } else if before.bytes == 0 {
            Comparison::Same
        } else if is_significant(self.packets, before.packets) {
            more(self.packets, before.packets)
        } else if before.packets == 0 || before.events == 0 {
            Comparison::Same
        } else if is_significant(self.events, before.events) {
            more(before.events, self.events)
        } else {
            Comparison::Same
        }
    }
}

/// Compared with zero, any greater value is significant.
const fn is_significant(value: u64, before: u64) -> bool {
    if before == 0 {
        return value > 0;
    }
    100 * value.abs_diff(before) as u128 / before as u128 > SIGNIFICANT_PERCENT
}

/// `tune_state`, without `DIM_PARKING_TIRED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tune {
    Parked,
    Right,
    Left,
}

/// `struct dim`.
#[derive(Clone, Debug)]
struct Dim {
    profile: usize,
    tune: Tune,
    /// Steps since the last turn, and in the direction before it (`steps_right`, `steps_left`).
    ahead: u8,
    behind: u8,
    /// Steps of this search (`tired`).
    steps: u8,
    /// The reference for the next sample.
    reference: Option<Rates>,
    /// The sample so far, and when it started.
    sample: Observation,
    start: Option<Instant>,
}

impl Dim {
    const fn new() -> Self {
        Self {
            profile: 0,
            tune: Tune::Parked,
            ahead: 0,
            behind: 0,
            steps: 0,
            reference: None,
            sample: Observation::NONE,
            start: None,
        }
    }

    /// `net_dim`.
    fn observe(&mut self, now: Instant, seen: &Observation) {
        let Some(start) = self.start else {
            self.start = Some(now);
            return;
        };
        let sample = &mut self.sample;
        sample.packets = sample.packets.saturating_add(seen.packets);
        sample.bytes = sample.bytes.saturating_add(seen.bytes);
        sample.events = sample.events.saturating_add(seen.events);
        if sample.events < SAMPLE_EVENTS {
            return;
        }
        // A clock that stopped or went back gives no rates; the sample is dropped.
        let rates = Rates::of(sample, now.since(start).as_nanos());
        self.sample = Observation::NONE;
        self.start = Some(now);
        if let Some(rates) = rates {
            self.decide(&rates);
        }
    }

    /// `net_dim_decision`.
    fn decide(&mut self, rates: &Rates) {
        let reference = *self.reference.get_or_insert(*rates);
        match (self.tune, rates.compare(&reference)) {
            // The reference stays while the search is parked, so that small changes add up.
            (Tune::Parked, Comparison::Same) => return,
            (Tune::Parked, _) if self.profile == 0 => self.tune = Tune::Right,
            (Tune::Parked, _) => self.tune = Tune::Left,
            (_, Comparison::Better) => {}
            (Tune::Right, _) => self.turn(Tune::Left),
            (Tune::Left, _) => self.turn(Tune::Right),
        }
        // The search went past the best profile, turned, and stepped back to it (`dim_on_top`).
        let is_on_top = self.behind > 1 && self.ahead == 1;
        if is_on_top || !self.step() {
            self.tune = Tune::Parked;
            (self.ahead, self.behind, self.steps) = (0, 0, 0);
        }
        self.reference = Some(*rates);
    }

    /// `dim_turn`.
    const fn turn(&mut self, to: Tune) {
        self.tune = to;
        self.behind = self.ahead;
        self.ahead = 0;
    }

    /// `net_dim_step`: false at the edge, and after the last step of a search.
    const fn step(&mut self) -> bool {
        match self.tune {
            _ if self.steps == STEPS_MAX => return false,
            Tune::Right if self.profile < TOP => self.profile += 1,
            Tune::Left if self.profile > 0 => self.profile -= 1,
            _ => return false,
        }
        self.ahead += 1;
        self.steps += 1;
        true
    }
}
