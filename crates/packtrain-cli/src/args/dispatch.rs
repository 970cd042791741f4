//! The command line of `packtrain bench dispatch`.

use super::time;
use clap::Args;
use packtrain::policy::dispatch::THRESHOLD_MAX;
use packtrain_lab::dispatch::FRAME_BYTES_MIN;
use packtrain_lab::dispatch::load::Load;
use packtrain_lab::dispatch::schedule::{Asked, Grid, PortKind};
use std::path::PathBuf;
use std::time::Duration;

/// Longest frame: it fits one buffer.
const FRAME_BYTES_MAX: u64 = 1514;
/// Most producers.
const PRODUCERS_MAX: u64 = 64;

const EXAMPLES: &str = "\
Examples:
  packtrain bench dispatch --quick
      a look, in about a minute
  packtrain bench dispatch --json -o dispatch.json
      everything; the document goes to a file
  packtrain bench dispatch --ports null --producers 1,4 --loads saturation --repeats 20
      one question, more exactly

In each situation (port, producers, frame size, load) every fixed setting of dispatch, idle and
placement runs, and the adaptive one, in turns. docs/dispatch.md says how to read the figures.
As root, or where user namespaces may be made, TAPs are in a namespace that nobody else sees.";

/// `packtrain bench dispatch`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct BenchDispatchArgs {
    /// Ports to send to: sim, null, tap [default: all three]
    #[arg(long, value_name = "PORT,...", value_delimiter = ',')]
    pub ports: Vec<PortKind>,
    /// Numbers of threads that send, up to 64 [default: 1,2,4]
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new()
              .range(1..=PRODUCERS_MAX))]
    pub producers: Vec<usize>,
    /// Bytes of frames with their Ethernet header, 16 to 1514 [default: 64,1514]
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',',
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new()
              .range(FRAME_BYTES_MIN as u64..=FRAME_BYTES_MAX))]
    pub frames: Vec<usize>,
    /// How much is offered: trickle, a share of capacity (50%), saturation, bulk
    /// [default: trickle,25%,50%,75%,saturation,bulk]
    #[arg(
        long,
        value_name = "LOAD,...",
        value_delimiter = ',',
        verbatim_doc_comment
    )]
    pub loads: Vec<Load>,
    /// The n of each threshold(n) [default: 8,32]
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=i64::from(THRESHOLD_MAX)))]
    pub thresholds: Vec<u32>,
    /// Measures every combination, also of what is not asked for: without it, all but the first
    /// number of producers and the first size have two loads, or those of --loads, and no other
    /// number goes with another size, unless both --producers and --frames are given
    #[arg(long)]
    pub all: bool,
    /// How often everything runs, 2 to 1000 [default: 6]
    #[arg(long, value_name = "N",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(2..=1000))]
    pub repeats: Option<usize>,
    /// How often what missed its goal runs again, four times as long, beside the three settings
    /// that were the best; it is judged by that alone. 2 to 1000, or 0 for never [default: 24]
    #[arg(long, value_name = "N", value_parser = again)]
    pub again: Option<usize>,
    /// How long each run is measured: 50ms, 1s [default: 50ms]
    #[arg(long, value_name = "TIME", value_parser = run_time)]
    pub time: Option<Duration>,
    /// Shuffles the order in which settings run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Less of everything that is not asked for
    #[arg(long)]
    pub quick: bool,
    /// Writes the JSON document to this file too
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Prints one JSON document instead of tables
    #[arg(long)]
    pub json: bool,
}

fn again(text: &str) -> Result<usize, String> {
    let takes = || "write 2 to 1000, or 0 for never".to_owned();
    let again: usize = text.parse().map_err(|_| takes())?;
    let is_valid = again == 0 || (2..=1000).contains(&again);
    is_valid.then_some(again).ok_or_else(takes)
}

