//! Options of pcapng blocks, and blocks that are copied from one capture to another.
//!
//! The writer's byte order is little-endian, so integers of a big-endian section are reversed.
//! `draft-ietf-opsawg-pcapng` says which options have integers.

use super::MAX_OPTION_BYTES;
use super::fields::{ByteOrder, Fields};
use super::pcapng::{
    Described, ENHANCED_PACKET, INTERFACE_DESCRIPTION, INTERFACE_FCS, OPTION_END, SECTION_HEADER,
    SECTION_USER_APPLICATION, padding, put_option, put_option_end, put_padding, put_stamp, stamp,
};

/// Name Resolution Block.
const NAME_RESOLUTION: u32 = 4;
/// Interface Statistics Block.
const STATISTICS: u32 = 5;
/// Decryption Secrets Block.
const SECRETS: u32 = 10;
/// Custom Block that may be copied; one that may not is 0x40000bad.
const CUSTOM: u32 = 0xbad;

/// The code of a comment, in any block.
pub(crate) const COMMENT: u16 = 1;
/// The code of a packet's flags.
pub(crate) const PACKET_FLAGS: u16 = 2;
/// The flags for direction and reception type.
const PARTS_FLAGS: u32 = 0x1f;
/// The flags for the length of the frame check sequence in bytes; 0 is no statement.
const FCS_FLAGS: u32 = 0xf << FCS_SHIFT;
const FCS_SHIFT: u32 = 5;

/// The options of a packet as they are in its capture, for [`Writer::write_with`].
///
/// [`Writer::write_with`]: super::Writer::write_with
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketOptions<'a> {
    bytes: &'a [u8],
    order: ByteOrder,
}

impl<'a> PacketOptions<'a> {
    pub(super) const fn new(bytes: &'a [u8], order: ByteOrder) -> Self {
        Self { bytes, order }
    }

    /// The options in little-endian byte order, without an end of options: at most
    /// [`MAX_OPTION_BYTES`], up to the first that is malformed. Custom options that must not be
    /// copied are left out.
    pub fn to_vec(&self) -> Vec<u8> {
        copied_options(ENHANCED_PACKET, self.order, self.bytes)
    }
}

/// The options with these codes among those from [`PacketOptions::to_vec`], for a packet that is
/// merged or split. Of the flags, direction and reception type are kept. The errors of the link,
/// as the hash and the number, are true only of the packet that was captured.
pub(crate) fn select_options(options: &[u8], codes: &[u16]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut fields = Fields::new(options, ByteOrder::Little);
    while let Ok(Some((code, value))) = next_option(&mut fields) {
        match (code, value.first_chunk()) {
            _ if !codes.contains(&code) => {}
            (PACKET_FLAGS, Some(flags)) => {
                let flags = u32::from_le_bytes(*flags) & PARTS_FLAGS;
                put_option(&mut out, code, &flags.to_le_bytes());
            }
            (PACKET_FLAGS, None) => {}
            _ => put_option(&mut out, code, value),
        }
    }
    out
}

/// The bytes of the frame check sequence of a packet with these options, if its flags state them:
/// that overrides the description of the interface.
pub(super) fn packet_fcs(order: ByteOrder, options: &[u8]) -> Option<u8> {
    let mut fields = Fields::new(options, order);
    while let Ok(Some((code, value))) = next_option(&mut fields) {
        if let (PACKET_FLAGS, Some(flags)) = (code, Fields::new(value, order).u32()) {
            return Some(((flags & FCS_FLAGS) >> FCS_SHIFT) as u8).filter(|bytes| *bytes > 0);
        }
    }
    None
}

/// A list of options that exceeds its block, or is longer than [`MAX_OPTION_BYTES`].
struct Incomplete;

/// The next option, or the next record of a Name Resolution Block; `None` at their end.
fn next_option<'a>(fields: &mut Fields<'a>) -> Result<Option<(u16, &'a [u8])>, Incomplete> {
    if fields.remaining() == 0 {
        return Ok(None);
    }
    let (Some(code), Some(bytes)) = (fields.u16(), fields.u16()) else {
        return Err(Incomplete);
    };
    if code == OPTION_END {
        return Ok(None);
    }
    let value = fields.take(usize::from(bytes)).ok_or(Incomplete)?;
    // The last one of a block may lack its padding.
    fields.take(padding(value.len()).min(fields.remaining()));
    Ok(Some((code, value)))
}

/// The widths in bytes of the integers that the value of an option begins with. What follows them
/// has no byte order.
const fn integers(block: u32, code: u16, value: &[u8]) -> &'static [usize] {
    match (block, code) {
        // The number of an enterprise.
        (_, 2988 | 2989) => &[4],
        // Flags, queue; drops, number of the packet; process and thread.
        (ENHANCED_PACKET, PACKET_FLAGS | 6) => &[4],
        (ENHANCED_PACKET, 4 | 5) => &[8],
        (ENHANCED_PACKET, 8) => &[4, 4],
        // A verdict behind its type: an integer of eBPF at TC (1) or XDP (2), else opaque.
        (ENHANCED_PACKET, 7) if matches!(value, [1 | 2, ..]) => &[1, 8],
        // Speeds; time zone.
        (INTERFACE_DESCRIPTION, 8 | 16 | 17) => &[8],
        (INTERFACE_DESCRIPTION, 10) => &[4],
        // Packets received, dropped and so on.
        (STATISTICS, 4..=8) => &[8],
        _ => &[],
    }
}

