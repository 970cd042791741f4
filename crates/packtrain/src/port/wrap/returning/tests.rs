//! A device that is unplugged and plugged in again, under packets of an application.

use super::*;
use crate::driver::{
    Accepted, Armed, ChangeKind, ChangeLog, Changes, Completed, Features, Refused, Reset, RxBurst,
    RxDescriptors, Token, TxDescriptors, TxPacket,
};
use crate::engine::{Report, Session, TxHandle};
use crate::packet::Burst;
use crate::port::wrap::lock;
use crate::stats::DropReason;
use crate::time::Instant;
use packtrain_offload::offload::ChecksumState;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread::{scope, sleep};
use std::time::{self, Duration};

const TIMEOUT: Duration = Duration::from_secs(60);
const RING: usize = 64;
/// The places of a packet's number, and of its checksum.
const NUMBER: usize = 20;
const CHECKSUM: usize = 40;

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let end = time::Instant::now() + TIMEOUT;
    while !done() {
        assert!(time::Instant::now() < end, "no {what}");
        sleep(Duration::from_millis(1));
    }
}

/// The place where devices are plugged in.
#[derive(Default)]
struct Bay {
    plugged: AtomicBool,
    /// Devices so far, and how many of them were removed.
    made: AtomicUsize,
    removed: AtomicUsize,
    /// The device completes no packet.
    holds: AtomicBool,
    in_device: AtomicUsize,
    sent: Mutex<Vec<u32>>,
    /// The next device has these.
    lacks: Mutex<Features>,
    segments_max: AtomicUsize,
    /// Each device is removed as soon as there is one.
    dies: AtomicBool,
    /// To open a device panics.
    panics: AtomicBool,
    /// Its interface.
    index: AtomicUsize,
    note: Mutex<Option<&'static str>>,
    /// Packets in either direction so far, in the counters of each device.
    counted: AtomicUsize,
    /// The number of a device, and the delay that it was asked for.
    delays: Mutex<Vec<(usize, Duration)>>,
    /// No buffer is free.
    starved: AtomicBool,
    /// Halves that are not closed.
    halves: AtomicUsize,
}

impl Bay {
    fn new() -> Arc<Self> {
        let bay = Self::default();
        bay.plugged.store(true, Ordering::SeqCst);
        bay.segments_max.store(4, Ordering::SeqCst);
        Arc::new(bay)
    }

    fn device(self: &Arc<Self>) -> Result<Card, DeviceError> {
        if !self.plugged.load(Ordering::SeqCst) {
            return Err(DeviceError::Removed);
        }
        assert!(!self.panics.load(Ordering::SeqCst), "as the test says");
        let number = self.made.fetch_add(1, Ordering::SeqCst);
        if self.dies.load(Ordering::SeqCst) {
            self.removed.store(number + 1, Ordering::SeqCst);
        }
        Ok(Card(Arc::clone(self), number))
    }

    fn port(self: &Arc<Self>) -> Returning<Card> {
        let bay = Arc::clone(self);
        Returning::new(self.device().expect("it is there"), move || bay.device())
    }

    fn unplug(&self) {
        self.plugged.store(false, Ordering::SeqCst);
        let made = self.made.load(Ordering::SeqCst);
        self.removed.store(made, Ordering::SeqCst);
    }

    fn plug(&self) {
        self.plugged.store(true, Ordering::SeqCst);
    }

    fn is_removed(&self, number: usize) -> bool {
        self.removed.load(Ordering::SeqCst) > number
    }

    fn sent(&self) -> MutexGuard<'_, Vec<u32>> {
        lock(&self.sent)
    }
}

struct Card(Arc<Bay>, usize);

struct Half {
    bay: Arc<Bay>,
    number: usize,
    next_at: Instant,
    ring: VecDeque<(Token, u32)>,
    lacks: Features,
}

impl Driver for Card {
    type Rx = Half;
    type Tx = Half;

