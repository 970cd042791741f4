//! Bugs of other offload code, one test each, named after the bug.

use std::vec;
use std::vec::Vec;

use super::linux_udp::with_zero_sum;
use super::*;
use crate::offload::GsoKind;
use crate::test_packets::frame::{Field, Frame, tcp4, tcp6, timestamps, train, udp4, udp6};
use crate::test_packets::{CWR, ECE, FIN, PSH, RST, URG};

/// tailscale#19820, wireguard-go#145: a packet keeps the result of a merge that failed.
#[test]
fn stale_header_bytes_stay_on_a_packet_that_left_alone() {
    for first in [tcp4(0), tcp6(0), udp4(0), udp6(0)] {
        for semantics in [Semantics::Reversible, Semantics::Stream] {
            let mut frames = train(&first, &[100; 5]);
            frames[2].checksum = Field::Wrong;
            let config = config(semantics, LinkType::RawIp);
            let mut input: Vec<Wire> = frames.iter().map(Frame::unverified).collect();
            // The packet behind it is alone too.
            input.remove(3);
            let (output, _) = run(config, vec![Step::Burst(input.clone())]);
            assert_eq!(output.len(), 3);
            for (wire, done) in &output[1..] {
                assert!(matches!(done, Done::Passed(_) | Done::Alone(_)));
                assert_eq!(wire.bytes, input[wire.ids[0]].bytes);
                assert_eq!(wire.checksum, ChecksumState::None);
            }
        }
    }
}

/// tailscale#13041, #13052: a header that the kernel rejects. `run` passes every header to
/// `virtio_net::validate`.
#[test]
fn every_header_is_one_that_the_kernel_takes() {
    let steps = if cfg!(miri) { 50 } else { 1 };
    for first in [tcp4(0), tcp6(0), udp4(0), udp6(0)] {
        for tail in (1..=200).step_by(steps) {
            reversible(&train(&first, &[200, 200, tail]), &[400 + tail as u32]);
        }
        for count in [2, 3, 63, 64] {
            reversible(&train(&first, &vec![20; count]), &[20 * count as u32]);
        }
    }
}

/// tailscale/wireguard-go#6, rust-tun#45: packets with different headers are merged.
#[test]
fn one_header_field_differs() {
    for link in [LinkType::RawIp, LinkType::Ethernet, LinkType::Ipoib] {
        for base in [tcp4(0), tcp6(0), udp4(0), udp6(0)] {
            let first = Frame {
                link,
                options: if base.tcp { timestamps(1, 2) } else { vec![] },
                ..base
            };
            let changes: Vec<fn(&mut Frame)> = changes(&first);
            for change in changes {
                let mut frames = train(&first, &[100, 100]);
                change(&mut frames[1]);
                reversible(&frames, &[100, 100]);
                // Nor in the other order.
                let mut frames = train(&first, &[100, 100]);
                change(&mut frames[0]);
                reversible(&frames, &[100, 100]);
            }
        }
    }
}

fn changes(first: &Frame) -> Vec<fn(&mut Frame)> {
    let mut all: Vec<fn(&mut Frame)> = vec![
        |f| f.tos ^= 1,
        |f| f.tos ^= 2,
        |f| f.tos ^= 4,
        |f| f.ttl -= 1,
        |f| f.source += 1,
        |f| f.destination += 1,
        |f| f.ports.0 += 1,
        |f| f.ports.1 += 1,
    ];
    if first.link == LinkType::Ethernet {
        let more: [fn(&mut Frame); 3] = [
            |f| f.macs[0] ^= 4,
            |f| f.macs[11] ^= 1,
            |f| f.vlans.push((0x8100, 1)),
        ];
        all.extend(more);
    }
    if first.ipv6 {
        let more: [fn(&mut Frame); 2] = [
            |f| f.flow_label ^= 1,
            |f| f.extensions.push((60, vec![0, 1, 4, 0, 0, 0, 0])),
        ];
        all.extend(more);
    } else {
        let more: [fn(&mut Frame); 4] = [
            |f| f.fragment ^= 0x4000,
            |f| f.fragment ^= 0x8000,
            |f| f.id = f.id.wrapping_add(7),
            |f| f.ip_options = vec![1, 1, 1, 0],
        ];
        all.extend(more);
    }
    if first.tcp {
        let more: [fn(&mut Frame); 9] = [
            |f| f.sequence = f.sequence.wrapping_add(1),
            |f| f.acknowledgement += 1,
            |f| f.flags ^= ECE,
            |f| f.flags = 0,
            |f| f.reserved ^= 1,
            |f| f.reserved ^= 8,
            |f| f.window += 1,
            |f| f.urgent += 1,
            |f| f.options = timestamps(1, 3),
        ];
        all.extend(more);
        all.push(|f| f.options = timestamps(2, 2));
        all.push(|f| f.options.extend([1, 1, 1, 0]));
    }
    all
}

