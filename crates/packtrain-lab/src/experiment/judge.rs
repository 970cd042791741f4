//! What came out: figures with their spread, and verdicts on claims.

use packtrain_measure::document::{Better, Claim, Common, Figure, Statistic, Summary};
use packtrain_measure::statistics::{self, Estimate, deviations, groups, outliers};
use packtrain_measure::{Key, Verdict};

use super::matrix::{Expectation, Experiment, Pair};
use super::runner::{Options, Results, Run};
use crate::options::Fields;

/// The fewest clean runs on which a verdict may rest.
pub const CLEAN_MIN: usize = 3;
/// Why a miss is not judged if the interval is on both sides of what is expected.
const TOO_NOISY: &str = "too noisy here: the median is not as expected, a part of the interval is";
/// The fewest rounds on which a verdict on a spread may rest.
const SPREAD_ROUNDS_MIN: usize = 5;

/// Summarises a figure of a cell over the runs on which a verdict may rest, or over all of them if
/// there are none. `None` if no run has the figure.
pub fn summary(results: &Results, cell: usize, figure: &Figure) -> Option<Summary> {
    let number = |figures| figure.key.of(figures);
    let judged = counted(results, cell, figure.exact, number).count();
    let mut values = shown(results, cell, figure.exact, number);
    let estimate = statistics::bootstrap(values.len(), |rounds| median(&values, rounds))?;
    values.sort_by(f64::total_cmp);
    Some(Summary {
        estimate,
        min: values[0],
        max: values[values.len() - 1],
        judged,
        groups: groups(&values).into_iter().flatten().collect(),
        outliers: outliers(values),
    })
}

/// The most frequent text of a figure of a cell, over its clean runs, or over all of them if none
/// was clean. `None` if the figure is not a text in any run.
pub fn common(results: &Results, cell: usize, key: &Key) -> Option<Common> {
    let mut words = shown(results, cell, false, |figures| key.word(figures));
    words.sort_unstable();
    let equal = words.chunk_by(|a, b| a == b).rev();
    let most = equal.max_by_key(|equal| equal.len())?;
    Some(Common {
        word: most[0].to_owned(),
        times: most.len(),
        rounds: words.len(),
    })
}

/// What `of` finds in the runs on which a verdict may rest, or in all of them if it finds nothing
/// there.
fn shown<'a, T>(
    results: &'a Results,
    cell: usize,
    exact: bool,
    of: impl Fn(&'a Fields) -> Option<T>,
) -> Vec<T> {
    let found = |exact| -> Vec<T> {
        let values = counted(results, cell, exact, &of);
        values.map(|(_, value)| value).collect()
    };
    let judged = found(exact);
    if judged.is_empty() {
        found(true)
    } else {
        judged
    }
}

/// What `of` finds in each run of a cell on which a verdict may rest, with the round: in the clean
/// runs, or in all of them if it is an exact count.
fn counted<'a, T>(
    results: &'a Results,
    cell: usize,
    exact: bool,
    of: impl Fn(&'a Fields) -> Option<T>,
) -> impl Iterator<Item = (usize, T)> {
    let runs = runs(results, cell, !exact);
    runs.filter_map(move |run| Some((run.round, of(&run.measured.figures)?)))
}

/// The runs of a cell, or only the clean ones.
fn runs(results: &Results, cell: usize, clean: bool) -> impl Iterator<Item = &Run> {
    let runs = results.runs.iter();
    runs.filter(move |run| run.cell == cell && (!clean || run.measured.flags.is_empty()))
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
    /// The cell to which each of them was compared, or all to choose it from if none was chosen.
    /// Empty if the figure itself is expected.
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
    expectation: &Expectation,
    options: &Options,
) -> Vec<Judged> {
    let judge = Judge {
        experiment,
        results,
        claim: &expectation.claim,
        better: expectation.better,
        options,
    };
    let together = match expectation.claim.statistic {
        Statistic::Median => 1,
        Statistic::Spread => expectation.pairs.len(),
    };
    let verdicts = expectation.pairs.chunks(together);
    verdicts.map(|pairs| judge.verdict(pairs)).collect()
}

