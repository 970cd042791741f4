//! The offload plan: which side does each offload between two ports, how packets reach TX queues,
//! and what each worker has. It is decided once, with the reasons in words: a pure function of what
//! the ports can do and of the requested settings.

use crate::driver::{
    Attach, Capabilities, Coalesce, Driver, Features, Fit, Input, Interface, PortConfig,
    QueueConfig, RxBuffers, TxMemory,
};
use crate::limits::{
    COALESCE_PACKETS, COALESCE_PACKETS_MAX, GSO_BYTES_MIN, PACKET_BYTES_MAX, PORTS_MAX, QUEUES_MAX,
    RING_FRACTION_PER_PACKET, RX_PIECE_BYTES_MIN, SEGMENTS_FRAMEWORK_MAY_ADD, SEGMENTS_MAX,
};
use crate::name::Name;
use crate::packet::Packet;
use crate::policy::gro::Gro;
use crate::policy::priority::Serves;
use packtrain_offload::coalesce::{Config, Finish, Mode, Semantics};
use packtrain_offload::offload::LinkType;
use std::fmt;

mod mtu;
mod work;

pub use mtu::Mtu;
pub use work::{Demand, Path, PathKind, PlannedPart};

use work::QueueCounts;

#[cfg(test)]
mod tests;

/// One port, as the plan sees it.
#[derive(Clone, Debug)]
pub struct Side {
    /// Its name.
    pub name: Name,
    /// [`Driver::interface`].
    pub interface: Option<Interface>,
    /// The capabilities of the device.
    pub capabilities: Capabilities,
    /// The requested settings.
    pub config: PortConfig,
}

impl Side {
    /// An open port, under its own name.
    #[must_use]
    pub fn of(port: &impl Driver, config: PortConfig) -> Self {
        Self {
            name: port.name().into(),
            interface: port.interface(),
            capabilities: port.capabilities(),
            config,
        }
    }
}

/// The side that does an offload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The egress device, or for large receive the ingress device.
    Device,
    /// packtrain.
    Software,
    /// Neither: the offload does not occur.
    NotNeeded,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Device => "device",
            Self::Software => "software",
            Self::NotNeeded => "not needed",
        })
    }
}

/// One line of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// A single feature.
    pub feature: Features,
    /// The side that does it.
    pub who: Who,
    /// Why, in words.
    pub why: String,
}

/// The form of the packets for one TX queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FitLimits {
    /// Segments of an ordinary packet; at least 1.
    pub segments_max: usize,
    /// Segments of a GSO packet; at least 1.
    pub gso_segments_max: usize,
    /// Bytes of one segment.
    pub segment_bytes_max: usize,
    /// Where segments may be.
    pub memory: TxMemory,
    /// All headers in the first segment.
    pub contiguous_headers: bool,
    /// Shorter packets are padded with zeros to this many bytes.
    pub min_packet_bytes: usize,
    /// How long a wire packet may be.
    pub mtu: Mtu,
    /// Segments by which the advertised limit is lower.
    pub headroom: usize,
    /// What is done with a packet that still has too many segments after a collapse.
    pub fit: Fit,
}

impl FitLimits {
    /// The limits of a device, lowered by `segments` if the user asked for fewer, and clipped so
    /// that one packet takes at most a twelfth of a descriptor ring, unless it takes one descriptor
    /// of it. Headroom and fit are the defaults.
    #[must_use]
    pub fn new(capabilities: &Capabilities, segments: Option<usize>) -> Self {
        let share = capabilities
            .tx_ring
            .filter(|_| !capabilities.tx_tables)
            .map_or(SEGMENTS_MAX, |n| n / RING_FRACTION_PER_PACKET);
        let bound = share
            .min(segments.unwrap_or(SEGMENTS_MAX))
            .min(SEGMENTS_MAX);
        Self {
            segments_max: capabilities.tx_segments_max.min(bound).max(1),
            gso_segments_max: capabilities.tx_gso_segments_max.min(bound).max(1),
            segment_bytes_max: capabilities.tx_segment_bytes_max.max(1),
            memory: capabilities.tx_memory,
            contiguous_headers: capabilities.contiguous_headers,
            min_packet_bytes: capabilities.min_packet_bytes,
            mtu: Mtu::new(capabilities.link, None, capabilities.mtu),
            headroom: SEGMENTS_FRAMEWORK_MAY_ADD,
            fit: Fit::Defrag,
        }
    }

