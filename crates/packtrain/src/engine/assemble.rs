//! Assembles queues, parts and workers from the plan.

use super::control::{Control, QueueKind};
use super::egress::Egress;
use super::error::{RunError, StartError};
use super::fan::Fan;
use super::handler::{Handler, RxId};
use super::intake::Intake;
use super::lane::{Lane, Lanes};
use super::path::{OwnedTx, TxPath};
use super::producer::RingProducer;
use super::settings::Settings;
use super::shared::{SharedTx, Submit};
use super::shell::Shell;
use super::snapshot::{PortStats, Stats};
use super::stats::{LaneCounters, PathStats};
use super::tx_part::TxPart;
use super::worker::{Part, Worker, WorkerCounters, WorkerPart};
use crate::advice;
use crate::driver::{
    Attach, Capabilities, ChangeLog, DeviceError, Driver, PortChanges, RxBuffers, RxDescriptors,
    TxDescriptors,
};
use crate::limits::{
    BURST_PACKETS_MAX, COALESCE_LARGE_MAX, EGRESS_FRAME_BYTES_MAX, LARGE_FRAME_BYTES, PORTS_MAX,
    RX_HELD_LARGE_MAX, RX_LARGE_POSTED, SEGMENTS_MAX, SMALL_FRAME_BYTES, TX_RING_PACKETS,
};
use crate::packet::{Arena, ArenaConfig, Burst, Ingress, PortSet};
use crate::plan::{PathKind, Plan, PlannedPart};
use crate::policy::dispatch::Dispatch;
use crate::policy::idle::{Idle, Idler};
use crate::queue::ring::ProducerKind;
use crate::queue::{CoalesceStage, RxQueue, TxQueue};
use crate::runtime::{Interrupt, Runtime, Wakeup};
use crate::stats::{DropCounters, QueueId, RxCounters, TxCounters};
use crate::time::Instant;
use packtrain_offload::random::Random;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::task::Waker;

/// Small frames for each queue: at most 128 posted, 256 in the thread's cache, and those of a burst
/// or of its part that waits for the device. 128 KiB in pieces take 74 frames; segmented packets
/// take 64 for their headers.
const SMALL_FRAMES_PER_QUEUE: usize = 1024;
/// Large frames for each queue: those posted, those of a burst, and 16 in the thread's cache.
/// Frames that are never used take no memory.
const LARGE_FRAMES_PER_QUEUE: usize = RX_LARGE_POSTED + BURST_PACKETS_MAX + 16;
/// The most descriptors of a ring for which the arena has frames.
const RING_COUNTED_MAX: usize = 16_384;