/// A claim, and the runs on which its verdicts rest.
struct Judge<'a> {
    experiment: &'a Experiment,
    results: &'a Results,
    claim: &'a Claim,
    better: Option<Better>,
    options: &'a Options,
}

/// A cell, and the one to which it is compared.
type Compared = (usize, Option<usize>);

impl Judge<'_> {
    fn verdict(&self, pairs: &[Pair]) -> Judged {
        let compared = pairs.iter().map(|pair| Ok((pair.of, self.best(pair)?)));
        let compared: Result<Vec<Compared>, NotJudged> = compared.collect();
        let to = match &compared {
            Ok(compared) => compared.iter().filter_map(|(_, to)| *to).collect(),
            Err(_) => pairs.iter().flat_map(|pair| pair.to.clone()).collect(),
        };
        let measured = compared.and_then(|compared| match self.claim.statistic {
            Statistic::Median => self.median(compared[0]),
            Statistic::Spread => self.spread(&compared),
        });
        let verdict =
            measured
                .clone()
                .and_then(|measured| match self.claim.verdict_on(&measured) {
                    Verdict::NotReproduced if self.claim.expected.is_reached(&measured) => {
                        Err(NotJudged::Unclear(TOO_NOISY.to_owned()))
                    }
                    verdict if self.options.quick => Ok(verdict.min(Verdict::Direction)),
                    verdict => Ok(verdict),
                });
        Judged {
            of: pairs.iter().map(|pair| pair.of).collect(),
            to,
            measured: measured.ok(),
            verdict,
        }
    }

    /// The median of a cell, or of its ratio to another, round by round.
    fn median(&self, compared: Compared) -> Result<Estimate, NotJudged> {
        let (mut of, to) = self.figures(compared)?;
        let ratios = of.iter_mut().zip(&to);
        ratios.for_each(|(of, to)| *of /= to);
        let estimate = statistics::bootstrap(of.len(), |rounds| median(&of, rounds));
        finite(estimate, &self.claim.figure.to_string())
    }

    /// The relative standard deviation, pooled over cells, or its ratio to that of others.
    fn spread(&self, compared: &[Compared]) -> Result<Estimate, NotJudged> {
        if self.results.rounds() < SPREAD_ROUNDS_MIN {
            let why = format!("a spread needs {SPREAD_ROUNDS_MIN} rounds");
            return Err(NotJudged::LeftOut(why));
        }
        let (mut of, mut to) = (Vec::new(), Vec::new());
        for &compared in compared {
            let (figures, others) = self.figures(compared)?;
            of.extend(deviations(&figures));
            to.extend(deviations(&others));
        }
        let estimate = statistics::bootstrap(of.len(), |rounds| {
            let below = if to.is_empty() {
                1.0
            } else {
                mean(&to, rounds)
            };
            (mean(&of, rounds) / below).sqrt()
        });
        finite(estimate, &format!("the spread of {}", self.claim.figure))
    }

    /// The figures of a cell and of the one beside it, of the rounds that both have.
    fn figures(&self, (cell, beside): Compared) -> Result<(Vec<f64>, Vec<f64>), NotJudged> {
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
            let (count, rounds) = (of.len(), self.results.rounds());
            let what = if self.claim.exact {
                format!("have the figure {}", self.claim.figure)
            } else {
                "were clean".to_owned()
            };
            return Err(NotJudged::Unclear(format!(
                "in {count} of {rounds} rounds both runs {what}, and a verdict needs {CLEAN_MIN}"
            )));
        }
        Ok((of, to))
    }

    /// The figure of each run of a cell on which a verdict may rest, with the round.
    fn counted(&self, cell: usize) -> Vec<(usize, f64)> {
        let number = |figures| self.claim.figure.of(figures);
        counted(self.results, cell, self.claim.exact, number).collect()
    }

    /// The cell to which a pair compares. Of several the best one: by the medians of the same runs,
    /// which is in favour of the best. Fails if one of several has too few runs.
    fn best(&self, pair: &Pair) -> Result<Option<usize>, NotJudged> {
        if pair.to.len() < 2 {
            return Ok(pair.to.first().copied());
        }
        self.enough(pair.of)?;
        self.all_to_choose_from(&pair.to)?;
        let median = |cell: usize| {
            let values = self.counted(cell).into_iter();
            let values: Vec<f64> = values.map(|(_, value)| value).collect();
            statistics::median(&values)
        };
        let measured = pair.to.iter().map(|&cell| (cell, median(cell)));
        let better = |a: &(usize, f64), b: &(usize, f64)| match self.better {
            Some(Better::Lower) => b.1.total_cmp(&a.1),
            _ => a.1.total_cmp(&b.1),
        };
        Ok(measured.max_by(better).map(|(cell, _)| cell))
    }

    /// Fails with the reason if one of the cells to choose the best from has too few runs.
    fn all_to_choose_from(&self, cells: &[usize]) -> Result<(), NotJudged> {
        let reasons = cells.iter().filter_map(|&cell| self.enough(cell).err());
        let reasons: Vec<NotJudged> = reasons.collect();
        let is_left_out = |why: &&NotJudged| matches!(why, NotJudged::LeftOut(_));
        let Some(first) = reasons.iter().find(is_left_out).or(reasons.first()) else {
            return Ok(());
        };
        let (all, count) = (cells.len(), cells.len() - reasons.len());
        let what = format!("{count} of {all} settings to choose the best from have enough runs");
        Err(match first {
            NotJudged::LeftOut(why) => NotJudged::LeftOut(format!("{what}: {why}")),
            NotJudged::Unclear(why) => NotJudged::Unclear(format!("{what}: {why}")),
        })
    }

    /// Fails with the reason if a cell has too few runs on which a verdict may rest.
    fn enough(&self, cell: usize) -> Result<(), NotJudged> {
        let (label, key) = (self.experiment.label(cell), &self.claim.figure);
        if let Some(why) = self.results.why_missing(cell) {
            let why = format!("{label} cannot be shown here: {why}");
            return Err(NotJudged::LeftOut(why));
        }
        if let Some(why) = self.options.leave_out(&self.experiment.cells[cell]) {
            return Err(NotJudged::LeftOut(why.to_owned()));
        }
        let all = || runs(self.results, cell, false);
        let (made, count) = (all().count(), self.counted(cell).len());
        if count >= CLEAN_MIN {
            return Ok(());
        }
        let reason = |why: String| format!("{label}: {why}, and a verdict needs {CLEAN_MIN}");
        if made < CLEAN_MIN {
            let why = format!("number of runs: {made}");
            return Err(NotJudged::LeftOut(reason(why)));
        }
        let why = match all().flat_map(|run| &run.measured.flags).next() {
            Some(flag) if !self.claim.exact => {
                format!("{count} of {made} runs were clean ({flag})")
            }
            _ => format!("{count} of {made} runs have the figure {key}"),
        };
        Err(NotJudged::Unclear(reason(why)))
    }
}

/// An estimate that divides by 0 nowhere. `below` is what it may divide by, in words.
fn finite(estimate: Option<Estimate>, below: &str) -> Result<Estimate, NotJudged> {
    let is_finite = |one: &Estimate| one.low.is_finite() && one.high.is_finite();
    let why = || NotJudged::Unclear(format!("{below} is 0 where it is divided by"));
    estimate.filter(is_finite).ok_or_else(why)
}

fn mean(values: &[f64], rounds: &[usize]) -> f64 {
    rounds.iter().map(|&round| values[round]).sum::<f64>() / rounds.len() as f64
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
    let text = &claim.claim;
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
