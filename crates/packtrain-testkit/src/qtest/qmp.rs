//! QEMU's monitor: a JSON object a line (QEMU Machine Protocol).

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};
use std::io::{self, BufRead as _, BufReader, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

#[derive(Debug)]
pub(super) struct Qmp(Mutex<BufReader<UnixStream>>);

impl Qmp {
    /// Waits for QEMU's greeting.
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        let mut reader = BufReader::new(stream);
        message(&mut reader)?;
        let qmp = Self(Mutex::new(reader));
        qmp.run("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    pub(super) fn run(&self, command: &str, arguments: &Value) -> io::Result<Value> {
        self.run_with(command, arguments, None)
    }

    /// Gives QEMU a descriptor, which later commands call `name`.
    pub(super) fn give(&self, name: &str, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.run_with("getfd", &json!({"fdname": name}), Some(fd))?;
        Ok(())
    }

    fn run_with(
        &self,
        command: &str,
        arguments: &Value,
        fd: Option<BorrowedFd<'_>>,
    ) -> io::Result<Value> {
        let mut reader = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = format!("{}\n", json!({"execute": command, "arguments": arguments}));
        send(reader.get_ref(), text.as_bytes(), fd)?;
        loop {
            let mut message = message(&mut reader)?;
            if let Some(error) = message.get("error") {
                let why = error["desc"].as_str().unwrap_or("no description");
                return Err(io::Error::other(format!("QEMU refuses {command}: {why}")));
            }
            // Others are events.
            if let Some(value) = message.get_mut("return") {
                return Ok(value.take());
            }
        }
    }
}

fn message(reader: &mut BufReader<UnixStream>) -> io::Result<Value> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    serde_json::from_str(&line).map_err(io::Error::other)
}

/// Sends bytes, with a descriptor.
pub(super) fn send(
    stream: &UnixStream,
    bytes: &[u8],
    fd: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = fd.map(|fd| [fd]);
    if let Some(fds) = &fds {
        let fits = control.push(SendAncillaryMessage::ScmRights(fds));
        assert!(fits, "the space is that of a descriptor");
    }
    let sent = sendmsg(
        stream.as_fd(),
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    if sent < bytes.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    Ok(())
}
