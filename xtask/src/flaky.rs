//! Finds tests that time decides: runs the whole suite several times beside busy loops.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::time::Instant;
use std::{hint, thread};

use anyhow::{Context, Result, bail};

use crate::command::{ensure, folder, program, read};

/// The least number of busy loops. A machine with more than two CPUs has two for each.
const LOOPS_MIN: usize = 4;
/// How much of the log is printed for a failure.
const TAIL_LINES: usize = 20;
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
    let mut failures = BTreeMap::<String, (u16, String)>::new();
    for run in 1..=runs {
        let path = logs.join(format!("run-{run}.log"));
        let log = File::create(&path).with_context(|| path.display().to_string())?;
        let start = Instant::now();
        let mut command = program(root, CARGO_TEST);
        command.arg("--").args(&arguments.filter);
        // As many as in CI. A backtrace would be all of the tail.
        command.env("RUST_TEST_THREADS", (3 * cpus).to_string());
        command.env("RUST_BACKTRACE", "0");
        let status = command.stdout(log.try_clone()?).stderr(log).status();
        let status = status.context("cannot start cargo")?;
        let mut found = failed(&read(&path)?);
        if found.is_empty() && !status.success() {
            found.push((format!("cargo test: {status}"), tail(&read(&path)?)));
        }
        let (count, seconds) = (found.len(), start.elapsed().as_secs());
        println!("flaky: run {run} of {runs}: {count} failed, {seconds} s");
        for (name, tail) in found {
            failures.entry(name).or_insert((0, tail)).0 += 1;
        }
    }
    for (name, (times, tail)) in &failures {
        println!("\n{name}: failed in {times} of {runs} runs\n{tail}");
    }
    if !failures.is_empty() {
        let (tests, logs) = (failures.len(), logs.display());
        bail!("{tests} tests failed in some of {runs} runs; the logs are in {logs}");
    }
    println!("flaky: no failure in {runs} runs beside {loops} busy loops");
    Ok(())
}

/// The failed tests of a run by its log, each with its executable and with what it printed.
fn failed(log: &str) -> Vec<(String, String)> {
    let (mut executable, mut at, mut found) = ("", 0, Vec::new());
    for line in log.split_inclusive('\n') {
        let (before, after) = log.split_at(at);
        at += line.len();
        let line = line.trim();
        let starts = ["Running ", "Doc-tests "].map(|start| line.strip_prefix(start));
        if let Some(started) = starts.into_iter().flatten().next() {
            // A path with cargo's hash, or a crate.
            let name = started.rsplit(['/', ' ']).next().unwrap_or_default();
            executable = name.rsplit_once('-').map_or(name, |(name, _)| name);
        } else if let Some(test) = line.strip_prefix("test ")
            && let Some(test) = test.strip_suffix(" ... FAILED")
        {
            // The harness of Rust prints the output later, that of packtrain-lab prints it before.
            let printed = after.split_once(&format!("---- {test} stdout ----\n"));
            let printed = printed.map_or(before, |(_, rest)| {
                let ends = ["\n\n---- ", "\n\nfailures:\n"].map(|end| rest.find(end));
                &rest[..ends.into_iter().flatten().min().unwrap_or(rest.len())]
            });
            found.push((format!("{executable}: {test}"), tail(printed)));
        } else if line.contains("process didn't exit successfully") && line.contains("(signal: ") {
            found.push((format!("{executable}: {line}"), tail(before)));
        }
    }
    found
}

fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(TAIL_LINES)..];
    last.iter().map(|line| format!("    {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_its_executable_and_what_it_printed() {
        let log = "     Running tests/forward.rs (target/debug/deps/forward-0a1)\n\
                   test a::one ... ok\ntest a::two ... FAILED\ntest a::three ... FAILED\n\n\
                   failures:\n\n---- a::two stdout ----\nit\n\nis 2\n\n---- a::three stdout ----\n\
                   it is 3\n\nfailures:\n    a::two\n    a::three\n\
                   \x20    Running tests/ping.rs (target/debug/deps/ping-0a2)\n\
                   no reply\ntest four ... FAILED\nfailed: four\n\
                   \x20    Running unittests src/lib.rs (target/debug/deps/packtrain_lab-0a3)\n\
                   error: test failed\n\n  process didn't exit successfully: `x` (signal: 6)\n\
                   \x20  Doc-tests packtrain\ntest src/a.rs - b (line 9) ... FAILED\n";
        let found = failed(log);
        let names: Vec<_> = found.iter().map(|(name, _)| &name[..]).collect();
        let signal = "packtrain_lab: process didn't exit successfully: `x` (signal: 6)";
        assert_eq!(
            names,
            [
                "forward: a::two",
                "forward: a::three",
                "ping: four",
                signal,
                "packtrain: src/a.rs - b (line 9)"
            ]
        );
        assert_eq!(found[0].1, "    it\n    \n    is 2\n");
        assert_eq!(found[1].1, "    it is 3\n");
        assert!(found[2].1.ends_with("    no reply\n"), "{}", found[2].1);
        assert_eq!(tail(&"a\n".repeat(50)).lines().count(), TAIL_LINES);
    }
}
