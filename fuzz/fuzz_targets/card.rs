//! A network card whose registers, rings and interrupts are from the input: no panic; a packet that
//! was given to a queue is sent, dropped or held; what the card says of its rings costs no memory
//! of packets, and no byte outside of a frame is one of a packet.

#![no_main]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use packtrain::driver::{Attach, Driver, QueuePair, RxBuffers, RxDescriptors, TxDescriptors};
use packtrain::packet::{Arena, ArenaConfig, Burst, Ingress};
use packtrain::plan::FitLimits;
use packtrain::port::card::InterruptKind;
use packtrain::port::card::fake::{Fake, Registers, Table};
use packtrain::port::e1000e::{E1000e, E1000eConfig};
use packtrain::port::virtio::{Virtio, VirtioConfig};
use packtrain::port::vmxnet3::{Vmxnet3, Vmxnet3Config};
use packtrain::queue::{RxQueue, TxQueue};
use packtrain::stats::{DropCounters, DropReason, RxCounters, TxCounters};
use packtrain::time::Instant;
use packtrain_fuzz::{Input, reached};
use packtrain_offload::offload::LinkType;

/// Bits of all addresses that a driver has.
const ADDRESSES: u64 = (1 << 48) - 1;
/// More of them find nothing else, and are slow.
const STEPS_MAX: usize = 64;
/// What QEMU's virtio device offers.
const OFFERED: u64 = 0x01C0_0007_3000_0000 | 1 << 15 | 0x001D_3BAB | 1 << 22;
/// Where its structures are in their region: the first one and the last one.
const COMMON_BAR: usize = 4;
const DEVICE_AT: usize = 0x300;
/// Of vmxnet3: its register of commands, those of the address of its memory, and two commands.
const COMMAND: usize = 0x20;
const SHARED: usize = 0x10;
const COUNTERS: u32 = 0xf00d_0001;
const GET_LINK: u32 = 0xf00d_0002;

thread_local! {
    static ARENA: Arena = Arena::new(ArenaConfig {
        small_frames: 1200,
        large_frames: 8,
        lines: 1400,
    })
    .expect("memory");
}

fuzz_target!(|data: &[u8]| {
    let arena = ARENA.with(Clone::clone);
    let mut input = Input(data);
    let how = input.byte();
    let irq = [
        InterruptKind::Msix,
        InterruptKind::Intx,
        InterruptKind::Msi,
        InterruptKind::Msix,
    ][usize::from(how >> 1 & 3)];
    let queues = 1 + usize::from(how >> 3 & 1);
    let mtu = if how & 0x10 == 0 { 1500 } else { 9000 };
    match (how & 1, how & 0x40) {
        (0, 0) => {
            let config = E1000eConfig {
                interrupts: Some(irq),
                rings: 256,
                mtu,
                ..E1000eConfig::default()
            };
            let card = e1000e();
            let port = E1000e::open(card.clone(), &config);
            let port = port.expect("a card that answers is opened");
            run(port, &card, how, queues, &arena, &mut input);
        }
        (0, _) => {
            let config = Vmxnet3Config {
                interrupts: Some(irq),
                rings: 96,
                mtu,
                ..Vmxnet3Config::default()
            };
            let card = vmxnet3();
            let port = Vmxnet3::open(card.clone(), &config);
            let port = port.expect("a card that answers is opened");
            run(port, &card, how, queues, &arena, &mut input);
        }
        _ => {
            let irq = match irq {
                InterruptKind::Intx => irq,
                InterruptKind::Msix | InterruptKind::Msi => InterruptKind::Msix,
            };
            let config = VirtioConfig {
                packed: Some(how & 0x10 == 0),
                irq,
                ..VirtioConfig::default()
            };
            let odd = input.byte();
            let card = virtio(OFFERED ^ if odd == 0 { 0 } else { 1 << (odd & 63) });
            match Virtio::open(card.clone(), &config) {
                Ok(port) => run(port, &card, how, queues, &arena, &mut input),
                Err(error) => assert!(odd != 0, "it offers all: {error}"),
            }
        }
    }
    let census = arena.census();
    let used = (census.small_used, census.large_used, census.lines_used);
    assert_eq!(used, (0, 0, 0), "memory of packets is lost");
});

