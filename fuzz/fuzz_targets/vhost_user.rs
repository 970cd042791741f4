//! A vhost-user port, its messages, and rings in a guest's memory, all from the input: no panic;
//! each chain that is taken is a packet or a counted drop; each packet to the guest is sent, held,
//! or dropped with a reason; the device writes only what chains offer, and its used rings; and no
//! memory of packets is lost.

#![no_main]

mod guest;

use std::time::Duration;

use guest::{AVAIL, GUEST, Memory, RING_BYTES, RING_SIZE, Region, SHARED, TABLES, USED, USER};
use libfuzzer_sys::fuzz_target;
use packtrain::driver::{Attach, Driver, Features, RxBuffers};
use packtrain::packet::{Arena, ArenaConfig, Burst, Ingress};
use packtrain::plan::FitLimits;
use packtrain::port::by_hand::{FrontEnd, vhost};
use packtrain::port::vhost::{Vhost, VhostRx, VhostTx};
use packtrain::queue::{RxQueue, TxQueue};
use packtrain::stats::{DropCounters, DropReason, RxCounters, TxCounters};
use packtrain::time::Instant;
use packtrain_fuzz::{Input, reached};
use packtrain_offload::offload::LinkType;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::OwnedFd;
use std::sync::Arc;

const PAIRS: usize = 2;
/// The control ring is the last one.
const RINGS: u8 = 2 * PAIRS as u8 + 1;
/// Buffers, behind the rings; the second half is to receive into.
const BUFFERS: u64 = 24 << 10;
const BUFFER_BYTES: u64 = 2048;
const SLOTS: u8 = 8;

/// More of them find nothing else, and are slow.
const STEPS_MAX: usize = 64;

const SET_FEATURES: u32 = 2;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const SET_VRING_ERR: u32 = 14;
const SET_PROTOCOL_FEATURES: u32 = 16;
const SET_VRING_ENABLE: u32 = 18;

const OFFLOADS: u64 = 0x01C0_0000_0000_3B83;
const MQ_AND_CONTROL: u64 = 1 << 22 | 1 << 17;
/// `VERSION_1`, `MRG_RXBUF`, `INDIRECT_DESC`, `EVENT_IDX`, offloads, pairs with the control ring,
/// the protocol's own features.
const FEATURES: [u64; 7] = [
    1 << 32,
    1 << 15,
    1 << 28,
    1 << 29,
    OFFLOADS,
    MQ_AND_CONTROL,
    1 << 30,
];

thread_local! {
    static ARENA: Arena = Arena::new(ArenaConfig {
        small_frames: 512,
        large_frames: 192,
        lines: 1024,
    })
    .expect("memory");
}

fuzz_target!(|data: &[u8]| {
    let arena = ARENA.with(Clone::clone);
    let mut input = Input(data);
    let mut world = World::new(&arena, input.byte());
    for _ in 0..STEPS_MAX {
        if !input.0.is_empty() {
            world.step(&mut input);
        }
    }
    world.end();
    let census = arena.census();
    let used = (census.small_used, census.large_used, census.lines_used);
    assert_eq!(used, (0, 0, 0), "memory of packets is lost");
});

/// A queue of the port, worked by hand.
struct Pair {
    rx: RxQueue<VhostRx>,
    tx: TxQueue<VhostTx>,
    rx_counters: Arc<RxCounters>,
    rx_drops: Arc<DropCounters>,
    tx_counters: Arc<TxCounters>,
    tx_drops: Arc<DropCounters>,
    /// Wire packets that were given to `tx`.
    offered: u64,
}

struct World {
    memory: Memory,
    front: FrontEnd,
    pairs: Vec<Pair>,
    port: Vhost,
    arena: Arena,
    avail: [u16; RINGS as usize],
    now: Instant,
}

