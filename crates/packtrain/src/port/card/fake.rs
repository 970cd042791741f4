//! A card for tests of drivers: a bus whose registers are a table, or a model of them. It needs no
//! device and, apart from the descriptors of interrupts, no system.

use super::{Bus, Interrupt, InterruptKind, Memory};
use crate::port::sys::card::fake::DeviceMemory;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// What the registers of a card do.
pub trait Registers: fmt::Debug + Send + Sized + 'static {
    /// Bytes of a region.
    #[must_use]
    fn region(_bar: usize) -> usize {
        1 << 17
    }

    /// Reads a register of `width` bytes. Those of a card that was removed are all ones.
    fn read(card: &Fake<Self>, bar: usize, at: usize, width: usize) -> u32;

    /// Writes a register.
    fn write(card: &Fake<Self>, bar: usize, at: usize, width: usize, value: u32);
}

/// The card, of which the test keeps a clone.
#[derive(Debug, Default)]
pub struct Fake<R = Table>(Arc<Shared<R>>);

#[derive(Debug, Default)]
struct Shared<R> {
    state: Mutex<State<R>>,
    memory: DeviceMemory,
}

impl<R> Clone for Fake<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// The state of a card.
#[derive(Debug, Default)]
pub struct State<R> {
    /// Its registers.
    pub registers: R,
    /// Words of its configuration space.
    pub config: BTreeMap<usize, u32>,
    /// Interrupts of each kind: MSI-X, MSI, INTx.
    pub interrupts: [usize; 3],
    /// Those that the driver has connected.
    pub connected: Vec<Interrupt>,
    /// How often INTx was unmasked.
    pub unmasked: usize,
    /// It may access memory.
    pub is_started: bool,
    /// It goes on with that.
    pub does_not_stop: bool,
    /// It was removed.
    pub is_removed: bool,
}

impl<R> Deref for State<R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.registers
    }
}

impl<R> DerefMut for State<R> {
    fn deref_mut(&mut self) -> &mut R {
        &mut self.registers
    }
}

impl<R> Fake<R> {
    /// A card with these registers.
    pub fn new(registers: R) -> Self {
        let state = State {
            registers,
            config: BTreeMap::new(),
            interrupts: [0; 3],
            connected: Vec::new(),
            unmasked: 0,
            is_started: false,
            does_not_stop: false,
            is_removed: false,
        };
        Self(Arc::new(Shared {
            state: Mutex::new(state),
            memory: DeviceMemory::default(),
        }))
    }

    /// The state of the card.
    ///
    /// # Panics
    ///
    /// If a thread has panicked that had it.
    pub fn state(&self) -> MutexGuard<'_, State<R>> {
        self.0.state.lock().expect("no test has failed")
    }

    /// Memory that the driver has given to the card; `None` if it has not.
    #[must_use]
    pub fn try_read(&self, address: u64, bytes: usize) -> Option<Vec<u8>> {
        self.0.memory.read(address, bytes)
    }

    /// Writes memory. Returns false if the driver has not given it to the card. That is done on the
    /// thread of the driver, before the driver stops the card.
    pub fn try_write(&self, address: u64, bytes: &[u8]) -> bool {
        self.0.memory.write(address, bytes)
    }

    /// Memory of the card.
    ///
    /// # Panics
    ///
    /// If the driver has not given all of it to the card.
    #[must_use]
    pub fn read(&self, address: u64, bytes: usize) -> Vec<u8> {
        let read = self.try_read(address, bytes);
        read.unwrap_or_else(|| panic!("no {bytes} bytes at {address:#x}"))
    }

    /// Writes memory of the card.
    ///
    /// # Panics
    ///
    /// As [`read`](Self::read).
    pub fn write(&self, address: u64, bytes: &[u8]) {
        let is_there = self.try_write(address, bytes);
        assert!(is_there, "no {} bytes at {address:#x}", bytes.len());
    }
}

/// Registers that keep what is written to them.
#[derive(Debug, Default)]
pub struct Table {
    /// By region and offset, a word each.
    pub words: BTreeMap<(usize, usize), u32>,
    /// What a register has that was never written.
    pub stale: u32,
    /// Bits that registers always read as set.
    pub ones: BTreeMap<usize, u32>,
    /// Bits that they always read as clear.
    pub zeros: BTreeMap<usize, u32>,
    /// What a register reads as after this value was written to it, as that of a command.
    pub replies: BTreeMap<(usize, u32), u32>,
    /// Registers that are 0 after a read.
    pub cleared: BTreeSet<usize>,
    /// Every write of a word: the offset and the value, in order.
    pub writes: Vec<(usize, u32)>,
}

impl Table {
    /// The word of a register, without the effects of a read.
    #[must_use]
    pub fn word(&self, bar: usize, at: usize) -> u32 {
        *self.words.get(&(bar, at)).unwrap_or(&self.stale)
    }

