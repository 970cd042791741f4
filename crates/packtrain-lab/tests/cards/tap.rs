//! QEMU's cards without a guest, between a test and this kernel: their cable is a TAP.

use packtrain::port::card::{Bus as _, Dma, Ring, write_barrier};
use packtrain_lab::harness::{need_tap, skip, wait_for};
use packtrain_lab::link::Rtnl;
use packtrain_lab::tap::Tap;
use packtrain_testkit::qtest::{Card, Net, Qtest};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

const NAME: &str = "card0";
const KERNEL: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const CARD: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const MAC: [u8; 6] = [0x02, 0, 0, 0x48, 0, 1];
/// Of the second half of the memory below, where the card writes what it receives.
const RECEIVED: usize = 4096;

/// Registers of the 82574 (its data sheet, section 10).
const RCTL: usize = 0x100;
const TCTL: usize = 0x400;
const RX: usize = 0x2800;
const TX: usize = 0x3800;
const TAIL: usize = 0x18;

/// The ARP request for the kernel's address.
fn request() -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend(MAC);
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(MAC);
    frame.extend(CARD.octets());
    frame.extend([0; 6]);
    frame.extend(KERNEL.octets());
    frame.resize(60, 0);
    frame
}

fn ring(card: &Qtest, registers: usize, memory: &Arc<Dma>, start: usize) -> Ring<4> {
    let ring = Ring::new(Arc::clone(memory), start, 8);
    card.write32(0, registers, ring.address() as u32);
    card.write32(0, registers + 4, (ring.address() >> 32) as u32);
    card.write32(0, registers + 8, ring.bytes() as u32);
    ring
}

fn need_qemu() {
    need_tap();
    if let Err(why) = Qtest::available() {
        skip(why);
    }
}

pub fn the_kernel_answers_a_card() {
    need_qemu();
    for has_header in [false, true] {
        let tap = Tap::new(NAME).multi_queue(false).vnet_hdr(has_header);
        let queues = tap.open().expect("a TAP");
        let mut rtnl = Rtnl::open().expect("netlink");
        let index = rtnl.link(NAME).expect("the TAP").index;
        rtnl.set_up(index).expect("it is up");
        let added = rtnl.add_address(index, IpAddr::V4(KERNEL), 24);
        added.expect("an address");
        wait_for("the link to be usable", || {
            let link = rtnl.link_by_index(index).expect("the TAP");
            !link.is_settling()
        });

        let card = Card::new("e1000e").net(Net::Tap(queues));
        let card = card.start().expect("a card");
        let memory = Arc::new(Dma::new(&card, 4 * 4096).expect("memory"));
        let mut rx = ring(&card, RX, &memory, 0);
        let mut tx = ring(&card, TX, &memory, 128);
        for index in 0..7 {
            let address = memory.address() + (RECEIVED + 2048 * (index % 2)) as u64;
            rx.write(index, [address as u32, (address >> 32) as u32, 0, 0]);
        }
        let frame = request();
        memory.store_bytes(1024, &frame);
        let address = memory.address() + 1024;
        let length = frame.len() as u32;
        // The end of the packet, with FCS and status.
        let command = 0xb << 24;
        tx.write(
            0,
            [address as u32, (address >> 32) as u32, length | command, 0],
        );
        card.start(true).expect("bus mastering");
        write_barrier();
        // Enabled; frames to all addresses; without FCS.
        card.write32(0, RCTL, 1 << 1 | 1 << 3 | 1 << 15 | 1 << 26);
        card.write32(0, RX + TAIL, 7);
        card.write32(0, TCTL, 1 << 1);
        card.write32(0, TX + TAIL, 1);
        // What else the kernel sends is for all hosts, and not accepted: only broadcast is.
        wait_for("a reply", || rx.status(0, 3) & 1 != 0);
        let reply: Vec<u8> = (RECEIVED..RECEIVED + 44)
            .step_by(4)
            .flat_map(|at| memory.load(at).to_le_bytes())
            .collect();
        assert_eq!(reply[..6], MAC, "with header: {has_header}: {reply:x?}");
        assert_eq!(reply[12..22], [8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
        assert_eq!(reply[28..32], KERNEL.octets());
        assert_eq!(reply[38..42], CARD.octets());
        card.check_untouched().expect("only what was mapped");
        // The interface goes with its last descriptor.
        drop(card);
        assert!(rtnl.link(NAME).is_err(), "QEMU has ended");
    }
}

pub fn a_card_has_the_queues_of_its_tap() {
    need_qemu();
    for pairs in [1, 2, 4_u16] {
        let tap = Tap::new(NAME).queues(pairs.into()).vnet_hdr(true);
        let queues = tap.open().expect("a TAP");
        let card = Card::new("virtio-net-pci,mq=on,disable-legacy=on").net(Net::Tap(queues));
        let card = card.start().expect("a card");
        // The structure of the device: a capability of the vendor, of type 4. Behind its address
        // and its status is the number of pairs of queues.
        let word = |at| card.config(at).expect("a word") as usize;
        let mut at = word(0x34) & 0xfc;
        while word(at) & 0xff00_00ff != 0x0400_0009 {
            at = word(at) >> 8 & 0xfc;
            assert_ne!(at, 0, "no such capability");
        }
        let found = card.read16(word(at + 4) & 0xff, word(at + 8) + 8);
        assert_eq!(found, pairs);
    }
}
