//! Compares a bench with the same bench at another revision.
//!
//! Both are built by the same compiler, and run alternately, so that changes of the machine's speed
//! affect both. A ratio is taken within a round. Figures are read from the rows that a bench writes
//! with `--json FILE`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command::{ensure, printed};
use crate::figures::median;

pub const USAGE: &str =
    "cargo xtask against REV BENCH [--rounds N] [--keep] [-- ARGS OF THE BENCH]";

/// The default number of rounds.
const ROUNDS: usize = 7;

/// This command owns everything below it.
const FOLDER: &str = "target/against";

/// The comparison.
#[derive(Debug, PartialEq, Eq)]
pub struct Arguments<'a> {
    revision: &'a str,
    bench: &'a str,
    rounds: usize,
    /// Whether the worktree of the revision is kept.
    keep: bool,
    rest: &'a [&'a str],
}

impl<'a> Arguments<'a> {
    /// Reads the words after `against`.
    pub fn parse(words: &'a [&'a str]) -> Result<Self, String> {
        let end = words.iter().position(|word| *word == "--");
        let (own, rest) = words.split_at(end.unwrap_or(words.len()));
        let mut rounds = ROUNDS;
        let mut keep = false;
        let mut names = Vec::new();
        let mut own = own.iter();
        while let Some(&word) = own.next() {
            match word {
                "--keep" => keep = true,
                "--rounds" => {
                    let value = own.next().copied().unwrap_or_default();
                    let is_valid = |n: &usize| (1..=1000).contains(n);
                    rounds = value.parse().ok().filter(is_valid).ok_or(format!(
                        "--rounds takes a number from 1 to 1000, not `{value}`"
                    ))?;
                }
                _ if word.starts_with('-') => return Err(format!("unknown option {word}")),
                _ => names.push(word),
            }
        }
        let [revision, bench] = names[..] else {
            return Err(format!("usage: {USAGE}"));
        };
        Ok(Self {
            revision,
            bench,
            rounds,
            keep,
            rest: rest.get(1..).unwrap_or_default(),
        })
    }
}

/// Builds both, runs them, and prints the comparison.
pub fn run(root: &Path, arguments: &Arguments<'_>) -> Result<()> {
    let commit = commit(root, arguments.revision)?;
    let here = package(root, arguments.bench, "here")?;
    let tree = root.join(FOLDER).join("tree");
    remove_worktree(root, &tree)?;
    ensure(
        git(root)
            .args(["worktree", "add", "--quiet", "--detach"])
            .arg(&tree)
            .arg(&commit),
    )?;
    let result = compare(root, &tree, &here, arguments);
    if arguments.keep {
        println!("kept: {}", tree.display());
    } else {
        remove_worktree(root, &tree)?;
    }
    result
}

fn compare(root: &Path, tree: &Path, here: &str, arguments: &Arguments<'_>) -> Result<()> {
    let there = package(tree, arguments.bench, arguments.revision)?;
    let json = root.join(FOLDER).join("rows.json");
    let old = Side::build(
        tree,
        &there,
        arguments,
        Some(&root.join(FOLDER).join("target")),
    )?;
    let new = Side::build(root, here, arguments, None)?;
    let mut rounds = Vec::new();
    for round in 1..=arguments.rounds {
        println!("against: round {round} of {}", arguments.rounds);
        // The side that begins alternates too.
        rounds.push(if round % 2 == 1 {
            let old = old.rows(arguments.rest, &json)?;
            [old, new.rows(arguments.rest, &json)?]
        } else {
            let new = new.rows(arguments.rest, &json)?;
            [old.rows(arguments.rest, &json)?, new]
        });
    }
    println!(
        "\n{} at {} (old) and here (new): medians of {} rounds; ratio is new to old within a round",
        arguments.bench, arguments.revision, arguments.rounds
    );
    print!("{}", table(&rounds));
    Ok(())
}

/// A built bench.
struct Side {
    executable: PathBuf,
    /// The folder of its package, in which cargo runs benches.
    folder: PathBuf,
}

