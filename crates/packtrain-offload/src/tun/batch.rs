//! The coalescer of one batch: its memory, and the virtio-net headers of what it hands on.

use super::options::Tun;
use crate::coalesce::{self, Coalescer, Done, Entry, Link, NotTaken, Set, StorageError};
use crate::offload::ChecksumState;
use crate::virtio_net::{self, VnetHeader};

/// Memory for a coalescer of up to `FLOWS` flows.
pub(super) struct Memory<P, const FLOWS: usize, const SETS: usize> {
    entries: [Entry<P>; FLOWS],
    sets: [Set; SETS],
    links: [Link; FLOWS],
}

impl<P: coalesce::Packet, const FLOWS: usize, const SETS: usize> Memory<P, FLOWS, SETS> {
    /// Made entry by entry: one constant of this size would be copied from cold memory.
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self {
            entries: core::array::from_fn(|_| Entry::EMPTY),
            sets: core::array::from_fn(|_| Set::EMPTY),
            links: [Link::EMPTY; FLOWS],
        }
    }

    /// A coalescer in this memory; for more flows than it has room for, there is none.
    #[inline]
    pub(super) fn coalescer(
        &mut self,
        tun: &Tun,
        flows: usize,
    ) -> Result<Coalescer<P, coalesce::Borrowed<'_, P>>, StorageError> {
        let config = tun.config(flows);
        let needs = config.needs();
        let parts = coalesce::Parts {
            entries: self.entries.get_mut(..needs.entries).unwrap_or_default(),
            sets: self.sets.get_mut(..needs.sets).unwrap_or_default(),
            links: self.links.get_mut(..needs.links).unwrap_or_default(),
            queue: &mut [],
            keys: &mut [],
            words: &mut [],
        };
        Coalescer::new(config, coalesce::Borrowed(parts))
    }
}

/// The virtio-net header of what a coalescer hands on. Every field has a value: nothing of an
/// earlier use of the buffer can stay.
pub(super) fn header_of(done: &Done) -> VnetHeader {
    match done {
        Done::Merged(merged) => {
            virtio_net::describe(merged.checksum, merged.gso, Some(&merged.layout))
        }
        Done::Alone(_) | Done::Passed(_) => {
            virtio_net::describe(ChecksumState::Unnecessary, None, None)
        }
    }
}

/// What becomes of a packet that is not even looked at.
pub(super) const ALONE: Done = Done::Passed(NotTaken::Off);
