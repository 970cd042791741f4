//! Printed reports and JSON documents.

use crate::host::{SCHEMA, cpu_model};
use crate::verdict::{Expected, Verdict};
use serde_json::{Value, json};
use std::fs;
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The conditions of the measurement, in words: printed above the table, and in the JSON document
/// as `conditions`.
#[derive(Clone, Debug, Default)]
pub struct Conditions(Vec<(String, String)>);

impl Conditions {
    /// The machine and its load.
    pub fn of_host() -> Self {
        let mut conditions = Self::default();
        conditions.add("machine", machine());
        conditions.add("kernel", read("/proc/sys/kernel/osrelease"));
        conditions.add("load", read("/proc/loadavg"));
        conditions
    }

    /// One more.
    pub fn add(&mut self, name: &str, value: impl Into<String>) {
        self.0.push((name.to_owned(), value.into()));
    }

    /// All of them, a line each.
    pub fn print(&self) {
        for (name, value) in &self.0 {
            println!("{name:<8} {value}");
        }
        println!();
    }
}

fn read(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_else(|_| "unknown".to_owned());
    text.trim().to_owned()
}

fn machine() -> String {
    cpu_model().unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// The value that a row is expected to reach.
#[must_use]
pub fn goal(expected: Option<Expected>) -> Option<f64> {
    match expected? {
        Expected::AtLeast(value) | Expected::AtMost(value) | Expected::Within { value, .. } => {
            Some(value)
        }
    }
}

/// How many of the goals were met, in words.
#[must_use]
pub fn met(verdicts: impl Iterator<Item = Option<Verdict>>) -> String {
    let verdicts: Vec<Verdict> = verdicts.flatten().collect();
    let count = |wanted| verdicts.iter().filter(|one| **one == wanted).count();
    format!(
        "{} of {} goals reproduced, {} in direction only",
        count(Verdict::Reproduced),
        verdicts.len(),
        count(Verdict::Direction)
    )
}

/// The fields around the rows of any bench.
pub fn envelope(command: &str, conditions: &Conditions, rounds: usize, rows: &[Value]) -> Value {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let conditions: serde_json::Map<String, Value> = conditions
        .0
        .iter()
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    json!({
        "schema": SCHEMA,
        "command": command,
        "version": env!("CARGO_PKG_VERSION"),
        "host": {
            "machine": machine(),
            "kernel": read("/proc/sys/kernel/osrelease"),
            "cpus": cpus(),
            "unix_time": since.map_or(0, |since| since.as_secs()),
        },
        "conditions": conditions,
        "rounds": rounds,
        "rows": rows,
    })
}

/// The online CPUs of the machine: a bench may have bound itself to fewer.
fn cpus() -> usize {
    let text = read("/proc/cpuinfo");
    let lines = text.lines();
    lines.filter(|line| line.starts_with("processor")).count()
}

/// Figures with their significant digits.
pub fn rounded(value: Option<f64>) -> Value {
    match value {
        Some(value) if value.is_finite() => json!((value * 1000.0).round() / 1000.0),
        _ => Value::Null,
    }
}

/// Writes `document` on one line to `path`, and creates missing directories.
///
/// # Errors
///
/// The error of the file system.
pub fn write(path: &Path, document: &Value) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(path, format!("{document}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_met_is_said_in_words() {
        let verdicts = [
            None,
            Some(Verdict::Reproduced),
            Some(Verdict::Direction),
            Some(Verdict::NotReproduced),
        ];
        let words = "1 of 3 goals reproduced, 1 in direction only";
        assert_eq!(met(verdicts.into_iter()), words);
    }
}
