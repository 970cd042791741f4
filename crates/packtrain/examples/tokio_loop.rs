//! Joins two ports in a task of tokio's, on a runtime of one thread; packtrain starts none.
//!
//! ```text
//! cargo run -p packtrain --example tokio_loop -- tap:tap0 tap:tap1
//! cargo run -p packtrain --example tokio_loop -- null:source,count=1000000 null: --seconds 5
//! ```
//!
//! It says when the ports are joined. It ends on SIGINT, when the time is over, or when a
//! finite input is; it then sends on what it holds and prints the ledger. Exit status 1: the ledger
//! is not closed, or an error; 2: wrong arguments.

use packtrain::driver::{Armed, Driver, Interest};
use packtrain::engine::{Forward, Handler, Joined, Ledger, Next, Workers, arena_config, join};
use packtrain::packet::Arena;
use packtrain::plan::{Side, plan};
use packtrain::port::{open_pair, spec::PortSpec};
use packtrain::stats::DropReason;
use packtrain::time::{Clock, MonotonicClock};
use std::future::poll_fn;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::task::{Context, Poll, ready};
use std::{error::Error, io, pin::pin, process::ExitCode, time::Duration};
use tokio::io::unix::AsyncFd;
use tokio::{select, signal::ctrl_c, task::yield_now, time::sleep, time::timeout};

/// How long packets may wait for a device after intake has stopped.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(2);

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
    let [mut a, mut b] = open_pair(&specs[0], &specs[1])?;
    let plan = plan(
        &Side::of(&a.driver, a.config),
        &Side::of(&b.driver, b.config),
    )?;
    let arena = Arena::new(arena_config(&plan))?;
    let joined = join(&mut a.driver, &mut b.driver, &plan, &arena, None, || {
        Forward
    })?;
    println!("{} and {} are joined", a.driver.name(), b.driver.name());
    runtime.block_on(drive(joined, limit))
}

/// The loop. One task steps all workers, so queues cost no threads.
pub async fn drive<A: Driver, B: Driver, H: Handler>(
    joined: Joined<A, B, H>,
    limit: Duration,
) -> Result<Ledger, Box<dyn Error>> {
    let (mut workers, intake) = (joined.workers, joined.intake);
    let mut stop = pin!(timeout(limit, ctrl_c()));
    let clock = MonotonicClock::new();
    let (mut sockets, mut drain_end) = (Sockets::default(), None);
    loop {
        let (now, stopped) = (clock.now(), intake.is_stopped());
        if stopped && now > *drain_end.get_or_insert(now.after(DRAIN_TIME_MAX)) {
            break;
        }
        let (mut busy, mut done, mut until) = (false, true, drain_end);
        for worker in &mut workers {
            let next = worker.step(now)?;
            done &= next == Next::Done;
            busy |= next == Next::Again;
            if let Next::SleepUntil(time) = next {
                until = until.into_iter().chain([time]).min();
            }
        }
        if done {
            break;
        }
        // Every worker is armed, also after one has said that it has work.
        for worker in &mut workers {
            busy |= worker.arm() == Armed::WorkPending;
        }
        busy |= stopped != intake.is_stopped();
        let pause = until.map_or(Duration::MAX, |time| time.since(clock.now()));
        select! {
            biased;
            ended = &mut stop, if !stopped => {
                ended.unwrap_or(Ok(()))?;
                intake.stop();
            }
            // Other tasks have their turn, and the signal is seen, also when packets never cease.
            () = yield_now(), if busy => {}
            ready = poll_fn(|cx| sockets.poll_any::<A, B, H>(&workers, cx)), if !busy => ready?,
            () = sleep(pause), if !busy => {}
        }
    }
    // What a device did not take in time is counted like every other loss.
    for worker in &mut workers {
        worker.abandon(DropReason::Shutdown);
    }
    Ok(joined.stats.snapshot().ledger)
}

/// The queues' descriptors as tokio knows them. Each is a duplicate, registered when it is first
/// waited for, so that it stays open for as long as it is registered.
#[derive(Default)]
struct Sockets(Vec<(RawFd, Interest, AsyncFd<OwnedFd>)>);

impl Sockets {
    /// Ready when one of the workers' interests is.
    fn poll_any<A: Driver, B: Driver, H: Handler>(
        &mut self,
        workers: &Workers<A, B, H>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut any = Poll::Pending;
        for worker in workers {
            // Each one is asked, also after one was ready: only then does it wake this task.
            worker.interests(|fd, interest| {
                if let Poll::Ready(ready) = self.poll_one(fd, interest, cx) {
                    worker.woken_by(fd.as_raw_fd());
                    any = Poll::Ready(ready);
                }
            });
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
        // tokio tells of changes only. That is enough, since the steps up to the next wait go on
        // until the device has no more; what comes from now on is a change.
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