/// The size of the arena for the queues that `plan` opens. A device that holds received packets
/// ([`Capabilities::rx_held_max`]) gets as many frames in addition. If packets are received in
/// pieces that are shorter than a small frame, received packets get as many times the frames.
///
/// Among several ports, no port can take the frames of the others: each place in which packets wait
/// for a port is bounded, and the arena has the frames of all places at once.
///
/// | place | bound |
/// | --- | --- |
/// | posted and received, of an RX queue | `SMALL_FRAMES_PER_QUEUE`, `LARGE_FRAMES_PER_QUEUE` |
/// | held by its driver, by its coalescer | `rx_held_max`; `packets_max`, [`COALESCE_LARGE_MAX`] |
/// | the ring of a TX queue, behind it up to the device | [`EGRESS_FRAME_BYTES_MAX`] |
/// | in flight in the device | a descriptor for each frame |
/// | clones | lines: one for each four to nine frames, in the ring and in flight |
///
/// Between two ports, a queue that needs more frames waits until other queues free some, or drops
/// packets (`drop.no_buffer`).
#[must_use]
pub fn arena_config(plan: &Plan) -> ArenaConfig {
    let (mut small, mut large, mut clones) = (0, 0, 0);
    for (port, attach) in plan.attach.iter().enumerate() {
        // The TX ring of a port is in the plan of the direction that ends there.
        let ring = plan.to(port).ring.unwrap_or(0);
        let ring = ring.min(RING_COUNTED_MAX);
        // As many receive buffers are posted as packets are in flight. A GSO packet takes at least
        // four descriptors, so fewer of these are in flight.
        let all = RxBuffers::PIECES.small_bytes();
        let pieces = all.div_ceil(attach.rx_buffers.small_bytes());
        small += attach.queues * (pieces * SMALL_FRAMES_PER_QUEUE + 2 * ring);
        large += attach.queues * (LARGE_FRAMES_PER_QUEUE + ring / 4);
        let held = plan.from(port).held.min(RING_COUNTED_MAX);
        small += attach.queues * held;
        large += attach.queues * held.min(RX_HELD_LARGE_MAX);
        if let Some(coalesce) = plan.from(port).coalesce {
            small += attach.queues * pieces * (coalesce.packets_max() + BURST_PACKETS_MAX);
            large += attach.queues * (COALESCE_LARGE_MAX + BURST_PACKETS_MAX);
        }
        if plan.among {
            // Either class may have all the bytes.
            let waiting = EGRESS_FRAME_BYTES_MAX / SMALL_FRAME_BYTES;
            small += attach.queues * waiting;
            large += attach.queues * EGRESS_FRAME_BYTES_MAX.div_ceil(LARGE_FRAME_BYTES);
            clones += attach.queues * (TX_RING_PACKETS + waiting.div_ceil(4) + ring);
            // Those of one burst that is sent to a port, before its ring has taken them.
            clones += attach.queues * BURST_PACKETS_MAX;
        }
    }
    let small = small.max(8192) as u32;
    ArenaConfig {
        small_frames: small,
        large_frames: large.max(2 * LARGE_FRAMES_PER_QUEUE) as u32,
        // One for each posted or cached frame, one for each packet, one for a device's reference.
        lines: 2 * small + (SEGMENTS_MAX + clones) as u32,
    }
}

/// The arena for `plan`, or an error with the memory that it would take.
pub(super) fn memory(plan: &Plan, available: Option<u64>) -> Result<Arena, StartError> {
    let config = arena_config(plan);
    let queues: usize = plan.attach.iter().map(|attach| attach.queues).sum();
    // Frames take memory when they are used. Under load, all small frames may be in use.
    let least = (config.small_frames as usize * SMALL_FRAME_BYTES) as u64;
    let mib = least >> 20;
    let failed = |kind, why: String| {
        StartError::system("map memory for packets")(io::Error::new(
            kind,
            format!(
                "{queues} queues take {mib} MiB at least: {why}; use fewer queues or smaller \
                 rings, or allow more memory"
            ),
        ))
    };
    if let Some(available) = available.filter(|&bytes| bytes < least) {
        let why = format!("{} MiB are available", available >> 20);
        return Err(failed(io::ErrorKind::OutOfMemory, why));
    }
    Arena::new(config).map_err(|error| {
        // If descriptors are exhausted, the error has its own advice.
        match advice::on_descriptors(error.raw_os_error()) {
            "" => failed(error.kind(), error.to_string()),
            _ => StartError::system("make a descriptor for the memory of packets")(error),
        }
    })
}

/// An assembled run.
pub(super) struct Assembled {
    pub(super) workers: Vec<Worker>,
    pub(super) intake: Arc<Intake>,
    pub(super) stats: Arc<Stats>,
    pub(super) control: Control,
    /// The shared TX queues of each port to which applications may send.
    pub(super) handles: Vec<Vec<Arc<dyn Submit>>>,
}

/// A worker under assembly.
struct Site {
    wakeup: Arc<Wakeup>,
    counters: Arc<WorkerCounters>,
    parts: Vec<WorkerPart>,
}

/// The queues of an attached port.
pub(super) struct Ends<R, T> {
    pub(super) rx: Vec<R>,
    pub(super) tx: Vec<T>,
    pub(super) capabilities: Capabilities,
}

