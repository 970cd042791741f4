//! `packtrain check`: it finds each planted fault, and nothing where there is none.
//!
//! The program that is checked is this executable, with the arguments of the example `forwarder`
//! behind the word `forwarder`.

#[allow(dead_code, reason = "as an example it has a main of its own")]
#[path = "../examples/forwarder.rs"]
mod forwarder;
mod program;

use packtrain_lab::baseline;
use packtrain_lab::check::CHECKS;
use packtrain_lab::cpus::allowed;
use packtrain_lab::harness::{self, need_tap, skip};
use program::{PACKTRAIN, Ran, Scratch, assert_documented, command, ends, finish, start};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1).peekable();
    if args.next_if(|arg| arg == "forwarder").is_some() {
        return forwarder::ended(args);
    }
    packtrain_lab::tests! {
        3 at once:
        nothing_is_reported_where_there_is_no_fault,
        the_forwarder_in_c_passes,
        each_planted_fault_is_found_by_its_check,
        a_copy_that_comes_late_fails_the_check_that_sent_the_packet,
        a_ttl_that_is_not_one_less_is_found_if_it_has_to_be,
        the_cause_is_named_once_with_all_its_checks,
        a_loss_now_and_then_is_named_with_its_spacing,
        a_program_that_has_ended_is_not_waited_for,
        a_program_without_a_cpu_loses_nothing,
        reports_are_the_same_in_all_forms,
        a_program_ends_with_the_check,
        what_is_wrong_with_a_program_is_said,
        a_log_has_what_the_program_prints,
        a_forgotten_virtio_net_header_is_suspected,
    }
}

fn this() -> String {
    let path = std::env::current_exe().expect("this executable");
    path.display().to_string()
}

/// Runs `check -q` with `options` for the forwarder of this executable with the arguments
/// `program`, which ends with this exit code.
fn forwarder_ends(code: i32, options: &str, program: &str) -> Ran {
    let this = this();
    let mut words = vec!["check", "-q"];
    words.extend(options.split_whitespace());
    words.extend(["--", &this, "forwarder"]);
    words.extend(program.split_whitespace());
    words.extend(["{a}", "{b}"]);
    ends(code, &words)
}

/// The verdicts of a document, by check.
fn verdicts(document: &Value) -> Vec<(&str, &str)> {
    let rows = document["rows"].as_array().expect("rows");
    rows.iter()
        .map(|row| {
            let check = row["check"].as_str().expect("a check");
            (check, row["verdict"].as_str().expect("a verdict"))
        })
        .collect()
}

/// Runs all checks, which must pass but for one that does not apply. Time decides none of them: the
/// one that compares speeds is left out.
fn passes(options: &[&str], command: &[&str], not_applicable: &str) -> Value {
    let mut words = vec!["check", "-q", "--json", "--no-speed", "--skip", "mss-speed"];
    words.extend(options);
    words.push("--");
    words.extend(command);
    let document = ends(0, &words).json();
    for (check, verdict) in verdicts(&document) {
        let is_meant = check == not_applicable;
        let wanted = if is_meant { "not-applicable" } else { "passed" };
        assert_eq!(verdict, wanted, "{check}: {document}");
    }
    assert_eq!(verdicts(&document).len(), CHECKS.len() - 1);
    document
}

/// Checks of large TCP packets, with what they say of those that passed.
fn notes(document: &Value) -> Vec<(&str, &str)> {
    let rows = document["rows"].as_array().expect("rows").iter();
    let all = rows.map(|row| (&row["check"], &row["note"]));
    let all = all.map(|(check, note)| (check.as_str().expect("a check"), note));
    all.filter(|(check, _)| ["tcp-sizes", "tcp-segments", "tcp-tails"].contains(check))
        .map(|(check, note)| (check, note.as_str().expect("a note")))
        .collect()
}

/// Calls `run` with each, several at a time: most of the time goes into waiting.
fn side_by_side<T: Sync>(all: &[T], run: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    run(one);
                }
            });
        }
    });
}

