//! The side that does each offload between two ports: a table for each feature, and laws for all
//! combinations.

use super::*;
use crate::policy::dispatch::Dispatch;
use proptest::prelude::*;

fn side(name: &str, rx: Features, tx: Features, wanted: Features) -> Side {
    Side {
        name: name.into(),
        interface: None,
        capabilities: Capabilities {
            queues_max: 8,
            rx,
            tx,
            tx_segments_max: 17,
            tx_gso_segments_max: 17,
            ..Capabilities::default()
        },
        config: PortConfig {
            offload: wanted,
            ..PortConfig::default()
        },
    }
}

fn able(name: &str) -> Side {
    side(name, Features::ALL, Features::ALL, Features::ALL)
}

fn decision(direction: &Direction, feature: Features) -> &Decision {
    let mut all = direction.decisions.iter();
    all.find(|decision| decision.feature == feature)
        .expect("one for every feature")
}

const TX_FEATURES: [Features; 8] = [
    Features::CSUM4,
    Features::CSUM6,
    Features::TSO4,
    Features::TSO6,
    Features::TSO_ECN,
    Features::USO4,
    Features::USO6,
    Features::VLAN,
];

/// Each feature alone, through every combination of device and wanted on both ports.
#[test]
fn who_does_each_feature_and_why() {
    for feature in TX_FEATURES {
        for case in 0..16 {
            let without = |bit: usize| {
                if case & (1 << bit) != 0 {
                    Features::ALL.without(feature)
                } else {
                    Features::ALL
                }
            };
            let (rx, rx_wanted, tx, tx_wanted) = (without(0), without(1), without(2), without(3));
            let from = side("in0", rx, Features::ALL, rx_wanted);
            let to = side("out0", Features::ALL, tx, tx_wanted);
            let plan = plan(&from, &to).expect("a plan");
            let got = decision(&plan.directions[0], feature);
            let has = |device: Features, wanted: Features| {
                device.contains(feature) && wanted.contains(feature)
            };
            // The setting is named before the device: the user can change it.
            let cause = |wanted: Features| {
                if wanted.contains(feature) {
                    "the device does not offer it"
                } else {
                    "switched off by offload="
                }
            };
            let what = described(feature);
            let (who, why) = if !has(rx, rx_wanted) {
                (
                    Who::NotNeeded,
                    format!("in0 delivers no {what}: {}", cause(rx_wanted)),
                )
            } else if !has(tx, tx_wanted) {
                (
                    Who::Software,
                    format!(
                        "in0 delivers {what}, and out0 accepts none: {}",
                        cause(tx_wanted)
                    ),
                )
            } else {
                (
                    Who::Device,
                    format!("in0 delivers {what}, and out0 accepts them"),
                )
            };
            assert_eq!((got.who, &got.why), (who, &why), "{feature:?}, case {case}");
        }
    }
}

#[test]
fn merging_is_the_ingress_devices_where_it_can() {
    for coalesce in [Coalesce::Auto, Coalesce::Off, Coalesce::On] {
        let mut from = able("in0");
        from.config.coalesce = coalesce;
        let direction = &plan(&from, &able("out0")).unwrap().directions[0];
        let got = decision(direction, Features::LARGE_RECEIVE);
        assert_eq!(got.who, Who::Device);
        assert_eq!(got.why, "in0 merges what it receives");
        assert_eq!(direction.coalesce, None);
    }
}

