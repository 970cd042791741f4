//! A coalescer and a train of packets made from a fuzz input, with the checks that hold for any
//! train.

use std::collections::HashMap;
use std::sync::OnceLock;

#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../../../crates/packtrain-offload/src/test_packets/mod.rs"]
mod test_packets;

use packtrain_fuzz::{
    Input, checksum_field, checksum_offset, plain_sum, pseudo_header, reached, write_checksums,
};
use packtrain_offload::checksum;
use packtrain_offload::coalesce::{
    Coalescer, Config, Done, Finish, Merged, Mode, NotTaken, Owned, Semantics,
};
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::{ChecksumState, LinkType};
use packtrain_offload::segment::{Fill, Segmenter};
use packtrain_offload::virtio_net::{Accept, describe, validate};
use test_packets::frame::{Field, Frame, tcp4, tcp6, timestamps, udp4, udp6};
use test_packets::wire::Wire;

/// Packets of one train.
const PACKETS_MAX: usize = 200;
/// Packets given at once.
const BURST_MAX: usize = 64;
/// Flows already held, in a crowd: above the limit for lookups without prefetch (`IN_CACHE` in
/// `coalesce/inner.rs`).
const CROWD: usize = 2048 + 300;
/// Entries and places in the queue there.
const CROWD_ROOM: u32 = 4096;
/// Bytes of payload in its packets.
const CROWD_BYTES: usize = 8;

/// Runs the train of `data`, with or without a crowd.
pub fn run(data: &[u8], is_crowded: bool) {
    let mut input = Input(data);
    let settings = input.byte();
    let link = input.link();
    let semantics = if settings & 1 == 0 {
        Semantics::Reversible
    } else {
        Semantics::Stream
    };
    let mut config = Config::new(semantics, link, u32::from(settings >> 1 & 7));
    config.mode =
        [Mode::Hash, Mode::Sorted, Mode::Auto, Mode::Auto][usize::from(settings >> 4 & 3)];
    config.queue = 1 + u32::from(settings >> 5);
    config.finish = if settings & 0x40 == 0 {
        Finish::Partial
    } else {
        Finish::Complete
    };
    if is_crowded {
        (config.flows, config.queue) = (CROWD_ROOM, CROWD_ROOM);
    }
    let mut coalescer = Coalescer::new(config, Owned::for_config(&config)).expect("made for it");
    let mut sent: Vec<Wire> = Vec::new();
    let mut out: Vec<(Wire, Done)> = Vec::new();
    let mut flows = [Flow::default(); 4];
    let mut crowd = vec![0; if is_crowded { CROWD } else { 0 }];
    if is_crowded {
        for (id, bytes) in crowd_of(link).iter().enumerate() {
            sent.push(Wire::new(bytes.clone(), ChecksumState::None));
            sent[id].ids = vec![id];
        }
        for burst in sent.chunks(BURST_MAX) {
            coalescer.push_burst(0, burst.to_vec(), &mut |wire, done| out.push((wire, *done)));
        }
    }
    let packets_max = sent.len() + PACKETS_MAX;
    let mut burst: Vec<Wire> = Vec::new();
    while !input.0.is_empty() && sent.len() < packets_max {
        let mut sink = |wire: Wire, done: &Done| out.push((wire, *done));
        let kind = input.byte();
        // One by one, or with the next packets.
        let mut is_whole = true;
        match kind {
            254 | 255 => {}
            0x0B if is_crowded => {
                let (first, count) = (usize::from(input.word()), usize::from(input.byte()));
                for number in first..=first + count % BURST_MAX {
                    let wire = of_crowd(link, number % CROWD, &mut crowd);
                    add(wire, &mut sent, &mut burst);
                }
            }
            _ => {
                let wire = next(kind, link, &mut flows, &sent, &mut input);
                add(wire, &mut sent, &mut burst);
                is_whole = kind & 0x40 == 0 || burst.len() >= BURST_MAX;
            }
        }
        let now = (sent.len() as u64) << 15;
        if is_whole {
            note_reached(&config, &coalescer, &burst);
            match burst.len() {
                1 => coalescer.push(now, burst.remove(0), &mut sink),
                _ => coalescer.push_burst(now, burst.drain(..), &mut sink),
            }
        }
        match kind {
            255 => coalescer.flush(&mut sink),
            254 => coalescer.flush_inactive(u64::from(input.word()) << 10, 1 << 15, &mut sink),
            _ => {}
        }
    }
    let now = (sent.len() as u64) << 15;
    coalescer.push_burst(now, burst, &mut |wire, done| out.push((wire, *done)));
    coalescer.flush(&mut |wire, done| out.push((wire, *done)));
    assert_eq!(coalescer.held(), 0, "one flush empties everything");
    let stats = *coalescer.stats();
    assert_eq!(stats.packets, sent.len() as u64);
    assert_eq!(stats.packets, stats.emitted + stats.merged - stats.supers);
    assert_eq!(stats.emitted, out.len() as u64);
    assert_eq!(
        stats.emitted,
        stats.flushes.total() + stats.not_taken.total()
    );
    let wrong = |(_, done): &&(Wire, Done)| *done == Done::Passed(NotTaken::BadChecksum);
    assert_eq!(stats.bad_checksums, out.iter().filter(wrong).count() as u64);
    if stats.merged > 0 {
        reached("merged");
    }
    check(&config, &sent, &out);
}

