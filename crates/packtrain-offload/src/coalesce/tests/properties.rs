//! Properties of any train of packets.

use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

use proptest::collection::vec as any_vec;
use proptest::prelude::*;

use super::storage::run_borrowed;
use super::*;
use crate::layout::{Network, Transport};
use crate::test_packets::frame::{Field, Frame, tcp4, timestamps};
use crate::test_packets::slow_sum;
use crate::test_packets::{ACK, CWR, ECE, FIN, PSH, RST, SYN, URG};

const CASES: u32 = if cfg!(miri) { 2 } else { 256 };
/// Packets of one train.
const PACKETS: usize = if cfg!(miri) { 12 } else { 120 };

/// Stores correct checksums in a packet, in place. Returns whether it is TCP or UDP with a final
/// one.
pub(super) fn fix_checksums(bytes: &mut [u8], layout: &Layout) -> bool {
    let (network, transport) = (usize::from(layout.network), usize::from(layout.transport));
    if layout.kind == Network::Ipv4 {
        bytes[network + 10..network + 12].fill(0);
        let sum = !slow_sum(&bytes[network..transport]);
        bytes[network + 10..network + 12].copy_from_slice(&sum.to_be_bytes());
    }
    let at = match layout.transport_kind {
        Transport::Tcp => transport + 16,
        Transport::Udp => transport + 6,
        _ => return false,
    };
    if layout.fragment || layout.source_routed {
        return false;
    }
    let datagram = layout.ip_end as usize - transport;
    let mut summed = match layout.kind {
        Network::Ipv4 => bytes[network + 12..network + 20].to_vec(),
        _ => bytes[network + 8..network + 40].to_vec(),
    };
    summed.extend((datagram as u32).to_be_bytes());
    summed.extend([0, 0, 0, if at == transport + 16 { 6 } else { 17 }]);
    bytes[at..at + 2].fill(0);
    summed.extend(&bytes[transport..transport + datagram]);
    let sum = match !slow_sum(&summed) {
        0 if at == transport + 6 => 0xFFFF,
        sum => sum,
    };
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    true
}

/// What a flow starts with.
#[derive(Clone, Debug)]
struct Flow {
    kind: u8,
    options: u8,
    sequence: u32,
    id: u16,
    df: bool,
    size: usize,
}

/// One packet of it: its flow, its anomaly, its size, its checksum state.
#[derive(Clone, Debug)]
struct Event {
    flow: usize,
    twist: u8,
    length: u16,
    state: u8,
}

/// A train: packets, and where windows end.
#[derive(Clone, Debug)]
pub(super) struct Train {
    link: u8,
    tags: usize,
    flows: Vec<Flow>,
    events: Vec<Event>,
    /// After this many packets: a flush, or a flush by age.
    breaks: Vec<(usize, bool)>,
}

fn any_flow() -> impl Strategy<Value = Flow> {
    let sequence = prop_oneof![Just(0xFFFF_F000_u32), any::<u32>()];
    let id = prop_oneof![Just(0xFFFD_u16), any::<u16>()];
    let size = prop_oneof![
        Just(100_usize),
        Just(1448),
        Just(1447),
        Just(1),
        8_usize..40,
        Just(9001)
    ];
    (0_u8..6, 0_u8..4, sequence, id, any::<bool>(), size).prop_map(
        |(kind, options, sequence, id, df, size)| Flow {
            kind,
            options,
            sequence,
            id,
            df,
            size,
        },
    )
}

pub(super) fn any_train() -> impl Strategy<Value = Train> {
    let event =
        (0_usize..6, 0_u8..120, any::<u16>(), 0_u8..3).prop_map(|(flow, twist, length, state)| {
            Event {
                flow,
                twist,
                length,
                state,
            }
        });
    (
        0_u8..3,
        0_usize..3,
        any_vec(any_flow(), 1..6),
        any_vec(event, 1..PACKETS),
        any_vec((0..PACKETS, any::<bool>()), 0..4),
    )
        .prop_map(|(link, tags, flows, events, breaks)| Train {
            link,
            tags,
            flows,
            events,
            breaks,
        })
}

impl Train {
    pub(super) fn link(&self) -> LinkType {
        [LinkType::RawIp, LinkType::Ethernet, LinkType::Ipoib][usize::from(self.link)]
    }

