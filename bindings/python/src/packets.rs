//! Coalescing and segmentation of packets in memory.

use packtrain_capture::replay::Frame;
use packtrain_offload::coalesce::{Coalescer, Owned};
use packtrain_offload::layout::{Layout, Network, Transport};
use packtrain_offload::offload::{ChecksumState, Gso, GsoKind, LinkType};
use packtrain_offload::segment::{SegmentError, Segmenter};
use pyo3::prelude::*;
use std::num::NonZeroU16;

use crate::grid::{Grid, word};
use crate::raised::wrong;

const LINKS: [(&str, LinkType); 2] = [("ip", LinkType::RawIp), ("ethernet", LinkType::Ethernet)];

/// Merges packets as one window with the first configuration of a grid. Returns each packet that
/// leaves with the number of packets in it.
#[pyfunction]
pub fn coalesce(
    py: Python<'_>,
    packets: Vec<Vec<u8>>,
    link: &str,
    grid: &Grid,
) -> PyResult<Vec<(Vec<u8>, usize)>> {
    let options = grid.runs.first().copied().unwrap_or_default();
    let link = word("link", link, &LINKS)?;
    let Some(semantics) = options.coalesce else {
        return Ok(packets.into_iter().map(|packet| (packet, 1)).collect());
    };
    let config = options.config(semantics, link);
    py.detach(|| {
        let mut out = Vec::new();
        let mut leave = |frame: Frame, _: &_| {
            let packets = 1 + frame.numbers().1.len();
            out.push((frame.into_bytes(), packets));
        };
        let mut coalescer = Coalescer::new(config, Owned::for_config(&config)).map_err(wrong)?;
        let frames = (0..).zip(packets);
        let frames = frames.map(|(number, bytes)| Frame::new(number, bytes, ChecksumState::None));
        coalescer.push_burst(0, frames, &mut leave);
        coalescer.flush(&mut leave);
        Ok(out)
    })
}

/// Cuts a TCP or UDP packet into packets of `size` bytes of payload, with complete checksums.
#[pyfunction]
pub fn segment(py: Python<'_>, packet: Vec<u8>, size: i64, link: &str) -> PyResult<Vec<Vec<u8>>> {
    let size = u16::try_from(size).ok().and_then(NonZeroU16::new);
    let size = size.ok_or_else(|| wrong("size: write 1 to 65535 bytes of payload"))?;
    let bytes = packet.len() as u32;
    let link = word("link", link, &LINKS)?;
    let layout = Layout::parse(link, &packet, bytes).map_err(wrong)?;
    let kind = match (layout.kind, layout.transport_kind) {
        (Network::Ipv4, Transport::Tcp) => GsoKind::TcpV4,
        (Network::Ipv6, Transport::Tcp) => GsoKind::TcpV6,
        (Network::Ipv4, Transport::Udp) => GsoKind::UdpV4,
        (Network::Ipv6, Transport::Udp) => GsoKind::UdpV6,
        _ => {
            let line = "packet cannot be segmented: it is neither TCP nor UDP";
            return Err(wrong(line));
        }
    };
    let cut = || -> Result<Vec<_>, SegmentError> {
        let segmenter = Segmenter::new(&packet, &layout, Gso::new(kind, size), bytes)?;
        let segments = (0..segmenter.segments()).map(|index| {
            let mut segment = vec![0; segmenter.wire_bytes(index)];
            segmenter.write_segment(index, &packet, &mut segment)?;
            Ok(segment)
        });
        segments.collect()
    };
    py.detach(cut).map_err(wrong)
}
