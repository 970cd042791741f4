//! Cards of QEMU whose cable leads to a TAP: the kernel receives what the card segments and sums,
//! with virtio-net headers of QEMU, and those of a virtio card.

use crate::line::{Line, NAME, quiet, within};
use crate::rig::start_one;
use crate::traffic::{Port, Train};
use crate::world::{self, PacketSocket, in_namespace, raw_tun};
use packtrain::driver::{Attach, Driver, Features};
use packtrain::packet::Burst;
use packtrain::port::e1000e::{E1000e, E1000eConfig};
use packtrain::port::virtio::{Virtio, VirtioConfig};
use packtrain::port::vmxnet3::{Vmxnet3, Vmxnet3Config};
use packtrain_offload::layout::Transport;
use packtrain_testkit::conformance::Skip;
use packtrain_testkit::driver_conformance;
use packtrain_testkit::qtest::{Card, Net, Qtest};
use std::os::fd::OwnedFd;

/// The queues of the TAP. The TAP of an earlier rig is deleted: a process that was
/// just forked may still have a copy of its descriptor.
fn taps(queues: usize, flags: libc::c_int) -> Vec<OwnedFd> {
    if world::interface_index(NAME).is_some() {
        world::delete(NAME);
    }
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | flags;
    let taps = (0..queues).map(|_| raw_tun(NAME, flags).expect("a TAP"));
    taps.collect()
}

/// A port of a card of this model. The card's counters have packets that are segmented as one.
fn plug<D: Driver>(model: &str, mtu: u32, open: impl FnOnce(Qtest) -> D) -> Result<Line<D>, Skip> {
    let tap = taps(1, 0);
    quiet(NAME);
    world::set_mtu(NAME, mtu.cast_signed());
    let card = start_one(Card::new(model).net(Net::Tap(tap)))?;
    world::set_up(NAME, true);
    Ok(Line::on(open(card), PacketSocket::open(NAME), false))
}

fn e1000e(mtu: u32) -> Result<Line<E1000e<Qtest>>, Skip> {
    let config = E1000eConfig {
        mtu,
        ..E1000eConfig::default()
    };
    let open = |card| E1000e::open(card, &config).expect("it opens");
    plug("e1000e", mtu, open)
}

/// The card drops what it has no buffers for, and its ring has as many as a case has packets: but
/// not as many as the segments of large ones.
fn vmxnet3() -> Result<Line<Vmxnet3<Qtest>>, Skip> {
    let open = |card| Vmxnet3::open(card, &Vmxnet3Config::default()).expect("it opens");
    Ok(plug("vmxnet3", 1500, open)?.injecting(Features::CSUM))
}

/// A virtio card with so many queues.
fn plug_virtio(properties: &str, pairs: usize) -> Result<(Virtio<Qtest>, PacketSocket), Skip> {
    let several = if pairs > 1 { libc::IFF_MULTI_QUEUE } else { 0 };
    let taps = taps(pairs, several);
    quiet(NAME);
    let model = format!("virtio-net-pci,disable-legacy=on,{properties}");
    let card = start_one(Card::new(&model).net(Net::Tap(taps)))?;
    world::set_up(NAME, true);
    let port = Virtio::open(card, &VirtioConfig::default()).expect("it opens");
    Ok((port, PacketSocket::open(NAME)))
}

fn line_of_virtio() -> Result<Line<Virtio<Qtest>>, Skip> {
    let (port, wire) = plug_virtio("event_idx=off", 1)?;
    Ok(Line::on(port, wire, false))
}

/// The kernel spreads flows over the queues of a TAP, which are those of the card.
#[test]
fn packets_pass_both_queues_of_a_virtio_card() {
    const FLOWS: u16 = 64;
    let from = |number: u16| {
        let mut packet = Train::udp(100, 0)
            .finished()
            .bytes(Some([2, 0, 0, 0, 0, 9]));
        packet[34..36].copy_from_slice(&number.to_be_bytes());
        packet
    };
    let numbers = |mut all: Vec<Vec<u8>>| -> Vec<u16> {
        all.sort();
        let number = |bytes: &Vec<u8>| u16::from_be_bytes([bytes[34], bytes[35]]);
        all.iter().map(number).collect()
    };
    in_namespace(move || {
        for properties in ["mq=on", "mq=on,packed=on"] {
            let (driver, wire) = match plug_virtio(properties, 2) {
                Ok(plugged) => plugged,
                Err(why) => return println!("SKIP: {why}"),
            };
            let how = Attach {
                queues: 2,
                ..Attach::default()
            };
            let mut port = Port::attach(driver, &how);
            for number in 0..FLOWS {
                let packet = [vec![0; 10], from(number)].concat();
                wire.send(0x0800, &packet).expect("room");
            }
            let received = port.wait_for(Transport::Udp, FLOWS.into());
            let bytes = received.iter().map(|packet| packet.first().to_vec());
            assert_eq!(numbers(bytes.collect()), (0..FLOWS).collect::<Vec<_>>());
            let each = port.rx.iter().map(|rx| rx.counters().snapshot().packets);
            let each: Vec<_> = each.collect();
            assert!(each.iter().all(|count| *count > 0), "{each:?}");

            for number in 0..FLOWS {
                let mut burst = Burst::new();
                let packet = port.arena.packet_from(&from(number)).expect("frames");
                burst.push(packet).expect("an empty burst");
                let tx = &mut port.tx[usize::from(number % 2)];
                tx.transmit(&mut burst).expect("it works");
                assert!(burst.is_empty());
            }
            let mut all = Vec::new();
            world::wait_until("all arrive", || {
                let packets = std::iter::from_fn(|| wire.receive());
                all.extend(packets.map(|(bytes, _)| bytes[10..].to_vec()));
                all.len() >= FLOWS.into()
            });
            assert_eq!(numbers(all), (0..FLOWS).collect::<Vec<_>>());
            port.assert_clean(properties);
        }
    });
}

driver_conformance!(virtio, |_| line_of_virtio(), within);
driver_conformance!(e1000e, |_| e1000e(1500), within);
driver_conformance!(e1000e_jumbo, |_| e1000e(9000), within);
driver_conformance!(vmxnet3, |_| vmxnet3(), within);
