//! Doorbells, completions, byte limits, stop and wake-up, the watchdog: each rule with a given
//! clock.

use super::line::{Bench, Line};
use super::*;
use crate::driver::Armed;
use crate::limits::{
    SEGMENTS_MAX, TX_BYTES_START, TX_DOORBELL_DESCRIPTORS_MAX, TX_DOORBELL_HOLD_MAX, TX_HUNG_AFTER,
    TX_POLL_AFTER, TX_RECLAIM_PACKETS, TX_REST_MAX,
};
use crate::stats::Trouble;
use std::time::Duration;

fn us(us: u64) -> Instant {
    Instant::from_nanos(us * 1000)
}

fn bench(slots: usize) -> Bench {
    Bench::new(Features::ALL, Line::new(slots))
}

#[test]
fn the_doorbell_is_rung_before_too_many_descriptors_are_pending() {
    let mut bench = bench(512);
    // Two segments each: the doorbell depends on the number of packets, not on the bursts.
    let each = TX_DOORBELL_DESCRIPTORS_MAX as u64 / 2;
    for packets in [10, 10, 10, 10, 40, 1, 1, 1, 45] {
        assert_eq!(bench.send_more(&PLAIN, packets), Sent::All);
    }
    assert_eq!(bench.line().flushes, 128 / each - 1, "not of the last");
    bench.queue.ring().unwrap();
    assert_eq!(bench.line().flushes, 128 / each);
    let most = bench.line().pending_most;
    assert!(most < TX_DOORBELL_DESCRIPTORS_MAX + SEGMENTS_MAX);
    assert_eq!(most, TX_DOORBELL_DESCRIPTORS_MAX);
    assert_eq!(bench.counters().doorbells, 128 / each);
    assert_eq!(bench.end(), 0);
}

/// iflib defers the doorbell by the fill level of its ring: if that is low, each packet rings. Here
/// it depends on the caller's packets only.
#[test]
fn the_number_of_doorbells_does_not_depend_on_packets_in_flight() {
    // One descriptor each.
    let spec = PLAIN.payload(20);
    let full = TX_DOORBELL_DESCRIPTORS_MAX;
    for in_flight in [0, 100, 150, 600] {
        let mut bench = bench(1024);
        for _ in 0..in_flight / 50 {
            assert_eq!(bench.send(&spec, 50), Sent::All);
        }
        assert_eq!(bench.queue.in_flight(), in_flight);
        let mut before = bench.line().flushes;
        let mut rung = |bench: &Bench| {
            let flushes = bench.queue.device().flushes;
            flushes - std::mem::replace(&mut before, flushes)
        };
        for packets in [1, 1, 1, 1, 1, 7] {
            assert_eq!(bench.send(&spec, packets), Sent::All);
            assert_eq!(rung(&bench), 1, "{packets} behind {in_flight}");
        }
        // A few, as many as may be pending, and one more than twice as many.
        for (packets, before) in [(5, 0), (full, 0), (2 * full + 1, 2)] {
            for _ in 0..packets {
                assert_eq!(bench.send_more(&spec, 1), Sent::All);
            }
            assert_eq!(rung(&bench), before, "{packets} behind {in_flight}");
            for expected in [1, 0] {
                bench.queue.ring_if_pending().unwrap();
                assert_eq!(rung(&bench), expected, "{packets} behind {in_flight}");
            }
        }
        assert_eq!(bench.line().pending_most, full);
        let sent = 12 + 5 + 3 * full + 1;
        assert_eq!(bench.queue.in_flight(), in_flight + sent);
        let counted = bench.counters().doorbells;
        assert_eq!(counted, bench.line().flushes);
        assert_eq!(bench.end(), 0);
    }
}

#[test]
fn no_descriptor_is_pending_longer_than_stated() {
    let mut bench = bench(512);
    bench.queue.service(us(1000)).unwrap();
    bench.send_more(&PLAIN, 1);
    let due = us(1000).after(TX_DOORBELL_HOLD_MAX);
    assert_eq!(bench.queue.retry_at(us(1000)), Some(due));
    // Later packets do not delay it.
    bench.queue.service(us(1040)).unwrap();
    bench.send_more(&PLAIN, 1);
    assert_eq!(bench.line().flushes, 0);
    bench
        .queue
        .service(Instant::from_nanos(due.as_nanos() - 1))
        .unwrap();
    assert_eq!(bench.line().flushes, 0);
    bench.queue.service(due).unwrap();
    assert_eq!((bench.line().flushes, bench.line().announced), (1, 2));
    assert!(bench.queue.retry_at(due).unwrap() > due);
    assert_eq!(bench.end(), 0);
}