impl Side {
    fn build(
        tree: &Path,
        package: &str,
        arguments: &Arguments<'_>,
        target: Option<&Path>,
    ) -> Result<Self> {
        let mut command = Command::new("cargo");
        command
            .args(["bench", "--no-run", "--package", package])
            .args(["--bench", arguments.bench])
            .args(["--message-format", "json-render-diagnostics"])
            .current_dir(tree);
        if let Some(target) = target {
            command.env("CARGO_TARGET_DIR", target);
        }
        println!(
            "against: building {} in {}",
            arguments.bench,
            tree.display()
        );
        let messages = printed(&mut command)?;
        let found = messages.lines().rev().find_map(|line| {
            let message: Value = serde_json::from_str(line).ok()?;
            let is_bench = message["target"]["name"] == arguments.bench;
            let executable = message["executable"].as_str().filter(|_| is_bench)?;
            let manifest = Path::new(message["manifest_path"].as_str()?);
            Some(Self {
                executable: executable.into(),
                folder: manifest.parent()?.to_path_buf(),
            })
        });
        found.context("cargo named no executable of the bench")
    }

    /// Runs the bench once, and returns its figures.
    fn rows(&self, arguments: &[&str], json: &Path) -> Result<Rows> {
        let mut command = Command::new(&self.executable);
        command
            .args(arguments)
            .arg("--json")
            .arg(json)
            .current_dir(&self.folder);
        printed(&mut command)?;
        let text = fs::read_to_string(json).with_context(|| json.display().to_string())?;
        let document: Value = serde_json::from_str(&text).context("the rows of the bench")?;
        let rows = figures(&document);
        if rows.is_empty() {
            bail!("{} wrote no figure", self.executable.display());
        }
        Ok(rows)
    }
}

/// A figure of a row: the words that identify the row, and the name of the figure.
type Name = (Vec<String>, String);

/// The figures of one run, in the order of its rows.
type Rows = Vec<(Name, f64)>;

/// All figures in nanoseconds. The words and whole numbers of a row identify it.
fn figures(document: &Value) -> Rows {
    let mut found = Rows::new();
    for row in document["rows"].as_array().into_iter().flatten() {
        let mut words = Vec::new();
        let mut figures = Vec::new();
        for (name, value) in row.as_object().into_iter().flatten() {
            match value {
                Value::String(text) if !["missing", "verdict"].contains(&name.as_str()) => {
                    words.push(text.clone());
                }
                Value::Number(number) if number.is_u64() => words.push(format!("{name} {number}")),
                Value::Number(number) if name.ends_with("_ns") && !name.starts_with("goal") => {
                    figures.extend(number.as_f64().map(|figure| (name.clone(), figure)));
                }
                _ => {}
            }
        }
        let named = |(name, figure)| ((words.clone(), name), figure);
        found.extend(figures.into_iter().map(named));
    }
    found
}

