//! What a queue does beside sending: collecting what the device is done with, ringing in time,
//! stopping and waking, and noticing that nothing goes on.

use super::watchdog::{Seen, Verdict};
use super::{Source, TxQueue};
use crate::driver::{Armed, DeviceError, Interest, Token, TxDescriptors};
use crate::limits::{TX_RECLAIM_FREE_FRACTION, TX_RECLAIM_PACKETS, TX_REST_MAX, TX_ROOM_FRACTION};
use crate::stats::{DropReason, Stall, Trouble, TroubleLog, TroubleReport};
use crate::time::Instant;
use std::os::fd::BorrowedFd;
use std::task::Waker;
use std::time::Duration;

/// How soon a device is asked again that had no memory for a packet: nothing says when it has.
const MEMORY_RETRY: Duration = Duration::from_millis(1);

impl<T: TxDescriptors> TxQueue<T> {
    /// What is due at `now`. Call it at the start of each step: it rings a doorbell that is due,
    /// collects completed packets once that is worth it, and watches whether the device goes on.
    ///
    /// A device that does not go on is polled, then reported ([`TxQueue::trouble`]) and reset if it
    /// can be; this is no error.
    ///
    /// # Errors
    ///
    /// When the device is gone or failed, also if that was noticed while it was armed.
    pub fn service(&mut self, now: Instant) -> Result<(), DeviceError> {
        self.now = now;
        self.recheck_at = None;
        self.bytes.look(now);
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if self.doorbell.is_due(now) {
            self.ring()?;
        }
        // While packets come it waits for enough of them; the last ones are not left behind.
        let quiet = std::mem::replace(&mut self.quiet, true);
        let few_free = self.in_flight.free() < self.in_flight.slots() / TX_RECLAIM_FREE_FRACTION;
        if self.watchdog.poll_is_due(now) {
            self.poll()?;
        } else if quiet || few_free || self.unasked >= TX_RECLAIM_PACKETS {
            self.reclaim(self.now);
        }
        if self.stalled.is_none() {
            // Nothing waits for them. A few are collected in time; of many the memory is missed.
            if self.in_flight.len() > self.in_flight.slots() / TX_ROOM_FRACTION {
                self.room.keep(now);
            } else {
                self.room.end();
            }
        }
        let pending = self.is_pending();
        let seen = Seen {
            pending,
            progress: if self.in_flight.is_empty() {
                self.moved()
            } else {
                self.counters.reclaimed.get()
            },
            blocked: pending && self.device.is_blocked(),
        };
        match self.watchdog.observe(now, seen) {
            Verdict::Fine => Ok(()),
            Verdict::Age => self.look_for_lost(),
            Verdict::Halted => self.halted(),
        }
    }

    /// Whether the device owes something: packets back, or room for those that wait. No room while
    /// the system has no memory, or the queue is stopped.
    fn is_pending(&self) -> bool {
        let waits = !matches!(self.stalled, None | Some(Stall::NoMemory | Stall::Flush));
        !self.in_flight.is_empty() || (waits && !self.is_ready())
    }

    /// Packets that the device took, and that it gave back.
    fn moved(&self) -> u64 {
        self.counters.packets.get() + self.counters.reclaimed.get()
    }

    /// As if a wake-up had come. If that finds something, and one was owed, it was lost.
    fn poll(&mut self) -> Result<(), DeviceError> {
        let before = self.moved();
        let report = self.describe(Trouble::MissedWakeup);
        let done = self.reclaim(self.now);
        if !self.is_ready() {
            self.counters.begin();
            let before = self.counters.packets.get();
            let sent = self.transmit_all(None);
            self.count_batches(0, self.counters.packets.get() - before);
            let rung = self.flush();
            self.count_calls();
            self.counters.publish();
            sent?;
            rung?;
        }
        // A worker that was awake all the time was owed none; nor is one owed for fewer packets
        // than were asked for.
        let found = done.max(usize::from(self.moved() > before));
        let has_nothing_left = self.in_flight.is_empty();
        if found > 0 && self.watchdog.has_missed(found, has_nothing_left) {
            self.watchdog.wake();
            self.counters.missed_wakeups.add(1);
            self.note(report);
        }
        Ok(())
    }

    /// Packets that later ones have overtaken long ago do not come back by asking.
    fn look_for_lost(&mut self) -> Result<(), DeviceError> {
        if self.device.is_blocked() {
            self.in_flight.forgive();
            return Ok(());
        }
        // What is there already is not lost: a busy queue may not have asked for a while.
        self.reclaim(self.now);
        let (lost, since) = self.in_flight.tick(self.now);
        if lost == 0 {
            return Ok(());
        }
        self.counters.lost_completions.add(lost as u64);
        self.recover(TroubleReport {
            since,
            ..self.describe(Trouble::LostCompletion)
        })
    }

