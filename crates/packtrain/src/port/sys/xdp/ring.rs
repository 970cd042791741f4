//! The rings that an AF_XDP socket shares with the kernel. One side puts entries into a ring and
//! moves its index `producer`, the other takes them and moves `consumer`. The indices count on
//! without an end, modulo 2^32 (`Documentation/networking/af_xdp.rst`).

#![allow(unsafe_code, reason = "memory that is shared with the kernel")]

use crate::limits::SMALL_FRAME_BYTES;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// The kernel asks for a system call (`XDP_RING_NEED_WAKEUP`).
const NEED_WAKEUP: u32 = libc::XDP_RING_NEED_WAKEUP;

/// Bytes of a descriptor that the kernel discards.
const DISCARDED: u32 = 2 * SMALL_FRAME_BYTES as u32;

/// A descriptor of the RX and TX rings (`struct xdp_desc`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Descriptor {
    /// From the start of the memory.
    pub(super) address: u64,
    pub(super) bytes: u32,
    pub(super) options: u32,
}

/// Where a ring has its parts: offsets in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) producer: usize,
    pub(super) consumer: usize,
    pub(super) flags: usize,
    pub(super) entries: usize,
}

/// The memory of a ring.
#[derive(Debug)]
struct Area {
    base: NonNull<u8>,
    /// To unmap; 0 for memory of a test.
    bytes: usize,
}

impl Area {
    fn map(socket: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                offset.cast_signed(),
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { base, bytes })
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: exactly the range that `mmap` returned, to which only the ring refers.
            let failed = unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) } != 0;
            debug_assert!(!failed, "munmap of our own mapping cannot fail");
        }
    }
}

/// A ring with a power of two of entries.
#[derive(Debug)]
struct Ring<T> {
    area: Area,
    places: Places,
    count: u32,
    entries: PhantomData<T>,
}

// SAFETY: the ring owns its mapping, and its entries are plain numbers. One thread uses a ring at a
// time: it may be moved to another one, and is not `Sync`.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Maps the ring of `socket` at the kernel's `offset`.
    fn map(socket: BorrowedFd<'_>, offset: u64, places: Places, count: u32) -> io::Result<Self> {
        let bytes = places.entries + count as usize * size_of::<T>();
        let area = Area::map(socket, offset, bytes)?;
        Ok(Self::new(area, places, count))
    }

    fn new(area: Area, places: Places, count: u32) -> Self {
        debug_assert!(count.is_power_of_two(), "the kernel refuses other sizes");
        Self {
            area,
            places,
            count,
            entries: PhantomData,
        }
    }

    const fn word(&self, place: usize) -> &AtomicU32 {
        // SAFETY: the kernel's offsets are within the mapping and aligned for a word, and both
        // sides access these words by atomic operations only.
        unsafe { AtomicU32::from_ptr(self.area.base.as_ptr().add(place).cast()) }
    }

    const fn producer(&self) -> &AtomicU32 {
        self.word(self.places.producer)
    }

    const fn consumer(&self) -> &AtomicU32 {
        self.word(self.places.consumer)
    }

    /// The entry of an index.
    const fn entry(&self, index: u32) -> *mut T {
        let at = (index & (self.count - 1)) as usize;
        // SAFETY: below the count, so within the mapping.
        unsafe {
            let entries = self.area.base.as_ptr().add(self.places.entries);
            entries.cast::<T>().add(at)
        }
    }
}

/// A ring into which this process puts entries.
#[derive(Debug)]
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// The index of the next entry, and the kernel's index when it was last read.
    next: u32,
    consumed: u32,
}

