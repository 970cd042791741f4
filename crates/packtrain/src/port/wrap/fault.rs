//! Injects faults of bad networks into received packets: at random, yet reproducibly.

use super::wire::{self, Scratch};
use super::{PassBad, info_of};
use crate::driver::{
    Armed, Capabilities, DeviceError, Driver, Input, Interest, QueuePair, RxBurst, RxDescriptors,
    WrapDriver, WrapRx, wraps,
};
use crate::limits::{BURST_PACKETS_MAX, RX_HELD_LARGE_MAX};
use crate::packet::{Arena, Burst, FrameClass, Packet, PacketError};
use crate::stats::DropReason;
use crate::time::Instant;
use packtrain_offload::offload::{ChecksumState, LinkType};
use packtrain_offload::random::Random;
use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The faults of received packets. Probabilities are from 0 (never, the default) to 1 (always), and
/// are drawn for each packet independently; a GSO packet is one packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultOptions {
    /// With the same seed and the same input at the same times, the faults are the same. Each queue
    /// draws independently.
    pub seed: u64,
    /// Probability that a packet is lost. A GSO packet is lost as a whole.
    pub drop: f64,
    /// Probability that a packet arrives twice.
    pub duplicate: f64,
    /// Probability that one bit of a packet is flipped, as on a wire: after the sender finished the
    /// checksum, so that the receiver can notice. See [`Fault`].
    pub corrupt: f64,
    /// Probability that a packet arrives late, by [`FaultOptions::delay_time`].
    pub delay: f64,
    /// The delay of a late packet.
    pub delay_time: Duration,
    /// Probability that a packet is overtaken by the next [`FaultOptions::reorder_by`].
    pub reorder: f64,
    /// The number of packets that overtake it.
    pub reorder_by: u32,
    /// The longest time that a packet waits for others to overtake it.
    pub reorder_time: Duration,
    /// The most packets held by each queue. Packets of several segments count as that many, and at
    /// most [`RX_HELD_LARGE_MAX`] packets in large frames are held. At the limit, nothing more is
    /// taken from the device, which counts the packets for which it then has no room.
    pub held_packets_max: usize,
}

impl Default for FaultOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            drop: 0.0,
            duplicate: 0.0,
            corrupt: 0.0,
            delay: 0.0,
            delay_time: Duration::from_millis(10),
            reorder: 0.0,
            reorder_by: 3,
            reorder_time: Duration::from_millis(10),
            held_packets_max: 1024,
        }
    }
}

/// The number of each fault, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Lost.
    pub dropped: u64,
    /// Received twice: copies made.
    pub duplicated: u64,
    /// Damaged; of a GSO packet, one wire packet.
    pub corrupted: u64,
    /// Delayed.
    pub delayed: u64,
    /// Held back to be overtaken.
    pub reordered: u64,
}

/// Reads the number of each fault and ends them, also after the [`Fault`] was moved into its port.
#[derive(Clone, Debug, Default)]
pub struct FaultCounters(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    dropped: AtomicU64,
    duplicated: AtomicU64,
    corrupted: AtomicU64,
    delayed: AtomicU64,
    reordered: AtomicU64,
    stopped: AtomicBool,
}

impl FaultCounters {
    /// Ends the faults: packets received from now on arrive as they are. Those that are held go on
    /// when they are due.
    pub fn stop(&self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }

