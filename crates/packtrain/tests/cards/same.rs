//! What every card does.

use crate::rig::{ADDRESS, How, Nic, Queues, USUAL, bytes, frame, how, tagged, until};
use packtrain::driver::{DeviceError, Link};
use packtrain::port::card::{Bus as _, InterruptKind};
use packtrain::port::e1000e::E1000e;
use packtrain::port::virtio::Virtio;
use packtrain::port::vmxnet3::Vmxnet3;
use packtrain::stats::DropReason;
use packtrain_testkit::qtest::Qtest;
use std::time::Duration;

/// What differs in frames of all lengths.
struct Frames<'a> {
    model: &'a str,
    mtu: u32,
    queues: usize,
    lengths: &'a [usize],
    /// Bytes of a buffer, and what is in the first one in front of the frame.
    buffer: usize,
    front: usize,
    /// Each piece takes a descriptor: the longest of each round are copied.
    copies: bool,
    /// Bytes that the card's counters have more for each frame that it has received.
    more: u64,
}

/// They arrive in as many buffers as they need, and are sent as they are, several times round the
/// rings.
fn frames_of_all_lengths<D: Nic>(case: &Frames<'_>) {
    const ROUNDS: u64 = 60;
    let model = case.model;
    let Some(mut queues) = Queues::<D>::of(model, &how(InterruptKind::Msix, case.mtu), case.queues)
    else {
        return;
    };
    let mut all = 0;
    for round in 0..ROUNDS {
        let frames = case.lengths.iter().map(|bytes| frame(round as u8, *bytes));
        for frame in frames.chain([tagged(round as u8)]) {
            queues.inject(&frame);
            let packet = queues.receive(1).remove(0);
            let pieces = (case.front + frame.len()).div_ceil(case.buffer);
            assert_eq!(packet.segment_count(), pieces, "{model} {}", frame.len());
            assert!(bytes(&packet) == frame, "{model} {}", frame.len());
            let queue = round as usize % case.queues;
            queues.transmit(queue, packet).expect("it works");
            assert!(queues.sent() == frame, "{model} {}", frame.len());
            all += frame.len() as u64;
        }
    }
    // One more in one direction.
    queues.inject(&frame(0, 60));
    assert_eq!(bytes(&queues.receive(1)[0]), frame(0, 60));
    let counters = queues.tx_counters.snapshot();
    let copies = if case.copies { ROUNDS } else { 0 };
    assert_eq!(counters.collapse + counters.defrag, copies, "{model}");
    let drops = [&queues.rx_drops, &queues.tx_drops].map(|drops| drops.snapshot().total());
    assert_eq!(drops, [0, 0]);
    // In the words of the card's neighbour.
    if let Some(counters) = queues.port.device_counters() {
        let count = ROUNDS * (case.lengths.len() as u64 + 1);
        let has = (counters.rx_packets, counters.tx_packets);
        assert_eq!(has, (count, count + 1), "{model}");
        let has = (counters.rx_bytes, counters.tx_bytes);
        let received = all + 60 + case.more * (count + 1);
        assert_eq!(has, (all, received), "{model}");
        let wrong = counters.rx_errors + counters.tx_errors + counters.tx_dropped;
        assert_eq!(wrong, 0, "{model}");
    }
    queues.end();
}

#[test]
fn frames_of_all_lengths_pass_in_as_many_buffers_as_they_need() {
    let e1000e = Frames {
        model: E1000e::<Qtest>::MODEL,
        mtu: 9000,
        queues: 1,
        lengths: &[60, 1024, 1025, 9014],
        buffer: 1024,
        front: 0,
        copies: false,
        more: 4,
    };
    frames_of_all_lengths::<E1000e<Qtest>>(&e1000e);
    let vmxnet3 = Frames {
        model: Vmxnet3::<Qtest>::MODEL,
        queues: 2,
        lengths: &[60, 1792, 1793, 9014],
        buffer: 1792,
        more: 0,
        ..e1000e
    };
    frames_of_all_lengths::<Vmxnet3<Qtest>>(&vmxnet3);
    let split = Virtio::<Qtest>::MODEL;
    let [packed, without_tables] =
        ["packed=on", "indirect_desc=off"].map(|how| format!("{split},{how}"));
    for (model, copies) in [(split, false), (&packed, false), (&without_tables, true)] {
        frames_of_all_lengths::<Virtio<Qtest>>(&Frames {
            model,
            mtu: 1500,
            queues: 1,
            lengths: &[60, 1514, 1792, 1793, 9014, 65_000],
            buffer: 1804,
            front: 12,
            copies,
            more: 0,
        });
    }
}

