//! A small test runner for tests that need namespaces.
//!
//! An unprivileged user gets namespaces only in a process that made its user namespace before it
//! had a second thread, which the standard test harness does not allow. A test target with
//! `harness = false` calls [`main`] instead.

use packtrain::name::Name;
use std::any::Any;
use std::collections::BTreeSet;
use std::fmt::{Debug, Display};
use std::fs;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use packtrain::port::tap::{Tap, TapConfig, TapKind};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{LabError, ToolError};
use crate::experiment::{Experiment, Setup};
use crate::guest::{self, FOLDER_VARIABLE, Kernel};
use crate::netns::{self, Netns};
use crate::testbed::{Testbed, TestbedOptions, Through};
use crate::threads::AtEnd;
use crate::tool::{Control, Measured, Tool};
use crate::topology::{Settings, Side, TwoHosts};
use crate::{counters, rootless, tap};

/// Why a test could not check what it is there for. It unwinds like a panic, without a message.
struct Skipped(String);

/// A test: its name and its function, which panics when a check fails.
pub type Test = (&'static str, fn());

/// Runs the tests one after the other, each on a thread in a network namespace of its own, and
/// returns the exit status for `main`: success unless a test panicked. Call it first thing in
/// `main`.
///
/// A test that is skipped, or all tests when namespaces are not available, prints one line
/// `SKIP: <test>: <reason>`, and the summary counts them. Of the standard harness's arguments,
/// names to select by (any that contains one of them), `--skip NAME`, `--exact` and `--list` are
/// understood; the other options do not apply here and are ignored.
pub fn main(tests: &[Test]) -> ExitCode {
    side_by_side(1, tests)
}

/// Runs up to `at_once` tests at the same time, otherwise as [`main`] does: for tests that mostly
/// wait, or run virtual machines of one processor, and do not count what their process has open.
pub fn side_by_side(at_once: usize, tests: &[Test]) -> ExitCode {
    let entered = rootless::enter_if_needed();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let chosen = select(tests, &arguments);
    if arguments.iter().any(|argument| argument == "--list") {
        chosen.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let missing = entered.and_then(|_| netns::namespaces_available()).err();
    let (mut passed, mut left_out, mut failed) = (0, 0, Vec::new());
    println!("running {} tests", chosen.len());
    let next = AtomicUsize::new(0);
    let (sender, ended) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..at_once {
            let (sender, next, chosen, missing) = (sender.clone(), &next, &chosen, &missing);
            scope.spawn(move || {
                while let Some((name, test)) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let start = Instant::now();
                    let ended = match missing {
                        Some(missing) => Err(skipped(missing)),
                        None => alone(*test),
                    };
                    // The other end waits for every test.
                    sender
                        .send((*name, ended, start.elapsed()))
                        .expect("an end");
                }
            });
        }
        drop(sender);
        for (name, ended, took) in ended {
            match ended.map_err(<Box<dyn Any + Send>>::downcast::<Skipped>) {
                Ok(()) => {
                    passed += 1;
                    println!("test {name} ... ok ({} ms)", took.as_millis());
                }
                Err(Ok(why)) => {
                    left_out += 1;
                    println!("SKIP: {name}: {}", why.0);
                }
                Err(Err(_)) => {
                    failed.push(name);
                    println!("test {name} ... FAILED");
                }
            }
        }
    });
    let word = if failed.is_empty() { "ok" } else { "FAILED" };
    failed.iter().for_each(|name| println!("failed: {name}"));
    println!(
        "test result: {word}. {passed} passed; {} failed; {left_out} skipped",
        failed.len()
    );
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs tests that have the names of their functions, as [`main`](crate::harness::main) does, or
/// with `2 at once:` in front as [`side_by_side`](crate::harness::side_by_side).
#[macro_export]
macro_rules! tests {
    ($at_once:literal at once: $($test:ident,)*) => {
        $crate::harness::side_by_side($at_once, &[$((stringify!($test), $test)),*])
    };
    ($($test:ident,)*) => {
        $crate::harness::main(&[$((stringify!($test), $test)),*])
    };
}

/// Runs a test where no other program makes or removes an interface.
fn alone(test: fn()) -> thread::Result<()> {
    panic::catch_unwind(|| {
        let netns = Netns::new().expect("a namespace");
        netns.run(test).expect("a thread in it");
    })
}

fn skipped(reason: impl Display) -> Box<dyn Any + Send> {
    Box::new(Skipped(reason.to_string()))
}

/// Ends the calling test, which cannot check what it is there for.
pub fn skip(reason: impl Display) -> ! {
    panic::resume_unwind(skipped(reason))
}

/// Skips the calling test where there cannot be a TAP.
pub fn need_tap() {
    if let Err(missing) = tap::available() {
        skip(missing);
    }
}

/// The kernel for guests: in the folder of the environment variable `PACKTRAIN_GUEST`, or in
/// `target/guest` of the workspace, where `.ci/run tests` puts it. Skips the calling test where it
/// or QEMU is missing.
pub fn need_guest() -> Kernel {
    let given = std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from);
    let folder =
        given.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guest"));
    let kernel = guest::need_programs().and_then(|()| Kernel::open(folder));
    kernel.unwrap_or_else(|error| skip(error))
}

