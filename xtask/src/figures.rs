//! Runs the benches whole, several times, and publishes the medians of the runs in
//! `docs/performance/`.

pub(crate) mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::command::{ensure, printed};
use table::List;
pub use table::{median, number};

pub const USAGE: &str = "cargo xtask figures [--quick] [--runs N] [NAME..]";

/// Whole runs of each bench if none are asked for, and the fewest that are published.
const RUNS: usize = 3;

/// Where tables and charts go, below the root.
const FOLDER: &str = "docs/performance";

/// Where the JSON documents of the runs go, and the tables of a quick run.
const SCRATCH: &str = "target/figures";

/// A bench whose figures are published.
struct Bench {
    /// The file without `.txt`.
    name: &'static str,
    /// What cargo is given.
    cargo: &'static [&'static str],
    /// What is published of its JSON document.
    lists: &'static [List],
    /// Whether it draws charts from rows.
    draws: bool,
}

const ALL: &[Bench] = &[
    Bench {
        name: "table",
        cargo: &[
            "-p",
            "packtrain-offload",
            "--features",
            "peers",
            "--bench",
            "offload",
        ],
        lists: &[List {
            key: "rows",
            names: &["row", "flows", "peer"],
            figures: &[
                ("ours ns", "/ours_ns"),
                ("peer ns", "/peer_ns"),
                ("merge", "/ours_merge"),
                ("theirs", "/peer_merge"),
                ("ratio", "/ratio"),
            ],
            spread: "/ratio",
            goal: "goal",
        }],
        draws: true,
    },
    Bench {
        name: "ring",
        cargo: &["-p", "packtrain", "--features", "peers", "--bench", "ring"],
        lists: &[List {
            key: "rows",
            names: &["row", "burst", "producers", "peer"],
            figures: &[
                ("ours ns", "/ours_ns"),
                ("peer ns", "/peer_ns"),
                ("ratio", "/ratio"),
            ],
            spread: "/ratio",
            goal: "goal",
        }],
        draws: false,
    },
    Bench {
        name: "tax",
        cargo: &["-p", "packtrain", "--features", "peers", "--bench", "tax"],
        lists: &[List {
            key: "rows",
            names: &["batch", "path"],
            figures: &[
                ("ns", "/framework_ns"),
                ("by hand", "/hand_ns"),
                ("%", "/percent"),
                ("TX ns", "/tx_ns"),
                ("of handle", "/by_shared_handle"),
                ("of lane", "/by_shared_lane"),
                ("tax ns", "/tax_ns"),
            ],
            spread: "/tax_ns",
            goal: "goal",
        }],
        draws: false,
    },
    Bench {
        name: "tap",
        cargo: &["-p", "packtrain-cli", "--bench", "tap_forward"],
        lists: &[
            List {
                key: "medians",
                names: &["comparison", "forwarder"],
                figures: &[("CPU s/GB", "/cpu_s_per_gb"), ("Gbit/s", "/gbps")],
                spread: "/gbps",
                goal: "goal",
            },
            List {
                key: "claims",
                names: &["experiment", "claim"],
                figures: &[
                    ("ours", "/measured/packtrain"),
                    ("theirs", "/measured/other"),
                    ("ratio", "/measured/median"),
                ],
                spread: "/measured/median",
                goal: "expected",
            },
        ],
        draws: false,
    },
    Bench {
        name: "vpn",
        cargo: &["-p", "packtrain-lab", "--bench", "vpn"],
        lists: &[
            List {
                key: "medians",
                names: &["offloads"],
                figures: &[("CPU s/GB", "/cpu_s_per_gb"), ("Gbit/s", "/gbps")],
                spread: "/gbps",
                goal: "goal",
            },
            List {
                key: "claims",
                names: &["experiment", "claim"],
                figures: &[("ratio", "/measured/median")],
                spread: "/measured/median",
                goal: "expected",
            },
        ],
        draws: false,
    },
];

