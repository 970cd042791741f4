//! What each check sends.

use std::iter;

use super::packet::{
    ACK, CWR, DF, ECE, FIN, FRAGMENT, Form, Link, MF, PSH, Packet, RST, Rule, SYN, Sent, UDP, URG,
};
use super::packet::{Body, Check};
use crate::ip::IpVersion;
use crate::topology::Side;

/// What the packets of a check depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ground {
    /// The host that sends.
    pub from: Side,
    pub ip: IpVersion,
    pub link: Link,
    /// Of both interfaces.
    pub mtu: usize,
    /// The program takes one from TTL and hop limit.
    pub routes: bool,
}

/// A list of packets that is sent and judged as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Step {
    pub list: Vec<Sent>,
    /// Nothing is waited for while it is sent.
    pub at_once: bool,
    /// The program is stopped while it is sent, so that it reads all of it at once.
    pub is_held: bool,
    /// Nothing is sent for a while before.
    pub is_late: bool,
    /// The MTU of the sender's interface meanwhile.
    pub mtu: Option<u32>,
}

impl Step {
    fn of(list: Vec<Sent>) -> Self {
        Self {
            list,
            ..Self::default()
        }
    }
}

/// A timestamp option behind two paddings (RFC 7323 appendix A).
fn timestamp(value: u32) -> [u8; 12] {
    let mut option = [1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 7];
    option[4..8].copy_from_slice(&value.to_be_bytes());
    option
}

impl Ground {
    /// The longest TCP payload without options.
    fn mss(&self) -> usize {
        let header = match self.ip {
            IpVersion::V4 => 20,
            IpVersion::V6 => 40,
        };
        self.mtu - header - 20
    }

    fn sent(&self, form: Form) -> Sent {
        Sent::new(self.from, form)
    }

    fn wire(&self, packet: Packet) -> Sent {
        self.sent(Form::Wire(packet))
    }

    fn large(&self, packet: Packet, size: usize) -> Sent {
        self.sent(Form::Large { packet, size })
    }

    fn tcp(&self, seq: u32, payload: usize) -> Packet {
        Packet::tcp(self.ip, 0, seq, payload)
    }

    fn udp(&self, payload: usize) -> Packet {
        Packet::udp(self.ip, 1, payload)
    }

    /// Segments of one flow that follow one another, changed each by its number.
    fn train(&self, count: u16, change: impl Fn(u16, Packet) -> Packet) -> Vec<Sent> {
        let segment = |index: u16| {
            let packet = self.tcp(1000 + u32::from(index) * 500, 500);
            let packet = packet.with(|packet| packet.id += index);
            self.wire(change(index, packet))
        };
        (0..count).map(segment).collect()
    }

    /// Datagrams of one flow, changed each by its number.
    fn datagrams(&self, count: u16, change: impl Fn(u16, Packet) -> Packet) -> Vec<Sent> {
        let datagram = |index: u16| {
            let packet = self.udp(500).with(|packet| packet.id += index);
            self.wire(change(index, packet))
        };
        (0..count).map(datagram).collect()
    }
}

/// The greatest MTU of a TUN or TAP.
const MTU_MAX: usize = 65_521;
/// Bytes of payload of a large packet, at most: with all headers it is no longer than IP permits.
const LARGE_MAX: usize = 65_000;

/// Sizes of segments from 88 bytes to what the MTU permits.
pub(super) fn tcp_sizes(ground: &Ground) -> Vec<Step> {
    let sizes = [
        88, 100, 128, 216, 300, 512, 536, 700, 900, 1000, 1220, 1300, 1348, 1400, 1440,
    ];
    let larger = [1460, 2000, 4000, 8000, 8940, 8960, ground.mss()];
    let all = sizes
        .into_iter()
        .chain(larger)
        .filter(|size| *size <= ground.mss());
    let step = |size: usize| {
        let first = ground.large(ground.tcp(7, (size * 5 + size / 3).min(LARGE_MAX)), size);
        let second = ground.large(ground.tcp(0xffff_fe00, (size * 4).min(LARGE_MAX)), size);
        Step::of(vec![first, second])
    };
    all.map(step).collect()
}

