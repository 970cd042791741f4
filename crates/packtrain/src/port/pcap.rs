//! Capture files as ports: pcap and pcapng, read as a source of packets or written as a sink.
//!
//! A port either reads or writes. A port that reads refuses packets to transmit
//! ([`DropReason::ReadOnly`]); a port that writes never receives. A file is a sequence, so there is
//! one queue. A pipe or FIFO that is read wakes the worker when more data is readable, and one that
//! is written when it has room: a reader that does not read blocks no worker. A packet that is
//! written has completed when the file or the pipe has all its bytes. Only a slow disk makes a
//! worker wait.
//!
//! A packet that is read has the time of its record, and a record that is written has the time of
//! its packet ([`Meta::timestamp`](crate::packet::Meta::timestamp)): a copy of a capture keeps its
//! times. Packets without a time get the wall clock's at the start of their batch.
//!
//! A record holds one packet as on the wire. Neither format can express a partial checksum or a GSO
//! packet, so the framework segments packets and completes checksums before they are written.

mod file;
mod keys;
#[cfg(test)]
mod tests;
mod write;

pub(super) use file::wall_clock_ns;
pub use keys::PcapOptions;
pub use write::PcapTx;

use crate::driver::{
    Armed, Attach, Capabilities, DeviceError, Driver, Features, Input, Interest, QueuePair,
    RxBuffers, RxBurst, RxDescriptors, RxInfo,
};
use crate::file::{Counted, open_to_read};
use crate::limits::{PACKET_BYTES_MAX, SEGMENTS_MAX};
use crate::name::Name;
use crate::packet::{Arena, FrameClass, Packet, PacketError};
use crate::stats::DropReason;
use crate::time::{Instant, WallTime};
use file::{CREATE, OPEN, broken, failed, unwritable};
use packtrain_capture::{
    CaptureError, Cooked, Format, Interface, LinkCode, Reader, Record, Writer,
};
use packtrain_offload::layout::EtherType;
use packtrain_offload::offload::LinkType;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use write::Sink;

/// The pace of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// At the rate at which the other port accepts packets.
    #[default]
    AsFast,
    /// With the gaps between the records' times, from the first poll on. A record follows at once
    /// if its time is before its predecessor's, or if it has none. So does the first record of the
    /// next pass when the file loops.
    Original,
}

/// The settings of a capture that is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcapRead {
    /// Start over at the end of the file (`loop`). A pass without a single good record ends the
    /// input all the same.
    pub repeat: bool,
    /// The pace.
    pub pace: Pace,
    /// End after this number of packets over all passes, bad ones not counted.
    pub count: Option<u64>,
    /// The link type that the header of a "cooked" packet ([`Cooked`]) is converted to: Ethernet,
    /// or none but that of IP, which is the default. Other captures keep their link type.
    pub link: Option<LinkType>,
}

/// The settings of a capture that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcapWrite {
    /// The file's format; [`format_of`] suggests one.
    pub format: Format,
    /// The link type of every packet.
    pub link: LinkType,
    /// The most bytes to keep of each packet; 0 for all.
    pub snaplen: u32,
}

/// The format that a file's name suggests: nanosecond pcap for `.pcap` and `.cap`, else pcapng.
#[must_use]
pub fn format_of(path: &Path) -> Format {
    let extension = path.extension().and_then(|extension| extension.to_str());
    if extension.is_some_and(|e| e.eq_ignore_ascii_case("pcap") || e.eq_ignore_ascii_case("cap")) {
        Format::Pcap { nanosecond: true }
    } else {
        Format::PcapNg
    }
}

/// A capture file as a port.
#[derive(Debug)]
pub struct Pcap {
    name: String,
    path: Arc<str>,
    link: LinkType,
    /// Packets of the capture that is read get another link header.
    converts: bool,
    input: Input,
    side: Side,
}

#[derive(Debug)]
enum Side {
    Read(Box<Reader<Counted>>, PcapRead),
    Write(Box<Writer<Counted>>),
    Attached,
}