/// Attaches the port, and has the card and the framework do what the input says.
fn run<D: Driver>(
    mut port: D,
    card: &Card,
    how: u8,
    queues: usize,
    arena: &Arena,
    input: &mut Input<'_>,
) {
    let attach = Attach {
        queues,
        rx_buffers: match how & 0x20 {
            0 => RxBuffers::Whole,
            _ => RxBuffers::PIECES,
        },
        ..Attach::default()
    };
    let Ok(halves) = port.attach(&attach, arena) else {
        reached("a card that cannot be attached");
        return;
    };
    let mut world = World::new(port, halves, card, arena);
    for _ in 0..STEPS_MAX {
        if !input.0.is_empty() {
            world.step(input);
        }
    }
    world.end();
}

/// The card, which the test and the driver share.
type Card = Fake<Model>;

/// The card's registers, most of which keep what is written to them.
#[derive(Debug)]
struct Model {
    kind: Kind,
    table: Table,
    /// The addresses of the rings of a virtio device.
    areas: BTreeMap<(u16, usize), u64>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    E1000e,
    /// With what it offers.
    Virtio(u64),
    Vmxnet3,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::E1000e => "e1000e",
            Self::Virtio(_) => "virtio",
            Self::Vmxnet3 => "vmxnet3",
        }
    }
}

fn card(
    kind: Kind,
    registers: &[((usize, usize), u32)],
    config: impl IntoIterator<Item = (usize, u32)>,
) -> Card {
    let card = Fake::new(Model {
        kind,
        table: Table::default(),
        areas: BTreeMap::new(),
    });
    let mut state = card.state();
    state.interrupts = [5, 1, 1];
    state.config.extend(config);
    state.table.words.extend(registers.iter().copied());
    drop(state);
    card
}

fn e1000e() -> Card {
    // The link is up, with 1 Gbit/s; an address.
    let registers = [
        ((0, 8), 0x83),
        ((0, 0x5400), 0x0a00_5452),
        ((0, 0x5404), 0x8003_0c0b),
    ];
    let card = card(Kind::E1000e, &registers, [(0, 0x10d3_8086)]);
    let mut state = card.state();
    // Settings read, PHY ready and without an error.
    state.table.ones.extend([(0x10, 1 << 9), (0x20, 1 << 28)]);
    state.table.zeros.insert(0x20, 1 << 30);
    drop(state);
    card
}

fn vmxnet3() -> Card {
    // Both versions, an address.
    let registers = [
        ((1, 0), 3),
        ((1, 8), 1),
        ((1, 0x28), 0x0052_5456),
        ((1, 0x30), 0x0c0b),
    ];
    let card = card(Kind::Vmxnet3, &registers, [(0, 0x07b0_15ad)]);
    // It is activated, its link is up, it masks interrupts.
    let replies = [
        (0xcafe_0000, 0),
        (GET_LINK, 10_000 << 16 | 1),
        (0xf00d_0008, 0),
    ];
    let replies = replies.map(|(command, reply)| ((COMMAND, command), reply));
    card.state().table.replies.extend(replies);
    card
}

fn virtio(offered: u64) -> Card {
    let mut config = vec![(0, 0x1041_1af4), (4, 1 << 20), (0x34, 0x40)];
    let structures = [
        (1, 0, 56),
        (2, 0x100, 64),
        (3, 0x200, 4),
        (4, DEVICE_AT as u32, 12),
    ];
    for (at, (kind, place, bytes)) in (0x40..).step_by(20).zip(structures) {
        let next = if kind == 4 { 0 } else { at as u32 + 20 };
        let head = 9 | next << 8 | 20 << 16 | kind << 24;
        let words = [head, COMMON_BAR as u32, place, bytes, 4];
        config.extend((at..).step_by(4).zip(words));
    }
    // An address, a link that is up, two pairs of queues, an MTU of 1500.
    let registers = [
        ((COMMON_BAR, DEVICE_AT), 2),
        ((COMMON_BAR, DEVICE_AT + 4), 1 << 16 | 1 << 8),
        ((COMMON_BAR, DEVICE_AT + 8), 1500 << 16 | 2),
    ];
    card(Kind::Virtio(offered), &registers, config)
}

impl Registers for Model {
    fn read(card: &Card, bar: usize, at: usize, width: usize) -> u32 {
        let mut state = card.state();
        match state.kind {
            Kind::Virtio(offered) if bar == COMMON_BAR && at == 4 => {
                (offered >> (32 * (state.table.word(bar, 0) & 1))) as u32
            }
            _ => state.table.load(bar, at, width),
        }
    }

