//! The shared set of free frames or lines. The lowest indices are used first.

use std::io;

const BITS: usize = 64;

/// A set of indices below a bound. [`FreeSet::take`] returns the lowest.
///
/// If one thread takes frames and another frees them, all frames in use rotate, and none is in a
/// near CPU cache when it is taken. In the order of addresses the CPU prefetches the next ones. A
/// stack would lose that order, since frames are freed out of order.
#[derive(Debug, Default)]
pub(super) struct FreeSet {
    /// A bit for each index.
    words: Vec<u64>,
    /// A bit for each word that is not 0.
    summary: Vec<u64>,
    /// Words of the summary before this one are 0.
    from: usize,
    len: usize,
}

impl FreeSet {
    /// All indices below `pieces`.
    ///
    /// # Errors
    ///
    /// If the system has no memory for it.
    pub(super) fn all_below(pieces: u32) -> io::Result<Self> {
        let pieces = pieces as usize;
        let words = ones(pieces)?;
        Ok(Self {
            summary: ones(words.len())?,
            words,
            from: 0,
            len: pieces,
        })
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Adds `indices`, which must not be in the set.
    ///
    /// # Panics
    ///
    /// If one is, which is a defect of packtrain.
    pub(super) fn extend(&mut self, indices: &[u32]) {
        for &index in indices {
            let (word, bit) = place(index as usize);
            assert_eq!(self.words[word] & bit, 0, "{index} was freed twice");
            self.words[word] |= bit;
            self.len += 1;
            let (word, bit) = place(word);
            self.summary[word] |= bit;
            self.from = self.from.min(word);
        }
    }

    /// Removes the lowest indices and writes them to the end of `indices`, the lowest last. Returns
    /// their number, which is less than the length of `indices` if the set has fewer.
    pub(super) fn take(&mut self, indices: &mut [u32]) -> usize {
        let count = indices.len().min(self.len);
        let mut places = indices.iter_mut().rev().take(count);
        while places.len() > 0 {
            let Some(summary) = self.summary.get_mut(self.from).filter(|bits| **bits != 0) else {
                self.from += 1;
                continue;
            };
            let at = self.from * BITS + summary.trailing_zeros() as usize;
            let word = &mut self.words[at];
            for place in &mut places {
                *place = (at * BITS) as u32 + word.trailing_zeros();
                *word &= *word - 1;
                if *word == 0 {
                    *summary &= *summary - 1;
                    break;
                }
            }
        }
        self.len -= count;
        count
    }

    /// Whether the set has `index`.
    pub(super) fn has(&self, index: u32) -> bool {
        let (word, bit) = place(index as usize);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }
}

/// The word of an index, and its bit there.
const fn place(index: usize) -> (usize, u64) {
    (index / BITS, 1 << (index % BITS))
}

/// `bits` bits set; the other bits of the last word are 0.
fn ones(bits: usize) -> io::Result<Vec<u64>> {
    let mut words = Vec::new();
    words.try_reserve_exact(bits.div_ceil(BITS))?;
    words.resize(bits / BITS, u64::MAX);
    if !bits.is_multiple_of(BITS) {
        words.push((1 << (bits % BITS)) - 1);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(not(miri))]
    use proptest::prelude::*;
    #[cfg(not(miri))]
    use std::collections::BTreeSet;

    /// Removes up to `count` indices from `set`, lowest first.
    fn taken(set: &mut FreeSet, count: usize) -> Vec<u32> {
        let mut indices = vec![0; count];
        let n = set.take(&mut indices);
        indices.drain(..count - n);
        indices.reverse();
        indices
    }

    #[test]
    fn the_lowest_come_first_and_the_last_is_the_lowest() {
        let mut set = FreeSet::all_below(200).expect("memory");
        let mut indices = [0; 3];
        assert_eq!(set.take(&mut indices), 3);
        assert_eq!(indices, [2, 1, 0]);
        assert_eq!(taken(&mut set, 130), (3..133).collect::<Vec<_>>());
        set.extend(&[64, 1, 70]);
        assert_eq!(taken(&mut set, 5), [1, 64, 70, 133, 134]);
        assert_eq!(taken(&mut set, 100), (135..200).collect::<Vec<_>>());
        assert_eq!((taken(&mut set, 1).len(), set.len()), (0, 0));
        set.extend(&[199]);
        assert_eq!(taken(&mut set, 1), [199]);
    }

    #[test]
    fn too_few_are_at_the_end() {
        let mut set = FreeSet::all_below(2).expect("memory");
        let mut indices = [7; 4];
        assert_eq!(set.take(&mut indices), 2);
        assert_eq!(indices, [7, 7, 1, 0]);
    }

    #[test]
    #[should_panic(expected = "70 was freed twice")]
    fn an_index_in_the_set_cannot_be_added() {
        let mut set = FreeSet::all_below(100).expect("memory");
        taken(&mut set, 80);
        set.extend(&[70]);
        set.extend(&[3, 70]);
    }

    // This module has no unsafe code, and Miri would take a minute.
    #[cfg(not(miri))]
    proptest! {
        /// For any size, and any order of takes and returns.
        #[test]
        fn is_a_set_that_gives_its_lowest(
            pieces in prop_oneof![0_u32..300, 4_000_u32..9_000],
            steps in prop::collection::vec((any::<bool>(), 0_usize..400, any::<u64>()), 0..40),
        ) {
            let mut set = FreeSet::all_below(pieces).expect("memory");
            let mut model: BTreeSet<u32> = (0..pieces).collect();
            let mut out = Vec::new();
            for (takes, count, seed) in steps {
                if takes {
                    let expected: Vec<_> = model.iter().copied().take(count).collect();
                    let got = taken(&mut set, count);
                    prop_assert_eq!(&got, &expected);
                    expected.iter().for_each(|index| _ = model.remove(index));
                    out.extend(got);
                } else {
                    let count = count.min(out.len());
                    let by = seed as usize % out.len().max(1);
                    out.rotate_left(by);
                    let back: Vec<_> = out.drain(..count).collect();
                    set.extend(&back);
                    model.extend(back);
                }
                prop_assert_eq!(set.len(), model.len());
                let probe = seed as u32 % pieces.max(1);
                prop_assert_eq!(set.has(probe), model.contains(&probe));
            }
        }
    }
}
