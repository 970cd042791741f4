//! Network offloads, exact, without I/O or allocation: the piece that a VPN, a VMM or a user-space
//! stack would otherwise write by hand.
//!
//! | module | what it is for |
//! | --- | --- |
//! | [`layout`] | one pass over a packet's headers: where IP, TCP or UDP and the payload begin |
//! | [`virtio_net`] | the header of TUN, TAP and virtio: read, checked, written |
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
//! `unsafe` is in two files only, which hold the vector instructions of [`checksum`].
//!
//! # From a TUN read to wire packets
//!
//! ```
//! use packtrain_offload::checksum::sum;
//! use packtrain_offload::offload::{ChecksumState, LinkType};
//! use packtrain_offload::segment::{Segmenter, finish_partial};
//! use packtrain_offload::virtio_net::{Accept, HeaderLen, VnetHeader, validate};
//!
//! /// Calls `send` with every packet that one read stands for.
//! fn wire_packets(
//!     read: &mut [u8],
//!     mut send: impl FnMut(&[u8]),
//! ) -> Result<(), Box<dyn std::error::Error>> {
//!     // 10 bytes, unless TUNSETVNETHDRSZ says otherwise.
//!     let header = VnetHeader::decode(read, HeaderLen::Legacy)?;
//!     let packet = &mut read[HeaderLen::Legacy.bytes()..];
//!     // `Accept` is what was asked for with TUNSETOFFLOAD.
//!     let bytes = packet.len() as u32;
//!     let got = validate(&header, LinkType::RawIp, Accept::ALL, packet, bytes)?;
//!     let packet = &mut packet[..got.packet_bytes as usize];
//!     let (Some(gso), Some(layout)) = (got.gso, got.layout) else {
//!         if let ChecksumState::Partial { start, offset } = got.checksum {
//!             let field = usize::from(start + offset);
//!             let value = finish_partial(sum(&packet[usize::from(start)..]), offset == 6);
//!             packet[field..field + 2].copy_from_slice(&value.to_be_bytes());
//!         }
//!         send(packet);
//!         return Ok(());
//!     };
//!     let cut = Segmenter::new(packet, &layout, gso, got.packet_bytes)?;
//!     let mut wire = [0; 2048];
//!     for index in 0..cut.segments() {
//!         let bytes = cut.write_segment(index, packet, &mut wire)?;
//!         send(&wire[..bytes]);
//!     }
//!     Ok(())
//! }
//!
//! // What Linux hands over for 3000 bytes of TCP at an MSS of 1400.
//! let mut read = vec![0; 10 + 40 + 3000];
//! read[..10].copy_from_slice(&[1, 1, 40, 0, 0x78, 0x05, 20, 0, 16, 0]);
//! let ip = &mut read[10..];
//! ip[..10].copy_from_slice(&[0x45, 0, 0x0b, 0xe0, 0, 1, 0x40, 0, 64, 6]);
//! ip[12..20].copy_from_slice(&[198, 18, 0, 1, 198, 18, 0, 2]);
//! ip[32] = 5 << 4;
//! let mut sizes = Vec::new();
//! wire_packets(&mut read, |packet| sizes.push(packet.len()))?;
//! assert_eq!(sizes, [1440, 1440, 240]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![deny(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod checksum;
pub mod coalesce;
pub mod flow;
pub mod fragment;
pub mod layout;
pub mod limits;
pub mod offload;
mod prefetch;
pub mod segment;
pub mod sort;
pub mod verify;
pub mod virtio_net;
pub mod wire;

#[cfg(test)]
mod test_packets;