impl<T: Copy> Producer<T> {
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        offset: u64,
        places: Places,
        count: u32,
    ) -> io::Result<Self> {
        Ring::map(socket, offset, places, count).map(Self::new)
    }

    const fn new(ring: Ring<T>) -> Self {
        Self {
            ring,
            next: 0,
            consumed: 0,
        }
    }

    /// Whether `count` more entries can be put.
    pub(super) fn has_room(&mut self, count: u32) -> bool {
        let most = self.ring.count;
        let fits = |used: u32| used.checked_add(count).is_some_and(|used| used <= most);
        if fits(self.next.wrapping_sub(self.consumed)) {
            return true;
        }
        // Pairs with the kernel's release: it has read the entries before.
        self.consumed = self.ring.consumer().load(Ordering::Acquire);
        fits(self.next.wrapping_sub(self.consumed))
    }

    /// Puts an entry, which the kernel does not see before [`publish`](Self::publish). False if
    /// the ring is full.
    pub(super) fn put(&mut self, entry: T) -> bool {
        if !self.has_room(1) {
            return false;
        }
        // SAFETY: the kernel does not read this entry: it has consumed it, or never saw it.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Shows the kernel all entries.
    pub(super) fn publish(&self) {
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// Entries that the kernel has seen, or will with the next [`publish`](Self::publish), and has
    /// not consumed.
    pub(super) fn waiting(&self) -> u32 {
        let consumed = self.ring.consumer().load(Ordering::Acquire);
        self.next.wrapping_sub(consumed)
    }

    /// Whether the kernel needs a system call to read the ring.
    pub(super) fn needs_wakeup(&self) -> bool {
        // The kernel sets the flag and then checks the ring once more. So the index is stored
        // before the flag is read.
        fence(Ordering::SeqCst);
        self.asks()
    }

    /// Whether the kernel has asked for a system call, perhaps before it saw the last entries.
    pub(super) fn asks(&self) -> bool {
        let flags = self.ring.word(self.ring.places.flags);
        flags.load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }
}

impl Producer<Descriptor> {
    /// Has the kernel discard the descriptors that it has not consumed: it takes none with more
    /// bytes than a frame. (One without bytes would pass in Linux before 6.6.)
    pub(super) fn discard_waiting(&mut self) {
        let waiting = self.waiting().min(self.ring.count);
        for back in 1..=waiting {
            let entry = self.ring.entry(self.next.wrapping_sub(back));
            // SAFETY: an entry of the ring, whose number of bytes is an aligned word. The kernel
            // may read it meanwhile, as in a system call that another thread makes for this socket:
            // it has the old number or the new one, and the rest does not change.
            let bytes = unsafe { AtomicU32::from_ptr(&raw mut (*entry).bytes) };
            bytes.store(DISCARDED, Ordering::Relaxed);
        }
    }
}

/// A ring from which this process takes entries.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    /// The index of the next entry, and the kernel's index when it was last read.
    next: u32,
    produced: u32,
}

