//! What a producer does with a ring that another one has left.

use super::*;
use crate::driver::{Attach, Driver, Features};
use crate::engine::alarm::Sleeper;
use crate::packet::{Arena, ArenaConfig};
use crate::plan::FitLimits;
use crate::policy::dispatch::BUDGET;
use crate::port::null::{Null, NullConfig, NullTx};

const NOW: Instant = Instant::from_nanos(1);
const FULL: u64 = TX_RING_PACKETS as u64;

/// A queue that takes everything, whose worker is awake and does nothing.
fn egress(arena: &Arena) -> Egress<NullTx> {
    let mut null = Null::new(NullConfig::default());
    let limits = FitLimits::new(&null.capabilities(), None);
    let mut pairs = null.attach(&Attach::default(), arena).unwrap();
    let (_, tx) = pairs.remove(0);
    let counters = Arc::new(TxCounters::new(QueueId { port: 1, queue: 0 }));
    let (none, log) = (Features::NONE, Arc::default());
    let queue = TxQueue::new(tx, arena.clone(), none, limits, None, counters, log);
    let alarm = Arc::new(Alarm::new().unwrap());
    Egress::new(queue, Arc::default(), Dispatch::Direct, 2, alarm, false)
}

fn submit(egress: &Egress<NullTx>, producer: &Producer, arena: &Arena, count: usize) -> usize {
    let mut burst = Burst::new();
    for _ in 0..count {
        burst.push(arena.packet_from(&[0; 60]).unwrap()).unwrap();
    }
    egress.submit(producer, &mut burst, &|| NOW).unwrap();
    count - burst.len()
}

/// Fills the ring while it is the worker's, and leaves it as one whose budget is used up does.
fn left_and_full(arena: &Arena) -> (Egress<NullTx>, [Producer; 2]) {
    let egress = egress(arena);
    let producers = [egress.producer(false), egress.producer(false)];
    egress.publish_rule(Rule::deferred(BUDGET));
    for _ in 0..TX_RING_PACKETS / BURST_PACKETS_MAX {
        let taken = submit(&egress, &producers[0], arena, BURST_PACKETS_MAX);
        assert_eq!(taken, BURST_PACKETS_MAX);
    }
    assert_eq!(submit(&egress, &producers[0], arena, 1), 0, "it is full");
    assert!(!egress.is_left(), "the worker drains it");
    assert_eq!(egress.counters.packets.get(), 0);
    (egress, producers)
}

#[test]
fn who_finds_a_full_ring_that_was_left_sends_and_its_batch_is_taken() {
    let arena = Arena::new(ArenaConfig::small()).unwrap();
    for count in [1, BURST_PACKETS_MAX] {
        let (egress, producers) = left_and_full(&arena);
        egress.publish_rule(Rule::direct(BUDGET));
        assert!(egress.is_left(), "whoever comes may take it");
        assert_eq!(submit(&egress, &producers[1], &arena, count), count);
        assert_eq!(egress.counters.packets.get(), u64::from(BUDGET), "no more");
        let held = egress.stats.snapshot().held;
        assert_eq!(held, FULL + count as u64 - u64::from(BUDGET));
        // And so on, until it is empty.
        assert_eq!(submit(&egress, &producers[1], &arena, 1), 1);
        assert_eq!(egress.counters.packets.get(), 2 * u64::from(BUDGET));
        assert!(egress.is_left() && egress.has_room());
        assert_eq!(submit(&egress, &producers[0], &arena, 1), 1);
        assert_eq!(egress.counters.packets.get(), FULL + count as u64 + 2);
        assert_eq!(egress.status(), Status::Idle);
        let counted = egress.stats.snapshot().producers;
        assert_eq!((counted.direct, counted.abdications), (3, 2));
        assert_eq!(counted.ring_wire_packets, FULL + count as u64 + 2);
        egress.close(DropReason::Shutdown);
    }
}

#[test]
fn a_producer_that_leaves_a_ring_to_nobody_tells_the_worker() {
    let arena = Arena::new(ArenaConfig::small()).unwrap();
    let (egress, producers) = left_and_full(&arena);
    egress.publish_rule(Rule::direct(BUDGET));
    let mut sleeper = Sleeper::new(Arc::clone(&egress.alarm));
    while !sleeper.try_sleep() {
        sleeper.wake();
    }
    assert_eq!(submit(&egress, &producers[1], &arena, 1), 1);
    assert_eq!(egress.stats.snapshot().producers.wakeups, 1);
    egress.close(DropReason::Shutdown);
}
