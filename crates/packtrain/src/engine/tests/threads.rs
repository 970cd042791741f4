//! Workers on threads, in real time.

use super::fake::End;
use super::rig::{POLICIES, Setup, TIMEOUT, burst, closed, wait_for};
use crate::engine::control::{Command, Queues};
use crate::engine::{Forward, Handler, RxId, Session, Settings, TxHandle};
use crate::packet::Burst;
use crate::policy::idle::Idle;
use crate::policy::priority::{AHEAD, Priority};
use crate::port;
use crate::time::Instant;
use rustix::process::{getpriority_process, setpriority_process};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

fn setup(idle: Idle) -> Setup {
    let mut setup = Setup::new([2, 2]);
    setup.settings.idle = idle;
    setup
}

/// Each packet finds its worker asleep or about to sleep, and wakes it.
#[test]
fn packets_wake_a_sleeping_worker_and_a_stop_ends_it() {
    for with_fds in [false, true] {
        for (path, mut setup) in setup(Idle::Halt).on_every_path().into_iter().step_by(3) {
            setup.with_fds = with_fds;
            let (session, [a, b]) = setup.start(|_| Forward);
            for number in 0..100 {
                let (from, to) = [(&a, &b), (&b, &a)][number as usize % 2];
                let queue = number as usize / 2 % 2;
                let before = to[queue].sent().len();
                from[queue].arrive([number]);
                wait_for("a packet", || to[queue].sent().len() > before);
            }
            assert!(!session.is_over(), "{path}");
            let end = closed(session.finish().snapshot);
            assert_eq!(
                (end.ledger.transmitted, end.ledger.dropped),
                (100, 0),
                "{path}"
            );
            assert!(
                end.sleeps > 0 && end.syscalls >= end.sleeps && end.cpu_ns > 0,
                "{path}"
            );
            assert!(
                end.workers
                    .iter()
                    .all(|worker| worker.wakeups <= worker.sleeps),
                "{path}"
            );
        }
    }
}

/// Threads and a lane send to one queue while it is paused and reset.
#[test]
fn producers_and_lanes_share_a_queue_in_order() {
    const EACH: u32 = 3000;
    let send = |mut handle: TxHandle, producer: u32| {
        move || {
            let mut next = 0;
            while next < EACH {
                let numbers = (next..EACH.min(next + 1 + next % 40)).map(|n| producer << 24 | n);
                let mut packets = burst(handle.arena(), numbers);
                if packets.is_empty() {
                    handle.reclaim();
                    thread::yield_now();
                }
                next += packets.len() as u32;
                handle.send_blocking(&mut packets, TIMEOUT).unwrap();
            }
        }
    };
    for dispatch in POLICIES {
        let (session, [a, b]) = setup(Idle::Halt)
            .dispatch(dispatch)
            .senders(3)
            .start(|_| Forward);
        b[0].tx().room = 0;
        b[0].tx().forgets = true;
        a[0].arrive((0..EACH).map(|n| 9 << 24 | n));
        let threads: Vec<_> = (0..3)
            .map(|producer| thread::spawn(send(session.handle(1, 0).unwrap(), producer)))
            .collect();
        let mut round = 0usize;
        wait_for("all packets", || {
            round += 1;
            b[0].make_room(round * 37 % 500);
            let (received, sent) = (Queues::rx(0).only(0), Queues::tx(1).only(0));
            let (queue, what) = match round % 4 {
                0 => (sent, Command::Pause),
                1 => (sent, Command::Reset),
                2 => (sent, Command::Resume),
                _ => (received, Command::Pause),
            };
            assert_eq!(session.command(queue, what), Ok(1), "{dispatch}");
            assert_eq!(session.command(queue, Command::Resume), Ok(1), "{dispatch}");
            b[0].sent().len() == 4 * EACH as usize
        });
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        let end = closed(session.finish().snapshot);
        assert_eq!(
            (end.ledger.generated, end.ledger.dropped),
            (u64::from(3 * EACH), 0)
        );
        for producer in [0, 1, 2, 9] {
            let sent = b[0].sent();
            let own = sent.iter().filter(|&&n| n >> 24 == producer);
            assert!(
                own.map(|n| n & 0xff_ffff).eq(0..EACH),
                "{dispatch}: {producer}"
            );
        }
    }
}

