use super::*;
use crate::capture::Reader;
use crate::driver::{
    Accepted, Armed, Attach, Capabilities, DeviceError, Driver, Features, Input, QueuePair,
    Refused, RxDescriptors, Token, TxDescriptors, TxPacket,
};
use crate::packet::{Arena, ArenaConfig, Burst, FrameClass, Meta, VlanTag};
use crate::plan::FitLimits;
use crate::queue::TxQueue;
use crate::stats::{DropCounters, TxCounters};
use packtrain_offload::offload::{ChecksumState, Gso, GsoKind};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

const ETHERNET_IPV4: usize = 14 + 20;

/// What the fake device receives next.
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

/// A device in memory, its other side in the hands of the test.
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

/// Where a test's wrapper writes to.
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

/// What passes unchanged, on both ways: bytes, metadata, bad packets, errors.
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
        info.timestamp = (index % 2 == 0).then(|| Instant::from_nanos(u64::from(index) + 5));
        expected.push((bytes_of(&packet), info));
        rig.fake.give(packet, info);
    }
    lock(&rig.fake.0)
        .input
        .push_back(In::Bad(DropReason::TooLong, 3));
    lock(&rig.fake.0).ends = true;
    assert_eq!(rig.rx.arm(), Armed::WorkPending);
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
    // Failed outputs cost no packet either.
    changes_nothing(rig(|fake| Trace::new(fake, Box::new(Full(0)))));
    changes_nothing(rig(|fake| {
        Capture::new(fake, Box::new(Full(1000)), CaptureOptions::default()).unwrap()
    }));
}

/// What a run of `count` packets comes to: who arrives at which poll, and what is lost.
fn outcome(options: FaultOptions, count: usize) -> (Vec<Vec<Vec<u8>>>, usize, Faults) {
    let mut rig = faults(options);
    rig.give(count);
    let mut polls = Vec::new();
    for now in 1..200 {
        let (packets, _) = rig.poll(now * 1000);
        polls.push(packets.iter().map(bytes_of).collect());
    }
    (polls, rig.bad.0.len(), rig.driver.counters().get())
}

fn everything(seed: u64) -> FaultOptions {
    FaultOptions {
        seed,
        drop: 0.1,
        duplicate: 0.1,
        corrupt: 0.1,
        delay: 0.1,
        delay_time: Duration::from_micros(20),
        reorder: 0.1,
        reorder_time: Duration::from_micros(30),
        ..FaultOptions::default()
    }
}

#[test]
fn the_seed_decides_and_the_chances_are_kept() {
    let first = outcome(everything(7), 200);
    assert_eq!(first, outcome(everything(7), 200));
    assert_ne!(first, outcome(everything(8), 200));
    let mut rig = faults(everything(1));
    let mut bad = 0;
    for _ in 0..250 {
        rig.give(40);
        rig.poll(1_000_000).1.unwrap();
        bad = rig.bad.0.len();
    }
    let faults = rig.driver.counters().get();
    assert_eq!(faults.dropped, bad as u64);
    for (count, of) in [
        (faults.dropped, 10_000),
        (faults.duplicated, 9000),
        (faults.corrupted, 9000),
        (faults.delayed, 9000),
        (faults.reordered, 9000),
    ] {
        // A tenth, give or take five standard deviations (of at most 30).
        assert!(
            (of / 10 - 150..=of / 10 + 150).contains(&count),
            "{faults:?}"
        );
    }
}

#[test]
fn a_lost_packet_is_lost_with_all_it_stands_for() {
    let mut rig = faults(FaultOptions {
        drop: 1.0,
        ..FaultOptions::default()
    });
    let (packet, info) = large(&rig.arena);
    rig.fake.give(packet, info);
    assert!(rig.poll(1).0.is_empty());
    assert_eq!(rig.bad.0, [(DropReason::FaultInjected, 4)]);
    assert_eq!(rig.arena.census().lines_used, 0);
}

