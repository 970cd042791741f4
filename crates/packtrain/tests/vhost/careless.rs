//! What careless guests hand over reaches another guest as a right packet: its kernel would drop it
//! in silence.

use crate::conformance::{header, outside};
use crate::guest::*;
use crate::{Queues, frame};
use packtrain::packet::Burst;
use packtrain_offload::checksum::Sum;
use packtrain_offload::offload::{ChecksumState, Gso, GsoKind};
use packtrain_testkit::conformance::Outside;
use std::num::NonZeroU16;

const NETWORK: usize = 14;
const PAYLOAD: usize = 2500;

/// A large packet as it has to be.
pub fn large(kind: GsoKind) -> Outside {
    let is_ipv6 = matches!(kind, GsoKind::TcpV6 | GsoKind::UdpV6);
    let (protocol, transport_bytes, offset) = if kind.is_tcp() {
        (6, 20, 16)
    } else {
        (17, 8, 6)
    };
    let length = (transport_bytes + PAYLOAD) as u16;
    let mut bytes = frame(0, 12).bytes;
    let addresses = if is_ipv6 {
        bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        bytes.extend(length.to_be_bytes());
        bytes.extend([protocol, 64]);
        bytes.extend([0xfd; 15]);
        bytes.push(1);
        bytes.extend([0xfd; 15]);
        bytes.push(2);
        NETWORK + 8..NETWORK + 40
    } else {
        bytes.extend([8, 0, 0x45, 0]);
        bytes.extend((20 + length).to_be_bytes());
        bytes.extend([0, 1, 0x40, 0, 64, protocol, 0, 0]);
        bytes.extend([198, 18, 0, 1, 198, 18, 0, 2]);
        let sum = !sum_of(&[&bytes[NETWORK..]]);
        bytes[NETWORK + 10..NETWORK + 12].copy_from_slice(&sum.to_be_bytes());
        NETWORK + 12..NETWORK + 20
    };
    let start = bytes.len();
    let seed = sum_of(&[&bytes[addresses], &[0, protocol], &length.to_be_bytes()]);
    bytes.extend([9, 1, 9, 2]);
    if kind.is_tcp() {
        bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0x20, 0, 0, 0, 0, 0]);
    } else {
        bytes.extend(length.to_be_bytes());
        bytes.extend([0, 0]);
    }
    bytes[start + offset..start + offset + 2].copy_from_slice(&seed.to_be_bytes());
    bytes.resize(start + transport_bytes + PAYLOAD, 7);
    let size = NonZeroU16::new(1000).expect("not 0");
    Outside {
        bytes,
        checksum: ChecksumState::Partial {
            start: start as u16,
            offset: offset as u16,
        },
        gso: Some(Gso::new(kind, size)),
    }
}

fn sum_of(parts: &[&[u8]]) -> u16 {
    let mut sum = Sum::new();
    parts.iter().for_each(|part| sum.add(part));
    sum.fold()
}

/// Changes the header and the packet, whose checksum field is at the last argument.
type Damage = fn(&mut [u8; 12], &mut Vec<u8>, usize);

fn is_ipv6(bytes: &[u8]) -> bool {
    bytes[NETWORK] >> 4 == 6
}

const DEFECTS: [(&str, Damage); 12] = [
    ("none", |_, _, _| {}),
    ("IPv4 checksum 0", |_, bytes, _| {
        if !is_ipv6(bytes) {
            bytes[NETWORK + 10..NETWORK + 12].fill(0);
        }
    }),
    ("IP length 0", |_, bytes, _| {
        let at = NETWORK + if is_ipv6(bytes) { 4 } else { 2 };
        bytes[at..at + 2].fill(0);
    }),
    ("a seed without the length", |_, bytes, field| {
        let protocol = if is_ipv6(bytes) {
            bytes[NETWORK + 6]
        } else {
            bytes[NETWORK + 9]
        };
        let addresses = if is_ipv6(bytes) { 8..40 } else { 12..20 };
        let addresses = NETWORK + addresses.start..NETWORK + addresses.end;
        let seed = sum_of(&[&bytes[addresses], &[0, protocol]]);
        bytes[field..field + 2].copy_from_slice(&seed.to_be_bytes());
    }),
    ("no seed", |_, bytes, field| bytes[field..field + 2].fill(0)),
    ("bytes behind the packet", |_, bytes, _| {
        bytes.extend([0xee; 9]);
    }),
    ("DATA_VALID beside NEEDS_CSUM", |header, _, _| {
        header[0] |= 2;
    }),
    ("hdr_len 0", |header, _, _| header[2..4].fill(0)),
    ("hdr_len of the packet", |header, bytes, _| {
        header[2..4].copy_from_slice(&(bytes.len() as u16).to_le_bytes());
    }),
    ("hdr_len of one byte too few", |header, _, _| header[2] -= 1),
    ("num_buffers 7", |header, _, _| header[10] = 7),
    ("num_buffers 65535", |header, _, _| header[10..].fill(0xFF)),
];

#[test]
fn a_packet_of_a_careless_guest_is_right_for_another_one() {
    const KINDS: [GsoKind; 4] = [
        GsoKind::TcpV4,
        GsoKind::TcpV6,
        GsoKind::UdpV4,
        GsoKind::UdpV6,
    ];
    for features in [
        VERSION_1 | OFFLOADS,
        VERSION_1 | MRG_RXBUF | INDIRECT | OFFLOADS,
    ] {
        let mut queues = Queues::new(Options::with_pairs(features, 2));
        for kind in KINDS {
            let good = large(kind);
            let wanted = header(&good);
            let ChecksumState::Partial { start, offset } = good.checksum else {
                panic!("it is partial");
            };
            for (defect, damage) in DEFECTS {
                let context = format!("{kind:?}, {defect}");
                let (mut sent, mut bytes) = (wanted, good.bytes.clone());
                damage(&mut sent, &mut bytes, usize::from(start + offset));
                assert!(queues.guest().send(0, &sent, &bytes), "{context}: a slot");
                let (now, mut burst) = (queues.now, Burst::new());
                queues.rx[0].poll(now, &mut burst, 64).expect("it works");
                assert_eq!(
                    burst.len(),
                    1,
                    "{context}: {:?}",
                    queues.rx_drops.snapshot()
                );
                queues.tx[1].service(now).expect("it works");
                queues.tx[1].transmit(&mut burst).expect("it works");
                let (got, bytes) = queues.guest().receive(1).expect(&context);
                // The number of buffers is checked by the guest.
                assert_eq!(got[..10], wanted[..10], "{context}");
                assert_eq!(outside(got, bytes), good, "{context}");
            }
        }
        assert_eq!(queues.tx_drops.snapshot().total(), 0);
        let sent = queues.tx[1].counters().snapshot();
        assert_eq!(sent.gso_sw_packets, 0, "the guest gets them whole");
    }
}
