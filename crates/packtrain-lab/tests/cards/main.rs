//! A guest with cards behind an IOMMU: Debian's kernel in QEMU without KVM, and the drivers of that
//! kernel as peers.
//!
//! The folder `PACKTRAIN_GUEST`, or `target/guest`, has the kernel, its modules and BusyBox:
//! `.ci/run tests` puts them there.

mod conformance;
#[allow(dead_code, reason = "tests of `packtrain` use all of it")]
#[path = "../../../packtrain/tests/tap/line.rs"]
mod line;
mod tap;
#[allow(dead_code, reason = "tests of `packtrain` use all of it")]
#[path = "../../../packtrain/tests/tap/traffic.rs"]
mod traffic;
#[allow(dead_code, reason = "tests of `packtrain` use all of it")]
#[path = "../../../packtrain/tests/tap/world.rs"]
mod world;

use conformance::drivers_keep_their_promises_in_a_guest;
use packtrain_lab::ToolError;
use packtrain_lab::guest::{Bound, Card, CardModel, FarSide, Guest, GuestConfig, Output};
use packtrain_lab::harness::{need_guest, need_tap, wait_for};
use packtrain_lab::netns::Netns;
use packtrain_lab::tap::Tap;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::UnixDatagram;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tap::{a_card_has_the_queues_of_its_tap, the_kernel_answers_a_card};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((first, rest)) = arguments.split_first()
        && first == conformance::IN_GUEST
    {
        return conformance::in_guest(rest);
    }
    packtrain_lab::tests![
        2 at once:
        commands_run_in_a_guest_whose_cards_have_groups_of_their_own_and_are_counted,
        the_kernels_drivers_reach_this_host_until_a_card_is_unplugged,
        a_guest_that_cannot_start_says_why,
        drivers_keep_their_promises_in_a_guest,
        the_kernel_answers_a_card,
        a_card_has_the_queues_of_its_tap,
    ]
}

const MODELS: [CardModel; 3] = [CardModel::E1000e, CardModel::Vmxnet3, CardModel::Virtio];

fn boot(change: impl FnOnce(&mut GuestConfig)) -> Guest {
    let mut config = GuestConfig::new(need_guest());
    change(&mut config);
    let guest = Guest::start(config).unwrap_or_else(|error| panic!("{error}"));
    println!("boot: {} ms", guest.boot_time().as_millis());
    guest
}

fn check(guest: &Guest, line: &str) -> String {
    let checked = guest.check(line);
    let output = checked.unwrap_or_else(|error| panic!("{error}"));
    output.trim_end().to_owned()
}

fn no_faults(guest: &Guest) {
    assert_eq!(guest.iommu_faults().expect("a log"), [""; 0]);
}

