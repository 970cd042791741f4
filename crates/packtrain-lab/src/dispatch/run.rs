//! One run: a session with producers, and what it did in a window of time.

use super::BenchError;
use super::ports::{Port, Ports, sink};
use super::producer::{Produced, Producer, Signal, Task, Times};
use super::schedule::Cell;
use super::threads::{Cost, PRODUCER};
use crate::cpu::{self, Usage};
use crate::error::LabError;
use crate::sys;
use packtrain::driver::{Driver, PortConfig};
use packtrain::engine::{self, Forward, Ledger, Running, Settings, Stats, TxHandles, join_with};
use packtrain::plan::{Side, plan};
use packtrain::stats::{DropSnapshot, Histogram, HistogramSnapshot};
use packtrain::time::{Clock, Instant, MonotonicClock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// From the start of a run until the first packet is due: the producers are there by then.
const START_AFTER: Duration = Duration::from_millis(1);
/// How much longer than the window a producer that is behind goes on at least.
const BEHIND_MIN: Duration = Duration::from_millis(100);

/// A run is disturbed if others had more than this part of one CPU meanwhile,
const OTHERS_PART: u32 = 5;
/// and more than what may come of counting in ticks, which are 10 ms on each CPU.
const OTHERS_MIN: Duration = Duration::from_millis(20);

/// How long it may take until a run sees that it is to stop.
const NAP_MAX: Duration = Duration::from_millis(50);

/// How long a run takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// Caches, the scheduler and the policies settle.
    pub(super) warm_up: Duration,
    /// The time that counts.
    pub(super) window: Duration,
}

impl Span {
    /// Three times as long where producers are in each other's way: the adaptive setting has as
    /// many ways to try there, each of which is compared with the time before and the time after.
    fn warm_up_of(&self, cell: &Cell) -> Duration {
        let contend = cell.producers > 1 && !cell.load.is_paced();
        self.warm_up * if contend { 3 } else { 1 }
    }
}

/// What one run came to, in its window of time.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// The time.
    pub elapsed: Duration,
    /// Frames that the device accepted.
    pub packets: u64,
    /// CPU time of the producers.
    pub producers: Duration,
    /// CPU time of the workers.
    pub workers: Duration,
    /// Context switches of both, voluntary or not.
    pub switches: u64,
    /// Wakeups of the worker: by producers, and by the device where the worker waited for it.
    pub wakeups: u64,
    /// How often what is in force changed, under adaptive dispatch: begins and ends of its trials,
    /// and steps of its budget.
    pub changes: u64,
    /// CPU time that others took of this machine, as far as its clock ticks show.
    pub others: Duration,
    /// Nanoseconds from when stamped packets were due, or their sending was begun, until the device
    /// had accepted them.
    pub latency: HistogramSnapshot,
    /// Packets that were due and could not be sent any more.
    pub unsent: u64,
    /// The account of the whole run.
    pub ledger: Ledger,
    /// What was lost in the whole run, by reason.
    pub drops: DropSnapshot,
}

impl Sample {
    /// Whether every packet of the run is accounted for, with none left in a queue.
    #[must_use]
    pub const fn closed(&self) -> bool {
        self.ledger.closed() && self.ledger.held == 0
    }

    /// Whether others had so much of the machine that the figures are partly theirs.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        self.others > OTHERS_MIN.max(self.elapsed / OTHERS_PART)
    }

    fn seconds(&self) -> f64 {
        self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Thousand frames a second.
    #[must_use]
    pub fn kpps(&self) -> f64 {
        self.packets as f64 / self.seconds() / 1e3
    }

    /// CPUs that producers and workers kept busy.
    #[must_use]
    pub fn cpus(&self) -> f64 {
        (self.producers + self.workers).as_secs_f64() / self.seconds()
    }

    /// CPUs that the workers kept busy.
    #[must_use]
    pub fn worker_cpus(&self) -> f64 {
        self.workers.as_secs_f64() / self.seconds()
    }

    /// Context switches a second.
    #[must_use]
    pub fn switches_per_second(&self) -> f64 {
        self.switches as f64 / self.seconds()
    }

    /// Context switches for each frame.
    #[must_use]
    pub fn switches_per_frame(&self) -> f64 {
        self.switches as f64 / self.packets.max(1) as f64
    }

    /// Wakeups of the worker a second, whoever asked for them.
    #[must_use]
    pub fn wakeups_per_second(&self) -> f64 {
        self.wakeups as f64 / self.seconds()
    }

    /// The latency that a share `p` of the packets does not exceed, in microseconds.
    #[must_use]
    pub fn latency_us(&self, p: f64) -> f64 {
        self.latency.quantile(p) as f64 / 1e3
    }
}