/// One more packet of the train, added to the current burst.
fn add(mut wire: Wire, sent: &mut Vec<Wire>, burst: &mut Vec<Wire>) {
    wire.ids = vec![sent.len()];
    sent.push(wire.clone());
    burst.push(wire);
}

/// The method of the coalescer that takes the next burst.
fn note_reached(config: &Config, coalescer: &Coalescer<Wire, Owned<Wire>>, burst: &[Wire]) {
    if burst.len() < 2 {
        return;
    }
    let merges_only = config.semantics == Semantics::Reversible && config.finish == Finish::Partial;
    let is_crowded = coalescer.held() >= CROWD - PACKETS_MAX;
    if coalescer.is_sorting() {
        reached(if is_crowded {
            "a queue of thousands"
        } else {
            "a queue"
        });
    } else if merges_only {
        reached(if is_crowded { "fetching ahead" } else { "runs" });
    } else {
        reached("one by one");
    }
}

/// The first packets of the crowd.
fn crowd_of(link: LinkType) -> &'static [Vec<u8>] {
    static CROWDS: [OnceLock<Vec<Vec<u8>>>; 3] = [const { OnceLock::new() }; 3];
    let crowd = match link {
        LinkType::Ethernet => &CROWDS[0],
        LinkType::RawIp => &CROWDS[1],
        _ => &CROWDS[2],
    };
    crowd.get_or_init(|| {
        (0..CROWD)
            .map(|number| crowd_frame(link, number, 0))
            .collect()
    })
}

/// The next packet of one of the crowd's flows; `counts` has the number after the first.
fn of_crowd(link: LinkType, number: usize, counts: &mut [u16]) -> Wire {
    counts[number] += 1;
    Wire::new(
        crowd_frame(link, number, counts[number]),
        ChecksumState::None,
    )
}

fn crowd_frame(link: LinkType, number: usize, count: u16) -> Vec<u8> {
    let base = if number % 8 == 7 {
        udp4(CROWD_BYTES)
    } else {
        tcp4(CROWD_BYTES)
    };
    let frame = Frame {
        link,
        ports: (2000 + number as u16, 443),
        id: count,
        sequence: u32::from(count) * CROWD_BYTES as u32,
        ..base
    };
    frame.bytes()
}

/// The state that a flow continues from.
#[derive(Clone, Copy, Default)]
struct Flow {
    sequence: u32,
    acknowledgement: u32,
    id: u16,
}

