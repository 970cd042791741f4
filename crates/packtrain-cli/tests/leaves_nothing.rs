//! However a run ends, nothing of it stays: no process, interface, mount, namespace or file.
//!
//! Network namespaces live by what refers to them: a process or thread in it, an open descriptor,
//! a mount. When neither a process of the run nor a mount is left, no namespace of it is.
//!
//! Each run is in a mount and a network namespace of its own, so that a test sees nothing of what
//! other programs make or remove on the machine meanwhile.

mod program;

use program::{AWAIT, PACKTRAIN, Ran, Scratch, command, finish, in_namespace, signal, start};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Marks the processes of one run, for the test only: children inherit it.
const MARK: &str = "PACKTRAIN_TEST_RUN";
/// Longest wait for a moment of a run, and for its end. A debug build on a busy machine is slow,
/// and so is then the kernel's work for namespaces, which no signal shortens.
const TIMEOUT: Duration = Duration::from_secs(120);
/// How often a run is repeated that was over before the moment for its signal had been seen.
const ATTEMPTS: usize = 5;

/// What a run could leave behind in its place: interfaces, mounts of namespaces, names.
type Traces = BTreeSet<String>;

/// A mount and a network namespace, with an empty /run and /dev/shm, that a process keeps.
struct Place {
    keeper: Child,
    /// Options of `nsenter`.
    options: Vec<String>,
}

impl Place {
    /// As root or in a user namespace; `None` where neither can be had. Nothing that lives in
    /// namespaces can be left there either.
    fn new() -> Option<Self> {
        const KEEP: &str = "mount -t tmpfs none /run && mount -t tmpfs none /dev/shm && echo kept \
                            && exec cat";
        let ways = [
            ("-mn", vec!["-m", "-n"]),
            ("-Urmn", vec!["-m", "-n", "-U", "--preserve-credentials"]),
        ];
        let place = ways.into_iter().find_map(|(unshare, enter)| {
            let mut keep = command("unshare", &[unshare, "sh", "-c", KEEP]);
            let mut keeper = start(keep.stdin(Stdio::piped()));
            let mut line = String::new();
            let stdout = keeper.stdout.as_mut().expect("standard output is captured");
            BufReader::new(stdout).read_line(&mut line).expect("a line");
            let mut options = vec!["-t".to_owned(), keeper.id().to_string()];
            options.extend(enter.into_iter().map(str::to_owned));
            // The keeper that failed is reaped here.
            let place = Self { keeper, options };
            (line == "kept\n").then_some(place)
        });
        if place.is_none() {
            println!("SKIP: no mount namespace can be made here: only processes and files count");
        }
        place
    }

    fn traces(&self) -> Traces {
        let keeper = format!("/proc/{}", self.keeper.id());
        let read = |path: &str| fs::read_to_string(format!("{keeper}/{path}")).expect("it lives");
        let devices = read("net/dev");
        let interfaces = devices.lines().filter_map(|line| line.split_once(':'));
        let interfaces = interfaces.map(|(name, _)| format!("interface {}", name.trim()));
        let mounts = read("mountinfo");
        let mounts = mounts.lines().filter(|line| line.contains(" nsfs "));
        let mut traces: Traces = interfaces.chain(mounts.map(str::to_owned)).collect();
        for folder in ["/run/netns", "/dev/shm"] {
            let names = names_in(format!("{keeper}/root{folder}")).into_iter();
            traces.extend(names.map(|name| format!("{folder}/{name}")));
        }
        traces
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // It ends when its input does.
        drop(self.keeper.stdin.take());
        self.keeper.wait().expect("reap the keeper");
    }
}

fn names_in(folder: impl AsRef<Path>) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Process numbers whose environment has `mark`.
fn marked(mark: &str) -> Vec<String> {
    let wanted = format!("{MARK}={mark}");
    let has_it = |process: &String| {
        let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|entry| entry == wanted.as_bytes())
    };
    let all = names_in("/proc").into_iter();
    all.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .filter(has_it)
        .collect()
}

/// One run in a folder and a place of its own, and how the place was before.
struct Run {
    mark: String,
    folder: Scratch,
    place: Option<(Place, Traces)>,
}

