//! The promises of the driver contract, one function each.

use super::bench::{Bench, Dice, HEADERS, LATE_ROUNDS, QUIET_ROUNDS, gso, partial, probe};
use super::outside::Outside;
use super::probe::{Matcher, Probe};
use super::{Fills, Injects, Observes, Outcome, Rig};
use packtrain::driver::{Armed, Driver, Features, RxDescriptors, TxDescriptors};
use packtrain::limits::BURST_PACKETS_MAX;
use packtrain::packet::{Burst, FrameClass, Packet, VlanTag};
use packtrain::stats::DropReason;
use packtrain_offload::offload::{ChecksumState, Gso, GsoKind, LinkType};
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

/// Packets of one case.
const PACKETS: usize = 400;
/// A payload that fits the smallest common MTU with any headers.
const PAYLOAD_MAX: usize = 1400;
const NEVER_INJECTS: Outcome = Outcome::DoesNotApply("no packets can be injected");
const NEVER_OBSERVES: Outcome = Outcome::DoesNotApply("no packets can be observed");

/// Complete packets to inject, with random protocols and lengths.
fn complete(seed: u64, link: LinkType, count: usize) -> Vec<Vec<u8>> {
    let mut dice = Dice::new(!seed);
    (1..=count)
        .map(|number| probe(&mut dice, link, number as u32, PAYLOAD_MAX).complete())
        .collect()
}

fn outside(packets: &[Vec<u8>]) -> Vec<Outside> {
    packets.iter().cloned().map(Outside::complete).collect()
}

/// A bench whose feed has [`PACKETS`] complete packets, and the packets.
fn fed<R: Rig>(mut rig: R, seed: u64) -> (Bench<R>, Vec<Vec<u8>>) {
    let link = rig.driver().capabilities().link;
    let packets = complete(seed, link, PACKETS);
    let bench = Bench::new(rig, seed, Features::ALL, outside(&packets));
    (bench, packets)
}

/// A matcher that expects these packets.
fn expecting<R: Rig>(bench: &Bench<R>, packets: &[Vec<u8>]) -> Matcher {
    let mut matcher = bench.matcher();
    let packets = packets.iter().cloned();
    packets.for_each(|bytes| matcher.expect_finished(bytes));
    matcher
}

/// Adds a complete packet to a burst with room, and to those that are expected.
fn add_complete<R: Rig>(bench: &mut Bench<R>, burst: &mut Burst, matcher: &mut Matcher) {
    let bytes = bench.probe(PAYLOAD_MAX).complete();
    let packet = bench.packet(&Outside::complete(bytes.clone()));
    matcher.expect_finished(bytes);
    burst.push(packet).expect("there is room");
}

/// Each packet has arrived, but for a rig that may lose some.
fn assert_done<R: Rig>(bench: &Bench<R>, matcher: &Matcher) {
    let is_done = matcher.is_done() || bench.traits.window == 0;
    assert!(is_done, "{} packets did not arrive", matcher.missing());
}

/// Packets are received whole, once, and in order.
///
/// # Panics
///
/// If the promise is broken, as all of these functions.
pub fn receives_in_order<R: Rig>(rig: R, seed: u64) -> Outcome {
    if matches!(rig.traits().injects, Injects::Never | Injects::Itself) {
        return NEVER_INJECTS;
    }
    let (mut bench, packets) = fed(rig, seed);
    let mut matcher = expecting(&bench, &packets);
    bench.receive_expected(&mut matcher, &mut |_| {});
    assert!(
        bench.feed.is_empty(),
        "{} were never injected",
        bench.feed.len()
    );
    assert_done(&bench, &matcher);
    assert!(matcher.matched > 0, "no packet arrived");
    bench.finish();
    Outcome::Passed
}

