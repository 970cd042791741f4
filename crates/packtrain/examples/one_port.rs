//! One port: a handler sends each frame back to its sender, and a handle sends frames of the
//! program's own, beside it. packtrain starts the threads.
//!
//! ```text
//! cargo run -p packtrain --example one_port -- tap:tap0
//! ```
//!
//! The program ends after 100 packets, and prints the ledger.

use packtrain::driver::IntoPort;
use packtrain::engine::{Ledger, RxId, Session, TrySendError};
use packtrain::{packet::Burst, port, time::Instant};
use std::{env, error::Error, thread, time::Duration};

/// To all stations, with an experimental type (IEEE 802).
const HELLO: &[u8] = b"\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01\x88\xb5hello";

/// The program: see the top of the file.
pub fn main() -> Result<(), Box<dyn Error>> {
    let port = env::args().nth(1).ok_or("usage: one_port PORT")?;
    run(port::open(&port)?, 100).map(|ledger| println!("{ledger:?}"))
}

/// Answers `packets` packets, and says hello every 100 ms until then.
pub fn run(port: impl IntoPort<Driver: 'static>, packets: u64) -> Result<Ledger, Box<dyn Error>> {
    let builder = Session::on(port).handler(|_queue| answer).senders(0, 1);
    let session = builder.packets(packets).start()?;
    let mut handle = session.handle(0, 0).ok_or("no TX queue")?;
    let mut burst = Burst::new();
    while !session.is_over() {
        let hello = handle.arena().packet_from(HELLO)?;
        burst.push(hello).map_err(|_packet| "stalled")?;
        match handle.try_send(&mut burst) {
            Ok(_) | Err(TrySendError::Full { .. }) => thread::sleep(Duration::from_millis(100)),
            Err(TrySendError::Closed) => break,
        }
    }
    Ok(session.finish().into_result()?.ledger)
}

/// Swaps the Ethernet addresses. The packets that stay in the burst are transmitted.
fn answer(_now: Instant, _from: RxId, burst: &mut Burst) {
    for packet in burst.iter_mut() {
        if let Ok(header) = packet.headers_mut(14) {
            let (destination, source) = header[..12].split_at_mut(6);
            destination.swap_with_slice(source);
        }
    }
}
