//! Runs the commands of README and the tutorial, in the order of the page, and compares what they
//! print with what the page says. Numbers differ from run to run and are not compared.

mod program;

use program::{PACKTRAIN, Ran, Scratch, command, finish, in_namespace, start};

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