    fn name(&self) -> &'static str {
        "card"
    }

    fn capabilities(&self) -> Capabilities {
        let lacks = *lock(&self.0.lacks);
        Capabilities {
            tx: Features::CSUM.without(lacks),
            tx_ring: Some(RING),
            notes: lock(&self.0.note).iter().map(ToString::to_string).collect(),
            tx_segments_max: self.0.segments_max.load(Ordering::SeqCst),
            ..Capabilities::default()
        }
    }

    fn attach(&mut self, how: &Attach, _: &Arena) -> Result<Vec<QueuePair<Self>>, DeviceError> {
        let half = || {
            self.0.halves.fetch_add(1, Ordering::SeqCst);
            Half {
                bay: Arc::clone(&self.0),
                number: self.1,
                next_at: Instant::default(),
                ring: VecDeque::new(),
                lacks: *lock(&self.0.lacks),
            }
        };
        Ok((0..how.queues).map(|_| (half(), half())).collect())
    }

    fn interface(&self) -> Option<Interface> {
        Some(Interface {
            name: "card".into(),
            index: Some(self.0.index.load(Ordering::SeqCst) as u32),
            namespace: None,
        })
    }

    fn link(&mut self) -> Link {
        match self.0.is_removed(self.1) {
            true => Link::Removed,
            false => Link::Up,
        }
    }

    fn device_counters(&mut self) -> Option<DeviceCounters> {
        Some(DeviceCounters {
            rx_packets: self.0.counted.load(Ordering::SeqCst) as u64,
            ..DeviceCounters::default()
        })
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        self.bay.halves.fetch_sub(1, Ordering::SeqCst);
    }
}

impl RxDescriptors for Half {
    fn refill(&mut self, _: &Arena) -> bool {
        !self.bay.starved.load(Ordering::SeqCst)
    }

    fn receive(&mut self, now: Instant, _: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        self.next_at = now.after(Duration::from_millis(1));
        match self.bay.is_removed(self.number) {
            true => Err(DeviceError::Removed),
            false => Ok(()),
        }
    }

    fn moderate(&mut self, delay: Duration) -> bool {
        lock(&self.bay.delays).push((self.number, delay));
        true
    }

    fn arm(&mut self) -> Armed {
        match self.bay.starved.load(Ordering::SeqCst) {
            true => Armed::WorkPending,
            false => Armed::Idle,
        }
    }

    fn next_at(&self) -> Option<Instant> {
        Some(self.next_at)
    }
}

