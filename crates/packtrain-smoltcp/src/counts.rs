//! What a device counts.

/// What a [`TunDevice`](crate::TunDevice) has done. A *wire packet* is a packet of at most the MTU;
/// a large packet stands for several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Reads of the device that returned a packet.
    pub reads: u64,
    /// Packets that smoltcp received, large ones as one.
    pub received: u64,
    /// Large packets among [`received`](Self::received).
    pub received_large: u64,
    /// Wire packets that [`received`](Self::received) stands for.
    pub received_wire: u64,
    /// Reads that were dropped for what their virtio-net header says. If each read is, the device
    /// was opened in another form: see [`VnetError`](packtrain_offload::virtio_net::VnetError).
    pub bad_headers: u64,
    /// Received TCP packets that were dropped: the checksum is wrong, or it cannot be verified
    /// since the packet is an IP fragment.
    pub bad_checksums: u64,
    /// Packets that smoltcp sent, large ones as one.
    pub sent: u64,
    /// Large packets among [`sent`](Self::sent).
    pub sent_large: u64,
    /// Wire packets that [`sent`](Self::sent) stands for.
    pub sent_wire: u64,
    /// Writes that the device took. As many as [`sent`](Self::sent), unless some were refused.
    pub writes: u64,
    /// Writes that the device refused, of large packets and of wire packets. A large packet that is
    /// refused with `EINVAL` or `EIO` is written once more as wire packets, each of which may be
    /// refused too. Other refused packets are lost.
    pub refused: u64,
}
