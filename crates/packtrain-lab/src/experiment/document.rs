//! An experiment's definition and results as JSON.

use packtrain_measure::Verdict;
use packtrain_measure::statistics::Estimate;
use serde_json::{Map, Value, json};

use super::file::{Better, Statistic};
use super::judge::{Common, Judged, NotJudged, Notice, Summary, common, judge, notice, summary};
use super::matrix::Experiment;
use super::runner::{Options, Results, Run};

/// The verdict of a claim without one, in documents.
pub const NOT_JUDGED: &str = "not judged";

/// The parts of a document, to which each experiment adds its own.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// The experiments: what the documents have, and what the figures are.
    pub experiments: Vec<Value>,
    /// One for each cell: settings, and figures over its runs.
    pub rows: Vec<Value>,
    /// One for each claim and each cell that it is about.
    pub claims: Vec<Value>,
    /// Each run by itself.
    pub runs: Vec<Value>,
    /// A line for each `must` claim that does not hold.
    pub failed: Vec<String>,
    /// A line for each `must` claim that is not judged, although its runs were made.
    pub open: Vec<String>,
}

impl Parts {
    /// Adds an experiment that was run. `command` repeats it.
    pub fn add(
        &mut self,
        experiment: &Experiment,
        results: &Results,
        options: &Options,
        command: &str,
    ) {
        self.experiments
            .push(definition(experiment, results, command));
        let cells = 0..experiment.cells.len();
        self.rows.extend(
            cells
                .filter(|&cell| !(options.quick && experiment.cells[cell].is_long))
                .map(|cell| row(experiment, results, cell)),
        );
        for claim in &experiment.claims {
            let judged = judge(experiment, results, claim, options);
            let line = |what: String| format!("{}: {what}", experiment.name);
            match notice(claim, &judged) {
                Some(Notice::Fails(what)) => self.failed.push(line(what)),
                Some(Notice::Open(what)) => self.open.push(line(what)),
                None => {}
            }
            let entries = judged.iter().map(|one| {
                let to = Some(&one.to).filter(|to| !to.is_empty());
                json!({
                    "experiment": experiment.name,
                    "claim": claim.text,
                    "figure": claim.key.to_string(),
                    "statistic": match claim.statistic {
                        Statistic::Median => "median",
                        Statistic::Spread => "spread",
                    },
                    "of": setting(experiment, &one.of),
                    "to": to.map(|to| setting(experiment, to)),
                    "expected": claim.expected.to_string(),
                    "document": claim.document,
                    "if_not": claim.if_not,
                    "exact": claim.exact,
                    "measured": one.measured.map(|estimate| interval(&estimate)),
                    "verdict": verdict(one),
                    "why": one.verdict.as_ref().err().map(NotJudged::why),
                    "must": claim.must,
                })
            });
            self.claims.extend(entries);
        }
        self.runs
            .extend(results.runs.iter().map(|one| run(experiment, one)));
    }

    /// Adds the parts of another experiment.
    pub fn append(&mut self, mut other: Self) {
        self.experiments.append(&mut other.experiments);
        self.rows.append(&mut other.rows);
        self.claims.append(&mut other.claims);
        self.runs.append(&mut other.runs);
        self.failed.append(&mut other.failed);
        self.open.append(&mut other.open);
    }

    /// As the keys of a document.
    pub fn document(self) -> Map<String, Value> {
        let parts = [
            ("experiments", self.experiments),
            ("rows", self.rows),
            ("claims", self.claims),
            ("runs", self.runs),
        ];
        let parts = parts.into_iter();
        parts
            .map(|(name, values)| (name.to_owned(), Value::Array(values)))
            .collect()
    }
}

fn verdict(judged: &Judged) -> &'static str {
    judged
        .verdict
        .as_ref()
        .map_or(NOT_JUDGED, |one| Verdict::name(*one))
}

