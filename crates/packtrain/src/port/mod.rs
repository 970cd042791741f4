//! Ports: each makes one kind of device look like descriptors.

pub mod null;
pub mod sim;
pub(crate) mod sys;
