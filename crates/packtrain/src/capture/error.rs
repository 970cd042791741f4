//! What can be wrong with a capture: what, where, and whether reading can go on.

use core::fmt;
use std::io;

/// An I/O error, kept as its kind and number so that capture errors stay `Copy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoFault {
    /// The kind of the error.
    pub kind: io::ErrorKind,
    /// The operating system's error number, when it came from there.
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

/// Why reading a capture did not give a record.
///
/// `offset` is always the byte, counted from the start of the input, at which the header, record
/// or block in question begins. `record` is the number of that packet record, or of the next one
/// after a block without a packet, counted from 1 as packet viewers do and counting bad records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaptureError {
    /// The input could not be read. With [`io::ErrorKind::WouldBlock`] nothing is lost, and the
    /// same call can be made again later.
    Io {
        /// The error.
        fault: IoFault,
        /// Where in the input reading stopped.
        offset: u64,
    },
    /// The first four bytes are those of no known capture format.
    UnknownMagic {
        /// The bytes, as they are in the input.
        magic: [u8; 4],
    },
    /// The input ends inside a header, record or block: a capture cut off while it was written.
    Truncated {
        /// Where the incomplete part begins.
        offset: u64,
        /// The number of the incomplete record.
        record: u64,
    },
    /// The file's structure is broken: where the next record would begin is unknown.
    Structure {
        /// What is broken.
        fault: StructureFault,
        /// Where the broken part begins.
        offset: u64,
        /// The number of the record that cannot be read.
        record: u64,
    },
    /// One record is bad and was stepped over; the next call continues behind it.
    Record {
        /// What is wrong with it.
        fault: RecordFault,
        /// Where the record begins.
        offset: u64,
        /// The record's number.
        record: u64,
    },
    /// One pcapng interface description is unusable. It keeps its index, and each record that
    /// refers to it is a [`RecordFault::UnusableInterface`]; other interfaces are not affected.
    Interface {
        /// What is wrong with it.
        fault: InterfaceFault,
        /// Its index within the section.
        interface: u32,
        /// Where its block begins.
        offset: u64,
    },
}

impl CaptureError {
    /// Whether no further record can be had. A fatal error is returned again by each later call,
    /// until a [rewind](super::Reader::rewind).
    pub fn is_fatal(&self) -> bool {
        match self {
            Self::Io { fault, .. } => fault.kind != io::ErrorKind::WouldBlock,
            Self::Record { .. } | Self::Interface { .. } => false,
            Self::UnknownMagic { .. } | Self::Truncated { .. } | Self::Structure { .. } => true,
        }
    }

