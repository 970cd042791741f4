//! A thread of an application that sends.

use super::load::Load;
use packtrain::engine::TxHandle;
use packtrain::packet::{Burst, Packet};
use packtrain::stats::{Histogram, HistogramSnapshot};
use packtrain::time::{Clock, Instant, MonotonicClock};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// One in so many packets is stamped where they are sent as fast as can be. To read the clock costs
/// some 30 ns, which is then half a nanosecond for each packet. A prime: packets that go out eight
/// or 32 at a time, as under `threshold(n)`, are stamped at each place in turn.
const STAMP_EVERY: u64 = 61;
/// Stamps a second of all producers at most, where packets are due at fixed times.
const STAMPS_PER_SECOND: u64 = 200_000;
/// A device that takes nothing for so long is broken.
const PATIENCE: Duration = Duration::from_secs(20);
/// A producer sleeps only if the next packet is due after more than this,
const SLEEP_MIN: Duration = Duration::from_micros(200);
/// and is awake again so long before: a virtual CPU that halted takes its time.
const SLEEP_MARGIN: Duration = Duration::from_micros(100);
/// How long a producer that is done may take to see that it may end.
const PARKED_MAX: Duration = Duration::from_millis(20);
/// Shortest frame: Ethernet header and the number of the producer.
pub const FRAME_BYTES_MIN: usize = 16;
/// IEEE 802 local experimental ethertype: no kernel has a use for it.
const ETHERTYPE: [u8; 2] = 0x88b5_u16.to_be_bytes();

/// What a producer is to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) load: Load,
    /// Packets a second of all producers together, where they are due at fixed times.
    pub(super) rate: Option<u64>,
    /// Which of how many producers.
    pub(super) index: usize,
    pub(super) producers: usize,
    pub(super) frame_bytes: usize,
    /// Whether producers and worker have no CPU each: then who waits lets others run.
    pub(super) crowded: bool,
    pub(super) times: Times,
}

/// The times of one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// When the first packet is due.
    pub(super) start: Instant,
    /// From when on it counts.
    pub(super) begin: Instant,
    /// How long after the end a producer that is behind gives up.
    pub(super) patience: Duration,
}

/// What producers are told while they run.
#[derive(Debug)]
pub(super) struct Signal {
    /// Until when packets are due, in nanoseconds; not known before the window has begun.
    end: AtomicU64,
    stop: AtomicBool,
}

impl Signal {
    pub(super) const fn new() -> Self {
        Self {
            end: AtomicU64::new(u64::MAX),
            stop: AtomicBool::new(false),
        }
    }

    /// No packet is due at `end` or later; who is behind gives up if that was before the start.
    pub(super) fn end_at(&self, end: Instant) {
        self.end.store(end.as_nanos(), Ordering::Relaxed);
    }

    fn end(&self) -> Instant {
        Instant::from_nanos(self.end.load(Ordering::Relaxed))
    }

    /// All producers end, once what was due is sent.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// What a producer came to.
#[derive(Clone, Debug, Default)]
pub(super) struct Produced {
    /// Nanoseconds by which packets were late, at least, that were due and never sent.
    pub(super) late: HistogramSnapshot,
    /// How many these were.
    pub(super) unsent: u64,
}

/// When packets are due that are sent at a fixed rate: a plan that no slow device moves, so that
/// what waits for it counts as waiting.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    start: Instant,
    /// Between two packets of one producer.
    period_ps: u64,
    offset_ps: u64,
}

impl Schedule {
    fn new(task: &Task, rate: u64) -> Self {
        let all_ps = 1_000_000_000_000 / rate.max(1);
        Self {
            start: task.times.start,
            period_ps: all_ps * task.producers as u64,
            // They take turns.
            offset_ps: all_ps * task.index as u64,
        }
    }

    fn due(&self, number: u64) -> Instant {
        let ps = u128::from(number) * u128::from(self.period_ps) + u128::from(self.offset_ps);
        self.start.after(Duration::from_nanos((ps / 1000) as u64))
    }

    /// The first packet that is due at `time` or later.
    fn first_from(&self, time: Instant) -> u64 {
        let ps = time.since(self.start).as_nanos() * 1000;
        let after = ps.saturating_sub(u128::from(self.offset_ps));
        after.div_ceil(u128::from(self.period_ps.max(1))) as u64
    }
}

