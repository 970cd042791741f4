//! The reader of captures of either format.

use std::io::{self, Read, Seek};

use super::error::{CaptureError, InterfaceFault, IoFault, Packing, RecordFault, StructureFault};
use super::fields::ByteOrder;
use super::options::{self, PacketOptions};
use super::pcapng::{self, Described};
use super::unpack::{PackedError, Unpack};
use super::window::{READ_BYTES, Window};
use super::write::Interface;
use super::{
    Format, LinkCode, MAX_BLOCK_BYTES, MAX_BODY_BYTES, MAX_CAPTURED_BYTES, MAX_INTERFACES,
    MAX_OPTION_BYTES, MAX_SKIPPED_BYTES, pcap,
};

/// The most bytes of options of a section or an interface: what the writer makes of
/// [`MAX_OPTION_BYTES`] is readable.
const MAX_READ_OPTION_BYTES: usize = MAX_OPTION_BYTES + pcapng::ADDED_OPTION_BYTES;

/// A streaming reader of pcap and pcapng, from any input, which may be compressed ([`Packing`]).
///
/// It has its own buffer (about 450 KiB, and a table of interfaces, both allocated in
/// [`new`](Self::new)); an input needs none. For any input, it never panics and never uses more
/// memory, and the time of a call is proportional to the bytes that it consumes. A compressed input
/// takes 300 KiB more, and the window of the compression: 32 KiB for gzip, up to 128 MiB for zstd.
///
/// [`Packing`]: super::Packing
#[derive(Debug)]
pub struct Reader<R> {
    window: Window<Unpack<R>>,
    format: Format,
    order: ByteOrder,
    /// The interfaces of the current section; `None` for a bad description. The capacity is
    /// [`MAX_INTERFACES`] from the start, and it never grows.
    interfaces: Vec<Option<Described>>,
    /// The link type and the snapshot length of a classic pcap file.
    link: LinkCode,
    snaplen: u32,
    /// Bytes of the frame check sequence of each packet of a classic pcap file.
    fcs: u8,
    /// The minor version of a classic pcap file.
    minor: u16,
    /// Section headers so far.
    sections: u64,
    /// The options of the first one.
    section_options: Vec<u8>,
    /// Records so far, good or bad.
    records: u64,
    skip: Option<Skip>,
    failed: Option<CaptureError>,
}

/// Bytes that are being skipped, kept for an input that blocks between them.
#[derive(Debug, Clone, Copy)]
struct Skip {
    left: u64,
    /// The trailing length that a pcapng block must have, after the bytes that are left.
    trailer: Option<u32>,
    /// The start of the skipped part.
    offset: u64,
    /// The number of the skipped record, or of the next one.
    record: u64,
    /// The error to report afterwards.
    then: Option<CaptureError>,
}

/// One captured packet, borrowed from its [`Reader`] until the next call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Nanoseconds since the Unix epoch. `None` only for a pcapng Simple Packet Block, which has
    /// no time.
    pub timestamp_ns: Option<u64>,
    /// The interface the packet was captured on: its index within the current pcapng section,
    /// always 0 in classic pcap.
    pub interface: u32,
    /// The link type of that interface.
    pub link: LinkCode,
    /// The packet's length on the wire, in bytes, link header included. If the file states less
    /// than `data.len()`, it is `data.len()`. A frame check sequence that the file declares, for
    /// all packets or in the flags of this one, is neither in this length nor in `data`.
    pub original_bytes: u32,
    /// The captured bytes, from the link header on; at most [`MAX_CAPTURED_BYTES`].
    pub data: &'a [u8],
    /// The options of the packet, as its comments and its direction; none in classic pcap.
    pub options: PacketOptions<'a>,
}

/// A packet or another part of a capture behind its file header, for a copy of the capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item<R> {
    /// A packet.
    Record(R),
    /// One more interface is described ([`Reader::interfaces`]). Its options without the time unit
    /// and offset, for [`Writer::add_interface_with`](super::Writer::add_interface_with).
    Interface(Vec<u8>),
    /// A block that holds no packet, for [`Writer::write_block`](super::Writer::write_block): name
    /// resolution, statistics, decryption secrets, or a custom one that may be copied.
    Block {
        /// Its type.
        kind: u32,
        /// Its body in little-endian order; at most 320 KiB.
        body: Vec<u8>,
        /// The interface whose statistics it has. The first 4 bytes of the body are its index.
        interface: Option<u32>,
    },
    /// A block that cannot be copied: of another type, malformed, or too long. It is skipped.
    LeftOut,
}

