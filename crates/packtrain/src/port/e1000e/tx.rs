//! The transmitting half of a queue.

use super::init;
use super::line::Line;
use super::registers::{self, RingRegisters, WORDS, cause, tx};
use super::tso::{self, PIECE_BYTES_MAX, PIECES_MAX, SENTINEL_BYTES};
use crate::driver::{
    Accepted, Armed, Change, Completed, DeviceError, Features, Interest, Link, Refused, Reset,
    Token, TxDescriptors, TxPacket,
};
use crate::packet::Packet;
use crate::port::card::{Bus, Dma, Flight, Interrupt, Ring, Window, write_barrier};
use crate::port::vnet::bytes_min;
use crate::stats::DropReason;
use crate::time::Instant;
use packtrain_offload::offload::LinkType;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// The card reports the completion of each packet of this number, and of the last one of a batch.
const REPORT_PACKETS: usize = 16;

/// The transmitting half of a queue.
#[derive(Debug)]
pub struct E1000eTx<B: Bus> {
    pub(super) line: Arc<Line<B>>,
    pub(super) queue: usize,
    pub(super) ring: Ring<WORDS>,
    pub(super) dma: Arc<Dma>,
    /// Where the headers of segmented packets are, one slot for each descriptor.
    pub(super) slots: usize,
    pub(super) window: Window,
    pub(super) flight: Flight,
    /// The pieces of the next packet, for the card.
    pub(super) pieces: Vec<(u64, usize)>,
    /// The context that the card has. It is the same for both queues, so it is known only for one.
    pub(super) context: Option<[u32; WORDS]>,
    pub(super) is_alone: bool,
    /// Packets since the last one whose completion is reported.
    pub(super) unreported: usize,
    /// The last descriptor, and its command.
    pub(super) last: Option<(usize, u32)>,
    /// The last packet was segmented.
    pub(super) after_segments: bool,
    pub(super) interrupt: Option<Interrupt>,
    /// What the card does at its full speed, and what was offered last.
    pub(super) offloads: Features,
    pub(super) offers: Features,
    /// The completed packet for which the last call had no room.
    pub(super) returned: Option<Token>,
    pub(super) doorbells: u64,
}

impl<B: Bus> E1000eTx<B> {
    /// The pieces of a packet from `start` to `end`, each of at most `bytes_max` bytes.
    fn gather(
        &mut self,
        packet: &Packet,
        start: usize,
        end: usize,
        bytes_max: usize,
    ) -> Result<(), Refused> {
        let pieces = packet.pieces(start..end);
        let pieces = pieces.map_err(|_beyond| Refused::Bad(DropReason::Truncated))?;
        for piece in pieces.flat_map(|piece| piece.chunks(bytes_max)) {
            // A copy is in the arena, and has fewer.
            let address = self.window.address(piece).ok_or(Refused::TooManySegments)?;
            if self.pieces.len() >= PIECES_MAX {
                return Err(Refused::TooManySegments);
            }
            self.pieces.push((address, piece.len()));
        }
        Ok(())
    }

    /// Writes the context of the next packet.
    fn put_context(&mut self, context: [u32; WORDS]) {
        let index = self.flight.put(None);
        self.ring.write(index, context);
        self.context = self.is_alone.then_some(context);
    }

    /// Writes the descriptor of a piece of a packet; `end` is the packet if it is its last one.
    fn put_piece(
        &mut self,
        (address, bytes): (u64, usize),
        command: u32,
        options: u32,
        end: Option<Token>,
    ) {
        let index = self.flight.put(end);
        let mut command = command | tx::EXTENDED | tx::DATA | tx::CRC | bytes as u32;
        if end.is_some() {
            command |= tx::END;
            self.unreported += 1;
            if self.unreported == REPORT_PACKETS {
                self.unreported = 0;
                command |= tx::REPORT;
                self.flight.report();
            }
            self.last = Some((index, command));
        }
        let words = [address as u32, (address >> 32) as u32, command, options];
        self.ring.write(index, words);
    }

