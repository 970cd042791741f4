//! System calls of the ports, and most of the unsafe code of the framework.

pub(super) mod card;
pub(super) mod device;
pub(super) mod link;
pub(super) mod packet;
pub(super) mod socket;
pub(super) mod tap;
pub(super) mod threads;
pub(super) mod tun;
pub(super) mod vfio;
pub(super) mod vhost;
pub(super) mod xdp;
