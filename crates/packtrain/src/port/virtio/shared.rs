//! What the halves of all queues of a card share, and its ring for commands.

use crate::driver::{DeviceError, Link};
use crate::port::card::{Bus, Stop, failed, was_reset};
use crate::port::virtqueue::features::{RING_RESET, STATUS};
use crate::port::virtqueue::pci::{DRIVER_OK, Doorbell, Function, NEEDS_RESET};
use crate::port::virtqueue::{Buffer, Virtqueue};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Of the device's configuration (virtio 1.2 §5.1.4): where its link status is, and the bit for a
/// link that is up.
const LINK_AT: usize = 6;
const LINK_UP: u16 = 1;
/// A command is answered within this time.
const COMMAND_MAX: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_micros(100);
/// Where the answer to a command is in the memory of commands.
const ANSWER_AT: usize = 16;

/// A card with what was agreed on.
#[derive(Debug)]
pub(super) struct Shared<B: Bus> {
    pub(super) function: Arc<Function<B>>,
    features: u64,
    down: AtomicBool,
    /// The one interrupt of the card said that its configuration has changed.
    changed: Arc<AtomicBool>,
}

impl<B: Bus> Shared<B> {
    pub(super) fn new(function: &Arc<Function<B>>, features: u64) -> Self {
        Self {
            function: Arc::clone(function),
            features,
            down: AtomicBool::new(false),
            changed: Arc::default(),
        }
    }

    /// What to do when the one interrupt of the card comes.
    pub(super) fn acknowledge(&self) -> impl FnMut() + Send + use<B> {
        let (function, changed) = (Arc::clone(&self.function), Arc::clone(&self.changed));
        move || {
            if function.acknowledge() {
                changed.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Whether the card has said that its configuration has changed, with one interrupt for all.
    pub(super) fn take_changed(&self) -> bool {
        self.changed.swap(false, Ordering::Relaxed)
    }

    /// Reads whether packets can pass.
    pub(super) fn link(&self) -> Link {
        if self.function.status().is_err() {
            return Link::Removed;
        }
        self.read_link();
        if self.is_down() { Link::Down } else { Link::Up }
    }

    fn read_link(&self) {
        let has_link = self.features & STATUS != 0;
        let down = has_link && self.function.device16(LINK_AT) & LINK_UP == 0;
        self.down.store(down, Ordering::Relaxed);
    }

    /// Checks the card: an error if it was removed, or works no more.
    pub(super) fn check(&self) -> Result<(), DeviceError> {
        let status = self.function.status()?;
        if status & NEEDS_RESET != 0 {
            return Err(needs_reset());
        }
        if status & DRIVER_OK == 0 {
            return Err(was_reset());
        }
        self.read_link();
        Ok(())
    }

    /// Whether a ring can be reset without the others.
    pub(super) const fn can_restart(&self) -> bool {
        self.features & RING_RESET != 0
    }

    /// Whether the link was down when it was last read.
    pub(super) fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }
}

/// The card says that it met an error from which it does not recover, or a ring says so.
pub(super) fn needs_reset() -> DeviceError {
    let source = io::Error::other("it has broken a ring, or asks for a reset; run it again");
    failed("go on with the virtio device")(source)
}

impl<B: Bus> Stop for Shared<B> {
    type Bus = B;

    fn bus(&self) -> &B {
        &self.function.bus
    }

    fn stop(&self) -> bool {
        match self.function.reset() {
            Ok(()) => true,
            Err(DeviceError::Removed) => {
                // It may still work, if its removal was only requested. If it does not, it accesses
                // nothing, and there is nothing to cut off.
                self.function.bus.start(false).unwrap_or(());
                true
            }
            Err(_) => self.function.bus.start(false).is_ok(),
        }
    }
}

/// The ring for commands (virtio 1.2 §5.1.6.5).
#[derive(Debug)]
pub(super) struct Control {
    ring: Virtqueue,
    doorbell: Doorbell,
    /// Where a command is, behind the ring.
    at: usize,
}

impl Control {
    /// Descriptors of the ring: a command, and its answer.
    pub(super) const SIZE: u16 = 2;
    /// Bytes of its memory behind the ring.
    pub(super) const MORE: usize = 2 * ANSWER_AT + 4;

    pub(super) fn new(ring: Virtqueue, doorbell: Doorbell) -> Self {
        let at = ring.shape().bytes().next_multiple_of(ANSWER_AT);
        Self { ring, doorbell, at }
    }

    /// Sends a command: its class, its number, and what it is about. Waits for the answer.
    /// `action` says what it does.
    pub(super) fn send<B: Bus>(
        &mut self,
        function: &Function<B>,
        command: &[u8],
        action: &'static str,
    ) -> Result<(), DeviceError> {
        let memory = Arc::clone(self.ring.dma());
        memory.store_bytes(self.at, command);
        memory.store(self.at + ANSWER_AT, u32::MAX);
        let address = memory.address() + self.at as u64;
        let command = Buffer::to_read(address, command.len());
        let answer = Buffer::to_write(address + ANSWER_AT as u64, 1);
        self.ring.put([command, answer].into_iter());
        if self.ring.publish() {
            function.notify(self.doorbell);
        }
        let mut waited = Duration::ZERO;
        while self.ring.take().is_none() {
            function.status()?;
            if waited >= COMMAND_MAX {
                return Err(failed(action)(io::ErrorKind::TimedOut.into()));
            }
            function.bus.pause(STEP);
            waited += STEP;
        }
        match memory.load(self.at + ANSWER_AT) as u8 {
            0 => Ok(()),
            _ => Err(failed(action)(io::Error::other("the device refuses it"))),
        }
    }
}
