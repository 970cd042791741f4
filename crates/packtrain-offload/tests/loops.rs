//! The measured loops of `cargo bench --bench offload`, tested: a bench without a harness has no
//! tests of its own.

#[allow(
    dead_code,
    unused_imports,
    reason = "the bench uses what the tests here do not"
)]
#[path = "../benches/offload/loops/mod.rs"]
mod loops;
