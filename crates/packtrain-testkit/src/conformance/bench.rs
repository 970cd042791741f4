//! A driver under test, with an RX and a TX queue of the framework.

use super::outside::Outside;
use super::probe::{Expected, Matcher, PAYLOAD_MIN, Probe};
use super::{Injects, Observes, Rig, Traits};
use packtrain::driver::{
    Attach, Capabilities, DeviceError, Driver, Features, Interest, RxBuffers, RxDescriptors,
    TxDescriptors,
};
use packtrain::limits::BURST_PACKETS_MAX;
use packtrain::packet::{Arena, ArenaConfig, Burst, FrameClass, Ingress, Packet};
use packtrain::plan::FitLimits;
use packtrain::queue::{RxQueue, TxQueue};
use packtrain::stats::{DropCounters, RxCounters, TxCounters};
use packtrain::time::Instant;
use packtrain_offload::offload::{ChecksumState, GsoKind, LinkType};
use packtrain_offload::random::Random;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::num::NonZeroU16;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::thread::sleep;
use std::time::{self, Duration};

pub(super) type Rx<R> = RxQueue<<<R as Rig>::Driver as Driver>::Rx>;
pub(super) type Tx<R> = TxQueue<<<R as Rig>::Driver as Driver>::Tx>;

/// Rounds without a new packet after which the suite stops waiting.
pub(super) const QUIET_ROUNDS: u32 = 20;

/// Rounds after which an expected packet counts as lost. Nearly every packet arrives within
/// the latency of the rig; on a busy machine one may take much longer.
pub(super) const LATE_ROUNDS: u32 = 6000;

/// More bytes than the headers of any packet of the suite.
pub(super) const HEADERS: usize = 100;

/// The choices of a case.
#[derive(Debug)]
pub(super) struct Dice(Random);

impl Dice {
    pub(super) const fn new(seed: u64) -> Self {
        Self(Random::new(seed))
    }

    /// A number from `min` to `max`, inclusive.
    pub(super) const fn roll(&mut self, min: usize, max: usize) -> usize {
        min + self.0.index(max - min + 1)
    }
}

/// The interrupt of a queue, with the number of times it was raised.
#[derive(Debug, Default)]
pub(super) struct Interrupt(AtomicU64);

