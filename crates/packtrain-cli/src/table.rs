//! Text in columns, and numbers for people.

use crate::print::Style;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Width};
use comfy_table::{LineStyle, TableStyle};
use packtrain::name::printable;
use packtrain_measure::markup::Markup;
pub use packtrain_measure::numbers::grouped;
use packtrain_measure::numbers::prefixed;

/// The length of the longest bar of a column.
pub const BAR_COLUMNS: usize = 24;

/// Spaces between two columns.
const GAP: usize = 2;

/// The line between head and rows, by which the lines of the head are known. It is not shown.
const UNDER_HEAD: char = '─';

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// For words.
    Left,
    /// For numbers.
    Right,
    /// For bars, which are left out if the terminal is too narrow for them.
    Bar,
}

/// Rows under a heading. Each column is as wide as its widest cell, or, on a narrower terminal, as
/// the longest word of its cells at least.
#[derive(Debug)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new<S: Into<String>>(columns: impl IntoIterator<Item = (S, Align)>) -> Self {
        Self {
            columns: columns
                .into_iter()
                .map(|(name, align)| (printable(&name.into()), align))
                .collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; cells that are left out at the end are empty. What a name from outside may have
    /// in a cell, also of the head, is escaped.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let cells = cells.into_iter().map(|cell| printable(&cell.into()));
        self.rows.push(cells.collect());
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        self.rows.clear();
    }

    /// Whether there is any row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The text, each line indented by `indent` columns.
    pub fn render(&self, indent: usize, style: Style) -> String {
        let all: Vec<usize> = (0..self.columns.len()).collect();
        let is_text = |at: &usize| self.columns[*at].1 != Align::Bar;
        let texts: Vec<usize> = all.iter().copied().filter(is_text).collect();
        let lines = match style.columns() {
            None => self.lines(&all, GAP, None, style),
            Some(columns) => {
                let width = columns.saturating_sub(indent);
                let forms = [(&all, GAP), (&texts, GAP), (&texts, 1)];
                let mut forms = forms.into_iter();
                match forms.find(|(shown, gap)| self.least(shown, *gap) <= width) {
                    Some((shown, gap)) => self.lines(shown, gap, Some(width), style),
                    None => self.list(&texts),
                }
            }
        };
        let indent = " ".repeat(indent);
        let line = |line: String| format!("{}\n", format!("{indent}{line}").trim_end());
        lines.into_iter().map(line).collect()
    }

    /// The table on a page.
    pub fn page(&self, m: &mut Markup) {
        let class = |align| match align {
            Align::Left => "",
            Align::Right => "right",
            Align::Bar => "bar",
        };
        m.element("table", &[], |m| {
            m.element("tr", &[], |m| {
                for (head, align) in &self.columns {
                    m.leaf("th", &[("class", class(*align))], head);
                }
            });
            for row in &self.rows {
                m.element("tr", &[], |m| {
                    for (cell, (_, align)) in row.iter().zip(&self.columns) {
                        m.leaf("td", &[("class", class(*align))], cell);
                    }
                });
            }
        });
    }

    /// The head and the cells of a column.
    fn cells(&self, at: usize) -> impl Iterator<Item = &str> {
        let cells = self.rows.iter().filter_map(move |row| row.get(at));
        let head = &self.columns[at].0;
        std::iter::once(head).chain(cells).map(String::as_str)
    }

    /// The width of the longest word of a column. A bar is a word.
    fn longest_word(&self, at: usize) -> usize {
        let is_bar = self.columns[at].1 == Align::Bar;
        let longest = |cell: &str| {
            let words = cell.split(move |c| c == ' ' && !is_bar);
            words.map(|word| word.chars().count()).max()
        };
        self.cells(at).filter_map(longest).max().unwrap_or(0)
    }

    /// The least width of a table of the columns `shown`.
    fn least(&self, shown: &[usize], gap: usize) -> usize {
        let words = shown.iter().map(|&at| self.longest_word(at) + gap);
        words.sum::<usize>().saturating_sub(gap)
    }

    fn lines(
        &self,
        shown: &[usize],
        gap: usize,
        width: Option<usize>,
        style: Style,
    ) -> Vec<String> {
        let under = LineStyle::none().fill(UNDER_HEAD);
        let mut table = comfy_table::Table::new();
        table.load_style(TableStyle::new().header_separator(under));
        table.set_header(shown.iter().map(|&at| self.columns[at].0.as_str()));
        for row in &self.rows {
            let cells = shown
                .iter()
                .map(|&at| row.get(at).map_or("", String::as_str));
            table.add_row(cells);
        }
        if let Some(width) = width {
            // The gap after the last column is not shown.
            table.set_content_arrangement(ContentArrangement::Dynamic);
            table.set_width(u16::try_from(width + gap).unwrap_or(u16::MAX));
        }
        for (column, &at) in table.column_iter_mut().zip(shown) {
            column.set_padding((0, gap as u16));
            column.set_cell_alignment(match self.columns[at].1 {
                Align::Left | Align::Bar => CellAlignment::Left,
                Align::Right => CellAlignment::Right,
            });
            if width.is_some() {
                let least = u16::try_from(self.longest_word(at) + gap).unwrap_or(u16::MAX);
                column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least)));
            }
        }
        let is_under = |line: &String| line.chars().all(|c| c == UNDER_HEAD);
        let mut lines: Vec<String> = table.lines().collect();
        if let Some(head) = lines.iter().position(is_under) {
            lines.remove(head);
            for line in &mut lines[..head] {
                *line = style.bold(line.trim_end());
            }
        }
        let trimmed = lines.into_iter().map(|line| line.trim_end().to_owned());
        trimmed.collect()
    }

    /// A line for each cell, for a terminal on which no table fits.
    fn list(&self, shown: &[usize]) -> Vec<String> {
        let of_row = |row: &Vec<String>| -> Vec<String> {
            let cells = shown.iter().filter_map(|&at| Some((at, row.get(at)?)));
            let filled = cells.filter(|(_, cell)| !cell.is_empty());
            let lines = filled.map(|(at, cell)| match self.columns[at].0.as_str() {
                "" => cell.clone(),
                head => format!("{head}: {cell}"),
            });
            lines.chain([String::new()]).collect()
        };
        self.rows.iter().flat_map(of_row).collect()
    }
}

