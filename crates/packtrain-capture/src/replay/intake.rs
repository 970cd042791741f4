//! Reads captures for any number of configurations: each packet is parsed and summed once.

use super::interfaces::{Interfaces, Lane};
use super::look::{Look, ipv4_checksum};
use super::options::{Options, ReplayError, queue_of};
use super::report::{LastFlow, Report};
use super::split;
use crate::codec::{CaptureError, Format, Interface, Item, Reader};
use packtrain_offload::checksum::{self, Sum};
use packtrain_offload::layout::{Layout, ParseError};
use packtrain_offload::limits::HEADER_BYTES_MAX;
use packtrain_offload::offload::{ChecksumState, LinkType};
use std::borrow::Cow;
use std::io::Read;
use std::mem;
use std::ops::Range;

/// Packets of a batch, at most.
const BATCH_PACKETS: usize = 8192;
/// Packets and blocks that are read for a batch, at most: the caller gets control back also if all
/// of them are bad or left out.
const STEPS_MAX: usize = 8 * BATCH_PACKETS;
/// Bytes of a packet that are kept if it has as many: so the coalescer has the headers of nearly
/// all packets in one load.
const HEAD_BYTES: usize = 96;

/// Packets of captures, parsed, for [`Analysis::take`](super::Analysis::take). Memory for at most
/// 8,192 packets, which is used again.
#[derive(Debug, Default)]
pub struct Batch {
    /// Events have no destructor, so that removing them is free.
    pub(super) events: Vec<Event>,
    heads: Vec<u8>,
    /// Those of the sections that end.
    ended: Vec<u32>,
    interfaces: Vec<Option<String>>,
}

impl Batch {
    /// The names of the interfaces that are described so far, if they have one, in the order of
    /// [`Report::interfaces`].
    #[must_use]
    pub fn interfaces(&self) -> &[Option<String>] {
        &self.interfaces
    }

    /// Whether there is room for more, after so many steps.
    const fn goes_on(&self, steps: usize) -> bool {
        self.events.len() < BATCH_PACKETS && steps < STEPS_MAX
    }

    pub(super) fn ended(&self, interfaces: &Range<usize>) -> &[u32] {
        self.ended.get(interfaces.clone()).unwrap_or_default()
    }

    pub(super) fn head(&self, packet: &Looked) -> &[u8] {
        let (at, bytes) = packet.head;
        self.heads.get(at..at + bytes).unwrap_or_default()
    }
}

/// What happens in a capture.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Packet(Looked),
    /// A pcapng section with these interfaces ends.
    SectionEnds(Range<usize>),
    /// The time goes back to that of the next packet, which may be left out.
    Back {
        from: u64,
        to: u64,
    },
}

/// A packet, parsed and summed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looked {
    pub at: u64,
    pub interface: u32,
    /// `None` for a packet of another link type.
    pub link: Option<LinkType>,
    /// It goes to the coalescer; otherwise it passes by.
    pub merges: bool,
    /// Its length with an Ethernet header in the place of its own link header.
    pub bytes: u32,
    /// Its length on the wire.
    pub wire_bytes: u32,
    /// The place of its head in the batch: where it starts, and its bytes.
    head: (usize, usize),
    pub layout: Option<Layout>,
    pub checksum: ChecksumState,
    /// The sum of its payload, unless its checksum is taken as correct.
    pub payload: Sum,
    pub flow: u64,
    pub rss: u32,
}

/// Reads captures, packet by packet, in the order of time.
///
/// The captures of one set are as one: interfaces with equal descriptions are one interface, and a
/// window that is open at the end of one capture goes on in the next.
#[derive(Debug)]
pub struct Intake<R> {
    /// Those that are not read to their end.
    files: Vec<File<R>>,
    packets: Packets,
    stopped: Vec<(usize, CaptureError)>,
}

#[derive(Debug)]
struct File<R> {
    number: usize,
    input: Reader<R>,
    interfaces: Interfaces,
    /// A packet that was read while another capture has an earlier one.
    next: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    at: u64,
    lane: Option<Lane>,
    wire_bytes: u32,
    data: Vec<u8>,
}

impl<R: Read> Intake<R> {
    /// Reads nothing yet. `runs` are the configurations that the batches are for:
    /// [`Options::user0`] and [`Options::headers_only`] are those of the first one.
    #[must_use]
    pub fn new(runs: &[Options]) -> Self {
        Self {
            files: Vec::new(),
            packets: Packets {
                options: runs.first().copied().unwrap_or_default(),
                hashes: runs.iter().any(|options| options.queues > 1),
                only: None,
                flows: LastFlow::default(),
                report: Report::new(Format::PcapNg),
                now: 0,
            },
            stopped: Vec::new(),
        }
    }

    /// Takes only the packets of this queue, by the number of queues of the first configuration;
    /// all others are left out, as if the captures had none. The reports of all queues add up to
    /// that of the whole: what is no packet is counted with queue 0.
    #[must_use]
    pub fn of_queue(mut self, queue: u16) -> Self {
        self.packets.only = Some(queue);
        self.packets.hashes = true;
        self
    }

