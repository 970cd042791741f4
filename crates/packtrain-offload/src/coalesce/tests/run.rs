//! The fast path for packets of a run, and the one with prefetch: they do the same as the slow
//! path, for any input.

use proptest::prelude::*;

use core::num::NonZeroU16;

use super::properties::{Train, any_train, assert_same, fix_checksums};
use super::*;
use crate::offload::GsoKind;
use crate::test_packets::frame::timestamps;

/// Runs the same steps on the slow path, the fast path, and the fast path with prefetch of
/// everything.
fn in_three_ways(config: Config, steps: &[Step]) {
    let run = |runs: bool, near: u32| {
        let mut coalescer = Coalescer::new(config, Owned::for_config(&config)).unwrap();
        coalescer.core.runs = runs;
        coalescer.core.near = near;
        run_on(coalescer, steps.to_vec())
    };
    let (long, stats) = run(false, u32::MAX);
    for near in [u32::MAX, 0, 2] {
        let (short, short_stats) = run(true, near);
        assert_same(&long, &short);
        assert_eq!(stats, short_stats, "fetching ahead above {near}");
    }
}

/// A packet that is copied when its headers are to be written, and summed during the copy: a later
/// sum reads it again.
#[derive(Debug)]
struct Copying {
    bytes: Vec<u8>,
    is_copied: bool,
}

impl Packet for Copying {
    fn head(&self) -> &[u8] {
        &self.bytes
    }

    fn head_mut(&mut self, headers: usize) -> Option<&mut [u8]> {
        self.is_copied = true;
        self.bytes.get_mut(..headers)
    }

    fn bytes(&self) -> u32 {
        self.bytes.len() as u32
    }

    fn checksum(&self) -> ChecksumState {
        ChecksumState::None
    }

    fn sum(&self, range: Range<u32>) -> Sum {
        assert!(!self.is_copied, "read twice");
        checksum::sum(&self.bytes[range.start as usize..range.end as usize])
    }

    fn truncate(&mut self, bytes: u32) {
        self.bytes.truncate(bytes as usize);
    }

    fn append(&mut self, tail: Self, range: Range<u32>) -> Result<(), Self> {
        let tail = &tail.bytes[range.start as usize..range.end as usize];
        self.bytes.extend_from_slice(tail);
        Ok(())
    }
}

#[test]
fn a_packet_is_summed_before_its_headers_are_asked_for() {
    for config in configs(LinkType::RawIp, 65_535) {
        let mut coalescer = Coalescer::new(config, Owned::for_config(&config)).unwrap();
        let mut packets = 0;
        let mut sink = |_packet, _done: &Done| packets += 1;
        // The first of its kind takes the slow path, the others the fast one.
        for port in 1000..1005 {
            let mut frame = frame::tcp4(1400);
            frame.ports.0 = port;
            let bytes = frame.bytes();
            let is_copied = false;
            coalescer.push(0, Copying { bytes, is_copied }, &mut sink);
        }
        coalescer.flush(&mut sink);
        assert_eq!(packets, 5);
    }
}

fn wires(train: &Train) -> Vec<Wire> {
    train.build().into_iter().map(|(.., wire)| wire).collect()
}

