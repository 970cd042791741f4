//! The models.

use crate::driver::{
    Accepted, Armed, Capabilities, Completed, DeviceError, Interest, Refused, RxBurst,
    RxDescriptors, Token, TxDescriptors, TxPacket,
};
use crate::engine::alarm::Alarm;
use crate::engine::egress::{Egress, Producer};
use crate::engine::{
    Command, Control, Forward, Intake, Lanes, Next, Port, TxLane, TxQueues, Worker, WorkerCounters,
};
use crate::packet::{Arena, ArenaConfig, Burst};
use crate::plan::FitLimits;
use crate::policy::dispatch::{Dispatch, Rule};
use crate::queue::TxQueue;
use crate::stats::{QueueId, TxCounters};
use crate::time::Instant;
use loom::sync::Mutex;
use loom::thread;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};

const NOW: Instant = Instant::from_nanos(1);

/// What the device is: the driver and its hardware share it.
#[derive(Debug)]
struct Hardware {
    state: Mutex<State>,
    alarm: Arc<Alarm>,
}

#[derive(Debug, Default)]
struct State {
    room: usize,
    /// The driver sleeps until there is room.
    armed: bool,
    /// It keeps what it gets, for ever.
    keeps: bool,
    /// It had no room for the last packet.
    refused: bool,
    sent: Vec<u32>,
    /// When so many are sent the model is at its end, whoever sent them.
    goal: usize,
}

impl Hardware {
    /// A descriptor is free again.
    fn make_room(&self) {
        let armed = {
            let mut state = self.state.lock().unwrap();
            state.room += 1;
            std::mem::take(&mut state.armed)
        };
        if armed {
            self.alarm.waker().interrupt();
        }
    }

    fn sent(&self) -> usize {
        self.state.lock().unwrap().sent.len()
    }
}

#[derive(Debug)]
struct Device(Arc<Hardware>);

impl TxDescriptors for Device {
    fn encap(&mut self, packet: &mut TxPacket<'_>, _token: Token) -> Result<Accepted, Refused> {
        let mut state = self.0.state.lock().unwrap();
        state.refused = state.room == 0;
        if state.refused {
            return Err(Refused::NoDescriptor);
        }
        state.room -= 1;
        state.sent.push(packet.packet().first()[14].into());
        if state.sent.len() == state.goal {
            self.0.alarm.waker().interrupt();
        }
        if state.keeps {
            Ok(Accepted::Pending)
        } else {
            Ok(Accepted::Complete)
        }
    }

    fn reclaim(&mut self, _now: Instant, _completed: &mut Completed) {}

    fn arm(&mut self) -> Option<Armed> {
        let mut state = self.0.state.lock().unwrap();
        if state.room > 0 && (state.refused || !state.keeps) {
            return Some(Armed::WorkPending);
        }
        state.armed = true;
        Some(Armed::Idle)
    }

    /// The model waits for it by other means.
    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        None
    }

    fn doorbells(&self) -> u64 {
        0
    }
}

/// No worker here receives anything.
#[derive(Debug)]
struct NoRx;

impl RxDescriptors for NoRx {
    fn refill(&mut self, _arena: &Arena) -> bool {
        true
    }

    fn receive(&mut self, _now: Instant, _burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        Ok(())
    }

    fn arm(&mut self) -> Armed {
        Armed::Idle
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        None
    }
}

type ModelWorker = Worker<NoRx, Device, NoRx, Device, Forward>;

/// A worker with one TX queue, and what others reach of it.
struct World {
    worker: ModelWorker,
    egress: Arc<Egress<Device>>,
    hardware: Arc<Hardware>,
    alarm: Arc<Alarm>,
    intake: Arc<Intake>,
}

/// One for all runs: to make it takes longer than a run.
fn arena() -> &'static Arena {
    static ARENA: OnceLock<Arena> = OnceLock::new();
    ARENA.get_or_init(|| Arena::new(ArenaConfig::small()).unwrap())
}

fn burst(numbers: &[u8]) -> Burst {
    let mut burst = Burst::new();
    for &number in numbers {
        let mut bytes = [0; 60];
        bytes[12..15].copy_from_slice(&[0x88, 0xb5, number]);
        burst.push(arena().packet_from(&bytes).unwrap()).unwrap();
    }
    burst
}

