//! Two pairs of queues of a virtio card, with two processors and with one, beside the driver of the
//! guest's kernel.

use crate::bench::{End, Run, assert_counts, assert_healthy, check, exchange, settle};
use crate::kernels::{Bench, PAIRS, assert_work};
use crate::peers::interface;
use packtrain_lab::guest::{Bound, CardModel, Guest};
use packtrain_lab::topology::{Host, Side};
use std::net::UdpSocket;
use std::time::Duration;

/// So many that each queue has an eighth of them, but for one time in 10^10.
const FLOWS: u16 = 64;
const SHARE: u64 = FLOWS as u64 / 8;
const PORTS: u16 = 20_000;
const TO: u16 = 30_000;
const TIMEOUT: Duration = Duration::from_secs(60);

/// A datagram of each flow, from the left host.
fn send_flows(host: &Host) -> Vec<UdpSocket> {
    let send = |number: u16| {
        let socket = UdpSocket::bind((Side::Left.ipv4(), PORTS + number)).expect("a socket");
        socket.set_read_timeout(Some(TIMEOUT)).expect("a setting");
        let sent = socket.send_to(&number.to_be_bytes(), (Side::Right.ipv4(), TO));
        assert_eq!(sent.expect("it is sent"), 2);
        socket
    };
    let sent = host.netns.run(|| (0..FLOWS).map(send).collect());
    sent.expect("a thread")
}

/// A datagram of each flow there and back.
fn flows([left, right]: &[End<'_>; 2]) {
    let bound = right
        .host
        .netns
        .run(|| UdpSocket::bind((Side::Right.ipv4(), TO)));
    let there = bound.expect("a thread").expect("a socket");
    there.set_read_timeout(Some(TIMEOUT)).expect("a setting");
    let sockets = send_flows(left.host);
    for _ in 0..FLOWS {
        let mut number = [0; 2];
        let (length, from) = there.recv_from(&mut number).expect("a datagram");
        assert_eq!(
            (length, from.port()),
            (2, PORTS + u16::from_be_bytes(number))
        );
        there.send_to(&number, from).expect("it is sent");
    }
    for (number, socket) in (0_u16..).zip(sockets) {
        let mut back = [0; 2];
        assert_eq!(socket.recv(&mut back).expect("a datagram"), 2);
        assert_eq!(back, number.to_be_bytes());
    }
}

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
        settle(&ends);
        let document = run.end();
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
