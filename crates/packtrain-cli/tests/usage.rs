//! Wrong command lines, `--help` and `plan`: output and exit codes.

mod program;

use program::{PACKTRAIN, Ran, Scratch, command, ends, finish, packtrain, start};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn a_bad_command_line_is_2_with_nothing_on_standard_output() {
    let mut late = vec!["null:"; 28];
    (late[0], late[27]) = ("plan", "sim:seqs=2");
    let mut too_many = vec!["null:"; 1026];
    too_many[0] = "plan";
    // A command line, and a part of its error message; `$` stands for the end of the line. Of two
    // commands that are similar, as to `pla`, the more similar one is suggested.
    let cases = "
        frobnicate
            packtrain: unknown command 'frobnicate'; the commands are forward, plan, demo, \
            replay, doctor, guest, experiment, compare, blast, ping, stream, rfc2544, check, sim, \
            completions, man; see packtrain --help$
        forwrad
            packtrain: unknown command 'forwrad'; the commands are forward, plan, demo, replay, \
            doctor, guest, experiment, compare, blast, ping, stream, rfc2544, check, sim, \
            completions, man; did you mean 'forward'?; see packtrain --help$
        blast --burst 3
            packtrain: missing: --rate <RATE>; see packtrain blast --help$
        pla
            did you mean 'plan'?
        fwd
            did you mean 'forward'?
        rfc2544 --frames 64
            packtrain: unexpected argument '--frames'; did you mean '--sizes'?; see packtrain \
            rfc2544 --help$
        latency
            did you mean 'ping'?
        experiment tx-dispach
            encap-limit-card, tx-dispatch-card, regret, regret-virtual; did you mean \
            'tx-dispatch'?$
        stream --duration -1s
            packtrain: --duration cannot be '-1s': it must not be negative; see packtrain stream \
            --help$
        blast --rate -5
            --rate cannot be '-5': it must not be negative;
        ping --size=-3
            --size cannot be '-3': it must not be negative;
        replay in.pcap --hold -.5us
            --hold cannot be '-.5us': it must not be negative;
        forward null: null: -1
            unexpected argument '-1'; see
        forward null: null: --jso
            packtrain: unexpected argument '--jso'; did you mean '--json'?; see packtrain forward \
            --help$
        forward null:
            packtrain: missing: <B>; write packtrain forward <A> <B> [MORE]...; see packtrain \
            forward --help$
        forward
            missing: <A>, <B>; write
        forward null: null: --duration
            --duration needs a value: write --duration <TIME>
        forward null: null: --aging 60s
            packtrain: --aging is for three and more ports: two pass everything on, whatever its \
            address; leave it out, or name a further port$
        forward null: null: --addresses 10
            --addresses is for three and more ports
        plan null: null:addresses=10
            addresses=10 is for three and more ports
        forward null: null: null: --aging 999ms
            --aging cannot be '999ms': an address must be remembered for at least 1s
        forward null: null: null: --addresses 0
            --addresses cannot be '0': write a number from 1 to 1048576
        plan null:link=ethernet null: null:link=ip
            cannot join null0 (Ethernet) and null2 (raw IP):
        forward null:link=ip null: null:
            three and more ports are a bridge, and packets from null0 have no Ethernet addresses;
        forward null: null: sim:seqs=2
            port C: unknown key 'seqs' of a sim: port
        forward null: null: --dispatch threshold(0)
            packtrain: --dispatch 'threshold(0)' has '0' for n
        plan null: null: --moderation fixed(1)
            --moderation 'fixed(1)' lacks one of usecs and frames; write off
        plan null: null: --idle spin
            write halt, poll or adaptive
        forward null: null: --placement list(8191)
            has CPU 8191, which this process may not use
        forward null: null: --fast
            unexpected argument '--fast'
        forward null: null: --duration soon
            --duration cannot be 'soon': write a number and a unit: 10s, 500ms, 50us, 2m, 1h
        forward null: null: --duration 0
            more than 0
        forward null: null: --count 0
            --count cannot be '0': write a number of packets, at least 1
        forward null: null: --count many
            --count cannot be 'many': write a number of packets, at least 1
        forward null: null: --stats-interval 1ms
            at least 50ms
        demo --seconds 0
            from 0.05 to 60
        demo --seed x
            --seed cannot be 'x': write a number from 0 to
    ";
    let lines = cases.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<_> = lines.collect();
    let (pairs, rest) = lines.as_chunks();
    assert!(rest.is_empty(), "{rest:?}");
    let pairs = pairs
        .iter()
        .map(|[args, expected]| (args.split(' ').collect(), *expected));
    let long: [(Vec<_>, _); 2] = [
        (late, "port 27: unknown key 'seqs' of a sim: port"),
        (
            too_many,
            "1025 ports are too many: a bridge has 1024 at most",
        ),
    ];
    for (args, expected) in pairs.chain(long) {
        let ran = packtrain(&args);
        assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
        assert_eq!(ran.out, "", "{args:?}");
        let line = ran.error_line();
        let all = ran.err.replace('\n', "$");
        assert!(all.contains(expected), "{args:?}: {line}");
    }
}

