//! The files with `unsafe` are listed in ARCHITECTURE.md. Clippy demands the reason of each block.

use std::collections::BTreeMap;

use super::breach::{Breach, breach};
use super::tree::Tree;

/// The page with the list.
const PAGE: &str = "ARCHITECTURE.md";
/// The lines before and after the list; the entries are lines of the form ``- `path` ``.
const MARKS: [&str; 2] = ["<!-- unsafe-files -->", "<!-- /unsafe-files -->"];

const WHY: &str = "a reader must know which files can break memory safety";

/// The list matches the sources (with tests, examples and benches).
pub fn check(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let mut add = |path: &str, line, what: String, fix: &str| {
        breaches.push(breach(path, line, what, WHY, fix));
    };
    let page = tree.texts.get(PAGE).map_or("", String::as_str);
    let mut marks = MARKS.iter();
    let mut mark = marks.next();
    let mut listed = BTreeMap::new();
    for (number, line) in (1..).zip(page.lines().map(str::trim)) {
        let entry = line
            .strip_prefix("- `")
            .and_then(|rest| rest.strip_suffix('`'));
        match (mark, entry) {
            (Some(next), _) if line == *next => mark = marks.next(),
            (Some(&end), Some(entry)) if end == MARKS[1] => drop(listed.insert(entry, number)),
            (Some(&end), None) if end == MARKS[1] && !line.is_empty() => {
                let what = format!("has `{line}` in the list of files with `unsafe`");
                add(PAGE, number, what, "write one \"- `path`\" a line");
            }
            _ => {}
        }
    }
    if let Some(mark) = mark {
        add(
            PAGE,
            1,
            format!("has no line `{mark}`"),
            "write the list between its marks",
        );
        return breaches;
    }
    for (path, source) in &tree.sources {
        let first = source.tokens.iter().find(|token| token.text == "unsafe");
        if let Some(token) = first
            && listed.remove(path.as_str()).is_none()
        {
            let what = format!("contains `unsafe` and is not listed in {PAGE}");
            let fix = format!("do without it, or add the line \"- `{path}`\" to {PAGE}");
            add(path, token.line, what, &fix);
        }
    }
    for (path, line) in listed {
        let what = format!("lists `{path}`, which contains no `unsafe` or does not exist");
        add(PAGE, line, what, "remove the line");
    }
    breaches
}
