//! Reads a document of experiments. A part that is not there is empty.

use std::fmt;

use serde_json::Value;

use super::numbers::number;

/// The elements of a list.
pub fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

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

/// A median with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The median.
    pub median: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Estimate {
    /// Whether the interval is nothing but the median. Then it is not shown.
    pub fn is_exact(&self) -> bool {
        self.low == self.median && self.high == self.median
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [median, low, high] = [self.median, self.low, self.high].map(number);
        f.write_str(&median)?;
        if self.is_exact() {
            return Ok(());
        }
        write!(f, " [{low}, {high}]")
    }
}

/// The estimate of a figure, if it has one.
pub fn estimate(value: &Value) -> Option<Estimate> {
    let of = |key: &str| value[key].as_f64();
    Some(Estimate {
        median: of("median")?,
        low: of("low")?,
        high: of("high")?,
    })
}

/// A figure that the rows have.
#[derive(Clone, Debug)]
pub struct Figure {
    pub key: String,
    /// With the unit.
    pub title: String,
    /// Which value is better, in words; empty if neither is.
    pub better: &'static str,
    /// Whether flagged runs count as well.
    pub exact: bool,
}

/// One experiment of a document: its definition and what belongs to it.
#[derive(Debug)]
pub struct Part<'a> {
    pub definition: &'a Value,
    pub name: &'a str,
    pub axes: Vec<&'a str>,
    pub figures: Vec<Figure>,
    pub rows: Vec<&'a Value>,
    pub claims: Vec<&'a Value>,
    pub runs: Vec<&'a Value>,
}

impl<'a> Part<'a> {
    /// The experiments of a document.
    pub fn all(document: &'a Value) -> Vec<Self> {
        let experiments = list(document, "experiments").iter();
        experiments.map(|one| Self::of(document, one)).collect()
    }

    fn of(document: &'a Value, definition: &'a Value) -> Self {
        let own = |key: &str| -> Vec<&'a Value> {
            let all = list(document, key).iter();
            all.filter(|one| one["experiment"] == definition["name"])
                .collect()
        };
        let axes = list(definition, "axes").iter();
        let figures = list(definition, "figures").iter().map(|figure| {
            let (title, unit) = (word(&figure["title"]), word(&figure["unit"]));
            Figure {
                key: word(&figure["key"]),
                title: if unit.is_empty() {
                    title
                } else {
                    format!("{title}, {unit}")
                },
                better: match figure["better"].as_str() {
                    Some("higher") => "higher is better",
                    Some("lower") => "lower is better",
                    _ => "",
                },
                exact: figure["exact"] == true,
            }
        });
        Self {
            definition,
            name: definition["name"].as_str().unwrap_or_default(),
            axes: axes.filter_map(|axis| axis["name"].as_str()).collect(),
            figures: figures.collect(),
            rows: own("rows"),
            claims: own("claims"),
            runs: own("runs"),
        }
    }

    /// The runs of a row.
    pub fn runs_of(&self, row: &Value) -> Vec<&'a Value> {
        let runs = self.runs.iter().copied();
        runs.filter(|run| run["setting"] == row["setting"])
            .collect()
    }

    /// The runs of a row on which a figure rests: the clean ones, or all if none was clean or the
    /// figure is exact.
    pub fn counted_runs_of(&self, row: &Value, exact: bool) -> Vec<&'a Value> {
        let runs = self.runs_of(row);
        let is_judged = |run: &&Value| exact || is_clean(run);
        let judged: Vec<_> = runs.iter().copied().filter(is_judged).collect();
        if judged.is_empty() { runs } else { judged }
    }
}

/// Whether nothing speaks against a run.
pub fn is_clean(run: &Value) -> bool {
    list(run, "flags").is_empty()
}
