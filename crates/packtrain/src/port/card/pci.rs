//! PCI functions as the kernel lists them in sysfs, and what keeps VFIO from giving one to a
//! program. All files are below a root, so that a test can make a tree of its own.

use crate::driver::key::Quoted;
use crate::driver::options::Request;
use crate::name::Name;
use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where a PCI function is: `0000:01:00.0`, or `01:00.0` in the domain 0, as `lspci` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

/// A text is not the address of a PCI function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressError;

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("is no address of a PCI function, such as 0000:01:00.0: `lspci -D` lists all")
    }
}

impl std::error::Error for AddressError {}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let number = |text: &str, digits: usize, max: u32| {
            let is_number = text.len() <= digits && text.bytes().all(|b| b.is_ascii_hexdigit());
            let number = is_number.then(|| u32::from_str_radix(text, 16).ok());
            number.flatten().filter(|number| *number <= max)
        };
        let parse = || {
            let (rest, function) = text.rsplit_once('.')?;
            let (rest, device) = rest.rsplit_once(':')?;
            let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0", rest));
            Some(Self {
                // A bridge of an SSD controller (VMD) has one of more than 16 bits.
                domain: number(domain, 8, u32::MAX)?,
                bus: number(bus, 2, 0xff)? as u8,
                device: number(device, 2, 0x1f)? as u8,
                function: number(function, 1, 7)? as u8,
            })
        };
        parse().ok_or(AddressError)
    }
}

/// Whether this machine has a PCI function at the address that is the `name` of a port.
pub(in crate::port) fn is_function(name: &str) -> io::Result<bool> {
    is_function_below(Path::new("/"), name)
}

fn is_function_below(root: &Path, name: &str) -> io::Result<bool> {
    let address: Address = name.parse().map_err(io::Error::other)?;
    root.join(DEVICES).join(address.to_string()).try_exists()
}

/// Switches off the states in which the PCIe link of a function sleeps (ASPM), at both of its ends,
/// where the kernel has them and this process may change them. VFIO does not pass on what a
/// program writes to the register of that (`init_pci_cap_exp_perm`), and the other end is not the
/// program's.
pub(in crate::port) fn keep_awake(root: &Path, name: &str) {
    let Ok(address) = name.parse::<Address>() else {
        return;
    };
    let folder = root.join(DEVICES).join(address.to_string()).join("link");
    for state in ["l0s_aspm", "l1_aspm"] {
        // A link that does not sleep has no such file.
        let file = fs::OpenOptions::new().write(true).open(folder.join(state));
        file.and_then(|mut file| file.write_all(b"0")).unwrap_or(());
    }
}

/// Checks the name of a port.
pub(in crate::port) fn check_address(port: &Request<'_>) -> Result<(), String> {
    let parsed = port.name.parse();
    let why = |why: AddressError| format!("{}: {} {why}", port.kind, Quoted(port.name));
    parsed.map(|_: Address| ()).map_err(why)
}

/// A PCI function of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Where it is.
    pub address: Address,
    /// The numbers of its maker and of the device.
    pub id: (u16, u16),
    /// Class, subclass and interface, a byte each: `0x020000` is an Ethernet controller.
    pub class: u32,
    /// The driver that has it.
    pub driver: Option<String>,
    /// The kernel's network interfaces on it, in order.
    pub interfaces: Vec<String>,
    /// Its IOMMU group: what an IOMMU can tell apart from others. `None` without an IOMMU.
    pub group: Option<u32>,
}

const DEVICES: &str = "sys/bus/pci/devices";
/// What the kernel calls the group of a function that no IOMMU guards.
const NO_IOMMU: &str = "vfio-noiommu";
/// The base class of network controllers.
const NETWORK: u32 = 0x02;

impl Function {
    /// Reads what the kernel says of a function.
    ///
    /// # Errors
    ///
    /// The system's; [`io::ErrorKind::NotFound`] if there is no such function.
    pub fn read(root: &Path, address: Address) -> io::Result<Self> {
        let folder = root.join(DEVICES).join(address.to_string());
        let number = |name: &str| {
            let text = fs::read_to_string(folder.join(name))?;
            let digits = text.trim().trim_start_matches("0x");
            u32::from_str_radix(digits, 16).map_err(io::Error::other)
        };
        let group = link(&folder.join("iommu_group"));
        let name = fs::read_to_string(folder.join("iommu_group/name")).unwrap_or_default();
        let group = group.filter(|_| name.trim() != NO_IOMMU);
        Ok(Self {
            address,
            id: (number("vendor")? as u16, number("device")? as u16),
            class: number("class")?,
            driver: link(&folder.join("driver")),
            interfaces: names(&folder.join("net"))?,
            group: group.and_then(|group| group.parse().ok()),
        })
    }

