use super::source::{FIRST_PORT, L4, PORTS};
use super::*;
use crate::driver::RxBuffers;
use crate::packet::{ArenaConfig, Burst, FrameClass, Ingress};
use crate::queue::RxQueue;

const ETHERNET: LinkType = LinkType::Ethernet;

/// Polls every queue until it is empty or finished, at most `polls` times. Returns the packets of
/// each queue, and the longest segment.
fn generate(
    config: NullConfig,
    how: &Attach,
    polls: usize,
) -> (Vec<Vec<Vec<u8>>>, usize, DeviceCounters) {
    let arena = Arena::new(ArenaConfig::small()).unwrap();
    let mut null = Null::new(config);
    let pairs = null.attach(how, &arena).unwrap();
    let (mut all, mut longest) = (Vec::new(), 0);
    for (rx, _) in pairs {
        let mut rx = RxQueue::new(
            rx,
            arena.clone(),
            null.config.link,
            Ingress::default(),
            Arc::default(),
            Arc::default(),
        );
        let mut frames = Vec::new();
        for _ in 0..polls {
            let mut burst = Burst::new();
            let polled = rx.poll(Instant::default(), &mut burst, 64);
            for packet in burst.iter() {
                frames.push(packet.segments().collect::<Vec<_>>().concat());
                longest = longest.max(packet.segments().map(<[u8]>::len).max().unwrap());
            }
            match polled {
                Ok(_) => {}
                Err(DeviceError::Finished) => break,
                Err(error) => panic!("{error}"),
            }
        }
        all.push(frames);
    }
    assert_eq!(arena.census().small_used, 0);
    let counters = null.device_counters().unwrap();
    (all, longest, counters)
}

/// The fields that differ between packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Read {
    /// The last byte of the source address, from 1 on.
    host: u8,
    port: u16,
    id: u16,
    /// The number of a UDP datagram, the sequence number of TCP, or the acknowledgement of an ACK.
    number: u64,
    timestamps: Option<(u32, u32)>,
}

