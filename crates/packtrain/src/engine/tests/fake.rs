//! Fake devices in memory: the test decides each of their answers.

use crate::driver::{
    Accepted, Armed, Attach, Capabilities, Completed, DeviceError, Driver, Features, Input,
    Interest, QueuePair, Refused, Reset, RxBurst, RxDescriptors, RxInfo, Token, TxDescriptors,
    TxPacket,
};
use crate::limits::SEGMENTS_MAX;
use crate::packet::{Arena, Packet};
use crate::stats::DropReason;
use crate::test_packets::{Segment, tcp4};
use crate::time::Instant;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

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

/// How a fake RX queue ends.
#[derive(Clone, Copy, Debug)]
pub enum End {
    Finished,
    Failed,
    Removed,
    Panic,
}

/// How a half wakes its worker: by a descriptor, or by its interrupt.
#[derive(Debug, Default)]
struct Wakes {
    fd: Option<Arc<OwnedFd>>,
    interrupt: Option<Waker>,
    /// The number of packets for which the half was armed.
    armed: Option<usize>,
}

impl Wakes {
    fn raise(&mut self) {
        self.armed = None;
        match &self.fd {
            Some(fd) => assert_eq!(rustix::io::write(fd, &1u64.to_ne_bytes()), Ok(8)),
            None => self.interrupt.iter().for_each(Waker::wake_by_ref),
        }
    }

    /// Clears the descriptor. Returns whether it was readable.
    fn clear(&self) -> bool {
        (self.fd.as_ref()).is_some_and(|fd| rustix::io::read(fd, &mut [0u8; 8]).is_ok())
    }
}

/// The next answers of a fake RX queue, and counts of its calls.
#[derive(Debug, Default)]
pub struct RxState {
    pub items: VecDeque<Item>,
    /// Reported after all items have been received.
    pub end: Option<End>,
    pub next_at: Option<Instant>,
    /// The device lacks buffers.
    pub short: bool,
    pub polls: u64,
    pub arms: u64,
    /// The device can count waiting packets.
    pub counts: bool,
    /// The number of packets of the last `arm_for`.
    pub armed_for: Option<usize>,
    /// The flow hash that the device gives to a segment; `None` for no hash.
    pub hash: Option<fn(&Segment) -> u32>,
    wakes: Wakes,
}

/// The next answers of a fake TX queue, and the packets that it accepted.
#[derive(Default)]
pub struct TxState {
    /// Packets that the device accepts before it has no free descriptor.
    pub room: usize,
    /// An asynchronous device: accepted packets stay there until `complete` lets it report them.
    pub keeps: bool,
    pub complete: usize,
    /// The device can raise its interrupt after a number of completions.
    pub counts: bool,
    pub armed_for: Option<usize>,
    pub kept: VecDeque<Token>,
    pub removed: bool,
    /// The driver panics at the next packet.
    pub panics: bool,
    /// The system has no memory for a packet.
    pub no_memory: bool,
    pub sent: Vec<u32>,
    /// TCP packets, in order: source port, sequence number, payload, wire packets.
    pub tcp: Vec<(u16, u32, Vec<u8>, u16)>,
    /// Features that the device refuses although it advertises them.
    pub refuses: Features,
    pub asked: u64,
    /// A packet still had the ports that were named for it.
    pub named: bool,
    /// A reset finds that the device has sent none of the packets that it keeps. If false, the
    /// device cannot be reset.
    pub forgets: bool,
    pub resets: u64,
    /// The device reports no completion and raises no interrupt until it is reset.
    pub hung: bool,
    pub link_down: bool,
    /// Packets refused while the link was down.
    pub refused: Vec<u32>,
    /// Packets accepted since the last doorbell.
    pub pending: usize,
    /// The number of packets of each doorbell.
    pub rings: Vec<usize>,
    pub arms: u64,
    /// Runs while the device accepts its next packet, in the middle of a drain.
    pub meanwhile: Option<Box<dyn FnOnce() + Send>>,
    /// The device reported room while it was not armed.
    said: bool,
    wakes: Wakes,
}

impl fmt::Debug for TxState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxState")
            .field("sent", &self.sent.len())
            .finish_non_exhaustive()
    }
}

impl TxState {
    fn done(&self) -> usize {
        match self.hung {
            true => 0,
            false => self.complete.min(self.kept.len()),
        }
    }
}

/// One queue of a fake device, from the test's side.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    rx: Arc<Mutex<RxState>>,
    tx: Arc<Mutex<TxState>>,
}

