//! A vmxnet3 card of this machine, from the keys of a port.

use super::{MTU_MAX, RINGS, RINGS_MAX, RINGS_MIN, RINGS_STEP, Vmxnet3, Vmxnet3Config};
use crate::driver::DeviceError;
use crate::driver::key::{Key, keys};
use crate::driver::options::{Options, Request};
use crate::port::card::pci::check_address;
use crate::port::card::{InterruptKind, Vfio};

/// What a `vmxnet3:` port is, from its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vmxnet3Options {
    /// How the card raises interrupts (`irq=`); `None` for the first that it has.
    pub interrupts: Option<InterruptKind>,
    /// Receive only packets for the card's own address, and multicast (`promiscuous=off`).
    pub own_only: bool,
    /// Descriptors of each ring (`rings=`).
    pub rings: Option<usize>,
    /// If the card is removed, wait until there is one at its address again (`gone=wait`).
    pub waits: bool,
}

impl Options for Vmxnet3Options {
    type Driver = Vmxnet3<Vfio>;

    const KEYS: &'static [Key<Self>] = keys! { Self;
        "irq" (Words) interrupts:
            "how the card raises interrupts; by default the first that it has of these";
        "promiscuous" (Switch("on", "off")) own_only:
            "off: receive only packets for the card's own address, and multicast";
        "rings" (Range(96, 4096)) rings:
            "descriptors of each ring, a multiple of 32; 512 by default";
        "gone" (Switch("end", "wait")) waits:
            "wait: if the card is removed, the run continues, and the port with it once there is \
             one at its address again";
    };

    fn check(&self, port: &Request<'_>, _: &[&str]) -> Result<(), String> {
        check_address(port)?;
        if let Some(mtu) = port.config.mtu.filter(|mtu| *mtu > MTU_MAX) {
            return Err(format!(
                "a vmxnet3 card has no MTU of {mtu}; use mtu={MTU_MAX} or less"
            ));
        }
        match self.rings {
            Some(rings) if !rings.is_multiple_of(RINGS_STEP) => Err(format!(
                "rings={rings} is no multiple of {RINGS_STEP}, as the card needs; use {}",
                rings.next_multiple_of(RINGS_STEP)
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
        let unset = Vmxnet3Config::default();
        let config = Vmxnet3Config {
            queues: port.config.queues,
            interrupts: self.interrupts,
            rings: self.rings.unwrap_or(unset.rings),
            // A lesser one is the plan's limit; the card has none.
            mtu: port.config.mtu.unwrap_or_default().max(unset.mtu),
            offload: port.config.offload,
            promiscuous: !self.own_only,
        };
        Vmxnet3::open(Vfio::open(port.name)?, &config)
    }
}

// The texts of the keys have these numbers.
const _: () = assert!(RINGS == 512 && RINGS_MIN == 96 && RINGS_MAX == 4096 && RINGS_STEP == 32);