/// The guest counts instructions, since each boot takes seconds.
fn commands_run_in_a_guest_whose_cards_have_groups_of_their_own_and_are_counted() {
    let program = std::env::current_exe().expect("this program");
    let name = program
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    let guest = boot(|config| {
        config.icount = Some(0);
        config.cpus = 1;
        config.programs.push(program);
        for model in MODELS {
            let card = Card::new(model, FarSide::Hub(0), Bound::Vfio);
            config.cards.push(card);
        }
    });
    instructions_are_counted(&guest);
    let output = |status, stdout: &str, stderr: &str| Output {
        status,
        stdout: stdout.to_owned(),
        stderr: stderr.to_owned(),
    };
    let cases = [
        ("exit 7", output(7, "", "")),
        (
            "printf 'a\\tb%%\\n'; echo \"c  d\" >&2",
            output(0, "a\tb%\n", "c  d\n"),
        ),
        (
            "for i in 1 2\ndo echo '\\n' $i\ndone",
            output(0, "\\n 1\n\\n 2\n", ""),
        ),
        ("cat", output(0, "", "")),
        ("kill -TERM $$", output(128 + 15, "", "Terminated\n")),
    ];
    for (line, expected) in cases {
        assert_eq!(guest.run(line), Ok(expected), "{line}");
    }
    // More than any buffer on the way.
    let large = check(&guest, "seq 1 200000");
    assert!(large.lines().map(str::parse).eq((1..=200_000).map(Ok)));
    // A program of this host, with its libraries.
    let listed = check(&guest, &format!("{name} --list"));
    assert!(
        listed.contains("a_guest_that_cannot_start_says_why: test"),
        "{listed}"
    );

    // Two at once: the first one sees that the second one has run.
    let first = guest.begin("until [ -e /tmp/second ]; do sleep 0.05; done; echo first");
    let first = first.expect("it starts");
    let second = guest.run("touch /tmp/second; echo second");
    assert_eq!(second, Ok(output(0, "second\n", "")));
    assert_eq!(first.wait(), Ok(output(0, "first\n", "")));
    // A process that is left behind writes on while the output is sent.
    for _ in 0..5 {
        let line = "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); echo $i; done & sleep 0.2";
        let first = guest.run(line).expect("a guest").stdout;
        assert!(first.starts_with("1\n2\n"), "{first}");
        assert_eq!(guest.run("echo second"), Ok(output(0, "second\n", "")));
    }
    // What runs for ever shows its output, and ends with a signal.
    let line = "trap 'echo caught; exit 3' INT; echo on; while :; do sleep 0.05; done";
    let endless = guest.begin(line).expect("it starts");
    wait_for("its output", || endless.output().as_deref() == Ok("on\n"));
    endless.signal("INT").expect("a guest");
    assert_eq!(endless.wait(), Ok(output(3, "on\ncaught\n", "")));

    let (mut out, mut err) = (Vec::new(), Vec::new());
    let line = "seq 1 20000; echo wrong >&2; exit 4";
    let streamed = guest.stream(line, &mut out, &mut err, &AtomicBool::new(false));
    assert_eq!((streamed, &*err), (Ok(4), &b"wrong\n"[..]));
    assert!(String::from_utf8_lossy(&out).ends_with("19999\n20000\n"));
    let stopped = guest.stream("sleep 1000", &mut out, &mut err, &AtomicBool::new(true));
    assert_eq!(stopped, Ok(128 + 2));

    let mut groups = Vec::new();
    for number in 0..MODELS.len() {
        let card = format!("/sys/bus/pci/devices/{}", guest.address(number));
        let driver = check(&guest, &format!("basename $(readlink {card}/driver)"));
        assert_eq!(driver, "vfio-pci");
        let group = check(&guest, &format!("basename $(readlink {card}/iommu_group)"));
        let alone = check(
            &guest,
            &format!("ls /sys/kernel/iommu_groups/{group}/devices"),
        );
        assert_eq!(alone, guest.address(number));
        check(&guest, &format!("[ -c /dev/vfio/{group} ]"));
        groups.push(group);
    }
    groups.dedup();
    assert_eq!(groups.len(), MODELS.len());
    no_faults(&guest);

    // A card that reads where nothing is mapped: BAR 0 of an 82574L, whose transmit ring begins
    // there.
    let faulty = "
cd /sys/bus/pci/devices/0000:01:00.0
echo 0000:01:00.0 >driver/unbind
echo 1 >enable
printf '\\006\\000' | dd of=config bs=1 seek=4 conv=notrunc
bar=$(head -n 1 resource | cut -d ' ' -f 1)
for pair in 3800=0x1000 3804=0 3808=128 3810=0 3828=0x2000000 400=2 3818=1; do
    devmem $((bar + 0x${pair%=*})) 32 ${pair#*=}
done";
    check(&guest, faulty);
    wait_for("a fault", || {
        !guest.iommu_faults().expect("a log").is_empty()
    });
    let faults = guest.iommu_faults().expect("a log");
    assert!(
        faults.iter().any(|line| line.contains("01:00.0")),
        "{faults:?}"
    );

    // A command that does not end in time, and a guest that ends.
    guest
        .check("echo o >/proc/sysrq-trigger; sleep 1000")
        .expect_err("it is off");
    let error = guest.run("true").expect_err("it is off");
    assert!(
        matches!(&error, ToolError::Failed(line) if line.contains("has ended")),
        "{error}"
    );
}

fn the_kernels_drivers_reach_this_host_until_a_card_is_unplugged() {
    need_tap();
    let netns = Netns::new().expect("a namespace");
    let tap = netns.run(|| Tap::new("card0").multi_queue(false).vnet_hdr(true).open());
    let tap = tap.expect("a thread").expect("a TAP");
    let mut rtnl = netns.rtnl().expect("netlink");
    let index = rtnl.link("card0").expect("the TAP").index;
    rtnl.set_up(index).expect("it is up");
    let ip = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1));
    rtnl.add_address(index, ip, 24).expect("an address");
    let (socket, far) = UnixDatagram::pair().expect("sockets");
    let guest = boot(|config| {
        let far_sides = [
            FarSide::Tap(tap),
            FarSide::Hub(0),
            FarSide::Hub(0),
            FarSide::Socket(far.into()),
        ];
        let models = [MODELS[0], MODELS[1], MODELS[2], MODELS[0]];
        for (model, far_side) in models.into_iter().zip(far_sides) {
            config.cards.push(Card::new(model, far_side, Bound::Kernel));
        }
    });
    let net = |number: usize| {
        let card = format!("/sys/bus/pci/devices/{}", guest.address(number));
        check(
            &guest,
            &format!("cd {card} && ls -d net/* virtio*/net/* 2>/dev/null || true"),
        )
        .rsplit('/')
        .next()
        .expect("a name")
        .to_owned()
    };
    let nets: Vec<_> = (0..4).map(net).collect();
    let setup = format!(
        "for net in {}; do ip link set $net up; done
        ip addr add 198.18.0.2/24 dev {}
        ip addr add 198.18.1.2/24 dev {}
        ip addr add 198.18.2.2/24 dev {}",
        nets.join(" "),
        nets[0],
        nets[1],
        nets[3],
    );
    check(&guest, &setup);
    // Until the drivers have seen the link.
    let pings = "for i in $(seq 30); do ping -c 1 -W 1 198.18.0.1 && exit; done; exit 1";
    check(&guest, pings);
    // To the socket: a datagram is a frame. The guest asks for the address of a host, once the
    // driver of this card has seen its link, too.
    socket.set_nonblocking(true).expect("a setting");
    let mut frame = [0; 2048];
    wait_for("an ARP request", || {
        check(&guest, "ping -c 1 -W 1 198.18.2.1 || true");
        loop {
            match socket.recv(&mut frame) {
                Ok(_) if frame[12..14] == [8, 6] => return true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) => panic!("{error}"),
            }
        }
    });
    assert_eq!(frame[6..12], [2, 0, 0, 0, 0x48, 3]);
    // From one model to the other one.
    let seen = format!("cat /sys/class/net/{}/statistics/rx_packets", nets[2]);
    let before: u64 = check(&guest, &seen).parse().expect("a count");
    wait_for("frames of the other card", || {
        check(&guest, "ping -c 3 -W 1 198.18.1.1 || true");
        check(&guest, &seen).parse::<u64>().expect("a count") >= before + 3
    });

    // QEMU 7.2 does not raise the interrupt of a link change that the kernel's e1000e waits for
    // with MSI-X.
    for number in [1, 2] {
        let carrier = format!("cat /sys/class/net/{}/carrier", nets[number]);
        for (up, expected) in [(false, "0"), (true, "1")] {
            guest.set_link(number, up).expect("QEMU");
            wait_for("the carrier", || check(&guest, &carrier) == expected);
        }
    }

    guest.unplug(0).expect("QEMU");
    let gone = format!("[ ! -e /sys/bus/pci/devices/{} ]", guest.address(0));
    check(&guest, &gone);
    guest.plug(0).expect("QEMU");
    wait_for("the card", || guest.check(&gone).is_err());
    check(&guest, &format!("bind-card {} vfio-pci", guest.address(0)));
    let refused = guest
        .check("bind-card 0000:1f:00.0 vfio-pci")
        .expect_err("no card");
    assert!(
        refused
            .to_string()
            .contains("no card at 0000:1f:00.0; there are: "),
        "{refused}"
    );
    no_faults(&guest);
}

