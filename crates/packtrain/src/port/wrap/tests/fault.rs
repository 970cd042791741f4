//! Packets that are lost, repeated, damaged, delayed and overtaken.

use super::*;
use crate::limits::{BURST_PACKETS_MAX, RX_HELD_LARGE_MAX};
use crate::packet::Ingress;
use crate::port::null::{Null, NullConfig, Source};
use crate::queue::RxQueue;

/// The result of a run of `count` packets: the packets of each poll, and the losses.
fn outcome(options: FaultOptions, count: usize) -> (Vec<Vec<Vec<u8>>>, usize, Faults) {
    let mut rig = faults(options);
    rig.give(count);
    let mut polls = Vec::new();
    for now in 1..200 {
        let (packets, _) = rig.poll(now * 1000);
        polls.push(packets.iter().map(bytes_of).collect());
    }
    (polls, rig.bad.0.len(), rig.driver.counters().get())
}

fn everything(seed: u64) -> FaultOptions {
    FaultOptions {
        seed,
        drop: 0.1,
        duplicate: 0.1,
        corrupt: 0.1,
        delay: 0.1,
        delay_time: Duration::from_micros(20),
        reorder: 0.1,
        reorder_time: Duration::from_micros(30),
        ..FaultOptions::default()
    }
}

#[test]
fn the_seed_decides_and_the_chances_are_kept() {
    let first = outcome(everything(7), 200);
    assert_eq!(first, outcome(everything(7), 200));
    assert_ne!(first, outcome(everything(8), 200));
    let mut rig = faults(everything(1));
    let mut bad = 0;
    for _ in 0..250 {
        rig.give(40);
        rig.poll(1_000_000).1.unwrap();
        bad = rig.bad.0.len();
    }
    let faults = rig.driver.counters().get();
    assert_eq!(faults.dropped, bad as u64);
    for (count, of) in [
        (faults.dropped, 10_000),
        (faults.duplicated, 9000),
        (faults.corrupted, 9000),
        (faults.delayed, 9000),
        (faults.reordered, 9000),
    ] {
        // A tenth, within five standard deviations (of at most 30).
        assert!(
            (of / 10 - 150..=of / 10 + 150).contains(&count),
            "{faults:?}"
        );
    }
}

#[test]
fn a_lost_packet_is_lost_with_all_it_stands_for() {
    let mut rig = faults(FaultOptions {
        drop: 1.0,
        ..FaultOptions::default()
    });
    let (packet, info) = large(&rig.arena);
    rig.fake.give(packet, info);
    assert!(rig.poll(1).0.is_empty());
    assert_eq!(rig.bad.0, [(DropReason::FaultInjected, 4)]);
    assert_eq!(rig.arena.census().lines_used, 0);
}

#[test]
fn a_repeated_packet_comes_twice() {
    let mut rig = faults(FaultOptions {
        duplicate: 1.0,
        ..FaultOptions::default()
    });
    rig.give(40);
    let (mut packets, _) = rig.poll(1);
    assert_eq!(
        (packets.len(), rig.rx.held(), rig.rx.arm()),
        (64, 16, Armed::WorkPending)
    );
    // They are held already, and the device is not polled.
    assert_eq!(rig.rx.arm_for(1000), Some(Armed::WorkPending));
    packets.extend(rig.poll(2).0);
    assert_eq!(seeds(&packets), (0..80).map(|i| i / 2).collect::<Vec<_>>());
    assert_eq!((rig.rx.held(), rig.rx.arm()), (0, Armed::Idle));
}

fn different_bits(a: &[u8], b: &[u8]) -> u32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum()
}

#[test]
fn a_damaged_packet_has_one_wrong_bit_and_a_checksum_that_tells() {
    for seed in 0..50 {
        let mut rig = faults(FaultOptions {
            seed,
            corrupt: 1.0,
            ..FaultOptions::default()
        });
        let (unfinished, checksum) = partial(udp(300, 1), 6);
        let finished = udp(300, 1);
        let info = RxInfo {
            checksum,
            ..RxInfo::default()
        };
        rig.fake
            .give(rig.arena.packet_from(&unfinished).unwrap(), info);
        let verified = RxInfo {
            checksum: ChecksumState::Unnecessary,
            ..RxInfo::default()
        };
        rig.fake
            .give(rig.arena.packet_from(&finished).unwrap(), verified);
        // Another reference to the same bytes is not changed.
        let other = rig.arena.packet_from(&finished).unwrap();
        rig.fake.give(other.try_clone().unwrap(), verified);
        let (packets, _) = rig.poll(1);
        assert_eq!(packets.len(), 3);
        for packet in &packets {
            let bytes = bytes_of(packet);
            assert_eq!(different_bits(&bytes, &finished), 1);
            assert!(
                different_bits(&bytes[..ETHERNET_IPV4 + 8], &finished[..ETHERNET_IPV4 + 8]) == 0
            );
            assert!(!checksum_is_right(&bytes));
            assert_eq!(packet.meta().checksum, ChecksumState::None);
        }
        assert_eq!(bytes_of(&other), finished);
    }
}

