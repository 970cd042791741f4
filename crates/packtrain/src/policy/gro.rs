//! How many received packets are held to be merged, and for how long.
//!
//! Packets held leave at the end of a poll, when the queue is empty. If packets arrive as fast as
//! they are processed, no poll ends, and a packet may be held for ever: the livelock of FreeBSD's
//! `tcp_lro`, in which connections that mostly send wait for their ACKs. FreeBSD passes on packets
//! that were held for some time ([`Gro::inactive`]). Its author had tried three
//! alternatives, which are settings for experiments: no pure ACK is held ([`Gro::ack_limit`] of 1),
//! everything is passed on periodically ([`Gro::flush`]), or receiving stops periodically
//! ([`Gro::rx_pause`]).

#[cfg(test)]
mod tests;

use super::SettingError;
use super::setting::Parts;
use crate::limits::COALESCE_PACKETS_MAX;
use packtrain_offload::coalesce::Config;
use packtrain_offload::layout::TunnelPorts;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// The packets that [`Gro::flows`], [`Gro::packets`], [`Gro::rx_pause`] and [`Flush::Packets`] may
/// be.
pub const PACKETS: RangeInclusive<u32> = 1..=COALESCE_PACKETS_MAX as u32;
/// The bytes that [`Gro::bytes`] may be: an IP datagram.
pub const BYTES: RangeInclusive<u32> = 1..=65_535;
/// The packets that [`Gro::ack_limit`] may be.
pub const ACKS: RangeInclusive<u16> = 1..=u16::MAX;
/// The most microseconds of [`Flush::Usecs`].
pub const USECS_MAX: u32 = 10_000;

const TAKES: &str = "off, usecs(n) with n from 1 to 10000, or packets(n) with n from 1 to 65536";

/// When everything held is passed on, beside the end of a poll: the setting `gro-flush=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Flush {
    /// At no other time.
    #[default]
    Off,
    /// After a poll that begins this many microseconds after that of the first packet.
    Usecs(u32),
    /// After the poll that receives this packet, the first one held counting as 1.
    Packets(u32),
}

impl Flush {
    /// Whether everything held is passed on. The stage began to hold packets `since` ago, and has
    /// taken `packets` since then.
    #[must_use]
    pub fn is_due(self, since: Duration, packets: u64) -> bool {
        match self {
            Self::Off => false,
            Self::Usecs(n) => since >= Duration::from_micros(n.into()),
            Self::Packets(n) => packets >= n.into(),
        }
    }
}

impl fmt::Display for Flush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Usecs(n) => write!(f, "usecs({n})"),
            Self::Packets(n) => write!(f, "packets({n})"),
        }
    }
}

impl FromStr for Flush {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let parts = Parts::of("gro-flush", TAKES, text)?;
        match parts.word {
            "off" => parts.alone(Self::Off),
            "usecs" => {
                let n = parts.number(parts.arguments()?, "n", 1..=USECS_MAX)?;
                Ok(Self::Usecs(n))
            }
            "packets" => Ok(Self::Packets(parts.number(
                parts.arguments()?,
                "n",
                PACKETS,
            )?)),
            _ => Err(parts.unknown()),
        }
    }
}

/// The settings of merging received packets in software. `None` is the default of each use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gro {
    /// The most flows held at once, in [`PACKETS`]; at most [`Gro::packets`].
    pub flows: Option<u32>,
    /// The longest IP datagram that is made, in [`BYTES`].
    pub bytes: Option<u32>,
    /// The most packets held at once, in [`PACKETS`]. Beyond it all are passed on. Also the
    /// packets that are sorted at once.
    pub packets: Option<u32>,
    /// A merged packet is passed on with the pure ACK that is this packet of it, in [`ACKS`]. With
    /// 1, no pure ACK is held. Only the rules of streams merge pure ACKs.
    pub ack_limit: Option<u16>,
    /// While packets arrive, a packet is passed on that was held for
    /// [`COALESCE_HOLD_MAX`](crate::limits::COALESCE_HOLD_MAX) and longer than one turn.
    pub inactive: bool,
    /// When everything is passed on while packets arrive.
    pub flush: Flush,
    /// IPv4 packets with DF that all have one identification are not merged, since a device that
    /// segments them counts it up. Without, they are: the identification of such a packet has no
    /// meaning (RFC 6864 §4.1), and many systems send 0 always.
    pub exact_id: bool,
    /// The UDP ports whose packets are not merged, since a tunnel may end behind them.
    pub tunnels: TunnelPorts,
    /// The packets, in [`PACKETS`], after which the worker stops receiving: it passes on everything
    /// held, and continues as if the queue were empty.
    pub rx_pause: Option<u32>,
}

impl Default for Gro {
    fn default() -> Self {
        Self {
            flows: None,
            bytes: None,
            packets: None,
            ack_limit: None,
            inactive: true,
            flush: Flush::Off,
            exact_id: false,
            tunnels: TunnelPorts::KNOWN,
            rx_pause: None,
        }
    }
}

impl Gro {
    /// `config` with the limits that are set here.
    #[must_use]
    pub const fn limit(&self, mut config: Config) -> Config {
        if let Some(flows) = self.flows {
            config.flows = flows;
        }
        if let Some(packets) = self.packets {
            config.queue = packets;
        }
        if let Some(bytes) = self.bytes {
            config.max_bytes = bytes;
        }
        if let Some(limit) = self.ack_limit {
            config.ack_limit = limit;
        }
        if self.exact_id {
            config.fixed_id = false;
        }
        config.tunnels = Some(self.tunnels);
        config
    }

    /// The rule for constant identifications, as in `gro-id=`.
    #[must_use]
    pub const fn id(&self) -> &'static str {
        if self.exact_id { "exact" } else { "atomic" }
    }
}
