//! Histograms and percentiles among the figures of runs.

use std::collections::BTreeMap;

use packtrain_measure::chart::Percentiles;
use packtrain_measure::document::{Fields, Row};
use packtrain_measure::{key, statistics};
use serde_json::Value;

use super::read::Part;

/// Bins of a histogram that is drawn, about.
const BINS_MAX: usize = 32;

/// A histogram that the runs of an experiment have: its name, and the counts of each row.
#[derive(Debug)]
pub struct Histogram<'a> {
    /// The path among the figures: `a.rx.batches.poll`.
    pub name: String,
    /// The least value of each bin.
    pub bins: Vec<u64>,
    /// Rows with their counts by bin.
    pub rows: Vec<(&'a Row, Vec<u64>)>,
}

/// The histograms of an experiment that are not empty.
pub fn histograms<'a>(part: &Part<'a>) -> Vec<Histogram<'a>> {
    let has_buckets = |value: &Value| value["buckets"].is_array();
    let names = names(part, &has_buckets);
    names
        .into_iter()
        .filter_map(|name| histogram(part, name))
        .collect()
}

fn histogram<'a>(part: &Part<'a>, name: String) -> Option<Histogram<'a>> {
    let counts = part.rows.iter().filter_map(|row| {
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        let runs = part.counted_runs_of(row, false).into_iter();
        let found = runs.filter_map(|run| key::at(&run.figures, &name));
        for bucket in found
            .filter_map(|histogram| histogram["buckets"].as_array())
            .flatten()
        {
            *counts.entry(bucket[0].as_u64()?).or_default() += bucket[1].as_u64()?;
        }
        (!counts.is_empty()).then_some((*row, counts))
    });
    let counts: Vec<_> = counts.collect();
    let values = counts.iter().flat_map(|(_, counts)| counts.keys().copied());
    let values: Vec<u64> = values.collect();
    let merge = bins(&values);
    // The least value of each bin, by the bin.
    let mut least: BTreeMap<u64, u64> = BTreeMap::new();
    for value in values {
        let least = least.entry(merge(value)).or_insert(value);
        *least = (*least).min(value);
    }
    if least.is_empty() {
        return None;
    }
    let rows = counts.into_iter().map(|(row, counts)| {
        let in_bin = |bin: &u64| -> u64 {
            let all = counts.iter().filter(|(value, _)| merge(**value) == *bin);
            all.map(|(_, count)| count).sum()
        };
        (row, least.keys().map(in_bin).collect())
    });
    Some(Histogram {
        name,
        rows: rows.collect(),
        bins: least.into_values().collect(),
    })
}

/// Which values share a bin: none, or as few as possible on a logarithmic scale.
fn bins(values: &[u64]) -> impl Fn(u64) -> u64 + use<> {
    let log = |value: u64, parts: f64| match value {
        0 => 0,
        value => 1 + ((value as f64).log2() * parts + 1e-9) as u64,
    };
    let count = |merge: &dyn Fn(u64) -> u64| {
        let mut bins: Vec<u64> = values.iter().map(|value| merge(*value)).collect();
        bins.sort_unstable();
        bins.dedup();
        bins.len()
    };
    let all = count(&|value| value);
    let parts = [16.0, 8.0, 4.0, 2.0, 1.0];
    let parts = parts
        .into_iter()
        .find(|parts| count(&|value| log(value, *parts)) <= BINS_MAX);
    move |value| {
        if all <= BINS_MAX {
            value
        } else {
            log(value, parts.unwrap_or(1.0))
        }
    }
}

/// The times whose percentiles the runs of an experiment have: the name, and the medians of each
/// row's runs.
pub fn distributions<'a>(part: &Part<'a>) -> Vec<(String, Vec<(&'a Row, Percentiles)>)> {
    // Of batches, the histogram is enough.
    let has_percentiles = |value: &Value| value["p999"].is_number();
    let names = names(part, &has_percentiles).into_iter();
    let of_row = |row: &Row, name: &str| {
        let runs = part.counted_runs_of(row, false);
        let median = |key: &str| {
            let values = runs
                .iter()
                .filter_map(|run| key::at(&run.figures, name)?[key].as_f64());
            let values: Vec<f64> = values.collect();
            (!values.is_empty()).then(|| statistics::median(&values))
        };
        Some(Percentiles {
            min: median("min")?,
            p50: median("p50")?,
            p90: median("p90")?,
            p99: median("p99")?,
            max: median("max")?,
        })
    };
    names
        .map(|name| {
            let rows = part.rows.iter();
            let rows = rows.filter_map(|row| Some((*row, of_row(row, &name)?)));
            let rows: Vec<_> = rows.collect();
            (name, rows)
        })
        .filter(|(_, rows)| !rows.is_empty())
        .collect()
}

/// Paths of the figures of the runs that are wanted, in the order in which they appear.
fn names(part: &Part<'_>, wanted: &dyn Fn(&Value) -> bool) -> Vec<String> {
    let mut names = Vec::new();
    for run in &part.runs {
        find(&run.figures, "", wanted, &mut names);
    }
    names
}

fn find(of: &Fields, path: &str, wanted: &dyn Fn(&Value) -> bool, names: &mut Vec<String>) {
    for (key, value) in of {
        let path = if path.is_empty() {
            key.clone()
        } else {
            format!("{path}.{key}")
        };
        if wanted(value) {
            if !names.contains(&path) {
                names.push(path);
            }
        } else if let Some(fields) = value.as_object() {
            find(fields, &path, wanted, names);
        }
    }
}