/// What a run came to, and whether its window was over.
pub(super) struct Ran {
    /// Of a run that was stopped only the account: it has no figures.
    pub(super) sample: Sample,
    pub(super) is_whole: bool,
}

/// Runs `cell` once with `settings`, at `rate` packets a second or as fast as it goes, unless
/// `stop` ends it before.
pub(super) fn once(
    ports: &Ports,
    cell: &Cell,
    rate: Option<u64>,
    settings: &Settings,
    span: Span,
    stop: &AtomicBool,
) -> Result<Ran, BenchError> {
    let latency = Arc::<Histogram>::default();
    let run = |latency| Run {
        ports,
        cell,
        rate,
        settings,
        span,
        stop,
        latency,
    };
    match ports.open(cell.port, Arc::clone(&latency))? {
        Port::Sim(port) => run(latency).on(port),
        Port::Null(port) => run(latency).on(port),
        Port::Tap(port) => run(latency).on(port),
    }
}

struct Run<'a> {
    ports: &'a Ports,
    cell: &'a Cell,
    rate: Option<u64>,
    settings: &'a Settings,
    span: Span,
    stop: &'a AtomicBool,
    latency: Arc<Histogram>,
}

/// What has been counted so far, and when.
struct Look {
    at: Instant,
    packets: u64,
    wakeups: u64,
    changes: u64,
    cost: Cost,
    /// CPU time of everybody.
    machine: Duration,
    /// CPU time of this process.
    process: Duration,
}

impl Look {
    /// CPU time that others took since `earlier`.
    fn others_since(&self, earlier: &Self) -> Duration {
        let machine = self.machine.saturating_sub(earlier.machine);
        machine.saturating_sub(self.process.saturating_sub(earlier.process))
    }
}

