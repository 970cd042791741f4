use super::*;
use crate::conformance::{Injects, Observes, Outside, Rig, Skip, Traits};
use crate::driver::{
    Armed, Completed, Driver, RxBuffers, RxDescriptors, Token, TxDescriptors, TxPacket,
};
use crate::driver_conformance;
use crate::limits::BURST_PACKETS_MAX;
use crate::packet::{ArenaConfig, Burst, Ingress, Packet, VlanTag};
use crate::plan::FitLimits;
use crate::port::sys::event::is_ready;
use crate::queue::{RxQueue, TxQueue};
use crate::time::Instant;
use std::collections::VecDeque;

mod trouble;

/// An attached endpoint with its own arena and one queue of the framework each way.
struct Station {
    rx: RxQueue<SimRx>,
    tx: TxQueue<SimTx>,
    driver: Sim,
    arena: Arena,
}

impl Station {
    fn new(driver: Sim, how: &Attach) -> Self {
        Self::new_in(driver, how, Arena::new(ArenaConfig::small()).unwrap())
    }

    fn new_in(mut driver: Sim, how: &Attach, arena: Arena) -> Self {
        let capabilities = driver.capabilities();
        let (rx, tx) = driver.attach(how, &arena).unwrap().remove(0);
        let (ingress, link) = (Ingress::default(), capabilities.link);
        let mut rx = RxQueue::new(
            rx,
            arena.clone(),
            link,
            ingress,
            Arc::default(),
            Arc::default(),
        );
        assert!(rx.device_mut().refill(&arena));
        let tx = TxQueue::new(
            tx,
            arena.clone(),
            capabilities.tx,
            FitLimits::new(&capabilities, None),
            capabilities.tx_ring,
            Arc::default(),
            Arc::default(),
        );
        Self {
            rx,
            tx,
            driver,
            arena,
        }
    }

    /// Drops the queues and checks that no frame is left anywhere.
    fn close(self) {
        let Self { rx, tx, arena, .. } = self;
        drop((rx, tx));
        let (census, config) = (arena.census(), arena.config());
        assert_eq!(census.small_free, config.small_frames);
        assert_eq!(census.large_free, config.large_frames);
        assert_eq!(census.lines_free, config.lines);
    }

    fn send(&mut self, packets: &[Outside]) {
        let mut burst = Burst::new();
        for packet in packets {
            let packet = packet.to_packet(&self.arena, self.driver.config().link, || 1500);
            burst.push(packet.unwrap()).unwrap();
        }
        self.tx.transmit(&mut burst).unwrap();
        assert!(burst.is_empty());
    }

    fn receive(&mut self) -> Vec<Outside> {
        let mut burst = Burst::new();
        self.rx.poll(Instant::default(), &mut burst, 64).unwrap();
        burst.iter().map(Outside::of).collect()
    }
}

/// The endpoint under test, and the other one as its outside.
struct SimRig {
    near: Sim,
    far: Option<Station>,
    seen: VecDeque<Outside>,
}

impl SimRig {
    fn new(near: SimConfig, seed: u64) -> Self {
        let link = near.link;
        let near = SimConfig {
            flow_control: true,
            ..near
        };
        let far = SimConfig {
            name: "far".to_owned(),
            link,
            rx_ring: 64,
            flow_control: true,
            ..SimConfig::default()
        };
        let (near, far) = pair(near, far, seed);
        Self {
            near,
            far: Some(Station::new(far, &Attach::default())),
            seen: VecDeque::new(),
        }
    }

    fn far(&mut self) -> &mut Station {
        self.far.as_mut().unwrap()
    }
}

impl Rig for SimRig {
    type Driver = Sim;

    fn traits(&self) -> Traits {
        Traits {
            injects: Injects::Live,
            observes: Observes::Live,
            window: 32,
            fills: true,
            injects_offloads: Features::CSUM | Features::TSO | Features::USO,
            injects_bad: true,
            counts_exactly: true,
            ..Traits::default()
        }
    }

    fn driver(&mut self) -> &mut Sim {
        &mut self.near
    }

