//! PCI functions of this machine, by VFIO: the kernel gives them to a program, and an IOMMU limits
//! what they access to the memory that the program gives them.
//!
//! Each IOMMU group has an address space of its own, a container, or where the kernel has VFIO
//! without groups (`CONFIG_VFIO_GROUP`), one of iommufd: no card of another group reaches what a
//! driver gave to one. Each function is given memory by itself, also within a group. So what two of
//! them access counts twice against the limit on locked memory.

mod abi;
mod files;
mod group;
mod iova;
mod region;
#[cfg(test)]
mod tests;

use super::device::{failed, unsupported};
use crate::driver::DeviceError;
use crate::port::card::pci::{Address, AddressError, Function};
use crate::port::card::{Bus, Interrupt, InterruptKind, Memory};
use abi::Irq;
use files::locked;
use group::Member;
use region::{Region, Word};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{pread, pwrite};
use rustix::time::Timespec;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Regions of a function: BARs.
const REGIONS: usize = 6;
/// The command register of the configuration space, and its bits: registers in memory are on, the
/// function accesses memory (bus master).
const COMMAND: u64 = 4;
const MEMORY: u16 = 1 << 1;
const MASTER: u16 = 1 << 2;
/// The numbers of maker and device of a function that is gone.
const GONE: u32 = u32::MAX;

/// A PCI function of this machine that VFIO gave to this process.
///
/// The driver `vfio-pci` has to have it, and each other function of its IOMMU group that the kernel
/// uses. It is this process's until the bus is dropped, and with it all that was connected and
/// mapped. No other process can open it meanwhile, nor another function of its group; this one can
/// open each of the group once. What was mapped for one is there for all of them, since an IOMMU
/// does not tell them apart.
///
/// [`is_removed`](Bus::is_removed) is also true once the kernel wants the function back, such as
/// for its removal. The kernel waits until the bus is dropped. And it is true after an error that
/// the function reported and that the kernel cannot correct (AER), since its state is not known.
///
/// [`reset`](Bus::reset) is the kernel's reset of one function. If it has none and is not alone
/// behind a bridge, it no longer accesses memory, and the driver resets it by its registers, as it
/// does anyway. Interrupts stay connected.
#[derive(Debug)]
pub struct Vfio {
    name: String,
    regions: [Region; REGIONS],
    /// Where the file of the device has the configuration space.
    config: u64,
    can_reset: bool,
    /// How many there are of MSI-X, MSI and INTx.
    interrupts: [usize; 3],
    connected: Mutex<Option<InterruptKind>>,
    /// Whether the function was found to be removed.
    removed: AtomicBool,
    /// Raised for an error of the function, and for the kernel's request to give it back.
    alarms: [Interrupt; 2],
    // Dropped in this order: the last one closes it.
    device: Arc<OwnedFd>,
    member: Member,
}

/// The kinds, in the order of [`Vfio::interrupts`], with their numbers of VFIO.
const KINDS: [(InterruptKind, u32); 3] = [
    (InterruptKind::Msix, 2),
    (InterruptKind::Msi, 1),
    (InterruptKind::Intx, 0),
];

fn index_of(kind: InterruptKind) -> u32 {
    KINDS[place_of(kind)].1
}

const fn place_of(kind: InterruptKind) -> usize {
    match kind {
        InterruptKind::Msix => 0,
        InterruptKind::Msi => 1,
        InterruptKind::Intx => 2,
    }
}

impl Vfio {
    /// Opens the function at an address: `0000:01:00.0`, or `01:00.0`. VFIO has reset it if it
    /// can be, and it accesses no memory until [`start`](Bus::start).
    ///
    /// # Errors
    ///
    /// [`DeviceError::Unsupported`] if it is not there, or VFIO does not have it, with the command
    /// that gives it; [`DeviceError::Failed`] if the system refuses it.
    pub fn open(address: &str) -> Result<Self, DeviceError> {
        Self::open_below(Path::new("/"), address)
    }

