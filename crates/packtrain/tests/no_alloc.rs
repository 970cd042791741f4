//! The packet path does not allocate: when receiving, parsing, merging, segmenting, summing,
//! fitting, sending or reclaiming, on owned and on shared TX paths.

#![allow(unsafe_code, reason = "an allocator that counts")]

use packtrain::bridge::{AGING, Addresses, Bridge};
use packtrain::driver::{
    Accepted, Armed, Completed, DeviceError, Features, Fit, Refused, RxBurst, RxDescriptors,
    RxInfo, Token, TxDescriptors, TxMemory, TxPacket,
};
use packtrain::engine::{Action, SendError, Session, Settings, TrySendError, Worker};
use packtrain::limits::BURST_PACKETS_MAX;
use packtrain::packet::{
    Arena, ArenaConfig, Burst, FrameClass, Ingress, Packet, PacketError, VlanTag,
};
use packtrain::plan::{Coalescing, FitLimits, Mtu, PathKind};
use packtrain::policy::dispatch::Dispatch;
use packtrain::policy::gro::Gro;
use packtrain::port;
use packtrain::queue::{CoalesceStage, RxQueue, TxQueue};
use packtrain::runtime;
use packtrain::stats::DropReason;
use packtrain::time::Instant;
use packtrain_offload::checksum::ipv4_header;
use packtrain_offload::coalesce::{Mode, Semantics};
use packtrain_offload::offload::{ChecksumState, Gso, GsoKind, LinkType};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::VecDeque;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

struct Counting;

