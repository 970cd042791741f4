//! What a world consists of: topology, policies, load and faults, drawn from bytes.

use super::decisions::Decisions;
use super::traffic::{Flow, Kind, Lie};
use crate::rig::Preemptions;
use crate::{Hardware, machine, machine_with_siblings};
use packtrain::driver::{Coalesce, Features, Fit, PortConfig, RxBuffers, TxMemory};
use packtrain::engine::Settings;
use packtrain::limits::TX_RING_PACKETS;
use packtrain::policy::dispatch::Dispatch;
use packtrain::policy::gro::Flush;
use packtrain::policy::idle::Idle;
use packtrain::policy::moderation::Moderation;
use packtrain::policy::placement::Placement;
use packtrain::policy::priority::Priority;
use packtrain::port::sim::{CompletionDelay, Interrupts, SimConfig};
use packtrain::port::wrap::FaultOptions;
use packtrain_offload::offload::LinkType;
use std::time::Duration;

/// What joins the sessions of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A host sends to another one.
    Host,
    /// A host sends to another one through a forwarder.
    Forward,
    /// As `Forward`, and threads of the forwarder send beside it.
    Both,
    /// A host sends to two other ones through a bridge of three ports. The bridge has learned no
    /// address but that of the sender, so each of them receives each packet.
    Bridge,
}

/// What the link to the first of the two hosts behind a bridge does. The other one is to receive
/// about as much as beside a link that takes all packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Neighbour {
    /// It takes all packets: not drawn, but what the others are compared with.
    Takes,
    /// It takes no packet until all others have arrived.
    Stuck,
    /// It takes a few thousand packets a second.
    Slow,
}

/// The faults that a world may have. Each world has some of them (swarm testing).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A received packet is reported as bad.
    BadDescriptor,
    /// Completions are lost.
    LostCompletions,
    /// Completion interrupts are lost.
    LostInterrupts,
    /// A TX queue hangs until it is reset.
    Hang,
    /// The link goes down and up again.
    Link,
    /// An RX queue is paused, and resumed later.
    PauseRx,
    /// A TX queue is paused, and resumed later.
    PauseTx,
    /// A TX queue is reset.
    Reset,
    /// Another thread takes the memory of a session, and gives it back later.
    Memory,
    /// Another thread uses a CPU.
    Cpu,
    /// Frames are lost on a wire.
    Loss,
    /// Frames arrive twice.
    Duplicate,
    /// A bit of a frame is flipped.
    Corrupt,
    /// Frames are overtaken by later ones.
    Reorder,
    /// Frames arrive late.
    Delay,
    /// A receiver without buffers loses frames instead of pausing the sender.
    Overrun,
    /// A device refuses legal packets.
    Refuse,
    /// Completions are late and out of order.
    LateCompletions,
    /// A producer is preempted in the middle of a send.
    Preempt,
    /// A received packet is reported with a length of 0.
    Truncated,
    /// A received packet is reported with more bytes than its buffer has.
    TooLong,
    /// Completions are late.
    DelayedCompletions,
    /// Completions are reported twice.
    RepeatedCompletions,
    /// Completion interrupts are late.
    LateInterrupts,
    /// Interrupts without a cause.
    SpuriousInterrupts,
    /// The TX queues of a device take no packet.
    Full,
    /// An application describes packets wrongly.
    Malformed,
    /// A device is removed for good.
    Remove,
}

