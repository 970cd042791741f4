//! The suite of the driver contract on the cards of a guest: VFIO, an IOMMU and real interrupts
//! below the driver, and the kernel on the other end of the cable.
//!
//! This program runs in the guest, too. The cable of a card leads to another one, whose interface
//! the guest's kernel has. All cards under test are functions of one device, so of one IOMMU group,
//! and are tested at the same time: each is opened, given memory and closed while the others move
//! packets. TCP that the cards segment is in `tests/between_cards` of `packtrain-cli`.

use crate::line::Line;
use crate::world::{PacketSocket, set_feature};
use crate::{boot, check, no_faults};
use packtrain::driver::Features;
use packtrain::port;
use packtrain_lab::guest::{Bound, Card, CardModel, FarSide};
use packtrain_testkit::conformance::{Skip, run_all};
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::thread;

/// The argument with which this program runs in a guest; behind it, the number of settings, and of
/// each card its address and the interface on its far side.
pub const IN_GUEST: &str = "conformance";

/// A card with its driver.
struct Driver {
    model: CardModel,
    kind: &'static str,
    /// The suite runs once with each, with another seed: with the first one alone, or with all if
    /// `PACKTRAIN_FULL=1`, since each takes about as long as the boot.
    keys: [&'static str; SETTINGS],
}

const SETTINGS: usize = 3;

/// Each kind of interrupt once at a time. All take about the same time: a card that is closed while
/// the others are costs seconds, for the kernel then resets their bus. Without virtio-net headers,
/// QEMU 7.2 sends the TSO packets of all but virtio as IP fragments.
const DRIVERS: [Driver; 3] = [
    Driver {
        model: CardModel::E1000e,
        kind: "e1000e",
        keys: [
            "irq=intx,mtu=9000,offload=csum",
            "irq=msix,offload=csum",
            "irq=msi,offload=csum",
        ],
    },
    Driver {
        model: CardModel::Virtio,
        kind: "virtio",
        keys: [
            "irq=msix,packed=on",
            "irq=intx,packed=off",
            "irq=msix,packed=off",
        ],
    },
    Driver {
        model: CardModel::Vmxnet3,
        kind: "vmxnet3",
        keys: [
            "irq=msi,offload=csum",
            "irq=intx,mtu=9000,offload=csum",
            "irq=msix,offload=csum",
        ],
    },
];

/// Cases of the suite, and those of them that the packets of a card cannot have: the kernel takes
/// all, and makes no bad one.
const CASES: usize = 13;
const NOT_APPLIED: usize = 2;

/// More than the suite takes on a busy machine, with one setting.
const SECONDS_MAX: usize = 100;

/// Shows what it keeps.
struct Both<'a>(&'a mut Vec<u8>, io::Stdout);

impl Write for Both<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend(bytes);
        self.1.write_all(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.1.flush()
    }
}