/// The same, bit by bit: whichever bit of the second header differs, segmenting the output restores
/// the input, and the packets are merged only if the bit may differ.
#[test]
fn one_header_bit_differs() {
    for base in [tcp4(0), tcp6(0), udp4(0), udp6(0)] {
        let frames = train(&base.clone().ethernet(), &[100, 100]);
        let headers = frames[1].bytes().len() - 100;
        for bit in (0..headers * 8).step_by(if cfg!(miri) { 97 } else { 1 }) {
            let mut input: Vec<Wire> = frames.iter().map(Frame::unverified).collect();
            input[1].bytes[bit / 8] ^= 1 << (bit % 8);
            let Some(bytes) = fix(&input[1].bytes) else {
                continue;
            };
            input[1].bytes = bytes;
            let config = config(Semantics::Reversible, LinkType::Ethernet);
            let (output, _) = run(config, vec![Step::Burst(input.clone())]);
            check_restored(&config, &input, &output);
            let same = input[1].bytes == frames[1].bytes();
            // The identification equal to the first one's.
            let fixed = !base.ipv6 && input[1].bytes[18..20] == [0, 8];
            // FIN and PSH.
            let flags = frames[0].transport() + 13;
            let is_end = base.tcp && bit / 8 == flags && [0, 3].contains(&(bit % 8));
            assert_eq!(output.len() == 1, same || fixed || is_end, "bit {bit}");
        }
    }
}

/// The packet with correct checksums; `None` if it is no longer TCP or UDP.
fn fix(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = bytes.to_vec();
    let layout = Layout::parse(LinkType::Ethernet, &bytes, bytes.len() as u32).ok()?;
    properties::fix_checksums(&mut bytes, &layout).then_some(bytes)
}

/// libpnet#585, smoltcp#632: a UDP checksum of zero; wireguard-go#70: an absent one is treated as
/// wrong.
#[test]
fn a_udp_checksum_of_zero() {
    for first in [udp4(0), udp6(0)] {
        for semantics in [Semantics::Reversible, Semantics::Stream] {
            let mut frames = train(&first, &[100, 100, 100]);
            frames.iter_mut().for_each(with_zero_sum);
            let config = Config {
                finish: Finish::Complete,
                ..config(semantics, LinkType::RawIp)
            };
            let input: Vec<Wire> = frames.iter().map(Frame::unverified).collect();
            let (output, stats) = run(config, vec![Step::Burst(input.clone())]);
            assert_eq!(lengths(&config, &output), [300]);
            assert_eq!(stats.bad_checksums, 0);
            check_restored(&config, &input, &output);
        }
    }
    let absent = Frame {
        checksum: Field::Value(0),
        ..udp4(100)
    };
    let config = config(Semantics::Stream, LinkType::RawIp);
    let (output, stats) = run(config, vec![Step::Push(absent.unverified())]);
    assert_eq!(output[0].1, Done::Passed(NotTaken::NoChecksum));
    assert_eq!(stats.bad_checksums, 0);
}

