//! From the JSON documents of several runs of a bench to one table: medians over the runs, and how
//! many runs met each goal.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// A list of a bench's JSON document, and what of it is published.
#[derive(Clone, Copy, Debug)]
pub struct List {
    /// Its key in the document.
    pub key: &'static str,
    /// Keys that together tell its rows apart.
    pub names: &'static [&'static str],
    /// Columns of figures: the heading, and where in a row the figure is, as a JSON pointer.
    pub figures: &'static [(&'static str, &'static str)],
    /// The figure whose least and greatest run are shown, as a JSON pointer.
    pub spread: &'static str,
    /// The key of the goal in a row, in words or as a number.
    pub goal: &'static str,
}

/// The verdict of a run that met a goal.
const MET: &str = "reproduced";
/// The verdict of a run in which only the median did.
const DIRECTION: &str = "direction";

/// A row of all runs.
#[derive(Debug, PartialEq)]
pub struct Row {
    /// By [`List::names`].
    pub names: Vec<String>,
    /// By [`List::figures`]: medians of the runs. `None` if no run has the figure.
    pub figures: Vec<Option<f64>>,
    /// The least and the greatest run of [`List::spread`].
    pub spread: Option<[f64; 2]>,
    /// In words.
    pub goal: String,
    /// Runs, runs that met the goal, and runs in which only the median did; `None` without a goal.
    pub met: Option<[usize; 3]>,
    /// Why the row has no figures.
    pub missing: Option<String>,
}

impl List {
    /// The rows of all runs, in the order of the first.
    ///
    /// # Errors
    ///
    /// A row or a figure that a run has and another has not.
    pub fn rows(&self, runs: &[Value]) -> Result<Vec<Row>> {
        let lists: Vec<&Vec<Value>> = runs
            .iter()
            .map(|run| run[self.key].as_array().context("a run without rows"))
            .collect::<Result<_>>()?;
        let first = lists.first().context("no run")?;
        for (run, list) in lists.iter().enumerate() {
            let names: BTreeSet<_> = list.iter().map(|row| self.names_of(row)).collect();
            if names.len() < list.len() {
                bail!("run {}: two rows of one name", run + 1);
            }
            for other in lists.iter().flat_map(|other| other.iter()) {
                let names_of = self.names_of(other);
                if !names.contains(&names_of) {
                    bail!("run {}: no row `{}`", run + 1, names_of.join(", "));
                }
            }
        }
        let rows = first.iter().map(|row| {
            let names = self.names_of(row);
            let is_same = |row: &&Value| self.names_of(row) == names;
            let rows: Vec<&Value> = lists
                .iter()
                .filter_map(|list| list.iter().find(is_same))
                .collect();
            self.row(&rows)
                .with_context(|| format!("row `{}`", names.join(", ")))
        });
        rows.collect()
    }

    fn names_of(&self, row: &Value) -> Vec<String> {
        self.names.iter().map(|name| text_of(&row[*name])).collect()
    }

    /// The same row of each run.
    fn row(&self, rows: &[&Value]) -> Result<Row> {
        let figures = self.figures.iter();
        let figures = figures.map(|(_, pointer)| Ok(median(&figures_of(rows, pointer)?)));
        let spread = figures_of(rows, self.spread)?;
        let least = spread.iter().copied().reduce(f64::min);
        let greatest = spread.iter().copied().reduce(f64::max);
        let verdicts: Vec<&str> = rows
            .iter()
            .filter_map(|row| row["verdict"].as_str())
            .collect();
        if !verdicts.is_empty() && verdicts.len() < rows.len() {
            bail!("not every run has a verdict");
        }
        let count = |wanted: &str| verdicts.iter().filter(|one| **one == wanted).count();
        let goals: BTreeSet<String> = rows.iter().map(|row| text_of(&row[self.goal])).collect();
        let goal = match median(&figures_of(rows, &format!("/{}", self.goal)).unwrap_or_default()) {
            Some(goal) => number(goal),
            None if goals.len() == 1 => goals.into_iter().collect(),
            None => "one for each run".to_owned(),
        };
        Ok(Row {
            names: self.names_of(rows[0]),
            figures: figures.collect::<Result<_>>()?,
            spread: least.zip(greatest).map(|(least, most)| [least, most]),
            goal,
            met: (!verdicts.is_empty()).then(|| [rows.len(), count(MET), count(DIRECTION)]),
            missing: rows
                .iter()
                .find_map(|row| row["missing"].as_str().map(str::to_owned)),
        })
    }

