//! Coalescing and segmentation of captures, offline.
//!
//! [`run`] reads a capture packet by packet. Each interface has its own [`Coalescer`], whose output
//! is written to another capture, if there is one.
//!
//! # Time
//!
//! A packet is held for at most [`Options::hold_ns`] of *capture* time. The first held packet of an
//! interface opens a window, which has the packets that arrive within the hold time. At its end all
//! packets are flushed, as with a NIC that interrupts that long after the first packet and a driver
//! that flushes at the end of its poll. A window also ends after [`SPAN_MAX`] packets or
//! [`BYTES_MAX`] bytes, if timestamps go back, and at the end of a pcapng section. With a long hold
//! time a window is a poll that does not end, and [`Options::limits`] show their effect:
//! [`Limits::packets`] and [`Limits::window_packets`] end windows, and [`Limits::inactive_ns`]
//! passes on packets before their end.
//!
//! # Output
//!
//! Records are in the order of their first packets, so timestamps increase where they did in the
//! input. A merged packet has the time of its first one, and complete checksums: readers of
//! captures see a large packet. With [`Segment::Original`] every packet is restored with its own
//! time, and compared with the input; the order is that of the input. With [`Segment::Mtu`] the
//! packets split from one have its time.
//!
//! Interfaces keep number, link type, snapshot length and options, and packets their options. An
//! interface whose description is bad has the name `bad description` and no packets. A packet that
//! is merged or split keeps what holds for each of its parts: direction and reception type.
//! Comments go to the merged packet, as far as they are at most [`MAX_OPTION_BYTES`], and to the
//! first part of a split one. Name resolution, statistics, decryption secrets and custom blocks
//! that may be copied stay between the packets where they were. Comments on the capture are those
//! of its first section. Blocks of other types are left out and counted; so are malformed ones and
//! those of more than 320 KiB. The format is that of the input.
//!
//! [`MAX_OPTION_BYTES`]: crate::MAX_OPTION_BYTES
//!
//! # Packets that do not change
//!
//! Packets that the capture does not have whole, packets of link types other than Ethernet, raw IP,
//! those of [`Cooked`](crate::Cooked) and that of [`Options::user0`], packets whose IP length was
//! left to a NIC, and packets that the coalescer does not merge: see [`NotTaken`].
//!
//! # Partial checksums
//!
//! A packet that was captured before the offloads of its own host has the sum of its pseudo-header
//! in the checksum field. It is recognised by that, counted, and merged like a packet with a right
//! checksum. If it is merged, or split to an MTU, its checksum is completed;
//! [`Segment::Original`] restores the partial one. One in 65 536 packets with a wrong checksum is
//! mistaken for such a packet.
//!
//! # Bounds
//!
//! Memory does not depend on the length of the capture: a table and a queue for each interface with
//! IP packets, and the packets of one window.

mod frame;
mod hash;
mod lead;
mod length;
mod order;
mod report;
mod split;

#[cfg(test)]
mod tests;

pub use report::{ETHERNET_MTU, HISTOGRAM_FROM, InterfaceReport, Report};
pub use split::Segment;

use crate::codec::{
    COMMENT, Format, Interface, Item, LinkCode, MAX_INTERFACES, PACKET_FLAGS, Reader, WriteError,
    Writer, name_option, select_options,
};
use frame::Frame;
use lead::Lead;
use order::{Arrival, Next, Order};
use packtrain_offload::coalesce::{
    Coalescer, Config, Done, Finish, Mode, NotTaken, Owned, Semantics,
};
use packtrain_offload::layout::{Layout, Transport};
use packtrain_offload::offload::{ChecksumState, LinkType};
use split::Splitter;
use std::fmt;
use std::io::{Read, Write};

/// The most packets from the oldest held packet to the newest.
pub const SPAN_MAX: usize = 4096;
/// The most bytes of packets in memory, without the last one.
pub const BYTES_MAX: usize = 32 << 20;

