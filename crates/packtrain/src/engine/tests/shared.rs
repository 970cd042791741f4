//! A shared TX queue with a real ring: what the producer does in each state, and what the TX worker
//! then does.

use super::fake::{FakeTx, Queue};
use super::rig::{POLICIES, Virtual, burst, with_senders};
use crate::driver::{Capabilities, Features};
use crate::engine::intake::Intake;
use crate::engine::shared::{Producer, Role, SharedTx, Submit, TxConsumer};
use crate::engine::shell::Shell;
use crate::engine::stats::PathStats;
use crate::engine::tx_part::TxPart;
use crate::engine::worker::{Worker, WorkerPart};
use crate::engine::{Action, TrySendError};
use crate::limits::{RING_SLOTS_PER_LANE, SEGMENTS_MAX, TX_RING_PACKETS};
use crate::packet::{Arena, ArenaConfig, Burst, Packet};
use crate::plan::FitLimits;
use crate::policy::dispatch::{BUDGET, Decision, Dispatch, RingState};
use crate::policy::idle::{Idle, Idler};
use crate::queue::TxQueue;
use crate::queue::ring::{Ended, ProducerKind, Put, Reservation};
use crate::runtime::{Interrupt, Runtime, Wakeup};
use crate::stats::{DropCounters, QueueId, SubmitSnapshot, TxCounters};
use crate::time::Clock;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

/// One queue, its TX worker, and a producer.
struct Bench {
    shared: Arc<Shared>,
    device: Queue,
    worker: Worker,
    own: Producer,
    arena: Arena,
    runtime: Arc<Virtual>,
}

type Shared = SharedTx<FakeTx>;
type Slot<'a> = Reservation<'a, Packet, TxConsumer<FakeTx>>;

impl Bench {
    fn new(dispatch: Dispatch) -> Self {
        let arena = Arena::new(ArenaConfig::small()).unwrap();
        let device = Queue::default();
        device.tx().room = usize::MAX;
        let capabilities = Capabilities {
            tx_segments_max: SEGMENTS_MAX,
            ..Capabilities::default()
        };
        let drops = Arc::<DropCounters>::default();
        let mut tx = TxQueue::new(
            device.half(),
            arena.clone(),
            Features::NONE,
            FitLimits::new(&capabilities, None),
            None,
            Arc::new(TxCounters::new(QueueId::default())),
            Arc::clone(&drops),
        );
        let runtime = Virtual::new(2);
        let wakeup = Arc::new(Wakeup::new(runtime.notifier().unwrap()));
        let interrupt = Interrupt::new(&wakeup);
        tx.set_interrupt(Waker::from(Arc::clone(&interrupt)));
        let stats = Arc::<PathStats>::default();
        let to = Arc::clone(&wakeup);
        let slots = TX_RING_PACKETS;
        let shared = Arc::new(SharedTx::new(tx, drops, dispatch, slots, false, to, stats));
        let part = TxPart::new(Arc::clone(&shared), interrupt, None, false, Arc::default());
        let placed = WorkerPart {
            part: Box::new(part),
            queues: Vec::new(),
        };
        let over = runtime.notifier().unwrap();
        let intake = Arc::new(Intake::new(None, 0, vec![Arc::clone(&wakeup)], over));
        let shell = Shell::new(Idler::new(Idle::Halt));
        let mut bench = Self {
            worker: Worker::new(vec![placed], wakeup, shell, intake, Arc::default()),
            own: Submit::enter(&*shared),
            shared,
            device,
            arena,
            runtime,
        };
        bench.sleep();
        bench
    }

    fn run(&mut self) -> Action {
        self.worker.run(self.runtime.now()).unwrap()
    }

    /// Runs the worker until it sleeps.
    fn sleep(&mut self) {
        for _ in 0..100 {
            if matches!(self.run(), Action::Sleep { .. }) {
                return;
            }
        }
        panic!("the worker does not sleep");
    }

