//! A Rust source file, parsed as far as the rules need it: code, comments, lines of test code,
//! and tokens.

/// The kind of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An identifier or keyword.
    Word(String),
    /// `::`
    PathSep,
    /// Any other character that is not white space.
    Sign(char),
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
    raw: Vec<String>,
    code: Vec<String>,
    comments: Vec<String>,
    tokens: Vec<Token>,
    in_test: Vec<bool>,
    test_modules: Vec<String>,
}

impl Source {
    /// Parses a text. For text that is not Rust the result is meaningless, and there is no panic.
    pub fn parse(text: &str) -> Self {
        let (code, comments) = split_comments(text);
        let to_lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let code = to_lines(&code);
        let tokens = tokenize(&code);
        let (in_test, test_modules) = find_tests(&tokens, code.len());
        Self {
            raw: to_lines(text),
            code,
            comments: to_lines(&comments),
            tokens,
            in_test,
            test_modules,
        }
    }

    /// The lines of the file.
    pub fn raw(&self) -> &[String] {
        &self.raw
    }

    /// The lines with comments and the contents of literals replaced by blanks.
    pub fn code(&self) -> &[String] {
        &self.code
    }

    /// The lines with everything but comments replaced by blanks.
    pub fn comments(&self) -> &[String] {
        &self.comments
    }

    /// All tokens, test code included.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// The tokens outside test code.
    pub fn product_tokens(&self) -> Vec<Token> {
        self.tokens
            .iter()
            .filter(|token| !self.is_test(token.line))
            .cloned()
            .collect()
    }

    /// True when the line (from 1) belongs to an item under `#[cfg(test)]`.
    pub fn is_test(&self, line: usize) -> bool {
        self.in_test.get(line - 1).copied().unwrap_or(false)
    }

    /// Names declared as `#[cfg(test)] mod name;`.
    pub fn test_modules(&self) -> &[String] {
        &self.test_modules
    }

    /// The number of lines without test code.
    pub fn product_lines(&self) -> usize {
        (1..=self.raw.len())
            .filter(|line| !self.is_test(*line))
            .count()
    }

    /// The number of lines of code, without tests, comments and blank lines.
    pub fn code_lines(&self) -> usize {
        let is_code =
            |(i, line): &(usize, &String)| !line.trim().is_empty() && !self.is_test(i + 1);
        self.code.iter().enumerate().filter(is_code).count()
    }
}

/// Returns the text twice, of the same shape: once only code, once only comments.
fn split_comments(text: &str) -> (String, String) {
    let chars: Vec<char> = text.chars().collect();
    let mut out = Split::default();
    let mut i = 0;
    while i < chars.len() {
        let next = chars.get(i + 1).copied();
        let end = match chars[i] {
            '/' if next == Some('/') => {
                let end = find(&chars, i, |c| c == '\n');
                out.comment(&chars[i..end]);
                end
            }
            '/' if next == Some('*') => {
                let end = block_comment_end(&chars, i);
                out.comment(&chars[i..end]);
                end
            }
            '"' => {
                let end = string_end(&chars, i + 1);
                out.literal(&chars[i..end]);
                end
            }
            '\'' => match char_literal_end(&chars, i) {
                Some(end) => {
                    out.literal(&chars[i..end]);
                    end
                }
                None => out.code(&chars[i..=i], i),
            },
            c if c.is_alphanumeric() || c == '_' => {
                let end = find(&chars, i, |c| !(c.is_alphanumeric() || c == '_'));
                let word: String = chars[i..end].iter().collect();
                match raw_string_end(&chars, &word, end) {
                    Some(end) => {
                        out.literal(&chars[i..end]);
                        end
                    }
                    None => out.code(&chars[i..end], end - 1),
                }
            }
            _ => out.code(&chars[i..=i], i),
        };
        i = end.max(i + 1);
    }
    (out.code, out.comments)
}

#[derive(Default)]
struct Split {
    code: String,
    comments: String,
}

impl Split {
    /// Copies code; returns the index after `last`.
    fn code(&mut self, chars: &[char], last: usize) -> usize {
        self.code.extend(chars);
        self.comments.extend(chars.iter().map(|c| blank(*c)));
        last + 1
    }

    fn comment(&mut self, chars: &[char]) {
        self.comments.extend(chars);
        self.code.extend(chars.iter().map(|c| blank(*c)));
    }

    /// A literal keeps a mark on each of its lines, so that a line of a long string is still
    /// counted as code.
    fn literal(&mut self, chars: &[char]) {
        self.code.extend(
            chars
                .iter()
                .map(|c| if c.is_whitespace() { *c } else { '"' }),
        );
        self.comments.extend(chars.iter().map(|c| blank(*c)));
    }
}

fn blank(c: char) -> char {
    if c == '\n' { '\n' } else { ' ' }
}

fn find(chars: &[char], from: usize, stop: impl Fn(char) -> bool) -> usize {
    let rest = chars.get(from..).unwrap_or_default();
    rest.iter()
        .position(|c| stop(*c))
        .map_or(chars.len(), |n| from + n)
}

fn block_comment_end(chars: &[char], from: usize) -> usize {
    let (mut depth, mut i) = (0_usize, from);
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                i += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                i += 2;
                if depth == 0 {
                    return i;
                }
            }
            _ => i += 1,
        }
    }
    chars.len()
}

