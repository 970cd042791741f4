//! `packtrain experiment` and `packtrain compare`, with an experiment that takes milliseconds.

mod program;

use program::{
    PACKTRAIN, Scratch, assert_documented, command, ends, finish, interrupted, packtrain, start,
    wait_for_handlers,
};
use serde_json::{Value, json};

const TINY: &str = r#"
name = "tiny"
source = "S0"
title = "packets from memory to nowhere"
meaning = "nothing"
limits = "A NIC."

[document]
claims = "Packets are counted."
columns = ["packets", "of"]
rows = [["1000", "1000"]]
notes = ["in memory"]

[testbed]
a = "null:source,count={count}"
b = "null:"

[workload]
tool = "forward"
duration = "60s"

[[axes]]
name = "count"
settings = [1000, 2000]

[[figures]]
key = "packets"
title = "received"
unit = "packets"
better = "higher"

[[claims]]
text = "every packet arrives"
figure = "packets"
of = { count = 1000 }
within = { value = 1000, distance = 0 }
exact = true
must = true
"#;

fn tiny(scratch: &Scratch, text: &str) -> String {
    let path = scratch.file("tiny.toml");
    std::fs::write(&path, text).expect("a file");
    path
}

/// Clean and flagged runs are given, since other programs run beside a test.
fn without_flags(document: &Value, packets: u64) -> Value {
    let mut document = document.clone();
    document["quick"] = json!(false);
    for row in document["rows"].as_array_mut().expect("rows") {
        row["flagged"] = json!(0);
        let figure = &mut row["figures"]["packets"];
        for key in ["median", "low", "high"] {
            figure[key] = json!(packets);
        }
        figure["judged"] = json!(3);
    }
    document
}