/// Software merges packets that arrive as wire packets and may leave large; every reason against
/// it.
#[test]
fn who_merges_in_software_and_why_not() {
    use Features as F;
    let all = F::ALL.without(F::LARGE_RECEIVE);
    let from = || side("in0", F::CSUM, F::NONE, F::ALL);
    let to = || side("out0", F::NONE, all, F::ALL);
    let decide = |from: &Side, to: &Side| {
        let direction = plan(from, to).unwrap().directions[0].clone();
        let Decision { who, why, .. } = decision(&direction, F::LARGE_RECEIVE).clone();
        assert_eq!(direction.coalesce.is_some(), who == Who::Software, "{why}");
        (direction.coalesce, why)
    };
    let (how, why) = decide(&from(), &to());
    assert_eq!(
        why,
        "packtrain merges TCP/IPv4, TCP/IPv6, UDP/IPv4, UDP/IPv6 from in0, and out0 accepts large \
         packets"
    );
    let usual = Coalescing {
        semantics: Semantics::Reversible,
        mode: Mode::Auto,
        kinds: F::TSO4 | F::TSO6 | F::USO,
        segments_max: 16,
        gro: Gro::default(),
    };
    assert_eq!(how, Some(usual));
    // The offloads that the ingress device may use do not affect software.
    let mut plain = from();
    plain.config.offload = F::NONE;
    assert_eq!(decide(&plain, &to()).0, Some(usual));

    // A device that delivers large packets, as their senders made them, and others.
    let mut mixed = able("in0");
    mixed.capabilities.rx = all;
    let (how, why) = decide(&mixed, &to());
    assert_eq!(how, None);
    assert!(
        why.ends_with("they arrive large (coalesce=on merges the others)"),
        "{why}"
    );
    mixed.capabilities.rx_mixed = true;
    assert_eq!(decide(&mixed, &to()).0, Some(usual));

    let wanted = |coalesce| {
        let mut from = from();
        from.config.coalesce = coalesce;
        from
    };
    for (coalesce, semantics, mode) in [
        (Coalesce::On, Semantics::Reversible, Mode::Auto),
        (Coalesce::Hash, Semantics::Reversible, Mode::Hash),
        (Coalesce::Sorted, Semantics::Reversible, Mode::Sorted),
        (Coalesce::Stream, Semantics::Stream, Mode::Auto),
        (Coalesce::StreamHash, Semantics::Stream, Mode::Hash),
        (Coalesce::StreamSorted, Semantics::Stream, Mode::Sorted),
    ] {
        let expected = Coalescing {
            semantics,
            mode,
            ..usual
        };
        assert_eq!(expected.setting(), coalesce);
        assert_eq!(decide(&wanted(coalesce), &to()).0, Some(expected));
    }
    let against = |from: &Side, to: &Side, cause: &str| {
        let (how, why) = decide(from, to);
        assert_eq!(how, None, "{why}");
        let lead = "packets from in0 are not merged: ";
        assert_eq!(why, format!("{lead}{cause}"));
    };
    against(&wanted(Coalesce::Off), &to(), "switched off by coalesce=");
    let mut none = from();
    none.capabilities.input = Input::None;
    against(&none, &to(), "the port has no input");
    let small = side("out0", F::NONE, F::CSUM, F::ALL);
    against(
        &wanted(Coalesce::On),
        &small,
        "out0 accepts no large packets",
    );
    let mut unwanted = to();
    unwanted.config.offload = F::CSUM;
    against(&from(), &unwanted, "out0 accepts no large packets");
    let mut single = to();
    single.config.segments = Some(2);
    against(
        &from(),
        &single,
        "out0 accepts no packets of several segments",
    );
    let mut file = to();
    file.capabilities.gso_pays = false;
    let cause = "out0 gains nothing from large packets (coalesce=on of in0 merges anyway)";
    against(&from(), &file, cause);
    assert_eq!(decide(&wanted(Coalesce::On), &file).0, Some(usual));
    let large = side("in0", all, F::NONE, F::ALL);
    let cause = "they arrive large (coalesce=on merges the others)";
    against(&large, &to(), cause);

    // Kinds that arrive large are left out, and those that the egress would not take.
    let tcp = side("in0", F::CSUM | F::TSO, F::NONE, F::ALL);
    assert_eq!(decide(&tcp, &to()).0.map(|how| how.kinds), Some(F::USO));
    let four = side("out0", F::NONE, F::CSUM4 | F::TSO4, F::ALL);
    assert_eq!(decide(&from(), &four).0.map(|how| how.kinds), Some(F::TSO4));
    let mut both = large;
    both.config.coalesce = Coalesce::On;
    assert_eq!(decide(&both, &to()).0, Some(usual));
}

