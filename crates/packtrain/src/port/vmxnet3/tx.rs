//! The transmitting half of a queue.

use super::card::Shared;
use super::registers::{self as reg, QUEUES_BAR, done, tx};
use super::rings::{Completions, Posts};
use crate::driver::{
    Accepted, Armed, Completed, DeviceError, Features, Interest, Link, Refused, Token,
    TxDescriptors, TxPacket,
};
use crate::packet::{Meta, Packet};
use crate::port::card::{Bus, CutHeaders, Flight, Interrupt, Window, write_barrier};
use crate::port::vnet::bytes_min;
use crate::stats::DropReason;
use crate::time::Instant;
use packtrain_offload::layout::{Layout, Transport};
use packtrain_offload::offload::{ChecksumState, Gso, LinkType};
use packtrain_offload::segment::TCP_GSO_SIZE_MIN;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Not that of a packet.
const NO_PACKET: Token = Token(u32::MAX);

/// The transmitting half of a queue.
#[derive(Debug)]
pub struct Vmxnet3Tx<B: Bus> {
    pub(super) shared: Arc<Shared<B>>,
    pub(super) queue: usize,
    pub(super) posts: Posts,
    pub(super) completions: Completions,
    /// Where the headers of segmented packets are, one slot for each descriptor.
    pub(super) headers: usize,
    pub(super) window: Window,
    pub(super) flight: Flight,
    /// The pieces of the next packet, for the card.
    pub(super) pieces: Vec<(u64, usize)>,
    /// The card was not told of the last packets.
    pub(super) is_new: bool,
    /// The number of the interrupt.
    pub(super) number: usize,
    pub(super) interrupt: Interrupt,
    /// The completed packet for which the last call had no room.
    pub(super) returned: Option<Token>,
    pub(super) doorbells: u64,
}

/// The words 2 and 3 of a packet's first descriptor.
type Work = (u32, u32);

impl<B: Bus> Vmxnet3Tx<B> {
    /// The pieces of a packet from `start` to `end`, with those before at most `most`.
    fn gather(
        &mut self,
        packet: &Packet,
        start: usize,
        end: usize,
        most: usize,
    ) -> Result<(), Refused> {
        let pieces = packet.pieces(start..end);
        let pieces = pieces.map_err(|_beyond| Refused::Bad(DropReason::Truncated))?;
        for piece in pieces.flat_map(|piece| piece.chunks(tx::BYTES_MAX)) {
            // A copy is in the arena, and has fewer.
            let address = self.window.address(piece).ok_or(Refused::TooManySegments)?;
            if self.pieces.len() >= most {
                return Err(Refused::TooManySegments);
            }
            self.pieces.push((address, piece.len()));
        }
        match self.pieces.len() <= self.flight.room() {
            true => Ok(()),
            false => Err(Refused::NoDescriptor),
        }
    }

    /// The pieces of a packet that the card segments: its headers are a copy.
    fn cut(&mut self, packet: &Packet, gso: Gso) -> Result<Work, Refused> {
        let refused = Refused::Feature(Features::of(gso.kind));
        let layout = packet.meta().layout.ok_or(refused)?;
        let (headers, size) = (usize::from(layout.payload), gso.size.get());
        if !gso.kind.is_tcp()
            || layout.source_routed
            || !(TCP_GSO_SIZE_MIN..=tx::OPERAND_MAX as u16).contains(&size)
        {
            return Err(refused);
        }
        let copy = CutHeaders::copy(packet, &layout, headers).ok_or(refused)?;
        let slot = self.headers + self.flight.tail() * CutHeaders::BYTES_MAX;
        let memory = Arc::clone(&self.shared.area.memory);
        self.pieces.push((memory.address() + slot as u64, headers));
        self.gather(packet, headers, layout.ip_end as usize, tx::CUT_PIECES_MAX)?;
        memory.store_bytes(slot, copy.as_bytes());
        Ok((
            u32::from(size) << tx::OPERAND_SHIFT,
            tx::SEGMENT | headers as u32,
        ))
    }

    /// Writes the descriptors of the packet whose pieces were gathered. The card takes them with
    /// the first one.
    fn put(&mut self, token: Token, (second, third): Work) {
        let count = self.pieces.len();
        let mut first = None;
        for (number, (address, bytes)) in self.pieces.drain(..).enumerate() {
            let is_last = number + 1 == count;
            let index = self.flight.put(is_last.then_some(token));
            // One of the most bytes has a length of 0.
            let mut words = [(bytes % tx::BYTES_MAX) as u32, 0];
            if number == 0 {
                words = [words[0] | second, third];
            }
            if is_last {
                words[1] |= tx::END | tx::REPORT;
            }
            let word = self.posts.write(index, address, words[0], words[1]);
            match number {
                0 => first = Some((index, word)),
                _ => self.posts.publish(index, word),
            }
        }
        if let Some((index, word)) = first {
            self.posts.publish(index, word);
        }
        self.is_new = true;
    }

