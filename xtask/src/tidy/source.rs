//! A Rust source file as the rules need it: its tokens, and the lines of test code.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A word, `::`, another sign, or `"` for a literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Line, from 1.
    pub line: usize,
    /// Its text.
    pub text: String,
}

/// Whether the text of a token is an identifier or a keyword.
pub fn is_word(text: &str) -> bool {
    text.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// One parsed file.
#[derive(Debug)]
pub struct Source {
    /// Its lines.
    pub lines: Vec<String>,
    /// All tokens, test code included. Comments are none.
    pub tokens: Vec<Token>,
    /// The tokens outside of test code.
    pub product: Vec<Token>,
    /// Why the text is no Rust.
    pub error: Option<String>,
    tests: TestCode,
}

impl Source {
    /// Parses a text.
    pub fn parse(text: &str) -> Self {
        let (mut tokens, mut tests) = (Vec::new(), TestCode::default());
        let read = text.parse::<TokenStream>().map_err(syn::Error::from);
        let read = read.and_then(|stream| {
            flatten(stream.clone(), &mut tokens);
            syn::parse2::<syn::File>(stream)
        });
        let read = read.map(|file| {
            let is_test = |attribute: &syn::Attribute| is_cfg_test(&attribute.meta);
            tests.is_all = file.attrs.iter().any(is_test);
            tests.visit_file(&file);
        });
        let product = tokens.iter().filter(|token| !tests.has(token.line));
        Self {
            lines: text.lines().map(str::to_owned).collect(),
            product: product.cloned().collect(),
            tokens,
            error: read.err().map(|error| error.to_string()),
            tests,
        }
    }

    /// Names declared as `#[cfg(test)] mod name;`.
    pub fn test_modules(&self) -> &[String] {
        &self.tests.modules
    }

    /// The lines outside of test code, with their numbers.
    pub fn product_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = (1..).zip(self.lines.iter().map(String::as_str));
        lines.filter(|(number, _)| !self.tests.has(*number))
    }

    /// The number of lines of code, without tests, comments and blank lines.
    pub fn code_lines(&self) -> usize {
        let lines = self.product_lines().map(|(_, line)| line.trim_start());
        let code = lines.filter(|line| !line.is_empty() && !line.starts_with("//"));
        code.count()
    }
}

fn flatten(stream: TokenStream, found: &mut Vec<Token>) {
    let mut is_joint = false;
    for tree in stream {
        let (start, end) = (tree.span().start().line, tree.span().end().line);
        let was_joint = std::mem::take(&mut is_joint);
        let mut push = |line, text: String| found.push(Token { line, text });
        match tree {
            TokenTree::Ident(word) => push(start, word.to_string()),
            TokenTree::Literal(_) => push(start, "\"".to_owned()),
            TokenTree::Punct(sign) if was_joint && sign.as_char() == ':' => {
                found.pop();
                let text = "::".to_owned();
                found.push(Token { line: start, text });
            }
            TokenTree::Punct(sign) => {
                is_joint = sign.as_char() == ':' && sign.spacing() == Spacing::Joint;
                push(start, sign.to_string());
            }
            TokenTree::Group(group) => {
                let [open, close] = match group.delimiter() {
                    Delimiter::Parenthesis => ["(", ")"],
                    Delimiter::Bracket => ["[", "]"],
                    // Without a delimiter is only what a macro has put together.
                    Delimiter::Brace | Delimiter::None => ["{", "}"],
                };
                push(start, open.to_owned());
                flatten(group.stream(), found);
                let text = close.to_owned();
                found.push(Token { line: end, text });
            }
        }
    }
}

/// What is compiled for tests only.
#[derive(Debug, Default)]
struct TestCode {
    is_all: bool,
    lines: BTreeSet<usize>,
    modules: Vec<String>,
}

impl TestCode {
    fn has(&self, line: usize) -> bool {
        self.is_all || self.lines.contains(&line)
    }

    /// Whether an item, field, statement or arm is under `#[cfg(test)]`; its lines are then added.
    fn takes(&mut self, node: &(impl ToTokens + Spanned)) -> bool {
        let mut trees = node.to_token_stream().into_iter();
        let mut is_test = false;
        while let (Some(TokenTree::Punct(sign)), Some(TokenTree::Group(group))) =
            (trees.next(), trees.next())
            && sign.as_char() == '#'
        {
            is_test |= syn::parse2(group.stream()).is_ok_and(|meta| is_cfg_test(&meta));
        }
        if is_test {
            let span = node.span();
            self.lines.extend(span.start().line..=span.end().line);
        }
        is_test
    }
}

/// True for `cfg(test)` and `cfg(all(test, …))`.
fn is_cfg_test(meta: &syn::Meta) -> bool {
    let syn::Meta::List(list) = meta else {
        return false;
    };
    let inner = match syn::parse2::<syn::MetaList>(list.tokens.clone()) {
        Ok(all) if all.path.is_ident("all") => all.tokens,
        _ => list.tokens.clone(),
    };
    let first = inner.into_iter().next();
    let is_test = matches!(first, Some(TokenTree::Ident(first)) if first == "test");
    list.path.is_ident("cfg") && is_test
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