/// Packets are sent whole, once, and in order, with any number of segments.
pub fn transmits_in_order<R: Rig>(rig: R, seed: u64) -> Outcome {
    if rig.traits().observes == Observes::Never {
        return NEVER_OBSERVES;
    }
    let mut bench = Bench::new(rig, seed, Features::ALL, Vec::new());
    let mut matcher = bench.matcher();
    let mut left = PACKETS;
    while left > 0 {
        let window = bench.traits.window.clamp(1, BURST_PACKETS_MAX);
        let n = bench.dice.roll(1, left.min(window));
        left -= n;
        let mut burst = Burst::new();
        for _ in 0..n {
            add_complete(&mut bench, &mut burst, &mut matcher);
        }
        bench.transmit_all(&mut burst, &mut matcher);
        bench.observe(&mut matcher);
    }
    bench.observe_all(&mut matcher);
    assert_done(&bench, &matcher);
    assert!(matcher.matched > 0, "no packet was sent");
    assert_eq!(bench.tx_drops.snapshot().total(), 0);
    assert!(
        bench.tx_counters.doorbells.get() > 0,
        "no doorbell was counted"
    );
    bench.finish();
    Outcome::Passed
}

/// A full device loses no packets and keeps their order: refused packets are offered again.
pub fn resumes_after_a_full_device<R: Rig>(rig: R, seed: u64) -> Outcome {
    let traits = rig.traits();
    match (traits.observes, traits.fills) {
        (Observes::Never, _) => return NEVER_OBSERVES,
        (Observes::AfterDetach, _) => {
            return Outcome::DoesNotApply("no packets can be observed while it runs");
        }
        (Observes::Live, Fills::Never(why)) => return Outcome::DoesNotApply(why),
        (Observes::Live, Fills::Unstated) => panic!(
            "the rig does not state whether its device becomes full: set `fills` of `Traits` to \
             `Fills::Yes`, or to `Fills::Never` with the reason"
        ),
        (Observes::Live, Fills::Yes) => {}
    }
    let mut bench = Bench::new(rig, seed, Features::ALL, Vec::new());
    let mut matcher = bench.matcher();
    let mut burst = Burst::new();
    let (mut submitted, mut stalls) = (0_u64, 0);
    for round in 0..40 {
        while burst.room() > 0 {
            let enough = bench.arena.census().small_free > 64;
            if round > 30 || !enough {
                break;
            }
            add_complete(&mut bench, &mut burst, &mut matcher);
            submitted += 1;
        }
        bench.transmit(&mut burst);
        let waits = burst.wire_packets() + bench.tx().held();
        stalls += u64::from(waits > 0);
        let accepted = bench.tx_counters.wire_packets.get();
        assert_eq!(accepted + waits, submitted, "accepted and waiting");
        if waits > 0 {
            bench.observe(&mut matcher);
        }
    }
    assert!(stalls > 0, "the device was never full");
    assert!(bench.tx_counters.stalls.get() > 0);
    bench.transmit_all(&mut burst, &mut matcher);
    bench.observe_all(&mut matcher);
    assert!(matcher.is_done(), "{} packets were lost", matcher.missing());
    assert_eq!(bench.tx_drops.snapshot().total(), 0);
    assert!(bench.tx_counters.restarts.get() > 0, "it never resumed");
    bench.finish();
    Outcome::Passed
}

/// A poll receives no more than its budget, including bad packets.
pub fn keeps_to_the_budget<R: Rig>(rig: R, seed: u64) -> Outcome {
    if rig.traits().injects == Injects::Never {
        return NEVER_INJECTS;
    }
    let (mut bench, _) = fed(rig, seed);
    let (mut received, mut filled) = (0, 0);
    for _ in 0..PACKETS {
        bench.inject();
        let budget = bench.dice.roll(1, 8);
        // `poll` itself checks the bound.
        let got = bench.poll(budget, &mut drop);
        received += got;
        filled += usize::from(got == budget);
        if received >= PACKETS {
            break;
        }
        if got == 0 {
            bench.pause();
        }
    }
    assert!(received > 0, "no packet arrived");
    assert!(filled > 0, "no poll was ended by its budget");
    assert!(bench.rx_counters.budget_exhausted.get() > 0);
    bench.finish();
    Outcome::Passed
}

