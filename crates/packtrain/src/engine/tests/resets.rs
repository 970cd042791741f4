//! Random pauses, resets, hung devices and link changes while lanes and applications send. Each
//! flow keeps its order, and each packet is sent once or counted as dropped.

use super::fake::Queue;
use super::rig::{Random, Rig, Setup, burst};
use crate::engine::control::{Command, Queues};
use crate::engine::{Action, TrySendError, TxHandle};
use crate::limits::TX_HUNG_AFTER;
use crate::stats::DropReason;
use std::collections::BTreeMap;

const QUEUES: usize = 2;
const EACH: u32 = 600;
/// The first flow of the lanes; those of producers are smaller.
const LANES_FLOW: u32 = 100;

/// An application thread that sends one flow to each queue.
struct Sender {
    queues: Vec<(TxHandle, u32, u32)>,
}

impl Sender {
    fn send(&mut self, random: &mut Random) {
        let queue = random.below(QUEUES as u64) as usize;
        let (handle, flow, next) = &mut self.queues[queue];
        let many = (random.below(40) as u32 + 1).min(EACH - *next);
        let mut packets = burst(
            handle.arena(),
            (*next..*next + many).map(|n| *flow << 20 | n),
        );
        let before = packets.len();
        match handle.try_send(&mut packets) {
            Ok(_) | Err(TrySendError::Full { .. }) => {}
            Err(TrySendError::Closed) => panic!("the run goes on"),
        }
        *next += (before - packets.len()) as u32;
    }

    fn is_done(&self) -> bool {
        self.queues.iter().all(|(_, _, next)| *next == EACH)
    }
}

fn disturb(queue: &Queue, random: &mut Random) {
    match random.below(16) {
        0 => queue.tx().link_down = true,
        1 => queue.tx().room = 0,
        2 => queue.tx().hung = true,
        3..8 => {
            queue.tx().hung = false;
            queue.complete(random.below(200) as usize);
        }
        _ => queue.tx().link_down = false,
    }
    if random.below(2) == 0 {
        queue.make_room(random.below(80) as usize);
    }
}

fn command(rig: &mut Rig, random: &mut Random) -> usize {
    let what = match random.below(8) {
        0 => Command::Reset,
        1 => Command::Pause,
        2 | 3 => Command::Resume,
        _ => return 0,
    };
    let to_reset = what == Command::Reset;
    let port = match random.below(3) {
        0 if !to_reset => Queues::rx(0),
        _ => Queues::tx(1),
    };
    let (queues, count) = match random.below(2 * QUEUES as u64) as usize {
        queue if queue < QUEUES => (port.only(queue), 1),
        _ => (port, QUEUES),
    };
    assert_eq!(rig.command(queues, what), Ok(count));
    if to_reset { count } else { 0 }
}

/// Checks the flows of one queue: each is in order, and each packet was sent once, or refused once
/// while the link was down.
fn check(queue: &Queue, name: &str) {
    let tx = queue.tx();
    let mut all: BTreeMap<u32, Vec<(u32, bool)>> = BTreeMap::new();
    for (list, sent) in [(&tx.sent, true), (&tx.refused, false)] {
        for &number in list {
            let of_flow = all.entry(number >> 20).or_default();
            of_flow.push((number & 0xf_ffff, sent));
        }
    }
    for (flow, mut packets) in all {
        let sent = packets.iter().filter(|(_, sent)| *sent);
        assert!(sent.is_sorted(), "{name}: flow {flow} is out of order");
        packets.sort_unstable();
        let numbers = packets.iter().map(|(number, _)| *number);
        assert!(
            numbers.eq(0..EACH),
            "{name}: flow {flow}: a packet twice or not at all"
        );
    }
}

