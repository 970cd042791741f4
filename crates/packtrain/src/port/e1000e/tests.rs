//! The driver on a table of registers. Numbers are those of the data sheet, not of `registers.rs`.

use super::*;
use crate::driver::{
    Accepted, Armed, Change, Completed, Features, Refused, Reset, RxDescriptors, RxInfo,
    TxDescriptors,
};
use crate::packet::{ArenaConfig, FrameClass, Packet};
use crate::port::card::bench::{Bench, is_raised, tcp};
use crate::port::card::fake::Fake;
use crate::stats::DropReason;
use packtrain_offload::offload::{ChecksumState, GsoKind};
use packtrain_offload::segment::Segmenter;
use std::time::Duration;

const STALE: u32 = 0xdead_beef;
const STATUS: usize = 0x8;
const ICR: usize = 0xc0;
const IMS: usize = 0xd0;
const IMC: usize = 0xd8;
const RX_TAIL: usize = 0x2818;
const TX_HEAD: usize = 0x3810;
const TX_TAIL: usize = 0x3818;
const LINK_UP: u32 = 0x83;
const DONE: u32 = 1;
const END: u32 = 2;

/// A card whose registers an earlier user has left in disorder.
fn card() -> Fake {
    let fake: Fake = Fake::default();
    {
        let mut state = fake.state();
        state.stale = STALE;
        state.config.insert(0, 0x10d3_8086);
        state.interrupts = [5, 1, 1];
        // Settings read, MDIC ready.
        state.ones.insert(0x10, 1 << 9);
        state.ones.insert(0x20, 1 << 28);
        state.zeros.insert(0x20, 1 << 30);
        for at in (0x4000..0x4128).step_by(4) {
            state.cleared.insert(at);
        }
    }
    fake.poke(0x5400, 0x0a00_5452);
    fake.poke(0x5404, 0x8003_0c0b);
    fake.poke(STATUS, LINK_UP);
    fake
}

fn small() -> E1000eConfig {
    E1000eConfig {
        rings: 256,
        ..E1000eConfig::default()
    }
}

const FRAMES: ArenaConfig = ArenaConfig {
    small_frames: 700,
    large_frames: 2,
    lines: 900,
};

type Test = Bench<E1000e<Fake>>;

impl Test {
    fn new(config: &E1000eConfig, queues: usize) -> Self {
        let fake = card();
        let port = E1000e::open(fake.clone(), config).unwrap();
        let how = Attach {
            queues,
            ..Attach::default()
        };
        Self::attach(fake, port, &how, FRAMES)
    }

    /// The card writes a descriptor back.
    fn fill(&mut self, index: usize, words: [u32; 4]) {
        let ring = &mut self.rx().queue.ring;
        ring.write(index, words);
        ring.publish(index, 2, words[2]);
    }

    /// The descriptor, which the driver has written.
    fn sent(&mut self, index: usize) -> [u32; 4] {
        let ring = &self.tx().queue.ring;
        std::array::from_fn(|word| ring.word(index, word))
    }

    /// The card completes a descriptor that it reports.
    fn complete(&mut self, index: usize) {
        let done = self.sent(index)[3] | 1;
        self.tx().queue.ring.publish(index, 3, done);
    }
}

/// Where a descriptor says that its data is.
fn address(words: [u32; 4]) -> u64 {
    u64::from(words[0]) | u64::from(words[1]) << 32
}

#[test]
fn no_register_keeps_what_an_earlier_user_wrote() {
    let bench = Test::new(&small(), 2);
    let fake = &bench.fake;
    let expected = [
        (0x28, 0),
        (0x2c, 0),
        (0x30, 0),
        (0x38, 0x8100),
        (0xc4, 0),
        (0xe0, 0x00f0_0000),
        (0xdc, 0x00f0_0000),
        // RXQ0, RXQ1, TXQ0, TXQ1, and the rest, have the vectors 0, 2, 1, 3 and 4.
        (0xe4, 0x800c_b9a8),
        (0xe8, 0),
        (0xec, 0),
        (0xf0, 0),
        (0xf4, 0),
        // 10 ms.
        (0xf8, 39_063),
        // EN, UPE, MPE, BAM, SECRC, buffers of 2048 bytes.
        (0x100, 0x0400_801a),
        (0x170, 0),
        // EN, PSP, CT, COLD, RTLC, MULR.
        (0x400, 0x1103_f0fa),
        (0x410, 0x0060_2008),
        (0x1000, 0x0014_0014),
        (0x2160, 0),
        (0x2168, 0),
        (0x2170, 0),
        (0x2820, 0),
        (0x282c, 0),
        (0x2c00, 0),
        (0x2c08, 0),
        (0x2828, 0x0101_0000),
        (0x2928, 0x0101_0000),
        (0x3820, 0),
        (0x382c, 0),
        (0x3828, 0x0141_0000),
        (0x3928, 0x0141_0000),
        (0x3840, 0x0780_0483 | 1 << 26),
        (0x3940, 0x0780_0483 | 1 << 26),
        (0x5000, 0x2300),
        (0x5008, 0x0003_90c0),
        (0x5800, 0),
        (0x5808, 0),
        (0x5818, 0x001f_0001),
        (0x5400, 0x0a00_5452),
        (0x5404, 0x8000_0c0b),
    ];
    for (at, value) in expected {
        assert_eq!(fake.peek(at), value, "{at:#x}: {:#x}", fake.peek(at));
    }
    for index in 0..128 {
        assert_eq!(fake.peek(0x5200 + 4 * index), 0, "MTA {index}");
        assert_eq!(fake.peek(0x5600 + 4 * index), 0, "VFTA {index}");
    }
    for index in 1..16 {
        assert_eq!(fake.peek(0x5404 + 8 * index), 0, "RAH {index}");
    }
    for index in 0..32 {
        assert_eq!(fake.peek(0x5c00 + 4 * index), 0x8000_8000, "RETA {index}");
    }
    assert_eq!(fake.peek(0x5c80).to_le_bytes(), [0x6d, 0x5a, 0x56, 0xda]);
    // CTRL: SLU, and none of what was forced; CTRL_EXT.
    let control = fake.peek(0);
    assert_eq!(control & (1 << 6), 1 << 6);
    assert_eq!(control & (1 << 2 | 3 << 11 | 0xf << 27), 0, "{control:#x}");
    let extended = fake.peek(0x18);
    assert_eq!(extended & 0x1140_0000, 0x1140_0000, "{extended:#x}");
    assert_eq!(extended & (1 << 15 | 1 << 23 | 1 << 27 | 5 << 29), 0);
    let rings = [
        (0x2800, 0),
        (0x3800, 0x1000),
        (0x2900, 0x12000),
        (0x3900, 0x13000),
    ];
    for (at, offset) in rings {
        let ring: [u32; 7] = std::array::from_fn(|word| fake.peek(at + 4 * word));
        let [low, high, bytes, _, head, _, tail] = ring;
        assert_eq!((low, high), (offset, 5), "{at:#x}");
        assert_eq!((bytes, head, tail), (4096, 0, 0), "{at:#x}");
    }
    assert!(fake.state().is_started);
}

