//! The table: collisions, eviction, order, and when `Auto` sorts.

use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::test_packets::PSH;
use crate::test_packets::frame::{Frame, tcp4, train};

/// Packet `round` of the flow with port `port`.
fn packet(port: u16, round: usize) -> Wire {
    let mut frame = train(&tcp4(0), &[100; 8])[round].clone();
    frame.ports.0 = port;
    frame.verified()
}

fn hash_mode(flows: u32) -> Config {
    Config {
        mode: Mode::Hash,
        ..Config::new(Semantics::Reversible, LinkType::RawIp, flows)
    }
}

/// With it, every flow of [`packet`] has the same hash: the addresses cancel out.
fn colliding_seed() -> u64 {
    let bytes = tcp4(0).bytes();
    u64::from_ne_bytes(bytes[12..20].try_into().unwrap())
}

/// The output of each flow, in order.
fn by_port(output: &Output) -> std::collections::BTreeMap<u16, Vec<Vec<usize>>> {
    let mut flows = std::collections::BTreeMap::new();
    for (wire, _) in output {
        let port = u16::from_be_bytes([wire.bytes[20], wire.bytes[21]]);
        let list: &mut Vec<Vec<usize>> = flows.entry(port).or_default();
        list.push(wire.ids.clone());
    }
    flows
}

fn assert_in_order(output: &Output) {
    for (port, list) in by_port(output) {
        assert!(list.concat().is_sorted(), "port {port}: {list:?}");
    }
}

#[test]
fn the_oldest_is_evicted_from_a_full_table() {
    for flows in [1, 2, 5, 8, 13] {
        let count = flows as u16 + 4;
        let input = (0..count).map(|port| packet(port, 0)).collect();
        let (output, stats) = run(hash_mode(flows), vec![Step::Burst(input)]);
        for (n, (wire, done)) in output.iter().enumerate() {
            assert_eq!(wire.ids, [n]);
            let reason = if n < 4 {
                FlushReason::Evict
            } else {
                FlushReason::Timeout
            };
            assert_eq!(*done, Done::Alone(reason));
        }
        assert_eq!(stats.flushes.get(FlushReason::Evict), 4);
    }
}

/// Merging does not make an entry younger: what came first leaves first.
#[test]
fn age_counts_from_the_first_packet() {
    let mut input = vec![packet(1, 0), packet(2, 0), packet(1, 1), packet(3, 0)];
    let (output, _) = run(hash_mode(2), vec![Step::Burst(input.clone())]);
    assert_eq!(output[0].0.ids, [0, 2]);
    input.truncate(3);
    let (output, _) = run(hash_mode(2), vec![Step::Burst(input)]);
    assert_eq!(output.len(), 2);
}

#[test]
fn more_flows_with_one_hash_than_a_set_has_room_for() {
    for flows in [17, 64, 200] {
        let config = Config {
            seed: colliding_seed(),
            ..hash_mode(flows)
        };
        // 12 of them are distinguished.
        let rounds =
            |ports: u16| (0..4).flat_map(move |round| (0..ports).map(move |p| packet(p, round)));
        let (output, stats) = run(config, vec![Step::Burst(rounds(12).collect())]);
        assert_eq!(output.len(), 12);
        assert_eq!(stats.flushes.get(FlushReason::Evict), 0);
        // 13 are too many, and the oldest goes; or else this seed does not do what it should.
        let input = (0..13).map(|port| packet(port, 0)).collect();
        let (output, stats) = run(config, vec![Step::Burst(input)]);
        assert_eq!(stats.flushes.get(FlushReason::Evict), 1);
        assert_eq!(output[0].0.ids, [0]);
        // Many more: nothing merges, nothing is lost, every flow stays in order.
        let (output, _) = run(config, vec![Step::Burst(rounds(40).collect())]);
        assert_in_order(&output);
    }
}

/// Flows of one hash are one group for the sort, and are told apart in it.
#[test]
fn sorted_mode_tells_flows_of_one_hash_apart() {
    for ports in [3, 12, 40] {
        let config = Config {
            seed: colliding_seed(),
            mode: Mode::Sorted,
            ..hash_mode(64)
        };
        let input: Vec<Wire> = (0..4)
            .flat_map(|round| (0..ports).map(move |port| packet(port, round)))
            .collect();
        let (output, _) = run(config, vec![Step::Burst(input)]);
        assert_in_order(&output);
        if ports <= 12 {
            assert_eq!(output.len(), usize::from(ports));
        }
    }
}

