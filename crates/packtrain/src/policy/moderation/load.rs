//! What the load of a queue is, and whether it is another one: told apart from chance by what the
//! counts themselves say of their spread, in integers.

use super::{EVENTS_FINE, Observation};

/// Time of one slice, the grain of all that is decided, in nanoseconds: 80 packets where the load
/// is just not light, and a load that doubles shows within four.
pub(super) const SLICE_NS: u64 = 4_000_000;
/// A slice that took longer, since nothing came for so long, counts as so many at most.
const WEIGHT_MAX: u64 = 8;
/// Slices of a sample, at least and at most: 16 ms, and 256 ms where they vary that much.
const SAMPLE_MIN: u64 = 4;
const SAMPLE_MAX: u64 = 64;
/// Slices after which a reference stays as it is, so that it cannot follow a load that grows: 1 s.
pub(super) const REFERENCE_MAX: u64 = 256;
/// A rate that is taken for the highest there is, for squares and sums that fit.
const RATE_MAX: u64 = 1 << 40;
/// A difference has to be so many percent (`IS_SIGNIFICANT_DIFF`), ...
const PERCENT: u128 = 10;
/// ... and so many times its standard deviation, squared: by chance, one in 16 000. When a sample
/// has all its slices, it has to do with one in 20.
const SIGMAS_SQUARED: u128 = 16;
const SIGMAS_SQUARED_AT_LAST: u128 = 4;
/// Of a sample that others are compared with, the deviation is at most 1/32, or it has
/// [`SAMPLE_MAX`] slices.
const PRECISE_SQUARED: u128 = 32 * 32;

pub(super) const BYTES: usize = 0;
pub(super) const PACKETS: usize = 1;
pub(super) const EVENTS: usize = 2;

/// What happened in one slice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    /// Bytes, packets and signals, each for one second.
    pub rates: [u64; 3],
    /// How many things each of them was counted by: bytes come in packets.
    counts: [u64; 3],
    /// Times [`SLICE_NS`].
    pub weight: u64,
}

impl Slice {
    pub(super) fn of(seen: &Observation, ns: u64) -> Self {
        let rate = |count: u64| {
            let rate = u128::from(count) * 1_000_000_000 / u128::from(ns.max(1));
            u64::try_from(rate).map_or(RATE_MAX, |rate| rate.min(RATE_MAX))
        };
        Self {
            rates: [rate(seen.bytes), rate(seen.packets), rate(seen.events)],
            counts: [seen.packets, seen.packets, seen.events],
            weight: (ns / SLICE_NS).clamp(1, WEIGHT_MAX),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Better,
    Same,
    Worse,
    /// Worse, and not by signals: less was received.
    Less,
}

/// Slices of one load under one profile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    slices: u64,
    sums: [u64; 3],
    squares: [u128; 3],
    counts: [u64; 3],
}

impl Sample {
    pub(super) const NONE: Self = Self {
        slices: 0,
        sums: [0; 3],
        squares: [0; 3],
        counts: [0; 3],
    };

    pub(super) fn add(&mut self, slice: &Slice) {
        self.slices += 1;
        for (i, rate) in slice.rates.into_iter().enumerate() {
            self.sums[i] += rate;
            self.squares[i] += u128::from(rate) * u128::from(rate);
            self.counts[i] = self.counts[i].saturating_add(slice.counts[i]);
        }
    }

    pub(super) const fn slices(&self) -> u64 {
        self.slices
    }

    pub(super) fn mean(&self, of: usize) -> u64 {
        self.sums[of] / self.slices.max(1)
    }

    /// Of one slice, about the mean.
    fn variance(&self, of: usize) -> u128 {
        if self.slices < 2 {
            return 0;
        }
        let (n, sum) = (u128::from(self.slices), u128::from(self.sums[of]));
        (self.squares[of].saturating_sub(sum * sum / n)) / (n - 1)
    }

    /// Of the mean. No less than the one of as many things that come independently of each other:
    /// a few slices may be alike by chance.
    fn variance_of_mean(&self, of: usize) -> u128 {
        let mean = u128::from(self.mean(of));
        let least = mean * mean / u128::from(self.counts[of].max(1));
        let seen = self.variance(of) / u128::from(self.slices.max(1));
        seen.max(least)
    }

