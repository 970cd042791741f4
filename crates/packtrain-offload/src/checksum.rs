//! The Internet checksum: summing, folding, pseudo-headers and incremental update.
//!
//! The sum is kept in the order that the bytes have in memory, so that no word is swapped while
//! summing (RFC 1071 §2(B)); the 16-bit results are numbers to be stored with `to_be_bytes`.

use crate::limits::IPV4_HEADER_BYTES_MIN;

/// A ones-complement sum under way.
///
/// Pieces are summed as if they lay one after the other: after an odd number of bytes the next
/// byte is the low half of its word. There is no bound on how much may be added; the accumulator
/// carries around its end. An odd total is padded with one zero byte (RFC 1071 §1).
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// Congruent, modulo 0xFFFF, to the sum of the 16-bit words as they lie in memory; zero only
    /// while every byte was zero.
    words: u64,
    /// An odd number of bytes was added so far.
    odd: bool,
}

impl Sum {
    /// The sum of nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            words: 0,
            odd: false,
        }
    }

    /// Adds a piece of any length that follows what was added before.
    #[inline]
    pub fn add(&mut self, piece: &[u8]) {
        self.append(Self {
            words: scalar::sum(piece),
            odd: piece.len() % 2 == 1,
        });
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

    /// Adds what another sum counted, as if its bytes followed. Either may be odd.
    #[inline]
    pub fn add_sum(&mut self, other: Self) {
        self.append(other);
    }

    /// The sum folded to 16 bits, not complemented: what a partial checksum field holds. It is 0
    /// only if every byte was 0.
    #[inline]
    #[must_use]
    pub fn fold(self) -> u16 {
        u16::from_be(fold_words(self.words))
    }

    /// The sum folded and complemented: what a finished checksum field holds. A UDP field also
    /// needs [`udp_field`].
    #[inline]
    #[must_use]
    pub fn finish(self) -> u16 {
        !self.fold()
    }

    /// True if the sum, taken over everything including the checksum field, is that of data whose
    /// checksum is right.
    #[inline]
    #[must_use]
    pub fn is_valid(self) -> bool {
        self.fold() == 0xFFFF
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

/// Adds with the carry brought around. 0xFFFF divides 2^64 - 1, so this keeps the residue.
#[inline]
const fn add_around(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    // After a carry the sum is at most 2^64 - 2: this cannot overflow.
    sum + carry as u64
}

#[inline]
const fn fold_words(words: u64) -> u16 {
    let sum = (words & 0xFFFF_FFFF) + (words >> 32);
    let sum = (sum & 0xFFFF) + ((sum >> 16) & 0xFFFF) + (sum >> 32);
    let sum = (sum & 0xFFFF) + (sum >> 16);
    ((sum & 0xFFFF) + (sum >> 16)) as u16
}

/// The portable inner loop.
mod scalar {
    use super::add_around;

    /// Bytes between two folds: few enough that a lane of 32-bit halves cannot overflow, even, so
    /// that a block does not move the words of the next one.
    const BLOCK_BYTES: usize = 1 << 24;
    const LANES: usize = 4;

    /// Sum of the words of `bytes` as they lie in memory, the last one padded with a zero byte.
    #[inline]
    pub(super) fn sum(bytes: &[u8]) -> u64 {
        let mut total = 0;
        for block in bytes.chunks(BLOCK_BYTES) {
            total = add_around(total, sum_block(block));
        }
        total
    }

    /// At most `BLOCK_BYTES`. The lanes are independent so that they become vector registers.
    #[inline]
    fn sum_block(bytes: &[u8]) -> u64 {
        let (rows, rest) = bytes.as_chunks::<{ LANES * 8 }>();
        let mut lanes = [0u64; LANES];
        for row in rows {
            let (words, _) = row.as_chunks::<8>();
            for (lane, word) in lanes.iter_mut().zip(words) {
                *lane += halves(u64::from_ne_bytes(*word));
            }
        }
        let mut total: u64 = lanes.iter().sum();
        let (words, rest) = rest.as_chunks::<8>();
        for word in words {
            total += halves(u64::from_ne_bytes(*word));
        }
        // At most one of each is left; a header's sum is mostly this tail.
        let (words, rest) = rest.as_chunks::<4>();
        for word in words {
            total += u64::from(u32::from_ne_bytes(*word));
        }
        let (words, rest) = rest.as_chunks::<2>();
        for word in words {
            total += u64::from(u16::from_ne_bytes(*word));
        }
        for &byte in rest {
            total += u64::from(u16::from_ne_bytes([byte, 0]));
        }
        total
    }

    #[inline]
    const fn halves(word: u64) -> u64 {
        (word & 0xFFFF_FFFF) + (word >> 32)
    }
}

/// The sum of one contiguous piece.
#[inline]
#[must_use]
pub fn sum(bytes: &[u8]) -> Sum {
    let mut sum = Sum::new();
    sum.add(bytes);
    sum
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

/// The checksum to store in an IPv4 header, whatever its field holds now. `header` is the header
/// with its options and nothing after it.
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
/// A sum that comes out as zero is given as 0, never as 0xFFFF; a UDP field also needs
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

/// What a UDP checksum field holds for a finished checksum: 0 is sent as 0xFFFF, because 0 means
/// that there is none (RFC 768; RFC 8200 §8.1).
#[inline]
#[must_use]
pub const fn udp_field(finished: u16) -> u16 {
    if finished == 0 { 0xFFFF } else { finished }
}

#[cfg(test)]
mod tests;
