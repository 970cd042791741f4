//! Plants faults, one at a time, in a copy of the tree, and says which of them no test sees.
//!
//! The lists are written by hand: the decisions of [`coalesce`] and those of all that cuts
//! ([`segment`]), each made wrong in the way that is easiest to get wrong. What survives, and why,
//! is in `docs/mutants.md`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};

mod coalesce;
mod fault;
mod segment;

use fault::Fault;

/// A list of faults, and the tests that have to see them.
struct List {
    name: &'static str,
    /// Where the files are.
    folder: &'static str,
    faults: &'static [&'static [Fault]],
    /// Names of tests contain one of these.
    tests: &'static [&'static str],
    /// Tests that take seconds when not optimised: they are asked after all others.
    slow: &'static [&'static str],
    /// What is there in the place of faults that keep a test from ending.
    hangs: &'static [&'static str],
}

const LISTS: &[List] = &[
    List {
        name: "coalesce",
        folder: "crates/packtrain-offload/src/coalesce",
        faults: coalesce::FAULTS,
        tests: &["coalesce::"],
        slow: &[
            "::properties::",
            "::run::the_short_way_is_the_long_way",
            "::run::also_for_hostile_bytes",
            "::run::identifications_wrap_in_a_run",
            "::bugs::lengths_that_wrap",
            "::bugs::a_length_that_wraps_at_16_bits",
            "::bugs::every_header_is_one_that_the_kernel_takes",
            "::bugs::one_header_",
            "::run::no_bit_of_a_header_is_overlooked",
            "::stream::more_acks_than_can_be_counted_in_one",
            "::stream::payloads_too_small_to_be_segments",
            "::linux_tcp::no_more_pieces_than_can_be_cut",
            "::table::hash_collisions_of_other_seeds",
        ],
        hangs: coalesce::HANGS,
    },
    List {
        name: "segment",
        folder: "crates/packtrain-offload/src",
        faults: &[segment::FAULTS],
        tests: &["segment::", "fragment::", "checksum::", "virtio_net::"],
        slow: &[],
        hangs: &[],
    },
];

/// Tests that take longer hang. Ten times what they take without a fault, as long as nothing else
/// runs: so it may be the machine, and only where a fault is known to do that it counts as seen.
const SECONDS_MAX: [&str; 2] = ["150", "600"];
/// For the tests without a fault, whose dependencies are compiled first.
const FIRST_SECONDS_MAX: [&str; 2] = ["600"; 2];

/// Status of timeout(1) when it has ended what it ran.
const TIMED_OUT: i32 = 124;
/// Status of cargo when a test failed or something did not compile.
const FAILED: i32 = 101;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Seen,
    Survived,
    TimedOut,
    /// Nobody would commit such a fault.
    DoesNotCompile,
}

/// Runs the tests once for each fault with one of `texts` in it (with none: for each), of the list
/// of this name or of all. Fails if a fault cannot be planted any more, does not compile, or is not
/// seen.
pub fn run(root: &Path, name: Option<&str>, texts: &[&str]) -> Result<()> {
    let lists: Vec<&List> = LISTS
        .iter()
        .filter(|list| name.is_none_or(|name| name == list.name))
        .collect();
    if lists.is_empty() {
        let names: Vec<_> = LISTS.iter().map(|list| list.name).collect();
        bail!("there is no such list; there are: {}", names.join(", "));
    }
    let copy = root.join("target/mutants");
    if copy.exists() {
        fs::remove_dir_all(&copy).context("the copy of the last run")?;
    }
    fs::create_dir_all(&copy).context("cannot make target/mutants")?;
    // As new as the clock has it: cargo must not take the last fault's build for these files.
    let export = "git archive HEAD | tar --extract --touch --directory target/mutants";
    let mut command = Command::new("sh");
    if !command
        .args(["-c", export])
        .current_dir(root)
        .status()?
        .success()
    {
        bail!("git archive failed");
    }
    without_bench(&copy)?;
    let stale: Vec<_> = lists.iter().flat_map(|list| stale(&copy, list)).collect();
    if !stale.is_empty() {
        bail!("change the list:\n{}", stale.join("\n"));
    }
    let (mut missed, mut planted) = (0, 0);
    for list in lists {
        let has_it = |(file, from, _): &&Fault| {
            let has = |text: &&str| file.contains(text) || from.contains(text);
            texts.is_empty() || texts.iter().any(has)
        };
        let faults: Vec<_> = list
            .faults
            .iter()
            .copied()
            .flatten()
            .filter(has_it)
            .collect();
        missed += run_list(root, &copy, list, &faults)?;
        planted += faults.len();
    }
    if missed > 0 {
        bail!("{missed} of {planted} faults were not seen");
    }
    println!("{planted} faults, all seen");
    Ok(())
}

