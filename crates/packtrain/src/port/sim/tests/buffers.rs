//! The memory of a received packet: posted buffers, or the sender's frames.

use super::*;

/// iflib posts half a ring at first, and all of it after the first receive. Here the driver posts
/// all that the ring takes, one descriptor less than it has, each time.
#[test]
fn as_many_buffers_are_posted_as_a_ring_takes_and_never_more() {
    const RING: u32 = 256;
    let config = rx_ring(RING as usize);
    let (mut a, mut b) = stations(SimConfig::default(), config);
    let before = b.arena.config().small_frames;
    let posted = |b: &Station, held: usize| {
        let census = b.arena.census();
        assert_eq!(census.small_free + census.small_used, before, "one is lost");
        census.small_used - held as u32
    };
    assert_eq!(posted(&b, 0), RING - 1, "attached");
    // As few and as many as a receive takes, and more than there are buffers.
    for (sent, arrive) in [(1, 1), (64, 64), (0, 0), (255, 255), (300, 255)] {
        for part in frames(sent, 200).chunks(BURST_PACKETS_MAX) {
            a.send(part);
            a.tx.reclaim(Instant::default());
            assert_eq!(posted(&b, 0), RING - 1, "as many as before are the ring's");
        }
        let (mut kept, mut passes) = (Vec::new(), 0);
        while kept.len() < arrive || passes == 0 {
            let mut burst = Burst::new();
            b.rx.poll(Instant::default(), &mut burst, 64).unwrap();
            kept.extend(std::iter::from_fn(|| burst.pop()));
            passes += 1;
            assert_eq!(posted(&b, kept.len()), RING - 1, "{sent}, pass {passes}");
            assert!(b.rx.device_mut().refill(&b.arena));
            assert_eq!(posted(&b, kept.len()), RING - 1, "asked once more");
        }
        assert_eq!((kept.len(), passes), (arrive, arrive.div_ceil(64).max(1)));
        drop(kept);
        assert_eq!(posted(&b, 0), RING - 1, "what came back is not posted, too");
    }
    assert_eq!(counters(&b).tx_dropped, 300 - 255);
    assert_eq!(b.rx.counters().snapshot().alloc_fail, 0);
    close(a, b);
}

#[test]
fn a_long_packet_takes_one_large_buffer_or_several_small_ones() {
    for (rx_buffers, segments) in [
        (RxBuffers::Whole, 2),
        (RxBuffers::PIECES, 37),
        (RxBuffers::Pieces { bytes: 256 }, 257),
    ] {
        let (a, b) = pair(SimConfig::default(), SimConfig::default(), 7);
        let (mut a, mut b) = receiving_into(a, b, rx_buffers);
        let long = frame(9, 65_549);
        let packet = a.arena.packet_from(&long.bytes).unwrap();
        let mut burst = Burst::new();
        burst.push(packet).unwrap();
        a.tx.transmit(&mut burst).unwrap();
        b.rx.poll(Instant::default(), &mut burst, 64).unwrap();
        let got = burst.pop().unwrap();
        assert_eq!(Outside::of(&got), long);
        assert_eq!(got.segment_count(), segments);
        drop(got);
        close(a, b);
    }
}

/// Sends one long packet from a to b, and returns the packet that arrives.
fn carry(a: &mut Station, b: &mut Station, sent: &Packet) -> Packet {
    let mut burst = Burst::new();
    burst.push(sent.try_clone().unwrap()).unwrap();
    a.tx.transmit(&mut burst).unwrap();
    a.tx.reclaim(Instant::default());
    assert_eq!(a.tx.in_flight(), 0, "the sender may forget it");
    b.rx.poll(Instant::default(), &mut burst, 64).unwrap();
    burst.pop().unwrap()
}

