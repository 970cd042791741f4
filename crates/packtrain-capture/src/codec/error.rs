//! Errors of captures, with their position.

use core::fmt;
use std::io;

/// An I/O error, kept as its kind and number so that capture errors stay `Copy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoFault {
    /// The kind of the error.
    pub kind: io::ErrorKind,
    /// The error number, if the operating system reported it.
    pub os_error: Option<i32>,
}

impl From<&io::Error> for IoFault {
    fn from(error: &io::Error) -> Self {
        Self {
            kind: error.kind(),
            os_error: error.raw_os_error(),
        }
    }
}

impl fmt::Display for IoFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.os_error {
            Some(number) => io::Error::from_raw_os_error(number).fmt(f),
            None => self.kind.fmt(f),
        }
    }
}

/// The reason why the reader returned no record.
///
/// `offset` is the byte, counted from the start of the input, at which the header, record or block
/// begins. `record` is the number of that record, or of the next one after a block without a
/// packet, counted from 1 as in packet viewers, including bad records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaptureError {
    /// The input could not be read. With [`io::ErrorKind::WouldBlock`] no data is lost, and the
    /// caller may repeat the call.
    Io {
        /// The error.
        fault: IoFault,
        /// The position in the input.
        offset: u64,
    },
    /// A compressed input cannot be decompressed any further.
    Packed {
        /// The format of the compression.
        packing: Packing,
        /// The fault.
        fault: PackedFault,
        /// Its position in the compressed input.
        offset: u64,
    },
    /// The first four bytes are of no known capture format.
    UnknownMagic {
        /// The bytes, as they are in the input.
        magic: [u8; 4],
    },
    /// The input ends inside of a header, record or block: a truncated capture.
    Truncated {
        /// Where the incomplete part begins.
        offset: u64,
        /// The number of the incomplete record.
        record: u64,
    },
    /// The file's structure is broken: the start of the next record is unknown.
    Structure {
        /// The fault.
        fault: StructureFault,
        /// Where the broken part begins.
        offset: u64,
        /// The number of the record that cannot be read.
        record: u64,
    },
    /// One record is bad and was skipped; the next call continues after it.
    Record {
        /// The fault.
        fault: RecordFault,
        /// Where the record begins.
        offset: u64,
        /// The record's number.
        record: u64,
    },
    /// One pcapng interface description is unusable. It keeps its index, and each record that
    /// refers to it is a [`RecordFault::UnusableInterface`]; other interfaces are not affected.
    Interface {
        /// The fault.
        fault: InterfaceFault,
        /// Its index within the section.
        interface: u32,
        /// Where its block begins.
        offset: u64,
    },
}

impl CaptureError {
    /// Whether the reader cannot continue. Each later call returns a fatal error again, until a
    /// [rewind](super::Reader::rewind).
    pub fn is_fatal(&self) -> bool {
        match self {
            Self::Io { fault, .. } => fault.kind != io::ErrorKind::WouldBlock,
            Self::Record { .. } | Self::Interface { .. } => false,
            Self::Packed { fault, .. } => !matches!(fault, PackedFault::Padding { .. }),
            Self::UnknownMagic { .. } | Self::Truncated { .. } | Self::Structure { .. } => true,
        }
    }

    /// Whether this error is one record of the input that is not delivered: the ledger counts it as
    /// one received and one dropped.
    pub fn costs_a_record(&self) -> bool {
        matches!(self, Self::Record { .. })
    }
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { fault, offset } => write!(f, "reading at byte {offset} failed: {fault}"),
            Self::Packed {
                packing,
                fault,
                offset,
            } => write!(f, "the {packing} data at byte {offset} {fault}"),
            Self::UnknownMagic {
                magic: magic @ [a, b, c, d],
            } => {
                let packed = match magic {
                    [0xfd, b'7', b'z', b'X'] => " (xz: decompress it first)",
                    _ => "",
                };
                write!(
                    f,
                    "neither a pcap nor a pcapng file: it begins with {a:02x} {b:02x} {c:02x} \
                     {d:02x}{packed}"
                )
            }
            Self::Truncated { offset: 0, .. } => {
                f.write_str("no capture: it is empty, or ends inside its header")
            }
            Self::Truncated { offset, record } => {
                write!(
                    f,
                    "truncated: it ends inside record {record}, which begins at byte {offset}"
                )
            }
            Self::Structure {
                fault,
                offset,
                record,
            } => {
                write!(
                    f,
                    "broken file at byte {offset}, before record {record}: {fault}"
                )
            }
            Self::Record {
                fault,
                offset,
                record,
            } => {
                write!(f, "bad record {record} at byte {offset}: {fault}")
            }
            Self::Interface {
                fault,
                interface,
                offset,
            } => {
                write!(
                    f,
                    "bad description of interface {interface} at byte {offset}: {fault}"
                )
            }
        }
    }
}

