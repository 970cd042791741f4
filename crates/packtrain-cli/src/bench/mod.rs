//! `packtrain bench`: what the library's own loops measure on this machine.

mod dispatch;

use crate::args::{Bench, BenchOffloadArgs};
use crate::exit::{Exit, Failure};
use crate::json;
use crate::print::{self, Style};
use crate::signals::Stop;
use crate::table::{Align, Table};
use packtrain_bench::contest::{self, Contest, Row, Settings};
use packtrain_bench::{Work, clock, ours};
use packtrain_offload::checksum::Level;
use serde_json::{Value, json};
use std::io::IsTerminal;

/// The largest footprint in a quick run: 16 384 flows.
const QUICK_BYTES_MAX: usize = 256 << 20;

/// Runs a benchmark.
///
/// # Errors
///
/// When nothing is left to measure, something cannot be had, or the account of a run does not
/// close.
pub fn run(bench: &Bench) -> Result<(), Failure> {
    match bench {
        Bench::Offload(args) => offload(args),
        Bench::Dispatch(args) => dispatch::run(args),
    }
}

fn offload(args: &BenchOffloadArgs) -> Result<(), Failure> {
    let works = works(args)?;
    let stop = Stop::install()?;
    let failed = |error| Failure::new(Exit::Privilege, format!("cannot keep to one CPU: {error}"));
    let cpu = clock::last_cpu().map_err(failed)?;
    clock::pin(cpu).map_err(failed)?;
    let settings = Settings {
        rounds: args.rounds,
        quick: args.quick,
    };
    let (mut rows, total) = (Vec::new(), works.len());
    let terminal = std::io::stderr().is_terminal();
    for work in works {
        if stop.requested() {
            break;
        }
        // Alone: the others need a compiler and a library (`cargo bench --features peers`).
        let alone = Contest {
            peers: Vec::new(),
            best: None,
            ..ours::contest(work)
        };
        rows.extend(contest::run(alone, &settings));
        if terminal {
            print::message(&format!("\r{} of {total} rows ", rows.len()));
        }
    }
    if terminal {
        print::message("\n");
    }
    let level = Level::selected().name();
    if args.json {
        let mut document = json::document("bench offload");
        document.insert("cpu".into(), cpu.into());
        document.insert("checksums".into(), level.into());
        document.insert("rounds".into(), args.rounds.into());
        document.insert("stopped".into(), stop.requested().into());
        let rows: Vec<Value> = rows.iter().map(row_document).collect();
        document.insert("rows".into(), rows.into());
        return json::write(document);
    }
    let head = format!(
        "CPU {cpu}; checksums with {level}; medians of {} rounds on fresh data\n\n",
        args.rounds
    );
    print::output(&(head + &table(&rows)))
}

/// What is to be measured.
fn works(args: &BenchOffloadArgs) -> Result<Vec<Work>, Failure> {
    let wanted = |work: &Work| {
        args.only
            .as_ref()
            .is_none_or(|only| work.row().contains(only.as_str()))
            && !(args.quick && work.footprint() > QUICK_BYTES_MAX)
    };
    let works: Vec<Work> = Work::all().into_iter().filter(wanted).collect();
    if works.is_empty() {
        let only = args.only.as_deref().unwrap_or_default();
        return Err(Failure::new(
            Exit::Usage,
            format!(
                "--only {only}: no row has that in its name; without --only all rows are measured"
            ),
        ));
    }
    Ok(works)
}

/// Nanoseconds with as many digits as mean something.
fn figure(value: f64) -> String {
    let places = if value < 100.0 { 1 } else { 0 };
    format!("{value:.places$}")
}

fn table(rows: &[Row]) -> String {
    let mut table = Table::new([
        ("row", Align::Left),
        ("flows", Align::Right),
        ("ns", Align::Right),
        ("for each", Align::Left),
        ("GB/s", Align::Right),
        ("merged", Align::Right),
    ]);
    for row in rows {
        let gb_per_s = bandwidth(row).map_or(String::new(), figure);
        let merge = row
            .ours_merge
            .map_or(String::new(), |merge| format!("{merge:.2}"));
        let ns = row.ours_ns.map_or_else(|| "-".to_owned(), figure);
        let flows = row.work.flows().to_string();
        let unit = row.work.unit().to_owned();
        table.row([row.work.row(), flows, ns, unit, gb_per_s, merge]);
    }
    table.render(0, Style::stdout())
}

fn bandwidth(row: &Row) -> Option<f64> {
    Some(row.work.bytes()? as f64 / row.ours_ns?)
}

fn row_document(row: &Row) -> Value {
    let rounded = |value: Option<f64>| value.map(|value| (value * 1000.0).round() / 1000.0);
    json!({
        "row": row.work.row(),
        "flows": row.work.flows(),
        "unit": row.work.unit(),
        "footprint_bytes": row.work.footprint(),
        "ours_ns": rounded(row.ours_ns),
        "ours_gb_per_s": rounded(bandwidth(row)),
        "ours_merge": rounded(row.ours_merge),
        "interrupted": row.disturbed,
    })
}