/// The name of an interface in the output whose description is bad in the input. It has no packets.
const BAD_INTERFACE: &str = "bad description";

/// The most flows held at once, on each interface, unless set otherwise.
const FLOWS: u32 = 1024;

/// The settings of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// The rules of merging; `None` merges no packets.
    pub coalesce: Option<Semantics>,
    /// The way to find flows.
    pub mode: Mode,
    /// How many packets each interface holds.
    pub limits: Limits,
    /// The split afterwards.
    pub segment: Segment,
    /// The length of a window, in nanoseconds of capture time.
    pub hold_ns: u64,
    /// The header of packets of the private link type [`LinkCode::USER0`]; `None` does not change
    /// them. packtrain uses it for packets with the 4-byte header of IP over InfiniBand
    /// ([`LinkType::Ipoib`]), since `LINKTYPE_IPOIB` needs 40 bytes before that header.
    pub user0: Option<LinkType>,
}

/// The limits of holding packets. `None` is the default of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The most flows held at once, up to [`Config::FLOWS_MAX`].
    pub flows: Option<u32>,
    /// The longest IP datagram that is made, in bytes.
    pub bytes: Option<u32>,
    /// The most packets held at once; the window ends beyond it. Also the packets that are sorted
    /// at once.
    pub packets: Option<u32>,
    /// A merged packet is passed on with the pure ACK that is this packet of it.
    pub ack_limit: Option<u16>,
    /// IPv4 packets with DF that all have one identification are not merged.
    pub exact_id: bool,
    /// A packet held for this many nanoseconds is passed on with the next packet.
    pub inactive_ns: Option<u64>,
    /// A window ends with this many packets.
    pub window_packets: Option<u32>,
}

impl Default for Options {
    /// `Reversible`, `Auto`, 1024 flows, no split, 50 µs, `USER0` not parsed.
    fn default() -> Self {
        Self {
            coalesce: Some(Semantics::Reversible),
            mode: Mode::Auto,
            limits: Limits::default(),
            segment: Segment::Off,
            hold_ns: 50_000,
            user0: None,
        }
    }
}

impl Options {
    /// The settings of the coalescer of an interface whose packets start with `link`.
    #[must_use]
    pub const fn config(&self, semantics: Semantics, link: LinkType) -> Config {
        let limits = &self.limits;
        let mut config = Config::new(semantics, link, FLOWS);
        if let Some(flows) = limits.flows {
            config.flows = flows;
        }
        if let Some(packets) = limits.packets {
            config.queue = packets;
        }
        if let Some(bytes) = limits.bytes {
            config.max_bytes = bytes;
        }
        config.fixed_id = !limits.exact_id;
        if let Some(limit) = limits.ack_limit {
            config.ack_limit = limit;
        }
        config.mode = self.mode;
        config.finish = Finish::Complete;
        config
    }
}

