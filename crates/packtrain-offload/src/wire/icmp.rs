//! ICMP (RFC 792) and ICMPv6 (RFC 4443): one header format for both.

use super::ParseError;
use crate::limits::ICMP_HEADER_BYTES;

/// Offsets in an ICMP or ICMPv6 header.
pub mod field {
    /// Type, 1 byte.
    pub const TYPE: usize = 0;
    /// Code, 1 byte.
    pub const CODE: usize = 1;
    /// Checksum, 2 bytes. ICMPv6 includes the IPv6 pseudo-header, ICMP has none.
    pub const CHECKSUM: usize = 2;
    /// Four bytes whose meaning the type gives.
    pub const REST: usize = 4;
}

/// ICMP types over IPv4.
pub mod v4 {
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 0;
    /// Destination unreachable.
    pub const UNREACHABLE: u8 = 3;
    /// Echo request.
    pub const ECHO_REQUEST: u8 = 8;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 11;
}

/// ICMPv6 types.
pub mod v6 {
    /// Destination unreachable.
    pub const UNREACHABLE: u8 = 1;
    /// Packet too big; the MTU is the last four header bytes (RFC 4443 §3.2).
    pub const PACKET_TOO_BIG: u8 = 2;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 3;
    /// Echo request.
    pub const ECHO_REQUEST: u8 = 128;
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 129;
}

/// An ICMP or ICMPv6 header.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a>(&'a [u8; ICMP_HEADER_BYTES]);

impl<'a> Header<'a> {
    /// Fails with [`ParseError::IcmpTruncated`] below 8 bytes.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        bytes
            .first_chunk()
            .map(Self)
            .ok_or(ParseError::IcmpTruncated)
    }

    /// As [`parse`](Self::parse), with [`ParseError::Icmpv6Truncated`].
    #[inline]
    pub fn parse_v6(bytes: &'a [u8]) -> Result<Self, ParseError> {
        bytes
            .first_chunk()
            .map(Self)
            .ok_or(ParseError::Icmpv6Truncated)
    }

    getters! { 0:
        /// Type: one of [`v4`] or [`v6`], or another.
        kind: u8 at field::TYPE;
        /// Code.
        code: u8 at field::CODE;
        /// Checksum as stored.
        checksum: u16 at field::CHECKSUM;
        /// The last four bytes of the header: identifier and sequence number of an echo, an MTU.
        rest: u32 at field::REST;
    }
}
