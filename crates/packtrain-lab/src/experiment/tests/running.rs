//! Settings and rounds: what is run, in which order, and what a run that fails becomes.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::{OPTIONS, RATIO, TEXT, cell, experiment, measured, why_of, with};
use crate::error::ToolError;
use crate::experiment::forward::Forward;
use crate::experiment::judge::judge;
use crate::experiment::{Experiment, Options, Results, RunError, Setup, run};
use crate::harness::options;
use crate::options::Fields;
use crate::tool::{Control, Measured};

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
        only: None,
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

/// Runs of which some fail, by their number from 1.
fn with_errors(error: &dyn Fn(usize) -> Option<ToolError>) -> Result<Results, RunError> {
    let mut count = 0;
    let mut measure = |_: &Setup, _: &Control<'_>| {
        count += 1;
        error(count).map_or_else(|| Ok(measured(1.0)), Err)
    };
    with(&experiment(RATIO), &OPTIONS, &mut measure)
}

#[test]
fn a_run_that_fails_is_kept_with_a_flag() {
    let stalled = || ToolError::Failed("tcp stalled".to_owned());
    let results = with_errors(&|count| (count == 9).then(stalled)).unwrap();
    assert_eq!(results.runs.len(), 20);
    let flags = &results.runs[4].measured.flags;
    assert_eq!(flags[..], ["the run failed: tcp stalled"]);
    let (cell, error) = results.failed.unwrap();
    assert_eq!((cell, error.to_string().as_str()), (2, "tcp stalled"));
    // Not that of a warm-up.
    let results = with_errors(&|count| [1, 3, 4, 5].contains(&count).then(stalled)).unwrap();
    assert_eq!(results.failed, None);
    assert!(results.runs.iter().all(|run| run.measured.flags.is_empty()));
}

#[test]
fn an_experiment_whose_first_setting_cannot_be_run_ends_with_why() {
    let line = "in the guest: sh: packtrain: not found";
    let count = Cell::new(0);
    let error = with_errors(&|run| {
        count.set(run);
        Some(ToolError::Failed(line.to_owned()))
    });
    let said = error.unwrap_err().to_string();
    assert!(said.ends_with(&format!(": {line}")), "{said}");
    assert_eq!(count.get(), 2);
}

#[test]
fn packets_that_a_warm_up_does_not_account_for_are_a_failure() {
    let lost = || ToolError::Check("packets are not accounted for".to_owned());
    let results = with_errors(&|count| (count == 1).then(lost)).unwrap();
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
            "moderation = \"fixed(50,64)\"\nidle = \"halt\"\npriority = \"none\"\n\
             [check]\nidle = \"halt\"\npriority = \"none\"\npath = \"owned\"\n\
             dispatch_b = \"direct\"\nmoderation = \"fixed(50,64)\"\n[workload]",
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
    let a = "null:source,proto=tcp,coalesce=stream,gro-flows=8,gro-inactive=off,\
             gro-flush=usecs(50),ack-limit=3,rx-pause=64";
    let b = "null:segs=9,gso-segs=7,headroom=2,fit=collapse,coalesce=off";
    let testbed = options(&[&format!("a = '{a}', b = '{b}'")]);
    let forward: Forward = options(&["count = 10"]);
    let settings = forward.run(&testbed, &Control::default()).unwrap().settings;
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
