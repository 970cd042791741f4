//! Workers on threads of their own, asleep between steps.

use super::fake::{End, Queue, World, world};
use crate::driver::{DeviceError, Input};
use crate::engine::{Forward, Handler, Port, Running, Session, Settings};
use crate::packet::Burst;
use crate::plan::{Side, plan};
use crate::policy::idle::{Idle, Room};
use crate::policy::priority::{AHEAD, Priority};
use crate::port::{open_pair, spec::PortSpec};
use crate::stats::DropReason;
use rustix::process::{getpriority_process, setpriority_process};
use std::fs::File;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const ENDLESS: [Input; 2] = [Input::Endless; 2];
/// Long for whoever does not have to wait; short of the time that stalled workers get.
const PROMPT: Duration = Duration::from_secs(1);
/// Longest wait for what must happen, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn start(world: &mut World<Forward>) -> Running {
    let workers = world.workers.take().expect("started once");
    Running::start(workers, world.intake.clone()).unwrap()
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn sent(queue: &Queue) -> usize {
    queue.tx().sent.len()
}

#[test]
fn packets_wake_a_sleeping_worker_and_stop_ends_it() {
    let mut world = world([2, 2], ENDLESS, None, || Forward).unwrap();
    let running = start(&mut world);
    // Each packet finds its worker asleep or about to be: none may be slept over.
    for number in 0..500 {
        let (from, to) = [(&world.a, &world.b), (&world.b, &world.a)][number as usize % 2];
        let queue = number as usize / 2 % 2;
        let before = sent(&to[queue]);
        from[queue].arrive([number]);
        wait_for("a packet to come through", || sent(&to[queue]) > before);
    }
    assert!(!running.any_ended());
    running.stop();
    running.join().unwrap();
    let end = world.closed();
    assert_eq!((end.ledger.transmitted, end.ledger.held), (500, 0));
    assert_eq!(end.drops.total(), 0, "nothing was given up");
    // Each packet and the stop woke a worker, unless it was about to look once more.
    assert_eq!(end.workers.len(), 2);
    for worker in &end.workers {
        assert!(
            worker.wakeups > 0 && worker.wakeups <= worker.sleeps,
            "{worker:?}"
        );
        assert!(worker.cpu_ns > 0 && worker.steps > worker.sleeps);
        assert!(worker.voluntary_switches + worker.involuntary_switches > 0);
    }
    assert!(end.sleeps > 0 && end.syscalls >= end.sleeps && end.cpu_ns > 0);
    let wakeups: u64 = end.ports.iter().map(|port| port.rx_total().wakeups).sum();
    assert!(wakeups > 0);
}

/// With room to spin and without: who halts falls asleep and takes no step until something comes,
/// who polls never sleeps, and who adapts sleeps in the end.
#[test]
fn a_thread_with_nothing_to_do_waits_as_it_was_told() {
    let [wide, tight] = [4, 2].map(|cores| Room {
        cores,
        workers: 1,
        producers: None,
    });
    for (idle, room) in [
        (Idle::Halt, wide),
        (Idle::Halt, tight),
        (Idle::Adaptive, wide),
        (Idle::Adaptive, tight),
        (Idle::Poll, wide),
        (Idle::Poll, tight),
    ] {
        let mut world = world([1, 1], ENDLESS, None, || Forward).unwrap();
        let workers = world.workers.take().expect("started once");
        assert_eq!(workers.len(), 1);
        let counters = Arc::clone(workers[0].counters());
        let intake = world.intake.clone();
        let settings = Settings {
            idle,
            ..Settings::default()
        };
        let running = Running::start_in(room, workers, intake, &settings, &[None]).unwrap();
        for number in 0..3 {
            let before = counters.steps.get();
            if idle == Idle::Poll {
                wait_for("a look", || counters.steps.get() > before + 1_000);
            } else {
                wait_for("a sleep", || counters.sleeps.get() > u64::from(number));
            }
            world.a[0].arrive([number]);
            wait_for("a packet", || sent(&world.b[0]) > number as usize);
        }
        running.stop();
        running.join().unwrap();
        let (steps, sleeps) = (counters.steps.get(), counters.sleeps.get());
        let what = format!("{idle} in {room:?}: {steps} steps, {sleeps} sleeps");
        match idle {
            Idle::Poll => assert!(sleeps == 0 && steps > 3_000, "{what}"),
            Idle::Halt => assert!((1..=8).contains(&sleeps) && steps < 64, "{what}"),
            Idle::Adaptive => assert!((1..=8).contains(&sleeps), "{what}"),
        }
    }
}

