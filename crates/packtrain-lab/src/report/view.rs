//! What an experiment's tables show, as data. The page and the text of `packtrain experiment` draw
//! the same view, so they say the same.

use std::fmt;

use packtrain_measure::document::{
    self, Better, Definition, Document, Figure, Over, Row, Setting, Statistic,
};
use packtrain_measure::numbers::{elapsed, number};
use packtrain_measure::statistics::{Estimate, coverage_percent};
use packtrain_measure::{Key, Verdict};
use serde_json::Value;

use super::read::{Part, interval, word};

/// With fewer runs, the bootstrap interval of a median ends at the least and the greatest run.
const INTERVAL_RUNS_MIN: usize = 6;
/// With fewer values, none can be an outlier: the fences are beyond the least and the greatest.
const OUTLIER_ROUNDS_MIN: usize = 4;

/// One experiment of a document.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// What it is, and what its source has.
    pub definition: &'a Definition,
    /// The source's own table, if it has one.
    pub theirs: Option<Table>,
    /// The figures of this machine, if there are runs.
    pub ours: Option<Table>,
    /// Of each claim on a spread, the worst and the best run of the settings that it compares.
    pub extremes: Vec<Table>,
    /// The rows of `ours` of which a claim is not reproduced, and those that they are compared to.
    pub lost: Vec<usize>,
    /// What this host cannot show, a sentence for each reason.
    pub missing: Vec<String>,
    /// How far apart the runs of equal settings are, if rounds were repeated.
    pub spreads: Option<Table>,
    /// The claims with their verdicts.
    pub claims: Vec<Claimed<'a>>,
    /// Settings in force that differ between rows, if any do.
    pub differing: Option<Table>,
    /// Settings in force that all rows have: a name and a value in each row.
    pub shared: Option<Table>,
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
    Runs(usize, usize),
    /// The row cannot be shown on this host.
    NotShown,
}

/// A claim, in all settings that it is about.
#[derive(Clone, Debug)]
pub struct Claimed<'a> {
    /// The claim in words.
    pub text: &'a str,
    /// What is expected, what the source has, and whether the claim must hold.
    pub about: String,
    /// What is measured: the title of the figure, or of which figure it is the ratio.
    pub measured: String,
    /// Why it may not be reproduced here, or exceeds the document; empty if neither is so in any
    /// setting, or if nothing is known.
    pub reasons: Vec<String>,
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
    /// The verdict.
    pub verdict: Verdict,
    /// The setting.
    pub of: String,
    /// Where the setting that it is compared to differs; empty if it is compared to none.
    pub to: String,
    /// What was measured.
    pub measured: Option<Estimate>,
    /// Why it is not judged; empty if it is.
    pub why: String,
}

impl<'a> View<'a> {
    /// The experiments of a document.
    pub fn all(document: &'a Document) -> Vec<Self> {
        Part::all(document).iter().map(Self::of).collect()
    }

    /// One experiment.
    pub(super) fn of(part: &Part<'a>) -> Self {
        let (differing, shared) = settings(part);
        Self {
            definition: part.definition,
            theirs: theirs(&part.definition.document),
            ours: ours(part),
            extremes: part
                .claims
                .iter()
                .filter_map(|one| extremes(part, one))
                .collect(),
            lost: lost(part),
            missing: missing(part),
            spreads: spreads(part),
            claims: claims(part),
            differing,
            shared,
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
    let axes = part.axes().iter();
    axes.map(|axis| column(&axis.name, Kind::Name)).collect()
}

/// The setting of each axis.
fn setting(part: &Part<'_>, of: &Setting) -> Vec<Cell> {
    let axes = part.axes().iter();
    axes.map(|axis| Cell::Words(of.of(&axis.name).to_owned()))
        .collect()
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words(text) if text.is_empty() => f.write_str("–"),
            Self::Estimate(None) => f.write_str("–"),
            Self::Words(text) => f.write_str(text),
            Self::Number(value) => f.write_str(&number(*value)),
            Self::Estimate(Some(estimate)) => f.write_str(&interval(estimate)),
            Self::Runs(runs, 0) => runs.fmt(f),
            Self::Runs(runs, flagged) => write!(f, "{runs}, {flagged} flagged"),
            Self::NotShown => f.write_str("not shown here"),
        }
    }
}

