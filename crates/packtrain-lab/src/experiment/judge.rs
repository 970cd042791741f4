//! What came out: figures with their spread, and verdicts on claims.

use packtrain_bench::Verdict;
use packtrain_bench::statistics::{self, Estimate};

use super::file::{Better, Statistic};
use super::key::Key;
use super::matrix::{Claim, Experiment, Pair};
use super::runner::{Options, Results, Run};

/// The fewest clean runs on which a verdict may rest.
pub const CLEAN_MIN: usize = 3;
/// Why a miss is not judged if the interval is on both sides of what is expected.
const TOO_NOISY: &str = "too noisy here: the median is not as expected, a part of the interval is";
/// The fewest rounds on which a verdict on a spread may rest.
const SPREAD_ROUNDS_MIN: usize = 5;

/// A figure of a cell over its runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The median of the runs, and its bootstrap interval.
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
    Some(Summary {
        estimate,
        min: values[0],
        max: values[values.len() - 1],
        outliers: outliers(values),
    })
}

/// The values outside of Tukey's fences, sorted.
pub(crate) fn outliers(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else {
        return values;
    };
    let quartile = |share: f64| {
        let place = share * last as f64;
        let (low, high) = (
            values[place.floor() as usize],
            values[place.ceil() as usize],
        );
        low + (high - low) * place.fract()
    };
    let (first, third) = (quartile(0.25), quartile(0.75));
    let fence = 1.5 * (third - first);
    values.retain(|value| *value < first - fence || *value > third + fence);
    values
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

fn median(values: &[f64], rounds: &[usize]) -> f64 {
    let chosen: Vec<f64> = rounds.iter().map(|&round| values[round]).collect();
    statistics::median(&chosen)
}

/// What came of a claim: for one of its pairs, or for all of them together.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The cells that the verdict is about.
    pub of: Vec<usize>,
    /// The cell to which each of them was compared; empty if the figure itself is expected.
    pub to: Vec<usize>,
    /// The figure, or the ratio.
    pub measured: Option<Estimate>,
    /// The verdict, or why there is none.
    pub verdict: Result<Verdict, NotJudged>,
}

/// Why there is no verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotJudged {
    /// Not enough runs were made: because of the host, of the options, or of a stop.
    LeftOut(String),
    /// The runs that were made do not show whether the claim holds.
    Unclear(String),
}

impl NotJudged {
    /// In words.
    pub fn why(&self) -> &str {
        let (Self::LeftOut(why) | Self::Unclear(why)) = self;
        why
    }
}

/// Judges a claim: on a median for each of its pairs, on a spread for all of them together.
pub fn judge(
    experiment: &Experiment,
    results: &Results,
    claim: &Claim,
    options: &Options,
) -> Vec<Judged> {
    let judge = Judge {
        experiment,
        results,
        claim,
        quick: options.quick,
    };
    let together = match claim.statistic {
        Statistic::Median => 1,
        Statistic::Spread => claim.pairs.len(),
    };
    let verdicts = claim.pairs.chunks(together);
    verdicts.map(|pairs| judge.verdict(pairs)).collect()
}

/// A claim, and the runs on which its verdicts rest.
struct Judge<'a> {
    experiment: &'a Experiment,
    results: &'a Results,
    claim: &'a Claim,
    quick: bool,
}