/// A feature that fell with another one says so.
#[test]
fn what_a_feature_needs_is_the_reason_when_it_is_missing() {
    use Features as F;
    let reason = |wanted: F, feature: F| {
        let to = side("out0", F::ALL, F::ALL, wanted);
        let plan = plan(&able("in0"), &to).unwrap();
        let got = decision(&plan.directions[0], feature).clone();
        assert_eq!(got.who, Who::Software);
        got.why
    };
    for (wanted, feature) in [
        (F::ALL.without(F::CSUM4), F::TSO4),
        (F::ALL.without(F::CSUM4), F::USO4),
        (F::ALL.without(F::CSUM6), F::TSO6),
        (F::TSO4, F::TSO4),
    ] {
        let why = reason(wanted, feature);
        assert!(
            why.ends_with("it needs the checksum offload, which is not in use"),
            "{why}"
        );
    }
    let why = reason(F::ALL.without(F::TSO4 | F::TSO6), F::TSO_ECN);
    assert!(why.ends_with("it needs TSO, which is not in use"), "{why}");
    // One TSO is enough for it.
    let to = side("out0", F::ALL, F::ALL, F::ALL.without(F::TSO4));
    let plan = plan(&able("in0"), &to).unwrap();
    assert_eq!(decision(&plan.directions[0], F::TSO_ECN).who, Who::Device);
}

#[test]
fn ports_of_one_interface_are_not_joined() {
    let numbered = |name: &str, index, namespace| Side {
        interface: Some(Interface {
            name: name.into(),
            index,
            namespace,
        }),
        ..able("port")
    };
    let of = |name, namespace| numbered(name, None, namespace);
    let here = of("tap0", Some((4, 7)));
    let error = plan(&here, &here).expect_err("one interface");
    let line = "both ports are the interface tap0; name two different interfaces";
    assert_eq!(error.to_string(), line);
    for other in [
        of("tap1", Some((4, 7))),
        of("tap0", Some((4, 8))),
        able("sim0"),
    ] {
        plan(&here, &other).expect("two");
    }
    // The number decides, since names change.
    let here = numbered("tap0", Some(3), Some((4, 7)));
    let renamed = numbered("tap1", Some(3), Some((4, 7)));
    plan(&here, &renamed).expect_err("one interface");
    plan(&here, &of("tap0", Some((4, 7)))).expect_err("one interface");
    for (index, namespace) in [(4, (4, 7)), (3, (4, 8))] {
        let other = numbered("tap0", Some(index), Some(namespace));
        plan(&here, &other).expect("two");
    }
}

#[test]
fn unlike_links_are_refused_in_one_line() {
    let mut tun = able("tun0");
    tun.capabilities.link = LinkType::RawIp;
    assert_eq!(
        plan(&able("tap0"), &tun).unwrap_err().to_string(),
        "cannot join tap0 (Ethernet) and tun0 (raw IP): their packets start with different \
         headers; join two ports of one link type (null:, sim: and a written pcap: take link=)"
    );
    assert!(plan(&tun, &tun).is_ok());
}

#[test]
fn queues_are_one_or_what_is_requested_and_possible() {
    let with = |queues, queues_max| {
        let mut port = able("p0");
        port.config.queues = queues;
        port.capabilities.queues_max = queues_max;
        port
    };
    for (wanted, max, expected) in [(None, 8, 1), (Some(8), 8, 8), (Some(256), 1000, 256)] {
        let plan = plan(&with(wanted, max), &able("other")).unwrap();
        assert_eq!(
            [plan.attach[0].queues, plan.attach[1].queues],
            [expected, 1]
        );
    }
    for (wanted, max, line) in [
        (2, 1, "p0: queues=2 is out of range: the port can have 1"),
        (
            0,
            8,
            "p0: queues=0 is out of range: the port can have 1 to 8",
        ),
        (
            9,
            8,
            "p0: queues=9 is out of range: the port can have 1 to 8",
        ),
        (
            257,
            1000,
            "p0: queues=257 is out of range: the port can have 1 to 256",
        ),
    ] {
        let bad = with(Some(wanted), max);
        assert_eq!(plan(&bad, &able("other")).unwrap_err().to_string(), line);
        assert_eq!(plan(&able("other"), &bad).unwrap_err().to_string(), line);
    }
}

