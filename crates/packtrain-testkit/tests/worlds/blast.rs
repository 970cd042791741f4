//! Application threads that send at saturation through one shared TX queue.

use crate::watched::Watched;
use packtrain::engine::{Action, Session, Snapshot, TxHandle};
use packtrain::policy::dispatch::{Dispatch, RingState};
use packtrain::port::sim::{Far, Sim, SimConfig};
use packtrain::stats::TxSnapshot;
use packtrain::time::Instant;
use packtrain_testkit::rig::{
    Order, Preemptions, Rig, Sender, States, burst, fixed, ms, number, twice, us,
};
use packtrain_testkit::{Costs, TaskTrace, Trace, machine};
use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

const SENDERS: [usize; 3] = [1, 2, 4];

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
struct Blast {
    trace: Trace,
    snapshot: Snapshot,
    sent: u64,
    /// From the first packet to the last one that a device accepted.
    elapsed: Duration,
    /// In which states preempted senders found the ring.
    states: HashSet<RingState>,
}

impl Blast {
    /// Context switches of workers and senders for each packet.
    fn switches(&self) -> f64 {
        let switches: u64 = self.trace.tasks.iter().map(TaskTrace::switches).sum();
        switches as f64 / self.sent as f64
    }

    fn rate(&self) -> f64 {
        self.sent as f64 / self.elapsed.as_secs_f64()
    }

    fn tx(&self) -> TxSnapshot {
        self.snapshot.ports[0].tx[0]
    }

    fn drained(&self) -> u64 {
        let workers = self.snapshot.workers.iter();
        workers.map(|worker| worker.drained).sum()
    }
}

/// So many threads with `packets` each, in bursts of `size`.
fn blast(
    config: &SimConfig,
    costs: Costs,
    dispatch: Dispatch,
    (senders, packets, size): (usize, u64, u64),
    preemptions: Option<Preemptions>,
) -> Blast {
    let mut rig = Rig::new(machine(4), costs, 3);
    let runtime = rig.world.runtime();
    let last = Arc::new(Mutex::new(us(0)));
    let seen = {
        let (last, mut order) = (Arc::clone(&last), Order::default());
        move |packet: &[u8]| {
            order.check(number(packet));
            *last.lock().unwrap() = runtime.now();
        }
    };
    let sim = Sim::alone(config.clone(), Far::Discard, 5);
    let port = Watched(sim, Arc::new(Mutex::new(seen)));
    let session = rig.add(
        Session::on(port).senders(0, senders),
        fixed(dispatch),
        senders,
    );
    let accepted = Rc::new(Cell::new(0));
    let states = States::default();
    for number in 0..senders {
        let session = &rig.sessions[session];
        let mut sender = Sender::new(session, number, packets, size, &accepted);
        if let Some(how) = preemptions {
            sender = sender.preempted(how, number as u64, &states);
        }
        rig.world
            .actor(move |now, waker| sender.run(now, waker), None);
    }
    rig.world.run(ms(1000));
    let (trace, mut reports) = rig.end();
    let snapshot = reports.remove(0).snapshot;
    let (ledger, sent) = (&snapshot.ledger, accepted.get());
    assert_eq!(sent, packets * senders as u64);
    assert_eq!((ledger.generated, ledger.transmitted), (sent, sent));
    let elapsed = last.lock().unwrap().since(us(0));
    Blast {
        trace,
        snapshot,
        sent,
        elapsed,
        states: states.take(),
    }
}

/// Direct, deferred, abdicate, threshold, adaptive.
fn every_mode(
    config: &SimConfig,
    costs: Costs,
    how: (usize, u64, u64),
    preemptions: Option<Preemptions>,
) -> [Blast; 5] {
    [
        Dispatch::Direct,
        Dispatch::Deferred,
        Dispatch::Abdicate,
        Dispatch::Threshold(8),
        Dispatch::Adaptive,
    ]
    .map(|dispatch| twice(|| blast(config, costs, dispatch, how, preemptions)))
}

/// A device that is faster than its producers.
#[test]
fn a_fast_device() {
    for senders in SENDERS {
        let how = (senders, 1024, 32);
        let blasts = every_mode(&SimConfig::default(), Costs::default(), how, None);
        let [direct, deferred, abdicate, threshold, adaptive] = &blasts;
        for blast in [direct, adaptive] {
            assert!(blast.switches() < 0.02, "{}", blast.switches());
            assert_eq!(blast.tx().wakeups, 0);
        }
        for blast in [deferred, abdicate] {
            assert_eq!(blast.drained(), blast.sent, "the TX worker drains");
            assert_eq!(blast.tx().direct, 0);
        }
        assert!(threshold.tx().direct > 0, "32 packets are more than 8");
        assert!(adaptive.rate() >= direct.rate());
    }
}

/// A device that sends so many packets in a second, fewer than its producers.
fn slow(rate: u64) -> (SimConfig, Costs) {
    let config = SimConfig {
        rate: Some(rate),
        ..SimConfig::default()
    };
    // About the pause between two polls of a thread that waits for space.
    let costs = Costs {
        step: Duration::from_micros(2),
        ..Costs::default()
    };
    (config, costs)
}

/// A full device is given nothing until a quarter of its 512 descriptors is free: so long.
fn quarter(rate: u64) -> Duration {
    Duration::from_secs(1) * 128 / rate as u32
}

