//! One interrupt of a card for several halves of queues.

use super::{Bus, Interrupt, InterruptKind};
use crate::driver::DeviceError;
use crate::port::sys::device::unsupported;
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::thread::{Builder, JoinHandle};

/// A thread that passes an interrupt on to several, for a card that has one for all of its queues
/// (INTx, MSI).
///
/// The halves cannot wait for it themselves: the one that clears it first would take it from the
/// others.
#[derive(Debug)]
pub struct Fanout {
    stop: Interrupt,
    thread: Option<JoinHandle<()>>,
}

impl Fanout {
    /// Passes `cause` on to all of `targets`. Each time `acknowledge` is called first: it has the
    /// card lower its line, and unmasks it.
    ///
    /// # Errors
    ///
    /// The system's: no descriptor, no thread.
    pub fn start(
        cause: Interrupt,
        targets: Vec<Interrupt>,
        mut acknowledge: impl FnMut() + Send + 'static,
    ) -> io::Result<Self> {
        let stop = Interrupt::new()?;
        let stopped = stop.clone();
        let thread = Builder::new().name("card-irq".to_owned()).spawn(move || {
            while wait(&cause, &stopped) {
                cause.clear();
                acknowledge();
                targets.iter().for_each(Interrupt::raise);
            }
        })?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

/// The first kind of interrupts that a card has of MSI-X with `vectors` vectors, MSI and INTx; or
/// `wanted`.
///
/// # Errors
///
/// [`DeviceError::Unsupported`] if it has none, or not `wanted`.
pub(in crate::port) fn choose_interrupts(
    bus: &impl Bus,
    wanted: Option<InterruptKind>,
    vectors: usize,
) -> Result<InterruptKind, DeviceError> {
    let kinds = [InterruptKind::Msix, InterruptKind::Msi, InterruptKind::Intx].into_iter();
    let mut kinds = kinds.filter(|kind| wanted.is_none_or(|wanted| wanted == *kind));
    let found = kinds.find(|kind| match kind {
        InterruptKind::Msix => bus.interrupts(*kind) >= vectors,
        InterruptKind::Msi | InterruptKind::Intx => bus.interrupts(*kind) >= 1,
    });
    let name = bus.name();
    match (found, wanted) {
        (Some(kind), _) => Ok(kind),
        (None, Some(_)) => unsupported(format!(
            "{name} has no such interrupts: leave out irq=, or give another one of msix, msi and \
             intx"
        )),
        (None, None) => unsupported(format!(
            "{name} has no interrupts (MSI-X, MSI, INTx), which its queues wait for: see what \
             `lspci -vv -s {name}` says of them"
        )),
    }
}

/// Connects interrupts for so many halves of queues: a vector each with MSI-X, else one for all.
pub(in crate::port) fn connect_halves(
    bus: &impl Bus,
    kind: InterruptKind,
    halves: usize,
    acknowledge: impl FnMut() + Send + 'static,
) -> io::Result<(Vec<Interrupt>, Option<Fanout>)> {
    let each: Vec<Interrupt> = (0..halves)
        .map(|_| Interrupt::new())
        .collect::<io::Result<_>>()?;
    if kind == InterruptKind::Msix {
        bus.connect(kind, &each)?;
        return Ok((each, None));
    }
    let one = Interrupt::new()?;
    let fanout = Fanout::start(one.clone(), each.clone(), acknowledge)?;
    bus.connect(kind, &[one])?;
    Ok((each, Some(fanout)))
}

/// Waits for the interrupt; false when there is to be no other.
fn wait(cause: &Interrupt, stop: &Interrupt) -> bool {
    loop {
        let mut both = [cause, stop].map(|one| PollFd::new(one, PollFlags::IN));
        match poll(&mut both, None) {
            Ok(_) => return both[1].revents().is_empty(),
            Err(rustix::io::Errno::INTR) => {}
            // The kernel has no memory for it. The halves then have no interrupts: their workers
            // poll them only when they wake up for another reason.
            Err(_) => return false,
        }
    }
}

impl Drop for Fanout {
    fn drop(&mut self) {
        self.stop.raise();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            debug_assert!(ended.is_ok(), "the thread of an interrupt panicked");
        }
    }
}
