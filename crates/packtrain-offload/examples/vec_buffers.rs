//! From `Vec<u8>` packets to writes and back, in both forms: copied into buffers, and gathered
//! where they lie.

use packtrain_offload::checksum::{ipv4_header, pseudo_header_v4};
use packtrain_offload::tun::{Piece, Tun, WRITE_BYTES_MAX};
use packtrain_offload::virtio_net::{Accept, VnetError};

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

fn main() -> Result<(), VnetError> {
    let tun = Tun::new(Accept::ALL);
    let batch: Vec<_> = (0..10).map(|id| datagram(id, &[id; 1000])).collect();

    // Copied: each write is one run of bytes, ready for write(2).
    let mut buffers = vec![[0; WRITE_BYTES_MAX]; 4];
    let mut writes = Vec::new();
    let packets = batch.iter().map(|packet| &packet[..]);
    tun.write_batch(&mut buffers, packets, |write| writes.push(write.to_vec()));
    println!(
        "{} packets became {} write of {} bytes",
        batch.len(),
        writes.len(),
        writes[0].len()
    );

    // Gathered: each write is a list of slices for writev(2). In front of each packet is room for
    // the virtio-net header, and nothing is copied.
    let mut memory: Vec<Vec<u8>> = batch.iter().map(|p| [&[0; 16][..], p].concat()).collect();
    let mut pieces = [Piece::EMPTY; 64];
    let packets = memory.iter_mut().map(|packet| &mut packet[..]);
    tun.gather_batch(&mut pieces, packets, 16, |write| {
        println!("{} bytes in {} slices", write.bytes(), write.slices().len());
        assert!(write.slices().flatten().eq(&writes[0]));
    });

    // And back, as if a write had been read: wire packets with finished checksums.
    let mut packets = tun.packets(&mut writes[0])?;
    let mut again = Vec::new();
    while let Some(packet) = packets.next_packet() {
        again.push(packet.to_vec());
    }
    assert_eq!(again, batch);
    println!("cut again, all {} are what they were", again.len());
    Ok(())
}
