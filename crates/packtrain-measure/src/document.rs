//! The document of `packtrain experiment`. The program writes it once; the text, the page,
//! `packtrain compare` and `cargo xtask experiments` read it. A key that an older program did not
//! write is empty.

use crate::host::{Head, SCHEMA};
pub use crate::key::Fields;
use crate::key::Key;
use crate::statistics::{Estimate, Group, significant};
use crate::verdict::{Expected, Verdict};
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// The whole document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Document {
    /// What every document of packtrain has.
    #[serde(flatten)]
    pub head: Head,
    /// Whether runs were shorter, and no verdict is better than `direction`.
    pub quick: bool,
    /// Whether a signal ended it.
    pub stopped: bool,
    /// Threads that ran or waited for a CPU at the start, on average over a minute.
    pub load: Option<f64>,
    /// Seconds since the machine was started.
    pub uptime_seconds: Option<f64>,
    /// What was run.
    pub experiments: Vec<Definition>,
    /// One for each combination of settings.
    pub rows: Vec<Row>,
    /// One for each claim and each combination of settings that it is about.
    pub claims: Vec<Claim>,
    /// Each run by itself.
    pub runs: Vec<Run>,
}

/// An experiment: what its source has, and what the figures are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Definition {
    /// Its name on the command line.
    pub name: String,
    /// The source, as `S0`.
    pub source: String,
    /// In one line.
    pub title: String,
    /// What the source has.
    pub document: Original,
    /// What varies.
    pub axes: Vec<Axis>,
    /// What is shown.
    pub figures: Vec<Figure>,
    /// What the outcome means for the choice of a setting.
    pub meaning: String,
    /// What it cannot show; may be empty.
    pub limits: String,
    /// The rounds that were begun.
    pub rounds: usize,
    /// Whether a signal ended it.
    pub stopped: bool,
    /// The command that repeats it.
    pub command: String,
}

/// What the source of an experiment has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Original {
    /// What it claims, in words; paragraphs are separated by empty lines.
    pub claims: String,
    /// The heads of its table.
    pub columns: Vec<String>,
    /// The rows of its table, as printed there.
    pub rows: Vec<Vec<String>>,
    /// On which hardware, with which tools, and what else a reader of the table has to know.
    pub notes: Vec<String>,
}

/// One thing that varies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Axis {
    /// Its name.
    pub name: String,
    /// The names of its settings.
    pub settings: Vec<String>,
}

/// A figure that is shown for each combination of settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Figure {
    /// Where it is in the figures of a run.
    pub key: Key,
    /// The head of its column.
    pub title: String,
    /// Its unit; may be empty.
    #[serde(default)]
    pub unit: String,
    /// Which of two values is better, if either is.
    #[serde(default)]
    pub better: Option<Better>,
    /// Whether a claim says that it is a count that no load of the machine changes.
    #[serde(default)]
    pub exact: bool,
}

impl Figure {
    /// The title with the unit.
    #[must_use]
    pub fn head(&self) -> String {
        if self.unit.is_empty() {
            return self.title.clone();
        }
        format!("{}, {}", self.title, self.unit)
    }
}

/// Which of two values is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// The greater one.
    Higher,
    /// The lesser one.
    Lower,
}

/// Names of settings by their axes, in the order of the axes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Setting(pub IndexMap<String, String>);

impl Setting {
    /// The setting of an axis; empty if it has none.
    #[must_use]
    pub fn of(&self, axis: &str) -> &str {
        self.0.get(axis).map_or("", String::as_str)
    }

    /// The settings that `other` does not have.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let differ = self.0.iter();
        let differ = differ.filter(|(axis, name)| other.0.get(*axis) != Some(*name));
        Self(differ.map(|(a, b)| (a.clone(), b.clone())).collect())
    }
}

/// As `offload=tso mtu=9000`.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self.0.iter().map(|(axis, name)| format!("{axis}={name}"));
        f.write_str(&pairs.collect::<Vec<_>>().join(" "))
    }
}

/// A combination of settings, and its figures over all runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Row {
    /// The experiment.
    pub experiment: String,
    /// The combination.
    pub setting: Setting,
    /// The settings in force, read back in a run.
    pub settings: Option<Fields>,
    /// Figures by their keys; `None` if no run has it.
    pub figures: IndexMap<String, Option<Over>>,
    /// The number of runs.
    pub runs: usize,
    /// The number of runs that were disturbed or failed.
    pub flagged: usize,
    /// Why this host cannot show it.
    pub missing: Option<String>,
}

impl Row {
    /// The numbers of a figure.
    #[must_use]
    pub fn summary(&self, key: &Key) -> Option<&Summary> {
        match self.figures.get(&key.to_string())? {
            Some(Over::Numbers(summary)) => Some(summary),
            _ => None,
        }
    }

    /// The median of a figure, with its interval.
    #[must_use]
    pub fn estimate(&self, key: &Key) -> Option<Estimate> {
        self.summary(key).map(|summary| summary.estimate)
    }
}

/// A figure over the runs of a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Over {
    /// A text.
    Words(Common),
    /// A number.
    Numbers(Summary),
}

/// The most frequent text of a figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Common {
    /// Of equally frequent ones the first in the order of the alphabet.
    pub word: String,
    /// The number of runs that have it.
    pub times: usize,
    /// The number of runs.
    pub rounds: usize,
}

