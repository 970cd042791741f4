//! What a replay found.

use packtrain::engine::Ledger;
use packtrain_capture::CaptureError;
use packtrain_capture::replay::{Options, Report};

/// What was found, and how it ended.
pub struct Found {
    /// The configurations.
    pub runs: Vec<Options>,
    /// Of each one.
    pub reports: Vec<Report>,
    /// The inputs, in the order in which they were read.
    pub inputs: Vec<String>,
    /// The input that is broken, and why.
    pub broken: Option<(String, CaptureError)>,
    /// A signal ended the run.
    pub stopped: bool,
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
