//! Packets of the framework in the rings of a guest.

use super::device::Shared;
use super::features::{Form, accepted, negotiated};
use super::ring::{Cursor, HEADER_BYTES_MAX, NoPut, Ring};
use crate::driver::{Accepted, Change, Features, Refused, RxInfo};
use crate::limits::PACKET_BYTES_MAX;
use crate::packet::{FrameClass, Packet};
use crate::port::vectored::Posted;
use crate::port::vnet::{self, bytes_min, header_of};
use crate::stats::DropReason;
use packtrain_offload::offload::LinkType;
use packtrain_offload::virtio_net::{HeaderLen, VnetHeader};

/// Packets of a guest are Ethernet frames.
pub(in crate::port) const LINK: LinkType = LinkType::Ethernet;
/// The most bytes of a chain from a guest.
const CHAIN_BYTES_MAX: usize = HEADER_BYTES_MAX + PACKET_BYTES_MAX;

/// The next packet of a guest, or why it is lost; `None` without one.
#[inline]
pub(in crate::port) fn receive(
    ring: &mut Ring,
    posted: &mut Posted,
) -> Option<Result<(Packet, RxInfo), DropReason>> {
    if let Some(plain) = receive_plain(ring, posted) {
        return Some(Ok(plain));
    }
    let bytes = match ring.take(CHAIN_BYTES_MAX)? {
        Err(bad) => return Some(Err(bad.reason())),
        Ok(_) if ring.discards() => {
            ring.consume(0);
            return Some(Err(DropReason::LinkDown));
        }
        Ok(bytes) => bytes,
    };
    let mut cursor = Cursor::default();
    let packet = posted.copy(bytes, |out| ring.read(&mut cursor, out));
    ring.consume(0);
    let form = ring.form();
    let accept = accepted(form.features);
    let packet = packet.and_then(|packet| vnet::admit(packet, length(form), accept));
    Some(packet.inspect_err(|_| ring.charge(bytes)))
}

/// The next packet of a guest, if it is short, its chain is one descriptor, and its header asks for
/// nothing. The header is read once, and the other bytes are passed on as they are. `None` without
/// such a packet: then nothing has changed.
#[inline]
fn receive_plain(ring: &mut Ring, posted: &mut Posted) -> Option<(Packet, RxInfo)> {
    let (form, buffer) = (ring.form(), ring.whole()?);
    let bytes = buffer.bytes().checked_sub(form.header);
    let usual = bytes_min(LINK)..=FrameClass::Small.data_bytes();
    let bytes = bytes.filter(|bytes| usual.contains(bytes))?;
    // 16 bytes are there: a header has at least 10, and a frame at least 14.
    let front = ring.front_of_whole(buffer);
    let header = VnetHeader::decode(&front, length(form)).ok()?;
    let checksum = header.asks_for_nothing(LINK, accepted(form.features), bytes as u32)?;
    let packet = posted.short(bytes, |out| ring.read_whole(buffer, form.header, out))?;
    ring.consume_whole();
    let info = RxInfo {
        checksum,
        ..RxInfo::default()
    };
    Some((packet, info))
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
        if packet.segment_count() == 1 && ring.put_whole(&mut header, packet.first()) {
            return Ok(Accepted::Complete);
        }
        match ring.put(&mut header, packet.bytes(), packet.segments()) {
            Ok(()) => Ok(Accepted::Complete),
            Err(NoPut::Off) => Err(Refused::LinkDown),
            Err(NoPut::NoBuffers) => Err(Refused::NoDescriptor),
            Err(NoPut::Long) => Err(Refused::Bad(DropReason::TooLong)),
            Err(NoPut::Costly) => Err(Refused::Bad(DropReason::BadDescriptor)),
        }
    }
}
