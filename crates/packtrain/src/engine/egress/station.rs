//! What the consumer of a ring works on: the TX queue, and what decides about its dispatch.

use super::Egress;
use crate::driver::{Armed, DeviceError, Interest, TxDescriptors};
use crate::engine::control::Command;
use crate::limits::TX_RING_PACKETS;
use crate::packet::{Burst, Packet};
use crate::policy::dispatch::{Dispatch, Dispatcher, Observation, Rule};
use crate::queue::ring::{Drained, Turn};
use crate::queue::{Sent, TxQueue};
use crate::stats::{DropCounters, DropReason, Stall};
use crate::time::Instant;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// Packets after which the policy is told (a turn without any is one): they share the cost. That
/// is some 80 ns, of which most is reading the clock twice. After 64 turns it was 1.5 % of the time
/// of a packet that is sent alone, and so half of what the policy may lose against a fixed setting.
const OBSERVE_AFTER: u64 = 256;
/// And after so long, if the worker comes: it is perhaps woken for each packet of a load that has
/// become light, which the policy is to know before there were 256 of them.
const OBSERVE_EVERY: Duration = Duration::from_millis(16);
const NEVER: u64 = u64::MAX;

/// The state in the ring.
#[derive(Debug)]
pub(super) struct Station<T> {
    /// None once the run is over: the device is given back, whoever still has a handle.
    queue: Option<TxQueue<T>>,
    /// Taken out of the ring, and not taken by the queue yet.
    stage: Burst,
    /// What the device said to a producer that is not the worker: the worker ends the run.
    failed: Option<DeviceError>,
    /// It was not the worker who gave packets to the device last.
    by_handle: bool,
    drops: Arc<DropCounters>,
    observer: Observer,
}

/// What the worker takes with it from a visit as the consumer.
#[derive(Debug, Default)]
pub(in crate::engine) struct Visit {
    /// What wakes the worker when the device can go on.
    pub(in crate::engine) watch: Watch,
    /// When to come again though nothing wakes it.
    pub(in crate::engine) retry_at: Option<Instant>,
    /// That is when the device is to be looked at, and it wakes nobody before.
    pub(in crate::engine) rests: bool,
    /// Why the run cannot go on.
    pub(in crate::engine) error: Option<DeviceError>,
    /// It is the visit at the start of a step: the queue does what is due.
    pub(in crate::engine) serves: bool,
    /// The device woke the worker since the last visit.
    pub(in crate::engine) woken: bool,
    /// The device may not know of all packets yet: the doorbell is rung at the end of the step.
    pub(in crate::engine) owes: bool,
}

/// The descriptor of a device, to be watched without being its consumer: a duplicate, made when
/// it is needed first. The device may be another thread's while the worker waits.
#[derive(Debug, Default)]
pub(in crate::engine) struct Watch {
    pub(in crate::engine) wanted: Option<Interest>,
    pub(in crate::engine) fd: Option<(RawFd, OwnedFd)>,
}

impl Watch {
    fn set<T: TxDescriptors>(&mut self, queue: &TxQueue<T>) -> Result<(), DeviceError> {
        self.wanted = None;
        if queue.is_ready() && queue.in_flight() == 0 {
            return Ok(());
        }
        let Some((fd, interest)) = queue.wake() else {
            return Ok(());
        };
        let number = fd.as_raw_fd();
        if self.fd.as_ref().is_none_or(|(known, _)| *known != number) {
            let action = "watch a device";
            let failed = |source| DeviceError::Failed { action, source };
            self.fd = Some((number, fd.try_clone_to_owned().map_err(failed)?));
        }
        self.wanted = Some(interest);
        Ok(())
    }
}

impl<T: TxDescriptors> Station<T> {
    pub(super) fn new(queue: TxQueue<T>, drops: Arc<DropCounters>, dispatch: Dispatch) -> Self {
        Self {
            queue: Some(queue),
            stage: Burst::new(),
            failed: None,
            by_handle: false,
            drops,
            observer: Observer::new(dispatch),
        }
    }

