//! Handles to all queues of a port: each flow has one queue, and full queues stop no others.

use super::fake::{World, dispatched, plan_of, world};
use super::handles::{PATIENCE, block_on, burst, poll, settle, unpark, wait_for};
use crate::driver::Input;
use crate::engine::handle::Waits;
use crate::engine::patience::Looks;
use crate::engine::{Closed, Forward, Port, SendError, TrySendError, TxFlows, TxHandle};
use crate::limits::{BURST_PACKETS_MAX, TX_RING_PACKETS};
use crate::packet::Burst;
use crate::policy::dispatch::Dispatch;
use crate::stats::DropReason;
use crate::test_packets::{Segment, tcp4};
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::LinkType;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::thread;
use std::time::Duration;

const ENDLESS: [Input; 2] = [Input::Endless; 2];
/// What the queues are filled with, before the packets that count.
const FILLER: u32 = u32::MAX;

#[test]
fn flows_keep_their_queue_and_their_order() {
    let world = world([4, 4], ENDLESS, None, || Forward).unwrap();
    let mut flows = world.handles.flows(Port::B);
    let mut clone = flows.clone();
    let mut used = [false; 4];
    for seq in 0..50 {
        let mut burst = Burst::new();
        for port in 0..40u16 {
            let segment = Segment {
                port,
                seq,
                ..Segment::default()
            };
            let mut packet = world.arena.packet_from(&tcp4(&segment)).unwrap();
            // A device that hashes as it likes moves no flow to another queue.
            packet.meta_mut().flow_hash = seq * 41 + u32::from(port);
            let queue = flows.queue_of(&packet);
            assert_eq!(queue, clone.queue_of(&packet));
            used[queue] = true;
            burst.push(packet).unwrap();
        }
        // One flow may be sent by any of them, by one at a time.
        let who = if seq % 2 == 0 { &mut flows } else { &mut clone };
        if seq % 3 == 0 {
            assert_eq!(who.try_send(&mut burst), Ok(40));
        } else if seq % 3 == 1 {
            assert_eq!(who.send_blocking(&mut burst, PATIENCE), Ok(40));
        } else {
            assert_eq!(block_on(who.send(&mut burst)), Ok(40));
        }
    }
    assert_eq!(used, [true; 4], "40 flows over 4 queues");
    let mut places = std::collections::HashMap::new();
    for (index, queue) in world.b.iter().enumerate() {
        let tx = queue.tx();
        for port in 0..40 {
            let own: Vec<_> = tx.tcp.iter().filter(|p| p.0 == port).map(|p| p.1).collect();
            if !own.is_empty() {
                assert_eq!(own, (0..50).collect::<Vec<_>>());
                assert_eq!(
                    places.insert(port, index),
                    None,
                    "flow {port} is on two queues"
                );
            }
        }
    }
    assert_eq!(places.len(), 40);

    // What belongs to no flow that can be told has the first queue.
    let torso = world.arena.packet_from(&[0xee; 10]).unwrap();
    assert_eq!(flows.queue_of(&torso), 0);

    assert_eq!(world.handles.queues(Port::B), 4);
    assert!(world.handles.queue(Port::B, 4).is_none());
    world.closed();
}

/// Wherever a packet's headers are cut into segments, and whether somebody has parsed them.
#[test]
fn headers_in_pieces_change_no_flows_queue() {
    let world = world([4, 4], ENDLESS, None, || Forward).unwrap();
    let flows = world.handles.flows(Port::B);
    let mut used = [false; 4];
    for port in 0..20 {
        let bytes = tcp4(&Segment {
            port,
            payload: 300,
            ..Segment::default()
        });
        let whole = world.arena.packet_from(&bytes).unwrap();
        let queue = flows.queue_of(&whole);
        used[queue] = true;
        let layout = Layout::parse(LinkType::Ethernet, &bytes, bytes.len() as u32).unwrap();
        for split in 1..80 {
            let mut packet = world.arena.packet_from(&bytes[..split]).unwrap();
            let rest = world.arena.packet_from(&bytes[split..]).unwrap();
            packet.append(rest).unwrap();
            for known in [None, Some(layout)] {
                packet.meta_mut().layout = known;
                assert_eq!(flows.queue_of(&packet), queue, "port {port}, {split}");
            }
        }
    }
    assert!(used.iter().filter(|used| **used).count() > 1, "{used:?}");
}

