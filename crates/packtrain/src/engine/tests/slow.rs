//! A device that is slower than who sends: how often the worker is woken for it. What is counted
//! are sleeps, on a clock of the test's own where the time of a wake-up matters.

use super::fake::{Queue, World, dispatched, plan_of};
use super::handles::wait_for;
use crate::driver::{Armed, Input};
use crate::engine::{Forward, Next, Session, Settings};
use crate::limits::{TX_POLL_AFTER, TX_REST_MAX};
use crate::plan::{Side, plan};
use crate::policy::dispatch::Dispatch;
use crate::policy::idle::Idle;
use crate::port::{open_pair, spec::PortSpec};
use crate::time::Instant;
use std::time::Duration;

/// At saturation the issue allows one context switch for 50 frames of the device.
const FRAMES_PER_SLEEP: usize = 50;

/// A device with 256 slots that needs as long for each packet, from port A to port B.
struct Slow {
    world: World<Forward>,
    device: Queue,
    each: Duration,
    now: Instant,
    /// When the packet in front is done.
    due: Option<Instant>,
    /// Times that the device had nothing to do.
    dry: usize,
    done: usize,
}

impl Slow {
    fn new(dispatch: Dispatch, counts: bool, each_ns: u64) -> Self {
        let plan = plan_of([1, 1]);
        let input = [Input::Endless; 2];
        let world = dispatched(&plan, [1, 1], input, None, dispatch, || Forward).unwrap();
        let device = world.b[0].clone();
        let mut tx = device.tx();
        (tx.keeps, tx.counts) = (true, counts);
        drop(tx);
        Self {
            world,
            device,
            each: Duration::from_nanos(each_ns),
            now: Instant::from_nanos(1),
            due: None,
            dry: 0,
            done: 0,
        }
    }

    /// Packets that the device has not sent.
    fn in_device(&self) -> usize {
        let tx = self.device.tx();
        tx.kept.len() - tx.complete
    }

    /// The time goes on, and the device with it.
    fn pass(&mut self, until: Instant) {
        while let Some(due) = self.due.filter(|&due| due <= until) {
            self.device.tx().complete += 1;
            self.done += 1;
            let left = self.in_device();
            self.dry += usize::from(left == 0);
            self.due = (left > 0).then(|| due.after(self.each));
        }
        self.now = until;
    }

    /// What the worker does before it sleeps; says until when by its clock, and whether it watches
    /// the device.
    fn settle(&mut self) -> (Option<Instant>, bool) {
        for _ in 0..1000 {
            let next = self.world.worker(0).step(self.now).unwrap();
            if self.due.is_none() && self.in_device() > 0 {
                self.due = Some(self.now.after(self.each));
            }
            if next == Next::Again || self.world.worker(0).arm() == Armed::WorkPending {
                continue;
            }
            let mut watched = 0;
            self.world.worker(0).interests(|_, _| watched += 1);
            let until = match next {
                Next::SleepUntil(time) => Some(time),
                _ => None,
            };
            // Its own, the RX queue of port B, and that of port A where packets may come.
            let stalled = self.world.closed().ledger.held > 0;
            return (until, watched > if stalled { 2 } else { 3 });
        }
        panic!("it does not settle")
    }

    /// When the device wakes who watches it.
    fn interrupt(&self) -> Option<Instant> {
        let tx = self.device.tx();
        let wanted = tx.armed_for.filter(|_| tx.counts).unwrap_or(1);
        let more = wanted.saturating_sub(tx.complete).max(1) as u32 - 1;
        drop(tx);
        self.due.map(|due| due.after(self.each * more))
    }
}

#[test]
fn a_device_that_is_full_wakes_the_worker_once_for_many_packets() {
    for dispatch in [Dispatch::Direct, Dispatch::Adaptive] {
        for (counts, each_ns) in [(true, 12_300), (true, 1000), (false, 12_300), (false, 1000)] {
            let name = format!("{dispatch}, counts: {counts}, {each_ns} ns");
            let mut slow = Slow::new(dispatch, counts, each_ns);
            let (mut sleeps, mut arrived) = (0, 0);
            while slow.done < 20_000 {
                let source = slow.world.a[0].clone();
                if source.rx().items.len() < 1000 {
                    source.arrive(arrived..arrived + 1000);
                    arrived += 1000;
                }
                let (until, watches) = slow.settle();
                let interrupt = slow.interrupt().filter(|_| watches);
                let wake = until.into_iter().chain(interrupt).min();
                slow.pass(wake.expect("it sleeps for ever"));
                sleeps += 1;
            }
            assert!(
                sleeps * FRAMES_PER_SLEEP < slow.done,
                "{name}: {sleeps} for {}",
                slow.done
            );
            assert_eq!(slow.dry, 0, "{name}");
            let tx = slow.world.closed().ports[1].tx[0];
            assert_eq!(tx.missed_wakeups, 0, "{name}");
        }
    }
}

