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

use crate::command::{ensure, printed, program, provide};

/// The version that the targets are tested with.
const CARGO_FUZZ_VERSION: &str = "0.13.2";

/// `rustup run` and not `cargo +nightly`, because this process inherited the toolchain variables of
/// the cargo that started it.
const NIGHTLY: &str = "rustup run nightly";

/// Longest input libFuzzer makes, in bytes: above the largest header chain, and long enough for a
/// capture file with several blocks.
const MAX_INPUT_BYTES: u32 = 4096;

/// The marks that the seeds of a target have to reach (`reached` in `fuzz/src/lib.rs`). A target
/// that does not reach them tests nothing of its purpose.
const REACHED: &[(&str, &str)] = &[
    (
        "card",
        "a packet of e1000e, a bad packet of e1000e, a sent packet of e1000e, \
         a packet of virtio, a large packet of virtio, a sent packet of virtio, \
         a completion without a packet of virtio, a card that is removed of virtio, \
         a packet of vmxnet3, a large packet of vmxnet3, a bad packet of vmxnet3, \
         a sent packet of vmxnet3, a completion without a packet of vmxnet3, \
         a card that is removed of vmxnet3",
    ),
    ("coalesce", "merged, one by one, runs, a queue"),
    (
        "crowd",
        "merged, one by one, fetching ahead, a queue of thousands",
    ),
    (
        "replay",
        "merged and restored, merged and written, merged as a stream",
    ),
    (
        "sort",
        "one key of many, few keys of many, more keys of many, hundreds of keys",
    ),
    (
        "vhost_user",
        "a connection that ends, a bad chain, a ring that is given up, a request that is answered, \
         a large packet of a guest, a large packet to a guest, cut for a guest, one chain, \
         several chains, a wait for buffers, a guest that offers its own rings",
    ),
    ("virtio_net", "cutting BIG TCP"),
];

/// Runs every target in `fuzz/fuzz_targets` for `seconds`. After a failure no other target starts.
pub fn run(root: &Path, seconds: u32) -> Result<()> {
    let targets = root.join("fuzz/fuzz_targets");
    let targets = listed(&targets, |name| name.ends_with(".rs"))?;
    let targets: Vec<String> = targets.iter().filter_map(|path| stem(path)).collect();
    // First, so that a failure below is a finding.
    build(root)?;
    check_seeds(root, &targets)?;
    side_by_side(&targets, |target| fuzz(root, target, seconds))
}

/// Builds every target, and installs the tools for that.
pub fn build(root: &Path) -> Result<()> {
    if printed(&mut program(root, &format!("{NIGHTLY} rustc --version"))).is_err() {
        println!("fuzz: the nightly compiler is missing; installing it");
        let install = "rustup toolchain install nightly --profile minimal";
        ensure(&mut program(root, install))?;
    }
    let cargo = format!("{NIGHTLY} cargo");
    provide(root, &cargo, "fuzz", CARGO_FUZZ_VERSION)?;
    ensure(&mut cargo_fuzz(root, "build")).context("the fuzz targets do not build")
}

fn cargo_fuzz(root: &Path, line: &str) -> Command {
    program(root, &format!("{NIGHTLY} cargo fuzz {line}"))
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
    let limits = format!("-max_total_time={seconds} -max_len={MAX_INPUT_BYTES} -timeout=10");
    let line = format!("run {target} -- {limits} -print_final_stats=1");
    // The output is pages of progress and dictionaries, and is printed only after a failure.
    let (is_success, log) = logged(&mut cargo_fuzz(root, &line))?;
    if !is_success {
        eprint!("{log}");
        bail!(
            "fuzz target {target} failed; its input is in fuzz/artifacts/{target}: repeat it \
             with `cargo +nightly fuzz run {target} FILE`, and keep it as a seed and a test"
        );
    }
    let inputs = executed(&log).filter(|&inputs| inputs > 0);
    let inputs = inputs.with_context(|| format!("fuzz target {target} ran no input:\n{log}"))?;
    println!("fuzz: {target}: {inputs} inputs, no failure");
    Ok(())
}

