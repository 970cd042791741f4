//! The coalescing stage of an RX queue: merges consecutive packets of a flow.
//!
//! Packets are held across bursts until they have their largest size, or until the worker flushes:
//! all packets if the queue is empty, or those that were held for too long. [`Gro`] has the
//! settings. Flushed packets wait in the output for the handler and the TX queue.

use crate::driver::Features;
use crate::limits::{BURST_PACKETS_MAX, COALESCE_HOLD_MAX, COALESCE_LARGE_MAX};
use crate::packet::{Burst, FrameClass, Packet};
use crate::plan::Coalescing;
use crate::plant::planted;
use crate::policy::gro::Gro;
use crate::stats::{DropCounters, DropReason, RxCounters};
use crate::time::Instant;
use crate::trace;
use packtrain_offload::coalesce::{
    Coalescer, Done, FlushCounts, FlushReason, NotTaken, NotTakenCounts, Owned,
};
use packtrain_offload::layout::{Layout, Network, Transport};
use packtrain_offload::limits::HEADER_BYTES_MAX;
use packtrain_offload::offload::{ChecksumState, LinkType};
use std::collections::VecDeque;
use std::iter::from_fn;
use std::sync::Arc;
use std::time::Duration;

/// The stage. Owned by the worker that owns the RX queue.
#[derive(Debug)]
pub struct CoalesceStage {
    engine: Coalescer<Packet, Owned<Packet>>,
    /// The kinds that the plan merges.
    planned: Features,
    /// Of these, the kinds that the TX queue gives to its device as large packets.
    kinds: Features,
    segments_max: u8,
    packets_max: u64,
    gro: Gro,
    held: Held,
    /// Since when packets are held, and how many were taken since then.
    run: (Instant, u64),
    /// Packets received since the queue was empty, or since the last pause.
    received: u64,
    /// When the first packet was held, after none was, or after the last flush for age.
    since: Instant,
    out: VecDeque<Packet>,
    /// Packets of kinds that are not merged.
    bypassed: u64,
    counters: Arc<RxCounters>,
    drops: Arc<DropCounters>,
}

/// Packets in the engine.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    /// Wire packets.
    wire_packets: u64,
    /// Packets in large frames that arrived since none was held: an upper bound of those held.
    large: usize,
}

impl CoalesceStage {
    /// A stage as planned, for packets that start with `link`. Allocates all its memory
    /// ([`Coalescing::bytes`] and the output). `counters` are those of the RX queue.
    #[must_use]
    pub fn new(
        plan: &Coalescing,
        link: LinkType,
        counters: Arc<RxCounters>,
        drops: Arc<DropCounters>,
    ) -> Self {
        let config = plan.config(link);
        let engine = Coalescer::new(config, Owned::for_config(&config))
            .expect("the storage is made for the configuration");
        Self {
            engine,
            planned: plan.kinds,
            kinds: plan.kinds,
            segments_max: plan.segments_max.min(usize::from(u8::MAX)) as u8,
            packets_max: plan.packets_max() as u64,
            gro: plan.gro,
            held: Held::default(),
            run: (Instant::default(), 0),
            received: 0,
            since: Instant::default(),
            // A full table, a full queue of sorted mode, and a burst that is not merged.
            out: VecDeque::with_capacity(2 * plan.packets_max() + BURST_PACKETS_MAX),
            bypassed: 0,
            counters,
            drops,
        }
    }

    /// Wire packets in this stage.
    #[must_use]
    pub fn held(&self) -> u64 {
        let out = self.out.iter().map(|p| u64::from(p.meta().wire_packets));
        self.held.wire_packets + out.sum::<u64>()
    }

    /// Whether the output has packets.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    /// Takes all packets of `burst`, in order. The output must be empty: its bound is the packets
    /// held and one burst.
    ///
    /// `egress` has the offloads of the TX queue's device: no kind is merged that the TX queue
    /// would have to segment.
    pub fn take(&mut self, now: Instant, burst: &mut Burst, egress: Features) {
        debug_assert!(self.out.is_empty(), "output first");
        let kinds = self.planned.intersection(egress);
        if kinds != self.kinds {
            // Else a packet that is no longer merged would overtake one of its flow.
            self.flush();
            self.kinds = kinds;
        }
        if self.engine.held() == 0 {
            self.since = now;
            self.held.large = 0;
            self.run = (now, 0);
        }
        self.run.1 += burst.len() as u64;
        self.prepare(burst);
        self.push(now, burst);
        let full =
            self.held.wire_packets > self.packets_max || self.held.large > COALESCE_LARGE_MAX;
        if full {
            self.flush();
        }
        self.publish();
    }

    /// Whether packets pass the stage: it merges none for a TX queue with the features `egress`,
    /// and has none that others could overtake.
    #[must_use]
    pub fn is_off(&self, egress: Features) -> bool {
        let kinds = self.planned.intersection(egress).intersection(ALL_KINDS);
        kinds.is_empty() && self.engine.held() == 0 && self.out.is_empty()
    }