/// A common bug of Linux drivers: the last packet, which would ring for all of them, is dropped,
/// and those before it wait without end.
#[test]
fn the_doorbell_is_rung_though_the_last_packet_is_dropped() {
    for refused in [Refused::Bad(DropReason::BadDescriptor), Refused::LinkDown] {
        let arena = arena();
        let of = |specs: &[Spec]| burst(&arena, specs).0;
        let script = || [PENDING, PENDING, Err(refused)];
        let mut queue = queue(&arena, Features::ALL, Scripted::new(script()));
        let sent = queue.transmit(&mut of(&[PLAIN; 3])).unwrap();
        assert_eq!((sent, queue.device().flushes), (Sent::All, 1));

        // The caller has more packets, and all are bad.
        queue.device_mut().script.extend(script());
        queue.transmit_more(&mut of(&[PLAIN; 2])).unwrap();
        assert_eq!(queue.device().flushes, 1, "there is more to come");
        queue.transmit(&mut of(&[PLAIN])).unwrap();
        assert_eq!(queue.device().flushes, 2);

        // The caller has more packets, and none arrive.
        queue.device_mut().script.extend(script());
        queue.transmit_more(&mut of(&[PLAIN; 3])).unwrap();
        assert_eq!(queue.device().flushes, 2, "there is more to come");
        assert!(queue.retry_at(us(0)).is_some(), "it is due by time as well");
        queue.ring_if_pending().unwrap();
        assert_eq!(queue.device().flushes, 3);
        queue.ring_if_pending().unwrap();
        assert_eq!(queue.device().flushes, 3);
        assert_eq!(queue.drops.snapshot().total(), 3);
    }
}

#[test]
fn the_doorbell_is_rung_before_a_stall_and_before_a_sleep() {
    let mut bench = bench(16);
    let stalled = Sent::Stalled(Stall::NoDescriptor);
    assert_eq!(bench.send_more(&PLAIN, 20), stalled);
    assert_eq!(bench.line().announced, 16);
    bench.line().work(16);
    assert_eq!(bench.transmit_more(), Sent::All);
    bench.send_more(&PLAIN, 1);
    assert!(!bench.line().ring.is_empty());
    assert_eq!(bench.line().announced, 0);
    // The device checks it.
    assert_eq!(bench.queue.arm(), Armed::Idle);
    assert_eq!(bench.end(), 0);
}

#[test]
fn a_doorbell_that_fails_in_arm_is_reported_at_the_next_step() {
    let mut bench = bench(16);
    bench.send_more(&PLAIN, 1);
    bench.line().fails = true;
    assert_eq!(bench.queue.arm(), Armed::WorkPending, "do not sleep on it");
    assert!(matches!(
        bench.queue.service(us(1)),
        Err(DeviceError::Removed)
    ));
    bench.queue.service(us(2)).unwrap();
}

#[test]
fn completed_packets_are_collected_when_there_are_enough_of_them() {
    let mut bench = bench(256);
    let mut at = 0;
    // While packets arrive in bursts of eight: once for every 32.
    for _ in 0..64 {
        at += 1;
        bench.queue.service(us(at)).unwrap();
        bench.send(&PLAIN, 8);
        bench.line().work(8);
    }
    let expected = 64 * 8 / TX_RECLAIM_PACKETS as u64;
    // The first step finds a quiet queue.
    assert!(
        bench.line().reclaims.abs_diff(expected) <= 1,
        "{}",
        bench.line().reclaims
    );
    let counters = bench.counters();
    assert!(counters.reclaims <= expected);
    assert!(counters.reclaimed >= 64 * 8 - TX_RECLAIM_PACKETS as u64 - 8);
    // A quiet step collects the last ones.
    bench.queue.service(us(at + 1)).unwrap();
    bench.queue.service(us(at + 2)).unwrap();
    assert_eq!(bench.queue.in_flight(), 0);
    assert_eq!(bench.counters().reclaimed, 64 * 8);
    assert_eq!(bench.end(), 0);
}