impl core::error::Error for CaptureError {}

/// A compression format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Packing {
    /// gzip (RFC 1952), with any number of members.
    Gzip,
    /// zstd (RFC 8878), with any number of frames, without dictionaries, and with windows of up to
    /// 128 MiB.
    Zstd,
}

impl fmt::Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        })
    }
}

/// The reason why compressed data cannot be decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PackedFault {
    /// It breaks the rules of its format.
    Corrupt,
    /// It ends too early.
    Truncated,
    /// What was decompressed has another checksum or length.
    Checksum,
    /// A zstd frame needs a window of more than 128 MiB.
    Window,
    /// A zstd frame needs a dictionary.
    Dictionary,
    /// Only zeros follow, as programs write that fill blocks. All data was read, so this is not
    /// fatal.
    Padding {
        /// Their number.
        bytes: u64,
    },
    /// Something else follows.
    Trailing {
        /// Its length in bytes.
        bytes: u64,
    },
}

impl fmt::Display for PackedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Padding { bytes } => {
                return write!(f, "ends, and {bytes} zeros follow, which are left out");
            }
            Self::Trailing { bytes } => {
                return write!(
                    f,
                    "ends, and {bytes} other bytes follow, which are left out: if packets are \
                     missing, fetch the file again"
                );
            }
            Self::Corrupt => "is corrupt",
            Self::Truncated => "ends too early: the file is truncated",
            Self::Checksum => "is corrupt: its checksum is wrong",
            Self::Window => {
                "needs a window of more than 128 MiB: compress it again without --long or --ultra"
            }
            Self::Dictionary => "needs a dictionary: decompress it first",
        })
    }
}

/// The reason why the structure of a capture file is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StructureFault {
    /// A version that is neither pcap 2.x nor pcapng 1.x.
    Version {
        /// The major version.
        major: u16,
        /// The minor version.
        minor: u16,
    },
    /// A section header whose byte-order magic reads `1a2b3c4d` in neither order.
    ByteOrderMagic {
        /// The bytes, as they are in the input.
        magic: [u8; 4],
    },
    /// A pcapng block length too small for its block, or not a multiple of 4.
    BlockLength {
        /// The length, in bytes with the block's header and trailer.
        bytes: u32,
    },
    /// The length after a pcapng block differs from the one before it.
    BlockLengthMismatch {
        /// The length before the block.
        head: u32,
        /// The length after the block.
        tail: u32,
    },
    /// A classic pcap record longer than [`MAX_SKIPPED_BYTES`](super::MAX_SKIPPED_BYTES).
    RecordLength {
        /// The captured length, in bytes without the record header.
        bytes: u32,
    },
}

impl fmt::Display for StructureFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { major, minor } => write!(f, "unknown version {major}.{minor}"),
            Self::ByteOrderMagic {
                magic: [a, b, c, d],
            } => {
                write!(f, "no byte-order magic but {a:02x} {b:02x} {c:02x} {d:02x}")
            }
            Self::BlockLength { bytes } => write!(f, "impossible block length {bytes}"),
            Self::BlockLengthMismatch { head, tail } => {
                write!(
                    f,
                    "block length {head} before the block but {tail} after it"
                )
            }
            Self::RecordLength { bytes } => write!(f, "impossible record length {bytes}"),
        }
    }
}

