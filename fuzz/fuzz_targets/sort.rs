//! `sort::group` over any keys, few or many, up to thousands of items: the items of each key are
//! together and in the order of arrival, none is lost, and memory around them is unchanged.

#![no_main]

use std::collections::HashSet;

use libfuzzer_sys::fuzz_target;
use packtrain_fuzz::{Input, reached};
use packtrain_offload::sort::{Keyed, Scratch, group, words};

/// Most items: enough for every grouping algorithm, and few enough for thousands of inputs a
/// second.
const ITEMS_MAX: usize = 3000;
/// The factor that turns small numbers into keys that all share a slot of a table.
const AGAINST_THE_HASH: u64 = 0xF1DE_83E1_9937_733D;
/// Guard values around the items, which must not be written.
const GUARD: Keyed = Keyed {
    key: 0xA5A5_A5A5_A5A5_A5A5,
    index: u64::MAX,
};
const GUARD_WORD: u32 = 0xA5A5_A5A5;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let (how, distance) = (input.byte(), usize::from(input.byte() & 3));
    let (repeat, seed) = (
        usize::from(input.word() & 0xFFF) + 1,
        u64::from(input.word()),
    );
    let (odd_at, odd_key) = (usize::from(input.word()), input.byte());
    let mut keys = keys(how, repeat, seed, input.rest());
    // One that breaks a row of equal ones: in a block of the vectors, or behind the last.
    if how & 0x40 != 0 && !keys.is_empty() {
        let at = odd_at % keys.len();
        keys[at] ^= u64::from(odd_key) << (how & 0x38);
    }
    // Four are two vectors more.
    check(&keys, distance, usize::from(how & 4));
});

/// Keys from the rest of the input: each `repeat` times in a row or all of them `repeat` times
/// over, unchanged, or as thousands of keys, for which no input is long enough.
fn keys(how: u8, repeat: usize, seed: u64, bytes: &[u8]) -> Vec<u64> {
    let of = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    };
    let width = [1, 8, 1, 8][usize::from(how & 3)];
    let given: Vec<u64> = bytes.chunks(width).map(of).take(ITEMS_MAX).collect();
    let repeat = repeat.min(ITEMS_MAX / given.len().max(1));
    let mut keys: Vec<u64> = if how & 0x80 == 0 {
        given.iter().flat_map(|key| vec![*key; repeat]).collect()
    } else {
        given.repeat(repeat)
    };
    for (at, key) in (0..).zip(&mut keys) {
        match how & 3 {
            2 => *key = key.wrapping_add(at).wrapping_mul(AGAINST_THE_HASH),
            3 => *key = key.wrapping_add(seed.wrapping_mul(at)).rotate_left(17),
            _ => {}
        }
    }
    keys
}

fn check(keys: &[u64], distance: usize, spare_more: usize) {
    let n = keys.len();
    // Of any alignment that items can have, and up to the end of the allocation: a sanitizer
    // detects an access beyond it.
    let mut memory = vec![GUARD; distance + n];
    for (index, (key, item)) in (0..).zip(keys.iter().zip(&mut memory[distance..])) {
        *item = Keyed { key: *key, index };
    }
    // Exactly the required size, for the same reason; or more, which must stay unchanged.
    let mut spare = vec![GUARD; n + spare_more];
    let mut scratch_words = vec![GUARD_WORD; words(n) + spare_more];
    let mut scratch = Scratch {
        spare: &mut spare,
        words: &mut scratch_words,
    };
    let grouped = group(&mut memory[distance..], &mut scratch).expect("there is enough");

    assert_eq!(grouped.len(), n, "none is lost");
    let mut seen = HashSet::new();
    for one in grouped.chunk_by(|a, b| a.key == b.key) {
        assert!(seen.insert(one[0].key), "two groups of one key");
        assert!(
            one.is_sorted_by(|a, b| a.index < b.index),
            "in the order of arrival"
        );
    }
    let came = |item: &Keyed| keys[item.index as usize] == item.key;
    assert!(grouped.iter().all(came), "items that came");
    let around = memory[..distance].iter().chain(&spare[n..]);
    assert!(around.copied().all(|item| item == GUARD), "beside them");
    if n < 256 {
        return;
    }
    // Below it no vectors are used.
    reached(match seen.len() {
        1 => "one key of many",
        2..=16 => "few keys of many",
        17..=255 => "more keys of many",
        _ => "hundreds of keys",
    });
}