    fn first(&self, index: usize) -> Frame {
        let flow = &self.flows[index];
        let tags = [(0x88a8, 5), (0x8100, 7)];
        let ipv6 = flow.kind % 2 == 1;
        let tcp = flow.kind < 4;
        let options = match flow.options {
            0 => vec![],
            3 => vec![1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 9],
            _ => timestamps(0xFFFF_FFF0, 1),
        };
        Frame {
            link: self.link(),
            vlans: tags[2 - self.tags.min(2)..].to_vec(),
            ipv6,
            tcp,
            source: 1 + index as u8 / 2 % 2,
            ports: (1000 + index as u16, 443),
            fragment: if flow.df { 0x4000 } else { 0 },
            id: flow.id,
            sequence: flow.sequence,
            extensions: if ipv6 && flow.options == 2 {
                vec![(60, vec![0, 1, 4, 0, 0, 0, 0])]
            } else {
                vec![]
            },
            options: if tcp { options } else { vec![] },
            ..tcp4(0)
        }
    }

    /// The packets, each with its flow. Their checksums are correct, unless they are not verified.
    pub(super) fn build(&self) -> Vec<(usize, Frame, Wire)> {
        let mut next: Vec<Frame> = (0..self.flows.len())
            .map(|index| self.first(index))
            .collect();
        let mut out: Vec<(usize, Frame, Wire)> = vec![];
        for (number, event) in self.events.iter().enumerate() {
            let index = event.flow % self.flows.len();
            let frame = &mut next[index];
            frame.id = frame.id.wrapping_add(1);
            let bytes = length(self.flows[index].size, event);
            let mut this = frame.clone();
            this.payload = (0..bytes).map(|i| (i * 5 + number * 31) as u8).collect();
            twist(
                &mut this,
                frame,
                event,
                out.last().map(|(_, frame, _)| frame),
            );
            frame.sequence = this.sequence.wrapping_add(this.payload.len() as u32);
            let wire = match event.state {
                _ if this.checksum != Field::Right => this.unverified(),
                0 => this.unverified(),
                1 => this.verified(),
                _ => this.partial(),
            };
            out.push((index, this, wire));
            // Reordered on the way.
            let len = out.len();
            if event.twist == 7 && len > 1 && out[len - 1].0 != out[len - 2].0 || event.twist == 8 {
                out.swap(len - 1, len.saturating_sub(2));
            }
        }
        out
    }

    /// Pushes in bursts, with breaks between.
    pub(super) fn steps(&self, wires: &[Wire], bursts: bool) -> Vec<Step> {
        let mut steps = vec![];
        for (number, wire) in wires.iter().enumerate() {
            for (at, all) in &self.breaks {
                if *at == number {
                    let now = number as u64 * 10_000;
                    steps.push(if *all {
                        Step::Flush
                    } else {
                        Step::Age(now, 300_000)
                    });
                }
            }
            match steps.last_mut() {
                Some(Step::Burst(burst)) if bursts => burst.push(wire.clone()),
                _ => {
                    steps.push(Step::Clock(number as u64 * 10_000));
                    steps.push(Step::Burst(vec![wire.clone()]));
                }
            }
        }
        steps
    }
}

fn length(size: usize, event: &Event) -> usize {
    match event.twist {
        0..3 => usize::from(event.length) % size.max(1),
        3 => 0,
        4 => size + 1,
        5 => usize::from(event.length) % 3000,
        _ => size,
    }
}

