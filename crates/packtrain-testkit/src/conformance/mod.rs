//! The test suite that every driver passes: `driver_conformance!`.
//!
//! The author of a driver describes the outside of the port once, as a [`Rig`], and gets one
//! `#[test]` for each promise of the contract. Each case uses packtrain's
//! [`RxQueue`](packtrain::queue::RxQueue) and [`TxQueue`](packtrain::queue::TxQueue), as a run
//! does.
//!
//! The [`Traits`] state what a rig cannot do (a capture file cannot be written while it is read).
//! The harness says `ok` of a case that needs it, too, so the suite prints a line `not applied:
//! case: why` on standard error, which the harness does not capture. If the machine does not
//! support the rig, the line is `SKIP: case: why`.
//!
//! ```
//! use packtrain_testkit::conformance::{Injects, Rig, Skip, Traits};
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
//! packtrain_testkit::driver_conformance!(null_source, make);
//! ```

mod bench;
mod cases;
mod outside;
mod probe;
#[cfg(test)]
mod tests;

pub use cases::*;
pub use outside::Outside;

use crate::driver_conformance;
use packtrain::driver::{Driver, Features};
use packtrain::packet::VlanTag;
use std::fmt;
use std::io::Write;
use std::time::Duration;

/// The reason why a rig cannot be made on this machine: a missing privilege or kernel feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip(pub String);

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// When packets can be injected into the port from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Injects {
    /// Never: the port only transmits.
    #[default]
    Never,
    /// All of them before the driver is attached (a file that is read).
    BeforeAttach,
    /// At any time.
    Live,
    /// The port makes an endless number of packets by itself.
    Itself,
}

/// When transmitted packets can be observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Observes {
    /// Never.
    #[default]
    Never,
    /// At any time.
    Live,
    /// When the queues have been dropped (a file that is written).
    AfterDetach,
}

/// Whether a device becomes full without calls of [`Rig::observe`], and accepts packets again
/// afterwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fills {
    /// Not stated. If packets can be observed at any time, the case for a full device fails: a
    /// driver that drops the packets for which its device has no room must not pass unnoticed.
    #[default]
    Unstated,
    /// It does.
    Yes,
    /// It does not, for this reason.
    Never(&'static str),
}

/// What a rig can do. The default can do nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// When packets can be injected.
    pub injects: Injects,
    /// When transmitted packets can be observed.
    pub observes: Observes,
    /// The most packets on their way in one direction without a loss; 0 for a lossy rig, where the
    /// suite checks only order and counters. Injection at any time needs at least 1.
    pub window: usize,
    /// Whether the device becomes full. A rig that observes packets at any time must state it.
    pub fills: Fills,
    /// Offloads that injected packets may have.
    pub injects_offloads: Features,
    /// `inject_bad` works.
    pub injects_bad: bool,
    /// `device_counters` count the packets of the suite only.
    pub counts_exactly: bool,
    /// A tag that the port inserts into received packets and removes from transmitted ones. The
    /// suite then sends and expects packets with it, and the outside has them without it.
    pub tag: Option<VlanTag>,
    /// The longest time of a packet through the outside; zero if it arrives at once.
    pub latency: Duration,
}

/// A port under test, and its outside.
///
/// The suite attaches the driver, with an arena of its own, and drops the queues before the rig. It
/// ignores packets of other senders (such as a kernel's neighbour discovery).
pub trait Rig {
    /// The driver.
    type Driver: Driver;

    /// Its traits.
    fn traits(&self) -> Traits;

    /// The driver under test.
    fn driver(&mut self) -> &mut Self::Driver;

    /// Sends a packet to the port. False if the outside cannot accept it now.
    fn inject(&mut self, packet: &Outside) -> bool {
        debug_assert!(packet.bytes.is_empty(), "the traits say that it injects");
        false
    }

    /// Makes the device receive one bad packet of one wire packet. False if the outside cannot do
    /// so now.
    fn inject_bad(&mut self) -> bool {
        false
    }

    /// The next transmitted packet, oldest first.
    fn observe(&mut self) -> Option<Outside> {
        None
    }

    /// The work of the outside between two polls, for a rig without a thread or a kernel.
    fn tick(&mut self) {}

    /// The queues have been dropped: the remaining packets can be observed.
    fn detached(&mut self) {}
}

