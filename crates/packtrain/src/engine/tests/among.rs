//! Sessions among several ports: egress by the handler, clones, and ports that accept nothing.

use super::coalesce::flow;
use super::fake::{Fake, Queue, number_of};
use super::rig::{POLICIES, Rig, Setup, arena, closed, wait_for};
use crate::driver::{Features, Input, Port, PortConfig};
use crate::engine::control::Queues;
use crate::engine::{
    Builder, Command, Forward, Handler, Many, RxId, Session, Settings, arena_config,
};
use crate::limits::{
    BURST_PACKETS_MAX, EGRESS_FRAME_BYTES_MAX, SMALL_FRAME_BYTES, TX_RING_PACKETS,
    TX_STAGED_PACKETS_MAX,
};
use crate::packet::{Arena, ArenaConfig, Burst, Packet, PortSet};
use crate::policy::dispatch::Dispatch;
use crate::stats::DropReason;
use crate::time::Instant;
use packtrain_offload::random::Random;
use std::fmt::Display;
use std::time::Duration;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// The ports of a packet are in bits 16 to 19 of its number.
struct ByNumber;

impl Handler for ByNumber {
    fn handle(&mut self, _now: Instant, _from: RxId, burst: &mut Burst) {
        for packet in burst.iter_mut() {
            let number = number_of(packet.first());
            packet.set_egress(
                (0..4)
                    .filter(|port| number & (1 << (16 + port)) != 0)
                    .collect(),
            );
        }
    }

    const COUNTED: bool = false;
}

fn to(ports: &[usize], number: u32) -> u32 {
    ports
        .iter()
        .fold(number, |all, port| all | 1 << (16 + port))
}

/// A rig of several ports, and their queues.
struct Several {
    rig: Rig,
    ports: Vec<Vec<Queue>>,
}

/// What the ports have in common: an endless input loses packets that are not received, a finite
/// one does not.
type Fakes = (Input, Features, PortConfig);
type Ports = Builder<Many<Fake>, Forward>;

fn several(
    queues: &[usize],
    settings: &Settings,
    (input, features, config): Fakes,
    arena: Arena,
) -> (Ports, Vec<Vec<Queue>>) {
    let parts = (input, Features::NONE, features);
    let (mut ports, mut ours) = (Vec::new(), Vec::new());
    for (name, &queues) in NAMES.into_iter().zip(queues) {
        let (driver, of_port) = Fake::new(name, parts, queues, false);
        let config = PortConfig {
            queues: Some(queues),
            ..config
        };
        ports.push(Port { driver, config });
        ours.push(of_port);
    }
    let builder = Session::among(ports)
        .settings(settings.clone())
        .arena(arena);
    (builder, ours)
}

impl Several {
    fn new(queues: &[usize], dispatch: Dispatch, cpus: usize) -> Self {
        Self::with(queues, dispatch, cpus, arena(), by_number)
    }

    /// Three ports with finite inputs. The third one accepts nothing yet.
    fn of_files(dispatch: Dispatch, cpus: usize, config: PortConfig) -> Self {
        let ports = (Input::Finite, Features::NONE, config);
        let world = Self::of(&[1, 1, 1], dispatch, cpus, ports, arena(), by_number);
        world.ports[2][0].tx().room = 0;
        world
    }

