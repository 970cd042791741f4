//! How a device was opened, and what is to be merged for it.

use crate::coalesce::{Config, Mode, Semantics};
use crate::layout::TunnelPorts;
use crate::limits::IP_LENGTH_MAX;
use crate::offload::{ChecksumState, LinkType};
use crate::virtio_net::{Accept, HeaderLen};

/// How a TUN or TAP was opened, and what is to be merged for it. Made with [`Tun::new`] or
/// [`Tun::tap`], then changed field by field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tun {
    /// What packets start with: [`LinkType::RawIp`] for a TUN, [`LinkType::Ethernet`] for a TAP.
    pub link: LinkType,
    /// The form of the header: [`HeaderLen::Legacy`], 10 bytes, unless `TUNSETVNETHDRSZ` was
    /// called.
    pub header: HeaderLen,
    /// What was given to `TUNSETOFFLOAD`.
    pub accept: Accept,
    /// TCP segments are merged.
    pub merge_tcp: bool,
    /// UDP datagrams are merged. The kernel takes such writes since 6.2, and refuses them with
    /// `EINVAL` before.
    pub merge_udp: bool,
    /// UDP datagrams to or from these ports are not merged: a kernel before 6.9 loses them
    /// ([`Config::tunnels`]).
    pub tunnels: Option<TunnelPorts>,
    /// IPv4 packets that all have the same identification are merged too, if they have DF; some
    /// systems send TCP with an identification of 0 always. Off, since a virtio-net header cannot
    /// say it, so that who cuts the packet again counts up. The identification has no meaning
    /// then (RFC 6864 §4.1), but the bytes are not the same.
    pub merge_fixed_id: bool,
    /// The transport checksums of outgoing packets are known to be right and are not verified.
    /// A wrong one that is merged all the same becomes a right one over wrong bytes: an
    /// authenticated tunnel vouches for its peer, not for what the peer forwards.
    pub verified: bool,
    /// The longest IP datagram to make, in bytes: at most 65 535.
    pub max_bytes: u32,
}

impl Tun {
    /// A TUN with `IFF_NO_PI | IFF_VNET_HDR` and a 10-byte header. Everything is merged but what
    /// [`merge_fixed_id`](Self::merge_fixed_id) and [`tunnels`](Self::tunnels) say; checksums are
    /// verified.
    #[must_use]
    pub const fn new(accept: Accept) -> Self {
        Self {
            link: LinkType::RawIp,
            header: HeaderLen::Legacy,
            accept,
            merge_tcp: true,
            merge_udp: true,
            tunnels: Some(TunnelPorts::ASSIGNED),
            merge_fixed_id: false,
            verified: false,
            max_bytes: IP_LENGTH_MAX as u32,
        }
    }

    /// The same for a TAP: packets start with an Ethernet header.
    #[must_use]
    pub const fn tap(accept: Accept) -> Self {
        Self {
            link: LinkType::Ethernet,
            ..Self::new(accept)
        }
    }

    /// The coalescer's configuration for so many flows at once.
    pub(super) fn config(&self, flows: usize) -> Config {
        let mut config = Config::new(Semantics::Reversible, self.link, flows as u32);
        config.mode = Mode::Hash;
        config.tcp = self.merge_tcp;
        config.udp = self.merge_udp;
        config.tunnels = self.tunnels;
        config.fixed_id = self.merge_fixed_id;
        config.max_bytes = self.max_bytes;
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
