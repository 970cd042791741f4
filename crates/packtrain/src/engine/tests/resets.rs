//! Queues that stop, restart and are reset, links that come and go, while threads of an
//! application send: each flow keeps its order, and nothing is lost uncounted or sent twice.

use super::control::command;
use super::fake::{Queue, World, plan_of, with_settings};
use super::handles::{PATIENCE, POLICIES, Random, block_on, burst, wait_for};
use crate::driver::Input;
use crate::engine::sys::affinity;
use crate::engine::{
    Command, Control, Forward, Port, Running, Settings, TrySendError, TxFlows, TxHandle, TxQueues,
};
use crate::packet::Burst;
use crate::policy::idle::Idle;
use crate::policy::moderation::Moderation;
use crate::policy::placement::Placement;
use crate::stats::DropReason;
use std::collections::BTreeMap;
use std::thread;

/// Flows of each producer, one for each queue; those of the workers' own packets come after all of
/// the producers'.
const QUEUES: usize = 2;
const WORKERS_FLOW: u32 = 100;
const EACH: u32 = 1000;
/// Flows of each producer that leaves it to them which queue they have.
const FLOWS: u32 = 4;

/// Sends `EACH` packets of each of its flows, in turns and batches of any size.
fn produce(mut queues: Vec<TxHandle>, producer: u32, seed: u64) {
    let mut random = Random::new(seed ^ u64::from(producer + 1) << 40);
    let mut next = [0; QUEUES];
    while next.iter().any(|&next| next < EACH) {
        let queue = random.below(QUEUES as u64) as usize;
        let many = (random.below(40) as u32 + 1).min(EACH - next[queue]);
        let flow = producer * QUEUES as u32 + queue as u32;
        let numbers = next[queue]..next[queue] + many;
        let handle = &mut queues[queue];
        let mut burst = burst(handle.arena(), numbers.map(|n| flow << 20 | n));
        if burst.is_empty() {
            // Others have all the buffers.
            handle.reclaim();
            thread::yield_now();
            continue;
        }
        next[queue] += burst.len() as u32;
        handle
            .send_blocking(&mut burst, PATIENCE)
            .expect("nobody ends it yet");
    }
}

/// Sends `EACH` packets of each of these flows, mixed in bursts of any size and by all forms of
/// sending: any of them may find one queue full, or both.
fn produce_by_flow(mut flows: TxFlows, own: &[u32], seed: u64) {
    let mut random = Random::new(seed ^ u64::from(own[0] + 1) << 40);
    let mut left: Vec<_> = own.iter().map(|&flow| (flow, 0)).collect();
    let arena = flows.arena().expect("there are queues").clone();
    while !left.is_empty() {
        let mut packets = Burst::new();
        for _ in 0..random.below(40) + 1 {
            let at = random.below(left.len().max(1) as u64) as usize;
            let Some((flow, next)) = left.get_mut(at) else {
                break;
            };
            // Others may have all the buffers.
            let Some(packet) = burst(&arena, [*flow << 20 | *next]).pop() else {
                thread::yield_now();
                break;
            };
            packets.push(packet).unwrap();
            *next += 1;
            if *next == EACH {
                left.swap_remove(at);
            }
        }
        while !packets.is_empty() {
            match random.below(3) {
                0 => match flows.try_send(&mut packets) {
                    Ok(_) => assert!(packets.is_empty()),
                    Err(TrySendError::Full { .. }) => thread::yield_now(),
                    Err(TrySendError::Closed) => panic!("nobody ends it yet"),
                },
                1 => {
                    flows.send_blocking(&mut packets, PATIENCE).unwrap();
                }
                _ => {
                    block_on(flows.send(&mut packets)).unwrap();
                }
            }
        }
    }
}

/// What is done to the device of a queue, at random.
fn disturb(queue: &Queue, random: &mut Random) {
    let what = random.below(16);
    let mut tx = queue.tx();
    match what {
        0 => tx.link_down = true,
        // It is full from now on.
        1 => tx.room = 0,
        2 => tx.hung = true,
        3..8 => {
            tx.hung = false;
            tx.complete = random.below(200) as usize;
        }
        _ => tx.link_down = false,
    }
    drop(tx);
    let room = if what == 1 { 0 } else { random.below(80) };
    queue.make_room(room as usize);
}