    fn check_present(&self) -> Result<(), DeviceError> {
        match self.shared.card.link() {
            Link::Removed => Err(DeviceError::Removed),
            Link::Up | Link::Down => Ok(()),
        }
    }

    fn next_complete(&mut self) -> Option<Token> {
        loop {
            if let Some(token) = self.flight.next_complete() {
                return Some(token);
            }
            let [first, ..] = self.completions.take()?;
            if !self.flight.finish((first & done::INDEX) as usize) {
                // It is counted, as a wrong token.
                return Some(NO_PACKET);
            }
        }
    }
}

/// The work of the card on a packet that is sent as it is, and where that ends: its checksum covers
/// no padding of the link.
fn whole(packet: &Packet) -> Result<(Work, usize), Refused> {
    let meta = packet.meta();
    let ChecksumState::Partial { start, offset } = meta.checksum else {
        return Ok(((0, 0), packet.bytes()));
    };
    let field = usize::from(start) + usize::from(offset);
    if field + 2 > packet.bytes() {
        return Err(Refused::Bad(DropReason::BadChecksumPlace));
    }
    let refused = Refused::Feature(Features::checksum_of(meta.layout));
    let layout = sums(meta, start).ok_or(refused)?;
    if field > tx::HEADERS_MAX {
        return Err(refused);
    }
    let work = (
        (field as u32) << tx::OPERAND_SHIFT,
        tx::CHECKSUM | u32::from(start),
    );
    Ok((work, layout.ip_end as usize))
}

/// The layout of a packet of TCP or UDP: QEMU finds the place of the checksum in no other.
fn sums(meta: &Meta, start: u16) -> Option<Layout> {
    meta.layout.filter(|layout| {
        let is_known = matches!(layout.transport_kind, Transport::Tcp | Transport::Udp);
        is_known && layout.transport == start
    })
}

impl<B: Bus> TxDescriptors for Vmxnet3Tx<B> {
    fn encap(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<Accepted, Refused> {
        let packet = packet.packet();
        if packet.bytes() < bytes_min(LinkType::Ethernet) {
            return Err(Refused::Bad(DropReason::Truncated));
        }
        match self.shared.card.link() {
            Link::Up => {}
            Link::Down => return Err(Refused::LinkDown),
            Link::Removed => return Err(Refused::Removed),
        }
        self.pieces.clear();
        let work = match packet.meta().gso {
            Some(gso) => self.cut(packet, gso)?,
            None => {
                let (work, end) = whole(packet)?;
                self.gather(packet, 0, end, tx::PIECES_MAX)?;
                work
            }
        };
        self.put(token, work);
        Ok(Accepted::Pending)
    }

    fn flush(&mut self, _: Instant) -> Result<(), DeviceError> {
        self.check_present()?;
        if self.is_new {
            self.is_new = false;
            write_barrier();
            let tail = reg::tx_tail(self.queue);
            let bus = &self.shared.card.bus;
            bus.write32(QUEUES_BAR, tail, self.flight.tail() as u32);
            self.doorbells += 1;
        }
        Ok(())
    }

    fn reclaim(&mut self, _: Instant, completed: &mut Completed) {
        if let Err(error) = self.check_present() {
            completed.fail(error);
        }
        while let Some(token) = self.returned.take().or_else(|| self.next_complete()) {
            if !completed.push(token) {
                self.returned = Some(token);
                break;
            }
        }
    }

    /// Nothing is missed, as for packets that arrive (`Vmxnet3Rx`).
    fn arm(&mut self) -> Option<Armed> {
        self.interrupt.clear();
        self.shared.card.unmask(self.number);
        let has_some = self.returned.is_some() || self.flight.has_finished();
        Some(match has_some || self.completions.has_next() {
            true => Armed::WorkPending,
            false => Armed::Idle,
        })
    }

    fn is_blocked(&self) -> bool {
        self.shared.card.link() == Link::Down
    }

    /// It does not change. The link is checked here, for a port whose RX half is not polled.
    fn mtu(&mut self) -> Option<u32> {
        self.shared.card.check();
        None
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        Some((self.interrupt.as_fd(), Interest::Read))
    }

    fn doorbells(&self) -> u64 {
        self.doorbells
    }
}

impl<B: Bus> Drop for Vmxnet3Tx<B> {
    /// The card may read from the packets that it has until it is stopped, and the queue frees them
    /// next: it is stopped at once, for the other halves as well. If it does not stop, it may send
    /// bytes of other packets; it writes to none.
    fn drop(&mut self) {
        if !self.flight.is_empty() {
            self.shared.stop().unwrap_or(());
        }
    }
}