#[test]
fn a_repeated_packet_comes_twice() {
    let mut rig = faults(FaultOptions {
        duplicate: 1.0,
        ..FaultOptions::default()
    });
    rig.give(40);
    let (mut packets, _) = rig.poll(1);
    assert_eq!(
        (packets.len(), rig.rx.held(), rig.rx.arm()),
        (64, 16, Armed::WorkPending)
    );
    packets.extend(rig.poll(2).0);
    assert_eq!(seeds(&packets), (0..80).map(|i| i / 2).collect::<Vec<_>>());
    assert_eq!((rig.rx.held(), rig.rx.arm()), (0, Armed::Idle));
}

fn different_bits(a: &[u8], b: &[u8]) -> u32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum()
}

#[test]
fn a_damaged_packet_has_one_wrong_bit_and_a_checksum_that_tells() {
    for seed in 0..50 {
        let mut rig = faults(FaultOptions {
            seed,
            corrupt: 1.0,
            ..FaultOptions::default()
        });
        let (unfinished, checksum) = partial(udp(300, 1), 6);
        let finished = udp(300, 1);
        let info = RxInfo {
            checksum,
            ..RxInfo::default()
        };
        rig.fake
            .give(rig.arena.packet_from(&unfinished).unwrap(), info);
        let verified = RxInfo {
            checksum: ChecksumState::Unnecessary,
            ..RxInfo::default()
        };
        rig.fake
            .give(rig.arena.packet_from(&finished).unwrap(), verified);
        // Someone else's view of the same bytes stays whole.
        let other = rig.arena.packet_from(&finished).unwrap();
        rig.fake.give(other.try_clone().unwrap(), verified);
        let (packets, _) = rig.poll(1);
        assert_eq!(packets.len(), 3);
        for packet in &packets {
            let bytes = bytes_of(packet);
            assert_eq!(different_bits(&bytes, &finished), 1);
            assert!(
                different_bits(&bytes[..ETHERNET_IPV4 + 8], &finished[..ETHERNET_IPV4 + 8]) == 0
            );
            assert!(!checksum_is_right(&bytes));
            assert_eq!(packet.meta().checksum, ChecksumState::None);
        }
        assert_eq!(bytes_of(&other), finished);
    }
}

#[test]
fn of_a_damaged_large_packet_one_wire_packet_is_damaged() {
    for seed in 0..20 {
        let mut rig = faults(FaultOptions {
            seed,
            corrupt: 1.0,
            ..FaultOptions::default()
        });
        let (packet, mut info) = large(&rig.arena);
        info.wire_packets = 6;
        rig.fake.give(packet, info);
        let (packets, _) = rig.poll(1);
        let right = packets
            .iter()
            .filter(|p| checksum_is_right(&bytes_of(p)))
            .count();
        assert_eq!((packets.len(), right), (4, 3));
        let accounted: u16 = packets.iter().map(|p| p.meta().wire_packets).sum();
        assert_eq!(accounted, 6);
        let payload: Vec<_> = packets
            .iter()
            .flat_map(|p| bytes_of(p)[54..].to_vec())
            .collect();
        assert_eq!(different_bits(&payload, &tcp(4000)[54..]), 1);
        assert!(packets.iter().all(|p| p.meta().gso.is_none()));
    }
}

#[test]
fn packets_that_contradict_themselves_are_not_damaged() {
    let mut rig = faults(FaultOptions {
        corrupt: 1.0,
        ..FaultOptions::default()
    });
    let (_, info) = large(&rig.arena);
    let outside = RxInfo {
        checksum: ChecksumState::Partial {
            start: 60_000,
            offset: 60_000,
        },
        ..RxInfo::default()
    };
    for info in [info, outside] {
        rig.fake
            .give(rig.arena.packet_from(&udp(20, 0)).unwrap(), info);
    }
    rig.fake
        .give(rig.arena.empty_packet().unwrap(), RxInfo::default());
    let (packets, _) = rig.poll(1);
    assert_eq!(packets.len(), 3);
    assert_eq!(bytes_of(&packets[0]), udp(20, 0));
    assert_eq!(rig.driver.counters().get().corrupted, 0);
}

