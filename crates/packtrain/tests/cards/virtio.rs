//! The virtio network card.

use crate::start_one;
use packtrain::driver::{
    Armed, Attach, Completed, DeviceError, Driver, Features, Link, Reset, TxDescriptors as _,
};
use packtrain::packet::{Arena, ArenaConfig, Burst, Ingress, Packet};
use packtrain::plan::FitLimits;
use packtrain::port::card::{Bus as _, InterruptKind};
use packtrain::port::virtio::{Virtio, VirtioConfig, VirtioRx, VirtioTx};
use packtrain::queue::{RxQueue, TxQueue};
use packtrain::stats::{DropCounters, DropReason, TxCounters};
use packtrain::time::Instant;
use packtrain_offload::offload::LinkType;
use packtrain_testkit::conformance::Skip;
use packtrain_testkit::driver_conformance;
use packtrain_testkit::qtest::{Card, Qtest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(20);
const SPLIT: &str = "virtio-net-pci,disable-legacy=on,mac=52:54:00:00:00:01";
const PACKED: &str = "virtio-net-pci,disable-legacy=on,mac=52:54:00:00:00:01,packed=on";

type Plugged = crate::Plugged<Virtio<Qtest>>;

impl Plugged {
    fn new(model: &str, config: &VirtioConfig) -> Result<Self, Skip> {
        let card = start_one(Card::new(model))?;
        card.socket().set_nonblocking(true).expect("a socket");
        let port = Virtio::open(card.clone(), config).expect("it opens");
        Ok(Self { port, card })
    }
}

fn plug(model: &str, irq: InterruptKind) -> Result<Plugged, Skip> {
    Plugged::new(
        model,
        &VirtioConfig {
            irq,
            ..VirtioConfig::default()
        },
    )
}

driver_conformance!(split, |_| plug(SPLIT, InterruptKind::Msix));
driver_conformance!(packed, |_| plug(PACKED, InterruptKind::Msix));
driver_conformance!(split_intx, |_| plug(SPLIT, InterruptKind::Intx));
driver_conformance!(packed_without_event_idx, |_| {
    plug(&format!("{PACKED},event_idx=off"), InterruptKind::Msix)
});
/// A frame of an experimental type (IEEE 802).
fn frame(number: u8, bytes: usize) -> Vec<u8> {
    let mut frame = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xB5].to_vec();
    frame.resize(bytes, number);
    frame
}

/// The queue of a card, worked by the test.
struct Queue {
    card: Qtest,
    port: Virtio<Qtest>,
    arena: Arena,
    rx: RxQueue<VirtioRx<Qtest>>,
    tx: TxQueue<VirtioTx<Qtest>>,
    tx_counters: Arc<TxCounters>,
    rx_drops: Arc<DropCounters>,
    tx_drops: Arc<DropCounters>,
    start: std::time::Instant,
}

impl Queue {
    fn new(model: &str) -> Option<Self> {
        Self::with(model, &VirtioConfig::default())
    }

