//! Devices in memory whose every answer a test decides, and two of them joined.

use crate::driver::PortConfig;
use crate::driver::{
    Accepted, Armed, Attach, Capabilities, Completed, DeviceError, Driver, Features, Input,
    Interest, QueuePair, Refused, Reset, RxBurst, RxDescriptors, RxInfo, Token, TxDescriptors,
    TxPacket,
};
use crate::engine::Settings;
use crate::engine::{
    Handler, Intake, Joined, PortSnapshot, Snapshot, Stats, TxHandles, Workers, join_with,
};
use crate::limits::{BURST_PACKETS_MAX, SEGMENTS_MAX};
use crate::packet::{Arena, ArenaConfig, Packet};
use crate::plan::{Plan, Side, plan};
use crate::policy::dispatch::Dispatch;
use crate::stats::DropReason;
use crate::test_packets::{Segment, tcp4};
use crate::time::Instant;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard};

/// Something that arrives at a fake RX queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A packet with this number.
    Packet(u32),
    /// A TCP segment.
    Tcp(Segment),
    /// A packet that was received in error.
    Bad,
}

/// What a fake RX queue is about to say, and what it was asked.
#[derive(Debug, Default)]
pub struct RxState {
    pub items: VecDeque<Item>,
    /// Said once all items are taken.
    pub end: Option<End>,
    pub next_at: Option<Instant>,
    /// It lacks buffers.
    pub short: bool,
    pub polls: u64,
    pub arms: u64,
    /// It can tell how many packets wait.
    pub counts: bool,
    /// How many packets it was last asked to wait for.
    pub armed_for: Option<usize>,
    /// The flow hash that it gives a segment; none else.
    pub hash: Option<fn(&Segment) -> u32>,
}

/// How a fake RX queue ends.
#[derive(Clone, Copy, Debug)]
pub enum End {
    Finished,
    Failed,
    Panic,
}

/// What a fake TX queue takes, and what it took.
#[derive(Debug, Default)]
pub struct TxState {
    /// Packets that it takes before it has no descriptor.
    pub room: usize,
    /// Accepted packets stay with the device until `complete` allows it to report them.
    pub keeps: bool,
    pub complete: usize,
    /// It can wake who sleeps for a number of completions, and for how many it was asked to.
    pub counts: bool,
    pub armed_for: Option<usize>,
    pub kept: VecDeque<Token>,
    pub removed: bool,
    /// The system has no memory for a packet.
    pub no_memory: bool,
    pub sent: Vec<u32>,
    /// TCP packets, in order: source port, sequence number, payload, wire packets.
    pub tcp: Vec<(u16, u32, Vec<u8>, u16)>,
    /// A feature that it refuses though it was promised.
    pub refuses: Features,
    pub asked: u64,
    /// A reset finds that it has sent nothing of what it keeps; else it cannot be reset.
    pub forgets: bool,
    pub resets: u64,
    /// It reports nothing and wakes nobody until it is reset.
    pub hung: bool,
    pub link_down: bool,
    /// Packets refused while the link was down.
    pub refused: Vec<u32>,
    /// Packets that it took and was not told of: those since its doorbell was rung.
    pub untold: usize,
    /// Of how many packets each ring of its doorbell told it.
    pub rings: Vec<usize>,
    /// Who asks it next for what it has completed has to wait.
    pub gate: Option<Gate>,
}

/// Holds up a thread: says that it came, and lets it go on when it is told to.
#[derive(Debug)]
pub struct Gate {
    pub came: Sender<()>,
    pub go_on: Receiver<()>,
}

/// One queue of a fake device, from the test's side.
#[derive(Clone, Debug)]
pub struct Queue {
    rx: Arc<Mutex<RxState>>,
    tx: Arc<Mutex<TxState>>,
    /// Written to wake whoever waits for the TX queue.
    tx_bell: Arc<Mutex<UnixStream>>,
    /// Written to wake whoever waits for the RX queue; dropped to hang up.
    bell: Arc<Mutex<Option<UnixStream>>>,
}

