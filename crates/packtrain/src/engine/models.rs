//! Models of a shared TX queue and its worker. loom runs every order of events that the memory
//! model allows between the TX worker, producers, the device, a command and the end of the run.
//!
//! `RUSTFLAGS="--cfg packtrain_loom" cargo test -p packtrain --profile loom --lib engine::models`
//!
//! The code is the engine's: [`Worker`], [`TxPart`], [`SharedTx`], the ring, the TX queue,
//! [`Wakeup`] and [`Interrupt`]. Only the device and the notifier are replaced. Time does not
//! advance (except by the 50 us of a gap), so no later poll finds missed work: a lost wake-up is a
//! deadlock, which loom reports. The counters use the atomics of `std`, which loom does not see;
//! the one wake-up that depends on counters, of a stall, reads them with the consumer role.
//!
//! Each model bounds the preemptions of a run. Without the bound the models take hours; two or
//! three preemptions find nearly all errors (CHESS, CDSChecker).

#![cfg(test)]

mod tests;

use super::control::{Control, QueueKind};
use super::error::RunError;
use super::handle::{TrySendError, TxHandle};
use super::intake::Intake;
use super::shared::{Producer, SharedTx, Submit};
use super::shell::{Action, Shell};
use super::thread::{Waits, send_all, send_parked};
use super::tx_part::TxPart;
use super::worker::{Worker, WorkerCounters, WorkerPart};
use crate::driver::{
    Accepted, Armed, Capabilities, Completed, Refused, Token, TxDescriptors, TxPacket,
};
use crate::packet::{Arena, ArenaConfig, Burst};
use crate::plan::FitLimits;
use crate::policy::dispatch::Dispatch;
use crate::policy::idle::{Idle, Idler};
use crate::queue::TxQueue;
use crate::runtime::{Interrupt, Notifier, Wakeup};
use crate::stats::{DropCounters, QueueId, TxCounters};
use crate::time::Instant;
use loom::sync::{Condvar, Mutex, MutexGuard};
use loom::thread::{self, JoinHandle};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::panic::resume_unwind;
use std::sync::{Arc, OnceLock};
use std::task::{Wake, Waker};
use std::time::Duration;

const NOW: Instant = Instant::from_nanos(1_000_000);

/// The only timer of a model: the TX worker retries an unpublished slot.
const GAP_RETRY: Duration = Duration::from_micros(50);

/// The stack of a model's thread, in words of 8 bytes: 256 KiB.
const STACK_WORDS: usize = 0x8000;

/// A thread sleeps on this: the notifier of the worker, the waker of a producer.
#[derive(Debug, Default)]
struct ModelNotifier {
    rung: Mutex<Rung>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Rung {
    notified: bool,
    /// The device has sent as many packets as the model expects.
    complete: bool,
}

impl ModelNotifier {
    fn rung(&self) -> MutexGuard<'_, Rung> {
        self.rung.lock().expect("no panic with the lock")
    }

    fn complete(&self) {
        self.rung().complete = true;
        self.changed.notify_all();
    }

    fn sleep(&self) {
        let mut rung = self.rung();
        while !rung.notified && !rung.complete {
            rung = self.changed.wait(rung).expect("no panic with the lock");
        }
    }
}

impl Notifier for ModelNotifier {
    fn notify(&self) {
        self.rung().notified = true;
        self.changed.notify_all();
    }

