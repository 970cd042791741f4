//! What the tools (`stream`, `blast`, `ping`, `rfc2544`) have in common: a run in a testbed, and
//! its report.

use std::fmt::{self, Debug};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use packtrain_measure::key::fields;
use serde::Serialize;

use crate::cgroup;
use crate::cpu::Usage;
use crate::error::{LabError, ToolError};
use crate::machine::{self, Activity};
use crate::options::Fields;
use crate::testbed::{Ended, Testbed, TestbedOptions};

/// More of the CPU time than this, in percent of the CPUs that the process may use, used by other
/// programs or taken by the hypervisor, and a run is flagged: it is reported, and no verdict rests
/// on it. Two ticks of the kernel may be an error of its accounting, and flag no run.
pub const INTERFERENCE_PERCENT_MAX: f64 = 5.0;

/// The flag of a run that was stopped before its end.
pub(crate) const INTERRUPTED: &str = "interrupted before the end";

/// How long a tool that is stopped waits at most for packets that are under way.
pub(crate) const STOP_WAIT: Duration = Duration::from_secs(1);

/// A load that is applied to a testbed and measured there. Names of settings and figures end with
/// their unit.
pub trait Tool {
    /// The settings in force, read back.
    type Settings: Serialize + Debug;
    /// What was measured.
    type Figures: Serialize + Debug;

    /// Runs it once. It ends by itself, and soon after `control` says stop, with what it has
    /// measured until then.
    ///
    /// # Errors
    /// [`ToolError`]; [`ToolError::Cancelled`] or [`ToolError::InWarmUp`] if it was stopped before
    /// it measured anything. Loss and damage are figures, not errors.
    fn run(
        &self,
        testbed: &Testbed,
        control: &Control<'_>,
    ) -> Result<Measured<Self::Settings, Self::Figures>, ToolError>;
}

/// The result of one run: of a tool, or, by names and values, of any.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured<S = Fields, F = Fields> {
    /// The settings of the testbed in force; empty before its end.
    pub testbed: Fields,
    /// Those of the tool, read back.
    pub settings: S,
    /// What was measured.
    pub figures: F,
    /// Why no verdict may rest on this run; empty if nothing speaks against it.
    pub flags: Vec<String>,
}

impl<S, F> Measured<S, F> {
    /// Whether it was stopped before its end.
    pub fn is_interrupted(&self) -> bool {
        self.flags.iter().any(|flag| flag == INTERRUPTED)
    }
}

impl<S: Serialize, F: Serialize> Measured<S, F> {
    /// Names and values; the settings are those of testbed and tool.
    pub fn fields(self) -> Measured {
        let mut settings = self.testbed;
        settings.extend(fields(&self.settings));
        Measured {
            testbed: Fields::new(),
            settings,
            figures: fields(&self.figures),
            flags: self.flags,
        }
    }
}

/// A run of a tool, and the end of its testbed.
pub type Ran<T> = (Measured<<T as Tool>::Settings, <T as Tool>::Figures>, Ended);

/// Runs a tool once in a testbed of its own, to the end of the testbed. If packtrain or the C
/// forwarder failed, that is the error: what the tool saw of it is only that packets stopped.
///
/// # Errors
/// As [`Testbed::start`], [`Tool::run`] and [`Testbed::finish`].
pub fn measure<T: Tool>(
    options: &TestbedOptions,
    tool: &T,
    control: &Control<'_>,
) -> Result<Ran<T>, ToolError> {
    let testbed = Testbed::start(options)?;
    let outcome = tool.run(&testbed, control);
    let settings = testbed.settings().clone();
    let ended = testbed.finish()?;
    let mut measured = outcome?;
    if control.stopped() {
        measured.flags.push(INTERRUPTED.to_owned());
    }
    measured.testbed = settings;
    Ok((measured, ended))
}

