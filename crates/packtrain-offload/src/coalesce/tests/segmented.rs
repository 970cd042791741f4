//! GSO packets that were cut and are merged again: the result is the original, byte for byte with
//! the checksum field, and with the same description.

use super::*;
use crate::offload::{Gso, GsoKind};
use crate::segment::{Remedy, TooBig};
use crate::test_packets::frame::timestamps;
use crate::test_packets::{ACK, ECE, Ext, FIN, Field, PSH, Spec};
use core::num::NonZeroU16;

fn gso_of(spec: &Spec, size: u16) -> Gso {
    let kind = match (spec.tcp, spec.ipv6) {
        (true, false) => GsoKind::TcpV4,
        (true, true) => GsoKind::TcpV6,
        (false, false) => GsoKind::UdpV4,
        (false, true) => GsoKind::UdpV6,
    };
    let gso = Gso::new(kind, NonZeroU16::new(size).unwrap());
    let gso = match (spec.tcp && spec.flags & CWR != 0, spec.accurate_ecn) {
        (_, true) => gso.with_ecn(Ecn::Accurate),
        (cwr, false) => gso.with_ecn(if cwr { Ecn::Cwr } else { Ecn::None }),
    };
    if spec.fixed_id {
        gso.with_fixed_id()
    } else {
        gso
    }
}

/// The segments that `Segmenter` makes of the packet with this checksum field, in one of the three
/// states in which a port passes them on.
fn segments(spec: &Spec, field: Field, size: u16, state: ChecksumState) -> Vec<Wire> {
    let packet = spec.build(field);
    let bytes = packet.len() as u32;
    let layout = Layout::parse(spec.link, &packet, bytes).unwrap();
    let segmenter = Segmenter::new(&packet, &layout, gso_of(spec, size), bytes).unwrap();
    let segment = |index| {
        let mut out = vec![0xA5; segmenter.wire_bytes(index)];
        if let ChecksumState::Partial { .. } = state {
            let made = segmenter.write_header(index, &packet, &mut out, Fill::Partial);
            assert_eq!(made, Ok(state));
            let range = segmenter.payload(index);
            let payload = &packet[range.start as usize..range.end as usize];
            out[segmenter.header_bytes()..].copy_from_slice(payload);
        } else {
            let wrote = segmenter.write_segment(index, &packet, &mut out);
            assert_eq!(wrote, Ok(out.len()));
        }
        Wire::new(out, state)
    };
    (0..segmenter.segments()).map(segment).collect()
}

/// Cuts a packet, merges the segments, in every mode and with either finish, and compares.
#[track_caller]
fn comes_back(spec: &Spec, field: Field, size: u16) {
    let partial = ChecksumState::Partial {
        start: spec.transport() as u16,
        offset: spec.checksum_offset(),
    };
    for state in [ChecksumState::None, ChecksumState::Unnecessary, partial] {
        let input = segments(spec, field, size, state);
        assert!(input.len() > 1, "else there is nothing to merge");
        for (mode, finish) in MODES
            .map(|mode| [(mode, Finish::Partial), (mode, Finish::Complete)])
            .concat()
        {
            let config = Config {
                mode,
                finish,
                ..Config::new(Semantics::Reversible, spec.link, 4)
            };
            let (output, _) = run(config, vec![Step::Burst(input.clone())]);
            let at = || {
                std::format!(
                    "{size} of {:?}, {mode:?}, {finish:?}, {state:?}",
                    spec.flags
                )
            };
            assert_eq!(output.len(), 1, "{}", at());
            let (wire, done) = &output[0];
            let merged = merged(done);
            assert_eq!(merged.gso, Some(gso_of(spec, size)), "{}", at());
            assert_eq!(usize::from(merged.pieces), input.len());
            // `check_merged` compared the checksum state with the rest.
            let expected = match finish {
                Finish::Partial => spec.build(Field::Preload),
                Finish::Complete => spec.build(Field::Final),
            };
            assert!(wire.bytes == expected, "{}", at());
        }
    }
}

/// Every kind of packet, with and without each optional header.
fn kinds() -> Vec<Spec> {
    let plain = [Spec::tcp4(0), Spec::tcp6(0), Spec::udp4(0), Spec::udp6(0)];
    let mut all = plain.to_vec();
    for spec in &plain {
        all.push(Spec {
            vlans: vec![0x88a8, 0x8100],
            ..spec.clone().ethernet()
        });
        all.extend([spec.clone().ethernet(), spec.clone().ipoib()]);
        if spec.ipv6 {
            all.push(Spec {
                exts: vec![Ext::HopByHop, Ext::Destination(2)],
                ..spec.clone()
            });
        } else {
            let unlike = |df, fixed_id| Spec {
                df,
                fixed_id,
                ..spec.clone()
            };
            all.extend([unlike(false, false), unlike(true, true)]);
        }
    }
    let tcp: Vec<Spec> = all.iter().filter(|spec| spec.tcp).cloned().collect();
    all.extend(tcp.into_iter().map(|spec| Spec {
        tcp_options: timestamps(0xFFFF_FFF0, 1),
        ..spec
    }));
    all
}

fn with_payload(spec: &Spec, bytes: usize) -> Spec {
    Spec {
        payload: crate::test_packets::bytes(bytes),
        ..spec.clone()
    }
}

