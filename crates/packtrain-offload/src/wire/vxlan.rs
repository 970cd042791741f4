//! VXLAN (RFC 7348): an Ethernet frame behind UDP.

use super::{ParseError, get_u32};
use crate::limits::VXLAN_HEADER_BYTES;

/// The UDP destination port that IANA assigned (RFC 7348 §5).
pub const PORT: u16 = 4789;
/// The UDP destination port that Linux uses by default, which is older than the assigned one.
pub const PORT_LINUX: u16 = 8472;
/// The UDP destination port that IANA assigned to VXLAN-GPE.
pub const PORT_GPE: u16 = 4790;

/// Offsets in a VXLAN header.
pub mod field {
    /// Flags, 1 byte, and three reserved ones.
    pub const FLAGS: usize = 0;
    /// Network identifier, 3 bytes, and a reserved one.
    pub const VNI: usize = 4;
}

/// Flag: the network identifier is valid. It must be set.
pub const FLAG_VNI: u8 = 0x08;

/// A VXLAN header.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a>(&'a [u8; VXLAN_HEADER_BYTES]);

impl<'a> Header<'a> {
    /// Fails with [`ParseError::VxlanTruncated`] below 8 bytes. The flags are not checked.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        bytes
            .first_chunk()
            .map(Self)
            .ok_or(ParseError::VxlanTruncated)
    }

    getters! { 0:
        /// The first byte. Bits other than [`FLAG_VNI`] are ignored on reception (RFC 7348 §5), but
        /// extensions give them a meaning: with 0x04 of VXLAN-GPE the payload need not be Ethernet.
        flags: u8 at field::FLAGS;
    }

    /// Network identifier, 24 bits.
    #[inline]
    #[must_use]
    pub const fn vni(self) -> u32 {
        get_u32(self.0, field::VNI) >> 8
    }
}
