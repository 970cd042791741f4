//! pcapng: blocks of type, length, body, and the length again, each field a multiple of 4 bytes.

use super::fields::{ByteOrder, Fields};
use super::{InterfaceFault, LinkCode, MAX_CAPTURED_BYTES, NANOSECONDS_PER_SECOND, RecordFault};

/// Section Header Block; the same in both byte orders.
pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
/// Interface Description Block.
pub(super) const INTERFACE_DESCRIPTION: u32 = 1;
/// The obsolete Packet Block.
pub(super) const PACKET: u32 = 2;
/// Simple Packet Block.
pub(super) const SIMPLE_PACKET: u32 = 3;
/// Enhanced Packet Block.
pub(super) const ENHANCED_PACKET: u32 = 6;

/// Type and length before a body.
pub(super) const BLOCK_HEADER_BYTES: usize = 8;
/// The length after a body.
pub(super) const BLOCK_TRAILER_BYTES: usize = 4;
/// The smallest block: no body.
pub(super) const MIN_BLOCK_BYTES: u32 = 12;
/// A Section Header Block up to its options: type, length, magic, version, section length.
pub(super) const SECTION_FIXED_BYTES: usize = 24;
/// An Interface Description Block without options.
pub(super) const MIN_INTERFACE_BYTES: u32 = 20;

/// The most bytes of options that the writer adds to those of a section or an interface: its
/// program name (4 + 9 + 3) and an end (4). The time unit of an interface has 8.
pub(super) const ADDED_OPTION_BYTES: usize = 20;

const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const VERSION: (u16, u16) = (1, 0);

pub(super) const OPTION_END: u16 = 0;
pub(super) const SECTION_USER_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_RESOLUTION: u16 = 9;
const INTERFACE_OFFSET: u16 = 14;
/// The length of the frame check sequence of each packet.
pub(super) const INTERFACE_FCS: u16 = 13;

/// Nanoseconds, as `if_tsresol` states them: ten to the power of minus nine.
const RESOLUTION_NANOSECONDS: u8 = 9;

/// The byte order of a section header, by its magic.
pub(super) fn section_order(magic: [u8; 4]) -> Option<ByteOrder> {
    [ByteOrder::Little, ByteOrder::Big]
        .into_iter()
        .find(|order| order.u32(magic) == BYTE_ORDER_MAGIC)
}

/// Whether sections of that version can be read. By the draft, minor versions only add features.
pub(super) fn is_known_version((major, _): (u16, u16)) -> bool {
    major == VERSION.0
}

/// The time unit of an interface: `if_tsresol` and `if_tsoffset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeUnit {
    scale: Scale,
    offset_seconds: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scale {
    /// One unit is that many nanoseconds.
    Multiply(u64),
    /// One nanosecond is that many units.
    Divide(u64),
    /// One second is two to that power of units.
    Binary(u8),
}

impl Scale {
    fn from_resolution(resolution: u8) -> Self {
        let power = resolution & 0x7f;
        if resolution & 0x80 != 0 {
            return Self::Binary(power);
        }
        match power {
            0..=9 => Self::Multiply(10_u64.pow(u32::from(9 - power))),
            10..=28 => Self::Divide(10_u64.pow(u32::from(power - 9))),
            // Even the largest 64-bit count of such units is less than one nanosecond.
            _ => Self::Multiply(0),
        }
    }
}

impl Default for TimeUnit {
    /// Microseconds since 1970, as the draft says for an interface without the options.
    fn default() -> Self {
        Self {
            scale: Scale::Multiply(1_000),
            offset_seconds: 0,
        }
    }
}

impl TimeUnit {
    /// A time in nanoseconds since 1970, or the nearest that 64 bits hold. No intermediate value
    /// overflows: each is below 2 to the power of 95.
    pub(super) fn nanoseconds(self, units: u64) -> u64 {
        let since = match self.scale {
            Scale::Multiply(by) => i128::from(units) * i128::from(by),
            Scale::Divide(by) => i128::from(units / by),
            Scale::Binary(power) => {
                (i128::from(units) * i128::from(NANOSECONDS_PER_SECOND)) >> power
            }
        };
        let offset = i128::from(self.offset_seconds) * i128::from(NANOSECONDS_PER_SECOND);
        (since + offset).clamp(0, i128::from(u64::MAX)) as u64
    }
}

/// The fields of an Interface Description Block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Described {
    pub(super) link: LinkCode,
    /// The most bytes captured of a packet; 0 for no limit.
    pub(super) snaplen: u32,
    pub(super) name: Name,
    /// Bytes of the frame check sequence at the end of each packet.
    fcs: u8,
    time: TimeUnit,
}

impl Described {
    /// A time of one of its packets, in nanoseconds since 1970.
    pub(super) fn nanoseconds(&self, units: u64) -> u64 {
        self.time.nanoseconds(units)
    }

    /// One of its packets, of which its data and its options are not found yet.
    const fn packet(&self, timestamp_ns: Option<u64>, interface: u32, original: u32) -> Packet {
        Packet {
            timestamp_ns,
            interface,
            link: self.link,
            original,
            fcs: self.fcs,
            data_at: 0,
            captured: 0,
            options_at: 0,
        }
    }
}

