use super::*;
use crate::limits::PACKET_BYTES_MAX;
use std::collections::VecDeque;
use std::time::Duration;

const fn us(us: u64) -> Instant {
    Instant::from_nanos(us * 1000)
}

/// Queues packets of `bytes` while there is room, and returns how many that were.
fn fill(limit: &mut ByteLimit, bytes: u64) -> u64 {
    let mut packets = 0;
    while limit.has_room_behind(0) {
        limit.queue(bytes);
        packets += 1;
    }
    packets
}

#[test]
fn an_empty_device_gets_a_packet_of_any_size() {
    let mut limit = ByteLimit::starting_at(0);
    assert!(limit.has_room_behind(0));
    limit.queue(PACKET_BYTES_MAX as u64);
    assert!(!limit.has_room_behind(0), "one, and no more");
    limit.complete(us(1), PACKET_BYTES_MAX as u64);
    assert!(limit.has_room_behind(0));
}

/// A device that was over the limit and is empty has starved.
#[test]
fn it_grows_by_the_bytes_of_an_interval_while_packets_waited() {
    let mut limit = ByteLimit::starting_at(0);
    // 1000 over a limit of 0, all completed: by the 1000 of this interval.
    assert_eq!(fill(&mut limit, 1000), 1);
    limit.complete(us(1), 1000);
    assert_eq!(limit.limit(), 1000);
    // 2 × 1000 fit now: up to the limit, and the one that exceeds it.
    assert_eq!(fill(&mut limit, 1000), 2);
    limit.complete(us(2), 2000);
    assert_eq!(limit.limit(), 3000);
    assert_eq!(fill(&mut limit, 1000), 4);
    // It was not empty at this poll, and not over the limit at the previous one.
    limit.complete(us(3), 3000);
    assert_eq!((limit.limit(), limit.in_device()), (3000, 1000));
    // All bytes of the last poll have completed, and it was over then: it was perhaps empty.
    assert_eq!(fill(&mut limit, 1000), 3);
    limit.complete(us(4), 1000);
    assert_eq!((limit.limit(), limit.in_device()), (4000, 3000));
}

#[test]
fn it_stays_while_no_packet_waits() {
    let mut limit = ByteLimit::starting_at(10_000);
    for round in 0..100 {
        limit.queue(1000);
        limit.complete(us(round * 1_000_000), 1000);
    }
    assert_eq!(limit.limit(), 10_000);
}

#[test]
fn it_shrinks_by_the_excess_of_a_whole_second() {
    // The device completes 1000 a poll, and 20 000 may be queued.
    let mut limit = ByteLimit::starting_at(20_000);
    let mut now = us(0);
    fill(&mut limit, 1000);
    let mut limits = vec![limit.limit()];
    for _ in 0..10_000 {
        now = now.after(Duration::from_millis(1));
        limit.complete(now, 1000);
        fill(&mut limit, 1000);
        if limits.last() != Some(&limit.limit()) {
            limits.push(limit.limit());
        }
    }
    // It shrinks to twice the bytes of a poll. From there on it shrinks once a second, and grows
    // back at once.
    let settled = &limits[1..];
    assert!(
        settled.iter().all(|l| (1000..=3000).contains(l)),
        "{limits:?}"
    );
    assert!(limits.len() <= 1 + 2 * 10, "{limits:?}");
}