/// The machine and its state: what the figures of a document hold for.
pub fn conditions(document: &Document) -> Vec<(&'static str, String)> {
    let (head, host) = (&document.head, &document.head.host);
    let loads: Vec<f64> = document.runs.iter().filter_map(|run| run.load).collect();
    let load = match document.load {
        None => String::new(),
        Some(start) if loads.is_empty() => format!("{} at the start", number(start)),
        Some(start) => {
            let low = loads.iter().copied().fold(f64::INFINITY, f64::min);
            let high = loads.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let [start, low, high] = [start, low, high].map(number);
            format!("{start} at the start, {low} to {high} during the runs")
        }
    };
    let cpus = (host.cpus > 0).then(|| host.cpus.to_string());
    let entries = [
        ("packtrain", head.version.clone()),
        ("Kernel", host.kernel.clone()),
        ("CPU", host.machine.clone()),
        ("CPUs", cpus.unwrap_or_default()),
        ("Load, 1 minute", load),
        (
            "Uptime at the start",
            document.uptime_seconds.map(elapsed).unwrap_or_default(),
        ),
        ("Time", host.time.clone()),
    ];
    let entries = entries.into_iter();
    entries.filter(|(_, value)| !value.is_empty()).collect()
}

fn theirs(of: &document::Original) -> Option<Table> {
    let columns = of.columns.iter().enumerate();
    let columns = columns.map(|(at, title)| {
        let kind = if at == 0 { Kind::Name } else { Kind::Words };
        column(title, kind)
    });
    let rows = of.rows.iter();
    let rows = rows.map(|row| row.iter().cloned().map(Cell::Words).collect());
    Table::filled("As printed there", columns.collect(), rows.collect())
}

/// What is in brackets beside the medians of `figures`, and how often that has the true median: of
/// the figure with the fewest runs to that with the most.
pub(super) fn brackets(part: &Part<'_>, figures: &[Figure]) -> String {
    let of_rows = part.rows.iter().flat_map(|row| {
        let all = figures.iter().filter_map(|one| row.estimate(&one.key));
        all.map(|one| one.count)
    });
    let counts: Vec<usize> = of_rows.collect();
    let fewest = counts.iter().min().copied();
    let most = counts.iter().max().copied();
    let rounds = part.definition.rounds;
    let [fewest, most] = [fewest, most].map(|count| count.unwrap_or(rounds));
    let [low, high] = [fewest, most].map(|count| format!("{:.0}", coverage_percent(count)));
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
    if part.rows.iter().all(|row| row.runs == 0) {
        return None;
    }
    let mut columns = axes(part);
    let figures = part.figures().iter();
    columns.extend(figures.map(|one| column(one.head(), Kind::Number)));
    columns.push(column("runs", Kind::Number));
    let rows = part.rows.iter().map(|row| {
        let mut cells = setting(part, &row.setting);
        if row.missing.is_none() {
            let figures = part.figures().iter();
            cells.extend(figures.map(|one| figure(row, &one.key)));
            cells.push(Cell::Runs(row.runs, row.flagged));
        } else {
            cells.push(Cell::NotShown);
        }
        cells
    });
    let rounds = part.definition.rounds;
    let unit = if rounds == 1 { "round" } else { "rounds" };
    let brackets = brackets(part, part.figures());
    let settings = part.rows.iter().filter_map(|row| row.settings.as_ref());
    let on_virtual = settings.filter(|of| of.contains_key("machine")).count();
    let time = match on_virtual {
        0 => "Medians",
        _ if on_virtual == part.rows.len() => "In virtual time, no measurement: medians",
        _ => "Rows on a virtual machine are in virtual time, no measurement. Medians",
    };
    let caption = format!("{time} of {rounds} {unit} {brackets}");
    Table::filled(caption, columns, rows.collect())
}

