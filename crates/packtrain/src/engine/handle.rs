//! How an application's threads send: handles to TX queues.

use super::egress::{Closed, Egress, Producer};
use super::handler::Port;
use super::patience::{Looks, Patience};
use crate::driver::TxDescriptors;
use crate::packet::{Arena, Burst, Packet};
use crate::time::{Clock, MonotonicClock};
use packtrain_offload::flow::FlowKey;
use packtrain_offload::layout::Layout;
use packtrain_offload::limits::HEADER_BYTES_MAX;
use std::fmt;
use std::future::poll_fn;
use std::hint::spin_loop;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Why not all packets of a burst were taken. Those that were not are still in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrySendError {
    /// There was no space for all of them: the device is slower than its producers. Wait for
    /// space, or give packets up.
    Full {
        /// Packets that were taken, from the front.
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

/// Why a blocking send gave up. Packets that were not taken are still in the burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// There was not enough space in the given time.
    TimedOut,
    /// The run ends, or has ended.
    Closed,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => f.write_str(
                "the queue took not all packets in time: its device is too slow, or stands still; \
                 wait longer or give them up",
            ),
            Self::Closed => Closed.fmt(f),
        }
    }
}

impl std::error::Error for SendError {}

/// An [`Egress`] of any device. One indirect call for a burst: a handle does not name the device.
trait Path: Send + Sync {
    fn enter(&self) -> Producer;
    fn leave(&self, producer: &Producer);
    fn submit(
        &self,
        producer: &Producer,
        burst: &mut Burst,
        clock: &MonotonicClock,
    ) -> Result<(), Closed>;
    fn reclaim(&self, producer: &Producer, clock: &MonotonicClock);
    /// Says whether there is no need to wait.
    fn wait(&self, producer: &Producer, waker: &Waker) -> bool;
    /// It waits no more, whether it was told or not.
    fn wait_no_more(&self, producer: &Producer);
    fn may_send(&self) -> bool;
    /// Packets that were taken out of the ring in front of the queue since it was made; none where
    /// the device takes no more.
    fn items_taken(&self) -> Option<u64>;
}

impl<T: TxDescriptors> Path for Egress<T> {
    fn enter(&self) -> Producer {
        self.producer(false)
    }

    fn leave(&self, producer: &Producer) {
        self.retire(producer);
    }

    fn submit(
        &self,
        producer: &Producer,
        burst: &mut Burst,
        clock: &MonotonicClock,
    ) -> Result<(), Closed> {
        Self::submit(self, producer, burst, &|| clock.now())
    }

    fn reclaim(&self, producer: &Producer, clock: &MonotonicClock) {
        Self::reclaim(self, producer, &|| clock.now());
    }

    fn wait(&self, producer: &Producer, waker: &Waker) -> bool {
        Self::wait(self, producer, waker);
        self.may_send()
    }

    fn wait_no_more(&self, producer: &Producer) {
        Self::wait_no_more(self, producer);
    }

    fn may_send(&self) -> bool {
        self.has_room() || self.is_left() || self.is_shut()
    }

    fn items_taken(&self) -> Option<u64> {
        Self::items_taken(self)
    }
}

/// The TX queues of two joined ports, to make handles from.
#[derive(Clone)]
pub struct TxHandles {
    ports: [Arc<[Arc<dyn Path>]>; 2],
    arena: Arena,
}

impl fmt::Debug for TxHandles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queues = [self.ports[0].len(), self.ports[1].len()];
        f.debug_struct("TxHandles")
            .field("queues", &queues)
            .finish_non_exhaustive()
    }
}

impl TxHandles {
    pub(super) fn new<A, B>(a: &[Arc<Egress<A>>], b: &[Arc<Egress<B>>], arena: &Arena) -> Self
    where
        A: TxDescriptors + 'static,
        B: TxDescriptors + 'static,
    {
        fn paths<T: TxDescriptors + 'static>(all: &[Arc<Egress<T>>]) -> Arc<[Arc<dyn Path>]> {
            let path = |egress: &Arc<Egress<T>>| Arc::clone(egress) as Arc<dyn Path>;
            all.iter().map(path).collect()
        }
        Self {
            ports: [paths(a), paths(b)],
            arena: arena.clone(),
        }
    }

    /// TX queues of a port.
    #[must_use]
    pub fn queues(&self, port: Port) -> usize {
        self.ports[port.index()].len()
    }

    /// A handle to one TX queue; `None` for a queue that the port does not have.
    #[must_use]
    pub fn queue(&self, port: Port, queue: usize) -> Option<TxHandle> {
        let path = self.ports[port.index()].get(queue)?;
        Some(TxHandle::new(path, &self.arena))
    }

    /// Handles to all TX queues of a port, of which each flow has one.
    #[must_use]
    pub fn flows(&self, port: Port) -> TxFlows {
        let paths = self.ports[port.index()].iter();
        TxFlows {
            queues: paths
                .map(|path| (TxHandle::new(path, &self.arena), Burst::new()))
                .collect(),
        }
    }
}

