//! The transmit path with a device that has scripted answers.

use super::*;
use crate::driver::{Accepted, Armed, Completed, Token, TxPacket};
use crate::limits::BURST_PACKETS_MAX;
use crate::packet::{ArenaConfig, FrameClass, VlanTag};
use device::{Scripted, Spec, to_wire};
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::ChecksumState;
use packtrain_offload::offload::{Ecn, GsoKind, LinkType};
use packtrain_offload::segment::SegmentError;
use std::panic::{AssertUnwindSafe, catch_unwind};

mod checksums;
mod device;
mod line;
mod mtu;
mod random;
mod resets;
mod rules;

const NO_DESCRIPTOR: Result<Accepted, Refused> = Err(Refused::NoDescriptor);
const COMPLETE: Result<Accepted, Refused> = Ok(Accepted::Complete);
const PENDING: Result<Accepted, Refused> = Ok(Accepted::Pending);

const fn refuse(feature: Features) -> Result<Accepted, Refused> {
    Err(Refused::Feature(feature))
}

fn arena() -> Arena {
    Arena::new(ArenaConfig::small()).unwrap()
}

fn limits() -> FitLimits {
    FitLimits {
        segments_max: 8,
        gso_segments_max: 8,
        segment_bytes_max: usize::MAX,
        memory: crate::driver::TxMemory::Any,
        contiguous_headers: false,
        min_packet_bytes: 0,
        mtu: crate::plan::Mtu::new(LinkType::Ethernet, None, None),
        headroom: 1,
        fit: Fit::Defrag,
    }
}

fn queue(arena: &Arena, features: Features, device: Scripted) -> TxQueue<Scripted> {
    queue_of(arena, features, Some(16), device)
}

/// A queue of any device, with counters of its own.
fn queue_of<D: TxDescriptors>(
    arena: &Arena,
    features: Features,
    slots: Option<usize>,
    device: D,
) -> TxQueue<D> {
    let (arena, counters, drops) = (arena.clone(), Arc::default(), Arc::default());
    TxQueue::new(device, arena, features, limits(), slots, counters, drops)
}

/// Packets of these specs, and their wire packets.
fn burst(arena: &Arena, specs: &[Spec]) -> (Burst, Vec<Vec<u8>>) {
    let mut burst = Burst::new();
    let mut wire = Vec::new();
    for (id, spec) in specs.iter().enumerate() {
        let packet = spec.build(arena, id as u32 + 1);
        wire.extend(to_wire(&packet));
        burst.push(packet).unwrap();
    }
    (burst, wire)
}

/// A queue that has sent packets of these specs to a device with this script, and their wire
/// packets.
#[track_caller]
fn send_all(
    arena: &Arena,
    features: Features,
    script: impl IntoIterator<Item = Result<Accepted, Refused>>,
    specs: &[Spec],
) -> (TxQueue<Scripted>, Vec<Vec<u8>>) {
    let mut queue = queue(arena, features, Scripted::new(script));
    let (mut burst, wire) = burst(arena, specs);
    assert_eq!(queue.transmit(&mut burst).unwrap(), Sent::All);
    (queue, wire)
}

/// Checks that `packets` wire packets were dropped, each for this reason.
#[track_caller]
fn assert_dropped(drops: &DropCounters, reason: DropReason, packets: u64) {
    let drops = drops.snapshot();
    assert_eq!((drops.get(reason), drops.total()), (packets, packets));
}

/// Sends a packet, which the device accepts.
#[track_caller]
fn send(queue: &mut TxQueue<Scripted>, packet: Packet) {
    let mut burst = Burst::new();
    burst.push(packet).unwrap();
    assert_eq!(queue.transmit(&mut burst).unwrap(), Sent::All);
}

#[track_caller]
fn assert_all_free(arena: &Arena) {
    let census = arena.census();
    assert_eq!(
        (census.small_free, census.large_free, census.lines_free),
        (
            arena.config().small_frames,
            arena.config().large_frames,
            arena.config().lines
        )
    );
}

const PLAIN: Spec = Spec::PLAIN;

/// A driver that panics at its third packet.
#[derive(Debug)]
struct Panics(u32);

impl TxDescriptors for Panics {
    fn encap(&mut self, _: &mut TxPacket<'_>, _: Token) -> Result<Accepted, Refused> {
        self.0 += 1;
        assert!(self.0 < 3, "as the test asked");
        COMPLETE
    }

    fn doorbells(&self) -> u64 {
        0
    }
}

