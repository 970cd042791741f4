use super::*;
use crate::random::Random;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// A stream of numbers that is the same on every machine.
fn numbers(seed: u64) -> impl Iterator<Item = u64> {
    let mut random = Random::new(seed);
    core::iter::repeat_with(move || random.next())
}

/// The number by which keys are multiplied to be hashed, inverted modulo 2^64.
fn inverse() -> u64 {
    let m = 0x9E37_79B9_7F4A_7C15_u64;
    let mut x = m;
    for _ in 0..6 {
        x = x.wrapping_mul(2_u64.wrapping_sub(m.wrapping_mul(x)));
    }
    assert_eq!(x.wrapping_mul(m), 1);
    x
}

fn keyed(keys: &[u64]) -> Vec<Keyed> {
    let item = |(index, &key)| Keyed {
        key,
        index: index as u64,
    };
    keys.iter().enumerate().map(item).collect()
}

/// The result of one call.
struct Outcome {
    items: Vec<Keyed>,
    steps: Steps,
    /// Whether the result is in the input slice.
    in_place: bool,
}

/// Groups, and checks everything that holds for any keys.
fn run(keys: &[u64]) -> Outcome {
    let mut items = keyed(keys);
    let mut spare = vec![Keyed::default(); keys.len()];
    let mut words = vec![0x5555_5555; words(keys.len())];
    let mut steps = Steps::default();
    let mut scratch = Scratch {
        spare: &mut spare,
        words: &mut words,
    };
    let before = items.as_ptr();
    let grouped = group_counted(&mut items, &mut scratch, &mut steps).unwrap();
    let outcome = Outcome {
        in_place: grouped.as_ptr() == before,
        items: grouped.to_vec(),
        steps,
    };
    check(keys, &outcome.items);
    assert!(outcome.steps.passes <= PASSES_MAX);
    assert!(outcome.steps.probes <= probes_max(keys.len()) + 1);
    outcome
}

/// Same items, groups contiguous, arrival order within: against the standard library's stable
/// sort.
fn check(keys: &[u64], items: &[Keyed]) {
    let mut expected = keyed(keys);
    expected.sort_by_key(|item| item.key);
    let mut groups: Vec<&[Keyed]> = items.chunk_by(|a, b| a.key == b.key).collect();
    groups.sort_by_key(|group| group[0].key);
    assert_eq!(groups.concat(), expected);
    let torn = groups
        .windows(2)
        .any(|pair| pair[0][0].key == pair[1][0].key);
    assert!(!torn, "a key in two groups");
}

proptest! {
    #[test]
    fn groups_as_a_stable_sort_does(
        keys in prop_oneof![
            prop::collection::vec(any::<u64>(), 0..600),
            prop::collection::vec(0_u64..8, 0..600),
            prop::collection::vec((0_u64..9).prop_map(|bits| bits << 60 | bits & 1), 0..600),
        ],
    ) {
        run(&keys);
    }

    #[test]
    fn groups_runs_as_a_stable_sort_does(
        runs in prop::collection::vec((0_u64..20, 1_usize..40), 0..80),
    ) {
        let keys: Vec<u64> = runs
            .iter()
            .flat_map(|&(key, len)| core::iter::repeat_n(key * 0x1_0000_0001, len))
            .collect();
        run(&keys);
    }

    #[test]
    fn keys_chosen_against_the_hash_are_grouped_in_bounded_steps(
        keys in prop::collection::vec((0_u64..300, any::<bool>()), 0..600),
    ) {
        let inverse = inverse();
        let keys: Vec<u64> = keys
            .iter()
            .map(|&(n, against)| if against { n.wrapping_mul(inverse) } else { n << 40 })
            .collect();
        run(&keys);
    }
}

#[test]
fn every_small_number_of_items_is_grouped() {
    for n in 0..100 {
        for distinct in 1..=n {
            run(&(0..n).map(|i| i * 7919 % distinct).collect::<Vec<_>>());
            run(&(0..n).map(|i| i / distinct).collect::<Vec<_>>());
            run(&(0..n).map(|i| i / 5 % distinct).collect::<Vec<_>>());
        }
    }
}