#[test]
fn a_bad_port_is_one_line_with_its_exit_code() {
    let scratch = Scratch::new("ports");
    let text = scratch.file("text.pcap");
    std::fs::write(&text, "this is not a capture").expect("a file");
    let (text, gone) = (
        format!("pcap:{text}"),
        format!("pcap:{}", scratch.file("gone")),
    );
    let cases: &[(&str, i32, &str)] = &[
        ("eth0", 2, "KIND:NAME"),
        ("tapp:a", 2, "did you mean 'tap'?"),
        ("tpa:a", 2, "did you mean 'tap'?"),
        (
            "null:source,count=-1",
            2,
            "count= cannot be '-1'; it takes 1..",
        ),
        ("xdp:", 2, "needs an interface name, as in xdp:eth0"),
        (
            "xdp:eth0,mode=fast",
            2,
            "it takes auto|zerocopy|copy|generic",
        ),
        ("xdp:eth0,rings=1000", 2, "rings=1000 is no power of two"),
        ("tap:", 2, "needs an interface name"),
        ("packet:", 2, "needs an interface name, as in packet:eth0"),
        ("packet:eth0,fanout=lb", 2, "it takes hash|defrag"),
        ("packet:eth0,fd=5,queues=2", 2, "queues= and fd= differ"),
        ("tap:a-name-that-is-too-long", 2, "at most 15"),
        ("null:colour=red", 2, "unknown key 'colour'"),
        ("null:queues=0", 2, "it takes 1..256"),
        ("null:queues=1,queues=1", 2, "given twice"),
        ("null:segs=many", 2, "it takes 1..288"),
        ("tap:a,segs=0", 2, "port A: segs= cannot be '0'"),
        ("null:offload=fast", 2, "offload"),
        ("null:dispatch=threshold(0)", 2, "has '0' for n"),
        ("sim:moderation=fixed(1,2", 2, "parentheses do not pair up"),
        ("pcap:", 2, "pcap"),
        ("pcap:x,source", 2, "not for pcap"),
        (
            &gone,
            4,
            "No such file or directory (os error 2); check the path",
        ),
        (&text, 4, "neither a pcap nor a pcapng"),
        ("pcap:/tmp", 4, "directory"),
        (
            "tap:x,fd=999",
            4,
            "descriptor 999 is not open: the program that",
        ),
    ];
    for (spec, code, expected) in cases {
        for subcommand in ["forward", "plan"] {
            for json in [&[][..], &["--json"]] {
                let args = [&[subcommand, spec, "null:"], json].concat();
                let ran = packtrain(&args);
                assert_eq!(ran.code, Some(*code), "{args:?}: {ran:?}");
                assert_eq!(ran.out, "", "{args:?}");
                let line = ran.error_line();
                assert!(line.contains(expected), "{args:?}: {line}");
                let file = spec
                    .strip_prefix("pcap:")
                    .filter(|name| *code == 4 && !name.is_empty());
                let named = file.map_or(1, |file| line.matches(file).count());
                assert_eq!(named, 1, "{line}");
            }
        }
    }
}

