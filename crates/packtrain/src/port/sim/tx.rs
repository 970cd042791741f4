//! The transmitting half of a simulated queue, and the hardware behind it.

use super::config::{CompletionDelay, Interrupts, SimConfig};
use super::wire::{Arrival, End, RxState, SimFault, TxWaiter, Wire, Word};
use crate::driver::{
    Accepted, Armed, Completed, DeviceError, Features, Link, Refused, Reset, Token, TxDescriptors,
    TxMemory, TxPacket,
};
use crate::limits::PACKET_BYTES_MAX;
use crate::packet::{Packet, VlanTag};
use crate::stats::DropReason;
use crate::time::Instant;
use packtrain_offload::checksum::Sum;
use packtrain_offload::limits::HEADER_BYTES_MAX;
use packtrain_offload::offload::{ChecksumState, LinkType};
use packtrain_offload::random::Random;
use packtrain_offload::segment::{Fill, SegmentError, Segmenter, finish_partial};
use std::collections::VecDeque;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

/// Steps of the unit of the completion delay, or calls of `reclaim` with nothing sent before, until
/// a late completion is reported.
const LATE_COMPLETION: u64 = 16;
/// How much later a late interrupt is raised: far sooner than a watchdog polls for a lost one.
const LATE_INTERRUPT: Duration = Duration::from_millis(1);

/// The transmitting half of one queue.
#[derive(Debug)]
pub struct SimTx {
    wire: Arc<Wire>,
    side: usize,
    destination: Option<usize>,
    queue: usize,
    ring: VecDeque<Entry>,
    /// Descriptors that no packet uses.
    free: usize,
    /// Packets in front of the doorbell: the device sees them.
    visible: usize,
    sent: VecDeque<Sent>,
    due: VecDeque<Sent>,
    /// Steps of the unit that the completion delay counts.
    clock: u64,
    /// With a rate. Boxed as `engine` is.
    pace: Option<Box<Pace>>,
    /// The time of the last call that passed it.
    now: Instant,
    /// No packet was handed over since the last `reclaim`.
    quiet: bool,
    /// Sent packets whose completions are lost.
    lost: Vec<Token>,
    /// The receiver asked to wait.
    paused: bool,
    /// The last packet was refused since the queue takes none.
    refused: bool,
    /// A packet was refused since the arena had no line for a reference to it.
    starved: bool,
    random: Random,
    /// Boxed, so that one of many ports does not make all of them large.
    engine: Box<Engine>,
    doorbells: u64,
}

/// The time of a device with a rate.
#[derive(Debug)]
struct Pace {
    /// The time of a packet on the wire, and the time when the last one is sent.
    each: Duration,
    busy_until: Instant,
    /// The completion that the queue is armed for.
    wakes_at: Option<Instant>,
    /// The fault of its interrupt, and when that would be raised without.
    disturbed: Option<(SimFault, Instant)>,
}

/// A packet in the TX ring.
#[derive(Debug)]
struct Entry {
    /// Shares the bytes, as the device's address list does.
    packet: Packet,
    token: Token,
    descriptors: usize,
    /// Segments of a GSO packet that have been sent.
    segments_sent: u32,
}

/// A packet that the device has read and not completed yet.
#[derive(Clone, Copy, Debug)]
struct Sent {
    token: Token,
    descriptors: usize,
    due: u64,
    /// With a rate: the time when it is sent.
    at: Instant,
}

impl SimTx {
    pub(super) fn new(
        wire: Arc<Wire>,
        side: usize,
        destination: Option<usize>,
        queue: usize,
        seed: u64,
    ) -> Self {
        let ring = wire.end(side).config.tx_ring;
        let rate = wire.end(side).config.rate;
        Self {
            pace: rate.map(|rate| {
                Box::new(Pace {
                    each: Duration::from_nanos(1_000_000_000 / rate),
                    busy_until: Instant::default(),
                    wakes_at: None,
                    disturbed: None,
                })
            }),
            now: Instant::default(),
            wire,
            side,
            destination,
            queue,
            ring: VecDeque::with_capacity(ring),
            free: ring,
            visible: 0,
            sent: VecDeque::with_capacity(ring),
            due: VecDeque::with_capacity(ring),
            clock: 0,
            quiet: false,
            lost: Vec::with_capacity(ring),
            paused: false,
            refused: false,
            starved: false,
            random: Random::new(seed),
            engine: Box::new(Engine::new()),
            doorbells: 0,
        }
    }

