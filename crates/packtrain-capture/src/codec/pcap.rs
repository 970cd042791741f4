//! Classic pcap: a 24-byte file header, then records of a 16-byte header and data.

use super::fields::{ByteOrder, Fields};
use super::{Format, LinkCode, NANOSECONDS_PER_SECOND};

/// The length of the file header, magic included.
pub(super) const FILE_HEADER_BYTES: usize = 24;
/// The length of the header before each packet.
pub(super) const RECORD_HEADER_BYTES: usize = 16;

const MAGIC_MICROSECOND: u32 = 0xa1b2_c3d4;
const MAGIC_NANOSECOND: u32 = 0xa1b2_3c4d;
const VERSION: (u16, u16) = (2, 4);

/// In the field of the link type: the length of a frame check sequence is valid.
const FCS_PRESENT: u32 = 1 << 26;
/// In the same field: the lowest bit of that length.
const FCS_WORDS_SHIFT: u32 = 28;

/// The fields of the file header.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileHeader {
    pub(super) version: (u16, u16),
    pub(super) link: LinkCode,
    pub(super) snaplen: u32,
    /// Bytes of the frame check sequence at the end of each packet.
    pub(super) fcs: u8,
}

/// The fields of a record header.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordHeader {
    pub(super) timestamp_ns: u64,
    pub(super) captured: u32,
    pub(super) original: u32,
}

/// The byte order and the time unit of a magic number; `None` for another one.
pub(super) fn recognize(magic: [u8; 4]) -> Option<(ByteOrder, bool)> {
    [ByteOrder::Little, ByteOrder::Big]
        .into_iter()
        .find_map(|order| match order.u32(magic) {
            MAGIC_MICROSECOND => Some((order, false)),
            MAGIC_NANOSECOND => Some((order, true)),
            _ => None,
        })
}

/// Whether files of that version can be read: any 2.x, as in libpcap.
pub(super) fn is_known_version((major, _): (u16, u16)) -> bool {
    major == VERSION.0
}

pub(super) fn parse_file_header(
    header: &[u8; FILE_HEADER_BYTES],
    order: ByteOrder,
) -> Option<FileHeader> {
    let mut fields = Fields::new(header, order);
    fields.take(4)?;
    let version = (fields.u16()?, fields.u16()?);
    // Time zone and accuracy, both always 0.
    fields.take(8)?;
    let snaplen = fields.u32()?;
    let link = fields.u32()?;
    // A length in units of 16 bits, if the flag says that it is valid (draft-ietf-opsawg-pcap, 4).
    let fcs = match link & FCS_PRESENT {
        0 => 0,
        _ => (link >> FCS_WORDS_SHIFT) as u8 * 2,
    };
    Some(FileHeader {
        version,
        link: LinkCode((link & 0xffff) as u16),
        snaplen,
        fcs,
    })
}

pub(super) fn parse_record_header(
    header: &[u8; RECORD_HEADER_BYTES],
    order: ByteOrder,
    nanosecond: bool,
    minor: u16,
) -> Option<RecordHeader> {
    let mut fields = Fields::new(header, order);
    let seconds = u64::from(fields.u32()?);
    // A fraction of a second or more is carried, as by users of libpcap; 64 bits hold any sum.
    let fraction = u64::from(fields.u32()?) * if nanosecond { 1 } else { 1_000 };
    let (captured, original) = (fields.u32()?, fields.u32()?);
    // Before version 2.3 the lengths were in the other order; in 2.3 they were in either, and the
    // captured one is never greater (libpcap, `sf-pcap.c`).
    let is_swapped = minor < 3 || minor == 3 && captured > original;
    let (captured, original) = if is_swapped {
        (original, captured)
    } else {
        (captured, original)
    };
    Some(RecordHeader {
        timestamp_ns: seconds * NANOSECONDS_PER_SECOND + fraction,
        captured,
        original,
    })
}

pub(super) fn put_file_header(out: &mut Vec<u8>, nanosecond: bool, link: LinkCode, snaplen: u32) {
    let magic = if nanosecond {
        MAGIC_NANOSECOND
    } else {
        MAGIC_MICROSECOND
    };
    out.extend_from_slice(&magic.to_le_bytes());
    out.extend_from_slice(&VERSION.0.to_le_bytes());
    out.extend_from_slice(&VERSION.1.to_le_bytes());
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&snaplen.to_le_bytes());
    out.extend_from_slice(&u32::from(link.0).to_le_bytes());
}

/// The last time of the format, in the year 2106: its seconds have 32 bits.
const LAST_NS: u64 = (u32::MAX as u64 + 1) * NANOSECONDS_PER_SECOND - 1;

/// The record header for a time, or for the last one of the format.
pub(super) fn record_header(
    nanosecond: bool,
    timestamp_ns: u64,
    captured: u32,
    original: u32,
) -> [u8; RECORD_HEADER_BYTES] {
    let timestamp_ns = timestamp_ns.min(LAST_NS);
    let seconds = (timestamp_ns / NANOSECONDS_PER_SECOND) as u32;
    let nanoseconds = (timestamp_ns % NANOSECONDS_PER_SECOND) as u32;
    let fraction = if nanosecond {
        nanoseconds
    } else {
        nanoseconds / 1_000
    };
    let mut header = [0; RECORD_HEADER_BYTES];
    for (to, value) in header
        .as_chunks_mut::<4>()
        .0
        .iter_mut()
        .zip([seconds, fraction, captured, original])
    {
        *to = value.to_le_bytes();
    }
    header
}

/// The format of a recognized magic number.
pub(super) fn format(nanosecond: bool) -> Format {
    Format::Pcap { nanosecond }
}
