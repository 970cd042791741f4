//! The input of a device's hash, and the hash type that it reports.

/// The longest input: two IPv6 addresses and two ports.
pub const TOEPLITZ_INPUT_BYTES_MAX: usize = 36;

/// The type of hash that a device reports with the packet (FreeBSD's `M_HASHTYPE_*`, virtio's
/// `VIRTIO_NET_HASH_REPORT_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum HashType {
    /// There is no hash.
    #[default]
    None,
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
