//! Per-queue counter blocks. Names follow Linux's netdev queue statistics where one exists, and
//! iflib's otherwise.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A counter with one writer and any number of readers.
///
/// Adding is a plain load and store, no locked instruction: the writer is the worker that owns the
/// queue, and nobody else writes.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the owner of the block may call this.
    pub fn add(&self, n: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(n),
            Ordering::Relaxed,
        );
    }

    /// Stores a total that is kept elsewhere (in a driver). Only the owner may call this.
    pub fn set(&self, total: u64) {
        self.0.store(total, Ordering::Relaxed);
    }

    /// The value now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counter_block {
    (
        $(#[$block_doc:meta])* $block:ident, $(#[$snapshot_doc:meta])* $snapshot:ident {
            $($(#[$doc:meta])* $name:ident,)*
        }
    ) => {
        $(#[$block_doc])*
        #[derive(Debug, Default)]
        #[repr(align(64))]
        pub struct $block {
            epoch: AtomicU64,
            $($(#[$doc])* pub $name: Counter,)*
        }

        $(#[$snapshot_doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $snapshot {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl $block {
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
            /// before it was done is seen by whoever sees that it is.
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
    RxCounters,
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
        /// Packets whose transport checksum somebody vouches for (verified, or still partial).
        csum_unnecessary,
        /// Packets whose transport checksum nobody verified.
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
        /// Times the worker was woken for this queue.
        wakeups,
        /// Packets whose headers had to be copied to make them contiguous.
        pullups,
        /// System calls made to receive.
        syscalls,
    }
}

counter_block! {
    /// What one TX queue counts. Written by whoever is the consumer of the ring in front of it, so
    /// by one thread at a time; `wakeups` by the worker alone.
    TxCounters,
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
        /// Stalls because the link was down: 0, as packets are dropped then (`drop.link_down`).
        stall_link_down,
        /// Stalls because the device was busy for another reason.
        stall_busy,
        /// Stalls because of a flush: 0, as none takes that long yet.
        stall_flush,
        /// Times a stopped queue went on.
        restarts,
        /// Times a consumer of the ring used up its budget and left the rest to the worker. As
        /// `ring_full`, of all producers.
        abdications,
        /// Batches that the thread that submitted them sent itself. As `ring_full`.
        direct,
        /// Batches that were left in the ring, to whoever drained it or to the worker. As
        /// `ring_full`.
        deferred,
        /// Times the worker was woken for this queue, because the device could go on or had
        /// completed packets, or because a producer asked for it.
        wakeups,
        /// Features that the device refused on a legal packet and that were turned off.
        refused_features,
        /// System calls made to transmit.
        syscalls,
    }
}

counter_block! {
    /// What one producer in front of a TX queue counts. Written by the thread that has it.
    SubmitCounters,
    /// A copy of [`SubmitCounters`].
    SubmitSnapshot {
        /// Wire packets that the ring or the queue took from an application.
        generated,
        /// Wire packets that went through the ring's slots, and not past them.
        ring_wire_packets,
        /// Batches that the producer sent itself.
        direct,
        /// Batches that it left in the ring.
        deferred,
        /// Batches of which the ring had no space for all.
        ring_full,
        /// Times it drained until its budget was used up.
        abdications,
        /// Times it made the worker's descriptor readable, since the worker slept.
        wakeups,
    }
}
