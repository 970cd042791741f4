//! Segmentation and fragmentation.

use std::num::NonZeroU16;

use crate::oracle::{Cut, Headers, PACKET_MAX, with_dpdk};
use crate::test_packets::frame::{Frame, tcp4, timestamps, udp4};
use crate::test_packets::tunnel::{Between, Carried, GRE};
use crate::test_packets::{ACK, CWR, ECE, FIN, Field, PSH, Spec, URG};
use crate::{Random, rounds};
use packtrain_offload::fragment::Fragmenter;
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::{ChecksumState, Ecn, Gso, GsoKind, LinkType};
use packtrain_offload::segment::Segmenter;

fn layout_of(packet: &[u8]) -> Layout {
    Layout::parse(LinkType::Ethernet, packet, packet.len() as u32).unwrap()
}

fn gso(size: usize) -> Gso {
    Gso::new(GsoKind::TcpV4, NonZeroU16::new(size as u16).unwrap())
}

/// Every segment with its checksums.
fn ours(packet: &[u8], segmenter: &Segmenter) -> Vec<Vec<u8>> {
    let segment = |index| {
        let mut out = vec![0; segmenter.wire_bytes(index)];
        segmenter.write_segment(index, packet, &mut out).unwrap();
        out
    };
    (0..segmenter.segments()).map(segment).collect()
}

fn headers_of(frame: &Frame) -> Headers {
    Headers {
        l2: 14 + 4 * frame.vlans.len() as u32,
        l3: 20 + frame.ip_options.len() as u32,
        l4: if frame.tcp {
            20 + frame.options.len() as u32
        } else {
            8
        },
        ..Headers::default()
    }
}

fn header_bytes(headers: Headers) -> usize {
    (headers.outer_l2 + headers.outer_l3 + headers.l2 + headers.l3 + headers.l4) as usize
}

#[track_caller]
fn assert_same(ours: &[Vec<u8>], theirs: &[Vec<u8>], case: &str) {
    assert_eq!(ours.len(), theirs.len(), "segments, {case}");
    for (index, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        let at = ours.iter().zip(theirs).position(|(a, b)| a != b);
        assert!(ours == theirs, "segment {index} differs at {at:?}, {case}");
    }
}

/// A frame and a size it is cut into, 1000 segments at most.
fn random_tcp(random: &mut Random) -> (Frame, usize) {
    let mut frame = tcp4(0).ethernet();
    let tags = random.below(3);
    frame.vlans = (0..tags).map(|_| (0x8100, random.next() as u16)).collect();
    if random.one_in(3) {
        frame.ip_options = vec![1; 4 * random.below(11)];
    }
    frame.options = match random.below(3) {
        0 => vec![],
        1 => timestamps(random.next() as u32, random.next() as u32),
        _ => {
            let words = random.below(11);
            random.bytes(words * 4)
        }
    };
    frame.tos = random.next() as u8;
    frame.ttl = random.next() as u8;
    frame.id = random.next() as u16;
    frame.fragment = if random.one_in(2) { 0x4000 } else { 0 };
    frame.sequence = random.next() as u32;
    frame.acknowledgement = random.next() as u32;
    frame.window = random.next() as u16;
    frame.urgent = random.next() as u16;
    frame.reserved = random.next() as u8 & 15;
    for flag in [FIN, PSH, URG, ECE, CWR] {
        frame.flags |= if random.one_in(3) { flag } else { 0 };
    }
    let size = 8 + random.below(3000);
    let most = (PACKET_MAX - header_bytes(headers_of(&frame))).min(size * 1000);
    let bytes = match random.below(8) {
        0 => most,
        1 => size * (most / size),
        _ => 1 + random.below(most.min(20_000)),
    };
    frame.payload = random.bytes(bytes);
    (frame, size)
}

/// DPDK does not treat CWR: it is on every segment, as with [`Ecn::Accurate`].
#[test]
fn tcp_segments_are_those_of_rte_gso() {
    with_dpdk("TCP segments", |dpdk| {
        for round in 0..rounds() {
            let mut random = Random::new("tcp", round);
            let (frame, size) = random_tcp(&mut random);
            let packet = frame.bytes();
            let headers = headers_of(&frame);
            let fixed = frame.fragment == 0x4000 && random.one_in(2);
            let mut gso = gso(size).with_ecn(Ecn::Accurate);
            if fixed {
                gso = gso.with_fixed_id();
            }
            let bytes = packet.len() as u32;
            let segmenter = Segmenter::new(&packet, &layout_of(&packet), gso, bytes).unwrap();
            let wire = header_bytes(headers) + size;
            let theirs = dpdk.segment(&packet, headers, Cut::Tcp, wire, fixed);
            let case = format!("seed {round}: {} in {size}", frame.payload.len());
            assert_same(&ours(&packet, &segmenter), &theirs, &case);
        }
    });
}

