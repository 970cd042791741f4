//! The virtio network card.

use crate::rig::{Nic as _, Plugged, Queues, USUAL, frame, how};
use packtrain::driver::{Completed, Reset, TxDescriptors as _};
use packtrain::port::card::InterruptKind;
use packtrain::port::virtio::Virtio;
use packtrain_testkit::conformance::Skip;
use packtrain_testkit::driver_conformance;
use packtrain_testkit::qtest::Qtest;

const SPLIT: &str = Virtio::<Qtest>::MODEL;

fn plug(properties: &str, irq: InterruptKind) -> Result<Plugged<Virtio<Qtest>>, Skip> {
    Plugged::of(&format!("{SPLIT}{properties}"), &how(irq, 1500))
}

driver_conformance!(split, |_| plug("", InterruptKind::Msix));
driver_conformance!(packed, |_| plug(",packed=on", InterruptKind::Msix));
driver_conformance!(split_intx, |_| plug("", InterruptKind::Intx));
driver_conformance!(packed_without_event_idx, |_| {
    plug(",packed=on,event_idx=off", InterruptKind::Msix)
});

/// QEMU drops what does not fit into one.
#[test]
fn without_mergeable_buffers_a_packet_is_in_one() {
    let model = format!("{SPLIT},mrg_rxbuf=off");
    let Some(mut queues) = Queues::<Virtio<Qtest>>::of(&model, &USUAL, 1) else {
        return;
    };
    for round in 0..100 {
        queues.inject(&frame(round, 1793));
        queues.inject(&frame(round, 1792));
        let packet = queues.receive(1).remove(0);
        assert_eq!(packet.first(), frame(round, 1792));
        queues.send(0, &frame(round, 9000)).expect("it works");
        assert!(queues.sent() == frame(round, 9000));
    }
}

#[test]
fn a_ring_of_the_card_works_after_its_reset() {
    for model in [SPLIT, &format!("{SPLIT},packed=on")] {
        let Some(mut queues) = Queues::<Virtio<Qtest>>::of(model, &USUAL, 1) else {
            return;
        };
        for round in 0..20 {
            queues.send(0, &frame(round, 60)).expect("it works");
            assert_eq!(queues.sent(), frame(round, 60));
            let [mut sent, mut unsent] = [(); 2].map(|()| Completed::with_capacity(256));
            let reset = queues.tx[0].device_mut().reset(&mut sent, &mut unsent);
            assert!(matches!(reset, Ok(Reset::Done)), "{reset:?}");
            assert!(unsent.is_empty());
            queues.inject(&frame(round, 61));
            assert_eq!(queues.receive(1)[0].first(), frame(round, 61));
        }
        queues.end();
    }
}
