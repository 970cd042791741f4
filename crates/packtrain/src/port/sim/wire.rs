//! The state that both ends of a wire share: rings of posted buffers, link state, counters.

use super::config::SimConfig;
use crate::driver::{Attach, DeviceCounters, Features, Link, RxBuffers};
use crate::limits::QUEUES_MAX;
use crate::packet::{Packet, VlanTag};
use crate::time::Instant;
use packtrain_offload::offload::{ChecksumState, Gso};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Wire {
    up: AtomicBool,
    flap: Option<Duration>,
    /// The time of the next change of a flapping link, in nanoseconds; 0 before the first poll.
    flaps_at: AtomicU64,
    ends: [End; 2],
    /// For each end, the one whose packets arrive there.
    feeders: [usize; 2],
}

#[derive(Debug)]
pub(super) struct End {
    pub(super) config: SimConfig,
    pub(super) removed: AtomicBool,
    /// How many of each kind are still to come.
    faults: [AtomicU64; FAULTS],
    /// How many of these belong to an interrupt or a completion that is to come.
    claimed: [AtomicU64; FAULTS],
    /// How many of each kind have happened.
    happened: [AtomicU64; FAULTS],
    /// The TX queues take no packet.
    pub(super) full: AtomicBool,
    /// Stalled TX queues, a bit for each.
    hung: [AtomicU64; QUEUES_MAX.div_ceil(64)],
    pub(super) attached: OnceLock<Attached>,
    pub(super) counts: Counts,
}

/// What an endpoint does wrong, to packets, completions or interrupts
/// ([`SimControl::happened`](super::SimControl::happened)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimFault {
    /// A packet that arrives is reported as received in error.
    Corrupt,
    /// The length of a packet that arrives is reported as 0.
    Truncate,
    /// The length of a packet that arrives is reported as more than its buffer has.
    Overrun,
    /// A completion is lost.
    LoseCompletion,
    /// A completion is late.
    DelayCompletion,
    /// A completion is reported twice.
    RepeatCompletion,
    /// A completion interrupt is lost.
    LoseInterrupt,
    /// A completion interrupt is late.
    DelayInterrupt,
    /// A completion is delayed or overtaken, as the configuration says.
    LateCompletion,
    /// A packet is refused since the TX queues take none.
    Full,
    /// A stalled TX queue is reset with packets.
    Hang,
}

const FAULTS: usize = SimFault::Hang as usize + 1;

impl End {
    /// `times` more faults of this kind are to come.
    pub(super) fn add_faults(&self, fault: SimFault, times: u64) {
        self.faults[fault as usize].fetch_add(times, Ordering::AcqRel);
    }

    /// No fault is to come.
    pub(super) fn cancel_faults(&self) {
        for times in &self.faults {
            times.store(0, Ordering::Release);
        }
    }

    /// Whether this packet, completion or interrupt has the fault. The common case is a plain load.
    pub(super) fn takes(&self, fault: SimFault) -> bool {
        let times = &self.faults[fault as usize];
        let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
        let less = |n: u64| n.checked_sub(1);
        let takes = times.load(fetch) != 0 && times.try_update(set, fetch, less).is_ok();
        if takes {
            self.happens(fault);
        }
        takes
    }

    /// Whether an interrupt or a completion that is to come has the fault. No other one has it
    /// until that is settled.
    pub(super) fn claims(&self, fault: SimFault) -> bool {
        let left = self.faults[fault as usize].load(Ordering::Acquire);
        let more = |claimed| (claimed < left).then_some(claimed + 1);
        let claimed = &self.claimed[fault as usize];
        let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
        left != 0 && claimed.try_update(set, fetch, more).is_ok()
    }

    /// What has the fault has `come`, or was not needed.
    pub(super) fn settles(&self, fault: SimFault, come: bool) {
        self.claimed[fault as usize].fetch_sub(1, Ordering::AcqRel);
        if come && !self.takes(fault) {
            // It was cancelled meanwhile.
            self.happens(fault);
        }
    }

    pub(super) fn happens(&self, fault: SimFault) {
        add(&self.happened[fault as usize], 1);
    }

