//! From the JSON documents of several runs of a bench to one table: medians over the runs, and how
//! many runs met each goal.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use packtrain_measure::Verdict;
use packtrain_measure::statistics::median;
use serde_json::{Value, json};

use crate::report::{aligned, ends, number, text_of};

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

/// A row of all runs.
#[derive(Debug, PartialEq)]
pub struct Row {
    /// As printed: names, medians of the runs, least and greatest run, goal, how many runs met it,
    /// and why the row has no figures.
    cells: Vec<String>,
    /// Its names and medians, as in a document of the bench.
    pub document: Value,
    /// Runs, runs that met the goal, and runs in which only the median did; `None` without a goal.
    met: Option<[usize; 3]>,
}

impl List {
    /// The rows of all runs, in the order of the first.
    ///
    /// # Errors
    ///
    /// A row or a figure that a run has and another has not.
    pub fn rows(&self, runs: &[Value]) -> Result<Vec<Row>> {
        let lists = runs
            .iter()
            .map(|run| run[self.key].as_array().context("a run without rows"));
        let lists: Vec<&Vec<Value>> = lists.collect::<Result<_>>()?;
        let first = lists.first().context("no run")?;
        for (run, list) in (1..).zip(&lists) {
            let names: BTreeSet<_> = list.iter().map(|row| self.names_of(row)).collect();
            ensure!(names.len() == list.len(), "run {run}: two rows of one name");
            for other in lists.iter().flat_map(|other| other.iter()) {
                let other = self.names_of(other);
                ensure!(
                    names.contains(&other),
                    "run {run}: no row `{}`",
                    other.join(", ")
                );
            }
        }
        let rows = first.iter().map(|row| {
            let names = self.names_of(row);
            let is_same = |row: &&Value| self.names_of(row) == names;
            let rows = lists.iter().filter_map(|list| list.iter().find(is_same));
            let rows: Vec<&Value> = rows.collect();
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
        let mut cells = self.names_of(rows[0]);
        let mut document = json!({});
        for name in self.names {
            document[*name] = rows[0][*name].clone();
        }
        for (_, pointer) in self.figures {
            let median = median_of(&figures_of(rows, pointer)?);
            cells.push(median.map_or("-".to_owned(), number));
            document[pointer.trim_start_matches('/')] = json!(median);
        }
        let spread = ends(&figures_of(rows, self.spread)?);
        let spread = spread.map(|ends| ends.map(number).join(" .. "));
        let goals: BTreeSet<String> = rows.iter().map(|row| text_of(&row[self.goal])).collect();
        let numbers = figures_of(rows, &format!("/{}", self.goal)).unwrap_or_default();
        let goal = match median_of(&numbers) {
            Some(goal) => number(goal),
            None if goals.len() == 1 => goals.into_iter().collect(),
            None => "one for each run".to_owned(),
        };
        let verdicts = rows.iter().filter_map(|row| row["verdict"].as_str());
        let verdicts: Vec<&str> = verdicts.collect();
        ensure!(
            verdicts.is_empty() || verdicts.len() == rows.len(),
            "not every run has a verdict"
        );
        let count = |of: Verdict| verdicts.iter().filter(|one| **one == of.name()).count();
        let (runs, met) = (verdicts.len(), count(Verdict::Reproduced));
        let direction = count(Verdict::Direction);
        let in_words = match (runs, direction) {
            (0, _) => String::new(),
            (_, 0) => format!("{met} of {runs}"),
            _ => format!("{met} of {runs}, {direction} direction"),
        };
        let mut missing = rows.iter().map(|row| text_of(&row["missing"]));
        let missing = missing.find(|why| !why.is_empty());
        cells.extend([spread.unwrap_or_default(), goal, in_words]);
        cells.push(missing.unwrap_or_default());
        Ok(Row {
            cells,
            document,
            met: (runs > 0).then_some([runs, met, direction]),
        })
    }

    /// The table, a line for each row.
    pub fn print(&self, rows: &[Row]) -> String {
        let figures = self.figures.iter().map(|(heading, _)| *heading);
        let head = self.names.iter().copied().chain(figures);
        let head: Vec<_> = head.chain(["least .. most", "goal", "met", ""]).collect();
        let rows = rows.iter().map(|row| row.cells.clone());
        // Names and the last columns are words.
        let is_word = |column: usize| column < self.names.len() || column + 3 >= head.len();
        aligned(&head, rows, is_word)
    }
}

/// How many goals were met, in words.
pub fn summary(rows: &[Row]) -> String {
    let goals: Vec<[usize; 3]> = rows.iter().filter_map(|row| row.met).collect();
    let all = goals.iter().filter(|[runs, met, _]| met == runs).count();
    let none = goals.iter().filter(|[_, met, _]| *met == 0).count();
    match goals.len() {
        0 => String::new(),
        goals => format!(
            "\n{goals} goals: {all} met in every run, {} in some, {none} in none.\n\
             A run meets a goal if the whole interval of 95 % does; `direction`: only its \
             median.\n",
            goals - all - none
        ),
    }
}

/// A figure of each run, or of none.
fn figures_of(rows: &[&Value], pointer: &str) -> Result<Vec<f64>> {
    let figures = rows.iter().filter_map(|row| row.pointer(pointer)?.as_f64());
    let figures: Vec<f64> = figures.collect();
    let is_whole = figures.is_empty() || figures.len() == rows.len();
    ensure!(is_whole, "not every run has the figure {pointer}");
    Ok(figures)
}

fn median_of(figures: &[f64]) -> Option<f64> {
    (!figures.is_empty()).then(|| median(figures))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::words;

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

    /// A run for each list of rows.
    fn runs(rows: impl IntoIterator<Item = Vec<Value>>) -> Vec<Value> {
        let rows = rows.into_iter();
        rows.map(|rows| json!({"rows": rows})).collect()
    }

    #[test]
    fn the_median_of_the_runs_is_published_and_how_many_met_the_goal() {
        let odd = runs([
            vec![row("a", 3.0, 0.9, "not reproduced")],
            vec![row("a", 1.0, 1.2, "reproduced")],
            vec![row("a", 2.0, 1.1, "direction")],
        ]);
        let rows = LIST.rows(&odd).unwrap();
        assert_eq!(
            words(&LIST.print(&rows)),
            [
                "row burst peer ours ns ratio least .. most goal met",
                "a 8 rte_ring 2.00 1.10 0.900 .. 1.20 1.00 1 of 3, 1 direction"
            ]
        );
        // Charts get the medians.
        let expected = json!({"row": "a", "burst": 8, "peer": "rte_ring", "ours_ns": 2.0,
                              "ratio": 1.1});
        assert_eq!(rows[0].document, expected);
        // Of an even number of runs none is chosen.
        let even = [(1.0, 1.0), (4.0, 3.0), (2.0, 1.5), (3.0, 2.5)];
        let even = even.map(|(ns, ratio)| vec![row("a", ns, ratio, "reproduced")]);
        let rows = LIST.rows(&runs(even)).unwrap();
        let line = "a 8 rte_ring 2.50 2.00 1.00 .. 3.00 1.00 4 of 4";
        assert_eq!(words(&LIST.print(&rows))[1], line);
        assert!(summary(&rows).contains("1 goals: 1 met in every run, 0 in some, 0 in none"));
    }

    #[test]
    fn what_a_run_lacks_is_an_error() {
        let of = |names: &str| -> Vec<Value> {
            let names = names.split_whitespace();
            names
                .map(|name| row(name, 1.0, 1.0, "reproduced"))
                .collect()
        };
        let without = |key: &str| {
            let mut part = of("a");
            part[0][key] = Value::Null;
            part
        };
        let named = "row `a, 8, rte_ring`: not every run has";
        for (first, second, why) in [
            (of("a b"), of("a"), "run 2: no row `b, 8, rte_ring`"),
            (of("a"), of("a b"), "run 1: no row `b, 8, rte_ring`"),
            (of("a a"), of("a"), "run 1: two rows of one name"),
            (
                of("a"),
                without("ratio"),
                &*format!("{named} the figure /ratio"),
            ),
            (of("a"), without("verdict"), &*format!("{named} a verdict")),
        ] {
            let error = LIST.rows(&runs([first, second])).unwrap_err();
            assert_eq!(format!("{error:#}"), why);
        }
        assert!(LIST.rows(&[]).is_err());
        assert!(LIST.rows(&[json!({})]).is_err());
        // Of all runs alike, it is a row without that figure, and says why.
        let mut part = without("ratio");
        part[0]["missing"] = json!("no DPDK");
        part[0]["verdict"] = Value::Null;
        let rows = LIST.rows(&runs([part.clone(), part])).unwrap();
        let line = "a 8 rte_ring 1.00 - 1.00 no DPDK";
        assert_eq!(words(&LIST.print(&rows))[1], line);
        assert_eq!(summary(&rows), "");
    }

    #[test]
    fn goals_are_words_or_numbers_and_may_differ_by_run() {
        for (goals, told) in [
            ([json!(1.0), json!(2.0)], "1.50"),
            ([json!("at most 3"), json!("at most 3")], "at most 3"),
            ([json!("<= 3"), json!("<= 4")], "one for each run"),
            ([Value::Null, Value::Null], ""),
        ] {
            let rows = goals.map(|goal| {
                let mut row = row("a", 1.0, 1.0, "reproduced");
                row["goal"] = goal;
                vec![row]
            });
            let rows = LIST.rows(&runs(rows)).unwrap();
            assert_eq!(rows[0].cells[6], told);
        }
    }
}
