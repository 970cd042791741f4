//! VMware's network card.

use crate::start_one;
use packtrain::driver::{Attach, DeviceError, Driver, Features, Link};
use packtrain::packet::{Arena, ArenaConfig, Burst, Ingress, Packet};
use packtrain::plan::FitLimits;
use packtrain::port::card::InterruptKind;
use packtrain::port::vmxnet3::{Vmxnet3, Vmxnet3Config, Vmxnet3Rx, Vmxnet3Tx};
use packtrain::queue::{RxQueue, TxQueue};
use packtrain::stats::{DropCounters, DropReason, TxCounters};
use packtrain::time::Instant;
use packtrain_offload::offload::LinkType;
use packtrain_testkit::conformance::Skip;
use packtrain_testkit::driver_conformance;
use packtrain_testkit::qtest::{Card, Qtest};
use std::sync::Arc;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(20);

type Plugged = crate::Plugged<Vmxnet3<Qtest>>;

impl Plugged {
    fn new(config: &Vmxnet3Config) -> Result<Self, Skip> {
        let card = start_one(Card::new("vmxnet3,mac=52:54:00:0a:0b:0c"))?;
        card.socket().set_nonblocking(true).expect("a socket");
        let port = Vmxnet3::open(card.clone(), config).expect("it opens");
        Ok(Self { port, card })
    }
}

fn config(interrupts: InterruptKind, mtu: u32) -> Vmxnet3Config {
    Vmxnet3Config {
        interrupts: Some(interrupts),
        mtu,
        // Without virtio headers, QEMU 7.2 sends TSO packets as IP fragments.
        offload: Features::CSUM,
        ..Vmxnet3Config::default()
    }
}

driver_conformance!(msix, |_| Plugged::new(&config(InterruptKind::Msix, 1500)));
driver_conformance!(intx_jumbo, |_| Plugged::new(&config(
    InterruptKind::Intx,
    9000
)));

/// A frame of an experimental type (IEEE 802).
fn frame(number: u8, bytes: usize) -> Vec<u8> {
    let mut frame = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xB5].to_vec();
    frame.resize(bytes, number);
    frame
}

/// The queues of a card, worked by the test.
struct Queues {
    card: Qtest,
    port: Vmxnet3<Qtest>,
    arena: Arena,
    rx: Vec<RxQueue<Vmxnet3Rx<Qtest>>>,
    tx: Vec<TxQueue<Vmxnet3Tx<Qtest>>>,
    tx_counters: Arc<TxCounters>,
    rx_drops: Arc<DropCounters>,
    tx_drops: Arc<DropCounters>,
    start: std::time::Instant,
}

impl Queues {
    fn new(config: &Vmxnet3Config, queues: usize) -> Option<Self> {
        let Plugged { mut port, card } = match Plugged::new(config) {
            Ok(plugged) => plugged,
            Err(why) => {
                println!("SKIP: {why}");
                return None;
            }
        };
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
        // QEMU drops what comes before there are buffers.
        queues.poll().expect("it works");
        Some(queues)
    }

    fn now(&self) -> Instant {
        Instant::default().after(self.start.elapsed())
    }

    /// The packets of one poll: QEMU receives with the first queue only.
    fn poll(&mut self) -> Result<Vec<Packet>, DeviceError> {
        let mut burst = Burst::new();
        let now = self.now();
        self.rx[0].poll(now, &mut burst, 64)?;
        Ok(std::iter::from_fn(|| burst.pop()).collect())
    }

    /// The bytes of the next packets.
    fn receive<const N: usize>(&mut self) -> [Vec<u8>; N] {
        let mut all = Vec::new();
        let end = std::time::Instant::now() + WAIT;
        while all.len() < N {
            assert!(std::time::Instant::now() < end, "{} of {N}", all.len());
            for packet in self.poll().expect("it works") {
                all.push(packet.segments().flatten().copied().collect());
            }
        }
        all.try_into().expect("no more")
    }

    fn send(&mut self, queue: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        let mut burst = Burst::new();
        let packet = self.arena.packet_from(bytes).expect("frames");
        burst.push(packet).expect("room");
        let now = self.now();
        self.tx[queue].service(now)?;
        self.tx[queue].transmit(&mut burst)?;
        assert!(burst.is_empty());
        Ok(())
    }

