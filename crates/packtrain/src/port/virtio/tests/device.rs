//! A virtio network device in this process: registers, and the device's end of its rings.

use crate::port::card::fake::{Fake, Registers};
use crate::port::virtqueue::features::{EVENT_IDX, INDIRECT_DESC, RING_PACKED};
use crate::port::virtqueue::{
    DESCRIPTOR_BYTES, INDIRECT, NEXT, NO_INTERRUPT, Shape, WRITE, avail_event_at, passed,
    used_event_at,
};
use std::collections::BTreeMap;

const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;
/// Where the structures are in BAR 4.
const NOTIFY: usize = 0x100;
const ISR: usize = 0x200;
const DEVICE: usize = 0x300;
const MULTIPLIER: usize = 4;

/// A chain that the device has taken.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    pub(super) id: u16,
    pub(super) count: u16,
    pub(super) buffers: Vec<(u64, u32, bool)>,
    /// Where they were, and its bytes, if that was a table.
    pub(super) table: Option<(u64, u32)>,
}

/// A ring as the device has it.
#[derive(Clone, Debug, Default)]
pub(super) struct Ring {
    pub(super) shape: Shape,
    areas: [u64; 3],
    has_tables: bool,
    vector: u16,
    enabled: bool,
    /// The next chain, and the next used element, with the laps of a packed ring.
    next: u16,
    next_lap: bool,
    used: u16,
    used_lap: bool,
    /// Used elements when the driver was last interrupted, or was not; in a packed ring
    /// descriptors.
    told: u16,
    /// Notifications by the driver.
    pub(super) notifications: u64,
}

/// The registers.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) offered: u64,
    pub(super) features: u64,
    selects: [u32; 2],
    status: u8,
    queue: u16,
    /// The vector of changes of the configuration.
    changes: u16,
    pub(super) rings: BTreeMap<u16, Ring>,
    /// What is the device's own.
    pub(super) settings: [u8; 12],
    isr: u8,
    pub(super) commands: Vec<Vec<u8>>,
    pub(super) refuses: bool,
    pub(super) size_max: u16,
    /// Rings with fewer descriptors than that.
    pub(super) smaller: BTreeMap<u16, u16>,
}

pub(super) type Device = Fake<Model>;

impl Device {
    pub(super) fn offering(offered: u64) -> Self {
        let device = Self::new(Model {
            offered,
            features: 0,
            selects: [0; 2],
            status: 0,
            queue: 0,
            changes: 0xffff,
            rings: BTreeMap::new(),
            settings: [2, 0, 0, 0, 0, 1, 1, 0, 2, 0, 0xdc, 5],
            isr: 0,
            commands: Vec::new(),
            refuses: false,
            size_max: 8,
            smaller: BTreeMap::new(),
        });
        let mut state = device.state();
        state.interrupts = [4, 0, 1];
        let first = [(0, 0x1041_1af4), (4, 1 << 20), (0x34, 0x40)];
        state.config.extend(first);
        let kinds = [(1, 0, 60), (2, NOTIFY, 64), (3, ISR, 4), (4, DEVICE, 12)];
        for (at, (kind, place, bytes)) in (0x40..).step_by(20).zip(kinds) {
            let next = if kind == 4 { 0 } else { at + 20 };
            let head = 9 | (next as u32) << 8 | 20 << 16 | kind << 24;
            let words = [head, 4, place as u32, bytes, MULTIPLIER as u32];
            state.config.extend((at..).step_by(4).zip(words));
        }
        drop(state);
        device
    }

    fn read16_at(&self, address: u64) -> u16 {
        let bytes = self.read(address, 2);
        u16::from_le_bytes([bytes[0], bytes[1]])
    }

    fn write16_at(&self, address: u64, value: u16) {
        self.write(address, &value.to_le_bytes());
    }

    /// Runs `work` on a ring, which the driver has enabled.
    fn with<T>(&self, queue: u16, work: impl FnOnce(&mut Ring) -> T) -> T {
        let mut state = self.state();
        assert!(state.status & 4 != 0 && state.is_started, "it runs");
        let ring = state.rings.get_mut(&queue).expect("a ring");
        assert!(ring.enabled, "the driver has enabled it");
        work(ring)
    }

