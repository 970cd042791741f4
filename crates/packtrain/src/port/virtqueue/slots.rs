//! The chains that a device has, and the numbers that are free.

/// Numbers of chains, and of the descriptors of a split ring, in the driver's own memory.
#[derive(Debug)]
pub(super) struct Slots {
    /// Of a free number the next free one; of a descriptor in a chain the next one of the chain.
    next: Box<[u16]>,
    /// By the number of a chain: its descriptors; 0 if there is no such chain.
    counts: Box<[u16]>,
    /// The first free number.
    free: u16,
    /// Descriptors that are free, and chains that the device has.
    room: usize,
    in_flight: usize,
}

impl Slots {
    pub(super) fn new(size: u16) -> Self {
        Self {
            // The last one is never read: each chain ends at the latest with it.
            next: (1..=size).collect(),
            counts: vec![0; usize::from(size)].into(),
            free: 0,
            room: usize::from(size),
            in_flight: 0,
        }
    }

    pub(super) const fn room(&self) -> usize {
        self.room
    }

    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The number that is taken next.
    pub(super) const fn next(&self) -> u16 {
        self.free
    }

    /// Takes the next number. Those that are taken one after the other stay linked.
    pub(super) fn take(&mut self) -> u16 {
        let slot = self.free;
        self.free = self.next[usize::from(slot)];
        slot
    }

    /// The chain with this number has `count` descriptors.
    pub(super) fn begin(&mut self, slot: u16, count: u16) {
        self.counts[usize::from(slot)] = count;
        self.room -= usize::from(count);
        self.in_flight += 1;
    }

    /// Frees the descriptors of a chain, `linked` of which have numbers of their own, and returns
    /// how many it had; `None` if there is no such chain.
    pub(super) fn end(&mut self, slot: u16, linked: bool) -> Option<u16> {
        let count = self.counts.get_mut(usize::from(slot))?;
        let count = std::mem::take(count);
        if count == 0 {
            return None;
        }
        let mut last = slot;
        if linked {
            for _ in 1..count {
                last = self.next[usize::from(last)];
            }
        }
        self.next[usize::from(last)] = self.free;
        self.free = slot;
        self.room += usize::from(count);
        self.in_flight -= 1;
        Some(count)
    }
}
