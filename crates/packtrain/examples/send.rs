//! Two threads of an application send through one queue of a port, beside packtrain's own workers.
//!
//! ```text
//! cargo run -p packtrain --example send -- null: 100000
//! ```

use packtrain::engine::{Ledger, Session, TxHandle};
use packtrain::{packet::Burst, port};
use std::{error::Error, thread, time::Duration};

/// The program: a port (`null:`, `tap:tap0`), and how many frames each thread sends.
pub fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let ledger = match &args[..] {
        [port, count] => run(port, count.parse()?)?,
        _ => return Err("usage: send PORT COUNT".into()),
    };
    println!("{ledger:?}");
    Ok(())
}

/// Sends `count` frames from each of two threads to `port`.
pub fn run(port: &str, count: u32) -> Result<Ledger, Box<dyn Error>> {
    let session = Session::on(port::open(port)?).senders(0, 2).start()?;
    let handle = session.handle(0, 0).ok_or("no TX queue")?;
    // A clone for each thread: it counts for itself, and needs no lock.
    let threads = [1, 2].map(|thread| {
        let handle = handle.clone();
        thread::spawn(move || send(handle, thread, count))
    });
    for thread in threads {
        thread.join().map_err(|_panic| "a thread panicked")??;
    }
    Ok(session.finish().into_result()?.ledger)
}

/// Sends frames in bursts. If the device is slower, it waits for space.
fn send(mut handle: TxHandle, thread: u8, count: u32) -> Result<(), String> {
    let (mut burst, mut frame) = (Burst::new(), [thread; 60]);
    frame[12..14].copy_from_slice(&0x88b5u16.to_be_bytes()); // IEEE 802: local experiments.
    for number in 1..=count {
        frame[14..18].copy_from_slice(&number.to_be_bytes());
        let packet = loop {
            match handle.arena().packet_from(&frame) {
                Ok(packet) => break packet,
                // The device has all the buffers: take back those that it has completed.
                Err(_no_buffer) => (handle.reclaim(), thread::yield_now()),
            };
        };
        burst.push(packet).map_err(|_packet| "the burst is full")?;
        if burst.room() == 0 || number == count {
            let sent = handle.send_blocking(&mut burst, Duration::from_secs(10));
            sent.map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}