    fn descriptor(&self, at: u64) -> ([u64; 1], u32, [u16; 2]) {
        let bytes = self.read(at, DESCRIPTOR_BYTES);
        let address = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let length = u32::from_le_bytes(bytes[8..12].try_into().unwrap());
        let last = [12, 14].map(|at| u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        ([address], length, last)
    }

    /// The next chain that the driver has made available.
    pub(super) fn take(&self, queue: u16) -> Option<Chain> {
        let mut chain = self.take_direct(queue)?;
        if let Some((at, bytes)) = chain.table {
            let packed = self.with(queue, |ring| {
                assert!(ring.has_tables && chain.buffers.is_empty());
                ring.shape.packed
            });
            chain.buffers = self.table(at, bytes, packed);
        }
        Some(chain)
    }

    /// The descriptors of a table, all of which are used.
    fn table(&self, at: u64, bytes: u32, packed: bool) -> Vec<(u64, u32, bool)> {
        let bytes = u64::from(bytes);
        assert!(bytes > 0 && bytes.is_multiple_of(16) && at.is_multiple_of(16));
        let (mut buffers, mut index) = (Vec::new(), 0);
        loop {
            let ([address], length, last) = self.descriptor(at + 16 * index);
            let flags = last[usize::from(packed)];
            assert_eq!(flags & !(WRITE | NEXT), 0);
            buffers.push((address, length, flags & WRITE != 0));
            index = match packed {
                true => index + 1,
                false if flags & NEXT != 0 => u64::from(last[1]),
                false => bytes / 16,
            };
            if index == bytes / 16 {
                assert_eq!(buffers.len() as u64, index);
                return buffers;
            }
        }
    }

    fn take_direct(&self, queue: u16) -> Option<Chain> {
        self.with(queue, |ring| {
            let size = ring.shape.size;
            let [descriptors, driver, _] = ring.areas;
            let (mut buffers, mut count, mut table) = (Vec::new(), 0, None);
            if !ring.shape.packed {
                if self.read16_at(driver + 2) == ring.next {
                    return None;
                }
                let element = driver + 4 + 2 * u64::from(ring.next % size);
                let head = self.read16_at(element);
                ring.next = ring.next.wrapping_add(1);
                let mut index = head;
                loop {
                    let at = descriptors + 16 * u64::from(index);
                    let ([address], length, [flags, next]) = self.descriptor(at);
                    match flags & INDIRECT {
                        0 => buffers.push((address, length, flags & WRITE != 0)),
                        _ => table = Some((address, length)),
                    }
                    count += 1;
                    assert!(count <= size && index < size, "a chain ends");
                    if flags & NEXT == 0 {
                        break;
                    }
                    index = next;
                }
                return Some(Chain {
                    id: head,
                    count,
                    buffers,
                    table,
                });
            }
            loop {
                let at = descriptors + 16 * u64::from(ring.next);
                let ([address], length, [id, flags]) = self.descriptor(at);
                let is_available =
                    (flags & AVAIL != 0) == ring.next_lap && (flags & USED != 0) != ring.next_lap;
                if !is_available {
                    assert_eq!(count, 0, "the first descriptor comes last");
                    return None;
                }
                match flags & INDIRECT {
                    0 => buffers.push((address, length, flags & WRITE != 0)),
                    _ => table = Some((address, length)),
                }
                count += 1;
                ring.next += 1;
                if ring.next == size {
                    (ring.next, ring.next_lap) = (0, !ring.next_lap);
                }
                if flags & NEXT == 0 {
                    return Some(Chain {
                        id,
                        count,
                        buffers,
                        table,
                    });
                }
            }
        })
    }

    /// Gives a chain back, and interrupts if the driver asked for it.
    pub(super) fn give(&self, queue: u16, chain: &Chain, bytes: u32) {
        self.give_without_interrupt(queue, chain, bytes);
        self.interrupt(queue);
    }

    pub(super) fn give_without_interrupt(&self, queue: u16, chain: &Chain, bytes: u32) {
        self.with(queue, |ring| {
            let [descriptors, _, device] = ring.areas;
            if !ring.shape.packed {
                let element = device + 4 + 8 * u64::from(ring.used % ring.shape.size);
                self.write(element, &u32::from(chain.id).to_le_bytes());
                self.write(element + 4, &bytes.to_le_bytes());
                ring.used = ring.used.wrapping_add(1);
                self.write16_at(device + 2, ring.used);
                return;
            }
            let at = descriptors + 16 * u64::from(ring.used);
            self.write(at + 8, &bytes.to_le_bytes());
            self.write16_at(at + 12, chain.id);
            self.write16_at(at + 14, if ring.used_lap { AVAIL | USED } else { 0 });
            ring.used += chain.count;
            if ring.used >= ring.shape.size {
                ring.used -= ring.shape.size;
                ring.used_lap = !ring.used_lap;
            }
        });
    }

    /// Says in a split ring that it has used so many more chains.
    pub(super) fn lie(&self, queue: u16, more: u16) {
        self.with(queue, |ring| {
            ring.used = ring.used.wrapping_add(more);
            self.write16_at(ring.areas[2] + 2, ring.used);
        });
    }

    /// Interrupts the driver if it asked for it since the last call.
    fn interrupt(&self, queue: u16) {
        let features = self.state().features;
        let event_idx = features & EVENT_IDX != 0;
        let vector = self.with(queue, |ring| {
            let (size, driver) = (usize::from(ring.shape.size), ring.areas[1]);
            let before = std::mem::replace(&mut ring.told, ring.used);
            let wanted = match (ring.shape.packed, event_idx) {
                (false, false) => self.read16_at(driver) & NO_INTERRUPT == 0,
                (false, true) => {
                    let event = self.read16_at(driver + used_event_at(size) as u64);
                    passed(event, ring.used, before)
                }
                (true, _) => match self.read16_at(driver + 2) {
                    0 => true,
                    1 => false,
                    _ => {
                        let word = self.read16_at(driver);
                        let same = (word & 1 << 15 != 0) == ring.used_lap;
                        let event = word & 0x7fff;
                        let behind = if same { 0 } else { ring.shape.size };
                        let before = if before > ring.used {
                            before.wrapping_sub(ring.shape.size)
                        } else {
                            before
                        };
                        passed(event.wrapping_sub(behind), ring.used, before)
                    }
                },
            };
            wanted.then_some(ring.vector)
        });
        let mut state = self.state();
        match vector {
            None => {}
            Some(0xffff) => {
                state.isr |= 1;
                state.connected[0].raise();
            }
            Some(vector) => state.connected[usize::from(vector)].raise(),
        }
    }

    /// The link goes or comes: an interrupt says so.
    pub(super) fn set_link(&self, is_up: bool) {
        let mut state = self.state();
        state.settings[6] = u8::from(is_up);
        state.isr |= 3;
        let vector = match state.changes {
            0xffff => 0,
            vector => usize::from(vector),
        };
        state.connected[vector].raise();
    }

    /// Asks for a notification of the chain that is `ahead` of the next one, each of one
    /// descriptor.
    pub(super) fn ask(&self, queue: u16, ahead: u16) {
        self.with(queue, |ring| {
            let device = ring.areas[2];
            if !ring.shape.packed {
                let at = device + avail_event_at(usize::from(ring.shape.size)) as u64;
                self.write16_at(at, ring.next.wrapping_add(ahead));
                return;
            }
            let (mut index, mut lap) = (ring.next + ahead, ring.next_lap);
            if index >= ring.shape.size {
                (index, lap) = (index - ring.shape.size, !lap);
            }
            self.write16_at(device, index | if lap { 1 << 15 } else { 0 });
            self.write16_at(device + 2, 2);
        });
    }

    /// Asks for all notifications, or none.
    pub(super) fn ask_always(&self, queue: u16, wants: bool) {
        self.with(queue, |ring| {
            let at = if ring.shape.packed { 2 } else { 0 };
            self.write16_at(ring.areas[2] + at, u16::from(!wants));
        });
    }

    /// Receives a packet of `bytes`, header included, in as many chains as it needs. False if
    /// there are too few.
    pub(super) fn receive(&self, queue: u16, bytes: &[u8], count: u16) -> bool {
        let mut bytes = bytes.to_vec();
        bytes[10..12].copy_from_slice(&count.to_le_bytes());
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let Some(chain) = self.take(queue) else {
                return false;
            };
            let (address, room, is_writable) = chain.buffers[0];
            assert!(is_writable && chain.buffers.len() == 1);
            let (now, later) = rest.split_at(rest.len().min(room as usize));
            self.write(address, now);
            self.give_without_interrupt(queue, &chain, now.len() as u32);
            rest = later;
        }
        self.interrupt(queue);
        true
    }

