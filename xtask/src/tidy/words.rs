//! Words that mark unfinished work, and names without a meaning.

use super::breach::Breach;
use super::source::{Kind, Source};
use super::tree::Tree;

/// Words that no comment has.
const BANNED_MARKS: &[&str] = &["FIXME", "XXX"];

/// Names that no module, file or folder has.
const BANNED_MODULES: &[&str] = &["utils", "util", "helpers", "helper", "common", "types"];

const WHY_UNFINISHED: &str = "what is in the tree works; the rest is in the tracker";
const WHY_NAME: &str = "such a name says nothing, so anything ends up there";
const RENAME: &str = "name the module after its subject";

/// The rules of this file, for every source, tests included.
pub fn check(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (path, source) in tree.sources() {
        breaches.extend(banned_tokens(path, source));
        breaches.extend(banned_marks(path, source));
        let named = |part: &str| BANNED_MODULES.contains(&part.strip_suffix(".rs").unwrap_or(part));
        if path.split('/').any(named) {
            breaches.push(Breach::new(
                path,
                1,
                "a name without a meaning".into(),
                WHY_NAME,
                RENAME,
            ));
        }
    }
    breaches
}

fn banned_tokens(path: &str, source: &Source) -> Vec<Breach> {
    let tokens = source.tokens();
    let mut breaches = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        let Kind::Word(word) = &token.kind else {
            continue;
        };
        let previous = |n: usize| i.checked_sub(n).and_then(|i| tokens.get(i));
        let next = tokens.get(i + 1);
        let breach = |what: String, why, fix| Breach::new(path, token.line, what, why, fix);
        let is_attribute = previous(1).is_some_and(|t| t.is_sign('['))
            && previous(2).is_some_and(|t| t.is_sign('#'));
        if word == "ignore" && is_attribute {
            breaches.push(breach(
                "ignores a test".to_owned(),
                "a test that never runs protects nothing",
                "make it run; where the machine lacks something, print `SKIP:` and return",
            ));
        }
        let is_module =
            previous(1).is_some_and(|t| t.is_word("mod")) && next.is_some_and(|t| t.is_sign('{'));
        if is_module && BANNED_MODULES.contains(&word.as_str()) {
            breaches.push(breach(format!("module `{word}`"), WHY_NAME, RENAME));
        }
    }
    breaches
}

fn banned_marks(path: &str, source: &Source) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (i, line) in source.lines().iter().enumerate() {
        let comment = line.split_once("//").map_or("", |(_, comment)| comment);
        let mut words = comment.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        if let Some(word) = words.find(|word| BANNED_MARKS.contains(word)) {
            let what = format!("a comment says {word}");
            let fix = "do it now, or say what is and why";
            breaches.push(Breach::new(path, i + 1, what, WHY_UNFINISHED, fix));
        }
    }
    breaches
}