    /// The next frame that the card has sent.
    fn sent(&self) -> Vec<u8> {
        let end = std::time::Instant::now() + WAIT;
        while std::time::Instant::now() < end {
            let mut bytes = vec![0; 1 << 16];
            if let Ok(count) = self.card.socket().recv(&mut bytes) {
                bytes.truncate(count);
                return bytes;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("no frame");
    }

    fn inject(&self, frame: &[u8]) {
        self.card.inject(frame).expect("it is sent");
    }
}

#[test]
fn frames_pass_in_as_many_pieces_as_they_need_and_are_counted() {
    let config = config(InterruptKind::Msix, 9000);
    let Some(mut queues) = Queues::new(&config, 2) else {
        return;
    };
    assert_eq!(queues.port.address(), [0x52, 0x54, 0, 0x0a, 0x0b, 0x0c]);
    let mut tagged = frame(3, 60);
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    let frames = [
        frame(1, 60),
        frame(2, 1792),
        frame(3, 1793),
        frame(4, 9014),
        tagged,
    ];
    // Several times round the rings.
    for round in 0..300 {
        for frame in &frames {
            queues.inject(frame);
            assert!(queues.receive() == [frame.clone()], "{round}");
            queues.send(round % 2, frame).expect("it works");
            assert!(queues.sent() == *frame, "{round}");
        }
    }
    // More than all pieces that a packet may have.
    queues.inject(&frame(5, 12_000));
    queues.inject(&frames[0]);
    assert!(queues.receive() == [frames[0].clone()]);
    let drops = queues.rx_drops.snapshot();
    let dropped = [drops.get(DropReason::BadDescriptor), drops.total()];
    assert_eq!(dropped, [1, 1]);
    assert_eq!(queues.tx_drops.snapshot().total(), 0);
    let counters = queues.port.device_counters().expect("it has some");
    assert_eq!((counters.rx_packets, counters.tx_packets), (1500, 1501));
    let bytes: usize = frames.iter().map(Vec::len).sum();
    assert_eq!(counters.rx_bytes, 300 * bytes as u64);
    assert_eq!(counters.tx_bytes, 300 * bytes as u64 + 60);
    let wrong = [counters.rx_errors, counters.tx_errors, counters.tx_dropped];
    assert_eq!(wrong, [0, 1, 0]);
    drop((queues.rx, queues.tx));
    queues.card.check_untouched().expect("its accesses");
    assert_eq!(queues.card.complaints().expect("QEMU"), "");
}

#[test]
fn it_opens_again_and_then_only_its_own_frames_arrive() {
    let own = Vmxnet3Config {
        promiscuous: false,
        ..config(InterruptKind::Msi, 1500)
    };
    let Some(mut queues) = Queues::new(&config(InterruptKind::Intx, 1500), 1) else {
        return;
    };
    // Without promiscuous=off any.
    queues.inject(&frame(1, 60));
    assert_eq!(queues.receive(), [frame(1, 60)]);
    let Queues {
        card, port, arena, ..
    } = queues;
    drop(port);
    // A function that was reset has forgotten all.
    packtrain::port::card::Bus::reset(&card).expect("QEMU");
    let mut port = Vmxnet3::open(card.clone(), &own).expect("it opens again");
    let pairs = port.attach(&Attach::default(), &arena);
    let (rx, _tx) = pairs.expect("it attaches").remove(0);
    let mut rx = RxQueue::new(
        rx,
        arena,
        LinkType::Ethernet,
        Ingress::default(),
        Arc::default(),
        Arc::default(),
    );
    let mut burst = Burst::new();
    rx.poll(Instant::default(), &mut burst, 64)
        .expect("it works");
    let to = |address: [u8; 6]| [&address[..], &frame(9, 60)[6..]].concat();
    for address in [
        [2, 0, 0, 0, 0, 7],
        port.address(),
        [0xff; 6],
        [0x33, 0x33, 0, 0, 0, 1],
    ] {
        card.inject(&to(address)).expect("it is sent");
    }
    let end = std::time::Instant::now() + WAIT;
    while burst.len() < 3 {
        assert!(std::time::Instant::now() < end, "{} of 3", burst.len());
        rx.poll(Instant::default(), &mut burst, 64)
            .expect("it works");
    }
    let firsts: Vec<u8> = burst.iter().map(|packet| packet.first()[0]).collect();
    assert_eq!(firsts, [0x52, 0xff, 0x33]);
    drop(rx);
    card.check_untouched().expect("its accesses");
}

#[test]
fn links_go_down_and_up_and_a_reset_or_unplugged_card_ends_a_run() {
    let Some(mut queues) = Queues::new(&config(InterruptKind::Msix, 1500), 1) else {
        return;
    };
    for round in 0..5 {
        queues.card.set_link(false).expect("QEMU");
        // The event says so, without a question to the card.
        queues.poll().expect("it works");
        queues.send(0, &frame(round, 60)).expect("it works");
        let down = queues.tx_drops.snapshot().get(DropReason::LinkDown);
        assert_eq!(down, u64::from(round) + 1);
        queues.card.set_link(true).expect("QEMU");
        queues.poll().expect("it works");
        queues.send(0, &frame(round, 99)).expect("it works");
        assert_eq!(queues.sent(), frame(round, 99));
        queues.inject(&frame(round, 98));
        assert_eq!(queues.receive(), [frame(round, 98)]);
    }
    let counters = queues.tx_counters.snapshot();
    assert_eq!((counters.hangs, counters.resets), (0, 0));

    let wait_for_error = |queues: &mut Queues| {
        let end = std::time::Instant::now() + WAIT;
        loop {
            assert!(std::time::Instant::now() < end, "it is not noticed");
            if let Err(error) = queues.poll() {
                return error;
            }
        }
    };
    packtrain::port::card::Bus::reset(&queues.card).expect("QEMU");
    packtrain::port::card::Bus::start(&queues.card, true).expect("QEMU");
    let error = wait_for_error(&mut queues).to_string();
    assert!(error.contains("it was reset meanwhile"), "{error}");
    queues.card.unplug().expect("QEMU");
    let error = wait_for_error(&mut queues);
    assert!(matches!(error, DeviceError::Removed), "{error}");
    assert_eq!(queues.port.link(), Link::Removed);
    let sent = queues.send(0, &frame(1, 60));
    assert!(matches!(sent, Err(DeviceError::Removed)), "{sent:?}");
}
