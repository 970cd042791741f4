//! Experiments with a tool that is not one: its figures are given.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use packtrain_bench::Verdict;
use serde_json::{Value, json};

use super::compare::{Change, Comparison, Saved, compare};
use super::document::Parts;
use super::forward::Forward;
use super::judge::{Judged, NotJudged, Notice, common, deviations, judge, notice, summary};
use super::{
    BUILT_IN, Experiment, Figure, Measure, Options, Results, RunError, Setup, Workload, built_in,
    run,
};
use crate::error::ToolError;
use crate::options::Fields;
use crate::testbed::TestbedOptions;
use crate::tool::{Control, Measured};

/// Two axes; the ports of a setup are the settings of its cell, so a test knows them.
const TEXT: &str = r#"
name = "fake"
source = "S0"
title = "a fake"
meaning = "nothing"

[document]
claims = "x is better"

[testbed]
a = "{x}"
b = "{y}"

[workload]
tool = "forward"
count = 1000

[quick.workload]
count = "{seed}"

[[axes]]
name = "x"
settings = ["p", { name = "q", testbed = { mtu = 9000 }, value = "r" }]

[[axes]]
name = "y"
settings = ["1", "2"]

[[figures]]
key = "speed"
title = "speed"
unit = "kpps"
better = "higher"
"#;

const OPTIONS: Options = Options {
    rounds: 5,
    quick: false,
    seeds: u64::MAX,
};

fn experiment(more: &str) -> Experiment {
    match Experiment::read("fake.toml", &format!("{TEXT}\n{more}")) {
        Ok(experiment) => experiment,
        Err(error) => panic!("{error}"),
    }
}

fn wrong(text: &str) -> String {
    match Experiment::read("fake.toml", text) {
        Ok(_) => panic!("no error: {text}"),
        Err(error) => error.to_string(),
    }
}

fn measured(speed: f64) -> Measured {
    let figures = [("speed".to_owned(), json!(speed))];
    Measured {
        figures: figures.into_iter().collect(),
        ..Measured::default()
    }
}

fn flagged(speed: f64) -> Measured {
    Measured {
        flags: vec!["others were busy".to_owned()],
        ..measured(speed)
    }
}

fn cell(setup: &Setup) -> String {
    format!("{}{}", setup.testbed.a, setup.testbed.b)
}

fn with(
    experiment: &Experiment,
    options: &Options,
    measure: &mut Measure<'_>,
) -> Result<Results, RunError> {
    run(experiment, options, measure, &Control::default())
}

/// Runs an experiment whose runs of a cell have the figures that `of` gives, by cell and round.
fn runs(
    experiment: &Experiment,
    options: &Options,
    of: &dyn Fn(&str, usize) -> Measured,
) -> Results {
    let mut made: Vec<String> = Vec::new();
    let mut measure = |setup: &Setup, _: &Control<'_>| {
        let cell = cell(setup);
        let round = made.iter().filter(|other| **other == cell).count();
        made.push(cell.clone());
        // The first run of a cell is the warm-up.
        Ok(of(&cell, round.saturating_sub(1)))
    };
    with(experiment, options, &mut measure).expect("results")
}

#[test]
fn settings_alternate_in_turning_order_after_a_warm_up_that_is_dropped() {
    let experiment = experiment("");
    let mut order = Vec::new();
    let mut counts = Vec::new();
    let options = Options {
        rounds: 2,
        ..OPTIONS
    };
    let mut measure = |setup: &Setup, _: &Control<'_>| {
        order.push(cell(setup));
        counts.push(format!("{:?}", setup.workload));
        Ok(measured(1.0))
    };
    let results = with(&experiment, &options, &mut measure).unwrap();
    let warm_up = ["p1", "p2", "r1", "r2"];
    let first = ["p2", "r1", "r2", "p1"];
    let second = ["r1", "r2", "p1", "p2"];
    assert_eq!(order, [warm_up, first, second].concat());
    assert_eq!(results.runs.len(), 8);
    let rounds: Vec<usize> = results.runs.iter().map(|run| run.round).collect();
    assert_eq!(rounds, [0, 0, 0, 0, 1, 1, 1, 1]);
    let seeds: Vec<u64> = results.runs.iter().map(|run| run.seed).collect();
    assert_eq!(seeds, [1, 1, 1, 1, 2, 2, 2, 2]);
    // The warm-up is as short as a quick run.
    assert!(counts[0].contains("count: Some(1)"), "{}", counts[0]);
    assert!(counts[4].contains("count: Some(1000)"), "{}", counts[4]);
}

#[test]
fn rounds_take_seeds_in_turn() {
    let experiment = experiment("");
    let options = Options {
        rounds: 3,
        quick: true,
        seeds: 2,
    };
    let mut counts = Vec::new();
    let mut measure = |setup: &Setup, _: &Control<'_>| {
        counts.push(format!("{:?}", setup.workload));
        Ok(measured(1.0))
    };
    let results = with(&experiment, &options, &mut measure).unwrap();
    let seeds: Vec<u64> = results.runs.iter().map(|run| run.seed).collect();
    assert_eq!(seeds, [[1; 4], [2; 4], [1; 4]].concat());
    assert!(counts[8].contains("count: Some(2)"), "{}", counts[8]);
}

#[test]
fn an_overlay_changes_its_setting_only() {
    let experiment = experiment("");
    let mtu = |cell| experiment.setup(cell, 1, false).unwrap().testbed.mtu;
    assert_eq!([0, 1, 2, 3].map(mtu), [1500, 1500, 9000, 9000]);
    assert_eq!(experiment.label(2), "x=q y=1");
}