#[test]
fn completed_packets_are_collected_when_few_slots_are_free() {
    let mut bench = bench(64);
    bench.send(&PLAIN, 31);
    let reclaims = |bench: &mut Bench, at| {
        let before = bench.line().reclaims;
        bench.queue.service(us(at)).unwrap();
        bench.line().reclaims - before
    };
    assert_eq!(reclaims(&mut bench, 1), 0, "fewer than 32, and 33 are free");
    bench.send(&PLAIN, 18);
    assert_eq!(reclaims(&mut bench, 2), 1, "15 are free");
    bench.send(&PLAIN, 1);
    assert_eq!(reclaims(&mut bench, 3), 1, "still");
    bench.line().work(40);
    assert_eq!(reclaims(&mut bench, 4), 1);
    bench.send(&PLAIN, 1);
    assert_eq!(reclaims(&mut bench, 5), 0, "enough are free");
    assert_eq!(bench.end(), 0);
}

#[test]
fn completed_packets_are_collected_before_a_stall() {
    let mut bench = bench(16);
    for _ in 0..20 {
        assert_eq!(bench.send(&PLAIN, 16), Sent::All);
        bench.line().work(16);
    }
    assert_eq!(bench.counters().stalls, 0);
    assert_eq!(bench.end(), 0);
}

#[test]
fn packets_beyond_the_byte_limit_wait() {
    let mut bench = bench(512);
    let spec = PLAIN.payload(8000).piece(1700);
    let stalled = Sent::Stalled(Stall::ByteLimit);
    assert_eq!(bench.send(&spec, 40), stalled);
    let (inside, limit) = bench.queue.bytes_in_device();
    assert_eq!(limit, TX_BYTES_START);
    assert!(inside > limit && inside <= limit + 8054, "{inside}");
    let counters = bench.counters();
    assert_eq!((counters.stalls, counters.stall_byte_limit), (1, 1));
    assert_eq!(counters.no_desc, 0);
    // The device wakes the worker; the watchdog polls if that wake-up is lost.
    assert!(bench.queue.in_flight() > 0);
    assert!(bench.queue.retry_at(us(0)).is_some());
    bench.check();
    bench.line().work(3);
    assert_eq!(bench.transmit(), stalled);
    assert!(bench.queue.bytes_in_device().0 > limit);
    bench.line().work(usize::MAX);
    assert_eq!(bench.transmit(), Sent::All);
    let counters = bench.counters();
    assert_eq!((counters.stalls, counters.restarts), (1, 1));
    assert_eq!(bench.end(), 0);
}

#[test]
fn a_synchronous_device_has_no_byte_limit() {
    let arena = arena();
    let mut queue = queue(&arena, Features::ALL, Scripted::new([]));
    let spec = PLAIN.payload(8000);
    for _ in 0..40 {
        let (mut burst, _) = burst(&arena, &[spec]);
        assert_eq!(queue.transmit(&mut burst).unwrap(), Sent::All);
    }
    assert_eq!(queue.bytes_in_device(), (0, TX_BYTES_START));
}

/// `mp_ring` counts a restart and a stall for each progress of a stalled ring. Here one stall lasts
/// from the first packet that waits until none does: else both would count completions.
#[test]
fn a_stall_lasts_until_no_packet_waits() {
    let mut bench = bench(2);
    let stalled = Sent::Stalled(Stall::NoDescriptor);
    assert_eq!(bench.send(&PLAIN, 5), stalled);
    for (done, left, restarts) in [(0, 3, 0), (2, 1, 0), (1, 0, 1)] {
        bench.line().work(done);
        let sent = bench.transmit();
        assert_eq!(sent == Sent::All, left == 0);
        assert_eq!(bench.queue.held(), left);
        let counters = bench.counters();
        assert_eq!((counters.stalls, counters.restarts), (1, restarts));
    }
    assert_eq!(bench.end(), 0);
}

#[test]
fn a_stopped_queue_gives_the_device_nothing_and_resumes_in_order() {
    let mut bench = bench(64);
    bench.send(&PLAIN, 5);
    bench.queue.stop();
    let stalled = Sent::Stalled(Stall::Flush);
    assert_eq!(bench.send(&PLAIN, 5), stalled);
    assert_eq!(bench.transmit(), stalled);
    assert_eq!(bench.line().ring.len(), 5);
    // Packets in flight are collected; then no wake-up is needed.
    assert_eq!(bench.queue.arm(), Armed::Idle);
    bench.line().work(5);
    bench.queue.service(us(1)).unwrap();
    bench.queue.service(us(2)).unwrap();
    assert_eq!(bench.queue.in_flight(), 0);
    assert_eq!(bench.queue.retry_at(us(2)), None);
    assert!(bench.queue.wake().is_none());
    bench.check();
    let counters = bench.counters();
    assert_eq!((counters.stalls, counters.stall_flush), (1, 1));
    bench.queue.resume();
    assert_eq!(bench.end(), 0);
}

