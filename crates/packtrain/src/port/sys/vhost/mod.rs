//! The vhost-user protocol, and the rings and the memory of a guest.

pub(in crate::port) mod bell;
#[cfg(feature = "internals")]
pub(in crate::port) mod by_hand;
pub(in crate::port) mod device;
pub(in crate::port) mod features;
pub(in crate::port) mod memory;
pub(in crate::port) mod message;
pub(in crate::port) mod packet;
pub(in crate::port) mod ring;
pub(in crate::port) mod serve;
pub(in crate::port) mod setup;