    fn inject(&mut self, packet: &Outside) -> bool {
        self.tick();
        if !self.far().tx.is_ready() {
            return false;
        }
        self.far().send(std::slice::from_ref(packet));
        true
    }

    fn inject_bad(&mut self) -> bool {
        self.tick();
        if self.far().tx.in_flight() > 0 {
            // Something waits for buffers, and would be the next to arrive.
            return false;
        }
        self.near.control().corrupt_next(1);
        self.inject(&Outside::finished(vec![0; 60]))
    }

    fn observe(&mut self) -> Option<Outside> {
        if self.seen.is_empty() {
            let received = self.far().receive();
            self.seen.extend(received);
        }
        self.seen.pop_front()
    }

    fn tick(&mut self) {
        let far = self.far();
        far.tx.transmit(&mut Burst::new()).unwrap();
        far.tx.reclaim();
    }
}

impl Drop for SimRig {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.near.control().counters().unfit, 0);
            self.far.take().unwrap().close();
        }
    }
}

/// Rings small enough to be full now and then.
fn small() -> SimConfig {
    SimConfig {
        tx_ring: 96,
        rx_ring: 128,
        ..SimConfig::default()
    }
}

fn plain(seed: u64) -> Result<SimRig, Skip> {
    Ok(SimRig::new(small(), seed))
}

fn like_virtio(seed: u64) -> Result<SimRig, Skip> {
    let rx = Features::CSUM | Features::TSO | Features::USO | Features::VLAN;
    let tx = Features::ALL.without(Features::LARGE_RECEIVE);
    Ok(SimRig::new(SimConfig { rx, tx, ..small() }, seed))
}

fn humble(seed: u64) -> Result<SimRig, Skip> {
    let config = SimConfig {
        tx: Features::NONE,
        segments: 1,
        gso_segments: 1,
        tx_ring: 16,
        min_packet_bytes: 60,
        ..small()
    };
    Ok(SimRig::new(config, seed))
}

fn late_and_reordered(seed: u64) -> Result<SimRig, Skip> {
    let delay = match seed % 3 {
        0 => CompletionDelay::Flushes(3),
        1 => CompletionDelay::Reclaims(4),
        _ => CompletionDelay::Packets(20),
    };
    Ok(SimRig::new(
        SimConfig {
            delay,
            reorder: true,
            ..small()
        },
        seed,
    ))
}

fn awkward(seed: u64) -> Result<SimRig, Skip> {
    let config = SimConfig {
        segments: 3,
        gso_segments: 8,
        segment_bytes: 1600,
        memory: TxMemory::SmallFrames,
        contiguous_headers: true,
        delay: CompletionDelay::Packets(7),
        ..small()
    };
    Ok(SimRig::new(config, seed))
}

fn refusing(seed: u64) -> Result<SimRig, Skip> {
    let config = SimConfig {
        refuse: Features::TSO4 | Features::USO6 | Features::CSUM6 | Features::VLAN,
        tx: Features::ALL,
        ..small()
    };
    Ok(SimRig::new(config, seed))
}

fn refusing_segments(seed: u64) -> Result<SimRig, Skip> {
    Ok(SimRig::new(
        SimConfig {
            refuse_segments: Some(2),
            ..small()
        },
        seed,
    ))
}

fn raw_ip(seed: u64) -> Result<SimRig, Skip> {
    let rx = Features::CSUM4 | Features::TSO4;
    Ok(SimRig::new(
        SimConfig {
            link: LinkType::RawIp,
            rx,
            ..small()
        },
        seed,
    ))
}

driver_conformance!(conformance_plain, plain);
driver_conformance!(conformance_like_virtio, like_virtio);
driver_conformance!(conformance_humble, humble);
driver_conformance!(conformance_late_and_reordered, late_and_reordered);
driver_conformance!(conformance_awkward, awkward);
driver_conformance!(conformance_refusing, refusing);
driver_conformance!(conformance_refusing_segments, refusing_segments);
driver_conformance!(conformance_raw_ip, raw_ip);

/// A frame of `bytes` bytes that says which one it is.
fn frame(number: usize, bytes: usize) -> Outside {
    let mut frame = vec![number as u8; bytes];
    frame[12..14].copy_from_slice(&0x88B5_u16.to_be_bytes());
    frame[14..18].copy_from_slice(&(number as u32).to_be_bytes());
    Outside::finished(frame)
}