/// From 1 to 200 segments in a read.
pub(super) fn tcp_segments(ground: &Ground) -> Vec<Step> {
    let counts = [
        1, 2, 3, 5, 8, 16, 17, 31, 32, 33, 45, 63, 64, 65, 100, 127, 128, 129, 160, 200,
    ];
    let step = |count: usize| {
        let packet = ground.tcp(1, count * 300);
        Step::of(vec![match count {
            1 => ground.sent(Form::Partial(packet)),
            _ => ground.large(packet.with(|packet| packet.payload -= 3), 300),
        }])
    };
    counts.into_iter().map(step).collect()
}

/// Last segments that are shorter than the others.
pub(super) fn tcp_tails(ground: &Ground) -> Vec<Step> {
    let size = 1000;
    let tails = [1, 2, 3, 4, 7, 8, 63, 64, 100, 500, 998, 999, 1000];
    let step = |tail: usize| {
        let one = ground.large(ground.tcp(1, 3 * size + tail), size);
        let two = ground.large(ground.tcp(900_000, size + tail), size);
        Step::of(vec![one, two])
    };
    tails.into_iter().map(step).collect()
}

/// Datagrams of mixed sizes, which leave as they came.
pub(super) fn udp_sizes(ground: &Ground) -> Vec<Step> {
    let lists: [&[usize]; 8] = [
        &[1000, 1000, 400, 1200, 64],
        &[1200, 1200, 1200, 1000],
        &[400, 1200, 1200, 1200],
        &[1000, 400, 1000, 400, 1000, 400],
        &[64, 64, 65, 64, 64],
        &[1, 1000, 1, 1000, 1000],
        &[1200, 0, 1200, 1200],
        &[500, 500, 500, 499, 500, 501, 500],
    ];
    let forms = |payload: usize| {
        let packet = ground.udp(payload);
        (
            ground.wire(packet.clone()),
            ground.sent(Form::Partial(packet)),
        )
    };
    let mut steps = Vec::new();
    for list in lists {
        let (wires, partial): (Vec<_>, Vec<_>) = list.iter().map(|bytes| forms(*bytes)).unzip();
        steps.push(Step::of(wires));
        steps.push(Step::of(partial));
    }
    steps
}

/// Datagrams that come in one read.
pub(super) fn udp_segments(ground: &Ground) -> Vec<Step> {
    let lists = [
        (2, 100, 100),
        (2, 1200, 1),
        (3, 1000, 999),
        (5, 1200, 600),
        (10, 500, 500),
        (17, 1200, 7),
        (44, 1200, 1200),
        (64, 900, 33),
        (64, 88, 88),
    ];
    let step = |(count, size, tail): (usize, usize, usize)| {
        let packet = ground.udp((count - 1) * size + tail);
        let then = ground.udp(200).with(|packet| packet.id = 0x2000);
        Step::of(vec![ground.large(packet, size), ground.wire(then)])
    };
    lists.into_iter().map(step).collect()
}

/// Packets that differ in a field that belongs to each.
pub(super) fn ttl_tos(ground: &Ground) -> Vec<Step> {
    let mut changes: Vec<fn(&mut Packet)> = vec![
        |packet| packet.ttl = 63,
        // The least that passes: a router drops a packet whose TTL would be zero (RFC 1812 section
        // 5.3.1).
        match ground.routes {
            false => |packet| packet.ttl = 1,
            true => |packet| packet.ttl = 2,
        },
        |packet| packet.tos = 0x28,
        |packet| packet.tos = 0x01,
        |packet| packet.tos = 0x02,
        |packet| packet.tos = 0x03,
    ];
    match ground.ip {
        IpVersion::V4 => changes.push(|packet| packet.fragment = 0),
        IpVersion::V6 => changes.push(|packet| packet.label = 0x1_2345),
    }
    let mut steps = Vec::new();
    for change in changes {
        for from in [1, 2] {
            let changed = |index: u16, packet: Packet| {
                let is_changed = index == from;
                packet.with(|packet| {
                    if is_changed {
                        change(packet);
                    }
                })
            };
            steps.push(Step::of(ground.train(4, changed)));
            steps.push(Step::of(ground.datagrams(4, changed)));
        }
    }
    steps
}