    /// The number of segments to build packets with: the smaller limit less the headroom, for what
    /// the framework may add after that (a header segment in front). Without it nearly every packet
    /// built to the limit would have to be copied. At least 1.
    #[must_use]
    pub const fn advertised(&self) -> usize {
        let limit = if self.segments_max < self.gso_segments_max {
            self.segments_max
        } else {
            self.gso_segments_max
        };
        let left = limit.saturating_sub(self.headroom);
        if left == 0 { 1 } else { left }
    }
}

/// Merging in software, of what comes from each RX queue of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalescing {
    /// What may be merged.
    pub semantics: Semantics,
    /// How flows are found.
    pub mode: Mode,
    /// The kinds of packets that are merged, each as the feature that the egress needs to take the
    /// result: some of [`Features::TSO4`], `TSO6`, `USO4`, `USO6`.
    pub kinds: Features,
    /// Segments of a merged packet: the limit that the egress advertises, so that none has to be
    /// copied.
    pub segments_max: usize,
    /// How many packets are held, and for how long.
    pub gro: Gro,
}

impl Coalescing {
    /// The `coalesce=` of a port that merges like this; `auto` merges like `on`.
    #[must_use]
    pub const fn setting(&self) -> Coalesce {
        match (self.semantics, self.mode) {
            (Semantics::Stream, Mode::Hash) => Coalesce::StreamHash,
            (Semantics::Stream, Mode::Sorted) => Coalesce::StreamSorted,
            (Semantics::Stream, Mode::Auto) => Coalesce::Stream,
            (Semantics::Reversible, Mode::Hash) => Coalesce::Hash,
            (Semantics::Reversible, Mode::Sorted) => Coalesce::Sorted,
            (Semantics::Reversible, Mode::Auto) => Coalesce::On,
        }
    }

    /// The most packets that each RX queue holds, before merging: 1 to [`COALESCE_PACKETS_MAX`].
    #[must_use]
    pub const fn packets_max(&self) -> usize {
        match self.gro.packets {
            None => COALESCE_PACKETS,
            Some(0) => 1,
            Some(packets) if packets as usize > COALESCE_PACKETS_MAX => COALESCE_PACKETS_MAX,
            Some(packets) => packets as usize,
        }
    }

    /// The engine's settings, for packets that start with `link`. Checksums stay partial: the
    /// egress completes them, or software does if it finds that it has to.
    #[must_use]
    pub const fn config(&self, link: LinkType) -> Config {
        let packets = self.packets_max() as u32;
        let mut config = self.gro.limit(Config::new(self.semantics, link, packets));
        config.mode = self.mode;
        config.queue = packets;
        // A packet held is of one flow.
        if config.flows > packets {
            config.flows = packets;
        }
        config.finish = Finish::Partial;
        config
    }

    /// Memory of the table and the queue of each RX queue, in bytes; allocated at start.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.config(LinkType::Ethernet).needs().bytes::<Packet>()
    }
}

/// The plan for packets that go one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Direction {
    /// The ingress port.
    pub from: Name,
    /// The egress port.
    pub to: Name,
    /// The indices of both.
    pub ports: [usize; 2],
    /// One decision for every feature, in the order of [`Features::NAMED`].
    pub decisions: Vec<Decision>,
    /// How packtrain merges packets of this direction, if it does.
    pub coalesce: Option<Coalescing>,
    /// The features that the egress device may be given.
    pub tx: Features,
    /// Those that it may be given if it has others later
    /// ([`Change::Offloads`](crate::driver::Change::Offloads)): what `offload=` of its port allows.
    pub allowed: Features,
    /// The form of packets to the egress device.
    pub limits: FitLimits,
    /// Descriptors in each TX ring of the egress device, if it has rings.
    pub ring: Option<usize>,
    /// Packets that each RX queue of the ingress device may hold.
    pub held: usize,
}

/// The most ports of which a plan has a direction for each pair.
pub const PAIRS_PORTS_MAX: usize = 16;