    fn with<H: Handler + 'static>(
        queues: &[usize],
        dispatch: Dispatch,
        cpus: usize,
        arena: Arena,
        also: impl FnOnce(Ports) -> Builder<Many<Fake>, H>,
    ) -> Self {
        let ports = (Input::Endless, Features::NONE, PortConfig::default());
        Self::of(queues, dispatch, cpus, ports, arena, also)
    }

    fn of<H: Handler + 'static>(
        queues: &[usize],
        dispatch: Dispatch,
        cpus: usize,
        ports: Fakes,
        arena: Arena,
        also: impl FnOnce(Ports) -> Builder<Many<Fake>, H>,
    ) -> Self {
        let settings = Setup::new([1, 1]).dispatch(dispatch).settings;
        let (builder, ports) = several(queues, &settings, ports, arena);
        let rig = Rig::of(also(builder), cpus, [Vec::new(), Vec::new()]);
        let rig = rig.expect("it is assembled");
        Self { rig, ports }
    }

    fn arrive(&self, port: usize, numbers: impl IntoIterator<Item = u32>) {
        self.ports[port][0].arrive(numbers);
    }

    /// Packets arrive at a port, and the workers run until they sleep.
    fn receive(&mut self, port: usize, numbers: impl IntoIterator<Item = u32>) {
        self.arrive(port, numbers);
        self.rig.settle();
    }

    /// While the third port makes room for `room` packets again and again, all of `numbers` are
    /// sent to it and to the second one.
    fn loses_none_of(mut self, numbers: &[u32], room: usize, what: impl Display) {
        for _ in 0..50 {
            self.rig.settle();
            self.ports[2][0].make_room(room);
        }
        self.rig.settle();
        for port in [1, 2] {
            assert!(self.sent(port) == numbers, "{what}, port {port}");
        }
        assert_eq!(self.rig.finish().drops.total(), 0);
    }

    fn sent(&self, port: usize) -> Vec<u32> {
        self.ports[port][0].sent()
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.rig.closed().drops.get(reason)
    }
}

fn by_number(builder: Ports) -> Builder<Many<Fake>, ByNumber> {
    builder.handler(|_| ByNumber)
}

/// Ports whose packets are merged, and which accept merged ones.
fn merging() -> Fakes {
    let config = PortConfig {
        segments: Some(64),
        ..PortConfig::default()
    };
    (Input::Endless, Features::CSUM | Features::TSO, config)
}

fn everywhere(mut test: impl FnMut(Dispatch, usize)) {
    for dispatch in POLICIES {
        for cpus in [1, 2, 3, 8] {
            test(dispatch, cpus);
        }
    }
}

#[test]
fn each_packet_goes_to_the_ports_that_its_handler_names() {
    everywhere(|dispatch, cpus| {
        let mut world = Several::new(&[1, 1, 1, 1], dispatch, cpus);
        let mut random = Random::new(u64::from(cpus as u32));
        let mut expected = vec![Vec::new(); 4];
        let (mut clones, mut nowhere) = (0, 0);
        for number in 0..600 {
            let ports: PortSet = (0..4).filter(|_| random.below(2) == 0).collect();
            let number = to(&ports.iter(4).collect::<Vec<_>>(), number);
            world.arrive(0, [number]);
            ports.iter(4).for_each(|port| expected[port].push(number));
            clones += ports.iter(4).count().saturating_sub(1) as u64;
            nowhere += u64::from(ports.is_empty());
            if random.below(20) == 0 {
                world.rig.settle();
            }
        }
        world.rig.settle();
        for (port, expected) in expected.iter().enumerate() {
            let sent = world.sent(port) == *expected;
            assert!(sent, "{dispatch}, {cpus} CPUs, port {port}");
            // They are numbers of this session's ports.
            assert!(!world.ports[port][0].tx().named);
        }
        let snapshot = world.rig.finish();
        let ledger = snapshot.ledger;
        assert_eq!((ledger.received, ledger.expanded), (600, clones));
        assert_eq!(ledger.transmitted, 600 + clones - nowhere);
        assert_eq!(snapshot.drops.get(DropReason::NoEgress), nowhere);
        assert_eq!(snapshot.drops.total(), nowhere);
    });
}

#[test]
fn the_packets_of_an_rx_queue_go_to_one_tx_queue_of_each_port() {
    let mut world = Several::new(&[4, 2, 3], Dispatch::Direct, 4);
    for (queue, of_a) in world.ports[0].iter().enumerate() {
        of_a.arrive([to(&[1, 2], queue as u32)]);
    }
    world.rig.settle();
    let numbers = |port: usize, queue: usize| {
        let sent = world.ports[port][queue].sent().into_iter();
        let mut sent: Vec<_> = sent.map(|number| number & 0xffff).collect();
        // Which of the RX queues of a worker is first is drawn.
        sent.sort_unstable();
        sent
    };
    assert_eq!([numbers(1, 0), numbers(1, 1)], [[0, 2], [1, 3]]);
    assert_eq!(numbers(2, 0), [0, 3]);
    assert_eq!([numbers(2, 1), numbers(2, 2)], [[1], [2]]);
    world.rig.finish();
}