impl TxDescriptors for Half {
    fn encap(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<Accepted, Refused> {
        if self.bay.is_removed(self.number) {
            return Err(Refused::Removed);
        }
        if self.ring.len() == RING {
            return Err(Refused::NoDescriptor);
        }
        let packet = packet.packet();
        let partial = matches!(packet.meta().checksum, ChecksumState::Partial { .. });
        assert!(self.lacks.is_empty() || !partial, "it cannot do that");
        self.bay.counted.fetch_add(1, Ordering::SeqCst);
        let bytes = &packet.first()[NUMBER..NUMBER + 4];
        let number = u32::from_ne_bytes(bytes.try_into().expect("four bytes"));
        self.ring.push_back((token, number));
        self.bay.in_device.store(self.ring.len(), Ordering::SeqCst);
        Ok(Accepted::Pending)
    }

    fn reclaim(&mut self, _: Instant, completed: &mut Completed) {
        if self.bay.is_removed(self.number) {
            return completed.fail(DeviceError::Removed);
        }
        if !self.bay.holds.load(Ordering::SeqCst) {
            for (token, number) in self.ring.drain(..) {
                assert!(completed.push(token));
                self.bay.sent().push(number);
            }
        }
    }

    fn reset(&mut self, _: &mut Completed, unsent: &mut Completed) -> Result<Reset, DeviceError> {
        // Of the first two it is not known.
        for (token, _) in self.ring.drain(..).skip(2) {
            assert!(unsent.push(token));
        }
        Ok(Reset::Done)
    }

    fn doorbells(&self) -> u64 {
        1
    }
}

/// Sends numbered packets until `over`. Returns their number.
fn send_numbers(mut handle: TxHandle, arena: &Arena, over: &AtomicBool, partial: bool) -> u64 {
    let mut number = 0_u32;
    while !over.load(Ordering::SeqCst) {
        let mut bytes = [0_u8; 60];
        bytes[NUMBER..NUMBER + 4].copy_from_slice(&number.to_ne_bytes());
        let mut packet = arena.packet_from(&bytes).expect("a buffer");
        if partial {
            packet.meta_mut().checksum = ChecksumState::Partial {
                start: 30,
                offset: (CHECKSUM - 30) as u16,
            };
        }
        let mut burst = Burst::new();
        burst.push(packet).expect("it is empty");
        handle.send_blocking(&mut burst, TIMEOUT).expect("space");
        number += 1;
        if number.is_multiple_of(16) {
            sleep(Duration::from_micros(200));
        }
    }
    u64::from(number)
}

fn start(port: Returning<Card>) -> Session {
    let session = Session::on(port).senders(0, 1).start();
    session.expect("it starts")
}

/// Runs `meanwhile` while an application sends, and checks that each packet is accounted for and
/// that those that were sent are in order.
fn under_load(bay: &Arc<Bay>, partial: bool, meanwhile: impl FnOnce(&mut Session)) -> Report {
    let mut session = start(bay.port());
    let over = AtomicBool::new(false);
    let (handle, arena) = (
        session.handle(0, 0).expect("a queue"),
        session.arena().clone(),
    );
    let numbers = scope(|scope| {
        let sender = scope.spawn(|| send_numbers(handle, &arena, &over, partial));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            meanwhile(&mut session);
        }));
        over.store(true, Ordering::SeqCst);
        let numbers = sender.join().expect("no panic");
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        numbers
    });
    drop(arena);
    let report = session.finish();
    assert!(report.error.is_none(), "{:?}", report.error);
    let ledger = &report.snapshot.ledger;
    assert!(ledger.closed() && ledger.held == 0, "{ledger:?}");
    assert_eq!(ledger.generated, numbers);
    let sent = bay.sent();
    assert_eq!(ledger.transmitted, sent.len() as u64);
    assert!(sent.is_sorted(), "order is kept");
    drop(sent);
    report
}

fn kinds(report: &Report) -> Vec<&'static str> {
    let changes = report.snapshot.changes.last.iter();
    changes.map(|change| change.kind.name()).collect()
}

#[test]
fn a_device_goes_and_comes_back_twenty_times() {
    let bay = Bay::new();
    let report = under_load(&bay, false, |session| {
        for _ in 0..20 {
            let before = bay.sent().len();
            wait_for("packet sent", || bay.sent().len() > before);
            bay.holds.store(true, Ordering::SeqCst);
            wait_for("packet in the device", || {
                bay.in_device.load(Ordering::SeqCst) > 4
            });
            let lost = |session: &Session| session.snapshot().drops.get(DropReason::LinkDown);
            let dropped = lost(session);
            bay.unplug();
            wait_for("absence", || session.links() == [Link::Down]);
            wait_for("packet without a link", || lost(session) > dropped);
            bay.holds.store(false, Ordering::SeqCst);
            bay.plug();
            wait_for("device", || session.links() == [Link::Up]);
        }
        let before = bay.sent().len();
        wait_for("packet sent", || bay.sent().len() > before);
    });
    assert_eq!(bay.made.load(Ordering::SeqCst), 21);
    assert_eq!(report.snapshot.changes.count, 40);
    assert_eq!(kinds(&report), ["gone", "back"].repeat(20));
    let drops = &report.snapshot.drops;
    assert!(drops.get(DropReason::DeviceReset) >= 20, "{drops:?}");
    let both = drops.get(DropReason::DeviceReset) + drops.get(DropReason::LinkDown);
    assert_eq!(drops.total(), both, "{drops:?}");
    // What the interface had counted before a device was opened is not that device's. What one
    // counted after it was asked last is missing.
    let counted = report.devices[0].expect("counters").rx_packets;
    let all = bay.counted.load(Ordering::SeqCst) as u64;
    assert!((1..=all).contains(&counted), "{counted} of {all}");
}