    fn halted(&mut self) -> Result<(), DeviceError> {
        let before = self.moved();
        // One has come, perhaps, but nothing was found so far.
        self.poll()?;
        if self.moved() > before {
            return Ok(());
        }
        let cause = if self.in_flight.is_empty() {
            self.counters.stuck.add(1);
            Trouble::Stuck
        } else {
            self.counters.hangs.add(1);
            Trouble::Hung
        };
        self.recover(self.describe(cause))
    }

    fn recover(&mut self, report: TroubleReport) -> Result<(), DeviceError> {
        // Said in any case, also if the reset fails.
        self.note(report);
        let was_reset = self.reset(self.now)?.is_some();
        self.note(TroubleReport {
            was_reset,
            ..report
        });
        Ok(())
    }

    fn describe(&self, cause: Trouble) -> TroubleReport {
        TroubleReport {
            cause,
            at: self.now,
            since: self.watchdog.progress_at(),
            in_flight: self.in_flight.len(),
            in_flight_bytes: self.bytes.in_device(),
            held: self.held(),
            was_reset: false,
        }
    }

    fn note(&mut self, report: TroubleReport) {
        self.troubles.note(report);
        self.trouble_news = true;
    }

    /// What was found last when the device did not go on. All of it is counted by cause
    /// ([`TxSnapshot::troubles`](crate::stats::TxSnapshot::troubles)).
    #[must_use]
    pub fn trouble(&self) -> Option<&TroubleReport> {
        self.troubles.last()
    }

    /// What was found of each cause, if anything was since the last call.
    pub fn take_troubles(&mut self) -> Option<TroubleLog> {
        std::mem::take(&mut self.trouble_news).then_some(self.troubles)
    }

    /// Frees what the device is done with at `now`; returns how many packets.
    pub fn reclaim(&mut self, now: Instant) -> usize {
        self.now = now;
        self.unasked = 0;
        if self.in_flight.is_empty() {
            return 0;
        }
        self.device.reclaim(now, &mut self.completed);
        let freed = self.free_completed();
        if freed > 0 {
            self.counters.reclaims.add(1);
        }
        let in_flight = self.in_flight.len() as u64;
        self.room.look(now, self.done, in_flight);
        self.bytes.look_every(self.room.interval());
        freed
    }

    /// Frees the packets whose tokens are in `completed`.
    pub(super) fn free_completed(&mut self) -> usize {
        let (mut freed, mut wire_packets, mut bytes) = (0, 0, 0);
        for token in self.completed.drain() {
            if let Some((packet, sent)) = self.in_flight.take(token) {
                freed += 1;
                wire_packets += u64::from(packet.meta().wire_packets);
                bytes += u64::from(sent);
            } else {
                self.counters.bad_completions.add(1);
            }
        }
        if freed > 0 {
            self.counters.reclaimed.add(freed as u64);
            self.done.packets += freed as u64;
            self.done.wire_packets += wire_packets;
            self.bytes.complete(self.now, bytes);
        }
        freed
    }

    /// Bytes that the device has, and as many as it may have before more have to wait: learned from
    /// what keeps it busy. Nothing for a device that is done with packets at once.
    #[must_use]
    pub const fn bytes_in_device(&self) -> (u64, u64) {
        (self.bytes.in_device(), self.bytes.limit())
    }

    /// Gives nothing more to the device: what it has is collected, what comes waits. Until it is
    /// resumed that is one stall for `flush`, unless the queue was stalled already. Once
    /// [`TxQueue::in_flight`] is 0 the device is empty.
    pub fn stop(&mut self) {
        self.stopped = true;
        self.counters.begin();
        self.stall(Stall::Flush);
        self.counters.publish();
    }

    /// Goes on after [`TxQueue::stop`], at the next `transmit`.
    pub fn resume(&mut self) {
        if std::mem::take(&mut self.stopped) {
            self.counters.begin();
            self.restart();
            self.counters.publish();
        }
    }

    /// Whether it was told to stop.
    #[must_use]
    pub const fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Gives up on everything that is still here, counted under `reason`.
    pub fn abandon(&mut self, reason: DropReason) {
        let held = self.held();
        if held > 0 {
            self.drops.add(reason, held);
        }
        for source in [&mut self.waiting, &mut self.again] {
            Source::clear(source);
        }
        self.fitted.clear();
        self.front_defragged = false;
        self.stalled = None;
    }

