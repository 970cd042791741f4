//! How the interrupts of devices reach the workers of a world: a vector for each queue, one for
//! each port, or a line that all ports share.

use crate::line::{Line, LineState, Vectors};
use crate::rig::Rig;
use crate::runtime::VirtualRuntime;
use packtrain::driver::{
    Accepted, Armed, Completed, Driver, Port, QueuePair, Refused, RxDescriptors, Token,
    TxDescriptors, TxPacket, WrapDriver, WrapRx, WrapTx,
};
use packtrain::engine::Action;
use packtrain::packet::Arena;
use packtrain::policy::topology::CpuId;
use packtrain::time::{Clock, Instant};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Wake, Waker};
use std::time::Duration;

impl Rig {
    /// The port with its interrupts wired as `vectors` says. The handlers of shared vectors run on
    /// the last CPU, before all other threads.
    pub fn wire<D: Driver>(&mut self, port: Port<D>, vectors: Vectors) -> Port<Wired<D>> {
        let line = match vectors {
            Vectors::Queue => None,
            Vectors::Port => Some(self.line(Duration::ZERO)),
            Vectors::Shared => {
                let timer = self.world.costs().timer;
                let shared = self.shared.take().unwrap_or_else(|| self.line(timer));
                self.shared = Some(Arc::clone(&shared));
                Some(shared)
            }
        };
        let line = line.map(|line| {
            let port = line.lock().raised.len();
            line.lock().raised.push(false);
            (line, port)
        });
        let wiring = Wiring {
            line,
            runtime: self.world.virtual_runtime(),
            seen: None,
        };
        Port {
            driver: Wired(port.driver, wiring),
            config: port.config,
        }
    }

    /// A line, and its handler.
    fn line(&mut self, timer: Duration) -> Arc<Line> {
        let line = Arc::<Line>::default();
        let (of, charge) = (Arc::clone(&line), self.world.charge());
        let (register, mut next) = (self.world.costs().register, Instant::default());
        let handler = move |now: Instant, own: &Waker| {
            let mut state = of.lock();
            state.handler.get_or_insert_with(|| own.clone());
            if !state.raised.contains(&true) {
                return Action::Sleep { until: None };
            }
            if now < next {
                return Action::Sleep { until: Some(next) };
            }
            next = now.after(timer);
            charge.add(register * state.raised.len() as u32);
            let LineState { raised, queues, .. } = &mut *state;
            let woken = queues.iter().filter(|(port, _)| raised[*port]);
            woken.for_each(|(_, queue)| queue.wake_by_ref());
            raised.fill(false);
            Action::Sleep { until: None }
        };
        let last = CpuId(self.world.cpus() as u16 - 1);
        let handler = self.world.actor(handler, Some(last));
        self.world.set_nice(handler, -20);
        line
    }
}

/// From the queues of a port to their workers.
#[derive(Clone, Debug)]
struct Wiring {
    /// A shared vector, and the number of the port there.
    line: Option<(Arc<Line>, usize)>,
    runtime: Arc<VirtualRuntime>,
    seen: Option<Seen>,
}

/// Gets the time and the first bytes of each packet that a device accepts.
type See = dyn Fn(Instant, &[u8]) + Send + Sync;

#[derive(Clone)]
struct Seen(Arc<See>);

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seen").finish_non_exhaustive()
    }
}

impl Wiring {
    /// What the device calls to interrupt a queue, whose worker `queue` wakes.
    fn source(&self, queue: Waker) -> Waker {
        match &self.line {
            None => queue,
            Some((line, port)) => line.source(*port, queue),
        }
    }
}

/// A driver whose interrupts reach workers as [`Rig::wire`] says. The completions of a device with
/// a rate are interrupts too, when they are there.
#[derive(Debug)]
pub struct Wired<D>(D, Wiring);

