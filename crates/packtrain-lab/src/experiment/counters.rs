//! packtrain's counters as JSON, and what its workers used.

use std::time::Duration;

use packtrain::driver::DeviceCounters;
use packtrain::engine::{PortSnapshot, Report, Snapshot, WorkerSnapshot};
use packtrain::port::wrap::Faults;
use packtrain::stats::{
    DropReason, DropSnapshot, HistogramSnapshot, RxBatchesSnapshot, RxSnapshot, TxBatchesSnapshot,
    TxSnapshot,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::options::Fields;

/// `value / count`, or 0 if there is nothing to divide by.
pub fn per(value: f64, count: f64) -> f64 {
    if count > 0.0 { value / count } else { 0.0 }
}

/// Wire packets received by both ports, bad ones included.
pub fn received(snapshot: &Snapshot) -> u64 {
    let ports = snapshot.ports.iter();
    ports.map(|port| port.rx_total().wire_packets).sum()
}

/// What a packet cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Costs {
    /// CPU time.
    pub ns_per_packet: f64,
    /// Doorbells of all TX queues.
    pub doorbells_per_packet: f64,
    /// Context switches of the workers.
    pub switches_per_s: f64,
}

/// What moving packets cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// CPU time.
    pub cpu: Duration,
    /// Context switches of the workers, voluntary or not.
    pub switches: u64,
    /// Doorbells of all TX queues.
    pub doorbells: u64,
}

impl Work {
    /// That of the workers since the start of their session.
    pub fn of(snapshot: &Snapshot) -> Self {
        let (workers, ports) = (snapshot.workers.iter(), snapshot.ports.iter());
        let switches = |one: &WorkerSnapshot| one.voluntary_switches + one.involuntary_switches;
        Self {
            cpu: Duration::from_nanos(snapshot.cpu_ns),
            switches: workers.map(switches).sum(),
            doorbells: ports.map(|port| port.tx_total().doorbells).sum(),
        }
    }

    /// The growth since an earlier reading.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            switches: self.switches - earlier.switches,
            doorbells: self.doorbells - earlier.doorbells,
        }
    }

    /// CPU time for each of `packets`, in nanoseconds.
    pub fn ns_per_packet(&self, packets: u64) -> f64 {
        per(self.cpu.as_nanos() as f64, packets as f64)
    }

    /// The work for each of `packets`, and in each of `seconds`.
    pub fn costs(&self, packets: u64, seconds: f64) -> Costs {
        Costs {
            ns_per_packet: self.ns_per_packet(packets),
            doorbells_per_packet: per(self.doorbells as f64, packets as f64),
            switches_per_s: per(self.switches as f64, seconds),
        }
    }
}

/// The counters: of ports `a` and `b`, each with `rx` and `tx` summed over its queues and those of
/// its `device`, of the workers, and the drops.
pub fn figures(report: &Report) -> Fields {
    all(&report.snapshot, &report.devices)
}

/// The names that [`figures`] has: those of a session in which nothing happened, and all drops.
pub fn names() -> Fields {
    let port = || PortSnapshot {
        rx: vec![RxSnapshot::default()],
        rx_batches: vec![RxBatchesSnapshot::default()],
        tx: vec![TxSnapshot::default()],
        tx_batches: vec![TxBatchesSnapshot::default()],
        ..PortSnapshot::default()
    };
    let snapshot = Snapshot {
        ports: vec![port(), port()],
        ..Snapshot::default()
    };
    let mut names = all(&snapshot, &[Some(DeviceCounters::default()); 2]);
    let reasons = DropReason::all().map(|reason| (reason.name(), 0));
    names["drops"] = counters(reasons.chain([("total", 0)])).into();
    names
}

