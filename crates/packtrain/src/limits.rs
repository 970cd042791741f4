//! All bounds of the framework, with units in their names. The compiler checks their relations.

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
/// Most segments one packet may have. A 64 KiB packet has 37 in small frames and 257 in the
/// smallest pieces, to which headers may be added.
pub const SEGMENTS_MAX: usize = 288;
/// The fewest bytes of a packet in each small frame that it is received into.
pub const RX_PIECE_BYTES_MIN: usize = 256;
/// The least MTU: every IPv4 module forwards as many bytes uncut (RFC 791, section 3.2).
pub const MTU_MIN: usize = 68;
/// A TX queue that is used asks for the MTU of its device this often.
pub const MTU_INTERVAL: Duration = Duration::from_millis(100);
/// The least limit on the GSO packets of an interface. Linux takes none as short as its longest
/// headers of TCP (`MAX_TCP_HEADER`), a few hundred bytes.
pub const GSO_BYTES_MIN: usize = 1024;
/// Most packets in one burst.
pub const BURST_PACKETS_MAX: usize = 64;
/// A burst also ends after this many bytes, so that its packets stay in the cache.
pub const BURST_BYTES_MAX: usize = 128 * 1024;
/// A burst also ends with a packet of this many bytes. It fills most of the L1 cache, and another
/// such packet would evict it before it is copied on.
pub const BURST_LAST_BYTES: usize = 32 * 1024;
/// Packets that a TX queue may hold before its device.
pub const TX_STAGED_PACKETS_MAX: usize = BURST_PACKETS_MAX;
/// The most pending descriptors (segments) before the doorbell is rung: a burst of packets with a
/// segment for headers and one for payload each, so that a burst needs one doorbell. That is an
/// eighth of a ring of 1024; iflib defers a sixteenth. One packet may exceed it by its segments.
pub const TX_DOORBELL_DESCRIPTORS_MAX: usize = 2 * BURST_PACKETS_MAX;
/// The longest time that descriptors are pending while the caller expects more packets: the time
/// that a gigabit link needs for four frames of 1500 bytes.
pub const TX_DOORBELL_HOLD_MAX: Duration = Duration::from_micros(50);
/// Completed packets are collected after this many accepted packets at the latest (DPDK's usual
/// `tx_free_thresh`).
pub const TX_RECLAIM_PACKETS: usize = 32;
/// Completed packets are also collected while less than this fraction of the slots is free.
pub const TX_RECLAIM_FREE_FRACTION: usize = 4;
/// The first byte limit of a device, before any completion: one burst.
pub const TX_BYTES_START: u64 = BURST_BYTES_MAX as u64;
/// The largest byte limit of a device: a ring full of GSO packets.
pub const TX_BYTES_MAX: u64 = 4096 * PACKET_BYTES_MAX as u64;
/// The longest latency that the byte limit assumes for a packet that finds the device empty. A
/// longer one means that the process was stopped.
pub const TX_LATENCY_MAX: Duration = Duration::from_millis(10);
/// The time that bytes must be in excess before the limit shrinks by them (`slack_hold_time` of
/// Linux's dynamic queue limits).
pub const TX_BYTES_HOLD: Duration = Duration::from_secs(1);
/// A TX queue with pending work that waits for a wake-up polls its device after this time: an
/// interrupt may be lost. Longer than any interrupt delay, shorter than a retransmission timeout.
pub const TX_POLL_AFTER: Duration = Duration::from_millis(100);
/// A device with work and no progress for this time is reported as hung, and reset if it supports
/// that. iflib needs two ticks of half a second, Linux 5 s by default. It is shorter than the time
/// that a run has to drain, so that the queue is reset within it.
pub const TX_HUNG_AFTER: Duration = Duration::from_secs(1);
/// A full device gets packets again once about this fraction of its slots is free: a quarter of a
/// ring, as in other drivers, and at least two packets of the largest kind.
pub const TX_ROOM_FRACTION: usize = 4;
/// Wire packets that a full device completes while its worker sleeps: a burst, so that each packet
/// costs a sixty-fourth of a context switch.
pub const TX_REST_PACKETS: u64 = BURST_PACKETS_MAX as u64;
/// The longest time between polls of a device that has packets and does not count completions. A
/// thousand polls a second cost little, and an estimated rate may be outdated.
pub const TX_REST_MAX: Duration = Duration::from_millis(1);
/// Packets up to this length in a large frame are copied to a small one (iflib's
/// `IFLIB_RX_COPY_THRESH`).
pub const RX_COPY_BREAK_BYTES: usize = 128;
/// Large frames that an RX queue posts to receive whole packets: a burst, so that the budget ends a
/// poll of large packets. Frames that are never used cost no memory.
pub const RX_LARGE_POSTED: usize = BURST_PACKETS_MAX;
/// The most packets that the coalescing stage of an RX queue holds, before merging, unless a port
/// is configured otherwise. With one more burst, it flushes all of them. Also the most flows that
/// it holds at once.
pub const COALESCE_PACKETS: usize = 1024;
/// The most packets that it may be configured to hold: as many as can be sorted at once. They take
/// 128 MiB for each RX queue.
pub const COALESCE_PACKETS_MAX: usize = 65_536;
/// The most packets in large frames that it holds, before one more burst: with 9000 bytes each,
/// four GSO packets.
pub const COALESCE_LARGE_MAX: usize = 32;
/// The longest time that it holds a packet while more arrive. Long enough to fill a GSO packet at
/// 2 µs for each packet, and shorter than the delay of a delayed ACK.
pub const COALESCE_HOLD_MAX: Duration = Duration::from_micros(200);
/// The most packets in large frames that a device holds back, before one more burst, such as the
/// fault injector for a delay: with 64 KiB each, 670 Mbit/s at 100 ms.
pub const RX_HELD_LARGE_MAX: usize = 128;
/// The most slots of a ring.
pub const RING_SLOTS_MAX: usize = 32_768;
/// Slots of the ring of a shared TX queue: eight bursts, twice the budget of a producer that
/// drains.
pub const TX_RING_PACKETS: usize = 512;
/// Slots of the ring of a shared TX queue that are withheld from applications for each lane: a
/// burst, so that applications at saturation cannot stop forwarding. Among several ports fewer, if
/// the lanes would have more than half of the slots.
pub const RING_SLOTS_PER_LANE: usize = BURST_PACKETS_MAX;
/// Most queues of one port (`MAX_TAP_QUEUES` in Linux).
pub const QUEUES_MAX: usize = 256;
/// Most ports of one session, as many as Linux's bridge has (`BR_MAX_PORTS`).
pub const PORTS_MAX: usize = 1024;
/// The most bytes of frames that wait for a TX queue in a session among several ports, in its ring
/// and in front of its device; `engine/assemble.rs` has the argument. A small frame counts 2 KiB
/// and a large one 68 KiB, however few bytes it has. That is 120 GSO packets in large frames, and
/// 65 merged ones of 64 KiB in pieces: at 10 Gbit/s more than 3 ms.
pub const EGRESS_FRAME_BYTES_MAX: usize = 8 << 20;
/// Segments that the framework itself may add to a packet (one header segment in front). The
/// advertised limits are lower by it, unless a port is configured otherwise.
pub const SEGMENTS_FRAMEWORK_MAY_ADD: usize = 1;
/// The most segments by which a user may lower the advertised limit: more would only merge packets
/// of fewer pieces.
pub const SEGMENT_HEADROOM_MAX: usize = 16;
/// One packet may use at most this fraction of a descriptor ring (iflib's
/// `MAX_SINGLE_PACKET_FRACTION`), so that no ring is too small for a packet.
pub const RING_FRACTION_PER_PACKET: usize = 12;

