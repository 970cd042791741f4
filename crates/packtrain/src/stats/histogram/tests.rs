use super::*;
use proptest::prelude::*;
use std::thread;

/// Sizes as they occur (small ones above all), and any others up to 32 bits.
fn sizes() -> impl Strategy<Value = Vec<u64>> {
    let size = prop_oneof![
        3 => 0..70u64,
        2 => 0..5000u64,
        1 => 0..=VALUE_MAX,
        1 => (0..32u32, 0..3u64).prop_map(|(bit, more)| (1 << bit) + more - 1),
    ];
    prop::collection::vec(size, 1..300)
}

fn recorded(values: &[u64]) -> HistogramSnapshot {
    let histogram = Histogram::default();
    values.iter().for_each(|&value| histogram.record(value));
    histogram.snapshot()
}

#[test]
fn buckets_cover_all_values_without_gap_or_overlap() {
    assert_eq!((low(0), high(BUCKETS - 1)), (0, u64::MAX));
    for bucket in 0..BUCKETS {
        assert_eq!(index(low(bucket)), bucket);
        assert_eq!(index(high(bucket)), bucket);
        if bucket > 0 {
            assert_eq!(high(bucket - 1) + 1, low(bucket));
        }
        if bucket + 1 < BUCKETS {
            // The stated bound: 1/16 of any value in it.
            assert!((high(bucket) - low(bucket)) * SUB as u64 <= low(bucket));
        }
    }
    for exact in 0..32 {
        assert_eq!((low(exact), high(exact)), (exact as u64, exact as u64));
    }
}

proptest! {
    #[test]
    fn quantiles_are_those_of_the_sorted_values(
        mut values in sizes(), mut ps in prop::collection::vec(0.0..=1.0, 1..9)
    ) {
        let snapshot = recorded(&values);
        values.sort_unstable();
        let n = values.len();
        prop_assert_eq!(snapshot.count(), n as u64);
        prop_assert_eq!(snapshot.sum(), values.iter().sum::<u64>());
        prop_assert_eq!(snapshot.max(), values[n - 1]);
        ps.extend([0.0, 0.5, 0.99, 1.0]);
        for p in ps {
            let rank = ((p * n as f64).ceil() as usize).clamp(1, n);
            let (exact, found) = (values[rank - 1], snapshot.quantile(p));
            prop_assert!(found >= exact, "{} of {} is {}, not {}", p, n, exact, found);
            prop_assert!((found - exact) * 16 <= exact, "{exact} became {found}");
            if exact < 32 {
                prop_assert_eq!(found, exact);
            }
        }
    }

    #[test]
    fn buckets_have_every_value(values in sizes()) {
        let snapshot = recorded(&values);
        let buckets: Vec<_> = snapshot.buckets().collect();
        prop_assert!(buckets.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for (i, &(least, count)) in buckets.iter().enumerate() {
            let next = buckets.get(i + 1).map_or(u64::MAX, |next| next.0);
            let there = values.iter().filter(|&&value| least <= value && value < next);
            prop_assert_eq!(there.count() as u64, count);
        }
    }

    #[test]
    fn merged_is_as_if_recorded_in_one(a in sizes(), b in sizes()) {
        let mut merged = recorded(&a);
        merged.merge(&recorded(&b));
        prop_assert_eq!(merged, recorded(&[a, b].concat()));
    }
}

#[test]
fn nothing_recorded_is_nothing() {
    let empty = Histogram::default().snapshot();
    assert_eq!(empty, HistogramSnapshot::default());
    assert_eq!((empty.count(), empty.sum(), empty.max()), (0, 0, 0));
    assert_eq!((empty.quantile(0.5), empty.buckets().count()), (0, 0));
}

#[test]
fn values_of_more_bits_share_the_last_bucket_with_their_maximum_exact() {
    let snapshot = recorded(&[1, u64::MAX - 5, VALUE_MAX + 1]);
    assert_eq!(snapshot.max(), u64::MAX - 5);
    assert_eq!(snapshot.buckets().last(), Some((low(BUCKETS - 1), 2)));
    assert_eq!(snapshot.quantile(1.0), u64::MAX - 5);
    assert_eq!(snapshot.quantile(0.1), 1);
}

#[test]
fn copies_taken_meanwhile_are_whole() {
    let histogram = Histogram::default();
    let values = 200_000;
    thread::scope(|scope| {
        scope.spawn(|| (0..values).for_each(|value| histogram.record(value % 100)));
        let mut last = 0;
        while last < values {
            let copy = histogram.snapshot();
            assert!(last <= copy.count() && copy.count() <= values);
            assert!(copy.max() < 100 && copy.quantile(1.0) <= copy.max());
            last = copy.count();
        }
    });
    assert_eq!(histogram.snapshot().sum(), values / 100 * 4950);
}

#[test]
fn several_writers_lose_nothing_also_when_they_end() {
    let shared = SharedHistogram::default();
    shared.own().record(7);
    thread::scope(|scope| {
        for writer in 0..4 {
            let mine = shared.writer();
            scope.spawn(move || (0..1000).for_each(|_| mine.record(writer)));
        }
    });
    let stays = shared.writer();
    stays.record(9);
    let expected = [(0, 1000), (1, 1000), (2, 1000), (3, 1000), (7, 1), (9, 1)];
    for _ in 0..2 {
        let all = shared.snapshot();
        assert_eq!(all.buckets().collect::<Vec<_>>(), expected);
        assert_eq!((all.sum(), all.max()), (6016, 9));
    }
    // Only live writers use memory.
    assert_eq!(shared.others().live.len(), 1);
}
