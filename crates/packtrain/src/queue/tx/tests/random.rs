//! Random packets and random answers: each wire packet is sent once and in order, or counted.

use super::*;
use proptest::prelude::*;

pub(super) fn spec() -> impl Strategy<Value = Spec> {
    let kind = prop_oneof![
        Just(GsoKind::TcpV4),
        Just(GsoKind::TcpV6),
        Just(GsoKind::UdpV4),
        Just(GsoKind::UdpV6),
    ];
    let gso = prop_oneof![Just(None), (200..1400_u16).prop_map(Some)];
    let surplus = prop_oneof![8 => Just(0_i8), 1 => -3..6_i8];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (kind, 1..6000_usize, gso, flags, 20..1700_usize, surplus).prop_map(
        |(kind, payload, gso, (ecn, partial, vlan), piece, surplus)| Spec {
            kind,
            payload: if gso.is_some() {
                payload
            } else {
                payload % 1400
            },
            gso,
            ecn,
            partial,
            vlan,
            // At most 64 pieces.
            piece: piece.max(payload / 60 + 1),
            shared: piece % 3 == 0,
            surplus,
        },
    )
}

fn answer() -> impl Strategy<Value = Result<Accepted, Refused>> {
    let feature = (0..9_usize, 0..9_usize).prop_map(|(a, b)| {
        Err(Refused::Feature(
            Features::NAMED[a].0 | Features::NAMED[b].0,
        ))
    });
    prop_oneof![
        6 => Just(COMPLETE),
        6 => Just(PENDING),
        2 => Just(NO_DESCRIPTOR),
        1 => Just(Err(Refused::Busy)),
        1 => Just(Err(Refused::LinkDown)),
        2 => Just(Err(Refused::TooManySegments)),
        1 => Just(Err(Refused::Bad(DropReason::Truncated))),
        2 => feature,
    ]
}

/// Answers that lose no packet.
fn harmless() -> impl Strategy<Value = Result<Accepted, Refused>> {
    prop_oneof![
        4 => Just(COMPLETE),
        4 => Just(PENDING),
        2 => Just(NO_DESCRIPTOR),
        1 => Just(Err(Refused::Busy)),
    ]
}

pub(super) fn features() -> impl Strategy<Value = Features> {
    prop_oneof![
        2 => Just(Features::ALL),
        3 => (0..512_u64).prop_map(Features::from_bits),
    ]
}

#[derive(Debug)]
struct Outcome {
    wire: Vec<Vec<u8>>,
    expected: Vec<Vec<u8>>,
    dropped: u64,
    exact: bool,
}

/// Sends `specs` in `bursts` and checks the balance after each call.
fn run(
    specs: &[Spec],
    features: Features,
    device: Scripted,
    burst_packets: usize,
) -> Result<Outcome, TestCaseError> {
    let arena = arena();
    let mut queue = queue(&arena, features, device);
    let mut expected = Vec::new();
    let mut accounted = 0;
    let mut shared = Vec::new();
    let mut burst = Burst::new();
    let mut id = 0;
    for some in specs.chunks(burst_packets) {
        for spec in some {
            id += 1;
            let packet = spec.build(&arena, id);
            let wire = to_wire(&packet);
            if spec.shared {
                shared.push((packet.try_clone().unwrap(), wire.clone()));
            }
            expected.extend(wire);
            accounted += u64::from(packet.meta().wire_packets);
            burst.push(packet).unwrap();
        }
        queue.transmit(&mut burst).unwrap();
        balance(&queue, accounted, &burst)?;
    }
    let mut calls = 0;
    while queue.transmit(&mut burst).unwrap() != Sent::All {
        calls += 1;
        prop_assert!(calls < 200, "no progress");
        balance(&queue, accounted, &burst)?;
    }
    balance(&queue, accounted, &burst)?;
    prop_assert_eq!(queue.held(), 0);
    queue.reclaim(Instant::default());
    prop_assert_eq!(queue.in_flight(), 0);
    prop_assert_eq!(queue.counters().bad_completions.get(), 0);
    // The bytes that another packet shares were not changed.
    for (packet, wire) in shared.drain(..) {
        prop_assert_eq!(to_wire(&packet), wire);
    }
    assert_all_free(&arena);
    let dropped = queue.drops.snapshot().total();
    let wire = std::mem::take(&mut queue.device_mut().wire);
    Ok(Outcome {
        wire,
        expected,
        dropped,
        exact: specs.iter().all(|spec| spec.surplus == 0),
    })
}

fn balance(queue: &TxQueue<Scripted>, accounted: u64, burst: &Burst) -> Result<(), TestCaseError> {
    let counters = queue.counters().snapshot();
    let held = queue.held() + burst.wire_packets();
    prop_assert_eq!(
        accounted + counters.expanded,
        counters.wire_packets + counters.absorbed + queue.drops.snapshot().total() + held
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_wire_packet_is_sent_once_in_order_or_counted(
        specs in proptest::collection::vec(spec(), 1..12),
        script in proptest::collection::vec(answer(), 0..60),
        features in features(),
        burst_packets in 1..12_usize,
    ) {
        let device = Scripted::new(script);
        let out = run(&specs, features, device, burst_packets)?;
        let mut rest = out.expected.iter();
        for packet in &out.wire {
            prop_assert!(
                rest.any(|expected| expected == packet),
                "a packet came out twice, out of order, or with other bytes"
            );
        }
        if out.exact {
            prop_assert_eq!(out.wire.len() as u64 + out.dropped, out.expected.len() as u64);
        }
    }

    #[test]
    fn a_device_with_fewer_features_than_it_offered_gets_every_packet(
        specs in proptest::collection::vec(spec(), 1..12),
        script in proptest::collection::vec(harmless(), 0..60),
        features in features(),
        without in features(),
        ring in prop_oneof![Just(None), (1..6_usize).prop_map(Some)],
        burst_packets in 1..12_usize,
    ) {
        let device = Scripted { without, ring, ..Scripted::new(script) };
        let out = run(&specs, features, device, burst_packets)?;
        prop_assert_eq!(out.dropped, 0);
        prop_assert_eq!(out.wire, out.expected);
    }
}
