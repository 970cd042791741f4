//! Packets in tunnels: the outer headers are read, the inner ones never.

use super::*;
use crate::layout::TunnelPorts;
use crate::offload::GsoKind;
use crate::test_packets::frame::{tcp4, udp4};
use crate::test_packets::tunnel::{Between, Carried, GRE};
use crate::test_packets::{Field, Spec};

const COUNT: u16 = if cfg!(miri) { 3 } else { 6 };

/// Consecutive packets of one TCP flow, each in a packet of its own; the last one is shorter.
fn train(between: &Between, ipv6: bool) -> Vec<Carried> {
    let carried = |index: u16| {
        let spec = Spec::tcp4(if index + 1 == COUNT { 77 } else { 300 });
        let inner = Spec {
            id: 100 + index,
            sequence: 1 + 300 * u32::from(index),
            ..match between {
                Between::Geneve { .. } => spec,
                _ => spec.ethernet(),
            }
        };
        Carried {
            ipv6,
            id: 65_533_u16.wrapping_add(index),
            ..Carried::new(between.clone(), inner)
        }
    };
    (0..COUNT).map(carried).collect()
}

fn over_udp(checksum: bool) -> [Between; 2] {
    let options = 3;
    [
        Between::Vxlan { checksum },
        Between::Geneve { checksum, options },
    ]
}

const FINAL: [ChecksumState; 2] = [ChecksumState::None, ChecksumState::Unnecessary];

/// Pushes them in every mode, semantics and finish; `check` gets what went in and what came out.
fn in_every_way(
    packets: &[Vec<u8>],
    state: ChecksumState,
    tunnels: Option<TunnelPorts>,
    check: impl Fn(&Config, &[Wire], &Output),
) {
    for mode in MODES {
        for semantics in [Semantics::Reversible, Semantics::Stream] {
            for finish in [Finish::Partial, Finish::Complete] {
                let config = Config {
                    mode,
                    finish,
                    tunnels,
                    ..config(semantics, LinkType::Ethernet)
                };
                let wire = |bytes: &Vec<u8>| Wire::new(bytes.clone(), state);
                let input: Vec<Wire> = packets.iter().map(wire).collect();
                let (output, _) = run(config, vec![Step::Burst(input.clone())]);
                check(&config, &input, &output);
                check_order(&output);
            }
        }
    }
}

/// All of them come out as they came, for this reason.
fn passed(packets: &[Vec<u8>], state: ChecksumState, tunnels: Option<TunnelPorts>, why: NotTaken) {
    in_every_way(packets, state, tunnels, |_, input, output| {
        assert_eq!(output.len(), input.len());
        for ((wire, done), came) in output.iter().zip(input) {
            assert_eq!(*done, Done::Passed(why));
            assert_eq!(wire.bytes, came.bytes);
        }
    });
}

fn built(train: &[Carried], field: Field) -> Vec<Vec<u8>> {
    train.iter().map(|carried| carried.build(field)).collect()
}

const BY_DEFAULT: Option<TunnelPorts> = Some(TunnelPorts::KNOWN);

/// tailscale/tailscale#11026, CVE-2024-35884: wireguard-go merges by the outer header, and a kernel
/// without 3d010c8031e3 that receives the result for one of its own tunnels loses it.
#[test]
fn tailscale_11026_datagrams_of_a_tunnel_are_not_merged() {
    for between in over_udp(true) {
        for ipv6 in [false, true] {
            let packets = built(&train(&between, ipv6), Field::Final);
            for state in FINAL {
                passed(&packets, state, BY_DEFAULT, NotTaken::Tunnel);
            }
            let start = train(&between, ipv6)[0].transport() as u16;
            let partial = ChecksumState::Partial { start, offset: 6 };
            passed(&packets, partial, BY_DEFAULT, NotTaken::Tunnel);
        }
    }
}

/// The way from a tunnel's port has the same fate, and other ports have another. What came before
/// one of them, and is held, has its first packet looked at in the short way.
#[test]
fn either_port_makes_a_tunnel_and_no_other() {
    let datagrams = |ports| {
        let first = Frame { ports, ..udp4(0) };
        frame::train(&first, &[100; 4])
    };
    let cases = [
        ((5000, 4789), true),
        ((4789, 5000), true),
        ((5000, 6081), true),
        ((6081, 5000), true),
        ((5000, 8472), true),
        ((8472, 5000), true),
        ((5000, 4790), true),
        ((5000, 4788), false),
        ((0, 5000), false),
        ((6082, 5000), false),
        ((18450, 49431), false),
    ];
    for (ports, is_tunnel) in cases {
        for semantics in [Semantics::Reversible, Semantics::Stream] {
            for tunnels in [BY_DEFAULT, None] {
                let config = Config {
                    tunnels,
                    ..config(semantics, LinkType::RawIp)
                };
                let mut input = vec![datagrams((1, 2))[0].verified()];
                input.extend(datagrams(ports).iter().map(Frame::verified));
                let (output, stats) = run(config, vec![Step::Burst(input)]);
                let refused = if is_tunnel && tunnels.is_some() { 4 } else { 0 };
                assert_eq!(stats.not_taken.get(NotTaken::Tunnel), refused, "{ports:?}");
                assert_eq!(stats.not_taken.total(), refused, "{ports:?}");
                assert_eq!(output.len(), if refused == 4 { 5 } else { 2 });
                check_order_of_rest(&output);
            }
        }
    }
    // TCP has such ports, too.
    let tcp = Frame {
        ports: (5000, 4789),
        ..tcp4(0)
    };
    reversible(&frame::train(&tcp, &[100; 4]), &[400]);
}

