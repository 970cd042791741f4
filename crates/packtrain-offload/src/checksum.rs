//! The Internet checksum: summing, copying, folding, pseudo-headers and incremental update.
//!
//! The sum is kept in the order that the bytes have in memory, so that no word is swapped while
//! summing (RFC 1071 §2(B)); the 16-bit results are numbers to be stored with `to_be_bytes`.
//!
//! | to | use |
//! |---|---|
//! | sum pieces of any length and alignment | [`sum`], [`Sum::add`], [`Sum::add_pieces`] |
//! | sum while copying | [`copy_and_sum`], [`copy_and_sum_uninit`] |
//! | begin with the pseudo-header | [`pseudo_header_v4`], [`pseudo_header_v6`] |
//! | finish a new checksum | [`Sum::finish`], [`udp_field`], [`ipv4_header`] |
//! | finish one that the sender left partial | [`complete_partial`] |
//! | change what a checksum covers (RFC 1624) | [`update_u16`], [`update_bytes`], [`update_udp`] |
//! | check the one of a received packet | [`crate::verify`] |
//!
//! ```
//! use packtrain_offload::checksum::{copy_and_sum, pseudo_header_v4, udp_field};
//!
//! // A UDP datagram put together from a header and two pieces of payload.
//! let header = [0x30, 0x39, 0x00, 0x35, 0x00, 0x0D, 0, 0];
//! let mut datagram = [0; 13];
//! let mut sum = pseudo_header_v4([198, 18, 0, 1], [198, 18, 0, 2], 17, 13);
//! let mut at = 0;
//! for piece in [&header[..], b"pac", b"ke"] {
//!     sum.add_sum(copy_and_sum(&mut datagram[at..], piece));
//!     at += piece.len();
//! }
//! datagram[6..8].copy_from_slice(&udp_field(sum.finish()).to_be_bytes());
//!
//! let mut check = pseudo_header_v4([198, 18, 0, 1], [198, 18, 0, 2], 17, 13);
//! check.add(&datagram);
//! assert!(check.is_valid());
//! ```

use core::mem::MaybeUninit;

use crate::limits::IPV4_HEADER_BYTES_MIN;
use scalar::add_around;

mod level;
mod scalar;
mod select;
mod uninit;

// One of these is the `vectors` of `select`.
#[cfg(all(
    target_arch = "aarch64",
    target_endian = "little",
    target_feature = "neon"
))]
#[path = "checksum/neon.rs"]
mod vectors;
#[cfg(not(any(
    all(target_arch = "x86_64", target_feature = "sse2"),
    all(
        target_arch = "aarch64",
        target_endian = "little",
        target_feature = "neon"
    )
)))]
#[path = "checksum/no_vectors.rs"]
mod vectors;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[path = "checksum/x86.rs"]
mod vectors;

pub use level::Level;
pub use scalar::SHORT_BYTES_MAX;

/// A ones-complement sum in progress.
///
/// Pieces are summed as if they were contiguous: after an odd number of bytes the next byte is the
/// low half of its word. The amount that may be added is unbounded; the accumulator carries around
/// its end. An odd total is padded with one zero byte (RFC 1071 §1).
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// Congruent, modulo 0xFFFF, to the sum of the 16-bit words as they lie in memory; zero only
    /// while every byte was zero.
    words: u64,
    /// An odd number of bytes was added so far.
    odd: bool,
}

impl Sum {
    /// The sum of no bytes.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            words: 0,
            odd: false,
        }
    }

    /// Adds a piece of any length and alignment behind those already added.
    ///
    /// Otherwise like [`sum`].
    #[inline]
    pub fn add(&mut self, piece: &[u8]) {
        self.append(sum(piece));
    }

    /// Adds pieces of any lengths, one after the other.
    #[inline]
    pub fn add_pieces<'a>(&mut self, pieces: impl IntoIterator<Item = &'a [u8]>) {
        for piece in pieces {
            self.add(piece);
        }
    }

    /// Adds a 16-bit number as its two bytes in network order.
    #[inline]
    pub fn add_u16(&mut self, value: u16) {
        self.append(Self {
            words: u64::from(value.to_be()),
            odd: false,
        });
    }

    /// Adds a 32-bit number as its four bytes in network order.
    #[inline]
    pub fn add_u32(&mut self, value: u32) {
        self.append(Self {
            words: u64::from(value.to_be()),
            odd: false,
        });
    }

    /// Adds another sum, as if its bytes followed. Either may be odd.
    #[inline]
    pub fn add_sum(&mut self, other: Self) {
        self.append(other);
    }

    /// The sum folded to 16 bits, not complemented: the value of a partial checksum field. It is 0
    /// only if every byte was 0.
    #[inline]
    #[must_use]
    pub fn fold(self) -> u16 {
        u16::from_be(fold_words(self.words))
    }

    /// The sum folded and complemented: the value of a finished checksum field. A UDP field also
    /// needs [`udp_field`].
    #[inline]
    #[must_use]
    pub fn finish(self) -> u16 {
        !self.fold()
    }

    /// True if the sum, taken over all data including the checksum field, is that of a correct
    /// checksum.
    #[inline]
    #[must_use]
    pub fn is_valid(self) -> bool {
        self.fold() == 0xFFFF
    }

    /// `words` as a kernel of this crate returns it for `bytes` bytes.
    #[inline]
    pub(crate) const fn of_words(words: u64, bytes: usize) -> Self {
        Self {
            words,
            odd: bytes % 2 == 1,
        }
    }

    #[inline]
    fn append(&mut self, next: Self) {
        let words = if self.odd {
            // A sum that starts one byte later is the byte-swapped sum (RFC 1071 §2(B)).
            u64::from(fold_words(next.words).swap_bytes())
        } else {
            next.words
        };
        self.words = add_around(self.words, words);
        self.odd ^= next.odd;
    }
}

