//! An experiment, read and checked: its cells are the combinations of its settings.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

use packtrain_measure::document::{Axis, Better, Claim, Definition, Figure, Setting};
use packtrain_measure::{Expected, Key, Verdict};
use serde::de::DeserializeOwned;
use toml::{Spanned, Value};

use super::file::{File, GuestSpec, Layer, Names, Needs, Overlay, Selection};
use super::known;
use super::workload::{ReadOptions, TOOLS, Workload};
use crate::options::option_names;
use crate::testbed::TestbedOptions;

/// Most combinations of one experiment, with those that `skip` leaves out.
const CELLS_MAX: usize = 10_000;

/// The options of the testbed that no command line has.
const IN_FILES: [&str; 4] = ["machine", "host-a", "host-b", PULL];

/// The one that is for the host of a guest.
const PULL: &str = "pull";

/// Rounds of an experiment whose file does not say.
const ROUNDS: usize = 5;

/// An experiment: what a document claims, and the settings whose figures show it.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// As documents have it, before any run.
    pub definition: Definition,
    /// What is expected.
    pub claims: Vec<Expectation>,
    /// The combinations of settings.
    pub cells: Vec<Cell>,
    /// Rounds, unless others are asked for.
    pub rounds: usize,
    /// Its own file, or a name in angle brackets.
    path: String,
    text: String,
}

/// What is expected of cells, or of ratios of cells.
#[derive(Clone, Debug)]
pub struct Expectation {
    /// As documents have it, not judged yet.
    pub claim: Claim,
    /// Which of two values of the figure is better, if either is.
    pub better: Option<Better>,
    /// The cells that the claim is about, at least one, each with those to which it is compared.
    /// With several of these the best one counts.
    pub pairs: Vec<Pair>,
}

/// A cell, and the cells to which it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The cell.
    pub of: usize,
    /// Empty if the figure itself is expected, not a ratio.
    pub to: Vec<usize>,
}

/// One combination of settings.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The setting of each axis, in the order of the axes.
    pub names: Vec<String>,
    /// What it needs.
    pub needs: Needs,
    /// Whether a quick run leaves it out.
    pub is_long: bool,
    testbed: Merged,
    workload: Merged,
    quick: Merged,
    check: Merged,
    values: BTreeMap<String, Value>,
    guest: Option<Arc<GuestSpec>>,
}

/// What one run does.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How the ports are joined.
    pub testbed: TestbedOptions,
    /// The tool and its options.
    pub workload: Workload,
    /// Settings that must be read back.
    pub check: Vec<(String, String)>,
    /// Whether the frames of packtrain's memory in use are counted meanwhile. It disturbs the
    /// workers, so only an experiment with such a figure does it.
    pub memory: bool,
    /// Where it is made, if not on this machine.
    pub place: Option<Place>,
}

/// A run in a guest.
#[derive(Clone, Debug)]
pub struct Place {
    /// The guest.
    pub guest: Arc<GuestSpec>,
    /// The file of an experiment that has no other setting.
    pub text: String,
}

/// Values of layers that were put on top of each other, each with its place in the file.
type Merged = BTreeMap<String, Spanned<Value>>;

/// What is wrong with a file. It is displayed in one line, with the number of the line in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    path: String,
    line: usize,
    what: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, what } = self;
        write!(f, "{path}:{line}: {what}")
    }
}

impl core::error::Error for FileError {}

/// What is wrong, and where.
type Wrong = (Range<usize>, String);

impl Experiment {
    /// Reads the text of a file. `path` is named in errors.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line and what to write.
    pub fn read(path: &str, text: &str) -> Result<Self, FileError> {
        let of_text = |(span, what): Wrong| error(path, text, span, what);
        let file: File = toml::from_str(text).map_err(|error| {
            let message = error.message().trim().replace('\n', "; ");
            of_text((error.span().unwrap_or(0..0), message))
        })?;
        Self::of(path, text, file).map_err(of_text)
    }

