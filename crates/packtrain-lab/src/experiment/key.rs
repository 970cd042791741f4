//! Where a figure is among the figures of a run.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use crate::options::Fields;

/// The path to a figure, `latency_us.p99`, or a ratio of two: `cpu_percent / kpps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    path: String,
    below: Option<String>,
}

impl Key {
    /// Whether it is, or is divided by, a figure of the object `name`.
    pub fn is_of(&self, name: &str) -> bool {
        let is_of = |path: &str| path.split('.').next() == Some(name);
        is_of(&self.path) || self.below.as_deref().is_some_and(is_of)
    }

    /// The figure; `None` if a part of it is not there, is not a number, or is divided by 0.
    pub fn of(&self, figures: &Fields) -> Option<f64> {
        let value = at(figures, &self.path)?.as_f64()?;
        let value = match &self.below {
            Some(below) => value / at(figures, below)?.as_f64()?,
            None => value,
        };
        value.is_finite().then_some(value)
    }

    /// The first path of it that no run has, among figures of several runs.
    pub fn unknown(&self, runs: &[Fields]) -> Option<&str> {
        let is_known = |path: &str| runs.iter().any(|figures| at(figures, path).is_some());
        let paths = [Some(&self.path), self.below.as_ref()];
        let mut paths = paths.into_iter().flatten().map(String::as_str);
        paths.find(|path| !is_known(path))
    }

    /// The figure if it is a text.
    pub fn word<'a>(&self, figures: &'a Fields) -> Option<&'a str> {
        let value = at(figures, &self.path)?.as_str()?;
        self.below.is_none().then_some(value)
    }
}

fn at<'a>(figures: &'a Fields, path: &str) -> Option<&'a Value> {
    let mut names = path.split('.');
    let first = figures.get(names.next()?)?;
    names.try_fold(first, |value, name| value.get(name))
}

/// The paths of all figures of runs that are most like `path`, the best first, three at most.
pub fn nearest(path: &str, runs: &[Fields]) -> Vec<String> {
    let mut all = BTreeSet::new();
    for (name, value) in runs.iter().flatten() {
        paths(name, value, &mut all);
    }
    let mut all: Vec<String> = all.into_iter().collect();
    all.sort_by_cached_key(|one| distance(path, one));
    all.truncate(3);
    all
}

fn paths(path: &str, value: &Value, all: &mut BTreeSet<String>) {
    match value.as_object() {
        Some(fields) => fields
            .iter()
            .for_each(|(name, value)| paths(&format!("{path}.{name}"), value, all)),
        None => {
            all.insert(path.to_owned());
        }
    }
}

/// How many letters have to be inserted, removed or replaced (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j].min(diagonal) + 1);
        }
    }
    row[b.len()]
}

impl FromStr for Key {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let good = |path: &str| {
            let letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
            path.split('.')
                .all(|name| !name.is_empty() && name.chars().all(letter))
        };
        let mut paths = text.split(" / ").map(str::to_owned);
        let (path, below, more) = (paths.next().unwrap_or_default(), paths.next(), paths.next());
        if !good(&path) || below.as_deref().is_some_and(|path| !good(path)) || more.is_some() {
            return Err(format!(
                "'{text}' is no figure: write a name as in goodput_gbps or latency_us.p99, or a \
                 ratio as in cpu_percent / kpps"
            ));
        }
        Ok(Self { path, below })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        match &self.below {
            Some(below) => write!(f, " / {below}"),
            None => Ok(()),
        }
    }
}
