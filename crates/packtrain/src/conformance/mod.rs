//! The test suite that every driver passes: `driver_conformance!`.
//!
//! Behind the cargo feature `conformance`, for tests only. A driver's author describes the outside
//! of the port once, as a [`Rig`], and gets one `#[test]` for each promise of the contract. Every
//! case goes through [`RxQueue`](crate::queue::RxQueue) and [`TxQueue`](crate::queue::TxQueue), as
//! packets do in a run; what a rig cannot do (a capture file cannot be written to while it is
//! read) its [`Traits`] say, and those cases pass with a line `not applicable: case: why` on
//! standard output. A rig that could be made elsewhere but not here says `SKIP: case: why` instead.
//!
//! ```
//! use packtrain::conformance::{Injects, Rig, Skip, Traits};
//! use packtrain::port::null::{Null, NullConfig, Source};
//!
//! struct Generated(Null);
//!
//! impl Rig for Generated {
//!     type Driver = Null;
//!
//!     fn traits(&self) -> Traits {
//!         Traits { injects: Injects::Itself, ..Traits::default() }
//!     }
//!
//!     fn driver(&mut self) -> &mut Null {
//!         &mut self.0
//!     }
//! }
//!
//! fn make(_seed: u64) -> Result<Generated, Skip> {
//!     let source = Some(Source::default());
//!     Ok(Generated(Null::new(NullConfig { source, ..NullConfig::default() })))
//! }
//!
//! packtrain::driver_conformance!(null_source, make);
//! ```

mod bench;
mod cases;
mod probe;
#[cfg(test)]
mod tests;

pub use cases::*;
pub use probe::Outside;

use crate::driver::{Driver, Features, TxPacket};
use crate::packet::{Packet, VlanTag};
use std::fmt;
use std::time::Duration;

/// `packet` as a driver is given it, for a bench that drives a device without the framework.
/// Nothing is fitted: the caller sees to it that the packet is as the device's capabilities say.
pub const fn by_hand(packet: &mut Packet) -> TxPacket<'_> {
    TxPacket::fitted(packet)
}

/// Why a rig cannot be made on this machine: a privilege or a kernel feature that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip(pub String);

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How packets get to the port from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Injects {
    /// Not at all: the port only transmits.
    #[default]
    Never,
    /// All before the driver is attached (a file that is read).
    BeforeAttach,
    /// At any time.
    Live,
    /// The port makes endless packets of its own.
    Itself,
}

/// How packets that the port transmitted can be seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Observes {
    /// Not at all.
    #[default]
    Never,
    /// At any time.
    Live,
    /// When the queues have been dropped (a file that is written).
    AfterDetach,
}

/// What a rig can do. The default can do nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// How packets get in.
    pub injects: Injects,
    /// How packets that went out are seen.
    pub observes: Observes,
    /// Packets that may be under way in one direction without any being lost; 0 for a lossy rig,
    /// where the suite asks for order and accounts only. Live injection needs at least 1.
    pub window: usize,
    /// The device becomes full while nobody calls `observe`, and takes packets again after.
    pub fills: bool,
    /// Offloads that injected packets may come with.
    pub injects_offloads: Features,
    /// `inject_bad` works.
    pub injects_bad: bool,
    /// `device_counters` count what the suite sends and receives, and nothing else.
    pub counts_exactly: bool,
    /// A tag that the port puts in front of what it receives and takes off what it transmits: the
    /// suite then sends and expects packets with it, and the outside sees them without.
    pub tag: Option<VlanTag>,
    /// How long a packet may take through the outside; zero where it is there at once.
    pub patience: Duration,
}

/// A port under test, and the world outside of it.
///
/// The suite attaches the driver itself, with an arena of its own, and drops the queues before the
/// rig. Packets of others (a kernel's neighbour discovery) may come and go: the suite knows its
/// own.
pub trait Rig {
    /// The driver.
    type Driver: Driver;

    /// What it can do.
    fn traits(&self) -> Traits;

    /// The driver under test.
    fn driver(&mut self) -> &mut Self::Driver;

