//! The 82574: registers, memory access, interrupts, link. Numbers are those of its data sheet.

use super::{start, start_one};
use packtrain::packet::{Arena, ArenaConfig, FrameClass};
use packtrain::port::card::{Bus, Dma, Interrupt, InterruptKind, Ring, Window, write_barrier};
use packtrain_testkit::qtest::{Card, Net, Qtest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::Arc;
use std::time::{Duration, Instant};

const STATUS: usize = 0x8;
const ICR: usize = 0xc0;
const ICS: usize = 0xc8;
const IMS: usize = 0xd0;
const IVAR: usize = 0xe4;
const RCTL: usize = 0x100;
const TCTL: usize = 0x400;
const RX: usize = 0x2800;
const TX: usize = 0x3800;
const RAL: usize = 0x5400;

const LINK_UP: u32 = 1 << 1;
const LINK_CHANGED: u32 = 1 << 2;
const WAIT: Duration = Duration::from_secs(60);

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + WAIT;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn comes(interrupt: &Interrupt, wait: Duration) -> bool {
    let wait = Timespec::try_from(wait).unwrap();
    poll(&mut [PollFd::new(interrupt, PollFlags::IN)], Some(&wait)).unwrap() > 0
}

/// An RX or TX ring of the card.
fn ring(card: &Qtest, registers: usize) -> Ring<4> {
    let dma = Arc::new(Dma::new(card, 4096).unwrap());
    let ring = Ring::new(dma, 0, 16);
    card.write32(0, registers, ring.address() as u32);
    card.write32(0, registers + 4, (ring.address() >> 32) as u32);
    card.write32(0, registers + 8, ring.bytes() as u32);
    ring
}

fn arena() -> Arena {
    Arena::new(ArenaConfig::default()).unwrap()
}

#[test]
fn its_address_is_that_of_the_machine() {
    let card = Card::new("e1000e,mac=52:54:00:0a:0b:0c");
    let Some(card) = start_one(card) else {
        return;
    };
    assert_eq!(card.read32(0, RAL), 0x0a00_5452);
    assert_eq!(card.read16(0, RAL + 4), 0x0c0b);
    let status = card.read32(0, STATUS);
    assert_ne!(status & LINK_UP, 0);
    // By its I/O ports: an address and a word.
    card.write32(2, 0, STATUS as u32);
    assert_eq!(card.read32(2, 4), status);
    // As a driver does that has nothing to do but to write.
    for value in 0..1000 {
        card.write32(0, RX + 0x20, value);
    }
    assert_eq!(card.read32(0, RX + 0x20), 999);
}

#[test]
fn a_frame_goes_out_and_one_comes_in() {
    let Some(card) = start_one(Card::new("e1000e")) else {
        return;
    };
    let arena = arena();
    let window = Window::new(&card, &arena).unwrap();
    card.start(true).unwrap();

    let mut packet = arena.packet(FrameClass::Small).unwrap();
    let frame: Vec<u8> = (0..100).collect();
    packet.tailroom_mut()[..100].copy_from_slice(&frame);
    let address = window.address(&packet.tailroom_mut()[..100]).unwrap();
    let mut tx = ring(&card, TX);
    // The end of a packet, its FCS, and a status.
    let end = 1 << 24 | 1 << 25 | 1 << 27;
    tx.write(0, [address as u32, (address >> 32) as u32, 100 | end, 0]);
    write_barrier();
    card.write32(0, TCTL, 1 << 1);
    card.write32(0, TX + 0x18, 1);
    wait_until("the frame is sent", || tx.status(0, 3) & 1 != 0);
    assert_eq!(card.received(WAIT).unwrap().unwrap(), frame);

    let mut rx = ring(&card, RX);
    let mut packet = arena.packet(FrameClass::Small).unwrap();
    let address = window.address(packet.tailroom_mut()).unwrap();
    rx.write(0, [address as u32, (address >> 32) as u32, 0, 0]);
    write_barrier();
    // All addresses are accepted, the FCS is stripped.
    card.write32(0, RCTL, 1 << 1 | 1 << 3 | 1 << 15 | 1 << 26);
    card.write32(0, RX + 0x18, 1);
    card.inject(&frame).unwrap();
    wait_until("a frame is there", || rx.status(0, 3) & 1 != 0);
    assert_eq!(rx.word(0, 2) & 0xffff, 100);
    assert_eq!(packet.tailroom_mut()[..100], frame);
    card.check_untouched().unwrap();
}

#[test]
fn an_address_that_is_not_mapped_is_found() {
    // Not mapped, and the machine's own memory.
    for address in [0x1_0000_0000_u64, 0x20_0000] {
        let Some(card) = start_one(Card::new("e1000e")) else {
            return;
        };
        card.start(true).unwrap();
        let mut rx = ring(&card, RX);
        rx.write(0, [address as u32, (address >> 32) as u32, 0, 0]);
        write_barrier();
        card.write32(0, RCTL, 1 << 1 | 1 << 3 | 1 << 15 | 1 << 26);
        card.write32(0, RX + 0x18, 1);
        card.check_untouched().unwrap();
        card.inject(&[6; 100]).unwrap();
        wait_until("a frame is there", || rx.status(0, 3) & 1 != 0);
        let error = card.check_untouched().unwrap_err().to_string();
        assert!(error.contains("which is not mapped") || error.contains("Invalid write"));
    }
}

#[test]
fn messages_arrive_by_vector() {
    let Some(card) = start_one(Card::new("e1000e")) else {
        return;
    };
    let interrupts: Vec<_> = (0..5).map(|_| Interrupt::new().unwrap()).collect();
    let kind = InterruptKind::Msix;
    card.connect(kind, &interrupts).unwrap();
    // More often, and after a reset.
    for _ in 0..20 {
        card.connect(kind, &interrupts).unwrap();
    }
    card.reset().unwrap();
    card.start(true).unwrap();
    // Of RX queues 0 and 1, TX queues 0 and 1, and others.
    card.write32(0, IVAR, 0xc_ba98);
    let causes = [20, 21, 22, 23, 24].map(|bit| 1 << bit);
    card.write32(0, IMS, causes.iter().sum());
    for (vector, cause) in causes.into_iter().enumerate() {
        card.write32(0, ICS, cause);
        assert!(comes(&interrupts[vector], WAIT), "vector {vector}");
        interrupts[vector].clear();
        assert!(interrupts.iter().all(|other| !comes(other, Duration::ZERO)));
        card.write32(0, ICR, cause);
        card.write32(0, IMS, cause);
    }
    card.connect(kind, &[]).unwrap();
    card.write32(0, ICS, causes[0]);
    assert!(!comes(&interrupts[0], Duration::from_millis(20)));
    card.check_untouched().unwrap();
}

#[test]
fn a_message_of_the_only_vector_arrives() {
    let Some(mut cards) = start(vec![Card::new("vmxnet3"), Card::new("e1000e")]) else {
        return;
    };
    let card = cards.remove(1);
    card.start(true).unwrap();
    let interrupt = Interrupt::new().unwrap();
    let two = [interrupt.clone(), interrupt.clone()];
    let error = card.connect(InterruptKind::Msi, &two).unwrap_err();
    assert!(
        error.to_string().contains("has 1 Msi interrupts, not 2"),
        "{error}"
    );
    card.write32(0, IMS, LINK_CHANGED);
    for round in 0..60 {
        if round < 50 {
            card.connect(InterruptKind::Msi, &two[..1]).unwrap();
        }
        card.write32(0, ICS, LINK_CHANGED);
        assert!(comes(&interrupt, WAIT));
        // Before `clear`: while the cause is set, QEMU repeats the message after the interval of
        // the interrupt throttling register.
        assert_ne!(card.read32(0, ICR) & LINK_CHANGED, 0);
        interrupt.clear();
    }
    assert!(!comes(&interrupt, Duration::from_millis(20)));
}

#[test]
fn a_line_is_masked_until_it_is_unmasked() {
    let models = (0..4).map(|_| Card::new("e1000e"));
    let Some(cards) = start(models.collect()) else {
        return;
    };
    let interrupts: Vec<_> = cards.iter().map(|_| Interrupt::new().unwrap()).collect();
    for (card, interrupt) in cards.iter().zip(&interrupts) {
        let one = std::slice::from_ref(interrupt);
        card.connect(InterruptKind::Intx, one).unwrap();
        card.write32(0, IMS, LINK_CHANGED);
    }
    for (own, card) in cards.iter().enumerate() {
        let interrupt = &interrupts[own];
        card.write32(0, ICS, LINK_CHANGED);
        assert!(comes(interrupt, WAIT));
        interrupt.clear();
        // Its line is still raised.
        card.unmask();
        assert!(comes(interrupt, Duration::ZERO));
        interrupt.clear();
        assert_ne!(card.read32(0, ICR) & LINK_CHANGED, 0);
        card.write32(0, ICS, LINK_CHANGED);
        assert!(!comes(interrupt, Duration::from_millis(20)), "it is masked");
        assert_ne!(card.read32(0, ICR) & LINK_CHANGED, 0);
        card.unmask();
        assert!(
            !comes(interrupt, Duration::from_millis(20)),
            "it was lowered"
        );
        card.write32(0, ICS, LINK_CHANGED);
        assert!(comes(interrupt, WAIT));
        interrupt.clear();
        assert!(interrupts.iter().all(|other| !comes(other, Duration::ZERO)));
    }
    cards[0].connect(InterruptKind::Intx, &[]).unwrap();
    cards[0].unmask();
    cards[0].write32(0, ICS, LINK_CHANGED);
    assert!(!comes(&interrupts[0], Duration::from_millis(20)));
}

#[test]
fn a_cable_is_pulled() {
    let Some(card) = start_one(Card::new("e1000e")) else {
        return;
    };
    let interrupt = Interrupt::new().unwrap();
    card.start(true).unwrap();
    card.connect(InterruptKind::Msi, std::slice::from_ref(&interrupt))
        .unwrap();
    card.write32(0, IMS, LINK_CHANGED);
    for is_up in [false, true] {
        card.set_link(is_up).unwrap();
        assert!(comes(&interrupt, WAIT));
        assert_ne!(card.read32(0, ICR) & LINK_CHANGED, 0);
        interrupt.clear();
        assert_eq!(card.read32(0, STATUS) & LINK_UP != 0, is_up);
    }
}

#[test]
fn cards_of_a_machine_are_connected() {
    let models = || Card::new("e1000e").net(Net::Hub(0));
    let Some(cards) = start(vec![models(), models()]) else {
        return;
    };
    let mut rx = ring(&cards[1], RX);
    let mut tx = ring(&cards[0], TX);
    let frames = Dma::new(&cards[0], 4096).unwrap();
    frames.store_bytes(0, &[0x56; 64]);
    let address = frames.address();
    tx.write(
        0,
        [address as u32, (address >> 32) as u32, 64 | 0xb << 24, 0],
    );
    let address = address + 2048;
    rx.write(0, [address as u32, (address >> 32) as u32, 0, 0]);
    for card in &cards {
        card.start(true).unwrap();
    }
    write_barrier();
    cards[1].write32(0, RCTL, 1 << 1 | 1 << 3 | 1 << 15 | 1 << 26);
    cards[1].write32(0, RX + 0x18, 1);
    cards[1].read32(0, STATUS);
    cards[0].write32(0, TCTL, 1 << 1);
    cards[0].write32(0, TX + 0x18, 1);
    wait_until("a frame is there", || rx.status(0, 3) & 1 != 0);
    assert_eq!(
        (rx.word(0, 2) & 0xffff, frames.load(2048)),
        (64, 0x5656_5656)
    );
    cards[0].check_untouched().unwrap();
}