/// Whether an option is copied: not a custom one that must not be, not the time unit and offset of
/// an interface, since the writer's times are in nanoseconds since 1970, not the length of a frame
/// check sequence, which the reader removes, and not the application.
const fn is_copied(block: u32, code: u16) -> bool {
    !matches!(
        (block, code),
        (_, 19372 | 19373)
            | (INTERFACE_DESCRIPTION, 9 | INTERFACE_FCS | 14)
            | (SECTION_HEADER, SECTION_USER_APPLICATION)
    )
}

/// The options of a block of type `block`, as [`PacketOptions::to_vec`].
pub(super) fn copied_options(block: u32, order: ByteOrder, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    // Of an incomplete list, those before the end are kept.
    put_options(&mut out, block, &mut Fields::new(bytes, order)).ok();
    out
}

/// Puts the options that are copied, and their end if there are any; `None` if the list is
/// incomplete.
fn put_all_options(out: &mut Vec<u8>, block: u32, fields: &mut Fields<'_>) -> Option<()> {
    let before = out.len();
    put_options(out, block, fields).ok()?;
    if out.len() > before {
        put_option_end(out);
    }
    Some(())
}

fn put_options(out: &mut Vec<u8>, block: u32, fields: &mut Fields<'_>) -> Result<(), Incomplete> {
    let limit = out.len() + MAX_OPTION_BYTES;
    while let Some((code, value)) = next_option(fields)? {
        if out.len() + 4 + value.len() + padding(value.len()) > limit {
            return Err(Incomplete);
        }
        if is_copied(block, code) {
            let mut value = little_endian(fields.order(), value, integers(block, code, value));
            if let (ENHANCED_PACKET, PACKET_FLAGS, Some(flags)) =
                (block, code, value.first_chunk_mut())
            {
                *flags = (u32::from_le_bytes(*flags) & !FCS_FLAGS).to_le_bytes();
            }
            put_option(out, code, &value);
        }
    }
    Ok(())
}

/// A value with its first integers, of these widths, in little-endian order.
fn little_endian(order: ByteOrder, value: &[u8], widths: &[usize]) -> Vec<u8> {
    let mut value = value.to_vec();
    let mut rest = &mut value[..];
    for width in widths {
        let Some((integer, tail)) = rest.split_at_mut_checked(*width) else {
            break;
        };
        if order == ByteOrder::Big {
            integer.reverse();
        }
        rest = tail;
    }
    value
}

/// Whether blocks of that type can be copied: name resolution, statistics, decryption secrets, and
/// custom blocks that may be.
pub(super) const fn is_copied_block(kind: u32) -> bool {
    matches!(kind, NAME_RESOLUTION | STATISTICS | SECRETS | CUSTOM)
}

/// The body of a block of such a type in little-endian order, with times in nanoseconds. `None` if
/// it is malformed, has more than [`MAX_OPTION_BYTES`] of options, or has the statistics of an
/// interface that is unknown; of a known one, its index is returned, too. The content of secrets
/// and of custom blocks is as it was.
pub(super) fn copied_block(
    kind: u32,
    order: ByteOrder,
    body: &[u8],
    interfaces: &[Option<Described>],
) -> Option<(Vec<u8>, Option<u32>)> {
    let mut fields = Fields::new(body, order);
    let mut out = Vec::with_capacity(body.len());
    let mut about = None;
    match kind {
        STATISTICS => {
            let interface = fields.u32()?;
            let described = interfaces.get(interface as usize)?.as_ref()?;
            about = Some(interface);
            put_stamp(&mut out, interface, described.nanoseconds(fields.stamp()?));
            while let Some((code, value)) = next_option(&mut fields).ok()? {
                let mut value = little_endian(order, value, integers(kind, code, value));
                // The start and the end of the capture.
                if matches!(code, 2 | 3) {
                    let ns = described.nanoseconds(Fields::new(&value, order).stamp()?);
                    value = stamp(ns).concat();
                }
                if is_copied(kind, code) {
                    put_option(&mut out, code, &value);
                }
            }
            put_option_end(&mut out);
        }
        NAME_RESOLUTION => {
            while let Some((code, value)) = next_option(&mut fields).ok()? {
                put_option(&mut out, code, value);
            }
            put_option_end(&mut out);
            put_all_options(&mut out, kind, &mut fields)?;
        }
        SECRETS => {
            let (format, bytes) = (fields.u32()?, fields.u32()?);
            let secrets = fields.take(bytes as usize)?;
            out.extend_from_slice(&format.to_le_bytes());
            out.extend_from_slice(&bytes.to_le_bytes());
            out.extend_from_slice(secrets);
            put_padding(&mut out, secrets.len());
            fields.take(padding(secrets.len()))?;
            put_all_options(&mut out, kind, &mut fields)?;
        }
        // The number of the enterprise. The draft does not define the bytes after it.
        _ => out = little_endian(order, body, &[4]),
    }
    Some((out, about))
}
