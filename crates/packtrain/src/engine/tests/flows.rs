//! Handles to all queues of a port: each flow has one queue, and a full queue stops no other.

use super::fake::numbered;
use super::rig::{Rig, SLOTS, Setup, TIMEOUT, Woken, burst, numbers, poll, wait_for};
use crate::engine::{Closed, SendError, TrySendError, TxFlows, TxHandle};
use crate::limits::BURST_PACKETS_MAX;
use crate::packet::Burst;
use crate::stats::DropReason;
use crate::test_packets::{Segment, tcp4};
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::LinkType;
use std::future::Future;
use std::pin::pin;
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

/// The number of the packets that only fill the queues.
const FILLER: u32 = u32::MAX;

fn ready<F: Future>(future: F) -> F::Output {
    match poll(pin!(future), Waker::noop()) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("there is space"),
    }
}

#[test]
fn flows_keep_their_queue_and_their_order() {
    let world = Setup::new([4, 4]).senders(1).forward();
    let mut flows = world.session.flows(1).unwrap();
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
            let mut packet = world.arena().packet_from(&tcp4(&segment)).unwrap();
            // The hash of a device does not decide the queue.
            packet.meta_mut().flow_hash = seq * 41 + u32::from(port);
            let queue = flows.queue_of(&packet);
            assert_eq!(queue, clone.queue_of(&packet));
            used[queue] = true;
            burst.push(packet).unwrap();
        }
        // Either handle may send a flow, one at a time.
        let sender = if seq % 2 == 0 { &mut flows } else { &mut clone };
        if seq % 3 == 0 {
            assert_eq!(sender.try_send(&mut burst), Ok(40));
        } else if seq % 3 == 1 {
            assert_eq!(sender.send_blocking(&mut burst, TIMEOUT), Ok(40));
        } else {
            assert_eq!(ready(sender.send(&mut burst)), Ok(40));
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

    // A packet without a recognizable flow goes to the first queue.
    let torso = world.arena().packet_from(&[0xee; 10]).unwrap();
    assert_eq!(flows.queue_of(&torso), 0);

    world.closed();
}

/// The headers are split into segments at any byte, with and without a parsed layout.
#[test]
fn split_headers_do_not_change_the_queue_of_a_flow() {
    let world = Setup::new([4, 4]).senders(1).forward();
    let flows = world.session.flows(1).unwrap();
    let mut used = [false; 4];
    for port in 0..20 {
        let bytes = tcp4(&Segment {
            port,
            payload: 300,
            ..Segment::default()
        });
        let whole = world.arena().packet_from(&bytes).unwrap();
        let queue = flows.queue_of(&whole);
        used[queue] = true;
        let layout = Layout::parse(LinkType::Ethernet, &bytes, bytes.len() as u32).unwrap();
        for split in 1..80 {
            let mut packet = world.arena().packet_from(&bytes[..split]).unwrap();
            let rest = world.arena().packet_from(&bytes[split..]).unwrap();
            packet.append(rest).unwrap();
            for known in [None, Some(layout)] {
                packet.meta_mut().layout = known;
                assert_eq!(flows.queue_of(&packet), queue, "port {port}, {split}");
            }
        }
    }
    assert!(used.iter().filter(|used| **used).count() > 1, "{used:?}");
}

/// Sends `total` fillers, for which there is space.
fn fill(world: &Rig, handle: &mut TxHandle, total: usize) {
    let mut total = total;
    while total > 0 {
        let some = total.min(BURST_PACKETS_MAX);
        let mut filler = burst(&world.arena(), [FILLER]);
        while filler.len() < some {
            // All fillers share one buffer, since the arena has too few.
            let more = filler.front().unwrap().try_clone().unwrap();
            filler.push(more).unwrap();
        }
        assert_eq!(handle.try_send(&mut filler), Ok(some));
        total -= some;
    }
}

/// Two queues whose devices accept nothing, with `free` free slots in their rings.
fn full(free: [usize; 2]) -> (Rig, TxFlows) {
    let mut world = Setup::new([2, 2]).senders(1).forward();
    world.settle();
    for (queue, free) in free.into_iter().enumerate() {
        world.b[queue].tx().room = 0;
        let mut handle = world.handle(queue);
        // The first packet finds the ring idle and waits behind it.
        fill(&world, &mut handle, 1);
        fill(&world, &mut handle, SLOTS - free);
    }
    let flows = world.session.flows(1).unwrap();
    (world, flows)
}

