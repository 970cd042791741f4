//! From reads of the device to packets for smoltcp.

use crate::counts::Counts;
use crate::output::Output;
use packtrain_offload::layout::{IpProtocol, Layout, Transport};
use packtrain_offload::offload::ChecksumState;
use packtrain_offload::tun::{Packets, TunOffload, WRITE_BYTES_MAX, Whole};
use packtrain_offload::verify::{Verdict, verify_transport};
use packtrain_offload::virtio_net::VnetError;
use std::io::{ErrorKind, Read};
use std::ops::Range;

/// The buffer of reads, and datagrams that smoltcp gets one by one.
pub(crate) struct Input {
    read: Vec<u8>,
    cut: Cut,
}

/// Packets one behind the other, all as long as the first, but for the last.
#[derive(Default)]
struct Cut {
    bytes: Vec<u8>,
    stride: usize,
    /// Not given yet.
    rest: Range<usize>,
}

impl Cut {
    fn next(&mut self) -> Option<Range<usize>> {
        let start = self.rest.start;
        let end = self.rest.end.min(start + self.stride);
        self.rest.start = end;
        (start < end).then_some(start..end)
    }
}

/// What a read was.
enum Taken {
    /// One packet of so many bytes, behind the virtio-net header.
    Packet(usize),
    /// Packets in [`Input::cut`].
    Cut,
    /// Nothing for smoltcp.
    Dropped,
}

impl Input {
    pub(crate) fn new() -> Self {
        Self {
            read: vec![0; WRITE_BYTES_MAX],
            cut: Cut::default(),
        }
    }

    /// The next packet, if the device has one. Reads until one is not dropped.
    pub(crate) fn receive<D: Read>(&mut self, output: &mut Output<D>) -> Option<&[u8]> {
        if let Some(range) = self.cut.next() {
            output.counts.received += 1;
            output.counts.received_wire += 1;
            return Some(&self.cut.bytes[range]);
        }
        let offload = output.offload();
        loop {
            let bytes = match output.device.read(&mut self.read) {
                Ok(0) => return None,
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    output.error.get_or_insert(error);
                    return None;
                }
            };
            let counts = &mut output.counts;
            counts.reads += 1;
            match self.take(bytes, &offload, counts) {
                Ok(Taken::Packet(bytes)) => {
                    counts.received += 1;
                    let header = output.header_bytes();
                    return Some(&self.read[header..header + bytes]);
                }
                Ok(Taken::Cut) => {
                    let range = self.cut.next()?;
                    counts.received += 1;
                    counts.received_wire += 1;
                    return Some(&self.cut.bytes[range]);
                }
                Ok(Taken::Dropped) => {}
                Err(_) => counts.bad_headers += 1,
            }
        }
    }

    fn take(
        &mut self,
        bytes: usize,
        offload: &TunOffload,
        counts: &mut Counts,
    ) -> Result<Taken, VnetError> {
        let mut packets = offload.packets(&mut self.read[..bytes])?;
        let Some(whole) = packets.whole() else {
            return Ok(Taken::Dropped);
        };
        match Kind::of(offload, &whole) {
            Kind::Datagrams => {
                self.cut.fill(&mut packets);
                return Ok(Taken::Cut);
            }
            Kind::BadTcp => {
                counts.bad_checksums += 1;
                packets.skip_packet();
                return Ok(Taken::Dropped);
            }
            Kind::Tcp => {
                counts.received_large += u64::from(whole.gso.is_some());
                counts.received_wire += whole.gso.map_or(1, |gso| gso.segments as u64);
                Ok(packets.take_whole().map(|packet| packet.len()))
            }
            // smoltcp verifies its checksum, so it is finished.
            Kind::Other => {
                counts.received_wire += 1;
                Ok(packets.next_packet().map(|packet| packet.len()))
            }
        }
        .map(|bytes| bytes.map_or(Taken::Dropped, Taken::Packet))
    }
}

/// What smoltcp can do with a packet.
enum Kind {
    /// Take it whole: TCP whose checksum needs no verification.
    Tcp,
    /// Nothing: TCP whose checksum is wrong or cannot be verified.
    BadTcp,
    /// Take its datagrams one by one: a GSO packet of UDP.
    Datagrams,
    /// Take it with a finished checksum: a wire packet of another protocol.
    Other,
}

impl Kind {
    fn of(offload: &TunOffload, whole: &Whole<'_>) -> Self {
        if let Some(gso) = whole.gso {
            return if gso.gso.kind.is_tcp() {
                Self::Tcp
            } else {
                Self::Datagrams
            };
        }
        // No IP packet is longer than 2^32 bytes.
        let layout = Layout::parse(offload.link, whole.bytes, whole.bytes.len() as u32);
        match (layout, whole.checksum) {
            (Ok(layout), _) if layout.fragment && layout.protocol == IpProtocol::TCP => {
                Self::BadTcp
            }
            (Ok(layout), state) if layout.transport_kind == Transport::Tcp => match state {
                ChecksumState::Partial { .. } | ChecksumState::Unnecessary => Self::Tcp,
                ChecksumState::None => match verify_transport(whole.bytes, &layout) {
                    Verdict::Valid => Self::Tcp,
                    _ => Self::BadTcp,
                },
            },
            _ => Self::Other,
        }
    }
}

impl Cut {
    /// Makes all packets.
    fn fill(&mut self, packets: &mut Packets<&mut [u8]>) {
        let bytes = packets.remaining() * packets.next_bytes().unwrap_or(0);
        if self.bytes.len() < bytes {
            self.bytes.resize(bytes, 0);
        }
        // The buffer has room for each packet.
        if let Ok(Some(run)) = packets.fill_run(&mut self.bytes, 0, 0, usize::MAX) {
            self.stride = run.stride;
            self.rest = 0..run.bytes;
        }
    }
}
