//! Capture files: [`Reader`] and [`Writer`], a streaming codec for pcap and pcapng, and [`replay`],
//! which merges and splits the packets of a capture.
//!
//! Bytes in and bytes out: no thread, no clock, and no system call but those of the caller's
//! [`Read`](std::io::Read) and [`Write`](std::io::Write). A replay of the same bytes has the same
//! totals on every machine, and totals can be [merged](replay::Report::merge).

mod codec;
pub mod replay;

pub use codec::*;

/// The example of the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
