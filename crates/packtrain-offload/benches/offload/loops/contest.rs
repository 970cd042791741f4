//! Sides that alternate.

use crate::loops::work::Work;
use packtrain_measure::clock;
use packtrain_measure::statistics::{self, Estimate};
use packtrain_measure::verdict::{Expected, Verdict};
use std::time::{Duration, Instant};

/// The result of one sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Nanoseconds for one unit of work ([`Work::unit`]).
    pub ns: f64,
    /// Packets in for each packet out.
    pub merge: Option<f64>,
}

impl Sample {
    /// A sample of work that merges nothing.
    pub const fn new(ns: f64) -> Self {
        Self { ns, merge: None }
    }
}

/// An implementation of one work.
pub trait Side {
    /// Generates data from `seed` alone, does the work, and returns the time that took.
    fn sample(&mut self, seed: u64) -> Sample;
}

/// Makes a side just before its samples, since all of them together would not fit in memory.
/// Returns the missing requirement if it cannot.
pub type Maker = Box<dyn FnOnce() -> Result<Box<dyn Side>, String>>;

/// The goal of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// No goal: the figure is only reported.
    Reported,
    /// Our side is at least this many times as fast.
    AtLeast(f64),
    /// Our side takes at most this much longer: the greater of the two.
    Within {
        /// 0.03 is 3 %.
        part: f64,
        /// Nanoseconds a unit.
        ns: f64,
    },
}

impl Goal {
    /// The expected ratio for a peer that takes `peer_ns`.
    #[must_use]
    pub fn expected(self, peer_ns: f64) -> Option<Expected> {
        match self {
            Self::Reported => None,
            Self::AtLeast(ratio) => Some(Expected::AtLeast(ratio)),
            Self::Within { part, ns } => {
                let longer = ns.max(part * peer_ns);
                Some(Expected::AtLeast(peer_ns / (peer_ns + longer)))
            }
        }
    }
}

/// A side that ours is compared with.
pub struct Peer {
    /// As in rows.
    pub name: String,
    /// The goal.
    pub goal: Goal,
    /// Makes the side.
    pub make: Maker,
    /// Whether it counts when our side is compared with the fastest peer.
    pub counts: bool,
    /// Rounds that it takes part in, if one takes seconds.
    pub rounds_max: Option<usize>,
}

impl Peer {
    /// A peer without a goal, only reported.
    pub fn new(name: &str, make: Maker) -> Self {
        Self {
            name: name.to_owned(),
            goal: Goal::Reported,
            make,
            counts: true,
            rounds_max: None,
        }
    }

    /// With a goal.
    #[must_use]
    pub fn goal(mut self, goal: Goal) -> Self {
        self.goal = goal;
        self
    }

    /// Takes part in few rounds.
    #[must_use]
    pub const fn slow(mut self, rounds: usize) -> Self {
        self.rounds_max = Some(rounds);
        self
    }
}

/// One work, our side, and its peers.
pub struct Contest {
    /// The work.
    pub work: Work,
    /// Our side, or its missing requirement.
    pub ours: Maker,
    /// The others.
    pub peers: Vec<Peer>,
    /// The goal against the fastest of the counting peers, and the name of that row.
    pub best: Option<(&'static str, Goal)>,
}

/// The amount of measurement.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Rounds of each contest.
    pub rounds: usize,
    /// Whether to skip peers that take seconds for one round.
    pub quick: bool,
}

/// One line of the report: our side beside one peer.
#[derive(Clone, Debug)]
pub struct Row {
    /// The work.
    pub work: Work,
    /// The peer; empty if there is none.
    pub peer: String,
    /// Our median, in nanoseconds a unit.
    pub ours_ns: Option<f64>,
    /// The peer's.
    pub peer_ns: Option<f64>,
    /// Peer to ours: our side is this many times as fast.
    pub ratio: Option<Estimate>,
    /// The expected ratio; `None` if it is only reported.
    pub expected: Option<Expected>,
    /// The verdict on the ratio, or on the merging; `None` if neither has a goal, or our side or
    /// the peer is missing.
    pub verdict: Option<Verdict>,
    /// Packets in for each out, ours.
    pub ours_merge: Option<f64>,
    /// The peer's.
    pub peer_merge: Option<f64>,
    /// Samples that were interrupted at every attempt.
    pub disturbed: usize,
    /// The missing requirement, in words.
    pub note: Option<String>,
}

