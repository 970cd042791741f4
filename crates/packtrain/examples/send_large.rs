//! One large UDP packet: packtrain, or the device, cuts it into datagrams and finishes checksums.
//!
//! ```text
//! cargo run -p packtrain --example send_large -- pcap:large.pcapng,write 10000
//! ```

use etherparse::PacketBuilder;
use packtrain::engine::{Ledger, Session};
use packtrain::packet::{Arena, Burst, Packet};
use packtrain::port;
use packtrain_offload::checksum::pseudo_header_v4;
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::{ChecksumState, Gso, GsoKind, LinkType};
use std::{error::Error, num::NonZeroU16, time::Duration};

/// The program: a port (`tap:tap0`, a capture to write), and how many bytes to send.
pub fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let ledger = match &args[..] {
        [port, bytes] => run(port, bytes.parse()?)?,
        _ => return Err("usage: send_large PORT BYTES".into()),
    };
    println!("{ledger:?}");
    Ok(())
}

/// Sends `bytes` (at most 65,000) to `port` as one packet.
pub fn run(port: &str, bytes: usize) -> Result<Ledger, Box<dyn Error>> {
    let session = Session::on(port::open(port)?).senders(0, 1).start()?;
    let mut handle = session.handle(0, 0).ok_or("no TX queue")?;
    let payload: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
    let mut burst = Burst::new();
    let packet = large(handle.arena(), &payload)?;
    burst.push(packet).map_err(|_packet| "the burst is full")?;
    handle.send_blocking(&mut burst, Duration::from_secs(10))?;
    Ok(session.finish().into_result()?.ledger)
}

/// The headers of the first datagram, with the lengths of all of it, and the payload behind them.
fn large(arena: &Arena, payload: &[u8]) -> Result<Packet, Box<dyn Error>> {
    /// Payload of each datagram but the last.
    const EACH: NonZeroU16 = NonZeroU16::new(1400).expect("not 0");
    let (from, to) = ([198, 18, 0, 1], [198, 18, 0, 2]);
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4(from, to, 64)
        .udp(7000, 7001);
    let mut frame = Vec::with_capacity(builder.size(payload.len()));
    builder.write(&mut frame, payload)?;

    let layout = Layout::parse(LinkType::Ethernet, &frame, frame.len() as u32)?;
    // The checksum is partial: it holds the pseudo-header's sum, and the rest from the UDP header
    // on is still to be added.
    let (start, offset) = (layout.transport, 6);
    let pseudo = pseudo_header_v4(from, to, layout.protocol.0, layout.l4_len());
    let field = usize::from(start + offset);
    frame[field..field + 2].copy_from_slice(&pseudo.fold().to_be_bytes());

    let mut packet = arena.packet_from(&frame)?;
    let gso = Gso::new(GsoKind::UdpV4, EACH);
    let meta = packet.meta_mut();
    meta.layout = Some(layout);
    meta.checksum = ChecksumState::Partial { start, offset };
    meta.gso = Some(gso);
    // The number of wire packets in the counters and the ledger.
    meta.wire_packets = gso.segments(layout.payload_len()) as u16;
    Ok(packet)
}
