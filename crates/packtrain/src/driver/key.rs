//! Keys: the settings of a port as text. Each kind of port has one table of its keys in the file of
//! its driver. Parsing, printing, help and documentation read the tables.

use crate::name::Name;
use crate::policy::SettingError;
use packtrain_offload::offload::LinkType;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The values that a key takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Takes {
    /// None: the key stands alone.
    Flag,
    /// The words of its type.
    Words,
    /// One of two words, for "no" and "yes".
    Switch(&'static str, &'static str),
    /// A whole number, with the least and the most.
    Range(u64, u64),
    /// A time, with the least and the most.
    Time(Duration, Duration),
    /// The values in words.
    Text(&'static str),
    /// The same of a policy, whose values have arguments in parentheses.
    Setting(&'static str),
}

/// One key: its name, its values, its effect, and its place in the settings `O`.
pub(crate) struct Key<O: 'static> {
    pub(crate) name: &'static str,
    pub(crate) takes: Takes,
    pub(crate) about: &'static str,
    pub(crate) field: fn(&mut O) -> &mut dyn Field,
}

/// Makes a table of keys: `"name" (Takes) place.in.the.settings: "effect";`
macro_rules! keys {
    ($of:ty; $($name:literal ($($takes:tt)*) $first:ident $(.$field:ident)*: $about:literal;)*) => {
        &[$($crate::driver::key::Key::<$of> {
            name: $name,
            takes: $crate::driver::key::Takes::$($takes)*,
            about: $about,
            field: |settings| &mut settings.$first$(.$field)*,
        }),*]
    };
}
pub(crate) use keys;

/// A key as help and documentation print it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyHelp {
    /// The key.
    pub name: &'static str,
    /// The values that it takes; empty for a key that stands alone.
    pub takes: String,
    /// Its effect, in one sentence without a full stop.
    pub about: &'static str,
}

impl<O: Clone + Default + 'static> Key<O> {
    /// The key for help and documentation.
    pub(crate) fn help(&self) -> KeyHelp {
        let takes = match self.takes {
            Takes::Flag => String::new(),
            Takes::Words => (self.field)(&mut O::default()).words(),
            Takes::Switch(no, yes) => format!("{no}|{yes}"),
            Takes::Range(least, most) => format!("{least}..{most}"),
            Takes::Time(least, most) => {
                format!("TIME ({} to {})", TimeText(least), TimeText(most))
            }
            Takes::Text(text) | Takes::Setting(text) => text.to_owned(),
        };
        KeyHelp {
            name: self.name,
            takes,
            about: self.about,
        }
    }

    /// Sets it to what the user wrote after the name; `None` without `=`.
    ///
    /// # Errors
    ///
    /// One line with what, why and what to do.
    pub(crate) fn set(&self, settings: &mut O, value: Option<&str>) -> Result<(), String> {
        let name = self.name;
        if let (Takes::Flag, Some(value)) = (self.takes, value) {
            let value = Quoted(value);
            return Err(format!(
                "key '{name}' takes no value, not even {value}; write it alone"
            ));
        }
        let takes = || self.help().takes;
        let value = match value {
            None | Some("") if !matches!(self.takes, Takes::Flag) => {
                return Err(format!(
                    "key '{name}' needs a value: write {name}={}",
                    takes()
                ));
            }
            value => value.unwrap_or_default(),
        };
        let quoted = Quoted(value);
        if matches!(self.takes, Takes::Setting(_)) && !is_balanced(value) {
            return Err(format!(
                "{name}= has {quoted}, whose parentheses do not pair up; it takes {}",
                takes()
            ));
        }
        let set = (self.field)(settings).set(value, self.takes);
        set.map_err(|wrong| match wrong {
            Wrong::Value => format!("{name}= cannot be {quoted}; it takes {}", takes()),
            Wrong::Said(line) => line,
        })
    }

    /// Its value as text, and nothing if it is the default. A flag's is empty.
    pub(crate) fn shown(&self, settings: &O) -> Option<String> {
        let text = |mut settings: O| (self.field)(&mut settings).show(self.takes);
        let now = text(settings.clone());
        (now != text(O::default())).then_some(now.unwrap_or_default())
    }
}

