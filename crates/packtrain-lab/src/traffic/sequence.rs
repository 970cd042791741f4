//! Which of the numbered packets have arrived.

/// Words of the window: it covers 2^20 packets, more than all queues of a testbed hold.
const WORDS: usize = 1 << 14;

/// What became of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It arrived for the first time, and no packet with a higher number had arrived.
    InOrder,
    /// It arrived for the first time, after one with a higher number (RFC 4737, section 3).
    Reordered,
    /// It had arrived already, or is older than the window.
    Duplicate,
    /// It is no packet that was sent.
    Damaged,
}

impl Arrival {
    /// Whether a packet that was sent arrived for the first time.
    pub(crate) fn is_first(self) -> bool {
        matches!(self, Self::InOrder | Self::Reordered)
    }
}

/// The packets of one flow, numbered from 0 without gaps by their sender: the window of the last
/// numbers, and what became of all.
#[derive(Debug)]
pub(crate) struct Sequences {
    /// One bit for each of the last numbers, at the number modulo the size.
    seen: Box<[u64]>,
    /// One more than the highest number that has arrived.
    next: u64,
    /// Packets that arrived for the first time.
    pub unique: u64,
    /// Of [`Arrival::Duplicate`].
    pub duplicates: u64,
    /// Of [`Arrival::Reordered`]. They are part of `unique`.
    pub reordered: u64,
    /// Of [`Arrival::Damaged`].
    pub damaged: u64,
}

impl Default for Sequences {
    fn default() -> Self {
        Self {
            seen: vec![0; WORDS].into_boxed_slice(),
            next: 0,
            unique: 0,
            duplicates: 0,
            reordered: 0,
            damaged: 0,
        }
    }
}

impl Sequences {
    /// Counts a packet. `number` is `None` if its content is that of no packet. Numbers from `sent`
    /// on cannot have been sent yet.
    pub(crate) fn add(&mut self, number: Option<u64>, sent: u64) -> Arrival {
        let arrival = match number {
            Some(number) if number < sent => self.place(number),
            _ => Arrival::Damaged,
        };
        match arrival {
            Arrival::InOrder => {}
            Arrival::Reordered => self.reordered += 1,
            Arrival::Duplicate => self.duplicates += 1,
            Arrival::Damaged => self.damaged += 1,
        }
        self.unique += u64::from(arrival.is_first());
        arrival
    }

    /// Marks the number of a packet that was sent.
    fn place(&mut self, number: u64) -> Arrival {
        let word = number / 64;
        let newest = self.next.saturating_sub(1) / 64;
        let is_newest = number >= self.next;
        if is_newest {
            // Words that the window enters; the first word is empty from the start.
            let fresh = (word - newest).min(WORDS as u64);
            for word in word + 1 - fresh..=word {
                self.seen[word as usize % WORDS] = 0;
            }
            self.next = number + 1;
        } else if newest - word >= WORDS as u64 {
            return Arrival::Duplicate;
        }
        let bits = &mut self.seen[word as usize % WORDS];
        let bit = 1 << (number % 64);
        if *bits & bit != 0 {
            return Arrival::Duplicate;
        }
        *bits |= bit;
        if is_newest {
            Arrival::InOrder
        } else {
            Arrival::Reordered
        }
    }

    /// How many numbers from `first` on have arrived. `first` must be in the window.
    pub(crate) fn since(&self, first: u64) -> u64 {
        if first >= self.next {
            return 0;
        }
        let (word, newest) = (first / 64, (self.next - 1) / 64);
        let ones = |word: u64| self.seen[word as usize % WORDS].count_ones();
        let below = (1 << (first % 64)) - 1;
        let before = (self.seen[word as usize % WORDS] & below).count_ones();
        (word..=newest)
            .map(|word| u64::from(ones(word)))
            .sum::<u64>()
            - u64::from(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(numbers: impl IntoIterator<Item = u64>) -> (u64, u64, u64) {
        let mut sequences = Sequences::default();
        for number in numbers {
            sequences.add(Some(number), u64::MAX);
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
        // Too old to know.
        assert_eq!(counts([0, 10 * window, 0]), (2, 1, 0));
        assert_eq!(
            counts([9 * window, 10 * window, 9 * window + 64]),
            (3, 0, 1)
        );
    }

    #[test]
    fn what_was_not_sent_is_damaged() {
        let mut sequences = Sequences::default();
        let cases = [
            (Some(4), Arrival::InOrder),
            (Some(3), Arrival::Reordered),
            (Some(4), Arrival::Duplicate),
            (Some(5), Arrival::Damaged),
            (None, Arrival::Damaged),
        ];
        for (number, expected) in cases {
            assert_eq!(sequences.add(number, 5), expected);
        }
        assert_eq!((sequences.unique, sequences.damaged), (2, 2));
    }

    #[test]
    fn arrivals_since_a_number_are_those_of_the_window() {
        let mut sequences = Sequences::default();
        assert_eq!(sequences.since(0), 0);
        let last = 3 * WORDS as u64 * 64 + 17;
        let arrived = |number: &u64| !number.is_multiple_of(3);
        for number in (0..=last).filter(arrived) {
            sequences.add(Some(number), u64::MAX);
        }
        for first in [last - 1_000_000, last - 64, last - 17, last, last + 1] {
            let expected = (first..=last).filter(arrived).count() as u64;
            assert_eq!(sequences.since(first), expected, "{first}");
        }
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
