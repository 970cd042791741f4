//! What a configuration made of captures, as JSON: with the keys of `packtrain replay --json`.

use super::grid::settings;
use packtrain_capture::Format;
use packtrain_capture::replay::{Delays, HISTOGRAM_FROM, InterfaceReport, Options, Report};
use packtrain_offload::coalesce::Semantics;
use packtrain_offload::offload::LinkType;
use serde_json::{Map, Value, json};

/// The document of one configuration: [`configuration`] and `headers_only` as `settings`,
/// [`input`] and [`figures`].
#[must_use]
pub fn summary(options: &Options, report: &Report) -> Map<String, Value> {
    let mut all = input(report);
    all.append(&mut figures(report));
    let mut settings = configuration(options);
    settings.insert("headers_only".into(), options.headers_only.into());
    all.insert("settings".into(), settings.into());
    all
}

/// The settings that a [`Grid`](super::Grid) has values of. Null is no limit.
#[must_use]
pub fn configuration(options: &Options) -> Map<String, Value> {
    let semantics = options.coalesce.unwrap_or_default();
    let config = options.config(semantics, LinkType::Ethernet);
    let words = settings(options).into_iter().take(2);
    let mut all = fields(json!({
        "flows": config.flows,
        "bytes_max": config.max_bytes,
        "packets": options.limits.packets,
        "ack_limit": (semantics == Semantics::Stream).then_some(config.ack_limit),
        "hold_ns": options.hold_ns,
        "queues": options.queues.max(1),
    }));
    all.extend(words.map(|(name, word)| (name.to_owned(), word.into())));
    all
}

/// What was read: the same for all configurations of a run.
#[must_use]
pub fn input(report: &Report) -> Map<String, Value> {
    let times = report.times;
    fields(json!({
        "format": match report.format {
            Format::Pcap { .. } => "pcap",
            Format::PcapNg => "pcapng",
        },
        "seconds": times.map(|times| (times.last_ns - times.first_ns) as f64 / 1e9),
        "clock_step_ns": times.map(|times| times.step_ns),
        "histogram_from": HISTOGRAM_FROM,
        "blocks_left_out": report.blocks_left_out,
        "unreadable": report.last_bad.map(|error| error.to_string()),
    }))
}

/// What the configuration made of it: a row for each interface, their total and the ledger.
#[must_use]
pub fn figures(report: &Report) -> Map<String, Value> {
    let rows = report.interfaces.iter().enumerate();
    let total = report.total();
    fields(json!({
        "rows": rows.map(|(index, seen)| row(index, seen)).collect::<Vec<_>>(),
        "total": {
            "packets": total.frames,
            "bytes": total.bytes,
            "flows": total.flows(),
            "emitted": total.emitted(),
            "ratio": total.ratio(),
            "skew": total.skew(),
            "delay_ns": delays(&total.delays),
        },
        "restored": report.restored,
        "differing": report.differing,
        "conservation": {
            "received": report.received,
            "generated": 0,
            "expanded": report.expanded,
            "transmitted": report.transmitted,
            "delivered": 0,
            "held": report.held,
            "absorbed": report.absorbed,
            "dropped": report.dropped,
            "closed": report.is_closed(),
        },
    }))
}

pub(super) fn row(index: usize, seen: &InterfaceReport) -> Value {
    let stats = &seen.stats;
    let flushes = stats.flushes.iter();
    let not_taken = stats.not_taken.iter();
    let queues = seen.queues.iter().map(
        |queue| json!({"packets": queue.packets, "bytes": queue.bytes, "emitted": queue.emitted}),
    );
    json!({
        "interface": index,
        "name": seen.name,
        "link": seen.link.0,
        "packets": seen.frames,
        "bytes": seen.bytes,
        "captured_bytes": seen.captured_bytes,
        "by_headers": seen.by_headers,
        "pure_acks": seen.pure_acks,
        "udp": seen.udp,
        "quic": seen.quic,
        "flows": seen.flows(),
        "held_max": seen.held_max,
        "emitted": seen.emitted(),
        "ratio": seen.ratio(),
        "histogram": seen.histogram,
        "delay_ns": delays(&seen.delays),
        "queues": queues.collect::<Vec<_>>(),
        "skew": seen.skew(),
        "gro_packets": stats.supers,
        "gro_wire_packets": stats.merged,
        "absorbed": stats.absorbed,
        "bad_checksums": stats.bad_checksums,
        "unfinished": seen.unfinished,
        "large": seen.large,
        "sorted_windows": stats.sorted_windows,
        "gro_flush": counters(flushes.map(|(reason, count)| (reason.name(), count))),
        "not_taken": counters(not_taken.map(|(reason, count)| (reason.name(), count))),
        "passed": {
            "cut_short": seen.cut_short,
            "other_link": seen.other_link,
            "no_length": seen.no_length,
            "not_cut": seen.not_cut,
        },
        "records": seen.records,
        "record_bytes": seen.record_bytes,
    })
}

fn delays(delays: &Delays) -> Value {
    json!({
        "p50": delays.quantile(0.5),
        "p99": delays.quantile(0.99),
        "max": delays.max(),
    })
}

fn counters(counts: impl Iterator<Item = (&'static str, u64)>) -> Map<String, Value> {
    counts
        .map(|(name, count)| (name.to_owned(), count.into()))
        .collect()
}

fn fields(object: Value) -> Map<String, Value> {
    match object {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}
