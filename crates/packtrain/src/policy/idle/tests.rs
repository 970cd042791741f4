use super::*;
use proptest::prelude::*;

const fn us(us: u64) -> Instant {
    Instant::from_nanos(us * 1000)
}

fn adaptive() -> Idler {
    Idler::new(Idle::Adaptive)
}

/// Runs one gap from `start`, polled every microsecond. Work ends it after `gap` microseconds.
/// Returns how many microseconds the worker polled.
fn gap(idler: &mut Idler, start: u64, gap: u64) -> u64 {
    let mut polled = 0;
    for at in start..start + gap {
        match idler.idle(us(at)) {
            Wait::Spin | Wait::Yield => polled += 1,
            Wait::Halt => break,
        }
    }
    idler.busy(us(start + gap));
    polled
}

#[test]
fn settings_are_written_as_they_are_read_or_refused() {
    for text in ["halt", "poll", "adaptive"] {
        assert_eq!(text.parse::<Idle>().unwrap().to_string(), text);
    }
    assert_eq!(Idle::default(), Idle::Adaptive);
    for (text, why) in [
        ("sleep", "'sleep' is not known"),
        ("poll(5)", "'poll(5)' has arguments, but 'poll' takes none"),
    ] {
        let error = text.parse::<Idle>().unwrap_err().to_string();
        assert_eq!(error, format!("idle {why}; write halt, poll or adaptive"));
    }
}

#[test]
fn each_setting_polls_as_it_says() {
    let rows = [
        (Idle::Halt, 0, Wait::Halt),
        (Idle::Poll, 1000, Wait::Spin),
        (Idle::Adaptive, 200, Wait::Yield),
    ];
    for (setting, expected, first) in rows {
        let mut idler = Idler::new(setting);
        gap(&mut idler, 0, 10);
        assert_eq!(idler.clone().idle(us(20)), first, "{setting}");
        let polled = gap(&mut idler, 20, 1000);
        assert_eq!(polled, expected, "{setting}");
    }
}

/// In gaps that are shorter than a wake-up costs, the worker always polls; in longer ones, until
/// the credit is used up.
#[test]
fn polling_goes_on_while_it_pays() {
    for (length, ends) in [
        (1, false),
        (19, false),
        (20, false),
        (22, true),
        (150, true),
    ] {
        let (mut idler, mut now) = (adaptive(), 0);
        let polled = (0..10_000).map(|_| {
            now += 10 * length;
            gap(&mut idler, now, length)
        });
        let polled: Vec<_> = polled.collect();
        // It has not seen yet how soon packets come.
        assert_eq!(polled[..2], [0, length]);
        assert_eq!(polled[2..].contains(&0), ends, "{length}");
    }
}

#[test]
fn the_worker_polls_again_when_the_credit_is_full() {
    let (mut idler, mut now, mut polled) = (adaptive(), 0, Vec::new());
    for _ in 0..20_000 {
        polled.push(gap(&mut idler, now, 200));
        now += 400;
    }
    // A gap of 200 us costs 180 or earns 0.8.
    let polls = polled
        .split(|&polled| polled == 0)
        .filter(|polls| !polls.is_empty());
    let polls: Vec<_> = polls.map(<[u64]>::len).collect();
    assert!(
        polls.len() == 2 && polls.iter().all(|count| (54..=58).contains(count)),
        "{polls:?}"
    );
}

#[test]
fn sparse_work_is_not_polled_for() {
    let mut idler = adaptive();
    assert_eq!(gap(&mut idler, 0, 201), 0);
    assert_eq!(gap(&mut idler, 1000, 100), 0);
    assert_eq!(gap(&mut idler, 2000, 5000), 200);
    assert_eq!(gap(&mut idler, 9000, 5000), 0);
}

#[test]
fn a_wake_up_without_work_does_not_start_another_polling() {
    let mut idler = adaptive();
    gap(&mut idler, 0, 100);
    assert_eq!(idler.idle(us(200)), Wait::Yield);
    assert_eq!(idler.idle(us(400)), Wait::Halt);
    assert_eq!(idler.idle(us(401)), Wait::Halt);
    // A clock that goes back does not start it either.
    assert_eq!(idler.idle(us(201)), Wait::Halt);
    idler.busy(us(400));
    // The next gap starts with its own first step.
    assert_eq!(idler.idle(us(500)), Wait::Yield);
    assert_eq!(idler.idle(us(699)), Wait::Yield);
    assert_eq!(idler.idle(us(700)), Wait::Halt);
}

#[test]
fn of_the_time_of_other_threads_a_poll_costs_little() {
    let mut idler = adaptive();
    gap(&mut idler, 0, 10);
    for at in (100..300).step_by(10) {
        assert_eq!(idler.idle(us(at)), Wait::Yield);
    }
    assert_eq!(idler.credit, CREDIT_MAX - 19 * POLL_MAX);
    idler.idle(us(291));
    assert_eq!(
        idler.credit,
        CREDIT_MAX - 19 * POLL_MAX - Duration::from_micros(1)
    );
}

#[test]
fn steps_with_work_alone_adjust_nothing() {
    let mut idler = adaptive();
    gap(&mut idler, 0, 100);
    let credit = idler.credit;
    for at in [200, 300, 10_000] {
        idler.busy(us(at));
    }
    assert_eq!(idler.credit, credit);
}

proptest! {
    /// However long the gaps: polling costs no more than the wake-ups that it saved, but for what
    /// the worker may try in all that time.
    #[test]
    fn polling_costs_no_more_than_it_saves(gaps in prop::collection::vec(1..400_u64, 1..300)) {
        let (mut idler, mut now, mut cost, mut saved, mut idle) = (adaptive(), 0, 0, 0, 0);
        for length in gaps {
            let polled = gap(&mut idler, now, length);
            cost += polled;
            saved += if polled == length { WAKEUP.as_micros() as u64 } else { 0 };
            idle += length;
            now += 2 * length;
        }
        let free = CREDIT_MAX.as_micros() as u64 + idle / u64::from(SHARE);
        prop_assert!(cost <= saved + free + 1, "{cost} {saved} {free}");
    }

    /// Any clock, any order of calls: `halt` never polls, `poll` always does, and `adaptive` polls
    /// no longer than its limit and yields each time.
    #[test]
    fn no_clock_breaks_a_bound(
        setting in prop_oneof![Just(Idle::Halt), Just(Idle::Poll), Just(Idle::Adaptive)],
        calls in prop::collection::vec(
            (any::<bool>(), prop_oneof![0..500_000_u64, any::<u64>()]),
            0..200,
        ),
    ) {
        let mut idler = Idler::new(setting);
        let mut first = None;
        for (work, now) in calls {
            let now = Instant::from_nanos(now);
            if work {
                idler.busy(now);
                first = None;
            } else {
                let since = *first.get_or_insert(now);
                let wait = idler.idle(now);
                let within = now >= since && now.since(since) < LIMIT_MAX;
                match setting {
                    Idle::Halt => prop_assert_eq!(wait, Wait::Halt),
                    Idle::Poll => prop_assert_eq!(wait, Wait::Spin),
                    Idle::Adaptive => {
                        prop_assert!(wait == Wait::Halt || (wait == Wait::Yield && within));
                    }
                }
            }
            prop_assert!(idler.credit <= CREDIT_MAX);
        }
    }
}
