//! Two saved documents of experiments, row by row.

use serde_json::{Value, json};

use super::judge::CLEAN_MIN;

/// What a user compares.
const WRITER: &str = "a file that packtrain experiment NAME --save FILE wrote";

/// A document of `packtrain experiment`.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved(Value);

impl Saved {
    /// Reads a file's text.
    ///
    /// # Errors
    /// Why it is not such a document, and what to do.
    pub fn read(text: &str) -> Result<Self, String> {
        let wrong = |why: String| format!("{why}; name {WRITER}");
        let document: Value =
            serde_json::from_str(text).map_err(|error| wrong(format!("not JSON ({error})")))?;
        for (key, wanted) in [("schema", "packtrain/1"), ("command", "experiment")] {
            match document[key].as_str() {
                Some(found) if found == wanted => {}
                Some(found) => {
                    let why = format!("its {key} is \"{found}\", not \"{wanted}\"");
                    return Err(wrong(why));
                }
                None => return Err(wrong(format!("it has no {key}"))),
            }
        }
        if !document["rows"].is_array() {
            return Err(wrong("it has no rows".to_owned()));
        }
        Ok(Self(document))
    }

    fn rows(&self) -> &[Value] {
        self.0["rows"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The names of the experiments that have rows.
    fn names(&self) -> String {
        let mut names: Vec<String> = self
            .rows()
            .iter()
            .map(|row| text(&row["experiment"]))
            .collect();
        names.dedup();
        if names.is_empty() {
            return "no rows".to_owned();
        }
        format!("rows of {}", names.join(", "))
    }
}

/// Two documents, compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Each figure of each row that both documents have.
    pub rows: Vec<Row>,
    /// Rows that only one of the documents has.
    pub missing: Vec<Missing>,
    /// What speaks against comparing them: another machine, a quick run.
    pub notes: Vec<String>,
}

/// A figure of a row, in both documents.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The experiment.
    pub experiment: String,
    /// The settings, by axis.
    pub setting: Value,
    /// The figure.
    pub figure: String,
    /// Its unit.
    pub unit: String,
    /// Median and interval in A.
    pub a: [f64; 3],
    /// Median and interval in B.
    pub b: [f64; 3],
    /// B to A: median, and the widest interval that theirs allow. `None` if A is 0.
    pub ratio: Option<[f64; 3]>,
    /// What became of the figure.
    pub change: Change,
}

/// What became of a figure from A to B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The whole interval of the ratio is worse than the tolerance allows.
    Regression,
    /// The whole interval is better by more than the tolerance.
    Improvement,
    /// Neither.
    Within,
    /// Neither value of the figure is the better one.
    Neutral,
    /// A row has too few runs on which a verdict may rest.
    NotJudged,
}

impl Change {
    /// As in tables and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Regression => "regression",
            Self::Improvement => "improvement",
            Self::Within => "within the tolerance",
            Self::Neutral => "no better value",
            Self::NotJudged => "not judged",
        }
    }
}

/// A row that one document does not have.
#[derive(Clone, Debug, PartialEq)]
pub struct Missing {
    /// The experiment.
    pub experiment: String,
    /// The settings, by axis.
    pub setting: Value,
    /// The document without the row: `A` or `B`.
    pub of: &'static str,
}

/// Compares document `b` with document `a`. `tolerance` is a share: 0.05 for 5 %.
///
/// # Errors
/// That they have no row in common, and what to do.
pub fn compare(a: &Saved, b: &Saved, tolerance: f64) -> Result<Comparison, String> {
    let (rows_a, rows_b) = (a.rows(), b.rows());
    let same = |one: &Value, other: &Value| {
        one["experiment"] == other["experiment"] && one["setting"] == other["setting"]
    };
    let mut comparison = Comparison {
        rows: Vec::new(),
        missing: Vec::new(),
        notes: notes(&a.0, &b.0),
    };
    let without = |rows: &[Value], others: &[Value], of| -> Vec<Missing> {
        let has = |row: &&Value| !others.iter().any(|other| same(row, other));
        let missing = rows.iter().filter(has);
        missing
            .map(|row| Missing {
                experiment: text(&row["experiment"]),
                setting: row["setting"].clone(),
                of,
            })
            .collect()
    };
    comparison.missing.extend(without(rows_a, rows_b, "B"));
    comparison.missing.extend(without(rows_b, rows_a, "A"));
    if comparison.missing.len() == rows_a.len() + rows_b.len() {
        return Err(format!(
            "A and B have no row of the same experiment and settings: A has {}, B has {}; name two \
             files that packtrain experiment NAME --save FILE wrote with the same NAME",
            a.names(),
            b.names()
        ));
    }
    for row in rows_a {
        let Some(other) = rows_b.iter().find(|other| same(row, other)) else {
            continue;
        };
        for figure in figures(&a.0, &row["experiment"]) {
            let key = text(&figure["key"]);
            let both = [row, other].map(|row| estimate(&row["figures"][&key]));
            let [Some(of_a), Some(of_b)] = both else {
                continue;
            };
            let judged = |row: &&Value| row["figures"][&key]["judged"].as_u64().unwrap_or_default();
            let is_few = [row, other]
                .iter()
                .map(judged)
                .any(|runs| runs < CLEAN_MIN as u64);
            let better = figure["better"].as_str();
            comparison.rows.push(Row {
                experiment: text(&row["experiment"]),
                setting: row["setting"].clone(),
                figure: key,
                unit: text(&figure["unit"]),
                a: of_a,
                b: of_b,
                ratio: ratio(of_a, of_b),
                change: if is_few {
                    Change::NotJudged
                } else {
                    change(of_a, of_b, better, tolerance)
                },
            });
        }
    }
    Ok(comparison)
}

