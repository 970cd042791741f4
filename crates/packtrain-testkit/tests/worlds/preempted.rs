//! Producers that are preempted in the middle of a send, at known times.

use crate::watched::Watched;
use packtrain::driver::Port;
use packtrain::engine::{Action, Session, Settings, Snapshot, TxHandle};
use packtrain::policy::dispatch::{BUDGET, Dispatch, RingState};
use packtrain::policy::idle::Idle;
use packtrain::port::sim::{Far, Sim, SimConfig};
use packtrain::stats::DropReason;
use packtrain::time::Instant;
use packtrain_testkit::rig::{Order, Producer, Rig, fixed, number, twice, us};
use packtrain_testkit::{Costs, Hardware, Trace, machine};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

/// Modes in which a producer that finds the ring idle drains.
const DRAINS: [Dispatch; 3] = [Dispatch::Direct, Dispatch::Threshold(1), Dispatch::Adaptive];

const MODES: [Dispatch; 5] = [
    Dispatch::Direct,
    Dispatch::Threshold(1),
    Dispatch::Adaptive,
    Dispatch::Deferred,
    Dispatch::Abdicate,
];

/// What a thread does at its time.
#[derive(Clone, Copy)]
enum Act {
    /// Sends so many packets.
    Send(u64),
    /// The same, and is preempted in the middle.
    Begin(u64),
    /// Goes on.
    Finish,
}
use Act::{Begin, Finish, Send};

/// What the device has accepted: when, and which numbers.
type Seen = Arc<Mutex<Vec<(Instant, u64)>>>;

/// A session on a device with two queue pairs, and some threads that send to the first one.
struct Scene {
    rig: Rig,
    handle: TxHandle,
    threads: u64,
    seen: Seen,
    /// The state of the ring after each act.
    states: Rc<RefCell<Vec<RingState>>>,
}

/// What a scene came to.
#[derive(Debug, PartialEq)]
struct Outcome {
    trace: Trace,
    /// When the last worker ended.
    ended: Instant,
    snapshot: Snapshot,
    /// The thread of each packet that the device accepted, once for packets in a row.
    threads: Vec<u64>,
    /// When it accepted the last one.
    last: Instant,
    states: Vec<RingState>,
}

impl Outcome {
    fn transmitted(&self) -> u64 {
        self.snapshot.ledger.transmitted
    }

    /// Packets that the TX worker took out of the ring.
    fn drained(&self) -> u64 {
        let workers = self.snapshot.workers.iter();
        workers.map(|worker| worker.drained).sum()
    }
}

impl Scene {
    /// A thread acts at its time, to the nanosecond. The TX worker runs 20 us after the end of the
    /// step that notifies it.
    fn new(dispatch: Dispatch) -> Self {
        let costs = Costs {
            interrupt: Duration::from_micros(20),
            idle_exit: Duration::ZERO,
            ..Costs::default()
        };
        Self::with(machine(8), costs, fixed(dispatch))
    }

    fn with(machine: Hardware, costs: Costs, settings: Settings) -> Self {
        let mut rig = Rig::new(machine, costs, 0);
        let (seen, runtime) = (Seen::default(), rig.world.runtime());
        let watch = {
            let (seen, mut order) = (Arc::clone(&seen), Order::default());
            move |packet: &[u8]| {
                let number = number(packet);
                order.check(number);
                seen.lock().unwrap().push((runtime.now(), number));
            }
        };
        let config = SimConfig {
            queues: 2,
            ..SimConfig::default()
        };
        let sim = Sim::alone(config, Far::Discard, 1);
        let mut port = Port::from(Watched(sim, Arc::new(Mutex::new(watch))));
        port.config.queues = Some(2);
        let session = rig.add(Session::on(port).senders(0, 4), settings, 4);
        let handle = rig.handle(session, 0);
        Self {
            rig,
            handle,
            threads: 0,
            seen,
            states: Rc::default(),
        }
    }