impl Pcap {
    /// Opens a capture to read packets from; `-` is standard input.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Failed`] when the file cannot be opened or is no capture,
    /// [`DeviceError::Unsupported`] when its packets are neither Ethernet nor IP.
    pub fn open_read(path: &Path, how: PcapRead) -> Result<Self, DeviceError> {
        let shown: Arc<str> = Name::from(path).to_string().into();
        let file =
            open_to_read(path).map_err(|error| failed(OPEN, &shown, error.kind(), &error))?;
        let input = Counted::new(file);
        let mut reader = Reader::new(input).map_err(|error| broken(&shown, error))?;
        let code = loop {
            match reader.first_link() {
                // A capture without a packet has no link type either; any is right.
                Ok(code) => break code.unwrap_or(LinkCode::ETHERNET),
                Err(error) if error.is_fatal() => return Err(broken(&shown, error)),
                // This interface cannot be used; the next one may be usable.
                Err(_skipped) => {}
            }
        };
        let converts = code.is_cooked();
        let link = if converts {
            let ethernet = how.link == Some(LinkType::Ethernet);
            Some(if ethernet {
                LinkType::Ethernet
            } else {
                LinkType::RawIp
            })
        } else {
            link_type(code)
        };
        let link = link.ok_or_else(|| {
            DeviceError::Unsupported(format!(
                "{shown}: the capture's link type is {}, but only Ethernet (1), IP (12, 14, 101, \
                 228, 229), Linux cooked captures (113, 276) and loopback (0, 108) can be \
                 forwarded; convert it first",
                code.0
            ))
        })?;
        // From here on a worker reads, which must not block on the writer.
        let set = reader.get_ref().set_nonblocking();
        set.map_err(|error| failed(OPEN, &shown, error.kind(), &error))?;
        let endless = how.repeat && how.count.is_none();
        Ok(Self {
            name: name_of(path),
            path: shown,
            link,
            converts,
            input: if endless {
                Input::Endless
            } else {
                Input::Finite
            },
            side: Side::Read(Box::new(reader), how),
        })
    }

    /// Creates a capture to write packets to, as [`create`](crate::file::create) does; `-` is
    /// standard output.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Failed`] when the file cannot be created or its header cannot be written.
    pub fn open_write(path: &Path, how: PcapWrite) -> Result<Self, DeviceError> {
        let shown: Arc<str> = Name::from(path).to_string().into();
        let file = crate::file::create(path);
        let file = file.map(Counted::new);
        let file = file.and_then(|file| file.set_nonblocking().map(|()| file));
        let file = file.map_err(|error| failed(CREATE, &shown, error.kind(), &error))?;
        let interface = Interface {
            link: link_code(how.link),
            snaplen: how.snaplen,
            name: None,
        };
        let writer = Writer::new(file, how.format, &[interface])
            .map_err(|error| unwritable(&shown, error))?;
        Ok(Self {
            name: name_of(path),
            path: shown,
            link: how.link,
            converts: false,
            input: Input::None,
            side: Side::Write(Box::new(writer)),
        })
    }
}

/// The file's name, by which ports are named.
fn name_of(path: &Path) -> String {
    let file = path.file_name().unwrap_or(path.as_os_str());
    Name::from(file).exact().to_owned()
}

/// The framework's link type for a code; `None` for a link that cannot be forwarded.
const fn link_type(code: LinkCode) -> Option<LinkType> {
    match code {
        LinkCode::ETHERNET => Some(LinkType::Ethernet),
        code if code.is_raw_ip() => Some(LinkType::RawIp),
        _ => None,
    }
}

/// The registered number of `link`.
pub(super) const fn link_code(link: LinkType) -> LinkCode {
    match link {
        LinkType::Ethernet => LinkCode::ETHERNET,
        LinkType::RawIp => LinkCode::RAW,
        // `LINKTYPE_IPOIB` wants a global routing header first, which no packet here has.
        LinkType::Ipoib => LinkCode::USER0,
    }
}