/// Takes the bench out of what the copy's tests depend on. It depends on the library, and would be
/// compiled again for every fault; the tests of the library alone do not use it.
fn without_bench(copy: &Path) -> Result<()> {
    let path = copy.join("crates/packtrain-offload/Cargo.toml");
    let manifest = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let needed = |line: &&str| !line.starts_with("packtrain-bench =");
    let lines: Vec<_> = manifest.lines().filter(needed).collect();
    fs::write(&path, lines.join("\n") + "\n").with_context(|| path.display().to_string())
}

/// The faults of a list that cannot be planted in the tree at `root`, each with the reason: the
/// text has changed since, or it is not clear any more which place is meant.
fn stale(root: &Path, list: &List) -> Vec<String> {
    let mut stale = vec![];
    for (file, from, to) in list.faults.iter().copied().flatten() {
        let why = match fs::read_to_string(root.join(list.folder).join(file)) {
            Err(error) => error.to_string(),
            Ok(_) if from == to => "is no fault".to_owned(),
            Ok(source) => match source.matches(from).count() {
                1 => continue,
                0 => "is not there any more".to_owned(),
                places => format!("is there {places} times"),
            },
        };
        stale.push(format!("{file}: `{from}`: {why}"));
    }
    stale
}

/// Says how many faults of a list were not seen.
fn run_list(root: &Path, copy: &Path, list: &List, faults: &[&Fault]) -> Result<usize> {
    match verdict(root, copy, list, FIRST_SECONDS_MAX)? {
        Verdict::Survived => {}
        Verdict::TimedOut => bail!("the tests of {} take too long here", list.name),
        _ => bail!("the tests of {} fail without a fault", list.name),
    }
    let (mut missed, mut hung) = (0, 0);
    for (file, from, to) in faults {
        let path = copy.join(list.folder).join(file);
        let source = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        fs::write(&path, source.replacen(from, to, 1))?;
        let verdict = verdict(root, copy, list, SECONDS_MAX)?;
        fs::write(&path, source)?;
        hung += usize::from(verdict == Verdict::TimedOut);
        let (is_seen, verdict) = match verdict {
            Verdict::Seen => (true, "seen"),
            Verdict::TimedOut if list.hangs.contains(from) => (true, "seen, as it hangs"),
            Verdict::TimedOut => (false, "TIMED OUT"),
            Verdict::Survived => (false, "SURVIVED"),
            Verdict::DoesNotCompile => (false, "DOES NOT COMPILE"),
        };
        missed += usize::from(!is_seen);
        println!("{verdict}: {file}: {from} -> {to}");
    }
    println!("{}: {} faults, {hung} timed out", list.name, faults.len());
    Ok(missed)
}

/// Whether a test of the copy fails.
fn verdict(root: &Path, copy: &Path, list: &List, seconds: [&str; 2]) -> Result<Verdict> {
    // Without optimising only what is around the fault is compiled again: most faults are seen
    // before a compiler would be done otherwise.
    for ((opt_level, skipped), seconds) in [("0", list.slow), ("1", &[])].into_iter().zip(seconds) {
        let ran = cargo_test(root, copy, (opt_level, seconds), list.tests, skipped)?;
        let [said, errors] = [&ran.stdout, &ran.stderr].map(|text| String::from_utf8_lossy(text));
        if let Some(verdict) = judge(ran.status.code(), &said, &errors)? {
            return Ok(verdict);
        }
    }
    Ok(Verdict::Survived)
}

/// What a run of the tests says; nothing if all passed.
///
/// Fails if the run ended in a way that no fault explains: then the machine has too little memory
/// or room, or what should run is not there.
fn judge(status: Option<i32>, said: &str, errors: &str) -> Result<Option<Verdict>> {
    let is_machines = ["SIGKILL", "No space left on device"].map(|text| errors.contains(text));
    Ok(match status {
        Some(0) => None,
        Some(TIMED_OUT) => Some(Verdict::TimedOut),
        Some(FAILED) if is_machines == [false; 2] => {
            if errors.contains("could not compile") {
                Some(Verdict::DoesNotCompile)
            } else if said.contains("test result: FAILED") || errors.contains("(signal: ") {
                Some(Verdict::Seen)
            } else {
                bail!("no test failed, but the run of them:\n{errors}")
            }
        }
        _ => bail!("the tests ended with {status:?}, which is no fault's doing:\n{errors}"),
    })
}