#[test]
fn what_cannot_work_is_said_at_once() {
    let why = |fake: &Fake, config: &E1000eConfig| {
        let error = E1000e::open(fake.clone(), config).unwrap_err();
        error.to_string()
    };
    let other = card();
    other.state().config.insert(0, 0x1041_1af4);
    let said = why(&other, &small());
    assert!(said.contains("1af4:1041"), "{said}");

    let nameless = card();
    nameless.poke(0x5400, 0);
    nameless.poke(0x5404, 0);
    let said = why(&nameless, &small());
    assert!(said.contains("no Ethernet address"), "{said}");

    let dead = card();
    dead.state().ones.clear();
    dead.state().zeros.insert(0x10, u32::MAX);
    let said = why(&dead, &small());
    assert!(said.contains("does not answer"), "{said}");

    let mute = card();
    mute.state().interrupts = [1, 0, 1];
    let msi = E1000eConfig {
        interrupts: Some(InterruptKind::Msi),
        ..small()
    };
    assert!(why(&mute, &msi).contains("irq="), "{}", why(&mute, &msi));
    for rings in [100, 255, 260, 8192] {
        let config = E1000eConfig { rings, ..small() };
        assert!(why(&card(), &config).contains(&rings.to_string()));
    }
    let without = card();
    without.state().interrupts = [1, 0, 0];
    let said = why(&without, &small());
    assert!(
        said.contains("lspci -vv") && !said.contains("irq="),
        "{said}"
    );
    for mtu in [1499, 9209] {
        let config = E1000eConfig { mtu, ..small() };
        assert!(why(&card(), &config).contains(&mtu.to_string()));
    }
}

#[test]
fn the_firmware_does_not_access_the_phy_while_the_driver_does() {
    let fake = card();
    // A reset ends by itself.
    fake.state().zeros.insert(0, 1 << 26);
    E1000e::open(fake.clone(), &small()).unwrap();
    let (mut is_owned, mut resets, mut accesses) = (false, 0, 0);
    for (at, value) in &fake.state().writes {
        match *at {
            0xf00 => is_owned = value & 1 << 5 != 0,
            0 if value & 1 << 26 != 0 => {
                resets += 1;
                assert!(is_owned, "CTRL.RST");
            }
            0x20 => {
                accesses += 1;
                assert!(is_owned, "MDIC");
            }
            _ => {}
        }
    }
    // The PHY's control register is read, and written.
    assert_eq!((resets, accesses, is_owned), (1, 2, false));
}

#[test]
fn the_firmware_has_the_card_until_it_is_attached() {
    let fake = card();
    let driver_loaded = |fake: &Fake| fake.peek(0x18) & 1 << 28 != 0;
    assert!(driver_loaded(&fake), "an earlier user left it set");
    let port = E1000e::open(fake.clone(), &small()).unwrap();
    assert!(!driver_loaded(&fake));
    drop(port);
    let mut bench = Test::new(&small(), 1);
    assert!(driver_loaded(&bench.fake));
    bench.queues.clear();
    assert!(!driver_loaded(&bench.fake));
}

#[test]
fn as_many_queues_as_there_are_vectors() {
    // By default a card reports 3 of its vectors.
    for (vectors, kind, queues) in [
        (5, InterruptKind::Msix, 2),
        (4, InterruptKind::Msix, 2),
        (3, InterruptKind::Msix, 1),
        (1, InterruptKind::Msi, 1),
    ] {
        let fake = card();
        fake.state().interrupts[0] = vectors;
        let port = E1000e::open(fake, &small()).unwrap();
        assert_eq!(port.interrupts, kind);
        assert_eq!(port.capabilities().queues_max, queues, "{vectors}");
        assert_eq!(port.address(), [0x52, 0x54, 0, 0x0a, 0x0b, 0x0c]);
    }
}

#[test]
fn a_packet_has_what_its_descriptor_says() {
    let mut bench = Test::new(&small(), 1);
    assert!(bench.refill());
    assert_eq!(bench.fake.peek(RX_TAIL), 255);
    let words: [u32; 4] = std::array::from_fn(|word| bench.rx().queue.ring.word(0, word));
    // The second map is that of the arena; the frame begins with its headroom.
    assert_eq!(
        (words[0] & 0x7ff, words[1], words[2], words[3]),
        (256, 6, 0, 0)
    );

    let verified = RxInfo {
        checksum: ChecksumState::Unnecessary,
        ..RxInfo::default()
    };
    let cases = [
        // TCP/IPv4 with its hash, both checksums right.
        ([1, 0xcafe, DONE | END | 0x60, 60], verified, 0xcafe),
        // UDP: both bits.
        ([2, 0xf00d, DONE | END | 0x70, 1514], verified, 0xf00d),
        // Not hashed.
        ([0, 0xcafe, DONE | END | 0x20, 60], verified, 0),
        // IXSM, TCPE, IPE: software looks at it.
        ([0, 0, DONE | END | 0x24, 60], RxInfo::default(), 0),
        (
            [0, 0, DONE | END | 0x20 | 1 << 29, 60],
            RxInfo::default(),
            0,
        ),
        (
            [0, 0, DONE | END | 0x60 | 1 << 30, 60],
            RxInfo::default(),
            0,
        ),
        // Nothing was looked at.
        ([0, 0, DONE | END, 14], RxInfo::default(), 0),
    ];
    for (index, (words, ..)) in cases.iter().enumerate() {
        bench.fill(index, *words);
    }
    let packets = bench.receive();
    assert_eq!(packets.len(), cases.len());
    for (packet, (words, info, hash)) in packets.iter().zip(cases) {
        assert_eq!(packet.bytes(), words[3] as usize);
        assert_eq!(packet.meta().checksum, info.checksum, "{words:x?}");
        assert_eq!(packet.meta().flow_hash, hash);
    }
    assert!(bench.bad.0.is_empty());
}

