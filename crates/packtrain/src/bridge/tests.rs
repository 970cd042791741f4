//! The bridge by itself, with the time of the test.

use super::*;
use std::collections::HashSet;
use std::thread;

const AGE: Duration = Duration::from_secs(300);
const ALL: Mac = 0xffff_ffff_ffff;
const START: u64 = 1_000_000_000;

fn at(seconds: u64) -> u64 {
    START + seconds * 1_000_000_000
}

fn bridge(most: usize) -> Bridge {
    Bridge::new(Addresses::new(most, AGE))
}

fn others(port: usize) -> PortSet {
    PortSet::all_but(port)
}

/// An address of one host.
fn host(number: u64) -> Mac {
    0x0200_0000_0000 | number
}

#[test]
fn a_frame_for_a_known_address_goes_to_its_port_only() {
    let bridge = bridge(8);
    let (a, b) = (host(1), host(2));
    assert_eq!(bridge.egress(0, [b, a], at(0)), others(0), "not known yet");
    assert_eq!(bridge.egress(1, [a, b], at(0)), PortSet::one(0));
    assert_eq!(bridge.egress(0, [b, a], at(0)), PortSet::one(1));
    assert_eq!(bridge.egress(2, [b, host(3)], at(0)), PortSet::one(1));
    // Both are behind one port: the frame has arrived already.
    assert_eq!(bridge.egress(1, [b, host(4)], at(0)), PortSet::NONE);
    assert_eq!(bridge.addresses.len(), 4);
}

#[test]
fn frames_for_all_and_for_groups_go_to_all_others() {
    let bridge = bridge(8);
    for group in [
        ALL,
        0x0100_5e00_0001,
        0x3333_0000_0001,
        0x0180_c200_0000,
        0x0180_c200_0010,
    ] {
        assert_eq!(
            bridge.egress(1, [group, host(1)], at(0)),
            others(1),
            "{group:x}"
        );
    }
    for number in 1..16 {
        let group = 0x0180_c200_0000 + number;
        assert_eq!(
            bridge.egress(1, [group, host(1)], at(0)),
            PortSet::NONE,
            "{group:x}"
        );
    }
}

#[test]
fn an_address_that_no_host_has_is_not_learned() {
    let bridge = bridge(8);
    for from in [0, ALL, 0x0100_5e00_0001] {
        assert_eq!(bridge.egress(0, [host(9), from], at(0)), others(0));
    }
    assert!(bridge.addresses.is_empty());
    assert_eq!(bridge.egress(0, [0, host(1)], at(0)), others(0));
}

#[test]
fn a_host_that_moves_is_found_at_its_new_port() {
    let bridge = bridge(8);
    for port in [0, 2, 1, 1, 0] {
        bridge.egress(port, [ALL, host(1)], at(0));
        let from = (port + 1) % 3;
        assert_eq!(
            bridge.egress(from, [host(1), host(2)], at(0)),
            PortSet::one(port)
        );
    }
    assert_eq!(bridge.addresses.len(), 2);
}

#[test]
fn an_address_is_forgotten_after_the_aging_time() {
    let bridge = bridge(8);
    let find = |seconds| {
        bridge
            .addresses
            .port_of([2, 0, 0, 0, 0, 1], Instant::from_nanos(at(seconds)))
    };
    bridge.egress(0, [ALL, host(1)], at(0));
    assert_eq!(find(300), Some(0));
    assert_eq!(find(301), None);
    // Each of its frames makes it young again.
    bridge.egress(0, [ALL, host(1)], at(200));
    assert_eq!(find(490), Some(0));
    assert_eq!(find(501), None);
    // An old entry is used again, for it or for another one.
    bridge.egress(2, [ALL, host(1)], at(1000));
    assert_eq!(find(1001), Some(2));
    assert_eq!(bridge.addresses.len(), 1);
}

#[test]
fn the_bound_holds_and_old_addresses_make_room() {
    let bridge = bridge(100);
    for number in 0..500 {
        bridge.egress(0, [ALL, host(number)], at(0));
        assert!(bridge.addresses.len() <= 100);
    }
    let known = |now: u64| {
        let known = (0..1000).filter(|&number| bridge.addresses.find(host(number), now).is_some());
        known.collect::<Vec<_>>()
    };
    let before = known(at(1));
    assert!(before.len() > 90 && before.len() <= 100, "{}", before.len());
    // What is not known goes to all.
    assert_eq!(bridge.egress(1, [host(500), host(0)], at(1)), others(1));
    // After the aging time others take their places, in the whole table.
    for number in 500..1000 {
        bridge.egress(2, [ALL, host(number)], at(400));
        assert!(bridge.addresses.len() <= 100);
    }
    let after = known(at(401));
    assert!(
        after.len() > 90 && after.iter().all(|&number| number >= 500),
        "{after:?}"
    );
}