    /// Sends a packet towards the port. False when the outside cannot take it now.
    fn inject(&mut self, packet: &Outside) -> bool {
        debug_assert!(packet.bytes.is_empty(), "the traits say that it injects");
        false
    }

    /// Makes the device receive one packet that it must refuse, standing for one wire packet.
    /// False when the outside cannot do so now.
    fn inject_bad(&mut self) -> bool {
        false
    }

    /// The next packet that went out, oldest first.
    fn observe(&mut self) -> Option<Outside> {
        None
    }

    /// The outside's own work between two polls, for a rig without a thread or a kernel.
    fn tick(&mut self) {}

    /// The queues have been dropped: the rest becomes visible.
    fn detached(&mut self) {}
}

/// The seeds that each case runs with, unless `PACKTRAIN_CONFORMANCE_SEED` names one.
const SEEDS: [u64; 3] = [1, 2, 3];

fn seeds() -> Vec<u64> {
    match std::env::var("PACKTRAIN_CONFORMANCE_SEED") {
        Ok(seed) => vec![
            seed.parse()
                .expect("PACKTRAIN_CONFORMANCE_SEED is a number"),
        ],
        Err(_not_set) => SEEDS.to_vec(),
    }
}

/// Says with which seed a case failed.
struct Note<'a> {
    case: &'a str,
    seed: u64,
}

impl Drop for Note<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { case, seed } = self;
            eprintln!(
                "{case} failed with seed {seed}: PACKTRAIN_CONFORMANCE_SEED={seed} repeats it"
            );
        }
    }
}

/// Runs one case with every seed: what [`driver_conformance!`](crate::driver_conformance) expands
/// to.
///
/// # Panics
///
/// When the driver breaks the contract.
pub fn run<R: Rig>(name: &str, make: impl Fn(u64) -> Result<R, Skip>, case: fn(R, u64) -> Outcome) {
    for seed in seeds() {
        let note = Note { case: name, seed };
        let outcome =
            make(seed).map_or_else(|skip| Outcome::Skipped(skip.0), |rig| case(rig, seed));
        match outcome {
            Outcome::Passed => {}
            Outcome::DoesNotApply(why) => {
                println!("not applicable: {name}: {why}");
                return;
            }
            Outcome::Skipped(why) => {
                println!("SKIP: {name}: {why}");
                return;
            }
        }
        drop(note);
    }
}

/// What became of a case that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The driver keeps this promise.
    Passed,
    /// The port or the rig has nothing that the promise is about.
    DoesNotApply(&'static str),
    /// The rig cannot be made here.
    Skipped(String),
}

/// A module of one `#[test]` for each promise of the driver contract.
///
/// `$make` is a function `fn(seed: u64) -> Result<impl Rig, Skip>`; see
/// [`conformance`](crate::conformance). A third argument is for a rig that needs surroundings, such
/// as a network namespace: a function `fn(name: &'static str, case: fn())`
/// that calls `case` within them; the name is the test's full path, the crate's name in front.
#[macro_export]
macro_rules! driver_conformance {
    ($module:ident, $make:expr) => {
        $crate::driver_conformance!($module, $make, |_name, case: fn()| case());
    };
    ($module:ident, $make:expr, $within:expr) => {
        mod $module {
            #[allow(unused_imports, reason = "the functions may be written as paths")]
            use super::*;

            $crate::driver_conformance! { @cases $make, $within;
                receives_in_order
                transmits_in_order
                goes_on_after_it_was_full
                keeps_to_the_budget
                loses_one_packet_to_a_bad_one
                leaks_nothing_when_detached_in_flight
                closes_its_accounts
                recovers_from_an_empty_arena
                arm_reports_waiting_work
                an_armed_queue_raises_its_interrupt_once
                transmits_with_the_offloads_it_declares
                transmits_the_same_without_offloads
                receives_with_the_offloads_it_declares
            }
        }
    };
    (@cases $make:expr, $within:expr; $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                const NAME: &str = concat!(module_path!(), "::", stringify!($case));
                fn case() {
                    $crate::conformance::run(NAME, $make, $crate::conformance::$case);
                }
                ($within)(NAME, case);
            }
        )*
    };
}
