//! Sessions from their builder: one port or two, handlers, senders, the plan, the end.

use super::fake::Fake;
use super::rig::{Rig, Setup, arena, closed};
use crate::driver::{Features, Input};
use crate::engine::{Action, Forward, Handler, RxId, Session, Settings};
use crate::packet::Burst;
use crate::plan::{PathKind, PlannedPart};
use crate::policy::dispatch::Dispatch;
use crate::policy::idle::Idle;
use crate::port;
use crate::runtime::System;
use crate::time::Instant;
use std::sync::{Arc, Mutex};

fn fake(queues: usize) -> (crate::driver::Port<Fake>, Vec<super::fake::Queue>) {
    let parts = (Input::Endless, Features::NONE, Features::NONE);
    let (driver, ours) = Fake::new("only", parts, queues, false);
    let mut port = crate::driver::Port::from(driver);
    port.config.queues = Some(queues);
    (port, ours)
}

#[test]
fn one_port_with_a_handler_sends_the_packets_that_the_handler_leaves() {
    for senders in [0, 1] {
        for dispatch in super::rig::POLICIES {
            let (port, queues) = fake(2);
            let settings = Setup::new([1, 1]).dispatch(dispatch).settings;
            let builder = Session::on(port).handler(|_| Forward).settings(settings);
            let builder = builder.senders(0, senders).arena(arena());
            let mut rig = Rig::of(builder, 2, [queues, Vec::new()]).unwrap();
            let handle = rig.session.handle(0, 1);
            assert_eq!(handle.is_some(), senders > 0, "{dispatch}");
            assert!(rig.session.handle(0, 2).is_none() && rig.session.handle(1, 0).is_none());
            rig.a[0].arrive(0..100);
            rig.a[1].arrive(100..200);
            rig.settle();
            rig.a[0].assert_sent(0..100, dispatch);
            rig.a[1].assert_sent(100..200, dispatch);
            if let Some(mut handle) = handle {
                handle.try_send(&mut rig.burst(0..5)).unwrap();
                rig.settle();
                assert_eq!(rig.a[1].sent().len(), 105, "{dispatch}");
            }
            let ledger = rig.finish().ledger;
            assert_eq!((ledger.received, ledger.delivered), (200, 0), "{dispatch}");
        }
    }
}

#[test]
fn one_port_without_a_handler_delivers() {
    let (port, queues) = fake(1);
    let builder = Session::on(port).arena(arena()).packets(50);
    let mut rig = Rig::of(builder, 2, [queues, Vec::new()]).unwrap();
    rig.receive(0..100);
    assert!(rig.is_done(), "at the packet limit");
    let ledger = rig.finish().ledger;
    assert_eq!(
        (ledger.received, ledger.delivered, ledger.transmitted),
        (50, 50, 0)
    );
}

/// A handler that records where its packets come from.
struct Notes(RxId, Arc<Mutex<Vec<(RxId, RxId, usize)>>>);

impl Handler for Notes {
    fn handle(&mut self, _now: Instant, from: RxId, burst: &mut Burst) {
        self.1.lock().unwrap().push((self.0, from, burst.len()));
    }
}

#[test]
fn each_rx_queue_has_a_handler_of_its_own() {
    let notes = Arc::<Mutex<Vec<_>>>::default();
    let ours = Arc::clone(&notes);
    let mut made = Vec::new();
    let mut rig = Setup::new([2, 3]).rig(move |id| {
        made.push(id);
        assert!(!made[..made.len() - 1].contains(&id));
        Notes(id, Arc::clone(&ours))
    });
    for (count, queue) in (1..).zip(rig.a.iter().chain(&rig.b)) {
        queue.arrive(0..count);
    }
    rig.settle();
    rig.finish();
    let mut notes = notes.lock().unwrap().clone();
    notes.sort_unstable();
    let id = |port, queue| RxId { port, queue };
    let ids = [id(0, 0), id(0, 1), id(1, 0), id(1, 1), id(1, 2)];
    let expected: Vec<_> = ids
        .into_iter()
        .zip(1..)
        .map(|(id, n)| (id, id, n))
        .collect();
    assert_eq!(notes, expected);
}