/// What to run.
#[derive(Debug, PartialEq, Eq)]
pub struct Arguments<'a> {
    /// A quick run goes to `target/figures`, from a tree with or without changes.
    quick: bool,
    runs: usize,
    /// Of benches; all if there is none.
    names: Vec<&'a str>,
}

impl<'a> Arguments<'a> {
    /// Reads the words after `figures`.
    pub fn parse(words: &[&'a str]) -> Result<Self, String> {
        let mut arguments = Self {
            quick: false,
            runs: RUNS,
            names: Vec::new(),
        };
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            match word {
                "--quick" => arguments.quick = true,
                "--runs" => {
                    arguments.runs = count_of_runs(words.next().copied())?;
                }
                _ if word.starts_with('-') => return Err(format!("unknown option {word}")),
                _ if ALL.iter().any(|bench| bench.name == word) => arguments.names.push(word),
                _ => {
                    let all: Vec<_> = ALL.iter().map(|bench| bench.name).collect();
                    return Err(format!(
                        "there are no figures {word}; there are: {}",
                        all.join(", ")
                    ));
                }
            }
        }
        if arguments.runs < RUNS && !arguments.quick {
            return Err(format!(
                "a published table takes at least {RUNS} runs; --quick writes to {SCRATCH}"
            ));
        }
        Ok(arguments)
    }

    fn benches(&self) -> impl Iterator<Item = &'static Bench> {
        ALL.iter()
            .filter(|bench| self.names.is_empty() || self.names.contains(&bench.name))
    }
}

/// Runs the benches alternately, each as often as asked for, and writes their tables.
pub fn run(root: &Path, arguments: &Arguments<'_>) -> Result<()> {
    let commit = commit(root, arguments.quick)?;
    let scratch = root.join(SCRATCH);
    let folder = root.join(if arguments.quick { SCRATCH } else { FOLDER });
    for folder in [&scratch, &folder] {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let began = date()?;
    let file = |bench: &Bench, run| scratch.join(format!("{}-{run}.json", bench.name));
    for run in 1..=arguments.runs {
        for bench in arguments.benches() {
            println!("figures: {}, run {run} of {}", bench.name, arguments.runs);
            bench.run(root, arguments.quick, &file(bench, run))?;
        }
    }
    if commit != self::commit(root, arguments.quick)? {
        bail!("the tree changed meanwhile: the runs are not of one commit");
    }
    let ended = date()?;
    for bench in arguments.benches() {
        let runs = (1..=arguments.runs).map(|run| read(&file(bench, run)));
        let runs: Vec<Value> = runs.collect::<Result<_>>()?;
        let of = Origin {
            date: format!("{began} to {ended}"),
            commit: commit.clone(),
            command: bench.words(arguments.quick).join(" "),
        };
        let text = bench.table(&of, &runs)?;
        let table = folder.join(format!("{}.txt", bench.name));
        fs::write(&table, text).with_context(|| table.display().to_string())?;
        println!("figures: {}", table.display());
        if bench.draws {
            bench.draw(root, &runs, &folder)?;
        }
    }
    Ok(())
}

/// What the figures are of, besides what a bench says.
struct Origin {
    date: String,
    commit: String,
    command: String,
}

impl Bench {
    fn words(&self, quick: bool) -> Vec<&'static str> {
        let mut words = vec!["bench"];
        words.extend(self.cargo);
        words.push("--");
        words.extend(quick.then_some("--quick"));
        words
    }

    /// Runs it once; its JSON document goes to `json`.
    fn run(&self, root: &Path, quick: bool, json: &Path) -> Result<()> {
        let mut command = Command::new("cargo");
        command.args(self.words(quick)).arg("--json").arg(json);
        ensure(command.current_dir(root))
    }

    /// The table of these runs.
    fn table(&self, of: &Origin, runs: &[Value]) -> Result<String> {
        let mut text = head(of, runs)?;
        let mut all = Vec::new();
        for list in self.lists {
            let rows = list.rows(runs).with_context(|| self.name)?;
            text.push('\n');
            text.push_str(&list.print(&rows));
            all.extend(rows);
        }
        text.push_str(&table::summary(all.iter()));
        Ok(text)
    }

    /// Charts of the medians of these runs.
    fn draw(&self, root: &Path, runs: &[Value], folder: &Path) -> Result<()> {
        let rows: PathBuf = root.join(SCRATCH).join(format!("{}.json", self.name));
        let list = self.lists[0];
        let document = json!({"rows": list.document(&list.rows(runs)?)});
        fs::write(&rows, document.to_string()).with_context(|| rows.display().to_string())?;
        let mut command = Command::new("cargo");
        command.args(self.words(false)).arg("--as-built");
        command.arg("--rows").arg(&rows).arg("--plots").arg(folder);
        ensure(command.current_dir(root))
    }
}

