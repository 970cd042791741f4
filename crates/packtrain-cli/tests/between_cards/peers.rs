//! The drivers of the guest's kernel at the other end of a card's cable.

use crate::bench::{Run, assert_healthy, boot, check};
use crate::card;
use crate::frames::{cables, odd_frames_pass_or_are_counted};
use packtrain::port;
use packtrain_lab::LabError;
use packtrain_lab::guest::{Bound, Card, CardModel, FarSide, Guest};
use packtrain_lab::harness::need_tap;
use packtrain_lab::tap::Tap;
use packtrain_lab::topology::{Host, Settings, Side};
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

/// The word by which this program, in a guest, is the example.
pub const EXAMPLE: &str = "example";
/// Its address.
const EXAMPLE_IP: &str = "198.18.0.9";
const BYTES: usize = 512 << 10;
const TIMEOUT: Duration = Duration::from_secs(60);
const PORT: u16 = 1000;
/// Of each model: the card at the TAP, that at the hub, and the kernel's at the same hub.
const OF_MODEL: usize = 3;
/// Two cards of each, which come first, have sockets at their cables.
const WITH_CABLES: [(&str, CardModel); 2] = [
    ("e1000e", CardModel::E1000e),
    ("vmxnet3", CardModel::Vmxnet3),
];

/// A host whose peer is the guest's kernel.
fn host() -> (Host, Vec<OwnedFd>) {
    need_tap();
    let settings = Settings {
        quiet: false,
        ..Settings::default()
    };
    let made = Host::alone(&settings, Side::Left, || {
        let queues = Tap::new("left").multi_queue(false).vnet_hdr(true).open()?;
        Ok::<_, LabError>(("left".to_owned(), queues))
    });
    made.unwrap_or_else(|error| panic!("{error}"))
}

pub fn odd_frames_pass_and_the_kernels_drivers_are_reached() {
    let kinds = ["e1000e", "virtio", "vmxnet3"];
    let models = [CardModel::E1000e, CardModel::Virtio, CardModel::Vmxnet3];
    let hosts = [(); 3].map(|()| host());
    let [(cables, two), (others, other_two)] = WITH_CABLES.map(|kind| cables(kind.1));
    let (mut cards, mut sides) = (Vec::from(two), Vec::new());
    cards.extend(other_two);
    for ((model, (host, tap)), hub) in models.into_iter().zip(hosts).zip(0..) {
        cards.extend([
            Card::new(model, FarSide::Tap(tap), Bound::Vfio),
            Card::new(model, FarSide::Hub(hub), Bound::Vfio),
            Card::new(model, FarSide::Hub(hub), Bound::Kernel),
        ]);
        sides.push(host);
    }
    let program = std::env::current_exe().expect("this program");
    let name = program.file_name().expect("a name").to_string_lossy();
    let guest = boot(vec![program.clone()], cards);
    for ((number, (kind, _)), cables) in (0..).zip(WITH_CABLES).zip([cables, others]) {
        let addresses = [0, 1].map(|end| guest.address(2 * number + end));
        odd_frames_pass_or_are_counted(&guest, kind, &addresses, &cables);
    }
    for (number, (host, kind)) in sides.iter().zip(kinds).enumerate() {
        let address = |card| guest.address(2 * WITH_CABLES.len() + OF_MODEL * number + card);
        let interface = interface(&guest, &address(2), Side::Right);
        // A hub has no virtio-net header: see `hosts`.
        let [a, b] = [
            format!("{kind}:{}", address(0)),
            format!("{kind}:{},offload=csum", address(1)),
        ];
        let run = Run::start(&guest, &a, &b);
        ping(&guest, "198.18.0.1");
        there_and_back(&guest, host);
        let document = run.end();
        assert_eq!(document.all_dropped(), 0, "{document:?}");
        let line = format!("cat /sys/class/net/{interface}/statistics/rx_packets");
        let received: u64 = check(&guest, &line).parse().expect("a count");
        let sent = document.tx(&address(1), "wire_packets");
        assert_eq!(received, sent, "{interface}: {document:?}");

        if number == 0 {
            let line = format!(
                "(until [ -e /run/enough ]; do sleep 0.02; done) | \
                 {name} {EXAMPLE} {kind}:{} {EXAMPLE_IP}",
                address(1)
            );
            let example = guest.begin(&line).expect("a guest");
            ping(&guest, EXAMPLE_IP);
            check(&guest, "touch /run/enough");
            let output = example.wait().unwrap_or_else(|error| panic!("{error}"));
            assert!(output.success(), "{output:?}");
            assert!(output.stdout.contains("closed"), "{output:?}");
        }
        check(&guest, &format!("ip link set {interface} down"));
        check(&guest, &format!("ip addr flush dev {interface}"));
    }
    assert_healthy(&guest);
}