    /// Adds the next capture, under a number of the caller's. Its first packet is not earlier than
    /// those of the captures before it.
    ///
    /// # Errors
    /// [`ReplayError::TooManyInterfaces`].
    pub fn add(&mut self, number: usize, input: Reader<R>) -> Result<(), ReplayError> {
        let packets = &mut self.packets;
        if packets.report.interfaces.is_empty() {
            packets.report.format = input.format();
        }
        let mut file = File {
            number,
            interfaces: Interfaces::new(input.sections()),
            input,
            next: None,
        };
        file.update(packets, None)?;
        self.files.push(file);
        Ok(())
    }

    /// The captures that were not read to their end, by their numbers, and why. The others are not
    /// affected.
    #[must_use]
    pub fn stopped(&self) -> &[(usize, CaptureError)] {
        &self.stopped
    }

    /// Counts a capture that cannot be read at all, under a number of the caller's, with
    /// [`stopped`](Self::stopped).
    pub fn refuse(&mut self, number: usize, error: CaptureError) {
        let report = &mut self.packets.report;
        (report.last_bad, report.stopped) = (Some(error), Some(error));
        self.stopped.push((number, error));
    }

    /// What was read. It does not depend on the settings of merging: see
    /// [`Analysis::report`](super::Analysis::report).
    #[must_use]
    pub const fn report(&self) -> &Report {
        &self.packets.report
    }

    /// Reads the next packets into `batch`, in the place of those before. Returns whether anything
    /// was read: not at the end of all captures. An error that is fatal ends the reading of one of
    /// them ([`stopped`](Self::stopped)). The batch may have no packet, if what was read was bad or
    /// left out. Packets from `until` on are not read: that is the time of the first packet of a
    /// capture that is not added yet.
    ///
    /// # Errors
    /// [`ReplayError::TooManyInterfaces`].
    pub fn fill(&mut self, batch: &mut Batch, until: Option<u64>) -> Result<bool, ReplayError> {
        batch.events.clear();
        batch.heads.clear();
        batch.ended.clear();
        let until = until.unwrap_or(u64::MAX);
        let mut steps = 0;
        while batch.goes_on(steps) {
            if let Some(index) = self.files.iter().position(|file| file.next.is_none()) {
                self.read(index, until, batch, &mut steps)?;
                continue;
            }
            let waiting = self.files.iter_mut().filter_map(|file| {
                let at = file.next.as_ref()?.at;
                Some((at, &mut file.next))
            });
            let earliest = waiting.min_by_key(|(at, _)| *at);
            let earliest = earliest.filter(|(at, _)| *at < until || until == u64::MAX);
            let Some((at, next)) = earliest else { break };
            steps += 1;
            if let Some(waiting) = next.take() {
                let packet = (at, waiting.wire_bytes, &waiting.data[..]);
                self.packets.take(waiting.lane, packet, batch);
            }
        }
        let names = self.packets.report.interfaces.iter().map(|seen| &seen.name);
        if !names.clone().eq(&batch.interfaces) {
            batch.interfaces = names.cloned().collect();
        }
        Ok(steps > 0)
    }

    /// Reads packets of a capture, up to the next other item. A packet is kept waiting if another
    /// capture may have an earlier one.
    fn read(
        &mut self,
        index: usize,
        until: u64,
        batch: &mut Batch,
        steps: &mut usize,
    ) -> Result<(), ReplayError> {
        let others = self.files.iter().enumerate();
        let others = others.filter(|(other, _)| *other != index);
        let bound = others
            .map(|(_, file)| file.next.as_ref().map_or(0, |next| next.at))
            .min()
            .unwrap_or(u64::MAX)
            .min(until);
        let Some(file) = self.files.get_mut(index) else {
            return Ok(());
        };
        let packets = &mut self.packets;
        let item = loop {
            *steps += 1;
            let record = match file.input.next_item() {
                Ok(Some(Item::Record(record))) => record,
                other => break other.map(|item| item.map(|item| item.map(drop))),
            };
            let at = record.timestamp_ns.unwrap_or(packets.now);
            let lane = file.interfaces.lane(record.interface);
            let wire_bytes = record.original_bytes;
            if at >= bound && bound < u64::MAX {
                let data = record.data.to_vec();
                file.next = Some(Waiting {
                    at,
                    lane,
                    wire_bytes,
                    data,
                });
                return Ok(());
            }
            packets.take(lane, (at, wire_bytes, record.data), batch);
            if !batch.goes_on(*steps) {
                return Ok(());
            }
        };
        let is_first = matches!(packets.only, None | Some(0));
        let (report, mut options) = (&mut packets.report, None);
        match item {
            Ok(Some(Item::Interface(described))) => options = Some(described),
            // Blocks are copied only where there is an output.
            Ok(Some(Item::Record(()) | Item::Block { .. })) => return Ok(()),
            Ok(Some(Item::LeftOut)) => report.blocks_left_out += u64::from(is_first),
            Ok(None) => {
                file.update(packets, None)?;
                self.files.remove(index);
                return Ok(());
            }
            Err(error) => {
                if error.costs_a_record() && is_first {
                    report.received += 1;
                    report.dropped += 1;
                }
                report.last_bad = Some(error);
                if error.is_fatal() {
                    let number = file.number;
                    file.update(packets, None)?;
                    self.files.remove(index);
                    self.refuse(number, error);
                    return Ok(());
                }
            }
        }
        if let Some(interfaces) = file.interfaces.ended_section(&file.input) {
            let from = batch.ended.len();
            batch.ended.extend(interfaces);
            let ended = from..batch.ended.len();
            batch.events.push(Event::SectionEnds(ended));
        }
        file.update(packets, options.as_deref())
    }
}