/// The other zero: correct, but `Reversible` could not restore it.
#[test]
fn the_other_representation_of_zero() {
    for first in [tcp4(100), tcp6(100)] {
        let mut frame = first;
        let at = frame.transport() + 16;
        frame.payload[..2].fill(0);
        let bytes = frame.bytes();
        frame.payload[..2].copy_from_slice(&bytes[at..at + 2]);
        assert_eq!(frame.bytes()[at..at + 2], [0, 0]);
        let mut frames = train(&frame, &[100, 100]);
        frames[0].payload = frame.payload;
        // 0 is what a segmenter stores.
        reversible(&frames, &[200]);
        frames[0].checksum = Field::Value(0xFFFF);
        for state in [Frame::unverified, Frame::verified] {
            let input: Vec<Wire> = frames.iter().map(state).collect();
            let config = config(Semantics::Reversible, LinkType::RawIp);
            let (output, stats) = run(config, vec![Step::Burst(input.clone())]);
            assert_eq!(output[0].1, Done::Passed(NotTaken::ChecksumForm));
            assert_eq!(stats.bad_checksums, 0);
            check_restored(&config, &input, &output);
            let config = super::config(Semantics::Stream, LinkType::RawIp);
            let (output, _) = run(config, vec![Step::Burst(input)]);
            assert_eq!(lengths(&config, &output), [200]);
        }
    }
}

/// cloud-hypervisor#4949, tun-rs#149, gotatun#145: lengths that wrap, narrow or go negative.
#[test]
fn lengths_that_wrap() {
    // All values around the end of 16 bits; some beyond it, with every remainder of 3 and of 4.
    let lengths = (0..128)
        .chain([1000])
        .chain(65_500..65_560)
        .chain((65_560..70_000).step_by(109))
        .chain(69_990..=70_000);
    let all = [LinkType::RawIp, LinkType::Ethernet, LinkType::Ipoib];
    for bytes in lengths.step_by(if cfg!(miri) { 41 } else { 1 }) {
        // Long ones alternate: copying them takes all the time.
        let links = if bytes > 1000 {
            &all[bytes % 3..][..1]
        } else {
            &all
        };
        for base in [tcp4(40), tcp6(40), udp4(40), udp6(40)] {
            for &link in links {
                let frame = Frame {
                    link,
                    ..base.clone()
                };
                let mut wire = frame.verified();
                wire.bytes.resize(bytes, 0xAA);
                lying_lengths(link, &frame, &wire);
            }
        }
    }
}

/// Every length field with wrong values, and once with the correct one.
fn lying_lengths(link: LinkType, frame: &Frame, wire: &Wire) {
    let ip_header = if frame.ipv6 { 40 } else { 20 };
    let network = frame.transport() - ip_header;
    let length_at = network + if frame.ipv6 { 4 } else { 2 };
    let counted = if frame.ipv6 { 0 } else { 20 };
    let truth = counted + (if frame.tcp { 20 } else { 8 }) + 40;
    let end = usize::from(truth - counted) + frame.transport();
    for said in [
        0, 1, 19, 20, 27, 28, 39, 40, 41, 60, 80, 0x7FFF, 0x8000, 65_534, 65_535, truth,
    ] {
        let mut wire = wire.clone();
        if let Some(field) = wire.bytes.get_mut(length_at..length_at + 2) {
            field.copy_from_slice(&u16::to_be_bytes(said));
        }
        // With a correct header checksum, so that parsing gets further.
        if let Ok(layout) = Layout::parse(link, &wire.bytes, wire.bytes.len() as u32) {
            properties::fix_checksums(&mut wire.bytes, &layout);
        }
        let bytes = wire.bytes.len();
        let twice = vec![wire.clone(), wire];
        for semantics in [Semantics::Reversible, Semantics::Stream] {
            let config = Config {
                queue: 4,
                ..Config::new(semantics, link, 2)
            };
            let (output, _) = run(config, vec![Step::Burst(twice.clone())]);
            // Repeated segments are not merged, repeated datagrams may be; padding is passed on, or
            // cut off.
            let all_there = if semantics == Semantics::Stream {
                bytes >= end
            } else {
                bytes == end
            };
            let is_one = said == truth && !frame.tcp && all_there;
            let expected = if is_one { 1 } else { 2 };
            assert_eq!(
                output.len(),
                expected,
                "{bytes} bytes, {said} said, {output:?}"
            );
            if semantics == Semantics::Reversible {
                check_restored(&config, &twice, &output);
            }
        }
    }
}

