//! `Coalescer` over trains of packets, some built from a few settings, some any bytes: no packet is
//! lost or left behind, flows stay in order, merged packets are correct, and segmentation restores
//! the packets that `Reversible` merged.

#![no_main]

mod train;

use libfuzzer_sys::fuzz_target;
// `test_packets` has them from the root of its crate.
use packtrain_offload::{checksum, coalesce, layout, offload};

fuzz_target!(|data: &[u8]| train::run(data, false));
