//! The 82574L.

use crate::rig::{Plugged, Queues, USUAL, bytes, frame, how, until, wait};
use packtrain::driver::Armed;
use packtrain::policy::moderation::Moderation;
use packtrain::port::card::{Bus as _, InterruptKind};
use packtrain::port::e1000e::E1000e;
use packtrain_offload::checksum::pseudo_header_v4;
use packtrain_offload::offload::ChecksumState;
use packtrain_testkit::conformance::Skip;
use packtrain_testkit::driver_conformance;
use packtrain_testkit::qtest::Qtest;
use std::collections::HashSet;
use std::time::Duration;

fn plug(irq: InterruptKind, mtu: u32) -> Result<Plugged<E1000e<Qtest>>, Skip> {
    Plugged::new(&how(irq, mtu))
}

driver_conformance!(msix, |_| plug(InterruptKind::Msix, 1500));
driver_conformance!(msi, |_| plug(InterruptKind::Msi, 1500));
driver_conformance!(intx, |_| plug(InterruptKind::Intx, 1500));
driver_conformance!(jumbo, |_| plug(InterruptKind::Msix, 9000));

/// A datagram of a flow, with right checksums or not.
fn datagram(port: u16, is_right: bool) -> Vec<u8> {
    let mut ip = vec![0x45, 0, 0, 68, 0, 1, 0x40, 0, 64, 17, 0, 0];
    ip.extend([198, 18, 0, 1, 198, 18, (port >> 8) as u8, port as u8]);
    let sum = packtrain_offload::checksum::ipv4_header(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut udp = [port.to_be_bytes(), 9_u16.to_be_bytes()].concat();
    udp.extend([0, 48, 0, 0]);
    udp.extend([0x5a; 40]);
    let addresses = [[198, 18, 0, 1], [198, 18, (port >> 8) as u8, port as u8]];
    let mut sum = pseudo_header_v4(addresses[0], addresses[1], 17, 48);
    sum.add(&udp);
    let field = sum.finish() ^ u16::from(!is_right);
    udp[6..8].copy_from_slice(&field.to_be_bytes());
    let mut frame = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0].to_vec();
    frame.extend(ip);
    frame.extend(udp);
    frame
}

#[test]
fn two_queues_share_the_flows() {
    let Some(mut queues) = Queues::<E1000e<Qtest>>::new(&USUAL, 2) else {
        return;
    };
    for port in 0..64 {
        queues.inject(&datagram(port, true));
    }
    let mut shares = [0; 2];
    let mut hashes = HashSet::new();
    until("all arrive", || {
        for (queue, share) in shares.iter_mut().enumerate() {
            for packet in queues.poll(queue).expect("it works") {
                *share += 1;
                let hash = packet.meta().flow_hash;
                // The lowest bits of the hash select the entry of the table.
                assert_eq!(hash as usize & 1, queue, "{hash:#x}");
                hashes.insert(hash);
            }
        }
        shares.iter().sum::<usize>() == 64
    });
    assert!(shares.iter().all(|share| *share > 16), "{shares:?}");
    assert!(hashes.len() > 60, "{}", hashes.len());
    // Both send.
    for queue in 0..2 {
        queues
            .send(queue, &frame(queue as u8, 70))
            .expect("it works");
        assert_eq!(queues.sent(), frame(queue as u8, 70));
    }
    queues.end();
}

/// Waits for the interrupts of the queue 0 until one has brought a packet.
fn wait_for_interrupt(queues: &mut Queues<E1000e<Qtest>>, frame: &[u8]) {
    assert_eq!(queues.rx[0].arm(), Armed::Idle);
    queues.inject(frame);
    while queues.poll(0).expect("it works").is_empty() {
        wait(queues.rx[0].wake(), "a packet");
        queues.rx[0].resume(true);
        queues.rx[0].count_wakeup();
    }
    let now = queues.now();
    queues.rx[0].settle(now, true);
    assert!(queues.poll(0).expect("it works").is_empty());
    let now = queues.now();
    queues.rx[0].settle(now, false);
}

