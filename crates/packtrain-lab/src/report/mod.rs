//! A document of experiments as one HTML page for people.
//!
//! The page needs nothing else: no network, no script, no font. Each chart is part of a table with
//! the same numbers, or has one below it. All text of the document is escaped.

mod chart;
mod distribution;
mod markup;
mod numbers;
mod page;
mod part;
mod read;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod verdict;
pub mod view;

pub use numbers::number;
pub use page::html;

use std::io;
use std::path::Path;

/// Writes a page or a document to a file. An existing file is replaced in one step, and missing
/// directories are made.
///
/// # Errors
/// The error of the file system. Then an existing file is unchanged.
pub fn save(path: &Path, text: &str) -> io::Result<()> {
    packtrain_measure::report::write_text(path, text)
}

/// Finds out whether [`save`] can write to `path`, and leaves what is there.
///
/// # Errors
/// The error of the file system.
pub fn can_save(path: &Path) -> io::Result<()> {
    packtrain_measure::report::can_write(path)
}