/// The reason why a replay failed. A truncated capture is no failure: [`Report::stopped`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayError {
    /// [`Segment::Original`] after [`Semantics::Stream`], which cannot be undone.
    NotReversible,
    /// More than [`MAX_INTERFACES`] different interfaces in all sections.
    TooManyInterfaces,
    /// The output failed.
    Output(WriteError),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReversible => f.write_str(
                "stream coalescing cannot be undone: use reversible, or do not request the \
                 original packets",
            ),
            Self::TooManyInterfaces => write!(
                f,
                "more than {MAX_INTERFACES} different interfaces in all sections of the capture: \
                 replay its sections one by one"
            ),
            Self::Output(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReplayError {}

impl From<WriteError> for ReplayError {
    fn from(error: WriteError) -> Self {
        Self::Output(error)
    }
}

/// Replays a capture to its end.
///
/// # Errors
/// See [`ReplayError`]. Records written before are complete.
pub fn run<R: Read, W: Write>(
    mut input: Reader<R>,
    output: Option<W>,
    options: &Options,
) -> Result<Report, ReplayError> {
    if options.segment == Segment::Original && options.coalesce == Some(Semantics::Stream) {
        return Err(ReplayError::NotReversible);
    }
    let mut replay = Replay::new(&mut input, output, *options)?;
    loop {
        let now = replay.now;
        let item = match input.next_item() {
            Ok(Some(item)) => Ok(item.map(|record| Arrival::of(&record, now))),
            Ok(None) => break,
            Err(error) => Err(error),
        };
        let options = match &item {
            Ok(Item::Interface(options)) => Some(&options[..]),
            _ => None,
        };
        replay.update_interfaces(&input, options)?;
        match item {
            Ok(Item::Record((arrival, data))) => replay.take(arrival, data),
            Ok(Item::Interface(_)) => {}
            Ok(Item::Block {
                kind,
                body,
                interface,
            }) => replay.pass_block(kind, body, interface),
            Ok(Item::LeftOut) => replay.report.blocks_left_out += 1,
            Err(error) => {
                if error.costs_a_record() {
                    replay.report.received += 1;
                    replay.report.dropped += 1;
                }
                replay.report.last_bad = Some(error);
                if error.is_fatal() {
                    replay.report.stopped = Some(error);
                    break;
                }
            }
        }
        replay.write_out()?;
    }
    replay.update_interfaces(&input, None)?;
    replay.finish()
}

/// One interface of the current section.
struct Lane {
    /// Its number in the output, and in the report.
    to: u32,
    code: LinkCode,
    link: Option<LinkType>,
    /// Made with the first packet that it could merge.
    coalescer: Option<Box<Coalescer<Frame, Owned<Frame>>>>,
    /// The start of the window.
    since: Option<u64>,
    /// Packets that the coalescer took in the window.
    taken: u64,
    /// Packets in the coalescer, before merging.
    held: u64,
}

/// Whether a limit ends a window in which `taken` packets were taken and `held` are held.
fn ends_window(limits: &Limits, taken: u64, held: u64) -> bool {
    limits
        .window_packets
        .is_some_and(|most| taken >= most.into())
        || limits.packets.is_some_and(|most| held > most.into())
}

struct Replay<W: Write> {
    options: Options,
    writer: Option<Writer<W>>,
    /// `None` for an interface whose description is bad.
    lanes: Vec<Option<Lane>>,
    /// For each interface of the report, whether a lane of the current section has its number.
    used: Vec<bool>,
    section: u64,
    order: Order,
    splitter: Splitter,
    report: Report,
    /// The timestamp of the last packet with one.
    now: u64,
    /// The end of the first window.
    deadline: u64,
}

impl<W: Write> Replay<W> {
    fn new<R: Read>(
        input: &mut Reader<R>,
        output: Option<W>,
        options: Options,
    ) -> Result<Self, ReplayError> {
        let format = input.format();
        let mut replay = Self {
            options,
            writer: None,
            lanes: Vec::new(),
            used: Vec::new(),
            section: input.sections(),
            order: Order::default(),
            splitter: Splitter::new(options.segment, options.coalesce),
            report: Report::new(format),
            now: 0,
            deadline: u64::MAX,
        };
        let interface = match format {
            Format::Pcap { .. } => input.interface(0),
            Format::PcapNg => None,
        };
        let interface = interface.map(|interface| replay.described(interface));
        if let Some(output) = output {
            let options = input.section_options();
            let writer = Writer::with_section(output, format, interface.as_slice(), options)?;
            // Records may be longer than the snapshot length of the capture. They are kept whole.
            replay.writer = Some(writer.without_truncation());
        }
        Ok(replay)
    }

    /// The description of an interface in the output: without a snapshot length if packets stay
    /// merged.
    fn described<'a>(&self, interface: Interface<'a>) -> Interface<'a> {
        let grows = self.options.coalesce.is_some() && self.options.segment != Segment::Original;
        Interface {
            snaplen: if grows { 0 } else { interface.snaplen },
            ..interface
        }
    }

    /// Adds the interfaces that the input has described since the last call. The last one has these
    /// options. An interface that the caller of [`run`] has read before has only its name: the
    /// reader does not keep its options.
    fn update_interfaces<R: Read>(
        &mut self,
        input: &Reader<R>,
        options: Option<&[u8]>,
    ) -> Result<(), ReplayError> {
        if input.sections() != self.section {
            self.flush();
            self.write_out()?;
            self.section = input.sections();
            self.end_section();
        }
        let interfaces = input.interfaces();
        for index in self.lanes.len() as u32..interfaces {
            let first = input.interface(index);
            if let Some(first) = first.filter(|_| self.report.interfaces.is_empty()) {
                // For all before it, whose descriptions are bad.
                for _ in 0..index {
                    self.placeholder(first.link, first.snaplen)?;
                }
            }
            let lane = match (input.interface(index), options) {
                (Some(interface), Some(options)) if index + 1 == interfaces => {
                    Some(self.lane(interface, options)?)
                }
                (Some(interface), _) => {
                    let name = interface.name.map_or(Vec::new(), name_option);
                    Some(self.lane(interface, &name)?)
                }
                (None, _) => {
                    // Before the first good one, its link type is not known.
                    if let Some(first) = self.report.interfaces.first() {
                        let (link, snaplen) = (first.link, first.snaplen);
                        self.placeholder(link, snaplen)?;
                    }
                    None
                }
            };
            self.lanes.push(lane);
        }
        Ok(())
    }

    /// Adds an interface for one whose description is bad, so that later ones keep their numbers.
    /// Link type and snapshot length are those of the first good interface: libpcap refuses a file
    /// whose interfaces differ in them.
    fn placeholder(&mut self, link: LinkCode, snaplen: u32) -> Result<(), ReplayError> {
        let interface = Interface {
            link,
            snaplen,
            name: Some(BAD_INTERFACE),
        };
        self.lane(interface, &name_option(BAD_INTERFACE)).map(drop)
    }

    fn lane(&mut self, interface: Interface<'_>, options: &[u8]) -> Result<Lane, ReplayError> {
        let seen = InterfaceReport::new(&interface, options);
        let mut known = self.report.interfaces.iter().zip(&mut self.used);
        // A later section may describe the same interfaces again. A description costs one pass over
        // at most `MAX_INTERFACES` flags and descriptions, however many of them are equal.
        let same = known.position(|(known, used)| {
            let is_same = !*used && known.is_same(&seen);
            *used |= is_same;
            is_same
        });
        let to = if let Some(to) = same {
            to
        } else if self.report.interfaces.len() == MAX_INTERFACES {
            return Err(ReplayError::TooManyInterfaces);
        } else {
            let described = self.described(interface);
            if let (Some(writer), Format::PcapNg) = (&mut self.writer, self.report.format) {
                writer.add_interface_with(&described, options)?;
            }
            self.report.interfaces.push(seen);
            self.used.push(true);
            self.report.interfaces.len() - 1
        };
        Ok(Lane {
            to: to as u32,
            code: interface.link,
            link: link_type(interface.link, self.options.user0),
            coalescer: None,
            since: None,
            taken: 0,
            held: 0,
        })
    }

    /// A block without a packet.
    fn pass_block(&mut self, kind: u32, mut body: Vec<u8>, interface: Option<u32>) {
        if let Some(index) = interface {
            let lane = self.lanes.get(index as usize);
            let to = lane
                .and_then(Option::as_ref)
                .map(|lane| lane.to.to_le_bytes());
            let (Some(to), Some(at)) = (to, body.first_chunk_mut()) else {
                // Not possible: the reader returns no statistics of a bad interface.
                self.report.blocks_left_out += 1;
                return;
            };
            *at = to;
        }
        if self.order.bytes() >= BYTES_MAX || self.order.span() >= SPAN_MAX {
            self.flush();
        }
        self.order.push_block(kind, body);
    }

    /// One packet.
    fn take(&mut self, mut arrival: Arrival, mut data: Vec<u8>) {
        self.advance(arrival.timestamp_ns);
        if self.order.span() >= SPAN_MAX || self.order.bytes() >= BYTES_MAX {
            self.flush();
        }
        self.report.received += 1;
        let Some(Some(lane)) = self.lanes.get_mut(arrival.interface as usize) else {
            // Not possible: the reader returns no packet of a bad interface.
            self.report.dropped += 1;
            return;
        };
        arrival.interface = lane.to;
        let Some(seen) = self.report.interfaces.get_mut(lane.to as usize) else {
            self.report.dropped += 1;
            return;
        };
        seen.frames += 1;
        seen.bytes += u64::from(arrival.original_bytes);
        seen.captured_bytes += data.len() as u64;
        let is_whole = arrival.original_bytes as usize == data.len();
        let is_loopback = is_loopback(lane.code, &data);
        let mut link = lane.link;
        if lane.code.is_cooked() {
            match Lead::replace(lane.code, &mut data, &mut arrival.original_bytes) {
                Some(lead) => arrival.lead = lead,
                // It is passed on as it is.
                None => link = None,
            }
        }
        let mut layout = link.and_then(|link| Layout::parse(link, &data, data.len() as u32).ok());
        let restored = match (link, &layout) {
            (Some(link), None) => length::restored(link, &data),
            _ => None,
        };
        layout = layout.or(restored.as_ref().map(|(_, layout)| *layout));
        if let Some(layout) = &layout {
            seen.flows.add(&data, layout);
            // Of a cut packet the IP length is not checked. A whole one may have a trailer behind.
            let end = match is_whole {
                true => layout.ip_end,
                false => arrival.original_bytes,
            };
            let bytes = end.saturating_sub(layout.network.into());
            let is_tcp = layout.transport_kind == Transport::Tcp && !is_loopback;
            let is_large = bytes > ETHERNET_MTU || restored.is_some();
            seen.large += u64::from(is_tcp && is_large);
        }
        seen.cut_short += u64::from(!is_whole);
        seen.other_link += u64::from(link.is_none());
        seen.no_length += u64::from(restored.is_some());
        let checksum = match &layout {
            Some(layout) if is_whole && restored.is_none() => split::checksum_of(&data, layout),
            _ => ChecksumState::None,
        };
        let partial = checksum != ChecksumState::None;
        seen.unfinished += u64::from(partial);
        let number = self.order.push(arrival, &data, partial);
        let frame = Frame::new(number, data, checksum);
        lane.held += 1;
        let mut sink = Sink {
            link: lane.link.unwrap_or_default(),
            held: &mut lane.held,
            order: &mut self.order,
            splitter: &mut self.splitter,
            seen,
            totals: &mut self.report.totals,
        };
        let (Some(link), Some(semantics)) = (link, self.options.coalesce) else {
            return sink.unmerged(frame, restored.as_ref(), is_whole && link.is_some());
        };
        if lane.coalescer.is_none() {
            lane.coalescer = coalescer(&self.options, semantics, link);
        }
        let Some(coalescer) = &mut lane.coalescer else {
            return sink.unmerged(frame, restored.as_ref(), is_whole);
        };
        let limits = &self.options.limits;
        let open_for = self.now - lane.since.unwrap_or(self.now);
        // Sorted mode has no age for each packet.
        if let Some(age) = limits.inactive_ns
            && (!coalescer.is_sorting() || open_for >= age)
        {
            coalescer.flush_inactive(self.now, age, &mut |frame, done| {
                sink.output(frame, done, true);
            });
        }
        if coalescer.held() == 0 {
            (lane.since, lane.taken) = (None, 0);
        }
        lane.taken += 1;
        if is_whole && restored.is_none() {
            coalescer.push(self.now, frame, &mut |frame, done| {
                sink.output(frame, done, true);
            });
        } else {
            // Held packets of its flow must stay before it.
            coalescer.flush(&mut |frame, done| sink.output(frame, done, true));
            sink.unmerged(frame, restored.as_ref(), is_whole);
        }
        sink.seen.held_max = sink.seen.held_max.max(coalescer.held() as u64);
        if ends_window(limits, lane.taken, *sink.held) {
            coalescer.flush(&mut |frame, done| sink.output(frame, done, true));
        }
        if coalescer.held() == 0 {
            lane.since = None;
        } else if lane.since.is_none() {
            lane.since = Some(self.now);
            self.deadline = self
                .deadline
                .min(self.now.saturating_add(self.options.hold_ns));
        }
    }

    /// Advances the time, and ends windows that are over.
    fn advance(&mut self, timestamp_ns: u64) {
        if timestamp_ns < self.now {
            self.flush();
        }
        self.now = timestamp_ns;
        if self.now < self.deadline {
            return;
        }
        let (now, hold) = (self.now, self.options.hold_ns);
        self.flush_if(|since| now - since >= hold);
        let open = self.lanes.iter().flatten().filter_map(|lane| lane.since);
        self.deadline = open
            .map(|since| since.saturating_add(hold))
            .min()
            .unwrap_or(u64::MAX);
    }

    fn flush(&mut self) {
        self.flush_if(|_| true);
        self.deadline = u64::MAX;
    }

    fn flush_if(&mut self, is_over: impl Fn(u64) -> bool) {
        for lane in self.lanes.iter_mut().flatten() {
            let Some(since) = lane.since else { continue };
            if !is_over(since) {
                continue;
            }
            lane.since = None;
            let (Some(coalescer), Some(seen), Some(link)) = (
                &mut lane.coalescer,
                self.report.interfaces.get_mut(lane.to as usize),
                lane.link,
            ) else {
                continue;
            };
            let mut sink = Sink {
                link,
                held: &mut lane.held,
                order: &mut self.order,
                splitter: &mut self.splitter,
                seen,
                totals: &mut self.report.totals,
            };
            coalescer.flush(&mut |frame, done| sink.output(frame, done, true));
        }
    }

    /// Writes all packets before the oldest one that is held.
    fn write_out(&mut self) -> Result<(), ReplayError> {
        while let Some(next) = self.order.pop() {
            let (mut arrival, packets) = match next {
                Next::Packets(arrival, packets) => (arrival, packets),
                Next::Block(kind, body) => {
                    if let Some(writer) = &mut self.writer {
                        writer.write_block(kind, &body)?;
                    }
                    continue;
                }
            };
            let Some(seen) = self.report.interfaces.get_mut(arrival.interface as usize) else {
                continue;
            };
            let is_split = packets.len() > 1;
            for (index, packet) in packets.iter().enumerate() {
                seen.records += 1;
                let lead = &arrival.lead;
                let bytes = lead.restored((packet.len() as u32).max(packet.as_is(&arrival)));
                seen.record_bytes += u64::from(bytes);
                if is_split && !arrival.options.is_empty() {
                    // Only the first part has the comments.
                    let codes = [PACKET_FLAGS, COMMENT];
                    let codes = if index == 0 { &codes } else { &codes[..1] };
                    arrival.options = select_options(&arrival.options, codes);
                }
                if let Some(writer) = &mut self.writer {
                    let at = arrival.timestamp_ns;
                    let pieces = lead.restore(packet.bytes());
                    writer.write_with(arrival.interface, at, bytes, pieces, &arrival.options)?;
                }
            }
        }
        Ok(())
    }

    /// Adds the counters of the section's coalescers to the report, and drops them.
    fn end_section(&mut self) {
        self.used.fill(false);
        for lane in self.lanes.drain(..).flatten() {
            if let Some(coalescer) = &lane.coalescer
                && let Some(seen) = self.report.interfaces.get_mut(lane.to as usize)
            {
                seen.stats += *coalescer.stats();
            }
        }
    }

    fn finish(mut self) -> Result<Report, ReplayError> {
        self.flush();
        self.write_out()?;
        self.end_section();
        self.report.held = self.order.span() as u64;
        if let Some(writer) = self.writer {
            writer.finish()?;
        }
        Ok(self.report)
    }
}

