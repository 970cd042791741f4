//! Coalescing and segmentation of captures, offline.
//!
//! Each interface has its own [`Coalescer`](packtrain_offload::coalesce::Coalescer), or one for
//! each queue ([`Options::queues`]). There are two ways to use them, with the same decisions:
//!
//! - [`run`] reads a capture packet by packet, and can write what leaves the coalescers to another
//!   capture.
//! - [`Intake`] reads captures into a [`Batch`], and any number of [`Analysis`] take it, each with
//!   its own [`Options`], and say which packets became one [`Train`]. They look at headers, so a
//!   capture need not have more of each packet.
//!
//! # Time
//!
//! A packet is held for at most [`Options::hold_ns`] of *capture* time. The first held packet of a
//! queue opens a window, which has the packets that arrive within the hold time. At its end all
//! packets are flushed, as with a NIC that interrupts that long after the first packet and a driver
//! that flushes at the end of its poll. A window also ends after [`SPAN_MAX`] packets or
//! [`BYTES_MAX`] bytes, if timestamps go back, and at the end of a pcapng section. Before four
//! times as many packets or bytes wait to be written, [`run`] ends all windows. With a long hold
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
//! # Headers only
//!
//! A capture may have 64 or 96 bytes of each packet. An [`Intake`] takes the lengths of such
//! packets from their IP headers, and their checksums for right: decisions, counts and times are
//! those of the whole packets, if their checksums are right. [`run`] writes packets, so those that
//! are cut pass by.
//!
//! # Packets that do not change
//!
//! Packets that the capture does not have whole (unless only their headers are used), packets of
//! link types other than Ethernet, raw IP, those of [`Cooked`](crate::Cooked) and that of
//! [`Options::user0`], packets whose IP length was left to a NIC, and packets that the coalescer
//! does not merge: see [`NotTaken`](packtrain_offload::coalesce::NotTaken).
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
//! Memory does not depend on the length of the capture: a table and a queue for each queue of an
//! interface with IP packets, and the packets of one window.

mod analysis;
mod delays;
mod engine;
mod frame;
mod hash;
mod intake;
mod interfaces;
mod lead;
mod length;
mod look;
mod options;
mod order;
mod report;
mod split;

#[cfg(test)]
mod tests;

pub use analysis::{Analysis, End, Train};
pub use delays::Delays;
pub use frame::Frame;
pub use intake::{Batch, Intake};
pub use options::{BYTES_MAX, Limits, Options, QUEUES_MAX, ReplayError, SPAN_MAX, Segment};
pub use report::{ETHERNET_MTU, HISTOGRAM_FROM, InterfaceReport, QueueReport, Report, Times};

use crate::codec::{
    COMMENT, Format, Interface, Item, PACKET_FLAGS, Reader, Writer, select_options,
};
use engine::{Counted as _, Engine, Output, Place};
use interfaces::Interfaces;
use look::Look;
use options::queue_of;
use order::{Arrival, Next, Order};
use packtrain_offload::coalesce::{Done, Semantics};
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::ChecksumState;
use report::LastFlow;
use split::Splitter;
use std::borrow::Cow;
use std::io::{Read, Write};

/// The most packets that wait to be written: four times those of a window.
const ORDER_SPAN_MAX: usize = 4 * SPAN_MAX;
/// The most bytes that wait to be written, without the last packet.
const ORDER_BYTES_MAX: usize = 4 * BYTES_MAX;

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
        let now = replay.engine.now();
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

