//! What merging does to the packets of a capture, without an output.

use super::engine::{Counted, Engine, Output, Place};
use super::intake::{Batch, Event, Looked};
use super::options::{Options, queue_of};
use super::report::{InterfaceReport, Report, Totals};
use packtrain_offload::checksum::{self, Sum};
use packtrain_offload::coalesce::{Done, FlushReason, NotTaken, Packet};
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::ChecksumState;
use std::fmt;
use std::ops::Range;

/// Why a train ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The coalescer handed it on.
    Flushed(FlushReason),
    /// It is one packet that the coalescer did not take.
    NotTaken(NotTaken),
    /// It is one packet that the coalescer did not see: of a link type that is not parsed, without
    /// its headers, with its IP length left to a NIC, or where packets are not merged.
    PassedBy,
}

impl End {
    /// The name under which it is counted.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flushed(reason) => reason.name(),
            Self::NotTaken(reason) => reason.name(),
            Self::PassedBy => "passed_by",
        }
    }

    /// Whether its packets were held.
    #[must_use]
    pub const fn was_held(self) -> bool {
        matches!(self, Self::Flushed(_))
    }
}

/// Packets of a flow that leave as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Train {
    /// When its first packet arrived, in nanoseconds since the Unix epoch.
    pub time_ns: u64,
    /// Its interface, as an index of [`Report::interfaces`].
    pub interface: u32,
    /// Its queue.
    pub queue: u16,
    /// A hash of its addresses, ports and protocol, the same on every machine; 0 without ports.
    pub flow: u64,
    /// Its packets.
    pub packets: u32,
    /// Its bytes as one packet, with the link header.
    pub bytes: u32,
    /// How long its first packet was held.
    pub held_ns: u64,
    /// Why it ended.
    pub end: End,
}

/// Bytes of headers that need no memory of their own.
const INLINE_BYTES: usize = 96;

/// The start of a packet.
#[derive(Debug)]
enum Head {
    Inline([u8; INLINE_BYTES], u8),
    Long(Box<[u8]>),
}

impl Head {
    fn of(bytes: &[u8]) -> Self {
        let mut inline = [0; INLINE_BYTES];
        match inline.get_mut(..bytes.len()) {
            Some(start) => {
                start.copy_from_slice(bytes);
                Self::Inline(inline, bytes.len() as u8)
            }
            None => Self::Long(bytes.into()),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Inline(bytes, len) => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Self::Long(bytes) => bytes,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Inline(bytes, len) => bytes.get_mut(..usize::from(*len)).unwrap_or_default(),
            Self::Long(bytes) => bytes,
        }
    }
}

/// A packet without its payload, with the times of its packets.
#[derive(Debug)]
struct Lean {
    head: Head,
    bytes: u32,
    layout: Option<Layout>,
    checksum: ChecksumState,
    payload: Sum,
    flow: u64,
    /// The length of its own link header less that of an Ethernet header, which stands for it.
    lead: i16,
    first: u64,
    more: Vec<u64>,
}

impl Lean {
    fn new(packet: &Looked, head: &[u8]) -> Self {
        Self {
            head: Head::of(head),
            bytes: packet.bytes,
            layout: packet.layout,
            checksum: packet.checksum,
            payload: packet.payload,
            flow: packet.flow,
            lead: (i64::from(packet.wire_bytes) - i64::from(packet.bytes)) as i16,
            first: packet.at,
            more: Vec::new(),
        }
    }
}

impl Counted for Lean {
    fn count(&self) -> u64 {
        1 + self.more.len() as u64
    }
}

impl Packet for Lean {
    fn head(&self) -> &[u8] {
        self.head.bytes()
    }

    fn head_mut(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.head.bytes_mut().get_mut(..bytes)
    }

    fn bytes(&self) -> u32 {
        self.bytes
    }

    fn checksum(&self) -> ChecksumState {
        self.checksum
    }

    fn layout(&self) -> Option<Layout> {
        self.layout
    }

    fn sum(&self, range: Range<u32>) -> Sum {
        let payload = self
            .layout
            .map(|layout| layout.payload.into()..layout.ip_end);
        if payload == Some(range.clone()) {
            return self.payload;
        }
        let range = range.start as usize..range.end as usize;
        checksum::sum(self.head().get(range).unwrap_or_default())
    }

    fn truncate(&mut self, bytes: u32) {
        self.bytes = self.bytes.min(bytes);
    }

    fn append(&mut self, tail: Self, payload: Range<u32>) -> Result<(), Self> {
        self.bytes += payload.end - payload.start;
        self.more.push(tail.first);
        self.more.extend_from_slice(&tail.more);
        Ok(())
    }
}

/// What one configuration makes of the batches of an [`Intake`](super::Intake).
pub struct Analysis {
    options: Options,
    engine: Engine<Lean>,
    tally: Tally,
}

