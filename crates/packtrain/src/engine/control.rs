//! What is done to queues while a session runs: pause, resume, reset.
//!
//! A command is carried out by the worker that has the queue, in its next step. It is put into the
//! worker's mailbox, and the worker is notified. A worker reads one flag a step for it, so no
//! packet pays for commands.

use crate::driver::{DeviceError, TxDescriptors};
use crate::queue::TxQueue;
use crate::runtime::Wakeup;
use crate::stats::QueueId;
use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering};
use crate::time::Instant;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, PoisonError};

/// What can be done to a queue while it runs. Each may come at any moment: with packets in the
/// device, in a stall, with the link down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Stops the queue until [`Command::Resume`]. A queue that is paused stays paused.
    ///
    /// A TX queue gives nothing more to its device. What the device has, it goes on to send, and is
    /// collected. What is submitted to a shared queue waits in the ring; when that is full,
    /// `try_send` returns `Full` and other sends wait. RX queues that send there are not polled.
    /// It is one stall for `flush`.
    ///
    /// An RX queue is not polled and wakes no worker. Packets wait in its device, which drops what
    /// it has no space for. Packets that were received before have been given to their TX queue
    /// when the command returns, also those that the coalescer held; those that the TX queue does
    /// not accept follow when it does.
    ///
    /// The end of the run overrides a pause: what waits in a TX queue is sent then, and an RX queue
    /// receives nothing more.
    Pause,
    /// Goes on after [`Command::Pause`], with what has waited first. A queue that is not paused
    /// goes on as it is.
    Resume,
    /// Stops a TX queue in its device and starts it again, empty
    /// ([`TxQueue::reset`](crate::queue::TxQueue::reset)): what the device had not sent goes out
    /// again, first and in order. A queue that is paused stays paused. RX queues cannot be reset.
    Reset,
}

/// The half of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Half {
    Rx,
    Tx,
}

/// The queues that a [`Command`] is for: RX or TX, of one port. Ports and queues are counted from
/// 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues {
    half: Half,
    port: usize,
    /// `None`: all.
    queue: Option<usize>,
}

impl Queues {
    /// All RX queues of a port.
    #[must_use]
    pub const fn rx(port: usize) -> Self {
        Self {
            half: Half::Rx,
            port,
            queue: None,
        }
    }

    /// All TX queues of a port.
    #[must_use]
    pub const fn tx(port: usize) -> Self {
        Self {
            half: Half::Tx,
            port,
            queue: None,
        }
    }

    /// Only this one of them.
    #[must_use]
    pub const fn only(self, queue: usize) -> Self {
        Self {
            queue: Some(queue),
            ..self
        }
    }

    /// Whether a queue is one of these.
    pub(super) fn has(self, half: Half, id: QueueId) -> bool {
        let of_port = half == self.half && usize::from(id.port) == self.port;
        of_port
            && self
                .queue
                .is_none_or(|queue| queue == usize::from(id.queue))
    }
}

impl Command {
    /// Does this to one TX queue, which goes on with the next step.
    pub(super) fn apply<T: TxDescriptors>(
        self,
        queue: &mut TxQueue<T>,
        now: Instant,
    ) -> Result<Commanded, DeviceError> {
        let done = match self {
            Self::Pause => {
                queue.stop();
                // What the device was given before goes on.
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

/// What a [`Command`] came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Commanded {
    /// Queues where it was done.
    pub(super) done: usize,
    /// Queues whose device cannot do it. Nothing has changed there.
    pub(super) unsupported: usize,
}

impl Commanded {
    /// Of one queue: whether it was done.
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

/// Why a [`Command`] was not carried out, or not everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandError {
    /// The port has no such queue.
    NoSuchQueue,
    /// A queue cannot be reset: an RX queue, or a TX queue whose device cannot do it. Nothing has
    /// changed there.
    Unsupported {
        /// Queues where it was done.
        done: usize,
    },
    /// A worker has ended, or ended meanwhile, perhaps since a device failed at just this: the
    /// error of the run says so.
    Ended {
        /// Queues of other workers where it was done.
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
                 port anew"
            ),
            Self::Ended { done } => write!(
                f,
                "a worker has ended, after {done} queues: look at what the run ended with"
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

/// A worker, as its commands reach it.
#[derive(Debug)]
pub(super) struct Desk {
    mailbox: Arc<Mailbox>,
    wakeup: Arc<Wakeup>,
    /// The queues that it has.
    queues: Vec<(Half, QueueId)>,
}

impl Control {
    pub(super) fn new(workers: impl Iterator<Item = Desk>) -> Self {
        Self {
            workers: workers.collect(),
        }
    }

    /// Does `command` to `queues`, and says how many they are. A port is not one moment: each
    /// worker does it in its own next step.
    ///
    /// Waits for a step of each worker that has any of them. A step never blocks, so that is soon;
    /// but a worker's own thread, a handler's that is, would wait for itself.
    ///
    /// # Errors
    ///
    /// See [`CommandError`].
    pub fn command(&self, queues: Queues, command: Command) -> Result<usize, CommandError> {
        self.send(queues, command)
            .ok_or(CommandError::NoSuchQueue)?
            .wait()
    }

    /// Posts it to the workers; `None` if none has any of `queues`.
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

/// What has become of a command.
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
    /// A worker ended and did not answer.
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
        // Numbers only: there is nothing that a panic could leave half done.
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

/// A command on its way. One that is dropped without an answer says that the worker has ended.
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
    /// There may be letters. A worker without any reads only this.
    news: AtomicBool,
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
        // The list is whole after every step, also after a panic.
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn post(&self, letter: Letter) {
        let mut letters = self.letters();
        if letters.closed {
            drop(letters);
            // Which says so.
            drop(letter);
            return;
        }
        letters.list.push_back(letter);
        drop(letters);
        // After the letter is there: the worker that clears this finds it.
        self.news.store(true, Ordering::Release);
    }
}

/// The worker's end of its mailbox. When it is dropped, the threads that wait for an answer are
/// notified.
#[derive(Debug, Default)]
pub(super) struct Inbox(Arc<Mailbox>);

impl Inbox {
    /// How commands for these queues reach the worker.
    pub(super) fn desk(&self, wakeup: &Arc<Wakeup>, queues: Vec<(Half, QueueId)>) -> Desk {
        Desk {
            mailbox: Arc::clone(&self.0),
            wakeup: Arc::clone(wakeup),
            queues,
        }
    }

    /// Whether there may be letters: one load.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.0.news.load(Ordering::Acquire)
    }

    /// The next letter.
    pub(super) fn next(&self) -> Option<Letter> {
        // Before the list is read: a letter that comes after that is news again.
        self.0.news.store(false, Ordering::Relaxed);
        let letter = self.0.letters().list.pop_front()?;
        // Until the list is empty.
        self.0.news.store(true, Ordering::Relaxed);
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
