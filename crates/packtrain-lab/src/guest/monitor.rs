//! QEMU's monitor: commands and events as JSON, a line each (QMP), and descriptors.

use std::io::{ErrorKind, IoSlice, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde_json::{Value, json};

use crate::error::ToolError;

/// How long QEMU may take for an answer. A busy machine may be slow, and only a hang is a failure.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// A connection to the monitor. Its socket is also the standard error of QEMU: lines that are no
/// JSON are messages of QEMU.
#[derive(Debug)]
pub(super) struct Monitor {
    stream: UnixStream,
    unread: Vec<u8>,
    events: Vec<Value>,
    messages: String,
}

impl Monitor {
    /// Waits for QEMU's greeting.
    pub(super) fn new(stream: UnixStream) -> Result<Self, ToolError> {
        let timeout = Some(ANSWER_MAX);
        let set = stream
            .set_read_timeout(timeout)
            .and_then(|()| stream.set_write_timeout(timeout));
        set.map_err(|error| ToolError::Failed(format!("QEMU's monitor: {error}")))?;
        let mut monitor = Self {
            stream,
            unread: Vec::new(),
            events: Vec::new(),
            messages: String::new(),
        };
        let start = Instant::now();
        while monitor.line(start)?.get("QMP").is_none() {}
        monitor.execute("qmp_capabilities", &json!({}))?;
        Ok(monitor)
    }

    /// Executes a command and returns its value.
    pub(super) fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value, ToolError> {
        self.send(command, arguments, &[])
    }

    /// Gives QEMU a descriptor, which later commands know as `name`.
    pub(super) fn give(&mut self, name: &str, descriptor: impl AsFd) -> Result<(), ToolError> {
        let descriptor = [descriptor.as_fd().as_raw_fd()];
        let arguments = json!({ "fdname": name });
        self.send(
            "getfd",
            &arguments,
            &[ControlMessage::ScmRights(&descriptor)],
        )?;
        Ok(())
    }

    fn send(
        &mut self,
        command: &str,
        arguments: &Value,
        control: &[ControlMessage<'_>],
    ) -> Result<Value, ToolError> {
        let line = format!(
            "{}\n",
            json!({ "execute": command, "arguments": arguments })
        );
        let descriptor = self.stream.as_raw_fd();
        let data = [IoSlice::new(line.as_bytes())];
        let send = || sendmsg::<()>(descriptor, &data, control, MsgFlags::MSG_NOSIGNAL, None);
        let mut sent = send();
        while sent == Err(Errno::EINTR) {
            sent = send();
        }
        if sent.ok() != Some(line.len()) {
            return Err(self.ended(&format!("cannot send `{command}`")));
        }
        let start = Instant::now();
        loop {
            let mut answer = self.line(start)?;
            if let Some(error) = answer.get("error") {
                let why = error["desc"].as_str().unwrap_or_default();
                return Err(ToolError::Failed(format!("QEMU: {command}: {why}")));
            }
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            self.events.push(answer);
        }
    }

    /// Waits for an event `name` with `device` among its data.
    pub(super) fn wait_for(&mut self, name: &str, device: &str) -> Result<(), ToolError> {
        let is_it = |event: &Value| event["event"] == name && event["data"]["device"] == device;
        let start = Instant::now();
        loop {
            if let Some(at) = self.events.iter().position(is_it) {
                self.events.remove(at);
                return Ok(());
            }
            let event = self.line(start)?;
            self.events.push(event);
        }
    }

    /// The next line that is JSON.
    fn line(&mut self, start: Instant) -> Result<Value, ToolError> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                if let Ok(value) = serde_json::from_slice(&line) {
                    return Ok(value);
                }
                self.messages.push_str(&String::from_utf8_lossy(&line));
                continue;
            }
            if start.elapsed() >= ANSWER_MAX {
                return Err(self.ended("no answer in time"));
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(self.ended("it has ended")),
                Ok(count) => self.unread.extend(&bytes[..count]),
                // A signal. The wait for the guest reads the stop flag.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.ended(&error.to_string())),
            }
        }
    }

    /// The failure `what`, with what QEMU has said.
    fn ended(&mut self, what: &str) -> ToolError {
        // Without a line end: the last words of a process.
        self.messages
            .push_str(&String::from_utf8_lossy(&self.unread));
        self.unread.clear();
        let messages = std::mem::take(&mut self.messages);
        ToolError::Failed(format!("QEMU: {what}; {}", messages.trim()))
    }
}
