//! Faults of real NICs under load: lost interrupts and completions, a hung device, a pulled cable.
//! No packet is lost uncounted, and none is overtaken.

use super::super::wire::{SimFault, Wire};
use super::*;
use crate::driver::{BadPackets, RxBurst};
use crate::limits::{TX_HUNG_AFTER, TX_POLL_AFTER};
use crate::queue::Sent;
use crate::stats::{DropReason, DropSnapshot, Trouble, TxSnapshot};
use crate::test_packets::{Segment, tcp4};
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::{ChecksumState, Gso, GsoKind};
use packtrain_offload::random::Random;
use std::num::NonZeroU16;

/// Numbered packets from one station to the other, on a clock of their own.
struct Load {
    a: Station,
    b: Station,
    burst: Burst,
    now: Instant,
    offered: usize,
    got: Vec<Outside>,
    drops: Arc<crate::stats::DropCounters>,
}

impl Load {
    fn new(a: SimConfig, b: SimConfig) -> Self {
        let (mut a, b) = stations(a, b);
        let capabilities = a.driver.capabilities();
        let drops = Arc::default();
        // The station's own queue, with its drops accessible.
        let wire = Arc::clone(&a.driver.control.wire);
        let device = SimTx::new(wire, 0, Some(1), 0, 7);
        a.tx = TxQueue::new(
            device,
            a.arena.clone(),
            capabilities.tx,
            FitLimits::new(&capabilities, None),
            capabilities.tx_ring,
            Arc::default(),
            Arc::clone(&drops),
        );
        Self {
            a,
            b,
            burst: Burst::new(),
            now: Instant::default(),
            offered: 0,
            got: Vec::new(),
            drops,
        }
    }

    /// One step of a worker, with `packets` more to send if there is room.
    fn step(&mut self, packets: usize) {
        self.a.tx.service(self.now).unwrap();
        for _ in 0..packets.min(self.burst.room()) {
            let packet = frame(self.offered, 100).to_packet(
                &self.a.arena,
                self.a.driver.config().link,
                || 1500,
            );
            self.burst.push(packet.unwrap()).unwrap();
            self.offered += 1;
        }
        self.a.tx.transmit(&mut self.burst).unwrap();
        self.check();
    }

    fn receive(&mut self) {
        self.got.extend(self.b.receive());
    }

    fn counters(&self) -> TxSnapshot {
        self.a.tx.counters().snapshot()
    }

    fn dropped(&self) -> DropSnapshot {
        self.drops.snapshot()
    }

    /// The conservation law; each packet is one wire packet.
    fn check(&self) {
        let tx = self.counters();
        let held = self.a.tx.held() + self.burst.wire_packets();
        assert_eq!(
            self.offered as u64,
            tx.wire_packets - tx.taken_back + self.dropped().total() + held
        );
    }

    /// Completes everything; the arrived packets are in order, and all but `lost`.
    fn end(mut self, lost: u64) {
        for _ in 0..10_000 {
            self.now = self.now.after(Duration::from_millis(1));
            self.step(0);
            self.receive();
        }
        assert!(self.burst.is_empty());
        assert_eq!((self.a.tx.held(), self.a.tx.in_flight()), (0, 0));
        let all = frames(self.offered, 100);
        let mut rest = all.iter();
        for packet in &self.got {
            assert!(rest.any(|sent| sent == packet), "twice, or out of order");
        }
        assert_eq!(self.got.len() as u64 + lost, self.offered as u64);
        let Self { a, b, burst, .. } = self;
        drop(burst);
        close(a, b);
    }
}

