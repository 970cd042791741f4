//! The 82574L.

use crate::start_one;
use packtrain::driver::{Armed, Attach, DeviceError, Driver, Features, Link, TxDescriptors as _};
use packtrain::packet::{Arena, ArenaConfig, Burst, Ingress, Packet};
use packtrain::plan::FitLimits;
use packtrain::policy::moderation::Moderation;
use packtrain::port::card::{Bus as _, InterruptKind};
use packtrain::port::e1000e::{E1000e, E1000eConfig, E1000eRx, E1000eTx};
use packtrain::queue::{RxQueue, TxQueue};
use packtrain::stats::{DropCounters, DropReason, TxCounters};
use packtrain::time::Instant;
use packtrain_offload::checksum::pseudo_header_v4;
use packtrain_offload::offload::{ChecksumState, LinkType};
use packtrain_testkit::conformance::Skip;
use packtrain_testkit::driver_conformance;
use packtrain_testkit::qtest::{Card, Qtest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashSet;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(20);
const SECOND: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

type Plugged = crate::Plugged<E1000e<Qtest>>;

impl Plugged {
    fn new(config: &E1000eConfig) -> Result<Self, Skip> {
        let card = start_one(Card::new("e1000e,mac=52:54:00:0a:0b:0c"))?;
        card.socket().set_nonblocking(true).expect("a socket");
        let port = E1000e::open(card.clone(), config).expect("it opens");
        Ok(Self { port, card })
    }
}

fn plug(interrupts: InterruptKind, mtu: u32) -> Result<Plugged, Skip> {
    Plugged::new(&E1000eConfig {
        interrupts: Some(interrupts),
        mtu,
        // Without virtio headers, QEMU 7.2 sends TSO packets as IP fragments.
        offload: Features::CSUM,
        ..E1000eConfig::default()
    })
}

driver_conformance!(msix, |_| plug(InterruptKind::Msix, 1500));
driver_conformance!(msi, |_| plug(InterruptKind::Msi, 1500));
driver_conformance!(intx, |_| plug(InterruptKind::Intx, 1500));
driver_conformance!(jumbo, |_| plug(InterruptKind::Msix, 9000));

/// A frame of an experimental type (IEEE 802).
fn frame(number: u8, bytes: usize) -> Vec<u8> {
    let mut frame = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xB5].to_vec();
    frame.resize(bytes, number);
    frame
}

/// A datagram of a flow, with right checksums or not.
fn datagram(port: u16, is_right: bool) -> Vec<u8> {
    let mut ip = vec![0x45, 0, 0, 68, 0, 1, 0x40, 0, 64, 17, 0, 0];
    ip.extend([198, 18, 0, 1, 198, 18, (port >> 8) as u8, port as u8]);
    let sum = packtrain_offload::checksum::ipv4_header(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut udp = [port.to_be_bytes(), 9_u16.to_be_bytes()].concat();
    udp.extend([0, 48, 0, 0]);
    udp.extend([0x5a; 40]);
    let addresses = [[198, 18, 0, 1], [198, 18, (port >> 8) as u8, port as u8]];
    let mut sum = pseudo_header_v4(addresses[0], addresses[1], 17, 48);
    sum.add(&udp);
    let field = sum.finish() ^ u16::from(!is_right);
    udp[6..8].copy_from_slice(&field.to_be_bytes());
    let mut frame = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0].to_vec();
    frame.extend(ip);
    frame.extend(udp);
    frame
}

/// The queues of a card, worked by the test.
struct Queues {
    card: Qtest,
    port: E1000e<Qtest>,
    arena: Arena,
    rx: Vec<RxQueue<E1000eRx<Qtest>>>,
    tx: Vec<TxQueue<E1000eTx<Qtest>>>,
    tx_counters: Arc<TxCounters>,
    rx_drops: Arc<DropCounters>,
    tx_drops: Arc<DropCounters>,
    start: std::time::Instant,
}

