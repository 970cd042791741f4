//! Frames that a kernel does not send, from a socket to another one through two cards: tagged, bad,
//! too long and too short ones, and flows for two queues.

use crate::bench::{Document, Run};
use packtrain_lab::guest::{Bound, Card, CardModel, FarSide, Guest};
use std::os::unix::net::UnixDatagram;
use std::thread;
use std::time::Duration;

/// Bytes of an Ethernet header and of an IPv4 header, and the shortest frame without FCS.
const ETHERNET: usize = 14;
const IPV4: usize = 20;
const SHORTEST: usize = 60;
/// The longest frame of an MTU of 1500, with a tag, and the longest one that QEMU's card takes
/// then.
const LONGEST: usize = 1518;
const TAKEN_MAX: usize = 1522;
const FLOWS: usize = 16;
const FLOW_FRAMES: usize = 32;
/// Frames that QEMU has before it writes one, at most.
const TIMEOUT: Duration = Duration::from_secs(60);

fn sum(bytes: &[u8], start: u32) -> u32 {
    let words = bytes.chunks(2).map(|pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        u32::from(u16::from_be_bytes([pair[0], low]))
    });
    start + words.sum::<u32>()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A frame of IPv4 with this protocol, of the flow `number`: its transport header, whose checksum
/// at `field` is right, and its payload.
fn frame(number: u8, protocol: u8, field: usize, mut transport: Vec<u8>) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0x18, 0, 2, 2, 0, 0, 0x18, 0, 1, 8, 0];
    let addresses = [198, 18, 0, number, 198, 18, 1, number];
    let bytes = (IPV4 + transport.len()) as u16;
    let mut header = vec![0x45, 0];
    header.extend(bytes.to_be_bytes());
    // Not a fragment, and no more are allowed.
    header.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
    header.extend(addresses);
    let checksum = fold(sum(&header, 0)).to_be_bytes();
    header[10..12].copy_from_slice(&checksum);
    let pseudo = sum(&addresses, u32::from(protocol) + transport.len() as u32);
    let checksum = fold(sum(&transport, pseudo)).to_be_bytes();
    transport[field..field + 2].copy_from_slice(&checksum);
    frame.extend(header);
    frame.extend(transport);
    frame.resize(frame.len().max(SHORTEST), 0);
    frame
}

fn udp(number: u8, payload: &[u8]) -> Vec<u8> {
    let mut transport = vec![0x10, number, 0x20, 0];
    transport.extend((payload.len() as u16 + 8).to_be_bytes());
    transport.extend([0, 0]);
    transport.extend(payload);
    frame(number, 17, 6, transport)
}

/// A segment with PSH, which no GRO holds back.
fn tcp(number: u8, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut transport = vec![0x10, number, 0x20, 0];
    transport.extend(sequence.to_be_bytes());
    transport.extend([0, 0, 0, 1, 0x50, 0x18, 0x10, 0, 0, 0, 0, 0]);
    transport.extend(payload);
    frame(number, 6, 16, transport)
}

/// A frame with an 802.1Q tag.
fn tagged(frame: &[u8]) -> Vec<u8> {
    let (addresses, rest) = frame.split_at(12);
    [addresses, &[0x81, 0, 0x60, 100], rest].concat()
}

/// Sends frames from one socket, and waits for `count` at the other one.
fn pass(from: &UnixDatagram, to: &UnixDatagram, frames: &[Vec<u8>], count: usize) -> Vec<Vec<u8>> {
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let receive = |_| {
                let mut bytes = vec![0; 16 << 10];
                let length = to.recv(&mut bytes).expect("a frame");
                bytes.truncate(length);
                bytes
            };
            (0..count).map(receive).collect()
        });
        for frame in frames {
            let sent = from.send(frame).expect("it is sent");
            assert_eq!(sent, frame.len());
        }
        receiver.join().expect("all arrive")
    })
}

/// The host's ends of the cables, and the cards at the others.
pub fn cables(model: CardModel) -> ([UnixDatagram; 2], [Card; 2]) {
    let pairs = [(); 2].map(|()| UnixDatagram::pair().expect("sockets"));
    let [(left, a), (right, b)] = pairs;
    for socket in [&left, &right] {
        socket.set_read_timeout(Some(TIMEOUT)).expect("a setting");
        socket.set_write_timeout(Some(TIMEOUT)).expect("a setting");
    }
    let cards = [a, b].map(|far| {
        let far = FarSide::Socket(far.into());
        Card::new(model, far, Bound::Vfio)
    });
    ([left, right], cards)
}