/// How one port is used, two are joined, or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How each port is attached.
    pub attach: Vec<Attach>,
    /// The directions, ordered by their ingress port, then by their egress port. Of one port, or
    /// between two, there is one for each ingress port; among several ports, one for each pair.
    /// Among more than [`PAIRS_PORTS_MAX`], there are only those from each port to the next one.
    pub directions: Vec<Direction>,
    /// Whether a handler chooses the egress of each packet
    /// ([`Session::among`](crate::engine::Session::among)).
    pub among: bool,
    /// The settings of each port's queues, over those of the session.
    pub work: Vec<QueueConfig>,
    /// How packets reach the TX queues of each port.
    pub paths: Vec<Path>,
    /// The parts of each worker.
    pub workers: Vec<Vec<PlannedPart>>,
    /// The notes of the ports.
    pub notes: Vec<String>,
}

impl Plan {
    /// The port that packets from `port` go to if their handler names none: the other one, or, with
    /// one port, the same. `None` among three and more.
    #[must_use]
    pub const fn egress(&self, port: usize) -> Option<usize> {
        match self.attach.len() {
            count @ (1 | 2) => Some(count - 1 - port),
            _ => None,
        }
    }

    /// A direction that starts at `port`: the first, if there are several. What it holds and how it
    /// is merged is the same in all of them.
    ///
    /// # Panics
    ///
    /// If the plan has no such port.
    #[must_use]
    pub fn from(&self, port: usize) -> &Direction {
        self.find(port, |direction| direction.ports[0])
    }

    /// A direction that ends at `port`: the first, if there are several. The features and the form
    /// of packets to the device are the same in all of them.
    ///
    /// # Panics
    ///
    /// If the plan has no such port.
    #[must_use]
    pub fn to(&self, port: usize) -> &Direction {
        self.find(port, |direction| direction.ports[1])
    }

    fn find(&self, port: usize, end: impl Fn(&Direction) -> usize) -> &Direction {
        let mut directions = self.directions.iter();
        let found = directions.find(|direction| end(direction) == port);
        found.expect("each port of a plan begins a direction and ends one")
    }

    /// RX queues of which each has a TX queue of its own to send to: the smaller number of queues.
    #[must_use]
    pub fn pairs(&self) -> usize {
        let queues = self.attach.iter().map(|attach| attach.queues);
        queues.min().unwrap_or(0)
    }

    /// Whether each direction of a pair of queues has lanes of its own, since a port hands over
    /// large packets: while one of them is copied or cut, packets of the other direction do not
    /// wait. Else one worker has both, and costs less for each byte. Among several ports the lanes
    /// of each are always on their own.
    #[must_use]
    pub fn worker_per_direction(&self) -> bool {
        if self.among {
            return true;
        }
        let large = Features::TSO | Features::USO;
        let mut attached = self.attach.iter();
        attached.any(|port| !port.rx.intersection(large).is_empty())
    }

    /// Whose packets a worker moves, which decides its priority.
    ///
    /// # Panics
    ///
    /// If the plan has no such worker.
    #[must_use]
    pub fn serves(&self, worker: usize) -> Serves {
        let is_of_senders = |part: &PlannedPart| match *part {
            PlannedPart::Lanes { .. } => false,
            PlannedPart::Tx { port, .. } => self.paths[port].senders > 0,
        };
        match self.workers[worker].iter().all(is_of_senders) {
            true => Serves::Senders,
            false => Serves::Devices,
        }
    }

    /// The plan, with paths and workers for `demand`.
    #[must_use]
    pub fn working(mut self, demand: &Demand) -> Self {
        let ports = self.work.iter().zip(&demand.senders);
        let among = self.among;
        let paths = ports.map(|(config, &senders)| Path::new(config, demand, senders, among));
        self.paths = paths.collect();
        let queues = QueueCounts {
            counts: self.attach.iter().map(|attach| attach.queues).collect(),
            shared: self
                .paths
                .iter()
                .map(|path| path.kind == PathKind::Shared)
                .collect(),
            per_direction: self.worker_per_direction(),
            among: self.among,
        };
        self.workers = queues.place(demand.cpus);
        self
    }
}

/// Two ports cannot be joined: one sentence with what, why and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incompatible(pub String);

impl fmt::Display for Incompatible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Incompatible {}

/// Plans the joining of `a` and `b`.
///
/// # Errors
///
/// [`Incompatible`] for one interface twice, unlike link types, more queues than a port can have,
/// or pieces that do not fit a small frame.
pub fn plan(a: &Side, b: &Side) -> Result<Plan, Incompatible> {
    check_pair(a, b)?;
    plan_ports(&[a, b], false)
}

