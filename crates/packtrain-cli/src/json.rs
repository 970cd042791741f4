//! The one JSON document of a command.

use crate::args::SettingArgs;
use crate::exit::Failure;
use crate::in_force::{InForce, PortSettings};
use crate::joint::{Joint, PortKeys};
use crate::print;
use packtrain::driver::{DeviceCounters, Features, TxMemory};
use packtrain::engine::{Ledger, PortSnapshot, WorkerSnapshot, arena_config};
use packtrain::limits::COALESCE_HOLD_MAX;
use packtrain::plan::{Coalescing, Direction, FitLimits, Side, Who};
use packtrain::policy::placement::Placed;
use packtrain::port::wrap::Faults;
use packtrain::stats::{DropSnapshot, TroubleReport};
use packtrain::time::Instant;
use packtrain_lab::experiment::counters::{
    self, batches, counters, device_values, fault_values, worker_values,
};
use packtrain_measure::host::Head;
pub use packtrain_measure::key::fields;
use packtrain_offload::coalesce::Semantics;
use packtrain_offload::offload::LinkType;
use serde_json::{Map, Value, json};
use std::iter;

/// A document of `command`, with the keys that every document has.
pub fn document(command: &str) -> Map<String, Value> {
    fields(&head(command))
}

/// The beginning of a document of `command`.
pub fn head(command: &str) -> Head {
    Head {
        commit: option_env!("PACKTRAIN_COMMIT").map(str::to_owned),
        ..Head::of(command)
    }
}

/// Writes the document as one line.
///
/// # Errors
///
/// If standard output cannot be written.
pub fn write(document: Map<String, Value>) -> Result<(), Failure> {
    let text = Value::Object(document).to_string();
    print::document(&format!("{}\n", print::escaped(&text)))
}

/// The conservation ledger.
pub fn conservation(ledger: &Ledger) -> Value {
    json!({
        "received": ledger.received,
        "generated": ledger.generated,
        "expanded": ledger.expanded,
        "transmitted": ledger.transmitted,
        "delivered": ledger.delivered,
        "held": ledger.held,
        "absorbed": ledger.absorbed,
        "dropped": ledger.dropped,
        "closed": ledger.closed(),
    })
}

/// Wire packets lost, by reason; reasons that lost none are left out.
pub fn drops(drops: &DropSnapshot) -> Value {
    counters::drops(drops).into()
}

/// One port's counters by queue, those of the other side of the port (`null` if it has none), and
/// the injected faults (`null` if none were requested). Times are since `began`.
pub fn port(
    snapshot: &PortSnapshot,
    device: Option<&DeviceCounters>,
    faults: Option<&Faults>,
    began: Instant,
) -> Value {
    let mut port = Map::new();
    for (index, (queue, sizes)) in snapshot.rx.iter().zip(&snapshot.rx_batches).enumerate() {
        let mut counters = grouped(queue.values());
        counters.insert("batches".into(), batches(iter::once(sizes.values())));
        port.insert(format!("rxq{index:02}"), counters.into());
    }
    for (index, (queue, sizes)) in snapshot.tx.iter().zip(&snapshot.tx_batches).enumerate() {
        let mut counters = counters(queue.values());
        counters.insert("batches".into(), batches(iter::once(sizes.values())));
        let troubles = snapshot.troubles.get(index).into_iter();
        let troubles = troubles.flat_map(|log| log.iter().map(|report| trouble(report, began)));
        counters.insert("troubles".into(), troubles.collect());
        port.insert(format!("txq{index:02}"), counters.into());
    }
    let device = device.map(|device| counters(device_values(device)));
    port.insert("device".into(), json!(device));
    let faults = faults.map(|faults| counters(fault_values(faults)));
    port.insert("faults".into(), json!(faults));
    port.insert("refused".into(), features(snapshot.refused));
    Value::Object(port)
}

/// The last fault of a device with this cause.
fn trouble(report: &TroubleReport, began: Instant) -> Value {
    json!({
        "cause": report.cause.name(),
        "at_seconds": report.at.since(began).as_secs_f64(),
        "still_seconds": report.at.since(report.since).as_secs_f64(),
        "in_flight": report.in_flight,
        "in_flight_bytes": report.in_flight_bytes,
        "held": report.held,
        "was_reset": report.was_reset,
    })
}

/// The parts of one worker, and its counters.
pub fn worker(worker: &WorkerSnapshot, parts: &[String]) -> Value {
    let mut all = counters(worker_values(worker));
    all.insert("parts".into(), parts.into());
    all.insert("cpu_seconds".into(), (worker.cpu_ns as f64 / 1e9).into());
    all.insert("nice".into(), worker.nice.into());
    all.into()
}

/// Where the workers ran, and why.
pub fn placement(placed: &Placed) -> Value {
    let cpus = placed.cpus.iter().map(|cpu| cpu.map(|cpu| cpu.0));
    json!({
        "cpus": cpus.collect::<Vec<_>>(),
        "why": placed.why.to_string(),
    })
}

/// Counters that have a reason in their name, in an object of their own.
const GROUPS: [&str; 2] = ["gro_flush", "gro_passed"];