    pub(super) fn happened(&self, fault: SimFault) -> u64 {
        self.happened[fault as usize].load(Ordering::Relaxed)
    }

    /// Whether TX queue `queue` is stalled.
    pub(super) fn is_hung(&self, queue: usize) -> bool {
        let word = self.hung.get(queue / 64);
        word.is_some_and(|word| word.load(Ordering::Acquire) & (1 << (queue % 64)) != 0)
    }

    pub(super) fn set_hung(&self, queue: usize, hung: bool) {
        let Some(word) = self.hung.get(queue / 64) else {
            return;
        };
        let bit = 1 << (queue % 64);
        if hung {
            word.fetch_or(bit, Ordering::AcqRel);
        } else if word.load(Ordering::Acquire) & bit != 0 {
            word.fetch_and(!bit, Ordering::AcqRel);
        }
    }
}

impl Wire {
    pub(super) fn new(configs: [SimConfig; 2], feeders: [usize; 2]) -> Self {
        Self {
            up: AtomicBool::new(true),
            flap: configs.iter().find_map(|config| config.flap),
            flaps_at: AtomicU64::new(0),
            ends: configs.map(|config| End {
                config,
                removed: AtomicBool::new(false),
                faults: Default::default(),
                claimed: Default::default(),
                happened: Default::default(),
                full: AtomicBool::new(false),
                hung: std::array::from_fn(|_| AtomicU64::new(0)),
                attached: OnceLock::new(),
                counts: Counts::default(),
            }),
            feeders,
        }
    }

    pub(super) fn end(&self, side: usize) -> &End {
        &self.ends[side]
    }

    pub(super) fn link(&self, side: usize) -> Link {
        let removed = |side: usize| self.ends[side].removed.load(Ordering::SeqCst);
        if removed(side) {
            Link::Removed
        } else if removed(1 - side) || !self.up.load(Ordering::SeqCst) {
            Link::Down
        } else {
            Link::Up
        }
    }

    pub(super) fn set_up(&self, up: bool) {
        self.up.store(up, Ordering::SeqCst);
        self.wake_all();
    }

    /// Changes a flapping link if it is time to.
    pub(super) fn pass_time(&self, now: Instant) {
        let Some(time) = self.flap else { return };
        let (time, now) = (time.as_nanos() as u64, now.as_nanos());
        let at = self.flaps_at.load(Ordering::Acquire);
        if now < at {
            return;
        }
        // The first poll starts the clock; a late one makes all changes that were due.
        let changes = if at == 0 { 0 } else { (now - at) / time + 1 };
        let next = if at == 0 {
            now + time
        } else {
            at + changes * time
        };
        let (set, fetch) = (Ordering::AcqRel, Ordering::Relaxed);
        // The queue that stores the next time makes the changes.
        let mine = self.flaps_at.compare_exchange(at, next, set, fetch).is_ok();
        if mine && changes % 2 == 1 {
            self.up.fetch_not(Ordering::SeqCst);
            self.wake_all();
        }
    }

    /// The time of the next change of a flapping link.
    pub(super) fn flaps_at(&self) -> Option<Instant> {
        self.flap?;
        let at = self.flaps_at.load(Ordering::Acquire);
        (at > 0).then(|| Instant::from_nanos(at))
    }