/// TCP options that differ from one segment to the next, and in large packets.
pub(super) fn tcp_options(ground: &Ground) -> Vec<Step> {
    let unknown: &[u8] = &[253, 4, 1, 2];
    let ahead: &[u8] = &[8, 10, 0, 0, 0, 5, 0, 0, 0, 7, 1, 1];
    let sack: &[u8] = &[1, 1, 5, 10, 0, 0, 0, 9, 0, 0, 0, 99];
    let sets: [&[u8]; 4] = [unknown, ahead, sack, &[1, 1, 1, 1]];
    let mut steps = Vec::new();
    steps.push(Step::of(
        ground.train(6, |_, packet| packet.options(&timestamp(5))),
    ));
    steps.push(Step::of(ground.train(6, |index, packet| {
        packet.options(&timestamp(5 + u32::from(index / 2)))
    })));
    for set in sets {
        for from in [0, 1, 2] {
            steps.push(Step::of(ground.train(4, |index, packet| {
                if index == from {
                    packet.options(set)
                } else {
                    packet.options(&timestamp(5))
                }
            })));
        }
        steps.push(Step::of(ground.train(3, |_, packet| packet.options(set))));
        steps.push(Step::of(vec![
            ground.large(ground.tcp(1, 2500).options(set), 1000),
        ]));
    }
    let long = [timestamp(1), timestamp(2), timestamp(3)].concat();
    steps.push(Step::of(vec![
        ground.large(ground.tcp(1, 2500).options(&long), 1000),
    ]));
    steps.push(Step::of(vec![
        ground.large(ground.tcp(1, 9000).options(&timestamp(9)), 1000),
    ]));
    steps
}

/// Flags in the middle of a run of segments, and in large packets.
pub(super) fn tcp_flags(ground: &Ground) -> Vec<Step> {
    let mut steps = Vec::new();
    for flags in [
        FIN,
        PSH,
        URG,
        CWR,
        ECE,
        SYN,
        RST,
        PSH | FIN,
        ECE | CWR,
        PSH | URG,
    ] {
        for from in [0, 1, 3] {
            steps.push(Step::of(ground.train(4, |index, packet| {
                let urgent = u16::from(flags & URG != 0 && index == from) * 3;
                let packet = packet.with(|packet| {
                    if let Body::Tcp { urgent: field, .. } = &mut packet.body {
                        *field = urgent;
                    }
                });
                if index == from {
                    packet.flags(ACK | flags)
                } else {
                    packet
                }
            })));
        }
    }
    for flags in [ACK | PSH, ACK | FIN, ACK | FIN | PSH, ACK | ECE] {
        steps.push(Step::of(vec![
            ground.large(ground.tcp(1, 2600).flags(flags), 1000),
        ]));
    }
    let reduced = ground
        .tcp(1, 2600)
        .flags(ACK | CWR | PSH)
        .with(|packet| packet.tos = 2);
    steps.push(Step::of(vec![ground.large(reduced, 1000)]));
    // A segment without ACK is none of a stream.
    steps.push(Step::of(ground.train(3, |index, packet| {
        packet.flags(if index == 1 { 0 } else { ACK })
    })));
    steps
}

