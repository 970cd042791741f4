//! The rings of a queue of a virtio network card.

use super::shared::{Shared, needs_reset};
use crate::driver::{Armed, Completed, DeviceError, Link, Refused, Token, TxPacket};
use crate::limits::PACKET_BYTES_MAX;
use crate::packet::{Arena, FrameClass, Packet};
use crate::port::card::{
    Arriving, Bus, InterruptKind, Receive, Received, Running, Stop as _, Transmit, Window,
};
use crate::port::virtqueue::pci::Doorbell;
use crate::port::virtqueue::{Buffer, DESCRIPTOR_BYTES, Shape, Used, Virtqueue};
use crate::port::vnet::{admit, header_of, mend};
use crate::stats::DropReason;
use crate::time::Instant;
use packtrain_offload::virtio_net::{Accept, HeaderLen};
use std::iter::once;
use std::sync::Arc;
use std::time::Duration;

const FORM: HeaderLen = HeaderLen::V1;
/// Bytes of the header in front of each packet.
pub(super) const HEADER_BYTES: usize = FORM.bytes();
/// Where the number of a packet's buffers is in it.
const BUFFERS_AT: usize = 10;
/// Descriptors of a table: for a packet of 64 KiB in pieces of 1024 bytes, and for one that was
/// merged from as many as fit. With the header in front that is 2 KiB for each chain.
pub(super) const TABLE_DESCRIPTORS: usize = 127;
/// Not that of a packet.
const NO_PACKET: Token = Token(u32::MAX);
/// A queue that is used checks the card this often, and one that sleeps wakes up for it this much
/// later: no interrupt says that the card was removed, or reset by another program.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
const CHECK_REST: Duration = Duration::from_millis(900);

/// What both halves have.
#[derive(Debug)]
pub(super) struct Half<B: Bus> {
    pub(super) shared: Arc<Running<Shared<B>>>,
    pub(super) ring: Virtqueue,
    pub(super) doorbell: Doorbell,
    pub(super) window: Window,
    /// When the card is checked next.
    pub(super) check_at: Option<Instant>,
    /// Chains were taken since the interrupt was cleared.
    pub(super) has_taken: bool,
}

impl<B: Bus> Half<B> {
    /// Shows the card what was added to the ring. Returns whether it was notified.
    fn publish(&mut self) -> bool {
        let is_wanted = self.ring.publish();
        if is_wanted {
            self.shared.function.notify(self.doorbell);
        }
        is_wanted
    }

    /// Checks the ring, and now and then the card.
    fn check(&mut self, now: Instant) -> Result<(), DeviceError> {
        if self.ring.is_broken() {
            return Err(needs_reset());
        }
        if self.check_at.is_none_or(|at| now >= at) {
            self.check_at = Some(now.after(CHECK_INTERVAL));
            self.shared.check()?;
        }
        Ok(())
    }

    /// The next chain that the card has used.
    fn take(&mut self) -> Option<Used> {
        let used = self.ring.take();
        self.has_taken |= used.is_some();
        used
    }

    /// The ring asks for an interrupt and then looks for work, in this order (see
    /// [`Virtqueue::arm`]).
    fn arm(&mut self, came: bool, packets: usize) -> Option<Armed> {
        let is_idle = !std::mem::take(&mut self.has_taken);
        // Whether it may be that of a change of the configuration. With messages it is one that
        // came for no chain: see `Function::report_changes`.
        let is_changed = came
            && match self.shared.kind() {
                InterruptKind::Intx => self.shared.take_changed(),
                _ => is_idle,
            };
        if is_changed {
            // What comes next, a poll or `flush`, checks the card.
            self.check_at = None;
            return Some(Armed::WorkPending);
        }
        let ahead = packets.min(self.ring.in_flight()).saturating_sub(1);
        self.ring.arm(ahead as u16).map(|has_work| match has_work {
            true => Armed::WorkPending,
            false => Armed::Idle,
        })
    }
}