/// FreeBSD rGca1a7e1021a9, FDio/vpp#2438: unverified data is merged, and thereby marked as
/// verified; an unfinished checksum is treated as wrong.
#[test]
fn unverified_data_is_not_blessed() {
    let states: [fn(&Frame) -> Wire; 4] = [
        Frame::unverified,
        Frame::verified,
        Frame::partial,
        |frame| {
            let wrong = Frame {
                checksum: Field::Wrong,
                ..frame.clone()
            };
            wrong.unverified()
        },
    ];
    const WRONG: usize = 3;
    for first in [tcp4(0), tcp6(0), udp4(0), udp6(0)] {
        for semantics in [Semantics::Reversible, Semantics::Stream] {
            for finish in [Finish::Partial, Finish::Complete] {
                for (a, held) in states.iter().enumerate() {
                    for (b, new) in states.iter().enumerate() {
                        let config = Config {
                            finish,
                            ..config(semantics, LinkType::RawIp)
                        };
                        let frames = train(&first, &[100, 100]);
                        let input = vec![held(&frames[0]), new(&frames[1])];
                        let (output, stats) = run(config, vec![Step::Burst(input.clone())]);
                        let wrong = u64::from(a == WRONG) + u64::from(b == WRONG);
                        assert_eq!(stats.bad_checksums, wrong);
                        assert_eq!(output.len(), if wrong == 0 { 1 } else { 2 });
                        check_order(&output);
                        check_restored(&config, &input, &output);
                        let read =
                            u64::from(a == 0 || a == WRONG) + u64::from(b == 0 || b == WRONG);
                        if b == WRONG {
                            // Perhaps once more, to verify.
                            assert!(stats.summed_bytes >= read * 100);
                        } else {
                            assert_eq!(stats.summed_bytes, read * 100);
                        }
                    }
                }
            }
        }
    }
}

/// A partial checksum at another offset does not cover this header.
#[test]
fn a_partial_checksum_of_something_inside() {
    for first in [tcp4(0), udp4(0)] {
        for (start, offset) in [(0, 0), (4, 0), (0, 2), (u16::MAX, 0), (20, 65_530)] {
            let frames = train(&first, &[100, 100]);
            let mut input: Vec<Wire> = frames.iter().map(Frame::partial).collect();
            if let ChecksumState::Partial {
                start: s,
                offset: o,
            } = &mut input[1].checksum
            {
                *s = s.saturating_add(start);
                *o = o.saturating_add(offset);
            }
            let expected = if (start, offset) == (0, 0) { 1 } else { 2 };
            let config = config(Semantics::Reversible, LinkType::RawIp);
            let mut coalescer = Coalescer::new(config, Owned::for_config(&config)).unwrap();
            let mut out = 0;
            coalescer.push_burst(0, input, &mut |_, _| out += 1);
            coalescer.flush(&mut |_, _| out += 1);
            assert_eq!(out, expected, "{start} {offset}");
        }
    }
}

/// gVisor: if the last packet of a poll is not TCP, held packets are never flushed.
#[test]
fn nothing_is_left_behind() {
    for mode in MODES {
        for semantics in [Semantics::Reversible, Semantics::Stream] {
            let config = Config {
                mode,
                ..Config::new(semantics, LinkType::RawIp, 100)
            };
            let mut input = vec![];
            for flow in 0..100_u16 {
                let mut frames = train(&tcp4(0), &[100; 3]);
                for frame in &mut frames {
                    frame.ports = (flow, flow.wrapping_mul(77));
                    frame.source = flow as u8;
                }
                input.extend(frames.iter().map(Frame::verified));
            }
            input.push(Wire::new(vec![0; 3], ChecksumState::None));
            // `run` asserts that one flush is enough, after each.
            let steps = input
                .chunks(13)
                .flat_map(|chunk| [Step::Burst(chunk.to_vec()), Step::Flush]);
            run(config, steps.collect());
            run(config, vec![Step::Burst(input)]);
        }
    }
}

/// FreeBSD D52989: a device hash that is not constant within a flow. The packet trait here has no
/// device hash, so this only tests that packets of one flow stay in order for any `aside`. With
/// hashes of a device: `packtrain/src/engine/tests/coalesce.rs`.
#[test]
fn an_opaque_hash_reorders_nothing() {
    for mode in MODES {
        let config = Config {
            mode,
            ..config(Semantics::Stream, LinkType::RawIp)
        };
        let frames = train(&tcp4(0), &[1000; 8]);
        let input = frames.iter().enumerate().map(|(n, frame)| Wire {
            aside: n as u32 % 2,
            ..frame.verified()
        });
        let (output, _) = run(config, vec![Step::Burst(input.collect())]);
        check_order(&output);
    }
}

