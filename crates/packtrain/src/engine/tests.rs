//! The engine over devices in memory: steps by hand, and threads.

mod coalesce;
mod control;
mod doorbells;
mod fake;
mod flows;
mod handles;
mod intake;
mod kept;
mod memory;
mod moderation;
mod resets;
mod slow;
mod steps;
mod threads;