    /// One turn: what `own` has, then what the ring has, as much as the device takes. `visit` is
    /// that of the worker; an error goes to it, now or when it comes.
    pub(super) fn turn(
        &mut self,
        egress: &Egress<T>,
        own: Option<&mut Burst>,
        items: &mut Drained<'_, Packet, Self>,
        mut visit: Option<&mut Visit>,
        now: &impl Fn() -> Instant,
    ) -> Turn {
        let result = match self.failed.take() {
            Some(error) => Err(error),
            None => self.observed(egress, own, items, visit.as_deref_mut(), now),
        };
        self.show(egress);
        let result = match (&mut visit, &self.queue) {
            (Some(visit), Some(queue)) => {
                visit.retry_at = queue.retry_at(now());
                visit.rests = queue.rests();
                // The first error is the one to tell.
                result.and_then(|sent| visit.watch.set(queue).map(|()| sent))
            }
            _ => result,
        };
        match result {
            Ok(Sent::All) => Turn::More,
            Ok(Sent::Stalled(cause)) => Turn::Stalled(cause),
            Err(error) => {
                match visit {
                    Some(visit) => visit.error = Some(error),
                    None => self.failed = Some(error),
                }
                Turn::Stalled(Stall::Busy)
            }
        }
    }

    fn observed(
        &mut self,
        egress: &Egress<T>,
        own: Option<&mut Burst>,
        items: &mut Drained<'_, Packet, Self>,
        visit: Option<&mut Visit>,
        now: &impl Fn() -> Instant,
    ) -> Result<Sent, DeviceError> {
        let waiting = items.len() as u64 + own.as_ref().map_or(0, |own| own.len() as u64);
        // A worker's clock costs nothing: it has read it for the whole step.
        let is_late = visit.is_some() && self.observer.is_late(now());
        let begin = (is_late || self.observer.is_due()).then(now);
        let (sent, packets) = self.send(egress, own, items, visit, now)?;
        self.observer.add(waiting, packets);
        if let Some(begin) = begin {
            self.observer.tell(egress, packets, begin, now());
        }
        Ok(sent)
    }

    /// Gives packets to the device; says also how many it was given that were not here before.
    fn send(
        &mut self,
        egress: &Egress<T>,
        own: Option<&mut Burst>,
        items: &mut Drained<'_, Packet, Self>,
        visit: Option<&mut Visit>,
        now: &impl Fn() -> Instant,
    ) -> Result<(Sent, u64), DeviceError> {
        let Some(queue) = &mut self.queue else {
            // Nobody submits any more once it is gone; see `Egress::close`.
            debug_assert_eq!(items.len(), 0);
            return Ok((Sent::All, 0));
        };
        if items.len() > 0 || own.as_ref().is_some_and(|own| !own.is_empty()) {
            self.by_handle = visit.is_none();
        }
        // Of a worker's step there is more to come, and it rings once for all of it.
        let is_worker = visit.is_some();
        let more = is_worker && own.is_some();
        let due = match visit {
            Some(visit) => {
                visit.owes |= more;
                if std::mem::take(&mut visit.woken) {
                    queue.note_wakeup();
                }
                std::mem::take(&mut visit.serves)
            }
            // A device that is done with packets at once needs no clock.
            None => queue.in_flight() > 0 || !queue.is_ready(),
        };
        if due {
            let before = queue.counters().reclaimed.get();
            queue.service(now())?;
            if is_worker && queue.counters().reclaimed.get() != before {
                // What was asked for has been found.
                queue.note_wakeup();
            }
        }
        if queue.is_stopped() {
            // It stays in the ring, which is stalled for as long, also while it is empty.
            return Ok((Sent::Stalled(Stall::Flush), 0));
        }
        let transmit = |queue: &mut TxQueue<T>, burst: &mut Burst| {
            if more {
                queue.transmit_more(burst)
            } else {
                queue.transmit(burst)
            }
        };
        let mut packets = 0;
        if let Some(own) = own.filter(|own| !own.is_empty()) {
            let before = own.len();
            let sent = transmit(queue, own)?;
            packets += (before - own.len()) as u64;
            if sent != Sent::All {
                return Ok((sent, packets));
            }
        }
        if self.stage.is_empty() {
            for packet in items.take(self.stage.room()) {
                if let Err(packet) = self.stage.push(packet) {
                    drop(packet);
                    unreachable!("there is room for all that are taken");
                }
            }
            packets += self.stage.len() as u64;
            if !self.stage.is_empty() {
                let taken = self.stage.wire_packets();
                egress.stats.shown.taken.add(taken);
            }
        }
        if !self.stage.is_empty() || !queue.is_ready() {
            return Ok((transmit(queue, &mut self.stage)?, packets));
        }
        if !more {
            queue.ring_if_owed()?;
        }
        Ok((Sent::All, packets))
    }

    /// Tells the device of what it was given.
    pub(super) fn ring(&mut self, egress: &Egress<T>, visit: &mut Visit, now: Instant) {
        let Some(queue) = &mut self.queue else { return };
        if let Err(error) = queue.ring_if_owed() {
            visit.error = Some(error);
        }
        visit.retry_at = queue.retry_at(now);
        self.show(egress);
    }

