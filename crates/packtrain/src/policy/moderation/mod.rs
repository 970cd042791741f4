//! When an RX queue signals: how long it may hold a signal back, and how many packets end that.
//!
//! Fewer signals cost less and take longer. The adaptive setting has the idea of the kernel's DIM
//! (`lib/dim/net_dim.c`): take a step, and see whether more bytes, more packets or fewer signals
//! came of it. It departs from DIM where DIM fails:
//!
//! - DIM begins by comparing with nothing, so a constant load makes it hop between two profiles for
//!   good. Here a step that gains nothing is taken back, and the next one waits until the load is
//!   another.
//! - To DIM fewer signals are better, always. Here only while they are many ([`EVENTS_FINE`]); then
//!   latency is worth more.
//! - While the load is so light that no profile could put two packets together, there is no
//!   moderation at all, from the first look on.

#[cfg(test)]
mod tests;

use super::SettingError;
use super::setting::Parts;
use crate::limits::BURST_PACKETS_MAX;
use crate::time::Instant;
use std::fmt;
use std::str::FromStr;

/// The longest time that a signal may be held back, in microseconds.
pub const USECS_MAX: u32 = 10_000;
/// The most packets that a signal may wait for.
pub const FRAMES_MAX: u32 = 4096;
/// Signals a second that need no moderation. The card of S1, tuned, makes 8 k interrupts a second.
pub const EVENTS_FINE: u64 = 8_000;

/// Times of the adaptive profiles in microseconds, those of `NET_DIM_RX_CQE_PROFILES` but for the
/// first: it holds nothing back. Each waits for one burst at most.
const PROFILES: [u32; 5] = [0, 8, 16, 32, 64];
const TOP: usize = PROFILES.len() - 1;
const FRAMES: u32 = BURST_PACKETS_MAX as u32;

/// Signals that one decision is made from (`DIM_NEVENTS`).
const EVENTS: u64 = 64;
/// A decision is also made after this time, so that a light load does not wait for it.
const WINDOW_NS: u64 = 20_000_000;
/// Packets a second below which the longest profile puts fewer than two together.
const LIGHT: u64 = 2_000_000 / PROFILES[TOP] as u64;
/// Above this it is light no more: a quarter, so that a load near the limit does not hop.
const NOT_LIGHT: u64 = LIGHT / 4 * 5;
/// Decisions in a row that must see another load before anything is done about it.
const STREAK: u8 = 2;
/// Decisions that a profile stays, at least. Doubles when the search comes to the same one again.
const HOLD_MIN: u32 = 4;
const HOLD_MAX: u32 = 64;

const TAKES: &str = "off, fixed(usecs,frames) with usecs from 0 to 10000 and frames from 1 to \
                     4096, or adaptive";

/// When an RX queue signals: the setting `moderation=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Moderation {
    /// At once.
    Off,
    /// `usecs` microseconds after the last signal, or once `frames` packets wait, whatever is
    /// first. A device that cannot tell how many wait ([`arm_for`]; a TAP) is looked at after
    /// `usecs`.
    ///
    /// [`arm_for`]: crate::driver::RxDescriptors::arm_for
    Fixed {
        /// Microseconds, 0 to [`USECS_MAX`]; 0 signals at once.
        usecs: u32,
        /// Packets, 1 to [`FRAMES_MAX`]; 1 signals at once.
        frames: u32,
    },
    /// As the load asks for.
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

/// How long to hold a signal back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Signal {
    /// Microseconds from one signal to the next. The first packet after a longer time without one
    /// is not delayed.
    pub usecs: u32,
    /// Packets that end the wait, at least 1, where the device can tell how many wait.
    pub frames: u32,
}

impl Signal {
    /// At once.
    pub const NOW: Self = Self {
        usecs: 0,
        frames: 1,
    };

    const fn of(profile: usize) -> Self {
        match profile {
            0 => Self::NOW,
            _ => Self {
                usecs: PROFILES[profile],
                frames: FRAMES,
            },
        }
    }
}

/// What an RX queue did since the last observation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// Packets received.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Signals: times that a worker came back from waiting because of this queue.
    pub events: u64,
}

