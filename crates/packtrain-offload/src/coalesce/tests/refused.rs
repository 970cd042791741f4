//! Packets that are refused and rare: mostly with uncommon headers.

use super::*;
use crate::test_packets::frame::{Field, tcp4, tcp6, train, udp4, udp6};
use crate::wire::ParseError;

/// Runs two packets through either semantics; neither is taken, for this reason.
#[track_caller]
fn refused(frames: &[Frame], change: impl Fn(&mut Wire), why: NotTaken) {
    for semantics in [Semantics::Reversible, Semantics::Stream] {
        let config = config(semantics, frames[0].link);
        let input = frames.iter().map(|frame| {
            let mut wire = frame.verified();
            change(&mut wire);
            wire
        });
        let (output, _) = run(config, vec![Step::Burst(input.collect())]);
        let all: Vec<Done> = output.iter().map(|(_, done)| *done).collect();
        assert_eq!(all, vec![Done::Passed(why); frames.len()], "{semantics:?}");
    }
}

fn tagged() -> Frame {
    Frame {
        vlans: vec![(0x8100, 10)],
        ..tcp4(0).ethernet()
    }
}

/// RFC 791 §3.1: it must be zero, so its meaning if set is undefined.
#[test]
fn the_reserved_flag_of_ipv4() {
    let first = Frame {
        fragment: 0xC000,
        ..tagged()
    };
    refused(&train(&first, &[100, 100]), |_| (), NotTaken::Options);
}

/// With a segment left the destination is not the one in the pseudo-header.
#[test]
fn a_source_route_of_ipv6() {
    let mut route = vec![2, 2, 1, 0, 0, 0, 0, 0xfd];
    route.resize(23, 0);
    let first = Frame {
        extensions: vec![(43, route)],
        ..tcp6(0)
    };
    refused(&train(&first, &[100, 100]), |_| (), NotTaken::Options);
}

/// Headers of these kinds are of even length, but a layout that comes with a packet may say
/// anything.
#[test]
fn a_layout_with_odd_offsets() {
    let frames = train(&tagged(), &[100, 100]);
    let changes: [fn(&mut Layout); 3] = [
        |layout| layout.network -= 1,
        |layout| layout.transport += 1,
        |layout| layout.payload += 1,
    ];
    for change in changes {
        let with_layout = |wire: &mut Wire| {
            let mut layout =
                Layout::parse(LinkType::Ethernet, &wire.bytes, wire.bytes.len() as u32).unwrap();
            change(&mut layout);
            wire.parsed = Some(layout);
        };
        refused(&frames, with_layout, NotTaken::Protocol);
    }
}

/// A header whose sum is 0 has a valid checksum of 0xFFFF as well as of 0. No segmenter would write
/// 0xFFFF; without the need to restore it, either is accepted.
#[test]
fn the_other_form_of_zero_in_an_ip_header() {
    let bytes = tcp4(100).bytes();
    let checksum = u16::from_be_bytes([bytes[10], bytes[11]]);
    let frame = Frame {
        id: tcp4(0).id.checked_add(checksum).unwrap(),
        ..tcp4(100)
    };
    assert_eq!(frame.bytes()[10..12], [0, 0], "it is that of zero now");
    let other = Frame {
        ip_checksum: Field::Value(0xFFFF),
        ..frame
    };
    for (semantics, done) in [
        (Semantics::Reversible, Done::Passed(NotTaken::ChecksumForm)),
        (Semantics::Stream, Done::Alone(FlushReason::Timeout)),
    ] {
        let (output, _) = run(
            config(semantics, LinkType::RawIp),
            vec![Step::Push(other.verified())],
        );
        assert_eq!(output[0].1, done);
    }
}

/// The fault of a packet, and how to make it: always in a field that does not identify the flow.
type Fault = (ParseError, fn(&Frame, &mut Vec<u8>));

/// The faults that there are in this kind of packet.
fn faults(frame: &Frame) -> Vec<Fault> {
    let mut all: Vec<Fault> = vec![];
    if frame.ipv6 {
        all.push((ParseError::Ipv6PayloadLengthBeyond, |_, bytes| {
            bytes.pop();
        }));
        all.push((ParseError::Ipv6ExtensionsTooLong, |_, bytes| bytes[6] = 60));
    } else {
        all.push((ParseError::Ipv4TotalLengthBeyond, |_, bytes| {
            bytes.pop();
        }));
        all.push((ParseError::Ipv4TotalLengthShort, |_, bytes| {
            bytes[2..4].copy_from_slice(&[0, 19]);
        }));
        all.push((ParseError::Ipv4HeaderLength, |_, bytes| bytes[0] = 0x44));
    }
    if frame.tcp {
        all.push((ParseError::TcpDataOffset, |frame, bytes| {
            bytes[frame.transport() + 12] = 0x40;
        }));
        all.push((ParseError::TcpOptionsTruncated, |frame, bytes| {
            bytes[frame.transport() + 12] = 0xF0;
        }));
    } else {
        all.push((ParseError::UdpLengthShort, |frame, bytes| {
            let at = frame.transport() + 4;
            bytes[at..at + 2].copy_from_slice(&[0, 7]);
        }));
        all.push((ParseError::UdpLengthBeyond, |frame, bytes| {
            bytes[frame.transport() + 5] += 1;
        }));
    }
    all
}