#[test]
fn while_the_link_is_down_packets_are_dropped_and_it_counts_as_one_stall() {
    let mut bench = bench(64);
    bench.line().link_down = true;
    assert_eq!(bench.send(&PLAIN, 5), Sent::All);
    assert_eq!(bench.send(&PLAIN, 5), Sent::All);
    bench.line().link_down = false;
    let counters = bench.counters();
    assert_eq!((counters.stall_link_down, counters.restarts), (1, 0));
    assert_eq!(bench.queue.drops.snapshot().get(DropReason::LinkDown), 10);
    assert_eq!(bench.send(&PLAIN, 5), Sent::All);
    let counters = bench.counters();
    assert_eq!((counters.stall_link_down, counters.restarts), (1, 1));
    assert_eq!(bench.end(), 10);
}

/// Fills the ring with `packets` and sleeps on it, at time 0.
fn asleep(bench: &mut Bench, packets: usize) {
    bench.queue.service(us(0)).unwrap();
    bench.send(&PLAIN, packets);
    bench.queue.service(us(0)).unwrap();
    assert_eq!(bench.queue.arm(), Armed::Idle);
}

#[test]
fn a_device_without_an_interrupt_is_polled_by_time() {
    for packets in [10, 40] {
        let mut bench = bench(16);
        bench.line().mute = true;
        asleep(&mut bench, packets);
        let mut at = us(0);
        for _ in 0..50 {
            let due = bench.queue.retry_at(at).unwrap();
            assert_eq!(due, at.after(TX_REST_MAX));
            at = due;
            bench.queue.service(at).unwrap();
            assert_eq!(bench.queue.arm(), Armed::Idle);
        }
        bench.line().work(16);
        bench.queue.service(at.after(TX_REST_MAX)).unwrap();
        let counters = bench.counters();
        assert_eq!(counters.reclaimed, packets.min(16) as u64);
        assert_eq!((counters.missed_wakeups, counters.hangs), (0, 0));
        assert_eq!(bench.end(), 0);
    }
}

/// The call that reclaims returns the error: the one that looks for room in the ring, and the one
/// that polls after a sleep.
#[test]
fn a_device_that_fails_with_its_completions_ends_the_run_at_once() {
    let mut bench = bench(16);
    assert!(matches!(bench.send(&PLAIN, 40), Sent::Stalled(_)));
    bench.line().work(16);
    bench.line().fails = true;
    let failed = bench.queue.transmit(&mut bench.burst);
    assert!(matches!(failed, Err(DeviceError::Removed)));
    bench.line().fails = false;
    assert_eq!(bench.end(), 0);
    for after in [TX_POLL_AFTER, TX_HUNG_AFTER] {
        let mut bench = self::bench(16);
        asleep(&mut bench, 10);
        bench.line().fails = true;
        let error = bench.queue.service(us(0).after(after)).unwrap_err();
        assert!(matches!(error, DeviceError::Removed), "{error}");
        bench.line().fails = false;
        assert_eq!(bench.end(), 0);
    }
}

#[test]
fn the_next_event_of_a_device_bounds_the_sleep() {
    for packets in [10, 40] {
        let mut bench = bench(16);
        bench.line().due = Some(us(70));
        asleep(&mut bench, packets);
        assert_eq!(bench.queue.device().next_at(), Some(us(70)));
        assert_eq!(bench.queue.retry_at(us(1)), Some(us(70)));
        bench.line().due = None;
        let watchdog = us(0).after(TX_POLL_AFTER);
        assert_eq!(bench.queue.retry_at(us(1)), Some(watchdog));
        assert_eq!(bench.end(), 0);
    }
}

