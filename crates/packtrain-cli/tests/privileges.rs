//! What a run may still do when its ports are open, as the kernel says of each of its threads.

mod program;

use program::{
    AWAIT, PACKTRAIN, Scratch, TIMEOUT, command, finish, in_namespace, interrupted, namespaced,
    scripted, signal, start, wait_for_line,
};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// `CAP_NET_ADMIN`, `CAP_DAC_OVERRIDE` and `CAP_NET_RAW` of linux/capability.h.
const NET_ADMIN: u64 = 1 << 12;
const DAC_OVERRIDE: u64 = 1 << 1;
const NET_RAW: u64 = 1 << 13;
/// The line after which all threads run.
const RUNS: &str = "Ctrl-C ends it";
/// A user that each system has, and its number on most.
const USER: &str = "nobody";

/// User and capabilities of a thread: lines of its `status` (proc_pid_status(5)).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct May {
    /// Real, effective, saved and file system, each.
    uids: Vec<u32>,
    gids: Vec<u32>,
    groups: Vec<u32>,
    permitted: u64,
    effective: u64,
    inheritable: u64,
    ambient: u64,
    no_new_privileges: bool,
}

impl May {
    fn read(path: &str) -> Self {
        let status = fs::read_to_string(path).expect("/proc");
        let line = |key: &str| {
            let mut lines = status.lines();
            let line = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            line.expect("a line").trim()
        };
        let numbers = |key| {
            let words = line(key).split_whitespace();
            words.map(|word| word.parse().expect("a number")).collect()
        };
        let mask = |key| u64::from_str_radix(line(key), 16).expect("a mask");
        Self {
            uids: numbers("Uid"),
            gids: numbers("Gid"),
            groups: numbers("Groups"),
            permitted: mask("CapPrm"),
            effective: mask("CapEff"),
            inheritable: mask("CapInh"),
            ambient: mask("CapAmb"),
            no_new_privileges: line("NoNewPrivs") == "1",
        }
    }

    fn own() -> Self {
        Self::read("/proc/thread-self/status")
    }

    /// Of each thread of a process, by its name.
    fn of_threads(child: &Child) -> BTreeSet<(String, Self)> {
        let tasks = format!("/proc/{}/task", child.id());
        let tasks = fs::read_dir(tasks).expect("it runs").flatten();
        let of = |path: String| {
            let name = fs::read_to_string(format!("{path}/comm")).expect("/proc");
            (
                name.trim().to_owned(),
                Self::read(&format!("{path}/status")),
            )
        };
        tasks
            .map(|task| of(task.path().display().to_string()))
            .collect()
    }
}

/// Checks that each thread is like `expected`, but the one that handles signals, which has no
/// capability. A thread that has just been started has neither its name nor its limits yet.
fn assert_threads(child: &Child, expected: &May, context: &str) {
    let no_capability = May {
        permitted: 0,
        effective: 0,
        ..expected.clone()
    };
    let expected = |name: &str| match name {
        "signals" => &no_capability,
        _ => expected,
    };
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let threads = May::of_threads(child);
        let has = |wanted: &str| threads.iter().any(|(name, _)| name == wanted);
        let complete = ["packtrain", "packtrain-0", "signals"].into_iter().all(has);
        let others: Vec<_> = threads
            .iter()
            .filter(|(name, may)| may != expected(name))
            .collect();
        if complete && others.is_empty() {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{context}: {others:?} of {threads:?}"
        );
        sleep(Duration::from_millis(5));
    }
}

/// What is expected of a user that has all of `used`: in a user namespace the test itself has none.
fn with(user: May, used: u64) -> May {
    May {
        permitted: used,
        effective: used,
        inheritable: 0,
        ambient: 0,
        no_new_privileges: true,
        ..user
    }
}

