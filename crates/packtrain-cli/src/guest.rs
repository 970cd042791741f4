//! `packtrain guest`: a virtual machine with network cards behind an IOMMU.

use crate::args::{GuestArgs, GuestCard, Wire};
use crate::exit::{Exit, Failure};
use crate::print;
use crate::signals::Stop;
use crate::tool::failed;
use packtrain::name::Name;
use packtrain_lab::guest::{Card, Console, FarSide, Guest, GuestConfig, Kernel, started};
use packtrain_lab::tap::Tap;
use packtrain_lab::{LabError, ToolError};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{IsTerminal, stderr, stdin, stdout};
use std::process::ExitCode;

/// Runs the command, and returns the exit code of the one that ran in the guest.
///
/// # Errors
///
/// If the guest cannot be started or ends early, or if the IOMMU has stopped an access.
pub fn run(args: &GuestArgs) -> Result<ExitCode, Failure> {
    let wants_shell = args.command.is_empty();
    if wants_shell && !args.fetch && !(stdin().is_terminal() && stdout().is_terminal()) {
        let line = "a shell needs a terminal: write a command, packtrain guest -- COMMAND";
        return Err(Failure::new(Exit::Usage, line));
    }
    let kernel = kernel(args).map_err(|error| failed(&error))?;
    if wants_shell && args.fetch {
        return Ok(ExitCode::SUCCESS);
    }
    let stop = Stop::install()?;
    let mut config = GuestConfig::new(kernel);
    config.memory_mib = args.memory;
    config.stop = stop.flag();
    config.cards = cards(&args.cards).map_err(|error| failed(&error.into()))?;
    config.packtrain = Some(started());
    config.programs.clone_from(&args.programs);
    if wants_shell {
        config.console = Console::Terminal;
        let terminal = Terminal::keep();
        print::message("booting; `exit` ends the guest");
        let ended = shell(config, &stop);
        drop(terminal);
        return ended.map_err(|error| failed(&error));
    }
    let guest = Guest::start(config).map_err(|error| failed(&error))?;
    command(&guest, &args.command.join(" "), &stop)
}

/// The kernel, downloaded before if that is wanted.
fn kernel(args: &GuestArgs) -> Result<Kernel, ToolError> {
    let folder = Kernel::folder()?;
    if !args.fetch {
        return Kernel::open(folder);
    }
    let kernel = Kernel::provide(&folder)?;
    print::message(&format!(
        "the kernel and BusyBox are in {}",
        Name::from(folder)
    ));
    Ok(kernel)
}

fn cards(cards: &[GuestCard]) -> Result<Vec<Card>, LabError> {
    let cards = cards.iter().map(|card| {
        let far_side = match &card.wire {
            Wire::Hub(number) => FarSide::Hub(*number),
            Wire::Tap(name) => {
                let tap = Tap::new(name).multi_queue(false).vnet_hdr(true);
                FarSide::Tap(tap.open()?)
            }
        };
        Ok(Card::new(card.model, far_side, card.bound))
    });
    cards.collect()
}

/// A shell on the terminal, until it ends.
fn shell(config: GuestConfig, stop: &Stop) -> Result<ExitCode, ToolError> {
    let guest = Guest::start(config)?;
    // Some terminals know no size.
    let size = tcgetwinsize(stdout())
        .ok()
        .filter(|size| size.ws_row > 0 && size.ws_col > 0);
    let (rows, columns) = size.map_or((24, 80), |size| (size.ws_row, size.ws_col));
    guest.shell(rows, columns, &stop.flag())?;
    Ok(ExitCode::SUCCESS)
}

/// A line of the guest's shell, until it ends.
fn command(guest: &Guest, line: &str, stop: &Stop) -> Result<ExitCode, Failure> {
    let status = guest.stream(line, stdout(), stderr(), &stop.flag());
    let status = status.map_err(|error| failed(&error))?;
    let faults = guest.iommu_faults().map_err(|error| failed(&error))?;
    if !faults.is_empty() {
        let faults = faults.join("; ");
        let line = format!("the IOMMU stopped accesses of a card to memory: {faults}");
        return Err(Failure::new(Exit::Check, line));
    }
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX)))
}

/// The settings of the terminal, restored at the end: QEMU changes them, and may be killed.
struct Terminal(Option<Termios>);

impl Terminal {
    fn keep() -> Self {
        Self(tcgetattr(stdin()).ok())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(settings) = &self.0 {
            // A terminal that is gone needs none.
            tcsetattr(stdin(), OptionalActions::Now, settings).unwrap_or(());
        }
    }
}
