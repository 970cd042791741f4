use super::*;
use proptest::prelude::*;

const ROOM: Room = Room {
    cores: 6,
    workers: 2,
    producers: None,
};
const US: u64 = 1_000;

fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

fn adaptive() -> Idler {
    Idler::new(Idle::Adaptive, ROOM)
}

/// Work that comes so long after it ended, again and again, and what was done meanwhile in steps of
/// 100 ns. Returns the time at the end.
fn gaps(idler: &mut Idler, mut now: u64, gap: u64, times: usize) -> u64 {
    for _ in 0..times {
        idler.idle(at(now), &Pressure::UNKNOWN, Relief::None);
        now += gap;
        idler.busy(at(now));
        now += 100;
    }
    now
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
fn what_each_setting_does_where() {
    use Idle::{Adaptive, Halt, Poll};
    let waits = |waiting| Pressure {
        waiting,
        ..Pressure::UNKNOWN
    };
    // Setting, cores, workers, threads that wait for the CPU; then the answer.
    for (setting, cores, workers, waiting, expected) in [
        (Halt, 8, 1, 0, Wait::Halt),
        (Poll, 8, 1, 0, Wait::Spin),
        (Poll, 8, 1, 1, Wait::Yield),
        (Poll, 2, 1, 0, Wait::Yield),
        (Poll, 5, 3, 0, Wait::Yield),
        (Adaptive, 8, 1, 0, Wait::Spin),
        (Adaptive, 4, 2, 0, Wait::Spin),
        (Adaptive, 8, 1, 1, Wait::Halt),
        (Adaptive, 2, 1, 0, Wait::Halt),
        (Adaptive, 5, 3, 0, Wait::Halt),
        (Adaptive, 0, 0, 0, Wait::Halt),
    ] {
        let room = Room {
            cores,
            workers,
            producers: None,
        };
        let mut idler = Idler::new(setting, room);
        let said = idler.idle(at(5), &waits(waiting), Relief::None);
        assert_eq!(said, expected, "{setting} {cores} {workers} {waiting}");
    }
}

/// Each has a core of its own: who is known, and who may be there.
#[test]
fn there_is_room_for_a_worker_where_nobody_else_needs_the_core() {
    for (cores, workers, producers, expected) in [
        // Nobody knows who makes the packets: as many as there are workers, but on few cores all.
        (1, 1, None, false),
        (2, 1, None, false),
        (3, 1, None, true),
        (3, 2, None, false),
        (4, 2, None, true),
        // The only worker's producers are all there are.
        (1, 1, Some(1), false),
        (2, 1, Some(1), true),
        (2, 1, Some(2), false),
        (4, 1, Some(3), true),
        (4, 1, Some(4), false),
        // Who sends to the other worker is not known.
        (2, 2, Some(0), false),
        (3, 2, Some(1), false),
        (4, 2, Some(1), true),
        (4, 2, Some(2), true),
        (4, 2, Some(3), false),
        (8, 2, Some(u32::MAX), false),
        (0, 0, Some(0), false),
    ] {
        let room = Room {
            cores,
            workers,
            producers,
        };
        assert_eq!(room.for_spinning(), expected, "{room:?}");
    }
}

/// Only the adaptive setting. Where there is a CPU for it, only instead of a halt.
#[test]
fn who_is_relieved_does_not_wait_to_be_woken() {
    let one = Room {
        cores: 2,
        workers: 1,
        producers: None,
    };
    let nap = Duration::from_micros(300);
    for (setting, room, relief, expected) in [
        (Idle::Halt, one, Relief::Most, Wait::Halt),
        (Idle::Halt, ROOM, Relief::InTheWay(nap), Wait::Halt),
        (Idle::Adaptive, one, Relief::Most, Wait::Yield),
        (Idle::Adaptive, ROOM, Relief::Most, Wait::Spin),
        (Idle::Adaptive, one, Relief::InTheWay(nap), Wait::Nap(nap)),
        (Idle::Adaptive, ROOM, Relief::InTheWay(nap), Wait::Nap(nap)),
        (Idle::Poll, ROOM, Relief::Most, Wait::Spin),
        (Idle::Poll, ROOM, Relief::InTheWay(nap), Wait::Spin),
    ] {
        let mut idler = Idler::new(setting, room);
        let said = idler.idle(at(5), &Pressure::UNKNOWN, relief);
        assert_eq!(said, expected, "{setting} {room:?} {relief:?}");
    }
    let mut idler = adaptive();
    let bound = SPIN_START.as_nanos() as u64;
    for (ns, relief, expected) in [
        (0, Relief::Most, Wait::Spin),
        (bound, Relief::Most, Wait::Yield),
        (bound + 1, Relief::None, Wait::Halt),
        (bound + 2, Relief::Most, Wait::Yield),
        (bound + 3, Relief::InTheWay(nap), Wait::Nap(nap)),
    ] {
        let said = idler.idle(at(ns), &Pressure::UNKNOWN, relief);
        assert_eq!(said, expected, "{ns}");
    }
}

#[test]
fn a_worker_naps_only_if_that_is_enough_for_all_its_queues() {
    let nap = |us| Relief::InTheWay(Duration::from_micros(us));
    for (one, other, expected) in [
        (Relief::None, Relief::None, Relief::None),
        (Relief::None, Relief::Most, Relief::Most),
        (Relief::Most, nap(100), Relief::Most),
        (Relief::None, nap(100), Relief::Most),
        (nap(300), nap(100), nap(100)),
    ] {
        assert_eq!(one.and(other), expected, "{one:?} {other:?}");
        assert_eq!(other.and(one), expected, "{other:?} {one:?}");
    }
}

#[test]
fn spins_for_its_bound_and_then_halts_until_there_is_work() {
    let mut idler = adaptive();
    let bound = SPIN_START.as_nanos() as u64;
    for (ns, expected) in [
        (0, Wait::Spin),
        (bound - 1, Wait::Spin),
        (bound, Wait::Halt),
        // Woken for nothing.
        (bound + 1, Wait::Halt),
        // And a clock that goes back is no reason to spin again.
        (1, Wait::Halt),
    ] {
        assert_eq!(
            idler.idle(at(ns), &Pressure::UNKNOWN, Relief::None),
            expected,
            "{ns}"
        );
    }
    idler.busy(at(9 * bound));
    assert_eq!(
        idler.idle(at(9 * bound), &Pressure::UNKNOWN, Relief::None),
        Wait::Spin
    );
}

#[test]
fn learns_how_long_to_spin() {
    // Work comes after so many nanoseconds, a halt costs so many; the bound.
    for (gap, halt, expected) in [
        // The bound of the start is as good as a shorter one, while work always comes before it.
        (300, 20_000, 16_384),
        (5_000, 20_000, 16_384),
        // Sixteen halts are worth it.
        (100 * US, 20_000, 131_072),
        // They are not.
        (500 * US, 20_000, 0),
        (100 * US, 3_000, 0),
        // A halt that costs nothing is better than any spin.
        (5_000, 1, 0),
        // Longer than the longest spin.
        (2_000 * US, 20_000, 0),
    ] {
        let mut idler = adaptive();
        for _ in 0..400 {
            let measured = Pressure {
                halt_ns: halt,
                ..Pressure::UNKNOWN
            };
            idler.idle(at(0), &measured, Relief::None);
            idler.busy(at(gap));
        }
        let bound = idler.spin_bound().as_nanos();
        assert_eq!(bound, expected, "gaps of {gap} ns, halts of {halt} ns");
    }
}

#[test]
fn most_gaps_decide_and_the_rare_long_ones_do_not() {
    let mut idler = adaptive();
    let mut now = 0;
    for _ in 0..100 {
        now = gaps(&mut idler, now, 3 * US, 9);
        now = gaps(&mut idler, now, 50_000 * US, 1);
    }
    assert_eq!(idler.spin_bound().as_nanos(), 4_096);
}

#[test]
fn learns_anew_when_the_load_is_another() {
    let mut idler = adaptive();
    let mut now = 0;
    for (gap, expected) in [
        (3 * US, 16_384),
        (60 * US, 65_536),
        (5_000 * US, 0),
        (3 * US, 4_096),
        (60 * US, 65_536),
    ] {
        now = gaps(&mut idler, now, gap, 2_000);
        assert_eq!(idler.spin_bound().as_nanos(), expected, "{gap}");
    }
}

#[test]
fn others_who_want_the_cpu_get_it() {
    let hold = PRESSURE_HOLD.as_nanos() as u64;
    let start = SPIN_START.as_nanos() as u64;
    let pressure = |involuntary, waiting| Pressure {
        involuntary,
        waiting,
        halt_ns: 0,
    };
    // Switches and waiting threads at time 0; the bound at once, and after one and two holds.
    for (involuntary, waiting, bounds) in [
        (0, 0, [start, start, start]),
        (1, 0, [start / 4, start, start]),
        (2, 0, [0, start / 4, start]),
        (900, 0, [0, start / 4, start]),
        (0, 1, [0, start / 4, start]),
        (0, u32::MAX, [0, start / 4, start]),
    ] {
        let mut idler = adaptive();
        idler.idle(at(0), &pressure(involuntary, waiting), Relief::None);
        for (holds, expected) in (0..).zip(bounds) {
            idler.idle(at(holds * hold), &Pressure::UNKNOWN, Relief::None);
            let bound = idler.spin_bound().as_nanos() as u64;
            assert_eq!(bound, expected, "{involuntary} {waiting} {holds}");
        }
    }
    // Who comes again and again is spared for longer.
    let mut idler = adaptive();
    for ms in 0..100 {
        idler.idle(at(ms * 1_000 * US), &pressure(1, 0), Relief::None);
    }
    idler.idle(at(99_000 * US + 6 * hold), &Pressure::UNKNOWN, Relief::None);
    assert_eq!(idler.spin_bound(), Duration::ZERO);
    idler.idle(at(99_000 * US + 8 * hold), &Pressure::UNKNOWN, Relief::None);
    assert_eq!(idler.spin_bound(), SPIN_START);
}

#[test]
fn a_smaller_room_ends_spinning() {
    let mut idler = adaptive();
    assert_eq!(
        idler.idle(at(0), &Pressure::UNKNOWN, Relief::None),
        Wait::Spin
    );
    idler.set_room(Room { workers: 4, ..ROOM });
    assert_eq!(
        idler.idle(at(1), &Pressure::UNKNOWN, Relief::None),
        Wait::Halt
    );
}

#[test]
fn a_clock_that_stands_still_does_not_make_it_spin_for_good() {
    let mut idler = adaptive();
    let spins =
        (0..).take_while(|_| idler.idle(at(7), &Pressure::UNKNOWN, Relief::None) == Wait::Spin);
    assert_eq!(spins.count(), SPINS_MAX as usize);
}

/// Time of one of the steps below, and what happens then.
type Step = (u64, bool, bool, u64, u32, u64);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let number = || prop_oneof![Just(0_u64), Just(u64::MAX), 0..100_000_u64, any::<u64>()];
    let step = (
        number(),
        any::<bool>(),
        any::<bool>(),
        0..3_u64,
        0..2_u32,
        number(),
    );
    prop::collection::vec(step, 1..300)
}