    fn config(&self) -> &SimConfig {
        &self.wire.end(self.side).config
    }

    fn waiter(&self) -> Option<&TxWaiter> {
        let attached = self.wire.end(self.side).attached.get()?;
        attached.waiters.get(self.queue)
    }

    /// The device reads the visible packets and sends them, until the ring is empty or the receiver
    /// asks to wait.
    fn pump(&mut self) {
        if std::mem::take(&mut self.paused)
            && let Some(waiter) = self.waiter()
        {
            waiter.set_paused(false);
        }
        if self.visible == 0 || self.is_hung() {
            return;
        }
        let wire = Arc::clone(&self.wire);
        let counts = &wire.end(self.side).counts;
        let target = self.destination.map(|side| wire.end(side));
        let attached = target.and_then(|end| end.attached.get());
        let (Some(end), Some(to)) = (target, attached) else {
            let lost = self.destination.is_some();
            while let Some(entry) = self.take_front() {
                if lost {
                    counts.fetched_in_vain();
                    continue;
                }
                let bytes = entry.packet.bytes();
                counts.fetched(bytes);
                counts.on_wire(usize::from(entry.packet.meta().wire_packets), bytes);
            }
            return;
        };
        let ring = &to.rings[self.queue % to.rings.len()];
        let mut rx = ring.lock();
        let mut port = Output {
            from: wire.end(self.side),
            to: end,
            rx: &mut rx,
            agreed: to.rx,
        };
        while self.visible > 0 {
            let Some(entry) = self.ring.front_mut() else {
                break;
            };
            let bytes = entry.packet.bytes();
            let sent = if wire.link(self.side) == Link::Up {
                self.engine.send(entry, &mut port)
            } else {
                Err(Stop::NoLink)
            };
            match sent {
                Ok(()) => counts.fetched(bytes),
                Err(Stop::NoLink) => counts.fetched_in_vain(),
                Err(Stop::Malformed) => counts.fetched_malformed(),
                Err(Stop::Pause) => {
                    port.rx.waiting = true;
                    self.paused = true;
                    if let Some(waiter) = self.waiter() {
                        waiter.set_paused(true);
                    }
                    break;
                }
            }
            self.take_front();
        }
        let signals = rx.signals();
        drop(rx);
        if signals {
            ring.interrupt.raise();
        }
    }

    /// The packet in front is read: its completion is on its way.
    fn take_front(&mut self) -> Option<Entry> {
        self.visible = self.visible.checked_sub(1)?;
        let entry = self.ring.pop_front()?;
        let end = self.wire.end(self.side);
        if end.takes(SimFault::LoseCompletion) {
            // Its descriptors stay in use, as the driver does not know of it.
            self.lost.push(entry.token);
            return Some(entry);
        }
        let late = u64::from(end.takes(SimFault::DelayCompletion)) * LATE_COMPLETION;
        let after = match end.config.delay {
            CompletionDelay::None => 0,
            CompletionDelay::Flushes(n) | CompletionDelay::Reclaims(n) => n,
            CompletionDelay::Packets(n) => {
                self.clock += 1;
                n
            }
        };
        if after > 0 {
            end.happens(SimFault::LateCompletion);
        }
        let at = self.pace.as_mut().map_or(Instant::default(), |pace| {
            pace.busy_until = pace.busy_until.max(self.now).after(pace.each);
            pace.busy_until
        });
        self.sent.push_back(Sent {
            token: entry.token,
            descriptors: entry.descriptors,
            due: self.clock + u64::from(after) + late,
            at,
        });
        Some(entry)
    }

    /// A removed device sends nothing more: everything comes back at once.
    fn give_all_back(&mut self) {
        let counts = &self.wire.end(self.side).counts;
        for entry in self.ring.drain(..) {
            counts.fetched_in_vain();
            self.sent.push_back(Sent {
                token: entry.token,
                descriptors: entry.descriptors,
                due: 0,
                at: Instant::default(),
            });
        }
        self.visible = 0;
        self.sent.extend(self.lost.drain(..).map(|token| Sent {
            token,
            descriptors: 0,
            due: 0,
            at: Instant::default(),
        }));
        for sent in &mut self.sent {
            (sent.due, sent.at) = (0, Instant::default());
        }
    }