/// Alternating packets of two flows of each queue, and the numbers of each queue's packets.
fn mixed(world: &Rig, flows: &TxFlows) -> (Burst, [Vec<u32>; 2]) {
    let mut of_queue = [const { Vec::new() }; 2];
    for flow in 1..100 {
        let packet = numbered(&world.arena(), flow << 20).unwrap();
        let own: &mut Vec<u32> = &mut of_queue[flows.queue_of(&packet)];
        if own.len() < 2 {
            own.push(flow);
        }
    }
    let [first, second] = of_queue;
    let turn = [first[0], second[0], first[1], second[1]];
    let numbers = (0..15).flat_map(|n| turn.map(|flow| flow << 20 | n));
    let packets = burst(&world.arena(), numbers.clone());
    assert_eq!(packets.len(), 60);
    let of = |own: Vec<u32>| {
        numbers
            .clone()
            .filter(|n| own.contains(&(n >> 20)))
            .collect()
    };
    (packets, [of(first), of(second)])
}

/// The packets that a queue sent, without fillers.
fn sent(world: &Rig, queue: usize) -> Vec<u32> {
    let tx = world.b[queue].tx();
    tx.sent.iter().copied().filter(|&n| n != FILLER).collect()
}

/// The device of `queue` accepts everything from now on. The workers run until they sleep.
fn open(world: &mut Rig, queue: usize) {
    world.b[queue].make_room(usize::MAX);
    world.settle();
}