#[test]
fn each_bad_descriptor_costs_one_packet() {
    let mut bench = Test::new(&small(), 1);
    bench.refill();
    let errors = [24, 25, 26, 28, 31];
    let mut index = 0;
    for bit in errors {
        bench.fill(index, [0, 0, DONE | END | 1 << bit, 60]);
        bench.fill(index + 1, [0, 0, DONE | END, 64]);
        index += 2;
    }
    // Longer than the buffer, shorter than a link header, and a bad first piece.
    bench.fill(index, [0, 0, DONE | END, 2048]);
    bench.fill(index + 1, [0, 0, DONE | END, 13]);
    bench.fill(index + 2, [0, 0, DONE | 1 << 24, 1000]);
    bench.fill(index + 3, [0, 0, DONE | END, 1000]);
    bench.fill(index + 4, [0, 0, DONE | END, 65]);
    let packets = bench.receive();
    let lengths: Vec<usize> = packets.iter().map(Packet::bytes).collect();
    assert_eq!(lengths, [64, 64, 64, 64, 64, 65]);
    let mut reasons = vec![DropReason::BadDescriptor; 6];
    reasons.extend([DropReason::Truncated, DropReason::BadDescriptor]);
    assert_eq!(bench.bad.0, reasons);
}

#[test]
fn a_long_packet_is_put_together() {
    let config = E1000eConfig {
        mtu: 9000,
        ..small()
    };
    let mut bench = Test::new(&config, 1);
    // LPE, and buffers of 1024 bytes.
    assert_eq!(bench.fake.peek(0x100), 0x0401_803a);
    bench.refill();
    for index in 0..8 {
        bench.fill(index, [0, 0, DONE, 1024]);
    }
    // It has not come to its end.
    assert!(bench.receive().is_empty());
    bench.fill(8, [1, 7, DONE | END | 0x20, 822]);
    let packets = bench.receive();
    assert_eq!(packets.len(), 1);
    assert_eq!(packets[0].bytes(), 9014);
    assert_eq!(packets[0].segment_count(), 9);
    assert_eq!(packets[0].meta().flow_hash, 7);
    // One that says that more was written than a buffer has.
    bench.fill(9, [0, 0, DONE | END, 1025]);
    assert!(bench.receive().is_empty());
    assert_eq!(bench.bad.0, [DropReason::BadDescriptor]);
}

#[test]
fn buffers_are_as_small_as_was_asked_for() {
    for (bytes, control, size) in [
        (1792, 0, 1792),
        (1024, 1, 1024),
        (1000, 2, 512),
        (256, 3, 256),
    ] {
        let port = E1000e::open(card(), &small()).unwrap();
        let (bits, most) = port.receives(bytes);
        assert_eq!((bits >> 16 & 3, most), (control, size), "{bytes}");
    }
}

#[test]
fn the_rx_ring_goes_round() {
    let mut bench = Test::new(&small(), 1);
    let mut index = 0;
    for round in 0..40_u32 {
        assert!(bench.refill());
        for piece in 0..29 {
            bench.fill(index, [0, 0, DONE | END, 60 + piece]);
            index = (index + 1) % 256;
        }
        let packets = bench.receive();
        let lengths: Vec<usize> = packets.iter().map(Packet::bytes).collect();
        assert_eq!(lengths, (60..89).collect::<Vec<_>>(), "{round}");
    }
    // The tail is written once for many descriptors, and at the first check of the link.
    let tails = bench.fake.take_writes(RX_TAIL);
    assert!(tails.len() <= 43, "{}", tails.len());
}

#[test]
fn a_plain_packet_has_one_descriptor() {
    let mut bench = Test::new(&small(), 1);
    let mut packet = bench.plain(60);
    assert_eq!(bench.send(&mut packet, 9), Ok(Accepted::Pending));
    assert_eq!(bench.fake.take_writes(TX_TAIL), [0, 0]);
    bench.flush();
    // DEXT, RS, IFCS, EOP, a data descriptor.
    let first = bench
        .tx()
        .queue
        .pieces
        .window
        .address(packet.first())
        .unwrap();
    assert_eq!(address(bench.sent(0)), first);
    assert_eq!(bench.sent(0)[2..], [0x2b10_003c, 0]);
    assert_eq!(bench.fake.take_writes(TX_TAIL), [1]);
    // Without another packet there is no doorbell.
    bench.flush();
    assert!(bench.fake.take_writes(TX_TAIL).is_empty());
    assert_eq!(bench.tx().doorbells(), 1);

    assert!(bench.reclaim(8).is_empty());
    bench.complete(0);
    assert_eq!(bench.reclaim(8), [9]);
    assert!(bench.reclaim(8).is_empty());
}

#[test]
fn the_card_reports_some_packets_and_the_last_one() {
    let mut bench = Test::new(&small(), 1);
    let mut packet = bench.plain(60);
    for token in 0..20 {
        bench.send(&mut packet, token).unwrap();
    }
    bench.flush();
    let reported: Vec<usize> = (0..20)
        .filter(|index| bench.sent(*index)[2] & 1 << 27 != 0)
        .collect();
    assert_eq!(reported, [15, 19]);
    // Only what is reported counts, and in order.
    bench.complete(3);
    bench.complete(19);
    assert!(bench.reclaim(30).is_empty());
    bench.complete(15);
    assert_eq!(bench.reclaim(5), [0, 1, 2, 3, 4]);
    assert_eq!(bench.reclaim(30), (5..20).collect::<Vec<_>>());
}

#[test]
fn the_tx_ring_goes_round_and_fills() {
    let mut bench = Test::new(&small(), 1);
    let mut packet = bench.plain(60);
    let (mut next, mut done) = (0_u32, 0_u32);
    for _ in 0..30 {
        let mut accepted = 0;
        while bench.send(&mut packet, next).is_ok() {
            next += 1;
            accepted += 1;
        }
        assert_eq!(
            bench.send(&mut packet, next),
            Err(Refused::NoDescriptor),
            "{next}"
        );
        bench.flush();
        assert_eq!(accepted, next - done);
        // One stays free, and one is for a context.
        assert_eq!(next - done, 254);
        assert_eq!(bench.fake.peek(TX_TAIL), next % 256);
        let last = (next as usize + 255) % 256;
        for index in 0..256 {
            if bench.sent(index)[2] & 1 << 27 != 0 && index != last {
                bench.complete(index);
            }
        }
        let some = bench.reclaim(300);
        bench.complete(last);
        let rest = bench.reclaim(300);
        let all: Vec<u32> = some.into_iter().chain(rest).collect();
        assert_eq!(all, (done..next).collect::<Vec<_>>());
        done = next;
    }
}

fn partial(bench: &Test, start: u16, offset: u16) -> Packet {
    let mut packet = bench.plain(100);
    packet.meta_mut().checksum = ChecksumState::Partial { start, offset };
    packet
}

