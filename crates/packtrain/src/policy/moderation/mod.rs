//! When an RX queue signals: how long it may hold a signal back, and how many packets end that.
//!
//! Fewer signals cost less and take longer. The adaptive setting has the idea of the kernel's DIM
//! (`lib/dim/net_dim.c`): take a step, and see whether more bytes, more packets or fewer signals
//! came of it. It departs from DIM where DIM fails:
//!
//! - DIM begins by comparing with nothing, so a constant load makes it hop between two profiles for
//!   good. Here a step that gains nothing is taken back, and the next one waits until the load is
//!   another (`adaptive.rs`).
//! - DIM compares one window of 64 signals with another, and takes what chance alone makes of a
//!   constant load for a change. Here both are averages, and what differs is more than their own
//!   spread explains (`load.rs`).
//! - DIM's first step is one profile, which is shorter than the gaps between packets where these
//!   are far apart, and gains nothing there. Here the first step is to one that puts two together.
//! - To DIM fewer signals are better, always. Here only while they are many ([`EVENTS_FINE`]); then
//!   latency is worth more.
//! - While the load is so light that no profile could put two packets together, there is no
//!   moderation at all, from the first look on.

mod adaptive;
mod load;
#[cfg(test)]
mod tests;

use adaptive::Adaptive;

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
            let signal = Signal::of(adaptive.profile());
            self.changes += u64::from(signal != self.signal);
            self.signal = signal;
        }
        self.signal
    }
}
