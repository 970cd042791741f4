//! Which of the numbered packets have arrived.

/// Words of the window: it covers 2^20 packets, more than all queues of a testbed hold.
const WORDS: usize = 1 << 14;

/// The packets of one flow, numbered from 0 without gaps by their sender.
#[derive(Debug)]
pub(super) struct Sequences {
    /// One bit for each of the last numbers, at the number modulo the size.
    seen: Box<[u64]>,
    /// One more than the highest number that has arrived.
    next: u64,
    /// Packets that arrived for the first time.
    pub unique: u64,
    /// Packets that arrived again, or are older than the window.
    pub duplicates: u64,
    /// Packets that arrived for the first time, after one with a higher number (RFC 4737,
    /// section 3).
    pub reordered: u64,
}

impl Default for Sequences {
    fn default() -> Self {
        Self {
            seen: vec![0; WORDS].into_boxed_slice(),
            next: 0,
            unique: 0,
            duplicates: 0,
            reordered: 0,
        }
    }
}

impl Sequences {
    /// Counts the packet with this number. Returns whether it is the first with it.
    pub(super) fn add(&mut self, number: u64) -> bool {
        let word = number / 64;
        let newest = self.next.saturating_sub(1) / 64;
        if number >= self.next {
            // Words that the window enters; the first word is empty from the start.
            let fresh = (word - newest).min(WORDS as u64);
            for word in word + 1 - fresh..=word {
                self.seen[word as usize % WORDS] = 0;
            }
            self.next = number + 1;
        } else if newest - word >= WORDS as u64 {
            self.duplicates += 1;
            return false;
        } else {
            self.reordered += 1;
        }
        let bits = &mut self.seen[word as usize % WORDS];
        let bit = 1 << (number % 64);
        if *bits & bit != 0 {
            // It was counted as a late one above.
            self.reordered -= 1;
            self.duplicates += 1;
            return false;
        }
        *bits |= bit;
        self.unique += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(numbers: impl IntoIterator<Item = u64>) -> (u64, u64, u64) {
        let mut sequences = Sequences::default();
        for number in numbers {
            sequences.add(number);
        }
        (sequences.unique, sequences.duplicates, sequences.reordered)
    }

    #[test]
    fn every_number_is_counted_once() {
        let window = WORDS as u64 * 64;
        assert_eq!(counts(0..3 * window), (3 * window, 0, 0));
        assert_eq!(counts([0, 1, 1, 2, 0]), (3, 2, 0));
        assert_eq!(counts([3, 0, 1, 2, 4]), (5, 0, 3));
        assert_eq!(counts([1, 0, 0, 1]), (2, 2, 1));
        // A gap clears what the window leaves.
        assert_eq!(counts([5, window + 5, window + 4, window + 4]), (3, 1, 1));
        assert_eq!(counts([63, 64, 63, 128, 64, 127]), (4, 2, 1));
        // Too old to tell.
        assert_eq!(counts([0, 10 * window, 0]), (2, 1, 0));
        assert_eq!(
            counts([9 * window, 10 * window, 9 * window + 64]),
            (3, 0, 1)
        );
    }

    #[test]
    fn random_orders_are_exact() {
        // A permutation of the numbers, in blocks, by a multiplier that is coprime to each.
        let blocks =
            (0..50u64).flat_map(|block| (0..1000).map(move |i| block * 1000 + i * 7 % 1000));
        let numbers: Vec<u64> = blocks.collect();
        let (mut highest, mut late) = (None, 0);
        for number in &numbers {
            late += u64::from(highest.is_some_and(|highest| *number < highest));
            highest = highest.max(Some(*number));
        }
        assert_eq!(counts(numbers.clone()), (50_000, 0, late));
        let twice = numbers.iter().flat_map(|number| [*number, *number]);
        assert_eq!(counts(twice), (50_000, 50_000, late));
    }
}
