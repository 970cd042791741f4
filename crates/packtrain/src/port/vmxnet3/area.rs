//! The memory of all queues: what the driver and the card tell each other, the rings, and copies of
//! headers.

use super::registers::{WORDS, event, feature, mode, queue, rss, rx, shared as at, tx};
use super::rings::{Completions, Posts};
use crate::driver::DeviceCounters;
use crate::port::card::{Bus, CutHeaders, Dma, RSS_KEY, Ring};
use std::io;
use std::sync::Arc;

/// The version of this driver, which the card logs.
const DRIVER_VERSION: u32 = 1;
/// What is aligned to it is aligned enough for rings and descriptions of queues.
const ALIGN: usize = 512;
const QUEUES_AT: usize = at::BYTES.next_multiple_of(ALIGN);
/// Above it, a counter is none of a card.
const STALE: u32 = u32::MAX;

/// The memory, and what is where.
#[derive(Clone, Debug)]
pub(super) struct Area {
    pub(super) memory: Arc<Dma>,
    pub(super) queues: usize,
    /// Descriptors of a TX ring, and of each RX ring.
    rings: usize,
    rx_rings: usize,
}

/// What the card is told once, when it is activated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) mtu: u32,
    pub(super) merges: bool,
    pub(super) promiscuous: bool,
    /// The card masks an interrupt that it raises.
    pub(super) masks: bool,
    /// Each half has an interrupt.
    pub(super) interrupts: bool,
    /// The most RX descriptors of a packet.
    pub(super) pieces_max: u16,
}

impl Area {
    /// For so many queues, with rings of so many descriptors; the RX rings are no longer.
    pub(super) fn new(
        bus: &impl Bus,
        queues: usize,
        rings: usize,
        rx_rings: usize,
    ) -> io::Result<Self> {
        let memory = Dma::new(bus, queue_at(queues, rings, queues))?;
        Ok(Self {
            memory: Arc::new(memory),
            queues,
            rings,
            rx_rings,
        })
    }

    /// The address of the shared memory for the card.
    pub(super) fn address(&self) -> u64 {
        self.memory.address()
    }

    fn ring_at(&self, number: usize, ring: usize) -> usize {
        queue_at(self.queues, self.rings, number)
            + ring * self.rings * Ring::<WORDS>::DESCRIPTOR_BYTES
    }

    /// The ring of a TX queue, its completions, and where the copies of headers are.
    pub(super) fn tx(&self, number: usize) -> (Posts, Completions, usize) {
        let memory = || Arc::clone(&self.memory);
        let [ring, completions, headers] = [0, 1, 6].map(|ring| self.ring_at(number, ring));
        (
            Posts::new(memory(), ring, self.rings, tx::GENERATION),
            Completions::new(memory(), completions, self.rings),
            headers,
        )
    }

    /// The rings of an RX queue, and their completions.
    pub(super) fn rx(&self, number: usize) -> ([Posts; 2], Completions) {
        let memory = || Arc::clone(&self.memory);
        let at = |ring| self.ring_at(number, ring);
        let posts = |ring| Posts::new(memory(), at(ring), self.rx_rings, rx::GENERATION);
        let completions = Completions::new(memory(), at(4), 2 * self.rx_rings);
        ([posts(2), posts(3)], completions)
    }

    fn store_address(&self, to: usize, place: usize) {
        let address = self.address() + place as u64;
        self.memory.store(to, address as u32);
        self.memory.store(to + 4, (address >> 32) as u32);
    }

    /// Writes all that the card is told.
    pub(super) fn describe(&self, settings: &Settings) {
        let (memory, queues) = (&*self.memory, self.queues as u32);
        let mut features = feature::CHECKSUM;
        features |= if queues > 1 { feature::RSS } else { 0 };
        features |= if settings.merges { feature::MERGE } else { 0 };
        let mut receives = mode::UNICAST | mode::BROADCAST | mode::ALL_MULTICAST;
        if settings.promiscuous {
            receives |= mode::PROMISCUOUS;
        }
        let interrupts = if settings.interrupts { 2 * queues } else { 1 };
        let words = [
            (at::MAGIC, at::MAGIC_VALUE),
            (at::DRIVER_VERSION, DRIVER_VERSION),
            (at::SYSTEM, at::SYSTEM_VALUE),
            // Those of the structures.
            (at::VERSION, 1),
            (at::UPT_VERSION, 1),
            (at::FEATURES, features),
            (at::QUEUES_BYTES, 2 * queues * queue::BYTES as u32),
            (at::MTU, settings.mtu),
            (
                at::COUNTS,
                u32::from(settings.pieces_max) | queues << 16 | queues << 24,
            ),
            // That of events is the one of the first RX queue.
            (at::INTERRUPTS, u32::from(settings.masks) | interrupts << 8),
            (at::MODE, receives),
            (at::RSS_VERSION, 1),
            (at::RSS_BYTES, rss::BYTES as u32),
            (rss_at(self.queues), rss::TYPES),
            (
                rss_at(self.queues) + rss::SIZES,
                RSS_KEY.len() as u32 | (rss::ENTRIES as u32) << 16,
            ),
        ];
        for (to, value) in words {
            memory.store(to, value);
        }
        self.store_address(at::QUEUES, QUEUES_AT);
        self.store_address(at::RSS, rss_at(self.queues));
        // Tags stay in the frames.
        for word in 0..at::VLAN_WORDS {
            memory.store(at::VLANS + 4 * word, u32::MAX);
        }
        memory.store_bytes(rss_at(self.queues) + rss::KEY, &RSS_KEY);
        let table: [u8; rss::ENTRIES] = std::array::from_fn(|entry| (entry % self.queues) as u8);
        memory.store_bytes(rss_at(self.queues) + rss::TABLE, &table);
        for number in 0..self.queues {
            let [rings, rx_rings] = [self.rings, self.rx_rings].map(|rings| rings as u32);
            let [tx, rx] = [0, self.queues].map(|first| self.queue_words(first + number));
            let places = [
                (tx, [0, 6, 1], [rings, 0, rings]),
                (rx, [2, 3, 4], [rx_rings, rx_rings, 2 * rx_rings]),
            ];
            for (half, (words, rings, sizes)) in places.into_iter().enumerate() {
                for (index, (ring, size)) in rings.into_iter().zip(sizes).enumerate() {
                    if size > 0 {
                        let place = self.ring_at(number, ring);
                        self.store_address(words + queue::RINGS + 8 * index, place);
                    }
                    memory.store(words + queue::SIZES + 4 * index, size);
                }
                let interrupt = if settings.interrupts {
                    vector(number, half == 0)
                } else {
                    0
                };
                memory.store(words + queue::INTERRUPT, interrupt as u32);
            }
        }
    }