impl Driver for Pcap {
    type Rx = PcapRx;
    type Tx = PcapTx;

    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        let (tx, mut notes) = match self.input {
            Input::None => (Features::NONE, Vec::new()),
            Input::Finite | Input::Endless => (
                // Discarded packets need no preparation.
                Features::ALL.without(Features::LARGE_RECEIVE),
                vec![
                    "packets sent to it are dropped: the file is only read (`write` writes it)"
                        .into(),
                ],
            ),
        };
        if self.converts {
            notes.push(match self.link {
                LinkType::Ethernet => {
                    "its packets have no Ethernet header: they get one, without a \
                                       destination address"
                        .into()
                }
                _ => "its packets lose their link header, and only those of IP are read".into(),
            });
        }
        Capabilities {
            link: self.link,
            input: self.input,
            rx_waits: true,
            tx,
            tx_segments_max: SEGMENTS_MAX,
            tx_gso_segments_max: SEGMENTS_MAX,
            gso_pays: false,
            notes,
            ..Capabilities::default()
        }
    }

    fn attach(&mut self, how: &Attach, arena: &Arena) -> Result<Vec<QueuePair<Self>>, DeviceError> {
        if how.queues != 1 {
            return Err(DeviceError::Unsupported(format!(
                "{}: a capture has one queue, not {}",
                self.path, how.queues
            )));
        }
        let path = Arc::clone(&self.path);
        let pair = match std::mem::replace(&mut self.side, Side::Attached) {
            Side::Read(reader, options) => {
                let source = Source::new(*reader, options, self.link, how, arena, path);
                (PcapRx(Some(Box::new(source))), PcapTx(None))
            }
            Side::Write(writer) => {
                let sink = Sink::new(*writer, path);
                (PcapRx(None), PcapTx(Some(Box::new(sink))))
            }
            Side::Attached => {
                return Err(DeviceError::Unsupported(format!(
                    "{}: the capture is in use already",
                    self.path
                )));
            }
        };
        Ok(vec![pair])
    }
}

/// The receiving half: the records of a file, or nothing.
#[derive(Debug)]
pub struct PcapRx(Option<Box<Source>>);

/// A file that is read.
#[derive(Debug)]
struct Source {
    reader: Reader<Counted>,
    path: Arc<str>,
    link: LinkType,
    repeat: bool,
    /// Packets still to be delivered; `u64::MAX` for no limit.
    left: u64,
    timeline: Option<Timeline>,
    /// Large frames are taken, too.
    whole: bool,
    /// The most bytes in a small frame.
    piece: usize,
    arena: Arena,
    /// The frame that the next record is copied to. It is taken from the arena before the record is
    /// read, so a file never loses a packet that fits it for lack of memory. In pieces, a
    /// longer record may be lost.
    small: Option<Packet>,
    /// As `small`, for the part that does not fit into it.
    large: Option<Packet>,
    /// A packet that was read and is not due yet.
    waiting: Option<(Packet, Instant)>,
    /// Good records since the start of the file.
    good_in_pass: u64,
    /// The last attempt found no complete record, and the input has not ended.
    starved: bool,
    finished: bool,
}

/// Maps the times of records to the run's clock.
#[derive(Clone, Copy, Debug, Default)]
struct Timeline {
    /// The origin of the pass: the time of its first record, and when that was due.
    origin: Option<(u64, Instant)>,
    /// When the last record was due.
    last: Option<Instant>,
}

impl Timeline {
    /// When a record with this time is due; never before its predecessor.
    fn due(&mut self, timestamp_ns: Option<u64>, now: Instant) -> Instant {
        let last = self.last.unwrap_or(now);
        let due = match (timestamp_ns, self.origin) {
            (None, _) => last,
            (Some(time), None) => {
                self.origin = Some((time, last));
                last
            }
            (Some(time), Some((first, start))) => {
                start.after(Duration::from_nanos(time.saturating_sub(first)))
            }
        };
        let due = due.max(last);
        self.last = Some(due);
        due
    }
}

/// The result of one attempt to read.
enum Got {
    Packet(Packet, Instant),
    Bad(DropReason),
    Nothing,
}

impl Source {
    fn new(
        reader: Reader<Counted>,
        options: PcapRead,
        link: LinkType,
        how: &Attach,
        arena: &Arena,
        path: Arc<str>,
    ) -> Self {
        Self {
            reader,
            path,
            link,
            repeat: options.repeat,
            left: options.count.unwrap_or(u64::MAX),
            timeline: (options.pace == Pace::Original).then(Timeline::default),
            whole: how.rx_buffers == RxBuffers::Whole,
            piece: how.rx_buffers.small_bytes(),
            arena: arena.clone(),
            small: None,
            large: None,
            waiting: None,
            good_in_pass: 0,
            starved: false,
            finished: options.count == Some(0),
        }
    }