impl Row {
    /// A row without figures.
    #[must_use]
    pub fn new(work: Work, peer: &str) -> Self {
        Self {
            work,
            peer: peer.to_owned(),
            ours_ns: None,
            peer_ns: None,
            ratio: None,
            expected: None,
            verdict: None,
            ours_merge: None,
            peer_merge: None,
            disturbed: 0,
            note: None,
        }
    }

    /// Whether both sides are available, and the goal is met if there is one.
    #[must_use]
    pub fn is_met(&self) -> bool {
        self.note.is_none() && self.verdict.is_none_or(|met| met == Verdict::Reproduced)
    }

    /// Whether the median reaches half the goal, if there is one and no side is missing.
    #[must_use]
    pub fn is_half_met(&self) -> bool {
        let verdict = judged(self, self.expected.map(Expected::half));
        verdict != Some(Verdict::NotReproduced)
    }
}

/// Most repetitions of an interrupted sample.
const TRIES: u64 = 3;
/// Samples that take longer than a time slice of the scheduler are always interrupted.
const RETRY_MAX: Duration = Duration::from_millis(50);

/// Takes a sample, again if the thread was preempted; returns whether every attempt was
/// interrupted.
fn steady(side: &mut dyn Side, seed: u64) -> (Sample, bool) {
    let mut sample = Sample::default();
    for attempt in 0..TRIES {
        let (before, start) = (clock::preemptions(), Instant::now());
        // Another attempt uses other data.
        sample = side.sample(seed.wrapping_mul(TRIES) + attempt);
        if clock::preemptions() == before {
            return (sample, false);
        }
        if start.elapsed() > RETRY_MAX {
            break;
        }
    }
    (sample, true)
}

struct Player {
    side: Box<dyn Side>,
    samples: Vec<Sample>,
    rounds_max: usize,
    disturbed: usize,
}

impl Player {
    fn new(side: Box<dyn Side>, rounds_max: Option<usize>) -> Self {
        let mut player = Self {
            side,
            samples: Vec::new(),
            rounds_max: rounds_max.unwrap_or(usize::MAX),
            disturbed: 0,
        };
        if rounds_max.is_none() {
            // Warm-up: pages are faulted in, pools filled, the clock frequency raised.
            player.side.sample(u64::MAX);
        }
        player
    }

    fn play(&mut self, round: usize) {
        if round < self.rounds_max {
            let (sample, disturbed) = steady(self.side.as_mut(), round as u64);
            self.samples.push(sample);
            self.disturbed += usize::from(disturbed);
        }
    }

    fn ns(&self) -> Vec<f64> {
        self.samples.iter().map(|sample| sample.ns).collect()
    }

    /// `None` before its first sample.
    fn median_ns(&self) -> Option<f64> {
        let ns = self.ns();
        (!ns.is_empty()).then(|| statistics::median(&ns))
    }

    fn merge(&self) -> Option<f64> {
        let ratios: Vec<f64> = self.samples.iter().filter_map(|one| one.merge).collect();
        (!ratios.is_empty()).then(|| statistics::median(&ratios))
    }
}

/// Alternates the sides of `contest`; one row for each peer, or one without a peer.
pub fn run(contest: Contest, settings: &Settings) -> Vec<Row> {
    let Contest {
        work,
        ours,
        peers,
        best,
    } = contest;
    let blank = |peer: &str| Row::new(work, peer);
    let mut rows: Vec<Row> = Vec::new();
    let mut goals: Vec<Goal> = Vec::new();
    let mut players: Vec<Option<Player>> = Vec::new();
    let mut counts = Vec::new();
    let (mut ours, lacking) = match ours() {
        Ok(side) => (Some(Player::new(side, None)), None),
        Err(missing) => (None, Some(format!("our side: {missing}"))),
    };
    for peer in peers {
        if settings.quick && peer.rounds_max.is_some() {
            continue;
        }
        let mut row = blank(&peer.name);
        players.push(match (peer.make)() {
            Ok(side) => Some(Player::new(side, peer.rounds_max)),
            Err(missing) => {
                row.note = Some(missing);
                None
            }
        });
        rows.push(row);
        goals.push(peer.goal);
        counts.push(peer.counts);
    }
    play(&mut ours, &mut players, settings.rounds);
    if rows.is_empty() {
        rows.push(blank(""));
        goals.push(Goal::Reported);
        players.push(None);
    } else if let Some((name, goal)) = best {
        let best = fastest(ours.as_ref(), &players, &counts);
        let mut row = blank(name);
        if best.is_none() {
            row.note = Some("one of them is missing".to_owned());
        }
        players.push(best);
        rows.push(row);
        goals.push(goal);
    }
    for ((row, player), goal) in rows.iter_mut().zip(&players).zip(goals) {
        measure(row, ours.as_ref(), player.as_ref());
        row.expected = goal.expected(row.peer_ns.unwrap_or_default());
        // A missing side of ours is reported first: without it there is no comparison.
        row.note = lacking.clone().or(row.note.take());
        row.verdict = judged(row, row.expected);
    }
    rows
}

