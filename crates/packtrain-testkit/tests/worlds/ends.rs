//! Sleeps, wake-ups, watchdogs and the end of a run, with devices that misbehave.

use packtrain::engine::{Action, Deliver, Session, Settings, Snapshot, TrySendError};
use packtrain::policy::dispatch::Dispatch;
use packtrain::policy::idle::Idle;
use packtrain::policy::moderation::Moderation;
use packtrain::port::sim::{CompletionDelay, Far, Sim, SimConfig, SimControl};
use packtrain::stats::{DropReason, Trouble};
use packtrain::time::Instant;
use packtrain_testkit::rig::{Rig, burst, fixed, ms, twice, us};
use packtrain_testkit::{Costs, Trace, machine};
use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const MODES: [Dispatch; 3] = [Dispatch::Direct, Dispatch::Deferred, Dispatch::Adaptive];

/// A session on one NIC, with one application sender.
struct OneNic {
    rig: Rig,
    control: SimControl,
}

impl OneNic {
    fn new(config: SimConfig, far: Far, settings: Settings) -> Self {
        Self::with(Costs::default(), config, far, settings)
    }

    fn with(costs: Costs, config: SimConfig, far: Far, settings: Settings) -> Self {
        let mut rig = Rig::new(machine(4), costs, 1);
        let sim = Sim::alone(config, far, 1);
        let control = sim.control();
        let builder = Session::on(sim).senders(0, 1).handler(|_| Deliver);
        rig.add(builder, settings, 1);
        Self { rig, control }
    }

    /// With a worker that polls, 10 us for a step, and a far end that discards.
    fn polling(config: SimConfig, dispatch: Dispatch) -> Self {
        let costs = Costs {
            step: Duration::from_micros(10),
            ..Costs::default()
        };
        let settings = Settings {
            idle: Idle::Poll,
            ..fixed(dispatch)
        };
        Self::with(costs, config, Far::Discard, settings)
    }

    /// An application that sends a packet each `period`, from `first` on. Packets for which there
    /// is no space are not sent. Returns how many were.
    fn sender(&mut self, first: Instant, period: Duration, count: u64) -> Rc<Cell<u64>> {
        let (mut handle, sent) = (self.rig.handle(0, 0), Rc::default());
        let (accepted, mut due, mut left) = (Rc::<Cell<u64>>::clone(&sent), first, count);
        let run = move |now: Instant, _: &Waker| {
            if now >= due && left > 0 {
                left -= 1;
                due = due.after(period);
                match handle.try_send(&mut burst(&handle, left..left + 1)) {
                    Ok(packets) => accepted.set(accepted.get() + packets as u64),
                    Err(TrySendError::Full { .. }) => {}
                    Err(TrySendError::Closed) => return Action::Done,
                }
            }
            match left {
                0 => Action::Done,
                _ => Action::Sleep { until: Some(due) },
            }
        };
        self.rig.world.actor(run, None);
        sent
    }

    /// At `at`, `act` is done to the device.
    fn then(&mut self, at: Instant, act: impl Fn(&SimControl) + 'static) {
        let control = self.control.clone();
        self.rig.world.hardware(move |now| {
            if now < at {
                return Some(at);
            }
            act(&control);
            None
        });
    }

    fn end(self) -> (Trace, Snapshot) {
        let (trace, mut reports) = self.rig.end();
        (trace, reports.remove(0).snapshot)
    }
}

/// A device of so many descriptors that sends so many packets in a second.
fn device(rings: usize, rate: u64) -> SimConfig {
    SimConfig {
        tx_ring: rings,
        rx_ring: 512,
        rate: Some(rate),
        ..SimConfig::default()
    }
}

/// A stop at any time wakes all workers, though TX workers would sleep for a second.
#[test]
fn a_stop_ends_the_sleep_of_each_worker() {
    let costs = Costs::default();
    let least = 2 * costs.interrupt + costs.idle_exit;
    for dispatch in MODES {
        for at in [us(1), us(10), ms(1), ms(1_000), us(1_000_003), ms(1_500)] {
            let (trace, _) = twice(|| {
                let mut nic = OneNic::new(SimConfig::default(), Far::Echo, fixed(dispatch));
                nic.sender(us(20), Duration::from_micros(300), 1_000);
                nic.rig.world.run(at);
                nic.end()
            });
            for task in &trace.tasks[..2] {
                let ended = task.ended.expect("a worker").since(at);
                assert!(ended < 2 * least, "{dispatch}, {at:?}: {ended:?}");
            }
        }
    }
}

