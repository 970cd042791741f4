//! `packtrain demo`: real kernels through packtrain, with and without offloads.

use crate::args::DemoArgs;
use crate::exit::{Exit, Failure};
use crate::print::{self, Style};
use crate::signals::Stop;
use crate::table::{Align, BAR_COLUMNS, Table, bar, grouped};
use crate::{json, report, words};
use packtrain_lab::demo::{self, DemoError, Options, Outcome, Row, Setting, World};
use packtrain_lab::{LabError, Missing, rootless};
use serde_json::{Map, Value, json};
use std::io::{IsTerminal, stderr};
use std::time::Duration;

/// Runs the command.
///
/// # Errors
///
/// If bytes arrive wrong, a ledger does not close, or a transfer fails.
pub fn run(args: &DemoArgs) -> Result<(), Failure> {
    // Before any thread starts: only a process with one thread can make a user namespace. If the
    // kernel refuses, the demo runs in memory.
    let refused = rootless::enter_if_needed().err();
    let stop = Stop::install()?;
    let options = Options {
        transfer_time: Duration::from_secs_f64(args.seconds),
        seed: args.seed,
        stop: stop.flag(),
        in_memory: false,
    };
    let progress = Progress::new(args.json);
    let result = demo::run(
        &options,
        |world| progress.world(world, refused),
        |row| progress.row(row),
    );
    progress.clear();
    let outcome = result.map_err(|error| failed(&error))?;
    if args.json {
        json::write(document(&outcome, args, refused))?;
    } else {
        print::output(&text(&outcome, Style::stdout()))?;
    }
    verdict(&outcome)
}

/// Progress on standard error while the transfers run.
struct Progress {
    said: bool,
    terminal: bool,
}

impl Progress {
    fn new(json: bool) -> Self {
        Self {
            said: !json,
            terminal: stderr().is_terminal(),
        }
    }

    fn world(&self, world: &World, refused: Option<Missing>) {
        match world {
            World::Namespaces if self.said => print::message(
                "two network namespaces, a TAP interface in each, packtrain between them",
            ),
            World::Namespaces => {}
            World::Memory { reason } => {
                let reason = why(reason, refused);
                print::message(&format!(
                    "{reason}: running in memory over simulated NICs instead"
                ));
            }
        }
    }

    fn row(&self, row: &Row) {
        if self.terminal {
            let name = what(row);
            let (setting, gbps) = (row.setting.name(), row.gbps);
            print::progress(&format!("{setting}: {name}: {gbps:.2} Gbit/s"));
        }
    }

    fn clear(&self) {
        if self.terminal {
            print::progress("");
        }
    }
}

/// Why there are no namespaces. If a user namespace was refused, that is the reason, and not the
/// error that a process without privilege gets later.
fn why(reason: &str, refused: Option<Missing>) -> String {
    refused.map_or_else(|| reason.to_owned(), |missing| missing.to_string())
}

/// The name of a transfer.
fn what(row: &Row) -> String {
    let protocol = row.protocol.to_uppercase();
    format!("{protocol}/IPv{} {}", row.ip, arrow(row))
}

fn arrow(row: &Row) -> &'static str {
    if row.direction == "a_to_b" {
        "a -> b"
    } else {
        "b -> a"
    }
}

fn failed(error: &DemoError) -> Failure {
    let exit = match error {
        DemoError::Lab(LabError::Missing(_)) => Exit::Privilege,
        _ => Exit::Port,
    };
    Failure::new(exit, format!("the demo failed: {error}"))
}

fn verdict(outcome: &Outcome) -> Result<(), Failure> {
    if outcome.passed() {
        return Ok(());
    }
    let wrong = outcome.rows.iter().filter(|row| !row.hash_ok).count();
    let open = |setting: &&demo::SettingReport| !setting.closed();
    let open = outcome.settings.iter().filter(open).count();
    Err(Failure::new(
        Exit::Check,
        format!(
            "the demo failed: {wrong} transfers with wrong bytes, {open} settings whose packet \
             ledger does not close"
        ),
    ))
}

/// The JSON document of the demo.
fn document(outcome: &Outcome, args: &DemoArgs, refused: Option<Missing>) -> Map<String, Value> {
    let (world, reason) = match &outcome.world {
        World::Namespaces => ("namespaces", None),
        World::Memory { reason } => ("sim", Some(why(reason, refused))),
    };
    let settings = outcome.settings.iter().map(|setting| {
        json!({
            "setting": setting.setting.name(),
            "drops": json::drops(&setting.snapshot.drops),
            "kernel_drops": setting.kernel_drops,
            "conservation": json::conservation(&setting.snapshot.ledger),
        })
    });
    let mut document = json::document("demo");
    document.insert("world".into(), json!({ "kind": world, "reason": reason }));
    document.insert("seed".into(), args.seed.into());
    document.insert("seconds_per_transfer".into(), args.seconds.into());
    document.insert("stopped".into(), outcome.stopped.into());
    document.insert("rows".into(), outcome.rows.iter().map(json_row).collect());
    document.insert("settings".into(), settings.collect());
    document.insert("drops".into(), json::drops(&outcome.drops()));
    let ledger = outcome.ledger();
    document.insert("conservation".into(), json::conservation(&ledger));
    document
}