/// An interface name of up to [`Name::BYTES`] bytes, kept in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Name {
    bytes: [u8; Self::BYTES],
    used: u8,
}

impl Name {
    /// `IFNAMSIZ` is 16 on Linux; a device path with a GUID on Windows has about 50.
    pub(super) const BYTES: usize = 63;
    const NONE: Self = Self {
        bytes: [0; Self::BYTES],
        used: 0,
    };

    /// No name, if it is longer, or empty.
    fn new(name: &[u8]) -> Self {
        let mut kept = Self::NONE;
        if let Some(bytes) = kept.bytes.get_mut(..name.len()) {
            bytes.copy_from_slice(name);
            kept.used = name.len() as u8;
        }
        kept
    }

    /// Also `None` if it is not UTF-8, which the format requires.
    pub(super) fn get(&self) -> Option<&str> {
        let bytes = self.bytes.get(..usize::from(self.used))?;
        let name = std::str::from_utf8(bytes).ok()?;
        (!name.is_empty()).then_some(name)
    }
}

/// The body of an Interface Description Block of `total` bytes.
pub(super) fn parse_interface(
    body: &[u8],
    order: ByteOrder,
    total: u32,
) -> Result<Described, InterfaceFault> {
    let mut fields = Fields::new(body, order);
    let short = InterfaceFault::ShortBlock { bytes: total };
    let link = LinkCode(fields.u16().ok_or(short)?);
    fields.u16().ok_or(short)?;
    let snaplen = fields.u32().ok_or(short)?;
    let mut time = TimeUnit::default();
    let mut name = Name::NONE;
    let mut fcs = 0;
    // An option has at least 4 bytes and the body is bounded, so the loop is.
    while fields.remaining() > 0 {
        let (Some(code), Some(bytes)) = (fields.u16(), fields.u16()) else {
            return Err(InterfaceFault::OptionOverrun);
        };
        if code == OPTION_END {
            break;
        }
        let value = fields
            .take(usize::from(bytes))
            .ok_or(InterfaceFault::OptionOverrun)?;
        fields
            .take(padding(value.len()))
            .ok_or(InterfaceFault::OptionOverrun)?;
        let wrong = InterfaceFault::OptionLength { code, bytes };
        match code {
            INTERFACE_NAME => name = Name::new(value),
            INTERFACE_RESOLUTION => {
                let [resolution] = value else {
                    return Err(wrong);
                };
                time.scale = Scale::from_resolution(*resolution);
            }
            // With another length it says nothing, and the packets can be read all the same.
            INTERFACE_FCS => {
                if let [length] = value {
                    fcs = fcs_bytes(*length);
                }
            }
            INTERFACE_OFFSET if value.len() != 8 => return Err(wrong),
            INTERFACE_OFFSET => {
                time.offset_seconds = Fields::new(value, order).i64().ok_or(wrong)?;
            }
            _ => {}
        }
    }
    Ok(Described {
        link,
        snaplen,
        name,
        fcs,
        time,
    })
}

/// The bytes of a frame check sequence for the value of `if_fcslen`. The draft says that these are
/// bits, and its example for Ethernet is 4: programs write either. No such sequence has 8 bytes or
/// fewer than 8 bits.
const fn fcs_bytes(length: u8) -> u8 {
    match length {
        0..8 => length,
        bits => bits / 8,
    }
}

/// The packet in a block, its data as a range of the block's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) timestamp_ns: Option<u64>,
    pub(super) interface: u32,
    pub(super) link: LinkCode,
    pub(super) original: u32,
    /// Bytes of the frame check sequence at the end of the packet, unless its flags say another
    /// number.
    pub(super) fcs: u8,
    /// The start of the data in the body.
    pub(super) data_at: usize,
    pub(super) captured: usize,
    /// The start of the options in the body, or its end.
    pub(super) options_at: usize,
}

/// The body of a packet block of a type for which [`is_packet`] holds, of `total` bytes.
pub(super) fn parse_packet(
    kind: u32,
    body: &[u8],
    order: ByteOrder,
    total: u32,
    interfaces: &[Option<Described>],
) -> Result<Packet, RecordFault> {
    let mut fields = Fields::new(body, order);
    let parsed = if kind == SIMPLE_PACKET {
        parse_simple(&mut fields, interfaces)?
    } else {
        parse_stamped(kind, &mut fields, interfaces)?
    };
    let Some((packet, captured)) = parsed else {
        return Err(RecordFault::ShortBlock { bytes: total });
    };
    // The body is a part of one block, whose length has 32 bits.
    let space = fields.remaining() as u32;
    if captured > space {
        return Err(RecordFault::DataOverrun { captured, space });
    }
    if captured as usize > MAX_CAPTURED_BYTES {
        return Err(RecordFault::TooLong { bytes: captured });
    }
    let data_at = body.len() - fields.remaining();
    let captured_bytes = captured as usize;
    let options_at = match kind {
        // This block has no options. Bytes behind the snapshot length are payload.
        SIMPLE_PACKET => body.len(),
        _ => data_at + captured_bytes + padding(captured_bytes),
    };
    Ok(Packet {
        original: packet.original.max(captured),
        data_at,
        captured: captured_bytes,
        options_at: options_at.min(body.len()),
        ..packet
    })
}