#[test]
fn an_experiment_is_one_document_with_documented_keys() {
    let scratch = Scratch::new("experiment");
    let path = tiny(&scratch, TINY);
    let document = ends(
        0,
        &[
            "experiment",
            &path,
            "--repeats",
            "3",
            "--seeds",
            "2",
            "--json",
        ],
    )
    .json();
    assert_documented(&document, &["all", "experiment"]);
    assert_eq!(document["command"], "experiment");
    let rows = document["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 2);
    for (row, count) in rows.iter().zip([1000, 2000]) {
        assert_eq!(row["setting"]["count"], count.to_string());
        assert_eq!(row["figures"]["packets"]["median"], f64::from(count));
        assert_eq!(row["runs"], 3);
        assert_eq!(row["settings"]["a"], format!("null:source,count={count}"));
    }
    let runs = document["runs"].as_array().expect("runs");
    let seeds: Vec<_> = runs.iter().map(|run| run["seed"].clone()).collect();
    assert_eq!(seeds, [1, 1, 2, 2, 1, 1]);
    assert_eq!(runs[1]["figures"]["a"]["rx"]["packets"], 1000);
    let repeat = format!("packtrain experiment {path} --repeats 3 --seeds 2");
    assert_eq!(document["experiments"][0]["command"], repeat);
}

#[test]
fn an_experiment_is_printed_for_people() {
    let scratch = Scratch::new("experiment-text");
    let path = tiny(&scratch, TINY);
    let ran = ends(0, &["experiment", &path, "--quick"]);
    for text in [
        "packtrain: ",
        "; Kernel: ",
        "\nLoad, 1 minute: ",
        "; Uptime at the start: ",
        "\n\ntiny (S0): packets from memory to nowhere",
        "Settings of all rows: b=null:; ",
        "What it cannot show\n  A NIC.",
        "Packets are counted.",
        "Medians of 3 rounds [least, greatest: ",
        "count  received, packets",
        "Spread of equal settings",
        "every packet arrives. Expected: 1000 ± 0 · must hold · counts",
        "What it means",
        "--quick\n",
    ] {
        assert!(ran.out.contains(text), "{text:?} in {}", ran.out);
    }
}

#[test]
fn an_experiment_is_a_page() {
    let scratch = Scratch::new("experiment-page");
    let path = tiny(&scratch, TINY);
    let [page, saved] = ["tiny.html", "tiny.json"].map(|name| scratch.file(name));
    std::fs::write(&page, "an older page").expect("a file");
    let words = [
        "experiment",
        &path,
        "--quick",
        "--html",
        &page,
        "--save",
        &saved,
    ];
    let ran = ends(0, &words);
    assert!(ran.out.ends_with(&format!("page: {page}\n")), "{ran:?}");
    let read = |path: &str| std::fs::read_to_string(path).expect("a file");
    let document: Value = serde_json::from_str(&read(&saved)).expect("JSON");
    let written = read(&page);
    // The keys that a page is made of are those of real documents.
    assert_eq!(
        written,
        packtrain_lab::report::html(&serde_json::from_value(document).expect("a document"))
    );
    for text in [
        "tiny: packets from memory to nowhere",
        "<data value=\"1000\">1,000</data>",
        "<data value=\"2000\">2,000</data>",
        "received, packets (higher is better)",
        "Batch sizes, in packets",
        "null:source,count=1000",
        "every packet arrives",
        "All runs (6)",
        "--quick</code>",
    ] {
        assert!(written.contains(text), "{text:?} in {written}");
    }
    let ran = packtrain(&["experiment", &path, "--quick", "--html", &page, "--json"]);
    assert_eq!(ran.json()["command"], "experiment");
}

#[test]
fn the_file_in_the_documentation_is_valid() {
    let text = include_str!("../../../docs/experiments.md");
    let (_, rest) = text.split_once("```toml\n").expect("a file");
    let (file, _) = rest.split_once("```").expect("its end");
    let experiment = packtrain_lab::experiment::Experiment::read("experiments.md", file);
    assert_eq!(experiment.expect("a valid file").cells.len(), 4);
    for (name, _) in packtrain_lab::experiment::BUILT_IN {
        let row = format!("\n| [`{name}`](experiments/{name}.md) | ");
        assert!(text.contains(&row), "{row}");
    }
}

/// The numbers of a text.
fn numbers(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_digit() && !['.', ','].contains(&c));
    let words = words.map(|word| word.trim_matches(['.', ',']));
    words.filter(|word| !word.is_empty())
}

#[test]
fn the_figures_of_the_documents_are_those_of_the_experiments_that_are_named() {
    let text = include_str!("../../../docs/experiments.md");
    let (_, table) = text
        .split_once("\n## The figures of the documents\n")
        .expect("a table");
    let table = table.split("\n## ").next().expect("its end");
    for source in packtrain_lab::experiment::SOURCES {
        let row = format!("\n| {} | ", source.id);
        assert!(table.contains(&row), "{row}");
    }
    for row in table.lines().filter(|line| line.starts_with("| S")) {
        let cells: Vec<_> = row.trim_matches(['|', ' ']).split(" | ").collect();
        let [source, figures, place] = cells[..] else {
            panic!("{row}");
        };
        let links = place.contains("](experiments/");
        assert!(
            links || place.starts_with("Not "),
            "no experiment and no reason: {row}"
        );
        for link in place.split("](experiments/").skip(1) {
            let (name, _) = link.split_once(".md)").expect(row);
            let built_in = packtrain_lab::experiment::BUILT_IN;
            let (_, file) = built_in.iter().find(|(one, _)| *one == name).expect(row);
            assert!(file.contains(&format!("source = \"{source}\"")), "{row}");
            for number in numbers(figures) {
                assert!(numbers(file).any(|one| one == number), "{name}: {number}");
            }
        }
    }
}

