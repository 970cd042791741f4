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
        let measured = contest::run_until(alone, &settings, &stop.flag());
        // Of what was stopped before its first round was over there is nothing to say.
        rows.extend(measured.into_iter().filter(|row| row.rounds > 0));
        if terminal {
            print::message(&format!("\r{} of {total} rows ", rows.len()));
        }
    }
    if terminal {
        print::message("\n");
    }
    let level = Level::selected().name();
    let stopped = stop.requested();
    if args.json {
        let mut document = json::document("bench offload");
        document.insert("cpu".into(), cpu.into());
        document.insert("checksums".into(), level.into());
        document.insert("rounds".into(), args.rounds.into());
        document.insert("stopped".into(), stopped.into());
        document.insert("rows".into(), rows.iter().map(row_document).collect());
        json::write(document)?;
    } else {
        let head = format!(
            "CPU {cpu}; checksums with {level}; medians of {} rounds on fresh data\n",
            args.rounds
        );
        let cut = stopped.then(|| cut(&rows, total, args.rounds));
        let cut = cut.unwrap_or_default();
        print::output(&(head + &cut + "\n" + &table(&rows) + &notes(&rows)))?;
    }
    all_measured(&rows)
}

/// What a signal has left of `total` rows of `rounds` each.
fn cut(rows: &[Row], total: usize, rounds: usize) -> String {
    let last = rows.last().filter(|row| row.rounds < rounds);
    let last = last.map_or(String::new(), |row| {
        format!(", the last of them after {} of {rounds} rounds", row.rounds)
    });
    format!("stopped after {} of {total} rows{last}\n", rows.len())
}

/// Why rows have no figure.
fn notes(rows: &[Row]) -> String {
    let notes = rows
        .iter()
        .filter_map(|row| Some((row, row.note.as_ref()?)));
    let lines = notes.map(|(row, note)| format!("{}: {note}\n", row.work.row()));
    lines.collect()
}

fn all_measured(rows: &[Row]) -> Result<(), Failure> {
    let missing: Vec<_> = rows.iter().filter(|row| row.note.is_some()).collect();
    let Some((row, note)) = missing
        .first()
        .and_then(|row| Some((row, row.note.as_ref()?)))
    else {
        return Ok(());
    };
    let (missing, row) = (missing.len(), row.work.row());
    let all = rows.len();
    Err(Failure::new(
        Exit::Port,
        format!("{missing} of {all} rows could not be measured; the first is {row}: {note}"),
    ))
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
        "rounds": row.rounds,
        "note": row.note,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(ours: contest::Maker, rounds: usize) -> Vec<Row> {
        let contest = Contest {
            work: Work::SegmentShare,
            ours,
            peers: Vec::new(),
            best: None,
        };
        let quick = false;
        contest::run(contest, &Settings { rounds, quick })
    }

    struct Steady;

    impl contest::Side for Steady {
        fn sample(&mut self, _seed: u64) -> contest::Sample {
            contest::Sample::new(2.0)
        }
    }

    #[test]
    fn a_row_that_cannot_be_measured_says_why_and_is_no_success() {
        let rows = measured(Box::new(|| Err("no memory".to_owned())), 3);
        assert!(
            notes(&rows).ends_with(": our side: no memory\n"),
            "{rows:?}"
        );
        assert_eq!(row_document(&rows[0])["note"], "our side: no memory");
        let failure = all_measured(&rows).expect_err("a row is missing");
        assert_eq!(failure.exit, Exit::Port);
        assert!(failure.line.starts_with("1 of 1 rows"), "{}", failure.line);
        let rows = measured(Box::new(|| Ok(Box::new(Steady))), 3);
        assert_eq!((notes(&rows), all_measured(&rows)), (String::new(), Ok(())));
    }

    #[test]
    fn what_was_stopped_says_how_far_it_came() {
        let rows = measured(Box::new(|| Ok(Box::new(Steady))), 3);
        assert_eq!(cut(&rows, 9, 3), "stopped after 1 of 9 rows\n");
        let last = "stopped after 1 of 9 rows, the last of them after 3 of 15 rounds\n";
        assert_eq!(cut(&rows, 9, 15), last);
        assert_eq!(cut(&[], 9, 15), "stopped after 0 of 9 rows\n");
    }
}
