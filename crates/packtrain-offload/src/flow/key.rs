//! The key of a flow.

use super::rss::{HashType, RssInput};
use crate::layout::{Layout, Network, Transport};
use crate::limits::{ETHERNET_HEADER_BYTES, VLAN_TAG_BYTES, VLAN_TAGS_MAX};
use crate::wire::{ether, ipv4, ipv6};

/// 64-bit words of a [`FlowKey`].
pub const FLOW_KEY_WORDS: usize = 6;

/// The fields that all packets of a flow share, as words to compare and to hash.
///
/// Two packets belong to one flow if and only if their keys are equal. The keys of IPv4 packets
/// differ in the first three words only; the other three are 0.
///
/// See the [module](super) for what belongs to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// 0: IPv4 source and destination, the upper half of an IPv6 source, or the Ethernet source.
    ///
    /// 1: source port (16 bits from 48), destination port (from 32), kind (from 24: 4, 6 or
    /// 0), protocol (from 16), tags (from 8), fragment (bit 0).
    ///
    /// 2: outer VLAN identifier (from 48), inner one (from 32), the caller's `extra`.
    ///
    /// 3 to 5: the rest of an IPv6 source, and the destination. Word 4 is the Ethernet destination
    /// or 0 otherwise.
    pub(super) words: [u64; FLOW_KEY_WORDS],
}

const PORTS_SHIFT: u32 = 32;
const KIND_SHIFT: u32 = 24;
const PROTOCOL_SHIFT: u32 = 16;
const VLANS_SHIFT: u32 = 8;
const FRAGMENT: u64 = 1;
const KIND_IPV4: u64 = 4 << KIND_SHIFT;
const KIND_IPV6: u64 = 6 << KIND_SHIFT;
const KIND_MASK: u64 = 0xff << KIND_SHIFT;

impl FlowKey {
    /// The key of a packet.
    ///
    /// `layout` is the packet's, from [`Layout::parse`]; `headers` its contiguous start, at least
    /// up to `layout.payload`. `extra` is any other value that separates flows: a VLAN tag that the
    /// device removed, a tunnel's network identifier, a port; 0 if there is none.
    ///
    /// `None` if `headers` is shorter than the layout says, or there is neither an IP nor an
    /// Ethernet header.
    #[inline]
    #[must_use]
    pub fn new(layout: &Layout, headers: &[u8], extra: u32) -> Option<Self> {
        let mut words = [0; FLOW_KEY_WORDS];
        let network = usize::from(layout.network);
        match layout.kind {
            Network::Ipv4 => {
                words[0] = be64(headers, network + ipv4::field::SRC)?;
                words[1] = KIND_IPV4;
            }
            Network::Ipv6 => {
                words[0] = be64(headers, network + ipv6::field::SRC)?;
                words[3] = be64(headers, network + ipv6::field::SRC + 8)?;
                words[4] = be64(headers, network + ipv6::field::DST)?;
                words[5] = be64(headers, network + ipv6::field::DST + 8)?;
                words[1] = KIND_IPV6;
            }
            Network::Arp | Network::Other => {
                if network < ETHERNET_HEADER_BYTES {
                    return None;
                }
                words[0] = be64(headers, ether::field::SRC)? >> 16;
                words[4] = be64(headers, ether::field::DST)? >> 16;
            }
        }
        if layout.fragment {
            words[1] |= FRAGMENT;
        } else if layout.is_ip() {
            words[1] |= u64::from(layout.protocol.0) << PROTOCOL_SHIFT;
        }
        if matches!(layout.transport_kind, Transport::Tcp | Transport::Udp) {
            // TCP and UDP alike begin with the two ports.
            let ports = be32(headers, layout.transport.into())?;
            words[1] |= u64::from(ports) << PORTS_SHIFT;
        }
        words[2] = u64::from(extra);
        if layout.vlans != 0 {
            words[1] |= u64::from(layout.vlans) << VLANS_SHIFT;
            words[2] |= vlan_ids(layout, headers)? << 32;
        }
        Some(Self { words })
    }

    /// The words, to compare or to store.
    #[inline]
    #[must_use]
    pub const fn words(&self) -> &[u64; FLOW_KEY_WORDS] {
        &self.words
    }