/// Sends to one TX queue, from any thread, beside its worker and other handles.
///
/// A handle is for one thread at a time; a clone has counters of its own, for another thread. Each
/// that exists counts as a thread that sends, whether it does or not: `dispatch=adaptive` leaves it
/// a CPU, and takes a queue with two for one where producers contend, and a worker spins only where
/// a core is left beside them, and naps in the way of as many as there are CPUs. A thread with a
/// handle to each of several queues counts as several. Drop what is not needed. What it sends keeps
/// its order. Where the ring in front of the queue is idle, or was left by another
/// thread that has sent enough for others, the calling thread gives the packets to the device
/// itself, as `dispatch=` says: what is in the ring, up to a budget; the only handle that there is
/// sends all of it where the worker sleeps. It never waits but in
/// [`TxHandle::send_blocking`]. While there is a handle, a worker that polls pauses for a
/// microsecond or two between looks, at what it receives, too.
///
/// Handles may outlive the run. They are told [`TrySendError::Closed`] then.
pub struct TxHandle {
    path: Arc<dyn Path>,
    producer: Producer,
    arena: Arena,
    clock: MonotonicClock,
    patience: Patience,
}

impl fmt::Debug for TxHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxHandle")
            .field("producer", &self.producer)
            .finish_non_exhaustive()
    }
}

impl Clone for TxHandle {
    fn clone(&self) -> Self {
        Self::new(&self.path, &self.arena)
    }
}

impl Drop for TxHandle {
    fn drop(&mut self) {
        self.path.leave(&self.producer);
    }
}

/// Wakes a thread that waits for space.
struct Unpark(Thread);

