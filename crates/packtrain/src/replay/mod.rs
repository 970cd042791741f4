//! Coalescing and segmentation of captures, offline: what they could do for recorded traffic.
//!
//! [`run`] reads a capture packet by packet, puts the packets of each interface through a
//! [`Coalescer`] of its own, and writes what comes out to another capture, if there is one.
//!
//! # Time
//!
//! Nothing is held longer than [`Options::hold_ns`] of *capture* time. The first packet of an
//! interface that is held opens a window, and what arrives within the hold time belongs to it; at
//! its end everything is handed on. So does a NIC that interrupts that long after the first packet,
//! with a driver that flushes at the end of its poll. A window also ends after [`SPAN_MAX`] packets
//! or [`BYTES_MAX`] bytes, when the clock goes back, and at the end of a pcapng section.
//!
//! # What is written
//!
//! Records are in the order of their first packets, so timestamps go up where they did before. A
//! merged packet has the time of its first one, and finished checksums: it looks to every reader of
//! captures like a large packet. With [`Segment::Original`] every packet is restored with its own
//! time, and compared with what was read; the order is that of the input. With [`Segment::Mtu`]
//! packets cut from one have its time.
//!
//! Interfaces keep number, link type, snapshot length and name; comments, statistics, name
//! resolution and options of packets are not kept. The format is that of the input.
//!
//! # What is passed through as it is
//!
//! Packets that the capture does not have whole, packets of other link types than Ethernet, raw IP
//! and what [`Options::user0`] says, and whatever the coalescer does not take: see [`NotTaken`].
//!
//! # Unfinished checksums
//!
//! A packet that was captured on its way to the offloads of its own host has the sum of its
//! pseudo-header for a checksum. That is how it is recognised, it is counted, and merged like one
//! with a right checksum: nobody can have damaged it yet. Merged or cut to an MTU it gets a
//! finished one, as it would have on its way; [`Segment::Original`] gives the unfinished one back.
//! Of packets with a wrong checksum one in 65 536 is taken for such a packet.
//!
//! # Bounds
//!
//! Memory does not depend on the capture's length: a table and a queue for each interface that
//! carries IP, and the packets of one window.

mod cut;
mod frame;
mod order;
mod report;

#[cfg(test)]
mod tests;

pub use cut::Segment;
pub use report::{HISTOGRAM_FROM, InterfaceReport, Report};

use crate::capture::{Format, Interface, LinkCode, MAX_INTERFACES, Reader, WriteError, Writer};
use cut::Cutter;
use frame::Frame;
use order::{Arrival, Order};
use packtrain_offload::coalesce::{
    Coalescer, Config, Done, Finish, Mode, NotTaken, Owned, Semantics,
};
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::{ChecksumState, LinkType};
use std::fmt;
use std::io::{Read, Write};

/// Most packets between the oldest that is held and the newest.
pub const SPAN_MAX: usize = 4096;
/// Most bytes of packets in memory, but for the last one.
pub const BYTES_MAX: usize = 32 << 20;

/// What to do with a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// What may be merged; `None` merges nothing.
    pub coalesce: Option<Semantics>,
    /// How flows are found.
    pub mode: Mode,
    /// Flows held at once, on each interface.
    pub flows: u32,
    /// What is cut afterwards.
    pub segment: Segment,
    /// How long a window is open, in nanoseconds of capture time.
    pub hold_ns: u64,
    /// What packets of the link type [`LinkCode::USER0`] begin with, which is everybody's own
    /// choice; `None` passes them through. packtrain writes packets with the 4-byte header of IP
    /// over InfiniBand so ([`LinkType::Ipoib`]): `LINKTYPE_IPOIB` wants 40 bytes in front of it
    /// that they do not have.
    pub user0: Option<LinkType>,
}

impl Default for Options {
    /// `Reversible`, `Auto`, 1024 flows, 50 µs, nothing cut, `USER0` not looked into.
    fn default() -> Self {
        Self {
            coalesce: Some(Semantics::Reversible),
            mode: Mode::Auto,
            flows: 1024,
            segment: Segment::Off,
            hold_ns: 50_000,
            user0: None,
        }
    }
}