fn nothing_is_reported_where_there_is_no_fault() {
    need_tap();
    let this = &*this();
    let route = [this, "forwarder", "--route", "{a}", "{b}"];
    let programs: [(&[&str], &str); 6] = [
        (&[this, "forwarder", "{a}", "{b}"], "ethernet"),
        (&[this, "forwarder", "--tap", "{a}", "{b}"], "refused-write"),
        (&[this, "forwarder", "--plain", "{a}", "{b}"], "ethernet"),
        (
            &[PACKTRAIN, "forward", "-q", "tun:{a}", "tun:{b}"],
            "ethernet",
        ),
        (
            &[PACKTRAIN, "forward", "-q", "tap:{a}", "tap:{b},offload=off"],
            "refused-write",
        ),
        (&route, "ethernet"),
    ];
    side_by_side(&programs, |(command, not_applicable)| {
        let options: &[&str] = match command.contains(&"--route") {
            true => &["--ttl-decrement"],
            false => &[],
        };
        let document = passes(options, command, not_applicable);
        let note = if command.contains(&"--plain") {
            "no large packet reached it"
        } else if command.contains(&"tap:{b},offload=off") {
            "no large packet reached it from B to A"
        } else {
            ""
        };
        let wanted = ["tcp-sizes", "tcp-segments", "tcp-tails"].map(|check| (check, note));
        assert_eq!(notes(&document), wanted);
    });
}

fn a_ttl_that_is_not_one_less_is_found_if_it_has_to_be() {
    need_tap();
    let finds = |option: &str, program: &str, difference: &str| {
        let options = "--json --only ttl-tos --no-ipv6 --patience 500ms";
        let document = forwarder_ends(1, &format!("{options} {option}"), program).json();
        assert_eq!(verdicts(&document), [("ttl-tos", "wrong-bytes")]);
        let what = document["rows"][0]["what"].as_str().expect("a sentence");
        let wanted = format!("another IPv4 TTL (byte 8: {difference})");
        assert!(what.contains(&wanted), "{document}");
    };
    finds("--ttl-decrement", "", "expected 0x3f, arrived 0x40");
    finds("", "--route", "expected 0x40, arrived 0x3f");
}

fn the_cause_is_named_once_with_all_its_checks() {
    need_tap();
    let cases = harness::rows::<4>(
        "--route | ttl-tos | acks | routes, give `--ttl-decrement`
         --fault pseudo-sum | mtu | partial-checksum | completion forgotten, or NEEDS_CSUM
         --fault pseudo-sum | ipv6-extensions | udp-sizes | completion forgotten, or NEEDS_CSUM
         --fault gso-lost | tcp-sizes | udp-segments | gso fields lost",
    );
    let cases: Vec<_> = cases.collect();
    side_by_side(&cases, |[program, one, other, cause]| {
        let run = |option: &str| {
            forwarder_ends(1, &format!("{option} --only {one} --only {other}"), program)
        };
        let document = run("--json").json();
        let rows = document["rows"].as_array().expect("rows");
        let [first, second] = &rows[..] else {
            panic!("{document}")
        };
        assert_eq!(first["cause"], second["cause"], "{document}");
        let named = first["cause"].as_str().expect("a cause");
        assert!(named.contains(cause), "{document}");
        assert_eq!(first["shows_again"], true, "{document}");
        assert_eq!(second["least"], json!([]));
        assert_eq!(second["shows_again"], json!(null));
        // The order of checks is that of the list.
        let [first, second] = [first, second].map(|row| row["check"].as_str().expect("a name"));
        for (option, shown) in [("", 1), ("-v", 2)] {
            let text = run(option).out;
            let head = text.split("\n2 checks, one cause: ").nth(1);
            let lines: Vec<_> = head.expect("a headline").lines().collect();
            assert!(lines[0].contains(cause), "{text}");
            assert_eq!(lines[1], format!("  {first}, {second}"));
            assert!(text.contains(&format!("as {first}\n")), "{text}");
            let programs = text.matches("a program that passes: ").count();
            assert_eq!(programs, shown, "{text}");
        }
    });
}

fn a_loss_now_and_then_is_named_with_its_spacing() {
    need_tap();
    let options = "--patience 500ms --no-ipv6 --no-stop --only tcp-segments --only flows --json";
    let document = forwarder_ends(1, options, "--fault each-1000th").json();
    for row in document["rows"].as_array().expect("rows") {
        let cause = row["cause"].as_str().expect("a cause");
        let is_rare = cause.starts_with("packets are lost now and then, whatever");
        assert!(is_rare, "{document}");
        assert_tries(row);
        let spacing = cause.split("one in about ").nth(1).expect("a spacing");
        let packets = spacing.split(' ').next().map(str::parse::<u32>);
        let packets = packets.expect("a word").expect("a number");
        assert!((950..=1000).contains(&packets), "{cause}");
    }
    // The smallest list that seemed to show it passes.
    let row = &document["rows"][0];
    assert_eq!(row["check"], "tcp-segments");
    assert_eq!(row["shows_again"], false);
}

