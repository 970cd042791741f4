//! The settings in force of a session, or of one that would be started: how its ports are used, and
//! the policies of queues and workers. `plan` and `forward` print these structures. The rows of
//! tools have a part of them, by flat names.

use indexmap::IndexMap;
use packtrain::driver::{Coalesce, Features, QueueConfig, TxMemory};
use packtrain::engine::{Settings, arena_config};
use packtrain::limits::COALESCE_HOLD_MAX;
use packtrain::plan::{self, Coalescing, FitLimits, PlannedPart, Side, Who};
use packtrain::policy::placement::Placed;
use packtrain_offload::coalesce::Semantics;
use packtrain_offload::offload::LinkType;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::options::{Fields, PolicyOptions};

/// Names of offloads.
pub type Offloads = Vec<&'static str>;

/// The settings of ports, and of the queues and workers between them.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct InForce {
    /// How the ports are used and joined.
    pub plan: Plan,
    /// The policies of queues and workers.
    pub settings: Policies,
}

/// How ports are used and joined.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Plan {
    /// The ports by their names.
    pub ports: IndexMap<String, Port>,
    /// How packets reach the TX queues of each port.
    pub paths: IndexMap<String, Path>,
    /// The parts of each worker, in words.
    pub workers: Vec<Vec<String>>,
    /// The most memory that packets take.
    pub memory_bytes_max: u64,
    /// For each port the direction that starts there; among three and more ports, one for each
    /// other port.
    pub directions: Vec<Direction>,
    /// Whether the directions of a pair of queues are separate parts.
    pub worker_per_direction: bool,
    /// Settings that a device refused, with the reason.
    pub notes: Vec<String>,
}

/// How one port is used.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Port {
    /// `ethernet`, `ip` or `ipoib`.
    pub link: &'static str,
    /// Its queues, in both directions.
    pub queues: usize,
    /// The most queues that it can have.
    pub queues_max: usize,
    /// Its buffers, as in `rx=`.
    pub rx: String,
    /// The longest large packet that its other end is told to send, in bytes; `None` for no limit.
    pub rx_large_bytes_max: Option<u32>,
    /// The offloads that the device may use on packets that it delivers.
    pub rx_offloads: Offloads,
    /// The offloads that the device may be given.
    #[serde(skip)]
    pub tx_offloads: Offloads,
    /// The form of packets to it.
    pub tx_segments: Segments,
    /// Shorter packets are padded to this length.
    pub min_packet_bytes: usize,
    /// The most bytes of a wire packet to it at the start, without link header and VLAN tag; `None`
    /// for no limit.
    pub mtu: Option<u32>,
    /// The offloads that the device has for packets that it delivers.
    pub device_rx: Offloads,
    /// The offloads that the device has for packets that it is given.
    pub device_tx: Offloads,
}

/// The form of packets to a port. Limits are in segments, unless they are named otherwise.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Segments {
    /// What the device accepts, at most a twelfth of its ring if each takes a descriptor of it.
    pub device: usize,
    /// The same after `segs=`.
    pub effective: usize,
    /// As `device`, of GSO packets.
    pub gso_device: usize,
    /// As `effective`, of GSO packets.
    pub gso_effective: usize,
    /// What packets are built with: the effective limit less `headroom`.
    pub advertised: usize,
    /// As in `headroom=`.
    pub headroom: usize,
    /// As in `fit=`.
    pub fit: String,
    /// Bytes of one segment; `null` for no limit.
    pub bytes_max: Option<usize>,
    /// Where segments may be: `any` or `small_frames`.
    pub memory: &'static str,
    /// Whether all headers have to be in the first segment.
    pub contiguous_headers: bool,
}

/// How packets reach the TX queues of a port.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Path {
    /// `owned` or `shared`.
    pub kind: String,
    /// The dispatch mode.
    pub dispatch: String,
    /// The reason for the kind.
    pub why: String,
    /// As in `handover=`.
    pub handover: &'static str,
}

/// Packets that go one way.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Direction {
    /// The port that they come from.
    pub from: String,
    /// The port that they go to.
    pub to: String,
    /// Which side does each offload.
    pub offloads: IndexMap<&'static str, Decision>,
    /// How packtrain merges them; `null` if it does not.
    pub coalesce: Option<Merging>,
}

