//! The interface of a port and its queues, with what changes while it runs.

use crate::driver::Link;
use crate::limits::{HEADROOM_BYTES, SMALL_FRAME_BYTES};
use crate::port::sys::device::Device;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes behind the MTU that a frame may have: an Ethernet header, and a tag of 802.1Q.
const ETHERNET_BYTES: u32 = 14;
const TAG_BYTES: u32 = 4;

/// The interface of a port and its queues.
#[derive(Debug)]
pub(in crate::port) struct Line {
    pub(in crate::port) device: Device,
    mtu: AtomicU32,
}

impl Line {
    pub(super) fn new(device: Device) -> io::Result<Self> {
        let mtu = device.control().mtu_of(device.index())?;
        Ok(Self {
            device,
            mtu: AtomicU32::new(mtu),
        })
    }

    /// The link. Reads the MTU again.
    pub(in crate::port) fn check(&self) -> Link {
        let mtu = self.device.control().mtu_of(self.device.index());
        if let Ok(mtu) = mtu {
            self.mtu.store(mtu, Ordering::Relaxed);
        }
        self.device.link()
    }

    /// The bytes of the longest frame, with a tag of 802.1Q or without.
    pub(in crate::port) fn bytes_max(&self, tagged: bool) -> usize {
        let tag = if tagged { TAG_BYTES } else { 0 };
        (self.mtu.load(Ordering::Relaxed) + ETHERNET_BYTES + tag) as usize
    }

    /// Whether one frame holds the longest.
    pub(super) fn fits_a_frame(&self) -> bool {
        self.bytes_max(true) <= SMALL_FRAME_BYTES - HEADROOM_BYTES
    }
}