#[test]
fn a_long_packet_is_shared_where_that_is_requested_and_possible() {
    // Requested, in one arena, whole; and whether frames are used for the copy.
    let cases = [
        ((true, true, RxBuffers::Whole), false),
        ((false, true, RxBuffers::Whole), true),
        ((true, false, RxBuffers::Whole), true),
        ((true, true, RxBuffers::PIECES), true),
    ];
    for ((rx_shares, one_arena, rx_buffers), copied) in cases {
        let shares = SimConfig {
            rx_shares,
            rx_ring: 64,
            ..SimConfig::default()
        };
        let (a, b) = pair(SimConfig::default(), shares, 7);
        let how = Attach {
            rx_buffers,
            ..Attach::default()
        };
        let mut a = Station::new(a, &Attach::default());
        let arena = if one_arena {
            a.arena.clone()
        } else {
            Arena::new(ArenaConfig::small()).unwrap()
        };
        let mut b = Station::new_in(b, &how, arena);
        let long = frame(9, 65_549);
        let sent = a.arena.packet_from(&long.bytes).unwrap();
        let posted = b.arena.census();
        let mut got = carry(&mut a, &mut b, &sent);
        assert_eq!(Outside::of(&got), long);
        // The buffers taken from the ring have been replaced by fresh frames.
        let taken = b.arena.census();
        let large = taken.large_used - posted.large_used;
        let small = taken.small_used - posted.small_used;
        assert_eq!(large == 0 && small == 1, !copied, "{large} {small}");
        // A writer writes to bytes of its own.
        got.headers_mut(64).unwrap().fill(0xEE);
        assert_eq!(Outside::of(&sent), long);
        // The sender's packet may be dropped first.
        drop(sent);
        assert_eq!(Outside::of(&got).bytes[64..], long.bytes[64..]);
        drop(got);
        if one_arena {
            drop((a.rx, a.tx));
        } else {
            a.close();
        }
        b.close();
    }
}

#[test]
fn shared_packets_come_with_tags_and_offloads_as_copied_ones_do() {
    let arena = Arena::new(ArenaConfig::default()).unwrap();
    for strips in [Features::NONE, Features::VLAN] {
        for inserted in [
            None,
            Some(VlanTag {
                protocol: 0x8100,
                control: 5,
            }),
        ] {
            for in_bytes in [false, true] {
                let arrived = [false, true].map(|rx_shares| {
                    let receives = SimConfig {
                        rx: Features::CSUM | Features::TSO | Features::USO | strips,
                        rx_shares,
                        rx_ring: 64,
                        ..SimConfig::default()
                    };
                    let sends = SimConfig {
                        tx: Features::ALL.without(Features::LARGE_RECEIVE),
                        ..SimConfig::default()
                    };
                    let (a, b) = pair(sends, receives, 7);
                    let how = Attach {
                        rx: Features::ALL,
                        ..Attach::default()
                    };
                    let mut a = Station::new_in(a, &how, arena.clone());
                    let mut b = Station::new_in(b, &how, arena.clone());
                    let mut bytes = frame(3, 30_000).bytes;
                    if in_bytes {
                        bytes[12..16].copy_from_slice(&[0x81, 0, 0, 7]);
                    }
                    let mut packet = arena.packet_from(&bytes).unwrap();
                    packet.meta_mut().vlan = inserted;
                    let got = carry(&mut a, &mut b, &packet);
                    (Outside::of(&got), got.meta().vlan, got.meta().checksum)
                });
                assert_eq!(arrived[0], arrived[1], "{strips:?} {inserted:?} {in_bytes}");
            }
        }
    }
}

#[test]
fn without_lines_for_sharing_a_packet_is_copied() {
    let config = ArenaConfig {
        small_frames: 256,
        large_frames: 64,
        lines: 512,
    };
    let arena = Arena::new(config).unwrap();
    let receives = SimConfig {
        rx_shares: true,
        rx_ring: 16,
        ..SimConfig::default()
    };
    let sends = rx_ring(16);
    let (a, b) = pair(sends, receives, 7);
    let mut a = Station::new_in(a, &Attach::default(), arena.clone());
    let mut b = Station::new_in(b, &Attach::default(), arena.clone());
    // More pieces than a packet's first line refers to, each of another frame.
    let mut sent = arena.empty_packet().unwrap();
    for number in 0..12 {
        let piece = arena.packet_from(&[number; 1700]).unwrap();
        sent.append(piece).map_err(|(error, _)| error).unwrap();
    }
    let mut burst = Burst::new();
    burst.push(sent.try_clone().unwrap()).unwrap();
    // The device takes its own reference at once, and takes buffers at the doorbell: by then no
    // line is free.
    let mut all = Vec::new();
    let wanted = Outside::of(&sent);
    let device = a.tx.device_mut();
    let mut packet = burst.pop().unwrap();
    let accepted = device.encap(&mut TxPacket::fitted(&mut packet), Token(0));
    assert_eq!(accepted, Ok(crate::driver::Accepted::Pending));
    while let Ok(packet) = arena.empty_packet() {
        all.push(packet);
    }
    device.flush(Instant::default()).unwrap();
    all.clear();
    b.rx.poll(Instant::default(), &mut burst, 64).unwrap();
    let got = burst.pop().unwrap();
    assert_eq!(Outside::of(&got), wanted);
    assert_eq!(got.segment_count(), 2, "a small buffer and a large one");
}
