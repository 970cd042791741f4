//! Paired comparison.

use crate::random::Random;
use serde::{Deserialize, Serialize};

/// Resamples of a bootstrap.
const RESAMPLES: usize = 2000;

/// A median, and the interval in which it would be with other rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The median, or another figure of all rounds.
    pub median: f64,
    /// Lower end of the bootstrap interval; [`coverage_percent`] is how often it has the true
    /// value.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Rounds.
    #[serde(rename = "rounds", default)]
    pub count: usize,
}

impl Estimate {
    /// The same to six significant digits.
    #[must_use]
    pub fn significant(&self) -> Self {
        Self {
            median: significant(self.median),
            low: significant(self.low),
            high: significant(self.high),
            count: self.count,
        }
    }

    /// Whether the interval is nothing but the median. Then it is not shown.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.low == self.median && self.high == self.median
    }
}

/// A number to six significant digits.
pub(crate) fn significant(value: f64) -> f64 {
    // Every number reads what it writes.
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// How often the interval of the median of `count` rounds has the true median, in percent: 95, and
/// less with fewer than six rounds. Then the interval ends at the least and the greatest value. It
/// misses the true median only if all rounds are on the same side of it.
#[must_use]
pub fn coverage_percent(count: usize) -> f64 {
    match i32::try_from(count) {
        Ok(0) => 0.0,
        Ok(count @ 1..6) => 100.0 * (1.0 - 0.5_f64.powi(count - 1)),
        _ => 95.0,
    }
}

/// The median of `values` and its interval. `None` for no value, or one that is not a positive
/// number.
pub fn estimate(values: &[f64]) -> Option<Estimate> {
    let usable = |value: &f64| value.is_finite() && *value > 0.0;
    if values.is_empty() || !values.iter().all(usable) {
        return None;
    }
    bootstrap(values.len(), |rounds| {
        median(
            &rounds
                .iter()
                .map(|&round| values[round])
                .collect::<Vec<_>>(),
        )
    })
}

/// A figure of `count` rounds, and its interval by the percentile bootstrap (Efron 1979). `figure`
/// gets the rounds to compute it from; a round may be among them several times. The resampling is
/// the same in every run. `None` for no round.
pub fn bootstrap(count: usize, figure: impl Fn(&[usize]) -> f64) -> Option<Estimate> {
    if count == 0 {
        return None;
    }
    let mut random = Random::new(count as u64);
    let mut figures: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let draw = |_| random.below(count as u64) as usize;
            figure(&(0..count).map(draw).collect::<Vec<_>>())
        })
        .collect();
    figures.sort_by(f64::total_cmp);
    Some(Estimate {
        median: figure(&(0..count).collect::<Vec<_>>()),
        low: figures[RESAMPLES * 25 / 1000],
        high: figures[RESAMPLES * 975 / 1000],
        count,
    })
}

/// The median; 0 of nothing.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        len if len % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_holds_the_median_and_not_the_outliers() {
        let mut values: Vec<f64> = (0..31).map(|i| 2.0 + f64::from(i) * 0.01).collect();
        values[30] = 50.0;
        let estimate = estimate(&values).unwrap();
        assert_eq!(estimate.median, 2.15);
        assert!(estimate.low < 2.15 && estimate.low > 2.0, "{estimate:?}");
        assert!(estimate.high > 2.15 && estimate.high < 2.3, "{estimate:?}");
    }

    #[test]
    fn few_rounds_have_the_interval_from_the_least_to_the_greatest() {
        for (count, percent) in [(1, 0.0), (2, 50.0), (3, 75.0), (4, 87.5), (5, 93.75)] {
            let values: Vec<f64> = (1..=count).map(f64::from).collect();
            let estimate = estimate(&values).unwrap();
            assert_eq!((estimate.low, estimate.high), (1.0, f64::from(count)));
            assert_eq!(coverage_percent(estimate.count), percent);
        }
        let six = estimate(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        assert!(six.low > 1.0 && six.high < 6.0, "{six:?}");
        assert_eq!((coverage_percent(6), coverage_percent(0)), (95.0, 0.0));
    }

    #[test]
    fn a_figure_of_several_values_of_a_round_has_an_interval() {
        let (a, b) = ([2.0, 4.0, 6.0, 8.0], [1.0, 2.0, 3.0, 4.0]);
        let of = |values: [f64; 4], rounds: &[usize]| {
            median(
                &rounds
                    .iter()
                    .map(|&round| values[round])
                    .collect::<Vec<_>>(),
            )
        };
        let ratio = bootstrap(4, |rounds| of(a, rounds) / of(b, rounds)).unwrap();
        assert_eq!((ratio.low, ratio.median, ratio.high), (2.0, 2.0, 2.0));
        let negative = bootstrap(4, |rounds| -of(a, rounds)).unwrap();
        assert_eq!(negative.median, -5.0);
        assert!(negative.low < -5.0 && negative.high > -5.0, "{negative:?}");
        assert_eq!(bootstrap(0, |_| 1.0), None);
    }

    #[test]
    fn what_is_no_ratio_gives_no_estimate() {
        for values in [&[][..], &[0.0], &[1.0, f64::NAN], &[1.0, f64::INFINITY]] {
            assert_eq!(estimate(values), None);
        }
    }
}