    fn write(card: &Card, bar: usize, at: usize, width: usize, value: u32) {
        let mut state = card.state();
        let model = &mut state.registers;
        model.table.store(bar, at, width, value);
        match model.kind {
            Kind::Virtio(_) if bar == COMMON_BAR => model.selected(at, width, value),
            Kind::Vmxnet3 if (bar, at, value) == (1, COMMAND, COUNTERS) => {
                let runs = model.table.replies[&(COMMAND, GET_LINK)] >> 31 == 0;
                drop(state);
                if runs {
                    // Of the first TX queue the upper half of the last counter.
                    let at = descriptions(card) + 88 + 8 * 9 + 4;
                    card.try_write(at, &[0; 4]);
                }
            }
            _ => {}
        }
    }
}

impl Model {
    /// A register of a virtio device was written.
    fn selected(&mut self, at: usize, width: usize, value: u32) {
        let queue = (self.table.word(COMMON_BAR, 20) >> 16) as u16;
        if at & !3 == 20 {
            // The select of a queue: its size, and a doorbell of its own.
            let size = if queue < 5 { 64 } else { 0 };
            let words = &mut self.table.words;
            let vector = words.get(&(COMMON_BAR, 24)).copied().unwrap_or(0) & 0xffff_0000;
            words.insert((COMMON_BAR, 24), vector | size);
            words.insert((COMMON_BAR, 28), u32::from(queue) << 16);
        }
        if width == 4 && (32..56).contains(&at) {
            let area = self.areas.entry((queue, (at - 32) / 8)).or_insert(0);
            *area = match at & 4 {
                0 => *area & !0xffff_ffff | u64::from(value),
                _ => *area & 0xffff_ffff | u64::from(value) << 32,
            };
        }
    }
}

/// An address of two registers, so many bytes apart.
fn base(card: &Card, bar: usize, at: usize, apart: usize) -> u64 {
    let state = card.state();
    let [low, high] = [at, at + apart].map(|at| u64::from(state.table.word(bar, at)));
    (low | high << 32) & ADDRESSES
}

/// An address that the driver has written to memory.
fn address(card: &Card, at: u64) -> Option<u64> {
    let bytes = card.try_read(at, 8)?;
    let address = bytes.try_into().ok().map(u64::from_le_bytes)?;
    Some(address & ADDRESSES)
}

/// Where the memory of a vmxnet3 card describes the queues.
fn descriptions(card: &Card) -> u64 {
    let shared = base(card, 1, SHARED, 8);
    address(card, shared + 40).unwrap_or(0)
}

/// The addresses of rings, or of parts of them, that the card knows. Of vmxnet3 these are, of each
/// queue: TX, its completions, RX, the other ring of RX, and the completions of both; and what the
/// queues share.
fn places(card: &Card) -> Vec<u64> {
    let kind = card.state().kind;
    match kind {
        Kind::Virtio(_) => card.state().areas.values().copied().collect(),
        Kind::E1000e => {
            let bases = [0x2800, 0x3800, 0x2900, 0x3900].map(|at| base(card, 0, at, 4));
            bases.into_iter().filter(|base| *base != 0).collect()
        }
        Kind::Vmxnet3 => {
            let (all, queues) = (descriptions(card), queues(card));
            let rings = |queue| {
                let [tx, rx] = [queue, queues + queue].map(|index| all + 256 * index + 16);
                [tx, tx + 16, rx, rx + 8, rx + 16]
            };
            let places = (0..queues).flat_map(rings);
            let places = places.filter_map(|at| address(card, at));
            places.chain([base(card, 1, SHARED, 8), all]).collect()
        }
    }
}

/// How many queues a vmxnet3 card was told of.
fn queues(card: &Card) -> u64 {
    let counts = card.try_read(base(card, 1, SHARED, 8) + 62, 1);
    u64::from(counts.map_or(0, |counts| counts[0])).clamp(1, 2)
}

/// A queue of the port, worked by hand.
struct Pair<R: RxDescriptors, T: TxDescriptors> {
    rx: RxQueue<R>,
    tx: TxQueue<T>,
    rx_counters: Arc<RxCounters>,
    tx_counters: Arc<TxCounters>,
    tx_drops: Arc<DropCounters>,
    /// Wire packets that were given to `tx`.
    offered: u64,
    /// A half has failed: the framework does not call it any more.
    has_failed: [bool; 2],
}

struct World<D: Driver> {
    pairs: Vec<Pair<D::Rx, D::Tx>>,
    port: D,
    card: Card,
    kind: Kind,
    arena: Arena,
    now: Instant,
    /// The next descriptor of each place, for a card that goes around its rings in order.
    next: [u16; 16],
}

