//! The threads of a run. Each drives one worker, and blocks when the worker sleeps.

use super::error::{RunError, START_THREAD, StartError};
use super::flows::TxFlows;
use super::handle::{SendError, TrySendError, TxHandle};
use super::intake::Intake;
use super::priority::{Taken, take_priority};
use super::settings::Settings;
use super::shell::Action;
use super::sys::{Poll, THREAD_USAGE_SYSCALLS, bind_to, thread_usage, wake_in_time};
use super::worker::Worker;
use crate::driver::{DeviceError, Interest};
use crate::packet::Burst;
use crate::plan::Plan;
use crate::policy::idle::Idle;
use crate::policy::placement::Placed;
use crate::policy::priority::{Priority, Serves};
use crate::policy::topology::CpuId;
use crate::runtime::Runtime;
use crate::time::Instant;
use std::hint::spin_loop;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::task::{Wake, Waker};
use std::thread::{self, JoinHandle, Thread};
use std::time::{self, Duration};

/// The greatest age of a worker's CPU time and context switches while it runs. Reading them takes
/// system calls.
const USAGE_AGE_MAX: Duration = Duration::from_millis(10);

/// The threads of a run; none for workers that a caller drives.
#[derive(Debug)]
pub(super) struct Threads {
    threads: Vec<JoinHandle<Result<(), RunError>>>,
    intake: Arc<Intake>,
}

impl Threads {
    pub(super) const fn new(intake: Arc<Intake>) -> Self {
        Self {
            threads: Vec::new(),
            intake,
        }
    }

    /// Starts a thread for each worker of the plan, and returns after each has its CPU and its
    /// priority. If the system refuses one of these, all threads end.
    pub(super) fn start(
        &mut self,
        workers: Vec<Worker>,
        plan: &Plan,
        settings: &Settings,
        placed: &Placed,
        (runtime, settled): (&Arc<dyn Runtime>, Settled),
    ) -> Result<(), StartError> {
        let (ready, started) = channel();
        let cpus = placed.cpus.iter().copied().chain(std::iter::repeat(None));
        for (index, (worker, cpu)) in workers.into_iter().zip(cpus).enumerate() {
            let how = (settings.priority, settings.idle);
            let serves = plan.serves(index);
            let (ready, runtime) = (ready.clone(), Arc::clone(runtime));
            let settled = Arc::clone(&settled);
            let thread = thread::Builder::new()
                .name(format!("packtrain-{index}"))
                .spawn(move || match settle(cpu, how, serves, &*settled) {
                    Ok(Taken { nice, batch }) => {
                        worker.counters().nice.store(nice, Ordering::Relaxed);
                        worker.counters().batch.store(batch, Ordering::Relaxed);
                        report(&ready, Ok(()));
                        drop(ready);
                        drive(worker, &*runtime)
                    }
                    Err(error) => {
                        report(&ready, Err(error));
                        Ok(())
                    }
                });
            let thread = thread.map_err(StartError::system(START_THREAD))?;
            self.threads.push(thread);
        }
        drop(ready);
        started.iter().collect()
    }

    /// Waits until all workers have ended. Returns the first error. A panic of a worker resumes on
    /// the calling thread.
    pub(super) fn join(&mut self) -> Result<(), RunError> {
        let mut first = Ok(());
        let mut panicked = None;
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(result) => first = first.and(result),
                Err(panic) => panicked = panicked.or(Some(panic)),
            }
        }
        if let Some(panic) = panicked {
            std::panic::resume_unwind(panic);
        }
        first
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // Stops workers that a caller drives, too.
        self.intake.stop();
        for thread in self.threads.drain(..) {
            // A caller that needs the result calls `join`. A thread that panicked has printed its
            // panic.
            if let Ok(Err(error)) = thread.join() {
                drop(error);
            }
        }
    }
}

/// Runs workers to their end, after a caller has driven them.
pub(super) fn run_to_end(mut workers: Vec<Worker>, runtime: &dyn Runtime) -> Result<(), RunError> {
    let mut first = Ok(());
    // The clock of the runtime may not advance, so real time bounds the wait for a device.
    let (from, began) = (runtime.now(), time::Instant::now());
    while !workers.is_empty() {
        let mut sleeps = true;
        let now = runtime.now().max(from.after(began.elapsed()));
        workers.retain_mut(|worker| match worker.run(now) {
            Ok(Action::Done) => false,
            Ok(action) => {
                sleeps &= matches!(action, Action::Sleep { .. });
                true
            }
            Err(error) => {
                if first.is_ok() {
                    first = Err(error);
                }
                false
            }
        });
        if sleeps && !workers.is_empty() {
            thread::sleep(END_POLL);
        }
    }
    first
}

fn report(ready: &Sender<Result<(), StartError>>, result: Result<(), StartError>) {
    // After the first error the starting thread receives no more results.
    if let Err(unheard) = ready.send(result) {
        drop(unheard);
    }
}

/// What each worker's thread calls before it moves a packet.
pub(super) type Settled = Arc<dyn Fn() -> io::Result<()> + Send + Sync>;

