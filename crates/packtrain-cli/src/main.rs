//! The packtrain program.
fn main() {}
