//! packtrain: a user-space network interface framework for Linux.
//!
//! A driver says in about a hundred lines what its device can do ([`driver`]); the framework does
//! queues, batching, checksums, segmentation, descriptor limits and counters ([`queue`],
//! [`engine`]), from an offload plan that says who does what and why ([`plan`]).
//!
//! Two ports, joined by threads of packtrain's own until the input ends:
//!
//! ```
//! use packtrain::engine::Session;
//! use packtrain::plan::{Side, plan};
//! use packtrain::port::{open_pair, spec::PortSpec};
//!
//! let a: PortSpec = "null:source,count=1000".parse()?;
//! let b: PortSpec = "null:".parse()?;
//! let [port_a, port_b] = open_pair(&a, &b)?;
//! let plan = plan(&Side::of(&port_a, a.wishes), &Side::of(&port_b, b.wishes))?;
//! let session = Session::forward(port_a, port_b, &plan, None)?;
//! while !session.is_over() {
//!     std::thread::sleep(std::time::Duration::from_millis(1));
//! }
//! let ledger = session.finish().snapshot.ledger;
//! assert_eq!((ledger.received, ledger.transmitted, ledger.closed()), (1000, 1000, true));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With an event loop of your own, [`engine::join`] gives the workers instead, to be driven step by
//! step ([`engine::Worker`]). To write a driver, start at [`driver`]; a driver runs the suite of
//! `driver_conformance!` (feature `conformance`).

#![deny(unsafe_code)]

pub mod advice;
pub mod capture;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod driver;
pub mod engine;
pub mod limits;
pub mod packet;
pub mod plan;
pub mod policy;
pub mod port;
pub mod queue;
pub mod replay;
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