/// Why a replay ended early. A capture that ends in the middle does not: [`Report::stopped`].
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
                "stream coalescing cannot be undone: use reversible, or do not ask for the \
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
/// See [`ReplayError`]. What was written before is complete.
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
        let read = input.next_record();
        let arrival = match read {
            Ok(Some(record)) => Ok(Arrival::of(&record, replay.now, replay.report.format)),
            Ok(None) => break,
            Err(error) => Err(error),
        };
        replay.keep_up(&input)?;
        match arrival {
            Ok((arrival, data)) => replay.take(arrival, data),
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
    replay.keep_up(&input)?;
    replay.finish()
}

/// One interface of the current section.
struct Lane {
    /// Its number in the output, and in the report.
    to: u32,
    link: Option<LinkType>,
    /// Made when the first packet comes that it could take.
    coalescer: Option<Box<Coalescer<Frame, Owned<Frame>>>>,
    /// When the window was opened.
    since: Option<u64>,
}

struct Replay<W: Write> {
    options: Options,
    writer: Option<Writer<W>>,
    /// `None` where the description could not be read.
    lanes: Vec<Option<Lane>>,
    section: u64,
    order: Order,
    cutter: Cutter,
    report: Report,
    /// Time of the last packet that had one.
    now: u64,
    /// When the first window ends.
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
            section: input.sections(),
            order: Order::default(),
            cutter: Cutter::new(options.segment, options.coalesce),
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
            let writer = Writer::new(output, format, interface.as_slice())?;
            // A capture may have longer records than it says: they are all there is of a packet.
            replay.writer = Some(writer.without_cutting());
        }
        Ok(replay)
    }

    /// How an interface is described in the output: merged packets are longer than any snapshot
    /// length, if they stay merged.
    fn described<'a>(&self, interface: Interface<'a>) -> Interface<'a> {
        let grows = self.options.coalesce.is_some() && self.options.segment != Segment::Original;
        Interface {
            snaplen: if grows { 0 } else { interface.snaplen },
            ..interface
        }
    }

    /// Learns of interfaces that were described since.
    fn keep_up<R: Read>(&mut self, input: &Reader<R>) -> Result<(), ReplayError> {
        if input.sections() != self.section {
            self.flush();
            self.write_out()?;
            self.section = input.sections();
            self.retire();
        }
        while (self.lanes.len() as u32) < input.interfaces() {
            let lane = match input.interface(self.lanes.len() as u32) {
                Some(interface) => Some(self.lane(interface)?),
                None => None,
            };
            self.lanes.push(lane);
        }
        Ok(())
    }

    fn lane(&mut self, interface: Interface<'_>) -> Result<Lane, ReplayError> {
        let is_free = |to: usize| {
            !self
                .lanes
                .iter()
                .flatten()
                .any(|lane| lane.to as usize == to)
        };
        let mut known = self.report.interfaces.iter().enumerate();
        // A later section may describe the same interfaces again.
        let same = known.find(|(to, known)| known.is(&interface) && is_free(*to));
        let to = if let Some((to, _)) = same {
            to
        } else if self.report.interfaces.len() == MAX_INTERFACES {
            return Err(ReplayError::TooManyInterfaces);
        } else {
            let described = self.described(interface);
            if let (Some(writer), Format::PcapNg) = (&mut self.writer, self.report.format) {
                writer.add_interface(&described)?;
            }
            self.report
                .interfaces
                .push(InterfaceReport::new(&interface));
            self.report.interfaces.len() - 1
        };
        Ok(Lane {
            to: to as u32,
            link: link_type(interface.link, self.options.user0),
            coalescer: None,
            since: None,
        })
    }

    /// One packet.
    fn take(&mut self, mut arrival: Arrival, data: Vec<u8>) {
        self.pass_time(arrival.timestamp_ns);
        if self.order.span() >= SPAN_MAX || self.order.bytes() >= BYTES_MAX {
            self.flush();
        }
        self.report.received += 1;
        let Some(Some(lane)) = self.lanes.get_mut(arrival.interface as usize) else {
            // The reader gives no packet of an interface that it could not read.
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
        let layout = lane
            .link
            .and_then(|link| Layout::parse(link, &data, data.len() as u32).ok());
        if let Some(layout) = &layout {
            seen.flows.add(&data, layout);
        }
        let is_whole = arrival.original_bytes as usize == data.len();
        seen.cut_short += u64::from(!is_whole);
        seen.other_link += u64::from(lane.link.is_none());
        let checksum = match &layout {
            Some(layout) if is_whole => cut::checksum_of(&data, layout),
            _ => ChecksumState::None,
        };
        let unfinished = checksum != ChecksumState::None;
        seen.unfinished += u64::from(unfinished);
        let number = self.order.push(arrival, &data, unfinished);
        let frame = Frame::new(number, data, checksum);
        let mut sink = Sink {
            link: lane.link.unwrap_or_default(),
            order: &mut self.order,
            cutter: &mut self.cutter,
            seen,
            totals: &mut self.report.totals,
        };
        let (Some(link), Some(semantics)) = (lane.link, self.options.coalesce) else {
            return sink.settle(frame, &Done::Passed(NotTaken::Off), is_whole);
        };
        if lane.coalescer.is_none() {
            lane.coalescer = coalescer(&self.options, semantics, link);
        }
        let Some(coalescer) = &mut lane.coalescer else {
            return sink.settle(frame, &Done::Passed(NotTaken::Off), is_whole);
        };
        if is_whole {
            coalescer.push(self.now, frame, &mut |frame, done| {
                sink.settle(frame, done, true);
            });
        } else {
            // Its flow may be held, and must not overtake it.
            coalescer.flush(&mut |frame, done| sink.settle(frame, done, true));
            sink.settle(frame, &Done::Passed(NotTaken::Off), false);
        }
        let held = coalescer.held() as u64;
        seen.held_max = seen.held_max.max(held);
        if held == 0 {
            lane.since = None;
        } else if lane.since.is_none() {
            lane.since = Some(self.now);
            self.deadline = self
                .deadline
                .min(self.now.saturating_add(self.options.hold_ns));
        }
    }

    /// Ends windows that are over.
    fn pass_time(&mut self, timestamp_ns: u64) {
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
                order: &mut self.order,
                cutter: &mut self.cutter,
                seen,
                totals: &mut self.report.totals,
            };
            coalescer.flush(&mut |frame, done| sink.settle(frame, done, true));
        }
    }

    /// Writes every packet that no earlier one is in the way of.
    fn write_out(&mut self) -> Result<(), ReplayError> {
        while let Some((arrival, packets)) = self.order.pop() {
            let Some(seen) = self.report.interfaces.get_mut(arrival.interface as usize) else {
                continue;
            };
            for packet in packets {
                seen.records += 1;
                let bytes = (packet.len() as u32).max(packet.as_is(&arrival));
                seen.record_bytes += u64::from(bytes);
                if let Some(writer) = &mut self.writer {
                    let at = arrival.timestamp_ns;
                    writer.write(arrival.interface, at, bytes, [packet.bytes()])?;
                }
            }
        }
        Ok(())
    }

    /// Adds up what the coalescers of a section counted, and lets go of them.
    fn retire(&mut self) {
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
        self.retire();
        self.report.held = self.order.span() as u64;
        if let Some(writer) = self.writer {
            writer.finish()?;
        }
        Ok(self.report)
    }
}