/// What is above a table: when, where and of what the figures are.
fn head(of: &Origin, runs: &[Value]) -> Result<String> {
    let first = runs.first().context("no run")?;
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for key in ["machine", "kernel", "cpus"] {
        if let Some(other) = runs
            .iter()
            .find(|run| run["host"][key] != first["host"][key])
        {
            let (one, other) = (&first["host"][key], &other["host"][key]);
            bail!("the runs are not of one machine: {key} is {one} and {other}");
        }
    }
    let host = &first["host"];
    let loads: Vec<String> = runs
        .iter()
        .map(|run| word(&run["conditions"]["load"]))
        .collect();
    let mut lines = vec![
        ("date", of.date.clone()),
        (
            "machine",
            format!(
                "{}, {} CPUs, Linux {}",
                word(&host["machine"]),
                host["cpus"],
                word(&host["kernel"])
            ),
        ),
        ("commit", of.commit.clone()),
        (
            "runs",
            format!("{}, whole; each figure is their median", runs.len()),
        ),
        ("command", format!("cargo {}", of.command)),
        ("load", loads.join("; ")),
    ];
    let conditions = first["conditions"].as_object().into_iter().flatten();
    for (name, value) in conditions {
        if !["machine", "kernel", "load"].contains(&name.as_str()) {
            lines.push((name, word(value)));
        }
    }
    let lines = lines.iter();
    Ok(lines
        .map(|(name, text)| format!("{name:<8} {text}\n"))
        .collect())
}

/// The commit of the tree. One with changes is refused, unless it is `quick`.
fn commit(root: &Path, quick: bool) -> Result<String> {
    let git = |words: &[&str]| printed(Command::new("git").args(words).current_dir(root));
    let changed = git(&["status", "--porcelain", "--", ".", ":!docs"])?;
    if !quick && !changed.is_empty() {
        bail!("figures are of a commit, and this tree has changes:\n{changed}");
    }
    let mut commit = git(&["rev-parse", "HEAD"])?;
    if !changed.is_empty() {
        commit.push_str(", changed since");
    }
    Ok(commit)
}

fn date() -> Result<String> {
    printed(Command::new("date").args(["--utc", "+%Y-%m-%d %H:%M UTC"]))
}

fn read(file: &Path) -> Result<Value> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    serde_json::from_str(&text).with_context(|| file.display().to_string())
}