/// `segs=` on a port lowers the limit towards it, keeps one segment back from the advertised limit,
/// and makes the other port receive in pieces, unless that port's settings differ.
#[test]
fn a_segment_limit_works_on_the_way_to_its_port() {
    let mut a = able("a");
    a.config.segments = Some(8);
    let plan_a = plan(&a, &able("b")).unwrap();
    let buffers = |plan: &Plan| {
        plan.attach
            .iter()
            .map(|attach| attach.rx_buffers)
            .collect::<Vec<_>>()
    };
    assert_eq!(buffers(&plan_a), [RxBuffers::Whole, RxBuffers::PIECES]);
    let [ab, ba] = &plan_a.directions[..] else {
        panic!("two directions")
    };
    assert_eq!((ab.limits.segments_max, ab.limits.advertised()), (17, 16));
    assert_eq!((ba.limits.segments_max, ba.limits.gso_segments_max), (8, 8));
    assert_eq!(ba.limits.advertised(), 7);

    let mut b = able("b");
    b.config.rx_buffers = Some(RxBuffers::Whole);
    assert_eq!(buffers(&plan(&a, &b).unwrap()), [RxBuffers::Whole; 2]);
    b.config.segments = Some(100);
    a.config.rx_buffers = None;
    let both = plan(&a, &b).unwrap();
    assert_eq!(buffers(&both), [RxBuffers::PIECES, RxBuffers::Whole]);
    // Never above the device's own.
    assert_eq!(both.directions[0].limits.segments_max, 17);
    b.config.segment_headroom = 0;
    b.config.fit = Fit::Collapse;
    let limits = plan(&a, &b).unwrap().directions[0].limits;
    assert_eq!(
        (limits.advertised(), limits.fit),
        (limits.segments_max, Fit::Collapse)
    );
    b.config.gso_segments = Some(9);
    for (segments, pieces) in [(Some(5), true), (None, true)] {
        b.config.segments = segments;
        let plan = plan(&a, &b).unwrap();
        let limits = plan.directions[0].limits;
        let most = (segments.unwrap_or(17), 9);
        assert_eq!((limits.segments_max, limits.gso_segments_max), most);
        assert_eq!(plan.attach[0].rx_buffers == RxBuffers::PIECES, pieces);
    }
    (b.config.segments, b.config.gso_segments) = (Some(100), None);
    a.config.segments = Some(1);
    assert_eq!(plan(&a, &b).unwrap().directions[1].limits.advertised(), 1);
    let pieces = |bytes| Some(RxBuffers::Pieces { bytes });
    b.config.rx_buffers = pieces(512);
    let short = plan(&a, &b).unwrap();
    assert_eq!(short.attach[1].rx_buffers, RxBuffers::Pieces { bytes: 512 });
    for bytes in [0, 255, 1793] {
        b.config.rx_buffers = pieces(bytes);
        let error = plan(&a, &b).unwrap_err().to_string();
        let want = "out of range: a small frame takes 256 to 1792";
        assert_eq!(error, format!("b: pieces of {bytes} bytes are {want}"));
    }
    let none = plan(&able("a"), &able("b")).unwrap();
    assert_eq!(buffers(&none), [RxBuffers::Whole; 2]);
}

#[test]
fn notes_of_both_ports_are_kept_in_order() {
    let (mut a, mut b) = (able("a"), able("b"));
    a.capabilities.notes = vec!["one".to_owned(), "two".to_owned()];
    b.capabilities.notes = vec!["three".to_owned()];
    assert_eq!(
        plan(&a, &b).unwrap().notes,
        ["a: one", "a: two", "b: three"]
    );
}

fn features() -> impl Strategy<Value = Features> {
    prop::sample::subsequence(Features::NAMED.to_vec(), 0..=9).prop_map(|some| {
        some.into_iter()
            .fold(Features::NONE, |all, (feature, _)| all | feature)
    })
}

fn any_side(name: &'static str) -> impl Strategy<Value = Side> {
    (
        features(),
        features(),
        features(),
        prop::option::of(1..=128usize),
        1..=40usize,
    )
        .prop_map(move |(rx, tx, wanted, segments, most)| {
            let mut side = side(name, rx, tx, wanted);
            side.config.segments = segments;
            side.capabilities.tx_segments_max = most;
            side
        })
}

