//! Packets in tunnels: what carries them is looked at, and never what is carried.

use super::*;
use crate::offload::GsoKind;
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
    check: impl Fn(&Config, &[Wire], &Output),
) {
    for mode in MODES {
        for semantics in [Semantics::Reversible, Semantics::Stream] {
            for finish in [Finish::Partial, Finish::Complete] {
                let config = Config {
                    mode,
                    finish,
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
fn passed(packets: &[Vec<u8>], state: ChecksumState, why: NotTaken) {
    in_every_way(packets, state, |_, input, output| {
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

/// They are datagrams like any other, and come apart into what went in.
#[test]
fn datagrams_of_a_tunnel_that_have_a_checksum_are_merged_as_datagrams() {
    for between in over_udp(true) {
        for (ipv6, kind) in [(false, GsoKind::UdpV4), (true, GsoKind::UdpV6)] {
            let train = train(&between, ipv6);
            let packets = built(&train, Field::Final);
            let payload = packets[0].len() - train[0].transport() - 8;
            for state in FINAL {
                in_every_way(&packets, state, |config, input, output| {
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

/// Usual for VXLAN. What comes out of segmentation has a checksum, so it would not be the same; in
/// IPv6 it counts as a wrong one.
#[test]
fn datagrams_of_a_tunnel_without_a_checksum_are_never_merged() {
    for between in over_udp(false) {
        for (ipv6, why) in [(false, NotTaken::NoChecksum), (true, NotTaken::BadChecksum)] {
            let packets = built(&train(&between, ipv6), Field::Final);
            for state in FINAL {
                passed(&packets, state, why);
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
            passed(&packets, ChecksumState::None, NotTaken::BadChecksum);
        }
    }
}

/// What is left to do is in the inner packet: joined, nobody would do it for all but the first.
#[test]
fn datagrams_of_a_tunnel_whose_inner_checksum_is_partial_are_never_merged() {
    for between in over_udp(true) {
        for ipv6 in [false, true] {
            let train = train(&between, ipv6);
            let packets = built(&train, Field::Preload);
            let start = train[0].layout(&packets[0]).inner.transport;
            let state = ChecksumState::Partial { start, offset: 16 };
            passed(&packets, state, NotTaken::NoChecksum);
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
                passed(&packets, state, NotTaken::Protocol);
            }
        }
    }
}
