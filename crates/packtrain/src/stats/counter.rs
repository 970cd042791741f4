//! Per-queue counter blocks. Names follow Linux's netdev queue statistics where one exists, and
//! iflib's otherwise.

use super::cell::Counter;
use super::histogram::{Histogram, HistogramSnapshot, SharedHistogram};
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The queue of a counter block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueId {
    /// The port's index.
    pub port: u16,
    /// The queue's index.
    pub queue: u16,
}

macro_rules! counter_block {
    (
        $(#[$block_doc:meta])* $block:ident, $batches:ident,
        $(#[$snapshot_doc:meta])* $snapshot:ident {
            $($(#[$doc:meta])* $name:ident,)*
        }
    ) => {
        $(#[$block_doc])*
        #[derive(Debug, Default)]
        #[repr(align(64))]
        pub struct $block {
            epoch: AtomicU64,
            /// The queue of this block.
            pub id: QueueId,
            $($(#[$doc])* pub $name: Counter,)*
            /// The sizes of its batches.
            pub batches: $batches,
        }

        $(#[$snapshot_doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $snapshot {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl $block {
            /// The block of queue `id`, with all counters at 0.
            #[must_use]
            pub fn new(id: QueueId) -> Self {
                Self { id, ..Self::default() }
            }

            /// The writer starts to change counters that belong together.
            pub fn begin(&self) {
                self.epoch.store(self.epoch.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
                fence(Ordering::Release);
            }

            /// The writer has finished: readers may take a consistent copy.
            pub fn publish(&self) {
                let epoch = self.epoch.load(Ordering::Relaxed);
                self.epoch.store((epoch | 1).wrapping_add(1), Ordering::Release);
            }

            /// A copy of all counters. It is consistent if the writer pauses long enough between
            /// two batches within a few attempts.
            #[must_use]
            pub fn snapshot(&self) -> $snapshot {
                let mut copy = $snapshot::default();
                for _ in 0..8 {
                    let before = self.epoch.load(Ordering::Acquire);
                    $(copy.$name = self.$name.get();)*
                    fence(Ordering::Acquire);
                    if before % 2 == 0 && before == self.epoch.load(Ordering::Relaxed) {
                        break;
                    }
                    std::hint::spin_loop();
                }
                copy
            }
        }

        impl $snapshot {
            /// Every counter's name, in the order of [`Self::values`].
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name),)*];

            /// Name and value of every counter.
            pub fn values(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// Adds another queue's counters to these.
            pub fn merge(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counter_block! {
    /// The counters of an RX queue. The worker that owns the queue writes them.
    RxCounters, RxBatches,
    /// A copy of [`RxCounters`].
    RxSnapshot {
        /// Packets received: a GSO packet is one. Without bad ones.
        packets,
        /// Bytes of `packets`, link header included, no FCS, no virtio-net header.
        bytes,
        /// Wire packets that `packets` and `bad_packets` account for.
        wire_packets,
        /// Times that the arena had too few frames for the buffers of the device.
        alloc_fail,
        /// Packets whose transport checksum is known to be right (verified, or still partial).
        csum_unnecessary,
        /// Packets whose transport checksum is not verified.
        csum_none,
        /// Packets with a wrong transport or IPv4 header checksum; they are forwarded unchanged.
        /// Only coalescing verifies.
        csum_bad,
        /// Packets that arrived as GSO packets.
        gso_packets,
        /// GSO packets made by coalescing.
        gro_packets,
        /// Packets merged into `gro_packets`, including absorbed ones.
        gro_wire_packets,
        /// Wire packets of pure ACKs that were merged with others, and are not sent.
        absorbed,
        /// Held packets, merged or single, that were flushed because they were full: bytes,
        /// segments, or 64 datagrams.
        gro_flush_full,
        /// Flushed because the queue was empty, or memory was short.
        gro_flush_timeout,
        /// Flushed after the longest time that a packet is held.
        gro_flush_inactive,
        /// Flushed because the next packet of the flow did not continue it.
        gro_flush_order,
        /// Flushed for a TCP flag.
        gro_flush_flags,
        /// Flushed to make room in the table.
        gro_flush_evict,
        /// Flushed because the next packet of the flow had a different header.
        gro_flush_mismatch,
        /// Flushed for the size of a payload: a shorter one ends a GSO packet.
        gro_flush_size,
        /// Flushed before a packet of the flow that is not merged.
        gro_flush_refused,
        /// Packets that coalescing did not hold: neither TCP nor UDP over IP.
        gro_passed_protocol,
        /// Not held: it ends before its headers do, or they contradict themselves.
        gro_passed_malformed,
        /// Not held: an IP fragment.
        gro_passed_fragment,
        /// Not held: IPv4 options or a source route.
        gro_passed_options,
        /// Not held: a GSO packet already.
        gro_passed_gso,
        /// Not held: a wrong checksum.
        gro_passed_bad_checksum,
        /// Not held: no checksum.
        gro_passed_no_checksum,
        /// Not held: the checksum is right, in a form that segmentation would not restore.
        gro_passed_checksum_form,
        /// Not held: link padding after the IP datagram.
        gro_passed_padding,
        /// Not held: UDP to or from a port of VXLAN or GENEVE, GRE, IP in IP, MPLS, PPPoE.
        gro_passed_tunnel,
        /// Not held: UDP and IP lengths differ.
        gro_passed_udp_length,
        /// Not held: no payload (a pure ACK), or too little.
        gro_passed_payload,
        /// Not held: PSH, which ends a GSO packet, and no packet was held before it.
        gro_passed_push,
        /// Not held: TCP flags that cannot start a GSO packet.
        gro_passed_flags,
        /// Not held: already the longest IP datagram.
        gro_passed_length,
        /// Not held: headers in a shared frame.
        gro_passed_shared,
        /// Not held: the egress accepts no large packets of its kind.
        gro_passed_off,
        /// Bad packets, each with its drop reason.
        bad_packets,
        /// Batches of buffers posted to the device.
        refills,
        /// Times the queue was polled.
        polls,
        /// Polls that ended because their budget was used up.
        budget_exhausted,
        /// Wake-ups of the worker for this queue: by its device, or by the end of a delay if
        /// packets were there.
        wakeups,
        /// Sleeps of the worker during which moderation delayed the wake-up of this queue.
        moderated,
        /// Times the moderation policy changed its profile.
        moderation_changes,
        /// Packets whose headers were copied to make them contiguous.
        pullups,
        /// Small packets that were copied from a large frame to a small one.
        copybreak,
        /// Times the queue was paused by a command.
        pauses,
        /// System calls made to receive.
        syscalls,
    }
}

counter_block! {
    /// The counters of a TX queue. One thread at a time writes them: the RX worker of an owned
    /// queue, the consumer of the ring of a shared one; the worker alone writes `wakeups`.
    TxCounters, TxBatches,
    /// A copy of [`TxCounters`].
    TxSnapshot {
        /// Packets given to the device: a GSO packet is one.
        packets,
        /// Bytes of `packets`, link header included, no FCS, no virtio-net header.
        bytes,
        /// Wire packets that `packets` account for.
        wire_packets,
        /// GSO packets given to the device as such.
        gso_packets,
        /// Wire packets of `gso_packets`.
        gso_wire_packets,
        /// Packets given to the device with a partial checksum to complete.
        needs_csum,
        /// Checksums completed in software.
        csum_sw,
        /// GSO packets segmented in software.
        gso_sw_packets,
        /// Segments made of `gso_sw_packets`.
        gso_sw_wire_packets,
        /// Wire packets added where segmentation made more segments than accounted for.
        expanded,
        /// Wire packets removed where segmentation made fewer segments than accounted for.
        absorbed,
        /// Packets that fitted after merging adjacent segments in place.
        collapse,
        /// Packets that did not fit after merging adjacent segments in place.
        collapse_failed,
        /// Packets that fitted after copying into fresh frames.
        defrag,
        /// Packets dropped because they did not fit after copying, or no frame was free.
        defrag_failed,
        /// Bytes copied by `collapse` and `defrag`.
        fit_bytes_copied,
        /// Doorbells: system calls or register writes that announce packets to the device.
        doorbells,
        /// Times completed packets were collected.
        reclaims,
        /// Completed packets that were collected.
        reclaimed,
        /// Completions that named no packet in flight: a defect of the device or its driver.
        bad_completions,
        /// Batches for which the ring had too little space. A snapshot of an engine is the sum of
        /// all producers: [`SubmitCounters`].
        ring_full,
        /// Wire packets dropped as `drop.egress_full`, in a session among several ports. As
        /// `ring_full`, of all producers.
        egress_full,
        /// Times a packet found no free descriptor.
        no_desc,
        /// Times the queue stopped with packets waiting.
        stalls,
        /// Stalls because the device had no descriptor.
        stall_no_desc,
        /// Times the link was down for a packet. Packets do not wait for it: each is dropped
        /// (`drop.link_down`) until one is accepted, which is a restart.
        stall_link_down,
        /// Stalls because the device was busy for another reason.
        stall_busy,
        /// Stalls because the queue was stopped.
        stall_flush,
        /// Stalls because the byte limit of the device was reached.
        stall_byte_limit,
        /// Ends of stalls.
        restarts,
        /// Times a producer that drained the ring used up its budget and abdicated. As `ring_full`,
        /// of all producers.
        abdications,
        /// Batches whose producer became the consumer of the ring and drained it. As `ring_full`.
        direct,
        /// Batches that stayed in the ring, for its consumer or for the TX worker. As `ring_full`.
        deferred,
        /// Wake-ups of the worker for this queue: the device has room or has completed packets, or
        /// a producer notified the TX worker.
        wakeups,
        /// Times that a poll found work for which the device should have woken the worker: a lost
        /// interrupt or completion event.
        missed_wakeups,
        /// Packets that the device did not complete within a second after later ones.
        lost_completions,
        /// Times the device had packets and completed none for a second.
        hangs,
        /// Times packets waited for a second though the device had none.
        stuck,
        /// Times the queue was reset in the device.
        resets,
        /// Wire packets that a reset took back from the device, to be sent again or dropped
        /// (`drop.device_reset`). `packets`, `bytes` and `wire_packets` include them.
        taken_back,
        /// Features that were removed because the device refused a legal packet.
        refused_features,
        /// System calls made to transmit.
        syscalls,
    }
}

macro_rules! batches {
    (
        $(#[$block_doc:meta])* $block:ident, $(#[$snapshot_doc:meta])* $snapshot:ident {
            $($(#[$doc:meta])* $name:ident: $kind:ty,)*
        }
    ) => {
        $(#[$block_doc])*
        #[derive(Debug, Default)]
        pub struct $block {
            $($(#[$doc])* pub $name: $kind,)*
        }

        $(#[$snapshot_doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $snapshot {
            $($(#[$doc])* pub $name: HistogramSnapshot,)*
        }

        impl $block {
            /// A copy of all histograms.
            #[must_use]
            pub fn snapshot(&self) -> $snapshot {
                $snapshot {
                    $($name: self.$name.snapshot(),)*
                }
            }
        }

        impl $snapshot {
            /// Name and contents of every histogram.
            pub fn values(&self) -> impl Iterator<Item = (&'static str, &HistogramSnapshot)> {
                [$((stringify!($name), &self.$name),)*].into_iter()
            }
        }
    };
}

batches! {
    /// The sizes of an RX queue's batches. Written by the worker that owns the queue.
    RxBatches,
    /// A copy of [`RxBatches`].
    RxBatchesSnapshot {
        /// Packets of each poll that received any, including bad ones: the sum is `packets` plus
        /// `bad_packets`. The other `polls` were empty.
        poll: Histogram,
        /// Packets in each packet that coalescing flushed, including absorbed ones: 1 for a single
        /// packet. The count is the sum of all `gro_flush`.
        coalesce: Histogram,
        /// Microseconds since coalescing began to hold the packet that it holds longest, at the end
        /// of each turn of the queue that holds one.
        held_us: Histogram,
    }
}

batches! {
    /// The sizes of a TX queue's batches. Written as [`TxCounters`], except for `enqueue` of a
    /// shared queue: each producer writes its own.
    TxBatches,
    /// A copy of [`TxBatches`].
    TxBatchesSnapshot {
        /// Packets that were submitted to the queue at once.
        enqueue: SharedHistogram,
        /// Packets given to the device before one flush, without 0: the sum is `packets`.
        drain: Histogram,
    }
}

counter_block! {
    /// The counters of a producer of a shared TX queue. The producer writes them.
    SubmitCounters, NoBatches,
    /// A copy of [`SubmitCounters`].
    SubmitSnapshot {
        /// Wire packets that the ring or the queue accepted from an application.
        generated,
        /// Wire packets that were enqueued in the ring.
        ring_wire_packets,
        /// Batches with which the producer became the consumer of the ring and drained it.
        direct,
        /// Batches that stayed in the ring for another thread.
        deferred,
        /// Batches for which the ring had too little space.
        ring_full,
        /// Wire packets that it dropped since the queue had no space for them.
        egress_full,
        /// Times the producer exhausted its budget and abdicated.
        abdications,
        /// Times the producer woke the TX worker.
        wakeups,
    }
}

/// No histograms: those of the queue have the batches of its producers.
#[derive(Debug, Default)]
pub struct NoBatches;
