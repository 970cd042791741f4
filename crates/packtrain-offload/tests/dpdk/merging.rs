//! Coalescing of TCP over IPv4.

use crate::Random;
use crate::oracle::{BURST_MAX, Shim, with_dpdk};
use crate::rounds;
use crate::test_packets::frame::{Field, Frame, tcp4, timestamps, train};
use crate::test_packets::wire::Wire;
use crate::test_packets::{CWR, FIN, PSH};
use packtrain_offload::coalesce::{Coalescer, Config, Done, Owned, Semantics};
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::LinkType;

/// The output: Ethernet frames.
fn ours(burst: &[Wire]) -> Vec<Vec<u8>> {
    let config = Config::new(Semantics::Reversible, LinkType::Ethernet, 128);
    let mut coalescer = Coalescer::new(config, Owned::for_config(&config)).unwrap();
    let mut out = vec![];
    let mut sink = |wire: Wire, _: &Done| out.push(wire.bytes);
    coalescer.push_burst(0, burst.iter().cloned(), &mut sink);
    coalescer.flush(&mut sink);
    out
}

/// The compared fields of an output packet: ports, sequence number and acknowledgement, IP length,
/// payload. DPDK does not compute checksums and flags of merged packets.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Merged {
    words: Vec<u8>,
    ip_bytes: u16,
    payload: Vec<u8>,
}

fn merged(frames: &[Vec<u8>]) -> Vec<Merged> {
    let one = |frame: &Vec<u8>| {
        let layout = Layout::parse(LinkType::Ethernet, frame, frame.len() as u32).unwrap();
        let (network, transport) = (usize::from(layout.network), usize::from(layout.transport));
        Merged {
            words: frame[transport..transport + 12].to_vec(),
            ip_bytes: u16::from_be_bytes([frame[network + 2], frame[network + 3]]),
            payload: frame[usize::from(layout.payload)..layout.ip_end as usize].to_vec(),
        }
    };
    let mut all: Vec<_> = frames.iter().map(one).collect();
    // DPDK returns merged packets first, and keeps no order between flows.
    all.sort();
    all
}

fn lengths(merged: &[Merged]) -> Vec<usize> {
    merged.iter().map(|one| one.payload.len()).collect()
}

fn theirs(dpdk: &Shim, frames: &[Frame]) -> Vec<Merged> {
    let burst: Vec<_> = frames.iter().map(Frame::bytes).collect();
    merged(&dpdk.merge(&burst, frames[0].transport() - 20))
}

/// Alternating flows that both sides treat alike: sizes that are equal, or shorter before a loss;
/// ACK alone; no packet overtakes.
fn random_burst(random: &mut Random) -> Vec<Frame> {
    let flows = 1 + random.below(8);
    let vlan = random.one_in(4);
    let mut next: Vec<Frame> = (0..flows)
        .map(|flow| {
            let mut frame = tcp4(0).ethernet();
            frame.ports.0 = flow as u16;
            if vlan {
                frame.vlans = vec![(0x8100, 5)];
            }
            frame.id = random.next() as u16;
            if random.one_in(2) {
                // If DPDK reads it, it does not wrap.
                frame.fragment = 0;
                frame.id %= 0x8000;
            }
            frame.sequence = random.next() as u32;
            if random.one_in(2) {
                frame.options = timestamps(7, 8);
            }
            frame
        })
        .collect();
    let sizes: Vec<usize> = next.iter().map(|_| 8 + random.below(1400)).collect();
    let mut burst = vec![];
    for _ in 0..1 + random.below(BURST_MAX) {
        let flow = random.below(flows);
        let frame = &mut next[flow];
        let short = random.one_in(10);
        let bytes = if short {
            1 + random.below(sizes[flow])
        } else {
            sizes[flow]
        };
        frame.payload = random.bytes(bytes);
        burst.push(frame.clone());
        frame.sequence = frame.sequence.wrapping_add(bytes as u32);
        frame.id = frame.id.wrapping_add(1);
        if short || random.one_in(10) {
            // Some are lost.
            frame.sequence = frame.sequence.wrapping_add(1 + random.next() as u32 % 5000);
            frame.id = frame.id.wrapping_add(1 + random.next() as u16 % 100);
        }
        match random.below(40) {
            0 => frame.acknowledgement = frame.acknowledgement.wrapping_add(1000),
            1 if frame.fragment == 0 => frame.id = frame.id.wrapping_add(1),
            2 if !frame.options.is_empty() => frame.options[7] ^= 1,
            _ => {}
        }
    }
    burst
}

#[test]
fn trains_are_merged_as_by_rte_gro() {
    with_dpdk("trains", |dpdk| {
        let mut fewer = 0;
        for round in 0..rounds() {
            let frames = random_burst(&mut Random::new("trains", round));
            let verified: Vec<_> = frames.iter().map(Frame::verified).collect();
            let (ours, theirs) = (merged(&ours(&verified)), theirs(dpdk, &frames));
            assert_eq!(lengths(&ours), lengths(&theirs), "payloads, seed {round}");
            assert!(ours == theirs, "seed {round}");
            fewer += frames.len() - ours.len();
        }
        assert!(fewer as u64 > 10 * rounds(), "merged {fewer} only");
    });
}

