//! The one JSON document of a command.

use crate::exit::Failure;
use crate::print;
use packtrain::driver::{Changes, DeviceCounters};
use packtrain::engine::{Ledger, PortSnapshot, Snapshot, WorkerSnapshot};
use packtrain::name::Name;
use packtrain::port::wrap::Faults;
use packtrain::stats::{DropSnapshot, TroubleReport};
use packtrain::time::Instant;
use packtrain_lab::experiment::counters::{
    self, batches, counters, device_values, fault_values, worker_values,
};
use packtrain_measure::host::{Head, SCHEMA};
pub use packtrain_measure::key::fields;
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

/// What ports moved between two snapshots of a run, and what was lost meanwhile by reason: a line
/// while it goes on. `kind` is `interval` or `totals`; `before` of totals is empty. Times are
/// seconds: since the start, and between the two.
pub fn moved(
    kind: &str,
    names: &[Name],
    (before, after): (&Snapshot, &Snapshot),
    (seconds, interval): (f64, f64),
) -> Map<String, Value> {
    let mut ports = Map::new();
    for (index, name) in names.iter().enumerate() {
        let old = before.ports.get(index);
        let (old_rx, rx) = (
            old.map(PortSnapshot::rx_total),
            after.ports[index].rx_total(),
        );
        let (old_tx, tx) = (
            old.map(PortSnapshot::tx_total),
            after.ports[index].tx_total(),
        );
        let (old_rx, old_tx) = (old_rx.unwrap_or_default(), old_tx.unwrap_or_default());
        let wire = tx.wire_packets.saturating_sub(tx.taken_back);
        let old_wire = old_tx.wire_packets.saturating_sub(old_tx.taken_back);
        let counters = counters([
            ("rx_packets", rx.packets - old_rx.packets),
            ("rx_wire_packets", rx.wire_packets - old_rx.wire_packets),
            ("rx_bytes", rx.bytes - old_rx.bytes),
            ("tx_packets", tx.packets - old_tx.packets),
            ("tx_wire_packets", wire.saturating_sub(old_wire)),
            ("tx_bytes", tx.bytes - old_tx.bytes),
        ]);
        ports.insert(name.exact().to_owned(), counters.into());
    }
    let lost = after.drops.nonzero().map(|(reason, count)| {
        let count = count.saturating_sub(before.drops.get(reason));
        (reason.name(), count)
    });
    let mut line = Map::new();
    line.insert("schema".into(), SCHEMA.into());
    line.insert("command".into(), "forward".into());
    line.insert("kind".into(), kind.into());
    line.insert("seconds".into(), seconds.into());
    line.insert("interval_seconds".into(), interval.into());
    line.insert("ports".into(), ports.into());
    let lost = counters(lost.filter(|(_, count)| *count > 0));
    line.insert("drops".into(), lost.into());
    line
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
    port.insert("refused".into(), snapshot.refused.names().collect());
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

/// What has changed in a run. Times are since `began`.
pub fn changes(changes: &Changes, names: &[Name], began: Instant) -> Value {
    let last = changes.last.iter().map(|change| {
        json!({
            "at_seconds": change.at.since(began).as_secs_f64(),
            "port": names[usize::from(change.port)].exact(),
            "queue": change.queue,
            "what": change.kind.name(),
            "lost": change.offloads.lost.names().collect::<Vec<_>>(),
            "gained": change.offloads.gained.names().collect::<Vec<_>>(),
            "why": change.why,
        })
    });
    json!({"count": changes.count, "last": last.collect::<Vec<_>>()})
}

/// The parts of one worker, and its counters.
pub fn worker(worker: &WorkerSnapshot, parts: &[String]) -> Value {
    let mut all = counters(worker_values(worker));
    all.insert("parts".into(), parts.into());
    all.insert("cpu_seconds".into(), (worker.cpu_ns as f64 / 1e9).into());
    all.insert("nice".into(), worker.nice.into());
    all.insert("batch".into(), worker.batch.into());
    all.into()
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