/// Identifications that wrap, stay, go down or jump, of packets that may become fragments and of
/// others.
pub(super) fn ip_id(ground: &Ground) -> Vec<Step> {
    if ground.ip == IpVersion::V6 {
        return Vec::new();
    }
    let rules: [fn(u16) -> u16; 6] = [
        |index| 0xfffe_u16.wrapping_add(index),
        |_| 0,
        |_| 0x1234,
        |index| 0x1000 - index,
        |index| 0x1000 + index * 2,
        |index| [5, 6, 6, 7, 9, 8][usize::from(index) % 6],
    ];
    let mut steps = Vec::new();
    for rule in rules {
        for fragment in [DF, 0] {
            let set = |index: u16, packet: Packet| {
                packet.with(|packet| (packet.id, packet.fragment) = (rule(index), fragment))
            };
            steps.push(Step::of(ground.train(6, set)));
            steps.push(Step::of(ground.datagrams(6, set)));
        }
    }
    for (id, fragment) in [(0xfffd, 0), (0, 0), (0x1234, 0), (0xfffd, DF)] {
        let set = |packet: &mut Packet| (packet.id, packet.fragment) = (id, fragment);
        let packets = [ground.tcp(1, 5400).with(set), ground.udp(5400).with(set)];
        for packet in packets {
            steps.push(Step::of(vec![ground.large(packet, 1000)]));
        }
    }
    steps
}

/// UDP without a checksum, and with one that is sent as all ones.
pub(super) fn zero_checksum(ground: &Ground) -> Vec<Step> {
    let with = |check: Check| {
        move |index: u16, packet: Packet| {
            let is_other = index % 2 == 1;
            packet.with(|packet| {
                if is_other {
                    packet.check = check;
                }
            })
        }
    };
    let all =
        |check: Check| move |_: u16, packet: Packet| packet.with(|packet| packet.check = check);
    let mut steps = vec![
        Step::of(ground.datagrams(4, with(Check::Zero))),
        Step::of(ground.datagrams(4, all(Check::Zero))),
        Step::of(ground.train(4, all(Check::Zero))),
    ];
    if ground.ip == IpVersion::V4 {
        steps.push(Step::of(ground.datagrams(4, with(Check::Absent))));
        steps.push(Step::of(ground.datagrams(4, all(Check::Absent))));
    }
    steps
}

/// A wrong checksum does not become a right one, and nothing says that it is right.
pub(super) fn wrong_checksum(ground: &Ground) -> Vec<Step> {
    let mut steps = Vec::new();
    for from in [0, 1, 3] {
        let wrong = |index: u16, packet: Packet| {
            packet.with(|packet| {
                if index == from {
                    packet.check = Check::Wrong;
                }
            })
        };
        for mut list in [ground.train(4, wrong), ground.datagrams(4, wrong)] {
            list[usize::from(from)].rule = Rule::NotBlessed;
            steps.push(Step::of(list));
        }
    }
    steps
}

/// Packets of few bytes.
pub(super) fn short_packets(ground: &Ground) -> Vec<Step> {
    let mut steps = Vec::new();
    for payload in [0, 1, 2, 3, 5] {
        let list = vec![
            ground.wire(ground.udp(payload)),
            ground.wire(ground.tcp(9, payload)),
            ground.sent(Form::Partial(ground.udp(payload))),
            ground.wire(Packet::other(ground.ip, 2, 253, payload)),
        ];
        steps.push(Step::of(list));
    }
    // No next header (RFC 8200 section 4.7), and an IPv4 packet of twenty bytes.
    steps.push(Step::of(vec![
        ground.wire(Packet::other(ground.ip, 2, 59, 0)),
    ]));
    steps
}

