//! Two saved documents of experiments, row by row.

use packtrain_measure::document::{Better, Document, Row, Setting, Summary};
use packtrain_measure::statistics::Estimate;
use serde::{Serialize, Serializer};

use super::judge::CLEAN_MIN;

/// The names of the experiments that have rows.
fn names(document: &Document) -> String {
    let names = document.rows.iter().map(|row| row.experiment.as_str());
    let mut names: Vec<&str> = names.collect();
    names.dedup();
    if names.is_empty() {
        return "no rows".to_owned();
    }
    format!("rows of {}", names.join(", "))
}

/// Two documents, compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Each figure of each row that both documents have.
    pub rows: Vec<Compared>,
    /// Rows that only one of the documents has.
    pub missing: Vec<Missing>,
    /// What speaks against comparing them: another machine, a quick run.
    pub notes: Vec<String>,
}

/// A figure of a row, in both documents.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The experiment.
    pub experiment: String,
    /// The settings.
    pub setting: Setting,
    /// The figure.
    pub figure: String,
    /// Its unit.
    pub unit: String,
    /// The median in A.
    pub a: Estimate,
    /// The median in B.
    pub b: Estimate,
    /// B to A: median, and the widest interval that theirs allow. `None` if A is 0.
    pub ratio: Option<Estimate>,
    /// What became of the figure.
    #[serde(serialize_with = "name_of")]
    pub change: Change,
}

fn name_of<S: Serializer>(change: &Change, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(change.name())
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
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Missing {
    /// The experiment.
    pub experiment: String,
    /// The settings.
    pub setting: Setting,
    /// The document without the row: `A` or `B`.
    pub of: &'static str,
}

/// Compares document `b` with document `a`. `tolerance` is a share: 0.05 for 5 %.
///
/// # Errors
/// That they have no row in common, and what to do.
pub fn compare(a: &Document, b: &Document, tolerance: f64) -> Result<Comparison, String> {
    let same =
        |one: &Row, other: &Row| one.experiment == other.experiment && one.setting == other.setting;
    let without = |rows: &[Row], others: &[Row], of| -> Vec<Missing> {
        let missing = rows
            .iter()
            .filter(|row| !others.iter().any(|other| same(row, other)));
        missing
            .map(|row| Missing {
                experiment: row.experiment.clone(),
                setting: row.setting.clone(),
                of,
            })
            .collect()
    };
    let mut missing = without(&a.rows, &b.rows, "B");
    missing.extend(without(&b.rows, &a.rows, "A"));
    if missing.len() == a.rows.len() + b.rows.len() {
        return Err(format!(
            "A and B have no row of the same experiment and settings: A has {}, B has {}; name two \
             files that packtrain experiment NAME --save FILE wrote with the same NAME",
            names(a),
            names(b)
        ));
    }
    let mut rows = Vec::new();
    for row in &a.rows {
        let Some(other) = b.rows.iter().find(|other| same(row, other)) else {
            continue;
        };
        let definition = a.definition(&row.experiment);
        for figure in definition.into_iter().flat_map(|one| &one.figures) {
            let [Some(of_a), Some(of_b)] = [row, other].map(|row| row.summary(&figure.key)) else {
                continue;
            };
            let is_few = |of: &Summary| of.judged < CLEAN_MIN;
            let estimates = [of_a.estimate, of_b.estimate];
            rows.push(Compared {
                experiment: row.experiment.clone(),
                setting: row.setting.clone(),
                figure: figure.key.to_string(),
                unit: figure.unit.clone(),
                a: of_a.estimate,
                b: of_b.estimate,
                ratio: ratio(&estimates),
                change: if is_few(of_a) || is_few(of_b) {
                    Change::NotJudged
                } else {
                    change(&estimates, figure.better, tolerance)
                },
            });
        }
    }
    Ok(Comparison {
        rows,
        missing,
        notes: notes(a, b),
    })
}

impl Comparison {
    /// The figures that became worse.
    pub fn regressions(&self) -> impl Iterator<Item = &Compared> {
        let rows = self.rows.iter();
        rows.filter(|row| row.change == Change::Regression)
    }
}

fn notes(a: &Document, b: &Document) -> Vec<String> {
    let mut notes = Vec::new();
    let (here, there) = (&a.head.host, &b.head.host);
    for (what, a, b) in [
        ("machines", &here.machine, &there.machine),
        ("kernels", &here.kernel, &there.kernel),
        ("CPUs", &here.cpus.to_string(), &there.cpus.to_string()),
    ] {
        if a != b {
            notes.push(format!("different {what}: A has {a}, B has {b}"));
        }
    }
    if a.head.version != b.head.version {
        notes.push(format!(
            "different versions of packtrain: A is {}, B is {}",
            a.head.version, b.head.version
        ));
    }
    if a.quick != b.quick {
        let [quick, other] = if a.quick { ["A", "B"] } else { ["B", "A"] };
        notes.push(format!(
            "{quick} is a quick run and {other} is not: their runs differ in duration"
        ));
    }
    for (name, document) in [("A", a), ("B", b)] {
        if a.quick && b.quick {
            notes.push(format!("{name} is a quick run"));
        }
        if document.stopped {
            notes.push(format!("{name} was stopped before its end"));
        }
    }
    notes
}

fn ratio([a, b]: &[Estimate; 2]) -> Option<Estimate> {
    (a.low > 0.0).then(|| Estimate {
        median: b.median / a.median,
        low: b.low / a.high,
        high: b.high / a.low,
        count: a.count.min(b.count),
    })
}

fn change([a, b]: &[Estimate; 2], better: Option<Better>, tolerance: f64) -> Change {
    // Bounds instead of the ratio, which does not exist if A is 0.
    let is_above = b.low > a.high * (1.0 + tolerance);
    let is_below = b.high < a.low * (1.0 - tolerance);
    match (better, is_above, is_below) {
        (None, ..) => Change::Neutral,
        (Some(Better::Higher), true, _) | (Some(Better::Lower), _, true) => Change::Improvement,
        (Some(Better::Higher), _, true) | (Some(Better::Lower), true, _) => Change::Regression,
        _ => Change::Within,
    }
}
