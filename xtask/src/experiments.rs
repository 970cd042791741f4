//! Runs experiments several times, and writes how stable their verdicts are to their pages below
//! `docs/experiments/`, and a row for each to the table of `docs/experiments.md`.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, ensure};
use indexmap::IndexMap;
use packtrain_measure::Verdict;
use packtrain_measure::document::{Claim, Definition, Document};
use packtrain_measure::host::Host;
use packtrain_measure::statistics::median;
use serde_json::Value;

use crate::command::{self, printed, program};
use crate::report::{common_head, ends, escaped, markdown, number, text_of};

/// The page with a row for each experiment, below the root.
const INDEX: &str = "docs/experiments.md";
/// Where the documents of the runs go, below the root.
const SCRATCH: &str = "target/experiments";
/// How the flag of a run begins that has no figures.
const FAILED: &str = "the run failed: ";
/// The mark below a table.
const END: &str = "<!-- end -->";

/// What to run.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Runs
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=99))]
    runs: u16,
    /// The program; a release build of the tree without it
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Documents of runs that were saved by `packtrain experiment --save`: nothing is run
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "names")]
    from: Vec<PathBuf>,
    /// The experiments to run; all if there are none
    names: Vec<String>,
}

/// Runs the experiments, or reads saved runs, and writes a table for each of them.
pub fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    let text = |page: &str| command::read(&root.join(page));
    let files = if arguments.from.is_empty() {
        let binary = match &arguments.binary {
            Some(path) => path.clone(),
            None => build(root)?,
        };
        let all = names(&binary)?;
        let chosen = if arguments.names.is_empty() {
            &all
        } else {
            &arguments.names
        };
        // Before the runs, which take a long time.
        for name in chosen {
            ensure!(
                all.contains(name),
                "no experiment `{name}`: choose from {}",
                all.join(", ")
            );
            replaced(&text(&page(name))?, name, "")?;
            with_row(&text(INDEX)?, name, "")?;
        }
        measure(root, &binary, chosen, arguments.runs)?
    } else {
        arguments.from.clone()
    };
    let runs = files.iter().map(|file| read(file));
    let runs: Vec<Document> = runs.collect::<Result<_>>()?;
    for (page, new) in written(text, &runs)? {
        command::write(&root.join(page), &new)?;
    }
    Ok(())
}

/// The page of an experiment, below the root.
fn page(name: &str) -> String {
    format!("docs/experiments/{name}.md")
}

/// The program of this tree.
fn build(root: &Path) -> Result<PathBuf> {
    let line = "cargo build --release -p packtrain-cli";
    command::ensure(&mut program(root, line))?;
    Ok(root.join("target/release/packtrain"))
}

/// The names of all experiments.
fn names(binary: &Path) -> Result<Vec<String>> {
    let text = printed(Command::new(binary).args(["experiment", "list", "--json"]))?;
    let list: Value = serde_json::from_str(&text).context("experiment list --json")?;
    let all = list["experiments"].as_array().into_iter().flatten();
    Ok(all.map(|one| text_of(&one["name"])).collect())
}

/// Runs the experiments; each run has a document.
fn measure(root: &Path, binary: &Path, names: &[String], runs: u16) -> Result<Vec<PathBuf>> {
    let folder = command::folder(root, SCRATCH)?;
    let one = |run| {
        println!("experiments: run {run} of {runs}");
        let file = folder.join(format!("run-{run}.json"));
        let mut command = Command::new(binary);
        command
            .arg("experiment")
            .args(names)
            .arg("--save")
            .arg(&file);
        // A claim that must hold and a run that failed are results, and in the document.
        let status = command.stdout(Stdio::null()).status();
        let status = status.with_context(|| binary.display().to_string())?;
        println!("experiments: run {run}: {status}");
        Ok(file)
    };
    (1..=runs).map(one).collect()
}

fn read(file: &Path) -> Result<Document> {
    let name = file.display();
    let run = Document::read(&command::read(file)?).map_err(|why| anyhow!("{name}: {why}"))?;
    ensure!(!run.stopped, "{name}: not the document of a whole run");
    for one in &run.runs {
        if let Some(flag) = one.flags.iter().find(|flag| flag.starts_with(FAILED)) {
            println!("experiments: {name}: {}: {flag}", one.experiment);
        }
    }
    Ok(run)
}

