//! The transmit side of a queue: software offloads, fit, the device, packets in flight.
//!
//! A packet waits in exactly one of these places, in this order towards the device: `fitted` (as
//! the device will see it), `again` (to be prepared anew since the device refused a feature),
//! `waiting` (as submitted). Each is bounded; what does not fit stays in the caller's burst.

use super::fit::{Fitted, defrag, fit};
use super::segment::{Cutting, check, complete_checksum, insert_vlan_tag};
use crate::driver::{
    Accepted, Armed, Completed, DeviceError, Features, Interest, Refused, Token, TxBatch,
    TxDescriptors, TxPacket,
};
use crate::limits::TX_STAGED_PACKETS_MAX;
use crate::packet::{Arena, Burst, Packet};
use crate::plan::FitLimits;
use crate::stats::{DropCounters, DropReason, Stall, TxCounters};
use crate::time::Instant;
use crate::trace;
use packtrain_offload::offload::ChecksumState;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// Slots for packets that a device without a ring may keep at once.
const DEFAULT_SLOTS: usize = 256;
/// How soon a device is asked again that had no memory for a packet: nothing says when it has.
const MEMORY_RETRY: Duration = Duration::from_millis(1);

/// One TX queue. Owned by one worker.
#[derive(Debug)]
pub struct TxQueue<T> {
    device: T,
    arena: Arena,
    features: Features,
    refused: Features,
    limits: FitLimits,
    waiting: Source,
    again: Source,
    fitted: VecDeque<Packet>,
    /// The packet at the front of `fitted` was copied already since the device could not map it.
    front_defragged: bool,
    in_flight: InFlight,
    completed: Completed,
    stalled: Option<Stall>,
    counters: Arc<TxCounters>,
    drops: Arc<DropCounters>,
}

/// Packets to prepare, and the one that is being cut.
#[derive(Debug)]
struct Source {
    cutting: Option<Cutting>,
    queue: VecDeque<Packet>,
}

impl Source {
    fn new() -> Self {
        Self {
            cutting: None,
            queue: VecDeque::with_capacity(TX_STAGED_PACKETS_MAX + 1),
        }
    }

    fn is_empty(&self) -> bool {
        self.cutting.is_none() && self.queue.is_empty()
    }

    fn wire_packets(&self) -> u64 {
        let cutting = self.cutting.as_ref().map_or(0, Cutting::left);
        u64::from(cutting) + wire_packets(&self.queue)
    }
}

fn wire_packets(queue: &VecDeque<Packet>) -> u64 {
    queue.iter().map(|p| u64::from(p.meta().wire_packets)).sum()
}

/// Packets that the device still reads from, by token.
#[derive(Debug)]
struct InFlight {
    slots: Vec<Option<Packet>>,
    free: Vec<u32>,
}

impl InFlight {
    fn new(slots: usize) -> Self {
        Self {
            slots: (0..slots).map(|_| None).collect(),
            free: (0..slots as u32).rev().collect(),
        }
    }

    fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

/// What `transmit` came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Everything submitted is with the device.
    All,
    /// The device takes no more; some packets wait here or in the burst.
    Stalled(Stall),
}

impl<T: TxDescriptors> TxQueue<T> {
    /// A queue over `device`, which takes `features` and packets within `limits`. `slots` bounds
    /// the packets in flight: the size of the device's ring if it has one.
    #[must_use]
    pub fn new(
        device: T,
        arena: Arena,
        features: Features,
        limits: FitLimits,
        slots: Option<usize>,
        counters: Arc<TxCounters>,
        drops: Arc<DropCounters>,
    ) -> Self {
        let slots = slots.unwrap_or(DEFAULT_SLOTS).max(1);
        Self {
            device,
            arena,
            features: features.consistent(),
            refused: Features::NONE,
            limits,
            waiting: Source::new(),
            again: Source::new(),
            fitted: VecDeque::with_capacity(TX_STAGED_PACKETS_MAX),
            front_defragged: false,
            in_flight: InFlight::new(slots),
            completed: Completed::with_capacity(slots),
            stalled: None,
            counters,
            drops,
        }
    }

