//! Experiments with a tool that is not one: its figures are given.

mod comparing;
mod documents;
mod judging;
mod reading;
mod running;
mod virtual_time;

use packtrain_measure::document::Document;
use packtrain_measure::host::Head;
use serde_json::{Value, json};

use crate::experiment::document::{Notices, part};
use crate::experiment::judge::{Judged, judge};
use crate::experiment::{Experiment, Measure, Options, Results, RunError, Setup, run};
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
    only: None,
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

fn why_of(judged: &[Judged]) -> String {
    let why = judged[0].verdict.clone().expect_err("no verdict");
    why.why().to_owned()
}

const SPREAD: &str = "[[claims]]\ntext = \"t\"\nfigure = \"speed\"\nstatistic = \"spread\"\n\
                      of = { x = \"q\" }\nto = { x = \"p\" }\nat-most = 0.7";

fn document(of: &dyn Fn(&str, usize) -> Measured) -> Value {
    document_of(&experiment(RATIO), of)
}

fn document_of(experiment: &Experiment, of: &dyn Fn(&str, usize) -> Measured) -> Value {
    let results = runs(experiment, &OPTIONS, of);
    let command = "packtrain experiment fake";
    let mut notices = Notices::default();
    let part = part(experiment, &results, &OPTIONS, command, &mut notices);
    json!(Document {
        head: Head::of("experiment"),
        ..part
    })
}
