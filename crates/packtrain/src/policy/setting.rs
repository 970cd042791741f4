//! The text form of the settings of policies: a word, or a word with arguments in parentheses.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Why a setting was refused: one line that states what, why, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError(String);

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SettingError {}

impl SettingError {
    pub(super) const fn new(why: String) -> Self {
        Self(why)
    }
}

/// A parsed setting: its word, and its arguments if there are parentheses.
pub(super) struct Parts<'a> {
    /// The policy, for errors.
    policy: &'static str,
    /// Every text that the policy accepts, for errors.
    takes: &'static str,
    text: &'a str,
    pub(super) word: &'a str,
    arguments: Option<&'a str>,
}

impl<'a> Parts<'a> {
    pub(super) fn of(
        policy: &'static str,
        takes: &'static str,
        text: &'a str,
    ) -> Result<Self, SettingError> {
        let (word, arguments) = match text.split_once('(') {
            None => (text, None),
            Some((word, rest)) => match rest.strip_suffix(')') {
                Some(inner) => (word, Some(inner)),
                None => {
                    return Err(SettingError(format!(
                        "{policy} {} does not end with its parenthesis; write {takes}",
                        Quoted(text)
                    )));
                }
            },
        };
        Ok(Self {
            policy,
            takes,
            text,
            word,
            arguments,
        })
    }

    /// `value`, if there are no arguments.
    pub(super) fn alone<T>(&self, value: T) -> Result<T, SettingError> {
        match self.arguments {
            None => Ok(value),
            Some(_) => Err(self.error(&format!("has arguments, but '{}' takes none", self.word))),
        }
    }

    /// The text in the parentheses.
    pub(super) fn arguments(&self) -> Result<&'a str, SettingError> {
        self.arguments
            .ok_or_else(|| self.error(&format!("lacks the arguments of '{}'", self.word)))
    }

    /// An argument as a number of `name` within `range`.
    pub(super) fn number<T: FromStr + PartialOrd + fmt::Display>(
        &self,
        argument: &str,
        name: &str,
        range: RangeInclusive<T>,
    ) -> Result<T, SettingError> {
        // `FromStr` of integers would accept a plus sign as well.
        let digits = argument.strip_prefix('-').unwrap_or(argument);
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        let value = is_number.then(|| argument.parse().ok()).flatten();
        value.filter(|value| range.contains(value)).ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            self.error(&format!(
                "has {} for {name}, which is a number from {least} to {most}",
                Quoted(argument)
            ))
        })
    }

    pub(super) fn unknown(&self) -> SettingError {
        self.error("is not known")
    }

    pub(super) fn error(&self, why: &str) -> SettingError {
        SettingError(format!(
            "{} {} {why}; write {}",
            self.policy,
            Quoted(self.text),
            self.takes
        ))
    }
}

/// The user's text in quotes, as one line of bounded length.
pub(super) struct Quoted<'a>(pub(super) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 60;
        let end = self.0.char_indices().nth(SHOWN).map(|(at, _)| at);
        let shown = &self.0[..end.unwrap_or(self.0.len())];
        let more = if end.is_some() { "..." } else { "" };
        write!(f, "'{}{more}'", shown.escape_debug())
    }
}