/// A bad packet is counted and dropped, and the packets around it arrive.
pub fn loses_one_packet_to_a_bad_one<R: Rig>(mut rig: R, seed: u64) -> Outcome {
    let traits = rig.traits();
    let tag = traits.tag;
    if !traits.injects_bad {
        return Outcome::DoesNotApply("no bad packets can be injected");
    }
    let link = rig.driver().capabilities().link;
    let packets = complete(seed, link, PACKETS);
    let mut dice = Dice::new(seed);
    let mut bad = 0;
    let mut bench;
    let mut matcher;
    if traits.injects == Injects::BeforeAttach {
        for packet in outside(&packets) {
            bad += u64::from(dice.roll(0, 9) == 0 && rig.inject_bad());
            assert!(rig.inject(&packet));
        }
        bench = Bench::new(rig, seed, Features::ALL, Vec::new());
        matcher = expecting(&bench, &packets);
    } else {
        bench = Bench::new(rig, seed, Features::ALL, Vec::new());
        matcher = expecting(&bench, &packets);
        for packet in outside(&packets) {
            bad += u64::from(dice.roll(0, 9) == 0 && bench.rig.inject_bad());
            bench.feed.push_back(packet);
            bench.inject();
            bench.poll(BURST_PACKETS_MAX, &mut |packet| {
                matcher.arrived(&Outside::received(&packet, tag));
            });
        }
    }
    bench.receive_expected(&mut matcher, &mut |_| {});
    assert!(bad > 0, "the rig made no bad packet");
    assert!(
        matcher.is_done(),
        "{} good packets were lost",
        matcher.missing()
    );
    assert_eq!(bench.rx_counters.bad_packets.get(), bad);
    assert_eq!(bench.rx_drops.snapshot().total(), bad);
    bench.finish();
    Outcome::Passed
}

/// Queues that are dropped with packets in flight free every frame.
pub fn leaks_nothing_when_detached_in_flight<R: Rig>(rig: R, seed: u64) -> Outcome {
    let (mut bench, _) = fed(rig, seed);
    let rounds = bench.dice.roll(1, 6);
    for _ in 0..rounds {
        bench.inject();
        let mut burst = Burst::new();
        for _ in 0..bench.dice.roll(0, BURST_PACKETS_MAX / 2) {
            let (whole, _) = gso(&bench.probe(8000), SIZE);
            // A device may keep all of them.
            let Some(packet) = bench.try_packet(&whole) else {
                break;
            };
            burst.push(packet).expect("a burst takes as many");
        }
        bench.tx().transmit(&mut burst).expect("the device works");
        let budget = bench.dice.roll(1, 8);
        bench.poll(budget, &mut drop);
    }
    bench.finish();
    Outcome::Passed
}

/// The ledger balances, and the counters equal those of an independent count.
pub fn balances_the_ledger<R: Rig>(rig: R, seed: u64) -> Outcome {
    let injects = rig.traits().injects;
    let (mut bench, _) = fed(rig, seed);
    let (mut received, mut received_bytes) = (0, 0);
    let mut count = |packet: Packet| {
        received += u64::from(packet.meta().wire_packets);
        received_bytes += packet.bytes() as u64;
    };
    if injects == Injects::Itself {
        (0..20).for_each(|_| {
            bench.poll(BURST_PACKETS_MAX, &mut count);
        });
    } else {
        bench.receive_all(&mut count);
    }
    let rx = bench.rx_counters.snapshot();
    let lost = bench.rx_drops.snapshot().total();
    assert_eq!(
        rx.wire_packets,
        received + lost,
        "received = handed over + dropped"
    );
    assert_eq!(rx.bytes, received_bytes);
    if injects != Injects::Never {
        assert!(received > 0, "no packet arrived");
    }
    let mut submitted = 0;
    for _ in 0..20 {
        let mut burst = Burst::new();
        for _ in 0..bench.dice.roll(1, 16) {
            let packet = any_packet(&mut bench);
            submitted += u64::from(packet.meta().wire_packets);
            burst.push(packet).expect("a burst takes as many");
        }
        drain(&mut bench, &mut burst);
    }
    let tx = bench.tx_counters.snapshot();
    let lost = bench.tx_drops.snapshot().total();
    let held = bench.tx().held();
    assert_eq!(
        submitted + tx.expanded,
        tx.wire_packets + tx.absorbed + held + lost,
        "submitted + expanded = transmitted + absorbed + held + dropped: {tx:?}"
    );
    bench.complete_all();
    compare_with_device(&mut bench);
    bench.finish();
    Outcome::Passed
}

