//! Grouping by key with arrival order kept: what brings the packets of one flow together before
//! they are coalesced.
//!
//! The aim is that of FreeBSD's `tcp_lro_sort()`: with the packets of a flow side by side, a
//! handful of table entries serve any number of flows. Coalescing needs *groups*, not order, and
//! this module uses that freedom. [`group`] finds the groups with a hash table, then moves every
//! item once: groups come in the order of their first item, items within a group in arrival
//! order. Arrivals that are grouped already are only read, and long runs are moved as runs.
//!
//! # Bounds
//!
//! For n items, whatever their keys:
//!
//! - at most [`PASSES_MAX`] passes over the items, each linear in n;
//! - at most `4 * n + 128` slots are tried in vain. A caller that runs into this bound has keys
//!   that were chosen against the hash function, and a radix sort of at most eight digits takes
//!   over;
//! - no recursion, and no storage but the caller's: the stack needed does not depend on n.
//!
//! So no choice of keys costs more than a constant factor, and there is no seed to keep secret.

use core::fmt;
use core::hint::select_unpredictable;

#[cfg(test)]
mod tests;

/// Items in one call at most: positions are kept in 16 bits, so that they stay in cache.
pub const ITEMS_MAX: usize = 1 << 16;

/// Passes over the items that [`group`] makes at most.
///
/// One looks for runs, one notes them, one tallies, two turn the tallies into places, one moves.
/// If the radix sort has to take over after the tally: one to see which digits differ, and two for
/// each of eight digits.
pub const PASSES_MAX: u32 = 3 + 1 + 2 * DIGITS;

/// A key, and what it belongs to.
///
/// Items with equal keys belong together. `index` is the caller's: a position in an array of
/// packets, usually. It is moved with its key and never looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Keyed {
    /// What is grouped by: a flow hash with its type, usually. Any value is allowed.
    pub key: u64,
    /// The caller's, as given.
    pub index: u64,
}

/// Storage for [`group`], the caller's. What it contains before does not matter.
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

impl core::error::Error for ScratchTooSmall {}

/// Brings items with equal keys together, in arrival order, and returns them: in `items` itself if
/// they were grouped already, else in `scratch.spare`.
///
/// The items of each key are contiguous and in the order in which they were given (stable). The
/// order of the groups among themselves is not promised; it depends on the keys alone.
/// `chunk_by(|a, b| a.key == b.key)` walks over the groups. What `items` holds afterwards is
/// unspecified unless it was returned. See the [module](self) for the bounds.
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
/// The fewest words: the radix sort's counters, and room for what few items need.
const WORDS_MIN: usize = 2 * RADIX;
/// Runs this long on average are moved as runs.
const RUN: usize = 4;
/// Units that are asked at once whether one of them leads a group.
const BLOCK: usize = 16;
/// Where the number of items begins in a tally; no key has [`ITEMS_MAX`] items where a tally is
/// made, because one key is not all there is.
const COUNT_SHIFT: u32 = 16;
/// The part of a tally that says which unit leads.
const LEADER_MASK: u32 = (1 << COUNT_SHIFT) - 1;
/// A slot that is not taken. As a tally it would be all items of a group that the last item leads.
const EMPTY: u32 = u32::MAX;

const _: () = assert!(ITEMS_MAX - 1 == LEADER_MASK as usize);

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
    /// Passes over the items, or over less.
    passes: u32,
    /// Slots that were found to belong to another key.
    probes: usize,
    /// The radix sort took over.
    radix: bool,
}

/// How the table left the items.
enum Tabled {
    /// They were grouped when they came.
    Already,
    /// They are grouped, in the spare items.
    Moved,
    /// Untouched: too many keys share a slot.
    Refused,
}

fn group_counted<'a>(
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
    let words = scratch.words.get_mut(..words(n)).ok_or(too_small)?;
    steps.passes += 1;
    let tabled = match changes(items) {
        Some(0) => Tabled::Already,
        Some(changes) => {
            steps.passes += 1;
            let work = Work::split::<true>(words, changes + 1);
            note_runs(items, work.starts);
            work.group::<true>(items, spare, steps)
        }
        None => Work::split::<false>(words, n).group::<false>(items, spare, steps),
    };
    Ok(match tabled {
        Tabled::Already => items,
        Tabled::Moved => spare,
        Tabled::Refused => by_radix(items, spare, words, steps),
    })
}