/// Free entries in the middle are reused; the ring wraps many times.
#[test]
fn holes_in_the_ring() {
    for flows in [1, 2, 3, 7, 16] {
        let config = hash_mode(flows);
        let mut steps = vec![];
        for n in 0..400_u16 {
            // Every third one is pushed out again by a packet that does not follow it.
            steps.push(Step::Push(packet(n % 11, 0)));
            if n % 3 == 0 {
                steps.push(Step::Push(packet(n % 11, 5)));
            }
            if n % 97 == 0 {
                steps.push(Step::Flush);
            }
        }
        let (output, _) = run(config, steps);
        assert_in_order(&output);
    }
}

/// One that is held for long is next to be used when the places have gone round once.
#[test]
fn nothing_is_evicted_while_there_is_room() {
    let mut steps = vec![Step::Push(packet(1, 0))];
    for _ in 0..10 {
        let mut last = train(&tcp4(0), &[100; 2])[1].clone();
        last.ports.0 = 2;
        last.flags |= PSH;
        steps.extend([Step::Push(packet(2, 0)), Step::Push(last.verified())]);
    }
    steps.push(Step::Push(packet(1, 1)));
    for mode in [Mode::Hash, Mode::Auto] {
        let config = Config {
            mode,
            ..hash_mode(8)
        };
        let (output, stats) = run(config, steps.clone());
        assert_eq!(stats.flushes.get(FlushReason::Evict), 0);
        assert_eq!(stats.sorted_windows, 0);
        assert_eq!(output.len(), 11);
        assert_eq!(output[10].0.ids, [0, 21]);
    }
}

/// A full set evicts its oldest also when places do not give the age.
#[test]
fn the_oldest_of_a_full_set_goes_after_the_places_went_round() {
    let config = Config {
        seed: colliding_seed(),
        ..hash_mode(16)
    };
    // Twelve, of which one is the oldest of all, in a table of sixteen.
    let mut steps: Vec<Step> = (0..12).map(|port| Step::Push(packet(port, 0))).collect();
    // Every second one goes and comes again: the places go round, and the young are everywhere.
    for port in (1..12).step_by(2) {
        steps.extend([Step::Push(packet(port, 5)), Step::Push(packet(port, 2))]);
    }
    let newer = steps.len();
    for port in 20..32 {
        steps.push(Step::Push(packet(port, 0)));
    }
    let (output, stats) = run(config, steps);
    assert_eq!(stats.flushes.get(FlushReason::Evict), 12);
    let evicted = output
        .iter()
        .filter(|(_, done)| *done == Done::Alone(FlushReason::Evict));
    let evicted: Vec<usize> = evicted.map(|(wire, _)| wire.ids[0]).collect();
    assert!(evicted.is_sorted(), "{evicted:?}");
    assert!(evicted.iter().all(|id| *id < newer), "{evicted:?}");
}

/// What to do with a table of a few entries: which flow, whether its packet follows, and now and
/// then a flush.
fn any_churn() -> impl Strategy<Value = (u32, Vec<(u16, bool, u8)>)> {
    let event = (0_u16..14, any::<bool>(), 0_u8..60);
    (1_u32..13, proptest::collection::vec(event, 1..300))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// With twelve entries at most no set is ever full. So whatever goes where, one is evicted
    /// only from a full table, it is the oldest, and what is flushed goes in order of age.
    #[test]
    fn only_a_full_table_evicts_and_then_the_oldest((flows, churn) in any_churn()) {
        let config = hash_mode(flows);
        let mut coalescer = Coalescer::new(config, Owned::for_config(&config)).unwrap();
        // Numbers of what was not handed on. The lowest is the first of the oldest entry.
        let mut within = std::collections::BTreeSet::new();
        for (number, (port, follows, flush)) in churn.into_iter().enumerate() {
            let held = coalescer.held();
            let mut out: Vec<(Wire, Done)> = vec![];
            let mut sink = |wire: Wire, done: &Done| out.push((wire, *done));
            within.insert(number);
            let mut wire = packet(port, if follows { 1 } else { 0 });
            wire.ids = vec![number];
            coalescer.push(number as u64 * 2000, wire, &mut sink);
            match flush {
                // What is older than some.
                0 => coalescer.flush_inactive(number as u64 * 2000, 10_000, &mut sink),
                1 => coalescer.flush(&mut sink),
                _ => {}
            }
            let mut evicted = 0;
            for (wire, done) in out {
                let reason = match done {
                    Done::Alone(reason) | Done::Merged(Merged { reason, .. }) => reason,
                    Done::Passed(why) => panic!("{why}"),
                };
                if reason == FlushReason::Evict {
                    evicted += 1;
                    prop_assert_eq!(held, flows as usize);
                }
                let oldest_first = [
                    FlushReason::Evict,
                    FlushReason::Inactive,
                    FlushReason::Timeout,
                ];
                if oldest_first.contains(&reason) {
                    prop_assert_eq!(Some(&wire.ids[0]), within.first());
                }
                for id in wire.ids {
                    prop_assert!(within.remove(&id));
                }
            }
            prop_assert!(evicted <= 1);
        }
        let mut order = vec![];
        coalescer.flush(&mut |wire: Wire, _| order.push(wire.ids[0]));
        prop_assert!(order.is_sorted());
        prop_assert_eq!(coalescer.held(), 0);
    }
}

