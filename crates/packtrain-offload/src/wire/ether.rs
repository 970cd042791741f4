//! Ethernet headers and VLAN tags in band.

use super::{EtherType, ParseError};
use crate::limits::{ETHERNET_HEADER_BYTES, VLAN_TAG_BYTES};

/// Offsets in an Ethernet header.
pub mod field {
    /// Destination address, 6 bytes.
    pub const DST: usize = 0;
    /// Source address, 6 bytes.
    pub const SRC: usize = 6;
    /// Type of what follows, 2 bytes.
    pub const ETHERTYPE: usize = 12;
}

/// Offsets in a VLAN tag, counted from after the type that announced it.
pub mod vlan_field {
    /// Tag control information, 2 bytes.
    pub const TCI: usize = 0;
    /// Type of what follows, 2 bytes.
    pub const ETHERTYPE: usize = 2;
}

/// An Ethernet header.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a>(&'a [u8; ETHERNET_HEADER_BYTES]);

impl<'a> Header<'a> {
    /// Fails with [`ParseError::EthernetTruncated`] below 14 bytes.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        bytes
            .first_chunk()
            .map(Self)
            .ok_or(ParseError::EthernetTruncated)
    }

    getters! { 0:
        /// Destination address.
        dst: [u8; 6] at field::DST;
        /// Source address.
        src: [u8; 6] at field::SRC;
        /// Type of what follows: a tag, a network header, or below 0x0600 an 802.3 length.
        ethertype: EtherType at field::ETHERTYPE;
    }
}

/// A VLAN tag in band, without the type (TPID) that announced it, which precedes these bytes.
#[derive(Clone, Copy, Debug)]
pub struct VlanTag<'a>(&'a [u8; VLAN_TAG_BYTES]);

impl<'a> VlanTag<'a> {
    /// `bytes` starts after the announcing type. Fails with [`ParseError::VlanTruncated`] below 4
    /// bytes.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        bytes
            .first_chunk()
            .map(Self)
            .ok_or(ParseError::VlanTruncated)
    }

    getters! { 0:
        /// Tag control information: priority, drop eligibility and VLAN identifier.
        tci: u16 at vlan_field::TCI;
    }

    /// VLAN identifier, 0 to 4095; 0 means priority only.
    #[inline]
    #[must_use]
    pub const fn vid(self) -> u16 {
        self.tci() & 0x0FFF
    }

    getters! { 0:
        /// Type of what follows the tag.
        ethertype: EtherType at vlan_field::ETHERTYPE;
    }
}