/// The laws of one direction.
fn check(from: &Side, to: &Side, attach: &Attach, direction: &Direction) {
    let within = |device: Features, side: &Side| device.intersection(side.config.offload);
    assert!(within(from.capabilities.rx, from).contains(attach.rx));
    assert!(within(to.capabilities.tx, to).contains(direction.tx));
    for set in [attach.rx, direction.tx] {
        assert_eq!(set.consistent(), set);
        for (gso, csum) in [
            (Features::TSO4, Features::CSUM4),
            (Features::USO4, Features::CSUM4),
            (Features::TSO6, Features::CSUM6),
            (Features::USO6, Features::CSUM6),
        ] {
            assert!(!set.contains(gso) || set.contains(csum));
        }
        let tso = Features::TSO4 | Features::TSO6;
        assert!(!set.contains(Features::TSO_ECN) || !set.intersection(tso).is_empty());
    }
    let listed: Vec<_> = direction.decisions.iter().map(|d| d.feature).collect();
    assert_eq!(listed, Features::NAMED.map(|(feature, _)| feature));
    for Decision { feature, who, why } in &direction.decisions {
        if *feature != Features::LARGE_RECEIVE {
            assert_eq!(
                attach.rx.contains(*feature),
                *who != Who::NotNeeded,
                "{why}"
            );
        }
        if *feature != Features::LARGE_RECEIVE && *who != Who::NotNeeded {
            assert_eq!(
                direction.tx.contains(*feature),
                *who == Who::Device,
                "{why}"
            );
        }
        let [names_from, names_to] = [from, to].map(|side| why.contains(side.name.exact()));
        assert!(names_from && !why.contains('\n'), "{why}");
        assert!(names_to || *who == Who::NotNeeded || *feature == Features::LARGE_RECEIVE);
    }
    if let Some(how) = &direction.coalesce {
        assert!(!how.kinds.is_empty() && direction.tx.contains(how.kinds));
        assert!(how.kinds.intersection(attach.rx).is_empty());
        assert!((2..=SEGMENTS_MAX).contains(&how.segments_max));
        assert!(how.segments_max <= direction.limits.advertised());
    }
    let limits = &direction.limits;
    assert!(limits.segments_max >= 1 && limits.segments_max <= to.capabilities.tx_segments_max);
    assert!(
        to.config
            .segments
            .is_none_or(|wanted| limits.segments_max <= wanted)
    );
    assert!(limits.advertised() >= 1);
    assert!(limits.advertised() < limits.segments_max.min(limits.gso_segments_max).max(2));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn laws_of_every_plan(a in any_side("a0"), b in any_side("b0")) {
        let both = plan(&a, &b).unwrap();
        check(&a, &b, &both.attach[0], &both.directions[0]);
        check(&b, &a, &both.attach[1], &both.directions[1]);
        // The order in which the ports are named changes nothing else.
        let swapped = plan(&b, &a).unwrap();
        let mut directions = swapped.directions;
        directions.reverse();
        directions.iter_mut().for_each(|direction| direction.ports.reverse());
        prop_assert_eq!(directions, both.directions);
    }

    /// Fewer requested offloads never make a device do more.
    #[test]
    fn fewer_requested_offloads_never_add_work_to_a_device(
        a in any_side("a0"), b in any_side("b0"), less in features(),
    ) {
        let before = plan(&a, &b).unwrap();
        let mut modest = b.clone();
        modest.config.offload = b.config.offload.without(less);
        let after = plan(&a, &modest).unwrap();
        prop_assert!(before.directions[0].tx.contains(after.directions[0].tx));
        prop_assert!(before.attach[1].rx.contains(after.attach[1].rx));
        prop_assert_eq!(before.attach[0], after.attach[0]);
    }
}

