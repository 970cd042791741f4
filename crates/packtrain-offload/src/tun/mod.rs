//! TUN and TAP devices: from a read to wire packets, and from wire packets to as few writes as
//! possible. What a VPN or a mesh needs of this crate.
//!
//! | call | from | to |
//! |---|---|---|
//! | [`TunOffload::packets`] | one `read` | wire packets with finished checksums |
//! | [`TunOffload::write_batch`] | wire packets | contiguous writes, each given to a closure |
//! | [`TunOffload::gather_batch`] | wire packets in buffers | an iterator of writes in slices |
//!
//! There is no I/O in here: reads, writes and packets are the caller's, in any buffers. What is
//! merged and what is not is [`coalesce`](crate::coalesce) with
//! [`Semantics::Reversible`](crate::coalesce::Semantics::Reversible): when the kernel or
//! [`TunOffload::packets`] segments a write again, the packets that went into it come out, byte for
//! byte.
//!
//! # Which of the two
//!
//! - `write_batch` copies packets into buffers of the caller and sums payload while it is copied.
//!   It is the faster form: payload is read once, and the kernel gets one slice. Use it where the
//!   closure can write at once, as with threads.
//! - `gather_batch` leaves payload in the packets' own buffers, and its writes are values. Use it
//!   where each write is awaited. It copies nothing, but reads payload to verify it, and the kernel
//!   walks one slice for each packet: TCP that is merged 45 times costs more than with
//!   `write_batch`. If checksums need no verification ([`TunOffload::verified`]), it does not touch
//!   payload at all.
//!
//! # The device
//!
//! Linux: open the device with `IFF_VNET_HDR` and `IFF_NO_PI` ([`TunOffload::tun`],
//! [`TunOffload::tap`]). `TUNSETOFFLOAD` says what the *kernel* may hand over; writes need no
//! permission, and reads are taken with any of its flags. A TUN descriptor is no socket: `sendmmsg`
//! does not work on it, and one `write` is one packet, large or not. Kernels before 6.2 refuse UDP
//! GSO packets: set [`TunOffload::merge_udp`] to `false` for them. A write that a kernel refuses
//! with `EINVAL` can be given to [`TunOffload::packets`], and written packet by packet.
//!
//! WinTUN, utun and a TUN without a virtio-net header: [`TunOffload::headerless`].
//!
//! # With threads
//!
//! ```
//! use packtrain_offload::tun::{TunOffload, WRITE_BYTES_MAX};
//! use std::io;
//! # struct Device;
//! # impl Device {
//! #     fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
//! #         let packet = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 59, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2];
//! #         buffer[10..30].copy_from_slice(&packet);
//! #         Ok(30)
//! #     }
//! #     fn send(&self, bytes: &[u8]) -> io::Result<usize> { Ok(bytes.len()) }
//! # }
//! # fn encrypt_and_send(packet: &[u8]) { assert_eq!(packet.len(), 20); }
//! # fn receive_and_decrypt() -> Vec<Vec<u8>> { vec![vec![0x45; 20]; 3] }
//!
//! fn device_to_network(device: &Device, buffer: &mut [u8]) -> io::Result<()> {
//!     let bytes = device.recv(buffer)?;
//!     let mut packets = TunOffload::tun().packets(&mut buffer[..bytes])?;
//!     while let Some(packet) = packets.next_packet() {
//!         encrypt_and_send(packet);
//!     }
//!     Ok(())
//! }
//!
//! fn network_to_device(device: &Device, buffers: &mut [Vec<u8>]) -> io::Result<()> {
//!     let batch = receive_and_decrypt();
//!     TunOffload::tun().write_batch(buffers, &batch, |write| device.send(write))?;
//!     Ok(())
//! }
//!
//! device_to_network(&Device, &mut vec![0; WRITE_BYTES_MAX])?;
//! // Nine buffers merge eight flows at once.
//! network_to_device(&Device, &mut vec![vec![0; WRITE_BYTES_MAX]; 9])?;
//! # Ok::<(), io::Error>(())
//! ```
//!
//! # With tokio
//!
//! Set the device non-blocking and put it into an `AsyncFd` (`AsyncFd::new`, or `register` since
//! tokio 1.54). `async_io` calls the closure until it returns something else than `WouldBlock`, and
//! waits in between. All types of this module are `Send`, so the task may be spawned. The example
//! `tokio_tunnel` is a complete tunnel.
//!
//! ```
//! # #[cfg(target_os = "linux")] {
//! use packtrain_offload::tun::{Pieces, TunOffload, WRITE_BYTES_MAX};
//! use std::fs::File;
//! use std::io::{self, IoSlice, Read, Write};
//! use tokio::io::{Interest, unix::AsyncFd};
//!
//! /// Room in front of each packet for the virtio-net header.
//! const HEADROOM: usize = 10;
//!
//! /// Reads until the device is closed. The packets are of any type that is a buffer.
//! async fn device_to_network(device: &AsyncFd<File>) -> io::Result<()> {
//!     let mut buffer = vec![0; WRITE_BYTES_MAX];
//!     loop {
//!         let read = device.async_io(Interest::READABLE, |mut file| file.read(&mut buffer));
//!         let bytes = read.await?;
//!         let mut packets = TunOffload::tun().packets(&mut buffer[..bytes])?;
//!         while let Some(bytes) = packets.next_bytes() {
//!             let mut packet = vec![0; bytes]; // Or from a pool.
//!             packets.next_into(&mut packet)?;
//!             // Encrypt and send it here.
//!         }
//!     }
//! }
//!
//! /// Writes a batch. `pieces` is reused for each batch.
//! async fn network_to_device(
//!     device: &AsyncFd<File>,
//!     pieces: &mut Pieces,
//!     batch: &mut [Vec<u8>],
//! ) -> io::Result<()> {
//!     let mut slices: Vec<IoSlice<'_>> = Vec::new();
//!     for write in TunOffload::tun().gather_batch(pieces, batch, HEADROOM) {
//!         slices.clear();
//!         slices.extend(write.io_slices());
//!         device
//!             .async_io(Interest::WRITABLE, |mut file| file.write_vectored(&slices))
//!             .await?;
//!     }
//!     Ok(())
//! }
//! # fn spawned(device: &'static AsyncFd<File>) {
//! #     tokio::spawn(device_to_network(device));
//! #     tokio::spawn(async move {
//! #         network_to_device(device, &mut Pieces::new(), &mut [vec![0; 30]]).await
//! #     });
//! # }
//! # }
//! ```

