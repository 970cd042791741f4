//! UDP (RFC 768).

use super::{ParseError, get_u16};
use crate::limits::UDP_HEADER_BYTES;

/// Offsets in a UDP header.
pub mod field {
    /// Source port, 2 bytes.
    pub const SRC_PORT: usize = 0;
    /// Destination port, 2 bytes.
    pub const DST_PORT: usize = 2;
    /// Length of header and payload, 2 bytes.
    pub const LEN: usize = 4;
    /// Checksum, 2 bytes.
    pub const CHECKSUM: usize = 6;
}

/// A UDP header.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a>(&'a [u8; UDP_HEADER_BYTES]);

impl<'a> Header<'a> {
    /// Fails with [`ParseError::UdpTruncated`] below 8 bytes, and with
    /// [`ParseError::UdpLengthShort`] if the length field is below 8.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let header = Self(bytes.first_chunk().ok_or(ParseError::UdpTruncated)?);
        if usize::from(header.len()) < UDP_HEADER_BYTES {
            return Err(ParseError::UdpLengthShort);
        }
        Ok(header)
    }

    getters! { 0:
        /// Source port.
        src_port: u16 at field::SRC_PORT;
        /// Destination port.
        dst_port: u16 at field::DST_PORT;
    }

    /// Length of header and payload by its own field; at least 8.
    #[inline]
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "the name of the field; it is never empty"
    )]
    pub const fn len(self) -> u16 {
        get_u16(self.0, field::LEN)
    }

    getters! { 0:
        /// Checksum as stored; 0 means none.
        checksum: u16 at field::CHECKSUM;
    }
}