    /// Whether it has as many slices as one ever needs.
    pub(super) const fn is_full(&self) -> bool {
        self.slices >= SAMPLE_MAX
    }

    /// Whether others can be compared with this.
    pub(super) fn is_enough(&self) -> bool {
        let mean = u128::from(self.mean(PACKETS));
        let is_precise = self.variance_of_mean(PACKETS) * PRECISE_SQUARED <= mean * mean;
        self.is_full() || (self.slices >= SAMPLE_MIN && is_precise)
    }

    /// Whether the mean is below a limit; `None` as long as more slices may tell.
    pub(super) fn is_below(&self, of: usize, limit: u64) -> Option<bool> {
        let mean = self.mean(of);
        let difference = u128::from(limit.saturating_sub(mean));
        let is_sure = difference * difference > self.variance_of_mean(of) * SIGMAS_SQUARED;
        if mean >= limit {
            Some(false)
        } else {
            (is_sure || self.slices >= SAMPLE_MAX).then_some(true)
        }
    }

    /// `net_dim_stats_compare()`: bytes, then packets, then signals; but see [`EVENTS_FINE`].
    /// `None` as long as more slices may tell.
    pub(super) fn compared_with(&self, before: &Self) -> Option<Outcome> {
        if self.slices < SAMPLE_MIN {
            return None;
        }
        for of in [BYTES, PACKETS] {
            let (now, was) = (self.mean(of), before.mean(of));
            if was == 0 {
                return Some(if now > 0 {
                    Outcome::Better
                } else {
                    Outcome::Same
                });
            }
            if self.differs_from(before, of)? {
                return Some(if now > was {
                    Outcome::Better
                } else {
                    Outcome::Less
                });
            }
        }
        let (now, was) = (self.mean(EVENTS), before.mean(EVENTS));
        Some(
            match now.max(was) > EVENTS_FINE && self.differs_from(before, EVENTS)? {
                true if now < was => Outcome::Better,
                true => Outcome::Worse,
                false => Outcome::Same,
            },
        )
    }

    /// `None`: perhaps, and more slices may tell. What they did not tell in the end is no
    /// difference.
    fn differs_from(&self, before: &Self, of: usize) -> Option<bool> {
        let (now, was) = (self.mean(of), before.mean(of));
        let difference = u128::from(now.abs_diff(was));
        if was == 0 || difference * 100 / u128::from(was) <= PERCENT {
            return Some(false);
        }
        let mut variance = self.variance_of_mean(of) + before.variance_of_mean(of);
        if of != EVENTS {
            // What was received varies as it did before: four slices do not tell how much.
            variance += before.variance(of) / u128::from(self.slices);
        }
        let is_last = self.slices >= SAMPLE_MAX;
        let sigmas = if is_last {
            SIGMAS_SQUARED_AT_LAST
        } else {
            SIGMAS_SQUARED
        };
        let is_sure = difference * difference > variance * sigmas;
        (is_sure || is_last).then_some(is_sure)
    }
}

/// Fractions of a reference have this for one.
const ONE: u64 = 1024;
/// Rates above are taken for so many times the reference.
const TIMES_MAX: u64 = 16;
/// A rate is another one when the sum of what it was above or below is this, and more where slices
/// vary: so many times their variance. With a slack of 1/8, chance alone says so about once in e^16
/// slices.
const SURE: u64 = 64;
const SURE_MAX: u64 = 128 * ONE;
/// The slack of a rate that is to stay what it is, and the sum that is sure at least: a load that
/// doubles is another after 4 slices, and one of which half is left after 8; but the 10 ms for
/// which the system runs something else instead of a sender make no other load.
const SLACK: u64 = ONE / 8;
const SURE_MIN: u64 = 3 * ONE;
/// The same of a rate that is compared with a limit: without slack, so more is needed.
const SURE_MIN_BESIDE: u64 = 4 * ONE;

/// One of the two sums of a [`Watch`].
#[derive(Clone, Copy, Debug)]
struct Sum {
    value: u64,
    /// How much makes it sure: as it was when the sum began to grow, since what it grows by may be
    /// the change itself.
    limit: u64,
}

impl Sum {
    const fn new(limit: u64) -> Self {
        Self { value: 0, limit }
    }

