//! ARP for IPv4 over Ethernet (RFC 826).

use super::{ParseError, get_bytes, get_u16, put_bytes, put_u16};
use crate::limits::{ARP_ETHERNET_IPV4_BYTES, ARP_FIXED_BYTES};

/// Offsets in ARP for IPv4 over Ethernet.
pub mod field {
    /// Hardware type, 2 bytes; 1 is Ethernet.
    pub const HARDWARE: usize = 0;
    /// Protocol type, 2 bytes; an Ethernet type.
    pub const PROTOCOL: usize = 2;
    /// Length of a hardware address, 1 byte.
    pub const HARDWARE_LEN: usize = 4;
    /// Length of a protocol address, 1 byte.
    pub const PROTOCOL_LEN: usize = 5;
    /// Operation, 2 bytes.
    pub const OPERATION: usize = 6;
    /// Sender's Ethernet address, 6 bytes.
    pub const SENDER_MAC: usize = 8;
    /// Sender's IPv4 address, 4 bytes.
    pub const SENDER_IP: usize = 14;
    /// Target's Ethernet address, 6 bytes.
    pub const TARGET_MAC: usize = 18;
    /// Target's IPv4 address, 4 bytes.
    pub const TARGET_IP: usize = 24;
}

/// Operation: who has this address?
pub const REQUEST: u16 = 1;
/// Operation: I have.
pub const REPLY: u16 = 2;

/// Hardware type 1, protocol type 0x0800, address lengths 6 and 4.
const ETHERNET_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// Length of an ARP packet of any address types by its own length fields: 8 to 1028 bytes. Fails
/// with [`ParseError::ArpTruncated`] if fewer than 8 bytes are there.
#[inline]
pub fn packet_len(bytes: &[u8]) -> Result<usize, ParseError> {
    let fixed: &[u8; ARP_FIXED_BYTES] = bytes.first_chunk().ok_or(ParseError::ArpTruncated)?;
    let addresses =
        usize::from(fixed[field::HARDWARE_LEN]) + usize::from(fixed[field::PROTOCOL_LEN]);
    Ok(ARP_FIXED_BYTES + 2 * addresses)
}

/// An ARP packet for IPv4 over Ethernet.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a>(&'a [u8; ARP_ETHERNET_IPV4_BYTES]);

/// Checks address types and lengths.
#[inline]
fn check(bytes: &[u8]) -> Result<(), ParseError> {
    if bytes.len() < ARP_FIXED_BYTES {
        return Err(ParseError::ArpTruncated);
    }
    if bytes.starts_with(&ETHERNET_IPV4) {
        Ok(())
    } else {
        Err(ParseError::ArpAddressTypes)
    }
}

impl<'a> Header<'a> {
    /// Checks address types and lengths.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        check(bytes)?;
        bytes
            .first_chunk()
            .map(Self)
            .ok_or(ParseError::ArpTruncated)
    }

    /// [`REQUEST`], [`REPLY`] or another operation.
    #[inline]
    #[must_use]
    pub const fn operation(self) -> u16 {
        get_u16(self.0, field::OPERATION)
    }

    /// Sender's Ethernet address.
    #[inline]
    #[must_use]
    pub fn sender_mac(self) -> [u8; 6] {
        get_bytes(self.0, field::SENDER_MAC)
    }

    /// Sender's IPv4 address.
    #[inline]
    #[must_use]
    pub fn sender_ip(self) -> [u8; 4] {
        get_bytes(self.0, field::SENDER_IP)
    }

    /// Target's Ethernet address; without meaning in a request.
    #[inline]
    #[must_use]
    pub fn target_mac(self) -> [u8; 6] {
        get_bytes(self.0, field::TARGET_MAC)
    }

    /// Target's IPv4 address.
    #[inline]
    #[must_use]
    pub fn target_ip(self) -> [u8; 4] {
        get_bytes(self.0, field::TARGET_IP)
    }
}

/// An ARP packet for IPv4 over Ethernet that may be changed.
#[derive(Debug)]
pub struct HeaderMut<'a>(&'a mut [u8; ARP_ETHERNET_IPV4_BYTES]);

impl<'a> HeaderMut<'a> {
    /// Checks and fails as [`Header::parse`] does.
    #[inline]
    pub fn parse(bytes: &'a mut [u8]) -> Result<Self, ParseError> {
        check(bytes)?;
        bytes
            .first_chunk_mut()
            .map(Self)
            .ok_or(ParseError::ArpTruncated)
    }

    /// Writes types and lengths over whatever is there: all of a new packet but the operation and
    /// the addresses. Fails with [`ParseError::ArpTruncated`] below 28 bytes.
    #[inline]
    pub fn init(bytes: &'a mut [u8]) -> Result<Self, ParseError> {
        let packet: &mut [u8; ARP_ETHERNET_IPV4_BYTES] =
            bytes.first_chunk_mut().ok_or(ParseError::ArpTruncated)?;
        put_bytes(packet, field::HARDWARE, ETHERNET_IPV4);
        Ok(Self(packet))
    }

    /// The same packet to read.
    #[inline]
    #[must_use]
    pub const fn view(&self) -> Header<'_> {
        Header(self.0)
    }

    /// Sets the operation.
    #[inline]
    pub fn set_operation(&mut self, operation: u16) {
        put_u16(self.0, field::OPERATION, operation);
    }

    /// Sets the sender's addresses.
    #[inline]
    pub fn set_sender(&mut self, mac: [u8; 6], ip: [u8; 4]) {
        put_bytes(self.0, field::SENDER_MAC, mac);
        put_bytes(self.0, field::SENDER_IP, ip);
    }

    /// Sets the target's addresses.
    #[inline]
    pub fn set_target(&mut self, mac: [u8; 6], ip: [u8; 4]) {
        put_bytes(self.0, field::TARGET_MAC, mac);
        put_bytes(self.0, field::TARGET_IP, ip);
    }
}
