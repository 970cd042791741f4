//! The driver on a table of registers. Numbers are those of Linux's headers, not of `registers.rs`.

use super::*;
use crate::driver::{Accepted, Armed, Refused, RxDescriptors, TxDescriptors};
use crate::packet::{ArenaConfig, FrameClass, Packet};
use crate::port::card::bench::{Bench, has_come, tcp};
use crate::port::card::fake::Fake;
use crate::stats::DropReason;
use packtrain_offload::layout::{Layout, Transport};
use packtrain_offload::offload::{ChecksumState, GsoKind, LinkType};
use packtrain_offload::segment::Segmenter;
use std::time::Duration;

const COMMAND: usize = 0x20;
const ACTIVATE: u32 = 0xcafe_0000;
const QUIESCE: u32 = 0xcafe_0001;
const GET_LINK: u32 = 0xf00d_0002;
const RINGS: usize = 96;

/// A card of these versions.
fn card(versions: u32) -> Fake {
    let fake: Fake = Fake::default();
    let mut state = fake.state();
    state.config.insert(0, 0x07b0_15ad);
    state.interrupts = [25, 1, 1];
    state.ones.insert(8, 1);
    state.replies.insert((COMMAND, ACTIVATE), 0);
    state.replies.insert((COMMAND, GET_LINK), 10_000 << 16 | 1);
    state.replies.insert((COMMAND, 0xf00d_0008), 0);
    drop(state);
    fake.write32(1, 0, versions);
    fake.write32(1, 0x28, 0x0052_5456);
    fake.write32(1, 0x30, 0x0c0b);
    fake
}

fn small() -> Vmxnet3Config {
    Vmxnet3Config {
        rings: RINGS,
        ..Vmxnet3Config::default()
    }
}

type Test = Bench<Vmxnet3<Fake>>;

impl Test {
    fn new(versions: u32, config: &Vmxnet3Config, queues: usize) -> Self {
        let fake = card(versions);
        let port = Vmxnet3::open(fake.clone(), config).unwrap();
        let how = Attach {
            queues,
            ..Attach::default()
        };
        let frames = ArenaConfig {
            small_frames: 700,
            large_frames: 2,
            lines: 900,
        };
        let mut bench = Self::attach(fake, port, &how, frames);
        for (rx, _) in &mut bench.queues {
            // The table writes no counters.
            rx.queue.recheck_at = Instant::default().after(Duration::from_secs(9));
            assert!(rx.refill(&bench.arena));
        }
        bench
    }

    /// The card writes the next completion, of RX or of TX.
    fn complete(&mut self, is_tx: bool, mut words: [u32; 4]) {
        let number = self.written[usize::from(is_tx)];
        self.written[usize::from(is_tx)] += 1;
        let (rx, tx) = &mut self.queues[0];
        let ring = if is_tx {
            &mut tx.queue.completions
        } else {
            &mut rx.queue.completions
        };
        let is_first_round = (number / ring.count()).is_multiple_of(2);
        words[3] |= u32::from(is_first_round) << 31;
        ring.fill(number % ring.count(), words);
    }

    /// A packet in one buffer of the first ring.
    fn arrive(&mut self, index: u32, bytes: u32, last: u32) {
        self.complete(false, [index | 1 << 14 | 1 << 15, 0, bytes, last]);
    }

    /// Lengths, and reasons of bad ones.
    fn received(&mut self) -> (Vec<usize>, Vec<DropReason>) {
        let packets = self.receive();
        let lengths = packets.iter().map(Packet::bytes).collect();
        drop(packets);
        assert!(self.refill());
        (lengths, std::mem::take(&mut self.bad.0))
    }

    /// The words 2 and 3 of a TX descriptor.
    fn descriptor(&self, index: usize) -> [u32; 2] {
        let area = self.port.area.as_ref().unwrap();
        let start = (self.shared(0x410) - area.address()) as usize;
        [8, 12].map(|word| area.memory.load(start + 16 * index + word))
    }