fn cargo_test(
    root: &Path,
    copy: &Path,
    (opt_level, seconds): (&str, &str),
    tests: &[&str],
    skipped: &[&str],
) -> Result<Output> {
    Command::new("timeout")
        .args([seconds, "cargo", "test", "-p", "packtrain-offload"])
        .args(["--lib", "--"])
        .args(tests)
        .args(skipped.iter().flat_map(|name| ["--skip", name]))
        .env("CARGO_TARGET_DIR", root.join("target/mutants-build"))
        // More time goes into compiling than into tests.
        .env("CARGO_PROFILE_TEST_DEBUG", "0")
        .env("CARGO_PROFILE_TEST_LTO", "off")
        .env("CARGO_PROFILE_TEST_OPT_LEVEL", opt_level)
        .env("RUSTFLAGS", "--cap-lints=allow")
        .current_dir(copy)
        .output()
        .context("cannot start cargo under timeout(1)")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a fault that is not planted any more would go unnoticed until somebody has an hour
    /// for all of them.
    #[test]
    fn every_fault_of_the_lists_can_be_planted() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for list in LISTS {
            let stale = stale(&root, list);
            assert!(stale.is_empty(), "{}", stale.join("\n"));
        }
    }

    #[test]
    fn faults_that_hang_are_in_the_list() {
        for list in LISTS {
            for hang in list.hangs {
                let mut faults = list.faults.iter().copied().flatten();
                assert!(faults.any(|(_, from, _)| from == hang), "{hang}");
            }
        }
    }

    #[test]
    fn only_a_test_that_fails_has_seen_a_fault() {
        let failed = "test result: FAILED. 1 passed; 1 failed";
        let verdicts = [
            (0, "test result: ok.", "", None),
            (FAILED, failed, "", Some(Verdict::Seen)),
            (
                FAILED,
                "",
                "(signal: 6, SIGABRT: process abort)",
                Some(Verdict::Seen),
            ),
            (
                FAILED,
                "",
                "error: could not compile",
                Some(Verdict::DoesNotCompile),
            ),
            (TIMED_OUT, "", "", Some(Verdict::TimedOut)),
        ];
        for (status, said, errors, verdict) in verdicts {
            assert_eq!(judge(Some(status), said, errors).unwrap(), verdict);
        }
        for (status, errors) in [
            (
                Some(FAILED),
                "could not compile `a` (signal: 9, SIGKILL: kill)",
            ),
            (Some(FAILED), "error: No space left on device (os error 28)"),
            (Some(FAILED), "error: failed to load manifest"),
            (Some(137), ""),
            (Some(127), "cargo: not found"),
            (None, ""),
        ] {
            assert!(judge(status, "", errors).is_err(), "{status:?} {errors}");
        }
    }

    #[test]
    fn the_documentation_says_how_many_faults_there_are() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let text = fs::read_to_string(root.join("docs/mutants.md")).unwrap();
        for list in LISTS {
            let line = text
                .lines()
                .find(|line| line.starts_with(&format!("| `{}` |", list.name)));
            let planted: usize = list.faults.iter().map(|faults| faults.len()).sum();
            let end = format!("| {planted} |");
            assert!(line.is_some_and(|line| line.ends_with(&end)), "{end}");
        }
    }

    #[test]
    fn a_fault_whose_place_is_gone_or_not_clear_is_told() {
        const FAULTS: &[Fault] = &[
            ("none.rs", "a", "b"),
            ("main.rs", "\u{1}", ""),
            ("main.rs", "e", ""),
            ("main.rs", "fn main(", "fn main("),
            ("main.rs", "fn main(", ""),
        ];
        let list = List {
            name: "",
            folder: "src",
            faults: &[FAULTS],
            tests: &[],
            slow: &[],
            hangs: &[],
        };
        let stale = stale(Path::new(env!("CARGO_MANIFEST_DIR")), &list);
        let whys = ["No such file", "not there any more", "times", "no fault"];
        assert_eq!(stale.len(), whys.len(), "{stale:?}");
        for (stale, why) in stale.iter().zip(whys) {
            assert!(stale.contains(why), "{stale}");
        }
    }
}
