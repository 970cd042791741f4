//! Tables that scroll within their own box.

use serde_json::Value;

use super::markup::Markup;
use super::numbers::number;
use super::read::{Estimate, word};

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

/// The head of a column.
pub fn head(m: &mut Markup, text: &str, is_number: bool) {
    let class = if is_number { "n" } else { "" };
    m.leaf("th", &[("scope", "col"), ("class", class)], text);
}

/// The heads of columns.
pub fn heads(m: &mut Markup, of: impl FnOnce(&mut Markup)) {
    m.element("thead", &[], |m| m.element("tr", &[], of));
}

/// The setting of each axis, as heads of a row. What the row before has too is dimmed.
pub fn settings(m: &mut Markup, axes: &[&str], row: &Value, before: Option<&Value>) {
    let mut same = true;
    for axis in axes {
        let name = &row["setting"][axis];
        same &= before.is_some_and(|before| before["setting"][axis] == *name);
        let class = if same { "same" } else { "" };
        m.leaf("th", &[("scope", "row"), ("class", class)], &word(name));
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
    if estimate.low != estimate.high || estimate.low != estimate.median {
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