    pub(super) fn remove(&self, side: usize) {
        self.ends[side].removed.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    /// The TX queues of an end take no packet, or take packets again.
    pub(super) fn set_full(&self, side: usize, full: bool) {
        self.ends[side].full.store(full, Ordering::SeqCst);
        let attached = self.ends[side].attached.get().filter(|_| !full);
        for waiter in attached.iter().flat_map(|attached| &attached.waiters) {
            waiter.raise_if_armed();
        }
    }

    /// Interrupts every armed queue of both ends, as a change of the link does.
    fn wake_all(&self) {
        for attached in self.ends.iter().filter_map(|end| end.attached.get()) {
            for ring in &attached.rings {
                let armed = std::mem::take(&mut ring.lock().armed_for) > 0;
                if armed {
                    ring.interrupt.raise();
                }
            }
            for waiter in &attached.waiters {
                waiter.raise_if_armed();
            }
        }
    }

    /// Wakes the transmitters that paused because queue `queue` of `side` had no buffer.
    pub(super) fn wake_feeders(&self, side: usize, queue: usize) {
        let rings = self.ends[side]
            .attached
            .get()
            .map_or(1, |a| a.rings.len().max(1));
        if let Some(feeder) = self.ends[self.feeders[side]].attached.get() {
            for waiter in feeder.waiters.iter().skip(queue).step_by(rings) {
                waiter.go_on();
            }
        }
    }
}

/// An endpoint's queues, made when it is attached.
#[derive(Debug)]
pub(super) struct Attached {
    /// The offloads that the receiver agreed to take.
    pub(super) rx: Features,
    pub(super) rings: Vec<RxRing>,
    pub(super) waiters: Vec<TxWaiter>,
}

impl Attached {
    pub(super) fn new(config: &SimConfig, how: &Attach) -> Self {
        let large = match how.rx_buffers {
            RxBuffers::Whole => config.rx_large_buffers,
            RxBuffers::Pieces { .. } => 0,
        };
        let mut rings = Vec::with_capacity(how.queues);
        let mut waiters = Vec::with_capacity(how.queues);
        for _ in 0..how.queues {
            rings.push(RxRing {
                interrupt: Interrupt::default(),
                state: Mutex::new(RxState::new(config.rx_ring - 1, large, how.rx_buffers)),
            });
            waiters.push(TxWaiter::default());
        }
        Self {
            rx: config.rx.consistent().intersection(how.rx),
            rings,
            waiters,
        }
    }
}

/// The interrupt of a queue, once the framework has given it.
#[derive(Debug, Default)]
pub(super) struct Interrupt(OnceLock<Waker>);

impl Interrupt {
    /// The first one is kept.
    pub(super) fn set(&self, interrupt: Waker) {
        self.0.get_or_init(|| interrupt);
    }

    pub(super) fn raise(&self) {
        if let Some(interrupt) = self.0.get() {
            interrupt.wake_by_ref();
        }
    }
}

/// Where a transmitter waits for buffers that the receiver posts.
#[derive(Debug, Default)]
pub(super) struct TxWaiter {
    pub(super) interrupt: Interrupt,
    armed: AtomicBool,
    /// The device has packets that wait for buffers.
    paused: AtomicBool,
}

impl TxWaiter {
    /// The device waits for buffers, or has stopped waiting. Before the receiver's ring, which says
    /// so too, is unlocked.
    pub(super) fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Ordering::Release);
    }

    /// The receiver has posted buffers. A NIC sends what it has when a pause ends. This one works
    /// on the thread that calls it, so a paused device needs a poll, also if the queue is not armed
    /// since the framework has no packet that waits for the device.
    fn go_on(&self) {
        let paused = self.paused.swap(false, Ordering::AcqRel);
        if self.armed.swap(false, Ordering::SeqCst) || paused {
            self.interrupt.raise();
        }
    }

    /// Arms the queue, before the receiver's ring is locked to check for buffers: if the receiver
    /// posts some later, it finds the queue armed.
    pub(super) fn arm(&self) {
        // Sequentially consistent, as the link is: if a queue arms itself while the link changes,
        // at least one side sees the other's write.
        self.armed.store(true, Ordering::SeqCst);
    }

    pub(super) fn disarm(&self) {
        self.armed.store(false, Ordering::Release);
    }

    fn raise_if_armed(&self) {
        if self.armed.swap(false, Ordering::SeqCst) {
            self.interrupt.raise();
        }
    }
}

#[derive(Debug)]
pub(super) struct RxRing {
    pub(super) interrupt: Interrupt,
    state: Mutex<RxState>,
}

