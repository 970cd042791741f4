//! The card of a port, and what the halves of its queues share.

use super::area::{Area, has_stopped};
use super::registers::{self as reg, BAR, QUEUES_BAR, command, event};
use crate::driver::{DeviceCounters, DeviceError, Link};
use crate::port::card::{Bus, LastLink, Stop, failed, was_reset, write_barrier};
use crate::time::Instant;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The time between two checks of a card that is idle, while its link is up and while it is down.
const UP_INTERVAL: Duration = Duration::from_secs(1);
const DOWN_INTERVAL: Duration = Duration::from_millis(100);

/// The card.
#[derive(Debug)]
pub(super) struct Card<B> {
    pub(super) bus: B,
    /// The link as checked last.
    pub(super) link: LastLink,
    /// Held from a command to its result.
    commands: Mutex<()>,
}

impl<B: Bus> Card<B> {
    pub(super) fn new(bus: B) -> Self {
        Self {
            bus,
            link: LastLink::default(),
            commands: Mutex::default(),
        }
    }

    /// Executes a command, and returns its result.
    pub(super) fn command(&self, command: u32) -> u32 {
        let held = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        self.bus.write32(BAR, reg::COMMAND, command);
        let result = self.bus.read32(BAR, reg::COMMAND);
        drop(held);
        result
    }

    /// Reads the state of the link.
    pub(super) fn check(&self) -> Link {
        let state = self.command(command::LINK);
        self.link.set(&self.bus, state, 1)
    }

    /// Has the card write its counters, and returns whether it did so: one that was reset does not,
    /// and its counters stay as they were.
    pub(super) fn count(&self, area: &Area) -> (bool, DeviceCounters) {
        let held = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        area.mark();
        write_barrier();
        self.bus.write32(BAR, reg::COMMAND, command::COUNTERS);
        // It has arrived once another register is read: QEMU knows no result of this command.
        self.bus.read32(BAR, reg::MAC_LOW);
        let runs = !area.is_marked();
        let counters = area.counters();
        drop(held);
        (runs, counters)
    }

    /// Lets an interrupt come.
    pub(super) fn unmask(&self, number: usize) {
        self.bus.write32(QUEUES_BAR, reg::imr(number), 0);
    }

    /// Has the card lower its line.
    pub(super) fn acknowledge(&self) {
        self.bus.read32(BAR, reg::ICR);
        self.bus.unmask();
    }

    /// Ends interrupts and DMA, and forgets the queues.
    ///
    /// # Errors
    ///
    /// If the system does not end the card's access to memory: then it may still write to it.
    pub(super) fn stop(&self) -> io::Result<()> {
        self.command(command::QUIESCE);
        // A reset leaves the line as it is.
        self.bus.read32(BAR, reg::ICR);
        self.command(command::RESET);
        self.bus.start(false)
    }
}

/// A card with its queues.
#[derive(Debug)]
pub(super) struct Shared<B: Bus> {
    pub(super) card: Arc<Card<B>>,
    pub(super) area: Area,
}

impl<B: Bus> Shared<B> {
    /// Handles what the card reports.
    pub(super) fn handle(&self, events: u32) -> Result<(), DeviceError> {
        self.card.bus.write32(BAR, reg::EVENTS, events);
        if events & event::LINK != 0 && self.card.check() == Link::Removed {
            return Err(DeviceError::Removed);
        }
        if has_stopped(events) {
            self.card.command(command::QUEUE_STATUS);
            if let Some(error) = self.area.queue_error() {
                let source = format!("it has stopped a queue for the error {error:#x}; run again");
                return Err(failed("go on with the card")(io::Error::other(source)));
            }
        }
        Ok(())
    }

    /// Checks whether the card runs, and its link. Returns when to do so again.
    pub(super) fn recheck(&self, now: Instant) -> Result<Instant, DeviceError> {
        let interval = match self.card.check() {
            Link::Up => UP_INTERVAL,
            Link::Down => DOWN_INTERVAL,
            Link::Removed => return Err(DeviceError::Removed),
        };
        // Nothing else tells a card that was reset from one that has no packets.
        let (runs, _) = self.card.count(&self.area);
        match runs || self.card.check() == Link::Removed {
            true => Ok(now.after(interval)),
            false => Err(was_reset()),
        }
    }
}

impl<B: Bus> Stop for Shared<B> {
    type Bus = B;

    fn bus(&self) -> &B {
        &self.card.bus
    }

    fn stop(&self) -> bool {
        self.card.count(&self.area);
        self.card.stop().is_ok() || self.card.bus.is_removed()
    }
}