/// Applies an anomaly to `this`, or, permanently, to the flow's `next`.
fn twist(this: &mut Frame, next: &mut Frame, event: &Event, last: Option<&Frame>) {
    match event.twist {
        10 => this.flags |= PSH,
        11 => this.flags |= FIN,
        12 => this.flags |= SYN,
        13 => this.flags |= RST,
        14 => this.flags |= URG,
        15 => this.flags |= CWR,
        16 => this.flags |= ECE,
        17 => this.flags = event.length as u8,
        18 => this.tos = 3,
        19 => this.ttl = 3,
        20 => this.flow_label = 1,
        // Loss.
        21 => this.sequence = this.sequence.wrapping_add(1448),
        22 => this.sequence = this.sequence.wrapping_sub(100),
        23 => this.id = event.length,
        24 => this.fragment = 0x2000,
        25 if !this.ipv6 => this.ip_options = vec![1, 1, 1, 0],
        26 => this.checksum = Field::Wrong,
        27 if !this.tcp => this.checksum = Field::Value(0),
        28 => this.padding = usize::from(event.length % 20),
        29 if !this.tcp => this.surplus = 8,
        30 => this.urgent = 5,
        31 => this.reserved = 1,
        32 => this.window = event.length,
        33 => this.fragment ^= 0x4000,
        34 if !this.ipv6 => this.ip_checksum = Field::Wrong,
        // Repeated.
        35..38 if last.is_some_and(|last| last.ports == this.ports && last.tcp == this.tcp) => {
            this.clone_from(last.unwrap_or(next));
        }
        // From now on.
        40..44 => {
            next.acknowledgement = next.acknowledgement.wrapping_add(u32::from(event.length));
            this.acknowledgement = next.acknowledgement;
        }
        44 => next.window = event.length,
        45 => next.id = next.id.wrapping_sub(1),
        46 if next.options.len() == 12 && next.options[2] == 8 => {
            let value = u32::from_be_bytes(next.options[4..8].try_into().unwrap());
            next.options = timestamps(value.wrapping_add(u32::from(event.length)), 7);
            this.options.clone_from(&next.options);
        }
        47 if this.options.len() == 12 && this.options[2] == 8 => {
            this.options = timestamps(0xFFFF_FFEF, 1);
        }
        // Pure ACKs, some of which repeat the one before.
        50..60 => {
            this.payload.clear();
            if event.twist < 56 {
                next.acknowledgement = next.acknowledgement.wrapping_add(1);
                this.acknowledgement = next.acknowledgement;
            }
        }
        _ => {}
    }
    if this.fragment & 0x3FFF != 0 && this.ipv6 {
        this.fragment = 0;
    }
}

/// Packets of a flow are in order, and fragments among all packets with their addresses.
fn check_flows(packets: &[(usize, Frame, Wire)], output: &Output) {
    let mut last: BTreeMap<usize, usize> = BTreeMap::new();
    let mut pairs: BTreeMap<_, [Option<usize>; 2]> = BTreeMap::new();
    for (wire, _) in output {
        for &id in &wire.ids {
            let (flow, frame, _) = &packets[id];
            let before = last.insert(*flow, id);
            assert!(before < Some(id), "{id} after {before:?} of flow {flow}");
            let [highest, fragment] = pairs.entry((frame.ipv6, frame.source)).or_default();
            assert!(
                *fragment < Some(id),
                "{id} was overtaken by fragment {fragment:?}"
            );
            if !frame.ipv6 && frame.fragment & 0x3FFF != 0 {
                assert!(
                    *highest < Some(id),
                    "fragment {id} was overtaken by {highest:?}"
                );
                *fragment = Some(id);
            }
            *highest = (*highest).max(Some(id));
        }
    }
}

/// The output of each flow, in order; packets of other flows may be between.
fn per_flow(packets: &[(usize, Frame, Wire)], output: &Output) -> BTreeMap<usize, Vec<Wire>> {
    let mut flows: BTreeMap<usize, Vec<Wire>> = BTreeMap::new();
    for (wire, _) in output {
        flows
            .entry(packets[wire.ids[0]].0)
            .or_default()
            .push(wire.clone());
    }
    flows
}

pub(super) fn assert_same(a: &Output, b: &Output) {
    assert_eq!(a.len(), b.len());
    for ((a, done_a), (b, done_b)) in a.iter().zip(b) {
        assert_eq!((&a.bytes, &a.ids, done_a), (&b.bytes, &b.ids, done_b));
    }
}