#[test]
fn a_queue_that_is_full_is_run() {
    for queue in [1, 2, 16, 100] {
        let config = Config {
            mode: Mode::Sorted,
            queue,
            ..hash_mode(4)
        };
        let input = (0..4).flat_map(|round| (0..25).map(move |port| packet(port, round)));
        let (output, stats) = run(config, vec![Step::Burst(input.collect())]);
        assert_in_order(&output);
        assert_eq!(stats.sorted_windows, 100_u64.div_ceil(u64::from(queue)));
        if queue == 100 {
            assert_eq!(output.len(), 25);
        }
    }
}

/// Queued packets are handed on at any age.
#[test]
fn a_look_at_ages_runs_the_queue() {
    let config = Config {
        mode: Mode::Sorted,
        ..hash_mode(8)
    };
    let mut coalescer = Coalescer::new(config, Owned::for_config(&config)).unwrap();
    let burst = (0..2).flat_map(|round| (0..5).map(move |port| packet(port, round)));
    let mut out = 0;
    coalescer.push_burst(0, burst, &mut |_, _| out += 1);
    coalescer.flush_inactive(0, 1 << 30, &mut |_, _| out += 1);
    assert_eq!((out, coalescer.held()), (5, 0));
}

/// A byte of the hash says which slots to look at, and its values are all as good.
#[test]
fn every_hash_finds_its_entry() {
    const FLOWS: u16 = 2000;
    let input = (0..2).flat_map(|round| (0..FLOWS).map(move |port| packet(port, round)));
    let (output, _) = run(hash_mode(8192), vec![Step::Burst(input.collect())]);
    assert_eq!(output.len(), usize::from(FLOWS));
}

/// Dropped packets free their slots.
#[test]
fn a_cleared_table_is_empty() {
    let config = Config {
        seed: colliding_seed(),
        ..hash_mode(64)
    };
    let mut coalescer = Coalescer::new(config, Owned::for_config(&config)).unwrap();
    let burst = |ports: Range<u16>| ports.map(|port| packet(port, 0));
    let mut sink = |_: Wire, _: &Done| panic!("there is room");
    coalescer.push_burst(0, burst(0..12), &mut sink);
    assert_eq!(coalescer.clear(), 12);
    coalescer.push_burst(0, burst(12..24), &mut sink);
    assert_eq!(coalescer.held(), 12);
}

/// Sorting begins when more than one packet in eight was evicted, and ends after sixteen windows in
/// a row with no more than half as many flows as the table has room for.
#[test]
fn auto_goes_by_what_was_evicted_and_by_flows_of_sixteen_windows() {
    let config = Config {
        mode: Mode::Auto,
        ..hash_mode(64)
    };
    let new = || Coalescer::new(config, Owned::for_config(&config)).unwrap();
    type Tested = Coalescer<Wire, Owned<Wire>>;
    let window = |coalescer: &mut Tested, flows: u16, rounds: usize| {
        let burst = (0..flows).flat_map(|port| (0..rounds).map(move |r| packet(port, r)));
        coalescer.push_burst(0, burst, &mut |_, _| ());
        coalescer.flush(&mut |_, _| ());
        coalescer.is_sorting()
    };
    // A flow after the other; those beyond 64 evict one each.
    for (flows, rounds, sorts) in [(73, 1, false), (74, 1, true), (84, 2, false), (86, 2, true)] {
        let mut coalescer = new();
        assert_eq!(window(&mut coalescer, flows, rounds), sorts, "{flows}");
    }
    let mut coalescer = new();
    assert!(window(&mut coalescer, 200, 1));
    for _ in 0..15 {
        assert!(window(&mut coalescer, 32, 1));
    }
    assert!(window(&mut coalescer, 33, 1), "one with more flows");
    for _ in 0..15 {
        assert!(window(&mut coalescer, 32, 1));
    }
    // An empty one says nothing.
    coalescer.flush(&mut |_, _| ());
    assert!(coalescer.is_sorting());
    assert!(!window(&mut coalescer, 32, 1));
}