/// Without a choice the other one of two ports, and none of three.
#[test]
fn without_a_choice_a_packet_goes_to_the_other_one_of_two_ports() {
    let new =
        |queues: &[usize]| Several::with(queues, Dispatch::Direct, 2, arena(), |builder| builder);
    let mut two = new(&[1, 1]);
    two.arrive(0, [1, 2]);
    two.arrive(1, [3]);
    two.rig.settle();
    assert_eq!((two.sent(0), two.sent(1)), (vec![3], vec![1, 2]));
    assert!(two.rig.finish().drops.nonzero().next().is_none());
    let mut three = new(&[1, 1, 1]);
    three.arrive(0, [1, 2]);
    three.rig.settle();
    assert_eq!(three.dropped(DropReason::NoEgress), 2);
    assert_eq!(three.rig.finish().ledger.transmitted, 0);
}

/// What does not fit in front of a port is dropped for that port. The others get theirs at once.
#[test]
fn a_port_that_accepts_nothing_costs_the_others_nothing() {
    everywhere(|dispatch, cpus| {
        let mut world = Several::new(&[1, 1, 1], dispatch, cpus);
        let name = format!("{dispatch}, {cpus} CPUs");
        world.ports[2][0].tx().room = 0;
        // More than the ring and the queue hold.
        let count = 2 * TX_RING_PACKETS as u32;
        world.arrive(0, (0..count).map(|number| to(&[2], number)));
        world.arrive(0, (0..10).map(|number| to(&[1, 2], number)));
        world.receive(1, (0..10).map(|number| to(&[0], number)));
        let sent = [0, 1].map(|port| world.sent(port).len());
        assert_eq!(sent, [10, 10], "{name}");
        let lost = world.dropped(DropReason::EgressFull);
        let all = u64::from(count) + 10;
        let held = all - lost;
        let ring = TX_RING_PACKETS as u64;
        let most = ring + 2 * (TX_STAGED_PACKETS_MAX + BURST_PACKETS_MAX) as u64;
        assert!((ring..=most).contains(&held), "{name}: {held} are held");
        let of_port = |port: usize| world.rig.closed().ports[port].tx_total().egress_full;
        assert_eq!([of_port(0), of_port(1), of_port(2)], [0, 0, lost], "{name}");
        // It accepts packets again, and loses nothing from then on.
        world.ports[2][0].make_room(usize::MAX);
        world.rig.settle();
        world.receive(0, (0..100).map(|number| to(&[2], number)));
        assert_eq!(world.sent(2).len() as u64, held + 100, "{name}");
        assert_eq!(world.rig.finish().drops.total(), lost, "{name}");
    });
}

/// A port that takes a packet now and then gets what it has space for.
#[test]
fn a_port_that_trickles_costs_the_others_nothing() {
    everywhere(|dispatch, cpus| {
        let mut world = Several::new(&[1, 1, 1], dispatch, cpus);
        world.ports[2][0].tx().room = 0;
        for round in 1..=30 {
            world.receive(0, (0..50).map(|number| to(&[1, 2], number)));
            let name = format!("{dispatch}, {cpus} CPUs, round {round}");
            assert_eq!(world.sent(1).len(), 50 * round, "{name}");
            assert_eq!(world.sent(2).len(), round - 1, "{name}");
            world.ports[2][0].make_room(1);
        }
        world.rig.finish();
    });
}

/// Two ports send more than a slow third one takes. In each worker each RX queue gets a part of its
/// space; between workers it is a race.
#[test]
fn ports_that_saturate_a_slow_one_share_it() {
    everywhere(|dispatch, cpus| {
        for of_a in [1, 3] {
            let mut world = Several::new(&[of_a, 1, 1], dispatch, cpus);
            let name = format!("{dispatch}, {cpus} CPUs, {of_a} queues");
            world.ports[2][0].tx().room = 0;
            let mut queues = world.ports[0].clone();
            queues.push(world.ports[1][0].clone());
            for _ in 0..250 {
                for (source, queue) in queues.iter().enumerate() {
                    let number = |number| to(&[2], number) | (source as u32) << 20;
                    queue.arrive((0..64).map(number));
                }
                world.ports[2][0].make_room(64);
                world.rig.settle();
                world.rig.advance(Duration::from_millis(1));
            }
            let sent = world.sent(2);
            assert_eq!(sent.len(), 250 * 64, "{name}");
            if cpus <= 2 {
                for source in 0..queues.len() as u32 {
                    let of = sent.iter().filter(|number| **number >> 20 == source);
                    let count = of.count();
                    let least = sent.len() / queues.len() / 3;
                    assert!(count > least, "{name}: {count} of {source}");
                }
            }
        }
    });
}