/// The same train in every mode, table size, and way of pushing.
fn in_every_way(
    train: &Train,
    semantics: Semantics,
    finish: Finish,
    check: impl Fn(&Config, &[(usize, Frame, Wire)], &Output),
) {
    let packets = train.build();
    let wires: Vec<Wire> = packets.iter().map(|(.., wire)| wire.clone()).collect();
    for flows in [1, 2, 64] {
        let mut results = vec![];
        for mode in MODES {
            let usual = Config::new(semantics, train.link(), flows);
            let (queue, max_bytes, ack_limit) = match flows {
                1 => (1024, usual.max_bytes, 1),
                2 => (7, 3000, 2),
                _ => (1024, usual.max_bytes, usual.ack_limit),
            };
            let config = Config {
                mode,
                finish,
                queue,
                max_bytes,
                ack_limit,
                ..usual
            };
            let (output, stats) = run(config, train.steps(&wires, true));
            check_flows(&packets, &output);
            check_limits(&config, &output);
            check(&config, &packets, &output);
            let (one_by_one, _) = run(config, train.steps(&wires, false));
            if train.breaks.iter().all(|(_, all)| *all) {
                // All packets of a burst have the time of its first packet.
                assert_same(&output, &one_by_one);
            }
            let (borrowed, again) = run_borrowed(config, train.steps(&wires, true));
            assert_same(&output, &borrowed);
            assert_eq!(stats, again);
            results.push(per_flow(&packets, &output));
        }
        // If all flows fit, the mode makes no difference to any of them.
        if flows == 64 && train.breaks.iter().all(|(_, all)| *all) {
            for other in &results[1..] {
                for (flow, list) in &results[0] {
                    let bytes =
                        |list: &[Wire]| list.iter().map(|w| w.bytes.clone()).collect::<Vec<_>>();
                    assert_eq!(bytes(list), bytes(&other[flow]), "flow {flow}");
                }
            }
        }
    }
}

/// No merged packet exceeds the limits of the configuration.
fn check_limits(config: &Config, output: &Output) {
    for (wire, done) in output {
        let Done::Merged(merged) = done else { continue };
        let network = merged.layout.network as usize;
        assert!(wire.bytes.len() - network <= config.max_bytes as usize);
        assert!(merged.absorbed <= config.ack_limit);
    }
}

/// Runs of payload bytes without a gap, in the order in which the receiver gets them.
fn runs<'a>(packets: impl Iterator<Item = (u32, &'a [u8])>) -> Vec<(u32, Vec<u8>)> {
    let mut runs: Vec<(u32, Vec<u8>)> = vec![];
    for (sequence, payload) in packets.filter(|(_, payload)| !payload.is_empty()) {
        match runs.last_mut() {
            Some((first, run)) if first.wrapping_add(run.len() as u32) == sequence => {
                run.extend_from_slice(payload);
            }
            _ => runs.push((sequence, payload.to_vec())),
        }
    }
    runs
}

/// The fields that the receiver of a TCP packet reads.
struct Seen<'a> {
    sequence: u32,
    acknowledgement: u32,
    window: u16,
    options: &'a [u8],
    flags: u8,
    tos: u8,
    payload: &'a [u8],
}

/// `None` if it is not TCP, or a fragment.
fn seen(link: LinkType, bytes: &[u8]) -> Option<Seen<'_>> {
    let layout = Layout::parse(link, bytes, bytes.len() as u32).ok()?;
    if layout.transport_kind != Transport::Tcp {
        return None;
    }
    let tcp = &bytes[usize::from(layout.transport)..];
    let word = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
    let network = usize::from(layout.network);
    let tos = match layout.kind {
        Network::Ipv4 => bytes[network + 1],
        _ => bytes[network] << 4 | bytes[network + 1] >> 4,
    };
    Some(Seen {
        sequence: word(4),
        acknowledgement: word(8),
        window: (word(12) & 0xFFFF) as u16,
        options: &tcp[20..usize::from(layout.l4_header_len())],
        flags: tcp[13],
        tos,
        payload: &bytes[usize::from(layout.payload)..layout.ip_end as usize],
    })
}