pub(super) fn is_packet(kind: u32) -> bool {
    matches!(kind, ENHANCED_PACKET | SIMPLE_PACKET | PACKET)
}

/// A packet without its data, and the stated captured length; `None` if the body is too short.
type Parsed = Option<(Packet, u32)>;

fn describe(interfaces: &[Option<Described>], interface: u32) -> Result<Described, RecordFault> {
    match interfaces.get(interface as usize) {
        Some(Some(described)) => Ok(*described),
        Some(None) => Err(RecordFault::UnusableInterface { interface }),
        None => Err(RecordFault::NoSuchInterface { interface }),
    }
}

/// The fixed fields of an Enhanced Packet Block, or of a Packet Block, which differs in that half
/// of the interface index is a count of drops.
fn parse_stamped(
    kind: u32,
    fields: &mut Fields<'_>,
    interfaces: &[Option<Described>],
) -> Result<Parsed, RecordFault> {
    let mut read = || {
        let interface = if kind == PACKET {
            let interface = u32::from(fields.u16()?);
            fields.u16()?;
            interface
        } else {
            fields.u32()?
        };
        Some((interface, fields.stamp()?, fields.u32()?, fields.u32()?))
    };
    let Some((interface, units, captured, original)) = read() else {
        return Ok(None);
    };
    let described = describe(interfaces, interface)?;
    let timestamp_ns = Some(described.nanoseconds(units));
    let packet = described.packet(timestamp_ns, interface, original);
    Ok(Some((packet, captured)))
}

/// A Simple Packet Block belongs to interface 0, has no time, and does not state the captured
/// length: it is the original length, at most that interface's snapshot length.
fn parse_simple(
    fields: &mut Fields<'_>,
    interfaces: &[Option<Described>],
) -> Result<Parsed, RecordFault> {
    let Some(original) = fields.u32() else {
        return Ok(None);
    };
    let described = describe(interfaces, 0)?;
    let captured = match described.snaplen {
        0 => original,
        snaplen => original.min(snaplen),
    };
    Ok(Some((described.packet(None, 0, original), captured)))
}

/// The padding of `length` to a multiple of 4, in bytes.
pub(super) fn padding(length: usize) -> usize {
    length.wrapping_neg() % 4
}

/// Appends a block: `body` appends the bytes between the two lengths. All blocks are far below
/// 4 GiB.
pub(super) fn put_block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    body(out);
    let total = ((out.len() + BLOCK_TRAILER_BYTES - at) as u32).to_le_bytes();
    if let Some(field) = out.get_mut(at + 4..at + 8) {
        field.copy_from_slice(&total);
    }
    out.extend_from_slice(&total);
}

/// Appends an option, whose value is at most 64 KiB less one byte.
pub(super) fn put_option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    put_padding(out, value.len());
}

pub(super) fn put_option_end(out: &mut Vec<u8>) {
    put_option(out, OPTION_END, &[]);
}

/// Appends the padding after a value of that length.
pub(super) fn put_padding(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(&[0; 3][..padding(length)]);
}

pub(super) fn put_section_header(out: &mut Vec<u8>, options: &[u8]) {
    put_block(out, SECTION_HEADER, |out| {
        out.extend_from_slice(&BYTE_ORDER_MAGIC.to_le_bytes());
        out.extend_from_slice(&VERSION.0.to_le_bytes());
        out.extend_from_slice(&VERSION.1.to_le_bytes());
        // The section's length is unknown in advance.
        out.extend_from_slice(&u64::MAX.to_le_bytes());
        out.extend_from_slice(options);
        put_option(out, SECTION_USER_APPLICATION, b"packtrain");
        put_option_end(out);
    });
}

/// The option of an interface's name.
pub(crate) fn name_option(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put_option(&mut out, INTERFACE_NAME, name.as_bytes());
    out
}

/// Appends an Interface Description Block with these options, and times in nanoseconds.
pub(super) fn put_interface(out: &mut Vec<u8>, link: LinkCode, snaplen: u32, options: &[u8]) {
    put_block(out, INTERFACE_DESCRIPTION, |out| {
        out.extend_from_slice(&link.0.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&snaplen.to_le_bytes());
        out.extend_from_slice(options);
        put_option(out, INTERFACE_RESOLUTION, &[RESOLUTION_NANOSECONDS]);
        put_option_end(out);
    });
}

/// The halves of a time, as blocks have them.
pub(super) fn stamp(timestamp_ns: u64) -> [[u8; 4]; 2] {
    [(timestamp_ns >> 32) as u32, timestamp_ns as u32].map(u32::to_le_bytes)
}

/// Appends the interface index and the time of a packet.
pub(super) fn put_stamp(out: &mut Vec<u8>, interface: u32, timestamp_ns: u64) {
    out.extend_from_slice(&interface.to_le_bytes());
    for half in stamp(timestamp_ns) {
        out.extend_from_slice(&half);
    }
}