#[test]
fn each_direction_has_a_worker_where_large_packets_arrive() {
    let workers = |a: Features, b: Features| {
        let (a, b) = (
            side("a", a, a, Features::ALL),
            side("b", b, b, Features::ALL),
        );
        plan(&a, &b).expect("a plan").worker_per_direction()
    };
    let tso = Features::CSUM | Features::TSO;
    assert!(!workers(Features::NONE, Features::NONE));
    assert!(!workers(Features::CSUM, Features::NONE));
    assert!(workers(tso, tso));
    assert!(workers(tso, Features::NONE));
    assert!(workers(Features::CSUM, tso));
    assert!(workers(tso | Features::USO, tso));
}

/// The longest large packet has as many segments as packets for its egress are built with. A note
/// names the limit, or what longer packets cost.
#[test]
fn large_packets_are_limited_to_what_their_egress_takes() {
    let all = Features::ALL.without(Features::LARGE_RECEIVE);
    let pieces = |bytes| RxBuffers::Pieces { bytes };
    let of = |buffers, change: fn(&mut Side, &mut Side)| {
        let mut from = side("in0", all, all, Features::ALL);
        let mut to = side("out0", all, all, Features::ALL);
        from.capabilities.limits_large = true;
        from.config.rx_buffers = Some(buffers);
        to.capabilities.tx_gso_segments_max = 64;
        to.capabilities.tx_segments_max = 64;
        to.config.segments = Some(24);
        change(&mut from, &mut to);
        let plan = plan(&from, &to).unwrap();
        (plan.attach[0].large_bytes_max, plan.notes)
    };
    let (limit, notes) = of(pieces(512), |_, _| {});
    assert_eq!(limit, Some(23 * 512));
    let said = "in0: its kernel builds packets of at most 11776 bytes, since out0 is given at most \
                23 segments (gso-limit=off of in0 lifts it)";
    assert_eq!(notes, [said]);
    let bytes = |buffers, change| of(buffers, change).0;
    assert_eq!(
        bytes(pieces(512), |_, to| to.config.segment_headroom = 0),
        Some(24 * 512)
    );
    assert_eq!(bytes(RxBuffers::Whole, |_, _| {}), None);
    let split = |_: &mut Side, to: &mut Side| to.capabilities.tx_segment_bytes_max = 300;
    assert_eq!(
        bytes(pieces(512), split),
        Some(11 * 512),
        "each piece is two segments"
    );
    assert_eq!(bytes(RxBuffers::Whole, split), Some(23 * 300));
    let small = RxBuffers::PIECES.small_bytes() as u32;
    let memory = |_: &mut Side, to: &mut Side| {
        to.capabilities.tx_memory = TxMemory::SmallFrames;
    };
    assert_eq!(bytes(RxBuffers::Whole, memory), Some(23 * small));
    let few = |_: &mut Side, to: &mut Side| to.config.segments = Some(2);
    assert_eq!(bytes(pieces(256), few), Some(GSO_BYTES_MIN as u32));
    // What does not arrive large, or is cut in software, has no limit.
    assert_eq!(
        bytes(pieces(512), |from, _| from.config.offload = Features::CSUM),
        None
    );
    assert_eq!(
        bytes(pieces(512), |_, to| to.config.offload = Features::CSUM),
        None
    );

    let (limit, notes) = of(pieces(512), |from, _| {
        from.capabilities.limits_large = false;
    });
    assert_eq!(limit, None);
    let said = "in0: its packets of more than 11776 bytes are copied, since out0 is given at most \
                23 segments; to avoid that, receive in longer pieces (rx=), or allow more \
                segments (segs=)";
    assert_eq!(notes, [said]);
    let (_, notes) = of(pieces(512), |from, to| {
        from.capabilities.limits_large = false;
        from.interface = Some(Interface {
            name: "eth7".into(),
            index: None,
            namespace: None,
        });
        to.config.fit = Fit::Collapse;
    });
    let said = "in0: its packets of more than 11776 bytes are merged in place, or lost, since out0 \
                is given at most 23 segments; to avoid that, lower its limit (ip link set dev \
                eth7 gso_max_size 11776), or receive in longer pieces (rx=), or allow more \
                segments (segs=)";
    assert_eq!(notes, [said]);
}

