//! The files with `unsafe` are listed in ARCHITECTURE.md, and every block has a comment that says
//! why it is sound.

use std::collections::BTreeMap;

use super::breach::Breach;
use super::source::{Source, Token};
use super::tree::Tree;

/// The page with the list.
const PAGE: &str = "ARCHITECTURE.md";
/// The line before the list; the entries are lines of the form ``- `path` ``.
const BEGIN: &str = "<!-- unsafe-files -->";
/// The line after the list.
const END: &str = "<!-- /unsafe-files -->";

const WHY_LIST: &str = "a reader must know which files can break memory safety";
const WHY_SAFETY: &str = "unsafe code is only as good as the reason why it is sound";

/// The list matches the sources (with tests, examples and benches), and blocks have reasons.
pub fn check(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    for (path, source) in tree.sources() {
        let first = source.tokens().iter().find(|token| token.is_word("unsafe"));
        if let Some(token) = first {
            found.insert(path, token.line);
            breaches.extend(undocumented(path, source));
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
            breaches.push(Breach::new(path, *line, what, WHY_LIST, &fix));
        }
    }
    for (path, line) in listed {
        if !found.contains_key(path.as_str()) {
            let what = format!("lists `{path}`, which contains no `unsafe` or does not exist");
            breaches.push(Breach::new(PAGE, *line, what, WHY_LIST, "remove the line"));
        }
    }
    breaches
}

/// The entries of the list with their lines.
fn listed(page: Option<&str>) -> Result<BTreeMap<String, usize>, Breach> {
    let missing = |what: String, fix: String| Breach::new(PAGE, 1, what, WHY_LIST, &fix);
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
                return Err(Breach::new(PAGE, number, what, WHY_LIST, fix));
            }
        }
    }
    Err(missing(
        format!("has no line `{END}`"),
        "close the list".to_owned(),
    ))
}

/// Blocks, implementations and foreign blocks without `SAFETY:` on the line or above it.
fn undocumented(path: &str, source: &Source) -> Vec<Breach> {
    let tokens = source.tokens();
    let mut breaches = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        if token.is_word("unsafe")
            && needs_reason(tokens.get(i + 1))
            && !has_reason(source, token.line)
        {
            breaches.push(Breach::new(
                path,
                token.line,
                "`unsafe` without a `SAFETY:` comment above it".to_owned(),
                WHY_SAFETY,
                "say why it is sound in a `// SAFETY:` comment, or do without it",
            ));
        }
    }
    breaches
}

/// An `unsafe fn` passes the duty on to its caller, as does a pointer type; `unsafe(…)` is an
/// attribute.
fn needs_reason(next: Option<&Token>) -> bool {
    next.is_some_and(|token| token.is_sign('{') || token.is_word("impl") || token.is_word("extern"))
}

fn has_reason(source: &Source, line: usize) -> bool {
    let comment = |line: usize| source.comments()[line - 1].as_str();
    let code = |line: usize| source.code()[line - 1].trim();
    if comment(line).contains("SAFETY:") {
        return true;
    }
    let mut in_comment = false;
    for above in (1..line).rev() {
        if comment(above).contains("SAFETY:") {
            return true;
        }
        let text = code(above);
        let is_comment = text.is_empty() && !comment(above).trim().is_empty();
        // Upwards through the comment, attributes, and the lines of the same statement.
        let ends_statement = text.is_empty() || text.ends_with([';', '{', '}']);
        if !is_comment && (in_comment || (ends_statement && !text.starts_with('#'))) {
            return false;
        }
        in_comment = in_comment || is_comment;
    }
    false
}