/// The RX halves and the TX halves of a port's queues.
type Halves<D> = (Vec<<D as Driver>::Rx>, Vec<<D as Driver>::Tx>);

/// Assembles a run, direction by direction.
pub struct Assembly<'a> {
    plan: &'a Plan,
    settings: &'a Settings,
    arena: &'a Arena,
    senders: [usize; PORTS_MAX],
    /// Of the runtime.
    seed: u64,
    intake: Arc<Intake>,
    sites: Vec<Site>,
    ports: Vec<PortStats>,
    lanes: Vec<Arc<LaneCounters>>,
    drops: Vec<Arc<DropCounters>>,
    changes: Arc<ChangeLog>,
    handles: Vec<Vec<Arc<dyn Submit>>>,
}

impl<'a> Assembly<'a> {
    /// Starts the assembly for ports with these names. `packets` limits intake; `finite` is the
    /// number of RX queues whose input ends.
    pub(super) fn new(
        plan: &'a Plan,
        settings: &'a Settings,
        arena: &'a Arena,
        senders: [usize; PORTS_MAX],
        names: Vec<String>,
        (packets, finite): (Option<u64>, usize),
        runtime: &Arc<dyn Runtime>,
    ) -> Result<Self, StartError> {
        let clock = Arc::clone(runtime);
        let site = |_| {
            Ok(Site {
                wakeup: Arc::new(Wakeup::new(runtime.notifier()?)),
                counters: Arc::default(),
                parts: Vec::new(),
            })
        };
        let failed = StartError::system("create a descriptor to wake a worker with");
        let sites: io::Result<Vec<Site>> = plan.workers.iter().map(site).collect();
        let sites = sites.map_err(&failed)?;
        let over = runtime.notifier().map_err(&failed)?;
        let wakeups = sites.iter().map(|site| Arc::clone(&site.wakeup));
        Ok(Self {
            intake: Arc::new(Intake::new(packets, finite, wakeups.collect(), over)),
            handles: names.iter().map(|_| Vec::new()).collect(),
            ports: names.into_iter().map(PortStats::new).collect(),
            lanes: Vec::new(),
            drops: Vec::new(),
            changes: Arc::new(ChangeLog::new(move || clock.now())),
            plan,
            settings,
            arena,
            senders,
            seed: runtime.seed(),
            sites,
        })
    }

    /// Attaches a port as planned. Returns its RX halves and its TX halves.
    pub(super) fn attach<D: Driver>(
        &self,
        port: usize,
        driver: &mut D,
    ) -> Result<Halves<D>, StartError> {
        let how = Attach {
            seed: self.seed,
            ..self.plan.attach[port]
        };
        let changes = self.changes_of(port);
        if !changes.claim(driver.interface()) {
            // The plan refuses that, unless an interface was renamed since.
            let why = "another port is the same interface; name two different interfaces";
            let error = DeviceError::Unsupported(why.to_owned());
            return Err(StartError::Port(self.named(port, error)));
        }
        driver.record_changes(changes);
        let (asked, queues) = (how.queues, driver.attach(&how, self.arena));
        let queues = queues.and_then(|queues| match queues.len() == asked {
            false => Err(DeviceError::Unsupported(format!(
                "{} was attached with {} of {asked} queues: a driver has to return as many as it \
                 is asked for",
                driver.name(),
                queues.len()
            ))),
            true => Ok(queues),
        });
        let queues = queues.map_err(|error| StartError::Port(self.named(port, error)))?;
        Ok(queues.into_iter().unzip())
    }

    fn changes_of(&self, port: usize) -> PortChanges {
        PortChanges::new(Arc::clone(&self.changes), port as u16)
    }

    fn named(&self, port: usize, error: DeviceError) -> RunError {
        RunError {
            name: Some(self.ports[port].name.clone()),
            ..RunError::of(port, error)
        }
    }

