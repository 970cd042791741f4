//! What a coalescer knows besides what its storage holds.

use super::config::{Config, Finish, Mode, Semantics};
use super::mask::Masks;
use super::stats::Stats;
use super::table::Ring;

/// Entries that are in the nearer caches anyway, with all that belongs to them.
const IN_CACHE: u32 = 2048;

/// What a coalescer knows besides what its storage holds.
#[derive(Debug)]
pub(super) struct Core {
    pub config: Config,
    pub masks: Masks,
    pub ring: Ring,
    /// Packets in the queue of sorted mode.
    pub queued: usize,
    /// Sorted mode is on.
    pub sorting: bool,
    /// Packets of a run are merged without looking at anything but what counts on.
    pub runs: bool,
    /// The entry that was found last, or any: packets of a flow come in trains.
    pub last: u32,
    /// With more packets held than this, what packets touch is fetched ahead.
    pub near: u32,
    pub window: Window,
    pub stats: Stats,
}

impl Core {
    pub(super) fn new(config: Config) -> Self {
        let mut core = Self {
            masks: Masks::new(config.semantics),
            ring: Ring::default(),
            queued: 0,
            sorting: false,
            runs: false,
            last: 0,
            near: IN_CACHE,
            window: Window::default(),
            stats: Stats::default(),
            config,
        };
        core.sort(config.mode == Mode::Sorted);
        core
    }

    /// Sorts from now on, or not.
    pub(super) fn sort(&mut self, sorting: bool) {
        self.sorting = sorting;
        self.runs = self.merges_only() && !sorting;
    }

    /// Merging is all that is done: nothing is taken over from later headers, and no checksum is
    /// made.
    #[inline]
    pub(super) const fn merges_only(&self) -> bool {
        matches!(self.config.semantics, Semantics::Reversible)
            && matches!(self.config.finish, Finish::Partial)
    }
}

/// What [`Mode::Auto`] has seen since the last flush.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    pub packets: u32,
    pub evictions: u32,
    /// Groups that sorting found.
    pub groups: u32,
    /// Windows in a row that hash mode would have had room for.
    pub roomy: u32,
}
