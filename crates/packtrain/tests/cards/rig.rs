//! A card of QEMU, and its queues in the hands of a test.

use packtrain::driver::{
    Armed, Attach, DeviceError, Driver, Features, Interest, TxDescriptors as _,
};
use packtrain::packet::{Arena, ArenaConfig, Burst, Ingress, Packet};
use packtrain::plan::FitLimits;
use packtrain::port::card::InterruptKind;
use packtrain::port::e1000e::{E1000e, E1000eConfig};
use packtrain::port::virtio::{Virtio, VirtioConfig};
use packtrain::port::vmxnet3::{Vmxnet3, Vmxnet3Config};
use packtrain::queue::{RxQueue, TxQueue};
use packtrain::stats::{DropCounters, TxCounters};
use packtrain::time::Instant;
use packtrain_offload::offload::LinkType;
use packtrain_testkit::conformance::{Fills, Injects, Observes, Outside, Rig, Skip, Traits};
use packtrain_testkit::qtest::{Card, Qtest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// The longest wait for anything, on a busy machine.
pub const WAIT: Duration = Duration::from_secs(60);

/// Starts a machine with these cards, or says why there is none.
pub fn start(cards: Vec<Card>) -> Result<Vec<Qtest>, Skip> {
    if let Err(why) = Qtest::available() {
        assert!(!rustix::process::geteuid().is_root(), "as root: {why}");
        return Err(Skip(why.to_string()));
    }
    Ok(Qtest::start(cards).expect("a machine"))
}

/// Starts a machine with one card.
pub fn start_one(card: Card) -> Result<Qtest, Skip> {
    Ok(start(vec![card])?.remove(0))
}

/// How a card is opened.
#[derive(Clone, Copy, Debug)]
pub struct How {
    pub irq: InterruptKind,
    pub mtu: u32,
    pub promiscuous: bool,
}

/// As by default, with another kind of interrupts or another MTU.
pub const fn how(irq: InterruptKind, mtu: u32) -> How {
    How {
        irq,
        mtu,
        promiscuous: true,
    }
}

pub const USUAL: How = how(InterruptKind::Msix, 1500);

/// The address of a card of [`Nic::MODEL`].
pub const ADDRESS: [u8; 6] = [0x52, 0x54, 0, 0x0a, 0x0b, 0x0c];

/// The driver of a card.
pub trait Nic: Driver + Sized {
    /// QEMU's card.
    const MODEL: &'static str;

    fn open(card: Qtest, how: &How) -> Result<Self, DeviceError>;

    fn address(&self) -> [u8; 6];
}

impl Nic for E1000e<Qtest> {
    const MODEL: &'static str = "e1000e,mac=52:54:00:0a:0b:0c";

    fn open(card: Qtest, how: &How) -> Result<Self, DeviceError> {
        let config = E1000eConfig {
            interrupts: Some(how.irq),
            mtu: how.mtu,
            promiscuous: how.promiscuous,
            // Without virtio headers, QEMU 7.2 sends TSO packets as IP fragments.
            offload: Features::CSUM,
            ..E1000eConfig::default()
        };
        Self::open(card, &config)
    }

    fn address(&self) -> [u8; 6] {
        self.address()
    }
}

impl Nic for Virtio<Qtest> {
    const MODEL: &'static str = "virtio-net-pci,disable-legacy=on,mac=52:54:00:0a:0b:0c";

    fn open(card: Qtest, how: &How) -> Result<Self, DeviceError> {
        let config = VirtioConfig {
            irq: how.irq,
            promiscuous: how.promiscuous,
            ..VirtioConfig::default()
        };
        Self::open(card, &config)
    }

    fn address(&self) -> [u8; 6] {
        self.mac().expect("it has one")
    }
}

impl Nic for Vmxnet3<Qtest> {
    const MODEL: &'static str = "vmxnet3,mac=52:54:00:0a:0b:0c";

    fn open(card: Qtest, how: &How) -> Result<Self, DeviceError> {
        let config = Vmxnet3Config {
            interrupts: Some(how.irq),
            mtu: how.mtu,
            promiscuous: how.promiscuous,
            // As for the 82574.
            offload: Features::CSUM,
            ..Vmxnet3Config::default()
        };
        Self::open(card, &config)
    }

    fn address(&self) -> [u8; 6] {
        self.address()
    }
}

/// A port of a card whose frames the test has.
pub struct Plugged<D> {
    port: D,
    card: Qtest,
}

impl<D: Nic> Plugged<D> {
    pub fn new(how: &How) -> Result<Self, Skip> {
        Self::of(D::MODEL, how)
    }

    /// A card of another model.
    pub fn of(model: &str, how: &How) -> Result<Self, Skip> {
        let card = start_one(Card::new(model))?;
        card.socket().set_nonblocking(true).expect("a socket");
        let port = D::open(card.clone(), how).expect("it opens");
        Ok(Self { port, card })
    }
}

impl<D: Driver> Rig for Plugged<D> {
    type Driver = D;

    fn traits(&self) -> Traits {
        Traits {
            injects: Injects::Live,
            observes: Observes::Live,
            window: 8,
            fills: Fills::Never("QEMU keeps the frames for which the cable has no room"),
            latency: Duration::from_millis(20),
            ..Traits::default()
        }
    }

    fn driver(&mut self) -> &mut D {
        &mut self.port
    }

    fn inject(&mut self, packet: &Outside) -> bool {
        self.card.inject(&packet.bytes).is_ok()
    }

    fn observe(&mut self) -> Option<Outside> {
        received(&self.card).map(Outside::complete)
    }

    fn detached(&mut self) {
        // An address that the card was not given, also one of a frame that is free again.
        self.card.check_untouched().expect("the card's accesses");
    }
}

/// The next frame that the card has sent, if there is one.
fn received(card: &Qtest) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 1 << 16];
    let count = card.socket().recv(&mut bytes).ok()?;
    bytes.truncate(count);
    Some(bytes)
}