impl Fault {
    /// Each fault in order, its name, and whether it happens at a time. The others go on until the
    /// faults stop.
    const ROWS: [(Self, &'static str, bool); 28] = [
        (Self::BadDescriptor, "bad_descriptor", true),
        (Self::LostCompletions, "lost_completion", true),
        (Self::LostInterrupts, "lost_interrupt", true),
        (Self::Hang, "hang", true),
        (Self::Link, "link", true),
        (Self::PauseRx, "pause_rx", true),
        (Self::PauseTx, "pause_tx", true),
        (Self::Reset, "reset", true),
        (Self::Memory, "memory", true),
        (Self::Cpu, "cpu", true),
        (Self::Loss, "lost_frame", false),
        (Self::Duplicate, "duplicate_frame", false),
        (Self::Corrupt, "corrupt_frame", false),
        (Self::Reorder, "reordered_frame", false),
        (Self::Delay, "late_frame", false),
        (Self::Overrun, "overrun", false),
        (Self::Refuse, "refused", false),
        (Self::LateCompletions, "late_completion", false),
        (Self::Preempt, "preempted", false),
        (Self::Truncated, "truncated_descriptor", true),
        (Self::TooLong, "too_long_descriptor", true),
        (Self::DelayedCompletions, "delayed_completion", true),
        (Self::RepeatedCompletions, "repeated_completion", true),
        (Self::LateInterrupts, "late_interrupt", true),
        (Self::SpuriousInterrupts, "spurious_interrupt", true),
        (Self::Full, "full", true),
        (Self::Malformed, "malformed", false),
        (Self::Remove, "removed", true),
    ];

    pub(super) fn all() -> impl Iterator<Item = Self> {
        Self::ROWS.into_iter().map(|(fault, ..)| fault)
    }

    fn timed() -> impl Iterator<Item = Self> {
        let timed = Self::ROWS.into_iter().filter(|&(_, _, is_timed)| is_timed);
        timed.map(|(fault, ..)| fault)
    }

    pub(super) const fn name(self) -> &'static str {
        Self::ROWS[self as usize].1
    }
}

// The last fault has the last row.
const _: () = assert!(Fault::Remove as usize + 1 == Fault::ROWS.len());

/// The faults of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Swarm(u32);

impl Swarm {
    pub(super) const fn has(self, fault: Fault) -> bool {
        self.0 & 1 << fault as u32 != 0
    }
}

/// A fault at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) fault: Fault,
    /// Microseconds after the start of the load.
    pub(super) at: u32,
    /// How long it lasts, if it does.
    pub(super) lasts: Duration,
    /// The link where it happens, from the sending host on.
    pub(super) link: usize,
    /// A queue, a number of packets, a number of frames that are left, or an end of the link.
    pub(super) amount: u32,
}

impl Event {
    /// The session whose device is removed.
    pub(super) fn removes(&self) -> Option<usize> {
        let ends = [sender(self.link).0, receiver(self.link)];
        let end = ends[self.amount as usize % 2];
        (self.fault == Fault::Remove).then_some(end)
    }
}

/// The session that sends to a link, and its port there. What has more than one link is second.
pub(super) const fn sender(link: usize) -> (usize, usize) {
    (if link > 0 { 1 } else { 0 }, link)
}

/// The session that receives from a link, by its port 0.
pub(super) const fn receiver(link: usize) -> usize {
    link + 1
}

/// One end of a link.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) sim: SimConfig,
    pub(super) port: PortConfig,
    /// What happens to frames that arrive here.
    pub(super) faults: FaultOptions,
}

/// A link and its two ends: the frames go from the first one to the second one.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) from: End,
    pub(super) to: End,
}

/// A world.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) shape: Shape,
    /// Of a bridge without other faults.
    pub(super) neighbour: Option<Neighbour>,
    pub(super) swarm: Swarm,
    pub(super) hardware: Hardware,
    pub(super) queues: usize,
    /// Of the order of simultaneous events, and of everything else that is drawn while it runs.
    pub(super) seed: u64,
    pub(super) settings: Settings,
    /// All sessions use one arena.
    pub(super) one_arena: bool,
    pub(super) links: Vec<Link>,
    pub(super) flows: Vec<Flow>,
    pub(super) events: Vec<Event>,
    pub(super) preemptions: Option<Preemptions>,
    /// The bytes that were drawn.
    pub(super) used: usize,
}

/// All faults.
const MASK: u32 = (1 << Fault::ROWS.len()) - 1;

/// Wire packets of a flow, about.
const FLOW_UNITS: usize = 4_000;

