//! Virtual machines behind `vhost-user:`: Debian's kernel in QEMU without KVM, which boots into a
//! script of BusyBox in seconds. Its TCP reaches this host's, with offloads and without, also after
//! it has booted again, and that of another virtual machine.
//!
//! The folder `PACKTRAIN_GUEST`, or `target/guest`, has the kernel, its modules and BusyBox:
//! `.ci/run tests` puts them there.

#[path = "../../../packtrain/tests/vhost/chains.rs"]
mod chains;
#[allow(dead_code, reason = "`vhost` of packtrain uses all of it")]
#[path = "../../../packtrain/tests/vhost/guest.rs"]
mod guest;
mod hostile;

use hostile::bad_chains_of_one_queue_leave_the_tcp_of_another_one_alone;
use packtrain::bridge::{ADDRESSES, AGING, Addresses, Bridge};
use packtrain::engine::{Report, Session};
use packtrain::port::AnyPort;
use packtrain::port::packet::{PacketConfig, PacketSocket};
use packtrain::port::tap::{Tap, TapConfig, TapKind};
use packtrain::port::vhost::{Vhost, VhostConfig, VhostWatch};
use packtrain::stats::DropReason;
use packtrain_lab::guest::{Archive, Kernel};
use packtrain_lab::harness::{need_guest, need_tap, wait_for};
use packtrain_lab::link::quiet_ipv6;
use packtrain_lab::netns::Netns;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    packtrain_lab::tests![
        2 at once:
        a_guest_exchanges_tcp_with_this_host_and_boots_again,
        two_guests_and_an_uplink_reach_each_other,
        bad_chains_of_one_queue_leave_the_tcp_of_another_one_alone,
    ]
}

/// Of each transfer. A guest without KVM does some ten megabytes a second.
const BYTES: usize = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(120);
const PROGRAM: &str = "qemu-system-x86_64";
const MODULES: [&str; 2] = ["virtio_pci", "virtio_net"];
/// The properties of a network card without any offload.
const OFF: &str = "csum=off,guest_csum=off,gso=off,host_tso4=off,host_tso6=off,host_ecn=off,\
                   guest_tso4=off,guest_tso6=off,guest_ecn=off,mrg_rxbuf=off";
/// Feature bits: the device takes large TCP packets over IPv4, the guest takes them.
const HOST_TSO4: u64 = 1 << 11;
const GUEST_TSO4: u64 = 1 << 7;

/// The ports where a host sends `BYTES` to each connection, where it receives, and where it says
/// how a guest goes on.
const SENDS: u16 = 1000;
const RECEIVES: u16 = 1100;
const SAYS: u16 = 1200;

fn bytes_of(seed: u8) -> Vec<u8> {
    let bytes = (0..BYTES).map(|at| (at * 31 + at / 251 + usize::from(seed) * 7) as u8);
    bytes.collect()
}