/// Of two cards of a kind, with these addresses.
pub fn odd_frames_pass_or_are_counted(
    guest: &Guest,
    kind: &str,
    addresses: &[String; 2],
    [left, right]: &[UnixDatagram; 2],
) {
    let run = |keys: [&str; 2]| {
        let [a, b] = [0, 1].map(|end: usize| format!("{kind}:{}{}", addresses[end], keys[end]));
        Run::start(guest, &a, &b)
    };
    // QEMU's vmxnet3 verifies no checksum without virtio-net headers, takes longer frames, and
    // receives in its first queue only.
    let is_82574 = kind == "e1000e";
    let too_long_taken = u64::from(!is_82574);
    let [first, second] = addresses.each_ref().map(String::as_str);

    // What passes unchanged, both ways.
    let good = udp(1, &[7; 100]);
    let mut bad_tcp = tcp(2, 1, b"a bad checksum");
    bad_tcp[ETHERNET + IPV4 + 16] ^= 0x55;
    let mut bad_ip = udp(3, b"a bad checksum");
    bad_ip[ETHERNET + 10] ^= 0x55;
    let longest = tagged(&udp(4, &[9; LONGEST - ETHERNET - 4 - IPV4 - 8]));
    assert_eq!(longest.len(), LONGEST);
    let frames = [good.clone(), tagged(&good), longest, bad_tcp, bad_ip];
    let forward = run(["", ""]);
    for (from, to) in [(left, right), (right, left)] {
        assert_eq!(pass(from, to, &frames, frames.len()), frames);
    }
    // A short one is padded, and of one that is too long nothing arrives.
    let short = vec![3; 20];
    let too_long = vec![3; TAKEN_MAX + 1];
    let passed = pass(left, right, &[short.clone(), too_long, good.clone()], 2);
    let padded = [&*short, &[0; SHORTEST - 20]].concat();
    assert_eq!(passed, [padded, good.clone()]);
    let document = forward.end();
    for (address, extra) in [(first, 2 + too_long_taken), (second, 0)] {
        let count = frames.len() as u64 + extra;
        assert_eq!(document.rx(address, "packets"), count, "{document:?}");
        assert_eq!(
            document.device(address, "tx_packets"),
            count,
            "{document:?}"
        );
        if is_82574 {
            let long = document.device(address, "tx_errors");
            assert_eq!(long, u64::from(extra > 0), "{document:?}");
            let verified = document.rx(address, "csum_unnecessary");
            assert!((1..count).contains(&verified), "{document:?}");
        }
    }
    let dropped = [document.dropped("mtu"), document.all_dropped()];
    assert_eq!(dropped, [too_long_taken; 2], "{document:?}");

    // Longer than the MTU of one card only.
    let forward = run([",mtu=9000", ""]);
    let large = udp(5, &[1; 3000]);
    let passed = pass(left, right, &[large.clone(), good.clone()], 1);
    assert_eq!(passed, std::slice::from_ref(&good));
    let document = forward.end();
    assert_eq!(document.rx(first, "packets"), 2, "{document:?}");
    let dropped = [document.dropped("mtu"), document.all_dropped()];
    assert_eq!(dropped, [1, 1], "{document:?}");

    // Of both: in pieces.
    let forward = run([",mtu=9000", ",mtu=9000"]);
    let frames = [large, udp(6, &[2; 9000 - IPV4 - 8]), tagged(&good)];
    for (from, to) in [(left, right), (right, left)] {
        assert_eq!(pass(from, to, &frames, frames.len()), frames);
    }
    let document = forward.end();
    assert_eq!(document.all_dropped(), 0, "{document:?}");

    if is_82574 {
        let forward = run([",queues=2", ",queues=2"]);
        flows(left, right);
        check_queues(&forward.end(), [first, second]);
    }
}

/// Flows whose frames alternate: the frames of each one stay in order.
fn flows(left: &UnixDatagram, right: &UnixDatagram) {
    let of_flow = |flow: usize, number: usize| {
        let payload = [flow as u8, number as u8, 0, 0];
        match flow % 2 {
            0 => udp(flow as u8, &payload),
            _ => tcp(flow as u8, 4 * number as u32, &payload),
        }
    };
    let each = (0..FLOW_FRAMES).flat_map(|number| (0..FLOWS).map(move |flow| (flow, number)));
    let frames: Vec<_> = each.map(|(flow, number)| of_flow(flow, number)).collect();
    let passed = pass(left, right, &frames, frames.len());
    for flow in 0..FLOWS {
        let source = [198, 18, 0, flow as u8];
        let mine = passed.iter().filter(|frame| frame[26..30] == source);
        let expected = (0..FLOW_FRAMES).map(|number| of_flow(flow, number));
        assert!(mine.eq(expected.collect::<Vec<_>>().iter()), "flow {flow}");
    }
}

/// Both queues have had whole flows.
fn check_queues(document: &Document, [first, second]: [&str; 2]) {
    let received = document.each(first, "rxq", "packets");
    assert_eq!(received.len(), 2, "{document:?}");
    for count in &received {
        let is_whole = *count > 0 && count.is_multiple_of(FLOW_FRAMES as u64);
        assert!(is_whole, "{received:?}: {document:?}");
    }
    let all = (FLOWS * FLOW_FRAMES) as u64;
    assert_eq!(received.iter().sum::<u64>(), all, "{document:?}");
    assert_eq!(document.tx(second, "packets"), all, "{document:?}");
    assert_eq!(document.all_dropped(), 0, "{document:?}");
}
