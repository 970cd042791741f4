//! All models: where they are, their regions and interrupts, and their removal.

use super::{start, start_one};
use packtrain::port::card::InterruptKind::{Intx, Msi, Msix};
use packtrain::port::card::{Bus as _, Interrupt};
use packtrain_testkit::qtest::{Card, Net, Qtest};
use std::io::{BufRead as _, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn cards_are_enumerated() {
    let models = ["e1000e", "virtio-net-pci,disable-legacy=on", "vmxnet3"];
    let Some(cards) = start(models.map(Card::new).into()) else {
        return;
    };
    let identifiers = [0x10d3_8086, 0x1041_1af4, 0x07b0_15ad];
    let interrupts = [[5, 1, 1], [4, 0, 1], [25, 1, 1]];
    for (index, card) in cards.iter().enumerate() {
        let name = card.name();
        assert_eq!(name, format!("0000:{:02x}:00.0", index + 1));
        assert_eq!(card.config(0).unwrap(), identifiers[index], "{name}");
        let class = card.config(8).unwrap() >> 16;
        assert_eq!(class, 0x0200, "{name} is an Ethernet controller");
        let found = [Msix, Msi, Intx].map(|kind| card.interrupts(kind));
        assert_eq!(found, interrupts[index], "{name}");
    }
    let addresses = cards.iter().map(|card| card.config(0x10).unwrap() & !0xf);
    let mut addresses: Vec<_> = addresses.collect();
    addresses.dedup();
    assert_eq!(addresses.len(), 3, "{addresses:#x?}");
    cards[0].check_untouched().unwrap();
}

#[test]
fn a_removed_card_reads_as_ones() {
    let Some(card) = start_one(Card::new("e1000e")) else {
        return;
    };
    let other = card.clone();
    assert!(!other.is_removed());
    assert_ne!(card.read32(0, 8), u32::MAX);
    card.unplug().unwrap();
    card.unplug().unwrap();
    assert!(other.is_removed());
    other.write32(0, 0, 0);
    let read = (other.read8(0, 8), other.read16(0, 8), other.read32(0, 8));
    assert_eq!(read, (u8::MAX, u16::MAX, u32::MAX));
    assert_eq!(other.config(0).unwrap(), u32::MAX);
    other.reset().unwrap();
    other.connect(Msix, &[Interrupt::new().unwrap()]).unwrap();
    card.monitor("query-status", &serde_json::json!({}))
        .unwrap();
}

#[test]
fn a_removal_is_requested_first() {
    let Some(card) = start_one(Card::new("e1000e")) else {
        return;
    };
    card.request_removal().unwrap();
    assert!(card.is_removed());
    assert_eq!(card.config(0).unwrap(), 0x10d3_8086);
    assert_ne!(card.read32(0, 8), u32::MAX);
    card.unplug().unwrap();
    assert_eq!(card.read32(0, 8), u32::MAX);
}

#[test]
fn an_access_outside_of_a_region_panics() {
    let Some(card) = start_one(Card::new("e1000e").net(Net::Hub(0))) else {
        return;
    };
    card.read32(0, 0x1_fffc);
    for (bar, at) in [(0, 0x2_0000), (0, 2), (4, 0), (6, 0)] {
        let card = card.clone();
        let access = catch_unwind(AssertUnwindSafe(|| card.read32(bar, at)));
        assert!(access.is_err(), "region {bar}, {at:#x}");
    }
    card.check_untouched().unwrap();
}

#[test]
fn a_reset_leaves_regions_accessible() {
    let Some(card) = start_one(Card::new("virtio-net-pci,disable-legacy=on")) else {
        return;
    };
    // The common structure: a capability of the vendor, of type 1.
    let mut at = card.config(0x34).unwrap() as usize & 0xfc;
    while card.config(at).unwrap() & 0xff00_00ff != 0x0100_0009 {
        at = card.config(at).unwrap() as usize >> 8 & 0xfc;
        assert_ne!(at, 0, "no such capability");
    }
    let bar = card.config(at + 4).unwrap() as usize & 0xff;
    let status = card.config(at + 8).unwrap() as usize + 20;
    for _ in 0..2 {
        assert_eq!(card.read8(bar, status), 0);
        card.write8(bar, status, 1);
        card.write8(bar, status, 3);
        assert_eq!(card.read8(bar, status), 3);
        card.reset().unwrap();
    }
    card.check_untouched().unwrap();
}

#[test]
fn qemu_ends_with_the_last_card() {
    let Some(mut cards) = start(vec![Card::new("e1000e"), Card::new("vmxnet3")]) else {
        return;
    };
    let end = cards[0].socket().try_clone().unwrap();
    let last = cards.pop().unwrap();
    drop(cards);
    last.check_untouched().unwrap();
    end.send(&[0; 60]).unwrap();
    drop(last);
    assert!(end.send(&[0; 60]).is_err());
}

/// Set in the process that is to be killed.
const KILLED: &str = "PACKTRAIN_QTEST_KILLED";

#[test]
fn qemu_ends_with_a_test_that_is_killed() {
    let Some(_card) = start_one(Card::new("e1000e")) else {
        return;
    };
    if std::env::var_os(KILLED).is_some() {
        println!("started");
        loop {
            std::thread::park();
        }
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "--nocapture",
            "cards::qemu_ends_with_a_test_that_is_killed",
        ])
        .env(KILLED, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let mut lines = output.lines().map(Result::unwrap);
    assert!(lines.any(|line| line.ends_with("started")));
    // Its QEMU opened files of it.
    let files = format!("/proc/{}/fd/", child.id());
    assert_eq!(processes_of(&files), 2, "a shell and QEMU");
    child.kill().unwrap();
    child.wait().unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while processes_of(&files) > 0 {
        assert!(Instant::now() < end, "they live on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// How many processes have `text` in their arguments.
fn processes_of(text: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap();
    // What ends meanwhile has no arguments.
    let arguments =
        processes.filter_map(|process| std::fs::read(process.unwrap().path().join("cmdline")).ok());
    arguments
        .filter(|arguments| String::from_utf8_lossy(arguments).contains(text))
        .count()
}

#[test]
fn what_qemu_refuses_is_an_error() {
    if start(vec![]).is_none() {
        return;
    }
    let error = Card::new("e1000f").start().unwrap_err().to_string();
    assert!(
        error.contains("'e1000f' is not a valid device model name"),
        "{error}"
    );
    let error = Card::new("e1000e,colour=blue")
        .start()
        .unwrap_err()
        .to_string();
    assert!(error.contains("colour"), "{error}");
    let five = (0..5).map(|_| Card::new("e1000e")).collect();
    let error = Qtest::start(five).unwrap_err().to_string();
    assert!(error.contains("at most 4 cards, not 5"), "{error}");
}
