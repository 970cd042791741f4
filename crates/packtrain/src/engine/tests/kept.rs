//! Packets in asynchronous devices, on both paths: they are completed without needless wake-ups,
//! and a hung device is found.

use super::rig::{POLICIES, Rig, Setup, drains, with_senders};
use crate::limits::{TX_HUNG_AFTER, TX_POLL_AFTER};
use crate::stats::DropReason;
use std::time::Duration;

/// Sends from a handle, or from a lane.
fn send(rig: &mut Rig, by_handle: bool, numbers: std::ops::Range<u32>) {
    if by_handle {
        let mut handle = rig.handle(0);
        handle.try_send(&mut rig.burst(numbers)).unwrap();
    } else {
        rig.receive(numbers);
    }
}

#[test]
fn packets_in_a_hung_device_are_found_within_two_seconds_and_sent_again() {
    for (path, setup) in Setup::new([1, 1]).on_every_path() {
        let mut rig = setup.settled();
        let device = rig.b[0].clone();
        (device.tx().keeps, device.tx().forgets, device.tx().hung) = (true, true, true);
        send(&mut rig, setup.senders > 0, 0..3);
        let took = rig.pass_until(|_| device.tx().resets > 0);
        assert!(
            took >= TX_HUNG_AFTER && took <= 2 * TX_HUNG_AFTER,
            "{path}: {took:?}"
        );
        let tx = rig.tx();
        assert_eq!((tx.hangs, tx.resets, tx.taken_back), (1, 1, 3), "{path}");
        device.complete(usize::MAX);
        rig.pass_until(|_| device.tx().kept.is_empty());
        assert_eq!(device.sent(), [0, 1, 2], "{path}");
        let end = rig.finish();
        assert_eq!(
            (end.ledger.transmitted, end.ports[1].tx[0].missed_wakeups),
            (3, 0),
            "{path}"
        );
    }
}

/// No packets wait for the completions, so a timed poll finds them: a TX worker sleeps for a second
/// at most.
#[test]
fn completions_are_collected_without_a_wake_up() {
    for (path, setup) in Setup::new([1, 1]).on_every_path() {
        let mut rig = setup.settled();
        let device = rig.b[0].clone();
        device.tx().keeps = true;
        send(&mut rig, setup.senders > 0, 0..3);
        rig.settle();
        let before = rig.tx().wakeups;
        device.complete(3);
        let took = rig.pass_until(|_| device.tx().kept.is_empty());
        assert!(
            took <= Duration::from_secs(1) + TX_POLL_AFTER,
            "{path}: {took:?}"
        );
        assert_eq!(rig.tx().wakeups, before, "{path}");
        assert_eq!(rig.tx().missed_wakeups, 0, "{path}");
        rig.finish();
    }
}

/// A producer that drains collects completed packets with its next packet, and with `reclaim`.
#[test]
fn an_application_that_sends_wakes_no_worker_for_completions() {
    for dispatch in POLICIES {
        let mut rig = with_senders(dispatch, 1);
        let device = rig.b[0].clone();
        (device.tx().keeps, device.tx().complete) = (true, usize::MAX);
        let mut handle = rig.handle(0);
        let before = rig.closed().workers;
        for number in 0..2000 {
            handle.try_send(&mut rig.burst([number])).unwrap();
            if !drains(dispatch) {
                rig.settle();
            }
        }
        let kept = device.tx().kept.len();
        assert!(kept <= 64, "{dispatch}: {kept}");
        if drains(dispatch) {
            handle.reclaim();
            assert!(device.tx().kept.is_empty(), "{dispatch}");
            let tx = rig.tx();
            assert_eq!(
                (tx.direct, tx.deferred, tx.wakeups),
                (2000, 0, 0),
                "{dispatch}"
            );
            assert_eq!(rig.closed().workers, before, "{dispatch}: not one step");
        }
        device.assert_sent(0..2000, dispatch);
        assert_eq!(rig.finish().ledger.generated, 2000, "{dispatch}");
    }
}

/// `reclaim` does not restart a stalled ring, and notifies no worker of it.
#[test]
fn reclaim_restarts_no_stalled_ring() {
    for dispatch in POLICIES {
        let mut rig = with_senders(dispatch, 1);
        let device = rig.b[0].clone();
        (device.tx().keeps, device.tx().room) = (true, 10);
        let mut handle = rig.handle(0);
        handle.try_send(&mut rig.burst(0..30)).unwrap();
        rig.settle();
        assert_eq!(device.sent().len(), 10, "{dispatch}: stalled");
        let before = rig.tx().wakeups;
        (0..10).for_each(|_| handle.reclaim());
        assert_eq!(rig.tx().wakeups, before, "{dispatch}: nothing has moved");
        // The device has room, but raises no interrupt.
        device.tx().room = usize::MAX;
        (0..3).for_each(|_| handle.reclaim());
        assert_eq!(device.sent().len(), 10, "{dispatch}");
        rig.make_room(0);
        device.complete(30);
        assert_eq!(rig.finish().ledger.transmitted, 30, "{dispatch}");
    }
}

/// A device that fails under a producer: the TX worker ends the run.
#[test]
fn a_failure_under_a_handle_is_reported_by_the_tx_worker() {
    for dispatch in POLICIES {
        let mut rig = with_senders(dispatch, 1);
        rig.b[0].tx().removed = true;
        let mut handle = rig.handle(0);
        assert_eq!(handle.try_send(&mut rig.burst(0..10)), Ok(10), "{dispatch}");
        rig.try_settle();
        assert!(rig.is_done(), "{dispatch}");
        assert_eq!(rig.removed_port(), Some(1), "{dispatch}");
        let end = rig.finish();
        assert_eq!(end.drops.get(DropReason::DeviceReset), 10, "{dispatch}");
    }
}
