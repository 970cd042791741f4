//! What an experiment's tables show, as data. The page and the text of `packtrain experiment` draw
//! the same view, so they say the same.

use std::fmt;

use packtrain_measure::Verdict;
use packtrain_measure::statistics::coverage_percent;
use serde_json::{Map, Value};

use super::numbers::{elapsed, number};
use super::read::{Figure, Part, estimate, list, word};

pub use super::read::Estimate;

/// The verdict beside which the reason is shown that a claim has for it.
const MISSED: &str = Verdict::NotReproduced.name();
/// With fewer runs, the bootstrap interval of a median ends at the least and the greatest run.
const INTERVAL_RUNS_MIN: u64 = 6;
/// With fewer values, none can be an outlier: the fences are beyond the least and the greatest.
const OUTLIER_ROUNDS_MIN: u64 = 4;

/// One experiment of a document.
#[derive(Clone, Debug)]
pub struct View {
    /// The experiment's name.
    pub name: String,
    /// Where it is from.
    pub source: String,
    /// What it is, in one line.
    pub title: String,
    /// What the document claims; paragraphs are separated by empty lines.
    pub claimed: String,
    /// The document's own table, if it has one.
    pub theirs: Option<Table>,
    /// Notes on the document's table.
    pub notes: Vec<String>,
    /// The figures of this machine, if there are runs.
    pub ours: Option<Table>,
    /// What this host cannot show, a sentence for each reason.
    pub missing: Vec<String>,
    /// How far apart the runs of equal settings are, if rounds were repeated.
    pub spreads: Option<Table>,
    /// The claims with their verdicts.
    pub claims: Vec<Claim>,
    /// What the outcome means for a choice.
    pub meaning: String,
    /// What the experiment cannot show; may be empty.
    pub limits: String,
    /// Settings in force that differ between rows, if any do.
    pub differing: Option<Table>,
    /// Settings in force that all rows have: a name and a value in each row.
    pub shared: Option<Table>,
    /// Whether a signal ended it.
    pub stopped: bool,
    /// The command that repeats it.
    pub command: String,
}

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// What its columns are.
    pub columns: Vec<Column>,
    /// Its rows. The last cell of a row may be [`Cell::NotShown`], in place of all that follow.
    pub rows: Vec<Vec<Cell>>,
}

/// A column.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its head.
    pub title: String,
    /// What its cells are.
    pub kind: Kind,
}

/// What the cells of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Names of the row.
    Name,
    /// Words.
    Words,
    /// Numbers.
    Number,
}

/// A cell. Its text is that of both renderings.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Words.
    Words(String),
    /// A number.
    Number(f64),
    /// A median with its interval, if there is one.
    Estimate(Option<Estimate>),
    /// How many runs a row has, and how many of them were disturbed or failed.
    Runs(u64, u64),
    /// The row cannot be shown on this host.
    NotShown,
}

/// A claim, in all settings that it is about.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The claim in words.
    pub text: String,
    /// What is expected, what the document has, and whether the claim must hold.
    pub about: String,
    /// What is measured: the title of the figure, or of which figure it is the ratio.
    pub measured: String,
    /// Why it may not be reproduced here; empty if it is in all settings, or if nothing is known.
    pub if_not: String,
    /// The least and the greatest expected value.
    pub expected: (f64, f64),
    /// Whether settings are compared.
    pub compares: bool,
    /// Each setting by itself.
    pub judged: Vec<Judged>,
}

/// What came of a claim in one setting.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The verdict, as in documents.
    pub verdict: String,
    /// The setting.
    pub of: String,
    /// Where the setting that it is compared to differs; empty if it is compared to none.
    pub to: String,
    /// What was measured.
    pub measured: Option<Estimate>,
    /// Why it is not judged; empty if it is.
    pub why: String,
}

impl View {
    /// The experiments of a document that `packtrain experiment` writes.
    pub fn all(document: &Value) -> Vec<Self> {
        Part::all(document).iter().map(Self::of).collect()
    }

    /// One experiment.
    pub(super) fn of(part: &Part<'_>) -> Self {
        let own = |key: &str| word(&part.definition[key]);
        let document = &part.definition["document"];
        let (differing, shared) = settings(part);
        Self {
            name: own("name"),
            source: own("source"),
            title: own("title"),
            claimed: word(&document["claims"]),
            theirs: theirs(document),
            notes: list(document, "notes").iter().map(word).collect(),
            ours: ours(part),
            missing: missing(part),
            spreads: spreads(part),
            claims: claims(part),
            meaning: own("meaning"),
            limits: own("limits"),
            differing,
            shared,
            stopped: part.definition["stopped"] == true,
            command: own("command"),
        }
    }
}

