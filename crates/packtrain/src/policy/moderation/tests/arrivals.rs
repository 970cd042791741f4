//! Packets as they come in nature: at random, in bursts, with pauses; minutes of virtual time.

use super::*;
use std::collections::BTreeMap;

const SECOND: u64 = 1_000_000_000;
/// What a worker needs to look, sleep and be woken again.
const TURN: u64 = 3_000;

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// In (0, 1].
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// An exponential time with this mean.
    fn gap(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }
}

/// How packets arrive.
#[derive(Clone, Copy, Debug)]
enum Arrivals {
    Even,
    /// Independently of each other.
    Poisson,
    /// Evenly, each up to half a gap off its time.
    Jittered,
    /// So many together, at random times.
    Trains(u64),
    /// Even within `on` ns, then nothing for `off` ns.
    OnOff {
        on: u64,
        off: u64,
    },
    /// As `OnOff`, for random times with these means.
    RandomOnOff {
        on: u64,
        off: u64,
    },
    /// At random, and each 100 ms, on average, nobody sends for 10 ms: the CPU was another's.
    Preempted,
    /// At random with a rate that goes from 2/3 of the mean to 4/3 within a second, and falls back,
    /// as TCP's does.
    Sawtooth,
}

/// The next arrivals in turn, of `rate(t)` packets a second on average.
struct Source<R> {
    arrivals: Arrivals,
    rate: R,
    random: Random,
    at: f64,
    train: u64,
    /// The end of the phase in which packets come.
    phase: f64,
}

impl<R: Fn(u64) -> u64> Source<R> {
    fn new(arrivals: Arrivals, seed: u64, rate: R) -> Self {
        Self {
            arrivals,
            rate,
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            at: 0.0,
            train: 0,
            phase: 0.0,
        }
    }

    fn step(&mut self) {
        let gap = SECOND as f64 / (self.rate)(self.at as u64) as f64;
        let random = &mut self.random;
        match self.arrivals {
            Arrivals::Even => self.at += gap,
            Arrivals::Poisson => self.at += random.gap(gap),
            Arrivals::Jittered => self.at += gap * (0.5 + random.unit()),
            Arrivals::Trains(length) => {
                self.train = (self.train + 1) % length;
                if self.train == 0 {
                    self.at += random.gap(gap * length as f64);
                }
            }
            Arrivals::OnOff { on, off } => {
                self.at += gap * on as f64 / (on + off) as f64;
                if self.at > self.phase {
                    self.at = self.phase + off as f64;
                    self.phase = self.at + on as f64;
                }
            }
            Arrivals::RandomOnOff { on, off } => {
                self.at += gap * on as f64 / (on + off) as f64;
                if self.at > self.phase {
                    self.at = self.phase + random.gap(off as f64);
                    self.phase = self.at + random.gap(on as f64);
                }
            }
            Arrivals::Preempted => {
                self.at += random.gap(gap);
                if self.at > self.phase {
                    self.at += 1e7;
                    self.phase = self.at + random.gap(1e8);
                }
            }
            Arrivals::Sawtooth => {
                let part = self.at % 1e9 / 1e9;
                self.at += random.gap(gap / (2.0 + 2.0 * part) * 3.0);
            }
        }
    }
}

/// What a queue did with its packets.
#[derive(Default)]
struct Run {
    /// When the profile changed, in ns, and to what.
    changes: Vec<(u64, usize)>,
    /// Time in each profile, in ns.
    times: BTreeMap<usize, u64>,
    signals: u64,
}

impl Run {
    fn between(&self, from: u64, to: u64) -> usize {
        let inside = |(at, _): &&(u64, usize)| (from..to).contains(at);
        self.changes.iter().filter(inside).count()
    }

    /// The profile at this time.
    fn at(&self, time: u64) -> usize {
        let before = self.changes.iter().take_while(|(at, _)| *at <= time);
        before.last().map_or(0, |&(_, profile)| profile)
    }
}

/// A worker that takes what there is at each signal, until `end`.
fn run<R: Fn(u64) -> u64>(mut source: Source<R>, end: u64) -> Run {
    let mut moderator = Moderator::new(Moderation::Adaptive);
    let mut run = Run::default();
    let mut now = 0;
    moderator.observe(Instant::from_nanos(0), &Observation::default());
    source.step();
    while now < end {
        let before = profile(moderator.signal());
        let hold = u64::from(moderator.signal().usecs) * 1000;
        let wake = (source.at.ceil() as u64).max(now + hold).max(now + TURN);
        let mut packets = 0;
        while source.at <= wake as f64 {
            packets += 1;
            source.step();
        }
        *run.times.entry(before).or_default() += wake - now;
        now = wake;
        run.signals += 1;
        let seen = Observation {
            packets,
            bytes: packets * 1000,
            events: 1,
        };
        let after = profile(moderator.observe(Instant::from_nanos(now), &seen));
        if after != before {
            run.changes.push((now, after));
        }
    }
    run
}