impl Queue {
    pub fn rx(&self) -> MutexGuard<'_, RxState> {
        self.rx.lock().unwrap()
    }

    pub fn tx(&self) -> MutexGuard<'_, TxState> {
        self.tx.lock().unwrap()
    }

    /// Packets arrive, and the device says so.
    pub fn arrive(&self, numbers: impl IntoIterator<Item = u32>) {
        let items = numbers.into_iter().map(Item::Packet);
        self.rx().items.extend(items);
        if let Some(bell) = &mut *self.bell.lock().unwrap() {
            bell.write_all(&[1]).unwrap();
        }
    }

    /// There is room for so many more packets, and the device says so.
    pub fn make_room(&self, packets: usize) {
        let mut tx = self.tx();
        tx.room = tx.room.saturating_add(packets);
        drop(tx);
        // Full of bytes that nobody has read yet it is readable as well.
        match self.tx_bell.lock().unwrap().write_all(&[1]) {
            Ok(()) => {}
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    }

    /// TCP segments arrive, and the device says so.
    pub fn arrive_tcp(&self, segments: impl IntoIterator<Item = Segment>) {
        self.rx().items.extend(segments.into_iter().map(Item::Tcp));
        self.arrive([]);
    }

    /// How often the RX queue was polled and armed.
    pub fn asked(&self) -> (u64, u64) {
        let rx = self.rx();
        (rx.polls, rx.arms)
    }

    /// Who can reach the RX queue: the test, and the device while there is one.
    pub fn owners(&self) -> usize {
        Arc::strong_count(&self.rx)
    }

    pub fn hang_up(&self) {
        *self.bell.lock().unwrap() = None;
    }
}

#[derive(Debug)]
pub struct FakeRx {
    state: Arc<Mutex<RxState>>,
    bell: UnixStream,
    arena: Option<Arena>,
}

impl FakeRx {
    fn packet(&self, number: u32) -> Option<Packet> {
        let mut bytes = [0u8; 60];
        bytes[12..14].copy_from_slice(&0x88b5u16.to_be_bytes());
        bytes[14..18].copy_from_slice(&number.to_be_bytes());
        let arena = self.arena.as_ref().expect("refilled before receiving");
        arena.packet_from(&bytes).ok()
    }
}

impl RxDescriptors for FakeRx {
    fn refill(&mut self, arena: &Arena) -> bool {
        self.arena = Some(arena.clone());
        !self.state.lock().unwrap().short
    }