struct Replay<W: Write> {
    options: Options,
    writer: Option<Writer<W>>,
    interfaces: Interfaces,
    engine: Engine<Frame>,
    order: Order,
    splitter: Splitter,
    flows: LastFlow,
    report: Report,
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
            interfaces: Interfaces::new(input.sections()),
            engine: Engine::new(options),
            order: Order::default(),
            splitter: Splitter::new(options.segment, options.coalesce),
            flows: LastFlow::default(),
            report: Report::new(format),
        };
        let interface = match format {
            Format::Pcap { .. } => input.interface(0),
            Format::PcapNg => None,
        };
        let interface = interface.map(|interface| described(&options, &interface));
        if let Some(output) = output {
            let options = input.section_options();
            let writer = Writer::with_section(output, format, interface.as_slice(), options)?;
            // Records may be longer than the snapshot length of the capture. They are kept whole.
            replay.writer = Some(writer.without_truncation());
        }
        Ok(replay)
    }

    /// Adds the interfaces that the input has described since the last call. The last one has these
    /// options.
    fn update_interfaces<R: Read>(
        &mut self,
        input: &Reader<R>,
        options: Option<&[u8]>,
    ) -> Result<(), ReplayError> {
        if self.interfaces.ended_section(input).is_some() {
            let (engine, mut sink) = self.sink();
            engine.finish(&mut sink);
            self.write_out()?;
        }
        let (settings, format) = (self.options, self.report.format);
        let writer = &mut self.writer;
        let mut added = |interface: &Interface<'_>, options: &[u8]| {
            if let (Some(writer), Format::PcapNg) = (&mut *writer, format) {
                writer.add_interface_with(&described(&settings, interface), options)?;
            }
            Ok(())
        };
        let before = self.report.interfaces.len();
        self.interfaces.update(
            input,
            &settings,
            options,
            &mut self.report.interfaces,
            &mut added,
        )?;
        for seen in self.report.interfaces.iter_mut().skip(before) {
            seen.set_queues(settings.queues);
        }
        Ok(())
    }

    /// A block without a packet.
    fn pass_block(&mut self, kind: u32, mut body: Vec<u8>, interface: Option<u32>) {
        if let Some(index) = interface {
            let to = self
                .interfaces
                .lane(index)
                .map(|lane| lane.to.to_le_bytes());
            let (Some(to), Some(at)) = (to, body.first_chunk_mut()) else {
                // Not possible: the reader returns no statistics of a bad interface.
                self.report.blocks_left_out += 1;
                return;
            };
            *at = to;
        }
        self.make_room();
        self.order.push_block(kind, body);
    }

    /// Ends all windows if too much waits for the oldest held packet.
    fn make_room(&mut self) {
        if self.order.span() >= ORDER_SPAN_MAX || self.order.bytes() >= ORDER_BYTES_MAX {
            let (engine, mut sink) = self.sink();
            engine.flush(&mut sink);
        }
    }

    /// One packet.
    fn take(&mut self, mut arrival: Arrival, data: Vec<u8>) {
        let (engine, mut sink) = self.sink();
        engine.advance(arrival.timestamp_ns, &mut sink);
        self.make_room();
        self.report.received_at(arrival.timestamp_ns);
        let seen = self.interfaces.lane(arrival.interface).and_then(|lane| {
            let seen = self.report.interfaces.get_mut(lane.to as usize)?;
            Some((lane, seen))
        });
        let Some((lane, seen)) = seen else {
            // Not possible: the reader returns no packet of a bad interface.
            self.report.dropped += 1;
            return;
        };
        let mut data = Cow::Owned(data);
        let wire_bytes = arrival.original_bytes;
        let look = Look::at(lane, &mut data, wire_bytes, &mut self.flows);
        look.count(&data, seen);
        let data = data.into_owned();
        arrival.interface = lane.to;
        arrival.original_bytes = look.bytes;
        arrival.lead = look.lead;
        seen.cut_short += u64::from(!look.is_whole);
        let merges = look.is_whole && look.restored.is_none();
        let checksum = match &look.layout {
            Ok(layout) if merges => split::checksum_of(&data, layout),
            _ => ChecksumState::None,
        };
        let partial = checksum != ChecksumState::None;
        seen.unfinished += u64::from(partial);
        let rss = match self.options.queues {
            0 | 1 => 0,
            _ => look.rss(&data),
        };
        let queue = queue_of(rss, self.options.queues);
        seen.arrived(queue, wire_bytes);
        let number = self.order.push(arrival, &data, partial);
        let frame = Frame::new(number, data, checksum);
        let place = Place {
            interface: lane.to,
            queue,
            link: lane.link.unwrap_or_default(),
        };
        let (engine, mut sink) = self.sink();
        let (into, mut by) = match merges {
            true => (Some(frame), None),
            false => (None, Some(frame)),
        };
        match look.link.is_some() {
            true => {
                if let Err(back) = engine.take(place, into, &mut sink) {
                    by = by.or(back);
                }
            }
            false => by = by.or(into),
        }
        if let Some(frame) = by {
            let is_whole = look.is_whole && look.link.is_some();
            sink.pass_by(place, frame, look.restored.as_ref(), is_whole);
        }
    }

    const fn sink(&mut self) -> (&mut Engine<Frame>, Sink<'_>) {
        let sink = Sink {
            order: &mut self.order,
            splitter: &mut self.splitter,
            report: &mut self.report,
        };
        (&mut self.engine, sink)
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

    fn finish(mut self) -> Result<Report, ReplayError> {
        let (engine, mut sink) = self.sink();
        engine.finish(&mut sink);
        self.write_out()?;
        for (place, stats, held_max) in self.engine.stats() {
            if let Some(seen) = self.report.interfaces.get_mut(place.interface as usize) {
                seen.stats += *stats;
                seen.held_max = seen.held_max.max(held_max);
            }
        }
        self.report.held = self.order.span() as u64;
        if let Some(writer) = self.writer {
            writer.finish()?;
        }
        Ok(self.report)
    }
}

