//! Which TX queues are owned and which are shared, and which worker has what: decided at start.

#[cfg(test)]
mod tests;

use crate::driver::QueueConfig;
use crate::limits::PORTS_MAX;
use crate::policy::dispatch::Dispatch;
use std::fmt;

/// How lanes reach the TX queues of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// The RX worker that feeds a queue has it: a direct call, no ring.
    Owned,
    /// A ring with any number of producers is in front of each queue, and a TX worker drains the
    /// packets deferred to it.
    Shared,
}

impl fmt::Display for PathKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Owned => "owned",
            Self::Shared => "shared",
        })
    }
}

/// The TX paths of one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Owned or shared.
    pub kind: PathKind,
    /// The dispatch mode of the port's TX queues.
    pub dispatch: Dispatch,
    /// The mode that the queues work in: `direct` where `adaptive` has as many application threads
    /// as there are CPUs.
    pub adapted: Dispatch,
    /// Application threads that send to the port.
    pub senders: usize,
    /// Lanes hand packets over one by one, not in bursts.
    pub by_packet: bool,
    /// Why, in words.
    pub why: String,
}

/// One part of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlannedPart {
    /// The RX queues i of the direction's ingress port with i mod pairs = `pair`.
    Lanes {
        /// The direction, which is the ingress port.
        direction: usize,
        /// Counted from 0.
        pair: usize,
    },
    /// One shared TX queue.
    Tx {
        /// The port.
        port: usize,
        /// The queue, counted from 0.
        queue: usize,
    },
}

impl fmt::Display for PlannedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lanes { direction, pair } => write!(f, "RX of port {direction}, pair {pair}"),
            Self::Tx { port, queue } => write!(f, "TX queue {queue} of port {port}"),
        }
    }
}

/// The inputs for the plan of paths and workers, beside the ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The dispatch mode of ports that have none of their own.
    pub dispatch: Dispatch,
    /// Application threads that send to each port.
    pub senders: [usize; PORTS_MAX],
    /// CPUs that workers may use.
    pub cpus: usize,
}

impl Default for Demand {
    fn default() -> Self {
        Self {
            dispatch: Dispatch::default(),
            senders: [0; PORTS_MAX],
            cpus: 1,
        }
    }
}

impl Path {
    /// The path to the TX queues of a port with these settings, to which `senders` application
    /// threads send, too. `among`: so do the lanes of several ports.
    pub(super) fn new(config: &QueueConfig, demand: &Demand, senders: usize, among: bool) -> Self {
        let dispatch = config.dispatch.unwrap_or(demand.dispatch);
        let (kind, why) = if among {
            let why = "the RX workers of several ports feed each queue".to_owned();
            (PathKind::Shared, why)
        } else if config.shared {
            (PathKind::Shared, "tx=shared".to_owned())
        } else if config.by_packet {
            (PathKind::Shared, "handover=packet".to_owned())
        } else if senders > 0 {
            let why = format!("{senders} application threads send, too");
            (PathKind::Shared, why)
        } else if matches!(dispatch, Dispatch::Direct | Dispatch::Adaptive) {
            let why = format!("dispatch={dispatch}, and one RX worker feeds each queue");
            (PathKind::Owned, why)
        } else {
            let why = format!("dispatch={dispatch}: the TX worker drains");
            (PathKind::Shared, why)
        };
        let cpus = demand.cpus;
        // A TX worker that takes over under contention would take its CPU from a sender.
        let (adapted, why) = if dispatch == Dispatch::Adaptive && senders >= cpus.max(2) {
            let why =
                format!("{why}; no CPU of {cpus} is left for a TX worker: they drain directly");
            (Dispatch::Direct, why)
        } else {
            (dispatch, why)
        };
        Self {
            kind,
            dispatch,
            adapted,
            senders,
            by_packet: config.by_packet,
            why,
        }
    }
}

/// The queues of the ports, which are divided into the parts of workers.
#[derive(Clone, Debug)]
pub(super) struct QueueCounts {
    /// QueueCounts of each port.
    pub(super) counts: Vec<usize>,
    /// Whether the TX queues of each port are shared.
    pub(super) shared: Vec<bool>,
    /// Whether the directions of a pair of queues may be on two workers.
    pub(super) per_direction: bool,
    /// Whether the lanes of each port feed the TX queues of all others.
    pub(super) among: bool,
}

impl QueueCounts {
    /// The parts of each of min(parts, CPUs, at least 2) workers. A shared TX queue is not on a
    /// worker whose lanes feed it; among several ports it may be, if all workers have such lanes.
    pub(super) fn place(&self, cpus: usize) -> Vec<Vec<PlannedPart>> {
        let pairs = self.counts.iter().copied().min().unwrap_or(0);
        let directions = self.counts.len();
        let lanes = |direction, pair| PlannedPart::Lanes { direction, pair };
        let groups: Vec<Vec<_>> = if self.per_direction {
            let of = |d| (0..pairs).map(move |pair| vec![lanes(d, pair)]);
            (0..directions).flat_map(of).collect()
        } else {
            let both = |pair| (0..directions).map(|d| lanes(d, pair)).collect();
            (0..pairs).map(both).collect()
        };
        let shared = (0..directions).filter(|&port| self.shared[port]);
        let tx: Vec<_> = shared
            .flat_map(|port| (0..self.counts[port]).map(move |queue| (port, queue)))
            .collect();
        let count = (groups.len() + tx.len()).min(cpus.max(2)).max(1);
        let mut workers = vec![Vec::new(); count];
        let (all, rx_workers) = (groups.len(), groups.len().min(count));
        for (index, group) in groups.into_iter().enumerate() {
            workers[index * rx_workers / all].extend(group);
        }
        for (port, queue) in tx {
            let feeds = |part: &PlannedPart| match *part {
                PlannedPart::Lanes { direction, .. } if self.among => direction != port,
                // The direction that ends at this port.
                part => part == lanes(directions - 1 - port, queue % pairs),
            };
            // If there is a lane and a shared queue, there are at least two workers.
            let least = (0..count).min_by_key(|&worker| {
                let parts = &workers[worker];
                (parts.iter().any(feeds), parts.len())
            });
            workers[least.unwrap_or(0)].push(PlannedPart::Tx { port, queue });
        }
        workers
    }
}