    /// The counts of all queues together.
    #[must_use]
    pub fn get(&self) -> Faults {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Faults {
            dropped: load(&self.0.dropped),
            duplicated: load(&self.0.duplicated),
            corrupted: load(&self.0.corrupted),
            delayed: load(&self.0.delayed),
            reordered: load(&self.0.reordered),
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Injects faults into received packets; transmitted packets pass unchanged. Losing completions and
/// wake-ups requires an asynchronous device; the only port with one is [`sim`](crate::port::sim),
/// which loses them itself (`SimControl`).
///
/// A lost packet counts as received and as dropped for `fault_injected`, a repeated one as received
/// twice. A packet that is held has not been received yet: if a run is stopped before the packet is
/// due, it is never received.
///
/// A partial checksum is finished before the bit is flipped, and a GSO packet is cut into its wire
/// packets first, one of which is damaged. Otherwise the checksum would be computed over the
/// damaged bytes, and would be right. The bit is one of the transport payload if there is any, else
/// of anything behind the Ethernet header. If the packet contradicts itself or memory is short, it
/// is not damaged.
#[derive(Debug)]
pub struct Fault<D> {
    inner: D,
    options: FaultOptions,
    counters: FaultCounters,
}

impl<D: Driver> Fault<D> {
    /// Wraps `inner`.
    #[must_use]
    pub fn new(inner: D, options: FaultOptions) -> Self {
        Self {
            inner,
            options,
            counters: FaultCounters::default(),
        }
    }

    /// A handle to read the counts.
    #[must_use]
    pub fn counters(&self) -> FaultCounters {
        self.counters.clone()
    }
}

impl<D: Driver> WrapDriver for Fault<D> {
    type Rx = FaultRx<D::Rx>;
    type Tx = D::Tx;
    wraps! { D, self => self.inner }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.inner.capabilities();
        if self.options.delay > 0.0 || self.options.reorder > 0.0 {
            let own = self.options.held_packets_max.max(1);
            capabilities.rx_held_max = capabilities.rx_held_max.saturating_add(own);
        }
        capabilities
    }

    fn add_seed(&mut self, seed: u64) {
        self.options.seed = self.options.seed.wrapping_add(seed);
    }

    fn wrap(&mut self, queue: usize, (rx, tx): QueuePair<D>, arena: &Arena) -> QueuePair<Self> {
        let capabilities = self.inner.capabilities();
        let rx = FaultRx {
            inner: rx,
            options: self.options,
            link: capabilities.link,
            dice: dice(self.options.seed, queue as u64),
            stage: Burst::new(),
            line: Line::new(self.options.held_packets_max.max(1)),
            ended: capabilities.input == Input::None,
            finished: false,
            at: Instant::default(),
            counters: self.counters.clone(),
            arena: arena.clone(),
            scratch: Box::default(),
        };
        (rx, tx)
    }
}

/// Packets that one poll may add to the line beyond its bound, by copies and by cutting GSO packets
/// into their wire packets. A packet whose copies or pieces would not fit is not copied or cut.
const LINE_SLACK: usize = 64 * BURST_PACKETS_MAX;

/// The dice of one queue.
fn dice(seed: u64, queue: u64) -> Random {
    let mut dice = Random::new(seed ^ queue.wrapping_mul(0xd134_2543_de82_ef95));
    Random::new(dice.next())
}

/// A packet on the line.
#[derive(Debug)]
struct Held {
    packet: Packet,
    /// The packet is not handed over before.
    due: Instant,
    /// Packets behind it that still have to overtake it, unless `until` comes first.
    behind: u32,
    until: Instant,
}

impl Held {
    fn is_ready(&self, now: Instant, ended: bool) -> bool {
        // Once the input has ended, no more packets can overtake it.
        self.due <= now && (self.behind == 0 || self.until <= now || ended)
    }

    /// The time when it is ready at the latest.
    fn ready_at(&self, ended: bool) -> Instant {
        if self.behind == 0 || ended {
            self.due
        } else {
            self.due.max(self.until)
        }
    }
}

/// Packets taken from the device and not yet handed over, oldest first.
#[derive(Debug)]
struct Line {
    held: VecDeque<Held>,
    packets_max: usize,
    /// Segments of all packets: each is in a frame of the arena.
    segments: usize,
    /// Packets that are not in small frames only.
    large: usize,
}

impl Line {
    fn new(packets_max: usize) -> Self {
        Self {
            held: VecDeque::with_capacity(packets_max + LINE_SLACK),
            packets_max,
            segments: 0,
            large: 0,
        }
    }

    fn push(&mut self, held: Held) {
        self.segments += held.packet.segment_count();
        self.large += usize::from(!held.packet.in_small_frames());
        self.held.push_back(held);
    }

    fn remove(&mut self, index: usize) -> Option<Held> {
        let held = self.held.remove(index)?;
        self.segments -= held.packet.segment_count();
        self.large -= usize::from(!held.packet.in_small_frames());
        Some(held)
    }

    fn len(&self) -> usize {
        self.held.len()
    }

    /// Packets that may be taken from the device. If they have more than one segment, the limit may
    /// be exceeded by at most a burst.
    fn room(&self) -> usize {
        if self.segments >= self.packets_max || self.large >= RX_HELD_LARGE_MAX {
            return 0;
        }
        self.packets_max.saturating_sub(self.held.len())
    }

    fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// Packets for which there is memory, after `taken` more packets.
    fn spare(&self, taken: usize) -> usize {
        self.held.capacity() - self.held.len() - taken
    }
}

/// The faults drawn for one packet.
#[derive(Clone, Copy, Debug)]
struct Fate {
    drop: bool,
    duplicate: bool,
    corrupt: bool,
    delay: bool,
    reorder: bool,
}

/// The receiving half of a [`Fault`].
#[derive(Debug)]
pub struct FaultRx<R> {
    inner: R,
    options: FaultOptions,
    link: LinkType,
    dice: Random,
    stage: Burst,
    line: Line,
    /// The device delivers nothing more.
    ended: bool,
    /// The device has reported the end of its input.
    finished: bool,
    /// The time of the last poll.
    at: Instant,
    counters: FaultCounters,
    arena: Arena,
    scratch: Box<Scratch>,
}

impl<R: RxDescriptors> FaultRx<R> {
    fn take(&mut self, now: Instant, packet: Packet, burst: &mut RxBurst<'_>) {
        let (options, counters) = (&self.options, &self.counters.0);
        // Draws in any case, so that one setting does not shift the others.
        let stopped = counters.stopped.load(Ordering::Relaxed);
        let mut hits = |chance: f64| self.dice.unit() < chance && !stopped;
        let fate = Fate {
            drop: hits(options.drop),
            duplicate: hits(options.duplicate),
            corrupt: hits(options.corrupt),
            delay: hits(options.delay),
            reorder: hits(options.reorder),
        };
        if fate.drop {
            count(&counters.dropped);
            burst.bad(
                DropReason::FaultInjected,
                u64::from(packet.meta().wire_packets),
            );
            return;
        }
        let due = if fate.delay {
            count(&counters.delayed);
            now.after(options.delay_time)
        } else {
            now
        };
        let (behind, until) = if fate.reorder && options.reorder_by > 0 {
            count(&counters.reordered);
            (options.reorder_by, due.after(options.reorder_time))
        } else {
            (0, due)
        };
        let held = |packet| Held {
            packet,
            due,
            behind,
            until,
        };
        // Room stays free for the other packets that this poll has taken.
        let room = self.line.spare(self.stage.len());
        // The copy is made first: only one of the two is damaged.
        if fate.duplicate
            && room >= 2
            && let Ok(copy) = packet.try_clone()
        {
            count(&counters.duplicated);
            self.line.push(held(copy));
        }
        if fate.corrupt {
            let mut corruptor = Corruptor {
                room: self.line.spare(self.stage.len()),
                dice: &mut self.dice,
                arena: &self.arena,
                scratch: &mut self.scratch,
                link: self.link,
            };
            if let Some(wire) = corruptor.corrupt(&packet) {
                count(&counters.corrupted);
                wire.into_iter().for_each(|one| self.line.push(held(one)));
                return;
            }
        }
        self.line.push(held(packet));
    }

    /// The result of arming, if the line decides it without the device.
    fn armed_by_line(&self) -> Option<Armed> {
        let (now, ended) = (self.at, self.ended);
        // The last poll ended by its budget, not for lack of packets.
        if self.line.held.iter().any(|held| held.is_ready(now, ended)) {
            return Some(Armed::WorkPending);
        }
        (self.ended || self.line.is_full()).then_some(Armed::Idle)
    }

    /// Hands over the packets that are ready, oldest first.
    fn release(&mut self, now: Instant, burst: &mut RxBurst<'_>) {
        self.sweep(now, false, burst);
        if self.ended {
            // No more packets can overtake.
            self.sweep(now, true, burst);
        }
    }

    fn sweep(&mut self, now: Instant, ended: bool, burst: &mut RxBurst<'_>) {
        let mut index = 0;
        while index < self.line.len() && burst.budget() > 0 {
            if !self.line.held[index].is_ready(now, ended) {
                index += 1;
                continue;
            }
            let Some(held) = self.line.remove(index) else {
                break;
            };
            let info = info_of(&held.packet);
            burst.push(held.packet, &info);
            // If enough packets have overtaken a held one, it is next.
            for (place, overtaken) in self.line.held.iter_mut().take(index).enumerate().rev() {
                overtaken.behind = overtaken.behind.saturating_sub(1);
                if overtaken.is_ready(now, ended) {
                    index = place;
                }
            }
        }
    }
}

impl<R: RxDescriptors> WrapRx for FaultRx<R> {
    wraps! { R, self => self.inner }

    fn receive(&mut self, now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        self.at = now;
        let room = self.line.room();
        let mut result = Ok(());
        if !self.ended && room > 0 {
            let budget = burst.budget().min(room);
            let mut bad = PassBad(burst);
            let mut staged = RxBurst::new(&mut self.stage, budget, &mut bad);
            result = self.inner.receive(now, &mut staged);
            while let Some(packet) = self.stage.pop() {
                self.take(now, packet, burst);
            }
        }
        if matches!(result, Err(DeviceError::Finished)) {
            (self.ended, self.finished) = (true, true);
            result = Ok(());
        }
        self.release(now, burst);
        if self.finished && self.line.held.is_empty() {
            return Err(DeviceError::Finished);
        }
        result
    }

    fn arm(&mut self) -> Armed {
        self.armed_by_line().unwrap_or_else(|| self.inner.arm())
    }

    fn arm_for(&mut self, packets: usize) -> Option<Armed> {
        self.armed_by_line().or_else(|| self.inner.arm_for(packets))
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        // A device that is not polled must not wake the worker.
        if self.ended || self.line.is_full() {
            return None;
        }
        self.inner.wake()
    }

    fn next_at(&self) -> Option<Instant> {
        let ready_at = |held: &Held| held.ready_at(self.ended);
        let own = self.line.held.iter().map(ready_at).min();
        let inner = if self.ended || self.line.is_full() {
            None
        } else {
            self.inner.next_at()
        };
        own.into_iter().chain(inner).min()
    }

    fn held(&self) -> u64 {
        self.line.len() as u64 + self.inner.held()
    }
}

/// Flips bits.
struct Corruptor<'a> {
    /// The most packets that one packet may become.
    room: usize,
    dice: &'a mut Random,
    arena: &'a Arena,
    scratch: &'a mut Scratch,
    link: LinkType,
}

impl Corruptor<'_> {
    /// The wire packets of `packet`, one of them with a bit flipped; `None` if that is not
    /// possible.
    fn corrupt(&mut self, packet: &Packet) -> Option<Vec<Packet>> {
        let mut wire = self.wire_packets(packet)?;
        let victim = self.dice.index(wire.len());
        let hit = wire.get_mut(victim)?;
        *hit = self.flip(hit)?;
        Some(wire)
    }

