//! A vmxnet3 card of this machine, from the keys of a port.

use super::{MODEL, Vmxnet3};
use crate::driver::DeviceError;
use crate::driver::key::{Key, keys};
use crate::driver::options::{Options, Request};
use crate::port::card::{InterruptKind, Model, RINGS, Vfio};

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
        MODEL.check_keys(port, self.rings)
    }

    fn waits(&self) -> bool {
        self.waits
    }

    fn pins_memory(&self) -> bool {
        true
    }

    fn open(&self, port: &Request<'_>) -> Result<Self::Driver, DeviceError> {
        let config = Model::config(port, self.interrupts, self.rings, self.own_only);
        Vmxnet3::open(Vfio::open(port.name)?, &config)
    }
}

// The texts of the keys have these numbers.
const _: () = assert!(RINGS == 512 && MODEL.rings_min == 96);
const _: () = assert!(MODEL.rings_max == 4096 && MODEL.rings_step == 32);