const MSS: [u16; 2] = if cfg!(miri) { [40, 41] } else { [1448, 999] };

#[test]
fn g9_what_was_cut_is_merged_into_the_packet_that_was_cut() {
    for kind in kinds() {
        for size in MSS {
            let mss = usize::from(size);
            // The last one full, short by one byte, and as short as can be.
            for bytes in [3 * mss, 3 * mss - 1, 2 * mss + 1, mss + 1] {
                comes_back(&with_payload(&kind, bytes), Field::Preload, size);
            }
        }
    }
}

/// FIN and PSH come from the last segment, CWR from the first, and ECE is on all.
#[test]
fn g9_flags_go_back_to_where_they_were() {
    let size = MSS[1];
    for kind in kinds().iter().filter(|kind| kind.tcp) {
        for flags in [PSH, FIN, FIN | PSH, ECE, CWR, CWR | ECE | PSH, CWR | FIN] {
            for bytes in [3 * usize::from(size), 2 * usize::from(size) + 5] {
                let spec = Spec {
                    flags: ACK | flags,
                    ..with_payload(kind, bytes)
                };
                comes_back(&spec, Field::Preload, size);
            }
        }
    }
}

/// Identifications and sequence numbers that wrap, and the longest packets possible.
#[test]
fn g9_up_to_the_limits() {
    for first in [Spec::tcp4(0), Spec::tcp6(0), Spec::udp4(0), Spec::udp6(0)] {
        let spec = Spec {
            id: 65_534,
            sequence: 0xFFFF_FF00,
            ..first
        };
        comes_back(&with_payload(&spec, 5 * 200), Field::Preload, 200);
        if cfg!(miri) {
            continue;
        }
        // 64 datagrams, and as many bytes as an IP packet has.
        comes_back(&with_payload(&spec, 64 * 20), Field::Preload, 20);
        let longest = 65_535 - spec.header_bytes();
        comes_back(&with_payload(&spec, longest), Field::Preload, 1448);
    }
}

/// The sum in the packet to cut is not trusted, so a wrong one does not come back.
#[test]
fn g9_a_wrong_preload_comes_back_right() {
    for spec in [Spec::tcp4(0), Spec::tcp6(0), Spec::udp4(0), Spec::udp6(0)] {
        for wrong in [0, 0x1234, 0xFFFF] {
            comes_back(&with_payload(&spec, 250), Field::Value(wrong), 100);
        }
    }
}

/// CWR on every segment, as Accurate ECN has it: each begins a new packet, none is lost.
#[test]
fn g9_cwr_on_every_segment_is_not_merged() {
    for first in [Spec::tcp4(350), Spec::tcp6(350)] {
        let spec = Spec {
            flags: ACK | CWR,
            accurate_ecn: true,
            ..first
        };
        for mode in MODES {
            let config = Config {
                mode,
                ..Config::new(Semantics::Reversible, spec.link, 4)
            };
            let input = segments(&spec, Field::Preload, 100, ChecksumState::Unnecessary);
            let (output, _) = run(config, vec![Step::Burst(input.clone())]);
            let all: Vec<Done> = output.iter().map(|(_, done)| *done).collect();
            let [flags, last] = [FlushReason::Flags, FlushReason::Timeout].map(Done::Alone);
            assert_eq!(all, [flags, flags, flags, last]);
            check_restored(&config, &input, &output);
            check_order(&output);
        }
    }
}

/// LRO of FreeBSD, and then forwarding: five segments of 1448 bytes that were merged are the same
/// five on a link with their MTU, and too big for one with less, of which their sender is notified.
/// They are not silently cut smaller.
#[test]
fn what_was_merged_is_too_big_for_a_smaller_mtu_and_not_cut_to_it() {
    for first in [frame::tcp4(0), frame::tcp6(0)] {
        let first = Frame {
            options: timestamps(1, 2),
            ..first
        };
        let frames = frame::train(&first, &[1448; 5]);
        let ip_bytes = frames[0].bytes().len() as u32;
        for semantics in [Semantics::Reversible, Semantics::Stream] {
            let config = config(semantics, first.link);
            let input: Vec<Wire> = frames.iter().map(Frame::verified).collect();
            let (output, _) = run(config, vec![Step::Burst(input)]);
            let [(wire, done)] = &output[..] else {
                panic!("{output:?}")
            };
            let merged = merged(done);
            let (gso, bytes) = (merged.gso.unwrap(), wire.bytes.len() as u32);
            let cut = Segmenter::new(&wire.bytes, &merged.layout, gso, bytes).unwrap();
            assert_eq!(cut.fits_mtu(&wire.bytes, ip_bytes), Ok(()));
            let lengths: Vec<usize> = (0..cut.segments()).map(|i| cut.payload(i).len()).collect();
            assert_eq!(lengths, [1448; 5]);
            let remedy = if first.ipv6 {
                Remedy::Icmpv6
            } else {
                Remedy::Icmp
            };
            let too_big = TooBig {
                mtu: 1400,
                ip_bytes,
                remedy,
            };
            assert_eq!(cut.fits_mtu(&wire.bytes, 1400), Err(too_big));
            assert_eq!(cut.segments(), 5);
        }
    }
}
