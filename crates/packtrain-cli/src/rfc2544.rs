//! `packtrain rfc2544`: throughput by frame size beside that of the kernel, with latency, loss and
//! bursts.

use crate::args::{Rfc2544Args, word};
use crate::exit::Failure;
use crate::json;
use crate::print::{self, Style};
use crate::table::{Align, Table, bar, grouped};
use crate::tool;
use indexmap::IndexMap;
use packtrain::engine::Report;
use packtrain_lab::ToolError;
use packtrain_lab::testbed::{TestbedOptions, Through};
use packtrain_lab::tool::{self as lab, Control, Measured};
use packtrain_lab::tools::ping::Times;
use packtrain_lab::tools::rfc2544::{Bursts, Figures, Rfc2544, Settings, Throughput};
use serde_json::{Map, Value};
use std::iter::repeat;

/// Bytes of an Ethernet frame around its IP packet: header and FCS.
const ETHERNET: u32 = 18;

/// Bytes of preamble and gap that a frame takes on a cable.
const BETWEEN_FRAMES: f64 = 20.0;

/// Bits per second of the line that percentages are of. The kernel's hosts have no line: this one
/// makes the table comparable with those of testers.
const LINE: f64 = 10e9;

/// Columns of the bars for each step of the scale, which has ten.
const STEP_COLUMNS: usize = 3;

/// The result of one frame size through one device.
struct Row {
    size: u32,
    through: Through,
    measured: Measured<Settings, Figures>,
    report: Option<Box<Report>>,
}

/// Runs the command.
///
/// # Errors
///
/// If a testbed cannot be made, a trial fails, or packets are not accounted for.
pub fn run(args: &Rfc2544Args) -> Result<(), Failure> {
    let common = &args.common;
    let Some(rows) = tool::controlled(common.quiet, |control| measure(args, control))? else {
        return Ok(());
    };
    if common.json {
        json::write(document(rows))
    } else {
        print::output(&text(&rows, Style::stdout()))
    }
}

/// Measures every frame size through every device. Which device is first alternates, so that a
/// machine that becomes slower does so for all.
fn measure(args: &Rfc2544Args, control: &Control<'_>) -> Result<Vec<Row>, ToolError> {
    let mut devices = vec![args.common.testbed.through];
    for device in &args.beside.0 {
        if !devices.contains(device) {
            devices.push(*device);
        }
    }
    let largest = args.sizes.iter().max().copied().unwrap_or(0);
    let mut rows = Vec::new();
    for (index, size) in args.sizes.iter().enumerate() {
        let mut of_size = Vec::new();
        for turn in 0..devices.len() {
            let device = (index + turn) % devices.len();
            let through = devices[device];
            let say = |line: &str| {
                let (done, all) = (rows.len() + turn, args.sizes.len() * devices.len());
                let name = word(&through);
                (control.progress)(&format!("{} of {all}: through {name}: {line}", done + 1));
            };
            let control = Control {
                stop: control.stop.clone(),
                progress: &say,
            };
            let testbed = TestbedOptions {
                through,
                mtu: args
                    .common
                    .testbed
                    .mtu
                    .max(largest.saturating_sub(ETHERNET)),
                ..args.common.testbed.clone()
            };
            let tool = Rfc2544 {
                size: *size,
                ..args.common.tool.clone()
            };
            if control.stopped() {
                break;
            }
            match lab::measure(&testbed, &tool, &control) {
                Ok(measured) => of_size.push((device, size, through, measured)),
                Err(ToolError::Cancelled) => break,
                Err(error) => return Err(error),
            }
        }
        of_size.sort_by_key(|(device, ..)| *device);
        rows.extend(
            of_size
                .into_iter()
                .map(|(_, size, through, (measured, ended))| Row {
                    size: *size,
                    through,
                    measured,
                    report: ended.report,
                }),
        );
    }
    if rows.is_empty() {
        return Err(ToolError::Cancelled);
    }
    Ok(rows)
}