#[test]
fn a_late_packet_waits_for_its_time_and_the_end_waits_for_it() {
    let mut rig = faults(FaultOptions {
        delay: 1.0,
        delay_time: Duration::from_nanos(500),
        ..FaultOptions::default()
    });
    rig.give(2);
    lock(&rig.fake.0).ends = true;
    let (packets, result) = rig.poll(1000);
    assert!(packets.is_empty() && result.is_ok());
    assert_eq!((rig.rx.held(), rig.rx.arm()), (2, Armed::Idle));
    assert_eq!(rig.rx.next_at(), Some(Instant::from_nanos(1500)));
    assert!(rig.poll(1499).0.is_empty());
    let (packets, result) = rig.poll(1500);
    assert_eq!(seeds(&packets), [0, 1]);
    assert!(matches!(result, Err(DeviceError::Finished)));
    assert_eq!((rig.rx.held(), rig.rx.next_at()), (0, None));
}

#[test]
fn a_packet_is_overtaken_by_as_many_as_asked_or_its_time_comes() {
    // A seed with which the second of six packets is held back, and no other.
    let options = |seed| FaultOptions {
        seed,
        reorder: 0.2,
        reorder_by: 3,
        reorder_time: Duration::from_nanos(100),
        ..FaultOptions::default()
    };
    let seed = (0..10_000).find(|&seed| {
        let mut dice = faults(options(seed));
        dice.give(6);
        let (packets, _) = dice.poll(1);
        seeds(&packets) == [0, 2, 3, 4, 1, 5]
    });
    let seed = seed.expect("a seed for one reordered packet");
    let mut rig = faults(options(seed));
    rig.give(3);
    assert_eq!(seeds(&rig.poll(1).0), [0, 2]);
    assert_eq!(rig.rx.next_at(), Some(Instant::from_nanos(101)));
    assert!(rig.poll(100).0.is_empty());
    assert_eq!(seeds(&rig.poll(101).0), [1]);

    let mut rig = faults(options(seed));
    rig.give(3);
    lock(&rig.fake.0).ends = true;
    // Nobody comes any more.
    assert_eq!(seeds(&rig.poll(1).0), [0, 2, 1]);
}

#[test]
fn a_full_line_leaves_packets_with_the_device() {
    let mut rig = faults(FaultOptions {
        delay: 1.0,
        delay_time: Duration::from_nanos(500),
        held_packets_max: 10,
        ..FaultOptions::default()
    });
    rig.give(25);
    rig.poll(1).1.unwrap();
    assert_eq!((rig.rx.held(), rig.rx.arm()), (10, Armed::Idle));
    assert_eq!(lock(&rig.fake.0).input.len(), 15);
    let polls = lock(&rig.fake.0).polls;
    rig.poll(2).1.unwrap();
    assert_eq!(lock(&rig.fake.0).polls, polls, "a full line does not poll");
    assert_eq!(rig.poll(501).0.len(), 10);
    assert_eq!(rig.rx.arm(), Armed::WorkPending);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Every wire packet given or made by repeating is handed over, dropped or held.
    #[test]
    fn faults_conserve(
        seed: u64,
        chances in proptest::array::uniform5(0.0_f64..=1.0),
        rounds in proptest::collection::vec((0_usize..40, any::<bool>()), 1..20),
        held_packets_max in 0_usize..100,
    ) {
        let [drop, duplicate, corrupt, delay, reorder] = chances;
        let mut rig = faults(FaultOptions {
            seed, drop, duplicate, corrupt, delay, reorder, held_packets_max,
            delay_time: Duration::from_nanos(2500),
            reorder_time: Duration::from_nanos(3500),
            ..FaultOptions::default()
        });
        let (mut given, mut got, mut now) = (0, 0, 0);
        for (count, with_large) in rounds {
            rig.give(count);
            given += count;
            if with_large && duplicate == 0.0 {
                let (packet, info) = large(&rig.arena);
                rig.fake.give(packet, info);
                given += 4;
            }
            now += 1000;
            let wire = |p: &Packet| usize::from(p.meta().wire_packets);
            got += rig.poll(now).0.iter().map(wire).sum::<usize>();
            let dropped: u64 = rig.bad.0.iter().map(|(_, wire)| wire).sum();
            let made = rig.driver.counters().get().duplicated as usize;
            let left = lock(&rig.fake.0).input.len();
            let held = rig.rx.held() as usize;
            if !with_large {
                prop_assert!(got + dropped as usize + held + left <= given + made);
            }
        }
        lock(&rig.fake.0).ends = true;
        loop {
            now += 1000;
            let (packets, end) = rig.poll(now);
            got += packets.iter().map(|p| usize::from(p.meta().wire_packets)).sum::<usize>();
            if end.is_err() { break }
        }
        let dropped: u64 = rig.bad.0.iter().map(|(_, wire)| wire).sum();
        let made = rig.driver.counters().get().duplicated as usize;
        prop_assert_eq!(got + dropped as usize, given + made);
        prop_assert_eq!(rig.rx.held(), 0);
        prop_assert_eq!(rig.arena.census().lines_used, 0);
    }
}

