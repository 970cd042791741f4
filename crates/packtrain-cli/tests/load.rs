//! `blast` and `ping`, with all privileges and without any.

mod program;

use program::{
    PACKTRAIN, Ran, Scratch, as_nobody, assert_documented, command, ends, finish, in_namespace,
    packtrain, signal, start, wait_for_handlers,
};
use serde_json::Value;
use std::fs;
use std::thread;
use std::time::Duration;

/// The one row of a run.
fn row(ran: &Ran, tool: &str) -> Value {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let document = ran.json();
    assert_documented(&document, &["all", "testbed", tool]);
    assert_eq!(document["command"], tool);
    let rows = document["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 1);
    rows[0].clone()
}

#[test]
fn a_blast_reports_what_was_lost() {
    if in_namespace().is_none() {
        return;
    }
    let faults = "tap,drop=0.05,duplicate=0.05";
    let line = "blast --count 500 --duration 60s --rate 20kpps --json --quiet --a";
    let words: Vec<_> = line.split(' ').chain([faults]).collect();
    let ran = packtrain(&words);
    let row = row(&ran, "blast");
    let document = ran.json();
    assert_eq!(row["sent_packets"], 500);
    assert_eq!(row["lost_packets"], document["drops"]["fault_injected"]);
    assert!(row["lost_packets"].as_u64() > Some(0));
    assert_eq!(document["conservation"]["closed"], true);
    assert_eq!(row["a"], faults);
}

#[test]
fn a_ping_has_a_histogram_idle_and_loaded() {
    if in_namespace().is_none() {
        return;
    }
    let line = "ping --through veth --duration 100ms --load stream --json --quiet";
    let row = row(&packtrain(&line.split(' ').collect::<Vec<_>>()), "ping");
    for times in ["latency_us", "idle_latency_us"] {
        assert!(row[times]["p99"].as_f64() >= row[times]["p50"].as_f64());
        assert!(row[times]["min"].as_f64() > Some(0.0), "{row}");
    }
    assert!(row["load_goodput_gbps"].as_f64() > Some(0.0));
}

#[test]
fn a_table_for_people() {
    if in_namespace().is_none() {
        return;
    }
    let blast = ends(0, &["blast", "--count", "100", "--quiet"]);
    let conditions = "udp over ipv4, frames of 64 bytes, flat out, 1 sender, 0.";
    assert!(blast.out.starts_with(conditions), "{blast:?}");
    let report = " s measured\nthrough packtrain, MTU 1500\n\noffered            100 packets";
    assert!(blast.out.contains(report), "{blast:?}");
    assert!(blast.out.contains("\nforwarder "), "{blast:?}");
    let ping = ends(0, &["ping", "--count", "20", "--quiet", "--flood"]);
    let conditions = "udp over ipv4, frames of 102 bytes, one request after the other\n\
                      through packtrain, MTU 1500\n\n";
    let report = ping.out.strip_prefix(conditions).expect("conditions");
    assert!(report.starts_with("20 requests in 0."), "{ping:?}");
    assert!(ping.out.contains("\nround trip "), "{ping:?}");
}

#[test]
fn no_privilege_is_needed() {
    let namespace = as_nobody(&["unshare", "-Urn", PACKTRAIN, "plan", "tap:ptprobe", "null:"]);
    if !namespace.is_ok_and(|ran| ran.code == Some(0)) {
        println!("SKIP: an unprivileged user cannot have a network namespace with a TAP here");
        return;
    }
    for tool in ["blast", "ping"] {
        let args = [PACKTRAIN, tool, "--count", "50", "--json", "--quiet"];
        row(&as_nobody(&args).expect("setpriv runs"), tool);
    }
}

#[test]
fn an_interrupted_table_has_the_time_that_was_measured() {
    if in_namespace().is_none() {
        return;
    }
    let tools: [&[&str]; 3] = [
        &["blast", "--duration", "1h"],
        &["ping", "--duration", "1h"],
        &["stream", "--duration", "1h", "--warm-up", "0"],
    ];
    for args in tools {
        let ran = interrupted(args, "INT");
        if ran.out.is_empty() {
            assert_eq!(ran.err, "interrupted before anything was measured\n");
            continue;
        }
        let head = "interrupted: these are the figures until then\n";
        assert!(ran.out.starts_with(head), "{ran:?}");
        assert!(!ran.out.contains("3600"), "{ran:?}");
        let flag = "not to be judged: interrupted before the end\n";
        assert!(ran.out.ends_with(flag), "{ran:?}");
    }
}

#[test]
fn an_interrupt_during_the_warm_up_says_so() {
    if in_namespace().is_none() {
        return;
    }
    let ran = interrupted(&["stream", "--duration", "1h"], "INT");
    let none = "interrupted before anything was measured\n";
    let warm_up = "interrupted during the warm-up of 360s: nothing was measured yet\n";
    assert!([none, warm_up].contains(&&ran.err[..]), "{ran:?}");
    assert_eq!(ran.out, "");
}

/// Runs a tool that would run for an hour, and interrupts it when it has sent for a while.
fn interrupted(args: &[&str], signal_name: &str) -> Ran {
    let child = start(&mut command(PACKTRAIN, args));
    wait_for_handlers(&child);
    // Time to start. On a busy machine a run that has measured nothing yet says that.
    thread::sleep(Duration::from_millis(1500));
    signal(&child, signal_name);
    let ran = finish(child);
    assert_eq!(ran.code, Some(0), "{args:?}: {ran:?}");
    ran
}

#[test]
fn what_was_measured_before_an_interrupt_is_printed() {
    if in_namespace().is_none() {
        return;
    }
    let tools: [&[&str]; 5] = [
        &["blast", "--duration", "1h", "--json"],
        &["ping", "--duration", "1h", "--rate", "100", "--json"],
        &["ping", "--duration", "1h", "--load", "stream", "--json"],
        &["stream", "--duration", "1h", "--warm-up", "0", "--json"],
        &[
            "rfc2544",
            "--final-duration",
            "10ms",
            "--initial-duration",
            "10ms",
            "--duration-sum",
            "1h",
            "--time-max",
            "9h",
            "--json",
        ],
    ];
    for (args, name) in tools.into_iter().zip(["INT", "TERM", "INT", "INT", "TERM"]) {
        let ran = interrupted(args, name);
        if ran.out.is_empty() {
            assert_eq!(ran.err, "interrupted before anything was measured\n");
            continue;
        }
        assert_eq!(ran.err, "", "{args:?}");
        let document = ran.json();
        let row = &document["rows"][0];
        let flags = row["flags"].as_array().expect("a list");
        assert!(
            flags.contains(&"interrupted before the end".into()),
            "{args:?}: {row}"
        );
        let moved = [
            "sent_packets",
            "sent_requests",
            "goodput_gbps",
            "flat_out_kpps",
        ];
        let figure = moved.iter().find_map(|name| row[*name].as_f64());
        assert!(figure.is_some_and(|figure| figure > 0.0), "{args:?}: {row}");
    }
}

const SENDERS: &str = r#"
name = "senders"
source = "S1"
title = "application senders"
meaning = "none"
document = { claims = "none" }
testbed = { a = "null:" }
workload = { tool = "send", senders = 3, duration = "20ms" }
axes = [{ name = "one", settings = ["only"] }]
figures = [{ key = "sent_packets", title = "packets" }]
"#;

/// A limit on threads ends a tool with one line, not with a panic or a wait.
#[test]
fn a_limit_on_threads_is_an_error() {
    let status = fs::read_to_string("/proc/self/status").expect("/proc");
    if !status.lines().any(|line| line == "Uid:\t0\t0\t0\t0") {
        println!("SKIP: only root can become a user whose threads are counted alone");
        return;
    }
    if in_namespace().is_none() {
        return;
    }
    let scratch = Scratch::new("threads");
    let program = scratch.file("packtrain");
    let copied = finish(start(&mut command("cp", &[PACKTRAIN, &program])));
    assert_eq!(copied.code, Some(0), "{copied:?}");
    let script = "chmod 755 \"$1\" && mount -t tmpfs -o dev none /dev/net &&
        mknod -m 666 /dev/net/tun c 10 200 && shift &&
        exec setpriv --reuid 61234 --regid 61234 --clear-groups prlimit --nproc=\"$0\" \"$@\"";
    let folder = scratch.file("");
    let senders = scratch.file("senders.toml");
    fs::write(&senders, SENDERS).expect("a file");
    let tools: [&[&str]; 5] = [
        &["experiment", &senders, "--quick", "--quiet"],
        &["ping", "--count", "5"],
        &["blast", "--duration", "50ms", "--busy", "2"],
        &["stream", "--duration", "100ms", "--warm-up", "0"],
        &["ping", "--count", "5", "--load", "stream"],
    ];
    let (mut advised, mut done) = (0, 0);
    for args in tools {
        for limit in 1..=10 {
            let limit = limit.to_string();
            let words = [&["-m", "sh", "-c", script, &limit, &folder, &program], args].concat();
            let ran = finish(start(&mut command("unshare", &words)));
            assert!(
                matches!(ran.code, Some(0 | 3 | 4)),
                "{limit} {args:?}: {ran:?}"
            );
            if ran.code == Some(0) {
                done += 1;
            } else {
                let line = ran.error_line();
                let is_advice = line.contains("the limit on threads");
                assert!(is_advice || !line.contains("thread:"), "{limit}: {line}");
                advised += usize::from(is_advice);
            }
        }
    }
    assert!(advised > 0 && done > 0, "{advised} {done}");
}

#[test]
fn a_wrong_size_is_explained() {
    if in_namespace().is_none() {
        return;
    }
    let ran = ends(2, &["blast", "--size", "1519"]);
    let line = "--size cannot be '1519': a frame of ipv4 has 62 to 1518 bytes here";
    assert!(ran.error_line().starts_with(line), "{ran:?}");
}
