use super::*;
use proptest::prelude::*;

mod crowds;
mod trials;
mod worlds;

const RING: u32 = 512;

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
fn settings_are_refused_with_what_why_and_what_to_do() {
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

/// Seen, depth, batch, and what follows from them, with the budget.
type Row = (Seen, u32, u32, What, u32);

/// What to do with a batch.
#[derive(Clone, Copy)]
enum What {
    Drain,
    Wake,
    Leave,
}

fn check(rule: Rule, rows: &[Row]) {
    for &(seen, depth, batch, what, budget) in rows {
        let sight = Sight { seen, depth, batch };
        let expected = Action {
            drain: matches!(what, What::Drain),
            wake: matches!(what, What::Wake),
            budget,
        };
        assert_eq!(rule.ask(sight), expected, "{rule:?} {sight:?}");
        assert_eq!(Rule::from_bits(rule.to_bits()), rule);
    }
}

#[test]
fn direct_drains_what_is_idle_and_wakes_nobody() {
    use What::Drain;
    check(
        Dispatch::Direct.rule(RING),
        &[
            (Seen::Idle, 1, 1, Drain, 256),
            (Seen::Idle, 32, 32, Drain, 256),
            // A batch of one's own is always sent.
            (Seen::Idle, 500, 300, Drain, 300),
            // Who drains may be done by the time the batch is in the ring.
            (Seen::Draining, 9, 1, Drain, 256),
            // Left by one whose budget was used up, with or without a word to the worker.
            (Seen::Asked, 300, 8, Drain, 256),
            // The worker was told of it, and restarts it. It may have by then: while it is stalled
            // only a rule that restarts takes the ring.
            (Seen::Stalled, 1, 1, Drain, 256),
            (Seen::Stalled, 512, 300, Drain, 300),
        ],
    );
}

#[test]
fn deferred_wakes_on_the_edge_from_empty() {
    use What::{Leave, Wake};
    check(
        Dispatch::Deferred.rule(RING),
        &[
            (Seen::Idle, 1, 1, Wake, 256),
            (Seen::Asked, 2, 1, Leave, 256),
            (Seen::Draining, 3, 1, Leave, 256),
            (Seen::Stalled, 4, 1, Leave, 256),
        ],
    );
}

#[test]
fn abdicate_asks_whenever_nobody_was_asked() {
    use What::{Leave, Wake};
    check(
        Dispatch::Abdicate.rule(RING),
        &[
            (Seen::Idle, 1, 1, Wake, 256),
            (Seen::Asked, 2, 1, Leave, 256),
            (Seen::Draining, 3, 1, Wake, 256),
            (Seen::Stalled, 4, 1, Wake, 256),
        ],
    );
}

/// mechanisms-bsd.md 6.10, cases 1 and 2: `ifq_start()`.
#[test]
fn threshold_is_if_txmit() {
    use What::{Drain, Leave, Wake};
    let sixteen = Dispatch::Threshold(16);
    check(
        sixteen.rule(RING),
        &[
            // 15 packets: none sent, one wakeup pending.
            (Seen::Idle, 1, 1, Wake, 256),
            (Seen::Asked, 2, 1, Leave, 256),
            (Seen::Asked, 15, 1, Leave, 256),
            // The 16th takes the ring from the worker that was asked.
            (Seen::Asked, 16, 1, Drain, 256),
            (Seen::Idle, 16, 16, Drain, 256),
            (Seen::Draining, 15, 1, Leave, 256),
            (Seen::Draining, 17, 1, Drain, 256),
            (Seen::Stalled, 3, 1, Leave, 256),
            (Seen::Stalled, 16, 1, Drain, 256),
        ],
    );
    // A ring of 8 is full at 8.
    check(
        sixteen.rule(8),
        &[
            (Seen::Asked, 7, 1, Leave, 256),
            (Seen::Asked, 8, 1, Drain, 256),
        ],
    );
    // S4: with 1, every packet starts the driver and none wakes anybody.
    check(
        Dispatch::Threshold(1).rule(RING),
        &[
            (Seen::Idle, 1, 1, Drain, 256),
            (Seen::Asked, 1, 1, Drain, 256),
        ],
    );
}

#[test]
fn fixed_rules_stay_whatever_is_observed() {
    for setting in [
        Dispatch::Direct,
        Dispatch::Deferred,
        Dispatch::Abdicate,
        Dispatch::Threshold(7),
    ] {
        let mut dispatcher = Dispatcher::new(setting, RING);
        for ms in 0..200 {
            let now = Instant::from_nanos(ms * 1_000_000);
            let rule = dispatcher.observe(now, &trials::saturated());
            assert_eq!(rule, setting.rule(RING));
        }
        assert_eq!(dispatcher.changes(), 0);
    }
}

fn any_seen() -> impl Strategy<Value = Seen> {
    prop_oneof![
        Just(Seen::Idle),
        Just(Seen::Draining),
        Just(Seen::Asked),
        Just(Seen::Stalled),
    ]
}

proptest! {
    /// Whatever word is loaded: a bounded drain, no wakeup for nothing, and a ring that holds
    /// packets and has nobody is never left with nobody.
    #[test]
    fn any_word_is_a_sound_rule(
        bits: u64, seen in any_seen(), depth: u32, batch: u32,
    ) {
        let rule = Rule::from_bits(bits);
        prop_assert_eq!(Rule::from_bits(rule.to_bits()), rule);
        let action = rule.ask(Sight { seen, depth, batch });
        prop_assert!(action.budget >= 1 && action.budget >= batch);
        prop_assert!(action.budget <= batch.max(u32::from(u16::MAX)));
        prop_assert!(!action.wake || depth > 0);
        prop_assert!(!action.wake || !action.drain);
        if seen == Seen::Idle && depth > 0 {
            prop_assert!(action.wake || action.drain);
        }
    }

    /// A producer that drains at a depth drains at any larger one.
    #[test]
    fn draining_is_monotone_in_depth(
        bits: u64, seen in any_seen(), depth: u32, more: u32, batch: u32,
    ) {
        let rule = Rule::from_bits(bits);
        let drains = |depth| rule.ask(Sight { seen, depth, batch }).drain;
        prop_assert!(!drains(depth) || drains(depth.saturating_add(more)) || depth == 0);
    }
}