    fn of(path: &str, text: &str, file: File) -> Result<Self, Wrong> {
        let axes = axes(&file)?;
        let mut cells = cells(&file)?;
        for (skip, drop) in [(&file.skip, true), (&file.quick.skip, false)] {
            for selection in skip {
                let chosen = select(&axes, selection)?;
                let matches = |cell: &Cell| matches(&chosen, &cell.names);
                if !cells.iter().any(matches) {
                    return Err(nothing(selection));
                }
                if drop {
                    cells.retain(|cell| !matches(cell));
                } else {
                    let long = cells.iter_mut().filter(|cell| matches(cell));
                    long.for_each(|cell| cell.is_long = true);
                }
            }
        }
        if file.figures.is_empty() || cells.is_empty() {
            let what = "an experiment has at least one figure and one combination of settings";
            return Err((0..0, what.to_owned()));
        }
        for cell in &cells {
            cell.setup_or(1, false)?;
            cell.setup_or(1, true)?;
        }
        let figures = file.figures.into_iter().map(|figure| {
            let is_exact = |claim: &super::file::Claim| {
                claim.exact && claim.figure.as_ref() == figure.key.as_ref()
            };
            Ok(Figure {
                exact: file.claims.iter().any(is_exact),
                key: key(&figure.key)?,
                title: figure.title,
                unit: figure.unit,
                better: figure.better,
            })
        });
        let figures: Vec<Figure> = figures.collect::<Result<_, Wrong>>()?;
        let claims = file
            .claims
            .iter()
            .map(|one| claim(&file.name, one, &axes, &cells, &figures));
        Ok(Self {
            claims: claims.collect::<Result<_, Wrong>>()?,
            definition: Definition {
                name: file.name,
                source: file.source,
                title: file.title,
                document: file.document,
                axes,
                figures,
                meaning: file.meaning,
                limits: file.limits,
                ..Definition::default()
            },
            cells,
            rounds: file.repeats.map_or(ROUNDS, NonZeroUsize::get),
            path: path.to_owned(),
            text: text.to_owned(),
        })
    }

    /// Its name on the command line.
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// The figures that are shown or claimed.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        let figures = self.definition.figures.iter().map(|figure| &figure.key);
        figures.chain(self.claims.iter().map(|one| &one.claim.figure))
    }

    /// What the run of a cell does; `{seed}` stands for `seed`.
    ///
    /// # Errors
    /// As [`Experiment::read`], which has tried another seed.
    pub fn setup(&self, cell: usize, seed: u64, quick: bool) -> Result<Setup, FileError> {
        let memory = self.keys().any(|key| key.is_of("memory"));
        self.cells[cell]
            .setup_or(seed, quick)
            .map(|setup| Setup { memory, ..setup })
            .map_err(|(span, what)| error(&self.path, &self.text, span, what))
    }

    /// Refuses a figure that no run can have, before any run.
    ///
    /// # Errors
    /// The first such figure, with its line and the nearest names.
    pub fn check_figures(&self) -> Result<(), FileError> {
        let wrong = |key: &Key, what: String| {
            let at = self.text.find(&key.to_string()).unwrap_or_default();
            error(&self.path, &self.text, at..at, what)
        };
        let mut schemas: Vec<(&str, serde_json::Value)> = Vec::new();
        for cell in 0..self.cells.len() {
            let tool = self.setup(cell, 1, false)?.workload.name();
            if !schemas.iter().any(|(other, _)| *other == tool) {
                schemas.push((tool, known::figures(tool)));
            }
        }
        for key in self.keys() {
            let is_known = |path: &str| schemas.iter().any(|(_, one)| known::is_known(one, path));
            if let Some(path) = key.paths().find(|path| !is_known(path)) {
                let nearest = schemas
                    .iter()
                    .flat_map(|(_, one)| known::nearest(one, path));
                let nearest = nearest.take(3).collect::<Vec<_>>().join(", ");
                let what = format!("no run has the figure {path}; the nearest are {nearest}");
                return Err(wrong(key, what));
            }
        }
        Ok(())
    }

    /// The settings of a cell by their axes, in words: `offload=tso mtu=9000`.
    pub fn label(&self, cell: usize) -> String {
        let axes = self.definition.axes.iter().map(|axis| axis.name.clone());
        let names = self.cells[cell].names.iter().cloned();
        Setting(axes.zip(names).collect()).to_string()
    }
}

fn error(path: &str, text: &str, span: Range<usize>, what: String) -> FileError {
    let before = text.get(..span.start).unwrap_or_default();
    FileError {
        path: path.to_owned(),
        line: before.matches('\n').count() + 1,
        what,
    }
}