#[test]
fn a_lost_wake_up_delays_briefly_and_is_counted() {
    for packets in [10, 40] {
        // With 40, some also wait for room in the ring.
        let mut bench = bench(16);
        asleep(&mut bench, packets);
        bench.line().work(16);
        let at = bench.queue.retry_at(us(0)).unwrap();
        assert_eq!(at, Instant::from_nanos(0).after(TX_POLL_AFTER));
        bench.queue.service(at).unwrap();
        let counters = bench.counters();
        assert_eq!((counters.missed_wakeups, counters.resets), (1, 0));
        assert_eq!(counters.reclaimed, packets.min(16) as u64);
        assert_eq!(
            counters.packets,
            packets.min(32) as u64,
            "and there is room"
        );
        assert_eq!(bench.queue.trouble().unwrap().cause, Trouble::MissedWakeup);
        bench.check();
        assert_eq!(bench.end(), 0);
    }
}

/// The device was armed for five completions; most of them were collected meanwhile.
#[test]
fn a_wake_up_for_the_last_packets_is_missed_though_they_are_few() {
    for kept in [0, 1] {
        let mut bench = bench(16);
        bench.line().counts = true;
        asleep(&mut bench, 10);
        assert_eq!(bench.line().armed_for, 5);
        bench.line().work(8);
        bench.queue.reclaim(us(0));
        bench.line().work(2 - kept);
        let at = bench.queue.retry_at(us(0)).unwrap();
        bench.queue.service(at).unwrap();
        assert_eq!(bench.queue.in_flight(), kept);
        let missed = bench.counters().missed_wakeups;
        assert_eq!(missed, 1 - kept as u64);
        bench.line().work(kept);
        assert_eq!(bench.end(), 0);
    }
}

#[test]
fn a_wake_up_that_came_was_not_missed() {
    let mut bench = bench(16);
    asleep(&mut bench, 10);
    bench.line().work(16);
    bench.queue.count_wakeup();
    bench.queue.service(us(5_000_000)).unwrap();
    assert_eq!(bench.queue.in_flight(), 0);
    let counters = bench.counters();
    assert_eq!(counters.troubles().count(), 0);
    assert_eq!(bench.end(), 0);
}

/// The wake-up may announce the end of a pause.
#[test]
fn a_wake_up_polls_the_device_though_packets_were_just_sent() {
    for woken in [false, true] {
        let mut bench = bench(16);
        bench.send(&PLAIN, 4);
        let before = bench.line().reclaims;
        if woken {
            bench.queue.count_wakeup();
        }
        bench.queue.service(us(0)).unwrap();
        assert_eq!(bench.line().reclaims - before, u64::from(woken));
        assert_eq!(bench.end(), 0);
    }
}

#[test]
fn a_hung_device_is_reported_once_and_reset() {
    let mut bench = bench(16);
    asleep(&mut bench, 40);
    bench.line().work(4);
    bench.line().silent = true;
    let mut at = us(0);
    let mut steps = 0;
    while bench.queue.trouble().is_none() {
        at = bench
            .queue
            .retry_at(at)
            .expect("it does not sleep for ever");
        bench.queue.service(at).unwrap();
        bench.transmit();
        assert_eq!(bench.queue.arm(), Armed::Idle);
        bench.check();
        steps += 1;
        assert!(steps < 100);
    }
    let trouble = *bench.queue.trouble().unwrap();
    assert_eq!(trouble.cause, Trouble::Hung);
    assert_eq!((trouble.in_flight, trouble.held), (16, 24));
    assert!(trouble.was_reset);
    assert!(at.since(us(0)) >= TX_HUNG_AFTER && at.since(us(0)) < 2 * TX_HUNG_AFTER);
    let counters = bench.counters();
    assert_eq!(
        (counters.hangs, counters.resets, counters.taken_back),
        (1, 1, 12)
    );
    let troubles: Vec<_> = counters.troubles().collect();
    assert_eq!(troubles, [(Trouble::Hung, 1)]);
    assert_eq!(bench.end(), 0, "not one is lost, nor overtaken");
}

#[test]
fn a_hung_device_without_reset_is_reported_and_may_recover() {
    let mut bench = bench(16);
    bench.line().can_reset = false;
    bench.line().silent = true;
    asleep(&mut bench, 8);
    bench.line().work(8);
    for step in 1..20 {
        bench.queue.service(us(step * 550_000)).unwrap();
    }
    let counters = bench.counters();
    assert_eq!((counters.hangs, counters.resets), (1, 0), "reported once");
    assert!(!bench.queue.trouble().unwrap().was_reset);
    assert_eq!(bench.queue.in_flight(), 8);
    bench.line().silent = false;
    assert_eq!(bench.end(), 0);
}