fn configs(link: LinkType, max_bytes: u32) -> impl Iterator<Item = Config> {
    [1, 3, 64].into_iter().map(move |flows| Config {
        mode: Mode::Hash,
        max_bytes,
        seed: 0x0123_4567_89AB_CDEF,
        ..Config::new(Semantics::Reversible, link, flows)
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_short_way_is_the_long_way(train in any_train(), max_bytes in 1_000_u32..70_000) {
        let wires = wires(&train);
        for config in configs(train.link(), max_bytes) {
            for bursts in [false, true] {
                in_three_ways(config, &train.steps(&wires, bursts));
            }
        }
    }

    /// With bytes changed at any place, and checksums as they were or made right again.
    #[test]
    fn also_for_hostile_bytes(
        train in any_train(),
        changes in prop::collection::vec(
            (any::<prop::sample::Index>(), 0_usize..90, any::<u8>(), any::<bool>(), 0_u8..4),
            1..60,
        ),
    ) {
        let mut wires = wires(&train);
        for (which, at, value, fix, state) in changes {
            let wire = which.get_mut(&mut wires);
            let len = wire.bytes.len();
            wire.bytes[at % len] = value;
            wire.checksum = match state {
                0 => ChecksumState::Unnecessary,
                1 => ChecksumState::Partial { start: 20, offset: u16::from(value % 32) },
                _ => ChecksumState::None,
            };
            let layout = Layout::parse(train.link(), &wire.bytes, len as u32);
            if let (true, Ok(layout)) = (fix, layout) {
                fix_checksums(&mut wire.bytes, &layout);
            }
        }
        for config in configs(train.link(), 65_535) {
            in_three_ways(config, &train.steps(&wires, true));
        }
    }
}

/// Flows of the same addresses leave in the order of their places in the table, which a packet that
/// is not held does not change.
#[test]
fn a_packet_with_a_wrong_checksum_takes_no_place() {
    let of_flow = |port: u16, ends: bool| {
        let mut frame = frame::tcp4(100);
        frame.ports.0 = port;
        if ends {
            frame.sequence = frame.sequence.wrapping_add(100);
            frame.flags |= 8; // PSH
        }
        frame
    };
    let mut wrong = of_flow(5, false).unverified();
    wrong.bytes[60] ^= 1;
    let mut fragment = of_flow(9, false);
    fragment.fragment = 0x2000;
    let held = [1, 2, 3, 4].map(|port| of_flow(port, false).unverified());
    let ended = [1, 3].map(|port| of_flow(port, true).unverified());
    let then = [6, 7, 8].map(|port| of_flow(port, false).unverified());
    let wires = [
        &held[..],
        &[of_flow(2, true).unverified(), wrong],
        &ended,
        &then,
        &[fragment.unverified()],
    ];
    let wires: Vec<Wire> = wires.concat();
    let steps: Vec<Step> = wires.into_iter().map(Step::Push).collect();
    let config = Config {
        mode: Mode::Hash,
        ..Config::new(Semantics::Reversible, LinkType::RawIp, 4)
    };
    in_three_ways(config, &steps);
}

/// Identifications and checksums that wrap around while a run goes on.
#[test]
fn identifications_wrap_in_a_run() {
    for first in [0xFFFD_u16, 0, 1, 0x1234] {
        for seed in 0..64_u16 {
            let mut frame = frame::tcp4(0);
            // Shifts the header checksum through all of its low values.
            frame.ports.0 = seed;
            frame.ttl = (seed % 250) as u8 + 1;
            let mut train = frame::train(&frame, &[100; 8]);
            for (n, frame) in train.iter_mut().enumerate() {
                frame.id = first.wrapping_add(n as u16);
            }
            let steps: Vec<Step> = train.iter().map(|f| Step::Push(f.unverified())).collect();
            for config in configs(LinkType::RawIp, 65_535) {
                in_three_ways(config, &steps);
                let (output, _) = run(config, steps.clone());
                assert_eq!(output.len(), 1, "id {first:#x}, seed {seed}");
            }
        }
    }
}

/// The eight bytes from the identification to the checksum, with a carry between them as if they
/// were one number: another protocol or time to live, or a checksum that is wrong where the
/// identification wraps around.
#[test]
fn a_carry_between_fields_is_no_next_packet() {
    for tcp in [true, false] {
        let mut first = frame::tcp4(0);
        first.tcp = tcp;
        first.id = 0;
        let wire = frame::train(&first, &[100])[0].verified();
        let sum = u16::from_be_bytes([wire.bytes[10], wire.bytes[11]]);
        // Identifications with which the checksum is small, and ones that wrap around soon.
        let small = (0..6).map(|checksum| (sum - checksum) % 0xFFFF);
        for id in small.chain(0xFFFA..=0xFFFF) {
            first.id = id;
            for at in 1..6 {
                let mut wires: Vec<Wire> = frame::train(&first, &[100; 6])
                    .iter()
                    .map(Frame::unverified)
                    .collect();
                let fields =
                    |wire: &Wire| u64::from_be_bytes(*wire.bytes[4..].first_chunk().unwrap());
                let as_one = fields(&wires[0])
                    .wrapping_add((at as u64) << 48)
                    .wrapping_sub(at as u64);
                let is_next = fields(&wires[at]) == as_one;
                wires[at].bytes[4..12].copy_from_slice(&as_one.to_be_bytes());
                for state in [ChecksumState::None, ChecksumState::Unnecessary] {
                    wires[at].checksum = state;
                    let steps = [Step::Burst(wires.clone())];
                    for config in configs(LinkType::RawIp, 65_535) {
                        in_three_ways(config, &steps);
                        let (output, _) = run(config, steps.to_vec());
                        let merged = output.len() == 1;
                        assert_eq!(merged, is_next, "tcp {tcp}, id {id:#x}, {at}, {state:?}");
                    }
                }
            }
        }
    }
}

/// As many datagrams as may be in one, and more.
#[test]
fn datagrams_are_counted_in_a_run() {
    let mut frame = frame::tcp4(100);
    frame.tcp = false;
    let steps: Vec<Step> = (0..130_u16)
        .map(|n| {
            frame.id = n;
            Step::Push(frame.unverified())
        })
        .collect();
    for config in configs(LinkType::RawIp, 65_535) {
        in_three_ways(config, &steps);
        let (output, _) = run(config, steps.clone());
        let counts: Vec<usize> = output.iter().map(|(wire, _)| wire.ids.len()).collect();
        assert_eq!(counts, [64, 64, 2]);
    }
}

/// An empty datagram is not held, not on the fast path either: segments of no bytes do not exist
/// (`udp_gro_receive_segment` passes it on as well).
#[test]
fn an_empty_datagram_is_not_the_first_of_a_run() {
    // With options of 40 bytes there are 88 bytes of headers, the limit of the fast path.
    let mut padding = vec![4, 1, 36];
    padding.resize(39, 0);
    for (ipv6, extensions) in [(false, vec![]), (true, vec![]), (true, vec![(60, padding)])] {
        let mut first = frame::tcp4(100);
        (first.tcp, first.ipv6, first.extensions) = (false, ipv6, extensions);
        let mut train = [first.clone(), first.clone(), first];
        // Another flow, of the same shape; its second datagram has a payload again.
        train[1].ports.0 += 1;
        train[1].payload.clear();
        train[2].ports.0 += 1;
        for state in STATES {
            let steps: Vec<Step> = train.iter().map(state).map(Step::Push).collect();
            for config in configs(LinkType::RawIp, 65_535) {
                in_three_ways(config, &steps);
                let (output, _) = run(config, steps.clone());
                assert_eq!(output.len(), 3);
                let (_, done) = output.iter().find(|(wire, _)| wire.ids == [1]).unwrap();
                assert_eq!(*done, Done::Passed(NotTaken::Payload));
            }
        }
    }
}

/// Nor is a segment below the minimum of segmentation ([`TCP_GSO_SIZE_MIN`]). Its headers are long
/// enough here for the fast path.
#[test]
fn a_segment_that_is_too_small_is_not_the_first_of_a_run() {
    for (bytes, held) in [(1, false), (7, false), (8, true)] {
        let mut first = frame::tcp6(100);
        first.link = LinkType::Ethernet;
        first.options = timestamps(7, 9);
        let mut small = first.clone();
        small.ports.0 += 1;
        small.payload.truncate(bytes);
        let steps = [&first, &small].map(|frame| Step::Push(frame.verified()));
        for config in configs(LinkType::Ethernet, 65_535) {
            in_three_ways(config, &steps);
            let (output, _) = run(config, steps.to_vec());
            let (_, done) = output.iter().find(|(wire, _)| wire.ids == [1]).unwrap();
            let passed = *done == Done::Passed(NotTaken::Payload);
            assert_eq!(passed, !held, "{bytes} bytes: {done:?}");
        }
    }
}

/// A verified packet whose checksum field is the other form of zero cannot be restored, and is not
/// merged in the middle of a run either.
#[test]
fn the_other_form_of_zero_ends_a_run() {
    for (tcp, field, at) in [(true, 0xFFFF_u16, 36), (false, 0, 26)] {
        let mut frame = frame::tcp4(100);
        frame.tcp = tcp;
        let mut train = frame::train(&frame, &[100; 4]);
        for (n, frame) in train.iter_mut().enumerate() {
            frame.tcp = tcp;
            frame.id = n as u16;
        }
        for state in [ChecksumState::Unnecessary, ChecksumState::None] {
            let steps: Vec<Step> = train
                .iter()
                .enumerate()
                .map(|(n, frame)| {
                    let mut wire = frame.verified();
                    wire.checksum = state;
                    if n == 2 {
                        wire.bytes[at..at + 2].copy_from_slice(&field.to_be_bytes());
                    }
                    Step::Push(wire)
                })
                .collect();
            for config in configs(LinkType::RawIp, 65_535).filter(|config| config.flows > 1) {
                in_three_ways(config, &steps);
                let (output, _) = run(config, steps.clone());
                let of = |id: usize| output.iter().find(|(wire, _)| wire.ids.contains(&id));
                let (wire, done) = of(2).unwrap();
                assert_eq!(wire.ids, [2], "tcp {tcp}, {state:?}");
                assert!(
                    matches!(done, Done::Passed(_)),
                    "tcp {tcp}, {state:?}: {done:?}"
                );
            }
        }
    }
}

/// A run, with a packet in it that differs in one header bit: one that would be the next of the
/// run, or the first of another flow. Every checksum is correct.
#[test]
fn no_bit_of_a_header_is_overlooked() {
    for (link, tags) in [
        (LinkType::RawIp, 0),
        (LinkType::Ethernet, 0),
        (LinkType::Ethernet, 1),
    ] {
        for (ipv6, tcp) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut first = frame::tcp4(0);
            (first.link, first.ipv6, first.tcp) = (link, ipv6, tcp);
            first.vlans = vec![(0x8100, 5); tags];
            first.options = timestamps(7, 8);
            for ports in [first.ports, (1, 2)] {
                let mut train = frame::train(&first, &[100; 4]);
                train[2].ports = ports;
                let input: Vec<Wire> = train.iter().map(Frame::verified).collect();
                let whole = &input[2].bytes;
                let of = |bytes: &[u8]| Layout::parse(link, bytes, bytes.len() as u32);
                let layout = of(whole).unwrap();
                for bit in 0..usize::from(layout.payload) * 8 {
                    let mut burst = input.clone();
                    let bytes = &mut burst[2].bytes;
                    bytes[bit / 8] ^= 1 << (bit % 8);
                    // With what it says now, or else with what it said.
                    let now = of(bytes).unwrap_or(layout);
                    if !fix_checksums(bytes, &now) {
                        fix_checksums(bytes, &layout);
                    }
                    let config = configs(link, 65_535).last().unwrap();
                    in_three_ways(config, &[Step::Burst(burst)]);
                }
            }
        }
    }
}

/// Headers that are longer than one vector compare, with a difference in the last bytes.
#[test]
fn long_headers_are_compared_to_their_end() {
    for (ipv6, tags, options) in [
        (false, 0, 28),
        (false, 0, 32),
        (false, 2, 40),
        (true, 1, 40),
    ] {
        let mut first = frame::tcp4(0).ethernet();
        first.ipv6 = ipv6;
        first.vlans = vec![(0x8100, 5); tags];
        // NOPs; the last is another option in one of the packets.
        first.options = vec![1; options];
        for changed in [None, Some(2)] {
            let mut train = frame::train(&first, &[100; 4]);
            if let Some(at) = changed {
                train[at].options[options - 1] = 0;
            }
            let steps = [Step::Burst(train.iter().map(Frame::verified).collect())];
            for config in configs(LinkType::Ethernet, 65_535) {
                in_three_ways(config, &steps);
                let (output, _) = run(config, steps.to_vec());
                assert_eq!(output.len(), if changed.is_some() { 3 } else { 1 });
            }
        }
    }
}

/// A change to a packet.
type Change<'a> = &'a dyn Fn(&mut Wire);

/// Packets that are no candidates, though their headers look like those of a run.
#[test]
fn what_is_not_in_the_headers_is_asked_as_well() {
    let size = NonZeroU16::new(50).unwrap();
    let gso = Gso::new(GsoKind::TcpV4, size);
    let elsewhere = ChecksumState::Partial {
        start: 0,
        offset: 16,
    };
    let changes: [(Change<'_>, NotTaken); 7] = [
        (&|wire| wire.gso = Some(gso), NotTaken::Gso),
        (&|wire| wire.shared = true, NotTaken::Shared),
        (&|wire| wire.bytes.push(0), NotTaken::Padding),
        (&|wire| wire.checksum = elsewhere, NotTaken::NoChecksum),
        (
            &|wire| wire.bytes[36..38].fill(0xFF),
            NotTaken::ChecksumForm,
        ),
        (
            // An identification with which the sum of the IP header is zero.
            &|wire| {
                let two = |at| u16::from_be_bytes([wire.bytes[at], wire.bytes[at + 1]]);
                let id = two(4).checked_add(two(10)).unwrap();
                wire.bytes[4..6].copy_from_slice(&id.to_be_bytes());
                wire.bytes[10..12].fill(0xFF);
            },
            NotTaken::ChecksumForm,
        ),
        (
            &|wire| {
                wire.checksum = ChecksumState::None;
                wire.bytes[36] ^= 1;
            },
            NotTaken::BadChecksum,
        ),
    ];
    for (change, why) in changes {
        // In its run; of another flow, with the sequence number that the run awaits, and with one
        // that nothing awaits, by which it is known at once for a first packet.
        for (other, step) in [(false, 0), (true, 0), (true, 5000)] {
            let mut train = frame::train(&frame::tcp4(0), &[100; 4]);
            train[2].ports.0 += u16::from(other);
            train[2].sequence += step;
            let mut burst: Vec<Wire> = train.iter().map(Frame::verified).collect();
            change(&mut burst[2]);
            for config in configs(LinkType::RawIp, 65_535) {
                in_three_ways(config, &[Step::Burst(burst.clone())]);
                // The headers of a packet merged into another are not written.
                if other || why != NotTaken::Shared {
                    let (output, _) = run(config, vec![Step::Burst(burst.clone())]);
                    let (_, done) = output.iter().find(|(wire, _)| wire.ids == [2]).unwrap();
                    assert_eq!(*done, Done::Passed(why));
                }
            }
        }
    }
}