/// The pages, by path, with the table of each experiment of the runs, and the page with their rows.
fn written(
    page_text: impl Fn(&str) -> Result<String>,
    runs: &[Document],
) -> Result<Vec<(String, String)>> {
    let host = &common_head(runs.iter().map(|run| &run.head))?.host;
    let mut index = page_text(INDEX)?;
    let mut pages = Vec::new();
    for experiment in &runs[0].experiments {
        let name = &experiment.name;
        let claims = claims(name, runs).with_context(|| name.clone())?;
        let table = table(&claims, runs.len());
        let block = format!("\n{}\n\n{table}\n", conditions(experiment, host, runs));
        let path = page(name);
        pages.push((path.clone(), replaced(&page_text(&path)?, name, &block)?));
        index = with_row(&index, name, &row(&claims))?;
    }
    pages.push((INDEX.to_owned(), index));
    Ok(pages)
}

/// The page of an experiment with a text between its marks.
fn replaced(document: &str, name: &str, text: &str) -> Result<String> {
    let path = page(name);
    let mark = format!("<!-- runs {name} -->");
    let (before, after) = document
        .split_once(&mark)
        .with_context(|| format!("{path} has no line `{mark}`: write it and `{END}` at its end"))?;
    ensure!(!after.contains(&mark), "{path} has `{mark}` twice");
    let (old, rest) = after
        .split_once(END)
        .with_context(|| format!("{path} has no `{END}` after `{mark}`"))?;
    ensure!(
        !old.contains("\n## "),
        "{path} has a heading between `{mark}` and `{END}`"
    );
    Ok(format!("{before}{mark}\n{text}{END}{rest}"))
}

/// The index with other cells behind the link to an experiment.
fn with_row(index: &str, name: &str, cells: &str) -> Result<String> {
    let link = format!("| [`{name}`](experiments/{name}.md) |");
    let is_row = |line: &&str| line.starts_with(&link);
    let rows = index.lines().filter(is_row).count();
    ensure!(
        rows == 1,
        "{INDEX} has {rows} lines that begin with `{link}`: it needs one"
    );
    let lines = index.lines().map(|line| match is_row(&line) {
        true => format!("{link}{cells}\n"),
        false => format!("{line}\n"),
    });
    Ok(lines.collect())
}

/// What the figures hold for.
fn conditions(experiment: &Definition, host: &Host, runs: &[Document]) -> String {
    let date = |run: &Document| run.head.host.time.chars().take(10).collect::<String>();
    let dates: BTreeSet<String> = runs.iter().map(date).collect();
    let loads = runs.iter().filter_map(|run| run.load);
    let loads: Vec<_> = loads.map(|load| format!("{load:.2}")).collect();
    let commits: BTreeSet<&str> = runs
        .iter()
        .filter_map(|run| run.head.commit.as_deref())
        .collect();
    let commits = match commits.into_iter().collect::<Vec<_>>() {
        none if none.is_empty() => String::new(),
        commits => format!(" at {}", commits.join(", ")),
    };
    escaped(&format!(
        "{}: {} of `{}`{commits}, Linux {}, {} CPUs, {}; load at the start: {}.",
        dates.into_iter().collect::<Vec<_>>().join(", "),
        counted(runs.len()),
        experiment.command,
        host.kernel,
        host.cpus,
        host.machine,
        loads.join(", ")
    ))
}

/// The claims of an experiment, each under one setting and as each run has it. All runs must have
/// them alike.
fn claims<'a>(name: &str, runs: &'a [Document]) -> Result<Vec<Vec<&'a Claim>>> {
    let of_run = |run: &'a Document| run.claims.iter().filter(|one| one.experiment == name);
    let first: Vec<&Claim> = runs.iter().take(1).flat_map(of_run).collect();
    let mut claims: Vec<Vec<&Claim>> = first.iter().map(|_| Vec::new()).collect();
    for (run, document) in (1..).zip(runs) {
        let (here, there) = (of_run(document).count(), first.len());
        ensure!(
            here == there,
            "run {run} has {here} claims, and run 1 has {there}"
        );
        for ((all, one), claim) in claims.iter_mut().zip(of_run(document)).zip(&first) {
            let (title, setting) = (&claim.claim, settings(claim));
            ensure!(
                one.claim == claim.claim && one.of == claim.of,
                "run {run}: no `{title}` of {setting} where run 1 has it"
            );
            let asked = |one: &Claim| (one.figure.clone(), one.statistic, one.expected);
            ensure!(
                asked(one) == asked(claim),
                "run {run}: `{title}` of {setting} has another figure or expectation than in run 1"
            );
            all.push(one);
        }
    }
    Ok(claims)
}

