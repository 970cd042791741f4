//! One held packet, alone or merged.

use super::header::{TCP_CWR, TCP_FIN, TCP_PSH, WIDE, array, load16, load32, store16};
use super::parse::Parsed;
use super::shape::{Shape, places};
use crate::checksum::Sum;

/// Header bytes that are kept in the entry, so that comparing does not touch the held packet.
/// An entry is two cache lines so; headers that are longer are read from the packet itself.
pub(super) const TEMPLATE_BYTES: usize = WIDE;

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
#[repr(C)]
pub(super) struct State {
    /// The first bytes of the first packet; `stream` keeps the acknowledgement, the window and the
    /// timestamps up to date. What is in its transport checksum field, see `summed`.
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
    /// The template's checksum field has the sum of the pseudo-header and of the transport header
    /// without sequence number and checksum, which stays the same as long as lengths do.
    pub summed: bool,
    /// When the first packet came, in units of [`TICK`].
    pub born: u32,
    pub aside: u32,
}

/// Nanoseconds of one unit of [`State::born`], as a shift: 1.024 µs, wrapping after 73 minutes.
pub(super) const TICK: u32 = 10;

/// What is known of a packet that is held.
#[derive(Clone, Copy, Debug)]
pub(super) struct First {
    pub shape: Shape,
    /// TCP sequence number.
    pub seq: u32,
    pub payload_bytes: u32,
    pub ids: Ids,
}

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
        summed: false,
        born: 0,
        aside: 0,
    };

    /// Begins with a first packet, with what is known of it and its headers.
    #[inline(always)]
    pub(super) fn begin(&mut self, first: &First, head: &[u8], now: u64, aside: u32) {
        if let Some(all) = head.first_chunk() {
            self.template = *all;
        } else {
            let kept = head.len().min(TEMPLATE_BYTES);
            self.template[..kept].copy_from_slice(&head[..kept]);
        }
        self.shape = first.shape;
        self.next_seq = first.seq.wrapping_add(first.payload_bytes);
        // A payload is shorter than its IP datagram.
        self.payload_bytes = first.payload_bytes as u16;
        self.size = first.payload_bytes as u16;
        self.count = 1;
        self.absorbed = 0;
        self.ids = first.ids;
        self.flags = 0;
        self.summed = false;
        self.born = (now >> TICK) as u32;
        self.aside = aside;
    }

    /// Keeps the sum of those headers of the first packet, whose checksum is right, that stay the
    /// same. `headers` is the sum of the pseudo-header and all of the transport header.
    #[inline]
    pub(super) fn keep_sum(&mut self, mut headers: Sum) {
        let (shape, template) = (self.shape, &mut self.template);
        let tcp = shape.kind().is_tcp();
        if shape.header_bytes() > TEMPLATE_BYTES
            || (tcp && template[shape.transport() + 13] & TCP_CWR != 0)
        {
            // CWR is on no later packet, and so their sum would be another.
            return;
        }
        let at = shape.checksum_at();
        // What is not to be in it is taken out by adding its complement.
        headers.add_u16(!load16(template, at));
        if tcp {
            headers.add_u32(!load32(template, shape.transport() + 4));
        }
        store16(template, at, headers.fold());
        self.summed = true;
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

    /// Whether a packet with `head` is probably the next one: what tells flows from each other
    /// fastest. Nothing is decided by it.
    #[inline(always)]
    pub(super) fn awaits(&self, shape: Shape, head: &[u8; WIDE]) -> bool {
        let (kind, _, transport) = places(shape);
        if kind.is_tcp() {
            u32::from_be_bytes(array(head, transport + 4)) == self.next_seq
        } else {
            array::<4>(head, transport) == array::<4>(&self.template, transport)
        }
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
