//! Packets of the framework in the rings of a guest.

use super::device::Shared;
use super::features::{Form, accepted, negotiated};
use super::ring::{HEADER_BYTES_MAX, NoPut, Ring};
use crate::driver::{Accepted, Change, Features, Refused, RxInfo};
use crate::limits::PACKET_BYTES_MAX;
use crate::packet::Packet;
use crate::port::vnet::{self, bytes_min, header_of};
use crate::stats::DropReason;
use packtrain_offload::offload::LinkType;
use packtrain_offload::virtio_net::HeaderLen;

/// Packets of a guest are Ethernet frames.
pub(in crate::port) const LINK: LinkType = LinkType::Ethernet;
/// The most bytes of a chain from a guest.
pub(in crate::port) const CHAIN_BYTES_MAX: usize = HEADER_BYTES_MAX + PACKET_BYTES_MAX;

/// Makes a packet of a chain's bytes, its header in front, if it is usable.
///
/// # Errors
///
/// Why it is not.
pub(in crate::port) fn admit(packet: Packet, form: Form) -> Result<(Packet, RxInfo), DropReason> {
    vnet::admit(packet, length(form), accepted(form.features))
}

fn length(form: Form) -> HeaderLen {
    HeaderLen::from_bytes(form.header).unwrap_or(HeaderLen::V1)
}

/// The offloads of packets to a guest.
#[derive(Debug)]
pub(in crate::port) struct Agreed {
    /// What the port offers at most.
    offers: Features,
    /// The feature bits of the guest, and the offloads that they allow.
    features: u64,
    allowed: Features,
    /// The negotiation that the queue knows of.
    negotiation: u64,
}

impl Agreed {
    /// With a guest that has negotiated nothing yet.
    pub(in crate::port) const fn new(offers: Features) -> Self {
        Self {
            offers,
            features: 0,
            allowed: Features::NONE,
            negotiation: 0,
        }
    }

    fn offloads(&self, features: u64) -> Features {
        negotiated(features).intersection(self.offers)
    }

    /// As `TxDescriptors::changed`.
    pub(in crate::port) fn changed(&mut self, shared: &Shared) -> Change {
        let features = shared.negotiated_since(&mut self.negotiation);
        features.map_or(Change::No, |features| {
            Change::Offloads(self.offloads(features))
        })
    }

    /// Puts a packet into the guest's buffers.
    ///
    /// # Errors
    ///
    /// As `TxDescriptors::encap`.
    pub(in crate::port) fn put(
        &mut self,
        ring: &mut Ring,
        packet: &Packet,
    ) -> Result<Accepted, Refused> {
        if packet.bytes() < bytes_min(LINK) {
            return Err(Refused::Bad(DropReason::Truncated));
        }
        if !ring.is_running() {
            return Err(Refused::LinkDown);
        }
        let form = ring.form();
        if self.features != form.features {
            self.features = form.features;
            self.allowed = self.offloads(form.features);
        }
        if !self.allowed.contains(Features::needed_by(packet.meta())) {
            return Err(Refused::Feature(self.offers.without(self.allowed)));
        }
        let mut header = header_of(packet, length(form));
        match ring.put(&mut header, packet.bytes(), packet.segments()) {
            Ok(()) => Ok(Accepted::Complete),
            Err(NoPut::Off) => Err(Refused::LinkDown),
            Err(NoPut::NoBuffers) => Err(Refused::NoDescriptor),
            Err(NoPut::Long) => Err(Refused::Bad(DropReason::TooLong)),
            Err(NoPut::Costly) => Err(Refused::Bad(DropReason::BadDescriptor)),
        }
    }
}
