//! Compares a bench with the same bench at another revision.
//!
//! Both are built by the same compiler, and run alternately, so that changes of the machine's speed
//! affect both. A ratio is taken within a round. Figures are read from the rows that a bench writes
//! with `--json FILE`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};
use indexmap::{IndexMap, IndexSet};
use packtrain_measure::statistics::median;
use serde_json::{Value, json};

use crate::command::{ensure, printed, program, read_json};
use crate::report::{aligned, ends, number, text_of};

/// This command owns everything below it.
const FOLDER: &str = "target/against";

/// The comparison.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[arg(value_name = "REV")]
    revision: String,
    bench: String,
    /// Rounds, each with a run of both
    #[arg(long, value_name = "N", default_value_t = 7)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Keep the worktree of the revision
    #[arg(long)]
    keep: bool,
    /// Arguments of the bench
    #[arg(last = true)]
    rest: Vec<String>,
}

/// Builds both, runs them, and prints the comparison.
pub fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    let commit = commit(root, &arguments.revision)?;
    let tree = root.join(FOLDER).join("tree");
    remove_worktree(root, &tree)?;
    let add = "git worktree add --quiet --detach";
    ensure(program(root, add).arg(&tree).arg(&commit))?;
    let result = compare(root, &tree, arguments);
    if arguments.keep {
        println!("kept: {}", tree.display());
    } else {
        remove_worktree(root, &tree)?;
    }
    result
}

fn compare(root: &Path, tree: &Path, arguments: &Arguments) -> Result<()> {
    let Arguments {
        revision,
        bench,
        rounds,
        ..
    } = arguments;
    let json = root.join(FOLDER).join("rows.json");
    let target = root.join(FOLDER).join("target");
    let sides = [
        Side::build(tree, bench, Some(&target)).with_context(|| format!("at {revision}"))?,
        Side::build(root, bench, None).context("here")?,
    ];
    let mut runs: [Vec<Rows>; 2] = Default::default();
    for round in 0..usize::from(*rounds) {
        println!("against: round {} of {rounds}", round + 1);
        // The side that begins alternates too.
        for side in [round % 2, 1 - round % 2] {
            runs[side].push(sides[side].rows(&arguments.rest, &json)?);
        }
    }
    println!(
        "\n{bench} at {revision} (old) and here (new): medians of {rounds} rounds; ratio is new to \
         old within a round"
    );
    print!("{}", table(&runs));
    Ok(())
}

/// A built bench.
struct Side {
    executable: PathBuf,
    /// The folder of its package, in which cargo runs benches.
    folder: PathBuf,
}

