//! Charts of the rows, for pages.

use crate::loops::contest::Row;
use crate::loops::ours::{BEST_MODE, BEST_PEER};
use crate::loops::work::{Place, Work};
use packtrain_measure::chart::Lines;

/// Names of the files without their ending; the title, and what is across and up.
const CHARTS: [[&str; 4]; 7] = [
    ["load", "A load that depends on the one before", "KiB", "ns"],
    ["checksum", "Internet checksum, in cache", "bytes", "GB/s"],
    [
        "held",
        "Coalescing across bursts, 4 packets a flow",
        "flows",
        "ns a packet",
    ],
    [
        "modes",
        "Coalescing windows of 1024 packets",
        "flows",
        "ns a packet",
    ],
    [
        "acks",
        "Aggregating pure ACKs, 4 a connection",
        "connections",
        "ns an ACK",
    ],
    [
        "segment",
        "Segmenting TCP with copy and checksum",
        "segments",
        "ns a segment",
    ],
    [
        "group",
        "Grouping keys that are all different",
        "keys",
        "ns a key",
    ],
];

/// The chart in which a work is, and its point there if it takes `ns`.
fn point(work: Work, ns: f64) -> Option<(&'static str, (f64, f64))> {
    let flows = f64::from(work.flows());
    let bytes = work.bytes().unwrap_or(0) as f64;
    Some(match work {
        Work::Load { .. } => ("load", (work.footprint() as f64 / 1024.0, ns)),
        Work::Checksum {
            place: Place::Warm, ..
        } => ("checksum", (bytes, bytes / ns)),
        Work::Held { .. } => ("held", (flows, ns)),
        Work::Windows { .. } => ("modes", (flows, ns)),
        Work::Acks { .. } => ("acks", (flows, ns)),
        Work::SegmentCopy {
            udp: false,
            segments,
        } => ("segment", (segments as f64, ns)),
        Work::Group { n, distinct } if n == distinct => ("group", (flows, ns)),
        _ => return None,
    })
}

/// The charts of a run: our line first, then each peer's in the order in which it appears.
pub fn charts(rows: &[Row]) -> impl Iterator<Item = (&'static str, Lines)> {
    CHARTS.into_iter().map(move |[name, title, x, y]| {
        let mut lines = Lines::new(title, x, y);
        let mut add = |line: &str, row: &Row, ns: Option<f64>| {
            let point = ns.and_then(|ns| point(row.work, ns));
            if let Some((_, point)) = point.filter(|(chart, _)| *chart == name) {
                lines.add(line, point);
            }
        };
        for row in rows {
            add("packtrain", row, row.ours_ns);
        }
        let is_one = |row: &&Row| ![BEST_PEER, BEST_MODE].contains(&row.peer.as_str());
        for row in rows.iter().filter(is_one) {
            add(&row.peer, row, row.peer_ns);
        }
        (name, lines)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_chart_has_a_line_of_each_side() {
        let rows = Work::all().into_iter().map(|work| Row {
            ours_ns: Some(1.0),
            peer_ns: Some(2.0),
            ..Row::new(work, "peer")
        });
        let rows: Vec<Row> = rows.collect();
        for (name, lines) in charts(&rows) {
            let svg = lines.document().expect(name);
            assert!(
                svg.contains(">packtrain<") && svg.contains(">peer<"),
                "{svg}"
            );
        }
        let of = |row: &Row| point(row.work, 1.0).map(|(chart, _)| chart);
        for chart in rows.iter().filter_map(of) {
            assert!(CHARTS.iter().any(|[name, ..]| *name == chart), "{chart}");
        }
    }
}
