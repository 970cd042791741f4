//! The engine in virtual time. Each scenario runs twice, and both runs are equal to the bit.

mod blast;
mod ends;
mod forward;
mod lost;
mod paced;
mod ping;
mod placement;
mod preempted;
mod seeds;
mod watched;