/// FreeBSD: the length of a merged packet wraps at 2^16.
#[test]
fn a_length_that_wraps_at_16_bits() {
    for first in [tcp4(0), tcp6(0)] {
        for semantics in [Semantics::Reversible, Semantics::Stream] {
            for bytes in [1448, 9000, 16_384, 32_700, 65_000] {
                for max_bytes in [65_535, u32::MAX] {
                    let config = Config {
                        max_bytes,
                        ..config(semantics, LinkType::RawIp)
                    };
                    let count = 150_000 / bytes;
                    let frames = train(&first, &vec![bytes; count]);
                    let input = frames.iter().map(Frame::verified).collect();
                    let (output, _) = run(config, vec![Step::Burst(input)]);
                    let sum: u32 = lengths(&config, &output).iter().sum();
                    assert_eq!(sum as usize, bytes * count);
                }
            }
        }
    }
}

/// FreeBSD: flushing the active entries walks a list that it takes apart.
#[test]
fn a_flush_with_more_than_one_entry() {
    let config = config(Semantics::Stream, LinkType::RawIp);
    let flow = |n: u16| {
        let mut frame = tcp4(100);
        frame.ports.0 = n;
        frame.verified()
    };
    let mut fragment = tcp4(100);
    fragment.fragment = 0x2000;
    let mut input: Vec<Wire> = (0..20).map(flow).collect();
    input.push(fragment.verified());
    let (output, stats) = run(config, vec![Step::Burst(input)]);
    check_order(&output);
    assert_eq!(stats.flushes.get(FlushReason::Refused), 20);
}

/// FreeBSD: data with an older acknowledgement takes a newer one back.
#[test]
fn an_older_acknowledgement_does_not_overwrite_a_newer_one() {
    for first in [tcp4(0), tcp6(0)] {
        let mut frames = train(&first, &[100, 100, 100]);
        frames[1].acknowledgement -= 1;
        let (output, _) = streamed(&frames, &[100, 200]);
        assert_eq!(output[0].1, Done::Alone(FlushReason::Order));
    }
}

/// FreeBSD: the first packet of a chain is not checked.
#[test]
fn the_first_packet_is_tested_like_any_other() {
    let changes: [fn(&mut Frame); 5] = [
        |f| f.flags |= FIN,
        |f| f.flags |= URG,
        |f| f.flags |= RST,
        |f| f.flags |= CWR,
        |f| f.options = vec![1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2],
    ];
    for change in changes {
        for first in [tcp4(0), tcp6(0)] {
            let mut frames = train(&first, &[100, 100, 100]);
            for frame in &mut frames {
                frame.options = timestamps(1, 1);
            }
            change(&mut frames[0]);
            let (output, _) = streamed(&frames, &[100, 200]);
            assert!(matches!(output[0].1, Done::Passed(_)));
        }
    }
}

/// FreeBSD refuses a packet without flushing the held packet of its flow: it overtakes.
#[test]
fn a_packet_that_is_not_taken_does_not_overtake() {
    let changes: [fn(&mut Wire); 5] = [
        |wire| wire.shared = true,
        |wire| wire.gso = Some(Gso::new(GsoKind::TcpV4, 8.try_into().unwrap())),
        // Headers in pieces: the flow cannot be read.
        |wire| wire.head = 10,
        |wire| wire.head = 30,
        |wire| wire.bytes[10] ^= 1,
    ];
    for mode in MODES {
        for semantics in [Semantics::Reversible, Semantics::Stream] {
            for change in changes {
                for parsed in [false, true] {
                    let config = Config {
                        mode,
                        ..config(semantics, LinkType::RawIp)
                    };
                    let mut frames = train(&tcp4(0), &[100, 100, 100]);
                    frames[1].flags |= PSH;
                    // A gap, so that the fast path does not merge it.
                    frames[1].sequence += 5;
                    let mut input: Vec<Wire> = frames.iter().map(Frame::verified).collect();
                    if parsed {
                        let layout = Layout::parse(LinkType::RawIp, &input[1].bytes, 140);
                        input[1].parsed = layout.ok();
                    }
                    change(&mut input[1]);
                    let (output, _) = run(config, vec![Step::Burst(input)]);
                    check_order(&output);
                    assert!(matches!(output[1].1, Done::Passed(_)), "{:?}", output[1].1);
                }
            }
        }
    }
}