#[test]
fn of_a_damaged_large_packet_one_wire_packet_is_damaged() {
    for seed in 0..20 {
        let mut rig = faults(FaultOptions {
            seed,
            corrupt: 1.0,
            ..FaultOptions::default()
        });
        let (packet, mut info) = large(&rig.arena);
        info.wire_packets = 6;
        rig.fake.give(packet, info);
        let (packets, _) = rig.poll(1);
        let right = packets
            .iter()
            .filter(|p| checksum_is_right(&bytes_of(p)))
            .count();
        assert_eq!((packets.len(), right), (4, 3));
        let accounted: u16 = packets.iter().map(|p| p.meta().wire_packets).sum();
        assert_eq!(accounted, 6);
        let payload: Vec<_> = packets
            .iter()
            .flat_map(|p| bytes_of(p)[54..].to_vec())
            .collect();
        assert_eq!(different_bits(&payload, &tcp(4000)[54..]), 1);
        assert!(packets.iter().all(|p| p.meta().gso.is_none()));
    }
}

#[test]
fn packets_that_contradict_themselves_are_not_damaged() {
    let mut rig = faults(FaultOptions {
        corrupt: 1.0,
        ..FaultOptions::default()
    });
    let (_, info) = large(&rig.arena);
    let outside = RxInfo {
        checksum: ChecksumState::Partial {
            start: 60_000,
            offset: 60_000,
        },
        ..RxInfo::default()
    };
    for info in [info, outside] {
        rig.fake
            .give(rig.arena.packet_from(&udp(20, 0)).unwrap(), info);
    }
    rig.fake
        .give(rig.arena.empty_packet().unwrap(), RxInfo::default());
    let (packets, _) = rig.poll(1);
    assert_eq!(packets.len(), 3);
    assert_eq!(bytes_of(&packets[0]), udp(20, 0));
    assert_eq!(rig.driver.counters().get().corrupted, 0);
}

#[test]
fn a_late_packet_waits_for_its_time_and_the_end_waits_for_it() {
    let mut rig = faults(FaultOptions {
        delay: 1.0,
        delay_time: Duration::from_nanos(500),
        ..FaultOptions::default()
    });
    rig.give(2);
    lock(&rig.fake.0).ends = true;
    let (packets, result) = rig.poll(1000);
    assert!(packets.is_empty() && result.is_ok());
    assert_eq!((rig.rx.held(), rig.rx.arm()), (2, Armed::Idle));
    assert_eq!(rig.rx.next_at(), Some(Instant::from_nanos(1500)));
    assert!(rig.poll(1499).0.is_empty());
    let (packets, result) = rig.poll(1500);
    assert_eq!(seeds(&packets), [0, 1]);
    assert!(matches!(result, Err(DeviceError::Finished)));
    assert_eq!((rig.rx.held(), rig.rx.next_at()), (0, None));
}

#[test]
fn a_packet_is_overtaken_by_as_many_as_asked_or_its_time_comes() {
    // A seed with which only the second of six packets is held back.
    let options = |seed| FaultOptions {
        seed,
        reorder: 0.2,
        reorder_by: 3,
        reorder_time: Duration::from_nanos(100),
        ..FaultOptions::default()
    };
    let seed = (0..10_000).find(|&seed| {
        let mut dice = faults(options(seed));
        dice.give(6);
        let (packets, _) = dice.poll(1);
        seeds(&packets) == [0, 2, 3, 4, 1, 5]
    });
    let seed = seed.expect("a seed for one reordered packet");
    let mut rig = faults(options(seed));
    rig.give(3);
    assert_eq!(seeds(&rig.poll(1).0), [0, 2]);
    assert_eq!(rig.rx.next_at(), Some(Instant::from_nanos(101)));
    assert!(rig.poll(100).0.is_empty());
    assert_eq!(seeds(&rig.poll(101).0), [1]);

    let mut rig = faults(options(seed));
    rig.give(3);
    lock(&rig.fake.0).ends = true;
    // No more packets arrive.
    assert_eq!(seeds(&rig.poll(1).0), [0, 2, 1]);
}