#[test]
fn a_flapping_link_changes_on_time_and_drops_what_it_must() {
    let flap = Duration::from_millis(10);
    let config = SimConfig {
        flap: Some(flap),
        ..small()
    };
    let at = |ms: u64| Instant::from_nanos(5_000_000 + ms * 1_000_000);
    let (mut load, mut states) = (Load::new(config, small()), Vec::new());
    for ms in 0..45 {
        load.now = at(ms);
        assert_eq!(load.b.rx.arm(), Armed::Idle);
        // The first poll starts the clock.
        let next = (ms > 0).then(|| at(ms.div_ceil(10) * 10));
        assert_eq!(load.b.rx.device_mut().next_at(), next, "{ms} ms");
        let mut burst = Burst::new();
        load.b.rx.poll(load.now, &mut burst, 64).unwrap();
        states.push(load.b.driver.link() == Link::Up);
        assert_eq!(load.a.driver.link(), load.b.driver.link(), "one cable");
        let dropped = load.dropped().get(DropReason::LinkDown);
        load.step(1);
        let lost = load.dropped().get(DropReason::LinkDown) - dropped;
        assert_eq!(lost, u64::from(!states[ms as usize]), "{ms} ms");
        load.receive();
    }
    for (change, states) in states.chunks(10).enumerate() {
        assert!(states.iter().all(|&up| up == (change % 2 == 0)), "{change}");
    }
    let lost = load.dropped().get(DropReason::LinkDown);
    assert_eq!(lost, 20);
    load.end(lost);
}

/// A queue that is armed while the link changes is interrupted, and a poll that comes late makes
/// all changes that were due.
#[test]
fn a_flapping_link_interrupts_armed_queues() {
    let config = SimConfig {
        flap: Some(Duration::from_millis(1)),
        ..small()
    };
    let (mut a, mut b) = stations(config, small());
    let at = Instant::from_nanos;
    a.tx.service(at(1)).unwrap();
    let poll = |station: &mut Station, now: u64| {
        station.rx.poll(at(now), &mut Burst::new(), 1).unwrap();
        station.driver.link()
    };
    assert_eq!(poll(&mut a, 1), Link::Up);
    assert_eq!(b.rx.arm(), Armed::Idle);
    assert_eq!(poll(&mut a, 1_000_001), Link::Down);
    assert!(b.rx_signal.take(Duration::ZERO));
    assert_eq!(poll(&mut a, 3_500_000), Link::Down, "up and down again");
    assert_eq!(poll(&mut b, 4_000_001), Link::Up);
    close(a, b);
}

#[test]
fn a_lost_completion_interrupt_costs_a_moment() {
    let mut load = Load::new(small(), small());
    load.step(20);
    load.a.driver.control().lose_interrupts(1);
    assert_eq!(
        load.a.tx.arm(),
        Armed::Idle,
        "it believes that it will be woken"
    );
    assert!(!load.a.tx_signal.take(Duration::ZERO));
    assert_eq!(load.a.tx.in_flight(), 20);
    load.now = load
        .a
        .tx
        .retry_at(load.now)
        .expect("it does not sleep for ever");
    assert_eq!(load.now, Instant::default().after(TX_POLL_AFTER));
    load.step(0);
    assert_eq!(load.a.tx.in_flight(), 0);
    let counters = load.counters();
    let troubles: Vec<_> = counters.troubles().collect();
    assert_eq!(troubles, [(Trouble::MissedWakeup, 1)]);
    assert_eq!(counters.resets, 0);
    load.end(0);
}

#[test]
fn lost_completions_are_found_and_the_queue_reset() {
    let mut load = Load::new(small(), small());
    load.a.driver.control().lose_completions(3);
    for _ in 0..100 {
        load.now = load.now.after(Duration::from_millis(50));
        load.step(5);
        load.receive();
    }
    let counters = load.counters();
    assert_eq!((counters.lost_completions, counters.resets), (3, 1));
    assert_eq!((counters.taken_back, counters.hangs), (0, 0));
    load.end(0);
}

