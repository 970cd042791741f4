//! UDP (RFC 768).

use super::{ParseError, get_u16, put_u16};
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

    /// Source port.
    #[inline]
    #[must_use]
    pub const fn src_port(self) -> u16 {
        get_u16(self.0, field::SRC_PORT)
    }

    /// Destination port.
    #[inline]
    #[must_use]
    pub const fn dst_port(self) -> u16 {
        get_u16(self.0, field::DST_PORT)
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

    /// Checksum as stored; 0 means none.
    #[inline]
    #[must_use]
    pub const fn checksum(self) -> u16 {
        get_u16(self.0, field::CHECKSUM)
    }
}

/// A UDP header that may be changed. Setters leave the checksum alone.
#[derive(Debug)]
pub struct HeaderMut<'a>(&'a mut [u8; UDP_HEADER_BYTES]);

impl<'a> HeaderMut<'a> {
    /// Checks and fails as [`Header::parse`] does.
    #[inline]
    pub fn parse(bytes: &'a mut [u8]) -> Result<Self, ParseError> {
        Header::parse(bytes)?;
        bytes
            .first_chunk_mut()
            .map(Self)
            .ok_or(ParseError::UdpTruncated)
    }

    /// The same header to read.
    #[inline]
    #[must_use]
    pub const fn view(&self) -> Header<'_> {
        Header(self.0)
    }

    /// Sets the source port.
    #[inline]
    pub fn set_src_port(&mut self, port: u16) {
        put_u16(self.0, field::SRC_PORT, port);
    }

    /// Sets the destination port.
    #[inline]
    pub fn set_dst_port(&mut self, port: u16) {
        put_u16(self.0, field::DST_PORT, port);
    }

    /// Sets the length of header and payload.
    #[inline]
    pub fn set_len(&mut self, len: u16) {
        put_u16(self.0, field::LEN, len);
    }

    /// Stores a checksum, finished (see [`udp_field`](crate::checksum::udp_field)) or partial.
    #[inline]
    pub fn set_checksum(&mut self, checksum: u16) {
        put_u16(self.0, field::CHECKSUM, checksum);
    }
}
