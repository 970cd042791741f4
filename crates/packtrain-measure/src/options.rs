//! Options that several benches have, and the exit status of a bench.

use clap::Args;
use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The options of every bench. It also has `--rounds`, with its own default:
/// `#[arg(long, value_name = "N", value_parser = rounds, default_value_t = 21)]` and
/// `#[arg(default_value_if("quick", "true", ROUNDS_QUICK))]`.
#[derive(Args, Clone, Debug)]
#[command(args_override_self = true)]
pub struct Common {
    /// Few rounds: a look, no verdict to rely on
    #[arg(long)]
    pub quick: bool,
    /// File for the rows; by default in the folder `bench` of the target directory
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// Rounds with `--quick`.
pub const ROUNDS_QUICK: &str = "4";

/// The length of each measurement.
#[derive(Args, Clone, Debug)]
pub struct Timed {
    /// Seconds of each measurement, 0.1 to 60 [with --quick 0.4]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    #[arg(default_value = "1", default_value_if("quick", "true", "0.4"))]
    pub time: Duration,
}

/// The options of a bench with goals.
#[derive(Args, Clone, Copy, Debug)]
pub struct Goals {
    /// Exit with 1 if a goal is not reproduced or a peer is missing
    #[arg(long)]
    pub check: bool,
    /// Exit with 1 if a median does not reach half its goal
    #[arg(long)]
    pub check_half: bool,
}

/// Reads `--rounds`.
///
/// # Errors
///
/// The range that it takes.
pub fn rounds(text: &str) -> Result<usize, String> {
    let rounds = text.parse().ok();
    let rounds = rounds.filter(|rounds| (2..=10_000).contains(rounds));
    rounds.ok_or_else(|| "it is 2 to 10000".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse()
        .ok()
        .filter(|seconds| (0.1..=60.0).contains(seconds));
    let seconds = seconds.ok_or_else(|| "it is 0.1 to 60".to_owned())?;
    Ok(Duration::from_secs_f64(seconds))
}

/// The exit status after `result` of the bench `name`: 1 if a goal that decides is missed
/// (`false`), 4 after an error, which is printed.
pub fn status<E: Display>(name: &str, result: Result<bool, E>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::from(4)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Arguments {
        #[arg(long, value_name = "N", value_parser = rounds, default_value_t = 16)]
        #[arg(default_value_if("quick", "true", ROUNDS_QUICK))]
        rounds: usize,
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        timed: Timed,
        #[command(flatten)]
        goals: Goals,
    }

    fn timed(line: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(std::iter::once("bench").chain(line.split_whitespace()))
    }

    #[test]
    fn a_command_line_is_read() {
        let read = timed("--bench --json x --rounds 2 --time 0.5 --json a/b --check").unwrap();
        assert_eq!((read.rounds, read.timed.time.as_millis()), (2, 500));
        assert_eq!(read.common.json, Some("a/b".into()));
        assert!(read.goals.check && !read.goals.check_half);
        for (line, rounds, millis) in [
            ("", 16, 1000),
            ("--quick", 4, 400),
            ("--quick --rounds 7", 7, 400),
            ("--rounds 7 --quick --time 2", 7, 2000),
        ] {
            let read = timed(line).unwrap();
            let got = (read.rounds, read.timed.time.as_millis());
            assert_eq!(got, (rounds, millis), "{line}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, why) in [
            ("--rounds 1", "it is 2 to 10000"),
            ("--rounds 10001", "it is 2 to 10000"),
            ("--rounds x", "--rounds <N>"),
            ("--time NaN", "it is 0.1 to 60"),
            ("--time 61", "--time <SECONDS>"),
            ("--json", "--json <FILE>"),
            ("--runds 3", "--rounds"),
        ] {
            let error = timed(line).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