    fn site(&self, part: PlannedPart) -> usize {
        let has = |parts: &Vec<PlannedPart>| parts.contains(&part);
        let site = self.plan.workers.iter().position(has);
        site.expect("the plan gives each part to a worker")
    }

    fn put(&mut self, site: usize, part: impl Part + 'static, queues: Vec<(QueueKind, QueueId)>) {
        self.sites[site].parts.push(WorkerPart {
            part: Box::new(part),
            queues,
        });
    }

    /// Assembles one direction: from the RX halves of its ingress port to the TX halves of its
    /// egress port.
    pub(super) fn direction<R, T, H>(
        &mut self,
        direction: usize,
        (rx, from): (Vec<R>, &Capabilities),
        (tx, to): (Vec<T>, &Capabilities),
        each: &mut impl FnMut(RxId) -> H,
    ) -> Result<(), StartError>
    where
        R: RxDescriptors + 'static,
        T: TxDescriptors + 'static,
        H: Handler + 'static,
    {
        let pairs = rx.len().min(tx.len());
        let count = tx.len();
        let mut paths = Vec::with_capacity(count);
        for (queue, device) in tx.into_iter().enumerate() {
            paths.push(self.path(direction, queue, device, to, queue % pairs)?);
        }
        let egress = self.egress(direction);
        let (sites, mut parts) = self.parts([direction, egress], pairs);
        let mut ids = vec![Vec::new(); pairs];
        for (queue, path) in paths.into_iter().enumerate() {
            let (pair, id) = (queue % pairs, queue_id(egress, queue));
            match path {
                TxPath::Owned(_) => ids[pair].push((QueueKind::Tx, id)),
                // No lane sends to this queue: only its TX worker and applications use it.
                TxPath::Shared(_) if queue >= rx.len() => continue,
                TxPath::Shared(_) | TxPath::Fan(_) => {}
            }
            parts[pair].tx.push(path);
        }
        for (queue, device) in rx.into_iter().enumerate() {
            let pair = queue % pairs;
            let lane = self.lane(direction, queue, device, from, each, sites[pair]);
            // The paths of a pair are those of the queues i with i mod pairs = pair, in order.
            let tx = (queue % count) / pairs;
            ids[pair].push((QueueKind::Rx, queue_id(direction, queue)));
            parts[pair].rx.push(Lane { tx, ..lane });
        }
        self.put_lanes(sites, parts, ids);
        Ok(())
    }

    /// The egress port of a direction.
    fn egress(&self, direction: usize) -> usize {
        let egress = self.plan.egress(direction);
        egress.expect("a direction of one or two ports has one egress")
    }

    /// The parts for the lanes of a port, without queues, and their workers.
    fn parts<R, T: TxDescriptors, H>(
        &self,
        ports: [usize; 2],
        pairs: usize,
    ) -> (Vec<usize>, Vec<Lanes<R, T, H>>) {
        let direction = ports[0];
        let lane = |pair| PlannedPart::Lanes { direction, pair };
        let sites: Vec<_> = (0..pairs).map(|pair| self.site(lane(pair))).collect();
        let parts = sites.iter().map(|&site| Lanes {
            rx: Vec::new(),
            tx: Vec::new(),
            turn: 0,
            lots: None,
            ports,
            intake: Arc::clone(&self.intake),
            counters: Arc::default(),
            waker: Waker::from(Arc::clone(&self.sites[site].wakeup)),
        });
        let parts = parts.collect();
        (sites, parts)
    }

