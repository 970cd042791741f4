//! `packtrain check`: what a program does to packets between two TUN or TAP devices.

pub mod args;

use crate::exit::{Exit, Failure};
use crate::json;
use crate::print::{self, Style};
use crate::table::{Align, Table};
use crate::tool;
use args::CheckArgs;
use packtrain::name::{Name, printable};
use packtrain_lab::check::{CHECKS, Options, Report, Verdict, html, junit, run as check, versions};
use packtrain_lab::exec::Exec;
use packtrain_lab::output::Log;
use packtrain_lab::traffic::IpVersion;
use packtrain_measure::key::fields;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Lines of an input that are printed at most.
const LINES_MAX: usize = 12;

/// Runs the command.
///
/// # Errors
///
/// A wrong option, a program that does not open its devices, or checks that failed.
pub fn run(args: &CheckArgs) -> Result<(), Failure> {
    if args.list {
        return list();
    }
    let commands = match (&args.a, &args.b) {
        (Some(a), Some(b)) => vec![a.clone(), b.clone()],
        _ => Exec::of_words(&args.command),
    };
    let all = commands.join(" ");
    if all.is_empty() {
        let line = "the command of the program is missing: write it behind --, as in `packtrain \
                    check -- ./my-forwarder {a} {b}`";
        return Err(Failure::new(Exit::Usage, line));
    }
    if let Some(missing) = ["{a}", "{b}"].into_iter().find(|name| !all.contains(name)) {
        let line = format!(
            "the command has no {missing}, which stands for the name of a device: write it as in \
             `packtrain check -- ./my-forwarder {{a}} {{b}}`"
        );
        return Err(Failure::new(Exit::Usage, line));
    }
    let log = args.log.as_deref().map(Log::create).transpose();
    let log = log.map_err(|error| tool::failed(&error))?.map(Arc::new);
    let outcome = tool::controlled(args.quiet, |control| {
        let options = Options {
            exec: Exec {
                commands,
                made: args.made,
                wait: args.wait,
                log: log.clone(),
            },
            mtu: args.mtu,
            only: args.only.clone(),
            skip: args.skip.clone(),
            versions: claimed(args),
            captures: args.captures.clone(),
            exact_id: args.exact_id,
            routes: args.ttl_decrement,
            stops: !args.no_stop,
            seed: args.seed,
            patience: args.patience,
            speed: args.only.is_empty() && !args.no_speed,
        };
        check(&options, control)
    })?;
    let Some(report) = outcome else {
        return Ok(());
    };
    if args.json {
        let mut document = json::document("check");
        document.extend(fields(&report));
        json::write(document)?;
    } else {
        let head = tool::interrupted(report.is_interrupted);
        print::output(&format!(
            "{head}{}",
            text(&report, args.verbose, Style::stdout())
        ))?;
    }
    for (path, text) in [(&args.junit, junit(&report)), (&args.html, html(&report))] {
        if let Some(path) = path {
            write(path, &text)?;
        }
    }
    if let Some(error) = log.and_then(|log| log.error()) {
        return Err(Failure::new(Exit::Port, error));
    }
    ended(&report)
}

/// The versions of IP that this kernel has and the program claims to pass.
fn claimed(args: &CheckArgs) -> Vec<IpVersion> {
    let is_claimed = |ip: &IpVersion| match ip {
        IpVersion::V4 => !args.no_ipv4,
        IpVersion::V6 => !args.no_ipv6,
    };
    versions().into_iter().filter(is_claimed).collect()
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text)
        .map_err(|error| Failure::new(Exit::Port, format!("{}: {error}", Name::from(path))))
}

