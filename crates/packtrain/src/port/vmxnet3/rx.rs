//! How a queue's RX descriptors are written, and its completions read.

use super::card::Shared;
use super::registers::{self as reg, QUEUES_BAR, WORDS, done, rx};
use super::rings::{Completions, Posts};
use crate::driver::{Armed, DeviceError, RxInfo};
use crate::packet::{Arena, Packet};
use crate::port::card::{
    Arriving, Buffers, Bus, Receive, Received, Running, TCP_CHECKSUM, pseudo_header, write_barrier,
};
use crate::port::vnet::{bytes_min, checked_info};
use crate::stats::DropReason;
use crate::time::Instant;
use packtrain_offload::layout::{Layout, Network, Transport};
use packtrain_offload::offload::{ChecksumState, Ecn, Gso, GsoKind, LinkType};
use packtrain_offload::virtio_net::{Accept, describe, validate};
use std::num::NonZeroU16;
use std::sync::Arc;

/// Where the flags are in a TCP header, and the one of a reduced congestion window.
const TCP_FLAGS: usize = 13;
const CWR: u8 = 0x80;

/// The RX rings of a queue.
#[derive(Debug)]
pub struct Vmxnet3Receive<B: Bus> {
    pub(super) shared: Arc<Running<Shared<B>>>,
    pub(super) queue: usize,
    /// Buffers for the begin of packets, and for the rest.
    pub(super) posts: [Posts; 2],
    pub(super) buffers: [Buffers; 2],
    pub(super) completions: Completions,
    /// Bytes of a buffer.
    pub(super) bytes: usize,
    /// Packets may be in several buffers.
    pub(super) has_bodies: bool,
    pub(super) arriving: Arriving,
    /// The first completion of the packet that arrives.
    pub(super) begin: Option<[u32; WORDS]>,
    /// The number of the interrupt.
    pub(super) number: usize,
    /// When the card is checked again.
    pub(super) recheck_at: Instant,
}

impl<B: Bus> Vmxnet3Receive<B> {
    /// Fills a ring. Returns false if the arena had too few frames.
    fn fill(&mut self, ring: usize, arena: &Arena) -> bool {
        let (posts, buffers) = (&mut self.posts[ring], &mut self.buffers[ring]);
        let before = buffers.count();
        let kind = if ring == 0 { 0 } else { rx::BODY };
        let is_full = buffers.refill(arena, |index, address| {
            let word = posts.write(index, address, self.bytes as u32 | kind, 0);
            posts.publish(index, word);
        });
        // Mostly the card looks by itself.
        if buffers.count() > before && self.shared.area.wants_tail(self.queue) {
            self.tell(ring);
        }
        is_full
    }

    /// Tells the card how far a ring is filled.
    pub(super) fn tell(&self, ring: usize) {
        write_barrier();
        let (tail, to) = (self.buffers[ring].tail(), reg::rx_tail(self.queue, ring));
        self.shared.card.bus.write32(QUEUES_BAR, to, tail as u32);
    }

    /// The frame of a completion. The card may have left out those in front of it.
    fn piece(&mut self, [first, _, third, _]: [u32; WORDS]) -> Result<Packet, DropReason> {
        let number = ((first >> done::RING_SHIFT) & done::RING) as usize;
        let queues = self.shared.area.queues;
        let ring = match number.checked_sub(self.queue) {
            Some(0) => 0,
            Some(rest) if rest == queues => 1,
            _ => return Err(DropReason::BadDescriptor),
        };
        let (buffers, count) = (&mut self.buffers[ring], self.posts[ring].count());
        let index = (first & done::INDEX) as usize;
        let next = buffers.next().ok_or(DropReason::BadDescriptor)?;
        let before = (index + count - next) % count;
        if index >= count || before >= buffers.count() {
            return Err(DropReason::BadDescriptor);
        }
        for _ in 0..before {
            buffers.take(0)?;
        }
        buffers.take((third & done::BYTES) as usize)
    }

    /// Handles a completion. Returns the packet that ends with it, or why it cannot be used.
    fn add(&mut self, words: [u32; WORDS]) -> Option<Received> {
        let [first, _, third, _] = words;
        let piece = self.piece(words);
        let is_whole = first & done::BEGIN != 0 && first & done::END != 0;
        if is_whole && third & (done::BYTES | done::ERROR) == 0 {
            // The card leaves the buffer out (Linux, vmxnet3_drv.c).
            return piece.err().map(Err);
        }
        let is_expected = (first & done::BEGIN != 0) == self.begin.is_none();
        let begin = *self.begin.get_or_insert(words);
        self.arriving.add(match third & done::ERROR {
            0 if is_expected => piece,
            _ => Err(DropReason::BadDescriptor),
        });
        if first & done::END == 0 {
            return None;
        }
        self.begin = None;
        let whole = self.arriving.finish();
        Some(whole.and_then(|packet| admit(packet, begin, words)))
    }