/// Options of a tool or a testbed from their keys, as an experiment has them: `mss = 90`.
/// Keys of a later text replace those of an earlier one.
pub fn options<T: DeserializeOwned>(keys: &[&str]) -> T {
    let mut all = toml::Table::new();
    for keys in keys {
        let file: toml::Table = toml::from_str(&format!("of = {{ {keys} }}")).expect(keys);
        all.extend(file["of"].as_table().expect("keys").clone());
    }
    all.try_into()
        .unwrap_or_else(|error| panic!("{keys:?}: {error}"))
}

/// The run of an experiment that has one setting and one figure, with `seed`.
pub fn setup(testbed: &str, workload: &str, figure: &str, seed: u64) -> Setup {
    let text = format!(
        r#"
name = "one"
source = "S1"
title = "one setting"
meaning = "none"
document = {{ claims = "none" }}
testbed = {{ {testbed} }}
workload = {{ {workload} }}
axes = [{{ name = "one", settings = ["only"] }}]
figures = [{{ key = "{figure}", title = "a figure" }}]
"#
    );
    let experiment = Experiment::read("one.toml", &text);
    let setup = experiment.and_then(|experiment| experiment.setup(0, seed, false));
    setup.unwrap_or_else(|error| panic!("{error}"))
}

/// The rows of a table that is written as text: a line each, with bars between the cells.
pub fn rows<const N: usize>(table: &str) -> impl Iterator<Item = [&str; N]> {
    table.trim().lines().map(|line| {
        let cells: Vec<&str> = line.split(" | ").map(str::trim).collect();
        <[&str; N]>::try_from(cells).unwrap_or_else(|cells| panic!("not {N} cells: {cells:?}"))
    })
}

/// Two hosts with a TAP of packtrain's each, called `names`, left first. `change` sets what they
/// have beside their names.
pub fn taps(
    settings: &Settings,
    names: [&str; 2],
    change: impl Fn(Side, &mut TapConfig) + Sync,
) -> (TwoHosts, Tap, Tap) {
    let hosts = TwoHosts::with(settings, |side| {
        let name = side.of(names);
        let mut config = TapConfig::new(TapKind::Tap, name);
        change(side, &mut config);
        let tap = Tap::open(&config).unwrap_or_else(|error| panic!("{config:?}: {error}"));
        Ok::<_, LabError>((name.to_owned(), tap))
    });
    hosts.unwrap_or_else(|error| panic!("{names:?}: {error}"))
}

/// What a test could leave in this process: descriptors by their targets, which keep namespaces and
/// interfaces, threads, processes, and interfaces of the calling thread's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traces {
    /// Sorted, without the numbers of sockets, pipes and namespaces.
    pub descriptors: Vec<String>,
    /// How many.
    pub threads: usize,
    /// By their names.
    pub interfaces: BTreeSet<String>,
    /// Those that the calling thread has started.
    pub children: String,
}

impl Traces {
    /// Those that are there now.
    pub fn now() -> Self {
        let links = fs::read_dir("/proc/self/fd").expect("/proc is mounted");
        let links = links.flatten().filter_map(|link| {
            // The descriptor that reads the directory is among them, and is closed by now.
            let target = fs::read_link(link.path()).ok()?;
            Some(Name::from(target).exact().to_owned())
        });
        let is_digit = |c: char| c.is_ascii_digit();
        let mut descriptors: Vec<_> = links
            .filter(|link| !link.ends_with("/fd"))
            .map(|link| match link.split_once(":[") {
                Some((kind, number)) if number.starts_with(is_digit) => kind.to_owned(),
                _ => link,
            })
            .collect();
        descriptors.sort();
        let interfaces = counters::devices().expect("/proc/net").into_iter();
        Self {
            descriptors,
            threads: fs::read_dir("/proc/self/task").expect("/proc").count(),
            interfaces: interfaces.map(|(name, _)| name).collect(),
            children: fs::read_to_string("/proc/thread-self/children").unwrap_or_default(),
        }
    }