#[test]
fn a_key_of_a_port_beats_the_option_and_the_plan_has_the_source_of_each() {
    let plan = |more: &[&str]| {
        let a = "sim:moderation=fixed(50,32),dispatch=threshold(8),queues=2,shuffled,seed=7";
        ends(
            0,
            &[&["plan", a, "null:", "--moderation", "off"], more].concat(),
        )
    };
    let json = plan(&["--json"]).json();
    let settings = &json["settings"];
    let of = |port: &str, what: &str| {
        let value = &settings["ports"][port][what];
        let word = |key: &str| value[key].as_str().expect("a word").to_owned();
        [word("setting"), word("from")]
    };
    assert_eq!(of("sim0", "moderation"), ["fixed(50,32)", "port"]);
    assert_eq!(of("sim0", "dispatch"), ["threshold(8)", "port"]);
    assert_eq!(of("null0", "moderation"), ["off", "option"]);
    assert_eq!(of("null0", "dispatch"), ["adaptive", "default"]);
    assert_eq!(settings["moderation"], "off");
    let keys = serde_json::json!({
        "moderation": "fixed(50,32)", "dispatch": "threshold(8)", "queues": "2",
        "shuffled": true, "seed": "7",
    });
    assert_eq!(settings["ports"]["sim0"]["keys"], keys);
    assert_eq!(settings["ports"]["null0"]["keys"], serde_json::json!({}));
    assert_eq!(json["plan"]["ports"]["sim0"]["queues"], 2);
    let text = plan(&[]).out;
    for words in [
        "fixed(50,32), by moderation=",
        "threshold(8), by dispatch=",
        "off, by --moderation",
        "adaptive, by default",
    ] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn a_file_that_cannot_be_made_is_4() {
    let scratch = Scratch::new("nowhere");
    let nowhere = scratch.file("no/such/directory.pcap");
    for port in [
        format!("pcap:{nowhere},write"),
        format!("null:capture={nowhere}"),
    ] {
        let ran = packtrain(&["forward", "null:", &port, "-q"]);
        assert_eq!((ran.code, ran.out.as_str()), (Some(4), ""), "{ran:?}");
        assert!(ran.error_line().contains("make its directory"), "{ran:?}");
    }
}

#[test]
fn a_capture_is_its_owners_and_follows_no_link() {
    let scratch = Scratch::new("owner");
    let file = |name: &str| scratch.file(name);
    let mode = |name: &str| {
        let metadata = std::fs::metadata(file(name)).expect("it was made");
        metadata.permissions().mode() & 0o777
    };
    let source = |capture: &str| format!("null:source,count=3,capture={}", file(capture));
    let write = |name: &str| format!("pcap:{},write", file(name));
    ends(0, &["forward", &source("a"), &write("b.pcap"), "-q"]);
    ends(0, &["replay", &file("a"), "-o", &file("c")]);
    for name in ["a", "b.pcap", "c"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }

    // A file that exists is emptied, and keeps its mode.
    std::fs::write(file("kept"), [0; 10_000]).expect("a file");
    let others = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(file("kept"), others).expect("our own");
    ends(0, &["forward", &source("a"), &write("kept"), "-q"]);
    let bytes = std::fs::metadata(file("kept")).expect("it is there").len();
    assert!(bytes < 10_000, "{bytes}");
    assert_eq!(mode("kept"), 0o640);

    // Of a link, neither the target is emptied nor, where there is none, one is made.
    std::os::unix::fs::symlink(file("kept"), file("link")).expect("a link");
    std::os::unix::fs::symlink(file("none"), file("to-none")).expect("a link");
    for link in ["link", "to-none"] {
        for args in [
            ["forward", &source(link), "null:", "-q"],
            ["forward", "null:", &write(link), "-q"],
            ["replay", &file("a"), "-o", &file(link)],
            ["experiment", "lro-sort", "--save", &file(link)],
            ["experiment", "lro-sort", "--html", &file(link)],
        ] {
            let ran = ends(4, &args);
            let line = ran.error_line();
            let why = "it is a symbolic link, which is not followed; name the file behind it";
            assert!(line.contains(&file(link)) && line.ends_with(why), "{ran:?}");
        }
    }
    let now = std::fs::metadata(file("kept")).expect("it is there").len();
    assert_eq!(now, bytes);
    assert!(!std::fs::exists(file("none")).expect("the directory can be read"));

    // The process's own descriptors are links as well.
    let script = format!(
        "exec \"$0\" forward null:source,count=3 null:capture=/dev/fd/3 -q 3>'{}'",
        file("opened")
    );
    let ran = finish(start(&mut command("sh", &["-c", &script, PACKTRAIN])));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        std::fs::metadata(file("opened"))
            .expect("it is there")
            .len()
            > 0
    );
}

