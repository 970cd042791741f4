//! A Rust source file as the rules need it: its tokens, and the lines of test code.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// The kind of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An identifier or keyword.
    Word(String),
    /// `::`
    PathSep,
    /// Another character: punctuation or a bracket.
    Sign(char),
    /// A string, a character or a number.
    Literal,
}

/// A token and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Line, from 1.
    pub line: usize,
    /// Its kind.
    pub kind: Kind,
}

impl Token {
    /// True for this identifier or keyword.
    pub fn is_word(&self, word: &str) -> bool {
        matches!(&self.kind, Kind::Word(w) if w == word)
    }

    /// True for this character.
    pub fn is_sign(&self, sign: char) -> bool {
        self.kind == Kind::Sign(sign)
    }
}

/// One parsed file.
#[derive(Debug)]
pub struct Source {
    lines: Vec<String>,
    tokens: Vec<Token>,
    code: BTreeSet<usize>,
    tests: TestCode,
    error: Option<String>,
}

impl Source {
    /// Parses a text. One that is not Rust has an [`error`](Self::error).
    pub fn parse(text: &str) -> Self {
        let mut tokens = Tokens::default();
        let mut tests = TestCode::default();
        let read = text.parse::<TokenStream>().map_err(syn::Error::from);
        let read = read.and_then(|stream| {
            tokens.add(stream.clone());
            syn::parse2::<syn::File>(stream)
        });
        let error = match read {
            Ok(file) => {
                tests.read(&file);
                None
            }
            Err(error) => Some(error.to_string()),
        };
        Self {
            lines: text.lines().map(str::to_owned).collect(),
            tokens: tokens.found,
            code: tokens.lines,
            tests,
            error,
        }
    }

    /// Why the text is no Rust.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// The lines of the file.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// All tokens, test code included. Comments, also those of documentation, are none.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// The tokens outside test code.
    pub fn product_tokens(&self) -> Vec<Token> {
        let tokens = self.tokens.iter();
        tokens
            .filter(|token| !self.is_test(token.line))
            .cloned()
            .collect()
    }

    /// True when the line (from 1) belongs to an item under `#[cfg(test)]`.
    pub fn is_test(&self, line: usize) -> bool {
        self.tests.is_all || self.tests.lines.contains(&line)
    }

    /// Names declared as `#[cfg(test)] mod name;`.
    pub fn test_modules(&self) -> &[String] {
        &self.tests.modules
    }

    /// The number of lines without test code.
    pub fn product_lines(&self) -> usize {
        let lines = 1..=self.lines.len();
        lines.filter(|line| !self.is_test(*line)).count()
    }

    /// The number of lines of code, without tests, comments and blank lines.
    pub fn code_lines(&self) -> usize {
        let lines = self.code.iter();
        lines.filter(|line| !self.is_test(**line)).count()
    }
}

/// The tokens of a stream one after the other, and the lines that have some.
#[derive(Default)]
struct Tokens {
    found: Vec<Token>,
    lines: BTreeSet<usize>,
}

impl Tokens {
    fn push(&mut self, line: usize, kind: Kind) {
        self.lines.insert(line);
        self.found.push(Token { line, kind });
    }

    fn add(&mut self, stream: TokenStream) {
        let trees: Vec<TokenTree> = stream.into_iter().collect();
        let mut at = 0;
        while let Some(tree) = trees.get(at) {
            let (span, line) = (tree.span(), tree.span().start().line);
            at += 1;
            match tree {
                TokenTree::Ident(word) => self.push(line, Kind::Word(word.to_string())),
                TokenTree::Literal(_) => {
                    self.lines.extend(line..=span.end().line);
                    self.push(line, Kind::Literal);
                }
                TokenTree::Punct(sign) => {
                    let documents = documentation(&trees[at - 1..]);
                    let is_path = sign.as_char() == ':'
                        && sign.spacing() == Spacing::Joint
                        && is_sign(trees.get(at), ':');
                    if documents > 0 {
                        at += documents - 1;
                    } else if is_path {
                        at += 1;
                        self.push(line, Kind::PathSep);
                    } else {
                        self.push(line, Kind::Sign(sign.as_char()));
                    }
                }
                TokenTree::Group(group) => {
                    let [open, close] = match group.delimiter() {
                        Delimiter::Parenthesis => ['(', ')'],
                        Delimiter::Bracket => ['[', ']'],
                        // Without a delimiter is only what a macro has put together.
                        Delimiter::Brace | Delimiter::None => ['{', '}'],
                    };
                    self.push(line, Kind::Sign(open));
                    self.add(group.stream());
                    self.push(span.end().line, Kind::Sign(close));
                }
            }
        }
    }
}

