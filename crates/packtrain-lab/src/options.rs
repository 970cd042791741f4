//! Options that are read from the command line and from the files of experiments alike.

use std::fmt::Display;
use std::str::FromStr;

use clap::{Arg, Args, Command};
use packtrain::engine::Settings;
use packtrain::policy::dispatch::Dispatch;
use packtrain::policy::idle::Idle;
use packtrain::policy::moderation::Moderation;
use packtrain::policy::placement::Placement;
use packtrain::policy::priority::Priority;
use serde::{Deserialize, Deserializer};

pub use packtrain_measure::document::Fields;

/// The policies of queues and workers: options of `forward`, `plan` and every tool, and keys of the
/// `[testbed]` of an experiment.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct PolicyOptions {
    /// Which thread drains the ring of a shared TX queue: direct, deferred, abdicate, threshold(n),
    /// adaptive. Quote parentheses in a shell: 'threshold(8)'. A port's own `dispatch=` takes
    /// precedence [default: adaptive]
    #[arg(long, value_name = "HOW")]
    #[serde(deserialize_with = "some_from_text")]
    pub dispatch: Option<Dispatch>,
    /// How long RX queues delay wake-ups: off, fixed(usecs,frames), adaptive. `frames` end the
    /// delay if the device counts waiting packets (a TAP does not). A port's own `moderation=`
    /// takes precedence [default: adaptive]
    #[arg(long, value_name = "WHEN")]
    #[serde(deserialize_with = "some_from_text")]
    pub moderation: Option<Moderation>,
    /// What a worker without work does: halt, poll, adaptive
    #[arg(long, value_name = "HOW", default_value_t)]
    #[serde(deserialize_with = "from_text")]
    pub idle: Idle,
    /// On which CPU each worker runs: none (the scheduler chooses), list(0,2-3), auto
    #[arg(long, value_name = "WHERE", default_value_t)]
    #[serde(deserialize_with = "from_text")]
    pub placement: Placement,
    /// Nice value of the workers' threads: none (inherited), nice(n) with n from -20 to 19, auto
    /// (five levels lower than inherited, as far as the system permits; inherited with --idle poll,
    /// and by TX workers of application senders)
    #[arg(long, value_name = "HOW", default_value_t)]
    #[serde(deserialize_with = "from_text")]
    pub priority: Priority,
}

impl PolicyOptions {
    /// In the framework's type.
    pub fn settings(&self) -> Settings {
        Settings {
            dispatch: self.dispatch.unwrap_or_default(),
            moderation: self.moderation.unwrap_or_default(),
            idle: self.idle,
            placement: self.placement.clone(),
            priority: self.priority,
        }
    }
}

/// The names of the options, as a file has them.
pub fn option_names<T: Args>() -> Vec<String> {
    let command = T::augment_args(Command::new(""));
    let names = command.get_arguments().filter_map(Arg::get_long);
    names.map(str::to_owned).collect()
}

/// The options as a command line without any gives them: the defaults are written once, in the
/// attributes that clap reads.
pub(crate) fn default_options<T: Args>() -> T {
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

/// As [`from_text`], of an option without a default.
///
/// # Errors
/// The error of its [`FromStr`].
pub fn some_from_text<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    from_text(deserializer).map(Some)
}
