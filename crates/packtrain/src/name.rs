//! Names from outside, as people see them: of files, sockets, interfaces and processes.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A name from outside. [`Display`](fmt::Display), which is for people, shows it as [`printable`]
/// does; [`Name::exact`] is for documents and system calls.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// The name as it is. What is no UTF-8 in a path is U+FFFD.
    #[must_use]
    pub fn exact(&self) -> &str {
        &self.0
    }
}

impl<P: AsRef<Path>> From<P> for Name {
    fn from(path: P) -> Self {
        Self(path.as_ref().to_string_lossy().into())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&printable(&self.0))
    }
}

/// Whether `c` has to be escaped: a terminal obeys it, it ends a line, or it changes the order in
/// which the characters around it are shown.
#[must_use]
pub fn is_escaped(c: char) -> bool {
    let is_direction = matches!(c, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}');
    c.is_control() || is_direction || matches!(c, '\u{2066}'..='\u{2069}')
}

/// A text from outside, on one line and without what a terminal would obey: such characters are
/// escaped as in Rust (`\n`, `\u{1b}`).
#[must_use]
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match is_escaped(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_on_one_line_in_its_order_and_otherwise_as_it_is() {
        for plain in ["tap0", "ab\u{200d}c ü 試験 \u{1f680}", "a\\n'\"\u{fffd}"] {
            assert_eq!(Name::from(plain).to_string(), plain);
        }
        let hostile = Name::from("a\nb\r\x1b[2J\u{7f}\u{9b}\u{2028}\u{202e}\u{2066}\t\0");
        assert_eq!(
            format!("{hostile:>3}"),
            r"a\nb\r\u{1b}[2J\u{7f}\u{9b}\u{2028}\u{202e}\u{2066}\t\u{0}"
        );
        assert!(hostile.exact().starts_with("a\nb\r\x1b"));
    }
}
