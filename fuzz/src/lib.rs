//! What the fuzz targets check with, written apart from the code that they check.

use packtrain_offload::offload::LinkType;

/// Takes settings from the front of a fuzz input; zeros when there is nothing left.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// The next two bytes.
    pub fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// A link type, from two bits.
    pub fn link(&mut self) -> LinkType {
        match self.byte() & 3 {
            0 | 2 => LinkType::Ethernet,
            1 => LinkType::RawIp,
            _ => LinkType::Ipoib,
        }
    }

    /// All that is left.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// The one's complement sum of RFC 1071, not complemented, a word at a time. Every piece but the
/// last has an even length.
pub fn plain_sum(pieces: &[&[u8]]) -> u16 {
    let mut sum = 0_u64;
    for piece in pieces {
        let (words, odd) = piece.as_chunks::<2>();
        sum += words
            .iter()
            .map(|word| u64::from(u16::from_be_bytes(*word)))
            .sum::<u64>();
        sum += odd.first().map_or(0, |byte| u64::from(*byte) << 8);
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Two bytes in network order.
pub fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Four bytes in network order.
pub fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