#[test]
fn what_a_terminal_echoes_of_a_signal_does_not_shift_the_totals() {
    // script(1) makes a terminal; the shell says which process the program will be.
    let words = format!("echo pid $$; exec '{PACKTRAIN}' forward null:source null:");
    let mut child = start(&mut command("script", &["-qec", &words, "/dev/null"]));
    let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
    let (mut text, mut pid) = (String::new(), None);
    while !text.ends_with("Ctrl-C ends it\r\n") {
        let from = text.len();
        let count = out.read_line(&mut text).expect("lines");
        assert!(count > 0, "it ended early: {text}");
        pid = pid.or_else(|| text[from..].trim().strip_prefix("pid ")?.parse().ok());
    }
    let pid = Pid::from_raw(pid.expect("the shell's line")).expect("a process");
    kill_process(pid, Signal::INT).expect("it runs");
    out.read_to_string(&mut text).expect("text");
    assert_eq!(finish(child).code, Some(0), "{text}");
    let (before, _) = text.split_once("direction").expect("totals");
    let line = before.rsplit('\n').next();
    assert!(
        line.is_some_and(|line| line.starts_with("\r\x1b[K")),
        "{text:?}"
    );
}

#[test]
fn looking_at_a_plan_writes_no_file() {
    let scratch = Scratch::new("look");
    let (kept, made) = (scratch.file("kept.pcap"), scratch.file("made.pcap"));
    std::fs::write(&kept, "precious").expect("a file");
    let a = format!("null:capture={made}");
    let ran = ends(0, &["plan", &a, &format!("pcap:{kept},write"), "--json"]);
    assert!(
        ran.json()["plan"]["ports"]["kept.pcap"].is_object(),
        "{ran:?}"
    );
    assert_eq!(
        std::fs::read_to_string(&kept).ok().as_deref(),
        Some("precious")
    );
    assert!(!std::fs::exists(&made).expect("the directory can be read"));
}

#[test]
fn a_file_is_not_written_over_itself() {
    let scratch = Scratch::new("itself");
    let file = scratch.file("a.pcap");
    let write = format!("pcap:{file},write");
    ends(0, &["forward", "null:source,count=3", &write, "-q"]);
    let before = std::fs::read(&file).expect("the file was written");
    let ran = ends(2, &["forward", &format!("pcap:{file}"), &write, "-q"]);
    assert!(ran.error_line().contains("named twice"), "{ran:?}");
    let capture = format!("pcap:{file},capture={file}");
    ends(2, &["forward", &capture, "null:", "-q"]);
    assert_eq!(std::fs::read(&file).expect("it is still there"), before);
    // Two new files of one name are refused, too.
    let new = scratch.file("new.pcap");
    let same = format!("null:source,count=1,capture={new}");
    ends(2, &["forward", &same, &format!("pcap:{new},write"), "-q"]);
    assert!(!std::fs::exists(&new).expect("the directory can be read"));
}

#[test]
fn an_interface_is_not_joined_to_itself() {
    let ran = ends(2, &["forward", "tap:same0", "tap:same0,queues=2", "-q"]);
    assert!(ran.error_line().contains("both ports"), "{ran:?}");
}

#[test]
fn packets_for_a_file_that_is_read_are_a_counted_loss() {
    let scratch = Scratch::new("read-only");
    let file = scratch.file("a.pcap");
    ends(
        0,
        &[
            "forward",
            "null:source,count=3",
            &format!("pcap:{file},write"),
            "-q",
        ],
    );
    let read = format!("pcap:{file}");
    let json = ends(
        0,
        &["forward", "null:source,count=7", &read, "-q", "--json"],
    )
    .json();
    assert_eq!(json["drops"]["read_only"], 7, "{json}");
    assert_eq!(json["conservation"]["transmitted"], 3, "{json}");
}

#[test]
fn a_line_stays_one_line_whatever_a_name_contains() {
    let ran = packtrain(&["plan", "pcap:/no/such\nfile\x1b[31m", "null:"]);
    assert_eq!(ran.code, Some(4));
    assert!(!ran.error_line().contains('\x1b'), "{ran:?}");
    // Tables, notes, statistics and the plan show a name; a document has it as it is.
    let scratch = Scratch::new("names");
    let name = "a\nledger: forged\x1b[31m\u{202e}ü.pcap";
    let port = format!("pcap:{},write,segs=1", scratch.file(name));
    let source = "null:source,count=3,trace";
    for args in [
        vec!["plan", source, &port],
        vec!["forward", source, &port, "--verbose"],
        vec!["forward", source, &port, "null:"],
    ] {
        let ran = ends(0, &args);
        let said = ran.out + &ran.err;
        assert!(!said.contains(['\x1b', '\u{202e}']), "{said}");
        assert!(!said.contains("\nledger: forged"), "{said}");
        assert!(
            said.contains(r"a\nledger: forged\u{1b}[31m\u{202e}ü.pcap"),
            "{said}"
        );
    }
    let ran = ends(0, &["forward", source, &port, "--json", "-q"]);
    assert!(!ran.out.contains('\u{202e}'), "{ran:?}");
    assert_eq!(ran.json()["ports"][name]["txq00"]["packets"], 3, "{ran:?}");
}

