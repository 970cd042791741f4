//! Ports: each makes one kind of device look like descriptors.

mod sys;
pub mod tap;
mod vectored;
mod vnet;
