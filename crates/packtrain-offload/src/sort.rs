//! Grouping by key with arrival order kept: what brings the packets of one flow together before
//! they are coalesced.
//!
//! The aim is FreeBSD's `tcp_lro_sort()`: with the packets of a flow side by side, a handful of
//! table entries serve any number of flows. Coalescing needs *groups*, not order, and this module
//! uses that freedom. [`group`] finds the groups with a hash table, then moves every item once:
//! groups come in the order of their first item, items within a group in arrival order, and
//! arrivals that are grouped already are only read.
//!
//! # Bounds
//!
//! For n items, whatever their keys:
//!
//! - at most [`PASSES_MAX`] passes over the items, each linear in n;
//! - at most `4 * n + 128` probes that hit another key's slot. Beyond that the keys have been
//!   chosen against the hash function, and a radix sort of at most eight digits takes over;
//! - no recursion, and no storage but the caller's: the stack needed does not depend on n.
//!
//! So no choice of keys costs more than a constant factor; there is no seed to keep secret.

use core::fmt;

#[cfg(test)]
mod tests;

/// Items in one call at most: positions are kept in 32 bits, one value means "none".
pub const ITEMS_MAX: usize = 1 << 30;

/// Passes over the items that [`group`] makes at most: one that looks for runs, one that notes
/// them, one that tallies, one that moves, one that copies back; and if the radix sort has to take
/// over, one to see which digits differ, two for each of eight digits, and a copy.
pub const PASSES_MAX: u32 = 3 + 1 + 2 * DIGITS + 1;

/// A key, and what it belongs to.
///
/// Keys that are equal belong together. `index` is the caller's: a position in an array of
/// packets, usually. It is moved with its key and never looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Keyed {
    /// What is grouped by: a flow hash with its type, usually. Any value is allowed.
    pub key: u64,
    /// The caller's, as given.
    pub index: u64,
}

/// Storage for [`group`], the caller's. Its contents do not matter, before or after.
#[derive(Debug)]
pub struct Scratch<'a> {
    /// As many as there are items, at least.
    pub spare: &'a mut [Keyed],
    /// [`words`] of the number of items, at least.
    pub words: &'a mut [u32],
}

impl Scratch<'_> {
    /// Items that one call of [`group`] can take with this storage.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        let mut n = self.spare.len();
        // `words` is at least four times its argument.
        if n > self.words.len() / 4 {
            n = self.words.len() / 4;
        }
        while n > 0 && (n > ITEMS_MAX || words(n) > self.words.len()) {
            n -= 1;
        }
        n
    }
}

/// The length of [`Scratch::words`] that `items` items need: between 6 and 10 words an item, and
/// at least 512.
#[must_use]
pub const fn words(items: usize) -> usize {
    let all = table_len(items).saturating_add(items.saturating_mul(2));
    if all < WORDS_MIN { WORDS_MIN } else { all }
}

/// [`group`] was given too little storage, or more than [`ITEMS_MAX`] items. Nothing was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScratchTooSmall {
    /// How many items there are.
    pub items: usize,
}

impl fmt::Display for ScratchTooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "too little storage to group {n} items: {n} spare items and {} words are needed, for \
             at most {ITEMS_MAX} items",
            words(self.items),
            n = self.items,
        )
    }
}

impl core::error::Error for ScratchTooSmall {}

/// Brings items with equal keys together, in arrival order.
///
/// Afterwards the items of each key are contiguous and in the order in which they were given
/// (stable). The order of the groups among themselves is not promised; it depends on the keys
/// alone. `items.chunk_by(|a, b| a.key == b.key)` walks over the groups.
///
/// See the [module](self) for the bounds.
///
/// ```
/// use packtrain_offload::sort::{Keyed, Scratch, group, words};
///
/// const N: usize = 64;
/// let mut spare = [Keyed::default(); N];
/// let mut words = [0; words(N)];
/// let mut items = [7, 3, 7, 7, 3, 9].map(|key| Keyed { key, index: 0 });
/// for (index, item) in items.iter_mut().enumerate() {
///     item.index = index as u64;
/// }
/// group(&mut items, &mut Scratch { spare: &mut spare, words: &mut words })?;
/// let mut groups: Vec<Vec<u64>> = items
///     .chunk_by(|a, b| a.key == b.key)
///     .map(|group| group.iter().map(|item| item.index).collect())
///     .collect();
/// groups.sort();
/// assert_eq!(groups, [vec![0, 2, 3], vec![1, 4], vec![5]]);
/// # Ok::<(), packtrain_offload::sort::ScratchTooSmall>(())
/// ```
pub fn group(items: &mut [Keyed], scratch: &mut Scratch<'_>) -> Result<(), ScratchTooSmall> {
    group_counted(items, scratch, &mut Steps::default())
}