    /// How many packets the device completes before it wakes the worker. A quarter of its slots
    /// has room for several packets of any kind, since one takes at most a twelfth of a ring, and
    /// what is left keeps it busy meanwhile. Of fewer packets than slots it is half of them, and of
    /// those that are as many bytes as it may have, a little less: the limit grows where more than
    /// half have gone from one poll to the next.
    pub(super) fn wanted(&self) -> usize {
        let in_flight = self.in_flight.len();
        let wanted = match self.stalled {
            Some(Stall::NoDescriptor) => {
                (self.in_flight.slots() / TX_ROOM_FRACTION).min(in_flight / 2)
            }
            Some(Stall::ByteLimit) => (3 * in_flight).div_ceil(8),
            // What it has is collected, and no packet waits for room.
            None | Some(Stall::Flush) => in_flight / 2,
            // It is not completions that it lacks.
            Some(_) => 1,
        };
        wanted.max(1)
    }

    /// Gives the device the interrupt of this queue ([`TxDescriptors::set_interrupt`]).
    pub fn set_interrupt(&mut self, interrupt: Waker) {
        self.device.set_interrupt(interrupt);
    }

    /// Time at which what the device was armed for happens ([`TxDescriptors::next_at`]).
    /// [`TxQueue::retry_at`] includes it.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        self.device.next_at()
    }

    /// Asks for a wake-up if the device has packets, or some wait for it; not before it is done
    /// with enough of them. One that cannot count is not asked if [`TxQueue::retry_at`] says when
    /// to poll. Rings the doorbell before: no worker sleeps on packets of which the device does not
    /// know.
    pub fn arm(&mut self) -> Armed {
        if self.doorbell.is_owed()
            && let Err(error) = self.ring()
        {
            self.failed = Some(error);
        }
        if self.failed.is_some() {
            return Armed::WorkPending;
        }
        let waits = !self.is_ready() && !self.stopped;
        if !waits && self.in_flight.is_empty() {
            return Armed::Idle;
        }
        let wanted = self.wanted();
        let mut counted = None;
        if wanted > 1 {
            counted = self.device.arm_for(wanted);
            self.room.counts = counted.is_some();
        }
        if counted.is_none() && self.rests() {
            self.watchdog.sleep(None);
            return Armed::Idle;
        }
        let once_done = if counted.is_some() { wanted } else { 1 };
        let Some(armed) = counted.or_else(|| self.device.arm()) else {
            self.recheck_at = Some(self.now.after(TX_REST_MAX));
            self.watchdog.sleep(None);
            return Armed::Idle;
        };
        self.watchdog
            .sleep((armed == Armed::Idle).then_some(once_done));
        armed
    }

    /// Whether the device is full and left alone for now, and not armed.
    pub(crate) fn rests(&self) -> bool {
        self.stalled.is_some() && self.rests_until(self.now).is_some()
    }

    fn rests_until(&self, now: Instant) -> Option<Instant> {
        // One that counts says by itself when it has room, and one that was asked what it has done.
        let says = match self.stalled {
            Some(_) => self.room.counts,
            None => self.watchdog.is_waiting(),
        };
        self.room.rests_until(now).filter(|_| !says)
    }

    /// What becomes ready when the device can go on, or has completed something; `None` for a
    /// device that never makes a worker wait, while one that cannot count is left alone, and while
    /// the system lacks memory or the queue is stopped: [`TxQueue::retry_at`] says when to try
    /// again then.
    pub fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        let stopped = self.stopped && self.in_flight.is_empty();
        let wake = self.device.wake();
        wake.filter(|_| self.stalled != Some(Stall::NoMemory) && !stopped && !self.rests())
    }

    /// When to step again though nothing wakes the worker: the system had no memory just now, a
    /// doorbell is due, the device has been left alone for long enough or completes something, or
    /// one with work is asked whether its wake-up was lost. [`TxQueue::arm`] changes it, so it is
    /// read afterwards.
    #[must_use]
    pub fn retry_at(&self, now: Instant) -> Option<Instant> {
        let waits = self.stalled == Some(Stall::NoMemory);
        let memory = waits.then(|| now.after(MEMORY_RETRY));
        let watchdog = self.is_pending().then(|| self.watchdog.poll_at());
        let rest = self.rests_until(now);
        let due = self.next_at().filter(|_| rest.is_none());
        let doorbell = self.doorbell.due_at(now);
        [memory, doorbell, rest, due, self.recheck_at, watchdog]
            .into_iter()
            .flatten()
            .min()
    }

    /// The worker was woken for this queue.
    pub fn count_wakeup(&self) {
        self.counters.wakeups.add(1);
        self.note_wakeup();
    }

    /// As [`TxQueue::count_wakeup`], for a wake-up that was counted before.
    pub fn note_wakeup(&self) {
        self.watchdog.wake();
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

    /// In the order in which the device got them, the last first.
    pub(super) fn sort_last_first(&self, tokens: &mut [Token]) {
        tokens.sort_unstable_by_key(|&token| std::cmp::Reverse(self.in_flight.serial(token)));
    }
}