    /// Offloads that the device is still trusted with.
    #[must_use]
    pub const fn features(&self) -> Features {
        self.features
    }

    /// Offloads that the device refused on legal packets; a subset of what it had offered.
    #[must_use]
    pub const fn refused(&self) -> Features {
        self.refused
    }

    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> &Arc<TxCounters> {
        &self.counters
    }

    /// True when nothing waits in front of the device: the caller may receive more for it.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.fitted.is_empty() && self.again.is_empty() && self.waiting.is_empty()
    }

    /// Wire packets that wait here and were not accepted by the device yet.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.waiting.wire_packets() + self.again.wire_packets() + wire_packets(&self.fitted)
    }

    /// Packets that the device accepted and still reads from. They count as transmitted.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Takes packets from the front of `burst` and gives them to the device, oldest first, until
    /// the burst is empty or the device is full. Rings the doorbell once.
    ///
    /// # Errors
    ///
    /// When the device is gone or failed; what was not sent yet stays here.
    pub fn transmit(&mut self, burst: &mut Burst) -> Result<Sent, DeviceError> {
        let counters = Arc::clone(&self.counters);
        counters.begin();
        let (submitted, before) = (burst.len(), counters.packets.get());
        trace::tx_start(counters.id, (submitted + self.packets()) as u64);
        let result = self.transmit_all(burst);
        let flushed = self.device.flush();
        self.count_batches(submitted - burst.len(), counters.packets.get() - before);
        counters.doorbells.set(self.device.doorbells());
        counters.syscalls.set(self.device.syscalls());
        counters.publish();
        result.and_then(|sent| flushed.map(|()| sent))
    }

    /// Packets that wait here; one that is being cut is not among them.
    fn packets(&self) -> usize {
        self.waiting.queue.len() + self.again.queue.len() + self.fitted.len()
    }

    /// One batch was submitted and one given to the device; either may be empty, and is none then.
    fn count_batches(&self, submitted: usize, drained: u64) {
        let batches = &self.counters.batches;
        if submitted > 0 {
            batches.enqueue.own().record(submitted as u64);
        }
        if drained > 0 {
            batches.drain.record(drained);
            trace::tx_drain(self.counters.id, drained);
        }
    }

    fn transmit_all(&mut self, burst: &mut Burst) -> Result<Sent, DeviceError> {
        loop {
            while self.waiting.queue.len() < TX_STAGED_PACKETS_MAX {
                let Some(packet) = burst.pop() else { break };
                self.waiting.queue.push_back(packet);
            }
            self.prepare();
            if self.fitted.is_empty() {
                if self.stalled.take().is_some() {
                    self.counters.restarts.add(1);
                }
                if burst.is_empty() && self.is_ready() {
                    return Ok(Sent::All);
                }
                continue;
            }
            if let Some(stall) = self.offer()? {
                if self.stalled.replace(stall).is_none() {
                    self.count_stall(stall);
                }
                return Ok(Sent::Stalled(stall));
            }
        }
    }

    fn count_stall(&self, stall: Stall) {
        let counters = &self.counters;
        counters.stalls.add(1);
        match stall {
            Stall::NoDescriptor => counters.stall_no_desc.add(1),
            Stall::LinkDown => counters.stall_link_down.add(1),
            Stall::Busy | Stall::NoMemory => counters.stall_busy.add(1),
            Stall::Flush => counters.stall_flush.add(1),
        }
    }

    /// Offers `fitted` to the device. `Some` when it takes no more for now.
    fn offer(&mut self) -> Result<Option<Stall>, DeviceError> {
        let mut tried_reclaim = false;
        loop {
            let (result, out_of_slots) = self.offer_once();
            let stall = match result {
                Ok(()) if !out_of_slots => return Ok(None),
                Ok(()) | Err(Refused::NoDescriptor) => Stall::NoDescriptor,
                Err(Refused::Busy) => Stall::Busy,
                Err(Refused::NoMemory) => Stall::NoMemory,
                Err(Refused::Removed) => return Err(DeviceError::Removed),
                Err(refused) => {
                    self.settle(refused);
                    return Ok(None);
                }
            };
            if tried_reclaim || self.reclaim() == 0 {
                if stall == Stall::NoDescriptor {
                    self.counters.no_desc.add(1);
                }
                return Ok(Some(stall));
            }
            tried_reclaim = true;
        }
    }

    fn offer_once(&mut self) -> (Result<(), Refused>, bool) {
        let mut batch = Batch {
            fitted: &mut self.fitted,
            in_flight: &mut self.in_flight,
            counters: &self.counters,
            front_defragged: &mut self.front_defragged,
            out_of_slots: false,
            offered_bytes: 0,
        };
        let result = self.device.encap_batch(&mut batch);
        (result, batch.out_of_slots)
    }

    /// Deals with a refusal that concerns the packet at the front, not the device as a whole.
    fn settle(&mut self, refused: Refused) {
        let reason = match refused {
            Refused::Feature(feature) if self.uses(feature) => {
                match self.fitted.front().map_or(Ok(()), check) {
                    // One bad packet costs one packet, and not the feature.
                    Err(reason) => reason,
                    Ok(()) => return self.give_up(feature),
                }
            }
            Refused::TooManySegments if !self.front_defragged => {
                self.defrag_front();
                return;
            }
            Refused::TooManySegments => {
                self.counters.defrag_failed.add(1);
                DropReason::TooManySegments
            }
            Refused::LinkDown => DropReason::LinkDown,
            Refused::Bad(reason) => reason,
            _ => DropReason::DeviceRefused,
        };
        self.drop_front(reason);
    }

    fn drop_front(&mut self, reason: DropReason) {
        self.front_defragged = false;
        if let Some(packet) = self.fitted.pop_front() {
            self.drop_packet(reason, &packet);
        }
    }

    fn drop_packet(&self, reason: DropReason, packet: &Packet) {
        self.drops
            .add(reason, u64::from(packet.meta().wire_packets));
    }

    /// Whether the packet at the front relies on the device for any of `feature` that the queue
    /// still offers: only then does taking the feature back change anything. Since it makes the
    /// features fewer each time, refusals come to an end.
    fn uses(&self, feature: Features) -> bool {
        let used = self
            .fitted
            .front()
            .map_or(Features::NONE, |packet| Features::needed_by(packet.meta()));
        !used
            .intersection(feature)
            .intersection(self.features)
            .is_empty()
    }

    /// The device refused a legal packet for `feature`: never again on this queue. What was fitted
    /// is prepared anew, in order.
    fn give_up(&mut self, feature: Features) {
        self.refused |= self.features.intersection(feature);
        self.features = self.features.without(feature).consistent();
        self.counters.refused_features.add(1);
        self.front_defragged = false;
        if self.again.cutting.is_some() {
            // Then `fitted` has one segment of that packet at most, and the rest comes after it.
            self.prepare_front_again();
            return;
        }
        // While `again` has packets, `fitted` has at most one (see `prepare`), so this is bounded
        // by the capacity of both.
        while let Some(packet) = self.fitted.pop_back() {
            self.again.queue.push_front(packet);
        }
    }

    /// Prepares the segment at the front once more, where it is.
    fn prepare_front_again(&mut self) {
        let Some(mut packet) = self.fitted.pop_front() else {
            return;
        };
        let before = self.fitted.len();
        match self.finish(&mut packet) {
            Ok(()) => self.fit(packet),
            Err(reason) => self.drop_packet(reason, &packet),
        }
        debug_assert!(before == 0, "one at a time while packets are prepared anew");
    }

    fn defrag_front(&mut self) {
        let Some(packet) = self.fitted.pop_front() else {
            return;
        };
        let bytes = packet.bytes() as u64;
        match defrag(packet, &self.limits, &self.arena) {
            Ok(packet) => {
                self.counters.defrag.add(1);
                self.counters.fit_bytes_copied.add(bytes);
                self.front_defragged = true;
                self.fitted.push_front(packet);
            }
            Err(unfit) => {
                self.counters.defrag_failed.add(1);
                self.drop_packet(unfit.reason, &unfit.packet);
            }
        }
    }

    /// Moves packets to `fitted`, cut, summed and fitted as the device needs them.
    fn prepare(&mut self) {
        // One at a time while packets are prepared anew: a further refusal then never meets a
        // packet that is half cut.
        while self.fitted.len()
            < if self.again.is_empty() {
                TX_STAGED_PACKETS_MAX
            } else {
                1
            }
        {
            let Some(packet) = self.next_prepared() else {
                return;
            };
            self.fit(packet);
        }
    }

    fn fit(&mut self, packet: Packet) {
        match fit(packet, &self.limits, &self.arena) {
            Ok((packet, how)) => {
                self.count_fitted(how);
                self.fitted.push_back(packet);
            }
            Err(unfit) => {
                // One that could not be padded was not tried to be made fit.
                if unfit.packet.bytes() >= self.limits.min_packet_bytes {
                    self.counters.collapse_failed.add(1);
                    self.counters.defrag_failed.add(1);
                }
                self.drop_packet(unfit.reason, &unfit.packet);
            }
        }
    }

    fn count_fitted(&self, how: Fitted) {
        let counters = &self.counters;
        let copied = match how {
            Fitted::AsIs => return,
            Fitted::Collapsed { copied } => {
                counters.collapse.add(1);
                copied
            }
            Fitted::Defragged { copied } => {
                counters.collapse_failed.add(1);
                counters.defrag.add(1);
                copied
            }
        };
        counters.fit_bytes_copied.add(copied as u64);
    }

    /// The next packet with nothing left to do in software, from `again` first.
    fn next_prepared(&mut self) -> Option<Packet> {
        loop {
            let mut packet = self.next_whole()?;
            match self.finish(&mut packet) {
                Ok(()) => return Some(packet),
                Err(reason) => self.drop_packet(reason, &packet),
            }
        }
    }

    /// The next packet that is not to be cut (any more), from `again` first.
    fn next_whole(&mut self) -> Option<Packet> {
        loop {
            let anew = !self.again.is_empty();
            let source = if anew {
                &mut self.again
            } else {
                &mut self.waiting
            };
            if let Some(cutting) = &mut source.cutting {
                let partial = self.features.contains(cutting.checksum_feature());
                match cutting.next(&self.arena, partial) {
                    Some(Ok(segment)) => {
                        self.counters.gso_sw_wire_packets.add(1);
                        if !partial {
                            self.counters.csum_sw.add(1);
                        }
                        return Some(segment);
                    }
                    Some(Err((reason, wire_packets))) => self.drops.add(reason, wire_packets),
                    None => source.cutting = None,
                }
                continue;
            }
            let mut packet = source.queue.pop_front()?;
            let missing = Features::needed_by(packet.meta()).without(self.features);
            if packet.meta().gso.is_none() || missing.without(Features::VLAN).is_empty() {
                return Some(packet);
            }
            // The tag first: then it is put in once and not for each segment.
            match self.finish_tag(&mut packet) {
                Ok(()) => self.start_cutting(packet, anew),
                Err(reason) => self.drop_packet(reason, &packet),
            }
        }
    }

    /// Does in software what is left to do to a packet that is not to be cut.
    fn finish(&self, packet: &mut Packet) -> Result<(), DropReason> {
        self.finish_tag(packet)?;
        if !Features::needed_by(packet.meta())
            .without(self.features)
            .is_empty()
        {
            complete_checksum(packet)?;
            self.counters.csum_sw.add(1);
        }
        Ok(())
    }

    fn finish_tag(&self, packet: &mut Packet) -> Result<(), DropReason> {
        if packet.meta().vlan.is_some() && !self.features.contains(Features::VLAN) {
            insert_vlan_tag(packet)?;
        }
        Ok(())
    }

    fn start_cutting(&mut self, packet: Packet, anew: bool) {
        let accounted = u64::from(packet.meta().wire_packets);
        let source = if anew {
            &mut self.again
        } else {
            &mut self.waiting
        };
        match Cutting::new(packet) {
            Ok(cutting) => {
                // From here on each segment accounts for itself.
                let segments = u64::from(cutting.left());
                self.counters
                    .expanded
                    .add(segments.saturating_sub(accounted));
                self.counters
                    .absorbed
                    .add(accounted.saturating_sub(segments));
                self.counters.gso_sw_packets.add(1);
                source.cutting = Some(cutting);
            }
            Err((reason, packet)) => self.drop_packet(reason, &packet),
        }
    }

    /// Frees what the device is done with; returns how many packets.
    pub fn reclaim(&mut self) -> usize {
        if self.in_flight.len() == 0 {
            return 0;
        }
        self.device.reclaim(&mut self.completed);
        let mut freed = 0;
        for Token(slot) in self.completed.drain() {
            let packet = self
                .in_flight
                .slots
                .get_mut(slot as usize)
                .and_then(Option::take);
            if packet.is_some() {
                self.in_flight.free.push(slot);
                freed += 1;
            } else {
                self.counters.bad_completions.add(1);
            }
        }
        if freed > 0 {
            self.counters.reclaims.add(1);
        }
        freed
    }

    /// Gives up on everything that is still here, counted under `reason`.
    pub fn abandon(&mut self, reason: DropReason) {
        let held = self.held();
        if held > 0 {
            self.drops.add(reason, held);
        }
        self.waiting = Source::new();
        self.again = Source::new();
        self.fitted.clear();
        self.front_defragged = false;
        self.stalled = None;
    }

    /// Asks for a wake-up if packets wait for the device.
    pub fn arm(&mut self) -> Armed {
        if self.is_ready() && self.in_flight.len() == 0 {
            Armed::Idle
        } else {
            self.device.arm()
        }
    }

    /// What becomes ready when the device can go on, or has completed something; `None` for a
    /// device that never makes anybody wait, and while the system lacks memory:
    /// [`TxQueue::retry_at`] says when to try again then.
    pub fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        let wake = self.device.wake();
        wake.filter(|_| self.stalled != Some(Stall::NoMemory))
    }

    /// When to transmit again though nothing wakes the worker: the system had no memory just now.
    #[must_use]
    pub fn retry_at(&self, now: Instant) -> Option<Instant> {
        let waits = self.stalled == Some(Stall::NoMemory);
        waits.then(|| now.after(MEMORY_RETRY))
    }

    /// The worker was woken for this queue.
    pub fn count_wakeup(&self) {
        self.counters.wakeups.add(1);
    }

    #[cfg(test)]
    pub(crate) const fn device(&self) -> &T {
        &self.device
    }

    /// The device, to ask or set what only it has. To call what this queue calls would confuse
    /// the account.
    pub const fn device_mut(&mut self) -> &mut T {
        &mut self.device
    }
}

