//! Paired comparison.

use crate::random::Random;

/// Resamples of a bootstrap.
const RESAMPLES: usize = 2000;

/// A median, and where it would be had the rounds been others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The median.
    pub median: f64,
    /// Lower end of the bootstrap interval of 95 %.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Values.
    pub count: usize,
}

/// The median of `values` and its interval by the percentile bootstrap (Efron 1979). `None` for no
/// value, or one that is not a positive number. The resampling is the same in every run.
pub fn estimate(values: &[f64]) -> Option<Estimate> {
    let usable = |value: &f64| value.is_finite() && *value > 0.0;
    if values.is_empty() || !values.iter().all(usable) {
        return None;
    }
    let mut random = Random::new(values.len() as u64);
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let draw = |_| values[random.below(values.len() as u64) as usize];
            median(&(0..values.len()).map(draw).collect::<Vec<_>>())
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    Some(Estimate {
        median: median(values),
        low: medians[RESAMPLES * 25 / 1000],
        high: medians[RESAMPLES * 975 / 1000],
        count: values.len(),
    })
}

/// Between which of `values` the median is of all that they are a sample of; it is elsewhere, below
/// or above, with a probability of `miss` at most. By the sign test (Dixon and Mood 1946): each
/// value is above the median as often as below it, whatever else they have in common. `None` where
/// they are too few for that, as fewer than six are for 5 %.
pub fn median_interval(values: &[f64], miss: f64) -> Option<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    // The logarithm of the probability that `below` of the values are below the median.
    let mut log = -(count as f64) * std::f64::consts::LN_2;
    let (mut tail, mut outer) = (0.0, None);
    for below in 0..count / 2 {
        tail += log.exp();
        if 2.0 * tail > miss {
            break;
        }
        outer = Some((sorted[below], sorted[count - 1 - below]));
        log += ((count - below) as f64 / (below + 1) as f64).ln();
    }
    outer
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
    fn the_interval_of_the_sign_test_is_that_of_the_tables() {
        let values = |count: u32| (1..=count).map(f64::from).collect::<Vec<_>>();
        // Conover, Practical Nonparametric Statistics, table A3 (binomial, p = 0.5): the values
        // that one in 20 misses at most.
        for (count, low) in [(6, 1.0), (8, 1.0), (9, 2.0), (12, 3.0), (20, 6.0)] {
            let found = median_interval(&values(count), 0.05);
            assert_eq!(found, Some((low, f64::from(count) + 1.0 - low)), "{count}");
        }
        for count in 0..6 {
            assert_eq!(median_interval(&values(count), 0.05), None, "{count}");
        }
        // Less may be missed, so it is wider; 5 repeats of 24 would be missed by 0.0015.
        assert_eq!(median_interval(&values(24), 0.05), Some((7.0, 18.0)));
        assert_eq!(median_interval(&values(24), 0.0016), Some((5.0, 20.0)));
        assert_eq!(median_interval(&values(24), 0.0015), Some((4.0, 21.0)));
        assert_eq!(median_interval(&values(10), 0.001), None);
        // Far below what a number can hold, were it not for logarithms.
        let (low, high) = median_interval(&values(5000), 0.05).unwrap();
        assert!((low - 2431.0).abs() < 3.0 && low + high == 5001.0, "{low}");
    }

    #[test]
    fn the_interval_of_the_sign_test_misses_no_more_than_it_says() {
        let mut random = Random::new(5);
        let (mut missed, trials) = (0, 4000);
        for _ in 0..trials {
            // Far from symmetric; the median is a quarter.
            let one = |_| (random.below(1 << 32) as f64 / (1_u64 << 32) as f64).powi(2);
            let values: Vec<f64> = (0..15).map(one).collect();
            let (low, high) = median_interval(&values, 0.05).unwrap();
            missed += u32::from(low > 0.25 || high < 0.25);
        }
        // With 15 values it is 0.035.
        assert!((80..=200).contains(&missed), "{missed} of {trials}");
    }

    #[test]
    fn what_is_no_ratio_gives_no_estimate() {
        for values in [&[][..], &[0.0], &[1.0, f64::NAN], &[1.0, f64::INFINITY]] {
            assert_eq!(estimate(values), None);
        }
    }
}