fn axes(file: &File) -> Result<Vec<Axis>, Wrong> {
    let mut axes: Vec<Axis> = Vec::new();
    for axis in &file.axes {
        let name = axis.name.as_ref();
        let wrong = |what: String| Err((axis.name.span(), what));
        if name == "seed" || axes.iter().any(|other| other.name == *name) {
            return wrong(format!("another name than '{name}': it is taken"));
        }
        let settings: Vec<String> = axis.settings.iter().map(|one| one.name.clone()).collect();
        if settings.is_empty() {
            return wrong(format!(
                "axis '{name}' has no settings: [\"first\", \"second\"]"
            ));
        }
        let again = |at: usize| settings[..at].contains(&settings[at]);
        if let Some(at) = (0..settings.len()).find(|&at| again(at)) {
            return wrong(format!("axis '{name}' has '{}' twice", settings[at]));
        }
        axes.push(Axis {
            name: name.clone(),
            settings,
        });
    }
    Ok(axes)
}

/// All combinations, the last axis varying fastest.
fn cells(file: &File) -> Result<Vec<Cell>, Wrong> {
    let mut cells = vec![Cell {
        names: Vec::new(),
        needs: file.needs,
        is_long: false,
        testbed: file.testbed.clone(),
        workload: file.workload.clone(),
        quick: file.quick.workload.clone(),
        check: file.check.clone(),
        values: BTreeMap::new(),
        guest: file.guest.clone().map(Arc::new),
    }];
    for axis in &file.axes {
        let name = axis.name.as_ref();
        if cells.len() * axis.settings.len() > CELLS_MAX {
            let what = format!("more than {CELLS_MAX} combinations of settings");
            return Err((axis.name.span(), what));
        }
        let with = |cell: &Cell| -> Vec<Cell> {
            let settings = axis.settings.iter();
            settings
                .map(|setting| {
                    let mut cell = cell.clone();
                    cell.names.push(setting.name.clone());
                    cell.values.insert(name.clone(), setting.value.clone());
                    cell.put(&setting.overlay);
                    cell
                })
                .collect()
        };
        cells = cells.iter().flat_map(with).collect();
    }
    Ok(cells)
}

impl Cell {
    /// Whether it runs in virtual time.
    pub fn is_virtual(&self) -> bool {
        self.testbed.contains_key("machine")
    }

    /// Whether it runs in a guest.
    pub fn is_in_guest(&self) -> bool {
        self.guest.is_some()
    }

    fn put(&mut self, overlay: &Overlay) {
        if overlay.workload.contains_key("tool") {
            self.workload.clear();
        }
        put(&mut self.testbed, &overlay.testbed);
        put(&mut self.workload, &overlay.workload);
        put(&mut self.check, &overlay.check);
        self.needs.cpus = self.needs.cpus.max(overlay.needs.cpus);
    }

    fn setup_or(&self, seed: u64, quick: bool) -> Result<Setup, Wrong> {
        let mut values = self.values.clone();
        let seed = i64::try_from(seed).unwrap_or(i64::MAX);
        values.insert("seed".to_owned(), seed.into());
        let filled = |layer: &Merged| -> Result<Merged, Wrong> {
            let one = |(name, value): (&String, &Spanned<Value>)| {
                Ok((name.clone(), fill(value, &values)?))
            };
            layer.iter().map(one).collect()
        };
        let mut workload = self.workload.clone();
        if quick {
            put(&mut workload, &self.quick);
        }
        let mut workload = filled(&workload)?;
        let testbed = filled(&self.testbed)?;
        let place = self.guest.as_ref().map(|guest| Place {
            guest: Arc::clone(guest),
            text: alone(&testbed, &workload),
        });
        if let (Some(pull), None) = (testbed.get(PULL), &place) {
            let what = "[testbed] pull is for the card of a guest: add [guest], or leave it out";
            return Err((pull.span(), what.to_owned()));
        }
        let known = TOOLS.join(", ");
        let Some(tool) = workload.remove("tool") else {
            let what = format!("[workload] has no tool: write tool = \"…\", one of {known}");
            return Err((first(&workload), what));
        };
        let name = tool.as_ref().as_str().unwrap_or_default();
        let workload = Workload::read(name, Table("workload", &workload));
        let unknown = || {
            let what = format!(
                "[workload] tool cannot be {}; write one of {known}",
                tool.as_ref()
            );
            (tool.span(), what)
        };
        let check = filled(&self.check)?.into_iter();
        let mut names = option_names::<TestbedOptions>();
        names.extend(IN_FILES.map(str::to_owned));
        if let Some((name, value)) = testbed.iter().find(|(name, _)| !names.contains(name)) {
            let names = names.join(", ");
            let what = format!("[testbed] there is no '{name}'; the names are {names}");
            return Err((value.span(), what));
        }
        let mut testbed: TestbedOptions = Table("testbed", &testbed).options()?;
        testbed
            .machine
            .iter_mut()
            .for_each(|machine| machine.seed = seed as u64);
        Ok(Setup {
            testbed,
            workload: workload.ok_or_else(unknown)??,
            check: check
                .map(|(name, value)| (name, shown(value.as_ref())))
                .collect(),
            memory: false,
            place,
        })
    }
}