    /// The bytes of a chain that the driver has written.
    pub(super) fn bytes(&self, chain: &Chain) -> Vec<u8> {
        let pieces = chain.buffers.iter().map(|(address, bytes, is_writable)| {
            assert!(!is_writable);
            self.read(*address, *bytes as usize)
        });
        pieces.collect::<Vec<_>>().concat()
    }

    fn answer(&self, queue: u16) {
        while let Some(mut chain) = self.take(queue) {
            let (address, _, is_writable) = chain.buffers.pop().expect("an answer");
            assert!(is_writable);
            let command = self.bytes(&chain);
            let refused = {
                let mut state = self.state();
                state.commands.push(command);
                state.refuses
            };
            self.write(address, &[u8::from(refused)]);
            self.give(queue, &chain, 1);
        }
        if self.state().features & EVENT_IDX != 0 {
            self.ask(queue, 0);
        }
    }
}

impl Registers for Model {
    fn region(bar: usize) -> usize {
        if bar == 4 { 0x400 } else { 0 }
    }

    fn read(device: &Device, bar: usize, at: usize, width: usize) -> u32 {
        let mut state = device.state();
        assert_eq!(bar, 4);
        let ring = state.rings.get(&state.queue).cloned().unwrap_or_default();
        match (width, at) {
            (1, 20) => state.status.into(),
            (1, ISR) => std::mem::take(&mut state.isr).into(),
            (1, DEVICE..) => state.settings[at - DEVICE].into(),
            (2, 24) if ring.shape.size > 0 => ring.shape.size.into(),
            (2, 24) => {
                let size = state.smaller.get(&state.queue);
                (*size.unwrap_or(&state.size_max)).into()
            }
            (2, 26) => ring.vector.into(),
            (2, 30) => state.queue.into(),
            (2, 58) => state.rings.contains_key(&state.queue).into(),
            (2, DEVICE..) => {
                let at = at - DEVICE;
                u16::from_le_bytes([state.settings[at], state.settings[at + 1]]).into()
            }
            (4, 4) => (state.offered >> (32 * state.selects[0])) as u32,
            _ => panic!("{width} bytes at {at:#x}"),
        }
    }