#[test]
fn freebsd_cases_random_equal_sorted_reversed_and_two_far_bits() {
    let random: Vec<u64> = numbers(1).take(1000).collect();
    run(&random);
    run(&[42; 1000]);
    let mut sorted = random;
    sorted.sort_unstable();
    run(&sorted);
    sorted.reverse();
    run(&sorted);
    let far: Vec<u64> = numbers(2)
        .take(13)
        .map(|n| (n & 1) << 63 | n >> 1 & 1)
        .collect();
    assert_eq!(run(&far).items.chunk_by(|a, b| a.key == b.key).count(), 4);
}

#[test]
fn what_is_grouped_already_is_not_moved() {
    let distinct: Vec<u64> = numbers(3).take(500).collect();
    let runs: Vec<u64> = distinct.iter().flat_map(|&key| [key; 9]).collect();
    let uneven: Vec<u64> = (0..500_u64)
        .flat_map(|i| vec![i; 1 + i as usize % 3])
        .collect();
    for keys in [&distinct[..], &runs, &uneven, &[5; 700], &[1, 2], &[1], &[]] {
        assert!(run(keys).in_place, "{} items", keys.len());
    }
    for keys in [&[1, 2, 1][..], &[1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 1, 1]] {
        assert!(!run(keys).in_place, "{keys:?}");
    }
}

#[test]
fn groups_come_in_the_order_of_their_first_item() {
    let keys: Vec<u64> = numbers(4).take(3000).map(|n| n % 100).collect();
    let mut first_seen: Vec<u64> = Vec::new();
    for &key in &keys {
        if !first_seen.contains(&key) {
            first_seen.push(key);
        }
    }
    let outcome = run(&keys);
    let groups = outcome.items.chunk_by(|a, b| a.key == b.key);
    assert_eq!(
        groups.map(|group| group[0].key).collect::<Vec<_>>(),
        first_seen
    );
}

/// All products are small, so all keys want the first slot.
#[test]
fn keys_that_all_share_a_slot_cost_linear_work() {
    let inverse = inverse();
    for n in [2_usize, 16, 17, 64, 100, 1000, 4096, ITEMS_MAX] {
        let keys: Vec<u64> = (0..n as u64).map(|i| i.wrapping_mul(inverse)).collect();
        // Twice, so that something has to move.
        let twice: Vec<u64> = keys[..n / 2]
            .iter()
            .chain(&keys[..n / 2])
            .copied()
            .collect();
        for keys in [keys, twice] {
            let steps = run(&keys).steps;
            assert_eq!(steps.radix, n >= 64, "{n}: {steps:?}");
        }
    }
}

/// As many colliding keys as stay below the bound, so that the table has to cope.
#[test]
fn the_worst_keys_that_the_table_takes_are_grouped() {
    let inverse = inverse();
    for n in [256_u64, 4096] {
        let colliding = (n.isqrt() * 2).min(n);
        let keys: Vec<u64> = numbers(5)
            .take(n as usize)
            .enumerate()
            .map(|(i, random)| match i as u64 {
                i if i < colliding => i.wrapping_mul(inverse),
                _ => random,
            })
            .collect();
        let steps = run(&keys).steps;
        assert!(!steps.radix && steps.probes as u64 > n, "{steps:?}");
    }
}

/// Lookups of few groups, past each other's slots.
#[test]
fn few_keys_that_share_a_slot_are_grouped() {
    let inverse = inverse();
    let keys: Vec<u64> = numbers(8)
        .take(1000)
        .map(|n| (n % 6).wrapping_mul(inverse))
        .collect();
    let steps = run(&keys).steps;
    assert!(!steps.radix && steps.probes > keys.len(), "{steps:?}");
}

#[test]
fn the_radix_sort_looks_at_every_bit() {
    for bit in 0..u64::BITS {
        let keys: Vec<u64> = numbers(9)
            .take(99)
            .map(|n| (n & 1) << bit | 1 << 20)
            .collect();
        let mut spare = vec![Keyed::default(); keys.len()];
        let mut words = vec![7; words(keys.len())];
        let mut steps = Steps::default();
        let mut items = keyed(&keys);
        check(
            &keys,
            by_radix(&mut items, &mut spare, &mut words, &mut steps),
        );
        assert!(steps.passes <= 3);
    }
}

