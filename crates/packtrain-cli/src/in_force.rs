//! The settings in force for the queues of a port, and their sources.

use crate::args::SettingArgs;
use packtrain::driver::QueueConfig;
use std::fmt;

/// A setting and its source: a key of the port, which takes precedence, an option of the command,
/// or neither.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    /// Its value.
    pub setting: String,
    /// `port`, `option` or `default`.
    pub source: &'static str,
    /// The source in words.
    by: String,
}

impl InForce {
    fn of<T: Default + fmt::Display>(name: &str, key: Option<T>, option: Option<T>) -> Self {
        let (setting, source, by) = match (key, option) {
            (Some(setting), _) => (setting, "port", format!("by {name}=")),
            (None, Some(setting)) => (setting, "option", format!("by --{name}")),
            (None, None) => (T::default(), "default", "by default".to_owned()),
        };
        Self {
            setting: setting.to_string(),
            source,
            by,
        }
    }
}

impl fmt::Display for InForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.setting, self.by)
    }
}

/// The settings of the queues of one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSettings {
    /// Of its TX queues.
    pub dispatch: InForce,
    /// Of its RX queues.
    pub moderation: InForce,
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
    use packtrain::policy::dispatch::Dispatch;
    use packtrain::policy::moderation::Moderation;

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
            let (dispatch, moderation) = settings.of_port(&config);
            assert_eq!(port.dispatch.setting, dispatch.to_string());
            assert_eq!(port.moderation.setting, moderation.to_string());
        }
    }
}