/// Radix digits of a key.
const DIGITS: u32 = 8;
/// Values of a digit.
const RADIX: usize = 1 << (u64::BITS / DIGITS);
/// The fewest words: the radix sort's counters, and a table that is never too small for its items.
const WORDS_MIN: usize = 2 * RADIX;
/// Runs this long on average are moved as runs.
const RUN: usize = 4;
/// A slot that is not taken: more than any position.
const EMPTY: u32 = u32::MAX;

/// Slots of a table for `units` units: at least four for each, so that few of them collide.
const fn table_len(units: usize) -> usize {
    match units.checked_next_power_of_two() {
        Some(n) => n.saturating_mul(4),
        None => usize::MAX,
    }
}

/// What was done, for tests: work that does not depend on the machine.
#[derive(Clone, Copy, Debug, Default)]
struct Steps {
    /// Passes over all the items (or over one unit for each run of them).
    passes: u32,
    /// Slots that were found to belong to another key.
    probes: u64,
    /// The radix sort took over.
    radix: bool,
}

fn group_counted(
    items: &mut [Keyed],
    scratch: &mut Scratch<'_>,
    steps: &mut Steps,
) -> Result<(), ScratchTooSmall> {
    let n = items.len();
    let too_small = ScratchTooSmall { items: n };
    let spare = scratch.spare.get_mut(..n).ok_or(too_small)?;
    let words = scratch.words.get_mut(..words(n)).ok_or(too_small)?;
    if n > ITEMS_MAX {
        return Err(too_small);
    }
    steps.passes += 1;
    let changes = changes(items, n / RUN);
    if changes == 0 {
        return Ok(());
    }
    let done = if changes > n / RUN {
        let work = Work::split::<false>(words, n);
        by_table::<false>(items, spare, work, n, steps)
    } else {
        steps.passes += 1;
        let units = changes + 1;
        let work = Work::split::<true>(words, units);
        note_runs(items, work.starts);
        by_table::<true>(items, spare, work, units, steps)
    };
    if !done {
        steps.radix = true;
        by_radix(items, spare, words, steps);
    }
    Ok(())
}

/// How often the key changes from one item to the next; if that is more than `limit`, any number
/// that is more than `limit`.
fn changes(items: &[Keyed], limit: usize) -> usize {
    /// Long enough to be worth vector instructions, short enough to stop early.
    const BLOCK: usize = 32;
    let mut changes = 0;
    let mut before = match items.first() {
        Some(first) => first.key,
        None => return 0,
    };
    let mut blocks = items.chunks_exact(BLOCK);
    for block in &mut blocks {
        // Most blocks of mixed traffic and all blocks of one flow are decided by this.
        let mut differs = 0;
        for item in block {
            differs |= item.key ^ before;
        }
        if differs != 0 {
            changes += usize::from(block[0].key != before);
            for pair in block.windows(2) {
                changes += usize::from(pair[0].key != pair[1].key);
            }
            if changes > limit {
                return changes;
            }
            before = block[BLOCK - 1].key;
        }
    }
    for item in blocks.remainder() {
        changes += usize::from(item.key != before);
        before = item.key;
    }
    changes
}

/// Writes where each run of equal keys starts. `starts` has one place more than there are runs,
/// for the end.
fn note_runs(items: &[Keyed], starts: &mut [u32]) {
    let mut run = 0;
    let mut before = !items[0].key;
    for (at, item) in items.iter().enumerate() {
        // Written again until it is right, so that there is no branch to guess.
        starts[run] = at as u32;
        run += usize::from(item.key != before);
        before = item.key;
    }
    starts[run] = items.len() as u32;
}

/// The caller's words, split.
///
/// A *unit* is an item, or a run of items with one key. A unit that is the first of its key leads
/// the group.
struct Work<'a> {
    /// By hash: the unit that leads the group.
    table: &'a mut [u32],
    /// By unit: the unit that leads its group.
    leader: &'a mut [u32],
    /// By unit: if it leads, the number of items in the group; then where the next of them goes.
    place: &'a mut [u32],
    /// By unit and one more: where its items start. Empty if units are items.
    starts: &'a mut [u32],
}

