//! What came out: figures with their spread, and verdicts on claims.

use packtrain_bench::Verdict;
use packtrain_bench::statistics::{self, Estimate};

use super::file::{Better, Statistic};
use super::key::Key;
use super::matrix::{Claim, Experiment, Pair};
use super::runner::{Options, Results, Run};

/// The fewest clean runs on which a verdict may rest.
pub const CLEAN_MIN: usize = 3;

/// A figure of a cell over its runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The median of the runs, and its bootstrap interval of 95 %.
    pub estimate: Estimate,
    /// The least value.
    pub min: f64,
    /// The greatest value.
    pub max: f64,
    /// Values that are more than 1.5 interquartile ranges below the first or above the third
    /// quartile (Tukey's fences).
    pub outliers: Vec<f64>,
}

/// Summarises a figure of a cell over its clean runs, or over all of them if none was clean. `None`
/// if no run has the figure.
pub fn summary(results: &Results, cell: usize, key: &Key) -> Option<Summary> {
    let clean = values(results, cell, key, true);
    let found = if clean.is_empty() {
        values(results, cell, key, false)
    } else {
        clean
    };
    let mut values: Vec<f64> = found.into_iter().map(|(_, value)| value).collect();
    let estimate = statistics::bootstrap(values.len(), |rounds| median(&values, rounds))?;
    values.sort_by(f64::total_cmp);
    let quartile = |share: f64| {
        let place = share * (values.len() - 1) as f64;
        let (low, high) = (
            values[place.floor() as usize],
            values[place.ceil() as usize],
        );
        low + (high - low) * place.fract()
    };
    let (first, third) = (quartile(0.25), quartile(0.75));
    let fence = 1.5 * (third - first);
    let is_outlier = |value: &&f64| **value < first - fence || **value > third + fence;
    Some(Summary {
        estimate,
        min: values[0],
        max: values[values.len() - 1],
        outliers: values.iter().filter(is_outlier).copied().collect(),
    })
}

/// A figure of a cell that is a text, over its runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Common {
    /// The most frequent text; of equally frequent ones the first in the order of the alphabet.
    pub word: String,
    /// The number of runs that have it.
    pub times: usize,
    /// The number of runs.
    pub count: usize,
}

/// The most frequent text of a figure of a cell, over its clean runs, or over all of them if none
/// was clean. `None` if the figure is not a text in any run.
pub fn common(results: &Results, cell: usize, key: &Key) -> Option<Common> {
    let words = |clean| -> Vec<&str> {
        let runs = runs(results, cell, clean);
        runs.filter_map(|run| key.word(&run.measured.figures))
            .collect()
    };
    let mut found = words(true);
    if found.is_empty() {
        found = words(false);
    }
    found.sort_unstable();
    let equal = found.chunk_by(|a, b| a == b).rev();
    let most = equal.max_by_key(|equal| equal.len())?;
    Some(Common {
        word: most[0].to_owned(),
        times: most.len(),
        count: found.len(),
    })
}

/// The runs of a cell, or only the clean ones.
fn runs(results: &Results, cell: usize, clean: bool) -> impl Iterator<Item = &Run> {
    let runs = results.runs.iter();
    runs.filter(move |run| run.cell == cell && (!clean || run.measured.flags.is_empty()))
}

/// The figure of each run of a cell, with the round.
fn values(results: &Results, cell: usize, key: &Key, clean: bool) -> Vec<(usize, f64)> {
    let runs = runs(results, cell, clean);
    runs.filter_map(|run| Some((run.round, key.of(&run.measured.figures)?)))
        .collect()
}

/// The figures of a cell on which the verdict on a claim may rest, with the round.
fn counted(results: &Results, cell: usize, claim: &Claim) -> Vec<(usize, f64)> {
    values(results, cell, &claim.key, !claim.exact)
}

fn median(values: &[f64], rounds: &[usize]) -> f64 {
    let chosen: Vec<f64> = rounds.iter().map(|&round| values[round]).collect();
    statistics::median(&chosen)
}

/// What came of a claim for one cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The cell, and the one to which it was compared.
    pub pair: (usize, Option<usize>),
    /// The figure, or the ratio.
    pub measured: Option<Estimate>,
    /// The verdict, or why there is none.
    pub verdict: Result<Verdict, String>,
}

/// Judges a claim, for each of its pairs.
pub fn judge(
    experiment: &Experiment,
    results: &Results,
    claim: &Claim,
    options: &Options,
) -> Vec<Judged> {
    let pairs = claim.pairs.iter();
    pairs
        .map(|pair| one(experiment, results, claim, pair, options.quick))
        .collect()
}