/// A number over runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// The median of the runs, and its interval.
    #[serde(flatten)]
    pub estimate: Estimate,
    /// The least value.
    #[serde(default)]
    pub min: f64,
    /// The greatest value.
    #[serde(default)]
    pub max: f64,
    /// The number of runs on which a verdict may rest. The others are shown if there are none.
    #[serde(default)]
    pub judged: usize,
    /// The two groups of the runs that are far from each other; empty if there are none.
    #[serde(default)]
    pub groups: Vec<Group>,
    /// Values that are more than 1.5 interquartile ranges below the first or above the third
    /// quartile (Tukey's fences).
    #[serde(default)]
    pub outliers: Vec<f64>,
}

impl Summary {
    /// The same to six significant digits.
    #[must_use]
    pub fn significant(&self) -> Self {
        Self {
            estimate: self.estimate.significant(),
            min: significant(self.min),
            max: significant(self.max),
            judged: self.judged,
            groups: (self.groups.iter())
                .map(|group| Group {
                    median: significant(group.median),
                    ..*group
                })
                .collect(),
            outliers: self.outliers.iter().copied().map(significant).collect(),
        }
    }
}

/// What is expected of a figure, or of a ratio of two rows, and what came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Claim {
    /// The experiment.
    pub experiment: String,
    /// In words.
    pub claim: String,
    /// The figure.
    pub figure: Key,
    /// What of the figure's runs is compared.
    #[serde(default)]
    pub statistic: Statistic,
    /// The settings that all of its rows have.
    #[serde(default)]
    pub of: Setting,
    /// Those of the rows to which they are compared; `None` if the figure itself is expected.
    #[serde(default)]
    pub to: Option<Setting>,
    /// The expectation.
    pub expected: Expected,
    /// The value in the source, in words.
    #[serde(default)]
    pub document: String,
    /// The same ratio in the source; `None` if it has no values.
    #[serde(default)]
    pub effect: Option<f64>,
    /// Why it may not be reproduced here, in one sentence; may be empty.
    #[serde(default)]
    pub if_not: String,
    /// Why it may exceed the source here, in one sentence; may be empty.
    #[serde(default)]
    pub if_more: String,
    /// Whether the figure is a count that no load of the machine changes: then flagged runs are
    /// judged too.
    #[serde(default)]
    pub exact: bool,
    /// The figure, or the ratio.
    #[serde(default)]
    pub measured: Option<Estimate>,
    /// The verdict.
    pub verdict: Verdict,
    /// Why there is none.
    #[serde(default)]
    pub why: Option<String>,
    /// Whether the program fails if it is not reproduced.
    #[serde(default)]
    pub must: bool,
}

impl Claim {
    /// The verdict on `measured`.
    #[must_use]
    pub fn verdict_on(&self, measured: &Estimate) -> Verdict {
        let verdict = self.expected.verdict(measured);
        // A ratio that is as expected is on the side of 1 on which the effect is.
        let size = |ratio: f64| ratio.ln().abs();
        let exceeds = |effect: f64| size(measured.median) > 2.0 * size(effect);
        if verdict > Verdict::NotReproduced && self.effect.is_some_and(exceeds) {
            Verdict::Exceeds
        } else {
            verdict
        }
    }
}

/// What of a figure's runs is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Statistic {
    /// The median.
    #[default]
    Median,
    /// The relative standard deviation of runs with equal settings, pooled over all rows of the
    /// claim.
    Spread,
}

impl Statistic {
    /// As in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Median => "median",
            Self::Spread => "spread",
        }
    }
}

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Run {
    /// The experiment.
    pub experiment: String,
    /// The combination of settings.
    pub setting: Setting,
    /// The round, from 0.
    pub round: usize,
    /// What `{seed}` stood for.
    pub seed: u64,
    /// The load of the machine at its start.
    pub load: Option<f64>,
    /// Seconds since the machine was started.
    pub uptime_seconds: Option<f64>,
    /// The settings in force, read back.
    pub settings: Fields,
    /// What was measured.
    pub figures: Fields,
    /// What speaks against it: a run without flags is clean.
    pub flags: Vec<String>,
}

impl Document {
    /// Reads a document that `packtrain experiment --save` wrote.
    ///
    /// # Errors
    /// Why the text is not one.
    pub fn read(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|e| format!("not JSON ({e})"))?;
        for (key, wanted) in [("schema", SCHEMA), ("command", "experiment")] {
            match value[key].as_str() {
                Some(found) if found == wanted => {}
                Some(found) => return Err(format!("its {key} is \"{found}\", not \"{wanted}\"")),
                None => return Err(format!("it has no {key}")),
            }
        }
        if !value["rows"].is_array() {
            return Err("it has no rows".to_owned());
        }
        serde_json::from_value(value).map_err(|e| format!("not as packtrain writes it ({e})"))
    }

    /// The definition of an experiment.
    #[must_use]
    pub fn definition(&self, experiment: &str) -> Option<&Definition> {
        self.experiments.iter().find(|one| one.name == experiment)
    }

    /// Adds the experiments of another document, with all that belongs to them.
    pub fn append(&mut self, mut other: Self) {
        self.experiments.append(&mut other.experiments);
        self.rows.append(&mut other.rows);
        self.claims.append(&mut other.claims);
        self.runs.append(&mut other.runs);
        self.stopped |= other.stopped;
    }
}