/// A folder for the sockets and the root of a guest. It is removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = format!("packtrain-{}-{name}", process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir(&folder).expect("a folder");
        Self(folder)
    }

    fn socket(&self, number: usize) -> PathBuf {
        self.0.join(format!("{number}.sock"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap_or(());
    }
}

/// Writes the archive of a root with BusyBox, the modules and a script.
fn write_root(kernel: &Kernel, script: &str, to: &Path) {
    let mut init = "#!/busybox sh\n/busybox mkdir -p /bin /proc /dev\n\
                    /busybox --install -s /bin\nexport PATH=/bin\n\
                    mount -t proc p /proc\nmount -t devtmpfs d /dev\n"
        .to_owned();
    let mut archive = Archive::new();
    archive.file("busybox", &kernel.file("busybox").expect("BusyBox"));
    for (module, bytes) in kernel.modules(&MODULES).expect("modules") {
        let name = format!("{module}.ko");
        writeln!(init, "insmod /{name}").expect("a string");
        archive.file(&name, &bytes);
    }
    init.push_str(script);
    // Whatever the script did.
    init.push_str("\npoweroff -f\n");
    archive.file("init", init.as_bytes());
    fs::write(to, archive.finish()).expect("a file");
}

/// A running virtual machine. It is killed when it is dropped.
struct Machine {
    child: Child,
    console: Arc<Mutex<Vec<String>>>,
}

impl Machine {
    /// Starts it, with a network card for each socket, whose device has these properties. `number`
    /// is the variable `me` of its script.
    fn start(kernel: &Kernel, root: &Path, number: u8, cards: &[(PathBuf, &str)]) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args([
            "-machine",
            "pc,memory-backend=mem",
            "-accel",
            "tcg",
            "-cpu",
            "max",
        ]);
        command.args(["-m", "128", "-nographic", "-vga", "none", "-nic", "none"]);
        let memory = "memory-backend-memfd,id=mem,size=128M,share=on";
        command.args(["-nodefaults", "-serial", "stdio", "-object", memory]);
        command.arg("-kernel").arg(kernel.image());
        command.arg("-initrd").arg(root);
        let line = format!("console=ttyS0 quiet panic=-1 mitigations=off me={number}");
        command.args(["-append", &line]);
        for (index, (socket, properties)) in cards.iter().enumerate() {
            let path = socket.display();
            command.args(["-chardev", &format!("socket,id=c{index},path={path}")]);
            command.args([
                "-netdev",
                &format!("vhost-user,id=n{index},chardev=c{index}"),
            ]);
            let mac = format!("02:00:00:47:{number:02x}:{index:02x}");
            // QEMU without KVM fails with interrupts of MSI-X.
            let comma = if properties.is_empty() { "" } else { "," };
            let place = format!("mac={mac},addr={:#x}{comma}{properties}", index + 4);
            let device = format!("virtio-net-pci,netdev=n{index},vectors=0,romfile=,{place}");
            command.args(["-device", &device]);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut child = command.spawn().expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let console: Arc<Mutex<Vec<String>>> = Arc::default();
        let lines = Arc::clone(&console);
        thread::spawn(move || {
            for line in output.split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim().to_owned();
                lines.lock().expect("no panic").push(line);
            }
        });
        Self { child, console }
    }

    fn console(&self) -> String {
        self.console.lock().expect("no panic").join("\n")
    }

    /// Waits until it has switched itself off.
    fn wait(&mut self) {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it was a child") {
                assert!(status.success(), "{status}: {}", self.console());
                return;
            }
            assert!(start.elapsed() < TIMEOUT, "it is on: {}", self.console());
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.child.kill().unwrap_or(());
        self.child.wait().expect("it was a child");
    }
}