    /// Counts packets that passed the stage.
    pub fn pass(&mut self, packets: u64) {
        self.bypassed += packets;
        self.publish();
    }

    /// Counts packets before the engine holds them, and sets their largest number of segments.
    fn prepare(&mut self, burst: &mut Burst) {
        for packet in burst.iter_mut() {
            let large = packet.bytes() > FrameClass::Small.data_bytes();
            self.held.large += usize::from(large);
            let meta = packet.meta_mut();
            meta.merge_segments_max = self.segments_max;
            self.held.wire_packets += u64::from(meta.wire_packets);
        }
    }

    /// Gives packets of merged kinds to the engine, and the others to the output.
    fn push(&mut self, now: Instant, burst: &mut Burst) {
        let (engine, kinds) = (&mut self.engine, self.kinds);
        let mut sink = sink(&mut self.held, &mut self.out, &self.counters);
        while let Some(front) = burst.front() {
            if is_merged(front, kinds) {
                let some = from_fn(|| burst.pop_if(|packet| is_merged(packet, kinds)));
                engine.push_burst(now.as_nanos(), some, &mut sink);
            }
            let Some(packet) = burst.pop() else { return };
            if is_opaque(&packet) {
                // Its flow is unknown.
                engine.flush(&mut sink);
            }
            self.bypassed += 1;
            sink(packet, &Done::Passed(NotTaken::Off));
        }
    }

    /// Moves all packets held to the output.
    pub fn flush(&mut self) {
        if self.engine.held() == 0 {
            return;
        }
        self.engine
            .flush(&mut sink(&mut self.held, &mut self.out, &self.counters));
        self.held.large = 0;
        self.publish();
    }

    /// Moves to the output what leaves while the queue is not empty: everything if that is due by
    /// [`Gro::flush`]. Else the packets whose first one has been held for [`COALESCE_HOLD_MAX`] and
    /// arrived before `last_turn`, whether or not others continued it since. However long a turn
    /// takes, its own packets do not become old in it.
    pub fn flush_due(&mut self, now: Instant, last_turn: Instant) {
        let (since, taken) = self.run;
        if self.gro.flush.is_due(now.since(since), taken) {
            return self.flush();
        }
        if !self.gro.inactive {
            return;
        }
        let before_last_turn = now.since(last_turn) + Duration::from_nanos(1);
        let age = COALESCE_HOLD_MAX.max(before_last_turn);
        // Sorted mode has no age for each packet: a flush moves all packets, and is as rare as
        // possible, since only packets held together are merged.
        let too_young = self.engine.is_sorting() && now.since(self.since) < age;
        if self.engine.held() == 0 || too_young {
            return;
        }
        self.since = now;
        self.engine.flush_inactive(
            now.as_nanos(),
            age.as_nanos() as u64,
            &mut sink(&mut self.held, &mut self.out, &self.counters),
        );
        self.publish();
    }

    /// Records for how long the packet held longest has been held, at the end of a turn that holds
    /// one.
    pub fn record_held(&mut self, now: Instant) {
        if self.engine.held() > 0 {
            // A queue that is sorted has no age for each packet.
            let age = match self.engine.is_sorting() {
                true => now.since(self.since).as_nanos() as u64,
                false => self.engine.age(now.as_nanos()),
            };
            self.counters.batches.held_us.record(age / 1000);
        }
    }

    /// Whether the worker stops receiving after a turn with `received` packets ([`Gro::rx_pause`]).
    pub fn pauses(&mut self, received: u64) -> bool {
        let Some(most) = self.gro.rx_pause else {
            return false;
        };
        self.received = if received == 0 {
            0
        } else {
            self.received + received
        };
        let pauses = self.received >= most.into();
        if pauses {
            self.received = 0;
            self.counters.pauses.add(1);
        }
        pauses
    }

    /// Moves packets of the output to `burst`, as many as fit.
    pub fn deliver(&mut self, burst: &mut Burst) {
        while burst.room() > 0
            && let Some(packet) = self.out.pop_front()
        {
            if let Err(packet) = burst.push(packet) {
                // Not possible: there is room.
                self.out.push_front(packet);
                return;
            }
        }
    }

    /// Drops all packets of this stage, counted under `reason`.
    pub fn abandon(&mut self, reason: DropReason) {
        let held = self.held();
        if held > 0 {
            self.drops.add(reason, held);
        }
        self.engine.clear();
        self.held = Held::default();
        self.out.clear();
    }

    fn publish(&self) {
        let (counters, stats) = (&self.counters, self.engine.stats());
        counters.begin();
        counters.csum_bad.set(stats.bad_checksums);
        counters.gro_packets.set(stats.supers);
        counters.gro_wire_packets.set(stats.merged);
        count_flushes(counters, &stats.flushes);
        count_passed(counters, &stats.not_taken, self.bypassed);
        counters.publish();
    }
}

