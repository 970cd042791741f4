//! Tests of packtrain in virtual time.
//!
//! A [`World`] is a runtime whose clock stands still while a task runs and jumps to the next event
//! afterwards. Workers, handles, rings and watchdogs are those of packtrain, unchanged: the world
//! calls [`Worker::run`](packtrain::engine::Worker::run) and does what it returns, on virtual CPUs.
//! Everything runs on the calling thread. A run of ten virtual seconds takes as long as its steps
//! do, and two runs with equal seeds are equal to the bit.
//!
//! ```
//! use packtrain::engine::Session;
//! use packtrain::port;
//! use packtrain::time::Instant;
//! use packtrain_testkit::{Costs, World, machine};
//!
//! let mut world = World::new(machine(2), Costs::default(), 1);
//! let session = Session::between(port::open("sim:")?, port::open("sim:")?);
//! let (session, workers) = session.assemble(world.runtime())?;
//! world.counters(session.counters());
//! for worker in workers {
//!     world.worker(worker, None);
//! }
//! world.run(Instant::from_nanos(1_000_000_000));
//! session.stop();
//! let trace = world.run(Instant::from_nanos(2_000_000_000));
//! assert!(trace.tasks.iter().all(|task| task.ended.is_some()));
//! assert!(session.finish().snapshot.ledger.closed());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod costs;
mod cpu;
mod runtime;
mod trace;
mod world;

pub use costs::Costs;
pub use trace::{CpuTrace, TaskTrace, Trace};
pub use world::World;

use packtrain::policy::topology::{Cpu, CpuId, Topology};
use packtrain::runtime::Machine;

/// A machine of so many CPUs, each a core, and 4 GiB of memory.
#[must_use]
pub const fn machine(cpus: usize) -> Machine {
    Machine {
        cpus,
        cores: cpus,
        memory: Some(4 << 30),
    }
}

/// A machine of so many cores with two CPUs each. CPU `i` and CPU `i + cores` are siblings: Linux
/// numbers them so on x86.
#[must_use]
pub const fn machine_with_siblings(cores: usize) -> Machine {
    Machine {
        cpus: 2 * cores,
        ..machine(cores)
    }
}

/// The CPUs of a virtual machine, for the placement policy
/// ([`place`](packtrain::policy::placement::place)).
#[must_use]
pub fn topology(machine: Machine) -> Topology {
    let cpu = |id: usize| Cpu {
        id: CpuId(id as u16),
        core: CpuId((id % machine.cores) as u16),
    };
    Topology::new((0..machine.cpus).map(cpu).collect())
}