fn a_program_that_has_ended_is_not_waited_for() {
    need_tap();
    // With these, what waits does not end before the test is killed.
    let words = ["check", "-q", "--wait", "1h", "--patience", "1h", "--"];
    let ran = ends(4, &[&words[..], &["true", "{a}", "{b}"]].concat());
    let line = "the program ended before it had both interfaces: exit status 0";
    assert!(ran.error_line().contains(line), "{ran:?}");
    let options = "--json --wait 1h --patience 1h --only order";
    let document = forwarder_ends(1, options, "--fault ends").json();
    assert_eq!(verdicts(&document), [("order", "ended")], "{document}");
}

/// Programs that only compute have the forwarder's one CPU for longer than the patience.
fn a_program_without_a_cpu_loses_nothing() {
    need_tap();
    let cpu = allowed().expect("CPUs")[0].to_string();
    let pinned = |words: &[&str]| {
        let words = [&["taskset", "-c", &cpu][..], words].concat();
        words.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let spin = pinned(&["sh", "-c", "while :; do :; done"]);
    let busy = [(); 4].map(|()| {
        // Each ends with this thread.
        let mut end = Command::new("setpriv");
        end.args(["--pdeathsig", "KILL"]).args(&spin);
        start(&mut end)
    });
    let program = pinned(&["nice", "-n", "19", &this(), "forwarder", "{a}", "{b}"]);
    let options = "check -q --json --patience 100ms --wait 1h --only order --only acks --";
    let mut words: Vec<_> = options.split_whitespace().collect();
    words.extend(program.iter().map(String::as_str));
    let document = ends(0, &words).json();
    for mut busy in busy {
        busy.kill().and_then(|()| busy.wait()).expect("a child");
    }
    let wanted = [("order", "passed"), ("acks", "passed")];
    assert_eq!(verdicts(&document), wanted, "{document}");
}

fn the_forwarder_in_c_passes() {
    need_tap();
    let program = match baseline::Program::forwarder() {
        Ok(program) => program,
        Err(error) => skip(error),
    };
    let path = program.path().display().to_string();
    let path = path.replace("self", &std::process::id().to_string());
    // It ends when its standard input does.
    let command = format!("sleep 1000 | {path} {{a}} {{b}} vnet 1");
    passes(&[], &["sh", "-c", &command], "refused-write");
}

/// The verdict that a fault leads to.
fn verdict_of(fault: &str) -> &'static str {
    match fault {
        "order" => "reordered",
        "mss-speed" => "slow",
        "refused-write" => "ended",
        "tcp-segments" | "tcp-tails" | "zero-checksum" | "short-packets" | "fragments"
        | "ipv6-extensions" | "idle" | "down-up" | "flows" | "acks" | "protocols" | "ethernet"
        | "burst" => "lost-in-silence",
        _ => "wrong-bytes",
    }
}

fn each_planted_fault_is_found_by_its_check() {
    need_tap();
    let names = |list: &[&'static str]| {
        let mut names = list.to_vec();
        names.sort_unstable();
        names
    };
    let faults = forwarder::FAULTS.iter().map(|fault| fault.name);
    let faults: Vec<_> = faults.take_while(|name| *name != LATE_COPY).collect();
    let checks: Vec<_> = CHECKS.iter().map(|check| check.name).collect();
    assert_eq!(names(&faults), names(&checks), "a fault for each check");
    side_by_side(&faults, |fault| finds(fault));
}

/// The first fault that is none of a single check.
const LATE_COPY: &str = "late-copy";

