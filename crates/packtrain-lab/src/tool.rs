//! What the tools (`stream`, `blast`, `ping`, `rfc2544`) have in common: a run in a testbed, and
//! its report.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::cpu::Usage;
use crate::error::{LabError, ToolError};
use crate::machine::{self, Activity};
use crate::options::Fields;
use crate::testbed::{Ended, Testbed, TestbedOptions};

/// More of the CPU time than this, in percent of the CPUs that the process may use, used by other
/// programs or taken by the hypervisor, and a run is flagged: it is reported, and no verdict rests
/// on it. Two ticks of the kernel may be an error of its accounting, and flag no run.
pub const INTERFERENCE_PERCENT_MAX: f64 = 5.0;

/// A load that is applied to a testbed and measured there.
pub trait Tool {
    /// Runs it once. It ends by itself, and soon after `control` says stop.
    ///
    /// # Errors
    /// [`ToolError`]. Loss and damage are figures, not errors.
    fn run(&self, testbed: &Testbed, control: &Control<'_>) -> Result<Measured, ToolError>;
}

/// The result of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// The settings in force, read back.
    pub settings: Fields,
    /// What was measured. Values are numbers, or objects of numbers (a histogram).
    pub figures: Fields,
    /// Why no verdict may rest on this run; empty if nothing speaks against it.
    pub flags: Vec<String>,
}

/// Runs a tool once in a testbed of its own, to the end of the testbed. The settings are those of
/// both. If packtrain or the C forwarder failed, that is the error: what the tool saw of it is only
/// that packets stopped.
///
/// # Errors
/// As [`Testbed::start`], [`Tool::run`] and [`Testbed::finish`].
pub fn measure(
    options: &TestbedOptions,
    tool: &dyn Tool,
    control: &Control<'_>,
) -> Result<(Measured, Ended), ToolError> {
    let testbed = Testbed::start(options)?;
    let outcome = tool.run(&testbed, control);
    let mut settings = testbed.settings().clone();
    let ended = testbed.finish()?;
    let mut measured = outcome?;
    settings.append(&mut measured.settings);
    measured.settings = settings;
    Ok((measured, ended))
}

/// How a caller follows and ends a run.
pub struct Control<'a> {
    /// If set to true, the run ends with [`ToolError::Cancelled`].
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

impl fmt::Debug for Control<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

/// Observes the machine beside a run, and says what disturbed it.
#[derive(Debug)]
pub struct Watch {
    activity: Activity,
    own: Usage,
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
        })
    }

    /// What the machine did since the start, and a flag if others disturbed the run. `child` is
    /// CPU time of this run in another process, such as that of the C forwarder.
    ///
    /// # Errors
    /// As [`Activity::now`].
    pub fn end(&self, child: Duration) -> Result<(Activity, Option<String>), LabError> {
        let activity = Activity::now()? - self.activity;
        let own = Usage::of_process().since(&self.own).cpu() + child;
        Ok((activity, disturbance(&activity, activity.others(own))))
    }
}

/// The flag of a run beside which `others` were used.
fn disturbance(activity: &Activity, others: Duration) -> Option<String> {
    let percent = activity.percent(others)?;
    let is_much = percent > INTERFERENCE_PERCENT_MAX && others > 2 * machine::tick();
    is_much.then(|| {
        format!("other programs and the hypervisor used {percent:.0} % of the CPUs of this run")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