/// A line for each figure of the old or the new side.
fn table(rounds: &[[Rows; 2]]) -> String {
    let mut names: Vec<&Name> = Vec::new();
    for (name, _) in rounds.iter().flatten().flatten() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    // Words that all rows have identify no row.
    let is_common = |word: &String| names.iter().all(|(words, _)| words.contains(word));
    let row = |words: &[String]| {
        let own: Vec<_> = words.iter().filter(|word| !is_common(word)).collect();
        own.iter()
            .map(|word| word.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let width = names.iter().map(|(words, _)| row(words).len()).max();
    let width = width.unwrap_or(0).max("row".len());
    let mut text = format!(
        "{:<width$} {:<14} {:>10} {:>10} {:>6}  least .. most\n",
        "row", "figure", "old", "new", "ratio"
    );
    for &name in &names {
        let figure = |rows: &Rows| rows.iter().find(|row| row.0 == *name).map(|row| row.1);
        let side = |side: usize| -> Vec<f64> {
            rounds
                .iter()
                .filter_map(|round| figure(&round[side]))
                .collect()
        };
        let mut ratios: Vec<f64> = rounds
            .iter()
            .filter_map(|[old, new]| Some(figure(new)? / figure(old)?))
            .collect();
        ratios.sort_by(f64::total_cmp);
        let of = |figures: &[f64]| median(figures).map_or("-".to_owned(), |n| format!("{n:.2}"));
        let spread = match ratios[..] {
            [] => String::new(),
            [least, ..] => format!("{least:.2} .. {:.2}", ratios[ratios.len() - 1]),
        };
        let line = format!(
            "{:<width$} {:<14} {:>10} {:>10} {:>6}  {spread}",
            row(&name.0),
            name.1,
            of(&side(0)),
            of(&side(1)),
            of(&ratios),
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn git(root: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(root);
    command
}

fn commit(root: &Path, revision: &str) -> Result<String> {
    printed(
        git(root)
            .args(["rev-parse", "--verify", "--quiet", "--end-of-options"])
            .arg(format!("{revision}^{{commit}}")),
    )
    .map_err(|_| anyhow::anyhow!("`{revision}` is no commit of this repository"))
}

/// The package in `tree` that has a bench.
fn package(tree: &Path, bench: &str, place: &str) -> Result<String> {
    let metadata = printed(
        Command::new("cargo")
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .current_dir(tree),
    )?;
    let metadata: Value = serde_json::from_str(&metadata).context("what cargo metadata prints")?;
    package_of(&metadata, bench, place)
}

fn package_of(metadata: &Value, bench: &str, place: &str) -> Result<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut benches = Vec::new();
    for package in list(&metadata["packages"]) {
        for target in list(&package["targets"]) {
            if list(&target["kind"]).iter().any(|kind| kind == "bench") {
                let name = target["name"].as_str().unwrap_or_default().to_owned();
                if name == bench {
                    return Ok(package["name"].as_str().unwrap_or_default().to_owned());
                }
                benches.push(name);
            }
        }
    }
    let benches = benches.join(", ");
    bail!("there is no bench `{bench}` {place}; there are: {benches}")
}

/// Also that of an interrupted run.
fn remove_worktree(root: &Path, tree: &Path) -> Result<()> {
    if tree.exists() {
        ensure(git(root).args(["worktree", "remove", "--force"]).arg(tree))?;
    }
    ensure(git(root).args(["worktree", "prune"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_are_a_revision_a_bench_and_what_the_bench_takes() {
        let words = ["HEAD~1", "--rounds", "3", "tax", "--keep", "--", "--quick"];
        let arguments = Arguments::parse(&words).unwrap();
        assert_eq!(
            arguments,
            Arguments {
                revision: "HEAD~1",
                bench: "tax",
                rounds: 3,
                keep: true,
                rest: &["--quick"],
            }
        );
        assert_eq!(Arguments::parse(&["a", "b"]).unwrap().rounds, ROUNDS);
        for (words, why) in [
            (&["a"][..], "usage: "),
            (&["a", "b", "c"], "usage: "),
            (&["a", "b", "--rounds", "0"], "not `0`"),
            (&["a", "b", "--rounds"], "not ``"),
            (&["a", "b", "--quick"], "unknown option --quick"),
        ] {
            assert!(Arguments::parse(words).unwrap_err().contains(why), "{why}");
        }
    }

    #[test]
    fn what_does_not_exist_is_named_with_what_does() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let error = commit(&root, "no-such").unwrap_err().to_string();
        assert_eq!(error, "`no-such` is no commit of this repository");
        let metadata = json!({"packages": [
            {"name": "p", "targets": [{"kind": ["lib"], "name": "x"}]},
            {"name": "q", "targets": [
                {"kind": ["bench"], "name": "ring"},
                {"kind": ["bench"], "name": "tax"},
            ]},
        ]});
        assert_eq!(package_of(&metadata, "tax", "here").unwrap(), "q");
        assert_eq!(
            package_of(&metadata, "x", "at HEAD")
                .unwrap_err()
                .to_string(),
            "there is no bench `x` at HEAD; there are: ring, tax"
        );
    }

    #[test]
    fn figures_are_compared_within_rounds() {
        let run = |ns: f64, more: &str| {
            figures(&json!({"rows": [
                {"all": 1, "batch": 8, "mode": "direct", "a_ns": ns, "goal_ns": 1.5,
                 "a_ns_low": 0.5, "verdict": more, "missing": "x"},
                {"all": 1, "batch": 32, "mode": more, "a_ns": 1.5},
            ]}))
        };
        let rounds = [
            [run(10.0, "old"), run(20.0, "new")],
            [run(20.0, "old"), run(20.0, "new")],
            [run(40.0, "old"), run(20.0, "new")],
        ];
        let lines: Vec<String> = table(&rounds)
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            lines,
            [
                "row figure old new ratio least .. most",
                "batch 8, direct a_ns 20.00 20.00 1.00 0.50 .. 2.00",
                "batch 32, old a_ns 1.50 - -",
                "batch 32, new a_ns - 1.50 -",
            ]
        );
    }
}
