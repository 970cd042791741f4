//! RX queues: bounded polls, at most one parse a packet, counted bad packets, and moderated
//! wake-ups.

mod throttle;

use crate::driver::{Armed, BadPackets, DeviceError, Interest, Received, RxBurst, RxDescriptors};
use crate::limits::RX_COPY_BREAK_BYTES;
use crate::packet::{Arena, Burst, Ingress, Packet};
use crate::plant::planted;
use crate::policy::moderation::Moderation;
use crate::stats::{DropCounters, DropReason, RxCounters};
use crate::time::Instant;
use crate::trace;
use packtrain_offload::layout::Layout;
use packtrain_offload::limits::HEADER_BYTES_MAX;
use packtrain_offload::offload::{ChecksumState, LinkType};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use throttle::Throttle;

/// One RX queue. Owned by one worker.
#[derive(Debug)]
pub struct RxQueue<R> {
    device: R,
    arena: Arena,
    link: LinkType,
    ingress: Ingress,
    counters: Arc<RxCounters>,
    drops: Arc<DropCounters>,
    /// The device has fewer buffers than it could use.
    short: bool,
    /// In addition the last poll found no packet: the device may have no buffer at all.
    starved: bool,
    retry_at: Instant,
    throttle: Throttle,
    /// Every packet gets a layout.
    parses: bool,
    /// Every packet gets a layout, since a coalescer merges packets now.
    merges: bool,
    /// The delay that the device was asked for last.
    asked: Duration,
    /// The device counts waiting packets, so it wakes the worker during a delay as well.
    counts: bool,
    /// The plant `bad-descriptor-resets`: packets are lost until then.
    #[cfg(feature = "plants")]
    resets_at: Instant,
}

/// The time to the next refill of a device that lacks buffers, if no packet arrives.
const REFILL_RETRY: Duration = Duration::from_millis(1);

/// Counts the bad packets of one poll.
#[derive(Debug)]
struct Bad<'a> {
    counters: &'a RxCounters,
    drops: &'a DropCounters,
}

impl BadPackets for Bad<'_> {
    fn bad(&mut self, reason: DropReason, wire_packets: u64) {
        self.counters.bad_packets.add(1);
        self.counters.wire_packets.add(wire_packets);
        if planted!(NotCounted) {
            return;
        }
        self.drops.add(reason, wire_packets);
    }
}

impl<R: RxDescriptors> RxQueue<R> {
    /// A queue of `device`, whose packets start with `link` and get `ingress`. It delays no
    /// wake-up; see [`RxQueue::moderated`].
    #[must_use]
    pub const fn new(
        device: R,
        arena: Arena,
        link: LinkType,
        ingress: Ingress,
        counters: Arc<RxCounters>,
        drops: Arc<DropCounters>,
    ) -> Self {
        Self {
            device,
            arena,
            link,
            ingress,
            counters,
            drops,
            short: true,
            starved: false,
            retry_at: Instant::from_nanos(0),
            throttle: Throttle::new(Moderation::Off),
            parses: true,
            merges: false,
            asked: Duration::ZERO,
            counts: false,
            #[cfg(feature = "plants")]
            resets_at: Instant::from_nanos(0),
        }
    }

    /// The same queue with moderated wake-ups.
    #[must_use]
    pub fn moderated(mut self, setting: Moderation) -> Self {
        self.throttle = Throttle::new(setting);
        self
    }

    /// The same queue for a path that needs a layout only to cut a packet or to finish its
    /// checksum: other packets get none, unless they are merged.
    #[must_use]
    pub const fn unparsed(mut self) -> Self {
        self.parses = false;
        self
    }

    /// States whether packets are merged from now on, for which each needs a layout.
    pub const fn set_merges(&mut self, merges: bool) {
        self.merges = merges;
    }

    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> &Arc<RxCounters> {
        &self.counters
    }

    /// The drops before packets reach a TX path, which the worker of this queue counts.
    #[must_use]
    pub const fn drops(&self) -> &Arc<DropCounters> {
        &self.drops
    }

