//! Joins two ports in the caller's own loop, around plain poll(2): packtrain starts no thread.
//!
//! ```text
//! cargo run -p packtrain --example poll_loop -- tap:tap0 tap:tap1
//! cargo run -p packtrain --example poll_loop -- null:source,count=1000000 null: --seconds 5
//! ```
//!
//! It says when the ports are joined. It ends on SIGINT or SIGTERM, when the time is over, or when
//! a finite input is; it then sends on what it holds and prints the ledger. Exit status 1: the
//! ledger is not closed, or an error; 2: wrong arguments.

use packtrain::driver::{Armed, Driver, Interest};
use packtrain::engine::{Forward, Handler, Joined, Ledger, Next, arena_config, join};
use packtrain::packet::Arena;
use packtrain::plan::{Side, plan};
use packtrain::port::{open_pair, spec::PortSpec};
use packtrain::stats::DropReason;
use packtrain::time::{Clock, MonotonicClock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::{consts::TERM_SIGNALS, flag, low_level::pipe};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, atomic::AtomicBool, atomic::Ordering};
use std::{error::Error, process::ExitCode, time::Duration};

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
        _ => Err("usage: poll_loop PORT PORT [--seconds N]".into()),
    }
}

/// Runs with `args` as on the command line, and returns the final ledger.
pub fn run(args: &[String]) -> Result<Ledger, Box<dyn Error>> {
    let (specs, limit) = arguments(args)?;
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
    drive(joined, limit)
}

/// The loop. One thread steps all workers, so queues cost no threads.
pub fn drive<A: Driver, B: Driver, H: Handler>(
    joined: Joined<A, B, H>,
    limit: Duration,
) -> Result<Ledger, Box<dyn Error>> {
    let Joined {
        mut workers,
        intake,
        stats,
        ..
    } = joined;
    // The flag is for a loop that is busy, the socket wakes one that sleeps.
    let (signal, signalled) = (Arc::new(AtomicBool::new(false)), UnixStream::pair()?);
    for &number in TERM_SIGNALS {
        flag::register(number, Arc::clone(&signal))?;
        pipe::register(number, signalled.1.try_clone()?)?;
    }
    let clock = MonotonicClock::new();
    let (mut end, mut stopped) = (clock.now().after(limit), false);
    loop {
        let now = clock.now();
        if !stopped && (now >= end || signal.load(Ordering::Acquire) || intake.is_stopped()) {
            intake.stop();
            (end, stopped) = (now.after(DRAIN_TIME_MAX), true);
        }
        let (mut busy, mut done, mut until) = (false, true, end);
        for worker in &mut workers {
            let next = worker.step(now)?;
            done &= next == Next::Done;
            busy |= next == Next::Again;
            if let Next::SleepUntil(time) = next {
                until = until.min(time);
            }
        }
        if done || (stopped && now >= end) {
            break;
        }
        // Every worker is armed, also after one has said that it has work.
        for worker in &mut workers {
            busy |= worker.arm() == Armed::WorkPending;
        }
        if busy || stopped != intake.is_stopped() {
            continue;
        }
        let mut fds = Vec::new();
        if !stopped {
            fds.push(PollFd::new(&signalled.0, PollFlags::IN));
        }
        for worker in &workers {
            worker.interests(|fd, interest| {
                let flags = match interest {
                    Interest::Read => PollFlags::IN,
                    Interest::Write => PollFlags::OUT,
                };
                fds.push(PollFd::from_borrowed_fd(fd, flags));
            });
        }
        let timeout = Timespec::try_from(until.since(clock.now()))?;
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for fd in fds.iter().filter(|fd| !fd.revents().is_empty()) {
            let raw = fd.as_fd().as_raw_fd();
            workers.iter().for_each(|worker| worker.woken_by(raw));
        }
    }
    // What a device did not take in time is counted like every other loss.
    for worker in &mut workers {
        worker.abandon(DropReason::Shutdown);
    }
    Ok(stats.snapshot().ledger)
}