#[test]
fn a_checksum_has_a_context_which_the_card_keeps() {
    let mut bench = Test::new(&small(), 1);
    let mut tcp = partial(&bench, 34, 16);
    let mut again = tcp.try_clone().unwrap();
    let mut udp = partial(&bench, 34, 6);
    for packet in [&mut tcp, &mut again, &mut udp] {
        bench.send(packet, 1).unwrap();
    }
    bench.flush();
    // TUCSS, TUCSO; DEXT, and TCP.
    let context = bench.sent(0);
    assert_eq!(context[1..], [34 | 50 << 8, 0x2100_0000, 0]);
    // TXSM, in two data descriptors.
    assert_eq!(bench.sent(1)[2..], [0x2310_0064, 0x200]);
    assert_eq!(bench.sent(2)[2..], [0x2310_0064, 0x200]);
    assert_eq!(bench.sent(3)[1..], [34 | 40 << 8, 0x2000_0000, 0]);
    assert_eq!(bench.sent(4)[2..], [0x2b10_0064, 0x200]);

    // Beyond the packet, and beyond what the card can store.
    let mut beyond = partial(&bench, 90, 16);
    let bad = Refused::Bad(DropReason::BadChecksumPlace);
    assert_eq!(bench.send(&mut beyond, 2), Err(bad));
    let mut long = bench.plain(600);
    long.meta_mut().checksum = ChecksumState::Partial {
        start: 250,
        offset: 6,
    };
    let refused = Refused::Feature(Features::CSUM);
    assert_eq!(bench.send(&mut long, 2), Err(refused));
}

#[test]
fn with_two_queues_each_packet_has_its_context() {
    let mut bench = Test::new(&small(), 2);
    let mut tcp = partial(&bench, 34, 16);
    for token in 0..2 {
        bench.send(&mut tcp, token).unwrap();
    }
    assert_eq!(bench.sent(0), bench.sent(2));
    assert_eq!(bench.tx().queue.flight.tail(), 4);
}

/// A packet that stands for several, as bytes, with its metadata.
fn large(bench: &Test, is_ipv6: bool, payload: usize, size: u16) -> (Vec<u8>, Packet) {
    let mut bytes = tcp(is_ipv6, payload);
    // ACK, PSH and FIN.
    bytes[if is_ipv6 { 67 } else { 47 }] = 0x19;
    // Pieces that end within headers.
    let mut packet = bench.packet(&bytes.chunks(1111).collect::<Vec<_>>());
    bench.large(&bytes, &mut packet, size);
    (bytes, packet)
}

/// What the card makes of headers, payload and a context (data sheet, 7.3.6).
fn cut(headers: &[u8], payload: &[u8], context: [u32; 4]) -> Vec<Vec<u8>> {
    let [ip, transport, command, rest] = context;
    let (start, field) = (
        (transport & 0xff) as usize,
        (transport >> 8 & 0xff) as usize,
    );
    let (network, last) = ((ip & 0xff) as usize, (ip >> 16) as usize);
    assert_eq!(rest >> 8 & 0xff, headers.len() as u32, "HDRLEN");
    assert_eq!(command & 0xf_ffff, payload.len() as u32, "PAYLEN");
    let size = (rest >> 16) as usize;
    let is_ipv4 = command & 1 << 25 != 0;
    let count = payload.len().div_ceil(size);
    let segment = |(index, piece): (usize, &[u8])| {
        let mut out = [headers, piece].concat();
        let put = |out: &mut Vec<u8>, at: usize, value: u16| {
            out[at..at + 2].copy_from_slice(&value.to_be_bytes());
        };
        let get = |at: usize| u16::from_be_bytes([headers[at], headers[at + 1]]);
        let bytes = out.len();
        if is_ipv4 {
            assert_eq!(ip >> 8 & 0xff, network as u32 + 10, "IPCSO");
            put(&mut out, network + 2, (bytes - network) as u16);
            let id = get(network + 4).wrapping_add(index as u16);
            put(&mut out, network + 4, id);
            let check = !sum(&out[network..=last]);
            put(&mut out, network + 10, check);
        } else {
            put(&mut out, network + 4, (bytes - network - 40) as u16);
        }
        let sequence = [get(start + 4).to_be_bytes(), get(start + 6).to_be_bytes()].concat();
        let sequence = u32::from_be_bytes(sequence.try_into().unwrap());
        let sequence = sequence.wrapping_add((index * size) as u32);
        out[start + 4..start + 8].copy_from_slice(&sequence.to_be_bytes());
        if index + 1 < count {
            out[start + 13] &= !9;
        }
        // The field has the pseudo-header without its length.
        let length = (bytes - start) as u16;
        let check = !sum(&[&length.to_be_bytes(), &out[start..]].concat());
        put(&mut out, field, check);
        out
    };
    payload.chunks(size).enumerate().map(segment).collect()
}

/// Of RFC 1071, by itself: the driver sums with the library.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        u64::from(u16::from_be_bytes([pair[0], low]))
    });
    // 2^16 is 1 modulo 2^16 - 1.
    let all: u64 = words.sum();
    match all % 0xffff {
        0 if all > 0 => 0xffff,
        sum => sum as u16,
    }
}

