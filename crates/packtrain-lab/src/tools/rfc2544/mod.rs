//! `rfc2544`: the throughput of a testbed by MLRsearch, and the other tests of RFC 2544.
//!
//! What differs from RFC 2544: frames of a load go out in bursts of 100 us, of up to 64 frames back
//! to back, and not one by one; trials are shorter, a trial waits [`Rfc2544::settle`] for late
//! frames and not two seconds, nothing waits for the device to settle again, no learning frames are
//! sent, and load is in one direction. A frame that arrives twice counts once.

mod figures;
mod options;
pub mod search;

pub use figures::{Bursts, Figures, Latency, Loss, OfLoad, Search, Settings, Throughput};
pub use options::{LossRatios, Rfc2544};

use std::cell::Cell;
use std::time::Duration;

use indexmap::IndexMap;

use crate::error::ToolError;
use crate::testbed::Testbed;
use crate::tool::{Control, Measured, Tool, Watch};
use crate::tools::blast::{Blast, Sizes};
use crate::tools::ping::Ping;
use crate::units::{Rate, Time};
use search::{End, Found, Goal, GoalResult, Limit, Load, Measurer, Range, Trial, search};

/// The least load of a search, in frames a second: some frames in the shortest trial.
const LOAD_MIN: Load = Load(100);

/// Trials flat out. The fastest says what the sender can.
const FLAT_OUT_TRIALS: u32 = 3;

/// How late a sender may be at the end of a long trial: threads wait for a CPU. Frames that it has
/// not sent by then count as lost.
const LATE_MAX: Duration = Duration::from_millis(50);

/// A shorter trial or ping has too few ticks of the kernel's clock to show whether other programs
/// disturbed it.
const WATCHED_MIN: Duration = Duration::from_millis(200);

/// Loads at which latency is measured, in percent of the throughput.
const LATENCY_LOADS: [u32; 4] = [0, 10, 50, 90];

/// Steps of the frame loss rate, in percent of what a sender sends flat out (RFC 2544 section
/// 26.3).
const LOSS_STEPS: [u32; 10] = [100, 90, 80, 70, 60, 50, 40, 30, 20, 10];

/// Two of three bursts of a length must arrive as a whole. A burst counts as one second.
const BURSTS: Goal = Goal {
    loss_ratio: 0.0,
    exceed_ratio: 0.5,
    initial_duration: Duration::from_secs(1),
    final_duration: Duration::from_secs(1),
    duration_sum: Duration::from_secs(3),
    width: 0.05,
};

/// The most bursts.
const BURSTS_MAX: Duration = Duration::from_secs(100);

/// The longest burst is the number of frames that a sender sends in this time.
const BURST_TIME: Duration = Duration::from_millis(200);

/// How long a burst may take: so much longer than [`BURST_TIME`] that its end does not matter.
const BURST_TIME_MAX: Duration = Duration::from_secs(10);

impl Tool for Rfc2544 {
    type Settings = Settings;
    type Figures = Figures;

    fn run(
        &self,
        testbed: &Testbed,
        control: &Control<'_>,
    ) -> Result<Measured<Settings, Figures>, ToolError> {
        let options = self.in_force()?;
        let bench = Bench {
            options: &options,
            testbed,
            control,
            disturbed: Cell::default(),
        };
        let used = testbed.used();
        let watch = Watch::start()?;
        let (mut figures, mut flags) = (Figures::default(), Vec::new());
        match bench.measure(&mut figures, &mut flags) {
            Err(ToolError::Cancelled) if figures.flat_out_kpps.is_some() => {}
            outcome => outcome?,
        }
        let forwarder = testbed.used().since(&used);
        let (_, disturbed) = watch.end(forwarder.of_other_process())?;
        flags.extend(disturbed);
        flags.extend(bench.disturbed.get().flag());
        Ok(Measured {
            settings: settings(&options),
            figures,
            flags,
            ..Measured::default()
        })
    }
}

fn settings(options: &Rfc2544) -> Settings {
    let seconds = |time: Time| time.0.as_secs_f64();
    Settings {
        frame_bytes: options.size,
        loss_ratio: options.loss_ratio.0.clone(),
        exceed_ratio: options.exceed_ratio,
        initial_seconds: seconds(options.initial_duration),
        final_seconds: seconds(options.final_duration),
        sum_seconds: seconds(options.duration_sum),
        width_ratio: options.width,
        settle_seconds: seconds(options.settle),
    }
}

/// Trials of one frame size in a testbed.
struct Bench<'a> {
    options: &'a Rfc2544,
    testbed: &'a Testbed,
    control: &'a Control<'a>,
    disturbed: Cell<Disturbed>,
}

/// Trials beside other programs. Over a whole run their time may be little, and still have decided.
#[derive(Clone, Copy, Debug, Default)]
struct Disturbed {
    trials: u32,
    of: u32,
}