impl Side {
    fn build(tree: &Path, bench: &str, target: Option<&Path>) -> Result<Self> {
        println!("against: building {bench} in {}", tree.display());
        let line = "cargo metadata --no-deps --format-version 1";
        let metadata = printed(&mut program(tree, line))?;
        let metadata = serde_json::from_str(&metadata).context("cargo metadata")?;
        let package = package_of(&metadata, bench)?;
        let line = "cargo bench --no-run --message-format json-render-diagnostics";
        let mut command = program(tree, line);
        command.args(["--package", &package, "--bench", bench]);
        command.envs(target.map(|target| ("CARGO_TARGET_DIR", target)));
        let messages = printed(&mut command)?;
        let found = messages.lines().rev().find_map(|line| {
            let message: Value = serde_json::from_str(line).ok()?;
            let is_bench = message["target"]["name"] == bench;
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
    fn rows(&self, arguments: &[String], json: &Path) -> Result<Rows> {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.folder).args(arguments);
        printed(command.arg("--json").arg(json))?;
        let rows = figures(&read_json(json)?);
        if rows.is_empty() {
            bail!("{} wrote no figure", self.executable.display());
        }
        Ok(rows)
    }
}

/// The figures of one run in the order of its rows, by the words that identify the row and the name
/// of the figure.
type Rows = IndexMap<(Vec<String>, String), f64>;

/// All figures in nanoseconds. The words and whole numbers of a row identify it.
fn figures(document: &Value) -> Rows {
    let mut found = Rows::new();
    for row in document["rows"].as_array().into_iter().flatten() {
        let (mut words, mut figures) = (Vec::new(), Vec::new());
        let mut row: Vec<_> = row.as_object().into_iter().flatten().collect();
        // Revisions may write the same row in another order.
        row.sort_by_key(|(name, _)| *name);
        for (name, value) in row {
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
fn table(runs: &[Vec<Rows>; 2]) -> String {
    let rounds = || runs[0].iter().zip(&runs[1]);
    let names: IndexSet<_> = rounds()
        .flat_map(|(old, new)| old.keys().chain(new.keys()))
        .collect();
    // Words that all rows have identify no row.
    let is_own = |word: &&String| !names.iter().all(|(words, _)| words.contains(word));
    let line = |name: &&(Vec<String>, String)| {
        let row: Vec<_> = name.0.iter().filter(is_own).map(String::as_str).collect();
        let figure = |rows: &Rows| rows.get(*name).copied();
        let side = |side: usize| runs[side].iter().filter_map(figure).collect();
        let ratios = rounds().filter_map(|(old, new)| Some(figure(new)? / figure(old)?));
        let figures: [Vec<f64>; 3] = [side(0), side(1), ratios.collect()];
        let ends = ends(&figures[2]).map(|ends| ends.map(number).join(" .. "));
        let mut cells = vec![row.join(", "), name.1.clone()];
        cells.extend(figures.map(|figures| match &figures[..] {
            [] => "-".to_owned(),
            figures => number(median(figures)),
        }));
        cells.push(ends.unwrap_or_default());
        cells
    };
    let head = ["row", "figure", "old", "new", "ratio", "least .. most"];
    aligned(&head, names.iter().map(line), |column| column < 2)
}

fn commit(root: &Path, revision: &str) -> Result<String> {
    let verify = "git rev-parse --verify --quiet --end-of-options";
    let commit = printed(program(root, verify).arg(format!("{revision}^{{commit}}")));
    commit.map_err(|_| anyhow!("`{revision}` is no commit of this repository"))
}

/// The package that has a bench, by cargo's description of a tree.
fn package_of(metadata: &Value, bench: &str) -> Result<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut packages = IndexMap::new();
    for package in list(&metadata["packages"]) {
        let targets = list(&package["targets"]).into_iter();
        let benches = targets.filter(|target| target["kind"] == json!(["bench"]));
        packages.extend(benches.map(|bench| (text_of(&bench["name"]), text_of(&package["name"]))));
    }
    let package = packages.get(bench).cloned();
    let names: Vec<_> = packages.into_keys().collect();
    package.with_context(|| {
        format!(
            "there is no bench `{bench}`; there are: {}",
            names.join(", ")
        )
    })
}

/// Also that of an interrupted run.
fn remove_worktree(root: &Path, tree: &Path) -> Result<()> {
    if tree.exists() {
        ensure(program(root, "git worktree remove --force").arg(tree))?;
    }
    ensure(&mut program(root, "git worktree prune"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::words;

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
        assert_eq!(package_of(&metadata, "tax").unwrap(), "q");
        let error = package_of(&metadata, "x").unwrap_err().to_string();
        assert_eq!(error, "there is no bench `x`; there are: ring, tax");
    }

    #[test]
    fn a_row_is_the_same_in_any_order() {
        let rows = |row: Value| figures(&json!({"rows": [row]}));
        let one = rows(json!({"mode": "direct", "batch": 8, "a_ns": 1.5}));
        let other = rows(json!({"a_ns": 1.5, "batch": 8, "mode": "direct"}));
        assert_eq!((one.len(), one), (1, other));
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
        let old = vec![run(10.0, "old"), run(20.0, "old"), run(40.0, "old")];
        let new = vec![run(20.0, "new"), run(20.0, "new"), run(20.0, "new")];
        let lines = words(&table(&[old, new]));
        assert_eq!(
            lines,
            [
                "row figure old new ratio least .. most",
                "batch 8, direct a_ns 20.00 20.00 1.00 0.500 .. 2.00",
                "batch 32, old a_ns 1.50 - -",
                "batch 32, new a_ns - 1.50 -",
            ]
        );
    }
}
