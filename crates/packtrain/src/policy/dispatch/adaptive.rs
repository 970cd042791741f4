//! Direct dispatch, until the worker is seen to be faster.
//!
//! Draining directly costs no wakeup and no packet crosses from one CPU's cache to another's. It
//! loses where a producer could have made packets during the time in which it drains, and another
//! CPU is free to drain: then two CPUs do what one did. It also loses where producers contend and
//! no CPU is free: then it pays to let packets gather, and to drain many at once. Whether either
//! pays depends on caches and scheduling, which no counter shows. So where it may pay, and only
//! there, it is tried for a moment. If more packets went out, what there was before is looked at
//! once more: what is better than both the time before and the time after is better, and stays.
//! Otherwise it is not tried again for a time that doubles. A trial that gained nothing leaves
//! things as they were, so a constant load sees one trial in each [`TRIAL_EVERY_MAX`], and between
//! them no change.
//!
//! With more producers than CPUs it is the scheduler that decides from one millisecond to the next
//! whether they contend, and a producer that runs alone sends more than two in each other's way.
//! So times with contention are compared with others of the same kind only.

use super::rule::Rule;
use super::{BUDGET, BUDGET_MAX, BUDGET_MIN};
use std::time::Duration;

/// Time from one trial to the next, at least. A trial lasts four windows of a millisecond, so it is
/// less than 1 % of the time (what follows one that seems to win is as it was before), and below
/// what a 99th percentile shows.
pub const TRIAL_EVERY_MIN: Duration = Duration::from_millis(512);
/// Time from one trial to the next under a load that does not change, in the end.
pub const TRIAL_EVERY_MAX: Duration = Duration::from_secs(64);

/// Time over which throughput is measured.
const WINDOW_NS: u64 = 1_000_000;
/// Packets that a window has at least, or it lasts [`WINDOW_SLOW_NS`].
const WINDOW_PACKETS: u64 = 64;
const WINDOW_SLOW_NS: u64 = 16 * WINDOW_NS;
/// Windows of a trial that count. One before them does not: the ring and the caches settle.
const TRIAL_WINDOWS: u8 = 3;
/// The same where producers contend: several time slices, since who runs beside whom decides much.
const CROWDED_WINDOWS: u8 = 8;
/// Windows before the first trial, so that there is something to compare with.
const SETTLED_WINDOWS: u8 = 8;
/// Time to the next trial after one that was won, at most.
const EVERY_AFTER_WIN_NS: u64 = 8 * nanos(TRIAL_EVERY_MIN);
/// Windows in a row that must say the same before anything is done about it.
const STREAK: u8 = 4;
/// Deferring stays if it is better by more than 51/50. Draining directly stays unless it is worse
/// by more: where both are equal, it has the lower latency.
const BETTER: (u128, u128) = (51, 50);
/// Wakeups that deferring may need at most: one for so many packets. A wakeup is two context
/// switches, and so they stay under 0.02 for each packet.
const PACKETS_PER_WAKEUP: u64 = 128;
/// Packets that gather before a producer drains, where producers contend.
const GATHERED: u32 = 128;
/// Producers contend where one batch in so many finds somebody draining.
const CONTENDED: u64 = 8;
/// Share of the time, in 1/64, that draining takes before it is worth giving away.
const DRAINING_WORTH: u128 = 2;
/// A producer drains for others so many times as long as a wakeup takes.
const WAKEUPS_PER_BUDGET: u64 = 16;
/// Cost of a wakeup until one was measured.
const WAKEUP_NS: u64 = 5_000;

/// What happened on a ring since the last observation, and how the machine is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// Packets drained.
    pub packets: u64,
    /// Sum over all drains of the packets that were in the ring when the drain began. What is above
    /// `packets` was left there, because the device took no more or the budget ended.
    pub depth: u64,
    /// Batches that producers enqueued.
    pub enqueues: u64,
    /// Of these, the ones that found somebody draining.
    pub contended: u64,
    /// Wakeups of the worker that the ring asked for.
    pub wakeups: u64,
    /// Packets of the drains of which the time was taken; a sample is enough.
    pub timed_packets: u64,
    /// How long these drains took, in nanoseconds, with their system calls.
    pub timed_ns: u64,
    /// What a wakeup costs who asks for it, in nanoseconds; 0 when not known.
    pub wakeup_ns: u64,
    /// CPUs that are left when each worker and each producer of the ring has one, of those that the
    /// process may use. Who else uses them is not known.
    pub idle_cpus: u32,
    /// Whether the worker of the ring is awake, draining or polling.
    pub worker_awake: bool,
}

