use super::*;
use crate::driver::{
    Armed, Completed, Driver, Features, RxBuffers, RxDescriptors, Token, TxDescriptors, TxPacket,
};
use crate::limits::BURST_PACKETS_MAX;
use crate::packet::{ArenaConfig, Burst, Ingress, Packet, VlanTag};
use crate::plan::FitLimits;
use crate::queue::{RxQueue, TxQueue};
use crate::time::Instant;
use packtrain_offload::offload::LinkType;
use std::sync::{Condvar, Mutex};
use std::task::{Wake, Waker};
use std::time::Duration;

mod buffers;
#[path = "../../../../packtrain-testkit/src/conformance/outside.rs"]
mod outside;
mod trouble;

use outside::Outside;

/// The interrupt of a queue.
#[derive(Debug, Default)]
struct Signal {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        *self.raised.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

impl Signal {
    /// Whether it is raised within `patience`, once for each time.
    fn take(&self, patience: Duration) -> bool {
        let raised = self.raised.lock().unwrap();
        let waiting = self
            .changed
            .wait_timeout_while(raised, patience, |raised| !*raised);
        std::mem::take(&mut *waiting.unwrap().0)
    }
}

/// An attached endpoint with its own arena and one queue of the framework each way.
struct Station {
    rx: RxQueue<SimRx>,
    tx: TxQueue<SimTx>,
    rx_signal: Arc<Signal>,
    tx_signal: Arc<Signal>,
    driver: Sim,
    arena: Arena,
}

impl Station {
    fn new(driver: Sim, how: &Attach) -> Self {
        Self::new_in(driver, how, Arena::new(ArenaConfig::small()).unwrap())
    }

    fn new_in(mut driver: Sim, how: &Attach, arena: Arena) -> Self {
        let capabilities = driver.capabilities();
        let (rx, tx) = driver.attach(how, &arena).unwrap().remove(0);
        let (ingress, link) = (Ingress::default(), capabilities.link);
        let mut rx = RxQueue::new(
            rx,
            arena.clone(),
            link,
            ingress,
            Arc::default(),
            Arc::default(),
        );
        assert!(rx.device_mut().refill(&arena));
        let mut tx = TxQueue::new(
            tx,
            arena.clone(),
            capabilities.tx,
            FitLimits::new(&capabilities, None),
            capabilities.tx_ring,
            Arc::default(),
            Arc::default(),
        );
        let (rx_signal, tx_signal): (Arc<Signal>, Arc<Signal>) = Default::default();
        rx.set_interrupt(Waker::from(Arc::clone(&rx_signal)));
        tx.set_interrupt(Waker::from(Arc::clone(&tx_signal)));
        Self {
            rx,
            tx,
            rx_signal,
            tx_signal,
            driver,
            arena,
        }
    }

    /// Drops the queues and checks that no frame is left anywhere.
    fn close(self) {
        let Self { rx, tx, arena, .. } = self;
        drop((rx, tx));
        let (census, config) = (arena.census(), arena.config());
        assert_eq!(census.small_free, config.small_frames);
        assert_eq!(census.large_free, config.large_frames);
        assert_eq!(census.lines_free, config.lines);
    }

    fn send(&mut self, packets: &[Outside]) {
        let mut burst = Burst::new();
        for packet in packets {
            let packet = packet.to_packet(&self.arena, self.driver.config().link, || 1500);
            burst.push(packet.unwrap()).unwrap();
        }
        self.tx.transmit(&mut burst).unwrap();
        assert!(burst.is_empty());
    }

