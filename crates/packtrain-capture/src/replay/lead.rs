//! Link headers other than Ethernet, while their packets are coalesced as Ethernet frames.

use super::hash::StableHash;
use crate::codec::{COOKED_HEADER_BYTES_MAX, Cooked, LinkCode};

const ETHERNET_HEADER_BYTES: usize = 14;

/// A link header that was replaced, to be put back. Empty if none was.
///
/// The Ethernet header in its place has a hash of it in the place of the addresses. So packets with
/// different link headers are not merged, as with different Ethernet addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lead {
    header: [u8; COOKED_HEADER_BYTES_MAX],
    bytes: u8,
}

impl Lead {
    /// Replaces the link header of `packet`. `None` if the packet is too short for it.
    pub(super) fn replace(link: LinkCode, packet: &mut Vec<u8>) -> Option<Self> {
        let cooked = Cooked::parse(link, packet)?;
        let mut lead = Self::default();
        let header = packet.get(..cooked.bytes)?;
        lead.header.get_mut(..header.len())?.copy_from_slice(header);
        lead.bytes = header.len() as u8;
        let mut ethernet = [0; ETHERNET_HEADER_BYTES];
        let hash = StableHash::new().with(header).finish();
        ethernet[..8].copy_from_slice(&hash.to_be_bytes());
        ethernet[12..].copy_from_slice(&cooked.ethertype.to_be_bytes());
        packet.splice(..cooked.bytes, ethernet);
        Some(lead)
    }

    /// The pieces of a packet with its own link header again.
    pub(super) fn restore<'a>(&'a self, packet: &'a [u8]) -> [&'a [u8]; 2] {
        let replaced = packet.get(ETHERNET_HEADER_BYTES..);
        match (self.header.get(..usize::from(self.bytes)), replaced) {
            (Some(header @ [_, ..]), Some(rest)) => [header, rest],
            _ => [&[], packet],
        }
    }

    /// The length that a packet of `bytes` bytes with its own link header has with the other one.
    pub(super) fn replaced(&self, bytes: u32) -> u32 {
        match self.bytes {
            0 => bytes,
            own => shifted(bytes, ETHERNET_HEADER_BYTES as u32, own.into()),
        }
    }

    /// Undoes [`replaced`](Self::replaced).
    pub(super) fn restored(&self, bytes: u32) -> u32 {
        match self.bytes {
            0 => bytes,
            own => shifted(bytes, own.into(), ETHERNET_HEADER_BYTES as u32),
        }
    }
}

/// `bytes` with `more` and without `less`. A capture may say any length of a packet, so that is the
/// least or the greatest one if it cannot be told.
fn shifted(bytes: u32, more: u32, less: u32) -> u32 {
    match more.checked_sub(less) {
        Some(more) => bytes.saturating_add(more),
        None => bytes.saturating_sub(less - more),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_length_that_a_capture_says_is_taken() {
        let lead = |bytes| Lead {
            bytes,
            ..Lead::default()
        };
        for own in [0, 4, 14, 16, COOKED_HEADER_BYTES_MAX as u8] {
            for bytes in [100, u32::MAX - 100] {
                assert_eq!(lead(own).restored(lead(own).replaced(bytes)), bytes);
            }
        }
        assert_eq!(lead(16).replaced(u32::MAX), u32::MAX - 2);
        assert_eq!(lead(16).restored(u32::MAX), u32::MAX);
        assert_eq!(lead(16).replaced(1), 0);
        assert_eq!(lead(4).replaced(u32::MAX), u32::MAX);
    }
}
