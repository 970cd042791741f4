//! What a guest is made of.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::card::{CARDS_MAX, Card, FUNCTIONS_MAX, Place};
use super::kernel::Kernel;
use crate::error::ToolError;

/// Where the guest's console is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Console {
    /// It is kept, and shown in errors.
    Kept,
    /// On standard input and output of this process, with a shell. When the shell ends, the guest
    /// does.
    Terminal,
}

/// The file of the program that runs, also if another one has its name since it was started.
pub fn started() -> PathBuf {
    // ldd(1), which reads the file, too, has another /proc/self.
    PathBuf::from(format!("/proc/{}/exe", std::process::id()))
}

/// The settings of a guest.
#[derive(Debug)]
pub struct GuestConfig {
    /// The kernel that it boots.
    pub kernel: Kernel,
    /// The cards, the first one at `0000:01:00.0`. At most 16.
    pub cards: Vec<Card>,
    /// The file of this host that is its `/bin/packtrain`; usually [`started`].
    pub packtrain: Option<PathBuf>,
    /// Programs of this host that it has in `/bin`, with the libraries that ldd(1) lists.
    pub programs: Vec<PathBuf>,
    /// Processors, 1 to 16.
    pub cpus: u8,
    /// Memory in MiB, 128 and more. The root with the programs is part of it.
    pub memory_mib: u32,
    /// If set, each instruction takes 2^N nanoseconds of the guest's time, 0 to 10, on one thread
    /// of this host: [`Guest::instructions`](super::Guest::instructions) then counts them. The
    /// processor then lacks fast string instructions (ERMS), of which each byte would count.
    pub icount: Option<u8>,
    /// Words added to the kernel's command line. By default it translates the addresses of its own
    /// drivers, too; `iommu=pt` spares them that.
    pub kernel_line: String,
    /// The console.
    pub console: Console,
    /// How long a command of [`Guest::run`](super::Guest::run) may take.
    pub run_max: Duration,
    /// Once it is set, a guest that boots is given up.
    pub stop: Arc<AtomicBool>,
}

impl GuestConfig {
    /// A guest without cards: 2 processors, 512 MiB.
    pub fn new(kernel: Kernel) -> Self {
        Self {
            kernel,
            cards: Vec::new(),
            packtrain: None,
            programs: Vec::new(),
            cpus: 2,
            memory_mib: 512,
            icount: None,
            kernel_line: String::new(),
            console: Console::Kept,
            run_max: Duration::from_secs(300),
            stop: Arc::default(),
        }
    }

    pub(super) fn check(&self) -> Result<(), ToolError> {
        let number = |number: usize| number as u64;
        let icount = self.icount.unwrap_or(0).into();
        ToolError::unless_in(0..=10, "icount", icount)?;
        ToolError::unless_in(1..=16, "the number of processors", self.cpus.into())?;
        ToolError::unless_in(128..=65536, "the memory in MiB", self.memory_mib.into())?;
        let cards = number(self.cards.len());
        ToolError::unless_in(0..=number(CARDS_MAX), "the number of cards", cards)?;
        let functions = Place::of(&self.cards)
            .iter()
            .map(|place| place.function + 1)
            .max();
        let functions = number(functions.unwrap_or(1));
        ToolError::unless_in(
            1..=number(FUNCTIONS_MAX),
            "the number of cards beside each other",
            functions,
        )
    }
}