impl World {
    /// A device with `room`, which gets `goal` packets; 0 where that is not what ends the model.
    fn new(dispatch: Dispatch, room: usize, goal: usize) -> Self {
        let alarm = Arc::new(Alarm::new().unwrap());
        let hardware = Arc::new(Hardware {
            state: Mutex::new(State {
                room,
                goal,
                ..State::default()
            }),
            alarm: Arc::clone(&alarm),
        });
        let capabilities = Capabilities::default();
        let counters = Arc::new(TxCounters::new(QueueId { port: 1, queue: 0 }));
        let queue = TxQueue::new(
            Device(Arc::clone(&hardware)),
            arena().clone(),
            capabilities.tx,
            FitLimits::new(&capabilities, None),
            Some(4),
            Arc::clone(&counters),
            Arc::default(),
        );
        let drops = Arc::default();
        let egress = Egress::new(queue, drops, dispatch, 0, Arc::clone(&alarm), false);
        let egress = Arc::new(egress);
        let intake = Arc::new(Intake::default());
        let none = Lanes {
            rx: Vec::new(),
            tx: Vec::new(),
        };
        let lanes = Lanes {
            rx: Vec::new(),
            tx: vec![TxLane::new(Arc::clone(&egress), counters)],
        };
        let worker = Worker::new(
            none,
            lanes,
            Forward,
            Arc::clone(&intake),
            Arc::new(WorkerCounters::default()),
            Arc::clone(&alarm),
        );
        Self {
            worker,
            egress,
            hardware,
            alarm,
            intake,
        }
    }

    /// An application that sends these, each on its own.
    fn producer(&self, numbers: &'static [u8]) -> thread::JoinHandle<Producer> {
        self.send(self.egress.producer(false), numbers)
    }

    fn send(&self, producer: Producer, numbers: &'static [u8]) -> thread::JoinHandle<Producer> {
        let egress = Arc::clone(&self.egress);
        thread::spawn(move || {
            for &number in numbers {
                let mut burst = burst(&[number]);
                if egress.submit(&producer, &mut burst, &|| NOW).is_ok() {
                    assert!(burst.is_empty(), "there is space");
                }
            }
            // It goes on to be there: that it leaves would be told to the worker.
            producer
        })
    }

    /// The hardware gets room for so many packets, one after the other.
    fn hardware(&self, packets: usize) -> thread::JoinHandle<()> {
        let hardware = Arc::clone(&self.hardware);
        thread::spawn(move || (0..packets).for_each(|_| hardware.make_room()))
    }

    /// The shell of a worker that polls, until so many packets were sent.
    fn poll_until(&mut self, sent: usize) {
        while self.hardware.sent() < sent {
            if self.worker.step(NOW).unwrap() != Next::Again {
                self.worker.listen();
            }
            thread::yield_now();
        }
    }

    /// The shell: steps, and sleeps for as long as nobody wakes it, until `done` of what the last
    /// step said.
    fn run(&mut self, mut done: impl FnMut(&Self, Next) -> bool) {
        loop {
            let next = self.worker.step(NOW).unwrap();
            if done(self, next) {
                return;
            }
            if next != Next::Again && self.worker.arm() == Armed::Idle {
                self.alarm.waker().wait();
            }
        }
    }
}

/// Runs a model, without those runs that force more than `switches` switches of threads.
pub(super) fn model(switches: usize, body: impl Fn() + Sync + Send + 'static) {
    arena();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.max_branches = 20_000;
    builder.check(body);
}

#[test]
fn what_is_left_to_a_worker_that_falls_asleep_wakes_it() {
    model(4, || {
        let mut world = World::new(Dispatch::Deferred, 2, 2);
        let producer = world.producer(&[1, 2]);
        world.run(|world, _| world.hardware.sent() == 2);
        world.egress.retire(&producer.join().unwrap());
        assert_eq!(world.hardware.state.lock().unwrap().sent, [1, 2]);
    });
}

/// One that polls looks at the ring where somebody rang only: here, where time stands still, never
/// without.
#[test]
fn what_is_left_to_a_worker_that_polls_is_rung_for() {
    for (dispatch, budget) in [(Dispatch::Deferred, None), (Dispatch::Direct, Some(1))] {
        model(2, move || {
            let mut world = World::new(dispatch, 3, 2);
            if let Some(budget) = budget {
                world.egress.publish_rule(Rule::direct(budget));
            }
            let senders = [world.producer(&[1]), world.producer(&[2])];
            world.poll_until(2);
            for sender in senders {
                world.egress.retire(&sender.join().unwrap());
            }
        });
    }
}

