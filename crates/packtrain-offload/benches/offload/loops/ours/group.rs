//! Grouping by flow.

use crate::loops::contest::Side;
use crate::loops::keys::{Grouper, Grouping};
use packtrain_measure::keys::is_grouped;
use packtrain_offload::sort::{self, Keyed, Scratch};
use std::hint::black_box;

/// With storage that is used again and again, as a coalescer would.
struct Ours {
    spare: Vec<Keyed>,
    words: Vec<u32>,
}

impl Ours {
    fn group(&mut self, items: &mut [Keyed], look: impl FnOnce(&[Keyed])) -> bool {
        let mut scratch = Scratch {
            spare: &mut self.spare,
            words: &mut self.words,
        };
        sort::group(items, &mut scratch).map(look).is_ok()
    }
}

impl Grouper for Ours {
    type Item = Keyed;

    fn item(key: u64, index: u64) -> Keyed {
        Keyed { key, index }
    }

    fn check(&mut self, items: &mut [Keyed]) -> bool {
        let mut right = false;
        let grouped = Self::group(self, items, |items| {
            right = is_grouped(items, |item| (item.key, item.index), true);
        });
        grouped && right
    }

    fn group(&mut self, items: &mut [Keyed]) {
        Self::group(self, items, |items| {
            black_box(items);
        });
    }
}

pub fn group(n: usize, distinct: usize) -> Result<Box<dyn Side>, String> {
    let ours = Ours {
        spare: vec![Keyed::default(); n],
        words: vec![0; sort::words(n)],
    };
    Ok(Box::new(Grouping::new(ours, n, distinct)?))
}
