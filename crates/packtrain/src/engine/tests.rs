//! The engine with fake devices in memory: single steps in virtual time, and threads.

mod among;
mod builder;
mod coalesce;
mod control;
mod doorbells;
mod egress;
mod fake;
mod flows;
mod handles;
mod intake;
mod kept;
mod memory;
mod moderation;
mod resets;
mod rig;
mod shared;
mod slow;
mod steps;
mod threads;