pub fn drivers_keep_their_promises_in_a_guest() {
    let program = std::env::current_exe().expect("this program");
    let name = program.file_name().expect("a name").to_os_string();
    let name = name.into_string().expect("UTF-8");
    let guest = boot(|config| {
        // QEMU 7.2 crashes when a processor accesses a card while another one moves its regions.
        config.cpus = 1;
        config.programs.push(program);
        let mut kernels = Vec::new();
        for (number, driver) in DRIVERS.iter().enumerate() {
            let cable = || FarSide::Hub(number as u32);
            let mut card = Card::new(driver.model, cable(), Bound::Vfio);
            if number > 0 {
                card = card.beside();
            }
            if driver.model == CardModel::Virtio {
                card = card.property("packed", true);
            }
            config.cards.push(card);
            kernels.push(Card::new(CardModel::Virtio, cable(), Bound::Kernel));
        }
        config.cards.append(&mut kernels);
    });
    let group = "basename $(readlink /sys/bus/pci/devices/ADDRESS/iommu_group)";
    let mut groups = Vec::new();
    let mut arguments = String::new();
    for number in 0..DRIVERS.len() {
        let [card, kernel] = [number, DRIVERS.len() + number].map(|number| guest.address(number));
        groups.push(check(&guest, &group.replace("ADDRESS", &card)));
        let net = format!("cd /sys/bus/pci/devices/{kernel}/virtio*/net && ls");
        let net = check(&guest, &net);
        let quiet = format!("echo 1 >/proc/sys/net/ipv6/conf/{net}/disable_ipv6");
        check(
            &guest,
            &format!("{quiet} && ip link set {net} up promisc on"),
        );
        arguments += &format!(" {card} {net}");
    }
    groups.dedup();
    assert_eq!(groups.len(), 1, "{groups:?}");
    check(&guest, "modprobe tun");
    let is_full = std::env::var_os("PACKTRAIN_FULL").is_some_and(|full| full == "1");
    let settings = if is_full { SETTINGS } else { 1 };
    let seconds = SECONDS_MAX * settings;
    let line = format!("exec timeout {seconds} {name} {IN_GUEST} {settings}{arguments}");
    let mut out = Vec::new();
    let (mut shown, never) = (Both(&mut out, io::stdout()), AtomicBool::new(false));
    let status = guest.stream(&line, &mut shown, io::stderr(), &never);
    no_faults(&guest);
    assert_eq!(status, Ok(0));
    let wanted = DRIVERS.len() * settings;
    let passed = String::from_utf8_lossy(&out).matches(" ... ok\n").count();
    assert_eq!(passed, (CASES - NOT_APPLIED) * wanted);
}

/// The suite, on each card.
pub fn in_guest(arguments: &[String]) -> ExitCode {
    let Some((settings, cards)) = arguments.split_first() else {
        return ExitCode::FAILURE;
    };
    let settings: usize = settings.parse().expect("a number");
    let failed = thread::scope(|scope| {
        let cards = DRIVERS.iter().zip(cards.chunks_exact(2));
        let threads: Vec<_> = cards
            .map(|(driver, card)| scope.spawn(|| all_of(driver, settings, &card[0], &card[1])))
            .collect();
        let ended = threads.into_iter();
        let ended = ended.map(|thread| thread.join().unwrap_or_else(|_| vec!["a thread".into()]));
        ended.collect::<Vec<_>>().concat()
    });
    failed.iter().for_each(|name| println!("failed: {name}"));
    match failed.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// The suite with the first `settings` of a driver; the names of what failed.
fn all_of(driver: &Driver, settings: usize, address: &str, interface: &str) -> Vec<String> {
    // It merges packets of the suite, and so changes their order.
    assert!(
        set_feature(interface, "rx-gro", false),
        "the kernel has GRO"
    );
    let mut failed = Vec::new();
    for (seed, keys) in (1..).zip(&driver.keys[..settings]) {
        let spec = format!("{}:{address},{keys}", driver.kind);
        let open = || {
            let port = port::open(&spec);
            port.unwrap_or_else(|error| panic!("{spec}: {error}"))
        };
        // A function is open once.
        let first = open();
        let twice = port::open(&spec)
            .map(|_| ())
            .map_err(|error| error.to_string());
        assert!(
            matches!(&twice, Err(error) if error.contains("in use by this program")),
            "{spec}: {twice:?}"
        );
        drop(first);
        let name = format!("{}::{}", driver.kind, keys.replace(['=', ','], "_"));
        failed.extend(run_all(&name, seed, |_| {
            let wire = PacketSocket::open(interface);
            // The counters of some cards have packets that they segment as one.
            let line = Line::on(open().driver, wire, false);
            // QEMU's hub lets a frame overtake one that waits for a buffer of a virtio card,
            // and its vmxnet3 drops what it has no buffer for. So no more are sent at a time
            // than they have: none that the kernel segments.
            Ok::<_, Skip>(match driver.model {
                CardModel::Virtio | CardModel::Vmxnet3 => line.injecting(Features::CSUM),
                _ => line,
            })
        }));
    }
    failed
}