fn frames(count: usize, bytes: usize) -> Vec<Outside> {
    (0..count).map(|number| frame(number, bytes)).collect()
}

fn stations(a: SimConfig, b: SimConfig) -> (Station, Station) {
    let (a, b) = pair(a, b, 7);
    let attach = Attach::default();
    (Station::new(a, &attach), Station::new(b, &attach))
}

fn counters(station: &Station) -> DeviceCounters {
    station.driver.control().device_counters()
}

#[test]
fn packets_are_invisible_before_the_doorbell() {
    let (mut a, mut b) = stations(small(), small());
    let mut packet = a.arena.packet_from(&frame(1, 100).bytes).unwrap();
    {
        let mut fitted = TxPacket::fitted(&mut packet);
        let device = a.tx.device_mut();
        device.encap(&mut fitted, Token(3)).unwrap();
        assert_eq!(device.doorbells(), 0);
    }
    assert!(b.receive().is_empty());
    a.tx.device_mut().flush().unwrap();
    a.tx.device_mut().flush().unwrap();
    assert_eq!(
        a.tx.device_mut().doorbells(),
        1,
        "a doorbell without packets is none"
    );
    assert_eq!(b.receive().len(), 1);
    let mut done = Completed::with_capacity(8);
    a.tx.device_mut().reclaim(&mut done);
    assert_eq!(done.drain().collect::<Vec<_>>(), [Token(3)]);
    drop(packet);
    a.close();
    b.close();
}

#[test]
fn a_ring_of_n_takes_n_minus_1_packets_and_counts_the_others_as_lost() {
    let config = SimConfig {
        rx_ring: 32,
        ..SimConfig::default()
    };
    let (mut a, mut b) = stations(SimConfig::default(), config);
    a.send(&frames(50, 200));
    assert_eq!(b.receive(), frames(31, 200), "one descriptor stays empty");
    let device = counters(&b);
    assert_eq!(
        (device.tx_packets, device.tx_bytes, device.tx_dropped),
        (31, 31 * 200, 19)
    );
    let (device, wire) = (counters(&a), a.driver.control().counters());
    assert_eq!(
        (device.rx_packets, device.rx_bytes, device.rx_dropped),
        (50, 50 * 200, 0)
    );
    assert_eq!((wire.wire_packets, wire.wire_bytes), (50, 50 * 200));
    a.send(&frames(10, 200));
    assert_eq!(
        b.receive(),
        frames(10, 200),
        "it goes on with fresh buffers"
    );
    a.close();
    b.close();
}

/// iflib posts half a ring at first, and all of it after the first receive (mechanisms-bsd.md 3.8,
/// case 7). Here it is all that the ring takes, one descriptor less than it has, each time.
#[test]
fn as_many_buffers_are_posted_as_a_ring_takes_and_never_more() {
    const RING: u32 = 256;
    let config = SimConfig {
        rx_ring: RING as usize,
        ..SimConfig::default()
    };
    let (mut a, mut b) = stations(SimConfig::default(), config);
    let before = b.arena.config().small_frames;
    let posted = |b: &Station, held: usize| {
        let census = b.arena.census();
        assert_eq!(census.small_free + census.small_used, before, "one is lost");
        census.small_used - held as u32
    };
    assert_eq!(posted(&b, 0), RING - 1, "attached");
    // As few and as many as a receive takes, and more than there are buffers.
    for (sent, arrive) in [(1, 1), (64, 64), (0, 0), (255, 255), (300, 255)] {
        for part in frames(sent, 200).chunks(BURST_PACKETS_MAX) {
            a.send(part);
            a.tx.reclaim();
            assert_eq!(posted(&b, 0), RING - 1, "as many as before are the ring's");
        }
        let (mut kept, mut passes) = (Vec::new(), 0);
        while kept.len() < arrive || passes == 0 {
            let mut burst = Burst::new();
            b.rx.poll(Instant::default(), &mut burst, 64).unwrap();
            kept.extend(std::iter::from_fn(|| burst.pop()));
            passes += 1;
            assert_eq!(posted(&b, kept.len()), RING - 1, "{sent}, pass {passes}");
            assert!(b.rx.device_mut().refill(&b.arena));
            assert_eq!(posted(&b, kept.len()), RING - 1, "asked once more");
        }
        assert_eq!((kept.len(), passes), (arrive, arrive.div_ceil(64).max(1)));
        drop(kept);
        assert_eq!(posted(&b, 0), RING - 1, "what came back is not posted, too");
    }
    assert_eq!(counters(&b).tx_dropped, 300 - 255);
    assert_eq!(b.rx.counters().snapshot().alloc_fail, 0);
    a.close();
    b.close();
}

