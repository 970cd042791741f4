//! Faults in what merges: every file of `coalesce/` that decides something. The files are in
//! `crates/packtrain-offload/src/coalesce`.

use super::Fault;

mod flows;
mod headers;

pub const FAULTS: &[&[Fault]] = &[headers::FAULTS, flows::FAULTS];
