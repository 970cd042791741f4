use super::*;
use crate::driver::{
    Accepted, Armed, Attach, Capabilities, DeviceError, Driver, Features, Input, QueuePair,
    Refused, RxDescriptors, Token, TxDescriptors, TxPacket,
};
use crate::packet::{Arena, ArenaConfig, Burst, FrameClass, Meta, VlanTag};
use crate::plan::FitLimits;
use crate::queue::TxQueue;
use crate::stats::{DropCounters, TxCounters};
use crate::time::{Instant, WallTime};
use packtrain_capture::Reader;
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::{ChecksumState, Gso, GsoKind, LinkType};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

mod capture;
mod fault;
mod trace;
mod vlan;

const ETHERNET_IPV4: usize = 14 + 20;

/// The next packets that the fake device receives.
#[derive(Debug)]
enum In {
    Packet(Packet, RxInfo),
    Bad(DropReason, u64),
}

#[derive(Debug, Default)]
struct Wire {
    input: VecDeque<In>,
    ends: bool,
    polls: usize,
    refuse: VecDeque<Refused>,
    sent: Vec<(Vec<u8>, Meta)>,
}

/// A device in memory; the test controls its other side.
#[derive(Clone, Debug, Default)]
struct Fake(Arc<Mutex<Wire>>);

impl Fake {
    fn give(&self, packet: Packet, info: RxInfo) {
        lock(&self.0).input.push_back(In::Packet(packet, info));
    }

    fn sent(&self) -> Vec<(Vec<u8>, Meta)> {
        std::mem::take(&mut lock(&self.0).sent)
    }
}

impl Driver for Fake {
    type Rx = Self;
    type Tx = Self;

    fn name(&self) -> &str {
        "fake"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            tx: Features::ALL,
            tx_segments_max: 8,
            tx_gso_segments_max: 8,
            input: Input::Finite,
            ..Capabilities::default()
        }
    }

    fn attach(&mut self, how: &Attach, _: &Arena) -> Result<Vec<QueuePair<Self>>, DeviceError> {
        Ok((0..how.queues)
            .map(|_| (self.clone(), self.clone()))
            .collect())
    }
}

impl RxDescriptors for Fake {
    fn refill(&mut self, _arena: &Arena) -> bool {
        true
    }

    fn receive(&mut self, _now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        let mut wire = lock(&self.0);
        wire.polls += 1;
        while burst.budget() > 0 {
            match wire.input.pop_front() {
                Some(In::Packet(packet, info)) => burst.push(packet, &info),
                Some(In::Bad(reason, wire_packets)) => burst.bad(reason, wire_packets),
                None if wire.ends => return Err(DeviceError::Finished),
                None => break,
            }
        }
        Ok(())
    }

    fn arm(&mut self) -> Armed {
        if lock(&self.0).input.is_empty() {
            Armed::Idle
        } else {
            Armed::WorkPending
        }
    }

    fn arm_for(&mut self, packets: usize) -> Option<Armed> {
        Some(if lock(&self.0).input.len() < packets {
            Armed::Idle
        } else {
            Armed::WorkPending
        })
    }
}

impl TxDescriptors for Fake {
    fn encap(&mut self, packet: &mut TxPacket<'_>, _token: Token) -> Result<Accepted, Refused> {
        let mut wire = lock(&self.0);
        let packet = packet.packet();
        wire.sent.push((bytes_of(packet), *packet.meta()));
        match wire.refuse.pop_front() {
            Some(refused) => Err(refused),
            None => Ok(Accepted::Complete),
        }
    }

    fn doorbells(&self) -> u64 {
        0
    }
}

#[derive(Debug, Default)]
struct Bad(Vec<(DropReason, u64)>);

impl BadPackets for Bad {
    fn bad(&mut self, reason: DropReason, wire_packets: u64) {
        self.0.push((reason, wire_packets));
    }
}

/// A wrapper around the fake, attached with one queue.
struct Rig<D: Driver> {
    rx: D::Rx,
    tx: TxQueue<D::Tx>,
    arena: Arena,
    fake: Fake,
    bad: Bad,
    driver: D,
}

fn rig<D: Driver>(wrap: impl FnOnce(Fake) -> D) -> Rig<D> {
    let fake = Fake::default();
    let mut driver = wrap(fake.clone());
    let arena = Arena::new(ArenaConfig::small()).unwrap();
    let (rx, tx) = driver.attach(&Attach::default(), &arena).unwrap().remove(0);
    let capabilities = driver.capabilities();
    let limits = FitLimits::new(&capabilities, None);
    let (counters, drops) = <(Arc<TxCounters>, Arc<DropCounters>)>::default();
    let features = capabilities.tx;
    let tx = TxQueue::new(tx, arena.clone(), features, limits, None, counters, drops);
    let bad = Bad::default();
    Rig {
        rx,
        tx,
        arena,
        fake,
        bad,
        driver,
    }
}