thread_local! {
    /// Of the thread: made once, so that it can wait without allocating.
    static UNPARK: Waker = Waker::from(Arc::new(Unpark(thread::current())));
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl TxHandle {
    fn new(path: &Arc<dyn Path>, arena: &Arena) -> Self {
        Self {
            producer: path.enter(),
            path: Arc::clone(path),
            arena: arena.clone(),
            clock: MonotonicClock::new(),
            patience: Patience::default(),
        }
    }

    /// Where packets come from. Only packets of this arena may be sent.
    #[must_use]
    pub const fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Takes packets from the front of `burst`, all if there is space for them, and never waits.
    /// Says how many: all.
    ///
    /// Packets that were taken count as generated; each is transmitted or counted as dropped, also
    /// when the run ends.
    ///
    /// # Errors
    ///
    /// When some could not be taken; they are still in the burst.
    pub fn try_send(&mut self, burst: &mut Burst) -> Result<usize, TrySendError> {
        let before = burst.len();
        let sent = self.path.submit(&self.producer, burst, &self.clock);
        sent.map_err(|Closed| TrySendError::Closed)?;
        let accepted = before - burst.len();
        if burst.is_empty() {
            Ok(accepted)
        } else {
            Err(TrySendError::Full { accepted })
        }
    }

    /// As [`TxHandle::try_send`], and waits for space at most as long as `timeout`.
    ///
    /// # Errors
    ///
    /// When the time is over or the run ends; packets that were not taken are still in the burst.
    pub fn send_blocking(
        &mut self,
        burst: &mut Burst,
        timeout: Duration,
    ) -> Result<usize, SendError> {
        block_on_space(self, burst, timeout)
    }

    /// Whether there is space for at least one packet, or else has the task of `cx` woken when
    /// there may be. What is ready now may be full again when another producer was faster. After
    /// the end of the run it is ready: sending says so.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.path.may_send() || self.path.wait(&self.producer, cx.waker()) {
            // Or it might be told in the place of one that waits.
            self.path.wait_no_more(&self.producer);
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// As [`TxHandle::try_send`], and waits for space without blocking the thread. It needs no
    /// particular runtime. A future that is dropped leaves what was not taken in the burst.
    ///
    /// # Errors
    ///
    /// When the run ends.
    pub async fn send(&mut self, burst: &mut Burst) -> Result<usize, Closed> {
        wait_for_space(self, burst).await
    }

    /// Frees packets that the device is done with, if nobody else works the queue now. Sending does
    /// so too: this is for who waits for buffers of the [`arena`](TxHandle::arena), or for room in
    /// the device: what waits for that goes on, where `dispatch=` has producers send. When the run
    /// ends it does nothing: the run itself frees everything then.
    pub fn reclaim(&mut self) {
        self.path.reclaim(&self.producer, &self.clock);
    }
}

/// What can wait for space: a handle to one queue, or to all of a port.
pub(super) trait Waits {
    fn try_send(&mut self, burst: &mut Burst) -> Result<usize, TrySendError>;
    /// Whether there is space for any of `burst`, or it need not be waited for.
    fn has_space(&self, burst: &Burst) -> bool;
    /// How to look for space for `burst`.
    fn looks(&mut self, burst: &Burst) -> Looks;
    /// Has `waker` woken when there may be space for any of `burst`. True if there is already.
    fn wait(&self, burst: &Burst, waker: &Waker) -> bool;
    /// Nothing waits any more, told or not: it might be told in the place of one that waits.
    fn wait_no_more(&self);
}

impl Waits for TxHandle {
    fn try_send(&mut self, burst: &mut Burst) -> Result<usize, TrySendError> {
        Self::try_send(self, burst)
    }

    fn has_space(&self, _burst: &Burst) -> bool {
        self.path.may_send()
    }

    fn looks(&mut self, _burst: &Burst) -> Looks {
        let now = self.clock.now();
        self.patience.looks(now, self.path.items_taken())
    }

    fn wait(&self, _burst: &Burst, waker: &Waker) -> bool {
        self.path.wait(&self.producer, waker)
    }

    fn wait_no_more(&self) {
        self.path.wait_no_more(&self.producer);
    }
}

/// [`spin_loop`]s between two looks, which take a microsecond or two: each look costs the consumer
/// a cache line.
const PAUSES: u32 = 30;

/// Sends all of `burst` and says how many that was, or waits for space until the time is over. It
/// looks for space ([`Patience`]), lets others run, a few times, and sleeps.
///
/// The consumer is at work, or has to get a CPU: to be there when it has made space is cheaper than
/// to be woken, for both. A thread that is woken is also often put on the CPU of who woke it, and
/// then producer and consumer take turns on one CPU while another has nothing to do.
fn block_on_space(
    sender: &mut impl Waits,
    burst: &mut Burst,
    timeout: Duration,
) -> Result<usize, SendError> {
    let all = burst.len();
    // `None`: there is not enough space.
    let send = |sender: &mut _, burst: &mut Burst| match Waits::try_send(sender, burst) {
        Ok(_all) => Some(Ok(all)),
        Err(TrySendError::Closed) => Some(Err(SendError::Closed)),
        Err(TrySendError::Full { .. }) => None,
    };
    if let Some(done) = send(sender, burst) {
        return done;
    }
    let end = Instant::now().checked_add(timeout);
    let left = || end.map(|end| end.saturating_duration_since(Instant::now()));
    let looks = sender.looks(burst);
    'yields: for _ in 0..looks.times {
        let begin = Instant::now();
        while begin.elapsed() < looks.time {
            if left().is_some_and(|left| left.is_zero()) {
                break 'yields;
            }
            for _ in 0..PAUSES {
                spin_loop();
            }
            if sender.has_space(burst)
                && let Some(done) = send(sender, burst)
            {
                return done;
            }
        }
        thread::yield_now();
    }
    let waker = UNPARK.with(Waker::clone);
    let mut waits = false;
    let done = loop {
        if let Some(done) = send(sender, burst) {
            break done;
        }
        // It has to be known to whoever makes space by the time of the last attempt before it
        // sleeps.
        waits = true;
        sender.wait(burst, &waker);
        if let Some(done) = send(sender, burst) {
            break done;
        }
        match left() {
            None => thread::park(),
            Some(left) if left.is_zero() => break Err(SendError::TimedOut),
            Some(left) => thread::park_timeout(left),
        }
    };
    if waits {
        sender.wait_no_more();
    }
    done
}

/// Sends all of `burst` and says how many that was; its task sleeps where there is no space.
async fn wait_for_space(sender: &mut impl Waits, burst: &mut Burst) -> Result<usize, Closed> {
    let all = burst.len();
    loop {
        match sender.try_send(burst) {
            Ok(_all) => return Ok(all),
            Err(TrySendError::Closed) => return Err(Closed),
            Err(TrySendError::Full { .. }) => poll_fn(|cx| poll_space(sender, burst, cx)).await,
        }
    }
}

/// Ready where there is space for any of `burst`, or the task of `cx` is woken when there may be.
fn poll_space(sender: &impl Waits, burst: &Burst, cx: &mut Context<'_>) -> Poll<()> {
    if sender.has_space(burst) || sender.wait(burst, cx.waker()) {
        sender.wait_no_more();
        Poll::Ready(())
    } else {
        Poll::Pending
    }
}

/// Sends to all TX queues of a port: packets of one flow always to the same one, so that they keep
/// their order.
#[derive(Debug)]
pub struct TxFlows {
    /// The handles, and what of a burst is for each; empty between calls.
    queues: Vec<(TxHandle, Burst)>,
}