/// Sends so many fillers, for which there is space.
fn fill(world: &World<Forward>, handle: &mut TxHandle, total: usize) {
    let mut total = total;
    while total > 0 {
        let some = total.min(BURST_PACKETS_MAX);
        let mut filler = burst(&world.arena, [FILLER]);
        while filler.len() < some {
            // All of them are in one buffer: there are not enough of those.
            let more = filler.front().unwrap().try_clone().unwrap();
            filler.push(more).unwrap();
        }
        assert_eq!(handle.try_send(&mut filler), Ok(some));
        total -= some;
    }
}

/// Two queues whose devices take nothing, with so many free slots in the rings in front of them.
fn full(free: [usize; 2]) -> (World<Forward>, TxFlows) {
    let world = world([2, 2], ENDLESS, None, || Forward).unwrap();
    for (queue, free) in free.into_iter().enumerate() {
        world.b[queue].tx().room = 0;
        let mut handle = world.handles.queue(Port::B, queue).unwrap();
        // The first one finds the ring idle and waits behind it.
        fill(&world, &mut handle, 1);
        fill(&world, &mut handle, TX_RING_PACKETS - free);
    }
    let flows = world.handles.flows(Port::B);
    (world, flows)
}

/// Packets of two flows of each queue, in turns, and the numbers that each queue gets of them.
fn mixed(world: &World<Forward>, flows: &TxFlows) -> (Burst, [Vec<u32>; 2]) {
    let mut of_queue = [const { Vec::new() }; 2];
    for flow in 1..100 {
        let packet = burst(&world.arena, [flow << 20]).pop().unwrap();
        let own: &mut Vec<u32> = &mut of_queue[flows.queue_of(&packet)];
        if own.len() < 2 {
            own.push(flow);
        }
    }
    let [first, second] = of_queue;
    let turn = [first[0], second[0], first[1], second[1]];
    let numbers = (0..15).flat_map(|n| turn.map(|flow| flow << 20 | n));
    let packets = burst(&world.arena, numbers.clone());
    assert_eq!(packets.len(), 60);
    let of = |own: Vec<u32>| {
        numbers
            .clone()
            .filter(|n| own.contains(&(n >> 20)))
            .collect()
    };
    (packets, [of(first), of(second)])
}

fn numbers(burst: &Burst) -> Vec<u32> {
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes[14..18].try_into().unwrap());
    burst.iter().map(|packet| number(packet.first())).collect()
}

/// What a queue sent, but for what filled it.
fn sent(world: &World<Forward>, queue: usize) -> Vec<u32> {
    let tx = world.b[queue].tx();
    tx.sent.iter().copied().filter(|&n| n != FILLER).collect()
}

/// The device of `queue` takes everything from now on, and its worker finds out.
fn open(world: &mut World<Forward>, queue: usize) {
    world.b[queue].make_room(usize::MAX);
    settle(world.worker(queue));
}

