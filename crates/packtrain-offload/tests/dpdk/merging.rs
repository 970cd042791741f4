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

/// What came out: Ethernet frames.
fn ours(burst: &[Wire]) -> Vec<Vec<u8>> {
    let config = Config::new(Semantics::Reversible, LinkType::Ethernet, 128);
    let mut coalescer = Coalescer::new(config, Owned::for_config(&config)).unwrap();
    let mut out = vec![];
    let mut sink = |wire: Wire, _: &Done| out.push(wire.bytes);
    coalescer.push_burst(0, burst.iter().cloned(), &mut sink);
    coalescer.flush(&mut sink);
    out
}

/// What is compared of a packet that came out: ports, sequence number and acknowledgement, IP
/// length, payload. Checksums and flags of merged packets DPDK leaves to others.
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
    // DPDK gives out merged packets first, and keeps no order between flows.
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

/// Flows in turn of which both sides have the same idea: sizes that are equal, or shorter where
/// something is lost afterwards; ACK alone; no packet overtakes.
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
                // Where DPDK looks at it, it does not wrap.
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

/// Two packets, of which the second is changed.
struct Difference {
    name: &'static str,
    change: fn(&mut Frame),
    /// Whether they merge here, and in DPDK.
    merge: (bool, bool),
}

/// Where the second packet is not one that both sides would merge. The first ones are agreed on; of
/// the others DPDK loses what it does not compare, and `segment` could not bring it back.
const DIFFERENCES: &[Difference] = &[
    Difference {
        name: "nothing",
        change: |_| (),
        merge: (true, true),
    },
    Difference {
        name: "a gap",
        change: |frame| frame.sequence += 1,
        merge: (false, false),
    },
    Difference {
        name: "an overlap",
        change: |frame| frame.sequence -= 1,
        merge: (false, false),
    },
    Difference {
        name: "acknowledgement",
        change: |frame| frame.acknowledgement += 1,
        merge: (false, false),
    },
    Difference {
        name: "options",
        change: |frame| frame.options[7] ^= 1,
        merge: (false, false),
    },
    Difference {
        name: "FIN",
        change: |frame| frame.flags |= FIN,
        merge: (true, false),
    },
    Difference {
        name: "PSH",
        change: |frame| frame.flags |= PSH,
        merge: (true, false),
    },
    Difference {
        name: "CWR",
        change: |frame| frame.flags |= CWR,
        merge: (false, false),
    },
    Difference {
        name: "no payload",
        change: |frame| frame.payload.clear(),
        merge: (false, false),
    },
    Difference {
        name: "shorter",
        change: |frame| frame.payload.truncate(50),
        merge: (true, true),
    },
    Difference {
        name: "longer",
        change: |frame| frame.payload.push(1),
        merge: (false, true),
    },
    Difference {
        name: "identification with DF",
        change: |frame| frame.id += 5,
        merge: (false, true),
    },
    Difference {
        name: "the same identification with DF",
        change: |frame| frame.id -= 1,
        merge: (true, true),
    },
    Difference {
        name: "identification without DF",
        change: |frame| (frame.fragment, frame.id) = (0, frame.id + 5),
        merge: (false, false),
    },
    Difference {
        name: "window",
        change: |frame| frame.window += 1,
        merge: (false, true),
    },
    Difference {
        name: "TOS",
        change: |frame| frame.tos = 3,
        merge: (false, true),
    },
    Difference {
        name: "TTL",
        change: |frame| frame.ttl -= 1,
        merge: (false, true),
    },
    Difference {
        name: "VLAN",
        change: |frame| frame.vlans[0].1 = 6,
        merge: (false, true),
    },
    Difference {
        name: "MAC address",
        change: |frame| frame.macs[5] = 9,
        merge: (false, false),
    },
    Difference {
        name: "wrong checksum",
        change: |frame| frame.checksum = Field::Wrong,
        merge: (false, true),
    },
    Difference {
        name: "wrong IP checksum",
        change: |frame| frame.ip_checksum = Field::Wrong,
        merge: (false, true),
    },
    Difference {
        name: "padding",
        change: |frame| frame.padding = 2,
        merge: (false, true),
    },
];

#[test]
fn differences_from_rte_gro_are_those_that_are_meant() {
    with_dpdk("differences", |dpdk| {
        let mut first = tcp4(0).ethernet();
        first.vlans = vec![(0x8100, 5)];
        first.options = timestamps(7, 8);
        for difference in DIFFERENCES {
            let mut frames = train(&first, &[100, 100]);
            (difference.change)(&mut frames[1]);
            if frames[1].fragment == 0 {
                frames[0].fragment = 0;
            }
            let unverified: Vec<_> = frames.iter().map(Frame::unverified).collect();
            let merge = (
                ours(&unverified).len() == 1,
                theirs(dpdk, &frames).len() == 1,
            );
            assert_eq!(merge, difference.merge, "(ours, DPDK): {}", difference.name);
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