fn json_row(row: &Row) -> Value {
    let mut all = Map::new();
    all.insert("experiment".into(), "demo".into());
    all.extend(json::fields(row));
    all.into()
}

const LEGEND: &str = "\
offload: none; csum: checksums; full: checksums, TSO and USO
wire packets: packets on a cable, both directions; per packet: in each that packtrain received
CPU %: of one CPU, by packtrain alone; data: ok if every byte arrived as it was sent

";

/// The table, one line with the ledger of each setting, and the result.
fn text(outcome: &Outcome, style: Style) -> String {
    let mut text = table(&outcome.rows).render(0, style);
    text.push_str(LEGEND);
    for setting in &outcome.settings {
        let name = setting.setting.name();
        let line = report::ledger_line(&setting.snapshot.ledger, style);
        text += &format!("offload {name}: {line}");
        for (reason, count) in setting.snapshot.drops.nonzero() {
            let (count, why) = (grouped(count), words::of_drop(reason));
            text += &format!("     lost: {count} wire packets: {reason}: {why}\n");
        }
        if setting.kernel_drops > 0 {
            let count = grouped(setting.kernel_drops);
            text += &format!(
                "     dropped by the kernels' own queues: {count} packets; TCP sends its own \
                 again\n"
            );
        }
    }
    text.push('\n');
    if let Some(factor) = speedup(&outcome.rows) {
        text += &format!("TCP with full offload: {factor:.1} times the goodput of none\n");
    }
    let end = match (outcome.passed(), outcome.stopped) {
        (true, false) => {
            style.good("every byte arrived as it was sent, and every packet is accounted for")
        }
        (true, true) => stopped(outcome.rows.len()),
        (false, _) => style.bad("FAILED"),
    };
    text + &end + "\n"
}

/// What was checked until the demo was stopped: the transfers with a row, and the ledgers.
fn stopped(transfers: usize) -> String {
    let data = match transfers {
        0 => "before a transfer was checked".to_owned(),
        1 => "every byte of the one transfer above arrived as it was sent".to_owned(),
        _ => format!("every byte of the {transfers} transfers above arrived as it was sent"),
    };
    format!("stopped early: {data}; every packet is accounted for")
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new([
        ("offload", Align::Left),
        ("transfer", Align::Left),
        ("Gbit/s", Align::Right),
        ("goodput", Align::Bar),
        ("wire packets", Align::Right),
        ("per packet", Align::Right),
        ("syscalls/MB", Align::Right),
        ("CPU %", Align::Right),
        ("data", Align::Left),
    ]);
    let most = rows.iter().map(|row| row.gbps).fold(0.0, f64::max);
    let mut last = None;
    for row in rows {
        let first = last.replace(row.setting) != Some(row.setting);
        // A GSO packet stands for several wire packets.
        let per_frame = row.wire_packets as f64 / row.frames.max(1) as f64;
        table.row([
            if first { row.setting.name() } else { "" }.to_owned(),
            what(row),
            format!("{:.2}", row.gbps),
            bar(row.gbps, most, BAR_COLUMNS),
            grouped(row.wire_packets),
            format!("{per_frame:.1}"),
            format!("{:.1}", row.syscalls_per_mb),
            format!("{:.0}", row.cpu_percent),
            if row.hash_ok { "ok" } else { "WRONG" }.to_owned(),
        ]);
    }
    table
}

