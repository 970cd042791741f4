//! The rest of a TX queue: completions, doorbells that are due, stop and resume, interrupts, and
//! the watchdog.

use super::TxQueue;
use super::watchdog::{Seen, Verdict};
use crate::driver::{Armed, DeviceError, Interest, TxDescriptors};
use crate::limits::{TX_RECLAIM_FREE_FRACTION, TX_RECLAIM_PACKETS, TX_REST_MAX, TX_ROOM_FRACTION};
use crate::stats::{DropReason, Stall, Trouble, TroubleLog, TroubleReport};
use crate::time::Instant;
use std::os::fd::BorrowedFd;
use std::task::Waker;
use std::time::Duration;

/// The time to the next attempt after a device had no memory for a packet. No event reports memory.
const MEMORY_RETRY: Duration = Duration::from_millis(1);

impl<T: TxDescriptors> TxQueue<T> {
    /// Does the work that is due at `now`, at the start of each step: rings the doorbell, collects
    /// completed packets if that pays, and runs the watchdog.
    ///
    /// If the device makes no progress, the queue polls it, then reports it
    /// ([`TxQueue::take_troubles`]) and resets it if the device supports that; this is no error.
    ///
    /// # Errors
    ///
    /// If the device was removed or failed, also if [`TxQueue::arm`] or [`TxQueue::reclaim`] found
    /// it.
    pub fn service(&mut self, now: Instant) -> Result<(), DeviceError> {
        self.progress.now = now;
        self.progress.recheck_at = None;
        self.flight.bytes.observe_poll(now);
        self.check()?;
        self.follow()?;
        self.renew_mtu(now);
        if self.flight.doorbell.is_due(now) {
            self.ring()?;
        }
        let few_free =
            self.flight.in_flight.free() < self.flight.in_flight.slots() / TX_RECLAIM_FREE_FRACTION;
        self.progress.watchdog.begin(now);
        if self.device.next_at().is_some_and(|at| at <= now) {
            // This step is the wake-up that the device asked for.
            self.note_wakeup();
        }
        // While packets are sent it waits for enough of them; a quiet step collects the last ones.
        let quiet = !std::mem::take(&mut self.progress.sent);
        if self.progress.watchdog.poll_is_due(now) {
            self.poll()?;
        } else if quiet || few_free || self.flight.unreclaimed >= TX_RECLAIM_PACKETS {
            self.collect()?;
        }
        if self.progress.stalled.is_none() {
            // No packet waits for room, but many packets in flight hold much memory.
            if self.flight.in_flight.len() > self.flight.in_flight.slots() / TX_ROOM_FRACTION {
                self.progress.room.rest_fully(now);
            } else {
                self.progress.room.end_rest();
            }
        }
        let pending = self.is_pending();
        let seen = Seen {
            pending,
            progress: if self.flight.in_flight.is_empty() {
                self.moved()
            } else {
                self.counters.reclaimed.get()
            },
            blocked: pending && self.device.is_blocked(),
        };
        match self.progress.watchdog.observe(now, seen) {
            Verdict::Fine => Ok(()),
            Verdict::CheckLost => self.check_lost(),
            Verdict::Hung => self.check_hung(),
        }
    }

    /// Whether the device has work: packets in flight, or packets that wait for room. Not packets
    /// that wait for memory or for [`TxQueue::resume`].
    fn is_pending(&self) -> bool {
        let waits = !matches!(
            self.progress.stalled,
            None | Some(Stall::NoMemory | Stall::Flush)
        );
        !self.flight.in_flight.is_empty() || (waits && !self.is_ready())
    }

    /// Packets accepted plus packets completed.
    fn moved(&self) -> u64 {
        self.counters.packets.get() + self.counters.reclaimed.get()
    }

