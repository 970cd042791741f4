//! The report of all checks.

use packtrain::name::{Name, printable};
use std::path::PathBuf;

use serde::Serialize;

use super::probe::Wrong;
use super::speed::Speed;

/// What became of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing was wrong.
    Passed,
    /// Packets with wrong bytes, twice, or with a checksum that nothing verified.
    WrongBytes,
    /// Packets of a flow in another order.
    Reordered,
    /// Packets did not arrive, and nothing said so.
    LostInSilence,
    /// Too few bytes or packets a second.
    Slow,
    /// The program ended.
    Ended,
    /// There is nothing to check: the devices are of the other kind, or an IP version is left out.
    NotApplicable,
    /// The harness cannot judge it.
    NotJudged,
}

impl Verdict {
    /// Words for a table.
    pub fn words(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::WrongBytes => "wrong bytes",
            Self::Reordered => "reordered",
            Self::LostInSilence => "lost in silence",
            Self::Slow => "slow",
            Self::Ended => "ended",
            Self::NotApplicable => "not applicable",
            Self::NotJudged => "not judged",
        }
    }

    /// Whether it is a failure of the program.
    pub fn is_failure(&self) -> bool {
        !matches!(self, Self::Passed | Self::NotApplicable | Self::NotJudged)
    }
}

impl From<Wrong> for Verdict {
    fn from(wrong: Wrong) -> Self {
        match wrong {
            Wrong::Bytes => Self::WrongBytes,
            Wrong::Reordered => Self::Reordered,
            Wrong::Lost => Self::LostInSilence,
            Wrong::Slow => Self::Slow,
            Wrong::Ended => Self::Ended,
        }
    }
}

/// A row of the report.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The check.
    pub check: &'static str,
    /// What a program that passes does.
    pub about: &'static str,
    /// Where such a fault was seen, or the rule.
    pub source: &'static str,
    /// What became of it.
    pub verdict: Verdict,
    /// What is wrong, or why it was not judged; empty if it passed.
    pub what: String,
    /// The cause, as far as it is known, with what to do: rows with the same one are one finding.
    /// Empty if unknown.
    pub cause: String,
    /// The least input that shows it: packets, in the order in which they are sent. Empty if an
    /// earlier row has the same cause.
    pub least: Vec<String>,
    /// Whether `least` failed when it was sent once more at the end; `None` if it was not. A fault
    /// that does not always show may depend on time, or on packets before.
    pub shows_again: Option<bool>,
    /// How often packets were sent to find `least` and to show it again: at most 42, and 0 if there
    /// was no search.
    pub tries: usize,
    /// A capture of these packets: what went in one host and what arrived in the other.
    pub capture: Option<PathBuf>,
    /// Figures, for checks that measure.
    pub figures: String,
    /// That no large packet reached the program, or from where none did, in a check of large
    /// packets that passed; else empty.
    pub note: String,
    /// How long it took.
    pub seconds: f64,
}

impl Row {
    /// A failure in lines: what a program that passes does, what this one did, the least input that
    /// shows it, of which at most `lines_max` packets, the source and the capture.
    pub fn details(&self, lines_max: usize) -> String {
        let mut lines = vec![
            format!("{}: {}", self.check, self.verdict.words()),
            format!("  a program that passes: {}", self.about),
            format!("  here: {}", self.what),
        ];
        if !self.cause.is_empty() {
            lines.push(format!("  cause: {}", self.cause));
        }
        if !self.least.is_empty() {
            lines.push(match self.shows_again {
                Some(false) => {
                    "  the fault does not always show: this failed, and passed when it was sent \
                     again:"
                }
                _ => "  the least input that shows it:",
            }.to_owned());
            let shown = self.least.iter().take(lines_max);
            lines.extend(shown.map(|line| format!("    {line}")));
            if let Some(more @ 1..) = self.least.len().checked_sub(lines_max) {
                lines.push(format!("    and {more} more, which --json lists"));
            }
        }
        lines.push(format!("  seen in, or required by: {}", self.source));
        if let Some(capture) = &self.capture {
            lines.push(format!("  capture: {}", Name::from(capture)));
        }
        lines.iter().map(|line| printable(line) + "\n").collect()
    }
}

/// The report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The commands, as given.
    pub commands: Vec<String>,
    /// `tun` or `tap`.
    pub devices: &'static str,
    /// MTU of both interfaces.
    pub mtu: u32,
    /// A row for each check.
    pub rows: Vec<Row>,
    /// What it carries, and what it costs; empty if that was not measured.
    pub speeds: Vec<Speed>,
    /// Why that was not measured; empty if it was, or was left out.
    pub speeds_missing: String,
    /// Whether it was stopped before its end: checks that had not ended have no row.
    pub is_interrupted: bool,
    /// Most resident memory of the program that was seen, in bytes.
    pub memory_bytes: u64,
}

impl Report {
    /// The rows that failed, those with the same cause together, in the order of their first ones.
    pub fn findings(&self) -> Vec<Vec<&Row>> {
        let mut findings: Vec<Vec<&Row>> = Vec::new();
        for row in self.rows.iter().filter(|row| row.verdict.is_failure()) {
            let is_same = |all: &&mut Vec<&Row>| !row.cause.is_empty() && all[0].cause == row.cause;
            match findings.iter_mut().find(is_same) {
                Some(finding) => finding.push(row),
                None => findings.push(vec![row]),
            }
        }
        findings
    }

    /// How many checks failed.
    pub fn failures(&self) -> usize {
        self.rows
            .iter()
            .filter(|row| row.verdict.is_failure())
            .count()
    }
}