fn document(rows: Vec<Row>) -> Map<String, Value> {
    let mut document = json::document("rfc2544");
    let rows = rows.into_iter().map(|row| {
        let mut value = tool::row("rfc2544", row.measured);
        if let (Some(report), Some(value)) = (&row.report, value.as_object_mut()) {
            let snapshot = &report.snapshot;
            value.insert("drops".into(), json::drops(&snapshot.drops));
            value.insert("conservation".into(), json::conservation(&snapshot.ledger));
        }
        value
    });
    document.insert("rows".into(), rows.collect());
    document
}

/// The tables.
fn text(rows: &[Row], style: Style) -> String {
    let is_interrupted = rows.iter().any(|row| row.measured.is_interrupted());
    let mut text = tool::interrupted(is_interrupted).to_owned();
    text.push_str(&throughput(rows, style));
    text.push('\n');
    text.push_str(&bounds(rows, style));
    let latency = columns(
        rows,
        "round trips in us beside a load of this share of the throughput: median, 99 %",
        |row| {
            let latency = row.measured.figures.latency.as_ref()?;
            Some(of_each(&latency.latency_us, |_, times| round_trip(times)))
        },
        style,
    );
    let loss = columns(
        rows,
        "frames lost in percent at this share of what a sender sends flat out; in brackets those \
         of them that the receiver's socket lost, not the device",
        |row| {
            let of = row.measured.figures.loss.as_ref()?;
            let at_socket = |share: &str| of.loss_at_socket_percent.get(share).copied();
            let cell = |share: &str, lost: &f64| loss(*lost, at_socket(share));
            Some(of_each(&of.loss_percent, cell))
        },
        style,
    );
    for table in [latency, loss] {
        text.push('\n');
        text.push_str(&table);
    }
    for row in rows {
        for flag in &row.measured.flags {
            let through = word(&row.through);
            let line = format!(
                "not to be judged: {} bytes through {through}: {flag}\n",
                row.size
            );
            text.push_str(&line);
        }
    }
    text
}

impl Row {
    /// The throughput of the first goal; `None` if the search was stopped.
    fn throughput(&self) -> Option<&Throughput> {
        Some(&self.measured.figures.search.as_ref()?.first)
    }

    /// The results of all goals, by loss ratio.
    fn goals(&self) -> impl Iterator<Item = (&String, &Throughput)> {
        let search = self.measured.figures.search.iter();
        search.flat_map(|search| &search.goals)
    }

    /// The first cells of a row. The size is only in the first row that has it.
    fn cells(&self, before: Option<&Self>) -> Vec<String> {
        let is_same = before.is_some_and(|before| before.size == self.size);
        let size = if is_same {
            String::new()
        } else {
            self.size.to_string()
        };
        vec![size, word(&self.through)]
    }
}

/// Every row, and the one before it.
fn pairs(rows: &[Row]) -> impl Iterator<Item = (&Row, Option<&Row>)> {
    let before = std::iter::once(None).chain(rows.iter().map(Some));
    rows.iter().zip(before)
}