#[test]
fn a_full_line_leaves_packets_with_the_device() {
    let mut rig = faults(FaultOptions {
        delay: 1.0,
        delay_time: Duration::from_nanos(500),
        held_packets_max: 10,
        ..FaultOptions::default()
    });
    rig.give(25);
    rig.poll(1).1.unwrap();
    assert_eq!((rig.rx.held(), rig.rx.arm()), (10, Armed::Idle));
    assert_eq!(rig.rx.arm_for(1), Some(Armed::Idle));
    assert_eq!(lock(&rig.fake.0).input.len(), 15);
    let polls = lock(&rig.fake.0).polls;
    rig.poll(2).1.unwrap();
    assert_eq!(lock(&rig.fake.0).polls, polls, "a full line does not poll");
    assert_eq!(rig.poll(501).0.len(), 10);
    assert_eq!(rig.rx.arm(), Armed::WorkPending);
    assert_eq!(rig.rx.arm_for(15), Some(Armed::WorkPending));
    assert_eq!(rig.rx.arm_for(16), Some(Armed::Idle));
}

/// Polls a source that always has packets, behind a line of 10 ms and 1024 packets: each 10 µs for
/// a second, or when its queue asks for it. Returns the packets, and the polls without effect after
/// which the worker would not have slept.
fn through_a_line(small_frames: u32, delay: f64) -> (u64, usize) {
    let config = ArenaConfig {
        small_frames,
        large_frames: 0,
        lines: 2 * small_frames,
    };
    let arena = Arena::new(config).unwrap();
    let source = NullConfig {
        source: Some(Source::default()),
        ..NullConfig::default()
    };
    let options = FaultOptions {
        delay,
        delay_time: Duration::from_millis(10),
        ..FaultOptions::default()
    };
    let mut port = Fault::new(Null::new(source), options);
    assert_eq!(port.capabilities().rx_held_max, 1024);
    let (rx, _tx) = port.attach(&Attach::default(), &arena).unwrap().remove(0);
    let (counters, drops) = (Arc::default(), Arc::default());
    let (link, ingress) = (port.capabilities().link, Ingress::default());
    let mut queue = RxQueue::new(rx, arena.clone(), link, ingress, counters, drops);
    let mut in_vain = 0;
    for step in 1..=100_000_u64 {
        let now = Instant::from_nanos(step * 10_000);
        let (mut burst, held) = (Burst::new(), queue.device_mut().held());
        queue.poll(now, &mut burst, BURST_PACKETS_MAX).unwrap();
        assert!(queue.device_mut().held() <= 1024);
        let idle = burst.is_empty() && queue.device_mut().held() == held;
        if idle && queue.arm() == Armed::WorkPending {
            in_vain += 1;
        }
        let asleep = queue.arm() == Armed::Idle;
        assert!(
            !asleep || queue.next_at().is_some_and(|at| at > now),
            "for ever"
        );
    }
    (queue.received(), in_vain)
}

/// The device has buffers for 64 packets, and the line takes them without handing any over.
#[test]
fn a_line_holds_as_much_as_it_may_and_not_what_the_device_has_buffers_for() {
    let (packets, in_vain) = through_a_line(8192, 1.0);
    // 1024 in 10 ms, and the packets polled while a full line empties.
    assert!(packets > 90_000, "{packets}");
    assert_eq!(in_vain, 0, "the worker sleeps until a packet is due");
    // Every other packet is late, and keeps its place on the line.
    let (packets, in_vain) = through_a_line(8192, 0.5);
    assert!(packets > 180_000, "{packets}");
    assert_eq!(in_vain, 0);
}

#[test]
fn a_line_with_an_arena_smaller_than_it_goes_on_and_sleeps_too() {
    let (packets, in_vain) = through_a_line(512, 1.0);
    assert!(packets > 20_000, "{packets}");
    assert_eq!(in_vain, 0);
}

