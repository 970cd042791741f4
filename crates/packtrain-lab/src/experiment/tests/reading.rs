//! Files: their errors, and the built-in ones.

use std::time::Duration;

use super::{TEXT, wrong};
use crate::experiment::{BUILT_IN, Experiment, Workload, built_in};
use crate::harness::rows;

#[test]
fn every_error_of_a_file_has_its_line_and_what_to_write() {
    let replaced = rows(
        r#"
        title = "a | titel = "a | 4 | unknown field `titel`
        tool = "forward" |  | 16 | write tool =
        "forward" | "foward" | 15 | one of bad-frames, blast, forward, ping, rfc2544,
        count = 1000 | cuont = 1000 | 16 | [workload] cuont: unknown field
        count = 1000 | count = "many" | 16 | [workload] count:
        mtu = 9000 | mtu = "big" | 23 | [testbed] mtu:
        mtu = 9000 | pull = "1s" | 23 | [testbed] pull is for the card of a guest
        mtu = 9000 | mut = 9000 | 23 | no 'mut'; the names are through, a, b, exec, mtu, link,
        b = "{y}" | b = "{z}" | 12 | there is no axis 'z'; the names are
        b = "{y}" | b = "{y" | 12 | a '{' without a '}'
        ["1", "2"] | [1, 1] | 26 | axis 'y' has '1' twice
        ["1", "2"] | [] | 26 | axis 'y' has no settings
        name = "y" | name = "x" | 26 | 'x': it is taken
        key = "speed" | key = "a / b / c" | 30 | is no figure
        "higher" | "more" | 33 | unknown variant `more`
        "#,
    );
    let claims = rows(
        r#"
        figure = "speed" | 36 | one of at-least, at-most, within
        figure = "speed"; of = { z = 1 }; at-most = 1 | 38 | the axes are x, y
        figure = "speed"; of = { y = 3 }; at-most = 1 | 38 | it has 1, 2
        figure = "other"; to = { y = [1, 2], x = ["p", "q"] }; at-most = 1 | 36 | no `better`
        figure = "speed"; of = { y = 1 }; to = { y = 1 }; at-most = 1 | 36 | `of` and `to` choose
        figure = "speed"; of = { y = 1 }; at-least = 1; effect = 2 | 36 | with it has a `to`
        figure = "speed"; to = { y = 2 }; at-least = 3; effect = 2 | 36 | from 1 to the effect
        "#,
    );
    let replaced = replaced.map(|[from, to, line, error]| (TEXT.replace(from, to), line, error));
    let claims = claims.map(|[claim, line, error]| {
        let claim = claim.replace("; ", "\n");
        (
            format!("{TEXT}\n[[claims]]\ntext = \"t\"\n{claim}"),
            line,
            error,
        )
    });
    let mut missed = Vec::new();
    for (text, line, expected) in replaced.chain(claims) {
        let error = wrong(&text);
        let start = format!("fake.toml:{line}: ");
        if !error.starts_with(&start) || !error.contains(expected) || error.contains('\n') {
            missed.push(format!("{error}\n  not {start}{expected}"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn a_figure_that_no_run_can_have_is_refused_with_its_line() {
    let check = |tool: &str, key: &str| {
        let text = TEXT.replace("\"speed\"\ntitle", &format!("\"{key}\"\ntitle"));
        let text = text.replace(
            "tool = \"forward\"\ncount = 1000",
            &format!("tool = \"{tool}\""),
        );
        let text = text.replace("[quick.workload]\ncount = \"{seed}\"", "");
        let experiment = Experiment::read("fake.toml", &text).expect("a file");
        experiment
            .check_figures()
            .map_err(|error| error.to_string())
    };
    for (tool, key) in [
        ("forward", "received_kpps"),
        ("forward", "a.rx.batches.poll.p99"),
        ("forward", "drops.link_down"),
        ("ping", "latency_us.p99 / idle_latency_us.p50"),
        ("ping", "load_goodput_gbps"),
        ("blast", "cpu_machine_percent"),
        ("blast", "memory.small_used"),
        ("stream", "nstat_b.TcpExtTCPHPHits"),
        ("stream", "forwarder.wire_packets_per_packet"),
        ("rfc2544", "goals.0.throughput_kpps"),
        ("rfc2544", "latency_us.50.p99"),
        ("send", "b.device.tx_dropped"),
        ("sort", "group.probes_per_key"),
    ] {
        assert_eq!(check(tool, key), Ok(()), "{tool}");
    }
    for [tool, key, nearest] in rows(
        "
        forward | received_kpp | received_kpp; the nearest are received_kpps
        ping | latency_us.p98 / sent_requests | latency_us.p98; the nearest are latency_us.p9
        blast | lost_packets / sent_packet | sent_packet; the nearest are sent_packets
        stream | goodput_gbps.p50 | goodput_gbps.p50; the nearest are
        sort | received_kpps | received_kpps; the nearest are
        send | a.rx.packet | a.rx.packet; the nearest are a.rx.packets
        ",
    ) {
        let error = check(tool, key).unwrap_err();
        let start = format!("fake.toml:28: no run has the figure {nearest}");
        assert!(error.starts_with(&start), "{error}");
    }
}

#[test]
fn every_built_in_experiment_is_complete() {
    for &(name, _) in BUILT_IN {
        let experiment = built_in(name).unwrap();
        assert_eq!(experiment.name(), name);
        experiment.check_figures().expect("known figures");
        assert!(
            ["S0", "S1", "S2", "S3", "S4"].contains(&experiment.definition.source.as_str()),
            "{name}"
        );
        let document = &experiment.definition.document;
        assert!(
            !document.claims.is_empty() && !experiment.definition.meaning.is_empty(),
            "{name}"
        );
        assert!(!experiment.definition.limits.is_empty(), "{name}");
        let columns = document.columns.len();
        assert!(
            document.rows.iter().all(|row| row.len() == columns),
            "{name}"
        );
        assert!(!experiment.claims.is_empty(), "{name}");
    }
    assert!(built_in("no-such").is_none());
}

#[test]
fn a_row_of_a_guest_is_a_file_of_its_own() {
    let guest = "[guest]\ncards = [\"e1000e\", \"virtio\"]\nicount = true\n\n[document]";
    let text = TEXT.replace("[document]", guest);
    let experiment = Experiment::read("fake.toml", &text).expect("a file");
    for (cell, ports) in [["p", "1"], ["p", "2"], ["r", "1"], ["r", "2"]]
        .iter()
        .enumerate()
    {
        for (quick, count) in [(false, Some(1000)), (true, Some(7))] {
            let setup = experiment.setup(cell, 7, quick).expect("a setup");
            let place = setup.place.expect("a guest");
            assert_eq!((place.guest.cards.len(), place.guest.cpus), (2, 1));
            let alone = Experiment::read("row.toml", &place.text);
            let alone = alone.unwrap_or_else(|error| panic!("{error}: {}", place.text));
            alone.check_figures().expect("known figures");
            let there = alone.setup(0, 1, false).expect("a setup");
            assert!(there.place.is_none(), "it is run where it is read");
            assert_eq!([&*there.testbed.a, &*there.testbed.b], *ports);
            assert_eq!(there.testbed.mtu, setup.testbed.mtu);
            let Workload::Forward(forward) = there.workload else {
                panic!("{:?}", there.workload);
            };
            assert_eq!(forward.count, count);
        }
    }
    let refused = |from: &str, to: &str| wrong(&text.replace(from, to));
    assert!(refused("virtio", "e1000").contains("unknown variant `e1000`"));
    assert!(refused("icount", "icont").contains("unknown field `icont`"));
}

/// To count them disturbs the workers.
#[test]
fn frames_in_use_are_counted_if_a_figure_needs_them() {
    for &(name, _) in BUILT_IN {
        let setup = built_in(name).unwrap().setup(0, 1, false).unwrap();
        assert_eq!(setup.memory, name == "encap-limit", "{name}");
    }
}

/// In a shorter run a few ticks of `/proc/stat` are 5 % of the CPUs. Where packets stay in memory,
/// no figure is made of these.
#[test]
fn no_run_of_this_machine_measures_for_less_than_200_ms() {
    let mut short = Vec::new();
    for (&(name, _), quick) in BUILT_IN.iter().flat_map(|one| [(one, false), (one, true)]) {
        let experiment = built_in(name).unwrap();
        let found = (0..experiment.cells.len()).find_map(|cell| {
            if experiment.cells[cell].is_virtual() {
                return None;
            }
            let setup = experiment.setup(cell, 1, quick).unwrap();
            let measured = match &setup.workload {
                Workload::Stream(stream) => stream.duration.0 - stream.warm_up().unwrap(),
                Workload::Blast(blast) => blast.duration.0,
                Workload::Ping(ping) => ping.duration.0,
                Workload::Forward(forward) => forward.duration.0,
                Workload::Sort(sort) => sort.duration.0,
                Workload::Rfc2544(_) => return None,
                Workload::BadFrames(frames) => frames.duration.0,
                Workload::Send(send) => send.duration.0,
            };
            let label = experiment.label(cell);
            let line = format!("{name}, quick {quick}: {label}: {measured:?}");
            let in_memory = matches!(setup.workload, Workload::Forward(_));
            let least = Duration::from_millis(if in_memory { 100 } else { 200 });
            (measured < least).then_some(line)
        });
        short.extend(found);
    }
    assert!(short.is_empty(), "{}", short.join("\n"));
}

#[test]
fn a_quick_run_of_a_built_in_experiment_leaves_no_claim_out() {
    let mut left_out = Vec::new();
    for &(name, _) in BUILT_IN {
        let experiment = built_in(name).unwrap();
        let pairs = experiment.claims.iter().flat_map(|claim| &claim.pairs);
        let cells = pairs.flat_map(|pair| [&[pair.of][..], &pair.to].concat());
        let long = cells.filter(|&cell| experiment.cells[cell].is_long);
        left_out.extend(long.map(|cell| format!("{name}: {}", experiment.label(cell))));
    }
    assert!(left_out.is_empty(), "{}", left_out.join("\n"));
}

#[test]
fn a_file_says_how_often_it_is_run() {
    let rounds = |text: &str| Experiment::read("fake.toml", text).map(|one| one.rounds);
    assert_eq!(rounds(TEXT), Ok(5));
    let with =
        |repeats: i64| TEXT.replace("[document]", &format!("repeats = {repeats}\n[document]"));
    assert_eq!(rounds(&with(30)), Ok(30));
    assert!(wrong(&with(0)).starts_with("fake.toml:7: "));
}