#[test]
fn auto_sorts_while_the_table_overflows() {
    let config = Config {
        mode: Mode::Auto,
        ..hash_mode(8)
    };
    let mut coalescer = Coalescer::new(config, Owned::for_config(&config)).unwrap();
    let window = |coalescer: &mut Coalescer<Wire, Owned<Wire>>, flows: u16| {
        let mut out = 0;
        for round in 0..4 {
            let burst: Vec<Wire> = (0..flows).map(|port| packet(port, round)).collect();
            coalescer.push_burst(0, burst, &mut |_, _| out += 1);
        }
        coalescer.flush(&mut |_, _| out += 1);
        out
    };
    assert_eq!(window(&mut coalescer, 8), 8);
    assert!(!coalescer.is_sorting());
    assert_eq!(window(&mut coalescer, 64), 256);
    assert!(coalescer.is_sorting());
    assert_eq!(window(&mut coalescer, 64), 64);
    // With few flows for a while, it returns to hash mode.
    let mut windows = 0;
    while coalescer.is_sorting() {
        assert_eq!(window(&mut coalescer, 2), 2);
        windows += 1;
        assert!(windows < 100);
    }
    assert!(windows > 1);
    assert_eq!(window(&mut coalescer, 2), 2);
}

/// The mode may change while packets are held, because only the old ones are handed on.
#[test]
fn auto_changes_with_packets_held() {
    let config = Config {
        mode: Mode::Auto,
        ..hash_mode(8)
    };
    let mut steps = vec![Step::Clock(0)];
    steps.extend((0..64).map(|port| Step::Push(packet(port, 0))));
    steps.push(Step::Clock(1 << 30));
    // The last eight of them are held; so is a young one.
    steps.push(Step::Push(packet(63, 1)));
    steps.push(Step::Push(packet(100, 0)));
    steps.push(Step::Age(1 << 30, 1 << 29));
    // Sorted from now on.
    steps.push(Step::Push(packet(100, 1)));
    steps.push(Step::Push(packet(100, 3)));
    steps.push(Step::Push(packet(63, 2)));
    let (output, stats) = run(config, steps);
    assert_eq!(stats.sorted_windows, 1);
    assert_in_order(&output);
}

#[test]
fn hash_collisions_of_other_seeds() {
    for seed in 0..50 {
        let config = Config {
            seed,
            ..hash_mode(30)
        };
        let input = (0..3).flat_map(|round| (0..60).map(move |port| packet(port, round)));
        let (output, _) = run(config, vec![Step::Burst(input.collect())]);
        assert_in_order(&output);
    }
}

#[test]
fn tcp_and_udp_of_the_same_ports_are_two_flows() {
    let tcp = train(&tcp4(0), &[100, 100]);
    let udp: Vec<Frame> = tcp
        .iter()
        .map(|f| Frame {
            tcp: false,
            ..f.clone()
        })
        .collect();
    let input = vec![
        tcp[0].verified(),
        udp[0].verified(),
        tcp[1].verified(),
        udp[1].verified(),
    ];
    // Also with the same hash.
    for (mode, seed) in MODES
        .map(|mode| [(mode, 0), (mode, colliding_seed())])
        .concat()
    {
        let config = Config {
            mode,
            seed,
            ..hash_mode(8)
        };
        let (output, _) = run(config, vec![Step::Burst(input.clone())]);
        assert_eq!(output.len(), 2);
    }
}

/// Also the debug output of counts, which lists only those that are not 0.
#[test]
fn a_table_of_no_flows_has_one() {
    let config = hash_mode(0);
    let coalescer = Coalescer::<Wire, _>::new(config, Owned::for_config(&config)).unwrap();
    assert_eq!(coalescer.config().flows, 1);
    let two = vec![packet(1, 0), packet(1, 1), packet(2, 0)];
    let (output, stats) = run(config, vec![Step::Burst(two)]);
    assert_eq!(output.len(), 2);
    let flushes = std::format!("{:?}", stats.flushes);
    assert!(flushes.starts_with("FlushCounts{"), "{flushes}");
    assert!(
        flushes.contains(": 1") && !flushes.contains(": 0"),
        "{flushes}"
    );
}