/// Its ports are not trusted, since its transport header may be anywhere; it may belong to any flow
/// with its addresses. So it is passed on after all held packets of these, without waiting.
#[test]
fn a_packet_whose_headers_contradict_themselves_goes_after_what_is_held() {
    for first in [tcp4(0), tcp6(0), udp4(0), udp6(0)] {
        let frames = train(&first, &[30; 4]);
        for (error, spoil) in faults(&first) {
            let mut malformed = frames[2].verified();
            spoil(&frames[2], &mut malformed.bytes);
            let bytes = malformed.bytes.len() as u32;
            let parsed = Layout::parse(LinkType::RawIp, &malformed.bytes, bytes);
            assert_eq!(parsed, Err(error), "else it is none");
            let why = match error {
                ParseError::UdpLengthShort | ParseError::UdpLengthBeyond => NotTaken::UdpLength,
                _ => NotTaken::Malformed,
            };
            // Before and after it, the others are merged as if it had never been there.
            let rest = [&frames[..2], &train(&frames[2], &[30, 30])].concat();
            let mut input: Vec<Wire> = rest.iter().map(Frame::verified).collect();
            input.insert(2, malformed);
            for semantics in [Semantics::Reversible, Semantics::Stream] {
                for mode in MODES {
                    let config = Config {
                        mode,
                        ..config(semantics, LinkType::RawIp)
                    };
                    let at_once = input.iter().cloned().map(Step::Push).collect();
                    for steps in [at_once, vec![Step::Burst(input.clone())]] {
                        let (output, _) = run(config, steps);
                        let at = || std::format!("{error}, {mode:?}, {semantics:?}");
                        assert_eq!(output.len(), 3, "{}", at());
                        assert_eq!(output[0].0.ids, [0, 1], "{}", at());
                        assert_eq!(output[1].1, Done::Passed(why), "{}", at());
                        assert_eq!(output[1].0.ids, [2], "{}", at());
                        assert_eq!(output[2].0.ids, [3, 4], "{}", at());
                    }
                    is_passed_at_once(config, &input);
                }
            }
        }
    }
}

/// The third packet is handed on by the call that took it, after the held packets.
fn is_passed_at_once(config: Config, input: &[Wire]) {
    let mut coalescer = Coalescer::new(config, Owned::for_config(&config)).unwrap();
    let mut output = vec![];
    for (packet, expected) in input[..3].iter().zip([0, 0, 2]) {
        coalescer.push(0, packet.clone(), &mut |wire, _| output.push(wire));
        assert_eq!(output.len(), expected);
    }
    assert_eq!(output[1].bytes, input[2].bytes);
    assert_eq!(coalescer.held(), 0);
}

/// A packet that is certainly neither TCP nor UDP belongs to no held flow, however malformed.
#[test]
fn a_malformed_packet_of_another_protocol_ends_no_run() {
    let others: [(ParseError, Vec<u8>); 4] = [
        (ParseError::EthernetTruncated, vec![2; 13]),
        (
            ParseError::VlanTruncated,
            [vec![2; 12], vec![0x81, 0, 0]].concat(),
        ),
        (
            ParseError::ArpTruncated,
            [vec![2; 12], vec![8, 6, 0, 1]].concat(),
        ),
        (ParseError::IcmpTruncated, {
            let mut bytes = train(&tcp4(0).ethernet(), &[8])[0].bytes();
            bytes.truncate(14 + 20 + 3);
            bytes[16..18].copy_from_slice(&[0, 23]);
            bytes[23] = 1;
            bytes
        }),
    ];
    let frames = train(&tcp4(0).ethernet(), &[30; 2]);
    for (error, bytes) in others {
        let parsed = Layout::parse(LinkType::Ethernet, &bytes, bytes.len() as u32);
        assert_eq!(parsed, Err(error), "else it is another");
        let other = Wire::new(bytes, ChecksumState::None);
        let input = vec![frames[0].verified(), other, frames[1].verified()];
        let config = config(Semantics::Reversible, LinkType::Ethernet);
        let (output, _) = run(config, vec![Step::Burst(input)]);
        assert_eq!(output.len(), 2, "{error}");
        assert_eq!(output[1].0.ids, [0, 2], "{error}");
    }
}

