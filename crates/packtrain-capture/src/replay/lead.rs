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
    /// Replaces the link header of `packet`, and adapts its original length, which a capture may
    /// state freely. `None` if the packet is shorter than its header, or if the adapted length does
    /// not fit 32 bits. Then both stay as they are.
    pub(super) fn replace(
        link: LinkCode,
        packet: &mut Vec<u8>,
        original_bytes: &mut u32,
    ) -> Option<Self> {
        let cooked = Cooked::parse(link, packet)?;
        let original = shifted(*original_bytes, ETHERNET_HEADER_BYTES, cooked.bytes)?;
        let mut lead = Self::default();
        let header = packet.get(..cooked.bytes)?;
        lead.header.get_mut(..header.len())?.copy_from_slice(header);
        lead.bytes = header.len() as u8;
        let mut ethernet = [0; ETHERNET_HEADER_BYTES];
        let hash = StableHash::new().with(header).finish();
        ethernet[..8].copy_from_slice(&hash.to_be_bytes());
        ethernet[12..].copy_from_slice(&cooked.ethertype.to_be_bytes());
        packet.splice(..cooked.bytes, ethernet);
        *original_bytes = original;
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

    /// The length with the packet's own link header; `bytes` is that with the Ethernet header.
    pub(super) fn restored(&self, bytes: u32) -> u32 {
        match self.bytes {
            0 => bytes,
            own => shifted(bytes, own.into(), ETHERNET_HEADER_BYTES).unwrap_or(u32::MAX),
        }
    }
}

/// `bytes` with `more` and without `less`; `None` if that is no length of a capture.
fn shifted(bytes: u32, more: usize, less: usize) -> Option<u32> {
    let sum = u64::from(bytes) + more as u64;
    u32::try_from(sum.checked_sub(less as u64)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_length_that_a_capture_says_is_restored() {
        // A loopback header of IPv4, in 4 bytes.
        let packet = [2, 0, 0, 0, 0x45, 0, 0, 20];
        let link = LinkCode(0);
        for said in [0, 3, 4, 100, u32::MAX - 10, u32::MAX - 9, u32::MAX] {
            let (mut replaced, mut bytes) = (packet.to_vec(), said);
            match Lead::replace(link, &mut replaced, &mut bytes) {
                Some(lead) => {
                    assert_eq!(bytes, said + 10);
                    assert_eq!(lead.restored(bytes), said);
                    assert_eq!(lead.restore(&replaced).concat(), packet);
                }
                None => {
                    assert!(said > u32::MAX - 10, "{said}");
                    assert_eq!((&replaced[..], bytes), (&packet[..], said));
                }
            }
        }
        assert_eq!(shifted(1, ETHERNET_HEADER_BYTES, 16), None);
        assert_eq!(shifted(2, ETHERNET_HEADER_BYTES, 16), Some(0));
    }
}
