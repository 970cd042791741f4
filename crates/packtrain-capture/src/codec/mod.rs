//! The streaming codec for pcap and pcapng, bytes in and bytes out.
//!
//! [`Reader`] takes any [`std::io::Read`] (a file, a pipe, a `&[u8]`) and yields [`Record`]s that
//! borrow its buffer; gzip and zstd are decompressed. [`Writer`] takes any [`std::io::Write`].
//! Except for compressed inputs, both allocate only in `new`, so that a port may call them for each
//! packet.
//!
//! Formats follow the IETF drafts `draft-ietf-opsawg-pcap` (classic pcap) and
//! `draft-ietf-opsawg-pcapng`, and where those are silent the behaviour of libpcap.
//!
//! **Frame check sequences.** If a capture declares that its packets end with one, the reader
//! removes it, also from the options of interfaces and packets. The writer declares none.
//!
//! **Bad input.** A bad record whose end is known is skipped: [`CaptureError::Record`], and reading
//! continues. If the end of a record or block is unknown, reading stops:
//! [`CaptureError::Structure`]. [`CaptureError::is_fatal`] distinguishes the two.

mod cooked;
mod error;
mod fields;
mod options;
mod pcap;
mod pcapng;
mod read;
mod unpack;
mod window;
mod write;

#[cfg(test)]
mod tests;

pub use cooked::{COOKED_HEADER_BYTES_MAX, Cooked};
pub use error::{
    CaptureError, InterfaceFault, IoFault, PackedFault, Packing, RecordFault, StructureFault,
    WriteError,
};
pub use options::PacketOptions;
pub(crate) use options::{COMMENT, PACKET_FLAGS, select_options};
pub(crate) use pcapng::name_option;
pub use read::{Item, Reader, Record};
pub use write::{Interface, Writer};

/// The most packet bytes one record may hold, in bytes without any record or block header.
///
/// The same as `MAXIMUM_SNAPLEN` of libpcap, so that everything written here is readable there.
/// The reader reports a longer record as [`RecordFault::TooLong`]; the writer truncates it.
pub const MAX_CAPTURED_BYTES: usize = 256 * 1024;

/// The most bytes of pcapng options in a block that the reader parses, without the few that the
/// writer adds: an end of options, a time unit, the name of the program.
pub const MAX_OPTION_BYTES: usize = 64 * 1024;

/// The most interfaces of one pcapng section; further ones are [`InterfaceFault::TooMany`].
pub const MAX_INTERFACES: usize = 1024;

/// The longest interface name a [`Writer`] accepts, in bytes (`IFNAMSIZ` is 16 on Linux).
pub const MAX_NAME_BYTES: usize = 255;

/// The longest classic pcap record that the reader skips. A longer one is a broken file.
///
/// Classic pcap states a record's length once, so only its size shows a damaged file. 128 MiB is
/// the largest snapshot length of libpcap for any link type.
pub const MAX_SKIPPED_BYTES: u32 = 128 * 1024 * 1024;

/// The longest block that is held in memory: block header, the fixed fields of an Enhanced Packet
/// Block, data, options and their end, and the trailing length.
const MAX_BLOCK_BYTES: usize = 8 + 20 + MAX_CAPTURED_BYTES + MAX_OPTION_BYTES + 4 + 4;
/// The body of such a block.
const MAX_BODY_BYTES: usize = MAX_BLOCK_BYTES - 8 - 4;

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// A `LINKTYPE_` value: the header at the start of each packet.
///
/// These are the numbers of the registry that both formats share, which differ from the `DLT_`
/// numbers of libpcap for a few types (`LINKTYPE_RAW` is 101, `DLT_RAW` is 12 on Linux).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LinkCode(pub u16);

impl LinkCode {
    /// Loopback of BSD and macOS: an address family of 4 bytes in the byte order of the host that
    /// captured it, then the packet.
    pub const NULL: Self = Self(0);
    /// Ethernet, from the destination address, without preamble.
    pub const ETHERNET: Self = Self(1);
    /// [`RAW`](Self::RAW) by the number of `DLT_RAW` of most systems, which some programs write.
    pub const RAW_12: Self = Self(12);
    /// [`RAW`](Self::RAW) by the number of `DLT_RAW` of OpenBSD.
    pub const RAW_14: Self = Self(14);
    /// An IPv4 or IPv6 packet without a link header, distinguished by the version nibble.
    pub const RAW: Self = Self(101);
    /// Loopback of OpenBSD: as [`NULL`](Self::NULL), in network byte order.
    pub const LOOP: Self = Self(108);
    /// A packet of any Linux device ("cooked", `tcpdump -i any`): 16 bytes with the Ethernet type.
    pub const LINUX_SLL: Self = Self(113);
    /// Reserved for private use, so a reader needs a setting for it. packtrain writes packets with
    /// the bare 4-byte header of IP over InfiniBand with it.
    pub const USER0: Self = Self(147);
    /// An IPv4 packet with no link header.
    pub const IPV4: Self = Self(228);
    /// An IPv6 packet with no link header.
    pub const IPV6: Self = Self(229);
    /// IP over InfiniBand: 40 bytes of global routing header, then the 4-byte encapsulation.
    pub const IPOIB: Self = Self(242);
    /// As [`LINUX_SLL`](Self::LINUX_SLL), 20 bytes, with the interface.
    pub const LINUX_SLL2: Self = Self(276);

    /// Whether packets are IPv4 or IPv6 without a link header.
    #[must_use]
    pub const fn is_raw_ip(self) -> bool {
        matches!(
            self,
            Self::RAW | Self::RAW_12 | Self::RAW_14 | Self::IPV4 | Self::IPV6
        )
    }
}

/// The format of a capture file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Format {
    /// Classic pcap, version 2 (2.4 is written): one interface, one link type.
    Pcap {
        /// Whether record times are in nanoseconds (magic `a1b23c4d`) or in microseconds
        /// (`a1b2c3d4`).
        nanosecond: bool,
    },
    /// pcapng, version 1.0.
    PcapNg,
}
