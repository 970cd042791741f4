//! The tools that an experiment can use, by name.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::counters;
use super::forward::Forward;
use crate::error::ToolError;
use crate::testbed::{Testbed, TestbedOptions};
use crate::threads::join;
use crate::tool::{Control, Measured, Tool, measure};
use crate::tools::blast::Blast;
use crate::tools::ping::Ping;
use crate::tools::rfc2544::Rfc2544;
use crate::tools::sort::Sort;
use crate::tools::stream::Stream;

/// How often the frames in use are counted.
const MEMORY_INTERVAL: Duration = Duration::from_millis(20);

/// The names of the tools, as in `tool = "…"`.
pub const TOOLS: [&str; 6] = ["blast", "forward", "ping", "rfc2544", "sort", "stream"];

/// A tool with its options.
#[derive(Clone, Debug)]
pub enum Workload {
    /// UDP packets at a rate or flat out.
    Blast(Blast),
    /// Two ports are joined in this process, without hosts.
    Forward(Forward),
    /// Round trips.
    Ping(Ping),
    /// Throughput without loss, by RFC 2544.
    Rfc2544(Rfc2544),
    /// Keys are grouped, without hosts.
    Sort(Sort),
    /// TCP or UDP streams.
    Stream(Stream),
}

impl Workload {
    /// The tool called `name`, whose options `read` reads. `None` if there is no such tool.
    pub fn read<E>(name: &str, read: impl ReadOptions<E>) -> Option<Result<Self, E>> {
        Some(match name {
            "blast" => read.options().map(Self::Blast),
            "forward" => read.options().map(Self::Forward),
            "ping" => read.options().map(Self::Ping),
            "rfc2544" => read.options().map(Self::Rfc2544),
            "sort" => read.options().map(Self::Sort),
            "stream" => read.options().map(Self::Stream),
            _ => return None,
        })
    }

    /// One run.
    ///
    /// # Errors
    /// [`ToolError`]
    pub fn run(
        &self,
        testbed: &TestbedOptions,
        control: &Control<'_>,
    ) -> Result<Measured, ToolError> {
        match self {
            Self::Blast(blast) => in_testbed(blast, testbed, control),
            Self::Forward(forward) => forward.run(testbed, control),
            Self::Ping(ping) => in_testbed(ping, testbed, control),
            Self::Rfc2544(rfc2544) => in_testbed(rfc2544, testbed, control),
            Self::Sort(sort) => sort.run(testbed, control),
            Self::Stream(stream) => in_testbed(stream, testbed, control),
        }
    }
}

/// A run in a testbed of its own. packtrain's counters since the start of the testbed are figures
/// too.
fn in_testbed(
    tool: &dyn Tool,
    options: &TestbedOptions,
    control: &Control<'_>,
) -> Result<Measured, ToolError> {
    let (mut measured, ended) = measure(options, &Observed(tool), control)?;
    if let Some(report) = ended.report {
        measured.figures.append(&mut counters::figures(&report));
    }
    Ok(measured)
}

/// A tool whose figures include what packtrain's memory and fault injection did meanwhile.
struct Observed<'a>(&'a dyn Tool);

impl Tool for Observed<'_> {
    fn run(&self, testbed: &Testbed, control: &Control<'_>) -> Result<Measured, ToolError> {
        let (measured, memory) = with_memory(testbed, || self.0.run(testbed, control));
        let mut measured = measured?;
        if let Some(memory) = memory {
            let faults = counters::faults(testbed.faults());
            let figures = [("memory", memory), ("faults", faults)];
            let figures = figures.map(|(name, value)| (name.to_owned(), value));
            measured.figures.extend(figures);
        }
        Ok(measured)
    }
}

/// Runs `act`, and counts meanwhile the frames of packtrain's memory: the most that were in use, and
/// all.
fn with_memory<T>(testbed: &Testbed, act: impl FnOnce() -> T) -> (T, Option<Value>) {
    let Some(arena) = testbed.session().map(|session| session.arena().clone()) else {
        return (act(), None);
    };
    let total = arena.config();
    thread::scope(|scope| {
        // Dropped also if `act` panics, which ends the thread.
        let (end, ended) = channel::<()>();
        let counted = scope.spawn(move || {
            let (mut small, mut large) = (0, 0);
            loop {
                let census = arena.census();
                small = small.max(census.small_used);
                large = large.max(census.large_used);
                if ended.recv_timeout(MEMORY_INTERVAL) != Err(RecvTimeoutError::Timeout) {
                    return (small, large);
                }
            }
        });
        let result = act();
        drop(end);
        let (small, large) = join(counted);
        let memory = json!({
            "small_used": small,
            "small_total": total.small_frames,
            "large_used": large,
            "large_total": total.large_frames,
        });
        (result, Some(memory))
    })
}

/// Reads the options of a tool that is known only by name.
pub trait ReadOptions<E> {
    /// The options.
    ///
    /// # Errors
    /// Which option is wrong.
    fn options<T: DeserializeOwned>(self) -> Result<T, E>;
}