/// How a caller follows and ends a run.
pub struct Control<'a> {
    /// If set to true, the run ends soon.
    pub stop: Arc<AtomicBool>,
    /// Called from time to time with a short line on what goes on.
    pub progress: &'a (dyn Fn(&str) + Sync),
}

impl Default for Control<'_> {
    /// The run is neither stopped nor followed.
    fn default() -> Self {
        Self {
            stop: Arc::default(),
            progress: &|_| {},
        }
    }
}

impl Control<'_> {
    /// Whether the run has to end.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Debug for Control<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

/// The begin of the flag of a run beside which more than a little CPU time was used.
pub(crate) const DISTURBED: &str = "other programs and the hypervisor used";

/// Observes the machine beside a run, and says what disturbed it.
#[derive(Debug)]
pub struct Watch {
    activity: Activity,
    own: Usage,
    throttled: Option<Duration>,
}

impl Watch {
    /// Starts to observe.
    ///
    /// # Errors
    /// As [`Activity::now`].
    pub fn start() -> Result<Self, LabError> {
        Ok(Self {
            activity: Activity::now()?,
            own: Usage::of_process(),
            throttled: cgroup::throttled(Path::new("/")),
        })
    }

    /// What the machine did since the start, and a flag if others or a CPU quota disturbed the run.
    /// `child` is CPU time of this run in another process, such as that of the C forwarder.
    ///
    /// # Errors
    /// As [`Activity::now`].
    pub fn end(&self, child: Duration) -> Result<(Activity, Option<String>), LabError> {
        let activity = Activity::now()? - self.activity;
        let own = Usage::of_process().since(&self.own).cpu() + child;
        let throttled = cgroup::throttled(Path::new("/"));
        let flag = throttling(self.throttled, throttled)
            .or_else(|| disturbance(&activity, activity.others(own)));
        Ok((activity, flag))
    }
}

/// The flag of a run between whose start and end a quota stopped threads.
fn throttling(start: Option<Duration>, end: Option<Duration>) -> Option<String> {
    let time = end?.saturating_sub(start?);
    let milliseconds = time.as_secs_f64() * 1e3;
    (!time.is_zero()).then(|| {
        format!("a CPU quota of the control group stopped threads for {milliseconds:.1} ms")
    })
}

/// The flag of a run beside which `others` were used.
fn disturbance(activity: &Activity, others: Duration) -> Option<String> {
    let percent = activity.percent(others)?;
    let is_much = percent > INTERFERENCE_PERCENT_MAX && others > 2 * machine::tick();
    is_much.then(|| format!("{DISTURBED} {percent:.0} % of the CPUs of this run"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttled_time_that_grows_flags_a_run() {
        let flag = |start: Option<u64>, end: Option<u64>| {
            let [start, end] = [start, end].map(|time| time.map(Duration::from_micros));
            throttling(start, end)
        };
        assert_eq!(flag(None, None), None);
        assert_eq!(flag(Some(700), Some(700)), None);
        // The process has moved to another control group.
        assert_eq!(flag(None, Some(700)), None);
        assert_eq!(flag(Some(700), Some(0)), None);
        let line = "a CPU quota of the control group stopped threads for 12.3 ms";
        assert_eq!(flag(Some(700), Some(13_000)).as_deref(), Some(line));
    }

    #[test]
    fn a_disturbance_is_more_than_five_percent_and_two_ticks() {
        let flag = |total_ticks: u32, other_ticks: u32| {
            let run = Activity {
                idle: total_ticks * machine::tick(),
                ..Activity::default()
            };
            disturbance(&run, other_ticks * machine::tick())
        };
        assert_eq!(flag(100, 5), None);
        let line = "other programs and the hypervisor used 6 % of the CPUs of this run";
        assert_eq!(flag(100, 6).as_deref(), Some(line));
        // In a short run each tick is more than five percent.
        assert_eq!(flag(12, 2), None);
        assert!(flag(12, 3).is_some());
        assert_eq!(flag(0, 0), None);
    }
}