/// An interrupt reports the link; while it is down packets are dropped, and afterwards they flow.
fn the_link_goes_and_comes<D: Nic>(irq: InterruptKind) {
    let Some(mut queues) = Queues::<D>::new(&how(irq, 1500), 1) else {
        return;
    };
    for round in 0..2 {
        // Packets are on their way in both directions when it goes down.
        for number in 0..20 {
            queues.send(0, &frame(number, 500)).expect("it works");
            assert!(queues.card.inject(&frame(number, 500)).is_ok() || number > 0);
        }
        queues.set_link(false);
        assert_eq!(queues.port.link(), Link::Down, "{irq:?}");
        let before = queues.tx_drops.snapshot().get(DropReason::LinkDown);
        queues.send(0, &frame(round, 60)).expect("it works");
        let after = queues.tx_drops.snapshot().get(DropReason::LinkDown);
        assert_eq!(after - before, 1, "{irq:?} {round}");
        queues.set_link(true);
        assert_eq!(queues.port.link(), Link::Up, "{irq:?}");
        // What was on its way comes first.
        let marked = frame(100 + round, 99);
        queues.send(0, &marked).expect("it works");
        until("the frame is sent", || queues.sent() == marked);
        queues.inject(&marked);
        until("the frame arrives", || {
            let packets = queues.receive(1);
            packets.iter().any(|packet| packet.first() == marked)
        });
    }
    let now = queues.now().after(Duration::from_millis(200));
    queues.tx[0].service(now).expect("it works");
    let counters = queues.tx_counters.snapshot();
    assert_eq!((counters.hangs, counters.resets), (0, 0));
    queues.end();
}

#[test]
fn after_the_link_was_down_packets_flow_again() {
    for irq in [InterruptKind::Msix, InterruptKind::Intx] {
        the_link_goes_and_comes::<E1000e<Qtest>>(irq);
        the_link_goes_and_comes::<Virtio<Qtest>>(irq);
        the_link_goes_and_comes::<Vmxnet3<Qtest>>(irq);
    }
    the_link_goes_and_comes::<E1000e<Qtest>>(InterruptKind::Msi);
}

fn unplugged<D: Nic>() {
    let Some(mut queues) = Queues::<D>::new(&USUAL, 1) else {
        return;
    };
    queues.send(0, &frame(1, 60)).expect("it works");
    assert_eq!(queues.sent(), frame(1, 60));
    queues.card.unplug().expect("QEMU");
    let mut ends = |end: &mut dyn FnMut(&mut Queues<D>) -> Result<(), DeviceError>| {
        let mut result = Ok(());
        until("it is noticed", || {
            result = end(&mut queues);
            result.is_err()
        });
        assert!(matches!(result, Err(DeviceError::Removed)), "{result:?}");
    };
    ends(&mut |queues| queues.poll(0).map(drop));
    ends(&mut |queues| queues.send(0, &frame(2, 60)));
    assert_eq!(queues.port.link(), Link::Removed);
}

#[test]
fn a_card_that_is_unplugged_ends_both_halves() {
    unplugged::<E1000e<Qtest>>();
    unplugged::<Virtio<Qtest>>();
    unplugged::<Vmxnet3<Qtest>>();
}

/// A card that is opened again knows nothing of before: what was for any address is now for its
/// own.
fn opened_again<D: Nic>(is_reset: bool) {
    let Some(mut queues) = Queues::<D>::new(&USUAL, 1) else {
        return;
    };
    let address = queues.port.address();
    assert_eq!(address, ADDRESS);
    queues.inject(&frame(1, 60));
    assert_eq!(bytes(&queues.receive(1)[0]), frame(1, 60));
    queues.rx.clear();
    queues.tx.clear();
    // What arrives in between is for another one.
    queues.inject(&frame(2, 60));
    if is_reset {
        queues.card.reset().expect("QEMU");
    }
    let mut queues = queues.again(&How {
        promiscuous: false,
        ..USUAL
    });
    for to in [
        [2, 0, 0, 0, 0, 7],
        address,
        [0xff; 6],
        [0x33, 0x33, 0, 0, 0, 1],
    ] {
        queues.inject(&[&to[..], &frame(9, 60)[6..]].concat());
    }
    let packets = queues.receive(3);
    let firsts: Vec<u8> = packets.iter().map(|packet| packet.first()[0]).collect();
    assert_eq!(firsts, [0x52, 0xff, 0x33]);
    assert!(!queues.card.is_removed());
    queues.end();
}

#[test]
fn only_its_own_frames_arrive_unless_promiscuous() {
    for is_reset in [false, true] {
        opened_again::<E1000e<Qtest>>(is_reset);
        opened_again::<Virtio<Qtest>>(is_reset);
        opened_again::<Vmxnet3<Qtest>>(is_reset);
    }
}