/// One more packet: of a flow, an earlier one with a byte changed, or any bytes.
fn next(
    kind: u8,
    link: LinkType,
    flows: &mut [Flow; 4],
    sent: &[Wire],
    input: &mut Input<'_>,
) -> Wire {
    let bytes = match kind & 0x3F {
        0 => {
            let bytes = usize::from(input.byte());
            let (taken, rest) = input.0.split_at(bytes.min(input.0.len()));
            input.0 = rest;
            taken.to_vec()
        }
        1..8 if !sent.is_empty() => {
            let mut bytes = sent[usize::from(input.byte()) % sent.len()].bytes.clone();
            let at = usize::from(input.byte());
            if let Some(byte) = bytes.get_mut(at) {
                *byte = input.byte();
            }
            bytes
        }
        _ => build(kind, link, &mut flows[usize::from(kind & 3)], input),
    };
    let mut wire = Wire::new(bytes, ChecksumState::None);
    if kind & 0x3F == 9 {
        wire.room = 2;
    }
    if kind & 0x3F != 10 {
        finish(&mut wire, link, kind & 0x30);
    }
    wire
}

/// A packet that continues its flow, unless the input changes it.
fn build(kind: u8, link: LinkType, flow: &mut Flow, input: &mut Input<'_>) -> Vec<u8> {
    let odd = input.byte();
    let payload_bytes = match input.byte() {
        0..200 => 40,
        less => usize::from(less - 200),
    };
    let (ipv6, tcp) = (kind & 1 == 1, kind & 2 == 0);
    let mut frame = Frame {
        link,
        ports: (u16::from(kind & 3), 443),
        id: flow.id,
        // `next()` makes them.
        ip_checksum: Field::Value(0),
        checksum: Field::Value(0),
        payload: vec![odd; payload_bytes],
        ..match (ipv6, tcp) {
            (false, true) => tcp4(0),
            (true, true) => tcp6(0),
            (false, false) => udp4(0),
            (true, false) => udp6(0),
        }
    };
    if kind & 8 != 0 {
        frame.vlans = vec![(0x8100, u16::from(odd & 0x20))];
    }
    if odd & 0x10 != 0 {
        frame.options = timestamps(1, 1);
    }
    if !ipv6 {
        flow.id = flow.id.wrapping_add(u16::from(odd & 1 == 0));
    }
    if tcp {
        flow.acknowledgement = flow.acknowledgement.wrapping_add(u32::from(odd >> 7));
        frame.sequence = flow.sequence;
        frame.acknowledgement = flow.acknowledgement;
        frame.window = 0x100 | u16::from(odd & 0x40);
        if odd & 0x0E == 0x0E {
            frame.flags = input.byte();
        }
        flow.sequence = flow.sequence.wrapping_add(payload_bytes as u32);
    }
    let mut packet = frame.bytes();
    if odd & 0x0C == 0x0C {
        // Link padding, of zeros: an unfinished checksum goes to the end of the packet.
        packet.resize(packet.len() + 3, 0);
    }
    packet
}

/// Makes the checksums correct, and returns their state.
fn finish(wire: &mut Wire, link: LinkType, state: u8) {
    let bytes = &mut wire.bytes;
    write_checksums(bytes, link);
    let Ok(layout) = Layout::parse(link, bytes, bytes.len() as u32) else {
        return;
    };
    let Some(offset) = checksum_offset(&layout).filter(|_| !layout.source_routed) else {
        return;
    };
    if state == 0x20 {
        let at = usize::from(layout.transport) + usize::from(offset);
        let preload = plain_sum(&[&pseudo_header(bytes, &layout)]);
        bytes[at..at + 2].copy_from_slice(&preload.to_be_bytes());
        wire.checksum = ChecksumState::Partial {
            start: layout.transport,
            offset,
        };
    } else if state == 0x10 {
        wire.checksum = ChecksumState::Unnecessary;
    }
}

fn check(config: &Config, sent: &[Wire], out: &[(Wire, Done)]) {
    let mut seen = vec![false; sent.len()];
    let mut last: HashMap<Vec<u8>, usize> = HashMap::new();
    for (wire, done) in out {
        for &id in &wire.ids {
            assert!(!std::mem::replace(&mut seen[id], true), "packet {id} twice");
            if let Some(flow) = flow_of(config.link, &sent[id].bytes) {
                let before = last.insert(flow, id);
                assert!(before < Some(id), "{id} after {before:?}");
            }
        }
        let first = &sent[wire.ids[0]];
        match done {
            Done::Passed(_) => assert_eq!(wire.bytes, first.bytes, "untouched"),
            Done::Alone(_) => assert_eq!(wire.bytes, first.bytes[..wire.bytes.len()]),
            Done::Merged(merged) => check_merged(config, sent, wire, merged),
        }
    }
    assert!(seen.iter().all(|seen| *seen), "nothing is lost");
}

