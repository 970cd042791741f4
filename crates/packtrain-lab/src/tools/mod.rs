//! The tools: each applies a load to a testbed, and reports what was measured.

pub mod rfc2544;