/// The reason why a record, whose end is known, is bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordFault {
    /// More than [`MAX_CAPTURED_BYTES`](super::MAX_CAPTURED_BYTES) of data, or more than
    /// [`MAX_OPTION_BYTES`](super::MAX_OPTION_BYTES) of options besides.
    TooLong {
        /// The length of the data, or of the whole block if that was not parsed, in bytes.
        bytes: u32,
    },
    /// The block is too short for its fixed fields.
    ShortBlock {
        /// The block's length, in bytes with header and trailer.
        bytes: u32,
    },
    /// The data would exceed the block.
    DataOverrun {
        /// The captured length that the record states, in bytes.
        captured: u32,
        /// The bytes that the block has room for.
        space: u32,
    },
    /// The section has no interface of that index (or more than
    /// [`MAX_INTERFACES`](super::MAX_INTERFACES), and this one is beyond them).
    NoSuchInterface {
        /// The index.
        interface: u32,
    },
    /// The interface's description was bad, so link type and time unit are unknown.
    UnusableInterface {
        /// The index.
        interface: u32,
    },
}

impl fmt::Display for RecordFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { bytes } => write!(f, "{bytes} bytes are more than the limit"),
            Self::ShortBlock { bytes } => {
                write!(f, "a block of {bytes} bytes is too short for its fields")
            }
            Self::DataOverrun { captured, space } => {
                write!(
                    f,
                    "{captured} captured bytes in a block with room for {space}"
                )
            }
            Self::NoSuchInterface { interface } => write!(f, "there is no interface {interface}"),
            Self::UnusableInterface { interface } => {
                write!(f, "the description of interface {interface} was bad")
            }
        }
    }
}

/// The reason why a pcapng interface description is unusable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InterfaceFault {
    /// The block is too short for its fixed fields.
    ShortBlock {
        /// The block's length, in bytes with header and trailer.
        bytes: u32,
    },
    /// More than [`MAX_OPTION_BYTES`](super::MAX_OPTION_BYTES) of options.
    OptionsTooLong {
        /// The options' length, in bytes.
        bytes: u32,
    },
    /// An option exceeds the block.
    OptionOverrun,
    /// An option with the wrong length for its code.
    OptionLength {
        /// The option's code.
        code: u16,
        /// The length that the option states, in bytes.
        bytes: u16,
    },
    /// The section already has [`MAX_INTERFACES`](super::MAX_INTERFACES).
    TooMany,
}

impl fmt::Display for InterfaceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShortBlock { bytes } => {
                write!(f, "a block of {bytes} bytes is too short for its fields")
            }
            Self::OptionsTooLong { bytes } => {
                write!(f, "{bytes} bytes of options are more than the limit")
            }
            Self::OptionOverrun => f.write_str("an option exceeds the block"),
            Self::OptionLength { code, bytes } => {
                write!(f, "option {code} has the wrong length {bytes}")
            }
            Self::TooMany => f.write_str("more interfaces than the limit"),
        }
    }
}

/// The reason why a call wrote nothing. Except after [`WriteError::Io`] from
/// [`flush`](super::Writer::flush), the record of the call is not in the capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteError {
    /// The output refused bytes. Buffered bytes stay buffered, in order, and the caller may repeat
    /// the call.
    Io(IoFault),
    /// Classic pcap has exactly one interface, pcapng at most
    /// [`MAX_INTERFACES`](super::MAX_INTERFACES).
    InterfaceCount {
        /// The number of interfaces.
        count: usize,
    },
    /// An interface name longer than [`MAX_NAME_BYTES`](super::MAX_NAME_BYTES).
    NameTooLong {
        /// The name's length in bytes.
        bytes: usize,
    },
    /// Options, or a block without a packet, longer than those of a reader
    /// ([`MAX_OPTION_BYTES`](super::MAX_OPTION_BYTES)).
    OptionsTooLong {
        /// Their length in bytes.
        bytes: usize,
    },
    /// The capture has no interface of that index.
    NoSuchInterface {
        /// The index.
        interface: u32,
    },
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(fault) => write!(f, "writing failed: {fault}"),
            Self::InterfaceCount { count } => {
                write!(f, "the format cannot describe {count} interfaces")
            }
            Self::NameTooLong { bytes } => write!(
                f,
                "an interface name of {bytes} bytes is longer than {}",
                super::MAX_NAME_BYTES
            ),
            Self::OptionsTooLong { bytes } => {
                write!(f, "{bytes} bytes of options are more than the limit")
            }
            Self::NoSuchInterface { interface } => write!(f, "there is no interface {interface}"),
        }
    }
}

impl core::error::Error for WriteError {}
