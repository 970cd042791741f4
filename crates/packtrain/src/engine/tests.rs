//! The engine over devices in memory: steps by hand in virtual time, and threads.

mod fake;
mod intake;
mod memory;
mod rig;
mod steps;
