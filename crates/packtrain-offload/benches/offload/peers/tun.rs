//! tun-rs.

use crate::loops::coalesce::{Engine, Merging, Schedule};
use crate::loops::segments::{Cutter, Cutting, OUT_BYTES};
use crate::loops::sizes::{BURST, MSS, SLOTS};
use crate::loops::trains::Train;
use crate::loops::{Side, Work};
use std::hint::black_box;
use tun_rs::{GROTable, VirtioNetHdr};

/// Room in front of a packet, for the virtio-net header.
const OFFSET: usize = 16;
/// Room for a packet that everything was merged into.
const CAPACITY: usize = OFFSET + 65_535;

/// `GROTable::apply_gro()` over a burst of buffers with room to grow, as in a program that reads
/// packets from a socket and writes them to a TUN. It verifies what it is about to merge.
struct Gro {
    table: GROTable,
    buffers: Vec<Vec<u8>>,
    headers: usize,
    loaded: usize,
    received: usize,
    merged: usize,
}

impl Engine for Gro {
    fn load(&mut self, train: &mut Train, flow: u32) {
        let buffer = &mut self.buffers[self.loaded];
        // The payload is still in place: merging appends behind it.
        buffer.resize(OFFSET + self.headers + MSS, 0);
        train.write(flow, &mut buffer[OFFSET..]);
        self.loaded += 1;
    }

    fn receive(&mut self, count: usize) {
        let burst = &mut self.buffers[self.received..self.received + count];
        let merged = self.table.apply_gro(burst, OFFSET, true);
        merged.expect("packets are longer than the offset");
        self.received += count;
    }

    /// Nothing is held across bursts.
    fn flush(&mut self) {}

    fn collect(&mut self) -> usize {
        // What was merged away is left as it was, and its payload is in another buffer besides.
        let payloads = |buffer: &Vec<u8>| (buffer.len() - OFFSET - self.headers) / MSS;
        let all: usize = self.buffers[..self.loaded].iter().map(payloads).sum();
        self.merged = all - self.loaded;
        let given = self.loaded - self.merged;
        (self.loaded, self.received) = (0, 0);
        given
    }
}

pub fn merging(work: Work) -> Result<Box<dyn Side>, String> {
    let mut schedule = Schedule::of(work).ok_or("merges nothing")?;
    if schedule.hold != BURST || schedule.cold {
        return Err("tun-rs holds nothing across bursts".to_owned());
    }
    schedule.ethernet = false;
    let train = schedule.train();
    let headers = train.header_bytes();
    let buffer = || {
        let mut buffer = Vec::with_capacity(CAPACITY);
        buffer.resize(OFFSET + headers, 0);
        buffer.extend_from_slice(train.payload());
        buffer
    };
    let gro = Gro {
        table: GROTable::new(),
        buffers: (0..BURST).map(|_| buffer()).collect(),
        headers,
        loaded: 0,
        received: 0,
        merged: 0,
    };
    Ok(Box::new(Merging::new(gro, schedule)))
}

/// `gso_split()`.
struct Gso {
    packets: Vec<Vec<u8>>,
    out: Vec<Vec<u8>>,
    sizes: Vec<usize>,
    header: VirtioNetHdr,
}

impl Cutter for Gso {
    fn load(&mut self, slot: usize, packet: &[u8]) {
        packet.clone_into(&mut self.packets[slot]);
    }

    fn cut(&mut self, slot: usize) -> usize {
        let packet = &mut self.packets[slot];
        let (out, sizes) = (&mut self.out, &mut self.sizes);
        let cut = tun_rs::gso_split(packet, self.header, out, sizes, OFFSET, false);
        black_box(out);
        cut.unwrap_or(0)
    }
}

pub fn cutting(udp: bool, segments: usize) -> Box<dyn Side> {
    /// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
    const NEEDS_CSUM: u8 = 1;
    let (gso_type, transport, csum_offset) = if udp { (5, 8, 6) } else { (1, 32, 16) };
    let header = VirtioNetHdr {
        flags: NEEDS_CSUM,
        gso_type,
        hdr_len: 20 + transport,
        gso_size: MSS as u16,
        csum_start: 20,
        csum_offset,
    };
    let gso = Gso {
        packets: vec![Vec::new(); SLOTS],
        out: vec![vec![0; OUT_BYTES]; segments],
        sizes: vec![0; segments],
        header,
    };
    Box::new(Cutting::new(gso, segments, udp, false))
}
