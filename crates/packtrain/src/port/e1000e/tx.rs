//! How a queue's TX descriptors are written and read.

use super::init;
use super::line::Line;
use super::registers::{self, RingRegisters, WORDS, tx};
use super::tso::{self, PIECE_BYTES_MAX, PIECES_MAX, SENTINEL_BYTES, Work};
use crate::driver::{
    Armed, Change, Completed, DeviceError, Features, Link, Refused, Token, TxPacket,
};
use crate::packet::Packet;
use crate::port::card::{Bus, Flight, Pieces, Ring, Transmit, write_barrier};
use packtrain_offload::offload::Gso;
use std::sync::Arc;

/// The card reports the completion of each packet of this number, and of the last one of a batch.
const REPORT_PACKETS: usize = 16;

/// The TX ring of a queue.
#[derive(Debug)]
pub struct E1000eTransmit<B: Bus> {
    pub(super) card: Arc<Line<B>>,
    pub(super) registers: RingRegisters,
    pub(super) ring: Ring<WORDS>,
    pub(super) flight: Flight,
    pub(super) pieces: Pieces,
    /// The context that the card has. It is the same for both queues, so it is known only for one.
    pub(super) context: Option<[u32; WORDS]>,
    pub(super) is_alone: bool,
    /// Packets since the last one whose completion is reported.
    pub(super) unreported: usize,
    /// The last descriptor, and its command.
    pub(super) last: Option<(usize, u32)>,
    /// The last packet was segmented.
    pub(super) after_segments: bool,
    pub(super) causes: u32,
    /// What the card does at its full speed, and what was offered last.
    pub(super) offloads: Features,
    pub(super) offers: Features,
}

impl<B: Bus> E1000eTransmit<B> {
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
    fn put_pieces(&mut self, token: Token, (context, command, options): Work) {
        if let Some(context) = context {
            self.put_context(context);
        }
        let pieces = std::mem::take(&mut self.pieces.all);
        if let [others @ .., last] = &pieces[..] {
            for piece in others {
                self.put_piece(*piece, command, options, None);
            }
            self.put_piece(*last, command, options, Some(token));
        }
        // Its memory is for the next packet.
        self.pieces.all = pieces;
    }

    /// What the card does at the speed of its link.
    fn offloads_now(&self) -> Features {
        match self.card.is_slow() {
            true => self.offloads.without(Features::TSO),
            false => self.offloads,
        }
    }

    /// The pieces of a packet that the card segments.
    fn cut(&mut self, packet: &Packet, gso: Gso) -> Result<Work, Refused> {
        if self.card.is_slow() {
            // Since the last call of `changed`, which offers them again.
            self.offers = self.offloads_now();
            return Err(Refused::Feature(Features::TSO));
        }
        let (work, headers, end) = tso::cut(packet, gso)?;
        self.pieces.begin_with(&headers, self.flight.tail());
        let (part, most) = (headers.as_bytes().len()..end, tso::piece_bytes_max(gso));
        self.pieces.gather(packet, part, most, PIECES_MAX)?;
        self.split_last();
        self.room(self.pieces.all.len())?;
        self.after_segments = true;
        Ok(work)
    }

    /// The card has completed the packets up to a report.
    fn is_reported(&self) -> bool {
        let next = self.flight.next_report();
        next.is_some_and(|index| self.ring.status(index, 3) & tx::DONE != 0)
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
        if let Some((address, bytes)) = self.pieces.all.last_mut()
            && *bytes > SENTINEL_BYTES
        {
            *bytes -= SENTINEL_BYTES;
            let end = (*address + *bytes as u64, SENTINEL_BYTES);
            self.pieces.all.push(end);
        }
    }

