//! Histograms with log-linear buckets, as in HdrHistogram.
//!
//! Values below 32 have a bucket each; above, every power of two is divided into 16 buckets of the
//! same width. So a value is known to within 1/16 of itself, whatever its size.

use super::cell::Counter;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The logarithm of the buckets of each power of two.
const SUB_BITS: u32 = 4;
const SUB: usize = 1 << SUB_BITS;
/// The bits of a value. No batch has more packets.
const VALUE_BITS: u32 = 32;
const BUCKETS: usize = ((VALUE_BITS - SUB_BITS) as usize + 1) * SUB;
const VALUE_MAX: u64 = (1 << VALUE_BITS) - 1;

/// The bucket of `value`.
const fn index(value: u64) -> usize {
    let value = if value > VALUE_MAX { VALUE_MAX } else { value };
    if value < SUB as u64 {
        return value as usize;
    }
    let shift = value.ilog2() - SUB_BITS;
    shift as usize * SUB + (value >> shift) as usize
}

/// The least value of a bucket.
const fn low(index: usize) -> u64 {
    if index < 2 * SUB {
        return index as u64;
    }
    let shift = index / SUB - 1;
    ((index % SUB + SUB) as u64) << shift
}

/// The greatest value of a bucket.
const fn high(index: usize) -> u64 {
    if index + 1 == BUCKETS {
        u64::MAX
    } else {
        low(index + 1) - 1
    }
}

/// A histogram with one writer and any number of readers; 3.7 KiB, without further allocation.
///
/// A record is three plain loads and stores without a locked instruction, as for [`Counter`].
pub struct Histogram {
    buckets: [Counter; BUCKETS],
    sum: Counter,
    max: Counter,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: [const { Counter::new() }; BUCKETS],
            sum: Counter::new(),
            max: Counter::new(),
        }
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.snapshot().fmt(f)
    }
}

impl Histogram {
    /// Counts one occurrence of `value`. Only the owner may call this. Values of more than 32 bits
    /// share the last bucket; [`HistogramSnapshot::max`] and the sum are exact also then.
    pub fn record(&self, value: u64) {
        if value > self.max.get() {
            self.max.set(value);
        }
        self.sum.add(value);
        self.buckets[index(value)].add(1);
    }

    /// A copy. If the writer records meanwhile, the sum and the maximum may be earlier or later
    /// values than the count, which is that of the copied buckets.
    #[must_use]
    pub fn snapshot(&self) -> HistogramSnapshot {
        let counts: Vec<_> = self.buckets.iter().map(Counter::get).collect();
        let highest = counts.iter().rposition(|&count| count > 0);
        HistogramSnapshot {
            sum: self.sum.get(),
            max: self.max.get().max(highest.map_or(0, low)),
            // Batches are small, so the high buckets are empty, and the copy omits them.
            counts: counts[..highest.map_or(0, |last| last + 1)].to_vec(),
        }
    }
}

/// A copy of a [`Histogram`], or of several merged.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// By bucket, without the empty ones at the end.
    counts: Vec<u64>,
    sum: u64,
    max: u64,
}

impl HistogramSnapshot {
    /// The number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of all values, exact.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        self.sum
    }

    /// The greatest value, exact; 0 without values.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// The value that a share `p` of all values (0 to 1) does not exceed: of n values in ascending
    /// order the ⌈p·n⌉-th, the first for `p` = 0. It is never less than that value, and more by
    /// less than 1/16 of it; exact below 32. 0 without values.
    #[must_use]
    pub fn quantile(&self, p: f64) -> u64 {
        let count = self.count();
        let rank = ((p * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        for (index, n) in self.counts.iter().enumerate() {
            seen += n;
            if seen >= rank {
                return high(index).min(self.max);
            }
        }
        self.max
    }

    /// The buckets that are not empty, in ascending order: the least value, and the count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let all = self.counts.iter().enumerate();
        all.filter(|&(_, &count)| count > 0)
            .map(|(index, &count)| (low(index), count))
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        let buckets = self.counts.len().max(other.counts.len());
        self.counts.resize(buckets, 0);
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.sum = self.sum.wrapping_add(other.sum);
        self.max = self.max.max(other.max);
    }
}

impl fmt::Debug for HistogramSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.buckets()).finish()
    }
}

/// A histogram for several threads: each records into its own one, so each has one writer, and no
/// two share a cache line.
#[derive(Debug, Default)]
pub struct SharedHistogram {
    own: Histogram,
    others: Mutex<Others>,
}

#[derive(Debug, Default)]
struct Others {
    live: Vec<Arc<Histogram>>,
    /// The counts of writers that have ended.
    retired: HistogramSnapshot,
}

impl Others {
    /// Keeps the counts of writers that have ended, and frees their memory.
    fn retire(&mut self) {
        let retired = &mut self.retired;
        // Without another reference no thread can record.
        self.live.retain_mut(|one| {
            let ended = Arc::get_mut(one).is_some();
            if ended {
                retired.merge(&one.snapshot());
            }
            !ended
        });
    }
}

impl SharedHistogram {
    /// The histogram of the owner of the queue.
    #[must_use]
    pub const fn own(&self) -> &Histogram {
        &self.own
    }

    /// The histogram of a new writer. It allocates and takes a lock, so it is not for the packet
    /// path.
    #[must_use]
    pub fn writer(&self) -> Arc<Histogram> {
        let mut others = self.others();
        others.retire();
        let one = Arc::<Histogram>::default();
        others.live.push(Arc::clone(&one));
        one
    }

    /// The sum of all of them.
    #[must_use]
    pub fn snapshot(&self) -> HistogramSnapshot {
        let mut others = self.others();
        others.retire();
        let mut all = self.own.snapshot();
        all.merge(&others.retired);
        for one in &others.live {
            all.merge(&one.snapshot());
        }
        all
    }

    fn others(&self) -> MutexGuard<'_, Others> {
        // A thread that panicked with the lock held has at worst not added its histogram.
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