impl Table {
    /// The table, unless it has no rows.
    fn filled(
        caption: impl Into<String>,
        columns: Vec<Column>,
        rows: Vec<Vec<Cell>>,
    ) -> Option<Self> {
        (!rows.is_empty()).then(|| Self {
            caption: caption.into(),
            columns,
            rows,
        })
    }
}

fn column(title: impl Into<String>, kind: Kind) -> Column {
    Column {
        title: title.into(),
        kind,
    }
}

/// A column for each axis.
fn axes(part: &Part<'_>) -> Vec<Column> {
    let axes = part.axes.iter();
    axes.map(|axis| column(*axis, Kind::Name)).collect()
}

/// The setting of each axis.
fn setting(part: &Part<'_>, of: &Value) -> Vec<Cell> {
    let axes = part.axes.iter();
    axes.map(|axis| Cell::Words(word(&of["setting"][axis])))
        .collect()
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words(text) if text.is_empty() => f.write_str("–"),
            Self::Estimate(None) => f.write_str("–"),
            Self::Words(text) => f.write_str(text),
            Self::Number(value) => f.write_str(&number(*value)),
            Self::Estimate(Some(estimate)) => estimate.fmt(f),
            Self::Runs(runs, 0) => runs.fmt(f),
            Self::Runs(runs, flagged) => write!(f, "{runs}, {flagged} flagged"),
            Self::NotShown => f.write_str("not shown here"),
        }
    }
}

/// The machine and its state: what the figures of a document hold for.
pub fn conditions(document: &Value) -> Vec<(&'static str, String)> {
    let host = &document["host"];
    let loads = list(document, "runs").iter();
    let loads: Vec<f64> = loads.filter_map(|run| run["load"].as_f64()).collect();
    let load = match document["load"].as_f64() {
        None => String::new(),
        Some(start) if loads.is_empty() => format!("{} at the start", number(start)),
        Some(start) => {
            let low = loads.iter().copied().fold(f64::INFINITY, f64::min);
            let high = loads.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let [start, low, high] = [start, low, high].map(number);
            format!("{start} at the start, {low} to {high} during the runs")
        }
    };
    let uptime = document["uptime_seconds"].as_f64();
    let entries = [
        ("packtrain", word(&document["version"])),
        ("Kernel", word(&host["kernel"])),
        ("CPU", word(&host["machine"])),
        ("CPUs", word(&host["cpus"])),
        ("Load, 1 minute", load),
        (
            "Uptime at the start",
            uptime.map(elapsed).unwrap_or_default(),
        ),
        ("Time", word(&host["time"])),
    ];
    let entries = entries.into_iter();
    entries.filter(|(_, value)| !value.is_empty()).collect()
}

fn theirs(document: &Value) -> Option<Table> {
    let columns = list(document, "columns").iter().enumerate();
    let columns = columns.map(|(at, title)| {
        let kind = if at == 0 { Kind::Name } else { Kind::Words };
        column(word(title), kind)
    });
    let rows = list(document, "rows").iter().map(|row| {
        let cells = row.as_array().into_iter().flatten();
        cells.map(|cell| Cell::Words(word(cell))).collect()
    });
    Table::filled("As printed there", columns.collect(), rows.collect())
}

fn rounds(part: &Part<'_>) -> u64 {
    part.definition["rounds"].as_u64().unwrap_or_default()
}

/// What is in brackets beside the medians of `figures`, and how often that has the true median: of
/// the figure with the fewest runs to that with the most.
pub(super) fn brackets(part: &Part<'_>, figures: &[Figure]) -> String {
    let of_rows = part.rows.iter().flat_map(|row| {
        let all = figures.iter().map(|one| &row["figures"][&one.key]);
        let medians = all.filter(|one| one["median"].is_number());
        medians.filter_map(|one| one["rounds"].as_u64())
    });
    let counts: Vec<u64> = of_rows.collect();
    let fewest = counts.iter().min().copied();
    let most = counts.iter().max().copied();
    let [fewest, most] = [fewest, most].map(|count| count.unwrap_or_else(|| rounds(part)));
    let [low, high] = [fewest, most].map(|count| {
        let percent = coverage_percent(count as usize);
        format!("{percent:.0}")
    });
    let percent = if low == high {
        low
    } else {
        format!("{low} to {high}")
    };
    let what = if most < INTERVAL_RUNS_MIN {
        "least, greatest:"
    } else {
        "interval of"
    };
    format!("[{what} {percent} %]")
}