/// The RX ring of a queue.
#[derive(Debug)]
pub struct VirtioReceive<B: Bus> {
    half: Half<B>,
    /// By the number of their chain: the frames that the card may fill.
    posted: Box<[Option<Packet>]>,
    /// Bytes that it may write to each, and the most of them that a packet needs.
    buffer_bytes: usize,
    buffers_max: u16,
    /// The next packet, and how many buffers of it have not arrived.
    arriving: Arriving,
    missing: u16,
    accept: Accept,
}

impl<B: Bus> VirtioReceive<B> {
    pub(super) fn new(
        half: Half<B>,
        buffer_bytes: usize,
        accept: Accept,
        is_mergeable: bool,
    ) -> Self {
        let buffers_max = match is_mergeable {
            true => (HEADER_BYTES + PACKET_BYTES_MAX).div_ceil(buffer_bytes),
            false => 1,
        };
        Self {
            posted: (0..half.ring.shape().size).map(|_| None).collect(),
            half,
            buffer_bytes,
            buffers_max: buffers_max as u16,
            arriving: Arriving::default(),
            missing: 0,
            accept,
        }
    }

    /// An empty packet, which the card may fill from in front of it on: the header comes there.
    fn frame(&self, arena: &Arena) -> Option<(Packet, Buffer)> {
        let mut packet = arena.packet(FrameClass::Small).ok()?;
        packet.prepend(HEADER_BYTES).ok()?;
        let room = packet.tailroom_mut();
        let room = room.get(..self.buffer_bytes - HEADER_BYTES)?;
        let address = self.half.window.address(room)? - HEADER_BYTES as u64;
        Some((packet, Buffer::to_write(address, self.buffer_bytes)))
    }

    /// The frame that the card has filled.
    fn piece(&mut self, used: Used) -> Result<Packet, DropReason> {
        let posted = used
            .slot
            .and_then(|slot| self.posted[usize::from(slot)].take());
        let mut packet = posted.ok_or(DropReason::BadDescriptor)?;
        let bytes = used.bytes as usize;
        if bytes == 0 || bytes > self.buffer_bytes {
            return Err(DropReason::BadDescriptor);
        }
        packet.truncate(bytes);
        packet
            .grow(bytes.saturating_sub(HEADER_BYTES))
            .map_err(|_beyond| DropReason::BadDescriptor)?;
        Ok(packet)
    }

    /// The number of buffers of the packet that begins with `piece`.
    fn buffers(&self, piece: &Packet) -> Result<u16, DropReason> {
        let header = piece.first().get(BUFFERS_AT..HEADER_BYTES);
        let header = header.ok_or(DropReason::Truncated)?;
        if self.buffers_max == 1 {
            // QEMU before 10 leaves the number at 0 where it is always 1 (§5.1.6.4.1).
            return Ok(1);
        }
        let count = u16::from_le_bytes([header[0], header[1]]);
        match (1..=self.buffers_max).contains(&count) {
            true => Ok(count),
            false => Err(DropReason::BadDescriptor),
        }
    }

    /// Adds what has arrived to the next packet. Returns it, or why it cannot be used, once all of
    /// it has.
    fn add(&mut self, used: Used) -> Option<Received> {
        if used.slot.is_none() && self.missing == 0 {
            // No buffer, and so no packet begins. Within a packet it is in place of a buffer.
            return Some(Err(DropReason::BadDescriptor));
        }
        let mut piece = self.piece(used);
        if self.missing == 0 {
            let count = piece.and_then(|piece| Ok((self.buffers(&piece)?, piece)));
            (self.missing, piece) = match count {
                Ok((count, piece)) => (count, Ok(piece)),
                Err(reason) => (1, Err(reason)),
            };
        }
        self.arriving.add(piece);
        self.missing -= 1;
        if self.missing > 0 {
            return None;
        }
        let whole = self.arriving.finish();
        Some(whole.and_then(
            |whole| match whole.bytes() > HEADER_BYTES + PACKET_BYTES_MAX {
                true => Err(DropReason::TooLong),
                false => admit(whole, FORM, self.accept),
            },
        ))
    }
}

