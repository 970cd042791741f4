//! Budget, bad packets, refill and copy-break, with a device whose packets the test chooses.

use super::*;
use crate::driver::RxInfo;
use crate::limits::{BURST_BYTES_MAX, BURST_LAST_BYTES, RX_COPY_BREAK_BYTES};
use std::collections::VecDeque;

/// A packet that arrives.
#[derive(Clone, Copy, Debug)]
enum Item {
    /// A packet with this number, of this many bytes, in a frame of this class.
    Packet(u8, usize, FrameClass),
    /// The same, in two segments.
    Pieces(u8, usize),
    /// Received in error, and counted as this many packets.
    Bad(u64),
}

/// A device with a ring of posted buffers, which it uses up.
#[derive(Debug, Default)]
struct Script {
    items: VecDeque<Item>,
    arena: Option<Arena>,
    posted: usize,
    refills: u64,
    polls: u64,
    /// It delays its interrupts, by what it was asked for.
    moderates: bool,
    asked: Vec<Duration>,
}

/// Descriptors of its ring.
const RING: usize = 128;

impl RxDescriptors for Script {
    fn refill(&mut self, arena: &Arena) -> bool {
        self.arena = Some(arena.clone());
        self.posted = RING;
        self.refills += 1;
        true
    }

    fn receive(&mut self, _now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        self.polls += 1;
        let arena = self.arena.as_ref().expect("refilled first");
        while burst.budget() > 0 && self.posted > 0 {
            let Some(item) = self.items.pop_front() else {
                break;
            };
            self.posted -= 1;
            match item {
                Item::Packet(number, bytes, class) => {
                    let mut packet = arena.empty_packet().unwrap();
                    packet.append_copy(class, &vec![number; bytes]).unwrap();
                    burst.push(packet, &RxInfo::default());
                }
                Item::Pieces(number, bytes) => {
                    let mut packet = arena.empty_packet().unwrap();
                    for _ in 0..2 {
                        let half = vec![number; bytes / 2];
                        let half = arena.packet_from(&half).unwrap();
                        packet.append(half).unwrap();
                    }
                    burst.push(packet, &RxInfo::default());
                }
                Item::Bad(wire_packets) => burst.bad(DropReason::BadDescriptor, wire_packets),
            }
        }
        Ok(())
    }

    fn moderate(&mut self, delay: Duration) -> bool {
        self.asked.push(delay);
        self.moderates
    }

    fn arm(&mut self) -> Armed {
        Armed::Idle
    }
}

struct Bench {
    arena: Arena,
    queue: RxQueue<Script>,
    drops: Arc<DropCounters>,
}

impl Bench {
    fn new(items: impl IntoIterator<Item = Item>) -> Self {
        let arena = Arena::new(ArenaConfig::small()).unwrap();
        let drops = Arc::default();
        let queue = RxQueue::new(
            Script {
                items: items.into_iter().collect(),
                ..Script::default()
            },
            arena.clone(),
            LinkType::Ethernet,
            Ingress::default(),
            Arc::default(),
            Arc::clone(&drops),
        );
        Self {
            arena,
            queue,
            drops,
        }
    }

    /// One poll: the numbers of the packets, and whether the budget ended it.
    fn poll(&mut self, budget: usize) -> (Vec<u8>, bool) {
        let mut burst = Burst::new();
        let exhausted = self.queue.poll(AT, &mut burst, budget).unwrap();
        assert!(burst.len() <= budget);
        let numbers = burst.iter().map(|packet| packet.first()[0]).collect();
        (numbers, exhausted)
    }
}

fn packet(number: usize) -> Item {
    Item::Packet(number as u8, 200, FrameClass::Small)
}

#[test]
fn the_budget_is_a_bound_and_its_exhaustion_is_reported() {
    let mut bench = Bench::new((0..40).map(packet));
    let (first, more) = bench.poll(16);
    assert_eq!((first, more), ((0..16).collect(), true));
    let (second, more) = bench.poll(16);
    assert_eq!((second, more), ((16..32).collect(), true));
    let (third, more) = bench.poll(16);
    assert_eq!((third, more), ((32..40).collect(), false));
    let counters = bench.queue.counters().snapshot();
    assert_eq!((counters.polls, counters.budget_exhausted), (3, 2));
    assert_eq!(counters.packets, 40);
}