/// Plans the joining of several ports, of which a handler chooses the egress of each packet.
///
/// # Errors
///
/// As [`plan`], for each two of them, and for fewer than 2 or more than
/// [`PORTS_MAX`] ports.
pub fn plan_among(ports: &[Side]) -> Result<Plan, Incompatible> {
    if !(2..=PORTS_MAX).contains(&ports.len()) {
        return Err(Incompatible(format!(
            "a session among several ports has 2 to {PORTS_MAX} of them, not {}",
            ports.len()
        )));
    }
    for (index, a) in ports.iter().enumerate() {
        for b in &ports[index + 1..] {
            check_pair(a, b)?;
        }
    }
    plan_ports(&ports.iter().collect::<Vec<_>>(), true)
}

fn check_pair(a: &Side, b: &Side) -> Result<(), Incompatible> {
    if let (Some(of_a), Some(of_b)) = (&a.interface, &b.interface)
        && of_a.is_same(of_b)
    {
        return Err(Incompatible(format!(
            "both ports are the interface {}; name two different interfaces",
            of_a.name
        )));
    }
    let (link_a, link_b) = (a.capabilities.link, b.capabilities.link);
    if link_a != link_b {
        let (name_a, name_b) = (&a.name, &b.name);
        return Err(Incompatible(format!(
            "cannot join {name_a} ({}) and {name_b} ({}): their packets start with different \
             headers; join two ports of one link type (null:, sim: and a written pcap: take link=)",
            link_name(link_a),
            link_name(link_b),
        )));
    }
    Ok(())
}

/// Plans the use of one port, whose handler's packets go back out of it.
///
/// # Errors
///
/// [`Incompatible`] for more queues than the port can have, or pieces that do not fit a small
/// frame.
pub fn plan_one(port: &Side) -> Result<Plan, Incompatible> {
    plan_ports(&[port], false)
}

fn plan_ports(sides: &[&Side], among: bool) -> Result<Plan, Incompatible> {
    let notes = sides.iter().flat_map(|side| {
        let notes = side.capabilities.notes.iter();
        notes.map(|note| format!("{}: {note}", side.name))
    });
    let mut notes: Vec<_> = notes.collect();
    let (mut attached, mut all) = (Vec::new(), Vec::new());
    for (port, side) in sides.iter().enumerate() {
        // The ports that its packets may go to: itself, if there is no other.
        let others = (0..sides.len()).filter(|&other| other != port || sides.len() == 1);
        let others: Vec<_> = others.collect();
        let mut directions: Vec<_> = others
            .iter()
            .map(|&other| direction([side, sides[other]], [port, other]))
            .collect();
        merge_alike(&mut directions);
        let mut attach = attach(side, others.iter().map(|&other| sides[other]))?;
        let limited = directions.iter().filter_map(|direction| {
            large_bytes_max(&attach, direction).map(|bytes| (bytes, direction))
        });
        if let Some((bytes, direction)) = limited.min_by_key(|(bytes, _)| *bytes) {
            let tells = side.capabilities.limits_large;
            notes.push(limit_note(side, attach.rx_buffers, direction, bytes));
            attach.large_bytes_max = tells.then_some(bytes);
        }
        attached.push(attach);
        if sides.len() > PAIRS_PORTS_MAX {
            let next = (port + 1) % sides.len();
            directions.retain(|direction| direction.ports[1] == next);
        }
        all.extend(directions);
    }
    notes.extend(all.iter().filter_map(|way| mtu_note(way, sides)));
    let plan = Plan {
        attach: attached,
        directions: all,
        among,
        work: sides.iter().map(|side| side.config.work).collect(),
        paths: Vec::new(),
        workers: Vec::new(),
        notes,
    };
    Ok(plan.working(&Demand::default()))
}