impl<D: Driver> Rig<D> {
    fn poll(&mut self, now: u64) -> (Vec<Packet>, Result<(), DeviceError>) {
        let mut burst = Burst::new();
        let mut sink = RxBurst::new(&mut burst, 64, &mut self.bad);
        let result = self.rx.receive(Instant::from_nanos(now), &mut sink);
        (std::iter::from_fn(|| burst.pop()).collect(), result)
    }

    /// Gives `count` distinct packets.
    fn give(&self, count: usize) {
        for index in 0..count {
            let packet = self.arena.packet_from(&udp(64, index as u8)).unwrap();
            self.fake.give(packet, RxInfo::default());
        }
    }

    fn transmit(&mut self, packet: Packet) {
        let mut burst = Burst::new();
        burst.push(packet).unwrap();
        self.tx.transmit(&mut burst).unwrap();
    }
}

fn bytes_of(packet: &Packet) -> Vec<u8> {
    packet.segments().flatten().copied().collect()
}

/// The first payload byte of [`udp`]: which packet it is.
fn seeds(packets: &[Packet]) -> Vec<u8> {
    packets
        .iter()
        .map(|p| bytes_of(p)[ETHERNET_IPV4 + 8])
        .collect()
}

fn ethernet() -> etherparse::PacketBuilderStep<etherparse::IpHeaders> {
    let addresses = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    etherparse::PacketBuilder::ethernet2(addresses.0, addresses.1).ipv4(
        [198, 18, 0, 1],
        [198, 18, 0, 2],
        64,
    )
}

fn udp(payload: usize, seed: u8) -> Vec<u8> {
    let payload: Vec<_> = (0..payload).map(|i| seed.wrapping_add(i as u8)).collect();
    let mut bytes = Vec::new();
    ethernet()
        .udp(53, 4000)
        .write(&mut bytes, &payload)
        .unwrap();
    bytes
}

fn tcp(payload: usize) -> Vec<u8> {
    let payload: Vec<_> = (0..payload).map(|i| (i * 7 + i / 256) as u8).collect();
    let mut bytes = Vec::new();
    ethernet()
        .tcp(443, 51000, 1, 1000)
        .ack(1)
        .write(&mut bytes, &payload)
        .unwrap();
    bytes
}