/// A file and a source wait, and lose nothing. A live port does not wait for the same port.
#[test]
fn an_input_that_can_wait_loses_nothing() {
    everywhere(|dispatch, cpus| {
        let mut world = Several::of_files(dispatch, cpus, PortConfig::default());
        let numbers: Vec<_> = (0..2000).map(|number| to(&[1, 2], number)).collect();
        world.receive(0, numbers.iter().copied());
        assert!(world.sent(1).len() < 2000, "it waits");
        world.rig.advance(Duration::from_secs(100));
        let what = format!("{dispatch}, {cpus} CPUs");
        world.loses_none_of(&numbers, TX_STAGED_PACKETS_MAX + 10, what);
    });
}

/// Merged packets have the most frames: those of a port that accepts nothing stay within their
/// bound, and the session's own arena has frames for the others.
#[test]
fn a_port_that_accepts_nothing_does_not_take_the_frames_of_the_others() {
    for dispatch in POLICIES {
        let fakes = merging();
        let settings = Setup::new([1, 1]).dispatch(dispatch).settings;
        let (builder, _) = several(&[1, 1, 1], &settings, fakes, arena());
        let config = arena_config(&builder.plan().expect("it is planned"));
        let arena = Arena::new(config).expect("memory");
        let to_port_2 = |_: Instant, _: RxId, burst: &mut Burst| {
            let to = |packet: &mut Packet| packet.set_egress(PortSet::one(2));
            burst.iter_mut().for_each(to);
        };
        let to_port_2 = |builder: Ports| builder.handler(move |_| to_port_2);
        let mut world = Several::of(&[1, 1, 1], dispatch, 2, fakes, arena, to_port_2);
        world.ports[2][0].tx().room = 0;
        for packet in 0..400 {
            world.ports[packet % 2][0].arrive_tcp(flow(packet as u16, 0..64));
            world.rig.settle();
        }
        let snapshot = world.rig.closed();
        let merged = snapshot.ports.iter().map(|port| port.rx[0].gro_packets);
        assert_eq!(merged.sum::<u64>(), 400, "{dispatch}: merged packets");
        assert!(snapshot.drops.get(DropReason::EgressFull) > 0, "{dispatch}");
        assert_eq!(snapshot.drops.get(DropReason::NoBuffer), 0, "{dispatch}");
        let used = world.rig.session.arena().census().small_used as usize;
        let bound = EGRESS_FRAME_BYTES_MAX / SMALL_FRAME_BYTES;
        assert!((bound - 64..=bound).contains(&used), "{dispatch}: {used}");
        world.ports[2][0].make_room(usize::MAX);
        world.rig.settle();
        let census = world.rig.session.arena().census();
        assert_eq!(census.small_used, 0, "{dispatch}");
        // What was counted as waiting is counted as sent: as much fits again.
        world.ports[2][0].tx().room = 0;
        let before = world.dropped(DropReason::EgressFull);
        world.ports[0][0].arrive_tcp((0..60).flat_map(|n| flow(n, 64..128)));
        world.rig.settle();
        assert_eq!(world.dropped(DropReason::EgressFull), before, "{dispatch}");
        world.rig.finish();
    }
}