/// The most changes of the plan that a session keeps, the last ones; it counts all.
pub const CHANGES_KEPT: usize = 64;

const _: () = assert!(LARGE_FRAME_BYTES >= HEADROOM_BYTES + PACKET_BYTES_MAX);
const _: () = assert!(SMALL_FRAME_BYTES >= HEADROOM_BYTES + offload::HEADER_BYTES_MAX);
const _: () = assert!(RX_PIECE_BYTES_MIN <= SMALL_FRAME_BYTES - HEADROOM_BYTES);
const _: () =
    assert!(SEGMENTS_MAX >= PACKET_BYTES_MAX.div_ceil(RX_PIECE_BYTES_MIN) + SEGMENT_HEADROOM_MAX);
const _: () = assert!(RX_COPY_BREAK_BYTES <= SMALL_FRAME_BYTES - HEADROOM_BYTES);
const _: () = assert!(2 * TX_ROOM_FRACTION <= RING_FRACTION_PER_PACKET);
const _: () = assert!(TX_REST_MAX.as_nanos() < TX_POLL_AFTER.as_nanos());
const _: () = assert!(TX_POLL_AFTER.as_nanos() < TX_HUNG_AFTER.as_nanos());
const _: () = assert!(TX_BYTES_START >= PACKET_BYTES_MAX as u64 && TX_BYTES_START < TX_BYTES_MAX);
const _: () = assert!(COALESCE_PACKETS <= COALESCE_PACKETS_MAX);
const _: () = assert!(COALESCE_PACKETS_MAX <= packtrain_offload::sort::ITEMS_MAX);
const _: () = assert!(LARGE_FRAME_BYTES.is_multiple_of(4096));
const _: () = assert!(RING_SLOTS_MAX.is_power_of_two());
const _: () = assert!(TX_RING_PACKETS > 2 * RING_SLOTS_PER_LANE);
const _: () = assert!(TX_RING_PACKETS >= BURST_PACKETS_MAX && TX_RING_PACKETS <= RING_SLOTS_MAX);
