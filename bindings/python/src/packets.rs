//! Coalescing and segmentation of packets in memory.

use packtrain_offload::checksum::{self, Sum};
use packtrain_offload::coalesce::{Coalescer, Config, Finish, Owned, Packet};
use packtrain_offload::layout::{Layout, Network, Transport};
use packtrain_offload::offload::{ChecksumState, Gso, GsoKind, LinkType};
use packtrain_offload::segment::Segmenter;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::num::NonZeroU16;
use std::ops::Range;

use crate::settings;

/// A packet in one piece, with the number of packets in it.
struct Frame {
    bytes: Vec<u8>,
    packets: usize,
}

impl Packet for Frame {
    fn head(&self) -> &[u8] {
        &self.bytes
    }

    fn head_mut(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.bytes.get_mut(..bytes)
    }

    fn bytes(&self) -> u32 {
        self.bytes.len() as u32
    }

    fn checksum(&self) -> ChecksumState {
        ChecksumState::None
    }

    fn sum(&self, range: Range<u32>) -> Sum {
        let range = range.start as usize..range.end as usize;
        checksum::sum(self.bytes.get(range).unwrap_or_default())
    }

    fn truncate(&mut self, bytes: u32) {
        self.bytes.truncate(bytes as usize);
    }

    fn append(&mut self, tail: Self, payload: Range<u32>) -> Result<(), Self> {
        let Some(payload) = tail.bytes.get(payload.start as usize..payload.end as usize) else {
            return Err(tail);
        };
        self.bytes.extend_from_slice(payload);
        self.packets += tail.packets;
        Ok(())
    }
}

fn link_of(link: &str) -> PyResult<LinkType> {
    match link {
        "ip" => Ok(LinkType::RawIp),
        "ethernet" => Ok(LinkType::Ethernet),
        _ => Err(PyValueError::new_err(format!(
            "link={link:?}: write \"ip\" or \"ethernet\""
        ))),
    }
}

/// Merges packets as one window, and returns each packet that leaves with the number of packets in
/// it.
#[pyfunction]
#[pyo3(signature = (packets, *, link="ip", coalesce=Some("reversible"), mode="hash", flows=1024,
                    ack_limit=None),
       text_signature = "(packets, *, link='ip', coalesce='reversible', mode='hash', flows=1024, \
                         ack_limit=None)")]
pub fn coalesce<'py>(
    py: Python<'py>,
    packets: Vec<Vec<u8>>,
    link: &str,
    coalesce: Option<&str>,
    mode: &str,
    flows: u32,
    ack_limit: Option<u16>,
) -> PyResult<Bound<'py, PyList>> {
    let semantics = settings::semantics(coalesce)?;
    settings::check(flows, semantics, ack_limit)?;
    let mut config = Config::new(semantics.unwrap_or_default(), link_of(link)?, flows);
    config.mode = settings::mode(mode)?;
    config.finish = Finish::Complete;
    if let Some(limit) = ack_limit {
        config.ack_limit = limit;
    }
    let frames = packets.into_iter().map(|bytes| Frame { bytes, packets: 1 });
    let mut out: Vec<Frame> = Vec::new();
    py.detach(|| {
        if semantics.is_none() {
            out.extend(frames);
            return Ok(());
        }
        let mut coalescer = Coalescer::new(config, Owned::for_config(&config))
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        coalescer.push_burst(0, frames, &mut |frame, _| out.push(frame));
        coalescer.flush(&mut |frame, _| out.push(frame));
        PyResult::Ok(())
    })?;
    let out = out
        .iter()
        .map(|frame| (PyBytes::new(py, &frame.bytes), frame.packets));
    PyList::new(py, out.collect::<Vec<_>>())
}

/// Cuts a TCP or UDP packet into packets of `size` bytes of payload, with complete checksums.
#[pyfunction]
#[pyo3(signature = (packet, size, *, link="ip"))]
pub fn segment<'py>(
    py: Python<'py>,
    packet: Vec<u8>,
    size: u32,
    link: &str,
) -> PyResult<Bound<'py, PyList>> {
    let wrong = |line: String| PyValueError::new_err(line);
    let size = u16::try_from(size).ok().and_then(NonZeroU16::new);
    let size = size.ok_or_else(|| wrong("size: write 1 to 65535 bytes of payload".to_owned()))?;
    let layout = Layout::parse(link_of(link)?, &packet, packet.len() as u32)
        .map_err(|error| wrong(error.to_string()))?;
    let kind = match (layout.kind, layout.transport_kind) {
        (Network::Ipv4, Transport::Tcp) => GsoKind::TcpV4,
        (Network::Ipv6, Transport::Tcp) => GsoKind::TcpV6,
        (Network::Ipv4, Transport::Udp) => GsoKind::UdpV4,
        (Network::Ipv6, Transport::Udp) => GsoKind::UdpV6,
        _ => {
            return Err(wrong(
                "packet cannot be segmented: it is neither TCP nor UDP".to_owned(),
            ));
        }
    };
    let cut = || {
        let bytes = packet.len() as u32;
        let segmenter = Segmenter::new(&packet, &layout, Gso::new(kind, size), bytes)?;
        let segments = (0..segmenter.segments()).map(|index| {
            let mut segment = vec![0; segmenter.wire_bytes(index)];
            segmenter.write_segment(index, &packet, &mut segment)?;
            Ok(segment)
        });
        segments.collect::<Result<Vec<_>, packtrain_offload::segment::SegmentError>>()
    };
    let segments = py.detach(cut).map_err(|error| wrong(error.to_string()))?;
    PyList::new(py, segments.iter().map(|segment| PyBytes::new(py, segment)))
}
