//! The verdict of an estimate against an expected value: one definition for benches and
//! experiments.

use crate::statistics::Estimate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The expectation for a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(into = "String", try_from = "String")]
#[schemars(with = "String")]
pub enum Expected {
    /// At least this value.
    AtLeast(f64),
    /// At most this value.
    AtMost(f64),
    /// At most `distance` away from `value`.
    Within {
        /// The expected value.
        value: f64,
        /// The allowed distance, in the figure's own unit.
        distance: f64,
    },
}

impl Expected {
    /// The verdict on `estimate`.
    #[must_use]
    pub fn verdict(self, estimate: &Estimate) -> Verdict {
        let Estimate {
            median, low, high, ..
        } = *estimate;
        if !self.holds(median) {
            Verdict::NotReproduced
        } else if self.holds(low) && self.holds(high) {
            Verdict::Reproduced
        } else {
            Verdict::Direction
        }
    }

    /// Whether any value of the interval of `estimate` is as expected.
    #[must_use]
    pub fn is_reached(self, estimate: &Estimate) -> bool {
        let Estimate { low, high, .. } = *estimate;
        match self {
            Self::AtLeast(least) => high >= least,
            Self::AtMost(most) => low <= most,
            Self::Within { value, distance } => low <= value + distance && high >= value - distance,
        }
    }

    /// Half as demanding: half of a least value, twice a greatest value, twice a distance.
    #[must_use]
    pub fn half(self) -> Self {
        match self {
            Self::AtLeast(least) => Self::AtLeast(least / 2.0),
            Self::AtMost(most) => Self::AtMost(most * 2.0),
            Self::Within { value, distance } => Self::Within {
                value,
                distance: distance * 2.0,
            },
        }
    }

    /// The least and the greatest expected value.
    #[must_use]
    pub fn range(self) -> (f64, f64) {
        match self {
            Self::AtLeast(least) => (least, f64::INFINITY),
            Self::AtMost(most) => (f64::NEG_INFINITY, most),
            Self::Within { value, distance } => (value - distance, value + distance),
        }
    }

    fn holds(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(least) => figure >= least,
            Self::AtMost(most) => figure <= most,
            Self::Within { value, distance } => (figure - value).abs() <= distance,
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, ">= {least}"),
            Self::AtMost(most) => write!(f, "<= {most}"),
            Self::Within { value, distance } => write!(f, "{value} +- {distance}"),
        }
    }
}

/// As [`Expected`] is displayed.
impl FromStr for Expected {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.trim().parse().ok();
        let read = match text.split_once("+-") {
            Some((value, distance)) => number(value)
                .zip(number(distance))
                .map(|(value, distance)| Self::Within { value, distance }),
            None => {
                let most = || text.strip_prefix("<=").and_then(number).map(Self::AtMost);
                text.strip_prefix(">=")
                    .and_then(number)
                    .map_or_else(most, |least| Some(Self::AtLeast(least)))
            }
        };
        read.ok_or_else(|| format!("'{text}' is no expectation such as >= 1.5"))
    }
}

impl From<Expected> for String {
    fn from(expected: Expected) -> Self {
        expected.to_string()
    }
}

impl TryFrom<String> for Expected {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// A verdict, from none over the worst to the best.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum Verdict {
    /// The runs do not decide it.
    #[serde(rename = "not judged")]
    NotJudged,
    /// The median misses the expectation.
    #[serde(rename = "not reproduced")]
    NotReproduced,
    /// The median meets the expectation, with more than twice the effect of the source in
    /// logarithms: another cause is at work than there.
    #[serde(rename = "exceeds")]
    Exceeds,
    /// The median meets the expectation, the interval does not.
    #[serde(rename = "direction")]
    Direction,
    /// The whole interval meets the expectation.
    #[serde(rename = "reproduced")]
    Reproduced,
}

impl Verdict {
    /// From the best to none.
    pub const ALL: [Self; 5] = [
        Self::Reproduced,
        Self::Direction,
        Self::Exceeds,
        Self::NotReproduced,
        Self::NotJudged,
    ];