    fn clear(&self) -> bool {
        std::mem::take(&mut self.rung().notified)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Wake for ModelNotifier {
    fn wake(self: Arc<Self>) {
        self.notify();
    }
}

/// The hardware of the device, which a thread of the model drives.
#[derive(Debug)]
struct Hardware {
    state: Mutex<State>,
    worker: Arc<ModelNotifier>,
}

#[derive(Clone, Debug, Default)]
struct State {
    /// Packets that the device accepts now.
    room: usize,
    /// The device refused the last packet.
    refused: bool,
    /// An asynchronous device: accepted packets stay there until [`Hardware::complete`].
    keeps: bool,
    kept: VecDeque<Token>,
    done: VecDeque<Token>,
    armed: bool,
    interrupt: Option<Waker>,
    sent: Vec<u8>,
    /// The number of sent packets after which the worker's thread runs again.
    goal: usize,
    /// The driver panics at this packet.
    panics_at: Option<u8>,
    /// The device is removed at this packet.
    removed_at: Option<u8>,
}

impl Hardware {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic with the lock")
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let interrupt = {
            let mut state = self.state();
            change(&mut state);
            let armed = std::mem::take(&mut state.armed);
            state.interrupt.clone().filter(|_| armed)
        };
        if let Some(interrupt) = interrupt {
            interrupt.wake();
        }
    }

    /// Frees descriptors.
    fn make_room(&self, packets: usize) {
        self.change(|state| state.room += packets);
    }

    /// Completes all packets that the device has.
    fn complete(&self) {
        self.change(|state| {
            let kept = std::mem::take(&mut state.kept);
            state.done.extend(kept);
        });
    }

    fn sent(&self) -> Vec<u8> {
        self.state().sent.clone()
    }
}

/// The driver of the [`Hardware`].
#[derive(Debug)]
struct Device(Arc<Hardware>);

impl TxDescriptors for Device {
    fn encap(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<Accepted, Refused> {
        let number = packet.packet().first()[14];
        let mut state = self.0.state();
        if state.panics_at == Some(number) {
            drop(state);
            // Without a message, which `panic!` would print in each run.
            resume_unwind(Box::new("the model's device"));
        }
        if state.removed_at == Some(number) {
            return Err(Refused::Removed);
        }
        state.refused = state.room == 0;
        if state.refused {
            return Err(Refused::NoDescriptor);
        }
        state.room -= 1;
        state.sent.push(number);
        let accepted = match state.keeps {
            true => {
                state.kept.push_back(token);
                Accepted::Pending
            }
            false => Accepted::Complete,
        };
        if state.sent.len() == state.goal {
            drop(state);
            self.0.worker.complete();
        }
        Ok(accepted)
    }

    fn reclaim(&mut self, _now: Instant, completed: &mut Completed) {
        for token in std::mem::take(&mut self.0.state().done) {
            assert!(completed.push(token), "one place for each in flight");
        }
    }

    fn set_interrupt(&mut self, interrupt: Waker) {
        self.0.state().interrupt = Some(interrupt);
    }

    fn arm(&mut self) -> Option<Armed> {
        let mut state = self.0.state();
        let pending = !state.done.is_empty() || (state.refused && state.room > 0);
        state.armed = !pending;
        Some(match pending {
            true => Armed::WorkPending,
            false => Armed::Idle,
        })
    }

    fn doorbells(&self) -> u64 {
        0
    }
}

/// One arena for all runs of all models: making one takes longer than a run.
fn arena() -> &'static Arena {
    static ARENA: OnceLock<Arena> = OnceLock::new();
    ARENA.get_or_init(|| Arena::new(ArenaConfig::small()).expect("a small arena"))
}

fn burst(numbers: &[u8]) -> Burst {
    let mut burst = Burst::new();
    for &number in numbers {
        let mut bytes = [0; 60];
        bytes[12..15].copy_from_slice(&[0x88, 0xb5, number]);
        let packet = arena().packet_from(&bytes).expect("a frame");
        burst.push(packet).expect("space in a burst");
    }
    burst
}

/// A shared TX queue, its worker, and its device.
struct World {
    worker: Worker,
    now: Instant,
    shared: Arc<SharedTx<Device>>,
    hardware: Arc<Hardware>,
    notifier: Arc<ModelNotifier>,
    intake: Arc<Intake>,
    drops: Arc<DropCounters>,
}

/// The bursts of a producer, in order.
type Bursts = &'static [&'static [u8]];

/// The result of a producer's thread.
struct Sender {
    own: Producer,
    /// Packets that the queue accepted.
    accepted: usize,
}

