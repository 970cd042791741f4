//! The input of a device's hash, and the hash type that it reports.

/// The longest input: two IPv6 addresses and two ports.
pub const TOEPLITZ_INPUT_BYTES_MAX: usize = 36;

/// The type of hash that a device reports with the packet (FreeBSD's `M_HASHTYPE_*`; Linux has
/// `PKT_HASH_TYPE_L2`, `L3` and `L4`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum HashType {
    /// There is no hash.
    #[default]
    None,
    /// Ethernet addresses (`PKT_HASH_TYPE_L2`).
    L2,
    /// IPv4 addresses.
    Ipv4,
    /// IPv4 addresses and TCP ports.
    TcpIpv4,
    /// IPv4 addresses and UDP ports.
    UdpIpv4,
    /// IPv6 addresses.
    Ipv6,
    /// IPv6 addresses and TCP ports.
    TcpIpv6,
    /// IPv6 addresses and UDP ports.
    UdpIpv6,
    /// IPv6 addresses, from the home address option or routing header where there is one.
    Ipv6Ex,
    /// The same, and TCP ports.
    TcpIpv6Ex,
    /// The same, and UDP ports.
    UdpIpv6Ex,
    /// A hash of addresses, of unknown algorithm (`PKT_HASH_TYPE_L3`).
    L3,
    /// A hash of addresses and ports, of unknown algorithm (`PKT_HASH_TYPE_L4`).
    L4,
    /// A number of unknown meaning: a queue, a descriptor, a tag of a switch.
    Opaque,
}

impl HashType {
    /// Whether all packets of one flow are guaranteed to have the same hash.
    ///
    /// Only then may packets be grouped or separated by it. An opaque number may change within a
    /// connection: one driver reported such numbers, and sorting by them reordered its segments
    /// (FreeBSD D52989).
    #[inline]
    #[must_use]
    pub const fn is_trusted(self) -> bool {
        !matches!(self, Self::None | Self::Opaque)
    }
}

/// The fields of a packet that a device hashes, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RssInput {
    bytes: [u8; TOEPLITZ_INPUT_BYTES_MAX],
    len: u8,
    hash_type: HashType,
}

impl RssInput {
    #[inline]
    pub(super) fn ipv4(hash_type: HashType, addresses: u64, ports: Option<u32>) -> Self {
        let mut input = Self::none();
        input.bytes[..8].copy_from_slice(&addresses.to_be_bytes());
        input.finish(hash_type, 8, ports)
    }

    #[inline]
    pub(super) fn ipv6(hash_type: HashType, addresses: [u64; 4], ports: Option<u32>) -> Self {
        let mut input = Self::none();
        for (bytes, word) in input.bytes.chunks_exact_mut(8).zip(addresses) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        input.finish(hash_type, 32, ports)
    }

    #[inline]
    pub(super) const fn none() -> Self {
        Self {
            bytes: [0; TOEPLITZ_INPUT_BYTES_MAX],
            len: 0,
            hash_type: HashType::None,
        }
    }

    #[inline]
    fn finish(mut self, hash_type: HashType, len: u8, ports: Option<u32>) -> Self {
        self.hash_type = hash_type;
        self.len = len;
        if let Some(ports) = ports {
            let at = usize::from(len);
            self.bytes[at..at + 4].copy_from_slice(&ports.to_be_bytes());
            self.len += 4;
        }
        self
    }

    /// The bytes: 8 or 12 for IPv4, 32 or 36 for IPv6, none otherwise.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The hash type that a device would report.
    #[inline]
    #[must_use]
    pub const fn hash_type(&self) -> HashType {
        self.hash_type
    }
}
