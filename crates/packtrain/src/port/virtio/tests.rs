//! The driver with a device of this process, honest and hostile.

mod device;
mod rings;

use super::*;
use crate::driver::{
    Accepted, Armed, Attach, Completed, Refused, Reset, RxDescriptors, RxInfo, Token,
    TxDescriptors, TxPacket,
};
use crate::limits::PACKET_BYTES_MAX;
use crate::packet::{ArenaConfig, Packet};
use crate::port::card::bench::{Bench, has_come, tcp};
use crate::stats::DropReason;
use device::{Chain, Device};
use packtrain_offload::offload::GsoKind;
use std::time::Duration;

/// What QEMU's device offers.
const OFFERED: u64 = VERSION_1
    | ACCESS_PLATFORM
    | RING_PACKED
    | EVENT_IDX
    | MRG_RXBUF
    | MAC
    | MTU
    | STATUS
    | CTRL_VQ
    | CTRL_RX
    | MQ
    | INDIRECT_DESC
    | RING_RESET
    | 0x01C0_0000_0000_3B83;

/// A card with one pair of queues.
type Rig = Bench<Virtio<Device>, device::Model>;

fn config(packed: bool, irq: InterruptKind) -> VirtioConfig {
    VirtioConfig {
        packed: Some(packed),
        irq,
        queues: Some(1),
        ..VirtioConfig::default()
    }
}

fn rig(offered: u64, config: &VirtioConfig) -> Rig {
    rig_with(Device::offering(offered), config, &Attach::default())
}

/// A card, and an arena for it.
fn plug(device: &Device, config: &VirtioConfig) -> (Virtio<Device>, Arena) {
    let port = Virtio::open(device.clone(), config).expect("a card");
    (port, Arena::new(ArenaConfig::small()).expect("an arena"))
}

fn rig_with(device: Device, config: &VirtioConfig, how: &Attach) -> Rig {
    let port = Virtio::open(device.clone(), config).expect("a card");
    // It can receive before the first poll.
    Rig::attach(device, port, how, ArenaConfig::small())
}

/// All kinds of rings and of interrupts.
fn kinds() -> Vec<Rig> {
    let mut all = Vec::new();
    for packed in [false, true] {
        for offered in [OFFERED, OFFERED & !(EVENT_IDX | INDIRECT_DESC)] {
            for irq in [InterruptKind::Msix, InterruptKind::Intx] {
                all.push(rig(offered, &config(packed, irq)));
            }
        }
    }
    all
}

impl Rig {
    fn received(&mut self) -> (Vec<(Vec<u8>, RxInfo)>, Vec<DropReason>) {
        let all = self.receive().into_iter().map(|packet| {
            let meta = packet.meta();
            let info = RxInfo {
                checksum: meta.checksum,
                gso: meta.gso,
                wire_packets: meta.wire_packets,
                ..RxInfo::default()
            };
            (packet.segments().flatten().copied().collect(), info)
        });
        let all = all.collect();
        self.refill();
        (all, std::mem::take(&mut self.bad.0))
    }

    /// Takes and completes what was sent.
    fn sent(&self) -> Vec<Vec<u8>> {
        let chains: Vec<Chain> = std::iter::from_fn(|| self.fake.take(1)).collect();
        let each = chains.iter().map(|chain| {
            let bytes = self.fake.bytes(chain);
            self.fake.give(1, chain, 0);
            bytes
        });
        each.collect()
    }
}

