//! Runs the fuzz targets, fetching what they need.
//!
//! cargo-fuzz needs a nightly compiler for the address sanitizer. Nothing else in the project
//! does, so both are installed only here.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// The version that the targets are known to run with.
const CARGO_FUZZ_VERSION: &str = "0.13.2";

/// Longest input libFuzzer makes, in bytes: above the largest header chain, and long enough for a
/// capture file with several blocks.
const MAX_INPUT_BYTES: u32 = 4096;

/// Runs every target in `fuzz/fuzz_targets` for `seconds`, and stops at the first that fails.
pub fn run(root: &Path, seconds: u32) -> Result<()> {
    let targets = targets(&root.join("fuzz/fuzz_targets"))?;
    ensure_nightly()?;
    ensure_cargo_fuzz(root)?;
    for target in &targets {
        let start = Instant::now();
        // `rustup run` and not `cargo +nightly`: the latter is undone by the toolchain variables
        // that this process inherited from the cargo that started it.
        let mut command = Command::new("rustup");
        command
            .args(["run", "nightly", "cargo", "fuzz", "run", target, "--"])
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-max_len={MAX_INPUT_BYTES}"))
            .args(["-timeout=10", "-print_final_stats=1", "-verbosity=0"])
            .current_dir(root);
        run_command(&mut command).with_context(|| {
            format!(
                "fuzz target {target} failed; its input is in fuzz/artifacts/{target}: repeat it \
                 with `cargo +nightly fuzz run {target} FILE`, and keep it as a seed or a test"
            )
        })?;
        println!(
            "fuzz: {target}: {seconds} s and no failure ({:.0?})",
            start.elapsed()
        );
    }
    Ok(())
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
    println!("fuzz: installing the nightly toolchain");
    run_command(Command::new("rustup").args([
        "toolchain",
        "install",
        "nightly",
        "--profile",
        "minimal",
    ]))
}

fn ensure_cargo_fuzz(root: &Path) -> Result<()> {
    let probe = ["run", "nightly", "cargo", "fuzz", "--version"];
    if works(Command::new("rustup").args(probe)) {
        return Ok(());
    }
    println!("fuzz: installing cargo-fuzz {CARGO_FUZZ_VERSION}");
    // In a target directory of its own: two cargos in one wait for each other.
    run_command(
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

/// True when the command can be started and succeeds. What it prints is dropped.
fn works(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

fn run_command(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .with_context(|| format!("cannot start {program}; is it installed?"))?;
    if !status.success() {
        bail!("{program}: {status}");
    }
    Ok(())
}
