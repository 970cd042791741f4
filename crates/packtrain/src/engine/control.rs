//! Commands to queues while a session runs: pause, resume, reset.
//!
//! The worker that has the queue carries a command out in its next step. The sender puts the
//! command into the worker's mailbox and notifies the worker. A worker without commands reads one
//! flag in each step, so no packet pays for commands.

use crate::driver::{DeviceError, TxDescriptors};
use crate::queue::TxQueue;
use crate::runtime::Wakeup;
use crate::stats::QueueId;
use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering};
use crate::time::Instant;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, PoisonError};

/// A command to a queue while it runs. It is valid at any time: with packets in the device, in a
/// stall, with the link down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Stops the queue until [`Command::Resume`]. A queue that is paused stays paused.
    ///
    /// A paused TX queue gives no more packets to its device. The device still sends the packets
    /// that it has, and the queue collects them. Packets submitted to a shared queue wait in the
    /// ring. If the ring is full, `try_send` returns `Full` and other sends wait. RX queues that
    /// send there are not polled. The pause counts as one stall (`stall_flush`).
    ///
    /// Among several ports ([`Session::among`](super::Session::among)) a pause loses packets: those
    /// for which the ring of the paused TX queue has no space are dropped, as `drop.egress_full`.
    ///
    /// A paused RX queue is not polled and wakes no worker. Packets wait in its device, which drops
    /// those for which it has no space. Packets received before the pause, including those held by
    /// the coalescer, go to their TX queue before the command returns. If the TX queue does not
    /// accept them, they follow later.
    ///
    /// The end of the run overrides a pause: a TX queue sends its waiting packets, and an RX queue
    /// receives nothing more.
    Pause,
    /// Ends a [`Command::Pause`]. Packets that waited go first. A queue that is not paused does not
    /// change.
    Resume,
    /// Stops a TX queue in its device and restarts it empty
    /// ([`TxDescriptors::reset`](crate::driver::TxDescriptors::reset)). Packets that the device had
    /// not sent go out again, first and in order. A queue that is paused stays paused. RX queues
    /// cannot be reset.
    Reset,
}

/// One half of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueKind {
    Rx,
    Tx,
}

/// The queues that a [`Command`] is for: RX or TX, of one port. Ports and queues are counted from
/// 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues {
    half: QueueKind,
    port: usize,
    /// `None`: all.
    queue: Option<usize>,
}

impl Queues {
    /// All RX queues of a port.
    #[must_use]
    pub const fn rx(port: usize) -> Self {
        Self {
            half: QueueKind::Rx,
            port,
            queue: None,
        }
    }

    /// All TX queues of a port.
    #[must_use]
    pub const fn tx(port: usize) -> Self {
        Self {
            half: QueueKind::Tx,
            port,
            queue: None,
        }
    }

    /// Restricts them to one queue.
    #[must_use]
    pub const fn only(self, queue: usize) -> Self {
        Self {
            queue: Some(queue),
            ..self
        }
    }

    /// Whether these include a queue.
    pub(super) fn has(self, half: QueueKind, id: QueueId) -> bool {
        let of_port = half == self.half && usize::from(id.port) == self.port;
        of_port
            && self
                .queue
                .is_none_or(|queue| queue == usize::from(id.queue))
    }
}

impl Command {
    /// Carries out the command on one TX queue, which moves packets in the next step.
    pub(super) fn apply<T: TxDescriptors>(
        self,
        queue: &mut TxQueue<T>,
        now: Instant,
    ) -> Result<Commanded, DeviceError> {
        let done = match self {
            Self::Pause => {
                queue.stop();
                // The device sends the packets that it was given before.
                queue.ring_if_pending()?;
                true
            }
            Self::Resume => {
                queue.resume();
                true
            }
            Self::Reset => queue.reset(now)?,
        };
        Ok(Commanded::of(done))
    }
}

/// The result of a [`Command`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Commanded {
    /// Queues that carried it out.
    pub(super) done: usize,
    /// Queues whose device does not support it. They are unchanged.
    pub(super) unsupported: usize,
}

impl Commanded {
    /// The result for one queue: carried out, or not supported.
    pub(super) fn of(done: bool) -> Self {
        Self {
            done: done.into(),
            unsupported: (!done).into(),
        }
    }

    pub(super) const fn add(&mut self, other: Self) {
        self.done += other.done;
        self.unsupported += other.unsupported;
    }
}

/// Why a [`Command`] was not carried out on all of its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandError {
    /// The port has no such queue.
    NoSuchQueue,
    /// A queue cannot be reset: an RX queue, or a TX queue whose device does not support it. It is
    /// unchanged.
    Unsupported {
        /// Queues that were reset.
        done: usize,
    },
    /// A worker has ended. If the command made its device fail, the error of the run says so.
    Ended {
        /// Queues of other workers that carried it out.
        done: usize,
    },
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchQueue => {
                f.write_str("there is no such queue: name one that the port was attached with")
            }
            Self::Unsupported { done } => write!(
                f,
                "a queue cannot be reset ({done} others were): go on without it, or attach the \
                 port again"
            ),
            Self::Ended { done } => write!(
                f,
                "a worker has ended, after {done} queues: the result of the run has the reason"
            ),
        }
    }
}

impl std::error::Error for CommandError {}

/// Pauses, resumes and resets the queues of a run, from any thread. It may outlive the run.
#[derive(Clone, Debug)]
pub struct Control {
    workers: Arc<[Desk]>,
}

/// The address of a worker for commands.
#[derive(Debug)]
pub(super) struct Desk {
    mailbox: Arc<Mailbox>,
    wakeup: Arc<Wakeup>,
    /// The queues of the worker.
    queues: Vec<(QueueKind, QueueId)>,
}

