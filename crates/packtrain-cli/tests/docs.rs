//! Runs the commands of the pages. Those of README and the tutorial run in the order of the page,
//! and print what the page says. Numbers differ from run to run and are not compared.

mod program;

use program::{AWAIT, PACKTRAIN, Ran, Scratch, command, ends, finish, in_namespace, start};
use std::{fs, path::Path};

/// How a command of a page begins.
const PREFIXES: [&str; 2] = ["$ cargo run --release -- ", "$ packtrain "];

/// The commands in the code blocks of a page, each with the lines that follow it there.
fn commands(page: &str) -> Vec<(&str, Vec<&str>)> {
    let mut commands: Vec<(&str, Vec<&str>)> = Vec::new();
    let (mut in_block, mut in_output) = (false, false);
    for line in page.lines().map(str::trim) {
        if line.starts_with("```") {
            (in_block, in_output) = (!in_block, false);
        } else if !in_block {
        } else if let Some(words) = PREFIXES.iter().find_map(|start| line.strip_prefix(start)) {
            commands.push((words, Vec::new()));
            in_output = true;
        } else if let Some((_, output)) = commands.last_mut().filter(|_| in_output) {
            output.push(line);
        }
    }
    commands
}

/// The words of a line, without its numbers and their units.
fn shape(line: &str) -> Vec<String> {
    let is_number = |c: char| c.is_ascii_digit() || c == ',' || c == '.';
    let shapes = line.split_whitespace().map(|word| {
        let is_figure = word.starts_with(|c: char| c.is_ascii_digit());
        match is_figure && word.trim_end_matches([',', ':']).chars().all(is_number) {
            true => word.replace(is_number, ""),
            false => word.to_owned(),
        }
    });
    shapes
        .filter(|word| !matches!(word.as_str(), "" | "k" | "M" | "G"))
        .collect()
}

/// Whether a page's lines are those of the output. A line `...` stands for any number of lines.
fn is_output(expected: &[Vec<String>], lines: &[Vec<String>]) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if *first == ["..."] => {
            (0..=lines.len()).any(|skipped| is_output(rest, &lines[skipped..]))
        }
        Some((first, rest)) => lines.first() == Some(first) && is_output(rest, &lines[1..]),
    }
}

#[test]
fn readme_and_tutorial_say_what_the_program_prints() {
    let readme = include_str!("../../../README.md");
    let tutorial = include_str!("../../../docs/tutorial.md");
    let mut tried = 0;
    for (page, text) in [("README.md", readme), ("docs/tutorial.md", tutorial)] {
        let scratch = Scratch::new("docs");
        for (words, expected) in commands(text) {
            let words: Vec<_> = words.split_whitespace().collect();
            let mut way = Vec::new();
            if words.iter().any(|word| word.starts_with("tap:")) {
                let Some(namespaced) = in_namespace() else {
                    continue;
                };
                way = namespaced;
            }
            // Both streams in one, as a terminal shows them.
            let here = scratch.file("");
            let shell = ["sh", "-c", "cd \"$0\" && exec \"$@\" 2>&1", &here];
            let all = [&way[..], &shell, &[PACKTRAIN], &words].concat();
            let Ran { code, out, .. } = finish(start(&mut command(all[0], &all[1..])));
            assert_eq!(code, Some(0), "{page}: {words:?}: {out}");
            let shapes = |lines: Vec<&str>| -> Vec<Vec<String>> {
                let shapes = lines.into_iter().map(shape);
                shapes.filter(|shape| !shape.is_empty()).collect()
            };
            let (expected, printed) = (shapes(expected), shapes(out.lines().collect()));
            assert!(
                is_output(&expected, &printed),
                "{page}: {words:?} prints\n{out}\nand the page says\n{expected:#?}"
            );
            tried += 1;
        }
    }
    assert!(tried >= 4, "{tried} commands in README and the tutorial");
}

