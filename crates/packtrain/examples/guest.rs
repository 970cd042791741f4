//! A network device for a virtual machine: each packet that the guest sends comes back to it.
//!
//! ```text
//! cargo run -p packtrain --example guest -- /tmp/vm0.sock
//! qemu-system-x86_64 -m 512 -machine memory-backend=mem \
//!     -object memory-backend-memfd,id=mem,size=512M,share=on,prealloc=on \
//!     -chardev socket,id=c0,path=/tmp/vm0.sock -netdev vhost-user,id=n0,chardev=c0 \
//!     -device virtio-net-pci,netdev=n0 -drive file=vm0.qcow2
//! ```
//!
//! The program ends after a minute, and prints the ledger.

use packtrain::engine::{Ledger, Session};
use packtrain::packet::Burst;
use packtrain::port::vhost::{Vhost, VhostConfig};
use std::{env, error::Error, path::Path, thread, time::Duration};

/// The program: see the top of the file.
pub fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).ok_or("usage: guest PATH")?;
    run(Path::new(&path), Duration::from_secs(60)).map(|ledger| println!("{ledger:?}"))
}

/// Answers packets for a time. Front ends may come and go meanwhile.
pub fn run(path: &Path, time: Duration) -> Result<Ledger, Box<dyn Error>> {
    let port = Vhost::open(&VhostConfig::server(path))?;
    let watch = port.watch();
    let session = Session::on(port).handler(|_queue| answer).start()?;
    thread::sleep(time);
    println!("{:?}", watch.status());
    Ok(session.finish().into_result()?.ledger)
}

/// Swaps the Ethernet addresses. The packets that stay in the burst are transmitted.
fn answer(_now: packtrain::time::Instant, _from: packtrain::engine::RxId, burst: &mut Burst) {
    for packet in burst.iter_mut() {
        if let Ok(header) = packet.headers_mut(14) {
            let (destination, source) = header[..12].split_at_mut(6);
            destination.swap_with_slice(source);
        }
    }
}