#[test]
fn packets_that_a_driver_accepted_before_it_panicked_are_counted() {
    let arena = arena();
    let mut queue = queue_of(&arena, Features::ALL, Some(16), Panics(0));
    let (mut burst, _) = burst(&arena, &[PLAIN; 5]);
    let sent = catch_unwind(AssertUnwindSafe(|| queue.transmit(&mut burst)));
    assert!(sent.is_err());
    let counters = queue.counters().snapshot();
    assert_eq!((counters.packets, counters.wire_packets), (2, 2));
    assert_eq!(burst.len(), 3);
    drop((burst, queue));
    assert_all_free(&arena);
}

#[test]
fn packets_are_sent_in_order_with_one_flush() {
    let arena = arena();
    let (mut queue, wire) = send_all(&arena, Features::ALL, [], &[PLAIN; BURST_PACKETS_MAX]);
    assert_eq!(queue.device().wire, wire);
    assert_eq!(queue.device().flushes, 1);
    let counters = queue.counters().snapshot();
    assert_eq!((counters.packets, counters.wire_packets), (64, 64));
    assert_eq!(
        counters.bytes,
        wire.iter().map(Vec::len).sum::<usize>() as u64
    );
    assert_eq!(
        (counters.stalls, counters.csum_sw, counters.doorbells),
        (0, 0, 1)
    );
    assert!(queue.is_ready());
    assert_eq!(queue.arm(), Armed::Idle);
    assert_all_free(&arena);
}

#[test]
fn a_flush_that_fails_is_reported_and_the_packets_count_as_sent() {
    let arena = arena();
    let mut queue = queue(&arena, Features::ALL, Scripted::new([]));
    queue.device_mut().flush_error = Some(DeviceError::Removed);
    let (mut burst, wire) = burst(&arena, &[PLAIN; 2]);
    assert!(matches!(
        queue.transmit(&mut burst),
        Err(DeviceError::Removed)
    ));
    assert_eq!((queue.device().wire.len(), queue.held()), (wire.len(), 0));
    assert_eq!(queue.counters().snapshot().wire_packets, 2);
    assert_all_free(&arena);
}

#[test]
fn without_defrag_only_collapsed_packets_are_sent() {
    let arena = arena();
    let script = [COMPLETE, Err(Refused::TooManySegments)];
    let mut queue = queue(&arena, Features::ALL, Scripted::new(script));
    queue.limits.fit = Fit::Collapse;
    let pieces = |piece, payload| PLAIN.payload(payload).piece(piece);
    // Refused by the device; collapsed; too long to collapse.
    let all = [
        PLAIN,
        pieces(100, 600),
        pieces(50, 600),
        pieces(1500, 15_000),
    ];
    let (mut burst, wire) = burst(&arena, &all);
    assert_eq!(queue.transmit(&mut burst).unwrap(), Sent::All);
    assert_eq!(queue.device().wire, [wire[0].clone(), wire[2].clone()]);
    let counters = queue.counters().snapshot();
    assert_eq!((counters.collapse, counters.collapse_failed), (1, 1));
    assert_eq!((counters.defrag, counters.defrag_failed), (0, 0));
    assert_dropped(&queue.drops, DropReason::TooManySegments, 2);
    assert_all_free(&arena);
}

#[test]
fn too_many_segments_once_is_copied_and_sent() {
    let arena = arena();
    let script = [COMPLETE, Err(Refused::TooManySegments)];
    let pieces = PLAIN.payload(600).piece(100);
    let (queue, wire) = send_all(&arena, Features::ALL, script, &[PLAIN, pieces, PLAIN]);
    assert_eq!(queue.device().wire, wire);
    assert_eq!(queue.device().accepted[1].0, 1, "one segment after copying");
    let counters = queue.counters().snapshot();
    assert_eq!((counters.defrag, counters.defrag_failed), (1, 0));
    assert_eq!((counters.collapse, counters.collapse_failed), (0, 0));
    assert_eq!(counters.fit_bytes_copied, 14 + 40 + 600);
    assert_eq!(queue.drops.snapshot().total(), 0);
    assert_all_free(&arena);
}

#[test]
fn too_many_segments_twice_drops_the_packet_and_no_other() {
    let arena = arena();
    let twice = Err(Refused::TooManySegments);
    let script = [COMPLETE, twice, twice, twice];
    let (queue, wire) = send_all(&arena, Features::ALL, script, &[PLAIN; 4]);
    let wanted = [&wire[0], &wire[2], &wire[3]];
    assert_eq!(queue.device().wire.iter().collect::<Vec<_>>(), wanted);
    let counters = queue.counters().snapshot();
    assert_eq!((counters.defrag, counters.defrag_failed), (2, 1));
    assert_dropped(&queue.drops, DropReason::TooManySegments, 1);
    assert_all_free(&arena);
}

