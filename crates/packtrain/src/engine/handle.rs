//! Handles with which application threads send to one shared TX queue.

#[cfg(feature = "internals")]
use super::shared::HalfSend;
use super::shared::{Closed, Producer, Submit};
use crate::packet::{Arena, Burst};
#[cfg(feature = "internals")]
use crate::policy::dispatch::RingState;
use crate::runtime::Runtime;
use crate::time::Instant;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Why a queue did not accept all packets of a burst. Packets that were not accepted remain in the
/// burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrySendError {
    /// There was not enough space: the device is slower than its producers. Wait for space, or drop
    /// packets.
    Full {
        /// Packets that were accepted, from the front.
        accepted: usize,
    },
    /// The run ends, or has ended.
    Closed,
}

impl fmt::Display for TrySendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { accepted } => write!(
                f,
                "the queue is full after {accepted} packets: wait for space and send the others"
            ),
            Self::Closed => Closed.fmt(f),
        }
    }
}

impl std::error::Error for TrySendError {}

/// Why a blocking send ended early. Packets that were not accepted remain in the burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// There was not enough space before the timeout.
    TimedOut {
        /// Packets that were accepted, from the front.
        accepted: usize,
    },
    /// The run ends, or has ended.
    Closed,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut { accepted } => write!(
                f,
                "the queue accepted {accepted} packets before the timeout: the device is slow or \
                 stalled. Increase the timeout or drop the rest"
            ),
            Self::Closed => Closed.fmt(f),
        }
    }
}

impl std::error::Error for SendError {}

/// Sends to one TX queue, from any thread, beside lanes and other handles.
///
/// A handle is for one thread at a time; a clone is another producer, for another thread. Packets
/// of one handle keep their order. Under `dispatch=direct` and `adaptive`, if the ring has no
/// consumer, the calling thread gives the packets to the device itself, and up to 256 packets of
/// other producers, too. Only [`TxHandle::send_blocking`] blocks the thread.
///
/// A handle may outlive the run. It returns [`TrySendError::Closed`] then.
pub struct TxHandle {
    to: Arc<dyn Submit>,
    own: Producer,
    arena: Arena,
    runtime: Arc<dyn Runtime>,
}

impl fmt::Debug for TxHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxHandle")
            .field("producer", &self.own)
            .finish_non_exhaustive()
    }
}

impl Clone for TxHandle {
    fn clone(&self) -> Self {
        Self::new(&self.to, &self.arena, &self.runtime)
    }
}

impl Drop for TxHandle {
    fn drop(&mut self) {
        self.to.leave(&self.own);
    }
}

impl TxHandle {
    pub(super) fn new(to: &Arc<dyn Submit>, arena: &Arena, runtime: &Arc<dyn Runtime>) -> Self {
        Self {
            own: to.enter(),
            to: Arc::clone(to),
            arena: arena.clone(),
            runtime: Arc::clone(runtime),
        }
    }

    /// The arena of the packets. Only packets of this arena may be sent.
    #[must_use]
    pub const fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Takes packets from the front of `burst`, as many as there is space for, and never waits.
    /// Returns their number if all were accepted.
    ///
    /// Accepted packets count as generated. Each is transmitted or counted as dropped, even if the
    /// run ends.
    ///
    /// # Errors
    ///
    /// If packets remain in the burst: see [`TrySendError`].
    pub fn try_send(&mut self, burst: &mut Burst) -> Result<usize, TrySendError> {
        let clock: &dyn Fn() -> Instant = &|| self.runtime.now();
        let before = burst.len();
        let sent = self.to.put(&self.own, burst, clock);
        Self::result(sent, before, burst)
    }

    pub(super) fn result(
        sent: Result<(), Closed>,
        before: usize,
        burst: &Burst,
    ) -> Result<usize, TrySendError> {
        sent.map_err(|Closed| TrySendError::Closed)?;
        let accepted = before - burst.len();
        if burst.is_empty() {
            Ok(accepted)
        } else {
            Err(TrySendError::Full { accepted })
        }
    }

    /// Ready if there is space for at least one packet; else the task of `cx` is woken when there
    /// is. Another producer may take the space first. After the end of the run it is ready, and
    /// sending returns `Closed`.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_space() || self.wait(cx.waker()) {
            self.forget();
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Sends as [`TxHandle::try_send`] does, and waits for space without blocking the thread, in
    /// any async runtime. If the future is dropped, packets that were not accepted remain in the
    /// burst.
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
                Err(TrySendError::Full { .. }) => poll_fn(|cx| self.poll_ready(cx)).await,
            }
        }
    }

    /// Frees packets that the device has completed, if no other thread uses the queue now and the
    /// dispatch mode lets producers drain. Sending does so, too: this is for a thread that waits
    /// for buffers of the [`arena`](TxHandle::arena).
    pub fn reclaim(&mut self) {
        self.to.reclaim(&self.own, &|| self.runtime.now());
    }

    /// The first half of [`TxHandle::try_send`]: reserves slots for the packets of `burst`, or
    /// claims the consumer role. A test that lets time pass before the second half preempts the
    /// producer there. `None` if the burst is empty, or the queue is full or closed.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    pub fn begin_send(&mut self, burst: &Burst) -> Option<HalfSend> {
        self.to
            .begin(&self.own, burst.len(), &|| self.runtime.now())
    }

    /// The second half of [`TxHandle::try_send`], with the burst and the handle of the first.
    ///
    /// # Errors
    ///
    /// As `try_send`.
    ///
    /// # Panics
    ///
    /// If the first half was for another queue, or for more packets.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    pub fn finish_send(
        &mut self,
        half: HalfSend,
        burst: &mut Burst,
    ) -> Result<usize, TrySendError> {
        let before = burst.len();
        let clock: &dyn Fn() -> Instant = &|| self.runtime.now();
        let sent = self.to.finish(&self.own, half, burst, clock);
        Self::result(sent, before, burst)
    }

    /// The state of the ring in front of the TX queue.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    #[must_use]
    pub fn ring_state(&self) -> RingState {
        self.to.state()
    }

    /// Whether the queue has space for a packet now. Another producer may use it first.
    #[must_use]
    pub fn has_space(&self) -> bool {
        self.to.has_space(&self.own)
    }

    /// Returns true if there is space; else `waker` is woken when there is.
    pub(super) fn wait(&self, waker: &Waker) -> bool {
        self.to.wait(&self.own, waker)
    }

    pub(super) fn forget(&self) {
        self.to.forget(&self.own);
    }
}
