//! Memory that a card reads and writes by itself (DMA): words that both sides access, rings of
//! descriptors, and the addresses by which the card knows the frames of an arena.
//!
//! Words are little endian, as PCI devices have them. An access has no order of its own, except
//! where a function says so: a driver reads the word by which the card hands a descriptor over with
//! [`Ring::status`], and writes the one by which it hands it over itself with [`Ring::publish`]. A
//! register is an access of its own, before which [`write_barrier`] makes the words visible.

#![allow(unsafe_code, reason = "words that are shared with a device")]

use super::memory::Memory;
use crate::packet::{Arena, Mapping};
use crate::port::card::Bus;
use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

/// Later loads of shared memory come after the earlier ones (`dma_rmb` of Linux).
#[inline]
pub fn read_barrier() {
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a barrier has no other effect.
    unsafe {
        std::arch::asm!("dmb oshld", options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "aarch64", not(miri))))]
    std::sync::atomic::fence(Ordering::Acquire);
}

/// Later stores to shared memory and to registers come after the earlier ones (`dma_wmb` and `wmb`
/// of Linux).
#[inline]
pub fn write_barrier() {
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a barrier has no other effect.
    unsafe {
        std::arch::asm!("dsb st", options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "aarch64", not(miri))))]
    std::sync::atomic::fence(Ordering::Release);
}

/// Later loads of shared memory come after the earlier stores, too (`mb` of Linux): for an end that
/// says what it wants to be notified of, and then looks whether it has happened.
#[inline]
pub fn full_barrier() {
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a barrier has no other effect.
    unsafe {
        std::arch::asm!("dmb osh", options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "aarch64", not(miri))))]
    std::sync::atomic::fence(Ordering::SeqCst);
}

/// Memory of a driver that its card accesses, zeroed at first: for rings, not for packets.
///
/// The card can access it as long as the bus lives, also after it was dropped: the bus keeps its
/// pages. A driver stops the card before it drops it, since the card reads old descriptors else.
#[derive(Debug)]
pub struct Dma {
    mapping: Mapping,
    address: u64,
}

impl Dma {
    /// At least `bytes` bytes, which start at a page.
    ///
    /// # Errors
    ///
    /// Those of the system and of [`Bus::map`].
    pub fn new(bus: &impl Bus, bytes: usize) -> io::Result<Self> {
        let mapping = Mapping::new(bytes)?;
        let memory = Memory::new(mapping.fd(), mapping.base(), mapping.bytes());
        let address = bus.map(&memory)?;
        Ok(Self { mapping, address })
    }

    /// Its address for the card.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Its length.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.mapping.bytes()
    }

    /// A word of the memory.
    ///
    /// # Panics
    ///
    /// If it is not within the memory or not aligned.
    #[inline]
    fn at<T>(&self, at: usize) -> NonNull<T> {
        let within = at + size_of::<T>() <= self.mapping.bytes();
        assert!(
            within && at.is_multiple_of(size_of::<T>()),
            "no word at {at}"
        );
        // SAFETY: within the mapping.
        unsafe { self.mapping.base().add(at) }.cast()
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: within the mapping, which lives as long as `self`, and aligned; all accesses of
        // this process are atomic ones.
        unsafe { AtomicU32::from_ptr(self.at(at).as_ptr()) }
    }

    /// Several words, which are checked at once.
    #[inline]
    fn words<const N: usize>(&self, at: usize) -> &[AtomicU32; N] {
        let within = at + 4 * N <= self.mapping.bytes();
        assert!(within && at.is_multiple_of(4), "no {N} words at {at}");
        // SAFETY: as in `word`.
        unsafe { self.mapping.base().add(at).cast().as_ref() }
    }

    #[inline]
    fn half(&self, at: usize) -> &AtomicU16 {
        // SAFETY: as in `word`.
        unsafe { AtomicU16::from_ptr(self.at(at).as_ptr()) }
    }

    /// Loads the word at the offset `at`.
    ///
    /// # Panics
    ///
    /// As each of these: if there is no such word.
    #[inline]
    #[must_use]
    pub fn load(&self, at: usize) -> u32 {
        u32::from_le(self.word(at).load(Ordering::Relaxed))
    }

    /// Stores a word.
    #[inline]
    pub fn store(&self, at: usize, value: u32) {
        self.word(at).store(value.to_le(), Ordering::Relaxed);
    }

    /// Stores `bytes` from the offset `at` on, a multiple of 4. The last word is filled up with
    /// zeros.
    #[inline]
    pub fn store_bytes(&self, at: usize, bytes: &[u8]) {
        for (index, piece) in bytes.chunks(4).enumerate() {
            let mut word = [0; 4];
            word[..piece.len()].copy_from_slice(piece);
            self.store(at + 4 * index, u32::from_le_bytes(word));
        }
    }

    /// Loads 16 bits. A word whose halves both sides change is accessed by halves only.
    #[inline]
    #[must_use]
    pub fn load16(&self, at: usize) -> u16 {
        u16::from_le(self.half(at).load(Ordering::Relaxed))
    }

    /// Stores 16 bits.
    #[inline]
    pub fn store16(&self, at: usize, value: u16) {
        self.half(at).store(value.to_le(), Ordering::Relaxed);
    }
}

