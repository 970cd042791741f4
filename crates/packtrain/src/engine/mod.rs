//! Joins two ports: builds their queues from the plan, makes the workers, keeps the ledger.

mod alarm;
mod control;
mod egress;
mod error;
mod handle;
mod handler;
mod intake;
mod interrupts;
mod lane;
mod ledger;
#[cfg(packtrain_loom)]
mod models;
mod patience;
mod pressure;
mod relief;
mod seat;
mod session;
mod settings;
mod shell;
mod snapshot;
mod sys;
mod taken;
mod worker;

#[cfg(all(test, not(packtrain_loom)))]
mod tests;

pub use control::{Command, CommandError, Commanded, Control, TxQueues};
pub use egress::{Closed, EgressStats};
pub use error::RunError;
pub use handle::{SendError, TrySendError, TxFlows, TxHandle, TxHandles};
pub use handler::{Forward, Handler, Port};
pub use intake::Intake;
pub use interrupts::Interrupts;
pub use lane::TxLane;
pub use ledger::Ledger;
pub use session::{Report, Session};
pub use settings::Settings;
pub use shell::Running;
pub use snapshot::{PortSnapshot, PortStats, Snapshot, Stats, WorkerSnapshot};
pub use worker::{Lanes, Next, RxLane, Worker, WorkerCounters};

use crate::driver::{DeviceError, Driver, Input, QueuePair};
use crate::limits::{
    BURST_PACKETS_MAX, COALESCE_LARGE_MAX, COALESCE_PACKETS_MAX, RX_HELD_LARGE_MAX, SEGMENTS_MAX,
};
use crate::packet::{Arena, ArenaConfig, Ingress};
use crate::plan::{Direction, Plan};
use crate::policy::dispatch::Dispatch;
use crate::policy::moderation::Moderation;
use crate::queue::{Coalesce, RxQueue, TxQueue};
use crate::stats::{DropCounters, QueueId, RxCounters, TxCounters};
use alarm::Alarm;
use egress::Egress;
use settings::for_producers;
use std::sync::Arc;

/// The workers of two joined ports with one type of handler.
pub type Workers<A, B, H> =
    Vec<Worker<<A as Driver>::Rx, <A as Driver>::Tx, <B as Driver>::Rx, <B as Driver>::Tx, H>>;

/// What one worker owns of a port.
type PortLanes<D> = Lanes<<D as Driver>::Rx, <D as Driver>::Tx>;

/// The TX queues of a port with the rings in front of them.
type Egresses<D> = Vec<Arc<Egress<<D as Driver>::Tx>>>;

/// Two ports joined, not running yet.
pub struct Joined<A: Driver, B: Driver, H> {
    /// One for each pair of queues. Drive them yourself, or with [`Running::start`].
    pub workers: Workers<A, B, H>,
    /// What they take in.
    pub intake: Arc<Intake>,
    /// What they count.
    pub stats: Arc<Stats>,
    /// For threads of the application that send too.
    pub handles: TxHandles,
}

/// Small frames for each queue: at most 111 posted, a burst or what of it waits in front of a
/// device (128 KiB in pieces are 74, cut packets 64 headers), and 256 in the thread's cache.
const SMALL_FRAMES_PER_QUEUE: usize = 1024;
/// Large frames for each queue: 8 posted, as many in a burst, 16 in the thread's cache.
const LARGE_FRAMES_PER_QUEUE: usize = 32;
/// More descriptors in a ring than this are not counted on to be in use at once.
const RING_COUNTED_MAX: usize = 16_384;