/// Queue 0 is full but for five packets, and queue 1 goes on: it gets all of its packets, and what
/// did not fit comes back as it was, whichever way it is sent, and goes out behind the rest.
#[test]
fn a_full_queue_hands_back_its_own_packets_in_order_and_stops_no_other() {
    for form in ["try", "blocking", "async"] {
        let (mut world, mut flows) = full([5, 0]);
        open(&mut world, 1);
        let (mut packets, [first, second]) = mixed(&world, &flows);
        let (woken, waker) = unpark();
        match form {
            "try" => {
                let error = TrySendError::Full { accepted: 35 };
                assert_eq!(flows.try_send(&mut packets), Err(error));
                assert_eq!(numbers(&packets), first[5..]);
                assert_eq!(sent(&world, 1), second, "{form}");
                // Still full: the same once more.
                let error = TrySendError::Full { accepted: 0 };
                assert_eq!(flows.try_send(&mut packets), Err(error));
                assert_eq!(numbers(&packets), first[5..]);
                open(&mut world, 0);
                assert_eq!(flows.try_send(&mut packets), Ok(25));
            }
            "blocking" => {
                let waits = flows.send_blocking(&mut packets, Duration::from_millis(1));
                assert_eq!(waits, Err(SendError::TimedOut));
                assert_eq!(numbers(&packets), first[5..]);
                assert_eq!(sent(&world, 1), second, "{form}");
                thread::scope(|scope| {
                    let send = || flows.send_blocking(&mut packets, PATIENCE);
                    let sending = scope.spawn(send);
                    open(&mut world, 0);
                    assert_eq!(sending.join().unwrap(), Ok(25));
                });
            }
            _ => {
                {
                    let mut sending = pin!(flows.send(&mut packets));
                    assert!(poll(sending.as_mut(), &waker).is_pending());
                    assert_eq!(sent(&world, 1), second, "{form}");
                    assert!(poll(sending.as_mut(), &waker).is_pending());
                }
                // The future is gone, and the packets are not.
                assert_eq!(numbers(&packets), first[5..]);
                let mut sending = pin!(flows.send(&mut packets));
                assert!(poll(sending.as_mut(), &waker).is_pending());
                open(&mut world, 0);
                assert!(woken.1.load(Ordering::Relaxed) > 0, "nobody said so");
                assert_eq!(poll(sending.as_mut(), &waker), Poll::Ready(Ok(25)));
            }
        }
        settle(world.worker(0));
        assert_eq!(sent(&world, 0), first, "{form}");
        assert_eq!(sent(&world, 1), second, "{form}");
        assert_eq!(world.closed().ledger.held, 0);
    }
}

/// Of two full queues the second goes on: its packets do not wait for the first queue, though the
/// first queue's packets are in front of them.
#[test]
fn who_waits_for_several_queues_goes_on_with_the_one_that_does() {
    let (mut world, mut flows) = full([0, 0]);
    let (mut packets, [first, second]) = mixed(&world, &flows);
    let (woken, waker) = unpark();
    {
        let mut sending = pin!(flows.send(&mut packets));
        assert!(poll(sending.as_mut(), &waker).is_pending());
        open(&mut world, 1);
        assert!(woken.1.load(Ordering::Relaxed) > 0, "nobody said so");
        assert!(poll(sending.as_mut(), &waker).is_pending());
        assert_eq!(sent(&world, 1), second);
        assert_eq!(sent(&world, 0), []);
        let before = woken.1.load(Ordering::Relaxed);
        open(&mut world, 0);
        assert!(woken.1.load(Ordering::Relaxed) > before, "nobody said so");
        assert_eq!(poll(sending.as_mut(), &waker), Poll::Ready(Ok(60)));
    }
    assert_eq!(sent(&world, 0), first);
    world.closed();

    let (mut world, mut flows) = full([0, 0]);
    let (mut packets, [first, second]) = mixed(&world, &flows);
    thread::scope(|scope| {
        let sending = scope.spawn(|| flows.send_blocking(&mut packets, PATIENCE));
        open(&mut world, 1);
        wait_for("the second queue's packets", || {
            settle(world.worker(1));
            sent(&world, 1) == second
        });
        assert_eq!(sent(&world, 0), []);
        open(&mut world, 0);
        assert_eq!(sending.join().unwrap(), Ok(60));
    });
    settle(world.worker(0));
    assert_eq!(sent(&world, 0), first);
    assert_eq!(world.closed().ledger.held, 0);
}