/// A packet of some kind, or one that no device can send.
fn any_packet<R: Rig>(bench: &mut Bench<R>) -> Packet {
    let probe = bench.probe(PAYLOAD_MAX * 4);
    let (whole, _) = gso(&probe, SIZE);
    let mut packet = bench.packet(&whole);
    match bench.dice.roll(0, 9) {
        // A GSO packet without a layout.
        0 => packet.meta_mut().layout = None,
        // A checksum far beyond the end.
        1 => {
            packet.meta_mut().gso = None;
            packet.meta_mut().wire_packets = 1;
            let (start, offset) = (60_000, 16);
            packet.meta_mut().checksum = ChecksumState::Partial { start, offset };
        }
        // The wrong kind of GSO packet.
        2 => {
            let kind = if probe.kind.is_ipv6() {
                GsoKind::TcpV4
            } else {
                GsoKind::UdpV6
            };
            packet.meta_mut().gso = Some(Gso::new(kind, SIZE));
        }
        3 => packet.truncate(bench.dice.roll(1, 60)),
        4..=6 => {
            let small = bench.probe(PAYLOAD_MAX).complete();
            packet = bench.packet(&Outside::complete(small));
        }
        _ => {}
    }
    packet
}

/// Transmits until no packet waits, without checks.
fn drain<R: Rig>(bench: &mut Bench<R>, burst: &mut Burst) {
    for _ in 0..LATE_ROUNDS * QUIET_ROUNDS {
        bench.transmit(burst);
        if burst.is_empty() && bench.tx().is_ready() {
            return;
        }
        while bench.traits.observes == Observes::Live && bench.rig.observe().is_some() {}
        bench.pause();
    }
    panic!(
        "the device makes no progress: {:?}",
        bench.tx_counters.snapshot()
    );
}

fn compare_with_device<R: Rig>(bench: &mut Bench<R>) {
    let (rx, tx) = (bench.rx_counters.snapshot(), bench.tx_counters.snapshot());
    if !bench.traits.counts_exactly {
        return;
    }
    let device = bench.rig.driver().device_counters().expect("it counts");
    let counted = device.rx_packets + device.rx_dropped + device.rx_errors;
    // The device may also have counted refused packets: sent again without a feature, or dropped.
    let refused = tx.refused_features + bench.tx_drops.snapshot().total();
    assert!(
        (tx.packets..=tx.packets + refused).contains(&counted),
        "packets transmitted = packets received by the device: {device:?} {tx:?} {refused} refused"
    );
    assert_eq!(
        device.tx_packets,
        rx.packets + rx.bad_packets,
        "packets sent by the device = packets received: {device:?}"
    );
    if device.rx_dropped + device.rx_errors == 0 {
        assert_eq!(device.rx_bytes, tx.bytes);
    }
    if rx.bad_packets == 0 {
        assert_eq!(device.tx_bytes, rx.bytes);
    }
}

