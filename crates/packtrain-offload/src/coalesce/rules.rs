//! The rules: whether a packet continues a held one, and whether it ends it. They decide on headers
//! alone; the module's documentation lists them.

use super::config::{Config, Semantics};
use super::entry::{Ids, State};
use super::header::{
    TCP_ACK, TCP_CWR, TCP_FIN, TCP_PSH, TCP_RST, TCP_SYN, TCP_URG, array, load16, load32,
};
use super::parse::Parsed;
use super::shape::Shape;
use super::stats::{FlushReason, NotTaken};
use crate::limits::UDP_GSO_SEGMENTS_MAX;
use crate::segment::TCP_GSO_SIZE_MIN;

/// The decision for a packet whose flow is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is merged.
    Merge {
        /// If there is a reason, the result is handed on at once.
        then: Option<FlushReason>,
        /// How identifications change from here on.
        ids: Ids,
    },
    /// The held packet is handed on first.
    Refuse(FlushReason),
}

/// The decision for a packet whose flow is not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// It is held.
    Hold,
    /// It is handed on: it cannot be a first packet.
    Pass(NotTaken),
}

const IPV4_DF: u8 = 0x40;
/// Flags that a first packet may not have if it is to be restored.
pub(super) const NOT_FIRST: u8 = TCP_URG | TCP_PSH | TCP_RST | TCP_SYN | TCP_FIN;

/// Whether `new` may be the first packet of a merged one.
#[inline]
pub(super) fn start(config: &Config, new: &Parsed, head: &[u8]) -> Start {
    if new.shape.kind().is_tcp() {
        if !config.tcp {
            return Start::Pass(NotTaken::Off);
        }
        start_tcp(config, new, head)
    } else if !config.udp {
        Start::Pass(NotTaken::Off)
    } else if is_of_tunnel(config, array(head, new.shape.transport())) {
        Start::Pass(NotTaken::Tunnel)
    } else if new.payload_bytes == 0 {
        Start::Pass(NotTaken::Payload)
    } else {
        length(config, new)
    }
}

/// Whether `ports`, source and destination of UDP, are those of a tunnel that is not merged.
#[inline]
pub(super) const fn is_of_tunnel(config: &Config, ports: [u8; 4]) -> bool {
    let [s, t, d, e] = ports;
    match config.tunnels {
        Some(of) => {
            of.contain(u16::from_be_bytes([s, t])) || of.contain(u16::from_be_bytes([d, e]))
        }
        None => false,
    }
}

#[inline]
fn start_tcp(config: &Config, new: &Parsed, head: &[u8]) -> Start {
    match config.semantics {
        Semantics::Reversible => {
            // `tcp_gro_receive()` flushes such a packet immediately.
            match new.flags & NOT_FIRST {
                0 => {}
                TCP_PSH => return Start::Pass(NotTaken::Push),
                _ => return Start::Pass(NotTaken::Flags),
            }
            if new.payload_bytes < u32::from(TCP_GSO_SIZE_MIN) {
                return Start::Pass(NotTaken::Payload);
            }
        }
        Semantics::Stream => {
            // The low bits of byte 12 are flags too: AE of Accurate ECN, and reserved ones.
            let more = head[new.shape.transport() + 12] & 0x0F;
            if new.flags & !TCP_PSH != TCP_ACK || more != 0 {
                return Start::Pass(NotTaken::Flags);
            }
            if !plain_options(new, head) {
                return Start::Pass(NotTaken::Options);
            }
            // As the limit is reached, it would be handed on at once.
            if new.payload_bytes == 0 && config.ack_limit == 1 {
                return Start::Pass(NotTaken::Payload);
            }
        }
    }
    length(config, new)
}

#[inline]
fn length(config: &Config, new: &Parsed) -> Start {
    let bytes = new.ip_end - new.shape.network() as u32;
    if bytes > config.max_bytes {
        Start::Pass(NotTaken::Length)
    } else {
        Start::Hold
    }
}

