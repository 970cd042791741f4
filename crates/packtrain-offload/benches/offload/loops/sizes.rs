//! Sizes of the measured work.

/// Packets in a burst.
pub const BURST: usize = 64;
/// Packets in a window.
pub const WINDOW: usize = 1024;
/// Packets of a flow in `Work::Held`, `Work::Windows` and `Work::Acks`.
pub const PER_FLOW: u32 = 4;
/// TCP payload of a full packet: an MTU of 1500, timestamps.
pub const MSS: usize = 1448;
/// Segments of [`MSS`] bytes in the largest IP packet.
pub const SEGMENTS: usize = 45;
/// Bursts that are prepared together for a cold sample.
pub const COLD_BURSTS: usize = 64;
/// Bytes from one frame to the next: usual for receive rings.
pub const FRAME_BYTES: usize = 2048;
/// More than the caches of a core and its share of the last level.
pub const EVICT_BYTES: usize = 96 << 20;
/// Packets of a sample that are cut, each in its own slot. Together with the output they fit in a
/// second-level cache.
pub const SLOTS: usize = 4;