#[test]
fn a_long_packet_takes_one_large_buffer_or_several_small_ones() {
    for (rx_buffers, segments) in [(RxBuffers::Whole, 2), (RxBuffers::Pieces, 37)] {
        let (a, b) = pair(SimConfig::default(), SimConfig::default(), 7);
        let how = Attach {
            rx_buffers,
            ..Attach::default()
        };
        let (mut a, mut b) = (Station::new(a, &Attach::default()), Station::new(b, &how));
        let long = frame(9, 65_549);
        let packet = a.arena.packet_from(&long.bytes).unwrap();
        let mut burst = Burst::new();
        burst.push(packet).unwrap();
        a.tx.transmit(&mut burst).unwrap();
        b.rx.poll(Instant::default(), &mut burst, 64).unwrap();
        let got = burst.pop().unwrap();
        assert_eq!(Outside::of(&got), long);
        assert_eq!(got.segment_count(), segments);
        drop(got);
        a.close();
        b.close();
    }
}

/// Sends one long packet from a to b, and gives what arrives.
fn carry(a: &mut Station, b: &mut Station, sent: &Packet) -> Packet {
    let mut burst = Burst::new();
    burst.push(sent.try_clone().unwrap()).unwrap();
    a.tx.transmit(&mut burst).unwrap();
    a.tx.reclaim();
    assert_eq!(a.tx.in_flight(), 0, "the sender may forget it");
    b.rx.poll(Instant::default(), &mut burst, 64).unwrap();
    burst.pop().unwrap()
}

#[test]
fn a_long_packet_is_shared_where_that_is_wished_and_can_be() {
    // Wished, in one arena, whole; and whether frames for it are taken.
    let cases = [
        ((true, true, RxBuffers::Whole), false),
        ((false, true, RxBuffers::Whole), true),
        ((true, false, RxBuffers::Whole), true),
        ((true, true, RxBuffers::Pieces), true),
    ];
    for ((rx_shares, one_arena, rx_buffers), copied) in cases {
        let shares = SimConfig {
            rx_shares,
            rx_ring: 64,
            ..SimConfig::default()
        };
        let (a, b) = pair(SimConfig::default(), shares, 7);
        let how = Attach {
            rx_buffers,
            ..Attach::default()
        };
        let mut a = Station::new(a, &Attach::default());
        let arena = if one_arena {
            a.arena.clone()
        } else {
            Arena::new(ArenaConfig::small()).unwrap()
        };
        let mut b = Station::new_in(b, &how, arena);
        let long = frame(9, 65_549);
        let sent = a.arena.packet_from(&long.bytes).unwrap();
        let posted = b.arena.census();
        let mut got = carry(&mut a, &mut b, &sent);
        assert_eq!(Outside::of(&got), long);
        // What was taken from the ring has been posted again from fresh frames.
        let taken = b.arena.census();
        let large = taken.large_used - posted.large_used;
        let small = taken.small_used - posted.small_used;
        assert_eq!(large == 0 && small == 1, !copied, "{large} {small}");
        // Who writes writes to bytes of its own.
        got.headers_mut(64).unwrap().fill(0xEE);
        assert_eq!(Outside::of(&sent), long);
        // And the sender may go first.
        drop(sent);
        assert_eq!(Outside::of(&got).bytes[64..], long.bytes[64..]);
        drop(got);
        if one_arena {
            drop((a.rx, a.tx));
        } else {
            a.close();
        }
        b.close();
    }
}