fn a_copy_that_comes_late_fails_the_check_that_sent_the_packet() {
    need_tap();
    // A copy of a fragment comes while fragments are sent, or acknowledgements, or when all is
    // sent. The patience is for that: with the first copy nothing is waited for.
    let options = "--json --patience 20s --no-ipv6 --only fragments --only acks";
    let document = forwarder_ends(1, options, &format!("--fault {LATE_COPY}")).json();
    let wanted = [("fragments", "wrong-bytes"), ("acks", "passed")];
    assert_eq!(verdicts(&document), wanted, "{document}");
    let row = &document["rows"][0];
    let what = row["what"].as_str().expect("a sentence");
    // On a busy machine it may come before the run of its packet has ended.
    let is_told = ["a packet arrived once more, ", "a packet arrived twice: "];
    assert!(is_told.iter().any(|told| what.starts_with(told)), "{row}");
    let least = row["least"].as_array().expect("a list");
    let mut lines = least.iter().filter_map(Value::as_str);
    assert!(lines.any(|line| what.ends_with(line)), "{row}");
}

/// A smaller list is looked for 40 times, and the result and the whole list are sent again.
fn assert_tries(row: &Value) {
    let tries = row["tries"].as_u64().expect("a number");
    assert_eq!(tries > 0, !row["shows_again"].is_null(), "{row}");
    assert!(tries <= 42, "{row}");
}

fn finds(fault: &str) {
    let options = format!("--json --patience 500ms --only {fault}");
    let device = if fault == "ethernet" { "--tap" } else { "" };
    let ran = forwarder_ends(1, &options, &format!("--fault {fault} {device}"));
    let document = ran.json();
    let wanted = [(fault, verdict_of(fault))];
    assert_eq!(verdicts(&document), wanted, "{document}");
    assert_eq!(ran.error_line(), format!("1 of 1 checks failed: {fault}"));
    let row = &document["rows"][0];
    let what = row["what"].as_str().expect("a sentence");
    assert!(!what.is_empty(), "{row}");
    let least = row["least"].as_array().expect("a list").len();
    assert_tries(row);
    // A speed has no packets; a burst needs as many as it does. Of many flows, a busy machine takes
    // delays for losses while it looks for fewer, and then reports all of them.
    match fault {
        "mss-speed" => assert_eq!(least, 0),
        "burst" | "both-ways" | "flows" => assert!(least > 0),
        _ => assert!((1..=70).contains(&least), "{row}"),
    }
}

fn reports_are_the_same_in_all_forms() {
    need_tap();
    let scratch = Scratch::new("check");
    let [junit, html, captures] = ["j.xml", "h.html", "captures"].map(|name| scratch.file(name));
    let run = |more: &str| {
        let options = "--patience 500ms --only fragments --only udp-sizes --only ethernet";
        forwarder_ends(1, &format!("{options} {more}"), "--fault fragments")
    };
    let files = format!("--junit {junit} --html {html} --captures {captures}");
    let document = run(&format!("--json {files}")).json();
    assert_documented(&document, &["all", "check"]);
    let wanted = [
        ("udp-sizes", "passed"),
        ("fragments", "lost-in-silence"),
        ("ethernet", "not-applicable"),
    ];
    assert_eq!(verdicts(&document), wanted);
    let row = &document["rows"][1];
    let (what, least) = (&row["what"], &row["least"][0]);
    let (what, least) = (what.as_str().expect("text"), least.as_str().expect("text"));
    let terminal = run("").out;
    let mut parts = terminal.split("\n\n");
    let details = parts.find(|part| part.starts_with("fragments: "));
    let details = details.expect("details of the failure").trim_end();
    for text in [&terminal, &fs::read_to_string(html).expect("a page")] {
        assert!(text.contains("lost in silence"), "{text}");
        assert!(text.contains(what) && text.contains(least), "{text}");
    }
    let junit = fs::read_to_string(junit).expect("a report");
    let counts = "tests=\"3\" failures=\"1\" skipped=\"1\"";
    let failure = "<failure type=\"lost in silence\"";
    // But for the path of the capture, which the other run did not make.
    let details = format!(">{details}\n  capture: ");
    for text in [counts, failure, &details] {
        assert!(junit.contains(text), "{junit}");
    }
    let capture = row["capture"].as_str().expect("a path");
    let listed = ends(0, &["replay", capture, "--json"]).json();
    // One fragment was sent, and none arrived.
    assert_eq!(listed["conservation"]["received"], 1, "{listed}");
}

