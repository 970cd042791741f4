//! vhost-user ports keep the promises of the driver contract, with guests of several kinds.

use crate::Joined;
use crate::guest::{EVENT_IDX, GUEST_BASE, INDIRECT, MRG_RXBUF, OFFLOADS, Options, VERSION_1};
use packtrain::driver::Features;
use packtrain_offload::offload::{ChecksumState, Ecn, Gso, GsoKind};
use packtrain_testkit::conformance::{Fills, Injects, Observes, Outside, Rig, Skip, Traits};
use packtrain_testkit::driver_conformance;
use std::num::NonZeroU16;

const NEEDS_CSUM: u8 = 1;
const ECN: u8 = 0x80;

struct Line {
    joined: Joined,
    offloads: Features,
}

/// The header of a packet, as a guest writes it.
pub fn header(packet: &Outside) -> [u8; 12] {
    let mut header = [0; 12];
    let mut word = |at: usize, value: u16| {
        header[at..at + 2].copy_from_slice(&value.to_le_bytes());
    };
    if let ChecksumState::Partial { start, offset } = packet.checksum {
        word(6, start);
        word(8, offset);
        let transport = match packet.gso {
            Some(gso) if gso.kind.is_tcp() => 20,
            _ => 8,
        };
        if let Some(gso) = packet.gso {
            word(2, start + transport);
            word(4, gso.size.get());
        }
        header[0] = NEEDS_CSUM;
    }
    header[1] = match packet.gso.map(|gso| gso.kind) {
        None => 0,
        Some(GsoKind::TcpV4) => 1,
        Some(GsoKind::TcpV6) => 4,
        Some(GsoKind::UdpV4 | GsoKind::UdpV6) => 5,
    };
    if packet.gso.is_some_and(|gso| gso.ecn() == Ecn::Cwr) {
        header[1] |= ECN;
    }
    header
}

/// A packet as the guest reads it.
pub fn outside(header: [u8; 12], bytes: Vec<u8>) -> Outside {
    let word = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let checksum = match header[0] & NEEDS_CSUM {
        0 => ChecksumState::None,
        _ => ChecksumState::Partial {
            start: word(6),
            offset: word(8),
        },
    };
    // Behind VLAN tags.
    let mut network = 12;
    while bytes.get(network..network + 2) == Some(&[0x81, 0]) {
        network += 4;
    }
    let is_ipv6 = bytes.get(network + 2).is_some_and(|byte| byte >> 4 == 6);
    let kind = match header[1] & !ECN {
        0 => None,
        1 => Some(GsoKind::TcpV4),
        4 => Some(GsoKind::TcpV6),
        5 if is_ipv6 => Some(GsoKind::UdpV6),
        5 => Some(GsoKind::UdpV4),
        other => panic!("no type that was negotiated: {other}"),
    };
    let gso = kind.map(|kind| {
        let ecn = if header[1] & ECN != 0 {
            Ecn::Cwr
        } else {
            Ecn::None
        };
        Gso::new(kind, NonZeroU16::new(word(4)).expect("a size")).with_ecn(ecn)
    });
    Outside {
        bytes,
        checksum,
        gso,
    }
}

impl Rig for Line {
    type Driver = Joined;

    fn traits(&self) -> Traits {
        Traits {
            injects: Injects::Live,
            observes: Observes::Live,
            window: 32,
            fills: Fills::Yes,
            injects_offloads: self.offloads,
            injects_bad: true,
            ..Traits::default()
        }
    }

    fn driver(&mut self) -> &mut Joined {
        &mut self.joined
    }

    fn inject(&mut self, packet: &Outside) -> bool {
        let header = header(packet);
        self.joined.guest().send(0, &header, &packet.bytes)
    }

    fn inject_bad(&mut self) -> bool {
        let guest = self.joined.guest();
        let Some(slot) = guest.slot(1) else {
            return false;
        };
        let head = if guest.options.features & INDIRECT == 0 {
            2 * slot
        } else {
            slot
        };
        guest.describe(1, head, GUEST_BASE - 1, 100, 0, 0);
        guest.push(1, head);
        guest.kick(1, 1);
        true
    }

    fn observe(&mut self) -> Option<Outside> {
        let (header, bytes) = self.joined.guest().receive(0)?;
        Some(outside(header, bytes))
    }
}

fn line(offload: Features, features: u64) -> Result<Line, Skip> {
    let joined = Joined::new(offload, Options::new(features));
    let has = if features & OFFLOADS == 0 {
        Features::NONE
    } else {
        offload
    };
    let offloads = has.intersection(Features::CSUM | Features::TSO | Features::USO);
    Ok(Line { joined, offloads })
}

const MODERN: u64 = VERSION_1 | MRG_RXBUF | EVENT_IDX | INDIRECT;

driver_conformance!(modern, |_| line(Features::ALL, MODERN | OFFLOADS));
driver_conformance!(big_buffers, |_| line(
    Features::ALL,
    VERSION_1 | EVENT_IDX | OFFLOADS
));
driver_conformance!(like_dpdk, |_| line(
    Features::ALL,
    VERSION_1 | MRG_RXBUF | INDIRECT
));
driver_conformance!(legacy, |_| line(Features::ALL, OFFLOADS));
driver_conformance!(checksums, |_| line(Features::CSUM, MODERN | OFFLOADS));
driver_conformance!(off, |_| line(Features::NONE, MODERN | OFFLOADS));
