//! The rules of the source tree that neither the compiler nor clippy checks.
//!
//! Every rule is a function from a [`Tree`] to breaches, so that a test can break it on a tree of
//! three lines. A table at the top of its file has what the rule allows: a change of the
//! architecture changes a table, which is visible in review.

use std::path::Path;

use anyhow::{Result, bail};

use self::breach::Breach;
use self::tree::Tree;

mod breach;
mod circles;
mod fences;
mod figures;
mod form;
mod layers;
mod paths;
mod port_lines;
mod source;
#[cfg(test)]
mod tests;
mod tokens;
mod tree;
mod unsafe_list;

/// Prints the lines of the ports and of the crates, and what is broken.
pub fn run(root: &Path) -> Result<()> {
    let tree = Tree::read(root)?;
    let [ports, crates] = [port_lines::table(&tree), port_lines::of_crates(&tree)];
    print!("{ports}{crates}");
    let breaches = check(&tree);
    for breach in &breaches {
        println!("{breach}");
    }
    let sources = tree.sources.len();
    if !breaches.is_empty() {
        bail!(
            "tidy: {} breaches in {sources} source files",
            breaches.len()
        );
    }
    println!("tidy: {sources} source files, no breach");
    Ok(())
}

/// Runs every rule. The breaches are sorted by file and line.
fn check(tree: &Tree) -> Vec<Breach> {
    let rules = [
        layers::check,
        fences::check,
        figures::check,
        circles::check,
        unsafe_list::check,
        port_lines::check,
        form::check,
    ];
    let mut breaches: Vec<_> = rules.iter().flat_map(|rule| rule(tree)).collect();
    breaches.sort();
    breaches
}