/// A rate in three to four digits with a decimal prefix: 12.3 M.
pub fn scaled(rate: f64) -> String {
    let (value, prefix) = prefixed(rate);
    let decimals = if prefix.is_empty() || value >= 100.0 {
        0
    } else {
        1
    };
    format!("{value:.decimals$} {prefix}")
}

/// A bar whose length is `value` on a scale of `columns` that ends at `most`, in eighths of a
/// column. What is more than 0 has a bar.
pub fn bar(value: f64, most: f64, columns: usize) -> String {
    let eighths = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let share = if most > 0.0 { value / most } else { 0.0 };
    let length = (share.clamp(0.0, 1.0) * (columns * 8) as f64).round() as usize;
    let length = length.max(usize::from(share > 0.0));
    let mut bar = "█".repeat(length / 8);
    if !length.is_multiple_of(8) {
        bar.push(eighths[length % 8]);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_nothing_trails() {
        let mut table = Table::new([
            ("name", Align::Left),
            ("n", Align::Right),
            ("why", Align::Left),
        ]);
        table.row(["a", "12,345", "because"]);
        table.row(["longer", "1", ""]);
        assert_eq!(
            table.render(2, Style::PLAIN),
            "  name         n  why\n  a       12,345  because\n  longer       1\n"
        );
    }

    /// A table like that of the demo.
    fn wide() -> Table {
        let mut table = Table::new([
            ("offload", Align::Left),
            ("transfer", Align::Left),
            ("Gbit/s", Align::Right),
            ("goodput", Align::Bar),
            ("wire packets", Align::Right),
            ("why", Align::Left),
        ]);
        let why = "the device does not complete checksums of packets in a tunnel";
        for name in ["none", "full"] {
            let bar = "█".repeat(24);
            table.row([name, "TCP/IPv4 a -> b", "1.00", &bar, "1,234,567", why]);
        }
        table
    }

    #[test]
    fn a_table_fits_its_terminal() {
        let table = wide();
        let widest = |text: &str| text.lines().map(|line| line.chars().count()).max();
        let natural = widest(&table.render(0, Style::PLAIN)).expect("lines");
        for width in 20..natural + 20 {
            let text = table.render(2, Style::on(width));
            if width < 45 {
                // No table fits: a line for each cell.
                assert!(
                    text.contains("  wire packets: 1,234,567\n"),
                    "{width}: {text}"
                );
                continue;
            }
            assert!(widest(&text) <= Some(width), "{width}: {text}");
            // Every number, and every word of a text, is in one piece.
            for word in ["1,234,567", "TCP/IPv4", "checksums"] {
                assert_eq!(text.matches(word).count(), 2, "{width}: {text}");
            }
        }
        // A terminal that is wide enough changes nothing.
        let whole = table.render(0, Style::PLAIN);
        for width in [natural, 200] {
            assert_eq!(table.render(0, Style::on(width)), whole);
        }
        assert!(!table.render(0, Style::on(60)).contains('█'));
    }

    #[test]
    fn bars() {
        assert_eq!(bar(0.0, 10.0, 24), "");
        assert_eq!(bar(10.0, 10.0, 24), "█".repeat(24));
        assert_eq!(bar(11.0, 10.0, 24), "█".repeat(24));
        assert_eq!(bar(10.0 / 24.0 * 1.5, 10.0, 24), "█▌");
        assert_eq!(bar(1.0, 1e6, 24), "▏");
        assert_eq!(bar(1.0, 0.0, 24), "");
        assert_eq!(bar(f64::NAN, 1.0, 24), "");
    }

    #[test]
    fn numbers() {
        assert_eq!(scaled(0.0), "0 ");
        assert_eq!(scaled(999.0), "999 ");
        assert_eq!(scaled(12_345.0), "12.3 k");
        assert_eq!(scaled(812_000.0), "812 k");
        assert_eq!(scaled(2.5e9), "2.5 G");
    }
}