    /// The table, a line for each row.
    pub fn print(&self, rows: &[Row]) -> String {
        let mut head: Vec<&str> = self.names.to_vec();
        head.extend(self.figures.iter().map(|(heading, _)| *heading));
        head.extend(["least .. most", "goal", "met", ""]);
        let mut lines = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
        for row in rows {
            let figure = |figure: &Option<f64>| figure.map_or("-".to_owned(), number);
            let mut line = row.names.clone();
            line.extend(row.figures.iter().map(figure));
            line.push(row.spread.map_or(String::new(), |[least, most]| {
                format!("{} .. {}", number(least), number(most))
            }));
            line.push(row.goal.clone());
            line.push(row.met.map_or(String::new(), met));
            line.push(row.missing.clone().unwrap_or_default());
            lines.push(line);
        }
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
        let widths: Vec<usize> = (0..lines[0].len()).filter_map(width).collect();
        let mut text = String::new();
        for line in &lines {
            let mut cells = String::new();
            for (column, cell) in line.iter().enumerate() {
                let width = widths[column];
                // Names and the last columns are words.
                let is_word = column < self.names.len() || column + 3 >= line.len();
                let padded = if is_word {
                    format!("{cell:<width$}  ")
                } else {
                    format!("{cell:>width$}  ")
                };
                cells.push_str(&padded);
            }
            text.push_str(cells.trim_end());
            text.push('\n');
        }
        text
    }

    /// The rows as a document of such a list, for charts.
    pub fn document(&self, rows: &[Row]) -> Value {
        let rows = rows.iter().map(|row| {
            let mut document = json!({});
            for (name, value) in self.names.iter().zip(&row.names) {
                let number = value.parse::<u64>();
                document[*name] = number.map_or_else(|_| json!(value), |number| json!(number));
            }
            for ((_, pointer), figure) in self.figures.iter().zip(&row.figures) {
                document[pointer.trim_start_matches('/')] = json!(figure);
            }
            document
        });
        rows.collect()
    }
}

/// How many goals were met, in words.
pub fn summary<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    let goals: Vec<[usize; 3]> = rows.filter_map(|row| row.met).collect();
    let (mut all, mut none) = (0, 0);
    for [runs, met, _] in &goals {
        all += usize::from(met == runs);
        none += usize::from(*met == 0);
    }
    let some = goals.len() - all - none;
    let mut text = String::new();
    if !goals.is_empty() {
        // Writing to a string cannot fail.
        writeln!(
            text,
            "\n{} goals: {all} met in every run, {some} in some, {none} in none.\n\
             A run meets a goal if the whole interval of 95 % does; `direction`: only its median.",
            goals.len()
        )
        .expect("a string takes everything");
    }
    text
}

fn met([runs, met, direction]: [usize; 3]) -> String {
    match direction {
        0 => format!("{met} of {runs}"),
        _ => format!("{met} of {runs}, {direction} direction"),
    }
}

/// A figure of each run, or of none.
fn figures_of(rows: &[&Value], pointer: &str) -> Result<Vec<f64>> {
    let figures: Vec<f64> = rows
        .iter()
        .filter_map(|row| row.pointer(pointer)?.as_f64())
        .collect();
    if !figures.is_empty() && figures.len() < rows.len() {
        bail!("not every run has the figure {pointer}");
    }
    Ok(figures)
}

/// The median; of an even number the middle of the two in the middle. `None` of nothing.
pub fn median(figures: &[f64]) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(sorted[middle - 1], upper))
}

/// A figure in about three digits.
pub fn number(figure: f64) -> String {
    match figure.abs() {
        size if size >= 1000.0 => format!("{figure:.0}"),
        size if size >= 1.0 || size == 0.0 => format!("{figure:.2}"),
        _ => format!("{figure:.3}"),
    }
}

