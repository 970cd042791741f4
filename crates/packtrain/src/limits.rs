//! Every bound of the framework in one place, units in the names, relations checked when compiled.

use packtrain_offload::limits as offload;
use std::time::Duration;

/// Bytes of a small frame, the class that can be an AF_XDP UMEM chunk.
pub const SMALL_FRAME_BYTES: usize = 2048;
/// Bytes of a large frame: one whole GSO packet behind full headroom, in whole pages.
pub const LARGE_FRAME_BYTES: usize = 17 * 4096;
/// Bytes kept free in front of received data for link, virtio-net and tunnel headers, and for
/// AF_XDP's own headroom (`XDP_PACKET_HEADROOM`, 256).
pub const HEADROOM_BYTES: usize = 256;
/// Largest packet that may enter: a full IP datagram behind an Ethernet header and two VLAN tags.
pub const PACKET_BYTES_MAX: usize = offload::PACKET_BYTES_MAX;
/// Most segments one packet may have; a 64 KiB packet in small frames has 37.
pub const SEGMENTS_MAX: usize = 128;
/// Most packets in one burst.
pub const BURST_PACKETS_MAX: usize = 64;
/// A burst also ends after so many bytes, so that a train of super-packets stays in cache.
pub const BURST_BYTES_MAX: usize = 128 * 1024;
/// Packets a TX queue may hold between the framework and the device.
pub const TX_STAGED_PACKETS_MAX: usize = BURST_PACKETS_MAX;
/// Packets that the coalescing stage of an RX queue holds at most, counted as they came; with one
/// more burst, all of them are handed on. Also the flows that it can hold at once.
pub const COALESCE_PACKETS_MAX: usize = 1024;
/// Packets in large frames that it holds at most, with one more burst: of 9000 bytes, four
/// super-packets.
pub const COALESCE_LARGE_MAX: usize = 32;
/// How long it holds a packet at most while more keep coming. Long enough to fill a super-packet
/// from a port that takes 2 µs for each packet, and short beside the delay of a delayed ACK.
pub const COALESCE_HOLD_MAX: Duration = Duration::from_micros(200);
/// Most items that the ring in front of a TX queue holds.
pub const RING_SLOTS_MAX: usize = 32_768;
/// Most queues of one port (`MAX_TAP_QUEUES` in Linux).
pub const QUEUES_MAX: usize = 256;
/// Segments that the framework itself may add to a packet after it was built (one header segment
/// in front), held back from what is advertised upwards. iflib learned this the hard way (S0).
pub const SEGMENTS_FRAMEWORK_MAY_ADD: usize = 1;
/// One packet may use at most this fraction of a descriptor ring (iflib's
/// `MAX_SINGLE_PACKET_FRACTION`), so that a ring can never be too small for any packet.
pub const RING_FRACTION_PER_PACKET: usize = 12;

const _: () = assert!(LARGE_FRAME_BYTES >= HEADROOM_BYTES + PACKET_BYTES_MAX);
const _: () = assert!(SMALL_FRAME_BYTES >= HEADROOM_BYTES + offload::HEADER_BYTES_MAX);
const _: () = assert!(SEGMENTS_MAX > PACKET_BYTES_MAX.div_ceil(SMALL_FRAME_BYTES - HEADROOM_BYTES));
const _: () = assert!(LARGE_FRAME_BYTES.is_multiple_of(4096));
const _: () = assert!(RING_SLOTS_MAX.is_power_of_two());