    fn put(&self, numbers: Range<u32>) {
        let mut packets = burst(&self.arena, numbers);
        let now = || self.runtime.now();
        self.shared.put(&self.own, &mut packets, &now).unwrap();
        assert!(packets.is_empty());
    }

    fn enqueue(&self, number: u32) {
        enqueue(&self.shared, burst(&self.arena, [number]));
    }

    /// Publishes packet 0 in its slot.
    fn publish(&self, slot: Slot<'_>) {
        let put = slot.publish(burst(&self.arena, [0]).batch(), |_, _| {});
        assert!(matches!(put, Put::Enqueued { .. }));
    }

    fn counts(&self) -> SubmitSnapshot {
        self.shared.stats.snapshot().producers
    }

    fn state(&self) -> RingState {
        self.shared.ring.state()
    }
}

/// Puts packets into the ring in any mode, and notifies no thread.
fn enqueue(shared: &Shared, mut packets: Burst) {
    let (from, decide) = (ProducerKind::Application, |_| Decision::Enqueue);
    let put = shared.ring.put(packets.batch(), from, decide, |_, _| ());
    assert!(matches!(put, Put::Enqueued { .. }));
}

/// Reserves a slot, as a producer does that is preempted before it publishes.
fn reserve(shared: &Shared) -> Slot<'_> {
    let (from, decide) = (ProducerKind::Application, |_| Decision::Enqueue);
    let reserved = shared.ring.reserve(1, from, decide);
    reserved.expect("there is space")
}

/// Gives the consumer role up, which leaves the ring in `state`.
fn release(role: Role<'_, FakeTx>, ended: Ended, state: RingState) {
    assert_eq!(role.release(ended).unwrap().state, state);
}

const STATES: [RingState; 5] = [
    RingState::Idle,
    RingState::Busy,
    RingState::Abdicated,
    RingState::Stalled,
    RingState::Gap,
];

/// The dispatch table in effect: which thread drains, and whether the TX worker is notified.
#[test]
fn a_producer_does_in_each_state_what_the_table_says() {
    for dispatch in POLICIES {
        for state in STATES {
            for batch in [1, 16] {
                let name = format!("{dispatch}, {state:?}, {batch}");
                let mut bench = Bench::new(dispatch);
                let shared = Arc::clone(&bench.shared);
                let mut waiting = 1;
                let (mut role, mut reserved) = (None, None);
                match state {
                    RingState::Idle => waiting = 0,
                    RingState::Gap => {
                        let consumer = shared.ring.claim(|_| true).unwrap();
                        reserved = Some(reserve(&shared));
                        release(consumer, Ended::Gap, state);
                    }
                    state => {
                        let consumer = shared.ring.claim(|_| true).unwrap();
                        bench.enqueue(0);
                        match state {
                            RingState::Abdicated => release(consumer, Ended::Budget, state),
                            RingState::Stalled => release(consumer, Ended::Stalled, state),
                            _ => role = Some(consumer),
                        }
                    }
                }
                let depth = shared.ring.len() as u32 + batch;
                let decision = dispatch.decide(state, depth);
                bench.put(waiting..waiting + batch);
                let counts = bench.counts();
                let drained = u64::from(decision == Decision::Drain);
                assert_eq!(
                    (counts.direct, counts.deferred),
                    (drained, 1 - drained),
                    "{name}"
                );
                let notified = decision == Decision::Notify;
                assert_eq!(bench.runtime.is_rung(0), notified, "{name}");
                assert_eq!(counts.wakeups, u64::from(notified), "{name}");
                let all = (waiting + batch) as usize;
                let sent = if decision == Decision::Drain { all } else { 0 };
                assert_eq!(bench.device.sent().len(), sent, "{name}");
                // No packet is left in the ring, and the order is kept.
                if let Some(slot) = reserved {
                    bench.publish(slot);
                }
                if let Some(role) = role {
                    release(role, Ended::Budget, RingState::Abdicated);
                }
                bench.runtime.advance(Duration::from_secs(1));
                bench.sleep();
                bench.device.assert_sent(0..waiting + batch, &name);
                assert_eq!(bench.state(), RingState::Idle, "{name}");
            }
        }
    }
}

