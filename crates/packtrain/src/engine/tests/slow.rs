//! An asynchronous device that is slower than its source wakes its worker rarely, on both paths.

use super::fake::Queue;
use super::rig::{Rig, Setup, is_owned};
use crate::engine::Action;
use crate::limits::{TX_RECLAIM_PACKETS, TX_REST_MAX};
use crate::time::Instant;
use std::time::Duration;

/// The least number of frames for each sleep at saturation, by the number of workers. On a shared
/// path the lane and the TX worker wait for each other.
const FRAMES_PER_SLEEP: [u64; 2] = [50, 20];

/// A device that needs the same time for each packet, from port a to port b.
struct Slow {
    rig: Rig,
    device: Queue,
    each: Duration,
    /// When the device completes its next packet.
    due: Option<Instant>,
    /// Times that the device ran empty.
    dry: usize,
    done: usize,
}

impl Slow {
    fn new(setup: &Setup, counts: bool, each_ns: u64) -> Self {
        let rig = setup.forward();
        let device = rig.b[0].clone();
        (device.tx().keeps, device.tx().counts) = (true, counts);
        Self {
            rig,
            device,
            each: Duration::from_nanos(each_ns),
            due: None,
            dry: 0,
            done: 0,
        }
    }

    fn in_device(&self) -> usize {
        let tx = self.device.tx();
        tx.kept.len() - tx.complete
    }

    /// Advances the time to the next event: the end of a worker's sleep, or a completion of the
    /// device. Returns false if there is none.
    fn pass(&mut self) -> bool {
        let until = self.rig.settle();
        if self.due.is_none() && self.in_device() > 0 {
            self.due = Some(self.rig.now().after(self.each));
        }
        let Some(next) = until.into_iter().chain(self.due).min() else {
            return false;
        };
        let wait = next.since(self.rig.now());
        self.rig.advance(wait);
        if self.due.is_some_and(|due| due <= next) {
            self.done += 1;
            self.device.complete(1);
            let left = self.in_device();
            self.dry += usize::from(left == 0);
            self.due = (left > 0).then(|| next.after(self.each));
        }
        true
    }

    fn sleeps(&self) -> u64 {
        self.rig.closed().sleeps
    }
}

#[test]
fn a_full_device_wakes_its_worker_once_for_many_packets() {
    for (path, setup) in Setup::new([1, 1]).on_every_path() {
        for (counts, each_ns) in [(true, 12_300), (true, 1000), (false, 12_300), (false, 1000)] {
            let name = format!("{path}, counts: {counts}, {each_ns} ns");
            let mut slow = Slow::new(&setup, counts, each_ns);
            let mut arrived = 0;
            while slow.done < 8_000 {
                let source = slow.rig.a[0].clone();
                if source.rx().items.len() < 1000 {
                    source.arrive(arrived..arrived + 1000);
                    arrived += 1000;
                }
                assert!(slow.pass(), "{name}: the workers sleep for ever");
            }
            let (sleeps, done) = (slow.sleeps(), slow.done as u64);
            let frames = FRAMES_PER_SLEEP[slow.rig.workers.len() - 1];
            assert!(sleeps * frames < done, "{name}: {sleeps} for {done}");
            assert_eq!(slow.dry, 0, "{name}");
            assert_eq!(slow.rig.tx().missed_wakeups, 0, "{name}");
        }
    }
}

/// Each packet finds the device idle, and is complete before the next one arrives.
#[test]
fn one_packet_at_a_time_wakes_no_worker_for_its_completion() {
    for (path, setup) in Setup::new([1, 1]).on_every_path() {
        let mut slow = Slow::new(&setup, true, 12_300);
        slow.rig.settle();
        for number in 0..500 {
            slow.rig.a[0].arrive([number]);
            let end = slow.rig.now().after(Duration::from_millis(1));
            slow.rig.settle();
            // Earlier packets were reclaimed; a producer that drains reclaims them in batches.
            let most = if is_owned(&path) {
                2
            } else {
                TX_RECLAIM_PACKETS + 2
            };
            assert!(slow.device.tx().kept.len() <= most, "{path}");
            let wakeups = slow.rig.closed().ports[1].tx[0].wakeups;
            slow.device.complete(1);
            let tx = slow.rig.closed().ports[1].tx[0];
            assert_eq!(tx.wakeups, wakeups, "{path}, packet {number}");
            let left = end.since(slow.rig.now());
            slow.rig.advance(left);
        }
        let device = slow.device.clone();
        slow.rig.pass_until(|_| device.tx().kept.is_empty());
        assert_eq!(slow.rig.tx().missed_wakeups, 0, "{path}");
    }
}

/// Many completed packets are collected sooner, since they use buffers.
#[test]
fn many_completed_packets_are_collected_soon() {
    let mut slow = Slow::new(&Setup::new([1, 1]), false, 1000);
    slow.rig.a[0].arrive(0..200);
    slow.rig.settle();
    slow.device.complete(200);
    let device = slow.device.clone();
    let took = slow.rig.pass_until(|_| device.tx().kept.is_empty());
    assert!(took <= TX_REST_MAX, "{took:?}");
    assert_eq!(slow.rig.said(0), Action::Sleep { until: None });
}
