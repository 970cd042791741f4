//! What happened in a world.

use packtrain::time::Instant;
use packtrain_offload::random::mix;
use std::time::Duration;

/// What has happened since the world began. Two runs with equal seeds have equal traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The end of the run.
    pub now: Instant,
    /// Events that were handled.
    pub events: u64,
    /// A hash of every step: when, of which task, its result and its cost. Polls that were counted
    /// and not run are one.
    pub digest: u64,
    /// Workers and actors, in the order in which they came.
    pub tasks: Vec<TaskTrace>,
    /// The CPUs.
    pub cpus: Vec<CpuTrace>,
}

/// What one worker or actor did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskTrace {
    /// Steps taken.
    pub steps: u64,
    /// Times it went to sleep.
    pub sleeps: u64,
    /// Sleeps that a notification ended. The others ended by time.
    pub wakeups: u64,
    /// Times that it lost the CPU to another task and could have run on.
    pub preemptions: u64,
    /// Times that it ran on another CPU than before.
    pub migrations: u64,
    /// Time on a CPU.
    pub busy: Duration,
    /// When it ended.
    pub ended: Option<Instant>,
    /// The error of a worker that a device failed.
    pub error: Option<String>,
}

impl TaskTrace {
    /// Context switches away from it, as `getrusage` counts them: voluntary and involuntary ones.
    #[must_use]
    pub const fn switches(&self) -> u64 {
        self.sleeps + self.preemptions
    }
}

/// What one CPU did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTrace {
    /// Time that it was not idle.
    pub busy: Duration,
    /// Times that it changed from one task to another.
    pub switches: u64,
}

/// A hash of numbers, in their order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Digest(u64);

impl Digest {
    pub(crate) const fn add(&mut self, number: u64) {
        // One of many equal numbers counts, too: zero becomes something else.
        self.0 = mix(self.0.wrapping_add(0x9E37_79B9_7F4A_7C15) ^ number);
    }

    pub(crate) const fn get(self) -> u64 {
        self.0
    }
}