fn slow_sum(bytes: &[u8]) -> u32 {
    let words = bytes
        .chunks(2)
        .map(|w| u32::from(w[0]) * 256 + u32::from(*w.get(1).unwrap_or(&0)));
    words.sum::<u32>()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Sum of the pseudo header of an IPv4 packet behind Ethernet.
fn pseudo(bytes: &[u8]) -> u32 {
    let length = bytes.len() - ETHERNET_IPV4;
    slow_sum(&bytes[26..34]) + u32::from(bytes[23]) + length as u32
}

fn checksum_is_right(bytes: &[u8]) -> bool {
    fold(slow_sum(&bytes[14..34])) == 0xffff
        && fold(pseudo(bytes) + slow_sum(&bytes[ETHERNET_IPV4..])) == 0xffff
}

/// The packet as a sender leaves it to its device, and the state that says so.
fn partial(mut bytes: Vec<u8>, offset: usize) -> (Vec<u8>, ChecksumState) {
    let sum = fold(pseudo(&bytes)).to_be_bytes();
    bytes[ETHERNET_IPV4 + offset..][..2].copy_from_slice(&sum);
    let state = ChecksumState::Partial {
        start: ETHERNET_IPV4 as u16,
        offset: offset as u16,
    };
    (bytes, state)
}

/// A TCP packet of four segments of 1000 bytes, in pieces.
fn large(arena: &Arena) -> (Packet, RxInfo) {
    let (bytes, checksum) = partial(tcp(4000), 16);
    let mut packet = arena.packet(FrameClass::Small).unwrap();
    packet.append_copy(FrameClass::Small, &bytes).unwrap();
    let gso = Gso::new(GsoKind::TcpV4, NonZeroU16::new(1000).unwrap());
    let info = RxInfo {
        checksum,
        gso: Some(gso),
        wire_packets: 4,
        ..RxInfo::default()
    };
    (packet, info)
}

fn with_info(mut packet: Packet, info: RxInfo) -> Packet {
    let meta = packet.meta_mut();
    (meta.gso, meta.checksum, meta.wire_packets) = (info.gso, info.checksum, info.wire_packets);
    let first = packet.first().to_vec();
    packet.meta_mut().layout =
        Layout::parse(LinkType::Ethernet, &first, packet.bytes() as u32).ok();
    packet
}

fn faults(options: FaultOptions) -> Rig<Fault<Fake>> {
    rig(|fake| Fault::new(fake, options))
}

/// The output of a test's wrapper.
#[derive(Clone, Debug, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An output that takes `0` bytes and then is full.
#[derive(Debug)]
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes, metadata, bad packets and errors pass unchanged in both directions.
fn changes_nothing<D: Driver>(mut rig: Rig<D>) {
    let mut expected = Vec::new();
    for index in 0..50_u16 {
        let (packet, mut info) = if index % 7 == 3 {
            large(&rig.arena)
        } else {
            let packet = rig
                .arena
                .packet_from(&udp(usize::from(index) * 30, 1))
                .unwrap();
            (packet, RxInfo::default())
        };
        info.flow_hash = u32::from(index);
        info.timestamp = (index % 2 == 0).then(|| WallTime::from_nanos(u64::from(index) + 5));
        expected.push((bytes_of(&packet), info));
        rig.fake.give(packet, info);
    }
    lock(&rig.fake.0)
        .input
        .push_back(In::Bad(DropReason::TooLong, 3));
    lock(&rig.fake.0).ends = true;
    assert_eq!(rig.rx.arm(), Armed::WorkPending);
    assert_eq!(rig.rx.arm_for(51), Some(Armed::WorkPending));
    assert_eq!(rig.rx.arm_for(52), Some(Armed::Idle));
    let (packets, end) = rig.poll(1);
    assert!(matches!(end, Err(DeviceError::Finished)));
    assert_eq!(rig.bad.0, [(DropReason::TooLong, 3)]);
    let got: Vec<_> = packets.iter().map(|p| (bytes_of(p), info_of(p))).collect();
    assert_eq!(got, expected);
    assert_eq!((rig.rx.held(), rig.rx.next_at()), (0, None));
    for packet in packets {
        rig.transmit(packet);
    }
    let sent = rig.fake.sent();
    assert!(
        sent.iter()
            .map(|(bytes, _)| bytes)
            .eq(expected.iter().map(|(bytes, _)| bytes))
    );
    assert!(
        sent.iter()
            .map(|(_, meta)| meta.gso)
            .eq(expected.iter().map(|(_, info)| info.gso))
    );
}

#[test]
fn wrappers_that_have_nothing_to_do_change_nothing() {
    changes_nothing(faults(FaultOptions::default()));
    changes_nothing(rig(|fake| {
        Capture::new(fake, Box::new(Memory::default()), CaptureOptions::default()).unwrap()
    }));
    changes_nothing(rig(|fake| Trace::new(fake, Box::new(Memory::default()))));
    changes_nothing(rig(|fake| {
        let fault = Fault::new(fake, FaultOptions::default());
        Trace::new(Box::new(fault), Box::new(io::sink()))
    }));
    // A failed output loses no packet either.
    changes_nothing(rig(|fake| Trace::new(fake, Box::new(Full(0)))));
    changes_nothing(rig(|fake| {
        Capture::new(fake, Box::new(Full(1000)), CaptureOptions::default()).unwrap()
    }));
}

type Ask = Box<dyn Fn() + Send>;

/// An output that asks for the status while a wrapper writes to it, as the caller's code may.
#[derive(Clone, Default)]
struct Asking(Arc<Mutex<Option<Ask>>>);

impl Asking {
    fn ask(&self) -> io::Result<()> {
        // The file header is written before there is a status.
        if let Some(ask) = &*lock(&self.0) {
            ask();
        }
        Ok(())
    }
}

impl Write for Asking {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.ask().map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.ask()
    }
}

/// Receives 30 packets by a driver of `make` whose output calls what `ask` returns.
fn asks<D: Driver + 'static>(
    make: impl FnOnce(Fake, Box<Asking>) -> D + Send + 'static,
    ask: impl FnOnce(&D) -> Ask + Send + 'static,
) {
    let work = || {
        let output = Asking::default();
        let mut rig = rig(|fake| make(fake, Box::new(output.clone())));
        *lock(&output.0) = Some(ask(&rig.driver));
        rig.give(30);
        assert_eq!(rig.poll(1).0.len(), 30);
        *lock(&output.0) = None;
    };
    // On a thread: one that waits for itself fails the test and does not stop it.
    let thread = thread::spawn(work);
    let began = std::time::Instant::now();
    while !thread.is_finished() {
        assert!(began.elapsed() < Duration::from_secs(60), "a deadlock");
        thread::sleep(Duration::from_millis(1));
    }
    thread.join().unwrap();
}

#[test]
fn an_output_may_ask_for_the_status() {
    asks(
        |fake, output| Capture::new(fake, output, CaptureOptions::default()).unwrap(),
        |driver| {
            let status = driver.status();
            Box::new(move || {
                assert!(!status.flush(), "the output is in use");
                assert!(status.records() <= 30 && status.missed() <= 30);
                assert_eq!(status.note(), None);
            })
        },
    );
    asks(
        |fake, output| Trace::new(fake, output),
        |driver| {
            let status = driver.status();
            Box::new(move || {
                assert!(status.lines() <= 30);
                assert_eq!(status.note(), None);
            })
        },
    );
}
