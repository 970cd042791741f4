//! Line charts as SVG, for pages.

use crate::loops::contest::Row;
use crate::loops::ours::{BEST_MODE, BEST_PEER};
use crate::loops::work::{Place, Work};
use std::fmt::Write as _;

/// Points that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// x and y, by x; both positive.
    pub points: Vec<(f64, f64)>,
}

/// A chart with logarithmic axes.
#[derive(Clone, Debug)]
pub struct Chart {
    /// File name without its ending.
    pub name: &'static str,
    /// Above the chart.
    pub title: &'static str,
    /// Below.
    pub x: &'static str,
    /// At the side.
    pub y: &'static str,
    /// Lines.
    pub series: Vec<Series>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 240.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
/// Colours that colour-blind readers can distinguish (Okabe and Ito 2008).
const COLORS: [&str; 8] = [
    "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#000000",
];

/// From numbers to places on the page.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (low, high) = values.fold((f64::INFINITY, 0.0_f64), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let (low, high) = (low.log10(), high.log10());
        // A single value lies in the middle of a decade.
        let pad = if high - low < 0.1 {
            0.5
        } else {
            0.04 * (high - low)
        };
        Self {
            low: low - pad,
            high: high + pad,
            from,
            to,
        }
    }

    fn place(&self, value: f64) -> f64 {
        let part = (value.log10() - self.low) / (self.high - self.low);
        self.from + part * (self.to - self.from)
    }

    /// Round numbers within the axis: 1, 2 and 5 of each decade, or only 1 of many decades.
    fn ticks(&self) -> Vec<f64> {
        let steps: &[f64] = if self.high - self.low > 3.0 {
            &[1.0]
        } else {
            &[1.0, 2.0, 5.0]
        };
        let decades = self.low.floor() as i32..=self.high.ceil() as i32;
        decades
            .flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)))
            .filter(|tick| (self.low..=self.high).contains(&tick.log10()))
            .collect()
    }
}

impl Chart {
    /// The chart as an SVG document; `None` if there is nothing to show.
    pub fn svg(&self) -> Option<String> {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let drawable = |(x, y): &(f64, f64)| *x > 0.0 && *y > 0.0 && x.is_finite() && y.is_finite();
        if points().next().is_none() || !points().all(drawable) {
            return None;
        }
        let x = Axis::new(points().map(|point| point.0), LEFT, WIDTH - RIGHT);
        let y = Axis::new(points().map(|point| point.1), HEIGHT - BOTTOM, TOP);
        let mut svg = String::new();
        // Writing to a string cannot fail.
        self.draw(&mut svg, &x, &y).ok()?;
        Some(svg)
    }