#[test]
fn combinations_can_be_left_out() {
    let skip = "skip = [{ x = \"q\", y = 2 }]";
    let text = TEXT.replace("[document]", &format!("{skip}\n[document]"));
    let experiment = Experiment::read("fake.toml", &text).unwrap();
    let labels = |cells: &[usize]| -> Vec<String> {
        cells.iter().map(|cell| experiment.label(*cell)).collect()
    };
    assert_eq!(labels(&[0, 1, 2]), ["x=p y=1", "x=p y=2", "x=q y=1"]);
    assert_eq!(experiment.cells.len(), 3);

    let text = TEXT.replace(
        "[quick.workload]",
        &format!("[quick]\n{skip}\n[quick.workload]"),
    );
    let experiment = Experiment::read("fake.toml", &text).unwrap();
    for (quick, runs) in [(false, 20), (true, 15)] {
        let options = Options { quick, ..OPTIONS };
        let mut measure = |_: &Setup, _: &Control<'_>| Ok(measured(1.0));
        let results = with(&experiment, &options, &mut measure).unwrap();
        assert_eq!(results.runs.len(), runs);
    }
}

const RATIO: &str = r#"
[[claims]]
text = "q is twice as fast"
figure = "speed"
of = { x = "q" }
to = { x = "p" }
at-least = 2
must = true
"#;

fn verdict(text: &str, options: &Options, of: &dyn Fn(&str, usize) -> Measured) -> Vec<Judged> {
    let experiment = experiment(text);
    let results = runs(&experiment, options, of);
    judge(&experiment, &results, &experiment.claims[0], options)
}

fn only(judged: &[Judged]) -> &Result<Verdict, NotJudged> {
    assert_eq!(judged.len(), 1, "{judged:?}");
    &judged[0].verdict
}

fn why_of(judged: &[Judged]) -> String {
    let why = judged[0].verdict.clone().expect_err("no verdict");
    why.why().to_owned()
}

#[test]
fn a_ratio_is_judged_for_each_other_setting_round_by_round() {
    // The machine is slower in each round; the ratio is not.
    let of = |cell: &str, round: usize| {
        let speed = if cell.starts_with('r') { 5.0 } else { 2.0 };
        let more = if cell.ends_with('2') { 0.5 } else { 1.0 };
        measured(speed * more / f64::from(1 << round))
    };
    let judged = verdict(RATIO, &OPTIONS, &of);
    assert_eq!(judged.len(), 2);
    for (one, (of, to)) in judged.iter().zip([(2, 0), (3, 1)]) {
        assert_eq!(one.verdict, Ok(Verdict::Reproduced));
        assert_eq!((&*one.of, &*one.to), (&[of][..], &[to][..]));
        let estimate = one.measured.unwrap();
        assert_eq!((estimate.low, estimate.high), (2.5, 2.5));
    }
}

#[test]
fn an_interval_on_both_sides_is_a_direction() {
    let of = |cell: &str, round: usize| {
        let fast = [1.8, 2.1, 2.2, 2.3, 2.4][round];
        measured(if cell.starts_with('r') { fast } else { 1.0 })
    };
    let judged = verdict(RATIO, &OPTIONS, &of);
    assert!(
        judged
            .iter()
            .all(|one| one.verdict == Ok(Verdict::Direction))
    );
}

#[test]
fn a_median_on_the_other_side_is_not_reproduced_and_a_must_fails() {
    let of = |_: &str, _: usize| measured(1.0);
    let judged = verdict(RATIO, &OPTIONS, &of);
    assert!(
        judged
            .iter()
            .all(|one| one.verdict == Ok(Verdict::NotReproduced))
    );
    let mut claim = experiment(RATIO).claims[0].clone();
    let line = "a claim that must hold is not reproduced: q is twice as fast";
    assert_eq!(notice(&claim, &judged), Some(Notice::Fails(line.into())));
    claim.must = false;
    assert_eq!(notice(&claim, &judged), None);
}

#[test]
fn a_quick_run_says_direction_at_most() {
    let of = |cell: &str, _: usize| measured(if cell.starts_with('r') { 9.0 } else { 1.0 });
    let options = Options {
        rounds: 3,
        quick: true,
        ..OPTIONS
    };
    let judged = verdict(RATIO, &options, &of);
    assert!(
        judged
            .iter()
            .all(|one| one.verdict == Ok(Verdict::Direction))
    );
    let slow = |_: &str, _: usize| measured(1.0);
    let judged = verdict(RATIO, &options, &slow);
    assert!(
        judged
            .iter()
            .all(|one| one.verdict == Ok(Verdict::NotReproduced))
    );
}

#[test]
fn flagged_runs_are_not_judged() {
    // Two flagged rounds of five leave three; three leave two.
    let of = |flags: usize| {
        move |cell: &str, round: usize| {
            let is_fast = cell.starts_with('r');
            let is_flagged = is_fast && round < flags;
            match (is_flagged, is_fast) {
                (true, _) => flagged(0.001),
                (false, true) => measured(4.0),
                (false, false) => measured(1.0),
            }
        }
    };
    let judged = verdict(RATIO, &OPTIONS, &of(2));
    assert!(
        judged
            .iter()
            .all(|one| one.verdict == Ok(Verdict::Reproduced))
    );
    assert_eq!(judged[0].measured.unwrap().count, 3);
    let judged = verdict(RATIO, &OPTIONS, &of(3));
    let why = why_of(&judged);
    assert_eq!(
        why,
        "x=q y=1: 2 of 5 runs were clean (others were busy), and a verdict needs 3"
    );
}

#[test]
fn a_median_that_misses_within_an_interval_that_does_not_is_too_noisy() {
    let of = |cell: &str, round: usize| {
        let fast = [1.0, 1.5, 1.9, 2.0, 2.4][round];
        measured(if cell.starts_with('r') { fast } else { 1.0 })
    };
    let judged = verdict(RATIO, &OPTIONS, &of);
    assert!(why_of(&judged).starts_with("too noisy here: "));
    assert_eq!(judged[0].measured.unwrap().median, 1.9);
    let quick = Options {
        quick: true,
        ..OPTIONS
    };
    assert_eq!(verdict(RATIO, &quick, &of), judged);
}