/// Queue 0 has five free slots, and queue 1 accepts all of its packets. For each kind of send,
/// packets that did not fit remain in the burst in order, and are sent later.
#[test]
fn a_full_queue_leaves_its_packets_in_the_burst_and_stops_no_other() {
    for form in ["try", "blocking", "async"] {
        let (mut world, mut flows) = full([5, 0]);
        open(&mut world, 1);
        let (mut packets, [first, second]) = mixed(&world, &flows);
        let (woken, waker) = Woken::new();
        match form {
            "try" => {
                let error = TrySendError::Full { accepted: 35 };
                assert_eq!(flows.try_send(&mut packets), Err(error));
                assert_eq!(numbers(&packets), first[5..]);
                assert_eq!(sent(&world, 1), second, "{form}");
                // The queue is still full.
                let error = TrySendError::Full { accepted: 0 };
                assert_eq!(flows.try_send(&mut packets), Err(error));
                assert_eq!(numbers(&packets), first[5..]);
                open(&mut world, 0);
                assert_eq!(flows.try_send(&mut packets), Ok(25));
            }
            "blocking" => {
                let waits = flows.send_blocking(&mut packets, Duration::from_millis(1));
                assert_eq!(waits, Err(SendError::TimedOut { accepted: 35 }));
                assert_eq!(numbers(&packets), first[5..]);
                assert_eq!(sent(&world, 1), second, "{form}");
                world.alone = false;
                thread::scope(|scope| {
                    let send = || flows.send_blocking(&mut packets, TIMEOUT);
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
                // The future was dropped; the packets remain in the burst.
                assert_eq!(numbers(&packets), first[5..]);
                let mut sending = pin!(flows.send(&mut packets));
                assert!(poll(sending.as_mut(), &waker).is_pending());
                open(&mut world, 0);
                assert!(woken.count() > 0, "the sender was not woken");
                assert_eq!(poll(sending.as_mut(), &waker), Poll::Ready(Ok(25)));
            }
        }
        world.settle();
        assert_eq!(sent(&world, 0), first, "{form}");
        assert_eq!(sent(&world, 1), second, "{form}");
        assert_eq!(world.closed().ledger.held, 0);
    }
}

/// The second of two full queues continues. Its packets do not wait for those of the first queue,
/// which are in front of them in the burst.
#[test]
fn a_sender_that_waits_for_two_queues_continues_with_the_one_that_has_space() {
    let (mut world, mut flows) = full([0, 0]);
    let (mut packets, [first, second]) = mixed(&world, &flows);
    let (woken, waker) = Woken::new();
    {
        let mut sending = pin!(flows.send(&mut packets));
        assert!(poll(sending.as_mut(), &waker).is_pending());
        open(&mut world, 1);
        assert!(woken.count() > 0, "the sender was not woken");
        assert!(poll(sending.as_mut(), &waker).is_pending());
        assert_eq!(sent(&world, 1), second);
        assert!(sent(&world, 0).is_empty());
        let before = woken.count();
        open(&mut world, 0);
        assert!(woken.count() > before, "the sender was not woken");
        assert_eq!(poll(sending.as_mut(), &waker), Poll::Ready(Ok(60)));
    }
    assert_eq!(sent(&world, 0), first);
    world.closed();

    let (mut world, mut flows) = full([0, 0]);
    let (mut packets, [first, second]) = mixed(&world, &flows);
    world.alone = false;
    thread::scope(|scope| {
        let sending = scope.spawn(|| flows.send_blocking(&mut packets, TIMEOUT));
        open(&mut world, 1);
        wait_for("the second queue's packets", || {
            world.settle();
            sent(&world, 1) == second
        });
        assert!(sent(&world, 0).is_empty());
        open(&mut world, 0);
        assert_eq!(sending.join().unwrap(), Ok(60));
    });
    world.settle();
    assert_eq!(sent(&world, 0), first);
    assert_eq!(world.closed().ledger.held, 0);
}

/// Waiting senders get `Closed`. Packets that were not accepted remain in their bursts.
#[test]
fn the_end_of_the_run_wakes_waiting_senders() {
    let (mut world, mut flows) = full([0, 3]);
    let (mut packets, [first, second]) = mixed(&world, &flows);
    let left = [&first[..], &second[3..]].concat();
    let mut others = flows.clone();
    let mut blocked = burst(&world.arena(), first.iter().copied());
    let (woken, waker) = Woken::new();
    world.alone = false;
    let mut accepted = 0;
    thread::scope(|scope| {
        let blocking = scope.spawn(|| others.send_blocking(&mut blocked, TIMEOUT));
        {
            let mut sending = pin!(flows.send(&mut packets));
            assert!(poll(sending.as_mut(), &waker).is_pending());
            // The blocking sender most likely waits by now. If not, it gets `Closed` all the same.
            thread::sleep(Duration::from_millis(2));
            world.session.stop();
            world.settle();
            assert!(woken.count() > 0, "the sender was not woken");
            let closed = Poll::Ready(Err(Closed));
            assert_eq!(poll(sending.as_mut(), &waker), closed);
        }
        // After a lane has ended, its slots are free until the queue is closed.
        match blocking.join().unwrap() {
            Ok(all) => accepted = all,
            Err(error) => assert_eq!(error, SendError::Closed),
        }
    });
    let left_there = if accepted > 0 { &[] } else { &first[..] };
    assert_eq!(numbers(&blocked), left_there);
    assert_eq!(numbers(&packets), left);
    assert_eq!(flows.try_send(&mut packets), Err(TrySendError::Closed));
    assert_eq!(ready(flows.send(&mut packets)), Err(Closed));
    let blocking = flows.send_blocking(&mut packets, TIMEOUT);
    assert_eq!(blocking, Err(SendError::Closed));
    assert_eq!(numbers(&packets), left);
    let end = world.finish();
    let taken = (2 * (1 + SLOTS) + accepted) as u64;
    assert_eq!(end.ledger.generated, taken);
    assert_eq!(end.drops.get(DropReason::Shutdown), taken);
}

/// One of two queues has space when a sender registers. The sender registers with the other one,
/// too, since it sleeps after it has sent to the first.
#[test]
fn a_waiting_sender_registers_with_every_queue() {
    let (mut world, mut flows) = full([0, 0]);
    let (mut packets, [_, second]) = mixed(&world, &flows);
    let (woken, waker) = Woken::new();
    assert_eq!(
        flows.try_send(&mut packets),
        Err(TrySendError::Full { accepted: 0 })
    );
    open(&mut world, 0);
    assert!(flows.wait(&packets, &waker), "the first has space");
    let before = woken.count();
    open(&mut world, 1);
    assert!(woken.count() > before, "the sender was not woken");
    assert_eq!(flows.try_send(&mut packets), Ok(60));
    world.settle();
    assert_eq!(sent(&world, 1), second);
    world.settle();
    assert_eq!(world.closed().ledger.held, 0);
}