/// Fragments, which have no whole transport header to merge or verify.
pub(super) fn fragments(ground: &Ground) -> Vec<Step> {
    let piece = |protocol: u8, index: u16, is_last: bool| {
        let mut packet = Packet::other(ground.ip, 3, protocol, 512);
        packet.body = Body::Piece(protocol);
        let more = if is_last { 0 } else { MF };
        match ground.ip {
            IpVersion::V4 => packet.fragment = more | (index * 64),
            IpVersion::V6 => {
                let word = (index * 512) | u16::from(!is_last);
                let [high, low] = word.to_be_bytes();
                packet.extensions = vec![(FRAGMENT, vec![0, high, low, 0, 0, 0, 42])];
            }
        }
        packet
    };
    let mut steps = Vec::new();
    for protocol in [UDP, super::packet::TCP, 253] {
        let list = (0..3).map(|index| ground.wire(piece(protocol, index, index == 2)));
        steps.push(Step::of(list.collect()));
        // Between segments of a flow.
        let mut list = ground.train(2, |_, packet| packet);
        list.insert(1, ground.wire(piece(protocol, 1, false)));
        steps.push(Step::of(list));
    }
    steps
}

/// IPv4 options, with checksums that are there and that are left to the device.
pub(super) fn ipv4_options(ground: &Ground) -> Vec<Step> {
    if ground.ip == IpVersion::V6 {
        return Vec::new();
    }
    let sets: [&[u8]; 4] = [
        &[148, 4, 0, 0],
        &[1, 1, 1, 0],
        &[7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[1; 40],
    ];
    let mut steps = Vec::new();
    for set in sets {
        let change = |packet: Packet| packet.with(|packet| packet.ip_options = set.to_vec());
        steps.extend(with_headers(ground, 4, &change));
        steps.push(Step::of(vec![
            ground.large(change(ground.tcp(1, 2500)), 1000),
        ]));
    }
    steps
}

/// Steps whose packets get options or extension headers from `change`: all packets of a train, one
/// of them, all datagrams, and packets with an unfinished checksum.
fn with_headers(ground: &Ground, count: u16, change: &dyn Fn(Packet) -> Packet) -> [Step; 5] {
    let all = |_: u16, packet| change(packet);
    let one = |index, packet| match index {
        1 => change(packet),
        _ => packet,
    };
    let partial = |packet| Step::of(vec![ground.sent(Form::Partial(change(packet)))]);
    [
        Step::of(ground.train(count, all)),
        Step::of(ground.train(count, one)),
        Step::of(ground.datagrams(count, all)),
        partial(ground.tcp(1, 501)),
        partial(ground.udp(501)),
    ]
}

/// IPv6 extension headers, likewise.
pub(super) fn ipv6_extensions(ground: &Ground) -> Vec<Step> {
    if ground.ip == IpVersion::V4 {
        return Vec::new();
    }
    let padding = |kind: u8| (kind, vec![0, 1, 4, 0, 0, 0, 0]);
    let routing = (
        43,
        vec![
            2, 4, 0, 0, 0, 0, 0, 0xfd, 0, 0, 0x18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9,
        ],
    );
    let chains = [
        vec![padding(0)],
        vec![padding(60)],
        vec![padding(0), padding(60)],
        vec![routing],
        vec![padding(60), padding(60), padding(60), padding(60)],
    ];
    let mut steps = Vec::new();
    for chain in chains {
        let change = |packet: Packet| packet.with(|packet| packet.extensions = chain.clone());
        steps.extend(with_headers(ground, 3, &change));
    }
    steps
}

/// Packets one byte shorter than the MTU, as long, and longer: the last arrive whole or not at all.
pub(super) fn mtu(ground: &Ground) -> Vec<Step> {
    let headers = ground.udp(0).bytes();
    let of = |bytes: usize| {
        let udp = ground.udp(bytes - headers);
        let tcp = ground.tcp(1, bytes - headers - 12);
        vec![
            ground.wire(udp.clone()),
            ground.wire(tcp),
            ground.sent(Form::Partial(udp)),
        ]
    };
    let mut steps = vec![Step::of(of(ground.mtu - 1)), Step::of(of(ground.mtu))];
    for over in [1, 2, 100]
        .into_iter()
        .filter(|over| ground.mtu + over <= MTU_MAX)
    {
        let list = of(ground.mtu + over)
            .into_iter()
            .map(|sent| sent.rule(Rule::WholeOrNot));
        let mut list: Vec<_> = list.collect();
        list.push(ground.wire(ground.udp(100)));
        steps.push(Step {
            list,
            mtu: Some((ground.mtu + over) as u32),
            ..Step::default()
        });
    }
    steps
}

/// Packets of four flows that alternate, one by one or in runs.
pub(super) fn order(ground: &Ground) -> Vec<Step> {
    let round = |(step, run): (u32, u32)| {
        let list = (0..256_u32).map(|index| {
            let (flow, at) = ((index / run % 4) as u16, index);
            let payload = [400, 400, 400, 100][(index % 4) as usize];
            let seq = step * 100_000 + at * 400;
            let packet = match flow {
                0 | 1 => Packet::tcp(ground.ip, flow, seq, payload),
                _ => Packet::udp(ground.ip, flow, payload),
            };
            ground.wire(packet.with(|packet| packet.id = index as u16))
        });
        Step::of(list.collect())
    };
    [(0, 1), (1, 4), (2, 16), (3, 64)]
        .into_iter()
        .map(round)
        .collect()
}

/// Single packets after a pause, which nothing follows.
pub(super) fn idle(ground: &Ground) -> Vec<Step> {
    let packets = [
        ground.udp(100),
        ground.tcp(1, 600),
        ground.tcp(1, 0),
        ground.udp(1000),
    ];
    let step = |packet: Packet| Step {
        list: vec![ground.wire(packet)],
        is_late: true,
        ..Step::default()
    };
    packets.into_iter().map(step).collect()
}

/// What a kernel refuses to take from a TUN, between packets that it takes.
pub(super) fn refused_write(ground: &Ground) -> Vec<Step> {
    if ground.link == Link::Tap {
        return Vec::new();
    }
    let bad: [&[u8]; 4] = [&[0; 40], &[0xf5; 60], &[0x15, 0, 0, 20], &[0x35; 1200]];
    let step = |bytes: &&[u8]| {
        let mut list = ground.train(3, |_, packet| packet);
        list.insert(1, ground.sent(Form::Garbage(bytes.to_vec())));
        list.insert(3, ground.sent(Form::Garbage(bytes.to_vec())));
        Step::of(list)
    };
    bad.iter().map(step).collect()
}

/// Checksums that are left to the device: any protocol's, at any place.
pub(super) fn partial_checksum(ground: &Ground) -> Vec<Step> {
    let summed = |protocol: u8, payload: usize, start: usize, offset: usize| {
        ground.sent(Form::Summed {
            packet: Packet::other(ground.ip, 4, protocol, payload),
            start,
            offset,
        })
    };
    let mut steps = Vec::new();
    for payload in [1, 2, 3, 99, 100, 1000] {
        steps.push(Step::of(vec![
            ground.sent(Form::Partial(ground.udp(payload))),
            ground.sent(Form::Partial(ground.tcp(1, payload))),
        ]));
    }
    for (protocol, payload, start, offset) in [
        (253, 100, 0, 6),
        (253, 101, 0, 16),
        (47, 120, 24, 6),
        (253, 300, 10, 0),
        (33, 64, 0, 6),
        (58, 64, 0, 2),
    ] {
        steps.push(Step::of(vec![summed(protocol, payload, start, offset)]));
    }
    steps
}

/// Ten thousand flows, two packets each.
pub(super) fn flows(ground: &Ground) -> Vec<Step> {
    let round = |seq: u32| {
        let packet = |flow: u16| match flow % 2 {
            0 => Packet::tcp(ground.ip, flow, seq, 100),
            _ => Packet::udp(ground.ip, flow, 100),
        };
        Step::of((0..10_000).map(|flow| ground.wire(packet(flow))).collect())
    };
    vec![round(1), round(101)]
}

/// Acknowledgements: equal ones, which tell of a loss, and those that open the window.
pub(super) fn acks(ground: &Ground) -> Vec<Step> {
    let ack = |value: u32, size: u16| {
        let packet = ground.tcp(1, 0);
        packet.with(|packet| {
            if let Body::Tcp { ack, window, .. } = &mut packet.body {
                (*ack, *window) = (value, size);
            }
        })
    };
    let sack: &[u8] = &[1, 1, 5, 10, 0, 0, 0, 9, 0, 0, 0, 99];
    let repeat = |packet: Packet, count| iter::repeat_n(ground.wire(packet), count).collect();
    vec![
        Step::of(repeat(ack(1000, 500), 5)),
        Step::of(
            (0..6)
                .map(|index| ground.wire(ack(1000 * index, 500)))
                .collect(),
        ),
        Step::of(
            (0..6)
                .map(|index| ground.wire(ack(1000, 500 + index)))
                .collect(),
        ),
        Step::of(repeat(ack(1000, 500).options(sack), 4)),
        Step::of(repeat(ack(1000, 500).options(&timestamp(3)), 4)),
        Step::of(vec![
            ground.wire(ground.tcp(1, 500)),
            ground.wire(ack(1000, 500)),
            ground.wire(ack(1000, 500)),
            ground.wire(ground.tcp(501, 500)),
        ]),
    ]
}

/// Protocols beside TCP and UDP.
pub(super) fn protocols(ground: &Ground) -> Vec<Step> {
    let numbers = [
        2, 4, 8, 33, 41, 46, 47, 50, 51, 88, 89, 103, 112, 115, 132, 136, 137, 253, 255,
    ];
    let step = |protocol: u8| {
        let packet = |payload| ground.wire(Packet::other(ground.ip, 5, protocol, payload));
        Step::of(vec![packet(64), packet(64), packet(1000)])
    };
    let numbers = numbers
        .into_iter()
        .chain([if ground.ip == IpVersion::V4 { 1 } else { 58 }]);
    // Extension headers of IPv6 are no protocols there.
    numbers
        .filter(|number| ground.ip == IpVersion::V4 || *number != 51)
        .map(step)
        .collect()
}

/// Frames beside IP, and tagged ones.
pub(super) fn ethernet(ground: &Ground) -> Vec<Step> {
    if ground.link == Link::Tun {
        return Vec::new();
    }
    let mut steps = Vec::new();
    for ethertype in [0x0806, 0x88b5, 0x88cc, 0x8847, 0x8863, 0x22f0, 0x893a] {
        for payload in [28, 46, 100, ground.mtu] {
            steps.push(Step::of(vec![
                ground.wire(Packet::frame(ethertype, payload)),
            ]));
        }
    }
    for tag in [1, 0x6001, 4094] {
        let tagged = |_: u16, packet: Packet| packet.with(|packet| packet.tag = Some(tag));
        steps.push(Step::of(ground.train(3, tagged)));
        steps.push(Step::of(ground.datagrams(3, tagged)));
    }
    steps
}

/// Packets in both directions at the same time.
pub(super) fn both_ways(ground: &Ground) -> Vec<Step> {
    let list = |size: usize| {
        let mut list = Vec::new();
        for index in 0..60_u32 {
            for from in [ground.from, ground.from.other()] {
                let packet = Packet::tcp(ground.ip, 6, index * 4000, size * 3);
                list.push(Sent::new(from, Form::Large { packet, size }));
                let packet = Packet::udp(ground.ip, 7, 300 + size);
                list.push(Sent::new(from, Form::Wire(packet)));
            }
        }
        list
    };
    vec![Step::of(list(100)), Step::of(list(900))]
}

/// As many packets as the queue of an interface holds with ease, as fast as they can be sent.
pub(super) fn burst(ground: &Ground) -> Vec<Step> {
    let list = |payload: usize| {
        let udp = |index: u16| Packet::udp(ground.ip, index % 3, payload);
        let list = (0..400).map(|index| ground.wire(udp(index))).collect();
        Step {
            list,
            at_once: true,
            ..Step::default()
        }
    };
    vec![list(64), list(200)]
}
