//! The outer shell: the only place that blocks. One thread for each worker, asleep in epoll
//! between steps.

use super::handler::Handler;
use super::intake::Intake;
use super::sys::{Epoll, Waker, thread_cpu_ns};
use super::worker::{Next, Worker};
use crate::driver::{Armed, DeviceError, Interest, RxDescriptors, TxDescriptors};
use crate::stats::DropReason;
use crate::time::{Clock, MonotonicClock};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long held packets may wait for a device after intake has stopped.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(2);

/// Workers running on threads of their own.
#[derive(Debug)]
pub struct Running {
    intake: Arc<Intake>,
    threads: Vec<WorkerThread>,
}

#[derive(Debug)]
struct WorkerThread {
    waker: Arc<Waker>,
    thread: JoinHandle<Result<(), DeviceError>>,
}

impl Running {
    /// Starts a thread for each of `workers`.
    ///
    /// # Errors
    ///
    /// The system's, when it gives no thread or descriptor. Workers started before are stopped.
    pub fn start<RA, TA, RB, TB, H>(
        workers: Vec<Worker<RA, TA, RB, TB, H>>,
        intake: Arc<Intake>,
    ) -> io::Result<Self>
    where
        RA: RxDescriptors + 'static,
        TA: TxDescriptors + 'static,
        RB: RxDescriptors + 'static,
        TB: TxDescriptors + 'static,
        H: Handler + 'static,
    {
        let mut running = Self {
            intake,
            threads: Vec::with_capacity(workers.len()),
        };
        for (index, worker) in workers.into_iter().enumerate() {
            let waker = Arc::new(Waker::new()?);
            let (intake, theirs) = (Arc::clone(&running.intake), Arc::clone(&waker));
            let thread = thread::Builder::new()
                .name(format!("packtrain-{index}"))
                .spawn(move || drive(worker, &intake, &theirs))?;
            running.threads.push(WorkerThread { waker, thread });
        }
        Ok(running)
    }

    /// Stops intake and wakes every worker; they send on what they hold and end.
    ///
    /// # Errors
    ///
    /// The system's, when a worker cannot be woken.
    pub fn stop(&self) -> io::Result<()> {
        self.intake.stop();
        self.threads
            .iter()
            .try_for_each(|worker| worker.waker.wake())
    }

    /// Whether a worker has ended: on its own (the input or the count is at its end), or since a
    /// device failed. The others should then be stopped.
    #[must_use]
    pub fn any_ended(&self) -> bool {
        self.threads.is_empty()
            || self
                .threads
                .iter()
                .any(|worker| worker.thread.is_finished())
    }

    /// Waits for all workers; call [`Running::stop`] first unless they end on their own.
    ///
    /// # Errors
    ///
    /// The first device error of a worker.
    ///
    /// # Panics
    ///
    /// When a worker panicked.
    pub fn join(mut self) -> Result<(), DeviceError> {
        let mut first = Ok(());
        for worker in self.threads.drain(..) {
            let result = match worker.thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            first = first.and(result);
        }
        first
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.intake.stop();
        for worker in self.threads.drain(..) {
            // Waking can fail only if the counter of the eventfd is full, and then it is awake.
            // A panic in a worker has been printed by its thread already.
            let woken = worker.waker.wake();
            debug_assert!(woken.is_ok());
            let ended = worker.thread.join();
            debug_assert!(ended.is_ok());
        }
    }
}

fn drive<RA, TA, RB, TB, H>(
    mut worker: Worker<RA, TA, RB, TB, H>,
    intake: &Intake,
    waker: &Waker,
) -> Result<(), DeviceError>
where
    RA: RxDescriptors,
    TA: TxDescriptors,
    RB: RxDescriptors,
    TB: TxDescriptors,
    H: Handler,
{
    let result = work(&mut worker, intake, waker);
    worker.abandon(DropReason::Shutdown);
    worker.counters().cpu_ns.set(thread_cpu_ns());
    result
}

fn work<RA, TA, RB, TB, H>(
    worker: &mut Worker<RA, TA, RB, TB, H>,
    intake: &Intake,
    waker: &Waker,
) -> Result<(), DeviceError>
where
    RA: RxDescriptors,
    TA: TxDescriptors,
    RB: RxDescriptors,
    TB: TxDescriptors,
    H: Handler,
{
    let failed = |action| move |source| DeviceError::Failed { action, source };
    let clock = MonotonicClock::new();
    let counters = Arc::clone(worker.counters());
    let mut epoll = Epoll::new().map_err(failed("create an epoll descriptor"))?;
    let mut drain_until = None;
    loop {
        let now = clock.now();
        let next = worker.step(now)?;
        let stopped = intake.is_stopped();
        if stopped && now > *drain_until.get_or_insert(now.after(DRAIN_TIME_MAX)) {
            return Ok(());
        }
        let until = match next {
            Next::Again => continue,
            Next::Done => return Ok(()),
            Next::Arm => None,
            Next::SleepUntil(time) => Some(time),
        };
        if worker.arm() == Armed::WorkPending {
            continue;
        }
        let until = if stopped { drain_until } else { until };
        let timeout = until.map(|time| time.since(now));
        counters.sleeps.add(1);
        counters.cpu_ns.set(thread_cpu_ns());
        let interests = |visit: &mut dyn FnMut(BorrowedFd<'_>, Interest)| {
            // Once it has said "stop" the waker stays readable: no longer a reason to wake up.
            if !stopped {
                visit(waker.fd(), Interest::Read);
            }
            worker.interests(visit);
        };
        let syscalls = epoll
            .wait(interests, timeout, |fd| worker.woken_by(fd))
            .map_err(failed("wait for packets"))?;
        counters.syscalls.add(syscalls);
    }
}