    /// Adds a thread that acts at these microseconds.
    fn thread(&mut self, acts: &[(u64, Act)]) {
        let mut producer = Producer::new(self.handle.clone(), self.threads << 32);
        self.threads += 1;
        let (acts, states) = (acts.to_vec(), Rc::clone(&self.states));
        let mut next = 0;
        let run = move |now: Instant, _: &Waker| {
            let Some(&(at, act)) = acts.get(next) else {
                return Action::Done;
            };
            if now < us(at) {
                let until = Some(us(at));
                return Action::Sleep { until };
            }
            next += 1;
            match act {
                Send(packets) => {
                    producer.fill(packets);
                    assert_eq!(producer.send(), Ok(packets as usize));
                }
                Begin(packets) => {
                    producer.fill(packets);
                    assert!(producer.begin(), "there is space");
                }
                Finish => {
                    let packets = producer.burst.len();
                    assert_eq!(producer.send(), Ok(packets));
                }
            }
            states.borrow_mut().push(producer.handle.ring_state());
            Action::Step
        };
        self.rig.world.actor(run, None);
    }

    fn state(&self) -> RingState {
        self.handle.ring_state()
    }

    /// Packets that the device has accepted.
    fn seen(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// Steps that the workers take until then.
    fn steps(&mut self, until: u64) -> u64 {
        let steps = |rig: &Rig| {
            let workers = rig.sessions[0].snapshot().workers.into_iter();
            workers.map(|worker| worker.steps).sum::<u64>()
        };
        let before = steps(&self.rig);
        self.rig.world.run(us(until));
        steps(&self.rig) - before
    }

    /// Stops the session now.
    fn end(self) -> Outcome {
        let workers = self.rig.workers.clone();
        let (trace, mut reports) = self.rig.end();
        let ended = workers.into_iter().map(|task| trace.tasks[task].ended);
        let ended = ended.max().flatten().expect("the workers have ended");
        let seen = self.seen.lock().unwrap();
        let mut threads: Vec<_> = seen.iter().map(|(_, number)| number >> 32).collect();
        threads.dedup();
        Outcome {
            ended,
            trace,
            snapshot: reports.remove(0).snapshot,
            threads,
            last: seen.last().map_or(us(0), |&(at, _)| at),
            states: self.states.take(),
        }
    }
}

/// Thread 1 is preempted until `until`, before it has published its three slots. The packet of
/// thread 0 is in front of them, two packets of thread 2 are behind them.
fn gap(dispatch: Dispatch, until: u64) -> Scene {
    let mut scene = Scene::new(dispatch);
    scene.thread(&[(1000, Begin(1)), (1100, Finish)]);
    scene.thread(&[(1050, Begin(3)), (until, Finish)]);
    scene.thread(&[(1500, Send(2))]);
    scene
}

/// Only the TX worker retries, each 50 us. Nothing overtakes the slots.
#[test]
fn slots_that_are_not_published_are_a_gap() {
    for dispatch in MODES {
        let outcome = twice(|| {
            let mut scene = gap(dispatch, 2_120);
            scene.rig.world.run(us(1_600));
            for until in [1_700, 1_900, 2_100] {
                assert_eq!(scene.state(), RingState::Gap, "{dispatch}");
                assert_eq!(scene.seen(), 1, "{dispatch}");
                let from = scene.rig.world.now();
                let retries = us(until).since(from).as_micros() as u64 / 50;
                let steps = scene.steps(until);
                assert!(steps.abs_diff(retries) <= 1, "{dispatch}: {steps}");
            }
            scene.rig.world.run(us(2_200));
            assert_eq!(scene.state(), RingState::Idle, "{dispatch}");
            scene.end()
        });
        assert_eq!(outcome.threads, [0, 1, 2], "{dispatch}");
        assert_eq!(outcome.transmitted(), 6);
        let late = outcome.last.since(us(2_120));
        assert!(late <= Duration::from_micros(51), "{dispatch}: {late:?}");
        // The producer that drained did not wait for the slots.
        let drains = DRAINS.contains(&dispatch);
        assert_eq!(outcome.drained(), if drains { 5 } else { 6 });
    }
}

/// A producer that finds the ring busy leaves its packets to the consumer, which was preempted.
#[test]
fn a_consumer_that_is_preempted_keeps_the_ring_busy() {
    for dispatch in DRAINS {
        let outcome = twice(|| {
            let mut scene = Scene::new(dispatch);
            scene.thread(&[(1000, Begin(1)), (3000, Finish)]);
            scene.thread(&[(1100, Send(2))]);
            scene.thread(&[(1200, Send(64))]);
            scene.rig.world.run(us(2_900));
            assert_eq!((scene.state(), scene.seen()), (RingState::Busy, 0));
            scene.rig.world.run(us(3_100));
            scene.end()
        });
        assert_eq!(outcome.threads, [0, 1, 2], "{dispatch}");
        let [.., last] = outcome.states[..] else {
            panic!("four acts");
        };
        assert_eq!(last, RingState::Idle, "{dispatch}");
        let tx = outcome.snapshot.ports[0].tx[0];
        assert_eq!((tx.direct, tx.deferred), (1, 2), "{dispatch}");
        assert_eq!((tx.wakeups, outcome.drained()), (0, 0), "{dispatch}");
        assert_eq!(outcome.transmitted(), 67);
    }
}

/// 320 packets come while the consumer is preempted. It drains 256, the TX worker the others.
#[test]
fn a_consumer_that_was_preempted_uses_up_its_budget() {
    for dispatch in DRAINS {
        let outcome = twice(|| {
            let mut scene = Scene::new(dispatch);
            scene.thread(&[(1000, Begin(1)), (3000, Finish)]);
            scene.thread(&[1100, 1110, 1120, 1130, 1140].map(|at| (at, Send(64))));
            scene.rig.world.run(us(3_200));
            assert_eq!(scene.state(), RingState::Idle, "{dispatch}");
            scene.end()
        });
        assert_eq!(outcome.states.last(), Some(&RingState::Abdicated));
        let tx = outcome.snapshot.ports[0].tx[0];
        assert_eq!((tx.abdications, tx.wakeups), (1, 1), "{dispatch}");
        assert_eq!(outcome.drained(), 320 - BUDGET as u64, "{dispatch}");
        assert_eq!(outcome.transmitted(), 321);
        assert_eq!(outcome.threads, [0, 1]);
    }
}

/// The TX worker is notified and finds the ring busy again. It sets ATTENTION: until it has had the
/// role, producers enqueue, and the preempted consumer abdicates though it leaves nothing.
#[test]
fn a_tx_worker_that_finds_a_preempted_consumer_is_the_next_one() {
    for dispatch in [Dispatch::Direct, Dispatch::Threshold(1)] {
        let outcome = twice(|| {
            let mut scene = Scene::new(dispatch);
            // It abdicates. The TX worker runs 20 us after the end of that step.
            scene.thread(&[(1000, Begin(1)), (1200, Finish)]);
            scene.thread(&[1100, 1110, 1120, 1130, 1140].map(|at| (at, Send(64))));
            // Claims the abdicated ring before that.
            scene.thread(&[(1210, Begin(1)), (1300, Finish)]);
            scene.thread(&[(1280, Send(1)), (1310, Send(1))]);
            scene.rig.world.run(us(1_400));
            assert_eq!(scene.state(), RingState::Idle, "{dispatch}");
            scene.end()
        });
        use RingState::{Abdicated, Busy};
        let after = &outcome.states[outcome.states.len() - 5..];
        assert_eq!(after, [Abdicated, Busy, Busy, Abdicated, Abdicated]);
        let tx = outcome.snapshot.ports[0].tx[0];
        assert_eq!((tx.direct, tx.deferred), (2, 7), "{dispatch}");
        // The consumer took all others.
        assert_eq!(outcome.drained(), 1, "{dispatch}");
        assert_eq!(tx.wakeups, 2, "{dispatch}");
        assert_eq!(outcome.transmitted(), 1 + 320 + 1 + 2);
        assert_eq!(outcome.threads, [0, 1, 2, 3], "{dispatch}");
    }
}

/// The worker that drains the ring also has lanes, and never sleeps. It gives the ring back once it
/// finds it empty, and then producers drain again.
#[test]
fn a_worker_that_polls_lanes_gives_an_adaptive_ring_back() {
    for dispatch in [Dispatch::Adaptive, Dispatch::Direct] {
        let outcome = twice(|| {
            let costs = Costs {
                step: Duration::from_micros(2),
                ..Costs::default()
            };
            let settings = Settings {
                idle: Idle::Poll,
                ..fixed(dispatch)
            };
            let mut scene = Scene::with(machine(2), costs, settings);
            assert_eq!(scene.rig.workers.len(), 2, "of four parts");
            scene.thread(&[(1_000, Begin(1)), (40_000, Finish)]);
            scene.thread(&[10_000, 11_000, 12_000, 13_000, 14_000].map(|at| (at, Send(64))));
            scene.thread(&[60_000, 70_000, 80_000].map(|at| (at, Send(1))));
            scene.rig.world.run(us(100_000));
            assert_eq!(scene.state(), RingState::Idle, "{dispatch}");
            scene.end()
        });
        let tx = outcome.snapshot.ports[0].tx[0];
        assert_eq!((tx.abdications, outcome.drained()), (1, 64), "{dispatch}");
        assert_eq!((tx.direct, tx.deferred), (1 + 3, 5), "{dispatch}");
        assert_eq!(outcome.transmitted(), 1 + 320 + 3);
    }
}

/// The stop comes at 1,600 us. The run ends when the producer has gone on.
#[test]
fn a_stop_waits_for_a_preempted_producer() {
    const ON: u64 = 1_000_000;
    for dispatch in MODES {
        let outcome = twice(|| {
            let mut scene = gap(dispatch, ON);
            scene.rig.world.run(us(1_600));
            scene.end()
        });
        assert_eq!(outcome.transmitted(), 6, "{dispatch}");
        assert_eq!(outcome.snapshot.drops.total(), 0, "{dispatch}");
        assert_eq!(outcome.threads, [0, 1, 2], "{dispatch}");
        ends(&outcome, us(ON));
    }
    for dispatch in DRAINS {
        let outcome = twice(|| claimed_at_stop(dispatch, ON));
        assert_eq!(outcome.transmitted(), 3, "{dispatch}");
        assert_eq!(outcome.snapshot.drops.total(), 0, "{dispatch}");
        ends(&outcome, us(ON));
    }
}

/// The producer goes on later than two seconds after the stop.
#[test]
fn a_stop_drops_what_a_preempted_producer_publishes_too_late() {
    const ON: u64 = 2_001_900;
    for dispatch in MODES {
        let outcome = twice(|| {
            let mut scene = gap(dispatch, ON);
            scene.rig.world.run(us(1_600));
            scene.end()
        });
        let dropped = outcome.snapshot.drops.get(DropReason::Shutdown);
        assert_eq!((outcome.transmitted(), dropped), (1, 5), "{dispatch}");
        ends(&outcome, us(ON));
    }
    // A consumer still gives the packets to the device.
    for dispatch in DRAINS {
        let outcome = twice(|| claimed_at_stop(dispatch, ON));
        assert_eq!(outcome.transmitted(), 3, "{dispatch}");
        assert_eq!(outcome.snapshot.drops.total(), 0, "{dispatch}");
        ends(&outcome, us(ON));
    }
}

/// A thread has the consumer role at the stop, and goes on at `on`.
fn claimed_at_stop(dispatch: Dispatch, on: u64) -> Outcome {
    let mut scene = Scene::new(dispatch);
    scene.thread(&[(1000, Begin(1)), (on, Finish)]);
    scene.thread(&[(1100, Send(2))]);
    scene.rig.world.run(us(1_600));
    assert_eq!(scene.state(), RingState::Busy, "{dispatch}");
    scene.end()
}

/// The last worker ends within 60 us after `on`: a retry, or a notification.
fn ends(outcome: &Outcome, on: Instant) {
    let last = outcome.ended;
    let late = last.since(on);
    assert!(last >= on && late <= Duration::from_micros(60), "{late:?}");
}
