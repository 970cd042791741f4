//! The settings in force for the queues of a port, and their sources.

use crate::args::SettingArgs;
use packtrain::driver::QueueConfig;
use packtrain::policy::dispatch::Dispatch;
use packtrain::policy::moderation::Moderation;
use std::fmt;

/// The source of a setting. A key of the port takes precedence over an option of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A key of the port.
    Port,
    /// An option of the command.
    Option,
    /// Neither.
    Default,
}

impl Source {
    /// The word in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Port => "port",
            Self::Option => "option",
            Self::Default => "default",
        }
    }
}

/// A setting and its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InForce<T> {
    /// Its value.
    pub setting: T,
    /// Its source.
    pub source: Source,
    /// The name of the key and of the option.
    name: &'static str,
}

impl<T: Default> InForce<T> {
    fn of(name: &'static str, key: Option<T>, option: Option<T>) -> Self {
        let (setting, source) = match (key, option) {
            (Some(setting), _) => (setting, Source::Port),
            (None, Some(setting)) => (setting, Source::Option),
            (None, None) => (T::default(), Source::Default),
        };
        Self {
            setting,
            source,
            name,
        }
    }
}

impl<T: fmt::Display> fmt::Display for InForce<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name;
        match self.source {
            Source::Port => write!(f, "{}, by {name}=", self.setting),
            Source::Option => write!(f, "{}, by --{name}", self.setting),
            Source::Default => write!(f, "{}, by default", self.setting),
        }
    }
}

/// The settings of the queues of one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSettings {
    /// Of its TX queues.
    pub dispatch: InForce<Dispatch>,
    /// Of its RX queues.
    pub moderation: InForce<Moderation>,
}

impl PortSettings {
    /// For a port with this `config`, under these options.
    pub fn of(args: &SettingArgs, config: &QueueConfig) -> Self {
        Self {
            dispatch: InForce::of("dispatch", config.dispatch, args.dispatch),
            moderation: InForce::of("moderation", config.moderation, args.moderation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packtrain::engine::Settings;

    /// The printed settings must be those that the engine uses.
    #[test]
    fn a_key_beats_an_option_and_an_option_the_default_as_in_the_engine() {
        let fixed = Moderation::Fixed {
            usecs: 9,
            frames: 2,
        };
        let rows = [
            (None, None, "adaptive, by default", "adaptive, by default"),
            (
                Some((Dispatch::Direct, fixed)),
                None,
                "direct, by dispatch=",
                "fixed(9,2), by moderation=",
            ),
            (
                None,
                Some((Dispatch::Deferred, Moderation::Off)),
                "deferred, by --dispatch",
                "off, by --moderation",
            ),
            (
                Some((Dispatch::Direct, fixed)),
                Some((Dispatch::Deferred, Moderation::Off)),
                "direct, by dispatch=",
                "fixed(9,2), by moderation=",
            ),
        ];
        for (keys, options, dispatch, moderation) in rows {
            let config = QueueConfig {
                dispatch: keys.map(|keys| keys.0),
                moderation: keys.map(|keys| keys.1),
                shared: false,
            };
            let args = SettingArgs {
                dispatch: options.map(|options| options.0),
                moderation: options.map(|options| options.1),
                ..SettingArgs::default()
            };
            let settings: Settings = args.settings();
            let port = PortSettings::of(&args, &config);
            assert_eq!(port.dispatch.to_string(), dispatch);
            assert_eq!(port.moderation.to_string(), moderation);
            let engine = settings.of_port(&config);
            assert_eq!((port.dispatch.setting, port.moderation.setting), engine);
        }
    }
}