#[test]
fn a_claim_that_must_hold_says_so_if_its_runs_are_not_judged() {
    let disturbed = |_: &str, _: usize| flagged(4.0);
    let what = |claim: &str, options: &Options| {
        let judged = verdict(claim, options, &disturbed);
        notice(&experiment(claim).claims[0], &judged)
    };
    let line = |why: &str| {
        format!(
            "a claim that must hold is not judged: q is twice as fast: x=q y=1: 0 of 5 runs {why}, \
             and a verdict needs 3"
        )
    };
    let open = line("were clean (others were busy)");
    assert_eq!(what(RATIO, &OPTIONS), Some(Notice::Open(open)));
    // Counts are judged in disturbed runs too, so only a count that is not there is not judged.
    let exact = format!("{RATIO}exact = true").replace("\"speed\"", "\"count\"");
    let fails = line("have the figure count");
    assert_eq!(what(&exact, &OPTIONS), Some(Notice::Fails(fails)));
    let without = exact.replace("must = true\n", "");
    assert_eq!(what(&without, &OPTIONS), None);
    // Runs that were not to be made are no reason to fail.
    let options = Options {
        rounds: 2,
        ..OPTIONS
    };
    assert_eq!(what(&exact, &options), None);
}

#[test]
fn counts_that_no_load_changes_are_judged_in_flagged_runs_too() {
    let exact = format!("{RATIO}exact = true");
    let of = |cell: &str, _: usize| flagged(if cell.starts_with('r') { 4.0 } else { 1.0 });
    let judged = verdict(&exact, &OPTIONS, &of);
    let is_good = |one: &Judged| one.verdict == Ok(Verdict::Reproduced);
    assert!(judged.iter().all(is_good), "{judged:?}");
    // A run that failed has no figures.
    let failed = |_: &str, _: usize| Measured {
        figures: Fields::new(),
        ..flagged(1.0)
    };
    let judged = verdict(&exact, &OPTIONS, &failed);
    let why = why_of(&judged);
    assert_eq!(
        why,
        "x=q y=1: 0 of 5 runs have the figure speed, and a verdict needs 3"
    );
}

#[test]
fn rounds_in_which_one_side_was_flagged_are_not_compared() {
    let of = |cell: &str, round: usize| {
        let is_flagged = round % 2 == usize::from(cell.starts_with('r'));
        if is_flagged && round < 4 {
            flagged(1.0)
        } else {
            measured(1.0)
        }
    };
    let judged = verdict(RATIO, &OPTIONS, &of);
    let why = why_of(&judged);
    assert!(
        why.starts_with("in 1 of 5 rounds both runs were clean"),
        "{why}"
    );
    // Counts need no clean run, but a run that failed has none.
    let exact = format!("{RATIO}exact = true");
    let of = |cell: &str, round: usize| {
        let has_failed = round % 2 == usize::from(cell.starts_with('r')) && round < 4;
        Measured {
            figures: if has_failed {
                Fields::new()
            } else {
                measured(1.0).figures
            },
            ..flagged(1.0)
        }
    };
    let why = why_of(&verdict(&exact, &OPTIONS, &of));
    let start = "in 1 of 5 rounds both runs have the figure speed, ";
    assert!(why.starts_with(start), "{why}");
}

#[test]
fn a_figure_itself_can_be_within_a_distance() {
    let claim = |value: f64| {
        format!(
            "[[claims]]\ntext = \"t\"\nfigure = \"speed\"\nof = {{ x = \"p\", y = 2 }}\n\
             within = {{ value = {value:?}, distance = 0.5 }}"
        )
    };
    let of = |_: &str, round: usize| measured(10.0 + 0.1 * round as f64);
    let judged = verdict(&claim(10.0), &OPTIONS, &of);
    assert_eq!(*only(&judged), Ok(Verdict::Reproduced));
    let judged = verdict(&claim(12.0), &OPTIONS, &of);
    assert_eq!(*only(&judged), Ok(Verdict::NotReproduced));
}

const SPREAD: &str = "[[claims]]\ntext = \"t\"\nfigure = \"speed\"\nstatistic = \"spread\"\n\
                      of = { x = \"q\" }\nto = { x = \"p\" }\nat-most = 0.7";

#[test]
fn a_spread_is_the_relative_standard_deviation_pooled_over_rows() {
    let claim = SPREAD.replace("to = { x = \"p\" }\n", "");
    // Of -2, -1, 0, 1, 2: the square root of 2.5; of two rows the root of the mean square.
    let of = |cell: &str, round: usize| {
        let (middle, step) = match cell {
            "r1" => (10.0, 1.0),
            _ => (1000.0, 300.0),
        };
        measured(middle + step * (round as f64 - 2.0))
    };
    let judged = verdict(&claim, &OPTIONS, &of);
    assert_eq!(*only(&judged), Ok(Verdict::Reproduced));
    assert_eq!((&*judged[0].of, &*judged[0].to), (&[2, 3][..], &[][..]));
    let found = judged[0].measured.unwrap();
    let expected = (2.5_f64 * (0.01 + 0.09) / 2.0).sqrt();
    assert!((found.median - expected).abs() < 1e-9, "{found:?}");
    assert!(found.low < expected && expected < found.high, "{found:?}");
    assert_eq!(found.count, 10);
}

#[test]
fn a_spread_is_not_smaller_with_fewer_clean_runs() {
    // All values that three of five equally likely ones can have: the mean of the variances is that
    // of the five.
    let all = [8.0, 9.0, 10.0, 11.0, 12.0];
    let variance = |values: &[f64]| {
        let squares = deviations(values);
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        squares.iter().sum::<f64>() / squares.len() as f64 * mean * mean
    };
    let draws = (0..125).map(|draw| [draw % 5, draw / 5 % 5, draw / 25].map(|at| all[at]));
    let of_three = draws.map(|draw| variance(&draw)).sum::<f64>() / 125.0;
    // Drawn with replacement, so without the correction.
    assert!((of_three - 2.0).abs() < 1e-9, "{of_three}");
}

