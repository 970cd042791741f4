//! The form of files and lines: sizes, names, unfinished work, and the lints of a manifest.

use super::breach::{Breach, breach};
use super::source::Source;
use super::tree::Tree;

/// Lines that a source file may have without its tests.
const MAX_FILE_LINES: usize = 900;

/// Columns that a line of source may have.
const MAX_COLUMNS: usize = 100;

/// Words that no comment has.
const BANNED_MARKS: &[&str] = &["FIXME", "XXX"];

/// Names that no module, file or folder has.
const BANNED_MODULES: &[&str] = &["utils", "util", "helpers", "helper", "common", "types"];

/// Manifests that are no member of the workspace.
const NO_MEMBERS: &[&str] = &[
    "Cargo.toml",
    "fuzz/Cargo.toml",
    "bindings/python/Cargo.toml",
];

/// The rules of this file, for every source, tests included, and every manifest.
pub fn check(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (path, source) in &tree.sources {
        let mut add =
            |line, what: String, why, fix| breaches.push(breach(path, line, what, why, fix));
        if let Some(error) = &source.error {
            let what = format!("is not parsed: {error}");
            let why = "the rules hold for what they can read";
            add(1, what, why, "let the compiler show the place");
        }
        let lines = source.product_lines().count();
        if lines > MAX_FILE_LINES && !tree.is_test_file(path) {
            let what = format!("{lines} lines without tests, more than {MAX_FILE_LINES}");
            let why = "a file has one subject";
            add(MAX_FILE_LINES + 1, what, why, "split it by subject");
        }
        let parts = path.split('/');
        let parts = parts.map(|part| (1, part.strip_suffix(".rs").unwrap_or(part)));
        for (line, name) in parts.chain(inline_modules(source)) {
            if BANNED_MODULES.contains(&name) {
                let what = format!("the name `{name}`");
                let why = "such a name says nothing, so anything ends up there";
                add(line, what, why, "name the module after its subject");
            }
        }
        for tokens in source.tokens.windows(3) {
            if let ["#", "[", "ignore"] = [0, 1, 2].map(|at| tokens[at].text.as_str()) {
                let why = "a test that never runs protects nothing";
                let fix =
                    "make it run; where the machine lacks something, print `SKIP:` and return";
                add(tokens[2].line, "ignores a test".to_owned(), why, fix);
            }
        }
        for (number, line) in (1..).zip(&source.lines) {
            let columns = line.chars().count();
            if columns > MAX_COLUMNS {
                let what = format!("{columns} columns, more than {MAX_COLUMNS}");
                let fix = "break the line; rustfmt leaves long strings and comments to you";
                add(number, what, "two files must fit side by side", fix);
            }
            let comment = line.split_once("//").map_or("", |(_, comment)| comment);
            let mut words = comment.split(|c: char| !(c.is_alphanumeric() || c == '_'));
            if let Some(word) = words.find(|word| BANNED_MARKS.contains(word)) {
                let why = "what is in the tree works; the rest is in the tracker";
                let fix = "do it now, or say what is and why";
                add(number, format!("a comment says {word}"), why, fix);
            }
        }
    }
    for (path, text) in &tree.texts {
        let is_member = path.ends_with("/Cargo.toml") && !NO_MEMBERS.contains(&path.as_str());
        if is_member && !text.contains("\n[lints]\nworkspace = true\n") {
            let what = "does not inherit the lints of the workspace";
            let why = "the lints hold for all of the code or for none";
            let fix = "add `[lints]` with `workspace = true`";
            breaches.push(breach(path, 1, what, why, fix));
        }
    }
    breaches
}

/// The modules that have their code in the same file, with their lines.
fn inline_modules(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    source.tokens.windows(3).filter_map(|tokens| {
        let is_it = tokens[0].text == "mod" && tokens[2].text == "{";
        is_it.then(|| (tokens[1].line, tokens[1].text.as_str()))
    })
}
