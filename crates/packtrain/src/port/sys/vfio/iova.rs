//! The addresses by which a function accesses memory.

use std::ops::RangeInclusive;

/// The alignment of a mapping's address: the size of a huge page. If the kernel has the memory in
/// huge pages, the IOMMU can map it by them. Address 0 stays free: a descriptor that was never
/// written has it.
const ALIGN: u64 = 2 << 20;

/// The addresses that an IOMMU leaves to a program, given out in order, none twice.
#[derive(Debug)]
pub(super) struct Addresses {
    ranges: Box<[RangeInclusive<u64>]>,
    next: u64,
}

impl Addresses {
    /// `ranges` have no address in common with what is reserved, such as that of MSI messages.
    pub(super) fn new(mut ranges: Vec<RangeInclusive<u64>>) -> Self {
        ranges.sort_by_key(|range| *range.start());
        Self {
            ranges: ranges.into(),
            next: ALIGN,
        }
    }

    /// The first of `bytes` addresses in a row; `None` if there are none.
    pub(super) fn take(&mut self, bytes: usize) -> Option<u64> {
        let bytes = u64::try_from(bytes).ok()?;
        let last_of = |range: &RangeInclusive<u64>| {
            let start = self.next.max(*range.start());
            let start = start.checked_next_multiple_of(ALIGN)?;
            let last = start.checked_add(bytes.checked_sub(1)?)?;
            (last <= *range.end()).then_some((start, last))
        };
        let (start, last) = self.ranges.iter().find_map(last_of)?;
        self.next = last.saturating_add(1);
        Some(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_in_order_aligned_and_never_twice() {
        let mut addresses = Addresses::new(vec![0..=u64::MAX]);
        let mut free = 0;
        for bytes in [1, 4096, ALIGN as usize, ALIGN as usize + 1, 1] {
            let start = addresses.take(bytes).expect("much is free");
            assert!(start.is_multiple_of(ALIGN) && start >= free && start > 0);
            free = start + bytes as u64;
        }
        assert_eq!(free, 6 * ALIGN + 1);
        assert_eq!(addresses.take(0), None);
    }

    #[test]
    fn what_is_reserved_is_left_out() {
        // Of an Intel machine: below and above the messages of MSI, up to 39 bits.
        let ranges = vec![0xfef0_0000..=(1 << 39) - 1, 0..=0xfedf_ffff];
        let mut addresses = Addresses::new(ranges);
        let below = 0xfee0_0000_usize - 2 * ALIGN as usize;
        assert_eq!(addresses.take(below), Some(ALIGN));
        // One more would fit up to the reserved ones; its last byte would not.
        assert_eq!(addresses.take(ALIGN as usize + 1), Some(0xff00_0000));
        assert_eq!(addresses.take(1 << 39), None);
        // What did not fit has taken none.
        assert_eq!(addresses.take(1), Some(0xff40_0000));
    }

    #[test]
    fn the_last_address_ends_them() {
        let last = u64::MAX - ALIGN + 1;
        let mut addresses = Addresses::new(vec![last..=u64::MAX]);
        assert_eq!(addresses.take(ALIGN as usize), Some(last));
        assert_eq!(addresses.take(1), None);
        assert_eq!(Addresses::new(Vec::new()).take(1), None);
    }
}