/// Otherwise the line of one queue would hold all frames of the others.
#[test]
fn of_large_packets_and_of_many_segments_a_line_holds_fewer() {
    let delaying = || {
        let mut rig = faults(FaultOptions {
            delay: 1.0,
            held_packets_max: 1024,
            ..FaultOptions::default()
        });
        let config = ArenaConfig {
            small_frames: 4096,
            large_frames: 512,
            lines: 8192,
        };
        rig.arena = Arena::new(config).unwrap();
        rig
    };
    let mut rig = delaying();
    let in_pieces = |pieces: usize| {
        let mut packet = rig.arena.packet_from(&udp(64, 0)).unwrap();
        for _ in 1..pieces {
            packet.add_frame(FrameClass::Small).unwrap();
            packet.grow(1).unwrap();
        }
        packet
    };
    for _ in 0..300 {
        rig.fake.give(in_pieces(10), RxInfo::default());
    }
    for now in 1..20 {
        rig.poll(now).1.unwrap();
    }
    // One more burst: its size is requested before the packets' sizes are known.
    let most = 1024_u64.div_ceil(10) + BURST_PACKETS_MAX as u64;
    assert!((103..=most).contains(&rig.rx.held()), "{}", rig.rx.held());
    assert_eq!(rig.rx.arm(), Armed::Idle);

    let mut rig = delaying();
    for _ in 0..300 {
        let mut packet = rig.arena.packet(FrameClass::Large).unwrap();
        packet.grow(2000).unwrap();
        rig.fake.give(packet, RxInfo::default());
    }
    for now in 1..20 {
        rig.poll(now).1.unwrap();
    }
    let most = (RX_HELD_LARGE_MAX + BURST_PACKETS_MAX) as u64;
    let held = RX_HELD_LARGE_MAX as u64..=most;
    assert!(held.contains(&rig.rx.held()), "{}", rig.rx.held());
    // Once they are released there is room again.
    let left = lock(&rig.fake.0).input.len();
    assert!(left > 0 && !rig.poll(20_000_000).0.is_empty());
    rig.poll(20_000_001).1.unwrap();
    rig.poll(20_000_002).1.unwrap();
    assert!(lock(&rig.fake.0).input.len() < left);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Every wire packet given or made by repeating is handed over, dropped or held.
    #[test]
    fn faults_conserve(
        seed: u64,
        chances in proptest::array::uniform5(0.0_f64..=1.0),
        rounds in proptest::collection::vec((0_usize..40, any::<bool>()), 1..20),
        held_packets_max in 0_usize..100,
    ) {
        let [drop, duplicate, corrupt, delay, reorder] = chances;
        let mut rig = faults(FaultOptions {
            seed, drop, duplicate, corrupt, delay, reorder, held_packets_max,
            delay_time: Duration::from_nanos(2500),
            reorder_time: Duration::from_nanos(3500),
            ..FaultOptions::default()
        });
        let (mut given, mut got, mut now) = (0, 0, 0);
        for (count, with_large) in rounds {
            rig.give(count);
            given += count;
            if with_large && duplicate == 0.0 {
                let (packet, info) = large(&rig.arena);
                rig.fake.give(packet, info);
                given += 4;
            }
            now += 1000;
            let wire = |p: &Packet| usize::from(p.meta().wire_packets);
            got += rig.poll(now).0.iter().map(wire).sum::<usize>();
            let dropped: u64 = rig.bad.0.iter().map(|(_, wire)| wire).sum();
            let made = rig.driver.counters().get().duplicated as usize;
            let left = lock(&rig.fake.0).input.len();
            let held = rig.rx.held() as usize;
            if !with_large {
                prop_assert!(got + dropped as usize + held + left <= given + made);
            }
        }
        lock(&rig.fake.0).ends = true;
        loop {
            now += 1000;
            let (packets, end) = rig.poll(now);
            got += packets.iter().map(|p| usize::from(p.meta().wire_packets)).sum::<usize>();
            if end.is_err() { break }
        }
        let dropped: u64 = rig.bad.0.iter().map(|(_, wire)| wire).sum();
        let made = rig.driver.counters().get().duplicated as usize;
        prop_assert_eq!(got + dropped as usize, given + made);
        prop_assert_eq!(rig.rx.held(), 0);
        prop_assert_eq!(rig.arena.census().lines_used, 0);
    }
}
