//! The fast path for the most common packet: the next one of a run, exactly where the last ended.
//!
//! It is not parsed. If all its header bits agree with those of a parsed packet, except the fields
//! that count up, then so do all fields that a parser reads. Only the fields that count up are
//! checked. All other packets go to the rules, which would decide the same on a packet taken here.

use super::done::Done;
use super::entry::{First, Ids, State};
use super::header::{TCP_CWR, TCP_FIN, TCP_PSH, WIDE, array};
use super::mask::Recent;
use super::packet::{AppendError, Packet};
use super::parse;
use super::rules::is_of_tunnel;
use super::shape::{Shape, places};
use super::stats::{FlushReason, NotTaken};
use super::work::Work;
use crate::checksum::Sum;
use crate::limits::UDP_GSO_SEGMENTS_MAX;
use crate::offload::{ChecksumState, GsoKind};
use crate::segment::TCP_GSO_SIZE_MIN;

impl<P: Packet> Work<'_, P> {
    /// Takes packets, most of which are expected to be parts of runs; returns how many there were.
    #[inline(always)]
    pub(super) fn take_runs(
        &mut self,
        mut packets: impl Iterator<Item = P>,
        sink: &mut impl FnMut(P, &Done),
    ) -> u64 {
        let (mut count, mut left) = (0, true);
        while left {
            // One loop for each kind, so that the loop does not branch on the kind.
            let (packets, count) = (&mut packets, &mut count);
            left = match self.core.masks.recent().shape.kind() {
                GsoKind::TcpV4 => self.run::<{ GsoKind::TcpV4 as u8 }>(packets, count, sink),
                GsoKind::TcpV6 => self.run::<{ GsoKind::TcpV6 as u8 }>(packets, count, sink),
                GsoKind::UdpV4 => self.run::<{ GsoKind::UdpV4 as u8 }>(packets, count, sink),
                GsoKind::UdpV6 => self.run::<{ GsoKind::UdpV6 as u8 }>(packets, count, sink),
            };
        }
        count
    }

    /// Takes packets until another kind is held; returns whether that happened.
    #[inline(always)]
    fn run<const KIND: u8>(
        &mut self,
        packets: &mut impl Iterator<Item = P>,
        count: &mut u64,
        sink: &mut impl FnMut(P, &Done),
    ) -> bool {
        for packet in packets {
            *count += 1;
            if let Err(packet) = self.next_of_kind::<KIND>(packet, sink) {
                self.take_parsed(packet, sink);
                if self.core.masks.recent().shape.kind() as u8 != KIND {
                    return true;
                }
            }
        }
        false
    }

    /// Merges `packet` if it is the next one of a run, or holds it if it is a first packet of the
    /// shape held last. Returns it if it is neither. `Reversible` with partial checksums only.
    #[inline(always)]
    fn next_of_kind<const KIND: u8>(
        &mut self,
        packet: P,
        sink: &mut impl FnMut(P, &Done),
    ) -> Result<(), P> {
        let Some(head) = packet.head().first_chunk() else {
            return Err(packet);
        };
        let shape = self.core.masks.recent().shape.of_kind::<KIND>();
        let last = self.core.last;
        if self.table.entries[last as usize].state.awaits(shape, head) {
            return self.next_of_entry::<KIND>(last, packet, sink);
        }
        let hash = parse::hash_at(shape, head, self.core.config.seed);
        match self.table.candidate(hash) {
            Some(index) => {
                self.core.last = index;
                self.next_of_entry::<KIND>(index, packet, sink)
            }
            None => self.first_of_kind::<KIND>(hash, packet, sink),
        }
    }

    /// Takes a packet whose flow was looked up earlier: `hash` and `entry` are the result, for the
    /// shape that was held last at that time.
    #[inline(never)]
    pub(super) fn take_found(
        &mut self,
        packet: P,
        shape: Shape,
        hash: u64,
        entry: Option<u32>,
        sink: &mut impl FnMut(P, &Done),
    ) {
        let now = self.core.masks.recent().shape;
        let taken = match now.kind() {
            _ if now != shape => Err(packet),
            GsoKind::TcpV4 => {
                self.found_of_kind::<{ GsoKind::TcpV4 as u8 }>(packet, hash, entry, sink)
            }
            GsoKind::TcpV6 => {
                self.found_of_kind::<{ GsoKind::TcpV6 as u8 }>(packet, hash, entry, sink)
            }
            GsoKind::UdpV4 => {
                self.found_of_kind::<{ GsoKind::UdpV4 as u8 }>(packet, hash, entry, sink)
            }
            GsoKind::UdpV6 => {
                self.found_of_kind::<{ GsoKind::UdpV6 as u8 }>(packet, hash, entry, sink)
            }
        };
        if let Err(packet) = taken {
            self.take_parsed(packet, sink);
        }
    }

    #[inline(always)]
    fn found_of_kind<const KIND: u8>(
        &mut self,
        packet: P,
        hash: u64,
        entry: Option<u32>,
        sink: &mut impl FnMut(P, &Done),
    ) -> Result<(), P> {
        // An entry not found then may exist now. An entry found then that has been reused for
        // another flow does not agree with the packet.
        match entry.or_else(|| self.table.candidate(hash)) {
            Some(index) => self.next_of_entry::<KIND>(index, packet, sink),
            None => self.first_of_kind::<KIND>(hash, packet, sink),
        }
    }

    #[inline(always)]
    fn next_of_entry<const KIND: u8>(
        &mut self,
        index: u32,
        packet: P,
        sink: &mut impl FnMut(P, &Done),
    ) -> Result<(), P> {
        let recent = self.core.masks.recent();
        let shape = recent.shape.of_kind::<KIND>();
        let Some(head) = packet.head().first_chunk() else {
            return Err(packet);
        };
        let entry = &mut self.table.entries[index as usize];
        let (state, Some(held)) = (&mut entry.state, &mut entry.packet) else {
            return Err(packet);
        };
        let Some(ids) = is_next::<KIND>(recent, shape, state, head) else {
            return Err(packet);
        };
        if !recent.fits(u32::from(state.payload_bytes) + u32::from(state.size))
            || is_last_datagram(shape.kind(), state.count)
            || packet.bytes() != recent.header_bytes + u32::from(state.size)
            || packet.aside() != state.aside
            || packet.gso().is_some()
        {
            return Err(packet);
        }
        let payload = recent.header_bytes..packet.bytes();
        let checksum = packet.checksum();
        if checksum == ChecksumState::Unnecessary {
            if !has_checksum(shape, head) {
                return Err(packet);
            }
            held.append(packet, payload)?;
        } else if checksum == ChecksumState::None {
            if !has_checksum(shape, head) || !state.summed {
                return Err(packet);
            }
            let headers = headers_sum(shape, state, head);
            match held.append_checked(packet, payload, headers) {
                Ok(()) => self.core.stats.summed_bytes += u64::from(state.size),
                Err((AppendError::Full, packet)) => return Err(packet),
                Err((AppendError::Checksum, packet)) => {
                    self.core.stats.summed_bytes += u64::from(state.size);
                    self.wrong_checksum(index, packet, sink);
                    return Ok(());
                }
            }
        } else {
            if !is_of(shape, checksum) {
                return Err(packet);
            }
            held.append(packet, payload)?;
        }
        state.next_seq = state.next_seq.wrapping_add(u32::from(state.size));
        state.payload_bytes = state.payload_bytes.wrapping_add(state.size);
        state.count += 1;
        state.ids = ids;
        Ok(())
    }

    /// A packet that would continue its flow, but has a wrong checksum.
    #[cold]
    fn wrong_checksum(&mut self, held: u32, packet: P, sink: &mut impl FnMut(P, &Done)) {
        self.flush_one(held, FlushReason::Refused, sink);
        self.pass(packet, NotTaken::BadChecksum, sink);
    }

    /// Holds a packet whose flow is not held, if it has the shape held last and may be a first
    /// packet. Returns it otherwise.
    #[inline(always)]
    fn first_of_kind<const KIND: u8>(
        &mut self,
        hash: u64,
        mut packet: P,
        sink: &mut impl FnMut(P, &Done),
    ) -> Result<(), P> {
        let recent = self.core.masks.recent();
        let shape = recent.shape.of_kind::<KIND>();
        let (kind, network, transport) = places(shape);
        let Some(head) = packet.head().first_chunk() else {
            return Err(packet);
        };
        let two = |at: usize| u32::from(u16::from_be_bytes(array::<2>(head, at)));
        let (ip_end, ipv4_is_right) = if kind.is_ipv6() {
            (network as u32 + 40 + two(network + 4), true)
        } else {
            let ip: &[u8; 20] = &array(head, network);
            let right = parse::ipv4_header_is_right(ip) && [ip[10], ip[11]] != [0xFF; 2];
            (network as u32 + two(network + 2), right)
        };
        let header_bytes = recent.header_bytes;
        let least = if kind.is_tcp() {
            u32::from(TCP_GSO_SIZE_MIN)
        } else {
            1
        };
        if !recent.is_first::<KIND>(head)
            || !ipv4_is_right
            || ip_end != packet.bytes()
            || ip_end < header_bytes + least
            || !recent.fits(ip_end - header_bytes)
            || (!kind.is_tcp() && two(transport + 4) != ip_end - transport as u32)
            || (!kind.is_tcp() && is_of_tunnel(&self.core.config, array(head, transport)))
            || packet.gso().is_some()
            || !match packet.checksum() {
                partial @ ChecksumState::Partial { .. } => is_of(shape, partial),
                ChecksumState::None | ChecksumState::Unnecessary => has_checksum(shape, head),
            }
        {
            return Err(packet);
        }
        let Ok(room) = self.table.room(&self.core.ring, hash) else {
            return Err(packet);
        };
        let first = First {
            shape,
            seq: if kind.is_tcp() {
                u32::from_be_bytes(array(head, transport + 4))
            } else {
                0
            },
            payload_bytes: ip_end - header_bytes,
            ids: Ids::Undecided,
        };
        // Computed before the headers are borrowed, as everywhere: a type that copies sums during
        // the copy.
        let headers = self.sum_of_headers(&packet, shape, ip_end);
        if let Some(headers) = headers
            && !self.is_right(&packet, headers, header_bytes..ip_end)
        {
            self.pass(packet, NotTaken::BadChecksum, sink);
            return Ok(());
        }
        if packet.head_mut(header_bytes as usize).is_none() {
            self.pass(packet, NotTaken::Shared, sink);
            return Ok(());
        }
        self.begin(room, &first, packet, headers);
        Ok(())
    }
}