/// Throughput by frame size, with bars.
fn throughput(rows: &[Row], style: Style) -> String {
    let all = rows.iter().filter_map(Row::throughput);
    let most = all.map(|of| of.throughput_gbps);
    let most = most.fold(LINE / 1e9, f64::max);
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
    let step = steps
        .into_iter()
        .find(|step| 10.0 * step >= most)
        .unwrap_or(100.0);
    let tick = |tick: u32| match tick {
        // Two digits and a space have no room.
        1 | 3 | 5 | 7 | 9 if step > 1.0 => String::new(),
        _ => format!("{}G", f64::from(tick) * step),
    };
    let scale: String = (0..10)
        .map(|number| format!("{:<STEP_COLUMNS$}", tick(number)))
        .collect();
    let mut table = Table::new([
        ("frame", Align::Right),
        ("through", Align::Left),
        (&format!("{scale}{}Gbps", 10.0 * step), Align::Bar),
        ("Mb/s", Align::Right),
        ("pps", Align::Right),
        ("of pps", Align::Right),
        ("%", Align::Right),
    ]);
    for (row, before) in pairs(rows) {
        let line = LINE / 8.0 / (f64::from(row.size) + BETWEEN_FRAMES);
        let of_line = grouped(line as u64);
        let mut cells = row.cells(before);
        cells.extend(match row.throughput() {
            None => ["", NOT_MEASURED, NOT_MEASURED, &of_line, NOT_MEASURED].map(str::to_owned),
            Some(of) => {
                let (gbps, pps) = (of.throughput_gbps, of.throughput_kpps * 1e3);
                // Above it the sender sends nothing.
                let at_least = if of.end == "at_max" { ">= " } else { "" };
                [
                    bar(gbps, 10.0 * step, 10 * STEP_COLUMNS),
                    format!("{:.2}", gbps * 1e3),
                    format!("{at_least}{}", grouped(pps as u64)),
                    of_line,
                    format!("{:.2}", 100.0 * pps / line),
                ]
            }
        });
        table.row(cells);
    }
    let ratio = rows
        .first()
        .and_then(|row| Some(row.goals().next()?.0.as_str()));
    format!(
        "throughput at a loss ratio of {}; 100 % is 10 Gb/s Ethernet\n{}",
        ratio.unwrap_or("0"),
        table.render(0, style)
    )
}

/// Relevant bounds of each goal, what limits, and the longest burst.
fn bounds(rows: &[Row], style: Style) -> String {
    let mut table = Table::new([
        ("frame", Align::Right),
        ("through", Align::Left),
        ("loss ratio", Align::Right),
        ("kpps", Align::Right),
        ("lower", Align::Right),
        ("upper", Align::Right),
        ("limit", Align::Left),
        ("back to back", Align::Right),
    ]);
    for (row, before) in pairs(rows) {
        for (index, (ratio, goal)) in row.goals().enumerate() {
            let cell = |kpps: f64| format!("{kpps:.1}");
            let bound = |bound: Option<f64>| bound.map_or_else(String::new, cell);
            let limit = match goal.end {
                "time_limit" => "time limit",
                _ => goal.limit.unwrap_or(""),
            };
            let mut cells = if index == 0 {
                row.cells(before)
            } else {
                vec![String::new(); 2]
            };
            cells.extend([
                ratio.clone(),
                cell(goal.throughput_kpps),
                bound(goal.lower_kpps),
                bound(goal.upper_kpps),
                limit.to_owned(),
            ]);
            if index == 0 {
                let bursts = row.measured.figures.bursts.as_ref();
                cells.push(bursts.map_or_else(|| NOT_MEASURED.to_owned(), longest));
            }
            table.row(cells);
        }
    }
    format!(
        "throughput in kpps with its bounds, and the longest burst that arrived, in frames\n{}",
        table.render(0, style)
    )
}

/// The cell of what was not measured.
const NOT_MEASURED: &str = "-";

/// The longest burst that arrived; that of all frames that were tried is not the device's limit.
fn longest(bursts: &Bursts) -> String {
    let frames = bursts.back_to_back_frames;
    let is_all = frames > 0 && frames >= bursts.back_to_back_tried_frames;
    let at_least = if is_all { ">= " } else { "" };
    format!("{at_least}{}", grouped(frames))
}

/// What was measured at each of several loads: the share in percent, and a cell.
type Shares = Vec<(String, String)>;

fn of_each<T>(all: &IndexMap<String, T>, cell: impl Fn(&str, &T) -> String) -> Shares {
    let cells = all.iter();
    cells
        .map(|(share, value)| (share.clone(), cell(share, value)))
        .collect()
}

