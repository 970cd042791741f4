//! IP over InfiniBand: the 4-byte encapsulation header (RFC 4391 §6).

use super::{EtherType, ParseError};
use crate::limits::IPOIB_HEADER_BYTES;

/// Offsets in an IPoIB header.
pub mod field {
    /// Type of what follows, 2 bytes; the numbers of Ethernet.
    pub const ETHERTYPE: usize = 0;
    /// Sent as zero, ignored when received, 2 bytes.
    pub const RESERVED: usize = 2;
}

/// An IPoIB header.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a>(&'a [u8; IPOIB_HEADER_BYTES]);

impl<'a> Header<'a> {
    /// Fails with [`ParseError::IpoibTruncated`] below 4 bytes. The reserved bytes are ignored.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        bytes
            .first_chunk()
            .map(Self)
            .ok_or(ParseError::IpoibTruncated)
    }

    getters! { 0:
        /// Type of what follows.
        ethertype: EtherType at field::ETHERTYPE;
    }
}