/// Observations of one window, added up.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    packets: u64,
    depth: u64,
    enqueues: u64,
    contended: u64,
    wakeups: u64,
    /// Whether there was a CPU for the worker all the time.
    spare: bool,
}

impl Window {
    const EMPTY: Self = Self {
        packets: 0,
        depth: 0,
        enqueues: 0,
        contended: 0,
        wakeups: 0,
        spare: true,
    };

    fn add(&mut self, seen: &Observation) {
        self.packets = self.packets.saturating_add(seen.packets);
        self.depth = self.depth.saturating_add(seen.depth);
        self.enqueues = self.enqueues.saturating_add(seen.enqueues);
        self.contended = self.contended.saturating_add(seen.contended);
        self.wakeups = self.wakeups.saturating_add(seen.wakeups);
        self.spare &= seen.worker_awake || seen.idle_cpus > 0;
    }

    /// Whether the worker sleeps between packets: then each batch pays for a wakeup.
    fn sleeps_between(&self) -> bool {
        self.wakeups.saturating_mul(PACKETS_PER_WAKEUP) > self.packets
    }

    /// Whether one batch in so many found somebody draining.
    const fn contends(&self, one_in: u64) -> bool {
        self.contended > 0 && self.contended >= self.enqueues / one_in
    }

    /// Whether the device is what all wait for: most of what was found was left.
    fn is_backlog(&self) -> bool {
        self.depth / 2 > self.packets
    }
}