    /// Writes the descriptors of the packet whose pieces were gathered.
    fn put(&mut self, token: Token, context: Option<[u32; WORDS]>, command: u32, options: u32) {
        if let Some(context) = context {
            self.put_context(context);
        }
        let pieces = std::mem::take(&mut self.pieces);
        if let [others @ .., last] = &pieces[..] {
            for piece in others {
                self.put_piece(*piece, command, options, None);
            }
            self.put_piece(*last, command, options, Some(token));
        }
        // Its memory is for the next packet.
        self.pieces = pieces;
    }

    /// The only piece of a packet that is in one, as most are.
    fn only_piece(&self, packet: &Packet) -> Option<(u64, usize)> {
        let first = packet.first();
        let is_one = first.len() == packet.bytes() && first.len() <= PIECE_BYTES_MAX;
        Some((self.window.address(first).filter(|_| is_one)?, first.len()))
    }

    fn check_present(&self) -> Result<(), DeviceError> {
        match self.line.card.link() {
            Link::Removed => Err(DeviceError::Removed),
            Link::Up | Link::Down => Ok(()),
        }
    }

    /// The card has completed the packets up to a report.
    fn is_reported(&self) -> bool {
        let next = self.flight.next_report();
        next.is_some_and(|index| self.ring.status(index, 3) & tx::DONE != 0)
    }

    fn next_complete(&mut self) -> Option<Token> {
        loop {
            if let Some(token) = self.flight.next_complete() {
                return Some(token);
            }
            if !self.is_reported() {
                return None;
            }
            self.flight.reported();
        }
    }

    /// That the descriptors of a packet of so many pieces and its context are free.
    fn room(&self, pieces: usize) -> Result<(), Refused> {
        match pieces < self.flight.room() {
            true => Ok(()),
            false => Err(Refused::NoDescriptor),
        }
    }

    /// Puts the last bytes of the packet into a descriptor of their own.
    fn split_last(&mut self) {
        if let Some((address, bytes)) = self.pieces.last_mut()
            && *bytes > SENTINEL_BYTES
        {
            *bytes -= SENTINEL_BYTES;
            let end = (*address + *bytes as u64, SENTINEL_BYTES);
            self.pieces.push(end);
        }
    }

    /// Stops the card's TX, empties the ring, and starts it again. Calls `each` with the packets
    /// that were in it, in order. The card has not read the descriptors behind its head, nor those
    /// that it was not told of, so their packets were not sent. The one at the head may be on the
    /// wire. Of those in front of it that it has not reported, nothing is known.
    fn empty(&mut self, mut each: impl FnMut(Token, Fate)) {
        let line = Arc::clone(&self.line);
        let (card, ring) = (&line.card, RingRegisters::tx(self.queue));
        card.pause_tx(|| {
            while let Some(token) = self.returned.take().or_else(|| self.next_complete()) {
                each(token, Fate::Sent);
            }
            let (oldest, tail, count) =
                (self.flight.oldest(), self.flight.tail(), self.ring.count());
            let from_oldest = |index: usize| (index + count - oldest) % count;
            // Descriptors in use that the card has come to, and that it was told of.
            let [head, told] = [ring.head(), ring.tail()]
                .map(|register| from_oldest(card.read(register) as usize % count));
            let is_known = head <= told && told <= from_oldest(tail) && !card.bus.is_removed();
            self.flight.clear(|token, before| {
                let unsent = is_known && (before > head || before >= told);
                let fate = if unsent { Fate::Unsent } else { Fate::Unknown };
                each(token, fate);
            });
            init::place(&card.bus, ring, self.ring.address(), self.ring.bytes());
        });
        (self.context, self.last, self.unreported) = (None, None, 0);
    }
}

/// What became of a packet whose ring was emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Sent,
    Unsent,
    Unknown,
}