/// Keys as they come from devices and from structured traffic.
#[test]
fn keys_that_nobody_chose_are_left_to_the_table() {
    let n = 4096_u64;
    let mut families: Vec<Vec<u64>> = Vec::new();
    for shift in 0..=52 {
        families.push((0..n).map(|i| i << shift).collect());
        families.push((0..n).map(|i| (3 << 32 | i) ^ (i << shift)).collect());
    }
    families.push((0..n).map(u64::reverse_bits).collect());
    families.push((0..n).map(u64::swap_bytes).collect());
    families.push((0..n).map(|i| i << 32 | i).collect());
    families.push(
        numbers(6)
            .map(|n| n & 0xffff_ffff | 1 << 32)
            .take(4096)
            .collect(),
    );
    for keys in families {
        let steps = run(&keys).steps;
        assert!(
            !steps.radix && steps.probes < 2 * keys.len(),
            "{:x?}: {steps:?}",
            &keys[..4]
        );
    }
}

/// Positions and counts are kept in 16 bits.
#[test]
fn the_largest_number_of_items_is_grouped() {
    let random = || numbers(7).take(ITEMS_MAX);
    run(&random().collect::<Vec<_>>());
    run(&random().map(|n| n % 3).collect::<Vec<_>>());
    run(&random().map(|n| n % 60_000).collect::<Vec<_>>());
    // One key has all but one item, in runs and item by item.
    for at in [0, 1, ITEMS_MAX / 2, ITEMS_MAX - 1] {
        let mut keys = vec![9; ITEMS_MAX];
        keys[at] = 8;
        run(&keys);
    }
    let mixed = |i: usize| if i < 200 { i % 2 } else { 0 } as u64;
    run(&(0..ITEMS_MAX).map(mixed).collect::<Vec<_>>());
    // Only the last item is of its key.
    let mut keys: Vec<u64> = (0..ITEMS_MAX as u64).map(|i| i % 50).collect();
    keys[ITEMS_MAX - 1] = 50;
    run(&keys);
    // The radix sort, with one digit that nearly all keys share.
    let inverse = inverse();
    let mut keys: Vec<u64> = (0..ITEMS_MAX as u64)
        .map(|i| (i % 40_000).wrapping_mul(inverse))
        .collect();
    keys[77] = 1;
    assert!(run(&keys).steps.radix);
}

#[test]
fn too_little_storage_is_an_error_and_moves_nothing() {
    let keys = [2, 1, 2, 1];
    let mut items = keyed(&keys);
    let mut many = vec![Keyed::default(); ITEMS_MAX + 1];
    for (spare, len) in [(3, words(4)), (4, words(4) - 1), (0, 0)] {
        let mut spare = vec![Keyed::default(); spare];
        let mut words = vec![0; len];
        let mut scratch = Scratch {
            spare: &mut spare,
            words: &mut words,
        };
        assert!(scratch.capacity() < 4);
        let error = group(&mut items, &mut scratch).unwrap_err();
        assert_eq!(error, ScratchTooSmall { items: 4 });
        assert_eq!(items, keyed(&keys));
    }
    let mut spare = vec![Keyed::default(); ITEMS_MAX + 1];
    let mut words = vec![0; words(ITEMS_MAX + 1)];
    let mut scratch = Scratch {
        spare: &mut spare,
        words: &mut words,
    };
    assert_eq!(scratch.capacity(), ITEMS_MAX);
    assert!(group(&mut many, &mut scratch).is_err());
    assert!(group(&mut many[1..], &mut scratch).is_ok());
}

#[test]
fn capacity_is_exact() {
    let mut spare = vec![Keyed::default(); 3000];
    let mut all = vec![0; 20_000];
    for len in (0..20_000).step_by(37).chain([511, 512, 513]) {
        for spares in [0, 1, 51, 52, 64, 65, 700, 3000] {
            let fits = |n: &usize| *n <= spares && words(*n) <= len;
            let expected = (0..=3000).rev().find(fits).unwrap_or(0);
            let scratch = Scratch {
                spare: &mut spare[..spares],
                words: &mut all[..len],
            };
            assert_eq!(scratch.capacity(), expected, "{len} words, {spares} spare");
        }
    }
}

/// Keys that alternate.
fn turns(n: usize, distinct: usize) -> Vec<u64> {
    let keys: Vec<u64> = numbers(10).take(distinct).collect();
    (0..n).map(|i| keys[i % distinct]).collect()
}