#[test]
fn without_a_descriptor_the_packet_stays_first() {
    let arena = arena();
    let device = Scripted {
        ring: Some(2),
        quiet: true,
        ..Scripted::new([PENDING; 6])
    };
    let mut queue = queue(&arena, Features::ALL, device);
    let (mut first, mut wire) = burst(&arena, &[PLAIN; 4]);
    let stalled = Sent::Stalled(Stall::NoDescriptor);
    assert_eq!(queue.transmit(&mut first).unwrap(), stalled);
    assert_eq!((queue.in_flight(), queue.held()), (2, 2));
    assert!(!queue.is_ready());
    assert_eq!(queue.device().flushes, 1, "what was accepted is flushed");
    let later = PLAIN.build(&arena, 99);
    wire.extend(to_wire(&later));
    first.push(later).unwrap();
    assert_eq!(queue.transmit(&mut first).unwrap(), stalled);
    let counters = queue.counters().snapshot();
    assert_eq!(
        (counters.no_desc, counters.stalls, counters.stall_no_desc),
        (2, 1, 1)
    );
    queue.device_mut().quiet = false;
    while queue.transmit(&mut first).unwrap() != Sent::All {}
    assert_eq!(queue.device().wire, wire, "in order, the late one last");
    assert_eq!(queue.counters().snapshot().restarts, 1);
    queue.reclaim(Instant::default());
    assert_eq!(
        (
            queue.in_flight(),
            queue.counters().snapshot().bad_completions
        ),
        (0, 0)
    );
    assert_all_free(&arena);
}

#[test]
fn more_packets_in_flight_than_slots_stall_like_a_full_ring() {
    let arena = arena();
    let device = Scripted {
        quiet: true,
        backwards: true,
        ..Scripted::new([PENDING; 40])
    };
    let mut queue = queue(&arena, Features::ALL, device);
    let (mut burst, wire) = burst(&arena, &[PLAIN; 40]);
    let stalled = Sent::Stalled(Stall::NoDescriptor);
    assert_eq!(queue.transmit(&mut burst).unwrap(), stalled);
    assert_eq!((queue.in_flight(), queue.held()), (16, 24));
    queue.device_mut().quiet = false;
    while queue.transmit(&mut burst).unwrap() != Sent::All {}
    assert_eq!(
        queue.device().wire,
        wire,
        "the order of completions does not matter"
    );
    assert!(queue.reclaim(Instant::default()) > 0);
    assert_eq!(queue.in_flight(), 0);
    assert_all_free(&arena);
}

#[test]
fn wrong_and_repeated_completions_are_counted_and_do_nothing() {
    let arena = arena();
    let mut queue = queue(&arena, Features::ALL, Scripted::new([PENDING; 2]));
    let (mut burst, _) = burst(&arena, &[PLAIN; 2]);
    queue.transmit(&mut burst).unwrap();
    assert_eq!(queue.in_flight(), 2);
    let again = queue.device().in_flight[0];
    queue.device_mut().extra = vec![again, again, Token(15), Token(16), Token(u32::MAX)];
    queue.device_mut().quiet = true;
    assert_eq!(queue.reclaim(Instant::default()), 1);
    assert_eq!(queue.counters().snapshot().bad_completions, 4);
    assert_eq!(queue.in_flight(), 1);
    queue.device_mut().quiet = false;
    queue.device_mut().in_flight.pop_front();
    assert_eq!(
        (queue.reclaim(Instant::default()), queue.in_flight()),
        (1, 0)
    );
    assert_all_free(&arena);
}

#[test]
fn a_bad_packet_loses_only_itself() {
    let arena = arena();
    let script = [
        Err(Refused::LinkDown),
        COMPLETE,
        Err(Refused::Bad(DropReason::DeviceRefused)),
        // TSO6 for a packet that does not use it: no reason to remove the feature.
        refuse(Features::TSO6),
    ];
    let (queue, wire) = send_all(&arena, Features::ALL, script, &[PLAIN; 5]);
    assert_eq!(queue.device().wire, [wire[1].clone(), wire[4].clone()]);
    let drops = queue.drops.snapshot();
    assert_eq!(drops.get(DropReason::LinkDown), 1);
    assert_eq!(drops.get(DropReason::DeviceRefused), 2);
    assert_eq!(drops.total(), 3);
    assert_eq!(queue.features(), Features::ALL);
    assert_eq!(queue.counters().snapshot().refused_features, 0);
    assert_all_free(&arena);
}

#[test]
fn a_removed_device_is_an_error_and_waiting_packets_can_be_abandoned() {
    let arena = arena();
    let script = [COMPLETE, Err(Refused::Removed)];
    let mut queue = queue(&arena, Features::ALL, Scripted::new(script));
    let (mut burst, _) = burst(&arena, &[PLAIN; 3]);
    assert!(matches!(
        queue.transmit(&mut burst),
        Err(DeviceError::Removed)
    ));
    assert_eq!(queue.held(), 2);
    queue.abandon(DropReason::DeviceReset);
    assert_eq!((queue.held(), queue.is_ready()), (0, true));
    assert_eq!(queue.drops.snapshot().get(DropReason::DeviceReset), 2);
    assert_all_free(&arena);
}

