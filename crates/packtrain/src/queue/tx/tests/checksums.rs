//! Checksums: every state of a packet, at a device with the offload and at one without.

use super::*;
use packtrain_offload::offload::ChecksumState;

/// The content of a packet's checksum field, and its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    /// The right one, not verified.
    Right,
    /// The right one, verified.
    Verified,
    /// The sum of the pseudo-header: the sender completes it.
    Unfinished,
    /// A wrong one, which the receiver has to detect.
    Wrong,
}

/// FDio/vpp#2438, bisdn/xdpd#41: checksums were computed, or not, by the features of the port, and
/// not by the packet's state. A complete checksum, right or wrong, does not change. A partial one
/// is completed exactly once, by a device with the offload, else by the queue.
#[test]
fn only_a_partial_checksum_is_completed_and_once() {
    for kind in [
        GsoKind::TcpV4,
        GsoKind::TcpV6,
        GsoKind::UdpV4,
        GsoKind::UdpV6,
    ] {
        for (field, features, in_software) in [
            (Field::Right, Features::ALL, 0),
            (Field::Right, Features::NONE, 0),
            (Field::Verified, Features::ALL, 0),
            (Field::Verified, Features::NONE, 0),
            (Field::Unfinished, Features::ALL, 0),
            (Field::Unfinished, Features::NONE, 1),
            (Field::Wrong, Features::ALL, 0),
            (Field::Wrong, Features::NONE, 0),
        ] {
            let what = format!("{kind:?} {field:?} {features:?}");
            let arena = arena();
            let mut queue = queue(&arena, features, Scripted::new([]));
            let unfinished = PLAIN.kind(kind).partial().build(&arena, 1);
            let right = to_wire(&unfinished).remove(0);
            let ChecksumState::Partial { start, offset } = unfinished.meta().checksum else {
                unreachable!("it was built like that");
            };
            let at = usize::from(start + offset);
            let mut wire = right.clone();
            let packet = match field {
                Field::Unfinished => unfinished,
                Field::Right | Field::Verified | Field::Wrong => {
                    wire[at] ^= if field == Field::Wrong { 0x55 } else { 0 };
                    let mut packet = arena.packet_from(&wire).unwrap();
                    packet.meta_mut().layout = unfinished.meta().layout;
                    packet.meta_mut().checksum = match field {
                        Field::Verified => ChecksumState::Unnecessary,
                        _ => ChecksumState::None,
                    };
                    packet
                }
            };
            let mut burst = Burst::new();
            burst.push(packet).unwrap();
            assert_eq!(queue.transmit(&mut burst).unwrap(), Sent::All, "{what}");
            assert_eq!(queue.device().wire, [wire], "{what}");
            let counters = queue.counters().snapshot();
            assert_eq!(counters.csum_sw, in_software, "{what}");
            assert_eq!(counters.wire_packets, 1, "{what}");
            assert_eq!(queue.drops.snapshot().total(), 0, "{what}");
        }
    }
}