impl Wake for Interrupt {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

impl Interrupt {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    pub(super) fn clear(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Whether the descriptor becomes ready within `timeout`, if the device has one, or the
    /// interrupt is raised.
    fn is_raised(&self, wake: Option<(BorrowedFd<'_>, Interest)>, timeout: Duration) -> bool {
        if let Some((fd, interest)) = wake {
            return is_ready(fd, interest, timeout);
        }
        let until = time::Instant::now() + timeout;
        while self.count() == 0 {
            if time::Instant::now() >= until {
                return false;
            }
            sleep(Duration::from_micros(100));
        }
        true
    }
}

/// Whether `fd` becomes ready for `interest` within `timeout`.
fn is_ready(fd: BorrowedFd<'_>, interest: Interest, timeout: Duration) -> bool {
    let flags = match interest {
        Interest::Read => PollFlags::IN,
        Interest::Write => PollFlags::OUT,
    };
    let timeout = Timespec::try_from(timeout).expect("a short time");
    let ready = poll(&mut [PollFd::from_borrowed_fd(fd, flags)], Some(&timeout));
    ready.expect("poll works on the descriptor") > 0
}

pub(super) struct Bench<R: Rig> {
    queues: Option<(Rx<R>, Tx<R>)>,
    pub(super) rig: R,
    pub(super) arena: Arena,
    pub(super) capabilities: Capabilities,
    pub(super) traits: Traits,
    pub(super) dice: Dice,
    pub(super) rx_counters: Arc<RxCounters>,
    pub(super) tx_counters: Arc<TxCounters>,
    pub(super) rx_drops: Arc<DropCounters>,
    pub(super) tx_drops: Arc<DropCounters>,
    pub(super) rx_interrupt: Arc<Interrupt>,
    pub(super) tx_interrupt: Arc<Interrupt>,
    /// Packets that are still to be injected.
    pub(super) feed: VecDeque<Outside>,
    now: Instant,
    numbers: u32,
}

impl<R: Rig> Bench<R> {
    /// Attaches the rig's driver. The queue uses `tx` of the features that the device declares.
    pub(super) fn new(mut rig: R, seed: u64, tx: Features, feed: Vec<Outside>) -> Self {
        let traits = rig.traits();
        let mut feed = VecDeque::from(feed);
        if traits.injects == Injects::BeforeAttach {
            for packet in feed.drain(..) {
                assert!(
                    rig.inject(&packet),
                    "before it is attached, a rig takes everything"
                );
            }
        }
        let arena = Arena::new(ArenaConfig::small()).expect("memory for an arena");
        let capabilities = rig.driver().capabilities();
        let how = Attach {
            queues: 1,
            rx: capabilities.rx,
            rx_buffers: if seed.is_multiple_of(2) {
                RxBuffers::Whole
            } else {
                RxBuffers::PIECES
            },
            ..Attach::default()
        };
        let mut pairs = rig
            .driver()
            .attach(&how, &arena)
            .expect("the driver attaches");
        assert_eq!(pairs.len(), 1, "one queue was requested");
        let (rx, tx_device) = pairs.remove(0);
        let (rx_counters, tx_counters): (Arc<RxCounters>, Arc<TxCounters>) = Default::default();
        let (rx_drops, tx_drops): (Arc<DropCounters>, Arc<DropCounters>) = Default::default();
        let mut rx = RxQueue::new(
            rx,
            arena.clone(),
            capabilities.link,
            Ingress::default(),
            Arc::clone(&rx_counters),
            Arc::clone(&rx_drops),
        );
        let mut tx = TxQueue::new(
            tx_device,
            arena.clone(),
            capabilities.tx.intersection(tx),
            FitLimits::new(&capabilities, None),
            capabilities.tx_ring,
            Arc::clone(&tx_counters),
            Arc::clone(&tx_drops),
        );
        let (rx_interrupt, tx_interrupt): (Arc<Interrupt>, Arc<Interrupt>) = Default::default();
        rx.set_interrupt(Waker::from(Arc::clone(&rx_interrupt)));
        tx.set_interrupt(Waker::from(Arc::clone(&tx_interrupt)));
        Self {
            queues: Some((rx, tx)),
            rig,
            arena,
            capabilities,
            traits,
            dice: Dice::new(seed),
            rx_counters,
            tx_counters,
            rx_drops,
            tx_drops,
            rx_interrupt,
            tx_interrupt,
            feed,
            now: Instant::default(),
            numbers: 0,
        }
    }

    pub(super) fn rx(&mut self) -> &mut Rx<R> {
        &mut self.queues.as_mut().expect("attached").0
    }

    pub(super) fn tx(&mut self) -> &mut Tx<R> {
        &mut self.queues.as_mut().expect("attached").1
    }

    /// Whether the RX half ends the sleep of its worker within `timeout`.
    pub(super) fn rx_is_raised(&mut self, timeout: Duration) -> bool {
        let interrupt = Arc::clone(&self.rx_interrupt);
        interrupt.is_raised(self.rx().device_mut().wake(), timeout)
    }

    /// Whether the TX half ends the sleep of its worker within `timeout`.
    pub(super) fn tx_is_raised(&mut self, timeout: Duration) -> bool {
        let interrupt = Arc::clone(&self.tx_interrupt);
        interrupt.is_raised(self.tx().device_mut().wake(), timeout)
    }

    /// Drops the queues with their packets.
    pub(super) fn detach(&mut self) {
        if self.queues.take().is_some() {
            self.rig.detached();
        }
    }

    /// A lower bound of the bytes of the longest GSO packet that fits the device.
    pub(super) fn longest(&self) -> usize {
        let limits = FitLimits::new(&self.capabilities, None);
        let piece = limits.segment_bytes_max.min(FrameClass::Small.data_bytes());
        limits.gso_segments_max * piece
    }

    /// A packet that differs from all others.
    pub(super) fn probe(&mut self, payload_max: usize) -> Probe {
        self.numbers += 1;
        probe(
            &mut self.dice,
            self.capabilities.link,
            self.numbers,
            payload_max,
        )
    }

    pub(super) fn matcher(&self) -> Matcher {
        Matcher::new(self.capabilities.link, self.traits.window == 0)
    }

    /// Injects up to a window of the packets that remain.
    pub(super) fn inject(&mut self) -> usize {
        let mut injected = 0;
        while self.traits.injects == Injects::Live && injected < self.traits.window.max(1) {
            let Some(packet) = self.feed.front() else {
                break;
            };
            if !self.rig.inject(packet) {
                break;
            }
            self.feed.pop_front();
            injected += 1;
        }
        injected
    }

    /// One poll of at most `budget` packets; returns the number received, including bad ones.
    pub(super) fn poll(&mut self, budget: usize, take: &mut dyn FnMut(Packet)) -> usize {
        self.rig.tick();
        let mut burst = Burst::new();
        let bad_before = self.rx_counters.bad_packets.get();
        let now = self.tick();
        match self.rx().poll(now, &mut burst, budget) {
            Ok(_) | Err(DeviceError::Finished) => {}
            Err(error) => panic!("the device failed: {error}"),
        }
        let bad = (self.rx_counters.bad_packets.get() - bad_before) as usize;
        let count = burst.len() + bad;
        assert!(
            count <= budget,
            "{count} packets in a poll with a budget of {budget}"
        );
        while let Some(packet) = burst.pop() {
            take(packet);
        }
        count
    }

    /// A short time passes.
    fn tick(&mut self) -> Instant {
        self.now = self.now.after(Duration::from_millis(1));
        self.now
    }

    /// Collects the packets that the device has completed.
    fn reclaim(&mut self) {
        let now = self.tick();
        self.tx().reclaim(now);
    }

    /// Collects the packets that the device has completed at `at`; returns their number.
    pub(super) fn reclaim_at(&mut self, at: Instant) -> usize {
        self.now = self.now.max(at);
        let now = self.now;
        self.tx().reclaim(now)
    }

    /// Injects all packets and polls until no more arrive.
    pub(super) fn receive_all(&mut self, take: &mut dyn FnMut(Packet)) {
        let mut quiet = 0;
        while quiet < QUIET_ROUNDS {
            let injected = self.inject();
            let budget = self.dice.roll(1, BURST_PACKETS_MAX);
            let mut got = self.poll(budget, take);
            while got > 0 && self.traits.injects == Injects::Live {
                let more = self.poll(BURST_PACKETS_MAX, take);
                if more == 0 {
                    break;
                }
                got += more;
            }
            if injected + got > 0 {
                quiet = 0;
                continue;
            }
            quiet += 1;
            self.pause();
        }
    }

    /// Receives until `matcher` has all expected packets; `inspect` gets each packet first.
    pub(super) fn receive_expected(
        &mut self,
        matcher: &mut Matcher,
        inspect: &mut dyn FnMut(&Packet),
    ) {
        let tag = self.traits.tag;
        for _ in 0..LATE_ROUNDS {
            self.receive_all(&mut |packet| {
                inspect(&packet);
                matcher.arrived(&Outside::received(&packet, tag));
            });
            if matcher.is_done() || !self.may_be_late() {
                break;
            }
        }
    }

    /// Whether to wait longer than usual: the rig loses no packets, and they do not arrive at once.
    fn may_be_late(&self) -> bool {
        self.traits.window > 0 && !self.traits.latency.is_zero()
    }

    /// A part of the rig's latency: short if packets arrive at once.
    pub(super) fn pause(&self) {
        sleep(self.traits.latency / QUIET_ROUNDS);
    }

    /// A packet of the framework, in segments of random lengths.
    pub(super) fn packet(&mut self, outside: &Outside) -> Packet {
        self.try_packet(outside).expect("the arena has frames")
    }

    /// The same; `None` if the arena has too few frames.
    pub(super) fn try_packet(&mut self, outside: &Outside) -> Option<Packet> {
        let (dice, link) = (&mut self.dice, self.capabilities.link);
        let long = dice.roll(0, 1) == 0;
        // With header offsets the headers must be contiguous, and an offload needs the offsets.
        let mut shortest = if outside.checksum == ChecksumState::None {
            1
        } else {
            HEADERS
        };
        let lengths = || {
            let min = std::mem::replace(&mut shortest, 40);
            if long { 1500 } else { dice.roll(min, 1500) }
        };
        let tagged = self.traits.tag.map(|tag| outside.clone().tagged(tag));
        tagged
            .as_ref()
            .unwrap_or(outside)
            .to_packet(&self.arena, link, lengths)
            .ok()
    }

    /// Gives `burst` to the device once.
    pub(super) fn transmit(&mut self, burst: &mut Burst) {
        self.tx().transmit(burst).expect("the device works");
        self.reclaim();
    }

    /// Transmits all of `burst`, and observes meanwhile.
    pub(super) fn transmit_all(&mut self, burst: &mut Burst, matcher: &mut Matcher) {
        for _ in 0..LATE_ROUNDS * QUIET_ROUNDS {
            self.transmit(burst);
            if burst.is_empty() && self.tx().is_ready() {
                return;
            }
            if self.observe(matcher) == 0 {
                self.pause();
            }
        }
        panic!(
            "the device makes no progress: {:?}",
            self.tx_counters.snapshot()
        );
    }

    /// Matches the packets observed so far.
    pub(super) fn observe(&mut self, matcher: &mut Matcher) -> usize {
        let mut count = 0;
        if self.traits.observes == Observes::Live || self.queues.is_none() {
            while let Some(packet) = self.rig.observe() {
                matcher.arrived(&packet);
                count += 1;
            }
        }
        count
    }

    /// Waits until all transmitted packets were observed, or no more arrive.
    pub(super) fn observe_all(&mut self, matcher: &mut Matcher) {
        if self.traits.observes == Observes::AfterDetach {
            self.detach();
        }
        let quiet_max = if self.may_be_late() {
            QUIET_ROUNDS * LATE_ROUNDS
        } else {
            QUIET_ROUNDS
        };
        let mut quiet = 0;
        while !matcher.is_done() && quiet < quiet_max {
            if self.queues.is_some() {
                self.reclaim();
            }
            if self.observe(matcher) > 0 {
                quiet = 0;
                continue;
            }
            quiet += 1;
            self.pause();
        }
    }

    /// Waits until the device has completed all packets that it accepted.
    pub(super) fn complete_all(&mut self) {
        for _ in 0..LATE_ROUNDS * QUIET_ROUNDS {
            if self.queues.is_none() || self.tx().in_flight() == 0 {
                return;
            }
            self.reclaim();
            while self.traits.observes == Observes::Live && self.rig.observe().is_some() {}
            self.pause();
        }
        panic!("{} packets were never completed", self.tx().in_flight());
    }

    /// Drops all packets, and checks that all frames are free.
    pub(super) fn finish(mut self) {
        self.detach();
        let Self { rig, arena, .. } = self;
        drop(rig);
        let config = arena.config();
        let census = arena.census();
        assert_eq!(
            (census.small_free, census.large_free, census.lines_free),
            (config.small_frames, config.large_frames, config.lines),
            "frames or lines leaked: {census:?}"
        );
    }
}

/// A random packet.
pub(super) fn probe(dice: &mut Dice, link: LinkType, number: u32, payload_max: usize) -> Probe {
    let kinds = [
        GsoKind::TcpV4,
        GsoKind::TcpV6,
        GsoKind::UdpV4,
        GsoKind::UdpV6,
    ];
    Probe {
        link,
        kind: kinds[dice.roll(0, 3)],
        number,
        payload: dice.roll(PAYLOAD_MIN, payload_max.max(PAYLOAD_MIN)),
        vlan: None,
        cwr: false,
    }
}

/// `probe` with all its offloads: the packet for the device, and the packets that it must send.
pub(super) fn gso(probe: &Probe, size: NonZeroU16) -> (Outside, Expected) {
    let whole = probe.gso(size);
    let wire = probe.wire(size);
    let expected = Expected {
        whole: tagged(probe, &whole),
        wire,
    };
    (whole, expected)
}

/// `probe` with a partial checksum.
pub(super) fn partial(probe: &Probe) -> (Outside, Expected) {
    let whole = probe.partial();
    let wire = vec![probe.complete()];
    let expected = Expected {
        whole: tagged(probe, &whole),
        wire,
    };
    (whole, expected)
}

fn tagged(probe: &Probe, packet: &Outside) -> Outside {
    let packet = packet.clone();
    match probe.vlan {
        Some(tag) => packet.tagged(tag),
        None => packet,
    }
}
