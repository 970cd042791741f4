//! The tools that an experiment can use, by name.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use packtrain::engine::Report;
use packtrain::packet::Arena;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::counters::{self, Work};
use super::forward::Forward;
use super::send::Senders;
use crate::error::{LabError, ToolError};
use crate::options::Fields;
use crate::testbed::{Testbed, TestbedOptions};
use crate::threads::{join, spawn};
use crate::tool::{Control, Measured, Tool, measure};
use crate::tools::bad_frames::BadFrames;
use crate::tools::blast::Blast;
use crate::tools::ping::Ping;
use crate::tools::rfc2544::Rfc2544;
use crate::tools::sort::Sort;
use crate::tools::stream::Stream;

/// How often the frames in use are counted.
const MEMORY_INTERVAL: Duration = Duration::from_millis(20);

/// The names of the tools, as in `tool = "…"`.
pub const TOOLS: [&str; 8] = [
    "bad-frames",
    "blast",
    "forward",
    "ping",
    "rfc2544",
    "send",
    "sort",
    "stream",
];

/// A tool with its options.
#[derive(Clone, Debug)]
pub enum Workload {
    /// UDP packets, and frames with an error beside them.
    BadFrames(BadFrames),
    /// UDP packets at a rate or flat out.
    Blast(Blast),
    /// Two ports are joined in this process, without hosts.
    Forward(Forward),
    /// Round trips.
    Ping(Ping),
    /// Throughput without loss, by RFC 2544.
    Rfc2544(Rfc2544),
    /// Threads of this process send UDP packets through handles of one port.
    Send(Senders),
    /// Keys are grouped, without hosts.
    Sort(Sort),
    /// TCP or UDP streams.
    Stream(Stream),
}

impl Workload {
    /// The tool called `name`, whose options `read` reads. `None` if there is no such tool.
    pub fn read<E>(name: &str, read: impl ReadOptions<E>) -> Option<Result<Self, E>> {
        Some(match name {
            "bad-frames" => read.options().map(Self::BadFrames),
            "blast" => read.options().map(Self::Blast),
            "forward" => read.options().map(Self::Forward),
            "ping" => read.options().map(Self::Ping),
            "rfc2544" => read.options().map(Self::Rfc2544),
            "send" => read.options().map(Self::Send),
            "sort" => read.options().map(Self::Sort),
            "stream" => read.options().map(Self::Stream),
            _ => return None,
        })
    }

    /// The name of its tool.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::BadFrames(_) => "bad-frames",
            Self::Blast(_) => "blast",
            Self::Forward(_) => "forward",
            Self::Ping(_) => "ping",
            Self::Rfc2544(_) => "rfc2544",
            Self::Send(_) => "send",
            Self::Sort(_) => "sort",
            Self::Stream(_) => "stream",
        }
    }

    /// One run. If `memory` is set, and there are hosts, packtrain's frames in use are counted
    /// meanwhile.
    ///
    /// # Errors
    /// [`ToolError`]
    pub fn run(
        &self,
        testbed: &TestbedOptions,
        memory: bool,
        control: &Control<'_>,
    ) -> Result<Measured, ToolError> {
        if testbed.machine.is_some()
            && !matches!(self, Self::Forward(_) | Self::Ping(_) | Self::Send(_))
        {
            return Err(ToolError::Usage(format!(
                "tool {} is not for a virtual machine: leave machine= out, or use tool send, \
                 forward or ping",
                self.name()
            )));
        }
        match self {
            Self::BadFrames(frames) => in_testbed(frames, testbed, memory, control),
            Self::Blast(blast) => in_testbed(blast, testbed, memory, control),
            Self::Forward(forward) => forward.run(testbed, control),
            Self::Ping(ping) => match &testbed.machine {
                None => in_testbed(ping, testbed, memory, control),
                Some(machine) => {
                    let (measured, report) = ping.in_virtual_time(machine, testbed)?;
                    Ok(with_counters(measured.fields(), &report))
                }
            },
            Self::Rfc2544(rfc2544) => in_testbed(rfc2544, testbed, memory, control),
            Self::Send(send) => send.run(testbed, control),
            Self::Sort(sort) => sort.run(testbed, control),
            Self::Stream(stream) => in_testbed(stream, testbed, memory, control),
        }
    }
}

/// A run in a testbed of its own. packtrain's counters since the start of the testbed, and the CPU
/// time of its workers for each wire packet received, are figures too.
fn in_testbed<T: Tool>(
    tool: &T,
    options: &TestbedOptions,
    memory: bool,
    control: &Control<'_>,
) -> Result<Measured, ToolError> {
    let (measured, ended) = measure(options, &Observed { tool, memory }, control)?;
    let measured = measured.fields();
    Ok(match ended.report {
        Some(report) => with_counters(measured, &report),
        None => measured,
    })
}

fn with_counters(mut measured: Measured, report: &Report) -> Measured {
    let packets = counters::received(&report.snapshot);
    let per_packet = Work::of(&report.snapshot).ns_per_packet(packets);
    measured.figures.append(&mut counters::figures(report));
    let name = "ns_per_packet".to_owned();
    measured.figures.insert(name, per_packet.into());
    measured
}

/// A tool whose figures include what packtrain's fault injection did meanwhile, and its memory if
/// that is to be counted.
struct Observed<'a, T> {
    tool: &'a T,
    memory: bool,
}

impl<T: Tool> Tool for Observed<'_, T> {
    type Settings = Fields;
    type Figures = Fields;

    fn run(&self, testbed: &Testbed, control: &Control<'_>) -> Result<Measured, ToolError> {
        let run = || self.tool.run(testbed, control).map(Measured::fields);
        let Some(session) = testbed.session() else {
            return run();
        };
        let (measured, memory) = if self.memory {
            let (measured, memory) = with_memory(session.arena(), run)?;
            (measured, Some(memory))
        } else {
            (run(), None)
        };
        let mut measured = measured?;
        let faults = counters::faults(testbed.faults());
        let memory = memory.map(|memory| ("memory".to_owned(), memory));
        measured.figures.insert("faults".to_owned(), faults);
        measured.figures.extend(memory);
        Ok(measured)
    }
}

/// Runs `act`, and counts meanwhile the frames of `arena`: all, and the most that were in use. A
/// count reads what the workers write for each frame, so it takes cache lines from them.
fn with_memory<T>(arena: &Arena, act: impl FnOnce() -> T) -> Result<(T, Value), LabError> {
    let total = arena.config();
    thread::scope(|scope| {
        // Dropped also if `act` panics, which ends the thread.
        let (end, ended) = channel::<()>();
        let counted = spawn(scope, move || {
            let (mut small, mut large) = (0, 0);
            loop {
                let census = arena.census();
                small = small.max(census.small_used);
                large = large.max(census.large_used);
                if ended.recv_timeout(MEMORY_INTERVAL) != Err(RecvTimeoutError::Timeout) {
                    return (small, large);
                }
            }
        })?;
        let result = act();
        drop(end);
        let (small, large) = join(counted);
        let memory = memory([small, total.small_frames, large, total.large_frames]);
        Ok((result, memory))
    })
}

/// The figures of packtrain's memory: small frames in use and in all, then large ones.
pub(super) fn memory([small, small_all, large, large_all]: [u32; 4]) -> Value {
    json!({
        "small_used": small,
        "small_total": small_all,
        "large_used": large,
        "large_total": large_all,
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
