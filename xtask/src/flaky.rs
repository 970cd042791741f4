//! Finds tests that time decides: runs the whole suite several times beside busy loops.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::{hint, thread};

use anyhow::{Context, Result, bail};

use crate::command::{ensure, folder, program, read};

/// The least number of busy loops. A machine with more than two CPUs has two for each.
const LOOPS_MIN: usize = 4;
const CARGO_TEST: &str = "cargo test --workspace --no-fail-fast";

/// The runs.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Runs of the suite
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,
    /// Only tests whose name contains one of these
    filter: Vec<String>,
}

/// Builds the tests once, runs them, and prints each that failed in any run. A failure is an error.
pub fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    ensure(&mut program(root, &format!("{CARGO_TEST} --no-run")))?;
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let loops = LOOPS_MIN.max(2 * cpus);
    // Threads of this process end with it, also after a signal.
    for _ in 0..loops {
        thread::Builder::new().spawn(|| {
            loop {
                hint::spin_loop();
            }
        })?;
    }
    let runs = arguments.runs;
    let logs = folder(root, "target/flaky")?;
    let mut failures = BTreeMap::<String, u16>::new();
    for run in 1..=runs {
        let path = logs.join(format!("run-{run}.log"));
        let log = File::create(&path).with_context(|| path.display().to_string())?;
        let mut command = program(root, CARGO_TEST);
        command.arg("--").args(&arguments.filter);
        // As many as in CI.
        command.env("RUST_TEST_THREADS", (3 * cpus).to_string());
        let status = command.stdout(log.try_clone()?).stderr(log).status();
        let status = status.context("cannot start cargo")?;
        let mut found = failed(&read(&path)?);
        if found.is_empty() && !status.success() {
            found.push(format!("cargo test: {status}"));
        }
        println!("flaky: run {run} of {runs}: {} failed", found.len());
        for name in found {
            println!("  {name}");
            *failures.entry(name).or_default() += 1;
        }
    }
    if failures.is_empty() {
        println!("flaky: no failure in {runs} runs beside {loops} busy loops");
        return Ok(());
    }
    for (name, times) in failures {
        println!("{name}: failed in {times} of {runs} runs");
    }
    bail!("tests failed; what they printed is in {}", logs.display())
}

/// The failed tests of a run by its log, each with its executable.
fn failed(log: &str) -> Vec<String> {
    let (mut executable, mut found) = ("", Vec::new());
    for line in log.lines().map(str::trim) {
        let test = line.strip_prefix("test ");
        if line.starts_with("Running ") || line.starts_with("Doc-tests ") {
            executable = line;
        } else if let Some(test) = test.and_then(|test| test.strip_suffix(" ... FAILED")) {
            found.push(format!("{executable}: {test}"));
        } else if line.contains("(signal: ") {
            found.push(format!("{executable}: {line}"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_its_executable() {
        let log = "     Running tests/ping.rs (target/debug/deps/ping-0a2)\n\
                   test one ... ok\ntest a::two ... FAILED\n\
                   \x20 process didn't exit successfully: `x` (signal: 6)\n\
                   \x20  Doc-tests packtrain\ntest src/a.rs - b (line 9) ... FAILED\n";
        let ping = "Running tests/ping.rs (target/debug/deps/ping-0a2)";
        let expected = [
            format!("{ping}: a::two"),
            format!("{ping}: process didn't exit successfully: `x` (signal: 6)"),
            "Doc-tests packtrain: src/a.rs - b (line 9)".to_owned(),
        ];
        assert_eq!(failed(log), expected);
    }
}
