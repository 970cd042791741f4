//! The paths that a source names, in `use` trees and elsewhere.

use super::tokens::{Token, is_word};

/// In what a path stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A `use` without visibility.
    Use,
    /// A `use` with visibility.
    Reexport,
    /// Code.
    Code,
}

/// A path that a source names.
#[derive(Debug, PartialEq, Eq)]
pub struct Named {
    /// Line of its last segment.
    pub line: usize,
    /// As written, but from `crate` if it begins with `crate`, `super` or `self`. A glob ends with
    /// `*`.
    pub written: String,
    /// From the root of the crate. A path that begins with a name is taken as one below the module
    /// of the file.
    pub path: Vec<String>,
    /// The name under which a `use` makes it known.
    pub name: String,
    /// In what it stands.
    pub place: Place,
    /// Whether it calls a macro.
    pub is_macro: bool,
}

impl Named {
    /// The path below `crate`; `None` if it may lead to another crate.
    pub fn imported(&self) -> Option<&str> {
        self.written.strip_prefix("crate::")
    }
}

/// `port/sys/tun.rs` is `port::sys::tun`; `lib.rs` and `main.rs` are the root.
pub fn module_path(file: &str) -> Vec<String> {
    let stem = file.strip_suffix(".rs").unwrap_or(file);
    let mut parts: Vec<String> = stem.split('/').map(str::to_owned).collect();
    let is_root = parts.len() == 1 && ["lib", "main"].contains(&parts[0].as_str());
    if is_root || parts.last().is_some_and(|last| last == "mod") {
        parts.pop();
    }
    parts
}

/// Whether a path is `start` or below it.
pub fn begins(path: &str, start: &str) -> bool {
    let rest = path.strip_prefix(start);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Every path of at least two segments in `tokens`, and every `use`, of a file that is `module`.
pub fn named(tokens: &[Token], module: &[String]) -> Vec<Named> {
    let mut reader = Reader {
        tokens,
        module,
        here: module.to_vec(),
        place: Place::Code,
        found: Vec::new(),
    };
    reader.read();
    reader.found
}

struct Reader<'a> {
    tokens: &'a [Token],
    module: &'a [String],
    /// The module of the next token: one in braces is below `module`.
    here: Vec<String>,
    place: Place,
    found: Vec<Named>,
}

impl<'a> Reader<'a> {
    /// The text of a token, empty for an index outside.
    fn text(&self, at: usize) -> &'a str {
        self.tokens.get(at).map_or("", |token| &token.text)
    }

    /// The text `back` tokens before `at`.
    fn before(&self, at: usize, back: usize) -> &'a str {
        self.text(at.wrapping_sub(back))
    }

    fn read(&mut self) {
        // Whether an open brace is that of a module.
        let mut braces = Vec::new();
        let mut at = 0;
        while at < self.tokens.len() {
            match self.text(at) {
                "{" => {
                    // In a macro the module's name may be one of its parameters.
                    let parameter = usize::from(self.before(at, 2) == "$");
                    let is_module = self.before(at, 2 + parameter) == "mod";
                    if is_module {
                        self.here.push(self.before(at, 1).to_owned());
                    }
                    braces.push(is_module);
                }
                "}" if braces.pop() == Some(true) => drop(self.here.pop()),
                // `impl Trait + use<'a>` imports nothing.
                "use" if self.text(at + 1) != "<" => {
                    // A `use` after a parenthesis is one after `pub(…)`.
                    let is_visible = ["pub", ")"].contains(&self.before(at, 1));
                    self.place = if is_visible {
                        Place::Reexport
                    } else {
                        Place::Use
                    };
                    at = self.tree(at + 1, Vec::new(), false);
                    self.place = Place::Code;
                    continue;
                }
                word if is_word(word) && self.starts_path(at) => {
                    at = self.tree(at, Vec::new(), false);
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
    }

    fn starts_path(&self, at: usize) -> bool {
        // `pub(in crate::x)` is a visibility, not an import.
        let is_visibility = self.before(at, 1) == "in" && self.before(at, 2) == "(";
        !is_visibility && self.before(at, 1) != "::" && self.text(at + 1) == "::"
    }

    /// Reads the path or the `use` tree at `at`, below `path`; returns an index after `at`.
    fn tree(&mut self, mut at: usize, mut path: Vec<String>, mut is_rooted: bool) -> usize {
        loop {
            let word = self.text(at);
            if word == "{" {
                at += 1;
                while !["}", ""].contains(&self.text(at)) {
                    at = self.tree(at, path.clone(), is_rooted);
                }
                return at + 1;
            }
            if !is_word(word) && word != "*" {
                return at + 1;
            }
            let next = self.text(at + 2);
            let goes_on =
                self.text(at + 1) == "::" && (is_word(next) || ["{", "*"].contains(&next));
            match word {
                "crate" | "self" | "super" if goes_on && path.is_empty() && !is_rooted => {
                    is_rooted = true;
                    let up = usize::from(word == "super");
                    if word != "crate" {
                        path = self.here[..self.here.len().saturating_sub(up)].to_vec();
                    }
                }
                "super" if is_rooted => drop(path.pop()),
                "self" => {}
                _ => path.push(word.to_owned()),
            }
            if goes_on {
                at += 2;
                continue;
            }
            let is_renamed = self.text(at + 1) == "as" && is_word(next);
            let renamed = is_renamed.then_some(next);
            let name = renamed.or(path.last().map(String::as_str));
            let (root, above) = if is_rooted {
                ("crate::", &[][..])
            } else {
                ("", self.module)
            };
            self.found.push(Named {
                line: self.tokens[at].line,
                written: format!("{root}{}", path.join("::")),
                name: name.unwrap_or_default().to_owned(),
                path: [above, &path[..]].concat(),
                place: self.place,
                is_macro: self.text(at + 1) == "!",
            });
            return at + if is_renamed { 3 } else { 1 };
        }
    }
}