impl Judge<'_> {
    fn verdict(&self, pairs: &[Pair]) -> Judged {
        let compared = pairs.iter().map(|pair| (pair.of, self.best(pair)));
        let compared: Vec<(usize, Option<usize>)> = compared.collect();
        let measured = self.measured(&compared);
        let verdict = measured.clone().and_then(|measured| {
            let expected = self.claim.expected;
            match expected.verdict(&measured) {
                Verdict::NotReproduced if expected.is_reached(&measured) => {
                    Err(NotJudged::Unclear(TOO_NOISY.to_owned()))
                }
                verdict if self.quick => Ok(verdict.min(Verdict::Direction)),
                verdict => Ok(verdict),
            }
        });
        Judged {
            of: compared.iter().map(|(of, _)| *of).collect(),
            to: compared.iter().filter_map(|(_, to)| *to).collect(),
            measured: measured.ok(),
            verdict,
        }
    }

    fn measured(&self, compared: &[(usize, Option<usize>)]) -> Result<Estimate, NotJudged> {
        let key = &self.claim.key;
        let is_spread = self.claim.statistic == Statistic::Spread;
        if is_spread && rounds(self.results) < SPREAD_ROUNDS_MIN {
            let why = format!("a spread needs {SPREAD_ROUNDS_MIN} rounds");
            return Err(NotJudged::LeftOut(why));
        }
        // The figure of each run, and that of the run to which it is compared.
        let (mut of, mut to) = (Vec::new(), Vec::new());
        for &(cell, beside) in compared {
            let (mut figures, mut others) = self.figures(cell, beside)?;
            if is_spread {
                deviations(&mut figures);
                deviations(&mut others);
            }
            of.append(&mut figures);
            to.append(&mut others);
        }
        let estimate = if is_spread {
            statistics::bootstrap(of.len(), |rounds| {
                let below = if to.is_empty() {
                    1.0
                } else {
                    mean(&to, rounds)
                };
                (mean(&of, rounds) / below).sqrt()
            })
        } else {
            let pairs = of.iter_mut().zip(&to);
            pairs.for_each(|(of, to)| *of /= to);
            statistics::bootstrap(of.len(), |rounds| median(&of, rounds))
        };
        let is_finite = |one: &Estimate| one.low.is_finite() && one.high.is_finite();
        estimate.filter(is_finite).ok_or_else(|| {
            let what = if is_spread { "the spread of " } else { "" };
            NotJudged::Unclear(format!("{what}{key} is 0 where it is divided by"))
        })
    }

    /// The figures of a cell and of the one beside it, of the rounds that both have.
    fn figures(
        &self,
        cell: usize,
        beside: Option<usize>,
    ) -> Result<(Vec<f64>, Vec<f64>), NotJudged> {
        for cell in [Some(cell), beside].into_iter().flatten() {
            self.enough(cell)?;
        }
        let of = self.counted(cell);
        let Some(beside) = beside else {
            return Ok((of.into_iter().map(|(_, value)| value).collect(), Vec::new()));
        };
        let to = self.counted(beside);
        let both = of.into_iter().filter_map(|(round, of)| {
            let (_, to) = to.iter().find(|(other, _)| *other == round)?;
            Some((of, *to))
        });
        let (of, to): (Vec<f64>, Vec<f64>) = both.unzip();
        if of.len() < CLEAN_MIN {
            let (count, runs) = (of.len(), rounds(self.results));
            return Err(NotJudged::Unclear(format!(
                "in {count} of {runs} rounds both runs were clean, and a verdict needs {CLEAN_MIN}"
            )));
        }
        Ok((of, to))
    }

    /// The figure of each run of a cell on which a verdict may rest, with the round.
    fn counted(&self, cell: usize) -> Vec<(usize, f64)> {
        values(self.results, cell, &self.claim.key, !self.claim.exact)
    }

    /// The cell to which a pair compares. Of several the best one: by the medians of the same runs,
    /// which is in favour of the best.
    fn best(&self, pair: &Pair) -> Option<usize> {
        let median = |cell: usize| {
            let values = self.counted(cell).into_iter();
            let values: Vec<f64> = values.map(|(_, value)| value).collect();
            (values.len() >= CLEAN_MIN).then(|| statistics::median(&values))
        };
        let cells = pair.to.iter();
        let measured = cells.filter_map(|&cell| Some((cell, median(cell)?)));
        let better = |a: &(usize, f64), b: &(usize, f64)| match self.claim.better {
            Some(Better::Lower) => b.1.total_cmp(&a.1),
            _ => a.1.total_cmp(&b.1),
        };
        let best = measured.max_by(better).map(|(cell, _)| cell);
        best.or_else(|| pair.to.first().copied())
    }

    /// Fails with the reason if a cell has too few runs on which a verdict may rest.
    fn enough(&self, cell: usize) -> Result<(), NotJudged> {
        let label = self.experiment.label(cell);
        if let Some(why) = self.results.why_missing(cell) {
            let why = format!("{label} cannot be shown here: {why}");
            return Err(NotJudged::LeftOut(why));
        }
        if self.quick && self.experiment.cells[cell].is_long {
            let why = "a quick run leaves it out".to_owned();
            return Err(NotJudged::LeftOut(why));
        }
        let count = self.counted(cell).len();
        if count >= CLEAN_MIN {
            return Ok(());
        }
        let all = runs(self.results, cell, false).count();
        let mut flags = runs(self.results, cell, false).flat_map(|run| &run.measured.flags);
        let why = match flags.next().filter(|_| !self.claim.exact) {
            _ if all < CLEAN_MIN => format!("number of runs: {all}"),
            Some(flag) => format!("{count} of {all} runs were clean ({flag})"),
            None => {
                let key = &self.claim.key;
                format!("{count} of {all} runs have the figure {key}")
            }
        };
        let why = format!("{label}: {why}, and a verdict needs {CLEAN_MIN}");
        Err(if all < CLEAN_MIN {
            NotJudged::LeftOut(why)
        } else {
            NotJudged::Unclear(why)
        })
    }
}

/// Puts in place of each value its squared distance from the mean, in parts of the mean, with
/// Bessel's correction. The mean of the result estimates the relative variance without a bias that
/// depends on the number of values.
pub fn deviations(values: &mut [f64]) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    for value in values {
        *value = (*value / mean - 1.0).powi(2) * count / (count - 1.0);
    }
}

fn mean(values: &[f64], rounds: &[usize]) -> f64 {
    rounds.iter().map(|&round| values[round]).sum::<f64>() / rounds.len() as f64
}

fn rounds(results: &Results) -> usize {
    let rounds = results.runs.iter().map(|run| run.round + 1);
    rounds.max().unwrap_or(0)
}

/// What the caller of a program has to know of a claim, in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// It must hold and does not, so the program fails.
    Fails(String),
    /// It must hold, and the runs that were made do not show whether it does.
    Open(String),
}

/// What the verdicts on a `must` claim come to; `None` if it holds, or was not to be judged. Counts
/// that no load changes are not judged only if they were not counted, so then the claim fails.
pub fn notice(claim: &Claim, judged: &[Judged]) -> Option<Notice> {
    if !claim.must {
        return None;
    }
    let text = &claim.text;
    let verdicts = || judged.iter().map(|one| one.verdict.as_ref());
    if verdicts().any(|one| one == Ok(&Verdict::NotReproduced)) {
        let line = format!("a claim that must hold is not reproduced: {text}");
        return Some(Notice::Fails(line));
    }
    let why = verdicts().find_map(|one| match one {
        Err(NotJudged::Unclear(why)) => Some(why),
        _ => None,
    })?;
    let line = format!("a claim that must hold is not judged: {text}: {why}");
    Some(if claim.exact {
        Notice::Fails(line)
    } else {
        Notice::Open(line)
    })
}