/// Of two cores one is the worker's as long as one application has a handle: it spins. Before that
/// and after it lets others run each time, since nobody knows who makes the packets.
#[test]
fn a_worker_spins_on_the_core_that_a_producer_leaves() {
    let room = Room {
        cores: 2,
        workers: 1,
        producers: None,
    };
    let mut world = world([1, 1], ENDLESS, None, || Forward).unwrap();
    let workers = world.workers.take().expect("started once");
    let counters = Arc::clone(workers[0].counters());
    let intake = world.intake.clone();
    let settings = Settings {
        idle: Idle::Poll,
        ..Settings::default()
    };
    let running = Running::start_in(room, workers, intake, &settings, &[None]).unwrap();
    // Of 1000 looks, how many let others run. Where somebody wants the CPU all do, for a while.
    let yields = || {
        let (steps, syscalls) = (counters.steps.get(), counters.syscalls.get());
        wait_for("looks", || counters.steps.get() >= steps + 1_000);
        counters.syscalls.get() - syscalls
    };
    wait_for("others to be let run", || yields() >= 900);
    let handle = world.handles.queue(Port::B, 0).unwrap();
    wait_for("a spin", || yields() < 500);
    let other = handle.clone();
    wait_for("others to be let run", || yields() >= 900);
    drop(other);
    wait_for("a spin", || yields() < 500);
    drop(handle);
    wait_for("others to be let run", || yields() >= 900);
    running.stop();
    running.join().unwrap();
    world.closed();
}

/// Says what nice value its thread has.
struct Nice(mpsc::Sender<i32>);

impl Handler for Nice {
    fn handle(&mut self, _now: crate::time::Instant, _from: Port, _burst: &mut Burst) {
        let nice = getpriority_process(None).unwrap();
        self.0.send(nice).unwrap();
    }
}

/// Whether a thread may have this nice value.
fn may_have(nice: i32) -> bool {
    let trial = std::thread::spawn(move || setpriority_process(None, nice).is_ok());
    trial.join().unwrap()
}

/// The handler asks the kernel, and the snapshot says the same. Without the privilege `auto`
/// changes nothing, and a number that the system does not allow is refused before anything starts.
#[test]
fn a_thread_has_the_priority_that_it_was_given() {
    let own = getpriority_process(None).unwrap();
    let ahead = (own - i32::from(AHEAD)).max(-20);
    // As many levels as are allowed (`RLIMIT_NICE`), which may be none.
    let ahead = (ahead..own).find(|&nice| may_have(nice)).unwrap_or(own);
    for (priority, idle, expected) in [
        (Priority::Auto, Idle::Adaptive, ahead),
        (Priority::Auto, Idle::Halt, ahead),
        (Priority::Auto, Idle::Poll, own),
        (Priority::None, Idle::Halt, own),
        (Priority::Nice(19), Idle::Adaptive, 19),
        (Priority::Nice(-20), Idle::Adaptive, -20),
    ] {
        let settings = Settings {
            priority,
            idle,
            ..Settings::default()
        };
        if !may_have(expected) {
            let refused = settings.try_priority().unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
            assert!(refused.to_string().contains("CAP_SYS_NICE"), "{refused}");
            continue;
        }
        assert_eq!(i32::from(settings.try_priority().unwrap()), expected);
        let (tell, told) = mpsc::channel();
        let mut world = world([1, 1], ENDLESS, None, || Nice(tell.clone())).unwrap();
        let workers = world.workers.take().expect("started once");
        let intake = world.intake.clone();
        let running = Running::start_with(workers, intake, &settings, &[None]).unwrap();
        world.a[0].arrive([1]);
        let what = format!("{priority} {idle}");
        assert_eq!(told.recv_timeout(PATIENCE), Ok(expected), "{what}");
        running.stop();
        running.join().unwrap();
        let end = world.closed();
        assert_eq!(i32::from(end.workers[0].nice), expected, "{what}");
    }
    assert_eq!(getpriority_process(None).unwrap(), own, "of the starter");
}