    /// Waits until nothing else is there: the kernel removes interfaces and threads in the
    /// background.
    pub fn assert_again(&self) {
        let start = Instant::now();
        loop {
            let now = Self::now();
            if now == *self {
                return;
            }
            let is_late = start.elapsed() >= TIMEOUT;
            assert!(!is_late, "{now:?}, before: {self:?}");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A busy machine may be slow, and only a hang is a failure.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until `done`, for a minute.
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < TIMEOUT, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A testbed. Skips the calling test where a feature or a program is missing.
pub fn start(options: &TestbedOptions) -> Testbed {
    match Testbed::start(options) {
        Err(ToolError::Missing(what)) => skip(what),
        testbed => testbed.unwrap_or_else(|error| panic!("{options:?}: {error}")),
    }
}

/// A testbed whose port A is `a` if packtrain joins the hosts.
pub fn testbed(through: Through, a: &str) -> Testbed {
    start(&TestbedOptions {
        through,
        a: a.to_owned(),
        ..TestbedOptions::default()
    })
}

/// Checks that a wrong option is the error, which says so; `^` stands for the start of the line.
pub fn assert_refused<T: Debug>(outcome: Result<T, ToolError>, expected: &str) {
    match outcome {
        Err(ToolError::Usage(line)) => assert!(format!("^{line}").contains(expected), "{line}"),
        other => panic!("{expected}: {other:?}"),
    }
}

/// Runs a tool to its end.
///
/// # Errors
/// Those of the tool.
pub fn run(tool: &impl Tool, testbed: &Testbed) -> Result<Measured, ToolError> {
    let measured = tool.run(testbed, &Control::default());
    measured.map(Measured::fields)
}

/// A value that is a number.
pub fn number(value: &Value) -> f64 {
    let number = value.as_f64();
    number.unwrap_or_else(|| panic!("{value} is no number"))
}

/// A figure that is a count.
pub fn count(measured: &Measured, name: &str) -> u64 {
    let figure = measured.figures.get(name).expect(name);
    figure.as_u64().expect(name)
}

/// Runs what would take long, and stops it soon.
pub fn stopped<T>(run: impl FnOnce(&Control<'_>) -> T) -> T {
    stopped_after(|| thread::sleep(Duration::from_millis(50)), run)
}

/// Runs what would take long, and stops it when `until` has returned or panicked.
pub fn stopped_after<T>(until: impl FnOnce() + Send, run: impl FnOnce(&Control<'_>) -> T) -> T {
    let control = Control::default();
    let stop = Arc::clone(&control.stop);
    thread::scope(|scope| {
        scope.spawn(move || {
            let _stops = AtEnd(|| stop.store(true, Ordering::Relaxed));
            until();
        });
        run(&control)
    })
}

/// Waits until all threads of a process sleep, and none of them wakes up for 100 ms. A thread that
/// waits for a CPU does not sleep, so load can only delay this.
pub fn wait_quiet(process: u32) {
    let asleep = || {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
        let read = |task: fs::DirEntry| fs::read_to_string(task.path().join("status"));
        let status: Vec<_> = tasks.flatten().flat_map(read).collect();
        let switches = status.iter().flat_map(|status| status.lines());
        let switches = switches.filter(|line| line.contains("ctxt_switches:"));
        let sleeps = status.iter().all(|status| status.contains("\nState:\tS"));
        sleeps.then(|| Vec::from_iter(switches.map(str::to_owned)))
    };
    wait_for("a process that sleeps", || {
        let before = asleep();
        thread::sleep(Duration::from_millis(100));
        before.is_some() && asleep() == before
    });
}

/// Runs a tool that would take long, and stops it, perhaps before it has measured anything.
pub fn assert_stops(tool: &impl Tool, testbed: &Testbed) {
    let start = Instant::now();
    let ended = stopped(|control| tool.run(testbed, control));
    assert!(
        matches!(
            ended,
            Ok(_) | Err(ToolError::Cancelled | ToolError::InWarmUp(_))
        ),
        "{ended:?}"
    );
    assert!(start.elapsed() < Duration::from_secs(60));
}

fn select<'a>(tests: &'a [Test], arguments: &[String]) -> Vec<&'a Test> {
    let (mut names, mut skip) = (Vec::new(), Vec::new());
    let exact = arguments.iter().any(|argument| argument == "--exact");
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--skip" => skip.extend(arguments.next()),
            // Options of the standard harness that take a value.
            "--test-threads" | "--format" | "--color" | "--logfile" | "-Z" => {
                arguments.next();
            }
            option if option.starts_with('-') => {}
            _ => names.push(argument),
        }
    }
    let matches = |name: &str, wanted: &str| {
        if exact {
            name == wanted
        } else {
            name.contains(wanted)
        }
    };
    tests
        .iter()
        .filter(|(name, _)| names.is_empty() || names.iter().any(|wanted| matches(name, wanted)))
        .filter(|(name, _)| !skip.iter().any(|unwanted| matches(name, unwanted)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(arguments: &[&str]) -> Vec<&'static str> {
        const TESTS: [Test; 3] = [("tcp_v4", || {}), ("tcp_v6", || {}), ("udp", || {})];
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        select(&TESTS, &arguments)
            .into_iter()
            .map(|(name, _)| *name)
            .collect()
    }

    #[test]
    fn tests_are_selected_as_by_the_standard_harness() {
        assert_eq!(chosen(&[]), ["tcp_v4", "tcp_v6", "udp"]);
        assert_eq!(chosen(&["tcp"]), ["tcp_v4", "tcp_v6"]);
        assert_eq!(chosen(&["v6", "udp", "--nocapture"]), ["tcp_v6", "udp"]);
        assert_eq!(chosen(&["--skip", "tcp"]), ["udp"]);
        assert_eq!(chosen(&["--exact", "tcp"]), [""; 0]);
        assert_eq!(chosen(&["--test-threads", "1", "udp"]), ["udp"]);
    }
}
