//! Decisions that depend on what is going on.
//!
//! Each is a state machine `(state, now, observation) -> action`. There is no thread, clock, float
//! or system call inside: `now` is passed in, observations are counts, and so a policy does the
//! same in a worker, in a caller's own event loop, and in a simulation. Any observation is safe,
//! also one that no queue could make, and a clock that stands still, jumps or goes back. Nothing
//! here allocates after it was made.
//!
//! Each has a setting that people write (`adaptive`, `threshold(8)`): `FromStr`
//! reads it, and `Display` writes it again as it is read.

pub mod dispatch;
pub mod idle;
pub mod moderation;
mod setting;

pub use setting::SettingError;