#[test]
fn a_ratio_of_spreads_has_one_verdict_and_needs_five_rounds() {
    let of = |cell: &str, round: usize| {
        let noise = [-0.2, 0.1, 0.0, 0.2, -0.1][round];
        let (speed, noise) = match cell {
            "p1" => (100.0, noise),
            "p2" => (5.0, 2.0 * noise),
            "r1" => (300.0, noise / 2.0),
            _ => (7.0, noise),
        };
        measured(speed * (1.0 + noise))
    };
    let judged = verdict(SPREAD, &OPTIONS, &of);
    assert_eq!(*only(&judged), Ok(Verdict::Reproduced));
    assert_eq!((&*judged[0].of, &*judged[0].to), (&[2, 3][..], &[0, 1][..]));
    let ratio = judged[0].measured.unwrap();
    let near = |value: f64| (value - 0.5).abs() < 1e-9;
    assert!(near(ratio.low) && near(ratio.median) && near(ratio.high));
    let options = Options {
        rounds: 4,
        ..OPTIONS
    };
    let why = why_of(&verdict(SPREAD, &options, &of));
    assert_eq!(why, "a spread needs 5 rounds");
    let equal = |_: &str, _: usize| measured(1.0);
    let why = why_of(&verdict(SPREAD, &OPTIONS, &equal));
    assert_eq!(why, "the spread of speed is 0 where it is divided by");
}

const BEST: &str = "[[claims]]\ntext = \"t\"\nfigure = \"speed\"\nof = { x = \"p\", y = 1 }\n\
                    to = { x = [\"p\", \"q\"], y = [1, 2] }\nat-least = 0.9";

#[test]
fn the_best_of_several_settings_is_what_counts() {
    let of = |cell: &str, _: usize| {
        measured(match cell {
            "p1" => 5.0,
            "r1" => 10.0,
            _ => 4.0,
        })
    };
    let judged = verdict(BEST, &OPTIONS, &of);
    assert_eq!((&*judged[0].of, &*judged[0].to), (&[0][..], &[2][..]));
    assert_eq!(*only(&judged), Ok(Verdict::NotReproduced));
    assert_eq!(judged[0].measured.unwrap().median, 0.5);
}

#[test]
fn the_best_is_not_chosen_from_a_part_of_the_settings() {
    // The setting with too few clean runs may be the best one.
    let of = |cell: &str, round: usize| match cell {
        "r2" if round < 3 => flagged(10.0),
        _ => measured(4.0),
    };
    let judged = verdict(BEST, &OPTIONS, &of);
    let why = "2 of 3 settings to choose the best from have enough runs: x=q y=2: 2 of 5 runs were \
               clean (others were busy), and a verdict needs 3";
    assert_eq!(*only(&judged), Err(NotJudged::Unclear(why.to_owned())));
    assert_eq!((&*judged[0].of, &*judged[0].to), (&[0][..], &[1, 2, 3][..]));
    assert_eq!(judged[0].measured, None);
    // So may one that a quick run leaves out.
    let skip = "[quick]\nskip = [{ x = \"q\" }]\n[quick.workload]";
    let text = format!("{TEXT}{BEST}").replace("[quick.workload]", skip);
    let experiment = Experiment::read("fake.toml", &text).unwrap();
    let judged = |quick: bool| {
        let options = Options { quick, ..OPTIONS };
        let results = runs(&experiment, &options, &|_, _| measured(4.0));
        judge(&experiment, &results, &experiment.claims[0], &options)
    };
    let why =
        "1 of 3 settings to choose the best from have enough runs: a quick run leaves some out";
    assert_eq!(
        *only(&judged(true)),
        Err(NotJudged::LeftOut(why.to_owned()))
    );
    assert_eq!(*only(&judged(false)), Ok(Verdict::Reproduced));
}

#[test]
fn a_division_by_zero_is_not_judged() {
    let judged = verdict(RATIO, &OPTIONS, &|_, _| measured(0.0));
    let why = why_of(&judged);
    assert_eq!(why, "speed is 0 where it is divided by");
}

#[test]
fn a_figure_that_no_run_has_is_not_judged() {
    let claim =
        "[[claims]]\ntext = \"t\"\nfigure = \"seed\"\nof = { x = \"p\", y = 1 }\nat-most = 1";
    let judged = verdict(claim, &OPTIONS, &|_, _| measured(1.0));
    let why = why_of(&judged);
    assert!(why.contains("0 of 5 runs have the figure seed"), "{why}");
}

#[test]
fn figures_are_summarised_over_clean_runs() {
    let experiment = experiment("");
    let of = |cell: &str, round: usize| match (cell, round) {
        ("p1", 0) => flagged(1000.0),
        ("p2", _) => flagged(7.0),
        _ => measured([10.0, 10.0, 11.0, 12.0, 90.0][round]),
    };
    let results = runs(&experiment, &OPTIONS, &of);
    let key = &experiment.figures[0];
    let one = summary(&results, 2, key).unwrap();
    assert_eq!((one.estimate.median, one.min, one.max), (11.0, 10.0, 90.0));
    assert_eq!(one.outliers, [90.0]);
    let clean = summary(&results, 0, key).unwrap();
    assert_eq!((clean.estimate.count, clean.judged), (4, 4));
    assert_eq!(clean.max, 90.0);
    // Without a clean run it is shown all the same.
    let flagged = summary(&results, 1, key).unwrap();
    assert_eq!((flagged.estimate.median, flagged.judged), (7.0, 0));
    let other = Figure {
        key: "other".parse().unwrap(),
        ..key.clone()
    };
    assert_eq!(summary(&results, 1, &other), None);
}

#[test]
fn a_figure_that_is_a_text_shows_the_most_frequent_one() {
    let experiment = experiment("");
    let said = |word: &str, flags: &[&str]| Measured {
        figures: [("who".to_owned(), json!(word))].into_iter().collect(),
        flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        ..Measured::default()
    };
    let of = |cell: &str, round: usize| match (cell, round) {
        ("p1", 0 | 1) => said("sender", &["others were busy"]),
        ("p1", 2) => said("sender", &[]),
        ("p1", _) => said("receiver", &[]),
        ("p2", _) => said(["b", "a", "b", "a", "c"][round], &[]),
        ("r1", _) => said("sender", &["others were busy"]),
        _ => measured(1.0),
    };
    let results = runs(&experiment, &OPTIONS, &of);
    let of = |cell, key: &str| {
        let found = common(&results, cell, &key.parse().unwrap())?;
        Some((found.word, found.times, found.count))
    };
    assert_eq!(of(0, "who"), Some(("receiver".to_owned(), 2, 3)));
    assert_eq!(of(1, "who"), Some(("a".to_owned(), 2, 5)));
    assert_eq!(of(2, "who"), Some(("sender".to_owned(), 5, 5)));
    assert_eq!(of(3, "who"), None);
    assert_eq!(of(0, "who / who"), None);
    let who = Figure {
        key: "who".parse().unwrap(),
        ..experiment.figures[0].clone()
    };
    assert_eq!(summary(&results, 0, &who), None);
}

