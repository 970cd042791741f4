//! Threads of the application send beside the workers.

use super::fake::{FakeWorker, Queue, World, dispatched, plan_of};
use crate::driver::{Armed, Input};
use crate::engine::{
    Closed, Command, Forward, Next, Port, Running, SendError, TrySendError, TxHandle, TxQueues,
};
use crate::limits::{BURST_PACKETS_MAX, TX_RING_PACKETS};
use crate::packet::{Arena, Burst, Packet};
use crate::policy::dispatch::Dispatch;
use crate::policy::idle::Relief;
use crate::stats::DropReason;
use crate::time::Instant;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

pub const NOW: Instant = Instant::from_nanos(1);
const ENDLESS: [Input; 2] = [Input::Endless; 2];
/// Longest wait for what must happen, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const POLICIES: [Dispatch; 5] = [
    Dispatch::Direct,
    Dispatch::Deferred,
    Dispatch::Abdicate,
    Dispatch::Threshold(8),
    Dispatch::Adaptive,
];

fn one(dispatch: Dispatch) -> World<Forward> {
    dispatched(&plan_of([1, 1]), [1, 1], ENDLESS, None, dispatch, || {
        Forward
    })
    .unwrap()
}

pub fn start(world: &mut World<Forward>) -> Running {
    let workers = world.workers.take().expect("started once");
    Running::start(workers, world.intake.clone()).unwrap()
}

fn to_b(world: &World<Forward>) -> TxHandle {
    world.handles.queue(Port::B, 0).unwrap()
}

pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Of the flow that the number's upper 12 bits say: no IP packet, so its addresses make the flow.
fn numbered(arena: &Arena, number: u32) -> Option<Packet> {
    let mut bytes = [0u8; 60];
    bytes[8..12].copy_from_slice(&(number >> 20).to_be_bytes());
    bytes[12..14].copy_from_slice(&0x88b5u16.to_be_bytes());
    bytes[14..18].copy_from_slice(&number.to_be_bytes());
    arena.packet_from(&bytes).ok()
}

/// A burst with these numbers, as many as there are buffers for.
pub fn burst(arena: &Arena, numbers: impl IntoIterator<Item = u32>) -> Burst {
    let mut burst = Burst::new();
    for number in numbers {
        let Some(packet) = numbered(arena, number) else {
            break;
        };
        burst.push(packet).unwrap();
    }
    burst
}

/// Wakes the thread that made it, and counts.
pub struct Unpark(thread::Thread, pub AtomicU64);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.unpark();
    }
}

pub fn unpark() -> (Arc<Unpark>, Waker) {
    let unpark = Arc::new(Unpark(thread::current(), AtomicU64::new(0)));
    (Arc::clone(&unpark), Waker::from(unpark))
}

pub fn poll<F: Future>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

/// Runs a future here. A wake-up that is lost makes it panic.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let (_, waker) = unpark();
    let mut future = pin!(future);
    loop {
        match poll(future.as_mut(), &waker) {
            Poll::Ready(done) => return done,
            Poll::Pending => {
                let start = std::time::Instant::now();
                thread::park_timeout(PATIENCE);
                assert!(
                    start.elapsed() < PATIENCE,
                    "nobody said that there is space"
                );
            }
        }
    }
}

/// xorshift64*: the tests name the seed of what failed.
pub struct Random(u64);