fn run(name: &str, setup: &Setup, producers: u32, seed: u64) {
    let name = format!("{name}, {producers} producers, seed {seed:#x}");
    println!("{name}");
    let mut random = Random::new(seed);
    let mut rig = setup.forward();
    for queue in &rig.b {
        let mut tx = queue.tx();
        (tx.keeps, tx.forgets, tx.hung, tx.room) = (true, true, true, 20);
    }
    let mut senders: Vec<_> = (0..producers)
        .map(|producer| Sender {
            queues: (0..QUEUES)
                .map(|queue| {
                    (
                        rig.handle(queue),
                        producer * QUEUES as u32 + queue as u32,
                        0,
                    )
                })
                .collect(),
        })
        .collect();
    for (index, ingress) in rig.a.iter().enumerate() {
        let flow = LANES_FLOW + index as u32;
        ingress.arrive((0..EACH).map(|n| flow << 20 | n));
    }
    senders
        .iter_mut()
        .for_each(|sender| sender.send(&mut random));
    // The watchdog finds both devices hung.
    let devices = rig.b.clone();
    rig.settle();
    let took = rig.pass_until(|_| devices.iter().all(|queue| queue.tx().resets > 0));
    assert!(
        took >= TX_HUNG_AFTER && took <= 2 * TX_HUNG_AFTER,
        "{name}: {took:?}"
    );
    assert!(
        rig.closed().ports[1].tx_total().hangs >= QUEUES as u64,
        "{name}"
    );
    let all = Queues::tx(1);
    let mut resets = 0;
    for what in [Command::Reset, Command::Pause] {
        assert_eq!(rig.command(all, what), Ok(QUEUES), "{name}");
    }
    resets += QUEUES;
    let flows = producers as usize + 1;
    let complete = |queue: &Queue| {
        let tx = queue.tx();
        tx.sent.len() + tx.refused.len() == flows * EACH as usize && tx.kept.is_empty()
    };
    let mut rounds = 0;
    while !(senders.iter().all(Sender::is_done) && devices.iter().all(complete)) {
        rounds += 1;
        assert!(rounds < 20_000, "{name}: the run does not end");
        for _ in 0..random.below(30) {
            match random.below(4) {
                0 => devices.iter().for_each(|queue| disturb(queue, &mut random)),
                1 => {
                    let worker = random.below(rig.workers.len() as u64) as usize;
                    assert_ne!(rig.run(worker), Action::Done, "{name}");
                }
                _ => senders
                    .iter_mut()
                    .for_each(|sender| sender.send(&mut random)),
            }
        }
        resets += command(&mut rig, &mut random);
        if random.below(4) > 0 {
            for queues in [all, Queues::rx(0)] {
                assert_eq!(rig.command(queues, Command::Resume), Ok(QUEUES), "{name}");
            }
        }
        let until = rig.settle();
        if let Some(until) = until.filter(|_| random.below(2) == 0) {
            let wait = until.since(rig.now());
            rig.advance(wait);
        }
    }
    let end = rig.finish();
    let tx = end.ports[1].tx_total();
    let by_device: u64 = devices.iter().map(|queue| queue.tx().resets).sum();
    assert!(
        tx.resets >= resets as u64 && tx.resets == by_device,
        "{name}"
    );
    assert!(tx.taken_back > 0, "{name}");
    devices.iter().for_each(|queue| check(queue, &name));
    let sum = |of: fn(&Queue) -> usize| devices.iter().map(of).sum::<usize>() as u64;
    let (sent, refused) = (sum(|q| q.tx().sent.len()), sum(|q| q.tx().refused.len()));
    let generated = u64::from(producers * EACH) * QUEUES as u64;
    assert_eq!(end.ledger.generated, generated, "{name}");
    assert_eq!(
        end.ledger.received,
        u64::from(EACH) * QUEUES as u64,
        "{name}"
    );
    assert_eq!(
        (end.ledger.transmitted, end.ledger.dropped),
        (sent, refused),
        "{name}"
    );
    assert_eq!(end.drops.get(DropReason::LinkDown), refused, "{name}");
}

#[test]
fn flows_keep_their_order_through_stops_restarts_and_resets() {
    for (index, (path, mut setup)) in Setup::new([QUEUES; 2])
        .on_every_path()
        .into_iter()
        .enumerate()
    {
        let producers = if setup.senders > 0 { 2 } else { 0 };
        for cpus in [2, 4] {
            setup.cpus = cpus;
            run(
                &path,
                &setup,
                producers,
                0x4e5e_7000 + (index * 8 + cpus) as u64,
            );
        }
    }
}