impl Disturbed {
    /// With one more trial.
    fn with(self, duration: Duration, flags: &[String]) -> Self {
        if duration < WATCHED_MIN {
            return self;
        }
        Self {
            trials: self.trials + u32::from(!flags.is_empty()),
            of: self.of + 1,
        }
    }

    fn flag(self) -> Option<String> {
        let Self { trials, of } = self;
        (trials > 0).then(|| {
            format!(
                "other programs, the hypervisor or a CPU quota disturbed {trials} of {of} long \
                 trials"
            )
        })
    }
}

impl Bench<'_> {
    /// All tests of RFC 2544, and which results are irregular. If it is stopped, the figures are
    /// those of the tests until then.
    fn measure(&self, figures: &mut Figures, flags: &mut Vec<String>) -> Result<(), ToolError> {
        let options = self.options;
        let duration = options.final_duration.0;
        // They also warm up.
        let mut flat_out = Vec::new();
        for _ in 0..FLAT_OUT_TRIALS {
            flat_out.push(self.blast("flat out", &self.load(None, None, duration))?);
        }
        let fastest_trial = flat_out.iter().max_by_key(|trial| trial.sent);
        let flat_out = fastest_trial.copied().unwrap_or_default();
        let fastest = per_second(flat_out.sent, duration).max(LOAD_MIN.0);
        let goals = options.goals();
        // RFC 9971 section 4.9.1: no more than the sender can.
        let range = Range {
            min: LOAD_MIN,
            max: Load(fastest),
            start: Load(per_second(flat_out.received, duration)),
        };
        let found = search(&mut Rates(self), &goals, range, options.time_max.0)?;
        figures.flat_out_kpps = Some(kpps(fastest as f64));
        if found.trials == 0 {
            return Err(ToolError::Cancelled);
        }
        for (goal, result) in goals.iter().zip(&found.goals) {
            let what = format!("throughput at a loss ratio of {}", goal.loss_ratio);
            flags.extend(irregular(&what, result));
        }
        figures.search = Some(throughput(&goals, &found, options.size));
        if options.throughput_only {
            return Ok(());
        }
        let rate = found.goals.first().map_or(0.0, |result| result.throughput);
        figures.latency = Some(self.latency(rate)?);
        figures.loss = Some(self.loss(&flat_out, fastest)?);
        let longest = (fastest as f64 * BURST_TIME.as_secs_f64()) as u64;
        let range = Range {
            min: Load(1),
            max: Load(longest.max(1)),
            start: Load(longest / 16),
        };
        let found = search(&mut Lengths(self), &[BURSTS], range, BURSTS_MAX)?;
        let result = &found.goals[0];
        figures.bursts = Some(Bursts {
            back_to_back_frames: result.lower.map_or(0, |load| load.0),
            back_to_back_tried_frames: range.max.0,
        });
        flags.extend(irregular("back to back", result));
        Ok(())
    }

    /// Frames: `rate` a second or flat out, at most `count`, for at most `duration`.
    fn load(&self, rate: Option<f64>, count: Option<u64>, duration: Duration) -> Blast {
        Blast {
            size: Sizes(vec![self.options.size as usize]),
            rate: rate.map(Rate),
            count,
            duration: Time(duration),
            settle: self.options.settle,
            ..Blast::default()
        }
    }

    /// Offers a load, and counts what arrives.
    fn blast(&self, what: &str, load: &Blast) -> Result<Sent, ToolError> {
        self.say(what)?;
        let measured = load.run(self.testbed, &self.silent())?;
        self.go_on()?;
        self.note(load.duration.0, &measured.flags);
        Ok(Sent {
            sent: measured.figures.sent_packets,
            received: measured.figures.received_packets,
            overrun: measured.figures.lost_at_socket_packets,
        })
    }

    /// Counts a trial that was disturbed.
    fn note(&self, duration: Duration, flags: &[String]) {
        let disturbed = self.disturbed.get().with(duration, flags);
        self.disturbed.set(disturbed);
    }

    /// [`ToolError::Cancelled`] if the run has to end. A trial that was stopped is none.
    fn go_on(&self) -> Result<(), ToolError> {
        if self.control.stopped() {
            return Err(ToolError::Cancelled);
        }
        Ok(())
    }

    /// Reports progress, unless the run has to end.
    fn say(&self, what: &str) -> Result<(), ToolError> {
        self.go_on()?;
        (self.control.progress)(&format!("{} bytes: {what}", self.options.size));
        Ok(())
    }

    /// The caller's stop flag without its progress, for another tool.
    fn silent(&self) -> Control<'static> {
        Control {
            stop: self.control.stop.clone(),
            progress: &|_| {},
        }
    }

    /// Round-trip times beside several shares of `throughput`, and what became of these loads; only
    /// without load if `throughput` is 0.
    fn latency(&self, throughput: f64) -> Result<Latency, ToolError> {
        let ping = Ping {
            size: self.options.size as usize,
            duration: self.options.final_duration,
            timeout: self.options.settle,
            ..Ping::default()
        };
        let silent = self.silent();
        let mut latency = Latency::default();
        for percent in LATENCY_LOADS {
            let rate = throughput * f64::from(percent) / 100.0;
            if percent > 0 && rate < 1.0 {
                continue;
            }
            self.say(&format!("latency at {percent} %"))?;
            let measured = if percent == 0 {
                ping.run(self.testbed, &silent)?
            } else {
                let load = self.load(Some(rate), None, ping.duration.0);
                let run = || ping.run(self.testbed, &silent);
                let (measured, load) = load.beside(self.testbed, &silent, run)?;
                let of_load = OfLoad::from(&load.figures);
                latency.latency_load.insert(percent.to_string(), of_load);
                measured
            };
            self.go_on()?;
            self.note(ping.duration.0, &measured.flags);
            let times = measured.figures.phase.latency_us;
            latency.latency_us.insert(percent.to_string(), times);
        }
        Ok(latency)
    }

    /// The frame loss rate at falling loads, until two in succession have none, and the part of it
    /// at the receiver's socket. The first load is that of `flat_out`.
    fn loss(&self, flat_out: &Sent, fastest: u64) -> Result<Loss, ToolError> {
        let duration = self.options.final_duration.0;
        let mut loss = Loss::default();
        let mut without = 0;
        for percent in LOSS_STEPS {
            let found = if percent == 100 {
                *flat_out
            } else {
                let rate = fastest as f64 * f64::from(percent) / 100.0;
                let load = self.load(Some(rate), None, duration);
                self.blast(&format!("loss at {percent} %"), &load)?
            };
            let [lost, at_socket] = found.loss_percent();
            loss.loss_percent.insert(percent.to_string(), lost);
            let of_socket = &mut loss.loss_at_socket_percent;
            of_socket.insert(percent.to_string(), at_socket);
            without = if lost == 0.0 { without + 1 } else { 0 };
            if without == 2 {
                break;
            }
        }
        Ok(loss)
    }
}

