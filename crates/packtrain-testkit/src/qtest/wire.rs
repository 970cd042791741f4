//! The socket by which a test accesses the buses of QEMU's machine (qtest protocol: a command a
//! line, a reply a line, and lines `IRQ raise N` between them).

use packtrain::port::card::Interrupt;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Writes whose replies were not read yet: so few that the replies fit in the socket's buffer.
const MOST_PENDING: usize = 128;

/// What a socket says whose other end is closed.
const ENDS: [io::ErrorKind; 2] = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset];

/// Where an access goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Memory(u64),
    Port(u16),
}

#[derive(Debug)]
pub(super) struct Wire {
    stream: UnixStream,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    input: Vec<u8>,
    output: String,
    /// Replies to writes that have not come.
    pending: usize,
    /// The reply that is no reply to a write.
    reply: Option<String>,
    /// By number of the interrupt controller's input, once they are watched.
    lines: Option<BTreeMap<u32, Line>>,
}

/// A line of the interrupt controller.
#[derive(Debug, Default)]
struct Line {
    is_raised: bool,
    /// Whether the next raise is an interrupt: it is masked from then on.
    is_armed: bool,
    interrupt: Option<Interrupt>,
}

impl Line {
    fn check(&mut self) {
        if let Some(interrupt) = &self.interrupt
            && self.is_raised
            && self.is_armed
        {
            self.is_armed = false;
            interrupt.raise();
        }
    }
}

