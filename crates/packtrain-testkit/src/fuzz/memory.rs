//! The memory of worlds.

use super::traffic::{Failure, Wrong};
use packtrain::packet::{Arena, ArenaConfig};

/// The memory of worlds, which is used again and again.
#[derive(Debug, Default)]
pub(super) struct Memory {
    free: Vec<Arena>,
}

impl Memory {
    /// Arenas that are kept.
    const KEPT: usize = 12;

    /// An arena of at least this size.
    pub(super) fn take(&mut self, wanted: ArenaConfig) -> Result<Arena, Failure> {
        // Few sizes, so that most worlds find one.
        let small = wanted.small_frames.next_power_of_two().max(8192);
        let config = ArenaConfig {
            small_frames: small,
            large_frames: wanted.large_frames.next_power_of_two().max(256),
            lines: 2 * small + 4096,
        };
        if let Some(at) = self.free.iter().position(|it| it.config() == config) {
            return Ok(self.free.swap_remove(at));
        }
        Arena::new(config).map_err(|error| Failure::new(Wrong::Error, error.to_string()))
    }

    /// All of its memory is free again.
    pub(super) fn give(&mut self, arena: Arena) {
        if self.free.len() >= Self::KEPT {
            self.free.remove(0);
        }
        self.free.push(arena);
    }
}
