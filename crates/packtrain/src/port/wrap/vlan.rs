//! Inserts VLAN tags into the bytes of received packets and removes them from transmitted ones, so
//! that the framework sees tagged traffic. For tests.

use super::{PassBad, info_of};
use crate::driver::{
    Accepted, Capabilities, Change, Completed, DeviceError, Driver, Features, QueuePair, Refused,
    Reset, RxBurst, RxDescriptors, Token, TxDescriptors, TxPacket, WrapDriver, WrapRx, WrapTx,
    wraps,
};
use crate::limits::PACKET_BYTES_MAX;
use crate::packet::{Arena, Burst, FrameClass, Packet, PacketError, VlanTag};
use crate::stats::DropReason;
use crate::time::Instant;
use packtrain_offload::layout::Layout;
use packtrain_offload::limits::{ETHERNET_HEADER_BYTES, HEADER_BYTES_MAX, VLAN_TAG_BYTES};
use packtrain_offload::offload::{ChecksumState, LinkType};

const ADDRESSES_BYTES: usize = 12;
/// The bits of a tag's control field that are the VLAN's number (IEEE 802.1Q clause 9.6).
const VLAN_ID: u16 = 0x0fff;
/// Tag protocol of a single and of an inner tag (802.1Q), and of an outer one (802.1ad).
const CUSTOMER: u16 = 0x8100;
const SERVICE: u16 = 0x88a8;

/// One tag, or an outer one and an inner one.
#[derive(Clone, Copy, Debug)]
struct Tags {
    outer: VlanTag,
    inner: Option<VlanTag>,
}

impl Tags {
    const fn bytes(&self) -> usize {
        if self.inner.is_some() {
            2 * VLAN_TAG_BYTES
        } else {
            VLAN_TAG_BYTES
        }
    }

    /// The bytes and the place of the tags in a tagged packet.
    fn places(&self) -> impl Iterator<Item = (usize, VlanTag)> {
        let all = std::iter::once(self.outer).chain(self.inner);
        (ADDRESSES_BYTES..).step_by(VLAN_TAG_BYTES).zip(all)
    }

    fn write(&self, header: &mut [u8]) {
        for (at, tag) in self.places() {
            header[at..at + 2].copy_from_slice(&tag.protocol.to_be_bytes());
            header[at + 2..at + 4].copy_from_slice(&tag.control.to_be_bytes());
        }
    }

    /// Whether a packet that begins with `header` has exactly these tags, with any priority.
    fn are_in(&self, header: &[u8]) -> bool {
        self.places().all(|(at, tag)| {
            header.get(at..at + 4).is_some_and(|found| {
                let protocol = u16::from_be_bytes([found[0], found[1]]);
                let control = u16::from_be_bytes([found[2], found[3]]);
                protocol == tag.protocol && control & VLAN_ID == tag.control & VLAN_ID
            })
        })
    }
}

/// Tags the packets that an Ethernet driver receives, and untags those that it transmits.
///
/// Packets that are too short for an Ethernet header pass unchanged; so do transmitted packets
/// without the tags, and everything on a raw IP link. The wrapper advertises one segment less
/// than the driver (if that takes more than one), as removing tags from shared bytes needs one
/// more.
#[derive(Debug)]
pub struct Vlan<D> {
    inner: D,
    tags: Tags,
}

impl<D: Driver> Vlan<D> {
    /// One 802.1Q tag of VLAN `id` (0 to 4095).
    #[must_use]
    pub const fn single(inner: D, id: u16) -> Self {
        let outer = VlanTag {
            protocol: CUSTOMER,
            control: id & VLAN_ID,
        };
        let tags = Tags { outer, inner: None };
        Self { inner, tags }
    }

    /// An 802.1ad tag of VLAN `outer` in front of an 802.1Q tag of VLAN `inner_id`.
    #[must_use]
    pub const fn double(inner: D, outer: u16, inner_id: u16) -> Self {
        let outer = VlanTag {
            protocol: SERVICE,
            control: outer & VLAN_ID,
        };
        let second = VlanTag {
            protocol: CUSTOMER,
            control: inner_id & VLAN_ID,
        };
        let tags = Tags {
            outer,
            inner: Some(second),
        };
        Self { inner, tags }
    }
}