impl<R> Item<R> {
    /// The same item with another packet.
    pub fn map<T>(self, record: impl FnOnce(R) -> T) -> Item<T> {
        match self {
            Self::Record(packet) => Item::Record(record(packet)),
            Self::Interface(options) => Item::Interface(options),
            Self::Block {
                kind,
                body,
                interface,
            } => Item::Block {
                kind,
                body,
                interface,
            },
            Self::LeftOut => Item::LeftOut,
        }
    }
}

/// A packet whose data was consumed from the window.
struct Found {
    timestamp_ns: Option<u64>,
    interface: u32,
    link: LinkCode,
    original: u32,
    fcs: u8,
    at: usize,
    captured: usize,
    /// The options, from their position on.
    options: Part,
}

/// The position of consumed bytes, and their number.
#[derive(Clone, Copy, Default)]
struct Part {
    at: usize,
    bytes: usize,
}

/// The blocks that a step through a pcapng file takes from it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Take {
    /// Descriptions of interfaces.
    Interfaces,
    /// Packets, too.
    Packets,
    /// Everything that can be copied.
    All,
}

/// The result of one step through a pcapng file.
enum Step {
    /// A block without a packet was consumed.
    Passed,
    /// An interface was described, with these options.
    Interface(Part),
    /// A block to be copied, of this type and with this body.
    Block(u32, Part),
    /// A block that is not copied is skipped, with [`Take::All`].
    LeftOut,
    /// The next block has a packet, which the caller did not request.
    AtPacket,
    Packet(Found),
    End,
}