impl Queues {
    fn new(config: &E1000eConfig, queues: usize) -> Option<Self> {
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
        let pairs = port.attach(&how, &arena).expect("it attaches");
        let (rx_drops, tx_drops): (Arc<DropCounters>, Arc<DropCounters>) = Default::default();
        let tx_counters = Arc::<TxCounters>::default();
        let (mut rx, mut tx) = (Vec::new(), Vec::new());
        for (rx_half, tx_half) in pairs {
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
        Some(Self {
            card,
            port,
            arena,
            rx,
            tx,
            tx_counters,
            rx_drops,
            tx_drops,
            start: std::time::Instant::now(),
        })
    }

    fn now(&self) -> Instant {
        Instant::default().after(self.start.elapsed())
    }

    /// The packets of one poll.
    fn poll(&mut self, queue: usize) -> Result<Vec<Packet>, DeviceError> {
        let mut burst = Burst::new();
        let now = self.now();
        self.rx[queue].poll(now, &mut burst, 64)?;
        Ok(std::iter::from_fn(|| burst.pop()).collect())
    }

    /// Packets until there are `count`.
    fn wait_for(&mut self, queue: usize, count: usize) -> Vec<Packet> {
        let mut all = Vec::new();
        let end = std::time::Instant::now() + WAIT;
        while all.len() < count {
            assert!(std::time::Instant::now() < end, "{} of {count}", all.len());
            all.extend(self.poll(queue).expect("it works"));
        }
        all
    }

    fn send(&mut self, queue: usize, bytes: &[u8]) {
        let mut burst = Burst::new();
        let packet = self.arena.packet_from(bytes).expect("frames");
        burst.push(packet).expect("room");
        let now = self.now();
        self.tx[queue].service(now).expect("it works");
        self.tx[queue].transmit(&mut burst).expect("it works");
        assert!(burst.is_empty());
    }

    /// Waits for the interrupts of the queue 0 until one has brought a packet.
    fn wait_for_interrupt(&mut self, frame: &[u8]) {
        assert_eq!(self.rx[0].arm(), Armed::Idle);
        let start = std::time::Instant::now();
        self.inject(frame);
        while self.poll(0).expect("it works").is_empty() {
            assert!(start.elapsed() < WAIT, "no interrupt");
            let (wake, _) = self.rx[0].wake().expect("it has one");
            poll(&mut [PollFd::new(&wake, PollFlags::IN)], Some(&SECOND)).expect("a descriptor");
            self.rx[0].resume(true);
            self.rx[0].count_wakeup();
        }
        let now = self.now();
        self.rx[0].settle(now, true);
        assert!(self.poll(0).expect("it works").is_empty());
        let now = self.now();
        self.rx[0].settle(now, false);
    }

    /// The next frame that the card has sent.
    fn sent(&self) -> Option<Vec<u8>> {
        let end = std::time::Instant::now() + WAIT;
        while std::time::Instant::now() < end {
            let mut bytes = vec![0; 1 << 16];
            if let Ok(count) = self.card.socket().recv(&mut bytes) {
                bytes.truncate(count);
                return Some(bytes);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    fn inject(&self, frame: &[u8]) {
        let end = std::time::Instant::now() + WAIT;
        while let Err(error) = self.card.inject(frame) {
            assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
            assert!(std::time::Instant::now() < end, "QEMU does not read it");
            std::thread::yield_now();
        }
    }

    fn wait_for_link(&mut self, link: Link) {
        let end = std::time::Instant::now() + WAIT;
        while self.port.link() != link {
            assert!(std::time::Instant::now() < end, "the link is not {link:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn config(offload: Features) -> E1000eConfig {
    E1000eConfig {
        offload,
        ..E1000eConfig::default()
    }
}

#[test]
fn two_queues_share_the_flows() {
    let Some(mut queues) = Queues::new(&config(Features::NONE), 2) else {
        return;
    };
    for port in 0..64 {
        queues.inject(&datagram(port, true));
    }
    let mut shares = [0; 2];
    let mut hashes = HashSet::new();
    let end = std::time::Instant::now() + WAIT;
    while shares.iter().sum::<usize>() < 64 {
        assert!(std::time::Instant::now() < end, "{shares:?}");
        for (queue, share) in shares.iter_mut().enumerate() {
            for packet in queues.poll(queue).expect("it works") {
                *share += 1;
                let hash = packet.meta().flow_hash;
                // The lowest bits of the hash select the entry of the table.
                assert_eq!(hash as usize & 1, queue, "{hash:#x}");
                hashes.insert(hash);
            }
        }
    }
    assert!(shares.iter().all(|share| *share > 16), "{shares:?}");
    assert!(hashes.len() > 60, "{}", hashes.len());
    // Both send.
    for queue in 0..2 {
        queues.send(queue, &frame(queue as u8, 70));
        assert_eq!(queues.sent(), Some(frame(queue as u8, 70)));
    }
    drop((queues.rx, queues.tx));
    queues.card.check_untouched().expect("its accesses");
}

/// How long it does so is QEMU's affair: at least 128 µs, and not before each message.
#[test]
fn the_card_delays_its_interrupts() {
    const DELAY: Duration = Duration::from_millis(10);
    for (kind, register) in [
        (InterruptKind::Msix, 0xe8),
        (InterruptKind::Msi, 0xc4),
        (InterruptKind::Intx, 0xc4),
    ] {
        let config = E1000eConfig {
            interrupts: Some(kind),
            ..E1000eConfig::default()
        };
        let Some(mut queues) = Queues::new(&config, 1) else {
            return;
        };
        let (usecs, frames) = (DELAY.as_micros() as u32, 4096);
        // In units of 256 ns.
        let settings = [
            (Moderation::Off, 0),
            (Moderation::Fixed { usecs, frames }, 39_063),
        ];
        for (setting, units) in settings {
            queues.rx = std::mem::take(&mut queues.rx)
                .into_iter()
                .map(|queue| queue.moderated(setting))
                .collect();
            // With the first one the framework asks for the delay.
            for _ in 0..5 {
                queues.wait_for_interrupt(&frame(1, 60));
                assert_eq!(queues.card.read32(0, register), units, "{kind:?} {setting}");
            }
            // The framework delays none by itself.
            assert_eq!(queues.rx[0].counters().snapshot().moderated, 0);
        }
        // A change of the link wakes both halves, without a read of it.
        for is_up in [false, true] {
            let (rx, tx) = (&mut queues.rx[0], queues.tx[0].device_mut());
            assert_eq!((rx.arm(), tx.arm()), (Armed::Idle, Some(Armed::Idle)));
            assert_eq!(tx.is_blocked(), is_up);
            queues.card.set_link(is_up).expect("QEMU");
            let end = std::time::Instant::now() + WAIT;
            while tx.is_blocked() == is_up {
                assert!(std::time::Instant::now() < end, "{kind:?} {is_up}");
                std::thread::sleep(Duration::from_millis(1));
            }
            let wakes = [rx.wake().expect("it has one"), tx.wake().expect("it, too")];
            for (wake, _) in &wakes {
                let woken = poll(&mut [PollFd::new(wake, PollFlags::IN)], Some(&SECOND));
                assert_eq!(woken, Ok(1), "{kind:?} {is_up}");
            }
        }
        drop((queues.rx, queues.tx, queues.port));
        queues.card.check_untouched().expect("its accesses");
    }
}

#[test]
fn the_card_verifies_checksums() {
    let Some(mut queues) = Queues::new(&config(Features::NONE), 1) else {
        return;
    };
    queues.inject(&datagram(1, true));
    queues.inject(&datagram(1, false));
    queues.inject(&frame(1, 60));
    let states: Vec<ChecksumState> = queues
        .wait_for(0, 3)
        .iter()
        .map(|packet| packet.meta().checksum)
        .collect();
    // Of a wrong one the packet arrives all the same.
    let none = ChecksumState::None;
    assert_eq!(states, [ChecksumState::Unnecessary, none, none]);
}

#[test]
fn frames_beyond_the_mtu_are_not_received() {
    for (mtu, longest) in [(1500, 1522), (9212, 9230)] {
        let config = E1000eConfig {
            mtu,
            ..E1000eConfig::default()
        };
        let Some(mut queues) = Queues::new(&config, 1) else {
            return;
        };
        if mtu == 1500 {
            queues.inject(&frame(1, longest + 1));
        }
        queues.inject(&frame(2, longest));
        // With a tag of 802.1Q, which stays.
        let mut tagged = frame(3, 60);
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        queues.inject(&tagged);
        let packets = queues.wait_for(0, 2);
        let bytes = |packet: &Packet| packet.segments().flatten().copied().collect::<Vec<u8>>();
        assert_eq!(bytes(&packets[0]), frame(2, longest));
        assert_eq!(bytes(&packets[1]), tagged);
        let drops = queues.rx_drops.snapshot();
        assert_eq!(drops.total(), 0, "{drops:?}");
        // The longest one goes out.
        queues.send(0, &frame(4, mtu as usize + 14));
        assert_eq!(queues.sent(), Some(frame(4, mtu as usize + 14)));
    }
}

#[test]
fn only_its_own_frames_arrive_unless_promiscuous() {
    let own = E1000eConfig {
        promiscuous: false,
        ..E1000eConfig::default()
    };
    let Some(mut queues) = Queues::new(&own, 1) else {
        return;
    };
    let to = |address: [u8; 6]| [&address[..], &frame(9, 60)[6..]].concat();
    let address = queues.port.address();
    assert_eq!(address, [0x52, 0x54, 0, 0x0a, 0x0b, 0x0c]);
    queues.inject(&to([2, 0, 0, 0, 0, 7]));
    queues.inject(&to(address));
    queues.inject(&to([0xff; 6]));
    queues.inject(&to([0x33, 0x33, 0, 0, 0, 1]));
    let firsts: Vec<u8> = queues
        .wait_for(0, 3)
        .iter()
        .map(|packet| packet.first()[0])
        .collect();
    assert_eq!(firsts, [0x52, 0xff, 0x33]);
}

#[test]
fn its_counters_are_those_of_the_packets() {
    let Some(mut queues) = Queues::new(&config(Features::NONE), 1) else {
        return;
    };
    for number in 0..5 {
        queues.inject(&frame(number, 100));
        queues.send(0, &frame(number, 200));
        assert!(queues.sent().is_some());
    }
    queues.wait_for(0, 5);
    let counters = queues.port.device_counters().expect("it has some");
    let again = queues.port.device_counters().expect("it has some");
    assert_eq!(counters, again);
    assert_eq!((counters.rx_packets, counters.tx_packets), (5, 5));
    assert_eq!(counters.rx_bytes, 1000);
    // With its FCS.
    assert_eq!(counters.tx_bytes, 520);
    let errors = counters.rx_errors + counters.tx_errors + counters.tx_dropped;
    assert_eq!(errors, 0);
}

#[test]
fn after_the_link_was_down_packets_flow_again() {
    let Some(mut queues) = Queues::new(&config(Features::NONE), 1) else {
        return;
    };
    for round in 0..4 {
        // Packets are on their way in both directions when it goes down.
        for number in 0..20 {
            queues.send(0, &frame(number, 500));
            assert!(queues.card.inject(&frame(number, 500)).is_ok() || number > 0);
        }
        queues.card.set_link(false).expect("QEMU");
        queues.wait_for_link(Link::Down);
        let before = queues.tx_drops.snapshot().get(DropReason::LinkDown);
        queues.send(0, &frame(round, 60));
        let after = queues.tx_drops.snapshot().get(DropReason::LinkDown);
        assert_eq!(after - before, 1, "{round}");
        queues.card.set_link(true).expect("QEMU");
        queues.wait_for_link(Link::Up);
        // What was on its way comes first.
        while queues.card.socket().recv(&mut [0; 2000]).is_ok() {}
        queues.poll(0).expect("it works");
        let marked = frame(100 + round, 99);
        queues.send(0, &marked);
        let end = std::time::Instant::now() + WAIT;
        while queues.sent().expect("a frame") != marked {
            assert!(std::time::Instant::now() < end, "{round}");
        }
        queues.inject(&marked);
        let is_marked = |packet: &Packet| packet.first() == marked;
        while !queues.wait_for(0, 1).iter().any(is_marked) {
            assert!(std::time::Instant::now() < end, "{round}");
        }
    }
    let now = queues.now().after(Duration::from_millis(200));
    queues.tx[0].service(now).expect("it works");
    let counters = queues.tx_counters.snapshot();
    assert_eq!((counters.hangs, counters.resets), (0, 0));
}

#[test]
fn a_reset_of_a_tx_queue_sends_each_packet_once() {
    let Some(mut queues) = Queues::new(&config(Features::NONE), 2) else {
        return;
    };
    // The ring goes round several times, with a reset at any place.
    let mut next = 0_u16;
    for count in [1, 3, 30, 200, 77] {
        for _ in 0..count {
            let mut bytes = frame(7, 80);
            bytes[14..16].copy_from_slice(&next.to_be_bytes());
            queues.send(1, &bytes);
            next += 1;
            if next.is_multiple_of(8) {
                // The cable holds a few.
                for number in next - 8..next {
                    let sent = queues.sent().expect("a frame");
                    assert_eq!(sent[14..16], number.to_be_bytes());
                }
            }
        }
        let now = queues.now();
        assert_eq!(queues.tx[1].reset(now).ok(), Some(true));
        let now = queues.now();
        queues.tx[1].service(now).expect("it works");
    }
    for number in next / 8 * 8..next {
        let sent = queues.sent().expect("a frame");
        assert_eq!(sent[14..16], number.to_be_bytes());
    }
    assert_eq!(queues.card.socket().recv(&mut [0; 99]).ok(), None);
    assert_eq!(queues.tx_drops.snapshot().total(), 0);
    assert_eq!(queues.tx_counters.snapshot().resets, 5);
}

#[test]
fn a_card_that_is_unplugged_ends_both_halves() {
    let Some(mut queues) = Queues::new(&config(Features::NONE), 1) else {
        return;
    };
    queues.send(0, &frame(1, 60));
    assert!(queues.sent().is_some());
    queues.card.unplug().expect("QEMU");
    let end = std::time::Instant::now() + WAIT;
    let error = loop {
        assert!(std::time::Instant::now() < end, "it is not noticed");
        if let Err(error) = queues.poll(0) {
            break error;
        }
    };
    assert!(matches!(error, DeviceError::Removed), "{error}");
    assert_eq!(queues.port.link(), Link::Removed);
    let mut burst = Burst::new();
    let packet = queues.arena.packet_from(&frame(2, 60)).expect("frames");
    burst.push(packet).expect("room");
    let now = queues.now();
    queues.tx[0].service(now).expect("it has no packets");
    let sent = queues.tx[0].transmit(&mut burst);
    assert!(matches!(sent, Err(DeviceError::Removed)), "{sent:?}");
}

#[test]
fn a_card_can_be_opened_again_with_what_it_had() {
    let Some(queues) = Queues::new(&config(Features::NONE), 1) else {
        return;
    };
    let Queues { card, port, .. } = queues;
    drop(port);
    // What arrives in between is not received.
    assert!(card.inject(&frame(1, 60)).is_ok());
    let port = E1000e::open(card.clone(), &config(Features::NONE));
    let mut port = port.expect("it opens again");
    let arena = Arena::new(ArenaConfig::default()).expect("memory");
    let pairs = port.attach(&Attach::default(), &arena);
    assert_eq!(pairs.expect("it attaches").len(), 1);
    card.check_untouched().expect("its accesses");
}
