//! Ports: each makes one kind of device look like descriptors.

pub mod null;
pub mod pcap;
pub mod sim;
pub mod spec;
mod sys;
pub mod tap;
mod vectored;
mod vnet;
pub mod wrap;
