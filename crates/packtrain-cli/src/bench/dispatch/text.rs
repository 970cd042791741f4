//! The result for people: what the adaptive setting loses in each situation, bars, and claims.

use crate::print::Style;
use crate::table::{Align, Table, bar};
use packtrain::policy::dispatch::Dispatch;
use packtrain_bench::statistics;
use packtrain_lab::claim::{Claim, Verdict};
use packtrain_lab::dispatch::{self, Outcome, Row, Sample};

/// Columns of the longest bar.
const BAR_COLUMNS: usize = 40;

/// Everything that is printed of a bench that was to have so many `repeats`.
pub(super) fn text(outcome: &Outcome, repeats: usize, style: Style) -> String {
    let mut text = head(outcome);
    if outcome.stopped {
        let nothing = match outcome.repeats {
            0 => ": nothing was compared",
            _ => "",
        };
        let complete = outcome.repeats;
        text.push_str(&format!(
            "stopped after {complete} of {repeats} repeats{nothing}\n"
        ));
    }
    if outcome.repeats == 0 {
        return text;
    }
    let kinds = [
        ("throughput", "kpps", false),
        ("latency, 99th percentile", "us", true),
    ];
    for (title, unit, paced) in kinds {
        let cells = outcome.cells();
        let cells: Vec<_> = cells
            .filter(|c| c[0].cell.load.is_paced() == paced)
            .collect();
        if !cells.is_empty() {
            let title = style.bold(&format!("{title}, {unit}"));
            text.extend(["\n", &title, "\n", &table(&cells, style)]);
        }
    }
    for cell in outcome.cells().filter(|c| !c[0].cell.load.is_paced()) {
        text.push_str(&bars(cell, style));
    }
    text.push_str(&claims(&dispatch::claims(outcome), style));
    text
}

fn head(outcome: &Outcome) -> String {
    let mut text = format!(
        "{} runs, {} of them taken again since others had the machine; medians of {} repeats; \
         regret is what adaptive loses against the best fixed setting\n",
        outcome.runs, outcome.retaken, outcome.repeats
    );
    let samples = || outcome.rows.iter().flat_map(Row::all_samples);
    let disturbed = samples().filter(|sample| sample.is_disturbed()).count();
    if disturbed > 0 {
        text.push_str(&format!(
            "{disturbed} of {} runs were disturbed all the same: the figures are partly those of \
             other programs\n",
            samples().count()
        ));
    }
    if outcome.again > 0 {
        let looked = outcome.rows.iter().filter(|row| row.first.is_some());
        let looked = looked.count();
        let s = if looked == 1 { "" } else { "s" };
        text.push_str(&format!(
            "where it was more than it may be there was a second look: {looked} situation{s}, {} \
             times each, and the regret is of that alone\n",
            outcome.again
        ));
    }
    for place in &outcome.places {
        let same = place.same_as.as_ref();
        let same = same.map(|same| format!("; measured as {same}"));
        let (placement, why) = (&place.placement, &place.why);
        text.push_str(&format!("{placement}: {why}{}\n", same.unwrap_or_default()));
    }
    for (port, why) in &outcome.left_out {
        text.push_str(&format!("{port}: was left out: {why}\n"));
    }
    text
}

/// The figure that decides in the cell of a row.
fn figure(row: &Row) -> f64 {
    if row.cell.load.is_paced() {
        row.median(|sample| sample.latency_us(0.99))
    } else {
        row.median(Sample::kpps)
    }
}

/// With as many digits as mean something.
fn short(value: f64) -> String {
    let places = if value < 100.0 { 1 } else { 0 };
    format!("{value:.places$}")
}

fn percent(fraction: f64) -> String {
    format!("{:.1} %", fraction * 100.0)
}

