//! Figures over runs, and verdicts on claims.

use packtrain_measure::Verdict;
use serde_json::json;

use super::{OPTIONS, RATIO, SPREAD, TEXT, experiment, flagged, measured, runs, verdict, why_of};
use packtrain_measure::document::Figure;

use crate::experiment::judge::{Judged, NotJudged, Notice, common, judge, notice, summary};
use crate::experiment::{Experiment, Options};
use crate::options::Fields;
use crate::tool::Measured;

fn only(judged: &[Judged]) -> &Result<Verdict, NotJudged> {
    assert_eq!(judged.len(), 1, "{judged:?}");
    &judged[0].verdict
}

fn assert_all(judged: &[Judged], verdict: Verdict) {
    let all = judged.iter().all(|one| one.verdict == Ok(verdict));
    assert!(all, "{judged:?}");
}

const QUICK: Options = Options {
    quick: true,
    ..OPTIONS
};

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
    assert_all(&judged, Verdict::Direction);
}

#[test]
fn a_median_on_the_other_side_is_not_reproduced_and_a_must_fails() {
    let of = |_: &str, _: usize| measured(1.0);
    let judged = verdict(RATIO, &OPTIONS, &of);
    assert_all(&judged, Verdict::NotReproduced);
    let mut claim = experiment(RATIO).claims[0].clone();
    let line = "a claim that must hold is not reproduced: q is twice as fast";
    assert_eq!(
        notice(&claim.claim, &judged),
        Some(Notice::Fails(line.into()))
    );
    claim.claim.must = false;
    assert_eq!(notice(&claim.claim, &judged), None);
}

#[test]
fn more_than_twice_the_documents_effect_has_another_cause() {
    let text = RATIO.replace("at-least = 2", "at-least = 2\neffect = 3");
    let of = |fast: f64| {
        move |cell: &str, _: usize| measured(if cell.starts_with('r') { fast } else { 1.0 })
    };
    for (fast, expected) in [
        (1.9, Verdict::NotReproduced),
        (8.9, Verdict::Reproduced),
        (9.1, Verdict::Exceeds),
    ] {
        let judged = verdict(&text, &OPTIONS, &of(fast));
        assert_all(&judged, expected);
        assert_eq!(
            notice(&experiment(&text).claims[0].claim, &judged).is_some(),
            fast < 2.0
        );
    }
    let judged = verdict(&text, &QUICK, &of(9.1));
    assert_eq!(judged[0].verdict, Ok(Verdict::Exceeds));
    let text = RATIO.replace("at-least = 2", "at-most = 0.5\neffect = 0.25");
    let judged = verdict(&text, &OPTIONS, &of(1.0 / 16.5));
    assert_eq!(judged[0].verdict, Ok(Verdict::Exceeds));
}

#[test]
fn a_quick_run_says_direction_at_most() {
    let of = |cell: &str, _: usize| measured(if cell.starts_with('r') { 9.0 } else { 1.0 });
    let options = Options { rounds: 3, ..QUICK };
    let judged = verdict(RATIO, &options, &of);
    assert_all(&judged, Verdict::Direction);
    let slow = |_: &str, _: usize| measured(1.0);
    let judged = verdict(RATIO, &options, &slow);
    assert_all(&judged, Verdict::NotReproduced);
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
    assert_all(&judged, Verdict::Reproduced);
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
    assert_eq!(verdict(RATIO, &QUICK, &of), judged);
}

#[test]
fn a_claim_that_must_hold_says_so_if_its_runs_are_not_judged() {
    let disturbed = |_: &str, _: usize| flagged(4.0);
    let what = |claim: &str, options: &Options| {
        let judged = verdict(claim, options, &disturbed);
        notice(&experiment(claim).claims[0].claim, &judged)
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
    assert_all(&judged, Verdict::Reproduced);
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
    let why = "1 of 3 settings to choose the best from have enough runs: a quick run leaves it out";
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
    let key = &experiment.definition.figures[0];
    let one = summary(&results, 2, key).unwrap();
    assert_eq!((one.estimate.median, one.min, one.max), (11.0, 10.0, 90.0));
    assert_eq!(one.outliers, [90.0]);
    let clean = summary(&results, 0, key).unwrap();
    assert_eq!((clean.estimate.count, clean.judged), (4, 4));
    let groups: Vec<_> = clean.groups.iter().map(|of| (of.median, of.runs)).collect();
    assert_eq!(groups, [(11.0, 3), (90.0, 1)]);
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
        Some((found.word, found.times, found.rounds))
    };
    assert_eq!(of(0, "who"), Some(("receiver".to_owned(), 2, 3)));
    assert_eq!(of(1, "who"), Some(("a".to_owned(), 2, 5)));
    assert_eq!(of(2, "who"), Some(("sender".to_owned(), 5, 5)));
    assert_eq!(of(3, "who"), None);
    assert_eq!(of(0, "who / who"), None);
    let who = Figure {
        key: "who".parse().unwrap(),
        ..experiment.definition.figures[0].clone()
    };
    assert_eq!(summary(&results, 0, &who), None);
}
