//! Decisions that depend on what is going on: when a TX ring is drained and by whom
//! ([`dispatch`]), when an RX queue signals ([`moderation`]), what a worker does with nothing to
//! do ([`idle`]), which CPU works a queue ([`placement`]), and who goes first there ([`priority`]).
//!
//! Each is a state machine `(state, now, observation) -> action`; the last two keep no state.
//! There is no thread, clock, float or system call inside: `now` is passed in, observations are
//! counts, and so a policy does the same in a worker, in a caller's own event loop, and in a
//! simulation. Any observation is safe, also one that no queue could make, and a clock that stands
//! still, jumps or goes back. Nothing here allocates after it was made, but for placement, which
//! runs at start and when the CPUs that may be used change.
//!
//! Each has a setting that people write (`adaptive`, `fixed(50,64)`, `list(0,2-3)`): `FromStr`
//! reads it, and `Display` writes it again as it is read.

pub mod dispatch;
pub mod idle;
pub mod moderation;
pub mod placement;
pub mod priority;
mod setting;
pub mod topology;

pub use setting::SettingError;