    /// The key of the opposite direction: addresses and ports exchanged.
    #[inline]
    #[must_use]
    pub const fn reversed(&self) -> Self {
        let [a, meta, vlan, b, c, d] = self.words;
        let ports = (meta >> PORTS_SHIFT) as u32;
        let meta = meta as u32 as u64 | (ports.rotate_left(16) as u64) << PORTS_SHIFT;
        let words = match meta & KIND_MASK {
            KIND_IPV4 => [a.rotate_left(32), meta, vlan, b, c, d],
            KIND_IPV6 => [c, meta, vlan, d, a, b],
            _ => [c, meta, vlan, b, a, d],
        };
        Self { words }
    }

    /// A hash for the caller's own tables.
    ///
    /// It depends only on `seed` and the key, not on the machine. All 64 bits are usable. Each pair
    /// of words, mixed with the seed, is multiplied to 128 bits and folded (as wyhash does).
    /// Without the seed, no method is known to choose keys that collide more often than by chance;
    /// with the seed it is easy. So use a secret seed if outside senders choose the addresses, and
    /// still bound the work for colliding keys: this is no cryptographic hash.
    #[inline]
    #[must_use]
    pub const fn hash(&self, seed: u64) -> u64 {
        /// The binary digits of pi, after the point.
        const PI: [u64; 8] = [
            0x243F_6A88_85A3_08D3,
            0x1319_8A2E_0370_7344,
            0xA409_3822_299F_31D0,
            0x082E_FA98_EC4E_6C89,
            0x4528_21E6_38D0_1377,
            0xBE54_66CF_34E9_0C6C,
            0xC0AC_29B7_C97C_50DD,
            0x3F84_D5B5_B547_0917,
        ];
        let [a, meta, vlan, b, c, d] = self.words;
        let other = seed.rotate_left(32);
        let first = fold(a ^ PI[0] ^ seed, meta ^ PI[1] ^ other);
        let second = fold(vlan ^ PI[2] ^ seed, b ^ PI[3] ^ other);
        let third = fold(c ^ PI[4] ^ seed, d ^ PI[5] ^ other);
        fold(first ^ second ^ third ^ PI[6], seed ^ PI[7])
    }

    /// The bytes that a device would pass to [`Toeplitz`](super::Toeplitz), and the hash type that
    /// it would report.
    ///
    /// Source address, destination address, and for TCP and UDP that is not fragmented source and
    /// destination port, all in network order. Empty if the packet is not IP: devices do not hash
    /// that.
    #[inline]
    #[must_use]
    pub fn rss_input(&self) -> RssInput {
        let [a, meta, _, b, c, d] = self.words;
        let ports = (meta >> PORTS_SHIFT) as u32;
        let protocol = (meta >> PROTOCOL_SHIFT) as u8;
        match (meta & KIND_MASK, protocol) {
            (KIND_IPV4, 6) => RssInput::ipv4(HashType::TcpIpv4, a, Some(ports)),
            (KIND_IPV4, 17) => RssInput::ipv4(HashType::UdpIpv4, a, Some(ports)),
            (KIND_IPV4, _) => RssInput::ipv4(HashType::Ipv4, a, None),
            (KIND_IPV6, 6) => RssInput::ipv6(HashType::TcpIpv6, [a, b, c, d], Some(ports)),
            (KIND_IPV6, 17) => RssInput::ipv6(HashType::UdpIpv6, [a, b, c, d], Some(ports)),
            (KIND_IPV6, _) => RssInput::ipv6(HashType::Ipv6, [a, b, c, d], None),
            _ => RssInput::none(),
        }
    }
}

/// Both halves of the product, together.
#[inline]
pub(crate) const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    (product >> 64) as u64 ^ product as u64
}

/// The identifiers of the tags in band: the outer one from bit 16, the inner one below; of one tag
/// alone, from bit 16.
fn vlan_ids(layout: &Layout, headers: &[u8]) -> Option<u64> {
    let mut ids = 0;
    for tag in 0..usize::from(layout.vlans).min(VLAN_TAGS_MAX) {
        let at = ETHERNET_HEADER_BYTES + tag * VLAN_TAG_BYTES;
        let tag_bytes = headers.get(at..)?;
        let vid = ether::VlanTag::parse(tag_bytes).ok()?.vid();
        ids |= u64::from(vid) << (16 - 16 * tag);
    }
    Some(ids)
}

#[inline]
fn be64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..)?
        .first_chunk()
        .copied()
        .map(u64::from_be_bytes)
}

#[inline]
fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .copied()
        .map(u32::from_be_bytes)
}
