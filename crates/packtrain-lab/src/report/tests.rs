use packtrain_measure::document::Document;
use serde_json::{Value, json};

use super::distribution;
use super::read::Part;
use super::view::{Cell, Table, View};

/// A document with all that a page can have; `tests/report` draws it.
fn document() -> Value {
    let text = include_str!("../../tests/report/document.json");
    serde_json::from_str(text).expect("a document")
}

fn read(document: &Value) -> Document {
    serde_json::from_value(document.clone()).expect("a document")
}

/// The view of the first experiment.
fn first_of<T>(document: &Value, of: impl FnOnce(View<'_>) -> T) -> T {
    of(View::all(&read(document)).remove(0))
}

fn lines(table: Option<Table>) -> Vec<String> {
    let rows = table.into_iter().flat_map(|table| table.rows);
    let line = |row: Vec<Cell>| row.iter().map(Cell::to_string).collect::<Vec<_>>();
    rows.map(|row| line(row).join(" | ")).collect()
}

fn html(document: &Value) -> String {
    super::html(&read(document))
}

/// A page without its tags.
fn text(page: &str) -> String {
    let mut text = String::new();
    let mut within = false;
    for c in page.chars() {
        match c {
            '<' => within = true,
            '>' => {
                within = false;
                text.push('\n');
            }
            _ if !within => text.push(c),
            _ => {}
        }
    }
    text
}

#[test]
fn no_text_of_a_document_becomes_markup() {
    // Every text of the document, keys included, is something that would be an element.
    fn poison(value: &Value) -> Value {
        match value {
            Value::String(text) if text.starts_with("packtrain/") => value.clone(),
            Value::String(text) => format!("<i>{text}").into(),
            Value::Array(values) => values.iter().map(poison).collect(),
            Value::Object(map) => map
                .iter()
                .map(|(key, value)| match key.as_str() {
                    // They are one of a few words, or have a form that is checked.
                    "better" | "expected" | "figure" | "key" | "statistic" | "verdict" => {
                        (key.clone(), value.clone())
                    }
                    _ => (key.clone(), poison(value)),
                })
                .collect::<serde_json::Map<_, _>>()
                .into(),
            other => other.clone(),
        }
    }
    for document in [document(), poison(&document())] {
        let page = html(&document);
        for tag in ["<i>", "<b>", "<script", "<MTU", "<img"] {
            assert!(!page.contains(tag), "{tag}");
        }
    }
    let page = html(&document());
    assert!(page.contains("&lt;script&gt;document.title=&quot;run&quot;&lt;/script&gt; &amp;"));
}

/// Forty bars of the same length show nothing.
#[test]
fn a_chart_of_equal_values_is_a_sentence() {
    let mut equal = document();
    for run in equal["runs"].as_array_mut().expect("runs") {
        run["figures"]["goodput_gbps"] = 2.into();
    }
    for row in equal["rows"].as_array_mut().expect("rows") {
        if row["figures"]["goodput_gbps"].is_object() {
            for key in ["median", "low", "high", "min", "max"] {
                row["figures"]["goodput_gbps"][key] = 2.into();
            }
        }
    }
    let page = html(&equal);
    let count = |text: &str| page.matches(text).count();
    assert_eq!(count("goodput, Gbit/s: "), 1, "{page}");
    assert!(page.contains(" settings, in every run.</p>"), "{page}");
    assert!(count("<svg") < html(&document()).matches("<svg").count());
}

#[test]
fn a_page_needs_nothing_else() {
    let page = html(&document());
    for outside in ["http:", "https:", "//", "src=", "url(", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.starts_with("<!doctype html>\n") && page.ends_with("</html>\n"));
}

#[test]
fn every_part_of_a_document_is_on_its_page() {
    let page = html(&document());
    let text = text(&page);
    for expected in [
        "A &lt;CPU&gt; &amp; Co (x86_64)",
        "6.18.0",
        "0.250 at the start, 0.250 to 0.650 during the runs",
        "1 d 2 h",
        "Stopped before the end: these are the runs until then.",
        "Quick: shorter runs, so no verdict is better than “direction”.",
        "1 of 25 runs were disturbed or failed.",
        "And &lt;b&gt;more&lt;/b&gt;.",
        "Mb/s &lt;each&gt;",
        "on &amp; off",
        "Choose TSO &amp; be done.",
        "goodput, Gbit/s (higher is better)",
        "not shown here",
        "Not shown here: mtu=9000 offload=none: /dev/net/tun has no",
        "Expected: ≥ 2 · in the document: from 3 to 6 &amp; more · must hold",
        "ratio of goodput, Gbit/s",
        "relative standard deviation of goodput, Gbit/s",
        "counts, which flagged runs have too",
        "Not reproduced: The CPUs are &lt;shared&gt;.",
        "What it cannot show",
        "&lt;here&gt;.",
        "mtu=9000 offload=none cannot be shown here: no &lt;MTU&gt;",
        "Batch sizes, in packets",
        "a.rx.poll: mtu=1500 offload=tso",
        "Histogram of latency_us",
        "owned, shared",
        "Flagged and outlying runs (2)",
        "other programs used 30 % &lt;of&gt; the CPUs",
        "All runs (25)",
        "packtrain experiment &#39;a&lt;b&gt;.toml&#39; --quick",
        "Nothing is claimed of the figures.",
    ] {
        assert!(text.contains(expected), "{expected}");
    }
    // One of the five runs lies far from the others with both figures, in both lists of runs.
    assert_eq!(page.matches(">outlier<").count(), 4);
    assert!(!text.contains("idle_latency_us"), "it has no percentiles");
    assert!(!text.contains("(empty)"), "a histogram without counts");
}

#[test]
fn rows_have_the_spread_of_their_runs() {
    let document = document();
    let whole = read(&document);
    let [one, other] = <[_; 2]>::try_from(View::all(&whole)).expect("two");
    assert_eq!(
        lines(one.spreads)[0],
        "goodput, Gbit/s | 4 | 126 | 39.2 | 90.1 | 1 | mtu=9000 offload=tso"
    );
    assert_eq!(lines(one.ours)[4], "9000 | none | not shown here");
    assert_eq!(lines(other.ours), [""; 0], "a table without runs");
    // Three rounds have no outliers, and one has no spread.
    let of_rounds = |rounds: u64| {
        let mut document = document.clone();
        document["experiments"][0]["rounds"] = rounds.into();
        first_of(&document, |view| lines(view.spreads))
    };
    assert_eq!(of_rounds(3)[0].matches(" | ").count(), 5);
    assert_eq!(of_rounds(1), [""; 0]);
}

#[test]
fn an_interval_has_the_percentage_of_the_runs_that_a_row_has() {
    // The figures of the first row, and of the others, are medians of so many runs.
    let shown = |first: u64, others: u64| {
        let mut document = document();
        document["experiments"][0]["rounds"] = 8.into();
        let rows = document["rows"].as_array_mut().expect("rows");
        for (at, row) in rows.iter_mut().enumerate() {
            let figures = row["figures"].as_object_mut().expect("figures");
            for figure in figures.values_mut().filter(|figure| figure.is_object()) {
                figure["rounds"] = if at == 0 { first } else { others }.into();
            }
        }
        let caption = first_of(&document, |view| view.ours.expect("a table").caption);
        let brackets = caption.strip_prefix("Medians of 8 rounds ");
        let brackets = brackets.expect("rounds").to_owned();
        let head = format!("median {brackets}");
        assert!(text(&html(&document)).contains(&head), "{head}");
        brackets
    };
    assert_eq!(shown(5, 5), "[least, greatest: 94 %]");
    assert_eq!(shown(3, 5), "[least, greatest: 75 to 94 %]");
    assert_eq!(shown(4, 8), "[interval of 88 to 95 %]");
    assert_eq!(shown(8, 6), "[interval of 95 %]");
}

#[test]
fn a_claim_on_a_ratio_names_both_figures() {
    let mut document = document();
    let measured = |document: &mut Value, key: &str| {
        document["claims"][2]["figure"] = key.into();
        first_of(document, |view| view.claims[1].measured.clone())
    };
    for (key, shown) in [
        ("cpu_percent / goodput_gbps", "CPU <cost>, % per Gbit/s"),
        (
            "drops.total / goodput_gbps",
            "drops.total / goodput, Gbit/s",
        ),
        ("drops.total", "drops.total"),
    ] {
        assert_eq!(measured(&mut document, key), shown);
    }
}

#[test]
fn a_name_is_dimmed_if_a_name_after_it_differs() {
    let page = html(&document());
    let (_, theirs) = page.split_once("<table class=\"theirs\"").expect("a table");
    let (theirs, rest) = theirs.split_once("</table>").expect("its end");
    assert!(!theirs.contains("class=\"same\""), "{theirs}");
    let (_, ours) = rest.split_once("<table class=\"ours\"").expect("a table");
    let (ours, _) = ours.split_once("</table>").expect("its end");
    assert_eq!(ours.matches("class=\"same\">").count(), 4, "{ours}");
}

#[test]
fn a_setting_that_is_empty_in_all_rows_is_left_out() {
    let shared = |document: &Value| {
        let shared = first_of(document, |view| view.shared.expect("settings"));
        let names = shared.rows.iter().map(|row| row[0].to_string());
        names.collect::<Vec<_>>().join(" ")
    };
    let mut document = document();
    assert_eq!(shared(&document), "ip paths cpus notes");
    for row in document["rows"].as_array_mut().expect("rows") {
        if row["settings"].is_object() {
            row["settings"]["notes"] = json!([]);
        }
    }
    assert_eq!(shared(&document), "ip paths cpus");
}

/// A document with one row and one figure.
fn one_row(figure: &Value, runs: &[Value]) -> Value {
    let setting = json!({ "x": "1" });
    let runs = runs.iter().map(|value| {
        json!({ "experiment": "one", "setting": setting, "figures": { "f": value }, "flags": [] })
    });
    json!({
        "experiments": [{
            "name": "one", "rounds": 5, "axes": [{ "name": "x" }],
            "figures": [{ "key": "f", "title": "f" }],
        }],
        "rows": [{ "experiment": "one", "setting": setting, "figures": { "f": figure },
                   "runs": 5, "flagged": 0, "missing": null }],
        "runs": runs.collect::<Vec<_>>(),
    })
}

#[test]
fn only_the_outlier_of_small_figures_is_marked() {
    // In thousandths, all of them are 0.010, and so is the outlier.
    let runs = [0.01, 0.01, 0.010_01, 0.010_02, 0.0103].map(Value::from);
    let row = json!({ "median": 0.01, "low": 0.01, "high": 0.01, "outliers": [0.01] });
    let page = html(&one_row(&row, &runs));
    // In the list of all runs, and in that of outlying ones.
    assert_eq!(page.matches(">outlier<").count(), 2);
    assert!(page.contains("<data value=\"0.0103\">0.010</data> <span class=\"flag\">outlier<"));
    assert!(page.contains("Flagged and outlying runs (1)"));
}

#[test]
fn runs_that_are_two_groups_are_shown_as_two() {
    let groups = json!([{ "median": 42.0, "runs": 3 }, { "median": 3398.0, "runs": 1 }]);
    let row = json!({ "median": 53.5, "low": 41.0, "high": 3398.0, "rounds": 4, "groups": groups });
    let document = one_row(&row, &[41.0, 41.0, 66.0, 3398.0].map(Value::from));
    let ours = first_of(&document, |view| lines(view.ours));
    assert!(ours[0].contains("42 (3 of 4) | 3,398 (1 of 4)"), "{ours:?}");
    let text = text(&html(&document));
    assert_eq!(
        text.matches("42 (3 of 4) | 3,398 (1 of 4)").count(),
        2,
        "{text}"
    );
}

#[test]
fn a_claim_on_a_spread_has_the_worst_and_the_best_run_of_each_row() {
    let mut document = document();
    document["claims"][3]["of"] = json!({ "offload": "tso" });
    document["claims"][3]["to"] = json!({ "offload": "none" });
    document["rows"][1]["figures"]["goodput_gbps"]["min"] = 3.25.into();
    document["rows"][1]["figures"]["goodput_gbps"]["max"] = 4.5.into();
    let document = read(&document);
    let view = View::all(&document).remove(0);
    let [table] = &view.extremes[..] else {
        panic!("one table: {:?}", view.extremes)
    };
    let titles: Vec<_> = table.columns.iter().map(|one| one.title.clone()).collect();
    let [none, tso] = ["offload=none", "offload=tso"];
    let expected = [none, tso].map(|side| [format!("worst, {side}"), format!("best, {side}")]);
    assert_eq!(
        (titles[0].clone(), &titles[1..]),
        ("mtu".to_owned(), &expected.concat()[..])
    );
    let cells: Vec<_> = table.rows[0].iter().map(Cell::to_string).collect();
    assert_eq!(cells, ["1500", "3.25", "4.50", "15.7", "16.3"]);
    // That of MTU 9000 has no runs to compare it with.
    assert_eq!(table.rows.len(), 1);
    // The claim is not reproduced: all rows of both sides.
    assert_eq!(view.lost, [0, 1, 3, 4]);
}

#[test]
fn a_figure_that_is_a_text_is_in_its_column() {
    let runs = ["sender", "sender", "sender", "sender", "window"].map(Value::from);
    let row = |times: u64| json!({ "word": "sender", "times": times, "rounds": 5 });
    let shown = |times| {
        let document = one_row(&row(times), &runs);
        first_of(&document, |view| {
            view.ours.expect("a table").rows[0][1].to_string()
        })
    };
    assert_eq!(shown(4), "sender (4 of 5)");
    assert_eq!(shown(5), "sender");
    let text = text(&html(&one_row(&row(4), &runs)));
    assert!(
        text.contains("sender (4 of 5)") && text.contains("window"),
        "{text}"
    );
}

#[test]
fn a_reason_is_shown_only_if_a_claim_is_not_reproduced() {
    let mut document = document();
    let reasons = |document: &Value| first_of(document, |view| view.claims[2].reasons.clone());
    assert_eq!(
        reasons(&document),
        ["Not reproduced: The CPUs are <shared>."]
    );
    document["claims"][3]["verdict"] = "exceeds".into();
    assert_eq!(reasons(&document), [""; 0]);
    document["claims"][3]["if_more"] = "The queue is full.".into();
    assert_eq!(reasons(&document), ["Exceeds: The queue is full."]);
    document["claims"][3]["verdict"] = "direction".into();
    assert_eq!(reasons(&document), [""; 0]);
    // A claim on the spread of all rows has no settings of its own.
    document["claims"][3]["of"] = json!({});
    let of = first_of(&document, |view| view.claims[2].judged[0].of.clone());
    assert_eq!(of, "all settings");
}

#[test]
fn the_legend_is_true_of_quick_runs() {
    let text = text(&html(&document()));
    assert!(
        text.contains("the interval is not, or the runs were quick"),
        "{text}"
    );
    assert!(!text.contains("with its bootstrap interval of 95 %; over all runs"));
}

#[test]
fn a_reason_does_not_repeat_the_settings() {
    let mut document = document();
    let why = |document: &mut Value, why: &str| {
        document["claims"][1]["why"] = why.into();
        first_of(document, |view| view.claims[0].judged[1].why.clone())
    };
    for (reason, shown) in [
        (
            "mtu=9000 offload=tso: number of runs: 1",
            "number of runs: 1",
        ),
        (
            "mtu=9000 offload=none: number of runs: 1",
            "the other setting: number of runs: 1",
        ),
        ("too noisy here: see", "too noisy here: see"),
    ] {
        assert_eq!(why(&mut document, reason), shown);
    }
}

#[test]
fn a_document_without_runs_is_a_page() {
    let empty = json!({ "host": {}, "experiments": [], "rows": [], "claims": [], "runs": [] });
    for document in [empty, json!({})] {
        let text = text(&html(&document));
        assert!(text.contains("No run has ended yet."), "{text}");
        assert!(!text.contains("NaN") && !text.contains("null"));
    }
}

#[test]
fn bars_are_grouped_by_axes_that_vary() {
    let row = |a: &str, b: &str| {
        json!({
            "experiment": "x",
            "setting": { "a": a, "b": b, "c": "only" },
            "figures": { "kpps": { "median": a.len(), "low": b.len(), "high": 3 } },
        })
    };
    let page = |rows: Vec<Value>, claims: Vec<Value>| {
        let axes = [
            json!({ "name": "a", "settings": ["1", "2"] }),
            json!({ "name": "b", "settings": ["p", "q"] }),
            json!({ "name": "c", "settings": ["only"] }),
        ];
        let figures = [json!({ "key": "kpps", "title": "rate" })];
        let one = json!({ "name": "x", "axes": axes, "figures": figures });
        html(&json!({ "experiments": [one], "rows": rows, "claims": claims }))
    };
    let rows = vec![row("1", "p"), row("1", "q"), row("2", "p"), row("2", "q")];
    let grid = page(rows.clone(), vec![]);
    assert_eq!(grid.matches("class=\"group\"").count(), 2);
    assert!(grid.contains("scope=\"rowgroup\">a=2</th>"), "{grid}");
    // What claims compare is side by side and has the colours, wherever its axis stands.
    let compared = page(
        rows.clone(),
        vec![json!({
            "experiment": "x", "claim": "a", "figure": "kpps", "expected": ">= 1",
            "of": { "a": "1" }, "to": { "a": "2" }, "verdict": "direction",
        })],
    );
    assert_eq!(compared.matches("class=\"group\"").count(), 2);
    assert!(
        compared.contains("scope=\"rowgroup\">b=q</th>"),
        "{compared}"
    );
    assert!(compared.contains("<strong>a</strong>"), "{compared}");
    let line = page(vec![row("1", "p"), row("1", "q")], vec![]);
    assert!(!line.contains("class=\"group\"") && line.contains("<th scope=\"row\">q</th>"));
    let single = page(vec![row("1", "p")], vec![]);
    assert!(single.contains("<th scope=\"row\">only</th>"), "{single}");
}

#[test]
fn histograms_are_sums_of_clean_runs() {
    let document = read(&document());
    let parts = Part::all(&document);
    let all = distribution::histograms(&parts[0]);
    let names: Vec<_> = all.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(
        names,
        ["latency_us", "a.rx.batches.poll", "a.rx.batches.wide"]
    );
    let poll = &all[1];
    assert_eq!(poll.bins, [1, 2, 64]);
    // Rounds 0 to 4 have 10 to 14 batches of one packet; round 3 of the second row is flagged.
    assert_eq!(poll.rows[0].1, [60, 25, 500]);
    assert_eq!(poll.rows[1].1, [47, 20, 400]);
    assert_eq!(poll.rows.len(), 5, "a row without runs has no histogram");
    // 100 buckets are too many to draw: neighbours share a bin, and none is lost.
    let wide = &all[2];
    assert!((20..=32).contains(&wide.bins.len()), "{:?}", wide.bins);
    assert!(wide.bins.is_sorted());
    assert_eq!(wide.rows[0].1.iter().sum::<u64>(), 500);
}

#[test]
fn percentiles_are_medians_of_the_runs() {
    let document = read(&document());
    let parts = Part::all(&document);
    let all = distribution::distributions(&parts[0]);
    assert_eq!(all.len(), 1);
    let (name, rows) = &all[0];
    assert_eq!(name, "latency_us");
    assert_eq!((rows[0].1.p50, rows[0].1.max), (42.0, 12_002.0));
    // Four of five runs are clean.
    assert_eq!(rows[1].1.p50, 41.5);
}

#[test]
fn an_exact_figure_rests_on_flagged_runs_too() {
    let document = read(&document());
    let part = &Part::all(&document)[0];
    let row = part.rows[1];
    let count = |exact| part.counted_runs_of(row, exact).len();
    assert_eq!((count(false), count(true)), (4, 5));
}

#[test]
fn rows_with_the_same_settings_in_force_are_one_line() {
    let mut document = document();
    for row in document["rows"].as_array_mut().expect("rows") {
        if row["settings"].is_object() {
            row["settings"] = json!({ "mtu_in_force": row["setting"]["mtu"] });
        }
    }
    let differing = first_of(&document, |view| lines(view.differing));
    let [first, second] = ["1500 | any | 1500", "9000 | tso, gso \"<only>\" | 9000"];
    assert_eq!(differing, [first, second]);
}