impl World {
    fn new(dispatch: Dispatch, slots: usize, device: State) -> Self {
        let notifier = Arc::new(ModelNotifier::default());
        let wakeup = Arc::new(Wakeup::new(Arc::clone(&notifier) as Arc<dyn Notifier>));
        let asynchronous = device.keeps;
        let hardware = Arc::new(Hardware {
            state: Mutex::new(device),
            worker: Arc::clone(&notifier),
        });
        let id = QueueId { port: 0, queue: 0 };
        let (capabilities, drops) = (Capabilities::default(), Arc::default());
        let mut queue = TxQueue::new(
            Device(Arc::clone(&hardware)),
            arena().clone(),
            capabilities.tx,
            FitLimits::new(&capabilities, None),
            Some(4),
            Arc::new(TxCounters::new(id)),
            Arc::clone(&drops),
        );
        let interrupt = Interrupt::new(&wakeup);
        queue.set_interrupt(Waker::from(Arc::clone(&interrupt)));
        let shared = Arc::new(SharedTx::new(
            queue,
            Arc::clone(&drops),
            dispatch,
            slots,
            asynchronous,
            Arc::clone(&wakeup),
            Arc::default(),
        ));
        let counters = Arc::new(WorkerCounters::default());
        let drained = Arc::clone(&counters.drained);
        let part = TxPart::new(Arc::clone(&shared), interrupt, None, false, drained);
        let parts = vec![WorkerPart {
            part: Box::new(part),
            queues: vec![(QueueKind::Tx, id)],
        }];
        let over = Arc::new(ModelNotifier::default());
        let intake = Arc::new(Intake::new(None, 0, vec![Arc::clone(&wakeup)], over));
        let shell = Shell::new(Idler::new(Idle::Halt));
        Self {
            worker: Worker::new(
                parts,
                Arc::clone(&wakeup),
                shell,
                Arc::clone(&intake),
                counters,
            ),
            now: NOW,
            shared,
            hardware,
            notifier,
            intake,
            drops,
        }
    }

    /// Starts an application thread that sends bursts and waits for space.
    fn producer(&self, bursts: Bursts) -> JoinHandle<Sender> {
        self.send(Submit::enter(&*self.shared), bursts)
    }

    fn send(&self, own: Producer, bursts: Bursts) -> JoinHandle<Sender> {
        let shared = Arc::clone(&self.shared);
        spawn(move || {
            let accepted = send(&shared, &own, bursts);
            // The caller deregisters it later, since deregistering a lane notifies the worker.
            Sender { own, accepted }
        })
    }

    /// Starts a thread of the hardware.
    fn hardware(&self, act: impl FnOnce(&Hardware) + Send + 'static) -> JoinHandle<()> {
        let hardware = Arc::clone(&self.hardware);
        spawn(move || act(&hardware))
    }

    /// Starts a thread that stops the run.
    fn stop(&self) -> JoinHandle<()> {
        let intake = Arc::clone(&self.intake);
        spawn(move || intake.stop())
    }

    fn control(&self) -> Control {
        Control::new(std::iter::once(self.worker.desk()))
    }

    /// Runs the worker until `ended`. A notification ends a sleep. The last packet that the model
    /// expects ends it, too, but is no wake-up of the engine.
    fn run_until(&mut self, ended: impl Fn(&Self, Action) -> bool) -> Result<(), RunError> {
        let mut fruitless = 0;
        loop {
            let before = self.hardware.sent().len();
            let action = self.worker.run(self.now)?;
            if ended(self, action) {
                return Ok(());
            }
            match action {
                // A worker whose steps wait for another thread lets that thread run.
                Action::Step if self.hardware.sent().len() == before => {
                    fruitless += 1;
                    if fruitless > 1 {
                        thread::yield_now();
                    }
                    continue;
                }
                Action::Step => {}
                Action::Sleep { until: Some(at) } if at <= self.now.after(GAP_RETRY) => {
                    self.now = at;
                    thread::yield_now();
                }
                Action::Sleep { .. } => self.notifier.sleep(),
                Action::Yield => thread::yield_now(),
                Action::Spin | Action::Done => panic!("{action:?}"),
            }
            fruitless = 0;
        }
    }

