//! Opens ports with all privileges, gives these up, and then runs: a bridge of interfaces whose
//! packets never meet root. Descriptors that another program has opened are ports, too (`fd=`).
//!
//! ```text
//! cargo build -p packtrain --example given
//! sudo target/debug/examples/given tap:tap0 packet:eth0 xdp:eth1
//! ```
//!
//! The program ends with its standard input (Ctrl-D), and prints the ledger.

use packtrain::bridge::{ADDRESSES, AGING, Addresses, Bridge};
use packtrain::engine::{Ledger, Session};
use packtrain::packet::{Arena, ArenaConfig};
use packtrain::port;
use rustix::thread as privileges;
use std::{env, error::Error, io};

/// The user and the group without rights, on most systems.
const NOBODY: u32 = 65534;

/// Small frames of the arena. An `xdp:` port pins them when it starts: 6 MiB, where the limit of
/// locked memory is usually 8 MiB (`ulimit -l`).
const SMALL_FRAMES: u32 = 3072;

/// The program: see the top of the file.
pub fn main() -> Result<(), Box<dyn Error>> {
    let specs: Vec<_> = env::args().skip(1).collect();
    run(&specs).map(|ledger| println!("{ledger:?}"))
}

/// Joins ports until standard input ends.
pub fn run(specs: &[String]) -> Result<Ledger, Box<dyn Error>> {
    let ports = specs.iter().map(|spec| port::open(spec));
    let ports = ports.collect::<Result<Vec<_>, _>>()?;
    give_up()?;
    let bridge = Bridge::new(Addresses::new(ADDRESSES, AGING));
    let session = Session::among(ports).handler(move |_queue| bridge.clone());
    let arena = ArenaConfig {
        small_frames: SMALL_FRAMES,
        ..ArenaConfig::default()
    };
    let session = session.arena(Arena::new(arena)?).start()?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(session.finish().into_result()?.ledger)
}

/// Gives up all privileges of this thread, and so of those that it starts: before it, there is no
/// other one. Also of what it executes.
fn give_up() -> rustix::io::Result<()> {
    privileges::set_no_new_privs(true)?;
    privileges::set_thread_groups(&[])?;
    let group = privileges::Gid::from_raw(NOBODY);
    privileges::set_thread_res_gid(group, group, group)?;
    let user = privileges::Uid::from_raw(NOBODY);
    privileges::set_thread_res_uid(user, user, user)?;
    let none = privileges::CapabilitySet::empty();
    let sets = privileges::CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    privileges::set_capabilities(None, sets)
}
