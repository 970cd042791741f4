//! Figures and tables as text.

use anyhow::{Context, Result, ensure};
use packtrain_measure::host::Head;
use serde_json::Value;

/// A figure in about three digits.
pub fn number(figure: f64) -> String {
    match figure.abs() {
        size if size >= 1000.0 => format!("{figure:.0}"),
        size if size >= 1.0 || size == 0.0 => format!("{figure:.2}"),
        _ => format!("{figure:.3}"),
    }
}

/// The least and the greatest figure; `None` of nothing.
pub fn ends(figures: &[f64]) -> Option<[f64; 2]> {
    let least = figures.iter().copied().reduce(f64::min)?;
    Some([least, figures.iter().copied().fold(least, f64::max)])
}

/// A string without quotes, nothing for `null`, and another value as JSON.
pub fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The head of the first of several documents, which are of one version and one machine.
pub fn common_head<'a>(heads: impl IntoIterator<Item = &'a Head>) -> Result<&'a Head> {
    let properties = |head: &Head| {
        [
            ("version", head.version.clone()),
            ("commit", head.commit.clone().unwrap_or_default()),
            ("machine", head.host.machine.clone()),
            ("kernel", head.host.kernel.clone()),
            ("CPUs", head.host.cpus.to_string()),
        ]
    };
    let mut heads = heads.into_iter();
    let first = heads.next().context("no run")?;
    for head in heads {
        for ((what, one), (_, other)) in properties(first).into_iter().zip(properties(head)) {
            ensure!(
                one == other,
                "the runs do not belong together: {what} is {one} and {other}"
            );
        }
    }
    Ok(first)
}

/// Rows of cells below a head, in columns of one width each: words to the left, figures to the
/// right.
pub fn aligned(
    head: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
    is_word: impl Fn(usize) -> bool,
) -> String {
    let head = head.iter().map(|cell| (*cell).to_owned()).collect();
    let rows: Vec<Vec<String>> = [head].into_iter().chain(rows).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let line = |row: &Vec<String>| {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = width(column);
            if is_word(column) {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            }
        });
        let cells: Vec<String> = cells.collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// A row of a Markdown table, without its ends.
pub fn markdown(cells: &[String]) -> String {
    let cells = cells.iter().map(|text| escaped(text));
    cells.collect::<Vec<_>>().join(" | ")
}

/// Text in a page in Markdown.
pub fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

/// The words of each line of a table.
#[cfg(test)]
pub fn words(table: &str) -> Vec<String> {
    let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    table.lines().map(line).collect()
}
