//! The interface of a port and its queues, with what changes while it runs.

use crate::driver::Link;
use crate::limits::{HEADROOM_BYTES, SMALL_FRAME_BYTES};
use crate::port::sys::device::Device;
use packtrain_offload::limits::L2_HEADER_BYTES_MAX;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// The interface of a port and its queues.
#[derive(Debug)]
pub(in crate::port) struct Line {
    pub(in crate::port) device: Device,
    /// As checked last.
    down: AtomicBool,
}

impl Line {
    pub(super) const fn new(device: Device) -> Self {
        let down = AtomicBool::new(false);
        Self { device, down }
    }

    /// The link: two system calls.
    pub(in crate::port) fn check(&self) -> Link {
        let link = self.device.link();
        self.down.store(link == Link::Down, Ordering::Relaxed);
        link
    }

    /// Whether the link was down at the last [`check`](Self::check). The kernel refuses packets
    /// only if the interface is not up: without a carrier it drops them, and says that it has sent
    /// them.
    pub(super) fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    /// The MTU: two system calls.
    pub(in crate::port) fn mtu(&self) -> io::Result<u32> {
        self.device.control().mtu_of(self.device.index())
    }

    /// Whether one frame holds the longest packet, with two VLAN tags.
    pub(super) fn fits_a_frame(&self) -> io::Result<bool> {
        let bytes = self.mtu()? as usize + L2_HEADER_BYTES_MAX;
        Ok(bytes <= SMALL_FRAME_BYTES - HEADROOM_BYTES)
    }
}