#[test]
fn a_thread_without_work_waits_by_its_idle_mode() {
    for idle in [Idle::Halt, Idle::Adaptive, Idle::Poll] {
        let mut setup = setup(idle);
        setup.queues = [1, 1];
        let (session, [a, b]) = setup.start(|_| Forward);
        let worker = || session.snapshot().workers[0];
        for number in 0..3 {
            let before = worker();
            wait_for("a step or a sleep", || match idle {
                Idle::Poll => worker().steps > before.steps + 1000,
                _ => worker().sleeps > number,
            });
            a[0].arrive([number as u32]);
            wait_for("a packet", || b[0].sent().len() > number as usize);
        }
        let end = session.finish().snapshot.workers[0];
        match idle {
            Idle::Poll => assert_eq!(end.sleeps, 0),
            Idle::Halt => assert!((1..=8).contains(&end.sleeps) && end.steps < 64, "{end:?}"),
            Idle::Adaptive => assert!((1..=8).contains(&end.sleeps), "{end:?}"),
        }
    }
}

/// A stop at any moment ends the workers at once, even between a step and the sleep after it.
#[test]
fn no_sleep_misses_a_stop() {
    let mut late = 0;
    for round in 0..100 {
        let setup = match round % 2 {
            0 => setup(Idle::Halt),
            _ => setup(Idle::Halt).shared(POLICIES[round as usize / 2 % 5]),
        };
        let (session, [a, _b]) = setup.start(|_| Forward);
        a[0].arrive(0..round);
        thread::sleep(Duration::from_micros(u64::from(round) * 3));
        let workers = closed(session.finish().snapshot).workers;
        // A worker that misses the stop sleeps until its time, a second, or for ever. If this
        // thread had no CPU for a second before the stop, that is no fault.
        late += u32::from(workers.iter().any(|worker| worker.wakeups < worker.sleeps));
    }
    assert!(late < 10, "{late}");
}

#[test]
fn a_failure_is_reported_and_ends_the_other_workers() {
    for (path, setup) in setup(Idle::Halt).on_every_path().into_iter().step_by(4) {
        let (session, [a, _b]) = setup.start(|_| Forward);
        a[1].arrive(0..7);
        a[1].end(End::Failed);
        wait_for("the end", || session.is_over());
        let report = session.finish();
        assert_eq!(
            report.error.unwrap().to_string(),
            "a: cannot read: test",
            "{path}"
        );
        assert_eq!(closed(report.snapshot).ledger.held, 0, "{path}");
    }
}

/// The panic of a driver or of a handler resumes in the caller, after the other workers have ended.
#[test]
fn a_panic_resumes_in_finish_after_the_other_workers_have_ended() {
    for (path, setup) in setup(Idle::Halt).on_every_path().into_iter().step_by(4) {
        for in_handler in [false, true] {
            let (session, [a, _b]) = setup.start(move |id: RxId| {
                move |_now: Instant, _from: RxId, burst: &mut Burst| {
                    assert!(
                        !in_handler || id.queue == 1 || burst.is_empty(),
                        "as the test asked"
                    );
                }
            });
            a[0].arrive([1]);
            if !in_handler {
                a[0].end(End::Panic);
            }
            wait_for("the end", || session.is_over());
            let finished = catch_unwind(AssertUnwindSafe(|| session.finish()));
            let panic = finished.expect_err("the panic of the worker");
            assert_eq!(panic.downcast_ref(), Some(&"as the test asked"), "{path}");
            // The devices of all workers are dropped.
            assert!(a.iter().all(|queue| queue.owners() == 1), "{path}");
        }
    }
}

