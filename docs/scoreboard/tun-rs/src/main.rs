//! A forwarder between two TUN devices on the offload interface of tun-rs, `recv_multiple` and
//! `send_multiple`, used as its documentation shows. `scoreboard-tun-rs A B`.
//!
//! The program prints errors of a read or a write and goes on: an error concerns one packet, and
//! not the device. It ends when a device is removed.

use std::io::Error;
use tun_rs::{DeviceBuilder, GROTable, IDEAL_BATCH_SIZE, SyncDevice, VIRTIO_NET_HDR_LEN};

/// The most bytes that a read returns.
const READ: usize = VIRTIO_NET_HDR_LEN + 65_535;
/// Bytes for a packet of an MTU of 1500, behind the room that `send_multiple` needs for the
/// virtio-net header. `send_multiple` extends the buffers.
const BUFFER: usize = VIRTIO_NET_HDR_LEN + 2048;
/// `EBADFD`: the device was removed.
const REMOVED: i32 = 77;

fn main() -> Result<(), Error> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let [a, b] = &names[..] else {
        return Err(Error::other("usage: scoreboard-tun-rs A B"));
    };
    let open = |name: &str| DeviceBuilder::new().name(name).offload(true).build_sync();
    let (a, b) = (open(a)?, open(b)?);
    std::thread::scope(|scope| {
        scope.spawn(|| forward(&b, &a));
        forward(&a, &b)
    })
}

fn forward(from: &SyncDevice, to: &SyncDevice) -> Result<(), Error> {
    let mut read = vec![0; READ];
    let mut sizes = vec![0; IDEAL_BATCH_SIZE];
    let mut buffers = vec![vec![0; BUFFER]; IDEAL_BATCH_SIZE];
    let mut table = GROTable::default();
    loop {
        for buffer in &mut buffers {
            buffer.resize(BUFFER, 0);
        }
        let count =
            match from.recv_multiple(&mut read, &mut buffers, &mut sizes, VIRTIO_NET_HDR_LEN) {
                Ok(count) => count,
                Err(error) if error.raw_os_error() == Some(REMOVED) => std::process::exit(0),
                Err(error) => {
                    eprintln!("read: {error}");
                    continue;
                }
            };
        for (buffer, size) in buffers.iter_mut().zip(&sizes[..count]) {
            buffer.truncate(VIRTIO_NET_HDR_LEN + size);
        }
        if let Err(error) = to.send_multiple(&mut table, &mut buffers[..count], VIRTIO_NET_HDR_LEN)
        {
            eprintln!("write: {error}");
        }
    }
}
