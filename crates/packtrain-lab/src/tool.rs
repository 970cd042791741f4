//! What the tools (`stream`, `blast`, `ping`, `rfc2544`) have in common: a run in a testbed, and
//! its report.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::cpu::Usage;
use crate::error::{LabError, ToolError};
use crate::machine::Activity;
use crate::options::Fields;
use crate::testbed::Testbed;

/// More of the machine's CPU time than this, in percent, used by other programs or taken by the
/// hypervisor, and a run is flagged: it is reported, and no verdict rests on it.
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
        let others = activity.interference_percent(own);
        let flag = (others > INTERFERENCE_PERCENT_MAX).then(|| {
            format!("other programs and the hypervisor used {others:.0} % of the machine's CPUs")
        });
        Ok((activity, flag))
    }
}