#[test]
fn the_card_cuts_a_packet_as_software_does() {
    for is_ipv6 in [false, true] {
        let mut bench = Test::new(&small(), 1);
        let (bytes, mut packet) = large(&bench, is_ipv6, 10_000, 1448);
        let headers = if is_ipv6 { 74 } else { 54 };
        let before: Vec<u8> = packet.segments().flatten().copied().collect();
        bench.send(&mut packet, 5).unwrap();
        bench.flush();
        let after: Vec<u8> = packet.segments().flatten().copied().collect();
        assert_eq!(before, after, "the packet itself is not written to");

        let context = bench.sent(0);
        // DEXT, TSE, TCP, and IP for IPv4.
        let command = if is_ipv6 { 0x2500_0000 } else { 0x2700_0000 };
        assert_eq!(context[2] & 0xfff0_0000, command);
        // The copy: the headers, and 4 bytes of the payload.
        let slot = bench.tx().queue.pieces.slot(0);
        let dma = Arc::clone(&bench.tx().queue.pieces.memory);
        let copied: Vec<u8> = (0..headers + 4)
            .map(|at| dma.load(slot + at / 4 * 4).to_le_bytes()[at % 4])
            .collect();
        assert_eq!(copied[headers..], bytes[headers..headers + 4]);
        assert_eq!(address(bench.sent(1)), dma.address() + slot as u64);
        // DEXT, TSE, IFCS; TXSM, and IXSM for IPv4.
        let command = 0x2610_0000 | (headers as u32 + 4);
        assert_eq!(
            bench.sent(1)[2..],
            [command, if is_ipv6 { 0x200 } else { 0x300 }]
        );

        // The pieces cover the rest, and the last one has 4 bytes, EOP and RS.
        let pieces: Vec<(u64, usize)> = packet
            .pieces(headers + 4..bytes.len())
            .unwrap()
            .map(|piece| {
                (
                    bench.tx().queue.pieces.window.address(piece).unwrap(),
                    piece.len(),
                )
            })
            .collect();
        let mut found: Vec<(u64, usize)> = Vec::new();
        let tail = bench.tx().queue.flight.tail();
        for index in 2..tail {
            let words @ [.., command, options] = bench.sent(index);
            let address = address(words);
            let is_last = index + 1 == tail;
            let bits = if is_last { 0x2f10_0000 } else { 0x2610_0000 };
            assert_eq!(command & 0xfff0_0000, bits, "{index}");
            assert_eq!(options, bench.sent(1)[3]);
            let bytes = (command & 0xf_ffff) as usize;
            match found.last_mut() {
                Some((start, length)) if is_last && *start + *length as u64 == address => {
                    assert_eq!(bytes, 4);
                    *length += bytes;
                }
                _ => found.push((address, bytes)),
            }
        }
        assert_eq!(found, pieces);

        let layout = packet.meta().layout.unwrap();
        let gso = packet.meta().gso.unwrap();
        let segmenter = Segmenter::new(&bytes, &layout, gso, bytes.len() as u32).unwrap();
        let cut = cut(&copied[..headers], &bytes[headers..], context);
        for (index, wire) in cut.iter().enumerate() {
            let mut expected = vec![0; 2000];
            let length = segmenter
                .write_segment(index as u32, &bytes, &mut expected)
                .unwrap();
            assert_eq!(wire[..], expected[..length], "segment {index}");
        }
        assert_eq!(cut.len(), 7);
        bench.complete(tail - 1);
        assert_eq!(bench.reclaim(4), [5]);
    }
}

#[test]
fn after_segments_a_descriptor_of_4_bytes_follows() {
    let mut bench = Test::new(&small(), 1);
    let (_, mut packet) = large(&bench, false, 5000, 1000);
    bench.send(&mut packet, 0).unwrap();
    let start = bench.tx().queue.flight.tail();
    let mut plain = bench.plain(60);
    bench.send(&mut plain, 1).unwrap();
    bench.send(&mut plain, 2).unwrap();
    assert_eq!(bench.sent(start)[2], 0x2210_0038);
    assert_eq!(bench.sent(start + 1)[2], 0x2310_0004);
    assert_eq!(bench.sent(start + 2)[2], 0x2310_003c);
}

#[test]
fn what_the_card_cannot_cut_is_left_to_software() {
    let mut bench = Test::new(&small(), 1);
    let refused = |kind| Err(Refused::Feature(Features::of(kind)));
    let (_, mut packet) = large(&bench, false, 25_000, 100);
    assert_eq!(bench.send(&mut packet, 0), refused(GsoKind::TcpV4));
    let (_, mut packet) = large(&bench, false, 20, 7);
    assert_eq!(bench.send(&mut packet, 0), refused(GsoKind::TcpV4));
    let (_, mut packet) = large(&bench, true, 5000, 1000);
    packet.meta_mut().layout = None;
    assert_eq!(bench.send(&mut packet, 0), refused(GsoKind::TcpV6));
    let (_, mut packet) = large(&bench, true, 5000, 1000);
    // 8 bytes of extension headers.
    let layout = packet.meta_mut().layout.as_mut().unwrap();
    layout.transport += 8;
    layout.payload += 8;
    assert_eq!(bench.send(&mut packet, 0), refused(GsoKind::TcpV6));
    assert!(bench.tx().queue.flight.is_empty());

    // More pieces than a packet may have: a copy has fewer.
    let mut pieces = bench.arena.empty_packet().unwrap();
    for _ in 0..63 {
        pieces.append(bench.plain(20)).unwrap();
    }
    let result = bench.send(&mut pieces, 0);
    assert_eq!(result, Err(Refused::TooManySegments));
    let mut short = bench.plain(13);
    let result = bench.send(&mut short, 0);
    assert_eq!(result, Err(Refused::Bad(DropReason::Truncated)));
}

#[test]
fn short_segments_are_cut_by_the_card() {
    // Merged packets: as many pieces as may be, and each is a segment.
    for size in [8, 100, 319] {
        let mut bench = Test::new(&small(), 1);
        let (bytes, packet) = large(&bench, false, 39 * usize::from(size), size);
        let mut merged = bench.arena.packet_from(&bytes[..54]).unwrap();
        for segment in bytes[54..].chunks(usize::from(size)) {
            let segment = bench.arena.packet_from(segment).unwrap();
            merged.append(segment).unwrap();
        }
        merged.copy_meta(&packet);
        assert_eq!(merged.segment_count(), 40);
        assert_eq!(bench.send(&mut merged, 0), Ok(Accepted::Pending), "{size}");
    }
    // Of 240 segments in frames of 1111 bytes, a copy in one frame.
    let mut bench = Test::new(&small(), 1);
    let (bytes, mut packet) = large(&bench, false, 24_000, 100);
    let result = bench.send(&mut packet, 0);
    assert_eq!(result, Err(Refused::TooManySegments));
    let mut copy = bench.arena.packet(FrameClass::Large).unwrap();
    copy.append_copy(FrameClass::Large, &bytes).unwrap();
    copy.copy_meta(&packet);
    assert_eq!(bench.send(&mut copy, 0), Ok(Accepted::Pending));
    // A context, the headers, pieces of four segments, and the last 4 bytes.
    assert_eq!(bench.tx().queue.flight.tail(), 1 + 1 + 60 + 1);
    assert_eq!(bench.sent(2)[2] & 0xf_ffff, 400);
}

#[test]
fn a_large_piece_has_several_descriptors() {
    let mut bench = Test::new(&small(), 1);
    let mut packet = bench.arena.packet(FrameClass::Large).unwrap();
    packet.grow(20_000).unwrap();
    bench.send(&mut packet, 0).unwrap();
    let lengths: Vec<u32> = (0..3)
        .map(|index| bench.sent(index)[2] & 0xf_ffff)
        .collect();
    assert_eq!(lengths, [8192, 8192, 3616]);
    assert_eq!(bench.tx().queue.flight.tail(), 3);
}