#[test]
fn the_experiments_are_listed() {
    let ran = ends(0, &["experiment", "list"]);
    assert!(ran.out.contains("lro-flows"), "{ran:?}");
    for text in [
        "S0: FreeBSD, not dated",
        "S1: Bruce Evans, in answer",
        "S4: Yuichiro NAITO, 2025",
    ] {
        assert!(ran.out.contains(text), "{text}: {ran:?}");
    }
    let ran = packtrain(&["experiment", "list", "--json"]);
    assert_documented(&ran.json(), &["all", "experiment list"]);
}

#[test]
fn what_is_wrong_is_one_line_and_an_exit_code() {
    let scratch = Scratch::new("experiment-wrong");
    let misspelled = tiny(&scratch, &TINY.replace("tool = ", "tol = "));
    let port = scratch.file("port.toml");
    std::fs::write(&port, TINY.replace("null:source", "nul:source")).expect("a file");
    let check = scratch.file("check.toml");
    let checked = TINY.replace("[workload]", "[check]\nidle = \"poll\"\n[workload]");
    std::fs::write(&check, checked).expect("a file");
    let unwritable = scratch.file("no/such/file/tiny.toml/x");
    std::fs::write(scratch.file("no"), "").expect("a file");
    let folder = scratch.file("");
    let figure = scratch.file("figure.toml");
    std::fs::write(
        &figure,
        TINY.replace("\"packets\"\ntitle", "\"packet\"\ntitle"),
    )
    .expect("a file");
    let cases: [(&[&str], i32, &str); 13] = [
        (
            &["experiment", &figure],
            2,
            ": no run has the figure packet; the nearest are packets, ",
        ),
        (
            &["experiment", "lro-flow"],
            2,
            "there is no experiment 'lro-flow'; write list, all",
        ),
        (
            &["experiment", &misspelled],
            2,
            "tiny.toml:19: [workload] has no tool",
        ),
        (
            &["experiment", "./missing.toml"],
            4,
            "./missing.toml: No such file",
        ),
        (
            &["experiment", "all", "--only", "net"],
            2,
            "--only cannot be 'net'; write one of kernel, sim, guest",
        ),
        (
            &["experiment", &check, "--only", "sim"],
            2,
            "no settings of the kind that --only names",
        ),
        (
            &["experiment", "all", "--repeats", "0"],
            2,
            "from 1 to 1000",
        ),
        (&["experiment", &port], 2, "tiny: count=1000: a: "),
        (
            &["experiment", &check],
            4,
            "tiny: count=1000: idle did not take poll: it is ",
        ),
        (&["experiment", &check, "--save", &unwritable], 4, "--save "),
        (&["experiment", &check, "--html", &unwritable], 4, "--html "),
        (
            &["experiment", &check, "--html", &folder],
            4,
            "Is a directory",
        ),
        (
            &["experiment", &check, "--html", &port, "--save", &port],
            2,
            "--save and --html name the same file",
        ),
    ];
    for (words, code, expected) in cases {
        let ran = packtrain(&[words, &["--quiet"]].concat());
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.error_line().contains(expected), "{expected:?}: {ran:?}");
        assert_eq!(ran.out, "", "{ran:?}");
    }
}

/// What this machine lacks decides no claim, which is neither a pass nor a failure.
#[test]
fn an_experiment_without_a_verdict_has_an_exit_code_of_its_own() {
    let scratch = Scratch::new("experiment-unjudged");
    let lacking = TINY.replace("[[axes]]", "[needs]\ncpus = 100000\n\n[[axes]]");
    let ran = packtrain(&[
        "experiment",
        &tiny(&scratch, &lacking),
        "--quick",
        "--quiet",
    ]);
    assert_eq!(ran.code, Some(5), "{ran:?}");
    let line = ran.error_line();
    assert!(
        line.contains("not judged: 1 of 1 verdicts; 1 of them: "),
        "{line}"
    );
    assert!(line.contains("100000 CPUs"), "{line}");
}

