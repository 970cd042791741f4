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
/// A burst also ends after so many bytes, so that what it holds stays in cache.
pub const BURST_BYTES_MAX: usize = 128 * 1024;
/// And with a packet of so many bytes: it fills most of the nearest cache, and is copied out
/// again from a farther one if another is copied in before.
pub const BURST_LAST_BYTES: usize = 32 * 1024;
/// Packets a TX queue may hold between the framework and the device.
pub const TX_STAGED_PACKETS_MAX: usize = BURST_PACKETS_MAX;
/// Descriptors (segments) that a device is given at most before it is told of them: a burst of
/// packets with a segment for headers and one for payload each, so that a burst needs one doorbell;
/// an eighth of a ring of 1024, of which iflib defers a sixteenth. One packet may go beyond by its
/// own segments.
pub const TX_DOORBELL_DESCRIPTORS_MAX: usize = 2 * BURST_PACKETS_MAX;
/// How long the device is not told of a packet at most, while more are expected: the time that a
/// gigabit link needs for four frames of 1500 bytes.
pub const TX_DOORBELL_HOLD_MAX: Duration = Duration::from_micros(50);
/// Completed packets are collected once so many were given to the device since the last time
/// (DPDK's usual `tx_free_thresh`), if nothing else asks for it sooner.
pub const TX_RECLAIM_PACKETS: usize = 32;
/// And when fewer slots than this fraction are free.
pub const TX_RECLAIM_FREE_FRACTION: usize = 4;
/// Bytes that may be in a device at first, before it is known what keeps it busy: one burst.
pub const TX_BYTES_START: u64 = BURST_BYTES_MAX as u64;
/// Bytes that may be in a device at most, whatever was learned: a whole ring of super-packets.
pub const TX_BYTES_MAX: u64 = 4096 * PACKET_BYTES_MAX as u64;
/// A packet that finds the device empty is taken to be there no longer than this, when the limit is
/// judged: ten times what any device here needs, less than what a stopped process makes of it.
pub const TX_LATENCY_MAX: Duration = Duration::from_millis(10);
/// How long bytes must have been too many before the limit shrinks by them (`slack_hold_time` of
/// Linux's dynamic queue limits).
pub const TX_BYTES_HOLD: Duration = Duration::from_secs(1);
/// A TX queue that waits for a wake-up with work pending asks its device after this time all the
/// same: an interrupt may be lost. Long beside any interrupt delay, short beside a retransmission.
pub const TX_POLL_AFTER: Duration = Duration::from_millis(100);
/// A device that has work and makes no progress for this long is reported as hung, and reset if it
/// can be. iflib needs two ticks of half a second for it, Linux 5 s by default; and it has to be
/// less than the time that a run takes to drain, so that a hung device does not outlive it.
pub const TX_HUNG_AFTER: Duration = Duration::from_secs(1);
/// A full device goes on once this fraction of its slots is free, or nearly: a quarter of a ring,
/// as drivers do, and at least two packets of the worst kind.
pub const TX_ROOM_FRACTION: usize = 4;
/// Wire packets that a full device completes between two polls of a worker that sleeps meanwhile: a
/// burst, so that each packet costs a sixty-fourth of a context switch.
pub const TX_REST_PACKETS: u64 = BURST_PACKETS_MAX as u64;
/// How long a device that has packets, and cannot count what it is done with, is left alone at
/// most: a thousand polls a second cost no CPU, and a rate that was learned may be out of date.
pub const TX_REST_MAX: Duration = Duration::from_millis(1);
/// Packets up to this length that have a large frame for themselves are copied to a small one: as
/// iflib does with what is alone in its buffer (`IFLIB_RX_COPY_THRESH`).
pub const RX_COPY_BREAK_BYTES: usize = 128;
/// Large frames that an RX queue posts to receive whole packets: a burst, so that a poll of packets
/// that no small frame holds ends by its budget. Those that are never used cost no memory.
pub const RX_LARGE_POSTED: usize = BURST_PACKETS_MAX;
/// Packets that the coalescing stage of an RX queue holds at most, counted as they came; with one
/// more burst, all of them are handed on. Also the flows that it can hold at once.
pub const COALESCE_PACKETS_MAX: usize = 1024;
/// Packets in large frames that it holds at most, with one more burst: of 9000 bytes, four
/// super-packets.
pub const COALESCE_LARGE_MAX: usize = 32;
/// How long it holds a packet at most while more keep coming. Long enough to fill a super-packet
/// from a port that takes 2 µs for each packet, and short beside the delay of a delayed ACK.
pub const COALESCE_HOLD_MAX: Duration = Duration::from_micros(200);
/// Packets in large frames that an RX queue holds back at most, with one more burst, as a wrapper
/// that delays does: 64 KiB each, 670 Mbit/s with 100 ms.
pub const RX_HELD_LARGE_MAX: usize = 128;
/// Most items that the ring in front of a TX queue holds.
pub const RING_SLOTS_MAX: usize = 32_768;
/// Packets that the ring in front of a shared TX queue holds: eight bursts, twice what a producer
/// drains for others before it abdicates.
pub const TX_RING_PACKETS: usize = 512;
/// Slots of the ring in front of a shared TX queue that are reserved for each lane: a burst, so
/// that applications that send all the time cannot stop forwarding.
pub const RING_SLOTS_PER_LANE: usize = BURST_PACKETS_MAX;
/// Most queues of one port (`MAX_TAP_QUEUES` in Linux).
pub const QUEUES_MAX: usize = 256;
/// Segments that the framework itself may add to a packet after it was built (one header segment
/// in front), subtracted from what is advertised upwards.
pub const SEGMENTS_FRAMEWORK_MAY_ADD: usize = 1;
/// One packet may use at most this fraction of a descriptor ring (iflib's
/// `MAX_SINGLE_PACKET_FRACTION`), so that a ring can never be too small for any packet.
pub const RING_FRACTION_PER_PACKET: usize = 12;

const _: () = assert!(LARGE_FRAME_BYTES >= HEADROOM_BYTES + PACKET_BYTES_MAX);
const _: () = assert!(SMALL_FRAME_BYTES >= HEADROOM_BYTES + offload::HEADER_BYTES_MAX);
const _: () = assert!(SEGMENTS_MAX > PACKET_BYTES_MAX.div_ceil(SMALL_FRAME_BYTES - HEADROOM_BYTES));
const _: () = assert!(RX_COPY_BREAK_BYTES <= SMALL_FRAME_BYTES - HEADROOM_BYTES);
const _: () = assert!(2 * TX_ROOM_FRACTION <= RING_FRACTION_PER_PACKET);
const _: () = assert!(TX_REST_MAX.as_nanos() < TX_POLL_AFTER.as_nanos());
const _: () = assert!(TX_POLL_AFTER.as_nanos() < TX_HUNG_AFTER.as_nanos());
const _: () = assert!(TX_BYTES_START >= PACKET_BYTES_MAX as u64 && TX_BYTES_START < TX_BYTES_MAX);
const _: () = assert!(LARGE_FRAME_BYTES.is_multiple_of(4096));
const _: () = assert!(RING_SLOTS_MAX.is_power_of_two());
const _: () = assert!(TX_RING_PACKETS > 2 * RING_SLOTS_PER_LANE);
const _: () = assert!(TX_RING_PACKETS >= BURST_PACKETS_MAX && TX_RING_PACKETS <= RING_SLOTS_MAX);
