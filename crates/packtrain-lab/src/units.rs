//! Times and rates as they are written on a command line and in the file of an experiment.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use packtrain_measure::numbers::{PREFIXES, prefixed};
use serde::{Deserialize, Deserializer};

/// Units of time. If a name ends like another, the longer one is first.
const UNITS: [(&str, f64); 6] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

/// The longest time that is accepted: a year.
const SECONDS_MAX: f64 = 365.0 * 24.0 * 3600.0;

/// Reads a time such as `10s`, `1.5m` or `500ms`; a bare number is seconds.
///
/// # Errors
/// What to write instead.
pub fn time(text: &str) -> Result<Duration, String> {
    let (number, scale) = UNITS
        .iter()
        .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, *scale)))
        .unwrap_or((text, 1.0));
    let digits = |c: char| c.is_ascii_digit() || c == '.';
    let seconds = match number.parse::<f64>() {
        Ok(number) if number.is_finite() && number.to_string().chars().all(digits) => {
            number * scale
        }
        _ => {
            return Err(
                "write a number and a unit: 10s, 500ms, 50us, 2m, 1h; a bare number is seconds"
                    .to_owned(),
            );
        }
    };
    let time = Duration::from_secs_f64(seconds.min(2.0 * SECONDS_MAX));
    // The time and not the number is checked: less than a nanosecond is 0.
    if time.is_zero() || seconds > SECONDS_MAX {
        return Err("the time must be more than 0 and at most a year".to_owned());
    }
    Ok(time)
}

/// A time that is read and displayed with its unit: `500ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Duration);

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        time(text).map(Self)
    }
}

impl fmt::Display for Time {
    /// In the largest unit in which it is a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.0.as_nanos();
        let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000)];
        let whole = units
            .iter()
            .find(|(_, scale)| nanoseconds.is_multiple_of(*scale));
        match whole {
            Some((unit, scale)) => write!(f, "{}{unit}", nanoseconds / scale),
            None => write!(f, "{nanoseconds}ns"),
        }
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        crate::options::from_text(deserializer)
    }
}

/// Reads a rate without its unit, such as `500k`, `1.2M` or `1000`, in which `range` is allowed.
pub(crate) fn scaled(text: &str, range: RangeInclusive<f64>) -> Option<f64> {
    let (number, scale) = PREFIXES
        .iter()
        .find_map(|(prefix, scale)| Some((text.strip_suffix(prefix)?, *scale)))
        .unwrap_or((text, 1.0));
    let is_plain = number.chars().all(|c| c.is_ascii_digit() || c == '.');
    let value = number.parse::<f64>().ok()? * scale;
    (is_plain && range.contains(&value)).then_some(value)
}

/// Displays what [`scaled`] reads.
pub(crate) struct Scaled(pub f64);

impl fmt::Display for Scaled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, prefix) = prefixed(self.0);
        write!(f, "{value}{prefix}")
    }
}

/// The rates that are accepted, per second: one in 1000 seconds to one in each nanosecond.
const RATES: RangeInclusive<f64> = 1e-3..=1e9;

/// How often something happens per second, such as packets: `500kpps`, `1.2M`, `1000`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(pub f64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        scaled(text.strip_suffix("pps").unwrap_or(text), RATES)
            .map(Self)
            .ok_or_else(|| "write how many per second, 0.001 to 1G: 500kpps, 1.2M, 1000".to_owned())
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}pps", Scaled(self.0))
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        crate::options::from_text(deserializer)
    }
}

/// Line rates, in bit/s. The greatest that the kernel's token bucket takes as 32 bits is 34 Gbit/s.
const LINE_RATES: RangeInclusive<f64> = 10e6..=30e9;

/// The rate of a link in bit/s, frames with their preamble and gap: `100M`, `1G`, `10G`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineRate(pub f64);

impl LineRate {
    /// In bytes a second.
    #[must_use]
    pub fn bytes(self) -> u32 {
        (self.0 / 8.0) as u32
    }
}

impl FromStr for LineRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        scaled(text, LINE_RATES).map(Self).ok_or_else(|| {
            "write the bits per second of a link, 10M to 30G: 100M, 1G, 10G".to_owned()
        })
    }
}

impl fmt::Display for LineRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Scaled(self.0).fmt(f)
    }
}

impl<'de> Deserialize<'de> for LineRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        crate::options::from_text(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let good = [
            ("10s", 10_000),
            ("10", 10_000),
            ("1.5m", 90_000),
            ("500ms", 500),
            ("2h", 7_200_000),
            ("3000us", 3),
            ("1000000ns", 1),
            (".5", 500),
        ];
        for (text, milliseconds) in good {
            assert_eq!(
                time(text),
                Ok(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
        let wrong = "s ms 0 0s 0.1ns 0.0000000001 -1s 1d inf nan 1e400 10x 9999999h";
        for text in wrong.split(' ').chain(["", "1 s"]) {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_is_displayed_as_it_is_read() {
        for text in ["10s", "500ms", "75us", "1ns", "1500ms"] {
            assert_eq!(text.parse::<Time>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn rates() {
        let good = [
            ("500kpps", 5e5),
            ("1.2M", 1.2e6),
            ("1000", 1e3),
            ("0.5pps", 0.5),
            ("0.001", 1e-3),
            ("1G", 1e9),
        ];
        for (text, rate) in good {
            assert_eq!(text.parse(), Ok(Rate(rate)), "{text}");
            assert_eq!(Rate(rate).to_string().parse(), Ok(Rate(rate)), "{text}");
        }
        for text in [
            "", "0", "-1", "k", "pps", "2Gpps", "inf", "1e3", "2000M", "1 k", "0.0009", "1kk",
        ] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn line_rates() {
        for (text, bytes) in [
            ("100M", 12_500_000),
            ("1G", 125_000_000),
            ("2.5G", 312_500_000),
        ] {
            let rate: LineRate = text.parse().unwrap();
            assert_eq!((rate.bytes(), rate.to_string().as_str()), (bytes, text));
        }
        for text in ["", "1M", "40G", "-1G", "1Gbit"] {
            assert!(text.parse::<LineRate>().is_err(), "{text}");
        }
    }
}