fn a_program_ends_with_the_check() {
    need_tap();
    let scratch = Scratch::new("ends");
    // A name of its own: other tests run forwarders, too.
    let (file, own) = (scratch.file("pid"), scratch.file("own"));
    symlink(this(), &own).expect("a link");
    // A process that the program has started, too.
    let line = format!("sleep 1000 & echo $! >{file}; exec {own} forwarder {{a}} {{b}}");
    let words = ["check", "-q", "--no-speed", "--", "sh", "-c", &line];
    let check = start(&mut command(PACKTRAIN, &words));
    let is_there = || fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n'));
    harness::wait_for("the program", is_there);
    let marker = format!("{own}\0forwarder\0");
    harness::wait_for("the forwarder", || processes_with(&marker) > 0);
    let pid = Pid::from_raw(check.id().cast_signed()).expect("a process");
    kill_process(pid, Signal::KILL).expect("it runs");
    finish(check);
    harness::wait_for("the end of the program", || processes_with(&marker) == 0);
}

/// Processes whose command line begins so.
fn processes_with(command_line: &str) -> usize {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let is_one = |entry: &fs::DirEntry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.starts_with(command_line.as_bytes())
    };
    entries.filter(is_one).count()
}

fn what_is_wrong_with_a_program_is_said() {
    need_tap();
    let this = this();
    let says = |code: i32, words: &[&str], text: &str| {
        let words = [&["check", "-q"], words].concat();
        let ran = ends(code, &words);
        assert!(ran.error_line().contains(text), "{words:?}: {ran:?}");
    };
    says(
        2,
        &["--", "cat", "{a}"],
        "the command has no {b}, which stands for the name of a device",
    );
    says(
        2,
        &["--only", "udp-size", "--", "x", "{a}", "{b}"],
        "did you mean udp-sizes?",
    );
    says(2, &["--a", "x {a}"], "--b");
    says(
        2,
        &[],
        "the command of the program is missing: write it behind --, as in `packtrain check -- \
         ./my-forwarder {a} {b}`",
    );
    let words = ["--log", "/no/such/log", "--", &this, "{a}", "{b}"];
    says(4, &words, "--log /no/such/log: No such file or directory");
    let words = [
        "--",
        "sh",
        "-c",
        "echo no such key >&2; exit 3",
        "{a}",
        "{b}",
    ];
    says(
        4,
        &words,
        "exit status 3; the last line it printed: no such key",
    );
    let words = [
        "--wait",
        "300ms",
        "--",
        "sh",
        "-c",
        "sleep 1000",
        "{a}",
        "{b}",
    ];
    says(4, &words, "did not open interfaces called pt-a and pt-b");
    // A device that is there already has another kind.
    let words = ["--made", "tap", "--", &this, "forwarder", "{a}", "{b}"];
    says(4, &words, "the last line it printed:");
    // What the program does not claim is no failure.
    let options = "--no-speed --json --skip fragments --no-ipv6 --only fragments --only acks";
    let document = forwarder_ends(0, options, "--fault fragments").json();
    assert_eq!(verdicts(&document), [("acks", "passed")]);
}

fn a_log_has_what_the_program_prints() {
    need_tap();
    let (scratch, this) = (Scratch::new("log"), this());
    let log = scratch.file("log");
    let words = ["check", "-q", "--no-speed", "--only", "acks", "--log", &log];
    // One program, which prints to both outputs.
    let line = format!("echo first; echo second >&2; exec {this} forwarder {{a}} {{b}}");
    ends(0, &[&words[..], &["--", "sh", "-c", &line]].concat());
    let text = fs::read_to_string(&log).expect("a log");
    assert_eq!(text, "first\nsecond\n");
    // Two of them: the second prints and fails once the log has what the first one printed.
    let second = format!("until grep -q pt-a {log}; do sleep 0.01; done; echo of {{b}}; exit 3");
    let commands = ["--a", "echo of {a}", "--b", &second];
    ends(4, &[&words[..], &commands].concat());
    let text = fs::read_to_string(&log).expect("a log");
    assert_eq!(text, "of pt-a\nof pt-b\n");
}

fn a_forgotten_virtio_net_header_is_suspected() {
    need_tap();
    let in_front = "10 bytes are in front of one that arrived";
    let refused = "the kernel refused 10 packets of 10 that the program wrote in host B";
    side_by_side(&[("--tap", in_front), ("", refused)], |(kind, clause)| {
        let ran = forwarder_ends(4, "--wait 2s", &format!("--forget {kind}"));
        let line = ran.error_line();
        let clause = format!("; {clause}: is the virtio-net header read and written?");
        assert!(line.contains("no packet passes"), "{line}");
        assert!(line.ends_with(&clause), "{line}");
    });
}