#[test]
fn a_refused_gso_packet_is_segmented_between_its_neighbours() {
    let arena = arena();
    let gso = Spec::gso(GsoKind::TcpV4, 2921, 1460);
    let script = [COMPLETE, refuse(Features::TSO4)];
    let (queue, wire) = send_all(&arena, Features::ALL, script, &[PLAIN, gso, PLAIN, gso]);
    assert_eq!(queue.device().wire, wire);
    assert_eq!(queue.features(), Features::ALL.without(Features::TSO4));
    assert_eq!(queue.refused(), Features::TSO4);
    let counters = queue.counters().snapshot();
    assert_eq!(
        counters.refused_features, 1,
        "the second one is not even tried"
    );
    assert_eq!(queue.device().offered, 1 + 1 + 3 + 1 + 3);
    assert_eq!(
        (counters.gso_sw_packets, counters.gso_sw_wire_packets),
        (2, 6)
    );
    assert_eq!(
        (counters.gso_packets, counters.needs_csum, counters.csum_sw),
        (0, 6, 0)
    );
    assert_eq!((counters.expanded, counters.absorbed), (0, 0));
    // 2921 bytes in three packets of 54 header bytes each.
    let header_bytes = 54;
    assert_eq!(counters.bytes, 2 * (2921 + 3 * header_bytes) + 2 * 154);
    assert_all_free(&arena);
}

#[test]
fn a_feature_refused_on_a_packet_that_software_cannot_send_either_is_kept() {
    let arena = arena();
    let gso = Spec::gso(GsoKind::TcpV4, 2921, 1460);
    let device = Scripted::new([refuse(Features::TSO4)]);
    let mut queue = queue(&arena, Features::ALL, device);
    let (mut packets, wire) = burst(&arena, &[gso, PLAIN]);
    let mut all = Burst::new();
    let mut cut_off = packets.pop().unwrap();
    cut_off.truncate(30);
    all.push(cut_off).unwrap();
    while let Some(packet) = packets.pop() {
        all.push(packet).unwrap();
    }
    assert_eq!(queue.transmit(&mut all).unwrap(), Sent::All);
    assert_eq!(queue.device().wire, wire[3..]);
    assert_eq!(queue.features(), Features::ALL);
    let counters = queue.counters().snapshot();
    assert_eq!((counters.refused_features, counters.gso_sw_packets), (0, 0));
    assert_eq!(queue.drops.snapshot().total(), 3);
    assert_all_free(&arena);
}

#[test]
fn each_feature_is_removed_once_and_all_packets_are_sent() {
    let arena = arena();
    let every = [
        Spec::gso(GsoKind::TcpV4, 3000, 1000).ecn().vlan(),
        Spec::gso(GsoKind::TcpV6, 3000, 1000).vlan(),
        Spec::gso(GsoKind::UdpV4, 3000, 1000),
        Spec::gso(GsoKind::UdpV6, 3000, 1000),
        PLAIN.partial().vlan(),
        PLAIN.partial().kind(GsoKind::UdpV6),
        PLAIN,
    ];
    for (feature, name) in Features::NAMED {
        if feature == Features::LARGE_RECEIVE {
            continue;
        }
        let device = Scripted {
            without: feature,
            ..Scripted::new([])
        };
        let mut queue = queue(&arena, Features::ALL, device);
        let (mut burst, wire) = burst(&arena, &every);
        assert_eq!(queue.transmit(&mut burst).unwrap(), Sent::All);
        assert_eq!(queue.device().wire, wire, "without {name}");
        assert_eq!(queue.counters().snapshot().refused_features, 1, "{name}");
        assert_eq!(queue.refused(), feature);
        assert_eq!(queue.drops.snapshot().total(), 0);
    }
    assert_all_free(&arena);
}

/// No device header can request CWR on every segment: the peer would clear it.
#[test]
fn accurate_ecn_is_segmented_in_software_for_every_device() {
    const FLAGS: usize = 14 + 20 + 13;
    const CWR: u8 = 0x80;
    let arena = arena();
    let mut queue = queue(&arena, Features::ALL, Scripted::new([]));
    let spec = Spec::gso(GsoKind::TcpV4, 3000, 1000).ecn();
    let mut packet = spec.build(&arena, 1);
    let gso = packet.meta().gso.unwrap();
    packet.meta_mut().gso = Some(gso.with_ecn(Ecn::Accurate));
    packet.headers_mut(FLAGS + 1).unwrap()[FLAGS] |= CWR;
    send(&mut queue, packet);
    let device = queue.device();
    let cwr: Vec<_> = device.wire.iter().map(|wire| wire[FLAGS] & CWR).collect();
    assert_eq!(cwr, [CWR; 3]);
    assert!(device.accepted.iter().all(|(_, meta)| meta.gso.is_none()));
    let counters = queue.counters().snapshot();
    assert_eq!((counters.refused_features, counters.gso_sw_packets), (0, 1));
    assert_eq!(queue.drops.snapshot().total(), 0);
    assert_all_free(&arena);
}

