//! How a queue's TX descriptors are written, and its completions read.

use super::card::Shared;
use super::registers::{self as reg, QUEUES_BAR, done, tx};
use super::rings::{Completions, Posts};
use crate::driver::{Armed, Features, Link, Refused, Token, TxPacket};
use crate::packet::{Meta, Packet};
use crate::port::card::{
    Bus, CutHeaders, Flight, Pieces, Running, Stop as _, Transmit, checksum_place, write_barrier,
};
use packtrain_offload::layout::{Layout, Transport};
use packtrain_offload::offload::Gso;
use std::sync::Arc;

/// Not that of a packet.
const NO_PACKET: Token = Token(u32::MAX);

/// The TX ring of a queue.
#[derive(Debug)]
pub struct Vmxnet3Transmit<B: Bus> {
    pub(super) shared: Arc<Running<Shared<B>>>,
    pub(super) queue: usize,
    pub(super) posts: Posts,
    pub(super) completions: Completions,
    pub(super) flight: Flight,
    pub(super) pieces: Pieces,
    /// The card was not told of the last packets.
    pub(super) is_new: bool,
    /// The number of the interrupt.
    pub(super) number: usize,
}

/// The words 2 and 3 of a packet's first descriptor.
type Work = (u32, u32);

impl<B: Bus> Vmxnet3Transmit<B> {
    /// The pieces of a packet that the card segments: its headers are a copy.
    fn cut(&mut self, packet: &Packet, gso: Gso) -> Result<Work, Refused> {
        let headers = CutHeaders::of(packet, gso, 0)?;
        let (count, size) = (headers.as_bytes().len(), gso.size.get());
        if usize::from(size) > tx::OPERAND_MAX {
            return Err(Refused::Feature(Features::of(gso.kind)));
        }
        self.pieces.begin_with(&headers, self.flight.tail());
        let part = count..headers.layout.ip_end as usize;
        self.pieces
            .gather(packet, part, tx::BYTES_MAX, tx::CUT_PIECES_MAX)?;
        Ok((
            u32::from(size) << tx::OPERAND_SHIFT,
            tx::SEGMENT | count as u32,
        ))
    }

    /// Writes the descriptors of the packet whose pieces were gathered. The card takes them with
    /// the first one.
    fn put_pieces(&mut self, token: Token, (second, third): Work) {
        let count = self.pieces.all.len();
        let mut first = None;
        for (number, (address, bytes)) in self.pieces.all.drain(..).enumerate() {
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
}

/// The work of the card on a packet that is sent as it is, and where that ends: its checksum covers
/// no padding of the link.
fn whole(packet: &Packet) -> Result<(Work, usize), Refused> {
    let Some((start, field)) = checksum_place(packet)? else {
        return Ok(((0, 0), packet.bytes()));
    };
    let meta = packet.meta();
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

impl<B: Bus> Transmit for Vmxnet3Transmit<B> {
    fn link(&self) -> Link {
        self.shared.card.link.get()
    }

    fn read_link(&mut self) {
        self.shared.card.check();
    }

    fn put(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<(), Refused> {
        let packet = packet.packet();
        let work = match packet.meta().gso {
            Some(gso) => self.cut(packet, gso)?,
            None => {
                let (work, end) = whole(packet)?;
                self.pieces.all.clear();
                self.pieces
                    .gather(packet, 0..end, tx::BYTES_MAX, tx::PIECES_MAX)?;
                work
            }
        };
        if self.pieces.all.len() > self.flight.room() {
            return Err(Refused::NoDescriptor);
        }
        self.put_pieces(token, work);
        Ok(())
    }

    fn publish(&mut self) -> bool {
        let is_new = std::mem::take(&mut self.is_new);
        if is_new {
            write_barrier();
            let (tail, to) = (self.flight.tail(), reg::tx_tail(self.queue));
            self.shared.card.bus.write32(QUEUES_BAR, to, tail as u32);
        }
        is_new
    }

    fn next_complete(&mut self) -> Option<Token> {
        loop {
            if let Some(token) = self.flight.next_complete() {
                return Some(token);
            }
            let [first, ..] = self.completions.take()?;
            if !self.flight.finish((first & done::INDEX) as usize) {
                return Some(NO_PACKET);
            }
        }
    }

    fn arm(&mut self, _came: bool, _packets: usize) -> Option<Armed> {
        self.shared.card.unmask(self.number);
        let has_some = self.flight.has_finished() || self.completions.has_next();
        Some(match has_some {
            true => Armed::WorkPending,
            false => Armed::Idle,
        })
    }
}

impl<B: Bus> Drop for Vmxnet3Transmit<B> {
    /// The card may read from the packets that it has until it is stopped, and the queue frees them
    /// next: it is stopped at once, for the other halves as well. If it does not stop, it may send
    /// bytes of other packets; it writes to none.
    fn drop(&mut self) {
        if !self.flight.is_empty() {
            self.shared.stop();
        }
    }
}