fn definition(experiment: &Experiment, results: &Results, command: &str) -> Value {
    let axes = experiment.axes.iter();
    let axes = axes.map(|axis| json!({ "name": axis.name, "settings": axis.settings }));
    let figures = experiment.figures.iter().map(|figure| {
        json!({
            "key": figure.key.to_string(),
            "title": figure.title,
            "unit": figure.unit,
            "better": match figure.better {
                Some(Better::Higher) => "higher".into(),
                Some(Better::Lower) => "lower".into(),
                None => Value::Null,
            },
            "exact": figure.exact,
        })
    });
    let document = &experiment.document;
    json!({
        "name": experiment.name,
        "source": experiment.source,
        "title": experiment.title,
        "document": {
            "claims": document.claims,
            "columns": document.columns,
            "rows": document.rows,
            "notes": document.notes,
        },
        "axes": axes.collect::<Vec<_>>(),
        "figures": figures.collect::<Vec<_>>(),
        "meaning": experiment.meaning,
        "limits": experiment.limits,
        "rounds": results.rounds(),
        "stopped": results.stopped,
        "command": command,
    })
}

/// The settings by axis that all of the cells have.
fn setting(experiment: &Experiment, cells: &[usize]) -> Value {
    let axes = experiment.axes.iter().enumerate().filter_map(|(at, axis)| {
        let mut names = cells.iter().map(|&cell| &experiment.cells[cell].names[at]);
        let first = names.next()?;
        let value = Value::from(first.as_str());
        names
            .all(|name| name == first)
            .then(|| (axis.name.clone(), value))
    });
    axes.collect::<Map<_, _>>().into()
}

fn row(experiment: &Experiment, results: &Results, cell: usize) -> Value {
    let runs = || results.runs.iter().filter(|run| run.cell == cell);
    let good = runs().find(|run| !run.measured.settings.is_empty());
    let figures = experiment.figures.iter().map(|figure| {
        let summary = summary(results, cell, figure);
        let numbers = summary.as_ref().map(spread);
        let words = || common(results, cell, &figure.key).as_ref().map(text);
        (figure.key.to_string(), numbers.or_else(words).into())
    });
    json!({
        "experiment": experiment.name,
        "setting": setting(experiment, &[cell]),
        "settings": good.map(|run| &run.measured.settings),
        "figures": figures.collect::<Map<_, _>>(),
        "runs": runs().count(),
        "flagged": runs().filter(|run| !run.measured.flags.is_empty()).count(),
        "missing": results.why_missing(cell),
    })
}

/// A figure that is a text, over runs.
fn text(common: &Common) -> Value {
    json!({
        "word": common.word,
        "times": common.times,
        "rounds": common.count,
    })
}

/// A figure over runs.
fn spread(summary: &Summary) -> Value {
    let mut value = interval(&summary.estimate);
    value["min"] = significant(summary.min).into();
    value["max"] = significant(summary.max).into();
    value["judged"] = summary.judged.into();
    let outliers = summary.outliers.iter();
    value["outliers"] = outliers.map(|one| significant(*one)).collect();
    value
}

fn interval(estimate: &Estimate) -> Value {
    json!({
        "median": significant(estimate.median),
        "low": significant(estimate.low),
        "high": significant(estimate.high),
        "rounds": estimate.count,
    })
}

/// A figure as rows and claims have it: to six significant digits.
fn significant(value: f64) -> f64 {
    // Every number reads what it writes.
    format!("{value:.5e}").parse().unwrap_or(value)
}

fn run(experiment: &Experiment, run: &Run) -> Value {
    json!({
        "experiment": experiment.name,
        "setting": setting(experiment, &[run.cell]),
        "round": run.round,
        "seed": run.seed,
        "load": run.load.one_minute,
        "uptime_seconds": run.load.uptime_seconds,
        "settings": run.measured.settings,
        "figures": run.measured.figures,
        "flags": run.measured.flags,
    })
}