impl<T: Copy> Consumer<T> {
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        offset: u64,
        places: Places,
        count: u32,
    ) -> io::Result<Self> {
        Ring::map(socket, offset, places, count).map(Self::new)
    }

    const fn new(ring: Ring<T>) -> Self {
        Self {
            ring,
            next: 0,
            produced: 0,
        }
    }

    /// Takes the next entry. Its place stays used until [`release`](Self::release).
    pub(super) fn take(&mut self) -> Option<T> {
        if self.next == self.produced {
            // Pairs with the kernel's release: it has written the entries before.
            self.produced = self.ring.producer().load(Ordering::Acquire);
            if self.next == self.produced {
                return None;
            }
        }
        // SAFETY: the kernel has written this entry, and does not write to it until it is released.
        let entry = unsafe { self.ring.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Gives the places of all taken entries back.
    pub(super) fn release(&self) {
        self.ring.consumer().store(self.next, Ordering::Release);
    }

    /// Whether the kernel has put no entry since the last one that was taken.
    pub(super) fn is_empty(&self) -> bool {
        self.ring.producer().load(Ordering::Acquire) == self.next
    }
}

/// The memory of a ring without a kernel: a test makes both ends of it.
#[cfg(test)]
#[derive(Debug)]
pub(super) struct ByHand<T> {
    memory: Vec<u64>,
    count: u32,
    entries: PhantomData<T>,
}

#[cfg(test)]
impl<T: Copy> ByHand<T> {
    const PLACES: Places = Places {
        producer: 0,
        consumer: 8,
        flags: 16,
        entries: 24,
    };

    /// An empty ring of `count` entries, a power of two. It outlives what is made of it.
    pub(super) fn new(count: u32) -> Self {
        let entries_bytes = count as usize * size_of::<T>();
        Self {
            memory: vec![0; (Self::PLACES.entries + entries_bytes).div_ceil(8)],
            count,
            entries: PhantomData,
        }
    }

    fn ring(&mut self) -> Ring<T> {
        let base = NonNull::new(self.memory.as_mut_ptr().cast()).expect("not null");
        Ring::new(Area { base, bytes: 0 }, Self::PLACES, self.count)
    }

    /// The side that puts entries into it.
    pub(super) fn producer(&mut self) -> Producer<T> {
        Producer::new(self.ring())
    }

    /// The side that takes entries from it.
    pub(super) fn consumer(&mut self) -> Consumer<T> {
        Consumer::new(self.ring())
    }

    /// As the kernel does it: asks for a system call, or no longer.
    pub(super) fn ask(&mut self, asks: bool) {
        let flag = if asks { NEED_WAKEUP } else { 0 };
        let ring = self.ring();
        ring.word(Self::PLACES.flags).store(flag, Ordering::Relaxed);
    }

    /// Moves the index of the producer on, whatever the entries are.
    pub(super) fn jump(&mut self, count: u32) {
        self.ring().producer().fetch_add(count, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: u32 = 4;

    #[test]
    fn entries_pass_in_order_beyond_the_wrap_of_the_indices() {
        let mut ring = ByHand::new(COUNT);
        let start = u32::MAX - 5;
        let (mut producer, mut consumer) = (ring.producer(), ring.consumer());
        (producer.next, producer.consumed) = (start, start);
        (consumer.next, consumer.produced) = (start, start);
        producer.publish();
        consumer.release();
        let (mut sent, mut got) = (0_u64, 0_u64);
        while got < 20 {
            while producer.put(sent) {
                sent += 1;
            }
            assert_eq!(producer.waiting(), COUNT);
            assert!(
                consumer.is_empty() && consumer.take().is_none(),
                "not published"
            );
            producer.publish();
            for _ in 0..3 {
                assert_eq!(consumer.take(), Some(got));
                got += 1;
            }
            assert!(!producer.put(sent), "not released");
            consumer.release();
            assert_eq!(producer.waiting(), 1);
            assert_eq!(consumer.take(), Some(got));
            got += 1;
            consumer.release();
            assert!(consumer.is_empty() && producer.waiting() == 0);
        }
        assert_eq!(sent, got);
    }

    #[test]
    fn there_is_room_for_what_the_kernel_shows_as_read() {
        let mut ring = ByHand::<u64>::new(COUNT);
        let (mut producer, mut kernel) = (ring.producer(), ring.consumer());
        assert!(producer.has_room(COUNT) && !producer.has_room(COUNT + 1));
        assert!(!producer.has_room(u32::MAX));
        for entry in 0..COUNT.into() {
            assert!(producer.put(entry));
        }
        producer.publish();
        assert!(kernel.take().is_some() && kernel.take().is_some());
        assert!(!producer.has_room(1), "read, and not shown");
        kernel.release();
        assert!(producer.has_room(2) && !producer.has_room(3));
    }

    #[test]
    fn the_flag_of_the_kernel_is_read() {
        let mut ring = ByHand::<u64>::new(COUNT);
        let producer = ring.producer();
        assert!(!producer.needs_wakeup());
        ring.ask(true);
        assert!(producer.needs_wakeup());
    }

    #[test]
    fn only_what_waits_is_discarded() {
        let mut ring = ByHand::new(COUNT);
        let (mut producer, mut consumer) = (ring.producer(), ring.consumer());
        let entry = |address, bytes| Descriptor {
            address,
            bytes,
            options: 1,
        };
        for address in 1..=3 {
            assert!(producer.put(entry(address, 60)));
        }
        producer.publish();
        assert_eq!(consumer.take(), Some(entry(1, 60)));
        consumer.release();
        producer.discard_waiting();
        for address in 2..=3 {
            assert_eq!(consumer.take(), Some(entry(address, DISCARDED)));
        }
        assert_eq!(consumer.take(), None);
        let mut again = ring.consumer();
        assert_eq!(again.take(), Some(entry(1, 60)), "not what is consumed");
    }
}
