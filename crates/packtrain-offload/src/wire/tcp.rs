//! TCP (RFC 9293).

use super::{ParseError, get_u16};
use crate::limits::TCP_HEADER_BYTES_MIN;

/// Offsets in a TCP header.
pub mod field {
    /// Source port, 2 bytes.
    pub const SRC_PORT: usize = 0;
    /// Destination port, 2 bytes.
    pub const DST_PORT: usize = 2;
    /// Sequence number, 4 bytes.
    pub const SEQ: usize = 4;
    /// Acknowledgment number, 4 bytes.
    pub const ACK: usize = 8;
    /// Data offset in the high four bits, reserved bits, and the flags in the low nine, 2 bytes.
    pub const OFFSET_FLAGS: usize = 12;
    /// Window, 2 bytes.
    pub const WINDOW: usize = 14;
    /// Checksum, 2 bytes.
    pub const CHECKSUM: usize = 16;
    /// Urgent pointer, 2 bytes.
    pub const URGENT: usize = 18;
}

/// TCP flags: the low nine bits at [`field::OFFSET_FLAGS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u16);

impl Flags {
    /// No more data.
    pub const FIN: Self = Self(0x001);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x002);
    /// Reset.
    pub const RST: Self = Self(0x004);
    /// Push.
    pub const PSH: Self = Self(0x008);
    /// The acknowledgment number counts.
    pub const ACK: Self = Self(0x010);
    /// The urgent pointer counts.
    pub const URG: Self = Self(0x020);
    /// ECN echo (RFC 3168).
    pub const ECE: Self = Self(0x040);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Self = Self(0x080);
    /// Accurate ECN (RFC 9768), once the nonce sum.
    pub const AE: Self = Self(0x100);

    const MASK: u16 = 0x1FF;
}

crate::bit_set!(Flags);

/// A TCP header with its options.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a> {
    fixed: &'a [u8; TCP_HEADER_BYTES_MIN],
    options: &'a [u8],
}

/// Checks the data offset; gives the header length in bytes.
#[inline]
fn header_len(bytes: &[u8]) -> Result<usize, ParseError> {
    let fixed: &[u8; TCP_HEADER_BYTES_MIN] = bytes.first_chunk().ok_or(ParseError::TcpTruncated)?;
    let header_bytes = usize::from(fixed[field::OFFSET_FLAGS] >> 4) * 4;
    if header_bytes < TCP_HEADER_BYTES_MIN {
        return Err(ParseError::TcpDataOffset);
    }
    if header_bytes > bytes.len() {
        return Err(ParseError::TcpOptionsTruncated);
    }
    Ok(header_bytes)
}

impl<'a> Header<'a> {
    /// Checks the data offset and that the options are there.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let header = &bytes[..header_len(bytes)?];
        let (fixed, options) = header.split_first_chunk().ok_or(ParseError::TcpTruncated)?;
        Ok(Self { fixed, options })
    }

    /// Header length with options: 20 to 60 bytes.
    #[inline]
    #[must_use]
    pub const fn header_len(self) -> usize {
        TCP_HEADER_BYTES_MIN + self.options.len()
    }

    getters! { fixed:
        /// Source port.
        src_port: u16 at field::SRC_PORT;
        /// Destination port.
        dst_port: u16 at field::DST_PORT;
        /// Sequence number of the first payload byte (of the SYN, if set).
        seq: u32 at field::SEQ;
        /// Acknowledgment number.
        ack: u32 at field::ACK;
    }

    /// The nine flags.
    #[inline]
    #[must_use]
    pub const fn flags(self) -> Flags {
        Flags(get_u16(self.fixed, field::OFFSET_FLAGS) & Flags::MASK)
    }

    getters! { fixed:
        /// Window as stored, not scaled.
        window: u16 at field::WINDOW;
        /// Checksum as stored.
        checksum: u16 at field::CHECKSUM;
        /// Urgent pointer.
        urgent: u16 at field::URGENT;
    }

    /// The option bytes, padding included: 0 to 40, a multiple of 4.
    #[inline]
    #[must_use]
    pub const fn option_bytes(self) -> &'a [u8] {
        self.options
    }
}