fn rooms() -> impl Strategy<Value = (u32, u32, Option<u32>)> {
    (0..9_u32, 0..4_u32, prop::option::of(0..9_u32))
}

proptest! {
    /// No spin is longer than the bound, none begins again before there was work, and none comes
    /// while others want the CPU; whatever the clock and the numbers are.
    #[test]
    fn spinning_is_bounded(steps in steps(), (cores, workers, producers) in rooms()) {
        let room = Room { cores, workers, producers };
        let mut idler = Idler::new(Idle::Adaptive, room);
        let (mut now, mut since, mut halted) = (0_u64, None, false);
        for (time, jumps, works, involuntary, waiting, halt_ns) in steps {
            now = if jumps { time } else { now.saturating_add(time % 2_000_000) };
            if works {
                idler.busy(at(now));
                (since, halted) = (None, false);
                continue;
            }
            let since = *since.get_or_insert(now);
            let pressure = Pressure { involuntary, waiting, halt_ns };
            let said = idler.idle(at(now), &pressure, Relief::None);
            prop_assert!(idler.spin_bound() <= SPIN_MAX);
            if said == Wait::Spin {
                prop_assert!(now >= since && now - since < SPIN_MAX.as_nanos() as u64);
                prop_assert!(!halted && waiting == 0 && involuntary < 2);
                prop_assert!(room.for_spinning() && producers.unwrap_or(0) < cores);
            }
            halted = said == Wait::Halt;
        }
    }

    /// A constant load: the bound is found, and stays.
    #[test]
    fn a_constant_load_changes_nothing(gap in 1..10_000_000_u64) {
        let mut idler = adaptive();
        let now = gaps(&mut idler, 0, gap, 1_000);
        let bound = idler.spin_bound();
        let mut now = now;
        for _ in 0..1_000 {
            now = gaps(&mut idler, now, gap, 1);
            prop_assert_eq!(idler.spin_bound(), bound);
        }
    }
}
