//! The text of a port spec: its parts and escapes.

use crate::driver::key::Quoted;
use std::fmt;

/// The parts between commas, escapes left in. Commas that are escaped do not count, nor do those in
/// the parentheses of a setting. Elsewhere parentheses mean nothing: file names have them.
pub(super) struct Items<'a> {
    rest: Option<&'a str>,
    /// Whether commas in the parentheses of the value of a key do not count.
    nests: fn(&str) -> bool,
}

impl<'a> Items<'a> {
    pub(super) const fn new(text: &'a str, nests: fn(&str) -> bool) -> Self {
        Self {
            rest: Some(text),
            nests,
        }
    }

    /// The first part, which is a name in any case.
    pub(super) fn name(&mut self) -> &'a str {
        self.part(false).unwrap_or_default()
    }

    fn part(&mut self, may_nest: bool) -> Option<&'a str> {
        let text = self.rest.take()?;
        let (mut escaped, mut in_key, mut nests, mut depth) = (false, may_nest, false, 0_usize);
        for (at, byte) in text.bytes().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'=' if in_key => {
                    in_key = false;
                    nests = (self.nests)(&text[..at]);
                }
                b'(' if nests => depth += 1,
                b')' if nests => depth = depth.saturating_sub(1),
                b',' if depth == 0 => {
                    self.rest = Some(&text[at + 1..]);
                    return Some(&text[..at]);
                }
                _ => {}
            }
        }
        Some(text)
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        self.part(true)
    }
}

pub(super) fn unescape(text: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            plain.push(c);
            continue;
        }
        match chars.next() {
            Some(c @ (',' | '\\')) => plain.push(c),
            _ => {
                return Err(format!(
                    "{} has a backslash that escapes neither a backslash nor a comma; write \\\\ \
                     for a backslash and \\, for a comma",
                    Quoted(text)
                ));
            }
        }
    }
    Ok(plain)
}

/// Text with its commas and backslashes escaped.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.split_inclusive([',', '\\']).try_for_each(|part| {
            match part.strip_suffix([',', '\\']) {
                Some(plain) => write!(f, "{plain}\\{}", &part[plain.len()..]),
                None => f.write_str(part),
            }
        })
    }
}