impl Run {
    fn new(name: &str) -> Self {
        let with_traces = |place: Place| {
            let before = place.traces();
            (place, before)
        };
        Self {
            mark: format!("{name}-{}", std::process::id()),
            folder: Scratch::new(name),
            place: Place::new().map(with_traces),
        }
    }

    /// `words` as the started process itself, in the place and the folder.
    fn command(&self, words: &[&str]) -> Command {
        let folder = self.folder.file("");
        let mut command = match &self.place {
            Some((place, _)) => {
                // Another mount namespace has another working directory.
                let go_back = ["--", "sh", "-c", "cd \"$TMPDIR\" && exec \"$@\"", "sh"];
                let options = place.options.iter().map(String::as_str);
                let options: Vec<_> = options
                    .chain(go_back)
                    .chain(words.iter().copied())
                    .collect();
                command("nsenter", &options)
            }
            None => command(words[0], &words[1..]),
        };
        command
            .env(MARK, &self.mark)
            .env("TMPDIR", &folder)
            .current_dir(&folder);
        command
    }

    /// What is in the place and was not before. A mount that was may go at any time: its file is
    /// removed by another program.
    fn left(&self) -> Traces {
        let Some((place, before)) = &self.place else {
            return Traces::new();
        };
        place.traces().difference(before).cloned().collect()
    }

    fn assert_gone(&self, context: &str) {
        // Its children are not ours to wait for, so give them a while.
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let (processes, left) = (marked(&self.mark), self.left());
            if processes.is_empty() && left.is_empty() {
                break;
            }
            if Instant::now() > deadline {
                panic!("{context}: processes {processes:?} and {left:?} are left");
            }
            sleep(Duration::from_millis(10));
        }
        let files = names_in(self.folder.file(""));
        assert!(files.is_empty(), "{context}: files {files:?} are left");
    }
}

/// A name in the machine's shared memory, removed when dropped.
struct Shared(String);

impl Shared {
    fn new(name: &str) -> Self {
        let path = format!("/dev/shm/packtrain-test-{name}-{}", std::process::id());
        fs::write(&path, "").expect("shared memory");
        Self(path)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        fs::remove_file(&self.0).expect("it is there");
    }
}

#[test]
fn what_is_left_is_found() {
    let run = Run::new("left");
    let script = "echo > file; exec sleep 60";
    let mut child = start(&mut run.command(&["sh", "-c", script]));
    let deadline = Instant::now() + TIMEOUT;
    // While it becomes `sleep` it has no environment to be found by.
    while names_in(run.folder.file("")).is_empty() || marked(&run.mark).is_empty() {
        assert!(Instant::now() < deadline, "no file, or no process made it");
        sleep(Duration::from_millis(2));
    }
    assert_eq!(marked(&run.mark), [child.id().to_string()]);
    child.kill().expect("kill the child");
    child.wait().expect("reap the child");
    assert_eq!(marked(&run.mark), [""; 0]);
    assert_eq!(
        names_in(run.folder.file(""))
            .into_iter()
            .collect::<Vec<_>>(),
        ["file"]
    );
}

#[test]
fn what_is_left_in_its_place_is_found() {
    let run = Run::new("left-in-place");
    if run.place.is_none() || command("ip", &["-V"]).output().is_err() {
        println!("SKIP: no namespaces, or no ip(8), to leave something with");
        return;
    }
    assert_eq!(run.left(), Traces::new());
    let script = "
        mkdir /run/netns && touch /run/netns/left /dev/shm/left &&
        ip link add left type bridge &&
        mount --bind /proc/self/ns/net /run/netns/left";
    let ran = finish(start(&mut run.command(&["sh", "-c", script])));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let left = run.left();
    for name in ["interface left", "/run/netns/left", "/dev/shm/left"] {
        assert!(left.contains(name), "{name} in {left:?}");
    }
    let is_mount = |line: &String| line.contains(" /run/netns/left ") && line.contains(" nsfs ");
    assert!(left.iter().any(is_mount), "{left:?}");
    assert_eq!(left.len(), 4);
}

