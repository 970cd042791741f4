//! The interface of a port and its queues, with what changes while it runs.

use crate::driver::Link;
use crate::limits::{HEADROOM_BYTES, SMALL_FRAME_BYTES};
use crate::port::sys::device::Device;
use std::io;

/// Bytes behind the MTU that a frame may have: an Ethernet header, and a tag of 802.1Q.
const ETHERNET_BYTES: u32 = 14;
const TAG_BYTES: u32 = 4;

/// The interface of a port and its queues.
#[derive(Debug)]
pub(in crate::port) struct Line {
    pub(in crate::port) device: Device,
}

impl Line {
    /// The link.
    pub(in crate::port) fn check(&self) -> Link {
        self.device.link()
    }

    /// The MTU: two system calls.
    pub(in crate::port) fn mtu(&self) -> io::Result<u32> {
        self.device.control().mtu_of(self.device.index())
    }

    /// Whether one frame holds the longest packet, with a tag of 802.1Q.
    pub(super) fn fits_a_frame(&self) -> io::Result<bool> {
        let bytes = self.mtu()? + ETHERNET_BYTES + TAG_BYTES;
        Ok(bytes as usize <= SMALL_FRAME_BYTES - HEADROOM_BYTES)
    }
}