/// Where packets go that come out of a coalescer.
struct Sink<'a> {
    link: LinkType,
    order: &'a mut Order,
    cutter: &'a mut Cutter,
    seen: &'a mut InterfaceReport,
    totals: &'a mut report::Totals,
}

impl Sink<'_> {
    fn settle(&mut self, frame: Frame, done: &Done, is_whole: bool) {
        let count = frame.count();
        self.seen.count_merged(count);
        let (first, more) = frame.numbers();
        match done {
            Done::Merged(merged) => {
                self.totals.absorbed += u64::from(merged.absorbed);
                let numbers = std::iter::once(first).chain(more.iter().copied());
                self.cutter.merged(
                    frame.bytes(),
                    merged,
                    numbers,
                    self.order,
                    self.seen,
                    self.totals,
                );
            }
            Done::Passed(_) | Done::Alone(_) if is_whole => {
                self.cutter
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
    let mut config = Config::new(semantics, link, options.flows);
    config.mode = options.mode;
    config.finish = Finish::Complete;
    let storage = Owned::for_config(&config);
    // The storage was made for this very configuration.
    Coalescer::new(config, storage).ok().map(Box::new)
}

/// What packets of a link type of captures begin with, where that is known here.
const fn link_type(link: LinkCode, user0: Option<LinkType>) -> Option<LinkType> {
    match link {
        LinkCode::ETHERNET => Some(LinkType::Ethernet),
        LinkCode::RAW | LinkCode::IPV4 | LinkCode::IPV6 => Some(LinkType::RawIp),
        LinkCode::USER0 => user0,
        _ => None,
    }
}