    /// Assembles all ports of a session among several: each lane has a path to each port.
    pub(super) fn among<R, T, H>(
        &mut self,
        ends: Vec<Ends<R, T>>,
        each: &mut impl FnMut(RxId) -> H,
    ) -> Result<(), StartError>
    where
        R: RxDescriptors + 'static,
        T: TxDescriptors + 'static,
        H: Handler + 'static,
    {
        let pairs = self.plan.pairs();
        let all = ends.len();
        let (mut queues, mut receivers) = (Vec::with_capacity(all), Vec::with_capacity(all));
        let lanes: Vec<_> = ends.iter().map(|port| port.rx.len()).collect();
        for (
            port,
            Ends {
                rx,
                tx,
                capabilities,
            },
        ) in ends.into_iter().enumerate()
        {
            let (mut shared, count) = (Vec::with_capacity(tx.len()), tx.len());
            let feeding = lanes.iter().map(|lanes| lanes.div_ceil(count)).sum();
            for (queue, device) in tx.into_iter().enumerate() {
                let (tx, stats) = self.tx_queue(port, queue, device, &capabilities);
                shared.push(self.shared(tx, stats, &capabilities, Some(feeding))?);
            }
            queues.push(shared);
            receivers.push((rx, capabilities));
        }
        let mut producers = BTreeMap::new();
        for (port, (rx, capabilities)) in receivers.into_iter().enumerate() {
            // Of two ports a packet goes to the other one if its handler names none.
            let default = self.plan.egress(port);
            let default = default.map_or(PortSet::NONE, PortSet::one);
            let (sites, mut parts) = self.parts::<_, T, H>([port, port], pairs);
            let mut ids = vec![Vec::new(); pairs];
            for (queue, device) in rx.into_iter().enumerate() {
                let pair = queue % pairs;
                let lane = self.lane(port, queue, device, &capabilities, each, sites[pair]);
                let paths = self.plan.paths.iter();
                let rings = queues.iter().zip(paths).enumerate();
                let rings = rings.map(|(egress, (shared, path))| {
                    let count = shared.len();
                    let shared = Arc::clone(&shared[queue % count]);
                    // A block for each worker and queue: one for each lane and queue would be a
                    // million with 1024 ports, all of which a snapshot reads.
                    let of_worker = producers
                        .entry((sites[pair], egress, queue % count))
                        .or_insert_with(|| shared.enter(ProducerKind::Lane));
                    RingProducer::new(shared, path.by_packet, Some(of_worker))
                });
                let rings = rings.collect();
                let part = &mut parts[pair];
                part.lots
                    .get_or_insert(Random::new((port as u64) << 32 | pair as u64));
                let counters = Arc::clone(&part.counters);
                let drops = Arc::clone(lane.queue.drops());
                let waits = capabilities.rx_waits;
                let fan = Fan::new(port, rings, default, waits, counters, drops);
                ids[pair].push((QueueKind::Rx, queue_id(port, queue)));
                let tx = part.tx.len();
                part.rx.push(Lane { tx, ..lane });
                part.tx.push(TxPath::Fan(Box::new(fan)));
            }
            self.put_lanes(sites, parts, ids);
        }
        Ok(())
    }

    fn put_lanes<R, T, H>(
        &mut self,
        sites: Vec<usize>,
        parts: Vec<Lanes<R, T, H>>,
        ids: Vec<Vec<(QueueKind, QueueId)>>,
    ) where
        R: RxDescriptors + 'static,
        T: TxDescriptors + 'static,
        H: Handler + 'static,
    {
        for ((site, part), ids) in sites.into_iter().zip(parts).zip(ids) {
            self.lanes.push(Arc::clone(&part.counters));
            self.put(site, part, ids);
        }
    }