/// Packets for each second.
fn rate(packets: u64, ns: u64) -> u64 {
    let rate = u128::from(packets) * 1_000_000_000 / u128::from(ns.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Direct,
    Deferred,
    /// The worker drains what nobody else does; a producer that finds many packets drains.
    Gathered,
}

/// A trial of another mode.
#[derive(Clone, Copy, Debug)]
struct Trial {
    of: Mode,
    windows: u8,
    /// Packets and nanoseconds of the first window.
    first: (u64, u64),
    /// Of the others.
    packets: u64,
    ns: u64,
    /// Throughput of the trial, while that of the mode before is measured once more.
    tried: Option<u64>,
}

impl Trial {
    const fn new(of: Mode, tried: Option<u64>) -> Self {
        Self {
            of,
            windows: 0,
            first: (0, 0),
            packets: 0,
            ns: 0,
            tried,
        }
    }

    /// Packets for each second, the first window included.
    fn rate_with_first(&self) -> u64 {
        let (packets, ns) = self.first;
        rate(
            self.packets.saturating_add(packets),
            self.ns.saturating_add(ns),
        )
    }
}

#[derive(Clone, Debug)]
pub(super) struct Adaptive {
    mode: Mode,
    budget: u16,
    trial: Option<Trial>,
    window: Window,
    /// Begin of the window, and the last `now`; none before the first observation.
    times: Option<(u64, u64)>,
    /// Nanoseconds to drain one packet; 0 until measured.
    drain_ns: u64,
    wakeup_ns: u64,
    /// Throughput of `mode` as it is, packets for each second; of the last windows more.
    usual: u64,
    /// Throughput when `mode` was last compared with the other.
    compared: u64,
    /// Windows since `mode` was chosen, up to `SETTLED_WINDOWS`.
    settled: u8,
    /// Whether producers contend, in the windows that are compared.
    crowded: bool,
    /// Windows in a row in which that was otherwise.
    strange: u8,
    /// The last trial was of gathering.
    gathered: bool,
    /// Producers take the ring back from the worker: in the first window after it drained.
    retakes: bool,
    /// Windows in a row that speak against `mode`.
    against: u8,
    /// Windows in a row in which the load was not the one of the last comparison.
    changed: u8,
    next_trial: u64,
    every: u64,
}

const fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

impl Adaptive {
    pub(super) const fn new() -> Self {
        Self {
            mode: Mode::Direct,
            budget: BUDGET,
            trial: None,
            window: Window::EMPTY,
            times: None,
            drain_ns: 0,
            wakeup_ns: WAKEUP_NS,
            usual: 0,
            compared: 0,
            settled: 0,
            crowded: false,
            strange: 0,
            gathered: false,
            retakes: false,
            against: 0,
            changed: 0,
            next_trial: 0,
            every: nanos(TRIAL_EVERY_MIN),
        }
    }

    /// What is in force.
    const fn current(&self) -> Mode {
        match self.trial {
            Some(Trial {
                of, tried: None, ..
            }) => of,
            _ => self.mode,
        }
    }

    const fn rule(&self) -> Rule {
        match self.current() {
            // A worker that has the ring keeps it until it is empty, which it may never be while
            // producers are as fast. Then nothing would have changed but the name.
            Mode::Direct if self.retakes => Rule::threshold(1, self.budget),
            Mode::Direct => Rule::direct(self.budget),
            Mode::Deferred => Rule::deferred(self.budget),
            Mode::Gathered => Rule::threshold(GATHERED, self.budget),
        }
    }

    pub(super) fn observe(&mut self, now: u64, seen: &Observation) -> Rule {
        let begin = match self.times {
            Some((begin, last)) if now >= last => begin,
            // The counts belong to a time that nobody knows.
            _ => {
                self.times = Some((now, now));
                self.window = Window::EMPTY;
                return self.rule();
            }
        };
        self.times = Some((begin, now));
        self.window.add(seen);
        self.learn_costs(seen);
        let ns = now - begin;
        let long = self.window.packets >= WINDOW_PACKETS || ns >= WINDOW_SLOW_NS;
        if ns >= WINDOW_NS && long {
            let window = std::mem::replace(&mut self.window, Window::EMPTY);
            self.times = Some((now, now));
            let before = self.current();
            if self.is_of_the_kind(&window, now) {
                match self.trial {
                    Some(trial) => self.step_trial(trial, now, ns, &window),
                    None => self.step(now, ns, &window),
                }
            }
            self.retakes = before != Mode::Direct && self.current() == Mode::Direct;
        }
        self.rule()
    }

    fn learn_costs(&mut self, seen: &Observation) {
        if let Some(ns) = seen.timed_ns.checked_div(seen.timed_packets) {
            self.drain_ns = ns;
        }
        if seen.wakeup_ns > 0 {
            self.wakeup_ns = seen.wakeup_ns;
        }
    }

    /// Whether `window` can be compared with those before. Where several in a row cannot, what
    /// follows is compared with them.
    fn is_of_the_kind(&mut self, window: &Window, now: u64) -> bool {
        // A worker that drains all the time is always found draining.
        if self.current() == Mode::Deferred || window.contends(CONTENDED) == self.crowded {
            self.strange = 0;
            return true;
        }
        self.strange += 1;
        if self.strange == STREAK {
            self.strange = 0;
            self.crowded = !self.crowded;
            self.settled = 0;
            self.changed = 0;
            if self.trial.take().is_some() || self.mode == Mode::Gathered {
                self.settle(Mode::Direct, now);
            }
        }
        false
    }

    /// A window without a trial.
    fn step(&mut self, now: u64, ns: u64, window: &Window) {
        let rate = rate(window.packets, ns);
        self.usual = if self.settled == 0 {
            rate
        } else {
            // Halves first, so that the sum of two rates cannot be too large.
            (self.usual / 4 * 3).saturating_add(rate / 4 + (self.usual % 4 * 3 + rate % 4) / 4)
        };
        self.settled = (self.settled + 1).min(SETTLED_WINDOWS);
        self.adapt_budget();

        let is = |streak: &mut u8, what: bool| {
            *streak = if what { (*streak + 1).min(STREAK) } else { 0 };
            *streak == STREAK
        };
        let below = |part: u128, of: u128| u128::from(rate) * of < u128::from(self.compared) * part;
        let against = match self.mode {
            Mode::Direct => false,
            Mode::Deferred => !window.spare || window.sleeps_between() || below(3, 4),
            // Producers that contend send more or less by who runs beside whom.
            Mode::Gathered => window.sleeps_between() || below(1, 2),
        };
        if is(&mut self.against, against) {
            self.settle(Mode::Direct, now);
            return;
        }
        let ratio = (u128::from(rate) * 2, u128::from(self.compared) * 2);
        let other = ratio.0 > u128::from(self.compared) * 3 || ratio.1 > u128::from(rate) * 4;
        if is(&mut self.changed, self.compared > 0 && other) {
            // What was learned belongs to another load.
            self.compared = rate;
            self.every = nanos(TRIAL_EVERY_MIN);
            self.next_trial = self.next_trial.min(now.saturating_add(self.every));
        }
        if now >= self.next_trial
            && self.settled == SETTLED_WINDOWS
            && let Some(mode) = self.candidate(window, ns)
        {
            self.gathered = mode == Mode::Gathered;
            self.trial = Some(Trial::new(mode, None));
        }
    }

    /// What may send more. Instead of draining directly: where the device takes more, to defer if a
    /// CPU is free for it and producers either spend their time in draining, or wait for one that
    /// does; to gather if they are in each other's way. Where both may be, each has its turn.
    fn candidate(&self, window: &Window, ns: u64) -> Option<Mode> {
        if self.mode != Mode::Direct {
            return Some(Mode::Direct);
        }
        let draining = u128::from(window.packets) * u128::from(self.drain_ns);
        let drains = draining.saturating_mul(64) >= u128::from(ns) * DRAINING_WORTH;
        let defers = window.spare && (drains || window.contends(2));
        match (window.contends(CONTENDED), defers) {
            _ if window.is_backlog() => None,
            (true, true) if self.gathered => Some(Mode::Deferred),
            (true, _) => Some(Mode::Gathered),
            (false, true) => Some(Mode::Deferred),
            (false, false) => None,
        }
    }

    fn step_trial(&mut self, mut trial: Trial, now: u64, ns: u64, window: &Window) {
        let fails = match trial.of {
            _ if trial.tried.is_some() => false,
            Mode::Direct => false,
            Mode::Deferred => !window.spare || window.sleeps_between(),
            Mode::Gathered => window.sleeps_between(),
        };
        if fails {
            self.settle(self.mode, now);
            return;
        }
        if trial.windows == 0 {
            trial.first = (window.packets, ns);
        } else {
            trial.packets = trial.packets.saturating_add(window.packets);
            trial.ns = trial.ns.saturating_add(ns);
        }
        trial.windows += 1;
        self.trial = Some(trial);
        let long = if self.crowded {
            CROWDED_WINDOWS
        } else {
            TRIAL_WINDOWS
        };
        if trial.windows <= long {
            return;
        }
        let seen = rate(trial.packets, trial.ns);
        let (tried, usual) = match trial.tried {
            // What the first window left for the others to send is no gain.
            None => (seen.min(trial.rate_with_first()), self.usual),
            Some(tried) => (tried, seen),
        };
        let (more, less) = (u128::from(tried), u128::from(usual));
        let wins = match trial.of {
            Mode::Direct => more * BETTER.0 >= less * BETTER.1,
            _ => more * BETTER.1 > less * BETTER.0,
        };
        if wins && trial.of != Mode::Direct && trial.tried.is_none() {
            // Perhaps it was only the load that grew, or the time before that was slow.
            self.trial = Some(Trial::new(trial.of, Some(tried)));
            return;
        }
        if wins {
            self.usual = tried;
            // A lucky trial is found out soon, and a tie does not become a habit.
            self.every = self.every.min(EVERY_AFTER_WIN_NS);
        }
        self.settle(if wins { trial.of } else { self.mode }, now);
    }

    /// Stays with `mode` for at least the time to the next trial.
    fn settle(&mut self, mode: Mode, now: u64) {
        self.trial = None;
        self.mode = mode;
        self.compared = self.usual;
        self.settled = 0;
        self.against = 0;
        self.changed = 0;
        self.next_trial = now.saturating_add(self.every);
        self.every = (self.every * 2).min(nanos(TRIAL_EVERY_MAX));
    }

    /// The budget is a power of two and follows the costs in steps of 4, so that no noise in them
    /// moves it.
    fn adapt_budget(&mut self) {
        if self.drain_ns == 0 {
            return;
        }
        let packets = self.wakeup_ns.saturating_mul(WAKEUPS_PER_BUDGET) / self.drain_ns;
        let bounded = packets.clamp(u64::from(BUDGET_MIN), u64::from(BUDGET_MAX));
        let wanted = bounded.next_power_of_two();
        let now = u64::from(self.budget);
        if wanted >= now * 4 || wanted * 4 <= now {
            self.budget = wanted as u16;
        }
    }
}