pub(super) struct Producer {
    handle: TxHandle,
    clock: MonotonicClock,
    frame: Vec<u8>,
    burst: Burst,
}

impl Producer {
    pub(super) fn new(handle: TxHandle, task: &Task) -> Self {
        let mut frame = vec![0; task.frame_bytes.max(FRAME_BYTES_MIN)];
        // Locally administered addresses.
        frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
        frame[12..14].copy_from_slice(&ETHERTYPE);
        frame[14..16].copy_from_slice(&(task.index as u16).to_be_bytes());
        Self {
            handle,
            clock: MonotonicClock::new(),
            frame,
            burst: Burst::new(),
        }
    }

    /// Sends as the task says, until it is told to stop.
    ///
    /// # Errors
    ///
    /// When the queue takes nothing: one line.
    pub(super) fn run(&mut self, task: &Task, signal: &Signal) -> Result<Produced, String> {
        let produced = match task.rate {
            Some(rate) => self.pace(task, rate, signal),
            None => self.saturate(task, signal),
        };
        // What a thread cost cannot be read any more when it has ended.
        while !signal.is_stopped() {
            thread::park_timeout(PARKED_MAX);
        }
        produced
    }

    fn packet(&mut self) -> Packet {
        loop {
            match self.handle.arena().packet_from(&self.frame) {
                Ok(packet) => return packet,
                // The device has all the buffers: take back what it is done with.
                Err(_no_buffer) => {
                    self.handle.reclaim();
                    thread::yield_now();
                }
            }
        }
    }

    fn push(&mut self, packet: Packet) {
        if let Err(packet) = self.burst.push(packet) {
            drop(packet);
            unreachable!("a burst takes as many as a producer submits at once");
        }
    }

    fn send(&mut self) -> Result<(), String> {
        let sent = self.handle.send_blocking(&mut self.burst, PATIENCE);
        sent.map(drop).map_err(|error| error.to_string())
    }

    fn saturate(&mut self, task: &Task, signal: &Signal) -> Result<Produced, String> {
        let (batch, times) = (task.load.batch(), task.times);
        let (mut unstamped, mut stamped) = (0, 0);
        while !signal.is_stopped() {
            for _ in 0..batch {
                let packet = self.packet();
                self.push(packet);
            }
            unstamped += batch as u64;
            if unstamped >= STAMP_EVERY {
                unstamped = 0;
                let now = self.clock.now();
                if (times.begin..signal.end()).contains(&now) {
                    stamp(&mut self.burst, stamped, now);
                    stamped += 1;
                }
            }
            self.send()?;
        }
        Ok(Produced::default())
    }

    fn pace(&mut self, task: &Task, rate: u64, signal: &Signal) -> Result<Produced, String> {
        let (schedule, times) = (Schedule::new(task, rate), task.times);
        // Odd, for the same reason.
        let every = rate.div_ceil(STAMPS_PER_SECOND) | 1;
        let mut next = 0;
        loop {
            let (now, end) = (self.clock.now(), signal.end());
            let due = schedule.due(next);
            if due >= end || now >= end.after(times.patience) {
                break;
            }
            if due > now {
                wait(due.since(now), task.crowded);
                continue;
            }
            // All that are due by now: who is behind does not read the clock for each, but may be
            // told to give up meanwhile.
            loop {
                let due = schedule.due(next);
                if due > now || due >= signal.end() {
                    break;
                }
                let mut packet = self.packet();
                if next.is_multiple_of(every) && due >= times.begin {
                    packet.meta_mut().timestamp = due;
                }
                next += 1;
                self.push(packet);
                self.send()?;
            }
        }
        Ok(unsent(&schedule, next, every, &times, signal.end()))
    }
}

/// Stamps the packet of the `number`th burst whose turn it is: the first of the first, the second
/// of the next. To stamp only first ones would say nothing of those that wait behind them.
fn stamp(burst: &mut Burst, number: usize, now: Instant) {
    let position = number % burst.len().max(1);
    if let Some(packet) = burst.iter_mut().nth(position) {
        packet.meta_mut().timestamp = now;
    }
}

