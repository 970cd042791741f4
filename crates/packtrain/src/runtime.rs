//! What workers and handles need from below: the time, a way to end a worker's sleep, and the size
//! of the machine. It is injected once, at the start; nothing else reads a clock or wakes a worker.
//!
//! [`System`] is the machine that the program runs on. A virtual world implements [`Runtime`] with
//! virtual time, and then runs the same workers and handles.

use crate::packet::memory_available;
use crate::policy::topology::{Topology, TopologyError};
use crate::sync::{AtomicBool, AtomicU32, Ordering, Padded};
use crate::time::{Clock, Instant, MonotonicClock};
use rustix::event::{EventfdFlags, eventfd};
use std::fmt;
use std::io;
use std::num::NonZero;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::task::Wake;
use std::thread::available_parallelism;

/// Ends the sleep of one worker.
pub trait Notifier: Send + Sync + fmt::Debug {
    /// Ends the current sleep, or the next one. Any thread may call it.
    fn notify(&self);

    /// The worker runs again. Returns false if no notification was pending.
    fn clear(&self) -> bool;

    /// A descriptor that is readable between `notify` and `clear`; `None` in virtual time.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}

/// What a run may use of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// CPUs that the calling thread may use; at least 1.
    pub cpus: usize,
    /// Bytes of memory that can still be used; `None` if the system does not say.
    pub memory: Option<u64>,
}

/// Time, notifications and the machine, for one run.
pub trait Runtime: Clock + fmt::Debug {
    /// A notifier for one more worker.
    ///
    /// # Errors
    ///
    /// The system's, when it has no descriptor left.
    fn notifier(&self) -> io::Result<Arc<dyn Notifier>>;

    /// What the run may use.
    fn machine(&self) -> Machine;

    /// The CPUs among which the placement policy chooses.
    ///
    /// # Errors
    ///
    /// If they are not known.
    fn topology(&self) -> Result<Topology, TopologyError>;

    /// What is added to the seed of each port: with another one, devices and fault injectors make
    /// other random choices.
    fn seed(&self) -> u64 {
        0
    }
}

/// The runtime of this machine: its monotonic clock, an eventfd for each worker.
#[derive(Clone, Copy, Debug, Default)]
pub struct System {
    clock: MonotonicClock,
}

impl System {
    /// The runtime. All of them share one clock.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Clock for System {
    fn now(&self) -> Instant {
        self.clock.now()
    }
}

impl Runtime for System {
    fn notifier(&self) -> io::Result<Arc<dyn Notifier>> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(EventFd(fd)))
    }

    fn machine(&self) -> Machine {
        Machine {
            cpus: available_parallelism().map_or(1, NonZero::get),
            memory: memory_available(),
        }
    }

    fn topology(&self) -> Result<Topology, TopologyError> {
        Topology::read(Path::new("/"))
    }
}

/// An eventfd: the descriptor that a sleeping worker waits on.
#[derive(Debug)]
struct EventFd(OwnedFd);

impl Notifier for EventFd {
    fn notify(&self) {
        match rustix::io::write(&self.0, &1u64.to_ne_bytes()) {
            // Full: it is readable already.
            Ok(_) | Err(rustix::io::Errno::AGAIN) => {}
            Err(error) => unreachable!("an eventfd takes a count: {error}"),
        }
    }

    fn clear(&self) -> bool {
        rustix::io::read(&self.0, &mut [0u8; 8]).is_ok()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

const AWAKE: u32 = 0;
const NOTIFIED: u32 = 1;
const ASLEEP: u32 = 2;

/// Whether a worker is awake, notified or asleep. Only a worker that sleeps costs a system call.
#[derive(Debug)]
pub(crate) struct Wakeup {
    state: Padded<AtomicU32>,
    notifier: Arc<dyn Notifier>,
}

impl Wakeup {
    /// For a worker that is awake.
    pub(crate) fn new(notifier: Arc<dyn Notifier>) -> Self {
        Self {
            state: Padded(AtomicU32::new(AWAKE)),
            notifier,
        }
    }

    /// The worker polls again: at once, or after its current step. True if it slept, and the
    /// notifier was called.
    pub(crate) fn notify(&self) -> bool {
        // Always a read-modify-write: what was written before it is seen by the worker that takes
        // the notification, also if another thread had notified already.
        let slept = self.state.swap(NOTIFIED, Ordering::AcqRel) == ASLEEP;
        if slept {
            self.notifier.notify();
        }
        slept
    }

    /// The worker polls now. True if it was notified since it polled last.
    pub(crate) fn take(&self) -> bool {
        self.state.load(Ordering::Relaxed) != AWAKE
            && self.state.swap(AWAKE, Ordering::AcqRel) == NOTIFIED
    }

    /// True if the worker may sleep now; false if it was notified since [`Self::take`].
    pub(crate) fn try_sleep(&self) -> bool {
        self.state
            .compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    pub(crate) fn notifier(&self) -> &dyn Notifier {
        &*self.notifier
    }
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        self.notify();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.notify();
    }
}

/// The worker's side of its [`Wakeup`].
#[derive(Debug)]
pub(crate) struct Sleeper {
    wakeup: Arc<Wakeup>,
    slept: bool,
    /// The notifier was called, or will be at once, and was not cleared since.
    signalled: bool,
}

/// How a step begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Began {
    /// The worker was asleep before.
    pub(crate) slept: bool,
    /// Another thread notified it since the last step.
    pub(crate) notified: bool,
    /// System calls made.
    pub(crate) syscalls: u64,
}

impl Sleeper {
    pub(crate) const fn new(wakeup: Arc<Wakeup>) -> Self {
        Self {
            wakeup,
            slept: false,
            signalled: false,
        }
    }