/// `1 run`, `5 runs`.
fn counted(runs: usize) -> String {
    match runs {
        1 => "1 run".to_owned(),
        runs => format!("{runs} runs"),
    }
}

/// The claims of an experiment with their verdicts in all runs.
fn table(claims: &[Vec<&Claim>], runs: usize) -> String {
    if claims.is_empty() {
        return "Nothing is claimed of the figures.\n".to_owned();
    }
    let mut text = format!(
        "| claim | settings | document | expected | median of {} [least, greatest] | \
         verdicts |\n\
         | --- | --- | --- | --- | --- | --- |\n",
        counted(runs)
    );
    let mut before = None;
    for claim in claims {
        let words = claim[0];
        let is_next = before.replace(&words.claim) != Some(&words.claim);
        let shown = |text: String| if is_next { text } else { String::new() };
        let cells = [
            shown(words.claim.clone()),
            settings(words),
            shown(words.document.clone()),
            shown(words.expected.to_string()),
            measured(claim),
            verdicts(claim),
        ];
        text.push_str(&format!("| {} |\n", markdown(&cells)));
    }
    text
}

/// The cells of the index: the first claim, what its document says and what came out, and how many
/// claims have which verdict.
fn row(claims: &[Vec<&Claim>]) -> String {
    let Some(first) = claims.first() else {
        return " nothing is claimed | | | |".to_owned();
    };
    // The verdict that all runs have, and `None` where they differ.
    let stable = |runs: &Vec<&Claim>| {
        let verdict = runs[0].verdict;
        runs.iter()
            .all(|run| run.verdict == verdict)
            .then_some(verdict)
    };
    let stable: Vec<_> = claims.iter().map(stable).collect();
    let kinds = Verdict::ALL.map(Some).into_iter().chain([None]);
    let verdicts = kinds.filter_map(|kind| {
        let count = stable.iter().filter(|one| **one == kind).count();
        let name = kind.map_or("differs", Verdict::name);
        (count > 0).then(|| format!("{count} {name}"))
    });
    let verdicts = verdicts.collect::<Vec<_>>().join(", ");
    let Claim {
        document, claim, ..
    } = first[0];
    let cells = [document.clone(), claim.clone(), measured(first), verdicts];
    format!(" {} |", markdown(&cells))
}

/// The settings of a claim, in words. A claim on a spread has those that all its rows share.
fn settings(claim: &Claim) -> String {
    match claim.of.to_string() {
        text if text.is_empty() => "all".to_owned(),
        text => text,
    }
}

/// The median of the runs, with the least and the greatest if they differ.
fn measured(runs: &[&Claim]) -> String {
    let medians = runs.iter().filter_map(|run| Some(run.measured?.median));
    let medians: Vec<f64> = medians.collect();
    let Some(ends) = ends(&medians) else {
        return "-".to_owned();
    };
    let (middle, [low, high]) = (number(median(&medians)), ends.map(number));
    if low == high {
        middle
    } else {
        format!("{middle} [{low}, {high}]")
    }
}

/// How many runs have which verdict. Those that are not judged are counted by their reason.
fn verdicts(runs: &[&Claim]) -> String {
    let mut runs = runs.to_vec();
    runs.sort_by_key(|run| Reverse(run.verdict));
    let mut counts = IndexMap::new();
    for run in &runs {
        let reason = reason(run.why.as_deref().unwrap_or_default());
        *counts.entry((run.verdict.name(), reason)).or_insert(0) += 1;
    }
    let parts = counts.iter().map(|((verdict, why), count)| match *why {
        "" => format!("{count} {verdict}"),
        why => format!("{count} {verdict}: {why}"),
    });
    let text = parts.collect::<Vec<_>>().join(", ");
    if runs.iter().all(|run| run.verdict == runs[0].verdict) {
        text
    } else {
        format!("**differs**: {text}")
    }
}