/// The seeds of each case, unless `PACKTRAIN_CONFORMANCE_SEED` states one.
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

/// Prints the seed of a case that failed.
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

/// Runs one case with every seed. [`driver_conformance!`](crate::driver_conformance) expands to it.
///
/// # Panics
///
/// If the driver breaks the contract.
pub fn run<R: Rig>(name: &str, make: impl Fn(u64) -> Result<R, Skip>, case: fn(R, u64) -> Outcome) {
    for seed in seeds() {
        match run_once(name, seed, make(seed), case) {
            Outcome::Passed => {}
            Outcome::DoesNotApply(why) => {
                // Not `eprintln`, whose output the harness keeps to itself if a test passes.
                let mut stderr = std::io::stderr();
                writeln!(stderr, "not applied: {name}: {why}").expect("standard error works");
                return;
            }
            Outcome::Skipped(why) => {
                println!("SKIP: {name}: {why}");
                return;
            }
        }
    }
}

fn run_once<R: Rig>(
    name: &str,
    seed: u64,
    rig: Result<R, Skip>,
    case: fn(R, u64) -> Outcome,
) -> Outcome {
    let note = Note { case: name, seed };
    let outcome = rig.map_or_else(|skip| Outcome::Skipped(skip.0), |rig| case(rig, seed));
    drop(note);
    outcome
}

/// Runs all cases one after the other with one seed, where there is no test harness, such as in a
/// virtual machine. Prints a line for each, as the harness does: `test NAME::CASE ... ok`, or
/// `FAILED`, or `not applied: why`. Returns the names of those that failed; one that is skipped has
/// failed, since the caller has made the machine for it.
pub fn run_all<R: Rig>(
    name: &str,
    seed: u64,
    make: impl Fn(u64) -> Result<R, Skip>,
) -> Vec<String> {
    let mut failed = Vec::new();
    for (case, run) in driver_conformance!(@promises @list R;) {
        let name = format!("{name}::{case}");
        let once = || run_once(&name, seed, make(seed), run);
        // What a case leaves behind is not used again.
        let result = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(once)) {
            Ok(Outcome::Passed) => "ok".to_owned(),
            Ok(Outcome::DoesNotApply(why)) => format!("not applied: {why}"),
            Ok(Outcome::Skipped(why)) => format!("FAILED: skipped: {why}"),
            Err(_its_message_is_printed) => "FAILED".to_owned(),
        };
        println!("test {name} ... {result}");
        if result.starts_with("FAILED") {
            failed.push(name);
        }
    }
    failed
}

/// The result of a case that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The driver keeps this promise.
    Passed,
    /// The promise does not apply to the port or the rig.
    DoesNotApply(&'static str),
    /// The machine does not support the rig.
    Skipped(String),
}

/// A module of one `#[test]` for each promise of the driver contract.
///
/// `$make` is a function `fn(seed: u64) -> Result<impl Rig, Skip>`; see
/// [`conformance`](crate::conformance). A rig that needs an environment, such as a network
/// namespace, has a third argument: a function `fn(name: &'static str, case: fn())` that calls
/// `case` within it. The name is the full path of the test, with the name of the crate.
#[macro_export]
macro_rules! driver_conformance {
    ($module:ident, $make:expr) => {
        $crate::driver_conformance!($module, $make, |_name, case: fn()| case());
    };
    ($module:ident, $make:expr, $within:expr) => {
        mod $module {
            #[allow(unused_imports, reason = "the functions may be written as paths")]
            use super::*;

            $crate::driver_conformance! { @promises @cases $make, $within; }
        }
    };
    (@promises $($then:tt)*) => {
        $crate::driver_conformance! { $($then)*
            receives_in_order
            transmits_in_order
            resumes_after_a_full_device
            keeps_to_the_budget
            loses_one_packet_to_a_bad_one
            leaks_nothing_when_detached_in_flight
            balances_the_ledger
            recovers_from_an_empty_arena
            arm_reports_waiting_work
            an_armed_queue_raises_its_interrupt_once
            transmits_with_the_offloads_it_declares
            transmits_the_same_without_offloads
            receives_with_the_offloads_it_declares
        }
    };
    (@list $rig:ty; $($case:ident)*) => {
        [$((stringify!($case), $crate::conformance::$case as fn($rig, u64) -> Outcome)),*]
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