#[test]
fn a_stop_waits_for_what_the_device_has_and_for_what_is_held() {
    for dispatch in MODES {
        let (trace, snapshot) = twice(|| {
            // 300 ms for all.
            let mut nic = OneNic::new(device(64, 1_000), Far::Discard, fixed(dispatch));
            let sent = nic.sender(us(100), Duration::from_nanos(100), 300);
            nic.rig.world.run(ms(10));
            assert_eq!(sent.get(), 300);
            nic.end()
        });
        assert_eq!(snapshot.ledger.transmitted, 300);
        assert_eq!(snapshot.drops.total(), 0, "{dispatch}");
        let last = trace.tasks[..2].iter().filter_map(|task| task.ended).max();
        assert!(
            last.is_some_and(|last| (ms(300)..ms(302)).contains(&last)),
            "{dispatch}: {last:?}"
        );
    }
}

#[test]
fn a_stop_wakes_a_producer_that_waits_for_space() {
    for dispatch in MODES {
        let trace = twice(|| {
            let mut nic = OneNic::new(device(8, 4), Far::Discard, fixed(dispatch));
            let mut handle = nic.rig.handle(0, 0);
            let sender = move |_: Instant, waker: &Waker| {
                loop {
                    match handle.try_send(&mut burst(&handle, 0..1)) {
                        Ok(_) => {}
                        Err(TrySendError::Closed) => return Action::Done,
                        Err(TrySendError::Full { .. }) => {
                            let mut context = Context::from_waker(waker);
                            if handle.poll_ready(&mut context) == Poll::Pending {
                                return Action::Sleep { until: None };
                            }
                        }
                    }
                }
            };
            nic.rig.world.actor(sender, None);
            nic.rig.world.run(ms(100));
            nic.end().0
        });
        let task = &trace.tasks[2];
        let ended = task.ended.expect("it learns that the queue is closed");
        assert!((ms(100)..ms(101)).contains(&ended), "{dispatch}: {task:?}");
    }
}

/// A device that loses the interrupt for its completions: it is polled after 100 ms.
#[test]
fn a_lost_interrupt_is_made_up_for() {
    for dispatch in MODES {
        let (_, snapshot) = twice(|| {
            let mut nic = OneNic::new(device(8, 100_000), Far::Discard, fixed(dispatch));
            nic.control.lose_interrupts(1);
            nic.sender(us(100), Duration::from_nanos(100), 64);
            nic.rig.world.run(ms(300));
            let transmitted = nic.rig.sessions[0].snapshot().ledger.transmitted;
            assert_eq!(transmitted, 64, "{dispatch}");
            nic.end()
        });
        let tx = snapshot.ports[0].tx[0];
        assert_eq!((tx.missed_wakeups, tx.resets), (1, 0), "{dispatch}");
    }
}

/// What later packets have overtaken for a second does not come back: the queue is reset.
#[test]
fn a_lost_completion_is_found() {
    for dispatch in MODES {
        let (_, snapshot) = twice(|| {
            let config = SimConfig::default();
            let mut nic = OneNic::new(config, Far::Discard, fixed(dispatch));
            nic.then(ms(50), |device| device.lose_completions(1));
            nic.sender(us(100), Duration::from_millis(1), 3_000);
            nic.rig.world.run(ms(3_500));
            let log = nic.rig.sessions[0].snapshot().ports[0].troubles[0];
            let report = log.iter().next().expect("it is found");
            assert_eq!(report.cause, Trouble::LostCompletion, "{dispatch}");
            assert!(report.at < ms(3_000), "{report:?}");
            nic.end()
        });
        let tx = snapshot.ports[0].tx[0];
        assert_eq!((tx.lost_completions, tx.resets), (1, 1), "{dispatch}");
        assert_eq!(snapshot.ledger.transmitted, 3_000);
    }
}

/// A device that hangs, and one that hangs again after its reset.
#[test]
fn a_device_that_hangs_twice_is_reset_twice() {
    for dispatch in MODES {
        let (_, snapshot) = twice(|| {
            let config = SimConfig::default();
            let mut nic = OneNic::new(config, Far::Discard, fixed(dispatch));
            nic.then(ms(10), |device| device.hang(0));
            nic.then(ms(3_010), |device| device.hang(0));
            nic.sender(ms(1), Duration::from_millis(100), 50);
            nic.rig.world.run(ms(8_000));
            nic.end()
        });
        let tx = snapshot.ports[0].tx[0];
        assert_eq!((tx.hangs, tx.resets), (2, 2), "{dispatch}");
        assert_eq!(snapshot.ledger.transmitted, 50);
        assert_eq!(snapshot.drops.total(), 0, "{dispatch}");
    }
}