#[test]
fn ports_of_unlike_links_are_not_joined() {
    let scratch = Scratch::new("links");
    let ip = format!("pcap:{},write,link=ip", scratch.file("ip.pcap"));
    let ran = ends(2, &["plan", &ip, "null:link=ethernet"]);
    assert!(ran.error_line().contains("cannot join"), "{ran:?}");
}

/// Runs packtrain as an unprivileged user; as root, the child changes its user first.
fn unprivileged(args: &[&str]) -> Ran {
    let script = "exec prlimit --nice=0:0 \
                  setpriv --reuid=65534 --regid=65534 --clear-groups \"$0\" \"$@\"";
    let words = [&["-c", script, PACKTRAIN], args].concat();
    finish(start(&mut command("sh", &words)))
}

#[test]
fn a_missing_privilege_is_3_and_says_how_to_get_it() {
    let args = ["plan", "tap:ptdenied", "null:"];
    let mut ran = packtrain(&args);
    if ran.code == Some(0) {
        ran = unprivileged(&args);
    }
    if ran.code != Some(3) && !ran.err.starts_with("packtrain:") {
        println!(
            "SKIP: packtrain cannot be run without privilege here: {}",
            ran.err
        );
        return;
    }
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert_eq!(ran.out, "");
    // Without the device it is the device that is to be provided.
    let lacks = ["CAP_NET_ADMIN", "/dev/net/tun: "];
    let names = |what: &&str| ran.error_line().contains(what);
    assert!(lacks.iter().any(names), "{ran:?}");
}

#[test]
fn a_priority_that_the_system_refuses_is_3() {
    let ran = ends(2, &["forward", "null:", "null:", "--priority", "high"]);
    assert!(ran.error_line().contains("none, nice(n)"), "{ran:?}");
    let scratch = Scratch::new("priority");
    let file = scratch.file("never.pcap");
    let write = format!("pcap:{file},write");
    let args = [
        "forward",
        "null:",
        &write,
        "--quiet",
        "--duration",
        "1ms",
        "--priority",
        "nice(-20)",
    ];
    let mut ran = packtrain(&args);
    if ran.code == Some(0) {
        std::fs::remove_file(&file).expect("it was made");
        ran = unprivileged(&args);
    }
    if !ran.err.starts_with("packtrain:") {
        println!(
            "SKIP: packtrain cannot be run without privilege here: {}",
            ran.err
        );
        return;
    }
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.error_line().contains("CAP_SYS_NICE"), "{ran:?}");
    // It was refused before a port was opened.
    assert!(!std::fs::exists(&file).expect("the directory can be read"));
}

#[test]
fn a_user_that_a_run_cannot_become_is_refused_before_a_port_is_opened() {
    let scratch = Scratch::new("user");
    let file = scratch.file("never.pcap");
    let write = format!("pcap:{file},write");
    let args = |user| ["forward", "null:", &write, "--quiet", "--user", user];
    let ran = ends(2, &args("no-such-user"));
    let line = ran.error_line();
    assert!(
        line.starts_with("--user no-such-user: no such user;"),
        "{ran:?}"
    );
    let mut ran = unprivileged(&args("root"));
    if !ran.err.starts_with("packtrain:") {
        // Without root, the test is run by an unprivileged user already.
        ran = packtrain(&args("root"));
    }
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let line = ran.error_line();
    assert!(
        line.starts_with("--user root: the system refuses"),
        "{ran:?}"
    );
    assert!(line.contains("; run as root (CAP_SETUID and"), "{ran:?}");
    assert!(!std::fs::exists(&file).expect("the directory can be read"));
}

