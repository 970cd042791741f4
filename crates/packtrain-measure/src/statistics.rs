//! Paired comparison.

use crate::random::Random;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Resamples of a bootstrap.
const RESAMPLES: usize = 2000;

/// A median, and the interval in which it would be with other rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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

/// Neighbouring values whose ratio is this separate two groups of two values or more.
const GAP: f64 = 2.0;
/// The same, if one of the groups is a single value.
const GAP_OF_ONE: f64 = 4.0;
/// The fewest values that can be two groups.
const GROUPED_MIN: usize = 4;

/// Values that are near each other, of a figure that has two such groups.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Group {
    /// Their median.
    pub median: f64,
    /// Their number.
    pub runs: usize,
}

/// The two groups of `values`, the lesser one first, if there are two that are far apart: a median
/// of all would then be between them, or that of one of them by chance. Two neighbours, in
/// ascending order, have a ratio of more than 2, and of more than 4 if one side is a single value;
/// and in logarithms their distance is two thirds or more of that of the least to the greatest. So
/// neither values within 30 % of their middle are two groups, nor, with 10 % of standard deviation,
/// normal ones. Needs four values, which are all positive.
#[must_use]
pub fn groups(values: &[f64]) -> Option<[Group; 2]> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (least, greatest) = (*sorted.first()?, *sorted.last()?);
    if sorted.len() < GROUPED_MIN || least <= 0.0 || !greatest.is_finite() {
        return None;
    }
    let gap = |at: usize| sorted[at] / sorted[at - 1];
    let at = (1..sorted.len()).max_by(|&a, &b| gap(a).total_cmp(&gap(b)))?;
    let needed = match at == 1 || at == sorted.len() - 1 {
        true => GAP_OF_ONE,
        false => GAP,
    };
    let is_far = gap(at) > needed && gap(at).powi(3) >= (greatest / least).powi(2);
    let (low, high) = sorted.split_at(at);
    is_far.then(|| {
        [low, high].map(|group| Group {
            median: median(group),
            runs: group.len(),
        })
    })
}

/// The values outside of Tukey's fences, in ascending order: more than 1.5 interquartile ranges
/// below the first or above the third quartile.
#[must_use]
pub fn outliers(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else {
        return values;
    };
    let quartile = |share: f64| {
        let place = share * last as f64;
        let (low, high) = (
            values[place.floor() as usize],
            values[place.ceil() as usize],
        );
        low + (high - low) * place.fract()
    };
    let (first, third) = (quartile(0.25), quartile(0.75));
    let fence = 1.5 * (third - first);
    values.retain(|value| *value < first - fence || *value > third + fence);
    values
}

/// The squared distance of each value from the mean, in parts of the mean, with Bessel's
/// correction. The mean of the result estimates the relative variance without a bias that depends
/// on the number of values.
#[must_use]
pub fn deviations(values: &[f64]) -> Vec<f64> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|value| (value / mean - 1.0).powi(2));
    squares
        .map(|square| square * count / (count - 1.0))
        .collect()
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
    fn runs_of_two_kinds_are_two_groups() {
        let groups = |values: &[f64]| {
            let groups = groups(values)?;
            Some(groups.map(|group| (group.median, group.runs)))
        };
        for (values, expected) in [
            (&[41.0, 3398.0, 41.0, 66.0][..], [(41.0, 3), (3398.0, 1)]),
            (&[2.2, 10.0, 9.0, 10.0, 9.5], [(2.2, 1), (9.75, 4)]),
            (&[451.0, 1017.0, 449.0, 924.0], [(450.0, 2), (970.5, 2)]),
        ] {
            assert_eq!(groups(values), Some(expected), "{values:?}");
        }
        for values in [
            // Too few, one that is not far enough, and no gap between the others.
            &[41.0, 41.0, 3398.0][..],
            &[10.0, 10.0, 10.0, 35.0],
            &[1.0, 1.0, 2.0, 2.0],
            &[1.0, 2.0, 4.0, 8.0, 16.0],
            &[0.0, 0.0, 5.0, 5.0],
            &[1.0, 1.0, f64::INFINITY, f64::INFINITY],
            &[7.0; 30],
            &[],
        ] {
            assert_eq!(groups(values), None, "{values:?}");
        }
    }

    /// Uniform noise of 30 % and normal noise of 10 % are one group each time; of samples with
    /// more noise, one in two hundred may look like two.
    #[test]
    fn noise_is_no_two_groups() {
        let mut random = Random::new(1);
        for runs in [4, 5, 6, 10, 30] {
            let mut found = [0; 4];
            for _ in 0..1000 {
                let mut uniform = || random.below(1 << 20) as f64 / f64::from(1 << 20) - 0.5;
                // Of twelve uniform values the sum is nearly normal, with a deviation of 1.
                let mut normal = || (0..12).map(|_| uniform()).sum::<f64>();
                let normal: Vec<f64> = (0..runs).map(|_| normal()).collect();
                let uniform: Vec<f64> = (0..runs).map(|_| uniform()).collect();
                let of = |values: &[f64], noise: f64| {
                    let values: Vec<f64> = values.iter().map(|one| 1.0 + noise * one).collect();
                    usize::from(groups(&values).is_some())
                };
                let cases = [
                    of(&uniform, 0.6),
                    of(&normal, 0.1),
                    of(&uniform, 0.8),
                    of(&normal, 0.2),
                ];
                found
                    .iter_mut()
                    .zip(cases)
                    .for_each(|(sum, one)| *sum += one);
            }
            assert_eq!(found[..2], [0, 0], "{runs} runs");
            assert!(
                found[2..].iter().all(|&count| count <= 5),
                "{runs}: {found:?}"
            );
        }
    }

    #[test]
    fn a_spread_is_not_smaller_with_fewer_clean_runs() {
        // All values that three of five equally likely ones can have: the mean of the variances is
        // that of the five.
        let all = [8.0, 9.0, 10.0, 11.0, 12.0];
        let variance = |values: &[f64]| {
            let squares = deviations(values);
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            squares.iter().sum::<f64>() / squares.len() as f64 * mean * mean
        };
        let draws = (0..125).map(|draw| [draw % 5, draw / 5 % 5, draw / 25].map(|at| all[at]));
        let of_three = draws.map(|draw| variance(&draw)).sum::<f64>() / 125.0;
        // Drawn with replacement, so without the correction.
        assert!((of_three - 2.0).abs() < 1e-9, "{of_three}");
    }

    #[test]
    fn what_is_no_ratio_gives_no_estimate() {
        for values in [&[][..], &[0.0], &[1.0, f64::NAN], &[1.0, f64::INFINITY]] {
            assert_eq!(estimate(values), None);
        }
    }
}
