//! The functions that this process has, and their IOMMU groups: the kernel gives a group to one
//! process, and an IOMMU does not tell its functions apart.

use super::abi;
use super::files::{locked, of_locked, open_file, users};
use super::iova::Addresses;
use crate::driver::DeviceError;
use crate::port::card::Memory;
use crate::port::card::pci::{Address, Function};
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
    device: Arc<OwnedFd>,
    group: Arc<Group>,
    /// Where the function was given memory, and how many bytes.
    mapped: Vec<(u64, usize)>,
}

/// A group: the address space of its functions.
#[derive(Debug)]
struct Group {
    number: u32,
    addresses: Mutex<Addresses>,
    guard: Guard,
}

/// What the kernel keeps the address space of a group in.
#[derive(Debug)]
enum Guard {
    /// A container, closed behind the group that is in it.
    Container { group: OwnedFd, container: OwnedFd },
    /// An iommufd, and the number of its address space.
    Iommufd { file: OwnedFd, space: u32 },
}

/// The container of a group: where it is not there, the kernel has VFIO by iommufd alone.
const CONTAINER: &str = "dev/vfio/vfio";

impl Group {
    /// Opens a group by its first function, and turns its IOMMU on.
    fn open(root: &Path, function: &Function) -> Result<(Self, OwnedFd), DeviceError> {
        let by_itself = function
            .file(root)
            .filter(|_| !root.join(CONTAINER).exists());
        let guard = match by_itself {
            Some(_) => {
                let file = open_file(root, "dev/iommu")?;
                let space = abi::space(file.as_fd());
                let space = space.map_err(failed("make an address space by iommufd"))?;
                Guard::Iommufd { file, space }
            }
            None => Guard::container(root, function)?,
        };
        let device = guard.device(root, function)?;
        let addresses = match &guard {
            Guard::Container { container, .. } => abi::addresses(container.as_fd()),
            Guard::Iommufd { file, space } => abi::addresses_of_space(file.as_fd(), *space),
        };
        let addresses = addresses.map_err(failed("ask for the addresses of its IOMMU"))?;
        let group = Self {
            number: function.group.unwrap_or_default(),
            addresses: Mutex::new(Addresses::new(addresses)),
            guard,
        };
        Ok((group, device))
    }
}

impl Guard {
    fn container(root: &Path, function: &Function) -> Result<Self, DeviceError> {
        let address = function.address;
        let container = open_file(root, CONTAINER)?;
        let known = abi::is_known(container.as_fd()).map_err(failed("ask VFIO for its version"))?;
        if !known {
            return unsupported(
                "VFIO of this kernel has no IOMMU of type 1: `modprobe vfio_iommu_type1`"
                    .to_owned(),
            );
        }
        let group = format!("dev/vfio/{}", function.group.unwrap_or_default());
        let group = open_file(root, &group)?;
        if !abi::is_viable(group.as_fd()).map_err(failed("ask for the state of its group"))? {
            return unsupported(format!(
                "the kernel uses another function of the IOMMU group of {address}: bind each to \
                 vfio-pci, as `packtrain doctor` shows"
            ));
        }
        abi::join(group.as_fd(), container.as_fd()).map_err(failed("take its IOMMU group"))?;
        match abi::guard(container.as_fd()) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                return unguarded(address, "vfio_iommu_type1");
            }
            guarded => guarded.map_err(failed("turn its IOMMU on"))?,
        }
        Ok(Self::Container { group, container })
    }

    /// Opens a function of the group.
    fn device(&self, root: &Path, function: &Function) -> Result<OwnedFd, DeviceError> {
        let address = function.address;
        match self {
            Self::Container { group, .. } => {
                let device = abi::device(group.as_fd(), &address.to_string());
                device.map_err(failed("open the function"))
            }
            Self::Iommufd { file, space } => {
                let name = function.file(root).unwrap_or_default();
                let path = format!("dev/vfio/devices/{name}");
                let device = open_file(root, &path)?;
                bound(
                    abi::bind(device.as_fd(), file.as_fd()),
                    root,
                    function,
                    &path,
                )?;
                abi::attach(device.as_fd(), *space).map_err(failed("turn its IOMMU on"))?;
                Ok(device)
            }
        }
    }

    fn map(&self, memory: &Memory<'_>, address: u64) -> io::Result<()> {
        match self {
            Self::Container { container, .. } => abi::map(container.as_fd(), memory, address),
            Self::Iommufd { file, space } => {
                abi::map_in_space(file.as_fd(), *space, memory, address)
            }
        }
    }

    fn unmap(&self, address: u64, bytes: usize) -> io::Result<()> {
        match self {
            Self::Container { container, .. } => abi::unmap(container.as_fd(), address, bytes),
            Self::Iommufd { file, space } => {
                abi::unmap_in_space(file.as_fd(), *space, address, bytes)
            }
        }
    }
}

