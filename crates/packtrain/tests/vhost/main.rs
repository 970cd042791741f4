//! vhost-user ports, with guests in this process, and with DPDK as a front end.

mod careless;
mod chains;
mod conformance;
mod guest;
mod hostile;
mod life;
mod rust_vmm;
mod testpmd;

use guest::{Guest, Options};
use packtrain::driver::{Attach, Capabilities, DeviceError, Driver, Features, Link, QueuePair};
use packtrain::packet::{Arena, ArenaConfig, Burst, Ingress};
use packtrain::plan::FitLimits;
use packtrain::port::vhost::{Vhost, VhostRx, VhostTx};
use packtrain::queue::{RxQueue, TxQueue};
use packtrain::stats::{DropCounters, DropReason};
use packtrain_offload::offload::LinkType;
use packtrain_testkit::conformance::Outside;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A port whose guest appears when it is attached.
struct Joined {
    port: Vhost,
    address: SocketAddr,
    options: Options,
    guest: Option<Guest>,
}

impl Joined {
    fn new(offload: Features, options: Options) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("packtrain-test-{}-{number}", std::process::id());
        let address = SocketAddr::from_abstract_name(name).expect("a name");
        let socket = UnixListener::bind_addr(&address).expect("a socket");
        let port = Vhost::from_listener("guest", socket, options.pairs, offload);
        Self {
            port: port.expect("it opens"),
            address,
            options,
            guest: None,
        }
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect_addr(&self.address).expect("the port listens")
    }

    /// Connects a new guest, and waits for its link.
    fn join(&mut self, options: Options) {
        self.guest = Some(Guest::new(self.connect(), options));
        self.wait_for("link", |joined| joined.port.link() == Link::Up);
    }

    /// Waits until no front end is connected.
    fn wait_for_leave(&mut self) {
        self.wait_for("end", |joined| !joined.port.status().connected);
    }

    fn guest(&mut self) -> &mut Guest {
        self.guest.as_mut().expect("it is attached")
    }

    fn wait_for(&mut self, what: &str, is: impl Fn(&mut Self) -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        while !is(self) {
            let status = self.port.status();
            assert!(Instant::now() < until, "no {what}: {status:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Driver for Joined {
    type Rx = VhostRx;
    type Tx = VhostTx;

    fn name(&self) -> &str {
        self.port.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.port.capabilities()
    }

    fn attach(&mut self, how: &Attach, arena: &Arena) -> Result<Vec<QueuePair<Self>>, DeviceError> {
        let pairs = self.port.attach(how, arena)?;
        let offered = {
            let stream = self.connect();
            let guest = Guest::connected(stream, self.options);
            guest.ask(guest::GET_FEATURES)
        };
        self.wait_for_leave();
        let options = Options {
            features: self.options.features & offered,
            ..self.options
        };
        self.join(options);
        Ok(pairs)
    }

    fn link(&mut self) -> Link {
        self.port.link()
    }
}

/// The queues of a port, worked by the test.
struct Queues {
    joined: Joined,
    arena: Arena,
    rx: Vec<RxQueue<VhostRx>>,
    tx: Vec<TxQueue<VhostTx>>,
    rx_drops: Arc<DropCounters>,
    tx_drops: Arc<DropCounters>,
    now: packtrain::time::Instant,
}

/// The tests that count the descriptors of a guest fail if nothing bounds them.
#[cfg(feature = "plants")]
#[test]
fn planted() {
    let plant = packtrain::plant::Plant::DescriptorsUnbounded;
    for test in [
        "packets_to_a_guest_are_not_looked_for_in_any_number_of_descriptors",
        "a_poll_does_not_read_any_number_of_descriptors",
    ] {
        let run = |plant: &str| {
            let mut this = std::process::Command::new(std::env::current_exe().expect("a path"));
            this.args(["--exact", &format!("hostile::{test}")]);
            let output = this.env(PLANT, plant).output().expect("it starts");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let [without, with] = ["", plant.name()].map(run);
        assert!(without.contains("ok. 1 passed"), "{without}");
        assert!(with.contains("0 passed; 1 failed"), "{with}");
    }
}

#[cfg(feature = "plants")]
const PLANT: &str = "PACKTRAIN_TEST_PLANT";

impl Queues {
    fn new(options: Options) -> Self {
        #[cfg(feature = "plants")]
        packtrain::plant::set(std::env::var(PLANT).ok().and_then(|name| name.parse().ok()));
        let mut joined = Joined::new(Features::ALL, options);
        let arena = Arena::new(ArenaConfig::small()).expect("memory");
        let capabilities = joined.capabilities();
        let how = Attach {
            queues: options.pairs,
            rx: capabilities.rx,
            ..Attach::default()
        };
        let pairs = joined.attach(&how, &arena).expect("it attaches");
        let (rx_drops, tx_drops): (Arc<DropCounters>, Arc<DropCounters>) = Default::default();
        let (mut rx, mut tx) = (Vec::new(), Vec::new());
        for (rx_half, tx_half) in pairs {
            let (own, counters) = (arena.clone(), Arc::default());
            let (ingress, drops) = (Ingress::default(), Arc::clone(&rx_drops));
            let link = LinkType::Ethernet;
            rx.push(RxQueue::new(rx_half, own, link, ingress, counters, drops));
            let (limits, counters) = (FitLimits::new(&capabilities, None), Arc::default());
            let (own, has, drops) = (arena.clone(), capabilities.tx, Arc::clone(&tx_drops));
            tx.push(TxQueue::new(
                tx_half, own, has, limits, None, counters, drops,
            ));
        }
        Self {
            joined,
            arena,
            rx,
            tx,
            rx_drops,
            tx_drops,
            now: packtrain::time::Instant::default(),
        }
    }

    fn guest(&mut self) -> &mut Guest {
        self.joined.guest()
    }

    /// The packets of one poll.
    fn poll(&mut self, pair: usize) -> Vec<Outside> {
        let mut burst = Burst::new();
        self.rx[pair]
            .poll(self.now, &mut burst, 64)
            .expect("it works");
        burst.iter().map(Outside::of).collect()
    }

    /// Sends a packet to the guest, if there is room.
    fn send(&mut self, pair: usize, packet: &Outside) {
        self.now = self.now.after(Duration::from_millis(1));
        let packet = packet.to_packet(&self.arena, LinkType::Ethernet, || 1000);
        let mut burst = Burst::new();
        burst.push(packet.expect("frames")).expect("room");
        self.tx[pair].service(self.now).expect("it works");
        self.tx[pair].transmit(&mut burst).expect("it works");
    }

    /// The guest sends a frame, and kicks.
    fn give(&mut self, pair: usize, sent: &Outside) {
        assert!(
            self.guest().send(pair, &[0; 12], &sent.bytes),
            "a free slot"
        );
    }

    fn rx_dropped(&self, reason: DropReason) -> u64 {
        self.rx_drops.snapshot().get(reason)
    }

    fn tx_dropped(&self, reason: DropReason) -> u64 {
        self.tx_drops.snapshot().get(reason)
    }

    /// A frame passes from the guest, and one to it.
    fn assert_passes(&mut self, pair: usize, number: u8) {
        let sent = frame(number, 60);
        self.give(pair, &sent);
        assert_eq!(self.poll(pair), [sent], "from the guest");
        self.assert_arrives(pair, number);
    }

    fn assert_arrives(&mut self, pair: usize, number: u8) {
        let sent = frame(number, 700);
        self.send(pair, &sent);
        let (_, bytes) = self.guest().receive(pair).expect("to the guest");
        assert_eq!(bytes, sent.bytes);
    }
}

/// A frame of an experimental type (IEEE 802).
fn frame(number: u8, bytes: usize) -> Outside {
    let mut frame = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xB5].to_vec();
    frame.resize(bytes, number);
    Outside::complete(frame)
}
