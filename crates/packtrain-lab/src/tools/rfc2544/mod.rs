//! `rfc2544`: the throughput of a testbed by frame size, with latency, loss and bursts.

pub mod search;