impl World {
    fn new(arena: &Arena, how: u8) -> Self {
        let attach = Attach {
            queues: PAIRS,
            rx: if how & 2 == 0 {
                Features::ALL
            } else {
                Features::NONE
            },
            rx_buffers: if how & 1 == 0 {
                RxBuffers::Whole
            } else {
                RxBuffers::PIECES
            },
            ..Attach::default()
        };
        let (mut port, front) = vhost(PAIRS).expect("it opens nothing");
        let halves = port.attach(&attach, arena).expect("descriptors and memory");
        let capabilities = port.capabilities();
        let pairs = halves.into_iter().map(|(rx, tx)| {
            let (rx_counters, rx_drops): (Arc<RxCounters>, Arc<DropCounters>) = Default::default();
            let (tx_counters, tx_drops): (Arc<TxCounters>, Arc<DropCounters>) = Default::default();
            let limits = FitLimits::new(&capabilities, None);
            Pair {
                rx: RxQueue::new(
                    rx,
                    arena.clone(),
                    LinkType::Ethernet,
                    Ingress::default(),
                    Arc::clone(&rx_counters),
                    Arc::clone(&rx_drops),
                ),
                tx: TxQueue::new(
                    tx,
                    arena.clone(),
                    capabilities.tx,
                    limits,
                    None,
                    Arc::clone(&tx_counters),
                    Arc::clone(&tx_drops),
                ),
                rx_counters,
                rx_drops,
                tx_counters,
                tx_drops,
                offered: 0,
            }
        });
        Self {
            memory: Memory::new(),
            front,
            pairs: pairs.collect(),
            port,
            arena: arena.clone(),
            avail: [0; RINGS as usize],
            now: Instant::default(),
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() & 15 {
            0 => self.watched(false, |world| world.set_up(input)),
            1 => self.watched(false, |world| world.say(input)),
            2 => {
                let (at, bytes) = (u64::from(input.word()), usize::from(input.byte()));
                let (bytes, rest) = input.0.split_at(bytes.min(input.0.len()));
                self.memory.write(at, bytes);
                input.0 = rest;
            }
            3 => {
                let (ring, index) = (input.byte() % RINGS, u16::from(input.byte()));
                self.describe(ring_at(ring) + 16 * u64::from(index), input);
            }
            4 => {
                let at = u64::from(input.word());
                self.describe(at, input);
            }
            5 => {
                let (ring, head) = (input.byte() % RINGS, input.byte());
                self.push(ring, u16::from(head));
            }
            6 => {
                let ring = input.byte() % RINGS;
                self.avail[usize::from(ring)] = input.word();
                self.announce(ring);
            }
            7 | 8 => self.poll(input.byte()),
            9 => {
                let (pair, bytes) = (input.byte(), input.word());
                self.send(pair, bytes);
            }
            10 => {
                self.watched(true, |world| world.front.serve_control());
            }
            11 => self.watched(false, |world| world.front.reconnect(None)),
            12 => self.wait(),
            13 => self.packet(input),
            14 => self.post(input.byte()),
            _ => self.request(input),
        }
    }

    /// Does what makes the device write, and checks where it wrote.
    fn watched<T>(&mut self, offered: bool, what: impl FnOnce(&mut Self) -> T) -> T {
        let is_known = self.memory.before(offered);
        let result = what(self);
        if is_known {
            self.memory.after();
        } else {
            reached("a guest that offers its own rings");
        }
        result
    }

    /// All that a front end sends, and then a byte for what it leaves out.
    fn set_up(&mut self, input: &mut Input<'_>) {
        let (features, but) = (features(input), input.byte());
        self.message(SET_PROTOCOL_FEATURES, 0, &1_u64.to_le_bytes(), vec![]);
        self.message(SET_FEATURES, 0, &features.to_le_bytes(), vec![]);
        let whole = Region {
            guest: GUEST + SHARED.start as u64,
            bytes: SHARED.len() as u64,
            user: USER + SHARED.start as u64,
            offset: SHARED.start as u64,
        };
        if but & 1 == 0 {
            self.share(&[whole], 1, 0);
        }
        for ring in 0..RINGS {
            if but & 2 != 0 && ring == 0 {
                continue;
            }
            let number = u64::from(ring).to_le_bytes();
            let size = [u32::from(ring), u32::from(RING_SIZE)];
            self.message(SET_VRING_NUM, 0, &words(&size), vec![]);
            let base = [u32::from(ring), u32::from(self.avail[usize::from(ring)])];
            self.message(SET_VRING_BASE, 0, &words(&base), vec![]);
            let at = USER + ring_at(ring);
            self.place(ring, [at, at + USED, at + AVAIL], 0);
            self.message(SET_VRING_KICK, 0, &number, vec![event()]);
            if but & 4 == 0 {
                self.message(SET_VRING_CALL, 0, &number, vec![event()]);
            }
            let enable = [u32::from(ring), u32::from(but & 8 == 0)];
            self.message(SET_VRING_ENABLE, 0, &words(&enable), vec![]);
        }
    }

    /// Any message.
    fn say(&mut self, input: &mut Input<'_>) {
        const SMALL: [u32; 14] = [1, 2, 3, 4, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18];
        let (kind, flags) = (input.byte(), input.byte());
        let ring = input.byte();
        match kind {
            0..32 => {
                let regions: Vec<_> = (0..kind % 10)
                    .map(|_| {
                        let [guest, user, offset, bytes] = [(); 4].map(|()| input.word());
                        Region {
                            guest: GUEST + u64::from(guest),
                            bytes: u64::from(bytes),
                            user: USER + u64::from(user),
                            offset: u64::from(offset),
                        }
                    })
                    .collect();
                let fds = regions.len() + usize::from(ring & 1);
                self.share(&regions, fds, flags);
            }
            32..64 => {
                let parts = [(); 3].map(|()| USER + u64::from(input.word()));
                self.place(ring, parts, flags);
            }
            64..224 => {
                let request = SMALL[usize::from(kind) % SMALL.len()];
                let payload = match request {
                    SET_FEATURES => features(input).to_le_bytes().to_vec(),
                    SET_VRING_KICK | SET_VRING_CALL | SET_VRING_ERR => {
                        let none = u64::from(flags & 64) << 2;
                        (u64::from(ring) | none).to_le_bytes().to_vec()
                    }
                    SET_PROTOCOL_FEATURES => u64::from(ring).to_le_bytes().to_vec(),
                    _ => words(&[u32::from(ring), u32::from(input.word())]),
                };
                let fds = match flags >> 4 & 3 {
                    0 => vec![],
                    1 => vec![Memory::fd()],
                    _ => vec![event()],
                };
                self.message(request, flags, &payload, fds);
            }
            224.. => {
                let (payload, rest) = input.0.split_at(usize::from(ring).min(input.0.len()));
                input.0 = rest;
                let payload = payload.to_vec();
                // The sizes of rings and what they are in are not known any more.
                let request = match u32::from(kind - 224) {
                    SET_MEM_TABLE | SET_VRING_ADDR | SET_VRING_NUM => 20,
                    request => request,
                };
                self.message(request, flags, &payload, vec![]);
            }
        }
    }

    fn share(&mut self, regions: &[Region], fds: usize, flags: u8) {
        if self.memory.is_full() {
            return;
        }
        let mut table = words(&[regions.len() as u32, 0]);
        for region in regions {
            let row = [region.guest, region.bytes, region.user, region.offset];
            table.extend(row.map(u64::to_le_bytes).concat());
        }
        self.memory.share(regions.iter().copied());
        let fds = (0..fds).map(|_| Memory::fd()).collect();
        self.message(SET_MEM_TABLE, flags, &table, fds);
    }

    fn place(&mut self, ring: u8, [descriptors, used, avail]: [u64; 3], flags: u8) {
        if self.memory.is_full() {
            return;
        }
        let mut payload = words(&[u32::from(ring), 0]);
        payload.extend([descriptors, used, avail, 0].map(u64::to_le_bytes).concat());
        // First: a ring in use goes on there.
        self.memory.place(descriptors, used, avail);
        self.message(SET_VRING_ADDR, flags, &payload, vec![]);
    }

    fn message(&mut self, request: u32, flags: u8, payload: &[u8], fds: Vec<OwnedFd>) {
        let mut payload = payload.to_vec();
        if request == SET_VRING_NUM
            && let Some(size) = payload.get_mut(4..).and_then(<[u8]>::first_chunk_mut)
        {
            *size = self.memory.resize(u32::from_le_bytes(*size)).to_le_bytes();
        }
        // The version, a reply, a wanted acknowledgement.
        let flags = u32::from(flags & 15) ^ 1;
        let mut header = [0; 12];
        let of = words(&[request, flags, payload.len() as u32]);
        header.copy_from_slice(&of);
        match self.front.send(header, &payload, fds) {
            Ok(Some(reply)) => assert_eq!(reply[4..8], 5_u32.to_le_bytes(), "a reply"),
            Ok(None) => {}
            Err(problem) => {
                assert!(!problem.is_empty());
                self.front.reconnect(Some(problem));
                reached("a connection that ends");
            }
        }
    }

    /// Writes a descriptor at a place of the file.
    fn describe(&mut self, at: u64, input: &mut Input<'_>) {
        let (address, bytes) = (input.word(), input.word());
        let (flags, next) = (input.byte(), input.byte());
        // Addresses that no guest has, and lengths that nothing has.
        let address = match flags & 0x80 {
            0 => GUEST + u64::from(address),
            _ => u64::from(address)
                .wrapping_sub(1 << 15)
                .wrapping_mul(1 << 49),
        };
        let bytes = u32::from(bytes) | if flags & 0x40 == 0 { 0 } else { 0xFFFF_0000 };
        let row = descriptor(address, bytes, u16::from(flags & 7), u16::from(next));
        self.memory.write(at, &row);
    }

    fn push(&mut self, ring: u8, head: u16) {
        let next = &mut self.avail[usize::from(ring)];
        let entry = ring_at(ring) + AVAIL + 4 + 2 * u64::from(*next % RING_SIZE);
        *next = next.wrapping_add(1);
        self.memory.write(entry, &head.to_le_bytes());
        self.announce(ring);
    }

    fn announce(&mut self, ring: u8) {
        let index = self.avail[usize::from(ring)].to_le_bytes();
        self.memory.write(ring_at(ring) + AVAIL + 2, &index);
    }

    /// A packet of a guest that knows how: any header in front of TCP or UDP, perhaps damaged, in
    /// one buffer, in two, or in a table.
    fn packet(&mut self, input: &mut Input<'_>) {
        let (how, slot) = (input.byte(), input.byte() % SLOTS);
        let bytes = 60 + u64::from(input.word()) % (BUFFER_BYTES - 100);
        let (size, at, value) = (input.word(), input.word(), input.byte());
        let ring = 1 + 2 * (how & 1);
        let (is_ipv6, is_udp, is_gso) = (how & 2 != 0, how & 4 != 0, how & 8 != 0);
        let mut packet = packet(is_ipv6, is_udp, bytes as usize);
        let transport = if is_ipv6 { 54 } else { 34 };
        let (rest, field) = if is_udp { (8, 6) } else { (20, 16) };
        let gso_type = match (is_gso, is_udp, is_ipv6) {
            (false, ..) => 0,
            (_, true, _) => 5,
            (_, _, false) => 1,
            (_, _, true) => 4,
        };
        let mut header = vec![u8::from(how & 16 == 0), gso_type];
        for word in [transport + rest, size, transport, field, 0] {
            header.extend(word.to_le_bytes());
        }
        header.append(&mut packet);
        let end = header.len();
        header[usize::from(at) % end] ^= value;
        let place = BUFFERS + u64::from(slot) * BUFFER_BYTES;
        self.memory.write(place, &header);
        let (from, end) = (GUEST + place, end as u32);
        let head = 2 * u16::from(slot);
        let in_ring = ring_at(ring) + 16 * u64::from(head);
        let two = [
            descriptor(from, 12, 1, head + 1),
            descriptor(from + 12, end - 12, 0, 0),
        ];
        match how >> 5 & 3 {
            0 => self.memory.write(in_ring, &descriptor(from, end, 0, 0)),
            1 => self.memory.write(in_ring, &two.concat()),
            _ => {
                let table = ring_at(ring) + TABLES + 64 * u64::from(slot);
                let rows = [
                    descriptor(from, 5, 1, 1),
                    descriptor(from + 5, end - 5, 0, 0),
                ];
                self.memory.write(table, &rows.concat());
                let row = descriptor(GUEST + table, 32, 4, 0);
                self.memory.write(in_ring, &row);
            }
        }
        self.push(ring, head);
    }

    /// Posts buffers to receive into: some of any length, whole or in two parts.
    fn post(&mut self, how: u8) {
        let ring = 2 * (how & 1);
        let bytes = [2000, 100, 30, 700][usize::from(how >> 1 & 3)];
        for slot in 0..1 + (how >> 3 & 7) {
            let place = BUFFERS + u64::from(SLOTS + slot) * BUFFER_BYTES;
            let (to, head) = (GUEST + place, 2 * u16::from(slot));
            let in_ring = ring_at(ring) + 16 * u64::from(head);
            let rows = if how & 0x40 == 0 {
                descriptor(to, bytes, 2, 0)
            } else {
                let rest = descriptor(to + 10, bytes - 10, 2, 0);
                [descriptor(to, 10, 3, head + 1), rest].concat()
            };
            self.memory.write(in_ring, &rows);
            self.push(ring, head);
        }
    }

    /// A request for the control ring.
    fn request(&mut self, input: &mut Input<'_>) {
        let (ring, pairs) = (RINGS - 1, input.byte());
        let place = ring_at(ring) + TABLES + 1024;
        self.memory.write(place, &[4, 0, pairs, 0, 0xFF]);
        let rows = [
            descriptor(GUEST + place, 4, 1, 1),
            descriptor(GUEST + place + 4, 1, 2, 0),
        ];
        self.memory.write(ring_at(ring), &rows.concat());
        self.push(ring, 0);
        self.watched(true, |world| world.front.serve_control());
        if self.memory.word(place + 4) & 0xFF == 0 {
            reached("a request that is answered");
        }
    }

    /// Receives, and sends what arrives back if `how` says so.
    fn poll(&mut self, how: u8) {
        let (pair, to) = (usize::from(how & 1), usize::from(how >> 1 & 1));
        let ring = 2 * pair + 1;
        let (now, mut burst) = (self.now, Burst::new());
        let [taken, breaks] = self.front.taken(ring);
        let before = self.pairs[pair].received();
        self.watched(false, |world| {
            let budget = 1 + usize::from(how >> 3);
            let polled = world.pairs[pair].rx.poll(now, &mut burst, budget);
            polled.expect("no guest has the port fail");
        });
        let received = self.pairs[pair].received().wrapping_sub(before);
        let [now_taken, now_broken] = self.front.taken(ring);
        let chains = u64::from((now_taken as u16).wrapping_sub(taken as u16));
        assert_eq!(
            received,
            chains + (now_broken - breaks),
            "each chain is one"
        );
        if now_broken > breaks {
            reached("a ring that is given up");
        }
        for packet in burst.iter() {
            let meta = packet.meta();
            if meta.gso.is_some() {
                reached("a large packet of a guest");
            }
            assert!(packet.bytes() >= 14 && meta.link == LinkType::Ethernet);
        }
        if self.pairs[pair]
            .rx_drops
            .snapshot()
            .get(DropReason::BadDescriptor)
            > 0
        {
            reached("a bad chain");
        }
        if how & 4 == 0 {
            self.transmit(to, &mut burst);
        }
    }

    fn send(&mut self, pair: u8, bytes: u16) {
        let frame = vec![pair; 14 + usize::from(bytes)];
        let mut burst = Burst::new();
        if let Ok(packet) = self.arena.packet_from(&frame) {
            assert!(burst.push(packet).is_ok(), "it has room");
            self.transmit(usize::from(pair & 1), &mut burst);
        }
    }

    fn transmit(&mut self, pair: usize, burst: &mut Burst) {
        let chains = |world: &Self| {
            let each = (0..PAIRS).map(|pair| world.front.taken(2 * pair)[0] as u16);
            each.collect::<Vec<_>>()
        };
        let (taken, sent) = (
            chains(self),
            self.pairs[pair].tx_counters.snapshot().packets,
        );
        self.watched(true, |world| {
            let pair = &mut world.pairs[pair];
            let wire = |burst: &Burst| {
                let all = burst
                    .iter()
                    .map(|packet| u64::from(packet.meta().wire_packets));
                all.sum::<u64>()
            };
            let given = wire(burst);
            pair.tx.transmit(burst).expect("no guest has the port fail");
            pair.offered += given - wire(burst);
        });
        let snapshot = self.pairs[pair].tx_counters.snapshot();
        let sent = snapshot.packets - sent;
        let each = chains(self).into_iter().zip(taken);
        let used: u64 = each
            .map(|(now, before)| u64::from(now.wrapping_sub(before)))
            .sum();
        assert!(used >= sent, "{sent} packets in {used} chains");
        if sent > 0 {
            reached(if used > sent {
                "several chains"
            } else {
                "one chain"
            });
        }
        if snapshot.gso_packets > 0 {
            reached("a large packet to a guest");
        }
        if snapshot.gso_sw_packets > 0 {
            reached("cut for a guest");
        }
        if self.pairs[pair].tx.held() > 0 {
            reached("a wait for buffers");
        }
        self.pairs[pair].check();
    }

    /// Time passes, and the workers have nothing to do.
    fn wait(&mut self) {
        self.now = self.now.after(Duration::from_millis(1));
        let now = self.now;
        for pair in 0..PAIRS {
            self.watched(true, |world| {
                let pair = &mut world.pairs[pair];
                pair.tx.service(now).expect("no guest has the port fail");
                pair.tx.arm();
                pair.rx.arm();
            });
            self.transmit(pair, &mut Burst::new());
        }
    }

    fn end(mut self) {
        self.watched(false, |world| world.front.reconnect(None));
        for pair in &mut self.pairs {
            pair.tx.abandon(DropReason::Shutdown);
            assert_eq!(pair.tx.held(), 0);
            pair.check();
        }
        let status = self.port.status();
        assert_eq!(status.features, 0, "nothing of the last front end is left");
    }
}

impl Pair {
    /// Packets and bad chains.
    fn received(&self) -> u64 {
        let counters = self.rx_counters.snapshot();
        counters.packets + counters.bad_packets
    }