    /// Polls the device as after a wake-up. If the queue waited for a wake-up and there are
    /// completions enough for it, the wake-up was lost.
    fn poll(&mut self) -> Result<(), DeviceError> {
        let before = self.moved();
        let report = self.describe(Trouble::MissedWakeup);
        let completed = self.collect()?;
        if !self.is_ready() {
            let mut queue = self.counting();
            let before = queue.counters.packets.get();
            let sent = queue.transmit_all(None);
            queue.count_batches(0, queue.counters.packets.get() - before);
            let rung = queue.flush();
            queue.count_calls();
            sent?;
            rung?;
        }
        // The device owes no wake-up to a worker that was awake, nor for fewer completions than it
        // was armed for.
        let found = completed.max(usize::from(self.moved() > before));
        let were_last = self.flight.in_flight.is_empty();
        if found > 0 && self.progress.watchdog.has_missed(found, were_last) {
            self.progress.watchdog.wake();
            self.counters.missed_wakeups.add(1);
            self.record(report);
        }
        Ok(())
    }

    /// Counts completions that are lost: later ones arrived long ago.
    fn check_lost(&mut self) -> Result<(), DeviceError> {
        if self.device.is_blocked() {
            self.flight.in_flight.postpone_lost();
            return Ok(());
        }
        // First: a busy queue may not have collected completions for a while.
        self.collect()?;
        let (lost, since) = self.flight.in_flight.take_lost(self.progress.now);
        if lost == 0 {
            return Ok(());
        }
        self.counters.lost_completions.add(lost as u64);
        self.recover(TroubleReport {
            since,
            ..self.describe(Trouble::LostCompletion)
        })
    }

    fn check_hung(&mut self) -> Result<(), DeviceError> {
        let before = self.moved();
        self.poll()?;
        if self.moved() > before {
            return Ok(());
        }
        let cause = if self.flight.in_flight.is_empty() {
            self.counters.stuck.add(1);
            Trouble::Stuck
        } else {
            self.counters.hangs.add(1);
            Trouble::Hung
        };
        self.recover(self.describe(cause))
    }

    fn recover(&mut self, report: TroubleReport) -> Result<(), DeviceError> {
        // Before the reset, which may fail.
        self.record(report);
        let was_reset = self.reset(self.progress.now)?;
        self.record(TroubleReport {
            was_reset,
            ..report
        });
        Ok(())
    }

    fn describe(&self, cause: Trouble) -> TroubleReport {
        TroubleReport {
            cause,
            at: self.progress.now,
            since: self.progress.watchdog.progress_at(),
            in_flight: self.flight.in_flight.len(),
            in_flight_bytes: self.flight.bytes.in_device(),
            held: self.held(),
            was_reset: false,
        }
    }

    fn record(&mut self, report: TroubleReport) {
        self.progress.troubles.record(report);
        self.progress.troubles_changed = true;
    }

    /// The last report of each cause, if there was one since the last call.
    pub fn take_troubles(&mut self) -> Option<TroubleLog> {
        std::mem::take(&mut self.progress.troubles_changed).then_some(self.progress.troubles)
    }

    /// As [`TxQueue::reclaim`], and returns the error that was found.
    pub(super) fn collect(&mut self) -> Result<usize, DeviceError> {
        let freed = self.reclaim(self.progress.now);
        self.check().map(|()| freed)
    }

    /// Returns an error that a call met which returns none.
    pub(super) fn check(&mut self) -> Result<(), DeviceError> {
        self.progress.failed.take().map_or(Ok(()), Err)
    }

    /// Frees the packets that the device has completed by `now`; returns their number. If the
    /// device has failed, [`TxQueue::service`] and [`TxQueue::transmit`] return the error.
    pub fn reclaim(&mut self, now: Instant) -> usize {
        self.progress.now = now;
        self.flight.unreclaimed = 0;
        #[cfg(feature = "plants")]
        if self.progress.locked_up {
            return 0;
        }
        if self.flight.in_flight.is_empty() {
            return 0;
        }
        self.device.reclaim(now, &mut self.flight.completed);
        if let Some(error) = self.flight.completed.take_failure() {
            self.progress.failed.get_or_insert(error);
        }
        let freed = self.free_completed();
        if freed > 0 {
            self.counters.reclaims.add(1);
        }
        let in_flight = self.flight.in_flight.len() as u64;
        self.progress
            .room
            .observe(now, self.flight.totals, in_flight);
        self.flight
            .bytes
            .set_interval(self.progress.room.interval());
        freed
    }