/// Addresses, ports and protocol.
fn flow_of(link: LinkType, bytes: &[u8]) -> Option<Vec<u8>> {
    let layout = Layout::parse(link, bytes, bytes.len() as u32).ok()?;
    checksum_offset(&layout).filter(|_| !layout.fragment)?;
    let mut flow = pseudo_header(bytes, &layout);
    // Without the length.
    let addresses = flow.len() - 8;
    flow.drain(addresses..addresses + 4);
    let ports = usize::from(layout.transport);
    flow.extend(&bytes[ports..ports + 4]);
    Some(flow)
}

fn check_merged(config: &Config, sent: &[Wire], wire: &Wire, merged: &Merged) {
    let bytes = wire.bytes.len() as u32;
    let layout = Layout::parse(config.link, &wire.bytes, bytes).expect("it parses");
    assert_eq!(layout, merged.layout);
    assert_eq!(layout.ip_end, bytes);
    let count = usize::from(merged.pieces) + usize::from(merged.absorbed);
    assert_eq!(count, wire.ids.len());
    let transport = usize::from(layout.transport);
    let offset = checksum_offset(&layout).expect("TCP or UDP");
    let at = transport + usize::from(offset);
    let pseudo = plain_sum(&[&pseudo_header(&wire.bytes, &layout)]);
    if config.finish == Finish::Partial {
        assert_eq!(wire.bytes[at..at + 2], pseudo.to_be_bytes());
    } else {
        let pseudo = pseudo_header(&wire.bytes, &layout);
        let sum = plain_sum(&[&pseudo, &wire.bytes[transport..]]);
        assert_eq!(sum, 0xffff, "the checksum of a merged packet");
    }
    if let Some(gso) = merged.gso {
        let state = ChecksumState::Partial {
            start: layout.transport,
            offset,
        };
        let header = describe(state, Some(gso), Some(&layout));
        validate(&header, config.link, Accept::ALL, &wire.bytes, bytes).expect("a right header");
    }
    if config.semantics == Semantics::Reversible || offset == 6 {
        check_cut(config, sent, wire, merged, &layout);
    }
}

/// Segmenting restores the original packets.
fn check_cut(config: &Config, sent: &[Wire], wire: &Wire, merged: &Merged, layout: &Layout) {
    let gso = merged.gso.expect("more than one payload");
    let bytes = wire.bytes.len() as u32;
    let cut = Segmenter::new(&wire.bytes, layout, gso, bytes).expect("it can be cut");
    assert_eq!(cut.segments() as usize, wire.ids.len());
    for (index, &id) in (0..).zip(&wire.ids) {
        let range = cut.payload(index);
        let payload = &wire.bytes[range.start as usize..range.end as usize];
        let mut segment = vec![0; cut.header_bytes()];
        let fill = Fill::Complete {
            payload: checksum::sum(payload),
        };
        cut.write_header(index, &wire.bytes, &mut segment, fill)
            .expect("there is room");
        segment.extend_from_slice(payload);
        let came = finished(&sent[id]);
        if config.semantics == Semantics::Reversible {
            assert_eq!(segment, came);
        } else {
            // Link padding was cut off, and the IPv4 checksum may have another form.
            let start = usize::from(layout.transport);
            assert_eq!(segment[start..], came[start..segment.len()]);
        }
    }
}

fn finished(wire: &Wire) -> Vec<u8> {
    let mut bytes = wire.bytes.clone();
    if let ChecksumState::Partial { start, offset } = wire.checksum {
        let start = usize::from(start);
        let at = start + usize::from(offset);
        let sum = plain_sum(&[&bytes[start..]]);
        bytes[at..at + 2].copy_from_slice(&checksum_field(sum, offset).to_be_bytes());
    }
    bytes
}