impl State {
    /// Handles the complete lines that have come.
    fn handle(&mut self) -> io::Result<()> {
        let Some(end) = self.input.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(());
        };
        let lines: Vec<u8> = self.input.drain(..=end).collect();
        for line in String::from_utf8_lossy(&lines).lines() {
            let mut words = line.split(' ');
            match (words.next(), words.next(), words.next()) {
                (Some("IRQ"), Some(level), Some(number)) => {
                    let number = number.parse().map_err(|_| unexpected(line))?;
                    if let Some(lines) = &mut self.lines {
                        let line = lines.entry(number).or_default();
                        line.is_raised = level == "raise";
                        line.check();
                    }
                }
                (Some("OK"), None, None) if self.pending > 0 => self.pending -= 1,
                (Some("OK"), value, None) if self.reply.is_none() && self.pending == 0 => {
                    self.reply = Some(value.unwrap_or_default().to_owned());
                }
                _ => return Err(unexpected(line)),
            }
        }
        Ok(())
    }

    /// Reads what has come; blocks if it `waits`. Returns whether anything came.
    fn receive(&mut self, stream: &UnixStream, waits: bool) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        let mut flags = RecvFlags::empty();
        flags.set(RecvFlags::DONTWAIT, !waits);
        match recv(stream, &mut buffer, flags) {
            Ok((0, _)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((bytes, _)) => {
                self.input.extend_from_slice(&buffer[..bytes]);
                self.handle()?;
                Ok(true)
            }
            Err(Errno::INTR) => Ok(true),
            Err(Errno::AGAIN) if !waits => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn send(&mut self, mut stream: &UnixStream) -> io::Result<()> {
        stream.write_all(self.output.as_bytes())?;
        self.output.clear();
        Ok(())
    }

    fn drain(&mut self, stream: &UnixStream) -> io::Result<()> {
        while self.pending > 0 {
            self.receive(stream, true)?;
        }
        Ok(())
    }

    fn reply(&mut self, stream: &UnixStream) -> io::Result<String> {
        self.send(stream)?;
        loop {
            if let Some(reply) = self.reply.take() {
                return Ok(reply);
            }
            self.receive(stream, true)?;
        }
    }

    fn put_read(&mut self, place: Place, width: usize) {
        let width = letter(width);
        let output = &mut self.output;
        match place {
            Place::Memory(at) => writeln!(output, "read{width} {at:#x}"),
            Place::Port(at) => writeln!(output, "in{width} {at:#x}"),
        }
        .expect("a string takes it");
    }

    fn put_write(&mut self, place: Place, width: usize, value: u32) {
        let width = letter(width);
        let output = &mut self.output;
        match place {
            Place::Memory(at) => writeln!(output, "write{width} {at:#x} {value:#x}"),
            Place::Port(at) => writeln!(output, "out{width} {at:#x} {value:#x}"),
        }
        .expect("a string takes it");
        self.pending += 1;
    }
}

const fn letter(width: usize) -> char {
    match width {
        1 => 'b',
        2 => 'w',
        _ => 'l',
    }
}

fn unexpected(line: &str) -> io::Error {
    io::Error::other(format!("QEMU's qtest socket says {line:?}"))
}

impl Wire {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads `width` bytes: 1, 2 or 4.
    pub(super) fn read(&self, place: Place, width: usize) -> io::Result<u32> {
        let mut state = self.state();
        state.put_read(place, width);
        value(&state.reply(&self.stream)?)
    }

    /// Writes `width` bytes, in order with all other accesses. As on a PCI bus it may be complete
    /// later: a read waits for it.
    pub(super) fn write(&self, place: Place, width: usize, value: u32) -> io::Result<()> {
        let mut state = self.state();
        state.put_write(place, width, value);
        state.send(&self.stream)?;
        if state.pending >= MOST_PENDING {
            state.drain(&self.stream)?;
        }
        Ok(())
    }

    /// Reads a word of the configuration space; `function` is bus, device and function as in the
    /// address register of PCI.
    pub(super) fn config(&self, function: u32, at: usize) -> io::Result<u32> {
        let mut state = self.state();
        state.put_write(Place::Port(0xcf8), 4, config_address(function, at));
        state.put_read(Place::Port(0xcfc), 4);
        value(&state.reply(&self.stream)?)
    }

    /// Writes a word of the configuration space, and waits until it is written.
    pub(super) fn set_config(&self, function: u32, at: usize, value: u32) -> io::Result<()> {
        let mut state = self.state();
        state.put_write(Place::Port(0xcf8), 4, config_address(function, at));
        state.put_write(Place::Port(0xcfc), 4, value);
        state.send(&self.stream)?;
        state.drain(&self.stream)
    }

    /// Raises `interrupt` when the line is raised, and masks it then; `None` for never.
    ///
    /// A thread reads the socket from the first call on, as long as QEMU runs.
    pub(super) fn connect(self: &Arc<Self>, line: u32, to: Option<Interrupt>) -> io::Result<()> {
        let mut state = self.state();
        if state.lines.is_none() {
            state.lines = Some(BTreeMap::new());
            state.output.push_str("irq_intercept_in ioapic\n");
            state.reply(&self.stream)?;
            let wire = Arc::clone(self);
            std::thread::Builder::new()
                .name("qtest-lines".to_owned())
                .spawn(move || wire.watch())?;
        }
        if let Some(lines) = &mut state.lines {
            let line = lines.entry(line).or_default();
            line.is_armed = true;
            line.interrupt = to;
            line.check();
        }
        Ok(())
    }

    /// Lets a line be an interrupt again, also the level that it has after all writes.
    pub(super) fn unmask(&self, line: u32) -> io::Result<()> {
        let mut state = self.state();
        state.drain(&self.stream)?;
        while state.receive(&self.stream, false)? {}
        if let Some(line) = state.lines.as_mut().and_then(|lines| lines.get_mut(&line)) {
            line.is_armed = true;
            line.check();
        }
        Ok(())
    }

    /// Reads lines that no access waits for, until QEMU ends.
    fn watch(&self) {
        loop {
            let mut ready = [PollFd::new(&self.stream, PollFlags::IN)];
            match poll(&mut ready, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => panic!("the qtest socket cannot be waited for: {error}"),
            }
            match self.state().receive(&self.stream, false) {
                Ok(_) => {}
                // QEMU has ended: an error of the access that needs it.
                Err(error) if ENDS.contains(&error.kind()) => return,
                Err(error) => panic!("no more interrupts: {error}"),
            }
        }
    }
}

fn config_address(function: u32, at: usize) -> u32 {
    assert!(at < 256 && at.is_multiple_of(4), "no config word at {at}");
    0x8000_0000 | function << 8 | at as u32
}

fn value(reply: &str) -> io::Result<u32> {
    let digits = reply.strip_prefix("0x").unwrap_or(reply);
    let value = u64::from_str_radix(digits, 16).map_err(|_| unexpected(reply))?;
    Ok(value as u32)
}
