//! Direct dispatch, until another way is seen to be faster.
//!
//! Draining directly costs no wakeup and no packet crosses from one CPU's cache to another's. It
//! loses where a producer could have made packets during the time in which it drains, and another
//! CPU is free to drain: then two CPUs do what one did. It also loses where producers contend and
//! what they send fills the ring. Then it pays to take turns, in which each drains as many as the
//! ring holds: who takes over finds what it made itself while it waited, in the caches of its own
//! CPU. Or to let packets gather and send many at a time, as who drains a packet alone takes the
//! lines that the next producer is just writing. Or to leave all of it to the worker, though no CPU
//! is free: it takes that of a producer, and producers only make packets, each time in the same
//! order of memory. Whether any of it pays depends on caches and scheduling, which no counter
//! shows. So where it may pay, and only there, it is tried for a moment. If more packets went out,
//! what there was before is looked at once more: what is better than both the time before and the
//! time after is better, and stays. Otherwise it is not tried again for a time that doubles. A
//! trial that gained nothing leaves things as they were, so a constant load sees one trial of each
//! way in each [`TRIAL_EVERY_MAX`], and between them no change.
//!
//! With more producers than CPUs it is the scheduler that decides from one millisecond to the next
//! whether they contend, and a producer that runs alone sends more than two in each other's way.
//! So times with contention are compared with others of the same kind only, and what is tried there
//! with the mean of the time before and the time after.
//!
//! A load that somebody paces would gain nothing by a trial, and what that leaves undone makes its
//! packets late. Whatever holds it up, it makes up for: so what it has sent since some time is
//! never more than what was due, and mostly just that, which grows with time at a constant rate. A
//! producer that sends as fast as it can is slowed down by this and that, makes up for nothing, and
//! is hardly ever so steady on a machine that others use, too. On a quiet one it might be. So
//! under a steady load the first trials come later, and not never. What does not look steady is
//! looked at twice before the first one: a load begins with cold caches, or while others end.
//!
//! Each mode has times of its own at which it is tried, so that of two that may pay neither waits
//! for the other to be tried again. A mode that was kept, and sends much less than when it was last
//! compared, is left; but something else may have had a CPU for a moment, so it is tried again as
//! soon as there is something to compare it with, once in [`TRIAL_EVERY_MIN`].

use super::rule::Rule;
use super::{BUDGET, BUDGET_MIN};
use std::time::Duration;

