//! The transmit side of a queue: software offloads, fit, the device, packets in flight.
//!
//! A packet waits in exactly one of these places, in this order towards the device: `fitted` (ready
//! for the device), `again` (to be prepared again, after a refused feature or a reset), `waiting`
//! (as submitted). Each is bounded; packets that do not fit stay in the caller's burst.

mod batch;
mod doorbell;
mod in_flight;
mod limit;
mod prepare;
mod reset;
mod room;
mod service;
mod source;
mod watchdog;

use super::fit::defrag;
use super::segment::check;
use crate::driver::{
    Change, ChangeKind, DeviceError, Features, Fit, Moved, PortChanges, Refused, TxDescriptors,
};
use crate::limits::{MTU_INTERVAL, TX_STAGED_PACKETS_MAX};
use crate::packet::{Arena, Burst, Packet};
use crate::plan::FitLimits;
use crate::plant::planted;
use crate::stats::{DropCounters, DropReason, Stall, TroubleLog, TxCounters};
use crate::time::Instant;
use crate::trace;
use batch::{Batch, Offered};
use in_flight::Flight;
use room::Room;
use source::{Backlog, wire_packets};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use watchdog::Watchdog;

/// The most packets in flight in a device without a ring.
const DEFAULT_SLOTS: usize = 256;

/// One TX queue. One thread uses it at a time: the RX worker that owns it, or the consumer of the
/// ring in front of it.
#[derive(Debug)]
pub struct TxQueue<T> {
    device: T,
    arena: Arena,
    /// The offloads that the device does: the planned ones without the refused ones.
    features: Features,
    /// Of the present device, within what is allowed.
    planned: Features,
    refused: Features,
    /// By the settings of the port.
    allowed: Features,
    /// How often another device took the place of this one.
    restarts: u32,
    changes: Option<PortChanges>,
    limits: FitLimits,
    /// The producers record the sizes of their batches; this queue does not.
    behind_ring: bool,
    staged: Staged,
    flight: Flight,
    progress: Progress,
    counters: Arc<TxCounters>,
    drops: Arc<DropCounters>,
}

/// Readers of the counters get what changed with this once it is dropped.
struct Counting<'a, T>(&'a mut TxQueue<T>);

impl<T> Deref for Counting<'_, T> {
    type Target = TxQueue<T>;

    #[inline]
    fn deref(&self) -> &TxQueue<T> {
        self.0
    }
}

impl<T> DerefMut for Counting<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut TxQueue<T> {
        self.0
    }
}

impl<T> Drop for Counting<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.counters.publish();
    }
}

/// The packets that the device has not accepted, in their order: `fitted`, `again`, `waiting`.
#[derive(Debug)]
struct Staged {
    waiting: Backlog,
    again: Backlog,
    fitted: VecDeque<Packet>,
    /// The device could not map the packet at the front of `fitted`, which was copied for it.
    front_defragged: bool,
}

impl Staged {
    fn is_empty(&self) -> bool {
        self.fitted.is_empty() && self.again.is_empty() && self.waiting.is_empty()
    }

    fn wire_packets(&self) -> u64 {
        self.waiting.wire_packets() + self.again.wire_packets() + wire_packets(&self.fitted)
    }

    fn frame_bytes(&self) -> u64 {
        let fitted = self.fitted.iter().map(Packet::frame_bytes);
        self.waiting.frame_bytes() + self.again.frame_bytes() + fitted.sum::<u64>()
    }

    /// Without packets that are being segmented.
    fn packets(&self) -> usize {
        self.waiting.packets() + self.again.packets() + self.fitted.len()
    }

    /// The fitted packets are prepared again, in order and first.
    fn prepare_again(&mut self) {
        while let Some(packet) = self.fitted.pop_back() {
            self.again.push_front(packet);
        }
    }

    fn clear(&mut self) {
        self.waiting.clear();
        self.again.clear();
        self.fitted.clear();
        self.front_defragged = false;
    }
}

