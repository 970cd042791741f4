//! One held packet, alone or merged.

use super::parse::{Parsed, TCP_FIN, TCP_PSH};
use super::shape::Shape;

/// Header bytes that are kept in the entry, so that comparing does not touch the held packet.
/// An entry is two cache lines so; headers that are longer are read from the packet itself.
pub(super) const TEMPLATE_BYTES: usize = 88;

/// How the IPv4 identification goes on from packet to packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ids {
    /// One packet has none to compare with.
    Undecided,
    /// One more each time.
    Counting,
    /// Always the same.
    Fixed,
    /// A repeated acknowledgement of `stream`: whatever came next would make it vanish.
    Sealed,
}

/// What is known of a held packet besides the packet.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// The first bytes of the first packet; `stream` keeps the acknowledgement, the window and the
    /// timestamps up to date.
    pub template: [u8; TEMPLATE_BYTES],
    pub shape: Shape,
    pub next_seq: u32,
    /// Transport payload so far; an IP length bounds it.
    pub payload_bytes: u16,
    /// Largest payload for `stream`, first payload for `reversible`: what it is cut into.
    pub size: u16,
    /// Wire packets in it.
    pub count: u16,
    /// Pure ACKs in it, of those.
    pub absorbed: u16,
    pub ids: Ids,
    /// TCP flags to add: FIN and PSH of later packets.
    pub flags: u8,
    /// When the first packet came, in units of [`TICK`].
    pub born: u32,
    pub aside: u32,
}

/// Nanoseconds of one unit of [`State::born`], as a shift: 1.024 µs, wrapping after 73 minutes.
pub(super) const TICK: u32 = 10;

impl State {
    pub(super) const EMPTY: Self = Self {
        template: [0; TEMPLATE_BYTES],
        shape: Shape::NONE,
        next_seq: 0,
        payload_bytes: 0,
        size: 0,
        count: 0,
        absorbed: 0,
        ids: Ids::Undecided,
        flags: 0,
        born: 0,
        aside: 0,
    };

    /// Begins with a first packet.
    #[inline]
    pub(super) fn begin(&mut self, first: &Parsed, head: &[u8], now: u64, aside: u32) {
        let kept = head.len().min(TEMPLATE_BYTES);
        if let Some(all) = head.first_chunk::<TEMPLATE_BYTES>() {
            self.template = *all;
        } else {
            self.template[..kept].copy_from_slice(&head[..kept]);
        }
        self.shape = first.shape;
        self.next_seq = first.seq.wrapping_add(first.payload_bytes);
        // A payload is shorter than its IP datagram.
        self.payload_bytes = first.payload_bytes as u16;
        self.size = self.payload_bytes;
        self.count = 1;
        self.absorbed = 0;
        self.ids = Ids::Undecided;
        self.flags = 0;
        self.born = (now >> TICK) as u32;
        self.aside = aside;
    }

    /// The headers to compare with, if all of them are kept here.
    #[inline]
    pub(super) fn headers(&self) -> Option<&[u8]> {
        self.template.get(..self.shape.header_bytes())
    }

    /// Length of the IP datagram, header included, with `more` bytes of transport payload.
    #[inline]
    pub(super) fn ip_bytes_with(&self, more: u32) -> u32 {
        (self.shape.header_bytes() - self.shape.network()) as u32
            + u32::from(self.payload_bytes)
            + more
    }

    /// The held packet has `new` in it now. Says whether one of them was a pure ACK that will never
    /// come out again.
    #[inline(always)]
    pub(super) fn advance(&mut self, new: &Parsed) -> bool {
        let absorbed = new.payload_bytes == 0 || self.payload_bytes == 0;
        self.next_seq = new.seq.wrapping_add(new.payload_bytes);
        // The rules keep the sum below 65 536.
        self.payload_bytes = self.payload_bytes.wrapping_add(new.payload_bytes as u16);
        self.count += 1;
        self.flags |= new.flags & (TCP_FIN | TCP_PSH);
        self.absorbed += u16::from(absorbed);
        // `Reversible` merges nothing larger than the first.
        self.size = self.size.max(new.payload_bytes as u16);
        absorbed
    }
}
