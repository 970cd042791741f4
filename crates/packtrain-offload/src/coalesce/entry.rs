//! One held packet, alone or merged.

use super::header::{TCP_CWR, TCP_FIN, TCP_PSH, WIDE, array, load16, load32, store16};
use super::parse::Parsed;
use super::shape::{Shape, places};
use crate::checksum::Sum;

/// Header bytes copied into the entry, so that comparing does not touch the held packet. The size
/// keeps an entry within two cache lines; longer headers are read from the packet itself.
pub(super) const TEMPLATE_BYTES: usize = WIDE;

/// How the IPv4 identification changes from packet to packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ids {
    /// Only one packet so far: nothing to compare with.
    Undecided,
    /// Increases by one each time.
    Counting,
    /// Stays the same.
    Fixed,
    /// A repeated acknowledgement of `stream`: merging any later packet would make it vanish.
    Sealed,
}

/// The state of a held packet, apart from the packet itself.
#[derive(Clone, Debug)]
#[repr(C)]
pub(super) struct State {
    /// The first bytes of the first packet; `stream` keeps the acknowledgement, the window and the
    /// timestamps up to date. For the content of its transport checksum field see `summed`.
    pub template: [u8; TEMPLATE_BYTES],
    pub shape: Shape,
    pub next_seq: u32,
    /// Transport payload so far; an IP length bounds it.
    pub payload_bytes: u16,
    /// Segment size: the largest payload for `stream`, the first payload for `reversible`.
    pub size: u16,
    /// Wire packets in it.
    pub count: u16,
    /// Pure ACKs among them.
    pub absorbed: u16,
    pub ids: Ids,
    /// TCP flags to add: FIN and PSH of later packets.
    pub flags: u8,
    /// The template's checksum field holds the sum of the pseudo-header and of the transport header
    /// without sequence number and checksum. That sum is constant while lengths are.
    pub summed: bool,
    /// When the first packet arrived, in units of [`TICK`].
    pub born: u32,
    pub aside: u32,
}

/// Nanoseconds of one unit of [`State::born`], as a shift: 1.024 µs, wrapping after 73 minutes.
pub(super) const TICK: u32 = 10;

/// The parsed fields of a packet to hold.
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

    /// Starts an entry with a first packet, its parsed fields and its headers.
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

    /// Stores the sum of the header fields that stay the same, for a first packet with a correct
    /// checksum. `headers` is the sum of the pseudo-header and all of the transport header.
    #[inline]
    pub(super) fn keep_sum(&mut self, mut headers: Sum) {
        let (shape, template) = (self.shape, &mut self.template);
        let tcp = shape.kind().is_tcp();
        if shape.header_bytes() > TEMPLATE_BYTES
            || (tcp && template[shape.transport() + 13] & TCP_CWR != 0)
        {
            // Later packets have no CWR, so their sum would differ.
            return;
        }
        let at = shape.checksum_at();
        // Adding the complement of a field removes it from the sum.
        headers.add_u16(!load16(template, at));
        if tcp {
            headers.add_u32(!load32(template, shape.transport() + 4));
        }
        store16(template, at, headers.fold());
        self.summed = true;
    }

    /// The headers to compare with, if the template contains all of them.
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

    /// Whether a packet with `head` is probably the next one: the cheapest test that tells flows
    /// apart. It is only a hint.
    #[inline(always)]
    pub(super) fn awaits(&self, shape: Shape, head: &[u8; WIDE]) -> bool {
        let (kind, _, transport) = places(shape);
        if kind.is_tcp() {
            u32::from_be_bytes(array(head, transport + 4)) == self.next_seq
        } else {
            array::<4>(head, transport) == array::<4>(&self.template, transport)
        }
    }

    /// Accounts for `new`, which was merged into the held packet. Returns whether one of them was a
    /// pure ACK that segmentation will not restore.
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