/// Ten packets of 1500 bytes complete at a time, and more always wait. The device needs the packets
/// that it sends now and those that it sends next.
#[test]
fn ten_packets_for_each_completion_make_a_limit_near_two_intervals() {
    const PACKET: u64 = 1500;
    const INTERVAL: u64 = 10 * PACKET;
    for start in [0, INTERVAL, 2 * INTERVAL, 2_000_000] {
        let mut limit = ByteLimit::starting_at(start);
        let mut now = us(0);
        let mut settled = Vec::new();
        for completion in 0..20_000 {
            fill(&mut limit, PACKET);
            now = now.after(Duration::from_millis(1));
            let before = limit.in_device();
            limit.complete(now, INTERVAL.min(before));
            if completion >= 10_000 {
                settled.push((limit.limit(), before));
            }
        }
        // Within a packet of two intervals; and never so little that the device would run empty.
        for (limit, inside) in settled {
            assert!(limit.abs_diff(2 * INTERVAL) <= PACKET, "{start}: {limit}");
            assert!(inside.abs_diff(2 * INTERVAL) <= PACKET, "{start}: {inside}");
        }
    }
}

/// A wire of 600 MB/s with packets of 1500 bytes, at saturation: for each half second of `seconds`
/// the rate in MB/s and the limit. A packet completes `latency` microseconds after it was sent, and
/// the device is polled each `poll` microseconds.
fn saturated(from: u64, latency: u64, poll: u64, seconds: u64) -> Vec<(u64, u64)> {
    const PACKET: u64 = 1500;
    const WIRE_NS: u64 = 2500;
    const HALF_NS: u64 = 500_000_000;
    let mut limit = ByteLimit::default();
    let mut device = VecDeque::new();
    let mut now = from * 1000;
    let (mut left_at, mut carried, mut half) = (now, 0, now + HALF_NS);
    let mut halves = Vec::new();
    while halves.len() < 2 * seconds as usize {
        while limit.has_room_behind(0) {
            limit.queue(PACKET);
            left_at = now.max(left_at) + WIRE_NS;
            device.push_back(left_at + latency * 1000);
        }
        now += poll * 1000;
        limit.observe_poll(Instant::from_nanos(now));
        let mut done = 0;
        while device.front().is_some_and(|&at| at <= now) {
            device.pop_front();
            done += PACKET;
        }
        if done > 0 {
            limit.complete(Instant::from_nanos(now), done);
            carried += done;
        }
        if now >= half {
            halves.push((carried * 1000 / HALF_NS, limit.limit()));
            (carried, half) = (0, half + HALF_NS);
        }
    }
    halves
}

/// A device whose completions take longer than the time between two polls has all the packets that
/// it can send, and no more than a few times as many.
#[test]
fn late_completions_cost_no_throughput() {
    for (latency, poll) in [
        (0, 20),
        (20, 20),
        (50, 20),
        (100, 20),
        (100, 5),
        (100, 100),
        (20, 100),
        (1000, 50),
    ] {
        // The clock of a second session has run for a while.
        for from in [0, 7_000_000] {
            let halves = saturated(from, latency, poll, 4);
            // 600 bytes a microsecond, for the latency of a packet and until the next poll.
            let needed = 600 * (latency + poll);
            for &(rate, limit) in &halves[1..] {
                assert!(rate >= 595, "{latency} us, {poll} us: {halves:?}");
                let most = (4 * needed).max(TX_BYTES_START);
                assert!(limit <= most, "{latency} us, {poll} us: {halves:?}");
            }
            // It shrinks from its first value, but not within the first second.
            assert!(halves[0].1 >= TX_BYTES_START, "{halves:?}");
            if 2 * needed < TX_BYTES_START {
                let end = halves.last().unwrap().1;
                assert!(end < TX_BYTES_START, "{halves:?}");
            }
        }
    }
}

/// The limit is still updated after the clock was ahead for a moment.
#[test]
fn a_clock_that_jumps_ahead_and_back_does_no_harm() {
    let mut limit = ByteLimit::starting_at(1000);
    fill(&mut limit, 1000);
    limit.observe_poll(us(1));
    limit.complete(us(900_000_000), 1000);
    for round in 0..40 {
        fill(&mut limit, 1000);
        limit.complete(us(10 + round), limit.in_device());
    }
    assert!(limit.limit() > 10_000, "{}", limit.limit());
    let mut now = us(1000);
    for _ in 0..3000 {
        now = now.after(Duration::from_millis(1));
        fill(&mut limit, 1000);
        limit.complete(now, 1000);
    }
    assert!(limit.limit() <= 3000, "{}", limit.limit());
}