    /// With a rate: arms it for the time when `packets` are completed, or all.
    fn arm_until(&mut self, packets: usize) -> Armed {
        let more = packets.saturating_sub(self.due.len()).min(self.sent.len());
        let Some(last) = more.checked_sub(1).and_then(|index| self.sent.get(index)) else {
            return match self.due.is_empty() {
                true => Armed::Idle,
                false => Armed::WorkPending,
            };
        };
        let at = last.at;
        if at <= self.now {
            return Armed::WorkPending;
        }
        self.settle_fault();
        let end = self.wire.end(self.side);
        // It happens if the queue is not polled before.
        let faults = [SimFault::LoseInterrupt, SimFault::DelayInterrupt];
        let fault = faults.into_iter().find(|&fault| end.claims(fault));
        let wakes_at = match fault {
            Some(SimFault::LoseInterrupt) => None,
            Some(_) => Some(at.after(LATE_INTERRUPT)),
            None => Some(at),
        };
        if let Some(pace) = &mut self.pace {
            pace.wakes_at = wakes_at;
            pace.disturbed = fault.map(|fault| (fault, at));
        }
        Armed::Idle
    }

    /// Arms the queue: for buffers of the receiver, and for `packets` completions if the device has
    /// a rate. Without a rate, `reclaim` finds sent packets completed.
    fn interrupt_for(&mut self, packets: usize) -> Armed {
        if std::mem::take(&mut self.starved) {
            return Armed::WorkPending;
        }
        if let Some(waiter) = self.waiter() {
            waiter.arm();
        }
        self.pump();
        // It took packets again after the refusal, and did not find the queue armed.
        let armed = if self.refused && !self.is_full() {
            self.refused = false;
            Armed::WorkPending
        } else if self.is_hung() {
            Armed::Idle
        } else if self.pace.is_some() {
            self.arm_until(packets)
        } else if self.sent.is_empty() && self.due.is_empty()
            || self.wire.end(self.side).takes(SimFault::LoseInterrupt)
        {
            Armed::Idle
        } else {
            Armed::WorkPending
        };
        if armed == Armed::WorkPending {
            self.disarm();
        }
        armed
    }

    /// Ends the claim of an armed interrupt to a fault. A queue that is polled before it is due
    /// needs no interrupt.
    fn settle_fault(&mut self) {
        let disturbed = self.pace.as_mut().and_then(|pace| pace.disturbed.take());
        if let Some((fault, at)) = disturbed {
            self.wire.end(self.side).settles(fault, at <= self.now);
        }
    }

    fn disarm(&mut self) {
        self.settle_fault();
        if let Some(pace) = &mut self.pace {
            pace.wakes_at = None;
        }
        if let Some(waiter) = self.waiter() {
            waiter.disarm();
        }
    }

    /// The queue takes no packet.
    fn is_full(&self) -> bool {
        self.wire.end(self.side).full.load(Ordering::SeqCst)
    }

    /// The device does nothing until it is reset.
    fn is_hung(&self) -> bool {
        self.wire.end(self.side).is_hung(self.queue)
    }

    /// Refuses packets that the configuration says to refuse, and those that break the contract.
    fn check(&self, packet: &Packet) -> Result<(), Refused> {
        match self.wire.link(self.side) {
            Link::Up => {}
            Link::Down => return Err(Refused::LinkDown),
            Link::Removed => return Err(Refused::Removed),
        }
        let config = self.config();
        let needs = Features::needed_by(packet.meta());
        if !is_fit(packet, needs, config) {
            self.wire.end(self.side).counts.unfit();
            debug_assert!(false, "not fitted to {config:?}: {packet:?}");
            return Err(Refused::Bad(DropReason::DeviceRefused));
        }
        let refused = needs.intersection(config.refuse);
        // The most special first: a device without TSO may still have checksum offload.
        let one = Features::NAMED.iter().rev();
        if let Some(&(feature, _)) = one.clone().find(|(f, _)| refused.contains(*f)) {
            return Err(Refused::Feature(feature));
        }
        if config
            .refuse_segments
            .is_some_and(|max| packet.segments().count() > max)
        {
            return Err(Refused::TooManySegments);
        }
        self.engine.check(packet).map_err(Refused::Bad)
    }
}