#[test]
fn what_the_host_lacks_is_a_reason_and_the_rest_is_run() {
    let experiment = experiment(RATIO);
    let mut measure = |setup: &Setup, _: &Control<'_>| match setup.testbed.a.as_str() {
        "p" => Err(ToolError::Missing("no C compiler".to_owned())),
        _ => Ok(measured(1.0)),
    };
    let results = with(&experiment, &OPTIONS, &mut measure).unwrap();
    assert_eq!(results.why_missing(0), Some("no C compiler"));
    assert_eq!(results.runs.len(), 10);
    let judged = judge(&experiment, &results, &experiment.claims[0], &OPTIONS);
    let why = why_of(&judged);
    assert_eq!(why, "x=p y=1 cannot be shown here: no C compiler");
}

#[test]
fn a_setting_that_needs_more_cpus_is_not_run() {
    let text = TEXT.replace(
        "settings = [\"1\", \"2\"]",
        "settings = [\"1\", { name = \"2\", needs = { cpus = 4096 } }]",
    );
    let experiment = Experiment::read("fake.toml", &text).unwrap();
    let mut measure = |_: &Setup, _: &Control<'_>| Ok(measured(1.0));
    let results = with(&experiment, &OPTIONS, &mut measure).unwrap();
    assert_eq!(results.runs.len(), 10);
    let why = results.why_missing(1).unwrap();
    assert!(why.starts_with("it needs 4096 CPUs"), "{why}");
}

#[test]
fn a_run_that_fails_is_kept_with_a_flag() {
    let experiment = experiment(RATIO);
    let mut count = 0;
    let mut measure = |_: &Setup, _: &Control<'_>| {
        count += 1;
        match count {
            9 => Err(ToolError::Failed("tcp stalled".to_owned())),
            _ => Ok(measured(1.0)),
        }
    };
    let results = with(&experiment, &OPTIONS, &mut measure).unwrap();
    assert_eq!(results.runs.len(), 20);
    assert_eq!(
        results.runs[4].measured.flags,
        ["the run failed: tcp stalled"]
    );
    let (cell, error) = results.failed.unwrap();
    assert_eq!((cell, error.to_string().as_str()), (2, "tcp stalled"));
}

#[test]
fn a_warm_up_that_fails_is_no_failure() {
    let mut count = 0;
    let mut measure = |_: &Setup, _: &Control<'_>| {
        count += 1;
        match count {
            1..=4 => Err(ToolError::Failed("tcp stalled".to_owned())),
            _ => Ok(measured(1.0)),
        }
    };
    let results = with(&experiment(""), &OPTIONS, &mut measure).unwrap();
    assert_eq!(results.failed, None);
    assert!(results.runs.iter().all(|run| run.measured.flags.is_empty()));
}

#[test]
fn packets_that_a_warm_up_does_not_account_for_are_a_failure() {
    let mut count = 0;
    let mut measure = |_: &Setup, _: &Control<'_>| {
        count += 1;
        match count {
            1 => Err(ToolError::Check("packets are not accounted for".to_owned())),
            _ => Ok(measured(1.0)),
        }
    };
    let results = with(&experiment(""), &OPTIONS, &mut measure).unwrap();
    assert!(matches!(results.failed, Some((_, ToolError::Check(_)))));
}

#[test]
fn a_stop_keeps_what_was_measured() {
    let experiment = experiment("");
    let stop = Arc::new(AtomicBool::new(false));
    let control = Control {
        stop: Arc::clone(&stop),
        ..Control::default()
    };
    let mut count = 0;
    let mut measure = |_: &Setup, _: &Control<'_>| {
        count += 1;
        stop.store(count == 7, Ordering::Relaxed);
        Ok(measured(1.0))
    };
    let results = run(&experiment, &OPTIONS, &mut measure, &control).unwrap();
    assert!(results.stopped);
    assert_eq!(results.runs.len(), 3);
}

#[test]
fn a_setting_that_did_not_take_is_an_error_that_names_it() {
    let text = TEXT.replace(
        "[workload]",
        "[check]\nmtu = 1500\nport = \"{x}\"\n[workload]",
    );
    let experiment = Experiment::read("fake.toml", &text).unwrap();
    let run = |settings: Value| {
        let settings: Fields = settings.as_object().cloned().unwrap();
        let mut measure = |_: &Setup, _: &Control<'_>| {
            Ok(Measured {
                settings: settings.clone(),
                ..measured(1.0)
            })
        };
        with(&experiment, &OPTIONS, &mut measure)
            .unwrap_err()
            .to_string()
    };
    let line = run(json!({ "mtu": 1500, "port": "p" }));
    assert_eq!(line, "fake: x=q y=1: port did not take r: it is p");
    let line = run(json!({ "mtu": 1400, "port": "p" }));
    assert_eq!(line, "fake: x=p y=1: mtu did not take 1500: it is 1400");
    let line = run(json!({ "mtu": 1500 }));
    assert_eq!(
        line,
        "fake: x=p y=1: port is to be p, and no such setting is read back"
    );
}