/// A stop at any moment, also between a step and the sleep after it, is seen at once. Slept over,
/// it never would be, or when stalled workers give up. A busy machine makes a few rounds late.
#[test]
fn stop_is_never_slept_over() {
    let mut late = Vec::new();
    for round in 0..200 {
        let mut world = world([1, 1], ENDLESS, None, || Forward).unwrap();
        let running = start(&mut world);
        world.a[0].arrive(0..round);
        std::thread::sleep(Duration::from_micros(u64::from(round) * 3));
        let stopped = Instant::now();
        running.stop();
        running.join().unwrap();
        let took = stopped.elapsed();
        if took >= PROMPT {
            late.push((round, took));
        }
        world.closed();
    }
    assert!(late.len() < 20, "{late:?}");
}

/// The egress takes nothing more, the ingress has more: the worker sleeps, and a stop gives up
/// after the time that draining gets.
#[test]
fn stop_during_a_stall_ends_in_time_and_counts_what_is_lost() {
    let mut world = world([1, 1], ENDLESS, None, || Forward).unwrap();
    world.b[0].tx().room = 5;
    world.a[0].arrive(0..1000);
    let running = start(&mut world);
    wait_for("the stall", || {
        sent(&world.b[0]) == 5 && world.stats.snapshot().sleeps > 0
    });
    std::thread::sleep(Duration::from_millis(200));
    let steps = world.stats.workers[0].steps.get();
    assert!(steps < 50, "{steps} steps while nothing could move");

    let stopped = Instant::now();
    running.stop();
    running.join().unwrap();
    let took = stopped.elapsed();
    assert!(
        took >= Duration::from_secs(2) && took < PATIENCE,
        "{took:?}"
    );
    assert!(world.stats.workers[0].steps.get() < 100);
    let end = world.closed();
    assert_eq!((end.ledger.transmitted, end.ledger.held), (5, 0));
    let lost = end.drops.get(DropReason::Shutdown);
    assert!(lost > 0 && lost == end.ledger.received - 5);
}

/// The count is reached by one worker; the other one sleeps and would never know.
#[test]
fn the_end_of_one_worker_is_the_end_of_all() {
    let mut counted = world([2, 2], ENDLESS, Some(100), || Forward).unwrap();
    let running = start(&mut counted);
    counted.a[0].arrive(0..500);
    running.join().unwrap();
    assert_eq!(counted.closed().ledger.transmitted, 100);

    let inputs = [Input::Finite, Input::None];
    let mut finite = world([2, 2], inputs, None, || Forward).unwrap();
    for (queue, count) in finite.a.iter().zip([10, 20_000]) {
        queue.arrive(0..count);
        queue.rx().end = Some(End::Finished);
    }
    let running = start(&mut finite);
    running.join().unwrap();
    assert_eq!(finite.closed().ledger.transmitted, 20_010);
}

#[test]
fn a_device_that_is_removed_under_a_sleeping_worker_is_reported() {
    let mut world = world([2, 2], ENDLESS, None, || Forward).unwrap();
    let running = start(&mut world);
    wait_for("both to sleep", || {
        world
            .stats
            .workers
            .iter()
            .all(|worker| worker.sleeps.get() > 0)
    });
    world.b[1].hang_up();
    wait_for("the end", || running.any_ended());
    let error = running.join().unwrap_err();
    assert!(matches!(error.error, DeviceError::Removed), "{error}");
    assert_eq!(error.port, Some(Port::B));
    world.closed();
}

#[test]
fn a_failure_is_reported_and_ends_the_others() {
    let mut world = world([3, 3], ENDLESS, None, || Forward).unwrap();
    let running = start(&mut world);
    world.a[2].rx().end = Some(End::Failed);
    world.a[2].arrive(0..7);
    assert_eq!(
        running.join().unwrap_err().to_string(),
        "first port: cannot read: test"
    );
    assert_eq!(world.closed().ledger.transmitted, 7);
}

#[test]
fn a_panic_comes_through_join_after_the_others_have_ended() {
    let mut world = world([3, 3], ENDLESS, None, || Forward).unwrap();
    let running = start(&mut world);
    world.a[0].rx().end = Some(End::Panic);
    world.a[0].arrive([1]);
    let joined = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| running.join()));
    let panic = joined.expect_err("the panic of the worker");
    assert_eq!(panic.downcast_ref(), Some(&"as the test asked"));
    // Ended means that nobody is left who uses the queues: the fakes of the other workers are gone.
    for queue in &world.a[1..] {
        assert_eq!(queue.owners(), 1);
    }
}