/// The number of entries, of all and by port, is that of the counters.
fn assert_counted(table: &Addresses) {
    let words = words(table);
    assert_eq!(words.len(), table.len());
    for one in 0..3 {
        let own = words.iter().filter(|word| port(**word) == one).count();
        assert_eq!(own, table.used_by(one), "port {one}");
        assert!(own <= table.ports[one].most.load(Ordering::Relaxed));
    }
    assert!(words.iter().all(|word| port(*word) < 3));
}

/// Those of the entries in use.
fn words(table: &Addresses) -> Vec<u64> {
    let words = table.entries.iter().map(Entry::word);
    words.filter(|word| *word != 0).collect()
}

/// Port 2 sends from more addresses than the table has, before A and B send, and beside them.
#[test]
fn a_port_with_thousands_of_addresses_costs_the_others_none() {
    let bridge = bridge(ADDRESSES);
    let (table, own) = (&bridge.addresses, 0..50);
    let flood = |from: u64| {
        for number in from..from + 9500 {
            bridge.egress(2, [ALL, host(1000 + number)], at(0));
        }
        assert!(table.len() > 8000, "{}", table.len());
        assert_counted(table);
    };
    flood(0);
    for number in own.clone() {
        bridge.egress(0, [ALL, host(number)], at(0));
        bridge.egress(1, [ALL, host(500 + number)], at(0));
    }
    for round in 1..4 {
        for number in own.clone() {
            let (a, b) = (host(number), host(500 + number));
            assert_eq!(bridge.egress(0, [b, a], at(0)), PortSet::one(1), "{round}");
            assert_eq!(bridge.egress(1, [a, b], at(0)), PortSet::one(0), "{round}");
        }
        flood(round * 9500);
    }
    // New addresses of the port with most take the places of its own ones.
    assert_eq!(
        bridge.egress(0, [host(1000 + 4 * 9500 - 1), host(0)], at(0)),
        PortSet::one(2)
    );
}

/// All entries that the address of A may be in are in use.
#[test]
fn a_full_set_has_a_place_for_a_port_that_has_few() {
    let bridge = bridge(ADDRESSES);
    let table = &bridge.addresses;
    let of_a = table.set(host(0)).as_ptr();
    let same = (1000..).filter(|&number| table.set(host(number)).as_ptr() == of_a);
    let same: Vec<_> = same.take(WAYS + 1).collect();
    let (of_b, of_c) = same.split_at(1);
    bridge.egress(1, [ALL, host(of_b[0])], at(0));
    for number in of_c {
        bridge.egress(2, [ALL, host(*number)], at(0));
    }
    bridge.egress(0, [ALL, host(0)], at(0));
    for (number, port) in [(0, 0), (of_b[0], 1)] {
        assert_eq!(table.find(host(number), at(0)), Some(port));
    }
    assert_counted(table);
}

#[test]
fn a_port_has_as_many_addresses_as_its_bound() {
    let bridge = bridge(64);
    bridge.addresses.bound(2, 3);
    let find = |number| bridge.addresses.find(host(number), at(0));
    bridge.egress(0, [ALL, host(1)], at(0));
    for number in 2..9000 {
        bridge.egress(2, [ALL, host(number)], at(0));
    }
    assert_counted(&bridge.addresses);
    assert_eq!(
        (2..9000).filter(|number| find(*number).is_some()).count(),
        3
    );
    // The address of another port is not moved beyond the bound, nor is it kept: its host may
    // have moved.
    assert_eq!(find(1), Some(0));
    bridge.egress(2, [ALL, host(1)], at(0));
    assert_eq!(find(1), None);
    bridge.egress(0, [ALL, host(1)], at(0));
    assert_eq!(find(1), Some(0));
    // Old ones make room.
    bridge.egress(2, [ALL, host(9000)], at(400));
    assert_eq!(bridge.addresses.find(host(9000), at(400)), Some(2));
    assert_counted(&bridge.addresses);
}

