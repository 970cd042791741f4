//! The last thing that happens to a merged packet: its headers are made to say what it is.

use super::entry::{Ids, State};
use super::packet::Packet;
use super::parse::{TCP_CWR, array, load16, store16};
use super::rules::Fields;
use super::stats::FlushReason;
use super::{Config, Finish, Merged, Semantics};
use crate::checksum::{self, Sum};
use crate::layout::IpProtocol;
use crate::offload::{ChecksumState, Ecn, Gso};
use crate::segment::{TCP_GSO_SIZE_MIN, TCP_SEGMENTS_MAX};
use core::num::NonZeroU16;

/// Rewrites the headers of `packet`, which has more than one packet in it, and says what it is now.
/// `None` if its headers cannot be written to any more, which [`Packet::head_mut`] promised.
pub(super) fn finish<P: Packet>(
    config: &Config,
    state: &State,
    packet: &mut P,
    reason: FlushReason,
) -> Option<Merged> {
    let shape = state.shape;
    let (network, transport, header_bytes) =
        (shape.network(), shape.transport(), shape.header_bytes());
    let tcp = shape.kind().is_tcp();
    let transport_bytes = (header_bytes - transport) as u32 + u32::from(state.payload_bytes);
    // Every length is below 65 536: `Config::max_bytes` is.
    let ip_bytes = (transport - network) as u32 + transport_bytes;
    let head = packet.head_mut(header_bytes)?;
    if config.semantics == Semantics::Stream
        && tcp
        && let Some(kept) = state.headers()
    {
        Fields::of(shape, kept).store(shape, head);
    }
    let (ip, header) = head.split_at_mut_checked(transport)?;
    let ip = ip.get_mut(network..)?;
    let mut sum = if shape.kind().is_ipv6() {
        finish_ipv6(ip.first_chunk_mut()?, tcp, ip_bytes, transport_bytes)
    } else {
        finish_ipv4(ip.first_chunk_mut()?, tcp, ip_bytes, transport_bytes)
    };
    let cwr = if tcp {
        let flags = header.get_mut(13)?;
        *flags |= state.flags;
        *flags & TCP_CWR != 0
    } else {
        *header.get_mut(4..)?.first_chunk_mut()? = (transport_bytes as u16).to_be_bytes();
        false
    };
    let offset = shape.checksum_at() - transport;
    let field = match config.finish {
        Finish::Partial => sum.fold(),
        Finish::Complete => {
            let running = match state.headers() {
                Some(kept) => load16(kept, shape.checksum_at()),
                None => load16(header, offset),
            };
            store16(header, offset, 0);
            sum.add(header);
            sum.add_u16(running);
            crate::segment::finish_partial(sum, !tcp)
        }
    };
    *header.get_mut(offset..)?.first_chunk_mut()? = field.to_be_bytes();
    let gso = segment_size(config, state).map(|size| {
        let gso = Gso::new(shape.kind(), size).with_ecn(if cwr { Ecn::Cwr } else { Ecn::None });
        if state.ids == Ids::Fixed {
            gso.with_fixed_id()
        } else {
            gso
        }
    });
    let ip_end = header_bytes as u32 + u32::from(state.payload_bytes);
    Some(Merged {
        gso,
        checksum: match config.finish {
            Finish::Partial => ChecksumState::Partial {
                start: transport as u16,
                offset: offset as u16,
            },
            Finish::Complete => ChecksumState::Unnecessary,
        },
        layout: shape.layout(config.link, ip_end),
        pieces: state.count - state.absorbed,
        absorbed: state.absorbed,
        reason,
    })
}

/// Stores the length, and gives the sum of the pseudo-header.
#[inline(always)]
fn finish_ipv4(ip: &mut [u8; 20], tcp: bool, ip_bytes: u32, transport_bytes: u32) -> Sum {
    // Only the length changes, and the checksum is right. RFC 1624, equation 3, gives what summing
    // would give, since there is a length and so no sum is zero.
    let (before, checksum) = (load16(ip, 2), load16(ip, 10));
    let checksum = checksum::update_u16(checksum, before, ip_bytes as u16);
    store16(ip, 2, ip_bytes as u16);
    store16(ip, 10, checksum);
    let protocol = if tcp {
        IpProtocol::TCP
    } else {
        IpProtocol::UDP
    };
    checksum::pseudo_header_v4(array(ip, 12), array(ip, 16), protocol.0, transport_bytes)
}

/// The same.
#[inline(always)]
fn finish_ipv6(ip: &mut [u8; 40], tcp: bool, ip_bytes: u32, transport_bytes: u32) -> Sum {
    store16(ip, 4, (ip_bytes - 40) as u16);
    let protocol = if tcp {
        IpProtocol::TCP
    } else {
        IpProtocol::UDP
    };
    checksum::pseudo_header_v6(array(ip, 8), array(ip, 24), protocol.0, transport_bytes)
}

/// What a merged packet is cut into, if that is more than one piece.
///
/// `stream` merges payloads of any size: too small ones are cut into fewer pieces than they came
/// in, so that segmentation takes them. That can come to 49 bytes, which no MTU is too small for.
#[inline(always)]
fn segment_size(config: &Config, state: &State) -> Option<NonZeroU16> {
    let payload = u32::from(state.payload_bytes);
    let size = if config.semantics == Semantics::Stream && state.shape.kind().is_tcp() {
        let fewest = payload.div_ceil(TCP_SEGMENTS_MAX) as u16;
        state.size.max(TCP_GSO_SIZE_MIN).max(fewest)
    } else {
        state.size
    };
    NonZeroU16::new(size).filter(|size| payload > u32::from(size.get()))
}

/// Sum of the payload of a packet whose checksum is right, from its headers alone.
///
/// `headers` is the sum over the pseudo-header and the transport header, field included: everything
/// together sums to zero, so the payload is what is missing.
pub(super) fn payload_sum(headers: Sum) -> u16 {
    headers.finish()
}

/// The sum of `bytes` bytes and what follows them; `bytes` may be odd, and then the bytes that
/// follow are in the other halves of their words (RFC 1071 §2(B)).
pub(super) fn join(sum: u16, bytes: u32, next: u16) -> u16 {
    let next = if bytes % 2 == 1 {
        next.swap_bytes()
    } else {
        next
    };
    let sum = u32::from(sum) + u32::from(next);
    ((sum & 0xFFFF) + (sum >> 16)) as u16
}
