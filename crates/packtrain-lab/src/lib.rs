//! The packtrain laboratory: network namespaces, kernel traffic, and independent counters.
//!
//! Two network namespaces ([`netns`]) have one interface each ([`topology`], [`tap`], [`link`]).
//! Ordinary sockets send between them, and the bytes are hashed at both ends ([`traffic`]). The
//! kernel's own counters ([`counters`], [`cpu`]) are compared with packtrain's. None of this uses
//! packtrain's engine or an external program. [`baseline`] has programs to compare
//! packtrain with, and needs a C compiler. A [`testbed`] is two hosts with what joins them, and
//! [`tools`] measure there.
//!
//! The namespaces have no names: each exists while a descriptor to it is open. So the kernel
//! removes them with the process, also after SIGKILL.
//!
//! ```no_run
//! use packtrain_lab::topology::{Settings, TwoHosts};
//! use packtrain_lab::traffic::{Amount, IpVersion, Transfer};
//!
//! # fn main() -> Result<(), packtrain_lab::LabError> {
//! let hosts = TwoHosts::veth(&Settings::default())?;
//! let report = Transfer::tcp(IpVersion::V6, Amount::Bytes(1 << 20))
//!     .run(&hosts.left, &hosts.right)?;
//! assert!(report.hash_ok);
//! # Ok(())
//! # }
//! ```

pub mod baseline;
mod cards;
mod cgroup;
pub mod check;
pub mod counters;
pub mod cpu;
pub mod cpus;
pub mod demo;
pub mod doctor;
mod error;
pub mod ethtool;
pub mod exec;
pub mod experiment;
pub mod guest;
pub mod harness;
mod headers;
pub mod in_force;
mod ip;
mod joined;
pub mod link;
pub mod machine;
pub mod netns;
pub mod options;
pub mod output;
pub mod report;
pub mod rootless;
mod session;
mod sys;
pub mod tap;
pub mod testbed;
mod threads;
pub mod tool;
pub mod tools;
pub mod topology;
pub mod traffic;
pub mod units;
pub mod used;

pub use error::{Feature, LabError, Missing, ToolError, Value};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