/// A device without buffers only loses packets. With buffers it receives again.
pub fn recovers_from_an_empty_arena<R: Rig>(mut rig: R, seed: u64) -> Outcome {
    let injects = rig.traits().injects;
    if !matches!(injects, Injects::Live | Injects::Itself) {
        return Outcome::DoesNotApply("no packets can be injected while it runs");
    }
    let link = rig.driver().capabilities().link;
    let mut bench = Bench::new(rig, seed, Features::ALL, Vec::new());
    let packets = complete(seed, link, 2008);
    let (packets, last) = packets.split_at(2000);
    bench.feed.extend(outside(packets));
    let mut hoard = Vec::new();
    for _ in 0..LATE_ROUNDS * QUIET_ROUNDS {
        if bench.rx_counters.alloc_fail.get() > 0 {
            break;
        }
        for class in [FrameClass::Small, FrameClass::Large] {
            while let Ok(packet) = bench.arena.packet(class) {
                hoard.push(packet);
            }
        }
        let injected = bench.inject();
        let got = bench.poll(BURST_PACKETS_MAX, &mut |packet| hoard.push(packet));
        if injected + got == 0 {
            bench.pause();
        }
    }
    assert!(
        bench.rx_counters.alloc_fail.get() > 0,
        "it never ran out of buffers"
    );
    hoard.clear();
    // Packets may have been lost meanwhile, or come late; those from now on must arrive.
    bench.feed.clear();
    if injects == Injects::Live {
        bench.receive_all(&mut drop);
    }
    let before = bench.rx_counters.packets.get();
    bench.poll(1, &mut drop);
    bench.feed.extend(outside(last));
    if injects == Injects::Live {
        let mut matcher = expecting(&bench, last);
        matcher.skips_others = true;
        bench.receive_expected(&mut matcher, &mut |_| {});
        assert_done(&bench, &matcher);
    } else {
        bench.poll(8, &mut drop);
    }
    assert!(
        bench.rx_counters.packets.get() > before,
        "it did not recover"
    );
    bench.finish();
    Outcome::Passed
}

/// The longest time from a packet to its wake-up, on a busy machine, besides the rig's latency.
const WOKEN_MAX: Duration = Duration::from_secs(5);

/// Why no wake-up came, in the words of the contract.
fn no_wake_up(event: &str, has_descriptor: bool) -> String {
    let cause = if has_descriptor {
        "the descriptor of `wake` did not become ready"
    } else {
        "`wake` has no descriptor, and the interrupt of `set_interrupt` was not raised"
    };
    format!("{event}, and the worker sleeps: `arm` returned `Idle`, and {cause} for {WOKEN_MAX:?}")
}

/// No worker sleeps while a packet waits: `arm` reports it, or the descriptor becomes ready.
pub fn arm_reports_waiting_work<R: Rig>(mut rig: R, seed: u64) -> Outcome {
    let injects = rig.traits().injects;
    if injects == Injects::Never {
        return NEVER_INJECTS;
    }
    let link = rig.driver().capabilities().link;
    let packets = complete(seed, link, 40);
    let live = injects == Injects::Live;
    let feed = if live { Vec::new() } else { outside(&packets) };
    let mut bench = Bench::new(rig, seed, Features::ALL, feed);
    if !live {
        assert_eq!(
            bench.rx().arm(),
            Armed::WorkPending,
            "packets wait from the start"
        );
        bench.finish();
        return Outcome::Passed;
    }
    let mut slept = 0;
    for packet in outside(&packets) {
        // Nothing is on its way: a packet that is late does no more than keep `arm` from sleep.
        while bench.poll(BURST_PACKETS_MAX, &mut drop) > 0 {}
        bench.rx_interrupt.clear();
        let idle = bench.rx().arm() == Armed::Idle;
        bench.feed.push_back(packet);
        // A wake-up before the packet does not count as its wake-up.
        let early = idle && bench.rx_is_raised(Duration::ZERO);
        if early {
            bench.rx_interrupt.clear();
        }
        assert_eq!(bench.inject(), 1, "the outside accepts a packet");
        let mut got = 0;
        if idle && !early {
            wakes_up(&mut bench, "a packet arrived");
            slept += 1;
            got = bench.poll(BURST_PACKETS_MAX, &mut drop);
            // The interrupt of an earlier packet may come after the packet was received.
            let is_late = got == 0 && bench.traits.window > 0;
            if is_late && bench.rx().arm() == Armed::Idle {
                wakes_up(&mut bench, "a packet arrived");
            }
        } else {
            let mut tries = 0;
            while bench.rx().arm() == Armed::Idle && !bench.rx_is_raised(Duration::ZERO) {
                tries += 1;
                assert!(tries < 120_000, "a packet waits and no wake-up comes");
                bench.pause();
            }
        }
        if got == 0 {
            got = bench.poll(BURST_PACKETS_MAX, &mut drop);
        }
        assert!(
            got > 0 || bench.traits.window == 0,
            "woken without a packet"
        );
    }
    assert!(slept > 0, "it was never idle");
    // The packet is there before `arm`.
    for packet in outside(&packets[..10]) {
        while bench.poll(BURST_PACKETS_MAX, &mut drop) > 0 {}
        bench.rx_interrupt.clear();
        bench.feed.push_back(packet);
        assert_eq!(bench.inject(), 1, "the outside accepts a packet");
        std::thread::sleep(bench.traits.latency);
        if bench.rx().arm() == Armed::Idle {
            wakes_up(&mut bench, "a packet waited before `arm`");
        }
    }
    bench.finish();
    Outcome::Passed
}