#[test]
fn dropping_it_stops_and_waits() {
    let mut world = world([2, 2], ENDLESS, None, || Forward).unwrap();
    let running = start(&mut world);
    world.a[0].arrive(0..10);
    wait_for("the packets", || sent(&world.b[0]) == 10);
    drop(running);
    assert!(world.intake.is_stopped());
    assert_eq!(world.a[0].owners(), 1);
    world.closed();
}

#[test]
fn no_workers_is_over_at_once() {
    let world = world([1, 1], ENDLESS, None, || Forward).unwrap();
    let none: Vec<super::fake::FakeWorker<Forward>> = Vec::new();
    let running = Running::start(none, world.intake.clone()).unwrap();
    assert!(running.any_ended());
    running.join().unwrap();
}

#[test]
fn what_waits_for_a_removed_device_is_counted_as_lost_with_it() {
    let mut world = world([1, 1], ENDLESS, None, || Forward).unwrap();
    world.b[0].tx().removed = true;
    world.a[0].arrive(0..10);
    let running = start(&mut world);
    let error = running.join().unwrap_err();
    assert!(matches!(error.error, DeviceError::Removed), "{error}");
    let end = world.closed();
    assert_eq!((end.ledger.held, end.ledger.transmitted), (0, 0));
    assert_eq!(end.drops.get(DropReason::DeviceReset), end.ledger.received);
    assert_eq!(end.drops.get(DropReason::Shutdown), 0);
}

/// With any number of descriptors left: what is made has all that it needs, and does not end for
/// want of one while somebody waits for packets.
#[test]
fn workers_without_descriptors_are_not_made() {
    const ALONE: &str = "PACKTRAIN_TEST_FEW_DESCRIPTORS";
    const NAME: &str = "engine::tests::threads::workers_without_descriptors_are_not_made";
    if std::env::var_os(ALONE).is_none() {
        // The limit is that of a process, and other tests need descriptors.
        let test = std::env::current_exe().unwrap();
        let ran = Command::new("sh")
            .args(["-c", "ulimit -n 64; exec \"$0\" --exact --nocapture \"$1\""])
            .arg(test)
            .args([NAME])
            .env(ALONE, "1")
            .output()
            .unwrap();
        let out = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && out.contains("1 passed"), "{ran:?}");
        return;
    }
    let (mut refused, mut unstarted, mut started) = (0, 0, 0);
    // The devices and the memory take the first 17.
    for left in 0..24 {
        let mut open: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        open.truncate(open.len() - left);
        let world = world([2, 2], ENDLESS, None, || Forward);
        let running = world.map(|mut world| {
            let workers = world.workers.take().expect("started once");
            (Running::start(workers, world.intake.clone()), world)
        });
        drop(open);
        match running {
            Ok((Ok(running), _world)) => {
                started += 1;
                running.stop();
                running.join().unwrap();
            }
            // The last descriptor is the one that says that the run is over.
            Ok((Err(error), _world)) => {
                unstarted += 1;
                assert_eq!(error.raw_os_error(), Some(24), "{left} left: {error}");
            }
            Err(DeviceError::Failed { action, source }) => {
                refused += usize::from(action.contains("wake a worker"));
                assert_eq!(source.raw_os_error(), Some(24), "{left} left: {source}");
            }
            Err(error) => panic!("{left} left: {error}"),
        }
    }
    assert!(refused > 0 && started > 0, "{refused}, {started}");
    assert_eq!(unstarted, 1);
}

/// Not only one that sleeps now and then is seen at work.
#[test]
fn a_worker_that_always_has_something_to_do_says_what_it_costs() {
    let [a, b] = ["null:source", "null:"].map(|spec| spec.parse::<PortSpec>().unwrap());
    let [source, sink] = open_pair(&a, &b).unwrap().map(|port| port.driver);
    let plan = plan(&Side::of(&source, a.config), &Side::of(&sink, b.config)).unwrap();
    let session = Session::forward(source, sink, &plan, None).unwrap();
    let worker = || session.snapshot().workers[0];
    wait_for("its CPU time", || worker().cpu_ns > 0);
    let before = worker().cpu_ns;
    wait_for("more of it", || worker().cpu_ns > before);
    assert_eq!(worker().sleeps, 0, "it was busy all the time");
    let report = session.finish();
    assert!(report.snapshot.ledger.closed());
}
