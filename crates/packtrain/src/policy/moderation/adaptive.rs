//! The search of the adaptive setting for the profile that gains most.

use super::load::{BYTES, EVENTS, Outcome, PACKETS, REFERENCE_MAX, SLICE_NS, Sample, Slice, Watch};
use super::{EVENTS_FINE, Observation, PROFILES, TOP};

/// Packets a second below which the longest profile puts fewer than two together.
const LIGHT: u64 = TWO_IN_A_MICROSECOND / PROFILES[TOP] as u64;
/// Above this it is light no more: a quarter, so that a load near the limit does not hop.
const NOT_LIGHT: u64 = LIGHT / 4 * 5;
/// Fewer than one in a slice: a worker that hardly sleeps. Only waking is held back, so no profile
/// does anything to it, and what it takes is another amount for other reasons.
const SIGNALS_FEW: u64 = 1_000_000_000 / SLICE_NS;
/// Two in a microsecond, for one second.
const TWO_IN_A_MICROSECOND: u64 = 2_000_000;
/// From one search to the next in the long run, in nanoseconds, where the load is a little
/// different; and where it is another altogether.
const HOLD: [u64; 2] = [8_000_000_000, 4_000_000_000];
/// Searches that may come at once before that.
const AT_ONCE: [u64; 2] = [4, 16];
/// What a longer profile took away may have been a pause of the sender: it is tried once more after
/// this time, in nanoseconds.
const AGAIN_NS: u64 = 256_000_000;

/// How often a search may begin: some at once, and then one in a time. A load that varies for ever
/// is not searched for all the time.
#[derive(Clone, Copy, Debug)]
struct Patience {
    hold: u64,
    at_once: u64,
    /// When all those that came so far would have been due.
    due: u64,
}

impl Patience {
    const fn new(which: usize) -> Self {
        Self {
            hold: HOLD[which],
            at_once: AT_ONCE[which],
            due: 0,
        }
    }

    /// Whether one may begin now. If so, it does.
    fn permits(&mut self, now: u64) -> bool {
        let most = now.saturating_add(self.hold * self.at_once);
        // A clock that went back makes nobody wait for longer.
        self.due = self.due.clamp(now, most.max(now));
        let permits = most - self.due >= self.hold;
        if permits {
            self.due += self.hold;
        }
        permits
    }
}

/// Where the search for a profile is.
#[derive(Clone, Copy, Debug)]
enum Search {
    /// Nothing is to be gained by any: there are few packets, or hardly a signal.
    Light,
    /// The profile stays while the load is that of `sample`.
    Parked {
        sample: Sample,
        watches: [Watch; 3],
        /// When to try once more, whatever the load is.
        again: Option<u64>,
    },
    /// The load is seen in front of a search, which goes up first where it `grew`.
    Begun {
        grew: bool,
        /// Whether it ends with that step, if that gains nothing.
        last: bool,
        sample: Sample,
    },
    /// A step was taken; `before` was seen in front of it.
    Stepped {
        from: usize,
        before: Sample,
        sample: Sample,
        settling: bool,
        /// Whether the search has come here by a step that gained something, or has turned.
        last: bool,
    },
    /// A step made the load light. Without it, it is this.
    Undone { sample: Sample, settling: bool },
}

#[derive(Clone, Debug)]
pub(super) struct Adaptive {
    profile: usize,
    search: Search,
    /// Packets, beside the rate below or above which the load is light.
    light: Watch,
    /// Signals, beside those that are hardly any.
    signals: Watch,
    /// For a load that is a little different, and for one that is another altogether.
    patience: [Patience; 2],
    /// Whether what a longer profile took away has been seen twice.
    was_less: bool,
    /// Begin of the slice, and the last `now`.
    times: Option<(u64, u64)>,
    slice: Observation,
}

