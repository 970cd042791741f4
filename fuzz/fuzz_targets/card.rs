//! A network card whose registers, rings and interrupts are from the input: no panic; a packet that
//! was given to a queue is sent, dropped or held; what the card says of its rings costs no memory
//! of packets, and no byte outside of a frame is one of a packet.

#![no_main]
#![allow(unsafe_code, reason = "writes memory as a card does")]

use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use packtrain::driver::{Attach, Driver, QueuePair, RxBuffers, RxDescriptors, TxDescriptors};
use packtrain::packet::{Arena, ArenaConfig, Burst, Ingress};
use packtrain::plan::FitLimits;
use packtrain::port::card::{Bus, Interrupt, InterruptKind, Memory};
use packtrain::port::e1000e::{E1000e, E1000eConfig};
use packtrain::port::virtio::{Virtio, VirtioConfig};
use packtrain::queue::{RxQueue, TxQueue};
use packtrain::stats::{DropCounters, DropReason, RxCounters, TxCounters};
use packtrain::time::Instant;
use packtrain_fuzz::{Input, reached};
use packtrain_offload::offload::LinkType;

/// More of them find nothing else, and are slow.
const STEPS_MAX: usize = 64;
/// Between the addresses of two pieces of memory.
const APART: u64 = 1 << 32;
/// What QEMU's virtio device offers.
const OFFERED: u64 = 0x01C0_0007_3000_0000 | 1 << 15 | 0x001D_3BAB | 1 << 22;
/// Where its structures are in their region: the first one and the last one.
const COMMON_BAR: usize = 4;
const DEVICE_AT: usize = 0x300;

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
    if how & 1 == 0 {
        let config = E1000eConfig {
            interrupts: Some(irq),
            rings: 256,
            mtu: if how & 0x10 == 0 { 1500 } else { 9000 },
            ..E1000eConfig::default()
        };
        let card = Card::e1000e();
        match E1000e::open(card.clone(), &config) {
            Ok(port) => run(port, &card, how, queues, &arena, &mut input),
            Err(error) => panic!("a card that answers is opened: {error}"),
        }
    } else {
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
        let card = Card::virtio(OFFERED ^ if odd == 0 { 0 } else { 1 << (odd & 63) });
        match Virtio::open(card.clone(), &config) {
            Ok(port) => run(port, &card, how, queues, &arena, &mut input),
            Err(error) => assert!(odd != 0, "it offers all: {error}"),
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

/// What the card has, which the test and the driver share.
#[derive(Clone, Debug)]
struct Card(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// By region and offset, a word each.
    registers: BTreeMap<(usize, usize), u32>,
    /// Of the registers of region 0: bits that always read as set, and as clear.
    ones: BTreeMap<usize, u32>,
    zeros: BTreeMap<usize, u32>,
    config: BTreeMap<usize, u32>,
    maps: Vec<Mapped>,
    /// A virtio device: what it offers, and the addresses of its rings.
    offered: Option<u64>,
    areas: BTreeMap<(u16, usize), u64>,
    is_removed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Mapped {
    start: usize,
    bytes: usize,
}

impl Card {
    fn e1000e() -> Self {
        let mut state = State::default();
        state.config.insert(0, 0x10d3_8086);
        // Settings read, PHY ready and without an error.
        state.ones.insert(0x10, 1 << 9);
        state.ones.insert(0x20, 1 << 28);
        state.zeros.insert(0x20, 1 << 30);
        // The link is up, with 1 Gbit/s.
        state.registers.insert((0, 8), 0x83);
        state.registers.insert((0, 0x5400), 0x0a00_5452);
        state.registers.insert((0, 0x5404), 0x8003_0c0b);
        Self(Arc::new(Mutex::new(state)))
    }

    fn virtio(offered: u64) -> Self {
        let mut state = State {
            offered: Some(offered),
            ..State::default()
        };
        let mut words = vec![(0, 0x1041_1af4), (4, 1 << 20), (0x34, 0x40)];
        let structures = [
            (1, 0, 56),
            (2, 0x100, 64),
            (3, 0x200, 4),
            (4, DEVICE_AT as u32, 12),
        ];
        for (at, (kind, place, bytes)) in (0x40..).step_by(20).zip(structures) {
            let next = if kind == 4 { 0 } else { at as u32 + 20 };
            words.push((at, 9 | next << 8 | 20 << 16 | kind << 24));
            words.extend([
                (at + 4, COMMON_BAR as u32),
                (at + 8, place),
                (at + 12, bytes),
            ]);
            words.push((at + 16, 4));
        }
        state.config.extend(words);
        // An address, a link that is up, two pairs of queues, an MTU of 1500.
        for (index, word) in [2, 1 << 16 | 1 << 8, 1500 << 16 | 2]
            .into_iter()
            .enumerate()
        {
            state
                .registers
                .insert((COMMON_BAR, DEVICE_AT + 4 * index), word);
        }
        Self(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic")
    }

    /// The addresses of rings, or of parts of them, that the card knows.
    fn places(&self) -> Vec<u64> {
        let state = self.state();
        if state.offered.is_some() {
            return state.areas.values().copied().collect();
        }
        let bases = [0x2800, 0x3800, 0x2900, 0x3900];
        let word = |at| state.registers.get(&(0, at)).copied().unwrap_or(0);
        let bases = bases.map(|at| u64::from(word(at)) | u64::from(word(at + 4)) << 32);
        bases.into_iter().filter(|base| *base >= APART).collect()
    }

    /// Memory of the driver at an address, if it has given all of it to the card. Of the arena that
    /// is what packets are in, and nothing by which it knows its frames.
    fn memory(&self, address: u64, bytes: usize) -> Option<NonNull<u8>> {
        let state = self.state();
        let (index, offset) = (address / APART, (address % APART) as usize);
        let map = *state.maps.get(index.checked_sub(1)? as usize)?;
        if offset.saturating_add(bytes) > map.bytes {
            return None;
        }
        NonNull::new(std::ptr::with_exposed_provenance_mut(map.start + offset))
    }

    /// Writes memory, if there is some at the address.
    fn write(&self, address: u64, value: &[u8]) {
        if let Some(start) = self.memory(address, value.len()) {
            let start = start.as_ptr();
            // SAFETY: within memory that the driver has mapped, and not freed: the target ends its
            // queues last. Between the calls of this thread no other code accesses it.
            unsafe { start.copy_from_nonoverlapping(value.as_ptr(), value.len()) };
        }
    }

    /// An address that the driver has written into a descriptor.
    fn address(&self, at: u64) -> Option<u64> {
        let start = self.memory(at, 8)?.cast::<u64>();
        // SAFETY: as in `write`.
        Some(u64::from_le(unsafe { start.read_unaligned() }))
    }

    fn part(&self, bar: usize, at: usize, bytes: usize) -> u32 {
        let word = self.read32(bar, at & !3) >> (8 * (at & 3));
        word & (u32::MAX >> (32 - 8 * bytes))
    }

    fn set_part(&self, bar: usize, at: usize, bytes: usize, value: u32) {
        let (shift, mask) = (8 * (at & 3), u32::MAX >> (32 - 8 * bytes));
        let mut state = self.state();
        let word = state.registers.entry((bar, at & !3)).or_insert(0);
        *word = *word & !(mask << shift) | value << shift;
        // The select of a queue: its size, and a doorbell of its own.
        if bar == COMMON_BAR && at & !3 == 20 && state.offered.is_some() {
            let queue = state.registers[&(bar, 20)] >> 16;
            let size = if queue < 5 { 64 } else { 0 };
            let vector = state.registers.get(&(bar, 24)).copied().unwrap_or(0) & 0xffff_0000;
            state.registers.insert((bar, 24), vector | size);
            state.registers.insert((bar, 28), queue << 16);
        }
    }
}

impl Bus for Card {
    fn name(&self) -> &str {
        "0000:01:00.0"
    }

    fn region(&self, _: usize) -> usize {
        1 << 17
    }

    fn read8(&self, bar: usize, at: usize) -> u8 {
        self.part(bar, at, 1) as u8
    }

    fn read16(&self, bar: usize, at: usize) -> u16 {
        self.part(bar, at, 2) as u16
    }

    fn read32(&self, bar: usize, at: usize) -> u32 {
        let state = self.state();
        if state.is_removed {
            return u32::MAX;
        }
        let word = |at: usize| state.registers.get(&(bar, at)).copied().unwrap_or(0);
        if let (Some(offered), true) = (state.offered, bar == COMMON_BAR && at == 4) {
            return (offered >> (32 * (word(0) & 1))) as u32;
        }
        if bar != 0 {
            return word(at);
        }
        let (ones, zeros) = (state.ones.get(&at), state.zeros.get(&at));
        (word(at) | ones.unwrap_or(&0)) & !zeros.unwrap_or(&0)
    }

    fn write8(&self, bar: usize, at: usize, value: u8) {
        self.set_part(bar, at, 1, value.into());
    }

    fn write16(&self, bar: usize, at: usize, value: u16) {
        self.set_part(bar, at, 2, value.into());
    }

    fn write32(&self, bar: usize, at: usize, value: u32) {
        let mut state = self.state();
        state.registers.insert((bar, at), value);
        if state.offered.is_some() && bar == COMMON_BAR && (32..56).contains(&at) {
            let queue = (state.registers.get(&(bar, 20)).copied().unwrap_or(0) >> 16) as u16;
            let area = state.areas.entry((queue, (at - 32) / 8)).or_insert(0);
            *area = match at & 4 {
                0 => *area & !0xffff_ffff | u64::from(value),
                _ => *area & 0xffff_ffff | u64::from(value) << 32,
            };
        }
    }

    fn config(&self, at: usize) -> io::Result<u32> {
        Ok(*self.state().config.get(&at).unwrap_or(&0))
    }

    fn map(&self, memory: &Memory<'_>) -> io::Result<u64> {
        let mut state = self.state();
        state.maps.push(Mapped {
            start: memory.start().as_ptr().expose_provenance(),
            bytes: memory.bytes(),
        });
        Ok(state.maps.len() as u64 * APART)
    }

    fn interrupts(&self, kind: InterruptKind) -> usize {
        match kind {
            InterruptKind::Msix => 5,
            InterruptKind::Msi | InterruptKind::Intx => 1,
        }
    }

    fn connect(&self, _: InterruptKind, _: &[Interrupt]) -> io::Result<()> {
        Ok(())
    }

    fn unmask(&self) {}

    fn reset(&self) -> io::Result<()> {
        Ok(())
    }

    fn start(&self, _: bool) -> io::Result<()> {
        Ok(())
    }

    fn is_removed(&self) -> bool {
        self.state().is_removed
    }

    fn pause(&self, _: Duration) {}
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
                    reached("a card that is removed");
                }
            }
        }
    }

    /// A register that has another value: the first ones, those of queues, or any.
    fn register(&mut self, input: &mut Input<'_>) {
        let (at, value) = (input.word(), input.word());
        let at = match at >> 14 {
            0 => usize::from(at) & 0x3c,
            1 => 0x3800 | usize::from(at) & 0x13c,
            _ => usize::from(at) & 0xfffc,
        };
        let mut state = self.card.state();
        let bar = if state.offered.is_some() {
            COMMON_BAR
        } else {
            0
        };
        let high = u32::from(value & 0x8000) << 16;
        state.registers.insert((bar, at), u32::from(value) | high);
    }

    fn place(&self, place: u8) -> Option<u64> {
        let places = self.card.places();
        let index = usize::from(place).checked_rem(places.len())?;
        Some(places[index])
    }

    fn write(&self, place: u8, at: usize, value: &[u8]) {
        if let Some(base) = self.place(place) {
            self.card.write(base + at as u64, value);
        }
    }

    /// The next descriptor of a ring, or another one, is done in some way; for a split ring, an
    /// element of the used ring and its index.
    fn descriptor(&mut self, input: &mut Input<'_>) {
        let (place, how) = (input.byte(), input.byte());
        let (bytes, bits) = (input.word(), input.byte());
        let index = usize::from(place & 15);
        let (place, next) = (index as u8, self.next[index]);
        if self.card.state().offered.is_none() {
            let at = 16 * usize::from(if how & 0x80 == 0 { next } else { how.into() } & 0xff);
            // DONE, END, what was checked, and errors; behind it, the length.
            let status =
                u32::from(how & 0x7f) | u32::from(bits & 0xfc) << 24 | u32::from(bits & 3) << 18;
            self.write(place, at + 8, &status.to_le_bytes());
            self.write(
                place,
                at + 12,
                &u32::from(bytes | u16::from(how & 1)).to_le_bytes(),
            );
        } else {
            let id = if how & 8 == 0 { next % 64 } else { bits.into() };
            // The virtio-net header of what arrives: segments of TCP, a checksum, any number of
            // buffers, where the buffer of that descriptor is.
            let kind = how >> 5;
            let header = [
                kind & 3,
                kind,
                54,
                0,
                bits,
                1,
                34,
                0,
                16,
                0,
                1 + bits % 3,
                0,
            ];
            let row = self.place(place).map(|base| base + 16 * u64::from(id));
            if let Some(buffer) = row.and_then(|row| self.card.address(row)) {
                self.card.write(buffer, &header);
                self.card
                    .write(buffer + 12, &tcp(bytes.saturating_sub(12 + 14)));
            }
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
        self.next[index] = next.wrapping_add(1);
    }

    /// Receives, and sends what arrives back if `how` says so.
    fn poll(&mut self, how: u8) {
        let count = self.pairs.len();
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
            reached("a bad packet");
        }
        for packet in burst.iter() {
            let is_large = packet.meta().gso.is_some();
            reached(if is_large {
                "a large packet"
            } else {
                "a packet"
            });
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
            pair.wait(self.now);
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

    fn wait(&mut self, now: Instant) {
        if !self.has_failed[0] {
            self.rx.arm();
        }
        if !self.has_failed[1] {
            self.has_failed[1] = self.tx.service(now).is_err();
            self.tx.arm();
            let counters = self.tx_counters.snapshot();
            if counters.reclaimed > 0 {
                reached("a sent packet");
            }
            if counters.bad_completions > 0 {
                reached("a packet that was never sent is completed");
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