impl fmt::Debug for Analysis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Analysis")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Analysis {
    /// Nothing was taken yet. [`Options::segment`] has no meaning here.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        Self {
            options: *options,
            engine: Engine::new(*options),
            tally: Tally::default(),
        }
    }

    /// Takes the packets of a batch. Each train that ends meanwhile goes to `sink`: in the order in
    /// which they end.
    pub fn take(&mut self, batch: &Batch, sink: &mut impl FnMut(&Train)) {
        let Self {
            options,
            engine,
            tally,
        } = self;
        let out = &mut Trains { tally, sink };
        for event in &batch.events {
            let packet = match event {
                Event::Packet(packet) => packet,
                Event::SectionEnds(interfaces) => {
                    engine.finish_of(interfaces, out);
                    continue;
                }
                Event::Back { from, to } => {
                    engine.advance(*from, out);
                    engine.advance(*to, out);
                    continue;
                }
            };
            engine.advance(packet.at, out);
            let queue = queue_of(packet.rss, options.queues);
            let tally = out.tally.of(packet.interface, options.queues);
            tally.arrived(queue, packet.wire_bytes);
            let taken = packet.link.is_some_and(|link| {
                let place = Place {
                    interface: packet.interface,
                    queue,
                    link,
                };
                let frame = packet.merges.then(|| Lean::new(packet, batch.head(packet)));
                engine.take(place, frame, out).is_ok() && packet.merges
            });
            if !taken {
                out.single(packet, queue, End::PassedBy);
            }
        }
    }

    /// Ends all trains: no batch follows.
    pub fn finish(&mut self, sink: &mut impl FnMut(&Train)) {
        let out = &mut Trains {
            tally: &mut self.tally,
            sink,
        };
        self.engine.finish(out);
    }

    /// The report, from what was read.
    #[must_use]
    pub fn report(&self, read: &Report) -> Report {
        let mut report = read.clone();
        report.totals = self.tally.totals;
        for (seen, tally) in report.interfaces.iter_mut().zip(&self.tally.interfaces) {
            seen.merge(tally);
        }
        for (place, stats, held_max) in self.engine.stats() {
            if let Some(seen) = report.interfaces.get_mut(place.interface as usize) {
                seen.stats += *stats;
                seen.held_max = seen.held_max.max(held_max);
            }
        }
        report
    }
}

/// The part of a report that depends on the configuration.
#[derive(Debug, Default)]
struct Tally {
    interfaces: Vec<InterfaceReport>,
    totals: Totals,
}

impl Tally {
    fn of(&mut self, interface: u32, queues: u16) -> &mut InterfaceReport {
        let index = interface as usize;
        while self.interfaces.len() <= index {
            self.interfaces.push(InterfaceReport::of_queues(queues));
        }
        &mut self.interfaces[index]
    }
}

/// Counts trains, and hands them on.
struct Trains<'a, S> {
    tally: &'a mut Tally,
    sink: &'a mut S,
}

impl<S: FnMut(&Train)> Trains<'_, S> {
    fn single(&mut self, packet: &Looked, queue: u16, end: End) {
        let train = Train {
            time_ns: packet.at,
            interface: packet.interface,
            queue,
            flow: packet.flow,
            packets: 1,
            bytes: packet.wire_bytes,
            held_ns: 0,
            end,
        };
        let totals = &mut self.tally.totals;
        totals.transmitted += 1;
        self.count(&train, std::iter::once(0));
    }

    fn count(&mut self, train: &Train, delays: impl Iterator<Item = u64>) {
        if let Some(seen) = self.tally.interfaces.get_mut(train.interface as usize) {
            seen.records += 1;
            seen.record_bytes += u64::from(train.bytes);
            seen.left(train.queue, train.packets.into());
            delays.for_each(|ns| seen.delays.add(ns));
        }
        (self.sink)(train);
    }
}

impl<S: FnMut(&Train)> Output<Lean> for Trains<'_, S> {
    fn output(&mut self, place: Place, frame: Lean, done: &Done, at: u64) {
        let count = frame.count();
        let totals = &mut self.tally.totals;
        let end = match done {
            Done::Passed(reason) => End::NotTaken(*reason),
            Done::Alone(reason) => End::Flushed(*reason),
            Done::Merged(merged) => End::Flushed(merged.reason),
        };
        let absorbed = match done {
            Done::Merged(merged) => u64::from(merged.absorbed),
            Done::Passed(_) | Done::Alone(_) => 0,
        };
        totals.absorbed += absorbed;
        totals.transmitted += count - absorbed;
        let train = Train {
            time_ns: frame.first,
            interface: place.interface,
            queue: place.queue,
            flow: frame.flow,
            packets: count as u32,
            bytes: frame.bytes.saturating_add_signed(frame.lead.into()),
            held_ns: at.saturating_sub(frame.first),
            end,
        };
        let times = std::iter::once(frame.first).chain(frame.more);
        self.count(&train, times.map(|time| at.saturating_sub(time)));
    }
}