struct Batch<'a> {
    fitted: &'a mut VecDeque<Packet>,
    in_flight: &'a mut InFlight,
    counters: &'a TxCounters,
    front_defragged: &'a mut bool,
    out_of_slots: bool,
    /// Bytes of the packet that was offered, since a wrapper may change it on its way.
    offered_bytes: u64,
}

impl TxBatch for Batch<'_> {
    fn next(&mut self) -> Option<(TxPacket<'_>, Token)> {
        let packet = self.fitted.front_mut()?;
        let Some(&slot) = self.in_flight.free.last() else {
            self.out_of_slots = true;
            return None;
        };
        self.offered_bytes = packet.bytes() as u64;
        Some((TxPacket::fitted(packet), Token(slot)))
    }

    fn accepted(&mut self, accepted: Accepted) {
        let Some(packet) = self.fitted.pop_front() else {
            return;
        };
        *self.front_defragged = false;
        let (meta, counters) = (packet.meta(), self.counters);
        let wire_packets = u64::from(meta.wire_packets);
        counters.packets.add(1);
        counters.bytes.add(self.offered_bytes);
        counters.wire_packets.add(wire_packets);
        if meta.gso.is_some() {
            counters.gso_packets.add(1);
            counters.gso_wire_packets.add(wire_packets);
        }
        if matches!(meta.checksum, ChecksumState::Partial { .. }) {
            counters.needs_csum.add(1);
        }
        if accepted == Accepted::Pending
            && let Some(slot) = self.in_flight.free.pop()
        {
            self.in_flight.slots[slot as usize] = Some(packet);
        }
    }
}

#[cfg(test)]
mod tests;