impl Adaptive {
    pub(super) const fn new() -> Self {
        Self {
            profile: 0,
            search: Search::Light,
            light: Watch::beside(NOT_LIGHT),
            signals: Watch::beside(SIGNALS_FEW),
            patience: [Patience::new(0), Patience::new(1)],
            was_less: false,
            times: None,
            slice: Observation {
                packets: 0,
                bytes: 0,
                events: 0,
            },
        }
    }

    pub(super) const fn profile(&self) -> usize {
        self.profile
    }

    pub(super) fn observe(&mut self, now: u64, seen: &Observation) {
        let begin = match self.times {
            Some((begin, last)) if now >= last => begin,
            // The counts belong to a time that nobody knows.
            _ => {
                self.times = Some((now, now));
                self.slice = Observation::default();
                return;
            }
        };
        self.times = Some((begin, now));
        let slice = &mut self.slice;
        slice.packets = slice.packets.saturating_add(seen.packets);
        slice.bytes = slice.bytes.saturating_add(seen.bytes);
        slice.events = slice.events.saturating_add(seen.events);
        if now - begin >= SLICE_NS {
            let slice = Slice::of(slice, now - begin);
            self.times = Some((now, now));
            self.slice = Observation::default();
            self.decide(now, &slice);
        }
    }

    fn decide(&mut self, now: u64, slice: &Slice) {
        self.light.see(slice.rates[PACKETS], slice.weight);
        self.signals.see(slice.rates[EVENTS], slice.weight);
        // What a step does to the load is for the step to say.
        let is_told = !matches!(self.search, Search::Light | Search::Stepped { .. });
        if is_told && self.light.is_below() {
            self.become_light();
            return;
        }
        match self.search {
            Search::Light => {
                let is_quiet = usize::from(self.light.is_quiet());
                if self.signals.is_above()
                    && self.light.is_above()
                    && self.patience[is_quiet].permits(now)
                {
                    self.light.turn_to(LIGHT);
                    self.begin(true);
                }
            }
            Search::Parked {
                sample,
                watches,
                again,
            } => self.parked(now, slice, sample, watches, again),
            Search::Begun {
                grew,
                last,
                mut sample,
            } => {
                sample.add(slice);
                self.search = Search::Begun { grew, last, sample };
                if sample.is_enough() {
                    // Under a longer profile it may be this that leaves so few.
                    if self.profile > 0 || sample.mean(EVENTS) >= SIGNALS_FEW {
                        self.first_step(grew, sample, last);
                    } else if sample.is_full() {
                        self.become_light();
                    }
                }
            }
            Search::Stepped {
                from,
                before,
                mut sample,
                settling,
                last,
            } => {
                if !settling {
                    sample.add(slice);
                }
                self.search = Search::Stepped {
                    from,
                    before,
                    sample,
                    settling: false,
                    last,
                };
                self.stepped(now, from, before, sample, last);
            }
            Search::Undone {
                mut sample,
                settling,
            } => {
                if !settling {
                    sample.add(slice);
                }
                self.search = Search::Undone {
                    sample,
                    settling: false,
                };
                if sample.is_enough() {
                    self.park_after_less(now, sample);
                }
            }
        }
    }

    fn become_light(&mut self) {
        self.profile = 0;
        self.search = Search::Light;
        self.light.turn_to(NOT_LIGHT);
    }

    fn begin(&mut self, grew: bool) {
        self.was_less = false;
        self.search = Search::Begun {
            grew,
            last: false,
            sample: Sample::NONE,
        };
    }

    fn parked(
        &mut self,
        now: u64,
        slice: &Slice,
        mut sample: Sample,
        mut watches: [Watch; 3],
        again: Option<u64>,
    ) {
        if again.is_some_and(|again| now >= again) {
            self.search = Search::Begun {
                grew: true,
                last: true,
                sample: Sample::NONE,
            };
            return;
        }
        let is_young = sample.slices() < REFERENCE_MAX;
        if is_young {
            sample.add(slice);
        }
        for (of, watch) in watches.iter_mut().enumerate() {
            if is_young {
                watch.reference = sample.mean(of);
            }
            watch.see(slice.rates[of], slice.weight);
        }
        self.search = Search::Parked {
            sample,
            watches,
            again,
        };
        let signals = slice.rates[EVENTS].max(watches[EVENTS].reference);
        let many = signals > EVENTS_FINE;
        let watch = [BYTES, PACKETS, EVENTS].into_iter().find_map(|of| {
            let watch = &watches[of];
            let tells = watch.is_above() || watch.is_below();
            (tells && (of != EVENTS || many)).then_some(watch)
        });
        if let Some(watch) = watch
            && self.patience[usize::from(watch.is_far())].permits(now)
        {
            self.begin(watch.is_above());
        }
    }

