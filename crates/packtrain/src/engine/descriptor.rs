//! One descriptor for everything that a worker waits for, for event loops that poll one descriptor
//! for each task.

use super::worker::Worker;
use crate::driver::Interest;
use crate::time::Instant;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Events that are read at once: a worker rarely waits for more.
const EVENTS: usize = 16;

/// A descriptor that is readable when a sleeping worker has something to do: an epoll set with the
/// worker's descriptors and a timer. For a loop that polls one descriptor for each task, as those
/// of VMMs and async runtimes do.
///
/// After [`Action::Sleep`](super::Action::Sleep) call [`WorkerFd::arm`] and wait until the
/// descriptor is readable. Then call [`WorkerFd::clear`] and [`Worker::run`].
///
/// A loop that can wait for several descriptors needs no epoll set: it uses [`Worker::interests`].
/// That is cheaper, since the kernel runs a callback for each packet of a descriptor in an epoll
/// set, even while the worker is awake.
#[derive(Debug)]
pub struct WorkerFd {
    epoll: OwnedFd,
    timer: OwnedFd,
    timer_set: bool,
    /// The interests of the worker when it was last armed.
    armed: Vec<(RawFd, EventFlags)>,
}

/// Adds an interest of the worker to the set. Each is one-shot, so an interest that the worker has
/// no more makes the descriptor readable at most once.
fn watch(
    epoll: &OwnedFd,
    armed: &mut Vec<(RawFd, EventFlags)>,
    fd: BorrowedFd<'_>,
    interest: Interest,
) -> io::Result<()> {
    let number = fd.as_raw_fd();
    let event = match interest {
        Interest::Read => EventFlags::IN,
        Interest::Write => EventFlags::OUT,
    };
    let events = match armed.iter_mut().find(|(known, _)| *known == number) {
        Some((_, events)) => {
            *events |= event;
            *events
        }
        None => {
            armed.push((number, event));
            event
        }
    };
    let (data, flags) = (
        EventData::new_u64(number as u64),
        events | EventFlags::ONESHOT,
    );
    match epoll::modify(epoll, fd, data, flags) {
        Err(Errno::NOENT) => Ok(epoll::add(epoll, fd, data, flags)?),
        result => Ok(result?),
    }
}

impl WorkerFd {
    /// A descriptor for one worker.
    ///
    /// # Errors
    ///
    /// If the system has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let data = EventData::new_u64(timer.as_raw_fd() as u64);
        epoll::add(&epoll, &timer, data, EventFlags::IN)?;
        Ok(Self {
            epoll,
            timer,
            timer_set: false,
            armed: Vec::new(),
        })
    }

    /// Arms the descriptor for a sleeping worker: it becomes readable when one of the worker's
    /// interests is ready, or at `until`.
    ///
    /// # Errors
    ///
    /// If a system call fails.
    pub fn arm(&mut self, worker: &Worker, until: Option<Instant>, now: Instant) -> io::Result<()> {
        let (epoll, armed) = (&self.epoll, &mut self.armed);
        armed.clear();
        let mut result = Ok(());
        worker.interests(&mut |fd, interest| {
            if result.is_ok() {
                result = watch(epoll, armed, fd, interest);
            }
        });
        result?;
        if until.is_some() || self.timer_set {
            self.set_timer(until, now)?;
        }
        Ok(())
    }

    fn set_timer(&mut self, until: Option<Instant>, now: Instant) -> io::Result<()> {
        // A time of zero disarms the timer.
        let left = until.map(|until| until.since(now).max(std::time::Duration::from_nanos(1)));
        let left = left.unwrap_or_default();
        let it_value = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let it_interval = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let time = Itimerspec {
            it_interval,
            it_value,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &time)?;
        self.timer_set = until.is_some();
        Ok(())
    }

    /// Clears the descriptor after it was readable, and records in the worker which of its
    /// descriptors woke it.
    ///
    /// # Errors
    ///
    /// If a system call fails.
    pub fn clear(&mut self, worker: &mut Worker) -> io::Result<()> {
        let nothing = Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        };
        let mut events = [nothing; EVENTS];
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let found = epoll::wait(&self.epoll, &mut events[..], Some(&zero))?;
        for event in &events[..found] {
            let fd = event.data.u64() as RawFd;
            if fd == self.timer.as_raw_fd() {
                match rustix::io::read(&self.timer, &mut [0u8; 8]) {
                    Ok(_) | Err(Errno::AGAIN) => {}
                    Err(error) => return Err(error.into()),
                }
            } else {
                worker.woken_by(fd);
            }
        }
        Ok(())
    }
}

impl AsFd for WorkerFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl AsRawFd for WorkerFd {
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}

#[cfg(all(test, not(packtrain_loom)))]
mod tests {
    use super::*;
    use crate::engine::{Action, Session, Settings};
    use crate::packet::Burst;
    use crate::policy::dispatch::Dispatch;
    use crate::policy::idle::Idle;
    use crate::port;
    use crate::runtime::{Runtime, System};
    use rustix::event::{PollFd, PollFlags, poll};
    use std::sync::Arc;
    use std::time::Duration;

    fn is_readable(fd: &WorkerFd, wait: Duration) -> bool {
        let wait = Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: wait.subsec_nanos().into(),
        };
        poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&wait)).unwrap() > 0
    }

    #[test]
    fn the_descriptor_is_readable_when_the_worker_has_work() {
        let runtime: Arc<dyn Runtime> = Arc::new(System::new());
        let settings = Settings {
            dispatch: Dispatch::Deferred,
            idle: Idle::Halt,
            ..Settings::default()
        };
        let session = Session::on(port::open("null:").unwrap())
            .senders(0, 1)
            .settings(settings);
        let (session, mut workers) = session.assemble(Arc::clone(&runtime)).unwrap();
        let mut handle = session.handle(0, 0).unwrap();
        let mut worker = workers.pop().unwrap();
        let mut fd = WorkerFd::new().unwrap();
        let until = loop {
            match worker.run(runtime.now()).unwrap() {
                Action::Sleep { until } => break until,
                action => assert_eq!(action, Action::Step),
            }
        };
        fd.arm(&worker, until, runtime.now()).unwrap();
        assert!(!is_readable(&fd, Duration::ZERO), "nothing has happened");
        let mut burst = Burst::new();
        burst
            .push(session.arena().packet_from(&[0; 60]).unwrap())
            .unwrap();
        assert_eq!(handle.try_send(&mut burst), Ok(1));
        assert!(
            is_readable(&fd, Duration::ZERO),
            "the TX worker is notified"
        );
        fd.clear(&mut worker).unwrap();
        worker.run(runtime.now()).unwrap();
        assert_eq!(session.snapshot().ports[0].tx[0].packets, 1);
        workers.push(worker);
        drop(handle);
        let report = session.finish_with(workers);
        assert!(report.snapshot.ledger.closed());
    }

    #[test]
    fn the_end_of_a_sleep_makes_the_descriptor_readable() {
        let runtime: Arc<dyn Runtime> = Arc::new(System::new());
        let session = Session::on(port::open("null:").unwrap());
        let (_session, workers) = session.assemble(Arc::clone(&runtime)).unwrap();
        let mut fd = WorkerFd::new().unwrap();
        let now = runtime.now();
        fd.arm(&workers[0], Some(now), now).unwrap();
        assert!(is_readable(&fd, Duration::from_secs(10)));
        fd.arm(&workers[0], None, now).unwrap();
        assert!(!is_readable(&fd, Duration::ZERO), "the timer is disarmed");
    }
}