    fn with(model: &str, config: &VirtioConfig) -> Option<Self> {
        let Plugged { mut port, card } = match Plugged::new(model, config) {
            Ok(plugged) => plugged,
            Err(why) => {
                println!("SKIP: {why}");
                return None;
            }
        };
        let arena = Arena::new(ArenaConfig::default()).expect("memory");
        let capabilities = port.capabilities();
        let pairs = port.attach(&Attach::default(), &arena);
        let (rx, tx) = pairs.expect("it attaches").remove(0);
        let (rx_drops, tx_drops): (Arc<DropCounters>, Arc<DropCounters>) = Default::default();
        let tx_counters = Arc::<TxCounters>::default();
        let rx = RxQueue::new(
            rx,
            arena.clone(),
            LinkType::Ethernet,
            Ingress::default(),
            Arc::default(),
            Arc::clone(&rx_drops),
        );
        let tx = TxQueue::new(
            tx,
            arena.clone(),
            capabilities.tx,
            FitLimits::new(&capabilities, None),
            None,
            Arc::clone(&tx_counters),
            Arc::clone(&tx_drops),
        );
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

    fn poll(&mut self) -> Result<Vec<Packet>, DeviceError> {
        let mut burst = Burst::new();
        let now = self.now();
        self.rx.poll(now, &mut burst, 64)?;
        Ok(std::iter::from_fn(|| burst.pop()).collect())
    }

    /// Packets until there are `count`.
    fn wait_for(&mut self, count: usize) -> Vec<Packet> {
        let mut all = Vec::new();
        let end = std::time::Instant::now() + WAIT;
        while all.len() < count {
            assert!(std::time::Instant::now() < end, "{} of {count}", all.len());
            all.extend(self.poll().expect("it works"));
        }
        all
    }

    /// Changes the link while the queue sleeps, which an interrupt ends.
    fn set_link(&mut self, is_up: bool) {
        self.arm();
        self.card.set_link(is_up).expect("QEMU");
        while self.tx.device_mut().is_blocked() == is_up {
            let (fd, _) = self.rx.wake().expect("a descriptor");
            let mut ready = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
            let time = Timespec {
                tv_sec: WAIT.as_secs().cast_signed(),
                tv_nsec: 0,
            };
            assert_eq!(poll(&mut ready, Some(&time)), Ok(1), "no interrupt");
            self.arm();
        }
    }

    fn arm(&mut self) {
        while self.rx.arm() == Armed::WorkPending {
            assert!(self.poll().expect("it works").is_empty());
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        let packet = self.arena.packet_from(bytes).expect("frames");
        self.transmit(packet);
    }

    fn transmit(&mut self, packet: Packet) {
        let mut burst = Burst::new();
        burst.push(packet).expect("room");
        let now = self.now();
        self.tx.service(now).expect("it works");
        self.tx.transmit(&mut burst).expect("it works");
        assert!(burst.is_empty());
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
}

/// And are sent as they are, unless each piece takes a descriptor of the ring.
#[test]
fn frames_of_all_lengths_arrive_in_as_many_buffers_as_they_need() {
    const ROUNDS: u8 = 60;
    let without_tables = format!("{SPLIT},indirect_desc=off");
    let longest = u64::from(ROUNDS);
    for (model, copies) in [(SPLIT, 0), (PACKED, 0), (&without_tables, longest)] {
        let Some(mut queue) = Queue::new(model) else {
            return;
        };
        assert_eq!(queue.port.mac(), Some([0x52, 0x54, 0, 0, 0, 1]));
        for round in 0..ROUNDS {
            for bytes in [60, 1514, 1792, 1793, 9014, 65_000] {
                let frame = frame(round, bytes);
                queue.inject(&frame);
                let packet = queue.wait_for(1).remove(0);
                let segments = (12 + bytes).div_ceil(1804);
                assert_eq!(packet.segment_count(), segments, "{bytes}");
                let got: Vec<u8> = packet.segments().flatten().copied().collect();
                assert!(got == frame, "{bytes}");
                queue.transmit(packet);
                assert!(queue.sent() == Some(frame), "{bytes}");
            }
        }
        let counters = queue.tx_counters.snapshot();
        assert_eq!(counters.collapse + counters.defrag, copies, "{model}");
        assert_eq!(queue.rx_drops.snapshot().total(), 0);
        assert_eq!(queue.tx_drops.snapshot().total(), 0);
        drop((queue.rx, queue.tx));
        queue.card.check_untouched().expect("its accesses");
        assert_eq!(queue.card.complaints().expect("QEMU"), "");
    }
}

/// QEMU drops what does not fit into one.
#[test]
fn without_mergeable_buffers_a_packet_is_in_one() {
    let Some(mut queue) = Queue::new(&format!("{SPLIT},mrg_rxbuf=off")) else {
        return;
    };
    for round in 0..100 {
        queue.inject(&frame(round, 1793));
        queue.inject(&frame(round, 1792));
        let packet = queue.wait_for(1).remove(0);
        assert_eq!(packet.first(), frame(round, 1792));
        queue.send(&frame(round, 9000));
        assert!(queue.sent() == Some(frame(round, 9000)));
    }
}

#[test]
fn an_interrupt_reports_the_link_and_packets_are_dropped_while_it_is_down() {
    for irq in [InterruptKind::Msix, InterruptKind::Intx] {
        let config = VirtioConfig {
            irq,
            ..VirtioConfig::default()
        };
        let Some(queue) = Queue::with(SPLIT, &config) else {
            return;
        };
        the_link_goes_and_comes(queue);
    }
}

fn the_link_goes_and_comes(mut queue: Queue) {
    for round in 0..5 {
        queue.set_link(false);
        assert_eq!(queue.port.link(), Link::Down);
        let before = queue.tx_drops.snapshot().get(DropReason::LinkDown);
        queue.send(&frame(round, 60));
        let after = queue.tx_drops.snapshot().get(DropReason::LinkDown);
        assert_eq!(after - before, 1, "{round}");
        queue.set_link(true);
        assert_eq!(queue.port.link(), Link::Up);
        queue.send(&frame(round, 99));
        assert_eq!(queue.sent(), Some(frame(round, 99)));
        queue.inject(&frame(round, 98));
        assert_eq!(queue.wait_for(1)[0].first(), frame(round, 98));
    }
    let counters = queue.tx_counters.snapshot();
    assert_eq!((counters.hangs, counters.resets), (0, 0));
}

#[test]
fn a_ring_of_the_card_works_after_its_reset() {
    for model in [SPLIT, PACKED] {
        let Some(mut queue) = Queue::new(model) else {
            return;
        };
        for round in 0..20 {
            queue.send(&frame(round, 60));
            assert_eq!(queue.sent(), Some(frame(round, 60)));
            let [mut sent, mut unsent] = [(); 2].map(|()| Completed::with_capacity(256));
            let reset = queue.tx.device_mut().reset(&mut sent, &mut unsent);
            assert!(matches!(reset, Ok(Reset::Done)), "{reset:?}");
            assert!(unsent.is_empty());
            queue.inject(&frame(round, 61));
            assert_eq!(queue.wait_for(1)[0].first(), frame(round, 61));
        }
        assert_eq!(queue.card.complaints().expect("QEMU"), "");
    }
}

#[test]
fn a_card_that_is_unplugged_ends_both_halves() {
    let Some(mut queue) = Queue::new(PACKED) else {
        return;
    };
    queue.send(&frame(1, 60));
    assert!(queue.sent().is_some());
    queue.card.unplug().expect("QEMU");
    let end = std::time::Instant::now() + WAIT;
    let error = loop {
        assert!(std::time::Instant::now() < end, "it is not noticed");
        if let Err(error) = queue.poll() {
            break error;
        }
    };
    assert!(matches!(error, DeviceError::Removed), "{error}");
    assert_eq!(queue.port.link(), Link::Removed);
    let end = std::time::Instant::now() + WAIT;
    let error = loop {
        assert!(std::time::Instant::now() < end, "it is not noticed");
        let mut burst = Burst::new();
        let packet = queue.arena.packet_from(&frame(2, 60)).expect("frames");
        burst.push(packet).expect("room");
        let now = queue.now();
        if let Err(error) = queue.tx.service(now) {
            break error;
        }
        if let Err(error) = queue.tx.transmit(&mut burst) {
            break error;
        }
    };
    assert!(matches!(error, DeviceError::Removed), "{error}");
}

#[test]
fn only_its_own_frames_and_multicast_arrive_unless_promiscuous() {
    let config = VirtioConfig {
        promiscuous: false,
        offload: Features::NONE,
        ..VirtioConfig::default()
    };
    let Some(mut queue) = Queue::with(SPLIT, &config) else {
        return;
    };
    let filter = queue
        .card
        .monitor("query-rx-filter", &serde_json::json!({}));
    let filter = filter.expect("QEMU");
    assert_eq!(filter[0]["promiscuous"], false, "{filter}");
    let own = queue.port.mac().expect("an address");
    let all_nodes = [0x33, 0x33, 0, 0, 0, 1];
    for (number, to) in [[2, 0, 0, 0, 0, 9], all_nodes, own].into_iter().enumerate() {
        let mut frame = frame(number as u8, 60);
        frame[..6].copy_from_slice(&to);
        queue.inject(&frame);
    }
    let got = queue.wait_for(2);
    let to: Vec<_> = got.iter().map(|packet| &packet.first()[..6]).collect();
    assert_eq!(to, [all_nodes, own]);
    // Once more, with what it had.
    drop(got);
    let Queue {
        card,
        port,
        arena,
        rx,
        tx,
        ..
    } = queue;
    drop((rx, tx, port));
    let mut port = Virtio::open(card.clone(), &VirtioConfig::default()).expect("it opens");
    let pairs = port.attach(&Attach::default(), &arena).expect("again");
    let filter = card.monitor("query-rx-filter", &serde_json::json!({}));
    assert_eq!(filter.expect("QEMU")[0]["promiscuous"], true);
    drop(pairs);
    assert!(!card.is_removed());
    card.check_untouched().expect("its accesses");
}