/// Pauses, resumes or resets a queue or the port, now and then; says what, and of how many queues.
fn maybe(control: &Control, random: &mut Random) -> Option<(Command, usize)> {
    let what = match random.below(8) {
        0 => Command::Reset,
        1 => Command::Pause,
        2 | 3 => Command::Resume,
        _ => return None,
    };
    let (queues, count) = match random.below(2 * QUEUES as u64) as usize {
        queue if queue < QUEUES => (TxQueues::Queue(Port::B, queue), 1),
        _ => (TxQueues::Port(Port::B), QUEUES),
    };
    assert_eq!(command(control, queues, what), Ok(count));
    Some((what, count))
}

fn world_of(settings: &Settings) -> World<Forward> {
    let queues = [QUEUES; 2];
    let input = [Input::Endless; 2];
    with_settings(&plan_of(queues), queues, input, None, settings, || Forward).unwrap()
}

/// The workers' threads, which wait as `settings` say, on the CPUs that are listed there.
fn start(world: &mut World<Forward>, settings: &Settings) -> Running {
    let listed = match &settings.placement {
        Placement::List(cpus) => cpus.as_slice(),
        _ => &[],
    };
    let cpus = listed.iter().copied().map(Some).cycle();
    let cpus: Vec<_> = cpus.take(QUEUES).collect();
    let workers = world.workers.take().expect("started once");
    Running::start_with(workers, world.intake.clone(), settings, &cpus).unwrap()
}

/// The flows of one queue, each in order, and each packet once: sent, or refused by a link that
/// was down.
fn check(queue: &Queue, flows: &[u32], what: &str) {
    let tx = queue.tx();
    let mut all: BTreeMap<u32, Vec<(u32, bool)>> = BTreeMap::new();
    for (list, sent) in [(&tx.sent, true), (&tx.refused, false)] {
        for &number in list {
            let of_flow = all.entry(number >> 20).or_default();
            of_flow.push((number & 0xf_ffff, sent));
        }
    }
    assert_eq!(all.keys().copied().collect::<Vec<_>>(), flows, "{what}");
    for (flow, mut packets) in all {
        let sent = packets.iter().filter(|(_, sent)| *sent);
        assert!(sent.is_sorted(), "{what}: flow {flow} is out of order");
        packets.sort_unstable();
        let numbers = packets.iter().map(|(number, _)| *number);
        assert!(
            numbers.eq(0..EACH),
            "{what}: flow {flow}: twice or not at all"
        );
    }
}