#[test]
fn shared_packets_come_with_tags_and_offloads_as_copied_ones_do() {
    let arena = Arena::new(ArenaConfig::default()).unwrap();
    for strips in [Features::NONE, Features::VLAN] {
        for inserted in [
            None,
            Some(VlanTag {
                protocol: 0x8100,
                control: 5,
            }),
        ] {
            for in_bytes in [false, true] {
                let arrived = [false, true].map(|rx_shares| {
                    let receives = SimConfig {
                        rx: Features::CSUM | Features::TSO | Features::USO | strips,
                        rx_shares,
                        rx_ring: 64,
                        ..SimConfig::default()
                    };
                    let sends = SimConfig {
                        tx: Features::ALL.without(Features::LARGE_RECEIVE),
                        ..SimConfig::default()
                    };
                    let (a, b) = pair(sends, receives, 7);
                    let how = Attach {
                        rx: Features::ALL,
                        ..Attach::default()
                    };
                    let mut a = Station::new_in(a, &how, arena.clone());
                    let mut b = Station::new_in(b, &how, arena.clone());
                    let mut bytes = frame(3, 30_000).bytes;
                    if in_bytes {
                        bytes[12..16].copy_from_slice(&[0x81, 0, 0, 7]);
                    }
                    let mut packet = arena.packet_from(&bytes).unwrap();
                    packet.meta_mut().vlan = inserted;
                    let got = carry(&mut a, &mut b, &packet);
                    (Outside::of(&got), got.meta().vlan, got.meta().checksum)
                });
                assert_eq!(arrived[0], arrived[1], "{strips:?} {inserted:?} {in_bytes}");
            }
        }
    }
}

#[test]
fn without_lines_for_sharing_a_packet_is_copied() {
    let config = ArenaConfig {
        small_frames: 256,
        large_frames: 64,
        lines: 512,
    };
    let arena = Arena::new(config).unwrap();
    let receives = SimConfig {
        rx_shares: true,
        rx_ring: 16,
        ..SimConfig::default()
    };
    let sends = SimConfig {
        rx_ring: 16,
        ..SimConfig::default()
    };
    let (a, b) = pair(sends, receives, 7);
    let mut a = Station::new_in(a, &Attach::default(), arena.clone());
    let mut b = Station::new_in(b, &Attach::default(), arena.clone());
    // More pieces than a packet's first line refers to, each of another frame.
    let mut sent = arena.empty_packet().unwrap();
    for number in 0..12 {
        let piece = arena.packet_from(&[number; 1700]).unwrap();
        sent.append(piece).map_err(|(error, _)| error).unwrap();
    }
    let mut burst = Burst::new();
    burst.push(sent.try_clone().unwrap()).unwrap();
    // The device takes its own reference at once, and looks for buffers at the doorbell: no line is
    // left then.
    let mut all = Vec::new();
    let wanted = Outside::of(&sent);
    let device = a.tx.device_mut();
    let mut packet = burst.pop().unwrap();
    let accepted = device.encap(&mut TxPacket::fitted(&mut packet), Token(0));
    assert_eq!(accepted, Ok(crate::driver::Accepted::Pending));
    while let Ok(packet) = arena.empty_packet() {
        all.push(packet);
    }
    device.flush().unwrap();
    all.clear();
    b.rx.poll(Instant::default(), &mut burst, 64).unwrap();
    let got = burst.pop().unwrap();
    assert_eq!(Outside::of(&got), wanted);
    assert_eq!(got.segment_count(), 2, "a small buffer and a large one");
}

#[test]
fn every_nth_packet_is_bad_and_costs_itself() {
    let config = SimConfig {
        corrupt_every: 5,
        ..SimConfig::default()
    };
    let (mut a, mut b) = stations(SimConfig::default(), config);
    // Some of them take two buffers.
    let sent: Vec<_> = (0..40).map(|n| frame(n, 100 + n * 90)).collect();
    a.send(&sent);
    let good = sent.iter().enumerate().filter(|(n, _)| (n + 1) % 5 != 0);
    assert_eq!(
        b.receive(),
        good.map(|(_, f)| f.clone()).collect::<Vec<_>>()
    );
    assert_eq!(b.rx.counters().bad_packets.get(), 8);
    assert_eq!(b.rx.counters().wire_packets.get(), 40);
    a.close();
    b.close();
}