/// What a device does that sends and receives packets of any size.
const LARGE: Features = Features::CSUM.union(Features::TSO).union(Features::USO);

const fn micros(us: u64) -> Duration {
    Duration::from_micros(us)
}

impl Scene {
    /// Whether packets of a flow are longer than the MTU where they enter a link. No MTU is near
    /// the length of a packet, so headers and tags make no difference.
    pub(super) fn is_too_long(&self, flow: &Flow, link: usize) -> bool {
        let mtu = self.links[link].from.port.mtu;
        mtu.is_some_and(|mtu| flow.unit > mtu as usize)
    }

    /// Whether packets of a flow are short enough for all links on their way to the session at its
    /// end.
    pub(super) fn fits(&self, flow: usize, sink: usize) -> bool {
        let flow = &self.flows[flow];
        // The last link is that of the session at the end.
        let first = if flow.from_forwarder { None } else { Some(0) };
        let mut links = first.into_iter().chain([sink - 1]);
        !links.any(|link| self.is_too_long(flow, link))
    }

    /// The sessions at the ends of the ways.
    pub(super) fn sinks(&self) -> std::ops::RangeInclusive<usize> {
        let first = if self.links.len() > 1 { 2 } else { 1 };
        first..=self.links.len()
    }

    /// Draws a scene.
    pub(super) fn draw(bytes: &[u8]) -> Self {
        let mut d = Decisions::new(bytes);
        // Half of all worlds have few faults.
        let (one, other) = (d.number(0..=MASK), d.number(0..=MASK));
        let swarm = Swarm(match d.flag() {
            true => one,
            false => one & other & one.rotate_left(7) & MASK,
        });
        let shape = d.choose(&[Shape::Host, Shape::Forward, Shape::Both, Shape::Bridge]);
        // Such a world costs as much as fifty others.
        let mut neighbours = [None; 8];
        neighbours[1..3].copy_from_slice(&[Some(Neighbour::Stuck), Some(Neighbour::Slow)]);
        let neighbour = d.choose_if(shape == Shape::Bridge, &neighbours);
        let swarm = match neighbour {
            None => swarm,
            Some(_) => Swarm::default(),
        };
        let cpus: usize = d.choose(&[1, 2, 4, 8, 3]);
        let hardware = match cpus.is_multiple_of(2) && d.flag() {
            true => machine_with_siblings(cpus / 2),
            false => machine(cpus),
        };
        let queues = d.choose(&[1, 2, 4, 3]);
        let seed = u64::from(d.number(0..=0xffff));
        let settings = settings(&mut d);
        // Threads that poll and share a CPU lose packets while another one runs, whatever the
        // neighbour does. Each has its own here.
        let hardware = match neighbour.is_some() && settings.idle == Idle::Poll {
            true => machine(32),
            false => hardware,
        };
        let one_arena = d.flag();
        let links = match shape {
            Shape::Host => 1,
            Shape::Forward | Shape::Both => 2,
            Shape::Bridge => 3,
        };
        let mut links: Vec<_> = (0..links)
            .map(|_| link(&mut d, swarm, queues, one_arena))
            .collect();
        // A session refuses ports of unlike types, so all links have the same one.
        let link_types = [LinkType::Ethernet, LinkType::RawIp, LinkType::Ipoib];
        let link_type = d.choose_if(shape != Shape::Bridge, &link_types);
        for end in links.iter_mut().flat_map(|it| [&mut it.from, &mut it.to]) {
            end.sim.link = link_type;
        }
        // A second flipped bit may make the checksum right again.
        for link in links.iter_mut().skip(1) {
            link.to.faults.corrupt = 0.0;
        }
        let flows = (0..d.index(1..=6)).map(|_| flow(&mut d, link_type, swarm, shape, queues));
        let mut flows: Vec<_> = flows.collect();
        if let Some(neighbour) = neighbour {
            for link in &mut links {
                (link.from.sim.rate, link.from.port.mtu) = (None, None);
                // Frames that wait elsewhere, too, cannot be merged in place.
                link.from.port.fit = Fit::Defrag;
                (link.from.sim.tx, link.to.sim.rx) = (LARGE, LARGE);
                link.to.sim.rx_ring = link.to.sim.rx_ring.max(512);
            }
            links[1].from.sim.rate = (neighbour == Neighbour::Slow).then_some(4_000);
            // More large packets than fit its ring, which would take all frames of the bridge.
            links[0].to.port.rx_buffers = Some(RxBuffers::Pieces { bytes: 512 });
            let flow = &mut flows[0];
            (flow.kind, flow.unit, flow.units, flow.partial) = (Kind::Udp4, 1448, 40, true);
            (flow.burst, flow.bursts) = (16, TX_RING_PACKETS as u32 / 12);
            // At rates that the host with the other link takes.
            for flow in &mut flows {
                flow.pace = flow.pace.max(micros(1_000));
            }
        }
        let timed = Fault::timed().filter(|&fault| swarm.has(fault));
        let timed: Vec<_> = timed.collect();
        let events = match timed.is_empty() {
            true => 0,
            false => d.index(1..=6),
        };
        let events = (0..events).map(|_| {
            let fault = d.choose(&timed);
            // Few interrupts come, and none after the load: the devices wait for them.
            let latest = if of_interrupts(fault) { 2_000 } else { 20_000 };
            Event {
                fault,
                at: d.number(0..=latest),
                lasts: micros(d.choose(&[50, 500, 3_000, 12_000])),
                link: d.index(0..=links.len() - 1),
                amount: d.number(0..=40),
            }
        });
        let events = events.collect();
        let preemptions = swarm.has(Fault::Preempt).then(|| Preemptions {
            one_in: d.choose(&[2, 1, 8, 32]),
            longest: micros(d.choose(&[20, 200, 2_000])),
        });
        Self {
            shape,
            neighbour,
            swarm,
            hardware,
            queues,
            seed,
            settings,
            one_arena,
            links,
            flows,
            events,
            preemptions,
            used: bytes.len() - d.left(),
        }
    }
}