fn frame(bytes: usize, fill: u8) -> Vec<u8> {
    let mut frame = vec![fill; bytes];
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

fn with_header(frame: &[u8]) -> Vec<u8> {
    [&[0; 12], frame].concat()
}

#[test]
fn packets_pass_in_both_directions_around_the_ring() {
    for mut rig in kinds() {
        for round in 0..40_u32 {
            let frames: Vec<_> = [60, 1514, 1792, 1793, 4000]
                .map(|bytes| frame(bytes, round as u8))
                .into();
            for (frame, count) in frames.iter().zip([1, 1, 1, 2, 3]) {
                assert!(rig.fake.receive(0, &with_header(frame), count), "{round}");
            }
            let (received, bad) = rig.received();
            assert_eq!(bad, []);
            let received: Vec<_> = received.into_iter().map(|(bytes, _)| bytes).collect();
            assert!(received == frames, "{round}");

            let mut packet = rig.packet(&[&frames[1]]);
            let mut pieces = rig.packet(&[&frames[0][..14], &frames[0][14..]]);
            assert_eq!(rig.send(&mut packet, 2 * round), Ok(Accepted::Pending));
            assert_eq!(rig.send(&mut pieces, 2 * round + 1), Ok(Accepted::Pending));
            rig.flush();
            assert_eq!(
                rig.sent(),
                [with_header(&frames[1]), with_header(&frames[0])]
            );
            assert_eq!(rig.reclaim(64), [2 * round, 2 * round + 1]);
        }
        assert_eq!(
            rig.tx().doorbells(),
            rig.fake.state().rings[&1].notifications
        );
    }
}

#[test]
fn completions_come_in_any_order_and_free_their_descriptors() {
    let orders = [(0, 8), (INDIRECT_DESC, 4)];
    let cases = orders.map(|order| [(false, order), (true, order)]);
    for (packed, (lacks, room)) in cases.into_iter().flatten() {
        let mut rig = rig(OFFERED & !lacks, &config(packed, InterruptKind::Msix));
        let order = [2, 0, 3, 1, 7, 5, 6, 4];
        let order = &order[..room];
        for round in 0..20 {
            let mut packets: Vec<Packet> = Vec::new();
            for token in 0..room as u32 {
                let mut packet = rig.packet(&[&frame(60, 1), &[2; 9]]);
                assert_eq!(rig.send(&mut packet, token), Ok(Accepted::Pending));
                packets.push(packet);
            }
            let mut one = rig.packet(&[&frame(60, 3)]);
            assert_eq!(rig.send(&mut one, 9), Err(Refused::NoDescriptor), "{round}");
            rig.flush();
            let chains: Vec<_> = std::iter::from_fn(|| rig.fake.take(1)).collect();
            for index in order {
                let chain = &chains[*index as usize];
                if let Some((table, bytes)) = chain.table {
                    // Nobody but the card reads them.
                    rig.fake.write(table, &vec![0xff; bytes as usize]);
                }
                rig.fake.give(1, chain, 0);
            }
            assert_eq!(rig.reclaim(64), order);
            assert!(rig.reclaim(64).is_empty());
        }
        let all = ArenaConfig::small().small_frames;
        assert_eq!(
            rig.arena.census().small_free,
            all - 8,
            "those of the RX ring"
        );
    }
}

#[test]
fn armed_halves_are_woken_once_and_others_are_not() {
    for mut rig in kinds() {
        let bytes = with_header(&frame(60, 1));
        // Not armed: INTx would have come by the time of the one below.
        rig.fake.receive(0, &bytes, 1);
        assert_eq!(rig.rx().arm(), Armed::WorkPending);
        assert_eq!(rig.received().0.len(), 1);
        assert_eq!(rig.rx().arm(), Armed::Idle);
        assert!(!has_come(rig.rx().wake(), false));
        rig.fake.receive(0, &bytes, 1);
        assert!(has_come(rig.rx().wake(), true));
        assert_eq!(rig.rx().arm(), Armed::WorkPending);
        assert_eq!(rig.received().0.len(), 1);

        let mut packet = rig.packet(&[&frame(60, 1)]);
        rig.send(&mut packet, 7).unwrap();
        rig.flush();
        assert_eq!(rig.tx().arm(), Some(Armed::Idle));
        assert!(!has_come(rig.tx().wake(), false));
        assert_eq!(rig.sent().len(), 1);
        assert!(has_come(rig.tx().wake(), true));
        assert_eq!(rig.tx().arm(), Some(Armed::WorkPending));
        assert_eq!(rig.reclaim(64), [7]);
        let mut packet = rig.packet(&[&frame(60, 1)]);
        rig.send(&mut packet, 8).unwrap();
        rig.flush();
        assert_eq!(rig.tx().arm(), Some(Armed::Idle), "it is cleared");
        assert!(!has_come(rig.tx().wake(), false));
    }
}

#[test]
fn an_armed_half_counts() {
    for (packed, lacks) in [(false, 0), (true, 0), (true, INDIRECT_DESC)] {
        let mut rig = rig(OFFERED & !lacks, &config(packed, InterruptKind::Msix));
        let bytes = with_header(&frame(60, 1));
        for _ in 0..20 {
            assert_eq!(rig.rx().arm_for(3), Some(Armed::Idle));
            for received in 1..=3 {
                rig.fake.receive(0, &bytes, 1);
                assert_eq!(
                    has_come(rig.rx().wake(), false),
                    received == 3,
                    "{received}"
                );
            }
            assert_eq!(rig.rx().arm_for(3), Some(Armed::WorkPending));
            assert_eq!(rig.received().0.len(), 3);
        }
        // No more than it has buffers.
        assert_eq!(rig.rx().arm_for(100), Some(Armed::Idle));
        for received in 1..=8 {
            rig.fake.receive(0, &bytes, 1);
            assert_eq!(
                has_come(rig.rx().wake(), false),
                received == 8,
                "{received}"
            );
        }
        let mut all = Vec::new();
        for token in 0..3 {
            let mut packet = rig.packet(&[&frame(60, 1)]);
            rig.send(&mut packet, token).unwrap();
            all.push(packet);
        }
        rig.flush();
        let counts = lacks == 0;
        assert_eq!(rig.tx().arm_for(2), counts.then_some(Armed::Idle));
        for sent in 1..=3 {
            let chain = rig.fake.take(1).expect("a packet");
            rig.fake.give(1, &chain, 0);
            assert_eq!(
                has_come(rig.tx().wake(), false),
                counts && sent >= 2,
                "{sent}"
            );
        }
    }
    let mut rig = rig(OFFERED & !EVENT_IDX, &config(false, InterruptKind::Msix));
    assert_eq!(rig.rx().arm_for(3), None, "without EVENT_IDX");
}

#[test]
fn offloads_are_in_the_header() {
    let mut rig = rig(OFFERED, &config(true, InterruptKind::Msix));
    let bytes = tcp(false, 3000);
    let mut packet = rig.packet(&[&bytes]);
    rig.large(&bytes, &mut packet, 1448);
    rig.send(&mut packet, 1).unwrap();
    rig.flush();
    let sent = rig.sent().remove(0);
    assert_eq!(sent[..12], [1, 1, 54, 0, 0xa8, 5, 34, 0, 16, 0, 0, 0]);
    // What the card sends is what it gets.
    assert!(rig.fake.receive(0, &sent, 2));
    let (received, bad) = rig.received();
    assert_eq!(bad, []);
    let (got, info) = &received[0];
    assert!(got[54..] == bytes[54..]);
    assert_eq!(
        info.gso.map(|gso| (gso.kind, gso.size.get())),
        Some((GsoKind::TcpV4, 1448))
    );
    assert_eq!(info.wire_packets, 3);
}

#[test]
fn a_header_is_beside_a_packet_whose_headroom_is_shared() {
    for packed in [false, true] {
        let mut rig = rig(OFFERED, &config(packed, InterruptKind::Msix));
        for fill in 0..30 {
            let mut packet = rig.packet(&[&frame(60, fill)]);
            let other = packet.try_clone().unwrap();
            rig.send(&mut packet, 1).unwrap();
            rig.flush();
            assert_eq!(rig.sent(), [with_header(&frame(60, fill))]);
            assert_eq!(rig.reclaim(64), [1]);
            assert_eq!(other.first(), frame(60, fill));
        }
    }
}

#[test]
fn what_is_negotiated_is_what_is_used() {
    let device = Device::offering(OFFERED);
    let (mut port, arena) = plug(&device, &VirtioConfig::default());
    let capabilities = port.capabilities();
    let offloads = Features::CSUM | Features::TSO | Features::USO;
    assert_eq!((capabilities.rx, capabilities.tx), (offloads, offloads));
    assert_eq!((capabilities.queues_max, capabilities.mtu), (2, Some(1500)));
    assert_eq!(capabilities.tx_ring, Some(8));
    assert_eq!(
        (capabilities.tx_segments_max, capabilities.tx_tables),
        (7, true)
    );
    assert_eq!(port.mac(), Some([2, 0, 0, 0, 0, 1]));
    let how = Attach {
        queues: 2,
        rx: Features::CSUM,
        ..Attach::default()
    };
    let halves = port.attach(&how, &arena).unwrap();
    assert_eq!(halves.len(), 2);
    {
        let state = device.state();
        // No large packets.
        let not = 0x00C0_0000_0000_0380;
        assert_eq!(state.features, OFFERED & !not, "{:#x}", state.features);
        let commands = [vec![0, 0, 1], vec![0, 1, 0], vec![4, 0, 2, 0]];
        assert_eq!(state.commands, commands);
        assert_eq!(
            state.rings.keys().copied().collect::<Vec<_>>(),
            [0, 1, 2, 3, 4]
        );
    }
    assert_eq!(port.link(), Link::Up);
    drop(halves);
    assert!(device.state().rings.is_empty(), "it is reset");
    assert_eq!(arena.census().small_free, ArenaConfig::small().small_frames);

    let device = Device::offering(OFFERED & !(MRG_RXBUF | MQ));
    let options = VirtioConfig {
        promiscuous: false,
        packed: Some(false),
        offload: Features::CSUM | Features::TSO4,
        ..VirtioConfig::default()
    };
    let mut port = Virtio::open(device.clone(), &options).unwrap();
    let capabilities = port.capabilities();
    assert_eq!(capabilities.rx, Features::CSUM, "frames are small");
    assert_eq!(capabilities.tx, Features::CSUM | Features::TSO4);
    assert_eq!(capabilities.queues_max, 1);
    let halves = port.attach(&Attach::default(), &arena).unwrap();
    assert_eq!(device.state().features & RING_PACKED, 0);
    assert_eq!(device.state().commands, [[0, 0, 0], [0, 1, 1]]);
    drop(halves);
}

#[test]
fn an_offload_is_used_only_with_those_that_it_needs() {
    const CSUM: u64 = 1 << 0;
    const GUEST_CSUM: u64 = 1 << 1;
    const GUEST_TSO4: u64 = 1 << 7;
    const GUEST_TSO6: u64 = 1 << 8;
    const GUEST_ECN: u64 = 1 << 9;
    const HOST_TSO4: u64 = 1 << 11;
    const HOST_TSO6: u64 = 1 << 12;
    const HOST_ECN: u64 = 1 << 13;
    let tso = Features::CSUM | Features::TSO6 | Features::TSO_ECN;
    let usual = Features::CSUM | Features::TSO | Features::USO;
    let some = VirtioConfig {
        offload: tso,
        ..VirtioConfig::default()
    };
    let all = VirtioConfig::default();
    let cases = [
        (CSUM, &all, usual, Features::NONE),
        (GUEST_CSUM, &all, Features::NONE, usual),
        (HOST_TSO6, &some, tso, Features::CSUM),
        (GUEST_TSO6, &some, Features::CSUM, tso),
    ];
    for (lacks, config, rx, tx) in cases {
        let device = Device::offering(OFFERED & !lacks);
        let (mut port, arena) = plug(&device, config);
        let capabilities = port.capabilities();
        assert_eq!((capabilities.rx, capabilities.tx), (rx, tx), "{lacks:#x}");
        let how = Attach {
            rx,
            ..Attach::default()
        };
        let halves = port.attach(&how, &arena).unwrap();
        let features = device.state().features;
        for (has, of) in [
            (tx, [HOST_TSO4, HOST_TSO6, HOST_ECN]),
            (rx, [GUEST_TSO4, GUEST_TSO6, GUEST_ECN]),
        ] {
            let expected =
                [Features::TSO4, Features::TSO6, Features::TSO_ECN].map(|one| has.contains(one));
            assert_eq!(of.map(|bit| features & bit != 0), expected, "{lacks:#x}");
        }
        drop(halves);
    }
    // No commands without their ring.
    let device = Device::offering(OFFERED & !(CTRL_VQ | MQ));
    let (mut port, arena) = plug(&device, &all);
    let halves = port.attach(&Attach::default(), &arena).unwrap();
    assert_eq!(device.state().features & CTRL_RX, 0);
    drop(halves);
}

#[test]
fn a_ring_that_is_too_small_or_registers_elsewhere_are_refused() {
    let usual = VirtioConfig::default();
    // An RX ring of the second pair, and that of commands.
    for (queue, has) in [(2, 4), (2, 0), (4, 1)] {
        let device = Device::offering(OFFERED);
        device.state().smaller.insert(queue, has);
        let (mut port, arena) = plug(&device, &usual);
        let how = Attach {
            queues: 2,
            ..Attach::default()
        };
        let error = port.attach(&how, &arena).unwrap_err().to_string();
        let expected = format!("has {has} descriptors in its ring {queue}");
        assert!(error.contains(&expected), "{error}");
        assert!(device.state().rings.is_empty(), "it is reset");
    }
    // In words of the configuration space: the region, and the offset in it, of each structure.
    for at in [0x40, 0x54, 0x68, 0x7c] {
        for (word, value) in [(1, 3), (2, 0x400), (2, u32::MAX), (3, 0x401), (3, u32::MAX)] {
            let device = Device::offering(OFFERED);
            device.state().config.insert(at + 4 * word, value);
            let error = Virtio::open(device, &usual).unwrap_err().to_string();
            assert!(error.contains("not within it"), "{at:#x} {word}: {error}");
        }
    }
    for (at, value) in [(0x48, 2), (0x5c, 0x101), (0x84, 0x302)] {
        let device = Device::offering(OFFERED);
        device.state().config.insert(at, value);
        let error = Virtio::open(device, &usual).unwrap_err().to_string();
        assert!(error.contains("not aligned"), "{at:#x}: {error}");
    }
    let device = Device::offering(OFFERED);
    device.state().config.insert(0x64, 3);
    let error = Virtio::open(device, &usual).unwrap_err().to_string();
    assert!(error.contains("an even number"), "{error}");
}

#[test]
fn a_card_that_ignores_the_iommu_is_none_for_vfio() {
    for (offered, is_usable) in [(OFFERED, true), (OFFERED & !ACCESS_PLATFORM, false)] {
        let port = Virtio::open(Device::offering(offered), &VirtioConfig::default()).unwrap();
        assert_eq!(port.is_behind_iommu(), is_usable);
        let used = keys::usable(port.is_behind_iommu(), port.name());
        let Err(error) = used else {
            assert!(is_usable);
            continue;
        };
        let error = error.to_string();
        assert!(!is_usable && error.contains("iommu_platform=on"), "{error}");
    }
}

#[test]
fn a_card_that_cannot_is_refused_with_the_reason() {
    let open = |offered, options: &VirtioConfig| {
        let device = Device::offering(offered);
        Virtio::open(device, options).unwrap_err().to_string()
    };
    let usual = VirtioConfig::default();
    let error = open(OFFERED & !VERSION_1, &usual);
    assert!(error.contains("older than virtio 1.0"), "{error}");
    let packed = config(true, InterruptKind::Msix);
    let error = open(OFFERED & !RING_PACKED, &packed);
    assert!(error.contains("packed=on"), "{error}");
    let error = open(OFFERED, &config(false, InterruptKind::Msi));
    assert!(error.contains("irq=intx"), "{error}");
    let queues = VirtioConfig {
        queues: Some(3),
        ..usual
    };
    let error = open(OFFERED, &queues);
    assert_eq!(error, "3 queues for 0000:01:00.0: use 1 to 2");
    // Without a vector for each half the line serves.
    let device = Device::offering(OFFERED);
    device.state().interrupts[0] = 1;
    let port = Virtio::open(device, &VirtioConfig::default()).unwrap();
    assert_eq!(port.capabilities().notes.len(), 1);
    let device = Device::offering(OFFERED);
    device.state().refuses = true;
    let (mut port, arena) = plug(&device, &VirtioConfig::default());
    let error = port.attach(&Attach::default(), &arena).unwrap_err();
    assert!(
        error.to_string().contains("the device refuses it"),
        "{error}"
    );
    assert!(device.state().rings.is_empty(), "it is reset");
}

#[test]
fn the_link_and_the_card_go_away() {
    let mut rig = rig(OFFERED, &config(false, InterruptKind::Msix));
    let mut packet = rig.packet(&[&frame(60, 1)]);
    rig.flush();
    assert!(!rig.tx().is_blocked());
    rig.fake.state().settings[6] = 0;
    rig.flush();
    assert!(!rig.tx().is_blocked(), "not yet");
    rig.now = rig.now.after(Duration::from_millis(101));
    rig.flush();
    assert!(rig.tx().is_blocked());
    assert_eq!(rig.send(&mut packet, 1), Err(Refused::LinkDown));
    assert_eq!(rig.port.link(), Link::Down);
    rig.fake.state().settings[6] = 1;
    rig.now = rig.now.after(Duration::from_millis(101));
    rig.received();
    assert_eq!(rig.send(&mut packet, 1), Ok(Accepted::Pending));
    rig.fake.state().is_removed = true;
    assert_eq!(rig.port.link(), Link::Removed);
    rig.now = rig.now.after(Duration::from_millis(101));
    let now = rig.now;
    let gone = rig.tx().flush(now);
    assert!(matches!(gone, Err(DeviceError::Removed)), "{gone:?}");
    assert!(matches!(rig.failure(), DeviceError::Removed));
}

#[test]
fn a_change_of_the_link_wakes_up_a_queue() {
    for mut rig in kinds() {
        for is_up in [false, true, false] {
            rig.received();
            assert_eq!(rig.rx().arm(), Armed::Idle);
            rig.fake.set_link(is_up);
            assert!(has_come(rig.rx().wake(), true));
            assert!(rig.received().0.is_empty());
            assert_eq!(rig.rx().arm(), Armed::WorkPending, "the link is read first");
            rig.received();
            assert_eq!(rig.tx().is_blocked(), !is_up);
            assert_eq!(rig.rx().arm(), Armed::Idle);
        }
        // The interrupt of a packet is none of the link.
        rig.fake.state().settings[6] = 1;
        rig.fake.receive(0, &with_header(&frame(60, 1)), 1);
        assert!(has_come(rig.rx().wake(), true));
        assert_eq!(rig.received().0.len(), 1);
        assert_eq!(rig.rx().arm(), Armed::Idle);
        assert!(rig.tx().is_blocked());
    }
}

#[test]
fn a_packet_has_as_many_segments_as_a_table() {
    for packed in [false, true] {
        let mut rig = rig(OFFERED, &config(packed, InterruptKind::Msix));
        let mut bytes = frame(60, 0);
        let mut packet = rig.packet(&[&bytes]);
        for piece in 1..7 {
            bytes.push(piece);
            packet.append(rig.packet(&[&[piece]])).unwrap();
        }
        // With its header beside it, all of the table.
        let mut shared = packet.try_clone().unwrap();
        for round in 0..10 {
            assert_eq!(rig.send(&mut packet, round), Ok(Accepted::Pending));
            assert_eq!(rig.send(&mut shared, round), Ok(Accepted::Pending));
            rig.flush();
            assert_eq!(rig.sent(), [with_header(&bytes), with_header(&bytes)]);
            assert_eq!(rig.reclaim(64), [round, round]);
        }
        for piece in [7, 8] {
            packet.append(rig.packet(&[&[piece]])).unwrap();
        }
        assert_eq!(rig.send(&mut packet, 0), Err(Refused::TooManySegments));
    }
}

#[test]
fn a_ring_is_reset_without_the_others() {
    for packed in [false, true] {
        let mut rig = rig(OFFERED, &config(packed, InterruptKind::Msix));
        let (mut sent, mut unsent) = (Completed::with_capacity(8), Completed::with_capacity(8));
        for round in 0..20 {
            for token in 0..3 {
                let mut packet = rig.packet(&[&frame(60, 1), &[2; 9]]);
                assert_eq!(rig.send(&mut packet, token), Ok(Accepted::Pending));
            }
            rig.flush();
            let chains: Vec<_> = std::iter::from_fn(|| rig.fake.take(1)).take(2).collect();
            rig.fake.give(1, &chains[1], 0);
            let reset = rig.tx().reset(&mut sent, &mut unsent);
            assert!(matches!(reset, Ok(Reset::Done)), "{reset:?}");
            let tokens: Vec<_> = sent.drain().collect();
            assert_eq!(tokens, [Token(1)], "of the others nothing is known");
            assert!(unsent.is_empty() && rig.fake.take(1).is_none(), "{round}");
            assert!(rig.reclaim(64).is_empty());
            assert!(rig.fake.receive(0, &with_header(&frame(60, 3)), 1));
            assert_eq!(rig.received().0.len(), 1);
        }
        let mut packet = rig.packet(&[&frame(60, 4)]);
        assert_eq!(rig.send(&mut packet, 9), Ok(Accepted::Pending));
        rig.flush();
        assert_eq!(rig.tx().arm(), Some(Armed::Idle));
        assert_eq!(rig.sent(), [with_header(&frame(60, 4))]);
        assert!(has_come(rig.tx().wake(), true), "its vector is the same");
        assert_eq!(rig.reclaim(64), [9]);
    }
    let mut rig = rig(OFFERED & !RING_RESET, &config(false, InterruptKind::Msix));
    let mut none = [(); 2].map(|()| Completed::with_capacity(8));
    let [sent, unsent] = &mut none;
    let reset = rig.tx().reset(sent, unsent);
    assert!(matches!(reset, Ok(Reset::Unsupported)), "{reset:?}");
}

#[test]
fn a_card_is_stopped_before_frames_are_freed() {
    let mut rig = rig(OFFERED, &config(false, InterruptKind::Msix));
    let (rx, mut tx) = rig.queues.remove(0);
    let Rig {
        fake: device,
        arena,
        port,
        ..
    } = rig;
    let all = ArenaConfig::small().small_frames;
    drop(rx);
    assert_eq!(
        arena.census().small_free,
        all - 8,
        "the card may still fill them"
    );
    let mut packet = arena.packet_from(&frame(60, 1)).unwrap();
    let sent = tx.encap(&mut TxPacket::fitted(&mut packet), Token(1));
    assert_eq!(sent, Ok(Accepted::Pending));
    assert!(!device.state().rings.is_empty());
    drop(tx);
    assert!(device.state().rings.is_empty(), "it reads from no packet");
    drop(packet);
    assert_eq!(arena.census().small_free, all);
    drop(port);
}

/// The kernel asks for it back, and it works until then.
#[test]
fn a_card_whose_removal_is_requested_is_cut_off() {
    let rig = rig(OFFERED, &config(false, InterruptKind::Msix));
    let (device, arena) = (rig.fake.clone(), rig.arena.clone());
    assert!(device.state().is_started);
    device.state().is_removed = true;
    drop(rig);
    assert!(!device.state().is_started);
    assert_eq!(arena.census().small_free, ArenaConfig::small().small_frames);
}

/// Each lie costs the packet that it is about.
#[test]
fn lies_about_a_packet_cost_that_packet() {
    for packed in [false, true] {
        let mut rig = rig(OFFERED, &config(packed, InterruptKind::Msix));
        let good = with_header(&frame(60, 7));
        let mut lie = |lie: &dyn Fn(&Device), reason: DropReason| {
            lie(&rig.fake);
            assert!(rig.fake.receive(0, &good, 1));
            let (received, bad) = rig.received();
            assert_eq!(bad, [reason]);
            assert_eq!(received.len(), 1);
            assert_eq!(received[0].0, good[12..]);
        };
        for bytes in [0, 12 + 1793, u32::MAX] {
            let wrong_length = |device: &Device| {
                let chain = device.take(0).expect("a buffer");
                device.give(0, &chain, bytes);
            };
            lie(&wrong_length, DropReason::BadDescriptor);
        }
        let short = |device: &Device| {
            let chain = device.take(0).expect("a buffer");
            device.give(0, &chain, 11);
        };
        lie(&short, DropReason::Truncated);
        for count in [0, 40, u16::MAX] {
            let wrong_count = |device: &Device| {
                assert!(device.receive(0, &good, count));
            };
            lie(&wrong_count, DropReason::BadDescriptor);
        }
        // The frame of a chain that it does not name is not there any more: one of eight.
        let wrong_number = |device: &Device| {
            let chain = device.take(0).expect("a buffer");
            device.give(0, &Chain { id: 999, ..chain }, 72);
        };
        lie(&wrong_number, DropReason::BadDescriptor);
        // Of three buffers of a packet the second one: all three are of that packet.
        let wrong_within = |device: &Device| {
            for part in 0..3 {
                let chain = device.take(0).expect("a buffer");
                let (address, bytes, _) = chain.buffers[0];
                let mut start = with_header(&[]);
                start[10] = 3;
                device.write(address, &start);
                let id = if part == 1 { 999 } else { chain.id };
                device.give(0, &Chain { id, ..chain }, bytes);
            }
        };
        lie(&wrong_within, DropReason::BadDescriptor);
    }
}

#[test]
fn without_mergeable_buffers_their_number_is_not_read_and_each_is_a_whole_frame() {
    let device = Device::offering(OFFERED & !MRG_RXBUF);
    let how = Attach {
        rx_buffers: crate::driver::RxBuffers::Pieces { bytes: 256 },
        ..Attach::default()
    };
    let mut rig = rig_with(device, &config(false, InterruptKind::Msix), &how);
    for number in [0, 1, 7] {
        assert!(rig.fake.receive(0, &with_header(&frame(1792, 1)), number));
        let (received, bad) = rig.received();
        assert_eq!(bad, []);
        assert_eq!(received[0].0, frame(1792, 1));
    }
}

#[test]
fn lies_about_sent_packets_are_counted() {
    for packed in [false, true] {
        let mut rig = rig(OFFERED, &config(packed, InterruptKind::Msix));
        let mut packet = rig.packet(&[&frame(60, 1)]);
        let mut second = rig.packet(&[&frame(60, 2), &[2; 9]]);
        rig.send(&mut packet, 5).unwrap();
        rig.send(&mut second, 6).unwrap();
        rig.flush();
        let [first, last] = [(); 2].map(|()| rig.fake.take(1).expect("a packet"));
        for id in [8, u16::MAX] {
            rig.fake.give(
                1,
                &Chain {
                    id,
                    ..first.clone()
                },
                0,
            );
        }
        assert_eq!(
            rig.reclaim(64),
            [u32::MAX, u32::MAX],
            "no packet has that token"
        );
        rig.fake.give(1, &last, u32::MAX);
        assert_eq!(rig.reclaim(64), [6]);
        rig.fake.give(1, &last, 0);
        assert_eq!(rig.reclaim(64), [u32::MAX], "it was returned");
    }
}

#[test]
fn an_index_far_ahead_ends_the_run() {
    let mut rig = rig(OFFERED, &config(false, InterruptKind::Msix));
    rig.fake.lie(0, 9);
    let broken = rig.failure();
    assert!(matches!(broken, DeviceError::Failed { .. }), "{broken:?}");
    assert!(rig.bad.0.is_empty());
    rig.fake.lie(1, 0x8000);
    let mut completed = Completed::with_capacity(4);
    let now = rig.now;
    rig.tx().reclaim(now, &mut completed);
    assert!(completed.is_empty() && completed.take_failure().is_some());
}

#[test]
fn longest_packets_arrive_and_longer_ones_do_not() {
    let device = Device::offering(OFFERED);
    device.state().size_max = 64;
    let usual = config(true, InterruptKind::Msix);
    let mut rig = rig_with(device, &usual, &Attach::default());
    let longest = frame(PACKET_BYTES_MAX, 1);
    let count = (12 + PACKET_BYTES_MAX).div_ceil(1804) as u16;
    assert!(rig.fake.receive(0, &with_header(&longest), count));
    let (received, bad) = rig.received();
    assert_eq!(bad, []);
    assert!(received[0].0 == longest);
    let longer = frame(PACKET_BYTES_MAX + 1, 1);
    let count = (12 + longer.len()).div_ceil(1804) as u16;
    assert!(rig.fake.receive(0, &with_header(&longer), count));
    assert_eq!(rig.received().1, [DropReason::TooLong]);
}
