//! The packet of a read as it is before it is cut.

use super::{Cut, Packets};
use crate::offload::{ChecksumState, Gso};
use core::fmt;

/// The packet of one read as the device gave it: a GSO packet, or one wire packet. Made by
/// [`Packets::whole`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Whole<'p> {
    /// The packet: link header included, virtio-net header and padding not.
    pub bytes: &'p [u8],
    /// The state of the transport checksum in `bytes`. Of a GSO packet it is always
    /// [`ChecksumState::Partial`]; of other packets it is any state.
    pub checksum: ChecksumState,
    /// How the packet is cut; `None` for one wire packet.
    pub gso: Option<WholeGso>,
}

/// How a GSO packet is cut into wire packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeGso {
    /// Its protocols ([`Gso::kind`]), and the payload bytes of each segment but the last
    /// ([`Gso::size`]).
    pub gso: Gso,
    /// Bytes in front of the payload, of the packet and of each segment: link, IP and transport
    /// header.
    pub header_bytes: usize,
    /// Wire packets: at least 2.
    pub segments: usize,
}

// Counts: the packet itself would be up to 64 KiB in hex.
impl fmt::Debug for Whole<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Whole")
            .field("bytes", &self.bytes.len())
            .field("checksum", &self.checksum)
            .field("gso", &self.gso)
            .finish()
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Packets<B> {
    /// The packet before it is cut: look at the whole, segment later. `None` as soon as a packet
    /// was fetched or skipped, since packets are made in place.
    ///
    /// The fields that differ between segments are those of the whole packet: IP length,
    /// identification, sequence number, flags and checksum. A filter or a flow table looks once
    /// for all segments:
    ///
    /// ```
    /// use packtrain_offload::tun::TunOffload;
    ///
    /// /// Returns the wire packets of a read, or none if the filter refuses the whole.
    /// fn filtered(read: &mut [u8], allows: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
    ///     let Ok(mut packets) = TunOffload::tun().packets(read) else {
    ///         return Vec::new();
    ///     };
    ///     if packets.whole().is_some_and(|whole| !allows(whole.bytes)) {
    ///         // Counts all segments as read.
    ///         packets.take_whole();
    ///     }
    ///     let mut wire = Vec::new();
    ///     while let Some(packet) = packets.next_packet() {
    ///         wire.push(packet.to_vec());
    ///     }
    ///     wire
    /// }
    ///
    /// let mut read = vec![0; 10 + 40 + 3000];
    /// read[..10].copy_from_slice(&[1, 1, 40, 0, 0x78, 0x05, 20, 0, 16, 0]);
    /// read[10..20].copy_from_slice(&[0x45, 0, 0x0b, 0xe0, 0, 1, 0x40, 0, 64, 6]);
    /// read[42..44].copy_from_slice(&[5 << 4, 16]);
    /// let is_tcp = |packet: &[u8]| packet[9] == 6;
    /// assert_eq!(filtered(&mut read.clone(), is_tcp).len(), 3);
    /// assert_eq!(filtered(&mut read, |packet| !is_tcp(packet)).len(), 0);
    /// ```
    #[must_use]
    pub fn whole(&self) -> Option<Whole<'_>> {
        let gso = match (self.gso, &self.cut) {
            (Some(gso), Cut::Segments(cut)) => Some(WholeGso {
                gso,
                header_bytes: cut.header_bytes(),
                segments: self.progress.count as usize,
            }),
            _ => None,
        };
        self.is_whole().then(|| Whole {
            bytes: &self.buffer.as_ref()[self.from..self.to],
            checksum: self.checksum,
            gso,
        })
    }

    /// The packet, not cut: for a stack that takes GSO packets, or another device with a virtio-net
    /// header. All packets of the read count as read. `None` as soon as a packet was fetched or
    /// skipped; then the rest stays.
    ///
    /// The bytes are those that the device gave. The transport checksum is not finished: its state
    /// is that of [`Whole::checksum`]. If the state is [`ChecksumState::Partial`], the field holds
    /// the pseudo-header sum with the length of the whole packet, and a receiver must not verify
    /// it. If it is [`ChecksumState::None`], the checksum was not verified.
    pub fn take_whole(&mut self) -> Option<&mut [u8]> {
        if !self.is_whole() {
            return None;
        }
        self.progress.index = self.progress.count;
        Some(&mut self.buffer.as_mut()[self.from..self.to])
    }

    /// Whether there is a packet, and no part of it was fetched or skipped. A reader has none
    /// before its first read.
    const fn is_whole(&self) -> bool {
        self.progress.index == 0 && self.remaining() > 0
    }
}

#[cfg(test)]
mod tests;
