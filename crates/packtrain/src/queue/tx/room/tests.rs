use super::*;
use crate::limits::TX_REST_MAX;

const fn us(us: u64) -> Instant {
    Instant::from_nanos(us * 1000)
}

const fn completed(packets: u64) -> Totals {
    Totals {
        packets,
        wire_packets: packets,
    }
}

/// A device with 256 slots that needs 2 µs for a packet, as of 200 µs.
fn known() -> Room {
    let mut room = Room::default();
    for packets in [0, 50, 100] {
        let now = us(2 * packets);
        room.observe(now, completed(packets), 200);
        room.rest_until_room(now, 256, 64);
    }
    room
}

#[test]
fn a_rest_is_as_long_as_the_device_needs_for_the_wanted_packets() {
    let mut room = Room::default();
    room.observe(us(0), completed(0), 256);
    room.rest_until_room(us(0), 256, 64);
    assert_eq!(room.rests_until(us(0)), None, "the pace is unknown");
    room.observe(us(100), completed(50), 206);
    room.rest_until_room(us(100), 256, 64);
    assert_eq!(room.rests_until(us(100)), Some(us(228)));
    assert_eq!(room.rests_until(us(228)), None);
    // A slow device gets the longest rest, and for one packet there is none.
    room.observe(us(228), completed(114), 192);
    room.rest_until_room(us(228), 256, 10_000);
    assert_eq!(room.rests_until(us(228)), Some(us(228).after(TX_REST_MAX)));
    room.observe(us(400), completed(200), 192);
    room.rest_until_room(us(400), 256, 1);
    assert_eq!(room.rests_until(us(400)), None);
}

#[test]
fn a_rest_without_a_completion_is_the_last_one() {
    let mut room = known();
    let until = room.rests_until(us(200)).unwrap();
    room.observe(until, completed(100), 256);
    room.rest_until_room(until, 256, 64);
    assert_eq!(room.rests_until(until), None);
    // After a completion there is one again.
    room.observe(us(5000), completed(101), 255);
    room.rest_until_room(us(5000), 256, 64);
    assert!(room.rests_until(us(5000)).is_some());
}

#[test]
fn a_poll_within_a_rest_changes_it_only_with_a_completion() {
    let mut room = known();
    let until = room.rests_until(us(200));
    room.observe(us(230), completed(100), 256);
    room.rest_until_room(us(230), 256, 64);
    assert_eq!(room.rests_until(us(230)), until);
    room.observe(us(240), completed(120), 236);
    room.rest_until_room(us(240), 256, 64);
    assert_eq!(room.rests_until(us(240)), Some(us(240 + 128)));
}

/// The device was idle for a part of the time, so the sample is an upper bound.
#[test]
fn a_device_that_ran_dry_is_not_slow() {
    for left in [0, 10] {
        let mut room = known();
        room.observe(us(60_000), completed(100 + 256), left);
        room.rest_until_room(us(60_000), 256, 64);
        room.observe(us(60_200), completed(100 + 256 + 100), 156);
        room.rest_until_room(us(60_200), 256, 64);
        let until = room.rests_until(us(60_200));
        assert_eq!(until, Some(us(60_200 + 128)), "{left}");
    }
}

/// One pause hardly changes the pace; a slower device does so within a few polls.
#[test]
fn the_pace_changes_slowly() {
    let mut room = known();
    room.observe(us(10_200), completed(101), 255);
    room.rest_until_room(us(10_200), 256, 64);
    let rest = |room: &Room, now: Instant| room.rests_until(now).unwrap().since(now);
    assert_eq!(rest(&room, us(10_200)), Duration::from_nanos(64 * 2501));
    let mut now = 10_200;
    for poll in 1..=20 {
        now += 64 * 10;
        room.observe(us(now), completed(101 + 64 * poll), 192);
        room.rest_until_room(us(now), 256, 64);
    }
    let rest = rest(&room, us(now));
    let expected = Duration::from_micros(64 * 10);
    assert!(
        rest.abs_diff(expected) < Duration::from_micros(32),
        "{rest:?}"
    );
}

#[test]
fn a_clock_that_goes_back_prolongs_no_rest() {
    let mut room = known();
    room.observe(us(90_000_000), completed(110), 246);
    room.rest_until_room(us(90_000_000), 256, 64);
    let until = room.rests_until(us(300)).unwrap();
    assert!(until <= us(300).after(TX_REST_MAX));
    room.observe(us(300), completed(120), 236);
    room.rest_until_room(us(300), 256, 64);
    assert!(room.rests_until(us(300)).unwrap() <= us(300).after(TX_REST_MAX));
}

#[test]
fn an_interval_is_worth_a_switch_and_bounded() {
    assert_eq!(Room::default().interval(), Duration::ZERO);
    assert_eq!(known().interval(), Duration::from_micros(128));
    let mut room = Room::default();
    room.observe(us(0), completed(0), 256);
    room.observe(us(50_000), completed(10), 246);
    assert_eq!(room.interval(), TX_REST_MAX);
}
