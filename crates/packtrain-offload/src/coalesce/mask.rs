//! The bytes of two headers that have to be equal for the packets to merge: all but a few fields,
//! whose offsets depend only on the shape.

use super::config::{Config, Semantics};
use super::header::{IPV4_NOT_DF, TCP_CWR, TCP_FIN, TCP_PSH, WIDE};
use super::rules::NOT_FIRST;
use super::shape::{Shape, places};
use super::wide;
use crate::limits::HEADER_BYTES_MAX;
use crate::offload::LinkType;

/// The bits that have to be equal, for one shape.
#[derive(Clone, Debug)]
pub(super) struct Mask {
    shape: Shape,
    bits: [u8; HEADER_BYTES_MAX],
}

impl Mask {
    const EMPTY: Self = Self {
        shape: Shape::NONE,
        bits: [0; HEADER_BYTES_MAX],
    };

    fn build(&mut self, shape: Shape, semantics: Semantics) {
        self.shape = shape;
        self.bits = [0; HEADER_BYTES_MAX];
        self.bits[..shape.header_bytes()].fill(0xFF);
        let (network, transport) = (shape.network(), shape.transport());
        if shape.kind().is_ipv6() {
            self.ignore(network + 4, 2);
        } else {
            // Length, identification and checksum.
            self.ignore(network + 2, 4);
            self.ignore(network + 10, 2);
        }
        self.ignore(shape.checksum_at(), 2);
        if !shape.kind().is_tcp() {
            self.ignore(transport + 4, 2);
            return;
        }
        self.ignore(transport + 4, 4);
        self.bits[transport + 13] &= !(TCP_FIN | TCP_PSH | TCP_CWR);
        if semantics == Semantics::Stream {
            // Acknowledgement, window, and the timestamps, which have their own rules.
            self.ignore(transport + 8, 4);
            self.ignore(transport + 14, 2);
            if let Some(options) = shape.timestamps_at() {
                self.ignore(options + 4, 8);
            }
        }
    }

    fn ignore(&mut self, at: usize, bytes: usize) {
        self.bits[at..at + bytes].fill(0);
    }

    /// Whether `a` and `b`, both at least as long as the headers, agree under the mask.
    #[inline]
    fn agrees(&self, a: &[u8], b: &[u8]) -> bool {
        let bytes = self.shape.header_bytes();
        let (Some(a), Some(b), Some(bits)) =
            (a.get(..bytes), b.get(..bytes), self.bits.get(..bytes))
        else {
            return false;
        };
        let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
        let mut difference = 0;
        for ((a, b), bits) in words.zip(bits.as_chunks::<8>().0) {
            difference |= differ(a, b, bits);
        }
        // The last eight bytes, overlapping: the headers need not end on a word.
        if let (Some(a), Some(b), Some(bits)) = (a.last_chunk(), b.last_chunk(), bits.last_chunk())
        {
            difference |= differ(a, b, bits);
        }
        difference == 0
    }
}

#[inline]
const fn differ(a: &[u8; 8], b: &[u8; 8], bits: &[u8; 8]) -> u64 {
    (u64::from_ne_bytes(*a) ^ u64::from_ne_bytes(*b)) & u64::from_ne_bytes(*bits)
}

/// A mask of header bits, at most `WIDE` bytes, for vector compares.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
struct Bits([u8; WIDE]);

/// The shape of the packet held last, and the masks that recognise a packet of that shape without
/// parsing it. Only for common shapes: all headers are within the first `WIDE` bytes, without IPv4
/// options or IPv6 extension headers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recent {
    pub shape: Shape,
    /// Length of all headers.
    pub header_bytes: u32,
    /// In the link header.
    pub vlans: u8,
    /// The longest transport payload that fits into the longest IP datagram allowed.
    payload_max: u32,
    /// The bits in which the next packet of a run has to equal the first one. The next packet has
    /// the same length, and no flags that start or end a run. This is stricter than the rule for
    /// merging, and so implies it.
    next: Bits,
    /// A packet that agrees with `like` in these bits has this shape and may be held.
    first: Bits,
    like: Bits,
}

impl Recent {
    /// Matches no packet: no held packet has its shape, and no IPv4 header begins with ones.
    const NONE: Self = Self {
        shape: Shape::NONE,
        header_bytes: 0,
        vlans: 0,
        payload_max: 0,
        next: Bits([0xFF; WIDE]),
        first: Bits([0xFF; WIDE]),
        like: Bits([0xFF; WIDE]),
    };

    /// For a held packet, with its mask.
    fn of(mask: &Mask, head: &[u8], config: &Config) -> Option<Self> {
        let (shape, network) = (mask.shape, mask.shape.network());
        let compared = if shape.kind().is_ipv6() {
            WIDE
        } else {
            WIDE_V4
        };
        let common = places(shape) == (shape.kind(), network, shape.transport());
        if shape.header_bytes() > compared || !common {
            return None;
        }
        let next = Self::next(mask)?;
        let (first, mut like) = (Self::first(shape, config.link), Bits(*head.first_chunk()?));
        for (byte, bits) in like.0.iter_mut().zip(first.0) {
            *byte &= bits;
        }
        let headers = (shape.header_bytes() - network) as u32;
        Some(Self {
            shape,
            header_bytes: shape.header_bytes() as u32,
            vlans: shape.vlans(config.link),
            payload_max: config.max_bytes.saturating_sub(headers),
            next,
            first,
            like,
        })
    }