/// The file of an experiment with one setting, which has these options.
fn alone(testbed: &Merged, workload: &Merged) -> String {
    let layer = |layer: &Merged| -> Value {
        let values = layer.iter().filter(|(name, _)| *name != PULL);
        let values = values.map(|(name, value)| (name.clone(), value.as_ref().clone()));
        Value::Table(values.collect())
    };
    let table = |pairs: &[(&str, Value)]| -> toml::Table {
        let pairs = pairs.iter();
        let pairs = pairs.map(|(name, value)| ((*name).to_owned(), value.clone()));
        pairs.collect()
    };
    let axis = table(&[
        ("name", "setting".into()),
        ("settings", vec!["only"].into()),
    ]);
    let figure = table(&[("key", "ns_per_packet".into()), ("title", "CPU".into())]);
    table(&[
        ("name", "row".into()),
        ("source", "".into()),
        ("title", "a row of an experiment".into()),
        ("meaning", "".into()),
        ("document", table(&[("claims", "".into())]).into()),
        ("testbed", layer(testbed)),
        ("workload", layer(workload)),
        ("axes", vec![axis].into()),
        ("figures", vec![figure].into()),
    ])
    .to_string()
}

fn put(below: &mut Merged, layer: &Layer) {
    below.extend(
        layer
            .iter()
            .map(|(name, value)| (name.clone(), value.clone())),
    );
}

/// The place of the option that is written first.
fn first(layer: &Merged) -> Range<usize> {
    let spans = layer.values().map(Spanned::span);
    spans.min_by_key(|span| span.start).unwrap_or(0..0)
}

/// A value as a person writes it: a string without quotes.
pub fn shown(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Replaces `{AXIS}` in a string. If the string is nothing else, the value may be a number.
fn fill(value: &Spanned<Value>, values: &BTreeMap<String, Value>) -> Result<Spanned<Value>, Wrong> {
    let span = value.span();
    let Some(mut text) = value.as_ref().as_str() else {
        return Ok(value.clone());
    };
    let known = |name: &str| {
        values.get(name).ok_or_else(|| {
            let known: Vec<_> = values.keys().map(String::as_str).collect();
            let known = known.join(", ");
            (
                span.clone(),
                format!("there is no axis '{name}'; the names are {known}"),
            )
        })
    };
    let mut filled = String::new();
    while let Some((before, after)) = text.split_once('{') {
        let Some((name, after)) = after.split_once('}') else {
            return Err((span, "a '{' without a '}'".to_owned()));
        };
        let value = known(name)?;
        if before.is_empty() && after.is_empty() && filled.is_empty() {
            return Ok(Spanned::new(span, value.clone()));
        }
        filled.push_str(before);
        filled.push_str(&shown(value));
        text = after;
    }
    filled.push_str(text);
    Ok(Spanned::new(span, filled.into()))
}

/// A table of the file: its name, and its options.
struct Table<'a>(&'static str, &'a Merged);

impl ReadOptions<Wrong> for Table<'_> {
    fn options<T: DeserializeOwned>(self) -> Result<T, Wrong> {
        let Self(name, options) = self;
        let value =
            |(name, value): (&String, &Spanned<Value>)| (name.clone(), value.as_ref().clone());
        let read = |table: toml::Table| table.try_into::<T>();
        let error = match read(options.iter().map(value).collect()) {
            Ok(read) => return Ok(read),
            Err(error) => error,
        };
        // Every option has a default, so one that is wrong is wrong alone.
        let wrong = options.iter().find_map(|one| {
            let alone = read([value(one)].into_iter().collect());
            Some((
                one.1.span(),
                format!("[{name}] {}: {}", one.0, alone.err()?.message()),
            ))
        });
        Err(wrong.unwrap_or_else(|| (first(options), format!("[{name}] {}", error.message()))))
    }
}

/// The names that are chosen of each axis, in the order of the axes; `None` for all.
type Chosen = Vec<Option<Vec<String>>>;