/// A packet type that is full returns the next one.
#[test]
fn a_packet_that_can_take_no_more() {
    for semantics in [Semantics::Reversible, Semantics::Stream] {
        for state in STATES {
            let config = config(semantics, LinkType::RawIp);
            let mut input: Vec<Wire> = train(&tcp4(0), &[100; 7]).iter().map(state).collect();
            for wire in &mut input {
                wire.room = 2;
            }
            let (output, _) = run(config, vec![Step::Burst(input.clone())]);
            assert_eq!(lengths(&config, &output), [300, 300, 100]);
            assert_eq!(merged(&output[0].1).reason, FlushReason::Full);
            check_restored(&config, &input, &output);
        }
    }
}

/// Two packets that are the same, except for the acknowledgement, and have it at the offsets of a
/// packet with a VLAN tag, whose other fields all match: the identification counts, the sequence
/// number continues, the IPv4 checksum is correct, and even the hash is the same. The packet held
/// last has a tag.
#[test]
fn headers_are_not_read_at_the_offsets_of_another_packet() {
    const ADDRESS: [u8; 4] = [198, 18, 0xBE, 0xF1];
    const CHECKSUM: u16 = 0x5010;
    let payload = 0x4000 + 18 - 54;
    let twin = |acknowledgement: u32| {
        let frame = Frame {
            id: 0x4005,
            acknowledgement,
            ..tcp4(payload).ethernet()
        };
        let mut bytes = frame.bytes();
        for at in [26, 30, 34] {
            bytes[at..at + 4].copy_from_slice(&ADDRESS);
        }
        let len = bytes.len();
        let layout = Layout::parse(LinkType::Ethernet, &bytes, len as u32).unwrap();
        // The same TCP checksum as well, by the last bytes of the payload.
        bytes[len - 2..].fill(0);
        assert!(properties::fix_checksums(&mut bytes, &layout));
        let field = u32::from(u16::from_be_bytes([bytes[50], bytes[51]]));
        let missing = field + u32::from(!CHECKSUM);
        let missing = (missing & 0xFFFF) as u16 + (missing >> 16) as u16;
        bytes[len - 2..].copy_from_slice(&missing.to_be_bytes());
        assert!(properties::fix_checksums(&mut bytes, &layout));
        assert_eq!(bytes[50..52], CHECKSUM.to_be_bytes());
        Wire::new(bytes, ChecksumState::Unnecessary)
    };
    let tagged = Frame {
        vlans: vec![(0x8100, 1)],
        ..tcp4(100).ethernet()
    };
    let seed = [ADDRESS, ADDRESS].concat();
    let config = Config {
        seed: u64::from_ne_bytes(seed.try_into().unwrap()),
        mode: Mode::Hash,
        ..config(Semantics::Reversible, LinkType::Ethernet)
    };
    let input = vec![twin(5), tagged.verified(), twin(1000 + payload as u32)];
    let (output, _) = run(config, vec![Step::Burst(input.clone())]);
    assert_eq!(output.len(), 3);
    check_restored(&config, &input, &output);
}

/// The sum over the merged payload may be zero, too, when those of its parts are not.
#[test]
fn a_udp_checksum_of_zero_after_merging() {
    for first in [udp4(0), udp6(0)] {
        let config = Config {
            finish: Finish::Complete,
            ..config(Semantics::Stream, LinkType::RawIp)
        };
        let mut frames = train(&first, &[100, 100]);
        frames[0].payload[..2].fill(0);
        let at = frames[0].transport() + 6;
        for expected in [None, Some([0xFF, 0xFF])] {
            let input = frames.iter().map(Frame::verified).collect();
            let (output, _) = run(config, vec![Step::Burst(input)]);
            assert_eq!(lengths(&config, &output), [200]);
            let field = [output[0].0.bytes[at], output[0].0.bytes[at + 1]];
            assert!(expected.is_none_or(|expected| field == expected));
            // The checksum itself is the complement of the rest.
            frames[0].payload[..2].copy_from_slice(&field);
        }
    }
}