/// Packets whose checksums are left to the device go to one that completes none at first, then to
/// one that completes those of one IP version, which does not help them, then to one that completes
/// all, and to one that completes none. The device checks what it is given.
#[test]
fn the_queue_of_a_device_that_is_back_is_planned_anew_for_its_offloads() {
    let bay = Bay::new();
    *lock(&bay.lacks) = Features::CSUM;
    let report = under_load(&bay, true, |session| {
        let in_software = |session: &Session| {
            let software = || session.snapshot().ports[0].tx[0].csum_sw;
            let (before, sent) = (software(), bay.sent().len());
            wait_for("packet sent", || bay.sent().len() > sent + 10);
            software() > before
        };
        assert!(in_software(session));
        for (lacks, software) in [
            (Features::CSUM6, true),
            (Features::NONE, false),
            (Features::CSUM, true),
        ] {
            bay.unplug();
            wait_for("absence", || session.links() == [Link::Down]);
            *lock(&bay.lacks) = lacks;
            *lock(&bay.note) = (!software).then_some("it is slow");
            bay.plug();
            wait_for("device", || session.links() == [Link::Up]);
            wait_for("packet of the new plan", || {
                in_software(session) == software
            });
            assert_eq!(session.snapshot().ports[0].refused, Features::NONE);
        }
    });
    assert_eq!(kinds(&report), ["gone", "back"].repeat(3));
    let changes = report.snapshot.changes.last.iter().skip(1).step_by(2);
    let lines: Vec<_> = changes.map(ToString::to_string).collect();
    let expected = [
        "the device is back; it does ipv4-checksum from now on",
        "the device is back; it is slow; it does ipv6-checksum from now on",
        "the device is back; packtrain does ipv4-checksum, ipv6-checksum in software from now on",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn a_device_that_the_plan_does_not_fit_is_not_taken_and_the_reason_is_said_once() {
    let bay = Bay::new();
    let report = under_load(&bay, false, |session| {
        bay.unplug();
        wait_for("absence", || session.links() == [Link::Down]);
        bay.segments_max.store(3, Ordering::SeqCst);
        bay.plug();
        let made = bay.made.load(Ordering::SeqCst);
        wait_for("second attempt", || {
            bay.made.load(Ordering::SeqCst) > made + 1
        });
        assert_eq!(session.links(), [Link::Down]);
        bay.segments_max.store(4, Ordering::SeqCst);
        wait_for("device", || session.links() == [Link::Up]);
    });
    assert_eq!(kinds(&report), ["gone", "gone", "back"]);
    let why = &report.snapshot.changes.last[1].why;
    assert!(why.contains("segments of a packet"), "{why}");
    let kind = report.snapshot.changes.last[1].kind;
    assert_eq!(kind, ChangeKind::Gone);
}

#[test]
fn a_run_whose_port_is_away_ends_at_once() {
    let bay = Bay::new();
    let mut session = start(bay.port());
    bay.holds.store(true, Ordering::SeqCst);
    let over = AtomicBool::new(false);
    let (handle, arena) = (
        session.handle(0, 0).expect("a queue"),
        session.arena().clone(),
    );
    let sent = scope(|scope| {
        let sender = scope.spawn(|| send_numbers(handle, &arena, &over, false));
        wait_for("packet in the device", || {
            bay.in_device.load(Ordering::SeqCst) > 4
        });
        bay.unplug();
        over.store(true, Ordering::SeqCst);
        sender.join().expect("no panic")
    });
    wait_for("absence", || session.links() == [Link::Down]);
    // The thread records it.
    wait_for("record", || session.snapshot().changes.count == 1);
    let report = session.finish();
    let ledger = &report.snapshot.ledger;
    assert!(ledger.closed() && ledger.held == 0, "{ledger:?}");
    assert_eq!((ledger.generated, ledger.transmitted), (sent, 0));
    // A run that waits for its device drops the rest at the end of that time.
    assert_eq!(report.snapshot.drops.get(DropReason::Shutdown), 0);
    assert_eq!(kinds(&report), ["gone"]);
}

/// The RX worker has the TX queue: no ring, no TX worker.
#[test]
fn an_owned_queue_follows_its_device_too() {
    let bay = Bay::new();
    let source = crate::port::open("null:source,bytes=60").expect("in memory");
    let mut session = Session::between(source, bay.port())
        .start()
        .expect("it starts");
    for _ in 0..3 {
        let before = bay.sent().len();
        wait_for("packet sent", || bay.sent().len() > before);
        bay.unplug();
        wait_for("absence", || session.links()[1] == Link::Down);
        bay.plug();
        wait_for("device", || session.links()[1] == Link::Up);
    }
    let before = bay.sent().len();
    wait_for("packet sent", || bay.sent().len() > before);
    let report = session.finish();
    assert!(report.error.is_none(), "{:?}", report.error);
    let ledger = &report.snapshot.ledger;
    assert!(ledger.closed() && ledger.held == 0, "{ledger:?}");
    assert_eq!(ledger.transmitted, bay.sent().len() as u64);
    assert_eq!(kinds(&report), ["gone", "back"].repeat(3));
}

/// A port without a session, and its log, of which it is port 0.
fn alone(
    bay: &Arc<Bay>,
) -> (
    Returning<Card>,
    Vec<QueuePair<Returning<Card>>>,
    Arc<ChangeLog>,
) {
    let log = Arc::new(ChangeLog::new(Instant::default));
    let mut port = bay.port();
    let changes = PortChanges::new(Arc::clone(&log), 0);
    assert!(changes.claim(port.interface()));
    port.record_changes(changes);
    let arena = Arena::new(crate::packet::ArenaConfig::small()).expect("memory");
    let queues = port.attach(&Attach::default(), &arena).expect("one queue");
    (port, queues, log)
}

fn names(changes: &Changes) -> Vec<&'static str> {
    let changes = changes.last.iter();
    changes.map(|change| change.kind.name()).collect()
}

#[test]
fn halves_that_no_queue_took_are_closed_with_their_device() {
    let bay = Bay::new();
    let (mut port, queues, _log) = alone(&bay);
    let halves = || bay.halves.load(Ordering::SeqCst);
    for _ in 0..3 {
        bay.unplug();
        wait_for("absence", || port.link() == Link::Down);
        wait_for("close", || halves() == 2);
        bay.plug();
        wait_for("device", || port.link() == Link::Up);
        assert_eq!(halves(), 4, "those of the first device, and new ones");
    }
    drop((queues, port));
    assert_eq!(halves(), 0);
}

#[test]
fn a_device_that_goes_at_once_is_opened_ten_times_a_second() {
    let bay = Bay::new();
    let (mut port, _queues, log) = alone(&bay);
    bay.dies.store(true, Ordering::SeqCst);
    bay.removed.store(1, Ordering::SeqCst);
    let began = time::Instant::now();
    let mut opened = 0;
    wait_for("fifth attempt", || {
        assert_eq!(port.link(), Link::Down);
        opened = bay.made.load(Ordering::SeqCst) - 1;
        opened >= 5
    });
    let most = 1 + (began.elapsed().as_millis() / 100) as usize;
    assert!(opened <= most, "{opened} of {most}");
    let changes = names(&log.snapshot());
    assert_eq!(changes[..4], ["gone", "back", "gone", "back"]);
}

#[test]
fn an_attempt_that_panics_is_recorded_and_another_one_is_made() {
    let bay = Bay::new();
    let (mut port, _queues, log) = alone(&bay);
    bay.panics.store(true, Ordering::SeqCst);
    bay.removed.store(1, Ordering::SeqCst);
    assert_eq!(port.link(), Link::Down);
    wait_for("panic", || log.snapshot().count == 2);
    bay.panics.store(false, Ordering::SeqCst);
    wait_for("device", || port.link() == Link::Up);
    let changes = log.snapshot();
    assert_eq!(names(&changes), ["gone", "gone", "back"]);
    let why = &changes.last[1].why;
    assert!(why.ends_with("the attempt panicked"), "{why}");
}

#[test]
fn an_interface_that_another_port_has_by_then_is_not_taken() {
    let bay = Bay::new();
    let (mut port, _queues, log) = alone(&bay);
    let other = PortChanges::new(Arc::clone(&log), 1);
    assert!(!other.claim(port.interface()));
    bay.unplug();
    assert_eq!(port.link(), Link::Down);
    bay.index.store(1, Ordering::SeqCst);
    assert!(
        other.claim(Card(Arc::clone(&bay), 0).interface()),
        "renamed"
    );
    bay.plug();
    wait_for("refusal", || log.snapshot().count == 2);
    assert_eq!(port.link(), Link::Down);
    let why = log.snapshot().last[1].why.to_string();
    assert!(why.contains("the interface of another port"), "{why}");
    bay.index.store(2, Ordering::SeqCst);
    wait_for("device", || port.link() == Link::Up);
    assert_eq!(names(&log.snapshot()), ["gone", "gone", "back"]);
    assert!(
        !other.claim(port.interface()),
        "it is that of this port now"
    );
}

#[test]
fn a_device_is_asked_for_its_counters_while_a_worker_gives_it_up() {
    let bay = Bay::new();
    let (port, mut queues, _log) = alone(&bay);
    // The thread that asks the kernel.
    let asking = port.shared.device();
    bay.unplug();
    let (rx, _tx) = &mut queues[0];
    let mut burst = Burst::new();
    let mut bad = Bad;
    let mut burst = RxBurst::new(&mut burst, 64, &mut bad);
    for _ in 0..2 {
        let received = rx.receive(Instant::default(), &mut burst);
        received.expect("a device that went is no failure");
    }
    assert!(is_away(port.shared.life()));
    drop(asking);
}

#[derive(Debug)]
struct Bad;

impl crate::driver::BadPackets for Bad {
    fn bad(&mut self, reason: DropReason, _: u64) {
        panic!("{reason:?}");
    }
}

#[test]
fn a_device_without_buffers_is_polled_each_millisecond_and_not_armed() {
    let bay = Bay::new();
    let (mut port, mut queues, _log) = alone(&bay);
    let (rx, _tx) = &mut queues[0];
    let (mut packets, mut bad) = (Burst::new(), Bad);
    let mut receive = |rx: &mut ReturningRx<Card>, now| {
        let mut burst = RxBurst::new(&mut packets, 64, &mut bad);
        rx.receive(now, &mut burst).expect("it is there, or away");
    };
    let delays = [1, 2].map(Duration::from_micros);
    assert!(rx.moderate(delays[0]));
    bay.starved.store(true, Ordering::SeqCst);
    bay.unplug();
    assert_eq!(port.link(), Link::Down);
    receive(rx, Instant::default());
    // The next one is asked for the delay, too.
    assert!(rx.moderate(delays[1]));
    bay.plug();
    wait_for("device", || port.link() == Link::Up);
    let mut now = Instant::from_nanos(7);
    for _ in 0..3 {
        receive(rx, now);
        assert_eq!((rx.arm(), rx.arm_for(4)), (Armed::Idle, Some(Armed::Idle)));
        assert!(rx.wake().is_none());
        now = now.after(Duration::from_millis(1));
        assert_eq!(rx.next_at(), Some(now));
    }
    assert_eq!(*lock(&bay.delays), [(0, delays[0]), (1, delays[1])]);
    bay.starved.store(false, Ordering::SeqCst);
    receive(rx, now);
    // Half leaves this to its device.
    assert_eq!(rx.arm_for(4), None);
}
