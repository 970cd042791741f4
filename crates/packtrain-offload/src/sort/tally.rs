//! Items, and the tallies by which they are grouped, for either table.

/// A key, and the caller's index for it.
///
/// Items with equal keys belong together. `index` is the caller's, usually a position in an array
/// of packets. It is moved with its key and never read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Keyed {
    /// The key to group by, usually a flow hash with its type. Any value is allowed.
    pub key: u64,
    /// The caller's, as given.
    pub index: u64,
}

/// Where the number of items begins in a tally; no key has [`ITEMS_MAX`](super::ITEMS_MAX) items
/// where a tally is made, because one key is not all there is.
pub(super) const COUNT_SHIFT: u32 = 16;
/// One item in a tally.
pub(super) const ONE: u32 = 1 << COUNT_SHIFT;
/// The part of a tally that says which unit leads.
pub(super) const LEADER_MASK: u32 = ONE - 1;
/// A free slot. As a tally it would be all items of a group that the last item leads.
pub(super) const EMPTY: u32 = u32::MAX;

/// The work of a call of [`group_counted`](super::group_counted). It does not depend on the
/// machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steps {
    /// Passes over the items, or over less: at most [`PASSES_MAX`](super::PASSES_MAX) a call.
    pub passes: u32,
    /// Probes that hit a slot of another key: at most `4 * n + 128` for `n` items.
    pub probes: usize,
    /// There are few keys, and the small table grouped them.
    pub(super) few: bool,
    /// The radix sort took over.
    pub(super) radix: bool,
}

/// The result of a table for the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tabled {
    /// They were grouped on arrival.
    Already,
    /// They are grouped, in the spare items.
    Moved,
    /// Untouched: too many keys, or too many of them share a slot.
    Refused,
}

#[inline(always)]
pub(super) const fn leader(tally: u32) -> usize {
    (tally & LEADER_MASK) as usize
}

/// Turns the counts of groups into places, of which the first is 0.
#[inline(always)]
pub(super) fn lay_out(counts: &mut [u32]) {
    /// Units checked at once for leaders: with few groups, most blocks have none.
    const BLOCK: usize = 16;
    let mut next = 0;
    let mut lay_out = |counts: &mut [u32]| {
        for count in counts {
            let place = next;
            next += *count;
            *count = place;
        }
    };
    let (blocks, rest) = counts.as_chunks_mut::<BLOCK>();
    for block in blocks {
        if block.iter().fold(0, |all, count| all | count) != 0 {
            lay_out(block);
        }
    }
    lay_out(rest);
}

/// Whether a group is not contiguous: whether a unit that does not lead is behind one of another
/// group. Mixed arrivals show that early.
pub(super) fn is_torn(tallies: &[u32]) -> bool {
    tallies
        .windows(2)
        .any(|pair| pair[1] >> COUNT_SHIFT != 0 && leader(pair[0]) != leader(pair[1]))
}

/// The top bits of a product mix all the bits below them. The multiplier is 2^64 divided by the
/// golden ratio (Knuth, volume 3, 6.4).
#[inline(always)]
pub(super) const fn hash(key: u64, shift: u32) -> usize {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> shift) as usize
}
