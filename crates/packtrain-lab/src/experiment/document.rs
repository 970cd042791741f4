//! An experiment's definition and results as a document.

use packtrain_measure::Verdict;
use packtrain_measure::document::{Claim, Definition, Document, Over, Row, Run, Setting};
use packtrain_measure::statistics::Estimate;

use super::judge::{Judged, NotJudged, Notice, common, judge, notice, summary};
use super::matrix::{Expectation, Experiment};
use super::runner::{self, Options, Results};

/// What the caller of the program has to know beside the document.
#[derive(Clone, Debug, Default)]
pub struct Notices {
    /// A line for each `must` claim that does not hold.
    pub failed: Vec<String>,
    /// A line for each `must` claim that is not judged, although its runs were made.
    pub open: Vec<String>,
}

/// The part of a document of an experiment that was run; it has no head. `command` repeats it.
pub fn part(
    experiment: &Experiment,
    results: &Results,
    options: &Options,
    command: &str,
    notices: &mut Notices,
) -> Document {
    let definition = Definition {
        rounds: results.rounds(),
        stopped: results.stopped,
        command: command.to_owned(),
        ..experiment.definition.clone()
    };
    let cells = (0..experiment.cells.len())
        .filter(|&cell| options.leave_out(&experiment.cells[cell]).is_none());
    let mut claims = Vec::new();
    for expectation in &experiment.claims {
        let judged = judge(experiment, results, expectation, options);
        let line = |what: String| format!("{}: {what}", experiment.name());
        match notice(&expectation.claim, &judged) {
            Some(Notice::Fails(what)) => notices.failed.push(line(what)),
            Some(Notice::Open(what)) => notices.open.push(line(what)),
            None => {}
        }
        claims.extend(judged.iter().map(|one| claim(experiment, expectation, one)));
    }
    Document {
        stopped: results.stopped,
        experiments: vec![definition],
        rows: cells.map(|cell| row(experiment, results, cell)).collect(),
        claims,
        runs: results
            .runs
            .iter()
            .map(|one| run(experiment, one))
            .collect(),
        ..Document::default()
    }
}

fn claim(experiment: &Experiment, of: &Expectation, judged: &Judged) -> Claim {
    let to = Some(&judged.to).filter(|to| !to.is_empty());
    Claim {
        of: setting(experiment, &judged.of),
        to: to.map(|to| setting(experiment, to)),
        measured: judged.measured.as_ref().map(Estimate::significant),
        verdict: *judged.verdict.as_ref().unwrap_or(&Verdict::NotJudged),
        why: judged
            .verdict
            .as_ref()
            .err()
            .map(|one| NotJudged::why(one).to_owned()),
        ..of.claim.clone()
    }
}

/// The settings by axis that all of the cells have.
fn setting(experiment: &Experiment, cells: &[usize]) -> Setting {
    let axes = experiment.definition.axes.iter().enumerate();
    let axes = axes.filter_map(|(at, axis)| {
        let mut names = cells.iter().map(|&cell| &experiment.cells[cell].names[at]);
        let first = names.next()?;
        names
            .all(|name| name == first)
            .then(|| (axis.name.clone(), first.clone()))
    });
    Setting(axes.collect())
}

fn row(experiment: &Experiment, results: &Results, cell: usize) -> Row {
    let runs = || results.runs.iter().filter(|run| run.cell == cell);
    let good = runs().find(|run| !run.measured.settings.is_empty());
    let figures = experiment.definition.figures.iter().map(|figure| {
        let numbers = summary(results, cell, figure).map(|one| Over::Numbers(one.significant()));
        let words = || common(results, cell, &figure.key).map(Over::Words);
        (figure.key.to_string(), numbers.or_else(words))
    });
    Row {
        experiment: experiment.name().to_owned(),
        setting: setting(experiment, &[cell]),
        settings: good.map(|run| run.measured.settings.clone()),
        figures: figures.collect(),
        runs: runs().count(),
        flagged: runs().filter(|run| !run.measured.flags.is_empty()).count(),
        missing: results.why_missing(cell).map(str::to_owned),
    }
}

fn run(experiment: &Experiment, run: &runner::Run) -> Run {
    Run {
        experiment: experiment.name().to_owned(),
        setting: setting(experiment, &[run.cell]),
        round: run.round,
        seed: run.seed,
        load: Some(run.load.one_minute),
        uptime_seconds: Some(run.load.uptime_seconds),
        settings: run.measured.settings.clone(),
        figures: run.measured.figures.clone(),
        flags: run.measured.flags.clone(),
    }
}