/// S4: a worker that sleeps goes on sleeping, whoever of two finds the other one draining, or in
/// the middle of putting a packet into the ring.
#[test]
fn direct_dispatch_wakes_nobody_however_producers_meet() {
    model(4, || {
        let mut world = World::new(Dispatch::Direct, 3, 0);
        let (one, other) = (world.egress.producer(false), world.egress.producer(false));
        while world.worker.step(NOW).unwrap() == Next::Again || world.worker.arm() != Armed::Idle {}
        let senders = [world.send(one, &[1, 2]), world.send(other, &[3])];
        for sender in senders {
            world.egress.retire(&sender.join().unwrap());
        }
        assert_eq!(world.hardware.sent(), 3);
        assert_eq!(world.egress.stats().snapshot().producers.wakeups, 0);
    });
}

/// A producer whose budget is used up leaves the ring to the next one, or wakes the worker.
#[test]
fn what_a_producer_leaves_to_the_next_one_is_never_left_to_nobody() {
    model(2, || {
        let mut world = World::new(Dispatch::Direct, 3, 3);
        world.egress.publish_rule(Rule::direct(1));
        let senders = [world.producer(&[1, 2]), world.producer(&[3])];
        world.run(|world, _| world.hardware.sent() == 3);
        for sender in senders {
            world.egress.retire(&sender.join().unwrap());
        }
    });
}

/// The same among producers alone: the worker sleeps, and runs after them if it was told.
#[test]
fn what_no_producer_takes_the_worker_is_told_of() {
    model(4, || {
        let mut world = World::new(Dispatch::Direct, 3, 3);
        world.egress.publish_rule(Rule::direct(1));
        let (one, other) = (world.egress.producer(false), world.egress.producer(false));
        while world.worker.step(NOW).unwrap() == Next::Again || world.worker.arm() != Armed::Idle {}
        let senders = [world.send(one, &[1]), world.send(other, &[2, 3])];
        for sender in senders {
            world.egress.retire(&sender.join().unwrap());
        }
        if world.hardware.sent() < 3 {
            world.alarm.waker().wait();
            world.run(|world, _| world.hardware.sent() == 3);
        }
    });
}

#[test]
fn a_device_that_becomes_ready_wakes_a_worker_that_falls_asleep() {
    model(4, || {
        let mut world = World::new(Dispatch::Direct, 0, 2);
        let mut packets = burst(&[1, 2]);
        let own = world.egress.producer(false);
        world.egress.submit(&own, &mut packets, &|| NOW).unwrap();
        let hardware = world.hardware(2);
        world.run(|world, _| world.hardware.sent() == 2);
        hardware.join().unwrap();
        world.egress.retire(&own);
    });
}

/// The producer finds the device full, has the role, and leaves it; meanwhile the worker falls
/// asleep and the device becomes ready.
#[test]
fn a_stall_that_a_producer_leaves_is_the_workers_to_watch() {
    model(4, || {
        let mut world = World::new(Dispatch::Direct, 0, 1);
        let (producer, hardware) = (world.producer(&[1]), world.hardware(1));
        world.run(|world, _| world.hardware.sent() == 1);
        world.egress.retire(&producer.join().unwrap());
        hardware.join().unwrap();
    });
}

/// A device that has one of two packets and takes no more, since it keeps what it has.
fn stalled() -> (World, Producer) {
    let world = World::new(Dispatch::Direct, 1, 2);
    world.hardware.state.lock().unwrap().keeps = true;
    let own = world.egress.producer(false);
    let mut packets = burst(&[1, 2]);
    world.egress.submit(&own, &mut packets, &|| NOW).unwrap();
    (world, own)
}

/// What a producer finds in the ring that the worker was told of, and has not come for: it sends
/// one packet, and goes on if it is the only one and the worker sleeps, which may wake up then.
/// Nobody else comes: who stops has told somebody of the rest. With `room` for less, what stalls is
/// the worker's.
fn backlog(room: usize, producers: usize) {
    model(2, move || {
        let goal = 3 + producers;
        let mut world = World::new(Dispatch::Direct, room, goal);
        let own = world.egress.producer(false);
        world.egress.publish_rule(Rule::deferred(1));
        let mut packets = burst(&[1, 2, 3]);
        world.egress.submit(&own, &mut packets, &|| NOW).unwrap();
        world.egress.publish_rule(Rule::direct(1));
        let first = world.send(own, &[4]);
        let second = (producers > 1).then(|| world.producer(&[5]));
        let hardware = (room < goal).then(|| world.hardware(goal - room));
        world.run(|world, _| world.hardware.sent() == goal);
        for thread in [Some(first), second].into_iter().flatten() {
            world.egress.retire(&thread.join().unwrap());
        }
        if let Some(hardware) = hardware {
            hardware.join().unwrap();
        }
    });
}

