//! The rules of the source tree that neither the compiler nor clippy checks.
//!
//! Every rule is a function from a [`Tree`] to breaches, so that its test breaks it on a tree of
//! three lines. What a rule allows is a table at the top of its file: changing the architecture is
//! a change to a table, visible in review.

use std::fmt;

use self::tree::Tree;

pub mod layers;
pub mod manifest;
pub mod port_lines;
pub mod size;
pub mod source;
#[cfg(test)]
mod tests;
pub mod tree;
pub mod unsafe_list;
pub mod words;

/// One broken rule at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// File, relative to the root of the repository.
    pub path: String,
    /// Line, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
    /// Why there is a rule against it.
    pub why: &'static str,
    /// What to do about it.
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

/// Runs every rule. The breaches are sorted by file and line.
pub fn check(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    breaches.extend(layers::check(tree));
    breaches.extend(unsafe_list::check(tree));
    breaches.extend(port_lines::check(tree));
    breaches.extend(size::check(tree));
    breaches.extend(words::check(tree));
    breaches.extend(manifest::check(tree));
    breaches.sort_by(|a, b| (&a.path, a.line, &a.what).cmp(&(&b.path, b.line, &b.what)));
    breaches
}
