//! One port in the caller's own event loop, around poll(2): packtrain starts no thread. A handler
//! takes what arrives, and a handle sends.
//!
//! ```text
//! cargo run -p packtrain --example one_port_loop -- tap:tap0
//! ```
//!
//! The program ends after 100 packets, and prints the ledger.

use packtrain::driver::{Interest, IntoPort};
use packtrain::engine::{Action, Ledger, RxId, Session};
use packtrain::{packet::Burst, port, runtime::System, time::Clock, time::Instant};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{env, error::Error, os::fd::AsFd, os::fd::AsRawFd, sync::Arc, time::Duration};

/// The program: see the top of the file.
pub fn main() -> Result<(), Box<dyn Error>> {
    let port = env::args().nth(1).ok_or("usage: one_port_loop PORT")?;
    run(port::open(&port)?, 100).map(|ledger| println!("{ledger:?}"))
}

/// Broadcasts one frame, and takes `packets` packets.
pub fn run(port: impl IntoPort<Driver: 'static>, packets: u64) -> Result<Ledger, Box<dyn Error>> {
    let take = |_now: Instant, _from: RxId, burst: &mut Burst| burst.clear();
    let builder = Session::on(port).handler(move |_queue| take).senders(0, 1);
    let runtime = Arc::new(System::new());
    let (session, mut workers) = builder.packets(packets).assemble(runtime.clone())?;
    let mut handle = session.handle(0, 0).ok_or("no TX queue")?;
    let mut burst = Burst::new();
    let hello = handle.arena().packet_from(&[0xff; 60])?;
    burst.push(hello).map_err(|_packet| "full")?;
    handle.try_send(&mut burst)?;
    while !session.is_over() {
        let (now, mut timeout, mut fds) = (runtime.now(), Duration::from_secs(1), Vec::new());
        for worker in &mut workers {
            match worker.run(now)? {
                Action::Sleep { until: None } => {}
                Action::Sleep { until: Some(due) } => timeout = timeout.min(due.since(now)),
                _ => timeout = Duration::ZERO,
            }
            worker.interests(&mut |fd, interest| match interest {
                Interest::Read => fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN)),
                Interest::Write => fds.push(PollFd::from_borrowed_fd(fd, PollFlags::OUT)),
            });
        }
        poll(&mut fds, Some(&Timespec::try_from(timeout)?))?;
        let ready = fds.iter().filter(|fd| !fd.revents().is_empty());
        for fd in ready.map(|fd| fd.as_fd().as_raw_fd()).collect::<Vec<_>>() {
            workers.iter_mut().for_each(|worker| worker.woken_by(fd));
        }
    }
    Ok(session.finish_with(workers).into_result()?.ledger)
}