/// A key of a port takes precedence over the testbed's policy, which the session shows.
#[test]
fn a_policy_that_a_port_overrides_is_read_back_and_fails_a_check() {
    let text = TEXT
        .replace("p\", {", "null:source,count=9\", {")
        .replace("value = \"r\"", "value = \"null:source,moderation=off\"")
        .replace("[\"1\", \"2\"]", "[\"null:dispatch=direct\"]")
        .replace(
            "[workload]",
            "moderation = \"fixed(50,64)\"\nidle = \"halt\"\n[check]\nidle = \"halt\"\n\
             path = \"owned\"\ndispatch_b = \"direct\"\nmoderation = \"fixed(50,64)\"\n\
             [workload]",
        );
    let experiment = Experiment::read("fake.toml", &text).unwrap();
    let mut made = Vec::new();
    let mut measure = |setup: &Setup, control: &Control<'_>| {
        let measured = setup.run(control)?;
        made.push(measured.settings.clone());
        Ok(measured)
    };
    let error = with(&experiment, &OPTIONS, &mut measure).unwrap_err();
    assert_eq!(
        error.to_string(),
        "fake: x=q y=null:dispatch=direct: moderation_a did not take fixed(50,64): it is off"
    );
    let moderation = |of: &Fields| ["moderation_a", "moderation_b"].map(|name| of[name].clone());
    assert_eq!(moderation(&made[0]), ["fixed(50,64)", "fixed(50,64)"]);
    assert_eq!(moderation(&made[1]), ["off", "fixed(50,64)"]);
    assert_eq!(made[1]["dispatch_a"], "adaptive");
}