impl TxDescriptors for SimTx {
    fn encap(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<Accepted, Refused> {
        let packet = packet.packet();
        self.check(packet)?;
        let offload = Features::needed_by(packet.meta()).without(Features::VLAN);
        let context = usize::from(!offload.is_empty());
        let descriptors = packet.segments().count().max(1) + context;
        if descriptors > self.config().tx_ring {
            return Err(Refused::TooManySegments);
        }
        self.refused = self.is_full();
        if self.refused {
            self.wire.end(self.side).happens(SimFault::Full);
        }
        if self.refused || descriptors > self.free {
            return Err(Refused::NoDescriptor);
        }
        let Ok(packet) = packet.try_clone() else {
            self.starved = true;
            return Err(Refused::Busy);
        };
        self.free -= descriptors;
        self.quiet = false;
        self.ring.push_back(Entry {
            packet,
            token,
            descriptors,
            segments_sent: 0,
        });
        Ok(Accepted::Pending)
    }

    fn flush(&mut self, now: Instant) -> Result<(), DeviceError> {
        self.now = now;
        self.wire.pass_time(now);
        if self.visible == self.ring.len() {
            return Ok(());
        }
        self.visible = self.ring.len();
        self.doorbells += 1;
        if matches!(self.config().delay, CompletionDelay::Flushes(_)) {
            self.clock += 1;
        }
        self.pump();
        Ok(())
    }

    fn reclaim(&mut self, now: Instant, completed: &mut Completed) {
        self.now = now;
        self.wire.pass_time(now);
        self.disarm();
        if self.wire.link(self.side) == Link::Removed {
            self.give_all_back();
        }
        if self.is_hung() && self.wire.link(self.side) != Link::Removed {
            return;
        }
        self.pump();
        let counts_reclaims = matches!(self.config().delay, CompletionDelay::Reclaims(_));
        if counts_reclaims || std::mem::replace(&mut self.quiet, true) {
            self.clock += 1;
        }
        let is_due = |sent: &mut Sent| sent.due <= self.clock && sent.at <= now;
        while let Some(sent) = self.sent.pop_front_if(is_due) {
            self.due.push_back(sent);
        }
        while !self.due.is_empty() {
            let next = match self.config().reorder {
                true => self.random.index(self.due.len()),
                false => 0,
            };
            if !completed.push(self.due[next].token) {
                break;
            }
            if let Some(sent) = self.due.swap_remove_front(next) {
                self.free += sent.descriptors;
                let end = self.wire.end(self.side);
                if next > 0 {
                    end.happens(SimFault::LateCompletion);
                }
                // Without room the list is at its end, and nothing was repeated.
                if end.claims(SimFault::RepeatCompletion) {
                    let is_repeated = completed.push(sent.token);
                    end.settles(SimFault::RepeatCompletion, is_repeated);
                    if !is_repeated {
                        break;
                    }
                }
            }
        }
    }

    fn set_interrupt(&mut self, interrupt: Waker) {
        if let Some(waiter) = self.waiter() {
            waiter.interrupt.set(interrupt);
        }
    }

    fn arm(&mut self) -> Option<Armed> {
        Some(self.interrupt_for(1))
    }

    fn arm_for(&mut self, packets: usize) -> Option<Armed> {
        let counts = self.pace.is_none() || self.config().interrupts == Interrupts::Counted;
        counts.then(|| self.interrupt_for(packets))
    }

    fn is_blocked(&self) -> bool {
        (self.paused && !self.is_hung()) || self.wire.link(self.side) != Link::Up
    }

    fn reset(
        &mut self,
        sent: &mut Completed,
        unsent: &mut Completed,
    ) -> Result<Reset, DeviceError> {
        if self.wire.link(self.side) == Link::Removed {
            return Err(DeviceError::Removed);
        }
        let has_packets = !(self.ring.is_empty() && self.sent.is_empty() && self.due.is_empty());
        if has_packets && self.is_hung() {
            self.wire.end(self.side).happens(SimFault::Hang);
        }
        let done = self.due.drain(..).chain(self.sent.drain(..));
        let done = done.map(|sent| sent.token).chain(self.lost.drain(..));
        // As many as there are packets in flight, so there is room for each.
        let mut named = done.fold(true, |all, token| all & sent.push(token));
        for entry in self.ring.drain(..) {
            // A packet that is cut was sent in part: sending it again would send that part twice.
            if entry.segments_sent == 0 {
                named &= unsent.push(entry.token);
            }
        }
        debug_assert!(named, "the framework has room for what it gave us");
        self.visible = 0;
        self.free = self.config().tx_ring;
        self.paused = false;
        self.disarm();
        if let Some(pace) = &mut self.pace {
            pace.busy_until = Instant::default();
        }
        self.wire.end(self.side).set_hung(self.queue, false);
        Ok(Reset::Done)
    }

    fn next_at(&self) -> Option<Instant> {
        self.pace.as_ref()?.wakes_at
    }

    fn doorbells(&self) -> u64 {
        self.doorbells
    }
}

/// Whether the packet matches the endpoint's capabilities.
fn is_fit(packet: &Packet, needs: Features, config: &SimConfig) -> bool {
    let meta = packet.meta();
    let segments_max = if meta.gso.is_some() {
        config.gso_segments
    } else {
        config.segments
    };
    let headers = meta.layout.map_or(0, |layout| usize::from(layout.payload));
    config.tx.consistent().contains(needs)
        && packet.segments().count() <= segments_max
        && packet.segments().all(|s| s.len() <= config.segment_bytes)
        && (config.memory == TxMemory::Any || packet.in_small_frames())
        && (!config.contiguous_headers || packet.first().len() >= headers.min(packet.bytes()))
        && packet.bytes() >= config.min_packet_bytes
}

/// The part of the hardware that reads packets and finishes them.
#[derive(Debug)]
struct Engine {
    /// The packet being sent in one piece, where it has to be changed or cut.
    bytes: Box<[u8]>,
    /// The headers of the segment being sent.
    header: Box<[u8]>,
}

/// Why a packet did not reach the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The receiver asks to wait.
    Pause,
    /// It cannot be finished as requested.
    Malformed,
    /// There is no link.
    NoLink,
}

