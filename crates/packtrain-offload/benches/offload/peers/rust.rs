//! Crates that sum and sort.

use crate::loops::keys::{Grouper, Grouping};
use crate::loops::pieces::Summing;
use crate::loops::{Place, Side};
use packtrain_measure::keys::is_grouped;
use std::cmp::Ordering;
use voracious_radix_sort::{RadixSort, Radixable};

pub fn checksum(bytes: usize, place: Place) -> Box<dyn Side> {
    Box::new(Summing::new(bytes, place, smoltcp::wire::checksum::data))
}

/// 16 bytes, compared by their key.
#[derive(Clone, Copy, Debug)]
struct Item {
    key: u64,
    index: u64,
}

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl PartialOrd for Item {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.key.partial_cmp(&other.key)
    }
}

impl Radixable<u64> for Item {
    type Key = u64;

    fn key(&self) -> u64 {
        self.key
    }
}

/// A sort as a grouper. None of these promises the order of arrival.
struct Sorter<F>(F);

impl<F: FnMut(&mut [Item])> Grouper for Sorter<F> {
    type Item = Item;

    fn item(key: u64, index: u64) -> Item {
        Item { key, index }
    }

    fn check(&mut self, items: &mut [Item]) -> bool {
        (self.0)(items);
        is_grouped(items, |item| (item.key, item.index), false)
    }

    fn group(&mut self, items: &mut [Item]) {
        (self.0)(items);
    }
}

pub fn grouping(name: &str, n: usize, distinct: usize) -> Result<Box<dyn Side>, String> {
    fn side(
        sort: impl FnMut(&mut [Item]) + 'static,
        n: usize,
        distinct: usize,
    ) -> Result<Box<dyn Side>, String> {
        Ok(Box::new(Grouping::new(Sorter(sort), n, distinct)?))
    }
    match name {
        "sort_unstable" => side(
            |items| items.sort_unstable_by_key(|item| item.key),
            n,
            distinct,
        ),
        "voracious" => side(RadixSort::voracious_sort, n, distinct),
        _ => Err(format!("{name} does not sort")),
    }
}