impl<R: Read> File<R> {
    fn update(&mut self, packets: &mut Packets, options: Option<&[u8]>) -> Result<(), ReplayError> {
        let (settings, interfaces) = (&packets.options, &mut packets.report.interfaces);
        let added = &mut |_: &Interface<'_>, _: &[u8]| Ok(());
        self.interfaces
            .update(&self.input, settings, options, interfaces, added)
    }
}

/// Parses packets, and counts them.
#[derive(Debug)]
struct Packets {
    options: Options,
    /// Whether packets are hashed for queues.
    hashes: bool,
    /// The queue whose packets are taken, if not all are.
    only: Option<u16>,
    flows: LastFlow,
    report: Report,
    /// The time of the last one.
    now: u64,
}

impl Packets {
    /// Takes a packet: its time, its length on the wire and its bytes.
    fn take(
        &mut self,
        lane: Option<Lane>,
        (at, wire_bytes, data): (u64, u32, &[u8]),
        batch: &mut Batch,
    ) {
        let from = mem::replace(&mut self.now, at);
        // Where the time goes back, the windows of all queues end, also if the packet is left out.
        if at < from && self.only.is_some() {
            batch.events.push(Event::Back { from, to: at });
        }
        let seen = lane.and_then(|lane| {
            let seen = self.report.interfaces.get_mut(lane.to as usize)?;
            Some((lane, seen))
        });
        let Some((lane, seen)) = seen else {
            // Not possible: the reader returns no packet of a bad interface.
            self.report.received += 1;
            self.report.dropped += 1;
            return;
        };
        let mut data = Cow::Borrowed(data);
        let mut look = Look::at(lane, &mut data, wire_bytes, &mut self.flows);
        look.complete(&mut data, &mut self.flows);
        let data = &*data;
        let layout = look.layout.as_ref().ok();
        let rss = if self.hashes { look.rss(data) } else { 0 };
        let queue = queue_of(rss, self.options.queues);
        if self.only.is_some_and(|only| only != queue) {
            return;
        }
        look.count(data, seen);
        let is_cut = matches!(look.layout, Err(ParseError::HeadersNotContiguous));
        let mut packet = Looked {
            at,
            interface: lane.to,
            link: look.link,
            merges: look.link.is_some() && look.restored.is_none(),
            bytes: look.bytes,
            wire_bytes,
            head: (0, 0),
            layout: layout.copied(),
            checksum: ChecksumState::None,
            payload: Sum::default(),
            flow: look.flow,
            rss,
        };
        let by_headers = !look.is_whole || self.options.headers_only;
        if by_headers && packet.merges {
            packet.merges = !is_cut;
            packet.checksum = ChecksumState::Unnecessary;
            seen.by_headers += u64::from(!is_cut);
        }
        seen.cut_short += u64::from(!look.is_whole && !packet.merges);
        if let (false, true, Some(layout)) = (by_headers, packet.merges, layout) {
            packet.checksum = split::checksum_of(data, layout);
            seen.unfinished += u64::from(packet.checksum != ChecksumState::None);
            let payload = usize::from(layout.payload)..layout.ip_end as usize;
            packet.payload = checksum::sum(data.get(payload).unwrap_or_default());
        }
        let headers = layout.map_or(HEADER_BYTES_MAX, |layout| layout.payload.into());
        let head = data.len().min(headers.max(HEAD_BYTES));
        packet.head = (batch.heads.len(), head);
        let start = data.get(..head).unwrap_or_default();
        batch.heads.extend_from_slice(start);
        // Read from the packet: a read of its copy would wait until the copy is in memory.
        let right = layout
            .filter(|_| by_headers)
            .and_then(|layout| ipv4_checksum(start, layout));
        if let Some((at, right)) = right
            && let Some(field) = batch.heads[packet.head.0..].get_mut(at)
        {
            field.copy_from_slice(&right.to_be_bytes());
        }
        self.report.received_at(at);
        batch.events.push(Event::Packet(packet));
    }
}