impl<D: Driver> WrapDriver for Vlan<D> {
    type Rx = VlanRx<D::Rx>;
    type Tx = VlanTx<D::Tx>;
    wraps! { D, self => self.inner }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.inner.capabilities();
        if capabilities.link != LinkType::Ethernet {
            return capabilities;
        }
        let fewer = |segments: usize| segments.saturating_sub(1).max(1);
        // A tag beside the bytes would belong in front of those in the bytes.
        capabilities.rx = capabilities.rx.without(Features::VLAN);
        capabilities.tx = capabilities.tx.without(Features::VLAN);
        capabilities.tx_segments_max = fewer(capabilities.tx_segments_max);
        capabilities.tx_gso_segments_max = fewer(capabilities.tx_gso_segments_max);
        // They are parsed again.
        capabilities.contiguous_headers = true;
        if capabilities.min_packet_bytes > 0 {
            capabilities.min_packet_bytes += self.tags.bytes();
        }
        capabilities
    }

    fn wrap(&mut self, _: usize, (rx, tx): QueuePair<D>, arena: &Arena) -> QueuePair<Self> {
        let ethernet = self.inner.capabilities().link == LinkType::Ethernet;
        let tags = ethernet.then_some(self.tags);
        let rx = VlanRx {
            inner: rx,
            tags,
            stage: Burst::new(),
            arena: arena.clone(),
        };
        (rx, VlanTx { inner: tx, tags })
    }
}

/// The receiving half of a [`Vlan`].
#[derive(Debug)]
pub struct VlanRx<R> {
    inner: R,
    tags: Option<Tags>,
    stage: Burst,
    arena: Arena,
}

/// Puts `tags` behind the addresses of `packet`.
fn push(packet: &mut Packet, tags: &Tags, arena: &Arena) -> Result<(), DropReason> {
    if packet.bytes() < ETHERNET_HEADER_BYTES {
        return Ok(());
    }
    let more = tags.bytes();
    if packet.bytes() + more > PACKET_BYTES_MAX {
        return Err(DropReason::TooLong);
    }
    make_room(packet, more, arena).map_err(|_| DropReason::NoBuffer)?;
    let header = packet
        .headers_mut(ADDRESSES_BYTES + more)
        .map_err(|_| DropReason::NoBuffer)?;
    header.copy_within(more.., 0);
    tags.write(header);
    let meta = packet.meta_mut();
    // The next stage that needs the layout parses the new bytes.
    meta.layout = None;
    if let ChecksumState::Partial { start, .. } = &mut meta.checksum {
        *start = start.saturating_add(more as u16);
    }
    Ok(())
}

/// Adds `more` bytes of any content in front, behind copied headers if there is no headroom.
fn make_room(packet: &mut Packet, more: usize, arena: &Arena) -> Result<(), PacketError> {
    packet.pull(HEADER_BYTES_MAX)?;
    if packet.headroom() < more {
        let mut fresh = arena.packet(FrameClass::Small)?;
        let headers = packet.bytes().min(HEADER_BYTES_MAX);
        packet.copy_to(&mut fresh.tailroom_mut()[..headers]);
        fresh.grow(headers)?;
        fresh.append_shared(packet, headers..packet.bytes())?;
        fresh.copy_meta(packet);
        *packet = fresh;
    }
    packet.prepend(more).map(|_bytes| ())
}

impl<R: RxDescriptors> WrapRx for VlanRx<R> {
    wraps! { R, self => self.inner }

    fn receive(&mut self, now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        let Some(tags) = &self.tags else {
            return self.inner.receive(now, burst);
        };
        let budget = burst.budget();
        let mut bad = PassBad(burst);
        let mut staged = RxBurst::new(&mut self.stage, budget, &mut bad);
        let result = self.inner.receive(now, &mut staged);
        while let Some(mut packet) = self.stage.pop() {
            match push(&mut packet, tags, &self.arena) {
                Ok(()) => {
                    let info = info_of(&packet);
                    burst.push(packet, &info);
                }
                Err(reason) => burst.bad(reason, u64::from(packet.meta().wire_packets)),
            }
        }
        result
    }
}