/// By flow: producers leave it to their flows which queue they have.
fn run(settings: &Settings, producers: u32, by_flow: bool, seed: u64) {
    let Settings {
        dispatch,
        moderation,
        idle,
        placement,
        ..
    } = settings;
    let what = format!(
        "{dispatch}, {moderation}, {idle}, {placement}, {producers} producers, by flow {by_flow}, \
         seed {seed:#x}"
    );
    let mut world = world_of(settings);
    let mut random = Random::new(seed);
    for queue in &world.b {
        let mut tx = queue.tx();
        (tx.keeps, tx.forgets, tx.hung, tx.room) = (true, true, true, 20);
    }
    // The flows that each queue has, and who sends them.
    let mut flows = [const { Vec::new() }; QUEUES];
    let mut senders: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    for producer in 0..producers {
        if by_flow {
            let by = world.handles.flows(Port::B);
            let own = producer * FLOWS..(producer + 1) * FLOWS;
            for flow in own.clone() {
                let packet = burst(&world.arena, [flow << 20]).pop().unwrap();
                flows[by.queue_of(&packet)].push(flow);
            }
            let own: Vec<_> = own.collect();
            senders.push(Box::new(move || produce_by_flow(by, &own, seed)));
        } else {
            let queue = |queue| world.handles.queue(Port::B, queue).unwrap();
            let handles = (0..QUEUES).map(queue).collect();
            let own = flows.iter_mut().zip(producer * QUEUES as u32..);
            own.for_each(|(flows, flow)| flows.push(flow));
            senders.push(Box::new(move || produce(handles, producer, seed)));
        }
    }
    assert!(flows.iter().all(|own| own.len() > 1), "{flows:?}");
    let generated = flows.concat().len() as u64 * u64::from(EACH);
    for (own, index) in flows.iter_mut().zip(0..) {
        own.push(WORKERS_FLOW + index);
    }
    let running = start(&mut world, settings);
    let control = running.control();
    for (index, ingress) in world.a.iter().enumerate() {
        let flow = WORKERS_FLOW + index as u32;
        ingress.arrive((0..EACH).map(|n| flow << 20 | n));
    }
    let producing: Vec<_> = senders.into_iter().map(thread::spawn).collect();
    // At first nobody helps: the watchdog finds both devices hung.
    for queue in &world.b {
        wait_for(&what, || queue.tx().resets > 0);
    }
    let hangs = world.stats.snapshot().ports[1].tx_total().hangs;
    assert!(hangs >= QUEUES as u64, "{what}: {hangs}");
    let complete = |(queue, own): (&Queue, &Vec<u32>)| {
        let tx = queue.tx();
        tx.sent.len() + tx.refused.len() == own.len() * EACH as usize && tx.kept.is_empty()
    };
    // Once in any case, and then at random.
    let all = TxQueues::Port(Port::B);
    for first in [Command::Reset, Command::Pause] {
        assert_eq!(command(control, all, first), Ok(QUEUES), "{what}");
    }
    let mut resets = QUEUES;
    wait_for(&what, || {
        for _ in 0..random.below(60) {
            for queue in &world.b {
                disturb(queue, &mut random);
            }
            if let Some((Command::Reset, queues)) = maybe(control, &mut random) {
                resets += queues;
            }
            thread::yield_now();
        }
        // Sometimes for longer, while nothing else happens either.
        if random.below(4) > 0 {
            assert_eq!(command(control, all, Command::Resume), Ok(QUEUES));
        }
        world.b.iter().zip(&flows).all(complete)
    });
    for thread in producing {
        thread.join().unwrap();
    }
    running.stop();
    running.join().unwrap();

    let end = world.closed();
    let tx = end.ports[1].tx_total();
    let by_device: u64 = world.b.iter().map(|queue| queue.tx().resets).sum();
    assert!(
        tx.resets >= resets as u64,
        "{what}: {resets} of {}",
        tx.resets
    );
    assert_eq!(tx.resets, by_device, "{what}");
    for (queue, own) in world.b.iter().zip(&flows) {
        check(queue, own, &what);
    }
    let sent: usize = world.b.iter().map(|queue| queue.tx().sent.len()).sum();
    let refused: usize = world.b.iter().map(|queue| queue.tx().refused.len()).sum();
    let ledger = end.ledger;
    assert_eq!(ledger.generated, generated, "{what}");
    assert_eq!(ledger.received, u64::from(EACH) * QUEUES as u64, "{what}");
    assert_eq!(ledger.transmitted, sent as u64, "{what}");
    assert_eq!((ledger.held, ledger.dropped), (0, refused as u64), "{what}");
    assert_eq!(
        end.drops.get(DropReason::LinkDown),
        refused as u64,
        "{what}"
    );
    assert!(
        tx.taken_back > 0,
        "{what}: no reset found anything in the device"
    );
}

/// Each way to dispatch with each way to wait, and among these each way to hold back signals, each
/// placement and each number of producers.
fn under_every_policy(by_flow: bool, seed: u64) {
    let held_back = Moderation::Fixed {
        usecs: 50,
        frames: 32,
    };
    let moderations = [Moderation::Off, held_back, Moderation::Adaptive];
    let placements = [Placement::None, Placement::List(affinity().unwrap())];
    let mut index = 0;
    // Side by side: a hang takes a second to be found.
    thread::scope(|scope| {
        for dispatch in POLICIES {
            for idle in [Idle::Halt, Idle::Poll, Idle::Adaptive] {
                index += 1;
                let settings = Settings {
                    dispatch,
                    idle,
                    moderation: moderations[(index + index / 3) % 3],
                    placement: placements[index % 2].clone(),
                    ..Settings::default()
                };
                let producers = [2, 4][index / 2 % 2];
                let seed = seed + index as u64;
                scope.spawn(move || run(&settings, producers, by_flow, seed));
            }
        }
    });
}

/// Every policy, several producers of flows on two queues, workers that forward into the same
/// queues, and devices that hang, fill up, lose their link, are paused, resumed and reset, one
/// after the other and all the time.
#[test]
fn flows_keep_their_order_through_stops_restarts_and_resets() {
    under_every_policy(false, 0x4e5e_7000);
}

/// The same, with producers whose bursts are for both queues: what one has no space for comes back,
/// and must not be overtaken by what is sent after it.
#[test]
fn flows_that_choose_their_queue_keep_their_order_through_all_of_it() {
    under_every_policy(true, 0xf10e_7000);
}
