//! Runs cargo-mutants with the configuration of the project, `.cargo/mutants.toml`.

use std::os::unix::process::CommandExt;
use std::path::Path;

use anyhow::{Context, Result};

use crate::command::{program, provide};

/// The version that the configuration is written for.
const VERSION: &str = "27.1.0";

/// The packages whose mutants are tested.
const PACKAGES: &[&str] = &["packtrain-offload", "packtrain-capture", "packtrain"];

/// Replaces this process by cargo-mutants, so that a signal reaches it. Returns only on an error.
pub fn run(root: &Path, args: &[String]) -> Result<()> {
    provide(root, "cargo", "mutants", VERSION)?;
    // The copy of the tree that cargo-mutants makes has a target directory of its own.
    let error = program(root, "cargo mutants")
        .args(PACKAGES.iter().flat_map(|name| ["--package", name]))
        .args(args)
        .env_remove("CARGO_TARGET_DIR")
        // The folder for `mutants.out`, without `--output`.
        .env("CARGO_MUTANTS_OUTPUT", root.join("target"))
        // A mutant changes one file: with incremental files the others are not compiled again.
        .env("CARGO_INCREMENTAL", "1")
        .exec();
    Err(error).context("cannot start cargo")
}