impl<D: Driver> World<D> {
    fn new(port: D, halves: Vec<QueuePair<D>>, card: &Card, arena: &Arena) -> Self {
        let capabilities = port.capabilities();
        let pairs = halves.into_iter().map(|(rx, tx)| {
            let rx_counters: Arc<RxCounters> = Arc::default();
            let (tx_counters, tx_drops): (Arc<TxCounters>, Arc<DropCounters>) = Default::default();
            Pair {
                rx: RxQueue::new(
                    rx,
                    arena.clone(),
                    LinkType::Ethernet,
                    Ingress::default(),
                    Arc::clone(&rx_counters),
                    Arc::default(),
                ),
                tx: TxQueue::new(
                    tx,
                    arena.clone(),
                    capabilities.tx,
                    FitLimits::new(&capabilities, None),
                    None,
                    Arc::clone(&tx_counters),
                    Arc::clone(&tx_drops),
                ),
                rx_counters,
                tx_counters,
                tx_drops,
                offered: 0,
                has_failed: [false; 2],
            }
        });
        Self {
            pairs: pairs.collect(),
            port,
            kind: card.state().kind,
            card: card.clone(),
            arena: arena.clone(),
            now: Instant::default(),
            next: [0; 16],
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() & 15 {
            0 => self.register(input),
            1..=3 => self.descriptor(input),
            4 => {
                let (place, at, value) = (input.byte(), input.word(), input.word());
                self.write(place, usize::from(at), &value.to_le_bytes());
            }
            5..=7 => {
                let how = input.byte();
                self.poll(how);
            }
            8..=10 => {
                let (pair, bytes) = (input.byte(), input.word());
                self.send(pair, bytes);
            }
            11 | 12 => self.wait(),
            13 => {
                self.port.link();
                self.port.device_counters();
            }
            14 => {
                let pair = usize::from(input.byte()) % self.pairs.len();
                self.pairs[pair].reset(self.now);
            }
            _ => {
                if input.byte() == 0xff {
                    self.card.state().is_removed = true;
                    self.reached("a card that is removed");
                }
            }
        }
    }

    /// The seeds have to reach it with this card.
    fn reached(&self, what: &str) {
        reached(&format!("{what} of {}", self.kind.name()));
    }

    /// A register that has another value: the first ones, those of queues, or any. One of vmxnet3
    /// is the link.
    fn register(&mut self, input: &mut Input<'_>) {
        let (at, value) = (input.word(), input.word());
        let which = at >> 14;
        let at = match which {
            0 => usize::from(at) & 0x3c,
            1 => 0x3800 | usize::from(at) & 0x13c,
            _ => usize::from(at) & 0xfffc,
        };
        let value = u32::from(value) | u32::from(value & 0x8000) << 16;
        let mut state = self.card.state();
        let table = &mut state.table;
        let bar = match self.kind {
            Kind::E1000e => 0,
            Kind::Virtio(_) => COMMON_BAR,
            Kind::Vmxnet3 if which == 0 => {
                table.replies.insert((COMMAND, GET_LINK), value);
                return;
            }
            Kind::Vmxnet3 => 0,
        };
        table.words.insert((bar, at), value);
    }

    fn place(&self, place: u8) -> Option<u64> {
        let places = places(&self.card);
        let index = usize::from(place).checked_rem(places.len())?;
        Some(places[index])
    }

    fn write(&self, place: u8, at: usize, value: &[u8]) {
        if let Some(base) = self.place(place) {
            self.card.try_write(base + at as u64, value);
        }
    }

    /// Writes the headers of segments of TCP behind `front` to a buffer.
    fn fill(&self, buffer: Option<u64>, front: &[u8], bytes: u16) {
        if let Some(buffer) = buffer {
            let headers = tcp(bytes.saturating_sub(14));
            self.card.try_write(buffer, &[front, &headers].concat());
        }
    }

    /// The next descriptor of a ring, or another one, is done in some way; for a split ring, an
    /// element of the used ring and its index; for vmxnet3 a completion.
    fn descriptor(&mut self, input: &mut Input<'_>) {
        let (place, how) = (input.byte(), input.byte());
        let (bytes, bits) = (input.word(), input.byte());
        match self.kind {
            Kind::E1000e => self.written_back(place & 15, how, bytes, bits),
            Kind::Virtio(_) => self.used(place & 15, how, bytes, bits),
            Kind::Vmxnet3 => self.completed(place, how, bytes, bits),
        }
    }

    /// The next number of a ring.
    fn next(&mut self, ring: u8) -> u16 {
        let next = &mut self.next[usize::from(ring)];
        *next = next.wrapping_add(1);
        next.wrapping_sub(1)
    }

    fn written_back(&mut self, place: u8, how: u8, bytes: u16, bits: u8) {
        let next = self.next(place);
        let at = 16 * usize::from(if how & 0x80 == 0 { next } else { how.into() } & 0xff);
        // DONE, END, what was checked, and errors; behind it, the length.
        let status =
            u32::from(how & 0x7f) | u32::from(bits & 0xfc) << 24 | u32::from(bits & 3) << 18;
        let length = u32::from(bytes | u16::from(how & 1));
        self.write(place, at + 8, &status.to_le_bytes());
        self.write(place, at + 12, &length.to_le_bytes());
    }

    fn used(&mut self, place: u8, how: u8, bytes: u16, bits: u8) {
        let next = self.next(place);
        let id = if how & 8 == 0 { next % 64 } else { bits.into() };
        // The virtio-net header of what arrives: segments of TCP, a checksum, any number of
        // buffers, where the buffer of that descriptor is.
        let kind = how >> 5;
        let count = 1 + bits % 3;
        let header = [kind & 3, kind, 54, 0, bits, 1, 34, 0, 16, 0, count, 0];
        let row = self.place(place).map(|base| base + 16 * u64::from(id));
        let buffer = row.and_then(|row| address(&self.card, row));
        self.fill(buffer, &header, bytes.saturating_sub(12));
        if how & 0x10 == 0 {
            // A packed ring: the length, the number, the flags of its lap.
            let at = 16 * usize::from(next % 64);
            let lap = if next / 64 % 2 == 0 { 0x8080_u16 } else { 0 };
            self.write(place, at + 8, &u32::from(bytes).to_le_bytes());
            self.write(place, at + 12, &id.to_le_bytes());
            self.write(place, at + 14, &(lap | u16::from(how & 7)).to_le_bytes());
        } else {
            // A split ring, whose used ring is the third of its places.
            let used = place + 2;
            let at = 4 + 8 * usize::from(next % 64);
            self.write(used, at, &u32::from(id).to_le_bytes());
            self.write(used, at + 4, &u32::from(bytes).to_le_bytes());
            self.write(used, 2, &next.wrapping_add(1).to_le_bytes());
        }
    }

    /// The next completion of a queue, of TX or of RX. The place says which, and of which queue.
    fn completed(&mut self, place: u8, how: u8, bytes: u16, bits: u8) {
        let queues = queues(&self.card);
        let (is_tx, queue) = (place & 1 != 0, u64::from(place >> 1 & 1) % queues);
        let second = how & 4 != 0;
        let first_place = 5 * queue as u8;
        // In the order of `places`.
        let (ring, done) = match (is_tx, second) {
            (true, _) => (0, 1),
            (false, false) => (2, 4),
            (false, true) => (3, 4),
        };
        let [ring, done] = [ring, done].map(|place| first_place + place);
        // The rings of RX are shorter, as far as their descriptions say so.
        let words = descriptions(&self.card) + 256 * (queue + if is_tx { 0 } else { queues });
        let sizes = self.card.try_read(words + 56, 12).unwrap_or(vec![0; 12]);
        let size = |at: usize| u16::from_le_bytes([sizes[at], sizes[at + 1]]).max(1);
        let (count, rows) = (size(8), size(0));
        let next = self.next(done);
        let in_order = if second || !is_tx {
            self.next(ring)
        } else {
            next
        };
        let index = if how & 0x80 == 0 {
            in_order % rows
        } else {
            bits.into()
        };
        // END and BEGIN, the ring, and that no checksum was calculated.
        let number = queue + if second { queues } else { 0 };
        let first = u32::from(index)
            | u32::from(how & 3) << 14
            | (number as u32) << 16
            | u32::from(how & 8) << 27;
        // A merged packet, of segments of a size.
        let is_large = how & 0x10 != 0;
        let generation = u32::from(next / count % 2 == 0) << 31;
        let last = generation
            | u32::from(bits & 0x7f) << 16
            | if is_large {
                4 << 24 | u32::from(how & 0x60)
            } else {
                0
            };
        if is_large {
            let row = self.place(ring).map(|base| base + 16 * u64::from(index));
            let buffer = row.and_then(|row| address(&self.card, row));
            self.fill(buffer, &[], bytes & 0x3fff);
        }
        let words = [first, bits.into(), u32::from(bytes & 0x7fff), last];
        let words: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        self.write(done, 16 * usize::from(next % count), &words);
    }

    /// Receives, and sends what arrives back if `how` says so.
    fn poll(&mut self, how: u8) {
        let (count, name) = (self.pairs.len(), self.kind.name());
        let (now, mut burst) = (self.now, Burst::new());
        let pair = &mut self.pairs[usize::from(how & 1) % count];
        if pair.has_failed[0] {
            return;
        }
        pair.has_failed[0] = pair
            .rx
            .poll(now, &mut burst, 1 + usize::from(how >> 3))
            .is_err();
        let counters = pair.rx_counters.snapshot();
        if counters.bad_packets > 0 {
            reached(&format!("a bad packet of {name}"));
        }
        for packet in burst.iter() {
            let is_large = packet.meta().gso.is_some();
            let kind = if is_large {
                "a large packet"
            } else {
                "a packet"
            };
            reached(&format!("{kind} of {name}"));
            assert!(packet.bytes() >= 14 && packet.meta().link == LinkType::Ethernet);
            let mut bytes = vec![0; packet.bytes()];
            assert_eq!(packet.copy_to(&mut bytes), bytes.len(), "they are there");
        }
        if how & 4 == 0 {
            self.pairs[usize::from(how >> 1 & 1) % count].transmit(&mut burst);
        }
    }

    fn send(&mut self, pair: u8, bytes: u16) {
        let frame = vec![pair; 14 + usize::from(bytes) % 16000];
        let mut burst = Burst::new();
        if let Ok(packet) = self.arena.packet_from(&frame) {
            assert!(burst.push(packet).is_ok(), "it has room");
            let pair = usize::from(pair) % self.pairs.len();
            self.pairs[pair].transmit(&mut burst);
        }
    }

    /// Time passes, and the workers have nothing to do.
    fn wait(&mut self) {
        self.now = self.now.after(Duration::from_millis(200));
        for pair in &mut self.pairs {
            pair.wait(self.now, self.kind.name());
        }
    }

    fn end(mut self) {
        for pair in &mut self.pairs {
            pair.tx.abandon(DropReason::Shutdown);
            assert_eq!(pair.tx.held(), 0);
            pair.check();
        }
    }
}

impl<R: RxDescriptors, T: TxDescriptors> Pair<R, T> {
    fn transmit(&mut self, burst: &mut Burst) {
        if self.has_failed[1] {
            return;
        }
        let wire = |burst: &Burst| {
            let all = burst
                .iter()
                .map(|packet| u64::from(packet.meta().wire_packets));
            all.sum::<u64>()
        };
        let given = wire(burst);
        let result = self.tx.transmit(burst);
        self.offered += given - wire(burst);
        self.has_failed[1] = result.is_err();
        self.check();
    }