#[test]
fn a_bad_packet_in_several_buffers_gives_all_of_them_back() {
    let (a, b) = pair(SimConfig::default(), SimConfig::default(), 7);
    let how = Attach {
        rx_buffers: RxBuffers::Pieces,
        ..Attach::default()
    };
    let (mut a, mut b) = (Station::new(a, &Attach::default()), Station::new(b, &how));
    // More packets of three buffers each than the ring has buffers.
    for lap in 0..400 {
        let sent = frames(3, 5000);
        a.send(&sent[..1]);
        b.driver.control().corrupt_next(1);
        a.send(&sent[1..]);
        a.tx.reclaim();
        assert_eq!(b.receive(), [sent[0].clone(), sent[2].clone()], "lap {lap}");
    }
    assert_eq!(b.rx.counters().bad_packets.get(), 400);
    assert_eq!(counters(&b).rx_dropped, 0, "there was a buffer for each");
    a.close();
    b.close();
}

#[test]
fn tags_are_stripped_and_inserted_as_agreed() {
    let vlan = SimConfig {
        rx: Features::VLAN,
        tx: Features::VLAN,
        ..SimConfig::default()
    };
    let tag = VlanTag {
        protocol: 0x8100,
        control: 0x2005,
    };
    let plain = frame(3, 80);
    let tagged = {
        let mut bytes = plain.bytes.clone();
        bytes.splice(12..12, [0x81, 0, 0x20, 5]);
        bytes
    };
    for (strips, in_band) in [(false, false), (false, true), (true, false), (true, true)] {
        let to = if strips {
            vlan.clone()
        } else {
            SimConfig::default()
        };
        let (mut a, mut b) = stations(vlan.clone(), to);
        let bytes = if in_band { &tagged } else { &plain.bytes };
        let mut packet = a.arena.packet_from(bytes).unwrap();
        packet.meta_mut().vlan = (!in_band).then_some(tag);
        let mut burst = Burst::new();
        burst.push(packet).unwrap();
        a.tx.transmit(&mut burst).unwrap();
        b.rx.poll(Instant::default(), &mut burst, 1).unwrap();
        let got = burst.pop().unwrap();
        assert_eq!(got.meta().vlan, strips.then_some(tag));
        let want = if strips { &plain.bytes } else { &tagged };
        assert_eq!(got.first(), want);
        drop(got);
        a.close();
        b.close();
    }
}

#[test]
fn completions_come_late_out_of_order_and_all() {
    let config = SimConfig {
        delay: CompletionDelay::Packets(10),
        reorder: true,
        ..SimConfig::default()
    };
    let (mut a, b) = stations(config, SimConfig::default());
    let device = a.tx.device_mut();
    let mut packets: Vec<_> = (0..40)
        .map(|n| a.arena.packet_from(&frame(n, 100).bytes).unwrap())
        .collect();
    for (n, packet) in packets.iter_mut().enumerate() {
        let mut fitted = TxPacket::fitted(packet);
        device.encap(&mut fitted, Token(n as u32)).unwrap();
    }
    device.flush().unwrap();
    let mut completed = Completed::with_capacity(64);
    device.reclaim(&mut completed);
    let mut done: Vec<_> = completed.drain().map(|token| token.0).collect();
    assert_eq!(done.len(), 30, "the last ten wait for ten more packets");
    assert!(!done.is_sorted(), "in order: {done:?}");
    for _ in 0..10 {
        device.reclaim(&mut completed);
        done.extend(completed.drain().map(|token| token.0));
    }
    done.sort_unstable();
    assert_eq!(
        done,
        (0..40).collect::<Vec<_>>(),
        "an idle device reports the rest"
    );
    drop(packets);
    a.close();
    b.close();
}

