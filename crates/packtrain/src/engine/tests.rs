//! The engine over devices in memory: steps by hand, and threads.

mod coalesce;
mod fake;
mod handles;
mod intake;
mod memory;
mod moderation;
mod steps;
mod threads;
