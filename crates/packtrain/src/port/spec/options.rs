//! The kinds of port, each with the keys that only it has, and the wrappers around a driver.

use crate::port::null::Protocol;
use crate::port::sim::{CompletionDelay, Far, Interrupts};
use packtrain_capture::Format;
use packtrain_offload::offload::LinkType;
use std::path::PathBuf;
use std::time::Duration;

/// A kind of port, with the keys that only it has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortKind {
    /// A TAP device: Ethernet.
    Tap(TunTapOptions),
    /// A TUN device: raw IP.
    Tun(TunTapOptions),
    /// A capture file, read or written.
    Pcap(PcapOptions),
    /// A sink, and with `source` an endless or counted source.
    Null(NullOptions),
    /// A simulated NIC with descriptor rings.
    Sim(SimOptions),
}

impl PortKind {
    /// The text in front of the colon.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Tap(_) => "tap",
            Self::Tun(_) => "tun",
            Self::Pcap(_) => "pcap",
            Self::Null(_) => "null",
            Self::Sim(_) => "sim",
        }
    }

    /// Whether something is expected between the colon and the first key.
    pub(super) const fn is_named(&self) -> bool {
        matches!(self, Self::Tap(_) | Self::Tun(_) | Self::Pcap(_))
    }
}

/// Keys of `tap:` and `tun:` only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TunTapOptions {
    /// Open descriptors of the device, one for each queue (`fd=5+6`); empty to open it by name.
    pub fds: Vec<i32>,
}

/// Keys of `pcap:` only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcapOptions {
    /// The file is written; else it is read.
    pub write: bool,
    /// At its end the file is read again from its start.
    pub repeat: bool,
    /// When packets are read.
    pub pace: Pace,
    /// The format of a file to write; `None` goes by the file name: pcap for `.pcap`, else pcapng.
    pub format: Option<Format>,
    /// The link type of a file to write; `None` takes the other port's.
    pub link: Option<LinkType>,
}

/// When the packets of a capture file are due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// As fast as the other port takes them.
    #[default]
    Fast,
    /// With the gaps between their timestamps.
    Original,
}

/// Keys of `null:` only. `None` is the driver's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NullOptions {
    /// Packets come from it; else it only accepts them.
    pub source: bool,
    /// The protocol of its packets.
    pub protocol: Protocol,
    /// Bytes of each packet, link header included.
    pub bytes: Option<usize>,
    /// Packets until it ends; `None` for no limit.
    pub count: Option<u64>,
    /// Packets that one poll receives at most; `None` for a whole burst.
    pub burst: Option<usize>,
    /// Flows to which the packets belong; it alternates between them.
    pub flows: Option<usize>,
    /// Flows that alternate at a time; `None` for all.
    pub active: Option<usize>,
    /// Packets of each of these before the next flows.
    pub train: Option<usize>,
    /// Its TCP packets have timestamps.
    pub timestamps: bool,
    /// Packets of a hundred that come right after the packet that follows them.
    pub out_of_order: Option<u8>,
    /// The link type; `None` takes the other port's.
    pub link: Option<LinkType>,
}

/// Keys of `sim:` only. `None` is the driver's default. Its segment limit is
/// [`PortConfig::segments`](crate::driver::PortConfig::segments), its seed [`Wrappers::seed`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimOptions {
    /// Descriptors of each ring.
    pub rings: Option<usize>,
    /// The simulated other end.
    pub far: Far,
    /// When a sent packet is reported as done.
    pub completion_delay: CompletionDelay,
    /// Packets that each TX queue sends in a second; `None` for no limit.
    pub rate: Option<u64>,
    /// When a sent packet raises the interrupt, with a rate.
    pub interrupts: Interrupts,
    /// Sent packets are reported in an order drawn from the seed.
    pub shuffled: bool,
    /// Each TX queue is stalled from the start until it is reset.
    pub hang: bool,
    /// Sent packets, from the first, whose completions are lost; `None` for none.
    pub lose_completions: Option<u64>,
    /// Wake-ups for completions, from the first, that are lost; `None` for none.
    pub lose_wakeups: Option<u64>,
    /// One of this many received packets has a bad descriptor; `None` for none of them.
    pub bad_descriptors: Option<u64>,
    /// The time between changes of the link; `None` for a link that stays up.
    pub flap: Option<Duration>,
    /// A full RX ring pauses the sender.
    pub flow_control: bool,
    /// The link type; `None` takes the other port's.
    pub link: Option<LinkType>,
}

/// The wrappers around a driver: capture, trace, faults, and for tests a VLAN tag. The default is
/// none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wrappers {
    /// Writes every packet, both ways, to this pcapng file.
    pub capture: Option<PathBuf>,
    /// Prints every packet, both ways.
    pub trace: bool,
    /// Probability that a packet is lost, 0 to 1.
    pub drop: f64,
    /// Probability that a packet comes twice, 0 to 1.
    pub duplicate: f64,
    /// Probability that a packet's bytes are damaged, 0 to 1.
    pub corrupt: f64,
    /// Probability that a packet comes after its successor, 0 to 1.
    pub reorder: f64,
    /// The delay of each packet.
    pub delay: Duration,
    /// The seed of all chance, here and in a simulated NIC; `None` for a fixed default.
    pub seed: Option<u64>,
    /// Each packet from the device gets this VLAN tag (1 to 4094), and each packet to it loses it:
    /// the framework between the ports sees tagged traffic.
    pub vlan: Option<u16>,
}

impl Wrappers {
    /// Whether a fault injector is needed.
    #[must_use]
    pub fn has_faults(&self) -> bool {
        let chances = [self.drop, self.duplicate, self.corrupt, self.reorder];
        chances.iter().any(|&chance| chance > 0.0) || !self.delay.is_zero()
    }
}