/// Nor that the identification stays. It has no meaning with DF (RFC 6864): a device may count it
/// up, and software keeps it.
#[test]
fn a_fixed_identification_needs_no_software() {
    const IP: usize = 14;
    for (tx, in_software) in [(Features::ALL, 0), (Features::CSUM, 1)] {
        let arena = arena();
        let mut queue = queue(&arena, tx, Scripted::new([]));
        let mut packet = Spec::gso(GsoKind::TcpV4, 3000, 1000).build(&arena, 1);
        let gso = packet.meta().gso.unwrap();
        packet.meta_mut().gso = Some(gso.with_fixed_id());
        packet.headers_mut(IP + 20).unwrap()[IP + 6] |= 0x40;
        send(&mut queue, packet);
        if in_software > 0 {
            let wire = &queue.device().wire;
            let ids: Vec<_> = wire.iter().map(|wire| &wire[IP + 4..IP + 6]).collect();
            assert_eq!(ids, [ids[0]; 3]);
        }
        let counters = queue.counters().snapshot();
        assert_eq!(
            (counters.refused_features, counters.gso_sw_packets),
            (0, in_software)
        );
        assert_eq!(queue.drops.snapshot().total(), 0);
        assert_all_free(&arena);
    }
}

/// Linux sends up to 128 datagrams in one packet; before 6.9 it accepted 64.
#[test]
fn more_datagrams_than_every_kernel_accepts_are_segmented_in_software() {
    let arena = arena();
    let of = |datagrams: usize| Spec::gso(GsoKind::UdpV4, 100 * datagrams, 100);
    let (queue, wire) = send_all(&arena, Features::ALL, [], &[of(64), of(65)]);
    assert_eq!(queue.device().wire, wire);
    let accepted = &queue.device().accepted;
    assert_eq!(accepted.len(), 1 + 65);
    assert!(accepted[0].1.gso.is_some());
    let counters = queue.counters().snapshot();
    assert_eq!((counters.refused_features, counters.gso_sw_packets), (0, 1));
    assert_all_free(&arena);
}

#[test]
fn a_device_that_refuses_everything_one_by_one_gets_plain_packets() {
    let arena = arena();
    let device = Scripted {
        without: Features::ALL,
        ..Scripted::new([])
    };
    let mut queue = queue(&arena, Features::ALL, device);
    let gso = Spec::gso(GsoKind::TcpV4, 3000, 1000).vlan();
    let (mut burst, wire) = burst(&arena, &[gso, PLAIN, gso]);
    assert_eq!(queue.transmit(&mut burst).unwrap(), Sent::All);
    assert_eq!(queue.device().wire, wire);
    assert!(queue.device().accepted.iter().all(|(_, meta)| {
        meta.gso.is_none() && meta.vlan.is_none() && meta.checksum == ChecksumState::Unnecessary
            || meta.checksum == ChecksumState::None
    }));
    assert_all_free(&arena);
}

#[test]
fn features_refused_for_a_segment_that_software_made() {
    let arena = arena();
    let gso = Spec::gso(GsoKind::TcpV4, 5000, 1000).vlan();
    for feature in [
        Features::VLAN,
        Features::CSUM4,
        Features::VLAN | Features::CSUM,
    ] {
        for index in 0..5 {
            // TSO4 is refused first, then the feature on one of the segments.
            let script = std::iter::once(refuse(Features::TSO4))
                .chain((0..index).map(|_| COMPLETE))
                .chain([refuse(feature)]);
            let (queue, wire) = send_all(&arena, Features::ALL, script, &[gso, gso, PLAIN]);
            assert_eq!(queue.device().wire, wire, "{feature:?} at segment {index}");
            assert_eq!(queue.counters().snapshot().refused_features, 2);
            assert_eq!(queue.drops.snapshot().total(), 0);
        }
        // The same without TSO4 from the start: then the packet waits in `waiting`, partly
        // segmented.
        for index in 0..5 {
            let script = (0..index).map(|_| COMPLETE).chain([refuse(feature)]);
            let features = Features::ALL.without(Features::TSO4);
            let (queue, wire) = send_all(&arena, features, script, &[gso, gso, PLAIN]);
            assert_eq!(queue.device().wire, wire, "{feature:?} at segment {index}");
        }
    }
    assert_all_free(&arena);
}