    /// Does `command` to the queue. False for a device that cannot do that.
    pub(super) fn command(
        &mut self,
        egress: &Egress<T>,
        command: Command,
        now: Instant,
    ) -> Result<bool, DeviceError> {
        let Some(queue) = &mut self.queue else {
            return Ok(false);
        };
        let done = match command {
            Command::Pause => {
                queue.stop();
                // What it was given before is under way.
                queue.ring_if_owed().map(|()| true)
            }
            Command::Resume => {
                queue.resume();
                Ok(true)
            }
            Command::Reset => queue.reset(now).map(|done| done.is_some()),
        };
        self.show(egress);
        done
    }

    /// How to leave the ring where nothing was sent: what waits here is the next consumer's.
    pub(super) fn at_rest(&self) -> Turn {
        if self.queue.as_ref().is_some_and(TxQueue::is_stopped) {
            Turn::Stalled(Stall::Flush)
        } else if self.is_ready() {
            Turn::More
        } else {
            Turn::Stalled(Stall::NoDescriptor)
        }
    }

    /// Shows to all what only the consumer can see.
    pub(super) fn show(&mut self, egress: &Egress<T>) {
        let shown = &egress.stats.shown;
        let ready = self.is_ready();
        let Some(queue) = &mut self.queue else {
            shown.held.set(0);
            shown.in_flight.set(0);
            return;
        };
        shown.held.set(if ready {
            0
        } else {
            queue.held() + self.stage.wire_packets()
        });
        shown.by_handle.set(self.by_handle.into());
        shown.in_flight.set(queue.in_flight() as u64);
        shown.features.set(queue.features().bits());
        shown.refused.set(queue.refused().bits());
        if let Some(troubles) = queue.take_troubles() {
            *egress.stats.troubles() = troubles;
        }
    }

    /// Whether nothing waits behind the ring, and what comes may go.
    pub(super) fn is_ready(&self) -> bool {
        let ready = |queue: &TxQueue<T>| queue.is_ready() && !queue.is_stopped();
        self.failed.is_none() && self.stage.is_empty() && self.queue.as_ref().is_none_or(ready)
    }

    /// Whether the worker has an error to take.
    pub(super) const fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Asks the device for a wake-up. `looks`: the worker will look by its clock.
    pub(super) fn arm(&mut self, looks: bool) -> Armed {
        if self.failed.is_some() {
            return Armed::WorkPending;
        }
        let queue = self.queue.as_mut();
        queue.map_or(Armed::Idle, |queue| queue.arm_and_look(looks))
    }

    /// Counts what is here and in `items` as lost for `reason`.
    pub(super) fn abandon(
        &mut self,
        egress: &Egress<T>,
        items: &mut Drained<'_, Packet, Self>,
        reason: DropReason,
    ) {
        let mut lost = self.stage.wire_packets();
        self.stage.clear();
        for packet in items {
            let wire_packets = u64::from(packet.meta().wire_packets);
            egress.stats.shown.taken.add(wire_packets);
            lost += wire_packets;
        }
        if lost > 0 {
            self.drops.add(reason, lost);
        }
        if let Some(queue) = &mut self.queue {
            queue.abandon(reason);
        }
        self.failed = None;
        self.show(egress);
    }

    /// Gives the device back.
    pub(super) fn take_queue(&mut self) -> Option<TxQueue<T>> {
        self.queue.take()
    }
}

/// What the dispatch policy is told.
#[derive(Debug)]
struct Observer {
    dispatcher: Dispatcher,
    /// Packets after which to tell; [`NEVER`] for the fixed settings, which need to be told
    /// nothing. They count all the same: to ask for each packet whether to count it costs more.
    tell_after: u64,
    seen: Observation,
    turns: u64,
    /// Of these, the ones that sent nothing.
    empty: u64,
    /// Packets of turns that sent several, less one for each: so a packet that is sent alone, which
    /// is most of what direct dispatch does, counts one number.
    more: u64,
    /// Packets that turns found and did not send.
    left: u64,
    told_at: Instant,
    /// What producers had counted at the last observation: left to others, wake-ups.
    before: [u64; 2],
}

impl Observer {
    fn new(dispatch: Dispatch) -> Self {
        Self {
            dispatcher: Dispatcher::new(dispatch, TX_RING_PACKETS as u32),
            tell_after: match dispatch {
                Dispatch::Adaptive => OBSERVE_AFTER,
                _ => NEVER,
            },
            seen: Observation::default(),
            turns: 0,
            empty: 0,
            more: 0,
            left: 0,
            told_at: Instant::default(),
            before: [0; 2],
        }
    }