#[test]
fn the_plan_says_which_paths_are_shared_and_why() {
    let kinds = |setup: &Setup| {
        let (builder, _) = setup.builder(|_| Forward);
        let plan = builder.plan().unwrap();
        let path = |port: usize| (plan.paths[port].kind, plan.paths[port].why.clone());
        [path(0), path(1)]
    };
    let setup = Setup::new([1, 1]);
    for dispatch in [Dispatch::Direct, Dispatch::Adaptive] {
        for (kind, why) in kinds(&setup.clone().dispatch(dispatch)) {
            assert_eq!(kind, PathKind::Owned);
            assert!(why.contains("one RX worker"), "{why}");
        }
    }
    for dispatch in [
        Dispatch::Deferred,
        Dispatch::Abdicate,
        Dispatch::Threshold(4),
    ] {
        for (kind, why) in kinds(&setup.clone().dispatch(dispatch)) {
            assert_eq!(kind, PathKind::Shared);
            assert!(why.contains("TX worker drains"), "{why}");
        }
    }
    let [a, b] = kinds(&setup.clone().senders(3));
    assert_eq!((a.0, b.0), (PathKind::Owned, PathKind::Shared));
    assert!(b.1.contains("3 application threads"), "{}", b.1);
    let mut by_packet = setup.clone();
    by_packet.config[1].work.by_packet = true;
    let [a, b] = kinds(&by_packet);
    assert_eq!((a.0, b.0), (PathKind::Owned, PathKind::Shared));
    assert!(b.1.contains("handover=packet"), "{}", b.1);
    let [a, b] = kinds(&setup.shared(Dispatch::Direct));
    assert_eq!((a.1.as_str(), b.1.as_str()), ("tx=shared", "tx=shared"));
}

/// Without announced senders there is no handle; with them, one to each queue of that port.
#[test]
fn handles_exist_where_senders_were_announced() {
    let rig = Setup::new([2, 3]).forward();
    assert!(rig.session.handle(1, 0).is_none() && rig.session.flows(1).is_none());
    let rig = Setup::new([2, 3]).senders(1).forward();
    assert!((0..3).all(|queue| rig.session.handle(1, queue).is_some()));
    assert!(rig.session.handle(1, 3).is_none() && rig.session.handle(0, 0).is_none());
    assert!(rig.session.flows(1).is_some() && rig.session.flows(0).is_none());
}

/// More CPUs give more workers, and the TX queue is never on a worker whose lane feeds it.
#[test]
fn the_workers_are_those_of_the_plan() {
    for cpus in 1..8 {
        let mut setup = Setup::new([2, 2]).dispatch(Dispatch::Deferred);
        setup.cpus = cpus;
        let mut rig = setup.forward();
        let plan = rig.session.plan().clone();
        assert_eq!(plan.workers.len(), rig.workers.len());
        assert_eq!(plan.workers.len(), cpus.clamp(2, 6));
        for queue in 0..2 {
            let tx = PlannedPart::Tx { port: 1, queue };
            let lane = PlannedPart::Lanes {
                direction: 0,
                pair: queue,
            };
            let of = |part| plan.workers.iter().position(|parts| parts.contains(&part));
            assert_ne!(of(tx).unwrap(), of(lane).unwrap(), "{cpus} CPUs");
        }
        rig.receive(0..1000);
        assert_eq!(rig.b[0].sent(), (0..1000).collect::<Vec<_>>());
        rig.finish();
    }
}

#[test]
fn finish_with_runs_driven_workers_to_their_end() {
    for dispatch in ["adaptive", "deferred"] {
        let [a, b] = ["null:source,count=1000", "null:"].map(|spec| port::open(spec).unwrap());
        let settings = Settings {
            dispatch: dispatch.parse().unwrap(),
            idle: Idle::Halt,
            ..Settings::default()
        };
        let builder = Session::between(a, b).settings(settings);
        let runtime = Arc::new(System::new());
        let (session, mut workers) = builder.assemble(runtime).unwrap();
        let first = workers[0].run(Instant::from_nanos(1)).unwrap();
        assert_eq!(first, Action::Step, "{dispatch}");
        let report = session.finish_with(workers);
        assert!(report.error.is_none());
        let ledger = closed(report.snapshot).ledger;
        assert_eq!((ledger.held, ledger.dropped), (0, 0), "{dispatch}");
        assert!(ledger.received >= 64, "{dispatch}");
    }
}

/// Even if the clock of the runtime does not advance and the device accepts no more packets.
#[test]
fn finish_with_ends_after_two_seconds_at_the_latest() {
    for (path, setup) in Setup::new([1, 1]).on_every_path().into_iter().step_by(5) {
        let mut rig = setup.forward();
        rig.b[0].tx().room = 5;
        rig.receive(0..50);
        let report = rig.session.finish_with(rig.workers);
        let end = closed(report.snapshot);
        assert_eq!((end.ledger.transmitted, end.ledger.held), (5, 0), "{path}");
        assert_eq!(end.drops.total(), 45, "{path}");
    }
}

/// Dropping a worker ends the run, and its packets are counted.
#[test]
fn dropped_workers_end_the_run() {
    for (path, setup) in Setup::new([1, 1]).on_every_path() {
        let mut rig = setup.forward();
        rig.b[0].tx().room = 5;
        rig.receive(0..50);
        rig.workers.clear();
        assert!(rig.session.is_over(), "{path}");
        let end = rig.closed();
        assert_eq!((end.ledger.transmitted, end.ledger.held), (5, 0), "{path}");
        assert_eq!(end.drops.total(), 45, "{path}");
    }
}
