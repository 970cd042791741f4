//! The distribution of added delays.

use hdrhistogram::Histogram;

/// Added delays, in nanoseconds, to within 1 %; one above 73 minutes counts as that. Distributions
/// add up: those of the parts of a capture make that of the whole.
#[derive(Clone, Debug, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(into = "Stored", from = "Stored")
)]
pub struct Delays {
    /// None before the first one.
    histogram: Option<Box<Histogram<u64>>>,
    /// The longest delay, exactly.
    max: u64,
}

impl Delays {
    /// Significant decimal digits.
    const DIGITS: u8 = 2;
    /// The longest delay.
    const NS_MAX: u64 = 1 << 42;

    pub(super) fn add(&mut self, ns: u64) {
        self.max = self.max.max(ns);
        self.add_n(ns, 1);
    }

    fn add_n(&mut self, ns: u64, count: u64) {
        if self.histogram.is_none() {
            // The bounds are right.
            let made = Histogram::new_with_bounds(1, Self::NS_MAX, Self::DIGITS);
            self.histogram = made.ok().map(Box::new);
        }
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record_n(ns, count);
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.max = self.max.max(other.max);
        match (&mut self.histogram, &other.histogram) {
            (Some(mine), Some(theirs)) => {
                for at in theirs.iter_recorded() {
                    mine.saturating_record_n(at.value_iterated_to(), at.count_at_value());
                }
            }
            (None, Some(_)) => self.histogram.clone_from(&other.histogram),
            (_, None) => {}
        }
    }

    /// Packets.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.as_ref().map_or(0, |found| found.len())
    }

    /// The delay, in nanoseconds, that this share of the packets does not exceed: 0.5 is the
    /// median. 0 without packets.
    #[must_use]
    pub fn quantile(&self, share: f64) -> u64 {
        let found = self.histogram.as_ref();
        // The end of a bar may be beyond all delays in it.
        found.map_or(0, |found| found.value_at_quantile(share).min(self.max))
    }

    /// The longest delay, in nanoseconds, exactly. 0 without packets.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// Every delay that was counted, to within 1 %, and how often.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let found = self.histogram.iter();
        found
            .flat_map(|found| found.iter_recorded())
            .map(|at| (at.value_iterated_to(), at.count_at_value()))
    }
}

/// Equal if all counts are.
impl PartialEq for Delays {
    fn eq(&self, other: &Self) -> bool {
        self.max == other.max && self.count() == other.count() && self.iter().eq(other.iter())
    }
}

impl Eq for Delays {}

/// The longest delay, and every delay with how often it was counted.
#[cfg(feature = "serde")]
type Stored = (u64, Vec<(u64, u64)>);

#[cfg(feature = "serde")]
impl From<Delays> for Stored {
    fn from(delays: Delays) -> Self {
        (delays.max, delays.iter().collect())
    }
}

#[cfg(feature = "serde")]
impl From<Stored> for Delays {
    fn from((max, counts): Stored) -> Self {
        let mut delays = Self {
            max,
            ..Self::default()
        };
        for (ns, count) in counts {
            delays.add_n(ns, count);
        }
        delays
    }
}