/// Whether the fault is one of an interrupt that a device raises.
const fn of_interrupts(fault: Fault) -> bool {
    matches!(fault, Fault::LostInterrupts | Fault::LateInterrupts)
}

fn settings(d: &mut Decisions<'_>) -> Settings {
    let dispatch = d.choose(&[
        Dispatch::Direct,
        Dispatch::Deferred,
        Dispatch::Adaptive,
        Dispatch::Abdicate,
        Dispatch::Threshold(8),
        Dispatch::Threshold(64),
    ]);
    Settings {
        dispatch,
        moderation: d.choose(&[
            Moderation::Off,
            Moderation::Adaptive,
            Moderation::Fixed {
                usecs: 50,
                frames: 16,
            },
        ]),
        idle: d.choose(&[Idle::Halt, Idle::Adaptive, Idle::Poll]),
        placement: d.choose(&[Placement::None, Placement::Auto]),
        priority: d.choose(&[Priority::None, Priority::Auto]),
    }
}

fn link(d: &mut Decisions<'_>, swarm: Swarm, queues: usize, one_arena: bool) -> Link {
    let large = LARGE;
    let paced = d.flag();
    let late = swarm.has(Fault::LateCompletions) && !paced;
    // A TX queue waits for an interrupt where its device is slower than the load.
    let slow = Fault::all().any(|fault| of_interrupts(fault) && swarm.has(fault));
    let mut from = SimConfig {
        queues,
        tx_ring: d.choose(&[512, 64, 16, 1024]),
        rx_ring: 64,
        segments: d.choose(&[40, 8, 2, 3]),
        gso_segments: d.choose(&[40, 8, 17]),
        tx: d.choose(&[large, Features::NONE, Features::CSUM, large])
            | d.choose(&[Features::NONE, Features::VLAN]),
        memory: TxMemory::Any,
        contiguous_headers: d.flag(),
        delay: d.choose_if(
            late,
            &[
                CompletionDelay::None,
                CompletionDelay::Reclaims(2),
                CompletionDelay::Flushes(2),
                CompletionDelay::Packets(3),
            ],
        ),
        rate: match (paced, slow) {
            (false, _) => None,
            (true, false) => d.choose(&[None, Some(1_000_000), Some(100_000), Some(30_000)]),
            (true, true) => d.choose(&[Some(100_000), Some(30_000)]),
        },
        interrupts: d.choose(&[Interrupts::Counted, Interrupts::Each]),
        reorder: late && d.flag(),
        refuse: d.choose_if(
            swarm.has(Fault::Refuse),
            &[Features::NONE, Features::TSO, Features::USO, Features::CSUM],
        ),
        ..SimConfig::default()
    };
    let mut from_port = port(d, queues);
    from_port.mtu = d.choose(&[None, None, None, None, Some(1_200), Some(700)]);
    if d.choose(&[false, false, true]) {
        // A GSO packet takes up to 40 small frames.
        from.memory = TxMemory::SmallFrames;
        (from.segments, from.gso_segments) = (40, 40);
        (from_port.segments, from_port.fit) = (None, Fit::Defrag);
        // A packet may use a twelfth of a ring.
        from.tx_ring = from.tx_ring.max(512);
    }
    let mut to = SimConfig {
        queues,
        tx_ring: 64,
        rx_ring: d.choose(&[512, 64, 16, 1024]),
        rx_shares: one_arena && d.flag(),
        rx: d.choose(&[Features::NONE, large, Features::CSUM])
            | d.choose(&[Features::NONE, Features::VLAN]),
        flow_control: !(swarm.has(Fault::Overrun) && d.flag()),
        ..SimConfig::default()
    };
    if to.rx.contains(Features::TSO4) {
        // The longest packet takes 128 of the smallest pieces.
        to.rx_ring = to.rx_ring.max(512);
    }
    Link {
        from: End {
            sim: from,
            port: from_port,
            faults: FaultOptions::default(),
        },
        to: End {
            sim: to,
            port: port(d, queues),
            faults: faults(d, swarm),
        },
    }
}