/// A string without quotes, nothing for `null`, and another value as JSON.
pub(crate) fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: List = List {
        key: "rows",
        names: &["row", "burst", "peer"],
        figures: &[("ours ns", "/ours_ns"), ("ratio", "/ratio")],
        spread: "/ratio",
        goal: "goal",
    };

    fn row(name: &str, ns: f64, ratio: f64, verdict: &str) -> Value {
        json!({"row": name, "burst": 8, "peer": "rte_ring", "ours_ns": ns, "ratio": ratio,
               "goal": 1.0, "verdict": verdict})
    }

    fn runs(rows: Vec<Vec<Value>>) -> Vec<Value> {
        rows.into_iter().map(|rows| json!({"rows": rows})).collect()
    }

    #[test]
    fn the_median_of_the_runs_is_published_and_how_many_met_the_goal() {
        let odd = runs(vec![
            vec![row("a", 3.0, 0.9, "not reproduced")],
            vec![row("a", 1.0, 1.2, "reproduced")],
            vec![row("a", 2.0, 1.1, "direction")],
        ]);
        let rows = LIST.rows(&odd).unwrap();
        assert_eq!(rows[0].names, ["a", "8", "rte_ring"]);
        assert_eq!(rows[0].figures, [Some(2.0), Some(1.1)]);
        assert_eq!(rows[0].spread, Some([0.9, 1.2]));
        assert_eq!(rows[0].met, Some([3, 1, 1]));
        let lines: Vec<String> = LIST
            .print(&rows)
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            lines,
            [
                "row burst peer ours ns ratio least .. most goal met",
                "a 8 rte_ring 2.00 1.10 0.900 .. 1.20 1.00 1 of 3, 1 direction"
            ]
        );
    }

    #[test]
    fn of_an_even_number_of_runs_none_is_chosen() {
        let even = runs(vec![
            vec![row("a", 1.0, 1.0, "reproduced")],
            vec![row("a", 4.0, 3.0, "reproduced")],
            vec![row("a", 2.0, 1.5, "reproduced")],
            vec![row("a", 3.0, 2.5, "reproduced")],
        ]);
        let rows = LIST.rows(&even).unwrap();
        assert_eq!(rows[0].figures, [Some(2.5), Some(2.0)]);
        assert_eq!(rows[0].met, Some([4, 4, 0]));
        assert_eq!(median(&[]), None);
        assert!(summary(rows.iter()).contains("1 goals: 1 met in every run, 0 in some, 0 in none"));
    }

    #[test]
    fn a_row_that_a_run_lacks_is_an_error() {
        let a = || row("a", 1.0, 1.0, "reproduced");
        let b = || row("b", 1.0, 1.0, "reproduced");
        for (rows, why) in [
            (
                vec![vec![a(), b()], vec![a()]],
                "run 2: no row `b, 8, rte_ring`",
            ),
            (
                vec![vec![a()], vec![a(), b()]],
                "run 1: no row `b, 8, rte_ring`",
            ),
            (
                vec![vec![a(), a()], vec![a()]],
                "run 1: two rows of one name",
            ),
        ] {
            assert_eq!(LIST.rows(&runs(rows)).unwrap_err().to_string(), why);
        }
        assert!(LIST.rows(&[]).is_err());
        assert!(LIST.rows(&[json!({})]).is_err());
    }

    #[test]
    fn a_figure_that_a_run_lacks_is_an_error() {
        let whole = row("a", 1.0, 1.0, "reproduced");
        let mut part = whole.clone();
        part["ratio"] = Value::Null;
        let error = LIST.rows(&runs(vec![vec![whole.clone()], vec![part.clone()]]));
        let error = format!("{:#}", error.unwrap_err());
        assert_eq!(
            error,
            "row `a, 8, rte_ring`: not every run has the figure /ratio"
        );
        let mut unjudged = whole.clone();
        unjudged["verdict"] = Value::Null;
        let error = LIST.rows(&runs(vec![vec![whole], vec![unjudged]]));
        assert!(format!("{:#}", error.unwrap_err()).contains("verdict"));
        // Of all runs alike, it is a row without that figure, and says why.
        part["missing"] = json!("no DPDK");
        part["verdict"] = Value::Null;
        let rows = LIST
            .rows(&runs(vec![vec![part.clone()], vec![part]]))
            .unwrap();
        assert_eq!(rows[0].figures, [Some(1.0), None]);
        assert_eq!((rows[0].met, rows[0].spread), (None, None));
        assert!(LIST.print(&rows).contains("no DPDK"));
        assert_eq!(summary(rows.iter()), "");
    }

    #[test]
    fn goals_are_words_or_numbers_and_may_differ_by_run() {
        let of = |goals: [Value; 2]| {
            let rows = goals.map(|goal| {
                let mut row = row("a", 1.0, 1.0, "reproduced");
                row["goal"] = goal;
                vec![row]
            });
            LIST.rows(&runs(rows.into())).unwrap().remove(0).goal
        };
        assert_eq!(of([json!(1.0), json!(2.0)]), "1.50");
        assert_eq!(of([json!("at most 3"), json!("at most 3")]), "at most 3");
        assert_eq!(of([json!("<= 3"), json!("<= 4")]), "one for each run");
        assert_eq!(of([Value::Null, Value::Null]), "");
    }

    #[test]
    fn charts_get_the_medians() {
        let all = runs(vec![
            vec![row("a", 1.0, 1.0, "reproduced")],
            vec![row("a", 2.0, 1.0, "reproduced")],
            vec![row("a", 9.0, 1.0, "reproduced")],
        ]);
        let document = LIST.document(&LIST.rows(&all).unwrap());
        assert_eq!(document[0]["ours_ns"], json!(2.0));
        assert_eq!(document[0]["burst"], json!(8));
        assert_eq!(document[0]["peer"], json!("rte_ring"));
    }
}