mod batch;
mod copying;
#[cfg(feature = "alloc")]
mod gather;
mod offload;
mod packets;

pub use copying::Written;
#[cfg(feature = "alloc")]
pub use gather::{GatheredWrite, Pieces, SLICES_MAX, Slices, Writes};
pub use offload::TunOffload;
pub use packets::{PacketRun, Packets, TooShort};

use crate::limits::PACKET_BYTES_MAX;
use crate::virtio_net::{HeaderLen, VnetError};
use batch::{LARGE, LARGE_SETS, SMALL, SMALL_SETS};

/// The longest virtio-net header and the longest packet: a buffer of this length takes every read
/// and every write.
pub const WRITE_BYTES_MAX: usize = HeaderLen::V1.bytes() + PACKET_BYTES_MAX;

impl TunOffload {
    /// The wire packets of one read. `read` is what the read returned: the virtio-net header and
    /// the packet behind it. The packets are made in place.
    ///
    /// A write of [`write_batch`](Self::write_batch), or a copy of one of
    /// [`gather_batch`](Self::gather_batch), may be given too: to be written packet by packet where
    /// a kernel refuses it.
    ///
    /// # Errors
    /// What [`validate`](crate::virtio_net::validate) says about the header: the read is to be
    /// dropped and counted under the error's [`reason`](VnetError::reason).
    pub fn packets<'r>(&self, read: &'r mut [u8]) -> Result<Packets<'r>, VnetError> {
        Packets::new(self, read)
    }

    /// Merges a batch of wire packets into contiguous writes, and calls `write` with each as soon
    /// as it is complete. Each of `packets` is a packet without a virtio-net header; each write
    /// begins with one. Afterwards nothing is held. The value inside an `Ok` of `write` is ignored.
    ///
    /// The writes are put together in `buffers`. `n` buffers merge `n - 1` flows at once, 32 at
    /// most; one buffer merges one flow. If more flows than that alternate in a batch, the oldest
    /// is written early. A buffer of [`WRITE_BYTES_MAX`] bytes holds any packet; shorter ones
    /// bound the length of a write. A packet that the shortest buffer cannot hold is not written,
    /// and counted in [`Written::too_long`].
    ///
    /// # Errors
    /// The first error of `write`. The packets that were not written by then are dropped; if a
    /// program goes on after a refused write, its closure returns `Ok`.
    pub fn write_batch<'p, B, P, T, E>(
        &self,
        buffers: &mut [B],
        packets: impl IntoIterator<Item = &'p P>,
        write: impl FnMut(&mut [u8]) -> Result<T, E>,
    ) -> Result<Written, E>
    where
        B: AsMut<[u8]>,
        P: AsRef<[u8]> + ?Sized + 'p,
    {
        let mut packets = packets.into_iter().map(AsRef::as_ref);
        // `size_hint` may be wrong, so the second packet is fetched.
        let (first, second) = (packets.next(), packets.next());
        let alone = second.is_none() || buffers.is_empty();
        let packets = first.into_iter().chain(second).chain(packets);
        if alone {
            copying::run_alone(self, buffers, packets, write)
        } else if buffers.len() <= SMALL + 1 {
            copying::run::<{ SMALL + 1 }, SMALL_SETS, _, _, _>(self, buffers, packets, write)
        } else {
            copying::run::<{ LARGE + 1 }, LARGE_SETS, _, _, _>(self, buffers, packets, write)
        }
    }

    /// Merges a batch of wire packets where they are, and returns its writes, to be written or
    /// awaited one by one. Each of `packets` is `headroom` bytes that may be overwritten, and a
    /// packet without a virtio-net header behind them. Headers are rewritten in place, so a batch
    /// can be gathered once; payload does not move.
    ///
    /// The virtio-net header is put right in front of the packet if `headroom` has room for it.
    /// Otherwise it is a slice of its own. A batch merges up to 32 flows at once, 8 if it has at
    /// most 8 packets.
    ///
    /// Payload is read once, to verify checksums; with [`TunOffload::verified`] not at all.
    #[cfg(feature = "alloc")]
    pub fn gather_batch<'b, B: AsRef<[u8]> + AsMut<[u8]>>(
        &self,
        pieces: &'b mut Pieces,
        packets: &'b mut [B],
        headroom: usize,
    ) -> Writes<'b, B> {
        gather::run(self, pieces, packets, headroom)
    }
}

#[cfg(test)]
mod tests;