/// No TCP options, or NOP, NOP and the timestamps (RFC 7323 appendix A).
#[inline]
fn plain_options(new: &Parsed, head: &[u8]) -> bool {
    match new.shape.timestamps_at() {
        Some(at) => array::<4>(head, at) == [1, 1, 8, 10],
        None => new.shape.header_bytes() - new.shape.transport() == 20,
    }
}

/// Whether `new`, whose header agrees with the held one's, continues it.
#[inline]
pub(super) fn continues(
    config: &Config,
    held: &State,
    held_head: &[u8],
    new: &Parsed,
    head: &[u8],
) -> Verdict {
    if config.semantics == Semantics::Stream && new.shape.kind().is_tcp() {
        stream(config, held, held_head, new, head)
    } else {
        continues_reversible(config, held, new)
    }
}

/// The same for `Reversible`, which needs no more of the headers than `held` and `new` contain.
#[inline(always)]
pub(super) fn continues_reversible(config: &Config, held: &State, new: &Parsed) -> Verdict {
    if new.shape.kind().is_tcp() {
        reversible_tcp(config, held, new)
    } else {
        udp(config, held, new)
    }
}

/// Flags that flush the held packet, also if other fields differ.
const fn ends(semantics: Semantics) -> u8 {
    match semantics {
        Semantics::Reversible => TCP_URG | TCP_RST | TCP_SYN | TCP_CWR,
        Semantics::Stream => !(TCP_ACK | TCP_PSH),
    }
}

/// Why `new` does not continue a held packet with a different header.
#[cold]
pub(super) fn mismatch(config: &Config, new: &Parsed) -> FlushReason {
    if new.shape.kind().is_tcp() && new.flags & ends(config.semantics) != 0 {
        FlushReason::Flags
    } else {
        FlushReason::Mismatch
    }
}

/// `tcp_gro_receive()` and `inet_gro_receive()` in Linux.
#[inline(always)]
fn reversible_tcp(config: &Config, held: &State, new: &Parsed) -> Verdict {
    if new.flags & ends(config.semantics) != 0 {
        return Verdict::Refuse(FlushReason::Flags);
    }
    let size = u32::from(held.size);
    if new.seq != held.next_seq || new.payload_bytes == 0 {
        return Verdict::Refuse(FlushReason::Order);
    }
    if new.payload_bytes > size {
        return Verdict::Refuse(FlushReason::Size);
    }
    if held.ip_bytes_with(new.payload_bytes) > config.max_bytes {
        return Verdict::Refuse(FlushReason::Full);
    }
    let Some(ids) = identification(config, held, new) else {
        return Verdict::Refuse(FlushReason::Order);
    };
    let then = if new.flags & (TCP_FIN | TCP_PSH) != 0 {
        Some(FlushReason::Flags)
    } else if new.payload_bytes < size {
        Some(FlushReason::Size)
    } else {
        None
    };
    Verdict::Merge { then, ids }
}

/// `udp_gro_receive_segment()` in Linux, with 64 datagrams at most.
#[inline(always)]
fn udp(config: &Config, held: &State, new: &Parsed) -> Verdict {
    let size = u32::from(held.size);
    if new.payload_bytes == 0 {
        return Verdict::Refuse(FlushReason::Order);
    }
    if new.payload_bytes > size {
        return Verdict::Refuse(FlushReason::Size);
    }
    if held.ip_bytes_with(new.payload_bytes) > config.max_bytes {
        return Verdict::Refuse(FlushReason::Full);
    }
    let Some(ids) = identification(config, held, new) else {
        return Verdict::Refuse(FlushReason::Order);
    };
    let then = if new.payload_bytes < size {
        Some(FlushReason::Size)
    } else if usize::from(held.count) + 1 >= UDP_GSO_SEGMENTS_MAX {
        Some(FlushReason::Full)
    } else {
        None
    };
    Verdict::Merge { then, ids }
}

