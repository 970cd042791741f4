//! The rows of the contest, printed and as JSON.

use crate::loops::contest::Row;
use crate::loops::work::Work;
use packtrain_measure::Verdict;
use packtrain_measure::report::{Conditions, envelope, goal, met, rounded};
use serde_json::{Value, json};

/// The heads of the columns of [`print_row`].
pub fn print_head() {
    println!(
        "{:<40} {:>6} {:>10} {:<26} {:>10} {:>7} {:>15} {:>6} {:<14} {:>6} {:>6}",
        "row", "flows", "ours ns", "beside", "ns", "ratio", "95 %", "goal", "", "merge", "theirs"
    );
}

/// One line.
pub fn print_row(row: &Row) {
    let figure = |value: Option<f64>, places| match value {
        Some(value) => format!("{value:.places$}"),
        None => "-".to_owned(),
    };
    let ns = |value: Option<f64>| figure(value, if value > Some(1000.0) { 0 } else { 2 });
    let interval = row.ratio.map_or(String::new(), |ratio| {
        format!("{:.2} .. {:.2}", ratio.low, ratio.high)
    });
    let mut line = format!(
        "{:<40} {:>6} {:>10} {:<26} {:>10} {:>7} {:>15} {:>6} {:<14} {:>6} {:>6}",
        row.work.row(),
        row.work.flows(),
        ns(row.ours_ns),
        row.peer,
        ns(row.peer_ns),
        figure(row.ratio.map(|ratio| ratio.median), 2),
        interval,
        figure(goal(row.expected), 2),
        row.verdict.map_or("", Verdict::name),
        figure(row.ours_merge, 2),
        figure(row.peer_merge, 2),
    );
    for note in notes(row) {
        line.push_str("  ");
        line.push_str(&note);
    }
    println!("{}", line.trim_end());
}

fn notes(row: &Row) -> Vec<String> {
    let mut notes: Vec<String> = row.note.iter().cloned().collect();
    if let Some(goal) = row.work.merge_goal()
        && row.ours_merge.is_some_and(|merge| merge < goal)
    {
        notes.push(format!("merge ratio below {goal}"));
    }
    if let Some(ratio) = row.ratio
        && ratio.count < 15
    {
        notes.push(format!("{} rounds", ratio.count));
    }
    if row.disturbed > 0 {
        notes.push(format!("{} samples were interrupted", row.disturbed));
    }
    notes
}

/// The goals that were met, and the peers not found.
pub fn print_summary(rows: &[Row]) {
    println!("\n{}", met(rows.iter().map(|row| row.verdict)));
    let mut missing: Vec<String> = rows
        .iter()
        .filter_map(|row| match row.note.as_deref()? {
            note if note.starts_with("our side") => Some(format!("{}: {note}", row.work.row())),
            _ if row.peer == crate::loops::ours::BEST_PEER => None,
            note => Some(format!("{}: {note}", row.peer)),
        })
        .collect();
    missing.sort();
    missing.dedup();
    for line in missing {
        println!("missing: {line}");
    }
}

/// The JSON document.
pub fn document(conditions: &Conditions, rounds: usize, rows: &[Row]) -> Value {
    let rows: Vec<Value> = rows.iter().map(row_document).collect();
    envelope("bench offload", conditions, rounds, &rows)
}

fn row_document(row: &Row) -> Value {
    json!({
        "row": row.work.row(),
        "flows": row.work.flows(),
        "unit": row.work.unit(),
        "footprint_bytes": row.work.footprint(),
        "peer": (!row.peer.is_empty()).then_some(&row.peer),
        "ours_ns": rounded(row.ours_ns),
        "peer_ns": rounded(row.peer_ns),
        "ratio": rounded(row.ratio.map(|ratio| ratio.median)),
        "ratio_low": rounded(row.ratio.map(|ratio| ratio.low)),
        "ratio_high": rounded(row.ratio.map(|ratio| ratio.high)),
        "rounds": row.ratio.map_or(0, |ratio| ratio.count),
        "interrupted": row.disturbed,
        "goal": rounded(goal(row.expected)),
        "ours_merge": rounded(row.ours_merge),
        "peer_merge": rounded(row.peer_merge),
        "merge_goal": rounded(row.work.merge_goal()),
        "ours_gb_per_s": rounded(bandwidth(row, row.ours_ns)),
        "peer_gb_per_s": rounded(bandwidth(row, row.peer_ns)),
        "missing": row.note,
        "verdict": row.verdict.map(Verdict::name),
    })
}

/// The rows of a JSON document with their times, for charts.
///
/// # Errors
///
/// If a row has an unknown work.
pub fn rows_of(document: &Value) -> Result<Vec<Row>, String> {
    let rows = document["rows"].as_array().ok_or("no rows")?;
    let row = |row: &Value| {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let name = text("row");
        let is_same = |work: &Work| {
            work.row() == name && Some(u64::from(work.flows())) == row["flows"].as_u64()
        };
        let work = Work::all().into_iter().find(is_same);
        Ok(Row {
            ours_ns: row["ours_ns"].as_f64(),
            peer_ns: row["peer_ns"].as_f64(),
            ..Row::new(
                work.ok_or(format!("no work is called {name}"))?,
                &text("peer"),
            )
        })
    };
    rows.iter().map(row).collect()
}

fn bandwidth(row: &Row, ns: Option<f64>) -> Option<f64> {
    Some(row.work.bytes()? as f64 / ns?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_from_a_document() {
        let works = Work::all();
        let mut rows: Vec<Row> = works.iter().map(|work| Row::new(*work, "peer")).collect();
        rows[1].ours_ns = Some(2.5);
        let document = document(&Conditions::default(), 3, &rows);
        let back = rows_of(&document).unwrap();
        assert!(back.iter().map(|row| row.work).eq(works));
        assert_eq!((back[1].ours_ns, back[0].ours_ns), (Some(2.5), None));
        assert_eq!(back[0].peer, "peer");
        let error = rows_of(&json!({"rows": [{"row": "x", "flows": 1}]})).unwrap_err();
        assert_eq!(error, "no work is called x");
        assert!(rows_of(&json!({})).is_err());
    }
}