impl<R: Read> Reader<R> {
    /// Reads the file header and determines the format.
    ///
    /// It starts at the input's position. The input should block: if it returns
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) here, it is lost with the error.
    ///
    /// # Errors
    ///
    /// [`CaptureError::UnknownMagic`] if it is no capture, [`CaptureError::Truncated`] if it is
    /// empty or ends within its header, or any other fatal [`CaptureError`].
    pub fn new(input: R) -> Result<Self, CaptureError> {
        let mut reader = Self {
            window: Window::new(Unpack::new(input), MAX_BLOCK_BYTES + READ_BYTES),
            format: Format::PcapNg,
            order: ByteOrder::Little,
            interfaces: Vec::with_capacity(MAX_INTERFACES),
            link: LinkCode(0),
            snaplen: 0,
            fcs: 0,
            minor: 0,
            sections: 0,
            section_options: Vec::new(),
            records: 0,
            skip: None,
            failed: None,
        };
        reader.open()?;
        Ok(reader)
    }

    /// The next record, or `None` at the end of the input.
    ///
    /// # Errors
    ///
    /// Any [`CaptureError`]. Unless it [is fatal](CaptureError::is_fatal), the next call continues
    /// after the bad record or block.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, CaptureError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let found = match self.format {
            Format::Pcap { nanosecond } => self.next_classic(nanosecond),
            Format::PcapNg => self.next_packet(),
        };
        match found {
            Ok(found) => Ok(found.map(|found| self.record(&found))),
            Err(error) => Err(self.remember(error)),
        }
    }

    /// The next packet, interface description or other block of a pcapng file. Allocates memory
    /// for an [`Item`] other than a packet. A classic pcap file has only packets.
    ///
    /// # Errors
    ///
    /// As `next_record`.
    pub fn next_item(&mut self) -> Result<Option<Item<Record<'_>>>, CaptureError> {
        if self.format != Format::PcapNg {
            return Ok(self.next_record()?.map(Item::Record));
        }
        if let Some(error) = self.failed {
            return Err(error);
        }
        loop {
            return Ok(Some(match self.step(Take::All) {
                Ok(Step::Passed | Step::AtPacket) => continue,
                Ok(Step::End) => return Ok(None),
                Ok(Step::Packet(found)) => Item::Record(self.record(&found)),
                Ok(Step::Interface(part)) => {
                    let bytes = self.window.consumed(part.at, part.bytes);
                    Item::Interface(options::copied_options(
                        pcapng::INTERFACE_DESCRIPTION,
                        self.order,
                        bytes,
                    ))
                }
                Ok(Step::Block(kind, part)) => {
                    let body = self.window.consumed(part.at, part.bytes);
                    let copied = options::copied_block(kind, self.order, body, &self.interfaces);
                    match copied {
                        // The ends of its lists may make the copy longer than the block.
                        Some((body, interface)) if body.len() <= MAX_BODY_BYTES => Item::Block {
                            kind,
                            body,
                            interface,
                        },
                        _ => Item::LeftOut,
                    }
                }
                Ok(Step::LeftOut) => Item::LeftOut,
                Err(error) => return Err(self.remember(error)),
            }));
        }
    }

    fn record(&self, found: &Found) -> Record<'_> {
        let options = self.window.consumed(found.options.at, found.options.bytes);
        let fcs = options::packet_fcs(self.order, options).unwrap_or(found.fcs);
        // The end of the packet on the wire, of which the capture may have less.
        let original_bytes = found.original.saturating_sub(fcs.into());
        let captured = found.captured.min(original_bytes as usize);
        Record {
            timestamp_ns: found.timestamp_ns,
            interface: found.interface,
            link: found.link,
            original_bytes,
            data: self.window.consumed(found.at, captured),
            options: PacketOptions::new(options, self.order),
        }
    }

    /// The link type of the first interface that is described before the next packet, without
    /// consuming that packet. `None` without such an interface.
    ///
    /// # Errors
    ///
    /// As [`next_record`](Self::next_record), except for [`CaptureError::Record`].
    pub fn first_link(&mut self) -> Result<Option<LinkCode>, CaptureError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if self.format != Format::PcapNg {
            return Ok(Some(self.link));
        }
        loop {
            if let Some(described) = self.interfaces.iter().flatten().next() {
                return Ok(Some(described.link));
            }
            match self.step(Take::Interfaces) {
                Ok(Step::Passed | Step::Interface(_)) => {}
                Ok(_) => return Ok(None),
                Err(error) => return Err(self.remember(error)),
            }
        }
    }

    /// An interface of the current section that was described by now. It has no name if that is
    /// longer than 63 bytes, or not UTF-8.
    pub fn interface(&self, index: u32) -> Option<Interface<'_>> {
        if self.format != Format::PcapNg {
            return (index == 0).then_some(Interface {
                link: self.link,
                snaplen: self.snaplen,
                name: None,
            });
        }
        let described = self.interfaces.get(index as usize)?.as_ref()?;
        Some(Interface {
            link: described.link,
            snaplen: described.snaplen,
            name: described.name.get(),
        })
    }

    /// The interfaces of the current section that were described by now, including unusable ones.
    pub fn interfaces(&self) -> u32 {
        match self.format {
            Format::Pcap { .. } => 1,
            // The table's bound keeps the number within 32 bits.
            Format::PcapNg => self.interfaces.len() as u32,
        }
    }

    /// The pcapng sections since the start or the last rewind; each has interfaces of its own.
    /// Always 0 in classic pcap.
    pub fn sections(&self) -> u64 {
        self.sections
    }

    /// The options of the first pcapng section, as comments on the file, except for the program
    /// that wrote it; for [`Writer::with_section`](super::Writer::with_section).
    pub fn section_options(&self) -> &[u8] {
        &self.section_options
    }

    /// The format of the input.
    pub fn format(&self) -> Format {
        self.format
    }

    /// How the input is compressed; `None` if it is not.
    pub fn packing(&self) -> Option<Packing> {
        self.window.input().packing()
    }

    /// The records since the start or the last rewind, including bad ones.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The position of the next record or block in the capture, in bytes, without compression.
    pub fn offset(&self) -> u64 {
        self.window.offset()
    }

    /// The input, whose position is ahead of the returned records.
    pub fn get_ref(&self) -> &R {
        self.window.input().input()
    }

    /// Returns the input. Bytes read ahead of the last record are lost.
    pub fn into_inner(self) -> R {
        self.window.into_input().into_input()
    }

    fn open(&mut self) -> Result<(), CaptureError> {
        self.require(4)?;
        let magic = self.window.array().unwrap_or_default();
        if u32::from_le_bytes(magic) == pcapng::SECTION_HEADER {
            self.format = Format::PcapNg;
            self.section()?;
            return self.run_skip();
        }
        let Some((order, nanosecond)) = pcap::recognize(magic) else {
            return Err(CaptureError::UnknownMagic { magic });
        };
        self.require(pcap::FILE_HEADER_BYTES)?;
        let header = self
            .window
            .array()
            .and_then(|h| pcap::parse_file_header(&h, order));
        let Some(header) = header else {
            return Err(self.truncated());
        };
        if !pcap::is_known_version(header.version) {
            let (major, minor) = header.version;
            return Err(self.broken(StructureFault::Version { major, minor }));
        }
        self.format = pcap::format(nanosecond);
        self.order = order;
        self.link = header.link;
        self.snaplen = header.snaplen;
        self.fcs = header.fcs;
        self.minor = header.version.1;
        self.window.consume(pcap::FILE_HEADER_BYTES);
        Ok(())
    }

    fn next_classic(&mut self, nanosecond: bool) -> Result<Option<Found>, CaptureError> {
        self.run_skip()?;
        if !self.begins(pcap::RECORD_HEADER_BYTES)? {
            return Ok(None);
        }
        let header = self.window.array();
        let (order, minor) = (self.order, self.minor);
        let header = header.and_then(|h| pcap::parse_record_header(&h, order, nanosecond, minor));
        let Some(header) = header else {
            return Err(self.truncated());
        };
        if header.captured > MAX_SKIPPED_BYTES {
            return Err(self.broken(StructureFault::RecordLength {
                bytes: header.captured,
            }));
        }
        let total = pcap::RECORD_HEADER_BYTES + header.captured as usize;
        if header.captured as usize > MAX_CAPTURED_BYTES {
            let then = self.bad_record(RecordFault::TooLong {
                bytes: header.captured,
            });
            self.start_skip(total as u64, None, Some(then));
            self.records += 1;
            // The skip ends with its error, so this is not the end of the records.
            return self.run_skip().map(|()| None);
        }
        self.require(total)?;
        let at = self.window.consume(total);
        self.records += 1;
        Ok(Some(Found {
            timestamp_ns: Some(header.timestamp_ns),
            interface: 0,
            link: self.link,
            original: header.original.max(header.captured),
            fcs: self.fcs,
            at: at + pcap::RECORD_HEADER_BYTES,
            captured: header.captured as usize,
            options: Part::default(),
        }))
    }

    fn next_packet(&mut self) -> Result<Option<Found>, CaptureError> {
        loop {
            match self.step(Take::Packets)? {
                Step::Packet(found) => return Ok(Some(found)),
                Step::End => return Ok(None),
                _ => {}
            }
        }
    }

    /// One pcapng block.
    fn step(&mut self, take: Take) -> Result<Step, CaptureError> {
        self.run_skip()?;
        if !self.begins(pcapng::BLOCK_HEADER_BYTES)? {
            return Ok(Step::End);
        }
        let [a, b, c, d, e, f, g, h] = self.window.array().unwrap_or_default();
        let kind = self.order.u32([a, b, c, d]);
        if kind == pcapng::SECTION_HEADER {
            // Its length is in the byte order that the header states later.
            self.section()?;
            return Ok(Step::Passed);
        }
        let total = self.order.u32([e, f, g, h]);
        if total < pcapng::MIN_BLOCK_BYTES || !total.is_multiple_of(4) {
            return Err(self.broken(StructureFault::BlockLength { bytes: total }));
        }
        if pcapng::is_packet(kind) {
            if take == Take::Interfaces {
                return Ok(Step::AtPacket);
            }
            return self.packet(kind, total);
        }
        if kind == pcapng::INTERFACE_DESCRIPTION {
            return self.describe(total);
        }
        if take != Take::All {
            self.start_skip_block(total, None);
            return Ok(Step::Passed);
        }
        if !options::is_copied_block(kind) || total as usize > MAX_BLOCK_BYTES {
            self.start_skip_block(total, None);
            return Ok(Step::LeftOut);
        }
        self.require_block(total)?;
        let at = self.window.consume(total as usize) + pcapng::BLOCK_HEADER_BYTES;
        let bytes = (total - pcapng::MIN_BLOCK_BYTES) as usize;
        Ok(Step::Block(kind, Part { at, bytes }))
    }

    fn section(&mut self) -> Result<(), CaptureError> {
        self.require(pcapng::SECTION_FIXED_BYTES)?;
        let header: [u8; pcapng::SECTION_FIXED_BYTES] = self.window.array().unwrap_or_default();
        let [
            _,
            _,
            _,
            _,
            l0,
            l1,
            l2,
            l3,
            m0,
            m1,
            m2,
            m3,
            v0,
            v1,
            v2,
            v3,
            ..,
        ] = header;
        let magic = [m0, m1, m2, m3];
        let Some(order) = pcapng::section_order(magic) else {
            return Err(self.broken(StructureFault::ByteOrderMagic { magic }));
        };
        let (major, minor) = (order.u16([v0, v1]), order.u16([v2, v3]));
        if !pcapng::is_known_version((major, minor)) {
            return Err(self.broken(StructureFault::Version { major, minor }));
        }
        let total = order.u32([l0, l1, l2, l3]);
        let fixed = pcapng::SECTION_FIXED_BYTES + pcapng::BLOCK_TRAILER_BYTES;
        if (total as usize) < fixed || !total.is_multiple_of(4) {
            return Err(self.broken(StructureFault::BlockLength { bytes: total }));
        }
        self.order = order;
        let options = total as usize - fixed;
        // A rewind finds the same ones.
        if self.sections == 0 && self.section_options.is_empty() && options <= MAX_READ_OPTION_BYTES
        {
            self.require_block(total)?;
            let at = self.window.consume(total as usize) + pcapng::SECTION_FIXED_BYTES;
            let options = self.window.consumed(at, options);
            self.section_options = options::copied_options(pcapng::SECTION_HEADER, order, options);
        } else {
            self.start_skip_block(total, None);
        }
        self.interfaces.clear();
        self.sections += 1;
        Ok(())
    }

    fn describe(&mut self, total: u32) -> Result<Step, CaptureError> {
        // The table's bound keeps the index within 32 bits.
        let interface = self.interfaces.len() as u32;
        let offset = self.window.offset();
        let error = |fault| CaptureError::Interface {
            fault,
            interface,
            offset,
        };
        if self.interfaces.len() >= MAX_INTERFACES {
            self.start_skip_block(total, Some(error(InterfaceFault::TooMany)));
            return Ok(Step::Passed);
        }
        let options = total.saturating_sub(pcapng::MIN_INTERFACE_BYTES);
        if options as usize > MAX_READ_OPTION_BYTES {
            self.interfaces.push(None);
            let fault = InterfaceFault::OptionsTooLong { bytes: options };
            self.start_skip_block(total, Some(error(fault)));
            return Ok(Step::Passed);
        }
        self.require_block(total)?;
        let body = body_of(self.window.bytes(), total);
        let described = pcapng::parse_interface(body, self.order, total);
        let at = self.window.consume(total as usize);
        self.interfaces.push(described.ok());
        match described {
            // They are between the fixed fields and the trailing length.
            Ok(_) => Ok(Step::Interface(Part {
                at: at + (pcapng::MIN_INTERFACE_BYTES as usize - pcapng::BLOCK_TRAILER_BYTES),
                bytes: options as usize,
            })),
            Err(fault) => Err(error(fault)),
        }
    }

    fn packet(&mut self, kind: u32, total: u32) -> Result<Step, CaptureError> {
        if total as usize > MAX_BLOCK_BYTES {
            let then = self.bad_record(RecordFault::TooLong { bytes: total });
            self.start_skip_block(total, Some(then));
            self.records += 1;
            return Ok(Step::Passed);
        }
        self.require_block(total)?;
        let body = body_of(self.window.bytes(), total);
        let body_bytes = body.len();
        let packet = pcapng::parse_packet(kind, body, self.order, total, &self.interfaces)
            .map_err(|fault| self.bad_record(fault));
        let body_at = self.window.consume(total as usize) + pcapng::BLOCK_HEADER_BYTES;
        self.records += 1;
        let packet = packet?;
        Ok(Step::Packet(Found {
            timestamp_ns: packet.timestamp_ns,
            interface: packet.interface,
            link: packet.link,
            original: packet.original,
            fcs: packet.fcs,
            at: body_at + packet.data_at,
            captured: packet.captured,
            options: Part {
                at: body_at + packet.options_at,
                bytes: body_bytes.saturating_sub(packet.options_at),
            },
        }))
    }

    /// Whether another header of `count` bytes follows; false at the end of the input.
    fn begins(&mut self, count: usize) -> Result<bool, CaptureError> {
        match self.window.fill(count) {
            Ok(true) => Ok(true),
            Ok(false) if self.window.bytes().is_empty() => Ok(false),
            Ok(false) => Err(self.truncated()),
            Err(error) => Err(self.input_failed(&error)),
        }
    }

    fn require(&mut self, count: usize) -> Result<(), CaptureError> {
        match self.window.fill(count) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.truncated()),
            Err(error) => Err(self.input_failed(&error)),
        }
    }

    /// Makes a whole block of `total` (at most [`MAX_BLOCK_BYTES`]) available, and checks its
    /// trailing length.
    fn require_block(&mut self, total: u32) -> Result<(), CaptureError> {
        self.require(total as usize)?;
        let trailer = self
            .window
            .bytes()
            .get(..total as usize)
            .and_then(<[u8]>::last_chunk);
        let tail = self.order.u32(trailer.copied().unwrap_or_default());
        if tail == total {
            return Ok(());
        }
        Err(self.broken(StructureFault::BlockLengthMismatch { head: total, tail }))
    }

    fn start_skip_block(&mut self, total: u32, then: Option<CaptureError>) {
        let left = u64::from(total).saturating_sub(pcapng::BLOCK_TRAILER_BYTES as u64);
        self.start_skip(left, Some(total), then);
    }

    fn start_skip(&mut self, left: u64, trailer: Option<u32>, then: Option<CaptureError>) {
        let (offset, record) = (self.window.offset(), self.records + 1);
        self.skip = Some(Skip {
            left,
            trailer,
            offset,
            record,
            then,
        });
    }

    /// Finishes a skip, if there is one, and returns its error.
    fn run_skip(&mut self) -> Result<(), CaptureError> {
        let Some(mut skip) = self.skip else {
            return Ok(());
        };
        let tail_bytes = skip.trailer.map_or(0, |_| pcapng::BLOCK_TRAILER_BYTES);
        let whole = match self.window.skip(&mut skip.left) {
            Ok(true) => self.window.fill(tail_bytes),
            ended => ended,
        };
        self.skip = Some(skip);
        let Skip { offset, record, .. } = skip;
        if !whole.map_err(|error| self.input_failed(&error))? {
            return Err(CaptureError::Truncated { offset, record });
        }
        self.skip = None;
        if let Some(head) = skip.trailer {
            let tail = self.order.u32(self.window.array().unwrap_or_default());
            if head != tail {
                let fault = StructureFault::BlockLengthMismatch { head, tail };
                return Err(CaptureError::Structure {
                    fault,
                    offset,
                    record,
                });
            }
            self.window.consume(pcapng::BLOCK_TRAILER_BYTES);
        }
        skip.then.map_or(Ok(()), Err)
    }

    fn remember(&mut self, error: CaptureError) -> CaptureError {
        if error.is_fatal() {
            self.failed = Some(error);
        }
        error
    }

    fn input_failed(&self, error: &io::Error) -> CaptureError {
        if let Some(PackedError {
            packing,
            fault,
            offset,
        }) = PackedError::of(error)
        {
            return CaptureError::Packed {
                packing,
                fault,
                offset,
            };
        }
        let offset = self.window.offset() + self.window.bytes().len() as u64;
        CaptureError::Io {
            fault: IoFault::from(error),
            offset,
        }
    }

    fn truncated(&self) -> CaptureError {
        CaptureError::Truncated {
            offset: self.window.offset(),
            record: self.records + 1,
        }
    }

    fn broken(&self, fault: StructureFault) -> CaptureError {
        let (offset, record) = (self.window.offset(), self.records + 1);
        CaptureError::Structure {
            fault,
            offset,
            record,
        }
    }

    fn bad_record(&self, fault: RecordFault) -> CaptureError {
        let (offset, record) = (self.window.offset(), self.records + 1);
        CaptureError::Record {
            fault,
            offset,
            record,
        }
    }
}

