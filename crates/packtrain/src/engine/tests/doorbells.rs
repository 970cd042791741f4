//! When a device is told of packets: once for all of a worker's step, and at once for all others.

use super::fake::{Queue, World, dispatched, plan_of, world};
use super::handles::{NOW, burst};
use crate::driver::Input;
use crate::engine::{Forward, Handler, Port, TxHandle};
use crate::limits::TX_DOORBELL_DESCRIPTORS_MAX;
use crate::packet::Burst;
use crate::policy::dispatch::Dispatch;
use crate::time::Instant;
use std::sync::{Arc, Mutex};

const ENDLESS: [Input; 2] = [Input::Endless; 2];

/// Of how many packets the device was told by each ring, and those that it does not know of.
fn rings(queue: &Queue) -> (Vec<usize>, usize) {
    let tx = queue.tx();
    (tx.rings.clone(), tx.untold)
}

fn step(world: &mut World<impl Handler>) {
    world.worker(0).step(NOW).unwrap();
}

/// Four bursts of a step, to one queue.
#[test]
fn a_step_rings_once_for_all_its_bursts_and_before_it_ends() {
    let mut world = world([4, 1], ENDLESS, None, || Forward).unwrap();
    for (index, queue) in (0u32..).zip(&world.a) {
        queue.arrive((0..10).map(|n| index << 20 | n));
    }
    world.b[0].arrive([9 << 20]);
    step(&mut world);
    assert_eq!(rings(&world.b[0]), (vec![40], 0));
    assert_eq!(rings(&world.a[0]), (vec![1], 0), "the other way");
    step(&mut world);
    assert_eq!(
        rings(&world.b[0]),
        (vec![40], 0),
        "there was nothing to tell"
    );

    // As many as need not wait for the end of the step, and then the others.
    for (index, queue) in (0u32..).zip(&world.a) {
        queue.arrive((10..58).map(|n| index << 20 | n));
    }
    step(&mut world);
    let full = TX_DOORBELL_DESCRIPTORS_MAX;
    assert_eq!(rings(&world.b[0]), (vec![40, full, 4 * 48 - full], 0));
    let counted = world.closed().ports[1].tx[0].doorbells;
    assert_eq!(counted, 3);
}

/// Nothing is left untold when the device is full, and what waited is told at once.
#[test]
fn a_stall_in_the_middle_of_a_step_rings_too() {
    let mut world = world([4, 1], ENDLESS, None, || Forward).unwrap();
    world.b[0].tx().room = 25;
    for queue in &world.a {
        queue.arrive(0..10);
    }
    step(&mut world);
    assert_eq!(rings(&world.b[0]), (vec![25], 0));
    // Those of two queues never left them: there was no room.
    world.b[0].tx().room = usize::MAX;
    while world.b[0].tx().sent.len() < 40 {
        step(&mut world);
        assert_eq!(world.b[0].tx().untold, 0);
    }
    assert_eq!(rings(&world.b[0]).0.iter().sum::<usize>(), 40);
    assert!(rings(&world.b[0]).0.len() <= 3, "not for each packet");
}

#[test]
fn what_a_handle_sends_itself_is_told_at_once() {
    for dispatch in [Dispatch::Direct, Dispatch::Threshold(2), Dispatch::Adaptive] {
        let plan = plan_of([1, 1]);
        let world = dispatched(&plan, [1, 1], ENDLESS, None, dispatch, || Forward).unwrap();
        let mut handle = world.handles.queue(Port::B, 0).unwrap();
        for count in [5, 2, 64] {
            handle.try_send(&mut burst(&world.arena, 0..count)).unwrap();
        }
        assert_eq!(rings(&world.b[0]), (vec![5, 2, 64], 0), "{dispatch}");
    }
    // What it leaves to the worker is told once, by the step that sends it.
    let plan = plan_of([1, 1]);
    let deferred = Dispatch::Deferred;
    let mut world = dispatched(&plan, [1, 1], ENDLESS, None, deferred, || Forward).unwrap();
    let mut handle = world.handles.queue(Port::B, 0).unwrap();
    for count in [5, 2, 20] {
        handle.try_send(&mut burst(&world.arena, 0..count)).unwrap();
    }
    assert_eq!(rings(&world.b[0]), (vec![], 0));
    step(&mut world);
    assert_eq!(rings(&world.b[0]), (vec![27], 0));
}

/// Sends by a handle of its own in front of the second burst that it sees.
struct Sends {
    handle: Arc<Mutex<Option<TxHandle>>>,
    seen: u32,
}

impl Handler for Sends {
    fn handle(&mut self, _now: Instant, _from: Port, _burst: &mut Burst) {
        self.seen += 1;
        if self.seen == 2 {
            let mut handle = self.handle.lock().unwrap();
            let handle = handle.as_mut().unwrap();
            let mut own = burst(handle.arena(), 0..5);
            assert_eq!(handle.try_send(&mut own), Ok(5));
        }
    }
}

/// Somebody else is the consumer while a worker's step owes the device a ring: it does not wait for
/// the end of the step, and neither does what the step had sent before.
#[test]
fn a_handle_that_sends_within_a_step_waits_for_nobody() {
    let handle = Arc::new(Mutex::new(None));
    let sends = || Sends {
        handle: Arc::clone(&handle),
        seen: 0,
    };
    let mut world = world([4, 1], ENDLESS, None, sends).unwrap();
    *handle.lock().unwrap() = world.handles.queue(Port::B, 0);
    for queue in &world.a {
        queue.arrive(0..10);
    }
    step(&mut world);
    assert_eq!(rings(&world.b[0]), (vec![15, 30], 0));
}
