//! A document of experiments as one HTML page for people.
//!
//! The page needs nothing else: no network, no script, no font. Each chart is part of a table with
//! the same numbers, or has one below it. All text of the document is escaped.

mod distribution;
mod page;
mod part;
mod read;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod verdict;
pub mod view;

pub use page::html;
pub use read::interval;