/// A row in a guest that cannot boot is no pass: it says what to install.
#[test]
fn rows_in_a_guest_without_a_kernel_or_qemu_are_missing() {
    let scratch = Scratch::new("experiment-no-guest");
    let inside = TINY.replace("[testbed]", "[guest]\ncards = [\"e1000e\"]\n\n[testbed]");
    let path = tiny(&scratch, &inside);
    for (variable, value) in [("PATH", ""), ("PACKTRAIN_GUEST", &*scratch.file("none"))] {
        let words = ["experiment", &path, "--quick", "--json"];
        let ran = finish(start(command(PACKTRAIN, &words).env(variable, value)));
        assert_eq!(ran.code, Some(5), "{ran:?}");
        let document = ran.json();
        assert_eq!(document["runs"], json!([]));
        assert_eq!(document["claims"][0]["verdict"], "not judged");
        for row in document["rows"].as_array().expect("rows") {
            let why = row["missing"].as_str().expect("a reason");
            let advice = ["apt-get install", "packtrain guest --fetch"];
            assert!(advice.iter().any(|one| why.contains(one)), "{why}");
        }
        assert!(ran.err.contains("not judged: 1 of 1 verdicts"), "{ran:?}");
    }
    let ran = packtrain(&["experiment", &path, "--only", "kernel"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
}

#[test]
fn saved_results_are_compared() {
    let scratch = Scratch::new("experiment-compare");
    let path = tiny(&scratch, TINY);
    let [a, b, c] = ["a.json", "b.json", "c.json"].map(|name| scratch.file(name));
    ends(0, &["experiment", &path, "--quick", "--save", &a]);
    let saved = std::fs::read_to_string(&a).expect("a document");
    let saved: Value = serde_json::from_str(&saved).expect("JSON");
    assert_documented(&saved, &["all", "experiment"]);
    for (path, packets) in [(&b, 1000), (&c, 900)] {
        std::fs::write(path, without_flags(&saved, packets).to_string()).expect("a file");
    }
    ends(0, &["compare", &b, &b]);
    let ran = ends(1, &["compare", &b, &c, "--json"]);
    let line = ran.error_line();
    assert!(
        line.starts_with("2 figures are worse by more than 5 %, the first: tiny"),
        "{ran:?}"
    );
    let document = ran.json();
    assert_documented(&document, &["all", "compare"]);
    assert_eq!(document["rows"][0]["change"], "regression");
    assert_eq!(document["rows"][0]["ratio"]["median"], 0.9);
    let tolerant = ends(0, &["compare", &b, &c, "--tolerance", "20"]);
    assert_eq!(tolerant.out, "0 worse, 0 better, 2 within 20 %\n");
    let every = packtrain(&["compare", &b, &c, "--tolerance", "20", "--all"]);
    assert!(every.out.contains("0.900"), "{every:?}");
    // A capture, say: no text at all.
    std::fs::write(&c, [0x0a, 0x0d, 0x0d, 0x0a, 0xff]).expect("a file");
    let ran = packtrain(&["compare", &b, &c]);
    let line = "it is no document of experiments, and no text; name a file that packtrain \
                experiment NAME --save FILE wrote";
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert_eq!(ran.error_line(), format!("{c}: {line}"));
}

#[test]
fn a_comparison_begins_with_its_sum_and_fits_a_terminal() {
    let scratch = Scratch::new("experiment-compare-sum");
    let path = tiny(&scratch, TINY);
    let [a, b, few] = ["a.json", "b.json", "few.json"].map(|name| scratch.file(name));
    ends(0, &["experiment", &path, "--quick", "--save", &a]);
    let saved = std::fs::read_to_string(&a).expect("a document");
    let saved: Value = serde_json::from_str(&saved).expect("JSON");
    for (path, packets) in [(&a, 1000), (&b, 900)] {
        std::fs::write(path, without_flags(&saved, packets).to_string()).expect("a file");
    }
    let mut document = without_flags(&saved, 1000);
    for row in document["rows"].as_array_mut().expect("rows") {
        row["figures"]["packets"]["judged"] = json!(2);
    }
    std::fs::write(&few, document.to_string()).expect("a file");
    // That nothing could be judged is no success.
    let ran = ends(1, &["compare", &a, &few]);
    let why = "no figure was judged: each has fewer than 3 clean runs in A or B; repeat";
    assert!(ran.error_line().starts_with(why), "{ran:?}");
    let sum = "0 worse, 0 better, 2 not judged: fewer than 3 clean runs\n";
    assert!(ran.out.starts_with(sum), "{ran:?}");
    let ran = ends(1, &["compare", &a, &b]);
    assert!(ran.out.starts_with("2 worse, 0 better\n"), "{ran:?}");
    let widest = ran.out.lines().map(|line| line.chars().count()).max();
    assert!(widest < Some(100), "{ran:?}");
}

#[test]
fn each_run_is_a_line_where_standard_error_is_a_file() {
    let scratch = Scratch::new("experiment-lines");
    let path = tiny(&scratch, TINY);
    let ran = ends(0, &["experiment", &path, "--repeats", "1"]);
    let lines: Vec<&str> = ran.err.lines().collect();
    assert_eq!(lines.len(), 5, "{ran:?}");
    assert_eq!(lines[0], "tiny: count=1000: warm-up 1 of 2");
    assert!(
        lines[3].starts_with("tiny: count=1000: run 2 of 2"),
        "{ran:?}"
    );
    assert!(
        lines[4].contains("not judged: 1 of 1 verdicts; 1 of them: "),
        "{ran:?}"
    );
    let ran = packtrain(&["experiment", &path, "--repeats", "1", "--quiet"]);
    assert_eq!(ran.err, "", "{ran:?}");
}

#[test]
fn a_comparison_that_fails_says_what_to_do() {
    let scratch = Scratch::new("experiment-compare-errors");
    let file = |name: &str, text: &str| {
        let path = scratch.file(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    let experiment = |name: &str| {
        let rows = json!([{ "experiment": name, "setting": {}, "figures": {} }]);
        json!({ "schema": "packtrain/1", "command": "experiment", "rows": rows }).to_string()
    };
    let (a, b) = (
        file("a.json", &experiment("a")),
        file("b.json", &experiment("b")),
    );
    let text = file("text.json", "goodput 3");
    let plan = r#"{ "schema": "packtrain/1", "command": "plan" }"#;
    let plan = file("plan.json", plan);
    let missing = scratch.file("missing.json");
    let prefix = |path: &str, line: &str| format!("{path}: {line}");
    let cases = [
        (&missing, 4, prefix(&missing, "No such file or directory")),
        (&text, 4, prefix(&text, "not JSON (")),
        (&plan, 4, prefix(&plan, "its command is \"plan\", not ")),
        (&b, 2, "A and B have no row of the same ".to_owned()),
    ];
    for (other, code, start) in cases {
        let ran = packtrain(&["compare", &a, other]);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        let line = ran.error_line();
        assert!(line.starts_with(&start), "{start:?}: {ran:?}");
        let hint = "packtrain experiment NAME --save FILE";
        assert!(line.contains(hint), "{ran:?}");
    }
}

#[test]
fn a_signal_keeps_what_was_measured() {
    let scratch = Scratch::new("experiment-signal");
    let endless = TINY.replace(",count={count}", "").replace("60s", "300ms");
    let path = tiny(&scratch, &endless);
    let words = ["experiment", &path, "--repeats", "1000", "--json"];
    let child = start(&mut command(PACKTRAIN, &words));
    wait_for_handlers(&child);
    let ran = interrupted(child, "INT");
    let document = ran.json();
    assert_eq!(document["stopped"], true);
    assert_eq!(document["experiments"][0]["stopped"], true);
}
