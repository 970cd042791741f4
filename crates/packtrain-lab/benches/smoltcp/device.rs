//! What a device of smoltcp has in this bench, and the two that are used as they are.

use crate::measure::{Error, INTERFACE, MTU};
use packtrain_lab::tap::{OFFLOAD_TSO, Tap};
use packtrain_offload::virtio_net::HeaderLen;
use packtrain_smoltcp::TunDevice;
use smoltcp::phy::{Device, Medium, TunTapInterface};
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};

/// A contestant.
pub trait Stack: Device + Sized {
    /// As in rows.
    const NAME: &'static str;

    /// Makes the interface in the namespace of the calling thread.
    ///
    /// # Errors
    /// From system calls.
    fn open() -> Result<Self, Error>;

    /// Called after each poll: writes packets that wait, and returns what has failed since the last
    /// call.
    ///
    /// # Errors
    /// From reads and writes, or a packet that the library does not take.
    fn end_of_poll(&mut self) -> Result<(), Error>;

    /// For the wait for packets.
    fn fd(&self) -> RawFd;
}

/// A TUN with a virtio-net header of 12 bytes. TCP over it is offloaded; the bench has no UDP.
pub fn tun() -> Result<File, Error> {
    let tap = Tap::tun(INTERFACE).multi_queue(false).vnet_hdr(true);
    let mut queues = tap.offload(OFFLOAD_TSO).open()?;
    Ok(File::from(queues.remove(0)))
}

/// Large packets, whole.
pub type Whole = TunDevice<File>;

impl Stack for Whole {
    const NAME: &'static str = "TunDevice";

    fn open() -> Result<Self, Error> {
        Ok(Self::tun(tun()?, MTU).with_header(HeaderLen::V1))
    }

    fn end_of_poll(&mut self) -> Result<(), Error> {
        self.take_error().map_or(Ok(()), |error| Err(error.into()))
    }

    fn fd(&self) -> RawFd {
        self.get_ref().as_raw_fd()
    }
}

/// smoltcp's own device. It panics where the others return an error.
pub type Own = TunTapInterface;

impl Stack for Own {
    const NAME: &'static str = "TunTapInterface";

    fn open() -> Result<Self, Error> {
        let device = Self::new(INTERFACE, Medium::Ip)?;
        let mtu = device.capabilities().max_transmission_unit;
        if mtu != usize::from(MTU) {
            return Err(format!("{}: an MTU of {mtu}, not {MTU}", Self::NAME).into());
        }
        Ok(device)
    }

    fn end_of_poll(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn fd(&self) -> RawFd {
        self.as_raw_fd()
    }
}
