//! How much is offered, and how.

use std::fmt;
use std::str::FromStr;

/// Packets a second of [`Load::Trickle`]: so few that everybody has gone to sleep in between.
pub const TRICKLE_PPS: u64 = 2_000;
/// Packets that a producer submits at once under [`Load::Bulk`].
pub const BULK_PACKETS: usize = 32;

/// What the producers of one cell do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Load {
    /// [`TRICKLE_PPS`], one packet at a time.
    Trickle,
    /// So many percent of what the port took under direct dispatch, one packet at a time.
    Percent(u8),
    /// As fast as they can, one packet at a time.
    Saturation,
    /// As fast as they can, [`BULK_PACKETS`] at a time.
    Bulk,
}

impl Load {
    /// Whether packets are due at fixed times, so that what counts is how late they are.
    #[must_use]
    pub const fn is_paced(self) -> bool {
        matches!(self, Self::Trickle | Self::Percent(_))
    }

    /// Packets that a producer submits at once.
    #[must_use]
    pub const fn batch(self) -> usize {
        match self {
            Self::Bulk => BULK_PACKETS,
            _ => 1,
        }
    }

    /// Packets a second from all producers together, where `capacity` is what the port takes;
    /// `None` for as many as they can.
    #[must_use]
    pub const fn rate(self, capacity: u64) -> Option<u64> {
        match self {
            Self::Trickle => Some(TRICKLE_PPS),
            Self::Percent(percent) => {
                let rate = capacity / 100 * percent as u64;
                Some(if rate < TRICKLE_PPS {
                    TRICKLE_PPS
                } else {
                    rate
                })
            }
            Self::Saturation | Self::Bulk => None,
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trickle => f.pad("trickle"),
            Self::Percent(percent) => f.pad(&format!("{percent}%")),
            Self::Saturation => f.pad("saturation"),
            Self::Bulk => f.pad("bulk"),
        }
    }
}

impl FromStr for Load {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const TAKES: &str = "write trickle, 1% to 99% of capacity, saturation or bulk";
        match text {
            "trickle" => Ok(Self::Trickle),
            "saturation" => Ok(Self::Saturation),
            "bulk" => Ok(Self::Bulk),
            _ => {
                let percent = text.strip_suffix('%').and_then(|text| text.parse().ok());
                let percent = percent.filter(|percent| (1..=99).contains(percent));
                percent.map(Self::Percent).ok_or(TAKES)
            }
        }
    }
}