#[test]
fn an_only_producer_goes_on_as_the_worker_wakes_up() {
    backlog(4, 1);
}

#[test]
fn an_only_producer_goes_on_until_the_device_is_full() {
    backlog(3, 1);
}

#[test]
fn a_producer_goes_on_as_another_comes() {
    backlog(5, 2);
}

/// Who only wants buffers back.
fn reclaim(world: &World, own: Producer) -> thread::JoinHandle<Producer> {
    let egress = Arc::clone(&world.egress);
    thread::spawn(move || {
        egress.reclaim(&own, &|| NOW);
        own
    })
}

/// Who only wants buffers back has the role of the consumer for a moment, in which the worker falls
/// asleep, and leaves the stall as it was.
#[test]
fn a_stall_that_somebody_looked_at_is_the_workers_to_watch() {
    model(2, || {
        let (mut world, own) = stalled();
        let collector = reclaim(&world, own);
        let hardware = world.hardware(1);
        world.run(|world, _| world.hardware.sent() == 2);
        world.egress.retire(&collector.join().unwrap());
        hardware.join().unwrap();
    });
}

/// The same where the worker polls, and finds the role taken at just that moment.
#[test]
fn a_stall_that_somebody_looked_at_is_seen_by_a_worker_that_polls() {
    model(2, || {
        let (mut world, own) = stalled();
        // What it was told of until now it has seen.
        for _ in 0..2 {
            world.worker.step(NOW).unwrap();
            world.worker.listen();
        }
        let collector = reclaim(&world, own);
        let hardware = world.hardware(1);
        world.poll_until(2);
        world.egress.retire(&collector.join().unwrap());
        hardware.join().unwrap();
    });
}

/// The first packet that a device keeps: a worker that sleeps for ever would never look whether it
/// comes back.
#[test]
fn a_worker_learns_of_the_first_packet_that_a_device_keeps() {
    model(5, || {
        let mut world = World::new(Dispatch::Direct, 1, 0);
        world.hardware.state.lock().unwrap().keeps = true;
        let producer = world.producer(&[1]);
        world.run(|_, next| matches!(next, Next::SleepUntil(_)));
        world.egress.retire(&producer.join().unwrap());
    });
}

/// And it hears of a producer that was in the middle of a submission then.
#[test]
fn a_stop_wakes_a_worker_that_falls_asleep() {
    model(5, || {
        let mut world = World::new(Dispatch::Direct, 1, 0);
        let producer = world.producer(&[1]);
        let stop = {
            let (intake, alarm) = (Arc::clone(&world.intake), Arc::clone(&world.alarm));
            thread::spawn(move || {
                intake.stop();
                alarm.ring();
            })
        };
        world.run(|_, next| next == Next::Done);
        world.egress.retire(&producer.join().unwrap());
        stop.join().unwrap();
    });
}

/// A command that comes as the worker falls asleep, and the packet that the queue has held back:
/// nobody sends anything after it.
#[test]
fn a_resume_wakes_a_worker_that_falls_asleep() {
    model(2, || {
        let mut world = World::new(Dispatch::Direct, 1, 1);
        let port = TxQueues::Port(Port::B);
        let done = world.worker.command(port, Command::Pause, NOW).unwrap();
        assert_eq!(done.done, 1);
        let producer = world.producer(&[1]);
        let control = Control::of(std::slice::from_ref(&world.worker));
        let resume = thread::spawn(move || control.send(port, Command::Resume).unwrap());
        world.run(|world, _| world.hardware.sent() == 1);
        world.egress.retire(&producer.join().unwrap());
        assert_eq!(resume.join().unwrap().wait(), Ok(1));
    });
}

/// A producer that waits for space, when nobody will ever make some.
#[test]
fn the_end_of_a_run_is_told_to_who_waits_for_space() {
    model(5, || {
        let world = World::new(Dispatch::Direct, 0, 0);
        let own = world.egress.producer(false);
        let shut = {
            let egress = Arc::clone(&world.egress);
            thread::spawn(move || egress.shut())
        };
        let (sleep, waker) = super::space::sleep();
        world.egress.wait(&own, &waker);
        if !world.egress.is_shut() {
            sleep.wait();
            assert!(world.egress.is_shut(), "it was told so");
        }
        shut.join().unwrap();
        world.egress.retire(&own);
    });
}
