//! Sets of offloads.

use super::key::{Takes, Value, Wrong};
use crate::packet::Meta;
use packtrain_offload::layout::{Layout, Network};
use packtrain_offload::limits::UDP_GSO_SEGMENTS_MAX;
use packtrain_offload::offload::{ChecksumState, Ecn, GsoKind};
use packtrain_offload::virtio_net::Accept;
use std::fmt;

/// A set of offloads: those of a device, those requested, or those of the plan.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Features(u16);

impl Features {
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// Partial transport checksums over IPv4.
    pub const CSUM4: Self = Self(1);
    /// Partial transport checksums over IPv6.
    pub const CSUM6: Self = Self(1 << 1);
    /// GSO packets of TCP over IPv4.
    pub const TSO4: Self = Self(1 << 2);
    /// GSO packets of TCP over IPv6.
    pub const TSO6: Self = Self(1 << 3);
    /// TCP GSO packets whose first wire packet carries CWR.
    pub const TSO_ECN: Self = Self(1 << 4);
    /// GSO packets of UDP over IPv4.
    pub const USO4: Self = Self(1 << 5);
    /// GSO packets of UDP over IPv6.
    pub const USO6: Self = Self(1 << 6);
    /// VLAN tags outside of the packet's bytes.
    pub const VLAN: Self = Self(1 << 7);
    /// The device merges received packets (LRO or hardware GRO).
    pub const LARGE_RECEIVE: Self = Self(1 << 8);

    /// Both checksums.
    pub const CSUM: Self = Self(Self::CSUM4.0 | Self::CSUM6.0);
    /// The three TCP features, without the checksums that they need.
    pub const TSO: Self = Self(Self::TSO4.0 | Self::TSO6.0 | Self::TSO_ECN.0);
    /// The two UDP features, without the checksums that they need.
    pub const USO: Self = Self(Self::USO4.0 | Self::USO6.0);
    /// Every feature.
    pub const ALL: Self = Self((1 << 9) - 1);
    /// A feature that no device offers: packets that need it are handled in software.
    const SOFTWARE: Self = Self(1 << 15);

