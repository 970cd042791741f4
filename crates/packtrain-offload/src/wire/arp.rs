//! ARP for IPv4 over Ethernet (RFC 826).

use super::ParseError;
use crate::limits::ARP_FIXED_BYTES;

/// Offsets in ARP for IPv4 over Ethernet.
pub mod field {
    /// Length of a hardware address, 1 byte.
    pub const HARDWARE_LEN: usize = 4;
    /// Length of a protocol address, 1 byte.
    pub const PROTOCOL_LEN: usize = 5;
}

/// Length of an ARP packet of any address types by its own length fields: 8 to 1028 bytes. Fails
/// with [`ParseError::ArpTruncated`] if fewer than 8 bytes are there.
#[inline]
pub fn packet_len(bytes: &[u8]) -> Result<usize, ParseError> {
    let fixed: &[u8; ARP_FIXED_BYTES] = bytes.first_chunk().ok_or(ParseError::ArpTruncated)?;
    let addresses =
        usize::from(fixed[field::HARDWARE_LEN]) + usize::from(fixed[field::PROTOCOL_LEN]);
    Ok(ARP_FIXED_BYTES + 2 * addresses)
}
