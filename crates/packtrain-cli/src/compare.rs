//! `packtrain compare`: two saved documents of experiments, row by row.

use crate::args::CompareArgs;
use crate::exit::{Exit, Failure};
use crate::json;
use crate::print::{self, Style};
use crate::table::{Align, Table};
use packtrain::name::{Name, printable};
use packtrain_lab::experiment::compare::{Change, Comparison, compare};
use packtrain_lab::experiment::judge::CLEAN_MIN;
use packtrain_lab::report::interval;
use packtrain_measure::document::Document;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Runs the command.
///
/// # Errors
///
/// A file that cannot be read or is no document of experiments, a regression, or no figure that can
/// be judged.
pub fn run(args: &CompareArgs) -> Result<(), Failure> {
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    let comparison =
        compare(&a, &b, args.tolerance / 100.0).map_err(|line| Failure::new(Exit::Usage, line))?;
    if args.json {
        let mut document = json::document("compare");
        document.insert("tolerance_percent".into(), args.tolerance.into());
        document.extend(json::fields(&comparison));
        json::write(document)?;
    } else {
        print::output(&text(&comparison, args, Style::stdout()))?;
    }
    let count = comparison.regressions().count();
    if let Some(first) = comparison.regressions().next() {
        let (setting, figure) = (&first.setting, &first.figure);
        let line = format!(
            "{count} figures are worse by more than {} %, the first: {} {setting}: {figure}",
            args.tolerance, first.experiment
        );
        return Err(Failure::new(Exit::Check, line));
    }
    // That nothing became worse is not known.
    match not_judged(&comparison) {
        Some(why) => Err(Failure::new(
            Exit::Check,
            format!("no figure was judged: {why}"),
        )),
        None => Ok(()),
    }
}

/// Why not one figure was judged, and what to do; `None` if one was.
fn not_judged(comparison: &Comparison) -> Option<String> {
    let has = |change| comparison.rows.iter().any(|row| row.change == change);
    if [Change::Regression, Change::Improvement, Change::Within]
        .into_iter()
        .any(has)
    {
        return None;
    }
    Some(if has(Change::NotJudged) {
        format!(
            "each has fewer than {CLEAN_MIN} clean runs in A or B; repeat both with more \
             --repeats, or while the machine does nothing else"
        )
    } else if has(Change::Neutral) {
        "no figure of these rows has a better value; name experiments with `better` in a figure"
            .to_owned()
    } else {
        "A and B have no figure of the same row; name two files of the same experiment".to_owned()
    })
}

fn read(path: &Path) -> Result<Document, Failure> {
    let failure = |exit, line: String| Failure::new(exit, format!("{}: {line}", Name::from(path)));
    let wrong =
        |why| format!("{why}; name a file that packtrain experiment NAME --save FILE wrote");
    let text = fs::read_to_string(path).map_err(|error| match error.kind() {
        ErrorKind::InvalidData => {
            let why = "it is no document of experiments, and no text".to_owned();
            failure(Exit::Port, wrong(why))
        }
        ErrorKind::NotFound => {
            let hint = "write it with packtrain experiment NAME --save FILE";
            failure(Exit::Port, format!("{error}; {hint}"))
        }
        _ => failure(Exit::Port, error.to_string()),
    })?;
    Document::read(&text).map_err(|why| failure(Exit::Port, wrong(why)))
}

/// The counts of figures in one line, then the rows that changed, or all.
fn text(comparison: &Comparison, args: &CompareArgs, style: Style) -> String {
    let mut text = summary(comparison, args.tolerance);
    for note in &comparison.notes {
        text.push_str(&format!("{}\n", printable(note)));
    }
    let mut table = Table::new([
        ("figure", Align::Left),
        ("A", Align::Right),
        ("B", Align::Right),
        ("B to A", Align::Right),
        ("", Align::Left),
    ]);
    let rows = comparison.rows.iter();
    let shown = rows.filter(|row| args.all || is_changed(row.change));
    // Settings are often longer than the figures: they are a line above the figures of a row.
    let mut above = None;
    for row in shown {
        let setting = printable(&format!("{} {}", row.experiment, row.setting));
        if above.as_ref() != Some(&setting) {
            text.push_str(&section(above.take(), &mut table, style));
            above = Some(setting);
        }
        table.row([
            format!("{} {}", row.figure, row.unit).trim_end().to_owned(),
            interval(&row.a),
            interval(&row.b),
            row.ratio.as_ref().map_or_else(|| "-".to_owned(), interval),
            match row.change {
                Change::Within | Change::Neutral => String::new(),
                change => change.name().to_owned(),
            },
        ]);
    }
    text.push_str(&section(above, &mut table, style));
    for one in &comparison.missing {
        let setting = printable(&format!("{} {}", one.experiment, one.setting));
        text.push_str(&format!("not in {}: {setting}\n", one.of));
    }
    text
}

const fn is_changed(change: Change) -> bool {
    matches!(change, Change::Regression | Change::Improvement)
}

/// How many figures became worse and better, and why the others are not among them.
fn summary(comparison: &Comparison, tolerance: f64) -> String {
    let count = |change| {
        let rows = comparison.rows.iter();
        rows.filter(|row| row.change == change).count()
    };
    let mut line = format!(
        "{} worse, {} better",
        count(Change::Regression),
        count(Change::Improvement)
    );
    for (change, why) in [
        (Change::Within, format!("within {tolerance} %")),
        (Change::Neutral, "without a better value".to_owned()),
        (
            Change::NotJudged,
            format!("not judged: fewer than {CLEAN_MIN} clean runs"),
        ),
    ] {
        let count = count(change);
        if count > 0 {
            line.push_str(&format!(", {count} {why}"));
        }
    }
    line + "\n"
}

/// The rows so far below their settings; the table is empty afterwards.
fn section(above: Option<String>, table: &mut Table, style: Style) -> String {
    let Some(above) = above else {
        return String::new();
    };
    let text = format!("\n{}\n{}", style.bold(&above), table.render(2, style));
    table.clear();
    text
}