/// The second large packet would evict the first one from the cache before it is copied on.
#[test]
fn a_poll_ends_with_a_large_packet_or_when_the_small_ones_are_many_bytes() {
    let of = |number, bytes| Item::Packet(number, bytes, FrameClass::Large);
    let last = BURST_LAST_BYTES;
    let mut bench = Bench::new([of(0, last - 1), of(1, last), of(2, 65_549), of(3, 60)]);
    assert_eq!(bench.poll(64), (vec![0, 1], true));
    assert_eq!(bench.poll(64), (vec![2], true));
    assert_eq!(bench.poll(64), (vec![3], false));

    let jumbo = BURST_BYTES_MAX / 16;
    let mut bench = Bench::new((0..20).map(|number| of(number, jumbo)));
    assert_eq!(bench.poll(64), ((0..16).collect(), true));
    assert_eq!(bench.poll(64), ((16..20).collect(), false));
}

#[test]
fn bad_packets_use_up_budget_too() {
    let mut bench = Bench::new((0..1000).map(|_| Item::Bad(1)));
    for _ in 0..62 {
        assert_eq!(bench.poll(16), (Vec::new(), true));
    }
    assert_eq!(bench.poll(16), (Vec::new(), false));
    let counters = bench.queue.counters().snapshot();
    assert_eq!((counters.packets, counters.bad_packets), (0, 1000));
    assert_eq!(counters.wire_packets, 1000);
    assert_eq!(bench.drops.snapshot().get(DropReason::BadDescriptor), 1000);
}

#[test]
fn a_poll_with_budget_left_drains_until_the_device_is_empty() {
    let mut bench = Bench::new((0..40).map(packet));
    assert_eq!(bench.poll(64), ((0..40).collect(), false));
    assert_eq!(bench.poll(64), (Vec::new(), false));
    assert_eq!(bench.queue.device_mut().polls, 2);
}

/// em(4) under iflib reset the whole interface for it (S1).
#[test]
fn one_bad_packet_loses_one_packet() {
    let item = |n| if n == 5 { Item::Bad(1) } else { packet(n) };
    let mut bench = Bench::new((1..=10).map(item).chain((11..21).map(packet)));
    let good: Vec<u8> = (1..21).filter(|&n| n != 5).collect();
    assert_eq!(bench.poll(64), (good, false));
    let counters = bench.queue.counters().snapshot();
    assert_eq!((counters.packets, counters.bad_packets), (19, 1));
    assert_eq!(bench.drops.snapshot().total(), 1);
}

#[test]
fn a_bad_gso_packet_counts_as_its_wire_packets() {
    let mut bench = Bench::new([packet(1), Item::Bad(44), packet(2)]);
    assert_eq!(bench.poll(64), (vec![1, 2], false));
    let counters = bench.queue.counters().snapshot();
    assert_eq!((counters.bad_packets, counters.wire_packets), (1, 46));
    assert_eq!(bench.drops.snapshot().total(), 44);
}

#[test]
fn buffers_are_posted_in_one_batch_a_poll_and_none_without_packets() {
    let mut bench = Bench::new((0..200).map(packet));
    // The first before any packet arrives, then one for each poll with packets.
    for polls in 1..=3 {
        bench.poll(64);
        assert_eq!(bench.queue.device_mut().refills, 1 + polls);
        assert_eq!(
            bench.queue.device_mut().posted,
            RING,
            "before the packet is processed"
        );
    }
    bench.poll(64);
    assert_eq!(bench.queue.device_mut().refills, 5);
    for _ in 0..10 {
        bench.poll(64);
    }
    assert_eq!(bench.queue.counters().snapshot().refills, 5);
}