fn port(d: &mut Decisions<'_>, queues: usize) -> PortConfig {
    let coalesce = d.choose(&[
        Coalesce::Auto,
        Coalesce::Off,
        Coalesce::On,
        Coalesce::Hash,
        Coalesce::Sorted,
        Coalesce::Stream,
        Coalesce::StreamHash,
        Coalesce::StreamSorted,
    ]);
    let mut port = PortConfig {
        queues: Some(queues),
        segments: d.choose(&[None, Some(2), Some(4), Some(9)]),
        segment_headroom: d.choose(&[1, 0, 2]),
        fit: d.choose(&[Fit::Defrag, Fit::Defrag, Fit::Defrag, Fit::Collapse]),
        rx_buffers: d.choose(&[
            None,
            Some(RxBuffers::Whole),
            Some(RxBuffers::PIECES),
            Some(RxBuffers::Pieces { bytes: 512 }),
        ]),
        coalesce,
        ..PortConfig::default()
    };
    if d.flag() {
        port.gro.flows = d.choose(&[None, Some(1), Some(4)]);
        port.gro.bytes = d.choose(&[None, Some(4_000), Some(20_000)]);
        port.gro.packets = d.choose(&[None, Some(1), Some(8), Some(64)]);
        port.gro.inactive = d.flag();
        port.gro.flush = d.choose(&[Flush::Off, Flush::Usecs(100), Flush::Packets(16)]);
        port.gro.rx_pause = d.choose(&[None, Some(8), Some(100)]);
    }
    port.work.shared = d.flag();
    port
}