    /// Frees the packets whose tokens are in `completed`.
    pub(super) fn free_completed(&mut self) -> usize {
        let (mut freed, mut wire_packets, mut bytes) = (0, 0, 0);
        for token in self.flight.completed.drain() {
            if let Some((packet, sent)) = self.flight.in_flight.take(token) {
                freed += 1;
                wire_packets += u64::from(packet.meta().wire_packets);
                bytes += u64::from(sent);
            } else {
                self.counters.bad_completions.add(1);
            }
        }
        if freed > 0 {
            self.counters.reclaimed.add(freed as u64);
            self.flight.totals.packets += freed as u64;
            self.flight.totals.wire_packets += wire_packets;
            self.flight.bytes.complete(self.progress.now, bytes);
        }
        freed
    }

    /// Bytes in flight, and their limit: as many as keep the device busy. 0 bytes for a device that
    /// completes packets at once.
    #[cfg(test)]
    pub(super) const fn bytes_in_device(&self) -> (u64, u64) {
        (self.flight.bytes.in_device(), self.flight.bytes.limit())
    }

    /// Gives no more packets to the device until [`TxQueue::resume`]. Completions are still
    /// collected; once [`TxQueue::in_flight`] is 0, the device is empty. It counts as one stall for
    /// `flush`, unless the queue was stalled already.
    pub fn stop(&mut self) {
        #[cfg(feature = "plants")]
        self.ignore_change();
        self.progress.stopped = true;
        self.counting().stall(Stall::Flush);
    }

    /// Ends a [`TxQueue::stop`]. The next `transmit` gives packets to the device.
    pub fn resume(&mut self) {
        if std::mem::take(&mut self.progress.stopped) {
            self.counting().restart();
        }
    }

    /// Whether the queue is stopped.
    #[must_use]
    pub const fn is_stopped(&self) -> bool {
        self.progress.stopped
    }

    /// Drops all packets that wait here, counted under `reason`. So are those that the device has
    /// and certainly did not send, if it can return them.
    pub fn abandon(&mut self, reason: DropReason) {
        if !self.flight.in_flight.is_empty() {
            // A device that fails now may have sent them: they count as transmitted.
            self.counting().take_back(reason).ok();
        }
        let held = self.held();
        if held > 0 {
            self.drops.add(reason, held);
        }
        self.staged.clear();
        self.progress.stalled = None;
    }

    /// The number of completions after which the device wakes the worker. With descriptors used
    /// up, it is a quarter of the slots, at most half of the packets in flight: that is room for
    /// several packets of any kind, since one takes at most a twelfth of a ring, and the others
    /// keep the device busy. At the byte limit it is less than half of the packets: the limit grows
    /// if more than half have completed from one poll to the next.
    pub(super) fn wanted(&self) -> usize {
        let in_flight = self.flight.in_flight.len();
        let wanted = match self.progress.stalled {
            Some(Stall::NoDescriptor) => {
                (self.flight.in_flight.slots() / TX_ROOM_FRACTION).min(in_flight / 2)
            }
            Some(Stall::ByteLimit) => (3 * in_flight).div_ceil(8),
            // No packet waits for room.
            None | Some(Stall::Flush) => in_flight / 2,
            // Completions do not end the stall.
            Some(_) => 1,
        };
        wanted.max(1)
    }

    /// Gives the device the interrupt of this queue ([`TxDescriptors::set_interrupt`]).
    pub fn set_interrupt(&mut self, interrupt: Waker) {
        self.device.set_interrupt(interrupt);
    }