#[test]
fn a_slow_device() {
    const RATE: u64 = 1_000_000;
    let (config, costs) = slow(RATE);
    for senders in SENDERS {
        let packets = 4096 / senders as u64;
        let blasts = every_mode(&config, costs, (senders, packets, 32), None);
        let [direct, .., adaptive] = &blasts;
        for blast in [direct, adaptive] {
            assert!(blast.switches() < 0.02, "{}", blast.switches());
        }
        for blast in &blasts {
            assert!(blast.rate() > 0.95e6, "{}", blast.rate());
        }
        assert!(adaptive.elapsed <= direct.elapsed + quarter(RATE));
    }
}

/// Only the TX worker restarts a stalled queue, once for a quarter of the device's descriptors.
#[test]
fn single_packets_for_a_slow_device() {
    for rate in [100_000, 250_000] {
        let (config, costs) = slow(rate);
        for dispatch in [Dispatch::Direct, Dispatch::Adaptive] {
            let blast = twice(|| blast(&config, costs, dispatch, (1, 2048, 1), None));
            assert!(blast.switches() < 0.02, "{dispatch}: {}", blast.switches());
        }
    }
}

/// Each packet arrives once and in order. The ring is in every state.
#[test]
fn producers_that_are_preempted_in_the_middle_of_a_send() {
    let preemptions = Some(Preemptions {
        one_in: 8,
        longest: Duration::from_micros(300),
    });
    let mut states = HashSet::new();
    for (config, costs) in [
        (SimConfig::default(), Costs::default()),
        slow(1_000_000),
        slow(100_000),
    ] {
        for how in [(2, 1024, 32), (4, 512, 8), (4, 128, 1)] {
            for blast in every_mode(&config, costs, how, preemptions) {
                assert_eq!(blast.snapshot.drops.total(), 0);
                states.extend(blast.states);
            }
        }
    }
    assert_eq!(states.len(), 5, "{states:?}");
}

/// A producer that sends while another thread drains: one packet for each that the device accepts.
struct Nested {
    handle: Option<TxHandle>,
    next: u64,
    /// The next numbers of both producers.
    expected: [u64; 2],
}

/// Numbers of the nested producer.
const NESTED: u64 = 1 << 32;

impl Nested {
    fn seen(&mut self, packet: &[u8]) {
        let number = number(packet);
        let [own, other] = &mut self.expected;
        let expected = if number < NESTED { other } else { own };
        assert_eq!(
            number, *expected,
            "each producer's packets keep their order"
        );
        *expected += 1;
        if let Some(handle) = self.handle.as_mut().filter(|_| self.next < NESTED + 10_000) {
            let mut burst = burst(handle, self.next..self.next + 1);
            // A full ring is full for the others too.
            self.next += handle.try_send(&mut burst).unwrap_or(0) as u64;
        }
    }
}

/// The first producer's budget is used up, and the TX worker takes over.
#[test]
fn a_producer_that_drains_for_another_one_abdicates() {
    for dispatch in [Dispatch::Direct, Dispatch::Adaptive, Dispatch::Threshold(1)] {
        let (_, snapshot) = twice(|| {
            let mut rig = Rig::new(machine(3), Costs::default(), 1);
            let nested = Arc::new(Mutex::new(Nested {
                handle: None,
                next: NESTED,
                expected: [NESTED, 0],
            }));
            let seen = {
                let nested = Arc::clone(&nested);
                move |packet: &[u8]| nested.lock().unwrap().seen(packet)
            };
            let sim = Sim::alone(SimConfig::default(), Far::Discard, 5);
            let port = Watched(sim, Arc::new(Mutex::new(seen)));
            let session = rig.add(Session::on(port).senders(0, 2), fixed(dispatch), 2);
            nested.lock().unwrap().handle = Some(rig.handle(session, 0));
            let mut handle = rig.handle(session, 0);
            let mut sent = 0;
            let sender = move |now: Instant, _: &Waker| {
                if now < ms(1) {
                    // The TX worker sleeps by then.
                    let until = Some(ms(1));
                    return Action::Sleep { until };
                }
                if sent == 100 {
                    return Action::Done;
                }
                let mut burst = burst(&handle, sent..sent + 1);
                sent += handle.try_send(&mut burst).unwrap_or(0) as u64;
                let until = Some(now.after(Duration::from_micros(10)));
                Action::Sleep { until }
            };
            rig.world.actor(sender, None);
            rig.world.run(ms(10));
            nested.lock().unwrap().handle = None;
            let (trace, mut reports) = rig.end();
            (trace, reports.remove(0).snapshot)
        });
        let ledger = &snapshot.ledger;
        assert_eq!((ledger.generated, ledger.transmitted), (10_100, 10_100));
        let tx = snapshot.ports[0].tx[0];
        assert!(tx.abdications > 0, "{dispatch}: {tx:?}");
        assert_eq!(tx.wakeups, 1, "{dispatch}: the TX worker goes on by itself");
        let drained: u64 = snapshot.workers.iter().map(|worker| worker.drained).sum();
        let least = match dispatch {
            // The producer claims the ring again where the TX worker has abdicated.
            Dispatch::Direct => 4_000,
            _ => 9_000,
        };
        assert!(drained > least, "{dispatch}: {drained}");
    }
}