/// The sink of a coalescer.
struct Sink<'a> {
    link: LinkType,
    /// Of the lane.
    held: &'a mut u64,
    order: &'a mut Order,
    splitter: &'a mut Splitter,
    seen: &'a mut InterfaceReport,
    totals: &'a mut report::Totals,
}

impl Sink<'_> {
    /// Outputs a packet that the coalescer does not see. `restored` has its IP length.
    fn unmerged(&mut self, frame: Frame, restored: Option<&(Vec<u8>, Layout)>, is_whole: bool) {
        match restored {
            Some((packet, layout)) if is_whole => {
                *self.held -= 1;
                self.seen.count_merged(1);
                let packet = (&packet[..], layout);
                self.splitter
                    .without_length(frame, packet, self.order, self.seen, self.totals);
            }
            _ => self.output(frame, &Done::Passed(NotTaken::Off), is_whole),
        }
    }

    fn output(&mut self, frame: Frame, done: &Done, is_whole: bool) {
        let count = frame.count();
        *self.held -= count;
        self.seen.count_merged(count);
        let (first, more) = frame.numbers();
        match done {
            Done::Merged(merged) => {
                self.totals.absorbed += u64::from(merged.absorbed);
                let numbers = std::iter::once(first).chain(more.iter().copied());
                self.splitter.merged(
                    frame.bytes(),
                    merged,
                    numbers,
                    self.order,
                    self.seen,
                    self.totals,
                );
            }
            Done::Passed(_) | Done::Alone(_) if is_whole => {
                self.splitter
                    .single(frame, self.link, self.order, self.seen, self.totals);
            }
            Done::Passed(_) | Done::Alone(_) => {
                self.totals.transmitted += 1;
                self.order.as_is(first, frame.into_bytes());
            }
        }
    }
}