    /// Takes the frames for the next record. False when the arena has none.
    fn stock(&mut self) -> bool {
        if self.small.is_none() {
            self.small = self.arena.packet(FrameClass::Small).ok();
        }
        if self.large.is_none() && self.whole {
            self.large = self.arena.packet(FrameClass::Large).ok();
        }
        self.small.is_some() && (self.large.is_some() || !self.whole)
    }

    fn receive(&mut self, now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        while !self.finished && burst.budget() > 0 {
            let got = match self.waiting.take() {
                Some((packet, due)) => Got::Packet(packet, due),
                None => self.read(now)?,
            };
            match got {
                Got::Packet(packet, due) if due > now => {
                    self.waiting = Some((packet, due));
                    return Ok(());
                }
                Got::Packet(packet, _now_or_earlier) => {
                    let info = RxInfo {
                        timestamp: packet.meta().timestamp,
                        ..RxInfo::default()
                    };
                    burst.push(packet, &info);
                    if self.left != u64::MAX {
                        self.left -= 1;
                        self.finished = self.left == 0;
                    }
                }
                Got::Bad(reason) => burst.bad(reason, 1),
                Got::Nothing => break,
            }
        }
        if self.finished {
            return Err(DeviceError::Finished);
        }
        Ok(())
    }

    /// The next record, as a packet with the time it is due. `Nothing` at the end, with `finished`
    /// set, or when memory is short.
    fn read(&mut self, now: Instant) -> Result<Got, DeviceError> {
        self.starved = false;
        loop {
            if !self.stock() {
                return Ok(Got::Nothing);
            }
            match self.reader.next_record() {
                Ok(Some(record)) => {
                    let (header, data) = match usable(&record, self.link) {
                        Ok(usable) => usable,
                        Err(reason) => return Ok(Got::Bad(reason)),
                    };
                    let timestamp = record.timestamp_ns.map(WallTime::from_nanos);
                    let due = match &mut self.timeline {
                        Some(timeline) => timeline.due(record.timestamp_ns, now),
                        None => now,
                    };
                    let filled = match self.small.take() {
                        Some(packet) => fill(packet, &mut self.large, self.piece, data),
                        None => Err(PacketError::NoBuffer),
                    };
                    let filled = filled.and_then(|packet| with_header(packet, header));
                    let Ok(mut packet) = filled else {
                        return Ok(Got::Bad(DropReason::NoBuffer));
                    };
                    packet.meta_mut().timestamp = timestamp;
                    self.good_in_pass += 1;
                    return Ok(Got::Packet(packet, due));
                }
                Ok(None) if self.repeat && self.good_in_pass > 0 => self.rewind()?,
                Ok(None) => {
                    self.finished = true;
                    return Ok(Got::Nothing);
                }
                Err(error) if error.costs_a_record() => {
                    return Ok(Got::Bad(DropReason::BadRecord));
                }
                Err(CaptureError::Io { fault, .. }) if fault.kind == ErrorKind::WouldBlock => {
                    self.starved = true;
                    return Ok(Got::Nothing);
                }
                Err(error) if error.is_fatal() => return Err(broken(&self.path, error)),
                // An interface that cannot be used; its records are bad one by one.
                Err(_skipped) => {}
            }
        }
    }

    fn rewind(&mut self) -> Result<(), DeviceError> {
        self.reader
            .rewind()
            .map_err(|error| broken(&self.path, error))?;
        self.good_in_pass = 0;
        if let Some(timeline) = &mut self.timeline {
            timeline.origin = None;
        }
        Ok(())
    }
}

