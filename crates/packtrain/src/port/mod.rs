//! Ports: each makes one kind of device look like descriptors.

pub mod spec;