    /// Arms the device, if it has packets or some wait for it, to wake the worker once enough of
    /// them have completed. A device that does not count completions is not armed while
    /// [`TxQueue::retry_at`] states when to poll. Rings the doorbell before, so that no descriptors
    /// are pending while the worker sleeps.
    pub fn arm(&mut self) -> Armed {
        if self.flight.doorbell.is_pending()
            && let Err(error) = self.ring()
        {
            self.progress.failed = Some(error);
        }
        if self.progress.failed.is_some() {
            return Armed::WorkPending;
        }
        let waits = !self.is_ready() && !self.progress.stopped;
        if !waits && self.flight.in_flight.is_empty() {
            return Armed::Idle;
        }
        let wanted = self.wanted();
        let mut counted = None;
        if wanted > 1 {
            counted = self.device.arm_for(wanted);
            self.progress.room.counts = counted.is_some();
        }
        if counted.is_none() && self.rests() {
            self.progress.watchdog.sleep(None);
            return Armed::Idle;
        }
        let completions = if counted.is_some() { wanted } else { 1 };
        let Some(armed) = counted.or_else(|| self.device.arm()) else {
            self.progress.recheck_at = Some(self.progress.now.after(TX_REST_MAX));
            self.progress.watchdog.sleep(None);
            return Armed::Idle;
        };
        let is_idle = armed == Armed::Idle;
        self.progress.watchdog.sleep(is_idle.then_some(completions));
        // Else the next step polls.
        self.progress.sent &= is_idle;
        armed
    }

    /// Whether the device is full and rests (see `room.rs`): it is neither armed nor polled.
    fn rests(&self) -> bool {
        self.progress.stalled.is_some() && self.rests_until(self.progress.now).is_some()
    }

    fn rests_until(&self, now: Instant) -> Option<Instant> {
        // An armed device raises its interrupt by itself.
        let armed = match self.progress.stalled {
            Some(_) => self.progress.room.counts,
            None => self.progress.watchdog.is_waiting(),
        };
        self.progress.room.rests_until(now).filter(|_| !armed)
    }

    /// The descriptor that becomes ready when the device has room or has completed packets. `None`
    /// for a device without one, while the device rests, while memory is short, and while the queue
    /// is stopped and empty. [`TxQueue::retry_at`] then states when to step.
    pub fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        let stopped = self.progress.stopped && self.flight.in_flight.is_empty();
        let wake = self.device.wake();
        wake.filter(|_| self.progress.stalled != Some(Stall::NoMemory) && !stopped && !self.rests())
    }

    /// When to step if nothing wakes the worker: the next attempt after memory was short, a
    /// doorbell that is due, the end of the device's rest, its next event
    /// ([`TxDescriptors::next_at`]), or the watchdog's poll. [`TxQueue::arm`] changes it, so read
    /// it afterwards.
    #[must_use]
    pub fn retry_at(&self, now: Instant) -> Option<Instant> {
        let waits = self.progress.stalled == Some(Stall::NoMemory);
        let memory = waits.then(|| now.after(MEMORY_RETRY));
        let watchdog = self.is_pending().then(|| self.progress.watchdog.poll_at());
        let rest = self.rests_until(now);
        let due = self.device.next_at().filter(|_| rest.is_none());
        let doorbell = self.flight.doorbell.due_at(now);
        [
            memory,
            doorbell,
            rest,
            due,
            self.progress.recheck_at,
            watchdog,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The worker was woken for this queue. The next call of [`TxQueue::service`] polls the device,
    /// if it has packets.
    pub fn count_wakeup(&mut self) {
        self.counters.wakeups.add(1);
        self.note_wakeup();
    }

    /// As [`TxQueue::count_wakeup`], without counting: the wake-up is counted elsewhere, or a poll
    /// has found what it would have announced.
    pub fn note_wakeup(&mut self) {
        self.progress.watchdog.wake();
        // Also if packets were just sent: an interrupt may announce the end of a pause, which no
        // completion follows.
        self.progress.sent = false;
    }

    /// The last report of the watchdog.
    #[cfg(test)]
    pub(crate) fn trouble(&self) -> Option<&TroubleReport> {
        self.progress.troubles.iter().max_by_key(|report| report.at)
    }

    #[cfg(test)]
    pub(crate) const fn device(&self) -> &T {
        &self.device
    }

    /// The device, for what only it has. A method of [`TxDescriptors`] called here would make this
    /// queue's accounting wrong.
    pub const fn device_mut(&mut self) -> &mut T {
        &mut self.device
    }
}
