//! A PCI function behind a port of its own: regions, capabilities, interrupts.

use super::machine::{Doorbell, Machine};
use super::wire::Place;
use packtrain::port::card::{Interrupt, InterruptKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::sync::Arc;

/// Words of the configuration space.
const COMMAND: usize = 0x04;
const BUSES: usize = 0x18;
const CAPABILITIES: usize = 0x34;
const PIN: usize = 0x3c;

/// Bits of [`COMMAND`].
const ACCESSED_BY_PORT: u32 = 1 << 0;
const ACCESSED_BY_MEMORY: u32 = 1 << 1;
const BUS_MASTER: u32 = 1 << 2;
const NO_INTX: u32 = 1 << 10;

/// Numbers of capabilities.
const MSI: u32 = 0x05;
const EXPRESS: u32 = 0x10;
const MSIX: u32 = 0x11;

/// Memory of the functions behind a port, and its I/O ports.
const WINDOW_BYTES: u64 = 16 << 20;
const WINDOWS: u64 = 0xc000_0000;
const PORT_WINDOW: u32 = 0x1000;
const PORT_WINDOWS: u32 = 0x6000;

/// A region (BAR): where it is, and its bytes.
pub(super) type Region = Option<(Place, usize)>;

#[derive(Debug)]
pub(super) struct Function {
    machine: Arc<Machine>,
    /// Bus, device and function of the port and of the function, as the address register has them.
    port: u32,
    address: u32,
    pub(super) regions: [Region; 6],
    msi: Option<usize>,
    msix: Option<usize>,
    pin: u32,
}

impl Function {
    /// The one in `slot`, with its port switched on and its regions accessible.
    pub(super) fn new(machine: Arc<Machine>, slot: usize) -> io::Result<Self> {
        let mut function = Self {
            machine,
            port: (Machine::port(slot) as u32) << 3,
            address: (slot as u32 + 1) << 8,
            regions: [None; 6],
            msi: None,
            msix: None,
            pin: 0,
        };
        function.open_port(slot)?;
        let id = function.config(0)?;
        if id == u32::MAX {
            return Err(io::Error::other("no function answers in the slot"));
        }
        function.assign(slot)?;
        function.msi = function.capability(function.address, MSI)?;
        function.msix = function.capability(function.address, MSIX)?;
        function.pin = function.config(PIN)? >> 8 & 0xff;
        function.restore()?;
        Ok(function)
    }

    pub(super) fn config(&self, at: usize) -> io::Result<u32> {
        self.machine.wire.config(self.address, at)
    }

    fn set_config(&self, at: usize, value: u32) -> io::Result<()> {
        self.machine.wire.set_config(self.address, at, value)
    }

    fn set_port(&self, at: usize, value: u32) -> io::Result<()> {
        self.machine.wire.set_config(self.port, at, value)
    }

    /// Where a capability starts.
    fn capability(&self, function: u32, number: u32) -> io::Result<Option<usize>> {
        let wire = &self.machine.wire;
        let mut at = wire.config(function, CAPABILITIES)? as usize & 0xfc;
        while at != 0 {
            let head = wire.config(function, at)?;
            if head & 0xff == number {
                return Ok(Some(at));
            }
            at = head as usize >> 8 & 0xfc;
        }
        Ok(None)
    }

    /// Numbers the bus behind the port, forwards its windows, and switches the slot on.
    fn open_port(&self, slot: usize) -> io::Result<()> {
        let bus = self.address >> 8;
        self.set_port(BUSES, bus << 16 | bus << 8)?;
        let window = (WINDOWS + slot as u64 * WINDOW_BYTES) as u32;
        let last = window + (WINDOW_BYTES as u32 - 1);
        self.set_port(0x20, last & 0xfff0_0000 | window >> 16)?;
        let ports = PORT_WINDOWS + slot as u32 * PORT_WINDOW;
        self.set_port(0x1c, ports & 0xf000 | ports >> 8)?;
        self.set_port(
            COMMAND,
            ACCESSED_BY_PORT | ACCESSED_BY_MEMORY | BUS_MASTER | NO_INTX,
        )?;
        self.set_power(true)
    }

    /// Switches the slot on, or off, which removes a function whose removal was requested.
    pub(super) fn set_power(&self, is_on: bool) -> io::Result<()> {
        let express = self.capability(self.port, EXPRESS)?;
        let express = express.ok_or_else(|| io::Error::other("the port has no slot"))?;
        // The power indicator (bits 8 and 9) and the power controller (bit 10: off).
        let control = if is_on { 0x100 } else { 0x700 };
        self.set_port(express + 0x18, control)
    }

    /// Assigns addresses to the regions.
    fn assign(&mut self, slot: usize) -> io::Result<()> {
        let mut memory = WINDOWS + slot as u64 * WINDOW_BYTES;
        let end = memory + WINDOW_BYTES;
        let mut port = PORT_WINDOWS + slot as u32 * PORT_WINDOW;
        let mut index = 0;
        while index < 6 {
            let at = 0x10 + 4 * index;
            self.set_config(at, u32::MAX)?;
            let mask = self.config(at)?;
            if mask & 1 != 0 {
                let bytes = !(mask as u16 & !3) + 1;
                port = port.next_multiple_of(bytes.into());
                self.regions[index] = Some((Place::Port(port as u16), bytes.into()));
                port += u32::from(bytes);
            } else if mask & !0xf != 0 {
                let bytes = u64::from(!(mask & !0xf)) + 1;
                memory = memory.next_multiple_of(bytes);
                self.regions[index] = Some((Place::Memory(memory), bytes as usize));
                memory += bytes;
            }
            // A region of 64 bits has two words.
            let is_wide = mask & 7 == 4;
            index += if is_wide { 2 } else { 1 };
        }
        if memory > end {
            return Err(io::Error::other(
                "the regions of the function are too large",
            ));
        }
        Ok(())
    }

    /// Writes the addresses of the regions, and makes them accessible.
    fn restore(&self) -> io::Result<()> {
        for (index, region) in self.regions.iter().enumerate() {
            let at = match region {
                Some((Place::Memory(at), _)) => *at as u32,
                Some((Place::Port(at), _)) => u32::from(*at),
                None => 0,
            };
            self.set_config(0x10 + 4 * index, at)?;
        }
        self.set_command(|_| ACCESSED_BY_PORT | ACCESSED_BY_MEMORY | NO_INTX)
    }

    fn set_command(&self, change: impl FnOnce(u32) -> u32) -> io::Result<()> {
        // The upper half is the status, whose ones are cleared by writing them.
        self.set_config(COMMAND, change(self.config(COMMAND)? & 0xffff))
    }

    pub(super) fn set_master(&self, is_master: bool) -> io::Result<()> {
        self.set_command(|command| {
            if is_master {
                command | BUS_MASTER
            } else {
                command & !BUS_MASTER
            }
        })
    }

    /// Resets the bus behind the port.
    pub(super) fn reset(&self) -> io::Result<()> {
        let control = self.machine.wire.config(self.port, PIN)?;
        self.set_port(PIN, control | 1 << 22)?;
        self.set_port(PIN, control & !(1 << 22))?;
        self.restore()
    }

    pub(super) fn interrupts(&self, kind: InterruptKind) -> io::Result<usize> {
        let count = match (kind, self.msix, self.msi) {
            (InterruptKind::Msix, Some(at), _) => (self.config(at)? >> 16 & 0x7ff) as usize + 1,
            (InterruptKind::Msi, _, Some(at)) => 1 << (self.config(at)? >> 17 & 7),
            (InterruptKind::Intx, ..) => usize::from(self.pin != 0),
            _ => 0,
        };
        Ok(count.min(Doorbell::VECTORS))
    }

    /// The input of the interrupt controller to which the function's line leads: those of the root
    /// bus alternate between four, and the port forwards the pin of its only device.
    pub(super) const fn line(&self) -> u32 {
        20 + ((self.port >> 3) + self.pin.saturating_sub(1)) % 4
    }

    /// Switches the function's interrupts off, and then those of a kind on: so many messages, which
    /// are written to `doorbell`, `first` of vector 0 and so on.
    pub(super) fn set_interrupts(
        &self,
        kind: Option<InterruptKind>,
        count: usize,
        doorbell: u64,
        first: u32,
    ) -> io::Result<()> {
        self.set_command(|command| command | NO_INTX)?;
        if let Some(at) = self.msi {
            let control = self.config(at)?;
            self.set_config(at, control & !(1 << 16))?;
            if kind == Some(InterruptKind::Msi) {
                self.set_config(at + 4, doorbell as u32)?;
                let is_wide = control & 1 << 23 != 0;
                if is_wide {
                    self.set_config(at + 8, (doorbell >> 32) as u32)?;
                }
                let data = at + if is_wide { 12 } else { 8 };
                self.set_config(data, first)?;
                if control & 1 << 24 != 0 {
                    self.set_config(data + 4, 0)?;
                }
                let vectors = count.next_power_of_two().ilog2();
                self.set_config(at, control & !(7 << 20) | vectors << 20 | 1 << 16)?;
            }
        }
        if let Some(at) = self.msix {
            let control = self.config(at)? & !(1 << 31) & !(1 << 30);
            self.set_config(at, control)?;
            if kind == Some(InterruptKind::Msix) {
                let table = self.config(at + 4)?;
                let region = self.regions.get(table as usize & 7).copied().flatten();
                let Some((Place::Memory(base), _)) = region else {
                    return Err(io::Error::other(
                        "the function's MSI-X table is in no region",
                    ));
                };
                let base = base + u64::from(table & !7);
                for vector in 0..self.interrupts(InterruptKind::Msix)? {
                    let is_masked = u32::from(vector >= count);
                    let entry = [
                        doorbell as u32,
                        (doorbell >> 32) as u32,
                        first + vector as u32,
                        is_masked,
                    ];
                    for (word, value) in (0_u64..).zip(entry) {
                        let at = base + 16 * vector as u64 + 4 * word;
                        self.machine.wire.write(Place::Memory(at), 4, value)?;
                    }
                }
                self.set_config(at, control | 1 << 31)?;
            }
        }
        if kind == Some(InterruptKind::Intx) {
            self.set_command(|command| command & !NO_INTX)?;
        }
        Ok(())
    }

    /// Rings the doorbell until `event` has come, which shows that QEMU has the descriptors.
    pub(super) fn ring(&self, doorbell: u64, word: u32, event: &Interrupt) -> io::Result<()> {
        let wait = Timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000,
        };
        for _ in 0..10_000 {
            let place = Place::Memory(doorbell);
            self.machine.wire.write(place, 4, word)?;
            let mut ready = [PollFd::new(event, PollFlags::IN)];
            if poll(&mut ready, Some(&wait))? > 0 {
                return Ok(());
            }
        }
        Err(io::Error::other("QEMU does not take the interrupts"))
    }
}
