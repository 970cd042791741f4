//! Build chores: `cargo xtask help` lists them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

mod against;
mod command;
mod experiments;
mod figures;
mod flaky;
mod fuzz;
mod instructions;
mod mutants;
mod report;
mod tidy;

/// Seconds that a fuzz target runs in the full mode.
const FULL_FUZZ_SECONDS: &str = "600";

/// Build chores of packtrain
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask")]
enum Chore {
    /// Check the rules of the source tree, and count its lines
    Tidy,
    /// Run every fuzz target
    Fuzz {
        /// Seconds of each target
        #[arg(long, value_name = "N", default_value_t = 20)]
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        seconds: u32,
        /// Builds the targets and what they need, and runs none
        #[arg(long)]
        build: bool,
    },
    /// Run cargo-mutants with .cargo/mutants.toml
    #[command(disable_help_flag = true)]
    Mutants {
        /// Arguments of cargo-mutants
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Run the benches several times, and write the medians of the runs to docs/performance
    Figures(figures::Arguments),
    /// Run experiments several times, or take documents of --save, and write the verdicts to
    /// docs/experiments
    Experiments(experiments::Arguments),
    /// Run a bench of a revision and of this tree in turn, and compare
    Against(against::Arguments),
    /// Run the tests several times beside busy loops, and list each that failed even once. To run
    /// them beside a build too, start one in another terminal
    Flaky(flaky::Arguments),
    /// Count what a packet costs in instructions, and write docs/performance/instructions.txt
    Instructions(instructions::Arguments),
    /// Run all of .ci/run with whole test grids and long fuzz runs
    Full,
}

fn main() -> ExitCode {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root: PathBuf = manifest.parent().unwrap_or(manifest).to_path_buf();
    let result = match Chore::parse() {
        Chore::Tidy => tidy::run(&root),
        Chore::Fuzz { build: true, .. } => fuzz::build(&root),
        Chore::Fuzz { seconds, .. } => fuzz::run(&root, seconds),
        Chore::Mutants { args } => mutants::run(&root, &args),
        Chore::Figures(arguments) => figures::run(&root, &arguments),
        Chore::Experiments(arguments) => experiments::run(&root, &arguments),
        Chore::Against(arguments) => against::run(&root, &arguments),
        Chore::Flaky(arguments) => flaky::run(&root, &arguments),
        Chore::Instructions(arguments) => instructions::run(&root, &arguments),
        // The script of CI without limits, so that there is only one list of checks.
        Chore::Full => command::ensure(
            command::program(&root, "./.ci/run")
                .env("PACKTRAIN_FULL", "1")
                .env("PACKTRAIN_FUZZ_SECONDS", FULL_FUZZ_SECONDS),
        ),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the words after `cargo xtask`; an error as it is printed.
    fn read(line: &str) -> Result<Chore, String> {
        let words = line.split_whitespace();
        let read = Chore::try_parse_from(std::iter::once("xtask").chain(words));
        read.map_err(|error| error.to_string())
    }

    #[test]
    fn the_words_of_a_chore_are_read() {
        for (line, read_as) in [
            ("tidy", "Tidy"),
            ("full", "Full"),
            ("fuzz --seconds 1", "seconds: 1"),
            ("fuzz --build", "build: true"),
            (
                "mutants --list --in-diff a --help",
                r#"["--list", "--in-diff", "a", "--help"]"#,
            ),
            (
                "figures --quick --runs 2 ring tax",
                r#"quick: true, runs: 2, names: ["ring", "tax"]"#,
            ),
            (
                "experiments tso --runs 2 none --binary p",
                r#"runs: 2, binary: Some("p"), from: [], names: ["tso", "none"]"#,
            ),
            ("experiments --from a b", r#"from: ["a", "b"]"#),
            (
                "flaky --runs 2 ping blast",
                r#"runs: 2, filter: ["ping", "blast"]"#,
            ),
            (
                "against HEAD~1 --rounds 3 tax --keep -- --quick",
                r#""HEAD~1", bench: "tax", rounds: 3, keep: true, rest: ["--quick"]"#,
            ),
        ] {
            let chore = format!("{:?}", read(line).expect(line));
            assert!(chore.contains(read_as), "{chore}");
        }
    }

    #[test]
    fn what_is_not_understood_is_said_before_anything_runs() {
        for (line, why) in [
            ("", "Usage: cargo xtask"),
            ("tydi", "unrecognized subcommand"),
            ("fuzz --seconds 0", "--seconds <N>"),
            (
                "figures tabel",
                "[possible values: table, ring, tax, tap, vpn, smoltcp, replay, ports]",
            ),
            ("figures --runs", "--runs <N>"),
            ("figures --runs 0", "0 is not in 1..=99"),
            ("figures --fast", "--fast"),
            ("experiments --runs 100", "100 is not in 1..=99"),
            ("experiments --from", "--from <FILE>"),
            ("experiments --binary", "--binary <PATH>"),
            ("experiments tso --from a", "cannot be used with"),
            ("flaky --runs 0", "0 is not in 1..=1000"),
            ("against a", "<BENCH>"),
            ("against a b c", "unexpected argument 'c'"),
            ("against a b --rounds 0", "0 is not in 1..=1000"),
            ("against a b --quick", "--quick"),
        ] {
            let error = read(line).expect_err(line);
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}
