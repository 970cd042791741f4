//! The stack use of grouping, measured with painted memory.

use packtrain_measure::stack::used_bytes;
use packtrain_offload::sort::{Keyed, Scratch, group, words};

/// The bound that FreeBSD's `tcp_lro_sort()` was made for.
const STACK_BYTES_MAX: usize = 4096;

/// Random, equal, sorted, reversed and adversarial keys, in runs and mixed, up to the most items.
#[test]
fn grouping_needs_at_most_4096_bytes_of_stack() {
    // The inverse of the hash's multiplier: products are small numbers, which share a slot.
    let against_hash = |i: u64| i.wrapping_mul(0xF1DE_83E1_9937_733D);
    let kinds: [(&str, &dyn Fn(u64) -> u64); 7] = [
        ("random", &|i| {
            (i + 1).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 7
        }),
        ("equal", &|_| 7),
        ("sorted", &|i| i),
        ("reversed", &|i| u64::MAX - i),
        ("eight flows", &|i| i.wrapping_mul(0x9E37_79B9) >> 5 & 7),
        ("runs", &|i| i / 9 % 100),
        ("adversarial", &|i| against_hash(i % 40_000)),
    ];
    for n in [13, 64, 4096, 65_536] {
        for (name, key) in &kinds {
            let item = |index| Keyed {
                key: key(index),
                index,
            };
            let mut items: Vec<Keyed> = (0..n).map(item).collect();
            let mut spare = items.clone();
            let mut words = vec![0; words(items.len())];
            let mut scratch = Scratch {
                spare: &mut spare,
                words: &mut words,
            };
            let mut groups = 0;
            let Some(bytes) = used_bytes(&mut || {
                if let Ok(grouped) = group(&mut items, &mut scratch) {
                    groups = grouped.chunk_by(|a, b| a.key == b.key).count();
                }
            }) else {
                println!("SKIP: painting the stack needs x86_64 or aarch64");
                return;
            };
            assert!(groups > 0, "{name}, {n} items: not grouped");
            assert!(
                (1..=STACK_BYTES_MAX).contains(&bytes),
                "{name}, {n} items: {bytes} bytes of stack"
            );
        }
    }
}