/// Time from one trial to the next, at least; but for one of a mode that was left because it was
/// slower than before, of which there is one more in this time. A trial lasts four windows of a
/// millisecond where it neither is slower at first nor producers contend, so it is less than 1 % of
/// the time (what follows one that seems to win is as it was before), and below what a 99th
/// percentile shows.
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
/// Windows before the first trial, so that there is something to compare with: their average.
const SETTLED_WINDOWS: u8 = 8;
/// A load is steady if, of the moments between the windows before a trial and around them, at least
/// so many are on one line, packets over time, and no other is above it: by no more than one part
/// in [`STEADY_PART`] of what a window has. What is not compared with anything, a pause or a window
/// of another kind, was sent all the same. (On a noisy AMD EPYC 688 of 819 times under paced loads,
/// of which a part was more than the port took, and once of 511 times under others. That half of
/// the windows have the same rate says less: 647 and 3 times. A moment is on the line where the
/// load has caught up by then, a window's rate is the usual one where it has at both of its ends.)
const STEADY_MOMENTS: usize = 6;
const STEADY_PART: u16 = 256;
const MOMENTS: usize = SETTLED_WINDOWS as usize + 1;
/// Deferring that sends less at first has so many windows more, and is then measured again: a
/// worker that is woken often begins on the CPU of who woke it, until the scheduler has moved it.
/// Where several producers contend the worker was at work before, wherever it is.
const SCHEDULED_WINDOWS: u8 = 8;
/// Deferring that one producer's worker was woken too often for, and sent less by, is tried again
/// as soon as there is something to compare it with, so many times: the worker was on the CPU of
/// who woke it, and each slept while the other ran. (A load that is light sends as much as before.)
const HASTY_MAX: u8 = 2;
/// A trial that sends less than half is over after so many of its windows.
const HOPELESS_WINDOWS: u8 = 2;
/// An observation has a pause in it that lasted so long at least, and this many times as long as
/// its packets usually take.
const PAUSE_NS: u64 = WINDOW_NS / 4;
const PAUSE_FACTOR: u128 = 4;
/// Time to the next trial after one that was won, at most.
const EVERY_AFTER_WIN_NS: u64 = 8 * nanos(TRIAL_EVERY_MIN);
/// Windows in a row that must say the same before anything is done about it.
const STREAK: u8 = 4;
/// Deferring stays if it is better by more than 51/50. Draining directly stays unless it is worse
/// by more: where both are equal, it has the lower latency.
const BETTER: (u128, u128) = (51, 50);
/// Wakeups that a way other than direct dispatch may need at most: one for so many packets. A
/// wakeup is two context switches, and so they stay under 0.02 for each packet.
const PACKETS_PER_WAKEUP: u64 = 128;
/// The same in the first window of a trial, in which the worker comes to work.
const PACKETS_PER_WAKEUP_FIRST: u64 = 16;
/// Producers contend where one batch in so many finds somebody draining.
const CONTENDED: u64 = 8;
/// Share of the time, in 1/64, that draining takes before it is worth giving away.
const DRAINING_WORTH: u128 = 2;
/// A producer drains for others so many times as long as a wakeup takes.
const WAKEUPS_PER_BUDGET: u64 = 16;
/// A turn lasts so long at most: meanwhile its producer makes no packets of its own.
const TURN_NS_MAX: u64 = 1_000_000;
/// Packets that gather before a producer drains them, where that is tried. Who drains begins with
/// lines that another CPU had last: half a microsecond for all of them, on the machine where 32
/// gathered at 8.3 Mpps (`null:`, two producers), and 128 at 9.5; 256 at no more than that.
const GATHER: u16 = 128;
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
    /// Batches that producers enqueued, but for those that were left for the worker, or to gather:
    /// turns, and batches that were left to somebody who was draining.
    pub enqueues: u64,
    /// Of these, the ones that were left to somebody who was draining.
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
    /// Handles to the ring that exist, of which each counts as a thread that submits.
    pub producers: u32,
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
    /// Whether there were several producers at some time.
    several: bool,
}

impl Window {
    const EMPTY: Self = Self {
        packets: 0,
        depth: 0,
        enqueues: 0,
        contended: 0,
        wakeups: 0,
        spare: true,
        several: false,
    };

    fn add(&mut self, seen: &Observation) {
        self.packets = self.packets.saturating_add(seen.packets);
        self.depth = self.depth.saturating_add(seen.depth);
        self.enqueues = self.enqueues.saturating_add(seen.enqueues);
        self.contended = self.contended.saturating_add(seen.contended);
        self.wakeups = self.wakeups.saturating_add(seen.wakeups);
        self.spare &= seen.worker_awake || seen.idle_cpus > 0;
        self.several |= seen.producers > 1;
    }

    /// Whether the worker sleeps between packets: then each batch pays for a wakeup.
    fn sleeps_between(&self) -> bool {
        self.wakes_for(PACKETS_PER_WAKEUP)
    }

    /// Whether there was more than one wakeup for so many packets.
    fn wakes_for(&self, packets: u64) -> bool {
        self.wakeups.saturating_mul(packets) > self.packets
    }

    /// Whether one batch in so many found somebody draining.
    const fn contends(&self, one_in: u64) -> bool {
        self.contended > 0 && self.contended >= self.enqueues / one_in
    }

