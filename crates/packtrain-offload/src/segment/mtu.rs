//! Whether a packet fits an MTU, and how to answer its sender if it does not.

use super::Segmenter;
use crate::layout::{Layout, Network};
use core::fmt;

/// A packet, or a segment of a GSO packet, that is longer than an MTU: the data that a forwarder
/// needs to fragment it, or to drop it and notify its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TooBig {
    /// The MTU: the value to report to the sender (RFC 1191 §4, RFC 8201 §4).
    pub mtu: u32,
    /// Bytes of the IP packet, header included, or of the longest segment's IP packet.
    pub ip_bytes: u32,
    /// The required action.
    pub remedy: Remedy,
}

/// The required action for a packet that is longer than an MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Remedy {
    /// IPv4 without DF: a [`Fragmenter`](crate::fragment::Fragmenter) makes it fit (RFC 791 §3.2);
    /// a GSO packet is cut first.
    Fragment,
    /// IPv4 with DF: dropped, and answered with ICMP "fragmentation needed", type 3, code 4, with
    /// the MTU (RFC 1191 §4).
    Icmp,
    /// IPv6, which no router fragments: dropped, and answered with ICMPv6 "packet too big", type 2,
    /// with the MTU (RFC 4443 §3.2, RFC 8200 §5).
    Icmpv6,
    /// Not IP: dropped without an answer.
    Drop,
}

impl TooBig {
    /// The name under which a drop for this reason is counted.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self.remedy {
            Remedy::Fragment => "mtu_not_fragmented",
            Remedy::Icmp => "mtu_df",
            Remedy::Icmpv6 => "mtu_ipv6",
            Remedy::Drop => "mtu_not_ip",
        }
    }

    /// For an IP packet of so many bytes whose header begins at `network`.
    fn check(
        kind: Network,
        headers: &[u8],
        network: u16,
        ip_bytes: u32,
        mtu: u32,
    ) -> Result<(), Self> {
        if ip_bytes <= mtu {
            return Ok(());
        }
        const DF: u8 = 0x40;
        let remedy = match kind {
            // If the flags cannot be read, the packet is not fragmented.
            Network::Ipv4 => match headers.get(usize::from(network) + 6) {
                Some(flags) if flags & DF == 0 => Remedy::Fragment,
                _ => Remedy::Icmp,
            },
            Network::Ipv6 => Remedy::Icmpv6,
            Network::Arp | Network::Other => Remedy::Drop,
        };
        Err(Self {
            mtu,
            ip_bytes,
            remedy,
        })
    }
}

impl fmt::Display for TooBig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, mtu) = (self.ip_bytes, self.mtu);
        write!(f, "{bytes} bytes are longer than the MTU of {mtu}: ")?;
        f.write_str(self.reason())
    }
}

crate::error::error!(TooBig, InvalidInput);

/// Whether a packet that is not cut fits an MTU, which counts from the network header. `headers` is
/// the start of the packet, at least its IP header; link padding does not count.
///
/// For a GSO packet use [`Segmenter::fits_mtu`]: its segments have to fit.
///
/// # Errors
/// [`TooBig`], with the required action.
pub fn fits_mtu(headers: &[u8], layout: &Layout, mtu: u32) -> Result<(), TooBig> {
    let ip_bytes = layout.ip_end.saturating_sub(u32::from(layout.network));
    TooBig::check(layout.kind, headers, layout.network, ip_bytes, mtu)
}

impl Segmenter {
    /// Whether every segment fits an MTU, by [`ip_bytes_max`](Self::ip_bytes_max); in a tunnel the
    /// outer packets. `headers` is the start of the packet that it was made from.
    ///
    /// # Errors
    /// [`TooBig`], with the required action for the whole packet, or, with [`Remedy::Fragment`],
    /// for its segments. Do not silently cut the packet into smaller segments: the sender would not
    /// learn the MTU (`skb_gso_validate_network_len()` and `ip_exceeds_mtu()` in Linux,
    /// `ip_tryforward()` in FreeBSD).
    pub fn fits_mtu(&self, headers: &[u8], mtu: u32) -> Result<(), TooBig> {
        let ip = self.outer.as_ref().map_or(&self.ip, |outer| &outer.ip);
        let kind = if ip.ipv6 {
            Network::Ipv6
        } else {
            Network::Ipv4
        };
        TooBig::check(kind, headers, ip.begin(), self.ip_bytes_max(), mtu)
    }
}