    /// The finished wire packets, payload shared. Together they account for as many wire packets as
    /// the original.
    fn wire_packets(&mut self, packet: &Packet) -> Option<Vec<Packet>> {
        let arena = self.arena;
        let accounted = packet.meta().wire_packets;
        let most = self.room.min(usize::from(accounted));
        let mut all = Vec::new();
        let mut failed = false;
        let visited = wire::for_each(packet, self.link, false, self.scratch, |wire| {
            failed |= wire.count as usize > most;
            if failed {
                return;
            }
            match build(packet, wire.header, wire.rest, arena) {
                Ok(mut segment) => {
                    let last = wire.index + 1 == wire.count;
                    let others = wire.index as u16;
                    let share = if last { accounted - others } else { 1 };
                    segment.meta_mut().wire_packets = share;
                    all.push(segment);
                }
                Err(_no_buffer) => failed = true,
            }
        });
        (visited && !failed).then_some(all)
    }

    /// A copy with one bit flipped.
    fn flip(&mut self, packet: &Packet) -> Option<Packet> {
        let end = packet.bytes();
        let layout = packet.parsed_layout(self.link);
        let payload = layout.map_or(0..0, |l| usize::from(l.payload)..l.ip_end as usize);
        let range = if payload.is_empty() {
            self.link.header_bytes()..end
        } else {
            payload
        };
        if range.is_empty() {
            return None;
        }
        let at = range.start + self.dice.index(range.len());
        let bit = 1_u8 << self.dice.below(8);
        copy_with(packet, at, bit, self.arena).ok()
    }
}