fn ours(part: &Part<'_>) -> Option<Table> {
    if part.rows.iter().all(|row| row["runs"] == 0) {
        return None;
    }
    let mut columns = axes(part);
    let figures = part.figures.iter();
    columns.extend(figures.map(|one| column(&one.title, Kind::Number)));
    columns.push(column("runs", Kind::Number));
    let rows = part.rows.iter().map(|row| {
        let mut cells = setting(part, row);
        if row["missing"].is_null() {
            let figures = part.figures.iter();
            cells.extend(figures.map(|one| figure(&row["figures"][&one.key])));
            let count = |key: &str| row[key].as_u64().unwrap_or_default();
            cells.push(Cell::Runs(count("runs"), count("flagged")));
        } else {
            cells.push(Cell::NotShown);
        }
        cells
    });
    let rounds = rounds(part);
    let unit = if rounds == 1 { "round" } else { "rounds" };
    let brackets = brackets(part, &part.figures);
    let caption = format!("Medians of {rounds} {unit} {brackets}");
    Table::filled(caption, columns, rows.collect())
}

/// A figure over runs: a number, or the most frequent text.
fn figure(of: &Value) -> Cell {
    match (&of["word"], &of["times"], &of["rounds"]) {
        (Value::String(text), times, rounds) if times == rounds => Cell::Words(text.clone()),
        (Value::String(text), times, rounds) => {
            Cell::Words(format!("{text} ({times} of {rounds})"))
        }
        _ => Cell::Estimate(estimate(of)),
    }
}

fn missing(part: &Part<'_>) -> Vec<String> {
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    for row in part.rows.iter().filter(|row| !row["missing"].is_null()) {
        let (why, setting) = (word(&row["missing"]), word(&row["setting"]));
        match reasons.iter_mut().find(|(other, _)| *other == why) {
            Some((_, settings)) => settings.push(setting),
            None => reasons.push((why, vec![setting])),
        }
    }
    let lines = reasons.into_iter().map(|(why, settings)| {
        let what = match settings.len() {
            all if all == part.rows.len() => "all settings".to_owned(),
            1..=3 => settings.join("; "),
            many => format!("{many} settings"),
        };
        format!("Not shown here: {what}: {why}")
    });
    lines.collect()
}

fn spreads(part: &Part<'_>) -> Option<Table> {
    let rounds = rounds(part);
    if rounds < 2 {
        return None;
    }
    let has_outliers = rounds >= OUTLIER_ROUNDS_MIN;
    let spread = |row: &Value, key: &str| {
        let of = |name: &str| row["figures"][key][name].as_f64();
        let (min, max) = (of("min")?, of("max")?);
        let median = of("median").filter(|median| *median != 0.0)?;
        Some((100.0 * (max - min) / median.abs(), min, max))
    };
    let row = |figure: &Figure| {
        let rows = part.rows.iter();
        let mut spreads: Vec<_> = rows
            .filter_map(|row| Some((spread(row, &figure.key)?, *row)))
            .collect();
        spreads.sort_by(|a, b| a.0.0.total_cmp(&b.0.0));
        let ((greatest, min, max), row) = *spreads.last()?;
        let typical = spreads[spreads.len() / 2].0.0;
        let mut cells = vec![Cell::Words(figure.title.clone())];
        cells.extend([typical, greatest, min, max].map(Cell::Number));
        if has_outliers {
            let outliers = part.rows.iter();
            let outliers = outliers.map(|row| list(&row["figures"][&figure.key], "outliers").len());
            cells.push(Cell::Number(outliers.sum::<usize>() as f64));
        }
        cells.push(Cell::Words(word(&row["setting"])));
        Some(cells)
    };
    let mut columns = vec![column("figure", Kind::Name)];
    let numbers = ["typical, %", "greatest, %", "from", "to"].into_iter();
    let numbers = numbers.chain(has_outliers.then_some("outliers"));
    columns.extend(numbers.map(|title| column(title, Kind::Number)));
    columns.push(column("greatest with", Kind::Words));
    let caption = "Spread of equal settings: the greatest run less the least, in percent of the \
                   median";
    Table::filled(
        caption,
        columns,
        part.figures.iter().filter_map(row).collect(),
    )
}

fn claims(part: &Part<'_>) -> Vec<Claim> {
    let same = |a: &&Value, b: &&Value| a["claim"] == b["claim"];
    let claims = part.claims.chunk_by(same);
    claims.map(|all| claim(part, all)).collect()
}

