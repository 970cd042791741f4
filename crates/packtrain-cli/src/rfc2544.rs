//! `packtrain rfc2544`: throughput by frame size beside that of the kernel, with latency, loss and
//! bursts.

use crate::args::Rfc2544Args;
use crate::exit::Failure;
use crate::json;
use crate::print::{self, Style};
use crate::table::{Align, Table, bar, grouped};
use crate::tool;
use clap::ValueEnum;
use packtrain::engine::Report;
use packtrain_lab::ToolError;
use packtrain_lab::testbed::{TestbedOptions, Through};
use packtrain_lab::tool::{self as lab, Control, Measured};
use packtrain_lab::tools::rfc2544::Rfc2544;
use serde_json::{Map, Value};

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
    measured: Measured,
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
        json::write(document(&rows))
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
                let name = name(through);
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

fn name(through: Through) -> String {
    let value = through.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

fn document(rows: &[Row]) -> Map<String, Value> {
    let mut document = json::document("rfc2544");
    let rows = rows.iter().map(|row| {
        let mut value = tool::row("rfc2544", &row.measured);
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
    let mut text = throughput(rows, style);
    text.push('\n');
    text.push_str(&bounds(rows, style));
    let latency = columns(
        rows,
        "latency_us",
        "round trips in us beside a load of this share of \
                          the throughput: median, 99 %",
        |_, _, times| round_trip(times),
        style,
    );
    let loss = columns(
        rows,
        "loss_percent",
        "frames lost in percent at this share of what a sender sends flat out; in brackets those \
         of them that the receiver's socket lost, not the device",
        loss,
        style,
    );
    for table in [latency, loss] {
        text.push('\n');
        text.push_str(&table);
    }
    for row in rows {
        for flag in &row.measured.flags {
            let through = name(row.through);
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
    fn number(&self, name: &str) -> f64 {
        self.measured
            .figures
            .get(name)
            .and_then(Value::as_f64)
            .unwrap_or(0.0)
    }

    fn object(&self, name: &str) -> impl Iterator<Item = (&String, &Value)> {
        self.measured
            .figures
            .get(name)
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
    }

    /// The mark of a throughput above which the sender sends nothing.
    fn at_least(&self) -> &'static str {
        match self.measured.figures.get("end").and_then(Value::as_str) {
            Some("at_max") => ">= ",
            _ => "",
        }
    }

    /// The first cells of a row. The size is only in the first row that has it.
    fn cells(&self, before: Option<&Self>) -> Vec<String> {
        let is_same = before.is_some_and(|before| before.size == self.size);
        let size = if is_same {
            String::new()
        } else {
            self.size.to_string()
        };
        vec![size, name(self.through)]
    }
}

/// Every row, and the one before it.
fn pairs(rows: &[Row]) -> impl Iterator<Item = (&Row, Option<&Row>)> {
    let before = std::iter::once(None).chain(rows.iter().map(Some));
    rows.iter().zip(before)
}

/// Throughput by frame size, with bars.
fn throughput(rows: &[Row], style: Style) -> String {
    let most = rows.iter().map(|row| row.number("throughput_gbps"));
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
        let (gbps, pps) = (
            row.number("throughput_gbps"),
            row.number("throughput_kpps") * 1e3,
        );
        let line = LINE / 8.0 / (f64::from(row.size) + BETWEEN_FRAMES);
        let mut cells = row.cells(before);
        cells.extend([
            bar(gbps, 10.0 * step, 10 * STEP_COLUMNS),
            format!("{:.2}", gbps * 1e3),
            format!("{}{}", row.at_least(), grouped(pps as u64)),
            grouped(line as u64),
            format!("{:.2}", 100.0 * pps / line),
        ]);
        table.row(cells);
    }
    let ratio = rows
        .first()
        .and_then(|row| Some(row.object("goals").next()?.0.as_str()));
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
        for (index, (ratio, goal)) in row.object("goals").enumerate() {
            let number = |name: &str| goal.get(name).and_then(Value::as_f64);
            let cell = |name| number(name).map_or(String::new(), |value| format!("{value:.1}"));
            let limit = goal.get("limit").and_then(Value::as_str);
            let limit = match goal.get("end").and_then(Value::as_str) {
                Some("time_limit") => "time limit",
                _ => limit.unwrap_or(""),
            };
            let mut cells = if index == 0 {
                row.cells(before)
            } else {
                vec![String::new(); 2]
            };
            cells.extend([
                ratio.clone(),
                cell("throughput_kpps"),
                cell("lower_kpps"),
                cell("upper_kpps"),
                limit.to_owned(),
            ]);
            if index == 0 {
                let frames = row.number("back_to_back_frames");
                let is_all = frames > 0.0 && frames >= row.number("back_to_back_tried_frames");
                let at_least = if is_all { ">= " } else { "" };
                cells.push(format!("{at_least}{}", grouped(frames as u64)));
            }
            table.row(cells);
        }
    }
    format!(
        "throughput in kpps with its bounds, and the longest burst that arrived, in frames\n{}",
        table.render(0, style)
    )
}

/// A table with a column for each percentage under the key `figure`.
fn columns(
    rows: &[Row],
    figure: &str,
    title: &str,
    cell: fn(&Row, &str, &Value) -> String,
    style: Style,
) -> String {
    let longest = rows.iter().max_by_key(|row| row.object(figure).count());
    let shares: Vec<_> = longest.map_or_else(Vec::new, |row| {
        row.object(figure).map(|(share, _)| share.clone()).collect()
    });
    let names = ["frame", "through"].map(ToOwned::to_owned).into_iter();
    let heads = names.chain(shares.iter().map(|share| format!("{share} %")));
    let align = |index| {
        if index == 1 {
            Align::Left
        } else {
            Align::Right
        }
    };
    let mut table = Table::new(heads.enumerate().map(|(index, head)| (head, align(index))));
    for (row, before) in pairs(rows) {
        let mut cells = row.cells(before);
        let values = row.object(figure);
        cells.extend(values.map(|(share, value)| cell(row, share, value)));
        table.row(cells);
    }
    format!("{title}\n{}", table.render(0, style))
}

fn round_trip(times: &Value) -> String {
    let time = |name| times.get(name).and_then(Value::as_f64).unwrap_or(0.0);
    format!("{:.0}, {:.0}", time("p50"), time("p99"))
}

/// The loss at a load, with that at the receiver's socket if it lost any.
fn loss(row: &Row, share: &str, loss: &Value) -> String {
    let loss = loss.as_f64().unwrap_or(0.0);
    let mut all = row.object("loss_at_socket_percent");
    let at_socket = all.find(|(other, _)| *other == share);
    match at_socket.and_then(|(_, value)| value.as_f64()) {
        Some(at_socket) if at_socket > 0.0 => format!("{loss:.2} ({at_socket:.2})"),
        _ => format!("{loss:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(size: u32, through: Through, kpps: f64) -> Row {
        let figures = json!({
            "throughput_kpps": kpps,
            "throughput_gbps": kpps * f64::from(size) * 8.0 / 1e6,
            "upper_kpps": kpps * 1.02, "end": "regular",
            "goals": {
                "0": {"throughput_kpps": kpps, "lower_kpps": kpps, "upper_kpps": kpps * 1.02,
                      "limit": "device", "end": "regular"},
                "0.005": {"throughput_kpps": kpps, "lower_kpps": kpps, "limit": "sender",
                          "end": "at_max"},
            },
            "latency_us": {"0": {"p50": 20.4, "p99": 55}, "90": {"p50": 100, "p99": 5000}},
            "loss_percent": {"100": 1.5, "90": 2.5, "80": 0.0},
            "loss_at_socket_percent": {"100": 0.0, "90": 1.25, "80": 0.0},
            "back_to_back_frames": 12_345, "back_to_back_tried_frames": 20_000,
        });
        let measured = Measured {
            figures: figures.as_object().cloned().unwrap_or_default(),
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
        let text_of = |end: &str, limit: Value| {
            let mut row = row(64, Through::Packtrain, 1.0);
            let goal = json!({"lower_kpps": 1.0, "limit": limit, "end": end});
            let figures = &mut row.measured.figures;
            figures.insert("end".into(), end.into());
            figures.insert("goals".into(), json!({"0": goal}));
            // No throughput, so no latency beside a load.
            figures.insert("latency_us".into(), json!({"0": {"p50": 20.4, "p99": 55}}));
            text(&[row], Style::PLAIN)
        };
        let text = text_of("at_max", json!("sender"));
        assert!(
            text.contains(">= 1,000") && text.contains(" sender "),
            "{text}"
        );
        assert!(text.contains("frame  through       0 %\n"), "{text}");
        let text = text_of("time_limit", Value::Null);
        assert!(
            !text.contains(">= 1,000") && text.contains(" time limit "),
            "{text}"
        );
        let text = text_of("regular", json!("receiver"));
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
    fn the_scale_grows_with_the_throughput() {
        let mut row = row(9000, Through::Veth, 500.0);
        row.measured.figures.insert("end".into(), "at_max".into());
        let text = text(&[row], Style::PLAIN);
        assert!(text.contains("  36000.00  >= 500,000  "), "{text}");
        assert!(
            text.contains("0G    10G   20G   30G   40G   50Gbps"),
            "{text}"
        );
    }
}
