//! TCP and UDP of this host's kernel through two cards.

use crate::bench::{
    Document, End, Run, assert_counts, assert_healthy, boot, exchange, hosts, settle,
};
use packtrain_lab::guest::{Bound, Card, CardModel, FarSide, Guest};
use packtrain_lab::topology::{Host, TwoHosts};
use std::os::fd::OwnedFd;

/// Left and right of each kind.
const KINDS: [&str; 3] = ["e1000e", "virtio", "vmxnet3"];
const CARDS: usize = 6;
/// Queues of a virtio card, each way.
pub const PAIRS: usize = 2;

/// Hosts and a guest with two cards of each kind between them.
pub struct Bench {
    guest: Guest,
    hosts: [TwoHosts; KINDS.len()],
    addresses: [String; CARDS],
}

impl Bench {
    pub fn new() -> Self {
        let (e1000e, [a, b]) = hosts(1);
        let (virtio, [c, d]) = hosts(PAIRS);
        let (vmxnet3, [e, f]) = hosts(1);
        let card = |model, tap: Vec<OwnedFd>| Card::new(model, FarSide::Tap(tap), Bound::Vfio);
        let packed = |tap| card(CardModel::Virtio, tap).property("packed", "on");
        let cards = vec![
            card(CardModel::E1000e, a),
            card(CardModel::E1000e, b),
            packed(c),
            packed(d),
            card(CardModel::Vmxnet3, e),
            card(CardModel::Vmxnet3, f),
        ];
        let guest = boot(Vec::new(), cards);
        let addresses = std::array::from_fn(|number| guest.address(number));
        Self {
            guest,
            hosts: [e1000e, virtio, vmxnet3],
            addresses,
        }
    }

    pub fn guest(&self) -> &Guest {
        &self.guest
    }

    fn host(&self, card: usize) -> &Host {
        let hosts = &self.hosts[card / 2];
        [&hosts.left, &hosts.right][card % 2]
    }

    pub fn ends(&self, cards: [usize; 2]) -> [End<'_>; 2] {
        cards.map(|card| End {
            host: self.host(card),
            address: &self.addresses[card],
            kind: KINDS[card / 2],
        })
    }
}

/// A left card and a right one, with the keys of their ports. `queues` has one case more.
const CASES: [([usize; 2], [&str; 2]); 10] = [
    ([0, 1], ["", ""]),
    ([0, 1], [",irq=msi", ",irq=msi"]),
    ([0, 1], [",irq=intx", ",irq=intx"]),
    // The links have MTUs of 9000.
    ([0, 1], [",mtu=9000", ",mtu=9000"]),
    ([2, 3], [",packed=off", ",packed=off"]),
    ([2, 3], [",irq=intx", ""]),
    ([0, 3], ["", ",packed=off"]),
    ([4, 5], ["", ""]),
    ([4, 5], [",irq=msi,mtu=9000", ",irq=intx,mtu=9000"]),
    ([0, 5], ["", ""]),
];

pub fn exchange_through_two_cards(bench: &Bench) {
    for (cards, keys) in CASES {
        let ends = bench.ends(cards);
        let is_jumbo = keys[0].contains("mtu=9000");
        if is_jumbo {
            set_mtus(&ends, 9000);
        }
        let before = settle(&ends);
        let [a, b] = [0, 1].map(|end: usize| ends[end].port(keys[end]));
        let run = Run::start(bench.guest(), &a, &b);
        exchange(&ends, || format!("{a} {b}: {}", run.said()));
        let document = run.end_between(&ends);
        assert_counts(&ends, before, &document);
        for end in &ends {
            assert_work(end, &document);
        }
        if is_jumbo {
            set_mtus(&ends, 1500);
        }
    }
    assert_healthy(bench.guest());
}

fn set_mtus(ends: &[End<'_>; 2], mtu: u32) {
    for End { host, .. } in ends {
        let mut rtnl = host.netns.rtnl().expect("netlink");
        rtnl.set_mtu(host.link.index, mtu).expect("an MTU");
    }
}

/// What the cards did themselves.
pub fn assert_work(end: &End<'_>, document: &Document) {
    let address = end.address;
    for key in ["gso_packets", "needs_csum"] {
        assert!(
            document.tx(address, key) > 0,
            "{key} of {address}: {document:?}"
        );
    }
    for key in ["gso_sw_packets", "csum_sw"] {
        assert_eq!(
            document.tx(address, key),
            0,
            "{key} of {address}: {document:?}"
        );
    }
    let large = document.rx(address, "gso_packets");
    assert_eq!(large > 0, end.is_virtio(), "{address}: {document:?}");
    if !end.is_virtio() {
        let verified = document.rx(address, "csum_unnecessary");
        assert!(verified > 0, "{address}: {document:?}");
    }
}
