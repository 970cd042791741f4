//! Resets at any time: each packet is sent once and in order, or counted.

use super::line::{Bench, Line};
use super::random::{features, spec};
use super::*;
use crate::driver::{ChangeLog, Changes, PortChanges};
use proptest::prelude::*;
use std::time::Duration;

#[test]
fn unsent_packets_are_sent_again_before_those_that_wait() {
    let mut bench = Bench::new(Features::ALL, Line::new(8));
    bench.send(&PLAIN, 20);
    bench.line().work(3);
    assert!(bench.queue.reset(Instant::default()).unwrap());
    assert_eq!(bench.completed_and_taken_back(), (3, 5));
    assert_eq!((bench.queue.in_flight(), bench.queue.held()), (0, 17));
    bench.check();
    assert_eq!(bench.end(), 0);
}

#[test]
fn packets_in_neither_list_are_counted_as_lost_by_the_reset() {
    let mut bench = Bench::new(Features::ALL, Line::new(8));
    bench.send(&PLAIN, 20);
    bench.line().work(3);
    bench.line().unknown = 2;
    assert!(bench.queue.reset(Instant::default()).unwrap());
    assert_eq!(bench.completed_and_taken_back(), (3, 5));
    bench.check();
    assert_dropped(&bench.queue.drops, DropReason::DeviceReset, 2);
    assert_eq!(bench.end(), 2);
}

#[test]
fn a_device_without_reset_keeps_its_packets() {
    let mut bench = Bench::new(Features::ALL, Line::new(8));
    bench.line().can_reset = false;
    bench.send(&PLAIN, 20);
    assert!(!bench.queue.reset(Instant::default()).unwrap());
    assert_eq!((bench.queue.in_flight(), bench.queue.held()), (8, 12));
    assert_eq!(bench.end(), 0);
}

/// Another device in its place: what the old one had is taken back, with or without its help.
#[test]
fn a_device_that_is_another_one_gets_first_what_was_taken_back() {
    for (can_reset, unknown, lost) in [(true, 0, 0), (true, 2, 2), (false, 0, 5)] {
        let mut bench = Bench::new(Features::ALL, Line::new(8));
        bench.send(&PLAIN, 20);
        bench.line().work(3);
        bench.queue.reclaim(Instant::default());
        bench.line().can_reset = can_reset;
        bench.line().unknown = unknown;
        bench.line().change = Change::Restarted;
        bench.queue.follow().unwrap();
        assert_eq!((bench.queue.in_flight(), bench.queue.restarts()), (0, 1));
        assert_eq!(bench.completed_and_taken_back(), (3, 5));
        bench.check();
        let drops = bench.queue.drops.snapshot();
        assert_eq!(drops.get(DropReason::DeviceReset), lost);
        // The one in its place is empty.
        bench.line().can_reset = true;
        bench.line().ring.clear();
        bench.line().announced = 0;
        bench.queue.follow().unwrap();
        assert_eq!(bench.queue.restarts(), 1, "a change is reported once");
        assert_eq!(bench.end(), lost);
    }
}

/// A refusal takes offloads along that need the refused one. A negotiation brings back all.
#[test]
fn what_was_refused_is_offered_again_after_a_change() {
    for change in [Change::Offloads(Features::ALL), Change::Restarted] {
        let mut bench = Bench::new(Features::ALL, Line::new(8));
        bench.line().without = Features::CSUM;
        let all = bench.queue.features();
        bench.add(&PLAIN.partial());
        bench.send(&Spec::gso(GsoKind::TcpV4, 3000, 1000), 1);
        bench.queue.follow().unwrap();
        let left = bench.queue.features();
        assert!(!left.contains(Features::CSUM4) && !left.contains(Features::TSO4));
        bench.line().without = Features::NONE;
        bench.line().change = change;
        bench.queue.follow().unwrap();
        assert_eq!(
            (bench.queue.features(), bench.queue.refused()),
            (all, Features::NONE)
        );
        bench.check();
        assert_eq!(bench.end(), 0);
    }
}

/// A bench whose queue records its changes, as queue 0 of port 1, and may use `allowed`.
fn recorded(features: Features, allowed: Features, slots: usize) -> (Bench, Arc<ChangeLog>) {
    let log = Arc::new(ChangeLog::new(Instant::default));
    let mut bench = Bench::new(features, Line::new(slots));
    let changes = PortChanges::new(Arc::clone(&log), 1);
    bench.queue = bench.queue.following(changes, allowed);
    (bench, log)
}