/// Which side does an offload.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Decision {
    /// `device`, `software` or `not_needed`.
    pub who: &'static str,
    /// The reason.
    pub why: String,
}

/// How packtrain merges packets.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Merging {
    /// As in `coalesce=`; `auto` merges as `on`.
    pub setting: String,
    /// For each kind that is merged the offload that the egress port needs.
    pub merges: Offloads,
    /// Segments of a merged packet at most.
    pub segments: usize,
    /// Bytes of a merged IP packet at most.
    pub bytes_max: u32,
    /// Flows of which packets are held at most.
    pub flows: u32,
    /// Packets that are held at most.
    pub packets: usize,
    /// Whether packets are passed on that were held for `hold_us`.
    pub inactive: bool,
    /// How long packets are held at most while others arrive; `null` for no limit.
    pub hold_us: Option<u64>,
    /// As in `gro-flush=`.
    pub flush: String,
    /// As in `gro-id=`.
    pub id: &'static str,
    /// As in `ack-limit=`; `null` if pure ACKs are not merged.
    pub ack_limit: Option<u16>,
    /// As in `rx-pause=`.
    pub rx_pause: Option<u32>,
    /// The memory for each queue.
    pub bytes: usize,
}

/// The policies of queues and workers.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Policies {
    /// The dispatch mode of ports that have no key for it.
    pub dispatch: String,
    /// The moderation of ports that have no key for it.
    pub moderation: String,
    /// The policies of each port's queues.
    pub ports: IndexMap<String, PortPolicies>,
    /// What a worker without work does.
    pub idle: String,
    /// The nice value of the workers' threads.
    pub priority: String,
    /// On which CPU each worker runs, as requested.
    pub placement: String,
    /// On which it runs.
    #[serde(flatten)]
    pub placed: WorkerCpus,
}

/// The policies of one port's queues.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PortPolicies {
    /// Of its TX queues.
    pub dispatch: Setting,
    /// Of its RX queues.
    pub moderation: Setting,
    /// The keys of the port that are not at their default; `true` for a key without a value. Tools
    /// leave them out.
    pub keys: IndexMap<&'static str, Value>,
}

/// A setting and its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Setting {
    /// Its value.
    pub setting: String,
    /// Where it is from.
    pub from: Source,
}

/// Where a setting is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A key of the port, which takes precedence.
    Port,
    /// An option of the command.
    Option,
    /// Neither.
    Default,
}

/// Where the workers run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct WorkerCpus {
    /// The CPU that each worker is bound to; `null` if the scheduler chooses.
    pub cpus: Vec<Option<u16>>,
    /// The reason.
    pub why: String,
}

impl InForce {
    /// The settings of a session on the ports `sides`, with a plan of these. `options` are those
    /// that `settings` are from.
    pub fn of(
        sides: &[Side],
        plan: &plan::Plan,
        settings: &Settings,
        options: &PolicyOptions,
        placed: &Placed,
    ) -> Self {
        let names = || sides.iter().map(|side| side.name.exact().to_owned());
        let ports = sides.iter().enumerate();
        let ports = ports.map(|(index, side)| Port::of(side, plan, index));
        let name = |port: usize| sides[port].name.exact().to_owned();
        let directions = plan.directions.iter().map(|direction| {
            let [from, to] = direction.ports.map(name);
            Direction::of(from, to, direction)
        });
        let queues = plan.work.iter();
        let queues = queues.map(|config| PortPolicies::of(config, settings, options));
        Self {
            plan: Plan {
                ports: names().zip(ports).collect(),
                paths: names().zip(plan.paths.iter().map(Path::from)).collect(),
                workers: parts(sides, plan),
                memory_bytes_max: arena_config(plan).bytes(),
                directions: directions.collect(),
                worker_per_direction: plan.worker_per_direction(),
                notes: plan.notes.clone(),
            },
            settings: Policies {
                dispatch: settings.dispatch.to_string(),
                moderation: settings.moderation.to_string(),
                ports: names().zip(queues).collect(),
                idle: settings.idle.to_string(),
                priority: settings.priority.to_string(),
                placement: settings.placement.to_string(),
                placed: placed.into(),
            },
        }
    }