/// A ring of descriptors of `WORDS` words each, in a part of a [`Dma`].
#[derive(Debug)]
pub struct Ring<const WORDS: usize> {
    dma: Arc<Dma>,
    start: usize,
    count: usize,
    /// One thread uses a ring at a time.
    not_sync: PhantomData<std::cell::Cell<()>>,
}

impl<const WORDS: usize> Ring<WORDS> {
    /// Bytes of a descriptor.
    pub const DESCRIPTOR_BYTES: usize = 4 * WORDS;

    /// `count` descriptors from the offset `start` on.
    ///
    /// # Panics
    ///
    /// If they are not within the memory, or `start` is not a multiple of 4.
    #[must_use]
    pub fn new(dma: Arc<Dma>, start: usize, count: usize) -> Self {
        let end = start + count * Self::DESCRIPTOR_BYTES;
        assert!(
            start.is_multiple_of(4) && end <= dma.bytes(),
            "a ring up to {end}"
        );
        Self {
            dma,
            start,
            count,
            not_sync: PhantomData,
        }
    }

    /// The address of the first descriptor for the card.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.dma.address() + self.start as u64
    }

    /// The number of descriptors.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Bytes of all descriptors.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.count * Self::DESCRIPTOR_BYTES
    }

    #[inline]
    fn at(&self, index: usize, word: usize) -> usize {
        debug_assert!(word < WORDS, "a descriptor has {WORDS} words");
        debug_assert!(index < self.count, "a ring of {} descriptors", self.count);
        self.start + (index * WORDS + word) * 4
    }

    /// A word of a descriptor that the card has handed over.
    ///
    /// # Panics
    ///
    /// As each of these: if there is no such word.
    #[inline]
    #[must_use]
    pub fn word(&self, index: usize, word: usize) -> u32 {
        self.dma.load(self.at(index, word))
    }

    /// The word that says whether the card has handed a descriptor over: the others are read after
    /// it.
    #[inline]
    #[must_use]
    pub fn status(&self, index: usize, word: usize) -> u32 {
        let status = self.word(index, word);
        read_barrier();
        status
    }

    /// Writes a descriptor that the card does not have yet.
    #[inline]
    pub fn write(&mut self, index: usize, words: [u32; WORDS]) {
        let all: &[AtomicU32; WORDS] = self.dma.words(self.at(index, 0));
        for (word, value) in all.iter().zip(words) {
            word.store(value.to_le(), Ordering::Relaxed);
        }
    }

    /// Writes the word that hands a descriptor over to the card, after all earlier ones.
    #[inline]
    pub fn publish(&mut self, index: usize, word: usize, value: u32) {
        write_barrier();
        self.dma.store(self.at(index, word), value);
    }
}

/// The frames of an arena as a card knows them.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    start: usize,
    bytes: usize,
    address: u64,
}

impl Window {
    /// Gives the card the frames of `arena`.
    ///
    /// An IOMMU cannot tell one frame from another: a driver tells its card only the frames of
    /// packets that it has, and frees them after the card is done with them.
    ///
    /// # Errors
    ///
    /// Those of [`Bus::map`].
    pub fn new(bus: &impl Bus, arena: &Arena) -> io::Result<Self> {
        let (start, bytes) = arena.frames();
        // SAFETY: `Bus::map` gives it to a device only, which is told of frames by a driver that
        // has their packets.
        let fd = unsafe { arena.memfd() };
        let address = bus.map(&Memory::new(fd, start, bytes))?;
        Ok(Self {
            start: start.addr().get(),
            bytes,
            address,
        })
    }

    /// The address of bytes of a packet for the card; `None` if they are not in the arena.
    #[inline]
    #[must_use]
    pub fn address(&self, piece: &[u8]) -> Option<u64> {
        let offset = piece.as_ptr().addr().checked_sub(self.start)?;
        let within = offset.checked_add(piece.len())? <= self.bytes;
        within.then_some(self.address + offset as u64)
    }
}