#[test]
fn a_small_packet_in_a_large_frame_is_copied_to_a_small_one() {
    let most = RX_COPY_BREAK_BYTES;
    let rows = [
        (Item::Packet(1, most, FrameClass::Large), true),
        (Item::Packet(2, most + 1, FrameClass::Large), false),
        (Item::Packet(3, 14, FrameClass::Large), true),
        (Item::Packet(4, most, FrameClass::Small), false),
        // It shares its frames with no other packet, but has two segments.
        (Item::Pieces(5, most), false),
    ];
    for (item, copied) in rows {
        let mut bench = Bench::new([item]);
        let mut burst = Burst::new();
        bench.queue.poll(AT, &mut burst, 8).unwrap();
        let counters = bench.queue.counters().snapshot();
        assert_eq!(counters.copybreak, u64::from(copied), "{item:?}");
        let packet = burst.pop().unwrap();
        let (Item::Packet(number, bytes, _) | Item::Pieces(number, bytes)) = item else {
            unreachable!("there are only packets")
        };
        let mut got = vec![0; bytes];
        assert_eq!(packet.copy_to(&mut got), bytes);
        assert_eq!(got, vec![number; bytes]);
        assert_eq!(packet.meta().wire_packets, 1);
        assert_eq!((counters.packets, counters.bytes), (1, bytes as u64));
        let large = matches!(item, Item::Packet(_, _, FrameClass::Large));
        assert_eq!(packet.in_small_frames(), copied || !large);
        let free = bench.arena.census().large_free == bench.arena.config().large_frames;
        assert_eq!(
            free,
            packet.in_small_frames(),
            "the large frame is free again"
        );
    }
}

#[test]
fn without_a_small_frame_a_small_packet_stays_in_its_frame() {
    let mut bench = Bench::new([Item::Packet(9, 60, FrameClass::Large)]);
    let hoard: Vec<_> = std::iter::from_fn(|| bench.arena.packet(FrameClass::Small).ok()).collect();
    assert_eq!(bench.poll(8), (vec![9], false));
    let counters = bench.queue.counters().snapshot();
    assert_eq!((counters.copybreak, counters.packets), (0, 1));
    assert_eq!(bench.drops.snapshot().total(), 0);
    drop(hoard);
}

/// Wakes the worker for a packet each `step`, and polls until the queue is empty.
fn wake_for_each(bench: &mut Bench, count: u64, step: Duration) {
    let mut now = AT;
    for number in 0..count {
        bench.queue.arm();
        now = now.after(step);
        bench.queue.resume(true);
        bench.queue.count_wakeup();
        // The load doubles now and then, so that the policy searches.
        for _ in 0..1 << (number / 200 % 3) {
            bench.queue.device_mut().items.push_back(packet(0));
        }
        for _ in 0..2 {
            let found = !bench.poll(64).0.is_empty();
            bench.queue.settle(now, found);
        }
    }
}

#[test]
fn a_device_that_delays_its_interrupts_is_asked_once_for_each_decision() {
    let (usecs, step) = (50, Duration::from_micros(10));
    let fixed = |frames| Moderation::Fixed { usecs, frames };
    let delay = Duration::from_micros(50);
    let rows = [
        (Moderation::Off, vec![]),
        (fixed(1), vec![]),
        (fixed(64), vec![delay]),
    ];
    for (setting, asked) in rows {
        for moderates in [false, true] {
            let mut bench = Bench::new([]);
            bench.queue = bench.queue.moderated(setting);
            bench.queue.device_mut().moderates = moderates;
            wake_for_each(&mut bench, 20, step);
            assert_eq!(bench.queue.device_mut().asked, asked, "{setting}");
            // The framework delays only what the device does not.
            let is_delayed = !asked.is_empty() && !moderates;
            let moderated = bench.queue.counters().snapshot().moderated;
            assert_eq!(moderated > 0, is_delayed, "{setting}, {moderates}");
        }
    }
    let mut bench = Bench::new([]);
    bench.queue = bench.queue.moderated(Moderation::Adaptive);
    bench.queue.device_mut().moderates = true;
    wake_for_each(&mut bench, 4000, step);
    let counters = bench.queue.counters().snapshot();
    let asked = &bench.queue.device_mut().asked;
    assert!(counters.moderation_changes > 2, "{counters:?}");
    assert_eq!(asked.len() as u64, counters.moderation_changes, "{asked:?}");
    assert!(asked.windows(2).all(|pair| pair[0] != pair[1]), "{asked:?}");
    assert_eq!(counters.moderated, 0);
}
