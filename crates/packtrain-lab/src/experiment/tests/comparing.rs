//! Two documents, row by row.

use packtrain_measure::document::Document;
use serde_json::{Value, json};

use super::{RATIO, SPREAD, document, document_of, experiment, flagged, measured};
use crate::experiment::compare::{Change, Comparison, compare};
use crate::options::Fields;
use crate::tool::Measured;

fn saved(document: &Value) -> Document {
    Document::read(&document.to_string()).expect("a document of experiments")
}

fn compared(a: &Value, b: &Value, tolerance: f64) -> Comparison {
    compare(&saved(a), &saved(b), tolerance).expect("rows in common")
}

#[test]
fn documents_are_compared_row_by_row() {
    let slower = |cell: &str, _: usize| match cell {
        "p1" => measured(0.9),
        "p2" => measured(0.97),
        "r1" => measured(1.2),
        _ => flagged(0.1),
    };
    let a = document(&|_, _| measured(1.0));
    let mut b = document(&slower);
    let comparison = compared(&a, &b, 0.05);
    let changes: Vec<Change> = comparison.rows.iter().map(|row| row.change).collect();
    use Change::{Improvement, NotJudged, Regression, Within};
    assert_eq!(changes, [Regression, Within, Improvement, NotJudged]);
    assert_eq!(comparison.rows[0].ratio.unwrap().median, 0.9);
    assert_eq!(comparison.regressions().count(), 1);
    assert!(compared(&a, &b, 0.2).regressions().next().is_none());
    // A row that is wide is no regression while its interval reaches the tolerance.
    let wide = document(&|_, round| measured([0.5, 0.6, 0.9, 0.96, 1.0][round]));
    assert_eq!(compared(&a, &wide, 0.05).regressions().count(), 0);
    // Where less is better, more is a regression, also from 0.
    let lower = |document: &Value| {
        let mut document = document.clone();
        document["experiments"][0]["figures"][0]["better"] = "lower".into();
        document
    };
    let zero = document(&|_, _| measured(0.0));
    let comparison = compared(&lower(&zero), &a, 0.05);
    assert_eq!(comparison.regressions().count(), 4);
    assert_eq!(comparison.rows[0].ratio, None);
    b["rows"].as_array_mut().unwrap().remove(1);
    let comparison = compared(&a, &b, 0.05);
    assert_eq!(comparison.missing.len(), 1);
    assert_eq!(comparison.missing[0].of, "B");
    assert_eq!(comparison.missing[0].setting.to_string(), "x=p y=2");
    assert_eq!(compared(&b, &a, 0.05).missing[0].of, "A");
}

#[test]
fn rows_with_few_clean_runs_are_not_compared() {
    let a = document(&|_, _| measured(1.0));
    let of = |flags: usize| {
        move |_: &str, round: usize| match round {
            round if round < flags => flagged(1.0),
            _ => measured(0.1),
        }
    };
    let change = |a: &Value, b: &Value| compared(a, b, 0.05).rows[0].change;
    use Change::{Improvement, NotJudged, Regression};
    for (flags, there, back) in [
        (2, Regression, Improvement),
        (3, NotJudged, NotJudged),
        (5, NotJudged, NotJudged),
    ] {
        let b = document(&of(flags));
        assert_eq!((change(&a, &b), change(&b, &a)), (there, back));
    }
}

#[test]
fn counts_that_no_load_changes_are_compared_in_flagged_runs_too() {
    let change = |claim: &str| {
        let experiment = experiment(claim);
        let document = |speed: f64| {
            let of = |_: &str, round: usize| match round {
                0 => measured(speed),
                _ => flagged(speed),
            };
            document_of(&experiment, &of)
        };
        let (a, b) = (document(1.0), document(0.5));
        let row = compared(&a, &b, 0.05).rows.remove(0);
        row.change
    };
    let exact = format!("{RATIO}exact = true");
    assert_eq!(change(RATIO), Change::NotJudged);
    assert_eq!(change(&exact), Change::Regression);
    // A run that failed has no figures, and does not count.
    let of = |speed: f64| {
        let of = move |_: &str, round: usize| match round {
            0..2 => Measured {
                figures: Fields::new(),
                ..flagged(speed)
            },
            _ => flagged(speed),
        };
        document_of(&experiment(&exact), &of)
    };
    let row = compared(&of(1.0), &of(0.5), 0.05).rows.remove(0);
    assert_eq!(row.change, Change::Regression);
}

#[test]
fn a_quick_run_and_a_long_one_are_compared_with_a_note() {
    let long = document(&|_, _| measured(1.0));
    let with = |quick: bool| {
        let mut document = long.clone();
        document["quick"] = quick.into();
        document
    };
    let notes = |a, b| compared(&with(a), &with(b), 0.05).notes;
    let note = "A is a quick run and B is not: their runs differ in duration";
    assert_eq!(notes(true, false), [note]);
    let note = "B is a quick run and A is not: their runs differ in duration";
    assert_eq!(notes(false, true), [note]);
    assert_eq!(notes(true, true), ["A is a quick run", "B is a quick run"]);
    assert_eq!(notes(false, false), [""; 0]);
}

#[test]
fn a_document_is_read_as_it_was_written() {
    let of = |_: &str, round: usize| match round {
        0 => flagged(1.0),
        _ => measured(round as f64),
    };
    for claim in [RATIO, SPREAD] {
        let value = document_of(&experiment(claim), &of);
        assert_eq!(json!(saved(&value)), value);
    }
}

#[test]
fn only_documents_of_experiments_are_compared() {
    let good = document(&|_, _| measured(1.0));
    for (key, value, expected) in [
        (
            "schema",
            json!("packtrain/9"),
            "its schema is \"packtrain/9\", not \"packtrain/1\"",
        ),
        (
            "command",
            json!("forward"),
            "its command is \"forward\", not \"experiment\"",
        ),
        ("schema", Value::Null, "it has no schema"),
        ("rows", json!(3), "it has no rows"),
    ] {
        let mut other = good.clone();
        other[key] = value;
        assert_eq!(Document::read(&other.to_string()).unwrap_err(), expected);
    }
}

#[test]
fn documents_without_a_common_row_are_not_compared() {
    let a = document(&|_, _| measured(1.0));
    let error = |b: &Value| compare(&saved(&a), &saved(b), 0.05).unwrap_err();
    let line = |rows: &str| {
        format!(
            "A and B have no row of the same experiment and settings: A has rows of fake, B has \
             {rows}; name two files that packtrain experiment NAME --save FILE wrote with the same \
             NAME"
        )
    };
    let mut b = a.clone();
    for row in b["rows"].as_array_mut().unwrap() {
        row["experiment"] = "other".into();
    }
    assert_eq!(error(&b), line("rows of other"));
    b["rows"] = json!([]);
    assert_eq!(error(&b), line("no rows"));
}
