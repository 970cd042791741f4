//! How much less than the best fixed setting the adaptive one reaches, honestly.
//!
//! Of thirty settings that are equally good, the best of a few noisy repeats looks better than it
//! is, by about two standard deviations: whoever is compared with it loses to nobody. So the best
//! is chosen by one half of the repeats, and compared with by the other half, and the other way
//! round (two-fold cross-fitting). Both figures of a comparison come from the same repeat, so from
//! about the same time, and what is given is the median of their ratios with its bootstrap
//! interval.
//!
//! That interval is of one situation. Of 36 that lose nothing, one is outside of its 95 % by chance
//! in most sweeps. So what an adaptive setting is said to lose for certain is the end of a wider
//! interval: one of a kind that holds the truth in all situations of a sweep at once, in 95 of 100
//! sweeps (Bonferroni). By the sign test, as the tails of a bootstrap of few values are not to be
//! relied on so far out.

use packtrain_bench::statistics;

/// Share of the sweeps in which a loss that is called certain may be more than the true one.
const MISSED: f64 = 0.05;

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

impl Better {
    /// The same figures so that more is better.
    fn good(self, values: &[f64]) -> Vec<f64> {
        let one = |value: &f64| match self {
            Self::Higher => *value,
            Self::Lower => 1.0 / value,
        };
        values.iter().map(one).collect()
    }

    /// What is lost by who has this part of what the best has, of such figures: as much more as the
    /// best reaches, of what the best reaches; of latency, of what it has.
    fn loss(self, ratio: f64) -> f64 {
        match self {
            Self::Higher => 1.0 - ratio,
            Self::Lower => 1.0 / ratio - 1.0,
        }
    }
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
    /// How much worse it is for certain: at least so much, in all situations that are compared at
    /// once, in 95 of 100 sweeps. `None` where the repeats are too few to say.
    pub certain: Option<f64>,
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
    /// Whether it is worse than the best beyond the noise, and so as one of all situations that are
    /// compared. `None` where the repeats are too few to say.
    #[must_use]
    pub fn is_loss(&self) -> Option<bool> {
        self.certain.map(|certain| certain > 0.0)
    }
}

/// The regret of `adaptive` beside `fixed`: a figure of each for every repeat, in the order of the
/// repeats. It is one of so many `situations` that are compared. `None` for fewer than two repeats,
/// for no fixed setting, and where a figure is not positive or missing.
#[must_use]
pub fn regret(
    adaptive: &[f64],
    fixed: &[Vec<f64>],
    better: Better,
    situations: usize,
) -> Option<Regret> {
    let repeats = adaptive.len();
    if repeats < 2 || fixed.is_empty() || fixed.iter().any(|one| one.len() != repeats) {
        return None;
    }
    // From here on more is better.
    let good = |values: &[f64]| better.good(values);
    let loss = |ratio| better.loss(ratio);
    let adaptive = good(adaptive);
    let fixed: Vec<_> = fixed.iter().map(|one| good(one)).collect();
    let ratios = beside(&adaptive, &fixed, best_of);
    let beside_best = statistics::estimate(&ratios)?;
    let beside_worst = statistics::estimate(&beside(&adaptive, &fixed, worst_of))?;
    let widest = statistics::median_interval(&ratios, MISSED / situations.max(1) as f64);
    let all: Vec<usize> = (0..repeats).collect();
    let worst = worst_of(&fixed, &all);
    let is_below = median_of(&adaptive, &all) < median_of(&fixed[worst], &all);
    Some(Regret {
        regret: loss(beside_best.median),
        low: loss(beside_best.high),
        high: loss(beside_best.low),
        certain: widest.map(|(_, high)| loss(high)),
        best: best_of(&fixed, &all),
        worst,
        is_worst: repeats >= WORST_REPEATS && is_below && beside_worst.high < 1.0,
    })
}

/// What one setting loses beside another one, in all situations together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Together {
    /// The median over the repeats of all situations, as a fraction: less than 0 where it is
    /// better.
    pub regret: f64,
    /// Lower end of its interval of 95 %, by the sign test.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// What `one` loses beside `other`: a figure of each for every repeat of every situation. Nothing