    /// Assembles a TX queue of the direction's egress port. Returns the path of the lanes of `pair`
    /// to it. The TX worker of a shared queue gets a part.
    fn path<T: TxDescriptors + 'static>(
        &mut self,
        direction: usize,
        queue: usize,
        device: T,
        capabilities: &Capabilities,
        pair: usize,
    ) -> Result<TxPath<T>, StartError> {
        let port = self.egress(direction);
        let (tx, stats) = self.tx_queue(port, queue, device, capabilities);
        let path = &self.plan.paths[port];
        if path.kind == PathKind::Owned {
            let site = self.site(PlannedPart::Lanes { direction, pair });
            let interrupt = Interrupt::new(&self.sites[site].wakeup);
            let egress = Egress::new(tx, stats, is_asynchronous(capabilities));
            return Ok(TxPath::Owned(OwnedTx::new(egress, interrupt)));
        }
        let shared = self.shared(tx, stats, capabilities, None)?;
        let producer = RingProducer::new(shared, path.by_packet, None);
        Ok(TxPath::Shared(producer))
    }

    /// A TX queue of a port, and its published state.
    fn tx_queue<T: TxDescriptors>(
        &mut self,
        port: usize,
        queue: usize,
        device: T,
        capabilities: &Capabilities,
    ) -> (TxQueue<T>, Arc<PathStats>) {
        let counters = Arc::new(TxCounters::new(queue_id(port, queue)));
        let (drops, stats) = (Arc::<DropCounters>::default(), Arc::<PathStats>::default());
        let ports = &mut self.ports[port];
        ports.tx.push(Arc::clone(&counters));
        ports.drops.push(Arc::clone(&drops));
        ports.paths.push(Arc::clone(&stats));
        let planned = self.plan.to(port);
        let tx = TxQueue::new(
            device,
            self.arena.clone(),
            planned.tx,
            planned.limits,
            capabilities.tx_ring,
            counters,
            drops,
        );
        let tx = tx.following(self.changes_of(port), planned.allowed);
        (tx, stats)
    }

    /// Puts a ring in front of a TX queue, which so many lanes of several ports feed, and gives its
    /// TX worker a part.
    fn shared<T: TxDescriptors + 'static>(
        &mut self,
        mut tx: TxQueue<T>,
        stats: Arc<PathStats>,
        capabilities: &Capabilities,
        among: Option<usize>,
    ) -> Result<Arc<SharedTx<T>>, StartError> {
        let id = tx.counters().id;
        let (port, queue) = (usize::from(id.port), usize::from(id.queue));
        let site = self.site(PlannedPart::Tx { port, queue });
        let Site {
            wakeup, counters, ..
        } = &self.sites[site];
        let interrupt = Interrupt::new(wakeup);
        tx.set_interrupt(Waker::from(Arc::clone(&interrupt)));
        // Duplicated at the start, so no running session ends at a stall for lack of a descriptor.
        let device = tx
            .device_mut()
            .wake()
            .map(|(fd, _)| fd.try_clone_to_owned());
        let failed = |source| {
            let action = "watch a device";
            StartError::Port(self.named(port, DeviceError::Failed { action, source }))
        };
        let device = device.transpose().map_err(failed)?;
        let (wakeup, drained) = (Arc::clone(wakeup), Arc::clone(&counters.drained));
        let drops = Arc::clone(&self.ports[port].drops[queue]);
        let shared = SharedTx::new(
            tx,
            drops,
            self.plan.paths[port].adapted,
            TX_RING_PACKETS,
            is_asynchronous(capabilities),
            wakeup,
            stats,
        );
        let shared = Arc::new(match among {
            Some(lanes) => shared.among(lanes),
            None => shared,
        });
        if self.senders[port] > 0 {
            self.handles[port].push(Arc::clone(&shared) as Arc<dyn Submit>);
        }
        let beside_lanes = receives(&self.plan.workers[site]);
        let part = TxPart::new(
            Arc::clone(&shared),
            interrupt,
            device,
            beside_lanes,
            drained,
        );
        self.put(site, part, vec![(QueueKind::Tx, id)]);
        Ok(shared)
    }

    fn lane<R: RxDescriptors, H: Handler>(
        &mut self,
        port: usize,
        queue: usize,
        device: R,
        capabilities: &Capabilities,
        each: &mut impl FnMut(RxId) -> H,
        site: usize,
    ) -> Lane<R, H> {
        let counters = Arc::new(RxCounters::new(queue_id(port, queue)));
        let drops = Arc::<DropCounters>::default();
        self.ports[port].rx.push(Arc::clone(&counters));
        self.drops.push(Arc::clone(&drops));
        let (_, moderation) = self.settings.of_port(&self.plan.work[port]);
        let coalesce = self.plan.from(port).coalesce.map(|how| {
            let (counters, drops) = (Arc::clone(&counters), Arc::clone(&drops));
            CoalesceStage::new(&how, capabilities.link, counters, drops)
        });
        let ingress = Ingress {
            port: port as u16,
            queue: queue as u16,
        };
        let arena = self.arena.clone();
        let rx = RxQueue::new(device, arena, capabilities.link, ingress, counters, drops);
        let mut rx = rx.moderated(moderation);
        let mut directions = self.plan.directions.iter();
        let reads_headers = directions.any(|direction| direction.limits.contiguous_headers);
        if !H::PARSED && !reads_headers {
            rx = rx.unparsed();
        }
        let interrupt = Interrupt::new(&self.sites[site].wakeup);
        rx.set_interrupt(Waker::from(Arc::clone(&interrupt)));
        let id = RxId { port, queue };
        Lane {
            id,
            queue: rx,
            coalesce,
            handler: each(id),
            burst: Burst::new(),
            tx: 0,
            interrupt,
            finished: false,
            paused: false,
            turn_at: Instant::default(),
        }
    }

    /// The workers, each with its parts.
    pub(super) fn finish(self) -> Assembled {
        let (plan, idle) = (self.plan, self.settings.idle);
        let dispatch = |part: &PlannedPart| match part {
            PlannedPart::Lanes { .. } => None,
            PlannedPart::Tx { port, .. } => Some(plan.paths[*port].adapted),
        };
        let drains = |parts: &&Vec<PlannedPart>| {
            let mut modes = parts.iter().filter_map(dispatch);
            modes.any(|mode| !matches!(mode, Dispatch::Direct | Dispatch::Adaptive))
        };
        let workers = self.sites.into_iter().zip(&plan.workers);
        let workers: Vec<_> = workers
            .map(|(site, parts)| {
                // A worker that drains only after producers have abdicated or stalled must not take
                // cache lines from them by polling.
                let idle = match idle {
                    _ if receives(parts) || drains(&parts) => idle,
                    Idle::Halt => Idle::Halt,
                    _ if parts
                        .iter()
                        .filter_map(dispatch)
                        .all(|mode| mode == Dispatch::Direct) =>
                    {
                        Idle::Halt
                    }
                    _ => Idle::Adaptive,
                };
                let shell = Shell::new(Idler::new(idle));
                let intake = Arc::clone(&self.intake);
                // `among` assembles TX queues before lanes.
                let lanes = |part: &&PlannedPart| matches!(part, PlannedPart::Lanes { .. });
                let rivals = match plan.among {
                    true => parts.iter().filter(lanes).count(),
                    false => 0,
                };
                Worker::new(site.parts, site.wakeup, shell, intake, site.counters)
                    .with_rivals(rivals)
            })
            .collect();
        let stats = Stats {
            ports: self.ports,
            workers: workers
                .iter()
                .map(|worker| Arc::clone(worker.counters()))
                .collect(),
            lanes: self.lanes,
            drops: self.drops,
            changes: self.changes,
        };
        Assembled {
            control: Control::new(workers.iter().map(Worker::desk)),
            workers,
            intake: self.intake,
            stats: Arc::new(stats),
            handles: self.handles,
        }
    }
}

/// Whether a device completes packets later: one with a ring does.
const fn is_asynchronous(capabilities: &Capabilities) -> bool {
    capabilities.tx_ring.is_some()
}

/// Whether a worker with these parts has lanes.
fn receives(parts: &[PlannedPart]) -> bool {
    let is_lanes = |part: &PlannedPart| matches!(part, PlannedPart::Lanes { .. });
    parts.iter().any(is_lanes)
}

const fn queue_id(port: usize, queue: usize) -> QueueId {
    QueueId {
        port: port as u16,
        queue: queue as u16,
    }
}
