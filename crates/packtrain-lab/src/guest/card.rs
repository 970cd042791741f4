//! The cards of a guest: what QEMU emulates, where its frames go, and which driver takes it.

use std::os::fd::OwnedFd;

use serde::Deserialize;
use serde_json::{Value, json};

use super::monitor::Monitor;
use crate::error::ToolError;

/// Cards that a guest has at most: one for each slot of the bus that is free.
pub(super) const CARDS_MAX: usize = 16;

/// A card that QEMU emulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CardModel {
    /// Intel 82574L.
    E1000e,
    /// VMware's paravirtual card.
    Vmxnet3,
    /// The virtio network device as a PCI function of version 1, which uses the IOMMU
    /// (`VIRTIO_F_ACCESS_PLATFORM`).
    Virtio,
}

impl CardModel {
    /// Its name in QEMU.
    pub fn name(self) -> &'static str {
        match self {
            Self::E1000e => "e1000e",
            Self::Vmxnet3 => "vmxnet3",
            Self::Virtio => "virtio-net-pci",
        }
    }

    /// The kernel's driver and the module that it needs beside the one of this name.
    fn driver(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::E1000e => ("e1000e", None),
            Self::Vmxnet3 => ("vmxnet3", None),
            Self::Virtio => ("virtio-pci", Some("virtio_net")),
        }
    }
}

/// Where the frames of a card go.
#[derive(Debug)]
#[non_exhaustive]
pub enum FarSide {
    /// A queue of a TAP of this host: a descriptor as [`Tap`](crate::tap::Tap) opens it. With a
    /// virtio-net header, if the TAP has one, QEMU passes large packets on whole.
    Tap(OwnedFd),
    /// All cards of the guest with the same number: each frame goes to all others.
    Hub(u32),
    /// A connected Unix datagram socket: a frame is a datagram.
    Socket(OwnedFd),
}

/// The driver that a card has after the boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// `vfio-pci`: for a driver in user space.
    Vfio,
    /// The kernel's own one: the card is a network interface of the guest.
    Kernel,
}

/// A card of a guest.
#[derive(Debug)]
pub struct Card {
    model: CardModel,
    far_side: FarSide,
    bound: Bound,
    properties: Vec<(String, Value)>,
}

impl Card {
    /// A card. Its address on the bus and its MAC address follow from its number: see
    /// [`Guest::address`](super::Guest::address) and [`mac`].
    pub fn new(model: CardModel, far_side: FarSide, bound: Bound) -> Self {
        Self {
            model,
            far_side,
            bound,
            properties: Vec::new(),
        }
    }

    /// Sets a property of QEMU's device, such as `packed` of a virtio device; see
    /// `qemu-system-x86_64 -device e1000e,help`.
    #[must_use]
    pub fn property(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.properties.push((name.to_owned(), value.into()));
        self
    }

    /// A line of the shell that binds it.
    pub(super) fn bind(&self, number: usize) -> String {
        bind(number, self.model, self.bound)
    }

    /// Plugs it in, and returns the arguments that plug it in again.
    pub(super) fn plug(self, number: usize, monitor: &mut Monitor) -> Result<Value, ToolError> {
        let descriptor = format!("fd{number}");
        let far = format!("far{number}");
        let mut netdev = match &self.far_side {
            FarSide::Hub(hub) => json!({ "type": "hubport", "hubid": hub }),
            FarSide::Tap(queue) => {
                monitor.give(&descriptor, queue)?;
                json!({ "type": "tap", "fd": descriptor })
            }
            FarSide::Socket(socket) => {
                monitor.give(&descriptor, socket)?;
                json!({ "type": "dgram", "local": { "type": "fd", "str": descriptor } })
            }
        };
        netdev["id"] = far.as_str().into();
        monitor.execute("netdev_add", &netdev)?;
        let mut device = json!({
            "driver": self.model.name(),
            "id": name(number),
            "netdev": far,
            "bus": port(number),
            "mac": mac(number),
            "romfile": "",
        });
        if self.model == CardModel::Virtio {
            device["disable-legacy"] = "on".into();
            device["iommu_platform"] = true.into();
        }
        for (name, value) in self.properties {
            device[name] = value;
        }
        monitor.execute("device_add", &device)?;
        Ok(device)
    }
}

/// A line of the shell that gives card `number` to a driver.
pub(super) fn bind(number: usize, model: CardModel, bound: Bound) -> String {
    let (driver, module) = match bound {
        Bound::Vfio => ("vfio-pci", Some("vfio_iommu_type1")),
        Bound::Kernel => model.driver(),
    };
    let load = module.map_or_else(String::new, |module| format!("modprobe {module} && "));
    format!("{load}bind-card {} {driver}", address(number))
}

/// The name of a card in QEMU.
pub(super) fn name(number: usize) -> String {
    format!("card{number}")
}

/// The name of the PCI Express port of a card.
pub(super) fn port(number: usize) -> String {
    format!("port{number}")
}

/// The address of a card on the bus. Each is alone behind its port, and the firmware numbers the
/// buses in the order of the ports.
pub(super) fn address(number: usize) -> String {
    format!("0000:{:02x}:00.0", number + 1)
}

/// The MAC address of card `number`, from 0.
pub fn mac(number: usize) -> String {
    format!("02:00:00:00:48:{number:02x}")
}
