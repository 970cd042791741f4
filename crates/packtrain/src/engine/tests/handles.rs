//! Application threads that send beside lanes.

use super::rig::{POLICIES, Random, Rig, SLOTS, Woken, burst, drains, poll, with_senders};
use crate::engine::{Action, Closed, SendError, TrySendError, TxHandle};
use crate::packet::Burst;
use crate::policy::dispatch::Dispatch;
use crate::stats::DropReason;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Sends until the ring is full. Returns the number of the next packet.
fn fill(rig: &Rig, handle: &mut TxHandle, mut next: u32) -> u32 {
    loop {
        match handle.try_send(&mut rig.burst(next..next + 16)) {
            Ok(16) => next += 16,
            Err(TrySendError::Full { accepted }) => return next + accepted as u32,
            other => panic!("{other:?}"),
        }
    }
}

/// Fills the ring, the stage and the TX queue.
fn fill_all(rig: &mut Rig, handle: &mut TxHandle, mut next: u32) -> u32 {
    loop {
        rig.settle();
        let before = next;
        next = fill(rig, handle, next);
        if next == before {
            return next;
        }
    }
}

/// One packet at a time, without other work. Under `deferred` each packet costs a wake-up, and none
/// if producers drain.
#[test]
fn direct_dispatch_wakes_no_worker_and_deferred_dispatch_one_for_each_packet() {
    for dispatch in POLICIES {
        let mut rig = with_senders(dispatch, 1);
        let mut handle = rig.handle(0);
        let before = rig.closed();
        for number in 0..500 {
            assert_eq!(handle.try_send(&mut rig.burst([number])), Ok(1));
            rig.settle();
        }
        let (after, tx) = (rig.closed(), rig.tx());
        let expected = if drains(dispatch) {
            (500, 0, 0)
        } else {
            (0, 500, 500)
        };
        assert_eq!((tx.direct, tx.deferred, tx.wakeups), expected, "{dispatch}");
        if drains(dispatch) {
            assert_eq!(after.workers, before.workers, "{dispatch}: not one step");
        }
        rig.b[0].assert_sent(0..500, dispatch);
        rig.finish();
    }
}

/// A TX worker that was notified once is not notified again before it has run.
#[test]
fn many_batches_before_the_tx_worker_runs_cost_one_wake_up() {
    for dispatch in POLICIES {
        let mut rig = with_senders(dispatch, 2);
        let mut handles = [rig.handle(0), rig.handle(0)];
        for number in 0..40 {
            handles[number as usize % 2]
                .try_send(&mut rig.burst([number]))
                .unwrap();
        }
        let most = if drains(dispatch) { 0 } else { 1 };
        assert_eq!(rig.tx().wakeups, most, "{dispatch}");
        rig.settle();
        rig.b[0].assert_sent(0..40, dispatch);
        rig.finish();
    }
}

/// While a full device accepts nothing, producers wake the TX worker once for the stall, and not
/// for each batch.
#[test]
fn a_full_device_costs_no_wake_up_for_each_packet() {
    for dispatch in POLICIES {
        let mut rig = with_senders(dispatch, 1);
        let mut handle = rig.handle(0);
        rig.b[0].tx().room = 3;
        for number in 0..300 {
            handle.try_send(&mut rig.burst([number])).unwrap();
            rig.settle();
        }
        let wakeups = rig.tx().wakeups;
        assert!(wakeups <= 4, "{dispatch}: {wakeups}");
        rig.make_room(usize::MAX);
        rig.b[0].assert_sent(0..300, dispatch);
        assert_eq!(rig.tx().missed_wakeups, 0, "{dispatch}");
        rig.finish();
    }
}

/// `if_txmit` of OpenBSD, with the ring and its worker.
#[test]
fn a_producer_drains_when_the_ring_reaches_the_threshold() {
    let rig = with_senders(Dispatch::Threshold(16), 1);
    let mut handle = rig.handle(0);
    for number in 0..15 {
        assert_eq!(handle.try_send(&mut rig.burst([number])), Ok(1));
    }
    let tx = rig.tx();
    assert!(rig.b[0].sent().is_empty());
    assert_eq!((tx.direct, tx.deferred, tx.wakeups), (0, 15, 1));
    assert_eq!(handle.try_send(&mut rig.burst([15])), Ok(1));
    assert_eq!(rig.b[0].sent(), (0..16).collect::<Vec<_>>());
    let end = rig.finish();
    assert_eq!(
        (end.ports[1].tx[0].direct, end.ports[1].tx[0].wakeups),
        (1, 1)
    );
    let drain: Vec<_> = end.ports[1].tx_batches[0].drain.buckets().collect();
    assert_eq!(drain, [(16, 1)], "one drain with all of them");
}