#[test]
fn a_full_packet_is_as_full_as_that_of_rte_gro() {
    with_dpdk("a full packet", |dpdk| {
        for bytes in [512, 1000, 1448, 1460] {
            let frames = train(&tcp4(0).ethernet(), &[bytes; BURST_MAX]);
            let verified: Vec<_> = frames.iter().map(Frame::verified).collect();
            let (ours, theirs) = (merged(&ours(&verified)), theirs(dpdk, &frames));
            assert_eq!(lengths(&ours), lengths(&theirs));
            assert!(ours == theirs);
        }
    });
}

/// The difference of the second of two packets from the first.
type Change = (&'static str, fn(&mut Frame));

/// They merge all the same.
const BOTH: &[Change] = &[
    ("nothing", |_| ()),
    ("shorter", |frame| frame.payload.truncate(50)),
    ("the same identification with DF", |frame| frame.id -= 1),
];

/// They merge neither here nor in DPDK.
const NEITHER: &[Change] = &[
    ("a gap", |frame| frame.sequence += 1),
    ("an overlap", |frame| frame.sequence -= 1),
    ("acknowledgement", |frame| frame.acknowledgement += 1),
    ("options", |frame| frame.options[7] ^= 1),
    ("CWR", |frame| frame.flags |= CWR),
    ("no payload", |frame| frame.payload.clear()),
    ("identification without DF", |frame| {
        (frame.fragment, frame.id) = (0, frame.id + 5);
    }),
    ("MAC address", |frame| frame.macs[5] = 9),
];

/// They merge here alone.
const OURS: &[Change] = &[
    ("FIN", |frame| frame.flags |= FIN),
    ("PSH", |frame| frame.flags |= PSH),
];

/// They merge in DPDK alone. DPDK loses the fields that it does not compare, and `segment` could
/// not restore them.
const THEIRS: &[Change] = &[
    ("longer", |frame| frame.payload.push(1)),
    ("identification with DF", |frame| frame.id += 5),
    ("window", |frame| frame.window += 1),
    ("TOS", |frame| frame.tos = 3),
    ("TTL", |frame| frame.ttl -= 1),
    ("VLAN", |frame| frame.vlans[0].1 = 6),
    ("wrong checksum", |frame| frame.checksum = Field::Wrong),
    ("wrong IP checksum", |frame| {
        frame.ip_checksum = Field::Wrong;
    }),
    ("padding", |frame| frame.padding = 2),
];

#[test]
fn differences_from_rte_gro_are_those_that_are_meant() {
    with_dpdk("differences", |dpdk| {
        let mut first = tcp4(0).ethernet();
        first.vlans = vec![(0x8100, 5)];
        first.options = timestamps(7, 8);
        let lists = [
            ((true, true), BOTH),
            ((false, false), NEITHER),
            ((true, false), OURS),
            ((false, true), THEIRS),
        ];
        let all = lists
            .into_iter()
            .flat_map(|(expected, list)| list.iter().map(move |change| (expected, change)));
        for (expected, (name, change)) in all {
            let mut frames = train(&first, &[100, 100]);
            change(&mut frames[1]);
            if frames[1].fragment == 0 {
                frames[0].fragment = 0;
            }
            let unverified: Vec<_> = frames.iter().map(Frame::unverified).collect();
            let merge = (
                ours(&unverified).len() == 1,
                theirs(dpdk, &frames).len() == 1,
            );
            assert_eq!(merge, expected, "(ours, DPDK): {name}");
        }
    });
}

#[test]
fn identifications_wrap_here_and_not_in_rte_gro() {
    with_dpdk("wrapping", |dpdk| {
        let first = Frame {
            id: u16::MAX,
            fragment: 0,
            ..tcp4(0).ethernet()
        };
        let frames = train(&first, &[100, 100]);
        let unverified: Vec<_> = frames.iter().map(Frame::unverified).collect();
        assert_eq!(lengths(&merged(&ours(&unverified))), [200]);
        assert_eq!(lengths(&theirs(dpdk, &frames)), [100, 100]);
    });
}

#[test]
fn rte_gro_puts_reordered_packets_together_and_reversible_keeps_their_order() {
    with_dpdk("reordered", |dpdk| {
        let mut frames = train(&tcp4(0).ethernet(), &[100, 100]);
        frames.swap(0, 1);
        let unverified: Vec<_> = frames.iter().map(Frame::unverified).collect();
        assert_eq!(lengths(&merged(&ours(&unverified))), [100, 100]);
        assert_eq!(lengths(&theirs(dpdk, &frames)), [200]);
    });
}