/// A frame of an experimental type (IEEE 802).
pub fn frame(number: u8, bytes: usize) -> Vec<u8> {
    let mut frame = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xB5].to_vec();
    frame.resize(bytes, number);
    frame
}

/// A frame with a tag of 802.1Q.
pub fn tagged(number: u8) -> Vec<u8> {
    let mut frame = frame(number, 60);
    frame.splice(12..12, [0x81, 0, 0, 5]);
    frame
}

pub fn bytes(packet: &Packet) -> Vec<u8> {
    packet.segments().flatten().copied().collect()
}

/// Waits until `is_done`.
pub fn until(what: &str, mut is_done: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + WAIT;
    while !is_done() {
        assert!(
            std::time::Instant::now() < end,
            "{what}: not within {WAIT:?}"
        );
        std::thread::yield_now();
    }
}

/// Waits for the interrupt of a half.
pub fn wait(wake: Option<(BorrowedFd<'_>, Interest)>, what: &str) {
    let (fd, _) = wake.expect("it has one");
    let time = Timespec {
        tv_sec: WAIT.as_secs().cast_signed(),
        tv_nsec: 0,
    };
    let mut ready = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    assert_eq!(poll(&mut ready, Some(&time)), Ok(1), "{what}: no interrupt");
}

/// The queues of a card, worked by the test.
pub struct Queues<D: Driver> {
    pub card: Qtest,
    pub port: D,
    pub arena: Arena,
    pub rx: Vec<RxQueue<D::Rx>>,
    pub tx: Vec<TxQueue<D::Tx>>,
    pub tx_counters: Arc<TxCounters>,
    pub rx_drops: Arc<DropCounters>,
    pub tx_drops: Arc<DropCounters>,
    start: std::time::Instant,
}

impl<D: Nic> Queues<D> {
    /// `None` if there is no QEMU, which is said.
    pub fn new(how: &How, queues: usize) -> Option<Self> {
        Self::of(D::MODEL, how, queues)
    }

    /// Those of a card of another model.
    pub fn of(model: &str, how: &How, queues: usize) -> Option<Self> {
        match Plugged::of(model, how) {
            Ok(Plugged { port, card }) => Some(Self::attach(port, card, queues)),
            Err(why) => {
                println!("SKIP: {why}");
                None
            }
        }
    }

    /// With everything new, opens the card again.
    pub fn again(self, how: &How) -> Self {
        let Self {
            card, port, rx, tx, ..
        } = self;
        drop((rx, tx, port));
        let port = D::open(card.clone(), how).expect("it opens again");
        Self::attach(port, card, 1)
    }

    fn attach(mut port: D, card: Qtest, queues: usize) -> Self {
        let arena = Arena::new(ArenaConfig::default()).expect("memory");
        let capabilities = port.capabilities();
        let how = Attach {
            queues,
            ..Attach::default()
        };
        let (rx_drops, tx_drops): (Arc<DropCounters>, Arc<DropCounters>) = Default::default();
        let tx_counters = Arc::<TxCounters>::default();
        let (mut rx, mut tx) = (Vec::new(), Vec::new());
        for (rx_half, tx_half) in port.attach(&how, &arena).expect("it attaches") {
            rx.push(RxQueue::new(
                rx_half,
                arena.clone(),
                LinkType::Ethernet,
                Ingress::default(),
                Arc::default(),
                Arc::clone(&rx_drops),
            ));
            tx.push(TxQueue::new(
                tx_half,
                arena.clone(),
                capabilities.tx,
                FitLimits::new(&capabilities, None),
                None,
                Arc::clone(&tx_counters),
                Arc::clone(&tx_drops),
            ));
        }
        assert_eq!(rx.len(), queues);
        let mut queues = Self {
            card,
            port,
            arena,
            rx,
            tx,
            tx_counters,
            rx_drops,
            tx_drops,
            start: std::time::Instant::now(),
        };
        // All buffers are posted: QEMU's vmxnet3 drops what finds none.
        assert!(queues.poll(0).expect("it works").is_empty());
        queues
    }

    pub fn now(&self) -> Instant {
        Instant::default().after(self.start.elapsed())
    }

    /// The packets of one poll.
    pub fn poll(&mut self, queue: usize) -> Result<Vec<Packet>, DeviceError> {
        let mut burst = Burst::new();
        let now = self.now();
        self.rx[queue].poll(now, &mut burst, 64)?;
        Ok(std::iter::from_fn(|| burst.pop()).collect())
    }

    /// Packets of the queue 0 until there are `count`.
    pub fn receive(&mut self, count: usize) -> Vec<Packet> {
        let mut all = Vec::new();
        until("packets arrive", || {
            all.extend(self.poll(0).expect("it works"));
            all.len() >= count
        });
        all
    }

    pub fn send(&mut self, queue: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        let packet = self.arena.packet_from(bytes).expect("frames");
        self.transmit(queue, packet)
    }

    pub fn transmit(&mut self, queue: usize, packet: Packet) -> Result<(), DeviceError> {
        let mut burst = Burst::new();
        burst.push(packet).expect("room");
        let now = self.now();
        self.tx[queue].service(now)?;
        self.tx[queue].transmit(&mut burst)?;
        assert!(burst.is_empty());
        Ok(())
    }

    /// The next frame that the card has sent.
    pub fn sent(&self) -> Vec<u8> {
        let mut frame = None;
        until("a frame is sent", || {
            frame = received(&self.card);
            frame.is_some()
        });
        frame.expect("it was sent")
    }

    pub fn inject(&self, frame: &[u8]) {
        until("QEMU reads a frame", || match self.card.inject(frame) {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                false
            }
        });
    }

    /// Arms the first queue, once it is empty. What arrived is dropped.
    fn sleep(&mut self) {
        while self.rx[0].arm() == Armed::WorkPending {
            self.poll(0).expect("it works");
        }
    }

    /// Changes the link while the first queue sleeps, which an interrupt ends.
    pub fn set_link(&mut self, is_up: bool) {
        self.sleep();
        self.card.set_link(is_up).expect("QEMU");
        while self.tx[0].device_mut().is_blocked() == is_up {
            wait(self.rx[0].wake(), "the link");
            self.sleep();
        }
    }

    /// Drops the queues. The card has accessed its memory only, and QEMU does not complain.
    pub fn end(self) {
        let Self { card, rx, tx, .. } = self;
        drop((rx, tx));
        card.check_untouched().expect("its accesses");
        assert_eq!(card.complaints().expect("QEMU"), "");
    }
}
