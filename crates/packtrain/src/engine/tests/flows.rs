//! Handles to all queues of a port: each flow has one queue, and full queues stop no others.

use super::fake::numbered;
use super::rig::{PATIENCE, Rig, Setup, Woken, burst, numbers, wait_for};
use crate::engine::{Closed, SendError, TrySendError, TxFlows, TxHandle};
use crate::limits::{BURST_PACKETS_MAX, RING_SLOTS_PER_LANE, TX_RING_PACKETS};
use crate::packet::Burst;
use crate::stats::DropReason;
use crate::test_packets::{Segment, tcp4};
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::LinkType;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

/// What the queues are filled with, before the packets that count.
const FILLER: u32 = u32::MAX;
/// Slots for applications.
const SLOTS: usize = TX_RING_PACKETS - RING_SLOTS_PER_LANE;

fn poll<F: Future>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

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
            assert_eq!(ready(who.send(&mut burst)), Ok(40));
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
    let torso = world.arena().packet_from(&[0xee; 10]).unwrap();
    assert_eq!(flows.queue_of(&torso), 0);

    world.closed();
}

/// Wherever a packet's headers are cut into segments, and whether they were parsed before.
#[test]
fn headers_in_pieces_change_no_flows_queue() {
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

/// Sends so many fillers, for which there is space.
fn fill(world: &Rig, handle: &mut TxHandle, total: usize) {
    let mut total = total;
    while total > 0 {
        let some = total.min(BURST_PACKETS_MAX);
        let mut filler = burst(&world.arena(), [FILLER]);
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
fn full(free: [usize; 2]) -> (Rig, TxFlows) {
    let mut world = Setup::new([2, 2]).senders(1).forward();
    world.settle();
    for (queue, free) in free.into_iter().enumerate() {
        world.b[queue].tx().room = 0;
        let mut handle = world.handle(queue);
        // The first one finds the ring idle and waits behind it.
        fill(&world, &mut handle, 1);
        fill(&world, &mut handle, SLOTS - free);
    }
    let flows = world.session.flows(1).unwrap();
    (world, flows)
}

/// Packets of two flows of each queue, in turns, and the numbers that each queue gets of them.
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

/// What a queue sent, but for what filled it.
fn sent(world: &Rig, queue: usize) -> Vec<u32> {
    let tx = world.b[queue].tx();
    tx.sent.iter().copied().filter(|&n| n != FILLER).collect()
}

/// The device of `queue` takes everything from now on, and its worker finds out.
fn open(world: &mut Rig, queue: usize) {
    world.b[queue].make_room(usize::MAX);
    world.settle();
}

/// Queue 0 is full but for five packets, and queue 1 goes on: it gets all of its packets, and what
/// did not fit comes back as it was, whichever way it is sent, and goes out behind the rest.
#[test]
fn a_full_queue_hands_back_its_own_packets_in_order_and_stops_no_other() {
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
                // Still full: the same once more.
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
                assert!(woken.count() > 0, "it was not woken");
                assert_eq!(poll(sending.as_mut(), &waker), Poll::Ready(Ok(25)));
            }
        }
        world.settle();
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
    let (woken, waker) = Woken::new();
    {
        let mut sending = pin!(flows.send(&mut packets));
        assert!(poll(sending.as_mut(), &waker).is_pending());
        open(&mut world, 1);
        assert!(woken.count() > 0, "it was not woken");
        assert!(poll(sending.as_mut(), &waker).is_pending());
        assert_eq!(sent(&world, 1), second);
        assert_eq!(sent(&world, 0), []);
        let before = woken.count();
        open(&mut world, 0);
        assert!(woken.count() > before, "it was not woken");
        assert_eq!(poll(sending.as_mut(), &waker), Poll::Ready(Ok(60)));
    }
    assert_eq!(sent(&world, 0), first);
    world.closed();

    let (mut world, mut flows) = full([0, 0]);
    let (mut packets, [first, second]) = mixed(&world, &flows);
    world.alone = false;
    thread::scope(|scope| {
        let sending = scope.spawn(|| flows.send_blocking(&mut packets, PATIENCE));
        open(&mut world, 1);
        wait_for("the second queue's packets", || {
            world.settle();
            sent(&world, 1) == second
        });
        assert_eq!(sent(&world, 0), []);
        open(&mut world, 0);
        assert_eq!(sending.join().unwrap(), Ok(60));
    });
    world.settle();
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
    let mut blocked = burst(&world.arena(), first.iter().copied());
    let (woken, waker) = Woken::new();
    world.alone = false;
    let mut accepted = 0;
    thread::scope(|scope| {
        let blocking = scope.spawn(|| others.send_blocking(&mut blocked, PATIENCE));
        {
            let mut sending = pin!(flows.send(&mut packets));
            assert!(poll(sending.as_mut(), &waker).is_pending());
            // Most likely it waits by now; if not, it is told all the same.
            thread::sleep(Duration::from_millis(2));
            world.session.stop();
            world.settle();
            assert!(woken.count() > 0, "it was not woken");
            let closed = Poll::Ready(Err(Closed));
            assert_eq!(poll(sending.as_mut(), &waker), closed);
        }
        // The slots of a lane that has ended are free until the queue is closed.
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
    let blocking = flows.send_blocking(&mut packets, PATIENCE);
    assert_eq!(blocking, Err(SendError::Closed));
    assert_eq!(numbers(&packets), left);
    let end = world.finish();
    let taken = (2 * (1 + SLOTS) + accepted) as u64;
    assert_eq!(end.ledger.generated, taken);
    assert_eq!(end.drops.get(DropReason::Shutdown), taken);
}

/// Where one of two queues has space by now, the other one has to know the waiter all the same: the
/// sender sends to the first what that takes, and then sleeps.
#[test]
fn who_waits_is_known_to_every_queue_also_where_one_has_space() {
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
    assert!(woken.count() > before, "it was not woken");
    assert_eq!(flows.try_send(&mut packets), Ok(60));
    world.settle();
    assert_eq!(sent(&world, 1), second);
    world.settle();
    assert_eq!(world.closed().ledger.held, 0);
}
