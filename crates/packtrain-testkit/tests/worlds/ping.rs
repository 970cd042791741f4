//! A request and its reply through `forward`, between two hosts.

use packtrain::engine::{Action, Forward, Handler, RxId, Session, Settings, TxHandle};
use packtrain::packet::Burst;
use packtrain::policy::dispatch::Dispatch;
use packtrain::policy::idle::Idle;
use packtrain::port::sim::{SimConfig, pair};
use packtrain::time::Instant;
use packtrain_testkit::rig::{Rig, burst, fixed, ms, twice, us};
use packtrain_testkit::{Costs, Hardware, machine};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

/// What the two sides of the client share.
#[derive(Default)]
struct Pings {
    sent: Option<Instant>,
    /// The round trips.
    trips: Vec<Duration>,
    client: Option<Waker>,
}

/// The client's RX queue: takes replies, and wakes the client.
struct Replies(Arc<Mutex<Pings>>);

impl Handler for Replies {
    fn handle(&mut self, now: Instant, _: RxId, burst: &mut Burst) {
        burst.clear();
        let mut pings = self.0.lock().unwrap();
        let sent = pings.sent.take().expect("a request is under way");
        pings.trips.push(now.since(sent));
        if let Some(client) = &pings.client {
            client.wake_by_ref();
        }
    }
}

/// Sends the next request when the reply is there.
fn client(
    mut handle: TxHandle,
    pings: Arc<Mutex<Pings>>,
    count: usize,
) -> impl FnMut(Instant, &Waker) -> Action {
    move |now, waker| {
        // The lanes have posted buffers by then.
        if now < us(50) {
            let until = Some(us(50));
            return Action::Sleep { until };
        }
        let mut pings = pings.lock().unwrap();
        if pings.trips.len() == count {
            return Action::Done;
        }
        if pings.sent.is_none() {
            pings.client = Some(waker.clone());
            pings.sent = Some(now);
            let mut burst = burst(&handle, 0..1);
            assert_eq!(handle.try_send(&mut burst), Ok(1));
        }
        Action::Sleep { until: None }
    }
}

/// Round trips between two hosts whose workers sleep. `forward` between them has `idle`.
fn ping(machine: Hardware, costs: Costs, idle: Idle, count: usize) -> Vec<Duration> {
    let mut rig = Rig::new(machine, costs, 1);
    let (client_nic, a) = pair(SimConfig::default(), SimConfig::default(), 1);
    let (b, server_nic) = pair(SimConfig::default(), SimConfig::default(), 2);
    let halt = fixed(Dispatch::Direct);
    let settings = Settings {
        idle,
        ..halt.clone()
    };
    rig.add(Session::between(a, b), settings, 0);
    let pings = Arc::new(Mutex::new(Pings::default()));
    let replies = Arc::clone(&pings);
    let host = Session::on(client_nic).senders(0, 1);
    let host = host.handler(move |_| Replies(Arc::clone(&replies)));
    let host = rig.add(host, halt.clone(), 1);
    rig.add(Session::on(server_nic).handler(|_| Forward), halt, 0);
    let handle = rig.handle(host, 0);
    let client = client(handle, Arc::clone(&pings), count);
    let client = rig.world.actor(client, None);
    // Workers that poll step all the time: not longer than needed.
    loop {
        let until = rig.world.now().after(Duration::from_micros(50));
        assert!(until < ms(100), "a packet is lost");
        if rig.world.run(until).tasks[client].ended.is_some() {
            break;
        }
    }
    rig.end();
    pings.lock().unwrap().client = None;
    let trips = std::mem::take(&mut pings.lock().unwrap().trips);
    assert_eq!(trips.len(), count);
    trips
}

/// A core for the worker of `forward`, its sender and its receiver each, and more.
const SPARE: Hardware = machine(8);
const COUNT: usize = 20;

fn mean(trips: &[Duration]) -> Duration {
    trips.iter().sum::<Duration>() / trips.len() as u32
}

/// A step that receives so many packets of 64 bytes, and transmits as many.
fn step(costs: &Costs, received: u32, transmitted: u32, syscalls: u32) -> Duration {
    let packets = received + transmitted;
    let bytes = costs.kilobyte.as_nanos() as u64 * u64::from(64 * packets) / 1024;
    costs.step
        + costs.packet * packets
        + Duration::from_nanos(bytes)
        + costs.doorbell * transmitted
        + costs.syscall * syscalls
}

/// Each CPU on the way is idle: it learns of the packet, leaves its idle state, and runs a step.
#[test]
fn a_round_trip_takes_what_its_steps_and_wake_ups_cost() {
    let costs = Costs::default();
    let trips = twice(|| ping(SPARE, costs, Idle::Halt, COUNT));
    let wake = costs.interrupt + costs.idle_exit;
    // The client sends; forward, the server and forward again pass the packet on.
    let sum = step(&costs, 0, 1, 0) + 3 * step(&costs, 1, 1, 1) + 4 * wake;
    assert_eq!(trips, [sum; COUNT]);
}

/// Through workers that poll: two wake-ups, and no system call. Each time that a poll finds the
/// packet, it is at most a poll late.
fn polled_trip(costs: &Costs) -> RangeInclusive<Duration> {
    let sum = 2 * (step(costs, 1, 1, 0) + costs.interrupt + costs.idle_exit);
    sum..=sum + 2 * costs.step
}

#[test]
fn a_round_trip_through_polling_workers_takes_two_wake_ups() {
    let costs = Costs::default();
    let trips = twice(|| ping(SPARE, costs, Idle::Poll, COUNT));
    let expected = polled_trip(&costs);
    for trip in trips {
        assert!(expected.contains(&trip), "{trip:?} and {expected:?}");
    }
}

#[test]
fn adaptive_polls_once_packets_come_soon() {
    let [halt, poll, adaptive] = [Idle::Halt, Idle::Poll, Idle::Adaptive]
        .map(|idle| twice(|| ping(SPARE, Costs::default(), idle, COUNT)));
    assert!(mean(&poll) < mean(&adaptive) && mean(&adaptive) <= mean(&halt));
    // It halts before the first request, and polls once it has seen how soon packets come, until
    // its credit is used up.
    assert!(poll[0] < adaptive[0] && adaptive[0] < halt[0]);
    let best = polled_trip(&Costs::default());
    assert!(adaptive[1..].iter().all(|trip| best.contains(trip)));
}

/// The worker, the client and the server share two CPUs. A worker that yields lets them run, and no
/// notification has to wake it.
#[test]
fn adaptive_yields_the_cpu_to_the_threads_that_it_waits_for() {
    let [halt, adaptive] = [Idle::Halt, Idle::Adaptive]
        .map(|idle| twice(|| ping(machine(2), Costs::default(), idle, COUNT)));
    assert!(mean(&adaptive) < mean(&halt), "{adaptive:?} {halt:?}");
}
