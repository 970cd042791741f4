//! A TX queue as both paths drive it.

use super::fake::Queue;
use super::rig::burst;
use crate::driver::{Armed, Capabilities, Features};
use crate::engine::egress::Egress;
use crate::packet::{Arena, ArenaConfig};
use crate::plan::FitLimits;
use crate::queue::{Sent, TxQueue};
use crate::stats::{DropCounters, QueueId, TxCounters};
use crate::time::Instant;
use std::sync::Arc;
use std::time::Duration;

/// A step that finds completions, before the wake-up for which the device was armed, ends the
/// wait for it: the next completions are not those of a wake-up that was lost.
#[test]
fn completions_that_a_step_finds_end_the_wait_for_a_wake_up() {
    let arena = Arena::new(ArenaConfig::small()).unwrap();
    let device = Queue::default();
    (device.tx().keeps, device.tx().room) = (true, 1);
    let queue = TxQueue::new(
        device.half(),
        arena.clone(),
        Features::NONE,
        FitLimits::new(&Capabilities::default(), None),
        None,
        Arc::new(TxCounters::new(QueueId::default())),
        Arc::new(DropCounters::default()),
    );
    let mut egress = Egress::new(queue, Arc::default(), true);
    let at = |ms| Instant::default().after(Duration::from_millis(ms));
    egress.begin(false, || at(1)).unwrap();
    let sent = egress.queue.transmit_more(&mut burst(&arena, 0..2));
    assert!(matches!(sent, Ok(Sent::Stalled(_))));
    assert_eq!(egress.queue.arm(), Armed::Idle);
    {
        let mut device = device.tx();
        (device.room, device.complete) = (1, 1);
    }
    // The second step collects what has completed: nothing was sent since the first.
    egress.begin(false, || at(2)).unwrap();
    egress.begin(false, || at(3)).unwrap();
    assert_eq!(egress.queue.in_flight(), 0);
    let sent = egress.queue.transmit_more(&mut burst(&arena, 0..0));
    assert!(matches!(sent, Ok(Sent::All)));
    device.tx().complete = 1;
    egress.begin(false, || at(130)).unwrap();
    assert_eq!(egress.queue.counters().missed_wakeups.get(), 0);
}