impl From<SegmentError> for Stop {
    fn from(_: SegmentError) -> Self {
        Self::Malformed
    }
}

impl Engine {
    fn new() -> Self {
        Self {
            bytes: vec![0; PACKET_BYTES_MAX].into(),
            header: vec![0; HEADER_BYTES_MAX].into(),
        }
    }

    /// Whether the packet can be finished: the checks of a driver while it fills descriptors.
    fn check(&self, packet: &Packet) -> Result<(), DropReason> {
        let (meta, bytes) = (packet.meta(), packet.bytes());
        if bytes > PACKET_BYTES_MAX {
            return Err(DropReason::TooLong);
        }
        if meta.vlan.is_some() && bytes < ADDRESSES_BYTES + 2 {
            return Err(DropReason::Truncated);
        }
        if let Some(gso) = meta.gso {
            let layout = meta.layout.ok_or(DropReason::BadChecksumPlace)?;
            let mut headers = [0; HEADER_BYTES_MAX];
            let n = packet.copy_to(&mut headers);
            Segmenter::new(&headers[..n], &layout, gso, bytes as u32)
                .map_err(DropReason::Segment)?;
        }
        match meta.checksum {
            ChecksumState::Partial { start, offset }
                if usize::from(start) + usize::from(offset) + 2 > bytes =>
            {
                Err(DropReason::BadChecksumPlace)
            }
            _ => Ok(()),
        }
    }

