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
    fn what_is_no_ratio_gives_no_estimate() {
        for values in [&[][..], &[0.0], &[1.0, f64::NAN], &[1.0, f64::INFINITY]] {
            assert_eq!(estimate(values), None);
        }
    }
}