    /// Events come with the interrupt of the first queue.
    fn events(&self) -> u32 {
        match self.queue {
            0 => self.shared.area.events(),
            _ => 0,
        }
    }
}

/// What the card says of a packet with its first and last completion.
pub(super) fn admit(
    mut packet: Packet,
    begin: [u32; WORDS],
    [first, _, _, last]: [u32; WORDS],
) -> Received {
    if packet.bytes() < bytes_min(LinkType::Ethernet) {
        return Err(DropReason::Truncated);
    }
    let is_large = begin[3] & done::TYPE == done::LARGE;
    let transport = last & done::TRANSPORT_RIGHT != 0 && last & (done::TCP | done::UDP) != 0;
    let ip = last & done::IPV6 != 0 || last & done::IPV4 != 0 && last & done::IP_RIGHT != 0;
    let is_known = first & done::NO_CHECKSUM == 0 && last & done::FRAGMENT == 0;
    if is_large && begin[1] & done::MERGED > 1 {
        let info = merged(&mut packet, begin).ok_or(DropReason::BadDescriptor)?;
        return Ok((packet, info));
    }
    let info = RxInfo {
        // Of a wrong checksum, software finds out by itself.
        checksum: match is_known && transport && ip {
            true => ChecksumState::Unnecessary,
            false => ChecksumState::None,
        },
        flow_hash: match begin[0] & done::HASHED != 0 && !is_large {
            true => begin[1],
            false => 0,
        },
        ..RxInfo::default()
    };
    Ok((packet, info))
}

/// Makes a GSO packet of one that the card has merged of TCP packets, which it has verified: its
/// checksum is unfinished, as in those of a sender.
fn merged(packet: &mut Packet, [_, second, _, fourth]: [u32; WORDS]) -> Option<RxInfo> {
    let bytes = packet.bytes() as u32;
    let layout = Layout::parse(LinkType::Ethernet, packet.first(), bytes).ok()?;
    let kind = match layout.kind {
        Network::Ipv4 => GsoKind::TcpV4,
        Network::Ipv6 => GsoKind::TcpV6,
        _ => return None,
    };
    if layout.transport_kind != Transport::Tcp {
        return None;
    }
    let (start, end) = (usize::from(layout.transport), usize::from(layout.payload));
    let payload = layout.ip_end.checked_sub(end as u32)?;
    // Without their size, it is that of as many equal ones.
    let size = match fourth & done::SIZE {
        0 => payload.div_ceil(second & done::MERGED),
        size => size,
    };
    let size = NonZeroU16::new(size.try_into().ok()?)?;
    let headers = packet.headers_mut(packet.first().len()).ok()?;
    let sum = pseudo_header(headers, &layout, layout.ip_end - start as u32)?;
    let reduced = headers.get(start + TCP_FLAGS)? & CWR != 0;
    let field = start + TCP_CHECKSUM;
    headers.get_mut(field..field + 2)?.copy_from_slice(&sum);
    let ecn = if reduced { Ecn::Cwr } else { Ecn::None };
    let checksum = ChecksumState::Partial {
        start: layout.transport,
        offset: TCP_CHECKSUM as u16,
    };
    let gso = Gso::new(kind, size).with_ecn(ecn);
    let header = describe(checksum, Some(gso), Some(&layout));
    let known = validate(&header, LinkType::Ethernet, Accept::ALL, headers, bytes).ok()?;
    packet.truncate(known.packet_bytes as usize);
    Some(checked_info(&known))
}

impl<B: Bus> Receive for Vmxnet3Receive<B> {
    fn refill(&mut self, arena: &Arena) -> bool {
        self.fill(0, arena) && (!self.has_bodies || self.fill(1, arena))
    }

    fn next(&mut self) -> Option<Received> {
        // A card may leave out any number of buffers.
        for _ in 0..self.completions.count() {
            let words = self.completions.take()?;
            if let Some(received) = self.add(words) {
                return Some(received);
            }
        }
        None
    }

    fn check(&mut self, now: Instant) -> Result<(), DeviceError> {
        let events = self.events();
        if events != 0 {
            self.shared.handle(events)?;
        }
        if now >= self.recheck_at {
            self.recheck_at = self.shared.recheck(now)?;
        }
        Ok(())
    }

    fn next_check(&self) -> Option<Instant> {
        Some(self.recheck_at)
    }

    /// The interrupt comes at the latest when the mask is removed.
    fn arm(&mut self, _came: bool, _packets: usize) -> Option<Armed> {
        self.shared.card.unmask(self.number);
        Some(match self.completions.has_next() || self.events() != 0 {
            true => Armed::WorkPending,
            false => Armed::Idle,
        })
    }
}

impl<B: Bus> Drop for Vmxnet3Receive<B> {
    fn drop(&mut self) {
        for buffers in &mut self.buffers {
            self.shared.keep(buffers.take_all(), None);
        }
    }
}