/// What became of the frames of a blast.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    sent: u64,
    received: u64,
    /// Lost at the receiver's socket.
    overrun: u64,
}

impl Sent {
    fn of(self, expected: u64) -> Trial {
        Trial {
            expected,
            sent: self.sent,
            received: self.received,
            overrun: self.overrun,
        }
    }

    /// The frames lost, and of these the ones lost at the receiver's socket, in percent of those
    /// sent.
    fn loss_percent(self) -> [f64; 2] {
        let lost = self.sent.saturating_sub(self.received);
        // The socket also loses the second copy of a frame that arrived.
        let at_socket = self.overrun.min(lost);
        [lost, at_socket].map(|count| 100.0 * count as f64 / self.sent.max(1) as f64)
    }
}

/// How late a sender may be at the end of a trial: so little that a slower sender, by the width of
/// the goals, does not pass for one that kept up.
fn late_max(duration: Duration, width: f64) -> Duration {
    LATE_MAX.min(duration.mul_f64(width / 2.0))
}

/// The trial of a search; `None` if it was stopped.
fn trial(sent: Result<Sent, ToolError>, expected: u64) -> Result<Option<Trial>, ToolError> {
    match sent {
        Ok(sent) => Ok(Some(sent.of(expected))),
        Err(ToolError::Cancelled) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Trials whose load is frames a second.
struct Rates<'a>(&'a Bench<'a>);

impl Measurer for Rates<'_> {
    type Error = ToolError;

    fn measure(&mut self, load: Load, duration: Duration) -> Result<Option<Trial>, ToolError> {
        let rate = load.0 as f64;
        let expected = ((rate * duration.as_secs_f64()).round() as u64).max(1);
        let what = format!("{:.1} kpps for {} ms", kpps(rate), duration.as_millis());
        let time = duration + late_max(duration, self.0.options.width);
        let load = self.0.load(Some(rate), Some(expected), time);
        trial(self.0.blast(&what, &load), expected)
    }
}

/// Trials whose load is a number of frames, sent back to back.
struct Lengths<'a>(&'a Bench<'a>);

impl Measurer for Lengths<'_> {
    type Error = ToolError;

    fn measure(&mut self, load: Load, _: Duration) -> Result<Option<Trial>, ToolError> {
        let what = format!("{} back to back", load.0);
        let burst = self.0.load(None, Some(load.0), BURST_TIME_MAX);
        trial(self.0.blast(&what, &burst), load.0)
    }
}

fn per_second(frames: u64, duration: Duration) -> u64 {
    (frames as f64 / duration.as_secs_f64()) as u64
}

