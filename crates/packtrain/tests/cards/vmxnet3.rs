//! VMware's network card.

use crate::rig::{Plugged, Queues, USUAL, bytes, frame, how, until};
use packtrain::driver::Driver as _;
use packtrain::port::card::{Bus as _, InterruptKind};
use packtrain::port::vmxnet3::Vmxnet3;
use packtrain::stats::DropReason;
use packtrain_testkit::conformance::Skip;
use packtrain_testkit::driver_conformance;
use packtrain_testkit::qtest::Qtest;

fn plug(irq: InterruptKind, mtu: u32) -> Result<Plugged<Vmxnet3<Qtest>>, Skip> {
    Plugged::new(&how(irq, mtu))
}

driver_conformance!(msix, |_| plug(InterruptKind::Msix, 1500));
driver_conformance!(intx_jumbo, |_| plug(InterruptKind::Intx, 9000));

#[test]
fn a_packet_with_more_pieces_than_it_may_have_costs_that_packet() {
    let how = how(InterruptKind::Msix, 9000);
    let Some(mut queues) = Queues::<Vmxnet3<Qtest>>::new(&how, 1) else {
        return;
    };
    queues.inject(&frame(5, 12_000));
    queues.inject(&frame(6, 60));
    assert_eq!(bytes(&queues.receive(1)[0]), frame(6, 60));
    let drops = queues.rx_drops.snapshot();
    let dropped = [drops.get(DropReason::BadDescriptor), drops.total()];
    assert_eq!(dropped, [1, 1]);
    let counters = queues.port.device_counters().expect("it has some");
    let wrong = [counters.rx_errors, counters.tx_errors, counters.tx_dropped];
    assert_eq!((wrong, counters.tx_packets), ([0, 1, 0], 1));
    queues.end();
}

#[test]
fn a_card_that_somebody_resets_ends_the_run() {
    let Some(mut queues) = Queues::<Vmxnet3<Qtest>>::new(&USUAL, 1) else {
        return;
    };
    queues.card.reset().expect("QEMU");
    queues.card.start(true).expect("QEMU");
    until("it is noticed", || match queues.poll(0) {
        Ok(_) => false,
        Err(error) => {
            assert!(
                error.to_string().contains("it was reset meanwhile"),
                "{error}"
            );
            true
        }
    });
}
