//! Finishing a merged packet: its headers are rewritten to describe the whole.

use super::config::{Config, Finish, Semantics};
use super::done::Merged;
use super::entry::{Ids, State};
use super::header::{TCP_CWR, WIDE, array, load16, store16};
use super::mask::Recent;
use super::packet::Packet;
use super::rules::Fields;
use super::shape::{Shape, places};
use super::stats::FlushReason;
use crate::checksum::{self, Sum};
use crate::layout::{IpProtocol, Layout};
use crate::offload::{ChecksumState, Ecn, Gso, GsoKind};
use crate::segment::TCP_GSO_SIZE_MIN;
use core::num::NonZeroU16;

/// Rewrites the headers of `packet`, which contains more than one packet, and returns its
/// description. `None` if its headers are no longer writable, contrary to the promise of
/// [`Packet::head_mut`].
#[inline(always)]
pub(super) fn finish<P: Packet>(
    config: &Config,
    recent: &Recent,
    state: &State,
    packet: &mut P,
    reason: FlushReason,
) -> Option<Merged> {
    if state.shape == recent.shape
        && config.semantics == Semantics::Reversible
        && config.finish == Finish::Partial
        && let Some(head) = packet.head_mut(WIDE)
        && let Some(head) = head.first_chunk_mut::<WIDE>()
    {
        return match state.shape.kind() {
            GsoKind::TcpV4 => common::<{ GsoKind::TcpV4 as u8 }>(recent, state, head, reason),
            GsoKind::TcpV6 => common::<{ GsoKind::TcpV6 as u8 }>(recent, state, head, reason),
            GsoKind::UdpV4 => common::<{ GsoKind::UdpV4 as u8 }>(recent, state, head, reason),
            GsoKind::UdpV6 => common::<{ GsoKind::UdpV6 as u8 }>(recent, state, head, reason),
        };
    }
    any(config, state, packet, reason)
}

/// A packet of a common shape, for `Reversible` with partial checksums.
#[inline(always)]
fn common<const KIND: u8>(
    recent: &Recent,
    state: &State,
    head: &mut [u8; WIDE],
    reason: FlushReason,
) -> Option<Merged> {
    let shape = state.shape.of_kind::<KIND>();
    let lengths = Lengths::of(shape, state);
    let (_, network, transport) = places(shape);
    let (sum, cwr) = rewrite(shape, (network, transport), &lengths, state, head)?;
    store16(head, transport + offset_of(shape.kind()), sum.fold());
    let size = NonZeroU16::new(state.size);
    let checksum = ChecksumState::Partial {
        start: transport as u16,
        offset: offset_of(shape.kind()) as u16,
    };
    let ip_end = recent.header_bytes + u32::from(state.payload_bytes);
    let layout = shape.layout(recent.vlans, ip_end);
    Some(merged(state, shape, size, cwr, checksum, layout, reason))
}

/// A packet of any shape.
#[inline(never)]
fn any<P: Packet>(
    config: &Config,
    state: &State,
    packet: &mut P,
    reason: FlushReason,
) -> Option<Merged> {
    let shape = state.shape;
    let (tcp, transport) = (shape.kind().is_tcp(), shape.transport());
    let head = packet.head_mut(shape.header_bytes())?;
    let lengths = Lengths::of(shape, state);
    let (mut sum, cwr) = rewrite(shape, (shape.network(), transport), &lengths, state, head)?;
    if config.semantics == Semantics::Stream
        && tcp
        && let Some(kept) = state.headers()
    {
        Fields::of(shape, kept).store(shape, head);
    }
    let at = shape.checksum_at();
    let (field, checksum) = match config.finish {
        Finish::Partial => {
            let checksum = ChecksumState::Partial {
                start: transport as u16,
                offset: offset_of(shape.kind()) as u16,
            };
            (sum.fold(), checksum)
        }
        Finish::Complete => {
            let running = load16(state.headers().unwrap_or(head), at);
            store16(head, at, 0);
            sum.add(&head[transport..]);
            sum.add_u16(running);
            let field = crate::segment::finish_partial(sum, !tcp);
            (field, ChecksumState::Unnecessary)
        }
    };
    store16(head, at, field);
    let ip_end = shape.header_bytes() as u32 + u32::from(state.payload_bytes);
    let layout = shape.layout(shape.vlans(config.link), ip_end);
    let size = segment_size(state);
    Some(merged(state, shape, size, cwr, checksum, layout, reason))
}

/// The lengths to store in the headers. Each is below 65 536 because `Config::max_bytes` is.
struct Lengths {
    transport: u32,
    ip: u32,
}