/// The line of /etc/passwd: user and group. `None`, with a line that says so, where the test may
/// not become this user.
fn user() -> Option<(u32, u32)> {
    let own = May::own();
    if own.uids[1] != 0 || own.permitted & NET_ADMIN == 0 {
        println!("SKIP: only root can become another user");
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("users");
    let line = users.lines().find_map(|line| line.strip_prefix(USER));
    let fields: Vec<&str> = line.expect("the user").split(':').collect();
    let number = |at: usize| fields[at].parse().expect("a number");
    Some((number(2), number(3)))
}

#[test]
fn a_run_keeps_what_it_uses() {
    let scratch = Scratch::new("kept");
    let socket = format!("vhost-user:{},server", scratch.file("a.sock"));
    for priority in ["none", "auto"] {
        let args = ["forward", "null:", &socket, "--priority", priority];
        let mut child = start(&mut command(PACKTRAIN, &args));
        wait_for_line(&mut child, RUNS);
        assert_threads(&child, &with(May::own(), 0), priority);
        interrupted(child, "INT");
    }
    let Some(way) = in_namespace() else { return };
    for (port, kept) in [
        ("tap:pta", NET_ADMIN),
        ("tap:pta,gone=wait", NET_ADMIN | NET_RAW),
    ] {
        // The thread that opens an interface again keeps what the start had.
        let args = ["forward", port, "null:", "--priority", "none"];
        let mut child = namespaced(&way, &args);
        wait_for_line(&mut child, RUNS);
        assert_threads(&child, &with(May::own(), kept), port);
        interrupted(child, "INT");
    }
}

#[test]
fn a_run_becomes_the_user_that_was_asked_for() {
    let Some((uid, gid)) = user() else { return };
    let mut child = start(&mut command(
        PACKTRAIN,
        &["forward", "null:", "sim:", "--user", USER],
    ));
    wait_for_line(&mut child, RUNS);
    let become_it = May {
        uids: vec![uid; 4],
        gids: vec![gid; 4],
        groups: vec![gid],
        ..with(May::own(), 0)
    };
    assert_threads(&child, &become_it, USER);
    interrupted(child, "INT");
}

/// The user could open none of the files.
#[test]
fn files_that_were_opened_before_are_written() {
    if user().is_none() {
        return;
    }
    let scratch = Scratch::new("written");
    let [written, capture] = ["written.pcap", "capture"].map(|name| scratch.file(name));
    let source = format!("null:source,count=1000,coalesce=off,capture={capture}");
    let write = format!("pcap:{written},write");
    let args = ["forward", &source, &write, "--user", USER, "--json"];
    let ran = program::packtrain(&args);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let document = ran.json();
    assert_eq!(document["conservation"]["transmitted"], 1000);
    assert_eq!(document["run"]["error"], serde_json::Value::Null);
    for file in [&written, &capture] {
        let metadata = fs::metadata(file).expect("it was made");
        assert!(metadata.len() > 60_000, "{file}: {metadata:?}");
        assert_eq!(
            (metadata.uid(), metadata.mode() & 0o777),
            (0, 0o600),
            "{file}"
        );
    }
}

/// The user may not write to the directory. The guard of the socket keeps the rights for that, and
/// no other ones.
#[test]
fn a_socket_that_the_user_may_not_remove() {
    if user().is_none() {
        return;
    }
    for end in ["INT", "KILL"] {
        let scratch = Scratch::new("of-root");
        let socket = scratch.file("a.sock");
        let port = format!("vhost-user:{socket},server");
        let args = ["forward", "null:", &port, "--user", USER];
        let mut child = start(&mut command(PACKTRAIN, &args));
        wait_for_line(&mut child, RUNS);
        let deadline = Instant::now() + TIMEOUT;
        let expected = with(May::own(), DAC_OVERRIDE & May::own().permitted);
        while child_of(&child).is_none_or(|guard| May::read(&guard) != expected) {
            assert!(Instant::now() < deadline, "no guard {expected:?}");
            sleep(Duration::from_millis(5));
        }
        assert!(fs::exists(&socket).expect("a directory"));
        signal(&child, end);
        let ran = finish(child);
        assert_eq!(ran.code, (end == "INT").then_some(0), "{ran:?}");
        while fs::exists(&socket).expect("a directory") {
            assert!(
                end == "KILL" && Instant::now() < deadline,
                "{end}: it is left"
            );
            sleep(Duration::from_millis(5));
        }
    }
}

/// What the program was started with is not kept open by the guard: a peer waits for its end.
#[test]
fn the_guard_of_a_socket_has_no_descriptor_of_the_program() {
    let scratch = Scratch::new("guarded");
    let port = format!("vhost-user:{},server", scratch.file("a.sock"));
    let script = "exec 7</dev/null 9</dev/null; exec \"$0\" forward null: \"$1\"";
    let mut child = start(&mut command("sh", &["-c", script, PACKTRAIN, &port]));
    wait_for_line(&mut child, RUNS);
    let guard = child_of(&child).expect("a guard").replace("status", "");
    let open = |path: &str| {
        let open = fs::read_dir(path).expect("/proc").flatten();
        let names = open.map(|entry| fs::read_link(entry.path()).unwrap_or_default());
        names.filter(|name| name.as_os_str() == "/dev/null").count()
    };
    assert!(open(&format!("/proc/{}/fd", child.id())) >= 2);
    let deadline = Instant::now() + TIMEOUT;
    // Its outputs.
    while open(&format!("{guard}fd")) > 2 {
        assert!(Instant::now() < deadline, "the guard has them open");
        sleep(Duration::from_millis(5));
    }
    interrupted(child, "INT");
}

/// The status of a process that `parent` started.
fn child_of(parent: &Child) -> Option<String> {
    let line = format!("PPid:\t{}\n", parent.id());
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let mut all = processes.map(|entry| format!("{}/status", entry.path().display()));
    all.find(|status| fs::read_to_string(status).is_ok_and(|status| status.contains(&line)))
}

/// That is what `CAP_NET_ADMIN` is kept for.
#[test]
fn an_interface_that_moved_to_another_namespace_is_counted() {
    let Some(way) = in_namespace() else { return };
    let user = match user() {
        Some(_) => format!("--user {USER}"),
        None => String::new(),
    };
    let script = format!(
        "{AWAIT}
        \"$0\" forward tap:ptmoved tap:pta -q --json {user} & run=$!
        await joined
        unshare -n sh -c 'ip link set lo up; exec sleep 100' >/dev/null 2>&1 & other=$!
        await \"nsenter -t $other -n ip link show lo | grep -q LOWER_UP\"
        ip link set ptmoved netns $other
        nsenter -t $other -n ip link set ptmoved up
        nsenter -t $other -n ip addr add 198.18.0.1/24 dev ptmoved
        nsenter -t $other -n ping -c 1 -w 1 198.18.0.2 >&2
        nsenter -t $other -n ip -s link show ptmoved >&2
        kill -INT $run; wait $run; code=$?; kill $other; exit $code"
    );
    let ran = scripted(&way, &script);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let document = ran.json();
    let packets = &document["ports"]["ptmoved"]["device"]["tx_packets"];
    assert!(packets.as_u64() > Some(0), "{document}");
}
