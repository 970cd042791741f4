//! A thread of an application that sends the packets of a flow.

use super::traffic::{Flow, Lie, Truth};
use crate::rig::Preemptions;
use packtrain::engine::{Action, HalfSend, TrySendError, TxHandle};
use packtrain::packet::Burst;
use packtrain::policy::dispatch::RingState;
use packtrain::time::Instant;
use packtrain_offload::random::Random;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// So long a thread waits for memory.
const MEMORY_PAUSE: Duration = Duration::from_micros(100);

/// Of so many packets of a burst, one has another one with a lie before it.
const LIE_EVERY: usize = 4;

/// Between the fresh packets of two flows.
const PROBE_INTERVAL: Duration = Duration::from_millis(1);

/// What a world knows of its packets. The handlers of workers have it, too.
pub(super) type Shared = Arc<Mutex<Truth>>;

pub(super) fn lock(truth: &Shared) -> MutexGuard<'_, Truth> {
    // After a panic only numbers are read.
    truth.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the threads of a world have in common.
#[derive(Debug, Default)]
pub(super) struct Stage {
    /// Packets that each flow sends after its load.
    pub(super) probes: Cell<u32>,
    /// No thread is preempted any more.
    pub(super) calm: Cell<bool>,
    /// The threads end.
    pub(super) over: Cell<bool>,
    /// Threads that have sent their load, and the probes.
    pub(super) idle: Cell<usize>,
    /// Threads whose session has ended.
    pub(super) gone: Cell<usize>,
    pub(super) wakers: RefCell<Vec<Waker>>,
    /// Sends that found a ring in this state: idle, busy, abdicated, stalled, gap.
    pub(super) rings: Cell<[u64; 5]>,
    /// Sends that were preempted.
    pub(super) preempted: Cell<u64>,
}

impl Stage {
    /// Wakes all threads.
    pub(super) fn wake(&self) {
        self.idle.set(0);
        self.wakers.borrow().iter().for_each(Waker::wake_by_ref);
    }

    /// Threads that have nothing to send any more.
    pub(super) const fn done(&self) -> usize {
        self.idle.get() + self.gone.get()
    }
}

/// A thread.
pub(super) struct Talker {
    number: usize,
    flow: Flow,
    handle: TxHandle,
    stage: Rc<Stage>,
    truths: Rc<[Shared]>,
    preempt: Option<(Preemptions, Random)>,
    burst: Burst,
    /// Whether each packet of the burst has a lie.
    lies: VecDeque<bool>,
    half: Option<HalfSend>,
    /// The next unit.
    next: u32,
    bursts: u32,
    probes: u32,
    due: Instant,
    scratch: Vec<u8>,
    is_known: bool,
    is_idle: bool,
}

impl Talker {
    /// The thread of flow `number`, which sends from `begin` on.
    pub(super) fn new(
        (number, flow): (usize, Flow),
        handle: TxHandle,
        stage: &Rc<Stage>,
        truths: &Rc<[Shared]>,
        preemptions: Option<Preemptions>,
        begin: Instant,
    ) -> Self {
        Self {
            number,
            flow,
            handle,
            stage: Rc::clone(stage),
            truths: Rc::clone(truths),
            preempt: preemptions.map(|how| (how, Random::new(number as u64))),
            burst: Burst::new(),
            lies: VecDeque::new(),
            half: None,
            next: 0,
            bursts: flow.bursts,
            probes: 0,
            due: begin,
            scratch: Vec::new(),
            is_known: false,
            is_idle: false,
        }
    }