impl Lengths {
    #[inline(always)]
    fn of(shape: Shape, state: &State) -> Self {
        let transport = (shape.header_bytes() - shape.transport()) as u32;
        let transport = transport + u32::from(state.payload_bytes);
        Self {
            transport,
            ip: (shape.transport() - shape.network()) as u32 + transport,
        }
    }
}

/// Where the checksum is in the transport header.
const fn offset_of(kind: GsoKind) -> usize {
    if kind.is_tcp() { 16 } else { 6 }
}

/// Stores lengths, the IPv4 header checksum and flags. Returns the sum of the pseudo-header, and
/// whether the CWR flag is set.
#[inline(always)]
fn rewrite(
    shape: Shape,
    (network, transport): (usize, usize),
    lengths: &Lengths,
    state: &State,
    head: &mut [u8],
) -> Option<(Sum, bool)> {
    let tcp = shape.kind().is_tcp();
    let ip = head.get_mut(network..)?;
    let sum = if shape.kind().is_ipv6() {
        finish_ipv6(ip.first_chunk_mut()?, tcp, lengths)
    } else {
        finish_ipv4(ip.first_chunk_mut()?, tcp, lengths)
    };
    let header = head.get_mut(transport..)?;
    let cwr = if tcp {
        let flags = header.get_mut(13)?;
        *flags |= state.flags;
        *flags & TCP_CWR != 0
    } else {
        *header.get_mut(4..)?.first_chunk_mut()? = (lengths.transport as u16).to_be_bytes();
        false
    };
    Some((sum, cwr))
}

#[inline(always)]
fn merged(
    state: &State,
    shape: Shape,
    size: Option<NonZeroU16>,
    cwr: bool,
    checksum: ChecksumState,
    layout: Layout,
    reason: FlushReason,
) -> Merged {
    let gso = size.map(|size| {
        let gso = Gso::new(shape.kind(), size).with_ecn(if cwr { Ecn::Cwr } else { Ecn::None });
        if state.ids == Ids::Fixed {
            gso.with_fixed_id()
        } else {
            gso
        }
    });
    Merged {
        gso,
        checksum,
        layout,
        pieces: state.count - state.absorbed,
        absorbed: state.absorbed,
        reason,
    }
}

/// Stores the length, and returns the sum of the pseudo-header.
#[inline(always)]
fn finish_ipv4(ip: &mut [u8; 20], tcp: bool, lengths: &Lengths) -> Sum {
    // Only the length changes, and the checksum is correct. RFC 1624, equation 3, gives the same as
    // summing anew: the length is not zero, and so no sum is.
    let (before, checksum) = (load16(ip, 2), load16(ip, 10));
    let checksum = checksum::update_u16(checksum, before, lengths.ip as u16);
    store16(ip, 2, lengths.ip as u16);
    store16(ip, 10, checksum);
    let protocol = if tcp {
        IpProtocol::TCP
    } else {
        IpProtocol::UDP
    };
    checksum::pseudo_header_v4(array(ip, 12), array(ip, 16), protocol.0, lengths.transport)
}

/// The same for IPv6.
#[inline(always)]
fn finish_ipv6(ip: &mut [u8; 40], tcp: bool, lengths: &Lengths) -> Sum {
    store16(ip, 4, (lengths.ip - 40) as u16);
    let protocol = if tcp {
        IpProtocol::TCP
    } else {
        IpProtocol::UDP
    };
    checksum::pseudo_header_v6(array(ip, 8), array(ip, 24), protocol.0, lengths.transport)
}

/// The segment size of a merged packet, if it has more than one piece.
///
/// `stream` merges payloads of any size. If they are too small for segmentation, the segment size
/// is raised: it cuts fewer pieces than arrived.
fn segment_size(state: &State) -> Option<NonZeroU16> {
    let payload = u32::from(state.payload_bytes);
    let size = if state.shape.kind().is_tcp() {
        state.size.max(TCP_GSO_SIZE_MIN)
    } else {
        state.size
    };
    NonZeroU16::new(size).filter(|size| payload > u32::from(size.get()))
}

/// Sum of the payload of a packet whose checksum is correct, from its headers alone.
///
/// `headers` is the sum over the pseudo-header and the transport header, checksum field included.
/// Headers and payload together sum to zero, so the payload's sum is the complement.
pub(super) fn payload_sum(headers: Sum) -> u16 {
    headers.finish()
}

/// The sum of `bytes` bytes and the bytes after them, whose sum is `next`. If `bytes` is odd, the
/// following bytes are in the other halves of their words (RFC 1071 §2(B)).
pub(super) fn join(sum: u16, bytes: u32, next: u16) -> u16 {
    let next = if bytes % 2 == 1 {
        next.swap_bytes()
    } else {
        next
    };
    let sum = u32::from(sum) + u32::from(next);
    ((sum & 0xFFFF) + (sum >> 16)) as u16
}
