//! The MTU of the device: what is too long is dropped alone, by its longest wire packet, and a new
//! MTU counts for what waits.

use super::*;
use crate::driver::ChangeLog;
use crate::plan::Mtu;

/// Of the payload that fills a wire packet of MTU 1500.
const FULL: usize = 1500 - 20 - 20;

fn limited(arena: &Arena, features: Features, mtu: u32) -> TxQueue<Scripted> {
    let mut queue = queue(arena, features, Scripted::new([]));
    queue.device_mut().mtu = Some(mtu);
    queue.limits.mtu = Mtu::new(LinkType::Ethernet, None, Some(mtu));
    queue
}

#[test]
fn only_what_is_longer_on_the_wire_is_dropped() {
    let tcp = |payload, size| Spec::gso(GsoKind::TcpV4, payload, size);
    // With its wire packets, and whether they fit.
    let cases = [
        (PLAIN.payload(FULL), true),
        (PLAIN.payload(FULL + 1), false),
        (PLAIN.payload(FULL).vlan(), true),
        (PLAIN.payload(FULL + 1).vlan(), false),
        (tcp(10 * FULL, FULL as u16), true),
        (tcp(10 * FULL, FULL as u16 + 1), false),
        (tcp(FULL + 1, FULL as u16).vlan(), true),
        (Spec::gso(GsoKind::UdpV6, 9000, 1452), true),
        (Spec::gso(GsoKind::UdpV6, 9000, 1453), false),
    ];
    let specs = cases.map(|(spec, _)| spec);
    let too_long = cases.iter().filter(|(_, fits)| !fits);
    let lost: usize = too_long.map(|(spec, _)| spec.segments()).sum();
    let (memory, lost) = (arena(), lost as u64);
    for features in [Features::ALL, Features::NONE] {
        let mut queue = limited(&memory, features, 1500);
        let (mut burst, _) = burst(&memory, &specs);
        let wire: Vec<_> = burst
            .iter()
            .zip(cases)
            .filter(|(_, (_, fits))| *fits)
            .flat_map(|(packet, _)| to_wire(packet))
            .collect();
        assert_eq!(queue.transmit(&mut burst).unwrap(), Sent::All);
        assert_eq!(queue.device().wire, wire);
        assert_dropped(&queue.drops, DropReason::Mtu, lost);
    }
    assert_all_free(&memory);
}

#[test]
fn two_tags_of_either_kind_do_not_count() {
    const C: u16 = 0x8100;
    const S: u16 = 0x88a8;
    let arena = arena();
    let mtu = Mtu::new(LinkType::Ethernet, None, Some(1500));
    // Tags in the bytes, one beside them, and the most bytes behind all that are in the bytes.
    for (tags, beside, most) in [
        (&[C][..], None, 1500),
        (&[S], None, 1500),
        (&[S, C], None, 1500),
        (&[C, C], None, 1500),
        (&[S, S, C], None, 1496),
        (&[0x9100], None, 1496),
        (&[], Some(S), 1500),
        (&[C], Some(S), 1500),
        (&[C, C], Some(S), 1496),
    ] {
        for more in [0, 1] {
            let mut bytes = vec![2; 12];
            for tag in tags {
                bytes.extend(tag.to_be_bytes());
                bytes.extend([0, 7]);
            }
            bytes.extend([0x88, 0xb5]);
            bytes.resize(bytes.len() + most + more, 0);
            let mut packet = arena.packet_from(&bytes).unwrap();
            packet.meta_mut().vlan = beside.map(|protocol| VlanTag {
                protocol,
                control: 7,
            });
            let is_long = mtu.is_exceeded_by(&packet);
            assert_eq!(is_long, more == 1, "{tags:x?}, {beside:x?}");
        }
    }
}

#[test]
fn a_new_mtu_counts_for_what_waits() {
    let arena = arena();
    let mut queue = limited(&arena, Features::ALL, 9000);
    queue.device_mut().script.push_back(NO_DESCRIPTOR);
    let specs = [PLAIN.payload(8000), PLAIN.payload(100), PLAIN.payload(1460)];
    let (mut burst, wire) = burst(&arena, &specs);
    let sent = queue.transmit(&mut burst).unwrap();
    assert_eq!(sent, Sent::Stalled(Stall::NoDescriptor));
    queue.device_mut().mtu = Some(1500);
    let soon = Instant::from_nanos(0).after(MTU_INTERVAL);
    queue.service(soon).unwrap();
    assert_eq!(queue.transmit(&mut burst).unwrap(), Sent::All);
    assert_eq!(queue.device().wire, wire[1..]);
    assert_dropped(&queue.drops, DropReason::Mtu, 1);
    // A longer one, too, but not beyond what the user allows.
    queue.limits.mtu = Mtu::new(LinkType::Ethernet, Some(2000), Some(1500));
    queue.device_mut().mtu = Some(9000);
    queue.service(soon.after(MTU_INTERVAL)).unwrap();
    assert_eq!(queue.limits.mtu.get(), Some(2000));
    assert_all_free(&arena);
}

#[test]
fn a_change_is_recorded_once_and_the_first_mtu_is_none() {
    let arena = arena();
    let log = Arc::new(ChangeLog::new(|| Instant::from_nanos(7)));
    let queue = queue(&arena, Features::ALL, Scripted::new([]));
    let mut queue = queue.following(PortChanges::new(Arc::clone(&log), 2), Features::ALL);
    // As the plan has it.
    queue.limits.mtu = Mtu::new(LinkType::Ethernet, None, Some(1500));
    let mut now = Instant::from_nanos(0);
    for mtu in [1500, 1500, 9000, 9000, 1400] {
        queue.device_mut().mtu = Some(mtu);
        queue.service(now).unwrap();
        now = now.after(MTU_INTERVAL);
    }
    let changes = log.snapshot();
    let said: Vec<_> = changes
        .last
        .iter()
        .map(|change| (change.port, change.kind, change.to_string()))
        .collect();
    let of = |mtu| {
        let line = format!("txq00: its MTU is {mtu} now");
        (2, ChangeKind::Mtu, line)
    };
    assert_eq!(said, [of(9000), of(1400)]);
    assert_eq!(changes.count, 2);
}

#[test]
fn a_device_without_one_is_not_asked() {
    let arena = arena();
    let mut queue = queue(&arena, Features::ALL, Scripted::new([]));
    for second in 0..10 {
        queue
            .service(Instant::from_nanos(second * 1_000_000_000))
            .unwrap();
    }
    assert_eq!(queue.device().asked_for_mtu, 0);
    assert_eq!(queue.limits.mtu.get(), None);
}
