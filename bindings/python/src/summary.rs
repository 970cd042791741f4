//! The summary of a run: the keys of `packtrain replay --json`.

use packtrain_capture::Format;
use packtrain_capture::replay::{Delays, HISTOGRAM_FROM, InterfaceReport, Options, Report};
use packtrain_offload::coalesce::Semantics;
use packtrain_offload::offload::LinkType;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Sets keys of a dict.
macro_rules! dict {
    ($py:expr, $($key:literal: $value:expr,)*) => {{
        let dict = PyDict::new($py);
        $(dict.set_item($key, $value)?;)*
        dict
    }};
}

fn settings<'py>(py: Python<'py>, options: &Options) -> PyResult<Bound<'py, PyDict>> {
    let semantics = options.coalesce.unwrap_or_default();
    let config = options.config(semantics, LinkType::Ethernet);
    let stream = semantics == Semantics::Stream;
    let words: Vec<_> = packtrain_replay::settings(options);
    let word = |key| {
        words
            .iter()
            .find(|(name, _)| *name == key)
            .map(|(_, word)| &word[..])
    };
    Ok(dict!(py,
        "coalesce": word("coalesce"),
        "mode": word("mode"),
        "flows": config.flows,
        "bytes_max": config.max_bytes,
        "ack_limit": stream.then_some(config.ack_limit),
        "packets": options.limits.packets,
        "hold_ns": options.hold_ns,
        "queues": options.queues.max(1),
        "headers_only": options.headers_only,
    ))
}

/// Counters by name.
fn counters<'py>(
    py: Python<'py>,
    counts: impl IntoIterator<Item = (&'static str, u64)>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, count) in counts {
        dict.set_item(name, count)?;
    }
    Ok(dict)
}

fn delays<'py>(py: Python<'py>, delays: &Delays) -> PyResult<Bound<'py, PyDict>> {
    let shares = [("p50", 0.5), ("p99", 0.99)].map(|(name, share)| (name, delays.quantile(share)));
    counters(py, shares.into_iter().chain([("max", delays.max())]))
}

/// Packets that went into the coalescer for each that came out.
fn ratio(seen: &InterfaceReport) -> f64 {
    seen.frames as f64 / seen.emitted().max(1) as f64
}

fn row<'py>(py: Python<'py>, index: usize, seen: &InterfaceReport) -> PyResult<Bound<'py, PyDict>> {
    let stats = &seen.stats;
    let held = stats
        .flushes
        .iter()
        .map(|(reason, count)| (reason.name(), count));
    let not_taken = stats
        .not_taken
        .iter()
        .map(|(reason, count)| (reason.name(), count));
    let passed = [
        ("cut_short", seen.cut_short),
        ("other_link", seen.other_link),
        ("no_length", seen.no_length),
        ("not_cut", seen.not_cut),
    ];
    let queues = seen.queues.iter().map(|queue| {
        let counts = [
            ("packets", queue.packets),
            ("bytes", queue.bytes),
            ("emitted", queue.emitted),
        ];
        counters(py, counts)
    });
    Ok(dict!(py,
        "interface": index,
        "name": &seen.name,
        "link": seen.link.0,
        "packets": seen.frames,
        "bytes": seen.bytes,
        "captured_bytes": seen.captured_bytes,
        "flows": seen.flows(),
        "held_max": seen.held_max,
        "emitted": seen.emitted(),
        "ratio": ratio(seen),
        "histogram": seen.histogram.to_vec(),
        "gro_packets": stats.supers,
        "gro_wire_packets": stats.merged,
        "absorbed": stats.absorbed,
        "bad_checksums": stats.bad_checksums,
        "unfinished": seen.unfinished,
        "large": seen.large,
        "sorted_windows": stats.sorted_windows,
        "gro_flush": counters(py, held)?,
        "not_taken": counters(py, not_taken)?,
        "passed": counters(py, passed)?,
        "records": seen.records,
        "record_bytes": seen.record_bytes,
        "by_headers": seen.by_headers,
        "pure_acks": seen.pure_acks,
        "udp": seen.udp,
        "quic": seen.quic,
        "delay_ns": delays(py, &seen.delays)?,
        "queues": queues.collect::<PyResult<Vec<_>>>()?,
        "skew": seen.skew(),
    ))
}

/// The summary.
pub fn summary<'py>(
    py: Python<'py>,
    options: &Options,
    report: &Report,
) -> PyResult<Bound<'py, PyDict>> {
    let rows = report.interfaces.iter().enumerate();
    let rows = rows.map(|(index, seen)| row(py, index, seen));
    let total = report.total();
    let total = dict!(py,
        "packets": total.frames,
        "bytes": total.bytes,
        "flows": total.flows(),
        "emitted": total.emitted(),
        "ratio": ratio(&total),
        "skew": total.skew(),
        "delay_ns": delays(py, &total.delays)?,
    );
    let times = report.times;
    let conservation = dict!(py,
        "received": report.received,
        "generated": 0,
        "expanded": report.expanded,
        "transmitted": report.transmitted,
        "delivered": 0,
        "held": report.held,
        "absorbed": report.absorbed,
        "dropped": report.dropped,
        "closed": report.is_closed(),
    );
    Ok(dict!(py,
        "settings": settings(py, options)?,
        "format": match report.format {
            Format::Pcap { .. } => "pcap",
            Format::PcapNg => "pcapng",
        },
        "seconds": times.map(|times| (times.last_ns - times.first_ns) as f64 / 1e9),
        "clock_step_ns": times.map(|times| times.step_ns),
        "histogram_from": HISTOGRAM_FROM.to_vec(),
        "rows": rows.collect::<PyResult<Vec<_>>>()?,
        "total": total,
        "blocks_left_out": report.blocks_left_out,
        "restored": report.restored,
        "differing": report.differing,
        "stopped": false,
        "unreadable": report.last_bad.map(|error| error.to_string()),
        "conservation": conservation,
    ))
}
