//! Paired comparison.

/// A ratio estimated from pairs.
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    /// The median of the pairs' ratios.
    pub median: f64,
    /// Lower end of the 95 % confidence interval of the geometric mean.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Pairs.
    pub pairs: usize,
}

/// Two-sided 95 % quantiles of Student's t, for 1 to 30 degrees of freedom.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// The ratios of `pairs`, first to second, by a paired t test on their logarithms. `None` for
/// fewer than two pairs, or figures that are not positive.
pub fn ratio(pairs: &[(f64, f64)]) -> Option<Estimate> {
    let usable = |(a, b): &(f64, f64)| *a > 0.0 && *b > 0.0;
    if pairs.len() < 2 || !pairs.iter().all(usable) {
        return None;
    }
    let logs: Vec<f64> = pairs.iter().map(|(a, b)| (a / b).ln()).collect();
    let n = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / n;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (n - 1.0);
    // Beyond the table the last entry errs on the safe side.
    let half = T[(logs.len() - 2).min(T.len() - 1)] * (variance / n).sqrt();
    Some(Estimate {
        median: median(&logs).exp(),
        low: (mean - half).exp(),
        high: (mean + half).exp(),
        pairs: logs.len(),
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
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}
