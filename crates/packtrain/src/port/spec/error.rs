//! Why a text is not a port spec.

use std::fmt;

/// The error of a text that is not a port spec: one line that says what, why and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError(pub(super) String);

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SpecError {}