    /// 64 bits of the memory; the descriptions of queues are at 0x400.
    fn shared(&self, at: usize) -> u64 {
        let memory = &self.port.area.as_ref().unwrap().memory;
        u64::from(memory.load(at)) | u64::from(memory.load(at + 4)) << 32
    }
}

#[test]
fn the_card_is_told_of_its_queues_and_activated() {
    let bench = Test::new(3, &small(), 2);
    let (fake, memory) = (&bench.fake, &bench.port.area.as_ref().unwrap().memory);
    let word = |at: usize| memory.load(at);
    assert_eq!(bench.port.address(), [0x56, 0x54, 0x52, 0, 0x0b, 0x0c]);
    // Revision 2 of 2 is taken.
    assert_eq!(fake.state().word(1, 0), 2);
    let address = [0x10, 0x18].map(|at| u64::from(fake.state().word(1, at)));
    assert_eq!(address[0] | address[1] << 32, memory.address());
    let expected = [
        (0, 0xbabe_fee1),
        (12, 6),
        (16, 1),
        (20, 1),
        // RXCSUM, RSS, LRO.
        (24, 0b1011),
        (52, 4 * 256),
        (56, 1500),
        // 37 pieces, two queues each.
        (60, 37 | 2 << 16 | 2 << 24),
        // autoMask, 4 interrupts, and the events come with 0.
        (80, 1 | 4 << 8),
        (84, 0),
        // UCAST, BCAST, ALL_MULTI, PROMISC.
        (120, 0x1d),
        (136, u32::MAX),
        (644, u32::MAX),
        (648, 1),
        (652, 176),
    ];
    for (at, value) in expected {
        assert_eq!(word(at), value, "{at}: {:#x}", word(at));
    }
    assert_eq!(bench.shared(40), memory.address() + 0x400);
    let rss = (bench.shared(656) - memory.address()) as usize;
    assert_eq!((word(rss), word(rss + 4)), (0x1_000f, 40 | 128 << 16));
    assert_eq!(word(rss + 48).to_le_bytes(), [0, 1, 0, 1]);
    for index in 0..4 {
        let at = 0x400 + 256 * index;
        let sizes = [56, 60, 64].map(|size| word(at + size));
        let is_rx = index >= 2;
        assert_eq!(sizes, if is_rx { [64, 64, 128] } else { [96, 0, 96] });
        assert_eq!(
            word(at + 72) as usize,
            2 * (index % 2) + usize::from(!is_rx)
        );
        assert_eq!(word(at + 16) % 512, 0);
    }
    assert!(fake.state().is_started);
    // Of a first version nothing is merged, and one descriptor is enough.
    let bench = Test::new(1, &small(), 1);
    let memory = &bench.port.area.as_ref().unwrap().memory;
    assert_eq!((memory.load(24), memory.load(60)), (1, 0x0101_0001));
    assert_eq!(bench.port.capabilities().rx, Features::NONE);
}

#[test]
fn what_cannot_work_is_said_at_once() {
    let why = |fake: &Fake, config: &Vmxnet3Config| {
        Vmxnet3::open(fake.clone(), config).unwrap_err().to_string()
    };
    let other = card(1);
    other.state().config.insert(0, 0x10d3_8086);
    assert!(why(&other, &small()).contains("8086:10d3"));
    assert!(why(&card(4), &small()).contains("unknown (0x4, 0x1)"));
    for (rings, mtu) in [
        (64, 1500),
        (100, 1500),
        (4128, 1500),
        (96, 1499),
        (96, 9001),
    ] {
        let config = Vmxnet3Config {
            rings,
            mtu,
            ..small()
        };
        let wrong = if mtu == 1500 { rings } else { mtu as usize };
        assert!(why(&card(1), &config).contains(&format!("{wrong}")));
    }
    let refusing = card(1);
    refusing.state().replies.insert((COMMAND, ACTIVATE), 1);
    let arena = Arena::new(ArenaConfig::default()).unwrap();
    let mut port = Vmxnet3::open(refusing, &small()).unwrap();
    let error = port.attach(&Attach::default(), &arena).unwrap_err();
    assert!(
        error.to_string().contains("refuses its settings with 0x1"),
        "{error}"
    );
}