/// What the lines of pages need beside the interfaces that they name: files, and names on the PATH.
const SCENE: &str = "
    cd \"$0\"; PATH=${1%/*}:$PATH
    for pair in eth0:far0 eth1:far1 veth0:vm0; do
        ip link add ${pair%:*} type veth peer name ${pair#*:} || exit 98
        ip link set ${pair%:*} up; ip link set ${pair#*:} up
    done
    packtrain forward -q null:source,proto=tcp,flows=4,count=1000 pcap:in.pcapng,write || exit 98
    packtrain forward -q null:source,proto=tcp,flows=9,count=1000 pcap:trace-1.pcap,write || exit 98
    gzip trace-1.pcap
";

/// Lines that are only parsed: another test runs them, or none can.
const PARSED: &[(&str, &str)] = &[
    ("packtrain demo", "the commands of README have it"),
    (
        "packtrain check ",
        "minutes for each program: tests/check.rs",
    ),
    ("packtrain guest", "a kernel for guests: tests/cards.rs"),
    (" e1000e:", "a network card: tests/cards.rs"),
    (" --parquet", "a build with the feature: tests/parquet.rs"),
    ("packtrain rfc2544 ", "minutes: tests/rfc2544.rs"),
    ("sim world", "a file of a world that fails: tests/plants.rs"),
    (
        "packtrain sim fuzz ",
        "2,000 worlds: the step `worlds` of CI",
    ),
];

/// The lines of all pages that begin with the program, without comments, each with its page.
fn lines() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = |folder: &str| fs::read_dir(root.join(folder)).expect("a folder of the repository");
    let pages = pages("docs").chain(pages("crates")).chain(pages("."));
    let mut lines = Vec::new();
    for page in pages.map(|page| page.expect("a page").path()) {
        let page = if page.is_dir() {
            page.join("README.md")
        } else {
            page
        };
        let is_page = page.extension().is_some_and(|end| end == "md") && page.is_file();
        let text = if is_page {
            fs::read_to_string(&page).expect("text")
        } else {
            String::new()
        };
        let blocks = text.split("\n```").skip(1).step_by(2);
        for line in blocks.flat_map(|block| block.lines().skip(1)) {
            // The other test runs those of README and the tutorial.
            let is_other = page.ends_with("tutorial.md") || page.ends_with("../../README.md");
            let line = line
                .strip_prefix("$ ")
                .filter(|_| !is_other)
                .unwrap_or(line);
            let line = line
                .split("  #")
                .next()
                .unwrap_or_default()
                .trim_end_matches([' ', '&']);
            if line.starts_with("packtrain ") && !line.starts_with("packtrain =") {
                lines.push((page.display().to_string(), line.to_owned()));
            }
        }
    }
    lines
}

#[test]
fn every_line_of_a_page_runs() {
    let lines = lines();
    for (of, why) in PARSED {
        assert!(
            lines.iter().any(|(_, line)| line.contains(of)),
            "{of}: {why}: no page has it"
        );
    }
    let (way, is_root) = (in_namespace(), rustix::process::geteuid().is_root());
    let (mut ran, mut failed) = (0, Vec::new());
    for (page, line) in &lines {
        if PARSED.iter().any(|(of, _)| line.contains(of)) {
            // What is for another program, or for the guest, is behind `--`.
            let options = line.split(" -- ").next().unwrap_or_default();
            let words = options.split(' ').skip(1).filter(|word| !word.is_empty());
            // An option with a value in quotes is `check --a`.
            let words = words.take_while(|word| !word.starts_with('\''));
            let words = words.filter(|word| *word != "--a");
            ends(0, &words.chain(["--help"]).collect::<Vec<_>>());
            continue;
        }
        let Some(way) = way.as_ref().filter(|_| is_root || !line.contains("xdp:")) else {
            println!("SKIP: {line}: it needs a network namespace, and xdp: root");
            continue;
        };
        let scratch = Scratch::new("line");
        let line = line.replace("/run/", &scratch.file(""));
        let is_endless = line.starts_with("packtrain forward") && !line.contains("null:");
        let end = if is_endless {
            "await joined; kill -INT $run;"
        } else {
            ""
        };
        let script = format!("{AWAIT}{SCENE}\n{line} & run=$!; {end} wait $run");
        let here = scratch.file("");
        let all = [&way[..], &["sh", "-c", &script, &here, PACKTRAIN]].concat();
        let ended = finish(start(&mut command(all[0], &all[1..])));
        // `doctor` ends with 3 if this host lacks something.
        let is_doctor = line == "packtrain doctor" && ended.code == Some(3);
        if ended.code != Some(0) && !is_doctor {
            failed.push(format!("{page}: {line}: {ended:?}"));
        }
        ran += 1;
    }
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(way.is_none() || ran >= 20, "{ran} lines of pages ran");
}