    /// Whether there is a CPU for the worker: nobody else's, or that of one of several producers.
    const fn has_cpu(&self) -> bool {
        self.spare || self.several
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

/// Whether a rate is below another by more than what does not count.
fn is_less(rate: u64, other: u64) -> bool {
    u128::from(rate) * BETTER.0 < u128::from(other) * BETTER.1
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Direct,
    Deferred,
    /// As `Direct`, and each producer drains as many as the ring holds before it leaves it to the
    /// next one.
    Turns,
    /// Packets gather, and the producer that sees [`GATHER`] of them drains. What is left when
    /// nobody sends any more is the worker's.
    Gather,
}

impl Mode {
    const ALL: [Self; 4] = [Self::Turns, Self::Gather, Self::Deferred, Self::Direct];

    /// Whether it is for producers that are in each other's way, and for nobody else.
    const fn is_for_many(self) -> bool {
        matches!(self, Self::Turns | Self::Gather)
    }
}

/// When a mode is tried, while another one is in force.
#[derive(Clone, Copy, Debug)]
struct Due {
    at: u64,
    /// From the next trial to the one after it.
    every: u64,
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
    /// Windows to come that do not count.
    settles: u8,
    /// It had more time once.
    prolonged: bool,
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
            settles: 0,
            prolonged: false,
        }
    }