#[test]
fn lost_completions_are_found() {
    let mut bench = bench(64);
    bench.line().lose = 3;
    let mut at = us(0);
    for _ in 0..40 {
        at = at.after(Duration::from_millis(100));
        bench.queue.service(at).unwrap();
        bench.send(&PLAIN, 4);
        bench.line().work(4);
        bench.check();
    }
    let counters = bench.counters();
    assert_eq!((counters.lost_completions, counters.resets), (3, 1));
    assert_eq!(
        (counters.hangs, counters.taken_back),
        (0, 0),
        "they were sent"
    );
    assert_eq!(
        bench.queue.trouble().unwrap().cause,
        Trouble::LostCompletion
    );
    let trouble = bench.queue.trouble().unwrap();
    let overtaken = trouble.at.since(trouble.since);
    assert!(overtaken >= TX_HUNG_AFTER, "{overtaken:?}");
    assert!(bench.line().lost.is_empty());
    assert_eq!(bench.end(), 0);
}

/// A modem with a long ring: it needs seven seconds for all its packets, completes each of them,
/// and raises no counted interrupt within the first second.
#[test]
fn a_slow_device_is_not_at_fault() {
    for counts in [true, false] {
        let mut bench = bench(64);
        bench.line().counts = counts;
        let (mut at, mut most_kept, mut most_asked) = (us(0), 0, 0);
        for done in 0..400 {
            bench.queue.service(at).unwrap();
            bench.send(&PLAIN, 1 + 79 * usize::from(done == 0));
            assert_eq!(bench.queue.arm(), Armed::Idle);
            most_kept = most_kept.max(bench.queue.in_flight());
            most_asked = most_asked.max(bench.line().armed_for);
            at = at.after(TX_POLL_AFTER + Duration::from_millis(10));
            bench.line().work(1);
            if bench.line().done.len() >= bench.line().armed_for {
                bench.queue.count_wakeup();
            }
            bench.check();
        }
        let counters = bench.counters();
        assert_eq!(counters.troubles().count(), 0, "{counters:?}");
        assert_eq!((counters.reclaimed, most_kept), (399, 64));
        assert_eq!(most_asked > 1, counts);
        bench.line().work(usize::MAX);
        assert_eq!(bench.end(), 0);
    }
}

#[test]
fn an_empty_device_that_accepts_nothing_is_stuck() {
    let mut bench = bench(16);
    bench.line().refuses_all = true;
    asleep(&mut bench, 4);
    bench.queue.service(us(1_000_000)).unwrap();
    let mut at = us(1_000_000);
    while bench.queue.trouble().is_none() {
        at = at.after(TX_POLL_AFTER);
        bench.queue.service(at).unwrap();
        assert!(at < us(3_000_000));
    }
    assert_eq!(bench.queue.trouble().unwrap().cause, Trouble::Stuck);
    assert_eq!(bench.counters().stuck, 1);
    assert_eq!(bench.end(), 0, "a reset helped");
}

/// A busy worker has not armed the device. While the worker was stopped, the device completed its
/// packets.
#[test]
fn a_worker_that_was_stopped_has_missed_no_wake_up() {
    for stopped in [700_000, 1_100_000, 60_000_000] {
        let mut bench = bench(64);
        let mut at = 0;
        for _ in 0..3 {
            bench.queue.service(us(at)).unwrap();
            bench.send(&PLAIN, 4);
            at += 200_000;
        }
        bench.line().work(usize::MAX);
        at += stopped;
        for _ in 0..10 {
            bench.queue.service(us(at)).unwrap();
            bench.send(&PLAIN, 1);
            bench.line().work(usize::MAX);
            at += 10_000;
        }
        let counters = bench.counters();
        assert_eq!(counters.troubles().count(), 0, "{stopped}: {counters:?}");
        assert_eq!(bench.end(), 0);
    }
}

/// A worker that sleeps behind an armed device, in a process that was stopped. The thread that
/// would have raised the interrupt was stopped, too.
#[test]
fn a_wake_up_that_was_stopped_with_the_worker_is_not_lost() {
    for (stopped, missed) in [(2_500_000, 0), (200_000, 0), (100_000, 1)] {
        let mut bench = bench(16);
        asleep(&mut bench, 8);
        bench.queue.service(us(0)).unwrap();
        bench.line().work(8);
        bench.queue.service(us(stopped)).unwrap();
        let counters = bench.counters();
        assert_eq!(counters.reclaimed, 8, "{stopped}");
        assert_eq!(counters.missed_wakeups, missed, "{stopped}");
        assert_eq!(counters.troubles().count(), missed as usize, "{stopped}");
        assert_eq!(bench.end(), 0);
    }
}

