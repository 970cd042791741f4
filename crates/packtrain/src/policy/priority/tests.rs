use super::*;
use proptest::prelude::*;

#[test]
fn the_setting_is_read_as_it_is_written() {
    for (text, setting) in [
        ("none", Priority::None),
        ("auto", Priority::Auto),
        ("nice(0)", Priority::Nice(0)),
        ("nice(19)", Priority::Nice(19)),
        ("nice(-20)", Priority::Nice(-20)),
    ] {
        assert_eq!(text.parse(), Ok(setting));
        assert_eq!(setting.to_string(), text);
    }
    for (text, why) in [
        ("", "is not known"),
        ("high", "is not known"),
        ("nice", "lacks the arguments of 'nice'"),
        ("auto(1)", "takes none"),
        ("nice()", "has '' for n, which is a number from -20 to 19"),
        ("nice(20)", "has '20' for n"),
        ("nice(-21)", "has '-21' for n"),
        ("nice(+1)", "has '+1' for n"),
        ("nice(--1)", "has '--1' for n"),
        ("nice(-)", "has '-' for n"),
        ("nice(1,2)", "has '1,2' for n"),
        (
            "nice(-9999999999999999999)",
            "has '-9999999999999999999' for n",
        ),
        ("nice(1", "does not end with its parenthesis"),
    ] {
        let error = text.parse::<Priority>().unwrap_err().to_string();
        assert!(error.contains(why) && error.contains(TAKES), "{error}");
    }
}

#[test]
fn auto_goes_ahead_of_the_starting_thread_unless_it_polls() {
    let (halt, poll, adaptive) = (Idle::Halt, Idle::Poll, Idle::Adaptive);
    for (priority, idle, now, expected) in [
        (Priority::Auto, adaptive, 0, Some(-5)),
        (Priority::Auto, halt, 0, Some(-5)),
        (Priority::Auto, poll, 0, None),
        // A program started with `nice -n 10` stays behind the others.
        (Priority::Auto, adaptive, 10, Some(5)),
        (Priority::Auto, adaptive, -17, Some(-20)),
        (Priority::Auto, adaptive, -20, None),
        (Priority::None, adaptive, 7, None),
        (Priority::Nice(3), poll, 0, Some(3)),
        (Priority::Nice(3), adaptive, 3, None),
        (Priority::Nice(-100), adaptive, 3, Some(-20)),
    ] {
        assert_eq!(
            priority.nice(idle, Serves::Devices, now),
            expected,
            "{priority} {idle} {now}"
        );
    }
}

/// A number is obeyed in any case.
#[test]
fn auto_leaves_the_worker_of_senders_where_they_are() {
    for idle in [Idle::Halt, Idle::Poll, Idle::Adaptive] {
        for now in [-20, 0, 10] {
            let nice = |priority: Priority| priority.nice(idle, Serves::Senders, now);
            assert_eq!(nice(Priority::Auto), None, "{idle} {now}");
            assert_eq!(nice(Priority::None), None, "{idle} {now}");
            assert_eq!(nice(Priority::Nice(-3)), Some(-3), "{idle} {now}");
        }
    }
    assert!(Priority::Auto.batch(Serves::Senders));
    assert!(!Priority::Auto.batch(Serves::Devices));
    assert!(!Priority::None.batch(Serves::Senders));
    assert!(!Priority::Nice(0).batch(Serves::Senders));
}

proptest! {
    /// The result is a nice value of the kernel for every input, and `auto` never raises it.
    #[test]
    fn the_result_is_a_nice_value(asked in any::<i8>(), now in any::<i8>()) {
        for idle in [Idle::Halt, Idle::Poll, Idle::Adaptive] {
            for priority in [Priority::None, Priority::Auto, Priority::Nice(asked)] {
                for serves in [Serves::Devices, Serves::Senders] {
                    let wanted = priority.nice(idle, serves, now);
                    prop_assert!(wanted.is_none_or(|nice| NICE.contains(&nice)));
                    if priority == Priority::Auto && NICE.contains(&now) {
                        prop_assert!(wanted.is_none_or(|nice| nice < now));
                    }
                }
            }
        }
    }
}