    /// Everything but the TCP sequence number, the checksums, FIN, PSH and CWR, and the eight bytes
    /// of an IPv4 header from the identification to the checksum.
    fn next(mask: &Mask) -> Option<Bits> {
        let mut bits = *mask.bits.first_chunk()?;
        let (network, transport) = (mask.shape.network(), mask.shape.transport());
        if mask.shape.kind().is_ipv6() {
            bits[network + 4..network + 6].fill(0xFF);
        } else {
            bits[network + 2..network + 4].fill(0xFF);
            bits[network + 4..network + 12].fill(0);
        }
        if !mask.shape.kind().is_tcp() {
            bits[transport + 4..transport + 6].fill(0xFF);
        }
        Some(Bits(bits))
    }

    /// The fields that a parser reads, and the flags that a first packet may not have.
    fn first(shape: Shape, link: LinkType) -> Bits {
        let (network, transport) = (shape.network(), shape.transport());
        let mut bits = [0; WIDE];
        let addresses = match link {
            LinkType::Ethernet => 12,
            LinkType::RawIp | LinkType::Ipoib => 0,
        };
        bits[addresses..network].fill(0xFF);
        if shape.kind().is_ipv6() {
            // Version, next header.
            bits[network] = 0xF0;
            bits[network + 6] = 0xFF;
        } else {
            // Version and length, no fragment, protocol.
            bits[network] = 0xFF;
            bits[network + 6..network + 8].copy_from_slice(&IPV4_NOT_DF.to_be_bytes());
            bits[network + 9] = 0xFF;
        }
        if shape.kind().is_tcp() {
            bits[transport + 12] = 0xF0;
            bits[transport + 13] = NOT_FIRST;
        }
        Bits(bits)
    }

    /// Whether a packet with `head` agrees with the first one of a run in the bits of `next`.
    #[inline(always)]
    pub(super) fn is_next<const KIND: u8>(&self, first: &[u8; WIDE], head: &[u8; WIDE]) -> bool {
        agree::<KIND>(first, head, &self.next)
    }

    /// Whether `head` has this shape and the flags allowed on a first packet.
    #[inline(always)]
    pub(super) fn is_first<const KIND: u8>(&self, head: &[u8; WIDE]) -> bool {
        agree::<KIND>(&self.like.0, head, &self.first)
    }

    /// Whether a merged packet may have `bytes` of transport payload.
    #[inline(always)]
    pub(super) const fn fits(&self, bytes: u32) -> bool {
        bytes <= self.payload_max
    }
}

/// Bytes compared of IPv4 packets: no common header exceeds four vectors and a few bytes.
const WIDE_V4: usize = 80;

#[inline(always)]
fn agree<const KIND: u8>(a: &[u8; WIDE], b: &[u8; WIDE], bits: &Bits) -> bool {
    if Shape::NONE.of_kind::<KIND>().kind().is_ipv6() {
        return wide::agree(a, b, &bits.0);
    }
    match (a.first_chunk(), b.first_chunk(), bits.0.first_chunk()) {
        (Some(a), Some(b), Some(bits)) => wide::agree::<WIDE_V4>(a, b, bits),
        _ => false,
    }
}

/// Masks of the shapes seen last. Most links carry about four.
#[derive(Clone, Debug)]
pub(super) struct Masks {
    masks: [Mask; Self::KEPT],
    /// The one that is replaced next.
    next: usize,
    semantics: Semantics,
    /// Shape of the packet held last, if its headers are short enough: most packets share it.
    recent: Recent,
}

impl Masks {
    const KEPT: usize = 8;

    pub(super) const fn new(semantics: Semantics) -> Self {
        Self {
            masks: [Mask::EMPTY; Self::KEPT],
            next: 0,
            semantics,
            recent: Recent::NONE,
        }
    }

    /// The mask of the shape that was held last.
    #[inline(always)]
    pub(super) const fn recent(&self) -> &Recent {
        &self.recent
    }

    /// Notes that a packet of `shape` is held.
    #[inline(always)]
    pub(super) fn note(&mut self, shape: Shape, head: &[u8], config: &Config) {
        if shape != self.recent.shape {
            self.take_note(shape, head, config);
        }
    }

    #[inline(never)]
    fn take_note(&mut self, shape: Shape, head: &[u8], config: &Config) {
        let found = self.masks.iter().position(|mask| mask.shape == shape);
        let at = found.unwrap_or_else(|| self.replace(shape));
        if let Some(recent) = Recent::of(&self.masks[at], head, config) {
            self.recent = recent;
        }
    }

    /// Whether two headers of `shape` agree in every bit that has to be equal.
    #[inline]
    pub(super) fn agree(&mut self, shape: Shape, a: &[u8], b: &[u8]) -> bool {
        let found = self.masks.iter().position(|mask| mask.shape == shape);
        let at = found.unwrap_or_else(|| self.replace(shape));
        self.masks[at].agrees(a, b)
    }

    #[cold]
    fn replace(&mut self, shape: Shape) -> usize {
        let at = self.next;
        self.next = (at + 1) % Self::KEPT;
        self.masks[at].build(shape, self.semantics);
        at
    }
}