impl<B: Bus> Receive for VirtioReceive<B> {
    fn refill(&mut self, arena: &Arena) -> bool {
        while self.half.ring.room() > 0 {
            let Some((packet, buffer)) = self.frame(arena) else {
                break;
            };
            let slot = self.half.ring.put(once(buffer));
            self.posted[usize::from(slot)] = Some(packet);
        }
        self.half.publish();
        self.half.ring.room() == 0
    }

    fn begin(&mut self) {
        self.half.ring.disarm();
    }

    #[inline]
    fn next(&mut self) -> Option<Received> {
        loop {
            let used = self.half.take()?;
            if let Some(received) = self.add(used) {
                return Some(received);
            }
        }
    }

    fn check(&mut self, now: Instant) -> Result<(), DeviceError> {
        self.half.check(now)
    }

    fn next_check(&self) -> Option<Instant> {
        self.half.check_at.map(|at| at.after(CHECK_REST))
    }

    /// A packet of several buffers counts as so many.
    fn arm(&mut self, came: bool, packets: usize) -> Option<Armed> {
        self.half.arm(came, packets)
    }

    fn counts(&self) -> bool {
        true
    }
}

impl<B: Bus> Drop for VirtioReceive<B> {
    fn drop(&mut self) {
        let posted = std::mem::take(&mut self.posted);
        self.half.shared.keep(posted, Some(self.half.ring.dma()));
    }
}

/// Memory behind a TX ring, for each chain by its number: the header of a packet whose headroom is
/// shared, and a table of descriptors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside {
    at: usize,
    /// Descriptors of a table; 0 without tables.
    table: usize,
}

impl Beside {
    /// That of a ring, whose device takes tables or not.
    pub(super) fn new(shape: Shape, has_tables: bool) -> Self {
        let size = shape.size as usize;
        // A chain with its table is no longer than a ring (virtio 1.2 §2.7.5.3.1).
        let table = if has_tables {
            TABLE_DESCRIPTORS.min(size)
        } else {
            0
        };
        let at = shape.bytes().next_multiple_of(DESCRIPTOR_BYTES);
        Self { at, table }
    }

    /// Of the header of a chain. Its table is behind it.
    const fn of(self, slot: usize) -> usize {
        self.at + slot * DESCRIPTOR_BYTES * (1 + self.table)
    }

    /// Bytes of the ring and what is behind it, for rings of so many descriptors.
    pub(super) const fn end(self, size: u16) -> usize {
        self.of(size as usize)
    }
}

/// The TX ring of a queue.
#[derive(Debug)]
pub struct VirtioTransmit<B: Bus> {
    half: Half<B>,
    /// By the number of their chain: the packets that the card has.
    tokens: Box<[Token]>,
    beside: Beside,
}

impl<B: Bus> VirtioTransmit<B> {
    pub(super) fn new(half: Half<B>, beside: Beside) -> Self {
        let size = usize::from(half.ring.shape().size);
        Self {
            half,
            tokens: vec![NO_PACKET; size].into(),
            beside,
        }
    }

    /// Puts a chain of `front` and the segments of a packet into the ring.
    fn put_chain(&mut self, front: Option<Buffer>, packet: &Packet, token: Token) {
        let window = self.half.window;
        let segments = packet.segments().filter_map(|segment| {
            let address = window.address(segment)?;
            (!segment.is_empty()).then_some(Buffer::to_read(address, segment.len()))
        });
        let has_table = self.beside.table > 0;
        let is_one = front.is_none() && packet.segment_count() == 1;
        let (buffers, ring) = (front.into_iter().chain(segments), &mut self.half.ring);
        let slot = if has_table && !is_one {
            let at = self.beside.of(usize::from(ring.next_slot()));
            ring.put_table(at + DESCRIPTOR_BYTES, buffers)
        } else {
            ring.put(buffers)
        };
        self.tokens[usize::from(slot)] = token;
    }
}