/// The transmitting half of a [`Vlan`].
#[derive(Debug)]
pub struct VlanTx<T> {
    inner: T,
    tags: Option<Tags>,
}

/// The tags taken off a packet, to be restored if the device refuses it.
struct Popped {
    layout: Option<Layout>,
    checksum: ChecksumState,
    tags: [u8; 2 * VLAN_TAG_BYTES],
}

/// Takes `tags` off `packet` if it has them.
fn pop(packet: &mut Packet, tags: &Tags) -> Result<Option<Popped>, PacketError> {
    let gone = tags.bytes();
    let mut header = [0; ADDRESSES_BYTES + 2 * VLAN_TAG_BYTES];
    let got = packet.copy_to(&mut header[..ADDRESSES_BYTES + gone]);
    if !tags.are_in(&header[..got]) {
        return Ok(None);
    }
    if packet.headers_mut(ADDRESSES_BYTES + gone).is_err() {
        // As much as fits, so that a small packet of one segment keeps one segment.
        packet.pull(packet.bytes().min(FrameClass::Small.data_bytes()))?;
    }
    let bytes = packet.headers_mut(ADDRESSES_BYTES + gone)?;
    let mut popped = Popped {
        layout: None,
        checksum: ChecksumState::None,
        tags: [0; 2 * VLAN_TAG_BYTES],
    };
    popped.tags[..gone].copy_from_slice(&bytes[ADDRESSES_BYTES..]);
    bytes.copy_within(..ADDRESSES_BYTES, gone);
    packet.trim_front(gone);
    let bytes = packet.bytes() as u32;
    let layout = Layout::parse(LinkType::Ethernet, packet.first(), bytes).ok();
    let meta = packet.meta_mut();
    popped.layout = std::mem::replace(&mut meta.layout, layout);
    popped.checksum = meta.checksum;
    if let ChecksumState::Partial { start, .. } = &mut meta.checksum {
        *start = start.saturating_sub(gone as u16);
    }
    Ok(Some(popped))
}

/// Undoes [`pop`].
fn restore(packet: &mut Packet, popped: &Popped, gone: usize) -> Result<(), PacketError> {
    packet.prepend(gone)?;
    let bytes = packet.headers_mut(ADDRESSES_BYTES + gone)?;
    bytes.copy_within(gone.., 0);
    bytes[ADDRESSES_BYTES..].copy_from_slice(&popped.tags[..gone]);
    let meta = packet.meta_mut();
    meta.layout = popped.layout;
    meta.checksum = popped.checksum;
    Ok(())
}

impl<T: TxDescriptors> WrapTx for VlanTx<T> {
    wraps! { T, self => self.inner }

    fn encap(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<Accepted, Refused> {
        let Some(tags) = &self.tags else {
            return self.inner.encap(packet, token);
        };
        let no_buffer = |_: PacketError| Refused::Bad(DropReason::NoBuffer);
        let popped = pop(packet.packet_mut(), tags).map_err(no_buffer)?;
        let result = self.inner.encap(packet, token);
        if let (Err(_), Some(popped)) = (&result, popped) {
            // The tags' bytes are still free in front.
            restore(packet.packet_mut(), &popped, tags.bytes()).map_err(no_buffer)?;
        }
        result
    }

    fn changed(&mut self) -> Change {
        match self.inner.changed() {
            Change::Offloads(all) if self.tags.is_some() => {
                Change::Offloads(all.without(Features::VLAN))
            }
            change => change,
        }
    }

    fn reset(
        &mut self,
        sent: &mut Completed,
        unsent: &mut Completed,
    ) -> Result<Reset, DeviceError> {
        let result = self.inner.reset(sent, unsent);
        // Their tags are removed: they cannot be sent again unchanged, and are counted as lost.
        unsent.drain().for_each(drop);
        result
    }
}