/// Interface and data of every record.
fn records(file: &Memory) -> Vec<(u32, Vec<u8>)> {
    let bytes = lock(&file.0).clone();
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let mut all = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        assert_eq!(record.original_bytes as usize, record.data.len());
        all.push((record.interface, record.data.to_vec()));
    }
    all
}

fn capturing(whole: bool) -> (Rig<Capture<Fake>>, Memory) {
    let file = Memory::default();
    let options = CaptureOptions { whole, snaplen: 0 };
    let output = Box::new(file.clone());
    (
        rig(|fake| Capture::new(fake, output, options).unwrap()),
        file,
    )
}

#[test]
fn a_capture_has_finished_wire_packets_of_both_directions() {
    let (mut rig, file) = capturing(false);
    let (packet, info) = large(&rig.arena);
    rig.fake.give(packet, info);
    rig.poll(1).1.unwrap();
    let segments = records(&file);
    assert_eq!(segments.len(), 4);
    assert!(
        segments
            .iter()
            .all(|(interface, data)| *interface == 0 && checksum_is_right(data))
    );
    let payload: Vec<_> = segments
        .iter()
        .flat_map(|(_, data)| data[54..].to_vec())
        .collect();
    assert_eq!(payload, tcp(4000)[54..]);

    let (unfinished, checksum) = partial(udp(300, 1), 6);
    let info = RxInfo {
        checksum,
        ..RxInfo::default()
    };
    let packet = rig.arena.packet_from(&unfinished).unwrap();
    rig.transmit(with_info(packet, info));
    assert_eq!(records(&file)[4], (1, udp(300, 1)));
    assert_eq!(
        rig.fake.sent()[0].0,
        unfinished,
        "the device gets what it would without"
    );
    assert_eq!(rig.driver.status().records(), 5);
}

#[test]
fn a_tag_beside_the_bytes_is_in_the_captured_ones() {
    let (mut rig, file) = capturing(false);
    let tag = VlanTag {
        protocol: 0x8100,
        control: 0x2007,
    };
    let (packet, info) = large(&rig.arena);
    let mut packet = with_info(packet, info);
    packet.meta_mut().vlan = Some(tag);
    rig.transmit(packet);
    let mut plain = rig.arena.packet_from(&udp(40, 3)).unwrap();
    plain.meta_mut().vlan = Some(tag);
    rig.transmit(plain);
    let records = records(&file);
    assert_eq!(records.len(), 5);
    for (_, data) in records {
        assert_eq!(data[12..16], [0x81, 0, 0x20, 7]);
        let untagged = [&data[..12], &data[16..]].concat();
        assert!(checksum_is_right(&untagged));
    }
}

#[test]
fn a_capture_of_whole_packets_has_them_as_they_are() {
    let (mut rig, file) = capturing(true);
    let (packet, info) = large(&rig.arena);
    let bytes = bytes_of(&packet);
    rig.fake.give(packet, info);
    rig.poll(1).1.unwrap();
    assert_eq!(records(&file), [(0, bytes)]);
}

#[test]
fn a_packet_without_wire_packets_is_captured_as_it_is() {
    let (mut rig, file) = capturing(false);
    let (_, info) = large(&rig.arena);
    rig.fake
        .give(rig.arena.packet_from(&udp(20, 0)).unwrap(), info);
    rig.poll(1).1.unwrap();
    assert_eq!(records(&file), [(0, udp(20, 0))]);
}