impl RxRing {
    pub(super) fn lock(&self) -> MutexGuard<'_, RxState> {
        // Every change below keeps the ring consistent, so a panic elsewhere does no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The receive ring of one queue.
#[derive(Debug)]
pub(super) struct RxState {
    /// Descriptors that may be in use; one fewer than there are.
    usable: usize,
    large_wanted: usize,
    /// The most bytes that the device writes to a small buffer.
    piece: usize,
    posted: VecDeque<Packet>,
    large: VecDeque<Packet>,
    written: VecDeque<Written>,
    small_written: usize,
    large_written: usize,
    /// Whole packets in `written`.
    pub(super) packets: usize,
    arrived: u64,
    /// Packets for which the interrupt is raised; 0 while the queue is not armed.
    pub(super) armed_for: usize,
    /// A transmitter waits for buffers.
    pub(super) waiting: bool,
    closed: bool,
}

/// A buffer that the device has written to.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) buffer: Packet,
    is_large: bool,
    /// Set on the last buffer of a packet.
    pub(super) end: Option<Word>,
}

/// The content that the device writes to the last descriptor of a packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Word {
    pub(super) checksum: ChecksumState,
    pub(super) gso: Option<Gso>,
    pub(super) vlan: Option<VlanTag>,
    pub(super) wire_packets: u16,
    pub(super) status: Status,
}

/// What the last descriptor of a packet says of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Status {
    #[default]
    Good,
    /// It was received in error.
    Error,
    /// The device wrote this length, which is not that of the data.
    Length(usize),
}

/// The result of a packet at the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It is in posted buffers.
    Written,
    /// There are not enough buffers, and the receiver does not ask to wait, or waiting would not
    /// help: lost.
    Lost,
    /// There are not enough buffers now, and the receiver asks to wait.
    Pause,
}

impl RxState {
    fn new(usable: usize, large_wanted: usize, buffers: RxBuffers) -> Self {
        Self {
            usable,
            large_wanted,
            piece: buffers.small_bytes(),
            posted: VecDeque::with_capacity(usable),
            large: VecDeque::with_capacity(large_wanted),
            written: VecDeque::with_capacity(usable + large_wanted),
            small_written: 0,
            large_written: 0,
            packets: 0,
            arrived: 0,
            armed_for: 0,
            waiting: false,
            closed: false,
        }
    }

    /// How many small and large buffers the ring takes.
    pub(super) fn wanted(&self) -> (usize, usize) {
        if self.closed {
            return (0, 0);
        }
        (
            self.usable - self.posted.len() - self.small_written,
            self.large_wanted - self.large.len() - self.large_written,
        )
    }

    pub(super) fn post_small(&mut self, buffers: impl Iterator<Item = Packet>) {
        self.posted.extend(buffers);
    }

    pub(super) fn post_large(&mut self, buffers: impl Iterator<Item = Packet>) {
        self.large.extend(buffers);
    }

    /// The next descriptor that the device has written.
    pub(super) fn take(&mut self) -> Option<Written> {
        let written = self.written.pop_front()?;
        if written.is_large {
            self.large_written -= 1;
        } else {
            self.small_written -= 1;
        }
        if written.end.is_some() {
            self.packets -= 1;
        }
        Some(written)
    }

    /// Arms the queue for `packets`. Returns true, without arming it, if they wait already.
    pub(super) fn arm_for(&mut self, packets: usize) -> bool {
        let there = self.has_for(packets);
        self.armed_for = if there { 0 } else { packets };
        there
    }

    /// Whether `packets` wait, or fewer and there is no buffer for another one.
    fn has_for(&self, packets: usize) -> bool {
        let full = self.posted.is_empty() || self.waiting;
        self.packets >= packets || self.packets > 0 && full
    }

    /// Packets were written. True if that raises the interrupt, which disarms the queue.
    pub(super) fn signals(&mut self) -> bool {
        let signals = self.armed_for > 0 && self.has_for(self.armed_for);
        if signals {
            self.armed_for = 0;
        }
        signals
    }

