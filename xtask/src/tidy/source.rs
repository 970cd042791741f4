//! A Rust source file as the rules need it: its tokens, its paths, and the lines of test code.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::paths::{Named, Place, module_path, named};
use super::tokens::{Token, flatten};

/// One parsed file.
#[derive(Debug)]
pub struct Source {
    /// Its lines.
    pub lines: Vec<String>,
    /// Its module, from the root of the crate.
    pub module: Vec<String>,
    /// All tokens, test code included. Comments are none.
    pub tokens: Vec<Token>,
    /// The tokens outside of test code.
    pub product: Vec<Token>,
    /// The paths outside of test code.
    pub named: Vec<Named>,
    /// The names of the items at its top, macros included.
    pub items: BTreeSet<String>,
    /// Why the text is no Rust.
    pub error: Option<String>,
    tests: TestCode,
}

impl Source {
    /// Parses the text of a file, which is named from the `src/` of its crate.
    pub fn parse(file: &str, text: &str) -> Self {
        let (mut tokens, mut tests) = (Vec::new(), TestCode::default());
        let read = text.parse::<TokenStream>().map_err(syn::Error::from);
        let read = read.and_then(|stream| {
            flatten(stream.clone(), &mut tokens);
            syn::parse2::<syn::File>(stream)
        });
        let mut items: &[syn::Item] = &[];
        if let Ok(parsed) = &read {
            let is_test = |attribute: &syn::Attribute| is_cfg_test(&attribute.meta);
            tests.is_all = parsed.attrs.iter().any(is_test);
            tests.visit_file(parsed);
            items = &parsed.items;
        }
        let product = tokens.iter().filter(|token| !tests.has(token.line));
        let product: Vec<Token> = product.cloned().collect();
        let module = module_path(file);
        let mut named = named(&product, &module);
        named.extend(items.iter().filter_map(|item| moved(file, item)));
        Self {
            lines: text.lines().map(str::to_owned).collect(),
            module,
            product,
            named,
            items: items.iter().filter_map(name).collect(),
            error: read.as_ref().err().map(ToString::to_string),
            tokens,
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

/// The name of an item that is defined where it stands.
fn name(item: &syn::Item) -> Option<String> {
    let name = match item {
        syn::Item::Const(item) => &item.ident,
        syn::Item::Enum(item) => &item.ident,
        syn::Item::Fn(item) => &item.sig.ident,
        syn::Item::Macro(item) => item.ident.as_ref()?,
        syn::Item::Mod(item) if item.content.is_some() => &item.ident,
        syn::Item::Static(item) => &item.ident,
        syn::Item::Struct(item) => &item.ident,
        syn::Item::Trait(item) => &item.ident,
        syn::Item::Type(item) => &item.ident,
        syn::Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// A module with an attribute `path`, as a `use` of the module that its file is named after.
fn moved(file: &str, item: &syn::Item) -> Option<Named> {
    let syn::Item::Mod(module) = item else {
        return None;
    };
    let values = module.attrs.iter();
    let mut values = values.filter_map(|attribute| attribute.meta.require_name_value().ok());
    let value = &values.find(|value| value.path.is_ident("path"))?.value;
    let syn::Expr::Lit(syn::ExprLit {
        lit: syn::Lit::Str(to),
        ..
    }) = value
    else {
        return None;
    };
    let folder = file.rfind('/').map_or("", |end| &file[..=end]);
    let path = module_path(&format!("{folder}{}", to.value()));
    Some(Named {
        line: module.ident.span().start().line,
        written: format!("crate::{}", path.join("::")),
        path,
        name: module.ident.to_string(),
        place: Place::Use,
        is_macro: false,
    })
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