/// is chosen by what was measured, so it needs no halves. `None` where they are too few for an
/// interval, or a figure is not positive.
#[must_use]
pub fn together(one: &[f64], other: &[f64], better: Better) -> Option<Together> {
    let (one, other) = (better.good(one), better.good(other));
    let ratios: Vec<f64> = one.iter().zip(&other).map(|(a, b)| a / b).collect();
    if ratios
        .iter()
        .any(|ratio| !ratio.is_finite() || *ratio <= 0.0)
    {
        return None;
    }
    let (low, high) = statistics::median_interval(&ratios, MISSED)?;
    Some(Together {
        regret: better.loss(statistics::median(&ratios)),
        low: better.loss(high),
        high: better.loss(low),
    })
}

/// Chooses one of some settings by their figures in some of the repeats.
type Choose = fn(&[Vec<f64>], &[usize]) -> usize;

/// The ratios of `adaptive` to the setting that the other half of the repeats chooses.
fn beside(adaptive: &[f64], fixed: &[Vec<f64>], choose: Choose) -> Vec<f64> {
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
    ratios
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
        let found = regret(&[95.0; 6], &fixed, Better::Higher, 1).unwrap();
        assert!((found.regret - 0.05).abs() < 1e-12);
        assert_eq!((found.best, found.worst, found.is_worst), (1, 0, false));
        assert_eq!(found.is_loss(), Some(true));
        // Latency: 10 % more than the least.
        let found = regret(&[55.0; 6], &fixed, Better::Lower, 1).unwrap();
        assert!((found.regret - 0.1).abs() < 1e-12);
        assert_eq!((found.best, found.worst), (0, 1));
    }

    #[test]
    fn who_is_better_than_the_best_has_a_regret_below_zero() {
        let fixed = vec![vec![50.0; 4], vec![100.0; 4]];
        let higher = regret(&[110.0; 4], &fixed, Better::Higher, 1).unwrap();
        let lower = regret(&[40.0; 4], &fixed, Better::Lower, 1).unwrap();
        assert!(higher.regret < 0.0 && lower.regret < 0.0);
    }

    #[test]
    fn the_worst_is_worse_than_all_others() {
        let fixed = vec![vec![50.0; 4], vec![100.0; 4]];
        assert!(
            regret(&[49.0; 4], &fixed, Better::Higher, 1)
                .unwrap()
                .is_worst
        );
        assert!(
            !regret(&[50.0; 4], &fixed, Better::Higher, 1)
                .unwrap()
                .is_worst
        );
        assert!(
            regret(&[101.0; 4], &fixed, Better::Lower, 1)
                .unwrap()
                .is_worst
        );
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
        let found = regret(&[70.0; 6], &fixed, Better::Higher, 1).unwrap();
        assert!(!found.is_worst, "{found:?}");
        // Slower than both in each repeat it is.
        let found = regret(&[9.0; 6], &fixed, Better::Higher, 1).unwrap();
        assert!(found.is_worst, "{found:?}");
    }

    #[test]
    fn two_repeats_call_nobody_the_worst() {
        for (repeats, is_worst) in [(2, false), (3, false), (4, true)] {
            let fixed = vec![vec![50.0; repeats], vec![100.0; repeats]];
            let found = regret(&vec![49.0; repeats], &fixed, Better::Higher, 1).unwrap();
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
            honest += regret(&adaptive, &fixed, Better::Higher, 1).unwrap().regret;
            let best = fixed.iter().map(|one| statistics::median(one));
            let best = best.fold(0.0, f64::max);
            biased += 1.0 - statistics::median(&adaptive) / best;
        }
        let (honest, biased) = (honest / trials as f64, biased / trials as f64);
        assert!(honest.abs() < 0.01, "{honest}");
        assert!(biased > 0.03, "{biased}");
    }

    /// Of sweeps of 36 situations in which nobody loses anything, the share in which somebody is
    /// said to; and of those that lose 10 %, the share that are.
    #[test]
    fn a_sweep_of_equals_is_called_a_loss_seldom_and_a_loss_mostly() {
        let (repeats, situations, sweeps) = (24, 36, 40);
        let mut random = Random::new(11);
        let mut is_loss = |level: f64| {
            let fixed: Vec<_> = (0..3)
                .map(|_| noisy(&mut random, 100.0, 0.05, repeats))
                .collect();
            let adaptive = noisy(&mut random, level, 0.05, repeats);
            let found = regret(&adaptive, &fixed, Better::Higher, situations).unwrap();
            (found.is_loss().unwrap(), found.low > 0.0)
        };
        let (mut wrong, mut wrong_alone, mut right) = (0, 0, 0);
        for _ in 0..sweeps {
            let all: Vec<_> = (0..situations).map(|_| is_loss(100.0)).collect();
            wrong += u32::from(all.iter().any(|one| one.0));
            wrong_alone += u32::from(all.iter().any(|one| one.1));
            right += u32::from(is_loss(90.0).0);
        }
        assert!(wrong <= 4, "{wrong} of {sweeps}");
        // By the interval of one situation it would be in most of them.
        assert!(wrong_alone > sweeps / 2, "{wrong_alone} of {sweeps}");
        assert!(right >= sweeps * 9 / 10, "{right} of {sweeps}");
    }

    #[test]
    fn too_few_repeats_are_certain_of_nothing() {
        let fixed = vec![vec![50.0; 6], vec![100.0; 6]];
        for (situations, is_loss) in [(1, Some(true)), (2, None), (36, None)] {
            let found = regret(&[80.0; 6], &fixed, Better::Higher, situations).unwrap();
            assert_eq!(found.is_loss(), is_loss, "{situations}");
        }
    }

    #[test]
    fn a_drift_that_all_share_is_no_regret() {
        // The machine becomes half as fast in the course of the repeats.
        let drift = [100.0, 90.0, 80.0, 70.0, 60.0, 50.0];
        let fixed = vec![drift.to_vec(), drift.map(|x| x * 0.9).to_vec()];
        let found = regret(&drift, &fixed, Better::Higher, 1).unwrap();
        assert_eq!((found.regret, found.low, found.high), (0.0, 0.0, 0.0));
        assert_eq!(found.is_loss(), Some(false));
    }

    /// What no situation alone can show: with noise of a factor of two, 20 repeats of each of 21
    /// situations say within a tenth what it loses in all.
    #[test]
    fn together_they_say_what_each_alone_does_not() {
        let mut random = Random::new(5);
        let mut found = |level: f64| {
            let mut of = |level: f64| -> Vec<f64> {
                let noise = noisy(&mut random, 1.0, 0.7, 20 * 21);
                noise.into_iter().map(|x| level * x.exp()).collect()
            };
            together(&of(level), &of(1.0), Better::Lower).unwrap()
        };
        let (mut wrong, sweeps) = (0, 40);
        for _ in 0..sweeps {
            let same = found(1.0);
            assert!(same.high - same.low < 0.5, "{same:?}");
            wrong += u32::from(same.low > 0.0 || same.high < 0.0);
            let more = found(1.5);
            assert!(more.low > 0.1 && more.high < 1.1, "{more:?}");
        }
        // Two are to be expected.
        assert!(wrong <= 6, "{wrong} of {sweeps}");
    }

    #[test]
    fn too_little_is_nothing() {
        let same = |figure: f64, repeats| {
            together(&vec![figure; repeats], &vec![1.0; repeats], Better::Lower)
        };
        assert!(same(1.0, 6).is_some());
        assert_eq!((same(1.0, 5), same(0.0, 6)), (None, None));
        assert_eq!(regret(&[1.0], &[vec![1.0]], Better::Higher, 1), None);
        assert_eq!(regret(&[1.0, 1.0], &[], Better::Higher, 1), None);
        let short = [vec![1.0]];
        assert_eq!(regret(&[1.0, 1.0], &short, Better::Higher, 1), None);
        let zero = [vec![0.0, 1.0]];
        assert_eq!(regret(&[1.0, 1.0], &zero, Better::Higher, 1), None);
    }
}
