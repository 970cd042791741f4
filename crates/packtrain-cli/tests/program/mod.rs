//! Runs the program as a user would.

#![allow(dead_code, reason = "each test file uses some of it")]

use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The program.
pub const PACKTRAIN: &str = env!("CARGO_BIN_EXE_packtrain");
/// Longest time any run may take; a debug build on a busy machine is slow.
pub const TIMEOUT: Duration = Duration::from_secs(300);

/// The result of a run.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// The one JSON document on standard output; panics if it is not exactly that.
    pub fn json(&self) -> Value {
        assert_eq!(self.out.matches('\n').count(), 1, "one line: {self:?}");
        assert!(self.out.ends_with('\n'), "{self:?}");
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The one line on standard error; panics if it is not exactly that.
    pub fn error_line(&self) -> &str {
        assert_eq!(self.err.matches('\n').count(), 1, "one line: {self:?}");
        let line = self.err.trim_end();
        line.strip_prefix("packtrain: ")
            .unwrap_or_else(|| panic!("{self:?}"))
    }
}

/// `program` with its streams captured.
pub fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env_remove("NO_COLOR")
        // With it `sim fuzz` has more to reach.
        .env_remove("PACKTRAIN_FULL");
    command
}

/// Runs packtrain to its end.
pub fn packtrain(args: &[&str]) -> Ran {
    finish(start(&mut command(PACKTRAIN, args)))
}

/// Runs packtrain to its end, with this exit code.
pub fn ends(code: i32, args: &[&str]) -> Ran {
    let ran = packtrain(args);
    assert_eq!(ran.code, Some(code), "{args:?}: {ran:?}");
    ran
}

/// Runs a command as an unprivileged user. Root lets that user open `/dev/net/tun`, in a mount
/// namespace of its own; any other user has what the host has.
///
/// # Errors
///
/// If it cannot be started.
pub fn as_nobody(args: &[&str]) -> std::io::Result<Ran> {
    const NODE: &str = "mount -t tmpfs -o dev none /dev/net && \
                        mknod -m 666 /dev/net/tun c 10 200 && exec \"$@\"";
    let with_node = ["unshare", "-m", "sh", "-c", NODE, "sh"];
    let is_root = rustix::process::geteuid().is_root();
    let before: &[&str] = if is_root { &with_node } else { &[] };
    let nobody = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    let words = [before, &nobody, args].concat();
    command(words[0], &words[1..]).spawn().map(finish)
}

/// Starts a command.
pub fn start(command: &mut Command) -> Child {
    command
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Waits for the end; kills the process after [`TIMEOUT`].
pub fn finish(mut child: Child) -> Ran {
    fn reader(stream: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
        thread::spawn(move || {
            let mut text = String::new();
            if let Some(mut stream) = stream {
                stream.read_to_string(&mut text).expect("output is UTF-8");
            }
            text
        })
    }
    let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let deadline = Instant::now() + TIMEOUT;
    let status = loop {
        if let Some(status) = child.try_wait().expect("wait for the child") {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().expect("kill the child");
            child.wait().expect("reap the child");
            panic!("the program did not end; {:?}", err.join());
        }
        thread::sleep(Duration::from_millis(5));
    };
    Ran {
        code: status.code(),
        out: out.join().expect("standard output is read"),
        err: err.join().expect("standard error is read"),
    }
}

/// Reads the child's standard error up to the first line that contains `text`. A thread reads and
/// drops the rest, so that the child never blocks on a full pipe.
pub fn wait_for_line(child: &mut Child, text: &str) -> String {
    let stderr = child.stderr.take().expect("standard error is captured");
    let mut lines = BufReader::new(stderr);
    let mut seen = String::new();
    loop {
        let start = seen.len();
        let read = lines.read_line(&mut seen).expect("read standard error");
        assert!(read > 0, "no line with {text:?} in {seen:?}");
        if seen[start..].contains(text) {
            discard(lines);
            return seen;
        }
    }
}

/// The child's standard error, read all the time, so that it never blocks on a full pipe. It is for
/// the text of a failure; lines that contain `noise` are left out.
pub fn said(child: &mut Child, noise: &'static str) -> Arc<Mutex<String>> {
    let stderr = child.stderr.take().expect("standard error is captured");
    let said = Arc::new(Mutex::new(String::new()));
    let to = Arc::clone(&said);
    thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            if !line.contains(noise) {
                *to.lock().expect("no thread panics with it") += &(line + "\n");
            }
        }
    });
    said
}

fn discard(mut lines: BufReader<ChildStderr>) {
    thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
}

/// Sends a signal with the shell's own `kill`.
pub fn signal(child: &Child, name: &str) {
    let sent = Command::new("sh")
        .args(["-c", &format!("kill -{name} {}", child.id())])
        .status()
        .expect("a shell");
    assert!(sent.success(), "kill -{name}");
}

/// The end of a run after a signal, which is a success.
pub fn interrupted(child: Child, name: &str) -> Ran {
    signal(&child, name);
    let ran = finish(child);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran
}