#[test]
fn few_keys_are_grouped_as_such() {
    for (n, distinct, few) in [
        (64, 8, false),
        (255, 8, false),
        (256, 8, true),
        (2047, 8, true),
        (2048, 8, true),
        (2048, 60, true),
        (4096, 60, true),
        (ITEMS_MAX, 60, true),
        (512, 512, false),
        (4096, 4096, false),
    ] {
        let steps = run(&turns(n, distinct)).steps;
        assert_eq!(steps.few, few, "{n} items, {distinct} keys: {steps:?}");
        let random: Vec<u64> = numbers(11)
            .take(n)
            .map(|n| (n % distinct as u64).wrapping_mul(0x9E37_79B9))
            .collect();
        let steps = run(&random).steps;
        assert_eq!(steps.few, few, "{n} items, {distinct} keys: {steps:?}");
    }
}

/// What begins with few keys may go on with many: with one more than there are numbers for, early,
/// late, and with the last item.
#[test]
fn keys_that_only_seemed_few_are_grouped() {
    for (n, numbers_given) in [(300, 63), (2000, 63), (3000, 127), (ITEMS_MAX, 127)] {
        for distinct in [numbers_given - 1, numbers_given, numbers_given + 1, n / 2] {
            for after in [200, n - distinct] {
                let after = after.min(n - distinct);
                let mut keys = turns(after, 4);
                let new = numbers(12).take(distinct - 4);
                keys.extend(new);
                keys.extend(turns(n - keys.len(), 4));
                let steps = run(&keys).steps;
                let few = distinct <= numbers_given;
                assert_eq!(steps.few, few, "{n} items, {distinct} keys: {steps:?}");
            }
        }
    }
}

/// The first key's value stands for unused entries; an empty slot is never taken for it.
#[test]
fn few_keys_that_are_zero_or_all_ones_or_the_first_are_told_apart() {
    for special in [0, 1, u64::MAX, 1 << 63] {
        for n in [256, 4096] {
            let mut keys = turns(n, 7);
            for at in [0, 3, 100, n - 1] {
                keys[at] = special;
            }
            assert!(run(&keys).steps.few);
            keys.rotate_left(1);
            assert!(run(&keys).steps.few);
        }
    }
}

/// Two keys of one slot, as few as that, are found by looking further, up to a bound that no
/// longer makes it worth it.
#[test]
fn few_keys_that_share_a_slot_are_looked_for_further() {
    let inverse = inverse();
    let with = |share: usize| -> Vec<u64> {
        let key = |i: usize| match i {
            // Small products, so the first slot of any table.
            i if i % share == 0 => ((i / share % 2) as u64 + 1).wrapping_mul(inverse),
            i => (i as u64 % 5) << 40 | 7,
        };
        (0..4096).map(key).collect()
    };
    let rare = run(&with(64)).steps;
    assert!(rare.few && rare.probes > 0, "{rare:?}");
    let often = run(&with(2)).steps;
    assert!(!often.few && !often.radix, "{often:?}");
}

/// Mixed for the look at runs, few for the sample, and yet grouped.
#[test]
fn few_keys_that_are_grouped_already_are_not_moved() {
    // The sample sees half of the keys, each of which has a slot of its own in the table.
    let inverse = inverse();
    let key = |i: u64| ((i / 2) << 54 | (i % 2) << 52).wrapping_mul(inverse);
    let keys: Vec<u64> = (0..125).chain([125; 2000]).map(key).collect();
    let outcome = run(&keys);
    assert!(outcome.in_place && outcome.steps.few, "{:?}", outcome.steps);
    let last_again: Vec<u64> = keys.iter().copied().chain([key(124)]).collect();
    let outcome = run(&last_again);
    assert!(
        !outcome.in_place && outcome.steps.few,
        "{:?}",
        outcome.steps
    );
}

#[test]
fn words_suffice_as_words_says() {
    for n in (0..2100).chain([4095, 4096, 4097, 65_535, ITEMS_MAX]) {
        let least = words(n);
        for len in [0, 511, 512, least - 1, least, least + 1, 2 * least] {
            assert_eq!(
                words_suffice(len, n),
                len >= least,
                "{len} words, {n} items"
            );
        }
    }
}