    /// Puts a packet on the wire, or the rest of one that was paused.
    fn send(&mut self, entry: &mut Entry, out: &mut Output<'_>) -> Result<(), Stop> {
        let packet = &entry.packet;
        let meta = packet.meta();
        let whole = Features::needed_by(packet.meta())
            .without(Features::checksum_of(packet.meta().layout) | Features::VLAN);
        if meta.gso.is_some() && !out.agreed.contains(whole) {
            return self.cut(entry, out);
        }
        // The sender's knowledge of the checksum does not travel over a wire: a receiver with
        // checksum offload verifies it; without, the state is unknown.
        // With checksum offload of both IP versions the packet's version does not matter.
        let of_one = !out.agreed.contains(Features::CSUM);
        let layout = if of_one {
            packet.parsed_layout(meta.link)
        } else {
            meta.layout
        };
        let verifies = out.agreed.contains(Features::checksum_of(layout));
        let (checksum, to_complete) = match meta.checksum {
            ChecksumState::Partial { start, offset } if !verifies => {
                (ChecksumState::None, Some((start, offset)))
            }
            ChecksumState::Unnecessary if !verifies => (ChecksumState::None, None),
            as_is => (as_is, None),
        };
        let segments = meta.gso.zip(meta.layout);
        let wire_packets = segments.map_or(1, |(gso, layout)| gso.segments(layout.payload_len()));
        let word = Word {
            checksum,
            gso: meta.gso,
            wire_packets: wire_packets as u16,
            ..Word::default()
        };
        let first = packet.first();
        let whole_head = first.len() >= HEAD_BYTES_MIN || first.len() == packet.bytes();
        if to_complete.is_none() && whole_head {
            let rest = packet.bytes() - first.len();
            let body = Body {
                bytes: rest,
                pieces: packet.segments().skip(1),
                whole: Some(packet),
            };
            return out.deliver(first, body, word, meta.vlan);
        }
        let bytes = packet.copy_to(&mut self.bytes);
        let bytes = &mut self.bytes[..bytes];
        if let Some((start, offset)) = to_complete {
            complete(bytes, start, offset)?;
        }
        out.deliver(bytes, Body::copied(&[]), word, meta.vlan)
    }

    /// Transmit segmentation in hardware.
    fn cut(&mut self, entry: &mut Entry, out: &mut Output<'_>) -> Result<(), Stop> {
        let bytes = entry.packet.copy_to(&mut self.bytes);
        let meta = entry.packet.meta();
        let (Some(gso), Some(layout)) = (meta.gso, meta.layout) else {
            return Err(Stop::Malformed);
        };
        let packet = &self.bytes[..bytes];
        let segmenter = Segmenter::new(packet, &layout, gso, bytes as u32)?;
        let verifies = out
            .agreed
            .contains(Features::checksum_of(entry.packet.meta().layout));
        while entry.segments_sent < segmenter.segments() {
            let range = segmenter.payload(entry.segments_sent);
            let payload = &packet[range.start as usize..range.end as usize];
            let mut sum = Sum::new();
            sum.add(payload);
            let header = &mut self.header[..segmenter.header_bytes()];
            let fill = Fill::Complete { payload: sum };
            let checksum = segmenter.write_header(entry.segments_sent, packet, header, fill)?;
            let word = Word {
                checksum: if verifies {
                    checksum
                } else {
                    ChecksumState::None
                },
                wire_packets: 1,
                ..Word::default()
            };
            out.deliver(header, Body::copied(payload), word, meta.vlan)?;
            entry.segments_sent += 1;
        }
        Ok(())
    }
}

/// Transmit checksum offload in hardware.
fn complete(packet: &mut [u8], start: u16, offset: u16) -> Result<(), Stop> {
    /// Only UDP has its field there, and only UDP may not store zero (RFC 768).
    const UDP_CHECKSUM_OFFSET: u16 = 6;
    let mut sum = Sum::new();
    sum.add(packet.get(usize::from(start)..).ok_or(Stop::Malformed)?);
    let field = usize::from(start) + usize::from(offset);
    let field = packet.get_mut(field..field + 2).ok_or(Stop::Malformed)?;
    let value = finish_partial(sum, offset == UDP_CHECKSUM_OFFSET);
    field.copy_from_slice(&value.to_be_bytes());
    Ok(())
}

/// Both Ethernet addresses; a VLAN tag follows them.
const ADDRESSES_BYTES: usize = 12;
const TAG_BYTES: usize = 4;
/// The bytes that must be in one piece to find a VLAN tag: the tag, and the type behind it.
const HEAD_BYTES_MIN: usize = ADDRESSES_BYTES + TAG_BYTES + 2;
/// Tag protocols of IEEE 802.1Q and 802.1ad.
const TAG_PROTOCOLS: [u16; 2] = [0x8100, 0x88A8];