/// A table with a column for each share. `of` has those of a row.
fn columns(rows: &[Row], title: &str, of: impl Fn(&Row) -> Option<Shares>, style: Style) -> String {
    let all = rows.iter().map(|row| of(row).unwrap_or_default());
    let all: Vec<Shares> = all.collect();
    let longest = all.iter().max_by_key(|shares| shares.len());
    let shares = longest.into_iter().flatten();
    let names = [("frame", Align::Right), ("through", Align::Left)];
    let names = names.map(|(name, align)| (name.to_owned(), align));
    let heads = shares.map(|(share, _)| (format!("{share} %"), Align::Right));
    let heads: Vec<_> = heads.collect();
    if heads.is_empty() {
        return format!("{title}: not measured\n");
    }
    let columns = heads.len();
    let mut table = Table::new(names.into_iter().chain(heads));
    for ((row, before), shares) in pairs(rows).zip(&all) {
        let measured = shares.iter().map(|(_, cell)| cell.as_str());
        let cells = measured.chain(repeat(NOT_MEASURED)).take(columns);
        table.row(
            row.cells(before)
                .into_iter()
                .chain(cells.map(str::to_owned)),
        );
    }
    format!("{title}\n{}", table.render(0, style))
}

fn round_trip(of: &Times) -> String {
    let time = |time: Option<f64>| time.unwrap_or(0.0);
    format!("{:.0}, {:.0}", time(of.p50), time(of.p99))
}

