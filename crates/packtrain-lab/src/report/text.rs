//! Text of a document.

use packtrain_measure::markup::Markup;

/// Text as paragraphs: an empty line begins a new one.
pub fn paragraphs(m: &mut Markup, text: &str) {
    for paragraph in text.split("\n\n").filter(|text| !text.trim().is_empty()) {
        let words: Vec<_> = paragraph.split_whitespace().collect();
        m.leaf("p", &[], &words.join(" "));
    }
}

/// A list of text, such as the notes of a document.
pub fn notes(m: &mut Markup, notes: &[String]) {
    if notes.is_empty() {
        return;
    }
    m.element("ul", &[("class", "notes")], |m| {
        notes.iter().for_each(|note| m.leaf("li", &[], note));
    });
}
