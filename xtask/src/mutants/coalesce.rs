//! Faults in what merges: every file of `coalesce/` that decides something. The files are in
//! `crates/packtrain-offload/src/coalesce`.

use super::fault::Fault;

mod flows;
mod headers;

pub const FAULTS: &[&[Fault]] = &[headers::FAULTS, flows::FAULTS];

/// What is there in the place of faults that keep tests from ending: a set that is full never gets
/// room, or the oldest entry is looked for where none is.
pub const HANGS: &[&str] = &[
    "self.sets[set as usize].tags[way as usize] = 0;",
    "return Err(self.oldest_of(ring, set));",
    "if self.entries[ring.head as usize].packet.is_some() {",
    "            if tail as usize == self.entries.len() {\n                tail = 0;",
    "entry.slot = (at << WAY_BITS | way) as u32;",
    "        parts.sets.fill(Set::EMPTY);\n        self.core.ring",
    "        self.core.ring = Ring::default();\n",
];
