//! Runs the fuzz targets, and installs their tools.
//!
//! cargo-fuzz needs a nightly compiler for the address sanitizer. Only this command installs the
//! two.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, bail};

use crate::command::{ensure, works};

/// The version that the targets are tested with.
const CARGO_FUZZ_VERSION: &str = "0.13.2";

/// Longest input libFuzzer makes, in bytes: above the largest header chain, and long enough for a
/// capture file with several blocks.
const MAX_INPUT_BYTES: u32 = 4096;

/// The marks that the seeds of a target have to reach (`reached` in `fuzz/src/lib.rs`). A target
/// that does not reach them tests nothing of its purpose.
const REACHED: &[(&str, &[&str])] = &[
    ("coalesce", &["merged", "one by one", "runs", "a queue"]),
    (
        "crowd",
        &[
            "merged",
            "one by one",
            "fetching ahead",
            "a queue of thousands",
        ],
    ),
    (
        "replay",
        &[
            "merged and restored",
            "merged and written",
            "merged as a stream",
        ],
    ),
    (
        "sort",
        &[
            "one key of many",
            "few keys of many",
            "more keys of many",
            "hundreds of keys",
        ],
    ),
];

/// Runs every target in `fuzz/fuzz_targets` for `seconds`. After a failure no other target starts.
pub fn run(root: &Path, seconds: u32) -> Result<()> {
    let targets = targets(&root.join("fuzz/fuzz_targets"))?;
    ensure_nightly()?;
    ensure_cargo_fuzz(root)?;
    // First, so that a failure below is a finding.
    ensure(cargo_fuzz(root).arg("build")).context("the fuzz targets do not build")?;
    check_seeds(root, &targets)?;
    side_by_side(&targets, |target| fuzz(root, target, seconds))
}

/// Calls `run` for each target, for as many at once as there are CPUs, since a target has one
/// thread. After an error no other target starts.
fn side_by_side(targets: &[String], run: impl Fn(&str) -> Result<()> + Sync) -> Result<()> {
    let next = AtomicUsize::new(0);
    let run_next = || {
        while let Some(target) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
            run(target).inspect_err(|_| next.store(targets.len(), Ordering::Relaxed))?;
        }
        Ok(())
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run_next)).collect();
        let results = threads.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        results.fold(Ok(()), Result::and)
    })
}

fn fuzz(root: &Path, target: &str, seconds: u32) -> Result<()> {
    println!("fuzz: {target}: {seconds} s");
    let mut command = cargo_fuzz(root);
    command
        .args(["run", target, "--"])
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={MAX_INPUT_BYTES}"))
        .args(["-timeout=10", "-print_final_stats=1"]);
    // The output is pages of progress and dictionaries, and is printed only after a failure.
    let output = command.output().context("cannot start rustup")?;
    let log = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        eprint!("{}{log}", String::from_utf8_lossy(&output.stdout));
        bail!(
            "fuzz target {target} failed; its input is in fuzz/artifacts/{target}: repeat it \
             with `cargo +nightly fuzz run {target} FILE`, and keep it as a seed and a test"
        );
    }
    let inputs = executed(&log)
        .filter(|&inputs| inputs > 0)
        .with_context(|| format!("fuzz target {target} ran no input:\n{log}"))?;
    println!("fuzz: {target}: {inputs} inputs, no failure");
    Ok(())
}

/// Runs the seeds of the targets in [`REACHED`] alone, and checks that they reach the marks.
fn check_seeds(root: &Path, targets: &[String]) -> Result<()> {
    for (target, wanted) in REACHED {
        if !targets.iter().any(|name| name == target) {
            bail!("there is no fuzz target {target}, but REACHED names it");
        }
        let folder = root.join("fuzz/corpus").join(target);
        let seeds = seeds(&folder)?;
        let mut command = cargo_fuzz(root);
        command
            .args(["run", target])
            .args(&seeds)
            .env("PACKTRAIN_FUZZ_REACHED", "1");
        let output = command.output().context("cannot start rustup")?;
        let log = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            eprint!("{log}");
            bail!("fuzz target {target} failed on one of its seeds");
        }
        let missing = missing(&log, wanted);
        if !missing.is_empty() {
            bail!(
                "no seed in {} reaches: {}; add a seed that does, or find out why none does now",
                folder.display(),
                missing.join(", ")
            );
        }
        println!(
            "fuzz: {target}: {} seeds reach: {}",
            seeds.len(),
            wanted.join(", ")
        );
    }
    Ok(())
}

