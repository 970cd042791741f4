//! What is done to TX queues while a session runs: pause, resume, reset.
//!
//! Who has a queue's device is whoever has the role of its ring's consumer, so a command is carried
//! out by the worker that owns the queue, in its next step. It is put into the worker's mailbox, of
//! which the worker looks at one flag a step, and its alarm is rung: so none is slept over, and no
//! packet pays for it.

use super::alarm::Alarm;
use super::handler::{Handler, Port};
use super::worker::Worker;
use crate::driver::{RxDescriptors, TxDescriptors};
use crate::stats::QueueId;
use crate::sync::{AtomicBool, Ordering};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What can be done to a TX queue while it runs. Each may come at any moment: with packets in the
/// device, in a stall, with the link down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Gives nothing more to the device until [`Command::Resume`]. What the device has, it goes on
    /// to send, and is collected. What is submitted waits in the ring, and when that is full
    /// producers are told so or wait; RX queues that send there are not polled. It is one stall for
    /// `flush`. A queue that is paused stays paused.
    ///
    /// When the run ends meanwhile, what waits is treated as behind a device that stands still: a
    /// worker's thread waits 2 s for it to go on, and then it is `drop.shutdown`.
    Pause,
    /// Goes on after [`Command::Pause`], with what has waited first. Nobody has to send anything
    /// for that. A queue that is not paused goes on as it is.
    Resume,
    /// Stops the queue in its device and starts it again, empty
    /// ([`TxQueue::reset`](crate::queue::TxQueue::reset)): what the device had not sent goes out
    /// again, first and in order. A queue that is paused stays paused.
    Reset,
}

/// Which TX queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxQueues {
    /// All of a port.
    Port(Port),
    /// One of a port, counted from 0.
    Queue(Port, usize),
}

impl TxQueues {
    /// The port.
    #[must_use]
    pub const fn port(self) -> Port {
        match self {
            Self::Port(port) | Self::Queue(port, _) => port,
        }
    }

    /// Whether a queue is one of these.
    pub(super) fn has(self, id: QueueId) -> bool {
        let of_port = usize::from(id.port) == self.port().index();
        match self {
            Self::Port(_) => of_port,
            Self::Queue(_, queue) => of_port && usize::from(id.queue) == queue,
        }
    }
}

/// What a [`Command`] came to at the queues of one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "a device may not be able to do it"]
pub struct Commanded {
    /// Queues where it was done.
    pub done: usize,
    /// Queues whose device cannot do it. Nothing has changed there.
    pub unsupported: usize,
}

/// Why a [`Command`] was not carried out, or not everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandError {
    /// The port has no such TX queue.
    NoSuchQueue,
    /// The device of a queue cannot be reset. Nothing has changed there.
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
                f.write_str("there is no such TX queue: name one that the port was attached with")
            }
            Self::Unsupported { done } => write!(
                f,
                "the device cannot be reset ({done} queues were): go on without it, or attach the \
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

/// Where the workers' queues are paused, resumed and reset from any thread. It may outlive the run.
#[derive(Clone, Debug)]
pub struct Control {
    workers: Arc<[Desk]>,
}

/// A worker, from outside.
#[derive(Debug)]
struct Desk {
    mailbox: Arc<Mailbox>,
    alarm: Arc<Alarm>,
    /// TX queues of both ports that it owns.
    queues: Vec<QueueId>,
}

impl Control {
    /// Of all the workers of a run, for a caller that drives them itself.
    pub fn of<RA, TA, RB, TB, H>(workers: &[Worker<RA, TA, RB, TB, H>]) -> Self
    where
        RA: RxDescriptors,
        TA: TxDescriptors,
        RB: RxDescriptors,
        TB: TxDescriptors,
        H: Handler,
    {
        let desk = |worker: &Worker<_, _, _, _, _>| Desk {
            mailbox: Arc::clone(&worker.inbox().0),
            alarm: Arc::clone(worker.alarm()),
            queues: worker.tx_queues(),
        };
        Self {
            workers: workers.iter().map(desk).collect(),
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
    pub fn command(&self, queues: TxQueues, command: Command) -> Result<usize, CommandError> {
        self.send(queues, command)
            .ok_or(CommandError::NoSuchQueue)?
            .wait()
    }

    /// Leaves it to the workers; `None` if nobody has any of `queues`.
    pub(super) fn send(&self, queues: TxQueues, command: Command) -> Option<Arc<Ticket>> {
        let owns = |desk: &&Desk| desk.queues.iter().any(|&id| queues.has(id));
        let desks = self.workers.iter().filter(owns);
        let ticket = Arc::new(Ticket::new(desks.clone().count())?);
        for desk in desks {
            desk.mailbox.post(Letter {
                queues,
                command,
                ticket: Arc::clone(&ticket),
                answer: None,
            });
            desk.alarm.ring();
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
        let waits = |progress: &mut Progress| progress.left > 0;
        let end = *self
            .changed
            .wait_while(self.progress(), waits)
            .unwrap_or_else(PoisonError::into_inner);
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
    pub(super) queues: TxQueues,
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
    /// There may be letters. All that a worker without any looks at.
    news: AtomicBool,
    letters: Mutex<Letters>,
}

#[derive(Debug, Default)]
struct Letters {
    /// Nobody will ever look again.
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
        // After the letter is there: whoever takes this back finds it.
        self.news.store(true, Ordering::Release);
    }
}

/// The worker's end of its mailbox. When it is dropped, whoever waits for an answer is told.
#[derive(Debug, Default)]
pub(super) struct Inbox(Arc<Mailbox>);

impl Inbox {
    /// Whether there may be letters: one load.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.0.news.load(Ordering::Acquire)
    }

    /// The next letter.
    pub(super) fn next(&self) -> Option<Letter> {
        // Before the look: a letter that comes after it is news again.
        self.0.news.store(false, Ordering::Relaxed);
        let letter = self.0.letters().list.pop_front()?;
        // Until a look finds none.
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
