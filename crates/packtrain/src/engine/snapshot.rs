//! The counters of a run, and copies of them.

use super::ledger::Ledger;
use super::stats::{LaneCounters, PathStats};
use super::worker::WorkerCounters;
use crate::driver::{ChangeLog, Changes, Features};
use crate::stats::{
    DropCounters, DropReason, DropSnapshot, RxBatchesSnapshot, RxCounters, RxSnapshot, TroubleLog,
    TxBatchesSnapshot, TxCounters, TxSnapshot,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The counters of one port.
#[derive(Debug)]
pub(super) struct PortStats {
    /// The port's name.
    pub(super) name: String,
    /// By RX queue.
    pub(super) rx: Vec<Arc<RxCounters>>,
    /// By TX queue.
    pub(super) tx: Vec<Arc<TxCounters>>,
    /// By TX queue: the path that leads there.
    pub(super) paths: Vec<Arc<PathStats>>,
    /// By TX queue: the drops there.
    pub(super) drops: Vec<Arc<DropCounters>>,
}

impl PortStats {
    pub(super) const fn new(name: String) -> Self {
        Self {
            name,
            rx: Vec::new(),
            tx: Vec::new(),
            paths: Vec::new(),
            drops: Vec::new(),
        }
    }
}

/// All counters of a run. Readers take snapshots at any time.
#[derive(Debug)]
pub(super) struct Stats {
    pub(super) ports: Vec<PortStats>,
    pub(super) workers: Vec<Arc<WorkerCounters>>,
    pub(super) lanes: Vec<Arc<LaneCounters>>,
    /// Drops before packets reached a TX path.
    pub(super) drops: Vec<Arc<DropCounters>>,
    pub(super) changes: Arc<ChangeLog>,
}

/// A copy of one port's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortSnapshot {
    /// The port's name.
    pub name: String,
    /// By RX queue.
    pub rx: Vec<RxSnapshot>,
    /// By TX queue.
    pub tx: Vec<TxSnapshot>,
    /// The sizes of batches, by RX queue.
    pub rx_batches: Vec<RxBatchesSnapshot>,
    /// The sizes of batches, by TX queue.
    pub tx_batches: Vec<TxBatchesSnapshot>,
    /// Offloads that the device refused for legal packets; software does them instead.
    pub refused: Features,
    /// The causes of the device's stalls that the watchdog found, by TX queue.
    pub troubles: Vec<TroubleLog>,
}

impl PortSnapshot {
    /// All RX queues together.
    #[must_use]
    pub fn rx_total(&self) -> RxSnapshot {
        self.rx
            .iter()
            .fold(RxSnapshot::default(), |mut sum, queue| {
                sum.merge(queue);
                sum
            })
    }

    /// All TX queues together.
    #[must_use]
    pub fn tx_total(&self) -> TxSnapshot {
        self.tx
            .iter()
            .fold(TxSnapshot::default(), |mut sum, queue| {
                sum.merge(queue);
                sum
            })
    }
}

/// A copy of all counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The ports.
    pub ports: Vec<PortSnapshot>,
    /// Drops by reason.
    pub drops: DropSnapshot,
    /// The ledger. It is guaranteed to be closed only after the workers have ended.
    pub ledger: Ledger,
    /// CPU time of all workers, in nanoseconds; up to 10 ms old while they run.
    pub cpu_ns: u64,
    /// System calls of the workers, including those of the ports.
    pub syscalls: u64,
    /// Times workers went to sleep.
    pub sleeps: u64,
    /// The counters of each worker.
    pub workers: Vec<WorkerSnapshot>,
    /// What has changed since the plan was made.
    pub changes: Changes,
}

/// The counters of one worker. Context switches and CPU time are up to 10 ms old while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerSnapshot {
    /// Steps taken.
    pub steps: u64,
    /// Times it went to sleep.
    pub sleeps: u64,
    /// Sleeps that a device or another thread ended.
    pub wakeups: u64,
    /// Packets that the worker took out of the rings of shared TX queues.
    pub drained: u64,
    /// Voluntary context switches: the thread gave the CPU away.
    pub voluntary_switches: u64,
    /// Involuntary context switches: the scheduler took the CPU away.
    pub involuntary_switches: u64,
    /// CPU time in nanoseconds.
    pub cpu_ns: u64,
    /// System calls to wait, to be woken, and to read these counters; without those of the ports.
    pub syscalls: u64,
    /// Nice value of the worker's thread, as set at the start; 0 before that, and without a thread.
    pub nice: i8,
    /// The worker's thread was given the scheduling class `SCHED_BATCH`
    /// ([`Priority::batch`](crate::policy::priority::Priority::batch)).
    pub batch: bool,
}

