//! One pass over the captures, with all configurations side by side.

use super::error::Error;
use super::files::{Counting, Files, Source};
use super::stoppable::Interrupt;
use packtrain_capture::CaptureError;
use packtrain_capture::replay::{Analysis, Batch, Intake, Options, Report, Train};
use std::io;
use std::mem::swap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, available_parallelism, scope};
use std::time::{Duration, Instant};

/// How often progress is reported.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Takes the trains of one configuration, in the order in which they end.
pub trait Sink: Send {
    /// Whether it takes any: otherwise trains are counted only.
    const TAKES: bool = true;

    /// Takes trains.
    ///
    /// # Errors
    /// Any; it ends the run.
    fn take(&mut self, trains: &[Train]) -> io::Result<()>;

    /// Takes the names of all interfaces that are described so far, in the order of
    /// [`Report::interfaces`]: before the first train of a new one.
    ///
    /// # Errors
    /// Any; it ends the run.
    fn interfaces(&mut self, _names: &[Option<String>]) -> io::Result<()> {
        Ok(())
    }
}

/// Takes no trains.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ignore;

impl Sink for Ignore {
    const TAKES: bool = false;

    fn take(&mut self, _trains: &[Train]) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for Vec<Train> {
    fn take(&mut self, trains: &[Train]) -> io::Result<()> {
        self.extend_from_slice(trains);
        Ok(())
    }
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes read.
    pub bytes: u64,
    /// Bytes to read, if known.
    pub bytes_total: Option<u64>,
    /// Packets read.
    pub packets: u64,
    /// Time since the start.
    pub elapsed: Duration,
}

impl Progress {
    /// Bytes per second so far.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// The time that is left at that rate, if the bytes to read are known.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        let left = self.bytes_total?.saturating_sub(self.bytes) as f64;
        Duration::try_from_secs_f64(left / self.rate().max(1.0)).ok()
    }
}

/// Reports progress; `false` ends the run with what was read.
pub type Watch<'a> = &'a mut dyn FnMut(&Progress) -> bool;

/// How a run is made.
#[derive(Default)]
pub struct Settings<'a> {
    /// Threads that run configurations, beside the one that reads. 0 is one for each processor; 1
    /// reads and runs in turn on the thread of the caller.
    pub threads: usize,
    /// The queue whose packets are taken; all others are read and left out. `None` takes all. The
    /// configurations have the same number of queues.
    pub queue: Option<u16>,
    /// Called ten times a second, and at the end.
    pub watch: Option<Watch<'a>>,
    /// Called while a FIFO or the like has no data: `true` ends it there.
    pub interrupt: Option<Interrupt>,
}

/// What a run found.
#[derive(Debug, Default)]
pub struct Done<S> {
    /// For each configuration.
    pub reports: Vec<Report>,
    /// The sinks, in the same order.
    pub sinks: Vec<S>,
    /// [`Settings::watch`] ended it.
    pub stopped: bool,
    /// The captures that end in the middle of a record, or cannot be read on: their paths, and why.
    /// What was read of them is in the reports, and all of the others.
    pub broken: Vec<(String, CaptureError)>,
}

/// One configuration.
struct Run<S> {
    analysis: Analysis,
    sink: S,
    trains: Vec<Train>,
    /// The interfaces whose names the sink has.
    named: usize,
}

impl<S: Sink> Run<S> {
    fn take(&mut self, batch: &Batch) -> io::Result<()> {
        let trains = &mut self.trains;
        match S::TAKES {
            true => self.analysis.take(batch, &mut |train| trains.push(*train)),
            false => self.analysis.take(batch, &mut |_| {}),
        }
        let names = batch.interfaces();
        if S::TAKES && self.named < names.len() {
            self.named = names.len();
            self.sink.interfaces(names)?;
        }
        self.hand_on()
    }

    fn finish(&mut self) -> io::Result<()> {
        let trains = &mut self.trains;
        self.analysis.finish(&mut |train| trains.push(*train));
        self.hand_on()
    }

    fn hand_on(&mut self) -> io::Result<()> {
        let taken = match self.trains.is_empty() || !S::TAKES {
            true => Ok(()),
            false => self.sink.take(&self.trains),
        };
        self.trains.clear();
        taken
    }
}