fn one(
    experiment: &Experiment,
    results: &Results,
    claim: &Claim,
    pair: &Pair,
    quick: bool,
) -> Judged {
    let only = pair.to.first().filter(|_| pair.to.len() == 1).copied();
    let beside = only.or_else(|| best(results, claim, pair));
    let not_judged = |why: String| Judged {
        pair: (pair.of, beside),
        measured: None,
        verdict: Err(why),
    };
    let mut sides = vec![pair.of];
    match (beside, pair.to.first()) {
        (Some(beside), _) => sides.push(beside),
        (None, Some(first)) => sides.push(*first),
        (None, None) => {}
    }
    for &side in &sides {
        if let Some(why) = few(experiment, results, claim, side, quick) {
            return not_judged(why);
        }
    }
    // Figures are compared within a round only.
    let mut of = counted(results, pair.of, claim);
    let mut to = beside.map(|beside| counted(results, beside, claim));
    if let Some(to) = &mut to {
        of.retain(|(round, _)| to.iter().any(|(other, _)| other == round));
        to.retain(|(round, _)| of.iter().any(|(other, _)| other == round));
        if of.len() < CLEAN_MIN {
            let (count, runs) = (of.len(), rounds(results));
            return not_judged(format!(
                "in {count} of {runs} rounds both runs were clean, and a verdict needs {CLEAN_MIN}"
            ));
        }
    }
    let figures = |side: Vec<(usize, f64)>| side.into_iter().map(|(_, value)| value).collect();
    let of: Vec<f64> = figures(of);
    let to: Option<Vec<f64>> = to.map(figures);
    let estimate = statistics::bootstrap(of.len(), |rounds| match (claim.statistic, &to) {
        (Statistic::Median, None) => median(&of, rounds),
        (Statistic::Median, Some(to)) => {
            let ratios = rounds.iter().map(|&round| of[round] / to[round]);
            statistics::median(&ratios.collect::<Vec<_>>())
        }
        (Statistic::Spread, None) => spread(&of, rounds),
        (Statistic::Spread, Some(to)) => spread(&of, rounds) / spread(to, rounds),
    });
    let Some(measured) = estimate.filter(|one| one.low.is_finite() && one.high.is_finite()) else {
        return not_judged(format!("{} is 0 where it is divided by", claim.key));
    };
    let verdict = claim.expected.verdict(&measured);
    Judged {
        pair: (pair.of, beside),
        measured: Some(measured),
        verdict: Ok(if quick {
            verdict.min(Verdict::Direction)
        } else {
            verdict
        }),
    }
}

/// The greatest less the least, in parts of the median.
fn spread(values: &[f64], rounds: &[usize]) -> f64 {
    let chosen = || rounds.iter().map(|&round| values[round]);
    let (low, high) = (
        chosen().fold(f64::INFINITY, f64::min),
        chosen().fold(f64::NEG_INFINITY, f64::max),
    );
    (high - low) / median(values, rounds)
}

fn rounds(results: &Results) -> usize {
    results
        .runs
        .iter()
        .map(|run| run.round + 1)
        .max()
        .unwrap_or(0)
}

/// The best of the cells to which a claim compares: by the medians of the same runs, which is in
/// favour of the best.
fn best(results: &Results, claim: &Claim, pair: &Pair) -> Option<usize> {
    let figure = |cell: usize| {
        let values = counted(results, cell, claim);
        let values: Vec<f64> = values.into_iter().map(|(_, value)| value).collect();
        (values.len() >= CLEAN_MIN).then(|| statistics::median(&values))
    };
    let measured = pair
        .to
        .iter()
        .filter_map(|&cell| Some((cell, figure(cell)?)));
    let better = |a: &(usize, f64), b: &(usize, f64)| match claim.better {
        Some(Better::Lower) => b.1.total_cmp(&a.1),
        _ => a.1.total_cmp(&b.1),
    };
    measured.max_by(better).map(|(cell, _)| cell)
}

/// Why a cell has too few clean runs with the figure of a claim; `None` if it has enough.
fn few(
    experiment: &Experiment,
    results: &Results,
    claim: &Claim,
    cell: usize,
    quick: bool,
) -> Option<String> {
    let label = experiment.label(cell);
    if let Some(why) = results.why_missing(cell) {
        return Some(format!("{label} cannot be shown here: {why}"));
    }
    if quick && experiment.cells[cell].is_long {
        return Some("a quick run leaves it out".to_owned());
    }
    let clean = counted(results, cell, claim).len();
    if clean >= CLEAN_MIN {
        return None;
    }
    let runs = results.runs.iter().filter(|run| run.cell == cell);
    let flag = runs.clone().flat_map(|run| &run.measured.flags).next();
    let why = match (flag, runs.count()) {
        (_, runs) if runs < CLEAN_MIN => format!("{label}: number of runs: {runs}"),
        (Some(flag), runs) if !claim.exact => {
            format!("{label}: {clean} of {runs} runs were clean ({flag})")
        }
        (_, runs) => format!(
            "{label}: {clean} of {runs} runs have the figure {}",
            claim.key
        ),
    };
    Some(format!("{why}, and a verdict needs {CLEAN_MIN}"))
}

/// Whether a `must` claim is not reproduced for any cell.
pub fn must_fails(claim: &Claim, judged: &[Judged]) -> bool {
    let failed = |one: &Judged| one.verdict == Ok(Verdict::NotReproduced);
    claim.must && judged.iter().any(failed)
}