/// The number of trees of a comment that is documentation, `#[doc = …]` or `#![doc = …]`, if they
/// begin with one.
fn documentation(trees: &[TokenTree]) -> usize {
    let at = 1 + usize::from(is_sign(trees.get(1), '!'));
    let is_it =
        matches!(trees.get(at), Some(TokenTree::Group(g)) if begins_with(g.stream(), "doc"));
    if is_sign(trees.first(), '#') && is_it {
        at + 1
    } else {
        0
    }
}

fn is_sign(tree: Option<&TokenTree>, sign: char) -> bool {
    matches!(tree, Some(TokenTree::Punct(punct)) if punct.as_char() == sign)
}

fn begins_with(stream: TokenStream, word: &str) -> bool {
    let first = stream.into_iter().next();
    matches!(first, Some(TokenTree::Ident(first)) if first == word)
}

/// What is compiled for tests only.
#[derive(Debug, Default)]
struct TestCode {
    is_all: bool,
    lines: BTreeSet<usize>,
    modules: Vec<String>,
}

impl TestCode {
    fn read(&mut self, file: &syn::File) {
        self.is_all = file.attrs.iter().any(is_cfg_test);
        self.visit_file(file);
    }

    /// Whether an item, field, statement or arm is under `#[cfg(test)]`; its lines are then added.
    fn takes(&mut self, node: &(impl ToTokens + Spanned)) -> bool {
        let mut trees = node.to_token_stream().into_iter();
        let mut is_test = false;
        while let (Some(TokenTree::Punct(sign)), Some(TokenTree::Group(group))) =
            (trees.next(), trees.next())
            && sign.as_char() == '#'
        {
            is_test |= syn::parse2(group.stream()).is_ok_and(|meta| is_test_meta(&meta));
        }
        if is_test {
            let span = node.span();
            self.lines.extend(span.start().line..=span.end().line);
        }
        is_test
    }
}

fn is_cfg_test(attribute: &syn::Attribute) -> bool {
    is_test_meta(&attribute.meta)
}

/// True for `cfg(test)` and `cfg(all(test, …))`.
fn is_test_meta(meta: &syn::Meta) -> bool {
    let syn::Meta::List(list) = meta else {
        return false;
    };
    let inner = list.tokens.clone();
    let inner = match syn::parse2::<syn::MetaList>(inner.clone()) {
        Ok(all) if all.path.is_ident("all") => all.tokens,
        _ => inner,
    };
    list.path.is_ident("cfg") && begins_with(inner, "test")
}

/// Visits what an attribute can stand before, unless it is test code.
macro_rules! visit_product {
    ($($visit:ident $node:ident,)*) => { $(
        fn $visit(&mut self, node: &'ast syn::$node) {
            if !self.takes(node) {
                visit::$visit(self, node);
            }
        }
    )* };
}

impl<'ast> Visit<'ast> for TestCode {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !self.takes(item) {
            visit::visit_item(self, item);
        } else if let syn::Item::Mod(module) = item
            && module.content.is_none()
        {
            self.modules.push(module.ident.to_string());
        }
    }

    visit_product! {
        visit_impl_item ImplItem,
        visit_trait_item TraitItem,
        visit_field Field,
        visit_field_value FieldValue,
        visit_variant Variant,
        visit_arm Arm,
        visit_stmt Stmt,
    }
}
