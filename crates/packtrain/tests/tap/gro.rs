//! The cases of the kernel's selftest of GRO (`tools/testing/selftests/drivers/net/gro.c`, IPv4:
//! data, ack, flags, tcp, ip, large), through a session between two TAPs.
//!
//! All packets of a case wait in the first TAP when the session starts, so that it receives them in
//! one batch. The kernel reads what it makes of them from the second.

use packtrain::engine::Session;

use crate::test_packets::frame::{Field, Frame, tcp4, timestamps};
use crate::test_packets::{ACK, FIN, PSH, RST, SYN, URG};
use crate::world::{self, PacketSocket, configure, in_namespace, set_mtu};

const IPV4: u16 = 0x0800;
/// Of the virtio-net header of a packet socket.
const VNET: usize = 10;
const ETHERNET: usize = 14;
/// The payload of most packets.
const P: usize = 100;
/// The most payload of a packet that IPv4 can describe, and that of the packets that fill it.
const MOST: usize = 65_535 - 40;
const LARGE: usize = 4056;
const FULL: usize = MOST / LARGE;

/// A packet of the connection, with so much payload, so far behind its start.
fn packet(bytes: usize, at: usize) -> Frame {
    Frame {
        id: 0,
        sequence: 100 + at as u32,
        ..tcp4(bytes).ethernet()
    }
}

/// Packets of `P` bytes in order, each changed by `change`, which gets their number.
fn packets(count: usize, change: impl Fn(usize, &mut Frame)) -> Vec<Frame> {
    let one = |index| {
        let mut frame = packet(P, index * P);
        change(index, &mut frame);
        frame
    };
    (0..count).map(one).collect()
}

/// Two pairs with a packet between them, which has these flags and no payload.
fn control(flags: u8) -> Vec<Frame> {
    packets(5, |index, frame| {
        if index == 2 {
            frame.flags = flags;
            frame.payload.clear();
        }
    })
}

/// Two packets, the second one changed.
fn second(change: impl Fn(&mut Frame)) -> Vec<Frame> {
    packets(2, |index, frame| {
        if index == 1 {
            change(frame);
        }
    })
}

/// Packets with these identifications, with DF (0x4000) or without.
fn ids<const N: usize>(fragment: u16, ids: [u16; N]) -> Vec<Frame> {
    packets(N, |index, frame| {
        (frame.id, frame.fragment) = (ids[index], fragment);
    })
}

/// Packets with these options of TCP.
fn options<const N: usize>(options: &[Vec<u8>; N]) -> Vec<Frame> {
    packets(N, |index, frame| frame.options.clone_from(&options[index]))
}

/// A train of large packets, and two with `rest` bytes, the second one behind a gap.
fn large(rest: usize) -> Vec<Frame> {
    let whole = (0..FULL).map(|index| packet(LARGE, index * LARGE));
    let rests = (0..2).map(|index| packet(rest, (FULL + index) * LARGE));
    whole.chain(rests).collect()
}

