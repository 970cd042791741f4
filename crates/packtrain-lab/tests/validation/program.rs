//! Other programs, started in a host.

use packtrain_lab::harness::skip;
use packtrain_lab::topology::Host;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What ends a program that does not end by itself, also if this process is gone: coreutils.
const LIMIT: [&str; 3] = ["timeout", "--kill-after=1", "60"];

/// Skips a test if one of these programs, each with its package, is not found.
pub fn need(programs: &[(&str, &str)]) {
    let is_found = |name: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "command -v \"$0\"", name]);
        let status = shell.stdout(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    if let Some((name, package)) = programs.iter().find(|(name, _)| !is_found(name)) {
        skip(format!(
            "{name} is not found: install the package {package}"
        ));
    }
}

/// A program that runs, and ends with this value.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Option<Child>,
}

impl Program {
    /// Starts it in the host's namespace.
    pub fn start(host: &Host, words: &[&str]) -> Self {
        let spawn = || {
            let all: Vec<_> = LIMIT.iter().chain(words).collect();
            let mut command = Command::new(all[0]);
            command.args(&all[1..]).env("LC_ALL", "C");
            command.stdin(Stdio::null());
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn()
        };
        let child: io::Result<Child> = host.netns.run(spawn).expect("the namespace");
        let child = child.unwrap_or_else(|error| panic!("{words:?}: {error}"));
        Self {
            name: words.join(" "),
            child: Some(child),
        }
    }

    /// Waits for its end, which has to be a success. What it printed.
    pub fn output(mut self) -> String {
        let child = self.child.take().expect("it was started");
        let output = child.wait_with_output().expect("its end");
        let [text, errors] = [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let (name, status) = (&self.name, output.status);
        assert!(status.success(), "{name}: {status}\n{text}{errors}");
        text
    }

    /// Waits until it listens on a TCP port of the host.
    pub fn listens(&mut self, host: &Host, port: u16) {
        let end = Instant::now() + Duration::from_secs(60);
        while !is_listening(host, port) {
            let child = self.child.as_mut().expect("it was started");
            let ended = child.try_wait().expect("its state");
            let (name, late) = (&self.name, Instant::now() >= end);
            assert!(ended.is_none() && !late, "{name}: no server: {ended:?}");
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else {
            return;
        };
        // `timeout` passes it on.
        if let Err(error) = kill_process(Pid::from_child(child), Signal::TERM) {
            println!("{}: {error}", self.name);
        }
        if let Err(error) = child.wait() {
            println!("{}: {error}", self.name);
        }
    }
}

fn is_listening(host: &Host, port: u16) -> bool {
    // `0100007F:1451 00000000:0000 0A`, the state of a listening socket: proc(5).
    let wanted = format!(":{port:04X}");
    let read = || {
        ["tcp", "tcp6"].iter().any(|file| {
            // Without IPv6 there is no tcp6.
            let text = fs::read_to_string(format!("/proc/thread-self/net/{file}"));
            text.unwrap_or_default().lines().any(|line| {
                let words: Vec<_> = line.split_whitespace().collect();
                words.len() > 3 && words[1].ends_with(&wanted) && words[3] == "0A"
            })
        })
    };
    host.netns.run(read).expect("the namespace")
}
