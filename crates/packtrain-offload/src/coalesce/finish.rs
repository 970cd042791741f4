//! The last thing that happens to a merged packet: its headers are made to say what it is.

use super::entry::{Ids, State};
use super::packet::Packet;
use super::parse::{TCP_CWR, load16, pseudo_header, store16};
use super::rules::Fields;
use super::stats::FlushReason;
use super::{Config, Finish, Merged, Semantics};
use crate::checksum::{self, Sum};
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
    let (network, transport) = (shape.network(), shape.transport());
    let header_bytes = shape.header_bytes();
    let transport_bytes = (header_bytes - transport) as u32 + u32::from(state.payload_bytes);
    let head = packet.head_mut(header_bytes)?;
    let pieces = state.count - state.absorbed;
    let running = load16(state.headers().unwrap_or(head), shape.checksum_at());
    // Every length is below 65 536: `Config::max_bytes` is.
    let ip_bytes = (transport - network) as u32 + transport_bytes;
    if shape.kind().is_ipv6() {
        store16(head, network + 4, (ip_bytes - 40) as u16);
    } else {
        // Only the length changes, and the checksum is right (RFC 1624, equation 3). What is held
        // has no checksum of ones, so that the result is the one that summing would give.
        let (before, sum) = (load16(head, network + 2), load16(head, network + 10));
        let sum = checksum::update_u16(sum, before, ip_bytes as u16);
        store16(head, network + 2, ip_bytes as u16);
        store16(head, network + 10, sum);
    }
    if shape.kind().is_tcp() {
        head[transport + 13] |= state.flags;
        if config.semantics == Semantics::Stream
            && let Some(kept) = state.headers()
        {
            Fields::of(shape, kept).store(shape, head);
        }
    } else {
        store16(head, transport + 4, transport_bytes as u16);
    }
    let cwr = shape.kind().is_tcp() && head[transport + 13] & TCP_CWR != 0;
    let mut sum = pseudo_header(head, shape, transport_bytes);
    let checksum = match config.finish {
        Finish::Partial => {
            store16(head, shape.checksum_at(), sum.fold());
            ChecksumState::Partial {
                start: transport as u16,
                offset: (shape.checksum_at() - transport) as u16,
            }
        }
        Finish::Complete => {
            store16(head, shape.checksum_at(), 0);
            sum.add(&head[transport..header_bytes]);
            sum.add_u16(running);
            let field = crate::segment::finish_partial(sum, !shape.kind().is_tcp());
            store16(head, shape.checksum_at(), field);
            ChecksumState::Unnecessary
        }
    };
    let gso = segment_size(state).map(|size| {
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
        checksum,
        layout: shape.layout(config.link, ip_end),
        pieces,
        absorbed: state.absorbed,
        reason,
    })
}

/// What a merged packet is cut into, if that is more than one piece.
///
/// `stream` merges payloads of any size: too small ones are cut into fewer pieces than they came
/// in, so that segmentation takes them. That can come to 49 bytes, which no MTU is too small for.
fn segment_size(state: &State) -> Option<NonZeroU16> {
    let payload = u32::from(state.payload_bytes);
    let size = if state.shape.kind().is_tcp() {
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