impl<B: Bus> Transmit for VirtioTransmit<B> {
    fn link(&self) -> Link {
        match self.half.shared.is_down() {
            true => Link::Down,
            false => Link::Up,
        }
    }

    fn put(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<(), Refused> {
        mend(packet)?;
        let whole = packet.packet();
        let is_beside = whole.headroom() < HEADER_BYTES;
        let count = whole.segment_count() + usize::from(is_beside);
        let (most, takes) = match self.beside.table {
            0 => (self.tokens.len(), count),
            table => (table, 1),
        };
        if count > most {
            return Err(Refused::TooManySegments);
        }
        if takes > self.half.ring.room() {
            return Err(Refused::NoDescriptor);
        }
        let window = self.half.window;
        if whole
            .segments()
            .any(|segment| window.address(segment).is_none())
        {
            // Of another arena.
            return Err(Refused::Bad(DropReason::DeviceRefused));
        }
        let mut header = header_of(whole, FORM);
        // It is the card's (virtio 1.2 §5.1.6.2.1).
        header[BUFFERS_AT..].fill(0);
        if packet
            .with_header(&header, |whole| self.put_chain(None, whole, token))
            .is_none()
        {
            let slot = usize::from(self.half.ring.next_slot());
            let at = self.beside.of(slot);
            let memory = self.half.ring.dma();
            memory.store_bytes(at, &header);
            let address = memory.address() + at as u64;
            let front = Buffer::to_read(address, HEADER_BYTES);
            self.put_chain(Some(front), packet.packet(), token);
        }
        Ok(())
    }

    fn publish(&mut self) -> bool {
        self.half.publish()
    }

    fn begin(&mut self) {
        self.half.ring.disarm();
    }

    fn next_complete(&mut self) -> Option<Token> {
        let used = self.half.take()?;
        let token = used.slot.map(|slot| self.tokens[usize::from(slot)]);
        Some(token.unwrap_or(NO_PACKET))
    }

    fn check(&mut self, now: Instant) -> Result<(), DeviceError> {
        self.half.check(now)
    }

    fn arm(&mut self, came: bool, packets: usize) -> Option<Armed> {
        self.half.arm(came, packets)
    }

    /// A packed ring does not count chains of several descriptors, which packets have without
    /// tables.
    fn counts(&self) -> bool {
        self.beside.table > 0 || matches!(self.half.ring, Virtqueue::Split(_))
    }

    /// The card may have sent packets without saying so: none is certainly unsent.
    fn can_reset(&self) -> bool {
        self.half.shared.can_restart()
    }

    fn reset(&mut self, sent: &mut Completed, _unsent: &mut Completed) -> Result<(), DeviceError> {
        let shared = Arc::clone(&self.half.shared);
        let doorbell = self.half.doorbell;
        shared.function.reset_ring(doorbell)?;
        while let Some(token) = self.next_complete() {
            // There is room for all that it has; more are a lie.
            if !sent.push(token) {
                break;
            }
        }
        let ring = &mut self.half.ring;
        ring.renew();
        let Doorbell { queue, vector, .. } = doorbell;
        shared.function.enable(queue, vector, ring)?;
        Ok(())
    }
}

impl<B: Bus> Drop for VirtioTransmit<B> {
    /// The card may read from the packets that it has until it is stopped, and the queue frees them
    /// next: it is stopped at once, for the other halves as well. If it does not stop, it may still
    /// read from frames that are free, and so send bytes of other packets; it writes to none.
    fn drop(&mut self) {
        if self.half.ring.in_flight() > 0 {
            self.half.shared.stop();
        }
    }
}