/// Rates of one decision, each for one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rates {
    bytes: u64,
    packets: u64,
    events: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Better,
    Same,
    Worse,
}

/// Differs by more than 10 % (`IS_SIGNIFICANT_DIFF`).
fn differs(value: u64, reference: u64) -> bool {
    reference > 0 && u128::from(value.abs_diff(reference)) * 100 / u128::from(reference) > 10
}

impl Rates {
    const ZERO: Self = Self {
        bytes: 0,
        packets: 0,
        events: 0,
    };

    fn of(seen: &Observation, ns: u64) -> Self {
        let rate = |count: u64| {
            let rate = u128::from(count) * 1_000_000_000 / u128::from(ns.max(1));
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        Self {
            bytes: rate(seen.bytes),
            packets: rate(seen.packets),
            events: rate(seen.events),
        }
    }

    /// `net_dim_stats_compare()`: bytes, then packets, then signals; but see [`EVENTS_FINE`].
    fn compared_with(&self, before: &Self) -> Outcome {
        for (now, before) in [(self.bytes, before.bytes), (self.packets, before.packets)] {
            if before == 0 {
                return if now > 0 {
                    Outcome::Better
                } else {
                    Outcome::Same
                };
            }
            if differs(now, before) {
                return if now > before {
                    Outcome::Better
                } else {
                    Outcome::Worse
                };
            }
        }
        let many = self.events.max(before.events) > EVENTS_FINE;
        match differs(self.events, before.events) && many {
            true if self.events < before.events => Outcome::Better,
            true => Outcome::Worse,
            false => Outcome::Same,
        }
    }
}

/// Where the search for a profile is.
#[derive(Clone, Copy, Debug)]
enum Search {
    /// The profile stays while the load is that of `reference`, which the next decision sees if it
    /// is not known.
    Parked {
        reference: Option<Rates>,
        hold: u32,
        streak: u8,
    },
    /// A step was taken; `before` was seen in front of it. The decision after it sees both.
    Stepped {
        up: bool,
        before: Rates,
        settling: bool,
        /// Whether the search has come here by a step that gained something, or has turned.
        last: bool,
    },
}

/// What decides for one RX queue.
#[derive(Clone, Debug)]
pub struct Moderator {
    signal: Signal,
    changes: u64,
    adaptive: Option<Adaptive>,
}

impl Moderator {
    /// Begins without moderation, unless it is fixed.
    #[must_use]
    pub const fn new(setting: Moderation) -> Self {
        let (signal, adaptive) = match setting {
            Moderation::Off => (Signal::NOW, None),
            Moderation::Fixed { usecs, frames } => (Signal { usecs, frames }, None),
            Moderation::Adaptive => (Signal::NOW, Some(Adaptive::new())),
        };
        Self {
            signal,
            changes: 0,
            adaptive,
        }
    }

    /// What holds now.
    #[must_use]
    pub const fn signal(&self) -> Signal {
        self.signal
    }

    /// How often it has changed.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// Takes in what happened since the last call, and returns what holds from now on.
    pub fn observe(&mut self, now: Instant, seen: &Observation) -> Signal {
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.observe(now.as_nanos(), seen);
            let signal = Signal::of(adaptive.profile);
            self.changes += u64::from(signal != self.signal);
            self.signal = signal;
        }
        self.signal
    }
}

#[derive(Clone, Debug)]
struct Adaptive {
    profile: usize,
    search: Search,
    /// Begin of the window, and the last `now`.
    times: Option<(u64, u64)>,
    window: Observation,
    /// Where the search ended last, and how long it stays there.
    parked_at: usize,
    hold: u32,
}

impl Adaptive {
    const fn new() -> Self {
        Self {
            profile: 0,
            // A queue of which nothing was seen: a load that is there from the start is a new one.
            search: Search::Parked {
                reference: Some(Rates::ZERO),
                hold: 0,
                streak: 0,
            },
            times: None,
            window: Observation {
                packets: 0,
                bytes: 0,
                events: 0,
            },
            parked_at: 0,
            hold: HOLD_MIN,
        }
    }