#[test]
fn the_limits_of_merging_and_of_segments_are_read_back() {
    let options = TestbedOptions {
        a: "null:source,proto=tcp,coalesce=stream,gro-flows=8,gro-inactive=off,\
            gro-flush=usecs(50),ack-limit=3,rx-pause=64"
            .to_owned(),
        b: "null:segs=9,gso-segs=7,headroom=2,fit=collapse,coalesce=off".to_owned(),
        ..TestbedOptions::default()
    };
    let forward = Forward {
        count: Some(10),
        ..Forward::default()
    };
    let settings = forward.run(&options, &Control::default()).unwrap().settings;
    let expected = json!({
        "coalesce_a": "stream", "gro_flows_a": 8, "gro_inactive_a": false,
        "gro_flush_a": "usecs(50)", "ack_limit_a": 3, "rx_pause_a": 64, "rx_a": "pieces(1792)",
        "coalesce_b": "off", "segments_b": 9, "gso_segments_b": 7, "headroom_b": 2,
        "fit_b": "collapse", "rx_b": "whole", "queues_b": 1, "headroom_a": 1, "fit_a": "defrag",
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(settings.get(name), Some(value), "{name}");
    }
    assert!(!settings.contains_key("gro_flows_b"));
}

#[test]
fn a_setting_that_is_wrong_ends_the_experiment() {
    let experiment = experiment("");
    let mut measure = |_: &Setup, _: &Control<'_>| Err(ToolError::Usage("no such port".to_owned()));
    let error = with(&experiment, &OPTIONS, &mut measure).unwrap_err();
    assert_eq!(error.to_string(), "fake: x=p y=1: no such port");
}

#[test]
fn every_error_of_a_file_has_its_line_and_what_to_write() {
    let claim = |what: &str| format!("{TEXT}\n[[claims]]\ntext = \"t\"\n{what}");
    let cases = [
        (
            TEXT.replace("title = \"a", "titel = \"a"),
            4,
            "unknown field `titel`",
        ),
        (TEXT.replace("tool = \"forward\"\n", ""), 15, "write tool ="),
        (
            TEXT.replace("\"forward\"", "\"foward\""),
            15,
            "one of blast, forward, ping, rfc2544, sort, stream",
        ),
        (
            TEXT.replace("count = 1000", "cuont = 1000"),
            16,
            "[workload] cuont: unknown field",
        ),
        (
            TEXT.replace("count = 1000", "count = \"many\""),
            16,
            "[workload] count: ",
        ),
        (
            TEXT.replace("mtu = 9000", "mtu = \"big\""),
            23,
            "[testbed] mtu: ",
        ),
        (
            TEXT.replace("b = \"{y}\"", "b = \"{z}\""),
            12,
            "there is no axis 'z'; the names are",
        ),
        (
            TEXT.replace("b = \"{y}\"", "b = \"{y\""),
            12,
            "a '{' without a '}'",
        ),
        (
            TEXT.replace("[\"1\", \"2\"]", "[1, 1]"),
            26,
            "axis 'y' has '1' twice",
        ),
        (
            TEXT.replace("[\"1\", \"2\"]", "[]"),
            26,
            "axis 'y' has no settings",
        ),
        (
            TEXT.replace("name = \"y\"", "name = \"x\""),
            26,
            "'x': it is taken",
        ),
        (
            TEXT.replace("key = \"speed\"", "key = \"a / b / c\""),
            30,
            "is no figure",
        ),
        (
            TEXT.replace("\"higher\"", "\"more\""),
            33,
            "unknown variant `more`",
        ),
        (
            claim("figure = \"speed\""),
            36,
            "one of at-least, at-most, within",
        ),
        (
            claim("figure = \"speed\"\nof = { z = 1 }\nat-most = 1"),
            38,
            "the axes are x, y",
        ),
        (
            claim("figure = \"speed\"\nof = { y = 3 }\nat-most = 1"),
            38,
            "it has 1, 2",
        ),
        (
            claim(
                "figure = \"other\"\nof = { x = \"q\", y = 1 }\n\
                 to = { y = [1, 2], x = [\"p\", \"q\"] }\n\
                 at-most = 1",
            ),
            36,
            "no `better`",
        ),
        (
            claim("figure = \"speed\"\nof = { y = 1 }\nto = { y = 1 }\nat-most = 1"),
            36,
            "`of` and `to` choose",
        ),
    ];
    let mut missed = Vec::new();
    for (text, line, expected) in cases {
        let error = wrong(&text);
        let start = format!("fake.toml:{line}: ");
        if !error.starts_with(&start) || !error.contains(expected) || error.contains('\n') {
            missed.push(format!("{error}\n  not {start}{expected}"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn every_built_in_experiment_is_complete() {
    for &(name, _) in BUILT_IN {
        let experiment = built_in(name).unwrap();
        assert_eq!(experiment.name, name);
        assert!(
            ["S0", "S1", "S2", "S3", "S4"].contains(&experiment.source.as_str()),
            "{name}"
        );
        let document = &experiment.document;
        assert!(
            !document.claims.is_empty() && !experiment.meaning.is_empty(),
            "{name}"
        );
        assert!(!experiment.limits.is_empty(), "{name}");
        let columns = document.columns.len();
        assert!(
            document.rows.iter().all(|row| row.len() == columns),
            "{name}"
        );
        assert!(!experiment.claims.is_empty(), "{name}");
    }
    assert!(built_in("no-such").is_none());
}

/// In a shorter run a few ticks of `/proc/stat` are 5 % of the CPUs, so it is flagged.
/// To count them disturbs the workers.
#[test]
fn frames_in_use_are_counted_if_a_figure_needs_them() {
    for &(name, _) in BUILT_IN {
        let setup = built_in(name).unwrap().setup(0, 1, false).unwrap();
        assert_eq!(setup.memory, name == "encap-limit", "{name}");
    }
}

#[test]
fn no_run_of_a_built_in_experiment_measures_for_less_than_200_ms() {
    let mut short = Vec::new();
    for (&(name, _), quick) in BUILT_IN.iter().flat_map(|one| [(one, false), (one, true)]) {
        let experiment = built_in(name).unwrap();
        let found = (0..experiment.cells.len()).find_map(|cell| {
            let setup = experiment.setup(cell, 1, quick).unwrap();
            let measured = match &setup.workload {
                Workload::Stream(stream) => stream.duration.0 - stream.warm_up().unwrap(),
                Workload::Blast(blast) => blast.duration.0,
                Workload::Ping(ping) => ping.duration.0,
                Workload::Forward(forward) => forward.duration.0,
                Workload::Sort(sort) => sort.duration.0,
                Workload::Rfc2544(_) => return None,
            };
            let label = experiment.label(cell);
            let line = format!("{name}, quick {quick}: {label}: {measured:?}");
            (measured < Duration::from_millis(200)).then_some(line)
        });
        short.extend(found);
    }
    assert!(short.is_empty(), "{}", short.join("\n"));
}

fn document(of: &dyn Fn(&str, usize) -> Measured) -> Value {
    document_of(&experiment(RATIO), of)
}

fn document_of(experiment: &Experiment, of: &dyn Fn(&str, usize) -> Measured) -> Value {
    let results = runs(experiment, &OPTIONS, of);
    let mut parts = Parts::default();
    parts.add(experiment, &results, &OPTIONS, "packtrain experiment fake");
    let mut document = parts.document();
    document.insert("schema".into(), "packtrain/1".into());
    document.insert("command".into(), "experiment".into());
    Value::Object(document)
}

#[test]
fn the_document_has_rows_claims_and_every_run() {
    let of = |cell: &str, round: usize| match (cell, round) {
        ("p1", 1) => flagged(100.0),
        _ => measured(if cell.starts_with('r') { 3.0 } else { 1.0 }),
    };
    let document = document(&of);
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    assert_eq!(rows[0]["setting"], json!({ "x": "p", "y": "1" }));
    assert_eq!(
        (&rows[0]["runs"], &rows[0]["flagged"]),
        (&json!(5), &json!(1))
    );
    assert_eq!(rows[0]["figures"]["speed"]["rounds"], 4);
    assert_eq!(rows[2]["figures"]["speed"]["median"], 3.0);
    let claims = document["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 2);
    assert_eq!(claims[0]["verdict"], "reproduced");
    assert_eq!(claims[0]["expected"], ">= 2");
    assert_eq!(claims[0]["to"], json!({ "x": "p", "y": "1" }));
    let runs = document["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 20);
    let flags = runs.iter().filter(|run| run["flags"] != json!([])).count();
    assert_eq!(flags, 1);
    assert_eq!(document["experiments"][0]["rounds"], 5);
}

#[test]
fn texts_of_a_file_and_texts_that_are_figures_are_in_the_document() {
    let more = format!("{RATIO}if-not = \"too few CPUs\"\nexact = true");
    let text = format!("{TEXT}\n[[figures]]\nkey = \"who\"\ntitle = \"who\"\n{more}");
    let text = text.replace("[document]", "limits = \"no NIC\"\n\n[document]");
    let experiment = Experiment::read("fake.toml", &text).unwrap();
    let of = |_: &str, _: usize| {
        let mut measured = flagged(1.0);
        measured.figures.insert("who".to_owned(), "sender".into());
        measured
    };
    let document = document_of(&experiment, &of);
    assert_eq!(document["experiments"][0]["limits"], "no NIC");
    let claim = &document["claims"][0];
    assert_eq!(
        (&claim["if_not"], &claim["exact"], &claim["verdict"]),
        (
            &json!("too few CPUs"),
            &json!(true),
            &json!("not reproduced")
        )
    );
    let who = json!({ "word": "sender", "times": 5, "rounds": 5 });
    assert_eq!(document["rows"][0]["figures"]["who"], who);
    assert_eq!(document["rows"][0]["figures"]["speed"]["median"], 1.0);
}

#[test]
fn a_claim_on_a_spread_has_the_settings_that_its_rows_share() {
    let of = |_: &str, round: usize| measured([1.0, 2.0, 1.0, 2.0, 1.0][round]);
    let document = document_of(&experiment(SPREAD), &of);
    let claim = &document["claims"][0];
    assert_eq!(
        (&claim["of"], &claim["to"]),
        (&json!({ "x": "q" }), &json!({ "x": "p" }))
    );
    assert_eq!(document["claims"].as_array().unwrap().len(), 1);
}

#[test]
fn rows_have_six_significant_digits() {
    for (value, expected) in [
        (0.010_24, 0.010_24),
        (0.002_123_456_7, 0.002_123_46),
        (-1_234_567.0, -1_234_570.0),
        (0.0, 0.0),
    ] {
        let document = document(&|_, _| measured(value));
        let figure = &document["rows"][0]["figures"]["speed"];
        for key in ["median", "low", "high", "min", "max"] {
            assert_eq!(figure[key], expected, "{key}");
        }
    }
}

fn saved(document: &Value) -> Saved {
    Saved::read(&document.to_string()).expect("a document of experiments")
}

fn compared(a: &Value, b: &Value, tolerance: f64) -> Comparison {
    compare(&saved(a), &saved(b), tolerance).expect("rows in common")
}

#[test]
fn documents_are_compared_row_by_row() {
    let slower = |cell: &str, _: usize| match cell {
        "p1" => measured(0.9),
        "p2" => measured(0.97),
        "r1" => measured(1.2),
        _ => flagged(0.1),
    };
    let a = document(&|_, _| measured(1.0));
    let mut b = document(&slower);
    let comparison = compared(&a, &b, 0.05);
    let changes: Vec<Change> = comparison.rows.iter().map(|row| row.change).collect();
    use Change::{Improvement, NotJudged, Regression, Within};
    assert_eq!(changes, [Regression, Within, Improvement, NotJudged]);
    assert_eq!(comparison.rows[0].ratio.unwrap()[0], 0.9);
    assert_eq!(comparison.regressions().count(), 1);
    assert!(compared(&a, &b, 0.2).regressions().next().is_none());
    // A row that is wide is no regression while its interval reaches the tolerance.
    let wide = document(&|_, round| measured([0.5, 0.6, 0.9, 0.96, 1.0][round]));
    assert_eq!(compared(&a, &wide, 0.05).regressions().count(), 0);
    // Where less is better, more is a regression, also from 0.
    let lower = |document: &Value| {
        let mut document = document.clone();
        document["experiments"][0]["figures"][0]["better"] = "lower".into();
        document
    };
    let zero = document(&|_, _| measured(0.0));
    let comparison = compared(&lower(&zero), &a, 0.05);
    assert_eq!(comparison.regressions().count(), 4);
    assert_eq!(comparison.rows[0].ratio, None);
    b["rows"].as_array_mut().unwrap().remove(1);
    let comparison = compared(&a, &b, 0.05);
    assert_eq!(comparison.missing.len(), 1);
    assert_eq!(comparison.missing[0].of, "B");
    assert_eq!(comparison.missing[0].setting, json!({ "x": "p", "y": "2" }));
    assert_eq!(compared(&b, &a, 0.05).missing[0].of, "A");
}

#[test]
fn rows_with_few_clean_runs_are_not_compared() {
    let a = document(&|_, _| measured(1.0));
    let of = |flags: usize| {
        move |_: &str, round: usize| match round {
            round if round < flags => flagged(1.0),
            _ => measured(0.1),
        }
    };
    let change = |a: &Value, b: &Value| compared(a, b, 0.05).rows[0].change;
    use Change::{Improvement, NotJudged, Regression};
    for (flags, there, back) in [
        (2, Regression, Improvement),
        (3, NotJudged, NotJudged),
        (5, NotJudged, NotJudged),
    ] {
        let b = document(&of(flags));
        assert_eq!((change(&a, &b), change(&b, &a)), (there, back));
    }
}

#[test]
fn counts_that_no_load_changes_are_compared_in_flagged_runs_too() {
    let change = |claim: &str| {
        let experiment = experiment(claim);
        let document = |speed: f64| {
            let of = |_: &str, round: usize| match round {
                0 => measured(speed),
                _ => flagged(speed),
            };
            document_of(&experiment, &of)
        };
        let (a, b) = (document(1.0), document(0.5));
        let row = compared(&a, &b, 0.05).rows.remove(0);
        row.change
    };
    let exact = format!("{RATIO}exact = true");
    assert_eq!(change(RATIO), Change::NotJudged);
    assert_eq!(change(&exact), Change::Regression);
    // A run that failed has no figures, and does not count.
    let of = |speed: f64| {
        let of = move |_: &str, round: usize| match round {
            0..2 => Measured {
                figures: Fields::new(),
                ..flagged(speed)
            },
            _ => flagged(speed),
        };
        document_of(&experiment(&exact), &of)
    };
    let row = compared(&of(1.0), &of(0.5), 0.05).rows.remove(0);
    assert_eq!(row.change, Change::Regression);
}

#[test]
fn a_quick_run_and_a_long_one_are_compared_with_a_note() {
    let long = document(&|_, _| measured(1.0));
    let with = |quick: bool| {
        let mut document = long.clone();
        document["quick"] = quick.into();
        document
    };
    let notes = |a, b| compared(&with(a), &with(b), 0.05).notes;
    let note = "A is a quick run and B is not: their runs differ in duration";
    assert_eq!(notes(true, false), [note]);
    let note = "B is a quick run and A is not: their runs differ in duration";
    assert_eq!(notes(false, true), [note]);
    assert_eq!(notes(true, true), ["A is a quick run", "B is a quick run"]);
    assert_eq!(notes(false, false), [""; 0]);
}

#[test]
fn only_documents_of_experiments_are_compared() {
    let good = document(&|_, _| measured(1.0));
    for (key, value, expected) in [
        (
            "schema",
            json!("packtrain/9"),
            "its schema is \"packtrain/9\", not \"packtrain/1\"",
        ),
        (
            "command",
            json!("forward"),
            "its command is \"forward\", not \"experiment\"",
        ),
        ("schema", Value::Null, "it has no schema"),
        ("rows", json!(3), "it has no rows"),
    ] {
        let mut other = good.clone();
        other[key] = value;
        let error = Saved::read(&other.to_string()).unwrap_err();
        let hint = "; name a file that packtrain experiment NAME --save FILE wrote";
        assert_eq!(error, format!("{expected}{hint}"));
    }
}

#[test]
fn documents_without_a_common_row_are_not_compared() {
    let a = document(&|_, _| measured(1.0));
    let error = |b: &Value| compare(&saved(&a), &saved(b), 0.05).unwrap_err();
    let line = |rows: &str| {
        format!(
            "A and B have no row of the same experiment and settings: A has rows of fake, B has \
             {rows}; name two files that packtrain experiment NAME --save FILE wrote with the same \
             NAME"
        )
    };
    let mut b = a.clone();
    for row in b["rows"].as_array_mut().unwrap() {
        row["experiment"] = "other".into();
    }
    assert_eq!(error(&b), line("rows of other"));
    b["rows"] = json!([]);
    assert_eq!(error(&b), line("no rows"));
}
