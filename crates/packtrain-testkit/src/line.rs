//! The lines by which devices interrupt the CPUs of a world.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// How interrupts reach workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Vectors {
    /// MSI-X: each queue has a vector, which wakes its worker.
    #[default]
    Queue,
    /// MSI: a port has one vector. Its handler reads the cause, and wakes the workers of all queues
    /// of the port.
    Port,
    /// INTx: all ports share a line. Its handler reads the cause of each port, and wakes the
    /// workers of all queues of those that raised it. Then there is no other interrupt for
    /// [`Costs::timer`](crate::Costs::timer).
    Shared,
}

impl Vectors {
    pub(crate) const NAMES: [(&'static str, Self); 3] = [
        ("msix", Self::Queue),
        ("msi", Self::Port),
        ("intx", Self::Shared),
    ];
}

/// The line of one or several ports.
#[derive(Debug, Default)]
pub(crate) struct Line {
    state: Mutex<LineState>,
}

#[derive(Debug, Default)]
pub(crate) struct LineState {
    /// Whether each port has raised it.
    pub(crate) raised: Vec<bool>,
    /// The queues of the ports.
    pub(crate) queues: Vec<(usize, Waker)>,
    pub(crate) handler: Option<Waker>,
}

impl Line {
    pub(crate) fn lock(&self) -> MutexGuard<'_, LineState> {
        // A panic leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the device of `port` calls to interrupt a queue, whose worker `queue` wakes.
    pub(crate) fn source(self: &Arc<Self>, port: usize, queue: Waker) -> Waker {
        self.lock().queues.push((port, queue));
        Waker::from(Arc::new(Source {
            line: Arc::clone(self),
            port,
        }))
    }
}

/// The end of a line at a port.
struct Source {
    line: Arc<Line>,
    port: usize,
}

impl Wake for Source {
    fn wake(self: Arc<Self>) {
        let handler = {
            let mut state = self.line.lock();
            state.raised[self.port] = true;
            state.handler.clone()
        };
        if let Some(handler) = handler {
            handler.wake();
        }
    }
}