fn all(snapshot: &Snapshot, devices: &[Option<DeviceCounters>]) -> Fields {
    let mut figures = Fields::new();
    let ports = snapshot.ports.iter().zip(devices);
    for (name, (port, device)) in ["a", "b"].into_iter().zip(ports) {
        let mut rx = counters(port.rx_total().values());
        let queues = port.rx_batches.iter();
        rx.insert(
            "batches".into(),
            batches(queues.map(RxBatchesSnapshot::values)),
        );
        let mut tx = counters(port.tx_total().values());
        let queues = port.tx_batches.iter();
        tx.insert(
            "batches".into(),
            batches(queues.map(TxBatchesSnapshot::values)),
        );
        let device = device.map(|device| counters(device_values(&device)));
        figures.insert(name.into(), json!({ "rx": rx, "tx": tx, "device": device }));
    }
    let mut drops = drops(&snapshot.drops);
    drops.insert("total".into(), snapshot.drops.total().into());
    figures.insert("drops".into(), drops.into());
    let mut workers = counters(worker_values(&WorkerSnapshot::default()));
    for (name, count) in snapshot.workers.iter().flat_map(worker_values) {
        let sum = workers[name].as_u64().unwrap_or_default() + count;
        workers.insert(name.to_owned(), sum.into());
    }
    // Those of the ports included.
    workers.insert("syscalls".into(), snapshot.syscalls.into());
    workers.insert("cpu_ns".into(), snapshot.cpu_ns.into());
    figures.insert("workers".into(), workers.into());
    figures
}

/// The names of these fields, each with its value.
macro_rules! named {
    ($of:ident: $($field:ident)*) => {
        [$((stringify!($field), $of.$field)),*]
    };
}

/// Names and values of the counters of a worker, for JSON, tables and figures alike.
pub fn worker_values(worker: &WorkerSnapshot) -> [(&'static str, u64); 7] {
    named!(worker: steps sleeps wakeups drained voluntary_switches involuntary_switches syscalls)
}

/// The faults that ports `a` and `b` have injected; `null` for a port without an injector.
pub fn faults(of: [Option<Faults>; 2]) -> Value {
    let [a, b] = of.map(|of| of.map(|of| counters(fault_values(&of))));
    json!({ "a": a, "b": b })
}

/// The names of the injected faults of a port.
pub fn faults_names() -> Fields {
    counters(fault_values(&Faults::default()))
}

/// Names and values of the counters of the other side of a port: `rx` is from packtrain.
pub fn device_values(device: &DeviceCounters) -> [(&'static str, u64); 8] {
    named!(device: rx_packets rx_bytes rx_dropped rx_errors
                   tx_packets tx_bytes tx_dropped tx_errors)
}

/// Names and values of the injected faults.
pub fn fault_values(faults: &Faults) -> [(&'static str, u64); 5] {
    named!(faults: dropped duplicated corrupted delayed reordered)
}

/// Counters by name.
pub fn counters(values: impl IntoIterator<Item = (&'static str, u64)>) -> Fields {
    let values = values.into_iter();
    values
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect()
}

/// Wire packets lost, by reason; reasons that lost none are left out.
pub fn drops(drops: &DropSnapshot) -> Fields {
    counters(
        drops
            .nonzero()
            .map(|(reason, count)| (reason.name(), count)),
    )
}

/// The histograms of batch sizes of one or more queues, those of a kind added up.
pub fn batches<'a, Q>(queues: impl Iterator<Item = Q>) -> Value
where
    Q: Iterator<Item = (&'static str, &'a HistogramSnapshot)>,
{
    let mut sums: Vec<(&str, HistogramSnapshot)> = Vec::new();
    for (name, sizes) in queues.flatten() {
        match sums.iter_mut().find(|(other, _)| *other == name) {
            Some((_, sum)) => sum.merge(sizes),
            None => sums.push((name, sizes.clone())),
        }
    }
    let of_kind = |(name, sizes): &(&str, HistogramSnapshot)| {
        let buckets = sizes.buckets().map(|(least, count)| json!([least, count]));
        let value = json!({
            "p50": sizes.quantile(0.5),
            "p90": sizes.quantile(0.9),
            "p99": sizes.quantile(0.99),
            "max": sizes.max(),
            "sum": sizes.sum(),
            "count": sizes.count(),
            "buckets": buckets.collect::<Vec<_>>(),
        });
        ((*name).to_owned(), value)
    };
    Value::Object(sums.iter().map(of_kind).collect())
}