/// Why a claim is not judged, without its settings and without figures of the run.
fn reason(why: &str) -> &str {
    // `axis=name: why`, or `axis=name cannot be shown here: why`.
    let rest = match why.split_once(": ") {
        Some((settings, rest)) if settings.contains('=') => rest,
        _ => why,
    };
    let ends = [": ", " (", ", and a verdict"].into_iter();
    let end = ends.filter_map(|end| rest.find(end)).min();
    &rest[..end.unwrap_or(rest.len())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;
    use packtrain_measure::Expected;
    use serde_json::json;
    use std::fs;

    /// A saved run: for each claim of `tso`, its median and verdict, or why it is not judged.
    fn saved(load: f64, figures: [Result<(f64, &str), &str>; 3]) -> Document {
        let settings = [("b | c", "1500"), ("b | c", "9000"), ("d", "9000")];
        let claims = settings.iter().zip(figures).map(|((claim, mtu), of)| {
            let of_mtu = match *claim {
                "d" => json!({}),
                _ => json!({ "mtu": mtu, "offload": "tso" }),
            };
            json!({
                "experiment": "tso", "claim": claim, "figure": "f", "of": of_mtu, "to": null,
                "document": "from 3 to 6", "expected": ">= 1.5",
                "measured": of.ok().map(|(median, _)| {
                    json!({ "median": median, "low": median, "high": median })
                }),
                "verdict": of.map_or("not judged", |(_, verdict)| verdict),
                "why": of.err(),
            })
        });
        let experiment = |name: &str| {
            let command = format!("packtrain experiment {name} --quick");
            json!({ "name": name, "command": command })
        };
        let document = json!({
            "commit": "1234abcd",
            "schema": "packtrain/1", "command": "experiment", "stopped": false, "load": load,
            "host": { "machine": "EPYC", "kernel": "6.18", "cpus": 2,
                      "time": "2026-11-26T12:00:00Z" },
            "experiments": [experiment("tso"), experiment("none")],
            "rows": [], "claims": claims.collect::<Vec<_>>(),
        });
        Document::read(&document.to_string()).unwrap()
    }

    /// The pages of two experiments, and the index.
    fn pages(page: &str) -> Result<String> {
        Ok(match page {
            "docs/experiments/tso.md" => "# tso\n\n<!-- runs tso -->\nold\n<!-- end -->\nlast\n",
            "docs/experiments/none.md" => "# none\n\n<!-- runs none -->\n<!-- end -->\n",
            INDEX => {
                "| [`tso`](experiments/tso.md) | old |\n| [`none`](experiments/none.md) | old |\n"
            }
            other => bail!("no page {other}"),
        }
        .to_owned())
    }

    fn two() -> [Document; 2] {
        let clean = "mtu=9000 offload=tso: 1 of 3 runs were clean (others), and a verdict needs 3";
        [
            saved(
                0.25,
                [Ok((2.0, "reproduced")), Ok((1.25, "direction")), Err(clean)],
            ),
            saved(
                1.5,
                [
                    Ok((3.0, "reproduced")),
                    Err("too noisy here: the interval reaches from 1 to 2"),
                    Err("mtu=9000 offload=tso cannot be shown here: no <MTU>"),
                ],
            ),
        ]
    }

    #[test]
    fn a_table_counts_the_verdicts_of_all_runs() {
        let runs = two();
        let new = written(pages, &runs).unwrap();
        let texts: Vec<_> = new.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(
            texts[0],
            "# tso\n\n<!-- runs tso -->\n\n\
             2026-11-26: 2 runs of `packtrain experiment tso --quick` at 1234abcd, Linux 6.18, \
             2 CPUs, EPYC; load at the start: 0.25, 1.50.\n\n\
             | claim | settings | document | expected | median of 2 runs [least, greatest] | \
             verdicts |\n\
             | --- | --- | --- | --- | --- | --- |\n\
             | b \\| c | mtu=1500 offload=tso | from 3 to 6 | >= 1.5 | 2.50 [2.00, 3.00] | \
             2 reproduced |\n\
             |  | mtu=9000 offload=tso |  |  | 1.25 | \
             **differs**: 1 direction, 1 not judged: too noisy here |\n\
             | d | all | from 3 to 6 | >= 1.5 | - | \
             1 not judged: 1 of 3 runs were clean, 1 not judged: no &lt;MTU> |\n\
             \n<!-- end -->\nlast\n"
        );
        assert_eq!(
            texts[1],
            "# none\n\n<!-- runs none -->\n\n\
             2026-11-26: 2 runs of `packtrain experiment none --quick` at 1234abcd, Linux 6.18, \
             2 CPUs, EPYC; load at the start: 0.25, 1.50.\n\n\
             Nothing is claimed of the figures.\n\
             \n<!-- end -->\n"
        );
        assert_eq!(
            texts[2],
            "| [`tso`](experiments/tso.md) | from 3 to 6 | b \\| c | 2.50 [2.00, 3.00] | \
             1 reproduced, 1 not judged, 1 differs |\n\
             | [`none`](experiments/none.md) | nothing is claimed | | | |\n"
        );
        // What is written once is written again.
        let again = |page: &str| {
            let mut known = new.iter().filter(|(path, _)| path == page);
            known
                .next()
                .map(|(_, text)| text.clone())
                .context("no page")
        };
        assert_eq!(written(again, &runs).unwrap(), new);
    }

    #[test]
    fn a_mark_that_is_not_there_is_named() {
        let runs = two();
        for (old, new, why) in [
            (
                "<!-- runs none -->",
                "",
                "docs/experiments/none.md has no line `<!-- runs none -->`",
            ),
            (
                "old\n<!-- end -->",
                "old",
                "has no `<!-- end -->` after `<!-- runs tso -->`",
            ),
            (
                "<!-- runs none -->\n<!-- end -->",
                "<!-- runs none -->\n## other\n<!-- end -->",
                "has a heading between `<!-- runs none -->`",
            ),
            ("last", "<!-- runs tso -->", "has `<!-- runs tso -->` twice"),
            (
                "[`none`]",
                "[none]",
                "has 0 lines that begin with `| [`none`](",
            ),
        ] {
            let page = |page: &str| Ok(pages(page)?.replace(old, new));
            let error = written(page, &runs).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn every_built_in_experiment_has_its_marks() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let index = fs::read_to_string(root.join(INDEX)).unwrap();
        let files = fs::read_dir(root.join("crates/packtrain-lab/experiments")).unwrap();
        let names = files.map(|file| file.unwrap().path());
        let names: Vec<PathBuf> = names
            .filter(|file| file.extension().is_some_and(|kind| kind == "toml"))
            .collect();
        assert!(names.len() > 10, "{names:?}");
        for name in &names {
            let name = name.file_stem().unwrap().to_str().unwrap();
            let text = fs::read_to_string(root.join(page(name))).expect(name);
            replaced(&text, name, "").unwrap();
            with_row(&index, name, "").unwrap();
        }
    }

    #[test]
    fn runs_that_do_not_belong_together_are_refused() {
        let change = |change: &dyn Fn(&mut Document)| {
            let mut runs = two();
            change(&mut runs[1]);
            format!("{:#}", written(pages, &runs).unwrap_err())
        };
        let error = change(&|run| run.head.host.cpus = 4);
        assert_eq!(error, "the runs do not belong together: CPUs is 2 and 4");
        let error = change(&|run| run.claims[2].claim = "e".to_owned());
        assert_eq!(error, "tso: run 2: no `d` of all where run 1 has it");
        let error = change(&|run| run.claims[1].of = run.claims[0].of.clone());
        assert!(error.contains("no `b | c` of mtu=9000"), "{error}");
        let error = change(&|run| run.claims[1].expected = Expected::AtMost(1.0));
        assert!(
            error.contains("has another figure or expectation"),
            "{error}"
        );
        let error = change(&|run| run.claims.clear());
        assert_eq!(error, "tso: run 2 has 0 claims, and run 1 has 3");
    }
}