/// The records since the last call.
fn lines(log: &ChangeLog, seen: &mut u64) -> Vec<String> {
    let Changes { count, last } = log.snapshot();
    let new = (count - std::mem::replace(seen, count)) as usize;
    let new = last[last.len() - new..].iter();
    new.map(|change| format!("{} {}: {change}", change.port, change.kind.name()))
        .collect()
}

#[test]
fn a_queue_is_planned_anew_for_what_its_device_gains_and_loses() {
    let (mut bench, log) = recorded(Features::CSUM, Features::ALL, 64);
    let mut seen = 0;
    let tso = Features::CSUM | Features::TSO4;
    let said = |what: &str| {
        vec![format!(
            "1 renegotiated: txq00: the other side has negotiated its offloads; {what}"
        )]
    };
    // A GSO packet, of three wire packets, and one of a partial checksum.
    for (has, packets, expected) in [
        // As planned.
        (Features::CSUM, 4, vec![]),
        (tso, 2, said("it does tso4 from now on")),
        (tso, 2, vec![]),
        (
            Features::CSUM6 | Features::TSO4,
            4,
            said("packtrain does ipv4-checksum, tso4 in software from now on"),
        ),
        (
            Features::CSUM4,
            4,
            said("it does ipv4-checksum from now on, and packtrain does ipv6-checksum in software"),
        ),
        (tso, 2, said("it does ipv6-checksum, tso4 from now on")),
    ] {
        bench.line().change = Change::Offloads(has);
        bench.line().without = Features::ALL.without(has);
        let before = bench.queue.counters().packets.get();
        bench.add(&Spec::gso(GsoKind::TcpV4, 3000, 1000));
        bench.add(&PLAIN.partial());
        for step in 0..3 {
            bench.queue.follow().unwrap();
            bench.transmit();
            let recorded = lines(&log, &mut seen);
            let expected = if step == 0 { expected.clone() } else { vec![] };
            assert_eq!(recorded, expected, "{has:?}");
        }
        assert_eq!(bench.queue.counters().packets.get() - before, packets);
        assert_eq!(bench.queue.refused(), Features::NONE, "it was asked before");
        bench.check();
        bench.line().work(64);
        bench.queue.reclaim(Instant::default());
    }
    assert_eq!(bench.end(), 0);
}

#[test]
fn packets_that_were_prepared_for_what_a_device_lost_are_prepared_again() {
    for kept in [Features::NONE, Features::CSUM, Features::ALL] {
        let (mut bench, log) = recorded(Features::ALL, Features::ALL, 4);
        for _ in 0..12 {
            bench.add(&Spec::gso(GsoKind::TcpV4, 3000, 1000));
            bench.add(&PLAIN.partial());
        }
        let stalled = Sent::Stalled(Stall::NoDescriptor);
        assert_eq!(bench.transmit(), stalled);
        assert_eq!(bench.queue.staged.fitted.len(), 20, "ready for the device");
        // The device takes nothing from now on that it does not do.
        bench.line().without = Features::ALL.without(kept);
        bench.line().change = Change::Offloads(kept);
        bench.queue.follow().unwrap();
        bench.check();
        let staged = &bench.queue.staged;
        let ready = if kept == Features::ALL { 20 } else { 0 };
        assert_eq!((staged.fitted.len(), staged.packets()), (ready, 20));
        let log = log.snapshot();
        assert_eq!(log.count, u64::from(kept != Features::ALL));
        assert_eq!(bench.end(), 0);
    }
}

#[test]
fn a_queue_uses_what_its_settings_allow_of_what_its_device_gains() {
    let (mut bench, log) = recorded(Features::NONE, Features::CSUM4, 4);
    let mut seen = 0;
    bench.line().change = Change::Offloads(Features::ALL);
    bench.queue.follow().unwrap();
    assert_eq!(bench.queue.features(), Features::CSUM4);
    let said = lines(&log, &mut seen);
    assert!(
        said[0].ends_with("; it does ipv4-checksum from now on"),
        "{said:?}"
    );
    // Nothing that is allowed.
    bench.line().change = Change::Offloads(Features::CSUM4 | Features::TSO4);
    bench.queue.follow().unwrap();
    assert_eq!(lines(&log, &mut seen), Vec::<String>::new());
    assert_eq!(bench.end(), 0);
}