/// Whether the headers in `head` are the next ones of the run.
#[inline(always)]
fn is_next<const KIND: u8>(
    recent: &Recent,
    shape: Shape,
    state: &State,
    head: &[u8; WIDE],
) -> Option<Ids> {
    let (kind, network, transport) = places(shape);
    if state.shape != recent.shape || !recent.is_next::<KIND>(&state.template, head) {
        return None;
    }
    if kind.is_tcp() {
        const ENDS: u8 = TCP_CWR | TCP_FIN | TCP_PSH;
        if head[transport + 13] & ENDS != 0
            || u32::from_be_bytes(array(head, transport + 4)) != state.next_seq
        {
            return None;
        }
    }
    if kind.is_ipv6() {
        return Some(Ids::Undecided);
    }
    // From the identification to the checksum. If the identification is `count` higher than in the
    // first packet and the checksum `count` lower, the header's sum is unchanged, and correct. This
    // requires that neither wraps around: otherwise the difference says nothing about the bytes
    // between them, and the rules decide.
    let fields = |bytes: &[u8; WIDE]| u64::from_be_bytes(array(bytes, network + 4));
    let (now, count) = (fields(head), u64::from(state.count));
    let step = now.wrapping_sub(fields(&state.template));
    match state.ids {
        Ids::Undecided | Ids::Counting => {
            let wraps = now >> 48 < count || (now & 0xFFFF) + count > 0xFFFF;
            (step == (count << 48).wrapping_sub(count) && !wraps).then_some(Ids::Counting)
        }
        Ids::Fixed => (step == 0).then_some(Ids::Fixed),
        Ids::Sealed => None,
    }
}