fn instructions_are_counted(guest: &Guest) {
    // A loop of the shell: the same instructions each time, but for interrupts of the clock.
    const LOOP: &str = "i=0; while [ $i -lt COUNT ]; do i=$((i + 1)); done";
    let cost = |count: &str| {
        let before = guest.instructions().expect("a count");
        check(guest, &LOOP.replace("COUNT", count));
        guest.instructions().expect("a count") - before
    };
    // The first one of all finds cold caches of the kernel. What the kernel does beside a command
    // differs by a million instructions; the shorter loop is 65 million.
    let [_, none, some, threefold] = ["0", "0", "5000", "15000"].map(cost);
    let before = guest.instructions().expect("a count");
    check(guest, "sleep 3");
    let idle = guest.instructions().expect("a count") - before;
    println!("instructions: {none}, {some}, {threefold}, idle {idle}");
    let ratio = (threefold - none) as f64 / (some - none) as f64;
    assert!((2.8..3.2).contains(&ratio), "{ratio}");
    // As many nanoseconds would be 3,000,000,000.
    assert!(idle < none + some, "{idle}");
}

fn a_guest_that_cannot_start_says_why() {
    let start = |change: fn(&mut GuestConfig)| {
        let mut config = GuestConfig::new(need_guest());
        change(&mut config);
        let start = Instant::now();
        let error = Guest::start(config).expect_err("it cannot start");
        assert!(start.elapsed() < Duration::from_secs(60), "{error}");
        error
    };
    let error = start(|config| config.memory_mib = 1);
    assert!(
        matches!(&error, ToolError::Usage(line) if line.contains("memory")),
        "{error}"
    );
    let error = start(|config| config.programs.push("/nowhere/program".into()));
    assert!(error.to_string().contains("/nowhere/program"), "{error}");
    let error = start(|config| {
        let card = Card::new(CardModel::E1000e, FarSide::Hub(0), Bound::Vfio);
        config.cards.push(card.property("nonsense", 1));
    });
    let line = error.to_string();
    assert!(
        line.contains("device_add") && line.contains("nonsense"),
        "{line}"
    );
}
