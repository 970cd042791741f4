//! Ports: a driver and its requested settings.

use super::key::{Field, Key, Takes, Value, Words, Wrong, keys, number};
use super::{Driver, Features, RxBuffers};
use crate::limits::{
    MTU_MIN, QUEUES_MAX, RX_PIECE_BYTES_MIN, SEGMENT_HEADROOM_MAX, SEGMENTS_FRAMEWORK_MAY_ADD,
    SEGMENTS_MAX,
};
use crate::policy::dispatch::Dispatch;
use crate::policy::gro::{self, Gro};
use crate::policy::moderation::Moderation;
use packtrain_offload::layout::TunnelPorts;
use std::fmt;

/// The most addresses that a bridge may be asked to remember; they take 32 MiB.
pub const ADDRESSES_MAX: usize = 1 << 20;

/// Whether and how packtrain merges packets of a port in software, for the other port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coalesce {
    /// If the other port accepts large packets, gains by them, and this port delivers none.
    #[default]
    Auto,
    /// Never.
    Off,
    /// As `Auto`, also if the other port gains nothing by them.
    On,
    /// As `On`, always with a table of flows.
    Hash,
    /// As `On`, always with sorting.
    Sorted,
    /// As `On`, and merging keeps byte streams instead of packets: it also merges TCP segments of
    /// unequal sizes, and pure ACKs. Segmentation does not restore the same packets.
    Stream,
    /// As `Stream`, always with a table of flows.
    StreamHash,
    /// As `Stream`, always with sorting.
    StreamSorted,
}

impl Coalesce {
    /// Whether merging keeps byte streams instead of packets.
    pub(crate) const fn keeps_streams(self) -> bool {
        matches!(self, Self::Stream | Self::StreamHash | Self::StreamSorted)
    }
}

impl Words for Coalesce {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("auto", Self::Auto),
        ("off", Self::Off),
        ("on", Self::On),
        ("hash", Self::Hash),
        ("sorted", Self::Sorted),
        ("stream", Self::Stream),
        ("stream-hash", Self::StreamHash),
        ("stream-sorted", Self::StreamSorted),
    ];
}

impl fmt::Display for Coalesce {
    /// As in `coalesce=`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// What is done with a packet of too many segments for the device after neighbouring segments were
/// merged in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fit {
    /// It is dropped (`too_many_segments`), as iflib did before it called `m_defrag` (S0). For
    /// experiments.
    Collapse,
    /// It is copied into fresh frames, and dropped only if that fails.
    #[default]
    Defrag,
}

impl Words for Fit {
    const WORDS: &'static [(&'static str, Self)] =
        &[("defrag", Self::Defrag), ("collapse", Self::Collapse)];
}

impl fmt::Display for Fit {
    /// As in `fit=`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Settings of a port's queues. `None` is the setting of the session (`engine::Settings`). Settings
/// of a thread are not among them, since one thread has queues of both ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueConfig {
    /// Dispatch mode of the port's TX queues.
    pub dispatch: Option<Dispatch>,
    /// Interrupt moderation of the port's RX queues.
    pub moderation: Option<Moderation>,
    /// The port's TX queues are shared (`tx=shared`), also if the plan would make them owned. For
    /// experiments.
    pub shared: bool,
    /// Lanes put packets into the rings of the port's TX queues one by one (`handover=packet`), as
    /// a system without batches does (S4). The queues are shared then. For experiments.
    pub by_packet: bool,
}