/// The last side is the first of the next round: each side finds the cache content of each other
/// side equally often. Only whole rounds are run, so that each sample has its partner.
fn play(ours: &mut Option<Player>, peers: &mut [Option<Player>], rounds: usize) {
    let sides = peers.len() + 1;
    for round in 0..rounds {
        for turn in 0..sides {
            let player = match (round + turn) % sides {
                0 => &mut *ours,
                peer => &mut peers[peer - 1],
            };
            if let Some(player) = player {
                player.play(round);
            }
        }
    }
}

/// The verdict on a row with the expected value `expected`; `None` if it is only reported. A time
/// does not count without the merging that it is for. The goal of a row without a peer is the
/// merging.
fn judged(row: &Row, expected: Option<Expected>) -> Option<Verdict> {
    let is_reported = expected.is_none() && !row.peer.is_empty();
    if row.note.is_some() || is_reported {
        return None;
    }
    let ratio = expected.map(|expected| {
        let verdict = |ratio| expected.verdict(&ratio);
        row.ratio.map_or(Verdict::NotReproduced, verdict)
    });
    let merged = row.work.merge_goal().zip(row.ours_merge);
    let merge = merged.map(|(goal, merge)| Verdict::exact(merge >= goal));
    ratio.into_iter().chain(merge).min()
}

fn measure(row: &mut Row, ours: Option<&Player>, peer: Option<&Player>) {
    if let Some(ours) = ours {
        row.ours_ns = ours.median_ns();
        row.ours_merge = ours.merge();
        row.disturbed = ours.disturbed;
    }
    if let Some(peer) = peer {
        row.peer_ns = peer.median_ns();
        row.peer_merge = peer.merge();
        row.disturbed += peer.disturbed;
    }
    if let (Some(ours), Some(peer)) = (ours, peer) {
        let (ours, peer) = (ours.ns(), peer.ns());
        let ratios: Vec<f64> = ours.iter().zip(&peer).map(|(a, b)| b / a).collect();
        row.ratio = statistics::estimate(&ratios);
    }
}

/// The smallest part of our side's merging that makes a peer's work comparable.
const MERGE_PART_MIN: f64 = 0.975;

/// The samples of the peer with the lowest median. (The fastest of each round would be no single
/// side: of two equal sides, noise decides.) A missing peer might have been the fastest; a peer
/// that merges less does less.
fn fastest(ours: Option<&Player>, players: &[Option<Player>], counts: &[bool]) -> Option<Player> {
    let counted = players.iter().zip(counts).filter(|(_, counts)| **counts);
    let counted: Vec<&Player> = counted
        .map(|(player, _)| player.as_ref())
        .collect::<Option<_>>()?;
    let least = ours.and_then(Player::merge).unwrap_or(0.0) * MERGE_PART_MIN;
    let same_work = |player: &&Player| player.merge().is_none_or(|merge| merge >= least);
    let counted: Vec<&Player> = counted.into_iter().filter(same_work).collect();
    let time = |player: &Player| statistics::median(&player.ns());
    let best = counted
        .into_iter()
        .min_by(|a, b| time(a).total_cmp(&time(b)))?;
    let mut player = Player::new(Box::new(Recorded), Some(0));
    player.samples.clone_from(&best.samples);
    Some(player)
}

/// The side of a player that has its samples from others.
struct Recorded;