#[test]
fn a_device_that_refuses_at_any_index_loses_nothing() {
    let arena = arena();
    let specs = [
        PLAIN,
        Spec::gso(GsoKind::TcpV4, 5000, 1000),
        PLAIN.payload(700).piece(50),
        Spec::gso(GsoKind::UdpV6, 2500, 1000),
    ];
    for features in [Features::ALL, Features::CSUM, Features::NONE] {
        for index in 0..10 {
            for refusal in [Refused::NoDescriptor, Refused::Busy, Refused::NoMemory] {
                let script = (0..index).map(|_| COMPLETE).chain([Err(refusal); 3]);
                let mut queue = queue(&arena, features, Scripted::new(script));
                let (mut burst, wire) = burst(&arena, &specs);
                let mut calls = 0;
                while queue.transmit(&mut burst).unwrap() != Sent::All {
                    // Without further events, the next attempt is enough.
                    calls += 1;
                    assert!(calls <= 3);
                    let held = queue.held() + burst.wire_packets();
                    assert_eq!(
                        held + queue.counters().wire_packets.get(),
                        wire.len() as u64
                    );
                }
                assert_eq!(queue.device().wire, wire);
                let counters = queue.counters().snapshot();
                assert_eq!(counters.stalls, counters.restarts);
                assert_eq!(counters.stalls, u64::from(calls > 0));
                // The balance holds also if the queue is abandoned halfway.
            }
            let script = (0..index).map(|_| COMPLETE).chain([NO_DESCRIPTOR; 99]);
            let mut queue = queue(&arena, features, Scripted::new(script));
            let (mut burst, wire) = burst(&arena, &specs);
            queue.transmit(&mut burst).unwrap();
            queue.abandon(DropReason::Shutdown);
            let sent = queue.counters().wire_packets.get();
            assert_eq!(sent + queue.drops.snapshot().total(), wire.len() as u64);
            assert_eq!(queue.device().wire, wire[..sent as usize]);
        }
    }
    assert_all_free(&arena);
}

#[test]
fn segmentation_counts_packets_that_it_adds_or_removes() {
    let arena = arena();
    for (surplus, expanded, absorbed) in [(0, 0, 0), (-2, 2, 0), (7, 0, 7), (-9, 4, 0)] {
        let gso = Spec::gso(GsoKind::TcpV6, 5000, 1000).surplus(surplus);
        let device = Scripted::new([COMPLETE, NO_DESCRIPTOR]);
        let mut queue = queue(&arena, Features::NONE, device);
        let (mut burst, wire) = burst(&arena, &[gso]);
        let accounted = burst.wire_packets();
        let balance = |queue: &TxQueue<Scripted>| {
            let counters = queue.counters().snapshot();
            assert_eq!(
                accounted + counters.expanded,
                counters.wire_packets + counters.absorbed + queue.held()
            );
        };
        assert_eq!(
            queue.transmit(&mut burst).unwrap(),
            Sent::Stalled(Stall::NoDescriptor)
        );
        balance(&queue);
        assert_eq!(queue.transmit(&mut burst).unwrap(), Sent::All);
        balance(&queue);
        let counters = queue.counters().snapshot();
        assert_eq!((counters.expanded, counters.absorbed), (expanded, absorbed));
        assert_eq!((counters.wire_packets, queue.device().wire.len()), (5, 5));
        assert_eq!(queue.device().wire, wire);
    }
    assert_all_free(&arena);
}

#[test]
fn segments_without_a_free_frame_are_counted_and_the_others_are_sent() {
    let arena = Arena::new(ArenaConfig {
        small_frames: 8,
        large_frames: 4,
        lines: 64,
    })
    .unwrap();
    let gso = Spec::gso(GsoKind::TcpV4, 10_000, 1000).piece(60_000);
    let mut queue = queue(&arena, Features::NONE, Scripted::new([]));
    let (mut first, wire) = burst(&arena, &[gso, PLAIN]);
    // The packet has one small frame for its headers, the plain one two: five are left for ten
    // segments, since all are prepared before the first is offered.
    assert_eq!(arena.census().small_free, 5);
    assert_eq!(queue.transmit(&mut first).unwrap(), Sent::All);
    assert_eq!(queue.drops.snapshot().get(DropReason::NoBuffer), 5);
    assert_eq!(queue.drops.snapshot().total(), 5);
    let sent = [&wire[..5], &wire[10..]].concat();
    assert_eq!(queue.device().wire, sent);
    assert_all_free(&arena);
    let (mut again, wire) = burst(&arena, &[PLAIN; 2]);
    queue.transmit(&mut again).unwrap();
    assert!(queue.device().wire.ends_with(&wire), "and it recovers");
    assert_all_free(&arena);
}