/// Whether a command succeeded, and all that it printed.
fn logged(command: &mut Command) -> Result<(bool, String)> {
    let output = command.output().context("cannot start rustup")?;
    let log = [output.stdout, output.stderr].concat();
    Ok((
        output.status.success(),
        String::from_utf8_lossy(&log).into_owned(),
    ))
}

/// Runs the seeds of the targets in [`REACHED`] alone, and checks that they reach the marks.
fn check_seeds(root: &Path, targets: &[String]) -> Result<()> {
    for (target, wanted) in REACHED {
        if !targets.iter().any(|name| name == target) {
            bail!("there is no fuzz target {target}, but REACHED names it");
        }
        // Inputs that libFuzzer found on this machine are in the same folder.
        let folder = root.join("fuzz/corpus").join(target);
        let seeds = listed(&folder, |name| name.starts_with("seed-"))?;
        let mut command = cargo_fuzz(root, &format!("run {target}"));
        command.args(&seeds).env("PACKTRAIN_FUZZ_REACHED", "1");
        let (is_success, log) = logged(&mut command)?;
        if !is_success {
            eprint!("{log}");
            bail!("fuzz target {target} failed on one of its seeds");
        }
        let missing = missing(&log, wanted).join(", ");
        if !missing.is_empty() {
            bail!(
                "no seed in {} reaches: {missing}; add a seed that does, or find out why none does \
                 now",
                folder.display()
            );
        }
        let count = seeds.len();
        println!("fuzz: {target}: {count} seeds reach: {wanted}");
    }
    Ok(())
}

/// The marks of `wanted` that no line of `log` has.
fn missing<'a>(log: &str, wanted: &'a str) -> Vec<&'a str> {
    let said = |mark: &str| {
        let mut said = log.lines();
        said.any(|line| line.strip_prefix("reached: ") == Some(mark))
    };
    wanted.split(", ").filter(|mark| !said(mark)).collect()
}

/// The number of inputs that libFuzzer ran, by its own output.
fn executed(log: &str) -> Option<u64> {
    let name = "stat::number_of_executed_units:";
    let said = log.lines().find_map(|line| line.strip_prefix(name))?;
    said.trim().parse().ok()
}

/// The files in `folder` of such a name, sorted. There must be some.
fn listed(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
    let cannot = || format!("cannot list {}", folder.display());
    let entries = fs::read_dir(folder).with_context(cannot)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths: Vec<PathBuf> = paths.collect::<Result<_, _>>().with_context(cannot)?;
    paths.retain(|path| {
        path.file_name()
            .is_some_and(|name| is_wanted(&name.to_string_lossy()))
    });
    if paths.is_empty() {
        bail!("{} holds no target or seed", folder.display());
    }
    paths.sort();
    Ok(paths)
}

fn stem(path: &Path) -> Option<String> {
    Some(path.file_stem()?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn what_no_seed_reached_is_missing() {
        let log = "Running: seed-a\nreached: one\nExecuted seed-a\nreached: two or\n";
        assert_eq!(missing(log, "one"), [""; 0]);
        assert_eq!(missing(log, "two, one, three"), ["two", "three"]);
        assert_eq!(missing("", "one"), ["one"]);
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
        let ran = ran.into_inner();
        assert!(ran <= threads, "each thread has run one at most");
    }

    #[test]
    fn a_run_without_a_number_of_inputs_is_none() {
        let line = "stat::number_of_executed_units:";
        assert_eq!(executed(&format!("INFO: a\n{line} 134\nb")), Some(134));
        assert_eq!(executed(&format!("{line} many")), None);
        assert_eq!(executed("Done 134 runs in 2 second(s)"), None);
    }
}
