//! TUN and TAP with a virtio-net header: from a read to wire packets, and from wire packets to as
//! few writes as possible. What a VPN or a mesh needs of this crate, in three calls.
//!
//! | call | from | to |
//! |---|---|---|
//! | [`Tun::packets`] | one `read` | wire packets with finished checksums, one by one |
//! | [`Tun::write_batch`] | wire packets | contiguous writes; payload is summed while copied |
//! | [`Tun::gather_batch`] | wire packets | writes in pieces for `writev`, nothing copied |
//!
//! There is no I/O in here and no allocation: reads, writes and buffers are the caller's. What is
//! merged and what is not is [`coalesce`](crate::coalesce) with
//! [`Semantics::Reversible`]: cutting a write again, as
//! [`Tun::packets`] or the kernel does, gives back the packets that went into it, byte for byte.
//!
//! The device is to be opened with `IFF_VNET_HDR` and `IFF_NO_PI`. `TUNSETOFFLOAD` says what the
//! *kernel* may hand over; what is written to it needs no permission. But kernels before 6.2
//! refuse UDP GSO packets: for them switch [`Tun::merge_udp`] off.
//!
//! ```
//! use packtrain_offload::tun::{Tun, WRITE_BYTES_MAX};
//! use packtrain_offload::virtio_net::Accept;
//! # fn read(buffer: &mut [u8]) -> usize {
//! #     let packet = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 59, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2];
//! #     buffer[10..30].copy_from_slice(&packet);
//! #     30
//! # }
//! # fn encrypt_and_send(packet: &[u8]) { assert_eq!(packet.len(), 20); }
//! # fn receive_and_decrypt() -> Vec<Vec<u8>> { vec![vec![0x45; 20]; 3] }
//! # fn write(bytes: &[u8]) { assert_eq!(bytes.len(), 30); }
//!
//! let tun = Tun::new(Accept::ALL);
//!
//! // Device to network.
//! let mut buffer = vec![0; WRITE_BYTES_MAX];
//! let bytes = read(&mut buffer);
//! let mut packets = tun.packets(&mut buffer[..bytes])?;
//! while let Some(packet) = packets.next_packet() {
//!     encrypt_and_send(packet);
//! }
//!
//! // Network to device.
//! let mut buffers = vec![[0; WRITE_BYTES_MAX]; 8];
//! let batch = receive_and_decrypt();
//! tun.write_batch(&mut buffers, batch.iter().map(|packet| &packet[..]), |bytes| write(bytes));
//! # Ok::<(), packtrain_offload::virtio_net::VnetError>(())
//! ```

mod batch;
mod copying;
mod gather;
mod options;
mod packets;

pub use copying::Written;
pub use gather::{GATHER_PIECES_MAX, Piece, Slices, Write};
pub use options::Tun;
pub use packets::{Packets, TooShort};

use crate::coalesce::{Config, Semantics, Stats};
use crate::limits::PACKET_BYTES_MAX;
use crate::offload::LinkType;
use crate::virtio_net::{Accept, HeaderLen, VnetError};

/// Bytes of the longest virtio-net header there is here, and the longest packet: a buffer of this
/// length takes every read, and every write.
pub const WRITE_BYTES_MAX: usize = HeaderLen::V1.bytes() + PACKET_BYTES_MAX;

