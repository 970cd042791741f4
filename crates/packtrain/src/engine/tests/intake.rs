//! The packet limit, which is exact over all workers, and the sums of the ledger.

use super::rig::{Random, TestNotifier};
use crate::engine::Ledger;
use crate::engine::intake::Intake;
use crate::stats::{DropCounters, DropReason, RxSnapshot, TxSnapshot};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn intake(packets: Option<u64>, finite: usize) -> Intake {
    Intake::new(packets, finite, Vec::new(), Arc::<TestNotifier>::default())
}

#[test]
fn without_a_limit_every_claim_is_granted_until_a_stop() {
    let intake = intake(None, 0);
    assert_eq!(intake.claim(64), 64);
    intake.refund(64, 64);
    assert!(!intake.is_stopped());
    intake.stop();
    assert_eq!(intake.claim(64), 0);
}

#[test]
fn a_limit_of_zero_stops_intake_at_once() {
    let intake = intake(Some(0), 0);
    assert!(intake.is_stopped());
    assert_eq!(intake.claim(1), 0);
}

#[test]
fn returned_packets_can_be_claimed_again() {
    let intake = intake(Some(100), 0);
    assert_eq!(intake.claim(64), 64);
    assert_eq!(intake.claim(64), 36);
    assert_eq!(intake.claim(64), 0);
    // The first claim is used and no packet is left to claim, but the second claim is still open.
    intake.refund(64, 64);
    assert!(!intake.is_stopped());
    intake.refund(36, 10);
    assert!(!intake.is_stopped());
    assert_eq!(intake.claim(64), 26);
    intake.refund(26, 26);
    assert!(intake.is_stopped());
}

#[test]
fn returning_a_whole_claim_does_not_stop_intake() {
    let intake = intake(Some(5), 0);
    for _ in 0..3 {
        assert_eq!(intake.claim(64), 5);
        intake.refund(5, 0);
        assert!(!intake.is_stopped());
    }
}

#[test]
fn intake_stops_when_all_finite_inputs_have_ended() {
    let two = intake(None, 2);
    two.one_finished();
    assert!(!two.is_stopped());
    two.one_finished();
    assert!(two.is_stopped());
    // The end of an input that was not announced is ignored.
    let endless = intake(None, 0);
    endless.one_finished();
    assert!(!endless.is_stopped());
}

/// Several threads use a part of each claim. Together they use exactly the limit, and intake stops
/// no sooner.
#[test]
fn the_limit_is_exact_over_several_threads() {
    for limit in [1, 63, 64, 65, 10_007] {
        let intake = intake(Some(limit), 0);
        let used = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 1..=4u64 {
                let (intake, used) = (&intake, &used);
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    while !intake.is_stopped() {
                        let claimed = intake.claim(64);
                        let mine = random.below(claimed as u64 + 1);
                        used.fetch_add(mine, Ordering::SeqCst);
                        intake.refund(claimed, mine);
                    }
                    assert_eq!(used.load(Ordering::SeqCst), limit);
                });
            }
        });
    }
}

#[test]
fn the_ledger_closes_when_both_sides_are_equal() {
    let mut ledger = Ledger::default();
    assert!(ledger.closed());
    ledger.add_rx(&RxSnapshot {
        wire_packets: 10,
        packets: 3,
        ..RxSnapshot::default()
    });
    assert!(!ledger.closed());
    ledger.add_tx(&TxSnapshot {
        wire_packets: 9,
        packets: 1,
        expanded: 4,
        absorbed: 2,
        ..TxSnapshot::default()
    });
    let drops = DropCounters::default();
    drops.add(DropReason::NoBuffer, 1);
    drops.add(DropReason::Shutdown, 1);
    ledger.add_drops(&drops.snapshot());
    ledger.generated = 5;
    ledger.delivered = 4;
    assert_eq!((ledger.inflow(), ledger.outflow()), (19, 17));
    ledger.held = 2;
    assert!(ledger.closed());
    let mut twice = ledger;
    twice.merge(&ledger);
    assert!(twice.closed());
    assert_eq!((twice.inflow(), twice.dropped, twice.held), (38, 4, 4));
}
