//! GRE (RFC 2784) with key and sequence number (RFC 2890); NVGRE (RFC 7637) is GRE with a key and
//! an Ethernet frame inside.

use super::{EtherType, ParseError};

/// Offsets in the part of a GRE header that is always there.
pub mod field {
    /// Flags and version, 2 bytes.
    pub const FLAGS: usize = 0;
    /// Type of the payload, 2 bytes; an Ethernet type.
    pub const PROTOCOL: usize = 2;
    /// Checksum, 2 bytes, and two reserved ones; only with [`super::FLAG_CHECKSUM`]. Nothing
    /// optional precedes it.
    pub const CHECKSUM: usize = 4;
}

/// Bytes of a GRE header without optional fields; each of them adds as many.
pub const WORD_BYTES: usize = 4;

/// Flag: a checksum over the GRE header and its payload is present.
pub const FLAG_CHECKSUM: u16 = 0x8000;
/// Flag: source routes follow (RFC 1701); obsolete.
pub const FLAG_ROUTING: u16 = 0x4000;
/// Flag: a key is present.
pub const FLAG_KEY: u16 = 0x2000;
/// Flag: a sequence number is present.
pub const FLAG_SEQUENCE: u16 = 0x1000;

/// A GRE header with its optional fields.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a> {
    fixed: &'a [u8; WORD_BYTES],
    bytes: &'a [u8],
}

impl<'a> Header<'a> {
    /// Fails with [`ParseError::GreTruncated`] if fewer bytes are there than
    /// [`header_len`](Self::header_len). Version and flags are not checked: see
    /// [`is_plain`](Self::is_plain).
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let fixed: &[u8; WORD_BYTES] = bytes.first_chunk().ok_or(ParseError::GreTruncated)?;
        let flags = u16::from_be_bytes([fixed[0], fixed[1]]);
        let bytes = bytes.get(..len_of(flags)).ok_or(ParseError::GreTruncated)?;
        Ok(Self { fixed, bytes })
    }

    /// Flags and version as they are in the header.
    #[inline]
    #[must_use]
    pub const fn flags(self) -> u16 {
        u16::from_be_bytes([self.fixed[0], self.fixed[1]])
    }

    /// Version, 0 to 7; 1 is that of PPTP (RFC 2637), which has a different header.
    #[inline]
    #[must_use]
    pub const fn version(self) -> u8 {
        self.fixed[1] & 7
    }

    /// Whether it is version 0 and has no fields except checksum, key and sequence number: then the
    /// other getters are valid. A receiver must discard a packet with other bits set (RFC 2784
    /// §2.3).
    #[inline]
    #[must_use]
    pub const fn is_plain(self) -> bool {
        self.flags() & !(FLAG_CHECKSUM | FLAG_KEY | FLAG_SEQUENCE) == 0
    }

    /// Type of the payload.
    #[inline]
    #[must_use]
    pub const fn protocol(self) -> EtherType {
        EtherType(u16::from_be_bytes([self.fixed[2], self.fixed[3]]))
    }

    /// Bytes of the header with checksum, key and sequence number as its flags say: 4 to 16.
    #[inline]
    #[must_use]
    pub const fn header_len(self) -> usize {
        self.bytes.len()
    }

    /// Checksum, if present.
    #[inline]
    #[must_use]
    pub fn checksum(self) -> Option<u16> {
        self.word(FLAG_CHECKSUM).map(|word| (word >> 16) as u16)
    }

    /// Key, if present; in NVGRE the virtual subnet and flow identifiers.
    #[inline]
    #[must_use]
    pub fn key(self) -> Option<u32> {
        self.word(FLAG_KEY)
    }

    /// Sequence number, if present.
    #[inline]
    #[must_use]
    pub fn sequence(self) -> Option<u32> {
        self.word(FLAG_SEQUENCE)
    }

    fn word(self, flag: u16) -> Option<u32> {
        if self.flags() & flag == 0 {
            return None;
        }
        // The optional words are in the order of their flags, the highest one first.
        let before = self.flags() & !(flag | (flag - 1));
        self.bytes
            .get(len_of(before)..)?
            .first_chunk()
            .map(|word| u32::from_be_bytes(*word))
    }
}

/// Bytes of a header with these flags.
const fn len_of(flags: u16) -> usize {
    let optional = flags & (FLAG_CHECKSUM | FLAG_KEY | FLAG_SEQUENCE);
    WORD_BYTES * (1 + optional.count_ones() as usize)
}