#[test]
fn rte_gso_leaves_cwr_on_every_segment_and_rfc_3168_wants_it_on_the_first() {
    with_dpdk("CWR", |dpdk| {
        let frame = Frame {
            flags: ACK | CWR | PSH,
            ..tcp4(3000).ethernet()
        };
        let packet = frame.bytes();
        let headers = headers_of(&frame);
        let gso = gso(1000).with_ecn(Ecn::Cwr);
        let segmenter = Segmenter::new(&packet, &layout_of(&packet), gso, packet.len() as u32);
        let ours = ours(&packet, &segmenter.unwrap());
        let theirs = dpdk.segment(
            &packet,
            headers,
            Cut::Tcp,
            header_bytes(headers) + 1000,
            false,
        );
        let flags =
            |segments: &[Vec<u8>]| segments.iter().map(|s| s[14 + 20 + 13]).collect::<Vec<_>>();
        assert_eq!(flags(&ours), [ACK | CWR, ACK, ACK | PSH]);
        assert_eq!(flags(&theirs), [ACK | CWR, ACK | CWR, ACK | CWR | PSH]);
        for (mut ours, mut theirs) in ours.into_iter().zip(theirs) {
            // Flags and checksum aside, they are equal.
            for segment in [&mut ours, &mut theirs] {
                segment[47] = 0;
                segment[50..52].fill(0);
            }
            assert_eq!(ours, theirs);
        }
    });
}

/// Headers of VXLAN or GRE around TCP over IPv4.
fn headers_of_tunnel(carried: &Carried) -> Headers {
    let between = match carried.between {
        Between::Gre { key, .. } => 4 + if key { 4 } else { 0 },
        _ => 8 + 8 + 14,
    };
    Headers {
        outer_l2: carried.network() as u32,
        outer_l3: 20 + u32::from(carried.options),
        l2: between,
        l3: 20 + carried.inner.ip_options.len() as u32,
        l4: 20 + carried.inner.tcp_options.len() as u32,
    }
}

#[test]
fn tcp_segments_in_tunnels_are_those_of_rte_gso() {
    with_dpdk("tunnels", |dpdk| {
        for round in 0..rounds() {
            let mut random = Random::new("tunnels", round);
            let vxlan = random.one_in(2);
            let mut inner = Spec::tcp4(0);
            inner.payload = {
                let bytes = 1 + random.below(20_000);
                random.bytes(bytes)
            };
            inner.id = random.next() as u16;
            inner.fixed_id = random.one_in(2);
            inner.sequence = random.next() as u32;
            inner.flags = ACK | (random.next() as u8 & (FIN | PSH));
            let words = random.below(11);
            inner.tcp_options = random.bytes(words * 4);
            let between = if vxlan {
                inner = inner.ethernet();
                Between::Vxlan {
                    checksum: random.one_in(2),
                }
            } else {
                GRE
            };
            let mut carried = Carried::new(between, inner);
            carried.id = random.next() as u16;
            let packet = carried.build(Field::Preload);
            let headers = headers_of_tunnel(&carried);
            let size = 30 + random.below(2000);
            let mut gso = gso(size);
            if carried.inner.fixed_id {
                gso = gso.with_fixed_id();
            }
            let layout = carried.layout(&packet);
            let segmenter = Segmenter::in_tunnel(&packet, &layout, gso, packet.len() as u32);
            let cut = if vxlan { Cut::VxlanTcp } else { Cut::GreTcp };
            let wire = header_bytes(headers) + size;
            let theirs = dpdk.segment(&packet, headers, cut, wire, carried.inner.fixed_id);
            let case = format!("seed {round}: VXLAN {vxlan}, in {size}");
            let ours = ours(&packet, &segmenter.unwrap());
            if ours.len() == 1 {
                // It is not cut, and DPDK leaves it unchanged.
                assert_eq!(theirs, [packet], "{case}");
            } else {
                assert_same(&ours, &theirs, &case);
            }
        }
    });
}

#[test]
fn udp_fragments_are_those_of_rte_gso() {
    with_dpdk("UDP fragments", |dpdk| {
        for round in 0..rounds() {
            let mut random = Random::new("udp", round);
            let mut frame = udp4(0).ethernet();
            frame.vlans = (0..random.below(3)).map(|_| (0x8100, 7)).collect();
            frame.fragment = 0;
            frame.id = random.next() as u16;
            let mtu = 68 + random.below(2000);
            let bytes = random.below(65_000.min(mtu * 500));
            frame.payload = random.bytes(bytes);
            let packet = frame.bytes();
            let headers = headers_of(&frame);
            let bytes = packet.len() as u32;
            let fragmenter = Fragmenter::new(
                &packet,
                &layout_of(&packet),
                mtu as u32,
                ChecksumState::Unnecessary,
                bytes,
            );
            let fragmenter = fragmenter.unwrap();
            let ours: Vec<_> = (0..fragmenter.fragments())
                .map(|index| {
                    let mut out = vec![0; fragmenter.wire_bytes(index)];
                    fragmenter.write_fragment(index, &packet, &mut out).unwrap();
                    out
                })
                .collect();
            let wire = headers.l2 as usize + mtu;
            let theirs = dpdk.segment(&packet, headers, Cut::Udp, wire, false);
            assert_same(
                &ours,
                &theirs,
                &format!("seed {round}: {bytes} bytes, MTU {mtu}"),
            );
        }
    });
}