    fn receive(&mut self, _now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        let mut rung = [0; 64];
        match self.bell.read(&mut rung) {
            Ok(0) => return Err(DeviceError::Removed),
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
        let mut state = self.state.lock().unwrap();
        state.polls += 1;
        while burst.budget() > 0 {
            match state.items.pop_front() {
                Some(Item::Packet(number)) => match self.packet(number) {
                    Some(packet) => burst.push(packet, &RxInfo::default()),
                    None => {
                        // Producers have all the buffers: it waits in the device.
                        state.items.push_front(Item::Packet(number));
                        break;
                    }
                },
                Some(Item::Tcp(segment)) => {
                    let arena = self.arena.as_ref().expect("refilled before receiving");
                    match arena.packet_from(&tcp4(&segment)) {
                        Ok(packet) => {
                            let info = RxInfo {
                                flow_hash: state.hash.map_or(0, |hash| hash(&segment)),
                                ..RxInfo::default()
                            };
                            burst.push(packet, &info);
                        }
                        Err(_empty) => burst.bad(DropReason::NoBuffer, 1),
                    }
                }
                Some(Item::Bad) => burst.bad(DropReason::BadDescriptor, 1),
                None => break,
            }
        }
        match state.end {
            Some(end) if state.items.is_empty() => match end {
                End::Finished => Err(DeviceError::Finished),
                End::Failed => Err(DeviceError::Failed {
                    action: "read",
                    source: io::Error::other("test"),
                }),
                End::Panic => {
                    drop(state);
                    panic!("as the test asked")
                }
            },
            _ => Ok(()),
        }
    }

    fn arm(&mut self) -> Armed {
        let mut state = self.state.lock().unwrap();
        state.arms += 1;
        if state.items.is_empty() && state.end.is_none() {
            Armed::Idle
        } else {
            Armed::WorkPending
        }
    }

    fn arm_for(&mut self, packets: usize) -> Option<Armed> {
        let mut state = self.state.lock().unwrap();
        if !state.counts {
            return None;
        }
        state.armed_for = Some(packets);
        Some(if state.items.len() >= packets {
            Armed::WorkPending
        } else {
            Armed::Idle
        })
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        Some((self.bell.as_fd(), Interest::Read))
    }

    fn next_at(&self) -> Option<Instant> {
        self.state.lock().unwrap().next_at
    }
}

#[derive(Debug)]
pub struct FakeTx {
    state: Arc<Mutex<TxState>>,
    /// Becomes readable when the test says that there is room.
    bell: UnixStream,
}

impl TxDescriptors for FakeTx {
    fn encap(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<Accepted, Refused> {
        let mut state = self.state.lock().unwrap();
        state.asked += 1;
        if state.removed {
            return Err(Refused::Removed);
        }
        if state.no_memory {
            return Err(Refused::NoMemory);
        }
        if state.room == 0 {
            return Err(Refused::NoDescriptor);
        }
        let packet = packet.packet();
        if state.link_down {
            let number = packet.first()[14..18].try_into().unwrap();
            state.refused.push(u32::from_be_bytes(number));
            return Err(Refused::LinkDown);
        }
        let refused = Features::needed_by(packet.meta()).intersection(state.refuses);
        if !refused.is_empty() {
            return Err(Refused::Feature(refused));
        }
        state.room -= 1;
        state.untold += 1;
        let bytes = packet.first();
        if bytes[12..14] == [8, 0] {
            let port = u16::from_be_bytes(bytes[34..36].try_into().unwrap());
            let seq = u32::from_be_bytes(bytes[38..42].try_into().unwrap());
            let all: Vec<u8> = packet.segments().flatten().copied().collect();
            let wire_packets = packet.meta().wire_packets;
            state
                .tcp
                .push((port, seq, all[54..].to_vec(), wire_packets));
        } else {
            let number = u32::from_be_bytes(bytes[14..18].try_into().unwrap());
            state.sent.push(number);
        }
        if state.keeps {
            state.kept.push_back(token);
            Ok(Accepted::Pending)
        } else {
            Ok(Accepted::Complete)
        }
    }

    fn flush(&mut self, _now: Instant) -> Result<(), DeviceError> {
        let mut state = self.state.lock().unwrap();
        let told = std::mem::take(&mut state.untold);
        if told > 0 {
            state.rings.push(told);
        }
        Ok(())
    }

    fn reclaim(&mut self, _now: Instant, completed: &mut Completed) {
        let mut state = self.state.lock().unwrap();
        if let Some(gate) = state.gate.take() {
            drop(state);
            gate.came.send(()).unwrap();
            gate.go_on.recv().unwrap();
            state = self.state.lock().unwrap();
        }
        while state.complete > 0 && !state.hung {
            let Some(&token) = state.kept.front() else {
                return;
            };
            if !completed.push(token) {
                return;
            }
            state.kept.pop_front();
            state.complete -= 1;
        }
    }

    fn arm(&mut self) -> Option<Armed> {
        let mut rung = [0; 4096];
        match self.bell.read(&mut rung) {
            Ok(_) => return Some(Armed::WorkPending),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
        let state = self.state.lock().unwrap();
        let ready = state.complete > 0 && !state.hung && !state.kept.is_empty();
        Some(if ready {
            Armed::WorkPending
        } else {
            Armed::Idle
        })
    }

    fn arm_for(&mut self, packets: usize) -> Option<Armed> {
        let mut state = self.state.lock().unwrap();
        if !state.counts {
            return None;
        }
        state.armed_for = Some(packets);
        Some(if state.complete.min(state.kept.len()) >= packets {
            Armed::WorkPending
        } else {
            Armed::Idle
        })
    }

    fn reset(
        &mut self,
        _sent: &mut Completed,
        unsent: &mut Completed,
    ) -> Result<Reset, DeviceError> {
        let mut state = self.state.lock().unwrap();
        if state.removed {
            return Err(DeviceError::Removed);
        }
        if !state.forgets {
            return Ok(Reset::Unsupported);
        }
        state.resets += 1;
        state.hung = false;
        let sent = state.sent.len() - state.kept.len();
        state.sent.truncate(sent);
        assert!(state.kept.drain(..).all(|token| unsent.push(token)));
        Ok(Reset::Done)
    }

    fn is_blocked(&self) -> bool {
        self.state.lock().unwrap().link_down
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        Some((self.bell.as_fd(), Interest::Read))
    }

    fn doorbells(&self) -> u64 {
        self.state.lock().unwrap().rings.len() as u64
    }
}

/// A fake device.
#[derive(Debug)]
struct Fake {
    name: &'static str,
    input: Input,
    queues: Vec<(FakeRx, FakeTx)>,
}

impl Driver for Fake {
    type Rx = FakeRx;
    type Tx = FakeTx;

    fn name(&self) -> &str {
        self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            queues_max: 16,
            input: self.input,
            tx: Features::NONE,
            tx_segments_max: SEGMENTS_MAX,
            tx_gso_segments_max: SEGMENTS_MAX,
            ..Capabilities::default()
        }
    }

    fn attach(
        &mut self,
        _how: &Attach,
        _arena: &Arena,
    ) -> Result<Vec<QueuePair<Self>>, DeviceError> {
        Ok(std::mem::take(&mut self.queues))
    }
}

fn fake(name: &'static str, input: Input, queues: usize) -> io::Result<(Fake, Vec<Queue>)> {
    let mut fake = Fake {
        name,
        input,
        queues: Vec::new(),
    };
    let handles = (0..queues).map(|_| {
        let (ours, theirs) = UnixStream::pair()?;
        theirs.set_nonblocking(true).unwrap();
        let (tx_ours, tx_theirs) = UnixStream::pair()?;
        for stream in [&tx_ours, &tx_theirs] {
            stream.set_nonblocking(true).unwrap();
        }
        let handle = Queue {
            tx_bell: Arc::new(Mutex::new(tx_ours)),
            rx: Arc::default(),
            tx: Arc::default(),
            bell: Arc::new(Mutex::new(Some(ours))),
        };
        handle.tx().room = usize::MAX;
        let rx = FakeRx {
            state: Arc::clone(&handle.rx),
            bell: theirs,
            arena: None,
        };
        let tx = FakeTx {
            state: Arc::clone(&handle.tx),
            bell: tx_theirs,
        };
        fake.queues.push((rx, tx));
        Ok(handle)
    });
    let handles = handles.collect::<io::Result<_>>()?;
    Ok((fake, handles))
}

/// Two fake devices, joined.
pub struct World<H> {
    pub a: Vec<Queue>,
    pub b: Vec<Queue>,
    pub workers: Option<FakeWorkers<H>>,
    pub intake: Arc<Intake>,
    pub stats: Arc<Stats>,
    pub handles: TxHandles,
    pub arena: Arena,
}

pub type FakeWorkers<H> = Vec<FakeWorker<H>>;
pub type FakeWorker<H> = crate::engine::Worker<FakeRx, FakeTx, FakeRx, FakeTx, H>;

pub fn plan_of(queues: [usize; 2]) -> Plan {
    let side = |index: usize| Side {
        name: ["a", "b"][index].to_owned(),
        capabilities: Capabilities {
            queues_max: 16,
            tx_segments_max: SEGMENTS_MAX,
            tx_gso_segments_max: SEGMENTS_MAX,
            ..Capabilities::default()
        },
        config: PortConfig {
            queues: Some(queues[index].max(1)),
            ..PortConfig::default()
        },
    };
    plan(&side(0), &side(1)).unwrap()
}

/// Joins devices with so many queues.
pub fn world<H: Handler>(
    queues: [usize; 2],
    input: [Input; 2],
    packets: Option<u64>,
    handler: impl FnMut() -> H,
) -> Result<World<H>, DeviceError> {
    planned(&plan_of(queues), queues, input, packets, handler)
}

/// As [`world`], with a plan of one's own.
pub fn planned<H: Handler>(
    plan: &Plan,
    queues: [usize; 2],
    input: [Input; 2],
    packets: Option<u64>,
    handler: impl FnMut() -> H,
) -> Result<World<H>, DeviceError> {
    dispatched(plan, queues, input, packets, Dispatch::default(), handler)
}

/// As [`planned`], with rings that are drained as `dispatch` says.
pub fn dispatched<H: Handler>(
    plan: &Plan,
    queues: [usize; 2],
    input: [Input; 2],
    packets: Option<u64>,
    dispatch: Dispatch,
    handler: impl FnMut() -> H,
) -> Result<World<H>, DeviceError> {
    let settings = Settings {
        dispatch,
        ..Settings::default()
    };
    with_settings(plan, queues, input, packets, &settings, handler)
}

/// As [`planned`], with queues that are worked as `settings` say.
pub fn with_settings<H: Handler>(
    plan: &Plan,
    queues: [usize; 2],
    input: [Input; 2],
    packets: Option<u64>,
    settings: &Settings,
    handler: impl FnMut() -> H,
) -> Result<World<H>, DeviceError> {
    let failed = |source| DeviceError::Failed {
        action: "make the test's devices",
        source,
    };
    let arena = Arena::new(ArenaConfig::small()).map_err(failed)?;
    let (mut device_a, a) = fake("a", input[0], queues[0]).map_err(failed)?;
    let (mut device_b, b) = fake("b", input[1], queues[1]).map_err(failed)?;
    let Joined {
        workers,
        intake,
        stats,
        handles,
    }: Joined<Fake, Fake, H> = join_with(
        &mut device_a,
        &mut device_b,
        plan,
        &arena,
        packets,
        settings,
        handler,
    )?;
    let workers: Workers<Fake, Fake, H> = workers;
    Ok(World {
        a,
        b,
        workers: Some(workers),
        intake,
        stats,
        handles,
        arena,
    })
}

impl<H: Handler> World<H> {
    pub fn worker(&mut self, index: usize) -> &mut FakeWorker<H> {
        &mut self.workers.as_mut().expect("not running")[index]
    }

