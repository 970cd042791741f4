//! Network offloads, exact and without I/O.
#![no_std]
#![deny(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod checksum;
pub mod layout;
pub mod limits;
pub mod offload;
pub mod segment;
pub mod virtio_net;
pub mod wire;

#[cfg(test)]
mod test_packets;
