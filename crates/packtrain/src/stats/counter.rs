//! Per-queue counter blocks. Names follow Linux's netdev queue statistics where one exists, and
//! iflib's otherwise.

use super::cell::Counter;
use super::histogram::{Histogram, HistogramSnapshot, SharedHistogram};
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Which queue a block is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueId {
    /// Which of the joined ports: 0 or 1.
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
            /// The queue that it is of.
            pub id: QueueId,
            $($(#[$doc])* pub $name: Counter,)*
            /// How large its batches were.
            pub batches: $batches,
        }

        $(#[$snapshot_doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $snapshot {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl $block {
            /// The block of queue `id`, with nothing counted.
            #[must_use]
            pub fn new(id: QueueId) -> Self {
                Self { id, ..Self::default() }
            }

            /// The writer starts to change counters that belong together.
            pub fn begin(&self) {
                self.epoch.store(self.epoch.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
                fence(Ordering::Release);
            }

            /// The writer is done: readers may take a consistent copy.
            pub fn publish(&self) {
                let epoch = self.epoch.load(Ordering::Relaxed);
                self.epoch.store((epoch | 1).wrapping_add(1), Ordering::Release);
            }

            /// Whether the writer is between [`Self::begin`] and [`Self::publish`]. What it wrote
            /// before it was done is seen by a reader that sees that it is.
            #[must_use]
            pub fn is_open(&self) -> bool {
                self.epoch.load(Ordering::Acquire) % 2 == 1
            }

            /// A copy of all counters, of one moment if the writer pauses long enough between two
            /// batches (it is tried a few times), else of a moment within one batch.
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
    /// What one RX queue counts. Written by the worker that owns the queue.
    RxCounters, RxBatches,
    /// A copy of [`RxCounters`].
    RxSnapshot {
        /// Packets as the device handed them over: a GSO packet is one. Bad ones are not here.
        packets,
        /// Bytes of `packets`, link header included, no FCS, no virtio-net header.
        bytes,
        /// Wire packets that `packets` and `bad_packets` account for.
        wire_packets,
        /// Times the device could not be given a buffer since the arena was empty.
        alloc_fail,
        /// Packets whose transport checksum is known to be right (verified, or still partial).
        csum_unnecessary,
        /// Packets whose transport checksum is not verified.
        csum_none,
        /// Packets whose transport or IPv4 header checksum was verified and found wrong; they go on
        /// as they came. Only coalescing verifies.
        csum_bad,
        /// Packets that arrived as GSO packets.
        gso_packets,
        /// Super-packets made by coalescing.
        gro_packets,
        /// Packets that went into `gro_packets`, absorbed ones included.
        gro_wire_packets,
        /// Wire packets of pure ACKs that were merged with others and will never come out again.
        absorbed,
        /// Held packets, merged or alone, that were handed on since no more fitted: bytes,
        /// segments, or 64 datagrams.
        gro_flush_full,
        /// Handed on since no more came, or memory ran short.
        gro_flush_timeout,
        /// Handed on after the longest time that a packet is held.
        gro_flush_inactive,
        /// Handed on since the next packet of the flow did not continue it.
        gro_flush_order,
        /// Handed on for a TCP flag.
        gro_flush_flags,
        /// Handed on to make room in the table.
        gro_flush_evict,
        /// Handed on since the next packet of the flow had another header.
        gro_flush_mismatch,
        /// Handed on for the size of a payload: a shorter one ends a super-packet.
        gro_flush_size,
        /// Handed on in front of a packet of the flow that is not merged.
        gro_flush_refused,
        /// Packets that coalescing passed on at once: neither TCP nor UDP over IP.
        gro_passed_protocol,
        /// Passed on: an IP fragment.
        gro_passed_fragment,
        /// Passed on: IPv4 options or a source route.
        gro_passed_options,
        /// Passed on: a GSO packet as it came.
        gro_passed_gso,
        /// Passed on: a wrong checksum.
        gro_passed_bad_checksum,
        /// Passed on: no checksum.
        gro_passed_no_checksum,
        /// Passed on: the checksum is right and in a form that would not come back.
        gro_passed_checksum_form,
        /// Passed on: link padding behind the IP datagram.
        gro_passed_padding,
        /// Passed on: UDP to or from a port of VXLAN or GENEVE.
        gro_passed_tunnel,
        /// Passed on: UDP and IP lengths differ.
        gro_passed_udp_length,
        /// Passed on: no payload (a pure ACK), or too little.
        gro_passed_payload,
        /// Passed on: TCP flags that begin nothing.
        gro_passed_flags,
        /// Passed on: as long as an IP datagram can be.
        gro_passed_length,
        /// Passed on: headers that cannot be written to.
        gro_passed_shared,
        /// Passed on: the egress takes no large packets of its kind.
        gro_passed_off,
        /// Packets that were refused on arrival, each with its drop reason.
        bad_packets,
        /// Batches of buffers handed to the device.
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
        /// Packets whose headers had to be copied to make them contiguous.
        pullups,
        /// Small packets that were copied out of a large frame of their own.
        copybreak,
        /// System calls made to receive.
        syscalls,
    }
}

counter_block! {
    /// What one TX queue counts. Written by one thread at a time: the RX worker of an owned queue,
    /// the consumer of the ring of a shared one; `wakeups` by the worker alone.
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
        /// Wire packets that `gso_packets` stand for.
        gso_wire_packets,
        /// Packets given to the device with a partial checksum to complete.
        needs_csum,
        /// Checksums completed in software.
        csum_sw,
        /// GSO packets cut in software.
        gso_sw_packets,
        /// Wire packets that `gso_sw_packets` became.
        gso_sw_wire_packets,
        /// Wire packets more than accounted for, made by cutting a packet into more pieces.
        expanded,
        /// Wire packets fewer than accounted for, after cutting a packet into fewer pieces.
        absorbed,
        /// Packets that fitted the segment limit after merging neighbours in place.
        collapse,
        /// Packets that merging neighbours in place did not make fit.
        collapse_failed,
        /// Packets that fitted after copying into fresh frames.
        defrag,
        /// Packets that did not fit even so, or for which no frame was free: dropped.
        defrag_failed,
        /// Bytes copied by `collapse` and `defrag`.
        fit_bytes_copied,
        /// Times the device was told of new packets: system calls, or doorbell writes.
        doorbells,
        /// Times completed packets were collected.
        reclaims,
        /// Packets that were collected so.
        reclaimed,
        /// Completions that named no packet in flight: a defect of the device or its driver.
        bad_completions,
        /// Batches of which the ring in front of the queue had no space for all. A snapshot of an
        /// engine adds up what each producer counted: [`SubmitCounters`].
        ring_full,
        /// Times a packet found no free descriptor.
        no_desc,
        /// Times the queue stopped with packets waiting.
        stalls,
        /// Stalls because the device had no descriptor.
        stall_no_desc,
        /// Times the link went down under packets. They do not wait for it: each is dropped
        /// (`drop.link_down`) until the first that goes out again, which is a restart.
        stall_link_down,
        /// Stalls because the device was busy for another reason.
        stall_busy,
        /// Stalls because the queue was told to stop until its device is empty.
        stall_flush,
        /// Stalls because as many bytes were in the device as keep it busy.
        stall_byte_limit,
        /// Times a stopped queue went on.
        restarts,
        /// Times a producer that drained the ring used up its budget and abdicated. As `ring_full`,
        /// of all producers.
        abdications,
        /// Batches whose producer became the consumer of the ring and drained it. As `ring_full`.
        direct,
        /// Batches that stayed in the ring, for its consumer or for the TX worker. As `ring_full`.
        deferred,
        /// Wake-ups of the worker for this queue: the device can go on or has completed packets, or
        /// a producer notified the TX worker.
        wakeups,
        /// Times that work was found by asking the device, which should have woken the worker: a
        /// lost interrupt or completion event.
        missed_wakeups,
        /// Packets that the device did not report though it had reported later ones for a second.
        lost_completions,
        /// Times the device had packets and reported none for a second.
        hangs,
        /// Times packets waited for a second though the device had none.
        stuck,
        /// Times the queue was reset in the device.
        resets,
        /// Wire packets that came back from the device by a reset, to be sent again or dropped
        /// (`drop.device_reset`). `packets`, `bytes` and `wire_packets` have them already.
        taken_back,
        /// Features that the device refused on a legal packet and that were turned off.
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
            /// A copy of all of them.
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
        /// Packets of each poll that received any, bad ones included: their sum is `packets` and
        /// `bad_packets`. Empty polls are the rest of `polls`.
        poll: Histogram,
        /// Packets in each held packet that coalescing handed on, absorbed ones included: 1 for one
        /// that nothing was merged with. There are as many as all `gro_flush` together.
        coalesce: Histogram,
    }
}

batches! {
    /// The sizes of a TX queue's batches. Written as [`TxCounters`], but for `enqueue` of a shared
    /// queue, where each producer has its own.
    TxBatches,
    /// A copy of [`TxBatches`].
    TxBatchesSnapshot {
        /// Packets that were submitted to the queue at once.
        enqueue: SharedHistogram,
        /// Packets given to the device at once, in front of one flush: their sum is `packets`.
        /// Times the device took none are not here.
        drain: Histogram,
    }
}

counter_block! {
    /// What one producer of a shared TX queue counts. Written by the thread that has it.
    SubmitCounters, NoBatches,
    /// A copy of [`SubmitCounters`].
    SubmitSnapshot {
        /// Wire packets that the ring or the queue took from an application.
        generated,
        /// Wire packets that went through the ring's slots, and not past them.
        ring_wire_packets,
        /// Batches with which it became the consumer of the ring and drained it.
        direct,
        /// Batches that stayed in the ring for another thread.
        deferred,
        /// Batches of which the ring had no space for all.
        ring_full,
        /// Times it drained until its budget was used up, and abdicated.
        abdications,
        /// Times it notified the TX worker while that slept.
        wakeups,
    }
}

/// The histograms of a block that has none: what producers submit is in those of the queue.
#[derive(Debug, Default)]
pub struct NoBatches;
