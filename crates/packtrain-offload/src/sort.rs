//! Stable grouping by key: brings the packets of one flow together before they are coalesced.
//!
//! The aim is that of FreeBSD's `tcp_lro_sort()`: with the packets of a flow side by side, a
//! handful of table entries serve any number of flows. Coalescing needs *groups*, not order, and
//! this module uses that freedom. [`group`] finds the groups with a hash table, then moves every
//! item once: groups are in the order of their first item, items within a group in arrival order.
//! Arrivals that are already grouped are only read, and long runs are moved as runs. If a sample of
//! the first items has few keys, a smaller table is used: it fits into the first-level cache, and a
//! packet of a new flow is rare.
//!
//! # Bounds
//!
//! For n items, whatever their keys:
//!
//! - at most [`PASSES_MAX`] passes over the items, each linear in n;
//! - at most `4 * n + 128` probes hit a slot of another key. Only keys chosen against the hash
//!   function reach this bound; then a radix sort of at most eight digits takes over;
//! - no recursion, and only the caller's storage: the stack needed does not depend on n.
//!
//! So no choice of keys costs more than a constant factor, and there is no seed to keep secret.

use core::fmt;
use core::hint::select_unpredictable;

mod few;
mod one;
mod tally;
#[cfg(test)]
mod tests;

use tally::{COUNT_SHIFT, EMPTY, LEADER_MASK, ONE, Tabled, hash, is_torn, lay_out, leader};
pub use tally::{Keyed, Steps};

/// Most items in one call: positions have 16 bits, so that they stay in cache.
pub const ITEMS_MAX: usize = 1 << 16;

/// Most passes over the items that [`group`] makes.
///
/// One finds runs, one stores them or tallies few keys, one tallies any keys, one checks whether
/// the items are grouped, one lays out the groups, one moves. If the radix sort takes over after
/// the tally: one to find the digits that differ, and two for each of eight digits.
pub const PASSES_MAX: u32 = 3 + 1 + 2 * DIGITS;

/// Storage for [`group`], owned by the caller. Its initial content does not matter.
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
        let (spare, len) = (self.spare.len(), self.words.len());
        let mut most = 0;
        let mut power = if len < WORDS_MIN { 0 } else { ITEMS_MAX };
        // What a table for up to `power` items leaves of the words, two for an item.
        while power > 0 {
            let mut n = len.saturating_sub(4 * power) / 2;
            if n > power {
                n = power;
            }
            if n > most {
                most = n;
            }
            power /= 2;
        }
        if most < spare { most } else { spare }
    }
}

/// The length of [`Scratch::words`] that `items` items need: 6 to 10 words an item, and at least
/// 512.
#[inline]
#[must_use]
pub const fn words(items: usize) -> usize {
    let all = table_len(items).saturating_add(items.saturating_mul(2));
    if all < WORDS_MIN { WORDS_MIN } else { all }
}

/// Whether `len` words are enough for `items` items: [`words`] without the power of two, which
/// takes longer to find than some items to group.
#[inline]
const fn words_suffice(len: usize, items: usize) -> bool {
    let Some(below) = items.checked_sub(1) else {
        return len >= WORDS_MIN;
    };
    // A power of two lies between the two if their bit lengths differ.
    let table = len.saturating_sub(2 * items) / 4;
    len >= WORDS_MIN && table & !below > below
}

/// [`group`] got too little storage, or more than [`ITEMS_MAX`] items. Nothing was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScratchTooSmall {
    /// How many items there are.
    pub items: usize,
}

impl fmt::Display for ScratchTooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { items } = *self;
        if items > ITEMS_MAX {
            write!(
                f,
                "{items} items are too many to group at once: at most {ITEMS_MAX}"
            )
        } else {
            write!(
                f,
                "too little storage to group {items} items: give {items} spare items and {} words",
                words(items)
            )
        }
    }
}

crate::error::error!(ScratchTooSmall, InvalidInput);

