//! Grouping by few keys, if most items repeat an earlier key.
//!
//! Then a branch on a repeated key is well predicted, and the data about the keys fits into arrays
//! of fixed size, whose indices need no checks.

use super::tally::{
    COUNT_SHIFT, EMPTY, Keyed, LEADER_MASK, ONE, Steps, Tabled, hash, is_torn, lay_out,
};

/// The fewest items for this path: with fewer, the first item of each key weighs too much.
pub(super) const ITEMS_MIN: usize = 256;
/// Numbers of keys, and slots of the table, for that many items.
const NUMBERS: usize = 64;
const SLOTS: usize = 1024;
/// The sample from which the number of keys is estimated, and the number of keys in it that counts
/// as few.
const SAMPLE: usize = 16;
const SAMPLE_KEYS_MAX: u32 = 10;
/// The fewest items for which more keys are few; all else for that many.
pub(super) const MANY_ITEMS_MIN: usize = 2048;
const NUMBERS_OF_MANY: usize = 128;
const SLOTS_OF_MANY: usize = 4096;
const SAMPLE_OF_MANY: usize = 128;
const SAMPLE_KEYS_MAX_OF_MANY: u32 = 70;

/// The words that the fewest items need: for the table, the numbers, and a tally for each item.
pub(super) const WORDS: usize = SLOTS + NUMBERS + ITEMS_MIN;
/// The same for the fewest that are many.
pub(super) const WORDS_OF_MANY: usize = SLOTS_OF_MANY + NUMBERS_OF_MANY + MANY_ITEMS_MIN;

/// Groups `items` like [`group`](super::group) if they have few keys.
pub(super) fn group(
    items: &[Keyed],
    spare: &mut [Keyed],
    words: &mut [u32],
    steps: &mut Steps,
) -> Tabled {
    let tabled = if items.len() < ITEMS_MIN {
        return Tabled::Refused;
    } else if items.len() < MANY_ITEMS_MIN {
        if keys_seen::<1>(&items[..SAMPLE]) > SAMPLE_KEYS_MAX {
            return Tabled::Refused;
        }
        group_by::<SLOTS, NUMBERS>(items, spare, words, &mut steps.probes)
    } else {
        if keys_seen::<16>(&items[..SAMPLE_OF_MANY]) > SAMPLE_KEYS_MAX_OF_MANY {
            return Tabled::Refused;
        }
        group_by::<SLOTS_OF_MANY, NUMBERS_OF_MANY>(items, spare, words, &mut steps.probes)
    };
    steps.passes += 1;
    if tabled != Tabled::Refused {
        steps.few = true;
        steps.passes += 2;
    }
    tabled
}

/// About how many keys there are in a sample, not above the number of bits.
#[inline(always)]
fn keys_seen<const U64S: usize>(sample: &[Keyed]) -> u32 {
    const { assert!(U64S.is_power_of_two()) };
    let mut seen = [0_u64; U64S];
    for item in sample {
        let bit = hash(item.key, u64::BITS - 6 - U64S.trailing_zeros());
        seen[bit / 64 % U64S] |= 1 << (bit % 64);
    }
    seen.iter().map(|bits| bits.count_ones()).sum()
}

/// The table of keys.
struct Keys<'a, const NUMBERS: usize> {
    /// By number. Unused entries contain the key of the first item: that key is in the first slot
    /// of its probe sequence, so an empty slot is never taken for it.
    keys: &'a mut [u64; NUMBERS],
    /// By number: its slot in the table.
    slots: &'a mut [u32; NUMBERS],
    /// Numbers assigned.
    given: usize,
    /// Probes left that may hit a slot of another key.
    probes_left: usize,
}

#[inline(never)]
fn group_by<const SLOTS: usize, const NUMBERS: usize>(
    items: &[Keyed],
    spare: &mut [Keyed],
    words: &mut [u32],
    probes: &mut usize,
) -> Tabled {
    let Some((table, words)) = words.split_first_chunk_mut::<SLOTS>() else {
        return Tabled::Refused;
    };
    let Some((slots, words)) = words.split_first_chunk_mut::<NUMBERS>() else {
        return Tabled::Refused;
    };
    let (Some(first), Some(tallies)) = (items.first(), words.get_mut(..items.len())) else {
        return Tabled::Refused;
    };
    let budget = items.len() / 8;
    // The one thing of any size on the stack.
    let mut known = [first.key; NUMBERS];
    let mut keys = Keys {
        keys: &mut known,
        slots,
        given: 1,
        probes_left: budget,
    };
    table.fill(EMPTY);
    let slot = slot::<SLOTS>(first.key);
    keys.slots[0] = slot as u32;
    table[slot] = 0;
    let tallied = tally(items, table, tallies, &mut keys);
    *probes += budget - keys.probes_left;
    if tallied.is_none() {
        return Tabled::Refused;
    }
    if !is_torn(tallies) {
        return Tabled::Already;
    }
    let places = keys.slots;
    for slot in &mut places[..keys.given] {
        *slot = table[*slot as usize % SLOTS] >> COUNT_SHIFT;
    }
    lay_out(&mut places[..keys.given]);
    for (item, &tally) in items.iter().zip(&*tallies) {
        let to = places[number::<NUMBERS>(tally)].wrapping_add(tally >> COUNT_SHIFT);
        spare[to as usize] = *item;
    }
    Tabled::Moved
}

/// Finds the number of every item's key, and the number of items of that key before it. `None` if
/// there are too many keys or too many share a slot.
fn tally<const SLOTS: usize, const NUMBERS: usize>(
    items: &[Keyed],
    table: &mut [u32; SLOTS],
    tallies: &mut [u32],
    keys: &mut Keys<'_, NUMBERS>,
) -> Option<()> {
    for (item, tally) in items.iter().zip(tallies) {
        let slot = slot::<SLOTS>(item.key);
        let before = table[slot];
        if keys.keys[number::<NUMBERS>(before)] == item.key {
            table[slot] = before.wrapping_add(ONE);
            *tally = before;
        } else {
            *tally = keys.probe(item.key, slot, table)?;
        }
    }
    Some(())
}

#[inline(always)]
const fn slot<const SLOTS: usize>(key: u64) -> usize {
    const { assert!(SLOTS.is_power_of_two()) };
    hash(key, u64::BITS - SLOTS.trailing_zeros()) % SLOTS
}

#[inline(always)]
const fn number<const NUMBERS: usize>(tally: u32) -> usize {
    const { assert!(NUMBERS.is_power_of_two() && NUMBERS <= LEADER_MASK as usize) };
    tally as usize % NUMBERS
}

impl<const NUMBERS: usize> Keys<'_, NUMBERS> {
    /// Tallies an item whose first slot is empty or belongs to another key.
    #[cold]
    #[inline(never)]
    fn probe<const SLOTS: usize>(
        &mut self,
        key: u64,
        mut slot: usize,
        table: &mut [u32; SLOTS],
    ) -> Option<u32> {
        loop {
            let entry = &mut table[slot % SLOTS];
            if *entry == EMPTY {
                if self.given == NUMBERS - 1 {
                    return None;
                }
                *entry = self.given as u32;
                self.keys[self.given] = key;
                self.slots[self.given] = (slot % SLOTS) as u32;
                self.given += 1;
            }
            let before = *entry;
            if self.keys[number::<NUMBERS>(before)] == key {
                *entry = before.wrapping_add(ONE);
                return Some(before);
            }
            self.probes_left = self.probes_left.checked_sub(1)?;
            slot += 1;
        }
    }
}