/// The error of a card that could raise any interrupt of the machine.
fn unguarded<T>(address: Address, module: &str) -> Result<T, DeviceError> {
    unsupported(format!(
        "the machine does not remap interrupts, so VFIO gives {address} to no program: switch that \
         on in the firmware, or where the card is trusted, `modprobe {module} \
         allow_unsafe_interrupts=1`"
    ))
}

/// The result of giving a function, whose file is at `path`, to an iommufd.
fn bound(
    result: io::Result<()>,
    root: &Path,
    function: &Function,
    path: &str,
) -> Result<(), DeviceError> {
    let Err(error) = result else {
        return Ok(());
    };
    let shown = format!("/{path}");
    let users = users(root, &shown);
    match error.raw_os_error() {
        // EINVAL: another file of the function is bound. EPERM and EBUSY: another iommufd, or a
        // driver of the kernel, has its group.
        Some(libc::EINVAL | libc::EPERM | libc::EBUSY) if !users.is_empty() => unsupported(
            format!("{shown} is in use{users}: an IOMMU group is for one process at a time"),
        ),
        Some(libc::EPERM) if function.usable(root).is_ok() => {
            unguarded(function.address, "iommufd")
        }
        _ => Err(failed("take the function by iommufd")(error)),
    }
}

/// A function that is open: its place in its group. Dropped, it closes the function, which then
/// accesses no memory, and takes the memory back that the function was given.
#[derive(Debug)]
pub(super) struct Member(Address);

impl Member {
    /// Opens a function, of whose group other functions may be open in this process.
    pub(super) fn open(
        root: &Path,
        function: &Function,
    ) -> Result<(Self, Arc<OwnedFd>), DeviceError> {
        let address = function.address;
        let mut open = locked(&OPEN);
        // The kernel would open it once more.
        if open.iter().any(|one| one.address == address) {
            return unsupported(format!(
                "{address} is in use by this program: a port has it, which must be closed first"
            ));
        }
        let known = open
            .iter()
            .find(|one| Some(one.group.number) == function.group);
        let (group, device) = match known {
            Some(other) => {
                let group = Arc::clone(&other.group);
                let device = group.guard.device(root, function)?;
                (group, device)
            }
            None => {
                let (group, device) = Group::open(root, function)?;
                (Arc::new(group), device)
            }
        };
        let device = Arc::new(device);
        open.push(Open {
            address,
            device: Arc::clone(&device),
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
        let mapped = this.group.guard.map(memory, address);
        mapped.map_err(|error| of_locked(error, memory.bytes()))?;
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
        // Under the lock: a function that iommufd attaches to a space without another gets all that
        // is mapped, and the memory may be gone.
        drop(this.device);
        for (address, bytes) in this.mapped {
            // It fails for nothing that was mapped, and at the latest the end of the group does it.
            this.group.guard.unmap(address, bytes).ok();
        }
        // Before the lock is let go: this may be the end of the group.
        drop(this.group);
    }
}