#[test]
fn a_full_ring_pushes_back_on_every_kind_of_send() {
    for dispatch in POLICIES {
        let mut rig = with_senders(dispatch, 1);
        let mut handle = rig.handle(0);
        rig.b[0].tx().room = 0;
        let mut count = fill(&rig, &mut handle, 0);
        assert!(
            count as usize >= SLOTS,
            "{dispatch}: every slot is used: {count}"
        );
        let ledger = rig.closed().ledger;
        assert_eq!(
            (ledger.generated, ledger.held),
            (count.into(), count.into())
        );
        assert!(rig.tx().ring_full > 0, "{dispatch}");
        count = fill_all(&mut rig, &mut handle, count);
        let mut more = rig.burst(count..count + 3);
        let waits = handle.send_blocking(&mut more, Duration::from_millis(1));
        assert_eq!(
            (waits, more.len()),
            (Err(SendError::TimedOut { accepted: 0 }), 3)
        );
        let (woken, waker) = Woken::new();
        let mut cx = Context::from_waker(&waker);
        assert!(handle.poll_ready(&mut cx).is_pending());
        {
            let mut sending = pin!(handle.send(&mut more));
            assert!(poll(sending.as_mut(), &waker).is_pending());
            rig.make_room(usize::MAX);
            assert!(woken.count() > 0, "{dispatch}");
            assert_eq!(poll(sending.as_mut(), &waker), Poll::Ready(Ok(3)));
        }
        count += 3;
        rig.settle();
        assert!(handle.poll_ready(&mut cx).is_ready());
        rig.b[0].assert_sent(0..count, dispatch);

        // A dropped future leaves its packets in the burst.
        rig.b[0].tx().room = 0;
        fill_all(&mut rig, &mut handle, count);
        let mut more = rig.burst(0..2);
        {
            let mut sending = pin!(handle.send(&mut more));
            assert!(poll(sending.as_mut(), &waker).is_pending());
        }
        assert_eq!(more.len(), 2);
        let before = woken.count();
        let mut pending = rig.handle(0);
        let mut others = rig.burst(0..2);
        let mut sending = pin!(pending.send(&mut others));
        assert!(poll(sending.as_mut(), &waker).is_pending());
        rig.session.stop();
        rig.settle();
        // The end of the run wakes waiting senders, and handles outlive it.
        assert!(woken.count() > before, "{dispatch}");
        assert_eq!(poll(sending.as_mut(), &waker), Poll::Ready(Err(Closed)));
        assert_eq!(handle.try_send(&mut more), Err(TrySendError::Closed));
        assert!(handle.poll_ready(&mut cx).is_ready());
        let blocking = handle.send_blocking(&mut more, Duration::from_secs(60));
        assert_eq!((blocking, more.len()), (Err(SendError::Closed), 2));
        // Packets accepted before the end are sent, or counted as dropped.
        rig.stop();
        let end = rig.closed();
        assert!(end.drops.get(DropReason::Shutdown) > 0 && end.ledger.held == 0);
        rig.workers.clear();
        assert_eq!(handle.try_send(&mut more), Err(TrySendError::Closed));
        handle.reclaim();
        drop(rig);
        assert_eq!(handle.try_send(&mut more), Err(TrySendError::Closed));
    }
}

/// An empty burst counts as no submission, and does not claim the ring.
#[test]
fn an_empty_burst_is_not_counted() {
    for dispatch in POLICIES {
        let rig = with_senders(dispatch, 1);
        let mut handle = rig.handle(0);
        for _ in 0..3 {
            assert_eq!(handle.try_send(&mut Burst::new()), Ok(0));
        }
        let tx = rig.tx();
        assert_eq!(
            (tx.direct, tx.deferred, tx.packets),
            (0, 0, 0),
            "{dispatch}"
        );
    }
}

/// The producers have ended when the device continues. The TX worker was notified of the stall, and
/// the device wakes it.
#[test]
fn a_stalled_ring_restarts_without_its_producers() {
    for dispatch in POLICIES {
        let mut rig = with_senders(dispatch, 1);
        rig.b[0].tx().room = 3;
        let mut handle = rig.handle(0);
        assert_eq!(handle.try_send(&mut rig.burst(0..40)), Ok(40));
        drop(handle);
        rig.settle();
        assert_eq!(rig.b[0].sent().len(), 3, "{dispatch}");
        for sent in [10, 11, 40] {
            let more = sent - rig.b[0].sent().len();
            rig.make_room(more);
            assert_eq!(rig.b[0].sent().len(), sent, "{dispatch}");
        }
        assert_eq!(rig.finish().ledger.transmitted, 40, "{dispatch}");
    }
}

