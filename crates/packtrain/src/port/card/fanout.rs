//! One interrupt of a card for several halves of queues.

use super::{Bus, Interrupt, InterruptKind};
use crate::port::sys::threads::give_up_capabilities;
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::thread::{Builder, JoinHandle};

/// A thread that passes an interrupt on to several, for a card that has one for all of its queues
/// (INTx, MSI), or one for what concerns all of them, as its link.
///
/// The halves cannot wait for it themselves: the one that clears it first would take it from the
/// others.
#[derive(Debug)]
pub struct Fanout {
    stop: Interrupt,
    thread: Option<JoinHandle<()>>,
}

impl Fanout {
    /// Connects the interrupts of a card's halves. With MSI-X each is a vector, and with
    /// `has_others` one more, if the card has it, is for other causes. With MSI and INTx there is
    /// one in all. That one is passed on to all halves; `None` if there is none. Each time
    /// `acknowledge` is called first: it has the card lower its line, and unmasks it.
    ///
    /// # Errors
    ///
    /// The system's: no descriptor, no thread.
    pub fn connect(
        bus: &impl Bus,
        kind: InterruptKind,
        halves: &[Interrupt],
        has_others: bool,
        mut acknowledge: impl FnMut() + Send + 'static,
    ) -> io::Result<Option<Self>> {
        let (mut vectors, has_one) = match kind {
            InterruptKind::Msix => (halves.to_vec(), has_others),
            InterruptKind::Msi | InterruptKind::Intx => (Vec::new(), true),
        };
        let mut fanout = None;
        if has_one && vectors.len() < bus.interrupts(kind) {
            let (cause, stop, targets) = (Interrupt::new()?, Interrupt::new()?, halves.to_vec());
            vectors.push(cause.clone());
            let stopped = stop.clone();
            let thread = Builder::new().name("card-irq".to_owned()).spawn(move || {
                give_up_capabilities();
                while wait(&cause, &stopped) {
                    cause.clear();
                    acknowledge();
                    targets.iter().for_each(Interrupt::raise);
                }
            })?;
            let thread = Some(thread);
            fanout = Some(Self { stop, thread });
        }
        bus.connect(kind, &vectors)?;
        Ok(fanout)
    }
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
