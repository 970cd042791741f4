//! MLRsearch (RFC 9971): the largest load that a device forwards with at most a given loss.
//!
//! Pure: trials are made by a [`Measurer`]. Terms are those of RFC 9971. How a load is classified
//! and what the conditional throughput is follow its appendices A and B. Which load is tried next
//! is left open there: [`search`] says how it is done here.

use std::collections::BTreeMap;
use std::time::Duration;

/// Targets of a goal before the final one. Each has shorter trials and a wider width.
const PRECEDING: i32 = 2;

/// A width above this would let a bisection stop before it starts.
const WIDTH_MAX: f64 = 0.5;

/// What a trial offers: frames a second, or the frames of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Load(pub u64);

/// The output of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Frames that the load and the duration amount to.
    pub expected: u64,
    /// Frames that the sender sent.
    pub sent: u64,
    /// Frames that the receiver received.
    pub received: u64,
    /// Frames that reached the receiving host, and were lost at the receiver's socket.
    pub overrun: u64,
}

impl Trial {
    /// The share of expected frames that did not arrive, 0 to 1. Frames that were not sent count
    /// as lost, as RFC 9971 section 4.9.1 recommends.
    pub fn loss_ratio(&self) -> f64 {
        ratio(self.expected.saturating_sub(self.received), self.expected)
    }

    /// The share of expected frames that the sender did not send, 0 to 1.
    pub fn unsent_ratio(&self) -> f64 {
        ratio(self.expected.saturating_sub(self.sent), self.expected)
    }

    /// The share of expected frames that were lost at the receiver's socket, 0 to 1.
    pub fn overrun_ratio(&self) -> f64 {
        ratio(self.overrun, self.expected)
    }

    /// The share of expected frames that neither arrived, nor were lost by sender or receiver.
    fn device_loss_ratio(&self) -> f64 {
        let lost = self.sent.saturating_sub(self.received);
        ratio(lost.saturating_sub(self.overrun), self.expected)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Performs trials.
pub trait Measurer {
    /// Why a trial could not be performed.
    type Error;

    /// Offers `load` for `duration`, and waits for the last frame. `None` ends the search, as its
    /// time limit does.
    ///
    /// # Errors
    /// Ends the search without a result. Loss is no error.
    fn measure(&mut self, load: Load, duration: Duration) -> Result<Option<Trial>, Self::Error>;
}

/// A search goal: what a load must achieve to be a lower bound, and how close the bounds must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// Loss ratio of a trial that is still accepted: at least 0, below 1.
    pub loss_ratio: f64,
    /// Share of the trials' time at a lower bound that may lose more: at least 0, below 1.
    pub exceed_ratio: f64,
    /// Duration of the first trials: above 0, at most `final_duration`.
    pub initial_duration: Duration,
    /// Duration of a full-length trial.
    pub final_duration: Duration,
    /// Full-length trials of this time in sum always decide about a load.
    pub duration_sum: Duration,
    /// Largest distance of the two relevant bounds, as a share of the upper one: above 0.
    pub width: f64,
}

impl Goal {
    /// The goal with the shorter trials and wider width of the target `number`; [`PRECEDING`] is
    /// the final one, the goal itself.
    fn target(&self, number: i32) -> Self {
        let part = f64::from(number) / f64::from(PRECEDING);
        let between = |to: Duration| {
            let (from, to) = (self.initial_duration.as_secs_f64(), to.as_secs_f64());
            Duration::from_secs_f64(from * (to / from).powf(part))
        };
        if number == PRECEDING {
            return *self;
        }
        Self {
            final_duration: between(self.final_duration),
            duration_sum: between(self.duration_sum),
            width: (self.width * 2_f64.powi(PRECEDING - number)).min(WIDTH_MAX),
            ..*self
        }
    }

    /// Whether two bounds are close enough. Loads are whole numbers.
    fn is_close(&self, lower: Load, upper: Load) -> bool {
        let distance = upper.0 - lower.0;
        distance <= 1 || distance as f64 <= self.width * upper.0 as f64
    }
}

/// Which loads may be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The least: at least 1.
    pub min: Load,
    /// The most: at least `min`, below 2^53.
    pub max: Load,
    /// The best guess, tried first.
    pub start: Load,
}

impl Range {
    fn clamp(&self, load: f64) -> Load {
        // A float is cut off at the ends of u64.
        Load((load.round() as u64).clamp(self.min.0, self.max.0))
    }
}

/// How the search for a goal ended. All but [`End::Regular`] are irregular results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The relevant bounds are as close as the goal's width.
    Regular,
    /// The largest load of the range is a lower bound: there is no upper bound.
    AtMax,
    /// The least load of the range is an upper bound: there is no lower bound.
    BelowMin,
    /// The time limit came first, or the caller ended the search.
    TimeLimit,
}

