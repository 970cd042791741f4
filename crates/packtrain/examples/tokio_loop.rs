//! Joins two ports in a task of tokio's, on a runtime of one thread; packtrain starts none.
//!
//! ```text
//! cargo run -p packtrain --example tokio_loop -- tap:tap0 tap:tap1
//! cargo run -p packtrain --example tokio_loop -- null:source,count=1000000 null: --seconds 5
//! ```
//!
//! It prints a line when the ports are joined. It ends on SIGINT, when the time is over, or when a
//! finite input ends; it then sends the packets held and prints the ledger. Exit status 1: the
//! ledger is not closed, or an error; 2: wrong arguments.

use packtrain::driver::Interest;
use packtrain::engine::{Action, Ledger, Session, Snapshot, Worker};
use packtrain::port::{open_pair, spec::PortSpec};
use packtrain::runtime::System;
use packtrain::time::Clock;
use std::future::poll_fn;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::task::{Context, Poll, ready};
use std::{error::Error, io, pin::pin, process::ExitCode, sync::Arc, time::Duration};
use tokio::io::unix::AsyncFd;
use tokio::{select, signal::ctrl_c, task::yield_now, time::sleep, time::timeout};

/// The program: see the top of the file.
pub fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    if let Err(error) = arguments(&args) {
        eprintln!("error: {error}");
        return ExitCode::from(2);
    }
    let ledger = run(&args);
    match &ledger {
        Ok(ledger) if ledger.closed() => println!("{ledger:?}\nclosed"),
        Ok(ledger) => println!("{ledger:?}\nNOT CLOSED"),
        Err(error) => eprintln!("error: {error}"),
    }
    ExitCode::from(u8::from(!ledger.is_ok_and(|ledger| ledger.closed())))
}

/// The ports, and the time after which to end.
fn arguments(args: &[String]) -> Result<([PortSpec; 2], Duration), Box<dyn Error>> {
    match args {
        [a, b] => Ok(([a.parse()?, b.parse()?], Duration::MAX)),
        [a, b, option, seconds] if option == "--seconds" => {
            let limit = Duration::from_secs(seconds.parse()?);
            Ok(([a.parse()?, b.parse()?], limit))
        }
        _ => Err("usage: tokio_loop PORT PORT [--seconds N]".into()),
    }
}

/// Runs with `args` as on the command line, and returns the final ledger.
pub fn run(args: &[String]) -> Result<Ledger, Box<dyn Error>> {
    let (specs, limit) = arguments(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let [a, b] = open_pair(&specs[0], &specs[1])?;
    let (session, workers) = Session::between(a, b).assemble(Arc::new(System::new()))?;
    println!("the ports are joined");
    Ok(runtime.block_on(drive(session, workers, limit))?.ledger)
}

/// The loop. One task runs all workers, so queues cost no threads. Returns the final counters.
pub async fn drive(
    session: Session,
    mut workers: Vec<Worker>,
    limit: Duration,
) -> Result<Snapshot, Box<dyn Error>> {
    let mut stop = pin!(timeout(limit, ctrl_c()));
    let (clock, mut sockets, mut stopped) = (System::new(), Sockets::default(), false);
    loop {
        let (now, mut busy, mut pause, mut over) = (clock.now(), false, Duration::MAX, true);
        for worker in &mut workers {
            let action = worker.run(now)?;
            over &= action == Action::Done;
            match action {
                Action::Step | Action::Spin | Action::Yield => busy = true,
                Action::Sleep { until: Some(due) } => pause = pause.min(due.since(now)),
                Action::Sleep { until: None } | Action::Done => {}
            }
        }
        if over {
            return Ok(session.finish_with(workers).into_result()?);
        }
        select! {
            biased;
            ended = &mut stop, if !stopped => {
                ended.unwrap_or(Ok(()))?;
                session.stop();
                stopped = true;
            }
            // Other tasks run, and the signal is noticed, even if packets never cease.
            () = yield_now(), if busy => {}
            ready = poll_fn(|cx| sockets.poll_any(&mut workers, cx)), if !busy => ready?,
            () = sleep(pause), if !busy => {}
        }
    }
}

/// The queues' descriptors as tokio knows them. Each is a duplicate, registered when it is first
/// waited for, so that it stays open for as long as it is registered.
#[derive(Default)]
struct Sockets(Vec<(RawFd, Interest, AsyncFd<OwnedFd>)>);

impl Sockets {
    /// Ready when one of the workers' interests is ready.
    fn poll_any(&mut self, workers: &mut [Worker], cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut any = Poll::Pending;
        for worker in workers {
            let mut woken = Vec::new();
            // Each one is polled, even after one was ready: only a polled one wakes this task.
            worker.interests(&mut |fd, interest| {
                if let Poll::Ready(ready) = self.poll_one(fd, interest, cx) {
                    woken.push(fd.as_raw_fd());
                    any = Poll::Ready(ready);
                }
            });
            woken.into_iter().for_each(|fd| worker.woken_by(fd));
        }
        any
    }

    fn poll_one(
        &mut self,
        fd: BorrowedFd<'_>,
        interest: Interest,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let raw = fd.as_raw_fd();
        let known = self.0.iter().position(|s| (s.0, s.1) == (raw, interest));
        let index = known.unwrap_or(self.0.len());
        if known.is_none() {
            let registered = register(fd.try_clone_to_owned()?, interest)?;
            self.0.push((raw, interest, registered));
        }
        let socket = &self.0[index].2;
        let mut guard = ready!(match interest {
            Interest::Read => socket.poll_read_ready(cx),
            Interest::Write => socket.poll_write_ready(cx),
        })?;
        // tokio reports changes only. That suffices, since the steps before the next wait continue
        // until the device has no more; later packets are a change.
        guard.clear_ready();
        Poll::Ready(Ok(()))
    }
}

#[allow(
    deprecated,
    reason = "sound for an OwnedFd, which stays the same descriptor; what replaces it is unsafe"
)]
fn register(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    let interest = match interest {
        Interest::Read => tokio::io::Interest::READABLE,
        Interest::Write => tokio::io::Interest::WRITABLE,
    };
    AsyncFd::with_interest(fd, interest)
}