    /// Runs until the device has sent as many packets as the model expects.
    fn run_to_goal(&mut self) {
        let reached = |world: &Self, _| {
            let state = world.hardware.state();
            state.sent.len() >= state.goal
        };
        self.run_until(reached).expect("no device fails");
    }

    /// Runs until the worker sleeps.
    fn run_to_sleep(&mut self) {
        self.run_until(|_, action| matches!(action, Action::Sleep { .. }))
            .expect("no device fails");
    }

    fn run_to_end(&mut self) {
        self.run_until(|_, action| action == Action::Done)
            .expect("no device fails");
    }

    /// Ends the run. Checks that the device has sent exactly the packets of the producers.
    fn finish<const N: usize>(mut self, senders: [JoinHandle<Sender>; N], sent: &[u8]) {
        let senders = senders.map(|sender| sender.join().expect("no producer panics"));
        for sender in senders {
            Submit::leave(&*self.shared, &sender.own);
        }
        self.intake.stop();
        self.run_to_end();
        self.assert_sent(sent);
        let stats = self.shared.stats.snapshot();
        assert_eq!(
            (stats.producers.generated, stats.held),
            (sent.len() as u64, 0)
        );
    }

    /// Checks that each packet was sent once, and those of each producer (its tens) in order.
    fn assert_sent(&self, expected: &[u8]) {
        let sent = self.hardware.sent();
        let mut sorted = sent.clone();
        // Stable: the order within a producer stays.
        sorted.sort_by_key(|number| number / 10);
        assert_eq!(sorted, expected, "{sent:?}");
        assert_eq!(self.drops.snapshot().total(), 0);
    }
}

/// A producer of the queue, as an application's handle is one.
struct Sending<'a> {
    shared: &'a SharedTx<Device>,
    own: &'a Producer,
}

impl Waits for Sending<'_> {
    fn try_send(&mut self, burst: &mut Burst) -> Result<usize, TrySendError> {
        let before = burst.len();
        let put = self.shared.put(self.own, burst, &|| NOW);
        TxHandle::result(put, before, burst)
    }

    fn has_space(&self, _burst: &Burst) -> bool {
        self.shared.has_space(self.own)
    }

    fn wait(&mut self, _burst: &Burst, waker: &Waker) -> bool {
        self.shared.wait(self.own, waker)
    }

    fn forget(&mut self) {
        self.shared.forget(self.own);
    }
}

/// Sends bursts, and waits if there is no space. Returns how many packets were accepted before the
/// queue was closed.
fn send(shared: &SharedTx<Device>, own: &Producer, bursts: &[&[u8]]) -> usize {
    let mut accepted = 0;
    for numbers in bursts {
        let mut burst = burst(numbers);
        let all = burst.len();
        let mut sender = Sending { shared, own };
        let sent = send_all(&mut sender, &mut burst, all).unwrap_or_else(|| {
            let notifier = Arc::new(ModelNotifier::default());
            let waker = Waker::from(Arc::clone(&notifier));
            send_parked(&mut sender, &mut burst, all, &waker, || {
                notifier.sleep();
                notifier.clear()
            })
        });
        accepted += all - burst.len();
        if sent.is_err() {
            break;
        }
    }
    accepted
}

/// Runs a model with at most `preemptions` preemptions in each run.
fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    arena();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    let body = Arc::new(body);
    builder.check(move || {
        let body = Arc::clone(&body);
        spawn(move || body()).join().expect("the model holds");
    });
}

/// Starts a thread of a model. The engine overflows loom's default stack of 32 KiB.
fn spawn<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> JoinHandle<R> {
    let thread = thread::Builder::new().stack_size(STACK_WORDS);
    thread.spawn(body).expect("a thread of the model")
}
