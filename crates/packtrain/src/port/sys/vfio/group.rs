//! The functions that this process has, and their IOMMU groups: the kernel gives a group to one
//! process, and an IOMMU does not tell its functions apart.

use super::abi;
use super::files::{locked, of_locked, open_file};
use super::iova::Addresses;
use crate::driver::DeviceError;
use crate::port::card::Memory;
use crate::port::card::pci::Address;
use crate::port::sys::device::{failed, unsupported};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// All functions that are open. What is closed is closed under its lock, so that no
/// thread opens a group that is about to be closed.
static OPEN: Mutex<Vec<Open>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Open {
    address: Address,
    group: Arc<Group>,
    /// Where the function was given memory, and how many bytes.
    mapped: Vec<(u64, usize)>,
}

/// A group, in a container of its own: the address space of its functions.
#[derive(Debug)]
struct Group {
    number: u32,
    addresses: Mutex<Addresses>,
    // Closed in this order.
    file: OwnedFd,
    container: OwnedFd,
}

impl Group {
    /// Opens a group for the function at `address`, and turns its IOMMU on.
    fn open(root: &Path, number: u32, address: Address) -> Result<Self, DeviceError> {
        let container = open_file(root, "vfio")?;
        let known = abi::is_known(container.as_fd()).map_err(failed("ask VFIO for its version"))?;
        if !known {
            return unsupported(
                "VFIO of this kernel has no IOMMU of type 1: `modprobe vfio_iommu_type1`"
                    .to_owned(),
            );
        }
        let file = open_file(root, &number.to_string())?;
        if !abi::is_viable(file.as_fd()).map_err(failed("ask for the state of its group"))? {
            return unsupported(format!(
                "the kernel uses another function of the IOMMU group of {address}: bind each to \
                 vfio-pci, as `packtrain doctor` shows"
            ));
        }
        abi::join(file.as_fd(), container.as_fd()).map_err(failed("take its IOMMU group"))?;
        match abi::guard(container.as_fd()) {
            // A card could raise any interrupt of the machine.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                return unsupported(format!(
                    "the machine does not remap interrupts, so VFIO gives {address} to no \
                     program: switch that on in the firmware, or where the card is trusted, \
                     `modprobe vfio_iommu_type1 allow_unsafe_interrupts=1`"
                ));
            }
            guarded => guarded.map_err(failed("turn its IOMMU on"))?,
        }
        let addresses = abi::addresses(container.as_fd());
        let addresses = addresses.map_err(failed("ask for the addresses of its IOMMU"))?;
        Ok(Self {
            number,
            addresses: Mutex::new(Addresses::new(addresses)),
            file,
            container,
        })
    }
}

/// A function that is open: its place in its group. Dropped after the file of the function, which
/// then accesses no memory, it takes the memory back that the function was given.
#[derive(Debug)]
pub(super) struct Member(Address);

impl Member {
    /// Opens the function at `address`, which is in the group `number`, as other open functions of
    /// this process may be.
    pub(super) fn open(
        root: &Path,
        number: u32,
        address: Address,
    ) -> Result<(Self, OwnedFd), DeviceError> {
        let mut open = locked(&OPEN);
        // The kernel would open it once more.
        if open.iter().any(|one| one.address == address) {
            return unsupported(format!(
                "{address} is in use by this program: a port has it, which must be closed first"
            ));
        }
        let known = open.iter().find(|one| one.group.number == number);
        let group = match known {
            Some(other) => Arc::clone(&other.group),
            None => Arc::new(Group::open(root, number, address)?),
        };
        let device = abi::device(group.file.as_fd(), &address.to_string());
        let device = device.map_err(failed("open the function"))?;
        open.push(Open {
            address,
            group,
            mapped: Vec::new(),
        });
        Ok((Self(address), device))
    }

    /// Gives the group memory for the function, and returns where the function has it.
    pub(super) fn map(&self, memory: &Memory<'_>) -> io::Result<u64> {
        let mut open = locked(&OPEN);
        let this = open.iter_mut().find(|one| one.address == self.0);
        let this = this.ok_or(io::ErrorKind::NotConnected)?;
        let address = locked(&this.group.addresses).take(memory.bytes());
        let Some(address) = address else {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                "the IOMMU has no free addresses for the memory",
            ));
        };
        abi::map(this.group.container.as_fd(), memory, address)
            .map_err(|error| of_locked(error, memory.bytes()))?;
        this.mapped.push((address, memory.bytes()));
        Ok(address)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut open = locked(&OPEN);
        let Some(at) = open.iter().position(|one| one.address == self.0) else {
            return;
        };
        let this = open.swap_remove(at);
        let container = this.group.container.as_fd();
        for (address, bytes) in this.mapped {
            // It fails for nothing that was mapped, and at the latest the end of the group does it.
            abi::unmap(container, address, bytes).ok();
        }
        // Before the lock is let go: this may be the end of the group.
        drop(this.group);
    }
}
