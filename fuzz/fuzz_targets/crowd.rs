//! As `coalesce`, with thousands of flows held before the train begins: enough for prefetch, and
//! for sorting a queue of them. A target of its own, since it takes a hundred times as long.

#![no_main]

mod train;

use libfuzzer_sys::fuzz_target;
// `test_packets` has them from the root of its crate.
use packtrain_offload::{checksum, coalesce, layout, offload};

fuzz_target!(|data: &[u8]| train::run(data, true));