    /// The shortest profile that puts two signals together. Without moderation there is one for
    /// each train of packets; with it there are no more than it allows, but one for each packet is
    /// the most that there could be.
    fn shortest(&self, sample: &Sample) -> usize {
        let (packets, events) = (sample.mean(PACKETS), sample.mean(EVENTS));
        let rate = if self.profile == 0 && events > EVENTS_FINE {
            events
        } else {
            packets
        };
        let puts_two = |&usecs: &u32| u64::from(usecs).saturating_mul(rate) >= TWO_IN_A_MICROSECOND;
        PROFILES.iter().position(puts_two).unwrap_or(TOP)
    }

    /// The profile beside this one that differs from it for such a load, if there is one.
    fn next(&self, up: bool, sample: &Sample) -> Option<usize> {
        let shortest = self.shortest(sample);
        if up {
            (self.profile < TOP).then(|| shortest.max(self.profile + 1))
        } else {
            let next = self.profile.checked_sub(1)?;
            Some(if next < shortest { 0 } else { next })
        }
    }

    fn first_step(&mut self, grew: bool, sample: Sample, last: bool) {
        match self.next(grew, &sample) {
            Some(profile) => self.step(profile, sample, last),
            // More than the longest profile is for, or less than none: nothing is left to try.
            None => self.park(sample, None),
        }
    }

    /// What came of the step to this profile.
    fn stepped(&mut self, now: u64, from: usize, before: Sample, sample: Sample, last: bool) {
        let Some(outcome) = sample.compared_with(&before) else {
            return;
        };
        let Some(is_light) = sample.is_below(PACKETS, LIGHT) else {
            return;
        };
        if is_light {
            // The profile itself made the load light, as with senders that wait for answers: what
            // the load is has to be seen without it.
            self.profile = 0;
            self.light.turn_to(LIGHT);
            self.search = Search::Undone {
                sample: Sample::NONE,
                settling: true,
            };
            return;
        }
        let up = self.profile > from;
        // A longer profile must gain something; a shorter one has the lower latency.
        let stays = if up {
            outcome == Outcome::Better
        } else {
            !matches!(outcome, Outcome::Worse | Outcome::Less)
        };
        if stays {
            match self.next(up, &sample) {
                Some(next) => self.step(next, sample, true),
                None => self.park(sample, None),
            }
            return;
        }
        self.profile = from;
        if up
            && !last
            && let Some(next) = self.next(false, &before)
        {
            // Nothing was gained upwards. Perhaps nothing is lost downwards.
            self.step(next, before, true);
        } else if up && outcome == Outcome::Less {
            self.park_after_less(now, before);
        } else {
            self.park(before, None);
        }
    }

    fn step(&mut self, to: usize, before: Sample, last: bool) {
        self.search = Search::Stepped {
            from: self.profile,
            before,
            sample: Sample::NONE,
            settling: true,
            last,
        };
        self.profile = to;
    }

    fn park_after_less(&mut self, now: u64, sample: Sample) {
        let again = (!self.was_less).then(|| now.saturating_add(AGAIN_NS));
        self.was_less = true;
        self.park(sample, again);
    }

    fn park(&mut self, sample: Sample, again: Option<u64>) {
        self.search = Search::Parked {
            watches: [BYTES, PACKETS, EVENTS].map(|of| Watch::on_sample(&sample, of)),
            sample,
            again,
        };
    }
}
