//! A run beside other programs that use the CPUs.

use packtrain_lab::experiment::{self, Experiment, Options, Setup, judge};
use packtrain_lab::tool::Control;
use std::process::{Child, Command, Stdio};

/// Stream and ping, three clean rounds of which would be enough for a verdict.
const EXPERIMENT: &str = r#"
name = "disturbed"
source = "S0"
title = "beside other programs"
meaning = "nothing"

[document]
claims = "both are as fast"

[testbed]
through = "veth"

[workload]
tool = "stream"
duration = "200ms"
warm-up = "100ms"

[[axes]]
name = "message"
settings = [{ name = "small", workload = { message = 65536 } }, { name = "large" }]

[[figures]]
key = "goodput_gbps"
title = "goodput"
unit = "Gbit/s"
better = "higher"

[[claims]]
text = "as fast"
figure = "goodput_gbps"
of = { message = "small" }
to = { message = "large" }
at-least = 0.000001
"#;

/// A program that uses a CPU, for ten seconds of CPU time at most.
struct Busy(Child);

impl Busy {
    fn start() -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -t 10; while :; do :; done"]);
        shell.stdin(Stdio::null()).stdout(Stdio::null());
        Self(shell.spawn().expect("a shell"))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for result in [self.0.kill(), self.0.wait().map(drop)] {
            if let Err(error) = result {
                println!("a busy program: {error}");
            }
        }
    }
}

pub fn disturbed() {
    let experiment =
        Experiment::read("disturbed.toml", EXPERIMENT).unwrap_or_else(|error| panic!("{error}"));
    let options = Options {
        rounds: judge::CLEAN_MIN,
        quick: false,
        seeds: 1,
        only: None,
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let busy: Vec<_> = (0..cpus).map(|_| Busy::start()).collect();
    let mut measure = |setup: &Setup, control: &Control<'_>| setup.run(control);
    let results = experiment::run(&experiment, &options, &mut measure, &Control::default());
    drop(busy);
    let results = results.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(results.runs.len(), 2 * judge::CLEAN_MIN);
    for run in &results.runs {
        assert_ne!(run.measured.flags, [""; 0], "{:?}", run.measured.figures);
        assert!(run.measured.figures["goodput_gbps"].as_f64() > Some(0.0));
    }
    let judged = judge(&experiment, &results, &experiment.claims[0], &options);
    assert_eq!(judged.len(), 1);
    let why = judged[0].verdict.as_ref().expect_err("no verdict").why();
    assert!(why.contains("0 of 3 runs were clean"), "{why}");
}
