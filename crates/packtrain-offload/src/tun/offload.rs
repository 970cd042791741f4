//! How a device was opened, and what is merged for it.

use crate::coalesce::{Config, Finish, Mode, Semantics};
use crate::layout::TunnelPorts;
use crate::limits::IP_LENGTH_MAX;
use crate::offload::{ChecksumState, LinkType};
use crate::virtio_net::HeaderLen;

/// How a TUN or TAP device was opened, and what is merged for it. It is a configuration: it has no
/// state and no descriptor, and any number of threads may use a copy.
///
/// A preset and the fields that differ:
///
/// ```
/// use packtrain_offload::tun::TunOffload;
///
/// let tun = TunOffload::tun();
/// // For a kernel before 6.2.
/// let old = TunOffload { merge_udp: false, ..TunOffload::tun() };
/// # assert_eq!(tun, TunOffload { merge_udp: true, ..old });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunOffload {
    /// What packets start with: [`LinkType::RawIp`] for a TUN, [`LinkType::Ethernet`] for a TAP.
    pub link: LinkType,
    /// The form of the virtio-net header in front of each packet: [`HeaderLen::Legacy`], 10 bytes,
    /// unless `TUNSETVNETHDRSZ` was called. `None` for a device without one.
    pub header: Option<HeaderLen>,
    /// TCP segments are merged.
    pub merge_tcp: bool,
    /// UDP datagrams are merged. Linux takes such writes since 6.2, and refuses them with `EINVAL`
    /// before. Without a virtio-net header they are never merged: nothing could
    /// separate the datagrams again.
    pub merge_udp: bool,
    /// UDP datagrams to or from these ports are not merged: a kernel before 6.9 loses them
    /// ([`Config::tunnels`]).
    pub tunnels: Option<TunnelPorts>,
    /// IPv4 packets that all have the same identification are merged too, if they have DF; some
    /// systems send TCP with an identification of 0 always. The identification has no meaning
    /// then (RFC 6864 §4.1). A virtio-net header cannot say that it stays the same: segments of
    /// such a packet count up, so their bytes change.
    pub merge_fixed_id: bool,
    /// The transport checksums of outgoing packets are known to be right and are not verified.
    /// If a wrong one is merged, its segments get right checksums over wrong bytes. An
    /// authenticated tunnel vouches for its peer, not for the packets that the peer forwards.
    pub verified: bool,
    /// The longest IP datagram to make, in bytes: at most 65 535.
    pub max_bytes: u32,
}

impl TunOffload {
    /// A TUN of Linux, opened with `IFF_NO_PI | IFF_VNET_HDR`. Merges TCP and UDP, verifies
    /// checksums.
    #[must_use]
    pub const fn tun() -> Self {
        Self {
            link: LinkType::RawIp,
            header: Some(HeaderLen::Legacy),
            merge_tcp: true,
            merge_udp: true,
            tunnels: Some(TunnelPorts::KNOWN),
            merge_fixed_id: false,
            verified: false,
            max_bytes: IP_LENGTH_MAX as u32,
        }
    }

    /// A TAP of Linux, opened with `IFF_NO_PI | IFF_VNET_HDR`: packets start with an Ethernet
    /// header.
    #[must_use]
    pub const fn tap() -> Self {
        Self {
            link: LinkType::Ethernet,
            ..Self::tun()
        }
    }

    /// A device that takes bare IP packets of up to 65 535 bytes for its own system's TCP: WinTUN,
    /// utun behind its four bytes, a TUN without `IFF_VNET_HDR`. TCP is merged, UDP is not, and
    /// checksums are complete. A read is one wire packet. Not for a system that forwards the
    /// packets: a merged one does not fit the next link.
    #[must_use]
    pub const fn headerless() -> Self {
        Self {
            header: None,
            // Nothing segments the packet again, so no identification is restored.
            merge_fixed_id: true,
            ..Self::tun()
        }
    }

    /// Bytes of the virtio-net header.
    pub(super) const fn header_bytes(&self) -> usize {
        match self.header {
            Some(header) => header.bytes(),
            None => 0,
        }
    }

    /// The coalescer's configuration for so many flows at once.
    pub(super) fn config(&self, flows: usize) -> Config {
        let mut config = Config::new(Semantics::Reversible, self.link, flows as u32);
        config.mode = Mode::Hash;
        config.tcp = self.merge_tcp;
        config.udp = self.merge_udp && self.header.is_some();
        config.tunnels = self.tunnels;
        config.fixed_id = self.merge_fixed_id;
        config.max_bytes = self.max_bytes;
        config.finish = match self.header {
            Some(_) => Finish::Partial,
            None => Finish::Complete,
        };
        config
    }

    pub(super) const fn checksum(&self) -> ChecksumState {
        if self.verified {
            ChecksumState::Unnecessary
        } else {
            ChecksumState::None
        }
    }
}

/// [`TunOffload::tun`].
impl Default for TunOffload {
    fn default() -> Self {
        Self::tun()
    }
}