/// The watchdog watches packets after a reset as before.
#[test]
fn a_device_that_hangs_again_is_reset_again() {
    let mut bench = Bench::new(Features::ALL, Line::new(1));
    bench.add(&PLAIN);
    let mut now = Instant::default();
    for hang in 1..4 {
        bench.line().silent = true;
        for _ in 0..12 {
            bench.queue.service(now).unwrap();
            bench.transmit();
            bench.queue.arm();
            now = now.after(Duration::from_millis(100));
        }
        assert_eq!(bench.counters().resets, hang);
    }
    bench.check();
    assert_eq!(bench.end(), 0);
}

/// After a reset a whole GSO packet is segmented, before one that was already partly segmented.
#[test]
fn a_returned_packet_is_segmented_before_one_that_is_partly_segmented() {
    let mut bench = Bench::new(Features::ALL, Line::new(4));
    bench.add(&Spec::gso(GsoKind::TcpV4, 3000, 1000));
    bench.send(&Spec::gso(GsoKind::TcpV4, 6000, 1000), 1);
    assert_eq!(bench.queue.in_flight(), 2);
    // From now on it refuses TSO: the third one is segmented, and does not fit the ring.
    bench.line().without = Features::TSO;
    bench.add(&Spec::gso(GsoKind::TcpV4, 9000, 1000));
    let stalled = Sent::Stalled(Stall::NoDescriptor);
    assert_eq!(bench.transmit(), stalled);
    for _ in 0..3 {
        assert!(bench.queue.reset(Instant::default()).unwrap());
        assert_eq!(bench.transmit(), stalled);
        bench.check();
    }
    assert_eq!(bench.end(), 0);
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Transmit,
    TransmitMore,
    Work(usize),
    Step(u64),
    Reset(usize),
    Link(bool),
    Refuse(Features),
    Stop(bool),
    Silent,
    Lose,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => Just(Act::Transmit),
        6 => Just(Act::TransmitMore),
        6 => (1..20_usize).prop_map(Act::Work),
        4 => (0..400_000_u64).prop_map(Act::Step),
        2 => prop_oneof![3 => Just(0), 1 => 1..3_usize].prop_map(Act::Reset),
        1 => proptest::bool::ANY.prop_map(Act::Link),
        1 => features().prop_map(Act::Refuse),
        1 => proptest::bool::ANY.prop_map(Act::Stop),
        1 => Just(Act::Silent),
        1 => Just(Act::Lose),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Resets, hangs, lost completions, links down, refused features, stops: in any order.
    #[test]
    fn every_packet_is_sent_once_in_order_or_counted(
        rounds in proptest::collection::vec(
            (proptest::collection::vec(spec(), 0..4), act()),
            1..80,
        ),
        ring in 1..24_usize,
        features in features(),
    ) {
        let mut bench = Bench::new(features, Line::new(ring));
        let mut now = Instant::default();
        for (specs, act) in rounds {
            for spec in &specs {
                // Neither wrong counts nor shared bytes: other tests cover those.
                bench.add(&Spec { surplus: 0, shared: false, ..*spec });
            }
            match act {
                Act::Transmit => { bench.transmit(); }
                Act::TransmitMore => { bench.transmit_more(); }
                Act::Work(packets) => bench.line().work(packets),
                Act::Step(micros) => {
                    now = now.after(Duration::from_micros(micros));
                    bench.queue.service(now).unwrap();
                    bench.queue.arm();
                }
                Act::Reset(unknown) => {
                    bench.queue.device_mut().unknown = unknown;
                    assert!(bench.queue.reset(now).unwrap());
                }
                Act::Link(up) => bench.line().link_down = !up,
                Act::Refuse(features) => bench.line().without |= features,
                Act::Stop(true) => bench.queue.stop(),
                Act::Stop(false) => bench.queue.resume(),
                Act::Silent => bench.line().silent = true,
                Act::Lose => bench.line().lose += 1,
            }
            bench.check();
        }
        bench.queue.resume();
        bench.line().link_down = false;
        bench.line().unknown = 0;
        // The watchdog finds a hung device.
        for _ in 0..40 {
            now = now.after(Duration::from_millis(100));
            bench.queue.service(now).unwrap();
            bench.transmit();
            bench.queue.arm();
            bench.line().work(usize::MAX);
            bench.line().lose = 0;
            bench.check();
        }
        let restarted = bench.counters();
        prop_assert!(bench.line().lost.is_empty(), "{:?}", restarted);
        bench.end();
    }
}
