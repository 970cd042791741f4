//! Offloads as the bits by which they are negotiated: `TUNSETOFFLOAD`, and a virtio device's
//! features.

use super::Accept;

/// The offloads that are negotiated, in the order of the three tables of bits.
const EACH: [Accept; 6] = [
    Accept::CSUM,
    Accept::TSO4,
    Accept::TSO6,
    Accept::TSO_ECN,
    Accept::USO4,
    Accept::USO6,
];

/// `TUN_F_CSUM`, `TUN_F_TSO4`, `TUN_F_TSO6`, `TUN_F_TSO_ECN`, and `TUN_F_USO4 | TUN_F_USO6`, which
/// Linux takes only together (`set_offload()` in `drivers/net/tun.c`).
const TUN: [u64; 6] = [0x01, 0x02, 0x04, 0x08, 0x60, 0x60];

/// `VIRTIO_NET_F_CSUM`, `HOST_TSO4`, `HOST_TSO6`, `HOST_ECN`, `HOST_USO` (virtio 1.3 §5.1.3).
const HOST: [u64; 6] = [1 << 0, 1 << 11, 1 << 12, 1 << 13, 1 << 56, 1 << 56];

/// `VIRTIO_NET_F_GUEST_CSUM`, `GUEST_TSO4`, `GUEST_TSO6`, `GUEST_ECN`, `GUEST_USO4`, `GUEST_USO6`.
const GUEST: [u64; 6] = [1 << 1, 1 << 7, 1 << 8, 1 << 9, 1 << 54, 1 << 55];

/// Bits, and back.
///
/// The bits of a set are always consistent, and so is the set of any bits: GSO needs unfinished
/// checksums, and ECN needs TSO of an IP version (virtio 1.2 §5.1.3.1; Linux refuses other
/// arguments of `TUNSETOFFLOAD`). What lacks something that it needs is left out. A bit that stands
/// for both IP versions is set if both are accepted. [`DATA_VALID`](Self::DATA_VALID) has no bit.
///
/// ```
/// use packtrain_offload::virtio_net::Accept;
///
/// // A guest negotiated these: CSUM, HOST_TSO4 and MRG_RXBUF. So does the TAP behind it.
/// let guest = Accept::from_host_features(1 << 0 | 1 << 11 | 1 << 15);
/// assert_eq!(guest, Accept::CSUM | Accept::TSO4);
/// assert_eq!(guest.tun_flags(), 0x03);
/// ```
impl Accept {
    /// What to try with `TUNSETOFFLOAD`, from most to least: the kernel accepts or refuses an
    /// argument as a whole. All of it (Linux 6.2), without USO, without ECN, checksums only, and
    /// nothing. The first that is accepted is what packets from the kernel may ask for.
    ///
    /// ```
    /// use packtrain_offload::virtio_net::Accept;
    ///
    /// # // Linux before 6.2.
    /// # let ioctl = |flags: u32| (flags & 0x60 == 0).then_some(()).ok_or(22);
    /// // `ioctl` is `ioctl(fd, TUNSETOFFLOAD, flags)`.
    /// let mut attempts = Accept::TUN_ATTEMPTS.into_iter();
    /// let accepted = attempts.find(|accept| ioctl(accept.tun_flags()).is_ok());
    /// assert_eq!(accepted.map(Accept::tun_flags), Some(0x0f));
    /// ```
    pub const TUN_ATTEMPTS: [Self; 5] = {
        let all = Self::ALL.without(Self::DATA_VALID);
        let tso = all.without(Self::USO4.union(Self::USO6));
        [all, tso, tso.without(Self::TSO_ECN), Self::CSUM, Self::NONE]
    };

    /// The argument of `TUNSETOFFLOAD`: what packets from the kernel may ask for.
    #[must_use]
    pub const fn tun_flags(self) -> u32 {
        self.bits(&TUN) as u32
    }

    /// The offloads of an argument of `TUNSETOFFLOAD`.
    #[must_use]
    pub const fn from_tun_flags(flags: u32) -> Self {
        Self::of_bits(flags as u64, &TUN)
    }

    /// The feature bits of a virtio device for what packets from its driver may ask for:
    /// `VIRTIO_NET_F_CSUM` and `HOST_*`.
    #[must_use]
    pub const fn host_features(self) -> u64 {
        self.bits(&HOST)
    }

    /// What packets from a driver with these features may ask for. Other bits are ignored.
    #[must_use]
    pub const fn from_host_features(features: u64) -> Self {
        Self::of_bits(features, &HOST)
    }

    /// The feature bits of a virtio device for what packets to its driver may ask for:
    /// `VIRTIO_NET_F_GUEST_*`.
    #[must_use]
    pub const fn guest_features(self) -> u64 {
        self.bits(&GUEST)
    }

    /// What packets to a driver with these features may ask for. Other bits are ignored.
    #[must_use]
    pub const fn from_guest_features(features: u64) -> Self {
        Self::of_bits(features, &GUEST)
    }

    /// The set without offloads that need others which are not in it.
    #[must_use]
    pub const fn consistent(self) -> Self {
        let mut set = self;
        if !set.contains(Self::CSUM) {
            set = set.intersection(Self::DATA_VALID);
        }
        if set.intersection(Self::TSO4.union(Self::TSO6)).is_empty() {
            set = set.without(Self::TSO_ECN);
        }
        set
    }

    const fn bits(self, table: &[u64; 6]) -> u64 {
        let set = self.consistent();
        let (mut of_set, mut of_others, mut at) = (0, 0, 0);
        while at < EACH.len() {
            if set.contains(EACH[at]) {
                of_set |= table[at];
            } else {
                of_others |= table[at];
            }
            at += 1;
        }
        of_set & !of_others
    }

    const fn of_bits(bits: u64, table: &[u64; 6]) -> Self {
        let (mut set, mut at) = (Self::NONE, 0);
        while at < EACH.len() {
            if bits & table[at] == table[at] {
                set = set.union(EACH[at]);
            }
            at += 1;
        }
        set.consistent()
    }
}