/// Runs every configuration on the captures. `sinks` has one for each.
///
/// # Errors
/// See [`Error`]. A capture that is broken is none: [`Done::broken`].
///
/// # Panics
/// If there are fewer sinks than configurations, or more.
pub fn run<S: Sink>(
    files: Files,
    runs: &[Options],
    sinks: Vec<S>,
    settings: &mut Settings<'_>,
) -> Result<Done<S>, Error> {
    assert_eq!(runs.len(), sinks.len(), "a sink for each configuration");
    let differs = |of: fn(&Options) -> (u16, bool)| {
        let first = runs.first().map(of);
        runs.iter().map(of).any(|value| Some(value) != first)
    };
    if differs(|run| (0, run.headers_only)) {
        return Err(Error::Mixed("headers_only"));
    }
    if settings.queue.is_some() && differs(|run| (run.queues, false)) {
        return Err(Error::Mixed("queues, of which one is taken,"));
    }
    let processors = || available_parallelism().map_or(1, Into::into);
    let threads = match settings.threads {
        0 => processors(),
        threads => threads,
    };
    let mut reading = Reading::new(files, runs, settings);
    let all = runs.iter().zip(sinks).map(|(options, sink)| Run {
        analysis: Analysis::new(options),
        sink,
        trains: Vec::new(),
        named: 0,
    });
    let mut all: Vec<_> = all.collect();
    run_all(&mut reading, &mut all, threads, settings)?;
    for run in &mut all {
        run.finish().map_err(Error::Sink)?;
    }
    reading.unchanged()?;
    let report = reading.intake.report();
    let broken = reading.intake.stopped().iter().filter_map(|(file, error)| {
        let source = reading.files.sources.get(*file)?;
        Some((source.path.clone(), *error))
    });
    let broken = broken.collect();
    Ok(Done {
        reports: all.iter().map(|run| run.analysis.report(report)).collect(),
        sinks: all.into_iter().map(|run| run.sink).collect(),
        stopped: reading.stopped,
        broken,
    })
}

/// Runs each batch of packets on all configurations, while the next one is read.
fn run_all<S: Sink>(
    reading: &mut Reading,
    all: &mut [Run<S>],
    threads: usize,
    settings: &mut Settings<'_>,
) -> Result<(), Error> {
    let share = all.len().div_ceil(threads).max(1);
    let (mut batch, mut next) = (Batch::default(), Batch::default());
    let mut has_more = reading.fill(&mut batch, settings)?;
    while has_more {
        has_more = scope(|scope| {
            let take = |runs: &mut [Run<S>]| runs.iter_mut().try_for_each(|run| run.take(&batch));
            let mut workers = Vec::new();
            match threads {
                1 => take(all).map_err(Error::Sink)?,
                _ => {
                    for share in all.chunks_mut(share) {
                        let thread = Builder::new().name("replay".into());
                        let worker = thread.spawn_scoped(scope, move || take(share));
                        workers.push(worker.map_err(Error::Thread)?);
                    }
                }
            }
            let read = reading.fill(&mut next, settings);
            for worker in workers {
                let taken = worker.join().unwrap_or_else(|panic| resume_unwind(panic));
                taken.map_err(Error::Sink)?;
            }
            read
        })?;
        swap(&mut batch, &mut next);
    }
    Ok(())
}

/// The captures while they are read.
struct Reading {
    files: Files,
    intake: Intake<Counting>,
    /// The next one to open.
    next: usize,
    bytes: Arc<AtomicU64>,
    bytes_total: Option<u64>,
    since: Instant,
    reported: Duration,
    stopped: bool,
}

impl Reading {
    fn new(files: Files, runs: &[Options], settings: &Settings<'_>) -> Self {
        Self {
            bytes_total: files.bytes(),
            files,
            intake: match settings.queue {
                Some(queue) => Intake::new(runs).of_queue(queue),
                None => Intake::new(runs),
            },
            next: 0,
            bytes: Arc::default(),
            since: Instant::now(),
            reported: Duration::ZERO,
            stopped: false,
        }
    }

    /// Reads the next batch; `false` at the end of all captures, and if the run was ended.
    fn fill(&mut self, batch: &mut Batch, settings: &mut Settings<'_>) -> Result<bool, Error> {
        let several = self.files.sources.len() > 1;
        loop {
            if !self.goes_on(settings, false) {
                return Ok(false);
            }
            let until = self.files.sources.get(self.next).map(|next| next.first_ns);
            if self.intake.fill(batch, until)? {
                return Ok(true);
            }
            let next = self.files.sources.get_mut(self.next);
            let Some(next) = next else {
                self.goes_on(settings, true);
                return Ok(false);
            };
            match next.reader(&self.bytes, settings.interrupt.as_ref()) {
                Ok(reader) => self.intake.add(self.next, reader)?,
                // It ends none of the others.
                Err(Error::Capture { error, .. }) if several => {
                    self.intake.refuse(self.next, error);
                }
                Err(error) => return Err(error),
            }
            self.next += 1;
        }
    }

    /// Reports progress if it is time, or at the end; `false` if the run is to end.
    fn goes_on(&mut self, settings: &mut Settings<'_>, is_end: bool) -> bool {
        let elapsed = self.since.elapsed();
        let is_due = is_end || elapsed >= self.reported + PROGRESS_INTERVAL;
        if let (Some(watch), true, false) = (&mut settings.watch, is_due, self.stopped) {
            self.reported = elapsed;
            self.stopped = !watch(&Progress {
                bytes: self.bytes.load(Ordering::Relaxed),
                bytes_total: self.bytes_total,
                packets: self.intake.report().received,
                elapsed,
            });
        }
        !self.stopped
    }

    /// Whether each file that was read is still what it was.
    fn unchanged(&self) -> Result<(), Error> {
        let mut read = self.files.sources.iter().take(self.next);
        read.try_for_each(Source::unchanged)
    }
}
