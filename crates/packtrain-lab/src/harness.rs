//! A small test runner for tests that need namespaces.
//!
//! An unprivileged user gets namespaces only in a process that made its user namespace before it
//! had a second thread, which the standard test harness does not allow. A test target with
//! `harness = false` calls [`main`] instead.

use std::any::Any;
use std::fmt::Display;
use std::panic;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::ToolError;
use crate::netns::{self, Netns};
use crate::testbed::{Testbed, TestbedOptions, Through};
use crate::tool::{Control, Measured, Tool};
use crate::{rootless, tap};

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
    for (name, test) in chosen {
        let start = Instant::now();
        let ended = match &missing {
            Some(missing) => Err(skipped(missing)),
            None => alone(*test),
        };
        match ended.map_err(<Box<dyn Any + Send>>::downcast::<Skipped>) {
            Ok(()) => {
                passed += 1;
                println!("test {name} ... ok ({} ms)", start.elapsed().as_millis());
            }
            Err(Ok(why)) => {
                left_out += 1;
                println!("SKIP: {name}: {}", why.0);
            }
            Err(Err(_)) => {
                failed.push(*name);
                println!("test {name} ... FAILED");
            }
        }
    }
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

/// A testbed whose port A is `a` if packtrain joins the hosts.
pub fn testbed(through: Through, a: &str) -> Testbed {
    let options = TestbedOptions {
        through,
        a: a.to_owned(),
        ..TestbedOptions::default()
    };
    Testbed::start(&options).expect("a testbed")
}

/// A figure that is a count.
pub fn count(measured: &Measured, name: &str) -> u64 {
    let figure = measured.figures.get(name).expect(name);
    figure.as_u64().expect(name)
}

/// Runs a tool that would take long, and stops it, perhaps before it has measured anything.
pub fn assert_stops(tool: &impl Tool, testbed: &Testbed) {
    let control = Control::default();
    let stop = Arc::clone(&control.stop);
    let start = Instant::now();
    let ended = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(50));
            stop.store(true, Ordering::Relaxed);
        });
        tool.run(testbed, &control)
    });
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