#[test]
fn senders_on_all_cpus_drain_directly() {
    let adapted = |dispatch, senders, cpus| {
        let demand = Demand {
            dispatch,
            senders: std::array::from_fn(|port| if port == 0 { senders } else { 0 }),
            cpus,
        };
        let mut plan = plan_one(&able("eth0")).unwrap().working(&demand);
        let path = plan.paths.remove(0);
        assert_eq!(path.dispatch, dispatch);
        let is_said = path.why.contains("they drain directly");
        assert_eq!(is_said, path.adapted != dispatch, "{}", path.why);
        path.adapted
    };
    for (senders, cpus) in [(2, 2), (4, 2), (4, 4), (2, 1)] {
        assert_eq!(adapted(Dispatch::Adaptive, senders, cpus), Dispatch::Direct);
        assert_eq!(
            adapted(Dispatch::Deferred, senders, cpus),
            Dispatch::Deferred
        );
    }
    for (senders, cpus) in [(0, 1), (1, 1), (1, 2), (3, 4)] {
        let expected = Dispatch::Adaptive;
        assert_eq!(
            adapted(expected, senders, cpus),
            expected,
            "{senders} on {cpus}"
        );
    }
}

/// Senders are announced for the first port.
#[test]
fn a_worker_serves_senders_if_they_send_to_all_its_queues() {
    let with = |queues| {
        let mut side = able("eth0");
        side.config.queues = Some(queues);
        side
    };
    let serves = |plan: Plan, senders, cpus| {
        let plan = plan.working(&Demand {
            senders: std::array::from_fn(|port| if port == 0 { senders } else { 0 }),
            cpus,
            ..Demand::default()
        });
        let workers = 0..plan.workers.len();
        Vec::from_iter(workers.map(|worker| plan.serves(worker)))
    };
    let (devices, senders) = (Serves::Devices, Serves::Senders);
    let one = |queues| plan_one(&with(queues)).unwrap();
    assert_eq!(serves(one(1), 0, 2), [devices]);
    assert_eq!(serves(one(1), 1, 2), [devices, senders]);
    assert_eq!(serves(one(2), 3, 4), [devices, devices, senders, senders]);
    // Each has the RX queue of a pair and the TX queue of the other.
    assert_eq!(serves(one(2), 3, 2), [devices, devices]);
    let mut other = able("eth1");
    let joined = |other: &Side| plan(&with(1), other).unwrap();
    assert_eq!(serves(joined(&other), 1, 4).last(), Some(&senders));
    // The last two workers, or the last one, have a TX queue of each port.
    other.config.work.shared = true;
    let apart = serves(joined(&other), 1, 8);
    assert_eq!(apart[apart.len() - 2..], [senders, devices]);
    assert!(!serves(joined(&other), 1, 2).contains(&senders));
    assert!(!serves(joined(&other), 0, 8).contains(&senders));
}

#[test]
fn among_several_ports_there_is_a_direction_for_each_two() {
    let plain = side("c0", Features::NONE, Features::NONE, Features::ALL);
    let sides = [able("a0"), able("b0"), plain];
    let plan = plan_among(&sides).unwrap();
    let names = plan.directions.iter();
    let names = names.map(|one| (one.from.exact(), one.to.exact(), one.ports));
    let names: Vec<_> = names.collect();
    let expected = [
        ("a0", "b0", [0, 1]),
        ("a0", "c0", [0, 2]),
        ("b0", "a0", [1, 0]),
        ("b0", "c0", [1, 2]),
        ("c0", "a0", [2, 0]),
        ("c0", "b0", [2, 1]),
    ];
    assert_eq!(names, expected);
    assert_eq!(
        decision(&plan.directions[0], Features::TSO4).who,
        Who::Device
    );
    assert_eq!(
        decision(&plan.directions[1], Features::TSO4).who,
        Who::Software
    );
    for (port, side) in sides.iter().enumerate() {
        assert_eq!(
            (&plan.from(port).from, &plan.to(port).to),
            (&side.name, &side.name)
        );
        assert_eq!(plan.egress(port), None);
        assert_eq!(plan.paths[port].kind, PathKind::Shared);
        assert!(plan.paths[port].why.contains("several ports"));
    }
    assert!(plan.among && plan.worker_per_direction());
}

