//! Lines and tables, as text and as a page.

use crate::print::Style;
use crate::table::Table;
use packtrain_measure::markup::Markup;

/// What is shown.
#[derive(Default)]
pub struct Shown(Vec<Part>);

enum Part {
    Lines(String),
    Table(Table),
}

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:75em;\
padding:0 1em}table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .7em;\
border-bottom:1px solid #8884;vertical-align:top;text-align:left}.right{text-align:right;\
font-variant-numeric:tabular-nums}.bar{font-family:monospace;color:#2471a3;white-space:pre}\
@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}.bar{color:#5dade2}}";

impl Shown {
    /// Adds lines, each with its end.
    pub fn lines(&mut self, lines: String) {
        self.0.push(Part::Lines(lines));
    }

    /// Adds a table, if it has rows.
    pub fn table(&mut self, table: Table) {
        if !table.is_empty() {
            self.0.push(Part::Table(table));
        }
    }

    /// The text.
    pub fn text(&self, style: Style) -> String {
        let parts = self.0.iter().enumerate().map(|(at, part)| match part {
            Part::Lines(lines) => lines.clone(),
            Part::Table(table) if at == 0 => table.render(0, style),
            Part::Table(table) => format!("\n{}", table.render(0, style)),
        });
        parts.collect()
    }

    /// A page with this heading, without anything to load.
    pub fn page(&self, heading: &str) -> String {
        Markup::page("packtrain replay", STYLE, |m| {
            m.leaf("h1", &[], heading);
            for part in &self.0 {
                match part {
                    Part::Lines(lines) => {
                        let lines = lines.lines().filter(|line| !line.is_empty());
                        lines.for_each(|line| m.leaf("p", &[], line));
                    }
                    Part::Table(table) => table.page(m),
                }
            }
        })
    }
}
