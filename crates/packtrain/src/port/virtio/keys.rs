//! A virtio network card of this machine, from the keys of a port.

use super::{Virtio, VirtioConfig};
use crate::driver::DeviceError;
use crate::driver::key::{Key, Words, keys};
use crate::driver::options::{Options, Request};
use crate::port::card::pci::check_address;
use crate::port::card::{InterruptKind, Vfio};

/// What a `virtio:` port is, from its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VirtioOptions {
    /// How the card raises interrupts (`irq=`).
    pub irq: VirtioIrq,
    /// Receive only packets for the card's own address, and multicast (`promiscuous=off`).
    pub own_only: bool,
    /// Descriptors of each ring (`rings=`).
    pub rings: Option<u16>,
    /// Split rings also where the card has packed ones (`packed=off`).
    pub is_split: bool,
    /// If the card is removed, wait until there is one at its address again (`gone=wait`).
    pub waits: bool,
}

/// How a virtio card raises interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VirtioIrq {
    /// A message for each half of a queue.
    #[default]
    Msix,
    /// One line.
    Intx,
}

impl Words for VirtioIrq {
    const WORDS: &'static [(&'static str, Self)] = &[("msix", Self::Msix), ("intx", Self::Intx)];
}

impl Options for VirtioOptions {
    type Driver = Virtio<Vfio>;

    const KEYS: &'static [Key<Self>] = keys! { Self;
        "irq" (Words) irq:
            "how the card raises interrupts; by default by messages if it has them";
        "packed" (Switch("on", "off")) is_split:
            "off: split rings also where the card has packed ones";
        "promiscuous" (Switch("on", "off")) own_only:
            "off: receive only packets for the card's own address, and multicast";
        "rings" (Range(64, 32_768)) rings:
            "descriptors of each ring, a power of two, at most as many as the card has; 1024 by \
             default";
        "gone" (Switch("end", "wait")) waits:
            "wait: if the card is removed, the run continues, and the port with it once there is \
             one at its address again";
    };

    fn check(&self, port: &Request<'_>, _: &[&str]) -> Result<(), String> {
        check_address(port)?;
        match self.rings {
            Some(rings) if !rings.is_power_of_two() => Err(format!(
                "rings={rings} is no power of two, as the card needs; use {}",
                rings.next_power_of_two()
            )),
            _ => Ok(()),
        }
    }

    fn waits(&self) -> bool {
        self.waits
    }

    fn pins_memory(&self) -> bool {
        true
    }

    fn open(&self, port: &Request<'_>) -> Result<Self::Driver, DeviceError> {
        let config = VirtioConfig {
            queues: port.config.queues,
            offload: port.config.offload,
            irq: match self.irq {
                VirtioIrq::Msix => InterruptKind::Msix,
                VirtioIrq::Intx => InterruptKind::Intx,
            },
            packed: self.is_split.then_some(false),
            rings: self.rings,
            promiscuous: !self.own_only,
        };
        let card = Virtio::open(Vfio::open(port.name)?, &config)?;
        usable(card.is_behind_iommu(), port.name)?;
        Ok(card)
    }
}

/// VFIO gives a card addresses of the IOMMU. One that ignores the IOMMU would take them for
/// physical ones, and write to memory of the kernel.
pub(super) fn usable(is_behind_iommu: bool, name: &str) -> Result<(), DeviceError> {
    if is_behind_iommu {
        return Ok(());
    }
    Err(DeviceError::Unsupported(format!(
        "{name} ignores the IOMMU (it does not offer VIRTIO_F_ACCESS_PLATFORM), and would access \
         memory that is not its own: give QEMU's card iommu_platform=on, or use another card"
    )))
}