/// The seeds in `folder`, sorted. Inputs that libFuzzer found on this machine are in the same
/// folder.
fn seeds(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut seeds = Vec::new();
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("seed-") {
            seeds.push(entry.path());
        }
    }
    if seeds.is_empty() {
        bail!("{} holds no seed", folder.display());
    }
    seeds.sort();
    Ok(seeds)
}

/// The marks of `wanted` that no line of `log` has.
fn missing<'a>(log: &str, wanted: &[&'a str]) -> Vec<&'a str> {
    let said: Vec<_> = log
        .lines()
        .filter_map(|line| line.strip_prefix("reached: "))
        .collect();
    let is_missing = |what: &&str| !said.contains(what);
    wanted.iter().copied().filter(is_missing).collect()
}

/// The number of inputs that libFuzzer ran, by its own output.
fn executed(log: &str) -> Option<u64> {
    let name = "stat::number_of_executed_units:";
    let said = log.lines().find_map(|line| line.strip_prefix(name))?;
    said.trim().parse().ok()
}

/// `cargo fuzz` with the nightly compiler.
///
/// It uses `rustup run` and not `cargo +nightly`, because this process inherited the toolchain
/// variables of the cargo that started it.
fn cargo_fuzz(root: &Path) -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "cargo", "fuzz"])
        .current_dir(root);
    command
}

/// The names of the targets: the sources in `folder` without `.rs`, sorted.
fn targets(folder: &Path) -> Result<Vec<String>> {
    let mut targets = Vec::new();
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        targets.extend(name.strip_suffix(".rs").map(str::to_owned));
    }
    if targets.is_empty() {
        bail!("{} holds no fuzz target", folder.display());
    }
    targets.sort();
    Ok(targets)
}

fn ensure_nightly() -> Result<()> {
    if works(Command::new("rustup").args(["run", "nightly", "rustc", "--version"])) {
        return Ok(());
    }
    println!("fuzz: the nightly compiler is missing; installing it");
    ensure(Command::new("rustup").args(["toolchain", "install", "nightly", "--profile", "minimal"]))
}

fn ensure_cargo_fuzz(root: &Path) -> Result<()> {
    if works(cargo_fuzz(root).arg("--version")) {
        return Ok(());
    }
    println!("fuzz: cargo-fuzz is missing; installing version {CARGO_FUZZ_VERSION}");
    // In a target directory of its own: two cargos in one directory wait for each other.
    ensure(
        Command::new("rustup")
            .args([
                "run",
                "nightly",
                "cargo",
                "install",
                "cargo-fuzz",
                "--locked",
            ])
            .args(["--version", CARGO_FUZZ_VERSION])
            .env("CARGO_TARGET_DIR", root.join("target/cargo-fuzz"))
            .current_dir(root),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn what_no_seed_reached_is_missing() {
        let log = "Running: seed-a\nreached: one\nExecuted seed-a\nreached: two or\n";
        assert_eq!(missing(log, &["one"]), [""; 0]);
        assert_eq!(missing(log, &["two", "one", "three"]), ["two", "three"]);
        assert_eq!(missing("", &["one"]), ["one"]);
    }

    #[test]
    fn every_target_runs_once_and_none_starts_after_an_error() {
        let targets: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let ran = Mutex::new(Vec::new());
        let run = |target: &str| {
            ran.lock().unwrap().push(target.to_owned());
            Ok(())
        };
        side_by_side(&targets, run).unwrap();
        let mut found = ran.into_inner().unwrap();
        found.sort_by_key(|target| target.parse::<usize>().unwrap());
        assert_eq!(found, targets);

        let ran = AtomicUsize::new(0);
        let fail = |target: &str| {
            ran.fetch_add(1, Ordering::Relaxed);
            bail!("{target} failed")
        };
        let error = side_by_side(&targets, fail).unwrap_err().to_string();
        assert!(error.ends_with(" failed"), "{error}");
        let threads = thread::available_parallelism().map_or(1, usize::from);
        assert!(
            ran.into_inner() <= threads,
            "each thread has run one at most"
        );
    }

    #[test]
    fn a_run_without_a_number_of_inputs_is_none() {
        let line = "stat::number_of_executed_units:";
        assert_eq!(executed(&format!("INFO: a\n{line} 134\nb")), Some(134));
        assert_eq!(executed(&format!("{line} many")), None);
        assert_eq!(executed("Done 134 runs in 2 second(s)"), None);
    }
}