    fn open_below(root: &Path, address: &str) -> Result<Self, DeviceError> {
        let parsed = address.parse();
        let address: Address = parsed.map_err(|error: AddressError| {
            DeviceError::Unsupported(format!("{address:?} {error}"))
        })?;
        let function = match Function::read(root, address) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return unsupported(format!(
                    "this machine has no PCI function {address}: `lspci -D` lists all"
                ));
            }
            read => read.map_err(failed("read what sysfs has of it"))?,
        };
        function.usable(root).map_err(DeviceError::Unsupported)?;
        let (member, device) = Member::open(root, &function)?;
        let vfio = Self::new(address, member, device);
        vfio.map_err(failed("use the function by VFIO"))
    }

    fn new(address: Address, member: Member, device: Arc<OwnedFd>) -> io::Result<Self> {
        let fd = device.as_fd();
        let mut regions: [Region; REGIONS] = Default::default();
        for (index, region) in regions.iter_mut().enumerate() {
            *region = Region::new(fd, &abi::region(fd, index as u32)?)?;
        }
        let mut interrupts = [0; KINDS.len()];
        for (count, (_, index)) in interrupts.iter_mut().zip(KINDS) {
            *count = abi::interrupts(fd, index)?;
        }
        let alarms = [Interrupt::new()?, Interrupt::new()?];
        for (alarm, index) in alarms.iter().zip([abi::ERROR_IRQ, abi::REQUEST_IRQ]) {
            // A function without error reporting has none, and refuses to say so.
            if abi::interrupts(fd, index).unwrap_or(0) > 0 {
                abi::set_interrupts(fd, index, Irq::Connect(&[alarm.as_fd().as_raw_fd()]))?;
            }
        }
        let vfio = Self {
            name: address.to_string(),
            regions,
            config: abi::region(fd, abi::CONFIG_REGION)?.offset,
            can_reset: abi::flags(fd)? & abi::CAN_RESET != 0,
            interrupts,
            connected: Mutex::new(None),
            removed: AtomicBool::new(false),
            alarms,
            device,
            member,
        };
        // VFIO has reset it.
        vfio.start(false)?;
        Ok(vfio)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    #[inline]
    fn read<W: Word>(&self, bar: usize, at: usize) -> W {
        self.regions[bar].read(self.fd(), at)
    }

    #[inline]
    fn write<W: Word>(&self, bar: usize, at: usize, value: W) {
        self.regions[bar].write(self.fd(), at, value);
    }

    fn command(&self) -> io::Result<u16> {
        let mut bytes = [0; 2];
        match pread(&self.device, &mut bytes, self.config + COMMAND)? {
            2 => Ok(u16::from_le_bytes(bytes)),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Something of the function is over: an alarm came, or its configuration space is gone.
    fn is_lost(&self) -> bool {
        let mut fds = self
            .alarms
            .each_ref()
            .map(|one| PollFd::new(one, PollFlags::IN));
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let came = poll(&mut fds, Some(&now)).is_ok_and(|came| came > 0);
        came || self.config(0).map_or(true, |id| id == GONE)
    }
}

impl Bus for Vfio {
    fn name(&self) -> &str {
        &self.name
    }

    fn region(&self, bar: usize) -> usize {
        self.regions.get(bar).map_or(0, Region::bytes)
    }

    #[inline]
    fn read8(&self, bar: usize, at: usize) -> u8 {
        self.read(bar, at)
    }

    #[inline]
    fn read16(&self, bar: usize, at: usize) -> u16 {
        self.read(bar, at)
    }

    #[inline]
    fn read32(&self, bar: usize, at: usize) -> u32 {
        self.read(bar, at)
    }

    #[inline]
    fn write8(&self, bar: usize, at: usize, value: u8) {
        self.write(bar, at, value);
    }

    #[inline]
    fn write16(&self, bar: usize, at: usize, value: u16) {
        self.write(bar, at, value);
    }

    #[inline]
    fn write32(&self, bar: usize, at: usize, value: u32) {
        self.write(bar, at, value);
    }

    fn config(&self, at: usize) -> io::Result<u32> {
        let mut bytes = [0; 4];
        match pread(&self.device, &mut bytes, self.config + at as u64)? {
            4 => Ok(u32::from_le_bytes(bytes)),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn map(&self, memory: &Memory<'_>) -> io::Result<u64> {
        self.member.map(memory)
    }

    fn interrupts(&self, kind: InterruptKind) -> usize {
        self.interrupts[place_of(kind)]
    }

    fn connect(&self, kind: InterruptKind, interrupts: &[Interrupt]) -> io::Result<()> {
        let has = self.interrupts(kind);
        if interrupts.len() > has {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("the function has {has} interrupts of this kind"),
            ));
        }
        let mut connected = locked(&self.connected);
        // A function has one kind at a time, and keeps how many of it.
        if let Some(old) = *connected {
            abi::set_interrupts(self.fd(), index_of(old), Irq::Off)?;
            *connected = None;
        }
        if !interrupts.is_empty() {
            let fds = interrupts.iter().map(|one| one.as_fd().as_raw_fd());
            let fds: Vec<_> = fds.collect();
            abi::set_interrupts(self.fd(), index_of(kind), Irq::Connect(&fds))?;
            *connected = Some(kind);
        }
        Ok(())
    }

    fn unmask(&self) {
        let connected = locked(&self.connected);
        if *connected == Some(InterruptKind::Intx) {
            // It fails if the function was removed: no interrupt comes any more.
            abi::set_interrupts(self.fd(), index_of(InterruptKind::Intx), Irq::Unmask).ok();
        }
    }

    fn reset(&self) -> io::Result<()> {
        self.start(false)?;
        // The kernel keeps the configuration space, and so this.
        if self.can_reset {
            abi::reset(self.fd())?;
        }
        Ok(())
    }

    fn start(&self, accesses_memory: bool) -> io::Result<()> {
        // Registers of a mapping that has its memory off are SIGBUS.
        let mut command = self.command()? | MEMORY;
        command &= !MASTER;
        if accesses_memory {
            command |= MASTER;
        }
        let written = pwrite(&self.device, &command.to_le_bytes(), self.config + COMMAND)?;
        if written != 2 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        // The answer of the function comes behind what it wrote to memory before.
        self.command()?;
        Ok(())
    }

    fn is_removed(&self) -> bool {
        let removed = self.removed.load(Ordering::Relaxed) || self.is_lost();
        if removed {
            self.removed.store(true, Ordering::Relaxed);
        }
        removed
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}
