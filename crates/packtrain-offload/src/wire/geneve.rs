//! GENEVE (RFC 8926): an Ethernet frame or an IP packet behind UDP, with options.

use super::{EtherType, ParseError, get_u32};
use crate::limits::GENEVE_HEADER_BYTES_MIN;

/// The UDP destination port (RFC 8926 §3.3).
pub const PORT: u16 = 6081;

/// Offsets in a GENEVE header.
pub mod field {
    /// Version (2 bits) and length of the options in 4-byte words (6 bits), 1 byte.
    pub const VERSION_AND_LEN: usize = 0;
    /// Flags, 1 byte.
    pub const FLAGS: usize = 1;
    /// Type of the payload, 2 bytes; an Ethernet type.
    pub const PROTOCOL: usize = 2;
    /// Network identifier, 3 bytes, and a reserved one.
    pub const VNI: usize = 4;
}

/// Flag: a control message (O bit), which an end point does not forward.
pub const FLAG_CONTROL: u8 = 0x80;
/// Flag: the tunnel end point must understand some option (C bit).
pub const FLAG_CRITICAL: u8 = 0x40;

/// A GENEVE header with its options.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a> {
    fixed: &'a [u8; GENEVE_HEADER_BYTES_MIN],
    options: &'a [u8],
}

impl<'a> Header<'a> {
    /// Fails with [`ParseError::GeneveTruncated`] below 8 bytes, and with
    /// [`ParseError::GeneveOptionsTruncated`] if the options go beyond `bytes`. The version is not
    /// checked.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (fixed, rest) = bytes
            .split_first_chunk()
            .ok_or(ParseError::GeneveTruncated)?;
        let option_bytes = usize::from(fixed[field::VERSION_AND_LEN] & 0x3F) * 4;
        let options = rest
            .get(..option_bytes)
            .ok_or(ParseError::GeneveOptionsTruncated)?;
        Ok(Self { fixed, options })
    }

    /// Version; 0 is the only defined one.
    #[inline]
    #[must_use]
    pub const fn version(self) -> u8 {
        self.fixed[field::VERSION_AND_LEN] >> 6
    }

    getters! { fixed:
        /// Flags.
        flags: u8 at field::FLAGS;
        /// Type of the payload: [`EtherType::TEB`] for an Ethernet frame.
        protocol: EtherType at field::PROTOCOL;
    }

    /// Network identifier, 24 bits.
    #[inline]
    #[must_use]
    pub const fn vni(self) -> u32 {
        get_u32(self.fixed, field::VNI) >> 8
    }

    /// The options, 0 to 252 bytes, not parsed.
    #[inline]
    #[must_use]
    pub const fn option_bytes(self) -> &'a [u8] {
        self.options
    }

    /// Bytes of the header with its options: 8 to 260.
    #[inline]
    #[must_use]
    pub const fn header_len(self) -> usize {
        GENEVE_HEADER_BYTES_MIN + self.options.len()
    }
}