    /// Stops the card's TX, empties the ring, and starts it again. Calls `sent` and `unsent` with
    /// the packets that were in it, in order. The card has not read the descriptors behind its
    /// head, nor those that it was not told of, so their packets were not sent. The one at the head
    /// may be on the wire. Of those in front of it that it has not reported, nothing is known.
    fn empty(&mut self, mut sent: impl FnMut(Token), mut unsent: impl FnMut(Token)) {
        let (card, ring) = (Arc::clone(&self.card), self.registers);
        card.pause_tx(|| {
            while let Some(token) = self.next_complete() {
                sent(token);
            }
            let (oldest, tail, count) =
                (self.flight.oldest(), self.flight.tail(), self.ring.count());
            let from_oldest = |index: usize| (index + count - oldest) % count;
            // Descriptors in use that the card has come to, and that it was told of.
            let [head, told] = [ring.head(), ring.tail()]
                .map(|register| from_oldest(card.read(register) as usize % count));
            let is_known = head <= told && told <= from_oldest(tail) && !card.bus.is_removed();
            self.flight.clear(|token, before| {
                if is_known && (before > head || before >= told) {
                    unsent(token);
                }
            });
            init::place(&card.bus, ring, self.ring.address(), self.ring.bytes());
        });
        (self.context, self.last, self.unreported) = (None, None, 0);
    }
}

impl<B: Bus> Transmit for E1000eTransmit<B> {
    fn link(&self) -> Link {
        self.card.link.get()
    }

    fn read_link(&mut self) {
        self.card.check();
    }

    fn put(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<(), Refused> {
        let whole = packet.packet();
        if let Some(gso) = whole.meta().gso {
            let work = self.cut(whole, gso)?;
            self.put_pieces(token, work);
            return Ok(());
        }
        let (context, _, options) = tso::checksum(whole)?;
        let known = self.context;
        let context = context.filter(|new| Some(*new) != known);
        if let Some(piece) = self.pieces.only(whole, PIECE_BYTES_MAX)
            && !self.after_segments
        {
            self.room(1)?;
            if let Some(context) = context {
                self.put_context(context);
            }
            self.put_piece(piece, 0, options, Some(token));
            return Ok(());
        }
        self.pieces.all.clear();
        let all = 0..whole.bytes();
        self.pieces
            .gather(whole, all, PIECE_BYTES_MAX, PIECES_MAX)?;
        if self.after_segments && self.pieces.all.len() == 1 {
            self.split_last();
        }
        self.room(self.pieces.all.len())?;
        self.after_segments = false;
        self.put_pieces(token, (context, 0, options));
        Ok(())
    }

    fn publish(&mut self) -> bool {
        let Some((index, command)) = self.last.take() else {
            return false;
        };
        // What is in front of a doorbell is always reported.
        if self.unreported > 0 {
            self.unreported = 0;
            self.flight.report();
            self.ring.publish(index, 2, command | tx::REPORT);
        }
        write_barrier();
        let tail = self.flight.tail();
        self.card.write(self.registers.tail(), tail as u32);
        true
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

    fn arm(&mut self, _came: bool, _packets: usize) -> Option<Armed> {
        self.card.write(registers::IMS, self.causes);
        Some(match self.flight.has_finished() || self.is_reported() {
            true => Armed::WorkPending,
            false => Armed::Idle,
        })
    }

    fn changed(&mut self) -> Change {
        let now = self.offloads_now();
        match std::mem::replace(&mut self.offers, now) == now {
            true => Change::No,
            false => Change::Offloads(now),
        }
    }

    fn can_reset(&self) -> bool {
        true
    }

    fn reset(&mut self, sent: &mut Completed, unsent: &mut Completed) -> Result<(), DeviceError> {
        let put = |all: &mut Completed, token| {
            let has_room = all.push(token);
            debug_assert!(has_room, "it has room for all packets in flight");
        };
        self.empty(|token| put(sent, token), |token| put(unsent, token));
        match self.card.check() {
            Link::Removed => Err(DeviceError::Removed),
            Link::Up | Link::Down => Ok(()),
        }
    }
}

impl<B: Bus> Drop for E1000eTransmit<B> {
    fn drop(&mut self) {
        // The framework frees their packets after this.
        if !self.flight.is_empty() {
            self.empty(|_| (), |_| ());
        }
    }
}
