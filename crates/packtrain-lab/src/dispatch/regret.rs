//! How much less than the best fixed setting the adaptive one reaches, honestly.
//!
//! Of thirty settings that are equally good, the best of a few noisy repeats looks better than it
//! is, by about two standard deviations: whoever is compared with it loses to nobody. So the best
//! is chosen by one half of the repeats, and compared with by the other half, and the other way
//! round (two-fold cross-fitting). Both figures of a comparison come from the same repeat, so from
//! about the same time, and what is given is the median of their ratios with its bootstrap
//! interval.

use packtrain_bench::statistics::{self, Estimate};

/// Repeats without which nothing is called the worst: of two each half has one.
const WORST_REPEATS: usize = 4;

/// Which of two figures is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Throughput.
    Higher,
    /// Latency.
    Lower,
}

/// One setting beside others, as a fraction: 0.03 is 3 % worse.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Regret {
    /// How much worse than the best: less than 0 where it is better.
    pub regret: f64,
    /// Lower end of the bootstrap interval of 95 %.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The best setting by all repeats, to be named.
    pub best: usize,
    /// The worst.
    pub worst: usize,
    /// Whether it is worse than even the worst, beyond the noise: than the one that the other half
    /// of the repeats chooses, and by the median of all repeats, which have to be four at least.
    /// One half alone may choose a setting that is the worst in no other, and so the best setting
    /// of all would be called the worst.
    pub is_worst: bool,
}

impl Regret {
    /// Whether the difference to the best is within the noise.
    #[must_use]
    pub fn is_noise(&self) -> bool {
        self.low <= 0.0 && self.high >= 0.0
    }
}

/// The regret of `adaptive` beside `fixed`: a figure of each for every repeat, in the order of the
/// repeats. `None` for fewer than two repeats, for no fixed setting, and where a figure is not
/// positive or missing.
#[must_use]
pub fn regret(adaptive: &[f64], fixed: &[Vec<f64>], better: Better) -> Option<Regret> {
    let repeats = adaptive.len();
    if repeats < 2 || fixed.is_empty() || fixed.iter().any(|one| one.len() != repeats) {
        return None;
    }
    // From here on more is better.
    let good = |values: &[f64]| -> Vec<f64> {
        let one = |value: &f64| match better {
            Better::Higher => *value,
            Better::Lower => 1.0 / value,
        };
        values.iter().map(one).collect()
    };
    let (adaptive, fixed) = (good(adaptive), fixed.iter().map(|one| good(one)));
    let fixed: Vec<_> = fixed.collect();
    let beside_best = beside(&adaptive, &fixed, best_of)?;
    let beside_worst = beside(&adaptive, &fixed, worst_of)?;
    // As much more as the best reaches, of what the best reaches; of latency, of what it has.
    let loss = |ratio: f64| match better {
        Better::Higher => 1.0 - ratio,
        Better::Lower => 1.0 / ratio - 1.0,
    };
    let all: Vec<usize> = (0..repeats).collect();
    let worst = worst_of(&fixed, &all);
    let is_below = median_of(&adaptive, &all) < median_of(&fixed[worst], &all);
    Some(Regret {
        regret: loss(beside_best.median),
        low: loss(beside_best.high),
        high: loss(beside_best.low),
        best: best_of(&fixed, &all),
        worst,
        is_worst: repeats >= WORST_REPEATS && is_below && beside_worst.high < 1.0,
    })
}

/// Chooses one of some settings by their figures in some of the repeats.
type Choose = fn(&[Vec<f64>], &[usize]) -> usize;

/// The ratios of `adaptive` to the setting that the other half of the repeats chooses.
fn beside(adaptive: &[f64], fixed: &[Vec<f64>], choose: Choose) -> Option<Estimate> {
    let half = |odd: usize| -> Vec<usize> {
        let repeats = 0..adaptive.len();
        repeats.filter(|repeat| repeat % 2 == odd).collect()
    };
    let halves = [half(0), half(1)];
    let mut ratios = Vec::with_capacity(adaptive.len());
    for (chosen_by, figures_of) in [(0, 1), (1, 0)] {
        let chosen = &fixed[choose(fixed, &halves[chosen_by])];
        let repeats = halves[figures_of].iter();
        ratios.extend(repeats.map(|&repeat| adaptive[repeat] / chosen[repeat]));
    }
    statistics::estimate(&ratios)
}

fn median_of(values: &[f64], repeats: &[usize]) -> f64 {
    let values: Vec<f64> = repeats.iter().map(|&repeat| values[repeat]).collect();
    statistics::median(&values)
}

fn best_of(fixed: &[Vec<f64>], repeats: &[usize]) -> usize {
    let figure = |&index: &usize| median_of(&fixed[index], repeats);
    let best = (0..fixed.len()).max_by(|a, b| figure(a).total_cmp(&figure(b)));
    best.unwrap_or(0)
}

