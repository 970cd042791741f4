//! System calls of the ports, and the unsafe code they need.

pub(super) mod tap;
pub(super) mod tun;