#[test]
fn packets_arrive_in_one_buffer_or_in_those_of_both_rings() {
    let mut bench = Test::new(
        1,
        &Vmxnet3Config {
            mtu: 9000,
            ..small()
        },
        1,
    );
    // Both rings go round more than twice.
    for round in 0..250_u32 {
        let index = round % 64;
        let bodies = [2 * round, 2 * round + 1].map(|body| body % 64);
        // Ring 1 of the only queue has the number 1.
        bench.complete(false, [index | 1 << 15, 0, 1792, 0]);
        bench.complete(false, [bodies[0] | 1 << 16, 0, 1792, 0]);
        assert_eq!(bench.received(), (vec![], vec![]));
        bench.complete(false, [bodies[1] | 1 << 16 | 1 << 14, 0, 100, 0]);
        assert_eq!(bench.received(), (vec![3684], vec![]), "{round}");
    }
}

#[test]
fn one_bad_completion_costs_one_packet() {
    let bad = |reason| (vec![], vec![reason]);
    let (good, wrong) = ((vec![60], vec![]), bad(DropReason::BadDescriptor));
    let mut bench = Test::new(1, &small(), 1);
    bench.arrive(0, 60, 0);
    assert_eq!(bench.received(), good);
    // The card has left out two.
    bench.arrive(3, 60, 0);
    assert_eq!(bench.received(), good);
    // An error; longer than the buffer; too short; not posted; no such ring.
    bench.arrive(4, 60 | 1 << 14, 0);
    assert_eq!(bench.received(), wrong);
    bench.arrive(5, 1793, 0);
    assert_eq!(bench.received(), wrong);
    bench.arrive(6, 13, 0);
    assert_eq!(bench.received(), bad(DropReason::Truncated));
    for index in [6, 96, 4095, 7 | 5 << 16] {
        bench.arrive(index, 60, 0);
        assert_eq!(bench.received(), wrong, "{index:#x}");
    }
    // A packet without a begin, and one without an end.
    bench.complete(false, [7 | 1 << 14, 0, 60, 0]);
    assert_eq!(bench.received(), wrong);
    bench.complete(false, [8 | 1 << 15, 0, 60, 0]);
    bench.arrive(9, 60, 0);
    assert_eq!(bench.received(), wrong);
    // A buffer that is left out is none.
    bench.arrive(10, 0, 0);
    assert_eq!(bench.received(), (vec![], vec![]));
    bench.arrive(11, 60, 0);
    assert_eq!(bench.received(), good);
}

#[test]
fn checksums_are_right_if_the_card_says_all_of_it() {
    let mut bench = Test::new(1, &small(), 1);
    let (right, udp, tcp, ip, v6, v4, fragment) = (
        1 << 16,
        1 << 17,
        1 << 18,
        1 << 19,
        1 << 20,
        1 << 21,
        1 << 22,
    );
    let cases = [
        (right | tcp | ip | v4, true),
        (right | udp | ip | v4, true),
        (right | tcp | v6, true),
        (right | tcp | v4, false),
        (tcp | ip | v4, false),
        (right | ip | v4, false),
        (right | udp | ip | v4 | fragment, false),
    ];
    for (index, (last, is_right)) in (0..).zip(cases) {
        bench.arrive(index, 60, last);
        let state = bench.receive()[0].meta().checksum;
        assert_eq!(state == ChecksumState::Unnecessary, is_right, "{last:#x}");
    }
    // Not calculated, and with a hash.
    bench.complete(
        false,
        [7 | 3 << 14 | 1 << 30 | 1 << 26, 0x77, 60, cases[0].0],
    );
    let packet = bench.receive().remove(0);
    assert_eq!(packet.meta().checksum, ChecksumState::None);
    assert_eq!(packet.meta().flow_hash, 0x77);
}