/// Other programs of the machine may leave what they want.
#[test]
fn what_another_program_makes_meanwhile_is_not_seen() {
    let run = Run::new("meanwhile");
    let made = Shared::new("meanwhile");
    run.assert_gone("nothing ran");
    drop(made);
    run.assert_gone("nothing ran");
}

/// When a run is interrupted.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// Before anything is known of it.
    AtOnce,
    /// When it has made its first thread: namespaces are being set up.
    SetUp,
    /// When the workers of this setting run.
    Setting(usize),
}

const MOMENTS: [Moment; 5] = [
    Moment::AtOnce,
    Moment::SetUp,
    Moment::Setting(1),
    Moment::Setting(2),
    Moment::Setting(3),
];

impl Moment {
    /// Waits until the run has come to it; false when the run ended without having been seen there.
    /// A setting has `of_setting` workers.
    fn wait(self, child: &mut Child, of_setting: usize) -> bool {
        let tasks = format!("/proc/{}/task", child.id());
        let deadline = Instant::now() + TIMEOUT;
        let mut workers = BTreeSet::new();
        loop {
            let threads = names_in(&tasks);
            let is_worker = |thread: &&String| {
                let name = fs::read_to_string(format!("{tasks}/{thread}/comm"));
                name.is_ok_and(|name| name.trim() == "packtrain-0")
            };
            workers.extend(threads.iter().filter(is_worker).cloned());
            let reached = match self {
                Self::AtOnce => true,
                Self::SetUp => threads.len() > 1,
                Self::Setting(number) => workers.len() > (number - 1) * of_setting,
            };
            if reached {
                return true;
            }
            if let Some(ended) = child.try_wait().expect("wait for the child") {
                assert!(ended.success(), "{self:?}: it ended before: {ended:?}");
                return false;
            }
            assert!(Instant::now() < deadline, "{self:?} was never reached");
            sleep(Duration::from_micros(300));
        }
    }
}

/// The words that run `packtrain` with `args` in each world that can be had here.
fn worlds(args: &str) -> Vec<(&'static str, Vec<String>)> {
    let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let script = format!("exec \"$0\" {args}");
    let hidden = format!("mount -t tmpfs none /dev/net && {script}");
    let mut worlds: Vec<(_, Vec<String>)> = Vec::new();
    if in_namespace().is_some() {
        worlds.push(("namespaces", own(&["sh", "-c", &script, PACKTRAIN])));
    }
    let works = |options: &&'static str| {
        let probe = "mount -t tmpfs none /dev/net";
        let output = command("unshare", &[options, "sh", "-c", probe]).output();
        output.is_ok_and(|output| output.status.success())
    };
    match ["-m", "-Urm"].into_iter().find(works) {
        Some(options) => worlds.push((
            "memory",
            own(&["unshare", options, "sh", "-c", &hidden, PACKTRAIN]),
        )),
        None if worlds.is_empty() => {
            worlds.push(("memory", own(&["sh", "-c", &script, PACKTRAIN])));
        }
        None => println!("SKIP: no mount namespace can be made here to hide /dev/net/tun in"),
    }
    worlds
}

fn words(world: &[String]) -> Vec<&str> {
    world.iter().map(String::as_str).collect()
}

/// Interrupts demos with `name` at every moment; `ended` judges what each came to.
fn interrupt(name: &str, ended: impl Fn(Moment, &Ran, Option<i32>, &str)) {
    for (world, line) in worlds("demo --seconds 0.05") {
        // In memory each host has a session of its own, beside that of the forwarder.
        let workers = if world == "memory" { 3 } else { 1 };
        for moment in MOMENTS {
            let context = format!("{world}, SIG{name}, {moment:?}");
            let run = Run::new(&format!("demo-{name}"));
            let interrupted = (0..ATTEMPTS).find_map(|_| {
                let mut child = start(&mut run.command(&words(&line)));
                if moment.wait(&mut child, workers) {
                    signal(&child, name);
                }
                let (ran, killed) = finish_by(child);
                // A run that is stopped says so; one that went to its end was not seen in time. At
                // first the signal may be lost, where it was inherited as ignored.
                let whole = ran.code == Some(0) && !ran.out.contains("stopped early");
                (!whole || matches!(moment, Moment::AtOnce)).then_some((ran, killed))
            });
            let (ran, killed) = interrupted.unwrap_or_else(|| panic!("{context}: it went on"));
            ended(moment, &ran, killed, &context);
            run.assert_gone(&context);
        }
    }
}