    /// Frees every buffer and accepts no more.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.posted.clear();
        self.large.clear();
        self.written.clear();
        (self.small_written, self.large_written, self.packets) = (0, 0, 0);
    }

    /// Writes a packet to posted buffers: `bytes` of `pieces`. If `whole` is given, the pieces end
    /// as it does, and the part that does not fit one buffer may be shared with it.
    pub(super) fn write<'a>(
        &mut self,
        bytes: usize,
        pieces: impl Iterator<Item = &'a [u8]> + Clone,
        whole: Option<&Packet>,
        word: Word,
        end: &End,
    ) -> Arrival {
        let config = &end.config;
        if self.closed {
            return Arrival::Lost;
        }
        if let Some(whole) = whole.filter(|_| config.rx_shares && self.large_wanted > 0)
            && self.share(bytes, pieces.clone(), whole, word, end)
        {
            return Arrival::Written;
        }
        let Some((small, use_large)) = self.buffers_for(bytes) else {
            // If every buffer is posted already, waiting would not help.
            let all_posted =
                self.posted.len() == self.usable && self.large.len() == self.large_wanted;
            return if config.flow_control && !all_posted {
                Arrival::Pause
            } else {
                Arrival::Lost
            };
        };
        let word = self.judged(word, end);
        let mut from = Reader::new(pieces);
        for index in 0..small {
            if let Some(mut buffer) = self.posted.pop_front() {
                from.fill(&mut buffer, self.piece);
                let last = index + 1 == small && !use_large;
                self.push(buffer, false, last.then_some(word));
            }
        }
        if let Some(mut buffer) = use_large.then(|| self.large.pop_front()).flatten() {
            from.fill(&mut buffer, usize::MAX);
            self.push(buffer, true, Some(word));
        }
        self.packets += 1;
        Arrival::Written
    }

    /// Fills one buffer and appends the rest of `whole` to it by reference. Returns false, without
    /// a change, if the packet fits the buffer, if the arenas differ, or if no line is free.
    fn share<'a>(
        &mut self,
        bytes: usize,
        pieces: impl Iterator<Item = &'a [u8]>,
        whole: &Packet,
        word: Word,
        end: &End,
    ) -> bool {
        let Some(mut buffer) = self.posted.pop_front() else {
            return false;
        };
        let rest = bytes.saturating_sub(buffer.tailroom_mut().len());
        if rest > 0 {
            Reader::new(pieces).fill(&mut buffer, usize::MAX);
            let range = whole.bytes().saturating_sub(rest)..whole.bytes();
            if buffer.append_shared(whole, range).is_ok() {
                let word = self.judged(word, end);
                self.push(buffer, false, Some(word));
                self.packets += 1;
                return true;
            }
            buffer.truncate(0);
        }
        self.posted.push_front(buffer);
        false
    }

    /// The descriptor word of a packet that has just arrived, which may be reported as bad.
    fn judged(&mut self, word: Word, end: &End) -> Word {
        self.arrived += 1;
        let every = end.config.corrupt_every;
        let status =
            if every != 0 && self.arrived.is_multiple_of(every) || end.takes(SimFault::Corrupt) {
                Status::Error
            } else if end.takes(SimFault::Truncate) {
                Status::Length(0)
            } else if end.takes(SimFault::Overrun) {
                Status::Length(usize::MAX)
            } else {
                return word;
            };
        add(&end.counts.bad_descriptors, 1);
        Word { status, ..word }
    }

    fn push(&mut self, buffer: Packet, is_large: bool, end: Option<Word>) {
        if is_large {
            self.large_written += 1;
        } else {
            self.small_written += 1;
        }
        self.written.push_back(Written {
            buffer,
            is_large,
            end,
        });
    }

    /// The number of small buffers that a packet of `bytes` takes, at least one, and whether a
    /// large one follows them.
    fn buffers_for(&mut self, bytes: usize) -> Option<(usize, bool)> {
        let first = self
            .posted
            .front_mut()?
            .tailroom_mut()
            .len()
            .min(self.piece);
        if bytes <= first {
            return Some((1, false));
        }
        let large = self.large.front_mut().map_or(0, |b| b.tailroom_mut().len());
        if bytes - first <= large {
            return Some((1, true));
        }
        let mut room = 0;
        for (index, buffer) in self.posted.iter_mut().enumerate() {
            room += buffer.tailroom_mut().len().min(self.piece);
            if room >= bytes {
                return Some((index + 1, false));
            }
        }
        None
    }
}

/// Reads bytes from pieces, in order.
struct Reader<'a, I> {
    /// The rest of the current piece.
    piece: &'a [u8],
    pieces: I,
}