/// As [`counters`], with `GROUPS` as objects.
fn grouped(values: impl IntoIterator<Item = (&'static str, u64)>) -> Map<String, Value> {
    let mut all = Map::new();
    for (name, value) in values {
        let group = GROUPS.iter().find_map(|group| {
            let reason = name.strip_prefix(group)?.strip_prefix('_')?;
            Some((*group, reason))
        });
        let (group, name) = match group {
            Some((group, reason)) => {
                let group = all.entry(group).or_insert_with(|| Map::new().into());
                (group.as_object_mut(), reason)
            }
            None => (Some(&mut all), name),
        };
        if let Some(group) = group {
            group.insert(name.to_owned(), value.into());
        }
    }
    all
}

fn features(features: Features) -> Value {
    features.names().collect()
}

/// How two ports are, or would be, joined.
pub fn plan(joint: &Joint) -> Value {
    let mut ports = Map::new();
    for (index, side) in joint.sides.iter().enumerate() {
        let attach = &joint.plan.attach[index];
        // The direction that ends at a port has its limits.
        let limits = joint.plan.directions[1 - index].limits;
        let device = FitLimits::new(&side.capabilities, None);
        let port = json!({
            "link": joint.link_name(index),
            "queues": attach.queues,
            "queues_max": side.capabilities.queues_max,
            "rx": attach.rx_buffers.to_string(),
            "rx_offloads": features(attach.rx),
            "tx_segments": {
                "device": device.segments_max,
                "effective": limits.segments_max,
                "gso_device": device.gso_segments_max,
                "gso_effective": limits.gso_segments_max,
                "advertised": limits.advertised(),
                "headroom": limits.headroom,
                "fit": limits.fit.to_string(),
                "bytes_max": (limits.segment_bytes_max != usize::MAX)
                    .then_some(limits.segment_bytes_max),
                "memory": tx_memory(limits.memory),
                "contiguous_headers": limits.contiguous_headers,
            },
            "min_packet_bytes": limits.min_packet_bytes,
            "device_rx": features(side.capabilities.rx),
            "device_tx": features(side.capabilities.tx),
        });
        ports.insert(side.name.clone(), port);
    }
    let paths = joint.sides.iter().zip(&joint.plan.paths);
    let paths = paths.map(|(side, path)| {
        let value = json!({
            "kind": path.kind.to_string(),
            "dispatch": path.dispatch.to_string(),
            "why": path.why,
        });
        (side.name.clone(), value)
    });
    json!({
        "ports": ports,
        "paths": paths.collect::<Map<_, _>>(),
        "workers": joint.parts(),
        "memory_bytes_max": arena_config(&joint.plan).bytes(),
        "directions": joint.plan.directions.iter().map(direction).collect::<Vec<_>>(),
        "worker_per_direction": joint.plan.worker_per_direction(),
        "notes": joint.plan.notes,
    })
}

/// The policies of queues and workers, and where workers run: `cpus` by worker, `null` if the
/// scheduler chooses.
pub fn settings(
    args: &SettingArgs,
    sides: &[Side; 2],
    keys: &[PortKeys; 2],
    placed: &Placed,
) -> Value {
    let in_force = |of: &InForce| json!({ "setting": of.setting, "from": of.source });
    let settings = args.settings();
    let ports = sides.iter().zip(keys).map(|(side, keys)| {
        let keys = keys.iter().map(|(name, value)| {
            let value = match &**value {
                "" => Value::Bool(true),
                value => value.into(),
            };
            ((*name).to_owned(), value)
        });
        let work = PortSettings::of(args, &side.config.work);
        let value = json!({
            "dispatch": in_force(&work.dispatch),
            "moderation": in_force(&work.moderation),
            "keys": keys.collect::<Map<_, _>>(),
        });
        (side.name.clone(), value)
    });
    let cpus = placed.cpus.iter().map(|cpu| cpu.map(|cpu| cpu.0));
    json!({
        "dispatch": settings.dispatch.to_string(),
        "moderation": settings.moderation.to_string(),
        "ports": ports.collect::<Map<_, _>>(),
        "idle": settings.idle.to_string(),
        "priority": settings.priority.to_string(),
        "placement": settings.placement.to_string(),
        "cpus": cpus.collect::<Vec<_>>(),
        "why": placed.why.to_string(),
    })
}

fn direction(direction: &Direction) -> Value {
    let decisions = direction.decisions.iter().map(|decision| {
        let who = match decision.who {
            Who::Device => "device",
            Who::Software => "software",
            Who::NotNeeded => "not_needed",
        };
        let value = json!({ "who": who, "why": decision.why });
        (decision.feature.name().to_owned(), value)
    });
    json!({
        "from": direction.from,
        "to": direction.to,
        "offloads": decisions.collect::<Map<_, _>>(),
        "coalesce": direction.coalesce.as_ref().map(coalescing),
    })
}

/// How packtrain merges packets: `null` if it does not.
fn coalescing(how: &Coalescing) -> Value {
    let (gro, config) = (&how.gro, how.config(LinkType::Ethernet));
    let stream = how.semantics == Semantics::Stream;
    json!({
        "setting": how.setting().to_string(),
        "merges": features(how.kinds),
        "segments": how.segments_max,
        "bytes_max": config.max_bytes,
        "flows": config.flows,
        "packets": how.packets_max(),
        "inactive": gro.inactive,
        "hold_us": gro.inactive.then_some(COALESCE_HOLD_MAX.as_micros() as u64),
        "flush": gro.flush.to_string(),
        "id": gro.id(),
        "ack_limit": stream.then_some(config.ack_limit),
        "rx_pause": gro.rx_pause,
        "bytes": how.bytes(),
    })
}

/// The word for where segments may be.
pub const fn tx_memory(memory: TxMemory) -> &'static str {
    match memory {
        TxMemory::Any => "any",
        TxMemory::SmallFrames => "small_frames",
    }
}
