//! Runs the benches whole, several times, and publishes the medians of the runs in
//! `docs/performance/`.

mod table;

use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::builder::PossibleValuesParser;
use packtrain_measure::host::Head;
use serde_json::{Value, json};

use crate::command::{self, printed, program, read_json};
use crate::report::{common_head, text_of};
use table::List;

/// Whole runs of each bench if none are asked for, and the fewest that are published.
const RUNS: u16 = 3;

/// Where tables and charts go, below the root.
const FOLDER: &str = "docs/performance";

/// Where the JSON documents of the runs go, and the tables of a quick run.
const SCRATCH: &str = "target/figures";

/// A bench whose figures are published.
struct Bench {
    /// The file without `.txt`.
    name: &'static str,
    /// What cargo is given.
    cargo: &'static str,
    /// What is published of its JSON document.
    lists: &'static [List],
    /// Whether it draws charts from rows.
    draws: bool,
}

const ALL: &[Bench] = &[
    Bench {
        name: "table",
        cargo: "-p packtrain-offload --features peers --bench offload",
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
        cargo: "-p packtrain --features peers --bench ring",
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
        cargo: "-p packtrain --features peers --bench tax",
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
        cargo: "-p packtrain-cli --bench tap_forward",
        lists: &[medians(&["comparison", "forwarder"]), CLAIMS],
        draws: false,
    },
    Bench {
        name: "vpn",
        cargo: "-p packtrain-lab --bench vpn",
        lists: &[medians(&["offloads"]), CLAIMS],
        draws: false,
    },
    Bench {
        name: "smoltcp",
        cargo: "-p packtrain-lab --bench smoltcp",
        lists: &[medians(&["direction", "device"]), CLAIMS],
        draws: false,
    },
    Bench {
        name: "replay",
        cargo: "-p packtrain-cli --bench replay",
        lists: &[
            List {
                key: "medians",
                names: &["capture"],
                figures: &[
                    ("CPU s", "/packtrain_cpu_s"),
                    ("tcpdump s", "/tcpdump_cpu_s"),
                ],
                spread: "/packtrain_cpu_s",
                goal: "goal",
            },
            CLAIMS,
        ],
        draws: false,
    },
    Bench {
        name: "ports",
        cargo: "-p packtrain-cli --bench ports",
        lists: &[
            List {
                key: "medians",
                names: &["path", "forwarder", "far_offloads"],
                figures: &[
                    ("8 TCP Gbit/s", "/tcp8_gbps"),
                    ("CPU s/GB", "/tcp8_cpu_s_per_gb"),
                    ("all s/GB", "/tcp8_machine_s_per_gb"),
                    ("kpps", "/kpps"),
                    ("CPU s/Mp", "/cpu_s_per_mpps"),
                    ("all s/Mp", "/machine_s_per_mpps"),
                    ("RTT us", "/round_trip_us"),
                    ("CPU s/GB", "/tcp1_cpu_s_per_gb"),
                    ("all s/GB", "/tcp1_machine_s_per_gb"),
                    ("1 TCP Gbit/s", "/tcp1_gbps"),
                ],
                spread: "/tcp1_gbps",
                goal: "goal",
            },
            CLAIMS,
        ],
        draws: false,
    },
];

/// The medians of a bench that compares whole programs.
const fn medians(names: &'static [&'static str]) -> List {
    List {
        key: "medians",
        names,
        figures: &[("CPU s/GB", "/cpu_s_per_gb"), ("Gbit/s", "/gbps")],
        spread: "/gbps",
        goal: "goal",
    }
}

/// The goals of such a bench.
const CLAIMS: List = List {
    key: "claims",
    names: &["experiment", "claim"],
    figures: &[
        ("ours", "/measured/packtrain"),
        ("theirs", "/measured/other"),
        ("ratio", "/measured/median"),
    ],
    spread: "/measured/median",
    goal: "expected",
};

/// What to run.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A quick run goes to target/figures, from a tree with or without changes
    #[arg(long)]
    quick: bool,
    /// Whole runs of each bench
    #[arg(long, value_name = "N", default_value_t = RUNS)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=99))]
    runs: u16,
    /// Benches; all if there is none
    #[arg(value_parser = PossibleValuesParser::new(ALL.iter().map(|bench| bench.name)))]
    names: Vec<String>,
}

/// Runs the benches alternately, each as often as asked for, and writes their tables.
pub fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    let Arguments {
        quick,
        runs,
        ref names,
    } = *arguments;
    ensure!(
        quick || runs >= RUNS,
        "a published table takes at least {RUNS} runs; --quick writes to {SCRATCH}"
    );
    let benches = ALL
        .iter()
        .filter(|bench| names.is_empty() || names.iter().any(|name| name == bench.name));
    let commit = commit(root, quick)?;
    let scratch = command::folder(root, SCRATCH)?;
    let folder = command::folder(root, if quick { SCRATCH } else { FOLDER })?;
    let began = date(root)?;
    let file = |bench: &Bench, run| scratch.join(format!("{}-{run}.json", bench.name));
    for run in 1..=runs {
        for bench in benches.clone() {
            println!("figures: {}, run {run} of {runs}", bench.name);
            let mut command = program(root, &bench.command(quick));
            command::ensure(command.arg("--json").arg(file(bench, run)))?;
        }
    }
    ensure!(
        commit == self::commit(root, quick)?,
        "the tree changed meanwhile: the runs are not of one commit"
    );
    let ended = date(root)?;
    for bench in benches {
        let runs = (1..=runs).map(|run| read_json(&file(bench, run)));
        let runs: Vec<Value> = runs.collect::<Result<_>>()?;
        let date = format!("{began} to {ended}");
        let text = bench.table([&date, &commit, &bench.command(quick)], &runs)?;
        command::write(&folder.join(format!("{}.txt", bench.name)), &text)?;
        if bench.draws {
            bench.draw(root, &runs, &folder)?;
        }
    }
    Ok(())
}