/// A figure over runs: a number, two groups that are far from each other, or the most frequent
/// text.
pub(super) fn figure(row: &Row, key: &Key) -> Cell {
    match row.figures.get(&key.to_string()) {
        Some(Some(Over::Words(of))) if of.times == of.rounds => Cell::Words(of.word.clone()),
        Some(Some(Over::Words(of))) => {
            Cell::Words(format!("{} ({} of {})", of.word, of.times, of.rounds))
        }
        Some(Some(Over::Numbers(of))) if !of.groups.is_empty() => {
            let all: usize = of.groups.iter().map(|group| group.runs).sum();
            let groups = of.groups.iter();
            let groups = groups.map(|of| format!("{} ({} of {all})", number(of.median), of.runs));
            Cell::Words(groups.collect::<Vec<_>>().join(" | "))
        }
        _ => Cell::Estimate(row.estimate(key)),
    }
}

/// Whether a row has all settings of a side of a claim.
fn has(row: &Row, side: &Setting) -> bool {
    let mut settings = side.0.iter();
    settings.all(|(axis, name)| row.setting.of(axis) == name)
}

/// The worst and the best run of each row of a claim on a spread, as S4 has two tables of equal
/// settings: first those that are compared to, then those that the claim is about.
fn extremes(part: &Part<'_>, claim: &document::Claim) -> Option<Table> {
    let figure = part.figures().iter().find(|one| one.key == claim.figure)?;
    let to = claim
        .to
        .as_ref()
        .filter(|_| claim.statistic == Statistic::Spread)?;
    let sides = [to.without(&claim.of), claim.of.without(to)];
    let fixed = |axis: &&document::Axis| !claim.of.0.contains_key(&axis.name);
    let free: Vec<_> = part.axes().iter().filter(fixed).collect();
    let ends = |row: &Row| {
        let of = row.summary(&figure.key)?;
        Some(match figure.better {
            Some(Better::Lower) => [of.max, of.min],
            _ => [of.min, of.max],
        })
    };
    let rows = part.rows.iter().filter(|row| has(row, &claim.of));
    let rows = rows.filter_map(|of| {
        let beside = |row: &&&Row| {
            let same =
                |axis: &&document::Axis| row.setting.of(&axis.name) == of.setting.of(&axis.name);
            has(row, to) && free.iter().all(same)
        };
        let to = part.rows.iter().find(beside)?;
        let names = free
            .iter()
            .map(|axis| Cell::Words(of.setting.of(&axis.name).to_owned()));
        let numbers = [ends(to)?, ends(of)?]
            .concat()
            .into_iter()
            .map(Cell::Number);
        Some(names.chain(numbers).collect())
    });
    let numbers = sides.iter().flat_map(|side| {
        ["worst", "best"].map(|which| column(format!("{which}, {side}"), Kind::Number))
    });
    let names = free.iter().map(|axis| column(&axis.name, Kind::Name));
    let (head, same) = (figure.head(), claim.of.without(&sides[1]));
    let caption = format!("Worst and best run of equal settings: {head} {same}");
    Table::filled(
        caption.trim_end(),
        names.chain(numbers).collect(),
        rows.collect(),
    )
}

fn lost(part: &Part<'_>) -> Vec<usize> {
    let missed = part.claims.iter();
    let missed = missed.filter(|claim| claim.verdict == Verdict::NotReproduced);
    let sides: Vec<_> = missed
        .flat_map(|claim| [Some(&claim.of), claim.to.as_ref()])
        .collect();
    let is_lost = |row: &Row| sides.iter().flatten().any(|side| has(row, side));
    let rows = part.rows.iter().enumerate();
    rows.filter(|(_, row)| is_lost(row))
        .map(|(at, _)| at)
        .collect()
}