fn kpps(rate: f64) -> f64 {
    rate / 1e3
}

/// The results of all goals, each under its loss ratio, and those of the first once more.
fn throughput(goals: &[Goal], found: &Found, size: u32) -> Search {
    let of_goal = |result: &GoalResult| {
        let bound = |bound: Option<Load>| bound.map(|bound| kpps(bound.0 as f64));
        Throughput {
            throughput_kpps: kpps(result.throughput),
            throughput_gbps: result.throughput * f64::from(size) * 8.0 / 1e9,
            lower_kpps: bound(result.lower),
            upper_kpps: bound(result.upper),
            unsent_percent: 100.0 * result.unsent_ratio,
            lost_at_socket_percent: 100.0 * result.overrun_ratio,
            limit: result.limit.map(limit),
            end: end(result.end),
        }
    };
    let goals = goals.iter().map(|goal| goal.loss_ratio.to_string());
    let results = found.goals.iter().map(of_goal);
    let goals: IndexMap<String, Throughput> = goals.zip(results).collect();
    Search {
        first: goals.values().next().cloned().unwrap_or_default(),
        goals,
        trials: found.trials,
        trial_seconds: found.time.as_secs_f64(),
    }
}

const fn limit(limit: Limit) -> &'static str {
    match limit {
        Limit::Device => "device",
        Limit::Sender => "sender",
        Limit::Receiver => "receiver",
    }
}

const fn end(end: End) -> &'static str {
    match end {
        End::Regular => "regular",
        End::AtMax => "at_max",
        End::BelowMin => "below_min",
        End::TimeLimit => "time_limit",
    }
}

/// A line if a search for `what` has no result, or one that is not the device's but the receiver's.
/// That a device is at least as fast as the sender is a result.
fn irregular(what: &str, result: &GoalResult) -> Option<String> {
    let why = match result.limit {
        Some(Limit::Receiver) => Some(
            "the receiver's socket lost frames, not the device: raise net.core.rmem_max, or run as \
             root",
        ),
        _ => explain(result.end),
    };
    why.map(|why| format!("{what}: {why}"))
}

/// Why a search has no result; `None` if it has one.
const fn explain(end: End) -> Option<&'static str> {
    match end {
        End::Regular | End::AtMax => None,
        End::BelowMin => Some("not even the least load arrived"),
        End::TimeLimit => Some("the search ended before the bounds were close"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_slower_by_the_width_has_not_kept_up() {
        for (milliseconds, width) in [(50, 0.1), (100, 0.1), (500, 0.02), (60_000, 0.02)] {
            let duration = Duration::from_millis(milliseconds);
            let late = late_max(duration, width);
            assert!(late <= LATE_MAX);
            assert!((duration + late).mul_f64(1.0 - width) < duration);
        }
    }

    #[test]
    fn loss_at_the_receivers_socket_is_part_of_the_loss() {
        let of = |sent, received, overrun| {
            let sent = Sent {
                sent,
                received,
                overrun,
            };
            sent.loss_percent()
        };
        assert_eq!(of(200, 190, 8), [5.0, 4.0]);
        assert_eq!(of(200, 190, 0), [5.0, 0.0]);
        // Of copies.
        assert_eq!(of(200, 199, 8), [0.5, 0.5]);
        assert_eq!(of(0, 0, 0), [0.0, 0.0]);
    }

    #[test]
    fn disturbed_trials_are_counted() {
        let (long, short) = (WATCHED_MIN, WATCHED_MIN / 2);
        let (quiet, loud) = (vec![], vec!["others".to_owned()]);
        let mut trials = Disturbed::default();
        for (duration, flags) in [(long, &quiet), (long, &quiet), (short, &loud)] {
            trials = trials.with(duration, flags);
        }
        assert_eq!(trials.flag(), None);
        let line = "other programs, the hypervisor or a CPU quota disturbed 1 of 3 long trials";
        assert_eq!(trials.with(long, &loud).flag().as_deref(), Some(line));
    }

    #[test]
    fn a_result_of_the_receiver_is_flagged() {
        let flag = |limit, end| {
            let result = GoalResult {
                lower: Some(Load(1)),
                upper: Some(Load(2)),
                throughput: 1.0,
                unsent_ratio: 0.0,
                overrun_ratio: 0.1,
                limit: Some(limit),
                end,
            };
            irregular("back to back", &result)
        };
        assert_eq!(flag(Limit::Device, End::Regular), None);
        assert_eq!(flag(Limit::Sender, End::AtMax), None);
        let line = flag(Limit::Receiver, End::Regular).unwrap();
        assert!(
            line.starts_with("back to back: the receiver's socket"),
            "{line}"
        );
        let line = "back to back: the search ended before the bounds were close";
        assert_eq!(flag(Limit::Sender, End::TimeLimit).as_deref(), Some(line));
    }
}
