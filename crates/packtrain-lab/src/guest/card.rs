//! The cards of a guest: what QEMU emulates, where its frames go, and which driver takes it.

use std::fmt;
use std::os::fd::OwnedFd;

use serde::Deserialize;
use serde_json::{Value, json};

use super::monitor::Monitor;
use crate::error::ToolError;

/// Cards that a guest has at most: one for each slot of the bus that is free.
pub(super) const CARDS_MAX: usize = 16;
/// Functions of a device.
pub(super) const FUNCTIONS_MAX: usize = 8;

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
    /// The queues of a TAP of this host: descriptors as [`Tap`](crate::tap::Tap) opens them. With a
    /// virtio-net header, if the TAP has one, QEMU passes large packets on whole. Of several queues
    /// a virtio card has a pair each (`mq`), and the other models use the first one.
    Tap(Vec<OwnedFd>),
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
    is_beside: bool,
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
            is_beside: false,
            properties: Vec::new(),
        }
    }

    /// Makes it the next function of the device that the card before it is: they are in one IOMMU
    /// group, and are unplugged together. At most 8 are; the first card of all is no such one.
    #[must_use]
    pub fn beside(mut self) -> Self {
        self.is_beside = true;
        self
    }

    /// Sets a property of QEMU's device, such as `packed` of a virtio device; see
    /// `qemu-system-x86_64 -device e1000e,help`.
    #[must_use]
    pub fn property(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.properties.push((name.to_owned(), value.into()));
        self
    }

    /// A line of the shell that binds it.
    pub(super) fn bind(&self, place: Place) -> String {
        bind(place, self.model, self.bound)
    }

    /// Plugs it in, and returns the arguments that plug it in again.
    pub(super) fn plug(
        self,
        number: usize,
        place: Place,
        monitor: &mut Monitor,
    ) -> Result<Value, ToolError> {
        let descriptor = |queue: usize| format!("fd{number}-{queue}");
        let far = format!("far{number}");
        let mut pairs = 1;
        let mut netdev = match &self.far_side {
            FarSide::Hub(hub) => json!({ "type": "hubport", "hubid": hub }),
            FarSide::Tap(queues) => {
                pairs = queues.len();
                let names: Vec<_> = (0..pairs).map(descriptor).collect();
                for (name, queue) in names.iter().zip(queues) {
                    monitor.give(name, queue)?;
                }
                json!({ "type": "tap", "fds": names.join(":") })
            }
            FarSide::Socket(socket) => {
                let name = descriptor(0);
                monitor.give(&name, socket)?;
                json!({ "type": "dgram", "local": { "type": "fd", "str": name } })
            }
        };
        netdev["id"] = far.as_str().into();
        monitor.execute("netdev_add", &netdev)?;
        let mut device = json!({
            "driver": self.model.name(),
            "id": name(number),
            "netdev": far,
            "bus": port(place.port),
            "addr": format!("0.{}", place.function),
            "multifunction": place.is_shared,
            "mac": mac(number),
            "romfile": "",
        });
        if self.model == CardModel::Virtio {
            device["disable-legacy"] = "on".into();
            device["iommu_platform"] = true.into();
            if pairs > 1 {
                device["mq"] = true.into();
                // One for each queue, one for the control queue and one for changes of the link.
                device["vectors"] = (2 * pairs + 2).into();
            }
        }
        for (name, value) in self.properties {
            device[name] = value;
        }
        monitor.execute("device_add", &device)?;
        Ok(device)
    }
}

/// A line of the shell that gives card `number` to a driver.
pub(super) fn bind(place: Place, model: CardModel, bound: Bound) -> String {
    let (driver, load) = match bound {
        // A kernel without groups has VFIO by iommufd alone.
        Bound::Vfio => (
            "vfio-pci",
            "{ modprobe vfio_iommu_type1 || test -e /dev/iommu; } && ".to_owned(),
        ),
        Bound::Kernel => {
            let (driver, module) = model.driver();
            let load = module.map(|module| format!("modprobe {module} && "));
            (driver, load.unwrap_or_default())
        }
    };
    format!("{load}bind-card {place} {driver}")
}

/// The name of a card in QEMU.
pub(super) fn name(number: usize) -> String {
    format!("card{number}")
}

/// The name of a PCI Express port.
pub(super) fn port(number: usize) -> String {
    format!("port{number}")
}

/// Where a card is: a function of the device behind a port, both from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) port: usize,
    pub(super) function: usize,
    /// Whether the device has other functions.
    is_shared: bool,
}

impl Place {
    /// Those of some cards, in their order.
    pub(super) fn of(cards: &[Card]) -> Vec<Self> {
        let mut places: Vec<Self> = Vec::new();
        for card in cards {
            let place = match places.last_mut() {
                Some(last) if card.is_beside => {
                    last.is_shared = true;
                    Self {
                        function: last.function + 1,
                        ..*last
                    }
                }
                last => Self {
                    port: last.map_or(0, |last| last.port + 1),
                    function: 0,
                    is_shared: false,
                },
            };
            places.push(place);
        }
        places
    }
}

/// The address on the bus: the firmware numbers the buses in the order of the ports.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0000:{:02x}:00.{}", self.port + 1, self.function)
    }
}

/// The MAC address of card `number`, from 0.
pub fn mac(number: usize) -> String {
    format!("02:00:00:00:48:{number:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_beside_each_other_are_functions_of_one_device() {
        let card = || Card::new(CardModel::Virtio, FarSide::Hub(0), Bound::Vfio);
        let cards = [card(), card(), card().beside(), card().beside(), card()];
        let places: Vec<_> = Place::of(&cards).iter().map(Place::to_string).collect();
        assert_eq!(
            places,
            [
                "0000:01:00.0",
                "0000:02:00.0",
                "0000:02:00.1",
                "0000:02:00.2",
                "0000:03:00.0"
            ]
        );
    }
}