    /// Whether this turn is one to take the time of.
    const fn is_due(&self) -> bool {
        self.turns + self.more >= self.tell_after
    }

    /// Whether what there is to tell is old.
    fn is_late(&self, now: Instant) -> bool {
        self.tell_after != NEVER && self.turns > 0 && now.since(self.told_at) >= OBSERVE_EVERY
    }

    const fn add(&mut self, waiting: u64, packets: u64) {
        self.turns += 1;
        if waiting == 1 && packets == 1 {
            return;
        }
        if packets == 0 {
            self.empty += 1;
        } else {
            self.more += packets - 1;
        }
        self.left += waiting.saturating_sub(packets);
    }

    /// Once in some hundred packets: out of the way of the others.
    #[inline(never)]
    fn tell<T>(&mut self, egress: &Egress<T>, packets: u64, begin: Instant, end: Instant) {
        let signs = egress.signs.read();
        let [left, wakeups] = [0, 1].map(|i| signs[i].wrapping_sub(self.before[i]));
        self.before = signs;
        self.seen.packets = self.turns - self.empty + self.more;
        self.seen.depth = self.seen.packets + self.left;
        self.seen.enqueues = self.turns + left;
        self.seen.contended = left;
        self.seen.wakeups = wakeups;
        self.seen.wakeup_ns = egress.signs.wakeup_ns();
        self.seen.worker_awake = !egress.alarm.is_asleep();
        self.seen.idle_cpus = egress.idle_cpus();
        self.seen.producers = egress.handles();
        // A worker's clock stands still during a step: then nothing was measured.
        let ns = end.since(begin).as_nanos() as u64;
        if ns > 0 {
            (self.seen.timed_packets, self.seen.timed_ns) = (packets, ns);
        }
        let rule: Rule = self.dispatcher.observe(end, &self.seen);
        // Whoever tells has the role, and so writes the counters of the queue.
        let changes = self.dispatcher.changes();
        egress.counters.dispatch_changes.set(changes);
        egress.publish_rule(rule);
        self.seen = Observation::default();
        (self.turns, self.empty, self.more, self.left) = (0, 0, 0, 0);
        self.told_at = end;
    }
}

#[cfg(all(test, not(packtrain_loom)))]
mod tests {
    use super::*;
    use crate::driver::{Accepted, Capabilities, Refused, Token, TxPacket};
    use crate::engine::alarm::Alarm;
    use crate::packet::{Arena, ArenaConfig};
    use crate::plan::FitLimits;
    use crate::stats::{QueueId, TxCounters};

    #[derive(Debug)]
    struct Sink;

    impl TxDescriptors for Sink {
        fn encap(
            &mut self,
            _packet: &mut TxPacket<'_>,
            _token: Token,
        ) -> Result<Accepted, Refused> {
            Ok(Accepted::Complete)
        }

        fn doorbells(&self) -> u64 {
            0
        }
    }

    /// All time goes into draining and a CPU is free: deferring is tried, and gains nothing. What
    /// is counted is what producers would see of it, the word that they ask.
    #[test]
    fn changes_of_the_rule_are_counted_as_producers_see_them() {
        for (dispatch, least) in [(Dispatch::Adaptive, 2), (Dispatch::Direct, 0)] {
            let capabilities = Capabilities::default();
            let counters = Arc::new(TxCounters::new(QueueId { port: 1, queue: 0 }));
            let queue = TxQueue::new(
                Sink,
                Arena::new(ArenaConfig::small()).unwrap(),
                capabilities.tx,
                FitLimits::new(&capabilities, None),
                None,
                Arc::clone(&counters),
                Arc::default(),
            );
            let alarm = Arc::new(Alarm::new().unwrap());
            let egress = Egress::new(queue, Arc::default(), dispatch, 4, alarm, false);
            let mut observer = Observer::new(dispatch);
            let (mut now, mut before, mut seen) = (Instant::default(), egress.rule(), 0);
            for _ in 0..10_000 {
                let end = now.after(Duration::from_micros(100));
                observer.add(256, 256);
                // Fixed settings need to be told nothing, which costs.
                let asks = dispatch == Dispatch::Adaptive;
                assert_eq!(observer.is_due(), asks, "{dispatch}");
                let later = end.after(Duration::from_secs(1));
                assert_eq!(observer.is_late(later), asks, "{dispatch}");
                observer.tell(&egress, 256, now, end);
                now = end;
                let rule = egress.rule();
                seen += u64::from(rule.to_bits() != before.to_bits());
                before = rule;
                assert_eq!(counters.snapshot().dispatch_changes, seen, "{dispatch}");
            }
            assert!(seen >= least, "{dispatch}: {seen}");
        }
    }
}