fn transport_sum(bytes: &[u8], layout: &Layout) -> [u8; 2] {
    let transport = bytes.len() - usize::from(layout.transport);
    crate::port::card::pseudo_header(bytes, layout, transport as u32).unwrap()
}

#[test]
fn a_merged_packet_is_a_gso_packet_with_an_unfinished_checksum() {
    let arena = Arena::new(ArenaConfig::default()).unwrap();
    for (is_ipv6, size) in [(false, 400), (true, 400), (false, 0), (true, 1600)] {
        let bytes = tcp(is_ipv6, 1500);
        let begin = [1 << 15, 4, 1500, size | 4 << 24];
        let packet = arena.packet_from(&bytes).unwrap();
        let (packet, info) = rx::admit(packet, begin, [1 << 14, 0, 0, 0]).unwrap();
        let (layout, start) = (info.layout.unwrap(), if is_ipv6 { 54 } else { 34 });
        let partial = ChecksumState::Partial { start, offset: 16 };
        assert_eq!(info.checksum, partial);
        let field = usize::from(start) + 16;
        assert_eq!(
            packet.first()[field..field + 2],
            transport_sum(&bytes, &layout)
        );
        let Some(gso) = info.gso else {
            assert_eq!((size, info.wire_packets), (1600, 1));
            continue;
        };
        let kind = if is_ipv6 {
            GsoKind::TcpV6
        } else {
            GsoKind::TcpV4
        };
        // Of four equal ones, without a size.
        let size = if size == 0 { 375 } else { size as u16 };
        assert_eq!(
            (gso.kind, gso.size.get(), info.wire_packets),
            (kind, size, 4)
        );
        Segmenter::new(&bytes, &layout, gso, bytes.len() as u32).unwrap();
    }
    // Not TCP.
    let mut bytes = tcp(false, 1500);
    bytes[23] = 17;
    let packet = arena.packet_from(&bytes).unwrap();
    let wrong = rx::admit(packet, [1 << 15, 4, 0, 4 << 24], [1 << 14, 0, 0, 0]);
    assert_eq!(wrong.unwrap_err(), DropReason::BadDescriptor);
}

#[test]
fn a_packet_is_handed_over_with_its_first_descriptor() {
    let mut bench = Test::new(1, &small(), 1);
    let (generation, end) = (1 << 14, 3 << 12);
    let mut next = 0;
    // The ring goes round more than twice.
    for token in 0..75 {
        let mut packet = bench.packet(&[&[7; 60], &[7; 70], &[7; 80]]);
        assert_eq!(bench.send(&mut packet, token), Ok(Accepted::Pending));
        for (number, bytes) in [60, 70, 80].into_iter().enumerate() {
            let index = (next + number) % RINGS;
            let is_odd = (next + number) / RINGS % 2 == 1;
            let [second, third] = bench.descriptor(index);
            let expected = bytes | if is_odd { 0 } else { generation };
            assert_eq!(second, expected, "{token} {number}");
            assert_eq!(third, if number == 2 { end } else { 0 });
        }
        assert!(bench.fake.take_writes(0x600).is_empty());
        bench.flush();
        next += 3;
        assert_eq!(bench.fake.take_writes(0x600), [(next % RINGS) as u32]);
        assert!(bench.reclaim(9).is_empty());
        bench.complete(true, [((next - 1) % RINGS) as u32, 0, 0, 0]);
        assert_eq!(bench.reclaim(9), [token]);
    }
    // One that the card does not have is a wrong token.
    bench.complete(true, [50, 0, 0, 0]);
    assert_eq!(bench.reclaim(9), [u32::MAX]);
    // Two by one completion, and a ring that is full.
    let mut packet = bench.plain(60);
    for token in 0..95 {
        assert_eq!(bench.send(&mut packet, token), Ok(Accepted::Pending));
    }
    assert_eq!(bench.send(&mut packet, 95), Err(Refused::NoDescriptor));
    bench.complete(true, [((next + 1) % RINGS) as u32, 0, 0, 0]);
    assert_eq!(bench.reclaim(9), [0, 1]);
    bench.fake.state().replies.insert((COMMAND, GET_LINK), 0);
    bench.port.link();
    assert_eq!(bench.send(&mut packet, 95), Err(Refused::LinkDown));
    assert!(bench.tx().is_blocked());
}

