//! The page of a document of experiments in headless Chromium: it is drawn, it says what the
//! document says, and it can be read on a phone, in the dark, and without a mouse.

mod browser;

use browser::{Browser, Probe, Scheme, Table};
use packtrain_lab::report::html;
use serde_json::Value;

/// The least contrast of text (WCAG 2.2, 1.4.3).
const CONTRAST_MIN: f64 = 4.5;

fn document() -> Value {
    serde_json::from_str(include_str!("document.json")).expect("a document")
}

/// The page in the browser; `None`, with a line that says why, if there is no browser.
fn probe(scheme: Scheme) -> Option<Probe> {
    let Some(browser) = Browser::find() else {
        println!("SKIP: Chromium is not found, which draws reports: apt-get install chromium");
        return None;
    };
    let document = serde_json::from_value(document()).expect("a document");
    Some(browser.probe(&html(&document), scheme))
}

#[test]
fn a_page_is_drawn_and_says_what_the_document_says() {
    let Some(probe) = probe(Scheme::Light) else {
        return;
    };
    check_page(&probe);
    assert!(probe.background > 0.8, "{}", probe.background);
    let document = document();
    let rows: Vec<&Value> = rows(&document).collect();
    check_figures(&probe, &document, &rows);
    check_bars(&probe, &document, &rows);
    check_claims(&probe, &document);
}

#[test]
fn a_page_is_dark_if_the_reader_wants_that() {
    let Some(probe) = probe(Scheme::Dark) else {
        return;
    };
    check_page(&probe);
    assert!(probe.background < 0.05, "{}", probe.background);
}

/// What holds in every colour.
fn check_page(probe: &Probe) {
    assert_eq!(probe.console, ["the page was probed"]);
    assert_eq!(probe.title, "Experiments – packtrain", "no script has run");
    assert_eq!((probe.scripts, probe.broken, probe.unnamed), (0, 0, 0));
    assert_eq!(probe.skip, "MAIN");
    assert_eq!(probe.viewport, "width=device-width, initial-scale=1");
    assert_eq!(probe.widths.len(), 4);
    for (width, layout) in &probe.widths {
        assert_eq!(layout["overflow"], 0, "{width} pixels: {layout}");
        assert_eq!(layout["empty"], 0, "{width} pixels: {layout}");
        assert!(layout["charts"].as_u64() > Some(30), "{layout}");
    }
    let contrast = &probe.contrast;
    assert!(
        contrast["ratio"].as_f64() >= Some(CONTRAST_MIN),
        "{contrast}"
    );
    for table in &probe.tables {
        let name = &table.caption;
        assert!(!name.is_empty() && table.reachable, "{table:?}");
        assert!(table.heads > 0 && table.heads == table.scoped, "{name}");
    }
}

fn rows(document: &Value) -> impl Iterator<Item = &Value> {
    let rows = document["rows"].as_array().expect("rows").iter();
    rows.filter(|row| row["experiment"] == "matrix")
}

fn keys(document: &Value) -> Vec<&str> {
    let figures = document["experiments"][0]["figures"].as_array();
    let figures = figures.expect("figures").iter();
    figures
        .map(|one| one["key"].as_str().expect("a key"))
        .collect()
}

/// Median, low and high of a figure, as the page shows them; nothing if the figure has none.
fn interval(figure: &Value) -> Vec<f64> {
    let values = ["median", "low", "high"].map(|key| figure[key].as_f64());
    values.into_iter().flatten().collect()
}

