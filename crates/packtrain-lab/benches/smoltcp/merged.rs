//! A device that gives smoltcp wire packets, and merges those that smoltcp has sent in a poll.

use crate::device::{Stack, tun};
use crate::measure::{Error, MTU};
use packtrain_offload::tun::{TunOffload, WRITE_BYTES_MAX};
use packtrain_offload::virtio_net::HeaderLen;
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read, Result as IoResult, Write};
use std::os::fd::{AsRawFd, RawFd};

/// A TUN with a virtio-net header.
pub struct Merged {
    device: File,
    offload: TunOffload,
    read: Vec<u8>,
    received: VecDeque<Vec<u8>>,
    sent: Vec<Vec<u8>>,
    buffers: Vec<Vec<u8>>,
    error: IoResult<()>,
}

impl Merged {
    fn read(&mut self) -> IoResult<()> {
        let bytes = match self.device.read(&mut self.read) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            bytes => bytes?,
        };
        let mut packets = self.offload.packets(&mut self.read[..bytes])?;
        while let Some(packet) = packets.next_packet() {
            self.received.push_back(packet.to_vec());
        }
        Ok(())
    }
}

impl Stack for Merged {
    const NAME: &'static str = "wire packets, merged";

    fn open() -> Result<Self, Error> {
        Ok(Self {
            device: tun()?,
            offload: TunOffload {
                header: Some(HeaderLen::V1),
                // smoltcp makes right checksums, and numbers no packets.
                verified: true,
                merge_fixed_id: true,
                ..TunOffload::tun()
            },
            read: vec![0; WRITE_BYTES_MAX],
            received: VecDeque::new(),
            sent: Vec::new(),
            buffers: vec![vec![0; WRITE_BYTES_MAX]; 9],
            error: Ok(()),
        })
    }

    fn end_of_poll(&mut self) -> Result<(), Error> {
        let device = &mut self.device;
        let write = |write: &mut [u8]| device.write_all(write);
        let written = self
            .offload
            .write_batch(&mut self.buffers, &self.sent, write)?;
        assert_eq!(written.buffer_too_short, 0, "a buffer takes any packet");
        self.sent.clear();
        Ok(std::mem::replace(&mut self.error, Ok(()))?)
    }

    fn fd(&self) -> RawFd {
        self.device.as_raw_fd()
    }
}

impl Device for Merged {
    type RxToken<'a>
        = Packet
    where
        Self: 'a;
    type TxToken<'a>
        = Sent<'a>
    where
        Self: 'a;

    fn receive(&mut self, _now: Instant) -> Option<(Packet, Sent<'_>)> {
        if self.received.is_empty() {
            self.error = self.read();
        }
        let packet = self.received.pop_front()?;
        Some((Packet(packet), Sent(&mut self.sent)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Sent<'_>> {
        Some(Sent(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = usize::from(MTU);
        capabilities
    }
}

/// A packet for smoltcp.
pub struct Packet(Vec<u8>);

impl RxToken for Packet {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

/// Where smoltcp's packets go.
pub struct Sent<'a>(&'a mut Vec<Vec<u8>>);

impl TxToken for Sent<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, bytes: usize, write: F) -> R {
        let mut packet = vec![0; bytes];
        let result = write(&mut packet);
        self.0.push(packet);
        result
    }
}
