use super::*;
use std::vec;
use std::vec::Vec;

fn run(keys: &[u64]) -> Steps {
    let mut items: Vec<Keyed> = keys
        .iter()
        .enumerate()
        .map(|(i, &key)| Keyed {
            key,
            index: i as u64,
        })
        .collect();
    let mut spare = vec![Keyed::default(); keys.len()];
    let mut words = vec![0; words(keys.len())];
    let mut steps = Steps::default();
    let mut scratch = Scratch {
        spare: &mut spare,
        words: &mut words,
    };
    let items = group_counted(&mut items, &mut scratch, &mut steps).unwrap();
    let mut seen = std::collections::HashSet::new();
    for group in items.chunk_by(|a, b| a.key == b.key) {
        assert!(seen.insert(group[0].key));
        assert!(group.is_sorted_by(|a, b| a.index < b.index));
        assert!(
            group
                .iter()
                .all(|item| keys[item.index as usize] == item.key)
        );
    }
    assert_eq!(items.len(), keys.len());
    steps
}

#[test]
fn small() {
    for n in 0..100u64 {
        for d in 1..=n {
            run(&(0..n).map(|i| i * 7919 % d).collect::<Vec<_>>());
            run(&(0..n).map(|i| i / d).collect::<Vec<_>>());
        }
    }
}