#[test]
fn a_reset_knows_what_was_sent() {
    let mut bench = Test::new(&small(), 1);
    let mut packet = bench.plain(60);
    for token in 0..20 {
        bench.send(&mut packet, token).unwrap();
    }
    bench.flush();
    // The card has reported 16 and read two more. The one at its head may be on the wire.
    bench.complete(15);
    bench.fake.poke(TX_HEAD, 18);
    // The half holds the second one, for which there was no room.
    assert_eq!(bench.reclaim(1), [0]);
    bench.fake.take_writes(0x400);
    let (mut sent, mut unsent) = (Completed::with_capacity(32), Completed::with_capacity(32));
    let reset = bench.tx().reset(&mut sent, &mut unsent).unwrap();
    assert_eq!(reset, Reset::Done);
    let tokens = |completed: &mut Completed| completed.drain().map(|t| t.0).collect::<Vec<_>>();
    assert_eq!(tokens(&mut sent), (1..16).collect::<Vec<_>>());
    assert_eq!(tokens(&mut unsent), [19]);
    // TX was off meanwhile, and the ring begins anew.
    let off = bench.fake.take_writes(0x400);
    assert_eq!(off, [0x0103_f0f8, 0x0103_f0fa]);
    assert_eq!((bench.fake.peek(TX_HEAD), bench.fake.peek(TX_TAIL)), (0, 0));
    bench.send(&mut packet, 30).unwrap();
    bench.flush();
    assert_eq!(bench.fake.peek(TX_TAIL), 1);
    bench.complete(0);
    assert_eq!(bench.reclaim(8), [30]);
    // It was not told of the one at its head.
    bench.send(&mut packet, 31).unwrap();
    bench.fake.poke(TX_HEAD, 1);
    bench.tx().reset(&mut sent, &mut unsent).unwrap();
    assert_eq!((tokens(&mut sent), tokens(&mut unsent)), (vec![], vec![31]));
    // Beyond what it was told of, its head means nothing.
    bench.send(&mut packet, 32).unwrap();
    bench.fake.poke(TX_HEAD, 1);
    bench.tx().reset(&mut sent, &mut unsent).unwrap();
    assert_eq!((tokens(&mut sent), tokens(&mut unsent)), (vec![], vec![]));
    // While another program resets the card, its registers read as 0.
    bench.fake.poke(0x400, 0);
    bench.fake.take_writes(0x400);
    bench.tx().reset(&mut sent, &mut unsent).unwrap();
    assert_eq!(bench.fake.take_writes(0x400), off);
}

#[test]
fn descriptors_that_the_card_passes_without_a_word_are_given_up() {
    const RX_HEAD: usize = 0x2810;
    let mut bench = Test::new(&small(), 1);
    let free = |bench: &Test| {
        bench.arena.flush_cache();
        bench.arena.census().small_free
    };
    let all = free(&bench);
    assert!(bench.refill());
    // It is about to write the first, and has gone once around when it is checked again.
    bench.fake.poke(RX_HEAD, 4);
    assert_eq!(bench.receive().len(), 0);
    let rings = small().rings;
    for index in 0..rings {
        bench.fill(index, [0, 0, DONE | END, 60]);
        assert_eq!(bench.receive().len(), 1);
        bench.refill();
    }
    bench.now = bench.now.after(Duration::from_secs(2));
    assert_eq!(bench.receive().len(), 0);
    assert_eq!(bench.rx().queue.buffers.next(), Some(0));
    bench.now = bench.now.after(Duration::from_secs(2));
    bench.fill(0, [0, 0, DONE | END, 60]);
    assert_eq!(bench.receive().len(), 1);
    bench.fake.poke(RX_HEAD, 1);
    bench.refill();
    let words: [u32; 4] = std::array::from_fn(|word| bench.rx().queue.ring.word(4, word));
    // It has passed three, and says so of the fourth, which is beyond them.
    bench.fake.poke(RX_HEAD, 5);
    bench.fill(4, [words[0], words[1], 3, 60]);
    let mut received = Vec::new();
    for _ in 0..2 {
        received.extend(bench.receive());
        assert_eq!(received.len(), 0);
        bench.now = bench.now.after(Duration::from_secs(2));
    }
    assert_eq!(bench.receive().len(), 1);
    assert_eq!(bench.rx().queue.buffers.next(), Some(5));
    // All of them, up to those that it does not have.
    let tail = bench.fake.peek(RX_TAIL);
    bench.fake.poke(RX_HEAD, tail);
    for _ in 0..2 {
        bench.now = bench.now.after(Duration::from_secs(2));
        assert_eq!(bench.receive().len(), 0);
    }
    assert_eq!(bench.rx().queue.buffers.count(), 0);
    assert_eq!(free(&bench), all);
    assert!(bench.refill());
    assert_eq!(bench.rx().queue.buffers.next(), Some(tail as usize));
}

#[test]
fn a_packet_that_comes_while_the_queue_is_armed_is_not_missed() {
    let mut bench = Test::new(&small(), 1);
    bench.refill();
    let [rx, tx] = [0, 1].map(|vector| bench.fake.state().connected[vector].clone());
    bench.fake.take_writes(IMS);
    // Nothing has come: the cause is enabled.
    assert_eq!(bench.rx().arm(), Armed::Idle);
    assert_eq!(bench.fake.take_writes(IMS), [1 << 20]);
    // It comes afterwards: the card raises the interrupt, which stays.
    bench.fill(0, [0, 0, DONE | END, 60]);
    rx.raise();
    assert!(is_raised(&rx, false));
    assert_eq!(bench.receive().len(), 1);
    // The old interrupt does not wake the worker again.
    assert_eq!(bench.rx().arm(), Armed::Idle);
    assert!(!is_raised(&rx, false));
    // It has come before: its interrupt is forgotten, and the ring tells.
    bench.fill(1, [0, 0, DONE | END, 60]);
    rx.raise();
    assert_eq!(bench.rx().arm(), Armed::WorkPending);
    assert!(!is_raised(&rx, false));

    let mut packet = bench.plain(60);
    bench.send(&mut packet, 0).unwrap();
    bench.flush();
    bench.fake.take_writes(IMS);
    assert_eq!(bench.tx().arm(), Some(Armed::Idle));
    assert_eq!(bench.fake.take_writes(IMS), [1 << 22]);
    assert!(!is_raised(&tx, false));
    bench.complete(0);
    assert_eq!(bench.tx().arm(), Some(Armed::WorkPending));
    assert_eq!(bench.reclaim(1), [0]);
    assert_eq!(bench.tx().arm(), Some(Armed::Idle));

    // Reported packets for which the last call had no room.
    for token in 1..4 {
        bench.send(&mut packet, token).unwrap();
    }
    bench.flush();
    bench.complete(3);
    assert_eq!(bench.reclaim(1), [1]);
    assert_eq!(bench.tx().arm(), Some(Armed::WorkPending));
    assert_eq!(bench.reclaim(1), [2]);
    assert_eq!(bench.tx().arm(), Some(Armed::WorkPending));
    assert_eq!(bench.reclaim(1), [3]);
    assert_eq!(bench.tx().arm(), Some(Armed::Idle));
}