    /// What a row of a tool has: the ports as `requested`, one or two, and settings in force. The
    /// name of a port's setting ends with that of the port.
    pub fn flat(&self, requested: &[&str]) -> Fields {
        let Self { plan, settings } = self;
        let mut fields = Fields::new();
        let names = || plan.ports.keys();
        let requested = names().zip(requested);
        fields.extend(requested.map(|(name, port)| (name.clone(), json!(port))));
        let ports: Vec<_> = (0..plan.ports.len())
            .map(|port| self.flat_port(port))
            .collect();
        for row in 0..OF_PORT {
            for (port, values) in names().zip(&ports) {
                let (name, value) = &values[row];
                if !value.is_null() {
                    fields.insert(format!("{name}_{port}"), value.clone());
                }
            }
        }
        let values = [
            ("idle", json!(settings.idle)),
            ("priority", json!(settings.priority)),
            ("placement", json!(settings.placement)),
            ("placement_why", json!(settings.placed.why)),
            ("workers", json!(plan.workers.len())),
            ("worker_cpus", json!(settings.placed.cpus)),
            ("notes", json!(plan.notes)),
        ];
        fields.extend(values.map(|(name, value)| (name.to_owned(), value)));
        fields
    }

    /// Those of port 0 or 1: of its queues, of packets to it, and of merging what it receives.
    /// `null` if it has no such setting.
    fn flat_port(&self, index: usize) -> [(&'static str, Value); OF_PORT] {
        let Self { plan, settings } = self;
        let (name, port) = plan.ports.get_index(index).expect("the plan has the port");
        let path = &plan.paths[index];
        let moderation = &settings.ports[index].moderation.setting;
        // What a port receives is merged alike in all its directions.
        let mut from = plan.directions.iter().filter(|one| one.from == *name);
        let merging = from.find_map(|direction| direction.coalesce.as_ref());
        let coalesce = merging.map_or_else(|| Coalesce::Off.to_string(), |how| how.setting.clone());
        let to = &port.tx_segments;
        [
            ("path", json!(path.kind)),
            ("dispatch", json!(path.dispatch)),
            ("handover", json!(path.handover)),
            ("moderation", json!(moderation)),
            ("queues", json!(port.queues)),
            ("rx", json!(port.rx)),
            ("rx_offloads", json!(listed(&port.rx_offloads))),
            ("tx_offloads", json!(listed(&port.tx_offloads))),
            ("segments", json!(to.effective)),
            ("gso_segments", json!(to.gso_effective)),
            ("headroom", json!(to.headroom)),
            ("fit", json!(to.fit)),
            ("coalesce", json!(coalesce)),
            ("gro_flows", json!(merging.map(|how| how.flows))),
            ("gro_bytes", json!(merging.map(|how| how.bytes_max))),
            ("gro_packets", json!(merging.map(|how| how.packets))),
            ("gro_inactive", json!(merging.map(|how| how.inactive))),
            ("gro_flush", json!(merging.map(|how| &how.flush))),
            ("ack_limit", json!(merging.map(|how| how.ack_limit))),
            ("rx_pause", json!(merging.map(|how| how.rx_pause))),
        ]
    }
}

/// The settings of a port that a row has.
const OF_PORT: usize = 20;

/// Names of offloads, or `off`.
fn listed(offloads: &[&str]) -> String {
    match offloads {
        [] => "off".to_owned(),
        names => names.join(", "),
    }
}

/// What each worker has, in words.
fn parts(sides: &[Side], plan: &plan::Plan) -> Vec<Vec<String>> {
    let name = |port: usize| sides[port].name.exact();
    let words = |part: &PlannedPart| match *part {
        PlannedPart::Lanes { direction, pair } => format!("RX of {}, pair {pair}", name(direction)),
        PlannedPart::Tx { port, queue } => format!("TX queue {queue} of {}", name(port)),
    };
    let workers = plan.workers.iter();
    workers
        .map(|parts| parts.iter().map(words).collect())
        .collect()
}

fn names(offloads: Features) -> Offloads {
    offloads.names().collect()
}

impl Port {
    fn of(side: &Side, plan: &plan::Plan, index: usize) -> Self {
        let (attach, device) = (&plan.attach[index], &side.capabilities);
        // The direction that ends at a port has its limits. A port alone sends where it receives.
        let to = plan.to(index);
        Self {
            link: match device.link {
                LinkType::Ethernet => "ethernet",
                LinkType::RawIp => "ip",
                LinkType::Ipoib => "ipoib",
            },
            queues: attach.queues,
            queues_max: device.queues_max,
            rx: attach.rx_buffers.to_string(),
            rx_large_bytes_max: attach.large_bytes_max,
            rx_offloads: names(attach.rx),
            tx_offloads: names(to.tx),
            tx_segments: Segments::of(&to.limits, &FitLimits::new(device, None)),
            min_packet_bytes: to.limits.min_packet_bytes,
            mtu: to.limits.mtu.get(),
            device_rx: names(device.rx),
            device_tx: names(device.tx),
        }
    }
}

impl Segments {
    fn of(limits: &FitLimits, device: &FitLimits) -> Self {
        let bytes = limits.segment_bytes_max;
        Self {
            device: device.segments_max,
            effective: limits.segments_max,
            gso_device: device.gso_segments_max,
            gso_effective: limits.gso_segments_max,
            advertised: limits.advertised(),
            headroom: limits.headroom,
            fit: limits.fit.to_string(),
            bytes_max: (bytes != usize::MAX).then_some(bytes),
            memory: match limits.memory {
                TxMemory::Any => "any",
                TxMemory::SmallFrames => "small_frames",
            },
            contiguous_headers: limits.contiguous_headers,
        }
    }
}

impl From<&plan::Path> for Path {
    fn from(path: &plan::Path) -> Self {
        Self {
            kind: path.kind.to_string(),
            dispatch: path.dispatch.to_string(),
            why: path.why.clone(),
            handover: if path.by_packet { "packet" } else { "burst" },
        }
    }
}

impl Direction {
    fn of(from: String, to: String, direction: &plan::Direction) -> Self {
        let offloads = direction.decisions.iter().map(|decision| {
            let who = match decision.who {
                Who::Device => "device",
                Who::Software => "software",
                Who::NotNeeded => "not_needed",
            };
            let why = decision.why.clone();
            (decision.feature.name(), Decision { who, why })
        });
        Self {
            from,
            to,
            offloads: offloads.collect(),
            coalesce: direction.coalesce.as_ref().map(Merging::from),
        }
    }
}

impl From<&Coalescing> for Merging {
    fn from(how: &Coalescing) -> Self {
        let (gro, config) = (&how.gro, how.config(LinkType::Ethernet));
        let hold_us = COALESCE_HOLD_MAX.as_micros() as u64;
        Self {
            setting: how.setting().to_string(),
            merges: names(how.kinds),
            segments: how.segments_max,
            bytes_max: config.max_bytes,
            flows: config.flows,
            packets: how.packets_max(),
            inactive: gro.inactive,
            hold_us: gro.inactive.then_some(hold_us),
            flush: gro.flush.to_string(),
            id: gro.id(),
            ack_limit: (how.semantics == Semantics::Stream).then_some(config.ack_limit),
            rx_pause: gro.rx_pause,
            bytes: how.bytes(),
        }
    }
}

impl PortPolicies {
    fn of(config: &QueueConfig, settings: &Settings, options: &PolicyOptions) -> Self {
        let (dispatch, moderation) = settings.of_port(config);
        let source = |is_key: bool, is_option: bool| match (is_key, is_option) {
            (true, _) => Source::Port,
            (false, true) => Source::Option,
            (false, false) => Source::Default,
        };
        Self {
            dispatch: Setting {
                setting: dispatch.to_string(),
                from: source(config.dispatch.is_some(), options.dispatch.is_some()),
            },
            moderation: Setting {
                setting: moderation.to_string(),
                from: source(config.moderation.is_some(), options.moderation.is_some()),
            },
            keys: IndexMap::new(),
        }
    }
}

impl From<&Placed> for WorkerCpus {
    fn from(placed: &Placed) -> Self {
        let cpus = placed.cpus.iter();
        Self {
            cpus: cpus.map(|cpu| cpu.map(|cpu| cpu.0)).collect(),
            why: placed.why.to_string(),
        }
    }
}
