//! Build chores: `cargo xtask tidy`, `cargo xtask full`, `cargo xtask fuzz`,
//! `cargo xtask mutants`, `cargo xtask figures`, `cargo xtask experiments`, `cargo xtask against`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::tidy::tree::Tree;

mod against;
mod command;
mod experiments;
mod figures;
mod fuzz;
mod mutants;
mod tidy;

const USAGE: &str = "\
usage: cargo xtask tidy                  check the rules of the source tree
       cargo xtask fuzz [--seconds N]    run every fuzz target for N seconds (20)
       cargo xtask mutants [ARGS]        run cargo-mutants with .cargo/mutants.toml
       cargo xtask figures [--quick] [--runs N] [NAME..]
                                         run the benches N times (3), and write the medians of the
                                         runs to docs/performance
       cargo xtask experiments [--runs N] [--binary PATH] [NAME.. | --from FILE..]
                                         run the experiments (all) N times (5), or take documents
                                         of --save, and write the verdicts to docs/experiments
       cargo xtask against REV BENCH [--rounds N] [--keep] [-- ARGS]
                                         run a bench (`tax`, `ring`) of a revision and of this tree
                                         in turn, N times (7), and compare
       cargo xtask full                  all of .ci/run with full test grids and long fuzz runs";

/// Seconds that a fuzz target runs by default.
const FUZZ_SECONDS: u32 = 20;

/// Seconds that a fuzz target runs in the full mode.
const FULL_FUZZ_SECONDS: u32 = 600;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let root = root();
    let result = match args.as_slice() {
        ["tidy"] => tidy(&root),
        ["full"] => full(&root),
        ["fuzz"] => fuzz::run(&root, FUZZ_SECONDS),
        ["fuzz", "--seconds", seconds] => match seconds.parse() {
            Ok(seconds) if seconds > 0 => fuzz::run(&root, seconds),
            _ => {
                eprintln!("--seconds takes a whole number from 1, not `{seconds}`");
                return ExitCode::from(2);
            }
        },
        ["figures", words @ ..] => match figures::Arguments::parse(words) {
            Ok(arguments) => figures::run(&root, &arguments),
            Err(wrong) => {
                eprintln!("figures: {wrong}\nusage: {}", figures::USAGE);
                return ExitCode::from(2);
            }
        },
        ["experiments", words @ ..] => match experiments::Arguments::parse(words) {
            Ok(arguments) => experiments::run(&root, &arguments),
            Err(wrong) => {
                eprintln!("experiments: {wrong}\nusage: {}", experiments::USAGE);
                return ExitCode::from(2);
            }
        },
        ["against", words @ ..] => match against::Arguments::parse(words) {
            Ok(arguments) => against::run(&root, &arguments),
            Err(wrong) => {
                eprintln!("against: {wrong}");
                return ExitCode::from(2);
            }
        },
        ["mutants", args @ ..] => mutants::run(&root, args),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the repository: the parent of this crate.
fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

fn tidy(root: &Path) -> Result<()> {
    let tree = Tree::read(root)?;
    print!("{}", tidy::port_lines::table(&tree));
    print!("{}", tidy::lines::table(&tree));
    let breaches = tidy::check(&tree);
    for breach in &breaches {
        println!("{breach}");
    }
    let sources = tree.sources().count();
    if !breaches.is_empty() {
        bail!(
            "tidy: {} breaches in {sources} source files",
            breaches.len()
        );
    }
    println!("tidy: {sources} source files, no breach");
    Ok(())
}

/// Runs the script of CI without limits, so that there is only one list of checks.
fn full(root: &Path) -> Result<()> {
    let script = root.join(".ci/run");
    let status = std::process::Command::new(&script)
        .current_dir(root)
        .env("PACKTRAIN_FULL", "1")
        .env("PACKTRAIN_FUZZ_SECONDS", FULL_FUZZ_SECONDS.to_string())
        .status()
        .with_context(|| format!("cannot run {}", script.display()))?;
    if !status.success() {
        bail!("{}: {status}", script.display());
    }
    Ok(())
}
