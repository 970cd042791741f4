//! Segmentation.

use crate::loops::contest::Side;
use crate::loops::segments::{Cutter, Cutting, OUT_BYTES};
use crate::loops::sizes::{MSS, SEGMENTS, SLOTS};
use core::num::NonZeroU16;
use core::ops::Range;
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::{Gso, GsoKind, LinkType};
use packtrain_offload::segment::{Fill, SegmentError, Segmenter};
use std::hint::black_box;

/// Link, IPv4 and TCP header with timestamps.
const HEADER_BYTES: usize = 14 + 20 + 32;

const SIZE: NonZeroU16 = NonZeroU16::new(MSS as u16).unwrap();

pub fn copying(segments: usize, udp: bool) -> Box<dyn Side> {
    let cutter = Copying {
        packets: vec![Vec::new(); SLOTS],
        out: vec![0; SEGMENTS * OUT_BYTES],
        lengths: [0; SEGMENTS],
        udp,
    };
    Box::new(Cutting::new(cutter, segments, udp, false))
}

pub fn sharing() -> Box<dyn Side> {
    let cutter = Sharing {
        packets: vec![Vec::new(); SLOTS],
        headers: vec![0; SEGMENTS * HEADER_BYTES],
        out: vec![Shared::default(); SEGMENTS],
    };
    Box::new(Cutting::new(cutter, SEGMENTS, false, true))
}

/// Parses and checks, as for any packet that comes in.
fn prepare(packet: &[u8], link: LinkType, udp: bool) -> Option<Segmenter> {
    let bytes = packet.len() as u32;
    let layout = Layout::parse(link, packet, bytes).ok()?;
    let kind = if udp { GsoKind::UdpV4 } else { GsoKind::TcpV4 };
    Segmenter::new(packet, &layout, Gso::new(kind, SIZE), bytes).ok()
}

/// Every segment in a buffer of its own, ready to be sent.
struct Copying {
    packets: Vec<Vec<u8>>,
    out: Vec<u8>,
    lengths: [usize; SEGMENTS],
    udp: bool,
}

impl Copying {
    fn write(&mut self, slot: usize) -> Result<usize, SegmentError> {
        let packet = &self.packets[slot];
        let segmenter = prepare(packet, LinkType::RawIp, self.udp).ok_or(SegmentError::Kind)?;
        let buffers = self.out.chunks_exact_mut(OUT_BYTES);
        let count = segmenter.segments() as usize;
        for (index, (out, length)) in buffers.zip(&mut self.lengths).take(count).enumerate() {
            *length = segmenter.write_segment(index as u32, packet, out)?;
        }
        Ok(count)
    }
}

impl Cutter for Copying {
    fn load(&mut self, slot: usize, packet: &[u8]) {
        packet.clone_into(&mut self.packets[slot]);
    }

    fn cut(&mut self, slot: usize) -> usize {
        self.write(slot).unwrap_or(0)
    }
}

/// A segment as a vectored write takes it: headers from one place, payload from another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shared {
    headers: Range<usize>,
    payload: Range<usize>,
}

/// Headers in one block, payload where it is.
struct Sharing {
    packets: Vec<Vec<u8>>,
    headers: Vec<u8>,
    out: Vec<Shared>,
}

impl Sharing {
    fn write(&mut self, slot: usize) -> Result<usize, SegmentError> {
        let packet = &self.packets[slot];
        let segmenter = prepare(packet, LinkType::Ethernet, false).ok_or(SegmentError::Kind)?;
        let bytes = segmenter.header_bytes();
        let headers = self.headers.chunks_exact_mut(bytes);
        for (index, (headers, out)) in headers.zip(&mut self.out).enumerate() {
            segmenter.write_header(index as u32, packet, headers, Fill::Partial)?;
            let Range { start, end } = segmenter.payload(index as u32);
            *out = Shared {
                headers: index * bytes..(index + 1) * bytes,
                payload: start as usize..end as usize,
            };
        }
        Ok(segmenter.segments() as usize)
    }
}

impl Cutter for Sharing {
    fn load(&mut self, slot: usize, packet: &[u8]) {
        packet.clone_into(&mut self.packets[slot]);
    }

    fn cut(&mut self, slot: usize) -> usize {
        let cut = self.write(slot).unwrap_or(0);
        black_box(&self.out);
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_segment_is_cut() {
        for udp in [false, true] {
            let mut side = copying(SEGMENTS, udp);
            assert!(side.sample(1).ns > 0.0);
        }
        assert!(sharing().sample(1).ns > 0.0);
    }
}