impl Clone for TxFlows {
    fn clone(&self) -> Self {
        let queues = self.queues.iter();
        Self {
            queues: queues
                .map(|(handle, _)| (handle.clone(), Burst::new()))
                .collect(),
        }
    }
}

impl TxFlows {
    /// The queue that the flow of `packet` has. Always the same for packets of one flow
    /// ([`FlowKey`]), whoever sends them; packets that belong to no flow that can be told have
    /// queue 0.
    #[must_use]
    pub fn queue_of(&self, packet: &Packet) -> usize {
        let first = packet.first();
        let layout = packet.meta().layout;
        let headers = layout.map_or(HEADER_BYTES_MAX, |layout| usize::from(layout.payload));
        if first.len() >= headers.min(packet.bytes()) {
            return self.queue_by(packet, first);
        }
        // They go on in the next segment, or may.
        let mut copy = [0; HEADER_BYTES_MAX];
        let bytes = packet.copy_to(&mut copy);
        self.queue_by(packet, &copy[..bytes])
    }

    /// As [`TxFlows::queue_of`], of a packet with these headers.
    fn queue_by(&self, packet: &Packet, headers: &[u8]) -> usize {
        let meta = packet.meta();
        let tag = meta.vlan.map_or(0, |tag| u32::from(tag.control & 0xfff));
        let layout = meta
            .layout
            .or_else(|| Layout::parse(meta.link, headers, packet.bytes() as u32).ok());
        let key = layout.and_then(|layout| FlowKey::new(&layout, headers, tag));
        let count = self.queues.len().max(1) as u64;
        // The upper bits: those of a multiplicative hash are the better ones.
        key.map_or(0, |key| (((key.hash(0) >> 32) * count) >> 32) as usize)
    }

    /// Where packets come from.
    #[must_use]
    pub fn arena(&self) -> Option<&Arena> {
        self.queues.first().map(|(handle, _)| handle.arena())
    }

    /// Takes packets from `burst`, all for which there is space, and never waits. What is left
    /// is in the burst, by queue; packets of one flow are in order.
    ///
    /// # Errors
    ///
    /// When some could not be taken: they are still in the burst.
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

    /// As [`TxFlows::try_send`], and waits for space at most as long as `timeout`.
    ///
    /// # Errors
    ///
    /// When the time is over or the run ends; packets that were not taken are still in the burst.
    pub fn send_blocking(
        &mut self,
        burst: &mut Burst,
        timeout: Duration,
    ) -> Result<usize, SendError> {
        block_on_space(self, burst, timeout)
    }

    /// As [`TxFlows::try_send`], and waits for space without blocking the thread.
    ///
    /// # Errors
    ///
    /// When the run ends.
    pub async fn send(&mut self, burst: &mut Burst) -> Result<usize, Closed> {
        wait_for_space(self, burst).await
    }

    /// The queues of a burst which is by queue.
    fn queues_of(&self, burst: &Burst) -> impl Iterator<Item = usize> {
        let mut last = None;
        let queues = burst.iter().map(|packet| self.queue_of(packet));
        queues.filter(move |&queue| last.replace(queue) != Some(queue))
    }

    /// As [`TxHandle::reclaim`], of all queues.
    pub fn reclaim(&mut self) {
        for (handle, _) in &mut self.queues {
            handle.reclaim();
        }
    }
}

/// Of a burst which is by queue, as [`TxFlows::try_send`] leaves it.
impl Waits for TxFlows {
    fn try_send(&mut self, burst: &mut Burst) -> Result<usize, TrySendError> {
        Self::try_send(self, burst)
    }

    fn has_space(&self, burst: &Burst) -> bool {
        let mut queues = self.queues_of(burst);
        queues.any(|queue| self.queues[queue].0.has_space(burst))
    }

    /// The longest of the queues that have no space.
    fn looks(&mut self, burst: &Burst) -> Looks {
        let handles = self.queues.iter_mut().map(|(handle, _)| handle);
        let full = handles.filter(|handle| !handle.has_space(burst));
        let longest = full.map(|handle| handle.looks(burst)).max();
        longest.unwrap_or(Looks::SHORT)
    }

    fn wait(&self, burst: &Burst, waker: &Waker) -> bool {
        let mut ready = burst.is_empty();
        // At every queue that something waits for, also where one has space: the one that goes on
        // first waits for no other, and who sleeps is woken by nobody it is not known to.
        for queue in self.queues_of(burst) {
            ready |= self.queues[queue].0.wait(burst, waker);
        }
        ready
    }

    fn wait_no_more(&self) {
        for (handle, _) in &self.queues {
            handle.wait_no_more();
        }
    }
}

/// Moves a packet between bursts that together never have more than one of them holds.
fn put(burst: &mut Burst, packet: Packet) {
    if let Err(packet) = burst.push(packet) {
        drop(packet);
        unreachable!("they came from one burst");
    }
}