/// A merged packet counts as its wire packets: sent to two ports, and to one that does not exist.
#[test]
fn large_packets_go_whole_to_each_port() {
    for dispatch in POLICIES {
        let to_all = |builder: Ports| {
            builder.handler(|from: RxId| {
                let others: PortSet = (0..4).filter(|port| *port != from.port).collect();
                move |_: Instant, _: RxId, burst: &mut Burst| {
                    burst
                        .iter_mut()
                        .for_each(|packet| packet.set_egress(others));
                }
            })
        };
        let mut world = Several::of(&[1, 1, 1], dispatch, 2, merging(), arena(), to_all);
        world.ports[0][0].arrive_tcp(flow(1000, 0..8));
        world.rig.settle();
        for port in [1, 2] {
            let tx = world.ports[port][0].tx();
            let sizes: Vec<_> = tx.tcp.iter().map(|packet| packet.3).collect();
            assert_eq!(sizes, [8], "{dispatch}");
            assert!(!tx.named);
        }
        let snapshot = world.rig.finish();
        let ledger = snapshot.ledger;
        assert_eq!((ledger.received, ledger.expanded), (8, 16));
        assert_eq!(ledger.transmitted, 16);
        assert_eq!(snapshot.drops.get(DropReason::NoEgress), 8);
    }
}

#[test]
fn a_port_that_does_not_exist_is_counted() {
    let mut world = Several::new(&[1, 1, 1], Dispatch::Direct, 2);
    world.receive(0, [to(&[3], 1), to(&[1, 3], 2), to(&[1, 2], 3)]);
    assert_eq!(world.sent(1), [to(&[1, 3], 2), to(&[1, 2], 3)]);
    let snapshot = world.rig.finish();
    assert_eq!(snapshot.drops.get(DropReason::NoEgress), 2);
    assert_eq!(snapshot.ledger.expanded, 2);
}

#[test]
fn packets_handed_over_one_by_one_are_sent_in_order() {
    everywhere(|dispatch, cpus| {
        let mut config = PortConfig::default();
        config.work.by_packet = true;
        let world = Several::of_files(dispatch, cpus, config);
        let numbers: Vec<_> = (0..1500).map(|number| to(&[1, 2], number)).collect();
        world.arrive(0, numbers.iter().copied());
        world.loses_none_of(&numbers, 33, format!("{dispatch}, {cpus} CPUs"));
    });
}

/// The packets of a file that wait for a port go on while its RX queue is paused.
#[test]
fn packets_of_a_paused_queue_go_on_when_there_is_space() {
    let mut world = Several::of_files(Dispatch::Direct, 2, PortConfig::default());
    let numbers: Vec<_> = (0..1000).map(|number| to(&[2], number)).collect();
    world.receive(0, numbers.iter().copied());
    let received = world.rig.closed().ports[0].rx[0].packets as usize;
    assert!(received > TX_RING_PACKETS && received < 1000, "{received}");
    assert_eq!(world.rig.command(Queues::rx(0), Command::Pause), Ok(1));
    world.ports[2][0].make_room(usize::MAX);
    world.rig.settle();
    assert!(world.sent(2) == numbers[..received]);
    assert_eq!(world.rig.command(Queues::rx(0), Command::Resume), Ok(1));
    world.rig.settle();
    assert!(world.sent(2) == numbers);
    world.rig.finish();
}

#[test]
fn a_paused_port_loses_what_its_ring_has_no_space_for() {
    let mut world = Several::new(&[1, 1, 1], Dispatch::Adaptive, 2);
    assert_eq!(world.rig.command(Queues::tx(2), Command::Pause), Ok(1));
    world.receive(0, (0..1000).map(|number| to(&[1, 2], number)));
    assert_eq!(world.sent(1).len(), 1000);
    let lost = world.dropped(DropReason::EgressFull);
    assert!(lost > 0 && world.sent(2).is_empty(), "{lost}");
    assert_eq!(world.rig.command(Queues::tx(2), Command::Resume), Ok(1));
    world.rig.settle();
    assert_eq!(world.sent(2).len() as u64, 1000 - lost);
    world.rig.finish();
}

#[test]
fn what_waits_at_the_end_of_a_run_is_counted() {
    everywhere(|dispatch, cpus| {
        let mut world = Several::new(&[1, 1, 1], dispatch, cpus);
        world.ports[2][0].tx().room = 0;
        world.receive(0, (0..700).map(|number| to(&[1, 2], number)));
        let received = world.rig.closed().ledger.received;
        let drops = world.rig.finish().drops;
        let lost = drops.get(DropReason::Shutdown) + drops.get(DropReason::EgressFull);
        assert_eq!(lost, received, "{dispatch}, {cpus} CPUs");
    });
}

