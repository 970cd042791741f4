//! `blast` and `ping`, with all privileges and without any.

mod program;

use program::{PACKTRAIN, Ran, TIMEOUT, assert_documented, command, finish, in_namespace};
use program::{packtrain, signal, start, wait_for_handlers};
use serde_json::Value;
use std::time::Instant;

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
    let blast = packtrain(&["blast", "--count", "100", "--quiet"]);
    assert_eq!(blast.code, Some(0), "{blast:?}");
    let conditions = "udp over ipv4, frames of 64 bytes, flat out, 1 sender, 1 s\n\
                      through packtrain, MTU 1500\n\n";
    let report = blast.out.strip_prefix(conditions).expect("conditions");
    assert!(
        report.starts_with("offered            100 packets"),
        "{blast:?}"
    );
    assert!(blast.out.contains("\nforwarder "), "{blast:?}");
    let ping = packtrain(&["ping", "--count", "20", "--quiet", "--flood"]);
    assert_eq!(ping.code, Some(0), "{ping:?}");
    let conditions = "udp over ipv4, frames of 102 bytes, one request after the other, 1 s\n\
                      through packtrain, MTU 1500\n\n";
    let report = ping.out.strip_prefix(conditions).expect("conditions");
    assert!(report.starts_with("20 requests, "), "{ping:?}");
    assert!(ping.out.contains("\nround trip "), "{ping:?}");
}

#[test]
fn no_privilege_is_needed() {
    let as_nobody = |args: &[&str]| {
        let options = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        let words: Vec<_> = options.iter().chain(args).copied().collect();
        command("setpriv", &words).spawn().map(finish)
    };
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
fn an_interrupted_load_ends_soon() {
    if in_namespace().is_none() {
        return;
    }
    for tool in ["blast", "ping"] {
        let child = start(&mut command(PACKTRAIN, &[tool, "--duration", "1h"]));
        wait_for_handlers(&child);
        let asked = Instant::now();
        signal(&child, "INT");
        let ran = finish(child);
        assert!(ran.code.is_some(), "{ran:?}");
        assert!(asked.elapsed() < TIMEOUT / 5, "{:?}", asked.elapsed());
    }
}

#[test]
fn a_wrong_size_is_explained() {
    if in_namespace().is_none() {
        return;
    }
    let ran = packtrain(&["blast", "--size", "1519"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let line = "--size cannot be '1519': a frame of ipv4 has 62 to 1518 bytes here";
    assert!(ran.error_line().starts_with(line), "{ran:?}");
}