/// The directions from one port merge alike, since a packet is merged before its egress is chosen:
/// what each egress takes, if each gains by it.
fn merge_alike(directions: &mut [Direction]) {
    let without = directions.iter().find(|one| one.coalesce.is_none());
    let mut how = directions.iter().filter_map(|one| one.coalesce);
    let merged = match without {
        Some(_) => None,
        None => how.next().map(|first| {
            how.fold(first, |all, one| Coalescing {
                kinds: all.kinds.intersection(one.kinds),
                segments_max: all.segments_max.min(one.segments_max),
                ..all
            })
        }),
    };
    let merged = merged.filter(|how| !how.kinds.is_empty());
    let refused = |one: &Direction| {
        let of = |decision: &&Decision| decision.feature == Features::LARGE_RECEIVE;
        one.decisions.iter().find(of).cloned()
    };
    let refusal = without.and_then(refused);
    for direction in directions {
        if direction.coalesce.is_none() || direction.coalesce == merged {
            continue;
        }
        direction.coalesce = merged;
        let decisions = direction.decisions.iter_mut();
        for decision in decisions.filter(|one| one.feature == Features::LARGE_RECEIVE) {
            *decision = match (&merged, &refusal) {
                (Some(how), _) => Decision {
                    why: format!(
                        "packtrain merges {} from {}, and each other port accepts large packets",
                        listed(how.kinds),
                        direction.from
                    ),
                    ..decision.clone()
                },
                (None, Some(refusal)) => refusal.clone(),
                (None, None) => Decision {
                    who: Who::NotNeeded,
                    why: format!(
                        "packets from {} are not merged: no kind of large packet is accepted by \
                         each other port",
                        direction.from
                    ),
                    ..decision.clone()
                },
            };
        }
    }
}

const fn link_name(link: LinkType) -> &'static str {
    match link {
        LinkType::Ethernet => "Ethernet",
        LinkType::RawIp => "raw IP",
        LinkType::Ipoib => "IPoIB",
    }
}

fn attach<'a>(
    port: &Side,
    mut others: impl Iterator<Item = &'a Side>,
) -> Result<Attach, Incompatible> {
    let queues = port.config.queues.unwrap_or(1);
    let most = port.capabilities.queues_max.min(QUEUES_MAX);
    if queues == 0 || queues > most {
        let (name, range) = (
            &port.name,
            if most == 1 {
                "1".into()
            } else {
                format!("1 to {most}")
            },
        );
        return Err(Incompatible(format!(
            "{name}: queues={queues} is out of range: the port can have {range}"
        )));
    }
    // A limit on the egress that no packet reaches would have no effect. So `segs=` and `gso-segs=`
    // also make the other port receive into small pieces, as most NICs do.
    let pieces = others.any(|other| {
        let config = &other.config;
        config.segments.or(config.gso_segments).is_some()
    });
    let rx_buffers = port.config.rx_buffers.unwrap_or(if pieces {
        RxBuffers::PIECES
    } else {
        RxBuffers::Whole
    });
    if let RxBuffers::Pieces { bytes } = rx_buffers
        && bytes != rx_buffers.small_bytes()
    {
        let (least, most) = (RX_PIECE_BYTES_MIN, RxBuffers::PIECES.small_bytes());
        return Err(Incompatible(format!(
            "{}: pieces of {bytes} bytes are out of range: a small frame takes {least} to {most}",
            port.name
        )));
    }
    Ok(Attach {
        queues,
        rx: usable(port.capabilities.rx, &port.config),
        rx_buffers,
        ..Attach::default()
    })
}

/// The longest large packet of a direction that has no more segments than packets for its egress
/// are built with (S0: what the stack builds by the limit needs no copy); `None` if every packet
/// has, or if none arrives large and leaves as it came.
fn large_bytes_max(attach: &Attach, direction: &Direction) -> Option<u32> {
    let large = Features::TSO | Features::USO;
    if attach
        .rx
        .intersection(direction.tx)
        .intersection(large)
        .is_empty()
    {
        return None;
    }
    let limits = &direction.limits;
    let small = RxBuffers::PIECES.small_bytes();
    let piece = match attach.rx_buffers {
        RxBuffers::Pieces { .. } => attach.rx_buffers.small_bytes(),
        // Received whole, a packet is copied for such a device in any case.
        RxBuffers::Whole if limits.memory == TxMemory::SmallFrames => small,
        RxBuffers::Whole => PACKET_BYTES_MAX.min(limits.segment_bytes_max),
    };
    let pieces = limits.advertised() / piece.div_ceil(limits.segment_bytes_max);
    let bytes = (pieces * piece).max(GSO_BYTES_MIN);
    (bytes < PACKET_BYTES_MAX).then_some(bytes as u32)
}