impl Control {
    pub(super) fn new(workers: impl Iterator<Item = Desk>) -> Self {
        Self {
            workers: workers.collect(),
        }
    }

    /// Carries out `command` on `queues`, and returns their number. Each worker does so in its own
    /// next step, so the queues of a port do not change at the same moment.
    ///
    /// Waits for a step of each worker that has any of them. A step never blocks, so the wait is
    /// short. A handler must not call this: its worker's thread would wait for itself.
    ///
    /// # Errors
    ///
    /// See [`CommandError`].
    pub fn command(&self, queues: Queues, command: Command) -> Result<usize, CommandError> {
        self.send(queues, command)
            .ok_or(CommandError::NoSuchQueue)?
            .wait()
    }

    /// As [`Control::command`], but does not wait for the workers: in virtual time the caller's
    /// thread runs them. Returns false if there is no such queue.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    pub fn post(&self, queues: Queues, command: Command) -> bool {
        self.send(queues, command).is_some()
    }

    /// Posts `command` to the workers that have any of `queues`; `None` if there is no such worker.
    pub(super) fn send(&self, queues: Queues, command: Command) -> Option<Arc<Ticket>> {
        let owns = |desk: &&Desk| desk.queues.iter().any(|&(half, id)| queues.has(half, id));
        let desks = self.workers.iter().filter(owns);
        let ticket = Arc::new(Ticket::new(desks.clone().count())?);
        for desk in desks {
            desk.mailbox.post(Letter {
                queues,
                command,
                ticket: Arc::clone(&ticket),
                answer: None,
            });
            desk.wakeup.notify();
        }
        Some(ticket)
    }
}

/// The progress of a command.
#[derive(Debug)]
pub(super) struct Ticket {
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Workers that have not answered.
    left: usize,
    sum: Commanded,
    /// A worker ended without an answer.
    ended: bool,
}

impl Ticket {
    fn new(workers: usize) -> Option<Self> {
        (workers > 0).then(|| Self {
            progress: Mutex::new(Progress {
                left: workers,
                ..Progress::default()
            }),
            changed: Condvar::new(),
        })
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        // The data consists of numbers only, so a panic cannot leave it inconsistent.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answered(&self, answer: Option<Commanded>) {
        let mut progress = self.progress();
        progress.left -= 1;
        match answer {
            Some(Commanded { done, unsupported }) => {
                progress.sum.done += done;
                progress.sum.unsupported += unsupported;
            }
            None => progress.ended = true,
        }
        drop(progress);
        self.changed.notify_all();
    }

    /// Waits until all workers have answered.
    pub(super) fn wait(&self) -> Result<usize, CommandError> {
        let mut progress = self.progress();
        while progress.left > 0 {
            let changed = self.changed.wait(progress);
            progress = changed.unwrap_or_else(PoisonError::into_inner);
        }
        let end = *progress;
        drop(progress);
        let Commanded { done, unsupported } = end.sum;
        match (end.ended, unsupported) {
            (true, _) => Err(CommandError::Ended { done }),
            (false, 0) => Ok(done),
            (false, _) => Err(CommandError::Unsupported { done }),
        }
    }
}

/// A command in a mailbox. If it is dropped without an answer, it reports that the worker has
/// ended.
#[derive(Debug)]
pub(super) struct Letter {
    pub(super) queues: Queues,
    pub(super) command: Command,
    ticket: Arc<Ticket>,
    answer: Option<Commanded>,
}

impl Letter {
    pub(super) fn answer(mut self, answer: Commanded) {
        self.answer = Some(answer);
    }
}

impl Drop for Letter {
    fn drop(&mut self) {
        self.ticket.answered(self.answer);
    }
}

/// The commands for one worker.
#[derive(Debug, Default)]
struct Mailbox {
    /// There may be letters. A worker without letters reads only this.
    pending: AtomicBool,
    letters: Mutex<Letters>,
}

#[derive(Debug, Default)]
struct Letters {
    /// The worker has ended.
    closed: bool,
    list: VecDeque<Letter>,
}

impl Mailbox {
    fn letters(&self) -> MutexGuard<'_, Letters> {
        // A panic cannot leave the list inconsistent.
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn post(&self, letter: Letter) {
        let mut letters = self.letters();
        if letters.closed {
            drop(letters);
            // The drop reports that the worker has ended.
            drop(letter);
            return;
        }
        letters.list.push_back(letter);
        drop(letters);
        // Set after the letter is in the list: the worker that clears the flag finds the letter.
        self.pending.store(true, Ordering::Release);
    }
}

/// The worker's end of its mailbox. When it is dropped, the threads that wait for an answer are
/// notified.
#[derive(Debug, Default)]
pub(super) struct Inbox(Arc<Mailbox>);

impl Inbox {
    /// The address of the worker for commands to these queues.
    pub(super) fn desk(&self, wakeup: &Arc<Wakeup>, queues: Vec<(QueueKind, QueueId)>) -> Desk {
        Desk {
            mailbox: Arc::clone(&self.0),
            wakeup: Arc::clone(wakeup),
            queues,
        }
    }

    /// Whether there may be letters: one load.
    #[inline]
    pub(super) fn has_letters(&self) -> bool {
        self.0.pending.load(Ordering::Acquire)
    }

    /// The next letter.
    pub(super) fn next(&self) -> Option<Letter> {
        // Cleared before the list is read: a later letter sets the flag again.
        self.0.pending.store(false, Ordering::Relaxed);
        let letter = self.0.letters().list.pop_front()?;
        // The flag stays set until the list is empty.
        self.0.pending.store(true, Ordering::Relaxed);
        Some(letter)
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        let left = {
            let mut letters = self.0.letters();
            letters.closed = true;
            std::mem::take(&mut letters.list)
        };
        drop(left);
    }
}
