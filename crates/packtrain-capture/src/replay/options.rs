//! The settings of a replay, and the reasons why it fails.

use crate::codec::{MAX_INTERFACES, WriteError};
use packtrain_offload::coalesce::{Config, Finish, Mode, Semantics};
use packtrain_offload::flow::{TOEPLITZ_KEY_MICROSOFT, Toeplitz};
use packtrain_offload::layout::TunnelPorts;
use packtrain_offload::offload::LinkType;
use std::fmt;

/// The most packets of a window.
pub const SPAN_MAX: usize = 4096;
/// The most bytes of the packets of a window, without the last one.
pub const BYTES_MAX: usize = 32 << 20;

/// The most flows held at once, on each interface, unless set otherwise.
const FLOWS: u32 = 1024;

/// The key that most drivers and devices come with.
pub(super) static RSS: Toeplitz = Toeplitz::new(&TOEPLITZ_KEY_MICROSOFT);

/// The settings of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// The rules of merging; `None` merges no packets.
    pub coalesce: Option<Semantics>,
    /// The way to find flows.
    pub mode: Mode,
    /// How many packets each interface holds.
    pub limits: Limits,
    /// The split afterwards.
    pub segment: Segment,
    /// The length of a window, in nanoseconds of capture time.
    pub hold_ns: u64,
    /// The header of packets of the private link type
    /// [`LinkCode::USER0`](crate::LinkCode::USER0); `None` does not change them. packtrain uses it
    /// for packets with the 4-byte header of IP over InfiniBand ([`LinkType::Ipoib`]), since
    /// `LINKTYPE_IPOIB` needs 40 bytes before that header.
    pub user0: Option<LinkType>,
    /// The queues of each interface, up to [`QUEUES_MAX`]; 0 is one. A packet's queue is that of
    /// the Toeplitz hash of its addresses and ports with the usual key, in an indirection table of
    /// 128 entries that are filled in turn. Packets without a hash are in queue 0.
    pub queues: u16,
    /// An [`Intake`](super::Intake) looks at no payload: all checksums are taken as correct, also
    /// those of whole packets. For captures whose addresses were replaced.
    pub headers_only: bool,
}

/// The most queues of an interface: the entries of the indirection table.
pub const QUEUES_MAX: u16 = 128;

/// The split after coalescing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Segment {
    /// None.
    #[default]
    Off,
    /// Merged packets, into the original packets.
    Original,
    /// TCP packets whose IP datagram is longer than this many bytes, merged or not; merged UDP
    /// packets, into their datagrams; and IPv4 packets that are still longer and may be fragmented.
    Mtu(u32),
}

/// The limits of holding packets. `None` is the default of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The most flows held at once, up to [`Config::FLOWS_MAX`].
    pub flows: Option<u32>,
    /// The longest IP datagram that is made, in bytes.
    pub bytes: Option<u32>,
    /// The most packets held at once; the window ends beyond it. Also the packets that are sorted
    /// at once.
    pub packets: Option<u32>,
    /// A merged packet is passed on with the pure ACK that is this packet of it.
    pub ack_limit: Option<u16>,
    /// IPv4 packets with DF that all have one identification are not merged.
    pub exact_id: bool,
    /// The UDP ports whose packets are not merged.
    pub tunnels: TunnelPorts,
    /// A packet held for this many nanoseconds is passed on with the next packet.
    pub inactive_ns: Option<u64>,
    /// A window ends with this many packets.
    pub window_packets: Option<u32>,
}

impl Default for Options {
    /// `Reversible`, `Auto`, 1024 flows, no split, 50 µs, `USER0` not parsed, one queue.
    fn default() -> Self {
        Self {
            coalesce: Some(Semantics::Reversible),
            mode: Mode::Auto,
            limits: Limits::default(),
            segment: Segment::Off,
            hold_ns: 50_000,
            user0: None,
            queues: 1,
            headers_only: false,
        }
    }
}

impl Options {
    /// The settings of the coalescer of an interface whose packets start with `link`.
    #[must_use]
    pub const fn config(&self, semantics: Semantics, link: LinkType) -> Config {
        let limits = &self.limits;
        let mut config = Config::new(semantics, link, FLOWS);
        if let Some(flows) = limits.flows {
            config.flows = flows;
        }
        if let Some(packets) = limits.packets {
            config.queue = packets;
        }
        if let Some(bytes) = limits.bytes {
            config.max_bytes = bytes;
        }
        config.fixed_id = !limits.exact_id;
        config.tunnels = Some(limits.tunnels);
        if let Some(limit) = limits.ack_limit {
            config.ack_limit = limit;
        }
        config.mode = self.mode;
        config.finish = Finish::Complete;
        config
    }
}

/// The reason why a replay failed. A truncated capture is no failure:
/// [`Report::stopped`](super::Report::stopped).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayError {
    /// [`Segment::Original`] after [`Semantics::Stream`], which cannot be undone.
    NotReversible,
    /// More than [`MAX_INTERFACES`] different interfaces in all sections.
    TooManyInterfaces,
    /// The output failed.
    Output(WriteError),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReversible => f.write_str(
                "stream coalescing cannot be undone: use reversible, or do not request the \
                 original packets",
            ),
            Self::TooManyInterfaces => write!(
                f,
                "more than {MAX_INTERFACES} different interfaces in all sections of the capture: \
                 replay its sections one by one"
            ),
            Self::Output(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReplayError {}

impl From<WriteError> for ReplayError {
    fn from(error: WriteError) -> Self {
        Self::Output(error)
    }
}

/// The queue of a packet with this hash: by an indirection table of 128 entries, filled in turn, as
/// drivers fill it.
pub(super) const fn queue_of(rss: u32, queues: u16) -> u16 {
    match queues {
        0 | 1 => 0,
        _ => (rss % QUEUES_MAX as u32 % queues as u32) as u16,
    }
}