/// The Ethernet header that a record gets, if any, and the bytes behind it; or the reason why the
/// record cannot be forwarded.
fn usable<'a>(
    record: &Record<'a>,
    link: LinkType,
) -> Result<(Option<EthernetHeader>, &'a [u8]), DropReason> {
    if record.data.len() < record.original_bytes as usize {
        return Err(DropReason::CutShort);
    }
    let (header, data) = if record.link.is_cooked() {
        let cooked = Cooked::parse(record.link, record.data).ok_or(DropReason::Truncated)?;
        let data = record.data.get(cooked.bytes..).unwrap_or_default();
        match link {
            LinkType::Ethernet => (Some(ethernet(&cooked)), data),
            LinkType::RawIp if IP_TYPES.contains(&EtherType(cooked.ethertype)) => (None, data),
            _ => return Err(DropReason::LinkType),
        }
    } else if link_type(record.link) == Some(link) {
        (None, record.data)
    } else {
        return Err(DropReason::LinkType);
    };
    let bytes = data.len() + header.map_or(0, |header| header.len());
    let bytes_min = match link {
        LinkType::RawIp => 1,
        LinkType::Ethernet | LinkType::Ipoib => link.header_bytes(),
    };
    if bytes < bytes_min {
        Err(DropReason::Truncated)
    } else if bytes > PACKET_BYTES_MAX {
        Err(DropReason::TooLong)
    } else {
        Ok((header, data))
    }
}

type EthernetHeader = [u8; LinkType::Ethernet.header_bytes()];

const IP_TYPES: [EtherType; 2] = [EtherType::IPV4, EtherType::IPV6];

/// An Ethernet header with what a cooked one states: nothing about the destination.
fn ethernet(cooked: &Cooked) -> EthernetHeader {
    let mut header = EthernetHeader::default();
    header[6..12].copy_from_slice(&cooked.sender.unwrap_or_default());
    header[12..].copy_from_slice(&cooked.ethertype.to_be_bytes());
    header
}

fn with_header(mut packet: Packet, header: Option<EthernetHeader>) -> Result<Packet, PacketError> {
    if let Some(header) = header {
        packet.prepend(header.len())?.copy_from_slice(&header);
    }
    Ok(packet)
}

/// Copies up to `piece` bytes of `data` to `packet`. The rest goes to `large` behind it, or in more
/// pieces to small frames if there is none.
fn fill(
    mut packet: Packet,
    large: &mut Option<Packet>,
    piece: usize,
    data: &[u8],
) -> Result<Packet, PacketError> {
    let (head, rest) = data.split_at(data.len().min(piece));
    packet.append_copy(FrameClass::Small, head)?;
    if rest.is_empty() {
        return Ok(packet);
    }
    match large.take() {
        Some(mut more) => {
            more.append_copy(FrameClass::Large, rest)?;
            packet.append(more).map_err(|(error, _more)| error)?;
        }
        None => rest.chunks(piece).try_for_each(|piece| {
            packet.add_frame(FrameClass::Small)?;
            packet.append_copy(FrameClass::Small, piece)
        })?,
    }
    Ok(packet)
}

impl RxDescriptors for PcapRx {
    fn refill(&mut self, _arena: &Arena) -> bool {
        self.0
            .as_mut()
            .is_none_or(|source| source.finished || source.stock())
    }

    fn receive(&mut self, now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        match &mut self.0 {
            Some(source) => source.receive(now, burst),
            None => Ok(()),
        }
    }

    fn arm(&mut self) -> Armed {
        match &self.0 {
            // A packet that waits for its time bounds the sleep by `next_at`; the writer of a pipe
            // ends the sleep by `wake`.
            Some(source) if source.finished || source.starved => Armed::Idle,
            Some(source) if source.waiting.is_none() => Armed::WorkPending,
            _ => Armed::Idle,
        }
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        let source = self.0.as_ref().filter(|source| source.starved)?;
        Some((source.reader.get_ref().file.as_fd(), Interest::Read))
    }

    fn next_at(&self) -> Option<Instant> {
        let (_packet, due) = self.0.as_ref()?.waiting.as_ref()?;
        Some(*due)
    }

    fn held(&self) -> u64 {
        self.0
            .as_ref()
            .map_or(0, |source| u64::from(source.waiting.is_some()))
    }

    fn syscalls(&self) -> u64 {
        self.0
            .as_ref()
            .map_or(0, |source| source.reader.get_ref().calls)
    }
}