fn select(axes: &[Axis], selection: &Selection) -> Result<Chosen, Wrong> {
    let mut chosen: Chosen = vec![None; axes.len()];
    for (name, names) in selection {
        let wrong = |what: String| (names.span(), what);
        let Some(at) = axes.iter().position(|axis| axis.name == *name) else {
            let known: Vec<_> = axes.iter().map(|axis| axis.name.as_str()).collect();
            let known = known.join(", ");
            return Err(wrong(format!(
                "there is no axis '{name}'; the axes are {known}"
            )));
        };
        let Names(names) = names.as_ref();
        let known = &axes[at].settings;
        if let Some(unknown) = names.iter().find(|one| !known.contains(one)) {
            let known = known.join(", ");
            return Err(wrong(format!(
                "axis '{name}' has no '{unknown}'; it has {known}"
            )));
        }
        chosen[at] = Some(names.clone());
    }
    Ok(chosen)
}

fn matches(chosen: &Chosen, names: &[String]) -> bool {
    chosen
        .iter()
        .zip(names)
        .all(|(chosen, name)| chosen.as_ref().is_none_or(|chosen| chosen.contains(name)))
}

fn nothing(selection: &Selection) -> Wrong {
    let span = selection.values().map(Spanned::span).next().unwrap_or(0..0);
    (
        span,
        "no combination of settings has all of these".to_owned(),
    )
}

fn key(text: &Spanned<String>) -> Result<Key, Wrong> {
    text.as_ref()
        .parse()
        .map_err(|what: String| (text.span(), what))
}

fn claim(
    experiment: &str,
    claim: &super::file::Claim,
    axes: &[Axis],
    cells: &[Cell],
    figures: &[Figure],
) -> Result<Expectation, Wrong> {
    let wrong = |what: &str| (claim.text.span(), what.to_owned());
    let expected = match (claim.at_least, claim.at_most, claim.within) {
        (Some(least), None, None) => Expected::AtLeast(least),
        (None, Some(most), None) => Expected::AtMost(most),
        (None, None, Some(within)) => Expected::Within {
            value: within.value,
            distance: within.distance,
        },
        _ => {
            return Err(wrong(
                "a claim has one of at-least, at-most, within = { value = 1, distance = 0.1 }",
            ));
        }
    };
    let beyond = |effect: f64| match expected {
        Expected::AtLeast(least) => least >= 1.0 && effect >= least && effect > 1.0,
        Expected::AtMost(most) => most <= 1.0 && (0.0..=most).contains(&effect) && effect < 1.0,
        Expected::Within { .. } => false,
    };
    if claim
        .effect
        .is_some_and(|effect| claim.to.is_none() || !beyond(effect))
    {
        return Err(wrong(
            "effect is the document's ratio: a claim with it has a `to`, and at-least from 1 to \
             the effect, or at-most from the effect to 1",
        ));
    }
    let of = select(axes, &claim.of)?;
    let to = claim.to.as_ref().map(|to| select(axes, to)).transpose()?;
    let key = key(&claim.figure)?;
    let better = figures.iter().find(|figure| figure.key == key);
    let better = better.and_then(|figure| figure.better);
    let mut pairs = Vec::new();
    for (index, cell) in cells.iter().enumerate() {
        if !matches(&of, &cell.names) {
            continue;
        }
        let Some(to) = &to else {
            pairs.push(Pair {
                of: index,
                to: Vec::new(),
            });
            continue;
        };
        // An axis that `to` does not name has the same setting on both sides.
        let names = to.iter().zip(&cell.names);
        let beside: Chosen = names
            .map(|(to, name)| Some(to.clone().unwrap_or_else(|| vec![name.clone()])))
            .collect();
        let others = cells.iter().enumerate();
        let others: Vec<usize> = others
            .filter(|(other, cell)| *other != index && matches(&beside, &cell.names))
            .map(|(other, _)| other)
            .collect();
        if others.len() > 1 && better.is_none() {
            return Err(wrong(
                "`to` chooses several combinations, and the figure has no `better` to choose the \
                 best of them",
            ));
        }
        if !others.is_empty() {
            pairs.push(Pair {
                of: index,
                to: others,
            });
        }
    }
    if pairs.is_empty() {
        return Err(wrong(
            "no combination of settings is what `of` and `to` choose",
        ));
    }
    Ok(Expectation {
        claim: Claim {
            experiment: experiment.to_owned(),
            claim: claim.text.as_ref().clone(),
            figure: key,
            statistic: claim.statistic,
            of: Setting::default(),
            to: None,
            expected,
            document: claim.document.clone(),
            effect: claim.effect,
            if_not: claim.if_not.clone(),
            if_more: claim.if_more.clone(),
            exact: claim.exact,
            measured: None,
            verdict: Verdict::NotJudged,
            why: None,
            must: claim.must,
        },
        better,
        pairs,
    })
}
