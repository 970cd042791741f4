//! Network offloads, exact, without I/O or allocation: for VPNs, VMMs and user-space stacks.
//!
//! | module | what it is for |
//! | --- | --- |
//! | [`layout`] | one pass over a packet's headers: where IP, TCP or UDP and the payload begin |
//! | [`virtio_net`] | the header of TUN, TAP and virtio: read, checked, written |
//! | [`tun`] | a TUN or TAP, with threads or async: reads to packets, packets to writes |
//! | [`coalesce`] | GRO and LRO: packets of a flow become one |
//! | [`segment`] | TSO and USO, in tunnels too: fresh headers for each packet, shared payload |
//! | [`fragment`] | IPv4 fragments for what is too long and no GSO packet; safe identifications |
//! | [`flow`] | which packets belong together: flow key, hashes, RSS |
//! | [`sort`] | grouping by key with arrival order kept, linear for any keys |
//! | [`checksum`] | the Internet checksum: over pieces, while copying, updated in place |
//! | [`verify`] | whether the checksums of a received packet are right |
//! | [`wire`] | the fields of Ethernet, ARP, IPv4, IPv6, TCP, UDP and ICMP, to read and to set |
//! | [`offload`], [`limits`] | the words that all of these share, and every bound |
//!
//! All modules work on byte slices that the caller owns. No input causes a panic: truncated or
//! contradictory headers are a typed error whose `reason` can name a counter. `unsafe` is in five
//! small files only: the vector instructions of [`checksum`], of header comparison and of [`sort`],
//! and a prefetch.
//!
//! # Cargo
//!
//! With a clone of the repository beside your crate:
//! `packtrain-offload = { path = "../packtrain/crates/packtrain-offload" }`.
//!
//! | feature | what it adds |
//! | --- | --- |
//! | `std`, on by default | errors become `std::io::Error` by `?`; `IoSlice`s of gathered writes |
//! | `alloc`, part of `std` | [`tun::TunOffload::gather_batch`]; [`coalesce::Owned`] |
//! | `serde` | serde's traits for the counters of [`coalesce`] |
//!
//! # Open a TUN
//!
//! The crate has no I/O. `tun-rs` opens the device with all that [`tun`] needs, without `unsafe`:
//!
//! ```no_run
//! use std::{fs::File, io::Result, os::fd::AsFd};
//!
//! fn open(name: &str, mtu: u16) -> Result<File> {
//!     let device = tun_rs::DeviceBuilder::new().name(name).mtu(mtu).offload(true);
//!     Ok(File::from(device.build_sync()?.as_fd().try_clone_to_owned()?))
//! }
//! ```
//!
//! # A TUN device
//!
//! [`tun`] is the entry point for programs with a TUN or TAP: a read becomes wire packets, and a
//! batch of wire packets becomes a few large writes. This is a tunnel without its network side:
//!
//! ```
//! use packtrain_offload::tun::{TunOffload, WRITE_BYTES_MAX};
//! use packtrain_offload::virtio_net::VnetError;
//! use std::convert::Infallible;
//! use std::io::Write;
//!
//! /// Gives `send` each packet of one read of the device. After an error, the caller counts the
//! /// read as dropped, and goes on.
//! fn outbound(read: &mut [u8], mut send: impl FnMut(&[u8])) -> Result<(), VnetError> {
//!     let mut packets = TunOffload::tun().packets(read)?;
//!     while let Some(packet) = packets.next_packet() {
//!         send(packet);
//!     }
//!     Ok(())
//! }
//!
//! /// Merges the packets of a batch into as few writes as possible. Returns what was lost:
//! /// writes that the device refused, and packets for which a buffer is too short.
//! fn inbound(batch: &[Vec<u8>], buffers: &mut [Vec<u8>], device: &mut impl Write) -> u64 {
//!     let mut refused = 0;
//!     let Ok(written) = TunOffload::tun().write_batch(buffers, batch, |write| {
//!         refused += u64::from(device.write_all(write).is_err());
//!         Ok::<_, Infallible>(()) // An error would end the batch.
//!     });
//!     refused + written.buffer_too_short
//! }
//!
//! // What Linux hands over for 3000 bytes of TCP at an MSS of 1400, `TUNSETOFFLOAD` given.
//! let mut read = vec![0; 10 + 40 + 3000];
//! read[..10].copy_from_slice(&[1, 1, 40, 0, 0x78, 0x05, 20, 0, 16, 0]);
//! read[10..20].copy_from_slice(&[0x45, 0, 0x0b, 0xe0, 0, 1, 0x40, 0, 64, 6]);
//! read[22..30].copy_from_slice(&[198, 18, 0, 1, 198, 18, 0, 2]);
//! read[42..44].copy_from_slice(&[5 << 4, 16]);
//!
//! let mut batch = Vec::new();
//! outbound(&mut read, |packet| batch.push(packet.to_vec()))?;
//! assert_eq!(batch.iter().map(Vec::len).collect::<Vec<_>>(), [1440, 1440, 240]);
//!
//! let mut device = Vec::new();
//! let refused = inbound(&batch, &mut vec![vec![0; WRITE_BYTES_MAX]; 9], &mut device);
//! assert_eq!((refused, device.len()), (0, 10 + 40 + 3000));
//! # Ok::<(), VnetError>(())
//! ```
#![no_std]
#![deny(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

mod bits;
pub mod checksum;
pub mod coalesce;
mod error;
pub mod flow;
pub mod fragment;
pub mod layout;
pub mod limits;
pub mod offload;
mod prefetch;
#[doc(hidden)]
pub mod random;
pub mod segment;
pub mod sort;
pub mod tun;
pub mod verify;
pub mod virtio_net;
pub mod wire;

#[cfg(test)]
mod test_packets;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The examples of the guide are tests, too.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/replace.md")]
struct Replace;
