//! The tokens of a Rust source, in one list.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

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

/// Appends the tokens of a stream, with the delimiters of its groups.
pub fn flatten(stream: TokenStream, found: &mut Vec<Token>) {
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