    fn receive(&mut self) -> Vec<Outside> {
        let mut burst = Burst::new();
        self.rx.poll(Instant::default(), &mut burst, 64).unwrap();
        burst.iter().map(Outside::of).collect()
    }
}

/// Rings small enough to be full at times.
fn small() -> SimConfig {
    SimConfig {
        tx_ring: 96,
        rx_ring: 128,
        ..SimConfig::default()
    }
}

fn rx_ring(rx_ring: usize) -> SimConfig {
    SimConfig {
        rx_ring,
        ..SimConfig::default()
    }
}

/// The same, which pauses its sender while its ring has no buffer.
fn pausing(config: SimConfig) -> SimConfig {
    SimConfig {
        flow_control: true,
        ..config
    }
}

/// A frame of `bytes` bytes with its own number.
fn frame(number: usize, bytes: usize) -> Outside {
    let mut frame = vec![number as u8; bytes];
    frame[12..14].copy_from_slice(&0x88B5_u16.to_be_bytes());
    frame[14..18].copy_from_slice(&(number as u32).to_be_bytes());
    Outside::complete(frame)
}

fn frames(count: usize, bytes: usize) -> Vec<Outside> {
    (0..count).map(|number| frame(number, bytes)).collect()
}

fn stations(a: SimConfig, b: SimConfig) -> (Station, Station) {
    let (a, b) = pair(a, b, 7);
    let attach = Attach::default();
    (Station::new(a, &attach), Station::new(b, &attach))
}

/// Stations whose second one receives into these buffers.
fn receiving_into(a: Sim, b: Sim, rx_buffers: RxBuffers) -> (Station, Station) {
    let how = Attach {
        rx_buffers,
        ..Attach::default()
    };
    (Station::new(a, &Attach::default()), Station::new(b, &how))
}

fn close(a: Station, b: Station) {
    a.close();
    b.close();
}

fn counters(station: &Station) -> DeviceCounters {
    station.driver.control().device_counters()
}

#[test]
fn packets_are_invisible_before_the_doorbell() {
    let (mut a, mut b) = stations(small(), small());
    let mut packet = a.arena.packet_from(&frame(1, 100).bytes).unwrap();
    {
        let mut fitted = TxPacket::fitted(&mut packet);
        let device = a.tx.device_mut();
        device.encap(&mut fitted, Token(3)).unwrap();
        assert_eq!(device.doorbells(), 0);
    }
    assert!(b.receive().is_empty());
    a.tx.device_mut().flush(Instant::default()).unwrap();
    a.tx.device_mut().flush(Instant::default()).unwrap();
    assert_eq!(
        a.tx.device_mut().doorbells(),
        1,
        "a doorbell without packets is none"
    );
    assert_eq!(b.receive().len(), 1);
    let mut done = Completed::with_capacity(8);
    a.tx.device_mut().reclaim(Instant::default(), &mut done);
    assert_eq!(done.drain().collect::<Vec<_>>(), [Token(3)]);
    drop(packet);
    close(a, b);
}

#[test]
fn a_ring_of_n_takes_n_minus_1_packets_and_counts_the_others_as_lost() {
    let config = rx_ring(32);
    let (mut a, mut b) = stations(SimConfig::default(), config);
    a.send(&frames(50, 200));
    assert_eq!(b.receive(), frames(31, 200), "one descriptor stays empty");
    let device = counters(&b);
    assert_eq!(
        (device.tx_packets, device.tx_bytes, device.tx_dropped),
        (31, 31 * 200, 19)
    );
    let (device, wire) = (counters(&a), a.driver.control().counters());
    assert_eq!(
        (device.rx_packets, device.rx_bytes, device.rx_dropped),
        (50, 50 * 200, 0)
    );
    assert_eq!((wire.wire_packets, wire.wire_bytes), (50, 50 * 200));
    a.send(&frames(10, 200));
    assert_eq!(
        b.receive(),
        frames(10, 200),
        "it goes on with fresh buffers"
    );
    close(a, b);
}

#[test]
fn every_nth_packet_is_bad_and_costs_itself() {
    let config = SimConfig {
        corrupt_every: 5,
        ..SimConfig::default()
    };
    let (mut a, mut b) = stations(SimConfig::default(), config);
    // Some of them take two buffers.
    let sent: Vec<_> = (0..40).map(|n| frame(n, 100 + n * 90)).collect();
    a.send(&sent);
    let good = sent.iter().enumerate().filter(|(n, _)| (n + 1) % 5 != 0);
    assert_eq!(
        b.receive(),
        good.map(|(_, f)| f.clone()).collect::<Vec<_>>()
    );
    assert_eq!(b.rx.counters().bad_packets.get(), 8);
    assert_eq!(b.rx.counters().wire_packets.get(), 40);
    close(a, b);
}

#[test]
fn a_bad_packet_in_several_buffers_gives_all_of_them_back() {
    let (a, b) = pair(SimConfig::default(), SimConfig::default(), 7);
    let (mut a, mut b) = receiving_into(a, b, RxBuffers::PIECES);
    // More packets of three buffers each than the ring has buffers.
    for lap in 0..400 {
        let sent = frames(3, 5000);
        a.send(&sent[..1]);
        b.driver.control().corrupt_next(1);
        a.send(&sent[1..]);
        a.tx.reclaim(Instant::default());
        assert_eq!(b.receive(), [sent[0].clone(), sent[2].clone()], "lap {lap}");
    }
    assert_eq!(b.rx.counters().bad_packets.get(), 400);
    assert_eq!(counters(&b).rx_dropped, 0, "there was a buffer for each");
    close(a, b);
}

#[test]
fn tags_are_stripped_and_inserted_as_agreed() {
    let vlan = SimConfig {
        rx: Features::VLAN,
        tx: Features::VLAN,
        ..SimConfig::default()
    };
    let tag = VlanTag {
        protocol: 0x8100,
        control: 0x2005,
    };
    let plain = frame(3, 80);
    let tagged = {
        let mut bytes = plain.bytes.clone();
        bytes.splice(12..12, [0x81, 0, 0x20, 5]);
        bytes
    };
    for (strips, in_band) in [(false, false), (false, true), (true, false), (true, true)] {
        let to = if strips {
            vlan.clone()
        } else {
            SimConfig::default()
        };
        let (mut a, mut b) = stations(vlan.clone(), to);
        let bytes = if in_band { &tagged } else { &plain.bytes };
        let mut packet = a.arena.packet_from(bytes).unwrap();
        packet.meta_mut().vlan = (!in_band).then_some(tag);
        let mut burst = Burst::new();
        burst.push(packet).unwrap();
        a.tx.transmit(&mut burst).unwrap();
        b.rx.poll(Instant::default(), &mut burst, 1).unwrap();
        let got = burst.pop().unwrap();
        assert_eq!(got.meta().vlan, strips.then_some(tag));
        let want = if strips { &plain.bytes } else { &tagged };
        assert_eq!(got.first(), want);
        drop(got);
        close(a, b);
    }
}

#[test]
fn completions_come_late_out_of_order_and_all() {
    let config = SimConfig {
        delay: CompletionDelay::Packets(10),
        reorder: true,
        ..SimConfig::default()
    };
    let (mut a, b) = stations(config, SimConfig::default());
    let device = a.tx.device_mut();
    let mut packets: Vec<_> = (0..40)
        .map(|n| a.arena.packet_from(&frame(n, 100).bytes).unwrap())
        .collect();
    for (n, packet) in packets.iter_mut().enumerate() {
        let mut fitted = TxPacket::fitted(packet);
        device.encap(&mut fitted, Token(n as u32)).unwrap();
    }
    device.flush(Instant::default()).unwrap();
    let mut completed = Completed::with_capacity(64);
    device.reclaim(Instant::default(), &mut completed);
    let mut done: Vec<_> = completed.drain().map(|token| token.0).collect();
    assert_eq!(done.len(), 30, "the last ten wait for ten more packets");
    assert!(!done.is_sorted(), "in order: {done:?}");
    for _ in 0..10 {
        device.reclaim(Instant::default(), &mut completed);
        done.extend(completed.drain().map(|token| token.0));
    }
    done.sort_unstable();
    assert_eq!(
        done,
        (0..40).collect::<Vec<_>>(),
        "an idle device reports the rest"
    );
    drop(packets);
    close(a, b);
}

#[test]
fn the_same_seed_gives_the_same_order() {
    let order = |seed, of_run| {
        let config = SimConfig {
            reorder: true,
            ..SimConfig::default()
        };
        let (a, _b) = pair(config, SimConfig::default(), seed);
        let how = Attach {
            seed: of_run,
            ..Attach::default()
        };
        let mut a = Station::new(a, &how);
        let device = a.tx.device_mut();
        for n in 0..20 {
            let mut packet = a.arena.packet_from(&frame(n, 100).bytes).unwrap();
            let mut fitted = TxPacket::fitted(&mut packet);
            device.encap(&mut fitted, Token(n as u32)).unwrap();
        }
        device.flush(Instant::default()).unwrap();
        let mut completed = Completed::with_capacity(64);
        device.reclaim(Instant::default(), &mut completed);
        completed.drain().collect::<Vec<_>>()
    };
    assert_eq!(order(1, 0), order(1, 0));
    assert_ne!(order(1, 0), order(2, 0));
    assert_eq!(order(1, 5), order(1, 5));
    assert_ne!(order(1, 5), order(1, 0));
}

#[test]
fn far_ends_discard_or_echo() {
    let mut discard = Station::new(Sim::alone(small(), Far::Discard, 1), &Attach::default());
    discard.send(&frames(20, 300));
    assert_eq!(discard.tx.reclaim(Instant::default()), 20);
    assert!(discard.receive().is_empty());
    assert_eq!(counters(&discard).rx_packets, 20);
    assert_eq!(discard.driver.control().counters().wire_packets, 20);
    discard.close();
    let mut echo = Station::new(Sim::alone(small(), Far::Echo, 1), &Attach::default());
    echo.send(&frames(20, 300));
    assert_eq!(echo.receive(), frames(20, 300));
    assert_eq!(
        (counters(&echo).rx_packets, counters(&echo).tx_packets),
        (20, 20)
    );
    echo.close();
}

#[test]
fn without_a_link_packets_are_dropped_and_it_comes_back() {
    let (mut a, mut b) = stations(small(), small());
    b.driver.control().set_link(false);
    assert_eq!(a.driver.link(), Link::Down);
    a.send(&frames(10, 100));
    a.driver.control().set_link(true);
    assert_eq!(a.driver.link(), Link::Up);
    a.send(&frames(5, 100));
    assert_eq!(b.receive(), frames(5, 100));
    assert_eq!(a.tx.counters().packets.get(), 5);
    close(a, b);
}

#[test]
fn a_removed_device_gives_its_packets_back_and_says_so() {
    let config = SimConfig {
        delay: CompletionDelay::Reclaims(50),
        ..small()
    };
    let (mut a, mut b) = stations(config, small());
    a.send(&frames(10, 100));
    assert_eq!(a.tx.in_flight(), 10);
    a.driver.control().remove();
    assert_eq!(
        (a.driver.link(), b.driver.link()),
        (Link::Removed, Link::Down)
    );
    assert_eq!(a.tx.reclaim(Instant::default()), 10);
    let mut burst = Burst::new();
    burst.push(a.arena.packet_from(&[0; 60]).unwrap()).unwrap();
    assert!(matches!(
        a.tx.transmit(&mut burst),
        Err(DeviceError::Removed)
    ));
    let polled = a.rx.poll(Instant::default(), &mut burst, 1);
    assert!(matches!(polled, Err(DeviceError::Removed)));
    assert_eq!(b.receive(), frames(10, 100), "what was on the wire arrives");
    close(a, b);
}

#[test]
fn a_paused_transmitter_is_woken_by_buffers() {
    let config = pausing(rx_ring(8));
    let (mut a, mut b) = stations(SimConfig::default(), config);
    a.send(&frames(30, 100));
    while a.tx.reclaim(Instant::default()) > 0 {}
    assert_eq!(a.tx.in_flight(), 23, "seven descriptors hold seven packets");
    assert_eq!(a.tx.arm(), Armed::Idle);
    assert!(!a.tx_signal.take(Duration::ZERO));
    let mut got = b.receive();
    assert!(a.tx_signal.take(Duration::ZERO), "buffers were posted");
    for _ in 0..10 {
        a.tx.reclaim(Instant::default());
        got.extend(b.receive());
    }
    assert_eq!(got, frames(30, 100));
    assert_eq!(counters(&b).tx_dropped, 0);
    close(a, b);
}

/// The framework has no packet that waits for the device, so it does not arm the queue.
#[test]
fn a_paused_transmitter_goes_on_though_it_is_not_armed() {
    let config = pausing(rx_ring(8));
    let (mut a, mut b) = stations(SimConfig::default(), config);
    a.send(&frames(30, 100));
    let mut got = b.receive();
    while a.tx_signal.take(Duration::ZERO) {
        a.tx.reclaim(Instant::default());
        got.extend(b.receive());
    }
    assert_eq!(got, frames(30, 100));
    close(a, b);
}

#[test]
fn queue_i_feeds_queue_i_modulo_the_receivers() {
    let arena = Arena::new(ArenaConfig::small()).unwrap();
    let config = rx_ring(32);
    let (mut a, mut b) = pair(config.clone(), config, 3);
    let how = |queues| Attach {
        queues,
        ..Attach::default()
    };
    let mut sending = a.attach(&how(4), &arena).unwrap();
    let mut receiving = b.attach(&how(2), &arena).unwrap();
    assert!(a.attach(&how(1), &arena).is_err(), "it is attached already");
    for (rx, _) in &mut receiving {
        assert!(rx.refill(&arena));
    }
    for (queue, (_, tx)) in sending.iter_mut().enumerate() {
        let mut packet = arena.packet_from(&frame(queue, 100).bytes).unwrap();
        let mut fitted = TxPacket::fitted(&mut packet);
        tx.encap(&mut fitted, Token(0)).unwrap();
        tx.flush(Instant::default()).unwrap();
    }
    for (queue, (rx, _)) in receiving.into_iter().enumerate() {
        let (counters, drops) = (Arc::default(), Arc::default());
        let link = LinkType::Ethernet;
        let ingress = Ingress::default();
        let mut rx = RxQueue::new(rx, arena.clone(), link, ingress, counters, drops);
        let mut burst = Burst::new();
        rx.poll(Instant::default(), &mut burst, 64).unwrap();
        let got: Vec<_> = burst.iter().map(Outside::of).collect();
        assert_eq!(got, [frame(queue, 100), frame(queue + 2, 100)]);
    }
}

#[test]
fn two_threads_lose_nothing_with_flow_control() {
    const COUNT: usize = 20_000;
    let config = pausing(rx_ring(64));
    let (mut a, mut b) = stations(SimConfig::default(), config);
    let patience = Duration::from_secs(60);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut burst = Burst::new();
            let mut sent = 0;
            while sent < COUNT || !a.tx.is_ready() || a.tx.in_flight() > 0 {
                while sent < COUNT && burst.room() > 0 {
                    let Ok(packet) = a.arena.packet_from(&frame(sent, 64).bytes) else {
                        break;
                    };
                    burst.push(packet).unwrap();
                    sent += 1;
                }
                a.tx.transmit(&mut burst).unwrap();
                if a.tx.reclaim(Instant::default()) == 0
                    && a.tx.arm() == Armed::Idle
                    && !a.tx.is_ready()
                {
                    assert!(a.tx_signal.take(patience), "never woken");
                }
            }
            a.arena.flush_cache();
        });
        let mut next = 0;
        while next < COUNT {
            let got = b.receive();
            for packet in &got {
                assert_eq!(*packet, frame(next, 64));
                next += 1;
            }
            if got.is_empty() && b.rx.arm() == Armed::Idle {
                assert!(b.rx_signal.take(patience), "never woken at {next}");
            }
        }
    });
    assert_eq!(counters(&a).rx_packets, COUNT as u64);
    assert_eq!(counters(&b).tx_packets, COUNT as u64);
    close(a, b);
}

#[test]
fn values_out_of_range_are_refused_by_name() {
    let (mut a, _b) = pair(rx_ring(4), SimConfig::default(), 1);
    let arena = Arena::new(ArenaConfig::small()).unwrap();
    let error = a.attach(&Attach::default(), &arena).unwrap_err();
    assert_eq!(
        error.to_string(),
        "sim0: rx_ring is 4, and must be from 8 to 4096"
    );
    let (mut a, _b) = pair(SimConfig::default(), SimConfig::default(), 1);
    let queues = Attach {
        queues: 17,
        ..Attach::default()
    };
    let error = a.attach(&queues, &arena).unwrap_err();
    let want = "sim0: 17 queues were asked for, and it has from 1 to 16";
    assert_eq!(error.to_string(), want);
}