/// The result for a goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GoalResult {
    /// The relevant lower bound.
    pub lower: Option<Load>,
    /// The relevant upper bound.
    pub upper: Option<Load>,
    /// The conditional throughput: the forwarding rate at `lower`; 0 without one.
    pub throughput: f64,
    /// The median share of frames that the sender did not send at `upper`, or at `lower` without
    /// one.
    pub unsent_ratio: f64,
    /// The median share of frames that were lost at the receiver's socket, at the same load.
    pub overrun_ratio: f64,
    /// What loses frames above `lower`; `None` if no load that loses frames was found.
    pub limit: Option<Limit>,
    /// Whether the result is regular.
    pub end: End,
}

/// What loses frames at the relevant upper bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The device: without the losses of sender and receiver it loses more than the goal accepts.
    Device,
    /// The sender: it does not send more.
    Sender,
    /// The receiver's socket.
    Receiver,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// For each goal, in their order.
    pub goals: Vec<GoalResult>,
    /// Trials that were performed.
    pub trials: usize,
    /// Their durations in sum.
    pub time: Duration,
}

/// The classification of a load for a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Lower,
    Upper,
    Undecided,
}

/// A trial and its duration.
#[derive(Clone, Copy, Debug)]
struct Done {
    duration: Duration,
    trial: Trial,
}

/// Searches for all goals at once: a trial for one of them counts for each.
///
/// Every goal has targets of growing precision: durations grow, and the width shrinks, up to those
/// of the goal. A target begins at the bounds of the target before it, the
/// smaller load first, since an upper bound makes every larger load irrelevant. Without an upper
/// bound the load grows, without a lower one it shrinks, each step twice as far as the one before;
/// between the bounds their geometric mean is tried. A load is tried until it is classified.
///
/// The sum of all trials' durations is at most `time_max`.
///
/// # Errors
/// Those of the measurer.
pub fn search<M: Measurer>(
    measurer: &mut M,
    goals: &[Goal],
    range: Range,
    time_max: Duration,
) -> Result<Found, M::Error> {
    let start = range.start.clamp(range.min, range.max);
    let mut search = Search {
        trials: BTreeMap::new(),
        range: Range { start, ..range },
        time: Duration::ZERO,
    };
    'targets: for number in 0..=PRECEDING {
        // Trials for one goal may change the bounds of another.
        while let Some((goal, load)) = goals
            .iter()
            .find_map(|goal| Some((goal.target(number), search.next(goal, number)?)))
        {
            while search.classify(&goal, load) == Class::Undecided {
                let duration = goal.final_duration;
                if search.time + duration > time_max {
                    break 'targets;
                }
                let Some(trial) = measurer.measure(load, duration)? else {
                    break 'targets;
                };
                search.time += duration;
                let done = Done { duration, trial };
                search.trials.entry(load).or_default().push(done);
            }
        }
    }
    Ok(Found {
        goals: goals.iter().map(|goal| search.result(goal)).collect(),
        trials: search.trials.values().map(Vec::len).sum(),
        time: search.time,
    })
}

struct Search {
    trials: BTreeMap<Load, Vec<Done>>,
    range: Range,
    time: Duration,
}

impl Search {
    /// The load to try next for a target of a goal; `None` if it has been reached, or cannot be.
    fn next(&self, goal: &Goal, number: i32) -> Option<Load> {
        let target = goal.target(number);
        let bounds = self.bounds(&target);
        // Where the target before ended: its bounds are not classified yet for this one.
        let before = if number == 0 {
            (None, None)
        } else {
            self.bounds(&goal.target(number - 1))
        };
        let Range { min, max, start } = self.range;
        match bounds {
            (None, None) => Some(before.0.or(before.1).unwrap_or(start)),
            (Some(lower), Some(upper)) if target.is_close(lower, upper) => None,
            (Some(lower), Some(upper)) => {
                let mean = (lower.0 as f64 * upper.0 as f64).sqrt();
                Some(Load((mean.round() as u64).clamp(lower.0 + 1, upper.0 - 1)))
            }
            (Some(lower), None) => {
                let hint = before.1.filter(|hint| *hint > lower);
                let larger = || self.beyond(&target, Class::Lower, lower);
                (lower < max).then(|| hint.unwrap_or_else(larger))
            }
            (None, Some(upper)) => {
                let hint = before.0.filter(|hint| *hint < upper);
                let smaller = || self.beyond(&target, Class::Upper, upper);
                (upper > min).then(|| hint.unwrap_or_else(smaller))
            }
        }
    }

    /// A load above the largest lower bound, or below the smallest upper bound. The ratio between
    /// the two is the square of the ratio between `bound` and the next bound of its class, and at
    /// least what the width asks for.
    fn beyond(&self, target: &Goal, class: Class, bound: Load) -> Load {
        let is_of_class = |load: &&Load| self.classify(target, **load) == class;
        let next = match class {
            Class::Lower => self
                .trials
                .range(..bound)
                .map(|(load, _)| load)
                .rfind(is_of_class),
            _ => self
                .trials
                .range(bound..)
                .map(|(load, _)| load)
                .filter(is_of_class)
                .nth(1),
        };
        let from = bound.0 as f64;
        let last = next.map_or(1.0, |next| next.0 as f64 / from);
        let ratio = last.max(1.0 / last).powi(2).max(1.0 / (1.0 - target.width));
        // Small loads differ by 1 at least.
        self.range.clamp(match class {
            Class::Lower => (from * ratio).max(from + 1.0),
            _ => (from / ratio).min(from - 1.0),
        })
    }