fn table(cells: &[&[Row]], style: Style) -> String {
    let mut table = Table::new([
        ("port", Align::Left),
        ("producers", Align::Right),
        ("bytes", Align::Right),
        ("load", Align::Left),
        ("best fixed", Align::Left),
        ("best", Align::Right),
        ("worst", Align::Right),
        ("adaptive", Align::Right),
        ("regret", Align::Right),
        ("95 %", Align::Right),
        ("at first", Align::Right),
        ("cpus", Align::Right),
        ("switches/frame", Align::Right),
    ]);
    for cell in cells {
        let Some((adaptive, fixed)) = cell.split_last() else {
            continue;
        };
        let of = |which: usize| fixed.get(which).map(|row| short(figure(row)));
        let named = |which: usize| fixed.get(which).map(|row| dispatch::named(&row.settings));
        let regret = adaptive.regret;
        let or = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        table.row([
            adaptive.cell.port.to_string(),
            adaptive.cell.producers.to_string(),
            adaptive.cell.frame_bytes.to_string(),
            adaptive.cell.load.to_string(),
            or(regret.and_then(|regret| named(regret.best))),
            or(regret.and_then(|regret| of(regret.best))),
            or(regret.and_then(|regret| of(regret.worst))),
            short(figure(adaptive)),
            or(regret.map(|regret| percent(regret.regret))),
            or(regret.map(|one| format!("{} .. {}", percent(one.low), percent(one.high)))),
            or(adaptive.first.map(|first| percent(first.regret))),
            format!("{:.2}", adaptive.median(Sample::cpus)),
            format!("{:.4}", adaptive.median(Sample::switches_per_frame)),
        ]);
    }
    table.render(0, style)
}

/// The best idle and placement of each dispatch, and the adaptive setting.
fn bars(cell: &[Row], style: Style) -> String {
    let mut shown: Vec<&Row> = Vec::new();
    for row in cell {
        let same = |other: &&mut &Row| other.settings.dispatch == row.settings.dispatch;
        match shown.iter_mut().find(same) {
            Some(other) if figure(other) < figure(row) => *other = row,
            Some(_) => {}
            None => shown.push(row),
        }
    }
    let most = shown.iter().map(|row| figure(row)).fold(0.0, f64::max);
    let title = format!("{}, kpps", cell[0].cell);
    let mut text = format!("\n{}\n", style.bold(&title));
    for row in shown {
        let value = figure(row);
        let spread = statistics::estimate(&row.figures(Sample::kpps));
        let spread = spread.map(|one| format!(" ({} .. {})", short(one.low), short(one.high)));
        let name = match row.settings.dispatch {
            Dispatch::Adaptive => "adaptive".to_owned(),
            _ => dispatch::named(&row.settings),
        };
        let bar = bar(value, most, BAR_COLUMNS);
        let spread = spread.unwrap_or_default();
        let line = format!(
            "  {name:<30} {bar:<BAR_COLUMNS$} {}{spread}\n",
            short(value)
        );
        text.push_str(&line);
    }
    text
}

fn claims(claims: &[Claim], style: Style) -> String {
    let mut text = format!("\n{}\n", style.bold("claims"));
    for claim in claims {
        let verdict = format!("{:<14}", claim.verdict);
        let verdict = match claim.verdict {
            Verdict::Reproduced => style.good(&verdict),
            Verdict::Direction => verdict,
            Verdict::NotReproduced => style.bad(&verdict),
        };
        text.push_str(&format!(
            "  {verdict}  {}\n                  {} (expected: {})\n",
            claim.claim, claim.measured, claim.expected
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stopped_says_after_how_many_repeats() {
        let of = |repeats, stopped| {
            let outcome = Outcome {
                repeats,
                stopped,
                ..Outcome::default()
            };
            text(&outcome, 6, Style::PLAIN)
        };
        let said = |text: &str, line: &str| text.lines().any(|one| one == line);
        assert!(said(&of(2, true), "stopped after 2 of 6 repeats"));
        let nothing = "stopped after 0 of 6 repeats: nothing was compared";
        assert!(said(&of(0, true), nothing));
        assert!(!of(6, false).contains("stopped"));
    }
}