/// Reads the value of `--runs`.
pub(crate) fn count_of_runs(value: Option<&str>) -> Result<usize, String> {
    let value = value.unwrap_or_default();
    let runs = value.parse().ok().filter(|runs| (1..=99).contains(runs));
    runs.ok_or(format!("--runs takes a number from 1 to 99, not `{value}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_runs_of_all_benches_are_published() {
        let all = Arguments::parse(&[]).unwrap();
        assert_eq!((all.runs, all.quick), (3, false));
        assert_eq!(all.benches().count(), ALL.len());
        let words = ["--quick", "--runs", "2", "ring"];
        let some = Arguments::parse(&words).unwrap();
        assert_eq!(
            some,
            Arguments {
                quick: true,
                runs: 2,
                names: vec!["ring"],
            }
        );
        assert_eq!(some.benches().count(), 1);
    }

    #[test]
    fn what_is_not_understood_is_said_before_anything_runs() {
        for (words, why) in [
            (&["tabel"][..], "no figures tabel; there are: table, ring"),
            (&["--runs"], "not ``"),
            (&["--runs", "0"], "not `0`"),
            (&["--runs", "2"], "at least 3 runs"),
            (&["--fast"], "unknown option --fast"),
        ] {
            let error = Arguments::parse(words).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    fn run_on(machine: &str, load: &str) -> Value {
        json!({
            "host": {"machine": machine, "kernel": "6.18", "cpus": 2},
            "conditions": {"machine": machine, "kernel": "6.18", "load": load, "cpus": "[0, 1]"},
            "rows": [{"row": "direct", "burst": 8, "producers": 1, "peer": "rte_ring",
                      "ours_ns": 2.0, "peer_ns": 1.0, "ratio": 0.5, "goal": 1.0,
                      "verdict": "not reproduced"}],
        })
    }

    #[test]
    fn a_table_says_what_it_is_of_and_what_is_missed() {
        let of = Origin {
            date: "2026-11-26 01:00 UTC to 2026-11-26 02:00 UTC".to_owned(),
            commit: "abc".to_owned(),
            command: "bench x".to_owned(),
        };
        let ring = ALL.iter().find(|bench| bench.name == "ring").unwrap();
        let runs = [run_on("EPYC", "0.1"), run_on("EPYC", "0.2")];
        let table = ring.table(&of, &runs).unwrap();
        for line in [
            "date     2026-11-26 01:00 UTC to 2026-11-26 02:00 UTC\n",
            "machine  EPYC, 2 CPUs, Linux 6.18\n",
            "commit   abc\n",
            "runs     2, whole; each figure is their median\n",
            "command  cargo bench x\n",
            "load     0.1; 0.2\n",
            "cpus     [0, 1]\n",
            "0 of 2\n",
            "1 goals: 0 met in every run, 0 in some, 1 in none.",
        ] {
            assert!(table.contains(line), "{line}\n{table}");
        }
        let runs = [run_on("EPYC", "0.1"), run_on("Xeon", "0.2")];
        let error = ring.table(&of, &runs).unwrap_err().to_string();
        assert_eq!(
            error,
            "the runs are not of one machine: machine is \"EPYC\" and \"Xeon\""
        );
    }

    #[test]
    fn two_taps_have_medians_and_claims() {
        let of = Origin {
            date: String::new(),
            commit: String::new(),
            command: String::new(),
        };
        let run = |gbps: f64, resent: u64, verdict: &str| {
            let claim = |claim: &str, expected: String, measured: Value| {
                json!({"experiment": "offloaded", "claim": claim, "expected": expected,
                       "measured": measured, "verdict": verdict})
            };
            let totals = json!({"packtrain": resent, "other": 2});
            json!({
                "host": {"machine": "EPYC", "kernel": "6.18", "cpus": 2},
                "medians": [{"comparison": "offloaded", "forwarder": "packtrain",
                             "gbps": gbps, "cpu_s_per_gb": 0.25}],
                "claims": [
                    claim("goodput", ">= 0.95".to_owned(), json!({"median": gbps / 10.0})),
                    claim("sent again", format!("<= {resent}"), totals),
                ],
            })
        };
        let runs = [
            run(10.0, 3, "reproduced"),
            run(12.0, 1, "direction"),
            run(8.0, 9, "not reproduced"),
        ];
        let tap = ALL.iter().find(|bench| bench.name == "tap").unwrap();
        let table = tap.table(&of, &runs).unwrap();
        let lines: Vec<String> = table
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        for line in [
            "offloaded packtrain 0.250 10.00 8.00 .. 12.00",
            "offloaded goodput - - 1.00 0.800 .. 1.20 >= 0.95 1 of 3, 1 direction",
            "offloaded sent again 3.00 2.00 - one for each run 1 of 3, 1 direction",
            "2 goals: 0 met in every run, 2 in some, 0 in none.",
        ] {
            assert!(lines.iter().any(|other| other == line), "{line}\n{table}");
        }
    }
}
