//! Checksums.

use crate::oracle::with_dpdk;
use crate::test_packets::frame::{Frame, tcp4, tcp6, udp4, udp6};
use crate::{Random, rounds};
use packtrain_offload::checksum::{self, Level};
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::LinkType;
use packtrain_offload::verify;

#[test]
fn sums_of_any_length_and_alignment_are_those_of_rte_raw_cksum() {
    with_dpdk("sums", |dpdk| {
        for round in 0..rounds() {
            let mut random = Random::new("sums", round);
            let (start, bytes) = (random.below(64), random.below(3000));
            // Few bits, so that sums of 0 and 0xFFFF occur.
            let mut block = random.bytes(start + bytes);
            if random.one_in(4) {
                let fill = [0, 0xff][random.below(2)];
                block.fill(fill);
            }
            let piece = &block[start..];
            let theirs = dpdk.raw_cksum(piece);
            assert_eq!(
                checksum::sum(piece).fold(),
                theirs,
                "seed {round}, {bytes} bytes"
            );
            for level in Level::ALL {
                if let Some(sum) = checksum::sum_with(*level, piece) {
                    assert_eq!(sum.fold(), theirs, "{level:?}, seed {round}, {bytes} bytes");
                }
            }
            let mut copy = vec![0; bytes];
            let sum = checksum::copy_and_sum(&mut copy, piece);
            assert_eq!((sum.fold(), &copy[..]), (theirs, piece), "seed {round}");
        }
    });
}

#[test]
fn checksums_of_packets_are_those_of_rte_udptcp_cksum() {
    with_dpdk("checksums of packets", |dpdk| {
        let kinds: [fn(usize) -> Frame; 4] = [tcp4, tcp6, udp4, udp6];
        for round in 0..rounds() {
            let mut random = Random::new("packets", round);
            let kind = random.below(4);
            let mut frame = kinds[kind](0);
            let bytes = random.below(1500);
            frame.payload = random.bytes(bytes);
            if frame.tcp {
                let words = random.below(11);
                frame.options = random.bytes(words * 4);
            }
            let mut packet = frame.bytes();
            let layout = Layout::parse(LinkType::RawIp, &packet, packet.len() as u32).unwrap();
            let right = verify::verify_transport(&packet, &layout).is_valid();
            assert!(right && dpdk.l4_is_right(&packet), "seed {round}");

            // The reference of these tests computed the field; DPDK gives the same.
            let at = usize::from(layout.transport) + if frame.tcp { 16 } else { 6 };
            let field = [packet[at], packet[at + 1]];
            packet[at..at + 2].fill(0);
            assert_eq!(dpdk.l4_cksum(&packet).to_be_bytes(), field, "seed {round}");
            packet[at..at + 2].copy_from_slice(&field);

            // A byte of the covered data is wrong, but not a length or the offset of the data.
            let from = usize::from(layout.transport);
            let place = random.below(packet.len() - from);
            if (!frame.tcp && (4..6).contains(&place)) || (frame.tcp && place == 12) {
                continue;
            }
            packet[from + place] ^= 1 << random.below(8);
            let ours = verify::verify_transport(&packet, &layout).is_valid();
            // UDP over IPv4 may have none; one changed bit does not make the field 0.
            assert_eq!(
                ours,
                dpdk.l4_is_right(&packet),
                "seed {round}, byte {place}"
            );
        }
    });
}
