//! A minimal forwarder between two TAP interfaces, in C (`baseline/tapfwd.c`). packtrain's goodput,
//! CPU time and losses are compared with it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{fmt, io};

/// Its source file.
pub const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/baseline/tapfwd.c");

/// Seconds after which it ends by itself, if the process that started it was killed.
const LIFETIME_S: u32 = 300;

/// Why the C forwarder is not available.
#[derive(Debug)]
#[non_exhaustive]
pub enum BaselineError {
    /// The compiler does not exist.
    NoCompiler(String, io::Error),
    /// The compiler, named here, failed, and printed the reason.
    NotCompiled(String),
    /// The program does not start, or cannot open these interfaces, and printed the reason.
    NotReady(io::Error),
}

impl fmt::Display for BaselineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCompiler(compiler, error) => write!(
                f,
                "the C forwarder needs a C compiler, and {compiler} does not run ({error}): \
                 install gcc or clang, or name a compiler in CC"
            ),
            Self::NotCompiled(compiler) => write!(f, "{compiler} cannot compile {SOURCE}"),
            Self::NotReady(error) => write!(f, "the C forwarder is not ready: {error}"),
        }
    }
}

impl core::error::Error for BaselineError {}

/// Compiles it into `directory` with the compiler that `CC` names, or with `cc`; returns the
/// program's path.
///
/// # Errors
/// [`BaselineError::NoCompiler`] and [`BaselineError::NotCompiled`].
pub fn compile(directory: &Path) -> Result<PathBuf, BaselineError> {
    let program = directory.join("tapfwd");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let status = Command::new(&compiler)
        .args(["-O2", "-pthread", "-o"])
        .arg(&program)
        .arg(SOURCE)
        .status();
    match status {
        Ok(status) if status.success() => Ok(program),
        Ok(_) => Err(BaselineError::NotCompiled(compiler)),
        Err(error) => Err(BaselineError::NoCompiler(compiler, error)),
    }
}

/// How it opens both interfaces.
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