    /// Receives at most `budget` packets into `burst`, including bad ones. Returns true if the
    /// budget ended the poll: then there may be more.
    ///
    /// # Errors
    ///
    /// If the device as a whole failed; packets received before are in `burst`.
    pub fn poll(
        &mut self,
        now: Instant,
        burst: &mut Burst,
        budget: usize,
    ) -> Result<bool, DeviceError> {
        self.counters.begin();
        self.counters.polls.add(1);
        if self.short {
            self.refill(now);
        }
        let (before, received) = (burst.len(), self.received());
        let held = self.device.held();
        let mut bad = Bad {
            counters: &self.counters,
            drops: &self.drops,
        };
        let sink = RxBurst::new(burst, budget, &mut bad);
        let mut sink = sink.of_queue(self.link, self.ingress);
        let result = self.device.receive(now, &mut sink);
        let (exhausted, sums) = (sink.exhausted(), sink.received());
        if exhausted {
            self.counters.budget_exhausted.add(1);
        }
        self.admit(burst, before, &sums);
        #[cfg(feature = "plants")]
        self.plant(now, burst, before, received);
        let nothing_came = self.received() == received;
        if !nothing_came {
            self.counters
                .batches
                .poll
                .record(self.received() - received);
            trace::rx_poll(self.counters.id, self.received() - received);
        }
        // Packets that the device keeps for later, as on a slow wire, use buffers too.
        let took_nothing = nothing_came && self.device.held() == held;
        if !took_nothing {
            // Before the packets are processed, so that the device receives meanwhile; and before
            // the worker sleeps, since a device without buffers never wakes it.
            self.refill(now);
        }
        self.starved = self.short && took_nothing;
        self.counters.syscalls.set(self.device.syscalls());
        self.counters.publish();
        result.map(|()| exhausted)
    }

    /// Plants, after a poll that found `before` packets in `burst` and `received` counted.
    #[cfg(feature = "plants")]
    fn plant(&mut self, now: Instant, burst: &mut Burst, before: usize, received: u64) {
        let good = burst.len() - before;
        let has_bad = self.received() - received > good as u64;
        if planted!(BadDropsNeighbour)
            && has_bad
            && good > 0
            && let Some(neighbour) = burst.batch().pop_back()
        {
            let wire_packets = u64::from(neighbour.meta().wire_packets);
            self.drops.add(DropReason::BadDescriptor, wire_packets);
        }
        if planted!(BadDescriptorResets) {
            if now < self.resets_at {
                self.abandon(burst, DropReason::DeviceReset);
            } else if has_bad {
                self.resets_at = now.after(crate::plant::RESET_AFTER);
            }
        }
    }

    fn refill(&mut self, now: Instant) {
        self.counters.refills.add(1);
        self.short = !self.device.refill(&self.arena);
        if self.short {
            self.counters.alloc_fail.add(1);
            self.retry_at = now.after(REFILL_RETRY);
        }
    }

    /// Counts the packets of a burst behind the first `before`, and copies or parses those that
    /// need it.
    fn admit(&self, burst: &mut Burst, before: usize, sums: &Received) {
        let parses = self.parses || self.merges;
        if parses || sums.has_unusual {
            for packet in burst.iter_mut().skip(before) {
                if packet.bytes() <= RX_COPY_BREAK_BYTES {
                    self.copy_break(packet);
                }
                let meta = packet.meta();
                let is_unfinished = matches!(meta.checksum, ChecksumState::Partial { .. });
                if meta.layout.is_none() && (parses || is_unfinished || meta.gso.is_some()) {
                    self.parse(packet);
                }
            }
        }
        let counters = &self.counters;
        let packets = (burst.len() - before) as u64;
        counters.packets.add(packets);
        counters.bytes.add(sums.bytes);
        counters.wire_packets.add(sums.wire_packets);
        counters.gso_packets.add(sums.gso);
        counters.csum_none.add(sums.unverified);
        counters.csum_unnecessary.add(packets - sums.unverified);
    }

    /// Copies a small packet from a large frame to a small one, so that the large frame is free
    /// while the packet waits. If no small frame is free, the packet stays in the large one.
    fn copy_break(&self, packet: &mut Packet) {
        if packet.segment_count() != 1 || packet.in_small_frames() {
            return;
        }
        if let Ok(mut small) = self.arena.packet_from(packet.first()) {
            small.copy_meta(packet);
            *packet = small;
            self.counters.copybreak.add(1);
        }
    }

