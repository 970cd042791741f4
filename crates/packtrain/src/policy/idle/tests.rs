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

/// `adjust_poll_limit`, row by row: the limit in microseconds, the gap, and the limit after it. The
/// gaps at both ends of a range are in it.
#[test]
fn the_limit_follows_haltpoll() {
    for (limit, ended, expected) in [
        // It grows from zero to the start, and doubles up to the maximum.
        (0, 1, 50),
        (0, 50, 50),
        (0, 200, 50),
        (50, 51, 100),
        (50, 200, 100),
        (100, 150, 200),
        (150, 151, 200),
        (200, 200, 200),
        // A gap that polling covered changes nothing.
        (50, 1, 50),
        (50, 49, 50),
        (100, 100, 100),
        // A longer one halves it.
        (0, 201, 0),
        (50, 201, 25),
        (200, 201, 100),
        (200, 1_000_000, 100),
        // The limit is then below the start, and grows to it again.
        (1, 2, 50),
        (12, 13, 50),
    ] {
        let mut idler = adaptive();
        idler.limit = Duration::from_micros(limit);
        let polled = gap(&mut idler, 1000, ended);
        let limit_after = idler.limit();
        assert_eq!(
            (polled, limit_after),
            (limit.min(ended), Duration::from_micros(expected)),
            "{limit} {ended}"
        );
    }
}

#[test]
fn each_setting_polls_as_it_says() {
    let rows = [
        (Idle::Halt, 0, Wait::Halt),
        (Idle::Poll, 150, Wait::Spin),
        (Idle::Adaptive, 100, Wait::Yield),
    ];
    for (setting, expected, first) in rows {
        let mut idler = Idler::new(setting);
        idler.limit = Duration::from_micros(100);
        assert_eq!(idler.clone().idle(us(0)), first, "{setting}");
        let polled = gap(&mut idler, 0, 150);
        assert_eq!(polled, expected, "{setting}");
    }
}

#[test]
fn a_wake_up_without_work_does_not_start_another_polling() {
    let mut idler = adaptive();
    idler.limit = LIMIT_START;
    assert_eq!(idler.idle(us(0)), Wait::Yield);
    assert_eq!(idler.idle(us(50)), Wait::Halt);
    assert_eq!(idler.idle(us(51)), Wait::Halt);
    // A clock that goes back does not start it either.
    assert_eq!(idler.idle(us(1)), Wait::Halt);
    idler.busy(us(120));
    assert_eq!(idler.limit(), Duration::from_micros(100));
    // The next gap starts with its own first step.
    assert_eq!(idler.idle(us(500)), Wait::Yield);
    assert_eq!(idler.idle(us(599)), Wait::Yield);
    assert_eq!(idler.idle(us(600)), Wait::Halt);
}

#[test]
fn steps_with_work_alone_adjust_nothing() {
    let mut idler = adaptive();
    idler.limit = LIMIT_START;
    for at in [0, 100, 10_000] {
        idler.busy(us(at));
    }
    assert_eq!(idler.limit(), LIMIT_START);
}

#[test]
fn sparse_work_ends_the_polling() {
    let mut idler = adaptive();
    assert_eq!(gap(&mut idler, 0, 60), 0);
    assert_eq!(gap(&mut idler, 100, 60), 50);
    assert_eq!(gap(&mut idler, 200, 60), 60, "covered from now on");
    let mut now = 1000;
    for _ in 0..40 {
        gap(&mut idler, now, 5000);
        now += 6000;
    }
    assert_eq!(idler.limit(), Duration::ZERO);
}

proptest! {
    /// Any clock, any order of calls: the limit stays below its maximum, `halt` never polls, `poll`
    /// always does, and `adaptive` polls no longer than the limit and yields each time.
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
                let within = now >= since && now.since(since) < idler.limit();
                match setting {
                    Idle::Halt => prop_assert_eq!(wait, Wait::Halt),
                    Idle::Poll => prop_assert_eq!(wait, Wait::Spin),
                    Idle::Adaptive => {
                        prop_assert!(wait == Wait::Halt || (wait == Wait::Yield && within));
                    }
                }
            }
            prop_assert!(idler.limit() <= LIMIT_MAX);
        }
    }
}