/// The residue modulo 0xFFFF in 16 bits; 0 for 0 alone.
#[inline]
const fn fold_words(words: u64) -> u16 {
    // The sum of a number and itself with the halves exchanged: the carry out of the low half is
    // the one to add around to the sum of both halves in the high half.
    let sum = (words.wrapping_add(words.rotate_left(32)) >> 32) as u32;
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

/// The sum of one contiguous piece.
/// Pieces of up to [`SHORT_BYTES_MAX`] are summed inline, longer ones by a function that is
/// selected for this processor at run time (see [`Level`]).
// Inlined always: a call would cost about as much as summing a header does.
#[inline(always)]
#[must_use]
pub fn sum(bytes: &[u8]) -> Sum {
    let words = if bytes.len() <= SHORT_BYTES_MAX {
        scalar::sum_short(bytes)
    } else {
        select::sum(bytes)
    };
    Sum::of_words(words, bytes.len())
}

/// The sum of one contiguous piece by one implementation, whatever its length; `None` if this
/// processor does not have it. For tests and measurements: [`sum`] chooses by itself.
#[must_use]
pub fn sum_with(level: Level, bytes: &[u8]) -> Option<Sum> {
    let words = select::sum_with(level, bytes)?;
    Some(Sum::of_words(words, bytes.len()))
}

/// Copies the start of `src` to the start of `dst`, up to the shorter length, and sums the copied
/// bytes, reading each once.
///
/// At either end up to a vector is loaded again where that is faster than to load less than one.
/// [`Level::Scalar`] copies 4 KiB, and sums them from the first-level cache.
///
/// The rest of a longer `dst` is unchanged. If `src` has to be copied completely, compare the
/// lengths first.
#[inline]
#[must_use = "a copy without its sum is `copy_from_slice`"]
pub fn copy_and_sum(dst: &mut [u8], src: &[u8]) -> Sum {
    let bytes = dst.len().min(src.len());
    let words = select::copy_and_sum(&mut dst[..bytes], &src[..bytes]);
    Sum::of_words(words, bytes)
}

/// [`copy_and_sum`] into memory that need not be initialised, such as
/// `Vec::spare_capacity_mut()`. The slice is the part of `dst` that was written.
#[inline]
pub fn copy_and_sum_uninit<'a>(dst: &'a mut [MaybeUninit<u8>], src: &[u8]) -> (&'a mut [u8], Sum) {
    let bytes = dst.len().min(src.len());
    let (written, words) = select::copy_and_sum_uninit(&mut dst[..bytes], &src[..bytes]);
    (written, Sum::of_words(words, bytes))
}

/// [`copy_and_sum`] by one implementation; `None`, with nothing copied, if this processor does not
/// have it. For tests and measurements.
#[must_use]
pub fn copy_and_sum_with(level: Level, dst: &mut [u8], src: &[u8]) -> Option<Sum> {
    let bytes = dst.len().min(src.len());
    let words = select::copy_and_sum_with(level, &mut dst[..bytes], &src[..bytes])?;
    Some(Sum::of_words(words, bytes))
}

/// The pseudo-header of TCP and UDP over IPv4 (RFC 9293 §3.1). `l4_bytes` counts the transport
/// header and its payload; above 65535 its high half is summed too, as Linux does for GSO packets.
#[inline]
#[must_use]
pub fn pseudo_header_v4(src: [u8; 4], dst: [u8; 4], protocol: u8, l4_bytes: u32) -> Sum {
    let mut sum = Sum::new();
    sum.add_u32(u32::from_be_bytes(src));
    sum.add_u32(u32::from_be_bytes(dst));
    sum.add_u16(u16::from(protocol));
    sum.add_u32(l4_bytes);
    sum
}

