//! Cards of QEMU whose cable leads to a TAP: the kernel receives what the card segments and sums,
//! with virtio-net headers of QEMU.

use crate::line::{Line, NAME, quiet, within};
use crate::start_one;
use crate::world::{self, PacketSocket, raw_tun};
use packtrain::driver::{Driver, Features};
use packtrain::port::e1000e::{E1000e, E1000eConfig};
use packtrain::port::vmxnet3::{Vmxnet3, Vmxnet3Config};
use packtrain_testkit::conformance::Skip;
use packtrain_testkit::driver_conformance;
use packtrain_testkit::qtest::{Card, Net, Qtest};

/// A port of a card of this model. The card's counters have packets that are segmented as one.
fn plug<D: Driver>(model: &str, mtu: u32, open: impl FnOnce(Qtest) -> D) -> Result<Line<D>, Skip> {
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    let tap = raw_tun(NAME, flags).expect("a TAP");
    quiet(NAME);
    world::set_mtu(NAME, mtu.cast_signed());
    let card = start_one(Card::new(model).net(Net::Tap(vec![tap])))?;
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

driver_conformance!(e1000e, |_| e1000e(1500), within);
driver_conformance!(e1000e_jumbo, |_| e1000e(9000), within);
driver_conformance!(vmxnet3, |_| vmxnet3(), within);