fn worst_of(fixed: &[Vec<f64>], repeats: &[usize]) -> usize {
    let figure = |&index: &usize| median_of(&fixed[index], repeats);
    let worst = (0..fixed.len()).min_by(|a, b| figure(a).total_cmp(&figure(b)));
    worst.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use packtrain_bench::random::Random;

    /// Figures around `level` with a spread of `noise`, about normal.
    fn noisy(random: &mut Random, level: f64, noise: f64, repeats: usize) -> Vec<f64> {
        let one = |random: &mut Random| {
            let sum: f64 = (0..12).map(|_| random.below(1 << 32) as f64).sum();
            level * (1.0 + noise * (sum / (1_u64 << 32) as f64 - 6.0))
        };
        (0..repeats).map(|_| one(random)).collect()
    }

    #[test]
    fn a_loss_is_a_fraction_of_the_best() {
        let fixed = vec![vec![50.0; 6], vec![100.0; 6], vec![80.0; 6]];
        let found = regret(&[95.0; 6], &fixed, Better::Higher).unwrap();
        assert!((found.regret - 0.05).abs() < 1e-12);
        assert_eq!((found.best, found.worst, found.is_worst), (1, 0, false));
        assert!(!found.is_noise());
        // Latency: 10 % more than the least.
        let found = regret(&[55.0; 6], &fixed, Better::Lower).unwrap();
        assert!((found.regret - 0.1).abs() < 1e-12);
        assert_eq!((found.best, found.worst), (0, 1));
    }

    #[test]
    fn who_is_better_than_the_best_has_a_regret_below_zero() {
        let fixed = vec![vec![50.0; 4], vec![100.0; 4]];
        let higher = regret(&[110.0; 4], &fixed, Better::Higher).unwrap();
        let lower = regret(&[40.0; 4], &fixed, Better::Lower).unwrap();
        assert!(higher.regret < 0.0 && lower.regret < 0.0);
    }

    #[test]
    fn the_worst_is_worse_than_all_others() {
        let fixed = vec![vec![50.0; 4], vec![100.0; 4]];
        assert!(regret(&[49.0; 4], &fixed, Better::Higher).unwrap().is_worst);
        assert!(!regret(&[50.0; 4], &fixed, Better::Higher).unwrap().is_worst);
        assert!(regret(&[101.0; 4], &fixed, Better::Lower).unwrap().is_worst);
    }

    /// What is the worst in the even repeats is the best in the odd ones, and the other way round.
    /// So the adaptive setting is always compared with what happens to be the better one, and has
    /// more than each of them all the same.
    #[test]
    fn who_is_better_than_all_is_not_the_worst() {
        let fixed = vec![
            vec![10.0, 100.0, 10.0, 100.0, 10.0, 100.0],
            vec![100.0, 10.0, 100.0, 10.0, 100.0, 10.0],
        ];
        let found = regret(&[70.0; 6], &fixed, Better::Higher).unwrap();
        assert!(!found.is_worst, "{found:?}");
        // Slower than both in each repeat it is.
        let found = regret(&[9.0; 6], &fixed, Better::Higher).unwrap();
        assert!(found.is_worst, "{found:?}");
    }

    #[test]
    fn two_repeats_call_nobody_the_worst() {
        for (repeats, is_worst) in [(2, false), (3, false), (4, true)] {
            let fixed = vec![vec![50.0; repeats], vec![100.0; repeats]];
            let found = regret(&vec![49.0; repeats], &fixed, Better::Higher).unwrap();
            assert_eq!(found.is_worst, is_worst, "{repeats}");
        }
    }

    #[test]
    fn the_best_of_many_equal_settings_is_no_better_than_they_are() {
        // Thirty settings and the adaptive one are the same, with 5 % of noise. The best by all
        // repeats would look better than it is; the best by the other half does not.
        let (mut honest, mut biased, trials) = (0.0, 0.0, 200);
        for seed in 0..trials {
            let mut random = Random::new(seed);
            let fixed: Vec<_> = (0..30)
                .map(|_| noisy(&mut random, 100.0, 0.05, 6))
                .collect();
            let adaptive = noisy(&mut random, 100.0, 0.05, 6);
            honest += regret(&adaptive, &fixed, Better::Higher).unwrap().regret;
            let best = fixed.iter().map(|one| statistics::median(one));
            let best = best.fold(0.0, f64::max);
            biased += 1.0 - statistics::median(&adaptive) / best;
        }
        let (honest, biased) = (honest / trials as f64, biased / trials as f64);
        assert!(honest.abs() < 0.01, "{honest}");
        assert!(biased > 0.03, "{biased}");
    }

    #[test]
    fn a_drift_that_all_share_is_no_regret() {
        // The machine becomes half as fast in the course of the repeats.
        let drift = [100.0, 90.0, 80.0, 70.0, 60.0, 50.0];
        let fixed = vec![drift.to_vec(), drift.map(|x| x * 0.9).to_vec()];
        let found = regret(&drift, &fixed, Better::Higher).unwrap();
        assert_eq!((found.regret, found.low, found.high), (0.0, 0.0, 0.0));
        assert!(found.is_noise());
    }

    #[test]
    fn too_little_is_nothing() {
        assert_eq!(regret(&[1.0], &[vec![1.0]], Better::Higher), None);
        assert_eq!(regret(&[1.0, 1.0], &[], Better::Higher), None);
        let short = [vec![1.0]];
        assert_eq!(regret(&[1.0, 1.0], &short, Better::Higher), None);
        let zero = [vec![0.0, 1.0]];
        assert_eq!(regret(&[1.0, 1.0], &zero, Better::Higher), None);
    }
}
