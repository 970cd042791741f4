use super::*;
use crate::conformance::{Injects, Rig, Skip, Traits};
use crate::driver_conformance;
use crate::packet::{ArenaConfig, Burst, Ingress};
use crate::queue::RxQueue;

struct NullRig(Null);

impl Rig for NullRig {
    type Driver = Null;

    fn traits(&self) -> Traits {
        let injects = if self.0.config.source.is_some() {
            Injects::Itself
        } else {
            Injects::Never
        };
        Traits {
            injects,
            counts_exactly: true,
            ..Traits::default()
        }
    }

    fn driver(&mut self) -> &mut Null {
        &mut self.0
    }
}

fn sink(_seed: u64) -> Result<NullRig, Skip> {
    Ok(NullRig(Null::new(NullConfig::default())))
}

fn source(seed: u64) -> Result<NullRig, Skip> {
    let bytes = [60, 1500, 9000][seed as usize % 3];
    let source = Some(Source {
        bytes,
        flows: 3,
        count: None,
    });
    Ok(NullRig(Null::new(NullConfig {
        source,
        ..NullConfig::default()
    })))
}

driver_conformance!(conformance_sink, sink);
driver_conformance!(conformance_source, source);

/// Polls every queue until it is empty or finished, at most `polls` times. Says what came from each
/// queue, and the longest segment.
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
            LinkType::Ethernet,
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

fn on_queues(queues: usize) -> Attach {
    Attach {
        queues,
        ..Attach::default()
    }
}

/// Source port and number, after an independent parser has checked everything else.
fn read(frame: &[u8]) -> (u16, u64) {
    let parsed = etherparse::PacketHeaders::from_ethernet_slice(frame).unwrap();
    let Some(etherparse::NetHeaders::Ipv4(ip, _)) = parsed.net else {
        panic!("not IPv4")
    };
    assert_eq!(ip.header_checksum, ip.calc_header_checksum());
    let Some(etherparse::TransportHeader::Udp(udp)) = parsed.transport else {
        panic!("not UDP")
    };
    let payload = parsed.payload.slice();
    assert_eq!(udp.checksum, udp.calc_checksum_ipv4(&ip, payload).unwrap());
    let number = payload[..NUMBER_BYTES].try_into().unwrap();
    (udp.source_port, u64::from_be_bytes(number))
}

#[test]
fn a_counted_source_ends_after_exactly_as_many_frames_numbered_by_flow() {
    for (queues, flows, bytes) in [(1, 1, 60), (1, 3, 60), (3, 7, 1500), (4, 2, 9001)] {
        let source = Some(Source {
            bytes,
            flows,
            count: Some(1001),
        });
        let config = NullConfig {
            source,
            ..NullConfig::default()
        };
        let (all, _, counters) = generate(config, &on_queues(queues), 100);
        assert_eq!(all.iter().map(Vec::len).sum::<usize>(), 1001);
        let mut next = std::collections::HashMap::new();
        for (queue, frames) in all.iter().enumerate() {
            for frame in frames {
                assert_eq!(frame.len(), bytes);
                let (port, number) = read(frame);
                let expected = next.entry(port).or_insert(0_u64);
                assert_eq!(number, *expected, "flow {port}");
                *expected += 1;
                assert_eq!(usize::from(port - FIRST_PORT) % queues, queue);
            }
        }
        assert_eq!(next.len(), flows.next_multiple_of(queues));
        assert_eq!(
            (counters.tx_packets, counters.tx_bytes),
            (1001, 1001 * bytes as u64)
        );
    }
}

#[test]
fn checksums_stay_right_however_far_it_counts() {
    let source = Source {
        bytes: 61,
        flows: 5,
        count: None,
    };
    let arena = Arena::new(ArenaConfig::small()).unwrap();
    let mut generator = Generator::new(source, 0, &Attach::default());
    for start in [0, 0xFFFE, 0xFFFF_FFF0, u64::MAX / 10] {
        generator.made = start * 5;
        for n in 0..200 {
            let mut buffers = vec![arena.packet(generator.class).unwrap()];
            let packet = generator.next(&mut buffers).unwrap();
            assert_eq!(packet.bytes(), 61);
            assert_eq!(read(packet.first()), (1024 + (n % 5) as u16, start + n / 5));
        }
    }
}

/// In small frames it is the same frame.
#[test]
fn a_source_receives_in_pieces_if_it_is_told_to() {
    let small = FrameClass::Small.data_bytes();
    for bytes in [67, small, small + 1, 9000, FRAME_BYTES_MAX] {
        let config = NullConfig {
            source: Some(Source {
                bytes,
                count: Some(100),
                ..Source::default()
            }),
            ..NullConfig::default()
        };
        let whole = generate(config.clone(), &on_queues(1), 200);
        let how = Attach {
            rx_buffers: RxBuffers::Pieces,
            ..on_queues(1)
        };
        let pieces = generate(config, &how, 200);
        assert_eq!(whole.0, pieces.0);
        assert_eq!(pieces.0[0].len(), 100);
        assert_eq!((whole.1, pieces.1), (bytes, bytes.min(small)));
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
            "null0: flows is 0, and must be from 1 to 64512",
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
