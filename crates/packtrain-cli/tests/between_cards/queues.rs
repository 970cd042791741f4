//! Two pairs of queues of a virtio card, with two processors and with one, beside the driver of the
//! guest's kernel.

use crate::bench::{
    End, FLOWS, Run, assert_counts, assert_healthy, check, exchange, flows, send_flows, settle,
};
use crate::kernels::{Bench, PAIRS, assert_work};
use crate::peers::interface;
use packtrain_lab::guest::{Bound, CardModel, Guest};
use packtrain_lab::topology::Side;

/// Each queue has so many of them, but for one time in 10^10.
const SHARE: u64 = FLOWS as u64 / 8;

pub fn flows_are_spread_over_the_queues_of_a_virtio_card(bench: &Bench) {
    let (guest, ends) = (bench.guest(), bench.ends([2, 3]));
    for (processors, more) in [(2, ""), (1, ",packed=off")] {
        processor(guest, processors == 2);
        let before = settle(&ends);
        let [a, b] = ends.map(|end| end.port(format!(",queues={PAIRS}{more}")));
        let run = Run::start(guest, &a, &b);
        flows(&ends);
        if processors == 2 {
            exchange(&ends, || run.said());
        }
        let document = run.end_between(&ends);
        assert_counts(&ends, before, &document);
        for end in &ends {
            if processors == 2 {
                assert_work(end, &document);
            }
            for half in ["rxq", "txq"] {
                let each = document.each(end.address, half, "packets");
                let is_spread = each.len() == PAIRS && each.iter().all(|count| *count >= SHARE);
                assert!(is_spread, "{half}: {each:?}: {document:?}");
            }
        }
    }
    processor(guest, true);
    the_kernels_driver_does_so_too(guest, &ends[0]);
    assert_healthy(guest);
}

/// Sets the second processor on or off.
fn processor(guest: &Guest, on: bool) {
    let online = "/sys/devices/system/cpu/cpu1/online";
    check(guest, &format!("echo {} >{online}", u8::from(on)));
}

/// The same flows raise the interrupts of both of its queues.
fn the_kernels_driver_does_so_too(guest: &Guest, end: &End<'_>) {
    const CARD: usize = 2;
    let bind = |bound| {
        guest
            .bind(CARD, CardModel::Virtio, bound)
            .expect("a driver");
    };
    bind(Bound::Kernel);
    let name = interface(guest, end.address, Side::Right);
    // Of all processors: the name of an interrupt has the number of the device.
    let device = format!("basename /sys/bus/pci/devices/{}/virtio*", end.address);
    let device = check(guest, &device);
    let counts = || {
        let one = |queue| {
            let line = format!("grep '{device}-input.{queue}$' /proc/interrupts");
            let line = check(guest, &line);
            let words = line.split_whitespace().skip(1);
            words.map_while(|word| word.parse::<u64>().ok()).sum()
        };
        [0, 1].map(one)
    };
    let before: [u64; 2] = counts();
    let received = format!("cat /sys/class/net/{name}/statistics/rx_packets");
    let received = || check(guest, &received).parse::<u64>().expect("a count");
    let first = received();
    send_flows(end.host);
    packtrain_lab::harness::wait_for("the flows", || received() >= first + u64::from(FLOWS));
    let after = counts();
    assert!(
        (0..2).all(|queue| after[queue] > before[queue]),
        "{before:?} {after:?}"
    );
    bind(Bound::Vfio);
}
