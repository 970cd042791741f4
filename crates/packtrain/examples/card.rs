//! A host of one address on a network card: it answers ARP and ping, and prints its counters once
//! it has no link or no input (Ctrl-D).
//!
//! ```text
//! cargo build -p packtrain --example card
//! sudo target/debug/examples/card e1000e:0000:01:00.0 198.18.0.2
//! ```

use packtrain::driver::IntoPort;
use packtrain::engine::{RxId, Session, Snapshot};
use packtrain::{packet::Burst, packet::Packet, port, time::Instant};
use std::{env, error::Error, io, net::Ipv4Addr};

/// A locally administered address.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// The program: see the top of the file.
pub fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let (port, ip) = args.next().zip(args.next()).ok_or("usage: card PORT IP")?;
    let port = port::open(&port)?;
    let run = run(port, ip.parse()?, || {
        io::copy(&mut io::stdin(), &mut io::sink())
    })?;
    println!("{:#?}\n{:?}", run.ports, run.ledger);
    Ok(())
}

/// Answers for `ip` until `wait` returns.
pub fn run<T>(
    port: impl IntoPort<Driver: 'static>,
    ip: Ipv4Addr,
    wait: impl FnOnce() -> io::Result<T>,
) -> Result<Snapshot, Box<dyn Error>> {
    // What stays in the burst is transmitted.
    let handler = move |_now: Instant, _from: RxId, burst: &mut Burst| {
        burst
            .iter_mut()
            .for_each(|packet| answer(packet, ip.octets()));
        burst.retain(|packet| packet.first().get(6..12) == Some(&MAC));
    };
    let session = Session::on(port).handler(move |_queue| handler).start()?;
    wait()?;
    Ok(session.finish().into_result()?)
}

/// Makes the answer of a request, which is from [`MAC`]. Others stay as they are.
fn answer(packet: &mut Packet, ip: [u8; 4]) {
    let Ok(frame) = packet.headers_mut(42) else {
        return;
    };
    match (&frame[12..14], frame[21], frame[23], frame[34]) {
        // ARP (RFC 826): a request for the address becomes the reply.
        ([8, 6], 1, ..) if frame[38..42] == ip => {
            frame.copy_within(22..32, 32);
            frame[22..28].copy_from_slice(&MAC);
            frame[28..32].copy_from_slice(&ip);
            frame[21] = 2;
        }
        // An echo request without IP options (RFC 792) becomes the reply: 8 less in its sum.
        ([8, 0], _, 1, 8) if frame[14] == 0x45 && frame[30..34] == ip => {
            let (source, destination) = frame[26..34].split_at_mut(4);
            source.swap_with_slice(destination);
            frame[34] = 0;
            let sum = u16::from_be_bytes([frame[36], frame[37]]);
            let (sum, carry) = sum.overflowing_add(0x0800);
            frame[36..38].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
        }
        _ => return,
    }
    frame.copy_within(6..12, 0);
    frame[6..12].copy_from_slice(&MAC);
}
