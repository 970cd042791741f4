//! A suite of tests that every driver passes ([`driver_conformance!`], [`conformance`]), cards of
//! QEMU for drivers that need a bus ([`qtest`]), and tests of packtrain in virtual time.
//!
//! A [`World`] is a runtime whose clock stops while a task runs and jumps to the next event
//! afterwards. Workers, handles, rings and watchdogs are those of packtrain, unchanged: the world
//! calls [`Worker::run`](packtrain::engine::Worker::run) and does what it returns, on virtual CPUs.
//! Everything runs on the calling thread. A run of ten virtual seconds takes as long as its steps
//! do, and two runs with equal seeds are equal to the bit.
//!
//! # What a world models
//!
//! - CPUs with Linux's scheduler ([`World`] lists the rules), hardware threads of a core
//!   ([`machine_with_siblings`]), and the exit latency of an idle CPU.
//! - The cost of each step, from the counters of the sessions and a price list ([`Costs`]):
//!   packets, bytes, doorbells, system calls, wake-ups; and the time that a notification takes.
//! - Producers that are preempted in the middle of a send. An actor runs the two halves of a send
//!   in two steps (`TxHandle::begin_send`, `TxHandle::finish_send`; feature `internals` of
//!   packtrain). Meanwhile the other tasks find slots that are reserved and not published, or a
//!   busy ring.
//! - Devices, as far as the `sim:` port does: descriptor rings, rates, late and lost completions
//!   and interrupts, hung queues, links that go down. It takes the time from the runtime.
//! - Lost wake-ups: a worker that sleeps and has packets to move makes [`World::run`] panic, also
//!   if a timer of the worker would make up for it later.
//!
//! # What a world does not model
//!
//! - Contention within a step. A step is atomic: several senders scale with their CPUs, and two
//!   producers meet in a ring only if one of them is preempted between the halves of its send. What
//!   happens between two instructions is checked by the loom models of packtrain.
//! - Caches, memory bandwidth, frequencies, NUMA nodes.
//! - A wire: what a `sim:` port transmits is in the buffers of the other end at once.
//! - The price of bytes that are summed or cut into segments: no counter has them.
//! - Control groups, ticks, and real-time priorities.
//! - Other programs, but for an actor that uses a CPU as one would.
//!
//! No virtual time is a measurement. A world shows what follows from the prices: the order of
//! settings, the number of wake-ups and context switches, and whether a run ends.
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

pub mod conformance;
mod costs;
mod cpu;
pub mod fuzz;
mod interrupts;
mod line;
pub mod load;
mod machine;
pub mod qtest;
pub mod rig;
mod runtime;
mod trace;
mod world;

pub use costs::Costs;
pub use interrupts::{Wired, WiredRx, WiredTx};
pub use line::Vectors;
pub use machine::VirtualMachine;
pub use trace::{CpuTrace, TaskTrace, Trace};
pub use world::{Charge, World};

use packtrain::policy::topology::{Cpu, CpuId, Topology};

/// The hardware of a [`World`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hardware {
    /// CPUs; at least 1.
    pub cpus: usize,
    /// Cores of those: CPU `i` and CPU `i + cores` are siblings. At least 1.
    pub cores: usize,
    /// Bytes of memory that can still be used; `None` if the system does not say.
    pub memory: Option<u64>,
}

/// A machine of so many CPUs, each a core, and 4 GiB of memory.
#[must_use]
pub const fn machine(cpus: usize) -> Hardware {
    Hardware {
        cpus,
        cores: cpus,
        memory: Some(4 << 30),
    }
}

/// A machine of so many cores with two CPUs each. CPU `i` and CPU `i + cores` are siblings: Linux
/// numbers them so on x86.
#[must_use]
pub const fn machine_with_siblings(cores: usize) -> Hardware {
    Hardware {
        cpus: 2 * cores,
        ..machine(cores)
    }
}

/// The CPUs of a virtual machine, for the placement policy
/// ([`place`](packtrain::policy::placement::place)).
#[must_use]
pub fn topology(machine: Hardware) -> Topology {
    let cpu = |id: usize| Cpu {
        id: CpuId(id as u16),
        core: CpuId((id % machine.cores) as u16),
    };
    Topology::new((0..machine.cpus).map(cpu).collect())
}
