//! The settings that cards have in common, and what a kind of card takes of them.

use super::pci::check_address;
use super::{Bus, InterruptKind, failed, unsupported};
use crate::driver::options::Request;
use crate::driver::{DeviceError, Features};

/// Descriptors of a ring by default.
pub(in crate::port) const RINGS: usize = 512;
/// The MTU of Ethernet, and the default.
pub(in crate::port) const MTU: u32 = 1500;

/// The settings of a card. Its driver says which values it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardConfig {
    /// The most queues; `None` for as many as it has interrupts for.
    pub queues: Option<usize>,
    /// How it raises interrupts; `None` for the first that it has of MSI-X, MSI and INTx.
    pub interrupts: Option<InterruptKind>,
    /// Descriptors of each ring: 512 by default.
    pub rings: usize,
    /// The most bytes of a packet behind its link header and VLAN tags: 1500 by default.
    pub mtu: u32,
    /// Offloads of packets to the card, and from it, at most.
    pub offload: Features,
    /// Receive packets for any address, which a bridge needs. Without, those for its own address,
    /// and all multicast.
    pub promiscuous: bool,
}

impl Default for CardConfig {
    fn default() -> Self {
        Self {
            queues: None,
            interrupts: None,
            rings: RINGS,
            mtu: MTU,
            offload: Features::ALL,
            promiscuous: true,
        }
    }
}

impl CardConfig {
    /// Checksums and TCP segmentation of packets to the card, as far as they are wanted.
    pub(in crate::port) fn tx_offloads(&self) -> Features {
        let all = Features::CSUM | Features::TSO4 | Features::TSO6;
        all.intersection(self.offload).consistent()
    }
}

/// A kind of card: how it is known, and what it takes of the settings.
#[derive(Debug)]
pub(in crate::port) struct Model {
    /// As in `an 82574`.
    pub(in crate::port) name: &'static str,
    /// Vendor and device: the first word of the configuration space.
    pub(in crate::port) id: u32,
    pub(in crate::port) queues_max: usize,
    /// The most queues without an interrupt for each half.
    pub(in crate::port) queues_of_one: usize,
    /// Descriptors of a ring: the least, the most, and what they are a multiple of.
    pub(in crate::port) rings_min: usize,
    pub(in crate::port) rings_max: usize,
    pub(in crate::port) rings_step: usize,
    pub(in crate::port) mtu_max: u32,
}

impl Model {
    /// Checks the keys of a port.
    pub(in crate::port) fn check_keys(
        &self,
        port: &Request<'_>,
        rings: Option<usize>,
    ) -> Result<(), String> {
        check_address(port)?;
        let (name, step, most) = (self.name, self.rings_step, self.mtu_max);
        if let Some(mtu) = port.config.mtu.filter(|mtu| *mtu > most) {
            return Err(format!(
                "{name} has no MTU of {mtu}; use mtu={most} or less"
            ));
        }
        match rings.filter(|rings| !rings.is_multiple_of(step)) {
            Some(rings) => Err(format!(
                "rings={rings} is no multiple of {step}, as the card needs; use {}",
                rings.next_multiple_of(step)
            )),
            None => Ok(()),
        }
    }

    /// The settings of a port with these keys.
    pub(in crate::port) fn config(
        port: &Request<'_>,
        interrupts: Option<InterruptKind>,
        rings: Option<usize>,
        own_only: bool,
    ) -> CardConfig {
        CardConfig {
            queues: port.config.queues,
            interrupts,
            rings: rings.unwrap_or(RINGS),
            // A lesser one is the plan's limit; the card has none.
            mtu: port.config.mtu.unwrap_or_default().max(MTU),
            offload: port.config.offload,
            promiscuous: !own_only,
        }
    }

    /// Checks the settings, and that the card is such a one. Returns its kind of interrupts, and
    /// the most queues.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Unsupported`] if it is another card, has no such interrupt, or the settings
    /// are out of range; [`DeviceError::Failed`] if its configuration cannot be read.
    pub(in crate::port) fn accept(
        &self,
        bus: &impl Bus,
        config: &CardConfig,
    ) -> Result<(InterruptKind, usize), DeviceError> {
        let (name, rings, mtu) = (self.name, config.rings, config.mtu);
        let (least, most, step) = (self.rings_min, self.rings_max, self.rings_step);
        if !(least..=most).contains(&rings) || !rings.is_multiple_of(step) {
            return unsupported(format!(
                "{rings} descriptors are no ring of {name}: give a multiple of {step} from \
                 {least} to {most}"
            ));
        }
        if !(MTU..=self.mtu_max).contains(&mtu) {
            let most = self.mtu_max;
            return unsupported(format!("{name} has no MTU of {mtu}: give {MTU} to {most}"));
        }
        let id = bus.config(0).map_err(failed("read the card's kind"))?;
        if id != self.id {
            let [[vendor, device], [right, kind]] = [id, self.id].map(|id| [id & 0xffff, id >> 16]);
            return unsupported(format!(
                "{} is {vendor:04x}:{device:04x} and not {name} ({right:04x}:{kind:04x}), which \
                 alone this kind of port drives; `lspci -nn` lists the cards",
                bus.name()
            ));
        }
        // A vector for each half.
        let interrupts = InterruptKind::choose(bus, config.interrupts, 2)?;
        let most = match interrupts {
            InterruptKind::Msix => (bus.interrupts(interrupts) / 2).min(self.queues_max),
            InterruptKind::Msi | InterruptKind::Intx => self.queues_of_one,
        };
        let queues = config.queues.unwrap_or(self.queues_max).clamp(1, most);
        Ok((interrupts, queues))
    }
}

/// An Ethernet address from the two registers that have it.
pub(in crate::port) const fn address_of(low: u32, high: u32) -> [u8; 6] {
    let ([a, b, c, d], [e, f, ..]) = (low.to_le_bytes(), high.to_le_bytes());
    [a, b, c, d, e, f]
}