/// Brings items with equal keys together, in arrival order, and returns them: in `items` itself if
/// they were grouped already, else in `scratch.spare`.
///
/// The items of each key are contiguous and in the order in which they were given (stable). The
/// order of the groups is unspecified; it depends on the keys alone. `chunk_by(|a, b| a.key ==
/// b.key)` iterates over the groups. The content of `items` afterwards is unspecified unless it was
/// returned. See the [module](self) for the bounds.
///
/// ```
/// use packtrain_offload::sort::{Keyed, Scratch, group, words};
///
/// const N: usize = 64;
/// let mut spare = [Keyed::default(); N];
/// let mut words = [0; words(N)];
/// let mut scratch = Scratch { spare: &mut spare, words: &mut words };
///
/// let mut items = [7, 3, 7, 7, 3, 9].map(|key| Keyed { key, index: 0 });
/// for (index, item) in items.iter_mut().enumerate() {
///     item.index = index as u64;
/// }
/// let mut groups: Vec<Vec<u64>> = group(&mut items, &mut scratch)?
///     .chunk_by(|a, b| a.key == b.key)
///     .map(|group| group.iter().map(|item| item.index).collect())
///     .collect();
/// groups.sort();
/// assert_eq!(groups, [vec![0, 2, 3], vec![1, 4], vec![5]]);
/// # Ok::<(), packtrain_offload::sort::ScratchTooSmall>(())
/// ```
#[inline]
pub fn group<'a>(
    items: &'a mut [Keyed],
    scratch: &'a mut Scratch<'_>,
) -> Result<&'a [Keyed], ScratchTooSmall> {
    group_counted(items, scratch, &mut Steps::default())
}

/// Radix digits of a key.
const DIGITS: u32 = 8;
/// Values of a digit.
const RADIX: usize = 1 << (u64::BITS / DIGITS);
/// The fewest words: the radix sort's counters, and the words that few items need.
const WORDS_MIN: usize = 2 * RADIX;
/// Runs this long on average are moved as runs.
const RUN: usize = 4;
/// Slots of the table for 33 to 64 units: a burst.
const BURST_SLOTS: usize = table_len(64);
const _: () = assert!(ITEMS_MAX - 1 == LEADER_MASK as usize);
const _: () = assert!(words(few::ITEMS_MIN) >= few::WORDS);
const _: () = assert!(words(few::MANY_ITEMS_MIN) >= few::WORDS_OF_MANY);

/// Slots of a table for `units` units: at least four for each, so that few of them collide.
#[inline]
const fn table_len(units: usize) -> usize {
    match units.checked_next_power_of_two() {
        Some(n) => n.saturating_mul(4),
        None => usize::MAX,
    }
}

/// As [`group`], and adds the work that it took to `steps`.
///
/// # Errors
///
/// As [`group`].
#[inline]
pub fn group_counted<'a>(
    items: &'a mut [Keyed],
    scratch: &'a mut Scratch<'_>,
    steps: &mut Steps,
) -> Result<&'a [Keyed], ScratchTooSmall> {
    let n = items.len();
    let too_small = ScratchTooSmall { items: n };
    if n > ITEMS_MAX {
        return Err(too_small);
    }
    let spare = scratch.spare.get_mut(..n).ok_or(too_small)?;
    if !words_suffice(scratch.words.len(), n) {
        return Err(too_small);
    }
    steps.passes += 1;
    // A single flow is common, and needs no more work.
    let equal = one::equal_at_first(items);
    if equal == n {
        return Ok(items);
    }
    Ok(group_keys(items, spare, scratch.words, equal, steps))
}

/// Groups items of which the first `equal`, and not all, have one key.
///
/// Apart from `group_counted`, so that one key needs no stack frame.
#[inline(never)]
fn group_keys<'a>(
    items: &'a mut [Keyed],
    spare: &'a mut [Keyed],
    words: &mut [u32],
    equal: usize,
    steps: &mut Steps,
) -> &'a [Keyed] {
    let tabled = match changes(items, equal) {
        Some(changes) => {
            steps.passes += 1;
            let work = Work::split::<true>(words, changes + 1);
            note_runs(items, work.starts);
            work.group::<true>(items, spare, steps)
        }
        None => match few::group(items, spare, words, steps) {
            Tabled::Refused => {
                let work = Work::split::<false>(words, items.len());
                work.group::<false>(items, spare, steps)
            }
            tabled => tabled,
        },
    };
    match tabled {
        Tabled::Already => items,
        Tabled::Moved => spare,
        Tabled::Refused => by_radix(items, spare, words, steps),
    }
}