fn coalescer(
    options: &Options,
    semantics: Semantics,
    link: LinkType,
) -> Option<Box<Coalescer<Frame, Owned<Frame>>>> {
    let config = options.config(semantics, link);
    let storage = Owned::for_config(&config);
    // The storage was made for this configuration.
    Coalescer::new(config, storage).ok().map(Box::new)
}

/// Whether a packet is of an interface that only reaches its own host. On Linux it has an Ethernet
/// header of zeros, or the device type of loopback (`ARPHRD_LOOPBACK`) in a cooked header.
fn is_loopback(link: LinkCode, packet: &[u8]) -> bool {
    const ARPHRD_LOOPBACK: [u8; 2] = 772_u16.to_be_bytes();
    let has = |at: usize, bytes: &[u8]| packet.get(at..at + bytes.len()) == Some(bytes);
    match link {
        LinkCode::NULL | LinkCode::LOOP => true,
        LinkCode::ETHERNET => has(0, &[0; 12]),
        LinkCode::LINUX_SLL => has(2, &ARPHRD_LOOPBACK),
        LinkCode::LINUX_SLL2 => has(8, &ARPHRD_LOOPBACK),
        _ => false,
    }
}

/// The header of packets of a link type of captures, if it is supported.
const fn link_type(link: LinkCode, user0: Option<LinkType>) -> Option<LinkType> {
    match link {
        LinkCode::ETHERNET => Some(LinkType::Ethernet),
        LinkCode::RAW | LinkCode::IPV4 | LinkCode::IPV6 => Some(LinkType::RawIp),
        LinkCode::USER0 => user0,
        // See `lead.rs`.
        link if link.is_cooked() => Some(LinkType::Ethernet),
        _ => None,
    }
}