/// A frame searches a piece of a full table, and the frames of a search all of it.
#[test]
fn a_full_table_is_searched_in_pieces() {
    let bridge = bridge(4096);
    let addresses = &bridge.addresses;
    let learn = |number, now| {
        bridge.egress(0, [ALL, host(number)], now);
        addresses.len()
    };
    for number in 0..20_000 {
        learn(number, at(0));
    }
    assert_eq!(addresses.len(), 4096);
    // A set with room, in which no address is old: another one needs a search of the table.
    let has_room =
        |set: &&[Entry]| (1..WAYS).contains(&set.iter().filter(|e| e.word() != 0).count());
    let set = addresses
        .entries
        .chunks(WAYS)
        .find(has_room)
        .expect("half of the table is free");
    set.iter()
        .for_each(|entry| entry.seen.store(at(400), Ordering::Relaxed));
    let another = (20_000..).find(|&number| addresses.set(host(number)).as_ptr() == set.as_ptr());
    let left = learn(another.expect("the hash reaches each set"), at(400));
    // More than a set has.
    assert!(
        (WAYS + 1..=SWEEP_ENTRIES).contains(&(4096 + 1 - left)),
        "{left}"
    );
    for number in 30_000..36_000 {
        learn(number, at(400));
    }
    let entries = bridge.addresses.entries.iter();
    let old = entries.filter(|entry| {
        let used = entry.word() != 0;
        used && bridge.addresses.is_old(entry, at(400))
    });
    assert_eq!(old.count(), 0);
}

/// With any factor of the hash, nearly all addresses in sequence are learned while half of the
/// entries are free.
#[test]
fn addresses_in_sequence_fill_the_table_with_every_factor() {
    for round in 0..1000 {
        let mut addresses = Addresses::new(512, AGE);
        let own = Arc::get_mut(&mut addresses).expect("not shared yet");
        own.factor = RandomState::new().build_hasher().finish() | 1;
        for number in 0..512 {
            addresses.learn(host(number), 0, at(0));
        }
        let (len, factor) = (addresses.len(), addresses.factor);
        assert!(
            len > 450,
            "{len} of 512 in round {round} with the factor {factor:#x}"
        );
    }
}

#[test]
fn a_frame_without_a_whole_source_teaches_nothing() {
    let arena = crate::packet::Arena::new(crate::packet::ArenaConfig::small());
    let arena = arena.expect("memory");
    for bytes in [0, 6, 11] {
        let packet = arena.packet_from(&[2; 12][..bytes]).expect("memory");
        assert_eq!(addresses(&packet), [0; 2]);
    }
    let packet = arena.packet_from(&[2; 12]).expect("memory");
    assert_eq!(addresses(&packet), [0x0202_0202_0202; 2]);
}

#[test]
fn addresses_are_remembered_for_a_second_at_least() {
    let addresses = Addresses::new(8, Duration::ZERO);
    assert_eq!(Duration::from_nanos(addresses.aging), AGING_MIN);
}

#[test]
fn a_table_of_one_address_works() {
    let bridge = bridge(1);
    bridge.egress(0, [ALL, host(1)], at(0));
    bridge.egress(1, [ALL, host(2)], at(0));
    assert_eq!(bridge.addresses.len(), 1);
    assert_eq!(bridge.egress(2, [host(1), host(3)], at(0)), PortSet::one(0));
    assert_eq!(bridge.egress(2, [host(2), host(3)], at(0)), others(2));
    assert!(Addresses::new(usize::MAX, Duration::MAX).most == ADDRESSES_MAX);
}

/// Threads learn the same addresses: the counters are right afterwards, also of a full table, and
/// each address was learned if no bound forbids it.
#[test]
fn threads_share_the_table() {
    const HOSTS: u64 = if cfg!(miri) { 20 } else { 1000 };
    let half = HOSTS as usize / 2;
    for (most, bound) in [(4096, None), (4096, Some(half)), (half, None)] {
        let bridge = bridge(most);
        if let Some(most) = bound {
            bridge.addresses.bound(2, most);
        }
        thread::scope(|scope| {
            for port in 0..3 {
                let bridge = &bridge;
                scope.spawn(move || {
                    for round in 0..5 {
                        for number in 0..HOSTS {
                            bridge.egress(port, [host(number), host(number)], at(round * 100));
                        }
                    }
                });
            }
        });
        let table = &bridge.addresses;
        assert_counted(table);
        let macs = words(table).into_iter().map(|word| word >> 16);
        let learned = macs.collect::<HashSet<_>>().len() as u64;
        assert!(bound.is_some() || most == half || learned == HOSTS);
    }
}