fn run_time(text: &str) -> Result<Duration, String> {
    let time = time(text)?;
    if !(Duration::from_millis(1)..=Duration::from_secs(60)).contains(&time) {
        return Err("a run is measured for 1ms to 60s".to_owned());
    }
    Ok(time)
}

/// What was asked for, or what there is otherwise: each value once, in the order given.
fn chosen<T: Copy + PartialEq>(asked: &[T], otherwise: &[T]) -> Vec<T> {
    let from = if asked.is_empty() { otherwise } else { asked };
    let mut chosen = Vec::with_capacity(from.len());
    for value in from {
        if !chosen.contains(value) {
            chosen.push(*value);
        }
    }
    chosen
}

impl BenchDispatchArgs {
    /// In which situations.
    pub fn grid(&self) -> Grid {
        use Load::{Bulk, Percent, Saturation, Trickle};
        let quick = self.quick;
        let pick = |full: &'static [usize], less: &'static [usize]| if quick { less } else { full };
        let loads: &[Load] = match quick {
            false => &[
                Trickle,
                Percent(25),
                Percent(50),
                Percent(75),
                Saturation,
                Bulk,
            ],
            true => &[Percent(50), Saturation],
        };
        Grid {
            ports: chosen(&self.ports, &PortKind::ALL),
            producers: chosen(&self.producers, pick(&[1, 2, 4], &[1, 2])),
            frames: chosen(&self.frames, pick(&[64, 1514], &[64])),
            loads: chosen(&self.loads, loads),
            all: self.all,
            asked: Asked {
                producers: !self.producers.is_empty(),
                frames: !self.frames.is_empty(),
                loads: !self.loads.is_empty(),
            },
        }
    }

    /// The `n` of each `threshold(n)`.
    pub fn thresholds(&self) -> Vec<u32> {
        chosen(&self.thresholds, if self.quick { &[16] } else { &[8, 32] })
    }

    /// How often everything runs.
    pub fn repeats(&self) -> usize {
        self.repeats.unwrap_or(if self.quick { 2 } else { 6 })
    }

    /// How often what missed its goal is looked at again.
    pub fn again(&self) -> usize {
        self.again.unwrap_or(if self.quick { 0 } else { 24 })
    }

    /// How long each run is measured.
    pub fn time(&self) -> Duration {
        let default = if self.quick { 30 } else { 50 };
        self.time.unwrap_or(Duration::from_millis(default))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_comes_once_and_in_order() {
        assert_eq!(chosen(&[3, 1, 3, 2], &[9]), [3, 1, 2]);
        assert_eq!(chosen(&[], &[9, 8]), [9, 8]);
    }

    #[test]
    fn a_load_that_is_asked_for_is_measured_for_all_producers() {
        use clap::Parser;
        let line = "packtrain bench dispatch --producers 1,4 --loads bulk";
        let arguments = crate::Arguments::try_parse_from(line.split_whitespace());
        let crate::Command::Bench(bench) = arguments.expect("it is right").command else {
            panic!("a bench");
        };
        let crate::args::Bench::Dispatch(args) = bench.what else {
            panic!("of dispatch");
        };
        let cells = args.grid().cells(PortKind::Null);
        let measured = |producers| cells.iter().filter(|c| c.producers == producers).count();
        // One producer has the two usual sizes, the other ones the first of them.
        assert_eq!((measured(1), measured(4)), (2, 1));
        assert!(cells.iter().all(|cell| cell.load == Load::Bulk));
    }

    #[test]
    fn looks_again_are_none_or_enough_to_compare() {
        for (text, expected) in [("0", 0), ("2", 2), ("1000", 1000)] {
            assert_eq!(again(text), Ok(expected));
        }
        for text in ["1", "1001", "-1", "often"] {
            assert!(again(text).is_err(), "{text}");
        }
    }

    #[test]
    fn run_times_are_bounded() {
        assert_eq!(run_time("50ms"), Ok(Duration::from_millis(50)));
        for text in ["0", "999us", "61s", "x"] {
            assert!(run_time(text).is_err(), "{text}");
        }
    }
}