#[test]
fn the_same_seed_gives_the_same_order() {
    let order = |seed| {
        let config = SimConfig {
            reorder: true,
            ..SimConfig::default()
        };
        let (a, _b) = pair(config, SimConfig::default(), seed);
        let mut a = Station::new(a, &Attach::default());
        let device = a.tx.device_mut();
        for n in 0..20 {
            let mut packet = a.arena.packet_from(&frame(n, 100).bytes).unwrap();
            let mut fitted = TxPacket::fitted(&mut packet);
            device.encap(&mut fitted, Token(n as u32)).unwrap();
        }
        device.flush().unwrap();
        let mut completed = Completed::with_capacity(64);
        device.reclaim(&mut completed);
        completed.drain().collect::<Vec<_>>()
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
}

#[test]
fn far_ends_discard_or_echo() {
    let mut discard = Station::new(Sim::alone(small(), Far::Discard, 1), &Attach::default());
    discard.send(&frames(20, 300));
    assert_eq!(discard.tx.reclaim(), 20);
    assert!(discard.receive().is_empty());
    assert_eq!(counters(&discard).rx_packets, 20);
    assert_eq!(discard.driver.control().counters().wire_packets, 20);
    discard.close();
    let mut echo = Station::new(Sim::alone(small(), Far::Echo, 1), &Attach::default());
    echo.send(&frames(20, 300));
    assert_eq!(echo.receive(), frames(20, 300));
    assert_eq!(
        (counters(&echo).rx_packets, counters(&echo).tx_packets),
        (20, 20)
    );
    echo.close();
}

#[test]
fn without_a_link_packets_are_dropped_and_it_comes_back() {
    let (mut a, mut b) = stations(small(), small());
    b.driver.control().set_link(false);
    assert_eq!(a.driver.link(), Link::Down);
    a.send(&frames(10, 100));
    a.driver.control().set_link(true);
    assert_eq!(a.driver.link(), Link::Up);
    a.send(&frames(5, 100));
    assert_eq!(b.receive(), frames(5, 100));
    assert_eq!(a.tx.counters().packets.get(), 5);
    a.close();
    b.close();
}

#[test]
fn a_removed_device_gives_its_packets_back_and_says_so() {
    let config = SimConfig {
        delay: CompletionDelay::Reclaims(50),
        ..small()
    };
    let (mut a, mut b) = stations(config, small());
    a.send(&frames(10, 100));
    assert_eq!(a.tx.in_flight(), 10);
    a.driver.control().remove();
    assert_eq!(
        (a.driver.link(), b.driver.link()),
        (Link::Removed, Link::Down)
    );
    assert_eq!(a.tx.reclaim(), 10);
    let mut burst = Burst::new();
    burst.push(a.arena.packet_from(&[0; 60]).unwrap()).unwrap();
    assert!(matches!(
        a.tx.transmit(&mut burst),
        Err(DeviceError::Removed)
    ));
    let polled = a.rx.poll(Instant::default(), &mut burst, 1);
    assert!(matches!(polled, Err(DeviceError::Removed)));
    assert_eq!(b.receive(), frames(10, 100), "what was on the wire arrives");
    a.close();
    b.close();
}

#[test]
fn a_paused_transmitter_is_woken_by_buffers() {
    let config = SimConfig {
        rx_ring: 8,
        flow_control: true,
        ..SimConfig::default()
    };
    let (mut a, mut b) = stations(SimConfig::default(), config);
    a.send(&frames(30, 100));
    while a.tx.reclaim() > 0 {}
    assert_eq!(a.tx.in_flight(), 23, "seven descriptors hold seven packets");
    assert_eq!(a.tx.arm(), Armed::Idle);
    let readable = |a: &Station| {
        let (fd, interest) = a.tx.wake().unwrap();
        is_ready(fd, interest, std::time::Duration::ZERO).unwrap()
    };
    assert!(!readable(&a));
    let mut got = b.receive();
    assert!(readable(&a), "buffers were posted");
    for _ in 0..10 {
        a.tx.reclaim();
        got.extend(b.receive());
    }
    assert_eq!(got, frames(30, 100));
    assert_eq!(counters(&b).tx_dropped, 0);
    a.close();
    b.close();
}

#[test]
fn queue_i_feeds_queue_i_modulo_the_receivers() {
    let arena = Arena::new(ArenaConfig::small()).unwrap();
    let config = SimConfig {
        rx_ring: 32,
        ..SimConfig::default()
    };
    let (mut a, mut b) = pair(config.clone(), config, 3);
    let how = |queues| Attach {
        queues,
        ..Attach::default()
    };
    let mut sending = a.attach(&how(4), &arena).unwrap();
    let mut receiving = b.attach(&how(2), &arena).unwrap();
    assert!(a.attach(&how(1), &arena).is_err(), "it is attached already");
    for (rx, _) in &mut receiving {
        assert!(rx.refill(&arena));
    }
    for (queue, (_, tx)) in sending.iter_mut().enumerate() {
        let mut packet = arena.packet_from(&frame(queue, 100).bytes).unwrap();
        let mut fitted = TxPacket::fitted(&mut packet);
        tx.encap(&mut fitted, Token(0)).unwrap();
        tx.flush().unwrap();
    }
    for (queue, (rx, _)) in receiving.into_iter().enumerate() {
        let (counters, drops) = (Arc::default(), Arc::default());
        let link = LinkType::Ethernet;
        let ingress = Ingress::default();
        let mut rx = RxQueue::new(rx, arena.clone(), link, ingress, counters, drops);
        let mut burst = Burst::new();
        rx.poll(Instant::default(), &mut burst, 64).unwrap();
        let got: Vec<_> = burst.iter().map(Outside::of).collect();
        assert_eq!(got, [frame(queue, 100), frame(queue + 2, 100)]);
    }
}

#[test]
fn two_threads_lose_nothing_with_flow_control() {
    const COUNT: usize = 20_000;
    let config = SimConfig {
        rx_ring: 64,
        flow_control: true,
        ..SimConfig::default()
    };
    let (mut a, mut b) = stations(SimConfig::default(), config);
    let patience = std::time::Duration::from_secs(60);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut burst = Burst::new();
            let mut sent = 0;
            while sent < COUNT || !a.tx.is_ready() || a.tx.in_flight() > 0 {
                while sent < COUNT && burst.room() > 0 {
                    let Ok(packet) = a.arena.packet_from(&frame(sent, 64).bytes) else {
                        break;
                    };
                    burst.push(packet).unwrap();
                    sent += 1;
                }
                a.tx.transmit(&mut burst).unwrap();
                if a.tx.reclaim() == 0 && a.tx.arm() == Armed::Idle && !a.tx.is_ready() {
                    let (fd, interest) = a.tx.wake().unwrap();
                    assert!(is_ready(fd, interest, patience).unwrap(), "never woken");
                }
            }
            a.arena.flush_cache();
        });
        let mut next = 0;
        while next < COUNT {
            let got = b.receive();
            for packet in &got {
                assert_eq!(*packet, frame(next, 64));
                next += 1;
            }
            if got.is_empty() && b.rx.arm() == Armed::Idle {
                let (fd, interest) = b.rx.wake().unwrap();
                assert!(
                    is_ready(fd, interest, patience).unwrap(),
                    "never woken at {next}"
                );
            }
        }
    });
    assert_eq!(counters(&a).rx_packets, COUNT as u64);
    assert_eq!(counters(&b).tx_packets, COUNT as u64);
    a.close();
    b.close();
}

#[test]
fn values_out_of_range_are_refused_by_name() {
    let (mut a, _b) = pair(
        SimConfig {
            rx_ring: 4,
            ..SimConfig::default()
        },
        SimConfig::default(),
        1,
    );
    let arena = Arena::new(ArenaConfig::small()).unwrap();
    let error = a.attach(&Attach::default(), &arena).unwrap_err();
    assert_eq!(
        error.to_string(),
        "sim0: rx_ring is 4, and must be from 8 to 4096"
    );
    let (mut a, _b) = pair(SimConfig::default(), SimConfig::default(), 1);
    let queues = Attach {
        queues: 17,
        ..Attach::default()
    };
    let error = a.attach(&queues, &arena).unwrap_err();
    let want = "sim0: 17 queues were asked for, and it has from 1 to 16";
    assert_eq!(error.to_string(), want);
}