#[test]
fn checksums_and_segments_are_the_work_of_the_first_descriptor() {
    for is_ipv6 in [false, true] {
        let mut bench = Test::new(1, &small(), 1);
        let mut bytes = tcp(is_ipv6, 1400);
        let layout = Layout::parse(LinkType::Ethernet, &bytes, bytes.len() as u32).unwrap();
        // Padding is not sent.
        bytes.extend([0; 9]);
        let mut packet = bench.packet(&[&bytes]);
        let (start, headers) = (u32::from(layout.transport), u32::from(layout.payload));
        bench.large(&bytes, &mut packet, 0);
        assert_eq!(bench.send(&mut packet, 1), Ok(Accepted::Pending));
        let [second, third] = bench.descriptor(0);
        assert_eq!(second, (headers + 1400) | 1 << 14 | (start + 16) << 18);
        assert_eq!(third, start | 2 << 10 | 3 << 12);

        let kind = if is_ipv6 {
            GsoKind::TcpV6
        } else {
            GsoKind::TcpV4
        };
        bench.large(&bytes, &mut packet, 500);
        assert_eq!(bench.send(&mut packet, 2), Ok(Accepted::Pending));
        assert_eq!(
            bench.descriptor(1),
            [headers | 1 << 14 | 500 << 18, headers | 3 << 10]
        );
        assert_eq!(bench.descriptor(2), [1400 | 1 << 14, 3 << 12]);
        // The packet is as it was, its copy is not.
        assert_eq!(packet.first(), bytes);
        let (memory, slot) = {
            let tx = bench.tx();
            (
                Arc::clone(&tx.queue.shared.area.memory),
                tx.queue.pieces.slot(1),
            )
        };
        let mut copy: Vec<u8> = (0..headers as usize)
            .map(|at| memory.load(slot + at / 4 * 4).to_le_bytes()[at % 4])
            .collect();
        let field = start as usize + 16;
        let sum = crate::port::card::pseudo_header(&bytes, &layout, 0).unwrap();
        assert_eq!(copy[field..field + 2], sum);
        copy[field..field + 2].copy_from_slice(&bytes[field..field + 2]);
        if !is_ipv6 {
            assert_eq!(copy[24..26], [0, 0]);
            copy[24..26].copy_from_slice(&bytes[24..26]);
        }
        assert_eq!(copy, bytes[..headers as usize]);
        // What it cannot do.
        let tso = Refused::Feature(Features::of(kind));
        packet.meta_mut().layout = Some(Layout {
            source_routed: true,
            ..layout
        });
        assert_eq!(bench.send(&mut packet, 3), Err(tso));
        packet.meta_mut().gso = None;
        let other = Layout {
            transport_kind: Transport::Other,
            ..layout
        };
        packet.meta_mut().layout = Some(other);
        let csum = Refused::Feature(Features::checksum_of(Some(other)));
        assert_eq!(bench.send(&mut packet, 3), Err(csum));
    }
}