    fn add(&mut self, says: i64, weight: u64, limit: u64) {
        if self.value == 0 {
            self.limit = limit;
        }
        // One slice alone is never sure, however far off it is.
        let says = says
            .min(self.limit as i64 / 8 * 7)
            .saturating_mul(weight as i64);
        self.value = self.value.saturating_add_signed(says).min(self.limit);
    }

    const fn is_sure(&self) -> bool {
        self.value >= self.limit
    }
}

/// Watches whether a rate is still what it was: two cumulative sums (Page's test, CUSUM), of what
/// it is above its reference and below. So a load that doubles is told of within a few slices, and
/// one that is a little more within many.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    pub reference: u64,
    slack: u64,
    /// The least that is sure.
    limit_min: u64,
    /// Of the rate as a fraction of the reference.
    above: Sum,
    below: Sum,
    /// Variance from slice to slice; and as it was one slice ago, in front of a slice in which the
    /// change came.
    noise: u64,
    noise_before: u64,
    last: Option<u64>,
    /// The rate lately.
    recent: u64,
}

impl Watch {
    /// Whether a rate is above or below a limit, as if there had been no noise so far.
    pub(super) const fn beside(limit: u64) -> Self {
        Self::new(limit, 0, SURE_MIN_BESIDE)
    }

    const fn new(reference: u64, slack: u64, limit_min: u64) -> Self {
        Self {
            reference,
            slack,
            limit_min,
            above: Sum::new(limit_min),
            below: Sum::new(limit_min),
            noise: 0,
            noise_before: 0,
            last: None,
            recent: ONE,
        }
    }

    /// The mean of a sample, with the noise that it had.
    pub(super) fn on_sample(sample: &Sample, of: usize) -> Self {
        let mean = sample.mean(of);
        let square = u128::from(mean) * u128::from(mean);
        let noise = sample.variance(of) * u128::from(ONE * ONE) / square.max(1);
        let noise = u64::try_from(noise).map_or(ONE * ONE, |noise| noise.min(ONE * ONE));
        Self {
            noise,
            noise_before: noise,
            ..Self::new(mean, SLACK, SURE_MIN)
        }
    }

    /// Another limit from now on, for the same load.
    pub(super) const fn turn_to(&mut self, limit: u64) {
        let noise = self.noise;
        *self = Self::new(limit, self.slack, self.limit_min);
        (self.noise, self.noise_before) = (noise, noise);
    }

    pub(super) fn see(&mut self, rate: u64, weight: u64) {
        let rate = (rate * ONE / self.reference.max(1)).min(ONE * TIMES_MAX);
        let (above, slack) = (rate as i64 - ONE as i64, self.slack as i64);
        let limit = (self.noise_before * SURE / ONE).clamp(self.limit_min, SURE_MAX);
        self.above.add(above - slack, weight, limit);
        self.below.add(-above - slack, weight, limit);
        self.noise_before = self.noise;
        // Far above a limit a rate varies by more than it would beside it.
        let near = rate.min(if self.slack > 0 { rate } else { 2 * ONE });
        if let Some(last) = self.last {
            let difference = near.abs_diff(last);
            self.noise = self.noise - self.noise / 16 + difference * difference / 32;
        }
        self.last = Some(near);
        self.recent = u64::midpoint(self.recent, rate);
    }

    pub(super) const fn is_above(&self) -> bool {
        self.above.is_sure()
    }

    pub(super) const fn is_below(&self) -> bool {
        self.below.is_sure()
    }

    /// Whether that is said of a rate that hardly varies otherwise.
    pub(super) const fn is_quiet(&self) -> bool {
        let most = self.limit_min * 2;
        (self.is_above() && self.above.limit < most) || (self.is_below() && self.below.limit < most)
    }

    /// Whether it is another load altogether, by a factor of about two, and not one that is
    /// sometimes this and sometimes that.
    pub(super) const fn is_far(&self) -> bool {
        let is_other = self.recent * 5 >= ONE * 8 || self.recent * 5 <= ONE * 3;
        is_other && self.is_quiet()
    }
}
