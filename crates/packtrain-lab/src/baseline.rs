//! Minimal programs in C, with which packtrain is compared: a forwarder between two TAP interfaces
//! (`baseline/tapfwd.c`), for goodput, CPU time and losses, and a sender of UDP packets
//! (`baseline/udpblast.c`), for packets per second.

use std::io::{BufRead, BufReader};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fmt, io};

use serde::Deserialize;

/// The source file of the forwarder.
pub const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/baseline/tapfwd.c");

/// The source file of the sender.
const SENDER_SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/baseline/udpblast.c");

/// Seconds after which it ends by itself, if the process that started it was killed.
const LIFETIME_S: u32 = 300;

/// Why a program is not available.
#[derive(Debug)]
#[non_exhaustive]
pub enum BaselineError {
    /// The compiler does not exist.
    NoCompiler(String, io::Error),
    /// The compiler, named here with the source file, failed, and printed the reason.
    NotCompiled(String, &'static str),
    /// The program does not start, cannot open these interfaces, or cannot send, and printed the
    /// reason.
    NotReady(io::Error),
}

impl fmt::Display for BaselineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCompiler(compiler, error) => write!(
                f,
                "a program in C to compare with needs a C compiler, and {compiler} does not run \
                 ({error}): install gcc or clang, or name a compiler in CC"
            ),
            Self::NotCompiled(compiler, source) => write!(f, "{compiler} cannot compile {source}"),
            Self::NotReady(error) => write!(f, "the program in C is not ready: {error}"),
        }
    }
}

impl core::error::Error for BaselineError {}

/// Compiles the forwarder into `directory` with the compiler that `CC` names, or with `cc`; returns
/// the program's path.
///
/// # Errors
/// [`BaselineError::NoCompiler`] and [`BaselineError::NotCompiled`].
pub fn compile(directory: &Path) -> Result<PathBuf, BaselineError> {
    compile_source(directory, "tapfwd", SOURCE)
}

/// The same for the sender.
///
/// # Errors
/// As [`compile`].
pub fn compile_sender(directory: &Path) -> Result<PathBuf, BaselineError> {
    compile_source(directory, "udpblast", SENDER_SOURCE)
}

fn compile_source(
    directory: &Path,
    name: &str,
    source: &'static str,
) -> Result<PathBuf, BaselineError> {
    let program = directory.join(name);
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let status = Command::new(&compiler)
        .args(["-O2", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .status();
    match status {
        Ok(status) if status.success() => Ok(program),
        Ok(_) => Err(BaselineError::NotCompiled(compiler, source)),
        Err(error) => Err(BaselineError::NoCompiler(compiler, error)),
    }
}

/// What the sender did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Sent {
    /// Packets that the kernel accepted.
    pub packets: u64,
    /// The time that it took.
    pub nanoseconds: u64,
}

/// Runs the sender `program` in the network namespace of the calling thread, to its end: datagrams
/// of `bytes` bytes, `batch` in one call (1 to 1024).
///
/// # Errors
/// [`BaselineError::NotReady`].
pub fn send(
    program: &Path,
    to: SocketAddrV4,
    bytes: usize,
    batch: usize,
    time: Duration,
) -> Result<Sent, BaselineError> {
    let words = [to.port().into(), bytes, batch].map(|word| word.to_string());
    let output = Command::new(program)
        .arg(to.ip().to_string())
        .args(words)
        .arg(time.as_millis().to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(BaselineError::NotReady)?;
    serde_json::from_slice(&output.stdout)
        .map_err(|error| BaselineError::NotReady(io::Error::other(error)))
}

/// How the forwarder opens both interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// A virtio-net header in front of every packet, and all of the kernel's offloads.
    Vnet,
    /// Neither.
    Plain,
}

impl Mode {
    /// The word for its argument.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vnet => "vnet",
            Self::Plain => "plain",
        }
    }
}

/// A C forwarder that runs. Dropping it ends the process, which removes its interfaces.
#[derive(Debug)]
pub struct Baseline(Child);

impl Baseline {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Starts `program` with one thread and the TAP interfaces `names`, which it makes in the
    /// network namespace of the calling thread. They exist on return, and may then be moved.
    ///
    /// # Errors
    /// [`BaselineError::NotReady`].
    pub fn start(program: &Path, names: [&str; 2], mode: Mode) -> Result<Self, BaselineError> {
        let mut child = Command::new(program)
            .args(names)
            .args([mode.name(), "1", &LIFETIME_S.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(BaselineError::NotReady)?;
        let output = child.stdout.take();
        let baseline = Self(child);
        let mut line = String::new();
        if let Some(output) = output {
            BufReader::new(output)
                .read_line(&mut line)
                .map_err(BaselineError::NotReady)?;
        }
        if line != "ready\n" {
            let error =
                io::Error::new(io::ErrorKind::UnexpectedEof, format!("it printed {line:?}"));
            return Err(BaselineError::NotReady(error));
        }
        Ok(baseline)
    }
}

impl Drop for Baseline {
    fn drop(&mut self) {
        let ended = self.0.kill().and_then(|()| self.0.wait());
        debug_assert!(ended.is_ok(), "{ended:?}");
    }
}