fn is_balanced(text: &str) -> bool {
    let depth = text.bytes().try_fold(0_usize, |depth, byte| match byte {
        b'(' => Some(depth + 1),
        b')' => depth.checked_sub(1),
        _ => Some(depth),
    });
    depth == Some(0)
}

/// Why a value was refused.
#[derive(Debug)]
pub(crate) enum Wrong {
    /// It is none of those that the key takes.
    Value,
    /// One line with what, why and what to do.
    Said(String),
}

impl From<SettingError> for Wrong {
    fn from(error: SettingError) -> Self {
        Self::Said(error.to_string())
    }
}

/// A place for the value of a key.
pub(crate) trait Field {
    /// Sets it from text; the text of a flag is empty.
    fn set(&mut self, text: &str, takes: Takes) -> Result<(), Wrong>;

    /// Its text, which sets it to the same again; `None` without a value.
    fn show(&self, takes: Takes) -> Option<String>;

    /// The words that it takes, for [`Takes::Words`].
    fn words(&self) -> String;
}

/// A value that is read from text.
pub(crate) trait Value: Sized {
    /// The value of a text.
    fn read(text: &str, takes: Takes) -> Result<Self, Wrong>;

    /// The text of the value.
    fn text(&self, takes: Takes) -> String;

    /// The words that it takes, for [`Takes::Words`].
    fn words() -> String {
        String::new()
    }
}

impl<T: Value> Field for T {
    fn set(&mut self, text: &str, takes: Takes) -> Result<(), Wrong> {
        *self = T::read(text, takes)?;
        Ok(())
    }

    fn show(&self, takes: Takes) -> Option<String> {
        Some(self.text(takes))
    }

    fn words(&self) -> String {
        T::words()
    }
}

impl<T: Value> Field for Option<T> {
    fn set(&mut self, text: &str, takes: Takes) -> Result<(), Wrong> {
        *self = Some(T::read(text, takes)?);
        Ok(())
    }

    fn show(&self, takes: Takes) -> Option<String> {
        self.as_ref().map(|value| value.text(takes))
    }

    fn words(&self) -> String {
        T::words()
    }
}

/// A value that is one of a few words.
pub(crate) trait Words: Copy + PartialEq + 'static {
    /// Each value with its word, in the order of help.
    const WORDS: &'static [(&'static str, Self)];

    /// The word of a value; empty if it has none.
    fn word(self) -> &'static str {
        let found = Self::WORDS.iter().find(|(_, value)| *value == self);
        found.map_or("", |(word, _)| word)
    }
}

impl<T: Words> Value for T {
    fn read(text: &str, _: Takes) -> Result<Self, Wrong> {
        let found = T::WORDS.iter().find(|(word, _)| *word == text);
        found.map(|(_, value)| *value).ok_or(Wrong::Value)
    }

    fn text(&self, _: Takes) -> String {
        self.word().to_owned()
    }

    fn words() -> String {
        let words: Vec<_> = T::WORDS.iter().map(|(word, _)| *word).collect();
        words.join("|")
    }
}

impl Words for LinkType {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("ethernet", Self::Ethernet),
        ("ip", Self::RawIp),
        ("ipoib", Self::Ipoib),
    ];
}

/// A number within `least..=most`. Digits only: `FromStr` of integers would also take a sign.
pub(crate) fn number<T: FromStr>(text: &str, least: u64, most: u64) -> Result<T, Wrong> {
    let value: u64 = match text.parse() {
        Ok(value) if text.bytes().all(|byte| byte.is_ascii_digit()) => value,
        _ => return Err(Wrong::Value),
    };
    if !(least..=most).contains(&value) {
        return Err(Wrong::Value);
    }
    text.parse().map_err(|_| Wrong::Value)
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Value for $number {
            fn read(text: &str, takes: Takes) -> Result<Self, Wrong> {
                match takes {
                    Takes::Range(least, most) => number(text, least, most),
                    _ => Err(Wrong::Value),
                }
            }

            fn text(&self, _: Takes) -> String {
                self.to_string()
            }
        }
    )*};
}
numbers! { u8 u16 u32 u64 usize }