#[test]
fn the_card_delays_the_interrupts_of_each_vector() {
    for (kind, registers) in [
        (InterruptKind::Msix, vec![0xe8, 0xf0]),
        (InterruptKind::Msi, vec![0xc4]),
        (InterruptKind::Intx, vec![0xc4]),
    ] {
        let config = E1000eConfig {
            interrupts: Some(kind),
            ..small()
        };
        let mut bench = Test::new(&config, 2);
        assert_eq!(bench.queues.len(), registers.len());
        for (queue, register) in registers.into_iter().enumerate() {
            bench.fake.take_writes(register);
            for (delay, units) in [
                (125_000, 489),
                (256, 1),
                (1, 1),
                (99_000_000, 65_535),
                (0, 0),
            ] {
                assert!(bench.queues[queue].0.moderate(Duration::from_nanos(delay)));
                assert_eq!(bench.fake.take_writes(register), [units], "{delay} ns");
            }
        }
    }
}

/// Raises an interrupt of the card, and waits until all halves have theirs, and the card `enabled`.
fn interrupt(bench: &mut Test, vector: usize, enabled: u32) {
    bench.fake.take_writes(IMS);
    let wakes = [&bench.queues[0].0.interrupt, &bench.queues[0].1.interrupt];
    wakes.into_iter().for_each(|wake| {
        wake.clear();
    });
    let raised = bench.fake.state().connected[vector].clone();
    raised.raise();
    assert!(wakes.into_iter().all(|wake| is_raised(wake, true)));
    assert_eq!(bench.fake.take_writes(IMS), [enabled]);
}

#[test]
fn one_interrupt_wakes_both_halves() {
    for kind in [InterruptKind::Msi, InterruptKind::Intx] {
        let config = E1000eConfig {
            interrupts: Some(kind),
            ..small()
        };
        let mut bench = Test::new(&config, 2);
        assert_eq!(bench.queues.len(), 1);
        // No vectors.
        assert_eq!((bench.fake.peek(0xdc), bench.fake.peek(0xe4)), (0, 0));
        assert_eq!(bench.fake.take_writes(IMS), [4]);
        bench.fake.take_writes(IMC);
        bench.fake.poke(STATUS, 0x80);
        for (round, causes) in [1 << 7, 1, 1 << 2 | 1 << 7].into_iter().enumerate() {
            bench.fake.poke(ICR, causes);
            interrupt(&mut bench, 0, 4);
            // All causes were masked, and the line was released.
            assert_eq!(bench.fake.take_writes(IMC), [u32::MAX]);
            assert_eq!(bench.fake.state().unmasked, round + 1);
            // LSC is a change of the link.
            assert_eq!(bench.tx().is_blocked(), round == 2);
            assert_eq!(bench.rx().arm(), Armed::Idle);
            assert_eq!(bench.tx().arm(), Some(Armed::Idle));
            // RXT0, RXO, RXDMT0; TXDW.
            assert_eq!(bench.fake.take_writes(IMS), [0xd0, 1]);
        }
    }
}

#[test]
fn a_vector_is_for_changes_of_the_link() {
    let mut bench = Test::new(&small(), 1);
    assert_eq!(bench.fake.take_writes(IMS), [0x0100_0004]);
    bench.fake.poke(STATUS, 0x80);
    bench.fake.take_writes(ICR);
    interrupt(&mut bench, 2, 0x0100_0004);
    assert!(bench.tx().is_blocked());
    // OTHER, with the causes that raise it.
    assert_eq!(bench.fake.take_writes(ICR), [0x0107_0244]);

    // A card with a vector for each half alone.
    let fake = card();
    fake.state().interrupts[0] = 2;
    let mut port = E1000e::open(fake.clone(), &small()).unwrap();
    let queues = port
        .attach(&Attach::default(), &Arena::new(FRAMES).unwrap())
        .unwrap();
    assert_eq!(fake.peek(0xe4), 0x8000_0908);
    assert_eq!(fake.state().connected.len(), 2);
    assert!(fake.take_writes(IMS).is_empty());
    drop(queues);
}

#[test]
fn a_phy_that_hangs_is_reset() {
    let mut bench = Test::new(&small(), 1);
    let mut now = Instant::default();
    let mut check = |bench: &mut Test, errors: u32| {
        // MDIC: READY, and the value of each register of the PHY.
        bench.fake.state().ones.insert(0x20, 1 << 28 | errors);
        bench.fake.take_writes(0);
        now = now.after(Duration::from_secs(2));
        bench.port.card.recheck(now).unwrap();
        let writes = bench.fake.take_writes(0);
        writes
            .iter()
            .filter(|control| *control & 1 << 31 != 0)
            .count()
    };
    // In two checks, one after the other.
    for (errors, resets) in [
        (0xffff, 0),
        (0xfffe, 0),
        (0xffff, 0),
        (0xffff, 1),
        (0xffff, 0),
    ] {
        assert_eq!(check(&mut bench, errors), resets, "{errors:#x}");
    }
    assert_eq!(bench.fake.peek(0) & 1 << 31, 0);
    bench.fake.take_writes(0x20);
    bench.port.card.recheck(Instant::default()).unwrap();
    // Not more often than each 2 s.
    assert!(bench.fake.take_writes(0x20).is_empty());
}

#[test]
fn a_link_that_may_sleep_is_said() {
    for (control, is_noted) in [(0, false), (1, true), (2, true), (0x40, false)] {
        let fake = card();
        fake.state().config.extend([(0xe0, 0x10), (0xf0, control)]);
        let notes = E1000e::open(fake, &small()).unwrap().capabilities().notes;
        assert_eq!(!notes.is_empty(), is_noted, "{control:#x}");
        assert!(
            notes
                .iter()
                .all(|note| note.contains("0000:01:00.0/link/l*_aspm"))
        );
    }
}

#[test]
fn the_link_is_checked_ten_times_a_second() {
    let mut bench = Test::new(&small(), 1);
    let mut packet = bench.plain(60);
    assert_eq!(bench.port.link(), Link::Up);
    bench.fake.poke(STATUS, 0x80);
    // Packets cost no register.
    assert!(bench.send(&mut packet, 0).is_ok());
    assert!(!bench.tx().is_blocked());
    assert_eq!(bench.tx().mtu(), None);
    assert_eq!(bench.send(&mut packet, 0), Err(Refused::LinkDown));
    assert!(bench.tx().is_blocked());
    bench.fake.poke(STATUS, LINK_UP);
    assert_eq!(bench.send(&mut packet, 0), Err(Refused::LinkDown));
    // The RX half checks it, too.
    bench.receive();
    assert!(bench.send(&mut packet, 0).is_ok());
    assert!(!bench.tx().is_blocked());
    bench.fake.poke(STATUS, 0x80);
    assert_eq!(bench.port.link(), Link::Down);
    assert!(bench.tx().is_blocked());
}