    fn wait(&mut self, now: Instant, name: &str) {
        if !self.has_failed[0] {
            self.rx.arm();
        }
        if !self.has_failed[1] {
            self.has_failed[1] = self.tx.service(now).is_err();
            self.tx.arm();
            let counters = self.tx_counters.snapshot();
            if counters.reclaimed > 0 {
                reached(&format!("a sent packet of {name}"));
            }
            if counters.bad_completions > 0 {
                reached(&format!("a completion without a packet of {name}"));
            }
            self.check();
        }
    }

    fn reset(&mut self, now: Instant) {
        if !self.has_failed[1] {
            self.has_failed[1] = self.tx.reset(now).is_err();
            self.check();
        }
    }

    /// Each packet that was given to the queue is sent, dropped or held.
    fn check(&self) {
        let tx = self.tx_counters.snapshot();
        let left = tx.wire_packets + self.tx_drops.snapshot().total() + self.tx.held();
        let given = self.offered + tx.expanded + tx.taken_back;
        assert_eq!(given, left + tx.absorbed, "{tx:?}");
    }
}

/// The headers of TCP over IPv4 over Ethernet, without checksums.
fn tcp(ip_bytes: u16) -> [u8; 54] {
    let mut bytes = [0; 54];
    bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
    bytes[16..18].copy_from_slice(&ip_bytes.to_be_bytes());
    bytes[22..24].copy_from_slice(&[64, 6]);
    bytes[46..48].copy_from_slice(&[0x50, 0x10]);
    bytes
}
