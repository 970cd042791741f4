//! Which TX queues are owned and which are shared, and which worker has what: decided at start.

use super::Plan;
use crate::driver::Features;
use crate::policy::dispatch::Dispatch;
use std::fmt;

/// How lanes reach the TX queues of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// The RX worker that feeds a queue has it: a direct call, no ring.
    Owned,
    /// A ring with any number of producers is in front of each queue, and a TX worker drains what
    /// they leave.
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
    /// Why, in words.
    pub why: String,
}

/// What one worker has.
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

/// What the planning of paths and workers starts from, beside the ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The dispatch mode of ports that have none of their own.
    pub dispatch: Dispatch,
    /// Application threads that send to each port.
    pub senders: [usize; 2],
    /// CPUs that workers may use.
    pub cpus: usize,
}

impl Default for Demand {
    fn default() -> Self {
        Self {
            dispatch: Dispatch::default(),
            senders: [0; 2],
            cpus: 1,
        }
    }
}

impl Plan {
    /// The port that packets of a direction go to: the other one, or, with one port, the same.
    #[must_use]
    pub const fn egress(&self, direction: usize) -> usize {
        self.attach.len() - 1 - direction
    }

    /// RX queues of which each has a TX queue to send to: the smaller number of queues.
    #[must_use]
    pub fn pairs(&self) -> usize {
        let queues = self.attach.iter().map(|attach| attach.queues);
        queues.min().unwrap_or(0)
    }

    /// Whether each direction of a pair of queues has lanes of its own, since a port hands over
    /// large packets: while one of them is copied or cut, packets of the other direction do not
    /// wait. Else one worker has both, and costs less for each byte.
    #[must_use]
    pub fn worker_per_direction(&self) -> bool {
        let large = Features::TSO | Features::USO;
        let mut attached = self.attach.iter();
        attached.any(|port| !port.rx.intersection(large).is_empty())
    }

    /// The plan, with paths and workers for `demand`.
    #[must_use]
    pub fn working(mut self, demand: &Demand) -> Self {
        let ports = 0..self.attach.len();
        self.paths = ports.map(|port| self.path(port, demand)).collect();
        self.workers = self.place_parts(demand.cpus);
        self
    }

    fn path(&self, port: usize, demand: &Demand) -> Path {
        let config = &self.work[port];
        let dispatch = config.dispatch.unwrap_or(demand.dispatch);
        let senders = demand.senders[port];
        let (kind, why) = if config.shared {
            (PathKind::Shared, "tx=shared".to_owned())
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
        Path {
            kind,
            dispatch,
            why,
        }
    }

    /// The parts of each of min(parts, CPUs, at least 2) workers. A shared TX queue is never on a
    /// worker whose lanes feed it.
    fn place_parts(&self, cpus: usize) -> Vec<Vec<PlannedPart>> {
        let (pairs, directions) = (self.pairs(), self.attach.len());
        let lanes = |direction, pair| PlannedPart::Lanes { direction, pair };
        let groups: Vec<Vec<_>> = if self.worker_per_direction() {
            let all = (0..directions).flat_map(|d| (0..pairs).map(move |pair| vec![lanes(d, pair)]));
            all.collect()
        } else {
            let both = |pair| (0..directions).map(|d| lanes(d, pair)).collect();
            (0..pairs).map(both).collect()
        };
        let shared = (0..directions).filter(|&port| self.paths[port].kind == PathKind::Shared);
        let tx: Vec<_> = shared
            .flat_map(|port| (0..self.attach[port].queues).map(move |queue| (port, queue)))
            .collect();
        let count = (groups.len() + tx.len()).min(cpus.max(2)).max(1);
        let mut workers = vec![Vec::new(); count];
        let rx_workers = groups.len().min(count);
        let of = groups.len();
        for (index, group) in groups.into_iter().enumerate() {
            workers[index * rx_workers / of].extend(group);
        }
        for (port, queue) in tx {
            let direction = self.egress(port);
            let feeds = |part: &PlannedPart| *part == lanes(direction, queue % pairs);
            let free = (0..count).filter(|&worker| !workers[worker].iter().any(feeds));
            // There are two workers at least where there is a lane and a shared queue.
            let least = free.min_by_key(|&worker| workers[worker].len()).unwrap_or(0);
            workers[least].push(PlannedPart::Tx { port, queue });
        }
        workers
    }
}