    /// The same, with more time.
    const fn prolonged(self) -> Self {
        Self {
            windows: 1,
            packets: 0,
            ns: 0,
            settles: SCHEDULED_WINDOWS,
            prolonged: true,
            ..self
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
    /// Packets that the ring holds.
    capacity: u16,
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
    /// Packets that were drained since the beginning, in whatever window.
    sent: u64,
    /// `sent`, and when, at the ends of the last windows, whatever became of them.
    moments: [(u64, u64); MOMENTS],
    /// Windows since `mode` was chosen, up to `SETTLED_WINDOWS`.
    settled: u8,
    /// Whether producers contend, in the windows that are compared.
    crowded: bool,
    /// Windows in a row in which that was otherwise.
    strange: u8,
    /// The last observation had a pause in it.
    paused: bool,
    /// Windows in a row that speak against `mode`.
    against: u8,
    /// Windows in a row in which the load was not the one of the last comparison.
    changed: u8,
    /// Trials that were begun again at once.
    hasty: u8,
    /// By mode.
    due: [Due; Mode::ALL.len()],
    /// From when on a mode that was left because it was slower than before may be tried at once.
    forgives: u64,
    /// Whether a load that was not steady was looked at again, before the first trial.
    looked: bool,
}

const fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

impl Adaptive {
    /// For a ring that holds so many packets.
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            mode: Mode::Direct,
            budget: BUDGET,
            capacity: capacity.try_into().unwrap_or(u16::MAX),
            trial: None,
            window: Window::EMPTY,
            times: None,
            drain_ns: 0,
            wakeup_ns: WAKEUP_NS,
            usual: 0,
            compared: 0,
            sent: 0,
            moments: [(0, 0); MOMENTS],
            settled: 0,
            crowded: false,
            strange: 0,
            paused: false,
            against: 0,
            changed: 0,
            hasty: 0,
            due: [Due {
                at: 0,
                every: nanos(TRIAL_EVERY_MIN),
            }; Mode::ALL.len()],
            forgives: 0,
            looked: false,
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

    fn rule(&self) -> Rule {
        match self.current() {
            Mode::Direct => Rule::direct(self.budget),
            Mode::Deferred => Rule::deferred(self.budget),
            Mode::Turns => Rule::direct(self.capacity),
            // With less than what has gathered each drain would end in asking for the worker.
            Mode::Gather => Rule::gather(GATHER.into(), self.budget.max(GATHER)),
        }
    }

    pub(super) fn observe(&mut self, now: u64, seen: &Observation) -> Rule {
        let begin = match self.times {
            Some((begin, last)) if now >= last => begin,
            // The counts belong to a time that nobody knows.
            _ => {
                self.times = Some((now, now));
                self.window = Window::EMPTY;
                self.settled = 0;
                self.remember(now);
                return self.rule();
            }
        };
        self.sent = self.sent.saturating_add(seen.packets);
        let begin = if self.is_pause(now, seen) {
            // As if it had not been: neither its time nor what came around it.
            begin + (now - self.times.map_or(now, |(_, last)| last))
        } else {
            self.window.add(seen);
            begin
        };
        self.times = Some((begin, now));
        self.learn_costs(seen);
        let ns = now - begin;
        let long = self.window.packets >= WINDOW_PACKETS || ns >= WINDOW_SLOW_NS;
        if ns >= WINDOW_NS && long {
            let window = std::mem::replace(&mut self.window, Window::EMPTY);
            self.times = Some((now, now));
            self.remember(now);
            if self.is_of_the_kind(&window, now) {
                match self.trial {
                    Some(trial) => self.step_trial(trial, now, ns, &window),
                    None => self.step(now, ns, &window),
                }
            }
        }
        self.rule()
    }

    /// Whether the load paused meanwhile: how long is not the mode's doing. Where a CPU is short it
    /// may be, and two in a row are no pause but another load.
    fn is_pause(&mut self, now: u64, seen: &Observation) -> bool {
        let ns = self.times.map_or(0, |(_, last)| now - last);
        let spare = seen.worker_awake || seen.idle_cpus > 0;
        let usually = u128::from(seen.packets) * 1_000_000_000;
        let slow = u128::from(ns) * u128::from(self.usual) > usually * PAUSE_FACTOR;
        self.paused = !self.paused && spare && ns >= PAUSE_NS && slow;
        self.paused
    }

    /// One more moment at which what was sent is known.
    fn remember(&mut self, now: u64) {
        self.moments.rotate_left(1);
        self.moments[MOMENTS - 1] = (self.sent, now);
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
        // A worker that drains all the time is always found draining. (Where packets gather few
        // batches are turns, so a little contention looks like much, and none like none.)
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
            if let Some(trial) = self.trial.take() {
                self.lose(trial.of, now);
            }
            if self.mode.is_for_many() {
                self.change(Mode::Direct, now);
            }
        }
        false
    }

    /// A window without a trial.
    fn step(&mut self, now: u64, ns: u64, window: &Window) {
        let rate = rate(window.packets, ns);
        let known = u128::from(self.settled.min(SETTLED_WINDOWS - 1));
        let sum = u128::from(self.usual) * known + u128::from(rate);
        self.usual = u64::try_from(sum / (known + 1)).unwrap_or(u64::MAX);
        self.settled = (self.settled + 1).min(SETTLED_WINDOWS);
        self.adapt_budget();

        let is = |streak: &mut u8, what: bool| {
            *streak = if what { (*streak + 1).min(STREAK) } else { 0 };
            *streak == STREAK
        };
        // Not before the worker had time to come to its rate.
        let settled = self.settled == SETTLED_WINDOWS;
        let below = |part: u128, of: u128| {
            settled && u128::from(rate) * of < u128::from(self.compared) * part
        };
        let (ends, slow) = match self.mode {
            Mode::Direct => (false, false),
            Mode::Deferred => (!window.has_cpu() || window.sleeps_between(), below(3, 4)),
            // Producers that contend send more or less by who runs beside whom.
            Mode::Turns | Mode::Gather => {
                let ends = !window.several || window.sleeps_between() || !self.has(self.mode);
                (ends, below(1, 2))
            }
        };
        if is(&mut self.against, ends || slow) {
            let (mode, every) = (self.mode, self.due[self.mode as usize].every);
            self.change(Mode::Direct, now);
            if !ends && now >= self.forgives {
                self.due[mode as usize] = Due { at: now, every };
                self.forgives = now.saturating_add(nanos(TRIAL_EVERY_MIN));
            }
            return;
        }
        let ratio = (u128::from(rate) * 2, u128::from(self.compared) * 2);
        let other = ratio.0 > u128::from(self.compared) * 3 || ratio.1 > u128::from(rate) * 4;
        if is(&mut self.changed, self.compared > 0 && other) {
            // What was learned belongs to another load.
            self.compared = rate;
            let every = nanos(TRIAL_EVERY_MIN);
            for due in &mut self.due {
                let at = due.at.min(now.saturating_add(every));
                *due = Due { at, every };
            }
        }
        if self.settled == SETTLED_WINDOWS {
            let next = Mode::ALL
                .into_iter()
                .filter(|&mode| now >= self.due[mode as usize].at && self.may_pay(mode, window, ns))
                .min_by_key(|&mode| self.due[mode as usize].at);
            self.trial = next.map(|mode| Trial::new(mode, None));
            if let Some(mode) = next
                && self.due[mode as usize].at == 0
            {
                self.before_first(now);
            }
        }
    }

    /// Puts off what was never tried if the load is steady, or until it was looked at once more.
    fn before_first(&mut self, now: u64) {
        if self.is_steady() {
            for mode in Mode::ALL {
                if mode != self.mode && self.due[mode as usize].at == 0 {
                    self.lose(mode, now);
                }
            }
        } else if !self.looked {
            self.looked = true;
            self.settle(self.mode);
        }
    }

    /// Whether most of the moments between the last windows are on one line, and none is above it.
    /// To be asked where these windows are all since `mode` was chosen.
    fn is_steady(&self) -> bool {
        let (sent, at) = self.moments[0];
        // What is more is no load that is looked at so closely.
        let since =
            |value: u64, first: u64| i128::from(u32::try_from(value - first).unwrap_or(u32::MAX));
        let moments = self
            .moments
            .map(|one| (since(one.0, sent), since(one.1, at)));
        let pairs = (0..MOMENTS).flat_map(|to| (0..to).map(move |from| (from, to)));
        let mut lines = pairs.map(|(from, to)| (moments[from], moments[to]));
        lines.any(|(from, to)| {
            let (packets, ns) = (to.0 - from.0, to.1 - from.1);
            // In parts of a window, and times the time between the two that the line goes through.
            let parts = i128::from(STEADY_PART) * i128::from(SETTLED_WINDOWS);
            let above =
                |one: &(i128, i128)| parts * ((one.0 - from.0) * ns - (one.1 - from.1) * packets);
            let limit = moments[MOMENTS - 1].0 * ns;
            let on = moments.iter().filter(|one| above(one).abs() <= limit);
            on.count() >= STEADY_MOMENTS && moments.iter().all(|one| above(one) <= limit)
        })
    }

    /// Whether `mode` may send more than what is in force. To drain directly may, always. Where the
    /// device takes more: to defer if a CPU is free for it and producers either spend their time in
    /// draining, or wait for one that does; to defer, to take turns or to let packets gather if
    /// several are in each other's way.
    fn may_pay(&self, mode: Mode, window: &Window, ns: u64) -> bool {
        if mode == self.mode {
            return false;
        }
        match mode {
            Mode::Direct => true,
            _ if window.is_backlog() => false,
            Mode::Deferred => {
                let draining = u128::from(window.packets) * u128::from(self.drain_ns);
                let drains = draining.saturating_mul(64) >= u128::from(ns) * DRAINING_WORTH;
                let alone = window.spare && (drains || window.contends(2));
                alone || (window.several && window.contends(CONTENDED))
            }
            _ if !self.has(mode) => false,
            _ if self.mode == Mode::Deferred => self.crowded && window.several,
            _ => window.contends(CONTENDED) && window.several,
        }
    }

    /// Whether the ring is one for `mode`: for turns, a ring's worth of packets is more than a
    /// budget and does not take too long; to let packets gather, it has space for others besides.
    const fn has(&self, mode: Mode) -> bool {
        match mode {
            Mode::Direct | Mode::Deferred => true,
            Mode::Turns => {
                let turn_ns = self.drain_ns.saturating_mul(self.capacity as u64);
                self.capacity > self.budget && turn_ns <= TURN_NS_MAX
            }
            Mode::Gather => self.capacity >= 2 * GATHER,
        }
    }

    fn step_trial(&mut self, mut trial: Trial, now: u64, ns: u64, window: &Window) {
        let per_wakeup = if trial.windows == 0 {
            PACKETS_PER_WAKEUP_FIRST
        } else {
            PACKETS_PER_WAKEUP
        };
        let fails = match trial.of {
            _ if trial.tried.is_some() => false,
            Mode::Direct => false,
            Mode::Deferred => !window.has_cpu() || window.wakes_for(per_wakeup),
            Mode::Turns | Mode::Gather => window.wakes_for(per_wakeup),
        };
        if fails {
            let slow = is_less(rate(window.packets, ns), self.usual);
            let alone = window.spare && !window.several;
            if trial.of == Mode::Deferred && slow && alone && self.hasty < HASTY_MAX {
                self.hasty += 1;
                // It was tried: it is not put off.
                self.due[trial.of as usize].at = now;
                self.settle(self.mode);
            } else {
                self.hasty = 0;
                self.lose(trial.of, now);
            }
            return;
        }
        if trial.settles > 0 {
            trial.settles -= 1;
            self.trial = Some(trial);
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
        let seen = rate(trial.packets, trial.ns);
        let hopeless = trial.tried.is_none() && seen < self.usual / 2;
        if trial.windows <= long && !(hopeless && trial.windows > HOPELESS_WINDOWS) {
            return;
        }
        let waits = trial.of == Mode::Deferred && trial.tried.is_none() && !trial.prolonged;
        let many = self.crowded && window.several;
        if waits && !many && !hopeless && is_less(seen, self.usual) {
            self.trial = Some(trial.prolonged());
            return;
        }
        let Some(tried) = trial.tried else {
            // What the first window left for the others to send is no gain.
            let tried = seen.min(trial.rate_with_first());
            match trial.of {
                Mode::Direct if is_less(tried, self.usual) => self.lose(trial.of, now),
                Mode::Direct => self.win(trial.of, tried, now),
                // Perhaps it was only the load that grew, or the time before that was slow. Or
                // good, as the scheduler goes, where producers contend.
                _ if is_less(self.usual, tried) || (self.crowded && !hopeless) => {
                    self.trial = Some(Trial::new(trial.of, Some(tried)));
                }
                _ => self.lose(trial.of, now),
            }
            return;
        };
        self.usual = if self.crowded {
            // Of the time before and the one after.
            self.usual / 2 + seen / 2
        } else {
            seen
        };
        if is_less(self.usual, tried) {
            self.win(trial.of, tried, now);
        } else {
            self.lose(trial.of, now);
        }
    }

    /// Stays with what is in force, for as long as it is not time to try `other` again.
    fn lose(&mut self, other: Mode, now: u64) {
        let due = &mut self.due[other as usize];
        due.at = now.saturating_add(due.every);
        due.every = (due.every * 2).min(nanos(TRIAL_EVERY_MAX));
        self.settle(self.mode);
    }

    /// Goes over to `mode`, which sends `rate`. What there was before is tried again: soon, as a
    /// lucky trial has to be found out, and a tie is not to become a habit.
    fn win(&mut self, mode: Mode, rate: u64, now: u64) {
        let due = &mut self.due[self.mode as usize];
        due.every = due.every.min(EVERY_AFTER_WIN_NS);
        self.usual = rate;
        self.change(mode, now);
    }

    /// Goes over to `mode`. It is some time until what there was before is tried again.
    fn change(&mut self, mode: Mode, now: u64) {
        let due = &mut self.due[self.mode as usize];
        due.at = now.saturating_add(due.every);
        due.every = (due.every * 2).min(nanos(TRIAL_EVERY_MAX));
        self.settle(mode);
    }

    /// What follows is compared with nothing before it.
    fn settle(&mut self, mode: Mode) {
        self.trial = None;
        self.mode = mode;
        self.compared = self.usual;
        self.settled = 0;
        self.against = 0;
        self.changed = 0;
    }

    /// The budget is a power of two and follows the costs in steps of 4, so that no noise in them
    /// moves it.
    fn adapt_budget(&mut self) {
        if self.drain_ns == 0 {
            return;
        }
        let packets = self.wakeup_ns.saturating_mul(WAKEUPS_PER_BUDGET) / self.drain_ns;
        let (least, most) = (u64::from(BUDGET_MIN), u64::from(BUDGET));
        let now = u64::from(self.budget);
        let wanted = packets.clamp(least, most).next_power_of_two();
        if wanted >= now * 4 || wanted * 4 <= now {
            self.budget = wanted as u16;
        }
    }
}