impl<'a, I: Iterator<Item = &'a [u8]>> Reader<'a, I> {
    fn new(pieces: I) -> Self {
        Self { piece: &[], pieces }
    }

    /// Fills up to `most` bytes of the free room of `buffer`, or until the pieces end.
    fn fill(&mut self, buffer: &mut Packet, most: usize) {
        let room = buffer.tailroom_mut();
        let bytes = room.len().min(most);
        let room = &mut room[..bytes];
        let mut filled = 0;
        while filled < room.len() {
            if self.piece.is_empty() {
                let Some(piece) = self.pieces.next() else {
                    break;
                };
                self.piece = piece;
            }
            let n = self.piece.len().min(room.len() - filled);
            let (now, later) = self.piece.split_at(n);
            room[filled..filled + n].copy_from_slice(now);
            filled += n;
            self.piece = later;
        }
        let grown = buffer.grow(filled);
        debug_assert!(grown.is_ok(), "the bytes were written to the tailroom");
    }
}

/// Counters of one endpoint's hardware for which a driver's counters have no field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimCounters {
    /// Packets that the endpoint put on the wire: each segment of a GSO packet that it cut is one;
    /// a packet that the receiver took whole is one.
    pub wire_packets: u64,
    /// Bytes of those, link header included.
    pub wire_bytes: u64,
    /// Packets that broke the endpoint's capabilities: a bug of the framework.
    pub unfit: u64,
    /// Packets that arrived and that the endpoint reported in a bad descriptor.
    pub bad_descriptors: u64,
}

/// The hardware's counters. Both ends' threads add, so these are locked additions. They have cache
/// lines of their own, as a poll for packets reads the fields beside them.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counts {
    rx_packets: AtomicU64,
    rx_bytes: AtomicU64,
    rx_dropped: AtomicU64,
    rx_errors: AtomicU64,
    tx_packets: AtomicU64,
    tx_bytes: AtomicU64,
    tx_dropped: AtomicU64,
    wire_packets: AtomicU64,
    wire_bytes: AtomicU64,
    unfit: AtomicU64,
    bad_descriptors: AtomicU64,
}

fn add(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Ordering::Relaxed);
}

impl Counts {
    /// The device read a packet of `bytes` that was transmitted.
    pub(super) fn fetched(&self, bytes: usize) {
        add(&self.rx_packets, 1);
        add(&self.rx_bytes, bytes);
    }

    /// A packet of the driver did not reach the wire.
    pub(super) fn fetched_in_vain(&self) {
        add(&self.rx_dropped, 1);
    }

    /// A packet of the driver cannot be finished as its descriptor requests.
    pub(super) fn fetched_malformed(&self) {
        add(&self.rx_errors, 1);
    }

    pub(super) fn on_wire(&self, packets: usize, bytes: usize) {
        add(&self.wire_packets, packets);
        add(&self.wire_bytes, bytes);
    }

    /// A packet for the driver is in its buffers.
    pub(super) fn arrived(&self, bytes: usize) {
        add(&self.tx_packets, 1);
        add(&self.tx_bytes, bytes);
    }

    /// A packet for the driver found no buffer.
    pub(super) fn arrived_in_vain(&self) {
        add(&self.tx_dropped, 1);
    }

    pub(super) fn unfit(&self) {
        add(&self.unfit, 1);
    }

    pub(super) fn device(&self) -> DeviceCounters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DeviceCounters {
            rx_packets: get(&self.rx_packets),
            rx_bytes: get(&self.rx_bytes),
            rx_dropped: get(&self.rx_dropped),
            rx_errors: get(&self.rx_errors),
            tx_packets: get(&self.tx_packets),
            tx_bytes: get(&self.tx_bytes),
            tx_dropped: get(&self.tx_dropped),
            tx_errors: 0,
        }
    }

    pub(super) fn hardware(&self) -> SimCounters {
        SimCounters {
            wire_packets: self.wire_packets.load(Ordering::Relaxed),
            wire_bytes: self.wire_bytes.load(Ordering::Relaxed),
            unfit: self.unfit.load(Ordering::Relaxed),
            bad_descriptors: self.bad_descriptors.load(Ordering::Relaxed),
        }
    }
}
