//! An 82574 of QEMU whose cable leads to a TAP: the kernel receives what the card segments and
//! sums, with virtio-net headers of QEMU.

use crate::line::{Line, NAME, quiet, within};
use crate::start_one;
use crate::world::{self, PacketSocket, raw_tun};
use packtrain::port::e1000e::{E1000e, E1000eConfig};
use packtrain_testkit::conformance::Skip;
use packtrain_testkit::driver_conformance;
use packtrain_testkit::qtest::{Card, Net, Qtest};

fn plug(mtu: u32) -> Result<Line<E1000e<Qtest>>, Skip> {
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    let tap = raw_tun(NAME, flags).expect("a TAP");
    quiet(NAME);
    world::set_mtu(NAME, mtu.cast_signed());
    let card = start_one(Card::new("e1000e").net(Net::Tap(vec![tap])))?;
    world::set_up(NAME, true);
    let config = E1000eConfig {
        mtu,
        ..E1000eConfig::default()
    };
    let port = E1000e::open(card, &config).expect("it opens");
    // The card's counters have packets that are segmented as one.
    Ok(Line::on(port, PacketSocket::open(NAME), false))
}

driver_conformance!(e1000e, |_| plug(1500), within);
driver_conformance!(e1000e_jumbo, |_| plug(9000), within);