/// What the limit on large packets means for a direction.
fn limit_note(from: &Side, buffers: RxBuffers, direction: &Direction, bytes: u32) -> String {
    let (ingress, egress, limits) = (&direction.from, &direction.to, &direction.limits);
    let segments = limits.advertised();
    if from.capabilities.limits_large {
        return format!(
            "{ingress}: its kernel builds packets of at most {bytes} bytes, since {egress} is \
             given at most {segments} segments (gso-limit=off of {ingress} lifts it)"
        );
    }
    let fate = match limits.fit {
        Fit::Defrag => "copied",
        Fit::Collapse => "merged in place, or lost",
    };
    let mut advice = vec!["allow more segments (segs=)".to_owned()];
    if buffers != RxBuffers::Whole && buffers != RxBuffers::PIECES {
        advice.insert(0, "receive in longer pieces (rx=)".to_owned());
    }
    if let Some(Interface { name, .. }) = &from.interface {
        let command = format!("lower its limit (ip link set dev {name} gso_max_size {bytes})");
        advice.insert(0, command);
    }
    format!(
        "{ingress}: its packets of more than {bytes} bytes are {fate}, since {egress} is given at \
         most {segments} segments; to avoid that, {}",
        advice.join(", or ")
    )
}

/// Of a direction whose ingress has the larger MTU.
fn mtu_note(direction: &Direction, sides: &[&Side]) -> Option<String> {
    let (from, to) = (&direction.from, &direction.to);
    let larger = sides[direction.ports[0]].capabilities.mtu?;
    let mtu = direction.limits.mtu.get().filter(|&mtu| mtu < larger)?;
    let mend = match sides[direction.ports[1]].config.mtu {
        Some(asked) if asked == mtu => format!("raise mtu= of {to}, or lower that of {from}"),
        _ => "set both alike".to_owned(),
    };
    Some(format!(
        "{from}: its MTU is {larger}, and that of {to} {mtu}: what is longer is dropped \
         (drop.mtu); {mend} (ip link set dev IF mtu N)"
    ))
}

fn usable(device: Features, config: &PortConfig) -> Features {
    device.intersection(config.offload).consistent()
}

fn direction([from, to]: [&Side; 2], ports: [usize; 2]) -> Direction {
    let rx = usable(from.capabilities.rx, &from.config);
    let tx = usable(to.capabilities.tx, &to.config);
    let gso = to.config.gso_segments.or(to.config.segments);
    let limits = FitLimits {
        gso_segments_max: FitLimits::new(&to.capabilities, gso).gso_segments_max,
        mtu: Mtu::new(to.capabilities.link, to.config.mtu, to.capabilities.mtu),
        headroom: to.config.segment_headroom,
        fit: to.config.fit,
        ..FitLimits::new(&to.capabilities, to.config.segments)
    };
    let (coalesce, merging) = large_receive(from, to, rx, tx, &limits);
    let decisions = Features::NAMED
        .iter()
        .map(|&(feature, _)| {
            if feature == Features::LARGE_RECEIVE {
                merging.clone()
            } else {
                transmit_offload(feature, from, to, rx, tx)
            }
        })
        .collect();
    Direction {
        from: from.name.clone(),
        to: to.name.clone(),
        ports,
        decisions,
        coalesce,
        tx,
        allowed: to.config.offload,
        limits,
        ring: to.capabilities.tx_ring,
        held: from.capabilities.rx_held_max,
    }
}

fn transmit_offload(
    feature: Features,
    from: &Side,
    to: &Side,
    rx: Features,
    tx: Features,
) -> Decision {
    let (ingress, egress) = (&from.name, &to.name);
    let what = described(feature);
    let (who, why) = if !rx.contains(feature) {
        let cause = missing(feature, from.capabilities.rx, &from.config);
        (
            Who::NotNeeded,
            format!("{ingress} delivers no {what}: {cause}"),
        )
    } else if tx.contains(feature) {
        (
            Who::Device,
            format!("{ingress} delivers {what}, and {egress} accepts them"),
        )
    } else {
        let cause = missing(feature, to.capabilities.tx, &to.config);
        (
            Who::Software,
            format!("{ingress} delivers {what}, and {egress} accepts none: {cause}"),
        )
    };
    Decision { feature, who, why }
}