/// The cases: name, packets, and the payloads that arrive.
fn cases() -> Vec<(&'static str, Vec<Frame>, Vec<usize>)> {
    let rest = MOST - FULL * LARGE;
    let stamp = |value| timestamps(value, 0);
    let stamp_after = |words: usize| {
        let (padding, stamp) = ([1, 1], &timestamps(100, 0)[2..]);
        [&padding[words..], stamp, &padding[..words]].concat()
    };
    let timestamp_of_ip = vec![68, 12, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let acks = packets(3, |index, frame| {
        frame.payload.clear();
        frame.sequence = 100;
        frame.acknowledgement += u32::from(index == 2);
    });
    vec![
        ("data_same", packets(2, |_, _| ()), vec![200]),
        (
            "data_lrg_sml",
            vec![packet(P, 0), packet(P / 2, P)],
            vec![150],
        ),
        (
            "data_lrg_1byte",
            vec![packet(P, 0), packet(1, P)],
            vec![101],
        ),
        (
            "data_sml_lrg",
            vec![packet(P / 2, 0), packet(P, P / 2)],
            vec![50, 100],
        ),
        ("ack", acks, vec![0, 0, 0]),
        (
            "flags_psh",
            packets(5, |index, frame| {
                frame.flags |= if index == 2 { PSH } else { 0 };
            }),
            vec![300, 200],
        ),
        ("flags_syn", control(ACK | SYN), vec![200, 0, 200]),
        ("flags_rst", control(ACK | RST), vec![200, 0, 200]),
        ("flags_urg", control(ACK | URG), vec![200, 0, 200]),
        (
            "tcp_csum",
            second(|frame| frame.checksum = Field::Wrong),
            vec![100, 100],
        ),
        (
            "tcp_seq",
            second(|frame| frame.sequence += 1),
            vec![100, 100],
        ),
        (
            "tcp_ts",
            options(&[
                stamp(0),
                stamp(0),
                stamp(100),
                stamp_after(1),
                stamp_after(2),
            ]),
            vec![200, 100, 100, 100],
        ),
        (
            "tcp_opt",
            options(&[stamp(0), stamp(0), vec![1, 3, 3, 7]]),
            vec![200, 100],
        ),
        ("ip_ecn", second(|frame| frame.tos = 2), vec![100, 100]),
        ("ip_tos", second(|frame| frame.tos = 1 << 2), vec![100, 100]),
        ("ip_ttl", second(|frame| frame.ttl -= 1), vec![100, 100]),
        (
            "ip_opt",
            packets(3, |index, frame| {
                if index == 1 {
                    frame.ip_options.clone_from(&timestamp_of_ip);
                }
            }),
            vec![100, 100, 100],
        ),
        (
            "ip_frag4",
            second(|frame| frame.fragment = 0x6000),
            vec![100, 100],
        ),
        ("ip_id_df1_inc", ids(0x4000, [8, 9]), vec![200]),
        ("ip_id_df1_fixed", ids(0x4000, [8, 8]), vec![200]),
        ("ip_id_df0_inc", ids(0, [8, 9]), vec![200]),
        ("ip_id_df0_fixed", ids(0, [8, 8]), vec![100, 100]),
        (
            "ip_id_df1_inc_fixed",
            ids(0x4000, [8, 9, 9]),
            vec![200, 100],
        ),
        (
            "ip_id_df1_fixed_inc",
            ids(0x4000, [8, 8, 9]),
            vec![200, 100],
        ),
        ("large_max", large(rest), vec![MOST, rest]),
        (
            "large_rem",
            large(rest + 1),
            vec![FULL * LARGE, rest + 1, rest + 1],
        ),
    ]
}

/// Payloads in order, as the kernel reads them from the second TAP.
fn through(keys: &str, frames: &[Frame]) -> Vec<Vec<u8>> {
    let open = |text: &str| packtrain::port::open(text).expect("a TAP");
    let a = open(&format!("tap:pt0,coalesce=on{keys}"));
    let b = open("tap:pt1");
    for (name, net) in [("pt0", 1), ("pt1", 2)] {
        set_mtu(name, 9000);
        configure(name, net, 1);
    }
    let (near, far) = (PacketSocket::open("pt0"), PacketSocket::open("pt1"));
    let end = Frame {
        flags: ACK | FIN,
        id: 99,
        ..packet(0, 70_000)
    };
    for frame in frames.iter().chain([&end]) {
        let sent = [&[0; VNET][..], &frame.bytes()].concat();
        near.send(IPV4, &sent).expect("room in the TAP");
    }
    let session = Session::between(a, b).start().expect("a run");
    let mut payloads = vec![];
    world::wait_until("the last packet", || {
        while let Some((bytes, _)) = far.receive() {
            let Some(ip) = bytes.get(VNET + ETHERNET..) else {
                continue;
            };
            if bytes[VNET + 12..][..2] != IPV4.to_be_bytes() || ip[9] != 6 {
                continue;
            }
            let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
            let tcp = usize::from(ip[0] & 15) * 4;
            let header = tcp + usize::from(ip[tcp + 12] >> 4) * 4;
            if ip[tcp + 13] & FIN != 0 {
                return true;
            }
            payloads.push(ip[header..total].to_vec());
        }
        false
    });
    session.stop();
    let snapshot = session.finish().into_result().expect("no failure");
    assert!(snapshot.ledger.closed(), "{:?}", snapshot.ledger);
    payloads
}

#[test]
fn the_kernels_selftest_of_gro_holds_across_a_session() {
    in_namespace(|| {
        for (name, frames, expected) in cases() {
            let arrived = through("", &frames);
            let lengths: Vec<_> = arrived.iter().map(Vec::len).collect();
            assert_eq!(lengths, expected, "{name}");
            let sent: Vec<u8> = frames.into_iter().flat_map(|frame| frame.payload).collect();
            assert!(arrived.concat() == sent, "{name}: other bytes arrived");
        }
    });
}

/// Identifications that do not count up cannot be restored from a merged packet.
#[test]
fn exact_identifications_are_not_merged_where_they_would_be_lost() {
    in_namespace(|| {
        for (identifications, expected) in [([8, 9], vec![200]), ([8, 8], vec![100, 100])] {
            let arrived = through(",gro-id=exact", &ids(0x4000, identifications));
            let lengths: Vec<_> = arrived.iter().map(Vec::len).collect();
            assert_eq!(lengths, expected, "{identifications:?}");
        }
    });
}