/// As `finish`, with the signal that ended it.
fn finish_by(mut child: Child) -> (Ran, Option<i32>) {
    let deadline = Instant::now() + TIMEOUT;
    // What it prints fits a pipe, so it need not be read meanwhile.
    let status = loop {
        if let Some(status) = child.try_wait().expect("wait for the child") {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().expect("kill the child");
        }
        sleep(Duration::from_millis(2));
    };
    (finish(child), status.signal())
}

fn ends_in_good_order(moment: Moment, ran: &Ran, killed: Option<i32>, context: &str) {
    match moment {
        // The handler may not have been there yet.
        Moment::AtOnce if killed.is_some() => {}
        Moment::AtOnce | Moment::SetUp => assert_eq!(ran.code, Some(0), "{context}: {ran:?}"),
        Moment::Setting(number) => {
            assert_eq!(ran.code, Some(0), "{context}: {ran:?}");
            let closed = ran.out.matches(": closed").count();
            assert!(closed >= number, "{context}: {ran:?}");
            assert!(
                ran.out.contains("ledger (wire packets): "),
                "{context}: {ran:?}"
            );
            assert!(!ran.out.contains("NOT CLOSED"), "{context}: {ran:?}");
        }
    }
}

#[test]
fn a_demo_that_is_interrupted() {
    interrupt("INT", ends_in_good_order);
}

#[test]
fn a_demo_that_is_terminated() {
    interrupt("TERM", ends_in_good_order);
}

#[test]
fn a_demo_that_is_killed() {
    interrupt("KILL", |_, ran, killed, context| {
        assert_eq!(killed, Some(9), "{context}: {ran:?}");
    });
}

#[test]
fn a_demo_that_aborts() {
    // What a panic in a panic does, or a failed allocation.
    interrupt("ABRT", |_, ran, killed, context| {
        assert_eq!(killed, Some(6), "{context}: {ran:?}");
    });
}

#[test]
fn a_demo_that_runs_out_of_descriptors_anywhere() {
    let (mut failures, mut advised, mut passed) = (0, 0, 0);
    // A higher limit than two with which the demo passes has the same run.
    for limit in 3..60 {
        let limited = format!("ulimit -n {limit}; exec \"$0\" demo --seconds 0.05");
        let context = format!("{limit} descriptors");
        let run = Run::new("demo-descriptors");
        let ran = finish(start(&mut run.command(&["sh", "-c", &limited, PACKTRAIN])));
        // With very few the loader itself gives up, with 127.
        let known = [0, 3, 4, 127].map(Some).contains(&ran.code);
        assert!(known, "{context}: {ran:?}");
        for line in ran.err.lines().filter(|line| line.contains("os error 24")) {
            assert!(line.contains("`ulimit -n`"), "{context}: {line}");
            advised += 1;
        }
        run.assert_gone(&context);
        if ran.code == Some(0) {
            passed += 1;
        } else {
            (failures, passed) = (failures + 1, 0);
        }
        if passed == 2 {
            break;
        }
    }
    assert_eq!(passed, 2, "no limit was high enough");
    assert!(failures > 0 && advised > 0, "no limit was low enough");
}

#[test]
fn a_demo_that_cannot_print() {
    if !Path::new("/dev/full").exists() {
        println!("SKIP: no /dev/full here");
        return;
    }
    for (world, line) in worlds("demo --seconds 0.05 >/dev/full") {
        let run = Run::new("demo-full");
        let ran = finish(start(&mut run.command(&words(&line))));
        assert_eq!(ran.code, Some(4), "{world}: {ran:?}");
        assert!(ran.err.contains("cannot write"), "{world}: {ran:?}");
        run.assert_gone(world);
    }
}

/// Interfaces before and after a run that is ended by a signal: one that it creates, and one that
/// was there, set up and kept.
#[test]
fn a_doctor_that_has_tried_everything() {
    for (world, line) in worlds("doctor --json") {
        let run = Run::new("doctor");
        let ran = finish(start(&mut run.command(&words(&line))));
        let code = if world == "namespaces" { 0 } else { 3 };
        assert_eq!(ran.code, Some(code), "{world}: {ran:?}");
        run.assert_gone(&format!("{world}: {ran:?}"));
    }
}

