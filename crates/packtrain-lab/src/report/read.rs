//! The parts of a document that belong to one experiment.

use packtrain_measure::document::{Axis, Better, Claim, Definition, Document, Figure, Row, Run};
use packtrain_measure::numbers::number;
use packtrain_measure::statistics::Estimate;
use serde_json::Value;

/// A value as text: nothing for `null`, numbers as people read them.
pub fn word(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Array(values) => {
            let one = |value: &Value| match word(value) {
                text if text.is_empty() => "–".to_owned(),
                text => text,
            };
            values.iter().map(one).collect::<Vec<_>>().join(", ")
        }
        Value::Object(map) => {
            let pairs = map.iter();
            let pairs = pairs.map(|(name, value)| format!("{name}={}", word(value)));
            pairs.collect::<Vec<_>>().join(" ")
        }
    }
}

/// A median with its interval, if that is more than the median.
pub fn interval(of: &Estimate) -> String {
    let [median, low, high] = [of.median, of.low, of.high].map(number);
    if of.is_exact() {
        return median;
    }
    format!("{median} [{low}, {high}]")
}

/// Which value of a figure is better, in words; empty if neither is.
pub const fn better(figure: &Figure) -> &'static str {
    match figure.better {
        Some(Better::Higher) => "higher is better",
        Some(Better::Lower) => "lower is better",
        None => "",
    }
}

/// One experiment of a document: its definition and what belongs to it.
#[derive(Debug)]
pub struct Part<'a> {
    pub definition: &'a Definition,
    pub rows: Vec<&'a Row>,
    pub claims: Vec<&'a Claim>,
    pub runs: Vec<&'a Run>,
}

impl<'a> Part<'a> {
    /// The experiments of a document.
    pub fn all(document: &'a Document) -> Vec<Self> {
        let experiments = document.experiments.iter();
        experiments
            .map(|definition| {
                let name = &definition.name;
                let rows = document.rows.iter();
                let claims = document.claims.iter();
                let runs = document.runs.iter();
                Self {
                    definition,
                    rows: rows.filter(|one| one.experiment == *name).collect(),
                    claims: claims.filter(|one| one.experiment == *name).collect(),
                    runs: runs.filter(|one| one.experiment == *name).collect(),
                }
            })
            .collect()
    }

    /// What varies.
    pub fn axes(&self) -> &'a [Axis] {
        &self.definition.axes
    }

    /// What is shown.
    pub fn figures(&self) -> &'a [Figure] {
        &self.definition.figures
    }

    /// The runs of a row.
    pub fn runs_of(&self, row: &Row) -> Vec<&'a Run> {
        let runs = self.runs.iter().copied();
        runs.filter(|run| run.setting == row.setting).collect()
    }

    /// The runs of a row on which a figure rests: the clean ones, or all if none was clean or the
    /// figure is exact.
    pub fn counted_runs_of(&self, row: &Row, exact: bool) -> Vec<&'a Run> {
        let runs = self.runs_of(row);
        let is_judged = |run: &&Run| exact || is_clean(run);
        let judged: Vec<_> = runs.iter().copied().filter(is_judged).collect();
        if judged.is_empty() { runs } else { judged }
    }
}

/// Whether nothing speaks against a run.
pub fn is_clean(run: &Run) -> bool {
    run.flags.is_empty()
}
