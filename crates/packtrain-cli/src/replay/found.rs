//! What a replay found.

use packtrain::engine::Ledger;
use packtrain_capture::CaptureError;
use packtrain_capture::replay::{Options, Report};

/// What was found, and how it ended.
#[derive(Default)]
pub struct Found {
    /// The configurations.
    pub runs: Vec<Options>,
    /// Of each one.
    pub reports: Vec<Report>,
    /// The inputs, in the order in which they were read.
    pub inputs: Vec<String>,
    /// The inputs that are broken, and why.
    pub broken: Vec<(String, CaptureError)>,
    /// A signal ended the run.
    pub stopped: bool,
    /// With `--parquet`.
    pub stored: Option<Stored>,
}

/// What the data set has of the configurations of the command line.
pub struct Stored {
    /// The folder, as in the command line.
    pub folder: String,
    /// The name of the data set.
    pub dataset: String,
    /// The configurations that ran and were written, by their names in the data set.
    pub written: Vec<String>,
    /// The configurations that it had, and that did not run.
    pub kept: Vec<String>,
    /// Why the captures were not read to their end when one of all these ran.
    pub fault: Option<String>,
}

/// The ledger of a report.
pub fn ledger(report: &Report) -> Ledger {
    Ledger {
        received: report.received,
        expanded: report.expanded,
        transmitted: report.transmitted,
        held: report.held,
        absorbed: report.absorbed,
        dropped: report.dropped,
        ..Ledger::default()
    }
}
