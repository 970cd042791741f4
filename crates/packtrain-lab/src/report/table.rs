//! Tables that scroll within their own box.

use packtrain_measure::document::Setting;
use packtrain_measure::markup::Markup;
use packtrain_measure::numbers::number;
use packtrain_measure::statistics::Estimate;

use super::read::Part;
use super::view::{Cell, Column, Kind, Table};

/// A table with a caption, in a box that scrolls by itself.
pub fn scrolling(m: &mut Markup, caption: &str, inner: impl FnOnce(&mut Markup)) {
    boxed(m, "", caption, inner);
}

/// A table of a class.
pub fn boxed(m: &mut Markup, class: &str, caption: &str, inner: impl FnOnce(&mut Markup)) {
    m.element(
        "div",
        &[
            ("class", "scroll"),
            ("role", "region"),
            ("tabindex", "0"),
            ("aria-label", caption),
        ],
        |m| {
            m.element("table", &[("class", class)], |m| {
                m.element("caption", &[], |m| m.leaf("span", &[], caption));
                inner(m);
            });
        },
    );
}

/// A table of the view.
pub fn draw(m: &mut Markup, class: &str, table: &Table) {
    boxed(m, class, &table.caption, |m| {
        heads(m, |m| {
            for column in &table.columns {
                head(m, &column.title, column.kind == Kind::Number);
            }
        });
        m.element("tbody", &[], |m| {
            let mut before = None;
            for row in &table.rows {
                m.element("tr", &[], |m| cells(m, &table.columns, row, before));
                before = Some(row);
            }
        });
    });
}

/// The cells of a row. Names that the row before has too are dimmed, but for the last.
fn cells(m: &mut Markup, columns: &[Column], row: &[Cell], before: Option<&Vec<Cell>>) {
    let mut same = true;
    let names = columns.iter().filter(|column| column.kind == Kind::Name);
    let last = names.count().saturating_sub(1);
    for (at, (cell, column)) in row.iter().zip(columns).enumerate() {
        match (cell, column.kind) {
            (Cell::NotShown, _) => {
                let rest = (columns.len() - at).to_string();
                let attributes = [("colspan", &*rest), ("class", "missing")];
                m.leaf("td", &attributes, &cell.to_string());
            }
            (_, Kind::Name) => {
                same &= at < last && before.is_some_and(|before| before.get(at) == Some(cell));
                let class = if same { "same" } else { "" };
                let attributes = [("scope", "row"), ("class", class)];
                m.leaf("th", &attributes, &cell.to_string());
            }
            (_, Kind::Words) => m.leaf("td", &[], &cell.to_string()),
            (_, Kind::Number) => m.element("td", &[("class", "n")], |m| number_of(m, cell)),
        }
    }
}

/// A cell of a column of numbers.
pub fn number_of(m: &mut Markup, of: &Cell) {
    match of {
        Cell::Number(value) => exact(m, *value),
        Cell::Estimate(estimate) => interval(m, estimate.as_ref()),
        Cell::Runs(runs, flagged) if *flagged > 0 => {
            m.text(&format!("{runs}, "));
            m.leaf("span", &[("class", "flag")], &format!("{flagged} flagged"));
        }
        _ => m.text(&of.to_string()),
    }
}

/// The head of a column.
pub fn head(m: &mut Markup, text: &str, is_number: bool) {
    let class = if is_number { "n" } else { "" };
    m.leaf("th", &[("scope", "col"), ("class", class)], text);
}

/// The heads of columns.
pub fn heads(m: &mut Markup, of: impl FnOnce(&mut Markup)) {
    m.element("thead", &[], |m| m.element("tr", &[], of));
}

/// The heads of the axes.
pub fn axes(m: &mut Markup, part: &Part<'_>) {
    for axis in part.axes() {
        head(m, &axis.name, false);
    }
}

/// The setting of each axis, as heads of a row.
pub fn settings(m: &mut Markup, part: &Part<'_>, of: &Setting) {
    for axis in part.axes() {
        m.leaf("th", &[("scope", "row")], of.of(&axis.name));
    }
}

/// A number as people read it, with the exact one in the markup.
pub fn exact(m: &mut Markup, value: f64) {
    m.leaf("data", &[("value", &value.to_string())], &number(value));
}

/// A median with its interval, which is left out if it is nothing but the median.
pub fn interval(m: &mut Markup, estimate: Option<&Estimate>) {
    let Some(estimate) = estimate else {
        return m.text("–");
    };
    exact(m, estimate.median);
    if !estimate.is_exact() {
        m.text(" ");
        m.element("span", &[("class", "interval")], |m| {
            m.text("[");
            exact(m, estimate.low);
            m.text(", ");
            exact(m, estimate.high);
            m.text("]");
        });
    }
}

/// A cell with a number, or without one.
pub fn cell(m: &mut Markup, value: Option<f64>) {
    m.element("td", &[("class", "n")], |m| match value {
        Some(value) => exact(m, value),
        None => m.text("–"),
    });
}