const MS: u64 = SECOND / 1000;

/// Of these a window of 64 signals, or of 20 ms, is not like the next, and yet they are constant.
#[test]
fn a_constant_load_settles_though_its_packets_come_at_random() {
    let kinds = [
        Arrivals::Even,
        Arrivals::Poisson,
        Arrivals::Jittered,
        Arrivals::Trains(8),
        Arrivals::Trains(32),
    ];
    for arrivals in kinds {
        // Light, near the limit and above it, and heavy.
        for kpps in [25, 31, 35, 40, 45, 70, 100, 200] {
            let run = run(Source::new(arrivals, kpps, |_| kpps * 1000), 60 * SECOND);
            let what = format!("{arrivals:?}, {kpps} kpps: {:?}", run.changes);
            assert!(run.between(0, SECOND) <= 4, "{what}");
            assert!(run.between(SECOND, 61 * SECOND) <= 2, "{what}");
            assert_eq!(run.between(30 * SECOND, 61 * SECOND), 0, "{what}");
            // Each packet would be a signal.
            let signals = run.signals / 60;
            assert!(
                kpps < 40 || signals < 17_000,
                "{signals} signals a second, {what}"
            );
            let (light, at_none) = (kpps <= 31, run.times[&0]);
            assert!(!light || at_none > 59 * SECOND, "{at_none}, {what}");
        }
    }
}

/// These do change, over times that are longer than anybody would wait: each search may end
/// otherwise, so what is bounded is how often there is one. One has up to
/// four steps, and in the long run there are 22 in a minute.
#[test]
fn a_load_that_varies_all_the_time_is_searched_for_rarely() {
    let kinds = [
        Arrivals::Trains(256),
        Arrivals::OnOff {
            on: MS,
            off: 4 * MS,
        },
        Arrivals::OnOff {
            on: 5 * MS,
            off: 20 * MS,
        },
        Arrivals::OnOff {
            on: 100 * MS,
            off: 100 * MS,
        },
        Arrivals::RandomOnOff {
            on: 2 * MS,
            off: 2 * MS,
        },
        Arrivals::RandomOnOff {
            on: 20 * MS,
            off: 20 * MS,
        },
        Arrivals::RandomOnOff {
            on: 200 * MS,
            off: 200 * MS,
        },
        Arrivals::Preempted,
        Arrivals::Sawtooth,
    ];
    for arrivals in kinds {
        for kpps in [35, 45, 100] {
            let run = run(Source::new(arrivals, kpps, |_| kpps * 1000), 120 * SECOND);
            let what = format!("{arrivals:?}, {kpps} kpps: {:?}", run.changes);
            assert!(run.between(0, 60 * SECOND) <= 160, "{what}");
            assert!(run.between(60 * SECOND, 121 * SECOND) <= 90, "{what}");
        }
    }
}

/// Every other second another load, for a minute: it has not become deaf to be quiet.
#[test]
fn a_load_that_is_another_is_answered_within_tens_of_milliseconds() {
    const PHASE: u64 = 2 * SECOND;
    for (arrivals, low, high) in [
        (Arrivals::Even, 20, 80),
        (Arrivals::Poisson, 20, 80),
        (Arrivals::Poisson, 5, 200),
        (Arrivals::Jittered, 25, 50),
        (Arrivals::Trains(8), 10, 200),
    ] {
        let rate = |at: u64| if (at / PHASE).is_multiple_of(2) { low } else { high } * 1000;
        let run = run(Source::new(arrivals, 1, rate), 60 * SECOND);
        let what = format!("{arrivals:?}, {low} and {high}: {:?}", run.changes);
        for phase in (1..29).step_by(2) {
            let (grew, fell) = (phase * PHASE, (phase + 1) * PHASE);
            assert_eq!(run.at(grew - 1), 0, "{phase}, {what}");
            // It is sure, the load is seen, and a step is taken; then perhaps two more.
            assert!(run.at(grew + 90 * MS) > 0, "{phase}, {what}");
            assert_eq!(run.at(grew + 300 * MS), TOP, "{phase}, {what}");
            assert_eq!(run.at(fell - 1), TOP, "{phase}, {what}");
            assert_eq!(run.at(fell + 90 * MS), 0, "{phase}, {what}");
        }
    }
}
