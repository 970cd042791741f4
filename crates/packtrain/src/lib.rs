//! packtrain: a user-space network interface framework for Linux.
//!
//! A driver says in about a hundred lines what its device can do ([`driver`]); the framework does
//! queues, batching, checksums, segmentation, descriptor limits and counters ([`queue`],
//! [`engine`]), from an offload plan that says who does what and why ([`plan`]).

#![deny(unsafe_code)]

pub mod capture;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod driver;
pub mod engine;
pub mod limits;
pub mod packet;
pub mod plan;
pub mod port;
pub mod queue;
pub mod stats;
pub mod time;