/// Memory for the queues that `plan` opens: bounded, decided here once. 35 MiB for a queue or two,
/// and about 4 MiB for each queue (of either port) from the eighth on. For a device that holds
/// packets back ([`Capabilities::rx_held_max`](crate::driver::Capabilities::rx_held_max)) that many
/// frames more, which is 10 MiB for each queue of a port with `delay=` or `reorder=`.
///
/// Queues that need more at some moment wait for the others, or count drops (`drop.no_buffer`).
#[must_use]
pub fn arena_config(plan: &Plan) -> ArenaConfig {
    let (mut small, mut large) = (0, 0);
    for (port, attach) in plan.attach.iter().enumerate() {
        // What goes to a port is planned by the direction that ends there.
        let ring = plan.directions[1 - port].ring.unwrap_or(0);
        let ring = ring.min(RING_COUNTED_MAX);
        // As many receive buffers are posted as there are packets in flight; of GSO packets, which
        // take at least four descriptors, fewer.
        small += attach.queues * (SMALL_FRAMES_PER_QUEUE + 2 * ring);
        large += attach.queues * (LARGE_FRAMES_PER_QUEUE + ring / 4);
        let held = plan.directions[port].held.min(RING_COUNTED_MAX);
        small += attach.queues * held;
        large += attach.queues * held.min(RX_HELD_LARGE_MAX);
        if plan.directions[port].coalesce.is_some() {
            small += attach.queues * (COALESCE_PACKETS_MAX + BURST_PACKETS_MAX);
            large += attach.queues * (COALESCE_LARGE_MAX + BURST_PACKETS_MAX);
        }
    }
    let small = small.max(8192) as u32;
    ArenaConfig {
        small_frames: small,
        large_frames: large.max(256) as u32,
        // One for each posted or cached frame, one for each packet, one for a device's reference.
        lines: 2 * small + SEGMENTS_MAX as u32,
    }
}

/// Attaches two ports as `plan` says and makes their workers: worker w owns the queues i of each
/// port with i mod pairs = w, and RX queue i sends to TX queue i, so a flow keeps its order. Where
/// the plan wants it, packets from b have as many workers of their own.
/// `packets` limits what is taken in.
///
/// # Errors
///
/// A port's, when it cannot be attached as planned; the system's, when it gives no descriptor.
pub fn join<A: Driver, B: Driver, H: Handler>(
    a: &mut A,
    b: &mut B,
    plan: &Plan,
    arena: &Arena,
    packets: Option<u64>,
    handler: impl FnMut() -> H,
) -> Result<Joined<A, B, H>, DeviceError>
where
    A::Tx: 'static,
    B::Tx: 'static,
{
    join_with(a, b, plan, arena, packets, &Settings::default(), handler)
}

/// As [`join`], with queues that are worked as `settings` say. How threads wait and where they run
/// is for whoever runs the workers.
///
/// # Errors
///
/// As [`join`].
pub fn join_with<A: Driver, B: Driver, H: Handler>(
    a: &mut A,
    b: &mut B,
    plan: &Plan,
    arena: &Arena,
    packets: Option<u64>,
    settings: &Settings,
    mut handler: impl FnMut() -> H,
) -> Result<Joined<A, B, H>, DeviceError>
where
    A::Tx: 'static,
    B::Tx: 'static,
{
    let queues_a = a.attach(&plan.attach[0], arena)?;
    let queues_b = b.attach(&plan.attach[1], arena)?;
    let finite = |input, queues| if input == Input::Finite { queues } else { 0 };
    let finite = finite(a.capabilities().input, queues_a.len())
        + finite(b.capabilities().input, queues_b.len());
    let pairs = queues_a.len().min(queues_b.len());
    if pairs == 0 {
        let name = if queues_a.is_empty() {
            a.name()
        } else {
            b.name()
        };
        return Err(DeviceError::Unsupported(format!(
            "{name} was attached without a queue, so there is nothing to join: ask for at least one"
        )));
    }
    let workers = if plan.worker_per_direction() {
        2 * pairs
    } else {
        pairs
    };
    let drops: Vec<_> = (0..workers)
        .map(|_| Arc::new(DropCounters::default()))
        .collect();
    let alarms: Vec<_> = (0..workers)
        .map(|_| Alarm::new().map(Arc::new))
        .collect::<Result<_, _>>()
        .map_err(|source| DeviceError::Failed {
            action: "create a descriptor to wake a worker with",
            source,
        })?;
    // Packets from a are the first workers' affair, packets from b the last ones': the same, if
    // there is one for each pair.
    let from_b = workers - pairs;
    let to = |port: usize| Assembly {
        ingress: &plan.directions[port],
        egress: &plan.directions[1 - port],
        arena,
        drops: &drops,
        alarms: &alarms,
        work: settings.of_port(&plan.work[port]),
        pairs,
    };
    let (lanes_a, stats_a, egress_a) = to(0).build(a, queues_a, 0, [0, from_b]);
    let (lanes_b, stats_b, egress_b) = to(1).build(b, queues_b, 1, [from_b, 0]);
    let intake = Arc::new(Intake::new(packets, finite));
    let counters: Vec<_> = (0..workers)
        .map(|_| Arc::new(WorkerCounters::default()))
        .collect();
    let workers = lanes_a
        .into_iter()
        .zip(lanes_b)
        .zip(counters.iter().zip(&alarms))
        .map(|((a, b), (own, alarm))| {
            let (own, alarm) = (Arc::clone(own), Arc::clone(alarm));
            Worker::new(a, b, handler(), Arc::clone(&intake), own, alarm)
        })
        .collect();
    let stats = Arc::new(Stats {
        ports: [stats_a, stats_b],
        workers: counters,
        drops,
    });
    Ok(Joined {
        workers,
        intake,
        stats,
        handles: TxHandles::new(&egress_a, &egress_b, arena),
    })
}