/// Only the TX worker restarts a stalled ring.
#[test]
fn no_producer_restarts_a_stalled_ring() {
    for dispatch in POLICIES {
        let mut rig = with_senders(dispatch, 2);
        let mut handles = [rig.handle(0), rig.handle(0)];
        rig.b[0].tx().room = 3;
        handles[0].try_send(&mut rig.burst(0..10)).unwrap();
        rig.settle();
        // The device has room, but raises no interrupt.
        rig.b[0].tx().room = usize::MAX;
        let asked = rig.b[0].tx().asked;
        for (index, next) in [10, 15, 20, 25].into_iter().enumerate() {
            handles[index % 2]
                .try_send(&mut rig.burst(next..next + 5))
                .unwrap();
        }
        assert_eq!(rig.b[0].tx().asked, asked, "{dispatch}");
        assert_eq!(rig.b[0].sent().len(), 3, "{dispatch}");
        rig.make_room(0);
        rig.b[0].assert_sent(0..30, dispatch);
        rig.finish();
    }
}

/// A lane waits for space in the ring as an application does: its worker is woken.
#[test]
fn a_lane_waits_for_space_like_any_producer() {
    for dispatch in POLICIES {
        let mut rig = with_senders(dispatch, 1);
        rig.b[0].tx().room = 0;
        rig.receive(0..1500);
        let polls = rig.a[0].rx().polls;
        assert!(
            rig.b[0].sent().is_empty() && !rig.a[0].rx().items.is_empty(),
            "{dispatch}"
        );
        // The device raises no interrupt for its room: a timed poll of the TX worker finds it.
        rig.b[0].tx().room = usize::MAX;
        rig.pass_until(|rig| rig.a[0].rx().items.is_empty());
        assert!(rig.a[0].rx().polls > polls, "{dispatch}");
        rig.settle();
        rig.b[0].assert_sent(0..1500, dispatch);
        rig.finish();
    }
}

/// Every dispatch mode, one to four producers, a lane to the same queue, and a device that stalls
/// and restarts, in random order of steps. All packets arrive, those of each producer in order, and
/// each batch is recorded as submitted.
#[test]
fn order_and_conservation_under_every_policy() {
    const EACH: u32 = 700;
    for (index, dispatch) in POLICIES.into_iter().enumerate() {
        for producers in 1..=4u32 {
            let seed = 0x5eed_0000 + (index as u64) * 16 + u64::from(producers);
            let name = format!("{dispatch}, {producers} producers, seed {seed:#x}");
            let mut rig = with_senders(dispatch, producers as usize);
            let mut random = Random::new(seed);
            let device = rig.b[0].clone();
            (device.tx().room, device.tx().keeps) = (0, random.below(2) == 1);
            rig.a[0].arrive((0..EACH).map(|n| 9 << 24 | n));
            let mut senders: Vec<_> = (0..producers).map(|_| (rig.handle(0), 0)).collect();
            let mut sizes = [0u64; 32];
            let mut rounds = 0;
            while senders.iter().any(|(_, next)| *next < EACH) {
                rounds += 1;
                assert!(rounds < 100_000, "{name}");
                match random.below(4) {
                    0 => device.make_room(random.below(60) as usize),
                    1 => device.complete(random.below(60) as usize),
                    2 => {
                        let worker = random.below(rig.workers.len() as u64) as usize;
                        assert_ne!(rig.run(worker), Action::Done);
                    }
                    _ => {
                        let producer = random.below(producers.into()) as usize;
                        let (handle, next) = &mut senders[producer];
                        let many = (random.below(31) as u32 + 1).min(EACH - *next);
                        let numbers = *next..*next + many;
                        let flow = (producer as u32) << 24;
                        let mut packets = burst(handle.arena(), numbers.map(|n| flow | n));
                        let before = packets.len();
                        match handle.try_send(&mut packets) {
                            Ok(_) | Err(TrySendError::Full { .. }) => {}
                            Err(TrySendError::Closed) => panic!("{name}"),
                        }
                        sizes[before - packets.len()] += 1;
                        *next += (before - packets.len()) as u32;
                    }
                }
            }
            drop(senders);
            device.complete(usize::MAX);
            device.make_room(usize::MAX);
            rig.pass_until(|rig| rig.a[0].rx().items.is_empty() && rig.closed().ledger.held == 0);
            let sent = device.sent();
            for producer in (0..producers).chain([9]) {
                let own = sent.iter().filter(|&&n| n >> 24 == producer);
                assert!(own.map(|n| n & 0xff_ffff).eq(0..EACH), "{name}: {producer}");
            }
            let end = rig.finish();
            let generated = u64::from(producers * EACH);
            assert_eq!(
                (end.ledger.generated, end.ledger.dropped),
                (generated, 0),
                "{name}"
            );
            let tx = end.ports[1].tx[0];
            assert_eq!(tx.missed_wakeups, 0, "{name}");
            // The lane's batches are recorded, too.
            let enqueue = &end.ports[1].tx_batches[0].enqueue;
            assert_eq!(enqueue.sum(), end.ledger.transmitted, "{name}");
            let found: std::collections::BTreeMap<_, _> = enqueue.buckets().collect();
            for (size, count) in sizes.into_iter().enumerate().skip(1) {
                let recorded = found.get(&(size as u64)).copied().unwrap_or(0);
                assert!(recorded >= count, "{name}: {size}");
            }
        }
    }
}