#[test]
fn forwarding_that_is_ended_leaves_kept_interfaces_only() {
    let Some(way) = in_namespace() else { return };
    for (name, code) in [("INT", "0"), ("TERM", "0"), ("KILL", "137")] {
        let script = format!(
            "{AWAIT}
            ip tuntap add dev ptkeep mode tap || exit 9
            ip link set ptkeep mtu 1400 txqueuelen 77 || exit 9
            ip -o link show | tee before >&2
            \"$0\" forward tap:ptnew tap:ptkeep -q & run=$!
            await joined; kill -{name} $run; wait $run; code=$?
            ip -o link show >after
            if cmp before after >&2; then echo same $code; else cat after; fi
            rm before after"
        );
        let run = Run::new(&format!("forward-{name}"));
        let words: Vec<_> = way
            .iter()
            .copied()
            .chain(["sh", "-c", &script, PACKTRAIN])
            .collect();
        let ran = finish(start(&mut run.command(&words)));
        let last = ran.out.lines().last();
        assert_eq!(last, Some(format!("same {code}").as_str()), "{ran:?}");
        let accounts = usize::from(name != "KILL");
        assert_eq!(ran.out.matches(": closed").count(), accounts, "{ran:?}");
        run.assert_gone(name);
    }
}

/// The C forwarder, and the folder in which it is compiled, end with a run that cannot end them.
#[test]
fn a_stream_through_c_that_is_killed() {
    if in_namespace().is_none() {
        return;
    }
    let is_running = |process: &String| {
        let words = fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
        words.contains("\0c-a\0c-b\0")
    };
    for moment in ["compiled", "running"] {
        let is_reached = |run: &Run| match moment {
            "compiled" => !names_in(run.folder.file("")).is_empty(),
            _ => marked(&run.mark).iter().any(is_running),
        };
        let run = Run::new(&format!("through-c-{moment}"));
        let words = [PACKTRAIN, "stream", "--through", "c", "--duration", "5m"];
        let mut child = start(&mut run.command(&words));
        let deadline = Instant::now() + TIMEOUT;
        while !is_reached(&run) {
            if child.try_wait().expect("wait for the child").is_some() {
                let ran = finish(child);
                assert_eq!(ran.code, Some(3), "{ran:?}");
                println!("SKIP: no C compiler, or no namespace with a TAP: {ran:?}");
                return;
            }
            assert!(Instant::now() < deadline, "{moment} was never reached");
            sleep(Duration::from_micros(300));
        }
        child.kill().expect("kill the child");
        child.wait().expect("reap the child");
        run.assert_gone(moment);
    }
}

/// Starts `forward` with these ports, and waits for its worker.
fn forward(run: &Run, ports: &[&str]) -> Child {
    let words = [&[PACKTRAIN, "forward", "-q"], ports].concat();
    let mut child = start(&mut run.command(&words));
    let runs = Moment::Setting(1).wait(&mut child, 1);
    assert!(runs, "it ended: {:?}", finish(child));
    child
}

/// The guard of `child`, when it is ready for signals.
fn guard(run: &Run, child: &Child) -> String {
    let own = child.id().to_string();
    let is_ready = |process: &String| {
        let name = fs::read_to_string(format!("/proc/{process}/comm"));
        *process != own && name.is_ok_and(|name| name.trim() == "socket-guard")
    };
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(guard) = marked(&run.mark).into_iter().find(is_ready) {
            return guard;
        }
        assert!(Instant::now() < deadline, "it has no guard");
        sleep(Duration::from_millis(2));
    }
}

fn signal_to(process: &str, signal: Signal) {
    let number = process.parse().ok().and_then(Pid::from_raw);
    kill_process(number.expect("a number"), signal).expect("it lives");
}

