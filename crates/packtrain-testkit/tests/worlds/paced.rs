//! Application threads that send single packets: as fast as they can, and at a constant rate.

use crate::watched::Watched;
use packtrain::engine::{Action, Session, Settings};
use packtrain::policy::dispatch::Dispatch;
use packtrain::port::sim::{Far, Sim, SimConfig};
use packtrain::time::Instant;
use packtrain_testkit::rig::{Rig, burst, fixed, ms, number, twice, us};
use packtrain_testkit::{Costs, Hardware, machine};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

/// At most one wake-up in ten million packets: none in as many as a test has time for.
#[test]
fn a_direct_producer_of_single_packets_wakes_no_worker() {
    const PACKETS: u64 = 1_000_000;
    // A device that is done at once, and one that completes packets later.
    for rate in [None, Some(10_000_000)] {
        let config = SimConfig {
            rate,
            ..SimConfig::default()
        };
        let mut rig = Rig::new(machine(2), Costs::default(), 1);
        let port = Sim::alone(config, Far::Discard, 1);
        let session = rig.add(Session::on(port).senders(0, 1), fixed(Dispatch::Direct), 1);
        let (mut handle, mut sent) = (rig.handle(session, 0), 0);
        let sender = move |now: Instant, _: &Waker| {
            if now < ms(1) {
                // The workers sleep by then.
                let until = Some(ms(1));
                return Action::Sleep { until };
            }
            for _ in 0..8 {
                let mut burst = burst(&handle, sent..sent + 1);
                assert_eq!(handle.try_send(&mut burst), Ok(1));
                sent += 1;
            }
            match sent < PACKETS {
                true => Action::Step,
                false => Action::Done,
            }
        };
        let sender = rig.world.actor(sender, None);
        let trace = rig.world.run(ms(1_000));
        assert!(trace.tasks[sender].ended.is_some());
        for &worker in &rig.workers {
            let task = &trace.tasks[worker];
            assert_eq!((task.sleeps, task.wakeups), (1, 0), "{rate:?}: {task:?}");
        }
        let (_, reports) = rig.end();
        let snapshot = &reports[0].snapshot;
        assert_eq!(snapshot.ledger.transmitted, PACKETS);
        let tx = snapshot.ports[0].tx[0];
        assert_eq!((tx.direct, tx.wakeups), (PACKETS, 0), "{rate:?}");
    }
}

/// Packets a second that the device sends.
const SATURATION: u64 = 1_000_000;
/// Packets of each run.
const PACKETS: u64 = 1_000;

/// Senders, and percent of saturation.
const SITUATIONS: [(u64, u64); 9] = [
    (1, 25),
    (1, 50),
    (1, 75),
    (2, 25),
    (2, 50),
    (2, 75),
    (4, 25),
    (4, 50),
    (4, 75),
];

/// The time from when each packet is due until the device accepts it, in order. The packets of all
/// senders together come at `percent` of saturation.
fn latencies(machine: Hardware, settings: &Settings, senders: u64, percent: u64) -> Vec<Duration> {
    // The pause between two polls of the time.
    let costs = Costs {
        step: Duration::from_nanos(500),
        ..Costs::default()
    };
    let mut rig = Rig::new(machine, costs, 1);
    let (runtime, all) = (rig.world.runtime(), Arc::new(Mutex::new(Vec::new())));
    let seen = {
        let all = Arc::clone(&all);
        move |packet: &[u8]| {
            let due = Instant::from_nanos(number(packet));
            all.lock().unwrap().push(runtime.now().since(due));
        }
    };
    let config = SimConfig {
        rate: Some(SATURATION),
        ..SimConfig::default()
    };
    let port = Watched(
        Sim::alone(config, Far::Discard, 1),
        Arc::new(Mutex::new(seen)),
    );
    let builder = Session::on(port).senders(0, senders as usize);
    let session = rig.add(builder, settings.clone(), senders as usize);
    let has_cpu = machine.cpus > senders as usize;
    for sender in 0..senders {
        let mut handle = rig.handle(session, 0);
        let period = Duration::from_nanos(100 * 1_000_000_000 * senders / percent / SATURATION);
        // The senders alternate.
        let mut due = us(100).after(period * sender as u32 / senders as u32);
        let mut left = PACKETS / senders;
        let run = move |now: Instant, _: &Waker| {
            if now < due {
                // A timer is late by what an idle CPU needs. A sender with a CPU of its own polls.
                let polls = has_cpu && due.since(now) < Duration::from_micros(10);
                return match polls {
                    true => Action::Spin,
                    false => Action::Sleep { until: Some(due) },
                };
            }
            let mut burst = burst(&handle, [due.as_nanos()].into_iter());
            assert_eq!(handle.try_send(&mut burst), Ok(1));
            due = due.after(period);
            left -= 1;
            match left {
                0 => Action::Done,
                _ => Action::Step,
            }
        };
        rig.world.actor(run, None);
    }
    rig.world.run(ms(50));
    let (_, reports) = rig.end();
    assert_eq!(reports[0].snapshot.ledger.transmitted, PACKETS);
    let mut all = std::mem::take(&mut *all.lock().unwrap());
    all.sort_unstable();
    all
}

/// Over all situations, `adaptive` adds at most a tenth to what 99 of 100 packets wait at most.
#[test]
fn adaptive_adds_no_latency_to_paced_traffic() {
    let p99 = |settings: &Settings| {
        let mut sum = Duration::ZERO;
        // With two CPUs, senders and workers wait for each other.
        for machine in [machine(2), machine(8)] {
            for (senders, percent) in SITUATIONS {
                let all = twice(|| latencies(machine, settings, senders, percent));
                sum += all[all.len() * 99 / 100];
            }
        }
        sum
    };
    let (adaptive, direct) = (p99(&Settings::default()), p99(&fixed(Dispatch::Direct)));
    assert!(adaptive <= direct * 11 / 10, "{adaptive:?} and {direct:?}");
}
