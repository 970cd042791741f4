//! The outer shell: the only place that blocks. One thread for each worker, asleep in ppoll
//! between steps.

use super::alarm::Alarm;
use super::control::{Command, CommandError, Control, TxQueues};
use super::error::RunError;
use super::handler::Handler;
use super::intake::Intake;
use super::pressure::Gauge;
use super::seat::{Seat, Told};
use super::settings::{Settings, for_producers, room, take_priority};
use super::sys::{Poll, THREAD_USAGE_SYSCALLS, Waker, thread_usage, wake_in_time};
use super::worker::{Next, Worker, WorkerCounters};
use crate::driver::{Armed, DeviceError, Interest, RxDescriptors, TxDescriptors};
use crate::policy::idle::{Idle, Idler, Pressure, Relief, Room, Wait};
use crate::policy::priority::Priority;
use crate::policy::topology::CpuId;
use crate::stats::DropReason;
use crate::time::{Clock, Instant, MonotonicClock};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// [`spin_loop`](std::hint::spin_loop)s between two looks of a worker that does not sleep where
/// applications send, too, which take a microsecond or two: each look is one at the devices, and a
/// TAP is in the way of who writes to it while it is read.
const PAUSES: u32 = 30;

/// How long held packets may wait for a device after intake has stopped.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(2);
/// How much a worker's CPU time and context switches may be out of date while it runs: asking takes
/// system calls.
const USAGE_AGE_MAX: Duration = Duration::from_millis(10);

/// Workers running on threads of their own. The first that ends, for whatever reason, stops them
/// all.
#[derive(Debug)]
pub struct Running {
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<Result<(), RunError>>>,
    /// By worker.
    seats: Vec<Arc<Seat>>,
    control: Control,
}

/// What stops the workers of a run.
#[derive(Debug)]
struct Stop {
    intake: Arc<Intake>,
    /// By worker.
    alarms: Vec<Arc<Alarm>>,
    /// Readable from then on.
    stopped: Waker,
}

impl Stop {
    fn all(&self) {
        self.intake.stop();
        self.stopped.wake();
        for alarm in &self.alarms {
            alarm.ring();
        }
    }
}

/// Stops all workers when one ends, also by a panic: without it the others would sleep for ever.
struct StopAtEnd(Arc<Stop>);

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        self.0.all();
    }
}