impl Side for Recorded {
    fn sample(&mut self, _seed: u64) -> Sample {
        Sample::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    struct Fixed(f64, &'static str, Rc<RefCell<Vec<&'static str>>>);

    impl Side for Fixed {
        fn sample(&mut self, seed: u64) -> Sample {
            if seed != u64::MAX {
                self.2.borrow_mut().push(self.1);
            }
            Sample::new(self.0)
        }
    }

    const SETTINGS: Settings = Settings {
        rounds: 15,
        quick: false,
    };

    fn contest(
        times: &[(f64, Goal)],
        best: Option<(&'static str, Goal)>,
    ) -> (Vec<Row>, Vec<&'static str>) {
        let log = Rc::new(RefCell::new(Vec::new()));
        let make = |ns: f64, name: &'static str| -> Maker {
            let log = Rc::clone(&log);
            Box::new(move || Ok(Box::new(Fixed(ns, name, log))))
        };
        let peers = times.iter().zip(["a", "b", "c"]);
        let peers = peers.map(|((ns, goal), name)| Peer::new(name, make(*ns, name)).goal(*goal));
        let contest = Contest {
            work: Work::SegmentShare,
            ours: make(10.0, "ours"),
            peers: peers.collect(),
            best,
        };
        let rows = run(contest, &SETTINGS);
        let log = log.borrow().clone();
        (rows, log)
    }

    #[test]
    fn sides_take_turns_in_turning_order() {
        let (_, log) = contest(&[(1.0, Goal::Reported), (1.0, Goal::Reported)], None);
        // An interrupted sample occurs more than once in a row.
        let mut turns = log;
        turns.dedup();
        assert_eq!(turns[..3], ["ours", "a", "b"]);
        assert_eq!(turns.iter().filter(|name| **name == "a").count(), 15);
    }

    #[test]
    fn a_goal_is_a_ratio() {
        let (rows, _) = contest(
            &[
                (20.0, Goal::AtLeast(2.0)),
                (19.9, Goal::AtLeast(2.0)),
                (
                    9.0,
                    Goal::Within {
                        part: 0.03,
                        ns: 1.0,
                    },
                ),
            ],
            Some(("best", Goal::AtLeast(1.0))),
        );
        let met: Vec<bool> = rows.iter().map(Row::is_met).collect();
        assert_eq!(met, [true, false, true, false]);
        assert_eq!(rows[1].verdict, Some(Verdict::NotReproduced));
        assert!(rows.iter().all(Row::is_half_met));
        assert_eq!(rows[3].peer_ns, Some(9.0));
        assert_eq!(rows[0].ratio.unwrap().median, 2.0);
        let (rows, _) = contest(&[(9.9, Goal::AtLeast(2.0))], None);
        assert!(!rows[0].is_half_met());
    }

    #[test]
    fn noise_around_a_goal_does_not_meet_it() {
        let mut row = contest(&[(20.0, Goal::AtLeast(2.0))], None).0.remove(0);
        let mut verdict = |ratios: [f64; 5]| {
            row.ratio = statistics::estimate(&ratios);
            judged(&row, row.expected)
        };
        assert_eq!(verdict([1.2, 1.3, 2.1, 2.2, 2.3]), Some(Verdict::Direction));
        assert_eq!(
            verdict([1.2, 1.3, 1.9, 2.2, 2.3]),
            Some(Verdict::NotReproduced)
        );
        let mut row = contest(&[(9.0, Goal::AtLeast(0.5))], None).0.remove(0);
        row.work = Work::Acks { flows: 1 };
        row.ours_merge = Some(2.9);
        assert_eq!(judged(&row, row.expected), Some(Verdict::NotReproduced));
        row.ours_merge = Some(3.0);
        assert_eq!(judged(&row, row.expected), Some(Verdict::Reproduced));
        assert_eq!(judged(&row, None), None);
        row.peer.clear();
        assert_eq!(judged(&row, None), Some(Verdict::Reproduced));
    }

    #[test]
    fn a_missing_peer_is_named_and_meets_nothing() {
        let ours = Fixed(1.0, "ours", Rc::default());
        let contest = Contest {
            work: Work::SegmentShare,
            ours: Box::new(|| Ok(Box::new(ours))),
            peers: vec![Peer::new("a", Box::new(|| Err("not installed".to_owned())))],
            best: Some(("best", Goal::AtLeast(1.0))),
        };
        let rows = run(contest, &SETTINGS);
        assert!(!rows.iter().any(Row::is_met));
        assert!(rows.iter().all(Row::is_half_met));
        assert!(rows.iter().all(|row| row.verdict.is_none()));
        assert_eq!(rows[0].note.as_deref(), Some("not installed"));
        assert_eq!(rows[0].ours_ns, Some(1.0));
    }
}
