//! TUN and TAP devices: from a read to wire packets, and from wire packets to as few writes as
//! possible. What a VPN or a mesh needs of this crate.
//!
//! | call | from | to |
//! |---|---|---|
//! | [`TunOffload::packets`] | one `read` | wire packets with finished checksums |
//! | [`TunOffload::reader`] | read after read | the same, with each call as many as fit |
//! | [`Packets::whole`], [`Packets::take_whole`] | one `read` | the packet before it is cut |
//! | [`TunOffload::write_batch`] | wire packets | contiguous writes, each given to a closure |
//! | [`TunOffload::gather_batch`] | wire packets in buffers | an iterator of writes in slices |
//! | [`Fallback`] | the error of a write | what to write again, and what is turned off |
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
//!   It is the faster form, with threads and in an async task: payload is read once, and the kernel
//!   gets one slice. Its closure writes at once, and does not await. On a TUN that is right:
//!   [a write does not block](#when-a-write-blocks).
//! - `gather_batch` leaves payload in the packets' own buffers, and its writes are values. Use it
//!   where each write is awaited. It copies nothing, but reads payload to verify it, and the kernel
//!   walks one slice for each packet: TCP that is merged 45 times costs more than with
//!   `write_batch`. If checksums need no verification ([`TunOffload::verified`]), it does not touch
//!   payload at all.
//!
//! **How many buffers.** `write_batch` needs one buffer more than there are flows in a batch. Nine
//! buffers, 0.6 MB, merge eight flows: right for a host's VPN, whose batches of some hundred
//! packets are from a few flows. A gateway for many hosts takes 33, 2.2 MB: the most that are used.
//! Each thread that writes has its own. More buffers than flows cost a little time for each batch,
//! and fewer merge less; no packet is lost either way.
//!
//! **Packets that are not fetched are lost.** At an MSS of 300 one read has more than 200 packets,
//! which may be more than a program has output buffers. [`TunOffload::reader`] keeps the read: the
//! next call takes the rest. [`unread_packets`] counts what a program dropped before it was
//! fetched; a correct program has 0.
//!
//! # The device
//!
//! **How to open it.** `offload(true)` of `tun-rs` does all of this. Without it, on Linux:
//!
//! 1. Open `/dev/net/tun` for reading and writing.
//! 2. `TUNSETIFF` with `IFF_TUN | IFF_NO_PI | IFF_VNET_HDR` ([`TunOffload::tun`]), or with
//!    `IFF_TAP` in place of `IFF_TUN` ([`TunOffload::tap`]).
//! 3. `TUNSETVNETHDRSZ` with a pointer to an `int` of 10 or 12: a persistent device keeps the size
//!    that an earlier program set. [`TunOffload::header`] says the same size.
//! 4. `TUNSETOFFLOAD` with the flags of each of
//!    [`Accept::TUN_ATTEMPTS`](crate::virtio_net::Accept::TUN_ATTEMPTS) until one is accepted; the
//!    argument is the number, not a pointer. It says what the *kernel* may hand over: without it,
//!    each read is one wire packet. Writes need no permission.
//!
//! A TUN descriptor is no socket: `sendmmsg` does not work on it, and one `write` is one packet,
//! large or not.
//!
//! **MTU.** The device's MTU is the path's MTU minus what the tunnel adds to a packet: 28 bytes for
//! UDP over IPv4, 48 over IPv6, and what the cipher adds. The kernel makes GSO packets whose
//! segments fit the device's MTU. If it is too large, the longest packets do not fit the path: ping
//! works and TCP connects, and then it transfers nothing.
//!
//! **Linux before 6.2** has no UDP GSO on a TUN. There, `TUNSETOFFLOAD` with `TUN_F_USO4 |
//! TUN_F_USO6` returns `EINVAL`, and so does a write of merged datagrams. If an attempt without the
//! two bits is the one that is accepted, set [`TunOffload::merge_udp`] to `false`, or let
//! [`Fallback`] do that. With `tun-rs`, this is `merge_udp: device.udp_gso()`.
//!
//! **WinTUN, utun and a TUN without a virtio-net header**: [`TunOffload::headerless`].
//!
//! # Errors of a write
//!
//! Peers choose the bytes that are written, so a program that ends at each error can be ended by
//! one bad packet of any peer. [`Fallback`] knows which errors are about one write: it counts them,
//! and writes again what is refused because it is large. Any other error ends the program.
//!
//! | error | cause | [`Fallback`] |
//! |---|---|---|
//! | `EINVAL` | The first four bits of the packet are neither 4 nor 6. | drops and counts |
//! | `EINVAL`, each write | No virtio-net header, or one of another size. | drops and counts |
//! | `EINVAL`, merged UDP | Linux before 6.2. | writes packets, turns it off |
//! | `EINVAL`, merged TCP | [Some kernels](#a-kernel-that-refuses-large-writes). | the same |
//! | `EIO` | The device is down. | drops and counts |
//! | `EBADFD` | The device was removed, or `TUNSETIFF` was not called. | returns it |
//! | `EAGAIN` | `TUNSETSNDBUF`: see [below](#when-a-write-blocks). | drops and counts |
//!
//! If each write is refused, open the device as [above](#the-device).
//!
//! # When a write blocks
//!
//! Not on a device that is used as it was opened: a write takes the packet through the kernel's
//! receive path, and returns. `tun_get_user()` of Linux waits in one place, or returns `EAGAIN` if
//! the descriptor is non-blocking: in `sock_alloc_send_pskb()`, while the written packets that are
//! not yet freed or taken over by IP have as many bytes as the send buffer. The send buffer is
//! 2 GiB (`INT_MAX`) unless `TUNSETSNDBUF` made it smaller.
//!
//! # A kernel that refuses large writes
//!
//! Kernels before 6.2 refuse merged UDP. Some refuse TCP GSO packets (6.10.3 and stable releases of
//! July and August 2024, if the last segment is short), and a vendor's kernel may refuse either
//! forever, so the version says little. [`Fallback`] finds out by the error of a write, loses
//! nothing, and turns off what is refused. The examples below use it: [`Fallback::write`] with
//! `write_batch`, and [`Fallback::check`] where each write is awaited. [`Fallback::notice`] says
//! once what was turned off, and why.
//!
//! The packets of a refused write are made in place: [`TunOffload::packets`] takes the write, and
//! [`Packets::next_write`] returns each packet behind a virtio-net header of its own.
//!
//! # With threads
//!
//! ```
//! use packtrain_offload::tun::{Fallback, TunOffload, WRITE_BYTES_MAX};
//! use std::io;
//! # struct Device;
//! # impl Device {
//! #     fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
//! #         let packet = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 59, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2];
//! #         buffer[10..30].copy_from_slice(&packet);
//! #         Ok(30)
//! #     }
//! #     fn send(&self, bytes: &[u8]) -> io::Result<usize> {
//! #         let is_packet = bytes[10] == 0x45;
//! #         is_packet.then_some(bytes.len()).ok_or(io::Error::from_raw_os_error(22))
//! #     }
//! # }
//! # fn encrypt_and_send(packet: &[u8]) { assert_eq!(packet.len(), 20); }
//! # fn receive_and_decrypt() -> Vec<Vec<u8>> {
//! #     vec![vec![0x45; 20], vec![0; 20], vec![0x45; 20]]
//! # }
//!
//! /// Passes one read on. An error is one of the device.
//! fn device_to_network(device: &Device, buffer: &mut [u8]) -> io::Result<()> {
//!     let bytes = device.recv(buffer)?;
//!     match TunOffload::tun().packets(&mut buffer[..bytes]) {
//!         Ok(mut packets) => {
//!             while let Some(packet) = packets.next_packet() {
//!                 encrypt_and_send(packet);
//!             }
//!         }
//!         // Count it under `error.reason()`. The text names the likely mistake.
//!         Err(error) => eprintln!("a read was dropped: {error}"),
//!     }
//!     Ok(())
//! }
//!
//! /// Passes one batch on. An error is one of the device.
//! fn network_to_device(
//!     device: &Device,
//!     fallback: &mut Fallback,
//!     buffers: &mut [Vec<u8>],
//! ) -> io::Result<()> {
//!     let batch = receive_and_decrypt();
//!     let written = fallback.offload().write_batch(buffers, &batch, |write| {
//!         fallback.write(write, |bytes| device.send(bytes))
//!     })?;
//!     // More if a buffer is shorter than a packet.
//!     assert_eq!(written.buffer_too_short, 0);
//!     if let Some(refused) = fallback.notice() {
//!         eprintln!("{refused}");
//!     }
//!     Ok(())
//! }
//!
//! device_to_network(&Device, &mut vec![0; WRITE_BYTES_MAX])?;
//! let mut fallback = Fallback::new(TunOffload::tun());
//! // Length, not capacity: the buffers of `Vec::with_capacity` hold nothing.
//! network_to_device(&Device, &mut fallback, &mut vec![vec![0; WRITE_BYTES_MAX]; 9])?;
//! println!("{} writes were refused", fallback.dropped());
//! # assert_eq!(fallback.dropped(), 1);
//! # Ok::<(), io::Error>(())
//! ```
//!
//! # With tokio
//!
//! Set the device non-blocking and put it into an `AsyncFd`. `async_io` calls the closure until it
//! returns something else than `WouldBlock`, and waits in between. All types of this module are
//! `Send`, so the task may be spawned. The example `tokio_tunnel` is a complete tunnel.
//!
//! **One `async_io` is one write.** `async_io(Interest::WRITABLE, …)` around a whole `write_batch`
//! compiles, and is wrong: after `WouldBlock` it calls its closure again, which writes the whole
//! batch again, so packets are duplicated. Right are:
//!
//! - `gather_batch`, and an `async_io` for each of its writes, as below;
//! - `write_batch` with a direct write, `device.get_ref().write(write)`, in a closure as above. It
//!   does not await, and needs no readiness: a write [does not block](#when-a-write-blocks). Where
//!   `TUNSETSNDBUF` makes it return `WouldBlock`, the write is dropped and counted.
//!
//! ```
//! # #[cfg(target_os = "linux")] {
//! use packtrain_offload::tun::{Fallback, Outcome, Pieces, TunOffload, WRITE_BYTES_MAX};
//! use std::fs::File;
//! use std::io::{self, IoSlice, Read, Write};
//! use tokio::io::{Interest, unix::AsyncFd};
//!
//! /// Room in front of each packet for the virtio-net header.
//! const HEADROOM: usize = 10;
//!
//! /// Tokio 1.54 has `register`, which is unsafe, and deprecates `AsyncFd::new(device)`, which is
//! /// the line for earlier versions.
//! fn register(device: File) -> io::Result<AsyncFd<File>> {
//!     // SAFETY: a `File` owns its descriptor, and it stays the same until the `File` is dropped.
//!     Ok(unsafe { AsyncFd::register(device) }?)
//! }
//!
//! /// Reads until the device is removed. The packets are of any type that is a buffer.
//! async fn device_to_network(device: &AsyncFd<File>) -> io::Result<()> {
//!     let mut buffer = vec![0; WRITE_BYTES_MAX];
//!     loop {
//!         let read = device.async_io(Interest::READABLE, |mut file| file.read(&mut buffer));
//!         let bytes = read.await?;
//!         let Ok(mut packets) = TunOffload::tun().packets(&mut buffer[..bytes]) else {
//!             continue; // Count it under the error's `reason`.
//!         };
//!         while let Some(bytes) = packets.next_bytes() {
//!             let mut packet = vec![0; bytes]; // Or from a pool.
//!             packets.next_into(&mut packet)?;
//!             // Encrypt and send it here.
//!         }
//!     }
//! }
//!
//! /// Writes a batch. `pieces`, and `again` of `WRITE_BYTES_MAX` bytes, are reused for each batch.
//! async fn network_to_device(
//!     device: &AsyncFd<File>,
//!     fallback: &mut Fallback,
//!     pieces: &mut Pieces,
//!     again: &mut [u8],
//!     batch: &mut [Vec<u8>],
//! ) -> io::Result<()> {
//!     let tun = fallback.offload();
//!     let mut slices: Vec<IoSlice<'_>> = Vec::new();
//!     for write in tun.gather_batch(pieces, batch, HEADROOM) {
//!         slices.clear();
//!         slices.extend(write.io_slices());
//!         let large = |mut file: &File| file.write_vectored(&slices);
//!         let written = device.async_io(Interest::WRITABLE, large).await;
//!         if fallback.check(&slices[0], written)? == Outcome::Again {
//!             let bytes = write.copy_to(again)?;
//!             let mut packets = tun.packets(&mut again[..bytes])?;
//!             while let Some(packet) = packets.next_write() {
//!                 let small = |mut file: &File| file.write(packet);
//!                 let written = device.async_io(Interest::WRITABLE, small).await;
//!                 let _counted = fallback.check(packet, written)?;
//!             }
//!         }
//!     }
//!     if let Some(refused) = fallback.notice() {
//!         eprintln!("{refused}");
//!     }
//!     Ok(())
//! }
//! # fn spawned(device: File) -> io::Result<()> {
//! #     let device: &'static AsyncFd<File> = Box::leak(Box::new(register(device)?));
//! #     tokio::spawn(device_to_network(device));
//! #     tokio::spawn(async move {
//! #         let (mut fallback, mut pieces) = (Fallback::new(TunOffload::tun()), Pieces::new());
//! #         let again = &mut vec![0; WRITE_BYTES_MAX];
//! #         network_to_device(device, &mut fallback, &mut pieces, again, &mut [vec![0; 30]]).await
//! #     });
//! #     Ok(())
//! # }
//! # }
//! ```

