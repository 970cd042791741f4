//! The state of a coalescer outside its storage.

use super::config::{Config, Finish, Mode, Semantics};
use super::mask::Masks;
use super::stats::Stats;
use super::table::Ring;

/// Entries that fit into the near caches, with everything that belongs to them.
const IN_CACHE: u32 = 2048;

/// The state of a coalescer outside its storage.
#[derive(Debug)]
pub(super) struct Core {
    pub config: Config,
    pub masks: Masks,
    pub ring: Ring,
    /// Packets in the queue of sorted mode.
    pub queued: usize,
    /// Sorted mode is on.
    pub sorting: bool,
    /// Packets of a run are merged by checking only the fields that count up.
    pub runs: bool,
    /// The entry found last, or any: packets of a flow arrive in trains.
    pub last: u32,
    /// If more packets are held than this, packets' memory is prefetched.
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

    /// Switches sorted mode on or off.
    pub(super) fn sort(&mut self, sorting: bool) {
        self.sorting = sorting;
        self.runs = self.merges_only() && !sorting;
    }

    /// Whether merging is the only work: no field is taken over from later headers, and no checksum
    /// is computed.
    #[inline]
    pub(super) const fn merges_only(&self) -> bool {
        matches!(self.config.semantics, Semantics::Reversible)
            && matches!(self.config.finish, Finish::Partial)
    }
}

/// The observations of [`Mode::Auto`] since the last flush.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    pub packets: u32,
    pub evictions: u32,
    /// Groups that sorting found.
    pub groups: u32,
    /// Consecutive windows whose flows would have fitted the table of hash mode.
    pub roomy: u32,
}