#[test]
fn a_device_that_hangs_under_load_is_reset_and_loses_nothing() {
    let mut load = Load::new(
        SimConfig {
            tx_ring: 64,
            ..small()
        },
        pausing(small()),
    );
    for round in 0..3_u64 {
        load.step(30);
        load.receive();
        load.a.driver.control().hang(0);
        let hung_at = load.now;
        while load.counters().resets == round {
            load.now = load.now.after(Duration::from_millis(20));
            load.step(30);
            load.receive();
            assert!(load.now.since(hung_at) < 2 * TX_HUNG_AFTER);
        }
        assert!(load.now.since(hung_at) >= TX_HUNG_AFTER);
        let trouble = *load.a.tx.trouble().unwrap();
        assert_eq!((trouble.cause, trouble.was_reset), (Trouble::Hung, true));
        assert!(trouble.in_flight > 0 && trouble.held > 0, "{trouble:?}");
    }
    let counters = load.counters();
    assert_eq!((counters.hangs, counters.resets), (3, 3));
    assert!(counters.taken_back > 0);
    load.end(0);
}

/// A packet that hardware cuts was sent in part: it is lost, counted under its reason, and its rest
/// does not follow.
#[test]
fn a_packet_that_left_in_part_is_not_sent_twice() {
    let receiver = pausing(rx_ring(8));
    let (mut a, mut b) = stations(SimConfig::default(), receiver);
    let bytes = tcp4(&Segment {
        payload: 20_000,
        ..Segment::default()
    });
    let mut packet = a.arena.packet_from(&bytes).unwrap();
    let meta = packet.meta_mut();
    meta.layout = Layout::parse(LinkType::Ethernet, &bytes[..64], bytes.len() as u32).ok();
    meta.gso = Some(Gso::new(GsoKind::TcpV4, NonZeroU16::new(1000).unwrap()));
    meta.checksum = ChecksumState::Partial {
        start: 34,
        offset: 16,
    };
    meta.wire_packets = 20;
    let mut burst = Burst::new();
    burst.push(packet).unwrap();
    a.tx.transmit(&mut burst).unwrap();
    assert_eq!(a.tx.in_flight(), 1);
    assert!(a.tx.reset(Instant::default()).unwrap());
    let counters = a.tx.counters().snapshot();
    assert_eq!((counters.wire_packets, counters.taken_back), (20, 20));
    assert_eq!(b.receive().len(), 7);
    a.send(&frames(1, 100));
    assert_eq!(b.receive(), frames(1, 100));
    a.tx.reclaim(Instant::default());
    close(a, b);
}

#[test]
fn a_receiver_that_pauses_for_long_is_nobodys_fault() {
    let receiver = pausing(small());
    let mut load = Load::new(small(), receiver);
    for _ in 0..100 {
        load.now = load.now.after(Duration::from_millis(100));
        load.step(64);
    }
    assert_eq!(load.counters().troubles().count(), 0);
    assert!(load.counters().stalls > 0);
    load.end(0);
}

/// S1's media change: the link goes down and up while packets are in flight.
#[test]
fn a_link_that_comes_and_goes_under_load_loses_only_what_is_counted() {
    for seed in 0..50 {
        let mut dice = Random::new(seed);
        let mut load = Load::new(
            SimConfig {
                delay: CompletionDelay::Packets(5),
                reorder: true,
                ..small()
            },
            pausing(small()),
        );
        let (mut up, mut changes) = (true, 0);
        for _ in 0..300 {
            load.now = load.now.after(Duration::from_micros(dice.below(20_000)));
            if dice.below(10) == 0 {
                up = !up;
                changes += u64::from(!up);
                load.a.driver.control().set_link(up);
            }
            match dice.below(20) {
                0 => load.a.tx.stop(),
                1 => load.a.tx.resume(),
                _ => {}
            }
            load.step(dice.index(40));
            if dice.below(3) > 0 {
                load.receive();
            }
        }
        load.a.tx.resume();
        load.a.driver.control().set_link(true);
        let refused = load.dropped();
        assert_eq!(
            refused.total(),
            refused.get(DropReason::LinkDown),
            "seed {seed}"
        );
        let counters = load.counters();
        assert!(counters.stall_link_down <= changes, "seed {seed}");
        assert_eq!(counters.resets, 0, "seed {seed}");
        // The device counts the packets that it had when the cable was pulled.
        let in_vain = load.a.driver.control().device_counters().rx_dropped;
        load.step(0);
        load.end(refused.total() + in_vain);
    }
}

