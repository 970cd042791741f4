//! Commands in a guest and their results, over a port of a virtio serial device.
//!
//! The host writes lines: `run ID LINE`, `stream ID LINE` and `signal ID NAME`. `LINE` is a line of
//! the shell in which `\` and the end of a line are written as `\\` and `\n`. The guest writes
//! `ready` once, and for each command that has ended `end ID STATUS OUT ERR`, with OUT bytes of
//! standard output and ERR bytes of standard error behind the line. The output of `stream` goes to
//! two ports of its own while the command runs. What a process in the background writes after the
//! end of its command is lost.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The guest's side: it runs under BusyBox. Port 1 is that of the lines, ports 2 and 3 are for the
/// output of one command at a time.
///
/// The second `setsid` starts a job in the background as the shell's `&` does, but without that
/// SIGINT is ignored.
pub(super) const AGENT: &str = r#"#!/bin/sh
# Runs what the host writes; see `agent.rs` of packtrain-lab.
exec 3<>/dev/vport0p1
mkfifo /run/ended
# One writer, so that results do not mix.
while read -r id status; do
    out=$(stat -c %s /run/$id.out) err=$(stat -c %s /run/$id.err)
    echo "end $id $status $out $err"
    # A process that the command has left behind may still write to them.
    head -c $out /run/$id.out
    head -c $err /run/$id.err
    rm -f /run/$id.*
done <>/run/ended >&3 &
echo ready >&3
while read -r verb id rest <&3; do
    case $verb in
        signal)
            while [ -e /run/$id.out -a ! -s /run/$id.pid ]; do sleep 0.01; done
            [ ! -e /run/$id.pid ] || kill -$rest -$(cat /run/$id.pid)
            continue ;;
        run) out=/run/$id.out err=/run/$id.err ;;
        stream) out=/dev/vport0p2 err=/dev/vport0p3 ;;
    esac
    : >/run/$id.out
    : >/run/$id.err
    setsid setsid job $id $out $err "$(printf %b "$rest")" 3>&-
done
"#;
/// Runs one line in a session of its own, so that its processes get signals together.
pub(super) const JOB: &str = r#"#!/bin/sh
# job ID OUT ERR LINE
setsid sh -c 'echo $$ >/run/$0.pid; eval "$1"' $1 "$4" </dev/null >$2 2>$3
echo $1 $? >/run/ended
"#;

/// What a command has printed, and its exit status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The exit status; 128 and the number of the signal that ended it.
    pub status: i32,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
}

impl Output {
    /// Whether the exit status is 0.
    pub fn success(&self) -> bool {
        self.status == 0
    }
}

#[derive(Debug, Default)]
struct State {
    is_ready: bool,
    is_closed: bool,
    ended: BTreeMap<u64, Output>,
}

/// The host's side.
#[derive(Debug)]
pub(super) struct Agent {
    lines: Mutex<UnixStream>,
    state: Arc<(Mutex<State>, Condvar)>,
}

/// Why no result came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// The guest has ended.
    Closed,
    /// It runs, and the time is over.
    Late,
}

impl Agent {
    pub(super) fn new(stream: UnixStream) -> std::io::Result<Self> {
        let state: Arc<(Mutex<State>, Condvar)> = Arc::default();
        let (reader, filled) = (stream.try_clone()?, Arc::clone(&state));
        thread::Builder::new()
            .name("guest-agent".to_owned())
            .spawn(move || {
                // An end of the connection is the end of the guest.
                read(BufReader::new(reader), &filled).unwrap_or(());
                lock(&filled.0).is_closed = true;
                filled.1.notify_all();
            })?;
        let lines = Mutex::new(stream);
        Ok(Self { lines, state })
    }

    pub(super) fn wait_ready(&self, time_max: Duration) -> Result<(), Lost> {
        self.wait(time_max, |state| state.is_ready.then_some(()))
    }

    /// Writes a line.
    pub(super) fn send(&self, verb: &str, id: u64, rest: &str) -> Result<(), Lost> {
        let rest = rest.replace('\\', "\\\\").replace('\n', "\\n");
        let line = format!("{verb} {id} {rest}\n");
        let sent = lock(&self.lines).write_all(line.as_bytes());
        sent.map_err(|_| Lost::Closed)
    }

    /// Waits for the end of a command.
    pub(super) fn result(&self, id: u64, time_max: Duration) -> Result<Output, Lost> {
        self.wait(time_max, |state| state.ended.remove(&id))
    }

    fn wait<T>(
        &self,
        time_max: Duration,
        mut get: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, Lost> {
        let start = Instant::now();
        let mut state = lock(&self.state.0);
        loop {
            if let Some(got) = get(&mut state) {
                return Ok(got);
            }
            if state.is_closed {
                return Err(Lost::Closed);
            }
            let left = time_max.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(Lost::Late);
            }
            let woken = self.state.1.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads what the guest writes, to its end.
fn read(mut from: impl BufRead, to: &(Mutex<State>, Condvar)) -> std::io::Result<()> {
    let mut line = String::new();
    loop {
        line.clear();
        if from.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["ready"] => lock(&to.0).is_ready = true,
            ["end", id, status, out, err] => {
                let number = |word: &str| word.parse().unwrap_or(0);
                let [id, out, err] = [id, out, err].map(number);
                let mut text = |length: u64| {
                    let mut bytes = Vec::new();
                    from.by_ref().take(length).read_to_end(&mut bytes)?;
                    Ok::<_, std::io::Error>(String::from_utf8_lossy(&bytes).into_owned())
                };
                let output = Output {
                    status: status.parse().unwrap_or(-1),
                    stdout: text(out)?,
                    stderr: text(err)?,
                };
                lock(&to.0).ended.insert(id, output);
            }
            _ => {
                let what = format!("no line of the agent: {line:?}");
                return Err(std::io::Error::other(what));
            }
        }
        to.1.notify_all();
    }
}

/// Copies what has arrived at a port of streamed output, which does not block.
pub(super) fn copy(mut from: &UnixStream, to: &mut impl Write) -> std::io::Result<()> {
    let mut bytes = [0; 4096];
    loop {
        match from.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(count) => to.write_all(&bytes[..count])?,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return to.flush(),
            Err(error) => return Err(error),
        }
    }
}
