//! From packets of smoltcp to writes of the device.

use crate::counts::Counts;
use packtrain_offload::layout::{Layout, Network, Transport};
use packtrain_offload::limits::HEADER_BYTES_MAX;
use packtrain_offload::offload::{ChecksumState, Gso, GsoKind};
use packtrain_offload::segment::SegmentError;
use packtrain_offload::tun::{Fallback, TunOffload, WRITE_BYTES_MAX};
use packtrain_offload::virtio_net::{HeaderLen, VnetHeader, describe, mend};
use std::io::{self, ErrorKind, Write};
use std::num::NonZeroU16;

/// Where TCP has its checksum.
const TCP_OFFSET: u16 = 16;

/// The device, and the buffer of writes.
pub(crate) struct Output<D> {
    pub(crate) device: D,
    /// How the device was opened, and whether it refuses large packets: then each is written as
    /// wire packets.
    fallback: Fallback,
    pub(crate) counts: Counts,
    pub(crate) error: Option<io::Error>,
    /// The virtio-net header and the packet behind it.
    write: Vec<u8>,
}

impl<D> Output<D> {
    pub(crate) fn new(device: D, offload: TunOffload) -> Self {
        Self {
            device,
            fallback: Fallback::new(offload),
            counts: Counts::default(),
            error: None,
            write: vec![0; WRITE_BYTES_MAX],
        }
    }

    /// How the device was opened.
    pub(crate) const fn offload(&self) -> TunOffload {
        self.fallback.offload()
    }

    /// The device has a virtio-net header of this size.
    pub(crate) const fn set_header(&mut self, header: HeaderLen) {
        self.fallback = Fallback::new(TunOffload {
            header: Some(header),
            ..self.fallback.offload()
        });
    }

    fn header(&self) -> HeaderLen {
        self.offload().header.unwrap_or(HeaderLen::Legacy)
    }

    /// Bytes in front of a packet.
    pub(crate) fn header_bytes(&self) -> usize {
        self.header().bytes()
    }

    /// Room for a packet of `bytes` bytes.
    pub(crate) fn room(&mut self, bytes: usize) -> &mut [u8] {
        let range = self.header_bytes()..self.header_bytes() + bytes;
        if self.write.len() < range.end {
            self.write.resize(range.end, 0);
        }
        &mut self.write[range]
    }
}

impl<D: Write> Output<D> {
    /// Writes the packet of `bytes` bytes that is in the [`room`](Self::room). With `segment`, the
    /// kernel cuts it into segments of so many payload bytes.
    pub(crate) fn send(&mut self, bytes: usize, segment: Option<NonZeroU16>) {
        self.counts.sent += 1;
        let link = self.offload().link;
        let packet = self.room(bytes);
        // No IP packet is longer than 2^32 bytes.
        let layout = Layout::parse(link, packet, bytes as u32).ok();
        let described = match &layout {
            Some(layout) if is_unfinished_tcp(packet, layout) => prepare(packet, layout, segment),
            _ => Ok(describe(ChecksumState::Unnecessary, None, None)),
        };
        let Ok(header) = described else {
            // The kernel would refuse such a packet or misread it.
            self.counts.sent_wire += 1;
            self.counts.refused += 1;
            return self.keep(ErrorKind::InvalidInput.into());
        };
        let segments = match (segment, &layout) {
            (Some(size), Some(layout)) => layout.payload_len().div_ceil(u32::from(size.get())),
            _ => 1,
        };
        self.counts.sent_wire += u64::from(segments.max(1));
        self.counts.sent_large += u64::from(segments > 1);
        self.write(&header, bytes);
    }

    fn write(&mut self, header: &VnetHeader, bytes: usize) {
        let form = self.header();
        let encoded = header.encode(&mut self.write, form);
        debug_assert!(encoded.is_ok(), "the buffer begins with its room");
        let Self {
            device,
            counts,
            write,
            ..
        } = self;
        let dropped = self.fallback.dropped();
        // The error number of the last write that was refused.
        let mut refused = None;
        let write = &mut write[..form.bytes() + bytes];
        let written = self.fallback.write(write, |bytes| {
            let result = write_one(device, bytes);
            match &result {
                Ok(()) => counts.writes += 1,
                Err(error) => {
                    counts.refused += 1;
                    refused = error.raw_os_error();
                }
            }
            result
        });
        match (written, refused) {
            (Err(error), _) => self.keep(error),
            // The fallback has judged the error, and nothing is written in place of the packet.
            (Ok(()), Some(number)) if self.fallback.dropped() > dropped => {
                self.keep(io::Error::from_raw_os_error(number));
            }
            (Ok(()), _) => {}
        }
    }

    /// The error is the one to return, if it is the first.
    fn keep(&mut self, error: io::Error) {
        if error.kind() != ErrorKind::WouldBlock {
            self.error.get_or_insert(error);
        }
    }
}

/// One packet is one write.
fn write_one(device: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    loop {
        return match device.write(bytes) {
            Ok(written) if written == bytes.len() => Ok(()),
            Ok(_) => Err(ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
    }
}

/// Whether smoltcp has left the checksum to the device: it stores 0 then.
fn is_unfinished_tcp(packet: &[u8], layout: &Layout) -> bool {
    let at = usize::from(layout.transport + TCP_OFFSET);
    layout.transport_kind == Transport::Tcp
        && !layout.fragment
        && packet.get(at..at + 2) == Some(&[0, 0])
}

/// Stores what the kernel builds on, the pseudo-header sum of the whole packet, and returns the
/// virtio-net header.
fn prepare(
    packet: &mut [u8],
    layout: &Layout,
    segment: Option<NonZeroU16>,
) -> Result<VnetHeader, SegmentError> {
    let kind = match layout.kind {
        Network::Ipv6 => GsoKind::TcpV6,
        _ => GsoKind::TcpV4,
    };
    let gso = Gso::new(kind, segment.unwrap_or(NonZeroU16::MAX));
    let mut headers = [0; HEADER_BYTES_MAX];
    mend(packet, layout, gso, &mut headers)?;
    let bytes = usize::from(layout.payload);
    packet[..bytes].copy_from_slice(&headers[..bytes]);
    let checksum = ChecksumState::Partial {
        start: layout.transport,
        offset: TCP_OFFSET,
    };
    Ok(describe(checksum, segment.map(|_| gso), Some(layout)))
}