    /// The relevant lower and upper bound: the smallest upper bound, and the largest lower bound
    /// below it. Without an upper bound the largest lower bound.
    fn bounds(&self, goal: &Goal) -> (Option<Load>, Option<Load>) {
        let mut lower = None;
        for load in self.trials.keys() {
            match self.classify(goal, *load) {
                Class::Lower => lower = Some(*load),
                Class::Upper => return (lower, Some(*load)),
                Class::Undecided => {}
            }
        }
        (lower, None)
    }

    /// RFC 9971 appendix A. The sums are exact.
    fn classify(&self, goal: &Goal, load: Load) -> Class {
        classify(goal, self.trials.get(&load).map_or(&[], Vec::as_slice))
    }

    fn result(&self, goal: &Goal) -> GoalResult {
        let (lower, upper) = self.bounds(goal);
        let Range { min, max, .. } = self.range;
        let end = match (lower, upper) {
            (Some(lower), Some(upper)) if goal.is_close(lower, upper) => End::Regular,
            (Some(lower), None) if lower == max => End::AtMax,
            (None, Some(upper)) if upper == min => End::BelowMin,
            _ => End::TimeLimit,
        };
        let trials = |load| self.trials.get(&load).map_or(&[][..], Vec::as_slice);
        let throughput = lower.map_or(0.0, |load| {
            load.0 as f64 * (1.0 - quantile_loss_ratio(goal, trials(load)))
        });
        let bound = upper.or(lower).map_or(&[][..], trials);
        let median = |ratio: fn(&Trial) -> f64| {
            let mut ratios: Vec<_> = bound.iter().map(|done| ratio(&done.trial)).collect();
            ratios.sort_by(f64::total_cmp);
            ratios.get(ratios.len() / 2).copied().unwrap_or(0.0)
        };
        let unsent_ratio = median(Trial::unsent_ratio);
        let overrun_ratio = median(Trial::overrun_ratio);
        let limit = match upper {
            None => (end == End::AtMax).then_some(Limit::Sender),
            Some(_) if median(Trial::device_loss_ratio) > goal.loss_ratio => Some(Limit::Device),
            Some(_) if overrun_ratio > unsent_ratio => Some(Limit::Receiver),
            Some(_) if unsent_ratio > 0.0 => Some(Limit::Sender),
            // It lost frames in fewer than half of the trials.
            Some(_) => Some(Limit::Device),
        };
        GoalResult {
            lower,
            upper,
            throughput,
            unsent_ratio,
            overrun_ratio,
            limit,
            end,
        }
    }
}

fn classify(goal: &Goal, trials: &[Done]) -> Class {
    let sum = |full_length: bool, high_loss: bool| -> Duration {
        let of_kind = |done: &&Done| {
            (done.duration >= goal.final_duration) == full_length
                && (done.trial.loss_ratio() > goal.loss_ratio) == high_loss
        };
        trials
            .iter()
            .filter(of_kind)
            .map(|done| done.duration)
            .sum()
    };
    let exceed_coefficient = goal.exceed_ratio / (1.0 - goal.exceed_ratio);
    let balancing = sum(false, false).mul_f64(exceed_coefficient);
    let high_loss = sum(true, true) + sum(false, true).saturating_sub(balancing);
    let low_loss = sum(true, false);
    let whole = (high_loss + low_loss).max(goal.duration_sum);
    let tolerated = whole.mul_f64(goal.exceed_ratio);
    if high_loss > tolerated {
        Class::Upper
    } else if whole - low_loss <= tolerated {
        Class::Lower
    } else {
        Class::Undecided
    }
}

/// RFC 9971 appendix B: the loss ratio that the full-length trials at a lower bound stay below for
/// all but the exceed ratio of the time.
fn quantile_loss_ratio(goal: &Goal, trials: &[Done]) -> f64 {
    let is_full_length = |done: &&Done| done.duration >= goal.final_duration;
    let mut full_length: Vec<_> = trials.iter().filter(is_full_length).collect();
    full_length.sort_by(|a, b| a.trial.loss_ratio().total_cmp(&b.trial.loss_ratio()));
    let sum: Duration = full_length.iter().map(|done| done.duration).sum();
    let mut remaining = sum.max(goal.duration_sum).mul_f64(1.0 - goal.exceed_ratio);
    for done in full_length {
        remaining = remaining.saturating_sub(done.duration);
        if remaining.is_zero() {
            return done.trial.loss_ratio();
        }
    }
    1.0
}

#[cfg(test)]
mod tests;