#[test]
fn below_1_gbit_the_card_does_not_segment() {
    let mut bench = Test::new(&small(), 1);
    let check = |bench: &mut Test, status: u32| {
        bench.fake.poke(STATUS, status);
        assert_eq!(bench.tx().mtu(), None);
    };
    let csum = Change::Offloads(Features::CSUM);
    let all = Features::CSUM | Features::TSO4 | Features::TSO6;
    let (slow, slow_down) = (0x43, 0x41);
    assert_eq!(bench.tx().changed(), Change::No);
    check(&mut bench, slow);
    assert_eq!(bench.tx().changed(), csum);
    // While it is down its speed is not known, and nothing changes.
    for status in [slow_down, 0x81, slow] {
        check(&mut bench, status);
        assert_eq!(bench.tx().changed(), Change::No, "{status:#x}");
    }
    check(&mut bench, LINK_UP);
    assert_eq!(bench.tx().changed(), Change::Offloads(all));

    // It becomes slow in the middle of a step: software segments from the next packet on.
    check(&mut bench, slow);
    let (_, mut packet) = large(&bench, false, 5000, 1000);
    let refused = Err(Refused::Feature(Features::TSO));
    assert_eq!(bench.send(&mut packet, 0), refused);
    assert!(bench.tx().queue.flight.is_empty());
    assert_eq!(bench.tx().changed(), Change::No);
    check(&mut bench, LINK_UP);
    assert_eq!(bench.tx().changed(), Change::Offloads(all));
    assert!(bench.send(&mut packet, 0).is_ok());
}

#[test]
fn a_card_that_is_removed_ends_the_run() {
    let mut bench = Test::new(&small(), 1);
    let mut packet = bench.plain(60);
    bench.fake.state().is_removed = true;
    assert_eq!(bench.tx().mtu(), None);
    assert_eq!(bench.send(&mut packet, 0), Err(Refused::Removed));
    assert!(matches!(bench.failure(), DeviceError::Removed));
    assert_eq!(bench.send(&mut packet, 0), Err(Refused::Removed));
    let flushed = bench.tx().flush(Instant::default());
    assert!(matches!(flushed, Err(DeviceError::Removed)));
    let mut completed = Completed::with_capacity(4);
    bench.tx().reclaim(Instant::default(), &mut completed);
    assert!(matches!(
        completed.take_failure(),
        Some(DeviceError::Removed)
    ));
    assert_eq!(bench.port.link(), Link::Removed);
}

#[test]
fn a_card_that_somebody_resets_ends_the_run() {
    let mut bench = Test::new(&small(), 1);
    bench.fake.poke(0x100, 0);
    let error = bench.failure().to_string();
    assert!(error.contains("it was reset meanwhile"), "{error}");
}

#[test]
fn buffers_that_the_card_was_not_told_of_are_offered_again() {
    let mut bench = Test::new(&small(), 1);
    let arena = bench.arena.clone();
    bench.rx().refill(&arena);
    let tail = bench.fake.peek(RX_TAIL);
    assert!(tail > 0);
    bench.receive();
    // As if the last write had not reached it.
    bench.fake.take_writes(RX_TAIL);
    bench.rx().queue.recheck_at = Instant::default();
    bench.receive();
    assert_eq!(bench.fake.take_writes(RX_TAIL), [tail]);
}

#[test]
fn counters_add_up_over_reads() {
    let mut bench = Test::new(&small(), 1);
    assert_eq!(
        bench.port.device_counters(),
        Some(DeviceCounters::default())
    );
    let mut expected = DeviceCounters::default();
    for _ in 0..3 {
        for (at, value) in [
            // GPRC, GPTC, GORC, GOTC, MPC.
            (0x4074, 10),
            (0x4080, 20),
            (0x4088, 1000),
            (0x408c, 1),
            (0x4090, 2000),
            (0x4010, 3),
            // CRCERRS, ROC; ECOL.
            (0x4000, 1),
            (0x40ac, 1),
            (0x4018, 5),
        ] {
            bench.fake.poke(at, value);
        }
        expected = expected.plus(&DeviceCounters {
            rx_packets: 20,
            rx_bytes: 2000,
            rx_errors: 5,
            tx_packets: 10,
            tx_bytes: 1000 + (1 << 32),
            tx_dropped: 3,
            tx_errors: 2,
            ..DeviceCounters::default()
        });
        assert_eq!(bench.port.device_counters(), Some(expected));
    }
    // Removed while they are read: its registers are all ones.
    for at in (0x4000..0x4128).step_by(4).chain([STATUS]) {
        bench.fake.poke(at, u32::MAX);
    }
    assert_eq!(bench.port.device_counters(), Some(expected));
}

#[test]
fn frames_are_free_once_the_card_has_stopped() {
    let frames = |arena: &Arena| {
        arena.flush_cache();
        arena.census().small_free
    };
    for does_not_stop in [false, true] {
        let mut bench = Test::new(&small(), 2);
        bench.fake.state().does_not_stop = does_not_stop;
        let arena = bench.arena.clone();
        let before = frames(&arena);
        bench.refill();
        assert_eq!(frames(&arena), before - 255);
        let mut packet = bench.plain(60);
        bench.send(&mut packet, 0).unwrap();
        bench.flush();
        bench.fake.take_writes(0x400);
        let (rx, tx) = bench.queues.remove(0);
        drop(rx);
        // The card still has them, since another queue runs.
        drop(packet);
        assert_eq!(frames(&arena), before - 255);
        drop(tx);
        // TX was off, before the packet in flight is free.
        let off = bench.fake.take_writes(0x400);
        assert_eq!(off, [0x1103_f0f8, 0x1103_f0fa]);
        assert!(bench.fake.state().is_started);
        bench.queues.clear();
        assert_eq!(bench.fake.state().is_started, does_not_stop);
        assert_eq!((bench.fake.peek(0x100), bench.fake.peek(0x400)), (0, 0));
        let kept = if does_not_stop { 255 } else { 0 };
        assert_eq!(frames(&arena), before - kept);
        assert_eq!(bench.fake.peek(0x18) & 1 << 28, 0, "DRV_LOAD");
    }
}
