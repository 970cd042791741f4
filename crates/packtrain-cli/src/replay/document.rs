//! What a replay found, as JSON.

use super::args::{ReplayArgs, Switch};
use super::found::{Found, ledger};
use super::tables::{Reason, held, not_held, not_seen, ratio};
use crate::args::word;
use crate::json;
use packtrain_capture::Format;
use packtrain_capture::replay::{
    Delays, HISTOGRAM_FROM, InterfaceReport, Options, QueueReport, Report, Segment,
};
use packtrain_lab::experiment::counters::counters;
use packtrain_offload::coalesce::{Mode, Semantics};
use packtrain_offload::offload::LinkType;
use serde_json::{Map, Value, json};

/// The document: of several configurations, each one that ran is an element of `runs`.
pub fn of(args: &ReplayArgs, found: &Found) -> Map<String, Value> {
    let mut document = json::document("replay");
    let mut settings = common(args, found);
    let all: Vec<_> = found.runs.iter().zip(&found.reports).collect();
    let figures = match all[..] {
        [(options, report)] if found.listed == 1 => {
            settings.append(&mut configuration(options));
            of_one(report)
        }
        _ => {
            let runs = all.iter().map(|(options, report)| {
                let mut run = json::fields(&json!({"settings": configuration(options)}));
                run.append(&mut of_one(report));
                run
            });
            let runs: Vec<_> = runs.collect();
            json::fields(&json!({ "runs": runs }))
        }
    };
    document.insert("settings".into(), settings.into());
    if let Some(report) = found.reports.first() {
        document.append(&mut read(report, found.stopped));
    }
    document.extend(figures);
    let stored = found.stored.as_ref().map(|stored| {
        json!({
            "folder": stored.folder,
            "dataset": stored.dataset,
            "written": stored.written,
            "kept": stored.kept,
        })
    });
    document.insert("parquet".into(), stored.into());
    document
}

/// The settings of all configurations.
fn common(args: &ReplayArgs, found: &Found) -> Map<String, Value> {
    json::fields(&json!({
        "input": found.inputs.first(),
        "inputs": found.inputs,
        "output": args.output,
        "inactive": args.gro_inactive == Switch::On,
        "flush": args.gro_flush.to_string(),
        "id": word(&args.gro_id),
        "rx_pause": args.rx_pause,
        "segment": match args.segment {
            Segment::Off => Value::from("off"),
            Segment::Original => Value::from("original"),
            Segment::Mtu(mtu) => Value::from(mtu),
        },
        "headers_only": args.headers_only,
        "user0": args.user0.as_ref().map(word),
    }))
}

/// The settings that differ.
fn configuration(options: &Options) -> Map<String, Value> {
    let semantics = options.coalesce.unwrap_or_default();
    let config = options.config(semantics, LinkType::Ethernet);
    let stream = semantics == Semantics::Stream;
    json::fields(&json!({
        "coalesce": match options.coalesce {
            Some(Semantics::Reversible) => "reversible",
            Some(Semantics::Stream) => "stream",
            None => "off",
        },
        "mode": match options.mode {
            Mode::Hash => "hash",
            Mode::Sorted => "sorted",
            Mode::Auto => "auto",
        },
        "flows": config.flows,
        "bytes_max": config.max_bytes,
        "packets": options.limits.packets,
        "ack_limit": stream.then_some(config.ack_limit),
        "hold_ns": options.hold_ns,
        "queues": options.queues,
    }))
}

/// What was read, and how that ended: the same for all configurations.
fn read(report: &Report, stopped: bool) -> Map<String, Value> {
    let times = report.times;
    let seconds = times.map(|times| (times.last_ns - times.first_ns) as f64 / 1e9);
    json::fields(&json!({
        "format": match report.format {
            Format::Pcap { .. } => "pcap",
            Format::PcapNg => "pcapng",
        },
        "seconds": seconds,
        "clock_step_ns": times.map(|times| times.step_ns),
        "histogram_from": HISTOGRAM_FROM,
        "blocks_left_out": report.blocks_left_out,
        "stopped": stopped,
        "unreadable": report.last_bad.map(|error| error.to_string()),
    }))
}

/// What one configuration made of it.
fn of_one(report: &Report) -> Map<String, Value> {
    let rows = report.interfaces.iter().enumerate();
    let total = report.total();
    json::fields(&json!({
        "rows": rows.map(|(index, seen)| row(index, seen)).collect::<Vec<_>>(),
        "total": {
            "packets": total.frames,
            "bytes": total.bytes,
            "flows": total.flows(),
            "emitted": total.emitted(),
            "ratio": ratio(&total),
            "skew": total.skew(),
            "delay_ns": delays(&total.delays),
        },
        "restored": report.restored,
        "differing": report.differing,
        "conservation": json::conservation(&ledger(report)),
    }))
}

fn delays(delays: &Delays) -> Value {
    json!({
        "p50": delays.quantile(0.5),
        "p99": delays.quantile(0.99),
        "max": delays.max(),
    })
}

fn object(reasons: Vec<Reason>) -> Map<String, Value> {
    let counts = reasons.into_iter();
    counters(counts.map(|(name, count, _)| (name, count)))
}

fn row(index: usize, seen: &InterfaceReport) -> Value {
    let stats = &seen.stats;
    let queues = seen.queues.iter().map(|queue| {
        let QueueReport {
            packets,
            bytes,
            emitted,
            ..
        } = *queue;
        json!({"packets": packets, "bytes": bytes, "emitted": emitted})
    });
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
        "ratio": ratio(seen),
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
        "gro_flush": object(held(seen)),
        "not_taken": object(not_held(seen)),
        "passed": object(not_seen(seen)),
        "records": seen.records,
        "record_bytes": seen.record_bytes,
    })
}