    /// Every queue's books, which must close.
    pub fn closed(&self) -> Snapshot {
        let snapshot = self.stats.snapshot();
        assert!(snapshot.ledger.closed(), "{:?}", snapshot.ledger);
        snapshot.ports.iter().for_each(assert_batches);
        snapshot
    }
}

/// Batches have exactly the packets that the counters have.
fn assert_batches(port: &PortSnapshot) {
    for (rx, batches) in port.rx.iter().zip(&port.rx_batches) {
        let poll = &batches.poll;
        assert_eq!(poll.sum(), rx.packets + rx.bad_packets);
        assert!(poll.count() <= rx.polls && poll.max() <= BURST_PACKETS_MAX as u64);
        let flushed: u64 = rx
            .values()
            .filter(|(name, _)| name.starts_with("gro_flush"))
            .map(|(_, count)| count)
            .sum();
        assert_eq!(batches.coalesce.count(), flushed);
        let alone = flushed - rx.gro_packets;
        assert_eq!(batches.coalesce.sum(), rx.gro_wire_packets + alone);
    }
    for (tx, batches) in port.tx.iter().zip(&port.tx_batches) {
        assert_eq!(batches.drain.sum(), tx.packets);
        assert!(batches.enqueue.max() <= BURST_PACKETS_MAX as u64);
    }
}