impl Queue {
    pub fn rx(&self) -> MutexGuard<'_, RxState> {
        self.rx.lock().unwrap()
    }

    pub fn tx(&self) -> MutexGuard<'_, TxState> {
        self.tx.lock().unwrap()
    }

    pub fn sent(&self) -> Vec<u32> {
        self.tx().sent.clone()
    }

    /// Checks that these packets were sent, in order; `what` names the case.
    #[track_caller]
    pub fn assert_sent(&self, numbers: impl IntoIterator<Item = u32>, what: impl fmt::Display) {
        assert_eq!(
            self.sent(),
            numbers.into_iter().collect::<Vec<_>>(),
            "{what}"
        );
    }

    /// Items arrive, and the device wakes its worker if it is armed for them.
    pub fn arrive_items(&self, items: impl IntoIterator<Item = Item>) {
        let mut rx = self.rx();
        rx.items.extend(items);
        let waiting = rx.items.len();
        let enough = rx.wakes.armed.is_some_and(|wanted| waiting >= wanted);
        if enough || rx.end.is_some() || rx.wakes.fd.is_some() {
            rx.wakes.raise();
        }
    }

    pub fn arrive(&self, numbers: impl IntoIterator<Item = u32>) {
        self.arrive_items(numbers.into_iter().map(Item::Packet));
    }

    pub fn arrive_tcp(&self, segments: impl IntoIterator<Item = Segment>) {
        self.arrive_items(segments.into_iter().map(Item::Tcp));
    }

    /// Ends the RX queue, and wakes its worker.
    pub fn end(&self, end: End) {
        self.rx().end = Some(end);
        self.arrive([]);
    }

    /// Makes room for `packets` more packets, and wakes the worker.
    pub fn make_room(&self, packets: usize) {
        let mut tx = self.tx();
        tx.room = tx.room.saturating_add(packets);
        tx.said = tx.wakes.armed.is_none() && tx.wakes.fd.is_none();
        if !tx.said && !tx.hung {
            tx.wakes.raise();
        }
    }

    /// Completes `packets` more packets, and wakes the worker if it is armed for as many.
    pub fn complete(&self, packets: usize) {
        let mut tx = self.tx();
        tx.complete = tx.complete.saturating_add(packets);
        let done = tx.done();
        if done > 0 && tx.wakes.armed.is_some_and(|wanted| done >= wanted) {
            tx.wakes.raise();
        }
    }

    /// Owners of the RX queue: the test, and the device while it exists.
    pub fn owners(&self) -> usize {
        Arc::strong_count(&self.rx)
    }

    /// The TX half, for a test that needs no port.
    pub fn half(&self) -> FakeTx {
        FakeTx {
            state: Arc::clone(&self.tx),
            fd: None,
        }
    }
}

#[derive(Debug)]
pub struct FakeRx {
    state: Arc<Mutex<RxState>>,
    fd: Option<Arc<OwnedFd>>,
    arena: Option<Arena>,
}

/// A packet of the flow in the upper 12 bits of the number. It has no IP header, so its addresses
/// are its flow.
pub fn numbered(arena: &Arena, number: u32) -> Option<Packet> {
    let mut bytes = [0u8; 60];
    bytes[8..12].copy_from_slice(&(number >> 20).to_be_bytes());
    bytes[12..14].copy_from_slice(&0x88b5u16.to_be_bytes());
    bytes[14..18].copy_from_slice(&number.to_be_bytes());
    arena.packet_from(&bytes).ok()
}

pub fn number_of(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[14..18].try_into().unwrap())
}

impl RxDescriptors for FakeRx {
    fn refill(&mut self, arena: &Arena) -> bool {
        self.arena = Some(arena.clone());
        !self.state.lock().unwrap().short
    }