/// The step after the stop is the one that the device asked for.
#[test]
fn a_late_step_for_a_known_event_has_missed_no_wake_up() {
    let mut bench = bench(16);
    bench.line().due = Some(us(90_000));
    asleep(&mut bench, 8);
    bench.line().work(8);
    bench.queue.service(us(150_000)).unwrap();
    let counters = bench.counters();
    assert_eq!((counters.reclaimed, counters.missed_wakeups), (8, 0));
    assert_eq!(bench.end(), 0);
}

/// An asynchronous device, and a worker that was stopped between two checks for lost completions.
#[test]
fn completions_during_a_stop_are_not_lost() {
    for stopped_at in (2000..3100).step_by(10) {
        let mut bench = bench(64);
        let mut at = 0;
        while at < 5500 {
            bench.queue.service(us(at * 1000)).unwrap();
            bench.send(&PLAIN, 4);
            let kept = bench.queue.in_flight();
            if at == stopped_at {
                at += 2000;
                bench.line().work(usize::MAX);
            } else {
                // 50 ms later.
                bench.line().work(kept.saturating_sub(20));
                at += 10;
            }
        }
        let counters = bench.counters();
        assert_eq!(counters.troubles().count(), 0, "{stopped_at}: {counters:?}");
        bench.line().work(usize::MAX);
        assert_eq!(bench.end(), 0);
    }
}

/// The whole machine was stopped, so the device had no time either.
#[test]
fn a_device_that_was_stopped_with_its_worker_is_not_reset() {
    let mut bench = bench(16);
    asleep(&mut bench, 8);
    bench.queue.service(us(50_000)).unwrap();
    bench.queue.service(us(10_000_000)).unwrap();
    bench.line().work(8);
    bench.queue.count_wakeup();
    bench.queue.service(us(10_001_000)).unwrap();
    let counters = bench.counters();
    assert_eq!((counters.resets, counters.reclaimed), (0, 8));
    assert_eq!(counters.troubles().count(), 0);
    assert_eq!(bench.end(), 0);
}

/// A device that cannot be reset keeps the slot of a lost packet. It is reported once.
#[test]
fn a_lost_completion_is_reported_once_also_if_the_wire_pauses() {
    let mut bench = bench(64);
    bench.line().lose = 1;
    bench.line().can_reset = false;
    let mut at = us(0);
    for step in 0..200 {
        at = at.after(Duration::from_millis(100));
        // The wire pauses repeatedly, for two seconds each.
        bench.line().blocked = step % 60 >= 40;
        bench.queue.service(at).unwrap();
        bench.send(&PLAIN, 4);
        bench.line().work(4);
        bench.check();
    }
    assert_eq!(bench.counters().lost_completions, 1);
    bench.line().can_reset = true;
    assert!(bench.queue.reset(at).unwrap());
    assert_eq!(bench.end(), 0);
}

/// The worker gave its queue a time that was too late, and then the right one.
#[test]
fn a_doorbell_is_rung_in_time_though_the_clock_went_back() {
    let mut bench = bench(64);
    bench.queue.service(us(3_600_000_000)).unwrap();
    bench.send_more(&PLAIN, 1);
    assert_eq!(bench.line().flushes, 0);
    let at = bench.queue.retry_at(us(1000)).unwrap();
    assert_eq!(at, us(1000).after(TX_DOORBELL_HOLD_MAX));
    bench.queue.service(us(1000)).unwrap();
    assert_eq!(bench.line().flushes, 1);
    assert_eq!(bench.end(), 0);
}

#[test]
fn a_device_with_a_wire_at_fault_is_not_hung() {
    let mut bench = bench(16);
    bench.line().blocked = true;
    asleep(&mut bench, 40);
    for step in 1..600 {
        bench.queue.service(us(step * 100_000)).unwrap();
    }
    let counters = bench.counters();
    assert_eq!(counters.troubles().count(), 0, "{counters:?}");
    bench.line().blocked = false;
    bench.line().work(2);
    bench.queue.service(us(60_100_000)).unwrap();
    assert_eq!(bench.counters().resets, 0);
    assert_eq!(bench.end(), 0);
}