/// How often the key changes from one item to the next; nothing, if so often that items are not
/// worth moving in runs.
fn changes(items: &[Keyed]) -> Option<usize> {
    /// Long enough to be worth vector instructions, short enough to stop early.
    const BLOCK: usize = 32;
    let Some(first) = items.first() else {
        return Some(0);
    };
    let (blocks, _) = items.as_chunks::<BLOCK>();
    // One flow alone is common, and nothing else is done with it.
    let equal = blocks.iter().take_while(|block| {
        let differing = block
            .iter()
            .fold(0, |bits, item| bits | (item.key ^ first.key));
        differing == 0
    });
    let rest = &items[equal.count() * BLOCK..];
    let mut before = first.key;
    let mut changes = 0;
    for (block, of_block) in rest.chunks(BLOCK).enumerate() {
        for item in of_block {
            changes += usize::from(item.key != before);
            before = item.key;
        }
        // The second says so earlier for what is mixed from the start.
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
        // Written at every item and kept at the first of a run: nothing to guess.
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
    /// By unit: the tally of its group before it came. A leader has counted nothing.
    tallies: &'a mut [u32],
    /// By unit, if it leads: where its group goes.
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

    fn group<const RUNS: bool>(
        mut self,
        items: &[Keyed],
        spare: &mut [Keyed],
        steps: &mut Steps,
    ) -> Tabled {
        steps.passes += 1;
        if self.tally::<RUNS>(items, &mut steps.probes).is_none() {
            return Tabled::Refused;
        }
        steps.passes += 2;
        if !self.lay_out::<RUNS>(items) {
            return Tabled::Already;
        }
        steps.passes += 1;
        self.scatter::<RUNS>(items, spare);
        Tabled::Moved
    }

    /// Finds every unit's leader, and how many items of its group came before it. Nothing, if
    /// that takes too many probes.
    ///
    /// There is no branch here that depends on how many flows there are: whether a packet is the
    /// first of its flow cannot be guessed.
    fn tally<const RUNS: bool>(&mut self, items: &[Keyed], probes: &mut usize) -> Option<()> {
        self.table.fill(EMPTY);
        let (table, starts) = (&mut *self.table, &*self.starts);
        let mask = table.len().checked_sub(1)?;
        let shift = u64::BITS - table.len().trailing_zeros();
        for (unit, tally) in self.tallies.iter_mut().enumerate() {
            let key = items[start::<RUNS>(starts, unit)].key;
            let slot = hash(key, shift) & mask;
            let entry = &mut table[slot];
            // A free slot becomes this unit's, and a key equals itself.
            let before = select_unpredictable(*entry == EMPTY, unit as u32, *entry);
            let add = len::<RUNS>(starts, unit) << COUNT_SHIFT;
            if items[start::<RUNS>(starts, leader(before))].key == key {
                *entry = before.wrapping_add(add);
                *tally = before;
            } else {
                *tally = probe::<RUNS>(items, starts, table, unit, slot, probes)?;
            }
        }
        Some(())
    }

    /// Gives each group its place, in the order of their leaders; false if every item is in its
    /// place already.
    fn lay_out<const RUNS: bool>(&mut self, items: &[Keyed]) -> bool {
        let (table, starts) = (&*self.table, &*self.starts);
        let units = self.tallies.len();
        // With few groups, none is new so late, and it is cheap to look the groups up.
        if any_leads(&self.tallies[units - units / 4..]) {
            // The last of a group to write knows how many came before.
            for (unit, &tally) in self.tallies.iter().enumerate() {
                self.places[leader(tally)] = (tally >> COUNT_SHIFT) + len::<RUNS>(starts, unit);
            }
            return lay_out(
                self.tallies,
                self.places,
                |_, count| count,
                |unit| start::<RUNS>(starts, unit),
            );
        }
        let Some(mask) = table.len().checked_sub(1) else {
            return false;
        };
        let shift = u64::BITS - table.len().trailing_zeros();
        let tallies = &*self.tallies;
        let look_up = |unit: usize, _| {
            let mut slot = hash(items[start::<RUNS>(starts, unit)].key, shift) & mask;
            // It is in the table, so that this ends; as early as it did in the tally.
            while leader(table[slot]) != leader(tallies[unit]) {
                slot = (slot + 1) & mask;
            }
            table[slot] >> COUNT_SHIFT
        };
        lay_out(tallies, self.places, look_up, |unit| {
            start::<RUNS>(starts, unit)
        })
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

#[inline(always)]
const fn leader(tally: u32) -> usize {
    (tally & LEADER_MASK) as usize
}

/// Turns the counts of groups into places, of which the first is 0; false if each group has the
/// place where it starts.
///
/// `count` gives the number of items of the group that a unit is of, from the unit and what is in
/// `places`; `start` gives where a unit's items start.
#[inline(always)]
fn lay_out(
    tallies: &[u32],
    places: &mut [u32],
    count: impl Fn(usize, u32) -> u32,
    start: impl Fn(usize) -> usize,
) -> bool {
    let mut next = 0;
    let mut torn = false;
    let blocks = tallies.chunks(BLOCK).zip(places.chunks_mut(BLOCK));
    for (block, (tallies, places)) in blocks.enumerate() {
        if !any_leads(tallies) {
            continue;
        }
        for (at, (&tally, place)) in tallies.iter().zip(places).enumerate() {
            let unit = block * BLOCK + at;
            let count = count(unit, *place);
            *place = next;
            // All groups are whole if and only if each starts where its leader is.
            torn |= leads(tally) & (next != start(unit) as u32);
            next += select_unpredictable(leads(tally), count, 0);
        }
    }
    torn
}

/// Whether one of these units leads a group. With few groups, most blocks have none.
#[inline(always)]
fn any_leads(tallies: &[u32]) -> bool {
    tallies.iter().fold(false, |any, &tally| any | leads(tally))
}

/// Whether this is the tally of a unit that leads its group.
#[inline(always)]
const fn leads(tally: u32) -> bool {
    tally >> COUNT_SHIFT == 0
}

/// Where the items of a unit start.
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

/// Tallies `unit`, whose first slot is another key's; nothing, if there were too many of these
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

/// How many slots may be found to be another key's.
const fn probes_max(items: usize) -> usize {
    4 * items + 128
}

/// The top bits of a product mix all the bits below them. The multiplier is 2^64 divided by the
/// golden ratio (Knuth, volume 3, 6.4).
#[inline(always)]
const fn hash(key: u64, shift: u32) -> usize {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> shift) as usize
}

/// Sorts by key, least significant digit first: stable, and as long for any keys. Returns the half
/// that has the result.
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
