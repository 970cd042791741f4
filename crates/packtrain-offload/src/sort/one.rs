//! Whether all items have one key, at the speed of reading them.
//!
//! A single flow is common: then grouping does only this, and reading memory takes all the time.
//! Longer loads read more of it at a time.

#![allow(
    unsafe_code,
    reason = "vector instructions that the processor was asked for"
)]

use super::tally::Keyed;
use crate::prefetch;

/// A lower bound of the number of leading items with the key of the first one: all of them, or
/// short of the exact number by less than a block.
#[inline]
pub(super) fn equal_at_first(items: &[Keyed]) -> usize {
    #[cfg(target_arch = "x86_64")]
    if items.len() >= x86::ITEMS_MIN
        && let Some(equal) = x86::equal_at_first(items)
    {
        return equal;
    }
    equal_one_by_one(items)
}

#[inline(always)]
fn equal_one_by_one(items: &[Keyed]) -> usize {
    /// Compared without a loop.
    const BLOCK: usize = 8;
    /// Prefetch distance.
    const FETCHED_BYTES: usize = 1024;
    let Some(&Keyed { key: first, .. }) = items.first() else {
        return 0;
    };
    let same = |item: &Keyed| item.key == first;
    let (blocks, rest) = items.as_chunks::<BLOCK>();
    let equal = blocks.iter().take_while(|block| {
        // Two cache lines for two: what was received last is no longer in the nearest cache.
        prefetch::ahead(*block, FETCHED_BYTES);
        prefetch::ahead(*block, FETCHED_BYTES + size_of_val(*block) / 2);
        block.iter().all(same)
    });
    match equal.count() {
        all if all == blocks.len() && rest.iter().all(same) => items.len(),
        equal => equal * BLOCK,
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Keyed;
    use crate::prefetch;
    use core::arch::x86_64::{
        __m256i, _mm256_loadu_si256, _mm256_or_si256, _mm256_set1_epi64x, _mm256_setr_epi64x,
        _mm256_setzero_si256, _mm256_testz_si256, _mm256_xor_si256,
    };

    cpufeatures::new!(avx2_found, "avx2");

    /// With fewer items, detecting the processor and a call cost more than long loads save.
    pub(super) const ITEMS_MIN: usize = 256;
    /// Compared without a branch in between: four cache lines.
    const BLOCK: usize = 16;
    const FETCHED_BYTES: usize = 2048;

    /// Like [`super::equal_at_first`]; `None` without AVX2.
    #[inline]
    pub(super) fn equal_at_first(items: &[Keyed]) -> Option<usize> {
        // SAFETY: AVX2 was detected.
        avx2_found::get().then(|| unsafe { equal_at_first_avx2(items) })
    }

    #[target_feature(enable = "avx2")]
    fn equal_at_first_avx2(items: &[Keyed]) -> usize {
        let Some(&Keyed { key: first, .. }) = items.first() else {
            return 0;
        };
        // Both halves of an item are compared, and the answer of that with the index is masked.
        let wanted = _mm256_set1_epi64x(first.cast_signed());
        let keys_only = _mm256_setr_epi64x(-1, 0, -1, 0);
        let (blocks, rest) = items.as_chunks::<BLOCK>();
        let equal = blocks.iter().take_while(|block| {
            for line in block.as_chunks::<4>().0 {
                prefetch::ahead(line, FETCHED_BYTES);
            }
            let mut differ = [_mm256_setzero_si256(); 2];
            for four in block.as_chunks::<4>().0 {
                for (differ, two) in differ.iter_mut().zip(four.as_chunks::<2>().0) {
                    *differ = _mm256_or_si256(*differ, _mm256_xor_si256(load(two), wanted));
                }
            }
            _mm256_testz_si256(_mm256_or_si256(differ[0], differ[1]), keys_only) != 0
        });
        match equal.count() {
            all if all == blocks.len() && rest.iter().all(|item| item.key == first) => items.len(),
            equal => equal * BLOCK,
        }
    }

    #[target_feature(enable = "avx2")]
    fn load(two: &[Keyed; 2]) -> __m256i {
        const { assert!(size_of::<[Keyed; 2]>() == 32) };
        // SAFETY: the 32 bytes of two items, which have no padding; unaligned loads may be so.
        unsafe { _mm256_loadu_si256(two.as_ptr().cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Consecutive items; the caller's numbers, which are never compared, are all different.
    fn row(key: u64, items: usize) -> Vec<Keyed> {
        let numbers = 0..items as u64;
        numbers.map(|index| Keyed { key, index }).collect()
    }

    /// `found` is right for items of which the first `equal` have one key.
    #[track_caller]
    fn check(found: usize, equal: usize, items: usize, block: usize, at: &str) {
        assert!(
            found <= equal,
            "{at}: {found} of {items}, with {equal} equal"
        );
        assert!(
            equal < found + block,
            "{at}: {found} of {items}, with {equal} equal"
        );
        // "All" is returned only if all are equal.
        assert_eq!(
            found == items,
            equal == items,
            "{at}: {items}, with {equal} equal"
        );
    }

    const ITEMS: usize = if cfg!(miri) { 40 } else { 600 };
    /// Of the plain code and of long loads.
    const BLOCKS: [usize; 2] = [8, 16];

    /// Every number of items, and in each a difference at every place, in every bit in turn.
    #[test]
    fn long_loads_find_what_a_look_at_each_finds() {
        #[cfg(target_arch = "x86_64")]
        let long: fn(&[Keyed]) -> Option<usize> = x86::equal_at_first;
        #[cfg(not(target_arch = "x86_64"))]
        let long: fn(&[Keyed]) -> Option<usize> = |_| None;
        if long(&[]).is_none() {
            std::println!("SKIP: this processor has no AVX2 to compare plain code with");
        }
        for len in 0..=ITEMS {
            let key = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(len as u64);
            let mut items = row(key, len);
            let all = |equal: usize, items: &[Keyed]| {
                check(equal_one_by_one(items), equal, len, BLOCKS[0], "one by one");
                check(equal_at_first(items), equal, len, BLOCKS[1], "as chosen");
                if let Some(found) = long(items) {
                    check(found, equal, len, BLOCKS[1], "AVX2");
                }
            };
            all(len, &items);
            for at in 1..len {
                items[at].key ^= 1 << ((at + len) % 64);
                all(at, &items);
                items[at].key = key;
            }
            // The first one is what the others are compared with.
            if len > 1 {
                items[0].key ^= 1 << (len % 64);
                all(1, &items);
            }
        }
    }
}
