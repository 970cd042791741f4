//! A card that runs, and its link.

use super::{Bus, Dma, Fanout, Interrupt, InterruptKind, Window, failed};
use crate::driver::{DeviceError, Link};
use crate::packet::{Arena, Packet};
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The link of a card as it was read last; up at first.
#[derive(Debug, Default)]
pub(in crate::port) struct LastLink(AtomicU8);

impl LastLink {
    const LINKS: [Link; 3] = [Link::Up, Link::Down, Link::Removed];

    /// Stores what a register says, which is all ones once the card is removed, and whose bit `up`
    /// is set while the link is up. What was stored before is visible with it.
    pub(in crate::port) fn set(&self, bus: &impl Bus, register: u32, up: u32) -> Link {
        let link = if register == u32::MAX || bus.is_removed() {
            Link::Removed
        } else if register & up == 0 {
            Link::Down
        } else {
            Link::Up
        };
        self.0.store(link as u8, Ordering::Release);
        link
    }

    pub(in crate::port) fn get(&self) -> Link {
        let link = usize::from(self.0.load(Ordering::Acquire));
        Self::LINKS[link.min(Self::LINKS.len() - 1)]
    }
}

/// A card that can be stopped.
pub(in crate::port) trait Stop: fmt::Debug {
    type Bus: Bus;

    fn bus(&self) -> &Self::Bus;

    /// Ends its interrupts and its access to memory. Returns false if it may still write.
    fn stop(&self) -> bool;
}

/// What a card may access until it is stopped: frames of an RX half that was dropped, and memory of
/// a ring.
type Kept = (Box<[Option<Packet>]>, Option<Arc<Dma>>);

/// A card that runs, which the halves of its queues share. The last one that is dropped stops it,
/// before frames are freed that it may write to.
#[derive(Debug)]
pub(in crate::port) struct Running<C: Stop> {
    inner: C,
    kind: InterruptKind,
    /// Passes an interrupt on to all halves.
    fanout: Option<Fanout>,
    kept: Mutex<Vec<Kept>>,
}

/// A card that runs, the addresses of packets for it, and an interrupt for RX and TX of each queue.
pub(in crate::port) type Started<C> = (Arc<Running<C>>, Window, Vec<[Interrupt; 2]>);

impl<C: Stop> Running<C> {
    /// Gives the card the memory of packets, and connects an interrupt for each half of so many
    /// queues, as [`Fanout::connect`] does.
    ///
    /// # Errors
    ///
    /// The system's. The card is stopped then.
    pub(in crate::port) fn start(
        card: C,
        kind: InterruptKind,
        queues: usize,
        arena: &Arena,
        has_others: bool,
        acknowledge: impl FnMut() + Send + 'static,
    ) -> Result<Started<C>, DeviceError> {
        let mut running = Self {
            inner: card,
            kind,
            fanout: None,
            kept: Mutex::default(),
        };
        let bus = running.inner.bus();
        let window =
            Window::new(bus, arena).map_err(failed("give the card the packets' memory"))?;
        let halves = Interrupt::several(2 * queues).map_err(failed("open an eventfd"))?;
        let fanout = Fanout::connect(bus, kind, &halves, has_others, acknowledge);
        running.fanout = fanout.map_err(failed("connect the interrupts"))?;
        Ok((Arc::new(running), window, halves.as_chunks().0.to_vec()))
    }

    pub(in crate::port) const fn kind(&self) -> InterruptKind {
        self.kind
    }

    /// Whether an interrupt is passed on to all halves.
    pub(in crate::port) const fn has_fanout(&self) -> bool {
        self.fanout.is_some()
    }

    /// Keeps the frames of a half that is dropped, and memory, until the card is stopped.
    pub(in crate::port) fn keep(&self, frames: Box<[Option<Packet>]>, memory: Option<&Arc<Dma>>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push((frames, memory.cloned()));
    }
}

impl<C: Stop> Deref for Running<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.inner
    }
}

impl<C: Stop> Drop for Running<C> {
    fn drop(&mut self) {
        // It would let an interrupt come again.
        drop(self.fanout.take());
        let is_stopped = self.inner.stop();
        // Its interrupts end with the bus at the latest.
        self.inner.bus().connect(self.kind, &[]).unwrap_or(());
        if !is_stopped {
            // It may write to them for ever.
            let kept = self.kept.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(kept).into_iter().for_each(std::mem::forget);
        }
    }
}
