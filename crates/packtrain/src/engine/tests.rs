//! The engine over devices in memory: steps by hand in virtual time, and threads.

mod builder;
mod control;
mod doorbells;
mod fake;
mod intake;
mod kept;
mod memory;
mod resets;
mod rig;
mod shared;
mod steps;
