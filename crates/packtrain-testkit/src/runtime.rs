//! The runtime of a world: virtual time, and notifiers that the world reads.

use crate::{Hardware, topology};
use packtrain::policy::topology::{Topology, TopologyError};
use packtrain::runtime::{Machine, Notifier, Runtime};
use packtrain::time::{Clock, Instant};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// The number of a notifier.
pub(crate) type NotifierId = usize;

#[derive(Debug)]
pub(crate) struct VirtualRuntime {
    machine: Machine,
    topology: Topology,
    seed: u64,
    now: AtomicU64,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The world has not seen all notifications and times.
    has_news: AtomicBool,
    notifiers: Mutex<Notifiers>,
}

/// The notifiers of a world.
#[derive(Debug, Default)]
struct Notifiers {
    /// Whether each was notified and not cleared since.
    notified: Vec<bool>,
    /// Notifications that the world has not seen, in order.
    recent: Vec<NotifierId>,
    /// What is to be woken at a time, as far as the world has not seen it.
    timed: Vec<(Instant, Waker)>,
}

/// The notifier of a worker or an actor.
#[derive(Debug)]
pub(crate) struct VirtualNotifier {
    id: NotifierId,
    state: Arc<State>,
}

fn lock(state: &State) -> MutexGuard<'_, Notifiers> {
    // Numbers only: a panic leaves nothing half done.
    let notifiers = state.notifiers.lock();
    notifiers.unwrap_or_else(PoisonError::into_inner)
}

impl VirtualRuntime {
    pub(crate) fn new(machine: Hardware, seed: u64) -> Self {
        Self {
            machine: Machine {
                cpus: machine.cpus,
                memory: machine.memory,
            },
            topology: topology(machine),
            seed,
            now: AtomicU64::new(0),
            state: Arc::default(),
        }
    }

    pub(crate) fn set_now(&self, now: Instant) {
        self.now.store(now.as_nanos(), Ordering::Relaxed);
    }

    pub(crate) fn virtual_notifier(&self) -> VirtualNotifier {
        let mut state = lock(&self.state);
        state.notified.push(false);
        VirtualNotifier {
            id: state.notified.len() - 1,
            state: Arc::clone(&self.state),
        }
    }

    /// Whether there were notifications or times since the last call.
    pub(crate) fn take_news(&self) -> bool {
        // Most steps notify nothing: a plain load. All threads of a world are one.
        let news = &self.state.has_news;
        news.load(Ordering::Relaxed) && news.swap(false, Ordering::Relaxed)
    }

    /// The notifications since the last call, in order.
    pub(crate) fn take_notified(&self) -> Vec<NotifierId> {
        std::mem::take(&mut lock(&self.state).recent)
    }

    /// Hardware wakes `waker` at a time.
    pub(crate) fn at(&self, at: Instant, waker: Waker) {
        lock(&self.state).timed.push((at, waker));
        self.state.has_news.store(true, Ordering::Relaxed);
    }

    /// The calls of [`VirtualRuntime::at`] since the last one of this.
    pub(crate) fn take_timed(&self) -> Vec<(Instant, Waker)> {
        std::mem::take(&mut lock(&self.state).timed)
    }

    pub(crate) fn is_notified(&self, id: NotifierId) -> bool {
        lock(&self.state).notified[id]
    }

    pub(crate) fn clear(&self, id: NotifierId) -> bool {
        std::mem::take(&mut lock(&self.state).notified[id])
    }
}

impl Clock for VirtualRuntime {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.now.load(Ordering::Relaxed))
    }
}

impl Runtime for VirtualRuntime {
    fn notifier(&self) -> io::Result<Arc<dyn Notifier>> {
        Ok(Arc::new(self.virtual_notifier()))
    }

    fn machine(&self) -> Machine {
        self.machine
    }

    fn topology(&self) -> Result<Topology, TopologyError> {
        Ok(self.topology.clone())
    }

    fn seed(&self) -> u64 {
        self.seed
    }
}

impl VirtualNotifier {
    pub(crate) const fn id(&self) -> NotifierId {
        self.id
    }
}

impl Notifier for VirtualNotifier {
    fn notify(&self) {
        let mut state = lock(&self.state);
        state.notified[self.id] = true;
        state.recent.push(self.id);
        self.state.has_news.store(true, Ordering::Relaxed);
    }

    fn clear(&self) -> bool {
        std::mem::take(&mut lock(&self.state).notified[self.id])
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Wake for VirtualNotifier {
    fn wake(self: Arc<Self>) {
        self.notify();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.notify();
    }
}