/// Those that wait for space are told that there will be none, and keep what was not taken.
#[test]
fn the_end_of_the_run_releases_flows_that_wait() {
    let (mut world, mut flows) = full([0, 3]);
    let (mut packets, [first, second]) = mixed(&world, &flows);
    let left = [&first[..], &second[3..]].concat();
    let mut others = flows.clone();
    let mut blocked = burst(&world.arena, first.iter().copied());
    let (woken, waker) = unpark();
    thread::scope(|scope| {
        let blocking = scope.spawn(|| others.send_blocking(&mut blocked, PATIENCE));
        {
            let mut sending = pin!(flows.send(&mut packets));
            assert!(poll(sending.as_mut(), &waker).is_pending());
            // Most likely it waits by now; if not, it is told all the same.
            thread::sleep(Duration::from_millis(2));
            world.intake.stop();
            for worker in 0..2 {
                world.worker(worker).step(super::handles::NOW).unwrap();
            }
            assert!(woken.1.load(Ordering::Relaxed) > 0, "nobody said so");
            let closed = Poll::Ready(Err(Closed));
            assert_eq!(poll(sending.as_mut(), &waker), closed);
        }
        assert_eq!(blocking.join().unwrap(), Err(SendError::Closed));
    });
    assert_eq!(numbers(&blocked), first);
    assert_eq!(numbers(&packets), left);
    assert_eq!(flows.try_send(&mut packets), Err(TrySendError::Closed));
    assert_eq!(block_on(flows.send(&mut packets)), Err(Closed));
    let blocking = flows.send_blocking(&mut packets, PATIENCE);
    assert_eq!(blocking, Err(SendError::Closed));
    assert_eq!(numbers(&packets), left);
    for worker in 0..2 {
        world.worker(worker).abandon(DropReason::Shutdown);
    }
    let end = world.closed();
    let taken = (2 * (1 + TX_RING_PACKETS)) as u64;
    assert_eq!(end.ledger.generated, taken);
    assert_eq!(end.drops.get(DropReason::Shutdown), taken);
}

/// Where one of two queues has space by now, the other one has to know all the same who waits: the
/// sender sends to the first what that takes, and then sleeps.
#[test]
fn who_waits_is_known_to_every_queue_also_where_one_has_space() {
    let (mut world, mut flows) = full([0, 0]);
    let (mut packets, [_, second]) = mixed(&world, &flows);
    let (woken, waker) = unpark();
    assert_eq!(
        flows.try_send(&mut packets),
        Err(TrySendError::Full { accepted: 0 })
    );
    open(&mut world, 0);
    assert!(flows.wait(&packets, &waker), "the first has space");
    let before = woken.1.load(Ordering::Relaxed);
    open(&mut world, 1);
    assert!(woken.1.load(Ordering::Relaxed) > before, "nobody said so");
    assert_eq!(flows.try_send(&mut packets), Ok(60));
    settle(world.worker(1));
    assert_eq!(sent(&world, 1), second);
    settle(world.worker(0));
    assert_eq!(world.closed().ledger.held, 0);
}

/// The ring of one queue is taken and filled again, 64 packets in about 40 us; nobody takes what is
/// in that of the other one.
#[test]
fn who_waits_looks_longer_for_space_that_comes_slowly() {
    let plan = plan_of([2, 2]);
    let world = dispatched(&plan, [2, 2], ENDLESS, None, Dispatch::Deferred, || Forward);
    let mut world = world.unwrap();
    let mut flows = world.handles.flows(Port::B);
    let [mut slow, mut stuck] = [0, 1].map(|queue| world.handles.queue(Port::B, queue).unwrap());
    fill(&world, &mut stuck, TX_RING_PACKETS);
    fill(&world, &mut slow, TX_RING_PACKETS);
    let nothing = Burst::new();
    let mut looks = [Looks::SHORT; 3];
    // Again until the sleeps were about as long as they should be.
    wait_for("it looks no longer", || {
        for _ in 0..4 {
            thread::sleep(Duration::from_micros(300));
            settle(world.worker(0));
            fill(&world, &mut slow, TX_RING_PACKETS);
        }
        looks = [
            slow.looks(&nothing),
            stuck.looks(&nothing),
            flows.looks(&nothing),
        ];
        looks[0] > Looks::SHORT && looks[2] > Looks::SHORT
    });
    assert_eq!(looks[1], Looks::SHORT);
    // A device that takes no more: there is nothing to look for.
    world.b[0].tx().room = 0;
    settle(world.worker(0));
    assert_eq!(slow.looks(&nothing), Looks::SHORT);
    assert_eq!(flows.looks(&nothing), Looks::SHORT);
}