/// The pseudo-header of an upper layer over IPv6 (RFC 8200 §8.1). `l4_bytes` counts the transport
/// header and its payload, not extension headers; `dst` is the final destination, which is not the
/// one in the IPv6 header while a routing header has segments left.
#[inline]
#[must_use]
pub fn pseudo_header_v6(src: [u8; 16], dst: [u8; 16], protocol: u8, l4_bytes: u32) -> Sum {
    let mut sum = Sum::new();
    sum.add(&src);
    sum.add(&dst);
    sum.add_u32(l4_bytes);
    sum.add_u32(u32::from(protocol));
    sum
}

/// The checksum to store in an IPv4 header, for any value in its field. `header` is the header with
/// its options and nothing after it.
#[inline]
#[must_use]
pub fn ipv4_header(header: &[u8]) -> u16 {
    const FIELD: usize = 10;
    const { assert!(FIELD + 2 <= IPV4_HEADER_BYTES_MIN) };
    let mut sum = sum(header.get(..FIELD).unwrap_or(header));
    sum.add(header.get(FIELD + 2..).unwrap_or_default());
    sum.finish()
}

/// The checksum after one aligned 16-bit word that it covers changed from `old` to `new`
/// (RFC 1624 §3, equation 3).
///
/// A sum that comes out as zero is given as 0, never as 0xFFFF, unless all that it covers is zero
/// (a `check` of 0xFFFF, and the word becomes 0): then 0xFFFF is right. A UDP field also needs
/// [`udp_field`], and a UDP field that *is* 0 means "no checksum" and must not be updated.
#[inline]
#[must_use]
pub const fn update_u16(check: u16, old: u16, new: u16) -> u16 {
    !fold_words(!check as u64 + !old as u64 + new as u64)
}

/// The checksum after one aligned 32-bit word that it covers changed from `old` to `new`; else
/// like [`update_u16`].
#[inline]
#[must_use]
pub const fn update_u32(check: u16, old: u32, new: u32) -> u16 {
    !fold_words(!check as u64 + !old as u64 + new as u64)
}

/// The checksum after a run of bytes that it covers was replaced; else like [`update_u16`].
///
/// `old` and `new` begin at the same even offset from the first byte that is summed. If their
/// lengths differ they must differ by an even number, so that what follows keeps its place in its
/// words; a length field or pseudo-header that changes with them is to be updated as well.
#[inline]
#[must_use]
pub fn update_bytes(check: u16, old: &[u8], new: &[u8]) -> u16 {
    update_sums(check, sum(old), sum(new))
}

/// The checksum after the bytes of sum `old` were replaced by those of sum `new`, each begun at an
/// even offset; else like [`update_bytes`]. For runs whose sums are known.
#[inline]
#[must_use]
pub fn update_sums(check: u16, old: Sum, new: Sum) -> u16 {
    update_u16(check, old.fold(), new.fold())
}

/// The UDP checksum field after `update` was applied to its checksum. A field of 0 stays 0, since
/// there is no checksum to update; a computed checksum of 0 is stored as 0xFFFF (RFC 768).
///
/// ```
/// use packtrain_offload::checksum::{update_u32, update_udp};
///
/// let (old, new) = (0xC612_0001, 0xC612_0002);
/// let field = update_udp(0x1234, |check| update_u32(check, old, new));
/// assert_eq!(field, 0x1233);
/// assert_eq!(update_udp(0, |check| update_u32(check, old, new)), 0);
/// ```
#[inline]
#[must_use]
pub fn update_udp(field: u16, update: impl FnOnce(u16) -> u16) -> u16 {
    if field == 0 {
        0
    } else {
        udp_field(update(field))
    }
}

/// Finishes the field of a packet in state [`Partial`](crate::offload::ChecksumState::Partial) with
/// these `start` and `offset`, and returns the value stored.
///
/// `headers` is the start of the packet and contains the field; `rest` is all of the packet behind
/// it, in pieces of any lengths, without link padding. A 0 is stored as 0xFFFF if `offset` is that
/// of UDP, 6.
///
/// `None`, with nothing changed, if the field does not end within `headers`.
pub fn complete_partial<'a>(
    headers: &mut [u8],
    rest: impl IntoIterator<Item = &'a [u8]>,
    start: u16,
    offset: u16,
) -> Option<u16> {
    const UDP_OFFSET: u16 = 6;
    let (start, at) = (usize::from(start), usize::from(start) + usize::from(offset));
    headers.get(at..at + 2)?;
    let mut sum = sum(headers.get(start..)?);
    sum.add_pieces(rest);
    let check = sum.finish();
    let field = if offset == UDP_OFFSET {
        udp_field(check)
    } else {
        check
    };
    headers
        .get_mut(at..at + 2)?
        .copy_from_slice(&field.to_be_bytes());
    Some(field)
}

/// The value of a UDP checksum field for a finished checksum: 0 is sent as 0xFFFF, because 0 means
/// "no checksum" (RFC 768; RFC 8200 §8.1).
#[inline]
#[must_use]
pub const fn udp_field(finished: u16) -> u16 {
    if finished == 0 { 0xFFFF } else { finished }
}

#[cfg(test)]
mod tests;