#[test]
fn arm_lets_the_interrupt_come_and_then_looks() {
    let mut bench = Test::new(1, &small(), 2);
    bench.fake.state().writes.clear();
    assert_eq!(bench.rx().arm(), Armed::Idle);
    assert_eq!(bench.queues[1].1.arm(), Some(Armed::Idle));
    let masks = [0, 8, 16, 24].map(|at| bench.fake.take_writes(at));
    assert_eq!(masks, [vec![0], vec![], vec![], vec![0]]);
    bench.arrive(0, 60, 0);
    assert_eq!(bench.rx().arm(), Armed::WorkPending);
    bench.receive();
    let mut packet = bench.plain(60);
    assert_eq!(bench.send(&mut packet, 1), Ok(Accepted::Pending));
    assert_eq!(bench.tx().arm(), Some(Armed::Idle));
    bench.complete(true, [0, 0, 0, 0]);
    assert_eq!(bench.tx().arm(), Some(Armed::WorkPending));
    assert_eq!(bench.reclaim(9), [1]);
    // An event ends the sleep as well: the link is down.
    let area = bench.port.area.clone().unwrap();
    area.memory.store(696, 1 << 2);
    bench.fake.state().replies.insert((COMMAND, GET_LINK), 0);
    assert_eq!(bench.rx().arm(), Armed::WorkPending);
    bench.receive();
    assert!(bench.tx().is_blocked());
    assert_eq!(bench.fake.take_writes(0x40), [1 << 2]);
    // A queue has stopped.
    area.memory.store(696, 1 << 1);
    area.memory.store(0x400 + 80, 1);
    area.memory.store(0x400 + 84, 0x8000_0002);
    let error = bench.failure().to_string();
    assert!(error.contains("0x80000002"), "{error}");
}

#[test]
fn one_interrupt_is_for_all_halves() {
    let config = Vmxnet3Config {
        interrupts: Some(InterruptKind::Intx),
        ..small()
    };
    let mut bench = Test::new(1, &config, 2);
    let memory = &bench.port.area.as_ref().unwrap().memory;
    assert_eq!(memory.load(80), 1 | 1 << 8);
    assert_eq!(
        [72, 328, 584, 840].map(|at| memory.load(0x400 + at)),
        [0; 4]
    );
    let line = bench.fake.state().connected[0].clone();
    bench.fake.state().writes.clear();
    for (rx, tx) in &mut bench.queues {
        assert_eq!((rx.arm(), tx.arm()), (Armed::Idle, Some(Armed::Idle)));
    }
    assert_eq!(bench.fake.take_writes(0), [0; 4]);
    line.raise();
    for (rx, tx) in &bench.queues {
        assert!(has_come(rx.wake(), true) && has_come(tx.wake(), true));
    }
    assert_eq!(bench.fake.state().unmasked, 1);
}

#[test]
fn a_card_that_was_reset_or_removed_is_found() {
    let mut bench = Test::new(1, &small(), 1);
    bench.now = Instant::default().after(Duration::from_secs(20));
    // It does not write its counters.
    bench
        .port
        .area
        .as_ref()
        .unwrap()
        .set_counter(1, 2, 1 << 40 | 5);
    let said = bench.failure().to_string();
    assert!(said.contains("it was reset meanwhile"), "{said}");
    let counters = bench.port.device_counters().unwrap();
    assert_eq!((counters.tx_packets, counters.rx_errors), (1 << 40 | 5, 0));
    bench.fake.state().is_removed = true;
    let said = bench.failure().to_string();
    assert!(said.contains("the device was removed"), "{said}");
    let mut packet = bench.plain(60);
    assert_eq!(bench.send(&mut packet, 1), Err(Refused::Removed));
}

#[test]
fn a_card_is_stopped_before_its_frames_are_free() {
    for does_not_stop in [false, true] {
        let Bench {
            fake,
            arena,
            port,
            queues,
            ..
        } = Test::new(1, &small(), 1);
        fake.state().does_not_stop = does_not_stop;
        let free = || {
            let packets = (0..700).map_while(|_| arena.packet(FrameClass::Small).ok());
            packets.collect::<Vec<_>>().len()
        };
        let before = free();
        fake.take_writes(COMMAND);
        drop((queues, port));
        assert!(fake.take_writes(COMMAND).contains(&QUIESCE));
        assert_eq!(fake.state().is_started, does_not_stop);
        assert_eq!(free() > before, !does_not_stop);
    }
    // A packet that the card has is not free before, either.
    let mut bench = Test::new(1, &small(), 1);
    let mut packet = bench.plain(60);
    assert_eq!(bench.send(&mut packet, 1), Ok(Accepted::Pending));
    let (_rx, tx) = bench.queues.remove(0);
    drop(tx);
    assert!(!bench.fake.state().is_started);
}
