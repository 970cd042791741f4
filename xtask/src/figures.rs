//! Runs the benches whose output is in `docs/performance/`, and writes it there with what it is of.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::command;

/// A file without `.txt`, what cargo is given, and what the bench is given besides.
type Figures = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

const ALL: &[Figures] = &[
    (
        "table",
        &[
            "-p",
            "packtrain-offload",
            "--features",
            "peers",
            "--bench",
            "offload",
        ],
        &["--plots", FOLDER],
    ),
    (
        "ring",
        &["-p", "packtrain", "--features", "peers", "--bench", "ring"],
        &[],
    ),
    (
        "tax",
        &["-p", "packtrain", "--features", "peers", "--bench", "tax"],
        &[],
    ),
    (
        "tap",
        &["-p", "packtrain-cli", "--bench", "tap_forward"],
        &[],
    ),
];

/// Where they are kept; below the root, and in the arguments of a bench the folder to write to.
const FOLDER: &str = "docs/performance";

/// Runs those of these names, or all. A quick run is a look: it goes to `target/figures`, from
/// whatever is in the tree.
pub fn run(root: &Path, quick: bool, names: &[&str]) -> Result<()> {
    if let Some(name) = names
        .iter()
        .find(|name| ALL.iter().all(|all| all.0 != **name))
    {
        let all: Vec<_> = ALL.iter().map(|figures| figures.0).collect();
        bail!("there are no figures {name}; there are: {}", all.join(", "));
    }
    let changed = command::printed(
        Command::new("git")
            .args(["status", "--porcelain", "--", ".", ":!docs"])
            .current_dir(root),
    )?;
    if !quick && !changed.is_empty() {
        bail!("figures are of a commit, and this is none yet:\n{changed}");
    }
    let mut commit = command::printed(
        Command::new("git")
            .args(["rev-parse", "HEAD"])
            .current_dir(root),
    )?;
    if !changed.is_empty() {
        commit.push_str(", changed since");
    }
    let folder = root.join(if quick { "target/figures" } else { FOLDER });
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    for (name, cargo, bench) in ALL {
        if !names.is_empty() && !names.contains(name) {
            continue;
        }
        let date = command::printed(Command::new("date").args(["--utc", "+%Y-%m-%d %H:%M UTC"]))?;
        let mut words = vec!["bench"];
        words.extend(*cargo);
        words.push("--");
        words.extend(quick.then_some("--quick"));
        words.extend(*bench);
        let head = head(&commit, &date, &words);
        print!("{head}");
        // Benches run in the folder of their crate.
        let target = folder.display().to_string();
        let words = words
            .iter()
            .map(|word| if *word == FOLDER { &target } else { *word });
        let printed = printed(root, words)?;
        let file = folder.join(format!("{name}.txt"));
        fs::write(&file, head + &printed).with_context(|| file.display().to_string())?;
        println!("figures: {}", file.display());
    }
    Ok(())
}

/// What figures are of.
fn head(commit: &str, date: &str, words: &[&str]) -> String {
    format!(
        "commit   {commit}\ndate     {date}\ncommand  cargo {}\n",
        words.join(" ")
    )
}

/// What cargo prints, which is shown as it comes.
fn printed<'a>(root: &Path, words: impl Iterator<Item = &'a str>) -> Result<String> {
    let mut child = Command::new("cargo")
        .args(words)
        .current_dir(root)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    let mut printed = String::new();
    for line in BufReader::new(child.stdout.take().context("it has a pipe")?).lines() {
        let line = line.context("what the bench prints")?;
        println!("{line}");
        printed.push_str(&line);
        printed.push('\n');
    }
    let status = child.wait().context("cargo")?;
    if !status.success() {
        bail!("the bench ended with {status}");
    }
    Ok(printed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_say_what_they_are_of() {
        let head = head("abc", "2026-11-22 01:00 UTC", &["bench", "--quick"]);
        let lines = [
            "commit   abc",
            "date     2026-11-22 01:00 UTC",
            "command  cargo bench --quick",
        ];
        assert_eq!(head.lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn unknown_names_are_told_before_anything_runs() {
        let error = run(Path::new("/"), true, &["tabel"])
            .unwrap_err()
            .to_string();
        assert!(error.contains("tabel") && error.contains("table, ring, tax, tap"));
    }
}