/// The engine's sink: completes the metadata of each packet, counts it, and puts it to the output.
fn sink<'a>(
    held: &'a mut Held,
    out: &'a mut VecDeque<Packet>,
    counters: &'a RxCounters,
) -> impl FnMut(Packet, &Done) + use<'a> {
    |mut packet, done| {
        let meta = packet.meta_mut();
        held.wire_packets -= u64::from(meta.wire_packets);
        match done {
            Done::Passed(_) => {}
            Done::Alone(_) => {
                count_flushed(counters, 1);
                if meta.checksum == ChecksumState::None {
                    meta.checksum = ChecksumState::Unnecessary;
                }
            }
            Done::Merged(merged) => {
                count_flushed(
                    counters,
                    u64::from(merged.pieces) + u64::from(merged.absorbed),
                );
                meta.gso = merged.gso;
                meta.checksum = merged.checksum;
                meta.layout = Some(merged.layout);
                // A packet is at least one wire packet.
                let absorbed = merged.absorbed.min(meta.wire_packets.saturating_sub(1));
                meta.wire_packets -= absorbed;
                counters.absorbed.add(u64::from(absorbed));
            }
        }
        if planted!(FlushReorders)
            && let Done::Alone(_) | Done::Merged(_) = done
        {
            return out.push_front(packet);
        }
        out.push_back(packet);
    }
}

/// A packet made of `packets` packets leaves the engine.
fn count_flushed(counters: &RxCounters, packets: u64) {
    counters.batches.coalesce.record(packets);
    trace::coalesce_flush(counters.id, packets);
}

const ALL_KINDS: Features = Features::TSO4
    .union(Features::TSO6)
    .union(Features::USO4)
    .union(Features::USO6);

/// Whether a packet was not parsed because no frame was free to pull its headers together.
fn is_opaque(packet: &Packet) -> bool {
    packet.meta().layout.is_none() && packet.first().len() < packet.bytes().min(HEADER_BYTES_MAX)
}

/// Whether a packet goes to the engine. A packet of a kind that is not merged does not: the engine
/// holds none of its flow. A fragment or an inconsistent packet does, and flushes what is held with
/// its addresses. A packet that was not parsed does only if all kinds are merged, since the engine
/// must not hold a packet of another kind; else it flushes everything.
fn is_merged(packet: &Packet, kinds: Features) -> bool {
    let kind = match packet.meta().layout {
        None => return !is_opaque(packet) || kinds.contains(ALL_KINDS),
        Some(Layout {
            kind,
            transport_kind,
            fragment: false,
            ..
        }) => match (kind, transport_kind) {
            (Network::Ipv4, Transport::Tcp) => Features::TSO4,
            (Network::Ipv6, Transport::Tcp) => Features::TSO6,
            (Network::Ipv4, Transport::Udp) => Features::USO4,
            (Network::Ipv6, Transport::Udp) => Features::USO6,
            _ => return true,
        },
        _ => return true,
    };
    kinds.contains(kind)
}

fn count_flushes(counters: &RxCounters, flushes: &FlushCounts) {
    for (counter, reason) in [
        (&counters.gro_flush_full, FlushReason::Full),
        (&counters.gro_flush_timeout, FlushReason::Timeout),
        (&counters.gro_flush_inactive, FlushReason::Inactive),
        (&counters.gro_flush_order, FlushReason::Order),
        (&counters.gro_flush_flags, FlushReason::Flags),
        (&counters.gro_flush_evict, FlushReason::Evict),
        (&counters.gro_flush_mismatch, FlushReason::Mismatch),
        (&counters.gro_flush_size, FlushReason::Size),
        (&counters.gro_flush_refused, FlushReason::Refused),
    ] {
        counter.set(flushes.get(reason));
    }
}

/// `bypassed` packets did not go to the engine.
fn count_passed(counters: &RxCounters, passed: &NotTakenCounts, bypassed: u64) {
    for (counter, reason) in [
        (&counters.gro_passed_protocol, NotTaken::Protocol),
        (&counters.gro_passed_malformed, NotTaken::Malformed),
        (&counters.gro_passed_fragment, NotTaken::Fragment),
        (&counters.gro_passed_options, NotTaken::Options),
        (&counters.gro_passed_gso, NotTaken::Gso),
        (&counters.gro_passed_bad_checksum, NotTaken::BadChecksum),
        (&counters.gro_passed_no_checksum, NotTaken::NoChecksum),
        (&counters.gro_passed_checksum_form, NotTaken::ChecksumForm),
        (&counters.gro_passed_padding, NotTaken::Padding),
        (&counters.gro_passed_tunnel, NotTaken::Tunnel),
        (&counters.gro_passed_udp_length, NotTaken::UdpLength),
        (&counters.gro_passed_payload, NotTaken::Payload),
        (&counters.gro_passed_push, NotTaken::Push),
        (&counters.gro_passed_flags, NotTaken::Flags),
        (&counters.gro_passed_length, NotTaken::Length),
        (&counters.gro_passed_shared, NotTaken::Shared),
    ] {
        counter.set(passed.get(reason));
    }
    counters
        .gro_passed_off
        .set(passed.get(NotTaken::Off) + bypassed);
}

#[cfg(test)]
mod tests;
