//! `forward` between two `sim:` ports: sleeps, wake-ups, the watchdog, and the end of a run.

use packtrain::engine::{Action, Report, Session, Settings, Snapshot, TrySendError, TxHandle};
use packtrain::packet::Burst;
use packtrain::policy::dispatch::Dispatch;
use packtrain::policy::idle::Idle;
use packtrain::port;
use packtrain::stats::{DropReason, Trouble};
use packtrain::time::Instant;
use packtrain_testkit::{Costs, Trace, World, machine};
use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

const fn ms(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn settings(dispatch: Dispatch) -> Settings {
    Settings {
        dispatch,
        idle: Idle::Halt,
        ..Settings::default()
    }
}

/// A session between two ports in a world. One application sends to the first port, whose TX queue
/// is shared therefore. What it sends comes back if that port echoes it, and goes to the second
/// port.
struct Run {
    world: World,
    session: Session,
    workers: usize,
}

impl Run {
    fn new(ports: [&str; 2], settings: Settings, seed: u64) -> Self {
        let mut world = World::new(machine(4), Costs::default(), seed);
        let [a, b] = ports.map(|text| port::open(text).unwrap());
        let session = Session::between(a, b).settings(settings).senders(0, 1);
        let (session, workers) = session.assemble(world.runtime()).unwrap();
        world.counters(session.counters());
        let count = workers.len();
        for worker in workers {
            world.worker(worker, None);
        }
        Self {
            world,
            session,
            workers: count,
        }
    }

    fn handle(&self) -> TxHandle {
        self.session.handle(0, 0).expect("one sender was announced")
    }

    /// An application that sends `count` packets from `first` on, and ends.
    fn sender(&mut self, first: Instant, count: usize) {
        let mut handle = self.handle();
        let run = move |now, _: &_| {
            if now < first {
                return Action::Sleep { until: Some(first) };
            }
            let mut burst = burst(&handle, count);
            assert_eq!(handle.try_send(&mut burst), Ok(count));
            Action::Done
        };
        self.world.actor(run, None);
    }

    /// Stops the session, and lets three seconds pass.
    fn end(mut self) -> (Trace, Report) {
        self.session.stop();
        let until = self.world.now().after(Duration::from_secs(3));
        let trace = self.world.run(until);
        for task in &trace.tasks[..self.workers] {
            assert!(task.ended.is_some() && task.error.is_none(), "{task:?}");
        }
        drop(self.world);
        let report = self.session.finish();
        let ledger = &report.snapshot.ledger;
        assert!(ledger.closed() && ledger.held == 0, "{ledger:?}");
        (trace, report)
    }
}

fn burst(handle: &TxHandle, packets: usize) -> Burst {
    let mut bytes = [0; 64];
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    let mut burst = Burst::new();
    for _ in 0..packets {
        let packet = handle.arena().packet_from(&bytes).expect("memory");
        burst.push(packet).expect("at most a burst");
    }
    burst
}

/// A second of `forward`: what an application sends to one port is echoed and forwarded to the
/// other one. Also returns how many packets it sent.
fn forward(dispatch: Dispatch, seed: u64) -> (Trace, Snapshot, u64) {
    const PAUSE: Duration = Duration::from_micros(200);
    let mut run = Run::new(["sim:far=echo", "sim:"], settings(dispatch), seed);
    let (mut handle, sent) = (run.handle(), Rc::new(Cell::new(0)));
    let count = Rc::clone(&sent);
    run.world.actor(
        move |now, _| {
            if now < ms(1) {
                // A device loses what arrives before the lane has given it buffers.
                return Action::Sleep { until: Some(ms(1)) };
            }
            if now >= ms(900) {
                return Action::Done;
            }
            let mut burst = burst(&handle, 4);
            let accepted = match handle.try_send(&mut burst) {
                Ok(accepted) | Err(TrySendError::Full { accepted }) => accepted,
                Err(TrySendError::Closed) => return Action::Done,
            };
            count.set(count.get() + accepted as u64);
            Action::Sleep {
                until: Some(now.after(PAUSE)),
            }
        },
        None,
    );
    let trace = run.world.run(ms(1_000));
    assert_eq!(trace.now, ms(1_000));
    let (end, report) = run.end();
    // An idle session ends as soon as its workers have run.
    assert!(end.tasks.iter().all(|task| task.ended < Some(ms(1_001))));
    (end, report.snapshot, sent.get())
}

fn twice(dispatch: Dispatch) -> Snapshot {
    let [first, second] = [(); 2].map(|()| forward(dispatch, 7));
    assert_eq!(first, second, "the same to the bit");
    let (_, snapshot, sent) = first;
    assert!(sent > 10_000, "{sent} packets in a second");
    let ledger = &snapshot.ledger;
    assert_eq!(
        (ledger.generated, ledger.received, ledger.transmitted),
        (sent, sent, 2 * sent)
    );
    assert_eq!(snapshot.drops.total(), 0);
    snapshot
}

#[test]
fn forward_with_an_owned_path_is_the_same_twice() {
    let snapshot = twice(Dispatch::Direct);
    let [a, b] = [0, 1].map(|port: usize| snapshot.ports[port].tx[0]);
    assert!(a.direct > 0 && a.deferred == 0, "the application drains");
    assert_eq!((b.direct, b.deferred), (0, 0), "no ring");
}

#[test]
fn forward_deferred_is_the_same_twice() {
    let snapshot = twice(Dispatch::Deferred);
    for port in &snapshot.ports {
        let tx = port.tx[0];
        assert!(tx.deferred > 0 && tx.direct == 0 && tx.wakeups > 0);
    }
    let drained: u64 = snapshot.workers.iter().map(|worker| worker.drained).sum();
    assert_eq!(drained, snapshot.ledger.transmitted);
}

#[test]
fn an_idle_session_sleeps() {
    for dispatch in [Dispatch::Direct, Dispatch::Deferred, Dispatch::Adaptive] {
        let mut run = Run::new(["sim:", "sim:"], settings(dispatch), 1);
        let trace = run.world.run(ms(10_000));
        for task in &trace.tasks {
            // TX workers wake up once a second.
            assert!((1..=15).contains(&task.steps), "{dispatch}: {task:?}");
            assert_eq!(task.wakeups, 0, "{dispatch}: {task:?}");
        }
        run.end();
    }
}

#[test]
fn a_packet_wakes_the_workers_on_its_way() {
    for dispatch in [Dispatch::Direct, Dispatch::Deferred, Dispatch::Adaptive] {
        let mut run = Run::new(["sim:far=echo", "sim:"], settings(dispatch), 1);
        run.sender(ms(1_500), 1);
        // The TX worker of the first port, the lane, and the TX worker of the second one at most.
        let due = ms(1_500).after(Duration::from_micros(40));
        run.world.run(due);
        let ledger = run.session.snapshot().ledger;
        assert_eq!((ledger.received, ledger.transmitted), (1, 2), "{dispatch}");
        run.end();
    }
}

/// The second port hangs: an owned queue in mode `direct`, and a shared one in mode `deferred`.
#[test]
fn a_device_that_hangs_is_found_within_two_seconds() {
    for dispatch in [Dispatch::Direct, Dispatch::Deferred] {
        let ports = ["sim:far=echo", "sim:hang"];
        let mut run = Run::new(ports, settings(dispatch), 1);
        run.sender(ms(500), 3);
        run.world.run(ms(2_600));
        let snapshot = run.session.snapshot();
        let port = &snapshot.ports[1];
        let report = port.troubles[0].iter().last().expect("it hangs");
        assert_eq!(report.cause, Trouble::Hung, "{dispatch}");
        assert!((ms(1_500)..=ms(2_600)).contains(&report.at), "{report:?}");
        assert!(report.was_reset && port.tx[0].resets == 1, "{report:?}");
        let (_, report) = run.end();
        assert_eq!(report.snapshot.ledger.transmitted, 6);
    }
}

/// Four packets a second: most are left after two seconds.
#[test]
fn a_run_ends_two_seconds_after_its_stop() {
    for dispatch in [Dispatch::Direct, Dispatch::Deferred] {
        let ports = ["sim:far=echo", "sim:rate=4,rings=8"];
        let mut run = Run::new(ports, settings(dispatch), 1);
        run.sender(ms(100), 64);
        run.world.run(ms(1_000));
        assert!(run.session.snapshot().ledger.held > 0);
        let workers = run.workers;
        let (trace, report) = run.end();
        let ended = trace.tasks[..workers].iter().filter_map(|task| task.ended);
        let last = ended.max().expect("all have ended");
        assert!((ms(3_000)..=ms(3_001)).contains(&last), "{last:?}");
        let drops = &report.snapshot.drops;
        assert!(drops.get(DropReason::Shutdown) > 0);
        assert_eq!(drops.total(), drops.get(DropReason::Shutdown));
    }
}

/// A producer that waits for space sleeps until it is notified.
#[test]
fn a_producer_that_waits_for_space_is_woken() {
    const PACKETS: usize = 64 * 60;
    for dispatch in [Dispatch::Direct, Dispatch::Deferred, Dispatch::Adaptive] {
        let mut run = Run::new(["sim:rate=2000,rings=8", "sim:"], settings(dispatch), 1);
        let mut handle = run.handle();
        let (mut left, mut rest) = (PACKETS, Burst::new());
        run.world.actor(
            move |_, waker| {
                if rest.is_empty() {
                    if left == 0 {
                        return Action::Done;
                    }
                    rest = burst(&handle, 64);
                    left -= 64;
                }
                match handle.try_send(&mut rest) {
                    Ok(_) => Action::Step,
                    Err(TrySendError::Closed) => panic!("the run goes on"),
                    Err(TrySendError::Full { .. }) => {
                        match handle.poll_ready(&mut Context::from_waker(waker)) {
                            Poll::Ready(()) => Action::Step,
                            Poll::Pending => Action::Sleep { until: None },
                        }
                    }
                }
            },
            None,
        );
        let trace = run.world.run(ms(5_000));
        let actor = trace.tasks.last().expect("the actor");
        assert!(actor.ended.is_some() && actor.wakeups > 0, "{actor:?}");
        let (_, report) = run.end();
        assert_eq!(report.snapshot.ledger.transmitted, PACKETS as u64);
    }
}
