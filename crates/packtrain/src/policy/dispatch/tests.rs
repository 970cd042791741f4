use super::Decision::{Drain, Enqueue, Notify};
use super::RingState::{Abdicated, Busy, Gap, Idle, Stalled};
use super::*;
use proptest::prelude::*;

#[test]
fn settings_are_written_as_they_are_read() {
    for text in [
        "direct",
        "deferred",
        "abdicate",
        "threshold(1)",
        "threshold(65536)",
        "adaptive",
    ] {
        assert_eq!(text.parse::<Dispatch>().unwrap().to_string(), text);
    }
    assert_eq!(Dispatch::default(), Dispatch::Adaptive);
}

#[test]
fn errors_state_what_is_wrong_and_what_to_write() {
    let write =
        "write direct, deferred, abdicate, threshold(n) with n from 1 to 65536, or adaptive";
    for (text, why) in [
        ("", "'' is not known"),
        ("Direct", "'Direct' is not known"),
        (
            "direct()",
            "'direct()' has arguments, but 'direct' takes none",
        ),
        (
            "threshold",
            "'threshold' lacks the arguments of 'threshold'",
        ),
        (
            "threshold()",
            "'threshold()' has '' for n, which is a number from 1 to 65536",
        ),
        (
            "threshold(0)",
            "'threshold(0)' has '0' for n, which is a number from 1 to 65536",
        ),
        (
            "threshold(+8)",
            "'threshold(+8)' has '+8' for n, which is a number from 1 to 65536",
        ),
        (
            "threshold(65537)",
            "'threshold(65537)' has '65537' for n, which is a number from 1 to 65536",
        ),
        (
            "threshold(8",
            "'threshold(8' does not end with its parenthesis",
        ),
        ("a\nb", "'a\\nb' is not known"),
    ] {
        let error = text.parse::<Dispatch>().unwrap_err().to_string();
        assert_eq!(error, format!("dispatch {why}; {write}"));
    }
    let error = "é".repeat(4000).parse::<Dispatch>().unwrap_err();
    assert!(error.to_string().len() < 300, "{error}");
}

const STATES: [RingState; 5] = [Idle, Abdicated, Stalled, Busy, Gap];

/// One row: the mode, the depth, a decision for each of [`STATES`], and whether the TX worker keeps
/// the consumer role until it sleeps.
type Row = (Dispatch, u32, [Decision; 5], bool);

fn check(rows: &[Row]) {
    for &(mode, depth, expected, keeps) in rows {
        let found = STATES.map(|state| mode.decide(state, depth));
        assert_eq!(found, expected, "{mode} at depth {depth}");
        assert_eq!(mode.keeps_until_sleep(), keeps, "{mode}");
    }
}

/// `ifmp_ring_enqueue` with `abdicate` 0: the producer becomes the consumer in every state but
/// BUSY, in which the present consumer will find the items. A stalled queue is the exception here:
/// only its completions restart it.
#[test]
fn direct_is_mp_ring_with_abdicate_0() {
    let row = [Drain, Drain, Enqueue, Enqueue, Enqueue];
    check(&[
        (Dispatch::Direct, 1, row, false),
        (Dispatch::Direct, 512, row, false),
    ]);
}

/// `ifmp_ring_enqueue` with `abdicate` 1 never drains, and iflib schedules the task of the queue
/// after each call. A stalled queue is the exception here: only its completions restart it.
#[test]
fn abdicate_is_mp_ring_with_abdicate_1() {
    let row = [Notify, Notify, Enqueue, Notify, Notify];
    check(&[
        (Dispatch::Abdicate, 1, row, true),
        (Dispatch::Abdicate, 512, row, true),
    ]);
}

/// `ifq_start`: below `if_txmit` it puts the bundle task on its queue, which has no effect if the
/// task is there already. From `if_txmit` on it cancels the task and starts the driver in this
/// thread. If another thread is in the serializer, that thread does the start, and `ifq_start_task`
/// skips a queue that is `oactive`.
#[test]
fn threshold_is_ifq_start() {
    let below = [Notify, Enqueue, Enqueue, Enqueue, Enqueue];
    let from = [Drain, Drain, Enqueue, Enqueue, Enqueue];
    check(&[
        (Dispatch::Threshold(8), 1, below, true),
        (Dispatch::Threshold(8), 7, below, true),
        (Dispatch::Threshold(8), 8, from, true),
        (Dispatch::Threshold(8), u32::MAX, from, true),
        (Dispatch::Threshold(1), 1, from, true),
    ]);
}

#[test]
fn deferred_notifies_an_idle_ring_only() {
    let row = [Notify, Enqueue, Enqueue, Enqueue, Enqueue];
    check(&[
        (Dispatch::Deferred, 1, row, true),
        (Dispatch::Deferred, 512, row, true),
    ]);
}

#[test]
fn adaptive_drains_an_idle_ring_and_defers_otherwise() {
    let row = [Drain, Enqueue, Enqueue, Enqueue, Enqueue];
    check(&[
        (Dispatch::Adaptive, 1, row, true),
        (Dispatch::Adaptive, 512, row, true),
    ]);
}

fn modes() -> impl Strategy<Value = Dispatch> {
    prop_oneof![
        Just(Dispatch::Direct),
        Just(Dispatch::Deferred),
        Just(Dispatch::Abdicate),
        Just(Dispatch::Adaptive),
        any::<u32>().prop_map(Dispatch::Threshold),
    ]
}

proptest! {
    /// The rules that hold in every row: no packet waits in an idle ring, only one consumer drains,
    /// a gap decides as busy does, and depth matters to modes that count it.
    #[test]
    fn every_row_keeps_the_rules(mode in modes(), depth in any::<u32>(), other in any::<u32>()) {
        prop_assert_ne!(mode.decide(Idle, depth), Enqueue);
        prop_assert_ne!(mode.decide(Busy, depth), Drain);
        prop_assert_eq!(mode.decide(Busy, depth), mode.decide(Gap, depth));
        for state in STATES {
            let same = mode.decide(state, depth) == mode.decide(state, other);
            prop_assert!(same || mode.counts_depth());
        }
    }
}
