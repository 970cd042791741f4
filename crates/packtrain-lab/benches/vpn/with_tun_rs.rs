//! tun-rs for the device and for the offloads, as its README and `send_multiple` say.

use crate::endpoint::{Endpoint, Wire};
use std::io;
use tun_rs::{GROTable, IDEAL_BATCH_SIZE, SyncDevice, VIRTIO_NET_HDR_LEN};

pub struct WithTunRs {
    read: Vec<u8>,
    packets: Vec<Vec<u8>>,
    sizes: Vec<usize>,
    table: GROTable,
}

impl Default for WithTunRs {
    fn default() -> Self {
        Self {
            read: vec![0; VIRTIO_NET_HDR_LEN + 65535],
            packets: vec![vec![0; 1500]; IDEAL_BATCH_SIZE],
            sizes: vec![0; IDEAL_BATCH_SIZE],
            table: GROTable::default(),
        }
    }
}

impl Endpoint for WithTunRs {
    const NAME: &'static str = "tun-rs";

    fn device_to_wire(&mut self, device: &SyncDevice, wire: &mut Wire) -> io::Result<()> {
        let (packets, sizes) = (&mut self.packets, &mut self.sizes);
        let count = device.recv_multiple(&mut self.read, packets, sizes, 0)?;
        for (packet, size) in packets.iter().zip(sizes).take(count) {
            wire.send(&packet[..*size]);
        }
        Ok(())
    }

    fn wire_to_device(&mut self, wire: &mut Wire, device: &SyncDevice) -> io::Result<()> {
        let packets = wire.receive();
        device.send_multiple(&mut self.table, packets, Wire::HEADROOM)?;
        Ok(())
    }
}