/// The requested settings of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// The offloads that may be used, in both directions.
    pub offload: Features,
    /// A scatter-gather limit lower than the device's.
    pub segments: Option<usize>,
    /// As `segments`, for GSO packets; `None` for the same limit.
    pub gso_segments: Option<usize>,
    /// The segments by which the advertised limit is lower than the effective one: what the
    /// framework may add to a packet that was built to the limit. 1 by default, at most
    /// [`SEGMENT_HEADROOM_MAX`](crate::limits::SEGMENT_HEADROOM_MAX).
    pub segment_headroom: usize,
    /// How packets with too many segments are made to fit.
    pub fit: Fit,
    /// The most bytes of a wire packet to the port, without link header and two VLAN tags, if the
    /// device takes longer ones: [`MTU_MIN`](crate::limits::MTU_MIN) to 65535.
    pub mtu: Option<u32>,
    /// Queues; 1 by default.
    pub queues: Option<usize>,
    /// Buffers to receive into; by default the plan chooses them by the other port.
    pub rx_buffers: Option<RxBuffers>,
    /// Merging of packets from the port.
    pub coalesce: Coalesce,
    /// How many of them are held to be merged, and for how long.
    pub gro: Gro,
    /// Of a port of a [`Bridge`](crate::bridge::Bridge), which is given it by
    /// [`Addresses::bound`](crate::bridge::Addresses::bound): the addresses behind the port that
    /// are remembered.
    pub addresses: Option<usize>,
    /// Settings of the port's queues.
    pub work: QueueConfig,
}

impl PortConfig {
    /// The keys that every kind of port has.
    pub(crate) const KEYS: &'static [Key<Self>] = keys! { Self;
        "queues" (Range(1, QUEUES_MAX as u64)) queues:
            "queues to open, in both directions; 1 by default, of `xdp:` all";
        "offload" (Text(Features::TAKES)) offload:
            "offloads that may be used; checksums that they need are added";
        "segs" (Range(1, SEGMENTS_MAX as u64)) segments:
            "segments of a packet at most (scatter-gather limit)";
        "gso-segs" (Range(1, SEGMENTS_MAX as u64)) gso_segments:
            "as segs, for GSO packets; without it as many as segs";
        "headroom" (Range(0, SEGMENT_HEADROOM_MAX as u64)) segment_headroom:
            "segments that packets for this port are built below its limit, for headers added \
             later; 1 by default";
        "fit" (Words) fit:
            "a packet of too many segments has neighbours merged; then it is copied whole, or \
             dropped";
        "mtu" (Range(MTU_MIN as u64, u16::MAX as u64)) mtu:
            "bytes of a packet to the port at most, without link header and two VLAN tags; longer \
             ones are dropped (drop.mtu), and so are GSO packets of longer segments; without it \
             only the MTU of a packet: or xdp: interface or of a card counts";
        "rx" (Text("auto|whole|pieces|pieces(256..1792)")) rx_buffers:
            "receive large packets whole, or in pieces of as many bytes";
        "coalesce" (Words) coalesce: "merging of received packets in software";
        "gro-flows" (Range(1, *gro::PACKETS.end() as u64)) gro.flows:
            "flows held at once by merging; as many as packets by default";
        "gro-bytes" (Range(1, *gro::BYTES.end() as u64)) gro.bytes:
            "bytes of a merged IP packet at most; 65535 by default, with stream 65280";
        "gro-packets" (Range(1, *gro::PACKETS.end() as u64)) gro.packets:
            "packets held at once by merging; with more, all are passed on; 1024 by default";
        "gro-inactive" (Switch("off", "on")) gro.inactive:
            "while packets arrive, pass on packets that were held for 200 us; on by default";
        "gro-flush" (Setting("off|usecs(n)|packets(n)")) gro.flush:
            "while packets arrive, pass on everything held this often (for experiments)";
        "gro-id" (Switch("atomic", "exact")) gro.exact_id:
            "exact: IPv4 packets with DF that all have one identification are not merged; \
             atomic by \
             default";
        "tunnel-ports" (Text("PORT, or as many as 8: 7471+51820")) gro.tunnels:
            "UDP ports of further tunnels, whose packets are not merged; those of VXLAN and GENEVE \
             (4789, 4790, 6081, 8472) always are among them";
        "ack-limit" (Range(1, *gro::ACKS.end() as u64)) gro.ack_limit:
            "with coalesce=stream: the pure ACK that is this packet of a merged one passes it on; \
             with 1 no pure ACK is held";
        "rx-pause" (Range(1, *gro::PACKETS.end() as u64)) gro.rx_pause:
            "packets after which receiving stops, as if the queue were empty (for experiments)";
        "addresses" (Range(1, ADDRESSES_MAX as u64)) addresses:
            "among three and more ports: addresses behind the port that the bridge remembers at \
             most; without it only --addresses counts, and a full table forgets one of the port \
             that has most";
        "dispatch" (Setting("direct|deferred|abdicate|threshold(n)|adaptive")) work.dispatch:
            "which thread drains the rings of its TX queues; takes precedence over --dispatch";
        "moderation" (Setting("off|fixed(usecs,frames)|adaptive")) work.moderation:
            "how long its RX queues delay wake-ups; takes precedence over --moderation";
        "tx" (Switch("auto", "shared")) work.shared:
            "shared: always put a ring and a TX worker in front of its TX queues";
        "handover" (Switch("burst", "packet")) work.by_packet:
            "packet: put received packets into the rings of its TX queues one by one (for \
             experiments)";
    };

    /// Checks what needs several settings.
    ///
    /// # Errors
    ///
    /// One line with what, why and what to do.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.gro.ack_limit.is_none() || self.coalesce.keeps_streams() {
            return Ok(());
        }
        Err(
            "key 'ack-limit' is for coalesce=stream, which alone merges pure ACKs; add \
             coalesce=stream, or leave 'ack-limit' out"
                .to_owned(),
        )
    }
}