    /// Whether this error stands for exactly one record that was in the input and is not
    /// delivered: what an account of packets counts as one received and one dropped.
    pub fn costs_a_record(&self) -> bool {
        matches!(self, Self::Record { .. })
    }
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { fault, offset } => write!(f, "reading at byte {offset} failed: {fault}"),
            Self::UnknownMagic {
                magic: magic @ [a, b, c, d],
            } => {
                let packed = match magic {
                    [0x1f, 0x8b, ..] => " (gzip: decompress it first)",
                    [0x28, 0xb5, 0x2f, 0xfd] => " (zstd: decompress it first)",
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
                f.write_str("the file is empty, or ends inside its header")
            }
            Self::Truncated { offset, record } => {
                write!(
                    f,
                    "the file ends inside record {record}, which begins at byte {offset}"
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

/// Why the structure of a capture file cannot be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StructureFault {
    /// A version that is neither pcap 2.x (x at least 3, where the order of a record's length
    /// fields became what it is) nor pcapng 1.x.
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
    /// The length behind a pcapng block differs from the one in front of it.
    BlockLengthMismatch {
        /// The length in front.
        head: u32,
        /// The length behind.
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
                write!(f, "block length {head} in front but {tail} behind")
            }
            Self::RecordLength { bytes } => write!(f, "impossible record length {bytes}"),
        }
    }
}

/// Why one record, whose end is known, is bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordFault {
    /// More than [`MAX_CAPTURED_BYTES`](super::MAX_CAPTURED_BYTES) of data, or more than
    /// [`MAX_OPTION_BYTES`](super::MAX_OPTION_BYTES) of options besides.
    TooLong {
        /// The data's length, or when that was not looked at, the whole block's, in bytes.
        bytes: u32,
    },
    /// The block has no room for its own fixed fields.
    ShortBlock {
        /// The block's length, in bytes with header and trailer.
        bytes: u32,
    },
    /// The data would run over the end of the block.
    DataOverrun {
        /// The captured length that is claimed, in bytes.
        captured: u32,
        /// The bytes that the block has room for.
        space: u32,
    },
    /// The section has no interface of that index (or more than
    /// [`MAX_INTERFACES`](super::MAX_INTERFACES), and this one is behind them).
    NoSuchInterface {
        /// The index.
        interface: u32,
    },
    /// The interface's description was bad, so link type and time unit are not known.
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
                write!(f, "a block of {bytes} bytes has no room for its fields")
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

/// Why one pcapng interface description is unusable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InterfaceFault {
    /// The block has no room for its own fixed fields.
    ShortBlock {
        /// The block's length, in bytes with header and trailer.
        bytes: u32,
    },
    /// More than [`MAX_OPTION_BYTES`](super::MAX_OPTION_BYTES) of options.
    OptionsTooLong {
        /// The options' length, in bytes.
        bytes: u32,
    },
    /// An option runs over the end of the block.
    OptionOverrun,
    /// An option whose length is not the one its code has.
    OptionLength {
        /// The option's code.
        code: u16,
        /// The length that is claimed, in bytes.
        bytes: u16,
    },
    /// The section already has [`MAX_INTERFACES`](super::MAX_INTERFACES).
    TooMany,
}

impl fmt::Display for InterfaceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShortBlock { bytes } => {
                write!(f, "a block of {bytes} bytes has no room for its fields")
            }
            Self::OptionsTooLong { bytes } => {
                write!(f, "{bytes} bytes of options are more than the limit")
            }
            Self::OptionOverrun => f.write_str("an option runs over the end of the block"),
            Self::OptionLength { code, bytes } => {
                write!(f, "option {code} cannot be {bytes} bytes long")
            }
            Self::TooMany => f.write_str("more interfaces than the limit"),
        }
    }
}

/// Why something was not written. Except after [`WriteError::Io`] from
/// [`flush`](super::Writer::flush), the record in question is not in the capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteError {
    /// The output refused bytes. What is buffered stays buffered, in order, and the same call can
    /// be made again.
    Io(IoFault),
    /// Classic pcap has exactly one interface, pcapng at most
    /// [`MAX_INTERFACES`](super::MAX_INTERFACES).
    InterfaceCount {
        /// How many were given.
        count: usize,
    },
    /// An interface name longer than [`MAX_NAME_BYTES`](super::MAX_NAME_BYTES).
    NameTooLong {
        /// The name's length in bytes.
        bytes: usize,
    },
    /// The capture has no interface of that index.
    NoSuchInterface {
        /// The index.
        interface: u32,
    },
    /// Classic pcap has 32 bits of seconds, which end in the year 2106.
    TimestampOutOfRange {
        /// The time, in nanoseconds since 1970.
        timestamp_ns: u64,
    },
    /// Classic pcap has no place for interface statistics.
    NoStatistics,
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(fault) => write!(f, "writing failed: {fault}"),
            Self::InterfaceCount { count } => {
                write!(f, "the format cannot describe {count} interfaces")
            }
            Self::NameTooLong { bytes } => write!(f, "an interface name of {bytes} bytes"),
            Self::NoSuchInterface { interface } => write!(f, "there is no interface {interface}"),
            Self::TimestampOutOfRange { timestamp_ns } => {
                write!(
                    f,
                    "classic pcap cannot express the time {timestamp_ns} ns since 1970"
                )
            }
            Self::NoStatistics => f.write_str("classic pcap has no interface statistics"),
        }
    }
}

impl core::error::Error for WriteError {}