/// The loss at a load, with that at the receiver's socket if it lost any.
fn loss(percent: f64, at_socket: Option<f64>) -> String {
    match at_socket {
        Some(at_socket) if at_socket > 0.0 => format!("{percent:.2} ({at_socket:.2})"),
        _ => format!("{percent:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packtrain_lab::tools::rfc2544::{Latency, Loss, Search};

    fn named<T>(values: impl IntoIterator<Item = (&'static str, T)>) -> IndexMap<String, T> {
        let values = values.into_iter();
        values
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    fn times(p50: f64, p99: f64) -> Times {
        Times {
            p50: Some(p50),
            p99: Some(p99),
            ..Times::default()
        }
    }

    fn row(size: u32, through: Through, kpps: f64) -> Row {
        let first = Throughput {
            throughput_kpps: kpps,
            throughput_gbps: kpps * f64::from(size) * 8.0 / 1e6,
            lower_kpps: Some(kpps),
            upper_kpps: Some(kpps * 1.02),
            limit: Some("device"),
            end: "regular",
            ..Throughput::default()
        };
        let second = Throughput {
            upper_kpps: None,
            limit: Some("sender"),
            end: "at_max",
            ..first.clone()
        };
        let goals = [("0", first.clone()), ("0.005", second)];
        let latency = [("0", times(20.4, 55.0)), ("90", times(100.0, 5000.0))];
        let figures = Figures {
            flat_out_kpps: None,
            search: Some(Search {
                first,
                goals: named(goals),
                ..Search::default()
            }),
            latency: Some(Latency {
                latency_us: named(latency),
                ..Latency::default()
            }),
            loss: Some(Loss {
                loss_percent: named([("100", 1.5), ("90", 2.5), ("80", 0.0)]),
                loss_at_socket_percent: named([("100", 0.0), ("90", 1.25), ("80", 0.0)]),
            }),
            bursts: Some(Bursts {
                back_to_back_frames: 12_345,
                back_to_back_tried_frames: 20_000,
            }),
        };
        let measured = Measured {
            figures,
            flags: vec!["a reason".to_owned()],
            ..Measured::default()
        };
        Row {
            size,
            through,
            measured,
            report: None,
        }
    }

    #[test]
    fn only_a_sender_at_its_limit_makes_a_throughput_a_least_one() {
        let text_of = |end: &'static str, limit: Option<&'static str>| {
            let mut row = row(64, Through::Packtrain, 1.0);
            let first = Throughput {
                end,
                limit,
                ..row.throughput().expect("a search").clone()
            };
            let figures = &mut row.measured.figures;
            figures.search = Some(Search {
                goals: named([("0", first.clone())]),
                first,
                ..Search::default()
            });
            // No throughput, so no latency beside a load.
            figures.latency = Some(Latency {
                latency_us: named([("0", times(20.4, 55.0))]),
                ..Latency::default()
            });
            text(&[row], Style::PLAIN)
        };
        let text = text_of("at_max", Some("sender"));
        assert!(
            text.contains(">= 1,000") && text.contains(" sender "),
            "{text}"
        );
        assert!(text.contains("frame  through       0 %\n"), "{text}");
        let text = text_of("time_limit", None);
        assert!(
            !text.contains(">= 1,000") && text.contains(" time limit "),
            "{text}"
        );
        let text = text_of("regular", Some("receiver"));
        assert!(
            !text.contains(">= 1,000") && text.contains(" receiver "),
            "{text}"
        );
    }

    #[test]
    fn the_table_is_that_of_ipgen() {
        // The first and the last line of a table of ipgen, through OpenBSD's iavf driver.
        let rows = [
            row(64, Through::Packtrain, 581.259),
            row(1518, Through::Packtrain, 558.761),
            row(1518, Through::Bridge, 800.0),
        ];
        let text = text(&rows, Style::PLAIN);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[1],
            "frame  through    0G 1G 2G 3G 4G 5G 6G 7G 8G 9G 10Gbps     Mb/s      pps      of pps \
             \u{20}    %"
        );
        assert_eq!(
            lines[2],
            "   64  packtrain  ▉                                      297.60  581,259  14,880,952 \
             \u{20} 3.91"
        );
        assert_eq!(
            lines[3],
            " 1518  packtrain  ████████████████████▍                 6785.59  558,761     812,743 \
             \u{20}68.75"
        );
        assert!(lines[4].starts_with("       bridge     ██████"), "{text}");
        for part in [
            "loss ratio of 0;",
            "   64  packtrain           0  581.3  581.3  592.9  device        12,345\n",
            "                       0.005  581.3  581.3         sender\n",
            "frame  through       0 %       90 %\n   64  packtrain  20, 55  100, 5000\n",
            "frame  through    100 %         90 %  80 %\n",
            "   64  packtrain   1.50  2.50 (1.25)  0.00\n",
            "not to be judged: 1518 bytes through bridge: a reason\n",
        ] {
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
    }

    #[test]
    fn what_an_interrupted_search_did_not_measure_is_a_dash() {
        let whole = row(64, Through::Packtrain, 581.0);
        let mut bare = row(64, Through::Bridge, 0.0);
        bare.measured.figures = Figures {
            flat_out_kpps: Some(900.0),
            ..Figures::default()
        };
        bare.measured.flags = vec!["interrupted before the end".to_owned()];
        let mut part = row(128, Through::Packtrain, 581.0);
        part.measured.figures.bursts = None;
        part.measured.figures.latency = None;
        let text = text(&[whole, bare, part], Style::PLAIN);
        for line in [
            "interrupted: these are the figures until then\n",
            "       bridge                                                -        -  14,880,952",
            "       bridge          -          -\n",
            "  128  packtrain           0  581.0  581.0  592.6  device             -\n",
        ] {
            assert!(text.contains(line), "{line:?} in\n{text}");
        }
        let mut rows = [row(64, Through::Packtrain, 581.0)];
        rows[0].measured.figures.loss = None;
        let text = super::text(&rows, Style::PLAIN);
        assert!(text.contains("not the device: not measured\n"), "{text}");
    }

    #[test]
    fn the_scale_grows_with_the_throughput() {
        let mut row = row(9000, Through::Veth, 500.0);
        let search = row.measured.figures.search.as_mut().expect("a search");
        search.first.end = "at_max";
        let text = text(&[row], Style::PLAIN);
        assert!(text.contains("  36000.00  >= 500,000  "), "{text}");
        assert!(
            text.contains("0G    10G   20G   30G   40G   50Gbps"),
            "{text}"
        );
    }
}