/// How long it does so is QEMU's affair: at least 128 µs, and not before each message.
#[test]
fn the_card_delays_its_interrupts() {
    const DELAY: Duration = Duration::from_millis(10);
    for (kind, register) in [
        (InterruptKind::Msix, 0xe8),
        (InterruptKind::Msi, 0xc4),
        (InterruptKind::Intx, 0xc4),
    ] {
        let Some(mut queues) = Queues::<E1000e<Qtest>>::new(&how(kind, 1500), 1) else {
            return;
        };
        let (usecs, frames) = (DELAY.as_micros() as u32, 4096);
        // In units of 256 ns.
        let settings = [
            (Moderation::Off, 0),
            (Moderation::Fixed { usecs, frames }, 39_063),
        ];
        for (setting, units) in settings {
            queues.rx = std::mem::take(&mut queues.rx)
                .into_iter()
                .map(|queue| queue.moderated(setting))
                .collect();
            // With the first one the framework asks for the delay.
            for _ in 0..5 {
                wait_for_interrupt(&mut queues, &frame(1, 60));
                assert_eq!(queues.card.read32(0, register), units, "{kind:?} {setting}");
            }
            // The framework delays none by itself.
            assert_eq!(queues.rx[0].counters().snapshot().moderated, 0);
        }
        queues.end();
    }
}

#[test]
fn the_card_verifies_checksums() {
    let Some(mut queues) = Queues::<E1000e<Qtest>>::new(&USUAL, 1) else {
        return;
    };
    queues.inject(&datagram(1, true));
    queues.inject(&datagram(1, false));
    queues.inject(&frame(1, 60));
    let states: Vec<ChecksumState> = queues
        .receive(3)
        .iter()
        .map(|packet| packet.meta().checksum)
        .collect();
    // Of a wrong one the packet arrives all the same.
    let none = ChecksumState::None;
    assert_eq!(states, [ChecksumState::Unnecessary, none, none]);
}

#[test]
fn frames_beyond_the_mtu_are_not_received() {
    for (mtu, longest) in [(1500, 1522), (9208, 9230)] {
        let how = how(InterruptKind::Msix, mtu);
        let Some(mut queues) = Queues::<E1000e<Qtest>>::new(&how, 1) else {
            return;
        };
        if mtu == 1500 {
            queues.inject(&frame(1, longest + 1));
        }
        queues.inject(&frame(2, longest));
        assert_eq!(bytes(&queues.receive(1)[0]), frame(2, longest));
        assert_eq!(queues.rx_drops.snapshot().total(), 0);
        // The longest one goes out, with two tags.
        let mut longest = frame(4, mtu as usize + 14 + 8);
        longest[12..18].copy_from_slice(&[0x88, 0xa8, 0, 7, 0x81, 0]);
        queues.send(0, &longest).expect("it works");
        assert_eq!(queues.sent(), longest);
    }
}

#[test]
fn a_reset_of_a_tx_queue_sends_each_packet_once() {
    let Some(mut queues) = Queues::<E1000e<Qtest>>::new(&USUAL, 2) else {
        return;
    };
    // The ring goes round several times, with a reset at any place.
    let mut next = 0_u16;
    for count in [1, 3, 30, 200, 77] {
        for _ in 0..count {
            let mut bytes = frame(7, 80);
            bytes[14..16].copy_from_slice(&next.to_be_bytes());
            queues.send(1, &bytes).expect("it works");
            next += 1;
            if next.is_multiple_of(8) {
                // The cable holds a few.
                for number in next - 8..next {
                    let sent = queues.sent();
                    assert_eq!(sent[14..16], number.to_be_bytes());
                }
            }
        }
        let now = queues.now();
        assert_eq!(queues.tx[1].reset(now).ok(), Some(true));
        let now = queues.now();
        queues.tx[1].service(now).expect("it works");
    }
    for number in next / 8 * 8..next {
        let sent = queues.sent();
        assert_eq!(sent[14..16], number.to_be_bytes());
    }
    assert_eq!(queues.card.socket().recv(&mut [0; 99]).ok(), None);
    assert_eq!(queues.tx_drops.snapshot().total(), 0);
    assert_eq!(queues.tx_counters.snapshot().resets, 5);
}