/// The description of an interface in the output: without a snapshot length if packets stay merged.
fn described<'a>(options: &Options, interface: &Interface<'a>) -> Interface<'a> {
    let grows = options.coalesce.is_some() && options.segment != Segment::Original;
    Interface {
        snaplen: if grows { 0 } else { interface.snaplen },
        ..*interface
    }
}

/// Takes what leaves the coalescers.
struct Sink<'a> {
    order: &'a mut Order,
    splitter: &'a mut Splitter,
    report: &'a mut Report,
}

impl Sink<'_> {
    /// Outputs a packet that no coalescer sees. `restored` has its IP length. A packet that is not
    /// whole is not split.
    fn pass_by(
        &mut self,
        place: Place,
        frame: Frame,
        restored: Option<&(Vec<u8>, Layout)>,
        is_whole: bool,
    ) {
        let totals = &mut self.report.totals;
        let Some(seen) = self.report.interfaces.get_mut(place.interface as usize) else {
            return;
        };
        seen.left(place.queue, 1);
        seen.delays.add(0);
        match restored {
            Some((packet, layout)) if is_whole => {
                let packet = (&packet[..], layout);
                self.splitter
                    .without_length(frame, packet, self.order, seen, totals);
            }
            _ if is_whole => {
                self.splitter
                    .single(frame, place.link, self.order, seen, totals);
            }
            _ => {
                totals.transmitted += 1;
                let (number, _) = frame.numbers();
                self.order.as_is(number, frame.into_bytes());
            }
        }
    }
}

impl Output<Frame> for Sink<'_> {
    fn output(&mut self, place: Place, frame: Frame, done: &Done, at: u64) {
        let totals = &mut self.report.totals;
        let Some(seen) = self.report.interfaces.get_mut(place.interface as usize) else {
            return;
        };
        seen.left(place.queue, frame.count());
        let (first, more) = frame.numbers();
        let numbers = std::iter::once(first).chain(more.iter().copied());
        for arrived in numbers
            .clone()
            .filter_map(|number| self.order.arrived(number))
        {
            seen.delays.add(at.saturating_sub(arrived));
        }
        match done {
            Done::Merged(merged) => {
                totals.absorbed += u64::from(merged.absorbed);
                let packet = frame.bytes();
                self.splitter
                    .merged(packet, merged, numbers, self.order, seen, totals);
            }
            Done::Passed(_) | Done::Alone(_) => {
                self.splitter
                    .single(frame, place.link, self.order, seen, totals);
            }
        }
    }
}