/// A wake-up between the last poll and the sleep is not lost.
#[test]
fn no_wake_up_is_lost_between_arming_and_sleeping() {
    let receiver = pausing(rx_ring(8));
    let (mut a, mut b) = stations(
        SimConfig {
            tx_ring: 16,
            ..SimConfig::default()
        },
        receiver,
    );
    const PACKETS: usize = 20_000;
    let reader = std::thread::spawn(move || {
        let mut got = 0;
        while got < PACKETS {
            got += b.receive().len();
            std::thread::yield_now();
        }
        b
    });
    let (mut burst, mut offered) = (Burst::new(), 0);
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        // The clock is stopped, so the watchdog cannot help.
        a.tx.service(Instant::default()).unwrap();
        while offered < PACKETS && burst.room() > 0 {
            let packet = frame(offered, 60).to_packet(&a.arena, LinkType::Ethernet, || 1500);
            burst.push(packet.unwrap()).unwrap();
            offered += 1;
        }
        let sent = a.tx.transmit(&mut burst).unwrap();
        if sent == Sent::All {
            if offered == PACKETS && a.tx.in_flight() == 0 {
                break;
            }
            if offered < PACKETS {
                continue;
            }
        }
        if a.tx.arm() == Armed::Idle && (a.tx.in_flight() > 0 || !a.tx.is_ready()) {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            assert!(a.tx_signal.take(left), "it slept for ever");
        }
    }
    let b = reader.join().unwrap();
    assert_eq!(a.tx.counters().snapshot().missed_wakeups, 0);
    close(a, b);
}

/// A device with a rate knows when it completes the packets that its queue is armed for.
#[test]
fn a_device_with_a_rate_completes_in_time_and_says_when() {
    let at = |us: u64| Instant::from_nanos(us * 1000);
    for (interrupts, wakes_at) in [(Interrupts::Counted, 500), (Interrupts::Each, 100)] {
        let config = SimConfig {
            rate: Some(10_000),
            interrupts,
            ..small()
        };
        let (mut a, mut b) = stations(config, small());
        a.tx.service(at(0)).unwrap();
        a.send(&frames(10, 100));
        assert_eq!(b.receive(), frames(10, 100), "packets arrive at once");
        assert_eq!(a.tx.device().next_at(), None, "it is not armed");
        assert_eq!(a.tx.arm(), Armed::Idle);
        assert_eq!(a.tx.device().next_at(), Some(at(wakes_at)));
        assert_eq!(a.tx.reclaim(at(499)), 4);
        assert_eq!(a.tx.device().next_at(), None, "it is awake");
        assert_eq!(a.tx.reclaim(at(500)), 1);
        a.driver.control().lose_interrupts(1);
        assert_eq!(a.tx.arm(), Armed::Idle);
        assert_eq!(a.tx.device().next_at(), None, "the interrupt is lost");
        let lost = || a.driver.control().happened(SimFault::LoseInterrupt);
        assert_eq!((a.tx.reclaim(at(599)), lost()), (0, 0), "it was not needed");
        assert_eq!(a.tx.arm(), Armed::Idle);
        assert_eq!(a.tx.device().next_at(), None, "the next one is lost");
        assert_eq!((a.tx.reclaim(at(1000)), lost()), (5, 1));
        close(a, b);
    }
}

/// Two queues are armed, and one interrupt is to be lost.
#[test]
fn one_interrupt_at_a_time_has_a_fault() {
    let wire = Wire::new([small(), small()], [1, 0]);
    let (end, fault) = (wire.end(0), SimFault::LoseInterrupt);
    end.add_faults(fault, 1);
    assert_eq!([end.claims(fault), end.claims(fault)], [true, false]);
    end.settles(fault, false);
    assert_eq!([end.claims(fault), end.claims(fault)], [true, false]);
    end.settles(fault, true);
    assert!(!end.claims(fault));
    assert_eq!(end.happened(fault), 1);
}

