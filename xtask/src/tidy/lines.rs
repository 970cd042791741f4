//! The lines of Rust, by crate.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::tree::Tree;

/// The table that `tidy` prints: all lines of each crate, and those outside of tests.
pub fn table(tree: &Tree) -> String {
    let mut crates: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for (path, source) in tree.sources() {
        let mut folders = path.split('/');
        let top = folders.next().unwrap_or(path);
        let name = match folders.next() {
            Some(name) if top == "crates" => name,
            _ => top,
        };
        let [all, product] = crates.entry(name).or_default();
        *all += source.lines().len();
        if !tree.is_test_file(path) {
            *product += source.product_lines();
        }
    }
    let total = crates
        .values()
        .fold([0, 0], |a, b| [a[0] + b[0], a[1] + b[1]]);
    let mut out = format!("{:<22} {:>10} {:>14}\n", "crate", "lines", "without tests");
    for (name, [all, product]) in crates.into_iter().chain([("total", total)]) {
        // Writing to a String cannot fail.
        writeln!(out, "{name:<22} {all:>10} {product:>14}").expect("memory");
    }
    out
}