/// Whether the queue gives packets to its device, and the device completes them.
#[derive(Debug, Default)]
struct Progress {
    /// As of the last step.
    now: Instant,
    stalled: Option<Stall>,
    /// Between [`TxQueue::stop`] and [`TxQueue::resume`]: the device gets no packets.
    stopped: bool,
    /// The last packet was dropped because the link was down.
    link_down: bool,
    /// The device accepted a packet since the last step.
    sent: bool,
    /// When to ask for the MTU.
    mtu_at: Instant,
    room: Room,
    /// When to poll a device that cannot raise an interrupt.
    recheck_at: Option<Instant>,
    watchdog: Watchdog,
    troubles: TroubleLog,
    /// `troubles` has changed since the last [`TxQueue::take_troubles`].
    troubles_changed: bool,
    /// An error that a call met which returns none: of a doorbell, or with completions.
    failed: Option<DeviceError>,
    /// The plant `link-change-ignored`: nothing in flight is completed until a reset.
    #[cfg(feature = "plants")]
    locked_up: bool,
}

/// The result of [`TxQueue::transmit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The device accepted all packets.
    All,
    /// The device accepts no more; some packets wait here or in the burst.
    Stalled(Stall),
}

impl<T: TxDescriptors> TxQueue<T> {
    /// A queue of `device`, which has `features` and accepts packets within `limits`. `slots` is
    /// the most packets in flight: the size of the device's ring if it has one.
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
            planned: features.consistent(),
            refused: Features::NONE,
            allowed: Features::ALL,
            restarts: 0,
            changes: None,
            limits,
            behind_ring: false,
            staged: Staged {
                waiting: Backlog::with_capacity(TX_STAGED_PACKETS_MAX + 1),
                // After resets: packets in flight, once whole and once as segments, and `fitted`.
                again: Backlog::with_capacity(2 * (slots + TX_STAGED_PACKETS_MAX)),
                fitted: VecDeque::with_capacity(TX_STAGED_PACKETS_MAX),
                front_defragged: false,
            },
            flight: Flight::new(slots),
            progress: Progress::default(),
            counters,
            drops,
        }
    }

    /// The same queue behind a ring: each producer records the sizes of its batches, since this
    /// queue sees only the batches of the consumer.
    #[must_use]
    pub(crate) const fn behind_ring(mut self) -> Self {
        self.behind_ring = true;
        self
    }

    /// The same queue, which records its changes. Of offloads that its device gains, it uses the
    /// `allowed` ones; without a call of this, all.
    #[must_use]
    pub(crate) fn following(mut self, changes: PortChanges, allowed: Features) -> Self {
        (self.changes, self.allowed) = (Some(changes), allowed);
        self
    }

    /// Offloads that the device does: those that are planned now, without the refused ones.
    #[must_use]
    pub const fn features(&self) -> Features {
        self.features
    }

    /// Follows the changes of the device since the last call. For the start of each step and drain.
    ///
    /// # Errors
    ///
    /// If the device as a whole failed.
    #[inline]
    pub fn follow(&mut self) -> Result<(), DeviceError> {
        match self.device.changed() {
            Change::No => Ok(()),
            change => self.follow_change(change),
        }
    }

    /// Whether the device has an MTU, which may change.
    #[inline]
    pub(crate) const fn has_mtu(&self) -> bool {
        self.limits.mtu.is_of_device()
    }

    /// Asks for the MTU, if it is due. If it has changed, packets are prepared again for it.
    pub(crate) fn renew_mtu(&mut self, now: Instant) {
        if !self.has_mtu() || now < self.progress.mtu_at {
            return;
        }
        self.progress.mtu_at = now.after(MTU_INTERVAL);
        let Some(mtu) = self.device.mtu() else {
            return;
        };
        let limit = self.limits.mtu.with_device(mtu);
        if limit != self.limits.mtu {
            self.limits.mtu = limit;
            self.staged.front_defragged = false;
            self.staged.prepare_again();
            let why = format!("its MTU is {mtu} now");
            self.record_change(ChangeKind::Mtu, Moved::NONE, why);
        }
    }

    #[cold]
    fn follow_change(&mut self, mut change: Change) -> Result<(), DeviceError> {
        let mut queue = self.counting();
        let mut restarted = false;
        while change == Change::Restarted {
            restarted = true;
            queue.restarts = queue.restarts.wrapping_add(1);
            queue.progress.mtu_at = Instant::default();
            if !queue.take_back(DropReason::DeviceReset)? {
                queue.forget_device(DropReason::DeviceReset);
            }
            queue.count_calls();
            let same = queue.planned;
            queue.plan_again(same);
            change = queue.device.changed();
        }
        if let Change::Offloads(features) = change {
            let moved = queue.plan_again(features);
            // What goes and comes is the port: it records that.
            if !restarted && !moved.is_empty() {
                let why = "the other side has negotiated its offloads";
                queue.record_change(ChangeKind::Renegotiated, moved, why);
            }
        }
        Ok(())
    }

    /// The device does `features` from now on, as far as they are allowed. Packets that it was to
    /// do more for are prepared again; those that software did more for stay as they are.
    fn plan_again(&mut self, features: Features) -> Moved {
        let before = self.features;
        self.planned = features.intersection(self.allowed).consistent();
        (self.features, self.refused) = (self.planned, Features::NONE);
        let moved = Moved::between(before, self.features);
        if !moved.lost.is_empty() {
            self.staged.front_defragged = false;
            self.staged.prepare_again();
        }
        moved
    }

    fn record_change(&self, kind: ChangeKind, offloads: Moved, why: impl Into<Cow<'static, str>>) {
        if let Some(changes) = &self.changes {
            changes.record_queue(self.counters.id.queue, kind, offloads, why);
        }
    }

    /// How often another device took the place of this one: each has a descriptor of its own.
    pub(crate) const fn restarts(&self) -> u32 {
        self.restarts
    }

    /// Offloads that the device refused for legal packets; a subset of those that it offered.
    #[must_use]
    pub const fn refused(&self) -> Features {
        self.refused
    }

    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> &Arc<TxCounters> {
        &self.counters
    }

    /// True if no packet waits here for the device: the caller may receive more for it.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.staged.is_empty()
    }

    /// Wire packets that wait here for the device.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.staged.wire_packets()
    }

    /// Bytes of the frames of packets that wait here for the device.
    #[must_use]
    pub(crate) fn frame_bytes(&self) -> u64 {
        self.staged.frame_bytes()
    }

    /// Packets that the device accepted and has not completed. They count as transmitted.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.flight.in_flight.len()
    }

    /// Takes packets from the front of `burst` and gives them to the device, oldest first, until
    /// the burst is empty or the device is full. Rings the doorbell.
    ///
    /// # Errors
    ///
    /// If the device was removed or failed; packets that were not sent stay here.
    #[cfg(feature = "internals")]
    pub fn transmit(&mut self, burst: &mut Burst) -> Result<Sent, DeviceError> {
        let sent = self.transmit_more(burst);
        if matches!(sent, Ok(Sent::Stalled(_))) {
            // The doorbell is rung before a stall.
            return sent;
        }
        let rung = self.ring();
        sent.and_then(|sent| rung.map(|()| sent))
    }

    /// As [`TxQueue::transmit`], for a caller that has more packets soon. It rings the doorbell
    /// only before a stall and before more than [`TX_DOORBELL_DESCRIPTORS_MAX`] descriptors are
    /// pending. Otherwise [`TxQueue::ring`] and [`TxQueue::arm`] ring it, and [`TxQueue::service`]
    /// once the oldest descriptor has been pending for [`TX_DOORBELL_HOLD_MAX`].
    ///
    /// # Errors
    ///
    /// As [`TxQueue::transmit`].
    ///
    /// [`TX_DOORBELL_DESCRIPTORS_MAX`]: crate::limits::TX_DOORBELL_DESCRIPTORS_MAX
    /// [`TX_DOORBELL_HOLD_MAX`]: crate::limits::TX_DOORBELL_HOLD_MAX
    pub fn transmit_more(&mut self, burst: &mut Burst) -> Result<Sent, DeviceError> {
        self.check()?;
        let mut queue = self.counting();
        let (submitted, before) = (burst.len(), queue.counters.packets.get());
        let packets = submitted + queue.staged.packets();
        trace::tx_start(queue.counters.id, packets as u64);
        let sent = queue.transmit_all(Some(burst));
        let drained = queue.counters.packets.get() - before;
        queue.count_batches(submitted - burst.len(), drained);
        let result = match sent {
            Ok(Sent::All) => Ok(Sent::All),
            // Without a doorbell the device would never complete these packets.
            sent if queue.flight.doorbell.is_pending() => {
                let rung = queue.flush();
                sent.and_then(|sent| rung.map(|()| sent))
            }
            sent => sent,
        };
        queue.count_calls();
        result
    }

    /// Rings the doorbell: the device reads the descriptors that it was given.
    ///
    /// # Errors
    ///
    /// If the device as a whole failed.
    pub fn ring(&mut self) -> Result<(), DeviceError> {
        let mut queue = self.counting();
        let result = queue.flush();
        queue.count_calls();
        result
    }

    /// As [`TxQueue::ring`], if descriptors are pending.
    ///
    /// # Errors
    ///
    /// As [`TxQueue::ring`].
    pub fn ring_if_pending(&mut self) -> Result<(), DeviceError> {
        if self.flight.doorbell.is_pending() {
            self.ring()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.flight.doorbell.rung();
        self.device.flush(self.progress.now)
    }

    /// The queue, while counters that belong together change.
    fn counting(&mut self) -> Counting<'_, T> {
        self.counters.begin();
        Counting(self)
    }

    fn count_calls(&self) {
        self.counters.doorbells.set(self.device.doorbells());
        self.counters.syscalls.set(self.device.syscalls());
    }

    /// Records a batch that was submitted and one that the device accepted, if they are not empty.
    fn count_batches(&self, submitted: usize, drained: u64) {
        let batches = &self.counters.batches;
        if submitted > 0 && !self.behind_ring {
            batches.enqueue.own().record(submitted as u64);
        }
        if drained > 0 {
            batches.drain.record(drained);
            trace::tx_drain(self.counters.id, drained);
        }
    }

    fn transmit_all(&mut self, mut burst: Option<&mut Burst>) -> Result<Sent, DeviceError> {
        if self.progress.stopped {
            return Ok(self.stall(Stall::Flush));
        }
        if planted!(StallNotRestarted)
            && let Some(Stall::NoDescriptor) = self.progress.stalled
        {
            return Ok(self.stall(Stall::NoDescriptor));
        }
        loop {
            if !self.staged.waiting.is_empty() || !self.staged.again.is_empty() {
                self.prepare();
            }
            if let Some(stall) = self.offer(burst.as_deref_mut())? {
                return Ok(self.stall(stall));
            }
            if burst.as_ref().is_none_or(|burst| burst.is_empty()) && self.is_ready() {
                self.restart();
                return Ok(Sent::All);
            }
        }
    }

    fn stall(&mut self, stall: Stall) -> Sent {
        if self.progress.stalled.replace(stall).is_none() {
            self.count_stall(stall);
            self.progress.room.end_rest();
        }
        if matches!(stall, Stall::NoDescriptor | Stall::ByteLimit) {
            let wanted = self.wanted() as u64;
            let in_flight = self.flight.in_flight.len() as u64;
            self.progress
                .room
                .rest_until_room(self.progress.now, in_flight, wanted);
        } else {
            self.progress.room.end_rest();
        }
        Sent::Stalled(stall)
    }

    fn restart(&mut self) {
        if self.progress.stalled.take().is_some() {
            self.counters.restarts.add(1);
            self.progress.room.end_rest();
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
            Stall::ByteLimit => counters.stall_byte_limit.add(1),
        }
    }

    /// Offers packets to the device: if nothing waits here, the packets of `burst` that need no
    /// work in software; else `fitted`. Moves the others of `burst` to here, as many as fit.
    /// Returns the cause if the device accepts no more for now.
    fn offer(&mut self, mut burst: Option<&mut Burst>) -> Result<Option<Stall>, DeviceError> {
        let mut reclaimed = false;
        loop {
            // Most packets need no work in software, and are moved once.
            let direct = burst.as_deref_mut().filter(|_| self.is_ready());
            let offered = self.offer_once(direct.map(Burst::batch));
            if let Some(burst) = &mut burst
                && !burst.is_empty()
            {
                self.stage(burst);
            }
            let stall = match offered {
                (Ok(()), Offered::All) => return Ok(None),
                (Ok(()), Offered::DoorbellFull) => {
                    self.flush()?;
                    continue;
                }
                (Ok(()), Offered::OutOfBytes) => Stall::ByteLimit,
                (Ok(()), Offered::OutOfSlots) | (Err(Refused::NoDescriptor), _) => {
                    Stall::NoDescriptor
                }
                (Err(Refused::Busy), _) => Stall::Busy,
                (Err(Refused::NoMemory), _) => Stall::NoMemory,
                (Err(Refused::Removed), _) => return Err(DeviceError::Removed),
                (Err(refused), _) => {
                    self.handle_refusal(refused);
                    return Ok(None);
                }
            };
            // Before each stall: completed packets make room, and some devices complete packets
            // only after a doorbell.
            if self.flight.doorbell.is_pending() {
                self.flush()?;
            }
            if reclaimed || self.collect()? == 0 {
                if stall == Stall::NoDescriptor {
                    self.counters.no_desc.add(1);
                }
                return Ok(Some(stall));
            }
            reclaimed = true;
        }
    }

    /// Offers `packets` of the caller, up to the first that needs work in software, or `fitted`.
    fn offer_once(
        &mut self,
        packets: Option<&mut VecDeque<Packet>>,
    ) -> (Result<(), Refused>, Offered) {
        let mut batch = Batch::new(
            packets.is_some().then_some((self.features, &self.limits)),
            packets.unwrap_or(&mut self.staged.fitted),
            &mut self.flight,
            &self.counters,
            &mut self.staged.front_defragged,
            self.progress.now,
        );
        let result = self.device.encap_batch(&mut batch);
        let (taken, ended) = (batch.accepted, batch.ended);
        drop(batch);
        if taken > 0 {
            self.flight.unreclaimed += taken as usize;
            self.progress.sent = true;
            if std::mem::take(&mut self.progress.link_down) {
                self.counters.restarts.add(1);
            }
        }
        (result, ended)
    }

    /// Handles a refusal that concerns the packet at the front, not the device as a whole.
    fn handle_refusal(&mut self, refused: Refused) {
        let reason = match refused {
            Refused::Feature(feature) if self.uses(feature) => {
                match self.staged.fitted.front().map_or(Ok(()), check) {
                    // One bad packet costs one packet, and not the feature.
                    Err(reason) => reason,
                    Ok(()) => return self.remove_feature(feature),
                }
            }
            Refused::TooManySegments if !self.staged.front_defragged => {
                self.defrag_front();
                return;
            }
            Refused::TooManySegments => {
                self.counters.defrag_failed.add(1);
                DropReason::TooManySegments
            }
            Refused::LinkDown => {
                #[cfg(feature = "plants")]
                self.ignore_change();
                // Counted as one stall until a packet is accepted, though no packet waits.
                if !std::mem::replace(&mut self.progress.link_down, true) {
                    self.count_stall(Stall::LinkDown);
                }
                DropReason::LinkDown
            }
            Refused::Bad(reason) => reason,
            _ => DropReason::DeviceRefused,
        };
        self.drop_front(reason);
    }

    /// The plant `link-change-ignored`: the device goes on, and the queue does not wait for it.
    #[cfg(feature = "plants")]
    fn ignore_change(&mut self) {
        self.progress.locked_up |= planted!(LinkChangeIgnored) && self.in_flight() > 0;
    }

    fn drop_front(&mut self, reason: DropReason) {
        self.staged.front_defragged = false;
        if let Some(packet) = self.staged.fitted.pop_front() {
            self.drop_packet(reason, &packet);
        }
    }

    fn drop_packet(&self, reason: DropReason, packet: &Packet) {
        self.drops
            .add(reason, u64::from(packet.meta().wire_packets));
    }

    /// Whether the packet at the front needs a part of `feature` that the queue still leaves to the
    /// device. Only such a refusal removes the feature, so refusals are bounded by the features.
    fn uses(&self, feature: Features) -> bool {
        let used = self
            .staged
            .fitted
            .front()
            .map_or(Features::NONE, |packet| Features::needed_by(packet.meta()));
        !used
            .intersection(feature)
            .intersection(self.features)
            .is_empty()
    }

    /// The device refused a legal packet for `feature`: this queue does it in software from now on.
    /// The fitted packets are prepared again, in order.
    fn remove_feature(&mut self, feature: Features) {
        let before = self.features;
        self.refused |= before.intersection(feature);
        self.features = before.without(feature).consistent();
        self.counters.refused_features.add(1);
        let moved = Moved::between(before, self.features);
        self.record_change(ChangeKind::Refused, moved, "a legal packet was refused");
        self.staged.front_defragged = false;
        // While `again` has packets, `fitted` has at most one (see `prepare`), so this is bounded
        // by the capacity of both.
        self.staged.prepare_again();
    }

    fn defrag_front(&mut self) {
        let Some(packet) = self.staged.fitted.pop_front() else {
            return;
        };
        if self.limits.fit == Fit::Collapse {
            return self.drop_packet(DropReason::TooManySegments, &packet);
        }
        let bytes = packet.bytes() as u64;
        match defrag(packet, &self.limits, &self.arena) {
            Ok(packet) => {
                self.counters.defrag.add(1);
                self.counters.fit_bytes_copied.add(bytes);
                self.staged.front_defragged = true;
                self.staged.fitted.push_front(packet);
            }
            Err(unfit) => {
                self.counters.defrag_failed.add(1);
                self.drop_packet(unfit.reason, &unfit.packet);
            }
        }
    }
}

#[cfg(test)]
mod tests;