/// What was due before `end` and is not sent any more, from number `next` on, is not forgotten: it
/// was at least so late.
fn unsent(schedule: &Schedule, next: u64, every: u64, times: &Times, end: Instant) -> Produced {
    let (late, give_up) = (Histogram::default(), end.after(times.patience));
    let until = schedule.first_from(end);
    let counted = next.max(schedule.first_from(times.begin)).min(until)..until;
    for number in counted
        .clone()
        .filter(|number| number.is_multiple_of(every))
    {
        late.record(give_up.since(schedule.due(number)).as_nanos() as u64);
    }
    Produced {
        late: late.snapshot(),
        unsent: counted.end - counted.start,
    }
}

fn wait(time: Duration, crowded: bool) {
    if time > SLEEP_MIN {
        thread::sleep(time - SLEEP_MARGIN);
    } else if crowded {
        thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packtrain::packet::{Arena, ArenaConfig};

    fn at(us: u64) -> Instant {
        Instant::from_nanos(us * 1000)
    }

    fn task(index: usize, producers: usize) -> Task {
        Task {
            load: Load::Percent(50),
            rate: None,
            index,
            producers,
            frame_bytes: 64,
            crowded: false,
            times: Times {
                start: at(1000),
                begin: at(2000),
                patience: Duration::from_millis(1),
            },
        }
    }

    #[test]
    fn each_place_of_a_burst_has_its_turn_to_be_stamped() {
        let arena = Arena::new(ArenaConfig::default()).unwrap();
        let batch = Load::Bulk.batch();
        let stamped = |number| {
            let mut burst = Burst::new();
            for _ in 0..batch {
                assert!(burst.push(arena.packet_from(&[0; 64]).unwrap()).is_ok());
            }
            stamp(&mut burst, number, at(7));
            let stamps = burst.iter_mut().map(|packet| packet.meta_mut().timestamp);
            let stamps: Vec<_> = stamps.collect();
            assert_eq!(stamps.iter().filter(|stamp| **stamp == at(7)).count(), 1);
            stamps.iter().position(|stamp| *stamp == at(7)).unwrap()
        };
        let places: Vec<_> = (0..2 * batch).map(stamped).collect();
        let turns: Vec<_> = (0..batch).chain(0..batch).collect();
        assert!(batch > 1);
        assert_eq!(places, turns);
    }

    #[test]
    fn producers_take_turns_at_the_rate_of_all() {
        let schedules = [0, 1, 2].map(|index| Schedule::new(&task(index, 3), 100_000));
        let due = (0..6).map(|n| schedules[n % 3].due(n as u64 / 3));
        let expected = (0..6).map(|n| at(1000 + 10 * n));
        assert!(due.eq(expected));
    }

    #[test]
    fn a_rate_that_divides_nothing_does_not_drift() {
        let schedule = Schedule::new(&task(0, 1), 3_000_000);
        // A picosecond is lost for each packet: a millionth in a second.
        let second = schedule.due(3_000_000).since(at(1000));
        assert!(second.abs_diff(Duration::from_secs(1)) < Duration::from_micros(2));
    }

    #[test]
    fn first_from_is_the_first_that_is_due_then() {
        for (index, producers, rate) in [(0, 1, 1_000_000), (2, 3, 70_000), (1, 4, 999_983)] {
            let schedule = Schedule::new(&task(index, producers), rate);
            for us in [0, 1000, 1001, 2000, 2500, 9999] {
                let first = schedule.first_from(at(us));
                assert!(schedule.due(first + 1) > at(us), "{index} {rate} {us}");
                assert!(
                    first == 0 || schedule.due(first - 1) < at(us),
                    "{index} {rate} {us}"
                );
            }
        }
    }

    #[test]
    fn packets_that_were_never_sent_are_late_by_what_they_waited() {
        // One each 10 us, from 1000 us on; 200 are due until 3000 us, 100 of them count.
        let (times, end) = (task(0, 1).times, at(3000));
        let schedule = Schedule::new(&task(0, 1), 100_000);
        let none = unsent(&schedule, 200, 1, &times, end);
        assert_eq!((none.unsent, none.late.count()), (0, 0));
        let last = unsent(&schedule, 190, 1, &times, end);
        assert_eq!((last.unsent, last.late.count()), (10, 10));
        assert_eq!(last.late.max(), 1_100_000);
        // Those before the window do not count, and only stamped ones are in the histogram.
        let all = unsent(&schedule, 0, 4, &times, end);
        assert_eq!((all.unsent, all.late.count()), (100, 25));
    }
}