/// How often the key changes from one item to the next, if the first `equal` have one key. `None`
/// if it changes too often for items to be moved in runs.
fn changes(items: &[Keyed], equal: usize) -> Option<usize> {
    /// Long enough to be worth vector instructions, short enough to stop early.
    const BLOCK: usize = 32;
    let mut before = items.first()?.key;
    let mut changes = 0;
    for (block, of_block) in items[equal..].chunks(BLOCK).enumerate() {
        for item in of_block {
            changes += usize::from(item.key != before);
            before = item.key;
        }
        // The second finds mixed arrivals sooner.
        if changes > items.len() / RUN || changes > (block + 4) * (BLOCK / 2) {
            return None;
        }
    }
    Some(changes)
}

/// Writes where each run of equal keys starts, and after the last one where it ends.
fn note_runs(items: &[Keyed], starts: &mut [u32]) {
    let mut runs = 0;
    let mut before = !items[0].key;
    for (at, item) in items.iter().enumerate() {
        // Written at every item and kept at the first of a run: no branch to mispredict.
        starts[runs] = at as u32;
        runs += usize::from(item.key != before);
        before = item.key;
    }
    starts[runs] = items.len() as u32;
}

/// The caller's words, split.
///
/// A *unit* is an item, or a run of items with one key. The first unit of a key leads its group.
/// A *tally* is one word: the unit that leads a group in the low half, a number of items in the
/// high half.
struct Work<'a> {
    /// By hash: the tally of a group so far, or [`EMPTY`].
    table: &'a mut [u32],
    /// By unit: the tally of its group before it. That of a leader is 0.
    tallies: &'a mut [u32],
    /// By unit: the size of its group, then the group's destination; unused if it does not lead.
    places: &'a mut [u32],
    /// Where the items of each unit start, and the end. Empty if units are items.
    starts: &'a mut [u32],
}

impl<'a> Work<'a> {
    /// `RUNS` makes room for the starts of runs. There are at most a quarter as many runs as
    /// items then, and one, so that `words` is long enough.
    fn split<const RUNS: bool>(words: &'a mut [u32], units: usize) -> Self {
        let (table, rest) = words.split_at_mut(table_len(units));
        let (tallies, rest) = rest.split_at_mut(units);
        let (places, rest) = rest.split_at_mut(units);
        let starts = if RUNS { &mut rest[..=units] } else { &mut [] };
        Self {
            table,
            tallies,
            places,
            starts,
        }
    }

    // A function of its own has registers enough for its loops.
    #[inline(never)]
    fn group<const RUNS: bool>(
        mut self,
        items: &[Keyed],
        spare: &mut [Keyed],
        steps: &mut Steps,
    ) -> Tabled {
        steps.passes += 1;
        let tallied = if self.table.len() == BURST_SLOTS {
            self.tally::<RUNS, BURST_SLOTS>(items, &mut steps.probes)
        } else {
            self.tally::<RUNS, 0>(items, &mut steps.probes)
        };
        if tallied.is_none() {
            return Tabled::Refused;
        }
        steps.passes += 1;
        if !is_torn(self.tallies) {
            return Tabled::Already;
        }
        steps.passes += 2;
        lay_out(self.places);
        self.scatter::<RUNS>(items, spare);
        Tabled::Moved
    }

    /// Finds every unit's leader, the number of items of its group before it, and their total.
    /// `None` if that takes too many probes.
    ///
    /// No branch here depends on the number of flows: whether a packet is the first of its flow is
    /// unpredictable. `SLOTS` is the length of the table, or 0 if that is not known at compile
    /// time: a constant saves a third of the time.
    fn tally<const RUNS: bool, const SLOTS: usize>(
        &mut self,
        items: &[Keyed],
        probes: &mut usize,
    ) -> Option<()> {
        self.table.fill(EMPTY);
        self.places.fill(0);
        let slots = if SLOTS > 0 { SLOTS } else { self.table.len() };
        let (table, starts) = (&mut self.table[..slots], &*self.starts);
        let units = self.tallies.len();
        let places = &mut self.places[..units];
        let mask = table.len().checked_sub(1)?;
        let shift = u64::BITS - table.len().trailing_zeros();
        let mut tally = |unit: usize, items: &[Keyed], item: &Keyed, add: u32| {
            let slot = hash(item.key, shift) & mask;
            let entry = &mut table[slot];
            // A free slot becomes this unit's, and a key equals itself.
            let mut before = select_unpredictable(*entry == EMPTY, unit as u32, *entry);
            let after = before.wrapping_add(add);
            if items[start::<RUNS>(starts, leader(before))].key == item.key {
                *entry = after;
                places[leader(before)] = after >> COUNT_SHIFT;
            } else {
                before = probe::<RUNS>(items, starts, table, unit, slot, probes)?;
                places[leader(before)] = before.wrapping_add(add) >> COUNT_SHIFT;
            }
            Some(before)
        };
        if RUNS {
            for (unit, to) in self.tallies.iter_mut().enumerate() {
                let add = len::<true>(starts, unit) << COUNT_SHIFT;
                *to = tally(unit, items, &items[start::<true>(starts, unit)], add)?;
            }
        } else {
            // There are as many places as items, so that an index is checked for both at once.
            let items = &items[..units];
            for (unit, (item, to)) in items.iter().zip(&mut *self.tallies).enumerate() {
                *to = tally(unit, items, item, ONE)?;
            }
        }
        Some(())
    }

