use super::*;
use crate::limits::TX_REST_MAX;

const fn us(us: u64) -> Instant {
    Instant::from_nanos(us * 1000)
}

const fn done(packets: u64) -> Done {
    Done {
        packets,
        wire_packets: packets,
    }
}

/// A device with 256 slots that needs 2 µs for a packet, as of 200 µs.
fn known() -> Room {
    let mut room = Room::default();
    for packets in [0, 50, 100] {
        let now = us(2 * packets);
        room.look(now, done(packets), 200);
        room.fill(now, 256, 64);
    }
    room
}

#[test]
fn it_rests_as_long_as_the_device_needs_for_what_is_wanted() {
    let mut room = Room::default();
    room.look(us(0), done(0), 256);
    room.fill(us(0), 256, 64);
    assert_eq!(room.rests_until(us(0)), None, "nothing is known");
    room.look(us(100), done(50), 206);
    room.fill(us(100), 256, 64);
    assert_eq!(room.rests_until(us(100)), Some(us(228)));
    assert_eq!(room.rests_until(us(228)), None);
    // Of a slow one no longer than that; and for one packet it is asked.
    room.look(us(228), done(114), 192);
    room.fill(us(228), 256, 10_000);
    assert_eq!(room.rests_until(us(228)), Some(us(228).after(TX_REST_MAX)));
    room.look(us(400), done(200), 192);
    room.fill(us(400), 256, 1);
    assert_eq!(room.rests_until(us(400)), None);
}

#[test]
fn a_rest_without_a_completion_is_the_last_one() {
    let mut room = known();
    let until = room.rests_until(us(200)).unwrap();
    room.look(until, done(100), 256);
    room.fill(until, 256, 64);
    assert_eq!(room.rests_until(until), None);
    // Until there is one.
    room.look(us(5000), done(101), 255);
    room.fill(us(5000), 256, 64);
    assert!(room.rests_until(us(5000)).is_some());
}

#[test]
fn who_looks_within_a_rest_changes_it_only_with_what_it_finds() {
    let mut room = known();
    let until = room.rests_until(us(200));
    room.look(us(230), done(100), 256);
    room.fill(us(230), 256, 64);
    assert_eq!(room.rests_until(us(230)), until);
    room.look(us(240), done(120), 236);
    room.fill(us(240), 256, 64);
    assert_eq!(room.rests_until(us(240)), Some(us(240 + 128)));
}

/// It had nothing to do for a while, so the time says how long it needs at most.
#[test]
fn a_device_that_ran_dry_is_not_taken_for_slow() {
    for left in [0, 10] {
        let mut room = known();
        room.look(us(60_000), done(100 + 256), left);
        room.fill(us(60_000), 256, 64);
        room.look(us(60_200), done(100 + 256 + 100), 156);
        room.fill(us(60_200), 256, 64);
        let until = room.rests_until(us(60_200));
        assert_eq!(until, Some(us(60_200 + 128)), "{left}");
    }
}

/// One that paused once is not slow from then on, and one that is slower is soon known to be.
#[test]
fn what_was_learned_changes_slowly() {
    let mut room = known();
    room.look(us(10_200), done(101), 255);
    room.fill(us(10_200), 256, 64);
    let rest = |room: &Room, now: Instant| room.rests_until(now).unwrap().since(now);
    assert_eq!(rest(&room, us(10_200)), Duration::from_nanos(64 * 2501));
    let mut now = 10_200;
    for look in 1..=20 {
        now += 64 * 10;
        room.look(us(now), done(101 + 64 * look), 192);
        room.fill(us(now), 256, 64);
    }
    let rest = rest(&room, us(now));
    let expected = Duration::from_micros(64 * 10);
    assert!(
        rest.abs_diff(expected) < Duration::from_micros(32),
        "{rest:?}"
    );
}

#[test]
fn a_clock_that_goes_back_keeps_nobody_asleep() {
    let mut room = known();
    room.look(us(90_000_000), done(110), 246);
    room.fill(us(90_000_000), 256, 64);
    let until = room.rests_until(us(300)).unwrap();
    assert!(until <= us(300).after(TX_REST_MAX));
    room.look(us(300), done(120), 236);
    room.fill(us(300), 256, 64);
    assert!(room.rests_until(us(300)).unwrap() <= us(300).after(TX_REST_MAX));
}

#[test]
fn an_interval_is_worth_a_switch_and_bounded() {
    assert_eq!(Room::default().interval(), Duration::ZERO);
    assert_eq!(known().interval(), Duration::from_micros(128));
    let mut room = Room::default();
    room.look(us(0), done(0), 256);
    room.look(us(50_000), done(10), 246);
    assert_eq!(room.interval(), TX_REST_MAX);
}