/// A packet of `header` and the shared `rest` of `packet`.
fn build(
    packet: &Packet,
    header: &[u8],
    rest: Range<usize>,
    arena: &Arena,
) -> Result<Packet, PacketError> {
    let mut fresh = arena.packet(FrameClass::Small)?;
    fresh.append_copy(FrameClass::Small, header)?;
    fresh.append_shared(packet, rest)?;
    fresh.copy_meta(packet);
    let meta = fresh.meta_mut();
    // Finished by its sender, and not verified here.
    meta.checksum = ChecksumState::None;
    meta.gso = None;
    meta.layout = None;
    Ok(fresh)
}

/// A copy of `packet` in frames of its own, the byte at `at` changed by `flip`.
fn copy_with(packet: &Packet, at: usize, flip: u8, arena: &Arena) -> Result<Packet, PacketError> {
    let class = if packet.bytes() <= FrameClass::Small.data_bytes() {
        FrameClass::Small
    } else {
        FrameClass::Large
    };
    let mut copy = arena.packet(class)?;
    for piece in packet.pieces(0..at)? {
        copy.append_copy(class, piece)?;
    }
    for piece in packet.pieces(at..at + 1)? {
        for byte in piece {
            copy.append_copy(class, &[byte ^ flip])?;
        }
    }
    for piece in packet.pieces(at + 1..packet.bytes())? {
        copy.append_copy(class, piece)?;
    }
    copy.copy_meta(packet);
    // The metadata of the original bytes does not hold for these.
    copy.meta_mut().layout = None;
    Ok(copy)
}