fn ended(report: &Report) -> Result<(), Failure> {
    let names = |is_meant: fn(&Verdict) -> bool| {
        let rows = report.rows.iter().filter(|row| is_meant(&row.verdict));
        rows.map(|row| row.check).collect::<Vec<_>>().join(", ")
    };
    let not_judged = names(|verdict| *verdict == Verdict::NotJudged);
    match report.failures() {
        0 if not_judged.is_empty() => Ok(()),
        0 => Err(Failure::new(
            Exit::NotJudged,
            format!("not judged: {not_judged}"),
        )),
        count => {
            let failed = names(Verdict::is_failure);
            let line = format!("{count} of {} checks failed: {failed}", report.rows.len());
            Err(Failure::new(Exit::Check, line))
        }
    }
}

fn list() -> Result<(), Failure> {
    let headings = ["check", "what a program that passes does", "source"];
    let mut table = Table::new(headings.map(|heading| (heading, Align::Left)));
    for check in CHECKS {
        table.row([check.name, check.about, check.source]);
    }
    print::output(&table.render(0, Style::stdout()))
}

/// What the program carries and costs, beside the others.
fn speeds(report: &Report, style: Style) -> String {
    if report.speeds.is_empty() {
        return match report.speeds_missing.as_str() {
            "" => String::new(),
            why => format!("\nno figures: {why}\n"),
        };
    }
    let right = [
        "Gbit/s",
        "MSS 300",
        "CPU s/GB",
        "with both ends",
        "round trip us",
    ];
    let right = right.map(|heading| (heading, Align::Right));
    let mut table = Table::new([("one TCP stream", Align::Left)].into_iter().chain(right));
    for speed in &report.speeds {
        let numbers = [
            (speed.goodput_gbps, 2),
            (speed.goodput_mss_300_gbps, 2),
            (speed.forwarder_seconds_per_gb, 3),
            (speed.cpu_seconds_per_gb, 3),
            (speed.round_trip_us, 1),
        ];
        let cells = numbers.map(|(number, digits)| format!("{number:.digits$}"));
        table.row([speed.through.to_owned()].into_iter().chain(cells));
    }
    format!("\n{}", table.render(0, style))
}

fn text(report: &Report, verbose: bool, style: Style) -> String {
    let headings = ["check", "verdict", ""];
    let mut table = Table::new(headings.map(|heading| (heading, Align::Left)));
    let findings = report.findings();
    for row in &report.rows {
        let like = findings
            .iter()
            .find(|finding| finding[1..].iter().any(|one| one.check == row.check));
        let like = like.map(|finding| format!("as {}", finding[0].check));
        let about = match row.verdict {
            Verdict::Passed if !row.note.is_empty() => &format!("{}; {}", row.note, row.about),
            Verdict::Passed if !row.figures.is_empty() => &row.figures,
            Verdict::Passed | Verdict::NotApplicable => row.about,
            _ => match &like {
                Some(like) => like,
                None if !row.cause.is_empty() => &row.cause,
                None => &row.what,
            },
        };
        table.row([row.check, row.verdict.words(), about]);
    }
    let mut text = format!(
        "{} between two {} devices, MTU {}\n\n",
        printable(&report.commands.join(" and ")),
        report.devices.to_uppercase(),
        report.mtu
    );
    text.push_str(&table.render(0, style));
    for finding in &findings {
        if let [first, _, ..] = &finding[..] {
            let names: Vec<_> = finding.iter().map(|row| row.check).collect();
            let (count, names) = (names.len(), names.join(", "));
            text.push_str(&format!(
                "\n{count} checks, one cause: {}\n  {names}\n",
                first.cause
            ));
        }
        let shown = if verbose { finding.len() } else { 1 };
        for row in finding.iter().take(shown) {
            let lines_max = if verbose { usize::MAX } else { LINES_MAX };
            text.push_str(&format!("\n{}", row.details(lines_max)));
        }
    }
    text.push_str(&speeds(report, style));
    let mebibytes = report.memory_bytes as f64 / f64::from(1 << 20);
    let passed = report
        .rows
        .iter()
        .filter(|row| row.verdict == Verdict::Passed)
        .count();
    text.push_str(&format!(
        "\n{passed} passed, {} failed of {} checks; most memory seen: {mebibytes:.1} MiB\n",
        report.failures(),
        report.rows.len(),
    ));
    text
}
