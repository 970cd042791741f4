//! From `Vec<u8>` packets to writes and back, in both forms: copied into buffers for `write`, and
//! gathered in the packets' own buffers for `writev`. A `Vec<u8>` stands for the device, so the
//! example needs no privilege.

use packtrain_offload::checksum::{ipv4_header, pseudo_header_v4};
use packtrain_offload::tun::{Pieces, TunOffload, WRITE_BYTES_MAX};
use std::io::{IoSlice, Result, Write};

/// Room in front of each packet for the virtio-net header.
const HEADROOM: usize = 10;

/// A UDP datagram over IPv4.
fn datagram(id: u8, payload: &[u8]) -> Vec<u8> {
    let bytes = (28 + payload.len()) as u16;
    let mut packet = vec![0x45, 0, 0, 0, 0, id, 0x40, 0, 64, 17, 0, 0];
    packet.extend([198, 18, 0, 1, 198, 18, 0, 2, 0x12, 0x34, 0, 53, 0, 0, 0, 0]);
    packet.extend_from_slice(payload);
    packet[2..4].copy_from_slice(&bytes.to_be_bytes());
    packet[24..26].copy_from_slice(&(bytes - 20).to_be_bytes());
    let sum = ipv4_header(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut sum = pseudo_header_v4([198, 18, 0, 1], [198, 18, 0, 2], 17, u32::from(bytes) - 20);
    sum.add(&packet[20..]);
    packet[26..28].copy_from_slice(&sum.finish().to_be_bytes());
    packet
}

fn main() -> Result<()> {
    let tun = TunOffload::tun();
    let batch: Vec<_> = (0..10).map(|id| datagram(id, &[id; 1000])).collect();

    // Copied: each write is one slice. An error of the device ends the batch and comes out by `?`.
    let mut device = Vec::new();
    let mut buffers = vec![[0; WRITE_BYTES_MAX]; 4];
    let written = tun.write_batch(&mut buffers, &batch, |write| device.write_all(write))?;
    println!(
        "{} packets became {} write of {} bytes",
        written.stats.packets,
        written.stats.emitted,
        device.len()
    );

    // Gathered: each write is a value, a list of slices. `pieces` and `slices` are reused.
    let mut memory: Vec<Vec<u8>> = batch
        .iter()
        .map(|p| [&[0; HEADROOM], &p[..]].concat())
        .collect();
    let (mut gathered, mut pieces) = (Vec::new(), Pieces::new());
    let mut slices: Vec<IoSlice<'_>> = Vec::new();
    for write in tun.gather_batch(&mut pieces, &mut memory, HEADROOM) {
        slices.clear();
        slices.extend(write.io_slices());
        let bytes = gathered.write_vectored(&slices)?;
        println!("{bytes} bytes in {} slices", slices.len());
        assert_eq!(bytes, write.bytes());
    }
    assert_eq!(gathered, device);

    // And back, as if the write had been read: wire packets with finished checksums.
    let mut packets = tun.packets(&mut device)?;
    let mut again = Vec::new();
    while let Some(packet) = packets.next_packet() {
        again.push(packet.to_vec());
    }
    assert_eq!(again, batch);
    println!("segmented again, all {} are what they were", again.len());
    Ok(())
}