    /// The next step of the thread.
    pub(super) fn run(&mut self, now: Instant, waker: &Waker) -> Action {
        if !std::mem::replace(&mut self.is_known, true) {
            self.stage.wakers.borrow_mut().push(waker.clone());
        }
        if let Some(half) = self.half.take() {
            let sent = self.handle.finish_send(half, &mut self.burst);
            return self.sent(sent, waker);
        }
        if self.stage.over.get() {
            self.burst.clear();
            return Action::Done;
        }
        if self.burst.is_empty() {
            let packets = match (self.bursts, self.stage.probes.get() > self.probes) {
                (1.., _) => self.flow.burst,
                (0, true) => {
                    if std::mem::take(&mut self.is_idle) {
                        // A small receive ring has room for the packets of one flow.
                        self.due = now.after(PROBE_INTERVAL * self.number as u32);
                    }
                    1
                }
                (0, false) => return self.rest(),
            };
            if now < self.due {
                return Action::Sleep {
                    until: Some(self.due),
                };
            }
            self.fill(packets);
            if self.burst.is_empty() {
                // The arena is empty.
                self.handle.reclaim();
                let until = Some(now.after(MEMORY_PAUSE));
                return Action::Sleep { until };
            }
            match self.bursts.checked_sub(1) {
                Some(left) => self.bursts = left,
                None => self.probes += 1,
            }
            self.due = now.after(self.flow.pace);
        }
        self.note_ring();
        if let Some(time) = self.preemption()
            && let Some(half) = self.handle.begin_send(&self.burst)
        {
            self.stage.preempted.set(self.stage.preempted.get() + 1);
            self.half = Some(half);
            let until = Some(now.after(time));
            return Action::Sleep { until };
        }
        let sent = self.handle.try_send(&mut self.burst);
        self.sent(sent, waker)
    }

    /// There is nothing to send.
    fn rest(&mut self) -> Action {
        if !std::mem::replace(&mut self.is_idle, true) {
            self.stage.idle.set(self.stage.idle.get() + 1);
        }
        Action::Sleep { until: None }
    }

    fn fill(&mut self, packets: usize) {
        self.is_idle = false;
        let lie = self.flow.lie.filter(|_| !self.stage.calm.get());
        for index in 0..packets {
            if let Some(lie) = lie.filter(|_| index % LIE_EVERY == 0)
                && !self.make(Some(lie))
            {
                return;
            }
            if !self.make(None) {
                return;
            }
            self.next += self.flow.units as u32;
        }
    }

    /// Adds the next packet to the burst, or one with a lie. False if there is no memory or room.
    fn make(&mut self, lie: Option<Lie>) -> bool {
        let (arena, scratch) = (self.handle.arena(), &mut self.scratch);
        let made = match lie {
            Some(lie) => self.flow.lying(lie, self.number, arena, scratch),
            None => self.flow.packet(self.number, self.next, arena, scratch),
        };
        let is_made = made.is_ok_and(|packet| self.burst.push(packet).is_ok());
        if is_made {
            self.lies.push_back(lie.is_some());
        }
        is_made
    }

    fn note_ring(&self) {
        let place = match self.handle.ring_state() {
            RingState::Idle => 0,
            RingState::Busy => 1,
            RingState::Abdicated => 2,
            RingState::Stalled => 3,
            RingState::Gap => 4,
        };
        let mut rings = self.stage.rings.get();
        rings[place] += 1;
        self.stage.rings.set(rings);
    }

    /// How long the thread is preempted in its next send.
    fn preemption(&mut self) -> Option<Duration> {
        let (how, random) = self.preempt.as_mut().filter(|_| !self.stage.calm.get())?;
        let preempted = random.below(how.one_in) == 0;
        let longest = how.longest.as_nanos() as u64;
        preempted.then(|| Duration::from_nanos(random.below(longest) + 1))
    }

    fn sent(&mut self, sent: Result<usize, TrySendError>, waker: &Waker) -> Action {
        let (accepted, action) = match sent {
            Ok(accepted) => (accepted, Action::Step),
            Err(TrySendError::Closed) => {
                self.stage.gone.set(self.stage.gone.get() + 1);
                return Action::Done;
            }
            Err(TrySendError::Full { accepted }) => {
                let mut context = Context::from_waker(waker);
                let action = match self.handle.poll_ready(&mut context) {
                    Poll::Ready(()) => Action::Step,
                    Poll::Pending => Action::Sleep { until: None },
                };
                (accepted, action)
            }
        };
        let lies = self.lies.drain(..accepted).filter(|&lie| lie).count();
        for truth in &*self.truths {
            lock(truth).sent(self.number, accepted - lies, lies);
        }
        action
    }
}

impl Drop for Talker {
    /// A world that fails ends, though a producer has not published its slots.
    fn drop(&mut self) {
        if let Some(half) = self.half.take() {
            self.handle.finish_send(half, &mut self.burst).ok();
        }
    }
}