    /// Each packet that was given to the queue is sent, dropped or held.
    fn check(&self) {
        let tx = self.tx_counters.snapshot();
        let left = tx.wire_packets + self.tx_drops.snapshot().total() + self.tx.held();
        assert_eq!(self.offered + tx.expanded, left + tx.absorbed, "{tx:?}");
    }
}

/// Where a ring is in the file.
fn ring_at(ring: u8) -> u64 {
    SHARED.start as u64 + u64::from(ring) * RING_BYTES
}

fn features(input: &mut Input<'_>) -> u64 {
    let (bits, odd) = (input.byte(), input.byte());
    let chosen = FEATURES.iter().enumerate();
    let chosen = chosen.filter(|(bit, _)| bits & 1 << bit != 0);
    let chosen = chosen.fold(0, |all, (_, feature)| all | feature);
    chosen ^ if odd == 0 { 0 } else { 1 << (odd & 63) }
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd")
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn descriptor(address: u64, bytes: u32, flags: u16, next: u16) -> Vec<u8> {
    let mut row = address.to_le_bytes().to_vec();
    row.extend(bytes.to_le_bytes());
    row.extend(flags.to_le_bytes());
    row.extend(next.to_le_bytes());
    row
}

/// An Ethernet frame of `bytes` bytes with TCP or UDP.
fn packet(is_ipv6: bool, is_udp: bool, bytes: usize) -> Vec<u8> {
    let protocol = if is_udp { 17 } else { 6 };
    let mut packet = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    if is_ipv6 {
        packet.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        packet.extend((bytes.saturating_sub(54) as u16).to_be_bytes());
        packet.extend([protocol, 64]);
        packet.extend([0xfd; 32]);
    } else {
        packet.extend([8, 0, 0x45, 0]);
        packet.extend((bytes.saturating_sub(14) as u16).to_be_bytes());
        packet.extend([
            0, 1, 0x40, 0, 64, protocol, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2,
        ]);
    }
    let datagram = bytes.saturating_sub(packet.len()) as u16;
    packet.extend([9, 1, 9, 2]);
    if is_udp {
        packet.extend(datagram.to_be_bytes());
    } else {
        packet.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0x20, 0]);
    }
    packet.resize(bytes.max(packet.len()), 7);
    packet
}