impl Value for bool {
    fn read(text: &str, takes: Takes) -> Result<Self, Wrong> {
        match takes {
            Takes::Switch(no, _) if text == no => Ok(false),
            Takes::Switch(_, yes) if text != yes => Err(Wrong::Value),
            _ => Ok(true),
        }
    }

    fn text(&self, takes: Takes) -> String {
        match (takes, self) {
            (Takes::Switch(no, _), false) => no.to_owned(),
            (Takes::Switch(_, yes), true) => yes.to_owned(),
            (_, false) => "false".to_owned(),
            (_, true) => String::new(),
        }
    }
}

/// A probability, 0 to 1.
impl Value for f64 {
    fn read(text: &str, _: Takes) -> Result<Self, Wrong> {
        let value: Self = text.parse().map_err(|_| Wrong::Value)?;
        // Adding zero turns the negative zero into the ordinary one.
        let chance = (0.0..=1.0).contains(&value).then_some(value + 0.0);
        chance.ok_or(Wrong::Value)
    }

    fn text(&self, _: Takes) -> String {
        self.to_string()
    }
}

impl Value for PathBuf {
    fn read(text: &str, _: Takes) -> Result<Self, Wrong> {
        if text.contains('\0') {
            return Err(Wrong::Value);
        }
        Ok(Self::from(text))
    }

    fn text(&self, _: Takes) -> String {
        Name::from(self).exact().to_owned()
    }
}

/// The settings of policies, which parse themselves. Their own error is the most precise.
macro_rules! settings {
    ($($setting:ty)*) => {$(
        impl Value for $setting {
            fn read(text: &str, _: Takes) -> Result<Self, Wrong> {
                Ok(text.parse()?)
            }

            fn text(&self, _: Takes) -> String {
                self.to_string()
            }
        }
    )*};
}
settings! {
    crate::policy::dispatch::Dispatch
    crate::policy::moderation::Moderation
    crate::policy::gro::Flush
}

const TIME_UNITS: [(&str, u64); 4] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
];

impl Value for Duration {
    fn read(text: &str, takes: Takes) -> Result<Self, Wrong> {
        let digits = text.find(|c: char| !c.is_ascii_digit());
        let (count, unit) = text.split_at(digits.ok_or(Wrong::Value)?);
        let unit = TIME_UNITS.iter().find(|(name, _)| *name == unit);
        let (_, unit) = unit.ok_or(Wrong::Value)?;
        let count: u64 = number(count, 0, u64::MAX)?;
        let time = Self::from_nanos(count.checked_mul(*unit).ok_or(Wrong::Value)?);
        match takes {
            Takes::Time(least, most) if (least..=most).contains(&time) => Ok(time),
            _ => Err(Wrong::Value),
        }
    }

    fn text(&self, _: Takes) -> String {
        TimeText(*self).to_string()
    }
}

/// A time in the largest unit that has no fraction.
struct TimeText(Duration);

impl fmt::Display for TimeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let fits = |&&(_, unit): &&(_, u64)| nanos.is_multiple_of(u128::from(unit));
        match TIME_UNITS.iter().rev().find(fits) {
            Some(&(name, unit)) if nanos > 0 => write!(f, "{}{name}", nanos / u128::from(unit)),
            _ => f.write_str("0ns"),
        }
    }
}

/// The user's text in quotes, as one line of bounded length.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 60;
        let shown: String = self.0.chars().take(SHOWN).collect();
        let more = if shown.len() < self.0.len() {
            "..."
        } else {
            ""
        };
        let safe = shown.chars().flat_map(|c| {
            // The quote and the backslash are safe on every terminal.
            let plain = !c.is_control() && !c.is_whitespace() || c == ' ';
            let escaped = (!plain).then(|| c.escape_default());
            escaped.into_iter().flatten().chain(plain.then_some(c))
        });
        write!(f, "'{}{more}'", safe.collect::<String>())
    }
}