    fn draw(&self, svg: &mut String, x: &Axis, y: &Axis) -> std::fmt::Result {
        writeln!(
            svg,
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}""#
        )?;
        writeln!(
            svg,
            r#" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">"#
        )?;
        writeln!(svg, r#"<rect width="100%" height="100%" fill="white"/>"#)?;
        let (middle, bottom) = ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 12.0);
        let text = r#"<text text-anchor="middle""#;
        writeln!(
            svg,
            r#"{text} x="{middle}" y="24" font-size="15">{}</text>"#,
            self.title
        )?;
        writeln!(svg, r#"{text} x="{middle}" y="{bottom}">{}</text>"#, self.x)?;
        let side = HEIGHT / 2.0;
        writeln!(
            svg,
            r#"{text} transform="translate(16 {side}) rotate(-90)">{}</text>"#,
            self.y
        )?;
        for tick in x.ticks() {
            let (at, end) = (x.place(tick), HEIGHT - BOTTOM);
            writeln!(svg, r##"<path d="M{at:.1} {TOP}V{end}" stroke="#ddd"/>"##)?;
            let below = end + 16.0;
            writeln!(
                svg,
                r#"{text} x="{at:.1}" y="{below}">{}</text>"#,
                label(tick)
            )?;
        }
        for tick in y.ticks() {
            let (at, end) = (y.place(tick), WIDTH - RIGHT);
            writeln!(svg, r##"<path d="M{LEFT} {at:.1}H{end}" stroke="#ddd"/>"##)?;
            let (left, base) = (LEFT - 6.0, at + 4.0);
            writeln!(
                svg,
                r#"<text text-anchor="end" x="{left}" y="{base:.1}">{}</text>"#,
                label(tick)
            )?;
        }
        for (i, series) in self.series.iter().enumerate() {
            draw_series(svg, series, i, x, y)?;
        }
        writeln!(svg, "</svg>")
    }
}

fn draw_series(
    svg: &mut String,
    series: &Series,
    index: usize,
    x: &Axis,
    y: &Axis,
) -> std::fmt::Result {
    let color = COLORS[index % COLORS.len()];
    let mut path = String::new();
    for (i, (px, py)) in series.points.iter().enumerate() {
        let command = if i == 0 { 'M' } else { 'L' };
        let (px, py) = (x.place(*px), y.place(*py));
        write!(path, "{command}{px:.1} {py:.1}")?;
        writeln!(
            svg,
            r#"<circle cx="{px:.1}" cy="{py:.1}" r="3" fill="{color}"/>"#
        )?;
    }
    let width = if index == 0 { 3 } else { 1 };
    writeln!(
        svg,
        r#"<path d="{path}" fill="none" stroke="{color}" stroke-width="{width}"/>"#
    )?;
    let (left, top) = (WIDTH - RIGHT + 16.0, TOP + 10.0 + 20.0 * index as f64);
    let (end, base) = (left + 20.0, top + 4.0);
    writeln!(
        svg,
        r#"<path d="M{left} {top}H{end}" stroke="{color}" stroke-width="{width}"/>"#
    )?;
    let at = end + 6.0;
    writeln!(
        svg,
        r#"<text x="{at}" y="{base}">{}</text>"#,
        escaped(&series.name)
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

fn label(tick: f64) -> String {
    if tick >= 1.0 {
        format!("{tick:.0}")
    } else {
        format!("{}", (tick * 1000.0).round() / 1000.0)
    }
}

/// Ours first, then each peer in the order in which it appears.
fn series(rows: &[Row], y: impl Fn(&Row, f64) -> f64, x: impl Fn(&Row) -> f64) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    let mut add = |name: &str, x: f64, y: f64| {
        let at = all.iter().position(|series| series.name == name);
        let series = match at {
            Some(at) => &mut all[at],
            None => {
                all.push(Series {
                    name: name.to_owned(),
                    points: Vec::new(),
                });
                let last = all.len() - 1;
                &mut all[last]
            }
        };
        if series.points.iter().all(|point| point.0 != x) {
            series.points.push((x, y));
        }
    };
    for row in rows {
        if let Some(ns) = row.ours_ns {
            add("packtrain", x(row), y(row, ns));
        }
    }
    let is_one = |row: &&Row| ![BEST_PEER, BEST_MODE].contains(&row.peer.as_str());
    for row in rows.iter().filter(is_one) {
        if let Some(ns) = row.peer_ns {
            add(&row.peer, x(row), y(row, ns));
        }
    }
    for series in &mut all {
        series.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    all
}

/// The charts of a run.
pub fn charts(rows: &[Row]) -> Vec<Chart> {
    let of = |wanted: &dyn Fn(Work) -> bool| -> Vec<Row> {
        rows.iter()
            .filter(|row| wanted(row.work))
            .cloned()
            .collect()
    };
    let ns = |_: &Row, ns: f64| ns;
    let flows = |row: &Row| f64::from(row.work.flows());
    let checksum = of(&|work| {
        matches!(
            work,
            Work::Checksum {
                place: Place::Warm,
                ..
            }
        )
    });
    let bandwidth = |row: &Row, ns: f64| row.work.bytes().unwrap_or(0) as f64 / ns;
    let bytes = |row: &Row| row.work.bytes().unwrap_or(0) as f64;
    let held = of(&|work| matches!(work, Work::Held { .. }));
    let windows = of(&|work| matches!(work, Work::Windows { .. }));
    let loads = of(&|work| matches!(work, Work::Load { .. }));
    let footprint = |row: &Row| row.work.footprint() as f64 / 1024.0;
    let cut = of(&|work| matches!(work, Work::SegmentCopy { udp: false, .. }));
    let segments = |row: &Row| match row.work {
        Work::SegmentCopy { segments, .. } => segments as f64,
        _ => 0.0,
    };
    let distinct = of(&|work| matches!(work, Work::Group { n, distinct } if n == distinct));
    let acks = of(&|work| matches!(work, Work::Acks { .. }));
    vec![
        Chart {
            name: "load",
            title: "A load that depends on the one before",
            x: "KiB",
            y: "ns",
            series: series(&loads, ns, footprint),
        },
        Chart {
            name: "checksum",
            title: "Internet checksum, in cache",
            x: "bytes",
            y: "GB/s",
            series: series(&checksum, bandwidth, bytes),
        },
        Chart {
            name: "held",
            title: "Coalescing across bursts, 4 packets a flow",
            x: "flows",
            y: "ns a packet",
            series: series(&held, ns, flows),
        },
        Chart {
            name: "modes",
            title: "Coalescing windows of 1024 packets",
            x: "flows",
            y: "ns a packet",
            series: series(&windows, ns, flows),
        },
        Chart {
            name: "acks",
            title: "Aggregating pure ACKs, 4 a connection",
            x: "connections",
            y: "ns an ACK",
            series: series(&acks, ns, flows),
        },
        Chart {
            name: "segment",
            title: "Segmenting TCP with copy and checksum",
            x: "segments",
            y: "ns a segment",
            series: series(&cut, ns, segments),
        },
        Chart {
            name: "group",
            title: "Grouping keys that are all different",
            x: "keys",
            y: "ns a key",
            series: series(&distinct, ns, flows),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_has_its_lines_and_no_nonsense() {
        let mut chart = Chart {
            name: "x",
            title: "x",
            x: "x",
            y: "y",
            series: vec![Series {
                name: "a < b".to_owned(),
                points: vec![(1.0, 10.0), (80_000.0, 30.0)],
            }],
        };
        let svg = chart.svg().unwrap();
        assert!(svg.contains("a &lt; b") && !svg.contains("NaN") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<circle").count(), 2);
        chart.series[0].points.push((1.0, 0.0));
        assert_eq!(chart.svg(), None);
        chart.series.clear();
        assert_eq!(chart.svg(), None);
    }
}