impl Tun {
    /// The wire packets that one read stands for. `read` is what the read returned: the
    /// virtio-net header and the packet behind it. The packets are made in place.
    ///
    /// # Errors
    /// What [`validate`](crate::virtio_net::validate) says about the header: then the read is to be
    /// dropped and counted under the error's [`reason`](VnetError::reason).
    pub fn packets<'r>(&self, read: &'r mut [u8]) -> Result<Packets<'r>, VnetError> {
        Packets::new(self, read)
    }

    /// The wire packets that one write of [`Tun::write_batch`] stands for, to be written one by
    /// one where the kernel refuses it: whatever [`accept`](Self::accept) says, which is about
    /// reads. They are made in place.
    ///
    /// # Errors
    /// As of [`Tun::packets`]; not with a write as it was given.
    pub fn cut_write<'w>(&self, write: &'w mut [u8]) -> Result<Packets<'w>, VnetError> {
        let accept = Accept::ALL;
        Packets::new(&Self { accept, ..*self }, write)
    }

    /// Makes writes of a batch of wire packets. Each of `packets` is one packet without a
    /// virtio-net header; each write is one contiguous run of bytes, virtio-net header first, and
    /// is given to `write` as soon as it is complete. Afterwards nothing is held.
    ///
    /// A write that the kernel refuses can be given to [`Tun::cut_write`] on the spot, to be
    /// written packet by packet.
    ///
    /// The writes are put together in `buffers`. One fewer than there are, 32 at most, can be under
    /// way at the same time, and a flow is handed on early when as many others began after it: this
    /// is how many flows of a batch are merged well. With less than two nothing is merged.
    ///
    /// A packet that a buffer cannot hold is not written, and counted: [`WRITE_BYTES_MAX`] is
    /// always enough, and other lengths bound how much is merged.
    ///
    /// Payload is read once: what is copied is summed as it is copied.
    pub fn write_batch<'p, B: AsMut<[u8]>>(
        &self,
        buffers: &mut [B],
        packets: impl IntoIterator<Item = &'p [u8]>,
        write: impl FnMut(&mut [u8]),
    ) -> Written {
        let packets = packets.into_iter();
        match packets.size_hint().1 {
            Some(0 | 1) => copying::run_alone(self, buffers, packets, write),
            _ if buffers.len() < 2 => copying::run_alone(self, buffers, packets, write),
            Some(..=SMALL) => {
                copying::run::<{ SMALL + 1 }, SMALL_SETS, B>(self, buffers, packets, write)
            }
            _ => copying::run::<{ LARGE + 1 }, LARGE_SETS, B>(self, buffers, packets, write),
        }
    }

    /// Makes writes of a batch of wire packets where they lie. Each of `packets` is `headroom`
    /// bytes that may be overwritten, and one packet without a virtio-net header behind them.
    /// Headers are rewritten in place; a write is a list of slices for `writev`, and is given to
    /// `write` as soon as it is complete. Afterwards nothing is held.
    ///
    /// The virtio-net header is put right in front of the packet if `headroom` has room for it, so
    /// that a packet that was not merged is one slice; else it is a slice of its own.
    ///
    /// `pieces` is memory for the lists. When it is shorter than the batch, everything held is
    /// handed on each time it is used up.
    ///
    /// Payload is read once, to verify checksums; with [`Tun::verified`] not at all.
    pub fn gather_batch<'p>(
        &self,
        pieces: &mut [Piece<'p>],
        packets: impl IntoIterator<Item = &'p mut [u8]>,
        headroom: usize,
        write: impl FnMut(Write<'_, 'p>),
    ) -> Stats {
        let packets = packets.into_iter();
        match packets.size_hint().1 {
            Some(0 | 1) => gather::run_alone(self, packets, headroom, write),
            _ if pieces.is_empty() => gather::run_alone(self, packets, headroom, write),
            Some(..=SMALL) => {
                gather::run::<SMALL, SMALL_SETS>(self, pieces, packets, headroom, write)
            }
            _ => gather::run::<LARGE, LARGE_SETS>(self, pieces, packets, headroom, write),
        }
    }
}

/// Flows at once for small batches and for others. A coalescer lives as long as a batch does, and
/// making its table costs time for every entry.
const SMALL: usize = 8;
const LARGE: usize = 32;
/// Sets for these, and one flow more.
const SMALL_SETS: usize = sets(SMALL + 1);
const LARGE_SETS: usize = sets(LARGE + 1);

const fn sets(flows: usize) -> usize {
    let config = Config::new(Semantics::Reversible, LinkType::RawIp, flows as u32);
    config.needs().sets
}

#[cfg(test)]
mod tests;
