//! GSO packets to cut, and the timing of it.

use crate::loops::contest::{Sample, Side};
use crate::loops::sizes::{MSS, SLOTS};
use crate::loops::trains::{Kind, Train};
use packtrain_measure::clock::Laps;
use std::hint::black_box;

/// Bytes between two output buffers.
pub const OUT_BYTES: usize = 2048;

/// How often each is cut.
const TIMES: usize = 8;

/// A segmenter.
pub trait Cutter {
    /// Called before the clock starts, with a fresh packet: link header, if any, IP, TCP or UDP,
    /// payload, the pseudo-header sum in the checksum field.
    fn load(&mut self, slot: usize, packet: &[u8]);

    /// Cuts the packet in `slot`; returns the number of segments.
    fn cut(&mut self, slot: usize) -> usize;

    /// Called after the clock: frees the output of [`cut`](Self::cut).
    fn clear(&mut self) {}
}

/// A cutter and its packets.
pub struct Cutting<C> {
    cutter: C,
    train: Train,
    segments: usize,
}

impl<C: Cutter> Cutting<C> {
    /// Packets of TCP or UDP over IPv4, on Ethernet or raw.
    /// Each becomes `segments` segments.
    pub fn new(cutter: C, segments: usize, udp: bool, ethernet: bool) -> Self {
        let kind = if udp { Kind::Udp } else { Kind::Tcp };
        Self {
            cutter,
            segments,
            train: Train::new(kind, ethernet, SLOTS as u32),
        }
    }
}

impl<C: Cutter> Side for Cutting<C> {
    fn sample(&mut self, seed: u64) -> Sample {
        self.train.restart(seed);
        for slot in 0..SLOTS {
            let packet = self.train.gso_packet(slot as u32, self.segments);
            debug_assert_eq!(
                packet.len(),
                self.train.header_bytes() + self.segments * MSS
            );
            self.cutter.load(slot, &packet);
        }
        let (mut laps, mut segments) = (Laps::new(), 0);
        for _ in 0..TIMES {
            for slot in 0..SLOTS {
                let cutter = &mut self.cutter;
                let cut = laps.time(|| black_box(cutter.cut(black_box(slot))));
                assert_eq!(cut, self.segments, "a packet was not cut as it has to be");
                segments += cut as u64;
                self.cutter.clear();
            }
        }
        Sample::new(laps.per(segments))
    }
}