mod batch;
mod copying;
mod fallback;
#[cfg(feature = "alloc")]
mod gather;
mod offload;
mod packets;
mod unread;

pub use copying::Written;
pub use fallback::{Fallback, LargeWrite, Outcome, Refused};
#[cfg(feature = "alloc")]
pub use gather::{GatheredWrite, Pieces, SLICES_MAX, Slices, Writes};
pub use offload::TunOffload;
pub use packets::whole::{Whole, WholeGso};
pub use packets::{PacketRun, Packets, TooShort};
#[cfg(target_has_atomic = "ptr")]
pub use unread::unread_packets;

use crate::limits::PACKET_BYTES_MAX;
use crate::virtio_net::{HeaderLen, VnetError};
use batch::{LARGE, LARGE_SETS, SMALL, SMALL_SETS};

/// The longest virtio-net header and the longest packet: a buffer of this length takes every read
/// and every write.
pub const WRITE_BYTES_MAX: usize = HeaderLen::V1.bytes() + PACKET_BYTES_MAX;

impl TunOffload {
    /// The wire packets of one read. `read` is what the read returned: the virtio-net header and
    /// the packet behind it. The packets are made in place. They are fetched before the next read:
    /// to take them with several calls, use a [`reader`](Self::reader).
    ///
    /// A write of [`write_batch`](Self::write_batch), or a copy of one of
    /// [`gather_batch`](Self::gather_batch), may be given too: to be written packet by packet
    /// ([`Packets::next_write`]) where a kernel
    /// [refuses it](self#a-kernel-that-refuses-large-writes).
    ///
    /// # Errors
    /// What [`validate`](crate::virtio_net::validate) says about the header: drop the read, count
    /// it under the error's [`reason`](VnetError::reason), and read on. If each read fails, the
    /// device was opened in another form, or the buffer of the read is shorter than
    /// [`WRITE_BYTES_MAX`]: the error's text says so.
    pub fn packets<'r>(&self, read: &'r mut [u8]) -> Result<Packets<&'r mut [u8]>, VnetError> {
        let bytes = read.len();
        let mut packets = self.reader(read);
        packets.received(bytes)?;
        Ok(packets)
    }

    /// The packets of read after read, with their buffer: one of [`WRITE_BYTES_MAX`] bytes of any
    /// type, such as `Vec<u8>`, `Box<[u8]>` or that of a pool. It is used up to its length, not its
    /// capacity. There are no packets before the first read:
    ///
    /// ```
    /// use packtrain_offload::tun::{Packets, TunOffload, WRITE_BYTES_MAX};
    /// use std::io::{Read, Result};
    ///
    /// /// Fills buffers, each behind 16 bytes for a cipher's header. Returns how many: if a read
    /// /// has more packets than there are buffers, the next call returns more of them.
    /// fn receive(
    ///     mut device: impl Read,
    ///     reader: &mut Packets<Vec<u8>>,
    ///     buffers: &mut [Vec<u8>],
    ///     lengths: &mut [usize],
    /// ) -> Result<usize> {
    ///     if reader.remaining() == 0 {
    ///         let bytes = device.read(reader.buffer())?;
    ///         reader.received(bytes)?; // Count an error under its `reason`, and read on.
    ///     }
    ///     Ok(reader.fill(buffers, 16, lengths)?)
    /// }
    ///
    /// let mut reader = TunOffload::tun().reader(vec![0; WRITE_BYTES_MAX]);
    /// # // 60,000 bytes of TCP at an MSS of 300.
    /// # let mut read = vec![0; 10 + 40 + 60_000];
    /// # read[..10].copy_from_slice(&[1, 1, 40, 0, 44, 1, 20, 0, 16, 0]);
    /// # read[10..20].copy_from_slice(&[0x45, 0, 0xea, 0x88, 0, 1, 0x40, 0, 64, 6]);
    /// # read[42..44].copy_from_slice(&[5 << 4, 16]);
    /// # let mut device = &read[..];
    /// // A read of 200 packets, and 64 buffers.
    /// let (mut buffers, mut lengths) = (vec![vec![0; 1500]; 64], vec![0; 64]);
    /// for (expected, left) in [(64, 136), (64, 72), (64, 8), (8, 0)] {
    ///     let count = receive(&mut device, &mut reader, &mut buffers, &mut lengths)?;
    ///     assert_eq!((count, reader.remaining()), (expected, left));
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub const fn reader<B>(&self, buffer: B) -> Packets<B> {
        Packets::new(*self, buffer)
    }

    /// Merges a batch of wire packets into contiguous writes, and calls `write` with each as soon
    /// as it is complete. Each of `packets` is a packet without a virtio-net header; each write
    /// begins with one. Afterwards nothing is held. The value inside an `Ok` of `write` is ignored.
    /// A batch that is a `Vec<Vec<u8>>` is given as `&batch`. `write` cannot await:
    /// [`gather_batch`](Self::gather_batch) is for writes that are awaited.
    ///
    /// The writes are put together in `buffers`. `n` buffers merge `n - 1` flows at once, 32 at
    /// most; one buffer merges one flow. If more flows than that alternate in a batch, the oldest
    /// is written early. A buffer is used up to its length, not its capacity. One of
    /// [`WRITE_BYTES_MAX`] bytes holds any packet; shorter ones bound the length of a write. A
    /// packet that the shortest buffer cannot hold is not written, and counted in
    /// [`Written::buffer_too_short`].
    ///
    /// # Errors
    /// The first error of `write`. The packets that were not written by then are dropped, so return
    /// an error only if the program ends. [`Fallback::write`] does so, and counts
    /// [other errors](self#errors-of-a-write).
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