    fn observe(&mut self, now: u64, seen: &Observation) {
        let begin = match self.times {
            Some((begin, last)) if now >= last => begin,
            // The counts belong to a time that nobody knows.
            _ => {
                self.times = Some((now, now));
                self.window = Observation::default();
                return;
            }
        };
        self.times = Some((begin, now));
        let window = &mut self.window;
        window.packets = window.packets.saturating_add(seen.packets);
        window.bytes = window.bytes.saturating_add(seen.bytes);
        window.events = window.events.saturating_add(seen.events);
        let ns = now - begin;
        if ns > 0 && (window.events >= EVENTS || ns >= WINDOW_NS) {
            let rates = Rates::of(window, ns);
            self.times = Some((now, now));
            self.window = Observation::default();
            self.decide(rates);
        }
    }

    fn decide(&mut self, rates: Rates) {
        let light = if self.profile == 0 { NOT_LIGHT } else { LIGHT };
        if rates.packets < light {
            // If the profile itself made the load light, as with senders that wait for answers, the
            // next decision sees the load without it, and that is what it is compared with.
            let reference = (self.profile == 0).then_some(rates);
            self.profile = 0;
            self.parked_at = 0;
            self.search = Search::Parked {
                reference,
                hold: 0,
                streak: 0,
            };
            return;
        }
        match self.search {
            Search::Parked {
                reference,
                hold,
                streak,
            } => self.parked(rates, reference, hold, streak),
            Search::Stepped {
                up,
                before,
                settling: true,
                last,
            } => {
                self.search = Search::Stepped {
                    up,
                    before,
                    settling: false,
                    last,
                };
            }
            Search::Stepped {
                up, before, last, ..
            } => self.stepped(rates, up, &before, last),
        }
    }

    fn parked(&mut self, rates: Rates, reference: Option<Rates>, hold: u32, streak: u8) {
        let park = |reference, hold, streak| Search::Parked {
            reference: Some(reference),
            hold,
            streak,
        };
        let Some(reference) = reference else {
            self.search = park(rates, hold, 0);
            return;
        };
        if hold > 0 {
            self.search = park(reference, hold - 1, 0);
            return;
        }
        if rates.compared_with(&reference) == Outcome::Same {
            self.search = park(reference, 0, 0);
            return;
        }
        if streak + 1 < STREAK {
            self.search = park(reference, 0, streak + 1);
            return;
        }
        let grew = (rates.bytes, rates.packets) > (reference.bytes, reference.packets);
        match (grew, self.profile) {
            // More than the longest profile is for, or less than none: nothing is left to try.
            (true, TOP) | (false, 0) => self.search = park(rates, 0, 0),
            _ => self.step(grew, rates, false),
        }
    }

    /// What came of the step to this profile.
    fn stepped(&mut self, rates: Rates, up: bool, before: &Rates, last: bool) {
        let outcome = rates.compared_with(before);
        // A longer profile must gain something; a shorter one has the lower latency.
        let stays = if up {
            outcome == Outcome::Better
        } else {
            outcome != Outcome::Worse
        };
        let edge = if up { TOP } else { 0 };
        if stays && self.profile != edge {
            self.step(up, rates, true);
        } else if stays {
            self.park();
        } else {
            self.profile = if up {
                self.profile - 1
            } else {
                self.profile + 1
            };
            if up && !last && self.profile > 0 {
                // Nothing was gained upwards. Perhaps nothing is lost downwards.
                self.step(false, *before, true);
            } else {
                self.park();
            }
        }
    }

    fn step(&mut self, up: bool, before: Rates, last: bool) {
        self.profile = if up {
            self.profile + 1
        } else {
            self.profile - 1
        };
        self.search = Search::Stepped {
            up,
            before,
            settling: true,
            last,
        };
    }

    fn park(&mut self) {
        self.hold = if self.profile == self.parked_at {
            (self.hold * 2).min(HOLD_MAX)
        } else {
            HOLD_MIN
        };
        self.parked_at = self.profile;
        self.search = Search::Parked {
            reference: None,
            hold: self.hold,
            streak: 0,
        };
    }
}