/// `from` is the index after the opening quote.
fn string_end(chars: &[char], from: usize) -> usize {
    let mut i = from;
    while i < chars.len() {
        match chars[i] {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    chars.len()
}

/// None when the quote begins a lifetime.
fn char_literal_end(chars: &[char], from: usize) -> Option<usize> {
    if chars.get(from + 1) == Some(&'\\') {
        return Some((find(chars, from + 3, |c| c == '\'') + 1).min(chars.len()));
    }
    (chars.get(from + 2) == Some(&'\'')).then_some(from + 3)
}

/// The end of a raw string whose prefix is `word`, or None when no raw string begins here.
fn raw_string_end(chars: &[char], word: &str, from: usize) -> Option<usize> {
    if !["r", "br", "cr"].contains(&word) {
        return None;
    }
    let quote = find(chars, from, |c| c != '#');
    if chars.get(quote) != Some(&'"') {
        return None;
    }
    let hashes = quote - from;
    let mut i = quote + 1;
    while i < chars.len() {
        let tail = &chars[i + 1..];
        if chars[i] == '"' && tail.iter().take_while(|c| **c == '#').count() >= hashes {
            return Some(i + 1 + hashes);
        }
        i += 1;
    }
    Some(chars.len())
}

fn tokenize(code: &[String]) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (i, text) in code.iter().enumerate() {
        let line = i + 1;
        let chars: Vec<char> = text.chars().collect();
        let mut at = 0;
        while at < chars.len() {
            let c = chars[at];
            if c.is_alphanumeric() || c == '_' {
                let end = find(&chars, at, |c| !(c.is_alphanumeric() || c == '_'));
                tokens.push(Token {
                    line,
                    kind: Kind::Word(chars[at..end].iter().collect()),
                });
                at = end;
            } else if c == ':' && chars.get(at + 1) == Some(&':') {
                tokens.push(Token {
                    line,
                    kind: Kind::PathSep,
                });
                at += 2;
            } else {
                if !c.is_whitespace() {
                    tokens.push(Token {
                        line,
                        kind: Kind::Sign(c),
                    });
                }
                at += 1;
            }
        }
    }
    tokens
}

/// Marks the lines of items under `#[cfg(test)]`, and names the modules among them that live in
/// another file.
fn find_tests(tokens: &[Token], lines: usize) -> (Vec<bool>, Vec<String>) {
    let mut in_test = vec![false; lines];
    let mut modules = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        let Some((whole_file, item)) = cfg_test_at(tokens, i) else {
            i += 1;
            continue;
        };
        if whole_file {
            in_test.fill(true);
            return (in_test, modules);
        }
        let start = skip_attributes(tokens, item);
        let end = item_end(tokens, start);
        if let [
            a,
            Token {
                kind: Kind::Word(name),
                ..
            },
            c,
        ] = &tokens[start..end]
            && a.is_word("mod")
            && c.is_sign(';')
        {
            modules.push(name.clone());
        }
        let last = tokens[..end].last().map_or(lines, |token| token.line);
        in_test[tokens[i].line - 1..last].fill(true);
        i = end.max(i + 1);
    }
    (in_test, modules)
}

/// At `#[cfg(test)]`, `#[cfg(all(test, …))]` or the same with `#!`: whether it covers the whole
/// file, and the index after it.
fn cfg_test_at(tokens: &[Token], at: usize) -> Option<(bool, usize)> {
    if !tokens[at].is_sign('#') {
        return None;
    }
    let whole_file = tokens.get(at + 1)?.is_sign('!');
    let open = at + 1 + usize::from(whole_file);
    let words: Vec<&str> = tokens[open..]
        .iter()
        .take(6)
        .map(|token| match &token.kind {
            Kind::Word(word) => word.as_str(),
            Kind::Sign('[') => "[",
            Kind::Sign('(') => "(",
            _ => "",
        })
        .collect();
    let is_test = words.starts_with(&["[", "cfg", "(", "test"])
        || words.starts_with(&["[", "cfg", "(", "all", "(", "test"]);
    is_test.then(|| (whole_file, matching_end(tokens, open)))
}

fn skip_attributes(tokens: &[Token], mut at: usize) -> usize {
    while at + 1 < tokens.len() && tokens[at].is_sign('#') && tokens[at + 1].is_sign('[') {
        at = matching_end(tokens, at + 1);
    }
    at
}

/// The index after the bracket that closes the one at `open`.
fn matching_end(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (i, token) in tokens.iter().enumerate().skip(open) {
        match token.kind {
            Kind::Sign('(' | '[' | '{') => depth += 1,
            Kind::Sign(')' | ']' | '}') => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return i + 1;
                }
            }
            _ => {}
        }
    }
    tokens.len()
}

/// The index after the item, statement, field or match arm that begins at `start`.
fn item_end(tokens: &[Token], start: usize) -> usize {
    const ITEMS: &[&str] = &[
        "pub",
        "fn",
        "mod",
        "use",
        "impl",
        "struct",
        "enum",
        "const",
        "static",
        "type",
        "trait",
        "unsafe",
        "extern",
        "async",
        "macro_rules",
        "let",
        "union",
    ];
    let is_item = tokens
        .get(start)
        .is_some_and(|t| ITEMS.iter().any(|word| t.is_word(word)));
    let mut i = start;
    while i < tokens.len() {
        match tokens[i].kind {
            Kind::Sign('{') => return matching_end(tokens, i),
            Kind::Sign('(' | '[') => i = matching_end(tokens, i),
            Kind::Sign(';') => return i + 1,
            Kind::Sign(',') if !is_item => return i + 1,
            Kind::Sign('}') => return i,
            _ => i += 1,
        }
    }
    tokens.len()
}
