//! The decisions at run time: what a producer does with a batch ([`dispatch`]), when an RX queue
//! may wake its worker ([`moderation`]), how long packets are held to be merged ([`gro`]), what a
//! worker without work does ([`idle`]), on which CPU it runs ([`placement`]), and with which nice
//! value ([`priority`]).
//!
//! Each policy is a state machine `(state, now, observation) -> action` without a thread, clock,
//! float or system call; only [`topology`] reads files. The caller passes `now` in, and
//! observations are counts. So a policy decides the same in a worker, in an event loop of the
//! caller and in a simulation. Every observation is safe, and so is a clock that stops, jumps or
//! goes back. After construction no policy allocates, except placement, which runs at start.
//!
//! Each policy has a setting in text form (`adaptive`, `fixed(50,64)`, `list(0,2-3)`): `FromStr`
//! parses it, and `Display` writes the same text.

pub mod dispatch;
pub mod gro;
pub mod idle;
pub mod moderation;
pub mod placement;
pub mod priority;
mod setting;
pub mod topology;

pub use setting::SettingError;