/// Whether the next piece is the last that a UDP packet may have. TCP is bounded by the length
/// only: [`TCP_GSO_SIZE_MIN`] keeps the number of segments below every segmenter's limit.
const fn is_last_datagram(kind: GsoKind, count: u16) -> bool {
    !kind.is_tcp() && count as usize + 1 >= UDP_GSO_SEGMENTS_MAX
}

/// Whether there is a checksum, in the form that segmentation writes.
#[inline(always)]
fn has_checksum(shape: Shape, head: &[u8; WIDE]) -> bool {
    let (kind, _, transport) = places(shape);
    if kind.is_tcp() {
        array(head, transport + 16) != [0xFF; 2]
    } else {
        array(head, transport + 6) != [0; 2]
    }
}

/// Whether a partial checksum is that of the transport header.
#[inline(always)]
fn is_of(shape: Shape, checksum: ChecksumState) -> bool {
    let (kind, _, transport) = places(shape);
    let offset = if kind.is_tcp() { 16 } else { 6 };
    let start = transport as u16;
    checksum == ChecksumState::Partial { start, offset }
}

/// Sum of the pseudo-header and the transport header, from the sum stored for the first packet and
/// the fields that count up.
#[inline(always)]
fn headers_sum(shape: Shape, state: &State, head: &[u8; WIDE]) -> Sum {
    let (kind, _, transport) = places(shape);
    let at = transport + if kind.is_tcp() { 16 } else { 6 };
    let two = |bytes, at| u64::from(u16::from_ne_bytes(array(bytes, at)));
    let mut words = two(&state.template, at) + two(head, at);
    if kind.is_tcp() {
        words += u64::from(u32::from_ne_bytes(array(head, transport + 4)));
    }
    Sum::of_words(words, 0)
}