/// The side that merges what comes from `from`, why, and how if it is packtrain.
fn large_receive(
    from: &Side,
    to: &Side,
    rx: Features,
    tx: Features,
    limits: &FitLimits,
) -> (Option<Coalescing>, Decision) {
    let (ingress, egress) = (&from.name, &to.name);
    let (coalesce, who, why) = if rx.contains(Features::LARGE_RECEIVE) {
        (
            None,
            Who::Device,
            format!("{ingress} merges what it receives"),
        )
    } else {
        match coalescing(from, to, rx, tx, limits) {
            Ok(how) => {
                let why = format!(
                    "packtrain merges {} from {ingress}, and {egress} accepts large packets",
                    listed(how.kinds)
                );
                (Some(how), Who::Software, why)
            }
            Err(cause) => {
                let why = format!("packets from {ingress} are not merged: {cause}");
                (None, Who::NotNeeded, why)
            }
        }
    };
    let decision = Decision {
        feature: Features::LARGE_RECEIVE,
        who,
        why,
    };
    (coalesce, decision)
}

/// How packtrain merges what comes from `from`, or why it does not.
fn coalescing(
    from: &Side,
    to: &Side,
    rx: Features,
    tx: Features,
    limits: &FitLimits,
) -> Result<Coalescing, String> {
    let coalesce = from.config.coalesce;
    let egress = &to.name;
    if coalesce == Coalesce::Off {
        return Err("switched off by coalesce=".to_owned());
    }
    if from.capabilities.input == Input::None {
        return Err("the port has no input".to_owned());
    }
    let large = Features::TSO4 | Features::TSO6 | Features::USO;
    let taken = tx.intersection(large);
    if taken.is_empty() {
        return Err(format!("{egress} accepts no large packets"));
    }
    if limits.advertised() < 2 {
        return Err(format!("{egress} accepts no packets of several segments"));
    }
    let auto = coalesce == Coalesce::Auto;
    if auto && !to.capabilities.gso_pays {
        return Err(format!(
            "{egress} gains nothing from large packets (coalesce=on of {} merges anyway)",
            from.name
        ));
    }
    // A packet that arrives large was one packet at its sender: little more can be merged.
    let kinds = match auto && !from.capabilities.rx_mixed {
        true => taken.without(rx),
        false => taken,
    };
    if kinds.is_empty() {
        return Err("they arrive large (coalesce=on merges the others)".to_owned());
    }
    Ok(Coalescing {
        semantics: if coalesce.keeps_streams() {
            Semantics::Stream
        } else {
            Semantics::Reversible
        },
        mode: match coalesce {
            Coalesce::Hash | Coalesce::StreamHash => Mode::Hash,
            Coalesce::Sorted | Coalesce::StreamSorted => Mode::Sorted,
            _ => Mode::Auto,
        },
        kinds,
        segments_max: limits.advertised(),
        gro: from.config.gro,
    })
}

/// The kinds of packets of these features, in words.
fn listed(kinds: Features) -> String {
    let words: Vec<_> = [
        (Features::TSO4, "TCP/IPv4"),
        (Features::TSO6, "TCP/IPv6"),
        (Features::USO4, "UDP/IPv4"),
        (Features::USO6, "UDP/IPv6"),
    ]
    .into_iter()
    .filter(|(kind, _)| kinds.contains(*kind))
    .map(|(_, word)| word)
    .collect();
    words.join(", ")
}

/// Why a feature is not in use.
fn missing(feature: Features, device: Features, config: &PortConfig) -> &'static str {
    // The user's setting comes first: a device opened with fewer offloads offers no more than
    // those.
    if !config.offload.contains(feature) {
        "switched off by offload="
    } else if !device.contains(feature) {
        "the device does not offer it"
    } else if feature == Features::TSO_ECN {
        "it needs TSO, which is not in use"
    } else {
        "it needs the checksum offload, which is not in use"
    }
}

fn described(feature: Features) -> &'static str {
    match feature {
        Features::CSUM4 => "unfinished IPv4 TCP/UDP checksums",
        Features::CSUM6 => "unfinished IPv6 TCP/UDP checksums",
        Features::TSO4 => "large TCP/IPv4 packets",
        Features::TSO6 => "large TCP/IPv6 packets",
        Features::TSO_ECN => "large TCP packets with CWR",
        Features::USO4 => "large UDP/IPv4 packets",
        Features::USO6 => "large UDP/IPv6 packets",
        Features::VLAN => "VLAN tags outside of the packet bytes",
        _ => "merged packets",
    }
}
