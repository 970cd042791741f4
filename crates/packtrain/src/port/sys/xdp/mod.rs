//! AF_XDP sockets: the program that gives them packets, their rings, and what opens them.

mod flight;
pub(in crate::port) mod given;
pub(in crate::port) mod line;
pub(in crate::port) mod open;
mod program;
pub(in crate::port) mod receive;
mod ring;
pub(in crate::port) mod send;
pub(in crate::port) mod socket;
#[cfg(test)]
mod tests;