/// A queue that is not armed raises no interrupt; an armed one raises it once, also for a change of
/// the link.
#[test]
fn an_interrupt_is_raised_once_for_each_time_that_the_queue_is_armed() {
    let (mut a, mut b) = stations(small(), small());
    let raised = |b: &Station| b.rx_signal.take(Duration::ZERO);
    a.send(&frames(3, 100));
    assert!(!raised(&b), "it is not armed");
    assert_eq!(b.rx.arm(), Armed::WorkPending);
    assert_eq!(b.receive().len(), 3);
    assert_eq!(b.rx.arm(), Armed::Idle);
    a.send(&frames(1, 100));
    assert!(raised(&b));
    a.send(&frames(1, 100));
    assert!(!raised(&b), "once for each time");
    assert_eq!(b.receive().len(), 2);
    a.send(&frames(1, 100));
    assert!(!raised(&b), "it is awake");
    assert_eq!(b.receive().len(), 1);
    b.driver.control().set_link(false);
    assert!(!raised(&b));
    assert_eq!(b.rx.arm(), Armed::Idle);
    b.driver.control().set_link(true);
    assert!(raised(&b));
    assert_eq!(b.rx.arm(), Armed::Idle);
    b.driver.control().remove();
    assert!(raised(&b));
    assert_eq!(b.rx.arm(), Armed::WorkPending, "to find the device removed");
    a.tx.reclaim(Instant::default());
    close(a, b);
}

/// The driver compares what the device wrote with its buffer. Each costs one packet.
#[test]
fn a_descriptor_with_a_wrong_length_costs_its_packet() {
    #[derive(Debug, Default)]
    struct Reasons(Vec<DropReason>);
    impl BadPackets for Reasons {
        fn bad(&mut self, reason: DropReason, wire_packets: u64) {
            self.0.extend((0..wire_packets).map(|_| reason));
        }
    }
    // In one buffer, and in several.
    for bytes in [100, 5000] {
        let (a, b) = pair(small(), small(), 7);
        let (mut a, mut b) = receiving_into(a, b, RxBuffers::PIECES);
        let (sent, control) = (frames(5, bytes), b.driver.control());
        a.send(&sent[..1]);
        control.truncate_next(1);
        a.send(&sent[1..3]);
        control.overrun_next(1);
        a.send(&sent[3..]);
        let (mut burst, mut reasons) = (Burst::new(), Reasons::default());
        let mut sink = RxBurst::new(&mut burst, 64, &mut reasons);
        let received = b.rx.device_mut().receive(Instant::default(), &mut sink);
        received.unwrap();
        let got: Vec<_> = burst.iter().map(Outside::of).collect();
        let good = [0, 2, 4].map(|n: usize| sent[n].clone());
        assert_eq!(got, good, "{bytes}");
        assert_eq!(reasons.0, [DropReason::Truncated, DropReason::TooLong]);
        assert_eq!(control.counters().bad_descriptors, 2);
        drop(burst);
        a.tx.reclaim(Instant::default());
        close(a, b);
    }
}

#[test]
fn late_completions_come_in_order_and_are_not_lost() {
    let mut load = Load::new(small(), small());
    load.a.driver.control().delay_completions(2);
    load.step(20);
    let quiet = |load: &mut Load| {
        load.now = load.now.after(Duration::from_millis(1));
        load.a.tx.reclaim(load.now);
        load.a.tx.in_flight()
    };
    let states: Vec<_> = (0..18).map(|_| quiet(&mut load)).collect();
    let end = states.iter().position(|&left| left == 0);
    assert!(end.is_some_and(|calls| calls >= 15), "{states:?}");
    assert!(
        states.iter().all(|left| [0, 20].contains(left)),
        "{states:?}"
    );
    assert_eq!(load.counters().troubles().count(), 0);
    load.receive();
    load.end(0);
}