    fn receive(&mut self, _now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        let mut state = self.state.lock().unwrap();
        state.wakes.clear();
        state.polls += 1;
        let arena = self.arena.as_ref().expect("refilled before receiving");
        while burst.budget() > 0 {
            match state.items.pop_front() {
                Some(Item::Packet(number)) => match numbered(arena, number) {
                    Some(packet) => burst.push(packet, &RxInfo::default()),
                    None => {
                        // Producers have all the buffers: the packet waits in the device.
                        state.items.push_front(Item::Packet(number));
                        break;
                    }
                },
                Some(Item::Tcp(segment)) => match arena.packet_from(&tcp4(&segment)) {
                    Ok(packet) => {
                        let info = RxInfo {
                            flow_hash: state.hash.map_or(0, |hash| hash(&segment)),
                            ..RxInfo::default()
                        };
                        burst.push(packet, &info);
                    }
                    Err(_empty) => burst.bad(DropReason::NoBuffer, 1),
                },
                Some(Item::Bad) => burst.bad(DropReason::BadDescriptor, 1),
                None => break,
            }
        }
        match state.end {
            Some(end) if state.items.is_empty() => match end {
                End::Finished => Err(DeviceError::Finished),
                End::Removed => Err(DeviceError::Removed),
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

    fn set_interrupt(&mut self, interrupt: Waker) {
        self.state.lock().unwrap().wakes.interrupt = Some(interrupt);
    }

    fn arm(&mut self) -> Armed {
        let mut state = self.state.lock().unwrap();
        state.arms += 1;
        if state.items.is_empty() && state.end.is_none() {
            state.wakes.armed = Some(1);
            Armed::Idle
        } else {
            Armed::WorkPending
        }
    }

    fn arm_for(&mut self, packets: usize) -> Option<Armed> {
        let mut state = self.state.lock().unwrap();
        if !state.counts {
            state.wakes.armed = None;
            return None;
        }
        state.armed_for = Some(packets);
        if state.items.len() >= packets {
            return Some(Armed::WorkPending);
        }
        state.wakes.armed = Some(packets);
        Some(Armed::Idle)
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        self.fd.as_ref().map(|fd| (fd.as_fd(), Interest::Read))
    }

    fn next_at(&self) -> Option<Instant> {
        self.state.lock().unwrap().next_at
    }
}

#[derive(Debug)]
pub struct FakeTx {
    state: Arc<Mutex<TxState>>,
    fd: Option<Arc<OwnedFd>>,
}

impl TxDescriptors for FakeTx {
    fn encap(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<Accepted, Refused> {
        let mut state = self.state.lock().unwrap();
        if let Some(meanwhile) = state.meanwhile.take() {
            drop(state);
            meanwhile();
            state = self.state.lock().unwrap();
        }
        state.asked += 1;
        if std::mem::take(&mut state.panics) {
            drop(state);
            panic!("as the test asked");
        }
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
            state.refused.push(number_of(packet.first()));
            return Err(Refused::LinkDown);
        }
        let refused = Features::needed_by(packet.meta()).intersection(state.refuses);
        if !refused.is_empty() {
            return Err(Refused::Feature(refused));
        }
        state.named |= packet.egress().is_some();
        state.room -= 1;
        state.pending += 1;
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
            state.sent.push(number_of(bytes));
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
        let rung = std::mem::take(&mut state.pending);
        if rung > 0 {
            state.rings.push(rung);
        }
        Ok(())
    }

    fn reclaim(&mut self, _now: Instant, completed: &mut Completed) {
        let mut state = self.state.lock().unwrap();
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

    fn set_interrupt(&mut self, interrupt: Waker) {
        self.state.lock().unwrap().wakes.interrupt = Some(interrupt);
    }

    fn arm(&mut self) -> Option<Armed> {
        let mut state = self.state.lock().unwrap();
        state.arms += 1;
        let said = std::mem::take(&mut state.said) | state.wakes.clear();
        if said || state.done() > 0 {
            return Some(Armed::WorkPending);
        }
        state.wakes.armed = Some(1);
        Some(Armed::Idle)
    }

    fn arm_for(&mut self, packets: usize) -> Option<Armed> {
        let mut state = self.state.lock().unwrap();
        if !state.counts {
            return None;
        }
        state.armed_for = Some(packets);
        if state.done() >= packets {
            return Some(Armed::WorkPending);
        }
        state.wakes.armed = Some(packets);
        Some(Armed::Idle)
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
        self.fd.as_ref().map(|fd| (fd.as_fd(), Interest::Read))
    }

    fn doorbells(&self) -> u64 {
        self.state.lock().unwrap().rings.len() as u64
    }
}

/// A fake device.
#[derive(Debug)]
pub struct Fake {
    name: &'static str,
    capabilities: Capabilities,
    queues: Vec<(FakeRx, FakeTx)>,
}

impl Fake {
    /// A device with `queues` queues, which wake their workers by descriptors or by interrupts.
    pub fn new(
        name: &'static str,
        (input, rx, tx): (Input, Features, Features),
        queues: usize,
        with_fds: bool,
    ) -> (Self, Vec<Queue>) {
        let fd = || {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            with_fds.then(|| Arc::new(eventfd(0, flags).unwrap()))
        };
        let ours: Vec<Queue> = (0..queues).map(|_| Queue::default()).collect();
        let halves = ours.iter().map(|queue| {
            let fds = [fd(), fd()];
            queue.tx().room = usize::MAX;
            queue.rx().wakes.fd.clone_from(&fds[0]);
            queue.tx().wakes.fd.clone_from(&fds[1]);
            let [rx_fd, tx_fd] = fds;
            let rx = FakeRx {
                state: Arc::clone(&queue.rx),
                fd: rx_fd,
                arena: None,
            };
            let tx = FakeTx {
                fd: tx_fd,
                ..queue.half()
            };
            (rx, tx)
        });
        let fake = Self {
            name,
            capabilities: Capabilities {
                queues_max: 16,
                input,
                // As a file.
                rx_waits: input == Input::Finite,
                rx,
                tx,
                tx_segments_max: SEGMENTS_MAX,
                tx_gso_segments_max: SEGMENTS_MAX,
                ..Capabilities::default()
            },
            queues: halves.collect(),
        };
        (fake, ours)
    }
}

impl Driver for Fake {
    type Rx = FakeRx;
    type Tx = FakeTx;

    fn name(&self) -> &str {
        self.name
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    fn attach(
        &mut self,
        _how: &Attach,
        _arena: &Arena,
    ) -> Result<Vec<QueuePair<Self>>, DeviceError> {
        Ok(std::mem::take(&mut self.queues))
    }
}