    /// As in tables and JSON documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotJudged => "not judged",
            Self::NotReproduced => "not reproduced",
            Self::Exceeds => "exceeds",
            Self::Direction => "direction",
            Self::Reproduced => "reproduced",
        }
    }

    /// The verdict on an exact count, which has no interval.
    #[must_use]
    pub const fn exact(is_expected: bool) -> Self {
        if is_expected {
            Self::Reproduced
        } else {
            Self::NotReproduced
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::estimate;

    /// A synthetic estimate: nine equal figures, except the three least and the three greatest, so
    /// that the interval reaches from `low` to `high`.
    fn made(low: f64, median: f64, high: f64) -> Estimate {
        let values = [low, low, low, median, median, median, high, high, high];
        let estimate = estimate(&values).unwrap();
        assert_eq!(
            (estimate.low, estimate.median, estimate.high),
            (low, median, high)
        );
        estimate
    }

    #[test]
    fn a_least_value_is_reproduced_by_the_whole_interval_only() {
        let least = Expected::AtLeast(2.0);
        assert_eq!(least.verdict(&made(2.0, 2.1, 2.2)), Verdict::Reproduced);
        assert_eq!(least.verdict(&made(1.9, 2.1, 2.2)), Verdict::Direction);
        assert_eq!(least.verdict(&made(1.9, 2.0, 2.2)), Verdict::Direction);
        // A miss whose interval reaches the goal is a miss.
        assert_eq!(least.verdict(&made(1.8, 1.9, 2.2)), Verdict::NotReproduced);
        assert_eq!(least.verdict(&made(1.7, 1.8, 1.9)), Verdict::NotReproduced);
    }

    #[test]
    fn a_greatest_value_is_reproduced_by_the_whole_interval_only() {
        let most = Expected::AtMost(1.05);
        assert_eq!(most.verdict(&made(0.9, 1.0, 1.05)), Verdict::Reproduced);
        assert_eq!(most.verdict(&made(0.9, 1.0, 1.1)), Verdict::Direction);
        assert_eq!(most.verdict(&made(0.9, 1.06, 1.1)), Verdict::NotReproduced);
        assert_eq!(most.verdict(&made(1.1, 1.2, 1.3)), Verdict::NotReproduced);
    }

    #[test]
    fn a_distance_is_kept_on_both_sides() {
        let near = Expected::Within {
            value: 10.0,
            distance: 1.0,
        };
        assert_eq!(near.verdict(&made(9.0, 10.0, 11.0)), Verdict::Reproduced);
        assert_eq!(near.verdict(&made(8.9, 10.0, 11.0)), Verdict::Direction);
        assert_eq!(near.verdict(&made(9.0, 10.0, 11.1)), Verdict::Direction);
        assert_eq!(near.verdict(&made(9.0, 11.1, 12.0)), Verdict::NotReproduced);
        assert_eq!(near.verdict(&made(8.0, 8.9, 10.0)), Verdict::NotReproduced);
    }

    #[test]
    fn an_interval_reaches_a_value_that_its_median_misses() {
        let near = Expected::Within {
            value: 10.0,
            distance: 1.0,
        };
        for (expected, low, high, is_reached) in [
            (Expected::AtLeast(2.0), 1.0, 2.0, true),
            (Expected::AtLeast(2.0), 1.0, 1.9, false),
            (Expected::AtMost(2.0), 2.0, 3.0, true),
            (Expected::AtMost(2.0), 2.1, 3.0, false),
            (near, 11.0, 12.0, true),
            (near, 11.1, 12.0, false),
            (near, 8.0, 9.0, true),
            (near, 8.0, 8.9, false),
            (near, 5.0, 15.0, true),
        ] {
            let estimate = made(low, f64::midpoint(low, high), high);
            assert_eq!(expected.is_reached(&estimate), is_reached, "{expected}");
        }
    }

    #[test]
    fn what_is_no_number_is_not_reproduced() {
        let none = Estimate {
            median: f64::NAN,
            low: 2.0,
            high: f64::NAN,
            count: 9,
        };
        for expected in [Expected::AtLeast(1.0), Expected::AtMost(3.0)] {
            assert_eq!(expected.verdict(&none), Verdict::NotReproduced);
        }
        let some = Estimate {
            median: 2.0,
            ..none
        };
        assert_eq!(Expected::AtLeast(1.0).verdict(&some), Verdict::Direction);
    }

    #[test]
    fn an_expectation_reads_what_it_writes() {
        let within = Expected::Within {
            value: 1.0,
            distance: 0.25,
        };
        for (expected, range) in [
            (Expected::AtLeast(1.5), (1.5, f64::INFINITY)),
            (Expected::AtMost(2.0), (f64::NEG_INFINITY, 2.0)),
            (within, (0.75, 1.25)),
        ] {
            assert_eq!(expected.to_string().parse(), Ok(expected));
            assert_eq!(expected.range(), range);
        }
        assert!("other".parse::<Expected>().is_err());
    }

    #[test]
    fn half_as_demanding_is_generous_on_the_same_side() {
        let slow = made(1.1, 1.2, 1.3);
        assert_eq!(
            Expected::AtLeast(2.0).verdict(&slow),
            Verdict::NotReproduced
        );
        assert_eq!(
            Expected::AtLeast(2.0).half().verdict(&slow),
            Verdict::Reproduced
        );
        assert_eq!(
            Expected::AtMost(0.6).half().verdict(&slow),
            Verdict::Direction
        );
        assert_eq!(
            Expected::AtMost(0.5).half().verdict(&slow),
            Verdict::NotReproduced
        );
    }

    #[test]
    fn the_worst_of_several_is_the_least() {
        let all = [
            Verdict::Reproduced,
            Verdict::NotReproduced,
            Verdict::Direction,
        ];
        assert_eq!(all.into_iter().min(), Some(Verdict::NotReproduced));
        assert_eq!(Verdict::exact(false).name(), "not reproduced");
    }
}