/// The armed RX half ends the sleep of its worker.
fn wakes_up<R: Rig>(bench: &mut Bench<R>, event: &str) {
    let has_descriptor = bench.rx().device_mut().wake().is_some();
    let raised = bench.rx_is_raised(bench.traits.latency + WOKEN_MAX);
    assert!(raised, "{}", no_wake_up(event, has_descriptor));
}

/// An armed queue ends the sleep of its worker at a later event: its descriptor becomes ready, or
/// it raises its interrupt exactly once, or `next_at` has returned the time.
pub fn an_armed_queue_raises_its_interrupt_once<R: Rig>(rig: R, seed: u64) -> Outcome {
    let traits = rig.traits();
    let mut bench = Bench::new(rig, seed, Features::ALL, Vec::new());
    let receives = traits.injects == Injects::Live;
    let fills = traits.fills == Fills::Yes && traits.observes == Observes::Live;
    let received = if receives {
        rx_interrupts(&mut bench)
    } else {
        0
    };
    let completed = if fills { tx_interrupts(&mut bench) } else { 0 };
    bench.finish();
    if received + completed == 0 {
        return Outcome::DoesNotApply("the device never makes a worker wait");
    }
    Outcome::Passed
}

/// The number of sleeps that the RX half ended.
fn rx_interrupts<R: Rig>(bench: &mut Bench<R>) -> usize {
    let mut slept = 0;
    for _ in 0..20 {
        while bench.poll(BURST_PACKETS_MAX, &mut drop) > 0 {}
        bench.rx_interrupt.clear();
        if bench.rx().device_mut().arm() != Armed::Idle || bench.rx_is_raised(Duration::ZERO) {
            // Packets of other senders.
            continue;
        }
        let has_descriptor = bench.rx().device_mut().wake().is_some();
        for _ in 0..3 {
            let bytes = bench.probe(PAYLOAD_MAX).complete();
            bench.feed.push_back(Outside::complete(bytes));
            while bench.inject() == 0 {
                bench.pause();
            }
        }
        wakes_up(bench, "packets arrived");
        bench.receive_all(&mut drop);
        let count = bench.rx_interrupt.count();
        assert_eq!(count, u64::from(!has_descriptor), "interrupts of one `arm`");
        slept += 1;
    }
    slept
}

