//! Network offloads, exact, without I/O or allocation: the piece that a VPN, a VMM or a user-space
//! stack would otherwise write by hand.
//!
//! | module | what it is for |
//! | --- | --- |
//! | [`layout`] | one pass over a packet's headers: where IP, TCP or UDP and the payload begin |
//! | [`virtio_net`] | the header of TUN, TAP and virtio: read, checked, written |
//! | [`tun`] | a TUN or TAP: reads to wire packets, wire packets to writes |
//! | [`coalesce`] | GRO and LRO: packets of a flow become one |
//! | [`segment`] | TSO and USO, in tunnels too: fresh headers for each packet, shared payload |
//! | [`fragment`] | IPv4 fragments for what is too long and no GSO packet; safe identifications |
//! | [`flow`] | which packets belong together: flow key, hashes, RSS and its table |
//! | [`sort`] | grouping by key with arrival order kept, linear for any keys |
//! | [`checksum`] | the Internet checksum: over pieces, while copying, updated in place |
//! | [`verify`] | whether the checksums of a received packet are right |
//! | [`wire`] | the fields of Ethernet, ARP, IPv4, IPv6, TCP, UDP and ICMP, to read and to set |
//! | [`offload`], [`limits`] | the words that all of these share, and every bound |
//!
//! All of it works on byte slices that the caller owns. Nothing panics on any bytes: what is
//! truncated, lies or contradicts itself is a typed error whose `reason` can name a counter.
//! `unsafe` is in six small files only: the vector instructions of [`checksum`], of header
//! comparison and of [`sort`], a prefetch, and the one allocation of [`coalesce::Owned`].
//!
//! # A TUN device
//!
//! [`tun`] is the way in for whoever has a TUN or TAP: a read becomes wire packets, and a batch of
//! wire packets becomes a few large writes. This is all of a tunnel but its network side:
//!
//! ```
//! use packtrain_offload::tun::{Tun, WRITE_BYTES_MAX};
//! use packtrain_offload::virtio_net::{Accept, VnetError};
//!
//! /// Gives `send` every packet that one read of the device stands for.
//! fn outbound(tun: &Tun, read: &mut [u8], mut send: impl FnMut(&[u8])) -> Result<(), VnetError> {
//!     let mut packets = tun.packets(read)?;
//!     while let Some(packet) = packets.next_packet() {
//!         send(packet);
//!     }
//!     Ok(())
//! }
//!
//! /// Gives `write` as few writes as the packets of a batch can be made into.
//! fn inbound(tun: &Tun, batch: &[Vec<u8>], mut write: impl FnMut(&[u8])) {
//!     let mut buffers = vec![[0; WRITE_BYTES_MAX]; 8];
//!     let packets = batch.iter().map(|packet| &packet[..]);
//!     let written = tun.write_batch(&mut buffers, packets, |bytes| write(bytes));
//!     assert_eq!(written.too_long, 0);
//! }
//!
//! // What Linux hands over for 3000 bytes of TCP at an MSS of 1400, `TUNSETOFFLOAD` given.
//! let tun = Tun::new(Accept::ALL);
//! let mut read = vec![0; 10 + 40 + 3000];
//! read[..10].copy_from_slice(&[1, 1, 40, 0, 0x78, 0x05, 20, 0, 16, 0]);
//! read[10..20].copy_from_slice(&[0x45, 0, 0x0b, 0xe0, 0, 1, 0x40, 0, 64, 6]);
//! read[22..30].copy_from_slice(&[198, 18, 0, 1, 198, 18, 0, 2]);
//! read[42..44].copy_from_slice(&[5 << 4, 16]);
//!
//! let mut batch = Vec::new();
//! outbound(&tun, &mut read, |packet| batch.push(packet.to_vec()))?;
//! assert_eq!(batch.iter().map(Vec::len).collect::<Vec<_>>(), [1440, 1440, 240]);
//!
//! let mut sizes = Vec::new();
//! inbound(&tun, &batch, |bytes| sizes.push(bytes.len()));
//! assert_eq!(sizes, [10 + 40 + 3000]);
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
