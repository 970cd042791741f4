//! The indirection table of receive side scaling.

use core::fmt;

/// The most entries a table can have.
pub const RETA_ENTRIES_MAX: usize = 512;

/// Maps a hash to a queue: the low bits of the hash select an entry, the entry names the queue.
///
/// Changing an entry moves all its flows to another queue. The change is reported, because packets
/// of a flow may still wait in the old queue: the caller must drain it before the new queue takes
/// any, or they are reordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reta {
    queues: [u16; RETA_ENTRIES_MAX],
    /// A power of two, at most [`RETA_ENTRIES_MAX`].
    entries: u16,
}

impl Reta {
    /// A table that spreads over `queues` queues evenly: entry i names queue i modulo `queues`, as
    /// drivers set it up (`ethtool_rxfh_indir_default()` in Linux).
    pub const fn new(entries: usize, queues: u16) -> Result<Self, RetaError> {
        if !entries.is_power_of_two() || entries > RETA_ENTRIES_MAX {
            return Err(RetaError::Entries { entries });
        }
        if queues == 0 || queues as usize > entries {
            return Err(RetaError::Queues { queues });
        }
        let mut table = Self {
            queues: [0; RETA_ENTRIES_MAX],
            entries: entries as u16,
        };
        let mut at = 0;
        while at < entries {
            table.queues[at] = at as u16 % queues;
            at += 1;
        }
        Ok(table)
    }

    /// The queue that each entry names.
    #[inline]
    #[must_use]
    pub fn entries(&self) -> &[u16] {
        &self.queues[..usize::from(self.entries)]
    }

    /// The entry that a hash selects.
    #[inline]
    #[must_use]
    pub const fn entry(&self, hash: u32) -> usize {
        hash as usize & (self.entries as usize - 1)
    }

    /// The queue that packets with this hash go to.
    #[inline]
    #[must_use]
    pub const fn queue(&self, hash: u32) -> u16 {
        self.queues[self.entry(hash)]
    }

    /// Sets the queue of an entry, to any number; returns the queue it named before.
    pub fn set(&mut self, entry: usize, queue: u16) -> Result<u16, RetaError> {
        match self.queues[..usize::from(self.entries)].get_mut(entry) {
            Some(place) => Ok(core::mem::replace(place, queue)),
            None => Err(RetaError::Entry { entry }),
        }
    }

    /// Redistributes the entries evenly over the queues from 0 to `queues` - 1, with the fewest
    /// moves. The shares differ by one entry at most. Returns the entries that moved.
    pub fn spread(&mut self, queues: u16) -> Result<Moved, RetaError> {
        let entries = usize::from(self.entries);
        if queues == 0 || usize::from(queues) > entries {
            return Err(RetaError::Queues { queues });
        }
        let share = self.entries / queues;
        let mut larger = self.entries % queues;
        let mut counts = [0_u16; RETA_ENTRIES_MAX];
        let counts = &mut counts[..usize::from(queues)];
        let mut moved = Moved::default();
        // A queue that has entries keeps its share, and the larger shares go to such queues.
        for (at, &queue) in self.queues[..entries].iter().enumerate() {
            match counts.get_mut(usize::from(queue)) {
                Some(count) if *count < share => *count += 1,
                Some(count) if *count == share && larger > 0 => {
                    *count += 1;
                    larger -= 1;
                }
                _ => moved.insert(at),
            }
        }
        let mut takers = counts.iter_mut().enumerate();
        let mut taker = takers.next();
        for at in moved.iter() {
            while let Some((queue, count)) = taker.as_mut() {
                let full = **count > share || (**count == share && larger == 0);
                if !full {
                    larger -= u16::from(**count == share);
                    **count += 1;
                    self.queues[at] = *queue as u16;
                    break;
                }
                taker = takers.next();
            }
        }
        Ok(moved)
    }
}

/// A set of entries of a [`Reta`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    bits: [u64; RETA_ENTRIES_MAX / 64],
}

impl Moved {
    fn insert(&mut self, entry: usize) {
        self.bits[entry / 64] |= 1 << (entry % 64);
    }

    /// How many entries moved.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bits
            .iter()
            .map(|bits| bits.count_ones() as usize)
            .sum()
    }

    /// Whether none did.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bits.iter().all(|&bits| bits == 0)
    }

    /// Whether this entry did.
    #[must_use]
    pub fn contains(&self, entry: usize) -> bool {
        let bits = self.bits.get(entry / 64);
        bits.is_some_and(|bits| bits >> (entry % 64) & 1 != 0)
    }

    /// The entries that moved, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        let set = *self;
        (0..RETA_ENTRIES_MAX).filter(move |&entry| set.contains(entry))
    }
}

/// Why a [`Reta`] cannot be made or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RetaError {
    /// The number of entries is not a power of two up to [`RETA_ENTRIES_MAX`].
    Entries {
        /// The number requested.
        entries: usize,
    },
    /// There would be no queue, or more queues than entries to name them.
    Queues {
        /// The number requested.
        queues: u16,
    },
    /// There is no such entry.
    Entry {
        /// The entry requested.
        entry: usize,
    },
}

impl fmt::Display for RetaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entries { entries } => write!(
                f,
                "an indirection table of {entries} entries: give a power of two up to \
                 {RETA_ENTRIES_MAX}"
            ),
            Self::Queues { queues } => write!(
                f,
                "an indirection table cannot spread over {queues} queues: give at least one, and \
                 no more than it has entries"
            ),
            Self::Entry { entry } => {
                write!(
                    f,
                    "the indirection table has no entry {entry}: they count from 0"
                )
            }
        }
    }
}

crate::error::error!(RetaError, InvalidInput);