/// Reads the fields after an independent parser has checked the rest.
fn read(frame: &[u8]) -> Read {
    use etherparse::{TcpOptionElement, TransportHeader};
    let parsed = etherparse::PacketHeaders::from_ethernet_slice(frame).unwrap();
    let Some(etherparse::NetHeaders::Ipv4(ip, _)) = parsed.net else {
        panic!("not IPv4")
    };
    assert_eq!(ip.header_checksum, ip.calc_header_checksum());
    assert!(ip.dont_fragment);
    let payload = parsed.payload.slice();
    let (port, number, timestamps) = match parsed.transport {
        Some(TransportHeader::Udp(udp)) => {
            assert_eq!(udp.checksum, udp.calc_checksum_ipv4(&ip, payload).unwrap());
            let number = payload[..NUMBER_BYTES].try_into().unwrap();
            (udp.source_port, u64::from_be_bytes(number), None)
        }
        Some(TransportHeader::Tcp(tcp)) => {
            assert_eq!(tcp.checksum, tcp.calc_checksum_ipv4(&ip, payload).unwrap());
            assert!(tcp.ack && !(tcp.syn || tcp.fin || tcp.rst || tcp.psh));
            let number = if payload.is_empty() {
                tcp.acknowledgment_number
            } else {
                tcp.sequence_number
            };
            let timestamps = tcp.options_iterator().find_map(|option| match option {
                Ok(TcpOptionElement::Timestamp(value, echo)) => Some((value, echo)),
                _ => None,
            });
            (tcp.source_port, u64::from(number), timestamps)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(ip.source[..3], [198, 18, 0]);
    Read {
        host: ip.source[3],
        port,
        id: ip.identification,
        number,
        timestamps,
    }
}

fn config(source: Source) -> NullConfig {
    NullConfig {
        source: Some(source),
        ..NullConfig::default()
    }
}

fn on_queues(queues: usize) -> Attach {
    Attach {
        queues,
        ..Attach::default()
    }
}

#[test]
fn a_counted_source_ends_after_exactly_as_many_frames_numbered_by_flow() {
    for (queues, flows, bytes) in [(1, 1, 60), (1, 3, 60), (3, 7, 1500), (4, 2, 9001)] {
        let source = Source {
            bytes,
            flows,
            count: Some(1001),
            ..Source::default()
        };
        let (all, _, counters) = generate(config(source), &on_queues(queues), 100);
        assert_eq!(all.iter().map(Vec::len).sum::<usize>(), 1001);
        let mut next = std::collections::HashMap::new();
        for (queue, frames) in all.iter().enumerate() {
            for frame in frames {
                assert_eq!(frame.len(), bytes);
                let read = read(frame);
                let expected = next.entry(read.port).or_insert(0_u64);
                assert_eq!(read.number, *expected, "flow {}", read.port);
                assert_eq!(u64::from(read.id), *expected, "flow {}", read.port);
                *expected += 1;
                assert_eq!(usize::from(read.port - FIRST_PORT) % queues, queue);
            }
        }
        assert_eq!(next.len(), flows.next_multiple_of(queues));
        assert_eq!(
            (counters.tx_packets, counters.tx_bytes),
            (1001, 1001 * bytes as u64)
        );
    }
}

const PROTOCOLS: [(Protocol, u64); 3] = [
    (Protocol::Udp, 1),
    (Protocol::Tcp, 100),
    (Protocol::Ack, 2920),
];

/// A source of one protocol, whose TCP has 100 bytes of payload.
fn of(protocol: Protocol, timestamps: bool) -> Source {
    let bytes = match protocol {
        Protocol::Tcp => ETHERNET.header_bytes() + L4 + protocol.header_bytes(timestamps) + 100,
        Protocol::Udp | Protocol::Ack => protocol.frame_bytes_usual(ETHERNET, timestamps),
    };
    Source {
        protocol,
        bytes,
        timestamps,
        ..Source::default()
    }
}

/// Checksums stay right, and every number continues the last one, across every wraparound.
#[test]
fn numbers_go_on_however_far_it_counts() {
    let arena = Arena::new(ArenaConfig::small()).unwrap();
    for (protocol, step) in PROTOCOLS {
        for timestamps in [false, true] {
            let source = Source {
                flows: 5,
                ..of(protocol, timestamps)
            };
            let tcp = protocol != Protocol::Udp;
            let first = u64::from(protocol == Protocol::Ack);
            let mut generator = Generator::new(source, ETHERNET, 0, &Attach::default());
            for start in [0, 0xFFFE, 0xFFFF_FFF0, 0xFFFF_FFFF / step, u64::MAX / 10] {
                generator.made = start * 5;
                for n in 0..200 {
                    let mut buffers = vec![arena.packet(generator.class).unwrap()];
                    let packet = generator.next(&mut buffers).unwrap();
                    assert_eq!(packet.bytes(), source.bytes);
                    let number = start + n / 5;
                    let value = number.wrapping_add(first).wrapping_mul(step);
                    let tick = (number / 64) as u32;
                    let expected = Read {
                        host: 1,
                        port: 1024 + (n % 5) as u16,
                        id: number as u16,
                        number: if tcp { value & 0xFFFF_FFFF } else { value },
                        timestamps: (tcp && timestamps).then_some((tick, tick)),
                    };
                    assert_eq!(read(packet.first()), expected, "{protocol:?}");
                }
            }
        }
    }
}

/// More flows than an address has ports: each flow counts on its own, on its queue.
#[test]
fn as_many_flows_as_large_servers_have() {
    let flows = FLOWS_MAX;
    for (protocol, step) in PROTOCOLS {
        let (queues, rounds) = (2, 3_u64);
        let source = Source {
            flows,
            count: Some(rounds * flows as u64),
            ..of(protocol, false)
        };
        let (all, _, _) = generate(config(source), &on_queues(queues), 4000);
        let mut seen = vec![0; flows];
        for (queue, frames) in all.iter().enumerate() {
            for frame in frames {
                let read = read(frame);
                let port = usize::from(read.port - FIRST_PORT);
                let flow = usize::from(read.host - 1) * PORTS + port;
                assert_eq!(flow % queues, queue);
                let first = u64::from(protocol == Protocol::Ack);
                assert_eq!(read.number, (seen[flow] + first) * step, "flow {flow}");
                seen[flow] += 1;
            }
        }
        assert_eq!(seen, vec![rounds; flows], "{protocol:?}");
    }
}

/// Some flows at a time send a train each; every flow counts on, and none is left out.
#[test]
fn some_flows_at_a_time_send_trains() {
    let flows_of = |queues, flows, active, train, count| {
        let source = Source {
            flows,
            active: Some(active),
            train,
            count: Some(count),
            ..Source::default()
        };
        let (all, _, _) = generate(config(source), &on_queues(queues), 1000);
        let read = |frames: &Vec<Vec<u8>>| -> Vec<(u16, u64)> {
            let read = frames.iter().map(|frame| read(frame));
            read.map(|read| (read.port - FIRST_PORT, read.number))
                .collect()
        };
        all.iter().map(read).collect::<Vec<_>>()
    };
    let expected = [
        [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)],
        [(2, 0), (3, 0), (2, 1), (3, 1), (2, 2), (3, 2)],
        [(0, 3), (1, 3), (0, 4), (1, 4), (0, 5), (1, 5)],
        [(2, 3), (3, 3), (2, 4), (3, 4), (2, 5), (3, 5)],
    ];
    assert_eq!(flows_of(1, 4, 2, 3, 24), [expected.concat()]);
    // Flows are rounded up to a multiple of those at a time, on each queue.
    let [a, b] = &flows_of(2, 5, 2, 1, 16)[..] else {
        panic!("two queues")
    };
    let ports = |all: &[(u16, u64)]| all.iter().map(|one| one.0).collect::<Vec<_>>();
    assert_eq!(ports(a), [0, 2, 4, 6, 0, 2, 4, 6]);
    assert_eq!(ports(b), [1, 3, 5, 7, 1, 3, 5, 7]);
    // More at a time than there are flows are all flows.
    let all = flows_of(1, 3, 100, 7, 9);
    assert_eq!(ports(&all[0]), [0, 1, 2, 0, 1, 2, 0, 1, 2]);
}

/// In each flow, the requested number of packets come after their successor; none is lost or
/// repeated.
#[test]
fn a_share_of_each_flow_comes_out_of_order() {
    for (protocol, step) in PROTOCOLS {
        for share in [0, 1, 7, 50] {
            for (flows, active) in [(1, None), (3, None), (3, Some(1))] {
                let source = Source {
                    flows,
                    active,
                    train: 4,
                    count: Some(1000 * flows as u64 - 1),
                    out_of_order: share,
                    ..of(protocol, false)
                };
                let (all, _, _) = generate(config(source), &on_queues(1), 100);
                let (again, _, _) = generate(config(source), &on_queues(1), 100);
                assert_eq!(all, again, "the same each time");
                for flow in 0..flows {
                    let first = u64::from(protocol == Protocol::Ack);
                    let numbers: Vec<u64> = (all[0].iter().map(|frame| read(frame)))
                        .filter(|read| usize::from(read.port - FIRST_PORT) == flow)
                        .inspect(|read| assert_eq!(read.number / step - first, u64::from(read.id)))
                        .map(|read| read.number / step - first)
                        .collect();
                    let late = numbers.windows(2).filter(|pair| pair[1] < pair[0]).count();
                    // The last packet of the last flow has no partner.
                    let alone = usize::from(flow == flows - 1 && share > 0);
                    let expected = 10 * usize::from(share);
                    assert!(late <= expected && late + alone >= expected, "{late}");
                    let mut sorted = numbers.clone();
                    sorted.sort_unstable();
                    let all: Vec<u64> = (0..numbers.len() as u64).collect();
                    assert_eq!(sorted, all, "{protocol:?}");
                }
            }
        }
    }
}

/// One of each few packets is an ACK of a flow of its own, and the others are as without.
#[test]
fn acks_of_one_more_flow_are_among_the_data() {
    for (queues, count) in [(1, 1001), (2, 2003)] {
        let data = Source {
            flows: 3,
            ..of(Protocol::Tcp, false)
        };
        let with = Source {
            acks: Some(10),
            count: Some(count),
            ..data
        };
        let (all, _, _) = generate(config(with), &on_queues(queues), 1000);
        assert_eq!(all.iter().map(Vec::len).sum::<usize>(), count as usize);
        for (queue, frames) in all.iter().enumerate() {
            let (acks, others): (Vec<_>, Vec<_>) =
                (frames.iter().zip(1_usize..)).partition(|(frame, _)| frame.len() < data.bytes);
            assert_eq!(acks.len(), frames.len() / 10);
            for ((ack, at), n) in acks.iter().zip(1_u64..) {
                let ack = read(ack);
                let port = usize::from(ack.port - FIRST_PORT);
                let flows = data.flows.next_multiple_of(queues);
                assert_eq!((*at as u64, port), (10 * n, flows + queue));
                assert_eq!(ack.number, n * 2920);
            }
            let alone = Source {
                count: Some((queues * others.len()) as u64),
                ..data
            };
            let (alone, _, _) = generate(config(alone), &on_queues(queues), 1000);
            let others: Vec<_> = others.into_iter().map(|(frame, _)| frame.clone()).collect();
            assert!(others == alone[queue], "queue {queue} of {queues}");
        }
    }
}

#[test]
fn the_plan_is_told_what_a_source_makes() {
    for (source, note) in [
        (
            Source::default(),
            "makes UDP datagrams of 60 bytes; flows: 1",
        ),
        (
            Source {
                flows: 4,
                out_of_order: 5,
                ..of(Protocol::Ack, true)
            },
            "makes TCP ACKs of 66 bytes with timestamps; flows: 4; out of order: 5 % of each",
        ),
        (
            Source {
                flows: 80_000,
                active: Some(256),
                train: 4,
                ..of(Protocol::Ack, false)
            },
            "makes TCP ACKs of 60 bytes; flows: 80000; 256 at a time, in trains of 4",
        ),
        (
            Source {
                bytes: 1514,
                acks: Some(1000),
                ..of(Protocol::Tcp, false)
            },
            "makes TCP segments of 1514 bytes; flows: 1; one of 1000 packets is an ACK of one \
             more flow",
        ),
    ] {
        let capabilities = Null::new(config(source)).capabilities();
        assert_eq!(capabilities.notes, [note]);
    }
    let single = Source {
        burst: 1,
        ..Source::default()
    };
    let notes = Null::new(config(single)).capabilities().notes;
    assert_eq!(
        notes[0],
        "makes UDP datagrams of 60 bytes; flows: 1; at most 1 in a poll"
    );
    let sink = Null::new(NullConfig::default()).capabilities();
    assert!(sink.notes.is_empty());
}

#[test]
fn a_poll_receives_at_most_a_burst() {
    for (burst, polls, received) in [(1, 5, 5), (7, 5, 35), (BURST_PACKETS_MAX, 2, 128)] {
        let source = Source {
            burst,
            ..Source::default()
        };
        let (all, _, _) = generate(config(source), &on_queues(1), polls);
        assert_eq!(all[0].len(), received);
    }
}

#[test]
fn blank_packets_have_their_length_and_are_counted() {
    let source = Source {
        blank: true,
        count: Some(100),
        bytes: 77,
        ..Source::default()
    };
    let (queues, _, counters) = generate(config(source), &on_queues(1), 10);
    assert_eq!(queues[0], vec![vec![0; 77]; 100]);
    assert_eq!((counters.tx_packets, counters.tx_bytes), (100, 7700));
}

/// Behind the link header, which is that of RFC 4391 or none, the packet is the same.
#[test]
fn packets_of_other_links_are_the_same_behind_their_headers() {
    for (protocol, _) in PROTOCOLS {
        let on = |link: LinkType| {
            let headers = link.header_bytes() + L4 + protocol.header_bytes(true);
            let bytes = match protocol {
                Protocol::Ack => headers,
                Protocol::Udp | Protocol::Tcp => headers + 100,
            };
            let source = Source {
                protocol,
                bytes,
                timestamps: true,
                flows: 3,
                count: Some(50),
                ..Source::default()
            };
            let null = NullConfig {
                link,
                ..config(source)
            };
            assert_eq!(Null::new(null.clone()).capabilities().link, link);
            generate(null, &on_queues(1), 100).0.remove(0)
        };
        let ethernet = on(ETHERNET);
        assert_eq!(ethernet.len(), 50);
        let others = on(LinkType::Ipoib).into_iter().zip(on(LinkType::RawIp));
        for (frame, (ipoib, ip)) in ethernet.iter().zip(others) {
            assert_eq!(frame[14..], ip, "{protocol:?}");
            assert_eq!(ipoib[..4], [8, 0, 0, 0], "{protocol:?}");
            assert_eq!(ipoib[4..], ip, "{protocol:?}");
        }
    }
    let shortest = |link| *Protocol::Udp.frame_bytes(link, false).start();
    assert_eq!(shortest(LinkType::RawIp), 36);
    assert_eq!(shortest(LinkType::Ipoib), 40);
    assert_eq!(shortest(ETHERNET), 60);
}

/// In small frames the packet is the same.
#[test]
fn a_source_receives_in_pieces_if_it_is_told_to() {
    let small = FrameClass::Small.data_bytes();
    for protocol in [Protocol::Udp, Protocol::Tcp] {
        for bytes in [67, small, small + 1, 9000, FRAME_BYTES_MAX] {
            let source = Source {
                protocol,
                bytes,
                count: Some(100),
                ..Source::default()
            };
            let whole = generate(config(source), &on_queues(1), 200);
            for piece in [small, 512] {
                let how = Attach {
                    rx_buffers: RxBuffers::Pieces { bytes: piece },
                    ..on_queues(1)
                };
                let pieces = generate(config(source), &how, 200);
                assert_eq!(whole.0, pieces.0);
                assert_eq!(pieces.0[0].len(), 100);
                assert_eq!((whole.1, pieces.1), (bytes, bytes.min(piece)));
            }
        }
    }
}

#[test]
fn the_sink_has_nothing_to_receive_and_says_so() {
    let (all, _, _) = generate(NullConfig::default(), &on_queues(2), 3);
    assert_eq!(all, [Vec::<Vec<u8>>::new(), Vec::new()]);
    let arena = Arena::new(ArenaConfig::small()).unwrap();
    let mut null = Null::new(NullConfig::default());
    let (mut rx, _) = null.attach(&Attach::default(), &arena).unwrap().remove(0);
    assert_eq!(rx.arm(), Armed::Idle);
}

#[test]
fn values_out_of_range_are_refused_by_name() {
    let arena = Arena::new(ArenaConfig::small()).unwrap();
    for (source, want) in [
        (
            Source {
                bytes: 59,
                ..Source::default()
            },
            "null0: bytes is 59, and must be from 60 to 65549",
        ),
        (
            Source {
                flows: 0,
                ..Source::default()
            },
            "null0: flows is 0, and must be from 1 to 100000",
        ),
        (
            Source {
                active: Some(0),
                ..Source::default()
            },
            "null0: active is 0, and must be from 1 to 100000",
        ),
        (
            Source {
                train: 4097,
                ..Source::default()
            },
            "null0: train is 4097, and must be from 1 to 4096",
        ),
        (
            Source {
                protocol: Protocol::Tcp,
                timestamps: true,
                ..Source::default()
            },
            "null0: bytes is 60, and must be from 67 to 65549",
        ),
        (
            Source {
                protocol: Protocol::Ack,
                bytes: 1500,
                ..Source::default()
            },
            "null0: bytes is 1500, and must be from 60 to 60",
        ),
        (
            Source {
                burst: 0,
                ..Source::default()
            },
            "null0: burst is 0, and must be from 1 to 64",
        ),
        (
            Source {
                out_of_order: 51,
                ..Source::default()
            },
            "null0: out-of-order is 51, and must be from 0 to 50",
        ),
    ] {
        let mut null = Null::new(NullConfig {
            source: Some(source),
            ..NullConfig::default()
        });
        let error = null.attach(&Attach::default(), &arena).unwrap_err();
        assert_eq!(error.to_string(), want);
    }
}