    pub(crate) const fn wakeup(&self) -> &Arc<Wakeup> {
        &self.wakeup
    }

    /// The worker runs a step.
    pub(crate) fn begin(&mut self) -> Began {
        let slept = std::mem::take(&mut self.slept);
        let notified = self.wakeup.take();
        // A thread that found the worker asleep writes to the notifier after it has changed the
        // state. If the write is not there yet, the next step clears it.
        self.signalled |= slept && notified;
        let clear = self.signalled;
        if clear {
            self.signalled = !self.wakeup.notifier.clear();
        }
        Began {
            slept,
            notified,
            syscalls: clear.into(),
        }
    }

    /// True if the worker may block now: it has polled everything. False if another thread notified
    /// it meanwhile.
    pub(crate) fn try_sleep(&mut self) -> bool {
        self.slept = self.wakeup.try_sleep();
        self.slept
    }
}

/// The interrupt of one queue: a driver raises it, and the queue's worker runs. The flag says for
/// which of its queues the worker was woken.
#[derive(Debug)]
pub(crate) struct Interrupt {
    raised: AtomicBool,
    worker: Arc<Wakeup>,
}

impl Interrupt {
    pub(crate) fn new(worker: &Arc<Wakeup>) -> Arc<Self> {
        Arc::new(Self {
            raised: AtomicBool::new(false),
            worker: Arc::clone(worker),
        })
    }

    /// Whether it was raised since the last call.
    pub(crate) fn take(&self) -> bool {
        self.raised.load(Ordering::Relaxed) && self.raised.swap(false, Ordering::AcqRel)
    }
}

impl Wake for Interrupt {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.raised.store(true, Ordering::Release);
        self.worker.notify();
    }
}

#[cfg(all(test, not(packtrain_loom)))]
mod tests {
    use super::*;

    fn sleeper() -> Sleeper {
        Sleeper::new(Arc::new(Wakeup::new(System::new().notifier().unwrap())))
    }

    #[test]
    fn a_worker_sleeps_only_if_it_was_not_notified_since_it_polled() {
        let mut worker = sleeper();
        let wakeup = Arc::clone(worker.wakeup());
        assert!(!wakeup.notify(), "it is awake: no system call");
        assert!(!worker.try_sleep());
        let began = worker.begin();
        assert_eq!(
            (began.slept, began.notified, began.syscalls),
            (false, true, 0)
        );
        assert!(worker.try_sleep());
        assert!(wakeup.notify(), "it sleeps");
        assert!(!wakeup.notify(), "once is enough");
        let began = worker.begin();
        assert_eq!(
            (began.slept, began.notified, began.syscalls),
            (true, true, 1)
        );
        assert!(!wakeup.notifier().clear(), "it was cleared");
        let began = worker.begin();
        assert_eq!(
            (began.slept, began.notified, began.syscalls),
            (false, false, 0)
        );
    }

    #[test]
    fn a_sleep_that_times_out_leaves_nothing_behind() {
        let mut worker = sleeper();
        assert!(worker.try_sleep());
        let began = worker.begin();
        assert_eq!(
            (began.slept, began.notified, began.syscalls),
            (true, false, 0)
        );
        assert!(worker.try_sleep());
    }

    #[test]
    fn a_late_write_to_the_notifier_is_cleared_by_a_later_step() {
        let mut worker = sleeper();
        assert!(worker.try_sleep());
        // The other thread has changed the state, and is preempted before it writes.
        let wakeup = Arc::clone(worker.wakeup());
        wakeup.state.swap(NOTIFIED, Ordering::AcqRel);
        assert!(worker.begin().notified);
        wakeup.notifier().notify();
        assert!(!worker.begin().notified);
        assert!(!wakeup.notifier().clear());
    }

    #[test]
    fn an_interrupt_notifies_the_worker_and_names_its_queue() {
        let worker = sleeper();
        let [one, other] = [0, 1].map(|_| Interrupt::new(worker.wakeup()));
        Arc::clone(&one).wake();
        assert!(worker.wakeup().take());
        assert!(one.take() && !one.take() && !other.take());
    }

    #[test]
    fn the_machine_has_a_cpu_and_memory() {
        let machine = System::new().machine();
        assert!(machine.cpus >= 1);
        assert!(machine.memory.is_none_or(|bytes| bytes > 0));
    }
}