#[test]
fn the_tx_worker_keeps_the_role_until_it_sleeps_but_not_under_direct() {
    for dispatch in POLICIES {
        let mut bench = Bench::new(dispatch);
        let role = bench.shared.ring.claim(|_| true).unwrap();
        bench.enqueue(0);
        release(role, Ended::Budget, RingState::Abdicated);
        let keeps = dispatch != Dispatch::Direct;
        bench.run();
        assert_eq!(bench.device.sent(), [0], "{dispatch}");
        let state = if keeps {
            RingState::Busy
        } else {
            RingState::Idle
        };
        assert_eq!(bench.state(), state, "{dispatch}");
        // A producer defers its packets to a TX worker that is awake, which finds them.
        let before = bench.counts().wakeups;
        bench.put(1..3);
        assert_eq!(bench.counts().wakeups, before, "{dispatch}");
        bench.sleep();
        assert_eq!(bench.device.sent(), [0, 1, 2], "{dispatch}");
        assert_eq!(bench.state(), RingState::Idle, "{dispatch}");
    }
}

/// A producer was preempted between reservation and publication. The TX worker retries after a
/// time, and packets behind the gap keep their order.
#[test]
fn an_unpublished_slot_is_retried_by_the_tx_worker_alone() {
    for dispatch in POLICIES {
        let mut bench = Bench::new(dispatch);
        let shared = Arc::clone(&bench.shared);
        let consumer = shared.ring.claim(|_| true).unwrap();
        let slot = reserve(&shared);
        bench.enqueue(1);
        release(consumer, Ended::Budget, RingState::Abdicated);
        for retry in 0..3 {
            let Action::Sleep { until: Some(until) } = bench.run() else {
                panic!("{dispatch}: the worker does not sleep until its retry");
            };
            assert_eq!(bench.state(), RingState::Gap, "{dispatch}");
            let wait = until.since(bench.runtime.now());
            assert!(wait <= Duration::from_micros(50), "{dispatch}: {wait:?}");
            if retry == 0 {
                bench.put(2..3);
            }
            bench.runtime.advance(wait);
            assert!(bench.device.sent().is_empty(), "{dispatch}");
        }
        bench.publish(slot);
        bench.runtime.advance(Duration::from_micros(50));
        bench.sleep();
        assert_eq!(bench.device.sent(), [0, 1, 2], "{dispatch}");
    }
}

/// Each lane has 64 reserved slots.
#[test]
fn applications_that_fill_the_ring_cannot_stop_a_lane() {
    for lanes in 1..=3 {
        let bench = Bench::new(Dispatch::Deferred);
        let of_lanes: Vec<_> = (0..lanes).map(|_| bench.shared.enter_lane(None)).collect();
        let now = || bench.runtime.now();
        let mut taken = 0;
        let put = |own: &Producer| {
            let mut packets = burst(&bench.arena, 0..8);
            bench.shared.put(own, &mut packets, &now).unwrap();
            8 - packets.len()
        };
        loop {
            let accepted = put(&bench.own);
            taken += accepted;
            if accepted < 8 {
                break;
            }
        }
        let reserved = RING_SLOTS_PER_LANE * lanes;
        assert_eq!(taken, TX_RING_PACKETS - reserved);
        assert!(!bench.shared.has_space(&bench.own));
        for lane in &of_lanes {
            assert!(bench.shared.has_space(lane));
            assert_eq!(
                (0..8).map(|_| put(lane)).sum::<usize>(),
                RING_SLOTS_PER_LANE
            );
        }
        assert!(!bench.shared.has_space(&of_lanes[0]));
        // Without lanes, applications may use the whole ring.
        of_lanes
            .iter()
            .for_each(|lane| bench.shared.leave_lane(lane));
        assert!(!bench.shared.has_space(&bench.own), "the ring is full");
    }
}