    /// The network controllers of this machine, in order.
    ///
    /// # Errors
    ///
    /// The system's. A machine without PCI has none.
    pub fn network(root: &Path) -> io::Result<Vec<Self>> {
        let mut all = Self::within(root, &root.join(DEVICES))?;
        all.retain(|function| function.class >> 16 == NETWORK);
        Ok(all)
    }

    /// The functions of a folder, without those that are removed meanwhile.
    fn within(root: &Path, folder: &Path) -> io::Result<Vec<Self>> {
        let names = names(folder)?;
        let mut all = Vec::with_capacity(names.len());
        for address in names.iter().filter_map(|name| name.parse().ok()) {
            match Self::read(root, address) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                read => all.push(read?),
            }
        }
        Ok(all)
    }

    /// Whether a driver of VFIO has it: `vfio-pci`, or that of a maker, such as `mlx5_vfio_pci`.
    #[must_use]
    pub fn is_given(&self) -> bool {
        let driver = self.driver.as_deref().unwrap_or_default();
        driver.replace('_', "-").ends_with("vfio-pci")
    }

    /// The functions that a driver of VFIO has to have before a program can use this one: itself,
    /// and those of its group that the kernel uses.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn to_give(&self, root: &Path) -> io::Result<Vec<Self>> {
        let folder = root.join(DEVICES).join(self.address.to_string());
        let mut group = Self::within(root, &folder.join("iommu_group/devices"))?;
        group.retain(|other| {
            // Those that access no memory for the kernel (`driver_managed_dma` of Linux).
            let is_harmless = |driver: &str| matches!(driver, "pcieport" | "pci-stub");
            let is_used = other.driver.as_deref().is_some_and(|of| !is_harmless(of));
            let is_needed = is_used || other.address == self.address;
            is_needed && !other.is_given()
        });
        Ok(group)
    }

    /// The name of its own file in /dev/vfio/devices, where the kernel has those.
    pub(in crate::port) fn file(&self, root: &Path) -> Option<String> {
        let folder = root.join(DEVICES).join(self.address.to_string());
        names(&folder.join("vfio-dev")).ok()?.pop()
    }

    /// Whether a program can open it.
    ///
    /// # Errors
    ///
    /// One sentence: what, why and what to do.
    pub fn usable(&self, root: &Path) -> Result<(), String> {
        let address = self.address;
        let Some(group) = self.group else {
            return Err(format!(
                "no IOMMU limits what {address} accesses, so VFIO gives it to no program: switch \
                 VT-d or AMD-Vi on in the firmware, and boot with `intel_iommu=on` on Intel, \
                 without `amd_iommu=off` on AMD"
            ));
        };
        let to_give = self.to_give(root).map_err(|error| {
            format!("the devices of IOMMU group {group} cannot be read from sysfs: {error}")
        })?;
        if to_give.is_empty() {
            return Ok(());
        }
        let (mut bound, mut commands, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for one in &to_give {
            let other = one.address;
            bound.push(format!("{other} {}", one.binding()));
            commands.push(format!("`driverctl set-override {other} vfio-pci`"));
            if other != address {
                others.push(other.to_string());
            }
        }
        let (bound, commands) = (bound.join(", "), commands.join(" and "));
        let unplug = match others.is_empty() {
            true => String::new(),
            false => format!("; or unplug {}", others.join(" and ")),
        };
        Err(format!(
            "{bound}, and VFIO has to have all of IOMMU group {group} that the kernel uses: type \
             {commands}, or the commands of `packtrain doctor`{unplug}"
        ))
    }

    /// The driver that has it, with its interfaces, as the end of a sentence about it.
    fn binding(&self) -> String {
        let interfaces = match &*self.interfaces {
            [] => String::new(),
            all => format!(" ({})", all.join(", ")),
        };
        match &self.driver {
            Some(driver) => format!("is bound to {driver}{interfaces}"),
            None => "has no driver".to_owned(),
        }
    }

    /// The commands of a shell, as root, that give it to `vfio-pci` until the next boot. The module
    /// has to be loaded.
    #[must_use]
    pub fn give_commands(&self) -> String {
        let address = self.address;
        let folder = format!("/{DEVICES}/{address}");
        let unbind = match &self.driver {
            Some(_) => format!("echo {address} > {folder}/driver/unbind; "),
            None => String::new(),
        };
        format!(
            "echo vfio-pci > {folder}/driver_override; {unbind}echo {address} > \
             /sys/bus/pci/drivers_probe"
        )
    }
}

/// The name of what a link of sysfs points to.
fn link(path: &Path) -> Option<String> {
    let target: PathBuf = fs::read_link(path).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}

/// The names in a folder, in order; none if it is not there.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.map(|entry| Ok(Name::from(entry?.file_name()).exact().to_owned()));
    let mut names = names.collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}