fn claim(part: &Part<'_>, all: &[&Value]) -> Claim {
    let first = all[0];
    let signs = [(">=", "≥"), ("<=", "≤"), ("+-", "±")];
    let goal = signs
        .iter()
        .fold(word(&first["expected"]), |text, (ascii, sign)| {
            text.replace(ascii, sign)
        });
    let mut about = format!("Expected: {goal}");
    let document = word(&first["document"]);
    if !document.is_empty() {
        about.push_str(&format!(" · in the document: {document}"));
    }
    if first["must"] == true {
        about.push_str(" · must hold");
    }
    if first["exact"] == true {
        about.push_str(" · counts, which flagged runs have too");
    }
    let missed = all.iter().find(|one| one["verdict"] == MISSED);
    let compares = all.iter().any(|one| !one["to"].is_null());
    let key = word(&first["figure"]);
    let figure = title(part, &key);
    let measured = match (first["statistic"].as_str(), compares) {
        (Some("spread"), true) => format!("ratio of the relative standard deviations of {figure}"),
        (Some("spread"), false) => format!("relative standard deviation of {figure}"),
        (_, true) => format!("ratio of {figure}"),
        (_, false) => figure,
    };
    Claim {
        text: word(&first["claim"]),
        about,
        measured,
        if_not: missed.map(|one| word(&one["if_not"])).unwrap_or_default(),
        expected: expected(&word(&first["expected"])),
        compares,
        judged: all.iter().map(|one| judged(one)).collect(),
    }
}

/// The title of a figure. A ratio that has no column is that of two titles.
fn title(part: &Part<'_>, key: &str) -> String {
    let known = part.figures.iter().find(|figure| figure.key == key);
    match (known, key.split_once(" / ")) {
        (Some(figure), _) => figure.title.clone(),
        (None, Some((above, below))) => {
            format!("{} / {}", title(part, above), title(part, below))
        }
        (None, None) => key.to_owned(),
    }
}

fn judged(one: &Value) -> Judged {
    let (mut of, to, why) = (word(&one["of"]), word(&one["to"]), word(&one["why"]));
    if of.is_empty() {
        "all settings".clone_into(&mut of);
    }
    // The settings are beside the reason already.
    let of_this = why.strip_prefix(&format!("{of}: ")).map(str::to_owned);
    let of_other = why.strip_prefix(&format!("{to}: "));
    let of_other = of_other.map(|why| format!("the other setting: {why}"));
    Judged {
        verdict: word(&one["verdict"]),
        to: word(&differing(&one["to"], &one["of"])),
        measured: estimate(&one["measured"]),
        why: of_this.or(of_other).unwrap_or(why),
        of,
    }
}

/// The settings of `to` that `of` does not have.
fn differing(to: &Value, of: &Value) -> Value {
    let settings = to.as_object().into_iter().flatten();
    let differ = settings.filter(|(axis, name)| of[*axis] != **name);
    differ
        .map(|(axis, name)| (axis.clone(), name.clone()))
        .collect::<Map<_, _>>()
        .into()
}

/// The range that is expected: `>= 1.5`, `<= 2` or `1 +- 0.1`.
pub(super) fn expected(text: &str) -> (f64, f64) {
    let value = |text: &str| text.trim().parse().unwrap_or(f64::NAN);
    if let Some(least) = text.strip_prefix(">=") {
        (value(least), f64::INFINITY)
    } else if let Some(most) = text.strip_prefix("<=") {
        (f64::NEG_INFINITY, value(most))
    } else if let Some((middle, distance)) = text.split_once("+-") {
        let (middle, distance) = (value(middle), value(distance));
        (middle - distance, middle + distance)
    } else {
        (f64::NEG_INFINITY, f64::INFINITY)
    }
}

/// The settings in force: those that differ between rows, and those that all rows have.
fn settings(part: &Part<'_>) -> (Option<Table>, Option<Table>) {
    let rows = part.rows.iter().copied();
    let rows: Vec<&Value> = rows.filter(|row| row["settings"].is_object()).collect();
    let Some(first) = rows.first() else {
        return (None, None);
    };
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in rows
        .iter()
        .filter_map(|row| row["settings"].as_object())
        .flatten()
    {
        if !names.contains(&&**name) {
            names.push(name);
        }
    }
    let is_equal = |name: &&str| {
        let same = |row: &&Value| row["settings"][name] == first["settings"][name];
        rows.iter().all(same)
    };
    let (equal, differ): (Vec<&str>, Vec<&str>) = names.into_iter().partition(is_equal);
    let value = |row: &Value, name: &&str| Cell::Words(word(&row["settings"][name]));
    let mut columns = axes(part);
    columns.extend(differ.iter().map(|name| column(*name, Kind::Words)));
    let differing = rows.iter().filter(|_| !differ.is_empty()).map(|row| {
        let values = differ.iter().map(|name| value(row, name));
        setting(part, row).into_iter().chain(values).collect()
    });
    let differing = Table::filled(
        "Settings that differ between rows",
        columns,
        differing.collect(),
    );
    // Such as no notes in any row.
    let is_empty = |name: &&str| word(&first["settings"][name]).is_empty();
    let equal = equal.into_iter().filter(|name| !is_empty(name));
    let shared = equal.map(|name| vec![Cell::Words(name.to_owned()), value(first, &name)]);
    let columns = vec![column("setting", Kind::Name), column("value", Kind::Words)];
    let shared = Table::filled("Settings of all rows", columns, shared.collect());
    (differing, shared)
}