/// Prepares the calling thread for a worker: its CPU, its priority, its timer slack, and what the
/// caller of the session wants.
fn settle(
    cpu: Option<CpuId>,
    (priority, idle): (Priority, Idle),
    serves: Serves,
    settled: &dyn Fn() -> io::Result<()>,
) -> Result<Taken, StartError> {
    if let Some(cpu) = cpu {
        bind_to(&[cpu]).map_err(StartError::system("bind a worker's thread to its CPU"))?;
    }
    wake_in_time();
    let taken = take_priority(priority, idle, serves)?;
    settled().map_err(StartError::system("prepare a worker's thread"))?;
    Ok(taken)
}

/// Publishes the CPU time and context switches of the calling thread, which is the worker's.
fn publish_usage(worker: &Worker) {
    worker.publish(&thread_usage());
    worker.counters().syscalls.add(THREAD_USAGE_SYSCALLS);
}

/// Runs a worker on this thread until it has ended.
fn drive(mut worker: Worker, runtime: &dyn Runtime) -> Result<(), RunError> {
    let counters = Arc::clone(worker.counters());
    let mut poll = Poll::new();
    let mut woken = Vec::new();
    let mut usage_due = Instant::default();
    let result = loop {
        let now = runtime.now();
        if now >= usage_due {
            publish_usage(&worker);
            usage_due = now.after(USAGE_AGE_MAX);
        }
        match worker.run(now) {
            Ok(Action::Step) => {}
            Ok(Action::Spin) => spin_loop(),
            Ok(Action::Yield) => {
                thread::yield_now();
                counters.syscalls.add(1);
            }
            Ok(Action::Sleep { until }) => {
                let timeout = until.map(|until| until.since(runtime.now()));
                if let Err(source) = sleep(&mut worker, &mut poll, timeout, &mut woken) {
                    let action = "wait for packets";
                    break Err(RunError::from(DeviceError::Failed { action, source }));
                }
            }
            Ok(Action::Done) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    publish_usage(&worker);
    result
}

/// Blocks until a descriptor of the worker is ready, or `timeout` is over. `woken` is an empty
/// list, reused to avoid allocations.
fn sleep(
    worker: &mut Worker,
    poll: &mut Poll,
    timeout: Option<Duration>,
    woken: &mut Vec<RawFd>,
) -> io::Result<()> {
    let interests = |visit: &mut dyn FnMut(BorrowedFd<'_>, Interest)| {
        worker.interests(&mut |fd, interest| visit(fd, interest));
    };
    let syscalls = poll.wait(interests, timeout, |fd| woken.push(fd))?;
    let counters = worker.counters();
    counters.syscalls.add(syscalls);
    counters.wakeups.add(u64::from(!woken.is_empty()));
    woken.drain(..).for_each(|fd| worker.woken_by(fd));
    Ok(())
}

/// The interval between steps of workers that wait for their devices at the end of a run.
const END_POLL: Duration = Duration::from_micros(100);

/// Wakes a thread that waits for space.
struct Unpark {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Unpark {
    /// Blocks the thread until it is woken, or until `end`. Returns whether it was woken.
    fn park(&self, end: Option<time::Instant>) -> bool {
        while !self.woken.swap(false, Ordering::AcqRel) {
            match end.map(|end| end.saturating_duration_since(time::Instant::now())) {
                None => thread::park(),
                Some(left) if left.is_zero() => return false,
                Some(left) => thread::park_timeout(left),
            }
        }
        true
    }
}

thread_local! {
    /// Of this thread: made once, so a wait allocates nothing.
    static UNPARK: Arc<Unpark> = Arc::new(Unpark {
        thread: thread::current(),
        woken: AtomicBool::new(false),
    });
}

/// How long a thread polls for space before it parks. A running consumer makes space sooner than a
/// parked thread wakes up. The thread yields after each poll, since the consumer may be waiting for
/// this CPU.
const POLL_TIME: Duration = Duration::from_micros(200);

/// [`spin_loop`]s between two polls: each poll takes a cache line from the consumer.
const PAUSES: u32 = 30;

/// A sender that can wait for space: a handle to one queue, or to all queues of a port.
pub(super) trait Waits {
    fn try_send(&mut self, burst: &mut Burst) -> Result<usize, TrySendError>;
    fn has_space(&self, burst: &Burst) -> bool;
    fn wait(&mut self, burst: &Burst, waker: &Waker) -> bool;
    fn forget(&mut self);
}

impl Waits for TxHandle {
    fn try_send(&mut self, burst: &mut Burst) -> Result<usize, TrySendError> {
        Self::try_send(self, burst)
    }

    fn has_space(&self, _burst: &Burst) -> bool {
        Self::has_space(self)
    }

    fn wait(&mut self, _burst: &Burst, waker: &Waker) -> bool {
        Self::wait(self, waker)
    }

    fn forget(&mut self) {
        Self::forget(self);
    }
}

impl Waits for TxFlows {
    fn try_send(&mut self, burst: &mut Burst) -> Result<usize, TrySendError> {
        Self::try_send(self, burst)
    }

    fn has_space(&self, burst: &Burst) -> bool {
        Self::has_space(self, burst)
    }

    fn wait(&mut self, burst: &Burst, waker: &Waker) -> bool {
        Self::wait(self, burst, waker)
    }

    fn forget(&mut self) {
        Self::forget(self);
    }
}

impl TxHandle {
    /// Sends as [`TxHandle::try_send`] does, and waits for space for at most `timeout`.
    ///
    /// # Errors
    ///
    /// If the timeout is over or the run ends. Packets that were not accepted remain in the burst.
    pub fn send_blocking(
        &mut self,
        burst: &mut Burst,
        timeout: Duration,
    ) -> Result<usize, SendError> {
        send_blocking(self, burst, timeout)
    }
}

impl TxFlows {
    /// Sends as [`TxFlows::try_send`] does, and waits for space for at most `timeout`.
    ///
    /// # Errors
    ///
    /// If the timeout is over or the run ends. Packets that were not accepted remain in the burst.
    pub fn send_blocking(
        &mut self,
        burst: &mut Burst,
        timeout: Duration,
    ) -> Result<usize, SendError> {
        send_blocking(self, burst, timeout)
    }
}

/// Sends all packets of `burst` and returns their number. Waits for space until the timeout is
/// over: first polling, then parked.
fn send_blocking(
    sender: &mut impl Waits,
    burst: &mut Burst,
    timeout: Duration,
) -> Result<usize, SendError> {
    let all = burst.len();
    if let Some(done) = send_all(sender, burst, all) {
        return done;
    }
    let begin = time::Instant::now();
    let end = begin.checked_add(timeout);
    while begin.elapsed() < POLL_TIME.min(timeout) {
        (0..PAUSES).for_each(|_| spin_loop());
        if sender.has_space(burst)
            && let Some(done) = send_all(sender, burst, all)
        {
            return done;
        }
        thread::yield_now();
    }
    let unpark = UNPARK.with(Arc::clone);
    let waker = Waker::from(Arc::clone(&unpark));
    send_parked(sender, burst, all, &waker, || unpark.park(end))
}

/// Sends the packets of `burst`; `None` if there is not enough space. `all` is the number to
/// report.
pub(super) fn send_all(
    sender: &mut impl Waits,
    burst: &mut Burst,
    all: usize,
) -> Option<Result<usize, SendError>> {
    match sender.try_send(burst) {
        Ok(_) => Some(Ok(all)),
        Err(TrySendError::Closed) => Some(Err(SendError::Closed)),
        Err(TrySendError::Full { .. }) => None,
    }
}

/// Sends the packets of `burst`, and parks while there is not enough space. `park` returns after
/// `waker` was woken, or returns false after a timeout. Then no packet is offered again: a wake-up
/// that is lost is an error of the send, not a late success.
pub(super) fn send_parked(
    sender: &mut impl Waits,
    burst: &mut Burst,
    all: usize,
    waker: &Waker,
    mut park: impl FnMut() -> bool,
) -> Result<usize, SendError> {
    let done = loop {
        // The thread registers before it parks: space that is freed after `wait` returned false
        // wakes it.
        if sender.wait(burst, waker)
            && let Some(done) = send_all(sender, burst, all)
        {
            break done;
        }
        if !park() {
            let accepted = all - burst.len();
            break Err(SendError::TimedOut { accepted });
        }
        if let Some(done) = send_all(sender, burst, all) {
            break done;
        }
    };
    sender.forget();
    done
}

#[cfg(all(test, not(packtrain_loom)))]
mod tests {
    use super::*;
    use crate::packet::{Arena, ArenaConfig};

    /// A queue that has space as soon as a producer waits, and may say so.
    struct Queue {
        waited: bool,
        wakes: bool,
    }

    impl Waits for Queue {
        fn try_send(&mut self, burst: &mut Burst) -> Result<usize, TrySendError> {
            if !self.waited {
                return Err(TrySendError::Full { accepted: 0 });
            }
            let accepted = burst.len();
            burst.clear();
            Ok(accepted)
        }

        fn has_space(&self, _burst: &Burst) -> bool {
            self.waited
        }

        fn wait(&mut self, _burst: &Burst, waker: &Waker) -> bool {
            self.waited = true;
            if self.wakes {
                waker.wake_by_ref();
            }
            false
        }

        fn forget(&mut self) {}
    }

    #[test]
    fn a_lost_wake_up_is_no_late_success() {
        let arena = Arena::new(ArenaConfig::small()).expect("a small arena");
        for wakes in [true, false] {
            let mut burst = Burst::new();
            burst.push(arena.packet_from(&[0; 60]).unwrap()).unwrap();
            let mut queue = Queue {
                waited: false,
                wakes,
            };
            // With the wake-up, there is no need to wait for the timeout.
            let timeout = match wakes {
                true => Duration::MAX,
                false => Duration::from_millis(1),
            };
            let sent = send_blocking(&mut queue, &mut burst, timeout);
            let expected = match wakes {
                true => Ok(1),
                false => Err(SendError::TimedOut { accepted: 0 }),
            };
            assert_eq!(sent, expected);
        }
    }
}
