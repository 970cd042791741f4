//! The features of a virtio network device, as bits of both ends and as offloads (virtio 1.2 §5.1.3
//! and §6).

use crate::driver::Features;
use packtrain_offload::virtio_net::Accept;

/// The device completes checksums of the driver's packets (`VIRTIO_NET_F_CSUM`).
pub(in crate::port) const CSUM: u64 = 1 << 0;
/// The driver takes unfinished checksums.
pub(in crate::port) const GUEST_CSUM: u64 = 1 << 1;
/// The device says how long packets may be.
pub(in crate::port) const MTU: u64 = 1 << 3;
/// The device has an address.
pub(in crate::port) const MAC: u64 = 1 << 5;
pub(in crate::port) const GUEST_TSO4: u64 = 1 << 7;
pub(in crate::port) const GUEST_TSO6: u64 = 1 << 8;
pub(in crate::port) const GUEST_ECN: u64 = 1 << 9;
pub(in crate::port) const HOST_TSO4: u64 = 1 << 11;
pub(in crate::port) const HOST_TSO6: u64 = 1 << 12;
pub(in crate::port) const HOST_ECN: u64 = 1 << 13;
/// A packet to the driver may be in several chains.
pub(in crate::port) const MRG_RXBUF: u64 = 1 << 15;
/// The device says whether its link is up.
pub(in crate::port) const STATUS: u64 = 1 << 16;
/// There is a ring for commands, and some of them are about what is received.
pub(in crate::port) const CTRL_VQ: u64 = 1 << 17;
pub(in crate::port) const CTRL_RX: u64 = 1 << 18;
/// Several pairs of rings.
pub(in crate::port) const MQ: u64 = 1 << 22;
pub(in crate::port) const ANY_LAYOUT: u64 = 1 << 27;
/// A chain may be in a table.
pub(in crate::port) const INDIRECT_DESC: u64 = 1 << 28;
pub(in crate::port) const EVENT_IDX: u64 = 1 << 29;
pub(in crate::port) const VERSION_1: u64 = 1 << 32;
/// The device's addresses are those of the platform: of an IOMMU.
pub(in crate::port) const ACCESS_PLATFORM: u64 = 1 << 33;
pub(in crate::port) const RING_PACKED: u64 = 1 << 34;
/// Memory is accessed in the order of the platform's barriers for devices.
pub(in crate::port) const ORDER_PLATFORM: u64 = 1 << 36;
/// A ring can be reset without the others.
pub(in crate::port) const RING_RESET: u64 = 1 << 40;
pub(in crate::port) const GUEST_USO4: u64 = 1 << 54;
pub(in crate::port) const GUEST_USO6: u64 = 1 << 55;
pub(in crate::port) const HOST_USO: u64 = 1 << 56;

/// Packets to the device: a bit, and the offloads that it stands for.
pub(in crate::port) const TO_DEVICE: [(u64, Features); 5] = [
    (CSUM, Features::CSUM),
    (HOST_TSO4, Features::TSO4),
    (HOST_TSO6, Features::TSO6),
    (HOST_ECN, Features::TSO_ECN),
    (HOST_USO, Features::USO),
];

/// Packets from the device.
pub(in crate::port) const FROM_DEVICE: [(u64, Features); 6] = [
    (GUEST_CSUM, Features::CSUM),
    (GUEST_TSO4, Features::TSO4),
    (GUEST_TSO6, Features::TSO6),
    (GUEST_ECN, Features::TSO_ECN),
    (GUEST_USO4, Features::USO4),
    (GUEST_USO6, Features::USO6),
];

/// The bits of `rows` whose offloads are all wanted, with those that they need (virtio 1.2
/// §5.1.3.1): without checksums no large packets.
pub(in crate::port) fn mask(rows: &[(u64, Features)], wanted: Features) -> u64 {
    let wanted = wanted.consistent();
    let rows = rows.iter().filter(|(_, row)| wanted.contains(*row));
    rows.fold(0, |mask, (bit, _)| mask | bit)
}

/// The offloads of the bits of `rows`, but for those without the bits that they need.
pub(in crate::port) fn of_bits(rows: &[(u64, Features)], bits: u64) -> Features {
    let rows = rows.iter().filter(|(bit, _)| bits & bit != 0);
    let all = rows.fold(Features::NONE, |all, (_, row)| all | *row);
    all.consistent()
}

/// What the header of a packet may ask for, with these offloads.
pub(in crate::port) fn accept(has: Features) -> Accept {
    const EACH: [(Features, Accept); 6] = [
        (Features::CSUM, Accept::CSUM),
        (Features::TSO4, Accept::TSO4),
        (Features::TSO6, Accept::TSO6),
        (Features::TSO_ECN, Accept::TSO_ECN),
        (Features::USO4, Accept::USO4),
        (Features::USO6, Accept::USO6),
    ];
    let each = EACH.iter().filter(|(feature, _)| has.contains(*feature));
    each.fold(Accept::NONE, |all, (_, accept)| all | *accept)
}