/// TCP goodput with all offloads, divided by that without, over the transfers that both settings
/// have. If the demo was stopped, not all of them do.
fn speedup(rows: &[Row]) -> Option<f64> {
    let tcp = |setting: Setting| {
        let of = move |row: &&Row| row.setting == setting && row.protocol == "tcp";
        rows.iter().filter(of)
    };
    let same = |a: &Row, b: &Row| (a.ip, a.direction) == (b.ip, b.direction);
    let pairs = tcp(Setting::None).filter_map(|none| {
        let full = tcp(Setting::Full).find(|full| same(none, full))?;
        Some((none.gbps, full.gbps))
    });
    let (none, full) = pairs.fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
    (none > 0.0 && full > 0.0).then(|| full / none)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(setting: Setting, protocol: &'static str, gbps: f64) -> Row {
        Row {
            setting,
            protocol,
            ip: "4",
            direction: "a_to_b",
            gbps,
            wire_packets: 45_000,
            frames: 1000,
            syscalls_per_mb: 33.25,
            cpu_percent: 99.6,
            hash_ok: true,
        }
    }

    #[test]
    fn the_table_names_a_setting_once_and_the_factor_is_of_tcp() {
        let rows = [
            row(Setting::None, "tcp", 2.0),
            row(Setting::None, "udp", 1.0),
            row(Setting::Full, "tcp", 20.0),
        ];
        let text = table(&rows).render(0, Style::PLAIN);
        assert_eq!(text.matches("none").count(), 1);
        assert!(text.contains("TCP/IPv4 a -> b"), "{text}");
        assert!(text.contains("45,000        45.0"), "{text}");
        assert_eq!(speedup(&rows), Some(10.0));
        assert_eq!(speedup(&rows[..2]), None);
    }

    #[test]
    fn the_factor_is_of_transfers_that_both_settings_have() {
        let back = |setting, gbps| Row {
            direction: "b_to_a",
            ..row(setting, "tcp", gbps)
        };
        let mut rows = vec![
            row(Setting::None, "tcp", 2.0),
            back(Setting::None, 4.0),
            row(Setting::Full, "tcp", 20.0),
        ];
        assert_eq!(speedup(&rows), Some(10.0));
        rows.push(back(Setting::Full, 10.0));
        assert_eq!(speedup(&rows), Some(5.0));
        assert_eq!(speedup(&[rows[0].clone(), rows[3].clone()]), None);
    }

    #[test]
    fn every_world_has_its_factor() {
        let memory = World::Memory {
            reason: "none".to_owned(),
        };
        for world in [World::Namespaces, memory] {
            let outcome = Outcome {
                world,
                rows: vec![
                    row(Setting::None, "tcp", 2.0),
                    row(Setting::Full, "tcp", 9.0),
                ],
                settings: Vec::new(),
                stopped: false,
            };
            let text = text(&outcome, Style::PLAIN);
            let factor = "TCP with full offload: 4.5 times the goodput of none";
            assert!(text.lines().any(|line| line == factor), "{text}");
        }
    }

    #[test]
    fn a_demo_that_was_stopped_claims_what_it_checked() {
        let end = |rows: Vec<Row>| {
            let outcome = Outcome {
                world: World::Namespaces,
                rows,
                settings: Vec::new(),
                stopped: true,
            };
            let text = text(&outcome, Style::PLAIN);
            text.lines().last().unwrap_or_default().to_owned()
        };
        let none = "stopped early: before a transfer was checked; every packet is accounted for";
        assert_eq!(end(Vec::new()), none);
        let two = vec![
            row(Setting::None, "tcp", 2.0),
            row(Setting::None, "udp", 1.0),
        ];
        assert!(end(two).contains("every byte of the 2 transfers above"));
    }

    #[test]
    fn wrong_bytes_and_an_open_account_fail_the_check() {
        let outcome = |hash_ok, received, held| {
            let mut snapshot = packtrain::engine::Snapshot::default();
            snapshot.ledger.received = received;
            snapshot.ledger.transmitted = 10;
            snapshot.ledger.held = held;
            Outcome {
                world: World::Namespaces,
                rows: vec![Row {
                    hash_ok,
                    ..row(Setting::Full, "tcp", 1.0)
                }],
                settings: vec![demo::SettingReport {
                    setting: Setting::Full,
                    snapshot,
                    kernel_drops: 0,
                }],
                stopped: false,
            }
        };
        assert_eq!(verdict(&outcome(true, 10, 0)), Ok(()));
        let cases = [
            (outcome(false, 10, 0), "1 transfers with wrong bytes, 0"),
            (outcome(true, 11, 0), "0 transfers with wrong bytes, 1"),
            (outcome(true, 11, 1), "0 transfers with wrong bytes, 1"),
        ];
        for (outcome, expected) in cases {
            let failure = verdict(&outcome).expect_err(expected);
            assert_eq!(failure.exit as u8, 1);
            assert!(failure.line.contains(expected), "{}", failure.line);
        }
    }

    #[test]
    fn a_json_row_has_the_documented_keys() {
        let row = json::fields(&json_row(&row(Setting::Csum, "udp", 1.5)));
        let keys: Vec<_> = row.keys().map(String::as_str).collect();
        let documented = "experiment setting protocol ip direction gbps wire_packets frames \
                          syscalls_per_mb cpu_percent hash_ok";
        assert_eq!(keys, documented.split_whitespace().collect::<Vec<_>>());
        assert_eq!(row["setting"], "csum");
    }
}
