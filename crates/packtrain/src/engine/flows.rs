//! Sending to all TX queues of a port, each flow to one of them.

use super::handle::{TrySendError, TxHandle};
use super::shared::Closed;
use crate::packet::{Arena, Burst, Packet};
use packtrain_offload::flow::FlowKey;
use packtrain_offload::limits::HEADER_BYTES_MAX;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Sends to all TX queues of a port. Packets of one flow always go to the same queue, so they keep
/// their order.
#[derive(Debug)]
pub struct TxFlows {
    /// Each handle, and the packets of a burst that are for its queue. The bursts are empty between
    /// calls.
    queues: Vec<(TxHandle, Burst)>,
}

impl Clone for TxFlows {
    fn clone(&self) -> Self {
        Self::new(self.queues.iter().map(|(handle, _)| handle.clone()))
    }
}

impl TxFlows {
    pub(super) fn new(handles: impl Iterator<Item = TxHandle>) -> Self {
        Self {
            queues: handles.map(|handle| (handle, Burst::new())).collect(),
        }
    }

    /// The queue of the flow of `packet`: the same for all packets of a flow ([`FlowKey`]) and for
    /// all senders. A packet without a recognizable flow goes to queue 0.
    #[must_use]
    pub fn queue_of(&self, packet: &Packet) -> usize {
        let meta = packet.meta();
        let tag = meta.vlan.map_or(0, |tag| u32::from(tag.control & 0xfff));
        let key = packet.parsed_layout(meta.link).and_then(|layout| {
            let mut copy = [0; HEADER_BYTES_MAX];
            let headers = packet.front(layout.payload.into(), &mut copy);
            FlowKey::new(&layout, headers, tag)
        });
        let count = self.queues.len().max(1) as u64;
        // The upper bits of a multiplicative hash are distributed better than the lower ones.
        key.map_or(0, |key| (((key.hash(0) >> 32) * count) >> 32) as usize)
    }

    /// The arena of the packets. Only packets of this arena may be sent.
    #[must_use]
    pub fn arena(&self) -> Option<&Arena> {
        self.queues.first().map(|(handle, _)| handle.arena())
    }

    /// Takes all packets from `burst` for which there is space, and never waits. The others remain
    /// in the burst, grouped by queue; packets of one flow keep their order.
    ///
    /// # Errors
    ///
    /// If packets remain in the burst: see [`TrySendError`].
    pub fn try_send(&mut self, burst: &mut Burst) -> Result<usize, TrySendError> {
        let before = burst.len();
        while let Some(packet) = burst.pop() {
            let queue = self.queue_of(&packet);
            put(&mut self.queues[queue].1, packet);
        }
        let mut closed = false;
        for (handle, part) in &mut self.queues {
            if !part.is_empty() {
                closed |= handle.try_send(part) == Err(TrySendError::Closed);
            }
            while let Some(packet) = part.pop() {
                put(burst, packet);
            }
        }
        let accepted = before - burst.len();
        match burst.is_empty() {
            true => Ok(accepted),
            false if closed => Err(TrySendError::Closed),
            false => Err(TrySendError::Full { accepted }),
        }
    }

    /// Sends as [`TxFlows::try_send`] does, and waits for space without blocking the thread.
    ///
    /// # Errors
    ///
    /// If the run ends.
    pub async fn send(&mut self, burst: &mut Burst) -> Result<usize, Closed> {
        let all = burst.len();
        loop {
            match self.try_send(burst) {
                Ok(_) => return Ok(all),
                Err(TrySendError::Closed) => return Err(Closed),
                Err(TrySendError::Full { .. }) => {
                    poll_fn(
                        |cx| match self.has_space(burst) || self.wait(burst, cx.waker()) {
                            true => {
                                self.forget();
                                Poll::Ready(())
                            }
                            false => Poll::Pending,
                        },
                    )
                    .await;
                }
            }
        }
    }

    /// Calls [`TxHandle::reclaim`] for all queues.
    pub fn reclaim(&mut self) {
        for (handle, _) in &mut self.queues {
            handle.reclaim();
        }
    }

    /// The queues of a burst that is grouped by queue.
    fn queues_of(&self, burst: &Burst) -> impl Iterator<Item = usize> {
        let mut last = None;
        let queues = burst.iter().map(|packet| self.queue_of(packet));
        queues.filter(move |&queue| last.replace(queue) != Some(queue))
    }

    /// Whether a queue has space for any packet of `burst`, which is grouped by queue, as
    /// [`TxFlows::try_send`] leaves it.
    pub(super) fn has_space(&self, burst: &Burst) -> bool {
        let mut queues = self.queues_of(burst);
        queues.any(|queue| self.queues[queue].0.has_space())
    }

    /// Returns true if a queue has space for any packet of `burst`; else `waker` is woken when one
    /// has.
    pub(super) fn wait(&self, burst: &Burst, waker: &Waker) -> bool {
        // Registers with all queues of the burst, even after one that has space.
        let ready = self
            .queues_of(burst)
            .map(|queue| self.queues[queue].0.wait(waker));
        ready.fold(burst.is_empty(), |any, one| any | one)
    }

    pub(super) fn forget(&self) {
        self.queues.iter().for_each(|(handle, _)| handle.forget());
    }
}

/// Moves a packet to another burst. All bursts together have no more packets than one can hold.
fn put(burst: &mut Burst, packet: Packet) {
    if let Err(packet) = burst.push(packet) {
        drop(packet);
        unreachable!("the packets came from one burst");
    }
}