impl<B: Bus> TxDescriptors for E1000eTx<B> {
    fn encap(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<Accepted, Refused> {
        let whole = packet.packet();
        if whole.bytes() < bytes_min(LinkType::Ethernet) {
            return Err(Refused::Bad(DropReason::Truncated));
        }
        match self.line.card.link() {
            Link::Up => {}
            Link::Down => return Err(Refused::LinkDown),
            Link::Removed => return Err(Refused::Removed),
        }
        let (context, command, options) = if let Some(gso) = whole.meta().gso {
            if self.line.card.is_slow() {
                // Since the last call of `changed`, which offers them again.
                self.offers = self.offloads.without(Features::TSO);
                return Err(Refused::Feature(Features::TSO));
            }
            let headers = tso::Headers::of(whole, gso)?;
            let slot = self.slots + self.flight.tail() * tso::SLOT_BYTES;
            let most = tso::piece_bytes_max(gso);
            self.pieces.clear();
            self.pieces
                .push((self.dma.address() + slot as u64, headers.as_bytes().len()));
            self.gather(whole, headers.as_bytes().len(), headers.end, most)?;
            self.split_last();
            self.room(self.pieces.len())?;
            self.dma.store_bytes(slot, headers.as_bytes());
            self.after_segments = true;
            (Some(headers.context()), tx::SEGMENT, headers.options())
        } else {
            let context = tso::checksum(whole)?;
            let options = if context.is_some() { tx::CHECKSUM } else { 0 };
            let known = self.context;
            let context = context.filter(|new| Some(*new) != known);
            if let Some(piece) = self.only_piece(whole)
                && !self.after_segments
            {
                self.room(1)?;
                if let Some(context) = context {
                    self.put_context(context);
                }
                self.put_piece(piece, 0, options, Some(token));
                return Ok(Accepted::Pending);
            }
            self.pieces.clear();
            self.gather(whole, 0, whole.bytes(), PIECE_BYTES_MAX)?;
            if self.after_segments && self.pieces.len() == 1 {
                self.split_last();
            }
            self.room(self.pieces.len())?;
            self.after_segments = false;
            (context, 0, options)
        };
        self.put(token, context, command, options);
        Ok(Accepted::Pending)
    }

    fn flush(&mut self, _: Instant) -> Result<(), DeviceError> {
        self.check_present()?;
        let Some((index, command)) = self.last.take() else {
            return Ok(());
        };
        // What is in front of a doorbell is always reported.
        if self.unreported > 0 {
            self.unreported = 0;
            self.flight.report();
            self.ring.publish(index, 2, command | tx::REPORT);
        }
        write_barrier();
        let tail = RingRegisters::tx(self.queue).tail();
        self.line.card.write(tail, self.flight.tail() as u32);
        self.doorbells += 1;
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

    /// Nothing is missed, as for packets that arrive (`E1000eRx`). Without an interrupt of its own,
    /// the queue polls it.
    fn arm(&mut self) -> Option<Armed> {
        let interrupt = self.interrupt.as_ref()?;
        interrupt.clear();
        let causes = cause::tx_queue(self.queue);
        self.line.card.write(registers::IMS, causes);
        let has_some = self.returned.is_some() || self.flight.has_finished();
        Some(match has_some || self.is_reported() {
            true => Armed::WorkPending,
            false => Armed::Idle,
        })
    }

    fn is_blocked(&self) -> bool {
        self.line.card.link() == Link::Down
    }

    fn changed(&mut self) -> Change {
        let now = match self.line.card.is_slow() {
            true => self.offloads.without(Features::TSO),
            false => self.offloads,
        };
        if now == self.offers {
            return Change::No;
        }
        self.offers = now;
        Change::Offloads(now)
    }

    /// It does not change. The link is checked here, for a port whose RX half is not polled.
    fn mtu(&mut self) -> Option<u32> {
        self.line.card.check();
        None
    }

    fn reset(
        &mut self,
        sent: &mut Completed,
        unsent: &mut Completed,
    ) -> Result<Reset, DeviceError> {
        self.empty(|token, fate| {
            // They have room for all packets in flight.
            let has_room = match fate {
                Fate::Sent => sent.push(token),
                Fate::Unsent => unsent.push(token),
                Fate::Unknown => true,
            };
            debug_assert!(has_room, "{fate:?}");
        });
        match self.line.card.check() {
            Link::Removed => Err(DeviceError::Removed),
            Link::Up | Link::Down => Ok(Reset::Done),
        }
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        let interrupt = self.interrupt.as_ref()?;
        Some((interrupt.as_fd(), Interest::Read))
    }

    fn doorbells(&self) -> u64 {
        self.doorbells
    }
}

impl<B: Bus> Drop for E1000eTx<B> {
    fn drop(&mut self) {
        // The framework frees their packets after this.
        if !self.flight.is_empty() {
            self.empty(|_, _| ());
        }
    }
}