/// The exact numbers are those of the document, and those that are seen are near them.
fn assert_shows(cell: &browser::Cell, values: &[f64]) {
    let exact: Vec<f64> = cell
        .values
        .iter()
        .map(|value| value.parse().expect("a number"))
        .collect();
    assert_eq!(exact, values, "{cell:?}");
    let is_part = |c: char| c.is_ascii_digit() || ".,-".contains(c);
    let words = cell
        .text
        .split(|c: char| !is_part(c))
        .map(|word| word.trim_matches(','));
    let seen: Vec<f64> = words
        .filter_map(|word| word.replace(',', "").parse().ok())
        .collect();
    assert_eq!(seen.len(), values.len(), "{cell:?}");
    for (seen, value) in seen.iter().zip(values) {
        assert!(
            (seen - value).abs() <= (value.abs() * 0.005).max(0.0005),
            "{cell:?}"
        );
    }
}

fn table<'a>(probe: &'a Probe, caption: &str) -> &'a Table {
    let mut tables = probe.tables.iter().filter(|table| table.section == "e0");
    let found = tables.find(|table| table.caption == caption);
    found.unwrap_or_else(|| panic!("there is no table {caption}"))
}

fn check_figures(probe: &Probe, document: &Value, rows: &[&Value]) {
    let table = table(probe, "Medians of 5 rounds [least, greatest: 94 %]");
    assert_eq!(table.rows.len(), rows.len());
    for (cells, row) in table.rows.iter().zip(rows) {
        assert_eq!(
            cells[0].text,
            row["setting"]["mtu"].as_str().expect("a name")
        );
        assert_eq!(
            cells[1].text,
            row["setting"]["offload"].as_str().expect("a name")
        );
        if !row["missing"].is_null() {
            assert_eq!(cells[2].text, "not shown here");
            continue;
        }
        for (cell, key) in cells[2..].iter().zip(keys(document)) {
            assert_shows(cell, &interval(&row["figures"][key]));
        }
        let runs = &cells[4].text;
        assert_eq!(runs.contains("flagged"), row["flagged"] != 0, "{runs}");
    }
}

/// Rows with the figure have bars, which are as long as the medians say.
fn check_bars(probe: &Probe, document: &Value, rows: &[&Value]) {
    let captions = [
        "goodput, Gbit/s (higher is better)",
        "CPU <cost>, % per Gbit/s (lower is better)",
    ];
    for (caption, key) in captions.into_iter().zip(keys(document)) {
        let table = table(probe, caption);
        // The rows between are the heads of groups.
        let bars: Vec<_> = table.rows.iter().filter(|cells| cells.len() > 1).collect();
        let rows: Vec<_> = rows
            .iter()
            .filter(|row| !row["figures"][key].is_null())
            .collect();
        assert_eq!(bars.len(), rows.len());
        let mut scale = None;
        for (cells, row) in bars.iter().zip(rows) {
            let values = interval(&row["figures"][key]);
            assert_shows(&cells[2], &values);
            assert_eq!(cells[1].bar.len(), 1, "{cells:?}");
            let whole = values[0] / cells[1].bar[0];
            let scale = *scale.get_or_insert(whole);
            assert!((whole / scale - 1.0).abs() < 0.02, "{whole} and {scale}");
        }
        assert!(scale.is_some(), "{caption}");
    }
}

fn check_claims(probe: &Probe, document: &Value) {
    let claims = document["claims"].as_array().expect("claims");
    let tables = probe.tables.iter().filter(|table| table.kind == "claims");
    let shown: Vec<_> = tables.flat_map(|table| &table.rows).collect();
    assert_eq!(shown.len(), claims.len());
    for (cells, claim) in shown.iter().zip(claims) {
        let verdict = claim["verdict"].as_str().expect("a verdict");
        let badge = cells[0].text.split_once(' ');
        assert_eq!(badge.map(|(_, word)| word), Some(verdict), "{cells:?}");
        let shown = &cells[if claim["to"].is_null() { 2 } else { 3 }];
        let measured = &claim["measured"];
        if measured.is_null() {
            assert_eq!(shown.text, "–");
            let why = claim["why"].as_str().expect("a reason");
            assert_eq!(cells.last().map(|cell| &*cell.text), Some(why));
        } else {
            assert_shows(shown, &interval(measured));
        }
    }
}
