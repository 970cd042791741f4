//! The coalescer of one batch: its memory, and the virtio-net headers of its packets.

use super::offload::TunOffload;
use crate::coalesce::{self, Coalescer, Config, Done, Entry, Link, NotTaken, Set, StorageError};
use crate::coalesce::{Packet, Semantics};
use crate::offload::{ChecksumState, LinkType};
use crate::virtio_net::{self, HeaderLen};

/// Flows at once for small batches and for others. A coalescer lives as long as a batch does, and
/// making its table costs time for every entry.
pub(super) const SMALL: usize = 8;
pub(super) const LARGE: usize = 32;
/// Sets for these, and one flow more.
pub(super) const SMALL_SETS: usize = sets(SMALL + 1);
pub(super) const LARGE_SETS: usize = sets(LARGE + 1);

const fn sets(flows: usize) -> usize {
    let config = Config::new(Semantics::Reversible, LinkType::RawIp, flows as u32);
    config.needs().sets
}

/// Memory for a coalescer of up to `FLOWS` flows.
pub(super) struct Memory<P, const FLOWS: usize, const SETS: usize> {
    entries: [Entry<P>; FLOWS],
    sets: [Set; SETS],
    links: [Link; FLOWS],
}

impl<P: Packet, const FLOWS: usize, const SETS: usize> Memory<P, FLOWS, SETS> {
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
        offload: &TunOffload,
        flows: usize,
    ) -> Result<Coalescer<P, coalesce::Borrowed<'_, P>>, StorageError> {
        let config = offload.config(flows);
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

/// Writes the virtio-net header of a packet of the coalescer to the start of `out`, if the device
/// has one. Every field has a value: no byte of an earlier use of the buffer remains.
pub(super) fn store_header(out: &mut [u8], header: Option<HeaderLen>, done: &Done) {
    let Some(form) = header else { return };
    let header = match done {
        Done::Merged(merged) => {
            virtio_net::describe(merged.checksum, merged.gso, Some(&merged.layout))
        }
        Done::Alone(_) | Done::Passed(_) => {
            virtio_net::describe(ChecksumState::Unnecessary, None, None)
        }
    };
    let encoded = header.encode(out, form);
    debug_assert!(encoded.is_ok(), "packets begin behind the header");
}

/// What happens to a packet that there is nothing to merge with.
pub(super) const ALONE: Done = Done::Passed(NotTaken::Off);