impl Comparison {
    /// The figures that became worse.
    pub fn regressions(&self) -> impl Iterator<Item = &Row> {
        let rows = self.rows.iter();
        rows.filter(|row| row.change == Change::Regression)
    }

    /// As JSON: `rows`, `missing` and `notes`.
    pub fn document(&self) -> Value {
        let interval =
            |[median, low, high]: [f64; 3]| json!({ "median": median, "low": low, "high": high });
        let rows = self.rows.iter().map(|row| {
            json!({
                "experiment": row.experiment,
                "setting": row.setting,
                "figure": row.figure,
                "unit": row.unit,
                "a": interval(row.a),
                "b": interval(row.b),
                "ratio": row.ratio.map(interval),
                "change": row.change.name(),
            })
        });
        let missing = self.missing.iter().map(|one| {
            json!({
                "experiment": one.experiment,
                "setting": one.setting,
                "of": one.of,
            })
        });
        json!({
            "rows": rows.collect::<Vec<_>>(),
            "missing": missing.collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }
}

fn notes(a: &Value, b: &Value) -> Vec<String> {
    let mut notes = Vec::new();
    for (key, what) in [
        ("machine", "machines"),
        ("kernel", "kernels"),
        ("cpus", "CPUs"),
    ] {
        let (a, b) = (&a["host"][key], &b["host"][key]);
        if a != b {
            let [a, b] = [a, b].map(text);
            notes.push(format!("different {what}: A has {a}, B has {b}"));
        }
    }
    if a["version"] != b["version"] {
        let [a, b] = [&a["version"], &b["version"]].map(text);
        notes.push(format!(
            "different versions of packtrain: A is {a}, B is {b}"
        ));
    }
    if a["quick"] != b["quick"] {
        let [quick, other] = if a["quick"] == true {
            ["A", "B"]
        } else {
            ["B", "A"]
        };
        notes.push(format!(
            "{quick} is a quick run and {other} is not: their runs differ in duration"
        ));
    }
    for (name, document) in [("A", a), ("B", b)] {
        if document["quick"] == true && a["quick"] == b["quick"] {
            notes.push(format!("{name} is a quick run"));
        }
        if document["stopped"] == true {
            notes.push(format!("{name} was stopped before its end"));
        }
    }
    notes
}

fn figures<'a>(document: &'a Value, experiment: &Value) -> impl Iterator<Item = &'a Value> {
    let experiments = document["experiments"].as_array().into_iter().flatten();
    let mut experiments = experiments.filter(move |one| one["name"] == *experiment);
    let found = experiments.next().and_then(|one| one["figures"].as_array());
    found.into_iter().flatten()
}

/// Median, low and high.
fn estimate(figure: &Value) -> Option<[f64; 3]> {
    let number = |key: &str| figure[key].as_f64();
    Some([number("median")?, number("low")?, number("high")?])
}

fn ratio([a, a_low, a_high]: [f64; 3], [b, b_low, b_high]: [f64; 3]) -> Option<[f64; 3]> {
    (a_low > 0.0).then(|| [b / a, b_low / a_high, b_high / a_low])
}

fn change(a: [f64; 3], b: [f64; 3], better: Option<&str>, tolerance: f64) -> Change {
    // Bounds instead of the ratio, which does not exist if A is 0.
    let is_above = b[1] > a[2] * (1.0 + tolerance);
    let is_below = b[2] < a[1] * (1.0 - tolerance);
    match (better, is_above, is_below) {
        (None, ..) => Change::Neutral,
        (Some("higher"), true, _) | (Some("lower"), _, true) => Change::Improvement,
        (Some("higher"), _, true) | (Some("lower"), true, _) => Change::Regression,
        _ => Change::Within,
    }
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
