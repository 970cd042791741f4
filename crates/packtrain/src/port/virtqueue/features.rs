//! The features of a virtio network device, as bits of both ends (virtio 1.2 §5.1.3 and §6). The
//! bits of offloads are those of [`Accept`](packtrain_offload::virtio_net::Accept).

/// The device says how long packets may be.
pub(in crate::port) const MTU: u64 = 1 << 3;
/// The device has an address.
pub(in crate::port) const MAC: u64 = 1 << 5;
/// A packet to the driver may be in several chains.
pub(in crate::port) const MRG_RXBUF: u64 = 1 << 15;
/// The device says whether its link is up.
pub(in crate::port) const STATUS: u64 = 1 << 16;
/// There is a ring for commands, and some of them are about what is received.
pub(in crate::port) const CTRL_VQ: u64 = 1 << 17;
pub(in crate::port) const CTRL_RX: u64 = 1 << 18;
/// Several pairs of rings.
pub(in crate::port) const MQ: u64 = 1 << 22;
pub(in crate::port) const ANY_LAYOUT: u64 = 1 << 27;
/// A chain may be in a table.
pub(in crate::port) const INDIRECT_DESC: u64 = 1 << 28;
pub(in crate::port) const EVENT_IDX: u64 = 1 << 29;
pub(in crate::port) const VERSION_1: u64 = 1 << 32;
/// The device's addresses are those of the platform: of an IOMMU.
pub(in crate::port) const ACCESS_PLATFORM: u64 = 1 << 33;
pub(in crate::port) const RING_PACKED: u64 = 1 << 34;
/// Memory is accessed in the order of the platform's barriers for devices.
pub(in crate::port) const ORDER_PLATFORM: u64 = 1 << 36;
/// A ring can be reset without the others.
pub(in crate::port) const RING_RESET: u64 = 1 << 40;