    fn write(device: &Device, _: usize, at: usize, width: usize, value: u32) {
        let mut state = device.state();
        let (queue, features, half) = (state.queue, state.features, value as u16);
        match (width, at) {
            (1, 20) => {
                state.status = value as u8;
                if value == 0 {
                    state.rings.clear();
                    state.features = 0;
                }
                if value & 8 != 0 && state.features & !state.offered != 0 {
                    state.status &= !8;
                }
            }
            (2, 16) => state.changes = half,
            (2, 22) => state.queue = half,
            (2, 24) => {
                let ring = state.rings.entry(queue).or_default();
                ring.shape = Shape {
                    size: half,
                    packed: features & RING_PACKED != 0,
                    event_idx: features & EVENT_IDX != 0,
                };
                (ring.next_lap, ring.used_lap) = (true, true);
                ring.has_tables = features & INDIRECT_DESC != 0;
            }
            (2, 26) => state.rings.entry(queue).or_default().vector = half,
            (2, 28) => state.rings.entry(queue).or_default().enabled = value == 1,
            (2, 58) => {
                assert_eq!(value, 1);
                state.rings.remove(&queue);
            }
            (2, NOTIFY..) => {
                assert_eq!(at, NOTIFY + MULTIPLIER * usize::from(half));
                let ring = state.rings.get_mut(&half).expect("a ring");
                ring.notifications += 1;
                let is_control = ring.shape.size == 2;
                drop(state);
                if is_control {
                    device.answer(half);
                }
            }
            (4, 0) => state.selects[0] = value,
            (4, 8) => state.selects[1] = value,
            (4, 12) => {
                let shift = 32 * state.selects[1];
                state.features &= !(0xffff_ffff << shift);
                state.features |= u64::from(value) << shift;
            }
            (4, 32..56) => {
                let ring = state.rings.get_mut(&queue).expect("a ring");
                let shift = (at - 32) % 8 * 8;
                ring.areas[(at - 32) / 8] |= u64::from(value) << shift;
            }
            _ => panic!("{width} bytes at {at:#x}"),
        }
    }
}