    /// Parses the packet once for all later stages. A packet that does not parse is forwarded
    /// unchanged, as by a bridge.
    fn parse(&self, packet: &mut Packet) {
        let headers = packet.bytes().min(HEADER_BYTES_MAX);
        if packet.first().len() < headers {
            match packet.pull(headers) {
                Ok(true) => self.counters.pullups.add(1),
                Ok(false) => {}
                // Without a frame for the headers the packet is not parsed.
                Err(_no_frame) => return,
            }
        }
        if let Ok(layout) = Layout::parse(self.link, packet.first(), packet.bytes() as u32) {
            packet.meta_mut().layout = Some(layout);
        }
    }

    /// Whether the device has fewer buffers than it could use, since the arena is empty.
    #[must_use]
    pub const fn is_short(&self) -> bool {
        self.short
    }

    /// Packets received since the start, including bad ones.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.counters.packets.get() + self.counters.bad_packets.get()
    }

    /// Drops packets that were received here and not accepted by a TX queue.
    pub fn abandon(&self, burst: &mut Burst, reason: DropReason) {
        let held = burst.wire_packets();
        if held > 0 {
            self.drops.add(reason, held);
        }
        burst.clear();
    }

    /// A step begins; `slept` states whether the worker slept before it.
    pub fn resume(&mut self, slept: bool) {
        self.throttle.resume(slept);
    }

    /// The queue was polled in this step, and `found` states whether packets arrived. If none did,
    /// the moderation policy decides how long its next wake-up is delayed.
    pub fn settle(&mut self, now: Instant, found: bool) {
        let counters = &self.counters;
        let seen = (counters.packets.get(), counters.bytes.get());
        let wakeups = counters.wakeups.get();
        if self.throttle.settle(now, found, seen, wakeups) {
            counters.wakeups.add(1);
        }
        counters.moderation_changes.set(self.throttle.changes());
        let delay = self.throttle.delay();
        if delay != self.asked {
            self.asked = delay;
            self.throttle.leave(self.device.moderate(delay));
        }
    }

    /// Gives the device the interrupt of this queue ([`RxDescriptors::set_interrupt`]).
    pub fn set_interrupt(&mut self, interrupt: Waker) {
        self.device.set_interrupt(interrupt);
    }

    /// Arms the device to wake the worker when a packet arrives. During a delay it wakes the worker
    /// for as many packets as end the delay, if it counts them. A device without buffers is not
    /// armed: it would report packets that it cannot receive, each time.
    pub fn arm(&mut self) -> Armed {
        let frames = self.throttle.sleep(self.counters.wakeups.get());
        if self.starved {
            return Armed::Idle;
        }
        let Some(frames) = frames else {
            return self.device.arm();
        };
        self.counters.moderated.add(1);
        let armed = self.device.arm_for(frames as usize);
        self.counts = armed.is_some();
        armed.unwrap_or(Armed::Idle)
    }

    /// The descriptor that becomes ready then. `None` also while the device has no buffers, and
    /// during a delay; [`RxQueue::next_at`] then states when to poll.
    pub fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        let delayed = self.throttle.delayed_until().is_some() && !self.counts;
        self.device.wake().filter(|_| !self.starved && !delayed)
    }

    /// When to poll if nothing wakes the worker: at the device's next event, at the next refill, or
    /// at the end of the delay.
    pub fn next_at(&self) -> Option<Instant> {
        let retry = self.short.then_some(self.retry_at);
        let due = self.device.next_at();
        let poll = match self.throttle.delayed_until() {
            None => due,
            // A device without a descriptor has no packets before its next event.
            Some(until) if self.device.wake().is_none() => due.max(Some(until)),
            until => until,
        };
        poll.into_iter().chain(retry).min()
    }

    /// The worker was woken for this queue.
    pub fn count_wakeup(&self) {
        self.counters.wakeups.add(1);
    }

    /// The device, for what only it has. A method of [`RxDescriptors`] called here would make this
    /// queue's accounting wrong.
    #[cfg(feature = "internals")]
    pub const fn device_mut(&mut self) -> &mut R {
        &mut self.device
    }
}

#[cfg(test)]
mod tests;