fn check_stream(config: &Config, packets: &[(usize, Frame, Wire)], output: &Output) {
    let flows = packets.iter().map(|(flow, ..)| *flow).max().unwrap_or(0);
    for flow in 0..=flows {
        let came = packets
            .iter()
            .filter(|(of, ..)| *of == flow)
            .map(|(.., wire)| wire);
        let left = output
            .iter()
            .map(|(wire, _)| wire)
            .filter(|w| packets[w.ids[0]].0 == flow);
        let stream = |seen: Seen<'_>| (seen.sequence, seen.payload.to_vec());
        let before: Vec<_> = came
            .filter_map(|w| seen(config.link, &w.bytes))
            .map(stream)
            .collect();
        let after: Vec<_> = left
            .filter_map(|w| seen(config.link, &w.bytes))
            .map(stream)
            .collect();
        let of = |list: &[(u32, Vec<u8>)]| {
            let refs: Vec<(u32, &[u8])> = list.iter().map(|(s, p)| (*s, p.as_slice())).collect();
            runs(refs.into_iter())
        };
        assert_eq!(of(&before), of(&after), "the byte stream of flow {flow}");
    }
    for (wire, done) in output {
        if wire.ids.len() > 1 && packets[wire.ids[0]].1.tcp {
            check_superseded(config, packets, wire, merged(done));
        }
        let is_tcp = packets[wire.ids[0]].1.tcp;
        if is_tcp || matches!(done, Done::Passed(_)) {
            continue;
        }
        let pieces = restore(config, wire, done);
        assert_eq!(pieces.len(), wire.ids.len());
        for (piece, &id) in pieces.iter().zip(&wire.ids) {
            let bare = Frame {
                padding: 0,
                ..packets[id].1.clone()
            };
            assert_eq!(*piece, bare.bytes(), "packet {id}");
        }
    }
}

/// A merged packet has the fields of the last packet in it; nothing in between is lost that the
/// last did not supersede.
fn check_superseded(
    config: &Config,
    packets: &[(usize, Frame, Wire)],
    wire: &Wire,
    merged: &Merged,
) {
    let says = seen(config.link, &wire.bytes).unwrap();
    let parts: Vec<Seen<'_>> = (wire.ids.iter())
        .map(|&id| seen(config.link, &packets[id].2.bytes).unwrap())
        .collect();
    let last = parts.last().unwrap();
    assert_eq!(says.sequence, parts[0].sequence);
    assert_eq!(says.acknowledgement, last.acknowledgement);
    assert_eq!(says.window, last.window);
    assert_eq!(says.options, last.options);
    let flags = parts.iter().fold(0, |flags, part| flags | part.flags);
    assert_eq!(says.flags, flags);
    assert_eq!(flags & !(ACK | PSH), 0);
    let pure = parts.iter().filter(|part| part.payload.is_empty()).count();
    let absorbed = if pure == parts.len() { pure - 1 } else { pure };
    assert_eq!(usize::from(merged.absorbed), absorbed);
    for pair in parts.windows(2) {
        let ahead = pair[1]
            .acknowledgement
            .wrapping_sub(pair[0].acknowledgement) as i32;
        assert!(ahead >= 0, "an acknowledgement went back");
        let repeats = pair[1].payload.is_empty() && ahead == 0 && pair[1].window <= pair[0].window;
        assert!(!repeats, "a repeated ACK was absorbed");
    }
    for part in &parts {
        assert_eq!(part.tos, says.tos, "a congestion mark was lost");
    }
}