#[test]
fn packets_that_cannot_be_segmented_or_summed_have_a_reason_each() {
    let arena = arena();
    let mut queue = queue(&arena, Features::NONE, Scripted::new([]));
    let gso = Spec::gso(GsoKind::TcpV4, 3000, 1000);
    let mut burst = Burst::new();
    let mut no_layout = gso.build(&arena, 1);
    no_layout.meta_mut().layout = None;
    let mut wrong_kind = gso.build(&arena, 2);
    wrong_kind.meta_mut().gso.as_mut().unwrap().kind = GsoKind::UdpV4;
    let mut outside = PLAIN.partial().build(&arena, 3);
    outside.meta_mut().checksum = ChecksumState::Partial {
        start: u16::MAX,
        offset: u16::MAX,
    };
    let mut tagged = PLAIN.partial().vlan().build(&arena, 4);
    tagged.meta_mut().checksum = ChecksumState::Partial {
        start: u16::MAX - 3,
        offset: 0,
    };
    let mut runt = arena.packet_from(&[0; 13]).unwrap();
    runt.meta_mut().vlan = PLAIN.vlan().build(&arena, 5).meta().vlan;
    let mut no_link = PLAIN.vlan().build(&arena, 6);
    no_link.meta_mut().link = LinkType::RawIp;
    for packet in [no_layout, wrong_kind, outside, tagged, runt, no_link] {
        burst.push(packet).unwrap();
    }
    assert_eq!(queue.transmit(&mut burst).unwrap(), Sent::All);
    assert_eq!(queue.device().offered, 0);
    let drops: Vec<_> = queue.drops.snapshot().nonzero().collect();
    let kind = SegmentError::Kind;
    assert_eq!(
        drops,
        [
            (DropReason::Truncated, 1),
            // The packet without a layout counts as three.
            (DropReason::BadChecksumPlace, 5),
            (DropReason::LinkType, 1),
            (DropReason::Segment(kind), 3),
        ]
    );
    assert_all_free(&arena);
}

#[test]
fn headers_in_several_segments_are_handled_as_in_one() {
    let arena = arena();
    let specs = [
        Spec::gso(GsoKind::TcpV4, 3000, 1000).vlan(),
        PLAIN.vlan().partial(),
    ];
    for spec in specs {
        let whole = spec.build(&arena, 7);
        let wire = to_wire(&whole);
        for split in 1..74 {
            for share in [false, true] {
                let mut packet = arena.empty_packet().unwrap();
                packet.append_shared(&whole, 0..split).unwrap();
                packet.append_shared(&whole, split..whole.bytes()).unwrap();
                packet.copy_meta(&whole);
                let keep = share.then(|| packet.try_clone().unwrap());
                let mut queue = queue(&arena, Features::NONE, Scripted::new([]));
                send(&mut queue, packet);
                assert_eq!(queue.device().wire, wire, "split at {split}");
                drop(keep);
            }
        }
        assert_eq!(to_wire(&whole), wire, "the shared bytes are untouched");
    }
    assert_all_free(&arena);
}

#[test]
fn a_tag_is_inserted_without_headroom() {
    let arena = arena();
    let mut packet = PLAIN.vlan().partial().build(&arena, 1);
    let wire = to_wire(&packet);
    // Without headroom in its frame.
    let bytes: Vec<u8> = packet.segments().flatten().copied().collect();
    let mut full = arena.packet(FrameClass::Small).unwrap();
    let headroom = full.headroom();
    full.prepend(headroom)
        .unwrap()
        .copy_from_slice(&[bytes.as_slice(), &[0; 256]].concat()[..headroom]);
    full.truncate(bytes.len());
    full.copy_meta(&packet);
    std::mem::swap(&mut packet, &mut full);
    assert_eq!((packet.headroom(), packet.bytes()), (0, bytes.len()));
    drop(full);
    let mut queue = queue(&arena, Features::CSUM, Scripted::new([]));
    send(&mut queue, packet);
    assert_eq!(queue.device().wire, wire);
    assert_all_free(&arena);
}

