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
    let page = tree.texts.get(PAGE).map_or("", String::as_str);
    let list = page
        .split_once(MARKS[0])
        .and_then(|(before, rest)| Some((before, rest.split_once(MARKS[1])?.0)));
    let Some((before, list)) = list else {
        let what = format!("has no list between `{}` and `{}`", MARKS[0], MARKS[1]);
        return vec![breach(
            PAGE,
            1,
            what,
            WHY,
            "write the list between its marks",
        )];
    };
    let mut breaches = Vec::new();
    let mut add = |path: &str, line, what: String, fix: &str| {
        breaches.push(breach(path, line, what, WHY, fix));
    };
    let mut listed = BTreeMap::new();
    let lines = (before.lines().count() + 1..).zip(list.lines().map(str::trim));
    for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
        let entry = line.strip_prefix("- `");
        if let Some(entry) = entry.and_then(|entry| entry.strip_suffix('`')) {
            listed.insert(entry, number);
        } else {
            let what = format!("has `{line}` in the list of files with `unsafe`");
            add(PAGE, number, what, "write one \"- `path`\" a line");
        }
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
