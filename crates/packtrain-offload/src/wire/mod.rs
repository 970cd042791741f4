//! Wire formats: checked views of header bytes, read in place.
//!
//! Each protocol has a `Header` that borrows bytes. `parse` takes a slice that starts at the header
//! and may extend beyond it. It checks the header's own format (version, header length) and nothing
//! after it. Length fields about the rest of the packet are checked by
//! [`Layout::parse`](crate::layout::Layout::parse). After `parse` no getter can fail. Numbers are
//! in host order. ARP has its length alone, [`arp::packet_len`].
//!
//! The `field` modules give the offset of each field from the start of its header.

/// Getters of the fields of a header: `name: type at offset;`.
macro_rules! getters {
    ($bytes:tt: $($(#[$doc:meta])* $name:ident: $type:tt at $at:expr;)*) => { $(
        $(#[$doc])*
        #[inline]
        #[must_use]
        pub const fn $name(self) -> $type {
            read!($type, self.$bytes, $at)
        }
    )* };
}

macro_rules! read {
    (u8, $bytes:expr, $at:expr) => {
        $bytes[$at]
    };
    (u16, $bytes:expr, $at:expr) => {
        $crate::wire::get_u16($bytes, $at)
    };
    (u32, $bytes:expr, $at:expr) => {
        $crate::wire::get_u32($bytes, $at)
    };
    (EtherType, $bytes:expr, $at:expr) => {
        EtherType(read!(u16, $bytes, $at))
    };
    (IpProtocol, $bytes:expr, $at:expr) => {
        IpProtocol(read!(u8, $bytes, $at))
    };
    ([u8; $n:literal], $bytes:expr, $at:expr) => {
        $crate::wire::get_bytes($bytes, $at)
    };
}

pub mod arp;
mod error;
pub mod ether;
pub mod geneve;
pub mod gre;
pub mod icmp;
pub mod ipoib;
pub mod ipv4;
pub mod ipv6;
pub mod tcp;
pub mod udp;
pub mod vxlan;

pub use error::ParseError;

/// An Ethernet type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: Self = Self(0x0800);
    /// An Ethernet frame inside GRE or GENEVE ("transparent Ethernet bridging").
    pub const TEB: Self = Self(0x6558);
    /// ARP.
    pub const ARP: Self = Self(0x0806);
    /// 802.1Q customer tag.
    pub const VLAN: Self = Self(0x8100);
    /// IPv6.
    pub const IPV6: Self = Self(0x86DD);
    /// 802.1ad service tag.
    pub const QINQ: Self = Self(0x88A8);
    /// MPLS (RFC 3032).
    pub const MPLS: Self = Self(0x8847);
    /// MPLS with an upstream-assigned label (RFC 5332).
    pub const MPLS_UPSTREAM: Self = Self(0x8848);
    /// A session of PPP over Ethernet (RFC 2516).
    pub const PPPOE_SESSION: Self = Self(0x8864);

    /// True if a VLAN tag follows this type.
    #[inline]
    #[must_use]
    pub const fn is_vlan(self) -> bool {
        matches!(self, Self::VLAN | Self::QINQ)
    }
}

/// An IPv4 protocol or IPv6 next header number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IpProtocol(pub u8);

impl IpProtocol {
    /// IPv6 hop-by-hop options (RFC 8200 §4.3).
    pub const HOP_BY_HOP: Self = Self(0);
    /// ICMP (RFC 792).
    pub const ICMP: Self = Self(1);
    /// IPv4 in IP (RFC 2003).
    pub const IPV4: Self = Self(4);
    /// TCP (RFC 9293).
    pub const TCP: Self = Self(6);
    /// UDP (RFC 768).
    pub const UDP: Self = Self(17);
    /// IPv6 in IP (RFC 2473).
    pub const IPV6: Self = Self(41);
    /// IPv6 routing header (RFC 8200 §4.4).
    pub const ROUTING: Self = Self(43);
    /// IPv6 fragment header (RFC 8200 §4.5).
    pub const FRAGMENT: Self = Self(44);
    /// Generic routing encapsulation (RFC 2784).
    pub const GRE: Self = Self(47);
    /// Encapsulating security payload (RFC 4303).
    pub const ESP: Self = Self(50);
    /// Authentication header (RFC 4302).
    pub const AUTHENTICATION: Self = Self(51);
    /// ICMPv6 (RFC 4443).
    pub const ICMPV6: Self = Self(58);
    /// Nothing follows (RFC 8200 §4.7).
    pub const NO_NEXT_HEADER: Self = Self(59);
    /// IPv6 destination options (RFC 8200 §4.6).
    pub const DESTINATION_OPTIONS: Self = Self(60);

    /// True for the IPv6 extension headers that are walked: hop-by-hop and destination options,
    /// routing, fragment.
    #[inline]
    #[must_use]
    pub const fn is_ipv6_extension(self) -> bool {
        matches!(
            self,
            Self::HOP_BY_HOP | Self::ROUTING | Self::FRAGMENT | Self::DESTINATION_OPTIONS
        )
    }
}

/// Big-endian `u16` at a fixed offset.
#[inline]
const fn get_u16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Big-endian `u32` at a fixed offset.
#[inline]
const fn get_u32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// `M` bytes at a fixed offset.
#[inline]
const fn get_bytes<const N: usize, const M: usize>(bytes: &[u8; N], at: usize) -> [u8; M] {
    let mut out = [0; M];
    out.copy_from_slice(bytes.as_slice().split_at(at).1.split_at(M).0);
    out
}

#[cfg(test)]
mod tests;
