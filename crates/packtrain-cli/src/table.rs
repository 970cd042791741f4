//! Text in columns, and numbers for people.

use crate::print::Style;
use packtrain_lab::units::PREFIXES;

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

/// Rows under a heading, each column as wide as its widest cell.
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
                .map(|(name, align)| (name.into(), align))
                .collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; cells that are left out at the end are empty.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
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
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(index, (name, _))| {
                let cells = self.rows.iter().filter_map(|row| row.get(index));
                cells
                    .chain([name])
                    .map(|cell| cell.chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let names: Vec<_> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let mut text = String::new();
        push_line(&mut text, indent, &style.bold(&self.line(&names, &widths)));
        for row in &self.rows {
            push_line(&mut text, indent, &self.line(row, &widths));
        }
        text
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for ((cell, width), (_, align)) in cells.iter().zip(widths).zip(&self.columns) {
            let gap = " ".repeat(width - cell.chars().count());
            if !line.is_empty() {
                line.push_str("  ");
            }
            match align {
                Align::Left => line.extend([cell.as_str(), &gap]),
                Align::Right => line.extend([&gap, cell.as_str()]),
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

fn push_line(text: &mut String, indent: usize, line: &str) {
    text.extend(std::iter::repeat_n(' ', indent));
    text.push_str(line);
    text.push('\n');
}

/// A count with its digits in groups of three: 1,234,567.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate in three to four digits with a decimal prefix: 12.3 M.
pub fn scaled(rate: f64) -> String {
    let (value, prefix) = PREFIXES
        .into_iter()
        .find(|(_, scale)| rate >= *scale)
        .map_or((rate, ""), |(prefix, scale)| (rate / scale, prefix));
    let decimals = if prefix.is_empty() || value >= 100.0 {
        0
    } else {
        1
    };
    format!("{value:.decimals$} {prefix}")
}

/// A bar whose length is `value` on a scale of `columns` that ends at `most`, in eighths of a
/// column.
pub fn bar(value: f64, most: f64, columns: usize) -> String {
    let eighths = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let share = if most > 0.0 { value / most } else { 0.0 };
    let length = (share.clamp(0.0, 1.0) * (columns * 8) as f64).round() as usize;
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

    #[test]
    fn bars() {
        assert_eq!(bar(0.0, 10.0, 24), "");
        assert_eq!(bar(10.0, 10.0, 24), "█".repeat(24));
        assert_eq!(bar(11.0, 10.0, 24), "█".repeat(24));
        assert_eq!(bar(10.0 / 24.0 * 1.5, 10.0, 24), "█▌");
        assert_eq!(bar(1.0, 0.0, 24), "");
        assert_eq!(bar(f64::NAN, 1.0, 24), "");
    }

    #[test]
    fn numbers() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(scaled(0.0), "0 ");
        assert_eq!(scaled(999.0), "999 ");
        assert_eq!(scaled(12_345.0), "12.3 k");
        assert_eq!(scaled(812_000.0), "812 k");
        assert_eq!(scaled(2.5e9), "2.5 G");
    }
}