/// What the queues of one port are built from.
struct Assembly<'a> {
    /// The plan for packets from the port.
    ingress: &'a Direction,
    /// The plan for packets towards the port.
    egress: &'a Direction,
    arena: &'a Arena,
    /// One block for each worker.
    drops: &'a [Arc<DropCounters>],
    /// One for each worker.
    alarms: &'a [Arc<Alarm>],
    work: (Dispatch, Moderation),
    pairs: usize,
}

impl Assembly<'_> {
    /// The lanes of a port by worker, its counters, and its TX queues. Queue i is the affair of
    /// worker i modulo pairs, counted from `first`: of RX queues, of TX queues.
    fn build<D: Driver>(
        &self,
        port: &D,
        queues: Vec<QueuePair<D>>,
        port_index: u16,
        first: [usize; 2],
    ) -> (Vec<PortLanes<D>>, PortStats, Egresses<D>) {
        let mut all = Vec::with_capacity(queues.len());
        let (dispatch, moderation) = self.work;
        let capabilities = port.capabilities();
        let mut stats = PortStats {
            name: port.name().to_owned(),
            rx: Vec::new(),
            tx: Vec::new(),
            egress: Vec::new(),
            drops: Vec::new(),
        };
        let empty = |_| Lanes {
            rx: Vec::new(),
            tx: Vec::new(),
        };
        let mut lanes: Vec<_> = self.drops.iter().map(empty).collect();
        for (index, (rx, tx)) in queues.into_iter().enumerate() {
            let [rx_worker, tx_worker] = first.map(|first| first + index % self.pairs);
            let ingress = Ingress {
                port: port_index,
                queue: index as u16,
            };
            let id = QueueId {
                port: port_index,
                queue: index as u16,
            };
            let rx_counters = Arc::new(RxCounters::new(id));
            let tx_counters = Arc::new(TxCounters::new(id));
            stats.rx.push(Arc::clone(&rx_counters));
            stats.tx.push(Arc::clone(&tx_counters));
            let stage = self.ingress.coalesce.map(|how| {
                let drops = Arc::clone(&self.drops[rx_worker]);
                Coalesce::new(&how, capabilities.link, Arc::clone(&rx_counters), drops)
            });
            let rx = RxQueue::new(
                rx,
                self.arena.clone(),
                capabilities.link,
                ingress,
                rx_counters,
                Arc::clone(&self.drops[rx_worker]),
            )
            .moderated(moderation);
            let drops = Arc::<DropCounters>::default();
            let tx = TxQueue::new(
                tx,
                self.arena.clone(),
                self.egress.tx,
                self.egress.limits,
                capabilities.tx_ring,
                Arc::clone(&tx_counters),
                Arc::clone(&drops),
            );
            let cpus = for_producers(self.drops.len());
            let alarm = Arc::clone(&self.alarms[tx_worker]);
            // A device with a ring has packets in it for a while.
            let keeps = capabilities.tx_ring.is_some();
            let egress = Egress::new(tx, Arc::clone(&drops), dispatch, cpus, alarm, keeps);
            let egress = Arc::new(egress);
            stats.egress.push(Arc::clone(egress.stats()));
            stats.drops.push(drops);
            let lane = TxLane::new(Arc::clone(&egress), tx_counters);
            all.push(egress);
            lanes[rx_worker].rx.push(RxLane::new(rx).coalescing(stage));
            lanes[tx_worker].tx.push(lane);
        }
        (lanes, stats, all)
    }
}