/// All but the first packet, which is of another flow, in order.
#[track_caller]
fn check_order_of_rest(output: &Output) {
    let ids = output.iter().flat_map(|(wire, _)| wire.ids.clone());
    assert!(ids.filter(|id| *id > 0).is_sorted());
}

/// Where it is asked for, they are datagrams like any other, and come apart into what went in.
#[test]
fn datagrams_of_a_tunnel_that_have_a_checksum_are_merged_as_datagrams() {
    for between in over_udp(true) {
        for (ipv6, kind) in [(false, GsoKind::UdpV4), (true, GsoKind::UdpV6)] {
            let train = train(&between, ipv6);
            let packets = built(&train, Field::Final);
            let payload = packets[0].len() - train[0].transport() - 8;
            for state in FINAL {
                in_every_way(&packets, state, None, |config, input, output| {
                    assert_eq!(output.len(), 1, "{between:?}, {state:?}");
                    let merged = merged(&output[0].1);
                    let gso = merged.gso.unwrap();
                    assert_eq!((gso.kind, usize::from(gso.size.get())), (kind, payload));
                    assert_eq!(merged.pieces, COUNT);
                    check_restored(config, input, output);
                });
            }
        }
    }
}

/// Usual for VXLAN. Segmentation writes a checksum, so the result would not be the same; in IPv6 it
/// counts as wrong.
#[test]
fn datagrams_of_a_tunnel_without_a_checksum_are_never_merged() {
    for between in over_udp(false) {
        for (ipv6, why) in [(false, NotTaken::NoChecksum), (true, NotTaken::BadChecksum)] {
            let packets = built(&train(&between, ipv6), Field::Final);
            for state in FINAL {
                passed(&packets, state, BY_DEFAULT, why);
                passed(&packets, state, None, why);
            }
        }
    }
}

#[test]
fn datagrams_of_a_tunnel_with_a_wrong_checksum_are_never_merged() {
    for between in over_udp(true) {
        for ipv6 in [false, true] {
            let mut packets = built(&train(&between, ipv6), Field::Final);
            for packet in &mut packets {
                *packet.last_mut().unwrap() ^= 1;
            }
            passed(&packets, ChecksumState::None, None, NotTaken::BadChecksum);
        }
    }
}

/// The partial checksum is in the inner packet: merging would leave all but the first unfinished.
#[test]
fn datagrams_of_a_tunnel_whose_inner_checksum_is_partial_are_never_merged() {
    for between in over_udp(true) {
        for ipv6 in [false, true] {
            let train = train(&between, ipv6);
            let packets = built(&train, Field::Preload);
            let start = train[0].layout(&packets[0]).inner.transport;
            let state = ChecksumState::Partial { start, offset: 16 };
            passed(&packets, state, None, NotTaken::NoChecksum);
        }
    }
}

#[test]
fn packets_in_gre_are_passed_on() {
    let with_checksum = Between::Gre {
        checksum: true,
        key: true,
        sequence: false,
    };
    for between in [GRE, with_checksum] {
        for ipv6 in [false, true] {
            let packets = built(&train(&between, ipv6), Field::Final);
            for state in FINAL {
                passed(&packets, state, BY_DEFAULT, NotTaken::Tunnel);
            }
        }
    }
}

/// Labels of MPLS and sessions of PPPoE: the packet behind them is not parsed.
#[test]
fn packets_behind_mpls_and_pppoe_are_passed_on() {
    let inner = tcp4(0).bytes();
    for (ethertype, header) in [
        ([0x88, 0x47], &[0, 1, 0x41, 64][..]),
        ([0x88, 0x64], &[0x11, 0, 0, 7, 0, 42, 0, 0x21]),
    ] {
        let bytes = [&[2; 12][..], &ethertype, header, &inner].concat();
        let wire = Wire {
            bytes,
            ..tcp4(0).verified()
        };
        let config = config(Semantics::Reversible, LinkType::Ethernet);
        let (output, _) = run(config, vec![Step::Push(wire)]);
        assert_eq!(output[0].1, Done::Passed(NotTaken::Tunnel));
    }
}