impl Running {
    /// Starts a thread for each of `workers`, with the settings that adapt themselves.
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
        let cpus = vec![None; workers.len()];
        Self::start_with(workers, intake, &Settings::default(), &cpus)
    }

    /// As [`Running::start`]; the threads wait and go before others as `idle` and `priority` of
    /// `settings` say (what else is in there is of queues, or was decided before), and each is
    /// bound to its CPU of `cpus`, if it has one there.
    ///
    /// # Errors
    ///
    /// As [`Running::start`]. A CPU or a nice value that the system refuses ends all workers:
    /// [`Running::join`] says so.
    pub fn start_with<RA, TA, RB, TB, H>(
        workers: Vec<Worker<RA, TA, RB, TB, H>>,
        intake: Arc<Intake>,
        settings: &Settings,
        cpus: &[Option<CpuId>],
    ) -> io::Result<Self>
    where
        RA: RxDescriptors + 'static,
        TA: TxDescriptors + 'static,
        RB: RxDescriptors + 'static,
        TB: TxDescriptors + 'static,
        H: Handler + 'static,
    {
        let room = room(workers.len());
        Self::start_in(room, workers, intake, settings, cpus)
    }

    /// As [`Running::start_with`], with this much room to spin in.
    pub(super) fn start_in<RA, TA, RB, TB, H>(
        room: Room,
        workers: Vec<Worker<RA, TA, RB, TB, H>>,
        intake: Arc<Intake>,
        settings: &Settings,
        cpus: &[Option<CpuId>],
    ) -> io::Result<Self>
    where
        RA: RxDescriptors + 'static,
        TA: TxDescriptors + 'static,
        RB: RxDescriptors + 'static,
        TB: TxDescriptors + 'static,
        H: Handler + 'static,
    {
        let alarms = workers.iter().map(|worker| Arc::clone(worker.alarm()));
        let alarms = alarms.collect();
        let stopped = Waker::new()?;
        let mut running = Self {
            stop: Arc::new(Stop {
                intake,
                alarms,
                stopped,
            }),
            threads: Vec::with_capacity(workers.len()),
            seats: Vec::with_capacity(workers.len()),
            control: Control::of(&workers),
        };
        let cpus = cpus.iter().copied().chain(std::iter::repeat(None));
        let for_producers = for_producers(workers.len());
        let ways = Ways {
            idle: settings.idle,
            priority: settings.priority,
            room,
        };
        for (index, (worker, cpu)) in workers.into_iter().zip(cpus).enumerate() {
            let stop = StopAtEnd(Arc::clone(&running.stop));
            let seat = Arc::new(Seat::new(Told {
                cpus: cpu.into_iter().collect(),
                room,
                for_producers,
            }));
            let own = Arc::clone(&seat);
            let thread = thread::Builder::new()
                .name(format!("packtrain-{index}"))
                .spawn(move || drive(worker, &stop.0, &own, ways))?;
            running.threads.push(thread);
            running.seats.push(seat);
        }
        Ok(running)
    }

    /// Tells the threads where they run from now on, by worker, and wakes them to follow.
    pub(super) fn seat(&self, cpus: impl Iterator<Item = Vec<CpuId>>) {
        let workers = self.seats.len();
        let (room, for_producers) = (room(workers), for_producers(workers));
        for ((seat, alarm), cpus) in self.seats.iter().zip(&self.stop.alarms).zip(cpus) {
            seat.tell(Told {
                cpus,
                room,
                for_producers,
            });
            alarm.ring();
        }
    }

    /// Whether a thread could not follow what it was told.
    pub(super) fn was_seat_refused(&self) -> bool {
        let refused = self.seats.iter().map(|seat| seat.was_refused());
        refused.fold(false, |any, refused| any | refused)
    }

    /// Pauses, resumes or resets TX queues, and says how many they are. As
    /// [`Control::command`]: returns when their workers have done it, and is not for handlers.
    ///
    /// # Errors
    ///
    /// See [`CommandError`].
    pub fn command(&self, queues: TxQueues, command: Command) -> Result<usize, CommandError> {
        self.control.command(queues, command)
    }

    /// The same for other threads: to be cloned.
    #[must_use]
    pub const fn control(&self) -> &Control {
        &self.control
    }

    /// Stops intake and wakes every worker; they send on what they hold and end.
    pub fn stop(&self) {
        self.stop.all();
    }

    /// Whether a worker has ended: on its own (the input or the count is at its end), or since a
    /// device failed. The others end too, once they have sent on what they hold.
    #[must_use]
    pub fn any_ended(&self) -> bool {
        self.threads.is_empty() || self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Readable once a worker has ended or [`Running::stop`] was called.
    #[must_use]
    pub fn stopped_fd(&self) -> BorrowedFd<'_> {
        self.stop.stopped.fd()
    }

    /// Waits until all workers have ended; call [`Running::stop`] first unless they end on their
    /// own.
    ///
    /// # Errors
    ///
    /// The first error of a worker.
    ///
    /// # Panics
    ///
    /// When a worker panicked; the others have ended then.
    pub fn join(mut self) -> Result<(), RunError> {
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

impl Drop for Running {
    fn drop(&mut self) {
        drop(StopAtEnd(Arc::clone(&self.stop)));
        for thread in self.threads.drain(..) {
            // Whoever wants to know calls `join`; a panic has been printed by its thread.
            if let Ok(Err(error)) = thread.join() {
                drop(error);
            }
        }
    }
}

/// How the threads are, all of them.
#[derive(Clone, Copy, Debug)]
struct Ways {
    idle: Idle,
    priority: Priority,
    room: Room,
}

/// Readies the calling thread to be a worker's: its CPU, its priority, how exact it sleeps. Returns
/// its nice value.
fn settle(seat: &Seat, priority: Priority, idle: Idle) -> Result<i8, RunError> {
    let failed = |action| move |source| RunError::from(DeviceError::Failed { action, source });
    seat.take()
        .map_err(failed("bind a worker's thread to its CPU"))?;
    wake_in_time();
    take_priority(priority, idle).map_err(failed("give a worker's thread its priority"))
}

/// How a worker's thread waits.
#[derive(Debug)]
struct Waits {
    setting: Idle,
    room: Room,
    idler: Idler,
    /// Whether it may spin at all: else nobody has to know who else wants the CPU.
    spins: bool,
    gauge: Gauge,
}

impl Waits {
    /// For the calling thread.
    fn new(setting: Idle, room: Room) -> Self {
        let mut waits = Self {
            setting,
            room,
            idler: Idler::new(setting, room),
            spins: false,
            gauge: Gauge::new(),
        };
        waits.set_room(room);
        waits
    }

    fn set_room(&mut self, room: Room) {
        self.room = room;
        self.idler.set_room(room);
        let spins = self.setting != Idle::Halt && room.for_spinning();
        if spins && !self.spins {
            self.gauge.forget();
        }
        self.spins = spins;
    }

    /// There are other cores, or workers. Who makes the packets is as it was.
    fn reseat(&mut self, room: Room) {
        self.set_room(Room {
            producers: self.room.producers,
            ..room
        });
    }

    /// So many threads make the packets that the worker sends, as far as it knows.
    fn set_producers(&mut self, producers: Option<u32>) {
        if producers != self.room.producers {
            self.set_room(Room {
                producers,
                ..self.room
            });
        }
    }

    /// What to do after a step with nothing more to do, which began at `began`. `sent`: it sent
    /// what applications had left to it. Then the time without work begins at its end: a drain may
    /// take longer than anybody spins.
    fn wait(
        &mut self,
        began: Instant,
        sent: bool,
        ended: impl FnOnce() -> Instant,
        pressure: &Pressure,
        relief: Relief,
    ) -> Wait {
        let since = if sent {
            self.idler.busy(began);
            ended()
        } else {
            began
        };
        self.idler.idle(since, pressure, relief)
    }
}

fn drive<RA, TA, RB, TB, H>(
    mut worker: Worker<RA, TA, RB, TB, H>,
    stop: &Stop,
    seat: &Seat,
    ways: Ways,
) -> Result<(), RunError>
where
    RA: RxDescriptors,
    TA: TxDescriptors,
    RB: RxDescriptors,
    TB: TxDescriptors,
    H: Handler,
{
    let ready = settle(seat, ways.priority, ways.idle);
    let result = ready.and_then(|nice| {
        worker.counters().nice.store(nice, Ordering::Relaxed);
        let waits = Waits::new(ways.idle, ways.room);
        work(&mut worker, stop, waits, seat)
    });
    worker.abandon(match result {
        Ok(()) => DropReason::Shutdown,
        Err(_) => DropReason::DeviceReset,
    });
    publish_usage(worker.counters());
    result
}

/// Must be called by the worker's own thread.
fn publish_usage(counters: &WorkerCounters) {
    let usage = thread_usage();
    counters.cpu_ns.set(usage.cpu_ns);
    counters.voluntary_switches.set(usage.voluntary_switches);
    counters
        .involuntary_switches
        .set(usage.involuntary_switches);
    counters.syscalls.add(THREAD_USAGE_SYSCALLS);
}

fn work<RA, TA, RB, TB, H>(
    worker: &mut Worker<RA, TA, RB, TB, H>,
    stop: &Stop,
    mut waits: Waits,
    seat: &Seat,
) -> Result<(), RunError>
where
    RA: RxDescriptors,
    TA: TxDescriptors,
    RB: RxDescriptors,
    TB: TxDescriptors,
    H: Handler,
{
    let failed = |action| move |source| RunError::from(DeviceError::Failed { action, source });
    let clock = MonotonicClock::new();
    let counters = Arc::clone(worker.counters());
    let mut poll = Poll::new();
    let mut drain_until = None;
    let mut look_due = Instant::default();
    let mut usage_due = Instant::default();
    let (mut seen, mut slept_until) = (0, None);
    loop {
        if let Some(told) = seat.follow(&mut seen) {
            waits.reseat(told.room);
            worker.leave_cpus(told.for_producers);
            counters.syscalls.add(1);
        }
        // Read before the step: a stop that comes later rings, and then nobody falls asleep.
        let stopped = stop.intake.is_stopped();
        let now = clock.now();
        if let Some(until) = slept_until.take() {
            waits.gauge.came_back(now.since(until));
        }
        if stopped && drain_until.is_none() {
            drain_until = Some(now.after(DRAIN_TIME_MAX));
            // It may have been the count or the end of an input, of which the others do not know.
            stop.all();
        }
        let next = worker.step(now)?;
        if now >= usage_due {
            publish_usage(&counters);
            usage_due = now.after(USAGE_AGE_MAX);
        }
        if drain_until.is_some_and(|end| now > end) {
            return Ok(());
        }
        let until = match next {
            Next::Again => {
                waits.idler.busy(now);
                continue;
            }
            Next::Done => return Ok(()),
            Next::Arm => None,
            Next::SleepUntil(time) => Some(time),
        };
        let others = worker.others(now);
        waits.set_producers(others.producers);
        let mut pressure = Pressure::UNKNOWN;
        if waits.spins && now >= look_due {
            let (seen, syscalls) = waits.gauge.look(now);
            pressure = seen;
            counters.syscalls.add(syscalls);
            look_due = now.after(USAGE_AGE_MAX);
        }
        let ended = || clock.now();
        let wait = waits.wait(now, worker.found(), ended, &pressure, others.relief);
        if wait != Wait::Halt {
            if worker.is_shared() && !matches!(wait, Wait::Nap(_)) {
                (0..PAUSES).for_each(|_| std::hint::spin_loop());
            }
            worker.listen();
        }
        match wait {
            Wait::Spin => {
                std::hint::spin_loop();
                continue;
            }
            Wait::Yield => {
                thread::yield_now();
                counters.syscalls.add(1);
                continue;
            }
            Wait::Nap(_) | Wait::Halt => {}
        }
        // A stop within the step: also one that nobody rang for, of another worker.
        let stopped_within = !stopped && stop.intake.is_stopped();
        let (armed, nap) = match wait {
            _ if stopped_within => continue,
            Wait::Nap(nap) => (worker.nap(), Some(now.after(nap))),
            _ => (worker.arm(), None),
        };
        if armed == Armed::WorkPending {
            continue;
        }
        let until = until.into_iter().chain(drain_until).chain(nap).min();
        let timeout = until.map(|time| time.since(clock.now()));
        counters.sleeps.add(1);
        let interests = |visit: &mut dyn FnMut(BorrowedFd<'_>, Interest)| worker.interests(visit);
        let mut woken = false;
        let ready = |fd| {
            woken = true;
            worker.woken_by(fd);
        };
        let syscalls = poll
            .wait(interests, timeout, ready)
            .map_err(failed("wait for packets"))?;
        counters.syscalls.add(syscalls);
        counters.wakeups.add(u64::from(woken));
        slept_until = until.filter(|_| !woken);
    }
}

#[cfg(all(test, not(packtrain_loom)))]
mod tests {
    use super::*;

    /// Two cores, of which one producer has one.
    const SHARED: Room = Room {
        cores: 2,
        workers: 1,
        producers: Some(1),
    };

    /// Under full load there are a few microseconds from the end of a drain to the next packet, and
    /// a drain takes as long as its device does: a worker that counts it as a time without work
    /// never spins for as long.
    #[test]
    fn however_long_a_drain_takes_it_is_no_time_without_work() {
        let gap = Duration::from_micros(5);
        for drain in [20, 100, 300, 500, 2_000].map(Duration::from_micros) {
            let mut waits = Waits::new(Idle::Adaptive, SHARED);
            let (mut now, mut halts) = (Instant::from_nanos(1), 0);
            let mut next = |began, sent, ended| {
                let (pressure, relief) = (Pressure::UNKNOWN, Relief::None);
                waits.wait(began, sent, || ended, &pressure, relief)
            };
            for _ in 0..10_000 {
                let ended = now.after(drain);
                halts += u32::from(next(now, true, ended) == Wait::Halt);
                // It looks in the middle of the gap, and at its end.
                let looks = ended.after(gap / 2);
                halts += u32::from(next(looks, false, looks) == Wait::Halt);
                now = ended.after(gap);
            }
            assert_eq!(halts, 0, "{drain:?}");
            // And the end of the load ends it, at a time that is bounded.
            let later = now.after(drain + 2 * crate::policy::idle::SPIN_MAX);
            assert_eq!(next(now, false, now), Wait::Spin);
            assert_eq!(next(later, false, later), Wait::Halt);
        }
    }

    #[test]
    fn who_makes_the_packets_is_still_known_on_other_cpus() {
        let mut waits = Waits::new(
            Idle::Poll,
            Room {
                producers: None,
                ..SHARED
            },
        );
        let wait = |waits: &mut Waits| {
            let now = Instant::from_nanos(1);
            waits.wait(now, false, || now, &Pressure::UNKNOWN, Relief::None)
        };
        assert_eq!(wait(&mut waits), Wait::Yield, "nobody knows");
        waits.set_producers(Some(1));
        assert_eq!(wait(&mut waits), Wait::Spin);
        let told = Room {
            producers: None,
            ..SHARED
        };
        waits.reseat(Room { cores: 1, ..told });
        assert_eq!(wait(&mut waits), Wait::Yield);
        waits.reseat(told);
        assert_eq!(wait(&mut waits), Wait::Spin);
        waits.set_producers(Some(2));
        assert_eq!(wait(&mut waits), Wait::Yield);
    }
}
