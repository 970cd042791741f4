//! A session of packtrain as a device under test: the settings that it has in force, and its end.

use packtrain::driver::{Driver, Port};
use packtrain::engine::{Report, Session};
use packtrain::plan::Side;

use crate::error::ToolError;
use crate::in_force::InForce;
use crate::options::{Fields, PolicyOptions};

/// The ports `a` and `b`, before a session takes them.
pub(crate) fn sides<D: Driver>(ports: &[Port<D>]) -> Vec<Side> {
    let named = ports.iter().zip(["a", "b"]).map(|(port, name)| Side {
        name: name.into(),
        ..Side::of(&port.driver, port.config)
    });
    named.collect()
}

/// The settings in force of a session that was started on the ports `sides`, requested as
/// `requested`, under `options`.
pub(crate) fn settings(
    session: &Session,
    sides: &[Side],
    options: &PolicyOptions,
    requested: &[&str],
) -> Fields {
    let (plan, settings) = (session.plan(), session.settings());
    InForce::of(sides, plan, settings, options, session.placed()).flat(requested)
}

/// The report of a session that has ended, whose ledger must close.
///
/// # Errors
/// [`ToolError::Failed`] if it ended early, [`ToolError::Check`] if its ledger does not close.
pub(crate) fn checked(report: Report) -> Result<Report, ToolError> {
    if let Some(error) = &report.error {
        return Err(ToolError::Failed(error.to_string()));
    }
    let ledger = report.snapshot.ledger;
    if !ledger.closed() {
        return Err(ToolError::Check(format!(
            "packets are not accounted for: {ledger:?}"
        )));
    }
    Ok(report)
}