#[test]
fn a_reset_empties_it_and_keeps_the_limit() {
    let mut limit = ByteLimit::starting_at(5000);
    fill(&mut limit, 1500);
    limit.reset();
    assert_eq!((limit.in_device(), limit.limit()), (0, 5000));
    assert_eq!(fill(&mut limit, 1500), 4);
    limit.complete(us(9), 1500);
    assert_eq!(limit.limit(), 5000);
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config {
        failure_persistence: None,
        ..Default::default()
    })]

    /// Any sizes at any times: an empty device always gets a packet, at most one packet exceeds the
    /// limit, and a packet waits only for a completion.
    #[test]
    fn never_starves_and_never_overflows(
        start in 0..200_000_u64,
        steps in proptest::collection::vec(
            (1..70_000_u64, 0..40_u8, 0..40_u8, 0..2_000_000_u64),
            1..300,
        ),
    ) {
        let mut limit = ByteLimit::starting_at(start);
        let (mut device, mut now) = (VecDeque::new(), us(0));
        let (mut largest, mut most) = (0, 0);
        for (bytes, queue, complete, wait) in steps {
            now = now.after(Duration::from_micros(wait));
            for _ in 0..queue {
                if !limit.has_room_behind(0) {
                    proptest::prop_assert!(!device.is_empty());
                    break;
                }
                limit.queue(bytes);
                device.push_back(bytes);
                largest = largest.max(bytes);
                proptest::prop_assert!(limit.in_device() <= limit.limit() + largest);
            }
            let inside: u64 = device.iter().sum();
            proptest::prop_assert_eq!(inside, limit.in_device());
            most = most.max(inside);
            let done: u64 = device.drain(..usize::from(complete).min(device.len())).sum();
            if done > 0 {
                let before = limit.limit();
                limit.complete(now, done);
                let grown = limit.limit().saturating_sub(before);
                // By the bytes of the interval and those over the limit: never by more than that.
                proptest::prop_assert!(grown <= done + most, "by {} of {}", grown, done);
            }
            proptest::prop_assert!(limit.limit() <= TX_BYTES_MAX);
            proptest::prop_assert!(!device.is_empty() || limit.has_room_behind(0));
        }
    }

    /// A device that sends at a constant rate, completes in bursts and always has packets waiting:
    /// after a while it never runs empty, and its queue is bounded by a few bursts.
    #[test]
    fn a_steady_device_is_kept_busy_with_little(
        start in 0..2_000_000_u64,
        packet in 60..9_000_u64,
        // Bytes that the device sends between two polls.
        sends in 1_000..100_000_u64,
    ) {
        let mut limit = ByteLimit::starting_at(start);
        let (mut now, mut device, mut ready) = (us(0), VecDeque::new(), 0);
        let (mut empty, mut most) = (0, 0);
        let polls = 40_000;
        for poll in 0..polls {
            while limit.has_room_behind(0) {
                limit.queue(packet);
                device.push_back(packet);
            }
            now = now.after(Duration::from_millis(1));
            ready += sends;
            let mut done = 0;
            while let Some(&bytes) = device.front() && bytes <= ready {
                ready -= bytes;
                done += bytes;
                device.pop_front();
            }
            let settled = poll > polls / 2;
            if device.is_empty() {
                // It had time to send more.
                empty += u64::from(settled);
                ready = 0;
            }
            if done > 0 {
                limit.complete(now, done);
            }
            if settled {
                most = most.max(limit.in_device());
            }
        }
        // Once a second the limit may be a little too low.
        proptest::prop_assert!(empty * 100 <= polls, "empty {} times", empty);
        proptest::prop_assert!(most <= 4 * (sends + packet), "{} bytes for {}", most, sends);
    }
}
