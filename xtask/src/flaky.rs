//! Finds tests that time decides: runs the whole suite several times beside busy loops.

use std::fs::File;
use std::path::Path;
use std::{hint, thread};

use anyhow::{Context, Result, ensure};

use crate::command::{self, folder, program, read};

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

/// Builds the tests once, runs them, and prints each that failed in a run. A failure is an error.
pub fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    command::ensure(&mut program(root, &format!("{CARGO_TEST} --no-run")))?;
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    // Threads of this process end with it, also after a signal.
    for _ in 0..(2 * cpus).max(4) {
        thread::spawn(|| {
            loop {
                hint::spin_loop();
            }
        });
    }
    let (runs, mut failed) = (arguments.runs, 0);
    let logs = folder(root, "target/flaky")?;
    for run in 1..=runs {
        let path = logs.join(format!("run-{run}.log"));
        let log = File::create(&path).with_context(|| path.display().to_string())?;
        let mut command = program(root, CARGO_TEST);
        command.arg("--").args(&arguments.filter);
        // As many as in CI.
        command.env("RUST_TEST_THREADS", (3 * cpus).to_string());
        let status = command.stdout(log.try_clone()?).stderr(log).status();
        let status = status.context("cannot start cargo")?;
        failed += u16::from(!status.success());
        println!("flaky: run {run} of {runs}: {status}");
        failures(&read(&path)?).for_each(|failure| println!("  {failure}"));
    }
    let logs = logs.display();
    ensure!(
        failed == 0,
        "{failed} of {runs} runs failed; what they printed is in {logs}"
    );
    Ok(())
}

/// The lines of a log with a failed test or a signal, each after its executable.
fn failures(log: &str) -> impl Iterator<Item = String> {
    let mut executable = "";
    log.lines().map(str::trim).filter_map(move |line| {
        if line.starts_with("Running ") || line.starts_with("Doc-tests ") {
            executable = line;
        }
        let is_failure = line.ends_with(" ... FAILED") || line.contains("(signal: ");
        is_failure.then(|| format!("{executable}: {line}"))
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_failure_has_its_executable() {
        let log = "     Running tests/ping.rs\ntest one ... ok\ntest a::two ... FAILED\n\
                   \x20 process didn't exit successfully: `x` (signal: 6)\n\
                   \x20  Doc-tests packtrain\ntest src/a.rs - b (line 9) ... FAILED\n";
        let expected = [
            "Running tests/ping.rs: test a::two ... FAILED",
            "Running tests/ping.rs: process didn't exit successfully: `x` (signal: 6)",
            "Doc-tests packtrain: test src/a.rs - b (line 9) ... FAILED",
        ];
        assert!(super::failures(log).eq(expected));
    }
}
