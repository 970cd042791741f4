//! The files with `unsafe` are listed in ARCHITECTURE.md. Clippy demands the reason of each block.

use std::collections::BTreeMap;

use super::breach::Breach;
use super::tree::Tree;

/// The page with the list.
const PAGE: &str = "ARCHITECTURE.md";
/// The line before the list; the entries are lines of the form ``- `path` ``.
const BEGIN: &str = "<!-- unsafe-files -->";
/// The line after the list.
const END: &str = "<!-- /unsafe-files -->";

const WHY: &str = "a reader must know which files can break memory safety";

/// The list matches the sources (with tests, examples and benches).
pub fn check(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    for (path, source) in tree.sources() {
        let first = source.tokens().iter().find(|token| token.is_word("unsafe"));
        if let Some(token) = first {
            found.insert(path, token.line);
        }
    }
    match listed(tree.text(PAGE)) {
        Ok(listed) => breaches.extend(compare(&found, &listed)),
        Err(breach) => breaches.push(breach),
    }
    breaches
}

fn compare(found: &BTreeMap<&str, usize>, listed: &BTreeMap<String, usize>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (path, line) in found {
        if !listed.contains_key(*path) {
            let what = format!("contains `unsafe` and is not listed in {PAGE}");
            let fix = format!("do without it, or add the line \"- `{path}`\" to {PAGE}");
            breaches.push(Breach::new(path, *line, what, WHY, &fix));
        }
    }
    for (path, line) in listed {
        if !found.contains_key(path.as_str()) {
            let what = format!("lists `{path}`, which contains no `unsafe` or does not exist");
            breaches.push(Breach::new(PAGE, *line, what, WHY, "remove the line"));
        }
    }
    breaches
}

/// The entries of the list with their lines.
fn listed(page: Option<&str>) -> Result<BTreeMap<String, usize>, Breach> {
    let missing = |what: String, fix: String| Breach::new(PAGE, 1, what, WHY, &fix);
    let Some(page) = page else {
        let fix = format!("write it, with the list between `{BEGIN}` and `{END}`");
        return Err(missing("is missing".to_owned(), fix));
    };
    let mut entries = BTreeMap::new();
    let mut lines = page
        .lines()
        .enumerate()
        .map(|(i, line)| (i + 1, line.trim()));
    if !lines.any(|(_, line)| line == BEGIN) {
        return Err(missing(
            format!("has no line `{BEGIN}`"),
            "add the list".to_owned(),
        ));
    }
    for (number, line) in lines {
        if line == END {
            return Ok(entries);
        }
        let path = line
            .strip_prefix("- `")
            .and_then(|rest| rest.strip_suffix('`'));
        match path {
            Some(path) => {
                entries.insert(path.to_owned(), number);
            }
            None if line.is_empty() => {}
            None => {
                let what = format!("has `{line}` in the list of files with `unsafe`");
                let fix = "write one \"- `path`\" a line";
                return Err(Breach::new(PAGE, number, what, WHY, fix));
            }
        }
    }
    Err(missing(
        format!("has no line `{END}`"),
        "close the list".to_owned(),
    ))
}