#[test]
fn dropping_a_session_stops_it_and_waits() {
    let (session, [a, b]) = setup(Idle::Halt).start(|_| Forward);
    a[0].arrive(0..10);
    wait_for("the packets", || b[0].sent().len() == 10);
    drop(session);
    assert_eq!(a[0].owners(), 1);
}

/// A handler that reports the nice value of its thread.
struct Nice(mpsc::Sender<i32>);

impl Handler for Nice {
    fn handle(&mut self, _now: Instant, _from: RxId, _burst: &mut Burst) {
        self.0.send(getpriority_process(None).unwrap()).unwrap();
    }
}

/// Whether a thread may have this nice value.
fn may_have(nice: i32) -> bool {
    let probe = thread::spawn(move || setpriority_process(None, nice).is_ok());
    probe.join().unwrap()
}

/// The nice value of this thread, and that of a worker which `auto` puts ahead of it: by as many
/// levels as the system permits (`RLIMIT_NICE`), which may be none.
fn own_and_ahead() -> (i32, i32) {
    let own = getpriority_process(None).unwrap();
    let ahead = (own - i32::from(AHEAD)).max(-20);
    let ahead = (ahead..own).find(|&nice| may_have(nice));
    (own, ahead.unwrap_or(own))
}

/// The handler reads the value from the kernel, and the snapshot has the same. A number that the
/// system refuses is an error.
#[test]
fn a_thread_has_its_configured_priority() {
    let (own, ahead) = own_and_ahead();
    for (priority, idle, expected) in [
        (Priority::Auto, Idle::Halt, ahead),
        (Priority::Auto, Idle::Poll, own),
        (Priority::None, Idle::Halt, own),
        (Priority::Nice(19), Idle::Adaptive, 19),
        (Priority::Nice(-20), Idle::Adaptive, -20),
    ] {
        let mut setup = setup(idle);
        setup.settings.priority = priority;
        let (sender, receiver) = mpsc::channel();
        let (builder, [a, _b]) = setup.builder(move |_| Nice(sender.clone()));
        if !may_have(expected) {
            let refused = builder.start().unwrap_err().to_string();
            assert!(refused.contains("CAP_SYS_NICE"), "{refused}");
            continue;
        }
        let session = builder.start().unwrap();
        a[0].arrive([1]);
        assert_eq!(
            receiver.recv_timeout(TIMEOUT),
            Ok(expected),
            "{priority} {idle}"
        );
        let end = session.finish().snapshot;
        assert_eq!(
            i32::from(end.workers[0].nice),
            expected,
            "{priority} {idle}"
        );
    }
    assert_eq!(
        getpriority_process(None).unwrap(),
        own,
        "the starting thread keeps its own"
    );
}

/// The RX worker goes ahead of the threads that send. The TX worker, which serves them, does not,
/// and preempts none of them.
#[test]
fn a_worker_of_senders_does_not_go_ahead_of_them() {
    let (own, ahead) = own_and_ahead();
    let settings = Settings {
        idle: Idle::Halt,
        ..Settings::default()
    };
    let builder = Session::on(port::open("null:").unwrap()).settings(settings);
    let session = builder.senders(0, 1).start().unwrap();
    let workers = session.finish().snapshot.workers;
    let nice: Vec<_> = workers.iter().map(|one| i32::from(one.nice)).collect();
    assert_eq!(nice, [ahead, own]);
    let batch: Vec<_> = workers.iter().map(|one| one.batch).collect();
    assert_eq!(batch, [false, true]);
}

/// A worker that never sleeps publishes its CPU time, too.
#[test]
fn a_busy_worker_publishes_its_cpu_time() {
    let [a, b] = ["null:source", "null:"].map(|spec| port::open(spec).unwrap());
    let session = Session::between(a, b)
        .settings(Settings::default())
        .start()
        .unwrap();
    let worker = || session.snapshot().workers[0];
    wait_for("CPU time", || worker().cpu_ns > 0);
    let before = worker().cpu_ns;
    wait_for("more CPU time", || worker().cpu_ns > before);
    assert_eq!(worker().sleeps, 0, "the worker was busy all the time");
    assert!(session.finish().snapshot.ledger.closed());
}