/// Runs two packets of each of `flows` with `odd` between the first and the second ones, and
/// returns which flows were merged.
fn merged_around(config: Config, flows: &[Frame], odd: &Wire) -> Vec<bool> {
    let pairs: Vec<_> = flows.iter().map(|first| train(first, &[30; 2])).collect();
    let of = |nth: usize| pairs.iter().map(move |pair| pair[nth].verified());
    let mut input: Vec<Wire> = of(0).collect();
    input.push(odd.clone());
    input.extend(of(1));
    let (output, _) = run(config, vec![Step::Burst(input)]);
    let is_merged = |flow: &usize| {
        let ids = [*flow, flows.len() + 1 + flow];
        output.iter().any(|(wire, _)| wire.ids == ids)
    };
    // It is in its place among all unmerged packets around it.
    let place = |id| output.iter().position(|(wire, _)| wire.ids.contains(&id));
    for flow in (0..flows.len()).filter(|flow| !is_merged(flow)) {
        assert!(place(flow) < place(flows.len()));
        assert!(place(flows.len()) < place(flows.len() + 1 + flow));
    }
    (0..flows.len()).map(|flow| is_merged(&flow)).collect()
}

/// Four flows: two with the addresses of the third packet, and two that differ in one address.
fn neighbours(first: &Frame) -> [Frame; 4] {
    let mut flows = [first.clone(), first.clone(), first.clone(), first.clone()];
    flows[1].ports.0 += 1;
    flows[2].source += 1;
    flows[3].destination += 1;
    flows
}

/// A packet without ports ends the runs of no flows but those with its addresses.
#[test]
fn a_packet_without_ports_ends_only_runs_with_its_addresses() {
    for semantics in [Semantics::Reversible, Semantics::Stream] {
        for mode in MODES {
            for first in [tcp4(0), tcp6(0), udp4(0), udp6(0)] {
                for first in [first.clone(), first.ethernet()] {
                    let config = Config {
                        mode,
                        ..config(semantics, first.link)
                    };
                    let flows = neighbours(&first);
                    let frame = &train(&first, &[30])[0];
                    let mut odd = vec![];
                    if !first.ipv6 {
                        let mut fragment = frame.clone();
                        fragment.fragment = 0x2000;
                        odd.push(fragment.verified());
                    } else {
                        let mut fragment = frame.clone();
                        fragment.extensions = vec![(44, vec![0, 0, 1, 0, 0, 0, 9])];
                        odd.push(fragment.verified());
                    }
                    if first.link == LinkType::RawIp {
                        for (_, spoil) in faults(frame) {
                            let mut malformed = frame.verified();
                            spoil(frame, &mut malformed.bytes);
                            odd.push(malformed);
                        }
                    }
                    for odd in odd {
                        let merged = merged_around(config, &flows, &odd);
                        assert_eq!(merged, [false, false, true, true], "{mode:?} {odd:?}");
                    }
                }
            }
        }
    }
}

/// Without addresses it is of no flow at its receiver either.
#[test]
fn a_packet_that_ends_before_its_addresses_ends_no_run() {
    for (first, error) in [
        (tcp4(0), ParseError::Ipv4Truncated),
        (tcp6(0), ParseError::Ipv6Truncated),
    ] {
        let mut cut = train(&first, &[30])[0].verified();
        cut.bytes.truncate(19);
        let parsed = Layout::parse(LinkType::RawIp, &cut.bytes, 19);
        assert_eq!(parsed, Err(error), "else it is another");
        for mode in MODES {
            let config = Config {
                mode,
                ..config(Semantics::Reversible, LinkType::RawIp)
            };
            let merged = merged_around(config, &neighbours(&first), &cut);
            assert_eq!(merged, [true; 4]);
        }
    }
}

/// With too many places to search, everything is flushed: work per packet is bounded.
#[test]
fn a_packet_without_ports_searches_a_bounded_number_of_places() {
    for mode in [Mode::Hash, Mode::Sorted] {
        for (flows, others) in [(1023, true), (1024, true), (1025, false)] {
            let config = Config {
                mode,
                flows: 4096,
                ..config(Semantics::Reversible, LinkType::RawIp)
            };
            let frames: Vec<Frame> = (0..flows)
                .map(|flow| Frame {
                    source: 1 + u8::from(flow % 2 == 1),
                    ports: (1024 + flow, 443),
                    ..tcp4(0)
                })
                .collect();
            let fragment = Frame {
                fragment: 0x2000,
                ..tcp4(30)
            };
            let merged = merged_around(config, &frames, &fragment.verified());
            for (flow, merged) in merged.into_iter().enumerate() {
                assert_eq!(
                    merged,
                    others && flow % 2 == 1,
                    "{mode:?}, {flow} of {flows}"
                );
            }
        }
    }
}
