//! The counters of a run, and copies of them.

use super::egress::EgressStats;
use super::ledger::Ledger;
use super::worker::WorkerCounters;
use crate::driver::Features;
use crate::stats::{
    DropCounters, DropSnapshot, RxBatchesSnapshot, RxCounters, RxSnapshot, TroubleLog,
    TxBatchesSnapshot, TxCounters, TxSnapshot,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The counters of one port.
#[derive(Debug)]
pub struct PortStats {
    /// The port's name.
    pub name: String,
    /// By RX queue.
    pub rx: Vec<Arc<RxCounters>>,
    /// By TX queue.
    pub tx: Vec<Arc<TxCounters>>,
    /// By TX queue: the ring in front of it.
    pub egress: Vec<Arc<EgressStats>>,
    /// By TX queue: what was lost there.
    pub drops: Vec<Arc<DropCounters>>,
}

/// All counters of a run. Readers take snapshots at any time.
#[derive(Debug)]
pub struct Stats {
    /// The two ports.
    pub ports: [PortStats; 2],
    /// By worker.
    pub workers: Vec<Arc<WorkerCounters>>,
    /// By worker: what was lost before it came to a TX queue.
    pub drops: Vec<Arc<DropCounters>>,
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
    /// Offloads that the device refused on legal packets; packtrain does them instead.
    pub refused: Features,
    /// What was wrong with the device when it did not go on, by TX queue.
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
    /// The two ports.
    pub ports: [PortSnapshot; 2],
    /// Losses by reason.
    pub drops: DropSnapshot,
    /// The ledger; closed for certain only once the workers have ended.
    pub ledger: Ledger,
    /// CPU time of all workers, in nanoseconds; up to 10 ms old while they run.
    pub cpu_ns: u64,
    /// System calls of the workers, those of the ports included.
    pub syscalls: u64,
    /// Times workers went to sleep.
    pub sleeps: u64,
    /// What each worker did and cost.
    pub workers: Vec<WorkerSnapshot>,
}

/// What one worker did and cost: switches and CPU time up to 10 ms ago, while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerSnapshot {
    /// Steps taken.
    pub steps: u64,
    /// Times it went to sleep.
    pub sleeps: u64,
    /// Sleeps that something ended: a device, or another thread.
    pub wakeups: u64,
    /// Context switches since it gave the CPU away.
    pub voluntary_switches: u64,
    /// Context switches since the CPU was taken from it.
    pub involuntary_switches: u64,
    /// CPU time in nanoseconds.
    pub cpu_ns: u64,
    /// System calls to wait and to ask, without those of the ports.
    pub syscalls: u64,
    /// Nice value of its thread, as it was given at the start; 0 until then, and where no thread
    /// was started for it.
    pub nice: i8,
}

impl WorkerSnapshot {
    fn of(worker: &WorkerCounters) -> Self {
        Self {
            steps: worker.steps.get(),
            sleeps: worker.sleeps.get(),
            wakeups: worker.wakeups.get(),
            voluntary_switches: worker.voluntary_switches.get(),
            involuntary_switches: worker.involuntary_switches.get(),
            cpu_ns: worker.cpu_ns.get(),
            syscalls: worker.syscalls.get(),
            nice: worker.nice.load(Ordering::Relaxed),
        }
    }
}

impl Stats {
    /// A copy of everything.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut all = Snapshot::default();
        for (port, copy) in self.ports.iter().zip(&mut all.ports) {
            copy.name.clone_from(&port.name);
            copy.rx = port.rx.iter().map(|counters| counters.snapshot()).collect();
            copy.tx = port.tx.iter().map(|counters| counters.snapshot()).collect();
            for (egress, tx) in port.egress.iter().zip(&mut copy.tx) {
                let egress = egress.snapshot();
                egress.add_to(tx);
                copy.refused |= egress.refused;
                copy.troubles.push(egress.troubles);
                all.ledger.generated += egress.producers.generated;
                all.ledger.held += egress.held;
            }
            port.drops
                .iter()
                .for_each(|drops| all.drops.merge(&drops.snapshot()));
            copy.rx_batches = port.rx.iter().map(|rx| rx.batches.snapshot()).collect();
            copy.tx_batches = port.tx.iter().map(|tx| tx.batches.snapshot()).collect();
            copy.rx.iter().for_each(|rx| all.ledger.add_rx(rx));
            copy.tx.iter().for_each(|tx| all.ledger.add_tx(tx));
            all.syscalls += copy.rx_total().syscalls + copy.tx_total().syscalls;
        }
        for drops in &self.drops {
            all.drops.merge(&drops.snapshot());
        }
        all.ledger.add_drops(&all.drops);
        for worker in &self.workers {
            all.ledger.delivered += worker.delivered.get();
            all.ledger.generated += worker.generated.get();
            all.ledger.held += worker.held.get();
            let worker = WorkerSnapshot::of(worker);
            all.cpu_ns += worker.cpu_ns;
            all.syscalls += worker.syscalls;
            all.sleeps += worker.sleeps;
            all.workers.push(worker);
        }
        all
    }
}