/// The wire and the receiver behind it.
struct Output<'a> {
    from: &'a End,
    to: &'a End,
    rx: &'a mut RxState,
    /// The offloads that the receiver takes.
    agreed: Features,
}

impl Output<'_> {
    /// Sends `head` and then `body` as one packet, with `tag` where the receiver wants it. `head`
    /// has at least [`HEAD_BYTES_MIN`] bytes, or is the whole packet.
    fn deliver<'a>(
        &mut self,
        head: &'a [u8],
        body: Body<'a, impl Iterator<Item = &'a [u8]> + Clone>,
        mut word: Word,
        tag: Option<VlanTag>,
    ) -> Result<(), Stop> {
        let strips = self.agreed.contains(Features::VLAN);
        match tag {
            Some(tag) if !strips => {
                let (addresses, rest) = head
                    .split_at_checked(ADDRESSES_BYTES)
                    .ok_or(Stop::Malformed)?;
                let mut inserted = [0; TAG_BYTES];
                inserted[..2].copy_from_slice(&tag.protocol.to_be_bytes());
                inserted[2..].copy_from_slice(&tag.control.to_be_bytes());
                if let ChecksumState::Partial { start, .. } = &mut word.checksum {
                    *start += TAG_BYTES as u16;
                }
                self.write([addresses, &inserted, rest], body, word)
            }
            Some(tag) => {
                word.vlan = Some(tag);
                self.write([head], body, word)
            }
            None if strips && self.to.config.link == LinkType::Ethernet => {
                let Some((tag, rest)) = outer_tag(head) else {
                    return self.write([head], body, word);
                };
                word.vlan = Some(tag);
                if let ChecksumState::Partial { start, .. } = &mut word.checksum {
                    *start -= TAG_BYTES as u16;
                }
                self.write([&head[..ADDRESSES_BYTES], rest], body, word)
            }
            None => self.write([head], body, word),
        }
    }

    fn write<'a, const N: usize>(
        &mut self,
        head: [&[u8]; N],
        body: Body<'a, impl Iterator<Item = &'a [u8]> + Clone>,
        word: Word,
    ) -> Result<(), Stop> {
        let bytes = head.iter().map(|piece| piece.len()).sum::<usize>() + body.bytes;
        #[expect(
            clippy::borrow_deref_ref,
            reason = "the head may live shorter than the body, and one type holds both"
        )]
        let pieces = head.into_iter().chain(body.pieces.map(|piece| &*piece));
        match self.rx.write(bytes, pieces, body.whole, word, self.to) {
            Arrival::Pause => return Err(Stop::Pause),
            Arrival::Written => self.to.counts.arrived(bytes),
            Arrival::Lost => self.to.counts.arrived_in_vain(),
        }
        self.from.counts.on_wire(1, bytes);
        Ok(())
    }
}

/// The part of a packet behind its head.
struct Body<'a, I> {
    bytes: usize,
    pieces: I,
    /// The packet that it is the end of, if the receiver may share it.
    whole: Option<&'a Packet>,
}

impl<'a> Body<'a, iter::Once<&'a [u8]>> {
    /// A packet of the engine's own.
    fn copied(bytes: &'a [u8]) -> Self {
        Self {
            bytes: bytes.len(),
            pieces: iter::once(bytes),
            whole: None,
        }
    }
}

/// The outermost VLAN tag of a frame, and the bytes behind it.
fn outer_tag(frame: &[u8]) -> Option<(VlanTag, &[u8])> {
    let tag = frame.get(ADDRESSES_BYTES..ADDRESSES_BYTES + TAG_BYTES)?;
    let protocol = u16::from_be_bytes([tag[0], tag[1]]);
    let control = u16::from_be_bytes([tag[2], tag[3]]);
    // The type that follows must be there too.
    let rest = frame
        .get(ADDRESSES_BYTES + TAG_BYTES..)
        .filter(|rest| rest.len() >= 2)?;
    TAG_PROTOCOLS
        .contains(&protocol)
        .then_some((VlanTag { protocol, control }, rest))
}
