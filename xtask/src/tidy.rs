//! The rules of the source tree that neither the compiler nor clippy checks.
//!
//! Every rule is a function from a [`Tree`] to breaches, so that a test can break it on a tree of
//! three lines. A table at the top of its file has what the rule allows: a change of the
//! architecture changes a table, which is visible in review.

use self::breach::Breach;
use self::source::Source;
use self::tree::Tree;

pub mod breach;
pub mod circles;
pub mod layers;
pub mod lines;
pub mod manifest;
pub mod paths;
pub mod port_lines;
pub mod size;
pub mod source;
#[cfg(test)]
mod tests;
pub mod tree;
pub mod unsafe_list;
pub mod waiting;
pub mod words;

/// Runs every rule. The breaches are sorted by file and line.
pub fn check(tree: &Tree) -> Vec<Breach> {
    let mut breaches: Vec<_> = tree.sources().filter_map(unparsed).collect();
    breaches.extend(layers::check(tree));
    breaches.extend(layers::stale(tree));
    breaches.extend(waiting::check(tree));
    breaches.extend(circles::check(tree));
    breaches.extend(unsafe_list::check(tree));
    breaches.extend(port_lines::check(tree));
    breaches.extend(size::check(tree));
    breaches.extend(words::check(tree));
    breaches.extend(manifest::check(tree));
    breaches.sort_by(|a, b| (&a.path, a.line, &a.what).cmp(&(&b.path, b.line, &b.what)));
    breaches
}

fn unparsed((path, source): (&str, &Source)) -> Option<Breach> {
    let what = format!("is not parsed: {}", source.error()?);
    let why = "the rules hold for what they can read";
    Some(Breach::new(
        path,
        1,
        what,
        why,
        "let the compiler show the place",
    ))
}
