//! System calls of the ports, and most of the unsafe code of the framework.

pub(crate) mod event;
pub(super) mod tap;
pub(super) mod tun;