/// Each packet finds the device idle, and is done before the next one comes.
#[test]
fn one_packet_at_a_time_wakes_nobody_for_its_completion() {
    for (dispatch, counts) in [(Dispatch::Direct, true), (Dispatch::Adaptive, false)] {
        let mut slow = Slow::new(dispatch, counts, 12_300);
        for number in 0..1000 {
            slow.world.a[0].arrive([number]);
            let (until, watches) = slow.settle();
            let next = slow.now.after(Duration::from_millis(1));
            assert!(!watches, "{dispatch}, packet {number}");
            assert!(until.unwrap() > next, "{dispatch}, packet {number}");
            assert!(slow.device.tx().kept.len() <= 2, "those before came back");
            slow.pass(next);
        }
        // And the memory of the last one comes back.
        let begin = slow.now;
        while let (Some(until), _) = slow.settle() {
            slow.pass(until);
        }
        assert!(slow.device.tx().kept.is_empty());
        assert!(slow.now.since(begin) <= TX_POLL_AFTER);
        assert_eq!(slow.world.closed().ports[1].tx[0].missed_wakeups, 0);
    }
}

/// Memory that many packets have is missed sooner.
#[test]
fn many_packets_that_nobody_waits_for_are_collected_soon() {
    let mut slow = Slow::new(Dispatch::Direct, false, 1000);
    slow.world.a[0].arrive(0..200);
    let begin = slow.now;
    let (mut until, _) = slow.settle();
    slow.pass(until.unwrap());
    assert!(slow.now.since(begin) <= TX_REST_MAX);
    (until, _) = slow.settle();
    assert_eq!((until, slow.device.tx().kept.len()), (None, 0));
    slow.world.closed();
}

/// A device that pauses has its say: it is not looked at again and again.
#[test]
fn a_device_that_stops_in_a_stall_is_watched() {
    let mut slow = Slow::new(Dispatch::Direct, false, 1000);
    slow.world.a[0].arrive(0..5000);
    let rests = |slow: &mut Slow| {
        let (until, watches) = slow.settle();
        (until.unwrap().since(slow.now) <= TX_REST_MAX, watches)
    };
    // Nothing is known of it yet.
    assert_eq!(rests(&mut slow), (false, true));
    let wake = slow.interrupt().unwrap();
    slow.pass(wake);
    for _ in 0..5 {
        assert_eq!(rests(&mut slow), (true, false));
        let (until, _) = slow.settle();
        slow.pass(until.unwrap());
    }
    assert_eq!(rests(&mut slow), (true, false));
    let (until, _) = slow.settle();
    // It does nothing meanwhile.
    slow.now = until.unwrap();
    assert_eq!(rests(&mut slow), (false, true));
    let wake = slow.now.after(Duration::from_millis(50));
    slow.due = Some(wake);
    slow.pass(wake);
    assert_eq!(rests(&mut slow), (true, false), "it goes on");
    slow.world.closed();
}

/// The real device, threads and time. Since it counts, a bound holds however late all of it is; not
/// the one above, as the byte limit carries a device as slow as this over 1 ms, which are 20
/// frames.
#[test]
fn a_simulated_device_with_a_rate_wakes_the_worker_seldom() {
    for dispatch in [Dispatch::Direct, Dispatch::Adaptive] {
        let specs = ["null:source,bytes=60,coalesce=off", "sim:rate=20000"];
        let [a, b] = specs.map(|spec| spec.parse::<PortSpec>().unwrap());
        let [source, sink] = open_pair(&a, &b).unwrap().map(|port| port.driver);
        let plan = plan(&Side::of(&source, a.config), &Side::of(&sink, b.config)).unwrap();
        let settings = Settings {
            dispatch,
            // Else it may find all of it awake.
            idle: Idle::Halt,
            ..Settings::default()
        };
        let session = Session::forward_with(source, sink, &plan, None, &settings).unwrap();
        let reclaimed = || session.snapshot().ports[1].tx[0].reclaimed;
        wait_for("its packets", || reclaimed() >= 4000);
        let sleeps = session.snapshot().workers[0].sleeps as usize;
        assert!(sleeps > 0, "{dispatch}: it is slower than its source");
        let report = session.finish();
        let tx = report.snapshot.ports[1].tx[0];
        assert!(
            10 * sleeps < tx.reclaimed as usize,
            "{dispatch}: {sleeps} for {}",
            tx.reclaimed
        );
        assert_eq!((tx.missed_wakeups, tx.resets), (0, 0), "{dispatch}");
        assert!(report.snapshot.ledger.closed(), "{dispatch}");
    }
}
