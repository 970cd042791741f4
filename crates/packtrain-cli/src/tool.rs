//! What the commands that measure have in common: a testbed, a tool that runs in it, and its report
//! as text or JSON.

use crate::args::ToolArgs;
use crate::exit::{Exit, Failure};
use crate::json;
use crate::print::{self, Style};
use crate::signals::{Start, Stop};
use clap::Args;
use packtrain::engine::Report;
use packtrain_lab::tool::{Control, Measured, Tool, measure};
use packtrain_lab::{ToolError, rootless};
use packtrain_measure::key::Fields;
use serde::Serialize;
use serde_json::{Map, Value};
use std::io::{IsTerminal, stderr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long a run may take to end after a signal.
const STOP_MAX: Duration = Duration::from_secs(10);

/// Runs the tool `name` once, and prints what `text` makes of its report.
///
/// # Errors
///
/// If the testbed cannot be made, the tool fails, or packets are not accounted for.
pub fn run<T: Args + Tool>(
    name: &str,
    args: &ToolArgs<T>,
    text: impl Fn(&Measured<T::Settings, T::Figures>, Style) -> String,
) -> Result<(), Failure> {
    let outcome = controlled(args.quiet, |control| {
        measure(&args.testbed, &args.tool, control)
    })?;
    let Some((measured, ended)) = outcome else {
        return Ok(());
    };
    let report = ended.report.as_deref();
    if args.json {
        json::write(document(name, measured, report))
    } else {
        let head = interrupted(measured.is_interrupted());
        print::output(&format!("{head}{}", text(&measured, Style::stdout())))
    }
}

/// The line in front of figures that end where a signal came.
pub const fn interrupted(is_interrupted: bool) -> &'static str {
    if is_interrupted {
        "interrupted: these are the figures until then\n"
    } else {
        ""
    }
}

/// Prepares the process for namespaces and signals, and runs `f` with progress on standard error.
/// `None`, with a line that says so, if a signal came before `f` had a result.
///
/// # Errors
///
/// If namespaces are not available, or that of `f`.
pub fn controlled<R>(
    quiet: bool,
    f: impl FnOnce(&Control<'_>) -> Result<R, ToolError>,
) -> Result<Option<R>, Failure> {
    // Before any thread starts: only a process with one thread can make a user namespace.
    rootless::enter_if_needed()
        .map_err(|missing| Failure::new(Exit::Privilege, missing.to_string()))?;
    let stop = Stop::install()?;
    let start = Start::new();
    start.end();
    stop.end_after(STOP_MAX, &start, "packets that are under way")?;
    let progress = Progress::new(quiet);
    let say = |line: &str| progress.say(line);
    let control = Control {
        stop: stop.flag(),
        progress: &say,
    };
    let outcome = f(&control);
    progress.clear();
    match outcome {
        Ok(result) => Ok(Some(result)),
        Err(error @ (ToolError::Cancelled | ToolError::InWarmUp(_))) => {
            print::message(&error.to_string());
            Ok(None)
        }
        Err(error) => Err(failed(&error)),
    }
}

/// The exit code and the line for an error.
pub fn failed(error: &ToolError) -> Failure {
    let exit = match error {
        ToolError::Usage(_) => Exit::Usage,
        ToolError::Missing(_) => Exit::Privilege,
        ToolError::Check(_) => Exit::Check,
        _ => Exit::Port,
    };
    Failure::new(exit, error.to_string())
}

/// The document of a tool: one row, and packtrain's ledger if packtrain joined the hosts.
fn document<S: Serialize, F: Serialize>(
    name: &str,
    measured: Measured<S, F>,
    report: Option<&Report>,
) -> Map<String, Value> {
    let mut document = json::document(name);
    document.insert("rows".into(), Value::Array(vec![row(name, measured)]));
    if let Some(report) = report {
        let snapshot = &report.snapshot;
        document.insert("drops".into(), json::drops(&snapshot.drops));
        document.insert("conservation".into(), json::conservation(&snapshot.ledger));
    }
    document
}

/// A row: settings, then figures, then flags.
pub fn row<S: Serialize, F: Serialize>(experiment: &str, measured: Measured<S, F>) -> Value {
    let measured = measured.fields();
    let mut row = Map::new();
    row.insert("experiment".into(), experiment.into());
    row.extend(measured.settings);
    row.extend(measured.figures);
    row.insert("flags".into(), measured.flags.into());
    Value::Object(row)
}

/// The line of a report with the testbed as it was in force: what joined the hosts, and the CPUs.
pub fn testbed(of: &Fields) -> String {
    let set = |name: &str| of.get(name).filter(|value| !value.is_null());
    let mut line = format!(
        "through {}, MTU {}",
        set("through").and_then(Value::as_str).unwrap_or("-"),
        set("mtu").unwrap_or(&Value::Null)
    );
    for (name, what) in [("cpus", "CPUs"), ("cpus_shared", "where")] {
        if let Some(value) = set(name).and_then(Value::as_str) {
            line.push_str(&format!(", {what} {value}"));
        }
    }
    line + "\n"
}

/// What speaks against the figures of a report: a line for each flag.
pub fn flags(flags: &[String]) -> String {
    let line = |flag: &String| format!("not to be judged: {flag}\n");
    flags.iter().map(line).collect()
}

/// What goes on, on standard error: on a terminal one line that is written over again and again.
pub struct Progress {
    shown: bool,
    /// The last line, if lines go to a file.
    last: Option<Mutex<String>>,
}

impl Progress {
    /// Shown on a terminal only.
    pub fn new(quiet: bool) -> Self {
        Self {
            shown: !quiet && stderr().is_terminal(),
            last: None,
        }
    }

    /// As [`Progress::new`]. If standard error is no terminal, each step is a line of its own: a
    /// line that only adds to the one before is left out.
    pub fn with_lines(quiet: bool) -> Self {
        let is_file = !quiet && !stderr().is_terminal();
        Self {
            last: is_file.then(Mutex::default),
            ..Self::new(quiet)
        }
    }

    /// Replaces the line.
    pub fn say(&self, line: &str) {
        if self.shown {
            print::progress(line);
        }
        let Some(last) = &self.last else {
            return;
        };
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_empty() || !line.starts_with(last.as_str()) {
            line.trim_end().clone_into(&mut last);
            print::message(&last);
        }
    }

    /// Removes it.
    pub fn clear(&self) {
        if self.shown {
            print::progress("");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_testbed_is_a_line() {
        let line = |settings: Value| testbed(&settings.as_object().cloned().unwrap_or_default());
        let veth = json!({"through": "veth", "mtu": 9000, "cpus_shared": null});
        assert_eq!(line(veth), "through veth, MTU 9000\n");
        let bound = json!({
            "through": "packtrain", "mtu": 1500, "cpus": "sender=0,worker=1,receiver=0",
            "cpus_shared": "sender and receiver share CPU 0",
        });
        assert_eq!(
            line(bound),
            "through packtrain, MTU 1500, CPUs sender=0,worker=1,receiver=0, where sender and \
             receiver share CPU 0\n"
        );
    }
}