    /// Where the description of a queue is; those of RX come behind those of TX.
    fn queue_words(&self, index: usize) -> usize {
        QUEUES_AT + index * queue::BYTES
    }

    /// Whether the card wants to know how far an RX queue's rings are filled.
    pub(super) fn wants_tail(&self, number: usize) -> bool {
        let words = self.queue_words(self.queues + number);
        self.memory.load(words + queue::WANTS_TAIL) & 0xff != 0
    }

    /// Events that the driver has not cleared.
    pub(super) fn events(&self) -> u32 {
        self.memory.load(at::EVENTS)
    }

    /// The error for which the card has stopped a queue, as it last wrote.
    pub(super) fn queue_error(&self) -> Option<u32> {
        let all = 0..2 * self.queues;
        let mut all = all.map(|index| self.queue_words(index));
        let stopped = all.find(|words| self.memory.load(words + queue::STOPPED) & 0xff != 0)?;
        Some(self.memory.load(stopped + queue::ERROR))
    }

    const fn counter_at(&self, index: usize, counter: usize) -> usize {
        QUEUES_AT + index * queue::BYTES + queue::COUNTERS + 8 * counter
    }

    /// Marks the counters: a card that runs removes the mark when it writes them.
    pub(super) fn mark(&self) {
        let mark = self.counter_at(0, queue::TX_WRONG[1]) + 4;
        self.memory.store(mark, STALE);
    }

    /// Whether the card has not written its counters since [`mark`](Self::mark). Removes the mark.
    pub(super) fn is_marked(&self) -> bool {
        let mark = self.counter_at(0, queue::TX_WRONG[1]) + 4;
        let is_marked = self.memory.load(mark) == STALE;
        if is_marked {
            self.memory.store(mark, 0);
        }
        is_marked
    }

    /// The counters, as the card last wrote them.
    pub(super) fn counters(&self) -> DeviceCounters {
        let sum = |first: usize, counters: &[usize]| -> u64 {
            let of_queue = |number: usize| {
                let each = counters.iter().map(move |counter| {
                    let at = self.counter_at(first + number, *counter);
                    u64::from(self.memory.load(at)) | u64::from(self.memory.load(at + 4)) << 32
                });
                each.sum::<u64>()
            };
            (0..self.queues).map(of_queue).sum()
        };
        let (tx, rx) = (0, self.queues);
        let bytes = queue::KINDS.map(|kind| kind + 1);
        DeviceCounters {
            rx_packets: sum(tx, &queue::KINDS),
            rx_bytes: sum(tx, &bytes),
            rx_dropped: 0,
            rx_errors: sum(tx, &queue::TX_WRONG),
            tx_packets: sum(rx, &queue::KINDS),
            tx_bytes: sum(rx, &bytes),
            tx_dropped: sum(rx, &[queue::RX_NO_BUFFER]),
            tx_errors: sum(rx, &[queue::RX_WRONG]),
        }
    }

    #[cfg(test)]
    pub(super) fn set_counter(&self, index: usize, counter: usize, value: u64) {
        let at = self.counter_at(index, counter);
        self.memory.store(at, value as u32);
        self.memory.store(at + 4, (value >> 32) as u32);
    }
}

const fn rss_at(queues: usize) -> usize {
    QUEUES_AT + 2 * queues * queue::BYTES
}

/// Where the rings of a queue are: TX, its completions, the two of RX, the completions of both,
/// and the headers.
const fn queue_at(queues: usize, rings: usize, number: usize) -> usize {
    let start = (rss_at(queues) + rss::BYTES).next_multiple_of(ALIGN);
    start + number * rings * (6 * Ring::<WORDS>::DESCRIPTOR_BYTES + CutHeaders::BYTES_MAX)
}

/// The number of the interrupt of a half, if each half has one.
pub(super) const fn vector(number: usize, is_tx: bool) -> usize {
    2 * number + is_tx as usize
}

/// Whether events say that a queue has stopped.
pub(super) const fn has_stopped(events: u32) -> bool {
    events & (event::RX_ERROR | event::TX_ERROR) != 0
}
