//! Runs cargo-mutants with the configuration of the project, `.cargo/mutants.toml`.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::command::{ensure, works};

/// The version that the configuration is written for.
const VERSION: &str = "27.1.0";

/// The packages whose mutants are tested.
const PACKAGES: &[&str] = &["packtrain-offload", "packtrain-capture", "packtrain"];

/// Replaces this process by cargo-mutants, so that a signal reaches it. Returns only on an error.
pub fn run(root: &Path, args: &[&str]) -> Result<()> {
    install(root)?;
    // The copy of the tree that cargo-mutants makes has a target directory of its own.
    let error = Command::new("cargo")
        .arg("mutants")
        .args(PACKAGES.iter().flat_map(|name| ["--package", name]))
        .args(args)
        .env_remove("CARGO_TARGET_DIR")
        // The folder for `mutants.out`, without `--output`.
        .env("CARGO_MUTANTS_OUTPUT", root.join("target"))
        // A mutant changes one file: with incremental files the others are not compiled again.
        .env("CARGO_INCREMENTAL", "1")
        .current_dir(root)
        .exec();
    Err(error).context("cannot start cargo")
}

fn install(root: &Path) -> Result<()> {
    if works(Command::new("cargo").args(["mutants", "--version"])) {
        return Ok(());
    }
    eprintln!("mutants: cargo-mutants is missing; installing version {VERSION}");
    // Not optimised: it only starts cargo, and is built in half the time.
    ensure(
        Command::new("cargo")
            .args(["install", "cargo-mutants", "--locked", "--debug"])
            .args(["--version", VERSION])
            .env("CARGO_TARGET_DIR", root.join("target/cargo-mutants"))
            .current_dir(root),
    )
}