impl Bench {
    fn command(&self, quick: bool) -> String {
        let quick = if quick { " --quick" } else { "" };
        format!("cargo bench {} --{quick}", self.cargo)
    }

    /// The table of these runs, below their date, commit and command.
    fn table(&self, origin: [&str; 3], runs: &[Value]) -> Result<String> {
        let mut text = head(origin, runs)?;
        let mut all = Vec::new();
        for list in self.lists {
            let rows = list.rows(runs).context(self.name)?;
            text.push('\n');
            text.push_str(&list.print(&rows));
            all.extend(rows);
        }
        text.push_str(&table::summary(&all));
        Ok(text)
    }

    /// Charts of the medians of these runs.
    fn draw(&self, root: &Path, runs: &[Value], folder: &Path) -> Result<()> {
        let rows = self.lists[0].rows(runs)?.into_iter();
        let document = json!({"rows": rows.map(|row| row.document).collect::<Vec<_>>()});
        let rows = root.join(SCRATCH).join(format!("{}.json", self.name));
        command::write(&rows, &document.to_string())?;
        let mut command = program(root, &self.command(false));
        command
            .args(["--as-built", "--rows"])
            .arg(&rows)
            .arg("--plots")
            .arg(folder);
        command::ensure(&mut command)
    }
}

/// What is above a table: when, where and of what the figures are.
fn head([date, commit, command]: [&str; 3], runs: &[Value]) -> Result<String> {
    let heads = runs.iter().map(|run| serde_json::from_value(run.clone()));
    let heads: Vec<Head> = heads.collect::<Result<_, _>>()?;
    let host = &common_head(&heads)?.host;
    let machine = format!(
        "{}, {} CPUs, Linux {}",
        host.machine, host.cpus, host.kernel
    );
    let count = format!("{}, whole; each figure is their median", runs.len());
    let loads = runs.iter().map(|run| text_of(&run["conditions"]["load"]));
    let loads = loads.collect::<Vec<_>>().join("; ");
    let mut lines = vec![
        ("date", date.to_owned()),
        ("machine", machine),
        ("commit", commit.to_owned()),
        ("runs", count),
        ("command", command.to_owned()),
        ("load", loads),
    ];
    let conditions = runs[0]["conditions"].as_object().into_iter().flatten();
    let conditions =
        conditions.filter(|(name, _)| !["machine", "kernel", "load"].contains(&&***name));
    lines.extend(conditions.map(|(name, value)| (name.as_str(), text_of(value))));
    let lines = lines
        .iter()
        .map(|(name, text)| format!("{name:<8} {text}\n"));
    Ok(lines.collect())
}

/// The commit of the tree. One with changes is refused, unless it is `quick`.
fn commit(root: &Path, quick: bool) -> Result<String> {
    let changed = printed(&mut program(root, "git status --porcelain -- . :!docs"))?;
    ensure!(
        quick || changed.is_empty(),
        "figures are of a commit, and this tree has changes:\n{changed}"
    );
    let commit = printed(&mut program(root, "git rev-parse HEAD"))?;
    let suffix = if changed.is_empty() {
        ""
    } else {
        ", changed since"
    };
    Ok(commit + suffix)
}

fn date(root: &Path) -> Result<String> {
    printed(program(root, "date --utc").arg("+%Y-%m-%d %H:%M UTC"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::words;

    fn bench(name: &str) -> &'static Bench {
        ALL.iter().find(|bench| bench.name == name).unwrap()
    }

    const ORIGIN: [&str; 3] = ["2026-11-26", "abc", "cargo bench x"];

    #[test]
    fn too_few_runs_are_not_published() {
        let arguments = |quick| Arguments {
            quick,
            runs: 2,
            names: Vec::new(),
        };
        let nowhere = Path::new("/dev/null");
        let error = run(nowhere, &arguments(false)).unwrap_err().to_string();
        assert!(error.contains("at least 3 runs"), "{error}");
        let error = run(nowhere, &arguments(true)).unwrap_err().to_string();
        assert!(error.contains("git"), "{error}");
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
        let runs = [run_on("EPYC", "0.1"), run_on("EPYC", "0.2")];
        let table = bench("ring").table(ORIGIN, &runs).unwrap();
        for line in [
            "date     2026-11-26\n",
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
        let error = bench("ring").table(ORIGIN, &runs).unwrap_err();
        let told = "the runs do not belong together: machine is EPYC and Xeon";
        assert_eq!(error.to_string(), told);
    }

    #[test]
    fn two_taps_have_medians_and_claims() {
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
        let lines = words(&bench("tap").table(ORIGIN, &runs).unwrap());
        for line in [
            "offloaded packtrain 0.250 10.00 8.00 .. 12.00",
            "offloaded goodput - - 1.00 0.800 .. 1.20 >= 0.95 1 of 3, 1 direction",
            "offloaded sent again 3.00 2.00 - one for each run 1 of 3, 1 direction",
            "2 goals: 0 met in every run, 2 in some, 0 in none.",
        ] {
            assert!(
                lines.iter().any(|other| other == line),
                "{line}\n{lines:#?}"
            );
        }
    }
}