/// The sockets of two ports, one of them wrapped. Signals that are for a whole service do not end
/// the guard before the program.
#[test]
fn sockets_of_a_run_that_is_ended() {
    for (name, by) in [("INT", None), ("TERM", None), ("KILL", Some(9))] {
        let run = Run::new(&format!("sockets-{name}"));
        let absolute = format!("vhost-user:{},server,drop=0.5", run.folder.file("b.sock"));
        let child = forward(&run, &["vhost-user:a.sock,server", &absolute]);
        let files: Vec<_> = names_in(run.folder.file("")).into_iter().collect();
        assert_eq!(files, ["a.sock", "b.sock"]);
        let guard = guard(&run, &child);
        assert_eq!(marked(&run.mark).len(), 2, "the run and one guard");
        for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
            signal_to(&guard, signal);
        }
        signal(&child, name);
        let (ran, killed) = finish_by(child);
        assert_eq!(killed, by, "{name}: {ran:?}");
        if by.is_none() {
            assert_eq!(ran.code, Some(0), "{name}: {ran:?}");
            let is_left = Path::new("/proc").join(guard).exists();
            assert!(!is_left, "{name}: the run did not wait for its guard");
            assert!(names_in(run.folder.file("")).is_empty(), "{name}");
        }
        run.assert_gone(name);
    }
}

/// The guard holds the file that it may remove, so that its number is given to no other one while
/// the guard lives, and no output that a reader waits for the end of.
#[test]
fn a_socket_of_another_process_stays() {
    let run = Run::new("other-socket");
    let ports = ["vhost-user:a.sock,server", "vhost-user:b.sock,server"];
    let child = forward(&run, &ports);
    let guard = guard(&run, &child);
    let path = run.folder.file("a.sock");
    let identity = |path: &Path| {
        let file = fs::metadata(path).expect("a file");
        (file.dev(), file.ino())
    };
    let descriptors = Path::new("/proc").join(&guard).join("fd");
    let held = names_in(&descriptors).into_iter();
    let held: Vec<_> = held
        .map(|number| identity(&descriptors.join(number)))
        .collect();
    assert!(held.contains(&identity(Path::new(&path))), "{held:?}");
    for number in [1, 2] {
        let null = identity(Path::new("/dev/null"));
        assert_eq!(identity(&descriptors.join(number.to_string())), null);
    }
    fs::remove_file(&path).expect("it is there");
    let other = UnixListener::bind(&path).expect("a socket");
    signal(&child, "KILL");
    let (ran, killed) = finish_by(child);
    assert_eq!(killed, Some(9), "{ran:?}");
    let deadline = Instant::now() + TIMEOUT;
    while !marked(&run.mark).is_empty() {
        assert!(Instant::now() < deadline, "the guard did not end");
        sleep(Duration::from_millis(2));
    }
    let files: Vec<_> = names_in(run.folder.file("")).into_iter().collect();
    assert_eq!(files, ["a.sock"]);
    drop(other);
    fs::remove_file(&path).expect("it is there");
    run.assert_gone("another process");
}

#[test]
fn a_run_without_a_socket_of_its_own_has_no_guard() {
    let run = Run::new("no-guard");
    let child = forward(&run, &["null:", "vhost-user:of-another.sock"]);
    assert_eq!(marked(&run.mark), [child.id().to_string()]);
    signal(&child, "KILL");
    let (ran, killed) = finish_by(child);
    assert_eq!(killed, Some(9), "{ran:?}");
    run.assert_gone("no guard");
}

#[test]
fn a_guard_that_cannot_be_started_is_a_note() {
    let hidden = "mount -t tmpfs none /proc || exit 9; exec \"$0\" forward -q --duration 50ms \
                  null: vhost-user:a.sock,server";
    let run = Run::new("hidden");
    let attempt = |options| {
        let words = ["unshare", options, "sh", "-c", hidden, PACKTRAIN];
        finish(start(&mut run.command(&words)))
    };
    let ran = ["-m", "-Urm"].into_iter().map(attempt);
    let Some(ran) = ran
        .into_iter()
        .find(|ran| ![Some(1), Some(9)].contains(&ran.code))
    else {
        println!("SKIP: no mount namespace can be made here to hide /proc in");
        return;
    };
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let note = "note: if packtrain is killed, the next start removes its sockets: no guard process";
    assert_eq!(ran.err.matches(note).count(), 1, "{ran:?}");
    run.assert_gone("hidden");
}