/// The example, in a guest: its port and its address are arguments.
pub fn example(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let [port, ip] = arguments else {
        return Err("PORT IP".into());
    };
    let wait = || io::copy(&mut io::stdin(), &mut io::sink());
    let snapshot = card::run(port::open(port)?, ip.parse()?, wait)?;
    let ledger = snapshot.ledger;
    let is_closed = ledger.closed() && ledger.held == 0 && ledger.dropped == 0;
    println!("{}: {ledger:?}", if is_closed { "closed" } else { "open" });
    Ok(())
}

/// The kernel's interface of a card, with the addresses of a host. It is up before: QEMU's vmxnet3
/// has its first address whenever it starts.
pub fn interface(guest: &Guest, address: &str, side: Side) -> String {
    let line = format!(
        "cd /sys/bus/pci/devices/{address} && ls -d net/* virtio*/net/* 2>/dev/null || true"
    );
    let name = check(guest, &line);
    let name = name.rsplit('/').next().expect("a name").to_owned();
    let mac = side.mac().map(|byte| format!("{byte:02x}")).join(":");
    let ip = side.ipv4();
    check(
        guest,
        &format!(
            "echo 1 >/proc/sys/net/ipv6/conf/{name}/disable_ipv6 2>/dev/null
             ip link set {name} up && ip link set {name} address {mac} && \
             ip addr add {ip}/24 dev {name}"
        ),
    );
    name
}

/// The guest's kernel has an answer, once it has seen its link.
fn ping(guest: &Guest, ip: &str) {
    let line = format!("for i in $(seq 30); do ping -c 1 -w 1 {ip} && exit; done; exit 1");
    check(guest, &line);
}

/// Bytes of this host go to the guest's kernel and back.
fn there_and_back(guest: &Guest, host: &Host) {
    let bytes: Vec<u8> = (0..BYTES).map(|at| (at * 31 + at / 251) as u8).collect();
    let place = (Side::Left.ipv4(), PORT);
    let listener = host.netns.run(|| TcpListener::bind(place));
    let listener = listener.expect("a thread").expect("a socket");
    let accept = || -> TcpStream {
        let stream = listener.accept().expect("a connection").0;
        stream.set_read_timeout(Some(TIMEOUT)).expect("a setting");
        stream.set_write_timeout(Some(TIMEOUT)).expect("a setting");
        stream
    };
    let back = thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut stream = accept();
            stream.write_all(&bytes).expect("it is sent");
            stream.shutdown(Shutdown::Write).expect("an end");
            stream
                .read_to_end(&mut Vec::new())
                .expect("the guest's end");
            let (mut stream, mut back) = (accept(), Vec::new());
            stream.read_to_end(&mut back).expect("it arrives");
            back
        });
        let nc = format!("nc {} {PORT}", place.0);
        check(
            guest,
            &format!("{nc} </dev/null >/tmp/got && {nc} </tmp/got"),
        );
        server.join().expect("no panic")
    });
    assert!(back == bytes, "{} bytes came back", back.len());
}
