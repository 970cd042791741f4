//! The finding of a rule.

use std::fmt;

/// One broken rule at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// File, relative to the root of the repository.
    pub path: String,
    /// Line, from 1.
    pub line: usize,
    /// The breach.
    pub what: String,
    /// The reason for the rule.
    pub why: &'static str,
    /// What to do.
    pub fix: String,
}

impl Breach {
    /// A breach at a line of a file.
    pub fn new(path: &str, line: usize, what: String, why: &'static str, fix: &str) -> Self {
        Self {
            path: path.to_owned(),
            line,
            what,
            why,
            fix: fix.to_owned(),
        }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            line,
            what,
            why,
            fix,
        } = self;
        write!(f, "{path}:{line}: {what}; {why}; {fix}")
    }
}