impl<D> Wired<D> {
    /// Calls `seen` with the time and the first segment of each packet that the device accepts.
    pub fn watch(&mut self, seen: impl Fn(Instant, &[u8]) + Send + Sync + 'static) {
        self.1.seen = Some(Seen(Arc::new(seen)));
    }
}

/// The receiving half of a queue of [`Wired`].
#[derive(Debug)]
pub struct WiredRx<R>(R, Wiring);

/// The transmitting half of a queue of [`Wired`].
#[derive(Debug)]
pub struct WiredTx<T> {
    inner: T,
    wiring: Wiring,
    due: Arc<Due>,
}

/// The interrupt for completions that a TX queue is armed for.
#[derive(Debug, Default)]
struct Due {
    /// When it is raised, in nanoseconds; 0 while the queue is not armed.
    at: AtomicU64,
    interrupt: OnceLock<Waker>,
}

/// Raises the interrupt at a time, if the queue is still armed for it.
struct Raise(Arc<Due>, u64);

impl Wake for Raise {
    fn wake(self: Arc<Self>) {
        let Self(due, at) = &*self;
        let (set, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        let is_armed = due.at.compare_exchange(*at, 0, set, failed).is_ok();
        if let Some(interrupt) = due.interrupt.get().filter(|_| is_armed) {
            interrupt.wake_by_ref();
        }
    }
}

impl<D: Driver> WrapDriver for Wired<D> {
    type Inner = D;
    type Rx = WiredRx<D::Rx>;
    type Tx = WiredTx<D::Tx>;

    fn inner(&self) -> &D {
        &self.0
    }

    fn inner_mut(&mut self) -> &mut D {
        &mut self.0
    }

    fn wrap(&mut self, _: usize, (rx, tx): QueuePair<D>, _: &Arena) -> (Self::Rx, Self::Tx) {
        let wiring = || self.1.clone();
        let tx = WiredTx {
            inner: tx,
            wiring: wiring(),
            due: Arc::default(),
        };
        (WiredRx(rx, wiring()), tx)
    }
}

impl<R: RxDescriptors> WrapRx for WiredRx<R> {
    type Inner = R;

    fn inner(&self) -> &R {
        &self.0
    }

    fn inner_mut(&mut self) -> &mut R {
        &mut self.0
    }

    fn set_interrupt(&mut self, interrupt: Waker) {
        self.0.set_interrupt(self.1.source(interrupt));
    }
}

impl<T: TxDescriptors> WiredTx<T> {
    /// The inner queue is armed: the time of its event is that of an interrupt.
    fn armed(&self) {
        if let Some(at) = self.inner.next_at() {
            let nanoseconds = at.as_nanos();
            self.due.at.store(nanoseconds, Ordering::Release);
            let raise = Raise(Arc::clone(&self.due), nanoseconds);
            self.wiring.runtime.at(at, Waker::from(Arc::new(raise)));
        }
    }
}

impl<T: TxDescriptors> WrapTx for WiredTx<T> {
    type Inner = T;

    fn inner(&self) -> &T {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    fn encap(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<Accepted, Refused> {
        let accepted = self.inner.encap(packet, token)?;
        if let Some(Seen(seen)) = &self.wiring.seen {
            seen(self.wiring.runtime.now(), packet.packet().first());
        }
        Ok(accepted)
    }

    fn reclaim(&mut self, now: Instant, completed: &mut Completed) {
        self.due.at.store(0, Ordering::Release);
        self.inner.reclaim(now, completed);
    }

    fn set_interrupt(&mut self, interrupt: Waker) {
        let source = self.wiring.source(interrupt);
        self.due.interrupt.get_or_init(|| source.clone());
        self.inner.set_interrupt(source);
    }

    fn arm(&mut self) -> Option<Armed> {
        let armed = self.inner.arm();
        self.armed();
        armed
    }

    fn arm_for(&mut self, packets: usize) -> Option<Armed> {
        let armed = self.inner.arm_for(packets);
        self.armed();
        armed
    }

    fn next_at(&self) -> Option<Instant> {
        None
    }
}