/// A connection to a port of this host.
fn accept(listener: &TcpListener, machines: &[&Machine]) -> TcpStream {
    listener.set_nonblocking(true).expect("a setting");
    let start = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).expect("a setting");
                stream.set_read_timeout(Some(TIMEOUT)).expect("a setting");
                stream.set_write_timeout(Some(TIMEOUT)).expect("a setting");
                return stream;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
        if start.elapsed() > TIMEOUT {
            let consoles: Vec<_> = machines.iter().map(|machine| machine.console()).collect();
            panic!("nobody connects to {listener:?}: {consoles:#?}");
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// The ports of one address of this host.
struct Place {
    sends: TcpListener,
    receives: TcpListener,
    says: TcpListener,
}

impl Place {
    fn new(netns: &Netns, ip: Ipv4Addr) -> Self {
        let [sends, receives, says] = [SENDS, RECEIVES, SAYS].map(|port| {
            let listener = netns.run(|| TcpListener::bind((ip, port)));
            listener.expect("a thread").expect("a socket")
        });
        Self {
            sends,
            receives,
            says,
        }
    }

    fn send(&self, bytes: &[u8], machines: &[&Machine]) {
        let mut stream = accept(&self.sends, machines);
        stream.write_all(bytes).expect("it is sent");
        stream.shutdown(Shutdown::Write).expect("an end");
        stream
            .read_to_end(&mut Vec::new())
            .expect("the guest's end");
    }

    fn receive(&self, machines: &[&Machine]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut stream = accept(&self.receives, machines);
        stream.read_to_end(&mut bytes).expect("it arrives");
        bytes
    }

    fn say(&self, word: &str, machines: &[&Machine]) {
        let mut stream = accept(&self.says, machines);
        writeln!(stream, "{word}").expect("it is sent");
    }
}

fn watch(socket: PathBuf) -> (Vhost, VhostWatch) {
    let port = Vhost::open(&VhostConfig::server(socket)).expect("it opens");
    let watch = port.watch();
    (port, watch)
}

/// Closed, without an error, and with no drop but while there was no guest.
fn assert_closed(report: &Report) {
    assert!(report.error.is_none(), "{:?}", report.error);
    let (ledger, drops) = (&report.snapshot.ledger, &report.snapshot.drops);
    assert!(ledger.closed() && ledger.held == 0, "{ledger:?}");
    assert_eq!(drops.total(), drops.get(DropReason::LinkDown), "{drops:?}");
}

/// Two cards: one with all offloads, one without any; each on a TAP of its own.
fn a_guest_exchanges_tcp_with_this_host_and_boots_again() {
    const SCRIPT: &str = "
for net in 0 1; do
    ip link set eth$net up
    ip addr add 198.18.$net.2/24 dev eth$net
done
for net in 0 1; do
    host=198.18.$net.1
    ping -c 1 -w 60 $host >/dev/null && echo \"pings $net\"
    nc $host 1000 </dev/null >/got
    nc $host 1100 </got >/dev/null
done
[ \"$(nc 198.18.0.1 1200 </dev/null)\" = again ] && reboot -f";
    need_tap();
    let kernel = need_guest();
    let folder = Folder::new("guest");
    let root = folder.0.join("root");
    write_root(&kernel, SCRIPT, &root);
    let netns = Netns::new().expect("a namespace");
    let (mut sessions, mut watches, mut places) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..2 {
        let name = format!("guest{number}");
        let tap = netns.run(|| {
            let tap = Tap::open(&TapConfig::new(TapKind::Tap, &name)).expect("a TAP");
            quiet_ipv6(&name).expect("settings");
            tap
        });
        let mut rtnl = netns.rtnl().expect("netlink");
        let index = rtnl.link(&name).expect("the TAP").index;
        rtnl.set_up(index).expect("it is up");
        let ip = Ipv4Addr::new(198, 18, number, 1);
        rtnl.add_address(index, ip.into(), 24).expect("an address");
        let (port, watch) = watch(folder.socket(number.into()));
        let ports = [AnyPort::Vhost(port), AnyPort::Tap(tap.expect("a thread"))];
        let [guest, host] = ports;
        sessions.push(Session::between(guest, host).start().expect("it starts"));
        watches.push(watch);
        places.push(Place::new(&netns, ip));
    }
    let cards = [(folder.socket(0), ""), (folder.socket(1), OFF)];
    let mut machine = Machine::start(&kernel, &root, 2, &cards);
    for (boot, word) in ["again", "enough"].into_iter().enumerate() {
        for (net, place) in places.iter().enumerate() {
            let sent = bytes_of((2 * boot + net) as u8);
            place.send(&sent, &[&machine]);
            let back = place.receive(&[&machine]);
            assert!(
                back == sent,
                "boot {boot}, card {net}: {} bytes",
                back.len()
            );
        }
        for (watch, negotiates) in watches.iter().zip([true, false]) {
            let status = watch.status();
            let large = HOST_TSO4 | GUEST_TSO4;
            let has = if negotiates { large } else { 0 };
            assert_eq!(status.features & large, has, "boot {boot}: {status:?}");
        }
        places[0].say(word, &[&machine]);
    }
    machine.wait();
    let console = machine.console();
    for net in 0..2 {
        let pings = console.matches(&format!("pings {net}")).count();
        assert_eq!(pings, 2, "card {net}: {console}");
    }
    for watch in &watches {
        wait_for("its end", || !watch.status().connected);
        let status = watch.status();
        assert_eq!((status.refused, status.bad_buffers), (0, 0), "{status:?}");
    }
    let reports = sessions.into_iter().map(Session::finish);
    for (report, large) in reports.zip([true, false]) {
        assert_closed(&report);
        let guest = &report.snapshot.ports[0];
        let (rx, tx) = (guest.rx_total(), guest.tx_total());
        assert!(rx.bytes as usize > 2 * BYTES && tx.bytes as usize > 2 * BYTES);
        assert_eq!(
            (rx.gso_packets > 0, tx.gso_packets > 0),
            (large, large),
            "{rx:?} {tx:?}"
        );
        // This host sends large packets in any case.
        assert_eq!(tx.gso_sw_packets > 0, !large, "{tx:?}");
    }
}

/// Three ports of one bridge: two virtual machines, and a veth to a host.
fn two_guests_and_an_uplink_reach_each_other() {
    const SCRIPT: &str = "
other=$((5 - me))
ip link set eth0 up
ip addr add 198.18.0.$me/24 dev eth0
ping -c 1 -w 60 198.18.0.1 >/dev/null && echo pings uplink
nc 198.18.0.1 100$me </dev/null >/got
if [ $me = 2 ]; then
    nc -l -p 2000 </got >/theirs
else
    until ping -c 1 -w 60 198.18.0.$other >/dev/null; do :; done
    echo pings guest
    until nc 198.18.0.$other 2000 </got >/theirs; do sleep 0.1; done
fi
nc 198.18.0.1 110$me </theirs >/dev/null
nc 198.18.0.1 120$me </dev/null";
    const UPLINK: &str = "uplink0";
    need_tap();
    let kernel = need_guest();
    let folder = Folder::new("guests");
    let root = folder.0.join("root");
    write_root(&kernel, SCRIPT, &root);
    let [host, middle] = [(); 2].map(|()| Netns::new().expect("a namespace"));
    let mut rtnl = host.rtnl().expect("netlink");
    rtnl.create_veth(UPLINK, UPLINK, &middle, 1)
        .expect("a veth");
    let index = rtnl.link(UPLINK).expect("the veth").index;
    let uplink = middle.run(|| {
        quiet_ipv6(UPLINK).expect("settings");
        let mut rtnl = packtrain_lab::link::Rtnl::open().expect("netlink");
        let index = rtnl.link(UPLINK).expect("the veth").index;
        rtnl.set_up(index).expect("it is up");
        PacketSocket::open(&PacketConfig::new(UPLINK)).expect("it opens")
    });
    host.run(|| quiet_ipv6(UPLINK))
        .expect("a thread")
        .expect("settings");
    rtnl.set_up(index).expect("it is up");
    let ip = Ipv4Addr::new(198, 18, 0, 1);
    rtnl.add_address(index, ip.into(), 24).expect("an address");
    let mut ports = vec![AnyPort::Packet(uplink.expect("a thread"))];
    let mut watches = Vec::new();
    for number in [2, 3] {
        let (port, watch) = watch(folder.socket(number));
        ports.push(AnyPort::Vhost(port));
        watches.push(watch);
    }
    let addresses = Addresses::new(ADDRESSES, AGING);
    let bridge = Bridge::new(Arc::clone(&addresses));
    let session = Session::among(ports).handler(move |_| bridge.clone());
    let session = session.start().expect("it starts");
    // A port of each kind for each guest.
    let places = [2, 3].map(|number| {
        let [sends, receives, says] = [SENDS, RECEIVES, SAYS].map(|port| {
            let listener = host.run(|| TcpListener::bind((ip, port + number)));
            listener.expect("a thread").expect("a socket")
        });
        Place {
            sends,
            receives,
            says,
        }
    });
    let machines = [2, 3].map(|number| {
        let card = (folder.socket(number.into()), "");
        Machine::start(&kernel, &root, number, &[card])
    });
    let [two, three] = &machines;
    let both = [two, three];
    let sent = [bytes_of(2), bytes_of(3)];
    thread::scope(|scope| {
        for (number, place) in places.iter().enumerate() {
            let (sent, both) = (&sent, &both);
            scope.spawn(move || {
                place.send(&sent[number], both);
                let theirs = place.receive(both);
                assert!(
                    theirs == sent[1 - number],
                    "guest {number}: {} bytes",
                    theirs.len()
                );
            });
        }
    });
    // A guest that is off before the other one has its acknowledgements would not be there again.
    places.iter().for_each(|place| place.say("enough", &both));
    for mut machine in machines {
        machine.wait();
        let console = machine.console();
        assert!(console.contains("pings uplink"), "{console}");
    }
    for watch in &watches {
        wait_for("its end", || !watch.status().connected);
        let status = watch.status();
        assert_eq!((status.refused, status.bad_buffers), (0, 0), "{status:?}");
    }
    assert_eq!(addresses.len(), 3);
    let report = session.finish();
    assert_closed(&report);
    // Large packets stay whole between all three.
    for port in &report.snapshot.ports {
        let (rx, tx) = (port.rx_total(), port.tx_total());
        assert!(rx.gso_packets > 0 && tx.gso_packets > 0, "{rx:?} {tx:?}");
        assert_eq!(tx.gso_sw_packets, 0, "{tx:?}");
    }
}