impl<'a> Work<'a> {
    /// `RUNS` makes room for the starts of runs. There are at most a quarter as many runs as
    /// items then, so that `words` is long enough.
    fn split<const RUNS: bool>(words: &'a mut [u32], units: usize) -> Self {
        let (table, rest) = words.split_at_mut(table_len(units));
        let (leader, rest) = rest.split_at_mut(units);
        let (place, rest) = rest.split_at_mut(units);
        let starts = if RUNS { &mut rest[..=units] } else { &mut [] };
        table.fill(EMPTY);
        Self {
            table,
            leader,
            place,
            starts,
        }
    }
}

/// Groups with a hash table; false, with nothing moved, if too many keys share a slot.
fn by_table<const RUNS: bool>(
    items: &mut [Keyed],
    spare: &mut [Keyed],
    work: Work<'_>,
    units: usize,
    steps: &mut Steps,
) -> bool {
    let Work {
        table,
        leader,
        place,
        starts,
    } = work;
    let at = |unit: usize| {
        if RUNS { starts[unit] as usize } else { unit }
    };
    steps.passes += 1;
    let mask = table.len() - 1;
    let shift = u64::BITS - table.len().trailing_zeros();
    let budget = 4 * items.len() as u64 + 128;
    let mut probes = 0;
    let mut scattered = false;
    let mut before = 0;
    for unit in 0..units {
        let start = at(unit);
        let key = items[start].key;
        let mut slot = hash(key, shift);
        let lead = loop {
            // A free slot holds more than any unit, so this takes it; and a key equals itself.
            let lead = table[slot & mask].min(unit as u32);
            if items[at(lead as usize)].key == key {
                table[slot & mask] = lead;
                break lead;
            }
            probes += 1;
            if probes > budget {
                steps.probes += probes;
                return false;
            }
            slot += 1;
        };
        leader[unit] = lead;
        place[unit] = 0;
        place[lead as usize] += (if RUNS { at(unit + 1) - start } else { 1 }) as u32;
        // A unit may lead, or follow one of its own; else its group is torn.
        scattered |= (lead != unit as u32) & (lead != before);
        before = lead;
    }
    steps.probes += probes;
    if !scattered {
        return true;
    }
    let mut next = 0;
    for place in place.iter_mut() {
        next += core::mem::replace(place, next);
    }
    steps.passes += 1;
    for (unit, &lead) in leader.iter().enumerate() {
        let start = at(unit);
        let place = &mut place[lead as usize];
        let to = *place as usize;
        if RUNS {
            let run = &items[start..at(unit + 1)];
            spare[to..to + run.len()].copy_from_slice(run);
            *place += run.len() as u32;
        } else {
            spare[to] = items[start];
            *place += 1;
        }
    }
    steps.passes += 1;
    items.copy_from_slice(spare);
    true
}

/// The top bits of a product mix all the bits below them, so the upper half of the key, which
/// would stay in the top, is folded down first. The multiplier is 2^64 divided by the golden
/// ratio (Knuth, volume 3, 6.4).
#[inline]
fn hash(key: u64, shift: u32) -> usize {
    ((key ^ (key >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> shift) as usize
}

/// Sorts by key, least significant digit first: stable, and as long for any keys.
fn by_radix(items: &mut [Keyed], spare: &mut [Keyed], words: &mut [u32], steps: &mut Steps) {
    let counts = &mut words[..RADIX];
    steps.passes += 1;
    let first = items[0].key;
    let differing = items.iter().fold(0, |bits, item| bits | (item.key ^ first));
    let (mut from, mut to) = (items, spare);
    let mut swapped = false;
    for digit in 0..DIGITS {
        let shift = digit * (u64::BITS / DIGITS);
        if (differing >> shift) as u8 == 0 {
            continue;
        }
        steps.passes += 2;
        counts.fill(0);
        for item in from.iter() {
            counts[usize::from((item.key >> shift) as u8)] += 1;
        }
        let mut next = 0;
        for count in counts.iter_mut() {
            next += core::mem::replace(count, next);
        }
        for item in from.iter() {
            let place = &mut counts[usize::from((item.key >> shift) as u8)];
            to[*place as usize] = *item;
            *place += 1;
        }
        core::mem::swap(&mut from, &mut to);
        swapped = !swapped;
    }
    if swapped {
        steps.passes += 1;
        to.copy_from_slice(from);
    }
}
