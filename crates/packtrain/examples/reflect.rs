//! User code in the middle of a packet's trip: a handler that swaps each frame's Ethernet
//! addresses, so that it goes back to who sent it, and counts.
//!
//! ```text
//! cargo run -p packtrain --example reflect -- null:source,count=1000000 null:
//! cargo run -p packtrain --example reflect -- pcap:in.pcap pcap:out.pcap,write
//! cargo run -p packtrain --example reflect -- tap:tap0 tap:tap1 --seconds 10
//! ```
//!
//! What comes in at one port leaves at the other, changed. It ends when a finite input does or the
//! time is over, and prints how many frames were swapped, how many were too short for it, and the
//! ledger. Exit status 1: the ledger is not closed, or an error; 2: wrong arguments.

use packtrain::engine::{Handler, Ledger, Port, Session};
use packtrain::packet::Burst;
use packtrain::plan::{Side, plan};
use packtrain::port::{open_pair, spec::PortSpec};
use packtrain::time::Instant;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{error::Error, process::ExitCode, thread, time::Duration};

/// An Ethernet header: destination, source, type.
const HEADER_BYTES: usize = 14;
const ADDRESS_BYTES: usize = 6;

/// What all workers together did.
#[derive(Debug, Default)]
pub struct Counts {
    /// Frames whose addresses were swapped.
    pub swapped: AtomicU64,
    /// Frames passed on as they were, since their header cannot be written in place.
    pub unchanged: AtomicU64,
}

/// One worker's handler. It is the worker's own: state in it needs no lock.
struct Reflect {
    counts: Arc<Counts>,
}

impl Handler for Reflect {
    fn handle(&mut self, _now: Instant, _from: Port, burst: &mut Burst) {
        let (mut swapped, mut unchanged) = (0, 0);
        for packet in burst.iter_mut() {
            match packet.headers_mut(HEADER_BYTES) {
                Ok(header) => {
                    let (destination, rest) = header.split_at_mut(ADDRESS_BYTES);
                    destination.swap_with_slice(&mut rest[..ADDRESS_BYTES]);
                    swapped += 1;
                }
                Err(_not_writable) => unchanged += 1,
            }
        }
        // Once for each burst: other workers write to the same two counters.
        self.counts.swapped.fetch_add(swapped, Ordering::Relaxed);
        self.counts
            .unchanged
            .fetch_add(unchanged, Ordering::Relaxed);
    }

    // Each packet goes on as one packet, so the framework need not count around the handler.
    const COUNTED: bool = false;
}

/// The program: see the top of the file.
pub fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    if let Err(error) = arguments(&args) {
        eprintln!("error: {error}");
        return ExitCode::from(2);
    }
    let result = run(&args);
    match &result {
        Ok((counts, ledger)) => println!("{counts:?}\n{ledger:?}\nclosed: {}", ledger.closed()),
        Err(error) => eprintln!("error: {error}"),
    }
    ExitCode::from(u8::from(!result.is_ok_and(|(_, ledger)| ledger.closed())))
}

/// The ports, and the time after which to end.
fn arguments(args: &[String]) -> Result<([PortSpec; 2], Duration), Box<dyn Error>> {
    match args {
        [a, b] => Ok(([a.parse()?, b.parse()?], Duration::MAX)),
        [a, b, option, seconds] if option == "--seconds" => {
            let limit = Duration::from_secs(seconds.parse()?);
            Ok(([a.parse()?, b.parse()?], limit))
        }
        _ => Err("usage: reflect PORT PORT [--seconds N]".into()),
    }
}

/// Runs with `args` as on the command line, and returns the counts and the final ledger.
pub fn run(args: &[String]) -> Result<(Arc<Counts>, Ledger), Box<dyn Error>> {
    let (specs, limit) = arguments(args)?;
    let [a, b] = open_pair(&specs[0], &specs[1])?;
    let plan = plan(
        &Side::of(&a.driver, a.config),
        &Side::of(&b.driver, b.config),
    )?;
    let counts = Arc::new(Counts::default());
    let session = Session::start(a.driver, b.driver, &plan, None, || Reflect {
        counts: Arc::clone(&counts),
    })?;
    while !session.is_over() && session.elapsed() < limit {
        thread::sleep(Duration::from_millis(10));
    }
    let report = session.finish();
    match report.error {
        Some(error) => Err(error.into()),
        None => Ok((counts, report.snapshot.ledger)),
    }
}