/// Waits until the child handles SIGINT, so that it can be interrupted.
pub fn wait_for_handlers(child: &Child) {
    let deadline = Instant::now() + TIMEOUT;
    let caught = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
        let status = status.expect("the child runs");
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let mask = u64::from_str_radix(mask.expect("a mask").trim(), 16);
        // Bit 0 is signal 1; SIGINT is 2.
        mask.expect("hexadecimal") & 2 != 0
    };
    while !caught() {
        assert!(Instant::now() < deadline, "it never handled SIGINT");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A directory of one test, removed when dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A folder that no other test has, not of the same name either.
    pub fn new(name: &str) -> Self {
        static FOLDERS: AtomicUsize = AtomicUsize::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("packtrain-cli-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a scratch directory");
        Self(path)
    }

    pub fn file(&self, name: &str) -> String {
        let path = self.0.join(name);
        path.to_str().expect("a path in UTF-8").to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// Words that run a command in a network namespace of its own, as root or in a user namespace.
/// `None`, with a line that says why, if TAP or ip(8) is not available.
pub fn in_namespace() -> Option<Vec<&'static str>> {
    if command("ip", &["-V"]).output().is_err() {
        println!("SKIP: no ip(8) here to change interfaces with");
        return None;
    }
    let ways: [&[&str]; 2] = [&["unshare", "-n"], &["unshare", "-Urn"]];
    let works = |way: &&[&str]| {
        let probe = [PACKTRAIN, "plan", "tap:ptprobe", "null:"];
        let words = [&way[1..], &probe].concat();
        let output = command(way[0], &words).output();
        output.is_ok_and(|output| output.status.success())
    };
    let found = ways.iter().find(|way| works(way));
    if found.is_none() {
        println!("SKIP: no network namespace with a TAP can be made here");
    }
    found.map(|way| way.to_vec())
}

/// The start of a shell script. `await COMMAND` repeats a command until it succeeds, for less time
/// than the test waits. `joined` succeeds if the process `$run` has a worker: its ports are then
/// open and its signal handlers installed.
pub const AWAIT: &str = "
    await() {
        n=0
        until eval \"$*\" 2>/dev/null; do
            n=$((n + 1))
            if [ $n -gt 6000 ]; then echo \"never: $*\" >&2; kill -KILL $run; exit 99; fi
            sleep 0.02
        done
    }
    joined() { cat /proc/$run/task/*/comm | grep -q '^packtrain-'; }
";

/// Runs packtrain in a network namespace of its own.
pub fn namespaced(way: &[&str], args: &[&str]) -> Child {
    let words = [&way[1..], &[PACKTRAIN], args].concat();
    start(&mut command(way[0], &words))
}

/// Runs a script, whose `$0` is packtrain, in a network namespace of its own, to its end.
pub fn scripted(way: &[&str], script: &str) -> Ran {
    let words = [&way[1..], &["sh", "-c", script, PACKTRAIN]].concat();
    finish(start(&mut command(way[0], &words)))
}

/// Compares the keys of `document` with those that docs/json.md lists under `sections`.
pub fn assert_documented(document: &Value, sections: &[&str]) {
    let (mut all, mut always) = (BTreeSet::new(), BTreeSet::new());
    for key in sections.iter().flat_map(|section| documented(section)) {
        match key.strip_suffix('?') {
            Some(key) => {
                all.insert(key.to_owned());
            }
            None => {
                all.insert(key.clone());
                always.insert(key);
            }
        }
    }
    let mut found = BTreeSet::new();
    collect(document, "", &mut found);
    let unknown: Vec<_> = found.difference(&all).collect();
    let missing: Vec<_> = always.difference(&found).collect();
    assert!(
        unknown.is_empty(),
        "keys that docs/json.md does not have: {unknown:?}"
    );
    assert!(
        missing.is_empty(),
        "keys of docs/json.md that are not in the document: {missing:?}"
    );
}

/// The keys of one section of docs/json.md, braces expanded.
fn documented(section: &str) -> Vec<String> {
    const TEXT: &str = include_str!("../../../../docs/json.md");
    let start = format!("```keys {section}\n");
    let (_, rest) = TEXT.split_once(&start).expect("the section is there");
    let (list, _) = rest.split_once("```").expect("the section ends");
    list.lines().flat_map(expand).collect()
}

fn expand(line: &str) -> Vec<String> {
    match line.split_once('{') {
        Some((prefix, names)) => names
            .trim_end_matches('}')
            .split(',')
            .map(|name| format!("{prefix}{name}"))
            .collect(),
        None => vec![line.to_owned()],
    }
}

/// The paths of all leaves, with `*` for a name and `[]` for the elements of a list.
fn collect(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    // What a tool reads back and measures, which each tool documents.
    let of_tool = ["rows[].settings", "runs[].settings", "runs[].figures"];
    match value {
        Value::Object(map) if !of_tool.contains(&path) => {
            for (key, value) in map {
                let key = generic(path, key);
                let path = if path.is_empty() {
                    key
                } else {
                    format!("{path}.{key}")
                };
                collect(value, &path, found);
            }
        }
        Value::Array(values) if values.iter().any(Value::is_object) => {
            for value in values {
                collect(value, &format!("{path}[]"), found);
            }
        }
        _ => {
            found.insert(path.to_owned());
        }
    }
}

fn generic(path: &str, key: &str) -> String {
    let varies = [
        "ports", "paths", "drops", "offloads", "nstat_a", "nstat_b", "goals", "setting", "of",
        "to", "figures", "keys",
    ];
    let last = path.rsplit('.').next().unwrap_or_default();
    if varies.contains(&last) {
        return "*".to_owned();
    }
    for queue in ["rxq", "txq"] {
        if key.starts_with(queue) {
            return format!("{queue}*");
        }
    }
    key.to_owned()
}
