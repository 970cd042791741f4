//! The finding of a rule.

use std::fmt;

/// One broken rule at one place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Breach {
    /// File, relative to the root of the repository.
    pub path: String,
    /// Line, from 1.
    pub line: usize,
    /// The breach, the reason for the rule, and what to do.
    pub text: [String; 3],
}

/// A breach of a rule at a line of a file.
pub fn breach(path: &str, line: usize, what: impl Into<String>, why: &str, fix: &str) -> Breach {
    Breach {
        path: path.to_owned(),
        line,
        text: [what.into(), why.to_owned(), fix.to_owned()],
    }
}

/// The breach of an entry that no source needs, in the tables of the file `table`.
pub fn stale(table: &str, what: &str) -> Breach {
    let what = format!("{what} and is listed");
    let why = "an entry that no source needs guards nothing";
    breach(table, 1, what, why, "correct or remove it")
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.text.join("; "))
    }
}
