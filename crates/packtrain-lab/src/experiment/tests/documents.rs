//! Results as JSON.

use packtrain_measure::document::{Document, Fields};
use schemars::schema_for;
use serde_json::json;

use super::{RATIO, SPREAD, TEXT, document, document_of, experiment, flagged, measured};
use crate::experiment::known::schemas;
use crate::experiment::{BUILT_IN, Experiment, built_in};
use crate::in_force::InForce;

#[test]
fn the_document_has_rows_claims_and_every_run() {
    let of = |cell: &str, round: usize| match (cell, round) {
        ("p1", 1) => flagged(100.0),
        _ => measured(if cell.starts_with('r') { 3.0 } else { 1.0 }),
    };
    let document = document(&of);
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    assert_eq!(rows[0]["setting"], json!({ "x": "p", "y": "1" }));
    assert_eq!(
        (&rows[0]["runs"], &rows[0]["flagged"]),
        (&json!(5), &json!(1))
    );
    assert_eq!(rows[0]["figures"]["speed"]["rounds"], 4);
    assert_eq!(rows[2]["figures"]["speed"]["median"], 3.0);
    let claims = document["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 2);
    assert_eq!(claims[0]["verdict"], "reproduced");
    assert_eq!(claims[0]["expected"], ">= 2");
    assert_eq!(claims[0]["to"], json!({ "x": "p", "y": "1" }));
    let runs = document["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 20);
    let flags = runs.iter().filter(|run| run["flags"] != json!([])).count();
    assert_eq!(flags, 1);
    assert_eq!(document["experiments"][0]["rounds"], 5);
}

#[test]
fn texts_of_a_file_and_texts_that_are_figures_are_in_the_document() {
    let more = format!("{RATIO}if-not = \"too few CPUs\"\nexact = true");
    let text = format!("{TEXT}\n[[figures]]\nkey = \"who\"\ntitle = \"who\"\n{more}");
    let text = text.replace("[document]", "limits = \"no NIC\"\n\n[document]");
    let experiment = Experiment::read("fake.toml", &text).unwrap();
    let of = |_: &str, _: usize| {
        let mut measured = flagged(1.0);
        measured.figures.insert("who".to_owned(), "sender".into());
        measured
    };
    let document = document_of(&experiment, &of);
    assert_eq!(document["experiments"][0]["limits"], "no NIC");
    let claim = &document["claims"][0];
    assert_eq!(
        (&claim["if_not"], &claim["exact"], &claim["verdict"]),
        (
            &json!("too few CPUs"),
            &json!(true),
            &json!("not reproduced")
        )
    );
    let who = json!({ "word": "sender", "times": 5, "rounds": 5 });
    assert_eq!(document["rows"][0]["figures"]["who"], who);
    assert_eq!(document["rows"][0]["figures"]["speed"]["median"], 1.0);
}

#[test]
fn a_claim_on_a_spread_has_the_settings_that_its_rows_share() {
    let of = |_: &str, round: usize| measured([1.0, 2.0, 1.0, 2.0, 1.0][round]);
    let document = document_of(&experiment(SPREAD), &of);
    let claim = &document["claims"][0];
    assert_eq!(
        (&claim["of"], &claim["to"]),
        (&json!({ "x": "q" }), &json!({ "x": "p" }))
    );
    assert_eq!(document["claims"].as_array().unwrap().len(), 1);
}

#[test]
fn rows_have_six_significant_digits() {
    for (value, expected) in [
        (0.010_24, 0.010_24),
        (0.002_123_456_7, 0.002_123_46),
        (-1_234_567.0, -1_234_570.0),
        (0.0, 0.0),
    ] {
        let document = document(&|_, _| measured(value));
        let figure = &document["rows"][0]["figures"]["speed"];
        for key in ["median", "low", "high", "min", "max"] {
            assert_eq!(figure[key], expected, "{key}");
        }
    }
}

#[test]
fn the_published_schema_is_that_of_the_structures() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema.json");
    let figures = schemas().into_iter();
    let figures = figures.map(|(tool, schema)| (tool.to_owned(), schema.into()));
    let schema = json!({
        "experiment": schema_for!(Document),
        "figures": figures.collect::<Fields>(),
        "in_force": schema_for!(InForce),
    });
    let text = format!("{schema:#}\n");
    if std::env::var_os("PACKTRAIN_SCHEMA").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let published = std::fs::read_to_string(path).unwrap();
    assert!(
        published == text,
        "docs/schema.json is old: run this test with PACKTRAIN_SCHEMA=1, which writes it"
    );
}

/// A page has verdicts on the claims of its experiment. If these change, it has to be run again.
#[test]
fn published_verdicts_are_of_claims_that_are_made() {
    for (name, _) in BUILT_IN {
        let path = format!(
            "{}/../../docs/experiments/{name}.md",
            env!("CARGO_MANIFEST_DIR")
        );
        let page = std::fs::read_to_string(&path).unwrap();
        let (_, runs) = page
            .split_once(&format!("<!-- runs {name} -->"))
            .expect(name);
        let (runs, _) = runs.split_once("<!-- end -->").expect(name);
        let experiment = built_in(name).unwrap();
        let claims: Vec<_> = experiment
            .claims
            .iter()
            .map(|one| &one.claim.claim)
            .collect();
        let cells = runs.lines().filter_map(|line| {
            let cell = line.strip_prefix("| ")?.split(" | ").next()?;
            Some(cell.replace("\\|", "|").replace("&lt;", "<"))
        });
        for cell in cells.filter(|cell| !["", "claim", "---"].contains(&cell.trim())) {
            assert!(
                claims.contains(&&cell),
                "{path}: no claim is {cell:?}: run {name} again"
            );
        }
    }
}