    fn scatter<const RUNS: bool>(&mut self, items: &[Keyed], spare: &mut [Keyed]) {
        let (places, starts) = (&*self.places, &*self.starts);
        if RUNS {
            for (unit, &tally) in self.tallies.iter().enumerate() {
                let from = start::<true>(starts, unit);
                let run = &items[from..from + len::<true>(starts, unit) as usize];
                let to = (places[leader(tally)] + (tally >> COUNT_SHIFT)) as usize;
                spare[to..to + run.len()].copy_from_slice(run);
            }
        } else {
            for (item, &tally) in items.iter().zip(&*self.tallies) {
                let to = places[leader(tally)].wrapping_add(tally >> COUNT_SHIFT);
                spare[to as usize] = *item;
            }
        }
    }
}

/// Start of the items of a unit.
#[inline(always)]
fn start<const RUNS: bool>(starts: &[u32], unit: usize) -> usize {
    if RUNS { starts[unit] as usize } else { unit }
}

/// The number of items of a unit. Less than 2^16, because one key is not all there is.
#[inline(always)]
fn len<const RUNS: bool>(starts: &[u32], unit: usize) -> u32 {
    if RUNS {
        starts[unit + 1] - starts[unit]
    } else {
        1
    }
}

/// Tallies `unit`, whose first slot belongs to another key; `None` if there were too many of these
/// already.
#[cold]
#[inline(never)]
fn probe<const RUNS: bool>(
    items: &[Keyed],
    starts: &[u32],
    table: &mut [u32],
    unit: usize,
    mut slot: usize,
    probes: &mut usize,
) -> Option<u32> {
    let key = items[start::<RUNS>(starts, unit)].key;
    loop {
        *probes += 1;
        if *probes > probes_max(items.len()) {
            return None;
        }
        slot = (slot + 1) & (table.len() - 1);
        let entry = &mut table[slot];
        let before = if *entry == EMPTY { unit as u32 } else { *entry };
        if items[start::<RUNS>(starts, leader(before))].key == key {
            *entry = before + (len::<RUNS>(starts, unit) << COUNT_SHIFT);
            return Some(before);
        }
    }
}

/// Most probes that may hit a slot of another key.
const fn probes_max(items: usize) -> usize {
    4 * items + 128
}

/// Sorts by key, least significant digit first: stable, and in the same time for any keys. Returns
/// the half that has the result.
fn by_radix<'a>(
    items: &'a mut [Keyed],
    spare: &'a mut [Keyed],
    words: &mut [u32],
    steps: &mut Steps,
) -> &'a [Keyed] {
    steps.radix = true;
    steps.passes += 1;
    let places = &mut words[..RADIX];
    let first = items[0].key;
    let differing = items.iter().fold(0, |bits, item| bits | (item.key ^ first));
    let (mut from, mut to) = (items, spare);
    for digit in 0..DIGITS {
        let shift = digit * (u64::BITS / DIGITS);
        if (differing >> shift) as u8 == 0 {
            continue;
        }
        steps.passes += 2;
        places.fill(0);
        for item in from.iter() {
            places[usize::from((item.key >> shift) as u8)] += 1;
        }
        let mut next = 0;
        for place in places.iter_mut() {
            let count = core::mem::replace(place, next);
            next += count;
        }
        for item in from.iter() {
            let place = &mut places[usize::from((item.key >> shift) as u8)];
            to[*place as usize] = *item;
            *place += 1;
        }
        core::mem::swap(&mut from, &mut to);
    }
    from
}