fn missing(part: &Part<'_>) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for row in &part.rows {
        let Some(why) = row.missing.as_deref() else {
            continue;
        };
        let setting = row.setting.to_string();
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
    let rounds = part.definition.rounds;
    if rounds < 2 {
        return None;
    }
    let has_outliers = rounds >= OUTLIER_ROUNDS_MIN;
    let row = |figure: &Figure| {
        let summaries = part.rows.iter();
        let summaries = summaries.filter_map(|row| Some((row.summary(&figure.key)?, row)));
        let summaries: Vec<_> = summaries.collect();
        let outliers = summaries.iter().map(|(of, _)| of.outliers.len());
        let outliers = outliers.sum::<usize>() as f64;
        let spreads = summaries.into_iter().filter_map(|(of, row)| {
            let median = of.estimate.median.abs();
            (median != 0.0).then(|| (100.0 * (of.max - of.min) / median, of, row))
        });
        let mut spreads: Vec<_> = spreads.collect();
        spreads.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (greatest, of, row) = spreads.last()?;
        let typical = spreads[spreads.len() / 2].0;
        let mut cells = vec![Cell::Words(figure.head())];
        cells.extend([typical, *greatest, of.min, of.max].map(Cell::Number));
        if has_outliers {
            cells.push(Cell::Number(outliers));
        }
        cells.push(Cell::Words(row.setting.to_string()));
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
        part.figures().iter().filter_map(row).collect(),
    )
}

fn claims<'a>(part: &Part<'a>) -> Vec<Claimed<'a>> {
    let claims = part.claims.chunk_by(|a, b| a.claim == b.claim);
    claims.map(|all| claim(part, all)).collect()
}

fn claim<'a>(part: &Part<'_>, all: &[&'a document::Claim]) -> Claimed<'a> {
    let first = all[0];
    let signs = [(">=", "≥"), ("<=", "≤"), ("+-", "±")];
    let goal = first.expected.to_string();
    let goal = signs
        .iter()
        .fold(goal, |text, (ascii, sign)| text.replace(ascii, sign));
    let mut about = format!("Expected: {goal}");
    if !first.document.is_empty() {
        about.push_str(&format!(" · in the document: {}", first.document));
    }
    if first.must {
        about.push_str(" · must hold");
    }
    if first.exact {
        about.push_str(" · counts, which flagged runs have too");
    }
    let reason = |verdict, name, why: fn(&document::Claim) -> &str| {
        let why = why(all.iter().find(|one| one.verdict == verdict)?);
        (!why.is_empty()).then(|| format!("{name}: {why}"))
    };
    let reasons = [
        reason(Verdict::NotReproduced, "Not reproduced", |one| &one.if_not),
        reason(Verdict::Exceeds, "Exceeds", |one| &one.if_more),
    ];
    let compares = all.iter().any(|one| one.to.is_some());
    let figure = title(part, &first.figure.to_string());
    let measured = match (first.statistic, compares) {
        (Statistic::Spread, true) => {
            format!("ratio of the relative standard deviations of {figure}")
        }
        (Statistic::Spread, false) => format!("relative standard deviation of {figure}"),
        (Statistic::Median, true) => format!("ratio of {figure}"),
        (Statistic::Median, false) => figure,
    };
    Claimed {
        text: &first.claim,
        about,
        measured,
        reasons: reasons.into_iter().flatten().collect(),
        expected: first.expected.range(),
        compares,
        judged: all.iter().map(|one| judged(one)).collect(),
    }
}

/// The title of a figure. A ratio that has no column is that of two titles.
fn title(part: &Part<'_>, key: &str) -> String {
    let mut figures = part.figures().iter();
    let known = figures.find(|figure| figure.key.to_string() == key);
    match (known, key.split_once(" / ")) {
        (Some(figure), _) => figure.head(),
        (None, Some((above, below))) => {
            format!("{} / {}", title(part, above), title(part, below))
        }
        (None, None) => key.to_owned(),
    }
}

fn judged(one: &document::Claim) -> Judged {
    let to = one.to.clone().unwrap_or_default();
    let why = one.why.clone().unwrap_or_default();
    let of = match one.of.to_string() {
        text if text.is_empty() => "all settings".to_owned(),
        text => text,
    };
    // The settings are beside the reason already.
    let of_this = why.strip_prefix(&format!("{of}: ")).map(str::to_owned);
    let of_other = why.strip_prefix(&format!("{to}: "));
    let of_other = of_other.map(|why| format!("the other setting: {why}"));
    Judged {
        verdict: one.verdict,
        to: to.without(&one.of).to_string(),
        measured: one.measured,
        why: of_this.or(of_other).unwrap_or(why),
        of,
    }
}

/// Names of each axis, and what all of their combinations have in force.
type Same<'a> = (Vec<Vec<&'a str>>, Vec<String>);

