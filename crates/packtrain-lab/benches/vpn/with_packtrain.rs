//! tun-rs for the device, packtrain-offload for the offloads.

use crate::endpoint::{Endpoint, Wire};
use packtrain_offload::tun::{TunOffload, WRITE_BYTES_MAX};
use std::convert::Infallible;
use std::io;
use tun_rs::SyncDevice;

pub struct WithPacktrain {
    tun: TunOffload,
    read: Vec<u8>,
    writes: Vec<[u8; WRITE_BYTES_MAX]>,
}

impl Default for WithPacktrain {
    fn default() -> Self {
        Self {
            tun: TunOffload::tun(),
            read: vec![0; WRITE_BYTES_MAX],
            writes: vec![[0; WRITE_BYTES_MAX]; 9],
        }
    }
}

impl Endpoint for WithPacktrain {
    const NAME: &'static str = "packtrain";

    fn device_to_wire(&mut self, device: &SyncDevice, wire: &mut Wire) -> io::Result<()> {
        let bytes = device.recv(&mut self.read)?;
        let mut packets = self.tun.packets(&mut self.read[..bytes])?;
        while let Some(packet) = packets.next_packet() {
            wire.send(packet);
        }
        Ok(())
    }

    fn wire_to_device(&mut self, wire: &mut Wire, device: &SyncDevice) -> io::Result<()> {
        let packets = wire
            .receive()
            .iter()
            .map(|packet| &packet[Wire::HEADROOM..]);
        // A failed write drops its packets and not the rest of the batch, as `send_multiple` does.
        // The last error ends the bench: its figures would be of fewer packets.
        let mut result = Ok(());
        let write = |write: &mut [u8]| -> Result<(), Infallible> {
            if let Err(error) = device.send(write) {
                result = Err(error);
            }
            Ok(())
        };
        let Ok(_) = self.tun.write_batch(&mut self.writes, packets, write);
        result
    }
}
