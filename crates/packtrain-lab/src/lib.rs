//! The packtrain laboratory: kernels to talk to, and honest instruments.
//!
//! Everything here works without packtrain's engine and without any external program: two network
//! namespaces ([`netns`]) with one interface each ([`topology`], [`tap`], [`link`]), load from
//! ordinary sockets whose bytes are hashed at both ends ([`traffic`]), and the kernel's own
//! counters ([`counters`], [`cpu`]) to check packtrain's against. [`baseline`] alone needs a C
//! compiler: a forwarder to compare packtrain with.
//!
//! Nothing has a name outside the process: a namespace lives as long as a descriptor to it does,
//! so even SIGKILL leaves nothing behind.
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
pub mod counters;
pub mod cpu;
pub mod demo;
mod error;
pub mod harness;
mod ip;
pub mod link;
pub mod netns;
pub mod rootless;
mod sys;
pub mod tap;
pub mod topology;
pub mod traffic;

pub use error::{Feature, LabError, Missing};