/// A packet is merged before its egress is chosen.
#[test]
fn among_several_ports_packets_are_merged_if_each_other_port_gains() {
    let from = side("in0", Features::CSUM, Features::NONE, Features::ALL);
    let gains = |name, tx| {
        let mut side = side(name, Features::ALL, tx, Features::ALL);
        side.capabilities.gso_pays = true;
        side
    };
    let (all, tcp) = (
        Features::ALL,
        Features::CSUM | Features::TSO4 | Features::TSO6,
    );
    let merged = |others: [Side; 2]| {
        let [b, c] = others;
        let plan = plan_among(&[from.clone(), b, c]).unwrap();
        let [first, second] = &plan.directions[..2] else {
            panic!("six directions")
        };
        assert_eq!(first.coalesce, second.coalesce);
        let why = |one| decision(one, Features::LARGE_RECEIVE).clone();
        assert_eq!(why(first).who, why(second).who);
        (
            first.coalesce.map(|how| how.kinds),
            why(first).why,
            why(second).why,
        )
    };
    let (kinds, one, other) = merged([gains("b0", all), gains("c0", tcp)]);
    assert_eq!(kinds, Some(Features::TSO4 | Features::TSO6));
    assert!(
        one.ends_with("TCP/IPv6 from in0, and each other port accepts large packets"),
        "{one}"
    );
    assert!(other.contains("TCP/IPv4, TCP/IPv6 from in0"), "{other}");
    let (kinds, one, other) = merged([gains("b0", all), gains("c0", Features::NONE)]);
    assert_eq!(kinds, None);
    assert_eq!(one, other);
    assert!(one.ends_with("c0 accepts no large packets"), "{one}");
    let udp = Features::CSUM | Features::USO;
    let (kinds, one, _) = merged([gains("b0", tcp), gains("c0", udp)]);
    assert_eq!(kinds, None);
    assert!(one.contains("no kind of large packet"), "{one}");
}

#[test]
fn ports_that_cannot_be_joined_are_refused_among_several() {
    let refused = |sides: &[Side]| plan_among(sides).unwrap_err().0;
    let many = |count: usize| (0..count).map(|_| able("a0")).collect::<Vec<_>>();
    assert!(refused(&many(1)).ends_with("2 to 1024 of them, not 1"));
    assert!(refused(&many(1025)).ends_with("not 1025"));
    assert_eq!(plan_among(&many(16)).unwrap().directions.len(), 16 * 15);
    // Of more ports, each begins one direction and ends one.
    let of_many = plan_among(&many(1024)).unwrap();
    assert!((0..1024).all(|port| of_many.from(port).ports == [port, (port + 1) % 1024]));
    assert!((0..1024).all(|port| of_many.to(port).ports[1] == port));
    let mut ip = able("c0");
    ip.capabilities.link = LinkType::RawIp;
    let line = refused(&[able("a0"), able("b0"), ip]);
    assert!(
        line.starts_with("cannot join a0 (Ethernet) and c0 (raw IP): "),
        "{line}"
    );
}

#[test]
fn the_shorter_mtu_counts_and_is_named_where_longer_packets_may_come() {
    let with = |name: &str, device, asked| {
        let mut side = able(name);
        side.capabilities.mtu = device;
        side.config.mtu = asked;
        side
    };
    for (device, asked, mtu) in [
        (None, None, None),
        (Some(1500), None, Some(1500)),
        (None, Some(1400), Some(1400)),
        (Some(1500), Some(1400), Some(1400)),
        (Some(1500), Some(9000), Some(1500)),
    ] {
        let plan = plan(&with("in0", Some(1500), None), &with("out0", device, asked)).unwrap();
        assert_eq!(plan.to(1).limits.mtu.get(), mtu);
        let note = "in0: its MTU is 1500, and that of out0 1400: what is longer is dropped";
        let noted = plan.notes.iter().find(|line| line.starts_with(note));
        assert_eq!(noted.is_some(), mtu == Some(1400), "{:?}", plan.notes);
        if let Some(noted) = noted {
            assert!(noted.contains("raise mtu= of out0"), "{noted}");
        }
    }
}