/// The number of sleeps that the TX half ended, with a full device.
fn tx_interrupts<R: Rig>(bench: &mut Bench<R>) -> usize {
    let mut matcher = bench.matcher();
    let (mut burst, mut slept) = (Burst::new(), 0);
    for round in 0..10 {
        for _ in 0..LATE_TRIES {
            while burst.room() > 0 && bench.arena.census().small_free > 64 {
                add_complete(bench, &mut burst, &mut matcher);
            }
            bench.tx().transmit(&mut burst).expect("the device works");
            bench.tx_interrupt.clear();
            if bench.tx().is_ready() {
                continue;
            }
            // In every other round there is room before `arm`.
            while round % 2 == 1 && bench.observe(&mut matcher) > 0 {}
            let armed = bench.tx().device_mut().arm();
            if armed == Some(Armed::Idle) && !bench.tx_is_raised(Duration::ZERO) {
                ends_sleep(bench, &mut matcher);
                slept += 1;
                break;
            }
        }
        bench.transmit_all(&mut burst, &mut matcher);
        bench.observe_all(&mut matcher);
    }
    bench.complete_all();
    slept
}

/// How often a full device may have room again before it is armed.
const LATE_TRIES: usize = 100;

/// The armed and full device makes room, and ends the sleep.
fn ends_sleep<R: Rig>(bench: &mut Bench<R>, matcher: &mut Matcher) {
    if let Some(at) = bench.tx().device_mut().next_at() {
        let completed = bench.reclaim_at(at);
        assert!(completed > 0, "no packet is completed at {at:?}");
        return;
    }
    let has_descriptor = bench.tx().device_mut().wake().is_some();
    let until = Instant::now() + bench.traits.latency + WOKEN_MAX;
    while !bench.tx_is_raised(Duration::ZERO) {
        let late = Instant::now() >= until;
        assert!(!late, "{}", no_wake_up("there is room", has_descriptor));
        if bench.observe(matcher) == 0 {
            bench.pause();
        }
    }
    bench.observe(matcher);
    let count = bench.tx_interrupt.count();
    assert_eq!(count, u64::from(!has_descriptor), "interrupts of one `arm`");
}

/// The payload of a wire packet of the suite.
const SIZE: NonZeroU16 = NonZeroU16::new(1000).expect("1000 is not 0");

/// Packets with all offloads.
fn offloaded(bench: &mut impl FnMut(usize) -> Probe, ethernet: bool) -> Vec<Probe> {
    let mut probes = Vec::new();
    for round in 0..24 {
        let mut probe = bench([9000, 400, 60_000][round % 3]);
        probe.cwr = probe.kind.is_tcp() && round % 4 == 0;
        if ethernet && round % 5 == 0 {
            let (protocol, control) = (0x8100, 0x6000 | round as u16);
            probe.vlan = Some(VlanTag { protocol, control });
        }
        probes.push(probe);
    }
    probes
}

fn transmits_with<R: Rig>(rig: R, seed: u64, features: Features) -> Outcome {
    if rig.traits().observes == Observes::Never {
        return NEVER_OBSERVES;
    }
    let mut bench = Bench::new(rig, seed, features, Vec::new());
    let mut matcher = bench.matcher();
    // A tag in the metadata would precede that of the port, which would then not be removed.
    let ethernet = bench.capabilities.link == LinkType::Ethernet && bench.traits.tag.is_none();
    let declared = bench.tx().features();
    let mut left_to_device = 0_u64;
    let longest = bench.longest() - HEADERS;
    for probe in offloaded(&mut |max| bench.probe(max.min(longest)), ethernet) {
        let gso_wanted = bench.dice.roll(0, 3) > 0;
        let (whole, expected, needs) = if gso_wanted {
            let (whole, expected) = gso(&probe, SIZE);
            (whole, expected, probe.gso_features())
        } else {
            let short = Probe {
                payload: probe.payload.min(PAYLOAD_MAX),
                cwr: false,
                ..probe
            };
            let (whole, expected) = partial(&short);
            (whole, expected, short.checksum_feature())
        };
        let mut packet = bench.packet(&whole);
        packet.meta_mut().vlan = probe.vlan;
        left_to_device += u64::from(declared.contains(needs));
        matcher.expect(expected);
        let mut burst = Burst::new();
        burst.push(packet).expect("an empty burst takes one");
        bench.transmit_all(&mut burst, &mut matcher);
        bench.observe(&mut matcher);
    }
    bench.observe_all(&mut matcher);
    assert_done(&bench, &matcher);
    let tx = bench.tx_counters.snapshot();
    if tx.refused_features == 0 && tx.gso_sw_packets == 0 {
        assert_eq!(tx.needs_csum, left_to_device, "offloads of the device");
    }
    if declared.is_empty() {
        assert_eq!(
            (tx.needs_csum, tx.gso_packets),
            (0, 0),
            "an offload that the device does not have"
        );
        assert!(tx.gso_sw_packets > 0 && tx.csum_sw > 0);
    }
    assert_eq!(bench.tx_drops.snapshot().total(), 0, "no packet is dropped");
    bench.finish();
    Outcome::Passed
}