/// A producer drains. Under `threshold(1)` the worker polls and never sleeps: time does not end a
/// sleep.
#[test]
fn a_worker_that_polls_finds_a_device_that_hangs() {
    for dispatch in [Dispatch::Threshold(1), Dispatch::Adaptive] {
        let (_, snapshot) = twice(|| {
            let mut nic = OneNic::polling(SimConfig::default(), dispatch);
            nic.then(ms(50), |control| control.hang(0));
            nic.sender(ms(100), Duration::from_millis(1), 3);
            nic.rig.world.run(ms(2_300));
            let snapshot = nic.rig.sessions[0].snapshot();
            let report = snapshot.ports[0].troubles[0].iter().last();
            let report = report.expect("it hangs");
            assert_eq!(report.cause, Trouble::Hung, "{dispatch}");
            assert!(report.was_reset, "{dispatch}");
            nic.end()
        });
        assert_eq!(snapshot.ledger.transmitted, 3, "{dispatch}");
    }
}

/// What wakes a worker up that sleeps ends the polls that are not run, too.
#[test]
fn polls_that_find_nothing_are_counted_and_not_run() {
    let (trace, snapshot) = twice(|| {
        let mut nic = OneNic::polling(SimConfig::default(), Dispatch::Deferred);
        nic.sender(ms(100), Duration::from_millis(10), 10);
        nic.rig.world.run(ms(300));
        nic.end()
    });
    assert_eq!(snapshot.ledger.transmitted, 10);
    let steps: u64 = trace.tasks.iter().map(|task| task.steps).sum();
    let run: u64 = snapshot.workers.iter().map(|worker| worker.steps).sum();
    assert!(steps >= 30_000, "{steps}");
    assert!(20 * run < steps, "{run} of {steps}");
}

/// A worker that never sleeps takes the role each second for a device that always has a packet. It
/// polls the device and leaves the ring to the producer.
#[test]
fn a_worker_that_polls_leaves_the_ring_to_a_lone_producer() {
    for packets in [1, 350] {
        let (_, snapshot) = twice(|| {
            let config = SimConfig {
                delay: CompletionDelay::Reclaims(1),
                ..SimConfig::default()
            };
            let mut nic = OneNic::polling(config, Dispatch::Threshold(1));
            nic.sender(ms(1_500), Duration::from_millis(10), packets);
            let last = ms(1_495).after(Duration::from_millis(10) * packets as u32);
            nic.rig.world.run(last);
            // A completion that is reported twice shows when it is collected.
            nic.control.repeat_completions(1);
            let tx = |nic: &OneNic| nic.rig.sessions[0].snapshot().ports[0].tx[0];
            assert_eq!((tx(&nic).direct, tx(&nic).deferred), (packets, 0));
            if packets == 1 {
                nic.rig.world.run(ms(2_400));
                assert_eq!(
                    tx(&nic).bad_completions,
                    0,
                    "in flight for less than a second"
                );
            }
            nic.rig.world.run(last.after(Duration::from_millis(1_200)));
            assert_eq!(tx(&nic).bad_completions, 1, "the worker polls");
            nic.end()
        });
        assert_eq!(snapshot.ledger.transmitted, packets);
    }
}

/// Without a link packets are dropped, and no worker waits; with it they go again.
#[test]
fn a_link_that_goes_down_and_up_loses_only_what_came_meanwhile() {
    for dispatch in MODES {
        let (_, snapshot) = twice(|| {
            let config = SimConfig::default();
            let mut nic = OneNic::new(config, Far::Echo, fixed(dispatch));
            nic.then(us(10_500), |device| device.set_link(false));
            nic.then(us(20_500), |device| device.set_link(true));
            nic.sender(ms(1), Duration::from_millis(1), 30);
            nic.rig.world.run(ms(100));
            nic.end()
        });
        let lost = snapshot.drops.get(DropReason::LinkDown);
        assert_eq!((lost, snapshot.drops.total()), (10, 10), "{dispatch}");
        let ledger = &snapshot.ledger;
        assert_eq!((ledger.transmitted, ledger.delivered), (20, 20));
    }
}