    /// Reads a register of `width` bytes.
    pub fn load(&mut self, bar: usize, at: usize, width: usize) -> u32 {
        let (at, shift) = (at & !3, 8 * (at & 3));
        let value = self.word(bar, at);
        if self.cleared.contains(&at) {
            self.words.insert((bar, at), 0);
        }
        let value = *self.replies.get(&(at, value)).unwrap_or(&value);
        let (ones, zeros) = (self.ones.get(&at), self.zeros.get(&at));
        let value = (value | ones.unwrap_or(&0)) & !zeros.unwrap_or(&0);
        (value >> shift) & (u32::MAX >> (32 - 8 * width))
    }

    /// Writes one.
    pub fn store(&mut self, bar: usize, at: usize, width: usize, value: u32) {
        if width == 4 {
            self.writes.push((at, value));
        }
        let (at, shift) = (at & !3, 8 * (at & 3));
        let mask = (u32::MAX >> (32 - 8 * width)) << shift;
        let word = self.word(bar, at) & !mask | value << shift;
        self.words.insert((bar, at), word);
    }
}

impl Registers for Table {
    fn read(card: &Fake<Self>, bar: usize, at: usize, width: usize) -> u32 {
        card.state().load(bar, at, width)
    }

    fn write(card: &Fake<Self>, bar: usize, at: usize, width: usize, value: u32) {
        card.state().store(bar, at, width, value);
    }
}

#[cfg(test)]
impl Fake {
    /// A register of the first region, without the effects of a read.
    pub(crate) fn peek(&self, at: usize) -> u32 {
        self.state().word(0, at)
    }

    /// Sets one, as the card does.
    pub(crate) fn poke(&self, at: usize, value: u32) {
        self.state().words.insert((0, at), value);
    }

    /// The values that were written to a register since the last call.
    pub(crate) fn take_writes(&self, at: usize) -> Vec<u32> {
        let mut state = self.state();
        let taken = state.writes.extract_if(.., |(to, _)| *to == at);
        taken.map(|(_, value)| value).collect()
    }
}

impl<R: Registers> Fake<R> {
    fn load(&self, bar: usize, at: usize, width: usize) -> u32 {
        match self.is_removed() {
            true => u32::MAX,
            false => R::read(self, bar, at, width),
        }
    }
}

impl<R: Registers> Bus for Fake<R> {
    fn name(&self) -> &str {
        "0000:01:00.0"
    }

    fn region(&self, bar: usize) -> usize {
        R::region(bar)
    }

    fn read8(&self, bar: usize, at: usize) -> u8 {
        self.load(bar, at, 1) as u8
    }

    fn read16(&self, bar: usize, at: usize) -> u16 {
        self.load(bar, at, 2) as u16
    }

    fn read32(&self, bar: usize, at: usize) -> u32 {
        self.load(bar, at, 4)
    }

    fn write8(&self, bar: usize, at: usize, value: u8) {
        R::write(self, bar, at, 1, value.into());
    }

    fn write16(&self, bar: usize, at: usize, value: u16) {
        R::write(self, bar, at, 2, value.into());
    }

    fn write32(&self, bar: usize, at: usize, value: u32) {
        R::write(self, bar, at, 4, value);
    }

    fn config(&self, at: usize) -> io::Result<u32> {
        let state = self.state();
        Ok(match state.is_removed {
            true => u32::MAX,
            false => *state.config.get(&at).unwrap_or(&0),
        })
    }

    fn map(&self, memory: &Memory<'_>) -> io::Result<u64> {
        Ok(self.0.memory.map(memory))
    }

    fn interrupts(&self, kind: InterruptKind) -> usize {
        let [msix, msi, intx] = self.state().interrupts;
        match kind {
            InterruptKind::Msix => msix,
            InterruptKind::Msi => msi,
            InterruptKind::Intx => intx,
        }
    }

    fn connect(&self, kind: InterruptKind, interrupts: &[Interrupt]) -> io::Result<()> {
        assert!(interrupts.len() <= self.interrupts(kind), "{kind:?}");
        self.state().connected = interrupts.to_vec();
        Ok(())
    }

    fn unmask(&self) {
        self.state().unmasked += 1;
    }

    fn reset(&self) -> io::Result<()> {
        self.state().is_started = false;
        Ok(())
    }

    fn start(&self, accesses_memory: bool) -> io::Result<()> {
        let mut state = self.state();
        if !accesses_memory && state.does_not_stop {
            return Err(io::Error::other("it does not stop"));
        }
        state.is_started = accesses_memory;
        Ok(())
    }

    fn is_removed(&self) -> bool {
        self.state().is_removed
    }

    fn pause(&self, _: Duration) {}
}
