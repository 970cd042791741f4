//! What a VPN does with a TUN, and the wire between two of them.

use std::io;
use tun_rs::{IDEAL_BATCH_SIZE, SyncDevice, VIRTIO_NET_HDR_LEN};

/// One direction of a VPN: a TUN to wire packets, and wire packets to a TUN.
pub trait Endpoint: Default {
    /// As in rows.
    const NAME: &'static str;

    /// Reads the device once, and sends the wire packets of that read.
    ///
    /// # Errors
    /// From the read, or a packet that the library does not take.
    fn device_to_wire(&mut self, device: &SyncDevice, wire: &mut Wire) -> io::Result<()>;

    /// Receives one batch of wire packets, and writes it to the device.
    ///
    /// # Errors
    /// From a write.
    fn wire_to_device(&mut self, wire: &mut Wire, device: &SyncDevice) -> io::Result<()>;
}

/// The network between two endpoints, without a cipher and without sockets: each packet is copied
/// once, into a receive buffer. A batch is what was sent since the last batch.
#[derive(Debug)]
pub struct Wire {
    buffers: Vec<Vec<u8>>,
    sent: usize,
}

impl Wire {
    /// Bytes in front of each received packet, for a virtio-net header.
    pub const HEADROOM: usize = VIRTIO_NET_HDR_LEN;

    /// Sends one packet.
    pub fn send(&mut self, packet: &[u8]) {
        if self.sent == self.buffers.len() {
            self.buffers.push(buffer());
        }
        let buffer = &mut self.buffers[self.sent];
        buffer.truncate(Self::HEADROOM);
        buffer.extend_from_slice(packet);
        self.sent += 1;
    }

    /// Receives all packets that were sent, each behind [`HEADROOM`](Self::HEADROOM) bytes.
    pub fn receive(&mut self) -> &mut [Vec<u8>] {
        let sent = std::mem::take(&mut self.sent);
        &mut self.buffers[..sent]
    }
}

impl Default for Wire {
    fn default() -> Self {
        let buffers = (0..IDEAL_BATCH_SIZE).map(|_| buffer()).collect();
        Self { buffers, sent: 0 }
    }
}

/// A receive buffer. tun-rs merges packets in the first one's buffer: it has room for 64 KiB, and
/// for the headroom twice, which tun-rs asks for.
fn buffer() -> Vec<u8> {
    let mut buffer = Vec::with_capacity(2 * Wire::HEADROOM + usize::from(u16::MAX));
    buffer.resize(Wire::HEADROOM, 0);
    buffer
}
