//! What every JSON document of packtrain begins with.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

/// Name and version of the documents' keys. From version 0.1.0 on, keys are only added to a schema;
/// a meaning that changes gets a new one.
pub const SCHEMA: &str = "packtrain/1";

/// The keys that every document has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Head {
    /// [`SCHEMA`].
    pub schema: String,
    /// The command that wrote it.
    pub command: String,
    /// packtrain's version.
    pub version: String,
    /// The commit that it was built from, shortened; `None` outside of a checkout.
    pub commit: Option<String>,
    /// Where its figures were measured.
    pub host: Host,
}

/// The machine on which figures were measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Host {
    /// The model of its CPUs.
    pub machine: String,
    /// The kernel's release.
    pub kernel: String,
    /// CPUs that the process may use.
    pub cpus: usize,
    /// The time in UTC to the second (RFC 3339 section 5.6).
    pub time: String,
}

impl Head {
    /// That of a document of `command`, here and now.
    #[must_use]
    pub fn of(command: &str) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            command: command.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: None,
            host: Host::here(),
        }
    }
}

impl Host {
    /// This machine, now.
    #[must_use]
    pub fn here() -> Self {
        let arch = std::env::consts::ARCH;
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            machine: cpu_model()
                .map_or_else(|| arch.to_owned(), |model| format!("{model} ({arch})")),
            kernel: kernel.trim().to_owned(),
            cpus: thread::available_parallelism().map_or(1, usize::from),
            time: rfc3339(SystemTime::now()),
        }
    }
}

/// The first CPU's name.
pub(crate) fn cpu_model() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// A time of day in UTC to the second (RFC 3339 section 5.6).
fn rfc3339(time: SystemTime) -> String {
    // A clock that shows a time before 1970 is not set.
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of the day so many days after 1970-01-01, in the Gregorian calendar.
fn civil(days: u64) -> (u64, u64, u64) {
    // Counted from 0000-03-01, so that a leap day is the last day of a year. Eras of 400 years
    // have 146,097 days; 719,468 of them lie between that day and 1970.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leaps = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leaps) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months from March on are 31, 30, 31, 30, 31 days long, again and again: 153 for each five.
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = 400 * era + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_of_day() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_772_323_200, "2026-03-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ];
        for (seconds, text) in cases {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}