#[test]
fn a_refused_packet_is_not_captured() {
    let (mut rig, file) = capturing(false);
    lock(&rig.fake.0).refuse.push_back(Refused::LinkDown);
    let packet = rig.arena.packet_from(&udp(20, 0)).unwrap();
    rig.transmit(packet);
    assert!(records(&file).is_empty());
}

#[test]
fn outputs_that_fail_say_so() {
    let options = CaptureOptions::default();
    let mut tracing = rig(|fake| {
        Trace::new(
            Capture::new(fake, Box::new(Full(400)), options).unwrap(),
            Box::new(Full(100)),
        )
    });
    let trace = tracing.driver.status();
    assert_eq!((trace.note(), trace.lines()), (None, 0));
    tracing.give(30);
    assert_eq!(tracing.poll(1).0.len(), 30);
    let note = trace.note().unwrap();
    assert!(
        note.starts_with("the trace stopped, since its output failed"),
        "{note}"
    );
    assert_eq!(trace.lines(), 1);

    let mut capture = rig(|fake| Capture::new(fake, Box::new(Full(400)), options).unwrap());
    capture.give(30);
    assert_eq!(capture.poll(1).0.len(), 30);
    let note = capture.driver.status().note().unwrap();
    assert!(
        note.starts_with("the capture stopped, since its output failed: writing"),
        "{note}"
    );
    assert!(Capture::new(Fake::default(), Box::new(Full(0)), options).is_err());
}

#[test]
fn a_trace_says_what_passes() {
    let file = Memory::default();
    let output = Box::new(file.clone());
    let mut rig = rig(|fake| Trace::new(fake, output));
    let (packet, info) = large(&rig.arena);
    rig.fake.give(packet, info);
    let verified = RxInfo {
        checksum: ChecksumState::Unnecessary,
        ..RxInfo::default()
    };
    rig.fake
        .give(rig.arena.packet_from(&udp(20, 0)).unwrap(), verified);
    rig.fake.give(
        rig.arena.packet_from(&[0x88; 60]).unwrap(),
        RxInfo::default(),
    );
    rig.fake
        .give(rig.arena.packet_from(&[1; 3]).unwrap(), RxInfo::default());
    lock(&rig.fake.0)
        .input
        .push_back(In::Bad(DropReason::TooLong, 1));
    let (mut packets, _) = rig.poll(1);
    lock(&rig.fake.0)
        .refuse
        .extend([Refused::Busy, Refused::Bad(DropReason::DeviceRefused)]);
    let packet = packets.remove(1);
    rig.transmit(packet.try_clone().unwrap());
    rig.transmit(packet);
    let mut ipv6 = Vec::new();
    let from = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let builder = etherparse::PacketBuilder::ethernet2([2; 6], [2; 6]).ipv6(from, from, 64);
    builder.tcp(1, 2, 3, 4).write(&mut ipv6, &[]).unwrap();
    let mut packet = rig.arena.packet_from(&ipv6).unwrap();
    packet.meta_mut().vlan = Some(VlanTag {
        protocol: 0x8100,
        control: 0x2007,
    });
    rig.transmit(packet);
    let text = String::from_utf8(lock(&file.0).clone()).unwrap();
    let wanted = "\
rx fake/0 bad too_long wire=1
rx fake/0 4054 B wire=4 csum=partial(34+16) gso=TcpV4/1000 tcp 198.18.0.1:443 > 198.18.0.2:51000
rx fake/0 62 B wire=1 csum=ok udp 198.18.0.1:53 > 198.18.0.2:4000
rx fake/0 60 B wire=1 csum=none ethertype=0x8888
rx fake/0 3 B wire=1 csum=none unparsed
tx fake/0 62 B wire=1 csum=ok udp 198.18.0.1:53 > 198.18.0.2:4000 refused device_refused
tx fake/0 62 B wire=1 csum=ok udp 198.18.0.1:53 > 198.18.0.2:4000
tx fake/0 74 B wire=1 csum=none vlan=7 tcp [fd00::1]:1 > [fd00::1]:2
";
    assert_eq!(text, wanted);
    assert_eq!(rig.driver.status().lines(), 8);
}

fn tagged(tags: &[[u8; 4]], bytes: &[u8]) -> Vec<u8> {
    [&bytes[..12], &tags.concat(), &bytes[12..]].concat()
}