/// Rows with the same values, as few as there can be: rows that differ in one axis only are one.
fn joined<'a>(axes: &[document::Axis], mut rows: Vec<Same<'a>>) -> Vec<Same<'a>> {
    for at in (0..axes.len()).rev() {
        let mut all: Vec<Same<'a>> = Vec::new();
        for (names, values) in rows {
            let same = all.iter_mut().find(|(others, other)| {
                let mut differ = (0..axes.len()).filter(|axis| names[*axis] != others[*axis]);
                *other == values && differ.all(|axis| axis == at)
            });
            match same {
                Some((others, _)) => others[at].extend(&names[at]),
                None => all.push((names, values)),
            }
        }
        rows = all;
    }
    rows
}

/// The settings in force: those that differ between rows, and those that all rows have.
fn settings(part: &Part<'_>) -> (Option<Table>, Option<Table>) {
    let rows = part.rows.iter();
    let rows: Vec<_> = rows
        .filter_map(|row| Some((*row, row.settings.as_ref()?)))
        .collect();
    let Some((_, first)) = rows.first() else {
        return (None, None);
    };
    let mut names: Vec<&str> = Vec::new();
    for name in rows.iter().flat_map(|(_, settings)| settings.keys()) {
        if !names.contains(&&**name) {
            names.push(name);
        }
    }
    let is_equal = |name: &&str| {
        rows.iter()
            .all(|(_, settings)| settings.get(*name) == first.get(*name))
    };
    let (equal, differ): (Vec<&str>, Vec<&str>) = names.into_iter().partition(is_equal);
    let value =
        |settings: &document::Fields, name: &str| word(settings.get(name).unwrap_or(&Value::Null));
    let mut columns = axes(part);
    columns.extend(differ.iter().map(|name| column(*name, Kind::Words)));
    let differing = rows.iter().filter(|_| !differ.is_empty());
    let differing = differing.map(|(row, settings)| {
        let names = part.axes().iter().map(|axis| row.setting.of(&axis.name));
        let values = differ.iter().map(|name| value(settings, name));
        (names.map(|name| vec![name]).collect(), values.collect())
    });
    let differing = joined(part.axes(), differing.collect()).into_iter();
    let differing = differing.map(|(names, values)| {
        let axes = names
            .into_iter()
            .zip(part.axes())
            .map(|(names, axis)| match names.len() {
                1 => names[0].to_owned(),
                all if all == axis.settings.len() => "any".to_owned(),
                _ => names.join(", "),
            });
        axes.chain(values).map(Cell::Words).collect()
    });
    let differing = Table::filled(
        "Settings that differ between rows",
        columns,
        differing.collect(),
    );
    // Such as no notes in any row are left out.
    let shared = equal.into_iter().filter_map(|name| {
        let value = value(first, name);
        (!value.is_empty()).then(|| vec![Cell::Words(name.to_owned()), Cell::Words(value)])
    });
    let columns = vec![column("setting", Kind::Name), column("value", Kind::Words)];
    let shared = Table::filled("Settings of all rows", columns, shared.collect());
    (differing, shared)
}
