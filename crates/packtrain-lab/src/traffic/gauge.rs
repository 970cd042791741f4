//! What the threads of a transfer have done so far, readable from outside while they run.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::error::LabError;
use crate::sys;

/// One end of one stream. The thread of the end writes; any thread reads.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Gauge {
    bytes: AtomicU64,
    calls: AtomicU64,
    transactions: AtomicU64,
    clock: OnceLock<sys::CpuClock>,
}

impl Gauge {
    /// The calling thread is the one of this end.
    pub(super) fn start(&self) -> Result<(), LabError> {
        let clock = sys::CpuClock::of_thread().map_err(LabError::from_io("thread CPU clock"))?;
        // Each end has one thread, which starts once.
        self.clock.get_or_init(|| clock);
        Ok(())
    }

    /// Publishes the totals of this end.
    pub(super) fn set(&self, bytes: u64, calls: u64) {
        self.bytes.store(bytes, Relaxed);
        self.calls.store(calls, Relaxed);
    }

    /// Whether totals were published.
    pub(super) fn has_begun(&self) -> bool {
        self.calls.load(Relaxed) > 0
    }

    /// Publishes the number of transactions.
    pub(super) fn set_transactions(&self, transactions: u64) {
        self.transactions.store(transactions, Relaxed);
    }

    fn cpu(&self) -> Result<Duration, LabError> {
        match self.clock.get() {
            None => Ok(Duration::ZERO),
            Some(clock) => clock.now().map_err(LabError::from_io("thread CPU clock")),
        }
    }
}

/// The two ends of one stream.
#[derive(Debug, Default)]
pub(super) struct Gauges {
    pub sender: Gauge,
    pub receiver: Gauge,
}

/// What one end of a transfer has done, all its streams together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Payload bytes that the kernel accepted from it or gave to it.
    pub bytes: u64,
    /// Its `send` and `recv` calls.
    pub calls: u64,
    /// CPU time by thread, in the order of the streams.
    pub cpu: Vec<Duration>,
}

impl Done {
    /// The growth since an earlier sample of the same end.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let grown = |(now, then): (&Duration, &Duration)| now.saturating_sub(*then);
        Self {
            bytes: self.bytes - earlier.bytes,
            calls: self.calls - earlier.calls,
            cpu: self.cpu.iter().zip(&earlier.cpu).map(grown).collect(),
        }
    }
}

/// What a transfer has done up to a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sample {
    /// The moment.
    pub at: Instant,
    /// The sending end; of request and response the client.
    pub sender: Done,
    /// The receiving end; of request and response the server.
    pub receiver: Done,
    /// Responses that arrived at the client. 0 without an exchange.
    pub transactions: u64,
    /// TCP: segments retransmitted by both ends. 0 for UDP.
    pub retransmits: u64,
}

impl Sample {
    pub(super) fn of(all: &[Gauges], retransmits: u64) -> Result<Self, LabError> {
        let at = Instant::now();
        let sum = |end: fn(&Gauges) -> &Gauge| {
            let mut done = Done::default();
            for gauge in all.iter().map(end) {
                done.bytes += gauge.bytes.load(Relaxed);
                done.calls += gauge.calls.load(Relaxed);
                done.cpu.push(gauge.cpu()?);
            }
            Ok::<_, LabError>(done)
        };
        Ok(Self {
            at,
            sender: sum(|gauges| &gauges.sender)?,
            receiver: sum(|gauges| &gauges.receiver)?,
            transactions: all
                .iter()
                .map(|gauges| gauges.sender.transactions.load(Relaxed))
                .sum(),
            retransmits,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Usage;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn another_thread_reads_what_a_thread_has_used() {
        let gauges = [Gauges::default()];
        let [one] = &gauges;
        let ((used, is_used), (read, is_read)) = (mpsc::channel(), mpsc::channel::<()>());
        let busy = Duration::from_millis(20);
        thread::scope(|scope| {
            // Its end closes the channel, also by a panic.
            let read = read;
            scope.spawn(move || {
                one.sender.start().unwrap();
                let start = Usage::of_thread();
                let mut calls = 0;
                while Usage::of_thread().since(&start).cpu() < busy {
                    calls += 1;
                    one.sender.set(7 * calls, calls);
                }
                used.send(()).unwrap();
                is_read.recv().unwrap_err();
            });
            is_used.recv().unwrap();
            assert!(one.sender.has_begun() && !one.receiver.has_begun());
            let sample = Sample::of(&gauges, 3).unwrap();
            assert!(sample.sender.cpu[0] >= busy, "{sample:?}");
            assert_eq!(sample.sender.bytes, 7 * sample.sender.calls);
            assert_eq!(sample.receiver.cpu, [Duration::ZERO]);
            assert_eq!(sample.retransmits, 3);
            let none = sample.sender.since(&sample.sender);
            assert_eq!((none.bytes, none.calls), (0, 0));
            drop(read);
        });
    }
}