/// A layout has at most two tags: a packet that gets a third one is segmented first.
#[test]
fn a_gso_packet_with_a_third_tag_is_segmented_before_it_is_tagged() {
    let arena = arena();
    let packet = || {
        let plain = Spec::gso(GsoKind::TcpV4, 3000, 1000).build(&arena, 1);
        let bytes: Vec<u8> = plain.segments().flatten().copied().collect();
        let tags = [0x88, 0xa8, 0, 7, 0x81, 0, 0, 8];
        let tagged = [&bytes[..12], &tags, &bytes[12..]].concat();
        let mut packet = arena.packet_from(&tagged).unwrap();
        packet.copy_meta(&plain);
        let layout = Layout::parse(LinkType::Ethernet, &tagged, tagged.len() as u32).unwrap();
        let meta = packet.meta_mut();
        meta.layout = Some(layout);
        meta.checksum = ChecksumState::Partial {
            start: layout.transport,
            offset: 16,
        };
        meta.vlan = Some(VlanTag {
            protocol: 0x88a8,
            control: 9,
        });
        packet
    };
    let wire = |features: Features| {
        let mut device = Scripted::new([]);
        device.segments_max = 64;
        let mut queue = queue(&arena, features, device);
        send(&mut queue, packet());
        assert_eq!(queue.drops.snapshot().total(), 0, "{features:?}");
        queue.device().wire.clone()
    };
    let expected = wire(Features::CSUM.union(Features::VLAN));
    assert_eq!(expected.len(), 3);
    for features in [
        Features::NONE,
        Features::CSUM,
        Features::CSUM4.union(Features::TSO4),
        Features::ALL.without(Features::VLAN),
    ] {
        assert_eq!(wire(features), expected, "{features:?}");
    }
    assert_all_free(&arena);
}

/// The kernel counts from the start of its buffer. A kernel with more headroom refuses a start that
/// another one accepted. The offload stays for the next packet.
#[test]
fn a_checksum_start_beyond_the_limit_drops_its_packet_and_keeps_the_offload() {
    let arena = Arena::new(ArenaConfig::default()).unwrap();
    for (start, kept) in [
        (64_500, false),
        (64_511, false),
        (64_512, true),
        (65_480, true),
    ] {
        let mut packet = arena.packet_from(&vec![0; 65_520]).unwrap();
        packet.meta_mut().checksum = ChecksumState::Partial { start, offset: 6 };
        let device = Scripted::new([refuse(Features::CSUM)]);
        let mut queue = queue(&arena, Features::ALL, device);
        send(&mut queue, packet);
        assert_eq!(queue.features() == Features::ALL, kept, "{start}");
    }
}

/// An application may write any layout. The reason is that of the headers, in however many segments
/// the packet is, and the offload stays for the next packet.
#[test]
fn headers_that_no_packet_has_drop_theirs_and_keep_the_offload() {
    let arena = arena();
    let reason = DropReason::Segment(SegmentError::Headers);
    for (payload, piece) in [(3000, 600), (2500, 600), (u16::MAX, 600), (u16::MAX, 4000)] {
        for (features, refusal) in [
            (Features::NONE, None),
            (Features::ALL, Some(refuse(Features::TSO4))),
        ] {
            let spec = Spec::gso(GsoKind::TcpV4, 3000, 1000).piece(piece);
            let mut packet = spec.build(&arena, 1);
            packet.meta_mut().layout.as_mut().unwrap().payload = payload;
            let mut queue = queue(&arena, features, Scripted::new(refusal));
            send(&mut queue, packet);
            assert_eq!(queue.drops.snapshot().get(reason), 3, "{payload} {piece}");
            assert_eq!(queue.features(), features.consistent());
        }
    }
    assert_all_free(&arena);
}

/// No header is that long, but a driver may report such a start. The result is the same for packets
/// in several segments and in one.
#[test]
fn a_checksum_far_from_the_start_is_completed_in_several_segments_as_in_one() {
    let arena = arena();
    let bytes: Vec<u8> = (0..9000_u32).map(|n| ((n * 7) >> 3) as u8).collect();
    let small = FrameClass::Small.data_bytes();
    let mut wires = Vec::new();
    for class in [FrameClass::Large, FrameClass::Small] {
        let mut packet = arena.empty_packet().unwrap();
        packet.append_copy(class, &bytes).unwrap();
        // Also across the end of a frame.
        for start in [3000, (3 * small - 7) as u16] {
            let mut packet = packet.try_clone().unwrap();
            packet.meta_mut().checksum = ChecksumState::Partial { start, offset: 6 };
            let mut device = Scripted::new([]);
            device.segments_max = 64;
            let mut queue = queue(&arena, Features::NONE, device);
            send(&mut queue, packet);
            assert_eq!(queue.drops.snapshot().total(), 0, "{class:?} {start}");
            let at = usize::from(start) + 6;
            let wire = queue.device().wire[0].clone();
            assert_ne!(wire[at..at + 2], bytes[at..at + 2]);
            assert_eq!(
                (&wire[..at], &wire[at + 2..]),
                (&bytes[..at], &bytes[at + 2..])
            );
            wires.push(wire);
        }
        assert_eq!(
            packet.segments().flatten().copied().collect::<Vec<_>>(),
            bytes
        );
    }
    assert_eq!(wires[..2], wires[2..]);
    assert_all_free(&arena);
}
