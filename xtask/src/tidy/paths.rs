//! The paths that a source names, in `use` trees and elsewhere.

use super::source::{Kind, Token};

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
    /// From the root of the crate if `is_rooted`, otherwise as written. A glob ends with `*`.
    pub path: Vec<String>,
    /// Whether it begins with `crate`, `super` or `self`.
    pub is_rooted: bool,
    /// The name under which a `use` makes it known.
    pub name: String,
    /// In what it stands.
    pub place: Place,
    /// Whether it calls a macro.
    pub is_macro: bool,
    /// The module in which it stands, from the root of the crate.
    pub module: Vec<String>,
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

/// Every path of at least two segments in `tokens`, and every `use`, of a file that is `module`.
pub fn named(tokens: &[Token], module: &[String]) -> Vec<Named> {
    let mut reader = Reader {
        tokens,
        here: module.to_vec(),
        place: Place::Code,
        is_rooted: false,
        found: Vec::new(),
    };
    reader.read();
    reader.found
}

struct Reader<'a> {
    tokens: &'a [Token],
    /// The module of the next token.
    here: Vec<String>,
    place: Place,
    is_rooted: bool,
    found: Vec<Named>,
}

impl Reader<'_> {
    fn kind(&self, at: usize) -> Option<&Kind> {
        self.tokens.get(at).map(|token| &token.kind)
    }

    fn read(&mut self) {
        let mut depth = 0_usize;
        let mut inline_modules: Vec<usize> = Vec::new();
        let mut i = 0;
        while let Some(token) = self.tokens.get(i) {
            match &token.kind {
                Kind::Sign('{') => depth += 1,
                Kind::Sign('}') => {
                    depth = depth.saturating_sub(1);
                    if inline_modules.last() == Some(&depth) {
                        inline_modules.pop();
                        self.here.pop();
                    }
                }
                Kind::Word(word) if word == "mod" => {
                    // In a macro the module's name may be one of its parameters.
                    let at = i + usize::from(self.kind(i + 1) == Some(&Kind::Sign('$')));
                    if let (Some(Kind::Word(name)), Some(Kind::Sign('{'))) =
                        (self.kind(at + 1), self.kind(at + 2))
                    {
                        let name = name.clone();
                        inline_modules.push(depth);
                        self.here.push(name);
                    }
                }
                // `impl Trait + use<'a>` imports nothing.
                Kind::Word(word) if word == "use" && self.kind(i + 1) != Some(&Kind::Sign('<')) => {
                    self.place = if self.is_visible(i) {
                        Place::Reexport
                    } else {
                        Place::Use
                    };
                    i = self.read_path(i + 1);
                    self.place = Place::Code;
                    continue;
                }
                Kind::Word(_) if self.starts_path(i) => {
                    i = self.read_path(i);
                    continue;
                }
                _ => {}
            }
            i += 1;
        }
    }

    /// Whether `pub` or `pub(…)` stands before `at`.
    fn is_visible(&self, at: usize) -> bool {
        let before = self.tokens.get(..at).unwrap_or_default();
        let end = match before.last() {
            Some(last) if last.is_sign(')') => before
                .iter()
                .rposition(|token| token.is_sign('('))
                .unwrap_or(0),
            _ => before.len(),
        };
        end > 0 && before[end - 1].is_word("pub")
    }

    fn starts_path(&self, at: usize) -> bool {
        let before = at.checked_sub(1).and_then(|i| self.tokens.get(i));
        // `pub(in crate::x)` is a visibility, not an import.
        let is_visibility = before.is_some_and(|token| token.is_word("in"))
            && at >= 2
            && self.tokens[at - 2].is_sign('(');
        let continues = before.is_some_and(|token| token.kind == Kind::PathSep);
        !is_visibility && !continues && self.kind(at + 1) == Some(&Kind::PathSep)
    }

    /// Reads the path or the tree that begins at `at`; returns the index after it, which is more
    /// than `at` if a word is there.
    fn read_path(&mut self, mut at: usize) -> usize {
        let mut base = match self.kind(at) {
            Some(Kind::Word(word)) if self.kind(at + 1) == Some(&Kind::PathSep) => {
                match word.as_str() {
                    "crate" => Some(Vec::new()),
                    "self" => Some(self.here.clone()),
                    "super" => Some(parent(&self.here)),
                    _ => None,
                }
            }
            _ => None,
        };
        self.is_rooted = base.is_some();
        if base.is_some() {
            at += 2;
        }
        while let Some(path) = &base
            && self.tokens.get(at).is_some_and(|t| t.is_word("super"))
            && self.kind(at + 1) == Some(&Kind::PathSep)
        {
            base = Some(parent(path));
            at += 2;
        }
        self.read_tree(at, &base.unwrap_or_default())
    }

    /// Reads a use tree or a plain path that begins at `at` below `base`; returns the index after
    /// it.
    fn read_tree(&mut self, at: usize, base: &[String]) -> usize {
        let Some(token) = self.tokens.get(at) else {
            return at;
        };
        let line = token.line;
        match &token.kind {
            Kind::Sign('{') => {
                let mut i = at + 1;
                while let Some(token) = self.tokens.get(i) {
                    match &token.kind {
                        Kind::Sign('}') => return i + 1,
                        Kind::Sign('*' | '{') | Kind::Word(_) => i = self.read_tree(i, base),
                        _ => i += 1,
                    }
                }
                i
            }
            Kind::Word(word) => {
                let mut path = base.to_vec();
                if word != "self" {
                    path.push(word.clone());
                }
                if self.kind(at + 1) == Some(&Kind::PathSep)
                    && matches!(
                        self.kind(at + 2),
                        Some(Kind::Word(_) | Kind::Sign('{' | '*'))
                    )
                {
                    return self.read_tree(at + 2, &path);
                }
                let is_macro = self.kind(at + 1) == Some(&Kind::Sign('!'));
                let renamed = match (self.kind(at + 1), self.kind(at + 2)) {
                    (Some(Kind::Word(word)), Some(Kind::Word(name))) if word == "as" => {
                        Some(name.clone())
                    }
                    _ => None,
                };
                let end = if renamed.is_some() { at + 3 } else { at + 1 };
                let name = renamed.or_else(|| path.last().cloned());
                self.push(line, path, name.unwrap_or_default(), is_macro);
                end
            }
            Kind::Sign('*') => {
                let mut path = base.to_vec();
                path.push("*".to_owned());
                self.push(line, path, "*".to_owned(), false);
                at + 1
            }
            _ => at,
        }
    }

    fn push(&mut self, line: usize, path: Vec<String>, name: String, is_macro: bool) {
        self.found.push(Named {
            line,
            path,
            is_rooted: self.is_rooted,
            name,
            place: self.place,
            is_macro,
            module: self.here.clone(),
        });
    }
}

fn parent(module: &[String]) -> Vec<String> {
    module[..module.len().saturating_sub(1)].to_vec()
}