thread_local! {
    /// Allocations of this thread: those of the test harness do not count.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: forwards every call to the system's allocator. Growing is counted too: the provided
// `realloc` and `alloc_zeroed` call `alloc`.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: as the caller says.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as the caller says.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const WARM_UP: u64 = 10_000;
const MEASURED: u64 = 1_000_000;
const MSS: u16 = 1000;
const GSO_PAYLOAD: usize = 9500;

/// Produces an endless mix: plain packets, partial checksums, tags, GSO, headers in pieces.
struct Source {
    plain: Vec<u8>,
    gso: Vec<u8>,
    posted: VecDeque<Packet>,
    serial: u32,
}

impl Source {
    fn next(&mut self, mut packet: Packet) -> Result<(Packet, RxInfo), PacketError> {
        self.serial += 1;
        let mut info = RxInfo::default();
        let gso = self.serial.is_multiple_of(8);
        let mut bytes = if gso { &self.gso[..] } else { &self.plain[..] };
        if self.serial.is_multiple_of(3) {
            packet.append_copy(FrameClass::Small, &bytes[..30])?;
            packet.add_frame(FrameClass::Small)?;
            bytes = &bytes[30..];
        }
        packet.append_copy(FrameClass::Small, bytes)?;
        if gso {
            info.gso = NonZeroU16::new(MSS).map(|size| Gso::new(GsoKind::TcpV4, size));
            info.wire_packets = GSO_PAYLOAD.div_ceil(usize::from(MSS)) as u16;
        }
        if gso || self.serial.is_multiple_of(2) {
            info.checksum = ChecksumState::Partial {
                start: 34,
                offset: 16,
            };
        }
        if self.serial.is_multiple_of(5) {
            packet.meta_mut().vlan = Some(VlanTag {
                protocol: 0x8100,
                control: 7,
            });
        }
        Ok((packet, info))
    }
}

impl RxDescriptors for Source {
    fn refill(&mut self, arena: &Arena) -> bool {
        while self.posted.len() < BURST_PACKETS_MAX {
            match arena.packet(FrameClass::Small) {
                Ok(packet) => self.posted.push_back(packet),
                Err(_no_buffer) => return false,
            }
        }
        true
    }

    fn receive(&mut self, _now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        while burst.budget() > 0 {
            let Some(packet) = self.posted.pop_front() else {
                break;
            };
            match self.next(packet) {
                Ok((packet, info)) => burst.push(packet, &info),
                Err(_no_buffer) => burst.bad(DropReason::NoBuffer, 1),
            }
        }
        Ok(())
    }

    fn arm(&mut self) -> Armed {
        Armed::WorkPending
    }
}

/// A ring of 32 descriptors that refuses packets when it is full, and completes in reverse.
struct Sink {
    ring: VecDeque<Token>,
    flushes: u64,
    calls: u64,
}

impl TxDescriptors for Sink {
    fn encap(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<Accepted, Refused> {
        self.calls += 1;
        if self.ring.len() == 32 {
            return Err(Refused::NoDescriptor);
        }
        // At times the device refuses to map a packet that its limits permit.
        if self.calls.is_multiple_of(97) {
            return Err(Refused::TooManySegments);
        }
        assert!(packet.packet().segments().count() <= 4);
        assert!(packet.packet().meta().gso.is_none());
        self.ring.push_back(token);
        Ok(Accepted::Pending)
    }

    fn flush(&mut self, _now: Instant) -> Result<(), DeviceError> {
        self.flushes += 1;
        Ok(())
    }

    fn reclaim(&mut self, _now: Instant, completed: &mut Completed) {
        // At times the device has completed no packet yet.
        if self.calls.is_multiple_of(5) {
            self.calls += 1;
            return;
        }
        while let Some(token) = self.ring.pop_back() {
            assert!(completed.push(token));
        }
    }

    fn doorbells(&self) -> u64 {
        self.flushes
    }
}

fn tcp4(payload: usize) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    bytes.extend((40 + payload as u16).to_be_bytes());
    bytes.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2]);
    bytes.extend([0, 80, 0, 81, 0, 0, 0, 1, 0, 0]);
    bytes.extend([0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    bytes.resize(bytes.len() + payload, 0xab);
    bytes
}

type Queues = (RxQueue<Source>, TxQueue<Sink>);

fn queues(arena: &Arena) -> Queues {
    let source = Source {
        plain: tcp4(600),
        gso: tcp4(GSO_PAYLOAD),
        posted: VecDeque::with_capacity(BURST_PACKETS_MAX),
        serial: 0,
    };
    let sink = Sink {
        ring: VecDeque::with_capacity(32),
        flushes: 0,
        calls: 0,
    };
    let limits = FitLimits {
        segments_max: 4,
        gso_segments_max: 4,
        segment_bytes_max: usize::MAX,
        memory: TxMemory::Any,
        contiguous_headers: true,
        min_packet_bytes: 60,
        mtu: Mtu::new(LinkType::Ethernet, None, None),
        headroom: 1,
        fit: Fit::Defrag,
    };
    let drops = Arc::default();
    let rx = RxQueue::new(
        source,
        arena.clone(),
        LinkType::Ethernet,
        Ingress::default(),
        Arc::default(),
        Arc::clone(&drops),
    );
    let (features, slots) = (Features::NONE, Some(32));
    let tx = TxQueue::new(
        sink,
        arena.clone(),
        features,
        limits,
        slots,
        Arc::default(),
        drops,
    );
    (rx, tx)
}

/// Receives and sends until `wire_packets` have been sent.
fn forward((rx, tx): &mut Queues, burst: &mut Burst, wire_packets: u64) {
    let mut now = 0;
    while tx.counters().wire_packets.get() < wire_packets {
        now += 1000;
        if burst.is_empty() && tx.is_ready() {
            rx.poll(Instant::from_nanos(now), burst, BURST_PACKETS_MAX)
                .expect("the source never fails");
        }
        tx.transmit(burst).expect("the sink is never removed");
    }
}

#[test]
fn a_million_packets_allocate_nothing() {
    let arena = Arena::new(ArenaConfig::default()).expect("memory for an arena");
    let mut queues = queues(&arena);
    let mut burst = Burst::new();
    forward(&mut queues, &mut burst, WARM_UP);
    let before = ALLOCATIONS.get();
    forward(&mut queues, &mut burst, WARM_UP + MEASURED);
    let allocations = ALLOCATIONS.get() - before;
    let (rx, tx) = (
        queues.0.counters().snapshot(),
        queues.1.counters().snapshot(),
    );
    // Each stage must have done work; otherwise the count proves nothing.
    for (name, count) in [
        ("pullups", rx.pullups),
        ("gso_sw_packets", tx.gso_sw_packets),
        ("csum_sw", tx.csum_sw),
        ("defrag", tx.defrag),
        ("stalls", tx.stalls),
        ("reclaims", tx.reclaims),
    ] {
        assert!(count > 1000, "{name} is only {count}");
    }
    assert_eq!(rx.bad_packets, 0);
    assert_eq!(allocations, 0);
    drop(std::hint::black_box(Vec::<u8>::with_capacity(1)));
    assert_eq!(ALLOCATIONS.get(), before + 1, "the counter counts");
}

/// Alternating flows, a long train each; every 50th packet of a flow is lost.
struct Trains {
    frame: Vec<u8>,
    arena: Option<Arena>,
    serial: u32,
}

const FLOWS: u32 = 16;
const TRAIN_PAYLOAD: u32 = 600;

impl Trains {
    fn next(&mut self) -> Option<(Packet, RxInfo)> {
        self.serial += 1;
        let (flow, mut index) = (self.serial % FLOWS, self.serial / FLOWS);
        index += index / 50;
        let frame = &mut self.frame;
        frame[18..20].copy_from_slice(&(index as u16).to_be_bytes());
        frame[24..26].fill(0);
        let sum = ipv4_header(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame[34..36].copy_from_slice(&(1000 + flow as u16).to_be_bytes());
        let sequence = index.wrapping_mul(TRAIN_PAYLOAD);
        frame[38..42].copy_from_slice(&sequence.to_be_bytes());
        let packet = self.arena.as_ref()?.packet_from(frame).ok()?;
        let info = RxInfo {
            checksum: ChecksumState::Unnecessary,
            ..RxInfo::default()
        };
        Some((packet, info))
    }
}

impl RxDescriptors for Trains {
    fn refill(&mut self, arena: &Arena) -> bool {
        if self.arena.is_none() {
            self.arena = Some(arena.clone());
        }
        true
    }

    fn receive(&mut self, _now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        while burst.budget() > 0 {
            match self.next() {
                Some((packet, info)) => burst.push(packet, &info),
                None => burst.bad(DropReason::NoBuffer, 1),
            }
        }
        Ok(())
    }

    fn arm(&mut self) -> Armed {
        Armed::WorkPending
    }
}

/// A device that accepts and completes everything at once.
struct Hole;

impl TxDescriptors for Hole {
    fn encap(&mut self, _packet: &mut TxPacket<'_>, _token: Token) -> Result<Accepted, Refused> {
        Ok(Accepted::Complete)
    }

    fn doorbells(&self) -> u64 {
        0
    }
}

/// Receives, merges and sends until `packets` have been received.
fn merge(
    rx: &mut RxQueue<Trains>,
    stage: &mut CoalesceStage,
    tx: &mut TxQueue<Hole>,
    burst: &mut Burst,
    packets: u64,
) {
    let mut now = 0;
    while rx.received() < packets {
        let last_turn = Instant::from_nanos(now);
        now += 30_000;
        stage.flush_due(Instant::from_nanos(now), last_turn);
        send(stage, tx, burst);
        rx.poll(Instant::from_nanos(now), burst, BURST_PACKETS_MAX)
            .expect("the source never fails");
        stage.take(Instant::from_nanos(now), burst, tx.features());
        if now.is_multiple_of(210_000) {
            stage.flush();
        }
        send(stage, tx, burst);
    }
}

/// Sends the finished packets.
fn send(stage: &mut CoalesceStage, tx: &mut TxQueue<Hole>, burst: &mut Burst) {
    while stage.has_output() {
        stage.deliver(burst);
        tx.transmit(burst).expect("never removed");
    }
}

#[test]
fn a_million_packets_are_merged_without_allocating() {
    for mode in [Mode::Hash, Mode::Sorted, Mode::Auto] {
        let arena = Arena::new(ArenaConfig::default()).expect("memory for an arena");
        let trains = Trains {
            frame: tcp4(TRAIN_PAYLOAD as usize),
            arena: None,
            serial: 0,
        };
        let (counters, drops) = (Arc::default(), Arc::default());
        let plan = Coalescing {
            semantics: Semantics::Reversible,
            mode,
            kinds: Features::TSO4,
            segments_max: 63,
            gro: Gro::default(),
        };
        let mut stage = CoalesceStage::new(
            &plan,
            LinkType::Ethernet,
            Arc::clone(&counters),
            Arc::clone(&drops),
        );
        let mut rx = RxQueue::new(
            trains,
            arena.clone(),
            LinkType::Ethernet,
            Ingress::default(),
            Arc::clone(&counters),
            Arc::clone(&drops),
        );
        let limits = FitLimits {
            segments_max: 64,
            gso_segments_max: 64,
            segment_bytes_max: usize::MAX,
            memory: TxMemory::Any,
            contiguous_headers: false,
            min_packet_bytes: 0,
            mtu: Mtu::new(LinkType::Ethernet, None, None),
            headroom: 1,
            fit: Fit::Defrag,
        };
        let features = Features::CSUM | Features::TSO;
        let mut tx = TxQueue::new(
            Hole,
            arena.clone(),
            features,
            limits,
            None,
            Arc::default(),
            drops,
        );
        let mut burst = Burst::new();
        merge(&mut rx, &mut stage, &mut tx, &mut burst, WARM_UP);
        let before = ALLOCATIONS.get();
        merge(&mut rx, &mut stage, &mut tx, &mut burst, WARM_UP + MEASURED);
        assert_eq!(ALLOCATIONS.get(), before, "{mode:?}");
        let counts = counters.snapshot();
        assert!(
            counts.gro_wire_packets > MEASURED / 4 * 3,
            "{mode:?}: {counts:?}"
        );
        assert_eq!((counts.bad_packets, counts.csum_bad), (0, 0));
        let sent = tx.counters().snapshot().wire_packets;
        assert_eq!(counts.wire_packets, sent + stage.held());
    }
}

/// The workers of a session from an endless source to a device whose ring is full at times.
/// `senders` threads of the application send to the device, too.
fn session(dispatch: Dispatch, senders: usize) -> (Session, Vec<Worker>) {
    let [source, sim] =
        ["null:source", "sim:rings=40"].map(|spec| port::open(spec).expect("a port"));
    let settings = Settings {
        dispatch,
        ..Settings::default()
    };
    let builder = Session::between(source, sim).settings(settings);
    let builder = builder.senders(1, senders);
    let assembled = builder.assemble(Arc::new(runtime::System::new()));
    assembled.expect("a session")
}

/// One step of each worker, and of the clock.
fn step(workers: &mut [Worker], now: &mut u64) {
    *now += 10_000;
    for worker in workers {
        let action = worker.run(Instant::from_nanos(*now));
        assert!(!matches!(action, Ok(Action::Done) | Err(_)), "{action:?}");
    }
}

/// A lane forwards into a queue of its own.
#[test]
fn packets_go_an_owned_path_without_allocating() {
    let (session, mut workers) = session(Dispatch::Adaptive, 0);
    assert_eq!(session.plan().paths[1].kind, PathKind::Owned);
    let mut now = 0;
    let mut run = |steps: u64| (0..steps).for_each(|_| step(&mut workers, &mut now));
    run(WARM_UP / 10);
    let before = ALLOCATIONS.get();
    run(MEASURED / 50);
    assert_eq!(ALLOCATIONS.get(), before);
    let seen = session.snapshot();
    let tx = &seen.ports[1].tx[0];
    assert!(seen.ledger.closed(), "{:?}", seen.ledger);
    assert!(tx.packets > MEASURED / 4 && tx.stalls > 100, "{tx:?}");
}

/// A lane forwards and a thread of the application sends, both into one queue.
#[test]
fn packets_go_a_shared_path_without_allocating() {
    for dispatch in [
        Dispatch::Direct,
        Dispatch::Deferred,
        Dispatch::Abdicate,
        Dispatch::Threshold(8),
        Dispatch::Adaptive,
    ] {
        let (session, mut workers) = session(dispatch, 1);
        assert_eq!(session.plan().paths[1].kind, PathKind::Shared);
        let mut handle = session.handle(1, 0).expect("a handle");
        let frame = tcp4(100);
        let (mut burst, mut now) = (Burst::new(), 0);
        let mut run = |steps: u64| {
            for turn in 0..steps as usize {
                // The lane pauses in every other step, since it alone would keep the device busy.
                step(&mut workers[turn % 2..], &mut now);
                while burst.room() > turn % BURST_PACKETS_MAX {
                    match handle.arena().packet_from(&frame) {
                        Ok(packet) => burst.push(packet).expect("there is room"),
                        Err(_no_buffer) => break,
                    }
                }
                match handle.try_send(&mut burst) {
                    Ok(_) | Err(TrySendError::Full { .. }) => {}
                    Err(TrySendError::Closed) => unreachable!("the session goes on"),
                }
            }
        };
        run(WARM_UP / 10);
        let before = ALLOCATIONS.get();
        run(MEASURED / 50);
        assert_eq!(ALLOCATIONS.get(), before, "{dispatch}");
        let seen = session.snapshot();
        let tx = &seen.ports[1].tx[0];
        assert!(seen.ledger.generated > MEASURED / 100, "{dispatch}: {tx:?}");
        assert!(seen.ledger.received > MEASURED / 100, "{dispatch}: {tx:?}");
        assert!(seen.ledger.closed(), "{dispatch}: {:?}", seen.ledger);
        assert!(
            tx.direct + tx.deferred > 1000 && tx.stalls > 100,
            "{dispatch}: {tx:?}"
        );
    }
}

/// A bridge floods: each packet is for two devices, whose rings are full at times.
#[test]
fn packets_go_to_several_ports_without_allocating() {
    for dispatch in [Dispatch::Direct, Dispatch::Deferred, Dispatch::Adaptive] {
        let ports = ["null:source", "sim:rings=40", "sim:rings=40"];
        let ports = ports.map(|spec| port::open(spec).expect("a port"));
        let settings = Settings {
            dispatch,
            ..Settings::default()
        };
        let bridge = Bridge::new(Addresses::new(100, AGING));
        let builder = Session::among(ports).handler(move |_| bridge.clone());
        let builder = builder.settings(settings);
        let assembled = builder.assemble(Arc::new(runtime::System::new()));
        let (session, mut workers) = assembled.expect("a session");
        let mut now = 0;
        let mut run = |steps: u64| (0..steps).for_each(|_| step(&mut workers, &mut now));
        run(WARM_UP / 10);
        let before = ALLOCATIONS.get();
        run(MEASURED / 50);
        assert_eq!(ALLOCATIONS.get(), before, "{dispatch}");
        let seen = session.snapshot();
        assert!(seen.ledger.closed(), "{dispatch}: {:?}", seen.ledger);
        for port in &seen.ports[1..] {
            let tx = &port.tx[0];
            let sent = tx.packets > MEASURED / 100 && tx.stalls > 100;
            assert!(sent, "{dispatch}: {tx:?}");
        }
        assert!(seen.ledger.expanded > MEASURED / 100, "{dispatch}");
    }
}

/// A sender that sleeps until there is space does not allocate after its first sleep.
#[test]
fn a_sender_waits_for_space_without_allocating() {
    // The workers never run.
    let (session, _workers) = session(Dispatch::Deferred, 1);
    let mut handle = session.handle(1, 0).expect("a handle");
    let mut burst = Burst::new();
    loop {
        let packet = handle.arena().packet_from(&tcp4(100));
        burst
            .push(packet.expect("a buffer"))
            .expect("there is room");
        if handle.try_send(&mut burst).is_err() {
            break;
        }
    }
    let mut wait = || {
        let timed_out = handle.send_blocking(&mut burst, Duration::from_micros(100));
        assert_eq!(timed_out, Err(SendError::TimedOut { accepted: 0 }));
        assert!(
            handle
                .poll_ready(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
    };
    wait();
    let before = ALLOCATIONS.get();
    (0..20).for_each(|_| wait());
    assert_eq!(ALLOCATIONS.get(), before);
}
