//! packtrain: a user-space network interface framework for Linux.
//!
//! A driver says what its device can do ([`driver`]), in 125 lines for one queue of a socket. The
//! framework does queues, batching, checksums, segmentation, descriptor limits and counters
//! ([`engine`]), from an offload plan that states which side does what, and why ([`plan`]).
//!
//! Two ports, joined by threads of packtrain's own until the input ends:
//!
//! ```
//! use packtrain::engine::Session;
//! use packtrain::port;
//!
//! let session = Session::between(port::open("null:source,count=1000")?, port::open("null:")?);
//! let session = session.start()?;
//! while !session.is_over() {
//!     std::thread::sleep(std::time::Duration::from_millis(1));
//! }
//! let ledger = session.finish().snapshot.ledger;
//! assert_eq!((ledger.received, ledger.transmitted, ledger.closed()), (1000, 1000, true));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! One port with a handler is [`Session::on`](engine::Session::on); several ports, of which a
//! handler chooses, are [`Session::among`](engine::Session::among). With an event loop of your own,
//! [`Builder::assemble`](engine::Builder::assemble) returns the workers, to be driven step by step
//! ([`engine::Worker`]). To write a driver, start at [`driver`]; a driver runs the suite of
//! `driver_conformance!`, in the crate `packtrain-testkit`.

#![deny(unsafe_code)]

// For files of the test kit that unit tests include.
#[cfg(test)]
extern crate self as packtrain;

pub mod advice;
pub mod bridge;
pub mod driver;
pub mod engine;
pub mod file;
pub mod limits;
pub mod name;
pub mod packet;
pub mod plan;
#[cfg(feature = "plants")]
pub mod plant;
#[cfg(not(feature = "plants"))]
mod plant;
pub mod policy;
pub mod port;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod queue;
#[cfg(not(feature = "internals"))]
mod queue;
pub mod runtime;
pub mod stats;
mod sync;
#[cfg(test)]
mod test_packets;
pub mod time;
mod trace;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The example of the workspace's README is a test, too.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct WorkspaceReadme;