    /// Each feature with its name, in the order of the plan.
    pub const NAMED: [(Self, &'static str); 9] = [
        (Self::CSUM4, "ipv4-checksum"),
        (Self::CSUM6, "ipv6-checksum"),
        (Self::TSO4, "tso4"),
        (Self::TSO6, "tso6"),
        (Self::TSO_ECN, "tso-ecn"),
        (Self::USO4, "uso4"),
        (Self::USO6, "uso6"),
        (Self::VLAN, "vlan"),
        (Self::LARGE_RECEIVE, "large-receive"),
    ];

    /// The feature of GSO packets of `kind`, without ECN.
    #[must_use]
    pub const fn of(kind: GsoKind) -> Self {
        match kind {
            GsoKind::TcpV4 => Self::TSO4,
            GsoKind::TcpV6 => Self::TSO6,
            GsoKind::UdpV4 => Self::USO4,
            GsoKind::UdpV6 => Self::USO6,
        }
    }

    /// What the virtio-net header of a packet may ask for, of a device with these features.
    pub(crate) fn accept(self) -> Accept {
        let each = Self::ACCEPT.iter().filter(|(row, _)| self.contains(*row));
        each.fold(Accept::NONE, |all, (_, accept)| all | *accept)
    }

    /// The features of packets whose virtio-net header may ask for this.
    pub(crate) fn of_accept(accept: Accept) -> Self {
        let each = Self::ACCEPT.iter().filter(|(_, row)| accept.contains(*row));
        each.fold(Self::NONE, |all, (row, _)| all | *row)
    }

    const ACCEPT: [(Self, Accept); 6] = [
        (Self::CSUM, Accept::CSUM),
        (Self::TSO4, Accept::TSO4),
        (Self::TSO6, Accept::TSO6),
        (Self::TSO_ECN, Accept::TSO_ECN),
        (Self::USO4, Accept::USO4),
        (Self::USO6, Accept::USO6),
    ];

    /// The checksum feature that a packet with this layout needs if its checksum is partial: both
    /// if its IP version is unknown.
    #[must_use]
    pub fn checksum_of(layout: Option<Layout>) -> Self {
        match layout.map(|layout| layout.kind) {
            Some(Network::Ipv4) => Self::CSUM4,
            Some(Network::Ipv6) => Self::CSUM6,
            _ => Self::CSUM,
        }
    }

    /// The features that a device needs for a packet with this metadata, without work in software.
    /// No device offers what a virtio-net header cannot say: CWR on every segment. Nor can it say
    /// that an identification stays the same
    /// ([`Gso::fixed_id`](packtrain_offload::offload::Gso::fixed_id)): a device may count it up,
    /// since it has no meaning with DF (RFC 6864 §4.1). Software keeps it.
    #[must_use]
    #[inline]
    pub fn needed_by(meta: &Meta) -> Self {
        let mut needed = Self::NONE;
        if let Some(gso) = meta.gso {
            needed |= Self::of(gso.kind);
            if gso.ecn() == Ecn::Cwr {
                needed |= Self::TSO_ECN;
            }
            let datagrams_max = UDP_GSO_SEGMENTS_MAX as u16;
            let is_too_many = !gso.kind.is_tcp() && meta.wire_packets > datagrams_max;
            if !gso.fits_virtio() || is_too_many {
                needed |= Self::SOFTWARE;
            }
        }
        if meta.gso.is_some() || matches!(meta.checksum, ChecksumState::Partial { .. }) {
            needed |= Self::checksum_of(meta.layout);
        }
        if meta.vlan.is_some() {
            needed |= Self::VLAN;
        }
        needed
    }

    /// The values of `offload=`.
    pub(crate) const TAKES: &'static str = "auto|off or some of csum, tso, uso, ipv4-checksum, \
         ipv6-checksum, tso4, tso6, tso-ecn, uso4, uso6, vlan, large-receive joined by +";

    /// The features of a word of `offload=`.
    fn of_word(word: &str) -> Option<Self> {
        Some(match word {
            "csum" => Self::CSUM,
            "tso" => Self::TSO | Self::CSUM,
            "uso" => Self::USO | Self::CSUM,
            _ => {
                let mut named = Self::NAMED.iter();
                named.find(|(_, name)| *name == word)?.0
            }
        })
    }

    /// The set with everything that its features need, so that `offload=tso4` has an effect.
    fn with_needs(self) -> Self {
        let mut all = self;
        let tso = Self::TSO4 | Self::TSO6;
        if all.contains(Self::TSO_ECN) && all.intersection(tso).is_empty() {
            all |= tso;
        }
        let ipv4 = Self::TSO4 | Self::USO4;
        let ipv6 = Self::TSO6 | Self::USO6;
        for (needing, needed) in [(ipv4, Self::CSUM4), (ipv6, Self::CSUM6)] {
            if !all.intersection(needing).is_empty() {
                all |= needed;
            }
        }
        all
    }

    /// The set without features whose requirements are not in it: GSO needs the checksum of its IP
    /// version, ECN needs one of the TSOs.
    #[must_use]
    pub const fn consistent(self) -> Self {
        let mut set = self;
        if !set.contains(Self::CSUM4) {
            set = set.without(Self(Self::TSO4.0 | Self::USO4.0));
        }
        if !set.contains(Self::CSUM6) {
            set = set.without(Self(Self::TSO6.0 | Self::USO6.0));
        }
        if !set.contains(Self::TSO4) && !set.contains(Self::TSO6) {
            set = set.without(Self::TSO_ECN);
        }
        set
    }

    /// The name of a single feature; "several" for a set.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMED
            .iter()
            .find(|(feature, _)| *feature == self)
            .map_or("several", |(_, name)| name)
    }

    /// The set as bits, for a counter. [`Features::from_bits`] reverses it.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0 as u64
    }

    /// The set of [`Features::bits`]; unknown bits are ignored.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits as u16 & Self::ALL.0)
    }

    /// The names of the features in the set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMED
            .into_iter()
            .filter(move |(f, _)| self.contains(*f))
            .map(|(_, name)| name)
    }
}

packtrain_offload::bit_set!(Features);

/// As in `offload=`: `auto`, `off`, or words joined by `+`. The features that they need are added.
impl Value for Features {
    fn read(text: &str, _: Takes) -> Result<Self, Wrong> {
        match text {
            "auto" => return Ok(Self::ALL),
            "off" => return Ok(Self::NONE),
            _ => {}
        }
        let mut words = text.split('+').map(Self::of_word);
        let all = words.try_fold(Self::NONE, |all, word| Some(all | word?));
        all.map(Self::with_needs).ok_or(Wrong::Value)
    }

    fn text(&self, _: Takes) -> String {
        if *self == Self::ALL {
            "auto".to_owned()
        } else if self.is_empty() {
            "off".to_owned()
        } else {
            self.names().collect::<Vec<_>>().join("+")
        }
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}