/// `auto` is no value of the type: the plan chooses.
impl Field for Option<RxBuffers> {
    fn set(&mut self, text: &str, _: Takes) -> Result<(), Wrong> {
        let pieces = text.strip_prefix("pieces(");
        *self = match (text, pieces.and_then(|rest| rest.strip_suffix(')'))) {
            ("auto", _) => None,
            ("whole", _) => Some(RxBuffers::Whole),
            ("pieces", _) => Some(RxBuffers::PIECES),
            (_, Some(bytes)) => {
                let most = RxBuffers::PIECES.small_bytes() as u64;
                let bytes = number(bytes, RX_PIECE_BYTES_MIN as u64, most)?;
                Some(RxBuffers::Pieces { bytes })
            }
            (_, None) => return Err(Wrong::Value),
        };
        Ok(())
    }

    fn show(&self, _: Takes) -> Option<String> {
        self.map(|buffers| buffers.to_string())
    }

    fn words(&self) -> String {
        String::new()
    }
}

/// Those of other tunnels.
impl Value for TunnelPorts {
    fn read(text: &str, _: Takes) -> Result<Self, Wrong> {
        let ports = text.split('+').map(|port| number(port, 1, u16::MAX.into()));
        Self::with_other(&ports.collect::<Result<Vec<_>, _>>()?).ok_or(Wrong::Value)
    }

    fn text(&self, _: Takes) -> String {
        self.to_string()
    }
}

/// A driver and its requested settings: a session is built from ports.
#[derive(Debug)]
pub struct Port<D> {
    /// The driver.
    pub driver: D,
    /// The requested settings.
    pub config: PortConfig,
}

impl<D> From<D> for Port<D> {
    /// The driver with the default settings.
    fn from(driver: D) -> Self {
        Self {
            driver,
            config: PortConfig::default(),
        }
    }
}

/// Conversion to a [`Port`]: of a port itself, or of a driver with the default settings.
pub trait IntoPort {
    /// The driver's type.
    type Driver: Driver;

    /// The port.
    fn into_port(self) -> Port<Self::Driver>;
}

impl<D: Driver> IntoPort for Port<D> {
    type Driver = D;

    fn into_port(self) -> Self {
        self
    }
}

impl<D: Driver> IntoPort for D {
    type Driver = D;

    fn into_port(self) -> Port<D> {
        self.into()
    }
}

impl Default for PortConfig {
    fn default() -> Self {
        Self {
            offload: Features::ALL,
            segments: None,
            gso_segments: None,
            segment_headroom: SEGMENTS_FRAMEWORK_MAY_ADD,
            fit: Fit::Defrag,
            mtu: None,
            queues: None,
            rx_buffers: None,
            coalesce: Coalesce::Auto,
            gro: Gro::default(),
            addresses: None,
            work: QueueConfig::default(),
        }
    }
}