#[test]
fn a_device_that_is_removed_ends_the_run_and_is_named() {
    everywhere(|dispatch, cpus| {
        let mut world = Several::new(&[1, 1, 1], dispatch, cpus);
        world.ports[2][0].tx().removed = true;
        world.arrive(0, (0..1000).map(|number| to(&[1, 2], number)));
        world.rig.try_settle();
        let error = world.rig.take_error();
        assert_eq!(error.port, Some(2), "{dispatch}, {cpus} CPUs: {error}");
        assert!(error.to_string().starts_with("third port: "), "{error}");
        let snapshot = world.rig.closed();
        assert_eq!(snapshot.ledger.held, 0, "{dispatch}, {cpus} CPUs");
    });
}

#[test]
fn a_clone_for_which_there_is_no_memory_is_a_loss() {
    let arena = Arena::new(ArenaConfig {
        small_frames: 4096,
        lines: 300,
        ..ArenaConfig::small()
    });
    let arena = arena.expect("memory");
    let mut world = Several::with(&[1, 1, 1], Dispatch::Direct, 2, arena, by_number);
    world.ports[2][0].tx().room = 0;
    world.arrive(0, (0..400).map(|number| to(&[1, 2], number)));
    // Without buffers the fake device always has packets, so the worker does not sleep.
    for step in 0..100 {
        world.rig.run(step % 2);
    }
    let snapshot = world.rig.closed();
    assert!(
        snapshot.drops.get(DropReason::NoBuffer) > 0,
        "{:?}",
        snapshot.drops
    );
    assert_eq!(snapshot.ledger.expanded, snapshot.ledger.received);
}

#[test]
fn applications_send_to_any_of_the_ports() {
    for dispatch in POLICIES {
        let senders = |builder: Ports| builder.senders(2, 1).handler(|_| ByNumber);
        let mut world = Several::with(&[1, 1, 1], dispatch, 2, arena(), senders);
        assert!(world.rig.session.handle(0, 0).is_none());
        let mut handle = world.rig.session.handle(2, 0).expect("announced");
        assert_eq!(handle.try_send(&mut world.rig.burst([5, 6])), Ok(2));
        world.receive(0, [to(&[2], 7)]);
        let mut sent = world.sent(2);
        sent.sort_unstable();
        assert_eq!(sent, [5, 6, to(&[2], 7)], "{dispatch}");
        drop(handle);
        world.rig.finish();
    }
}

/// All ports send to all others at once, on threads.
#[test]
fn threads_among_three_ports_lose_and_reorder_nothing() {
    const EACH: u32 = if cfg!(miri) { 100 } else { 5000 };
    for dispatch in POLICIES {
        let settings = Settings {
            dispatch,
            ..Settings::default()
        };
        let fakes = (Input::Finite, Features::NONE, PortConfig::default());
        let (builder, ports) = several(&[1, 1, 1], &settings, fakes, arena());
        let session = builder.handler(|_| ByNumber).start().expect("it starts");
        let others = |from: usize| (0..3).filter(|port| *port != from).collect::<Vec<_>>();
        for number in 0..EACH {
            for (from, queues) in ports.iter().enumerate() {
                queues[0].arrive([to(&others(from), number) | (from as u32) << 20]);
            }
        }
        let all = |port: usize| ports[port][0].tx().sent.len() == 2 * EACH as usize;
        wait_for("all packets to arrive", || (0..3).all(all));
        for (port, queues) in ports.iter().enumerate() {
            for from in others(port) {
                let sent = queues[0].sent().into_iter();
                let of = sent.filter(|number| number >> 20 == from as u32);
                let of: Vec<_> = of.map(|number| number & 0xffff).collect();
                assert!(of.into_iter().eq(0..EACH), "{dispatch}");
            }
        }
        let report = session.finish();
        assert!(report.error.is_none(), "{:?}", report.error);
        let ledger = closed(report.snapshot).ledger;
        let each = 3 * u64::from(EACH);
        assert_eq!((ledger.received, ledger.expanded), (each, each));
        assert_eq!(ledger.transmitted, 2 * each);
    }
}