/// A repeated ACK whose original was held leaves alone.
fn check_repeated(
    train: &Train,
    config: &Config,
    packets: &[(usize, Frame, Wire)],
    output: &Output,
) {
    let passed = |id: usize| {
        output
            .iter()
            .any(|(w, done)| w.ids.contains(&id) && matches!(done, Done::Passed(_)))
    };
    let any_fragment = packets
        .iter()
        .any(|(_, f, _)| !f.ipv6 && f.fragment & 0x3FFF != 0);
    if config.flows < 64 || !train.breaks.is_empty() || any_fragment {
        return;
    }
    for flow in 0..train.flows.len() {
        let ids: Vec<usize> = (0..packets.len())
            .filter(|&id| packets[id].0 == flow)
            .collect();
        for pair in ids.windows(2) {
            let (was, is) = (&packets[pair[0]], &packets[pair[1]]);
            let (Some(a), Some(b)) = (
                seen(config.link, &was.2.bytes),
                seen(config.link, &is.2.bytes),
            ) else {
                continue;
            };
            let repeats = b.payload.is_empty()
                && (a.acknowledgement, a.window) == (b.acknowledgement, b.window);
            if repeats && !passed(pair[0]) && !passed(pair[1]) {
                let alone = output.iter().any(|(wire, _)| wire.ids == [pair[1]]);
                assert!(alone, "the repeated ACK {} is counted", pair[1]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: CASES,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn reversible_is_reversible(train in any_train(), complete: bool) {
        let finish = if complete { Finish::Complete } else { Finish::Partial };
        in_every_way(&train, Semantics::Reversible, finish, |config, packets, output| {
            for (wire, done) in output {
                let pieces = restore(config, wire, done);
                assert_eq!(pieces.len(), wire.ids.len());
                for (piece, &id) in pieces.iter().zip(&wire.ids) {
                    assert_eq!(*piece, packets[id].2.finished(), "packet {id}: {done:?}");
                }
            }
        });
    }

    #[test]
    fn streams_are_the_same(train in any_train(), complete: bool) {
        let finish = if complete { Finish::Complete } else { Finish::Partial };
        in_every_way(&train, Semantics::Stream, finish, |config, packets, output| {
            check_stream(config, packets, output);
            check_repeated(&train, config, packets, output);
        });
    }

    /// Packets with bytes changed, cut off or added at any place. Checksums are corrected if
    /// possible, so that parsing gets further.
    #[test]
    fn hostile_bytes(
        train in any_train(),
        changes in any_vec(
            (any::<prop::sample::Index>(), 0_usize..90, any::<u8>(), any::<bool>()),
            1..60,
        ),
        cuts in any_vec((any::<prop::sample::Index>(), 0_usize..2000), 0..10),
        stream: bool,
    ) {
        let mut wires: Vec<Wire> = train.build().into_iter().map(|(.., wire)| wire).collect();
        for (which, at, value, fix) in changes {
            let wire = &mut wires[which.index(train.events.len())];
            wire.checksum = ChecksumState::None;
            let len = wire.bytes.len();
            wire.bytes[at % len] = value;
            let layout = Layout::parse(train.link(), &wire.bytes, len as u32);
            if let (true, Ok(layout)) = (fix, layout) {
                fix_checksums(&mut wire.bytes, &layout);
            }
        }
        for (which, length) in cuts {
            let wire = &mut wires[which.index(train.events.len())];
            wire.checksum = ChecksumState::None;
            wire.bytes.resize(length, 0xAA);
        }
        let semantics = if stream { Semantics::Stream } else { Semantics::Reversible };
        for mode in MODES {
            let config = Config { mode, ..Config::new(semantics, train.link(), 3) };
            let (output, _) = run(config, train.steps(&wires, true));
            if !stream {
                check_restored(&config, &wires, &output);
            }
        }
    }

    /// The metadata of a packet is wrong: no panic, no packet lost.
    #[test]
    fn hostile_states(
        train in any_train(),
        states in any_vec((any::<u16>(), any::<u16>(), 0_u8..4), PACKETS),
        stream: bool,
    ) {
        let mut wires: Vec<Wire> = train.build().into_iter().map(|(.., wire)| wire).collect();
        for (wire, (start, offset, kind)) in wires.iter_mut().zip(states) {
            wire.checksum = match kind {
                0 => ChecksumState::None,
                1 => ChecksumState::Unnecessary,
                _ => ChecksumState::Partial { start, offset },
            };
            wire.room = usize::from(start % 8);
            wire.shared = offset % 16 == 0;
            wire.head = if start % 16 == 1 { usize::from(offset % 100) } else { usize::MAX };
        }
        let semantics = if stream { Semantics::Stream } else { Semantics::Reversible };
        for mode in MODES {
            let config = Config { mode, ..Config::new(semantics, train.link(), 3) };
            let mut coalescer = Coalescer::new(config, Owned::for_config(&config)).unwrap();
            let mut out: Vec<usize> = vec![];
            let numbered = wires.iter().enumerate().map(|(id, wire)| Wire {
                ids: vec![id],
                ..wire.clone()
            });
            coalescer.push_burst(0, numbered, &mut |wire, _| out.extend(&wire.ids));
            coalescer.flush(&mut |wire, _| out.extend(&wire.ids));
            prop_assert_eq!(coalescer.held(), 0);
            out.sort_unstable();
            prop_assert_eq!(out, (0..wires.len()).collect::<Vec<_>>());
        }
    }
}
