//! Goals of benches that compare whole programs, round by round.

use crate::key::{Fields, fields};
use crate::report::{Conditions, envelope, rounded, write};
use crate::statistics::{Estimate, coverage_percent};
use crate::verdict::{Expected, Verdict};
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt;
use std::path::Path;

/// A goal, and its result.
#[derive(Clone, Debug)]
pub struct Claim {
    experiment: String,
    claim: String,
    expected: String,
    beside: &'static str,
    measured: Measured,
    verdict: Verdict,
}

#[derive(Clone, Copy, Debug)]
enum Measured {
    /// A ratio over the pairs; `None` if there was none.
    Ratio(Option<Estimate>),
    /// Totals over all rounds: packtrain's, and the other's.
    Totals(u64, u64),
}

impl Claim {
    /// About a ratio to `beside`. Without an estimate it is not reproduced.
    #[must_use]
    pub fn of_ratio(
        experiment: &str,
        claim: String,
        beside: &'static str,
        estimate: Option<Estimate>,
        expected: Expected,
    ) -> Self {
        let verdict = |estimate| expected.verdict(&estimate);
        Self {
            experiment: experiment.to_owned(),
            claim,
            expected: expected.to_string(),
            beside,
            measured: Measured::Ratio(estimate),
            verdict: estimate.map_or(Verdict::NotReproduced, verdict),
        }
    }

    /// About two exact counts, packtrain's and that of `beside`: the first is at most `allowed`,
    /// and `note` explains that bound.
    #[must_use]
    pub fn of_totals(
        experiment: &str,
        claim: String,
        beside: &'static str,
        [ours, theirs]: [u64; 2],
        allowed: u64,
        note: &str,
    ) -> Self {
        Self {
            experiment: experiment.to_owned(),
            claim,
            expected: format!("<= {allowed}, {note}"),
            beside,
            measured: Measured::Totals(ours, theirs),
            verdict: Verdict::exact(ours <= allowed),
        }
    }

    /// Whether the figures are as expected.
    #[must_use]
    pub fn is_met(&self) -> bool {
        self.verdict == Verdict::Reproduced
    }

    /// As in the JSON document of a bench, under `claims`.
    #[must_use]
    pub fn document(&self) -> Value {
        let measured = match self.measured {
            Measured::Ratio(None) => Value::Null,
            Measured::Ratio(Some(estimate)) => json!({
                "median": rounded(Some(estimate.median)),
                "low": rounded(Some(estimate.low)),
                "high": rounded(Some(estimate.high)),
                "pairs": estimate.count,
            }),
            Measured::Totals(ours, theirs) => json!({ "packtrain": ours, "other": theirs }),
        };
        json!({
            "experiment": self.experiment,
            "claim": self.claim,
            "expected": self.expected,
            "measured": measured,
            "beside": self.beside,
            "verdict": self.verdict.name(),
            "must": false,
        })
    }
}

/// One line.
impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let measured = match self.measured {
            Measured::Ratio(estimate) => figures(estimate),
            Measured::Totals(ours, theirs) => format!("{ours} to {theirs}"),
        };
        write!(
            f,
            "{}: {} ({}): {measured}, goal {}: {}",
            self.experiment,
            self.claim,
            self.beside,
            self.expected,
            self.verdict.name()
        )
    }
}

/// The median of pairs and its interval, in words.
#[must_use]
pub fn figures(estimate: Option<Estimate>) -> String {
    estimate.map_or_else(
        || "not measured".to_owned(),
        |Estimate {
             median,
             low,
             high,
             count,
         }| {
            let percent = coverage_percent(count);
            format!("median {median:.3}, {percent:.0} % [{low:.3}, {high:.3}], {count} pairs")
        },
    )
}

/// The document of the bench `name`, which compares whole programs: a row for each run, the medians
/// of each program, and the goals.
pub fn compared(
    name: &str,
    conditions: &Conditions,
    rounds: usize,
    rows: &[impl Serialize],
    medians: impl IntoIterator<Item = Value>,
    claims: &[Claim],
) -> Value {
    let rows = rows.iter().map(|row| {
        let mut all = Fields::new();
        all.insert("experiment".to_owned(), name.into());
        all.extend(fields(row));
        Value::Object(all)
    });
    let rows: Vec<_> = rows.collect();
    let mut document = envelope(&format!("bench {name}"), conditions, rounds, &rows);
    document["medians"] = medians.into_iter().collect();
    document["claims"] = claims.iter().map(Claim::document).collect();
    document
}

/// Writes such a document, and prints where it is.
///
/// # Errors
///
/// The file and the error of the file system.
pub fn save(path: &Path, document: &Value) -> Result<(), String> {
    write(path, document).map_err(|error| format!("write {}: {error}", path.display()))?;
    println!("rows, medians and claims: {}", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::estimate;

    #[test]
    fn a_claim_is_printed_and_written_with_its_verdict() {
        let ratio = |values: &[f64]| {
            let what = "goodput".to_owned();
            Claim::of_ratio(
                "vpn",
                what,
                "tun-rs",
                estimate(values),
                Expected::AtLeast(1.0),
            )
        };
        let claim = ratio(&[1.2, 1.2, 1.2]);
        assert!(claim.is_met());
        assert_eq!(
            claim.to_string(),
            "vpn: goodput (tun-rs): median 1.200, 75 % [1.200, 1.200], 3 pairs, goal >= 1: \
             reproduced"
        );
        let document = claim.document();
        assert_eq!(document["measured"]["median"], 1.2);
        assert_eq!(document["verdict"], "reproduced");

        let missing = ratio(&[]);
        assert!(!missing.is_met());
        assert!(missing.document()["measured"].is_null());
        assert!(missing.to_string().contains("not measured"));
    }

    #[test]
    fn a_count_is_held_against_its_bound() {
        let claim = |ours| {
            let what = "retransmissions".to_owned();
            Claim::of_totals("tap", what, "c-1", [ours, 3], 5, "kernel drops included")
        };
        assert!(claim(5).is_met() && !claim(6).is_met());
        assert_eq!(claim(6).document()["measured"]["packtrain"], 6);
        assert_eq!(
            claim(6).to_string(),
            "tap: retransmissions (c-1): 6 to 3, goal <= 5, kernel drops included: not reproduced"
        );
    }
}