impl Run<'_> {
    /// As a session does it, but for the memory, which stays from run to run.
    fn on<D: Driver>(&self, mut port: D) -> Result<Ran, BenchError>
    where
        D::Rx: 'static,
        D::Tx: 'static,
    {
        let mut sink = sink("sink");
        let config = PortConfig::default();
        let plan = plan(&Side::of(&port, config), &Side::of(&sink, config))?;
        let arena = self.ports.arena(self.cell.port, &plan)?;
        let settings = self.settings;
        let joined = join_with(&mut port, &mut sink, &plan, &arena, None, settings, || {
            Forward
        })?;
        let (stats, handles) = (joined.stats, joined.handles);
        let paired = plan.worker_per_direction();
        let placed = settings.place(joined.workers.len(), paired);
        let running = Running::start_with(joined.workers, joined.intake, settings, &placed.cpus);
        let running = running.map_err(LabError::from_io("start a worker"))?;
        let measured = self.measure(&stats, &handles);
        // Whatever went wrong: the workers end, and what they say comes first.
        running.stop();
        running.join().map_err(BenchError::Run)?;
        let (measured, produced) = measured?;
        let is_whole = measured.is_some();
        let mut sample = measured.unwrap_or_default();
        sample.latency = self.latency.snapshot();
        for one in produced {
            sample.latency.merge(&one.late);
            sample.unsent += one.unsent;
        }
        let end = stats.snapshot();
        sample.ledger = end.ledger;
        sample.drops = end.drops;
        Ok(Ran { sample, is_whole })
    }

    fn task(&self, index: usize, times: Times) -> Task {
        Task {
            load: self.cell.load,
            rate: self.rate,
            index,
            producers: self.cell.producers,
            frame_bytes: self.cell.frame_bytes,
            crowded: self.cell.producers >= cpu::count(),
            times,
        }
    }

    /// Starts the producers, looks at the begin and at the end of the window, and stops them. No
    /// sample if the run is to stop before its end.
    fn measure(
        &self,
        stats: &Stats,
        handles: &TxHandles,
    ) -> Result<(Option<Sample>, Vec<Produced>), BenchError> {
        let clock = MonotonicClock::new();
        let start = clock.now().after(START_AFTER);
        let begin = start.after(self.span.warm_up_of(self.cell));
        let times = Times {
            start,
            begin,
            patience: self.span.window.max(BEHIND_MIN),
        };
        let signal = Signal::new();
        thread::scope(|scope| {
            let threads = (0..self.cell.producers).map(|index| {
                let handle = handles.queue(engine::Port::A, 0);
                let handle = handle.ok_or(LabError::Answer("a port without a TX queue"))?;
                let (task, signal) = (self.task(index, times), &signal);
                let work = move || {
                    sys::set_timer_slack(Duration::from_nanos(1))
                        .map_err(|error| format!("cannot sleep precisely: {error}"))?;
                    Producer::new(handle, &task).run(&task, signal)
                };
                let thread = thread::Builder::new().name(format!("{PRODUCER}{index}"));
                let started = thread.spawn_scoped(scope, work);
                started.map_err(LabError::from_io("start a thread"))
            });
            let threads = threads.collect::<Result<Vec<_>, LabError>>();
            let looks = threads.as_ref().map_err(|&error| error).and_then(|_| {
                if !sleep_until(&clock, begin, self.stop) {
                    return Ok(None);
                }
                let first = look(stats, &clock)?;
                // On a busy machine this thread may be late: the window is as long all the same.
                let end = first.at.after(self.span.window);
                signal.end_at(end);
                if !sleep_until(&clock, end, self.stop) {
                    return Ok(None);
                }
                Ok(Some((first, look(stats, &clock)?)))
            });
            // Also where a thread could not be started, or a look failed. Nothing was ever due by
            // then, so that a producer that is behind makes up for nothing.
            if !matches!(looks, Ok(Some(_))) {
                signal.end_at(Instant::default());
            }
            signal.stop();
            let mut produced = Vec::new();
            for thread in threads? {
                thread.thread().unpark();
                let result = thread.join();
                let result = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                produced.push(result.map_err(BenchError::Producer)?);
            }
            let sample = looks?.map(|(first, last)| {
                let cost = last.cost.since(&first.cost);
                Sample {
                    elapsed: last.at.since(first.at),
                    packets: last.packets - first.packets,
                    wakeups: last.wakeups - first.wakeups,
                    changes: last.changes - first.changes,
                    producers: cost.producers,
                    workers: cost.workers,
                    switches: cost.switches,
                    others: last.others_since(&first),
                    ..Sample::default()
                }
            });
            Ok((sample, produced))
        })
    }
}

fn look(stats: &Stats, clock: &MonotonicClock) -> Result<Look, LabError> {
    let cost = Cost::now()?;
    let tx = stats.snapshot().ports[0].tx_total();
    Ok(Look {
        at: clock.now(),
        machine: cpu::machine_busy()?,
        process: Usage::of_process().cpu(),
        packets: tx.packets,
        wakeups: tx.wakeups,
        changes: tx.dispatch_changes,
        cost,
    })
}

/// Sleeps until `time`; false if `stop` was set before.
fn sleep_until(clock: &MonotonicClock, time: Instant, stop: &AtomicBool) -> bool {
    loop {
        let left = time.since(clock.now());
        if left.is_zero() {
            return true;
        }
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        thread::sleep(left.min(NAP_MAX));
    }
}
