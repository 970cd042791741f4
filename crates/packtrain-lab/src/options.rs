//! Options that are read from the command line and from the files of experiments alike.

use std::fmt::Display;
use std::str::FromStr;

use clap::{Args, Command};
use serde::{Deserialize, Deserializer};

pub use packtrain_measure::document::Fields;

/// The options as a command line without any gives them: the defaults are written once, in the
/// attributes that clap reads.
pub fn default_options<T: Args>() -> T {
    let command = T::augment_args(Command::new("").no_binary_name(true));
    let no_words: [&str; 0] = [];
    command
        .try_get_matches_from(no_words)
        .and_then(|matches| T::from_arg_matches(&matches))
        .unwrap_or_else(|error| panic!("every option of a tool has a default: {error}"))
}

/// Reads a value as the command line does.
///
/// # Errors
/// The error of its [`FromStr`].
pub fn from_text<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}