/// How IPv4 identifications change if `new` is merged, or `None` if it may not be; the second
/// packet decides. A constant identification is only allowed with DF (RFC 6864 §4: then it has no
/// meaning).
#[inline(always)]
fn identification(config: &Config, held: &State, new: &Parsed) -> Option<Ids> {
    if new.shape.kind().is_ipv6() {
        return Some(Ids::Undecided);
    }
    let network = held.shape.network();
    let first = load16(&held.template, network + 4);
    let counted = new.id == first.wrapping_add(held.count);
    let fixed = new.id == first && held.template[network + 6] & IPV4_DF != 0 && config.fixed_id;
    match held.ids {
        Ids::Counting | Ids::Undecided if counted => Some(Ids::Counting),
        Ids::Fixed | Ids::Undecided if fixed => Some(Ids::Fixed),
        _ => None,
    }
}

/// `tcp_lro_condense()` in FreeBSD, without its losses: an acknowledgement never goes back, a
/// window never shrinks unseen, and no ECN mark vanishes.
#[inline]
fn stream(config: &Config, held: &State, held_head: &[u8], new: &Parsed, head: &[u8]) -> Verdict {
    let transport = held.shape.transport();
    if held.ids == Ids::Sealed {
        return Verdict::Refuse(FlushReason::Order);
    }
    if new.flags & ends(config.semantics) != 0 {
        return Verdict::Refuse(FlushReason::Flags);
    }
    if held
        .shape
        .timestamps_at()
        .is_some_and(|at| before(load32(head, at + 4), load32(held_head, at + 4)))
    {
        return Verdict::Refuse(FlushReason::Order);
    }
    let (ack, was) = (
        load32(head, transport + 8),
        load32(held_head, transport + 8),
    );
    if new.seq != held.next_seq || before(ack, was) {
        return Verdict::Refuse(FlushReason::Order);
    }
    // The same acknowledgement again is a duplicate that congestion control counts (RFC 5681 §2),
    // unless it opens the window.
    let window = load16(head, transport + 14);
    if new.payload_bytes == 0 && ack == was && window <= load16(held_head, transport + 14) {
        return Verdict::Refuse(FlushReason::Order);
    }
    // Data is limited by its length.
    let is_ack = new.payload_bytes == 0;
    let most = if is_ack { config.ack_limit } else { u16::MAX };
    if held.ip_bytes_with(new.payload_bytes) > config.max_bytes || held.count >= most {
        return Verdict::Refuse(FlushReason::Full);
    }
    Verdict::Merge {
        then: (is_ack && held.count + 1 == most).then_some(FlushReason::Full),
        ids: Ids::Undecided,
    }
}

/// Whether `new`, which does not continue `held`, may be a repetition of its acknowledgement. If
/// `new` is held next, no packet may be merged into it: the sender counts such packets (RFC 5681
/// §2).
#[inline]
pub(super) fn repeats(
    config: &Config,
    held: &State,
    held_head: &[u8],
    new: &Parsed,
    head: &[u8],
) -> bool {
    config.semantics == Semantics::Stream
        && new.shape.kind().is_tcp()
        && new.payload_bytes == 0
        && load32(head, new.shape.transport() + 8) == load32(held_head, held.shape.transport() + 8)
}

/// The fields of a TCP header that `stream` takes over from each packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fields {
    acknowledgement: [u8; 4],
    window: [u8; 2],
    timestamps: [u8; 8],
}

impl Fields {
    /// Reads them before the packet is consumed.
    pub(super) fn of(shape: Shape, head: &[u8]) -> Self {
        let transport = shape.transport();
        Self {
            acknowledgement: array(head, transport + 8),
            window: array(head, transport + 14),
            timestamps: shape
                .timestamps_at()
                .map_or([0; 8], |at| array(head, at + 4)),
        }
    }

    /// Stores them in a header of the same shape.
    pub(super) fn store(&self, shape: Shape, head: &mut [u8]) {
        let transport = shape.transport();
        head[transport + 8..transport + 12].copy_from_slice(&self.acknowledgement);
        head[transport + 14..transport + 16].copy_from_slice(&self.window);
        if let Some(at) = shape.timestamps_at() {
            head[at + 4..at + 12].copy_from_slice(&self.timestamps);
        }
    }
}

/// Whether sequence number (or timestamp) `a` is before `b`, modulo 2^32 (RFC 9293 §3.4).
#[inline]
pub(super) const fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}
