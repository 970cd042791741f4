//! Bounds of the lines of a file, and of the columns of a line.

use super::breach::Breach;
use super::tree::Tree;

/// Lines that a source file may have without its tests.
const MAX_FILE_LINES: usize = 900;

/// Columns that a line of source may have.
const MAX_COLUMNS: usize = 100;

/// Files that are too long, and lines that are too long.
pub fn check(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (path, source) in tree.sources() {
        let lines = source.product_lines();
        if lines > MAX_FILE_LINES && !tree.is_test_file(path) {
            breaches.push(Breach::new(
                path,
                MAX_FILE_LINES + 1,
                format!("{lines} lines without tests, more than {MAX_FILE_LINES}"),
                "a file has one subject",
                "split it by subject",
            ));
        }
        for (i, line) in source.lines().iter().enumerate() {
            let columns = line.chars().count();
            if columns > MAX_COLUMNS {
                breaches.push(Breach::new(
                    path,
                    i + 1,
                    format!("{columns} columns, more than {MAX_COLUMNS}"),
                    "two files must fit side by side",
                    "break the line; rustfmt leaves long strings and comments to you",
                ));
            }
        }
    }
    breaches
}