#[test]
fn a_removed_device_ends_the_run_with_the_ledger_closed() {
    for dispatch in MODES {
        let trace = twice(|| {
            let mut nic = OneNic::new(device(8, 1_000), Far::Echo, fixed(dispatch));
            nic.then(ms(20), SimControl::remove);
            nic.sender(ms(1), Duration::from_micros(10), 100);
            let trace = nic.rig.world.run(ms(1_000));
            assert!(nic.rig.sessions[0].is_over());
            nic.rig.end_with_errors();
            trace
        });
        for task in &trace.tasks[..2] {
            assert!(task.ended < Some(ms(130)), "{dispatch}: {task:?}");
        }
        let errors = trace.tasks.iter().filter(|task| task.error.is_some());
        assert!(errors.count() >= 1, "{dispatch}: {:?}", trace.tasks);
    }
}

/// Two directions whose egresses are slower than what comes: workers sleep, and step as often as
/// packets go on.
#[test]
fn workers_that_wait_for_each_others_queues_sleep() {
    for dispatch in MODES {
        let (trace, moved) = twice(|| {
            let mut rig = Rig::new(machine(4), Costs::default(), 1);
            let [a, b] = [1, 2].map(|seed| Sim::alone(device(8, 1_000), Far::Echo, seed));
            let builder = Session::between(a, b).senders(0, 1);
            rig.add(builder, fixed(dispatch), 1);
            let mut handle = rig.handle(0, 0);
            let mut left = 4;
            let sender = move |now: Instant, _: &Waker| {
                if now < ms(1) {
                    let until = Some(ms(1));
                    return Action::Sleep { until };
                }
                // They go round and round.
                assert_eq!(handle.try_send(&mut burst(&handle, 0..64)), Ok(64));
                left -= 1;
                match left {
                    0 => Action::Done,
                    _ => Action::Step,
                }
            };
            rig.world.actor(sender, None);
            let trace = rig.world.run(ms(1_000));
            let moved = rig.sessions[0].snapshot().ledger.transmitted;
            rig.end();
            (trace, moved)
        });
        assert!(moved > 1_900, "{dispatch}: {moved}");
        let steps: u64 = trace.tasks.iter().map(|task| task.steps).sum();
        assert!(steps < 8 * moved, "{dispatch}: {steps} for {moved} packets");
    }
}

/// 1,000 packets come back, one each 100 us.
fn echoed(moderation: Moderation, idle: Idle) -> (Trace, Snapshot) {
    twice(|| {
        let settings = Settings {
            moderation,
            idle,
            ..fixed(Dispatch::Direct)
        };
        let mut nic = OneNic::new(SimConfig::default(), Far::Echo, settings);
        nic.sender(ms(1), Duration::from_micros(100), 100);
        let trace = nic.rig.world.run(ms(12));
        (trace, nic.end().1)
    })
}

#[test]
fn a_moderated_queue_wakes_its_worker_for_many_packets() {
    let (_, each) = echoed(Moderation::Off, Idle::Halt);
    let usecs = 1_000;
    let frames = 64;
    let (_, moderated) = echoed(Moderation::Fixed { usecs, frames }, Idle::Halt);
    let wakeups = |snapshot: &Snapshot| snapshot.ports[0].rx[0].wakeups;
    assert_eq!(wakeups(&each), 100);
    assert!(
        (9..=13).contains(&wakeups(&moderated)),
        "{}",
        wakeups(&moderated)
    );
    assert_eq!(moderated.ledger.delivered, 100);
}

#[test]
fn a_worker_waits_as_it_was_told() {
    let (halt, _) = echoed(Moderation::Off, Idle::Halt);
    let (poll, _) = echoed(Moderation::Off, Idle::Poll);
    let (adaptive, _) = echoed(Moderation::Off, Idle::Adaptive);
    let rx = |trace: &Trace| trace.tasks[0].clone();
    assert_eq!(rx(&halt).sleeps, 101);
    assert_eq!(rx(&poll).sleeps, 0);
    // It has learned by the third packet how soon the next one comes, and its credit lasts.
    assert!(
        (2..=5).contains(&rx(&adaptive).sleeps),
        "{:?}",
        rx(&adaptive)
    );
    assert!(rx(&adaptive).busy > 8 * rx(&halt).busy);
    assert!(rx(&poll).busy > rx(&adaptive).busy);
}
