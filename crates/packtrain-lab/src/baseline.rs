//! Minimal programs in C, with which packtrain is compared: a forwarder between two TAP interfaces
//! (`baseline/tapfwd.c`), for goodput, CPU time and losses, and a sender of UDP packets
//! (`baseline/udpblast.c`), for packets per second.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddrV4;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use std::{fmt, io};

use serde::Deserialize;

/// Compiles the source in the second argument with the compiler in the first one, and prints the
/// program's path. The folder is private and new, and is removed when standard input ends: also if
/// this process is killed meanwhile.
const COMPILE: &str = r#"
command -v "$1" >/dev/null || exit 127
trap '' PIPE
folder=$(mktemp -d "${TMPDIR:-/tmp}/packtrain-XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
printf %s "$2" | "$1" -O2 -pthread -x c - -o "$folder/program" && echo "$folder/program" && cat
"#;

/// What the shell returns if it does not find a command.
const NOT_FOUND: i32 = 127;

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
    /// The forwarder ended before it was stopped.
    Ended(ExitStatus),
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
            Self::Ended(status) => write!(f, "the C forwarder ended by itself: {status}"),
            Self::NotReady(error) => write!(f, "the program in C is not ready: {error}"),
        }
    }
}

impl core::error::Error for BaselineError {}

/// A compiled program: an open file that has no name any more.
#[derive(Debug)]
pub struct Program(File);

impl Program {
    /// Compiles the forwarder with the compiler that `CC` names, or with `cc`.
    ///
    /// # Errors
    /// [`BaselineError::NoCompiler`] and [`BaselineError::NotCompiled`].
    pub fn forwarder() -> Result<Self, BaselineError> {
        Self::compile("tapfwd.c", include_str!("../baseline/tapfwd.c"))
    }

    /// The same for the sender.
    ///
    /// # Errors
    /// As [`forwarder`](Self::forwarder).
    pub fn sender() -> Result<Self, BaselineError> {
        Self::compile("udpblast.c", include_str!("../baseline/udpblast.c"))
    }

    fn compile(name: &'static str, source: &str) -> Result<Self, BaselineError> {
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let spawned = Command::new("sh")
            .args(["-c", COMPILE, "sh", &compiler, source])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn();
        let mut shell = match spawned {
            Ok(shell) => shell,
            Err(error) => return Err(BaselineError::NoCompiler(compiler, error)),
        };
        let path = first_line(&mut shell).map_err(BaselineError::NotReady)?;
        let program = (!path.is_empty()).then(|| File::open(path));
        // This closes its standard input.
        let status = shell.wait().map_err(BaselineError::NotReady)?;
        match program {
            Some(program) => program.map(Self).map_err(BaselineError::NotReady),
            None if status.code() == Some(NOT_FOUND) => {
                let error = io::Error::from(io::ErrorKind::NotFound);
                Err(BaselineError::NoCompiler(compiler, error))
            }
            None => Err(BaselineError::NotCompiled(compiler, name)),
        }
    }

    /// A path for this process, and for processes that it starts with it.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

/// The first line that a process prints, without its end; empty if it prints none.
fn first_line(process: &mut Child) -> io::Result<String> {
    let mut line = String::new();
    if let Some(output) = process.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    line.truncate(line.trim_end().len());
    Ok(line)
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
    program: &Program,
    to: SocketAddrV4,
    bytes: usize,
    batch: usize,
    time: Duration,
) -> Result<Sent, BaselineError> {
    let words = [to.port().into(), bytes, batch].map(|word| word.to_string());
    let output = Command::new(program.path())
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

/// A C forwarder that runs. Dropping it ends the process, which removes its interfaces. The process
/// also ends if this one is killed.
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
    pub fn start(program: &Program, names: [&str; 2], mode: Mode) -> Result<Self, BaselineError> {
        let child = Command::new(program.path())
            .args(names)
            .args([mode.name(), "1"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A signal of the terminal ends this process, which ends its child when it is ready.
            .process_group(0)
            .spawn()
            .map_err(BaselineError::NotReady)?;
        let mut baseline = Self(child);
        let line = first_line(&mut baseline.0).map_err(BaselineError::NotReady)?;
        if line != "ready" {
            let error =
                io::Error::new(io::ErrorKind::UnexpectedEof, format!("it printed {line:?}"));
            return Err(BaselineError::NotReady(error));
        }
        Ok(baseline)
    }

    /// Ends the process.
    ///
    /// # Errors
    /// [`BaselineError::Ended`] if it has ended by itself.
    pub fn finish(mut self) -> Result<(), BaselineError> {
        match self.0.try_wait().map_err(BaselineError::NotReady)? {
            Some(status) => Err(BaselineError::Ended(status)),
            None => Ok(()),
        }
    }
}

impl Drop for Baseline {
    fn drop(&mut self) {
        let ended = self.0.kill().and_then(|()| self.0.wait());
        debug_assert!(ended.is_ok(), "{ended:?}");
    }
}