/// The TX worker is not notified.
#[test]
fn a_producer_that_drains_takes_packets_that_others_enqueue_meanwhile() {
    for dispatch in [Dispatch::Direct, Dispatch::Adaptive] {
        let rig = with_senders(dispatch, 2);
        let (mut handle, mut other) = (rig.handle(0), rig.handle(0));
        let arena = rig.arena();
        // Another producer sends in the middle of the drain: its packets are drained, too.
        rig.b[0].tx().meanwhile = Some(Box::new(move || {
            assert_eq!(other.try_send(&mut burst(&arena, 10..20)), Ok(10));
        }));
        assert_eq!(handle.try_send(&mut rig.burst(0..10)), Ok(10));
        rig.b[0].assert_sent(0..20, dispatch);
        let tx = rig.tx();
        assert_eq!(
            (tx.direct, tx.deferred, tx.wakeups),
            (1, 1, 0),
            "{dispatch}"
        );
        assert_eq!(rig.finish().ledger.transmitted, 20, "{dispatch}");
        let mut late = burst(handle.arena(), [1]);
        assert_eq!(handle.try_send(&mut late), Err(TrySendError::Closed));
    }
}

/// Others enqueue more than the budget in the middle of a drain. The producer abdicates, and the TX
/// worker drains the rest.
#[test]
fn a_producer_abdicates_after_its_budget() {
    for dispatch in [Dispatch::Direct, Dispatch::Adaptive] {
        let mut rig = with_senders(dispatch, 2);
        let (mut handle, mut other) = (rig.handle(0), rig.handle(0));
        let arena = rig.arena();
        let more = 300;
        rig.b[0].tx().meanwhile = Some(Box::new(move || {
            for from in (1..=more).step_by(50) {
                assert_eq!(other.try_send(&mut burst(&arena, from..from + 50)), Ok(50));
            }
        }));
        assert_eq!(handle.try_send(&mut rig.burst(0..1)), Ok(1));
        let sent = rig.b[0].sent().len();
        assert!((BUDGET..BUDGET + 65).contains(&sent), "{dispatch}: {sent}");
        let tx = rig.tx();
        assert_eq!((tx.abdications, tx.wakeups), (1, 1), "{dispatch}");
        rig.settle();
        rig.b[0].assert_sent(0..=more, dispatch);
        rig.finish();
    }
}

/// A waker is the caller's code: the TX worker is notified even if one panics.
#[test]
fn a_waker_that_panics_strands_no_packet() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("as the test asked");
        }
    }
    let bench = Bench::new(Dispatch::Direct);
    let (shared, arena) = (Arc::clone(&bench.shared), bench.arena.clone());
    bench.device.tx().meanwhile = Some(Box::new(move || {
        let kind = ProducerKind::Application;
        for from in (1..=300).step_by(50) {
            enqueue(&shared, burst(&arena, from..from + 50));
        }
        assert!(shared.waiters.add(1, &Waker::from(Arc::new(Panics))));
        assert!(shared.ring.wait_for_space(kind));
    }));
    assert!(catch_unwind(AssertUnwindSafe(|| bench.put(0..1))).is_err());
    assert_eq!(bench.state(), RingState::Abdicated);
    assert!(bench.runtime.is_rung(0));
}

/// The driver panics under a producer: the packets are counted, and the TX worker ends the run.
#[test]
fn a_panic_of_a_driver_under_a_handle_ends_the_run_with_the_ledger_closed() {
    for path in [Dispatch::Direct, Dispatch::Adaptive] {
        let mut rig = with_senders(path, 1);
        let mut handle = rig.handle(0);
        rig.b[0].tx().panics = true;
        let mut packets = rig.burst(0..10);
        let sent = catch_unwind(AssertUnwindSafe(|| handle.try_send(&mut packets)));
        assert!(sent.is_err(), "{path}");
        rig.try_settle();
        assert!(rig.is_done(), "{path}");
        assert!(rig.take_error().to_string().contains("panicked"), "{path}");
        assert_eq!(
            handle.try_send(&mut rig.burst(0..1)),
            Err(TrySendError::Closed)
        );
        rig.finish();
    }
}
