//! Where a figure is among the figures of a run.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Names and values of any tool, in the order in which they are shown. A name ends with its unit.
pub type Fields = Map<String, Value>;

/// The path to a figure, `latency_us.p99`, or a ratio of two: `cpu_percent / kpps`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
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

/// The figure at a path.
#[must_use]
pub fn at<'a>(figures: &'a Fields, path: &str) -> Option<&'a Value> {
    let mut names = path.split('.');
    let first = figures.get(names.next()?)?;
    names.try_fold(first, |value, name| value.get(name))
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

impl From<Key> for String {
    fn from(key: Key) -> Self {
        key.to_string()
    }
}

impl TryFrom<String> for Key {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}
