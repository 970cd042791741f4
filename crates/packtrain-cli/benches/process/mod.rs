//! A forwarder as a child process: its start, its end, and what it prints.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, io};

/// What stops a bench.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// How long a forwarder may take to be ready.
const READY_MAX: Duration = Duration::from_secs(10);

/// A forwarder that runs. Dropped, it is killed.
#[derive(Debug)]
pub struct Process {
    /// The process.
    pub child: Child,
    /// Its standard output.
    pub output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts it in the network namespace of the calling thread.
    pub fn start(command: &mut Command) -> Result<Self, Error> {
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Printed only if something fails: link changes are expected here.
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("start {program}: {error}"))?;
        let output = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        Ok(Self { child, output })
    }

    /// Waits until packtrain has a worker: it has one only when its ports are open and attached.
    pub fn wait_for_worker(&mut self) -> Result<(), Error> {
        let start = Instant::now();
        loop {
            for task in self.tasks()? {
                // A thread may end while it is looked at. Only a worker has a number: a program may
                // be called packtrain-old.
                let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
                let number = name.trim_end().strip_prefix("packtrain-");
                if number.is_some_and(|number| number.parse::<u32>().is_ok()) {
                    return Ok(());
                }
            }
            if let Some(status) = self.child.try_wait()? {
                return Err(self.failure(&format!("packtrain ended early: {status}")));
            }
            if start.elapsed() > READY_MAX {
                return Err("packtrain has no worker yet".into());
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// An error with what an ended process had to say.
    pub fn failure(&mut self, what: &str) -> Error {
        let mut text = String::new();
        let said = self.child.stderr.take();
        match said.map(|mut said| said.read_to_string(&mut text)) {
            Some(Err(error)) => format!("{what} (and what it said: {error})").into(),
            _ => format!("{what}\n{}", text.trim_end()).into(),
        }
    }

    /// The folders of its threads in `/proc`.
    pub fn tasks(&self) -> io::Result<Vec<PathBuf>> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id()))?;
        tasks.map(|task| Ok(task?.path())).collect()
    }

    /// Ends it by SIGTERM, and reads the document that it prints then.
    pub fn end(mut self) -> Result<Value, Error> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let mut text = String::new();
        self.output.read_to_string(&mut text)?;
        let status = self.child.wait()?;
        if !status.success() {
            return Err(self.failure(&format!("the forwarder failed: {status}")));
        }
        Ok(serde_json::from_str(&text)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // After `end` there is nothing left to kill or wait for.
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let ended = self.child.kill().and_then(|()| self.child.wait());
            debug_assert!(ended.is_ok(), "{ended:?}");
        }
    }
}