impl WorkerSnapshot {
    fn of(worker: &WorkerCounters) -> Self {
        Self {
            steps: worker.steps.get(),
            sleeps: worker.sleeps.get(),
            wakeups: worker.wakeups.get(),
            drained: worker.drained.get(),
            voluntary_switches: worker.voluntary_switches.get(),
            involuntary_switches: worker.involuntary_switches.get(),
            cpu_ns: worker.cpu_ns.get(),
            syscalls: worker.syscalls.get(),
            nice: worker.nice.load(Ordering::Relaxed),
            batch: worker.batch.load(Ordering::Relaxed),
        }
    }
}

/// What the steps of a run have done: the counters that have a price in virtual time, read without
/// a copy of the others.
#[cfg(feature = "internals")]
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Packets received from devices, or given to them.
    pub packets: u64,
    /// Their bytes, and those copied since a device could not take them as they were.
    pub bytes: u64,
    /// Doorbells.
    pub doorbells: u64,
    /// Wake-ups of workers for TX queues.
    pub wakeups: u64,
    /// System calls.
    pub syscalls: u64,
}

impl Stats {
    /// See [`Work`].
    #[cfg(feature = "internals")]
    pub(super) fn work(&self) -> Work {
        let mut work = Work::default();
        for port in &self.ports {
            for rx in &port.rx {
                work.packets += rx.packets.get();
                work.bytes += rx.bytes.get();
                work.syscalls += rx.syscalls.get();
            }
            for (tx, path) in port.tx.iter().zip(&port.paths) {
                work.packets += tx.packets.get();
                work.bytes += tx.bytes.get() + tx.fit_bytes_copied.get();
                work.doorbells += tx.doorbells.get();
                let of_producers = path.wakeups();
                work.wakeups += tx.wakeups.get() + of_producers;
                work.syscalls += tx.syscalls.get() + of_producers;
            }
        }
        for worker in &self.workers {
            work.syscalls += worker.syscalls.get();
        }
        work
    }

    /// A copy of everything.
    pub(super) fn snapshot(&self) -> Snapshot {
        let mut all = Snapshot {
            changes: self.changes.snapshot(),
            ..Snapshot::default()
        };
        for port in &self.ports {
            let mut copy = PortSnapshot {
                name: port.name.clone(),
                rx: port.rx.iter().map(|counters| counters.snapshot()).collect(),
                tx: port.tx.iter().map(|counters| counters.snapshot()).collect(),
                rx_batches: port.rx.iter().map(|rx| rx.batches.snapshot()).collect(),
                tx_batches: port.tx.iter().map(|tx| tx.batches.snapshot()).collect(),
                ..PortSnapshot::default()
            };
            for (path, tx) in port.paths.iter().zip(&mut copy.tx) {
                let path = path.snapshot();
                path.add_to(tx);
                copy.refused |= path.refused;
                copy.troubles.push(path.troubles);
                all.ledger.generated += path.producers.generated;
                let refused = path.producers.egress_full;
                all.drops.add(DropReason::EgressFull, refused);
                all.ledger.held += path.held;
            }
            port.drops
                .iter()
                .for_each(|drops| all.drops.merge(&drops.snapshot()));
            copy.rx.iter().for_each(|rx| all.ledger.add_rx(rx));
            copy.tx.iter().for_each(|tx| all.ledger.add_tx(tx));
            all.syscalls += copy.rx_total().syscalls + copy.tx_total().syscalls;
            all.ports.push(copy);
        }
        for drops in &self.drops {
            all.drops.merge(&drops.snapshot());
        }
        all.ledger.add_drops(&all.drops);
        for lanes in &self.lanes {
            all.ledger.delivered += lanes.delivered.get();
            all.ledger.generated += lanes.generated.get();
            all.ledger.expanded += lanes.cloned.get();
            all.ledger.held += lanes.held.get();
        }
        for worker in &self.workers {
            let worker = WorkerSnapshot::of(worker);
            all.cpu_ns += worker.cpu_ns;
            all.syscalls += worker.syscalls;
            all.sleeps += worker.sleeps;
            all.workers.push(worker);
        }
        all
    }
}
