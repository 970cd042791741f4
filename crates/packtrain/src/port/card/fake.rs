//! A bus for tests of drivers: a table of registers. It needs no device and, apart from the
//! descriptors of interrupts, no system.

use super::{Bus, Interrupt, InterruptKind, Memory};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The card, of which the test keeps a clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fake(Arc<Mutex<State>>);

#[derive(Debug, Default)]
pub(crate) struct State {
    /// By region and offset, a word each.
    registers: BTreeMap<(usize, usize), u32>,
    /// What a register has that was never written.
    pub(crate) stale: u32,
    /// Bits that registers always read as set, and always as clear.
    pub(crate) ones: BTreeMap<usize, u32>,
    pub(crate) zeros: BTreeMap<usize, u32>,
    /// What a register reads as after this value was written to it, as that of a command.
    pub(crate) replies: BTreeMap<(usize, u32), u32>,
    /// Registers that are 0 after a read.
    pub(crate) cleared: BTreeSet<usize>,
    /// Every write of a word: the offset and the value, in order.
    pub(crate) writes: Vec<(usize, u32)>,
    pub(crate) config: BTreeMap<usize, u32>,
    /// Interrupts of each kind: MSI-X, MSI, INTx.
    pub(crate) interrupts: [usize; 3],
    pub(crate) connected: Vec<Interrupt>,
    /// The addresses of memory, and its bytes.
    pub(crate) maps: Vec<(u64, usize)>,
    pub(crate) unmasked: usize,
    pub(crate) is_started: bool,
    pub(crate) does_not_stop: bool,
    pub(crate) is_removed: bool,
    pub(crate) paused: Duration,
}

impl Fake {
    /// The state of the card.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test has failed")
    }

    /// A register, without the effects of a read.
    pub(crate) fn peek(&self, at: usize) -> u32 {
        let state = self.state();
        *state.registers.get(&(0, at)).unwrap_or(&state.stale)
    }

    /// A register of another region than the first.
    pub(crate) fn peek_in(&self, bar: usize, at: usize) -> u32 {
        let state = self.state();
        *state.registers.get(&(bar, at)).unwrap_or(&state.stale)
    }

    /// Sets a register, as the card does.
    pub(crate) fn poke(&self, at: usize, value: u32) {
        self.state().registers.insert((0, at), value);
    }

    /// The values that were written to a register since the last call.
    pub(crate) fn take_writes(&self, at: usize) -> Vec<u32> {
        let mut state = self.state();
        let (taken, left) = state.writes.iter().partition(|(to, _)| *to == at);
        state.writes = left;
        let taken: Vec<(usize, u32)> = taken;
        taken.into_iter().map(|(_, value)| value).collect()
    }

    fn part(&self, bar: usize, at: usize, width: usize) -> u32 {
        let word = self.read32(bar, at & !3);
        let shift = 8 * (at & 3);
        (word >> shift) & (u32::MAX >> (32 - 8 * width))
    }

    fn set_part(&self, bar: usize, at: usize, width: usize, value: u32) {
        let mut state = self.state();
        let stale = state.stale;
        let word = state.registers.entry((bar, at & !3)).or_insert(stale);
        let (shift, mask) = (8 * (at & 3), u32::MAX >> (32 - 8 * width));
        *word = *word & !(mask << shift) | value << shift;
    }
}

impl Bus for Fake {
    fn name(&self) -> &str {
        "0000:01:00.0"
    }

    fn region(&self, _: usize) -> usize {
        1 << 17
    }

    fn read8(&self, bar: usize, at: usize) -> u8 {
        self.part(bar, at, 1) as u8
    }

    fn read16(&self, bar: usize, at: usize) -> u16 {
        self.part(bar, at, 2) as u16
    }

    fn read32(&self, bar: usize, at: usize) -> u32 {
        let mut state = self.state();
        if state.is_removed {
            return u32::MAX;
        }
        let value = *state.registers.get(&(bar, at)).unwrap_or(&state.stale);
        if state.cleared.contains(&at) {
            state.registers.insert((bar, at), 0);
        }
        let value = *state.replies.get(&(at, value)).unwrap_or(&value);
        let (ones, zeros) = (state.ones.get(&at), state.zeros.get(&at));
        (value | ones.unwrap_or(&0)) & !zeros.unwrap_or(&0)
    }

    fn write8(&self, bar: usize, at: usize, value: u8) {
        self.set_part(bar, at, 1, value.into());
    }

    fn write16(&self, bar: usize, at: usize, value: u16) {
        self.set_part(bar, at, 2, value.into());
    }

    fn write32(&self, bar: usize, at: usize, value: u32) {
        let mut state = self.state();
        state.registers.insert((bar, at), value);
        state.writes.push((at, value));
    }

    fn config(&self, at: usize) -> io::Result<u32> {
        Ok(*self.state().config.get(&at).unwrap_or(&0))
    }

    fn map(&self, memory: &Memory<'_>) -> io::Result<u64> {
        let mut state = self.state();
        // Of more than 32 bits.
        let address = (state.maps.len() as u64 + 5) << 32;
        state.maps.push((address, memory.bytes()));
        Ok(address)
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

    fn pause(&self, time: Duration) {
        self.state().paused += time;
    }
}
