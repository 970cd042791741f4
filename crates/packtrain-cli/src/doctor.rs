//! `packtrain doctor`: what this host allows, and the commands that mend it.

use crate::args::DoctorArgs;
use crate::exit::{Exit, Failure};
use crate::json;
use crate::print::{self, Style, in_one_line};
use crate::table::{Align, Table};
use packtrain_lab::doctor::{self, Finding, Report, State};
use serde_json::{Map, Value, json};

/// Runs the command.
///
/// # Errors
///
/// If TAP interfaces in network namespaces, which the main commands need, do not work.
pub fn run(args: &DoctorArgs) -> Result<(), Failure> {
    // Before any thread starts: only a process with one thread can make a user namespace.
    let report = doctor::examine();
    if args.json {
        json::write(document(&report))?;
    } else {
        print::output(&text(&report, Style::stdout()))?;
    }
    verdict(&report)
}

fn verdict(report: &Report) -> Result<(), Failure> {
    let Some(missing) = report.missing() else {
        return Ok(());
    };
    let mend = missing.mend.as_ref();
    let mend = mend.map_or_else(String::new, |mend| format!("; to mend it: {mend}"));
    let (subject, detail) = (missing.subject, &missing.detail);
    Err(Failure::new(
        Exit::Privilege,
        format!("TAP interfaces in namespaces do not work: {subject}: {detail}{mend}"),
    ))
}

fn document(report: &Report) -> Map<String, Value> {
    let findings = report.findings().map(|(group, finding)| {
        json!({
            "group": group,
            "subject": finding.subject,
            "state": finding.state.to_string(),
            "needed": finding.needed,
            "detail": finding.detail,
            "mend": finding.mend,
        })
    });
    let mut document = json::document("doctor");
    document.insert("works".into(), report.missing().is_none().into());
    document.insert("findings".into(), findings.collect());
    document
}

/// A table with a line for each finding, the commands below it, and the result.
fn text(report: &Report, style: Style) -> String {
    let mut table =
        Table::new(["part", "subject", "state", "found"].map(|name| (name, Align::Left)));
    let mut last = None;
    for (group, finding) in report.findings() {
        let part = if last.replace(group) == Some(group) {
            ""
        } else {
            group
        };
        let state = finding.state.to_string();
        table.row([part, finding.subject, &state, &finding.detail]);
    }
    let mut text = table.render(0, style);
    let mut mends: Vec<(&str, Vec<&str>)> = Vec::new();
    for (_, finding) in report.findings() {
        let Some(mend) = &finding.mend else { continue };
        match mends.iter_mut().find(|(command, _)| command == mend) {
            Some((_, subjects)) => subjects.push(finding.subject),
            None => mends.push((mend, vec![finding.subject])),
        }
    }
    if !mends.is_empty() {
        text.push_str("\ncommands that mend what is limited or missing:\n");
        for (command, subjects) in mends {
            let command = in_one_line(command);
            text.push_str(&format!("  {command}\n      {}\n", subjects.join(", ")));
        }
    }
    let count = |state| {
        report
            .findings()
            .filter(|(_, one)| one.state == state)
            .count()
    };
    let end = match report.missing() {
        None => style.good("TAP interfaces in namespaces work: `packtrain demo` runs here"),
        Some(Finding { subject, .. }) => style.bad(&format!(
            "TAP interfaces in namespaces do not work, for lack of {subject}"
        )),
    };
    let [yes, limited, no] = [State::Yes, State::Limited, State::No].map(count);
    text.push_str(&format!(
        "\n{end}; yes: {yes}, limited: {limited}, no: {no}\n"
    ));
    text
}