/// GSO packets, partial checksums and VLAN tags are sent correctly: the device does the offloads
/// that it declares, and the TX queue the others.
pub fn transmits_with_the_offloads_it_declares<R: Rig>(rig: R, seed: u64) -> Outcome {
    transmits_with(rig, seed, Features::ALL)
}

/// The same packets are sent if the device does no offload, and if it does one less.
pub fn transmits_the_same_without_offloads<R: Rig>(rig: R, seed: u64) -> Outcome {
    let features = match seed % 3 {
        0 => Features::NONE,
        1 => Features::CSUM,
        _ => Features::ALL
            .without(Features::TSO4)
            .without(Features::USO6),
    };
    transmits_with(rig, seed, features)
}

/// Packets with offloads are received with them, or completed, by the features of the port.
pub fn receives_with_the_offloads_it_declares<R: Rig>(mut rig: R, seed: u64) -> Outcome {
    let traits = rig.traits();
    if traits.injects_offloads.is_empty() {
        return Outcome::DoesNotApply("no packets with offloads can be injected");
    }
    let capabilities = rig.driver().capabilities();
    let link = capabilities.link;
    let mut dice = Dice::new(seed);
    let mut number = 0;
    let mut next = |max: usize| {
        number += 1;
        probe(&mut dice, link, number, max)
    };
    let mut expected = Vec::new();
    let mut feed = Vec::new();
    for probe in offloaded(&mut next, false) {
        let (whole, packet) = if traits.injects_offloads.contains(probe.gso_features()) {
            gso(&probe, SIZE)
        } else {
            let payload = probe.payload.min(PAYLOAD_MAX);
            let cwr = false;
            partial(&Probe {
                payload,
                cwr,
                ..probe
            })
        };
        feed.push(whole);
        expected.push(packet);
    }
    let mut bench = Bench::new(rig, seed, Features::ALL, feed);
    let mut matcher = bench.matcher();
    expected
        .into_iter()
        .for_each(|packet| matcher.expect(packet));
    let mut wire_packets = 0;
    bench.receive_expected(&mut matcher, &mut |packet| {
        let meta = packet.meta();
        wire_packets += u64::from(meta.wire_packets);
        let needs = meta
            .gso
            .map_or(Features::NONE, |gso| Features::of(gso.kind));
        assert!(
            capabilities.rx.contains(needs),
            "{needs:?} was not declared"
        );
        if matches!(meta.checksum, ChecksumState::Partial { .. }) {
            let any = capabilities.rx.intersection(Features::CSUM);
            assert!(!any.is_empty(), "a partial checksum was not declared");
        }
    });
    assert_done(&bench, &matcher);
    let lost = bench.rx_drops.snapshot();
    assert_eq!(lost.get(DropReason::NoBuffer), 0);
    assert_eq!(
        bench.rx_counters.wire_packets.get(),
        wire_packets + lost.total()
    );
    bench.finish();
    Outcome::Passed
}
