//! `packtrain compare`: two saved documents of experiments, row by row.

use crate::args::CompareArgs;
use crate::exit::{Exit, Failure};
use crate::json;
use crate::print::{self, Style};
use crate::table::{Align, Table};
use packtrain_lab::experiment::compare::{Change, Comparison, Saved, compare};
use serde_json::Value;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Runs the command.
///
/// # Errors
///
/// A file that cannot be read or is no document of experiments, or a regression.
pub fn run(args: &CompareArgs) -> Result<(), Failure> {
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    let comparison =
        compare(&a, &b, args.tolerance / 100.0).map_err(|line| Failure::new(Exit::Usage, line))?;
    if args.json {
        let mut document = json::document("compare");
        document.insert("tolerance_percent".into(), args.tolerance.into());
        if let Value::Object(parts) = comparison.document() {
            document.extend(parts);
        }
        json::write(document)?;
    } else {
        print::output(&text(&comparison, Style::stdout()))?;
    }
    let count = comparison.regressions().count();
    if let Some(first) = comparison.regressions().next() {
        let (setting, figure) = (setting(&first.setting), &first.figure);
        let line = format!(
            "{count} figures are worse by more than {} %, the first: {} {setting}: {figure}",
            args.tolerance, first.experiment
        );
        return Err(Failure::new(Exit::Check, line));
    }
    Ok(())
}

fn read(path: &Path) -> Result<Saved, Failure> {
    let failure = |exit, line: String| Failure::new(exit, format!("{}: {line}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::NotFound => "; write it with packtrain experiment NAME --save FILE",
            _ => "",
        };
        failure(Exit::Port, format!("{error}{hint}"))
    })?;
    Saved::read(&text).map_err(|line| failure(Exit::Usage, line))
}

fn setting(value: &Value) -> String {
    let pairs = value.as_object().into_iter().flatten();
    let pairs = pairs.map(|(axis, name)| format!("{axis}={}", name.as_str().unwrap_or_default()));
    pairs.collect::<Vec<_>>().join(" ")
}

fn text(comparison: &Comparison, style: Style) -> String {
    let mut table = Table::new([
        ("experiment", Align::Left),
        ("settings", Align::Left),
        ("figure", Align::Left),
        ("A", Align::Right),
        ("B", Align::Right),
        ("B to A", Align::Right),
        ("", Align::Left),
    ]);
    let interval = |[median, low, high]: [f64; 3]| {
        let [median, low, high] = [median, low, high].map(packtrain_lab::report::number);
        format!("{median} [{low}, {high}]")
    };
    for row in &comparison.rows {
        table.row([
            row.experiment.clone(),
            setting(&row.setting),
            format!("{} {}", row.figure, row.unit).trim_end().to_owned(),
            interval(row.a),
            interval(row.b),
            row.ratio.map_or_else(|| "-".to_owned(), interval),
            match row.change {
                Change::Within | Change::Neutral => String::new(),
                change => change.name().to_owned(),
            },
        ]);
    }
    let notes = comparison.notes.iter().map(|note| format!("{note}\n"));
    let mut text: String = notes.collect();
    text.push_str(&table.render(0, style));
    for one in &comparison.missing {
        let (experiment, setting) = (&one.experiment, setting(&one.setting));
        text.push_str(&format!("not in {}: {experiment} {setting}\n", one.of));
    }
    text
}
