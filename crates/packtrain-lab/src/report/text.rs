//! Text of a document.

use serde_json::Value;

use super::markup::Markup;
use super::read::{list, word};

/// How many entries of a list there are, in words.
pub fn counted(count: usize, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {many}"),
    }
}

/// Text as paragraphs: an empty line begins a new one.
pub fn paragraphs(m: &mut Markup, text: &str) {
    for paragraph in text.split("\n\n").filter(|text| !text.trim().is_empty()) {
        let words: Vec<_> = paragraph.split_whitespace().collect();
        m.leaf("p", &[], &words.join(" "));
    }
}

/// The lists of text that a document has, such as its notes.
pub fn notes(m: &mut Markup, of: &Value, key: &str) {
    let notes = list(of, key);
    if notes.is_empty() {
        return;
    }
    m.element("ul", &[("class", "notes")], |m| {
        notes.iter().for_each(|note| m.leaf("li", &[], &word(note)));
    });
}