impl<R: Read + Seek> Reader<R> {
    /// Starts again at byte 0 of the input, also after an error, and determines the format again.
    /// Except for a compressed input, it does not allocate.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new). After an error every call returns it, until a rewind succeeds.
    pub fn rewind(&mut self) -> Result<(), CaptureError> {
        self.records = 0;
        self.sections = 0;
        self.skip = None;
        self.failed = None;
        self.interfaces.clear();
        let rewound = self.window.input_mut().rewind();
        self.window.clear();
        let opened = match rewound {
            Ok(()) => self.open(),
            Err(error) => Err(self.input_failed(&error)),
        };
        if let Err(error) = opened {
            // Also an error that is not fatal by itself: reading cannot continue within a header.
            self.failed = Some(error);
        }
        opened
    }
}

#[cfg(test)]
impl<R> Reader<R> {
    /// The allocated size of the table of interfaces.
    pub(super) fn capacity(&self) -> usize {
        self.interfaces.capacity()
    }
}

/// The body of the block of `total` bytes that `bytes` begins with.
fn body_of(bytes: &[u8], total: u32) -> &[u8] {
    let end = (total as usize).saturating_sub(pcapng::BLOCK_TRAILER_BYTES);
    bytes
        .get(pcapng::BLOCK_HEADER_BYTES..end)
        .unwrap_or_default()
}