impl Random {
    /// Of a seed that is not 0.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

/// Sends `count` packets by all three forms of sending, chosen at random.
fn produce(mut handle: TxHandle, producer: u32, count: u32, seed: u64) {
    let mut random = Random(seed ^ u64::from(producer + 1) << 32);
    let mut next = 0;
    while next < count {
        let many = (random.below(BURST_PACKETS_MAX as u64) as u32 + 1).min(count - next);
        let many = if random.below(3) == 0 { 1 } else { many };
        let numbers = (next..next + many).map(|n| producer << 24 | n);
        let mut burst = burst(handle.arena(), numbers);
        if burst.is_empty() {
            // Others have all the buffers.
            handle.reclaim();
            thread::yield_now();
            continue;
        }
        next += burst.len() as u32;
        while !burst.is_empty() {
            match random.below(3) {
                0 => match handle.try_send(&mut burst) {
                    Ok(_) => assert!(burst.is_empty()),
                    Err(TrySendError::Full { .. }) => thread::yield_now(),
                    Err(TrySendError::Closed) => panic!("nobody ends it yet"),
                },
                1 => {
                    handle.send_blocking(&mut burst, PATIENCE).unwrap();
                }
                _ => {
                    block_on(handle.send(&mut burst)).unwrap();
                }
            }
        }
    }
}

/// Every policy, one to four producers, a worker that forwards into the same queue, and a device
/// that stalls and goes on all the time: all arrives, each producer's packets in order.
#[test]
fn order_and_conservation_under_every_policy() {
    const EACH: u32 = 1500;
    for (index, dispatch) in POLICIES.into_iter().enumerate() {
        for producers in 1..=4u32 {
            let seed = 0x5eed_0000 + (index as u64) * 16 + u64::from(producers);
            println!("{dispatch}, {producers} producers, seed {seed:#x}");
            let mut world = one(dispatch);
            let mut random = Random(seed);
            let device = world.b[0].clone();
            device.tx().room = 0;
            device.tx().keeps = random.below(2) == 1;
            let handle = to_b(&world);
            let running = start(&mut world);
            let ingress = world.a[0].clone();
            ingress.arrive((0..EACH).map(|n| 9 << 24 | n));
            let threads: Vec<_> = (0..producers)
                .map(|producer| {
                    let handle = handle.clone();
                    thread::spawn(move || produce(handle, producer, EACH, seed))
                })
                .collect();
            let all = ((producers + 1) * EACH) as usize;
            wait_for("all packets to be sent", || {
                for _ in 0..random.below(50) {
                    device.tx().complete = usize::MAX;
                    device.make_room(random.below(100) as usize);
                    if random.below(2) == 0 {
                        thread::yield_now();
                    }
                }
                device.tx().sent.len() == all
            });
            threads
                .into_iter()
                .for_each(|thread| thread.join().unwrap());
            drop(handle);
            device.tx().complete = usize::MAX;
            running.stop();
            running.join().unwrap();
            let end = world.closed();
            let generated = u64::from(producers * EACH);
            assert_eq!(end.ledger.generated, generated, "seed {seed:#x}");
            assert_eq!(end.ledger.transmitted, all as u64, "seed {seed:#x}");
            assert_eq!(
                (end.ledger.held, end.ledger.dropped),
                (0, 0),
                "seed {seed:#x}"
            );
            let sent = &device.tx().sent;
            for producer in (0..producers).chain([9]) {
                let own = sent.iter().filter(|&&n| n >> 24 == producer);
                let own: Vec<_> = own.map(|n| n & 0xff_ffff).collect();
                assert!(
                    own.iter().copied().eq(0..EACH),
                    "seed {seed:#x}: {producer}"
                );
            }
        }
    }
}

/// What is known of the sizes of batches is what those who sent them know.
#[test]
fn every_batch_is_recorded_by_who_submits_it() {
    for dispatch in POLICIES {
        let mut world = one(dispatch);
        let device = world.b[0].clone();
        device.tx().room = 0;
        let running = start(&mut world);
        let threads: Vec<_> = (0..3)
            .map(|producer| {
                let mut handle = to_b(&world);
                thread::spawn(move || {
                    let mut random = Random::new(0xba7c_4e50 + producer);
                    // By size, as far as each has a bucket of its own.
                    let mut sizes = [0_u64; 32];
                    let mut sent = 0;
                    while sent < 500 {
                        let many = random.below(31) as u32 + 1;
                        let mut burst = burst(handle.arena(), 0..many);
                        while !burst.is_empty() {
                            let before = burst.len();
                            match handle.try_send(&mut burst) {
                                Ok(_) | Err(TrySendError::Full { .. }) => {}
                                Err(TrySendError::Closed) => panic!("nobody ends it yet"),
                            }
                            sizes[before - burst.len()] += 1;
                            sent += before - burst.len();
                            thread::yield_now();
                        }
                    }
                    // Those of a handle that is gone are kept.
                    drop(handle);
                    sizes
                })
            })
            .collect();
        let mut random = Random::new(0xba7c_4e60);
        wait_for("the producers", || {
            device.make_room(random.below(60) as usize);
            threads.iter().all(thread::JoinHandle::is_finished)
        });
        let mut expected = [0; 32];
        for thread in threads {
            let sizes = thread.join().unwrap();
            for (sum, count) in expected.iter_mut().zip(sizes) {
                *sum += count;
            }
        }
        device.make_room(usize::MAX / 2);
        running.stop();
        running.join().unwrap();
        let end = world.closed();
        let enqueue = &end.ports[1].tx_batches[0].enqueue;
        let found: Vec<_> = enqueue.buckets().collect();
        let expected = expected.into_iter().enumerate().skip(1);
        let expected = expected.filter(|&(_, count)| count > 0);
        let expected: Vec<_> = expected.map(|(size, n)| (size as u64, n)).collect();
        assert_eq!(found, expected, "{dispatch}");
        assert_eq!(enqueue.sum(), end.ledger.generated, "{dispatch}");
    }
}

/// S1 and S4: one packet at a time, and nobody is woken for it.
#[test]
fn direct_dispatch_wakes_nobody() {
    for dispatch in [Dispatch::Direct, Dispatch::Adaptive] {
        let mut world = one(dispatch);
        let mut handle = to_b(&world);
        let running = start(&mut world);
        let worker = Arc::clone(&world.stats.workers[0]);
        wait_for("the worker to sleep", || worker.sleeps.get() > 0);
        let before = (worker.steps.get(), world.stats.snapshot().syscalls);
        for number in 0..2000 {
            let sent = handle.try_send(&mut burst(&world.arena, [number]));
            assert_eq!(sent, Ok(1));
        }
        let now = world.stats.snapshot();
        let tx = &now.ports[1].tx[0];
        assert_eq!((tx.direct, tx.deferred, tx.wakeups), (2000, 0, 0));
        assert_eq!((tx.ring_full, tx.abdications), (0, 0));
        assert_eq!(
            (worker.steps.get(), now.syscalls),
            before,
            "not one system call"
        );
        assert_eq!(world.b[0].tx().sent, (0..2000).collect::<Vec<_>>());
        running.stop();
        running.join().unwrap();
        assert_eq!(world.closed().ledger.generated, 2000);
    }
}

/// S1's other extreme, so that the counters are known to count: each batch asks for the worker.
#[test]
fn deferred_dispatch_wakes_a_worker_that_sleeps() {
    let mut world = one(Dispatch::Deferred);
    let mut handle = to_b(&world);
    let running = start(&mut world);
    for number in 0..50 {
        let sleeps = world.stats.workers[0].sleeps.get();
        assert_eq!(handle.try_send(&mut burst(&world.arena, [number])), Ok(1));
        let queue = world.b[0].clone();
        wait_for("the packet", || {
            queue.tx().sent.len() == number as usize + 1
        });
        wait_for("the worker to sleep", || {
            world.stats.workers[0].sleeps.get() > sleeps
        });
    }
    let tx = world.stats.snapshot().ports[1].tx[0];
    assert_eq!((tx.direct, tx.deferred), (0, 50));
    assert!((1..=50).contains(&tx.wakeups), "{}", tx.wakeups);
    running.stop();
    running.join().unwrap();
    world.closed();
}

/// mechanisms-bsd.md 6.10, cases 1 and 2: `if_txmit` of OpenBSD, with the ring and its worker.
#[test]
fn a_threshold_sends_by_itself_once_there_are_enough() {
    let mut world = one(Dispatch::Threshold(16));
    let mut handle = to_b(&world);
    settle(world.worker(0));
    for number in 0..15 {
        assert_eq!(handle.try_send(&mut burst(&world.arena, [number])), Ok(1));
    }
    let tx = world.closed().ports[1].tx[0];
    assert!(world.b[0].tx().sent.is_empty());
    assert_eq!(
        (tx.direct, tx.deferred, tx.wakeups),
        (0, 15, 1),
        "one is pending"
    );
    assert_eq!(handle.try_send(&mut burst(&world.arena, [15])), Ok(1));
    let end = world.closed();
    assert_eq!(world.b[0].tx().sent, (0..16).collect::<Vec<_>>());
    assert_eq!(
        (end.ports[1].tx[0].direct, end.ports[1].tx[0].wakeups),
        (1, 1)
    );
    let drain: Vec<_> = end.ports[1].tx_batches[0].drain.buckets().collect();
    assert_eq!(drain, [(16, 1)], "one start with all of them");

    // With one it is direct dispatch: every packet is sent, and nobody is woken.
    let mut world = one(Dispatch::Threshold(1));
    let mut handle = to_b(&world);
    settle(world.worker(0));
    for number in 0..15 {
        assert_eq!(handle.try_send(&mut burst(&world.arena, [number])), Ok(1));
        assert_eq!(world.b[0].tx().sent.len(), number as usize + 1);
    }
    assert_eq!(world.closed().ports[1].tx[0].wakeups, 0);
}

/// Two producers drain what gathers again and again, 256 packets a millisecond and more: `drained`
/// of them so far. A worker without a CPU of its own naps.
fn helped() -> (World<Forward>, TxHandle, TxHandle, Duration) {
    let mut world = one(Dispatch::Threshold(8));
    let (mut handle, other) = (to_b(&world), to_b(&world));
    settle(world.worker(0));
    world.worker(0).leave_cpus(2);
    assert_eq!(world.worker(0).others(us(1)).relief, Relief::None);
    for (time, end) in [(100, 8), (300, 72)] {
        let sent = world.b[0].tx().sent.len() as u32;
        assert_eq!(gather(&world, &mut handle, sent..end), end as usize);
        assert_ne!(world.worker(0).others(us(time)).relief, Relief::None);
    }
    let Relief::InTheWay(nap) = world.worker(0).others(us(300)).relief else {
        panic!("it has no CPU but theirs");
    };
    world.worker(0).leave_cpus(3);
    assert_eq!(world.worker(0).others(us(301)).relief, Relief::Most);
    world.worker(0).leave_cpus(2);
    (world, handle, other, nap)
}

fn us(us: u64) -> Instant {
    Instant::from_nanos(us * 1_000)
}

/// Sends these one by one; says how many have gone out by then.
fn gather(world: &World<Forward>, handle: &mut TxHandle, numbers: std::ops::Range<u32>) -> usize {
    for number in numbers {
        assert_eq!(handle.try_send(&mut burst(&world.arena, [number])), Ok(1));
    }
    world.b[0].tx().sent.len()
}

/// A worker that sends what applications leave to it works, though it has found the end of it when
/// its step is over: else it would sleep between packets under full load.
#[test]
fn a_step_that_drained_a_ring_has_found_work() {
    let mut world = one(Dispatch::Deferred);
    let mut handle = to_b(&world);
    settle(world.worker(0));
    assert!(!world.worker(0).found());
    for number in 0..3 {
        assert_eq!(handle.try_send(&mut burst(&world.arena, [number])), Ok(1));
        assert_eq!(world.worker(0).step(NOW).unwrap(), Next::Arm);
        assert!(world.worker(0).found(), "{number}");
        assert_eq!(world.worker(0).step(NOW).unwrap(), Next::Arm);
        assert!(!world.worker(0).found(), "once");
    }
    assert_eq!(world.b[0].tx().sent, [0, 1, 2]);
    // In front of a full device it has not: what it took out of the ring waits as before.
    world.b[0].tx().room = 0;
    assert_eq!(handle.try_send(&mut burst(&world.arena, [3])), Ok(1));
    world.worker(0).step(NOW).unwrap();
    assert!(!world.worker(0).found(), "it stalls");
    world.b[0].make_room(1);
    settle(world.worker(0));
    assert_eq!(world.b[0].tx().sent, [0, 1, 2, 3]);
    drop(handle);
    world.closed();
}

/// What the room is counted by that a worker has to spin in.
#[test]
fn producers_are_those_with_handles_and_one_behind_a_device() {
    let mut world = one(Dispatch::Deferred);
    settle(world.worker(0));
    let second = |seconds: u64| us(seconds * 1_000_000);
    assert_eq!(world.worker(0).others(second(1)).producers, None, "nobody");
    let handles = [to_b(&world), world.handles.queue(Port::A, 0).unwrap()];
    assert_eq!(world.worker(0).others(second(1)).producers, Some(2));
    world.a[0].arrive([1_000]);
    settle(world.worker(0));
    // One more is behind the device, for a second.
    for (time, expected) in [(2, Some(3)), (3, Some(2))] {
        let others = world.worker(0).others(second(time));
        assert_eq!(others.producers, expected, "{time} s");
    }
    drop(handles);
    assert_eq!(world.worker(0).others(second(4)).producers, None);
    world.closed();
}

/// A worker without a CPU of its own looks after the rest only when producers have stopped.
#[test]
fn what_gathers_is_the_producers_as_long_as_they_go_on() {
    let (mut world, mut handle, _other, nap) = helped();
    let sent = |world: &World<Forward>| world.b[0].tx().sent.len();
    assert_eq!(gather(&world, &mut handle, 72..84), 80);
    let end = us(300).after(nap);
    assert_eq!(world.worker(0).nap(), Armed::Idle);
    assert_ne!(world.worker(0).step(end).unwrap(), Next::Again);
    assert_eq!(sent(&world), 80, "the next producer drains it");
    assert_eq!(gather(&world, &mut handle, 84..86), 80);
    // They are left when nobody sends any more, and the next step sends them.
    let end = end.after(nap);
    assert_eq!(world.worker(0).nap(), Armed::Idle);
    world.worker(0).step(end).unwrap();
    assert_eq!(world.b[0].tx().sent, (0..86).collect::<Vec<_>>());
    // A worker that did not nap serves at once: it was woken, or looked for work.
    assert_eq!(gather(&world, &mut handle, 86..98), 94);
    world.worker(0).step(end.after(nap)).unwrap();
    assert_eq!(sent(&world), 98);
    assert_eq!(
        world.worker(0).others(end.after(16 * nap)).relief,
        Relief::None
    );
    // Nor does one leave anything behind that is to end.
    assert_eq!(gather(&world, &mut handle, 98..110), 106);
    world.intake.stop();
    assert_eq!(world.worker(0).nap(), Armed::Idle);
    world.worker(0).step(end.after(20 * nap)).unwrap();
    assert_eq!(sent(&world), 110);
    world.closed();
}

/// Nobody else restarts a device that is full, or receives.
#[test]
fn a_worker_with_work_of_its_own_does_not_nap() {
    let (mut world, mut handle, _other, nap) = helped();
    // Something has arrived: not within a second.
    world.a[0].arrive([1_000]);
    assert_eq!(world.worker(0).nap(), Armed::WorkPending);
    settle(world.worker(0));
    assert_eq!(gather(&world, &mut handle, 73..81), 81);
    assert_eq!(
        world.worker(0).others(us(301).after(nap)).relief,
        Relief::None
    );

    let (mut world, mut handle, _other, nap) = helped();
    world.b[0].tx().room = 0;
    assert_eq!(gather(&world, &mut handle, 72..84), 72);
    assert_eq!(
        world.worker(0).others(us(301)).relief,
        Relief::None,
        "it stalls"
    );
    // A command is carried out with the step, and all that it lets go on.
    world.b[0].make_room(100);
    let queues = TxQueues::Port(Port::B);
    let now = us(301).after(nap);
    for command in [Command::Pause, Command::Resume] {
        let done = world.worker(0).command(queues, command, now).unwrap();
        assert_eq!((done.done, done.unsupported), (1, 0));
    }
    world.worker(0).step(now).unwrap();
    assert_eq!(world.b[0].tx().sent.len(), 84);
    world.closed();
}

/// Fills queue and ring of a device that takes nothing with packets from `next` on, until the
/// worker finds no place for any either; says what the next one would be.
pub fn fill(world: &mut World<Forward>, handle: &mut TxHandle, mut next: u32) -> u32 {
    loop {
        let before = next;
        next = fill_once(world, handle, next);
        settle(world.worker(0));
        if next == before {
            return next;
        }
    }
}

fn fill_once(world: &World<Forward>, handle: &mut TxHandle, mut next: u32) -> u32 {
    loop {
        let mut burst = burst(&world.arena, next..next + 16);
        assert_eq!(burst.len(), 16, "buffers for a full ring");
        match handle.try_send(&mut burst) {
            Ok(16) => next += 16,
            Ok(_) => panic!("all or full"),
            Err(TrySendError::Full { accepted }) => {
                assert_eq!(burst.len() + accepted, 16);
                return next + accepted as u32;
            }
            Err(TrySendError::Closed) => panic!("nobody ends it"),
        }
    }
}

pub fn settle(worker: &mut FakeWorker<Forward>) -> Next {
    for _ in 0..100_000 {
        let next = worker.step(NOW).unwrap();
        if next != Next::Again && worker.arm() == Armed::Idle {
            return next;
        }
    }
    panic!("it does not settle")
}

#[test]
fn a_full_ring_pushes_back_in_all_three_forms() {
    let mut world = one(Dispatch::Direct);
    let mut handle = to_b(&world);
    world.b[0].tx().room = 0;
    settle(world.worker(0));
    let mut count = fill_once(&world, &mut handle, 0);
    assert!(
        count as usize >= TX_RING_PACKETS,
        "every slot is used: {count}"
    );
    let held = world.closed().ledger;
    assert_eq!((held.generated, held.held), (count.into(), count.into()));
    assert!(world.stats.snapshot().ports[1].tx[0].ring_full > 0);
    // It was told of the stall, though it slept.
    assert_eq!(world.stats.snapshot().ports[1].tx[0].wakeups, 1);
    settle(world.worker(0));
    count = fill(&mut world, &mut handle, count);

    let mut more = burst(&world.arena, count..count + 3);
    let full = || world.stats.snapshot().ports[1].tx[0].ring_full;
    let before = full();
    let waits = handle.send_blocking(&mut more, Duration::from_millis(1));
    assert_eq!((waits, more.len()), (Err(SendError::TimedOut), 3));
    // At first, and twice each time that it is about to sleep; to let others run is no attempt.
    assert!((3..=9).contains(&(full() - before)));
    let (woken, waker) = unpark();
    let mut cx = Context::from_waker(&waker);
    assert!(handle.poll_ready(&mut cx).is_pending());
    {
        let mut sending = pin!(handle.send(&mut more));
        assert!(poll(sending.as_mut(), &waker).is_pending());
        // There is room for one: that alone makes no space in the ring, which goes on in bursts.
        world.b[0].make_room(1);
        settle(world.worker(0));
        world.closed();
        world.b[0].make_room(usize::MAX);
        settle(world.worker(0));
        assert!(woken.1.load(Ordering::Relaxed) > 0);
        assert_eq!(poll(sending.as_mut(), &waker), Poll::Ready(Ok(3)));
    }
    count += 3;
    assert!(handle.poll_ready(&mut cx).is_ready());
    assert_eq!(world.b[0].tx().sent, (0..count).collect::<Vec<_>>());

    // A future that is dropped leaves the packets where they were.
    world.b[0].tx().room = 0;
    fill(&mut world, &mut handle, count);
    let mut more = burst(&world.arena, 0..2);
    {
        let mut sending = pin!(handle.send(&mut more));
        assert!(poll(sending.as_mut(), &waker).is_pending());
    }
    assert_eq!(more.len(), 2);

    world.intake.stop();
    world.worker(0).step(NOW).unwrap();
    assert_eq!(handle.try_send(&mut more), Err(TrySendError::Closed));
    assert!(handle.poll_ready(&mut cx).is_ready(), "to be told so");
    assert_eq!(block_on(handle.send(&mut more)), Err(Closed));
    let blocking = handle.send_blocking(&mut more, PATIENCE);
    assert_eq!((blocking, more.len()), (Err(SendError::Closed), 2));
    // What was taken before the end is sent, or counted.
    world.worker(0).abandon(DropReason::Shutdown);
    let end = world.closed();
    assert!(end.drops.get(DropReason::Shutdown) > 0 && end.ledger.held == 0);
}

/// To send nothing is no submission, and takes the consumer's role from nobody.
#[test]
fn a_burst_of_nothing_is_not_counted() {
    let world = one(Dispatch::Direct);
    let mut handle = to_b(&world);
    for _ in 0..3 {
        assert_eq!(handle.try_send(&mut Burst::new()), Ok(0));
    }
    let tx = world.stats.snapshot().ports[1].tx[0];
    assert_eq!((tx.direct, tx.deferred, tx.packets), (0, 0, 0));
    world.closed();
}

/// Blocked in all forms when the run ends: told, and nobody hangs.
#[test]
fn the_end_of_the_run_releases_who_waits() {
    for how in ["stop", "drop", "drop workers", "failure"] {
        let mut world = one(Dispatch::Direct);
        world.b[0].tx().room = 0;
        let mut handle = to_b(&world);
        fill(&mut world, &mut handle, 0);
        let (blocked, awaits) = (handle.clone(), handle.clone());
        let spawn = |mut handle: TxHandle, blocks: bool| {
            let mut rest = burst(&world.arena, 0..5);
            thread::spawn(move || {
                let closed = if blocks {
                    handle.send_blocking(&mut rest, PATIENCE) == Err(SendError::Closed)
                } else {
                    block_on(handle.send(&mut rest)) == Err(Closed)
                };
                assert!(closed && rest.len() == 5);
            })
        };
        let threads = [spawn(blocked, true), spawn(awaits, false)];
        if how == "drop workers" {
            drop(world.workers.take());
        } else {
            let running = start(&mut world);
            thread::sleep(Duration::from_millis(2));
            match how {
                "stop" => {
                    running.stop();
                    running.join().unwrap();
                }
                "drop" => drop(running),
                _ => {
                    world.b[0].tx().removed = true;
                    world.b[0].make_room(1);
                    let error = running.join().unwrap_err();
                    assert_eq!(error.port, Some(Port::B), "{error}");
                }
            }
        }
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        let end = world.closed();
        assert_eq!(end.ledger.held, 0, "{how}");
        let reason = match how {
            "failure" => DropReason::DeviceReset,
            _ => DropReason::Shutdown,
        };
        assert_eq!(end.drops.get(reason), end.ledger.generated, "{how}");
        // Handles outlive it all.
        let mut late = burst(&world.arena, [1]);
        assert_eq!(handle.try_send(&mut late), Err(TrySendError::Closed));
        handle.reclaim();
        drop(handle);
        world.closed();
    }
}

/// An application hits the error of a device; the run ends with it, and the packets are counted.
#[test]
fn a_failure_under_a_handle_is_the_workers_to_report() {
    let mut world = one(Dispatch::Direct);
    let mut handle = to_b(&world);
    world.b[0].tx().removed = true;
    let running = start(&mut world);
    assert_eq!(handle.try_send(&mut burst(&world.arena, 0..10)), Ok(10));
    let error = running.join().unwrap_err();
    assert_eq!(error.port, Some(Port::B), "{error}");
    let end = world.closed();
    assert_eq!(end.drops.get(DropReason::DeviceReset), 10);
}

/// The producers are gone, the device goes on: the worker was told, and watched it.
#[test]
fn a_stalled_ring_goes_on_without_its_producers() {
    for dispatch in POLICIES {
        let mut world = one(dispatch);
        world.b[0].tx().room = 3;
        let mut handle = to_b(&world);
        let running = start(&mut world);
        let worker = Arc::clone(&world.stats.workers[0]);
        wait_for("the worker to sleep", || worker.sleeps.get() > 0);
        let mut burst = burst(&world.arena, 0..40);
        handle.send_blocking(&mut burst, PATIENCE).unwrap();
        drop(handle);
        let queue: &Queue = &world.b[0];
        wait_for("the stall", || queue.tx().sent.len() == 3);
        for sent in [10, 11, 40] {
            let more = sent - queue.tx().sent.len();
            queue.make_room(more);
            wait_for("the rest", || queue.tx().sent.len() == sent);
        }
        running.stop();
        running.join().unwrap();
        assert_eq!(world.closed().ledger.transmitted, 40);
    }
}

/// Who finds a ring stalled leaves it to the worker, though the device may have room by now.
#[test]
fn under_direct_dispatch_a_stalled_ring_is_the_workers_to_restart() {
    for dispatch in [Dispatch::Direct, Dispatch::Adaptive] {
        let mut world = one(dispatch);
        let mut handles = [to_b(&world), to_b(&world)];
        settle(world.worker(0));
        world.b[0].tx().room = 3;
        assert_eq!(handles[0].try_send(&mut burst(&world.arena, 0..10)), Ok(10));
        // The device says nothing of it yet.
        world.b[0].tx().room = usize::MAX;
        let asked = world.b[0].tx().asked;
        for (index, next) in [10, 15, 20, 25].into_iter().enumerate() {
            let sent = handles[index % 2].try_send(&mut burst(&world.arena, next..next + 5));
            assert_eq!(sent, Ok(5));
            assert_eq!(world.b[0].tx().asked, asked, "by a producer");
        }
        assert_eq!(world.b[0].tx().sent, [0, 1, 2]);
        let tx = world.closed().ports[1].tx[0];
        // It was told of the stall, once, and by who had caused it.
        assert_eq!((tx.direct, tx.deferred, tx.wakeups), (1, 4, 1));
        settle(world.worker(0));
        assert_eq!(world.b[0].tx().sent, (0..30).collect::<Vec<_>>());
        // From now on it is idle, and whoever comes sends.
        assert_eq!(handles[1].try_send(&mut burst(&world.arena, 30..35)), Ok(5));
        assert_eq!(world.b[0].tx().sent, (0..35).collect::<Vec<_>>());
        let end = world.closed();
        assert_eq!((end.ledger.held, end.ledger.transmitted), (0, 35));
        assert_eq!(end.ports[1].tx[0].direct, 2);
    }
}

/// A worker that has to wait for space which only an application makes: it is told.
#[test]
fn a_worker_waits_for_space_like_any_producer() {
    // From 8 packets on a producer drains whatever the state, so also a ring that has stalled.
    let mut world = one(Dispatch::Threshold(8));
    let mut handle = to_b(&world);
    world.b[0].tx().room = 0;
    world.a[0].arrive(0..200);
    settle(world.worker(0));
    let held = world.closed().ledger.held;
    assert!(held > 0 && world.b[0].tx().sent.is_empty());
    let polls = world.a[0].asked().0;
    // Nobody says that there is room; the application finds out.
    world.b[0].tx().room = usize::MAX;
    let numbers = (0..8).map(|n| 1 << 24 | n);
    assert_eq!(handle.try_send(&mut burst(&world.arena, numbers)), Ok(8));
    assert!(world.b[0].tx().sent.len() >= 8 + 64);
    // The worker slept, and has to hear of it: its descriptor is readable.
    let mut ready = false;
    world.worker(0).interests(|fd, _| {
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(
            fd,
            rustix::event::PollFlags::IN,
        )];
        let now = rustix::event::Timespec::default();
        ready |= rustix::event::poll(&mut fds, Some(&now)).unwrap() > 0;
    });
    assert!(ready, "slept over");
    settle(world.worker(0));
    assert!(world.a[0].asked().0 > polls);
    let sent = world.b[0].tx().sent.clone();
    assert_eq!(sent.len(), 208);
    assert!(sent.iter().filter(|&&n| n < 1 << 24).is_sorted());
    world.closed();
}