#[test]
fn help_and_version() {
    let version = packtrain(&["--version"]);
    assert_eq!(version.code, Some(0));
    let number = concat!("packtrain ", env!("CARGO_PKG_VERSION"));
    let commit = Command::new("git")
        .args(["rev-parse", "--short=8", "HEAD"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    match commit {
        Ok(commit) if commit.status.success() => {
            let commit = String::from_utf8_lossy(&commit.stdout);
            assert_eq!(version.out, format!("{number} ({})\n", commit.trim()));
        }
        // Another user's checkout, or none.
        _ => assert!(version.out.starts_with(number), "{version:?}"),
    }
    let help = packtrain(&["--help"]);
    assert_eq!(help.code, Some(0));
    for text in [
        "forward",
        "plan",
        "demo",
        "replay",
        "doctor",
        "Examples:",
        "Exit codes:",
        "NO_COLOR",
    ] {
        assert!(help.out.contains(text), "{text} in {}", help.out);
    }
    let forward = packtrain(&["forward", "--help"]);
    for text in [
        "queues=1..256",
        "offload=",
        "segs=",
        "coalesce=auto|off|on|hash|sorted|stream|stream-hash|stream-sorted",
        "--duration",
        "Examples:",
    ] {
        assert!(forward.out.contains(text), "{text} in {}", forward.out);
    }
    let bare = packtrain(&[]);
    assert_eq!(bare.code, Some(2));
    assert!(bare.err.contains("Usage: packtrain"), "{bare:?}");
}

#[test]
fn a_closed_standard_output_is_no_failure() {
    let runs: &[&[&str]] = &[
        &["--help"],
        &["forward", "--help"],
        &["plan", "null:", "null:"],
        &["plan", "null:", "null:", "--json"],
        &["forward", "null:source,count=10", "null:", "-q"],
        &["forward", "null:source,count=10", "null:", "--json"],
    ];
    for args in runs {
        let mut child = start(&mut command(PACKTRAIN, args));
        drop(child.stdout.take());
        let ran = finish(child);
        assert_eq!(ran.code, Some(0), "{args:?}: {ran:?}");
        assert!(!ran.err.contains("panic"), "{args:?}: {ran:?}");
    }
}

#[test]
fn a_closed_standard_error_is_no_failure() {
    let args = ["forward", "null:source,count=10", "null:"];
    let mut child = start(&mut command(PACKTRAIN, &args));
    drop(child.stderr.take());
    let ran = finish(child);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.out
            .contains("ledger (wire packets): 10 received = 10 transmitted: closed")
    );
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let Ok(full) = File::options().write(true).open("/dev/full") else {
        println!("SKIP: no /dev/full here");
        return;
    };
    let commands: [&[&str]; 4] = [
        &["plan", "null:", "null:"],
        &["--help"],
        &["forward", "--help"],
        &["--version"],
    ];
    for args in commands {
        let mut ran = command(PACKTRAIN, args);
        let ran = finish(start(ran.stdout(full.try_clone().expect("a copy"))));
        assert_eq!(ran.code, Some(4), "{ran:?}");
        assert!(
            ran.error_line().contains("cannot write to standard output"),
            "{ran:?}"
        );
    }
}

#[test]
fn colour_is_for_terminals_unless_no_color_is_set() {
    let args = ["forward", "null:source,count=1", "null:"];
    let ran = packtrain(&args);
    assert!(
        !ran.out.contains('\x1b') && !ran.err.contains('\x1b'),
        "{ran:?}"
    );
    // script(1) gives its command a terminal.
    let line = format!(
        "'{PACKTRAIN}' {}",
        args.map(|arg| format!("'{arg}'")).join(" ")
    );
    let on_terminal = |environment: &[(&str, &str)]| {
        let mut script = command("script", &["-qec", &line, "/dev/null"]);
        script.env("TERM", "xterm");
        script.envs(environment.iter().copied()).output().ok()
    };
    let Some(coloured) = on_terminal(&[]) else {
        println!("SKIP: no script(1) here to make a terminal with");
        return;
    };
    let has_colour = |output: &std::process::Output| output.stdout.contains(&0x1b);
    assert!(
        coloured.status.success() && has_colour(&coloured),
        "{coloured:?}"
    );
    for environment in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let plain = on_terminal(&[environment]).expect("it ran before");
        assert!(
            plain.status.success() && !has_colour(&plain),
            "{environment:?}: {plain:?}"
        );
    }
}