#[test]
fn a_completion_that_is_reported_twice_is_counted_and_frees_one_packet() {
    let mut load = Load::new(small(), small());
    load.a.driver.control().repeat_completions(3);
    for _ in 0..5 {
        load.now = load.now.after(Duration::from_millis(1));
        load.step(20);
        load.receive();
    }
    let counters = load.counters();
    assert_eq!((counters.bad_completions, counters.resets), (3, 0));
    load.end(0);
}

#[test]
fn a_repeat_for_which_there_is_no_room_comes_later() {
    let (mut a, mut b) = stations(small(), small());
    a.driver.control().repeat_completions(1);
    let mut packet = a.arena.packet_from(&frame(0, 100).bytes).unwrap();
    let device = a.tx.device_mut();
    for (capacity, times) in [(1, 1), (4, 2)] {
        let mut fitted = TxPacket::fitted(&mut packet);
        device.encap(&mut fitted, Token(0)).unwrap();
        device.flush(Instant::default()).unwrap();
        let mut completed = Completed::with_capacity(capacity);
        device.reclaim(Instant::default(), &mut completed);
        assert_eq!(completed.drain().count(), times);
    }
    drop(packet);
    assert_eq!(b.receive().len(), 2);
    close(a, b);
}

#[test]
fn a_late_interrupt_is_waited_for_and_a_spurious_one_does_no_harm() {
    let at = |us: u64| Instant::from_nanos(us * 1000);
    let config = SimConfig {
        rate: Some(10_000),
        ..small()
    };
    let (mut a, mut b) = stations(config, small());
    a.tx.service(at(0)).unwrap();
    a.send(&frames(10, 100));
    let control = a.driver.control();
    control.delay_interrupts(1);
    assert_eq!(a.tx.arm(), Armed::Idle);
    assert_eq!(a.tx.device().next_at(), Some(at(500 + 1000)));
    control.interrupt(0);
    control.interrupt(99);
    assert!(a.tx_signal.take(Duration::ZERO) && a.rx_signal.take(Duration::ZERO));
    a.tx.service(at(1500)).unwrap();
    let counters = a.tx.counters().snapshot();
    assert_eq!((counters.reclaimed, counters.missed_wakeups), (10, 0));
    assert_eq!(b.receive(), frames(10, 100));
    close(a, b);
}

/// The device has room again between the refusal and `arm`: it finds no armed queue to wake.
#[test]
fn a_queue_is_not_armed_if_the_device_has_room_again() {
    let mut load = Load::new(small(), small());
    let control = load.a.driver.control();
    control.set_full(true);
    load.step(5);
    control.set_full(false);
    assert_eq!(load.a.tx.arm(), Armed::WorkPending);
    load.step(0);
    assert_eq!(load.a.tx.held(), 0);
    assert_eq!(load.a.tx.reclaim(load.now), 5);
    assert_eq!(load.a.tx.arm(), Armed::Idle);
    load.receive();
    load.end(0);
}

/// No packet is lost. The queue is woken when the device has room again.
#[test]
fn a_device_that_is_full_for_a_while_stalls_its_queue() {
    let mut load = Load::new(small(), small());
    let control = load.a.driver.control();
    load.step(10);
    load.receive();
    control.set_full(true);
    load.step(30);
    load.step(0);
    assert_eq!((load.a.tx.in_flight(), load.a.tx.held()), (0, 30));
    assert_eq!(load.counters().stall_no_desc, 1);
    assert_eq!(load.a.tx.arm(), Armed::Idle);
    assert!(!load.a.tx_signal.take(Duration::ZERO));
    control.set_full(false);
    assert!(load.a.tx_signal.take(Duration::ZERO));
    load.step(0);
    assert_eq!((load.a.tx.held(), load.counters().restarts), (0, 1));
    load.end(0);
}