#[test]
fn tags_go_in_on_the_way_in_and_off_on_the_way_out() {
    let one: &[[u8; 4]] = &[[0x81, 0, 0, 7]];
    let two: &[[u8; 4]] = &[[0x88, 0xa8, 0, 9], [0x81, 0, 0, 7]];
    for tags in [one, two] {
        let mut rig = rig(|fake| match tags.len() {
            1 => Vlan::single(fake, 7),
            _ => Vlan::double(fake, 9, 7),
        });
        let (packet, info) = large(&rig.arena);
        let large_bytes = bytes_of(&packet);
        rig.fake.give(packet, info);
        let shared = rig.arena.packet_from(&udp(64, 1)).unwrap();
        rig.fake
            .give(shared.try_clone().unwrap(), RxInfo::default());
        let mut tight = rig.arena.packet_from(&udp(64, 2)).unwrap();
        tight.prepend(tight.headroom()).unwrap().fill(0x55);
        let tight_bytes = bytes_of(&tight);
        rig.fake.give(tight, RxInfo::default());
        rig.fake
            .give(rig.arena.packet_from(&[1; 13]).unwrap(), RxInfo::default());
        let (packets, _) = rig.poll(1);
        let got: Vec<_> = packets.iter().map(bytes_of).collect();
        assert_eq!(got[0], tagged(tags, &large_bytes));
        assert_eq!(got[1], tagged(tags, &udp(64, 1)));
        assert_eq!(got[2], tagged(tags, &tight_bytes));
        assert_eq!(got[3], [1; 13]);
        assert_eq!(bytes_of(&shared), udp(64, 1));
        let more = 4 * tags.len() as u16;
        let start = ETHERNET_IPV4 as u16 + more;
        let checksum = ChecksumState::Partial { start, offset: 16 };
        assert_eq!(packets[0].meta().checksum, checksum);
        assert_eq!(
            (packets[0].meta().gso, packets[0].meta().wire_packets),
            (info.gso, 4)
        );

        // Refused once: it stays tagged, and is untagged again for the next attempt.
        lock(&rig.fake.0).refuse.push_back(Refused::Busy);
        for packet in packets {
            let info = info_of(&packet);
            let packet = with_info(packet, info);
            rig.transmit(packet.try_clone().unwrap());
        }
        let sent = rig.fake.sent();
        let bytes: Vec<_> = sent.iter().map(|(bytes, _)| bytes.clone()).collect();
        let plain = [
            large_bytes.clone(),
            large_bytes,
            udp(64, 1),
            tight_bytes,
            vec![1; 13],
        ];
        assert_eq!(bytes, plain);
        for (_, meta) in &sent[..2] {
            let layout = meta.layout.unwrap();
            assert_eq!((layout.vlans, layout.transport), (0, ETHERNET_IPV4 as u16));
            let start = ETHERNET_IPV4 as u16;
            assert_eq!(meta.checksum, ChecksumState::Partial { start, offset: 16 });
        }
        assert_eq!(rig.tx.held(), 0);
    }
}

#[test]
fn other_tags_and_none_pass_as_they_are() {
    let mut rig = rig(|fake| Vlan::single(fake, 7));
    for tags in [
        &[][..],
        &[[0x81, 0, 0, 8]],
        &[[0x88, 0xa8, 0, 7]],
        &[[0x81, 0, 0xe0, 7]],
    ] {
        let bytes = tagged(tags, &udp(20, 0));
        let packet = rig.arena.packet_from(&bytes).unwrap();
        rig.transmit(packet);
        let sent = rig.fake.sent().remove(0).0;
        // Only the last one's number and protocol are the wrapper's; its priority is its own.
        let ours = tags.first().is_some_and(|tag| tag[2] == 0xe0);
        assert_eq!(sent, if ours { udp(20, 0) } else { bytes });
    }
    let capabilities = rig.driver.capabilities();
    assert_eq!(
        (
            capabilities.tx_segments_max,
            capabilities.tx_gso_segments_max
        ),
        (7, 7)
    );
    assert!(!capabilities.tx.contains(Features::VLAN));
}