fn faults(d: &mut Decisions<'_>, swarm: Swarm) -> FaultOptions {
    let mut chance = |fault: Fault| match swarm.has(fault) {
        true => d.choose(&[0.05, 0.0, 0.3]),
        false => 0.0,
    };
    let options = FaultOptions {
        drop: chance(Fault::Loss),
        duplicate: chance(Fault::Duplicate),
        corrupt: chance(Fault::Corrupt),
        delay: chance(Fault::Delay),
        reorder: chance(Fault::Reorder),
        ..FaultOptions::default()
    };
    FaultOptions {
        seed: u64::from(d.number(0..=255)),
        delay_time: micros(d.choose(&[100, 1_000])),
        reorder_by: d.number(1..=3),
        reorder_time: micros(500),
        ..options
    }
}

fn flow(d: &mut Decisions<'_>, link: LinkType, swarm: Swarm, shape: Shape, queues: usize) -> Flow {
    let mut kind = d.choose(&[
        Kind::Short,
        Kind::Tcp4,
        Kind::Udp4,
        Kind::Tcp6,
        Kind::Udp6,
        Kind::Ack,
    ]);
    if link == LinkType::RawIp && kind == Kind::Short {
        kind = Kind::Tcp4;
    }
    let has_tags = link == LinkType::Ethernet;
    let unit = match kind {
        Kind::Short => 46,
        Kind::Ack => 0,
        _ => d.choose(&[1448, 512, 100, 1_000]),
    };
    let units = match kind {
        Kind::Short | Kind::Ack => 1,
        _ => d.choose(&[1, 1, 2, 8, 24, 40]),
    };
    let burst = d.choose(&[1, 4, 16, 64]);
    // A slow device needs less than a second for them.
    let most = (FLOW_UNITS / (units * burst)).max(1) as u32;
    let lies = swarm.has(Fault::Malformed);
    let lie = d.index(0..=if lies { Lie::ALL.len() } else { 0 });
    let has_ports = !matches!(kind, Kind::Short | Kind::Ack);
    let oversize = lies && units == 1 && has_ports && d.flag();
    Flow {
        kind,
        link,
        unit,
        units,
        pieces: d.choose(&[1, 2, 3, 5, 12]),
        partial: units > 1 || oversize || d.flag(),
        oversize,
        lie: lie.checked_sub(1).map(|lie| Lie::ALL[lie]),
        tags: d.choose_if(has_tags, &[0, 1, 2, 0]),
        beside: d.flag(),
        burst,
        bursts: d.number(1..=40).min(most),
        pace: micros(d.choose(&[0, 5, 50, 500])),
        queue: d.index(0..=queues - 1),
        from_forwarder: shape == Shape::Both && d.flag(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::decisions::bytes_of;
    use std::collections::HashSet;

    #[test]
    fn the_smallest_world_is_plain() {
        let scene = Scene::draw(&[]);
        assert_eq!((scene.shape, scene.queues), (Shape::Host, 1));
        assert_eq!((scene.flows.len(), scene.events.len()), (1, 0));
        assert_eq!(scene.swarm, Swarm::default());
    }

    #[test]
    fn frames_have_no_tag_one_or_two_in_the_bytes_or_beside() {
        let scenes = (0..100).map(|number| Scene::draw(&bytes_of(1, number)));
        let flows = scenes.flat_map(|scene| scene.flows);
        let seen: HashSet<_> = flows.map(|flow| (flow.tags, flow.beside)).collect();
        assert_eq!(seen.len(), 6);
    }

    /// Bytes that are left over could be shrunk away, and none is missing.
    #[test]
    fn a_world_uses_fewer_bytes_than_it_has() {
        for number in 0..200 {
            let bytes = bytes_of(1, number);
            let used = Scene::draw(&bytes).used;
            assert!((50..400).contains(&used), "{used}");
        }
    }

    #[test]
    fn each_fault_has_a_name_and_a_place_of_its_own() {
        let names: HashSet<_> = Fault::all().map(Fault::name).collect();
        assert_eq!(names.len(), Fault::ROWS.len());
        for (place, fault) in Fault::all().enumerate() {
            assert_eq!(fault as usize, place);
        }
    }
}
