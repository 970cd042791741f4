//! The world finds a wake-up that gets lost.

use packtrain::engine::{Action, Session};
use packtrain::policy::dispatch::Dispatch;
use packtrain::policy::topology::{Topology, TopologyError};
use packtrain::port;
use packtrain::runtime::{Machine, Notifier, Runtime};
use packtrain::time::{Clock, Instant};
use packtrain_testkit::rig::{burst, fixed, ms};
use packtrain_testkit::{Costs, World, machine};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

/// A runtime whose notifications get lost once it is broken.
#[derive(Debug)]
struct Broken {
    runtime: Arc<dyn Runtime>,
    broken: Arc<AtomicBool>,
}

#[derive(Debug)]
struct BrokenNotifier {
    notifier: Arc<dyn Notifier>,
    broken: Arc<AtomicBool>,
}

impl Clock for Broken {
    fn now(&self) -> Instant {
        self.runtime.now()
    }
}

impl Runtime for Broken {
    fn notifier(&self) -> io::Result<Arc<dyn Notifier>> {
        Ok(Arc::new(BrokenNotifier {
            notifier: self.runtime.notifier()?,
            broken: Arc::clone(&self.broken),
        }))
    }

    fn machine(&self) -> Machine {
        self.runtime.machine()
    }

    fn topology(&self) -> Result<Topology, TopologyError> {
        self.runtime.topology()
    }
}

impl Notifier for BrokenNotifier {
    fn notify(&self) {
        if !self.broken.load(Ordering::Relaxed) {
            self.notifier.notify();
        }
    }

    fn clear(&self) -> bool {
        self.notifier.clear()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.notifier.fd()
    }
}

/// One packet at 10 ms to a port that echoes it, while notifications get lost.
fn lose(dispatch: Dispatch, until: Instant) {
    let mut world = World::new(machine(2), Costs::default(), 0);
    let broken = Arc::new(AtomicBool::new(false));
    let runtime = Arc::new(Broken {
        runtime: world.runtime(),
        broken: Arc::clone(&broken),
    });
    let builder = Session::on(port::open("sim:far=echo").unwrap())
        .settings(fixed(dispatch))
        .senders(0, 1);
    let (session, workers) = builder.assemble(runtime).unwrap();
    world.counters(session.counters());
    for worker in workers {
        world.worker(worker, None);
    }
    let mut handle = session.handle(0, 0).expect("a sender was announced");
    let sender = move |now: Instant, _: &Waker| {
        if now < ms(10) {
            let until = Some(ms(10));
            return Action::Sleep { until };
        }
        broken.store(true, Ordering::Relaxed);
        assert_eq!(handle.try_send(&mut burst(&handle, 0..1)), Ok(1));
        Action::Done
    };
    world.actor(sender, None);
    world.run(until);
}

/// The TX worker wakes up after a second, and would then find what it was not notified of.
#[test]
#[should_panic(expected = "lost wake-up: task 1 slept since")]
fn one_that_a_timer_makes_up_for() {
    lose(Dispatch::Deferred, ms(5_000));
}

/// Nothing wakes the RX worker: the packet waits in its device.
#[test]
#[should_panic(expected = "lost wake-up: task 0 slept since")]
fn one_that_nothing_makes_up_for() {
    lose(Dispatch::Direct, ms(5_000));
}

/// A worker that has slept for a moment may be about to be notified.
#[test]
fn a_short_sleep_is_no_lost_wake_up() {
    lose(Dispatch::Direct, ms(400));
}
